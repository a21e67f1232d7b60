//! The champion of a search: the smallest program that is not shown to be worse than the best one.

use std::collections::BTreeMap;

use super::archive::{Candidate, RunScore, SearchOutcome};
use crate::cascade::log_score;
use crate::stratified::StratifiedDifference;
use crate::suite::Split;

/// A champion may score less than the best program by this share, if that is not shown to be due to more than chance.
const LOSS: f64 = 0.01;
/// The same where no interval is known: in a single pair, or where almost all are equal.
const LOSS_WITHOUT_INTERVAL: f64 = 0.001;

/// The best of `finalists` in select, or in train if none passed select, and the champion: of those that are within the interval
/// of the best, in train and in select, the smallest; of equally small ones the better. `None` if there are no finalists.
pub(super) fn champion(finalists: &[Selected]) -> Option<(&Selected, &Selected)> {
    let score = |one: &Selected| one.outcome.combined_score;
    let best = finalists.iter().reduce(|best, one| if score(one) > score(best) { one } else { best })?;
    let is_selected = |one: &Selected| one.outcome.select_score > 0.0;
    let as_good = finalists.iter().filter(|one| is_selected(one) && is_selected(best));
    let as_good = as_good.filter(|one| is_as_good(&one.outcome.runs, &best.outcome.runs));
    let key = |one: &Selected| (one.candidate.program.size(), -score(one));
    let smallest = as_good.reduce(|small, one| if key(one) < key(small) { one } else { small });
    Some((best, smallest.unwrap_or(best)))
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
}

/// Whether the runs of a program are not shown to be worse than those of the best one, and not much worse.
fn is_as_good(runs: &[RunScore], best: &[RunScore]) -> bool {
    [Split::Train, Split::Select].into_iter().all(|split| {
        let difference = difference(split, runs, best);
        let loss = if difference.interval.is_some() { LOSS } else { LOSS_WITHOUT_INTERVAL };
        !difference.is_worse() && difference.mean >= -loss
    })
}

/// The paired differences of ln of the scores in a stage.
fn difference(split: Split, runs: &[RunScore], best: &[RunScore]) -> StratifiedDifference {
    let mut differences: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for run in runs.iter().filter(|run| run.stage == split.name()) {
        let is_pair =
            |other: &&RunScore| (&other.stage, &other.scenario, other.seed) == (&run.stage, &run.scenario, run.seed);
        if let Some(other) = best.iter().find(is_pair) {
            differences.entry(&run.scenario).or_default().push(log_score(run.score) - log_score(other.score));
        }
    }
    StratifiedDifference::stratified(&differences.into_values().collect::<Vec<_>>())
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
        Selected { candidate, source: String::new(), number: size, outcome }
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
    fn of_equal_programs_the_smaller_is_the_champion() {
        let [one, other] = [7, 4].map(|size| selected(size, [1.1, 1.2, 1.3, 1.1, 1.2, 1.3]));
        assert_eq!(champion(&[one, other]).map(|(_, champion)| champion.number), Some(4));
    }
}
