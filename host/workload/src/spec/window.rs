//! A time window in which a client sends, and how much.

use blis_sim::units::Micros;

use super::arrival::Arrival;
use super::lengths::Lengths;

/// A time window in which a client sends.
#[derive(Clone, Debug, PartialEq)]
pub struct Window {
    /// Start of the window.
    pub start: Micros,
    /// End of the window, exclusive; after `start`.
    pub end: Micros,
    /// Rate within the window, if it differs.
    pub rate: WindowRate,
    /// Arrival process within the window, if it differs.
    pub arrival: Option<Arrival>,
    /// Input lengths within the window, if they differ.
    pub input: Option<Lengths>,
    /// Output lengths within the window, if they differ.
    pub output: Option<Lengths>,
    /// Share of reasoning within the window, percent, if it differs.
    pub reason_ratio: Option<Lengths>,
}

impl Window {
    /// A window from `start` to `end` without other settings.
    #[must_use]
    pub fn usual(start: Micros, end: Micros) -> Self {
        Self { start, end, rate: WindowRate::Usual, arrival: None, input: None, output: None, reason_ratio: None }
    }

    /// Whether it has a rate or distribution of its own.
    pub(super) fn overrides(&self) -> bool {
        let as_usual = matches!(self.rate, WindowRate::Usual | WindowRate::Exact(_) | WindowRate::Count(_));
        let lengths = [&self.input, &self.output, &self.reason_ratio];
        !as_usual || self.arrival.is_some() || lengths.into_iter().any(Option::is_some)
    }

    pub(super) fn overlaps(&self, other: &Self) -> bool {
        self.start < other.end && other.start < self.end
    }
}

/// How much a client sends in a window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum WindowRate {
    /// Its share of the aggregate rate.
    #[default]
    Usual,
    /// `trace_rate`: requests per second in absolute mode, else its weight in the aggregate rate.
    Weight(f64),
    /// Requests per second, independent of other clients.
    Exact(f64),
    /// A fixed number of requests.
    Count(u64),
}
