//! The two sides of a workload whose clients wait for answers: what comes by itself, and what follows.
//!
//! Both draw on the same numbers, so they share what makes them. They take turns in one thread; the lock
//! only says so.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use blis_sim::cluster::FollowUps;
use blis_sim::outcome::Outcome;
use blis_sim::request::Request;

use super::generate::Requests;
use super::session::{EndStatus, Ended};

/// What comes by itself, and what follows from the ends of that.
pub(super) fn split(requests: Requests) -> (impl Iterator<Item = Request> + Send, Box<dyn FollowUps + Send>) {
    let shared = Shared(Arc::new(Mutex::new(requests)));
    let answered = Box::new(shared.clone());
    (std::iter::from_fn(move || shared.lock().next().map(|drawn| drawn.request)), answered)
}

#[derive(Clone)]
struct Shared(Arc<Mutex<Requests>>);

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Requests> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FollowUps for Shared {
    fn next(&mut self, ended: &Outcome) -> Option<Request> {
        let status = if ended.completed() { EndStatus::Completed } else { EndStatus::Failed };
        let generated_tokens = ended.generated_tokens;
        self.lock().ended(ended.tags.session, Ended { at: ended.ended_at, generated_tokens, status })
    }
}
