//! Defaults of settings, for help and for the checked experiment.

use blis_sim::units::Micros;

use super::choice::{
    BackpressureName, ChunkEvictionName, EngineName, OnErrorName, ParityName, RegretName, SecondaryTierName,
    SessionMode, SimulationName, TieBreakName, TraceFormatName, TraceLevelName,
};

/// Data-parallel servers that share experts.
pub const DP: u32 = 1;
/// Tokens of a KV block, as in vLLM.
pub const BLOCK_SIZE_IN_TOKENS: u32 = 16;
/// Share of GPU memory that may be used, as in vLLM, 0 to 1.
pub const GPU_MEMORY_UTILIZATION: f64 = 0.9;
/// What makes room in the CPU tier, as in vLLM.
pub const KV_OFFLOADING_EVICTION_POLICY: ChunkEvictionName = ChunkEvictionName::Lru;
/// No tier below the CPU tier.
pub const KV_OFFLOADING_SECONDARY: SecondaryTierName = SecondaryTierName::None;
/// Copies wait for a slow secondary tier, as in vLLM.
pub const KV_OFFLOADING_BACKPRESSURE: BackpressureName = BackpressureName::None;
/// Which scheduler's behaviour is followed.
pub const PARITY: ParityName = ParityName::Vllm;
/// The newest engine that is known step by step.
pub const ENGINE: EngineName = EngineName::Vllm033;
/// The simulation that updates only what changes.
pub const SIMULATION: SimulationName = SimulationName::Fast;
/// Number of instances behind the router.
pub const NUM_INSTANCES: u32 = 1;
/// Refresh interval of the signals of instances: that of llm-d's endpoint picker, which scrapes them every 50 ms.
pub const SIGNAL_INTERVAL: Micros = Micros(50_000);
/// Choice among equally good instances.
pub const TIE_BREAK: TieBreakName = TieBreakName::Random;
/// A failing plugin ends the run.
pub const ON_PLUGIN_ERROR: OnErrorName = OnErrorName::Fail;
/// No outcome regret is computed.
pub const REGRET: RegretName = RegretName::None;
/// Number of routing decisions in the regret sample.
pub const REGRET_SAMPLES: u32 = 100;
/// Alternative instances that are tried for each of them.
pub const REGRET_ALTERNATIVES: u32 = 3;
/// The format of a trace is detected from its content.
pub const TRACE_FORMAT: TraceFormatName = TraceFormatName::Auto;
/// Rounds of sessions arrive as recorded.
pub const SESSION_MODE: SessionMode = SessionMode::Fixed;
/// The seed of BLIS.
pub const SEED: u64 = 42;
/// No decision is recorded.
pub const TRACE_LEVEL: TraceLevelName = TraceLevelName::None;
/// Fewest replicas that an autoscaler keeps.
pub const MIN_REPLICAS: u32 = 1;
/// Most replicas that an autoscaler starts (llm-d's guide keda-epp).
pub const MAX_REPLICAS: u32 = 8;
/// Time between two scrapes of metrics by Prometheus, as usual with llm-d.
pub const SCRAPE_INTERVAL: Micros = Micros(15_000_000);
/// Time between two decisions of Kubernetes' HorizontalPodAutoscaler.
pub const SCALING_INTERVAL: Micros = Micros(15_000_000);
