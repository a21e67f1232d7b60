//! Values of settings that nobody sets: one place for help and for the checked experiment.

use blis_sim::units::Micros;

use super::choice::{
    EngineName, OnErrorName, ParityName, RegretName, SessionMode, TieBreakName, TraceFormatName, TraceLevelName,
};

/// Servers that share experts: one.
pub const DP: u32 = 1;
/// vLLM's KV block, tokens.
pub const BLOCK_SIZE_IN_TOKENS: u32 = 16;
/// vLLM's share of GPU memory.
pub const GPU_MEMORY_UTILIZATION: f64 = 0.9;
/// Requests in the running batch.
pub const MAX_NUM_SEQS: u32 = 256;
/// Tokens computed in one step.
pub const MAX_NUM_BATCHED_TOKENS: u32 = 2048;
/// Behaviour of the scheduler.
pub const PARITY: ParityName = ParityName::Vllm;
/// The engine that touches only what changes.
pub const ENGINE: EngineName = EngineName::Fast;
/// Instances behind the router.
pub const NUM_INSTANCES: u32 = 1;
/// Age at which the router reads signals of instances again: as often as llm-d's endpoint picker scrapes them.
pub const SIGNAL_INTERVAL: Micros = Micros(50_000);
/// Among equally good instances.
pub const TIE_BREAK: TieBreakName = TieBreakName::Random;
/// A failing plugin ends the run.
pub const ON_PLUGIN_ERROR: OnErrorName = OnErrorName::Fail;
/// No counterfactuals.
pub const REGRET: RegretName = RegretName::None;
/// Routing decisions that are looked at.
pub const REGRET_SAMPLES: u32 = 100;
/// Other instances that are tried for each.
pub const REGRET_ALTERNATIVES: u32 = 3;
/// The format of a trace is told from its content.
pub const TRACE_FORMAT: TraceFormatName = TraceFormatName::Auto;
/// Rounds of sessions arrive as recorded.
pub const SESSION_MODE: SessionMode = SessionMode::Fixed;
/// BLIS's seed.
pub const SEED: u64 = 42;
/// No decision is recorded.
pub const TRACE_LEVEL: TraceLevelName = TraceLevelName::None;
