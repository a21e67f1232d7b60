//! One simulation from a valid configuration to its reports.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display};
use std::time::Duration;

use blis_sim::cluster::{Cluster, FollowUps, Halt, SessionStates};
use blis_sim::instance::{Fast, Instance, Plain, Scheduler};
use blis_sim::metrics::{Metrics, MetricsOptions, Report, SloTargets};
use blis_sim::outcome::{Counters, DropReason, Outcome, Rejection, Sink, Status};
use blis_sim::request::{Name, Request};
use blis_sim::semantics::Semantics;
use blis_sim::units::Micros;

use super::args::EngineName;
use super::compare::no_sample;
use super::config::{self, RunConfig, SpecConfig, SpecOrigin, SyntheticConfig, TraceConfig, WorkloadConfig};
use super::connect;
use super::contest::Others;
use super::decisions;
use super::error::Failure;
use super::progress::Progress;
use super::regret;
use super::service;
use super::timer::Timer;
use blis_config::Deployment;
use blis_config::policy::{PolicySettings, Sourced};
use blis_eval::regret::Regret;
use blis_eval::{Figures, Fitness, FitnessScale, FitnessWeights, Needs};
use blis_plugin::incidents::{Incident, Incidents};
use blis_plugin::{Kind, Technology};
use blis_report::{DecisionSummary, Export, Journal, RequestLog, Setting};
use blis_workload::distribution::ArrivalProcess;
use blis_workload::trace_v2::GoodputTargets;
use blis_workload::{Names, Skipped, Workload};

/// What a simulation came to, and what is worth saying about it.
pub(super) struct Finished {
    pub setting: Setting,
    pub report: Report,
    pub names: Names,
    /// Of `--summarize-trace`.
    pub decisions: Option<DecisionSummary>,
    /// Of `--regret outcome`.
    pub regret: Option<Regret>,
    /// Of `--fitness-weights`, with the name of the baseline if it is relative to one.
    pub fitness: Option<(Fitness, Option<String>)>,
    /// (what, what to do)
    pub warnings: Vec<(String, String)>,
    /// Who decided.
    pub policies: PolicySettings,
    /// What went wrong in plugins.
    pub incidents: Vec<Incident>,
    /// Whether the result files were written.
    pub files: Result<(), Failure>,
    /// CPU time of the simulation alone.
    pub cpu: Duration,
}

/// Sets up what `config` asks for, simulates it, writes the files.
pub(super) fn run(config: &RunConfig, progress: bool) -> Result<Finished, Failure> {
    tracing::debug!(seed = config.seed, horizon = ?config.horizon, "{:?}", config.engine);
    let deployment = connect::resolve(config)?;
    let (workload, horizon) = open(config)?;
    simulate(&RunConfig { horizon, ..config.clone() }, &deployment, workload, progress)
}

/// The workload, and the horizon under which it is simulated.
pub(super) fn open(config: &RunConfig) -> Result<(Workload, Micros), Failure> {
    let workload = connect::open(config)?;
    let recorded = matches!(config.workload, WorkloadConfig::Recorded { .. });
    if recorded && config.engine.semantics == Semantics::BLIS && config.horizon == Micros::MAX {
        let closed_loop = workload.follow_ups.is_some();
        let (workload, horizon) = with_blis_horizon(workload);
        if closed_loop {
            // Sessions must know when it is too late for another round.
            let notes = workload.notes;
            let workload = connect::open(&RunConfig { horizon, ..config.clone() })?;
            return Ok((Workload { notes, ..workload }, horizon));
        }
        return Ok((workload, horizon));
    }
    Ok((workload, config.horizon))
}

/// Without `--horizon`, BLIS ends a replay at twice the time of the last arrival (600 s if that is
/// 0), whatever is still running.
fn with_blis_horizon(workload: Workload) -> (Workload, Micros) {
    const EVERYTHING_AT_ONCE: Micros = Micros(600_000_000);
    let requests: Vec<Request> = workload.requests.collect();
    let last = requests.iter().map(|request| request.arrival).max().unwrap_or(Micros::ZERO);
    let horizon = if last == Micros::ZERO { EVERYTHING_AT_ONCE } else { last.saturating_add(last) };
    let mut notes = workload.notes;
    notes.push(format!("horizon {:.6} s: twice the last arrival, as in BLIS", horizon.as_secs_f64()));
    (Workload { requests: Box::new(requests.into_iter()), notes, ..workload }, horizon)
}

fn simulate(
    config: &RunConfig,
    deployment: &Deployment,
    workload: Workload,
    progress: bool,
) -> Result<Finished, Failure> {
    let Workload { requests, follow_ups, count, names, slo_targets, aside: _, skipped, notes } = workload;
    for note in deployment.notes.iter().chain(&notes) {
        tracing::info!("{note}");
    }
    // What can be found wrong is found before anything is written or simulated.
    if let Some(weights) = &config.evaluation.fitness {
        check_weights(weights, config, &names, &slo_targets)?;
    }
    let baseline = baseline(config)?;
    let wants_requests = config.output.metrics_path.is_some() || config.output.results_path.is_some();
    let evaluation = &config.evaluation;
    let decisions = decisions::open(config, deployment, &names)?;
    let observers = (
        (wants_requests.then(RequestLog::new), Refused::default()),
        (
            (evaluation.summarize_trace.then(DecisionSummary::default), decisions),
            (journal(config, deployment), regret::surveyor(config, &names, &slo_targets)),
        ),
    );
    let requests = Progress::new(requests, count, progress);
    let timer = Timer::start();
    let Measured { report, observer, incidents, .. } =
        measure(config, deployment, (&names, &slo_targets), (requests, follow_ups), observers)?;
    let cpu = timer.elapsed();
    let ((log, refused), ((summary, decisions), (journal, surveyor))) = observer;
    let named = (&names, &slo_targets);
    let regret = surveyor.map(|surveyor| regret::judge(config, deployment, named, surveyor.survey)).transpose()?;
    let fitness = evaluation
        .fitness
        .as_ref()
        .map(|weights| fitness(weights, baseline, config, deployment, &report))
        .transpose()?;
    let files = decisions::finish(decisions, config)
        .and(write_files(config, &report, log.as_ref(), &names))
        .and(export(config, deployment, journal.as_ref(), named));
    Ok(Finished {
        setting: setting(config, deployment, &notes),
        warnings: warnings(config, deployment, (&report, &names), &skipped, &refused)
            .into_iter()
            .chain(plugin_warnings(config, &incidents))
            .collect(),
        policies: config.cluster.policies.clone(),
        incidents,
        files,
        report,
        decisions: summary,
        regret,
        fitness,
        names,
        cpu,
    })
}

/// A simulation that went through.
pub(super) struct Measured<S> {
    pub report: Report,
    /// With what it noticed.
    pub observer: S,
    /// What went wrong in plugins.
    pub incidents: Vec<Incident>,
    /// Decisions of plugins, and the fuel or operations they took; on a leash only.
    pub used: (u64, u64),
}

/// Simulates `requests`.
pub(super) fn measure<S: Sink>(
    config: &RunConfig,
    deployment: &Deployment,
    (names, targets): (&Names, &BTreeMap<String, GoodputTargets>),
    (requests, follow_ups): (impl Iterator<Item = Request>, Option<Box<dyn FollowUps + Send>>),
    observer: S,
) -> Result<Measured<S>, Failure> {
    let mut sink = (Metrics::new(metrics_options(config, names, targets)), observer);
    let arrived = Cell::new(0);
    let arrives = |request: &Request| arrived.set(arrived.get() + u64::from(request.arrival <= config.horizon));
    let requests = with_deadlines(requests, &config.workload).inspect(arrives);
    let mut clients = follow_ups.map(|inner| Clients { inner, semantics: config.engine.semantics, arrives });
    let arrivals = (requests, clients.as_mut().map(|clients| clients as &mut dyn FollowUps));
    let Ran { counters, incidents, used } = match config.engine.engine {
        EngineName::Fast => {
            let records = sink.wants_steps();
            let engine = |config| if records { Fast::new(config).recording() } else { Fast::new(config) };
            finished(service::cluster(config, deployment, names, engine)?, arrivals, &mut sink)
        }
        EngineName::Plain => finished(service::cluster(config, deployment, names, Plain::new)?, arrivals, &mut sink),
    }?;
    let (mut metrics, observer) = sink;
    metrics.offered(arrived.get());
    let mut report = metrics.report(&counters, config.horizon);
    if let Some(sessions) = &mut report.sessions {
        sessions.states = clients.map(|clients| clients.states());
    }
    if !report.conserved() {
        let (arrived, ended) = (report.arrived, report.cluster.counts.arrived());
        return Err(Failure::runtime(format_args!("{arrived} requests arrived, but {ended} are accounted for"))
            .hint("this is a mistake in the program: please report it with the command"));
    }
    Ok(Measured { report, observer, incidents, used })
}

/// Clients that wait for their answers, seen from the service.
struct Clients<F> {
    inner: Box<dyn FollowUps + Send>,
    semantics: Semantics,
    /// Told of each request that follows.
    arrives: F,
}

impl<F: Fn(&Request)> FollowUps for Clients<F> {
    /// A client has its answer when it has all of it. For BLIS that is when the engine is done with it,
    /// and what stays of it in the conversation lacks the last token.
    fn next(&mut self, ended: &Outcome) -> Option<Request> {
        let ended = if self.semantics == Semantics::BLIS {
            Outcome { generated_tokens: ended.generated_tokens.saturating_sub(1), ..*ended }
        } else {
            let answered = ended.e2e.map_or(ended.ended_at, |e2e| ended.arrival.saturating_add(e2e));
            ended.ended_at(answered.max(ended.ended_at))
        };
        self.inner.next(&ended).inspect(&self.arrives)
    }

    fn states(&self) -> SessionStates {
        self.inner.states()
    }
}

/// A cluster that has done its work.
struct Ran {
    /// Of each instance.
    counters: Vec<Counters>,
    /// What went wrong in plugins without ending the run.
    incidents: Vec<Incident>,
    /// Decisions of plugins, and what they used for them.
    used: (u64, u64),
}

/// Runs a cluster to its end.
fn finished<I: Instance>(
    (cluster, incidents): (Cluster<I>, Incidents),
    (requests, follow_ups): (impl Iterator<Item = Request>, Option<&mut dyn FollowUps>),
    sink: &mut impl Sink,
) -> Result<Ran, Failure> {
    let counters = cluster.run_sessions(requests, follow_ups, sink).map_err(|halt| halted(halt, &incidents))?;
    let used = incidents.meter().map_or((0, 0), |meter| (meter.calls(), meter.used()));
    Ok(Ran { counters, incidents: incidents.all(), used })
}

/// Why a simulation ended early.
pub(super) fn halted(halt: Halt, incidents: &Incidents) -> Failure {
    match (halt, incidents.first()) {
        (Halt::Aborted, Some(Incident { plugin, kind, at, fault, .. })) => {
            let (what, hint) = fault.split();
            let seconds = at.as_secs_f64();
            let failure =
                Failure::runtime(format_args!("the {} `{plugin}` failed at {seconds} s: {what}", kind.what()));
            let failure = failure.because(fault.clone());
            failure.hint(format_args!("{hint}`--on-plugin-error fallback` goes on with a built-in in its place"))
        }
        (halt, _) => halt.into(),
    }
}

/// Before anything runs: a figure that can have no sample must not decide.
pub(super) fn check_weights(
    weights: &FitnessWeights,
    config: &RunConfig,
    names: &Names,
    recorded: &BTreeMap<String, GoodputTargets>,
) -> Result<(), Failure> {
    let has = |needs| match needs {
        Needs::Nothing => true,
        Needs::SloTargets => !(config.cluster.slo_targets.is_empty() && recorded.is_empty()),
        Needs::Tenants => !names.texts().is_empty(),
    };
    weights.check(has).map_err(Failure::usage)
}

/// The baseline of a relative fitness: its name, and the configuration it runs with.
fn baseline(config: &RunConfig) -> Result<Option<(String, RunConfig)>, Failure> {
    const USUAL: &str = "round-robin";
    let scale = config.evaluation.fitness.as_ref().map(FitnessWeights::scale);
    if scale != Some(FitnessScale::Baseline) {
        return Ok(None);
    }
    let name = config.evaluation.baseline.as_deref().unwrap_or(USUAL);
    Ok(Some((name.to_owned(), config.with_contestant(name, Others::Defaults)?)))
}

/// The score of `report`, against a run of `baseline` under the same seed if the scale is relative.
fn fitness(
    weights: &FitnessWeights,
    baseline: Option<(String, RunConfig)>,
    config: &RunConfig,
    deployment: &Deployment,
    report: &Report,
) -> Result<(Fitness, Option<String>), Failure> {
    let figures = Figures::from(report);
    let Some((name, baseline)) = baseline else {
        return Ok((weights.blis(&figures, no_sample(config.engine.semantics)), None));
    };
    let Workload { requests, follow_ups, names, slo_targets, .. } = connect::open(&baseline)?;
    let named = (&names, &slo_targets);
    let Measured { report: baseline, .. } = measure(&baseline, deployment, named, (requests, follow_ups), ())?;
    Ok((weights.relative(&figures, &Figures::from(&baseline)), Some(name)))
}

/// Classes and tenants where requests name any; under fcfs nobody overtakes.
pub(super) fn metrics_options(
    config: &RunConfig,
    names: &Names,
    recorded: &BTreeMap<String, GoodputTargets>,
) -> MetricsOptions {
    let named = !names.texts().is_empty();
    MetricsOptions {
        instances: config.cluster.num_instances,
        classes: service::classes(&config.cluster.policies, names),
        default_class: names.find("default"),
        per_class: named,
        per_tenant: named,
        inversions: config.engine.scheduler != Scheduler::Fcfs
            || config.cluster.policies.plugin(Kind::Scheduling).is_some(),
        targets: slo_targets(config, names, recorded),
    }
}

/// Those of flags before those of the trace, latency by latency, for the classes that occur.
pub(super) fn slo_targets(
    config: &RunConfig,
    names: &Names,
    recorded: &BTreeMap<String, GoodputTargets>,
) -> Vec<(Name, SloTargets)> {
    let given = &config.cluster.slo_targets;
    let classes: BTreeSet<&String> = given.keys().chain(recorded.keys()).collect();
    let targets = classes.into_iter().filter_map(|class| {
        let name = if class == "default" { Name::NONE } else { names.find(class)? };
        let (flags, trace) = (given.get(class), recorded.get(class));
        let ms = |ms: Option<f64>| ms.map(|ms| Micros::from_f64(ms * 1e3));
        let flag = |target: Option<&Sourced<Micros>>| target.map(|target| target.value);
        let targets = SloTargets {
            ttft: flag(flags.and_then(|targets| targets.ttft.as_ref()))
                .or(ms(trace.and_then(|targets| targets.ttft_ms))),
            itl: flag(flags.and_then(|targets| targets.itl.as_ref())).or(ms(trace.and_then(|targets| targets.itl_ms))),
            e2e: flag(flags.and_then(|targets| targets.e2e.as_ref())).or(ms(trace.and_then(|targets| targets.e2e_ms))),
        };
        Some((name, targets))
    });
    targets.collect()
}

/// Kept for the formats to export to.
fn journal(config: &RunConfig, deployment: &Deployment) -> Option<Journal> {
    let exports = &config.output.exports;
    let steps = exports.iter().any(|export| export.format.needs_steps());
    let plugin = config.cluster.policies.plugin(Kind::Latency).is_some();
    let latency = (!plugin).then(|| deployment.latency.clone());
    (!exports.is_empty()).then(|| Journal::new(steps, config.engine.semantics, latency))
}

fn export(
    config: &RunConfig,
    deployment: &Deployment,
    journal: Option<&Journal>,
    (names, slo_targets): (&Names, &BTreeMap<String, GoodputTargets>),
) -> Result<(), Failure> {
    let Some(journal) = journal else { return Ok(()) };
    let about = blis_report::About {
        model: deployment.model.clone(),
        block_size: config.engine.block_size,
        total_kv_blocks: deployment.total_kv_blocks,
        tensor_parallel: deployment.tensor_parallel_size,
        max_num_seqs: config.engine.max_num_seqs,
        max_model_len: deployment.max_model_len,
        seed: config.seed,
        slo_targets: slo_targets.clone(),
    };
    let write = |export: &Export| export.write(journal, &about, names).map_err(|error| Failure::file(&error));
    config.output.exports.iter().try_for_each(write)
}

/// Requests of a trace that bring no deadline get the one of `--timeout`. Generated ones have theirs.
fn with_deadlines(requests: impl Iterator<Item = Request>, workload: &WorkloadConfig) -> impl Iterator<Item = Request> {
    let timeout = match workload {
        WorkloadConfig::Trace(trace) => trace.timeout,
        WorkloadConfig::Synthetic(_) | WorkloadConfig::Specified(_) | WorkloadConfig::Recorded { .. } => None,
    };
    requests.map(move |mut request| {
        request.deadline = request.deadline.or(timeout.map(|timeout| request.arrival.saturating_add(timeout)));
        request
    })
}

fn write_files(config: &RunConfig, report: &Report, log: Option<&RequestLog>, names: &Names) -> Result<(), Failure> {
    let Some(log) = log else { return Ok(()) };
    let written = |result: Result<(), blis_report::FileError>| result.map_err(|error| Failure::file(&error));
    if let Some(path) = &config.output.metrics_path {
        written(blis_report::write_json(path, &blis_report::metrics_document(report, log, names)))?;
    }
    if let Some(path) = &config.output.results_path {
        written(blis_report::write_json(path, &blis_report::results_document(log, names)))?;
    }
    Ok(())
}

fn setting(config: &RunConfig, deployment: &Deployment, notes: &[String]) -> Setting {
    let (tp, dp) = (deployment.tensor_parallel_size, deployment.data_parallel_size);
    let gpus = u64::from(tp) * u64::from(dp);
    let parallel = if dp == 1 { format!("TP {tp}") } else { format!("TP {tp}, DP {dp}") };
    Setting {
        model: deployment.model.clone(),
        hardware: format!("{gpus} × {} ({parallel})", deployment.hardware),
        latency_model: match config.cluster.policies.plugin(Kind::Latency) {
            Some(used) => used.loaded.name.clone(),
            None => deployment.latency_kind.to_string(),
        },
        kv_blocks: deployment.total_kv_blocks,
        block_size: config.engine.block_size,
        kv_blocks_source: deployment.kv_blocks_source.to_string(),
        max_model_len: deployment.max_model_len,
        workload: config.workload.to_string(),
        notes: deployment.notes.iter().chain(notes).cloned().collect(),
    }
}

/// Where plugins were helped out, and what runs unsandboxed.
pub(super) fn plugin_warnings(config: &RunConfig, incidents: &[Incident]) -> Vec<(String, String)> {
    let failed = incidents.iter().map(|Incident { plugin, kind, at, fault, count }| {
        let times = plural(*count, "time");
        let what = format!("the {} `{plugin}` failed {times}, first at {} s: ", kind.what(), at.as_secs_f64());
        let (told, _) = fault.split();
        (what + told, "a built-in decided in its place; `--on-plugin-error fail` ends the run instead".to_owned())
    });
    let native = config.cluster.policies.plugins();
    let native = native.filter(|used| used.loaded.plugin.technology() == Technology::Native).map(|used| {
        let what = format!("the {} `{}` ran unsandboxed", used.kind.what(), used.loaded.name);
        (what, "a native library can do whatever you can; its results are only as good as its author".to_owned())
    });
    native.chain(failed).collect()
}

/// What may surprise whoever reads the figures.
fn warnings(
    config: &RunConfig,
    deployment: &Deployment,
    (report, names): (&Report, &Names),
    skipped: &Skipped,
    refused: &Refused,
) -> Vec<(String, String)> {
    let counts = &report.cluster.counts;
    let mut warnings = config.warnings.clone();
    warnings.extend(unknown_classes(&config.cluster.slo_targets, report, names));
    warnings.extend(refused.other_models(&deployment.model, names));
    let mut warn = |what: String, hint: &str| warnings.push((what, hint.to_owned()));
    if let Some(first) = skipped.first.first() {
        // The line's own hint would be one too many.
        let first = first.to_string();
        let first = first.lines().next().unwrap_or_default();
        warn(
            format!("{} of the trace left out; the first: {first}", plural(skipped.count, "line")),
            "without `--skip-bad-lines` a bad line ends the run",
        );
    }
    let usual_timeout = match &config.workload {
        WorkloadConfig::Synthetic(SyntheticConfig { spec, timeout_is_default: true, .. }) => spec.timeout,
        WorkloadConfig::Specified(SpecConfig {
            origin: SpecOrigin::Named(_) | SpecOrigin::Users { .. },
            timeout: Some(timeout),
            ..
        }) if !config.given.has("timeout") => *timeout,
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
    ] {
        if count > 0 {
            let (why, hint) = refusal(reason, config, deployment);
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
            "the admission policy let nothing in that could complete; `--admission-policy always-admit` lets in all"
        } else if config.horizon == Micros::MAX {
            "check the workload"
        } else {
            "`--horizon` is in µs; raise it"
        };
        warn("no request completed".to_owned(), hint);
    }
    warnings
}

/// Targets of flags that nothing is measured against, for want of requests: most likely a slip.
fn unknown_classes(
    targets: &BTreeMap<String, config::SloTargets>,
    report: &Report,
    names: &Names,
) -> Option<(String, String)> {
    let named: BTreeSet<&str> =
        report.classes.iter().map(|&(name, _)| if name == Name::NONE { "default" } else { names.text(name) }).collect();
    let known = if named.is_empty() { BTreeSet::from(["default"]) } else { named };
    let quoted = |classes: &[&str]| classes.iter().map(|class| format!("`{class}`")).collect::<Vec<_>>().join(", ");
    let unknown: Vec<&str> = targets.keys().map(String::as_str).filter(|class| !known.contains(class)).collect();
    let known: Vec<&str> = known.into_iter().collect();
    (!unknown.is_empty() && report.arrived > 0).then(|| {
        let what = format!("no request is of the class {}, which has an SLO target", quoted(&unknown));
        (what, format!("there are requests of the class {}", quoted(&known)))
    })
}

/// Why requests were refused, and what to do about it.
fn refusal(reason: DropReason, config: &RunConfig, deployment: &Deployment) -> (String, String) {
    let cache = u64::from(deployment.total_kv_blocks) * u64::from(config.engine.block_size);
    let larger_cache = "raise `--total-kv-blocks`, `--gpu-memory-utilization` or `--tp`";
    let too_long = |what: &str| {
        let limit = deployment.max_model_len.map_or(u64::MAX, u64::from);
        let (budget, chunked) = (config.engine.max_num_batched_tokens, config.engine.enable_chunked_prefill);
        if !chunked && u64::from(budget) < limit {
            let hint = "raise `--max-num-batched-tokens`, or let prompts be split";
            (format!("prompt and answer exceed the {budget} tokens of one step"), hint)
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
        DropReason::BudgetTooLong => too_long("prompt and answer exceed"),
        DropReason::KvTooSmall => (format!("larger than the KV cache, {}", plural(cache, "token")), larger_cache),
    };
    (why, hint.to_owned())
}

/// Requests that were refused: the first ones, so that the user can find them, and the models
/// they were for.
#[derive(Default)]
struct Refused {
    dropped: Vec<Outcome>,
    /// Models that are not served, in the order in which they were asked for, and how often.
    models: Vec<(Name, u64)>,
}

impl Refused {
    /// Named per reason; the rest is only counted.
    const NAMED: usize = 5;

    /// `request_3 (9000 tokens in, 20 out), … and 4 more`.
    fn names(&self, reason: DropReason, count: u64) -> String {
        let named = self.of(reason).map(|refused| {
            let Outcome { id, input_tokens, output_tokens, .. } = refused;
            format!("request_{id} ({input_tokens} tokens in, {output_tokens} out)")
        });
        let mut text = named.collect::<Vec<_>>().join(", ");
        let rest = count.saturating_sub(self.of(reason).count() as u64);
        if rest > 0 {
            text.push_str(&format!(" and {rest} more"));
        }
        text
    }

    fn of(&self, reason: DropReason) -> impl Iterator<Item = &Outcome> {
        self.dropped.iter().filter(move |refused| refused.status == Status::Dropped(reason))
    }

    /// Requests for models other than `served`.
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
            "serve it with `--model {}`, or empty the column `model` of the trace: a request without a model takes any",
            names.text(*first)
        );
        Some((format!("{count} rejected: only `{served}` is served, and they are for {listed}"), hint))
    }
}

impl Sink for Refused {
    fn outcome(&mut self, outcome: &Outcome) {
        match outcome.status {
            Status::Dropped(reason) if self.of(reason).count() < Self::NAMED => self.dropped.push(*outcome),
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

    fn itl(&mut self, _instance: u32, _gap: Micros, _count: u64) {}

    fn retract_itl(&mut self, _instance: u32, _gap: Micros, _count: u64) {}
}

/// `1 request`, `2 requests`.
fn plural(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// For the summary.
impl Display for WorkloadConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Synthetic(generated) => generated.fmt(f),
            Self::Specified(specified) => specified.fmt(f),
            Self::Trace(TraceConfig { path, .. }) => write!(f, "trace {}", path.display()),
            Self::Recorded { data, closed_loop, .. } => {
                write!(f, "recorded trace {}", data.display())?;
                if closed_loop.is_some() { f.write_str(", sessions in closed loop") } else { Ok(()) }
            }
        }
    }
}

impl Display for SpecConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let spec = &self.spec;
        match &self.origin {
            SpecOrigin::File(path) => write!(f, "specification {}: ", path.display())?,
            SpecOrigin::Named(preset) => write!(f, "{}: ", preset.name())?,
            SpecOrigin::Users { name, count, think_time, lengths } => {
                write!(f, "{name}: ")?;
                if let Some(number) = self.num_requests {
                    write!(f, "{} at most, ", plural(number, "request"))?;
                }
                let (users, think) = (plural(u64::from(*count), "user"), think_time.as_secs_f64());
                let (prompt, output) = (lengths.prompt.mean, lengths.output.mean);
                write!(f, "{users} in closed loop, thinking {think} s, prompts ~{prompt}, answers ~{output} tokens")?;
                return match lengths.prefix_tokens {
                    0 => Ok(()),
                    tokens => write!(f, ", {tokens} shared"),
                };
            }
        }
        if let Some(number) = self.num_requests {
            write!(f, "{} at most, ", plural(number, "request"))?;
        }
        let members = spec.cohorts.iter().map(|cohort| u64::from(cohort.population)).sum::<u64>();
        let clients = plural(spec.clients.len() as u64 + members, "client");
        match spec.aggregate_rate {
            0.0 => f.write_str(&clients),
            rate => write!(f, "{rate}/s of {clients}"),
        }
    }
}

impl Display for SyntheticConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let spec = &self.spec;
        write!(f, "{}: ", self.name)?;
        match spec.num_requests {
            Some(number) => write!(f, "{}", plural(number, "request"))?,
            None => f.write_str("requests until the horizon")?,
        }
        let spacing = match spec.arrival {
            ArrivalProcess::Constant => "evenly spaced",
            ArrivalProcess::Poisson => "Poisson",
        };
        write!(f, ", {}/s {spacing}, prompts ~{}, answers ~{} tokens", spec.rate, spec.prompt.mean, spec.output.mean)?;
        match spec.prefix_tokens {
            0 => Ok(()),
            tokens => write!(f, ", {tokens} shared"),
        }
    }
}

#[cfg(test)]
mod tests;
