//! The flags of experiments: their names, help and first checks. Their values go into an [`ExperimentSpec`] by name, so
//! that files, suites and other programs say the same things in the same words.
//!
//! Names are BLIS's; vLLM's names for the same thing are aliases. A flag whose absence matters is
//! an `Option`, and its default stands in its help text; all others carry theirs.

use std::ffi::OsStr;
use std::marker::PhantomData;
use std::num::NonZeroU32;
use std::path::PathBuf;

use blis_config::policy::{BuiltIn, Source};
use blis_eval::error::RunError;
use blis_eval::experiment::{Experiment, OutputFiles};
use blis_eval::spec::{
    ArrivalName, EngineName, ExperimentSpec, FitnessScaleName, KEYS, NamedChoice, OnErrorName, ParityName, PolicyParam,
    RegretName, ScorerList, SessionMode, TargetList, TieBreakName, TraceFormatName, TraceLevelName, WorkloadName,
    defaults, parse,
};
use blis_plugin::Kind;
use blis_report::{Export, ExportFormat};
use blis_sim::units::Micros;
use blis_workload::trace_v2::ThinkTime;
use clap::builder::{NonEmptyStringValueParser, PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};

use super::output::{LogLevel, OutputForm};

/// The settings that stand on the command line, by name. First in a structure of flags: the other fields take their
/// values out of the matches.
#[derive(Clone, Debug, Default)]
pub(super) struct Settings(pub ExperimentSpec);

/// Reads the matches without taking anything out of them.
impl FromArgMatches for Settings {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut spec = ExperimentSpec::default();
        let given = |id: &str| {
            let known = matches.try_contains_id(id).is_ok();
            known && matches.value_source(id) == Some(ValueSource::CommandLine)
        };
        for key in KEYS {
            let id = key.name.replace('-', "_");
            let off = format!("no_{id}");
            let flag = |name: &str| SettingSource::Flag(format!("--{name}").into());
            let mut set = |text: &str, source: SettingSource| {
                spec.set(key, text, source).map_err(|told| {
                    let what = format!("invalid value '{text}' for '--{}': {told}", key.name);
                    clap::Error::raw(clap::error::ErrorKind::ValueValidation, what)
                })
            };
            if given(&off) {
                set("false", flag(&format!("no-{}", key.name)))?;
            }
            if given(&id) {
                for value in matches.get_raw(&id).into_iter().flatten() {
                    set(&value.to_string_lossy(), flag(key.name))?;
                }
            }
        }
        Ok(Self(spec))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// It brings no flags of its own.
impl Args for Settings {
    fn augment_args(command: Command) -> Command {
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        command
    }
}

impl Settings {
    /// What is set, on top of the file of `--config`.
    fn over(&self, output: &OutputFlags) -> Result<ExperimentSpec, RunError> {
        let spec = self.0.clone();
        Ok(match &output.config {
            Some(file) => spec.over(&ExperimentSpec::load(file)?),
            None => spec,
        })
    }
}

impl RunArgs {
    /// What is asked for.
    pub(super) fn spec(&self) -> Result<ExperimentSpec, RunError> {
        self.given.over(&self.output)
    }

    /// Files that it writes.
    pub(super) fn files(&self) -> OutputFiles {
        self.export.files(&self.metrics_path, &None)
    }

    /// That, checked.
    pub(super) fn experiment(&self) -> Result<Experiment, RunError> {
        Experiment::new(self.spec()?, self.files())
    }
}

impl ReplayArgs {
    /// What is asked for, checked.
    pub(super) fn experiment(&self) -> Result<Experiment, RunError> {
        let spec = self.given.over(&self.output)?;
        if spec.trace_header.is_none() {
            return Err(RunError::usage("there is no trace to replay")
                .hint("name its two files with `--trace-header` and `--trace-data`"));
        }
        Experiment::new(spec, self.export.files(&self.metrics_path, &self.results_path))
    }
}

impl CompareArgs {
    /// What all contestants have in common.
    pub(super) fn spec(&self) -> Result<ExperimentSpec, RunError> {
        self.given.over(&self.output)
    }
}

impl ExportFlags {
    fn files(&self, metrics_path: &Option<PathBuf>, results_path: &Option<PathBuf>) -> OutputFiles {
        let trace = self.trace_output.clone().map(|path| Export { format: ExportFormat::TraceV2, path });
        OutputFiles {
            metrics_path: metrics_path.clone(),
            results_path: results_path.clone(),
            exports: self.export.iter().cloned().chain(trace).collect(),
        }
    }
}

#[derive(Debug, Args)]
pub(super) struct RunArgs {
    #[command(flatten)]
    pub given: Settings,
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
    #[command(flatten)]
    pub output: OutputFlags,
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
    #[command(flatten)]
    pub given: Settings,
    #[command(flatten)]
    pub instance: InstanceArgs,
    #[command(flatten)]
    pub cluster: ClusterFlags,
    #[command(flatten)]
    pub policies: PolicyFlags,
    /// Header of the trace, YAML
    #[arg(long, value_name = "FILE", required_unless_present = "config", help_heading = WORKLOAD)]
    pub trace_header: Option<PathBuf>,
    /// Requests of the trace, CSV, plain or gzip
    #[arg(long, value_name = "FILE", required_unless_present = "config", help_heading = WORKLOAD)]
    pub trace_data: Option<PathBuf>,
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
    #[command(flatten)]
    pub output: OutputFlags,
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
    #[arg(long, value_parser = OneOf::<SessionMode>::new(), value_name = "MODE", default_value_t = defaults::SESSION_MODE, help_heading = WORKLOAD)]
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
    #[command(flatten)]
    pub given: Settings,
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
    #[command(flatten)]
    pub output: OutputFlags,
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
    #[arg(long, value_name = "NAME", required_unless_present = "config", help_heading = MODEL)]
    pub model: Option<String>,
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
    #[arg(long, visible_alias = "block-size", value_name = "N", default_value_t = defaults::BLOCK_SIZE_IN_TOKENS, value_parser = parse::count,
          help_heading = ENGINE)]
    pub block_size_in_tokens: u32,
    /// Longest prompt plus answer, tokens; 0 for the model's own limit. At most what the KV cache holds
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = parse::count_or_zero, help_heading = ENGINE)]
    pub max_model_len: u32,
    /// Share of GPU memory the engine may use, above 0, at most 1
    #[arg(long, value_name = "SHARE", default_value_t = defaults::GPU_MEMORY_UTILIZATION, value_parser = parse::share, help_heading = ENGINE)]
    pub gpu_memory_utilization: f64,
}

#[derive(Debug, Args)]
pub(super) struct EngineFlags {
    /// Most requests in the running batch, ≥ 1
    #[arg(long, visible_alias = "max-num-running-reqs", value_name = "N", default_value_t = defaults::MAX_NUM_SEQS,
          value_parser = parse::count, help_heading = ENGINE)]
    pub max_num_seqs: u32,
    /// Most tokens computed in one step, ≥ 1
    #[arg(long, visible_alias = "max-num-scheduled-tokens", value_name = "N", default_value_t = defaults::MAX_NUM_BATCHED_TOKENS,
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
    #[arg(long, value_parser = OneOf::<ParityName>::new(), value_name = "NAME", default_value_t = defaults::PARITY, help_heading = ENGINE)]
    pub parity: ParityName,
    /// Which of the two equal engines to use
    #[arg(long, value_parser = OneOf::<EngineName>::new(), value_name = "NAME", default_value_t = defaults::ENGINE, hide = true)]
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
    #[arg(long, value_parser = OneOf::<TieBreakName>::new(), value_name = "NAME", default_value_t = defaults::TIE_BREAK, help_heading = CLUSTER)]
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
    #[arg(long, value_parser = OneOf::<OnErrorName>::new(), value_name = "NAME", default_value_t = defaults::ON_PLUGIN_ERROR, help_heading = POLICIES)]
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
    #[arg(long, value_parser = OneOf::<FitnessScaleName>::new(), value_name = "NAME", requires = "fitness_weights", help_heading = EVALUATION)]
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
    #[arg(long, value_parser = OneOf::<TraceLevelName>::new(), value_name = "LEVEL", default_value_t = defaults::TRACE_LEVEL, help_heading = EVALUATION)]
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
    #[arg(long, value_parser = OneOf::<WorkloadName>::new(), value_name = "NAME", help_heading = WORKLOAD)]
    pub workload: Option<WorkloadName>,
    /// Workload specification, YAML: clients of any kind, cohorts, sessions, rates that change. Or a
    /// ServeGen folder. --seed, --horizon, --num-requests and --timeout win over it
    #[arg(long, value_name = "FILE", help_heading = WORKLOAD)]
    pub workload_spec: Option<PathBuf>,
    /// Request trace, plain or gzip
    #[arg(long, visible_alias = "workload-traces-filepath", value_name = "FILE", help_heading = WORKLOAD)]
    pub workload_trace: Option<PathBuf>,
    /// Format of the trace [default: auto]
    #[arg(long, value_parser = OneOf::<TraceFormatName>::new(), value_name = "NAME", help_heading = WORKLOAD)]
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
    #[arg(long, value_parser = OneOf::<SessionMode>::new(), value_name = "MODE", help_heading = WORKLOAD)]
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
    #[arg(long, value_parser = OneOf::<ArrivalName>::new(), value_name = "NAME", help_heading = SYNTHETIC)]
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
    #[arg(long, value_name = "N", default_value_t = defaults::SEED, value_parser = parse::seed, help_heading = SIMULATION)]
    pub seed: u64,
    /// End of the simulation, µs ≥ 1 [default: when every request has ended; a replay with --parity
    /// blis: twice the last arrival]
    #[arg(long, value_name = "US", value_parser = parse::horizon, help_heading = SIMULATION)]
    pub horizon: Option<Micros>,
}

#[derive(Debug, Args)]
pub(super) struct OutputFlags {
    /// Settings to start from, YAML, as --explain-config prints them; flags win over it
    #[arg(long, value_name = "FILE", help_heading = SIMULATION)]
    pub config: Option<PathBuf>,
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

pub(super) const REGRET: &str = "Regret: what would have happened otherwise";

/// What to ask about the alternatives to decisions.
#[derive(Debug, Args)]
pub(super) struct RegretFlags {
    /// Run sampled decisions again with other answers, and compare what happens
    #[arg(long, value_parser = OneOf::<RegretName>::new(), value_name = "KIND", default_value_t = defaults::REGRET, help_heading = REGRET)]
    pub regret: RegretName,
    /// Routing decisions to look at, ≥ 1: half of them at random, a quarter from requests that missed an SLO
    /// target (without targets: from the slowest), a quarter from those with the widest score margins. A
    /// quarter as many of admission, and of scheduling, each
    #[arg(long, value_name = "N", default_value_t = defaults::REGRET_SAMPLES, value_parser = parse::count, help_heading = REGRET)]
    pub regret_samples: u32,
    /// Other instances to try for each routing decision, ≥ 1: the one with most of the prompt in its cache,
    /// the one with least to do, then by score
    #[arg(long, value_name = "K", default_value_t = defaults::REGRET_ALTERNATIVES, value_parser = parse::count, help_heading = REGRET)]
    pub regret_alternatives: u32,
    /// For how many seconds after a decision its consequences count [default: twice the mean end-to-end
    /// latency, at least 1]
    #[arg(long, value_name = "S", value_parser = parse::seconds_above_0, help_heading = REGRET)]
    pub regret_window: Option<Micros>,
    /// File for every decision that was looked at, with what was seen and all its worlds, a line of JSON each
    #[arg(long, value_name = "FILE", help_heading = REGRET)]
    pub regret_path: Option<PathBuf>,
}

/// Takes any word for the name of a policy: what is not built in may be a plugin.
#[derive(Clone, Debug)]
pub(super) struct Names(Kind);

impl TypedValueParser for Names {
    type Value = String;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<Self::Value, clap::Error> {
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

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<Self::Value, clap::Error> {
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

/// Understands the words of a closed set.
#[derive(Clone, Debug)]
pub(super) struct OneOf<T>(PhantomData<T>);

impl<T> OneOf<T> {
    pub(super) fn new() -> Self {
        Self(PhantomData)
    }
}

impl<T: NamedChoice> TypedValueParser for OneOf<T> {
    type Value = T;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<T, clap::Error> {
        let names = PossibleValuesParser::new(choices::<T>());
        let text = names.parse_ref(command, arg, value)?;
        T::find(&text).ok_or_else(|| clap::Error::new(clap::error::ErrorKind::InvalidValue).with_cmd(command))
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(choices::<T>()))
    }
}

/// The words of a closed set as help lists them.
fn choices<T: NamedChoice>() -> impl Iterator<Item = PossibleValue> {
    T::ALL.iter().map(|choice| PossibleValue::new(choice.name()).help(choice.about()))
}
