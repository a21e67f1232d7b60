//! The regret of a run: its sampled decisions are made differently in branches of the simulation. Optionally also what a
//! look-ahead gains, and a bound that no policy passes.

use std::collections::BTreeMap;
use std::path::Path;

use blis_sim::cluster::{AnyTimeline, ArrivalList, Engine, Halt, StartMode};
use blis_sim::instance::{Fast, InstanceConfig, Plain};
use blis_sim::metrics::{Metrics, Report};
use blis_sim::outcome::Outcome;
use blis_sim::policy::Reads;
use blis_sim::request::{Name, Request};
use blis_sim::units::Micros;
use serde::Serialize;

use crate::bound::{ClairvoyantBound, LatencyBounds, LowerBound, Relaxation, ServedRequest};
use crate::error::RunError;
use crate::experiment::Experiment;
use crate::regret::{
    BranchOptions, DecisionKind, DecisionRegret, LookAhead, Regret, RegretOptions, ScalingBranchOptions, Survey,
    Surveyor, WorkloadTexts, add_advice, decision_regrets, look_ahead,
};
use crate::spec::SimulationName;
use crate::targets::{NamedWorkload, slo_targets};
use crate::{Figure, Figures};
use crate::{measure, open, service};
use blis_config::Deployment;
use blis_plugin::incidents::Incidents;
use blis_plugin::{Column, rows};
use blis_report::{FileError, write_whole};
use blis_workload::trace_v2::GoodputTargets;
use blis_workload::{Names, Workload};
use strum::VariantArray as _;

/// What is computed beside the regret.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegretExtras {
    /// The latencies of a look-ahead over the policy.
    pub look_ahead: bool,
    /// The bound of latencies under any policy.
    pub bound: bool,
}

/// The regret of the policy of an experiment, and the extras that were requested.
pub struct RegretReport {
    /// What the decisions of the policy cost.
    pub regret: Regret,
    /// The policy beside the look-ahead.
    pub look_ahead: Option<LookAheadReport>,
    /// The policy beside the bound.
    pub bound: Option<BoundReport>,
    /// Failures of plugins: (what, what to do).
    pub warnings: Vec<(String, String)>,
}

/// Runs `config`, which must request the regret, and evaluates its decisions.
///
/// # Errors
/// If the model, the workload or the simulation fails, or a bound of replicas that come and go is requested.
pub fn survey(config: &Experiment, extras: RegretExtras) -> Result<RegretReport, RunError> {
    if extras.bound && (config.cluster.scaling.is_some() || !config.cluster.groups.is_empty()) {
        return Err(RunError::usage("the bound is of a fixed number of equal instances")
            .hint("leave out `--bound`, or `--autoscaler` and `--group`"));
    }
    check_roles(config)?;
    if config.cluster.disaggregation.is_some() && (extras.bound || extras.look_ahead) {
        return Err(RunError::usage("bound and look-ahead need instances that serve whole requests")
            .hint("leave out `--bound` and `--look-ahead`, or the roles of instances"));
    }
    let deployment = open::resolve(config)?;
    let (workload, horizon) = open::open_until(config)?;
    let config = Experiment { horizon, ..config.clone() };
    let Workload { requests, follow_ups, names, slo_targets, .. } = workload;
    let named = NamedWorkload { names: &names, slo_targets: &slo_targets };
    let observer = surveyor(&config, &names, &slo_targets);
    let measured = measure::measure(&config, &deployment, named, requests, follow_ups, observer)?;
    let warnings = measure::plugin_warnings(&config, &measured.incidents);
    let survey = measured.observer.map(|surveyor| surveyor.survey).unwrap_or_default();
    let (arrivals, served) = (survey.arrivals(), survey.served(config.warmup));
    let regret = regret(&config, &deployment, named, survey)?;
    let bound =
        extras.bound.then(|| BoundReport::new(&config, &deployment, &names, &arrivals, &served, &measured.report));
    let look_ahead = extras.look_ahead.then(|| {
        let window = Micros::from_f64(regret.window_s * 1e6);
        LookAheadReport::new(&config, &deployment, named, ArrivalList::new(arrivals.clone()), window, &measured.report)
    });
    Ok(RegretReport { regret, look_ahead: look_ahead.transpose()?, bound: bound.transpose()?, warnings })
}

/// An observer that records the run, if its regret is requested.
pub(crate) fn surveyor(
    config: &Experiment,
    names: &Names,
    recorded: &BTreeMap<String, GoodputTargets>,
) -> Option<Surveyor<impl Fn(&Outcome) -> bool + use<>>> {
    if !config.evaluation.regret.is_requested() {
        return None;
    }
    let targets = slo_targets(config, names, recorded);
    let default = names.find("default");
    let missed = move |outcome: &Outcome| {
        let class = if Some(outcome.tags.slo_class) == default { Name::NONE } else { outcome.tags.slo_class };
        targets.iter().any(|(name, targets)| *name == class && !targets.met(outcome))
    };
    let inside = config.cluster.policies.used(blis_plugin::Kind::KvCache).is_some();
    Some(Surveyor { survey: Survey::default(), missed, inside })
}

/// Simulated time after a decision that the feedback of an evaluation looks at. Under a bad policy requests wait for minutes: until
/// their ends, the branches of eight decisions took twice as long as the evaluation.
const LONGEST_BRIEF_BRANCH: Micros = Micros(10_000_000);

/// Refuses BLIS's instances with roles, where the one that prefills is chosen after the decision.
fn check_roles(config: &Experiment) -> Result<(), RunError> {
    match &config.cluster.disaggregation {
        Some(roles) if roles.is_blis() => {
            Err(RunError::usage("BLIS chooses the instance that prefills later than regret can look")
                .hint("leave out `--parity blis`, the roles of instances, or the regret"))
        }
        _ => Ok(()),
    }
}

/// The regret of the run that `survey` has recorded.
pub(crate) fn regret(
    config: &Experiment,
    deployment: &Deployment,
    named: NamedWorkload<'_>,
    mut survey: Survey,
) -> Result<Regret, RunError> {
    let (decisions, window) = decisions(config, deployment, named, &mut survey, None)?;
    if let Some(path) = &config.evaluation.regret.path {
        write(path, &decisions).map_err(|error| RunError::file(&error))?;
    }
    Ok(Regret::new(decisions, &survey, window))
}

/// The decisions of the run that `survey` has recorded, with what the policies of `reference`, if there is one, would have decided about
/// admission and routing; and the regret of all.
pub(crate) fn compared_decisions(
    config: &Experiment,
    deployment: &Deployment,
    named: NamedWorkload<'_>,
    mut survey: Survey,
    reference: Option<&Experiment>,
) -> Result<(Vec<DecisionRegret>, Regret), RunError> {
    let (decisions, window) = decisions(config, deployment, named, &mut survey, reference)?;
    Ok((decisions.clone(), Regret::new(decisions, &survey, window)))
}

/// The sampled decisions with their regret, and the time in which their effects count.
fn decisions(
    config: &Experiment,
    deployment: &Deployment,
    named: NamedWorkload<'_>,
    survey: &mut Survey,
    reference: Option<&Experiment>,
) -> Result<(Vec<DecisionRegret>, Micros), RunError> {
    check_roles(config)?;
    let settings = &config.evaluation.regret;
    survey.with_targets(!slo_targets(config, named.names, named.slo_targets).is_empty());
    // Without adapters the samples are those of the other kinds.
    let is_made = |kind| kind != DecisionKind::AdapterEviction || survey.decisions(kind) > 0;
    let is_sampled = |&kind: &DecisionKind| settings.samples_kind(kind.of_policy()) && is_made(kind);
    let kinds = DecisionKind::VARIANTS.iter().copied().filter(is_sampled).collect();
    let (samples, window, seed) = (settings.samples as usize, settings.window, config.seed);
    let options = RegretOptions { samples, window, at_random: settings.is_for_patterns(), seed, kinds };
    let (brief, alternatives) = (settings.is_brief(), settings.alternatives as usize);
    let longest = if brief { LONGEST_BRIEF_BRANCH } else { Micros::MAX };
    let window = survey.window(&options).min(longest);
    let scaling = ScalingBranchOptions {
        window: scaling_window(config, deployment, window)?,
        requests_per_gpu: survey.requests_per_gpu(),
    };
    let signals = settings.is_for_patterns();
    let branches = BranchOptions { window, longest, alternatives, rollouts: !brief, signals, scaling };
    let mut samples = survey.sample(&options);
    let actual = survey.actual_decisions();
    let setup = |config| {
        let arrivals = ArrivalList::new(survey.arrivals());
        BranchSetup { config, deployment, names: named.names, arrivals }
    };
    if let Some(reference) = reference {
        setup(reference).on_timeline(|timeline| add_advice(timeline, &mut samples, &actual))?;
    }
    let decisions = setup(config).on_timeline(|timeline| {
        decision_regrets(timeline, &samples, &actual, &branches, &WorkloadNames(named.names))
    })?;
    Ok((decisions, window))
}

/// Time in which the effects of a number of replicas count: that of other decisions, at least the time to start one and a minute
/// in which it serves.
fn scaling_window(config: &Experiment, deployment: &Deployment, window: Micros) -> Result<Micros, RunError> {
    const SERVES: Micros = Micros(60_000_000);
    let start = config.cluster.scaling.as_ref().map(|scaling| scaling.start).unwrap_or_default().times(deployment)?;
    Ok(window.max(start.mean(StartMode::Cold, false).saturating_add(SERVES)))
}

fn write(path: &Path, decisions: &[DecisionRegret]) -> Result<(), FileError> {
    write_whole(path, |out| {
        decisions.iter().try_for_each(|one| {
            serde_json::to_writer(&mut *out, one)?;
            out.write_all(b"\n")
        })
    })
}

/// The configuration and the arrivals that all branches share.
struct BranchSetup<'a> {
    config: &'a Experiment,
    deployment: &'a Deployment,
    names: &'a Names,
    arrivals: ArrivalList,
}

impl BranchSetup<'_> {
    /// Builds the cluster and its timeline, and hands them to `work`.
    fn on_timeline<T>(self, work: impl FnOnce(Box<dyn AnyTimeline>) -> Result<T, Halt>) -> Result<T, RunError> {
        let (timeline, incidents) = match self.config.simulation() {
            SimulationName::Fast => self.timeline(Fast::new),
            SimulationName::Plain => self.timeline(Plain::new),
        }?;
        work(timeline).map_err(|halt| measure::halt_error(halt, &incidents))
    }

    fn timeline<I: Engine>(
        self,
        engine: impl Fn(InstanceConfig) -> I + Clone + Send + Sync + 'static,
    ) -> Result<(Box<dyn AnyTimeline>, Incidents), RunError> {
        let (cluster, incidents) = service::cluster(self.config, self.deployment, self.names, engine)?;
        let shown = Reads { load: true, in_flight: true, ..Reads::NOTHING };
        // Patterns are about all signals, whether the policy reads them or not.
        let all = rows::reads_of(Column::ALL);
        let all = Reads { adapters: self.deployment.adapters.is_some(), ..all };
        let reads = if self.config.evaluation.regret.is_for_patterns() { all } else { shown };
        Ok((I::timeline(cluster, self.arrivals, reads), incidents))
    }
}

struct WorkloadNames<'a>(&'a Names);

impl WorkloadTexts for WorkloadNames<'_> {
    fn text(&self, name: Name) -> String {
        self.0.text(name).to_owned()
    }
}

/// The policy beside a look-ahead that makes every routing decision with knowledge of the future.
#[derive(Serialize)]
pub struct LookAheadReport {
    #[serde(flatten)]
    counts: LookAhead,
    /// Time after a decision in which its effects count.
    window_s: f64,
    /// Latencies of both: smaller is better in all of them.
    figures: Vec<LookAheadFigure>,
}

/// A latency under the policy and under the look-ahead.
#[derive(Serialize)]
struct LookAheadFigure {
    /// Name of the latency.
    figure: &'static str,
    /// Under the policy; `null` without a sample. Unit: ms.
    policy: Option<f64>,
    /// Under the look-ahead; `null` without a sample. Unit: ms.
    look_ahead: Option<f64>,
    /// 1 − look-ahead / policy; `null` without both. Unit: share.
    gain: Option<f64>,
}

impl LookAheadReport {
    fn new(
        config: &Experiment,
        deployment: &Deployment,
        NamedWorkload { names, slo_targets }: NamedWorkload<'_>,
        arrivals: ArrivalList,
        window: Micros,
        policy: &Report,
    ) -> Result<Self, RunError> {
        let mut metrics = Metrics::new(measure::metrics_options(config, names, slo_targets));
        let alternatives = config.evaluation.regret.alternatives as usize;
        let setup = BranchSetup { config, deployment, names, arrivals };
        let (counters, counts) =
            setup.on_timeline(|timeline| look_ahead(timeline, window, alternatives, &mut metrics))?;
        let found = metrics.report(&counters, config.horizon);
        let (policy, found) = (Figures::from(policy), Figures::from(&found));
        let compared = |&figure: &Figure| {
            let (policy, look_ahead) = (policy.get(figure), found.get(figure));
            let gain = relative(policy, look_ahead);
            LookAheadFigure { figure: figure.key(), policy, look_ahead, gain }
        };
        Ok(Self { counts, window_s: window.as_secs_f64(), figures: LATENCIES.iter().map(compared).collect() })
    }

    /// A table for the terminal.
    #[must_use]
    pub fn text(&self) -> String {
        let Self { counts: LookAhead { decisions, changed }, window_s, figures } = self;
        let mut text = format!(
            "Look-ahead of {window_s:.1} s: {changed} of {decisions} routing decisions differ. It improves this policy and is\n\
             no bound of others.\n{:<14}{:>12}{:>12}{:>9}\n",
            "ms", "policy", "look-ahead", "gain"
        );
        for LookAheadFigure { figure, policy, look_ahead, gain } in figures {
            text.push_str(&format!("{figure:<14}{:>12}{:>12}{:>9}\n", ms(*policy), ms(*look_ahead), percent(*gain)));
        }
        text
    }
}

/// The policy beside latencies that no policy undercuts.
#[derive(Serialize)]
pub struct BoundReport {
    /// Requests that got a first token, those of the warm-up left out. Unit: requests.
    requests: usize,
    /// What the bound assumes, and its two relaxations.
    assumptions: [&'static str; 4],
    /// Latencies and their bounds: smaller is better in all of them.
    figures: Vec<BoundFigure>,
}

/// A latency under the policy and its lower bound.
#[derive(Serialize)]
struct BoundFigure {
    /// Name of the latency.
    figure: &'static str,
    /// Under the policy; `null` without a sample. Unit: ms.
    policy: Option<f64>,
    /// Under any policy at least; `null` without a sample. Unit: ms.
    bound: Option<f64>,
    /// 1 − bound / policy: what a better policy can gain at most; `null` without both. Unit: share.
    gap: Option<f64>,
    /// Where the bound follows from: `alone` (each request on an idle instance) or `pooled` (all instances as one
    /// server); `null` without a bound.
    relaxation: Option<Relaxation>,
}

/// What holds of every policy that the bound covers.
const ASSUMPTIONS: [&str; 4] = [
    "the same requests arrive at the same times, get a first token and complete",
    "further tokens never shorten a step: true of all built-in latency models",
    "alone: each request on an idle instance that has every prefix which another request can have left in time",
    "pooled: all instances as one server, which serves the shortest remaining work first and computes no shared prefix",
];

impl BoundReport {
    fn new(
        config: &Experiment,
        deployment: &Deployment,
        names: &Names,
        arrivals: &[Request],
        served: &[ServedRequest],
        policy: &Report,
    ) -> Result<Self, RunError> {
        let (service, incidents) = service::bounded(config, deployment, names)?;
        let found =
            ClairvoyantBound::new(&service, arrivals, served).map_err(|halt| measure::halt_error(halt, &incidents))?;
        let policy = Figures::from(policy);
        let bounds = |bounds: Option<LatencyBounds>| {
            bounds.map_or([None; 3], |LatencyBounds { mean, p95, p99 }| [mean, p95, p99].map(Some))
        };
        let bounds = bounds(found.ttft).into_iter().chain(bounds(found.e2e));
        let compared = |(&figure, bound): (&Figure, Option<LowerBound>)| {
            let (policy, relaxation) = (policy.get(figure), bound.map(|bound| bound.relaxation));
            let bound = bound.map(|bound| bound.ms);
            BoundFigure { figure: figure.key(), policy, bound, gap: relative(policy, bound), relaxation }
        };
        let figures = LATENCIES.iter().zip(bounds).map(compared).collect();
        Ok(Self { requests: served.len(), assumptions: ASSUMPTIONS, figures })
    }

    /// A table for the terminal.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = format!(
            "Clairvoyant bound: no policy is better, whatever it decides, if\n\
             * {}\n* {}\n\n{:<14}{:>12}{:>12}{:>9}  relaxation\n",
            ASSUMPTIONS[0], ASSUMPTIONS[1], "ms", "policy", "bound", "gap"
        );
        for BoundFigure { figure, policy, bound, gap, relaxation } in &self.figures {
            let relaxation = relaxation.map_or("", |relaxation| relaxation.into_str());
            let line = format!("{figure:<14}{:>12}{:>12}{:>9}  {relaxation}", ms(*policy), ms(*bound), percent(*gap));
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text.push_str(&format!("\n{}\n{}\n", ASSUMPTIONS[2], ASSUMPTIONS[3]));
        text
    }
}

/// The figures that are compared, in the order of the bounds: those of the TTFT, then those of the end-to-end latency.
const LATENCIES: [Figure; 6] =
    [Figure::MeanTtft, Figure::P95Ttft, Figure::P99Ttft, Figure::MeanE2e, Figure::P95E2e, Figure::P99E2e];

/// 1 − `better` / `policy`, if both are present.
fn relative(policy: Option<f64>, better: Option<f64>) -> Option<f64> {
    policy.zip(better).filter(|&(policy, _)| policy > 0.0).map(|(policy, better)| 1.0 - better / policy)
}

fn ms(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"))
}

fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "-".to_owned(), |share| format!("{:.1} %", 100.0 * share))
}
