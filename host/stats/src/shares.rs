//! Shares of requests: attainment, goodput, losses.

use crate::error::{StatisticsError, check_range};
use crate::interval::{MeanEstimate, MeanInterval};
use crate::mean::mean_of_runs;

/// Events, and requests without one, below which a share has no interval.
pub const FEWEST_EVENTS: usize = 10;

/// A share of requests, 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ShareEstimate {
    /// With an interval within 0 to 1, or too short a run for one.
    Enough(MeanEstimate),
    /// Fewer than [`FEWEST_EVENTS`] requests with the event, or without it.
    TooFewEvents {
        /// The share of the requests with the event.
        share: f64,
        /// An upper limit at 95 % if no request had the event, and requests are independent: 3/n (Hanley and Lippman-Hand 1983, *JAMA* 249).
        at_most: Option<f64>,
        /// A lower limit at 95 % if all requests had it: 1 − 3/n.
        at_least: Option<f64>,
    },
}

/// The share of the values that are 1, over the runs of one scenario, as [`mean_of_runs`](crate::mean_of_runs).
///
/// # Errors
/// If there is no run, a run is empty, or a value is neither 0 nor 1.
pub fn share_of_runs(runs: &[&[f64]], confidence: f64) -> Result<ShareEstimate, StatisticsError> {
    for &value in runs.iter().copied().flatten() {
        check_range("an event", value, value == 0.0 || value == 1.0, "0 or 1")?;
    }
    let mean = mean_of_runs(runs, confidence)?;
    let requests: usize = runs.iter().map(|run| run.len()).sum();
    let events = runs.iter().copied().flatten().filter(|&&value| value == 1.0).count();
    if events.min(requests - events) >= FEWEST_EVENTS {
        return Ok(ShareEstimate::Enough(mean.map(within_shares)));
    }
    let third = (3.0 / requests as f64).min(1.0);
    Ok(ShareEstimate::TooFewEvents {
        share: events as f64 / requests as f64,
        at_most: (events == 0).then_some(third),
        at_least: (events == requests).then_some(1.0 - third),
    })
}

fn within_shares(interval: MeanInterval) -> MeanInterval {
    MeanInterval { low: interval.low.max(0.0), high: interval.high.min(1.0), ..interval }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::processes::TestStream;

    fn events(seed: u64, n: usize, share: f64) -> Vec<f64> {
        let mut stream = TestStream::new(seed);
        (0..n).map(|_| f64::from(u8::from(stream.uniform() < share))).collect()
    }

    #[test]
    fn rare_events_have_no_interval() {
        let none = vec![0.0; 600];
        let expected = ShareEstimate::TooFewEvents { share: 0.0, at_most: Some(0.005), at_least: None };
        assert_eq!(share_of_runs(&[&none], 0.95), Ok(expected));
        let all = vec![1.0; 600];
        let expected = ShareEstimate::TooFewEvents { share: 1.0, at_most: None, at_least: Some(0.995) };
        assert_eq!(share_of_runs(&[&all], 0.95), Ok(expected));
        assert!(share_of_runs(&[&[0.5]], 0.95).is_err() && share_of_runs(&[], 0.95).is_err());
    }

    #[test]
    fn frequent_ones_have_one_within_0_and_1() {
        let Ok(ShareEstimate::Enough(MeanEstimate::Known(interval))) = share_of_runs(&[&events(1, 4000, 0.9)], 0.95)
        else {
            panic!("enough events");
        };
        assert!(interval.contains(0.9) && interval.high <= 1.0 && interval.half_width() < 0.02, "{interval:?}");
    }
}
