//! One simulation from a valid experiment to its reports.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use blis_config::Deployment;
use blis_config::policy::PolicySettings;
use blis_plugin::Kind;
use blis_plugin::incidents::Incident;
use blis_report::{
    Caveat, CaveatCode, DecisionSummary, EmptyFigures, EventLog, Export, GpuEnergy, GroupName, Journal, LoadLog,
    LoadReport, PoolName, ReplicasDocument, RequestLog, RunCharts, ServiceCost, Setting, TpotLog, report_document,
};
use blis_sim::metrics::{Distribution, Report};
use blis_sim::observer::{Interests, Observer, SimEvent};
use blis_sim::outcome::{DropReason, Outcome, Rejection, Status};
use blis_sim::request::{Name, Request};
use blis_sim::units::Micros;
use blis_stats::StateReport;
use blis_workload::{Names, Skipped, Workload};

use crate::charges::EndLog;
use crate::counterfactual;
use crate::disaggregation::DisaggregationSettings;
use crate::envelope::{ResultSubject, caveats_of, parallelism};
use crate::error::RunError;
use crate::experiment::{self, Experiment, OutputFiles};
use crate::figures::Figures;
use crate::fitness::{Fitness, FitnessScale, FitnessWeights};
use crate::identity::{self, RunIdentity};
use crate::kv_layout::KvCacheDocument;
use crate::load_warnings::{LoadWarning, load_of_run, load_warnings};
use crate::measure::{
    Measurement, check_weights, class_rules, end_log, measure, metrics_options, no_sample, plugin_warnings,
};
use crate::named_policy::OtherPolicies;
use crate::node_pool::NodePoolSettings;
use crate::open;
use crate::over_time;
use crate::prices::GpuPrice;
use crate::recording;
use crate::regret::Regret;
use crate::run_state::{RunTraces, caveat_of, state_of_run};
use crate::service;
use crate::spec::ParityName;
use crate::spec::parse::EVERY_CLASS;
use crate::targets::NamedWorkload;
use crate::timer::Timer;
use crate::workload_config::{SpecConfig, SpecOrigin, SyntheticConfig, WorkloadConfig, plural};

/// Counts requests as the simulation takes them out of a workload, for example for a progress bar.
pub trait RequestCounter {
    /// Returns the same requests, and counts them as they are taken; `total` is their number, if it is known.
    fn watch<'a>(
        &self,
        requests: Box<dyn Iterator<Item = Request> + Send + 'a>,
        total: Option<u64>,
    ) -> Box<dyn Iterator<Item = Request> + Send + 'a>;
}

/// Progress that is not shown.
impl RequestCounter for () {
    fn watch<'a>(
        &self,
        requests: Box<dyn Iterator<Item = Request> + Send + 'a>,
        _total: Option<u64>,
    ) -> Box<dyn Iterator<Item = Request> + Send + 'a> {
        requests
    }
}

/// The results of a simulation, with warnings.
pub struct RunResult {
    pub setting: Setting,
    pub report: Report,
    /// Offered and served load; `None` if all requests arrive at once.
    pub load: Option<LoadReport>,
    /// Replicas of an autoscaled service.
    pub replicas: Option<ReplicasDocument>,
    /// What the run cost, with a price list.
    pub cost: Option<ServiceCost<Vec<GpuPrice>>>,
    /// The energy of its GPUs, with `--energy`.
    pub energy: Option<GpuEnergy>,
    /// Time per output token, over requests.
    pub tpot: Distribution,
    /// What the results are the results of.
    pub identity: RunIdentity,
    /// The same in words.
    pub subject: ResultSubject,
    /// Whether the figures are those of a steady service.
    pub state: StateReport,
    /// What limits any conclusion.
    pub caveats: Vec<Caveat>,
    /// The KV groups of the deployment, if they are known.
    pub kv_cache: Option<KvCacheDocument>,
    /// How latencies without samples are printed.
    pub empty: EmptyFigures,
    pub names: Names,
    /// The summary of decisions, with `--summarize-trace`.
    pub decisions: Option<DecisionSummary>,
    /// The regret, with `--regret outcome`.
    pub regret: Option<Regret>,
    /// The fitness, with `--fitness-weights`, and the name of the baseline if the fitness is relative to one.
    pub fitness: Option<(Fitness, Option<String>)>,
    /// (what, what to do)
    pub warnings: Vec<(String, String)>,
    /// The policies that decided.
    pub policies: PolicySettings,
    /// Failures of plugins that did not end the run.
    pub incidents: Vec<Incident>,
    /// Whether the result files were written.
    pub files: Result<(), RunError>,
    /// What its page shows beyond figures, with `--report`.
    pub charts: Option<RunCharts>,
    /// CPU time of the simulation alone.
    pub cpu: Duration,
}

/// Sets up the experiment, simulates it, and writes its files.
pub fn run(config: &Experiment, progress: &impl RequestCounter) -> Result<RunResult, RunError> {
    tracing::debug!(seed = config.seed, horizon = ?config.horizon, "{:?}", config.engine);
    let deployment = open::resolve(config)?;
    service::try_scripts(config)?;
    let (workload, horizon) = open::open_until(config)?;
    simulate(&Experiment { horizon, ..config.clone() }, &deployment, workload, progress)
}

fn simulate(
    config: &Experiment,
    deployment: &Deployment,
    workload: Workload,
    progress: &impl RequestCounter,
) -> Result<RunResult, RunError> {
    let Workload { requests, follow_ups, count, names, slo_targets, aside: _, recorded: _, skipped, notes } = workload;
    for note in deployment.notes.iter().chain(&notes) {
        tracing::info!("{note}");
    }
    // All mistakes that can be found now are found before anything is written or simulated.
    if let Some(weights) = &config.evaluation.fitness {
        check_weights(weights, config, &names, &slo_targets)?;
    }
    let baseline = baseline(config)?;
    let OutputFiles { metrics_path, results_path, page, .. } = &config.files;
    let needs_requests = metrics_path.is_some() || results_path.is_some() || page.is_some();
    let evaluation = &config.evaluation;
    let decisions = recording::open(config, deployment, &names)?;
    let sessions = open::steady_sessions(config)?;
    let is_open = follow_ups.is_none();
    let observers = (
        (
            (needs_requests.then(RequestLog::new), EventLog::if_enabled()),
            (RefusedRequests::default(), (LoadLog::default(), TpotLog::new(config.warmup))),
        ),
        (
            (evaluation.summarize_trace.then(DecisionSummary::default), (decisions, over_time::log(config))),
            (
                (journal(config, deployment), end_log(config, &names, &slo_targets)),
                counterfactual::surveyor(config, &names, &slo_targets),
            ),
        ),
    );
    let requests = progress.watch(requests, count);
    let named = NamedWorkload { names: &names, slo_targets: &slo_targets };
    let timer = Timer::start();
    let Measurement { report, observer, incidents, .. } =
        measure(config, deployment, named, requests, follow_ups, observers)?;
    let cpu = timer.elapsed();
    let (((log, _), (refused, (load_log, tpot))), ((summary, (decisions, series)), ((journal, ends), surveyor))) =
        observer;
    let regret =
        surveyor.map(|surveyor| counterfactual::regret(config, deployment, named, surveyor.survey)).transpose()?;
    let fitness = evaluation
        .fitness
        .as_ref()
        .map(|weights| fitness(weights, baseline, config, &names, deployment, &report, ends))
        .transpose()?;
    let load = load_of_run(&load_log, slots(config, deployment), is_open, sessions.as_ref(), &report);
    let mut warnings = warnings(config, deployment, &report, &names, &skipped, &refused);
    warnings.extend(plugin_warnings(config, &incidents));
    let of_load = load_warnings(config, &report, load.as_ref(), sessions.as_ref());
    let others = warnings.iter().map(|(what, _)| Caveat::new(CaveatCode::Warning, what.clone()));
    let traces =
        RunTraces { report: &report, log: &load_log, load: load.as_ref(), is_open, sessions: sessions.as_ref() };
    let state = state_of_run(config, deployment, &traces)?;
    let caveats = of_load.iter().map(LoadWarning::caveat).chain(caveats_of(config, deployment)).chain(others);
    let caveats = caveat_of(&state).into_iter().chain(caveats).collect();
    warnings.extend(of_load.into_iter().map(|warning| (warning.what, warning.hint)));
    let subject = ResultSubject::new(config, deployment, &[config.seed])?;
    let empty = empty_figures(config);
    let roles = config.cluster.disaggregation.as_ref();
    let pools = roles.map(|roles| roles.deployments(&config.deployment)).transpose()?;
    let estimates = roles.zip(pools.as_ref()).and_then(|(roles, pools)| roles.encode_note(pools));
    let unlisted = (evaluation.counterfactual_k > 0 && evaluation.trace_path.is_none())
        .then(|| "--counterfactual-k: candidates are listed in the file of --trace-path, and there is none".to_owned());
    let notes: Vec<String> = notes.into_iter().chain(estimates).chain(unlisted).collect();
    let identity = {
        let figures = report_document(&report, &names, empty);
        RunIdentity::new(config, deployment, &notes, &warnings, &figures)?
    };
    let files = recording::finish(decisions, config)
        .and(write_files(config, &report, log.as_ref(), &names))
        .and(export(config, deployment, journal.as_ref(), named));
    let (files, series) = match over_time::finish(config, series) {
        Ok(series) => (files, series),
        Err(error) => (files.and(Err(error)), None),
    };
    let charts = series.zip(log.filter(|_| config.files.page.is_some()));
    let charts = charts.map(|(series, log)| RunCharts::new(&series, &log, &names, config.warmup));
    let further = config.further_deployments()?;
    let deployments: Vec<&Deployment> = std::iter::once(deployment).chain(&further).collect();
    // Of the groups of replicas, in their order.
    let of_groups = pools.as_ref().map_or_else(|| deployments.clone(), |pools| pools.iter().collect());
    Ok(RunResult {
        kv_cache: deployment.kv_layout.as_ref().map(KvCacheDocument::new),
        setting: setting(config, &deployments, &notes),
        load,
        replicas: report.replicas.as_ref().map(|replicas| {
            ReplicasDocument::new(replicas, &group_names(&of_groups, roles), &pool_names(config, deployment))
        }),
        cost: ServiceCost::new(&report, gpu_prices(config, &of_groups)?),
        energy: GpuEnergy::new(&report, &deployment.hardware),
        tpot: tpot.distribution(),
        identity,
        subject,
        state,
        caveats,
        empty,
        warnings,
        policies: config.cluster.policies.clone(),
        incidents,
        files,
        charts,
        report,
        decisions: summary,
        regret,
        fitness,
        names,
        cpu,
    })
}

/// Requests that all instances together can execute at a time.
pub(crate) fn slots(config: &Experiment, deployment: &Deployment) -> u64 {
    let cluster = &config.cluster;
    let most = match (&cluster.disaggregation, &cluster.scaling) {
        (Some(roles), scaling) => roles.most_instances(scaling.as_ref()),
        (None, Some(scaling)) => scaling.max.max(cluster.instances()),
        (None, None) => cluster.instances(),
    };
    u64::from(deployment.instance_limits().max_num_seqs) * u64::from(most)
}

/// BLIS prints latencies without samples as 0.
fn empty_figures(config: &Experiment) -> EmptyFigures {
    match config.spec.parity() {
        ParityName::Blis => EmptyFigures::Zero,
        ParityName::Vllm => EmptyFigures::Null,
    }
}

/// The baseline of a relative fitness: its name, and its experiment.
fn baseline(config: &Experiment) -> Result<Option<(String, Experiment)>, RunError> {
    const USUAL: &str = "round-robin";
    let scale = config.evaluation.fitness.as_ref().map(FitnessWeights::scale);
    if scale != Some(FitnessScale::Ratio) {
        return Ok(None);
    }
    let name = config.evaluation.baseline.as_deref().unwrap_or(USUAL);
    Ok(Some((name.to_owned(), config.with_policy(name, OtherPolicies::Defaults)?)))
}

/// The score of a run: by the formula of BLIS, or against a run of `baseline` under the same requests.
fn fitness(
    weights: &FitnessWeights,
    baseline: Option<(String, Experiment)>,
    config: &Experiment,
    names: &Names,
    deployment: &Deployment,
    report: &Report,
    ends: Option<EndLog>,
) -> Result<(Fitness, Option<String>), RunError> {
    let (Some((name, baseline)), Some(ends)) = (baseline, ends) else {
        return Ok((weights.blis(&Figures::from(report), no_sample(config.engine.semantics)), None));
    };
    // Classes are worth the same in both runs, whatever the bundle of one says.
    let rules = class_rules(config, names);
    let charge = |log: EndLog, report: &Report, names: &Names| {
        log.charge(report, &rules, names).figures(weights, &Figures::from(report))
    };
    let own = charge(ends, report, names);
    let Workload { requests, follow_ups, names, slo_targets, .. } = open::open(&baseline)?;
    let log = EndLog::new(&metrics_options(&baseline, &names, &slo_targets));
    let named = NamedWorkload { names: &names, slo_targets: &slo_targets };
    let Measurement { report, observer, .. } = measure(&baseline, deployment, named, requests, follow_ups, log)?;
    Ok((weights.relative(&own, &charge(observer, &report, &names)), Some(name)))
}

/// The records that the export formats need, if there are exports.
fn journal(config: &Experiment, deployment: &Deployment) -> Option<Journal> {
    let detail = config.files.exports.iter().map(|export| export.format.detail()).max()?;
    let plugin = config.cluster.policies.plugin(Kind::Latency).is_some();
    let latency = (!plugin).then(|| deployment.latency.clone());
    Some(Journal::new(detail, config.engine.semantics, latency))
}

fn export(
    config: &Experiment,
    deployment: &Deployment,
    journal: Option<&Journal>,
    NamedWorkload { names, slo_targets }: NamedWorkload<'_>,
) -> Result<(), RunError> {
    let Some(journal) = journal else { return Ok(()) };
    let about = blis_report::ServiceInfo {
        model: deployment.model.clone(),
        block_size: config.block_size(),
        total_kv_blocks: deployment.total_kv_blocks,
        tensor_parallel: deployment.tensor_parallel_size,
        max_num_seqs: deployment.instance_limits().max_num_seqs,
        max_model_len: deployment.max_model_len,
        seed: config.seed,
        slo_targets: slo_targets.clone(),
    };
    let write = |export: &Export| {
        export.write(journal, &about, names, &config.files.trace_window).map_err(|error| RunError::file(&error))
    };
    config.files.exports.iter().try_for_each(write)
}

fn write_files(config: &Experiment, report: &Report, log: Option<&RequestLog>, names: &Names) -> Result<(), RunError> {
    let Some(log) = log else { return Ok(()) };
    let written = |result: Result<(), blis_report::FileError>| result.map_err(|error| RunError::file(&error));
    if let Some(path) = &config.files.metrics_path {
        written(blis_report::write_json(
            path,
            &blis_report::metrics_document(report, log, names, empty_figures(config)),
        ))?;
    }
    if let Some(path) = &config.files.results_path {
        written(blis_report::write_json(path, &blis_report::results_document(log, names)))?;
    }
    Ok(())
}

/// What distinguishes each group.
fn group_names(deployments: &[&Deployment], roles: Option<&DisaggregationSettings>) -> Vec<GroupName> {
    let name = |(index, deployment): (usize, &&Deployment)| GroupName {
        role: roles.and_then(|roles| roles.pools[index].role()).map(|role| role.to_string()),
        model: deployment.model.clone(),
        hardware: deployment.hardware.clone(),
        gpus_per_replica: deployment.gpus(),
    };
    deployments.iter().enumerate().map(name).collect()
}

/// What distinguishes each node pool, where `first` is the deployment of the first group.
fn pool_names(config: &Experiment, first: &Deployment) -> Vec<PoolName> {
    let name = |pool: &NodePoolSettings| PoolName {
        name: pool.name.clone(),
        hardware: pool.hardware.clone().unwrap_or_else(|| first.hardware.clone()),
        gpus_per_node: pool.gpus_per_node,
    };
    config.spec.node_pool.iter().flatten().map(name).collect()
}

/// The prices of the GPUs of all groups, each once; none without a price list.
fn gpu_prices(config: &Experiment, deployments: &[&Deployment]) -> Result<Vec<GpuPrice>, RunError> {
    let Some(list) = &config.prices else { return Ok(Vec::new()) };
    let mut prices: Vec<GpuPrice> = Vec::new();
    for deployment in deployments {
        let price = list.price(&deployment.hardware)?;
        if !prices.contains(&price) {
            prices.push(price);
        }
    }
    Ok(prices)
}

/// The instances of a group in words: `2 × H100 (TP 2)`.
fn hardware(deployment: &Deployment) -> String {
    format!("{} × {} ({})", deployment.gpus(), deployment.hardware, parallelism(deployment))
}

fn setting(config: &Experiment, deployments: &[&Deployment], notes: &[String]) -> Setting {
    let deployment = deployments[0];
    let groups = config.cluster.groups.iter().zip(&deployments[1..]);
    let groups = groups.map(|(group, further)| {
        let (count, model, hardware) = (plural(group.instances.into(), "instance"), &further.model, hardware(further));
        format!("group: {count} of {model} on {hardware} each")
    });
    let groups: Vec<String> = groups.collect();
    // Resolved before the run.
    let pools = config.cluster.disaggregation.as_ref().map(|roles| roles.deployments(&config.deployment));
    let mut kinds: Vec<String> = pools.and_then(Result::ok).iter().flatten().map(hardware).collect();
    kinds.dedup();
    Setting {
        model: deployment.model.clone(),
        hardware: if kinds.is_empty() { hardware(deployment) } else { kinds.join(" or ") },
        latency_model: identity::latency_model(config, deployment),
        kv_blocks: deployment.total_kv_blocks,
        block_size: config.block_size(),
        kv_blocks_source: deployment.kv_blocks_source.to_string(),
        max_model_len: deployment.max_model_len,
        workload: config.workload.to_string(),
        notes: groups.iter().chain(&deployment.notes).chain(notes).cloned().collect(),
    }
}

/// Warnings about effects that the figures do not show.
fn warnings(
    config: &Experiment,
    deployment: &Deployment,
    report: &Report,
    names: &Names,
    skipped: &Skipped,
    refused: &RefusedRequests,
) -> Vec<(String, String)> {
    let counts = &report.cluster.counts;
    let mut warnings = config.warnings.clone();
    warnings.extend(unknown_classes(&config.cluster.slo_targets, report, names));
    warnings.extend(refused.other_models(&deployment.model, names));
    warnings.extend(config.cluster.disaggregation.as_ref().and_then(|roles| roles.idle_prefills(report)));
    let mut warn = |what: String, hint: &str| warnings.push((what, hint.to_owned()));
    for key in &deployment.warnings {
        warn(key.clone(), "compare with measurements of the model before acting on the figures: `blis validate`");
    }
    for warning in &deployment.memory_warnings {
        warn(warning.what.clone(), &warning.hint);
    }
    if let Some(first) = skipped.first.first() {
        // The hint of the line itself is left out.
        warn(
            format!("{} of the trace left out; the first: {}", plural(skipped.count, "line"), first.headline()),
            "without `--skip-bad-lines` a bad line ends the run",
        );
    }
    let usual_timeout = match &config.workload {
        WorkloadConfig::Synthetic(SyntheticConfig { spec, timeout_is_default: true, .. }) => spec.timeout,
        WorkloadConfig::Specified(SpecConfig {
            origin: SpecOrigin::Named(_) | SpecOrigin::Users { .. },
            timeout: Some(timeout),
            ..
        }) if config.spec.timeout.is_none() => *timeout,
        _ => None,
    };
    if let (Some(timeout), true) = (usual_timeout, counts.timed_out > 0) {
        let (requests, seconds) = (plural(counts.timed_out, "request"), timeout.as_secs_f64());
        warn(
            format!("{requests} timed out after {seconds} s, the default deadline"),
            "their end-to-end latency is in no figure; `--timeout` sets another deadline, `--timeout -1` none",
        );
    }
    for (reason, count) in [
        (DropReason::PromptTooLong, counts.dropped_prompt_too_long),
        (DropReason::BudgetTooLong, counts.dropped_budget_too_long),
        (DropReason::KvTooSmall, counts.dropped_kv_too_small),
        (DropReason::NoDecodeBlocks, counts.dropped_no_decode_blocks),
    ] {
        if count > 0 {
            let first = refused.with_reason(reason).next().and_then(|refused| refused.instance);
            let roles = config.cluster.disaggregation.as_ref();
            let own = roles.zip(first).and_then(|(roles, first)| roles.deployment_of(first, &config.deployment));
            let (why, hint) = refusal(reason, config, own.as_ref().unwrap_or(deployment));
            warn(format!("{} dropped: {why}: {}", plural(count, "request"), refused.names(reason, count)), &hint);
        }
    }
    if counts.completed == 0 {
        let hint = if counts.timed_out > 0 {
            "the deadline passes before anything completes; `--timeout` sets another, `--timeout -1` none"
        } else if counts.rejected_by_routing > 0 {
            "no request is for the model that is served; see above"
        } else if counts.dropped() > 0 {
            "every request was dropped; see above"
        } else if counts.rejected_by_admission > 0 {
            "the admission policy admitted no request that could complete; `--admission-policy always-admit` admits all"
        } else if config.horizon == Micros::MAX {
            "check the workload"
        } else {
            "`--horizon` is in µs; raise it"
        };
        warn("no request completed".to_owned(), hint);
    }
    warnings
}

/// SLO targets of classes without requests: most likely a misspelled name.
fn unknown_classes(
    targets: &BTreeMap<String, experiment::SloTargetSettings>,
    report: &Report,
    names: &Names,
) -> Option<(String, String)> {
    let named: BTreeSet<&str> =
        report.classes.iter().map(|&(name, _)| if name == Name::NONE { "default" } else { names.text(name) }).collect();
    let known = if named.is_empty() { BTreeSet::from(["default"]) } else { named };
    let quoted = |classes: &[&str]| classes.iter().map(|class| format!("`{class}`")).collect::<Vec<_>>().join(", ");
    let unknown: Vec<&str> =
        targets.keys().map(String::as_str).filter(|class| *class != EVERY_CLASS && !known.contains(class)).collect();
    let known: Vec<&str> = known.into_iter().collect();
    (!unknown.is_empty() && report.arrived > 0).then(|| {
        let what = format!("no request is of the class {}, which has an SLO target", quoted(&unknown));
        (what, format!("there are requests of the class {}", quoted(&known)))
    })
}

/// Why requests were dropped, and what to do about it.
fn refusal(reason: DropReason, config: &Experiment, deployment: &Deployment) -> (String, String) {
    let cache = u64::from(deployment.total_kv_blocks) * u64::from(config.block_size());
    let larger_cache = "raise `--total-kv-blocks`, `--gpu-memory-utilization` or `--tp`";
    let too_long = |what: &str| {
        let limit = deployment.max_model_len.map_or(u64::MAX, u64::from);
        let (budget, chunked) = (deployment.batch_limits.max_num_batched_tokens, config.engine.enable_chunked_prefill);
        if !chunked && u64::from(budget) < limit {
            let hint = "raise `--max-num-batched-tokens`, or enable chunked prefill";
            (format!("prompt and output exceed the {budget} tokens of one step"), hint)
        } else if limit == cache
            && config.deployment.max_model_len.is_none_or(|given| given == 0 || u64::from(given) > limit)
        {
            (format!("{what} the KV cache, {}", plural(cache, "token")), larger_cache)
        } else {
            (format!("{what} the maximum model length, {}", plural(limit, "token")), "raise `--max-model-len`")
        }
    };
    let (why, hint) = match reason {
        DropReason::PromptTooLong => too_long("the prompt alone fills"),
        DropReason::BudgetTooLong => too_long("prompt and output exceed"),
        DropReason::KvTooSmall => (format!("larger than the KV cache, {}", plural(cache, "token")), larger_cache),
        DropReason::NoDecodeBlocks => {
            let hint = "add `--decode-instances`, or raise `--total-kv-blocks`; with vLLM requests wait instead";
            ("no KV blocks were free on the decode instance when the prefill had ended".to_owned(), hint)
        }
    };
    (why, hint.to_owned())
}

/// Requests that were dropped or rejected by routing: the first ones, so that the user can find them, and the models
/// that they name.
#[derive(Default)]
struct RefusedRequests {
    dropped: Vec<Outcome>,
    /// Models that are not served, in the order in which requests named them, with the number of requests.
    models: Vec<(Name, u64)>,
}

impl RefusedRequests {
    /// Requests listed per reason; the others are only counted.
    const NAMED: usize = 5;

    /// `request_3 (9000 tokens in, 20 out), … and 4 more`.
    fn names(&self, reason: DropReason, count: u64) -> String {
        let named = self.with_reason(reason).map(|refused| {
            let Outcome { id, input_tokens, output_tokens, .. } = refused;
            format!("request_{id} ({input_tokens} tokens in, {output_tokens} out)")
        });
        let mut text = named.collect::<Vec<_>>().join(", ");
        let rest = count.saturating_sub(self.with_reason(reason).count() as u64);
        if rest > 0 {
            text.push_str(&format!(" and {rest} more"));
        }
        text
    }

    fn with_reason(&self, reason: DropReason) -> impl Iterator<Item = &Outcome> {
        self.dropped.iter().filter(move |refused| refused.status == Status::Dropped(reason))
    }

    /// The warning about requests for models other than `served`.
    fn other_models(&self, served: &str, names: &Names) -> Option<(String, String)> {
        let (first, _) = self.models.first()?;
        let count = plural(self.models.iter().map(|(_, count)| count).sum(), "request");
        let listed =
            self.models.iter().take(Self::NAMED).map(|&(name, count)| format!("`{}` ({count})", names.text(name)));
        let mut listed = listed.collect::<Vec<_>>().join(", ");
        if self.models.len() > Self::NAMED {
            listed.push_str(&format!(" and {} more", self.models.len() - Self::NAMED));
        }
        let hint = format!(
            "serve it with `--model {}`, or empty the column `model` of the trace: a request without a model is served by any",
            names.text(*first)
        );
        Some((format!("{count} rejected: only `{served}` is served, and they are for {listed}"), hint))
    }
}

impl Observer for RefusedRequests {
    #[inline]
    fn interests(&self) -> Interests {
        Interests::OUTCOMES
    }

    #[inline]
    fn record(&mut self, event: &SimEvent<'_>) {
        if let SimEvent::Outcome(outcome) = event {
            self.add(outcome);
        }
    }
}

impl RefusedRequests {
    fn add(&mut self, outcome: &Outcome) {
        match outcome.status {
            Status::Dropped(reason) if self.with_reason(reason).count() < Self::NAMED => self.dropped.push(*outcome),
            Status::Rejected(Rejection::Routing) => {
                let model = outcome.tags.model;
                match self.models.iter_mut().find(|(name, _)| *name == model) {
                    Some((_, count)) => *count += 1,
                    None => self.models.push((model, 1)),
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
