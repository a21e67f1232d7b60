//! Ending simulations from outside: limits of what their plugins may use, and a handle that ends all of them.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use blis_sim::cluster::Abort;

/// Holds simulations back: how much their plugins may use, and whether they are to end now.
#[derive(Clone, Debug)]
pub struct Leash {
    most: u64,
    hand: Arc<Hand>,
}

/// The end of a leash that somebody holds.
#[derive(Debug, Default)]
pub struct Hand {
    held: Mutex<Vec<Abort>>,
    pulled: OnceLock<Pull>,
}

/// Why a hand was pulled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pull {
    /// Time is up.
    Late,
    /// Whoever asked does not want to know any more.
    Cancelled,
}

impl Hand {
    /// Ends what runs on it, and what will. The first reason counts.
    pub fn pull(&self, why: Pull) {
        let _ = self.pulled.set(why);
        self.held.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(Abort::set);
    }

    pub fn is_pulled(&self) -> bool {
        self.pulled().is_some()
    }

    /// Why, if it was.
    pub fn pulled(&self) -> Option<Pull> {
        self.pulled.get().copied()
    }
}

impl Leash {
    /// Plugins of one simulation may use `most` fuel or operations together.
    pub fn new(most: u64, hand: &Arc<Hand>) -> Self {
        Self { most, hand: Arc::clone(hand) }
    }

    pub fn most(&self) -> u64 {
        self.most
    }

    /// A simulation that ends with `abort`.
    pub fn hold(&self, abort: &Abort) {
        self.hand.held.lock().unwrap_or_else(PoisonError::into_inner).push(abort.clone());
        if self.hand.is_pulled() {
            abort.set();
        }
    }
}
