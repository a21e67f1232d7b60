//! Limits and cancellation of simulations: how many operations the plugins of a run may use, and a handle that ends
//! every run attached to it.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use blis_sim::cluster::Abort;

/// Limit of one simulation: the fuel or operations that its plugins may use together, and the handle that cancels it.
#[derive(Clone, Debug)]
pub struct Leash {
    most: u64,
    hand: Arc<Hand>,
}

/// Ends all simulations that are attached to it, from any thread.
#[derive(Debug, Default)]
pub struct Hand {
    held: Mutex<Vec<Abort>>,
    pulled: OnceLock<Pull>,
}

/// Why simulations were cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pull {
    /// The wall limit of the evaluation has passed.
    Late,
    /// The request for the evaluation was cancelled.
    Cancelled,
}

impl Hand {
    /// Ends the simulations that are attached, and those that will be. Only the first reason is kept.
    pub fn pull(&self, why: Pull) {
        let _ = self.pulled.set(why);
        self.held.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(Abort::set);
    }

    pub fn is_pulled(&self) -> bool {
        self.pulled().is_some()
    }

    /// The cancellation reason; `None` while the handle has not been used.
    pub fn pulled(&self) -> Option<Pull> {
        self.pulled.get().copied()
    }
}

impl Leash {
    /// `limit`: fuel or operations that the plugins of one simulation may use together.
    pub fn new(most: u64, hand: &Arc<Hand>) -> Self {
        Self { most, hand: Arc::clone(hand) }
    }

    pub fn most(&self) -> u64 {
        self.most
    }

    /// Attaches a simulation that ends when `abort` is set. It ends at once if the handle was used before.
    pub fn hold(&self, abort: &Abort) {
        self.hand.held.lock().unwrap_or_else(PoisonError::into_inner).push(abort.clone());
        if self.hand.is_pulled() {
            abort.set();
        }
    }
}
