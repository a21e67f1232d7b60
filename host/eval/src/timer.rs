//! CPU time of a simulation, so that other work on the machine does not make it look slow.

use std::time::Duration;

/// Measures CPU time from its start.
pub struct Timer {
    scope: ClockScope,
    start: Duration,
}

#[derive(Clone, Copy)]
enum ClockScope {
    Process,
    Thread,
}

impl Timer {
    /// Measures the CPU time of this process.
    pub fn start() -> Self {
        Self { scope: ClockScope::Process, start: now(ClockScope::Process) }
    }

    /// Measures the CPU time of this thread alone, while other threads work.
    pub fn of_thread() -> Self {
        Self { scope: ClockScope::Thread, start: now(ClockScope::Thread) }
    }

    pub fn elapsed(&self) -> Duration {
        now(self.scope).saturating_sub(self.start)
    }
}

#[cfg(any(target_os = "linux", target_os = "macos"))]
fn now(scope: ClockScope) -> Duration {
    use rustix::time::{ClockId, clock_gettime};
    let clock = match scope {
        ClockScope::Process => ClockId::ProcessCPUTime,
        ClockScope::Thread => ClockId::ThreadCPUTime,
    };
    Duration::try_from(clock_gettime(clock)).unwrap_or_default()
}

/// CPU time of this process and of its children that have ended.
#[cfg(any(target_os = "linux", target_os = "macos"))]
#[allow(unsafe_code)] // getrusage: rustix has none
pub fn cpu_with_children() -> Duration {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the call fills the structure, or fails and leaves the zeros, which are valid.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_CHILDREN, usage.as_mut_ptr());
        usage.assume_init()
    };
    let of = |time: libc::timeval| Duration::new(time.tv_sec.max(0) as u64, 1000 * time.tv_usec.max(0) as u32);
    now(ClockScope::Process) + of(usage.ru_utime) + of(usage.ru_stime)
}

/// The same on platforms that do not say.
#[cfg(not(any(target_os = "linux", target_os = "macos")))]
pub fn cpu_with_children() -> Duration {
    now(ClockScope::Process)
}

/// On platforms without such a clock, wall time stands in: an upper bound.
#[cfg(not(any(target_os = "linux", target_os = "macos")))]
fn now(_whose: ClockScope) -> Duration {
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
        for timer in [Timer::start(), Timer::of_thread()] {
            let mut work = 1_u64;
            while timer.elapsed() == Duration::ZERO {
                work = std::hint::black_box(work.wrapping_mul(3));
            }
            assert!(timer.elapsed() > Duration::ZERO);
        }
    }
}
