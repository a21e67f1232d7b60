//! An evaluation result as text, for a terminal.

use std::collections::BTreeMap;
use std::fmt::{self, Display};

use blis_eval::result::{EvaluationResult, EvaluationStatus, ScenarioDocument};

/// Displays the result of one candidate. Its texts may be longer than a line.
pub(super) struct EvaluationSummary<'a> {
    /// The candidate, as the user names it.
    pub candidate: &'a str,
    pub result: &'a EvaluationResult,
}

impl Display for EvaluationSummary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let result = self.result;
        writeln!(f, "Candidate         {}", self.candidate)?;
        writeln!(f, "Status            {}, last stage {}", status(result.status), result.stage)?;
        writeln!(f, "Combined score    {:.4}{}", result.combined_score, scale(&result.stage))?;
        let score = match result.stage.as_str() {
            "select" => result.private.score,
            "train" => Some(result.metrics.train_score),
            "smoke" => Some(result.metrics.smoke_score),
            _ => None,
        };
        if let (Some(paired), Some(score)) = (result.private.paired.as_ref().or(result.paired.as_ref()), score) {
            writeln!(f, "Score             {score:.4}, 1 is as good as {}, the reference", paired.reference)?;
            let interval = paired.ci95.map(|[low, high]| format!(" [{}, {}]", percent(low), percent(high)));
            let interval = interval.unwrap_or_default();
            writeln!(f, "Against reference {}{interval}, {} pairs", percent(paired.diff_mean), paired.n)?;
        }
        if let Some(stopped) = &result.stopped {
            field(f, "Stopped", stopped)?;
        }
        let hidden = &result.private.failed;
        for failed in if hidden.is_empty() { &result.gates.failed } else { hidden } {
            field(f, "Gate failed", failed)?;
        }
        if !result.artifacts.error.is_empty() {
            writeln!(f, "\n{}", result.artifacts.error.trim_end())?;
        }
        table(f, result)?;
        let texts = [&result.artifacts.patterns, &result.artifacts.worst_minute];
        texts.into_iter().filter(|text| !text.is_empty()).try_for_each(|text| write!(f, "\n{text}"))
    }
}

fn status(status: EvaluationStatus) -> &'static str {
    match status {
        EvaluationStatus::Ok => "ok",
        EvaluationStatus::Rejected => "rejected: no valid policy for this suite",
        EvaluationStatus::Trap => "trap: failed during a decision",
        EvaluationStatus::Limit => "limit: exceeded a limit of resources",
        EvaluationStatus::GateFailed => "gate failed",
        EvaluationStatus::HostError => "host error: evaluate again",
    }
}

/// What the score of a stage means.
fn scale(stage: &str) -> &'static str {
    match stage {
        "smoke" => " (smoke: 1 to 2; 1.5 equals the reference)",
        "train" => " (train: 2 to 3; 2.5 equals the reference)",
        "select" => " (select: 3 to 4; 3.5 equals the reference)",
        _ => "",
    }
}

fn percent(share: f64) -> String {
    format!("{:+.2} %", 100.0 * share)
}

fn field(f: &mut fmt::Formatter<'_>, name: &str, text: &str) -> fmt::Result {
    writeln!(f, "{name:<18}{text}")
}

/// Means over the seeds of the last stage, a line for each scenario.
fn table(f: &mut fmt::Formatter<'_>, result: &EvaluationResult) -> fmt::Result {
    let mut scenarios: BTreeMap<&str, Vec<&ScenarioDocument>> = BTreeMap::new();
    let runs = result.scenarios.iter().chain(&result.private.scenarios);
    for run in runs.filter(|run| run.stage == result.stage) {
        scenarios.entry(&run.id).or_default().push(run);
    }
    if scenarios.is_empty() {
        return Ok(());
    }
    writeln!(
        f,
        "\n{:<24} {:>6}  {:>10} {:>10}  {:>10} {:>10}",
        "", "score", "TTFT, ms", "reference", "E2E, ms", "reference"
    )?;
    for (id, runs) in scenarios {
        let mean =
            |of: &dyn Fn(&ScenarioDocument) -> f64| runs.iter().map(|run| of(run)).sum::<f64>() / runs.len() as f64;
        let figure = |value: Option<f64>| value.unwrap_or(f64::NAN);
        let id: String = id.chars().take(24).collect();
        writeln!(
            f,
            "{id:<24} {:>6.3}  {:>10.1} {:>10.1}  {:>10.1} {:>10.1}",
            mean(&|run| run.score.ln()).exp(),
            mean(&|run| figure(run.metrics.mean_ttft_ms)),
            mean(&|run| figure(run.reference.mean_ttft_ms)),
            mean(&|run| figure(run.metrics.mean_e2e_ms)),
            mean(&|run| figure(run.reference.mean_e2e_ms)),
        )?;
    }
    writeln!(f, "\n`--output json` has all figures and the feedback.")
}
