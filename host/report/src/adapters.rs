//! The figures of LoRA adapters in the JSON document, if there are adapters.

use std::collections::BTreeMap;

use blis_sim::metrics::{AdapterFigures, Aggregate};
use blis_sim::request::Name;
use blis_workload::Names;
use serde::Serialize;

/// The figures of an adapter: the published fields, then the additions.
#[derive(Serialize)]
pub(super) struct AdapterJson {
    load_count: u64,
    eviction_count: u64,
    ttft_p50_us: f64,
    ttft_p99_us: f64,
    throughput_tok_per_s: f64,
    completed_requests: u64,
    loads_from_disk: u64,
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
    adapters_per_step: f64,
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
