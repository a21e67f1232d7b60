//! Populations of a search. One that finds nothing better for a while is put aside, and another begins without its programs, so
//! that a search does not stay with what it found first. After two of them, a third has the programs of both.

use blis_sim::rng::Stream;

use super::elites::{Elite, Elites};
use super::rung::Rung;

/// Evaluations without a better program after which a population is put aside.
const STALLED: usize = 480;
/// A program is better if its score of train is higher by this share.
const GAIN: f64 = 0.002;

/// The present population, and what is known of all.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Populations {
    seed: u64,
    present: Elites,
    /// All programs of all populations.
    all: Elites,
    /// Built-in policies and inputs alone, for populations that begin later.
    first: Vec<(Rung, Elite)>,
    /// Populations that were put aside, and not joined yet.
    aside: Vec<Elites>,
    /// Populations that have begun.
    begun: u64,
    /// Best score of the present one, and the number of evaluations at that time.
    best: (f64, usize),
}

impl Populations {
    pub fn new(seed: u64) -> Self {
        let (present, all) = (Elites::default(), Elites::default());
        let (first, aside) = (Vec::new(), Vec::new());
        Self { seed, present, all, first, aside, begun: 1, best: (0.0, 0) }
    }

    /// The population of which the next programs descend.
    pub fn present(&self) -> &Elites {
        &self.present
    }

    /// The programs of all populations.
    pub fn all(&self) -> &Elites {
        &self.all
    }

    /// Adds a program; `is_first` of built-in policies and inputs alone.
    pub fn offer(&mut self, rung: Rung, elite: Elite, is_first: bool) {
        if is_first {
            self.first.push((rung, elite.clone()));
        }
        self.all.offer(rung, elite.clone());
        self.present.offer(rung, elite);
    }

    /// After a batch, with the number of evaluations: begins another population if the present one finds nothing better.
    pub fn settle(&mut self, evaluations: usize) {
        let best = self.present.best().first().map_or(0.0, |one| one.outcome.train_score);
        if best > self.best.0 * (1.0 + GAIN) {
            self.best = (best, evaluations);
            return;
        }
        if evaluations < self.best.1 + STALLED {
            return;
        }
        self.aside.push(std::mem::take(&mut self.present));
        self.begun += 1;
        self.present = match &self.aside[..] {
            [one, other] => one.joined(other),
            _ => self.fresh(),
        };
        if self.aside.len() == 2 {
            self.aside.clear();
        }
        self.best = (0.0, evaluations);
    }

    /// A population of a random half of the first programs, so that it may find what the best of them hide.
    fn fresh(&self) -> Elites {
        let mut draw = Stream::new(self.seed, "populations").at(self.begun);
        let kept = rand::seq::index::sample(&mut draw, self.first.len(), self.first.len().div_ceil(2));
        let mut fresh = Elites::default();
        kept.iter().map(|at| self.first[at].clone()).for_each(|(rung, elite)| fresh.offer(rung, elite));
        fresh
    }
}

#[cfg(test)]
mod tests {
    use super::super::archive::{RunScore, SearchOutcome};
    use super::super::program::{Expr, Program};
    use super::*;
    use crate::suite::Split;

    fn elite(number: usize, train_score: f64) -> Elite {
        let program = Program { values: vec![Expr::Constant(1.0)], memories: Vec::new() };
        let run = RunScore {
            stage: Split::Train.into_str().to_owned(),
            scenario: "one".to_owned(),
            seed: 1,
            score: train_score,
        };
        // Cells of their own, so that all are kept.
        let cache_hit_rate = 0.1 * (number % 10) as f64;
        let outcome = SearchOutcome {
            combined_score: 2.5,
            train_score,
            cache_hit_rate,
            runs: vec![run],
            ..SearchOutcome::default()
        };
        Elite { number, program, outcome }
    }

    fn numbers(elites: &Elites) -> Vec<usize> {
        elites.best().iter().map(|one| one.number).collect()
    }

    #[test]
    fn a_population_ends_when_it_finds_nothing_better_and_the_third_has_both() {
        let mut populations = Populations::new(1);
        populations.offer(Rung::Train, elite(0, 0.9), true);
        populations.offer(Rung::Train, elite(1, 1.1), false);
        populations.settle(24);
        populations.settle(24 + STALLED - 1);
        assert_eq!(numbers(populations.present()), [1, 0]);
        populations.settle(24 + STALLED);
        assert!(!numbers(populations.present()).contains(&1), "what was found is put aside");
        assert_eq!(numbers(populations.all()), [1, 0], "and is not forgotten");
        populations.offer(Rung::Train, elite(2, 1.0), false);
        populations.settle(1000);
        // Less than a tenth better in a hundred: not better.
        populations.offer(Rung::Train, elite(3, 1.0001), false);
        populations.settle(1000 + STALLED);
        assert_eq!(numbers(populations.present()), [1, 3, 2, 0]);
        populations.settle(1024 + STALLED);
        populations.settle(1024 + 2 * STALLED);
        assert!(!numbers(populations.present()).contains(&1), "then another begins");
        assert_eq!(numbers(populations.all()), [1, 3, 2, 0]);
    }

    #[test]
    fn later_populations_begin_with_a_part_of_the_first_programs() {
        let mut populations = Populations::new(1);
        (0..10).for_each(|number| populations.offer(Rung::Train, elite(number, 1.0 + 0.01 * number as f64), true));
        populations.settle(24);
        populations.settle(24 + STALLED);
        assert_eq!(numbers(populations.present()).len(), 5);
    }
}
