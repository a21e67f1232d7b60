//! The champion of a search: the smallest program that is not shown to be worse than the best one, by runs that the search has not
//! seen.

use std::collections::BTreeMap;

use super::archive::{Candidate, RunScore, SearchOutcome};
use crate::cascade::log_score;
use crate::stratified::StratifiedDifference;
use crate::suite::Split;

/// A champion may score less than the best program by this share, if that is not shown to be due to more than chance.
const LOSS: f64 = 0.005;
/// The same where no interval is known: in a single pair, or where almost all are equal.
const LOSS_WITHOUT_INTERVAL: f64 = 0.001;

/// The best of `finalists` by runs that the search has not seen, or in train if none passed them all, and the champion: of those that
/// are not shown to be worse, the smallest; of equally small ones the better. `None` if there are no finalists.
pub(super) fn champion(finalists: &[Selected]) -> Option<(&Selected, &Selected)> {
    let scored = finalists.iter().filter_map(|one| Some((one.unseen_score()?, one)));
    let Some((_, best)) = scored.clone().reduce(|best, one| if one.0 > best.0 { one } else { best }) else {
        let score = |one: &Selected| one.outcome.combined_score;
        let best = finalists.iter().reduce(|best, one| if score(one) > score(best) { one } else { best })?;
        return Some((best, best));
    };
    let as_good = scored.filter(|(_, one)| is_as_good(one, best));
    let key = |(score, one): &(f64, &Selected)| (one.candidate.program.size(), -score);
    let smallest = as_good.reduce(|small, one| if key(&one) < key(&small) { one } else { small });
    Some((best, smallest.map_or(best, |(_, smallest)| smallest)))
}

/// A program that was selected.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Selected {
    pub candidate: Candidate,
    pub source: String,
    /// Number of its evaluation in the search or the control.
    pub number: usize,
    /// Its scores up to select.
    pub outcome: SearchOutcome,
    /// Its scores up to select under the seeds of other epochs; none for the control.
    pub other_seeds: Vec<SearchOutcome>,
}

/// ln of the scores of a program by stage, scenario and seed: 0 is as good as the reference.
type UnseenRuns<'a> = BTreeMap<(&'a str, &'a str), BTreeMap<u64, f64>>;

impl Selected {
    /// The runs that the search has not seen: those of select, and all under other seeds.
    fn unseen(&self) -> UnseenRuns<'_> {
        let selected = self.outcome.runs.iter().filter(|run| run.stage == Split::Select.into_str());
        let mut runs = UnseenRuns::new();
        for RunScore { stage, scenario, seed, score } in
            selected.chain(self.other_seeds.iter().flat_map(|one| &one.runs))
        {
            runs.entry((stage, scenario)).or_default().insert(*seed, log_score(*score));
        }
        runs
    }

    /// The geometric mean over scenarios of the scores in runs that the search has not seen: 1 is as good as the reference. `None` if
    /// it failed in one of them.
    pub fn unseen_score(&self) -> Option<f64> {
        let mut all = std::iter::once(&self.outcome).chain(&self.other_seeds);
        let scenarios: Vec<Vec<f64>> = self.unseen().into_values().map(|runs| runs.into_values().collect()).collect();
        all.all(|one| one.select_score > 0.0).then(|| StratifiedDifference::stratified(&scenarios).mean.exp())
    }
}

/// Whether a program is not shown to be worse than the best one, and not much worse.
fn is_as_good(one: &Selected, best: &Selected) -> bool {
    let best = best.unseen();
    let of_scenario = |(scenario, runs): (&(&str, &str), &BTreeMap<u64, f64>)| {
        let others = best.get(scenario)?;
        Some(runs.iter().filter_map(|(seed, score)| Some(score - others.get(seed)?)).collect())
    };
    let differences: Vec<Vec<f64>> = one.unseen().iter().filter_map(of_scenario).collect();
    let difference = StratifiedDifference::stratified(&differences);
    let loss = if difference.interval.is_some() { LOSS } else { LOSS_WITHOUT_INTERVAL };
    !difference.is_worse() && difference.mean >= -loss
}

#[cfg(test)]
mod tests {
    use super::super::grammar::Operator;
    use super::super::program::{Expr, Program};
    use super::super::variation::Operation;
    use super::*;

    /// A program of `size` nodes with a score of `select` and runs of `scores` in train and select.
    fn selected(size: usize, scores: [f64; 6]) -> Selected {
        let value = (1..size).fold(Expr::Constant(1.0), |value, _| Expr::Apply(Operator::Root, vec![value]));
        let candidate = Candidate {
            program: Program { values: vec![value], memories: Vec::new() },
            operation: Operation::Random,
            parents: [None; 2],
        };
        let stages = ["train", "select"];
        let runs = stages.iter().flat_map(|stage| {
            scores.iter().enumerate().map(move |(seed, &score)| RunScore {
                stage: (*stage).to_owned(),
                scenario: format!("scenario-{}", seed / 3),
                seed: seed as u64,
                score,
            })
        });
        let select_score = (scores.iter().map(|score| score.ln()).sum::<f64>() / 6.0).exp();
        let outcome = SearchOutcome {
            combined_score: 3.0 + select_score / (1.0 + select_score),
            select_score,
            runs: runs.collect(),
            ..SearchOutcome::default()
        };
        Selected { candidate, source: String::new(), number: size, outcome, other_seeds: Vec::new() }
    }

    #[test]
    fn the_champion_is_the_smallest_within_the_interval_of_the_best() {
        let best = selected(20, [1.20, 1.25, 1.22, 1.10, 1.12, 1.14]);
        let close = selected(5, [1.21, 1.23, 1.23, 1.09, 1.13, 1.13]);
        let worse = selected(3, [1.19, 1.24, 1.21, 1.08, 1.10, 1.12]);
        let sizes = |all: &[Selected]| champion(all).map(|(best, champion)| (best.number, champion.number));
        assert_eq!(sizes(&[best.clone(), close, worse.clone()]), Some((20, 5)));
        assert_eq!(sizes(&[best, worse]), Some((20, 20)));
        assert_eq!(sizes(&[]), None);
    }

    #[test]
    fn what_failed_in_select_is_the_champion_of_nothing_else() {
        let mut failed = selected(2, [1.5; 6]);
        (failed.outcome.select_score, failed.outcome.combined_score) = (0.0, 0.0);
        assert_eq!(champion(&[failed.clone()]).map(|(_, champion)| champion.number), Some(2));
        assert_eq!(champion(&[failed, selected(4, [0.9; 6])]).map(|(_, champion)| champion.number), Some(4));
    }

    #[test]
    fn runs_under_other_seeds_count_and_those_of_train_that_the_search_has_seen_do_not() {
        let with_others = |mut one: Selected, score: f64| {
            let mut others = one.outcome.clone();
            others.runs.iter_mut().for_each(|run| (run.seed, run.score) = (run.seed + 100, score * run.score));
            one.other_seeds.push(others);
            one
        };
        let mut lucky = selected(20, [1.20, 1.25, 1.22, 1.10, 1.12, 1.14]);
        lucky.outcome.runs.iter_mut().filter(|run| run.stage == "train").for_each(|run| run.score *= 2.0);
        let lucky = with_others(lucky, 0.4);
        let good = with_others(selected(30, [1.19, 1.24, 1.21, 1.09, 1.11, 1.13]), 1.0);
        assert_eq!(
            champion(&[lucky.clone(), good.clone()]).map(|(best, one)| (best.number, one.number)),
            Some((30, 30))
        );
        let mut failed = with_others(selected(5, [1.5; 6]), 1.0);
        failed.other_seeds[0].select_score = 0.0;
        assert_eq!((failed.unseen_score(), champion(&[failed, good]).map(|(_, one)| one.number)), (None, Some(30)));
        // In train 2 · 0.4 times its usual scores, in select those and 0.4 times those: √0.8 · √(√0.4).
        let expected = 1.1707 * 0.8_f64.sqrt() * 0.4_f64.powf(0.25);
        assert!((lucky.unseen_score().unwrap_or(0.0) - expected).abs() < 1e-3, "{:?}", lucky.unseen_score());
    }

    #[test]
    fn of_equal_programs_the_smaller_is_the_champion() {
        let [one, other] = [7, 4].map(|size| selected(size, [1.1, 1.2, 1.3, 1.1, 1.2, 1.3]));
        assert_eq!(champion(&[one, other]).map(|(_, champion)| champion.number), Some(4));
    }
}
