//! Samples of decisions with their costs, measured while a search runs.

use super::decision_table;
use super::run::{CYCLE, SearchRun, WALL_ATTEMPTS};
use crate::decision_costs::DecisionCosts;
use crate::error::RunError;
use crate::evaluation::request::CandidateSource;
use crate::evaluation::server::EvaluationRequest;
use crate::suite::Split;

impl SearchRun<'_> {
    /// Measures the costs of decisions of the best program, if it is time for that.
    ///
    /// # Errors
    /// If the host fails in the evaluation, or the archive cannot be read or written.
    pub(super) fn measure_decisions(&mut self, batch: usize) -> Result<(), RunError> {
        if self.numbers.decisions == 0 || batch % CYCLE != 1 {
            return Ok(());
        }
        let best = self.populations.present().best().first().map(|&one| (one.number, one.program.source(self.grammar)));
        let Some((number, source)) = best else { return Ok(()) };
        let sample = match decision_table::stored(self.archive.connection(), batch)? {
            Some(sample) => sample,
            None => self.evaluated_costs(batch, number, source)?,
        };
        self.screening.add(sample, self.grammar);
        Ok(())
    }

    fn evaluated_costs(&self, batch: usize, number: usize, source: String) -> Result<Vec<DecisionCosts>, RunError> {
        let request = EvaluationRequest {
            candidate: Some(CandidateSource::Source(source)),
            stage: Some(Split::Train),
            train_seeds: Some(1),
            epoch: self.numbers.epoch,
            feedback_bytes: Some(0),
            decisions: Some(self.numbers.decisions),
            ..EvaluationRequest::default()
        };
        let mut result = self.evaluated(&request)?;
        for _ in 1..WALL_ATTEMPTS {
            if !result.depends_on_clock {
                break;
            }
            result = self.evaluated(&request)?;
        }
        decision_table::put(self.archive.connection(), batch, number, result.cost.cpu_ms, &result.decisions)?;
        Ok(result.decisions)
    }
}
