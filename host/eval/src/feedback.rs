//! Feedback: the result of an evaluation as text within a budget of bytes, for the author of the next candidate, often
//! a language model. Order and rounding are fixed, so that equal candidates make equal prompts.

use std::fmt::Write as _;

use super::cascade::{Facts, Scored, Stage};
use super::regret::{DecisionKind, Judged, Regret, Section};
use super::suite::{Split, Suite, SuiteLimits};
use super::verdict::{Artifacts, VerdictDocument};
use super::{Figure, Judgement};
use blis_plugin::Kind;

/// Decisions that are described in full.
const DECISIONS: usize = 5;
/// Number of instances in the state that is shown with a decision; a service may have hundreds.
const INSTANCES: usize = 8;

/// The regret of the candidate's decisions in one scenario.
#[derive(Clone, Debug, PartialEq)]
pub struct Lesson {
    /// Name of the scenario.
    pub scenario: String,
    pub regret: Regret,
}

/// Fills in all texts except the error, and cuts all of them to `bytes` together.
pub fn tell(
    document: &mut VerdictDocument,
    suite: &Suite,
    judgement: &Judgement,
    lesson: Option<&Lesson>,
    bytes: usize,
) {
    let shown: Vec<&Stage> = judgement.stages.iter().filter(|stage| stage.split != Split::Select).collect();
    let artifacts = &mut document.artifacts;
    if let Some(stage) = shown.last() {
        artifacts.scenarios = scenarios(suite, stage);
        artifacts.anomalies = anomalies(&stage.runs);
    }
    if let Some(lesson) = lesson {
        artifacts.worst_decisions = worst_decisions(suite, lesson);
        artifacts.situations = situations(suite, lesson);
    }
    if judgement.stages.iter().any(|stage| stage.runs.iter().any(|one| one.facts.operations > 0)) {
        artifacts.limits = limits(judgement, &suite.limits);
    }
    cut(artifacts, bytes);
}

/// Cuts the texts to `bytes` together: the last ones first.
pub fn cut(artifacts: &mut Artifacts, bytes: usize) {
    const MARK: &str = "\n… (cut)";
    let Artifacts { error, scenarios, worst_decisions, situations, anomalies, limits } = artifacts;
    let mut left = bytes;
    for text in [error, scenarios, worst_decisions, situations, anomalies, limits] {
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
fn scenarios(suite: &Suite, stage: &Stage) -> String {
    let mut weights: Vec<(Figure, f64)> = suite.weights.iter().filter(|&(_, weight)| weight > 0.0).collect();
    weights.sort_by(|one, other| other.1.total_cmp(&one.1));
    weights.truncate(4);
    let mut rows: Vec<(f64, String)> = Vec::new();
    for place in suite.of(stage.split) {
        let runs: Vec<&Scored> = stage.runs.iter().filter(|one| one.scenario == place).collect();
        if runs.is_empty() {
            continue;
        }
        let score = runs.iter().map(|one| one.score).sum::<f64>() / runs.len() as f64;
        let mut row = format!("{:<20} {score:.3}", suite.scenarios[place].name);
        for &(figure, _) in &weights {
            let mean = |facts: &dyn Fn(&Scored) -> &Facts| {
                let values: Vec<f64> = runs.iter().filter_map(|one| facts(one).figures().get(figure)).collect();
                (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
            };
            let (own, base) = (mean(&|one| &one.facts), mean(&|one| &one.baseline));
            let _ = write!(row, "  {} {} vs {}", figure.key(), rounded(own), rounded(base));
        }
        rows.push((score, row));
    }
    rows.sort_by(|one, other| one.0.total_cmp(&other.0));
    let mut text = format!(
        "scenario: score (0.5 = as {}), then you vs {}; means of {} seeds in {}\n",
        suite.baseline,
        suite.baseline,
        stage.runs.len() / rows.len().max(1),
        stage.split
    );
    text.extend(rows.iter().map(|(_, row)| format!("{row}\n")));
    let difference = &stage.against_baseline;
    let _ = write!(text, "all: {:.3}", stage.score);
    if let Some(interval) = difference.interval {
        let _ = write!(text, ", difference {:+.4} ({:+.4} to {:+.4})", difference.mean, interval.low, interval.high);
    }
    text.push('\n');
    text
}

/// Whether candidates of the suite make decisions of `kind`. Others are left out: a candidate cannot improve them.
fn theirs(suite: &Suite, kind: DecisionKind) -> bool {
    suite.decides.contains(&match kind {
        DecisionKind::Admission => Kind::Admission,
        DecisionKind::Routing => Kind::Routing,
        DecisionKind::Scheduling => Kind::Scheduling,
    })
}

fn worst_decisions(suite: &Suite, lesson: &Lesson) -> String {
    let worst = lesson.regret.worst.iter().filter(|one| theirs(suite, one.kind));
    let worst: Vec<&Judged> = worst.take(DECISIONS).collect();
    if worst.is_empty() {
        return String::new();
    }
    let mut text = format!(
        "Decisions of {} that cost most: request-seconds that all requests together would have saved within {:.1} s, \
         had it been the best alternative, everything else being the same\n",
        lesson.scenario, lesson.regret.window_s
    );
    for (place, one) in worst.into_iter().enumerate() {
        decision(&mut text, place + 1, one);
    }
    text
}

fn decision(text: &mut String, place: usize, one: &Judged) {
    let class = if one.slo_class.is_empty() { String::new() } else { format!(", class {}", one.slo_class) };
    let situations: Vec<String> = one.situations.iter().map(situation).collect();
    let why = if situations.is_empty() { String::new() } else { format!("; {}", situations.join(", ")) };
    let _ = writeln!(
        text,
        "{place}. {:.3} at {:.2} s, prompt {} tokens{class}{why}",
        one.regret_s,
        one.time_us as f64 / 1e6,
        one.input_tokens
    );
    for (number, world) in one.worlds.iter().enumerate() {
        let who = if number == 0 { "chosen" } else { "instead" };
        let _ = write!(text, "   {who} {}: cost {:.3}", world.answer, world.cost_s);
        match (world.ttft_ms, world.e2e_ms) {
            (Some(ttft), Some(e2e)) => text.push_str(&format!(", TTFT {ttft:.0} ms, E2E {e2e:.0} ms\n")),
            _ => text.push_str(&format!(", {}\n", world.status)),
        }
    }
    if let Some(seen) = &one.seen {
        let _ = writeln!(
            text,
            "   seen: queue_depth {} batch_size {} in_flight {}; really: queue {} batch {} cached_blocks {}",
            row(&seen.queue_depth),
            row(&seen.batch_size),
            row(&seen.in_flight),
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

fn situation(situation: &super::regret::Situation) -> String {
    let text = serde_json::to_string(situation).unwrap_or_default();
    text.trim_matches('"').replace('_', " ")
}

fn situations(suite: &Suite, lesson: &Lesson) -> String {
    let mut text = String::new();
    let kinds = [
        (DecisionKind::Routing, "routing"),
        (DecisionKind::Admission, "admission"),
        (DecisionKind::Scheduling, "scheduling"),
    ];
    for (kind, name) in kinds.into_iter().filter(|&(kind, _)| theirs(suite, kind)) {
        let Some(section) = lesson.regret.kinds.get(&kind) else { continue };
        let Section { uniform, situations, .. } = section;
        if let Some(all) = uniform {
            let _ = writeln!(
                text,
                "{name} in {}: mean regret {:.3} request-seconds per decision, {:.0} % of decisions above 0 ({} judged)",
                lesson.scenario,
                all.regret_s,
                100.0 * all.share_positive,
                all.judged
            );
        }
        for (circumstance, estimate) in situations {
            let (name, judged, regret) = (situation(circumstance), estimate.judged, estimate.regret_s);
            let _ = writeln!(text, "  {name}: {judged} times, mean regret {regret:.3}");
        }
    }
    text
}

fn anomalies(runs: &[Scored]) -> String {
    let mut text = String::new();
    let names: std::collections::BTreeSet<&String> =
        runs.iter().flat_map(|one| one.facts.anomalies.keys().chain(one.baseline.anomalies.keys())).collect();
    for name in names {
        let sum = |of: &dyn Fn(&Scored) -> &Facts| {
            runs.iter().map(|one| of(one).anomalies.get(name).copied().unwrap_or(0)).sum::<u64>()
        };
        let (own, base) = (sum(&|one| &one.facts), sum(&|one| &one.baseline));
        if own > 0 || base > 0 {
            let _ = writeln!(text, "{name}: {own} (baseline {base})");
        }
    }
    text
}

fn limits(judgement: &Judgement, limits: &SuiteLimits) -> String {
    let runs = || judgement.stages.iter().flat_map(|stage| &stage.runs);
    let decisions: u64 = runs().map(|one| one.facts.decisions).sum();
    let operations: u64 = runs().map(|one| one.facts.operations).sum();
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
    let Some(value) = value else { return "none".to_owned() };
    let digits = if value == 0.0 { 0 } else { (3 - value.abs().log10().floor() as i32).clamp(0, 6) };
    format!("{value:.*}", digits as usize)
}
