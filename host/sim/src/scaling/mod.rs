//! Autoscaling: how many replicas each group of instances has, which one goes first, and where one starts.
//!
//! ```text
//!  every scrape (15 s)         every sync (15 s)
//! instances, gateway ──► ScalingView ──► policy: a target for each group ──► ReplicaControl: windows, rates, min, max ──►
//! ```
//!
//! That is the loop of llm-d since August 2026: metrics of the endpoint picker and of vLLM → Prometheus → KEDA → HPA →
//! Deployment. A policy says how many replicas it would have now; [`ReplicaControl`] applies the stabilization windows and
//! rates of Kubernetes to every policy, so that none starts or stops replicas faster than a real service could.
//!
//! This module is pure: it has no clock, and neither starts nor stops an instance.

mod behaviour;
mod blis;
mod drain;
pub mod hpa;
mod placement;
mod schedule;
mod signals;
#[cfg(test)]
mod testing;
mod wva;

use std::fmt::Debug;

pub use behaviour::{Behaviour, Change, ReplicaControl, ReplicaLimits, ScalingRules, Select};
pub use blis::{BlisAnalyzer, BlisSettings};
pub use drain::{ByName, DrainGroup, DrainPolicy, Emptiest, EmptiestNode, Kubernetes, Newest, NodeId, Replica};
pub use placement::{BestFit, FirstFit, Node, PlacementPolicy, Spread, StartingReplica};
pub use schedule::Schedule;
pub use signals::{Hpa, SignalSet};
pub use wva::{WvaV1, WvaV1Settings, WvaV2, WvaV2Settings};

use crate::ids::InstanceIndex;
use crate::policy::{InstanceRole, Reads};
use crate::request::Name;
use crate::units::Micros;

/// Decides the number of replicas of each group.
pub trait ScalingPolicy: Debug + Send {
    /// What it reads of [`ReplicaView`]: `load` for the periodic columns, `in_flight`, `tokens`. Called once.
    fn reads(&self) -> Reads;

    /// Whether it reads [`GroupView::outcomes`]. Called once.
    fn reads_outcomes(&self) -> bool {
        false
    }

    /// The stabilization windows and rates that apply unless the settings have others.
    fn behaviour(&self) -> Behaviour {
        Behaviour::kubernetes()
    }

    /// Pushes for each group of the view, in their order, the number of replicas that it should have (loading ones
    /// included, draining ones not) onto `targets`, which is empty at the call; `None` if it cannot say, which changes
    /// nothing. Called once per sync.
    fn scale(&mut self, view: &ScalingView<'_>, targets: &mut Vec<Option<u32>>);

    /// A copy of the policy with the same state.
    fn fork(&self) -> Box<dyn ScalingPolicy>;
}

/// What a policy sees at a sync. Measured values are those of the last scrape.
#[derive(Clone, Copy, Debug)]
pub struct ScalingView<'a> {
    /// Time of the sync.
    pub now: Micros,
    /// Time of the last scrape, at most `now`.
    pub scraped_at: Micros,
    /// The groups, in the order of their declaration.
    pub groups: &'a [GroupView<'a>],
}

/// A group: replicas of one model with the same configuration.
#[derive(Clone, Copy, Debug)]
pub struct GroupView<'a> {
    /// The properties that do not change.
    pub facts: GroupFacts,
    /// Replicas by the last decision (`spec.replicas`): pending, loading and ready ones, without those that drain.
    pub replicas: u32,
    /// Replicas that do not serve yet, pending ones included: the time at which each is expected to be ready, in order of
    /// time; [`Micros::MAX`] while it has no GPU.
    pub loading: &'a [Micros],
    /// Replicas that drain: they finish their requests and get no others.
    pub draining: u32,
    /// The ready replicas at the last scrape, oldest first.
    pub ready: &'a [ReplicaView],
    /// The gateway's queue for the model of the group. Groups of the same model show the same queue, and if they have roles each
    /// the saturation of its own.
    pub gateway: GatewayView,
    /// Requests of the group that got tokens or ended in the window before the last scrape. A request that is prefilled elsewhere counts
    /// in both of its groups: with the time to its first token there, from its arrival there on where it is decoded, and its TPOT where
    /// it is decoded.
    pub outcomes: OutcomeWindow,
}

/// What is fixed about a group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GroupFacts {
    /// The model that it serves. Groups of one model and role (its variants) share its requests.
    pub model: Name,
    /// What its replicas do.
    pub role: InstanceRole,
    /// Limits of the number of replicas.
    pub limits: ReplicaLimits,
    /// GPUs of a replica.
    pub gpus: u32,
    /// Price of a GPU, dollars per hour; `None` without a price list.
    pub price: Option<f64>,
    /// KV cache of a replica, tokens.
    pub kv_tokens: u64,
    /// Largest batch of a replica, requests.
    pub max_num_seqs: u32,
    /// Largest step of a replica, tokens.
    pub max_num_batched_tokens: u32,
}

/// A ready replica at the last scrape.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ReplicaView {
    /// The instance. Its index belongs to no other replica, before or after.
    pub instance: InstanceIndex,
    /// Requests in its waiting queue.
    pub queue_depth: u32,
    /// Requests in its running batch.
    pub batch_size: u32,
    /// Share of its KV blocks in use, 0 to 1.
    pub kv_utilization: f64,
    /// Requests that were dispatched to it and have not ended.
    pub in_flight: u32,
    /// Prompt tokens that were not cached, of requests that were dispatched to it and have no token yet.
    pub in_flight_tokens: u64,
}

/// The gateway's queue at the last scrape; empty without flow control.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GatewayView {
    /// Requests in the queue.
    pub queued: u32,
    /// Prompt tokens of the queued requests.
    pub queued_tokens: u64,
    /// How long the oldest of them has waited.
    pub oldest_wait: Micros,
    /// The saturation by the policy of flow control: 0 empty, 1 full; `None` without flow control.
    pub saturation: Option<f64>,
}

/// Length of the window of [`OutcomeWindow`] (the guide of llm-d's SLO-aware scaler: P90 over 1 minute).
pub const OUTCOME_WINDOW: Micros = Micros(60_000_000);

/// Requests in the [`OUTCOME_WINDOW`] before the last scrape.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct OutcomeWindow {
    /// Requests that arrived at the service for the model of the group.
    pub arrived: u32,
    /// Requests with all of their output tokens.
    pub completed: u32,
    /// P90 of the TTFT of requests that got their first token; `None` without any.
    pub ttft_p90: Option<Micros>,
    /// P90 of the TPOT of completed requests with two output tokens or more; `None` without any.
    pub tpot_p90: Option<Micros>,
    /// Prompt tokens of the completed requests.
    pub input_tokens: u64,
    /// Prompt tokens of the completed requests that were cached.
    pub cached_tokens: u64,
    /// Output tokens of the completed requests.
    pub output_tokens: u64,
}

impl GroupView<'_> {
    /// Whether anything is queued or served: the trigger of KEDA by which a service at zero starts, and without which it
    /// goes to zero.
    #[must_use]
    pub fn is_active(&self) -> bool {
        let busy = |one: &ReplicaView| one.queue_depth > 0 || one.batch_size > 0 || one.in_flight > 0;
        self.gateway.queued > 0 || self.ready.iter().any(busy)
    }
}

impl Clone for Box<dyn ScalingPolicy> {
    fn clone(&self) -> Self {
        self.fork()
    }
}
