//! Latencies that a trace records beside its requests.

/// The measured latencies of one request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RecordedTimes {
    /// From arrival to the first token, µs, at least 0.
    pub ttft_us: f64,
    /// From arrival to the last token, µs, at least `ttft_us`.
    pub e2e_us: f64,
    /// From the waiting queue to the running batch (QUEUED to SCHEDULED), µs, if the server reports it.
    pub queue_us: Option<f64>,
    /// Number of preemptions, if the server reports them.
    pub preemptions: Option<u32>,
}

impl RecordedTimes {
    /// TTFT and end-to-end latency, µs; `None` unless 0 ≤ `ttft_us` ≤ `e2e_us` < ∞.
    #[must_use]
    pub fn new(ttft_us: f64, e2e_us: f64) -> Option<Self> {
        let in_order = ttft_us >= 0.0 && e2e_us >= ttft_us && e2e_us.is_finite();
        in_order.then_some(Self { ttft_us, e2e_us, queue_us: None, preemptions: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_token_is_no_later_than_the_last() {
        assert!(RecordedTimes::new(5.0, 5.0).is_some());
        assert_eq!([RecordedTimes::new(6.0, 5.0), RecordedTimes::new(-1.0, 5.0)], [None, None]);
        assert_eq!([RecordedTimes::new(f64::NAN, 5.0), RecordedTimes::new(1.0, f64::INFINITY)], [None, None]);
    }
}
