//! Which programs become parents: MAP-Elites, the best program of each cell of a map, of which the coordinates are the size of
//! the program and what it does (Mouret, Clune 2015); and lexicase selection, which takes the programs that are best in one
//! scenario, among these those that are best in another, and so on (Helmuth, Spector, Matheson 2015; with a tolerance La Cava,
//! Spector, Danai 2016). The latter finds programs that gain in one scenario and lose in others, of which the mean is low.

use std::collections::BTreeMap;

use blis_sim::rng::Generator;
use rand::RngExt as _;

use super::archive::SearchOutcome;
use super::program::Program;
use super::rung::Rung;

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

/// The programs that may become parents.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Elites {
    /// The best of each cell, of those that were evaluated in the whole of train.
    cells: BTreeMap<MapCell, Elite>,
    /// The best of those, best first, of programs with the same score the smallest: they decide the same.
    best: Vec<Elite>,
    /// Programs with a score of train under its first seed, in the order in which they were offered.
    pool: Vec<PoolMember>,
}

/// A program with the logarithms of its scores under the first seed of each scenario of train, by name of the scenario.
#[derive(Clone, Debug, PartialEq)]
struct PoolMember {
    elite: Elite,
    scores: Vec<f64>,
}

impl PoolMember {
    fn mean(&self) -> f64 {
        self.scores.iter().sum::<f64>() / self.scores.len().max(1) as f64
    }
}

/// Share of the parents that lexicase selection takes.
const BY_SCENARIO: f64 = 0.4;
/// Scores of a scenario that differ by less than this, in ln, count as equal.
const TOLERANCE: f64 = 0.01;
/// Programs in the pool of lexicase selection.
const POOL: usize = 512;
/// The best programs that are kept whatever their cell is.
pub(super) const BEST: usize = 12;

impl Elites {
    /// Keeps a program with a score of train, and, if all of train was run, if it is the best of its cell. Of equally good ones the
    /// first stays.
    pub fn offer(&mut self, rung: Rung, elite: Elite) {
        if !elite.outcome.has_train_score() {
            return;
        }
        let scores = elite.outcome.first_seed_logs();
        if self.pool.first().is_none_or(|one| one.scores.len() == scores.len()) {
            self.pool.push(PoolMember { elite: elite.clone(), scores });
            self.limit_pool();
        }
        if rung < Rung::Train {
            return;
        }
        self.offer_best(&elite);
        let cell = cell(&elite);
        let is_better = |known: &Elite| elite.outcome.train_score > known.outcome.train_score;
        if self.cells.get(&cell).is_none_or(is_better) {
            self.cells.insert(cell, elite);
        }
    }

    /// Keeps a program if it is one of the best in train, and none that is as small has the same score.
    fn offer_best(&mut self, elite: &Elite) {
        let score = |one: &Elite| one.outcome.train_score;
        if let Some(same) = self.best.iter_mut().find(|one| score(one).to_bits() == score(elite).to_bits()) {
            if elite.program.size() < same.program.size() {
                *same = elite.clone();
            }
            return;
        }
        let at = self.best.partition_point(|one| score(one) > score(elite));
        self.best.insert(at, elite.clone());
        self.best.truncate(BEST);
    }

    /// The best programs in train, best first: at most [`BEST`], no two with the same score.
    pub fn best_in_train(&self) -> &[Elite] {
        &self.best
    }

    /// The programs of both.
    pub fn joined(&self, other: &Self) -> Self {
        let mut both = self.clone();
        for (cell, elite) in &other.cells {
            let is_better = |known: &Elite| elite.outcome.train_score > known.outcome.train_score;
            if both.cells.get(cell).is_none_or(is_better) {
                both.cells.insert(*cell, elite.clone());
            }
        }
        other.best.iter().for_each(|elite| both.offer_best(elite));
        let is_new = |one: &&PoolMember| self.pool.iter().all(|known| known.elite.number != one.elite.number);
        for member in other.pool.iter().filter(is_new) {
            both.pool.push(member.clone());
            both.limit_pool();
        }
        both
    }

    /// Removes the program with the lowest mean that is not the best of a scenario, if there are too many.
    fn limit_pool(&mut self) {
        if self.pool.len() <= POOL {
            return;
        }
        let best = self.highest();
        let is_best = |one: &PoolMember| one.scores.iter().zip(&best).any(|(score, best)| *score >= best - TOLERANCE);
        let spare = (0..self.pool.len()).filter(|&at| !is_best(&self.pool[at]));
        let worst = spare.min_by(|&one, &other| self.pool[one].mean().total_cmp(&self.pool[other].mean()));
        self.pool.remove(worst.unwrap_or(0));
    }

    /// The highest score of each scenario in the pool.
    fn highest(&self) -> Vec<f64> {
        let scenarios = self.pool.first().map_or(0, |one| one.scores.len());
        (0..scenarios).map(|at| self.pool.iter().map(|one| one.scores[at]).fold(f64::NEG_INFINITY, f64::max)).collect()
    }

    /// Number of cells of the map that have a program.
    pub fn cells(&self) -> usize {
        self.cells.len()
    }

    /// The best of all cells, best first; of equally good ones the smaller, then the earlier first.
    pub fn best(&self) -> Vec<&Elite> {
        let mut all: Vec<&Elite> = self.cells.values().collect();
        all.sort_by(|one, other| {
            let by_score = other.outcome.train_score.total_cmp(&one.outcome.train_score);
            let by_size = one.program.size().cmp(&other.program.size());
            by_score.then(by_size).then(one.number.cmp(&other.number))
        });
        all
    }

    /// A parent: in two of five cases by lexicase selection; else in half of them that of any cell, or the best of three.
    pub fn pick(&self, draw: &mut Generator) -> Option<&Elite> {
        if draw.random::<f64>() < BY_SCENARIO {
            return self.by_scenario(None, draw);
        }
        let all = self.best();
        if all.is_empty() {
            return self.by_scenario(None, draw);
        }
        let tries = if draw.random::<f64>() < 0.5 { 1 } else { 3 };
        (0..tries).map(|_| draw.random_range(0..all.len())).min().map(|at| all[at])
    }

    /// A second parent: in half of the cases as [`Self::pick`], else by lexicase selection that begins with the scenario in which
    /// `parent` is furthest from the best.
    pub fn pick_beside(&self, parent: &Elite, draw: &mut Generator) -> Option<&Elite> {
        if draw.random::<f64>() < 0.5 {
            return self.pick(draw);
        }
        let (best, own) = (self.highest(), parent.outcome.first_seed_logs());
        let gaps: Vec<f64> = best.iter().zip(&own).map(|(best, own)| best - own).collect();
        let worst = (0..gaps.len()).max_by(|&one, &other| gaps[one].total_cmp(&gaps[other]));
        self.by_scenario(worst, draw)
    }

    /// Lexicase selection: of the programs of the pool those that are best in the scenario `first`, or in one drawn at random; of these
    /// those that are best in another; of two of what is left the smaller, since programs grow without gain otherwise (Luke, Panait 2002).
    fn by_scenario(&self, first: Option<usize>, draw: &mut Generator) -> Option<&Elite> {
        let mut open: Vec<usize> = (0..self.highest().len()).collect();
        let mut left: Vec<&PoolMember> = self.pool.iter().collect();
        let mut next = first;
        while left.len() > 1 && !open.is_empty() {
            let at = next.take().unwrap_or_else(|| draw.random_range(0..open.len()));
            let scenario = open.swap_remove(at);
            let best = left.iter().map(|one| one.scores[scenario]).fold(f64::NEG_INFINITY, f64::max);
            left.retain(|one| one.scores[scenario] >= best - TOLERANCE);
        }
        let drawn = [0; 2].map(|_| draw.random_range(0..left.len().max(1)));
        let drawn = drawn.iter().filter_map(|&at| left.get(at)).map(|one| &one.elite);
        drawn.min_by_key(|elite| elite.program.size())
    }
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
    use crate::suite::Split;
    use blis_sim::rng::Stream;

    fn elite(number: usize, train_score: f64) -> Elite {
        let program = Program { values: vec![Expr::Constant(1.0)], memories: Vec::new() };
        let outcome = SearchOutcome { combined_score: 2.5, train_score, ..SearchOutcome::default() };
        Elite { number, program, outcome }
    }

    /// With the scores of two scenarios under the first seed.
    fn with_scores(number: usize, scores: [f64; 2]) -> Elite {
        let mut one = elite(number, (scores[0] * scores[1]).sqrt());
        let run = |(scenario, score): (&str, f64)| {
            let stage = Split::Train.into_str().to_owned();
            RunScore { stage, scenario: scenario.to_owned(), seed: 1, score }
        };
        one.outcome.runs = ["fast", "slow"].into_iter().zip(scores).map(run).collect();
        one
    }

    fn numbers(elites: &Elites) -> Vec<usize> {
        elites.best().iter().map(|one| one.number).collect()
    }

    #[test]
    fn a_cell_keeps_its_best_program() {
        let mut elites = Elites::default();
        [(1, 0.5), (2, 0.9), (3, 0.9), (4, 0.7)]
            .into_iter()
            .for_each(|(number, score)| elites.offer(Rung::Train, elite(number, score)));
        let mut failed = elite(5, 2.0);
        failed.outcome.combined_score = 1.9;
        elites.offer(Rung::Train, failed);
        elites.offer(Rung::FirstSeed, elite(6, 3.0));
        assert_eq!(numbers(&elites), [2]);
    }

    #[test]
    fn the_best_in_train_are_kept_whatever_their_cell_is() {
        let mut elites = Elites::default();
        (0..BEST + 3).for_each(|at| elites.offer(Rung::Train, elite(at, 1.0 + 0.1 * (at % 9) as f64)));
        let kept: Vec<usize> = elites.best_in_train().iter().map(|one| one.number).collect();
        assert_eq!(kept, [8, 7, 6, 5, 4, 3, 2, 1, 0], "the first of equal ones");
        (20..30).for_each(|number| elites.offer(Rung::Train, elite(number, 0.1 * number as f64)));
        assert_eq!((elites.best_in_train().len(), elites.best_in_train()[0].number), (BEST, 29));
        assert_eq!(numbers(&elites), [29]);
    }

    #[test]
    fn programs_that_do_something_else_have_other_cells() {
        let mut elites = Elites::default();
        elites.offer(Rung::Train, elite(1, 0.5));
        let mut other = elite(2, 0.4);
        other.outcome.cache_hit_rate = 0.9;
        elites.offer(Rung::Train, other);
        assert_eq!((numbers(&elites), elites.cells()), (vec![1, 2], 2));
    }

    #[test]
    fn the_best_of_a_scenario_is_a_parent_although_it_is_worse_in_the_others() {
        let mut elites = Elites::default();
        // The fourth was run under the first seed only.
        for (number, scores) in [(1, [1.2, 1.2]), (2, [1.3, 0.5]), (3, [1.25, 0.6])] {
            elites.offer(Rung::Train, with_scores(number, scores));
        }
        elites.offer(Rung::FirstSeed, with_scores(4, [0.4, 1.5]));
        assert_eq!(numbers(&elites), [1]);
        let mut draw = Stream::new(1, "test").at(0);
        let mut picked: Vec<usize> = (0..100).filter_map(|_| elites.pick(&mut draw)).map(|one| one.number).collect();
        picked.sort_unstable();
        picked.dedup();
        assert_eq!(picked, [1, 2, 4]);
    }

    #[test]
    fn of_scores_that_count_as_equal_another_scenario_decides() {
        let mut elites = Elites::default();
        for (number, scores) in [(1, [1.3, 0.5]), (2, [1.295, 0.9]), (3, [0.9, 1.0])] {
            elites.offer(Rung::FirstSeed, with_scores(number, scores));
        }
        let mut draw = Stream::new(1, "test").at(0);
        let picked: Vec<usize> =
            (0..50).filter_map(|_| elites.by_scenario(None, &mut draw)).map(|one| one.number).collect();
        assert!(!picked.contains(&1) && picked.contains(&2) && picked.contains(&3), "{picked:?}");
    }

    #[test]
    fn the_second_parent_is_good_where_the_first_is_not() {
        let mut elites = Elites::default();
        for (number, scores) in [(1, [1.3, 0.5]), (2, [0.9, 1.1]), (3, [1.2, 0.4])] {
            elites.offer(Rung::FirstSeed, with_scores(number, scores));
        }
        let mut draw = Stream::new(1, "test").at(0);
        let mut second = |first: usize| {
            let first = elites.pool[first].elite.clone();
            let all = (0..100).filter_map(|_| elites.pick_beside(&first, &mut draw));
            all.filter(|one| one.number == 2).count()
        };
        // Half of the draws and what lexicase selection takes of the others.
        assert!(second(0) > 60 && second(1) < 40, "{} {}", second(0), second(1));
    }

    #[test]
    fn a_full_pool_keeps_the_best_of_each_scenario() {
        let mut elites = Elites::default();
        elites.offer(Rung::FirstSeed, with_scores(0, [0.1, 2.0]));
        for number in 1..=POOL + 10 {
            elites.offer(Rung::FirstSeed, with_scores(number, [1.0 + 1e-3 * number as f64, 1.0]));
        }
        let kept: Vec<usize> = elites.pool.iter().map(|one| one.elite.number).collect();
        assert_eq!((kept.len(), kept[0], kept[1], kept[POOL - 1]), (POOL, 0, 12, POOL + 10));
    }
}
