//! The rows of a trace between its reader and the simulator: compact, sorted, then issued as requests.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::sync::Arc;

use blis_sim::ids::RequestId;
use blis_sim::request::{Request, Tags};
use blis_sim::units::Micros;

use super::error::{Skipped, TraceError};
use super::names::Names;
use super::prefix::{PathNode, ROOT, SharedPrefixes};
use super::recorded::RecordedTimes;
use super::row::{RequestMetadata, TraceRow};
use super::window::{ScheduledArrival, TracePasses};
use super::{TraceOptions, Workload};
use blis_diag::{Diagnostic, RowError, quoted};

/// A count with its noun: `1 failed request`, `2 failed requests`.
#[must_use]
pub fn counted(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// The meaning of time 0 of the simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// Time 0 of the trace.
    Zero,
    /// The first arrival: the trace contains the time of day, or is cut from a longer one.
    FirstArrival,
}

/// Collects rows, and either skips bad ones or ends.
pub(super) struct Intake<'a, T> {
    pub file: Arc<str>,
    pub notes: Vec<String>,
    /// See [`Workload::aside`] for the meaning.
    pub aside: BTreeSet<&'static str>,
    /// The rows in the order of the file.
    pub rows: Vec<TraceRow<T>>,
    options: &'a TraceOptions,
    /// Measured latencies by request.
    recorded: Vec<(RequestId, RecordedTimes)>,
    skipped: Skipped,
    rows_seen: u64,
}

impl<'a, T: RequestMetadata> Intake<'a, T> {
    pub fn new(file: &Arc<str>, options: &'a TraceOptions) -> Self {
        Self {
            file: Arc::clone(file),
            notes: Vec::new(),
            aside: BTreeSet::new(),
            rows: Vec::new(),
            options,
            recorded: Vec::new(),
            skipped: Skipped::default(),
            rows_seen: 0,
        }
    }

    /// Whether another row is needed.
    pub fn wants_more(&self) -> bool {
        let most = self.options.max_requests.filter(|_| self.options.window.takes_the_start());
        most.is_none_or(|most| (self.rows.len() as u64) < most)
    }

    /// Notes that the trace was recorded with `model`. Its requests use the simulated model.
    pub fn measured_with(&mut self, model: Option<&str>) {
        let note =
            model.filter(|model| !model.is_empty()).map(|model| format!("recorded with {}", quoted(model.as_bytes())));
        self.notes.extend(note.filter(|note| !self.notes.contains(note)));
    }

    /// Id of the next request: the number of its row, from 0. Bad rows count too, so that one does not change the
    /// numbers of all others.
    pub fn next_id(&mut self) -> Result<RequestId, TraceError> {
        let id = u32::try_from(self.rows_seen).map_err(|_| self.too_many("requests"))?;
        self.rows_seen += 1;
        Ok(RequestId(id))
    }

    pub fn too_many(&self, what: &'static str) -> TraceError {
        TraceError::TooMany { file: Arc::clone(&self.file), what, hint: "read fewer requests of it" }
    }

    pub fn add(&mut self, row: TraceRow<T>) {
        self.rows.push(row);
    }

    /// The measured latencies of a request, where they are read.
    pub fn times<V, E>(&self, read: impl FnOnce() -> Result<V, E>) -> Result<Option<V>, E> {
        self.options.recorded_times.then(read).transpose()
    }

    /// Adds a row with its measured latencies.
    pub fn add_measured(&mut self, row: TraceRow<T>, times: Option<RecordedTimes>) {
        self.recorded.extend(times.map(|times| (row.id, times)));
        self.add(row);
    }

    /// Notes that `count` rows, as `what` names one of them, are left out.
    pub fn note_left_out(&mut self, count: u64, what: &str) {
        if count > 0 {
            self.notes.push(format!("{} left out", counted(count, what)));
        }
    }

    /// Adds `tokens` tokens in front of the prompt of row number `row`.
    pub fn lengthen(&mut self, row: usize, tokens: u32) -> Result<(), TraceError> {
        let longer = self.rows[row].input.checked_add(tokens).ok_or_else(|| self.too_many("tokens in one prompt"))?;
        self.rows[row].input = longer;
        Ok(())
    }

    /// A row is invalid: ends the reading, or skips it.
    pub fn bad(&mut self, error: Diagnostic) -> Result<(), TraceError> {
        if !self.options.skip_bad_lines {
            return Err(error.into());
        }
        self.skipped.add(error);
        Ok(())
    }

    /// What was read of a row; `None` if the row is invalid and skipped.
    pub fn valid<V>(
        &mut self,
        read: Result<V, RowError>,
        locate: impl FnOnce(RowError) -> Diagnostic,
    ) -> Result<Option<V>, TraceError> {
        match read {
            Ok(value) => Ok(Some(value)),
            Err(fault) => self.bad(locate(fault)).map(|()| None),
        }
    }

    /// Turns all rows into a workload. Each row's `prefix` must be a node of `shared`.
    pub fn finish(mut self, origin: Origin, shared: SharedContents, mut names: Names) -> Result<Workload, TraceError> {
        if self.rows.is_empty() {
            return Err(TraceError::Empty { file: self.file, skipped: self.skipped, notes: self.notes });
        }
        self.sort();
        if origin == Origin::FirstArrival {
            let first = self.rows[0].arrival;
            self.rows.iter_mut().for_each(|row| row.arrival -= first);
        }
        let options = self.options;
        self.notes.extend(options.window.apply(&self.file, &mut self.rows)?);
        let SharedContents { prefixes, renumbered, block_size } = shared;
        for row in &mut self.rows {
            row.prefix = renumbered.get(row.prefix as usize).copied().unwrap_or(ROOT);
        }
        let rounds = TracePasses::new(options.window, &self.file, &self.rows, &mut names)?;
        let count = self.count(&rounds);
        let rows = self.rows;
        let requests = rounds.arrivals(rows).map(move |ScheduledArrival { row, at, id, session }| {
            let content = prefixes.content(row.prefix, block_size.map_or(u32::MAX, |size| row.input / size));
            Request {
                max_output_tokens: row.terms.max_output_tokens(),
                deadline: row
                    .terms
                    .time_to_deadline()
                    .map(|time_to_deadline| Micros(at.saturating_add_signed(time_to_deadline))),
                client_priority: row.terms.client_priority(),
                tags: Tags { session, ..row.terms.tags() },
                media_tokens: row.terms.media_tokens(),
                content,
                ..Request::new(id, Micros(at), row.input, row.output)
            }
        });
        Ok(Workload {
            requests: Box::new(requests.take(usize::try_from(count).unwrap_or(usize::MAX))),
            follow_ups: None,
            count: Some(count),
            names,
            slo_targets: BTreeMap::new(),
            aside: self.aside,
            recorded: self.recorded,
            skipped: self.skipped,
            notes: self.notes,
        })
    }

    fn sort(&mut self) {
        if !self.rows.is_sorted_by_key(|row| row.arrival) {
            self.rows.sort_by_key(|row| row.arrival);
            self.notes.push("the rows are not in order of arrival; they were sorted".into());
        }
    }

    /// The number of requests in the simulation: without those that arrive after its end, and at most the requested
    /// number.
    fn count(&mut self, rounds: &TracePasses) -> u64 {
        let all = rounds.count(&self.rows, u64::MAX);
        let kept = rounds.count(&self.rows, self.options.horizon.0);
        if kept < all {
            self.notes.push(format!("{} of the {all} requests read arrive after the horizon", all - kept));
        }
        kept.min(self.options.max_requests.unwrap_or(u64::MAX))
    }
}

/// The contents that rows may share.
#[derive(Default)]
pub(super) struct SharedContents {
    pub prefixes: SharedPrefixes,
    /// For each node in the rows, the node in `prefixes`.
    pub renumbered: Vec<PathNode>,
    /// Tokens per engine block, if only prompts are known: the last, partial block of the prompt is left out.
    pub block_size: Option<NonZeroU32>,
}

#[cfg(test)]
mod tests {
    use super::super::row::NoMetadata;
    use super::*;

    fn intake(options: &TraceOptions, arrivals: &[u64]) -> Result<Workload, TraceError> {
        let mut intake = Intake::new(&"x".into(), options);
        for &arrival in arrivals {
            let id = intake.next_id()?;
            intake.add(TraceRow { arrival, id, input: 1, output: 1, prefix: ROOT, terms: NoMetadata });
        }
        intake.finish(Origin::FirstArrival, SharedContents::default(), Names::default())
    }

    #[test]
    fn rows_are_sorted_stably_and_shifted_to_the_first_arrival() {
        let workload = intake(&TraceOptions::default(), &[9, 5, 9, 5]).unwrap();
        assert_eq!(workload.notes, ["the rows are not in order of arrival; they were sorted"]);
        let order: Vec<_> = workload.requests.map(|request| (request.id.0, request.arrival.0)).collect();
        assert_eq!(order, [(1, 0), (3, 0), (0, 4), (2, 4)]);
    }

    #[test]
    fn the_horizon_itself_is_still_simulated() {
        let options = TraceOptions { horizon: Micros(4), ..TraceOptions::default() };
        let workload = intake(&options, &[1, 5, 6]).unwrap();
        assert_eq!((workload.count, workload.notes.len()), (Some(2), 1));
        assert!(matches!(intake(&options, &[]), Err(TraceError::Empty { .. })));
    }
}
