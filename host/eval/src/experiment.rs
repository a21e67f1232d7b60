//! From raw settings to a valid experiment: defaults are filled in, contradictions are refused.
//!
//! Every mistake that can be found without opening a file is found here, so that it costs no simulation. The policy
//! bundle is the only file that is read; flags win over it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use blis_sim::ids::InstanceIndex;
use blis_sim::instance::{InstanceConfig, InstancePolicies, Preemption, Scheduler, SchedulerOptions};
use blis_sim::offload::{BackpressurePolicy, ChunkEviction, SecondaryKind};
use blis_sim::policy::{Classes, ScorerKind};
use blis_sim::semantics::Semantics;
use blis_sim::units::Micros;

use blis_config::engine::BatchSettings;
use blis_config::policy::{
    Bundle, Choices, ParameterInput, ParameterSetting, PolicySettings, ScalingChoice, ScalingRow, ScorerName,
    SettingSource, Sourced, WeightedScorer,
};
use blis_config::{
    CacheArgs, Deployment, DeploymentArgs, Dtype, GdnPrefill, LatencyKind, OffloadArgs, PrecisionArgs, SecondaryArgs,
};
use blis_diag::{Diagnostic, name_hint, quoted};
use blis_plugin::Kind;
use blis_plugin::incidents::OnError;
use blis_report::{Export, ExportFormat, ExportWindow, check_target};
use blis_workload::spec::{Client, Spec};
use blis_workload::trace_v2::recorded_seed;

use crate::cancel::RunBudget;
use crate::catalog::Catalog;
use crate::disaggregation::{self, DisaggregationSettings};
use crate::error::RunError;
use crate::fitness::FitnessWeights;
use crate::flow::{self, FlowControlSettings};
use crate::group::GroupSettings;
use crate::kv_cache;
use crate::lora;
use crate::nodes;
use crate::prices::Prices;
use crate::scaling::{self, ScalingSettings};
use crate::spec::{
    BackpressureName, ChunkEvictionName, DtypeName, EngineName, ExperimentSpec, FLOW_CONTROL, GdnPrefillName,
    InlinePolicies, KEYS, OnErrorName, ParityName, PolicyParam, RegretName, SecondaryTierName, SettingKey,
    SimulationName, TargetList, TieBreakName, TraceLevelName, invalid,
};
use crate::tiers;
use crate::workload_config::{SpecConfig, SpecOrigin, WorkloadConfig};

/// A simulation with checked settings.
#[derive(Clone, Debug)]
pub struct Experiment {
    pub deployment: DeploymentArgs,
    pub engine: EngineConfig,
    pub cluster: ClusterSettings,
    pub evaluation: EvaluationSettings,
    /// Policies that flags name, before a bundle is applied.
    pub choices: Choices,
    /// The file of `--policy-config`.
    pub bundle: Option<Bundle>,
    /// Finds the policies that are not built in.
    pub catalog: Arc<Catalog>,
    pub on_plugin_error: OnError,
    /// Prices of GPUs.
    pub prices: Option<Prices>,
    /// Whether the energy of GPUs is computed.
    pub energy: bool,
    /// Limits a run that must not take unlimited time.
    pub budget: Option<RunBudget>,
    pub workload: WorkloadConfig,
    pub seed: u64,
    /// End of the simulated time; [`Micros::MAX`] for none.
    pub horizon: Micros,
    /// Requests that arrive before this time are in no figure.
    pub warmup: Micros,
    /// The files that a run writes.
    pub files: OutputFiles,
    /// Effects of the settings that may surprise: (what, what to do).
    pub warnings: Vec<(String, String)>,
    /// The specification that it was made of: which settings are set, and their sources.
    pub spec: Arc<ExperimentSpec>,
    /// What the deployment says of its KV cache, once it is resolved.
    pub cache_block: OnceLock<u32>,
}

/// Settings of the cluster: instances, latencies of the front end, signals, policies.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterSettings {
    pub num_instances: u32,
    pub admission_latency: Micros,
    pub routing_latency: Micros,
    /// Age at which the periodic signals are refreshed; 0 refreshes them for every request.
    pub snapshot_refresh_interval: Micros,
    /// Age at which the contents of prefix caches are refreshed; 0 refreshes them for every request.
    pub cache_signal_delay: Micros,
    pub tie_break: TieBreakName,
    /// The queue in front of routing; `None` without flow control.
    pub flow_control: Option<FlowControlSettings>,
    /// Replicas that come and go; `None` for a fixed number.
    pub scaling: Option<ScalingSettings>,
    /// Groups of other instances beside the first, which have no roles.
    pub groups: Vec<GroupSettings>,
    /// Instances with roles; `None` if every instance serves whole requests.
    pub disaggregation: Option<DisaggregationSettings>,
    pub policies: PolicySettings,
    /// Targets of flags by SLO class; `default` is the class of requests without one. A target of a flag wins over the
    /// same target of a trace.
    pub slo_targets: BTreeMap<String, SloTargetSettings>,
}

/// SLO targets of one class.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SloTargetSettings {
    pub ttft: Option<Sourced<Micros>>,
    pub itl: Option<Sourced<Micros>>,
    pub e2e: Option<Sourced<Micros>>,
}

/// Settings of the evaluation and the recording of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct EvaluationSettings {
    /// `None`: no fitness is computed.
    pub fitness: Option<FitnessWeights>,
    /// A routing policy or the path of a bundle, as written.
    pub baseline: Option<String>,
    pub trace_level: TraceLevelName,
    /// File to which every decision is written.
    pub trace_path: Option<PathBuf>,
    /// Number of alternative instances recorded with a routing decision.
    pub counterfactual_k: u32,
    pub summarize_trace: bool,
    pub regret: RegretSettings,
}

/// Settings of the scheduler and the KV cache of an instance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EngineConfig {
    pub long_prefill_token_threshold: u32,
    pub block_size: u32,
    pub enable_prefix_caching: bool,
    pub enable_chunked_prefill: bool,
    pub async_scheduling: bool,
    pub reserve_full_prompt: bool,
    /// Share of the KV blocks that stay free when a request enters a batch that is not empty, 0 to 1.
    pub watermark: f64,
    /// Further options; their number of watermark blocks depends on the deployment.
    pub options: SchedulerOptions,
    pub scheduler: Scheduler,
    pub preemption: Preemption,
    pub semantics: Semantics,
    /// The engine that is simulated; `None` for BLIS.
    pub profile: Option<EngineName>,
    pub simulation: SimulationName,
}

/// Files that a run writes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutputFiles {
    /// Results and one record per request, JSON.
    pub metrics_path: Option<PathBuf>,
    /// Latencies of completed requests, JSON.
    pub results_path: Option<PathBuf>,
    /// Files in the formats of other tools.
    pub exports: Vec<Export>,
    /// The part of the run that the `perfetto` export has.
    pub trace_window: ExportWindow,
    /// The service over time, CSV or Parquet.
    pub timeline: Option<TimelineFile>,
    /// A page to look at, HTML.
    pub page: Option<PathBuf>,
}

/// A file with the service at regular moments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimelineFile {
    pub path: PathBuf,
    /// Time between two moments.
    pub interval: Micros,
}

impl OutputFiles {
    /// The files that are written at the end of a run, with their flags, without exports.
    fn at_end(&self) -> impl Iterator<Item = (&'static str, &Path)> {
        let flags = [
            ("--metrics-path", self.metrics_path.as_deref()),
            ("--results-path", self.results_path.as_deref()),
            ("--timeline", self.timeline.as_ref().map(|timeline| timeline.path.as_path())),
            ("--report", self.page.as_deref()),
        ];
        flags.into_iter().filter_map(|(flag, path)| Some((flag, path?)))
    }
}

/// Settings of the outcome regret.
#[derive(Clone, Debug, PartialEq)]
pub struct RegretSettings {
    pub kind: RegretName,
    pub samples: u32,
    pub alternatives: u32,
    pub window: Option<Micros>,
    pub path: Option<PathBuf>,
    /// For the feedback of an evaluation: the kinds of decisions that candidates make.
    decided: Option<Vec<Kind>>,
    /// Whether decisions are drawn at random only, with their signals, for patterns.
    for_patterns: bool,
}

impl RegretSettings {
    fn new(spec: &ExperimentSpec) -> Result<Self, RunError> {
        if let Some(path) = &spec.regret_path {
            check_target(path).map_err(|error| RunError::file(&error))?;
        }
        Ok(Self {
            kind: spec.regret(),
            samples: spec.regret_samples(),
            alternatives: spec.regret_alternatives(),
            window: spec.regret_window,
            path: spec.regret_path.clone(),
            decided: None,
            for_patterns: false,
        })
    }

    /// Few samples and few alternatives, for the feedback of an evaluation: of the `decided` kinds, and without the rollout
    /// regret, which it does not show.
    pub(crate) fn brief(samples: u32, decided: &[Kind]) -> Self {
        let decided = Some(decided.to_vec());
        let kind = RegretName::Outcome;
        Self { kind, samples, alternatives: 2, window: None, path: None, decided, for_patterns: false }
    }

    /// As [`Self::brief`], with `samples` decisions of each kind at random, for patterns.
    pub(crate) fn patterns(samples: u32, decided: &[Kind]) -> Self {
        Self { alternatives: 3, for_patterns: true, ..Self::brief(samples, decided) }
    }

    /// Whether it is that of patterns.
    pub(crate) fn is_for_patterns(&self) -> bool {
        self.for_patterns
    }

    /// Whether it is that of a feedback.
    pub(crate) fn is_brief(&self) -> bool {
        self.decided.is_some()
    }

    /// Whether decisions of `kind` are sampled.
    pub(crate) fn samples_kind(&self, kind: Kind) -> bool {
        self.decided.as_ref().is_none_or(|decided| decided.contains(&kind))
    }

    /// Whether regret is computed.
    pub fn is_requested(&self) -> bool {
        self.kind != RegretName::None
    }
}

impl Experiment {
    /// The experiment that `spec` describes, checked; a run of it writes `files`.
    ///
    /// # Errors
    /// The first invalid setting, or what is wrong with a file that a setting names.
    pub fn new(spec: ExperimentSpec, files: OutputFiles) -> Result<Self, RunError> {
        let bundle = bundle(&spec)?;
        let spec = with_deployment(spec, bundle.as_ref())?;
        let spec = with_scaling(with_gateway(spec, bundle.as_ref())?, bundle.as_ref())?;
        let spec = with_profiles(spec, bundle.as_ref())?;
        spec.check()?;
        let model = spec.model.clone().ok_or_else(|| {
            RunError::usage("`--model <NAME>` is missing").hint("`blis models` lists the built-in models")
        })?;
        let workload = WorkloadConfig::new(&spec)?;
        let refuse = |name: &str, what: &str, hint: &str| spec.misplaced(name, what, hint);
        let disaggregation = DisaggregationSettings::new(&spec)?;
        let scaling = ScalingSettings::new(&spec, refuse)?;
        scaling::check_groups(&spec, scaling.as_ref())?;
        disaggregation.as_ref().map_or(Ok(()), |roles| roles.check_limits(&spec, scaling.as_ref()))?;
        nodes::check(&spec)?;
        check_files(&files)?;
        let evaluation = EvaluationSettings::new(&spec)?;
        let parity = spec.parity();
        let choices = choices(&spec);
        let catalog = Arc::new(Catalog::new(&spec));
        let policies = PolicySettings::choose(&choices, bundle.as_ref(), &*catalog).map_err(RunError::refused)?;
        flow::check(&policies, &spec)?;
        scaling::check_policies(&policies, scaling.as_ref())?;
        kv_cache::check(&policies, &spec)?;
        disaggregation::check_policy(&policies, disaggregation.as_ref())?;
        let unused_queue = flow::without_effect(&policies, &spec);
        let (policies, mut warnings) = as_in_blis(policies, parity);
        warnings.extend(unused_queue);
        let (mut seed, mut horizon) = (spec.seed(), spec.horizon);
        if let WorkloadConfig::Specified(SpecConfig { spec: specified, .. }) = &workload {
            warnings.extend(specified.warnings.iter().cloned());
            seed = specified.seed.filter(|_| spec.seed.is_none()).unwrap_or(seed);
            horizon = horizon.or(specified.horizon);
        }
        if let (WorkloadConfig::Recorded { header, .. }, None) = (&workload, spec.seed) {
            // The seed of the recording reproduces what was drawn under it: above all, ties in routing.
            seed = recorded_seed(header).unwrap_or(seed);
        }
        if evaluation.records_nothing() {
            warnings.push((
                "`--trace-level decisions` has no effect alone".to_owned(),
                "add `--trace-path FILE` or `--summarize-trace`".to_owned(),
            ));
        }
        check_apart(evaluation.trace_path.as_deref(), &files)?;
        warnings.extend(lost_sampling(&workload, &files));
        warnings.extend(tiers::without_effect(&spec));
        Ok(Self {
            deployment: DeploymentArgs {
                latency_parameters: policies.latency_parameters.clone(),
                blis_tiers: tiers::tiers(&spec, &workload)?,
                adapters: lora::adapters(&spec)?,
                ..deployment(model, &spec)
            },
            engine: EngineConfig::new(&spec, &policies),
            cluster: ClusterSettings::new(&spec, policies, scaling).with_roles(disaggregation),
            evaluation,
            warnings,
            choices,
            bundle,
            catalog,
            on_plugin_error: spec.on_plugin_error().into(),
            prices: spec.prices.as_deref().map(Prices::load).transpose()?,
            energy: spec.energy(),
            budget: None,
            workload,
            seed,
            horizon: horizon.unwrap_or(Micros::MAX),
            warmup: spec.warmup(),
            files,
            spec: Arc::new(spec),
            cache_block: OnceLock::new(),
        })
    }

    /// The experiment that all policies of a comparison share; `what` compares them.
    ///
    /// # Errors
    /// As [`Self::new`]; and if `spec` sets how requests are routed.
    pub fn for_comparison(spec: ExperimentSpec, what: &str) -> Result<Self, RunError> {
        let routes = |key: &&SettingKey| key.decides_routing() && spec.has(key.name);
        let parameter = spec.policy_param.iter().flatten().any(|param| param.kind == Kind::Routing);
        let flag = KEYS.iter().find(routes).map(|key| key.name).or(parameter.then_some("policy-param routing.…"));
        if let Some(flag) = flag {
            return Err(RunError::usage(format_args!("`--{flag}` cannot be used with {what}"))
                .hint("the policies under comparison route the requests"));
        }
        Self::new(spec, OutputFiles::default())
    }

    /// Whether GPUs or nodes have prices.
    pub(crate) fn has_prices(&self) -> bool {
        self.prices.is_some() || self.spec.node_pool.iter().flatten().any(|pool| pool.price.is_some())
    }

    /// The price of the GPU of `deployment`, dollars per hour; `None` without a price list.
    ///
    /// # Errors
    /// If the list has none.
    pub(crate) fn usd_per_gpu_hour(&self, deployment: &Deployment) -> Result<Option<f64>, RunError> {
        let price = self.prices.as_ref().map(|prices| prices.price(&deployment.hardware)).transpose()?;
        Ok(price.map(|price| price.usd_per_gpu_hour))
    }

    /// The deployments of the groups beside the first.
    ///
    /// # Errors
    /// The first that cannot be resolved.
    pub(crate) fn further_deployments(&self) -> Result<Vec<Deployment>, RunError> {
        let resolve = |group: &GroupSettings| {
            blis_config::resolve(&group.deployment(&self.deployment)).map_err(|error| {
                RunError::refused(error).or_hint(format_args!("correct `--group {group}`, or leave it out"))
            })
        };
        self.cluster.groups.iter().map(resolve).collect()
    }

    /// The configuration of the instance `index` on `deployment`.
    pub(crate) fn instance(
        &self,
        index: InstanceIndex,
        deployment: &Deployment,
        classes: &Arc<Classes>,
    ) -> InstanceConfig {
        let tiers = deployment.blis_tiers.clone().map(|tiers| Arc::new(tiers.with_seed(self.seed)));
        let kv_groups = deployment.kv_layout.as_ref().and_then(|layout| layout.groups.clone());
        let block_size = self.block_size();
        InstanceConfig { blis_tiers: tiers, kv_groups, block_size, ..self.engine.instance(index, deployment, classes) }
    }

    /// Tokens of a KV block: of one content hash, if the model has KV groups.
    pub fn block_size(&self) -> u32 {
        // What is wrong with the deployment is reported where it is resolved for use.
        let resolved = || {
            blis_config::resolve(&self.deployment).map_or(self.engine.block_size, |deployment| deployment.block_size)
        };
        *self.cache_block.get_or_init(resolved)
    }

    /// Notes what the resolved `deployment` says of its KV cache, so that it is not resolved again.
    pub(crate) fn knows(&self, deployment: &Deployment) {
        self.cache_block.get_or_init(|| deployment.block_size);
    }

    /// The engine that simulates the instances. Only the plain one has BLIS's tiers below the GPU's KV cache, and only it sees that the
    /// blocks of both parts of a request have the same content, if one instance executes both; elsewhere both give the same results.
    pub(crate) fn simulation(&self) -> SimulationName {
        let roles = self.cluster.disaggregation.as_ref();
        let both_parts = roles.is_some_and(DisaggregationSettings::has_both_parts_on_one_instance);
        let needs_plain = self.deployment.blis_tiers.is_some() || both_parts;
        if needs_plain { SimulationName::Plain } else { self.engine.simulation }
    }

    /// The same experiment under another seed.
    #[must_use]
    pub fn with_seed(&self, seed: u64) -> Self {
        let mut config = Self { seed, ..self.clone() };
        if let WorkloadConfig::Synthetic(synthetic) = &mut config.workload {
            synthetic.spec.seed = seed;
        }
        config
    }

    /// The same experiment with the requests of `spec`, the workload of a scenario.
    #[must_use]
    pub fn with_spec(self, name: &str, spec: Spec) -> Self {
        let num_requests = match &self.workload {
            WorkloadConfig::Synthetic(synthetic) if self.spec.num_requests.is_some() => synthetic.spec.num_requests,
            _ => spec.num_requests,
        };
        let horizon = if self.spec.horizon.is_some() { self.horizon } else { spec.horizon.unwrap_or(self.horizon) };
        let origin = SpecOrigin::File(PathBuf::from(name));
        let workload =
            WorkloadConfig::Specified(SpecConfig { origin, spec: Arc::new(spec), num_requests, timeout: None });
        Self { workload, horizon, ..self }
    }
}

/// A warning if requests have sampling parameters of their own and are exported as a trace, which has no column for them.
fn lost_sampling(workload: &WorkloadConfig, files: &OutputFiles) -> Option<(String, String)> {
    let WorkloadConfig::Specified(SpecConfig { spec, .. }) = workload else { return None };
    let sets = |client: &Client| !client.sampling.params().is_unset();
    let sampling = spec.clients.iter().any(sets) || spec.cohorts.iter().any(|cohort| sets(&cohort.client));
    let trace = files.exports.iter().any(|export| export.format == ExportFormat::TraceV2);
    (sampling && trace).then(|| {
        let what = "TraceV2 has no sampling parameters: in a replay, requests have those of the model";
        (what.to_owned(), "run the specification again where they matter".to_owned())
    })
}

/// The bundle in the file of `--policy-config`, or the one in the configuration file itself.
fn bundle(spec: &ExperimentSpec) -> Result<Option<Bundle>, RunError> {
    let inline = |InlinePolicies { file, text }: &InlinePolicies| Bundle::parse(file, text);
    let loaded = spec.policy_config.as_deref().map(Bundle::load);
    loaded.or_else(|| spec.policies.as_ref().map(inline)).transpose().map_err(RunError::refused)
}

/// `spec` with the section `deployment` of `bundle`, where no other setting says otherwise. That of a configuration file is
/// in `spec`.
fn with_deployment(spec: ExperimentSpec, bundle: Option<&Bundle>) -> Result<ExperimentSpec, RunError> {
    match &spec.policy_config {
        Some(path) if bundle.is_some_and(|bundle| bundle.choices().has_deployment) => {
            let section = ExperimentSpec::deployment_of(path)?;
            Ok(spec.over(&section))
        }
        _ => Ok(spec),
    }
}

/// `spec` with the flow control of `bundle`, where no flag sets it otherwise.
fn with_gateway(mut spec: ExperimentSpec, bundle: Option<&Bundle>) -> Result<ExperimentSpec, RunError> {
    let Some(choices) = bundle.map(Bundle::choices) else { return Ok(spec) };
    let Some(settings) = choices.gateway.as_ref().filter(|_| spec.flow_control != Some(false)) else { return Ok(spec) };
    spec.flow_control = Some(true);
    for (name, value) in settings {
        let key = SettingKey::get(name).filter(|key| key.is_in(&FLOW_CONTROL));
        let Some(key) = key else {
            let known: Vec<&str> = KEYS.iter().filter(|key| key.is_in(&FLOW_CONTROL)).map(|key| key.name).collect();
            let what = format!("`gateway` has no setting {}", quoted(name.as_bytes()));
            return Err(at(&value.source, what, name_hint(name, &known)));
        };
        if let Some((kind, _)) = choices.policies.iter().find(|(kind, _)| key.chooses == Some(*kind)) {
            let (key, kind) = (name.replace('-', "_"), kind.name());
            let what = format!("`gateway: {key}` and `{kind}` are two names of one setting");
            return Err(at(&value.source, what, format!("keep one of them; `{kind}` may have parameters")));
        }
        set_from_bundle(&mut spec, name, value)?;
    }
    Ok(spec)
}

/// The error about a value of a bundle.
fn at(source: &SettingSource, what: String, hint: String) -> RunError {
    let what = Diagnostic::new(what).hint(hint);
    RunError::refused(match source {
        SettingSource::File(location) => what.at(location.clone()),
        _ => what,
    })
}

/// `spec` with the profiles of instances by role of `bundle`, where no flag sets them otherwise.
fn with_profiles(mut spec: ExperimentSpec, bundle: Option<&Bundle>) -> Result<ExperimentSpec, RunError> {
    for (name, value) in bundle.map(|bundle| bundle.choices().disaggregation_settings()).unwrap_or_default() {
        set_from_bundle(&mut spec, &name, &value)?;
    }
    Ok(spec)
}

/// Sets `name` as a bundle says, unless it is set.
fn set_from_bundle(
    spec: &mut ExperimentSpec,
    name: &str,
    Sourced { value, source }: &Sourced<String>,
) -> Result<(), RunError> {
    let key = SettingKey::find(name).map_err(RunError::usage)?;
    if spec.has(name) {
        return Ok(());
    }
    spec.set(key, value, source.clone()).map_err(|message| {
        let (what, hint) = invalid(&name.replace('-', "_"), &quoted(value.as_bytes()), &message);
        at(source, what, hint)
    })
}

/// `spec` with the autoscaler of `bundle`, unless another setting names one.
fn with_scaling(mut spec: ExperimentSpec, bundle: Option<&Bundle>) -> Result<ExperimentSpec, RunError> {
    let chosen = bundle.and_then(|bundle| bundle.choices().scaling.as_ref());
    let Some(ScalingChoice { name, parameters }) = chosen.filter(|_| spec.autoscaler.is_none()) else {
        return Ok(spec);
    };
    spec.set(SettingKey::named("autoscaler"), name, name.source.clone()).map_err(RunError::usage)?;
    let is_set = |spec: &ExperimentSpec, name: &str| {
        spec.policy_param.iter().flatten().any(|one| one.kind == Kind::Scaling && one.name == name)
    };
    for (name, Sourced { value, source }) in
        parameters.iter().filter(|(name, _)| !is_set(&spec, name)).cloned().collect::<Vec<_>>()
    {
        let text = PolicyParam { kind: Kind::Scaling, name, value }.to_string();
        spec.set(SettingKey::named("policy-param"), &text, source).map_err(RunError::usage)?;
    }
    Ok(spec)
}

/// Each file can be written, and no two have the same path.
fn check_files(files: &OutputFiles) -> Result<(), RunError> {
    let at_end: Vec<_> = files.at_end().collect();
    for (index, &(flag, path)) in at_end.iter().enumerate() {
        if let Some((other, _)) = at_end[..index].iter().find(|(_, other)| *other == path) {
            return Err(RunError::usage(format_args!("`{other}` and `{flag}` name the same file"))
                .hint("one would overwrite the other; use different paths"));
        }
        check_target(path).map_err(|error| RunError::file(&error))?;
    }
    check_window(files)?;
    check_exports(&files.exports, &at_end)
}

/// The part of the run that is exported is not empty, and an export has it.
fn check_window(files: &OutputFiles) -> Result<(), RunError> {
    let ExportWindow { from, to, .. } = files.trace_window;
    if from >= to {
        let (from, to) = (from.as_secs_f64(), to.as_secs_f64());
        return Err(RunError::usage(format_args!("`--export-from` ({from} s) is not before `--export-to` ({to} s)")));
    }
    let has_window = files.exports.iter().any(|export| export.format == ExportFormat::Perfetto);
    if files.trace_window != ExportWindow::default() && !has_window {
        let what = "`--export-from`, `--export-to` and `--export-instances` choose what `--export perfetto=FILE` has";
        return Err(RunError::usage(what).hint("the other formats have the whole run: leave them out"));
    }
    Ok(())
}

/// The policies that the settings name.
fn choices(spec: &ExperimentSpec) -> Choices {
    let set = SourcedValues(spec);
    let both = set.value("scheduling-policy", spec.scheduling_policy.clone());
    let scheduler =
        both.clone().map(|both| both.map(|name| if name == "priority" { "priority-fcfs".into() } else { name }));
    let autoscaler = set.value("autoscaler", spec.autoscaler.clone().filter(|name| ScalingRow::find(name).is_none()));
    let chosen = |key: &&SettingKey| key.chooses.is_some_and(|kind| kind != Kind::Scaling) && spec.has(key.name);
    let mut names: BTreeMap<Kind, Sourced<String>> = KEYS
        .iter()
        .filter(chosen)
        .filter_map(|key| Some((key.chooses?, set.sourced(key.name, spec.texts_of(key).concat()))))
        .collect();
    if let Some(order) = names.get_mut(&Kind::Ordering) {
        *order = order.clone().map(flow::order_name);
    }
    for (kind, name) in [(Kind::Scaling, autoscaler.clone()), (Kind::Scheduling, scheduler), (Kind::Preemption, both)] {
        names.extend(name.filter(|_| !names.contains_key(&kind)).map(|name| (kind, name)));
    }
    let parameter = |(index, PolicyParam { kind, name, value }): (usize, &PolicyParam)| {
        let value = set.item("policy-param", index, value.clone());
        ParameterSetting { kind: *kind, name: name.clone(), value, key: None }
    };
    let parameters = spec.policy_param.iter().flatten().enumerate();
    // The autoscalers that are built in have rows and parameters of their own.
    let parameters = parameters.filter(|(_, one)| one.kind != Kind::Scaling || autoscaler.is_some());
    let scorers = spec.routing_scorers.as_ref();
    let filters = spec.routing_filters.as_ref();
    let mut choices = Choices {
        policies: names.into_iter().collect(),
        parameters: parameters.map(parameter).collect(),
        filters: filters.map(|list| list.0.iter().map(|one| set.sourced("routing-filters", one.clone())).collect()),
        scorers: scorers.map(|list| list.0.iter().map(|one| set.sourced("routing-scorers", one.clone())).collect()),
        picker: set.value("routing-picker", spec.routing_picker.clone()),
        flow: FlowControlSettings::new(spec)
            .map_or(Vec::new(), |flow| flow.policies(|flag| spec.has(flag).then(|| set.sourced(flag, ()).source))),
        ..Choices::default()
    };
    add_lora_scorer(&mut choices, set.value("lora-scorer-weight", spec.lora_scorer_weight));
    for (key, texts) in spec.entries() {
        let number = texts.first().and_then(|text| text.parse().ok());
        if let Some(parameter) = key.parameter {
            choices.set(parameter, number.map(|number| set.sourced(key.name, number)));
        }
    }
    choices
}

/// Adds the scorer of LoRA adapters to the list of scorers, or to the weights of `weighted` without a list.
fn add_lora_scorer(choices: &mut Choices, weight: Option<Sourced<f64>>) {
    let Some(Sourced { value: weight, source }) = weight else { return };
    let kind = ScorerKind::LoraAffinity;
    match &mut choices.scorers {
        Some(scorers) => {
            let value = WeightedScorer { name: ScorerName::BuiltIn(kind), weight, given: Vec::new() };
            scorers.push(Sourced { value, source });
        }
        None => choices.parameters.push(ParameterSetting {
            kind: Kind::Routing,
            name: kind.name().to_owned(),
            value: Sourced { value: ParameterInput::Number(weight), source },
            key: None,
        }),
    }
}

/// Values of settings, each with its source.
struct SourcedValues<'a>(&'a ExperimentSpec);

impl SourcedValues<'_> {
    fn sourced<T>(&self, name: &str, value: T) -> Sourced<T> {
        let flag = SettingSource::Flag(format!("--{name}").into());
        Sourced { value, source: self.0.source(name, flag) }
    }

    /// The item `index` of a list.
    fn item<T>(&self, name: &str, index: usize, value: T) -> Sourced<T> {
        let flag = SettingSource::Flag(format!("--{name}").into());
        Sourced { value, source: self.0.item_source(name, index, flag) }
    }

    fn value<T>(&self, name: &str, value: Option<T>) -> Option<Sourced<T>> {
        value.map(|value| self.sourced(name, value))
    }
}

/// `policies` as `parity` uses them, and the warnings that follow: BLIS accepts the priority policy of a bundle,
/// but uses the class priorities all the same.
pub fn as_in_blis(mut policies: PolicySettings, parity: ParityName) -> (PolicySettings, Vec<(String, String)>) {
    let used = policies.used(Kind::Priority).filter(|used| used.built_in.is_some() && used.name() != "class");
    let location = match used.map(|used| &used.source) {
        Some(SettingSource::File(location)) if parity == ParityName::Blis => location.clone(),
        _ => return (policies, Vec::new()),
    };
    let name = policies.name(Kind::Priority);
    let what = format!("{location}: the priority policy `{name}` has no effect with `--parity blis`");
    let hint = format!("BLIS uses class priorities with any bundle; the flag `--priority-policy {name}` has an effect");
    policies.reset(Kind::Priority, SettingSource::Other(format!("--parity blis ignores {location}").into()));
    (policies, vec![(what, hint)])
}

impl ClusterSettings {
    /// Instances of all groups at the start.
    pub(crate) fn instances(&self) -> u32 {
        self.groups.iter().fold(self.num_instances, |sum, group| sum.saturating_add(group.instances))
    }

    fn new(spec: &ExperimentSpec, policies: PolicySettings, scaling: Option<ScalingSettings>) -> Self {
        let first = scaling.as_ref().map_or(spec.num_instances(), |scaling| scaling.min.max(1));
        Self {
            num_instances: spec.num_instances.unwrap_or(first),
            admission_latency: spec.admission_latency(),
            routing_latency: spec.routing_latency(),
            snapshot_refresh_interval: spec.snapshot_refresh_interval(),
            cache_signal_delay: spec.cache_signal_delay(),
            tie_break: spec.tie_break(),
            flow_control: FlowControlSettings::new(spec),
            scaling,
            groups: spec.group.clone().unwrap_or_default(),
            disaggregation: None,
            policies,
            slo_targets: slo_targets(spec),
        }
    }
}

impl ClusterSettings {
    /// The same settings with instances that have roles, if there are any.
    fn with_roles(self, disaggregation: Option<DisaggregationSettings>) -> Self {
        let Some(settings) = disaggregation else { return self };
        Self { num_instances: settings.instances(), groups: Vec::new(), disaggregation: Some(settings), ..self }
    }
}

fn slo_targets(spec: &ExperimentSpec) -> BTreeMap<String, SloTargetSettings> {
    let mut targets: BTreeMap<String, SloTargetSettings> = BTreeMap::new();
    let set_by = SourcedValues(spec);
    let mut set =
        |name, list: &Option<TargetList>, field: fn(&mut SloTargetSettings) -> &mut Option<Sourced<Micros>>| {
            for (class, target) in list.iter().flat_map(|list| &list.0) {
                *field(targets.entry(class.clone()).or_default()) = Some(set_by.sourced(name, *target));
            }
        };
    set("slo-ttft", &spec.slo_ttft, |targets| &mut targets.ttft);
    set("slo-itl", &spec.slo_itl, |targets| &mut targets.itl);
    set("slo-e2e", &spec.slo_e2e, |targets| &mut targets.e2e);
    targets
}

impl EvaluationSettings {
    /// Whether decisions are recorded and neither written nor summarized.
    fn records_nothing(&self) -> bool {
        let recorded = self.trace_level != TraceLevelName::None;
        recorded && self.trace_path.is_none() && !self.summarize_trace && !self.regret.is_requested()
    }

    /// Whether the scores of routing decisions are needed: they are recorded, summarized or compared.
    pub fn reads_scores(&self) -> bool {
        self.trace_path.is_some() || self.summarize_trace || self.regret.is_requested()
    }

    fn new(spec: &ExperimentSpec) -> Result<Self, RunError> {
        let fitness = fitness(spec)?;
        if let Some(path) = &spec.trace_path {
            check_target(path).map_err(|error| RunError::file(&error))?;
        }
        Ok(Self {
            fitness,
            baseline: spec.baseline.clone(),
            trace_level: spec.trace_level(),
            trace_path: spec.trace_path.clone(),
            counterfactual_k: spec.counterfactual_k(),
            summarize_trace: spec.summarize_trace(),
            regret: RegretSettings::new(spec)?,
        })
    }
}

/// The decision log is written during the run and the other files at its end: with the same path one would overwrite
/// the other.
fn check_apart(trace: Option<&Path>, output: &OutputFiles) -> Result<(), RunError> {
    match output.at_end().find(|&(_, other)| trace == Some(other)) {
        Some((flag, _)) => Err(RunError::usage(format_args!("`{flag}` and `--trace-path` name the same file"))
            .hint("one would overwrite the other; use different paths")),
        None => Ok(()),
    }
}

fn fitness(spec: &ExperimentSpec) -> Result<Option<FitnessWeights>, RunError> {
    let weights = spec.fitness_weights.as_deref().map(|text| FitnessWeights::parse(text, spec.fitness_scale()));
    weights.transpose().map_err(RunError::refused)
}

fn check_exports(exports: &[Export], others: &[(&str, &Path)]) -> Result<(), RunError> {
    let files: Vec<PathBuf> = exports.iter().flat_map(Export::files).collect();
    for (index, file) in files.iter().enumerate() {
        if files[..index].contains(file) || others.iter().any(|(_, other)| other == file) {
            return Err(RunError::usage(format_args!("`{}` would be written twice", file.display()))
                .hint("one would overwrite the other; use different paths"));
        }
        check_target(file).map_err(|error| RunError::file(&error))?;
    }
    Ok(())
}

/// Arguments of the deployment. What does not depend on the model is checked when it is parsed, the rest when the
/// deployment is resolved.
fn deployment(model: String, spec: &ExperimentSpec) -> DeploymentArgs {
    let parity = spec.parity();
    let engine = spec.engine();
    DeploymentArgs {
        model,
        hardware: spec.hardware.clone(),
        tensor_parallel_size: spec.tp.filter(|&tp| tp > 0),
        pipeline_parallel_size: spec.pp,
        data_parallel_size: spec.dp(),
        vllm_version: spec.vllm_version.clone(),
        enable_expert_parallel: spec.enable_expert_parallel(),
        precision: precision(spec),
        enforce_eager: spec.enforce_eager(),
        sampler: engine.sampler(),
        moe_comm_backend: spec.moe_comm_backend.clone(),
        // If the latency model is a plugin, its fallback is the default model.
        latency_model: spec.latency_model.as_deref().and_then(|name| name.parse().ok()),
        default_latency: match parity {
            ParityName::Blis => LatencyKind::TrainedPhysics,
            ParityName::Vllm => LatencyKind::Physics,
        },
        alpha_coeffs: spec.alpha_coeffs.clone(),
        beta_coeffs: spec.beta_coeffs.clone(),
        latency_parameters: Vec::new(),
        coefficients: spec.coefficients.clone(),
        total_kv_blocks: spec.total_kv_blocks,
        block_size: spec.block_size_in_tokens(),
        max_model_len: spec.max_model_len.and_then(|tokens| u32::try_from(tokens).ok()).filter(|&tokens| tokens > 0),
        auto_model_len: spec.max_model_len.is_some_and(|tokens| tokens < 0),
        gpu_memory_utilization: spec.gpu_memory_utilization,
        engine_version: spec.engine_version,
        kv_cache_memory_bytes: spec.kv_cache_memory_bytes,
        cache: CacheArgs {
            prefix_caching: spec.enable_prefix_caching(),
            disable_hybrid: spec.disable_hybrid_kv_cache_manager(),
            prefix_match_unit: spec.prefix_match_unit,
            retention: u32::try_from(spec.prefix_cache_retention_interval()).ok(),
            gdn_prefill: spec.gdn_prefill_backend.map(|name| match name {
                GdnPrefillName::FlashInfer => GdnPrefill::FlashInfer,
                GdnPrefillName::Triton => GdnPrefill::Triton,
            }),
            asynchronous: spec.async_scheduling.unwrap_or(parity == ParityName::Vllm),
        },
        batch: BatchSettings {
            engine: (parity == ParityName::Vllm).then_some(engine),
            max_num_seqs: spec.max_num_seqs,
            max_num_batched_tokens: spec.max_num_batched_tokens,
            unchunked_prefill: spec.enable_chunked_prefill == Some(false),
        },
        offload: offload(spec),
        blis_tiers: None,
        model_config_folder: spec.model_config_folder.clone(),
        hardware_config: spec.hardware_config.clone(),
        adapters: None,
    }
}

/// The CPU tier of the flags, if it has a size.
fn offload(spec: &ExperimentSpec) -> Option<OffloadArgs> {
    let size_gib = spec.kv_offloading_size.filter(|&size| size > 0.0)?;
    Some(OffloadArgs {
        size_gib,
        eviction: match spec.kv_offloading_eviction_policy() {
            ChunkEvictionName::Lru => ChunkEviction::Lru,
            ChunkEvictionName::Arc => ChunkEviction::Arc,
        },
        blocks_per_chunk: spec.kv_offloading_blocks_per_chunk(),
        store_threshold: spec.kv_offloading_store_threshold(),
        prompt_only: !spec.kv_offloading_all_tokens(),
        bandwidth: spec.kv_offloading_bandwidth(),
        bandwidth_both: spec.kv_offloading_bandwidth_both,
        latency: spec.kv_offloading_latency(),
        secondary: secondary(spec),
    })
}

/// The tier of the flags below the CPU tier.
fn secondary(spec: &ExperimentSpec) -> Option<SecondaryArgs> {
    let kind = match spec.kv_offloading_secondary() {
        SecondaryTierName::None => return None,
        SecondaryTierName::Fs => SecondaryKind::Files,
        SecondaryTierName::Obj => SecondaryKind::Objects,
        SecondaryTierName::P2p => SecondaryKind::Peers,
    };
    let backpressure = match spec.kv_offloading_backpressure() {
        BackpressureName::None => BackpressurePolicy::None,
        BackpressureName::Drop => BackpressurePolicy::Drop,
        BackpressureName::Throttle => BackpressurePolicy::Throttle,
    };
    Some(SecondaryArgs {
        kind,
        bandwidth: spec.kv_offloading_secondary_bandwidth,
        latency: spec.kv_offloading_secondary_latency,
        backpressure,
        shared: spec.kv_offloading_secondary_shared(),
    })
}

/// The number formats of the flags. BLIS has none of them: it takes the formats of the model's config.
fn precision(spec: &ExperimentSpec) -> PrecisionArgs {
    let usual = match spec.parity() {
        ParityName::Blis => Dtype::Stored,
        ParityName::Vllm => Dtype::Auto,
    };
    PrecisionArgs {
        dtype: match spec.dtype() {
            DtypeName::Auto => usual,
            DtypeName::Half | DtypeName::Float16 => Dtype::Float16,
            DtypeName::Bfloat16 => Dtype::Bfloat16,
            DtypeName::Float | DtypeName::Float32 => Dtype::Float32,
        },
        quantization: spec.quantization,
        kv_cache_dtype: spec.kv_cache_dtype(),
    }
}

impl EngineConfig {
    fn new(spec: &ExperimentSpec, policies: &PolicySettings) -> Self {
        let parity = spec.parity();
        let profile = spec.engine();
        let keeps_decoded_kv = spec.pd_bidirectional();
        let mut engine = Self {
            long_prefill_token_threshold: spec.long_prefill_token_threshold(),
            block_size: spec.block_size_in_tokens(),
            enable_prefix_caching: spec.enable_prefix_caching(),
            enable_chunked_prefill: spec.enable_chunked_prefill(),
            async_scheduling: spec.async_scheduling.unwrap_or(parity == ParityName::Vllm),
            reserve_full_prompt: spec
                .scheduler_reserve_full_isl
                .unwrap_or(parity == ParityName::Vllm && profile.reserves_full_prompt()),
            watermark: spec.watermark(),
            options: SchedulerOptions {
                max_num_active_seqs: spec.max_num_active_seqs,
                adaptive_prefill_threshold: spec.long_prefill_token_threshold_adaptive(),
                prefill_schedule_interval: spec.prefill_schedule_interval(),
                watermark_blocks: 0,
                max_num_queued_reqs: spec.max_num_queued_reqs,
                max_num_queued_tokens: spec.max_num_queued_tokens,
                keeps_decoded_kv,
                kv_recompute_threshold: if keeps_decoded_kv { spec.pd_recompute_threshold() } else { 0 },
            },
            scheduler: Scheduler::default(),
            preemption: Preemption::default(),
            semantics: match parity {
                ParityName::Vllm => profile.semantics(),
                ParityName::Blis => Semantics::BLIS,
            },
            profile: (parity == ParityName::Vllm).then_some(profile),
            simulation: spec.simulation(),
        };
        engine.follow(policies);
        engine
    }

    /// Takes the scheduler and the preemption policy of `policies`.
    pub fn follow(&mut self, policies: &PolicySettings) {
        self.scheduler = policies.scheduler();
        self.preemption = policies.preemption();
    }

    /// The configuration of the instance `index` with this scheduler on `deployment`, without tiers.
    fn instance(&self, index: InstanceIndex, deployment: &Deployment, classes: &Arc<Classes>) -> InstanceConfig {
        let limits = deployment.instance_limits();
        let active = self.options.max_num_active_seqs;
        InstanceConfig {
            index,
            labels: blis_sim::policy::InstanceLabels::default(),
            max_num_seqs: limits.max_num_seqs,
            // Each of the micro-batches of a round has the budget: `blis_sim::latency::Pipeline`.
            max_num_batched_tokens: (limits.max_num_batched_tokens).saturating_mul(deployment.pipeline_parallel_size),
            long_prefill_token_threshold: deployment.prompt_threshold(self.long_prefill_token_threshold),
            max_model_len: deployment.max_model_len,
            block_size: self.block_size,
            total_kv_blocks: deployment.total_kv_blocks,
            enable_prefix_caching: self.enable_prefix_caching,
            enable_chunked_prefill: self.enable_chunked_prefill,
            async_scheduling: self.async_scheduling,
            reserve_full_prompt: self.reserve_full_prompt,
            options: SchedulerOptions {
                // vLLM counts the null block, too, and rounds down.
                max_num_active_seqs: active.map(|most| most.saturating_mul(deployment.engine_processes.max(1))),
                watermark_blocks: (self.watermark * (f64::from(deployment.total_kv_blocks) + 1.0)) as u32,
                ..self.options
            },
            policies: InstancePolicies {
                scheduler: self.scheduler.into(),
                preemption: self.preemption.into(),
                ..InstancePolicies::default()
            },
            classes: Arc::clone(classes),
            offload: deployment.offload,
            adapters: None,
            semantics: self.semantics,
            latency: deployment.latency.clone(),
            blis_tiers: None,
            kv_groups: None,
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
