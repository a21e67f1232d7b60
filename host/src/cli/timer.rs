//! How long a simulation takes: CPU time, so that a busy machine does not make it look slow.

use std::time::Duration;

/// Counts CPU time of this process.
pub(super) struct Timer(Duration);

impl Timer {
    pub(super) fn start() -> Self {
        Self(now())
    }

    pub(super) fn elapsed(&self) -> Duration {
        now().saturating_sub(self.0)
    }
}

#[cfg(any(target_os = "linux", target_os = "macos"))]
fn now() -> Duration {
    use rustix::time::{ClockId, clock_gettime};
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default()
}

/// Where there is no such clock, real time stands in: an upper bound.
#[cfg(not(any(target_os = "linux", target_os = "macos")))]
fn now() -> Duration {
    use std::sync::LazyLock;
    use std::time::Instant;
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    START.elapsed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_takes_time() {
        let timer = Timer::start();
        let mut work = 1_u64;
        while timer.elapsed() == Duration::ZERO {
            work = std::hint::black_box(work.wrapping_mul(3));
        }
        assert!(timer.elapsed() > Duration::ZERO);
    }
}
