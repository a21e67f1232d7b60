//! Feedback: the result of an evaluation as text within a budget of bytes, for the author of the next candidate, often
//! a language model. Order and rounding are fixed, so that equal candidates make equal prompts.

use strum::VariantArray as _;

use std::fmt::Write as _;

use super::CascadeResult;
use super::cascade::{RunSummary, ScoredRun, StageResult, log_score};
use super::fitness::{Factors, Fitness, significant};
use super::objective::Objective;
use super::patterns::DecisionPatterns;
use super::regret::{DecisionKind, DecisionRegret, Regret, RegretSection};
use super::result::{Artifacts, EvaluationResult};
use super::suite::{Split, Suite, SuiteLimits};

/// Decisions that are described in full.
const DECISIONS: usize = 5;
/// Number of instances in the state that is shown with a decision; a service may have hundreds.
const INSTANCES: usize = 8;

/// The regret of the candidate's decisions in one scenario.
#[derive(Clone, Debug, PartialEq)]
pub struct ScenarioRegret {
    /// Name of the scenario.
    pub scenario: String,
    pub regret: Regret,
}

/// A known policy in the scenario of the candidate's lowest score.
#[derive(Clone, Debug, PartialEq)]
pub struct ComparedPolicy {
    /// Name of the policy.
    pub name: String,
    /// Each of its runs relative to the reference, under the seeds of the candidate's.
    pub runs: Vec<Fitness>,
}

impl ComparedPolicy {
    /// Geometric mean over its runs.
    pub fn score(&self) -> f64 {
        geometric_mean(self.runs.iter().map(|run| run.score))
    }
}

/// What is known about the decisions of a candidate in its worst run.
#[derive(Clone, Debug, PartialEq)]
pub struct PatternFeedback {
    pub regret: ScenarioRegret,
    pub patterns: Vec<DecisionPatterns>,
    /// The minute in which it does worst; empty without a reference.
    pub worst_minute: String,
}

/// Bytes of the texts about patterns and the worst minute together.
const PATTERN_BYTES: usize = 3000;

/// Fills in the texts about patterns and the worst minute.
pub fn fill_patterns(artifacts: &mut Artifacts, patterns: &[DecisionPatterns], worst_minute: String) {
    artifacts.patterns = patterns.iter().map(ToString::to_string).collect();
    artifacts.worst_minute = worst_minute;
    cut_all([&mut artifacts.patterns, &mut artifacts.worst_minute], PATTERN_BYTES);
}

/// Fills in all texts except the error and those about patterns, and cuts all of them to `bytes` together. `known` are policies in the
/// [worst scenario](worst_scenario).
pub fn fill(
    document: &mut EvaluationResult,
    suite: &Suite,
    cascade: &CascadeResult,
    regret: Option<&ScenarioRegret>,
    known: &[ComparedPolicy],
    bytes: usize,
) {
    let artifacts = &mut document.artifacts;
    if let Some(stage) = shown(cascade) {
        artifacts.scenarios = scenarios(suite, stage);
        artifacts.better_policies = better_policies(suite, &worst_scenario(stage), known);
        artifacts.anomalies = anomalies(&stage.runs);
    }
    if let Some(regret) = regret {
        artifacts.worst_decisions = worst_decisions(suite, regret);
        artifacts.situations = situations(suite, regret);
    }
    let public: Vec<&StageResult> = cascade.stages.iter().filter(|stage| stage.split != Split::Select).collect();
    if public.iter().any(|stage| stage.runs.iter().any(|one| one.summary.operations > 0)) {
        artifacts.limits = limits(&public, &suite.limits);
    }
    cut(artifacts, bytes);
}

/// The last stage that a search may see: never select.
pub fn shown(cascade: &CascadeResult) -> Option<&StageResult> {
    cascade.stages.iter().rfind(|stage| stage.split != Split::Select)
}

/// The runs of the scenario with the lowest score.
pub fn worst_scenario(stage: &StageResult) -> Vec<&ScoredRun> {
    let mut scenarios: Vec<usize> = stage.runs.iter().map(|one| one.scenario).collect();
    scenarios.dedup();
    let of = |scenario| stage.runs.iter().filter(|one| one.scenario == scenario).collect::<Vec<_>>();
    let worst = scenarios.into_iter().map(of).min_by(|one, other| score(one).total_cmp(&score(other)));
    worst.unwrap_or_default()
}

/// Geometric mean of the scores.
fn score(runs: &[&ScoredRun]) -> f64 {
    geometric_mean(runs.iter().map(|one| one.score))
}

fn geometric_mean(scores: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = scores.len().max(1) as f64;
    (scores.map(log_score).sum::<f64>() / count).exp()
}

/// Number of better policies that are shown.
const SHOWN_POLICIES: usize = 3;

/// The policies among `known` with a higher score than the candidate in `runs`, its worst scenario, best first.
fn better_policies(suite: &Suite, runs: &[&ScoredRun], known: &[ComparedPolicy]) -> String {
    let Some(first) = runs.first() else { return String::new() };
    let own = score(runs);
    // What differs in the last digits only is no better policy.
    let mut better: Vec<&ComparedPolicy> = known.iter().filter(|policy| policy.score() > own * 1.001).collect();
    better.sort_by(|one, other| other.score().total_cmp(&one.score()));
    let candidate: Vec<&Fitness> = runs.iter().map(|one| &one.fitness).collect();
    let mut text = String::new();
    for policy in better.into_iter().take(SHOWN_POLICIES) {
        let scenario = &suite.scenarios[first.scenario].name;
        let _ = write!(text, "`{}` does this better: {scenario}: {:.3} against {own:.3}", policy.name, policy.score());
        let theirs: Vec<&Fitness> = policy.runs.iter().collect();
        for objective in largest_weights(suite) {
            let (own, theirs) = (mean_figure(&candidate, objective), mean_figure(&theirs, objective));
            let _ = write!(text, "; {objective} {} against {}", rounded(theirs), rounded(own));
        }
        text.push('\n');
    }
    text
}

/// The mean of the runs' own figures for an objective; `None` without a sample.
fn mean_figure(runs: &[&Fitness], objective: &Objective) -> Option<f64> {
    let own = |fitness: &&Fitness| fitness.components.iter().find(|part| part.objective == *objective)?.own;
    let values: Vec<f64> = runs.iter().filter_map(own).collect();
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// The objectives with the largest weights, those first.
fn largest_weights(suite: &Suite) -> Vec<&Objective> {
    let mut weights: Vec<(&Objective, f64)> = suite.weights.iter().filter(|&(_, weight)| weight > 0.0).collect();
    weights.sort_by(|one, other| other.1.total_cmp(&one.1));
    weights.into_iter().take(4).map(|(objective, _)| objective).collect()
}

/// Cuts the texts to `bytes` together: the last ones first.
pub fn cut(artifacts: &mut Artifacts, bytes: usize) {
    let Artifacts {
        error,
        scenarios,
        better_policies,
        patterns,
        worst_minute,
        worst_decisions,
        situations,
        anomalies,
        limits,
    } = artifacts;
    let of_decisions = [patterns, worst_minute, worst_decisions, situations];
    cut_all([error, scenarios, better_policies].into_iter().chain(of_decisions).chain([anomalies, limits]), bytes);
}

/// Cuts `texts` to `bytes` together: the last ones first.
fn cut_all<'a>(texts: impl IntoIterator<Item = &'a mut String>, bytes: usize) {
    const MARK: &str = "\n… (cut)";
    let mut left = bytes;
    for text in texts {
        if text.len() > left {
            let mut end = left.saturating_sub(MARK.len());
            while !text.is_char_boundary(end) {
                end -= 1;
            }
            text.truncate(end);
            if end > 0 {
                text.push_str(MARK);
            }
        }
        left -= text.len().min(left);
    }
}

/// The score of each scenario and the figures with the largest weights, worst scenario first.
fn scenarios(suite: &Suite, stage: &StageResult) -> String {
    let mut rows: Vec<(f64, String)> = Vec::new();
    for index in suite.scenarios_in(stage.split) {
        let runs: Vec<&ScoredRun> = stage.runs.iter().filter(|one| one.scenario == index).collect();
        if !runs.is_empty() {
            rows.push((score(&runs), scenario(suite, &suite.scenarios[index].name, &runs)));
        }
    }
    rows.sort_by(|one, other| one.0.total_cmp(&other.0));
    let mut text = format!(
        "scenario: score (1 = as {0}, the reference; more is better); then candidate vs {0}, means of {1} seeds in {2}; \
         unserved requests are charged\n",
        suite.reference,
        stage.runs.len() / rows.len().max(1),
        stage.split
    );
    text.extend(rows.iter().map(|(_, row)| format!("{row}\n")));
    let _ = write!(text, "all: {:.3}", stage.score);
    if let Some(interval) = stage.against_reference.interval {
        let _ = write!(text, " (95 %: {:.3} to {:.3})", interval.low.exp(), interval.high.exp());
    }
    text.push('\n');
    text
}

/// The row of one scenario.
fn scenario(suite: &Suite, name: &str, runs: &[&ScoredRun]) -> String {
    let mut row = format!("{name:<20} {:.3}", score(runs));
    let fitness: Vec<&Fitness> = runs.iter().map(|one| &one.fitness).collect();
    for objective in largest_weights(suite) {
        let reference: Vec<f64> = fitness
            .iter()
            .filter_map(|one| one.components.iter().find(|part| part.objective == *objective)?.reference)
            .collect();
        let reference = (!reference.is_empty()).then(|| reference.iter().sum::<f64>() / reference.len() as f64);
        let own = mean_figure(&fitness, objective);
        let _ = write!(row, "  {objective} {} vs {}", rounded(own), rounded(reference));
    }
    let factors: Vec<Factors> = fitness.iter().filter_map(|one| one.factors).collect();
    let mean = |of: fn(&Factors) -> f64| factors.iter().map(of).sum::<f64>() / factors.len().max(1) as f64;
    let (completed, kept) = (mean(|factors| factors.completed), mean(|factors| factors.kept));
    if !factors.is_empty() && completed < 1.0 {
        let _ = write!(row, "  times {completed:.3} for requests that were not served");
    }
    if !factors.is_empty() && kept != 1.0 {
        let _ = write!(row, "  times {kept:.3} for the value of shed requests");
    }
    row
}

/// Whether candidates of the suite make decisions of `kind`. Others are left out: a candidate cannot improve them.
fn is_decided(suite: &Suite, kind: DecisionKind) -> bool {
    suite.decides.contains(&kind.of_policy())
}

fn worst_decisions(suite: &Suite, regret: &ScenarioRegret) -> String {
    let worst = regret.regret.worst.iter().filter(|one| is_decided(suite, one.kind));
    let worst: Vec<&DecisionRegret> = worst.take(DECISIONS).collect();
    if worst.is_empty() {
        return String::new();
    }
    let mut text = format!(
        "Decisions of {} with the largest regret: request-seconds that all requests together would save within {:.1} s \
         with the best alternative, all other decisions being the same\n",
        regret.scenario, regret.regret.window_s
    );
    for (index, one) in worst.into_iter().enumerate() {
        decision(&mut text, index + 1, one);
    }
    text
}

fn decision(text: &mut String, index: usize, one: &DecisionRegret) {
    let class = if one.slo_class.is_empty() { String::new() } else { format!(", class {}", one.slo_class) };
    let situations: Vec<&str> = one.situations.iter().map(|situation| situation.into_str()).collect();
    let why = if situations.is_empty() { String::new() } else { format!("; {}", situations.join(", ")) };
    let about = match one.kind {
        DecisionKind::Scaling => format!("replicas of {}, {}", one.request_id, one.reason),
        _ => format!("prompt {} tokens", one.input_tokens),
    };
    let at = one.time_us as f64 / 1e6;
    let _ = writeln!(text, "{index}. {:.3} at {at:.2} s, {about}{class}{why}", one.regret_s);
    for (number, branch) in one.branches.iter().enumerate() {
        let label = if number == 0 { "chosen" } else { "instead" };
        let _ = write!(text, "   {label} {}: cost {:.3}", branch.decision, branch.cost_s);
        match (branch.ttft_ms, branch.e2e_ms, branch.gpu_s) {
            (.., Some(held)) => text.push_str(&format!(", {held:.0} GPU-seconds\n")),
            (Some(ttft), Some(e2e), None) => text.push_str(&format!(", TTFT {ttft:.0} ms, E2E {e2e:.0} ms\n")),
            _ => text.push_str(&format!(", {}\n", branch.status)),
        }
    }
    if let Some(observed) = &one.observed {
        let _ = writeln!(
            text,
            "   observed: queue_depth {} batch_size {} in_flight {}; actual: queue {} batch {} cached_blocks {}",
            row(&observed.queue_depth),
            row(&observed.batch_size),
            row(&observed.in_flight),
            row(&one.state.queue_depth),
            row(&one.state.batch_size),
            row(&one.state.cached_blocks)
        );
    }
}

fn row(column: &[u32]) -> String {
    let shown: Vec<String> = column.iter().take(INSTANCES).map(u32::to_string).collect();
    let more = if column.len() > INSTANCES { ",…" } else { "" };
    format!("[{}{more}]", shown.join(","))
}

fn situations(suite: &Suite, regret: &ScenarioRegret) -> String {
    let mut text = String::new();
    let first = [DecisionKind::Routing, DecisionKind::Admission];
    let others = DecisionKind::VARIANTS.iter().copied().filter(|kind| !first.contains(kind));
    for kind in first.into_iter().chain(others).filter(|&kind| is_decided(suite, kind)) {
        let Some(section) = regret.regret.kinds.get(&kind) else { continue };
        let RegretSection { uniform, situations, .. } = section;
        if let Some(all) = uniform {
            let _ = writeln!(
                text,
                "{} in {}: mean regret {:.3} request-seconds per decision, {:.0} % of decisions above 0 ({} evaluated)",
                kind.name(),
                regret.scenario,
                all.regret_s,
                100.0 * all.share_positive,
                all.evaluated
            );
        }
        for (circumstance, estimate) in situations {
            let (name, count, mean) = (circumstance.into_str(), estimate.evaluated, estimate.regret_s);
            let _ = writeln!(text, "  {name}: {count} times, mean regret {mean:.3}");
        }
    }
    text
}

fn anomalies(runs: &[ScoredRun]) -> String {
    let mut text = String::new();
    let names: std::collections::BTreeSet<&String> =
        runs.iter().flat_map(|one| one.summary.anomalies.keys().chain(one.reference.anomalies.keys())).collect();
    for name in names {
        let sum = |of: &dyn Fn(&ScoredRun) -> &RunSummary| {
            runs.iter().map(|one| of(one).anomalies.get(name).copied().unwrap_or(0)).sum::<u64>()
        };
        let (own, base) = (sum(&|one| &one.summary), sum(&|one| &one.reference));
        if own > 0 || base > 0 {
            let _ = writeln!(text, "{name}: {own} (reference {base})");
        }
    }
    text
}

fn limits(stages: &[&StageResult], limits: &SuiteLimits) -> String {
    let runs = || stages.iter().flat_map(|stage| &stage.runs);
    let decisions: u64 = runs().map(|one| one.summary.decisions).sum();
    let operations: u64 = runs().map(|one| one.summary.operations).sum();
    format!(
        "{:.0} operations per decision on average; a script may use {} on average and {} in one, a component {} and {}\n",
        operations as f64 / decisions.max(1) as f64,
        limits.operations_per_request,
        limits.operations_per_call,
        limits.fuel_per_request,
        limits.fuel_per_call
    )
}

/// The number with four significant digits.
fn rounded(value: Option<f64>) -> String {
    value.map_or_else(|| "none".to_owned(), significant)
}
