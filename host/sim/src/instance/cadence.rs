//! vLLM's `prefill_schedule_interval`: prefill waits for every n-th step while requests decode.
//!
//! Source: vLLM 0.33.0, `Scheduler.schedule`. A step holds back prefill, of requests in the batch as of those that would
//! enter it, if
//! * at least one request of the batch decodes,
//! * fewer than n steps have been executed since the last one with prefill tokens, this one included, and
//! * the last step that held nothing back left no request in the waiting queue: a server that cannot keep up does not
//!   wait.

/// Decides which steps hold back prefill.
#[derive(Clone, Copy, Debug)]
pub(super) struct PrefillCadence {
    interval: u32,
    /// Number of steps that scheduled tokens.
    executed: u64,
    /// Number of the last of them that scheduled prefill tokens, from 1.
    last_prefill: Option<u64>,
    /// Whether requests were left waiting by the last step that held nothing back.
    backlog: bool,
}

impl PrefillCadence {
    /// Prefill every `interval` steps, ≥ 1.
    pub fn new(interval: u32) -> Self {
        Self { interval, executed: 0, last_prefill: None, backlog: false }
    }

    /// Whether some steps hold back prefill: if not, nothing needs to be counted.
    pub fn is_used(&self) -> bool {
        self.interval > 1
    }

    /// Whether the next step holds back prefill; `decoding`: whether a request of the batch has its prompt computed.
    pub fn holds(&self, decoding: bool) -> bool {
        let soon = |last| self.executed + 1 < last + u64::from(self.interval);
        self.is_used() && decoding && !self.backlog && self.last_prefill.is_some_and(soon)
    }

    /// Records that a step which held nothing back left so many requests `waiting`.
    pub fn left_waiting(&mut self, waiting: usize) {
        self.backlog = waiting > 0;
    }

    /// Records a step: whether it scheduled `tokens` at all, and whether `prefill` was among them.
    pub fn executed(&mut self, tokens: bool, prefill: bool) {
        self.executed += u64::from(tokens);
        if prefill {
            self.last_prefill = Some(self.executed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefill_comes_every_third_step_while_requests_decode() {
        let mut cadence = PrefillCadence::new(3);
        let mut held = Vec::new();
        for step in 0..8 {
            let holds = cadence.holds(step > 0);
            held.push(holds);
            if !holds {
                cadence.left_waiting(0);
            }
            cadence.executed(true, !holds);
        }
        assert_eq!(held, [false, true, true, false, true, true, false, true]);
    }

    #[test]
    fn a_backlog_ends_the_waiting() {
        let mut cadence = PrefillCadence::new(10);
        cadence.left_waiting(1);
        cadence.executed(true, true);
        assert!(!cadence.holds(true), "requests were left in the queue");
        cadence.left_waiting(0);
        cadence.executed(true, true);
        assert!(cadence.holds(true) && !cadence.holds(false), "only while requests decode");
    }
}
