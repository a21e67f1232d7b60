//! The warm-up: found in the run, and known from what is slow.
//!
//! A run warms up for as long as its slowest clock takes: the queue as the run shows it, sessions, caches, adapters and autoscalers as their
//! settings say. A rule that looks at the run alone takes a ramp that is slower than the run for its steady state.

use crate::error::{StatisticsError, check_range, check_series};
use crate::moments::mean;

/// Values of a batch of MSER-5.
const BATCH: usize = 5;
/// Batches without which MSER-5 finds nothing.
const FEWEST_BATCHES: usize = 10;

/// The number of values at the front of `values`, in order of arrival, that MSER-5 drops: with the means y of batches of five, the d that
/// minimises Σ(yᵢ − ȳ)²/(m − d)² over the m − d batches from d on, for d ≤ m/2 (White 1997, *Simulation* 69; Franklin and White 2008,
/// Winter Simulation Conference). `None` if the minimum is at the end of that range, or there are fewer than 50 values: a longer run is needed.
///
/// # Errors
/// If there are no values, or one is not finite.
pub fn mser_5(values: &[f64]) -> Result<Option<usize>, StatisticsError> {
    check_series(values)?;
    let batches: Vec<f64> = values.chunks_exact(BATCH).map(mean).collect();
    let m = batches.len();
    if m < FEWEST_BATCHES {
        return Ok(None);
    }
    let errors = squared_errors(&batches);
    let (mut best, mut least) = (0, f64::INFINITY);
    for (d, &error) in errors.iter().enumerate().take(m / 2 + 1) {
        let slack = 1e-15 * if least.is_finite() { least.abs().max(1.0) } else { 1.0 };
        if error < least - slack {
            (best, least) = (d, error);
        }
    }
    Ok((best < m / 2).then_some(BATCH * best))
}

/// Σ(yᵢ − ȳ)²/(m − d)² of the batches from d on, for each d.
fn squared_errors(batches: &[f64]) -> Vec<f64> {
    let (mut sum, mut squares) = (0.0, 0.0);
    let mut errors: Vec<f64> = Vec::with_capacity(batches.len());
    for (index, y) in batches.iter().rev().enumerate() {
        let k = (index + 1) as f64;
        sum += y;
        squares += y * y;
        errors.push((squares - sum * sum / k) / (k * k));
    }
    errors.reverse();
    errors
}

/// What takes its time to reach its steady state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SlowPart {
    /// The waiting queues: [`mser_5`] of TTFT.
    Queue,
    /// Sessions: the 95th percentile of their life.
    Sessions,
    /// The KV cache: the time in which uncached prompt tokens fill it; twice with a CPU tier, of its own size.
    Cache,
    /// Adapters: the time in which their slots turn over three times.
    Adapters,
    /// The autoscaler: the time that [`autoscaler_clock_s`] says.
    Autoscaler,
    /// Moving averages of signals: 30 of their samples.
    Signals,
}

/// A slow part and its time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SlowClock {
    /// The part that takes this time.
    pub part: SlowPart,
    /// Time that it takes, ≥ 0.
    pub time_s: f64,
}

/// The warm-up of a run, and how long the run must last.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WarmUp {
    /// The slowest part; `None` if nothing is slow.
    pub slowest: Option<SlowClock>,
    /// Figures count requests that arrive from then on.
    pub warm_up_s: f64,
    /// Arrivals must last at least that long: the warm-up and ten times the slowest clock, twenty times for a percentile above 95.
    pub needed_s: f64,
}

impl WarmUp {
    /// The warm-up of a run with these clocks. `percentile`: the highest one of interest, 0 to 100, if there is one. For two policies that are
    /// compared, pass the clocks of both, so that both are cut at the same time.
    ///
    /// # Errors
    /// If a time is negative or not finite, or the percentile out of range.
    pub fn of(clocks: &[SlowClock], percentile: Option<f64>) -> Result<Self, StatisticsError> {
        for clock in clocks {
            let is_time = clock.time_s.is_finite() && clock.time_s >= 0.0;
            check_range("the time of a slow clock", clock.time_s, is_time, "0 s or more")?;
        }
        let percentile = percentile.unwrap_or(0.0);
        check_range("a percentile", percentile, (0.0..=100.0).contains(&percentile), "from 0 to 100")?;
        let slowest = clocks.iter().copied().max_by(|a, b| a.time_s.total_cmp(&b.time_s));
        let warm_up_s = slowest.map_or(0.0, |clock| clock.time_s);
        let clocks = if percentile > 95.0 { 20.0 } else { 10.0 };
        Ok(Self { slowest, warm_up_s, needed_s: warm_up_s * (1.0 + clocks) })
    }
}

/// Time in which `uncached_tokens_per_s` (of one instance, above 0) fill a cache of `tokens`.
///
/// # Errors
/// If a number is out of range.
pub fn cache_clock_s(tokens: f64, uncached_tokens_per_s: f64) -> Result<f64, StatisticsError> {
    check_range("the size of the cache", tokens, tokens.is_finite() && tokens >= 0.0, "0 tokens or more")?;
    let flows = uncached_tokens_per_s.is_finite() && uncached_tokens_per_s > 0.0;
    check_range("the rate of uncached tokens", uncached_tokens_per_s, flows, "above 0 tokens/s")?;
    Ok(tokens / uncached_tokens_per_s)
}

/// Time after which an autoscaler has reacted, and its instances serve: twice the start-up of an instance and the stabilisation window, each ≥ 0.
#[must_use]
pub fn autoscaler_clock_s(start_up_s: f64, stabilisation_s: f64) -> f64 {
    2.0 * (start_up_s.max(0.0) + stabilisation_s.max(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_series_loses_nothing_and_a_step_its_first_part() {
        let level: Vec<f64> = (0..200).map(|i| f64::from(i % 2)).collect();
        assert_eq!(mser_5(&level), Ok(Some(0)));
        let step: Vec<f64> = (0..200).map(|i| if i < 40 { 50.0 } else { f64::from(i % 7) }).collect();
        assert_eq!(mser_5(&step), Ok(Some(40)));
        let ramp: Vec<f64> = (0..200).map(f64::from).collect();
        assert_eq!(mser_5(&ramp), Ok(None), "it never becomes level");
        assert_eq!(mser_5(&level[..49]), Ok(None), "too few");
        assert_eq!(mser_5(&[]), Err(StatisticsError::Empty));
        assert_eq!(mser_5(&[0.0, f64::NAN]), Err(StatisticsError::NotFinite { index: 1 }));
    }

    #[test]
    fn the_slowest_clock_decides() {
        let clocks = [
            SlowClock { part: SlowPart::Queue, time_s: 12.0 },
            SlowClock { part: SlowPart::Sessions, time_s: 200.0 },
            SlowClock { part: SlowPart::Autoscaler, time_s: autoscaler_clock_s(30.0, 60.0) },
        ];
        let warm_up = WarmUp::of(&clocks, Some(95.0)).expect("valid");
        assert_eq!(warm_up.slowest, Some(clocks[1]));
        assert_eq!((warm_up.warm_up_s, warm_up.needed_s), (200.0, 2200.0));
        assert_eq!(WarmUp::of(&clocks, Some(99.0)).map(|found| found.needed_s), Ok(4200.0));
        assert_eq!(WarmUp::of(&[], None).map(|found| (found.slowest, found.needed_s)), Ok((None, 0.0)));
        let broken = SlowClock { part: SlowPart::Cache, time_s: f64::NAN };
        assert!(WarmUp::of(&[broken], None).is_err() && WarmUp::of(&clocks, Some(101.0)).is_err());
        assert_eq!(cache_clock_s(1e6, 5e3), Ok(200.0));
        assert!(cache_clock_s(1.0, 0.0).is_err());
    }
}
