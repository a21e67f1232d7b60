//! Candidates on the held-out split of a suite, compared with the baseline and the reference policies. The report is
//! for people; a search must never see it.

use std::fmt::Write as _;
use std::sync::Arc;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::candidate::CandidatePolicy;
use super::context::{EvaluatedPolicy, EvaluationSuite};
use crate::cascade::{RunSummary, StagePlan};
use crate::error::RunError;
use crate::stratified::StratifiedDifference;
use crate::suite::Split;

/// The scores of candidates and reference policies on the held-out split.
#[derive(Debug, Serialize, Deserialize)]
pub struct HeldOutReport {
    suite: String,
    suite_hash: String,
    baseline: String,
    seeds: usize,
    scenarios: Vec<String>,
    policies: Vec<HeldOutScores>,
}

#[derive(Debug, Serialize, Deserialize)]
struct HeldOutScores {
    name: String,
    /// Mean over scenarios; 1/2 is the score of the baseline.
    score: f64,
    /// Scores by scenario, means over seeds.
    scores: Vec<f64>,
    /// For a candidate, the difference of its score from that of each reference policy; empty for the others.
    against: Vec<ScoreDifference>,
}

#[derive(Debug, Serialize, Deserialize)]
struct ScoreDifference {
    name: String,
    pairs: usize,
    mean: f64,
    ci95: Option<[f64; 2]>,
}

/// Runs `candidates` and the reference policies of the suite on its held-out split. `threads`: 0 for one per core.
///
/// # Errors
/// If the suite has no held-out scenarios, a candidate cannot be loaded, or a run fails.
pub fn report(prepared: &EvaluationSuite, candidates: &[String], threads: usize) -> Result<HeldOutReport, RunError> {
    let plan = StagePlan::of(&prepared.suite, Split::Test, 0);
    if plan.scenarios.is_empty() {
        return Err(RunError::usage(format_args!("the suite `{}` has no held-out scenarios", prepared.suite.name))
            .hint("add `test` to the splits of some scenarios"));
    }
    let mut policies: Vec<(String, EvaluatedPolicy)> = Vec::new();
    for path in candidates {
        let candidate = CandidatePolicy::read(path, None)?;
        let loaded = candidate.load(&prepared.suite.limits).map_err(RunError::from)?;
        policies.push((path.clone(), prepared.candidate(&loaded, &[])?));
    }
    let candidates = policies.len();
    for name in prepared.suite.reference_policies.iter().chain([&prepared.suite.baseline]) {
        policies.push((name.clone(), prepared.named(name)?));
    }
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().map_err(RunError::runtime)?;
    let all = pool.install(|| runs(prepared, &policies, &plan))?;
    Ok(HeldOutReport::new(prepared, &policies, candidates, &plan, &all))
}

/// Summaries by policy, then by scenario, then by seed.
fn runs(
    prepared: &EvaluationSuite,
    policies: &[(String, EvaluatedPolicy)],
    plan: &StagePlan,
) -> Result<Vec<Vec<Vec<RunSummary>>>, RunError> {
    let handle = Arc::default();
    let mut tasks = Vec::new();
    for policy in policies {
        for (scenario, seeds) in &plan.scenarios {
            tasks.extend(seeds.iter().map(|&seed| (policy, *scenario, seed)));
        }
    }
    let summaries: Vec<Result<RunSummary, RunError>> = tasks
        .par_iter()
        .map(|((name, policy), scenario, seed)| {
            prepared.run(policy, (*scenario, *seed), &handle).map_err(|failure| {
                let message = format!("`{name}` in {}: {}", prepared.suite.scenarios[*scenario].name, failure.text());
                RunError::runtime(message)
            })
        })
        .collect();
    let mut summaries = summaries.into_iter().collect::<Result<Vec<_>, _>>()?.into_iter();
    let mut scenario = || summaries.by_ref().take(plan.seeds()).collect::<Vec<_>>();
    Ok(policies.iter().map(|_| plan.scenarios.iter().map(|_| scenario()).collect()).collect())
}

impl HeldOutReport {
    fn new(
        prepared: &EvaluationSuite,
        policies: &[(String, EvaluatedPolicy)],
        candidates: usize,
        plan: &StagePlan,
        all: &[Vec<Vec<RunSummary>>],
    ) -> Self {
        let suite = &prepared.suite;
        let baseline = &all[all.len() - 1];
        // Scores by policy, scenario and seed.
        let scores: Vec<Vec<Vec<f64>>> = all
            .iter()
            .map(|policy| {
                let scenario = |(own, base): (&Vec<RunSummary>, &Vec<RunSummary>)| {
                    let pairs = own.iter().zip(base);
                    pairs.map(|(own, base)| suite.weights.relative(&own.figures(), &base.figures()).score).collect()
                };
                policy.iter().zip(baseline).map(scenario).collect()
            })
            .collect();
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
        let scores_of = |(index, (name, _)): (usize, &(String, EvaluatedPolicy))| {
            let means: Vec<f64> = scores[index].iter().map(|seeds| mean(seeds)).collect();
            let against = (candidates..policies.len()).filter(|_| index < candidates).map(|other| {
                let differences: Vec<Vec<f64>> = scores[index]
                    .iter()
                    .zip(&scores[other])
                    .map(|(own, other)| own.iter().zip(other).map(|(own, other)| own - other).collect())
                    .collect();
                let difference = StratifiedDifference::stratified(&differences);
                let ci95 = difference.interval.map(|interval| [interval.low, interval.high]);
                ScoreDifference {
                    name: policies[other].0.clone(),
                    pairs: difference.pairs,
                    mean: difference.mean,
                    ci95,
                }
            });
            HeldOutScores { name: name.clone(), score: mean(&means), against: against.collect(), scores: means }
        };
        Self {
            suite: suite.name.clone(),
            suite_hash: prepared.hash().to_owned(),
            baseline: suite.baseline.clone(),
            seeds: plan.seeds(),
            scenarios: plan.scenarios.iter().map(|(index, _)| suite.scenarios[*index].name.clone()).collect(),
            policies: policies.iter().enumerate().map(scores_of).collect(),
        }
    }

    /// A table for the terminal.
    #[must_use]
    pub fn text(&self) -> String {
        // Columns that fit beside the names of scenarios.
        const COLUMNS: usize = 7;
        let mut text = format!(
            "Held-out scenarios of `{}`, {} seeds each; 0.5 is as good as {}\n",
            self.suite, self.seeds, self.baseline
        );
        let numbered: Vec<(usize, &HeldOutScores)> = (1..).zip(&self.policies).collect();
        for part in numbered.chunks(COLUMNS) {
            text.push('\n');
            let mut line = |name: &str, cells: &mut dyn Iterator<Item = String>| {
                let cells: String = cells.map(|cell| format!("{cell:>8}")).collect();
                let _ = writeln!(text, "{name:<22}{cells}");
            };
            line("", &mut part.iter().map(|(number, _)| format!("[{number}]")));
            line("all", &mut part.iter().map(|(_, one)| format!("{:.3}", one.score)));
            for (index, scenario) in self.scenarios.iter().enumerate() {
                line(scenario, &mut part.iter().map(|(_, one)| format!("{:.3}", one.scores[index])));
            }
        }
        text.push('\n');
        for (number, HeldOutScores { name, .. }) in numbered {
            let _ = writeln!(text, "[{number}] {name}");
        }
        for HeldOutScores { name, against, .. } in self.policies.iter().filter(|one| !one.against.is_empty()) {
            let _ = writeln!(text, "\n{name} against");
            for ScoreDifference { name, pairs, mean, ci95 } in against {
                let interval = ci95.map(|[low, high]| format!(" ({low:+.4} to {high:+.4})")).unwrap_or_default();
                let _ = writeln!(text, "  {name:<30}{mean:>+8.4}{interval}, {pairs} pairs");
            }
        }
        text
    }
}
