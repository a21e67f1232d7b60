//! `blis evaluate` and what stands around it: candidates, judged on suites.
//!
//! ```text
//! candidate ─┐
//!            ├─ Bench: configurations, workloads, known runs ── Sitting: runs of one candidate
//! suite ─────┘                                                      │ cascade (crate::evaluate)
//!                                 document ◄── feedback ◄── verdict ┘
//! ```

mod bench;
mod cache;
mod candidate;
mod evaluate;
mod init;
mod native;
mod report;
mod serve;
mod shard;
mod shinka;
mod tune;

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use blis_sim::cluster::Abort;

pub(super) use evaluate::{EvaluateArgs, dispatch};
pub(super) use init::{InitArgs, init};
pub(super) use report::{ReportArgs, report};
pub(super) use serve::{ServeArgs, serve};
pub(super) use shard::{MergeArgs, merge};
pub(super) use shinka::{ShinkaArgs, shinka};
pub(super) use tune::{TuneArgs, tune};

/// Holds simulations back: how much their plugins may use, and whether they are to end now.
#[derive(Clone, Debug)]
pub(super) struct Leash {
    most: u64,
    hand: Arc<Hand>,
}

/// The end of a leash that somebody holds.
#[derive(Debug, Default)]
pub(super) struct Hand {
    held: Mutex<Vec<Abort>>,
    pulled: OnceLock<Pull>,
}

/// Why a hand was pulled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pull {
    /// Time is up.
    Late,
    /// Whoever asked does not want to know any more.
    Cancelled,
}

impl Hand {
    /// Ends what runs on it, and what will. The first reason counts.
    pub(super) fn pull(&self, why: Pull) {
        let _ = self.pulled.set(why);
        self.held.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(Abort::set);
    }

    pub(super) fn is_pulled(&self) -> bool {
        self.pulled().is_some()
    }

    /// Why, if it was.
    pub(super) fn pulled(&self) -> Option<Pull> {
        self.pulled.get().copied()
    }
}

impl Leash {
    /// Plugins of one simulation may use `most` fuel or operations together.
    pub(super) fn new(most: u64, hand: &Arc<Hand>) -> Self {
        Self { most, hand: Arc::clone(hand) }
    }

    pub(super) fn most(&self) -> u64 {
        self.most
    }

    /// A simulation that ends with `abort`.
    pub(super) fn hold(&self, abort: &Abort) {
        self.hand.held.lock().unwrap_or_else(PoisonError::into_inner).push(abort.clone());
        if self.hand.is_pulled() {
            abort.set();
        }
    }
}
