//! The regret of a run: its sampled decisions are made differently in branches of the simulation. Optionally also how
//! much a look-ahead gains.

use std::collections::BTreeMap;
use std::path::Path;

use blis_sim::cluster::{AnyTimeline, ArrivalList, Engine, Halt};
use blis_sim::instance::{Fast, InstanceConfig, Plain};
use blis_sim::metrics::{Metrics, Report};
use blis_sim::outcome::Outcome;
use blis_sim::policy::Reads;
use blis_sim::request::Name;
use blis_sim::units::Micros;
use serde::Serialize;

use crate::error::RunError;
use crate::experiment::Experiment;
use crate::regret::{
    ClassNames, DecisionRegret, Oracle, Regret, RegretOptions, Survey, Surveyor, decision_regrets, look_ahead,
};
use crate::spec::SimulationName;
use crate::{Figure, Figures};
use crate::{measure, open, service};
use blis_config::Deployment;
use blis_plugin::incidents::Incidents;
use blis_report::{FileError, write_whole};
use blis_workload::trace_v2::GoodputTargets;
use blis_workload::{Names, Workload};

/// The regret of the policy of an experiment, and the gain of a look-ahead if it was requested.
pub struct RegretReport {
    /// What the decisions of the policy cost.
    pub regret: Regret,
    /// Present if the `oracle` was requested.
    pub bound: Option<LookAheadBound>,
    /// Failures of plugins: (what, what to do).
    pub warnings: Vec<(String, String)>,
}

/// Runs `config`, which must request the regret, and evaluates its decisions.
///
/// # Errors
/// If the model, the workload or the simulation fails.
pub fn survey(config: &Experiment, oracle: bool) -> Result<RegretReport, RunError> {
    let deployment = open::resolve(config)?;
    let (workload, horizon) = open::open_until(config)?;
    let config = Experiment { horizon, ..config.clone() };
    let Workload { requests, follow_ups, names, slo_targets, .. } = workload;
    let named = (&names, &slo_targets);
    let observer = surveyor(&config, &names, &slo_targets);
    let measured = measure::measure(&config, &deployment, named, (requests, follow_ups), observer)?;
    let warnings = measure::plugin_warnings(&config, &measured.incidents);
    let survey = measured.observer.map(|surveyor| surveyor.survey).unwrap_or_default();
    let arrivals = survey.arrivals();
    let regret = regret(&config, &deployment, named, survey)?;
    let bound = oracle.then(|| {
        let window = Micros::from_f64(regret.window_s * 1e6);
        LookAheadBound::new(&config, &deployment, named, ArrivalList::new(arrivals), window, &measured.report)
    });
    Ok(RegretReport { regret, bound: bound.transpose()?, warnings })
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
    let targets = measure::slo_targets(config, names, recorded);
    let default = names.find("default");
    let missed = move |outcome: &Outcome| {
        let class = if Some(outcome.tags.slo_class) == default { Name::NONE } else { outcome.tags.slo_class };
        targets.iter().any(|(name, targets)| *name == class && !targets.met(outcome))
    };
    Some(Surveyor { survey: Survey::default(), missed })
}

/// The regret of the run that `survey` has recorded.
pub(crate) fn regret(
    config: &Experiment,
    deployment: &Deployment,
    named: (&Names, &BTreeMap<String, GoodputTargets>),
    mut survey: Survey,
) -> Result<Regret, RunError> {
    let settings = &config.evaluation.regret;
    let alternatives = settings.alternatives as usize;
    survey.with_targets(!measure::slo_targets(config, named.0, named.1).is_empty());
    let options =
        RegretOptions { samples: settings.samples as usize, alternatives, window: settings.window, seed: config.seed };
    let window = survey.window(&options);
    let samples = survey.sample(&options);
    let actual = survey.actual_decisions();
    let setup = BranchSetup { config, deployment, names: named.0, arrivals: ArrivalList::new(survey.arrivals()) };
    let decisions = setup.on_timeline(|timeline| {
        decision_regrets(timeline, &samples, &actual, (window, alternatives), &WorkloadClassNames(named.0))
    })?;
    if let Some(path) = &settings.path {
        write(path, &decisions).map_err(|error| RunError::file(&error))?;
    }
    Ok(Regret::new(decisions, &survey, window))
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
        let (timeline, incidents) = match self.config.engine.simulation {
            SimulationName::Fast => self.timeline(Fast::new),
            SimulationName::Plain => self.timeline(Plain::new),
        }?;
        work(timeline).map_err(|halt| measure::halt_error(halt, &incidents))
    }

    fn timeline<I: Engine>(
        self,
        engine: impl Fn(InstanceConfig) -> I,
    ) -> Result<(Box<dyn AnyTimeline>, Incidents), RunError> {
        let (cluster, incidents) = service::cluster(self.config, self.deployment, self.names, engine)?;
        let reads = Reads { load: true, in_flight: true, cached_blocks: false };
        Ok((I::timeline(cluster, self.arrivals, reads), incidents))
    }
}

struct WorkloadClassNames<'a>(&'a Names);

impl ClassNames for WorkloadClassNames<'_> {
    fn class(&self, name: Name) -> String {
        self.0.text(name).to_owned()
    }
}

/// The policy compared with a look-ahead.
#[derive(Serialize)]
pub struct LookAheadBound {
    #[serde(flatten)]
    oracle: Oracle,
    window_s: f64,
    /// Latencies: smaller is better in all of them.
    figures: Vec<FigureGap>,
}

#[derive(Serialize)]
struct FigureGap {
    figure: &'static str,
    policy: Option<f64>,
    oracle: Option<f64>,
    /// Relative gain: 1 − figure of the look-ahead / figure of the policy.
    gap: Option<f64>,
}

impl LookAheadBound {
    fn new(
        config: &Experiment,
        deployment: &Deployment,
        (names, targets): (&Names, &BTreeMap<String, GoodputTargets>),
        arrivals: ArrivalList,
        window: Micros,
        policy: &Report,
    ) -> Result<Self, RunError> {
        let mut metrics = Metrics::new(measure::metrics_options(config, names, targets));
        let alternatives = config.evaluation.regret.alternatives as usize;
        let setup = BranchSetup { config, deployment, names, arrivals };
        let (counters, oracle) =
            setup.on_timeline(|timeline| look_ahead(timeline, window, alternatives, &mut metrics))?;
        let found = metrics.report(&counters, config.horizon);
        let figures = gaps(policy, &found);
        Ok(Self { oracle, window_s: window.as_secs_f64(), figures })
    }

    /// A table for the terminal.
    #[must_use]
    pub fn text(&self) -> String {
        let Self { oracle: Oracle { decisions, changed }, window_s, figures } = self;
        let mut text = format!(
            "Look-ahead of {window_s:.1} s: {changed} of {decisions} routing decisions differ.\n{:<14}{:>12}{:>12}{:>9}\n",
            "ms", "policy", "look-ahead", "gap"
        );
        let ms = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"));
        for FigureGap { figure, policy, oracle, gap } in figures {
            let gap = gap.map_or_else(|| "-".to_owned(), |gap| format!("{:.1} %", 100.0 * gap));
            text.push_str(&format!("{figure:<14}{:>12}{:>12}{gap:>9}\n", ms(*policy), ms(*oracle)));
        }
        text
    }
}

/// Compares the latencies of the two runs.
fn gaps(policy: &Report, found: &Report) -> Vec<FigureGap> {
    const COMPARED: [Figure; 6] =
        [Figure::MeanTtft, Figure::P95Ttft, Figure::P99Ttft, Figure::MeanE2e, Figure::P95E2e, Figure::P99E2e];
    let (policy, found) = (Figures::from(policy), Figures::from(found));
    let gap = |&figure: &Figure| {
        let (policy, oracle) = (policy.get(figure), found.get(figure));
        let gap = policy.zip(oracle).filter(|&(policy, _)| policy > 0.0);
        FigureGap { figure: figure.key(), policy, oracle, gap: gap.map(|(policy, oracle)| 1.0 - oracle / policy) }
    };
    COMPARED.iter().map(gap).collect()
}
