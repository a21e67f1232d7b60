//! The two sides of a closed-loop workload: requests that arrive by themselves, and those that follow the end of
//! another.
//!
//! Both sides change the same state, so they share it. They run alternately in one thread; the lock satisfies the
//! compiler.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use blis_sim::cluster::{FollowUps, SessionStates};
use blis_sim::outcome::Outcome;
use blis_sim::request::{Name, Request};

use super::conversation::{EndStatus, RequestEnd};

pub(super) trait SessionSource {
    /// The next request that does not wait for another one.
    fn start(&mut self) -> Option<Request>;

    /// A request of `session`, if any, has ended: the request that follows it.
    fn ended(&mut self, session: Name, ended: RequestEnd) -> Option<Request>;

    /// Numbers of begun sessions by state.
    fn states(&self) -> SessionStates;
}

/// Divides `sessions` into the requests that arrive by themselves, and those that follow the ends of others.
pub(super) fn split<S>(sessions: S) -> (impl Iterator<Item = Request> + Send, Box<dyn FollowUps + Send>)
where
    S: SessionSource + Send + 'static,
{
    let shared = Arc::new(Mutex::new(sessions));
    let follow_ups = Box::new(SharedSessions(Arc::clone(&shared)));
    (std::iter::from_fn(move || lock(&shared).start()), follow_ups)
}

struct SharedSessions<S>(Arc<Mutex<S>>);

fn lock<S>(shared: &Mutex<S>) -> MutexGuard<'_, S> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<S: SessionSource> FollowUps for SharedSessions<S> {
    fn next(&mut self, ended: &Outcome) -> Option<Request> {
        let status = if ended.completed() { EndStatus::Completed } else { EndStatus::Failed };
        let generated_tokens = ended.generated_tokens;
        lock(&self.0).ended(ended.tags.session, RequestEnd { at: ended.ended_at, generated_tokens, status })
    }

    fn states(&self) -> SessionStates {
        lock(&self.0).states()
    }
}
