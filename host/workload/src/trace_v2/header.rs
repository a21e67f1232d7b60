//! The YAML header of a TraceV2 trace. It is strict: an unknown key is an error.
//!
//! A replay needs none of its values, but must refuse a trace that it would misread (another version, other units).
//! Server, network and targets describe the recording, for calibration and reports.

use std::collections::BTreeMap;
use std::io::{BufRead, Read as _};
use std::sync::Arc;

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::error::TraceError;
use blis_diag::{RowError, yaml};

/// The metadata of a TraceV2 trace.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TraceHeader {
    /// Version of the format; always 3.
    pub trace_version: u32,
    /// Unit of times; always `microseconds`.
    #[serde(default)]
    pub time_unit: String,
    /// Time of the recording, as text.
    pub created_at: Option<String>,
    /// Origin of the times.
    pub mode: Option<Mode>,
    /// Number of requests at the start that were sent to warm up the server.
    #[serde(default)]
    pub warm_up_requests: u64,
    /// Seed of the workload that was recorded.
    pub workload_seed: Option<i64>,
    /// The specification that it was generated from.
    pub workload_spec: Option<String>,
    /// How prompts of a session grow.
    #[serde(default)]
    pub session_context_growth: SessionGrowth,
    /// The server that was measured.
    pub server: Option<RecordedServer>,
    /// The network between client and server.
    pub network: Option<RecordedNetwork>,
    /// Latency targets by service class.
    #[serde(default)]
    pub goodput_slo_targets: BTreeMap<String, GoodputTargets>,
    /// Settings of KV offloading: BLIS's tiers, which have a reader of their own.
    pub kv_offload: Option<IgnoredAny>,
    /// Figures of the KV cache that the server reported.
    pub observed_kv_metrics: Option<ObservedKv>,
}

impl TraceHeader {
    /// The parts of the header that no request contains.
    pub(super) fn aside(&self) -> impl Iterator<Item = &'static str> + use<> {
        let unused = [
            (self.workload_seed.is_some(), "the seed"),
            (self.session_context_growth == SessionGrowth::Accumulate, "the growth of prompts in sessions"),
            (self.server.is_some(), "the server"),
            (self.kv_offload.is_some(), "the settings of KV offloading"),
        ];
        unused.into_iter().filter_map(|(there, what)| there.then_some(what))
    }
}

/// Origin of the times in a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    Real,
    Generated,
    Replayed,
}

/// How prompts of a session grow from round to round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SessionGrowth {
    /// Prompts do not contain the conversation before.
    #[default]
    #[serde(rename = "")]
    None,
    /// Every prompt contains the conversation before it.
    Accumulate,
}

/// The server on which a trace was recorded.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[allow(missing_docs, reason = "the fields are vLLM's own settings of these names")]
pub struct RecordedServer {
    #[serde(rename = "type")]
    pub kind: Option<String>,
    pub model: Option<String>,
    pub tensor_parallel: Option<u32>,
    pub max_num_seqs: Option<u32>,
    pub block_size: Option<u32>,
    pub gpu_memory_utilization: Option<f64>,
    pub max_model_len: Option<u32>,
}

/// The network between client and server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RecordedNetwork {
    /// Round-trip time between client and server, ms.
    pub measured_rtt_ms: f64,
}

/// Latency targets of a service class, ms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GoodputTargets {
    /// Target of the TTFT, ms.
    pub ttft_ms: Option<f64>,
    /// Target of the inter-token latency, ms.
    pub itl_ms: Option<f64>,
    /// Target of the end-to-end latency, ms.
    pub e2e_ms: Option<f64>,
}

/// Figures of the KV cache that a server reported during the recording.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ObservedKv {
    /// Name of the counters.
    pub source: Option<String>,
    /// Prefix-cache hit rate, 0 to 1.
    pub hit_rate: Option<f64>,
    /// Prefix-cache hits, blocks.
    pub block_hits: Option<f64>,
    /// Prefix-cache look-ups, blocks.
    pub block_queries: Option<f64>,
    /// Time of loading blocks from offload storage, s.
    pub read_time_total: Option<f64>,
    /// Time of storing blocks to offload storage, s.
    pub write_time_total: Option<f64>,
    /// Commit of the vLLM that was measured.
    pub vllm_commit: Option<String>,
}

/// Reads and checks the header of a TraceV2 trace.
///
/// # Errors
/// [`TraceError::Io`], or [`TraceError::Line`] with line and column.
pub fn read_header(input: impl BufRead, file: &str) -> Result<TraceHeader, TraceError> {
    const HEADER_BYTES_MAX: u64 = 1 << 20;
    let file: Arc<str> = file.into();
    let mut text = Vec::new();
    let read = input.take(HEADER_BYTES_MAX + 1).read_to_end(&mut text);
    read.map_err(|source| TraceError::Io { file: Arc::clone(&file), source })?;
    if text.len() as u64 > HEADER_BYTES_MAX {
        let fault = RowError::new("the header is longer than 1 MiB").hint("is this the header, or the data?");
        return Err(fault.at(&file, 1).into());
    }
    let text = String::from_utf8(text).map_err(|_| RowError::new("the header is not valid UTF-8").at(&file, 1))?;
    if text.trim().is_empty() {
        let fault = RowError::new("the header is empty").hint("it begins with `trace_version: 3`");
        return Err(fault.at(&file, 1).into());
    }
    let header: TraceHeader = yaml::from_str(&text).map_err(|error| yaml_error(&error, &file))?;
    match check(&header) {
        Ok(()) => Ok(header),
        Err((key, fault)) => Err(fault.at(&file, line_of(&text, key)).into()),
    }
}

fn check(header: &TraceHeader) -> Result<(), (&'static str, RowError)> {
    if header.trace_version != 3 {
        let fault = RowError::new(format!("`trace_version` is {}, only 3 can be read", header.trace_version));
        return Err(("trace_version", fault.hint("export the trace anew with a current BLIS")));
    }
    if header.time_unit != "microseconds" {
        let fault = RowError::new(format!("`time_unit` is `{}`, not `microseconds`", header.time_unit));
        return Err(("time_unit", fault.hint("write `time_unit: microseconds` and convert the times of the CSV")));
    }
    Ok(())
}

fn yaml_error(error: &yaml::Error, file: &Arc<str>) -> TraceError {
    let (what, hint) = yaml::explain(error);
    let fault = RowError::new(what);
    // What to do about broken YAML depends on why the header is read: its reader says so.
    let mut fault = if let yaml::Fault::Yaml(_) = error.fault() { fault } else { fault.hint(hint) };
    fault.column = error.location().map(|location| location.column());
    fault.at(file, error.location().map_or(1, |location| location.line())).into()
}

/// The line of a top-level key; the first line if it is missing.
fn line_of(text: &str, key: &str) -> u64 {
    let mut lines = text.split('\n');
    lines.position(|line| line.starts_with(key)).map_or(1, |index| index as u64 + 1)
}
