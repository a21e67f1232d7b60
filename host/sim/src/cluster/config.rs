//! What stands in front of the instances: its settings and its policies, and how a simulation ends early.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use thiserror::Error;

use crate::instance::NoProgress;
use crate::policy::{AdmissionPolicy, Classes, Event, Events, PriorityPolicy, RequestView, RoutingPolicy, Ties};
use crate::request::{Name, Request};
use crate::semantics::Semantics;
use crate::units::Micros;

/// Ends a simulation early, from inside a policy that cannot continue.
#[derive(Clone, Debug, Default)]
pub struct Abort(Arc<AtomicBool>);

impl Abort {
    /// Ends the simulation before its next decision, with [`Halt::Aborted`].
    pub fn set(&self) {
        self.0.store(true, Relaxed);
    }

    /// Whether the simulation is to end.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.0.load(Relaxed)
    }

    pub(super) fn check(&self) -> Result<(), Halt> {
        if self.is_set() { Err(Halt::Aborted) } else { Ok(()) }
    }
}

/// Why a simulation ended without a result.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Halt {
    /// An instance would execute for ever without completing a request.
    #[error(transparent)]
    NoProgress(#[from] NoProgress),
    /// A policy ended the simulation ([`Abort`]) and keeps the reason.
    #[error("a policy ended the simulation")]
    Aborted,
    /// Flow control dispatches nothing, although the service is idle and nothing else will happen.
    #[error("flow control keeps {waiting} requests in the gateway although the service is idle")]
    NothingDispatched {
        /// Requests in the queue.
        waiting: usize,
    },
}

/// The configuration of everything in front of the instances.
#[derive(Clone, Debug)]
pub struct ClusterConfig {
    /// Time from arrival to the admission decision.
    pub admission_latency: Micros,
    /// Time from the admission decision to the routing decision.
    pub routing_latency: Micros,
    /// Refresh interval of the periodic signals; 0 for always fresh.
    pub snapshot_refresh_interval: Micros,
    /// Refresh interval of the signal of prefix-cache contents; 0 for always fresh.
    pub cache_signal_delay: Micros,
    /// Which instance is chosen among equally good ones.
    pub ties: Ties,
    /// Priorities of the SLO classes.
    pub classes: Classes,
    /// Names of the model that is served. A request that names another model is rejected; one that names none is
    /// served.
    pub serves: Vec<Name>,
    /// Size of a KV block on every instance, tokens.
    pub block_size: u32,
    /// Behaviour where vLLM and BLIS differ.
    pub semantics: Semantics,
    /// End of the simulation, inclusive.
    pub horizon: Micros,
    /// Lets a policy end the simulation before the horizon.
    pub abort: Abort,
}

/// The policies in front of the instances.
#[derive(Debug)]
pub struct Policies {
    /// Decides whether a request is admitted.
    pub admission: Box<dyn AdmissionPolicy>,
    /// Chooses the instance of a request.
    pub routing: Box<dyn RoutingPolicy>,
    /// Sets the priority of a request on its instance.
    pub priority: Box<dyn PriorityPolicy>,
}

impl Policies {
    pub(super) fn events(&self) -> Events {
        self.admission.events().and(self.routing.events()).and(self.priority.events())
    }

    /// Delivers an event to the policies that receive its kind.
    pub(super) fn observe(&mut self, event: &Event) {
        if self.admission.events().include(event.kind) {
            self.admission.observe(event);
        }
        if self.routing.events().include(event.kind) {
            self.routing.observe(event);
        }
        if self.priority.events().include(event.kind) {
            self.priority.observe(event);
        }
    }
}

impl Clone for Policies {
    fn clone(&self) -> Self {
        Self { admission: self.admission.fork(), routing: self.routing.fork(), priority: self.priority.fork() }
    }
}

impl ClusterConfig {
    pub(super) fn serves(&self, model: Name) -> bool {
        model == Name::NONE || self.serves.contains(&model)
    }

    pub(super) fn view<'a>(&self, request: &'a Request) -> RequestView<'a> {
        let class = request.tags.slo_class;
        RequestView::new(request, self.classes.priority(class), self.block_size)
            .with_targets(self.classes.targets(class))
    }
}
