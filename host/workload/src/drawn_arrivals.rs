//! Arrivals for files of lengths that record none: drawn at a given rate.

use std::sync::Arc;

use blis_sim::rng::Stream;
use rand_distr::{Distribution as _, Exp1};

use super::distribution::ArrivalProcess;
use super::error::TraceError;
use super::format::TraceFormat;

/// The rate of requests without recorded arrivals.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DrawnArrivals {
    /// Requests per second, above 0.
    pub rate: f64,
    pub process: ArrivalProcess,
    /// Seed of Poisson arrivals.
    pub seed: u64,
}

/// The times of one arrival after the other.
pub(super) struct ArrivalClock {
    drawn: DrawnArrivals,
    stream: Stream,
    count: u64,
    /// The time of the latest arrival, µs.
    now_us: f64,
}

impl ArrivalClock {
    /// The clock for a trace without arrivals.
    ///
    /// # Errors
    /// If there is no rate.
    pub fn new(drawn: Option<DrawnArrivals>, file: &Arc<str>, format: TraceFormat) -> Result<Self, TraceError> {
        let drawn = drawn.ok_or_else(|| TraceError::NoArrivals { file: Arc::clone(file), format })?;
        Ok(Self { drawn, stream: Stream::new(drawn.seed, "trace-arrivals"), count: 0, now_us: 0.0 })
    }

    /// The next arrival, µs, at most `i64::MAX`.
    pub fn tick(&mut self) -> u64 {
        let gap = match self.drawn.process {
            ArrivalProcess::Constant => 1.0,
            ArrivalProcess::Poisson => Exp1.sample(&mut self.stream.at(self.count)),
        };
        self.count += 1;
        self.now_us += gap * 1e6 / self.drawn.rate;
        // A conversion of a float clamps.
        (self.now_us.round() as u64).min(i64::MAX as u64)
    }

    /// A note about the arrivals.
    pub fn note(&self) -> String {
        let process = match self.drawn.process {
            ArrivalProcess::Constant => "constant inter-arrival times",
            ArrivalProcess::Poisson => "Poisson",
        };
        format!("arrivals are not recorded: {process}, {} requests per second (`--rate`)", self.drawn.rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn clock(drawn: DrawnArrivals) -> ArrivalClock {
        ArrivalClock::new(Some(drawn), &"x".into(), TraceFormat::Csv).unwrap()
    }

    #[test]
    fn constant_arrivals_keep_the_rate() {
        let mut clock = clock(DrawnArrivals { rate: 3.0, process: ArrivalProcess::Constant, seed: 1 });
        let times: Vec<u64> = (0..6).map(|_| clock.tick()).collect();
        assert_eq!(times, [333_333, 666_667, 1_000_000, 1_333_333, 1_666_667, 2_000_000]);
    }

    proptest! {
        /// The mean of 4000 exponential gaps has a standard error of 1.6 %.
        #[test]
        fn poisson_arrivals_have_the_rate(rate in 0.01..1e4f64, seed: u64) {
            let drawn = DrawnArrivals { rate, process: ArrivalProcess::Poisson, seed };
            let (mut one, mut other) = (clock(drawn), clock(drawn));
            let times: Vec<u64> = (0..4000).map(|_| one.tick()).collect();
            prop_assert!(times.is_sorted());
            let mean_us = times[3999] as f64 / 4000.0;
            prop_assert!((mean_us * rate / 1e6 - 1.0).abs() < 0.1, "{} µs at {}", mean_us, rate);
            prop_assert!(times.iter().all(|&time| time == other.tick()));
        }
    }
}
