//! One monotonic clock, in microseconds from its start.

use std::time::{Duration, Instant};

use blis_sim::units::Micros;

/// The monotonic clock from which simulated time follows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SimulatedClock {
    start: Instant,
    /// Real time over simulated time, > 0.
    scale: f64,
}

impl SimulatedClock {
    /// A clock at simulated time 0; `scale` > 0 is real time over simulated time.
    pub fn start(scale: f64) -> Self {
        Self { start: Instant::now(), scale }
    }

    /// The simulated time at this moment.
    pub fn now(&self) -> Micros {
        Micros((self.start.elapsed().as_secs_f64() * 1e6 / self.scale) as u64)
    }

    /// The real time left until the simulated time `at`; 0 if it has passed.
    pub fn until(&self, at: Micros) -> Duration {
        let at = Duration::try_from_secs_f64(at.0 as f64 * self.scale / 1e6).unwrap_or(Duration::MAX);
        at.saturating_sub(self.start.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn simulated_time_is_scaled() {
        let clock = SimulatedClock::start(1e-6);
        std::thread::sleep(Duration::from_millis(2));
        assert!(clock.now() >= Micros(2_000_000_000), "a millisecond of real time is 1000 s");
        assert_eq!(clock.until(Micros(1)), Duration::ZERO);
        let slow = SimulatedClock::start(1e6);
        assert_eq!(slow.now(), Micros::ZERO);
        assert!(slow.until(Micros(1)) > Duration::from_millis(100), "a microsecond is a second");
        assert!(slow.until(Micros::MAX) > Duration::from_secs(1 << 40));
    }
}
