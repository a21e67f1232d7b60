//! Whether requests become more and more in the system.

use crate::error::{StatisticsError, check_lengths, check_range, check_series};

/// Equal windows between the times at which requests in the system are counted.
const WINDOWS: usize = 20;
/// The first part of the arrivals, which is left out.
const LEFT_OUT: f64 = 0.2;
/// Times at either end over which numbers are averaged.
const ENDS: usize = 5;

/// How the number of requests in the system changes over a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Growth {
    /// (N(end) − N(start)) per arrival: the share of the arriving requests by which the system fills.
    pub share: f64,
    /// Kendall's τ of the 21 numbers: −1 (falling) to 1 (growing).
    pub trend: f64,
    /// Mean of the first five numbers (requests).
    pub early: f64,
    /// Mean of the last five numbers (requests).
    pub late: f64,
}

impl Growth {
    /// Counts the requests in the system at 21 equal times, from the first fifth of the arrivals on, or from `warm_up_s` after the first arrival
    /// if that is later, to the last arrival. `ends_s` are infinite for requests that never ended.
    ///
    /// # Errors
    /// If there are no requests, an arrival is not finite, an end is not a number, the lengths differ, or nothing arrives after the warm-up.
    pub fn of(arrivals_s: &[f64], ends_s: &[f64], warm_up_s: f64) -> Result<Self, StatisticsError> {
        check_lengths(arrivals_s.len(), ends_s.len())?;
        check_series(arrivals_s)?;
        if let Some(index) = ends_s.iter().position(|end| end.is_nan()) {
            return Err(StatisticsError::NotFinite { index });
        }
        let arrivals = ascending(arrivals_s);
        let (first, last) = (arrivals[0], arrivals[arrivals.len() - 1]);
        let start = (first + LEFT_OUT * (last - first)).max(first + warm_up_s.max(0.0));
        check_range("the warm-up", warm_up_s, start < last, "shorter than the arrivals last")?;
        let numbers = numbers(&arrivals, &ascending(ends_s), start);
        let counted = arrivals.len() - arrivals.partition_point(|&arrival| arrival < start);
        Ok(Self::from_numbers(&numbers, counted as f64))
    }

    /// The same of requests in the system that were counted elsewhere at [`Self::TIMES`] equal times, between which `arrived` requests
    /// arrived.
    #[must_use]
    pub fn from_numbers(numbers: &[f64; WINDOWS + 1], arrived: f64) -> Self {
        let end_mean = |numbers: &[f64]| numbers.iter().sum::<f64>() / ENDS as f64;
        Self {
            share: (numbers[WINDOWS] - numbers[0]) / arrived.max(1.0),
            trend: kendall(numbers),
            early: end_mean(&numbers[..ENDS]),
            late: end_mean(&numbers[numbers.len() - ENDS..]),
        }
    }

    /// Times at which requests in the system are counted.
    pub const TIMES: usize = WINDOWS + 1;
    /// The first part of the arrivals, which is left out.
    pub const LEFT_OUT: f64 = LEFT_OUT;
}

fn ascending(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// Requests in the system at each of the times from `start` to the last arrival.
fn numbers(arrivals: &[f64], ends: &[f64], start: f64) -> [f64; WINDOWS + 1] {
    let last = arrivals[arrivals.len() - 1];
    let until = |times: &[f64], t: f64| times.partition_point(|&time| time <= t) as f64;
    let time = |window: usize| match window {
        WINDOWS => last,
        _ => start + (last - start) * window as f64 / WINDOWS as f64,
    };
    std::array::from_fn(|window| until(arrivals, time(window)) - until(ends, time(window)))
}

/// Kendall's τ of the order of `values`: the share of ascending pairs less that of descending ones, −1 to 1; 0 for fewer than two values.
#[must_use]
pub fn kendall(values: &[f64]) -> f64 {
    let n = values.len();
    let mut balance = 0.0;
    for (index, first) in values.iter().enumerate() {
        for second in &values[index + 1..] {
            balance += f64::from(i8::from(second > first) - i8::from(second < first));
        }
    }
    if n < 2 { 0.0 } else { balance / (n * (n - 1) / 2) as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_that_never_end_are_all_growth() {
        let arrivals: Vec<f64> = (0..1000).map(f64::from).collect();
        let never = vec![f64::INFINITY; 1000];
        let growth = Growth::of(&arrivals, &never, 0.0).expect("valid");
        assert!((growth.share - 1.0).abs() < 0.01 && growth.trend == 1.0 && growth.late > 3.0 * growth.early);
        let soon: Vec<f64> = arrivals.iter().map(|arrival| arrival + 2.5).collect();
        let growth = Growth::of(&arrivals, &soon, 0.0).expect("valid");
        assert!(growth.share.abs() < 2e-3 && (2.0..=3.0).contains(&growth.early), "{growth:?}");
    }

    #[test]
    fn broken_series_are_errors() {
        assert_eq!(Growth::of(&[], &[], 0.0), Err(StatisticsError::Empty));
        assert_eq!(Growth::of(&[1.0], &[], 0.0), Err(StatisticsError::Lengths { left: 1, right: 0 }));
        assert!(Growth::of(&[1.0, 1.0], &[2.0, 2.0], 0.0).is_err(), "no time passes");
        assert!(Growth::of(&[1.0, 2.0], &[2.0, f64::NAN], 0.0).is_err());
        assert!(Growth::of(&[1.0, 2.0], &[2.0, 3.0], 5.0).is_err(), "the warm-up is longer than the run");
    }

    #[test]
    fn kendall_counts_pairs() {
        assert_eq!((kendall(&[1.0, 2.0, 3.0]), kendall(&[3.0, 2.0, 1.0])), (1.0, -1.0));
        assert_eq!((kendall(&[1.0, 1.0]), kendall(&[1.0]), kendall(&[])), (0.0, 0.0, 0.0));
    }
}
