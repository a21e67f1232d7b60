//! The figures of LoRA adapters in the JSON document, if there are adapters.

use std::collections::BTreeMap;

use blis_sim::metrics::{AdapterFigures, Aggregate};
use blis_sim::request::Name;
use blis_workload::Names;
use serde::Serialize;

/// Figures of a LoRA adapter.
#[derive(Serialize)]
pub(super) struct AdapterJson {
    /// How often it was loaded into a slot. Unit: loads.
    load_count: u64,
    /// How often it lost its slot. Unit: evictions.
    eviction_count: u64,
    /// Median time to first token of its requests; 0 without any.
    ttft_p50_us: f64,
    /// 99th percentile of the same.
    ttft_p99_us: f64,
    /// Output tokens of its completed requests per second. Unit: tokens/s.
    throughput_tok_per_s: f64,
    /// Completed requests that named it.
    completed_requests: u64,
    /// Loads that read it from disk. Unit: loads.
    loads_from_disk: u64,
    /// Loads that copied it from the host's memory. Unit: loads.
    loads_from_host: u64,
}

/// The figures of all adapters, by name.
pub(super) type AdaptersJson<'a> = BTreeMap<&'a str, AdapterJson>;

/// The figures of the adapters of an instance or of the cluster.
pub(super) fn adapters_json<'a>(figures: &[(Name, AdapterFigures)], names: &'a Names) -> AdaptersJson<'a> {
    let json = |figures: &AdapterFigures| AdapterJson {
        load_count: figures.loads(),
        eviction_count: figures.evictions,
        ttft_p50_us: figures.ttft.p50_ms * 1e3,
        ttft_p99_us: figures.ttft.p99_ms * 1e3,
        throughput_tok_per_s: figures.tokens_per_second,
        completed_requests: figures.completed,
        loads_from_disk: figures.loads_from_disk,
        loads_from_host: figures.loads_from_host,
    };
    figures.iter().map(|(name, figures)| (names.text(*name), json(figures))).collect()
}

/// The use of slots, of all steps together.
#[derive(Serialize)]
pub(super) struct SlotUseJson {
    /// Distinct LoRA adapters of the scheduled requests, mean over steps; if there are adapters. Unit: adapters.
    adapters_per_step: f64,
    /// Time from the first step that left a request waiting for a slot of its LoRA adapter to its admission, summed
    /// over requests; if there are adapters.
    slot_wait_s: f64,
}

impl SlotUseJson {
    pub fn new(aggregate: &Aggregate) -> Self {
        let counters = &aggregate.counters;
        Self {
            adapters_per_step: counters.adapter_uses as f64 / counters.steps.max(1) as f64,
            slot_wait_s: counters.slot_wait.as_secs_f64(),
        }
    }
}
