//! From raw flags to a run that makes sense: defaults are filled in, contradictions refused.
//!
//! Everything that can be known to be wrong without opening a file is found here, so that a
//! mistake costs no simulation. The policy bundle is the one file that is read: flags win over it.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use blis_sim::instance::{InstanceConfig, Preemption, Scheduler};
use blis_sim::policy::Classes;
use blis_sim::semantics::Semantics;
use blis_sim::units::Micros;
use tracing::level_filters::LevelFilter;

use super::args::{
    ArrivalName, ClusterFlags, CompareArgs, DeploymentFlags, EngineFlags, EngineName, EvaluationFlags, ExportFlags,
    FitnessFlags, FitnessScaleName, InstanceArgs, OnErrorName, OutputForm, ParityName, PolicyFlags, PolicyParam,
    ReplayArgs, RunArgs, SessionFlags, SessionMode, SimulationArgs, SyntheticFlags, TargetFlags, TargetList,
    TieBreakName, TraceFormatName, TraceLevelName, TracePartFlags, WorkloadArgs, WorkloadName,
};
use super::catalog::Catalog;
use super::error::Failure;
use super::given::Given;
use super::judge::Leash;
use super::regret::RegretSettings;
use blis_config::policy::{Bundle, Choices, Given as Parameter, PolicySettings, Source, Sourced};
use blis_config::{Deployment, DeploymentArgs, LatencyKind};
use blis_eval::{FitnessScale, FitnessWeights};
use blis_plugin::Kind;
use blis_plugin::incidents::OnError;
use blis_report::{Export, ExportFormat, check_target};
use blis_workload::Window;
use blis_workload::distribution::{ArrivalProcess, DistributionSpec, LengthSpec, SpecError};
use blis_workload::spec::presets::Preset;
use blis_workload::spec::{Arrival, Client, LONGEST, Lengths, Load, Prefix, ServeGenReading, Spec};
use blis_workload::trace_v2::{ThinkTime, recorded_seed};

/// A simulation, ready to be set up.
#[derive(Clone, Debug)]
pub(super) struct RunConfig {
    pub deployment: DeploymentArgs,
    pub engine: EngineConfig,
    pub cluster: ClusterSettings,
    pub evaluation: Evaluation,
    /// What the flags say of policies.
    pub choices: Choices,
    /// The file of `--policy-config`.
    pub bundle: Option<Bundle>,
    /// Where policies that are not built in come from.
    pub catalog: Arc<Catalog>,
    pub on_plugin_error: OnError,
    /// Holds simulations that must not run for ever.
    pub leash: Option<Leash>,
    pub workload: WorkloadConfig,
    pub seed: u64,
    /// [`Micros::MAX`] for none.
    pub horizon: Micros,
    pub output: OutputConfig,
    /// What the user may not expect of all this: (what, what to do).
    pub warnings: Vec<(String, String)>,
    /// Print all this instead of simulating it.
    pub explain: bool,
    /// Which of it the user asked for.
    pub given: Given,
}

/// The service in front of the instances.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ClusterSettings {
    pub num_instances: u32,
    pub admission_latency: Micros,
    pub routing_latency: Micros,
    /// Age at which the periodic signals are read again; 0: for every request.
    pub snapshot_refresh_interval: Micros,
    /// Age at which the contents of prefix caches are read again; 0: for every request.
    pub cache_signal_delay: Micros,
    pub tie_break: TieBreakName,
    pub policies: PolicySettings,
    /// By class; `default` is the class of requests without one. Those of flags: they win over those
    /// of a trace, target by target.
    pub slo_targets: BTreeMap<String, SloTargets>,
}

/// Latencies a class should keep to.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct SloTargets {
    pub ttft: Option<Sourced<Micros>>,
    pub itl: Option<Sourced<Micros>>,
    pub e2e: Option<Sourced<Micros>>,
}

/// How the run is judged and recorded.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Evaluation {
    /// `None`: no fitness is computed.
    pub fitness: Option<FitnessWeights>,
    /// A routing policy or the path of a bundle, as written.
    pub baseline: Option<String>,
    pub trace_level: TraceLevelName,
    /// File for every decision.
    pub trace_path: Option<PathBuf>,
    /// Other instances kept with a routing decision.
    pub counterfactual_k: u32,
    pub summarize_trace: bool,
    pub regret: RegretSettings,
}

/// How the instance schedules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EngineConfig {
    pub max_num_seqs: u32,
    pub max_num_batched_tokens: u32,
    pub long_prefill_token_threshold: u32,
    pub block_size: u32,
    pub enable_prefix_caching: bool,
    pub enable_chunked_prefill: bool,
    pub async_scheduling: bool,
    pub reserve_full_prompt: bool,
    pub scheduler: Scheduler,
    pub preemption: Preemption,
    pub semantics: Semantics,
    pub engine: EngineName,
}

/// Where requests come from.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum WorkloadConfig {
    Synthetic(SyntheticConfig),
    Trace(TraceConfig),
    Specified(SpecConfig),
    /// A header and its requests, as `blis replay` takes them.
    Recorded {
        header: PathBuf,
        data: PathBuf,
        skip_bad_lines: bool,
        part: TracePart,
        /// Sessions wait for their answers; within, for how long, if not as the trace says.
        closed_loop: Option<Option<ThinkTime>>,
    },
}

/// Requests drawn from distributions.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SyntheticConfig {
    /// `distribution` or the preset's name.
    pub name: &'static str,
    pub spec: DistributionSpec,
    /// Whether the deadline was not asked for.
    pub timeout_is_default: bool,
}

/// Requests of several clients.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SpecConfig {
    pub origin: SpecOrigin,
    pub spec: Arc<Spec>,
    /// At most so many.
    pub num_requests: Option<u64>,
    /// In place of what its clients say; `Some(None)` for never.
    pub timeout: Option<Option<Micros>>,
}

/// Where a specification is from.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum SpecOrigin {
    /// The file of `--workload-spec`.
    File(PathBuf),
    /// A workload with a name.
    Named(Preset),
    /// So many users in closed loop, with the lengths of a workload with a name.
    Users { name: &'static str, count: u32, think_time: Micros, lengths: DistributionSpec },
}

/// Which part of a trace, and how fast.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct TracePart {
    pub window: Window,
    /// At most so many.
    pub max_requests: Option<u64>,
}

/// Requests from a file.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TraceConfig {
    pub path: PathBuf,
    pub format: TraceFormatName,
    /// Tokens behind one hash id, if not the usual number.
    pub mooncake_block_size: Option<NonZeroU32>,
    pub skip_bad_lines: bool,
    pub part: TracePart,
    /// Given to requests that bring no deadline; `None`: they wait for ever.
    pub timeout: Option<Micros>,
    /// Sessions wait for their answers.
    pub closed_loop: bool,
}

/// What goes where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OutputConfig {
    pub form: OutputForm,
    pub metrics_path: Option<PathBuf>,
    pub results_path: Option<PathBuf>,
    pub exports: Vec<Export>,
    pub progress: bool,
    pub log: LevelFilter,
}

impl RunConfig {
    /// Of `blis run`.
    pub(super) fn from_run(args: RunArgs) -> Result<Self, Failure> {
        let workload = workload(args.workload, &args.simulation, args.instance.engine.parity)?;
        let output = output(&args.simulation, args.metrics_path, None, args.export)?;
        let evaluation = Evaluation::new(&args.evaluation)?;
        let service = (args.instance, args.cluster, args.policies, &args.evaluation.targets, evaluation);
        Self::new(args.given, service, workload, &args.simulation, output)
    }

    /// What all contestants of `blis compare` have in common.
    pub(super) fn from_compare(args: CompareArgs) -> Result<Self, Failure> {
        let routing = given([
            (args.policies.routing_policy.is_some(), "--routing-policy"),
            (args.policies.routing_scorers.is_some(), "--routing-scorers"),
            (args.policies.routing_cache_weight.is_some(), "--routing-cache-weight"),
            (args.policies.routing_load_weight.is_some(), "--routing-load-weight"),
            (args.policies.policy_param.iter().any(|param| param.kind == Kind::Routing), "--policy-param routing.…"),
        ])
        .next();
        if let Some(flag) = routing {
            return Err(Failure::usage(format_args!("`{flag}` cannot be used with `blis compare`"))
                .hint("the contestants say how requests are routed"));
        }
        let workload = workload(args.workload, &args.simulation, args.instance.engine.parity)?;
        let output = output(&args.simulation, None, None, ExportFlags::default())?;
        let evaluation = Evaluation { fitness: fitness(&args.fitness)?, ..Evaluation::default() };
        let service = (args.instance, args.cluster, args.policies, &args.targets, evaluation);
        Self::new(args.given, service, workload, &args.simulation, output)
    }

    /// The same under another seed.
    pub(super) fn with_seed(&self, seed: u64) -> Self {
        let mut config = Self { seed, ..self.clone() };
        if let WorkloadConfig::Synthetic(synthetic) = &mut config.workload {
            synthetic.spec.seed = seed;
        }
        config
    }

    /// The same with the requests of `spec`, a scenario's own.
    pub(super) fn with_spec(self, name: &str, spec: Spec) -> Self {
        let num_requests = match &self.workload {
            WorkloadConfig::Synthetic(synthetic) if self.given.has("num_requests") => synthetic.spec.num_requests,
            _ => spec.num_requests,
        };
        let horizon = if self.given.has("horizon") { self.horizon } else { spec.horizon.unwrap_or(self.horizon) };
        let origin = SpecOrigin::File(PathBuf::from(name));
        let workload =
            WorkloadConfig::Specified(SpecConfig { origin, spec: Arc::new(spec), num_requests, timeout: None });
        Self { workload, horizon, ..self }
    }

    /// Of `blis replay`.
    pub(super) fn from_replay(args: ReplayArgs) -> Result<Self, Failure> {
        let workload = WorkloadConfig::Recorded {
            header: args.trace_header,
            data: args.trace_data,
            skip_bad_lines: args.skip_bad_lines,
            part: args.part.part(),
            closed_loop: closed_loop(&args.sessions, &args.part)?,
        };
        let output = output(&args.simulation, args.metrics_path, args.results_path, args.export)?;
        let evaluation = Evaluation::new(&args.evaluation)?;
        let service = (args.instance, args.cluster, args.policies, &args.evaluation.targets, evaluation);
        Self::new(args.given, service, workload, &args.simulation, output)
    }

    fn new(
        given: Given,
        (instance, cluster, policies, targets, evaluation): (
            InstanceArgs,
            ClusterFlags,
            PolicyFlags,
            &TargetFlags,
            Evaluation,
        ),
        workload: WorkloadConfig,
        simulation: &SimulationArgs,
        output: OutputConfig,
    ) -> Result<Self, Failure> {
        let block_size = instance.deployment.block_size_in_tokens;
        let semantics = instance.engine.parity.into();
        let bundle = policies.policy_config.as_deref().map(Bundle::load).transpose().map_err(Failure::usage)?;
        let choices = choices(&policies, &instance.engine, &instance.deployment);
        let catalog = Arc::new(Catalog::new(&policies));
        let on_plugin_error = policies.on_plugin_error.into();
        let policies = PolicySettings::choose(&choices, bundle.as_ref(), &*catalog).map_err(Failure::usage)?;
        let (policies, mut warnings) = as_in_blis(policies, instance.engine.parity.into());
        let (mut seed, mut horizon) = (simulation.seed, simulation.horizon);
        if let WorkloadConfig::Specified(SpecConfig { spec, .. }) = &workload {
            warnings.extend(spec.warnings.iter().cloned());
            seed = spec.seed.filter(|_| !given.has("seed")).unwrap_or(seed);
            horizon = horizon.or(spec.horizon);
        }
        if let (WorkloadConfig::Recorded { header, .. }, false) = (&workload, given.has("seed")) {
            // What was drawn under the seed of the recording is drawn again: ties in routing, above all.
            seed = recorded_seed(header).unwrap_or(seed);
        }
        check_apart(evaluation.trace_path.as_deref(), &output)?;
        Ok(Self {
            deployment: deployment(instance.deployment, semantics),
            engine: EngineConfig::new(&instance.engine, block_size, &policies),
            cluster: ClusterSettings::new(&cluster, policies, targets),
            evaluation,
            warnings,
            choices,
            bundle,
            catalog,
            on_plugin_error,
            leash: None,
            workload,
            seed,
            horizon: horizon.unwrap_or(Micros::MAX),
            output,
            explain: simulation.explain_config,
            given,
        })
    }
}

fn output(
    simulation: &SimulationArgs,
    metrics_path: Option<PathBuf>,
    results_path: Option<PathBuf>,
    ExportFlags { export: mut exports, trace_output }: ExportFlags,
) -> Result<OutputConfig, Failure> {
    exports.extend(trace_output.map(|path| Export { format: ExportFormat::TraceV2, path }));
    check_targets(metrics_path.as_deref(), results_path.as_deref())?;
    check_exports(&exports, [metrics_path.as_deref(), results_path.as_deref()])?;
    Ok(OutputConfig {
        form: simulation.output,
        metrics_path,
        results_path,
        exports,
        progress: !simulation.no_progress,
        log: simulation.log.into(),
    })
}

/// What the flags say of policies.
fn choices(flags: &PolicyFlags, engine: &EngineFlags, deployment: &DeploymentFlags) -> Choices {
    let both = given_as("--scheduling-policy", engine.scheduling_policy.clone());
    let scheduler =
        both.clone().map(|both| both.map(|name| if name == "priority" { "priority-fcfs".into() } else { name }));
    let names = [
        (Kind::Admission, given_as("--admission-policy", flags.admission_policy.clone())),
        (Kind::Routing, given_as("--routing-policy", flags.routing_policy.clone())),
        (Kind::Priority, given_as("--priority-policy", flags.priority_policy.clone())),
        (Kind::Scheduling, given_as("--scheduler", engine.scheduler.clone()).or(scheduler)),
        (Kind::Preemption, given_as("--preemption-policy", engine.preemption_policy.clone()).or(both)),
        (Kind::Latency, given_as("--latency-model", deployment.latency_model.clone())),
    ];
    let parameter = |PolicyParam { kind, name, value }: &PolicyParam| Parameter {
        kind: *kind,
        name: name.clone(),
        value: Sourced::flag("--policy-param", *value),
        key: None,
    };
    let scorers = flags.routing_scorers.as_ref();
    let mut choices = Choices {
        policies: names.into_iter().filter_map(|(kind, name)| Some((kind, name?))).collect(),
        parameters: flags.policy_param.iter().map(parameter).collect(),
        scorers: scorers.map(|list| list.0.iter().map(|&one| Sourced::flag("--routing-scorers", one)).collect()),
        ..Choices::default()
    };
    choices.set("token_bucket_capacity", given_as("--token-bucket-capacity", flags.token_bucket_capacity));
    choices.set("token_bucket_refill_rate", given_as("--token-bucket-refill-rate", flags.token_bucket_refill_rate));
    choices.set("cache_weight", given_as("--routing-cache-weight", flags.routing_cache_weight));
    choices.set("load_weight", given_as("--routing-load-weight", flags.routing_load_weight));
    choices
}

/// `policies` as `semantics` has them, and what is to be said of that: BLIS accepts a bundle's
/// priority policy and goes by class all the same.
pub(super) fn as_in_blis(
    mut policies: PolicySettings,
    semantics: Semantics,
) -> (PolicySettings, Vec<(String, String)>) {
    let used = policies.used(Kind::Priority).filter(|used| used.built_in.is_some() && used.name() != "class");
    let spot = match used.map(|used| &used.source) {
        Some(Source::File(spot)) if semantics == Semantics::BLIS => spot.clone(),
        _ => return (policies, Vec::new()),
    };
    let name = policies.name(Kind::Priority);
    let what = format!("{spot}: the priority policy `{name}` has no effect with `--parity blis`");
    let hint = format!("BLIS goes by class, whatever a bundle says; `--priority-policy {name}` has an effect");
    policies.reset(Kind::Priority, Source::Told(format!("--parity blis ignores {spot}").into()));
    (policies, vec![(what, hint)])
}

fn given_as<T>(flag: &'static str, value: Option<T>) -> Option<Sourced<T>> {
    value.map(|value| Sourced::flag(flag, value))
}

impl ClusterSettings {
    fn new(flags: &ClusterFlags, policies: PolicySettings, targets: &TargetFlags) -> Self {
        Self {
            num_instances: flags.num_instances,
            admission_latency: flags.admission_latency,
            routing_latency: flags.routing_latency,
            snapshot_refresh_interval: flags.snapshot_refresh_interval,
            cache_signal_delay: flags.cache_signal_delay,
            tie_break: flags.tie_break,
            policies,
            slo_targets: slo_targets(targets),
        }
    }
}

fn slo_targets(flags: &TargetFlags) -> BTreeMap<String, SloTargets> {
    let mut targets: BTreeMap<String, SloTargets> = BTreeMap::new();
    let mut set = |flag, list: &Option<TargetList>, field: fn(&mut SloTargets) -> &mut Option<Sourced<Micros>>| {
        for (class, target) in list.iter().flat_map(|list| &list.0) {
            *field(targets.entry(class.clone()).or_default()) = Some(Sourced::flag(flag, *target));
        }
    };
    set("--slo-ttft", &flags.slo_ttft, |targets| &mut targets.ttft);
    set("--slo-itl", &flags.slo_itl, |targets| &mut targets.itl);
    set("--slo-e2e", &flags.slo_e2e, |targets| &mut targets.e2e);
    targets
}

impl Evaluation {
    /// Whether anybody looks at the scores of a routing decision.
    pub(super) fn reads_scores(&self) -> bool {
        self.trace_path.is_some() || self.summarize_trace || self.regret.is_asked()
    }

    fn new(flags: &EvaluationFlags) -> Result<Self, Failure> {
        let fitness = fitness(&flags.fitness)?;
        if let (Some(_), Some(FitnessScale::Blis)) = (&flags.baseline, fitness.as_ref().map(FitnessWeights::scale)) {
            return Err(Failure::usage("`--baseline` cannot be used with `--fitness-scale blis`")
                .hint("that scale is fixed and has no baseline; leave out one of them"));
        }
        let mut about_records = given([
            (flags.counterfactual_k > 0, "--counterfactual-k"),
            (flags.summarize_trace, "--summarize-trace"),
            (flags.trace_path.is_some(), "--trace-path"),
        ]);
        if flags.trace_level == TraceLevelName::None
            && let Some(flag) = about_records.next()
        {
            return Err(
                Failure::usage(format_args!("`{flag}` needs recorded decisions")).hint("add `--trace-level decisions`")
            );
        }
        if let Some(path) = &flags.trace_path {
            check_target(path).map_err(|error| Failure::file(&error))?;
        }
        Ok(Self {
            fitness,
            baseline: flags.baseline.clone(),
            trace_level: flags.trace_level,
            trace_path: flags.trace_path.clone(),
            counterfactual_k: flags.counterfactual_k,
            summarize_trace: flags.summarize_trace,
            regret: flags.regret.settings()?,
        })
    }
}

/// The decisions are written while the other files wait for the end: one would overwrite the other.
fn check_apart(trace: Option<&Path>, output: &OutputConfig) -> Result<(), Failure> {
    let others = [("--metrics-path", &output.metrics_path), ("--results-path", &output.results_path)];
    match others.into_iter().find(|(_, other)| trace.is_some() && other.as_deref() == trace) {
        Some((flag, _)) => Err(Failure::usage(format_args!("`{flag}` and `--trace-path` name the same file"))
            .hint("one would overwrite the other; give each its own")),
        None => Ok(()),
    }
}

fn fitness(flags: &FitnessFlags) -> Result<Option<FitnessWeights>, Failure> {
    let scale = match flags.fitness_scale {
        None | Some(FitnessScaleName::Baseline) => FitnessScale::Baseline,
        Some(FitnessScaleName::Blis) => FitnessScale::Blis,
    };
    let weights = flags.fitness_weights.as_deref().map(|text| FitnessWeights::parse(text, scale));
    weights.transpose().map_err(Failure::usage)
}

fn check_exports(exports: &[Export], others: [Option<&Path>; 2]) -> Result<(), Failure> {
    let files: Vec<PathBuf> = exports.iter().flat_map(Export::files).collect();
    for (place, file) in files.iter().enumerate() {
        if files[..place].contains(file) || others.contains(&Some(file)) {
            return Err(Failure::usage(format_args!("`{}` would be written twice", file.display()))
                .hint("one would overwrite the other; give each its own"));
        }
        check_target(file).map_err(|error| Failure::file(&error))?;
    }
    Ok(())
}

fn check_targets(metrics: Option<&Path>, results: Option<&Path>) -> Result<(), Failure> {
    if metrics.is_some() && metrics == results {
        return Err(Failure::usage("`--metrics-path` and `--results-path` name the same file")
            .hint("one would overwrite the other; give each its own"));
    }
    metrics.into_iter().chain(results).try_for_each(|path| check_target(path).map_err(|error| Failure::file(&error)))
}

/// What does not depend on the model is checked by the flags themselves, the rest when it is resolved.
fn deployment(flags: DeploymentFlags, semantics: Semantics) -> DeploymentArgs {
    DeploymentArgs {
        model: flags.model,
        hardware: flags.hardware,
        tensor_parallel_size: flags.tp.filter(|&tp| tp > 0),
        data_parallel_size: flags.dp,
        vllm_version: flags.vllm_version,
        enable_expert_parallel: flags.enable_expert_parallel,
        moe_comm_backend: flags.moe_comm_backend,
        // A plugin's fallback is the usual model.
        latency_model: flags.latency_model.and_then(|name| name.parse().ok()),
        usual_latency: if semantics == Semantics::BLIS { LatencyKind::TrainedPhysics } else { LatencyKind::Physics },
        alpha_coeffs: flags.alpha_coeffs,
        beta_coeffs: flags.beta_coeffs,
        coefficients: flags.coefficients,
        total_kv_blocks: flags.total_kv_blocks,
        block_size: flags.block_size_in_tokens,
        max_model_len: Some(flags.max_model_len).filter(|&tokens| tokens > 0),
        gpu_memory_utilization: flags.gpu_memory_utilization,
        model_config_folder: flags.model_config_folder,
        hardware_config: flags.hardware_config,
    }
}

impl EngineConfig {
    fn new(flags: &EngineFlags, block_size: u32, policies: &PolicySettings) -> Self {
        let mut engine = Self {
            max_num_seqs: flags.max_num_seqs,
            max_num_batched_tokens: flags.max_num_batched_tokens,
            long_prefill_token_threshold: flags.long_prefill_token_threshold,
            block_size,
            enable_prefix_caching: !flags.no_enable_prefix_caching,
            enable_chunked_prefill: !flags.no_enable_chunked_prefill,
            async_scheduling: flags.async_scheduling,
            reserve_full_prompt: flags.scheduler_reserve_full_isl,
            scheduler: Scheduler::default(),
            preemption: Preemption::default(),
            semantics: flags.parity.into(),
            engine: flags.engine,
        };
        engine.follow(policies);
        engine
    }

    /// Takes over what `policies` say of an instance.
    pub(super) fn follow(&mut self, policies: &PolicySettings) {
        self.scheduler = policies.scheduler();
        self.preemption = policies.preemption();
    }

    /// The instance that schedules so on `deployment`.
    pub(super) fn instance(&self, index: u32, deployment: &Deployment, classes: &Arc<Classes>) -> InstanceConfig {
        InstanceConfig {
            index,
            max_num_seqs: self.max_num_seqs,
            max_num_batched_tokens: self.max_num_batched_tokens,
            long_prefill_token_threshold: self.long_prefill_token_threshold,
            max_model_len: deployment.max_model_len,
            block_size: self.block_size,
            total_kv_blocks: deployment.total_kv_blocks,
            enable_prefix_caching: self.enable_prefix_caching,
            enable_chunked_prefill: self.enable_chunked_prefill,
            async_scheduling: self.async_scheduling,
            reserve_full_prompt: self.reserve_full_prompt,
            scheduler: self.scheduler.into(),
            preemption: self.preemption.into(),
            classes: Arc::clone(classes),
            semantics: self.semantics,
            latency: deployment.latency.clone(),
        }
    }
}

/// Of `--session-mode` and what goes with it.
fn closed_loop(flags: &SessionFlags, part: &TracePartFlags) -> Result<Option<Option<ThinkTime>>, Failure> {
    let moved = given([
        (part.start.is_some(), "--start"),
        (part.duration.is_some(), "--duration"),
        (part.time_scale.is_some(), "--time-scale"),
        (part.repeat.is_some(), "--repeat"),
        (part.spread_bins.is_some(), "--spread-bins"),
    ]);
    if let (SessionMode::ClosedLoop, Some(flag)) = (flags.session_mode, moved.into_iter().next()) {
        return Err(Failure::usage(format_args!("`{flag}` cannot be used with `--session-mode closed-loop`"))
            .hint("later rounds follow from answers, not from recorded times"));
    }
    let think_time = flags.think_time_ms.map(ThinkTime::Constant).or(flags.think_time_dist);
    match (flags.session_mode, think_time) {
        (SessionMode::ClosedLoop, think_time) => Ok(Some(think_time)),
        (SessionMode::Fixed, None) => Ok(None),
        (SessionMode::Fixed, Some(_)) => {
            let flag = if flags.think_time_ms.is_some() { "--think-time-ms" } else { "--think-time-dist" };
            Err(Failure::usage(format_args!("`{flag}` only makes sense with `--session-mode closed-loop`"))
                .hint("otherwise every round arrives as recorded"))
        }
    }
}

fn workload(args: WorkloadArgs, simulation: &SimulationArgs, parity: ParityName) -> Result<WorkloadConfig, Failure> {
    if let Some(path) = &args.workload_spec {
        return specified(path, &args, parity);
    }
    if let Some(preset) = args.workload.and_then(WorkloadName::preset).filter(|_| args.workload_trace.is_none()) {
        return named(preset, &args, simulation);
    }
    match (args.workload, &args.workload_trace) {
        (None | Some(WorkloadName::Traces), Some(_)) => trace(args),
        (Some(WorkloadName::Traces), None) => {
            Err(Failure::usage("`--workload traces` needs a trace").hint("name it with `--workload-trace FILE`"))
        }
        (Some(_), Some(_)) => Err(Failure::usage("`--workload-trace` cannot be used with a generated `--workload`")
            .hint("leave out one of them; with a trace, `--workload traces` is understood")),
        (name, None) => synthetic(name.unwrap_or(WorkloadName::Distribution), &args, simulation),
    }
}

fn trace(args: WorkloadArgs) -> Result<WorkloadConfig, Failure> {
    let WorkloadArgs { workload_trace: Some(path), synthetic, .. } = args else {
        return Err(Failure::usage("no trace given").hint("name it with `--workload-trace FILE`"));
    };
    if let Some(flag) = synthetic.given().next() {
        return Err(Failure::usage(format_args!("`{flag}` cannot be used with `--workload-trace`"))
            .hint("a trace brings its own arrivals and lengths"));
    }
    let format = args.trace_format.unwrap_or(TraceFormatName::Auto);
    if args.mooncake_block_size.is_some() && !format.has_hashes() {
        return Err(Failure::usage("`--mooncake-block-size` only makes sense for a mooncake trace")
            .hint("leave it out, or use `--trace-format mooncake`, bailian or vllm-vcr"));
    }
    let sessions = SessionFlags {
        session_mode: args.session_mode.unwrap_or(SessionMode::Fixed),
        think_time_ms: None,
        think_time_dist: None,
    };
    let closed_loop = closed_loop(&sessions, &args.part)?.is_some();
    Ok(WorkloadConfig::Trace(TraceConfig {
        path,
        format,
        mooncake_block_size: args.mooncake_block_size,
        skip_bad_lines: args.skip_bad_lines,
        part: args.part.part(),
        timeout: args.timeout.and_then(deadline),
        closed_loop,
    }))
}

/// The file of `--workload-spec`. It says what the other flags would.
fn specified(path: &Path, args: &WorkloadArgs, parity: ParityName) -> Result<WorkloadConfig, Failure> {
    let elsewhere =
        given([(args.workload.is_some(), "--workload"), (args.workload_trace.is_some(), "--workload-trace")]);
    let flags = args.synthetic.given().filter(|&flag| flag != "--num-requests");
    if let Some(flag) = elsewhere.chain(args.given_for_traces()).chain(flags).next() {
        return Err(Failure::usage(format_args!("`{flag}` cannot be used with `--workload-spec`"))
            .hint("the specification says where requests come from and how long they are"));
    }
    let servegen = match parity {
        ParityName::Vllm => ServeGenReading::Measured,
        ParityName::Blis => ServeGenReading::Blis,
    };
    let spec = Spec::load_with(path, servegen).map_err(Failure::usage)?;
    let num_requests =
        args.synthetic.num_requests.map_or(spec.num_requests, |count| Some(count.into()).filter(|&n| n > 0));
    let (origin, timeout) = (SpecOrigin::File(path.to_owned()), args.timeout.map(deadline));
    Ok(WorkloadConfig::Specified(SpecConfig { origin, spec: Arc::new(spec), num_requests, timeout }))
}

/// A workload of several clients that has a name.
fn named(preset: Preset, args: &WorkloadArgs, simulation: &SimulationArgs) -> Result<WorkloadConfig, Failure> {
    let flags = args.synthetic.given().filter(|&flag| !matches!(flag, "--num-requests" | "--rate"));
    if let Some(flag) = args.given_for_traces().chain(flags).next() {
        return Err(Failure::usage(format_args!("`{flag}` cannot be used with `--workload {}`", preset.name()))
            .hint("it has its own arrivals and lengths; `--rate` and `--num-requests` say how many"));
    }
    let usual = DistributionSpec::default();
    let spec = Arc::new(preset.spec(args.synthetic.rate.unwrap_or(usual.rate)));
    let num_requests =
        args.synthetic.num_requests.map_or(usual.num_requests, |count| Some(count.into()).filter(|&n| n > 0));
    if num_requests.is_none() && simulation.horizon.is_none() {
        return Err(endless());
    }
    let timeout = Some(args.timeout.map_or(usual.timeout, deadline));
    Ok(WorkloadConfig::Specified(SpecConfig { origin: SpecOrigin::Named(preset), spec, num_requests, timeout }))
}

fn endless() -> Failure {
    Failure::usage("`--num-requests 0` needs an end: the workload has none")
        .hint("add `--horizon`, in µs, or give a number of requests")
}

fn synthetic(name: WorkloadName, args: &WorkloadArgs, simulation: &SimulationArgs) -> Result<WorkloadConfig, Failure> {
    if let Some(flag) = args.given_for_traces().next() {
        return Err(Failure::usage(format_args!("`{flag}` only makes sense with `--workload-trace`"))
            .hint("name a trace, or leave it out"));
    }
    let flags = &args.synthetic;
    if args.synthetic.concurrency.is_some() && args.synthetic.arrival_process.is_some() {
        return Err(Failure::usage("`--arrival-process` cannot be used with `--concurrency`")
            .hint("users send when they have been answered"));
    }
    let name = name.generator();
    if let Some(flag) = flags.given_lengths().next().filter(|_| name != "distribution") {
        return Err(Failure::usage(format_args!("`{flag}` cannot be used with `--workload {name}`"))
            .hint("the preset fixes the lengths; `--workload distribution` takes them from flags"));
    }
    let usual = DistributionSpec::preset(name).map_err(Failure::usage)?;
    let spec = DistributionSpec {
        rate: flags.rate.unwrap_or(usual.rate),
        arrival: flags.arrival_process.map_or(usual.arrival, ArrivalProcess::from),
        num_requests: flags.num_requests.map_or(usual.num_requests, |count| Some(count.into()).filter(|&n| n > 0)),
        prompt: flags.prompt(usual.prompt),
        output: flags.output(usual.output),
        prefix_tokens: flags.prefix_tokens.unwrap_or(usual.prefix_tokens),
        timeout: args.timeout.map_or(usual.timeout, deadline),
        seed: simulation.seed,
        horizon: simulation.horizon.unwrap_or(Micros::MAX),
    };
    let told = |error| match error {
        SpecError::Range { name, value, range } => out_of_range(&name, &value, &range),
        SpecError::Endless => endless(),
        SpecError::TooMany { .. } | SpecError::Unknown { .. } => Failure::usage(error),
    };
    if let Some(count) = flags.concurrency {
        let think_time = flags.think_time_ms.unwrap_or(Micros::ZERO);
        let end = (flags.num_requests, simulation.horizon);
        return users((name, count, think_time), spec, end, told);
    }
    spec.validate().map_err(told)?;
    Ok(WorkloadConfig::Synthetic(SyntheticConfig { name, spec, timeout_is_default: args.timeout.is_none() }))
}

/// Users in closed loop, with lengths and deadlines as in `lengths`. `end`: number of requests and horizon,
/// as given.
fn users(
    (name, count, think_time): (&'static str, u32, Micros),
    lengths: DistributionSpec,
    end: (Option<u32>, Option<Micros>),
    told: impl Fn(SpecError) -> Failure,
) -> Result<WorkloadConfig, Failure> {
    let num_requests = match end {
        (Some(number), horizon) if number > 0 || horizon.is_some() => Some(u64::from(number)).filter(|&n| n > 0),
        (None, Some(_)) => None,
        (Some(_), _) => return Err(endless()),
        (None, None) => {
            return Err(Failure::usage("`--concurrency` needs an end: users go on for ever")
                .hint("add `--num-requests`, or `--horizon` in µs"));
        }
    };
    // Its rate and number are not used.
    DistributionSpec { num_requests: Some(1), ..lengths.clone() }.validate().map_err(&told)?;
    for (what, LengthSpec { max, .. }) in [("prompt", lengths.prompt), ("output", lengths.output)] {
        if max > LONGEST {
            let (name, range) = (format!("{what} max"), format!("at most {LONGEST} with `--concurrency`"));
            return Err(told(SpecError::Range { name, value: max.to_string(), range }));
        }
    }
    let drawn = |LengthSpec { mean, stdev, min, max }| Lengths::gaussian(mean, stdev, min, max);
    let prefix =
        (lengths.prefix_tokens > 0).then(|| Prefix { group: "shared".to_owned(), tokens: lengths.prefix_tokens });
    let client = Client {
        load: Load::Users { count, think_time },
        prefix,
        ..Client::new("users", 1.0, drawn(lengths.prompt), drawn(lengths.output))
    };
    let spec = Arc::new(Spec { clients: vec![client], ..Spec::default() });
    let timeout = Some(lengths.timeout);
    let origin = SpecOrigin::Users { name, count, think_time, lengths };
    Ok(WorkloadConfig::Specified(SpecConfig { origin, spec, num_requests, timeout }))
}

/// In terms of the flag behind the setting `name`.
fn out_of_range(name: &str, value: &str, range: &str) -> Failure {
    let told = |flag: &str| Failure::usage(format_args!("`{flag}` is {value}, but must be {range}"));
    match name.split_once(' ') {
        Some((what @ ("prompt" | "output"), figure)) => {
            let flags = format!("--{what}-tokens");
            let flag = if figure == "mean" { flags.clone() } else { format!("{flags}-{figure}") };
            told(&flag).hint(format_args!(
                "by default {flags} is 512, its -stdev 256, -min 2 and -max 7000; set all that must go together"
            ))
        }
        _ => told(&format!("--{}", name.replace(' ', "-"))).hint("`blis run --help` says what it means"),
    }
}

/// Negative: never.
fn deadline(seconds: f64) -> Option<Micros> {
    (seconds > 0.0).then(|| Micros::from_secs_f64(seconds))
}

impl WorkloadName {
    /// The workload of several clients that it names.
    fn preset(self) -> Option<Preset> {
        match self {
            Self::Bursty => Some(Preset::Bursty),
            Self::UnfairTenants => Some(Preset::UnfairTenants),
            Self::PrefixHeavy => Some(Preset::PrefixHeavy),
            Self::MixedSlo => Some(Preset::MixedSlo),
            Self::Reasoning => Some(Preset::Reasoning),
            Self::SummarizationRag => Some(Preset::SummarizationRag),
            Self::SyntheticData => Some(Preset::SyntheticData),
            Self::InteractiveChat => Some(Preset::InteractiveChat),
            Self::CodeGeneration => Some(Preset::CodeGeneration),
            Self::DeepResearch => Some(Preset::DeepResearch),
            _ => None,
        }
    }

    /// It as a specification, at `rate` requests per second.
    pub(super) fn spec(self, rate: f64) -> Result<Spec, Failure> {
        if self == Self::Traces {
            return Err(Failure::usage("`--workload traces` is no workload of its own").hint("name the trace instead"));
        }
        if let Some(preset) = self.preset() {
            return Ok(preset.spec(rate));
        }
        let DistributionSpec { arrival, num_requests, prompt, output, .. } =
            DistributionSpec::preset(self.generator()).map_err(Failure::usage)?;
        let drawn = |LengthSpec { mean, stdev, min, max }| Lengths::gaussian(mean, stdev, min, max);
        let arrival = match arrival {
            ArrivalProcess::Constant => Arrival::Constant,
            ArrivalProcess::Poisson => Arrival::Poisson,
        };
        let client = Client { arrival, ..Client::new(self.generator(), 1.0, drawn(prompt), drawn(output)) };
        Ok(Spec { aggregate_rate: rate, num_requests, clients: vec![client], ..Spec::default() })
    }

    /// The name of its lengths.
    fn generator(self) -> &'static str {
        match self {
            Self::Chatbot => "chatbot",
            Self::Contentgen => "contentgen",
            Self::Summarization => "summarization",
            Self::Multidoc => "multidoc",
            _ => "distribution",
        }
    }
}

impl From<ParityName> for Semantics {
    fn from(name: ParityName) -> Self {
        match name {
            ParityName::Vllm => Self::VLLM,
            ParityName::Blis => Self::BLIS,
        }
    }
}

impl From<OnErrorName> for OnError {
    fn from(name: OnErrorName) -> Self {
        match name {
            OnErrorName::Fail => Self::Fail,
            OnErrorName::Fallback => Self::Fallback,
        }
    }
}

impl From<ArrivalName> for ArrivalProcess {
    fn from(name: ArrivalName) -> Self {
        match name {
            ArrivalName::Constant => Self::Constant,
            ArrivalName::Poisson => Self::Poisson,
        }
    }
}

impl SyntheticFlags {
    fn prompt(&self, usual: LengthSpec) -> LengthSpec {
        LengthSpec {
            mean: self.prompt_tokens.map_or(usual.mean, f64::from),
            stdev: self.prompt_tokens_stdev.map_or(usual.stdev, f64::from),
            min: self.prompt_tokens_min.unwrap_or(usual.min),
            max: self.prompt_tokens_max.unwrap_or(usual.max),
        }
    }

    fn output(&self, usual: LengthSpec) -> LengthSpec {
        LengthSpec {
            mean: self.output_tokens.map_or(usual.mean, f64::from),
            stdev: self.output_tokens_stdev.map_or(usual.stdev, f64::from),
            min: self.output_tokens_min.unwrap_or(usual.min),
            max: self.output_tokens_max.unwrap_or(usual.max),
        }
    }

    /// Names of the length flags that were given.
    fn given_lengths(&self) -> impl Iterator<Item = &'static str> {
        given([
            (self.prompt_tokens.is_some(), "--prompt-tokens"),
            (self.prompt_tokens_stdev.is_some(), "--prompt-tokens-stdev"),
            (self.prompt_tokens_min.is_some(), "--prompt-tokens-min"),
            (self.prompt_tokens_max.is_some(), "--prompt-tokens-max"),
            (self.output_tokens.is_some(), "--output-tokens"),
            (self.output_tokens_stdev.is_some(), "--output-tokens-stdev"),
            (self.output_tokens_min.is_some(), "--output-tokens-min"),
            (self.output_tokens_max.is_some(), "--output-tokens-max"),
        ])
    }

    /// Names of all flags that were given.
    fn given(&self) -> impl Iterator<Item = &'static str> {
        given([
            (self.rate.is_some(), "--rate"),
            (self.concurrency.is_some(), "--concurrency"),
            (self.arrival_process.is_some(), "--arrival-process"),
            (self.num_requests.is_some(), "--num-requests"),
            (self.prefix_tokens.is_some(), "--prefix-tokens"),
        ])
        .chain(self.given_lengths())
    }
}

impl WorkloadArgs {
    /// Names of the flags that were given and only a trace understands.
    fn given_for_traces(&self) -> impl Iterator<Item = &'static str> {
        given([
            (self.trace_format.is_some(), "--trace-format"),
            (self.mooncake_block_size.is_some(), "--mooncake-block-size"),
            (self.skip_bad_lines, "--skip-bad-lines"),
            (self.part.start.is_some(), "--start"),
            (self.part.duration.is_some(), "--duration"),
            (self.part.time_scale.is_some(), "--time-scale"),
            (self.part.repeat.is_some(), "--repeat"),
            (self.part.spread_bins.is_some(), "--spread-bins"),
            (self.part.max_requests.is_some(), "--max-requests"),
            (self.session_mode.is_some(), "--session-mode"),
        ])
    }
}

impl TracePartFlags {
    pub(super) fn part(&self) -> TracePart {
        let usual = Window::default();
        let window = Window {
            start: self.start.unwrap_or(usual.start),
            duration: self.duration,
            repeat: self.repeat.unwrap_or(usual.repeat),
            time_scale: self.time_scale.unwrap_or(usual.time_scale),
            spread: self.spread_bins,
        };
        TracePart { window, max_requests: self.max_requests.map(u64::from) }
    }
}

impl TraceFormatName {
    /// Whether its prompts may be known by hash ids.
    fn has_hashes(self) -> bool {
        matches!(self, Self::Auto | Self::Mooncake | Self::Bailian | Self::VllmVcr)
    }
}

fn given<const N: usize>(flags: [(bool, &'static str); N]) -> impl Iterator<Item = &'static str> {
    flags.into_iter().filter(|&(given, _)| given).map(|(_, name)| name)
}
