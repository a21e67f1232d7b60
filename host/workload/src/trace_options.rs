//! Options for reading a trace.

use std::num::NonZeroU32;

use blis_sim::units::Micros;

use super::drawn_arrivals::DrawnArrivals;
use super::format::TraceFormat;
use super::trace_v2::ClosedLoop;
use super::window::TraceWindow;

/// Options for reading a trace.
#[derive(Clone, Debug)]
pub struct TraceOptions {
    /// The format; `None` to detect it by the content.
    pub format: Option<TraceFormat>,
    /// Tokens per KV block of the engine.
    pub block_size: NonZeroU32,
    /// Tokens per hash id; `None` for the usual number of the format.
    pub hash_block_size: Option<NonZeroU32>,
    /// Whether to count and leave out invalid rows, instead of refusing the trace.
    pub skip_bad_lines: bool,
    /// Maximum number of requests to simulate, from the start of the window.
    pub max_requests: Option<u64>,
    /// The part of the trace, and its speed.
    pub window: TraceWindow,
    /// Whether a TraceV2 column `vllm_priority` overrides the priority of the class. BLIS does not read it.
    pub recorded_priority: bool,
    /// Whether requests of a TraceV2 trace without a column `max_tokens` announce their output length as limit, as in
    /// BLIS; else they announce none.
    pub lengths_as_limits: bool,
    /// Whether requests of different LoRA adapters may have KV blocks in common, as in BLIS. In vLLM a block depends on the
    /// adapter.
    pub adapters_share_prefixes: bool,
    /// Replays sessions of a TraceV2 or Mooncake trace in closed loop; `None`: every round arrives as recorded.
    pub closed_loop: Option<ClosedLoop>,
    /// Arrivals of requests for which the file has none; refused for other files.
    pub arrivals: Option<DrawnArrivals>,
    /// Whether to read the measured latencies of the requests into
    /// [`Workload::recorded`](super::Workload::recorded). Only the formats `vllm-bench`, `aiperf`, `otel` and `trace-v2`
    /// have any.
    pub recorded_times: bool,
    /// End of the simulation: later arrivals are left out. [`Micros::MAX`] = no end.
    pub horizon: Micros,
}

impl Default for TraceOptions {
    /// Blocks of 16 tokens as in vLLM, hash ids of the format, the whole trace, without bad rows.
    fn default() -> Self {
        const VLLM_BLOCK: NonZeroU32 = NonZeroU32::new(16).expect("16 > 0");
        Self {
            format: None,
            block_size: VLLM_BLOCK,
            hash_block_size: None,
            skip_bad_lines: false,
            max_requests: None,
            window: TraceWindow::default(),
            recorded_priority: true,
            lengths_as_limits: false,
            adapters_share_prefixes: false,
            closed_loop: None,
            arrivals: None,
            recorded_times: false,
            horizon: Micros::MAX,
        }
    }
}
