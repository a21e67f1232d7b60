//! The flags of experiments: their names, help and first checks. Their values go into an [`ExperimentSpec`] by name, so
//! that settings have the same names on the command line, in files and in suites.
//!
//! Names are BLIS's; vLLM's names for the same thing are aliases (see `flags`). A flag whose absence matters is
//! an `Option` with its default in the help text; all others have theirs in the attribute.

use std::ffi::OsStr;
use std::marker::PhantomData;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use blis_config::OffloadArgs;
use blis_config::policy::{BuiltIn, ScalingRow, SettingSource};
use blis_eval::compare::CompareConfig;
use blis_eval::error::RunError;
use blis_eval::experiment::{Experiment, OutputFiles, TimelineFile};
use blis_eval::group::GroupSettings;
use blis_eval::node_pool::NodePoolSettings;
use blis_eval::planning::Variation;
use blis_eval::spec::{
    ArrivalName, BackpressureName, ChunkEvictionName, ConcurrencyModeName, DeciderName, DtypeName, EncodeDeciderName,
    EngineName, ExperimentSpec, FilterList, FitnessScaleName, KEYS, KvCacheDtypeName, NamedChoice, OnErrorName,
    ParityName, PolicyParam, QuantizationName, RegretName, RoleName, ScorerList, SecondaryTierName, SessionMode,
    SimulationName, StageOrderName, TargetList, TieBreakName, TraceFormatName, TraceLevelName, TransferLinkName,
    WeightList, WorkloadName, defaults, parse,
};
use blis_eval::startup::StartupSettings;
use blis_plugin::Kind;
use blis_report::{Export, ExportFormat, ExportWindow};
use blis_sim::cluster::StartMode;
use blis_sim::scaling::ScalingRules;
use blis_sim::units::Micros;
use blis_workload::trace_v2::ThinkTime;
use clap::builder::{NonEmptyStringValueParser, PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};

use super::output::{LogLevel, OutputForm};

/// The settings of the command line, by name. It must be the first field of a structure of flags, because the other
/// fields take their values out of the matches.
#[derive(Clone, Debug, Default)]
pub(super) struct Settings(pub ExperimentSpec);

/// Reads the values without removing them from the matches.
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
                spec.set(key, text, source).map_err(|message| {
                    let what = format!("invalid value '{text}' for '--{}': {message}", key.name);
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

/// It has no flags of its own.
impl Args for Settings {
    fn augment_args(command: Command) -> Command {
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        command
    }
}

impl Settings {
    /// The settings of the command line over those of the file of `--config`.
    pub(super) fn over(&self, output: &OutputFlags) -> Result<ExperimentSpec, RunError> {
        let spec = self.0.clone();
        Ok(match &output.config {
            Some(file) => spec.over(&ExperimentSpec::load(file)?),
            None => spec,
        })
    }
}

impl RunArgs {
    /// The specification of the experiment.
    pub(super) fn spec(&self) -> Result<ExperimentSpec, RunError> {
        self.given.over(&self.output)
    }

    /// The files that the run writes.
    pub(super) fn files(&self) -> OutputFiles {
        OutputFiles { page: self.output.report.clone(), ..self.export.files(&self.metrics_path, &None) }
    }

    /// The experiment, validated.
    pub(super) fn experiment(&self) -> Result<Experiment, RunError> {
        Experiment::new(self.spec()?, self.files())
    }
}

impl ReplayArgs {
    /// The experiment, validated.
    pub(super) fn experiment(&self) -> Result<Experiment, RunError> {
        let spec = self.given.over(&self.output)?;
        let two_files = "a recorded trace has two files: `--trace-header FILE.yaml --trace-data FILE.csv`";
        match (&spec.trace_header, &spec.trace_data) {
            (None, None) => return Err(RunError::usage("no trace to replay").hint(two_files)),
            (Some(header), None) if !header.exists() => {
                let what = format!("cannot read `{}`: no such file", header.display());
                return Err(RunError::usage(what).hint(two_files));
            }
            (Some(_), None) => return Err(RunError::usage("`--trace-data` is missing").hint(two_files)),
            (None, Some(_)) => return Err(RunError::usage("`--trace-header` is missing").hint(two_files)),
            (Some(_), Some(_)) => {}
        }
        let files = self.export.files(&self.metrics_path, &self.results_path);
        Experiment::new(spec, OutputFiles { page: self.output.report.clone(), ..files })
    }
}

impl CompareArgs {
    /// The comparison, validated.
    pub(super) fn config(&self) -> Result<CompareConfig, RunError> {
        let spec = self.given.over(&self.experiment.output)?;
        let (names, seeds, threads) = (&self.compared_policies, self.seeds, self.threads);
        if !self.vary.is_empty() {
            return CompareConfig::of_settings(&spec, &self.vary, seeds, threads);
        }
        match names.iter().filter(|name| ExperimentSpec::is_deployment(Path::new(name))).count() {
            0 => CompareConfig::new(spec, names, seeds, threads),
            some if some == names.len() => CompareConfig::of_files(&spec, names, seeds, threads),
            _ => Err(mixed(names)),
        }
    }
}

/// The error about configuration files beside other names, one of which may be a file that is not there.
fn mixed(names: &[String]) -> RunError {
    let is_missing = |name: &&String| (name.ends_with(".yaml") || name.ends_with(".yml")) && !Path::new(name).exists();
    match names.iter().find(is_missing) {
        Some(name) => RunError::usage(format_args!("cannot read `{name}`: no such file"))
            .hint("configuration files are compared with each other: check its name"),
        None => RunError::usage("configuration files and policies cannot be compared with each other")
            .hint("name configuration files only, each with its `routing-policy`; or policies only"),
    }
}

impl ExportFlags {
    fn files(&self, metrics_path: &Option<PathBuf>, results_path: &Option<PathBuf>) -> OutputFiles {
        let trace = self.trace_output.clone().map(|path| Export { format: ExportFormat::TraceV2, path });
        OutputFiles {
            metrics_path: metrics_path.clone(),
            results_path: results_path.clone(),
            exports: self.export.iter().cloned().chain(trace).collect(),
            trace_window: ExportWindow {
                from: self.export_from.unwrap_or(Micros::ZERO),
                to: self.export_to.unwrap_or(Micros::MAX),
                instances: self.export_instances.clone(),
            },
            timeline: self.timeline.clone().map(|path| TimelineFile { path, interval: self.interval }),
            page: None,
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

/// The run in the formats of tools that read real measurements.
#[derive(Debug, Default, Args)]
pub(super) struct ExportFlags {
    /// Export the run in the format of another tool; may be given several times. FORMAT is
    /// trace-v2 (PATH.yaml and PATH.csv, which replay to the same results), vllm-bench (the JSON of vLLM's
    /// load generator with details), aiperf (two files in the folder PATH), otel (OpenTelemetry
    /// spans of every request and engine step) or perfetto (the same for ui.perfetto.dev: JSON, or a smaller file
    /// if PATH ends in .pftrace; a further .gz compresses either)
    #[arg(long, value_name = "FORMAT=PATH", help_heading = OUTPUT)]
    pub export: Vec<Export>,
    /// --export perfetto: leave out what ends before this time of the run, as 1m30s
    #[arg(long, value_name = "TIME", value_parser = parse::duration, requires = "export", help_heading = OUTPUT)]
    pub export_from: Option<Micros>,
    /// --export perfetto: leave out what begins at this time of the run or later
    #[arg(long, value_name = "TIME", value_parser = parse::duration, requires = "export", help_heading = OUTPUT)]
    pub export_to: Option<Micros>,
    /// --export perfetto: only these instances, by number, with the requests that they served
    #[arg(long, value_name = "N,…", value_delimiter = ',', requires = "export", help_heading = OUTPUT)]
    pub export_instances: Vec<u32>,
    /// The same as --export trace-v2=PREFIX
    #[arg(long, value_name = "PREFIX", help_heading = OUTPUT)]
    pub trace_output: Option<PathBuf>,
    /// File for the service over time, CSV, or Parquet if its name ends so: for each moment a row for the cluster and for
    /// each instance, with requests waiting and running, KV blocks in use, hit rate, arrivals, completions, replicas
    #[arg(long, value_name = "FILE.csv|parquet", value_parser = timeline_file, help_heading = OUTPUT)]
    pub timeline: Option<PathBuf>,
    /// Time between two moments of --timeline, at least 1us
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = parse::duration, requires = "timeline",
          help_heading = OUTPUT)]
    pub interval: Micros,
}

/// The file of `--timeline`.
fn timeline_file(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    match path.extension().and_then(OsStr::to_str) {
        Some(other @ ("pq" | "arrow" | "feather" | "json" | "jsonl" | "xlsx")) => Err(format!(
            "a timeline is CSV or Parquet, not `{other}`: name `{}` or `{}`",
            path.with_extension("csv").display(),
            path.with_extension("parquet").display()
        )),
        _ => Ok(path),
    }
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
    #[arg(long, value_name = "FILE", help_heading = WORKLOAD)]
    pub trace_header: Option<PathBuf>,
    /// Requests of the trace, CSV, plain or gzip-compressed
    #[arg(long, value_name = "FILE", help_heading = WORKLOAD)]
    pub trace_data: Option<PathBuf>,
    /// Leave out broken lines and count them, instead of stopping at the first
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

/// The arrival of later rounds of sessions.
#[derive(Debug, Args)]
pub(super) struct SessionFlags {
    /// Arrival of the later rounds of recorded sessions
    #[arg(long, value_parser = OneOf::<SessionMode>::new(), value_name = "MODE", default_value_t = defaults::SESSION_MODE, help_heading = WORKLOAD)]
    pub session_mode: SessionMode,
    /// With --session-mode closed-loop: think time, from the end of a request to the next one of its session,
    /// ms ≥ 0 or with a unit [default: column think_time_us of the trace, else the time between recorded arrivals]
    #[arg(long, value_name = "MS", value_parser = parse::think_time, conflicts_with = "think_time_dist",
          help_heading = WORKLOAD)]
    pub think_time_ms: Option<Micros>,
    /// Random think time, as lognormal:mu=2.0,sigma=0.6,min=3s,max=30s: exp(mu + sigma Z) seconds
    /// within bounds
    #[arg(long, value_name = "DISTRIBUTION", value_parser = parse::think_time_dist, help_heading = WORKLOAD)]
    pub think_time_dist: Option<ThinkTime>,
}

#[derive(Debug, Args)]
pub(super) struct CompareArgs {
    #[command(flatten)]
    pub given: Settings,
    /// Two or more policies: names, scripts, components, lists of scorers like queue-depth:2,kv-utilization:1, or
    /// bundles (YAML); or as many configuration files (as of --config, with a `model` or `deployment`): whole deployments
    /// under the same requests. The first is the baseline
    #[arg(value_name = "POLICY|FILE", required_unless_present = "vary")]
    pub compared_policies: Vec<String>,
    /// Whole deployments instead of policies: a flag of `blis run` and its values, as tp=1,2; may be given several times
    /// for all combinations. The first is the baseline
    #[arg(long, value_name = "FLAG=VALUE,…", value_parser = Variation::parse, conflicts_with = "compared_policies",
          help_heading = COMPARISON)]
    pub vary: Vec<Variation>,
    /// Replications: seeds from --seed on. Each is a run of every policy under the same requests
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = parse::seeds, help_heading = COMPARISON)]
    pub seeds: u32,
    /// Threads; 0 for one per core. Results do not depend on it
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = parse::threads, help_heading = COMPARISON)]
    pub threads: usize,
    #[command(flatten)]
    pub fitness: FitnessFlags,
    #[command(flatten)]
    pub targets: TargetFlags,
    #[command(flatten)]
    pub experiment: ExperimentFlags,
}

/// What commands of several runs have in common with `blis run`.
#[derive(Debug, Args)]
pub(super) struct ExperimentFlags {
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

/// Compared configuration files name their models, and a model may be varied.
pub(super) fn model_of_compared(model: Arg) -> Arg {
    model.required_unless_present_any(["compared_policies", "vary"])
}

const COMPARISON: &str = "Comparison";
const MODEL: &str = "Model and hardware";
const LATENCY: &str = "Latency model";
const ENGINE: &str = "Engine (one vLLM-like instance)";
const CPU_TIER: &str = "CPU tier of the KV cache (vLLM's OffloadingConnector)";
const CLUSTER: &str = "Cluster";
const FLOW_CONTROL: &str = "Flow control";
const DISAGGREGATION: &str = "Prefill apart from decode";
const SCALING: &str = "Autoscaling";
const POLICIES: &str = "Policies";
const WORKLOAD: &str = "Workload";
const SYNTHETIC: &str = "Generated workload";
const EVALUATION: &str = "Evaluation";
const SIMULATION: &str = "Simulation";
const OUTPUT: &str = "Output";

/// The instance: model, GPU and scheduler.
#[derive(Debug, Args)]
pub(super) struct InstanceArgs {
    #[command(flatten)]
    pub deployment: DeploymentFlags,
    #[command(flatten)]
    pub engine: EngineFlags,
}

#[derive(Debug, Args)]
pub(super) struct DeploymentFlags {
    /// Model, as on Hugging Face; `blis models` lists those built in
    #[arg(long, value_name = "NAME", required_unless_present = "config", help_heading = MODEL)]
    pub model: Option<String>,
    /// GPU; `blis hardware` lists those built in [default: H100]
    #[arg(long, visible_alias = "gpu", value_name = "GPU", help_heading = MODEL)]
    pub hardware: Option<String>,
    /// Tensor parallelism, GPUs; 0 for the default [default: the smallest that holds the model]
    #[arg(long, visible_alias = "tensor-parallel-size", value_name = "N",
          value_parser = parse::parallelism_or_zero, help_heading = MODEL)]
    pub tp: Option<u32>,
    /// Pipeline parallelism, stages (physics model only) [default: 1, or what holds the model where no --tp does]
    #[arg(long, visible_alias = "pipeline-parallel-size", value_name = "N",
          value_parser = parse::parallelism, help_heading = MODEL)]
    pub pp: Option<u32>,
    /// Data parallelism of mixture-of-experts models, replicas ≥ 1
    #[arg(long, visible_alias = "data-parallel-size", value_name = "N", default_value_t = 1,
          value_parser = parse::parallelism, help_heading = MODEL)]
    pub dp: u32,
    /// Expert parallelism (mixture-of-experts, physics models only)
    #[arg(long, help_heading = MODEL)]
    pub enable_expert_parallel: bool,
    /// No CUDA graphs: every kernel is launched by itself (physics model only)
    #[arg(long, help_heading = MODEL)]
    pub enforce_eager: bool,
    /// Type of activations, and of weights that are not quantised [default: auto]
    #[arg(long, value_parser = OneOf::<DtypeName>::new(), value_name = "TYPE", help_heading = MODEL)]
    pub dtype: Option<DtypeName>,
    /// Method of quantisation: width of the weights, and products in 8 bits [default: the model's]
    #[arg(long, value_parser = OneOf::<QuantizationName>::new(), value_name = "METHOD", help_heading = MODEL)]
    pub quantization: Option<QuantizationName>,
    /// Type of cached keys and values: KV blocks that fit, and bytes that attention reads [default: auto]
    #[arg(long, value_parser = OneOf::<KvCacheDtypeName>::new(), value_name = "TYPE", help_heading = MODEL)]
    pub kv_cache_dtype: Option<KvCacheDtypeName>,
    /// Backend of expert communication (mixture-of-experts, trained-physics only)
    #[arg(long, value_name = "NAME", help_heading = MODEL)]
    pub moe_comm_backend: Option<String>,
    /// vLLM version of the blackbox coefficients, as v0.8.4 or vllm/vllm-openai:v0.8.4 [default: the model's]
    #[arg(long, value_name = "VERSION", help_heading = MODEL)]
    pub vllm_version: Option<String>,
    /// Folder with `config.json` or `<model>/config.json` [default: built in]
    #[arg(long, value_name = "DIR", help_heading = MODEL)]
    pub model_config_folder: Option<PathBuf>,
    /// Descriptions of GPUs: a file (YAML or JSON) or a folder of them [default: built in]
    #[arg(long, value_name = "PATH", help_heading = MODEL)]
    pub hardware_config: Option<PathBuf>,

    /// Latency model: step times [default: physics; trained-physics with --parity blis, --moe-comm-backend or 7
    /// betas; blackbox with 3 betas or --vllm-version]
    #[arg(long, value_parser = Names(Kind::Latency), value_name = "NAME", help_heading = LATENCY)]
    pub latency_model: Option<String>,
    /// Per-request coefficients of the latency model: three, µs ≥ 0; needs --beta-coeffs [default: trained]
    #[arg(long, value_name = "A0,A1,…", value_delimiter = ',', value_parser = parse::coefficient,
          help_heading = LATENCY)]
    pub alpha_coeffs: Option<Vec<f64>>,
    /// Step-time coefficients of the latency model, each ≥ 0: 3 for blackbox, 7 to 11 for trained-physics, 8 for physics; needs
    /// --alpha-coeffs [default: trained]
    #[arg(long, value_name = "B0,B1,…", value_delimiter = ',', value_parser = parse::coefficient,
          help_heading = LATENCY)]
    pub beta_coeffs: Option<Vec<f64>>,
    /// Coefficients of the physics model, as `blis fit` writes them [default: built in]
    #[arg(long, value_name = "FILE", help_heading = LATENCY)]
    pub coefficients: Option<PathBuf>,

    /// KV cache size, blocks ≥ 1 [default: computed from the GPU's memory]
    #[arg(long, visible_alias = "num-gpu-blocks", value_name = "N", value_parser = parse::blocks,
          help_heading = ENGINE)]
    pub total_kv_blocks: Option<u64>,
    /// KV block size, tokens ≥ 1
    #[arg(long, visible_alias = "block-size", value_name = "N", default_value_t = defaults::BLOCK_SIZE_IN_TOKENS, value_parser = parse::count,
          help_heading = ENGINE)]
    pub block_size_in_tokens: u32,
    /// Maximum input plus output tokens of a request; 0 for the model's own limit, at most the KV cache
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = parse::count_or_zero, help_heading = ENGINE)]
    pub max_model_len: u32,
    /// Share of GPU memory for weights and KV cache, above 0, at most 1
    #[arg(long, value_name = "SHARE", default_value_t = defaults::GPU_MEMORY_UTILIZATION, value_parser = parse::share, help_heading = ENGINE)]
    pub gpu_memory_utilization: f64,
    /// BLIS's mirror of KV blocks on the CPU, blocks; 0 for none; with --parity blis
    #[arg(long, value_name = "N", value_parser = parse::count_or_zero, conflicts_with = "kv_offload_config",
          help_heading = ENGINE)]
    pub kv_cpu_blocks: Option<u32>,
    /// Rate of copies from that mirror, tokens per µs, above 0 [default: 100]
    #[arg(long, value_name = "RATE", value_parser = parse::above_0, help_heading = ENGINE)]
    pub kv_transfer_bandwidth: Option<f64>,
    /// Time of the copy of a block beside that, µs or with a unit [default: 0]
    #[arg(long, value_name = "US", value_parser = parse::delay, help_heading = ENGINE)]
    pub kv_transfer_base_latency: Option<Micros>,
    /// No effect, as in BLIS, 0 to 1
    #[arg(long, value_name = "SHARE", value_parser = parse::share_or_zero, help_heading = ENGINE)]
    pub kv_offload_threshold: Option<f64>,
    /// BLIS's offload chain, CPU and storage tiers of the KV cache, YAML; with --parity blis
    #[arg(long, value_name = "FILE", help_heading = ENGINE)]
    pub kv_offload_config: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(super) struct EngineFlags {
    /// Engine: the version of which the scheduler is followed
    #[arg(long, value_parser = OneOf::<EngineName>::new(), value_name = "NAME", default_value_t = defaults::ENGINE, help_heading = ENGINE)]
    pub engine: EngineName,
    /// Maximum batch size, requests ≥ 1 [default: as vLLM's server on that GPU: 1024 from 70 GiB of memory, 256 below
    /// and on A100; 256 with --parity blis]
    #[arg(long, visible_alias = "max-num-running-reqs", value_name = "N", value_parser = parse::count,
          help_heading = ENGINE)]
    pub max_num_seqs: Option<u32>,
    /// Maximum tokens of a step, ≥ 1 [default: as vLLM's server on that GPU: 8192 from 70 GiB of memory, 16384 from 160
    /// GiB, 2048 below and on A100; 2048 with --parity blis]
    #[arg(long, visible_alias = "max-num-scheduled-tokens", value_name = "N", value_parser = parse::count,
          help_heading = ENGINE)]
    pub max_num_batched_tokens: Option<u32>,
    /// Maximum requests that enter the batch, ≥ 1 [default: --max-num-seqs]
    #[arg(long, value_name = "N", value_parser = parse::count, help_heading = ENGINE)]
    pub max_num_active_seqs: Option<u32>,
    /// Maximum input tokens of one request in a step; 0 for no limit
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = parse::count_or_zero, help_heading = ENGINE)]
    pub long_prefill_token_threshold: u32,
    /// Raise that maximum to --max-num-batched-tokens divided by the number of requests
    #[arg(long, help_heading = ENGINE)]
    pub long_prefill_token_threshold_adaptive: bool,
    /// Prefill tokens only every N-th step while requests decode, N ≥ 1
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = parse::count, help_heading = ENGINE)]
    pub prefill_schedule_interval: u32,
    /// Share of the KV blocks that stays free when a request enters a batch that is not empty, from 0 on, below 1
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, value_parser = parse::part, help_heading = ENGINE)]
    pub watermark: f64,
    /// Requests in an instance at which its API server returns 503 [default: no limit]
    #[arg(long, value_name = "N", value_parser = parse::count_or_zero, help_heading = ENGINE)]
    pub max_num_queued_reqs: Option<u32>,
    /// Prompt tokens waiting for their first output token at which the API server returns 503 [default: no limit]
    #[arg(long, value_name = "N", value_parser = parse::tokens, help_heading = ENGINE)]
    pub max_num_queued_tokens: Option<u64>,
    /// CPU tier of the KV cache, GiB of host memory for all GPUs of an instance together; 0 for none
    #[arg(long, value_name = "GIB", default_value_t = 0.0, value_parser = parse::from_0, help_heading = CPU_TIER)]
    pub kv_offloading_size: f64,
    /// What makes room in the CPU tier
    #[arg(long, value_parser = OneOf::<ChunkEvictionName>::new(), value_name = "NAME",
          default_value_t = defaults::KV_OFFLOADING_EVICTION_POLICY, help_heading = CPU_TIER)]
    pub kv_offloading_eviction_policy: ChunkEvictionName,
    /// What makes room in the CPU tier, what is stored and loaded: a built-in policy, or a plugin [default: that of
    /// --kv-offloading-eviction-policy]
    #[arg(long, value_parser = Names(Kind::KvCache), value_name = "NAME", help_heading = CPU_TIER)]
    pub kv_cache_policy: Option<String>,
    /// KV blocks that are stored and loaded together, ≥ 1
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = parse::count, help_heading = CPU_TIER)]
    pub kv_offloading_blocks_per_chunk: u32,
    /// Store a chunk when it is offered for the N-th time; 0 and 1 for at once
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = parse::count_or_zero, help_heading = CPU_TIER)]
    pub kv_offloading_store_threshold: u32,
    /// Store generated tokens, too, not only prompts
    #[arg(long, help_heading = CPU_TIER)]
    pub kv_offloading_all_tokens: bool,
    /// Bandwidth of one direction between a GPU and the host while the other is idle, GB/s (H100 with PCIe 5)
    #[arg(long, value_name = "GB/S", default_value_t = OffloadArgs::BANDWIDTH, value_parser = parse::above_0, help_heading = CPU_TIER)]
    pub kv_offloading_bandwidth: f64,
    /// Bandwidth of both directions together, GB/s [default: 1.668 times that of one]
    #[arg(long, value_name = "GB/S", value_parser = parse::above_0, help_heading = CPU_TIER)]
    pub kv_offloading_bandwidth_both: Option<f64>,
    /// Time before the first byte of a transfer, µs or with a unit (the default is a guess)
    #[arg(long, value_name = "US", default_value = "30", value_parser = parse::delay, help_heading = CPU_TIER)]
    pub kv_offloading_latency: Micros,
    /// Tier below the CPU tier
    #[arg(long, value_parser = OneOf::<SecondaryTierName>::new(), value_name = "NAME",
          default_value_t = defaults::KV_OFFLOADING_SECONDARY, help_heading = CPU_TIER)]
    pub kv_offloading_secondary: SecondaryTierName,
    /// The replicas of a group share the secondary tier, each over a link of its own; fs is then a file system over the network
    #[arg(long, help_heading = CPU_TIER)]
    pub kv_offloading_secondary_shared: bool,
    /// Bandwidth of the secondary tier in each direction, GB/s [default: fs 5, shared 1.5; obj 1.5; p2p 50]
    #[arg(long, value_name = "GB/S", value_parser = parse::above_0, help_heading = CPU_TIER)]
    pub kv_offloading_secondary_bandwidth: Option<f64>,
    /// Time of an access to the secondary tier, with p2p of a message between replicas, µs or with a unit [default: fs 100, shared 1ms;
    /// obj 5ms; p2p 500; guesses]
    #[arg(long, value_name = "US", value_parser = parse::delay, help_heading = CPU_TIER)]
    pub kv_offloading_secondary_latency: Option<Micros>,
    /// What happens to copies to a secondary tier that is slow
    #[arg(long, value_parser = OneOf::<BackpressureName>::new(), value_name = "NAME",
          default_value_t = defaults::KV_OFFLOADING_BACKPRESSURE, help_heading = CPU_TIER)]
    pub kv_offloading_backpressure: BackpressureName,
    /// Prefix caching (default; --no-enable-prefix-caching turns it off)
    #[arg(long, overrides_with = "no_enable_prefix_caching", help_heading = ENGINE)]
    pub enable_prefix_caching: bool,
    /// No reuse of KV blocks between requests
    #[arg(long, overrides_with = "enable_prefix_caching", help_heading = ENGINE)]
    pub no_enable_prefix_caching: bool,
    /// Chunked prefill (default; --no-enable-chunked-prefill turns it off)
    #[arg(long, overrides_with = "no_enable_chunked_prefill", help_heading = ENGINE)]
    pub enable_chunked_prefill: bool,
    /// Prefill of every prompt in one step
    #[arg(long, overrides_with = "enable_chunked_prefill", help_heading = ENGINE)]
    pub no_enable_chunked_prefill: bool,
    /// Asynchronous scheduling: a step is planned before the output of the previous one is known (default;
    /// --no-async-scheduling and --parity blis turn it off)
    #[arg(long, overrides_with = "no_async_scheduling", help_heading = ENGINE)]
    pub async_scheduling: bool,
    /// Each step is planned after the output of the previous one
    #[arg(long, overrides_with = "async_scheduling", help_heading = ENGINE)]
    pub no_async_scheduling: bool,
    /// Schedule a request only if its whole prompt fits the free KV blocks (default; --engine vllm-0.15 and
    /// --parity blis turn it off)
    #[arg(long, overrides_with = "no_scheduler_reserve_full_isl", help_heading = ENGINE)]
    pub scheduler_reserve_full_isl: bool,
    /// Schedule a request if its next chunk fits the free KV blocks
    #[arg(long, overrides_with = "scheduler_reserve_full_isl", help_heading = ENGINE)]
    pub no_scheduler_reserve_full_isl: bool,
    /// Serve LoRA adapters, those that requests name (default with --lora-config)
    #[arg(long, help_heading = ENGINE)]
    pub enable_lora: bool,
    /// File of LoRA adapters, their ranks, slots and times, YAML [default: every adapter of a request exists, with the
    /// maximum rank]
    #[arg(long, value_name = "FILE", help_heading = ENGINE)]
    pub lora_config: Option<PathBuf>,
    /// Slots for LoRA adapters on the GPU, ≥ 1: adapters of running requests [default: 1; none with --parity blis]
    #[arg(long, visible_alias = "lora-adapter-capacity", value_name = "N", value_parser = parse::adapters,
          help_heading = ENGINE)]
    pub max_loras: Option<u32>,
    /// LoRA adapters in the memory of the host, ≥ 1 [default: --max-loras]
    #[arg(long, value_name = "N", value_parser = parse::adapters, help_heading = ENGINE)]
    pub max_cpu_loras: Option<u32>,
    /// Rank for which slots of LoRA adapters are allocated: 1, 8, 16, 32, 64, 128, 256, 320 or 512 [default: 16]
    #[arg(long, value_name = "RANK", value_parser = parse::lora_rank, help_heading = ENGINE)]
    pub max_lora_rank: Option<u32>,
    /// Time before the first byte of a LoRA adapter is read from disk, µs ≥ 0 [default: 1500]
    #[arg(long, value_name = "US", value_parser = parse::from_0, help_heading = ENGINE)]
    pub lora_load_base_latency_us: Option<f64>,
    /// Bandwidth of LoRA adapters from disk, bytes/µs > 0 [default: 1000; 2000000 with --parity blis]
    #[arg(long, value_name = "N", value_parser = parse::above_0, help_heading = ENGINE)]
    pub lora_load_bandwidth_bytes_us: Option<f64>,
    /// Bytes of a LoRA adapter per rank, > 0 [default: matrices beside attention and dense MLPs of the model; 2000000 with
    /// --parity blis]
    #[arg(long, value_name = "N", value_parser = parse::above_0, help_heading = ENGINE)]
    pub lora_footprint_bytes_per_rank: Option<f64>,
    /// Scheduling policy: order of the waiting queue [default: fcfs]
    #[arg(long, value_parser = Names(Kind::Scheduling), value_name = "NAME", help_heading = ENGINE)]
    pub scheduler: Option<String>,
    /// Preemption policy: the victim when KV blocks run out [default: fcfs]
    #[arg(long, value_parser = Names(Kind::Preemption), value_name = "NAME", help_heading = ENGINE)]
    pub preemption_policy: Option<String>,
    /// --scheduler and --preemption-policy together, as in vLLM
    #[arg(long, value_parser = BuiltIns(Kind::Preemption), value_name = "NAME", help_heading = ENGINE,
          conflicts_with_all = ["scheduler", "preemption_policy"])]
    pub scheduling_policy: Option<String>,
    /// Reference where vLLM and BLIS differ: the real scheduler or the published simulator
    #[arg(long, value_parser = OneOf::<ParityName>::new(), value_name = "NAME", default_value_t = defaults::PARITY, help_heading = ENGINE)]
    pub parity: ParityName,
    /// Simulation of instances: two implementations with equal results
    #[arg(long, value_parser = OneOf::<SimulationName>::new(), value_name = "NAME", default_value_t = defaults::SIMULATION, hide = true)]
    pub simulation: SimulationName,
}

/// The service: instances, and the delays in front of them.
#[derive(Debug, Args)]
pub(super) struct ClusterFlags {
    /// Instances behind the router, 1 to 65536
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = parse::instances, help_heading = CLUSTER)]
    pub num_instances: u32,
    /// Delay from arrival to the admission decision, µs or with a unit
    #[arg(long, value_name = "US", default_value = "0", value_parser = parse::delay, help_heading = CLUSTER)]
    pub admission_latency: Micros,
    /// Delay from admission to the routing decision, µs or with a unit
    #[arg(long, value_name = "US", default_value = "0", value_parser = parse::delay, help_heading = CLUSTER)]
    pub routing_latency: Micros,
    /// Refresh interval of the load signals (queues, batches, KV use) of instances, µs or with a unit; 0 for
    /// fresh signals at every request
    #[arg(long, value_name = "US", default_value = "50000", value_parser = parse::interval, help_heading = CLUSTER)]
    pub snapshot_refresh_interval: Micros,
    /// Refresh interval of the router's view of prefix caches, µs or with a unit; 0 for a fresh view at every
    /// request
    #[arg(long, value_name = "US", default_value = "50000", value_parser = parse::interval, help_heading = CLUSTER)]
    pub cache_signal_delay: Micros,
    /// Choice among instances of equal score
    #[arg(long, value_parser = OneOf::<TieBreakName>::new(), value_name = "NAME", default_value_t = defaults::TIE_BREAK, help_heading = CLUSTER)]
    pub tie_break: TieBreakName,
    /// Further instances that differ from those of the flags, as in hardware=A100-SXM,tp=1,instances=2: model, hardware, tp,
    /// max-num-seqs, max-num-batched-tokens, instances, role, block-size, and with --autoscaler min, max, startup-time, start-mode; may be given several times.
    /// A request that names a model goes to instances of that model
    #[arg(long, value_name = "NAME=VALUE,…", value_parser = parse::group, help_heading = CLUSTER)]
    pub group: Vec<GroupSettings>,
    /// Nodes that replicas may be on, as in name=a,hardware=H100,gpus-per-node=8,max=4: also min, provisioning (the time
    /// that a node takes to come, as 5m), and price ($ per node and hour, of all pools or none); may be given several
    /// times. A replica takes the first node with room, one that finds none waits for a further node [default: always
    /// enough GPUs]
    #[arg(long, value_name = "NAME=VALUE,…", value_parser = parse::node_pool, help_heading = CLUSTER)]
    pub node_pool: Vec<NodePoolSettings>,
    /// Time without replicas after which a node goes, down to the min of its pool, s or with a unit [default: 600]
    #[arg(long, value_name = "S", value_parser = parse::seconds_from_0, help_heading = CLUSTER)]
    pub node_idle: Option<Micros>,
    #[command(flatten)]
    pub flow: FlowFlags,
    #[command(flatten)]
    pub disaggregation: DisaggregationFlags,
    #[command(flatten)]
    pub scaling: ScalingFlags,
}

/// The queue in front of routing.
#[derive(Debug, Args)]
pub(super) struct FlowFlags {
    /// Requests wait at the gateway, in bands by priority and in flows by tenant, while the service is full
    #[arg(long, help_heading = FLOW_CONTROL)]
    pub flow_control: bool,
    /// What tells that the service is full: a built-in detector, a script or a component [default: utilization; with
    /// --parity blis: never]
    #[arg(long, value_parser = Names(Kind::Saturation), value_name = "NAME", help_heading = FLOW_CONTROL)]
    pub saturation_detector: Option<String>,
    /// Waiting requests with which an instance is full, > 0, for utilization [default: 5]
    #[arg(long, value_name = "N", value_parser = parse::above_0, help_heading = FLOW_CONTROL)]
    pub queue_depth_threshold: Option<f64>,
    /// Share of used KV blocks with which an instance is full, above 0 and at most 1, for utilization [default: 0.8]
    #[arg(long, value_name = "X", value_parser = parse::share, help_heading = FLOW_CONTROL)]
    pub kv_cache_util_threshold: Option<f64>,
    /// Age of the load signals beyond which the service counts as full, µs or with a unit, for utilization; 0 for
    /// never [default: 200ms; with --parity blis: 0]
    #[arg(long, value_name = "US", value_parser = parse::interval, help_heading = FLOW_CONTROL)]
    pub metrics_staleness_threshold: Option<Micros>,
    /// Requests in flight with which an instance is full, > 0, for concurrency [default: 100]
    #[arg(long, value_name = "N", value_parser = parse::above_0, help_heading = FLOW_CONTROL)]
    pub max_concurrency: Option<f64>,
    /// What counts as in flight, for concurrency [default: requests]
    #[arg(long, value_parser = OneOf::<ConcurrencyModeName>::new(), value_name = "NAME", help_heading = FLOW_CONTROL)]
    pub concurrency_mode: Option<ConcurrencyModeName>,
    /// Prompt tokens in flight, not cached and before the first token, with which an instance is full, > 0, for
    /// concurrency in tokens and hybrid [default: 1000000]
    #[arg(long, value_name = "N", value_parser = parse::above_0, help_heading = FLOW_CONTROL)]
    pub max_token_concurrency: Option<f64>,
    /// Saturation from which on a band waits [default: static]
    #[arg(long, value_parser = Names(Kind::Ceilings), value_name = "NAME", help_heading = FLOW_CONTROL)]
    pub usage_limit_policy: Option<String>,
    /// The limit of static, or that of the lowest band of priority-holdback, above 0 and at most 1; with --parity
    /// blis, priority-holdback [default: 1]
    #[arg(long, value_name = "X", value_parser = parse::share, help_heading = FLOW_CONTROL)]
    pub usage_limit_threshold: Option<f64>,
    /// Tenant that is served next within a band [default: global-strict]
    #[arg(long, value_parser = Names(Kind::Fairness), value_name = "NAME", help_heading = FLOW_CONTROL)]
    pub fairness_policy: Option<String>,
    /// Weights of tenants for weighted, as in team-a=3,team-b=1; 1 for the others
    #[arg(long, value_name = "TENANT=WEIGHT,…", value_parser = parse::weights, help_heading = FLOW_CONTROL)]
    pub fairness_weights: Option<WeightList>,
    /// Order of the requests of a tenant; fifo and priority are BLIS's names for fcfs [default: fcfs]
    #[arg(long, value_parser = Names(Kind::Ordering), value_name = "NAME", help_heading = FLOW_CONTROL)]
    pub dispatch_order: Option<String>,
    /// Targets of TTFT for slo-deadline, as in critical=200ms,standard=1s
    #[arg(long, value_name = "[CLASS=]TIME,…", value_parser = parse::targets, help_heading = FLOW_CONTROL)]
    pub slo_targets: Option<TargetList>,
    /// Time after which a request leaves the queue unserved, µs or with a unit; 0 for never [default: 60s; with
    /// --parity blis: 0]
    #[arg(long, value_name = "US", value_parser = parse::interval, help_heading = FLOW_CONTROL)]
    pub request_ttl: Option<Micros>,
    /// Requests that the queue holds at most; 0 for no limit [default: 0]
    #[arg(long, value_name = "N", value_parser = parse::count_or_zero, help_heading = FLOW_CONTROL)]
    pub max_gateway_queue_depth: Option<u32>,
    /// Requests that a band holds at most; 0 for no limit [default: 5000; with --parity blis: 0]
    #[arg(long, value_name = "N", value_parser = parse::count_or_zero, help_heading = FLOW_CONTROL)]
    pub per_band_capacity: Option<u32>,
    /// Bytes of the requests in a band at most, 4 for each prompt token; 0 for no limit [default: 1000000000; with
    /// --parity blis: 0]
    #[arg(long, value_name = "N", value_parser = parse::bytes, help_heading = FLOW_CONTROL)]
    pub per_band_bytes: Option<u64>,
    /// A request that finds the queue full displaces one of lower priority below 0 (--parity blis only)
    #[arg(long, help_heading = FLOW_CONTROL)]
    pub queue_shedding: bool,
    /// Requests in flight of a priority below 0 are ended to make room for waiting ones of higher priority
    #[arg(long, help_heading = FLOW_CONTROL)]
    pub in_flight_eviction: bool,
    /// Request in flight that is ended by --in-flight-eviction [default: lowest-priority-newest]
    #[arg(long, value_parser = Names(Kind::Eviction), value_name = "NAME", help_heading = FLOW_CONTROL)]
    pub eviction_policy: Option<String>,
    /// Interval between attempts to dispatch a request, > 0, µs or with a unit [default: 1ms]
    #[arg(long, value_name = "US", value_parser = parse::interval_above_0, help_heading = FLOW_CONTROL)]
    pub dispatch_tick_interval: Option<Micros>,
}

/// Prefill apart from decode.
#[derive(Debug, Args)]
pub(super) struct DisaggregationFlags {
    /// Instances that prefill for others; the first ones
    #[arg(long, value_name = "N", value_parser = parse::instances_or_zero, help_heading = DISAGGREGATION)]
    pub prefill_instances: Option<u32>,
    /// Instances that decode, behind those
    #[arg(long, value_name = "N", value_parser = parse::instances_or_zero, help_heading = DISAGGREGATION)]
    pub decode_instances: Option<u32>,
    /// Instances that do both, behind those
    #[arg(long, value_name = "N", value_parser = parse::instances_or_zero, help_heading = DISAGGREGATION)]
    pub prefill_decode_instances: Option<u32>,
    /// Instances that encode images, audio and video, behind those
    #[arg(long, value_name = "N", value_parser = parse::instances_or_zero, help_heading = DISAGGREGATION)]
    pub encode_instances: Option<u32>,
    /// What the instances of --num-instances do; those of a --group have role=NAME
    #[arg(long, value_parser = OneOf::<RoleName>::new(), value_name = "NAME", help_heading = DISAGGREGATION)]
    pub role: Option<RoleName>,
    /// Tensor-parallel size of --prefill-instances [default: that of --tp]
    #[arg(long, value_name = "N", value_parser = parse::parallelism, help_heading = DISAGGREGATION)]
    pub prefill_tp: Option<u32>,
    /// Tensor-parallel size of --decode-instances [default: that of --tp]
    #[arg(long, value_name = "N", value_parser = parse::parallelism, help_heading = DISAGGREGATION)]
    pub decode_tp: Option<u32>,
    /// GPU of --prefill-instances [default: that of --hardware]
    #[arg(long, value_name = "GPU", value_parser = parse::name, help_heading = DISAGGREGATION)]
    pub prefill_hardware: Option<String>,
    /// GPU of --decode-instances [default: that of --hardware]
    #[arg(long, value_name = "GPU", value_parser = parse::name, help_heading = DISAGGREGATION)]
    pub decode_hardware: Option<String>,
    /// Latency model of --prefill-instances [default: that of --latency-model]
    #[arg(long, value_name = "NAME", value_parser = parse::name, help_heading = DISAGGREGATION)]
    pub prefill_latency_model: Option<String>,
    /// Latency model of --decode-instances [default: that of --latency-model]
    #[arg(long, value_name = "NAME", value_parser = parse::name, help_heading = DISAGGREGATION)]
    pub decode_latency_model: Option<String>,
    /// Maximum input plus output tokens of a request on --prefill-instances [default: that of --max-model-len]
    #[arg(long, value_name = "N", value_parser = parse::count, help_heading = DISAGGREGATION)]
    pub prefill_max_model_len: Option<u32>,
    /// Maximum input plus output tokens of a request on --decode-instances [default: that of --max-model-len]
    #[arg(long, value_name = "N", value_parser = parse::count, help_heading = DISAGGREGATION)]
    pub decode_max_model_len: Option<u32>,
    /// Filters in front of the scorers of instances that prefill [default: none, or those of the routing policy]
    #[arg(long, value_name = "NAME[:PARAM=VALUE…],…", value_parser = parse::filters, help_heading = DISAGGREGATION)]
    pub prefill_routing_filters: Option<FilterList>,
    /// Filters in front of the scorers of instances that decode [default: none, or those of the routing policy]
    #[arg(long, value_name = "NAME[:PARAM=VALUE…],…", value_parser = parse::filters, help_heading = DISAGGREGATION)]
    pub decode_routing_filters: Option<FilterList>,
    /// Filters in front of the scorers of instances that encode [default: none, or those of the routing policy]
    #[arg(long, value_name = "NAME[:PARAM=VALUE…],…", value_parser = parse::filters, help_heading = DISAGGREGATION)]
    pub encode_routing_filters: Option<FilterList>,
    /// Scorers by which an instance that prefills is chosen, with weights [default: the routing policy]
    #[arg(long, value_name = "NAME:WEIGHT,…", value_parser = parse::scorers, help_heading = DISAGGREGATION)]
    pub prefill_routing_scorers: Option<ScorerList>,
    /// Scorers by which an instance that decodes is chosen, with weights [default: the routing policy]
    #[arg(long, value_name = "NAME:WEIGHT,…", value_parser = parse::scorers, help_heading = DISAGGREGATION)]
    pub decode_routing_scorers: Option<ScorerList>,
    /// Scorers by which an instance that encodes is chosen, with weights [default: the routing policy]
    #[arg(long, value_name = "NAME:WEIGHT,…", value_parser = parse::scorers, help_heading = DISAGGREGATION)]
    pub encode_routing_scorers: Option<ScorerList>,
    /// Whether another instance than the one that decodes a request prefills it, and which: a built-in policy, or a plugin
    /// [default: that of --pd-decider]
    #[arg(long, value_parser = Names(Kind::Disaggregation), value_name = "NAME", help_heading = DISAGGREGATION)]
    pub disaggregation_policy: Option<String>,
    /// Requests that are prefilled on another instance than the one that decodes them [default: never]
    #[arg(long, value_parser = OneOf::<DeciderName>::new(), value_name = "NAME", help_heading = DISAGGREGATION)]
    pub pd_decider: Option<DeciderName>,
    /// Tokens of the prompt that are not cached on the decode instance, for prefix-threshold; 0 for never, with --parity blis
    /// as any other number [default: 16]
    #[arg(long, value_name = "N", value_parser = parse::count_or_zero, help_heading = DISAGGREGATION)]
    pub pd_prefix_threshold: Option<u32>,
    /// TTFT that requests prefilled elsewhere should have, µs or with a unit, for edpp [default: 1s]
    #[arg(long, value_name = "US", value_parser = parse::delay, help_heading = DISAGGREGATION)]
    pub pd_ttft_target: Option<Micros>,
    /// Prompt tokens that an instance computes per second, > 0, for edpp [default: 33821, of gpt-oss-120b on an H200]
    #[arg(long, value_name = "RATE", value_parser = parse::above_0, help_heading = DISAGGREGATION)]
    pub pd_prefill_rate: Option<f64>,
    /// Instance that is chosen first [default: decode-first]
    #[arg(long, value_parser = OneOf::<StageOrderName>::new(), value_name = "NAME", help_heading = DISAGGREGATION)]
    pub pd_stage_order: Option<StageOrderName>,
    /// Network between the instances: bandwidth of each GPU [default: rdma]
    #[arg(long, value_parser = OneOf::<TransferLinkName>::new(), value_name = "NAME", help_heading = DISAGGREGATION,
          conflicts_with = "pd_transfer_bandwidth")]
    pub pd_transfer_link: Option<TransferLinkName>,
    /// Bandwidth of the network card of each GPU, GB/s, above 0; with --parity blis of a transfer [default: that of
    /// --pd-transfer-link; with --parity blis: 25]
    #[arg(long, value_name = "RATE", value_parser = parse::above_0, help_heading = DISAGGREGATION)]
    pub pd_transfer_bandwidth: Option<f64>,
    /// Time before the first byte of a transfer, ms [default: 2; with --parity blis: 0.05]
    #[arg(long, value_name = "MS", value_parser = parse::from_0, help_heading = DISAGGREGATION)]
    pub pd_transfer_base_latency: Option<f64>,
    /// Transfers share the bandwidth, by their number when they begin (--parity blis only: otherwise they always share network
    /// cards)
    #[arg(long, help_heading = DISAGGREGATION)]
    pub pd_transfer_contention: bool,
    /// Time of the first transfer between two instances beside that, µs or with a unit [default: 200ms]
    #[arg(long, value_name = "US", value_parser = parse::delay, help_heading = DISAGGREGATION)]
    pub pd_handshake_latency: Option<Micros>,
    /// Time of a request or response between the sidecar and the instance that prefills or encodes, µs or with a unit [default: 1ms]
    #[arg(long, value_name = "US", value_parser = parse::delay, help_heading = DISAGGREGATION)]
    pub pd_hop_latency: Option<Micros>,
    /// Decode instances keep KV blocks of completed requests, and the prefill of the next turn of a session reads them instead of
    /// computing them, as vLLM's bidirectional_kv_xfer
    #[arg(long, help_heading = DISAGGREGATION)]
    pub pd_bidirectional: bool,
    /// Fewest tokens that a prefill reads from a decode instance, with --pd-bidirectional [default: 64, as vLLM's
    /// kv_recompute_threshold]
    #[arg(long, value_name = "N", value_parser = parse::count_or_zero, help_heading = DISAGGREGATION)]
    pub pd_recompute_threshold: Option<u32>,
    /// Time for which a decode instance keeps the blocks of a request that no other turn takes, µs or with a unit, with
    /// --pd-bidirectional [default: 480s, as vLLM's decoder_kv_blocks_ttl]
    #[arg(long, value_name = "US", value_parser = parse::delay, help_heading = DISAGGREGATION)]
    pub pd_decoder_kv_ttl: Option<Micros>,
    /// Requests that are encoded on --encode-instances first [default: never]
    #[arg(long, value_parser = OneOf::<EncodeDeciderName>::new(), value_name = "NAME", help_heading = DISAGGREGATION)]
    pub encode_decider: Option<EncodeDeciderName>,
    /// Tokens of images, audio and video that an instance encodes per second, above 0 [default: an estimate for the vision encoder of
    /// Qwen2.5-VL: GPUs × peak × mfu_prefill ÷ 5.5e9 operations, 80959 on an H100]
    #[arg(long, value_name = "RATE", value_parser = parse::above_0, help_heading = DISAGGREGATION)]
    pub encode_rate: Option<f64>,
    /// Time of each batch of an instance that encodes beside that, µs or with a unit [default: 5ms]
    #[arg(long, value_name = "US", value_parser = parse::delay, help_heading = DISAGGREGATION)]
    pub encode_base_latency: Option<Micros>,
}

/// Replicas that come and go.
#[derive(Debug, Args)]
pub(super) struct ScalingFlags {
    /// Scaling policy: the number of replicas follows the load; --num-instances is the number at the start. Its
    /// parameters: --policy-param scaling.NAME=VALUE [default: a fixed number of instances]
    #[arg(long, value_parser = Autoscalers, value_name = "NAME", help_heading = SCALING)]
    pub autoscaler: Option<String>,
    /// Fewest replicas, 0 to 65536; 0 needs --flow-control [default: 1]
    #[arg(long, value_name = "N", value_parser = parse::instances_or_zero, help_heading = SCALING)]
    pub min_replicas: Option<u32>,
    /// Most replicas, 1 to 65536 [default: 8]
    #[arg(long, value_name = "N", value_parser = parse::instances, help_heading = SCALING)]
    pub max_replicas: Option<u32>,
    /// Time between two scrapes of the metrics that the autoscaler reads, s or with a unit [default: 15]
    #[arg(long, value_name = "S", value_parser = parse::seconds_above_0, help_heading = SCALING)]
    pub scrape_interval: Option<Micros>,
    /// Time between two decisions of the autoscaler, s or with a unit [default: 15]
    #[arg(long, value_name = "S", value_parser = parse::seconds_above_0, help_heading = SCALING)]
    pub scaling_interval: Option<Micros>,
    /// Rules for more replicas, as in window=30s,100%/60s,4/60s: the smallest number that the policy asked for in the
    /// window counts, and in 60 s the larger of 100 % and 4 replicas are added (select=min: the smaller); or disabled
    /// [default: those of the policy]
    #[arg(long, value_name = "RULES", value_parser = parse::scaling_rules, help_heading = SCALING)]
    pub scale_up: Option<ScalingRules>,
    /// Rules for fewer replicas, likewise: the largest number of the window counts [default: those of the policy]
    #[arg(long, value_name = "RULES", value_parser = parse::scaling_rules, help_heading = SCALING)]
    pub scale_down: Option<ScalingRules>,
    /// Time without requests after which a service with --min-replicas 0 goes to zero, s or with a unit [default: 300]
    #[arg(long, value_name = "S", value_parser = parse::seconds_from_0, help_heading = SCALING)]
    pub cooldown_period: Option<Micros>,
    /// Time that a replica takes to start, as 135s, or phases, as in process=14s,weights=30s,compile=35s,warm-up=11s;
    /// wake=3s for one that sleeps; weights-bandwidth=2GB/s for the weights of a GPU over a bandwidth; gaussian(35s,5s) for a
    /// random time, with mean and standard deviation [default: process=14s,weights=30.3s,compile=35s,warm-up=11.4s,wake=3s]
    #[arg(long, value_name = "TIME|PHASE=TIME,…", value_parser = parse::start_times, help_heading = SCALING)]
    pub startup_time: Option<StartupSettings>,
    /// What is ready before a replica starts: cold (nothing), warm (the process), or hot:N (N replicas sleep in host
    /// memory, without a GPU) [default: cold]
    #[arg(long, value_name = "MODE", value_parser = parse::start_mode, help_heading = SCALING)]
    pub start_mode: Option<StartMode>,
    /// Replica that is removed first [default: newest]
    #[arg(long, value_parser = Names(Kind::Drain), value_name = "NAME", help_heading = SCALING)]
    pub drain_policy: Option<String>,
    /// Node of a replica that starts, with node pools [default: first-fit]
    #[arg(long, value_parser = Names(Kind::Placement), value_name = "NAME", help_heading = SCALING)]
    pub placement_policy: Option<String>,
}

/// Flags win over the bundle, the bundle over the defaults.
#[derive(Debug, Args)]
pub(super) struct PolicyFlags {
    /// Policy bundle, YAML; flags win over it
    #[arg(long, value_name = "FILE", help_heading = POLICIES)]
    pub policy_config: Option<PathBuf>,
    /// Admission policy [default: always-admit]
    #[arg(long, value_parser = Names(Kind::Admission), value_name = "NAME", help_heading = POLICIES)]
    pub admission_policy: Option<String>,
    /// Capacity of token-bucket, tokens > 0 [default: 10000]
    #[arg(long, value_name = "N", value_parser = parse::above_0, help_heading = POLICIES)]
    pub token_bucket_capacity: Option<f64>,
    /// Refill rate of token-bucket, tokens per second > 0 [default: 1000]
    #[arg(long, value_name = "R", value_parser = parse::above_0, help_heading = POLICIES)]
    pub token_bucket_refill_rate: Option<f64>,
    /// Routing policy: a built-in policy, a script or a component [default: round-robin]
    #[arg(long, value_parser = Names(Kind::Routing), value_name = "NAME", help_heading = POLICIES)]
    pub routing_policy: Option<String>,
    /// Filters in front of the scorers of weighted, in this order, with values of their parameters,
    /// as in prefix-cache-affinity:affinity=0.7,saturation: prefix-cache-affinity (affinity,
    /// peak-prefill, max-penalty-ms), saturation (queue-depth, kv-utilization, headroom), concurrency
    /// (max-concurrency, max-tokens, headroom, mode), or a script or component with a filter
    #[arg(long, value_name = "NAME[:PARAMETER=VALUE…],…", value_parser = parse::filters, help_heading = POLICIES)]
    pub routing_filters: Option<FilterList>,
    /// Scorers of weighted, each with a weight above 0: queue-depth, kv-utilization,
    /// load-balance, active-requests, running-requests, load-aware, vllm-dp, prefix-affinity,
    /// precise-prefix-cache, no-hit-lru, token-load, lora-affinity, precise-prefix-cache-share, random,
    /// session-affinity, predicted-latency, or a script or component with scores, as in mine.rhai:2
    /// [default: precise-prefix-cache:2,queue-depth:1,kv-utilization:1]
    #[arg(long, value_name = "NAME:WEIGHT,…", value_parser = parse::scorers, help_heading = POLICIES)]
    pub routing_scorers: Option<ScorerList>,
    /// Weight of the scorer lora-affinity of weighted, > 0, added to its other scorers
    #[arg(long, value_name = "WEIGHT", value_parser = parse::above_0, help_heading = POLICIES)]
    pub lora_scorer_weight: Option<f64>,
    /// Script or component that chooses among the scored instances of weighted [default: the best score]
    #[arg(long, value_name = "NAME", value_parser = parse::name, help_heading = POLICIES)]
    pub routing_picker: Option<String>,
    /// Weight of free KV blocks, in place of scorers, ≥ 0
    #[arg(long, value_name = "WEIGHT", value_parser = parse::from_0, conflicts_with_all = ["routing_scorers", "routing_filters", "routing_picker"],
          help_heading = POLICIES)]
    pub routing_cache_weight: Option<f64>,
    /// Weight of a low load, in place of scorers, ≥ 0
    #[arg(long, value_name = "WEIGHT", value_parser = parse::from_0, conflicts_with_all = ["routing_scorers", "routing_filters", "routing_picker"],
          help_heading = POLICIES)]
    pub routing_load_weight: Option<f64>,
    /// Priority policy, for schedulers that use priorities [default: class]
    #[arg(long, value_parser = Names(Kind::Priority), value_name = "NAME", help_heading = POLICIES)]
    pub priority_policy: Option<String>,
    /// Parameter of a policy, as routing.queue-depth=2; may be given several times. `blis plugin list` shows all
    #[arg(long, value_name = "KIND.NAME=VALUE", value_parser = parse::policy_param, help_heading = POLICIES)]
    pub policy_param: Vec<PolicyParam>,
    /// Folder with policies, searched before ./policies and the built-in ones; may be given several times
    #[arg(long, value_name = "FOLDER", help_heading = POLICIES)]
    pub policy_dir: Vec<PathBuf>,
    /// Allow native libraries as policies: they run unsandboxed, with your rights
    #[arg(long, help_heading = POLICIES)]
    pub allow_native: bool,
    /// Allow components as large as those with an interpreter inside (Python, JavaScript): compiling one may take a minute
    #[arg(long, help_heading = POLICIES)]
    pub allow_large_components: bool,
    /// Behaviour after the failure of a plugin during a run
    #[arg(long, value_parser = OneOf::<OnErrorName>::new(), value_name = "NAME", default_value_t = defaults::ON_PLUGIN_ERROR, help_heading = POLICIES)]
    pub on_plugin_error: OnErrorName,
}

/// The SLO targets.
#[derive(Debug, Args)]
pub(super) struct TargetFlags {
    /// TTFT target: 500ms for all classes, or by class, as critical=100ms,standard=1.5s. Requests without a
    /// class are in the class default
    #[arg(long, value_name = "CLASS=TIME,…", value_parser = parse::targets, help_heading = EVALUATION)]
    pub slo_ttft: Option<TargetList>,
    /// Target of the mean inter-token latency, likewise
    #[arg(long, value_name = "CLASS=TIME,…", value_parser = parse::targets, help_heading = EVALUATION)]
    pub slo_itl: Option<TargetList>,
    /// E2E target, likewise
    #[arg(long, value_name = "CLASS=TIME,…", value_parser = parse::targets, help_heading = EVALUATION)]
    pub slo_e2e: Option<TargetList>,
    #[command(flatten)]
    pub prices: PriceFlags,
    /// Energy of the GPUs from the bytes and products of every step: kWh, joules per output token. Calibrated on kernels of one
    /// H100 only; simulates every step by itself, which takes longer
    #[arg(long, help_heading = EVALUATION)]
    pub energy: bool,
}

#[derive(Debug, Args)]
pub(super) struct PriceFlags {
    /// Price list of GPUs, YAML: date, source, and dollars per GPU-hour; as examples/autoscaling/prices.yaml [default:
    /// no cost]
    #[arg(long, value_name = "FILE", help_heading = EVALUATION)]
    pub prices: Option<PathBuf>,
}

/// One score for a run.
#[derive(Debug, Args)]
pub(super) struct FitnessFlags {
    /// Weights of the fitness, as throughput:0.5,p99_ttft:0.5
    #[arg(long, value_name = "KEY:WEIGHT,…", help_heading = EVALUATION)]
    pub fitness_weights: Option<String>,
    /// Scale of the fitness [default: ratio]
    #[arg(long, value_parser = OneOf::<FitnessScaleName>::new(), value_name = "NAME", requires = "fitness_weights", help_heading = EVALUATION)]
    pub fitness_scale: Option<FitnessScaleName>,
}

/// The evaluation of a run.
#[derive(Debug, Args)]
pub(super) struct EvaluationFlags {
    #[command(flatten)]
    pub targets: TargetFlags,
    #[command(flatten)]
    pub fitness: FitnessFlags,
    /// Baseline of the fitness: routing policy or bundle [default: round-robin]
    #[arg(long, value_name = "NAME|FILE", requires = "fitness_weights", help_heading = EVALUATION)]
    pub baseline: Option<String>,
    /// Recorded decisions; needs --trace-path or --summarize-trace
    #[arg(long, value_parser = OneOf::<TraceLevelName>::new(), value_name = "LEVEL", default_value_t = defaults::TRACE_LEVEL, help_heading = EVALUATION)]
    pub trace_level: TraceLevelName,
    /// File for recorded decisions, JSON lines, gzip-compressed if its name ends with .gz; for `blis decisions`
    #[arg(long, value_name = "FILE", help_heading = EVALUATION)]
    pub trace_path: Option<PathBuf>,
    /// Best instances to list with each routing decision in the file of --trace-path, with their scores; 0
    /// for none
    #[arg(long, value_name = "K", default_value_t = 0, value_parser = parse::count_or_zero, help_heading = EVALUATION)]
    pub counterfactual_k: u32,
    /// Summary of the recorded decisions in the results
    #[arg(long, help_heading = EVALUATION)]
    pub summarize_trace: bool,
    #[command(flatten)]
    pub regret: RegretFlags,
}

#[derive(Debug, Args)]
pub(super) struct WorkloadArgs {
    /// Workload: a generated one, or traces [default: distribution; traces with --workload-trace]
    #[arg(long, value_parser = OneOf::<WorkloadName>::new(), value_name = "NAME", help_heading = WORKLOAD)]
    pub workload: Option<WorkloadName>,
    /// Workload specification, YAML (clients, cohorts, sessions, changing rates), or a ServeGen folder. --seed,
    /// --horizon, --num-requests and --timeout win over it
    #[arg(long, value_name = "FILE", help_heading = WORKLOAD)]
    pub workload_spec: Option<PathBuf>,
    /// Request trace, plain or gzip-compressed; - for standard input
    #[arg(long, visible_alias = "workload-traces-filepath", value_name = "FILE", help_heading = WORKLOAD)]
    pub workload_trace: Option<PathBuf>,
    /// Format of the trace [default: auto]
    #[arg(long, value_parser = OneOf::<TraceFormatName>::new(), value_name = "NAME", help_heading = WORKLOAD)]
    pub trace_format: Option<TraceFormatName>,
    /// Tokens of a hash id of the trace, ≥ 1 [default: mooncake 512; bailian 16; vllm-vcr as recorded]
    #[arg(long, visible_alias = "hash-block-size", value_name = "N", value_parser = parse::nonzero,
          help_heading = WORKLOAD)]
    pub mooncake_block_size: Option<NonZeroU32>,
    /// Leave out broken lines and count them, instead of stopping at the first
    #[arg(long, help_heading = WORKLOAD)]
    pub skip_bad_lines: bool,
    #[command(flatten)]
    pub part: TracePartFlags,
    /// Arrival of the later rounds of recorded sessions (closed-loop: mooncake and trace-v2) [default: fixed]
    #[arg(long, value_parser = OneOf::<SessionMode>::new(), value_name = "MODE", help_heading = WORKLOAD)]
    pub session_mode: Option<SessionMode>,
    /// Deadline of requests after their arrival, s or with a unit; negative for none [default: 300; none with
    /// a trace; that of the specification]
    #[arg(long, value_name = "S", value_parser = parse::timeout,
          help_heading = WORKLOAD)]
    pub timeout: Option<f64>,
    #[command(flatten)]
    pub synthetic: SyntheticFlags,
}

/// The part of a trace to simulate, and its speed.
#[derive(Debug, Args)]
pub(super) struct TracePartFlags {
    /// Start within the trace, s or with a unit: earlier requests are left out, and time 0 is there [default: 0]
    #[arg(long, value_name = "S", value_parser = parse::seconds_from_0, help_heading = WORKLOAD)]
    pub start: Option<Micros>,
    /// Duration from --start on, s > 0 or with a unit [default: to the end of the trace]
    #[arg(long, value_name = "S", value_parser = parse::seconds_above_0, help_heading = WORKLOAD)]
    pub duration: Option<Micros>,
    /// Factor of all arrival times of the trace, 0.000001 to 1000000: 2 halves the rate [default: 1]
    #[arg(long, value_name = "X", value_parser = parse::scale, help_heading = WORKLOAD)]
    pub time_scale: Option<f64>,
    /// Passes over the trace, one after the other. Shared prefixes are shared across passes; sessions are new
    /// in every pass [default: 1]
    #[arg(long, value_name = "N", value_parser = parse::nonzero, help_heading = WORKLOAD)]
    pub repeat: Option<NonZeroU32>,
    /// Spread requests with equal timestamps evenly over this time, ms or with a unit, never past the next
    /// timestamp: for traces with coarse clocks, as 3000 for mooncake
    #[arg(long, value_name = "MS", value_parser = parse::bins, help_heading = WORKLOAD)]
    pub spread_bins: Option<Micros>,
    /// Maximum requests of the trace, ≥ 1 [default: all]
    #[arg(long, value_name = "N", value_parser = parse::count, help_heading = WORKLOAD)]
    pub max_requests: Option<u32>,
}

#[derive(Debug, Args)]
pub(super) struct SyntheticFlags {
    /// Request rate, requests per second, 0.000001 to 1000000; for a trace, only if it has no arrivals [default: 1]
    #[arg(long, value_name = "R", value_parser = parse::rate, help_heading = SYNTHETIC)]
    pub rate: Option<f64>,
    /// Closed loop in place of --rate: users with one request at a time each
    #[arg(long, value_name = "N", value_parser = parse::users, conflicts_with = "rate", help_heading = SYNTHETIC)]
    pub concurrency: Option<u32>,
    /// Think time of users (--concurrency), ms ≥ 0 or with a unit [default: 0]
    #[arg(long, value_name = "MS", value_parser = parse::think_time, requires = "concurrency",
          help_heading = SYNTHETIC)]
    pub think_time_ms: Option<Micros>,
    /// Inter-arrival times [default: poisson; with --parity blis: constant]
    #[arg(long, value_parser = OneOf::<ArrivalName>::new(), value_name = "NAME", help_heading = SYNTHETIC)]
    pub arrival_process: Option<ArrivalName>,
    /// Number of requests; 0 for those that arrive before --horizon [default: 100; 0 in closed
    /// loop with a horizon; that of the specification]
    #[arg(long, visible_alias = "max-prompts", value_name = "N", value_parser = parse::count_or_zero,
          help_heading = SYNTHETIC)]
    pub num_requests: Option<u32>,
    /// Mean input length, tokens ≥ 1 [default: 512]
    #[arg(long, value_name = "N", value_parser = parse::count, help_heading = SYNTHETIC)]
    pub prompt_tokens: Option<u32>,
    /// Standard deviation of the input length, tokens ≥ 0 [default: 256]
    #[arg(long, value_name = "N", value_parser = parse::count_or_zero, help_heading = SYNTHETIC)]
    pub prompt_tokens_stdev: Option<u32>,
    /// Minimum input length, tokens ≥ 1 [default: 2]
    #[arg(long, value_name = "N", value_parser = parse::count, help_heading = SYNTHETIC)]
    pub prompt_tokens_min: Option<u32>,
    /// Maximum input length, tokens ≥ 1 [default: 7000]
    #[arg(long, value_name = "N", value_parser = parse::count, help_heading = SYNTHETIC)]
    pub prompt_tokens_max: Option<u32>,
    /// Mean output length, tokens ≥ 1 [default: 512]
    #[arg(long, value_name = "N", value_parser = parse::count, help_heading = SYNTHETIC)]
    pub output_tokens: Option<u32>,
    /// Standard deviation of the output length, tokens ≥ 0 [default: 256]
    #[arg(long, value_name = "N", value_parser = parse::count_or_zero, help_heading = SYNTHETIC)]
    pub output_tokens_stdev: Option<u32>,
    /// Minimum output length, tokens ≥ 1 [default: 2]
    #[arg(long, value_name = "N", value_parser = parse::count, help_heading = SYNTHETIC)]
    pub output_tokens_min: Option<u32>,
    /// Maximum output length, tokens ≥ 1 [default: 7000]
    #[arg(long, value_name = "N", value_parser = parse::count, help_heading = SYNTHETIC)]
    pub output_tokens_max: Option<u32>,
    /// Shared prefix of all prompts, tokens ≥ 0, in addition to their own [default: 0]
    #[arg(long, value_name = "N", value_parser = parse::count_or_zero, help_heading = SYNTHETIC)]
    pub prefix_tokens: Option<u32>,
}

#[derive(Debug, Args)]
pub(super) struct SimulationArgs {
    /// Seed of all random draws. A specification or the header of a replayed trace may have another default
    #[arg(long, value_name = "N", default_value_t = defaults::SEED, value_parser = parse::seed, help_heading = SIMULATION)]
    pub seed: u64,
    /// End of the simulation, µs ≥ 1 or with a unit, as 10s [default: the end of the last request; a replay
    /// with --parity blis: twice the last arrival]
    #[arg(long, value_name = "US", value_parser = parse::horizon, help_heading = SIMULATION)]
    pub horizon: Option<Micros>,
    /// Time from the start, s or with a unit, whose requests are simulated and are in no figure of requests
    /// (steps, queue length and pooled inter-token latencies are those of the whole run) [default: 0]
    #[arg(long, value_name = "SECONDS", value_parser = parse::seconds_from_0, help_heading = SIMULATION)]
    pub warmup: Option<Micros>,
}

#[derive(Debug, Args)]
pub(super) struct OutputFlags {
    /// Configuration file, YAML, as --explain-config prints it; flags win over it
    #[arg(long, value_name = "FILE", help_heading = SIMULATION)]
    pub config: Option<PathBuf>,
    /// Print the whole configuration as YAML with the source of each value, and simulate nothing
    #[arg(long, help_heading = OUTPUT)]
    pub explain_config: bool,
    /// Log level of messages on standard error
    #[arg(long, value_enum, value_name = "LEVEL", default_value_t = LogLevel::Warn, help_heading = OUTPUT)]
    pub log: LogLevel,
    /// Form of the output; auto is text on a terminal, JSON elsewhere
    #[arg(long, value_enum, value_name = "FORM", default_value_t = OutputForm::Auto, help_heading = OUTPUT)]
    pub output: OutputForm,
    /// No progress bar
    #[arg(long, help_heading = OUTPUT)]
    pub no_progress: bool,
    /// A page to look at, HTML: one file that needs no network, with charts, and a table behind every chart. Of one run:
    /// the service over time, latencies by class and tenant, stages, the slowest requests
    #[arg(long, value_name = "FILE.html", help_heading = OUTPUT)]
    pub report: Option<PathBuf>,
}

pub(super) const REGRET: &str = "Counterfactual regret";

/// The sampling of decisions, and their alternatives.
#[derive(Debug, Args)]
pub(super) struct RegretFlags {
    /// Regret: force sampled decisions to other outcomes, and compare
    #[arg(long, value_parser = OneOf::<RegretName>::new(), value_name = "KIND", default_value_t = defaults::REGRET, help_heading = REGRET)]
    pub regret: RegretName,
    /// Sampled routing decisions, ≥ 1: half of them at random, a quarter from requests that missed an SLO
    /// target (without targets: from the slowest), a quarter from those with the widest score margins. A
    /// quarter as many of admission, and of scheduling, each
    #[arg(long, value_name = "N", default_value_t = defaults::REGRET_SAMPLES, value_parser = parse::count, help_heading = REGRET)]
    pub regret_samples: u32,
    /// Alternative instances for each routing decision, ≥ 1: the one with the longest cached prefix, the least
    /// loaded one, then by score
    #[arg(long, value_name = "K", default_value_t = defaults::REGRET_ALTERNATIVES, value_parser = parse::count, help_heading = REGRET)]
    pub regret_alternatives: u32,
    /// Window after a decision in which its consequences count, s or with a unit [default: twice the mean E2E,
    /// at least 1]
    #[arg(long, value_name = "S", value_parser = parse::seconds_above_0, help_heading = REGRET)]
    pub regret_window: Option<Micros>,
    /// File for the sampled decisions with their signals and all branches, JSON lines
    #[arg(long, value_name = "FILE", help_heading = REGRET)]
    pub regret_path: Option<PathBuf>,
}

/// Parses any text as the name of a policy: what is not built in may be a plugin.
#[derive(Clone, Debug)]
pub(super) struct Names(Kind);

impl TypedValueParser for Names {
    type Value = String;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<Self::Value, clap::Error> {
        NonEmptyStringValueParser::new().parse_ref(command, arg, value)
    }

    /// The built-in names, for help.
    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(possible_values(self.0)))
    }
}

/// Parses names of built-in policies only.
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

/// Parses any text as the name of an autoscaler, which is looked up where its parameters are known.
#[derive(Clone, Debug)]
pub(super) struct Autoscalers;

impl TypedValueParser for Autoscalers {
    type Value = String;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<Self::Value, clap::Error> {
        NonEmptyStringValueParser::new().parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(ScalingRow::all().iter().map(|row| PossibleValue::new(row.name).help(row.about))))
    }
}

/// The built-in policies of `kind`, for help.
fn possible_values(kind: Kind) -> impl Iterator<Item = PossibleValue> {
    BuiltIn::of(kind).map(|row| PossibleValue::new(row.name).help(row.about))
}

/// Parses the values of a closed set.
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

/// The values of a closed set, for help.
fn choices<T: NamedChoice>() -> impl Iterator<Item = PossibleValue> {
    T::ALL.iter().map(|choice| PossibleValue::new(choice.name()).help(choice.about()))
}
