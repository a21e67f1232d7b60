//! Candidates on the held-out split of a suite, compared with the reference, the baseline and the reference policies. The report is
//! for people; a search must never see it.

use std::fmt::Write as _;
use std::sync::Arc;

use blis_report::{Concludes, Conclusion, ConclusionKind};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::candidate::CandidatePolicy;
use super::context::{EvaluatedPolicy, EvaluationSuite};
use crate::cascade::{RunKey, RunSummary, StagePlan, log_score};
use crate::error::RunError;
use crate::score_sentence::ScoreGain;
use crate::stratified::StratifiedDifference;
use crate::suite::{Split, Suite};

/// What `blis evaluate held-out` prints with `--output json`.
#[derive(Debug, Serialize, Deserialize)]
pub struct HeldOutReport {
    /// Name of the suite.
    suite: String,
    /// SHA-256 of the file of the suite and of the files that it names.
    suite_hash: String,
    /// Version of the suite: scores of different versions must not be compared. Unit: number, 1 or more.
    version: u32,
    /// The policy with the score 1.
    reference: String,
    /// Seeds of each scenario. Unit: seeds.
    seeds: usize,
    /// Names of the held-out scenarios.
    scenarios: Vec<String>,
    /// The candidates, the reference policies of the suite, the baseline, the reference.
    policies: Vec<HeldOutScores>,
}

/// A policy on the held-out split.
#[derive(Debug, Serialize, Deserialize)]
struct HeldOutScores {
    /// Name or file of the policy.
    name: String,
    /// Geometric mean over scenarios; 1 is the reference. Unit: score.
    score: f64,
    /// By scenario, geometric means over seeds. Unit: score.
    scores: Vec<f64>,
    /// A candidate against each of the other policies; empty for the others.
    against: Vec<ScoreRatio>,
}

/// The score of a candidate relative to that of another policy.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ScoreRatio {
    /// Name of the other policy.
    pub name: String,
    /// Number of pairs of runs. Unit: pairs.
    pairs: usize,
    /// Ratio − 1; the ratio is the geometric mean over scenarios of those over seeds. Unit: share.
    pub mean: f64,
    /// 95 % confidence interval of it; `null` without one. Unit: share.
    pub ci95: Option<[f64; 2]>,
}

impl ScoreRatio {
    /// The ratio to the policy `name`; `own` and `other` are ln of the scores by scenario and seed.
    fn new(name: &str, own: &[Vec<f64>], other: &[Vec<f64>]) -> Self {
        let scenario =
            |(own, other): (&Vec<f64>, &Vec<f64>)| own.iter().zip(other).map(|(own, other)| own - other).collect();
        let differences: Vec<Vec<f64>> = own.iter().zip(other).map(scenario).collect();
        let StratifiedDifference { pairs, mean, interval, .. } = StratifiedDifference::stratified(&differences);
        let ci95 = interval.map(|interval| [interval.low.exp_m1(), interval.high.exp_m1()]);
        Self { name: name.to_owned(), pairs, mean: mean.exp_m1(), ci95 }
    }
}

/// Runs `candidates` and the reference policies of the suite on its held-out split. `threads`: 0 for one per core.
///
/// # Errors
/// If the suite has no held-out scenarios, a candidate cannot be loaded, or a run fails.
pub fn report(prepared: &EvaluationSuite, candidates: &[String], threads: usize) -> Result<HeldOutReport, RunError> {
    let candidates = candidates.iter().map(|path| CandidatePolicy::read(path, None)).collect::<Result<Vec<_>, _>>()?;
    report_of(prepared, &candidates, threads)
}

/// As [`report`], of candidates that were read.
pub(super) fn report_of(
    prepared: &EvaluationSuite,
    candidates: &[CandidatePolicy],
    threads: usize,
) -> Result<HeldOutReport, RunError> {
    let plan = StagePlan::new(&prepared.suite, Split::Test, 0);
    if plan.scenarios.is_empty() {
        return Err(RunError::usage(format_args!("the suite `{}` has no held-out scenarios", prepared.suite.name))
            .hint("add `test` to the splits of some scenarios"));
    }
    let mut policies: Vec<(String, EvaluatedPolicy)> = Vec::new();
    for candidate in candidates {
        let loaded = candidate.load(&prepared.suite.limits).map_err(RunError::from)?;
        policies.push((candidate.file.clone(), prepared.candidate(&loaded, &[])?));
    }
    let candidates = policies.len();
    let Suite { reference, baseline, reference_policies, .. } = &prepared.suite;
    for name in
        reference_policies.iter().filter(|name| ![reference, baseline].contains(name)).chain([baseline, reference])
    {
        if !policies[candidates..].iter().any(|(known, _)| known == name) {
            policies.push((name.clone(), prepared.named(name)?));
        }
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
            tasks.extend(seeds.iter().map(|&seed| (policy, RunKey { scenario: *scenario, seed })));
        }
    }
    let summaries: Vec<Result<RunSummary, RunError>> = tasks
        .par_iter()
        .map(|&((name, policy), at)| {
            prepared.run(policy, at, &handle).map_err(|failure| {
                let message = format!("`{name}` in {}: {}", prepared.suite.scenarios[at.scenario].name, failure.text());
                RunError::runtime(message)
            })
        })
        .collect();
    let mut summaries = summaries.into_iter().collect::<Result<Vec<_>, _>>()?.into_iter();
    let mut scenario = || summaries.by_ref().take(plan.seeds()).collect::<Vec<_>>();
    Ok(policies.iter().map(|_| plan.scenarios.iter().map(|_| scenario()).collect()).collect())
}

impl Concludes for HeldOutReport {
    /// About the best candidate beside the reference, which comes last.
    fn conclusion(&self) -> Conclusion {
        let candidates = self.policies.iter().filter_map(|one| Some((one, one.against.last()?)));
        let best = candidates.max_by(|one, other| one.0.score.total_cmp(&other.0.score));
        let Some((one, ratio)) = best else {
            return Conclusion::new(ConclusionKind::UNDECIDED, "Undecided: no candidate was compared");
        };
        let gain = ScoreGain { mean: ratio.mean, ci95: ratio.ci95 };
        let scenarios = self.scenarios.len();
        let text =
            format!("{} the reference {} on {scenarios} held-out scenarios: {}", gain.words(), ratio.name, one.name);
        Conclusion::new(gain.kind(), text)
    }
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
        // The reference comes last.
        let reference = &all[all.len() - 1];
        // ln of the scores, by policy, scenario and seed.
        let logs: Vec<Vec<Vec<f64>>> = all
            .iter()
            .map(|policy| {
                let log = |(own, reference): (&RunSummary, &RunSummary)| {
                    log_score(suite.weights.relative(&own.charged, &reference.charged).score)
                };
                let scenario = |(own, reference): (&Vec<RunSummary>, &Vec<RunSummary>)| {
                    own.iter().zip(reference).map(log).collect()
                };
                policy.iter().zip(reference).map(scenario).collect()
            })
            .collect();
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
        let scores_of = |(index, (name, _)): (usize, &(String, EvaluatedPolicy))| {
            let means: Vec<f64> = logs[index].iter().map(|seeds| mean(seeds)).collect();
            let others = (candidates..policies.len()).filter(|_| index < candidates);
            let against = others.map(|other| ScoreRatio::new(&policies[other].0, &logs[index], &logs[other]));
            HeldOutScores {
                name: name.clone(),
                score: mean(&means).exp(),
                against: against.collect(),
                scores: means.into_iter().map(f64::exp).collect(),
            }
        };
        Self {
            suite: suite.name.clone(),
            suite_hash: prepared.hash().to_owned(),
            version: suite.version,
            reference: suite.reference.clone(),
            seeds: plan.seeds(),
            scenarios: plan.scenarios.iter().map(|(index, _)| suite.scenarios[*index].name.clone()).collect(),
            policies: policies.iter().enumerate().map(scores_of).collect(),
        }
    }

    /// Seeds of each scenario.
    pub(super) fn seeds(&self) -> usize {
        self.seeds
    }

    /// The score of the first candidate, and its ratios to those of the other policies.
    pub(super) fn candidate(&self) -> Option<(f64, &[ScoreRatio])> {
        self.policies.first().map(|one| (one.score, one.against.as_slice()))
    }

    /// A table for the terminal.
    #[must_use]
    pub fn text(&self) -> String {
        // Columns that fit beside the names of scenarios.
        const COLUMNS: usize = 7;
        let mut text = format!(
            "Held-out scenarios of `{}` version {}, {} seeds each; 1 is as good as {}\n",
            self.suite, self.version, self.seeds, self.reference
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
            for ScoreRatio { name, pairs, mean, ci95 } in against {
                let percent = |share: f64| format!("{:+.2} %", 100.0 * share);
                let compared = match ci95 {
                    Some([low, high]) => format!(" ({} to {}), {pairs} pairs", percent(*low), percent(*high)),
                    None if *mean == 0.0 => format!(", equal in all {pairs} pairs"),
                    None => format!(", too few of {pairs} pairs differ for an interval"),
                };
                let _ = writeln!(text, "  {name:<30}{:>11}{compared}", percent(*mean));
            }
        }
        text
    }
}
