//! How to read a trace.

use std::num::NonZeroU32;

use blis_sim::units::Micros;

use super::format::TraceFormat;
use super::trace_v2::ClosedLoop;
use super::window::Window;

/// How to read a trace.
#[derive(Clone, Debug)]
pub struct TraceOptions {
    /// The format, where it shall not be told from the content.
    pub format: Option<TraceFormat>,
    /// Tokens per KV block of the engine.
    pub block_size: NonZeroU32,
    /// Tokens per hash id, where it shall not be what the format usually has.
    pub hash_block_size: Option<NonZeroU32>,
    /// Count and leave out rows that cannot be read, instead of refusing the trace.
    pub skip_bad_lines: bool,
    /// Simulate so many requests at most, the first ones of the window.
    pub max_requests: Option<u64>,
    /// Which part of the trace, and how fast.
    pub window: Window,
    /// A TraceV2 column `vllm_priority` decides over the class. BLIS does not read it.
    pub recorded_priority: bool,
    /// Sessions of a TraceV2 or Mooncake trace wait for their answers; `None`: every round arrives as recorded.
    pub closed_loop: Option<ClosedLoop>,
    /// End of the simulation: what arrives later is left out. [`Micros::MAX`] = none.
    pub horizon: Micros,
}

impl Default for TraceOptions {
    /// vLLM's block of 16 tokens, Mooncake's of 512, everything, strictly.
    fn default() -> Self {
        const VLLM_BLOCK: NonZeroU32 = NonZeroU32::new(16).expect("16 > 0");
        Self {
            format: None,
            block_size: VLLM_BLOCK,
            hash_block_size: None,
            skip_bad_lines: false,
            max_requests: None,
            window: Window::default(),
            recorded_priority: true,
            closed_loop: None,
            horizon: Micros::MAX,
        }
    }
}
