//! Candidates on the held-out split of a suite, compared with the baseline and the reference policies. The report is
//! for people; a search must never see it.

use std::fmt::Write as _;
use std::sync::Arc;

use rayon::prelude::*;
use serde::Serialize;

use super::bench::{Bench, Player};
use super::candidate::Candidate;
use crate::cascade::{Difference, Facts, Part};
use crate::error::Failure;
use crate::suite::Split;

/// The scores of candidates and reference policies on the held-out split.
#[derive(Debug, Serialize)]
pub struct Report {
    suite: String,
    suite_hash: String,
    baseline: String,
    seeds: usize,
    scenarios: Vec<String>,
    contestants: Vec<Contestant>,
}

#[derive(Debug, Serialize)]
struct Contestant {
    name: String,
    /// Mean over scenarios; 1/2 is the score of the baseline.
    score: f64,
    /// Scores by scenario, means over seeds.
    scores: Vec<f64>,
    /// For a candidate, the difference of its score from that of each reference policy; empty for the others.
    against: Vec<Against>,
}

#[derive(Debug, Serialize)]
struct Against {
    name: String,
    pairs: usize,
    mean: f64,
    ci95: Option<[f64; 2]>,
}

/// Runs `candidates` and the reference policies of the suite on its held-out split. `threads`: 0 for one per core.
///
/// # Errors
/// If the suite has no held-out scenarios, a candidate cannot be loaded, or a run fails.
pub fn report(bench: &Bench, candidates: &[String], threads: usize) -> Result<Report, Failure> {
    let part = Part::of(&bench.suite, Split::Test, 0);
    if part.scenarios.is_empty() {
        return Err(Failure::usage(format_args!("the suite `{}` has nothing held out", bench.suite.name))
            .hint("give some scenarios the split `test`"));
    }
    let mut players: Vec<(String, Player)> = Vec::new();
    for path in candidates {
        let candidate = Candidate::read(path, None)?;
        let loaded = candidate.load(&bench.suite.limits).map_err(Failure::from)?;
        players.push((path.clone(), bench.candidate(&loaded, &[])?));
    }
    let candidates = players.len();
    for name in bench.suite.rivals.iter().chain([&bench.suite.baseline]) {
        players.push((name.clone(), bench.named(name)?));
    }
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().map_err(Failure::runtime)?;
    let all = pool.install(|| runs(bench, &players, &part))?;
    Ok(Report::new(bench, &players, candidates, &part, &all))
}

/// Summaries by policy, then by scenario, then by seed.
fn runs(bench: &Bench, players: &[(String, Player)], part: &Part) -> Result<Vec<Vec<Vec<Facts>>>, Failure> {
    let hand = Arc::default();
    let mut tasks = Vec::new();
    for player in players {
        for &scenario in &part.scenarios {
            tasks.extend(part.seeds.iter().map(|&seed| (player, scenario, seed)));
        }
    }
    let facts: Vec<Result<Facts, Failure>> = tasks
        .par_iter()
        .map(|((name, player), scenario, seed)| {
            bench.facts(player, (*scenario, *seed), &hand).map_err(|failure| {
                let told = format!("`{name}` in {}: {}", bench.suite.scenarios[*scenario].name, failure.text());
                Failure::runtime(told)
            })
        })
        .collect();
    let mut facts = facts.into_iter().collect::<Result<Vec<_>, _>>()?.into_iter();
    let mut scenario = || facts.by_ref().take(part.seeds.len()).collect::<Vec<_>>();
    Ok(players.iter().map(|_| part.scenarios.iter().map(|_| scenario()).collect()).collect())
}

impl Report {
    fn new(
        bench: &Bench,
        players: &[(String, Player)],
        candidates: usize,
        part: &Part,
        all: &[Vec<Vec<Facts>>],
    ) -> Self {
        let suite = &bench.suite;
        let baseline = &all[all.len() - 1];
        // Scores by policy, scenario and seed.
        let scores: Vec<Vec<Vec<f64>>> = all
            .iter()
            .map(|player| {
                let scenario = |(own, base): (&Vec<Facts>, &Vec<Facts>)| {
                    let pairs = own.iter().zip(base);
                    pairs.map(|(own, base)| suite.weights.relative(&own.figures(), &base.figures()).score).collect()
                };
                player.iter().zip(baseline).map(scenario).collect()
            })
            .collect();
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
        let contestant = |(place, (name, _)): (usize, &(String, Player))| {
            let means: Vec<f64> = scores[place].iter().map(|seeds| mean(seeds)).collect();
            let against = (candidates..players.len()).filter(|_| place < candidates).map(|other| {
                let differences: Vec<Vec<f64>> = scores[place]
                    .iter()
                    .zip(&scores[other])
                    .map(|(own, other)| own.iter().zip(other).map(|(own, other)| own - other).collect())
                    .collect();
                let difference = Difference::stratified(&differences);
                let ci95 = difference.interval.map(|interval| [interval.low, interval.high]);
                Against { name: players[other].0.clone(), pairs: difference.pairs, mean: difference.mean, ci95 }
            });
            Contestant { name: name.clone(), score: mean(&means), against: against.collect(), scores: means }
        };
        Self {
            suite: suite.name.clone(),
            suite_hash: bench.hash().to_owned(),
            baseline: suite.baseline.clone(),
            seeds: part.seeds.len(),
            scenarios: part.scenarios.iter().map(|&place| suite.scenarios[place].name.clone()).collect(),
            contestants: players.iter().enumerate().map(contestant).collect(),
        }
    }

    /// A table for the terminal.
    #[must_use]
    pub fn text(&self) -> String {
        let width = self.contestants.iter().map(|one| one.name.chars().count()).max().unwrap_or(0) + 2;
        let mut text = format!(
            "Held-out scenarios of `{}`, {} seeds each; 0.5 is as good as {}\n\n{:<width$}{:>8}",
            self.suite, self.seeds, self.baseline, "", "all"
        );
        self.scenarios.iter().for_each(|name| text.push_str(&format!("{name:>16}")));
        text.push('\n');
        for Contestant { name, score, scores, .. } in &self.contestants {
            let _ = write!(text, "{name:<width$}{score:>8.3}");
            scores.iter().for_each(|score| text.push_str(&format!("{score:>16.3}")));
            text.push('\n');
        }
        for Contestant { name, against, .. } in self.contestants.iter().filter(|one| !one.against.is_empty()) {
            let _ = writeln!(text, "\n{name} against");
            for Against { name, pairs, mean, ci95 } in against {
                let interval = ci95.map(|[low, high]| format!(" ({low:+.4} to {high:+.4})")).unwrap_or_default();
                let _ = writeln!(text, "  {name:<30}{mean:>+8.4}{interval}, {pairs} pairs");
            }
        }
        text
    }
}
