//! The raw command line. Nothing behind [`super::config`] sees it.
//!
//! Names are BLIS's; vLLM's names for the same thing are aliases. A flag whose absence matters is
//! an `Option`, and its default stands in its help text; all others carry theirs.

use std::ffi::OsStr;
use std::num::NonZeroU32;
use std::path::PathBuf;

use blis_sim::units::Micros;
use clap::builder::{NonEmptyStringValueParser, PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Arg, Args, Parser, Subcommand, ValueEnum};
use tracing::level_filters::LevelFilter;

use super::compose::ComposeArgs;
use super::fidelity::{FitArgs, ValidateArgs};
use super::given::Given;
use super::judge::{EvaluateArgs, InitArgs, MergeArgs, ReportArgs, ServeArgs, ShinkaArgs, TuneArgs};
use super::parse;
use super::plugin::PluginArgs;
use super::regret::{RegretArgs, RegretFlags};
use super::trace::TraceArgs;
use super::traces::{ConvertArgs, WorkloadCommandArgs};
use blis_config::policy::{BuiltIn, Scorer};
use blis_eval::{Figure, FitnessScale};
use blis_plugin::Kind;
use blis_report::{Export, anomaly_definitions};
use blis_workload::trace_v2::ThinkTime;

/// Simulates LLM inference services without GPUs.
#[derive(Debug, Parser)]
#[command(name = "blis", version, max_term_width = 100, args_override_self = true, disable_help_subcommand = true)]
pub(super) struct Cli {
    #[command(subcommand)]
    pub command: Option<Command>,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Simulate a generated workload or a request trace
    #[command(args_override_self = true, allow_negative_numbers = true, after_long_help = anomalies_and_fitness())]
    Run(Box<RunArgs>),
    /// Compare routing policies or bundles under the same requests, seed by seed
    #[command(args_override_self = true, allow_negative_numbers = true, after_long_help = fitness())]
    Compare(Box<CompareArgs>),
    /// Simulate a recorded trace: a header (YAML) and its requests (CSV)
    #[command(args_override_self = true, allow_negative_numbers = true, after_long_help = anomalies_and_fitness())]
    Replay(Box<ReplayArgs>),
    /// Tell what would have happened, had decisions been others: the regret of a policy, and how much a
    /// better one could gain
    #[command(args_override_self = true, allow_negative_numbers = true)]
    Regret(Box<RegretArgs>),
    /// Judge candidates on a suite of scenarios, against a baseline: one JSON document each
    #[command(args_override_self = true)]
    Evaluate(EvaluateArgs),
    /// Put the parts of an evaluation on several machines together
    Merge(MergeArgs),
    /// Run candidates on the held-out scenarios of a suite, against its baseline and rivals
    #[command(args_override_self = true)]
    Report(ReportArgs),
    /// Find better values for the parameters that a candidate declares
    #[command(args_override_self = true)]
    Tune(TuneArgs),
    /// Write a project for a search tool, ready to run
    Init(InitArgs),
    /// Judge a candidate for ShinkaEvolve: writes metrics.json and correct.json
    #[command(name = "shinka-evaluate")]
    Shinka(ShinkaArgs),
    /// Judge candidates for other programs: lines of JSON, or HTTP on this machine
    Serve(ServeArgs),
    /// List, start, build, check and measure policies of your own
    Plugin(PluginArgs),
    /// Look at the decisions of a run, recorded with --trace-path
    Trace(TraceArgs),
    /// Look at workloads without simulating them
    Workload(WorkloadCommandArgs),
    /// Write a request trace in another format, and say what is lost
    #[command(args_override_self = true, allow_negative_numbers = true)]
    Convert(ConvertArgs),
    /// Write one workload specification that sends what several send together
    #[command(args_override_self = true)]
    Compose(ComposeArgs),
    /// Calibrate the physics latency model against measured runs of real servers
    #[command(args_override_self = true)]
    Fit(FitArgs),
    /// Compare simulated with measured latencies of real servers
    #[command(args_override_self = true)]
    Validate(ValidateArgs),
    /// List the models with a configuration
    Models,
    /// List the GPUs with a description
    Hardware,
}

/// What is counted as an anomaly, and what a fitness can be made of.
fn anomalies_and_fitness() -> String {
    format!("Anomalies, as counted in the results:\n{}\n{}", anomaly_definitions(), fitness())
}

/// What a fitness can be made of.
fn fitness() -> String {
    let scale = |scale: FitnessScale| format!("  {}: {}\n", scale.name(), scale.definition());
    let scales: String = FitnessScale::ALL.into_iter().map(scale).collect();
    format!("Figures, for --fitness-weights and as compared:\n{}\nScales of --fitness-scale:\n{scales}", Figure::help())
}

#[derive(Debug, Args)]
pub(super) struct RunArgs {
    // First: the other fields take their values out of the matches.
    #[command(flatten)]
    pub given: Given,
    #[command(flatten)]
    pub instance: InstanceArgs,
    #[command(flatten)]
    pub cluster: ClusterFlags,
    #[command(flatten)]
    pub policies: PolicyFlags,
    #[command(flatten)]
    pub workload: WorkloadArgs,
    #[command(flatten)]
    pub evaluation: EvaluationFlags,
    #[command(flatten)]
    pub simulation: SimulationArgs,
    /// File for the results and every request, JSON
    #[arg(long, visible_alias = "results-path", value_name = "FILE", help_heading = OUTPUT)]
    pub metrics_path: Option<PathBuf>,
    #[command(flatten)]
    pub export: ExportFlags,
}

/// The run for tools that read real measurements.
#[derive(Debug, Default, Args)]
pub(super) struct ExportFlags {
    /// Also write the run as other tools would have recorded it; may be given several times. FORMAT is
    /// trace-v2 (PATH.yaml and PATH.csv, which replay to the same results), vllm-bench (the JSON of vLLM's
    /// load generator with details), aiperf (two files in the folder PATH) or otel (OpenTelemetry: the
    /// journey of every request, and every engine step)
    #[arg(long, value_name = "FORMAT=PATH", help_heading = OUTPUT)]
    pub export: Vec<Export>,
    /// The same as --export trace-v2=PREFIX
    #[arg(long, value_name = "PREFIX", help_heading = OUTPUT)]
    pub trace_output: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(super) struct ReplayArgs {
    // First: the other fields take their values out of the matches.
    #[command(flatten)]
    pub given: Given,
    #[command(flatten)]
    pub instance: InstanceArgs,
    #[command(flatten)]
    pub cluster: ClusterFlags,
    #[command(flatten)]
    pub policies: PolicyFlags,
    /// Header of the trace, YAML
    #[arg(long, value_name = "FILE", help_heading = WORKLOAD)]
    pub trace_header: PathBuf,
    /// Requests of the trace, CSV, plain or gzip
    #[arg(long, value_name = "FILE", help_heading = WORKLOAD)]
    pub trace_data: PathBuf,
    /// Leave out lines that cannot be read, and say how many, instead of stopping
    #[arg(long, help_heading = WORKLOAD)]
    pub skip_bad_lines: bool,
    #[command(flatten)]
    pub part: TracePartFlags,
    #[command(flatten)]
    pub sessions: SessionFlags,
    #[command(flatten)]
    pub evaluation: EvaluationFlags,
    #[command(flatten)]
    pub simulation: SimulationArgs,
    /// File for the results and every request, JSON
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    pub metrics_path: Option<PathBuf>,
    /// File for the latencies of completed requests in µs, JSON
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    pub results_path: Option<PathBuf>,
    #[command(flatten)]
    pub export: ExportFlags,
}

/// When the later rounds of sessions come.
#[derive(Debug, Args)]
pub(super) struct SessionFlags {
    /// When the later rounds of recorded sessions arrive
    #[arg(long, value_enum, value_name = "MODE", default_value_t = SessionMode::Fixed, help_heading = WORKLOAD)]
    pub session_mode: SessionMode,
    /// With --session-mode closed-loop: from an answer to the next prompt, ms ≥ 0 [default: what the
    /// trace says in its column think_time_us, else the time between recorded arrivals]
    #[arg(long, value_name = "MS", value_parser = parse::think_time, conflicts_with = "think_time_dist",
          help_heading = WORKLOAD)]
    pub think_time_ms: Option<Micros>,
    /// The same at random, as lognormal:mu=2.0,sigma=0.6,min=3s,max=30s: exp(mu + sigma Z) seconds
    /// within bounds
    #[arg(long, value_name = "DISTRIBUTION", value_parser = parse::think_time_dist, help_heading = WORKLOAD)]
    pub think_time_dist: Option<ThinkTime>,
}

#[derive(Debug, Args)]
pub(super) struct CompareArgs {
    // First: the other fields take their values out of the matches.
    #[command(flatten)]
    pub given: Given,
    /// Two or more: routing policies, lists of scorers like queue-depth:2,kv-utilization:1, or bundles
    /// (YAML). The first is what the others are compared with
    #[arg(value_name = "POLICY|FILE", required = true)]
    pub contestants: Vec<String>,
    /// How many seeds, from --seed on: each is a run of every contestant under the same requests
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = parse::seeds, help_heading = COMPARISON)]
    pub seeds: u32,
    /// Threads to run on; 0 for one per core. The answer does not depend on it
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = parse::threads, help_heading = COMPARISON)]
    pub threads: usize,
    #[command(flatten)]
    pub fitness: FitnessFlags,
    #[command(flatten)]
    pub targets: TargetFlags,
    #[command(flatten)]
    pub instance: InstanceArgs,
    #[command(flatten)]
    pub cluster: ClusterFlags,
    #[command(flatten)]
    pub policies: PolicyFlags,
    #[command(flatten)]
    pub workload: WorkloadArgs,
    #[command(flatten)]
    pub simulation: SimulationArgs,
}

const COMPARISON: &str = "Comparison";
const MODEL: &str = "Model and hardware";
const LATENCY: &str = "Latency model";
const ENGINE: &str = "Engine (one vLLM-like instance)";
const CLUSTER: &str = "Cluster";
const POLICIES: &str = "Policies";
const WORKLOAD: &str = "Workload";
const SYNTHETIC: &str = "Generated workload";
const EVALUATION: &str = "Evaluation";
const SIMULATION: &str = "Simulation";
const OUTPUT: &str = "Output";

/// The instance: what runs where, and how it schedules.
#[derive(Debug, Args)]
pub(super) struct InstanceArgs {
    #[command(flatten)]
    pub deployment: DeploymentFlags,
    #[command(flatten)]
    pub engine: EngineFlags,
}

#[derive(Debug, Args)]
pub(super) struct DeploymentFlags {
    /// Model, as on Hugging Face; `blis models` lists those known
    #[arg(long, value_name = "NAME", help_heading = MODEL)]
    pub model: String,
    /// GPU; `blis hardware` lists those known [default: H100]
    #[arg(long, visible_alias = "gpu", value_name = "GPU", help_heading = MODEL)]
    pub hardware: Option<String>,
    /// Tensor parallelism, GPUs; 0 for the default [default: as few as hold the model]
    #[arg(long, visible_alias = "tensor-parallel-size", value_name = "N",
          value_parser = parse::parallelism_or_zero, help_heading = MODEL)]
    pub tp: Option<u32>,
    /// Data parallelism of mixture-of-experts models, replicas ≥ 1
    #[arg(long, visible_alias = "data-parallel-size", value_name = "N", default_value_t = 1,
          value_parser = parse::parallelism, help_heading = MODEL)]
    pub dp: u32,
    /// Spread whole experts over the GPUs (mixture-of-experts, physics models only)
    #[arg(long, help_heading = MODEL)]
    pub enable_expert_parallel: bool,
    /// How experts exchange tokens (mixture-of-experts, trained-physics only)
    #[arg(long, value_name = "NAME", help_heading = MODEL)]
    pub moe_comm_backend: Option<String>,
    /// vLLM version whose blackbox coefficients to take [default: the model's]
    #[arg(long, value_name = "VERSION", help_heading = MODEL)]
    pub vllm_version: Option<String>,
    /// Folder with `config.json` or `<model>/config.json` [default: built in]
    #[arg(long, value_name = "DIR", help_heading = MODEL)]
    pub model_config_folder: Option<PathBuf>,
    /// File that describes GPUs (YAML or JSON), or a folder of them [default: built in]
    #[arg(long, value_name = "PATH", help_heading = MODEL)]
    pub hardware_config: Option<PathBuf>,

    /// How step times are computed [default: physics; trained-physics with --parity blis, --moe-comm-backend or 7
    /// betas; blackbox with 3 betas or --vllm-version]
    #[arg(long, value_parser = Names(Kind::Latency), value_name = "NAME", help_heading = LATENCY)]
    pub latency_model: Option<String>,
    /// Three per-request coefficients, µs, each ≥ 0; needs --beta-coeffs [default: trained]
    #[arg(long, value_name = "A0,A1,…", value_delimiter = ',', value_parser = parse::coefficient,
          help_heading = LATENCY)]
    pub alpha_coeffs: Option<Vec<f64>>,
    /// Step-time coefficients, each ≥ 0: 3 for blackbox, 7 to 11 for trained-physics, 8 for physics; needs
    /// --alpha-coeffs [default: trained]
    #[arg(long, value_name = "B0,B1,…", value_delimiter = ',', value_parser = parse::coefficient,
          help_heading = LATENCY)]
    pub beta_coeffs: Option<Vec<f64>>,
    /// Coefficients of the physics model, as `blis fit` writes them [default: built in]
    #[arg(long, value_name = "FILE", help_heading = LATENCY)]
    pub coefficients: Option<PathBuf>,

    /// KV cache, blocks ≥ 1 [default: computed from the GPU's memory]
    #[arg(long, visible_alias = "num-gpu-blocks", value_name = "N", value_parser = parse::blocks,
          help_heading = ENGINE)]
    pub total_kv_blocks: Option<u64>,
    /// KV block, tokens ≥ 1
    #[arg(long, visible_alias = "block-size", value_name = "N", default_value_t = 16, value_parser = parse::count,
          help_heading = ENGINE)]
    pub block_size_in_tokens: u32,
    /// Longest prompt plus answer, tokens; 0 for the model's own limit. At most what the KV cache holds
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = parse::count_or_zero, help_heading = ENGINE)]
    pub max_model_len: u32,
    /// Share of GPU memory the engine may use, above 0, at most 1
    #[arg(long, value_name = "SHARE", default_value_t = 0.9, value_parser = parse::share, help_heading = ENGINE)]
    pub gpu_memory_utilization: f64,
}

#[derive(Debug, Args)]
pub(super) struct EngineFlags {
    /// Most requests in the running batch, ≥ 1
    #[arg(long, visible_alias = "max-num-running-reqs", value_name = "N", default_value_t = 256,
          value_parser = parse::count, help_heading = ENGINE)]
    pub max_num_seqs: u32,
    /// Most tokens computed in one step, ≥ 1
    #[arg(long, visible_alias = "max-num-scheduled-tokens", value_name = "N", default_value_t = 2048,
          value_parser = parse::count, help_heading = ENGINE)]
    pub max_num_batched_tokens: u32,
    /// Most prompt tokens of one request in one step; 0 for no limit
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = parse::count_or_zero, help_heading = ENGINE)]
    pub long_prefill_token_threshold: u32,
    /// Find KV blocks again by content (default; --no-enable-prefix-caching turns it off)
    #[arg(long, overrides_with = "no_enable_prefix_caching", help_heading = ENGINE)]
    pub enable_prefix_caching: bool,
    /// Never reuse KV blocks between requests
    #[arg(long, overrides_with = "enable_prefix_caching", help_heading = ENGINE)]
    pub no_enable_prefix_caching: bool,
    /// Split long prompts over steps (default; --no-enable-chunked-prefill turns it off)
    #[arg(long, overrides_with = "no_enable_chunked_prefill", help_heading = ENGINE)]
    pub enable_chunked_prefill: bool,
    /// Compute every prompt in one step
    #[arg(long, overrides_with = "enable_chunked_prefill", help_heading = ENGINE)]
    pub no_enable_chunked_prefill: bool,
    /// Plan a step before the previous one's output is known
    #[arg(long, overrides_with = "no_async_scheduling", help_heading = ENGINE)]
    pub async_scheduling: bool,
    /// vLLM's name for the default
    #[arg(long, overrides_with = "async_scheduling", hide = true)]
    pub no_async_scheduling: bool,
    /// Admit a request only if its whole prompt fits the free KV blocks
    #[arg(long, overrides_with = "no_scheduler_reserve_full_isl", help_heading = ENGINE)]
    pub scheduler_reserve_full_isl: bool,
    /// vLLM's name for the default
    #[arg(long, overrides_with = "scheduler_reserve_full_isl", hide = true)]
    pub no_scheduler_reserve_full_isl: bool,
    /// Order of the wait queue [default: fcfs]
    #[arg(long, value_parser = Names(Kind::Scheduling), value_name = "NAME", help_heading = ENGINE)]
    pub scheduler: Option<String>,
    /// Who leaves the batch when KV blocks run out [default: fcfs]
    #[arg(long, value_parser = Names(Kind::Preemption), value_name = "NAME", help_heading = ENGINE)]
    pub preemption_policy: Option<String>,
    /// vLLM's flag: sets --scheduler and --preemption-policy together
    #[arg(long, value_parser = BuiltIns(Kind::Preemption), value_name = "NAME", help_heading = ENGINE,
          conflicts_with_all = ["scheduler", "preemption_policy"])]
    pub scheduling_policy: Option<String>,
    /// Whose behaviour to follow where the two differ: the real scheduler or the published simulator
    #[arg(long, value_enum, value_name = "NAME", default_value_t = ParityName::Vllm, help_heading = ENGINE)]
    pub parity: ParityName,
    /// Which of the two equal engines to use
    #[arg(long, value_enum, value_name = "NAME", default_value_t = EngineName::Fast, hide = true)]
    pub engine: EngineName,
}

/// The service: how many instances, and how long things take between them.
#[derive(Debug, Args)]
pub(super) struct ClusterFlags {
    /// Instances behind the router, 1 to 65536
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = parse::instances, help_heading = CLUSTER)]
    pub num_instances: u32,
    /// From the arrival of a request to its admission, µs
    #[arg(long, value_name = "US", default_value = "0", value_parser = parse::delay, help_heading = CLUSTER)]
    pub admission_latency: Micros,
    /// From admission to the choice of an instance, µs
    #[arg(long, value_name = "US", default_value = "0", value_parser = parse::delay, help_heading = CLUSTER)]
    pub routing_latency: Micros,
    /// Age at which the router reads queues, batches and KV use of instances again, µs; 0 to read
    /// them for every request
    #[arg(long, value_name = "US", default_value = "50000", value_parser = parse::interval, help_heading = CLUSTER)]
    pub snapshot_refresh_interval: Micros,
    /// Age at which the router reads what is in the prefix caches again, µs; 0 to read it for every
    /// request
    #[arg(long, value_name = "US", default_value = "50000", value_parser = parse::interval, help_heading = CLUSTER)]
    pub cache_signal_delay: Micros,
    /// Where a request goes if several instances are equally good
    #[arg(long, value_enum, value_name = "NAME", default_value_t = TieBreakName::Random, help_heading = CLUSTER)]
    pub tie_break: TieBreakName,
}

/// What a flag leaves open, the bundle says; what it leaves open, the default.
#[derive(Debug, Args)]
pub(super) struct PolicyFlags {
    /// Bundle of policies, YAML; flags win over it
    #[arg(long, value_name = "FILE", help_heading = POLICIES)]
    pub policy_config: Option<PathBuf>,
    /// Who may enter [default: always-admit]
    #[arg(long, value_parser = Names(Kind::Admission), value_name = "NAME", help_heading = POLICIES)]
    pub admission_policy: Option<String>,
    /// Most tokens in the bucket of token-bucket, above 0 [default: 10000]
    #[arg(long, value_name = "N", value_parser = parse::above_0, help_heading = POLICIES)]
    pub token_bucket_capacity: Option<f64>,
    /// Tokens per second that flow into it, above 0 [default: 1000]
    #[arg(long, value_name = "R", value_parser = parse::above_0, help_heading = POLICIES)]
    pub token_bucket_refill_rate: Option<f64>,
    /// Which instance serves a request [default: round-robin]
    #[arg(long, value_parser = Names(Kind::Routing), value_name = "NAME", help_heading = POLICIES)]
    pub routing_policy: Option<String>,
    /// What weighted adds up, each scorer with a weight above 0: queue-depth, kv-utilization,
    /// load-balance, active-requests, running-requests, load-aware, vllm-dp, prefix-affinity,
    /// precise-prefix-cache, no-hit-lru, lora-affinity
    /// [default: precise-prefix-cache:2,queue-depth:1,kv-utilization:1]
    #[arg(long, value_name = "NAME:WEIGHT,…", value_parser = parse::scorers, help_heading = POLICIES)]
    pub routing_scorers: Option<ScorerList>,
    /// Instead of scorers: weight of free KV blocks, ≥ 0
    #[arg(long, value_name = "WEIGHT", value_parser = parse::from_0, conflicts_with = "routing_scorers",
          help_heading = POLICIES)]
    pub routing_cache_weight: Option<f64>,
    /// Instead of scorers: weight of a low load, ≥ 0
    #[arg(long, value_name = "WEIGHT", value_parser = parse::from_0, conflicts_with = "routing_scorers",
          help_heading = POLICIES)]
    pub routing_load_weight: Option<f64>,
    /// How urgent a request is on its instance, for priority-fcfs and the like [default: class]
    #[arg(long, value_parser = Names(Kind::Priority), value_name = "NAME", help_heading = POLICIES)]
    pub priority_policy: Option<String>,
    /// A parameter of a policy, as routing.queue-depth=2; may be given several times. `blis plugin list` shows which
    /// there are
    #[arg(long, value_name = "KIND.NAME=VALUE", value_parser = parse::policy_param, help_heading = POLICIES)]
    pub policy_param: Vec<PolicyParam>,
    /// Folder with policies, searched by name before ./policies and the ones built in; may be given
    /// several times
    #[arg(long, value_name = "FOLDER", help_heading = POLICIES)]
    pub policy_dir: Vec<PathBuf>,
    /// Allow policies in native libraries, which run unsandboxed: they can do whatever you can
    #[arg(long, help_heading = POLICIES)]
    pub allow_native: bool,
    /// What to do when a plugin fails in the middle of a run
    #[arg(long, value_enum, value_name = "NAME", default_value_t = OnErrorName::Fail, help_heading = POLICIES)]
    pub on_plugin_error: OnErrorName,
}

/// What was promised to whom.
#[derive(Debug, Args)]
pub(super) struct TargetFlags {
    /// Longest time to first token of each class, like critical=100ms,standard=1.5s; requests
    /// without a class are in the class default
    #[arg(long, value_name = "CLASS=TIME,…", value_parser = parse::targets, help_heading = EVALUATION)]
    pub slo_ttft: Option<TargetList>,
    /// Longest mean inter-token latency of each class
    #[arg(long, value_name = "CLASS=TIME,…", value_parser = parse::targets, help_heading = EVALUATION)]
    pub slo_itl: Option<TargetList>,
    /// Longest end-to-end latency of each class
    #[arg(long, value_name = "CLASS=TIME,…", value_parser = parse::targets, help_heading = EVALUATION)]
    pub slo_e2e: Option<TargetList>,
}

/// One number for a run.
#[derive(Debug, Args)]
pub(super) struct FitnessFlags {
    /// What the fitness adds up, like throughput:0.5,p99_ttft:0.5
    #[arg(long, value_name = "KEY:WEIGHT,…", help_heading = EVALUATION)]
    pub fitness_weights: Option<String>,
    /// What the parts of the fitness are measured by [default: baseline]
    #[arg(long, value_enum, value_name = "NAME", requires = "fitness_weights", help_heading = EVALUATION)]
    pub fitness_scale: Option<FitnessScaleName>,
}

/// How the run is judged.
#[derive(Debug, Args)]
pub(super) struct EvaluationFlags {
    #[command(flatten)]
    pub targets: TargetFlags,
    #[command(flatten)]
    pub fitness: FitnessFlags,
    /// Routing policy or bundle that the fitness is relative to [default: round-robin]
    #[arg(long, value_name = "NAME|FILE", requires = "fitness_weights", help_heading = EVALUATION)]
    pub baseline: Option<String>,
    /// Which decisions to record
    #[arg(long, value_enum, value_name = "LEVEL", default_value_t = TraceLevelName::None, help_heading = EVALUATION)]
    pub trace_level: TraceLevelName,
    /// File for every recorded decision, a line of JSON each; packed if its name ends with .gz. `blis
    /// trace` reads it
    #[arg(long, value_name = "FILE", help_heading = EVALUATION)]
    pub trace_path: Option<PathBuf>,
    /// How many of the best instances to list with each routing decision in the file of
    /// --trace-path, with their scores; 0 for none
    #[arg(long, value_name = "K", default_value_t = 0, value_parser = parse::count_or_zero, help_heading = EVALUATION)]
    pub counterfactual_k: u32,
    /// Sum up the recorded decisions
    #[arg(long, help_heading = EVALUATION)]
    pub summarize_trace: bool,
    #[command(flatten)]
    pub regret: RegretFlags,
}

#[derive(Debug, Args)]
pub(super) struct WorkloadArgs {
    /// Where requests come from [default: distribution; traces with --workload-trace]
    #[arg(long, value_enum, value_name = "NAME", help_heading = WORKLOAD)]
    pub workload: Option<WorkloadName>,
    /// Workload specification, YAML: clients of any kind, cohorts, sessions, rates that change. Or a
    /// ServeGen folder. --seed, --horizon, --num-requests and --timeout win over it
    #[arg(long, value_name = "FILE", help_heading = WORKLOAD)]
    pub workload_spec: Option<PathBuf>,
    /// Request trace, plain or gzip
    #[arg(long, visible_alias = "workload-traces-filepath", value_name = "FILE", help_heading = WORKLOAD)]
    pub workload_trace: Option<PathBuf>,
    /// Format of the trace [default: auto]
    #[arg(long, value_enum, value_name = "NAME", help_heading = WORKLOAD)]
    pub trace_format: Option<TraceFormatName>,
    /// Tokens behind one hash id of a trace, ≥ 1 [default: mooncake 512; bailian 16; vllm-vcr what the
    /// capture says]
    #[arg(long, visible_alias = "hash-block-size", value_name = "N", value_parser = parse::nonzero,
          help_heading = WORKLOAD)]
    pub mooncake_block_size: Option<NonZeroU32>,
    /// Leave out lines that cannot be read, and say how many, instead of stopping
    #[arg(long, help_heading = WORKLOAD)]
    pub skip_bad_lines: bool,
    #[command(flatten)]
    pub part: TracePartFlags,
    /// When the later turns of recorded sessions arrive (closed-loop: mooncake and trace-v2) [default: fixed]
    #[arg(long, value_enum, value_name = "MODE", help_heading = WORKLOAD)]
    pub session_mode: Option<SessionMode>,
    /// Seconds until a client gives up; negative for never [default: 300; never with a
    /// trace; what a specification says]
    #[arg(long, value_name = "S", value_parser = parse::timeout,
          help_heading = WORKLOAD)]
    pub timeout: Option<f64>,
    #[command(flatten)]
    pub synthetic: SyntheticFlags,
}

/// Which part of a trace, and how fast.
#[derive(Debug, Args)]
pub(super) struct TracePartFlags {
    /// Leave out what arrives in the first so many seconds of the trace; time 0 is then [default: 0]
    #[arg(long, value_name = "S", value_parser = parse::seconds_from_0, help_heading = WORKLOAD)]
    pub start: Option<Micros>,
    /// Take so many seconds of the trace from --start on, above 0 [default: to its end]
    #[arg(long, value_name = "S", value_parser = parse::seconds_above_0, help_heading = WORKLOAD)]
    pub duration: Option<Micros>,
    /// Multiply all arrival times of the trace, 0.000001 to 1000000: 2 makes it take twice as long, at
    /// half the rate [default: 1]
    #[arg(long, value_name = "X", value_parser = parse::scale, help_heading = WORKLOAD)]
    pub time_scale: Option<f64>,
    /// Simulate the trace so many times, one pass behind the other. Ids go on; prompts have in common
    /// across passes what they have within one; sessions are new in every pass [default: 1]
    #[arg(long, value_name = "N", value_parser = parse::nonzero, help_heading = WORKLOAD)]
    pub repeat: Option<NonZeroU32>,
    /// Spread requests with equal stamps evenly over so many ms, never past the next stamp: for traces
    /// with coarse clocks, as 3000 for mooncake
    #[arg(long, value_name = "MS", value_parser = parse::bins, help_heading = WORKLOAD)]
    pub spread_bins: Option<Micros>,
    /// Simulate the first so many requests of the trace at most, ≥ 1 [default: all]
    #[arg(long, value_name = "N", value_parser = parse::count, help_heading = WORKLOAD)]
    pub max_requests: Option<u32>,
}

#[derive(Debug, Args)]
pub(super) struct SyntheticFlags {
    /// Requests per second of all clients together, 0.000001 to 1000000 [default: 1]
    #[arg(long, value_name = "R", value_parser = parse::rate, help_heading = SYNTHETIC)]
    pub rate: Option<f64>,
    /// Instead of --rate: so many users, each with one request at a time, in closed loop
    #[arg(long, value_name = "N", value_parser = parse::users, conflicts_with = "rate", help_heading = SYNTHETIC)]
    pub concurrency: Option<u32>,
    /// With --concurrency: from an answer to the next prompt of a user, ms ≥ 0 [default: 0]
    #[arg(long, value_name = "MS", value_parser = parse::think_time, requires = "concurrency",
          help_heading = SYNTHETIC)]
    pub think_time_ms: Option<Micros>,
    /// Spacing of arrivals [default: constant]
    #[arg(long, value_enum, value_name = "NAME", help_heading = SYNTHETIC)]
    pub arrival_process: Option<ArrivalName>,
    /// How many requests; 0 for as many as arrive before --horizon [default: 100; with --concurrency
    /// and --horizon 0; what a specification says]
    #[arg(long, visible_alias = "max-prompts", value_name = "N", value_parser = parse::count_or_zero,
          help_heading = SYNTHETIC)]
    pub num_requests: Option<u32>,
    /// Mean prompt length, tokens ≥ 1 [default: 512]
    #[arg(long, value_name = "N", value_parser = parse::count, help_heading = SYNTHETIC)]
    pub prompt_tokens: Option<u32>,
    /// Standard deviation of the prompt length, tokens ≥ 0 [default: 256]
    #[arg(long, value_name = "N", value_parser = parse::count_or_zero, help_heading = SYNTHETIC)]
    pub prompt_tokens_stdev: Option<u32>,
    /// Shortest prompt, tokens ≥ 1 [default: 2]
    #[arg(long, value_name = "N", value_parser = parse::count, help_heading = SYNTHETIC)]
    pub prompt_tokens_min: Option<u32>,
    /// Longest prompt, tokens ≥ 1 [default: 7000]
    #[arg(long, value_name = "N", value_parser = parse::count, help_heading = SYNTHETIC)]
    pub prompt_tokens_max: Option<u32>,
    /// Mean answer length, tokens ≥ 1 [default: 512]
    #[arg(long, value_name = "N", value_parser = parse::count, help_heading = SYNTHETIC)]
    pub output_tokens: Option<u32>,
    /// Standard deviation of the answer length, tokens ≥ 0 [default: 256]
    #[arg(long, value_name = "N", value_parser = parse::count_or_zero, help_heading = SYNTHETIC)]
    pub output_tokens_stdev: Option<u32>,
    /// Shortest answer, tokens ≥ 1 [default: 2]
    #[arg(long, value_name = "N", value_parser = parse::count, help_heading = SYNTHETIC)]
    pub output_tokens_min: Option<u32>,
    /// Longest answer, tokens ≥ 1 [default: 7000]
    #[arg(long, value_name = "N", value_parser = parse::count, help_heading = SYNTHETIC)]
    pub output_tokens_max: Option<u32>,
    /// Tokens every prompt starts with, in addition to its own, ≥ 0 [default: 0]
    #[arg(long, value_name = "N", value_parser = parse::count_or_zero, help_heading = SYNTHETIC)]
    pub prefix_tokens: Option<u32>,
}

#[derive(Debug, Args)]
pub(super) struct SimulationArgs {
    /// Seed of everything random. Where it is not given, a specification or the header of a replayed trace may
    /// name another
    #[arg(long, value_name = "N", default_value_t = 42, value_parser = parse::seed, help_heading = SIMULATION)]
    pub seed: u64,
    /// End of the simulation, µs ≥ 1 [default: when every request has ended; a replay with --parity
    /// blis: twice the last arrival]
    #[arg(long, value_name = "US", value_parser = parse::horizon, help_heading = SIMULATION)]
    pub horizon: Option<Micros>,
    /// Print everything the flags and the bundle come to, as YAML with the source of each value,
    /// and simulate nothing
    #[arg(long, help_heading = OUTPUT)]
    pub explain_config: bool,
    /// Least severe messages to show on standard error
    #[arg(long, value_enum, value_name = "LEVEL", default_value_t = LogLevel::Warn, help_heading = OUTPUT)]
    pub log: LogLevel,
    /// Form of the results on standard output; auto is text on a terminal, JSON elsewhere
    #[arg(long, value_enum, value_name = "FORM", default_value_t = OutputForm::Auto, help_heading = OUTPUT)]
    pub output: OutputForm,
    /// Show no progress bar
    #[arg(long, help_heading = OUTPUT)]
    pub no_progress: bool,
}

/// Takes any word for the name of a policy: what is not built in may be a plugin.
#[derive(Clone, Debug)]
pub(super) struct Names(Kind);

impl TypedValueParser for Names {
    type Value = String;

    fn parse_ref(&self, command: &clap::Command, arg: Option<&Arg>, value: &OsStr) -> Result<Self::Value, clap::Error> {
        NonEmptyStringValueParser::new().parse_ref(command, arg, value)
    }

    /// For help: the built-in ones.
    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(possible_values(self.0)))
    }
}

/// Takes names of built-in policies and nothing else.
#[derive(Clone, Debug)]
pub(super) struct BuiltIns(Kind);

impl TypedValueParser for BuiltIns {
    type Value = String;

    fn parse_ref(&self, command: &clap::Command, arg: Option<&Arg>, value: &OsStr) -> Result<Self::Value, clap::Error> {
        PossibleValuesParser::new(possible_values(self.0)).parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(possible_values(self.0)))
    }
}

/// The built-in policies as help lists them.
fn possible_values(kind: Kind) -> impl Iterator<Item = PossibleValue> {
    BuiltIn::of(kind).map(|row| PossibleValue::new(row.name).help(row.about))
}

/// The value of `--policy-param`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PolicyParam {
    pub kind: Kind,
    pub name: String,
    pub value: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum OnErrorName {
    /// The run ends with its error
    Fail,
    /// A built-in decides in its place, and the run says how often
    Fallback,
}

/// The value of `--routing-scorers`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ScorerList(pub Vec<Scorer>);

/// The value of `--slo-ttft` and its like: class and target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TargetList(pub Vec<(String, Micros)>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum TieBreakName {
    /// To any of them, with equal chances
    Random,
    /// To the first: for comparison with recorded answers
    LowestIndex,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum FitnessScaleName {
    /// The same figures under the baseline
    Baseline,
    /// Fixed figures, as the published simulator has them
    Blis,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum TraceLevelName {
    /// None
    #[default]
    None,
    /// Every admission, every choice of an instance, and who enters and leaves the batches there
    Decisions,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum ParityName {
    /// The scheduler of vLLM
    Vllm,
    /// The published Go simulator, to the microsecond
    Blis,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum EngineName {
    /// Touches only what changes
    Fast,
    /// Touches everything at every step
    Plain,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum WorkloadName {
    /// Lengths and rate as given by the flags below
    Distribution,
    /// Prompts of 256 and answers of 256 tokens on average
    Chatbot,
    /// 4096 and 512
    Summarization,
    /// 1024 and 1024
    Contentgen,
    /// 10240 and 1536
    Multidoc,
    /// One client: 512 and 256 tokens (exponential), bursts (Gamma, coefficient of variation 3.5)
    Bursty,
    /// 0.9 batch, 1024 and 512, of one tenant; 0.1 critical, 128 and 64, of another
    UnfairTenants,
    /// 0.8 batch, 256 and 128, behind 50 tokens in common; 0.2 standard, 512 and 256
    PrefixHeavy,
    /// A third each: critical, 64 and 32; standard, 256 and 128; batch, 1024 and 512
    MixedSlo,
    /// inference-perf: 1000 ± 800 and 8000 ± 6500 tokens (lognormal), Poisson arrivals
    Reasoning,
    /// inference-perf: 15000 ± 22000 and 500 ± 300
    SummarizationRag,
    /// inference-perf: 500 ± 1200 and 500 to 8000
    SyntheticData,
    /// inference-perf: conversations of 4 ± 2.5 turns in closed loop behind a system prompt of 1000 tokens,
    /// about 4000 ± 2500 tokens, 50 ± 40 and 300 ± 150 a turn
    InteractiveChat,
    /// inference-perf: 540 turns on average (half of them have at most 6) behind 3000 tokens, about
    /// 160000 ± 233600 tokens, 1500 ± 1200 and 425 ± 825 a turn
    CodeGeneration,
    /// inference-perf: 15 ± 8.5 turns behind 2000 tokens, about 45000 tokens (exponential),
    /// 3000 ± 2500 and 300 ± 850 a turn
    DeepResearch,
    /// The file of --workload-trace
    Traces,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum TraceFormatName {
    /// By its first lines
    Auto,
    /// BLIS: arrival, id, model, prompt and answer tokens as lists
    BlisCsv,
    /// Azure LLM inference trace: timestamp, prompt and answer length
    Azure,
    /// Mooncake: JSON lines with hash ids
    Mooncake,
    /// BLIS, both halves beside each other: name one of them
    #[value(name = "trace-v2")]
    TraceV2,
    /// Alibaba Bailian (Qwen): JSON lines in seconds with chats and hash ids
    Bailian,
    /// BurstGPT: timestamp, model, request and response tokens
    #[value(name = "burstgpt")]
    BurstGpt,
    /// `vllm bench serve --save-result --save-detailed`: JSON, also several runs
    VllmBench,
    /// SGLang `bench_serving --output-details`: JSON lines; arrivals follow from the request rate
    SglangBench,
    /// AIPerf: profile_export.jsonl
    #[value(name = "aiperf")]
    AiPerf,
    /// OpenTelemetry spans of vLLM: OTLP-JSON
    Otel,
    /// vllm-vcr: JSON lines
    VllmVcr,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum ArrivalName {
    /// At equal distances
    Constant,
    /// At random, independently of each other
    Poisson,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum SessionMode {
    /// As recorded
    Fixed,
    /// When the round before has been answered and its client has thought
    ClosedLoop,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum OutputForm {
    /// Text on a terminal, JSON elsewhere
    Auto,
    /// A summary to read
    Text,
    /// One JSON object
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum LogLevel {
    /// Nothing
    Off,
    /// What went wrong
    #[value(alias = "fatal", alias = "panic")]
    Error,
    /// What may be a mistake
    #[value(alias = "warning")]
    Warn,
    /// What was chosen where you left the choice
    Info,
    /// What helps to find a bug
    Debug,
    /// Everything
    Trace,
}

impl From<LogLevel> for LevelFilter {
    fn from(level: LogLevel) -> Self {
        match level {
            LogLevel::Off => Self::OFF,
            LogLevel::Error => Self::ERROR,
            LogLevel::Warn => Self::WARN,
            LogLevel::Info => Self::INFO,
            LogLevel::Debug => Self::DEBUG,
            LogLevel::Trace => Self::TRACE,
        }
    }
}
