//! Successive halving: which programs of a batch go on to the next rung.

use super::archive::{Candidate, Phase, RungBatch, RungResult};
use super::run::{SearchProgress, SearchRun};
use super::rung::{Promotions, Rung};
use crate::error::RunError;

impl SearchRun<'_> {
    /// Evaluates a batch, of which `first` is the number of its first program in the phase.
    ///
    /// # Errors
    /// If the host fails in an evaluation, or the archive cannot be written.
    pub(super) fn evaluate_batch(
        &mut self,
        phase: Phase,
        batch: usize,
        first: usize,
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
            self.evaluate(RungBatch { phase, batch, rung: start }, &jobs)?.into_iter().map(of_rung(start)).collect();
        for (rung, most) in [(Rung::FirstSeed, promotions.first_seed), (Rung::Train, promotions.train)] {
            if rung <= start {
                continue;
            }
            let order = promoted(&evaluated, most);
            let next: Vec<(usize, &Candidate)> = order.iter().map(|&at| jobs[at]).collect();
            let outcomes = self.evaluate(RungBatch { phase, batch, rung }, &next)?;
            for (at, outcome) in order.into_iter().zip(outcomes) {
                evaluated[at] = RungResult { rung, outcome };
            }
        }
        let best = evaluated.iter().filter_map(RungResult::whole_train_score).fold(self.best_score(), f64::max);
        let (evaluations, total) = (first + all, self.numbers.evaluations.max(first + all));
        (self.progress)(SearchProgress { phase: phase.into_str(), evaluated: evaluations, total, best });
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
    use super::super::archive::SearchOutcome;
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
}
