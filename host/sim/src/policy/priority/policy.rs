//! What a priority policy is.

use std::fmt::Debug;

use crate::policy::{Event, Events, RequestView};
use crate::units::Micros;

/// Sets the priority of a request on its instance.
pub trait PriorityPolicy: Debug + Send {
    /// Returns the priority: higher is served first. `request` is about to be dispatched to its instance at `now`. On
    /// instances, as in vLLM, lower is served first: [`crate::request::Request::priority`] is the negated result.
    fn priority(&mut self, request: &RequestView<'_>, now: Micros) -> i64;

    /// The events that it receives. Called once.
    fn events(&self) -> Events {
        Events::NONE
    }

    /// Receives an event of [`Self::events`].
    fn observe(&mut self, event: &Event) {
        let _ = event;
    }

    /// A copy of the policy with the same state.
    fn fork(&self) -> Box<dyn PriorityPolicy>;
}
