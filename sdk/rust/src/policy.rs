//! The traits of policies: one for the state, and one for each kind of decision.

#[rustfmt::skip]
mod kinds;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::description::{Description, Setup};
use crate::rows::{Event, Signals};

pub use kinds::*;

/// A policy. Its fields are its state: their serialised form is saved, restored and copied when a simulation forks. So
/// every value that later decisions depend on must be a field, and no state may be in statics.
pub trait Policy: Serialize + DeserializeOwned {
    /// What it reads about each instance: a struct that [`crate::signals!`] declares, or `()` for nothing.
    type Signals: Signals;

    /// The description of the policy, which must be the same at every call.
    fn describe() -> Description;

    /// Creates the policy with its initial state.
    ///
    /// # Errors
    /// If the policy cannot be used with this setup. The run ends with the text, which is written for the user who set
    /// the parameters.
    fn new(setup: &Setup) -> Result<Self, String>;
}

/// The decision of an admission policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdmissionDecision {
    /// The request is admitted.
    Admit,
    /// The request is rejected; the text is the reason.
    Reject(String),
}

/// Events for policies that subscribe to them ([`Description::events`]).
pub trait Lifecycle: Policy {
    /// Delivers an event, in simulated order and before any later decision.
    fn observe(&mut self, event: &Event);
}
