//! MAP-Elites: the best program of each cell of a map, of which the coordinates are the size of the program and what it
//! does (Mouret, Clune 2015).

use std::collections::BTreeMap;

use blis_sim::rng::Generator;
use rand::RngExt as _;

use super::archive::SearchOutcome;
use super::program::Program;
use crate::suite::Split;

/// The best program of a cell.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Elite {
    /// Number of its evaluation.
    pub number: usize,
    pub program: Program,
    pub outcome: SearchOutcome,
}

/// Size, distribution of requests over instances, and what distinguishes the kind: prefix-cache hits or rejections.
type MapCell = [u8; 3];

/// The best programs so far, by cell; and by scenario of train, which may be worse in the others.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Elites {
    cells: BTreeMap<MapCell, Elite>,
    /// With the logarithm of its score there.
    specialists: BTreeMap<String, (f64, Elite)>,
}

/// Share of the parents that are the best ones of a scenario.
const SPECIALISTS: f64 = 0.25;

impl Elites {
    /// Keeps a program with a score of train if it is the best of its cell. Of equally good ones the first stays.
    pub fn offer(&mut self, elite: Elite) {
        if !elite.outcome.is_trained() {
            return;
        }
        for (scenario, score) in scores(&elite.outcome) {
            if self.specialists.get(&scenario).is_none_or(|(known, _)| score > *known) {
                self.specialists.insert(scenario, (score, elite.clone()));
            }
        }
        let cell = cell(&elite);
        let is_better = |known: &Elite| elite.outcome.train_score > known.outcome.train_score;
        if self.cells.get(&cell).is_none_or(is_better) {
            self.cells.insert(cell, elite);
        }
    }

    pub fn len(&self) -> usize {
        self.cells.len()
    }

    /// All, best first; of equally good ones the smaller, then the earlier first.
    pub fn best(&self) -> Vec<&Elite> {
        let mut all: Vec<&Elite> = self.cells.values().collect();
        all.sort_by(|one, other| {
            let by_score = other.outcome.train_score.total_cmp(&one.outcome.train_score);
            let by_size = one.program.size().cmp(&other.program.size());
            by_score.then(by_size).then(one.number.cmp(&other.number))
        });
        all
    }

    /// A parent: in a quarter of the cases the best of a scenario; else in half of them that of any cell, or the best of three.
    pub fn pick(&self, draw: &mut Generator) -> Option<&Elite> {
        let all = self.best();
        if all.is_empty() {
            return None;
        }
        if !self.specialists.is_empty() && draw.random::<f64>() < SPECIALISTS {
            let at = draw.random_range(0..self.specialists.len());
            return self.specialists.values().nth(at).map(|(_, elite)| elite);
        }
        let tries = if draw.random::<f64>() < 0.5 { 1 } else { 3 };
        (0..tries).map(|_| draw.random_range(0..all.len())).min().map(|at| all[at])
    }
}

/// The mean logarithm of the scores in each scenario of train.
fn scores(outcome: &SearchOutcome) -> BTreeMap<String, f64> {
    let mut sums: BTreeMap<String, (f64, f64)> = BTreeMap::new();
    for run in outcome.runs.iter().filter(|run| run.stage == Split::Train.name()) {
        let sum = sums.entry(run.scenario.clone()).or_default();
        *sum = (sum.0 + run.score.max(1e-6).ln(), sum.1 + 1.0);
    }
    sums.into_iter().map(|(scenario, (sum, count))| (scenario, sum / count)).collect()
}

fn cell(elite: &Elite) -> MapCell {
    let Elite { program, outcome, .. } = elite;
    let size = [4, 8, 14, 22, 32].partition_point(|&limit| program.size() > limit) as u8;
    let imbalance = [0.02, 0.05, 0.1, 0.2, 0.4].partition_point(|&limit| outcome.imbalance > limit) as u8;
    let share = if outcome.rejected_share > 0.0 { 1.0 + outcome.rejected_share } else { outcome.cache_hit_rate };
    [size, imbalance, (10.0 * share) as u8]
}

#[cfg(test)]
mod tests {
    use super::super::archive::RunScore;
    use super::super::program::Expr;
    use super::*;
    use blis_sim::rng::Stream;

    fn elite(number: usize, train_score: f64) -> Elite {
        let program = Program { values: vec![Expr::Constant(1.0)], memories: Vec::new() };
        let outcome = SearchOutcome { combined_score: 2.5, train_score, ..SearchOutcome::default() };
        Elite { number, program, outcome }
    }

    #[test]
    fn a_cell_keeps_its_best_program() {
        let mut elites = Elites::default();
        [(1, 0.5), (2, 0.9), (3, 0.9), (4, 0.7)]
            .into_iter()
            .for_each(|(number, score)| elites.offer(elite(number, score)));
        let mut unevaluated = elite(5, 2.0);
        unevaluated.outcome.combined_score = 1.9;
        elites.offer(unevaluated);
        assert_eq!(elites.best().iter().map(|one| one.number).collect::<Vec<_>>(), [2]);
    }

    #[test]
    fn programs_that_do_something_else_have_other_cells() {
        let mut elites = Elites::default();
        elites.offer(elite(1, 0.5));
        let mut other = elite(2, 0.4);
        other.outcome.cache_hit_rate = 0.9;
        elites.offer(other);
        assert_eq!(elites.best().iter().map(|one| one.number).collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn the_best_of_a_scenario_is_a_parent_although_it_is_worse_in_the_others() {
        let with_runs = |number: usize, scores: [f64; 2]| {
            let mut one = elite(number, (scores[0] * scores[1]).sqrt());
            let run = |(scenario, score): (&str, f64)| {
                let stage = Split::Train.name().to_owned();
                RunScore { stage, scenario: scenario.to_owned(), seed: 1, score }
            };
            one.outcome.runs = ["fast", "slow"].into_iter().zip(scores).map(run).collect();
            one
        };
        let mut elites = Elites::default();
        [(1, [1.2, 1.2]), (2, [1.3, 0.5]), (3, [1.25, 0.6])]
            .into_iter()
            .for_each(|(number, scores)| elites.offer(with_runs(number, scores)));
        assert_eq!(elites.best().iter().map(|one| one.number).collect::<Vec<_>>(), [1]);
        let mut draw = Stream::new(1, "test").at(0);
        let mut picked: Vec<usize> = (0..100).filter_map(|_| elites.pick(&mut draw)).map(|one| one.number).collect();
        picked.sort_unstable();
        picked.dedup();
        assert_eq!(picked, [1, 2]);
    }
}
