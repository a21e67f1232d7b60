//! Patterns over the decisions of a candidate in its worst run, beside what the best reference policy would have decided; and the
//! costs of its decisions in all scenarios.

use std::collections::BTreeSet;
use std::sync::Arc;

use blis_plugin::Kind;
use strum::VariantArray as _;

use super::context::{EvaluatedPolicy, EvaluationContext, EvaluationSuite, ScenarioWorkload};
use crate::cancel::SimulationLimit;
use crate::cascade::{CascadeResult, RunKey, ScoredRun};
use crate::counterfactual;
use crate::decision_costs::{DecisionCosts, decision_costs};
use crate::error::RunError;
use crate::experiment::{Experiment, RegretSettings};
use crate::feedback::{self, ComparedPolicy, PatternFeedback, ScenarioRegret};
use crate::patterns;
use crate::regret::{DecisionKind, RequestTimes, Survey};
use crate::worst_minute::worst_minute;

/// Runs that patterns take, in those of the survey, of the reference and of its decisions, and of the candidate again.
const RUNS: u64 = 4;
/// Runs that the branches of one decision take, at most about.
const RUNS_PER_DECISION: u64 = 2;

/// The kinds of which a reference policy is asked for its decisions.
const ADVISED: [Kind; 2] = [Kind::Admission, Kind::Routing];

/// The patterns over `decisions` decisions of each kind in the worst run of the worst scenario that the feedback shows; `None` without
/// such a run. The best policy of `known` there is the reference; if there is none, the patterns are without one.
pub(super) fn patterns_of(
    context: &EvaluationContext<'_>,
    cascade: &CascadeResult,
    decisions: u32,
    known: &[ComparedPolicy],
) -> Option<Result<PatternFeedback, RunError>> {
    let runs = feedback::worst_scenario(feedback::shown(cascade)?);
    let worst: &ScoredRun = runs.into_iter().min_by(|one, other| one.score.total_cmp(&other.score))?;
    let EvaluationContext { prepared, candidate, handle, .. } = context;
    let best = known.iter().max_by(|one, other| one.score().total_cmp(&other.score()).then(other.name.cmp(&one.name)));
    let budget = worst.summary.operations.saturating_mul(runs_of(prepared, decisions));
    let at = RunKey { scenario: worst.scenario, seed: worst.seed };
    let found = || -> Result<PatternFeedback, RunError> {
        let reference = best.map(|best| Ok::<_, RunError>((best.name.as_str(), prepared.named(&best.name)?)));
        let reference = reference.transpose()?;
        prepared.scenario_patterns(candidate, at, decisions, reference, SimulationLimit { handle, budget })
    };
    Some(found())
}

/// The costs of `decisions` decisions of each kind in the first run of each scenario that the feedback shows; `None` without such a
/// run.
pub(super) fn costs_of(
    context: &EvaluationContext<'_>,
    cascade: &CascadeResult,
    decisions: u32,
) -> Option<Result<Vec<DecisionCosts>, RunError>> {
    let EvaluationContext { prepared, candidate, handle, .. } = context;
    let runs = &feedback::shown(cascade)?.runs;
    let mut known = BTreeSet::new();
    let first = runs.iter().filter(|run| known.insert(run.scenario));
    let costs = first.map(|run| {
        let budget = run.summary.operations.saturating_mul(runs_of(prepared, decisions));
        let at = RunKey { scenario: run.scenario, seed: run.seed };
        let limit = SimulationLimit { handle, budget };
        let (survey, config, workload) = prepared.surveyed(candidate, at, decisions, limit)?;
        let deployment = &prepared.scenarios[run.scenario].deployment;
        let (all, _) = counterfactual::compared_decisions(&config, deployment, workload.named(), survey, None)?;
        Ok(decision_costs(&prepared.suite.scenarios[run.scenario].name, &all))
    });
    Some(costs.collect::<Result<Vec<_>, _>>().map(|all| all.concat()))
}

/// Runs that the survey of a run and the branches of its decisions take together, at most about.
fn runs_of(prepared: &EvaluationSuite, decisions: u32) -> u64 {
    let kinds = DecisionKind::VARIANTS.iter().filter(|kind| prepared.suite.decides.contains(&kind.of_policy())).count();
    RUNS + RUNS_PER_DECISION * kinds as u64 * u64::from(decisions)
}

impl EvaluationSuite {
    /// The record of one run of `policy` with the settings of patterns over `decisions` decisions of each kind.
    fn surveyed(
        &self,
        policy: &EvaluatedPolicy,
        at: RunKey,
        decisions: u32,
        limit: SimulationLimit<'_>,
    ) -> Result<(Survey, Experiment, Arc<ScenarioWorkload>), RunError> {
        let mut policy = policy.clone();
        policy.configs[at.scenario].evaluation.regret = RegretSettings::patterns(decisions, &self.suite.decides);
        let (measured, config, workload) = self.simulate(&policy, at, limit, |config, workload| {
            counterfactual::surveyor(config, &workload.names, &workload.slo_targets)
        })?;
        Ok((measured.observer.map(|surveyor| surveyor.survey).unwrap_or_default(), config, workload))
    }

    /// The patterns over `decisions` decisions of each kind of `policy` in one run, and the minute in which it does worst beside the
    /// `reference`. All simulations of the candidate together use at most the operations of `limit`, or the limit of a run if
    /// that is larger.
    fn scenario_patterns(
        &self,
        policy: &EvaluatedPolicy,
        at: RunKey,
        decisions: u32,
        reference: Option<(&str, EvaluatedPolicy)>,
        limit: SimulationLimit<'_>,
    ) -> Result<PatternFeedback, RunError> {
        let scenario = at.scenario;
        let surveyed = |policy: &EvaluatedPolicy| self.surveyed(policy, at, decisions, limit);
        let name = &self.suite.scenarios[scenario].name;
        let (survey, config, workload) = surveyed(policy)?;
        let named = workload.named();
        let deployment = &self.scenarios[scenario].deployment;
        let own = survey.times();
        let warmup = config.warmup;
        let Some((reference_name, reference)) = reference else {
            let (all, regret) = counterfactual::compared_decisions(&config, deployment, named, survey, None)?;
            let patterns = patterns::find(name, &all, regret.window_s, "");
            let regret = ScenarioRegret { scenario: name.clone(), regret };
            return Ok(PatternFeedback { regret, patterns, worst_minute: String::new() });
        };
        let other: Vec<RequestTimes> = surveyed(&reference)?.0.times();
        let advising = self.advising(&config, &reference.configs[scenario]);
        let (all, regret) = counterfactual::compared_decisions(&config, deployment, named, survey, Some(&advising))?;
        Ok(PatternFeedback {
            patterns: patterns::find(name, &all, regret.window_s, reference_name),
            regret: ScenarioRegret { scenario: name.clone(), regret },
            worst_minute: worst_minute(name, &own, reference_name, &other, warmup),
        })
    }

    /// The experiment of a candidate with the policies of `reference` where its decisions are asked for.
    fn advising(&self, candidate: &Experiment, reference: &Experiment) -> Experiment {
        let mut config = candidate.clone();
        for kind in ADVISED.into_iter().filter(|kind| self.suite.decides.contains(kind)) {
            config.cluster.policies = config.cluster.policies.with_policy_of(&reference.cluster.policies, kind);
        }
        config
    }
}
