//! The ticks of the queue: one in every interval while requests wait. Those that cannot change anything are skipped, and
//! counted as if they had been executed.

use crate::limits;
use crate::units::Micros;

/// The series of ticks while requests wait.
#[derive(Clone, Debug)]
pub(super) struct Ticks {
    /// Interval between two ticks, > 0.
    interval: Micros,
    /// Whether the series begins one interval after the request that found the queue empty (BLIS), instead of at the next
    /// multiple of the interval.
    from_enqueue: bool,
    /// The earliest tick that was neither executed nor skipped; `None` while no request waits.
    next: Option<Micros>,
    /// Number of ticks from `next` on that are to be skipped.
    skipping: u64,
    /// Ticks since the queue last changed.
    idle: u64,
}

impl Ticks {
    pub fn new(interval: Micros, from_enqueue: bool) -> Self {
        Self { interval, from_enqueue, next: None, skipping: 0, idle: 0 }
    }

    /// When the next tick is to be executed; `None` while no request waits.
    pub fn due(&self) -> Option<Micros> {
        let skipped = Micros(self.skipping.saturating_mul(self.interval.0));
        self.next.map(|next| next.saturating_add(skipped))
    }

    /// Requests wait since `now`: a series begins, unless there is one.
    pub fn begin(&mut self, now: Micros) {
        if self.next.is_none() {
            self.next = Some(self.after(now));
        }
    }

    /// The tick at `now` was executed; the series continues if requests wait. Returns whether the queue has been unchanged
    /// for so long that something may be wrong.
    pub fn executed(&mut self, now: Micros, waits: bool) -> bool {
        self.next = waits.then(|| self.after(now));
        self.idle += 1;
        self.idle >= u64::from(limits::IDLE_TICKS)
    }

    /// The queue changed.
    pub fn changed(&mut self) {
        self.idle = 0;
    }

    /// Goes on to the first tick from `now` on, and no longer skips ticks after it. Returns the number of ticks before.
    pub fn pass(&mut self, now: Micros) -> u64 {
        self.skipping = 0;
        let Some(next) = &mut self.next else { return 0 };
        let passed = now.saturating_sub(*next).0.div_ceil(self.interval.0);
        *next = next.saturating_add(Micros(passed.saturating_mul(self.interval.0)));
        self.idle += passed;
        passed
    }

    /// Skips the ticks up to `steady`, inclusive, but no more than `most`, and not the one that may end the simulation.
    pub fn skip(&mut self, steady: Micros, most: u64) {
        let Some(next) = self.next.filter(|&next| next <= steady) else { return };
        let before_the_end = u64::from(limits::IDLE_TICKS).saturating_sub(self.idle + 1);
        self.skipping = ((steady - next).0 / self.interval.0 + 1).min(most).min(before_the_end);
    }

    fn after(&self, now: Micros) -> Micros {
        let interval = self.interval.0;
        if self.from_enqueue {
            now.saturating_add(self.interval)
        } else {
            Micros((now.0 / interval + 1).saturating_mul(interval))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skipped_ticks_are_those_of_the_series() {
        let mut ticks = Ticks::new(Micros(1000), false);
        assert_eq!(ticks.due(), None);
        ticks.begin(Micros(1500));
        assert_eq!(ticks.due(), Some(Micros(2000)));
        ticks.skip(Micros(1999), u64::MAX);
        assert_eq!(ticks.due(), Some(Micros(2000)), "it is later");
        ticks.skip(Micros(4000), u64::MAX);
        assert_eq!(ticks.due(), Some(Micros(5000)), "2, 3 and 4 ms are skipped");
        ticks.skip(Micros(9000), 1);
        assert_eq!(ticks.due(), Some(Micros(3000)));
        assert_eq!(ticks.pass(Micros(3000)), 1, "that at 3 ms is still to come");
        assert_eq!((ticks.due(), ticks.pass(Micros(3001))), (Some(Micros(3000)), 1));
        assert_eq!(ticks.due(), Some(Micros(4000)));
        assert!(!ticks.executed(Micros(4000), true));
        assert_eq!(ticks.due(), Some(Micros(5000)));
        ticks.executed(Micros(5000), false);
        assert_eq!(ticks.due(), None);
    }

    #[test]
    fn blis_counts_from_the_request_that_found_the_queue_empty() {
        let mut ticks = Ticks::new(Micros(1000), true);
        ticks.begin(Micros(1500));
        ticks.skip(Micros(4500), u64::MAX);
        ticks.begin(Micros(2100));
        assert_eq!(ticks.due(), Some(Micros(5500)));
    }

    #[test]
    fn the_tick_that_may_end_the_simulation_is_executed() {
        let mut ticks = Ticks::new(Micros(10), false);
        ticks.begin(Micros(0));
        ticks.skip(Micros::MAX, u64::MAX);
        let end = Micros(10 * u64::from(limits::IDLE_TICKS));
        assert_eq!(ticks.due(), Some(end));
        ticks.pass(end);
        assert!(ticks.executed(end, true));
        ticks.skip(Micros::MAX, u64::MAX);
        assert_eq!(ticks.due(), Some(end + Micros(10)), "from then on all are");
        ticks.changed();
        ticks.skip(Micros(end.0 + 30), u64::MAX);
        assert_eq!(ticks.due(), Some(end + Micros(40)));
    }
}
