//! The part of a trace that is simulated, and its speed: cut to a window, scaled, repeated, spread.
//!
//! ```text
//! as recorded → spread-bins → start, duration → repeat → time-scale → horizon
//! ```
//! Times of the window are times of the trace, from its first arrival (or its own time 0).

use std::num::NonZeroU32;
use std::sync::Arc;

use blis_sim::ids::RequestId;
use blis_sim::request::Name;
use blis_sim::units::Micros;
use rustc_hash::FxHashMap;

use super::error::TraceError;
use super::names::Names;
use super::row::{RequestMetadata, TraceRow};

/// Changes to the arrivals of a trace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TraceWindow {
    /// Start of the window, which becomes time 0; earlier arrivals are left out.
    pub start: Micros,
    /// Length of the window; later arrivals are left out.
    pub duration: Option<Micros>,
    /// Number of consecutive passes over the trace.
    pub repeat: NonZeroU32,
    /// Multiplies every arrival time: above 1 stretches the trace and lowers its rate. Finite, above 0.
    pub time_scale: f64,
    /// Width of the bins that equal timestamps stand for: the requests of one timestamp get constant inter-arrival
    /// times within the bin.
    pub spread: Option<Micros>,
}

impl Default for TraceWindow {
    /// The whole trace, once, as recorded.
    fn default() -> Self {
        Self { start: Micros::ZERO, duration: None, repeat: NonZeroU32::MIN, time_scale: 1.0, spread: None }
    }
}

impl TraceWindow {
    /// Whether a trace can be read from its start up to the last request needed, and no further.
    pub(super) fn takes_the_start(&self) -> bool {
        self.start == Micros::ZERO && self.duration.is_none() && self.repeat == NonZeroU32::MIN && self.spread.is_none()
    }

    /// Whether times are those of the trace.
    pub(super) fn is_whole(&self) -> bool {
        *self == Self::default()
    }

    /// Spreads and cuts `rows`, which are in order. Returns a note about what was left out.
    pub(super) fn apply<T: RequestMetadata>(
        &self,
        file: &Arc<str>,
        rows: &mut Vec<TraceRow<T>>,
    ) -> Result<Option<String>, TraceError> {
        if let Some(Micros(bin)) = self.spread {
            spread(rows, bin);
        }
        let (all, last) = (rows.len(), rows.last().map_or(0, |row| row.arrival));
        let end = self.duration.map_or(u64::MAX, |duration| self.start.0.saturating_add(duration.0));
        let from = rows.partition_point(|row| row.arrival < self.start.0);
        let to = rows.partition_point(|row| row.arrival < end);
        rows.truncate(to);
        rows.drain(..from);
        if rows.is_empty() {
            let (start, last) = (self.start, Micros(last));
            let end = (end < u64::MAX).then_some(Micros(end));
            return Err(TraceError::EmptyWindow { file: Arc::clone(file), start, end, last });
        }
        rows.iter_mut().for_each(|row| row.arrival -= self.start.0);
        Ok((rows.len() < all).then(|| format!("{} of {all} requests are in the window", rows.len())))
    }
}

/// Gives the requests of one timestamp constant inter-arrival times within the bin that it stands for. A bin ends at
/// the next timestamp at the latest, so that the order does not change.
fn spread<T: RequestMetadata>(rows: &mut [TraceRow<T>], bin: u64) {
    let mut start = 0;
    while let Some(&TraceRow { arrival: timestamp, .. }) = rows.get(start) {
        let count = rows[start..].partition_point(|row| row.arrival == timestamp);
        let next = rows.get(start + count).map_or(u64::MAX, |row| row.arrival);
        let width = u128::from(bin.min(next - timestamp));
        for (index, row) in rows[start..start + count].iter_mut().enumerate() {
            // Less than the width, which fits.
            row.arrival = timestamp.saturating_add((width * index as u128 / count as u128) as u64);
        }
        start += count;
    }
}

/// The passes over a trace.
pub(super) struct TracePasses {
    repeat: u32,
    /// Time from the start of one pass to the start of the next, µs of the trace.
    span: u64,
    time_scale: f64,
    /// Highest id of a pass, plus 1: the offset between the ids of consecutive passes.
    ids: u32,
    /// The names of sessions in the passes after the first.
    sessions: FxHashMap<(u32, Name), Name>,
}

/// One request of one pass.
pub(super) struct ScheduledArrival<T> {
    pub row: TraceRow<T>,
    /// Time of arrival, µs.
    pub at: u64,
    pub id: RequestId,
    pub session: Name,
}

impl TracePasses {
    /// The passes over `rows`, which must not be empty.
    pub fn new<T: RequestMetadata>(
        window: TraceWindow,
        file: &Arc<str>,
        rows: &[TraceRow<T>],
        names: &mut Names,
    ) -> Result<Self, TraceError> {
        let repeat = window.repeat.get();
        let (first, last) = (rows.first().map_or(0, |row| row.arrival), rows.last().map_or(0, |row| row.arrival));
        // A trace ends one mean inter-arrival time after its last arrival.
        let gap = (last - first) / (rows.len() as u64).saturating_sub(1).max(1);
        let span = window.duration.map_or(last.saturating_add(gap), |duration| duration.0);
        let highest = rows.iter().map(|row| row.id.0).max().unwrap_or(0);
        let fits = (u64::from(highest) + 1) * u64::from(repeat) <= u64::from(u32::MAX) + 1;
        if repeat > 1 && !fits {
            let hint = "repeat it less often";
            return Err(TraceError::TooMany { file: Arc::clone(file), what: "requests", hint });
        }
        let mut sessions = FxHashMap::default();
        for round in 1..repeat {
            for session in rows.iter().map(|row| row.terms.tags().session).filter(|&session| session != Name::NONE) {
                sessions
                    .entry((round, session))
                    .or_insert_with(|| names.intern(&format!("{}#{}", names.text(session), round + 1)));
            }
        }
        let ids = highest.saturating_add(1);
        Ok(Self { repeat, span, time_scale: window.time_scale, ids, sessions })
    }

    /// The number of requests that arrive up to `horizon`.
    pub fn count<T: RequestMetadata>(&self, rows: &[TraceRow<T>], horizon: u64) -> u64 {
        let until = |round| rows.partition_point(|row| self.at(row.arrival, round) <= horizon) as u64;
        (0..self.repeat).map(until).sum()
    }

    /// All arrivals, in order.
    pub fn arrivals<T: RequestMetadata>(
        self,
        rows: Vec<TraceRow<T>>,
    ) -> impl Iterator<Item = ScheduledArrival<T>> + Send {
        let rows_per_round = rows.len();
        (0..rows_per_round as u64 * u64::from(self.repeat)).map(move |number| {
            // Quotient and remainder are smaller than the numbers that they are computed from.
            let (round, index) = ((number / rows_per_round as u64) as u32, (number % rows_per_round as u64) as usize);
            let row = rows[index];
            let session = row.terms.tags().session;
            ScheduledArrival {
                row,
                at: self.at(row.arrival, round),
                id: RequestId(row.id.0 + round * self.ids * u32::from(round > 0)),
                session: self.sessions.get(&(round, session)).copied().unwrap_or(session),
            }
        })
    }

    fn at(&self, arrival: u64, round: u32) -> u64 {
        let at = arrival.saturating_add(self.span.saturating_mul(round.into()));
        if self.time_scale == 1.0 { at } else { Micros::from_f64(at as f64 * self.time_scale).0 }
    }
}

#[cfg(test)]
mod tests;
