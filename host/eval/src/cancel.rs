//! Limits and cancellation of simulations: how many operations the plugins of a run may use, and a handle that ends
//! every run attached to it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use blis_sim::cluster::Abort;

/// Limit of one simulation: the fuel or operations that its plugins may use together, and the handle that cancels it.
#[derive(Clone, Debug)]
pub struct RunBudget {
    limit: u64,
    handle: Arc<CancelHandle>,
}

/// What ends simulations before their end: their handle, and the operations that plugins may use in each.
#[derive(Clone, Copy, Debug)]
pub struct SimulationLimit<'a> {
    /// Ends the simulations when it is used.
    pub handle: &'a Arc<CancelHandle>,
    /// Fuel or operations that plugins may use, if that is more than the limit of a run.
    pub budget: u64,
}

/// Ends all simulations that are attached to it, from any thread: the wall limit of their evaluation has passed.
#[derive(Debug, Default)]
pub struct CancelHandle {
    attached: Mutex<Vec<Abort>>,
    is_cancelled: AtomicBool,
    deadline: Option<Instant>,
}

impl CancelHandle {
    /// A handle that is cancelled once `wall` has passed. Simulations that are already running end only by
    /// [`Self::cancel`].
    pub fn after(wall: Duration) -> Self {
        Self { deadline: Instant::now().checked_add(wall), ..Self::default() }
    }

    /// Ends the simulations that are attached, and those that will be.
    pub fn cancel(&self) {
        self.is_cancelled.store(true, Ordering::SeqCst);
        self.attached.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(Abort::set);
    }

    pub fn is_cancelled(&self) -> bool {
        self.is_cancelled.load(Ordering::SeqCst) || self.deadline.is_some_and(|deadline| deadline <= Instant::now())
    }
}

impl RunBudget {
    /// `limit`: fuel or operations that the plugins of one simulation may use together.
    pub fn new(limit: u64, handle: &Arc<CancelHandle>) -> Self {
        Self { limit, handle: Arc::clone(handle) }
    }

    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Attaches a simulation that ends when `abort` is set. It ends at once if the handle was used before.
    pub fn attach(&self, abort: &Abort) {
        self.handle.attached.lock().unwrap_or_else(PoisonError::into_inner).push(abort.clone());
        if self.handle.is_cancelled() {
            abort.set();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: the wall limit held only if the thread that waits for it had been scheduled in time.
    #[test]
    fn a_passed_deadline_ends_what_is_attached() {
        let budget = RunBudget::new(1, &Arc::new(CancelHandle::after(Duration::ZERO)));
        let abort = Abort::default();
        budget.attach(&abort);
        assert!(abort.is_set());
        assert!(!CancelHandle::after(Duration::MAX).is_cancelled(), "too long for the clock");
    }
}
