//! The selection at the end of a search: its best programs in other scenarios, and under seeds that it has not used.
//!
//! The score by which a program was found is too high: of thousands, those are the best that the seeds of train favoured. In select,
//! and in train and select under other seeds, the differences between the best are those of the policies.

use super::archive::{Candidate, Phase, RungBatch, SearchOutcome};
use super::champion::Selected;
use super::elites::Elite;
use super::run::SearchRun;
use super::rung::Rung;
use super::variation::Operation;
use crate::error::RunError;

/// Smaller programs that are selected beside the best ones.
const SMALLER: usize = 6;
/// Smaller programs may have a score of train that is less than the best by this share.
const SMALLER_LOSS: f64 = 0.02;
/// Epochs of other seeds.
const OTHER_EPOCHS: usize = 2;

impl SearchRun<'_> {
    /// The best programs in train, and the best of the map that are smaller than each of these, with their numbers.
    pub(super) fn finalists(&self) -> Vec<(usize, Candidate)> {
        let all = self.populations.all();
        let mut chosen: Vec<&Elite> = all.best_in_train().iter().collect();
        let least = chosen.first().map_or(0.0, |best| best.outcome.train_score * (1.0 - SMALLER_LOSS));
        let mut size = chosen.iter().map(|elite| elite.program.size()).min().unwrap_or(0);
        let most = chosen.len() + SMALLER;
        for elite in all.best().into_iter().filter(|elite| elite.outcome.train_score >= least) {
            if elite.program.size() < size && chosen.len() < most {
                size = elite.program.size();
                chosen.push(elite);
            }
        }
        let of_elite = |elite: &Elite| {
            let (operation, parents) = (Operation::Mutation, [Some(elite.number), None]);
            (elite.number, Candidate { program: elite.program.clone(), operation, parents })
        };
        chosen.into_iter().map(of_elite).collect()
    }

    /// The results of `finalists` in select, and in train and select under the seeds of other epochs.
    pub(super) fn selected(&mut self, finalists: &[(usize, Candidate)]) -> Result<Vec<Selected>, RunError> {
        let mut selected = self.select(Phase::Select, finalists)?;
        for epoch in 0..OTHER_EPOCHS {
            let outcomes = self.outcomes(Phase::OtherSeeds, epoch, finalists)?;
            selected.iter_mut().zip(outcomes).for_each(|(one, outcome)| one.other_seeds.push(outcome));
        }
        Ok(selected)
    }

    /// The results of `finalists` in select.
    pub(super) fn select(&mut self, phase: Phase, finalists: &[(usize, Candidate)]) -> Result<Vec<Selected>, RunError> {
        let outcomes = self.outcomes(phase, 0, finalists)?;
        let selected = |((number, candidate), outcome): (&(usize, Candidate), SearchOutcome)| Selected {
            candidate: candidate.clone(),
            source: candidate.program.source(self.grammar),
            number: *number,
            outcome,
            other_seeds: Vec::new(),
        };
        Ok(finalists.iter().zip(outcomes).map(selected).collect())
    }

    /// The results of `finalists` up to select in round `round` of `phase`, with numbers that go on from round to round.
    fn outcomes(
        &mut self,
        phase: Phase,
        round: usize,
        finalists: &[(usize, Candidate)],
    ) -> Result<Vec<SearchOutcome>, RunError> {
        let first = round * finalists.len();
        let jobs: Vec<(usize, &Candidate)> =
            finalists.iter().enumerate().map(|(at, (_, candidate))| (first + at, candidate)).collect();
        self.evaluate(RungBatch { phase, batch: round, rung: Rung::Select }, &jobs)
    }
}
