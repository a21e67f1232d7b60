//! Successive halving: which programs of a batch go on to the next rung, and what a rung runs.

use super::archive::{Candidate, Phase, SearchOutcome};
use super::run::{SearchProgress, SearchRun};
use crate::error::RunError;
use crate::suite::Split;

/// How far a program is evaluated. Each rung runs those before it, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rung {
    Smoke,
    /// All scenarios of train, under the first seed of each.
    FirstSeed,
    Train,
    Select,
}

impl Rung {
    pub const ALL: [Self; 4] = [Self::Smoke, Self::FirstSeed, Self::Train, Self::Select];

    /// Its number in the archive.
    pub fn number(self) -> u8 {
        self as u8 + 1
    }

    /// The rung with this number in the archive.
    pub fn of(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|rung| rung.number() == number)
    }

    /// The last stage of the cascade that runs.
    pub fn stage(self) -> Split {
        match self {
            Self::Smoke => Split::Smoke,
            Self::FirstSeed | Self::Train => Split::Train,
            Self::Select => Split::Select,
        }
    }

    /// Seeds of each scenario of train; `None` for all.
    pub fn train_seeds(self) -> Option<usize> {
        (self == Self::FirstSeed).then_some(1)
    }
}

/// How many programs of a batch reach a rung.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Promotions {
    pub first_seed: usize,
    pub train: usize,
}

impl Promotions {
    /// The best half of a batch of `batch` programs, then a sixth of it.
    pub fn of(batch: usize) -> Self {
        Self { first_seed: batch.div_ceil(2), train: batch.div_ceil(6) }
    }

    /// All are evaluated under the first seed.
    pub fn all_to_first_seed(batch: usize) -> Self {
        Self { first_seed: usize::MAX, ..Self::of(batch) }
    }

    /// All are evaluated in train.
    pub fn all_to_train() -> Self {
        Self { first_seed: usize::MAX, train: usize::MAX }
    }
}

/// How far a program was evaluated, and what was found.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RungResult {
    pub rung: Rung,
    pub outcome: SearchOutcome,
}

impl RungResult {
    /// Its score in the whole of train; `None` if it was not evaluated there, or has none.
    pub fn whole_train_score(&self) -> Option<f64> {
        (self.rung >= Rung::Train && self.outcome.has_train_score()).then_some(self.outcome.train_score)
    }
}

impl SearchRun<'_> {
    /// Evaluates a batch, of which `first` is the number of its first program.
    ///
    /// # Errors
    /// If the host fails in an evaluation, or the archive cannot be written.
    pub(super) fn evaluate_batch(
        &mut self,
        phase: Phase,
        (batch, first): (usize, usize),
        candidates: &[Candidate],
        promotions: Promotions,
    ) -> Result<Vec<RungResult>, RunError> {
        let jobs: Vec<(usize, &Candidate)> =
            candidates.iter().enumerate().map(|(at, candidate)| (first + at, candidate)).collect();
        let all = candidates.len();
        let start = match promotions {
            Promotions { train, .. } if train >= all => Rung::Train,
            Promotions { first_seed, .. } if first_seed >= all => Rung::FirstSeed,
            Promotions { .. } => Rung::Smoke,
        };
        let of_rung = |rung| move |outcome| RungResult { rung, outcome };
        let mut evaluated: Vec<RungResult> =
            self.evaluate((phase, batch, start), &jobs)?.into_iter().map(of_rung(start)).collect();
        for (rung, most) in [(Rung::FirstSeed, promotions.first_seed), (Rung::Train, promotions.train)] {
            if rung <= start {
                continue;
            }
            let order = promoted(&evaluated, most);
            let next: Vec<(usize, &Candidate)> = order.iter().map(|&at| jobs[at]).collect();
            for (at, outcome) in order.into_iter().zip(self.evaluate((phase, batch, rung), &next)?) {
                evaluated[at] = RungResult { rung, outcome };
            }
        }
        let best = evaluated.iter().filter_map(RungResult::whole_train_score).fold(self.best_score(), f64::max);
        let (evaluations, total) = (first + all, self.numbers.evaluations.max(first + all));
        (self.progress)(SearchProgress { phase: phase.name(), evaluated: evaluations, total, best });
        Ok(evaluated)
    }
}

/// The positions of the `most` best of those that have reached the highest rung so far and passed it, best first.
fn promoted(evaluated: &[RungResult], most: usize) -> Vec<usize> {
    let last = evaluated.iter().map(|one| one.rung).max().unwrap_or(Rung::Smoke);
    let score = |at: usize| match last {
        Rung::Smoke => evaluated[at].outcome.promotion,
        // The rung above may be in the archive, and have failed.
        _ => evaluated[at].outcome.first_seed_score,
    };
    let mut order: Vec<usize> =
        (0..evaluated.len()).filter(|&at| evaluated[at].rung == last && score(at) > 0.0).collect();
    order.sort_by(|&one, &other| score(other).total_cmp(&score(one)).then(one.cmp(&other)));
    order.truncate(most);
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evaluated(rung: Rung, combined_score: f64, score: f64) -> RungResult {
        let first_seed_score = if combined_score >= 2.0 { score } else { 0.0 };
        let outcome = SearchOutcome { combined_score, promotion: score, first_seed_score, ..SearchOutcome::default() };
        RungResult { rung, outcome }
    }

    #[test]
    fn the_best_of_the_highest_rung_go_on() {
        let smoke = |score| evaluated(Rung::Smoke, 1.5, score);
        assert_eq!(promoted(&[smoke(0.4), smoke(0.9), smoke(0.0), smoke(0.9)], 3), [1, 3, 0]);
        let first = |combined, score| evaluated(Rung::FirstSeed, combined, score);
        // The one that stayed in smoke and the one that failed a gate of train do not.
        assert_eq!(promoted(&[smoke(2.0), first(2.5, 0.8), first(1.5, 3.0), first(2.5, 0.9)], 9), [3, 1]);
        assert_eq!(promoted(&[], 9), [0; 0]);
    }

    #[test]
    fn a_rung_has_a_number_in_the_archive() {
        assert_eq!(Rung::ALL.map(Rung::number), [1, 2, 3, 4]);
        assert_eq!([0, 2, 4, 5].map(Rung::of), [None, Some(Rung::FirstSeed), Some(Rung::Select), None]);
    }

    #[test]
    fn half_of_a_batch_and_then_a_sixth_go_on() {
        assert_eq!(Promotions::of(24), Promotions { first_seed: 12, train: 4 });
        assert_eq!(Promotions::all_to_first_seed(24), Promotions { first_seed: usize::MAX, train: 4 });
    }
}
