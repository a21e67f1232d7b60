//! What a policy is: a state, and a trait for each kind of decision.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::description::{Description, Setup};
use crate::rows::{Cluster, Constants, Event, Queued, Request, Running, Step};

/// A policy. Its fields are its state: what they serialise to is what is saved, restored and copied
/// when a simulation is forked, so everything a later answer depends on belongs there, and nothing into
/// statics.
pub trait Policy: Serialize + DeserializeOwned {
    /// What it says about itself. The same every time.
    fn describe() -> Description;

    /// A fresh one.
    ///
    /// # Errors
    /// Says why it cannot be used like that, for whoever set the parameters. The run ends with the text.
    fn new(setup: &Setup) -> Result<Self, String>;
}

/// Who may enter: asked once per arrival.
pub trait Admission: Policy {
    /// Whether `request` may enter.
    fn admit(&mut self, request: &Request, cluster: &Cluster<'_>) -> Verdict;
}

/// The answer of an admission policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Come in.
    Admit,
    /// Stay out, and why.
    Reject(String),
}

/// Where a request goes: asked once per admitted request.
pub trait Routing: Policy {
    /// The place of the chosen instance in `cluster.instances`, which is not empty.
    fn route(&mut self, request: &Request, cluster: &Cluster<'_>) -> usize;

    /// Pushes a score for each instance onto `scores`, higher is better. Asked just before `route`, and
    /// only if somebody wants to know why; the policy says that it has them with
    /// [`Description::scores`].
    fn scores(&self, request: &Request, cluster: &Cluster<'_>, scores: &mut Vec<f64>) {
        let _ = (request, cluster, scores);
    }
}

/// How urgent a request is on its instance: asked when it is handed over.
pub trait Priority: Policy {
    /// Higher is more urgent.
    fn priority(&mut self, request: &Request) -> i64;
}

/// The order of a wait queue.
pub trait Scheduling: Policy {
    /// The place of a request that joins the queue: the smallest is served first. Kept until it leaves
    /// the queue. Not-a-number is a fault.
    fn rank(&mut self, request: &Request, queued: &Queued) -> f64;
}

/// Who leaves the batch when KV blocks run out.
pub trait Preemption: Policy {
    /// The place of the victim in `batch`, which is in the order of admission and not empty. Asked
    /// again until the request at place `wanting` has room; choosing that one ends it.
    fn victim(&mut self, now_us: u64, wanting: usize, batch: &[Running]) -> usize;
}

/// How long things take, in microseconds.
pub trait Latency: Policy {
    /// One engine step, at least 1. Depends on nothing but `step`.
    fn step_time(&self, step: &Step) -> u64;

    /// From arrival to the wait queue.
    fn queueing_time(&self, input_tokens: u32) -> u64 {
        let _ = input_tokens;
        0
    }

    /// The rare terms. Asked once.
    fn constants(&self) -> Constants {
        Constants::default()
    }
}

/// For policies that asked for events ([`Description::events`]).
pub trait Lifecycle: Policy {
    /// Something happened. In the order in which things happened; before any decision after them.
    fn notice(&mut self, event: &Event);
}
