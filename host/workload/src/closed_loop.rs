//! The two sides of a workload whose clients wait for answers: what comes by itself, and what follows.
//!
//! Both draw on the same numbers, so they share what makes them. They take turns in one thread; the lock
//! only says so.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use blis_sim::cluster::{FollowUps, SessionStates};
use blis_sim::outcome::Outcome;
use blis_sim::request::{Name, Request};

use super::conversation::{EndStatus, Ended};

pub(super) trait Sessions {
    /// The next request that waits for nothing.
    fn start(&mut self) -> Option<Request>;

    /// A request of `session` has ended: the one that follows. Requests of no session end too.
    fn ended(&mut self, session: Name, ended: Ended) -> Option<Request>;

    /// What became of the sessions that have begun.
    fn states(&self) -> SessionStates;
}

/// What comes by itself, and what follows from the ends of that.
pub(super) fn split<S>(sessions: S) -> (impl Iterator<Item = Request> + Send, Box<dyn FollowUps + Send>)
where
    S: Sessions + Send + 'static,
{
    let shared = Arc::new(Mutex::new(sessions));
    let answered = Box::new(Shared(Arc::clone(&shared)));
    (std::iter::from_fn(move || lock(&shared).start()), answered)
}

struct Shared<S>(Arc<Mutex<S>>);

fn lock<S>(shared: &Mutex<S>) -> MutexGuard<'_, S> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<S: Sessions> FollowUps for Shared<S> {
    fn next(&mut self, ended: &Outcome) -> Option<Request> {
        let status = if ended.completed() { EndStatus::Completed } else { EndStatus::Failed };
        let generated_tokens = ended.generated_tokens;
        lock(&self.0).ended(ended.tags.session, Ended { at: ended.ended_at, generated_tokens, status })
    }

    fn states(&self) -> SessionStates {
        lock(&self.0).states()
    }
}
