//! Flow control: the policies of the queue in front of routing (llm-d's flow control layer).
//!
//! ```text
//! enqueue ──► band (priority) ──► flow (tenant) ──┐          once per dispatch cycle:
//!             band            ──► flow            ├──► S = saturation; a ceiling for each band; from the top:
//!                                 flow            ┘    S ≥ ceiling: stop │ else fairness picks a flow, and its head goes
//! ```
//!
//! | kind | called | result |
//! |---|---|---|
//! | [`SaturationPolicy`] | once per cycle | how full the service is: 0 empty, 1 full |
//! | [`CeilingsPolicy`] | once per cycle | for each band, the saturation at which its requests wait |
//! | [`FairnessPolicy`] | once per dispatch | the flow of the band that is served |
//! | [`OrderingPolicy`] | once per request, when it is enqueued | its rank in its flow: the smallest goes first |
//! | [`EvictionPolicy`] | when a band has to wait | a request in flight that is ended to make room |
//!
//! The rules are those of llm-d's endpoint picker (llm-d-router ebab687, 2026-08-21), each with its source at the type.

mod by_role;
mod ceilings;
mod eviction;
mod fairness;
mod ordering;
mod saturation;

use std::fmt::Debug;

pub use by_role::SaturationByRole;
pub use ceilings::{PriorityHoldback, SoftReflective, StaticCeiling};
pub use eviction::LowestPriorityNewest;
pub use fairness::{GlobalStrict, LeastAttainedService, RoundRobinFlows, VirtualTokenCounter, WeightedFlows};
pub use ordering::{ArrivalOrder, EarliestDeadline, SloDeadline};
pub use saturation::{Concurrency, ConcurrencyMode, NeverSaturated, Utilization};

use super::{ClusterView, Event, Events, InstanceRole, Reads, RequestView};
use crate::ids::RequestId;
use crate::request::{Name, Request};
use crate::units::Micros;

/// Says how full the service is.
pub trait SaturationPolicy: Debug + Send {
    /// The signals that it reads. Called once.
    fn reads(&self) -> Reads;

    /// How full the service is: 0 if it is empty, 1 if it is full, more if it is overloaded. Not-a-number counts as 1.
    fn saturation(&mut self, cluster: &ClusterView<'_>) -> f64;

    /// How full the instances of `cluster` with this role are, for a scaler; `None` if this policy cannot say.
    fn saturation_of(&mut self, role: InstanceRole, cluster: &ClusterView<'_>) -> Option<f64> {
        let _ = role;
        Some(self.saturation(cluster))
    }

    /// The time until which, inclusive, its result stays that for `cluster` if no signal changes. A policy that cannot say
    /// is called at every tick.
    fn steady_until(&self, cluster: &ClusterView<'_>) -> Micros {
        cluster.now
    }

    /// The events that it receives. Called once.
    fn events(&self) -> Events {
        Events::NONE
    }

    /// Receives an event of [`Self::events`].
    fn observe(&mut self, event: &Event) {
        let _ = event;
    }

    /// A copy of the policy with the same state.
    fn fork(&self) -> Box<dyn SaturationPolicy>;
}

/// A band: all queued requests of one priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BandView {
    /// The priority of its requests; higher is served first, below 0 may be shed.
    pub priority: i32,
    /// Number of its requests in the queue.
    pub queued: u32,
    /// How long the oldest of them has waited in the queue, µs; 0 if there is none.
    pub oldest_wait: Micros,
}

/// Says up to which saturation the requests of each band are dispatched.
pub trait CeilingsPolicy: Debug + Send {
    /// Pushes a ceiling for each of `bands`, highest priority first, onto `ceilings` (empty at the call). A band waits
    /// while the saturation is at or above its ceiling, and so do all bands below it. `now` is the time of the cycle.
    fn ceilings(&mut self, now: Micros, saturation: f64, bands: &[BandView], ceilings: &mut Vec<f64>);

    /// The events that it receives. Called once.
    fn events(&self) -> Events {
        Events::NONE
    }

    /// Receives an event of [`Self::events`].
    fn observe(&mut self, event: &Event) {
        let _ = event;
    }

    /// Number of further calls at this saturation that would have the result of the last call. A policy that cannot say is
    /// called at every tick.
    fn repeats(&self, _saturation: f64) -> u64 {
        0
    }

    /// So many further calls at this saturation were left out, at most [`Self::repeats`].
    fn repeated(&mut self, _saturation: f64, _calls: u64) {}

    /// A copy of the policy with the same state.
    fn fork(&self) -> Box<dyn CeilingsPolicy>;
}

/// A flow: the queued requests of one tenant in one band, with the request at its head. Only flows with requests in the queue
/// are shown.
///
/// The fields lie in memory as those of the rows that plugins get, so that all flows of a decision are copied at once.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C)]
pub struct FlowView {
    /// [`ServedTokens::decayed`] of the tenant.
    pub served_decayed: f64,
    /// The rank that the ordering policy gave the head; the smallest goes first.
    pub head_rank: f64,
    /// [`ServedTokens::as_of`] of the tenant.
    pub served_as_of: Micros,
    /// The number of the head's turn among all requests that were ever enqueued: the order among equal ranks.
    pub head_turn: u64,
    /// Time since the head was enqueued, µs.
    pub head_wait: Micros,
    /// Time at which the client of the head times out (absolute); [`Self::NO_DEADLINE`] if never.
    pub head_deadline: Micros,
    /// Requests of the flow that were dispatched so far.
    pub dispatched: u64,
    /// [`ServedTokens::input`] of the tenant.
    pub served_input: u64,
    /// [`ServedTokens::output`] of the tenant.
    pub served_output: u64,
    /// The tenant, [`Name::NONE`] for requests without one.
    pub tenant: Name,
    /// The position of the tenant in the order of tenants' names.
    pub tenant_order: u32,
    /// Number of its requests in the queue.
    pub queued: u32,
    /// Requests of the tenant, of any band, that were dispatched and have not ended.
    pub in_flight: u32,
    /// [`crate::request::Request::id`] of the head.
    pub head_id: RequestId,
    /// Length of the head's prompt, tokens.
    pub head_input_tokens: u32,
    /// The client's limit on output tokens of the head; [`u32::MAX`] if it set none.
    pub head_max_output_tokens: u32,
    /// The service class of the head.
    pub head_slo_class: Name,
}

impl FlowView {
    /// Stands for the deadline of a head that has none.
    pub const NO_DEADLINE: Micros = Micros(u64::MAX);

    /// A flow of which only the head is waiting, that was enqueued just now.
    #[must_use]
    pub fn of_head(head: &Request) -> Self {
        Self {
            served_decayed: 0.0,
            head_rank: 0.0,
            served_as_of: Micros::ZERO,
            head_turn: 0,
            head_wait: Micros::ZERO,
            head_deadline: head.deadline.unwrap_or(Self::NO_DEADLINE),
            dispatched: 0,
            served_input: 0,
            served_output: 0,
            tenant: head.tags.tenant,
            tenant_order: 0,
            queued: 1,
            in_flight: 0,
            head_id: head.id,
            head_input_tokens: head.input_tokens,
            head_max_output_tokens: head.max_output_tokens.unwrap_or(u32::MAX),
            head_slo_class: head.tags.slo_class,
        }
    }

    /// What the service has worked for the tenant.
    #[must_use]
    pub fn served(&self) -> ServedTokens {
        let Self { served_input: input, served_output: output, served_decayed: decayed, served_as_of: as_of, .. } =
            *self;
        ServedTokens { input, output, decayed, as_of }
    }

    /// Replaces what the service has worked for the tenant.
    pub fn set_served(&mut self, served: ServedTokens) {
        (self.served_input, self.served_output) = (served.input, served.output);
        (self.served_decayed, self.served_as_of) = (served.decayed, served.as_of);
    }
}

/// Tokens that the service has worked for a tenant.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ServedTokens {
    /// Prompt tokens of dispatched requests.
    pub input: u64,
    /// Output tokens of requests that ended.
    pub output: u64,
    /// Prompt tokens plus twice the output tokens, halved every [`ATTAINED_HALF_LIFE`].
    pub decayed: f64,
    /// Time for which `decayed` holds.
    pub as_of: Micros,
}

/// Time after which service counts half (llm-d's program-aware fairness).
pub const ATTAINED_HALF_LIFE: Micros = Micros(60_000_000);

impl ServedTokens {
    /// Weight of an output token in [`Self::decayed`] (llm-d's program-aware fairness).
    const OUTPUT_WEIGHT: f64 = 2.0;

    /// The decayed tokens at `now`.
    #[must_use]
    pub fn decayed_at(&self, now: Micros) -> f64 {
        let age = now.saturating_sub(self.as_of).0 as f64 / ATTAINED_HALF_LIFE.0 as f64;
        self.decayed * libm::exp2(-age)
    }

    /// Adds tokens that are served at `now`.
    pub(crate) fn add(&mut self, now: Micros, input: u64, output: u64) {
        let more = input as f64 + Self::OUTPUT_WEIGHT * output as f64;
        self.decayed = self.decayed_at(now) + more;
        self.as_of = self.as_of.max(now);
        self.input += input;
        self.output += output;
    }
}

/// Chooses the flow of a band that is served next.
pub trait FairnessPolicy: Debug + Send {
    /// Whether it reads [`FlowView::in_flight`] or the output tokens in it. Called once.
    fn reads_ends(&self) -> bool {
        false
    }

    /// The index of a flow of `flows`, of which there is at least one; they are in the order of tenants' names.
    /// `saturation` is that of this cycle, below the ceiling of the `band`.
    fn pick(&mut self, now: Micros, saturation: f64, band: BandView, flows: &[FlowView]) -> usize;

    /// The events that it receives. Called once.
    fn events(&self) -> Events {
        Events::NONE
    }

    /// Receives an event of [`Self::events`].
    fn observe(&mut self, event: &Event) {
        let _ = event;
    }

    /// A copy of the policy with the same state.
    fn fork(&self) -> Box<dyn FairnessPolicy>;
}

/// Orders the requests of a flow.
pub trait OrderingPolicy: Debug + Send {
    /// The rank of `request`, which is enqueued at `now` and expires at `expires`: the smallest goes first, and among
    /// equals the one that was enqueued first. Not-a-number goes last.
    fn rank(&mut self, request: &RequestView<'_>, now: Micros, expires: Micros) -> f64;

    /// The events that it receives. Called once.
    fn events(&self) -> Events {
        Events::NONE
    }

    /// Receives an event of [`Self::events`].
    fn observe(&mut self, event: &Event) {
        let _ = event;
    }

    /// A copy of the policy with the same state.
    fn fork(&self) -> Box<dyn OrderingPolicy>;
}

/// A request that was dispatched, for eviction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InFlightView {
    /// [`crate::request::Request::id`].
    pub id: RequestId,
    /// The priority of its class: below 0 may be shed.
    pub priority: i32,
    /// When it was dispatched (absolute).
    pub dispatched_at: Micros,
    /// Length of its prompt, tokens.
    pub input_tokens: u32,
    /// The tenant.
    pub tenant: Name,
}

/// Chooses a request in flight that is ended, so that a waiting one of higher priority can be dispatched.
pub trait EvictionPolicy: Debug + Send {
    /// The index of a request of `in_flight`, which may all be shed and are of lower priority than the waiting
    /// `demand`; `None` to evict none.
    fn victim(&mut self, now: Micros, demand: BandView, in_flight: &[InFlightView]) -> Option<usize>;

    /// The events that it receives. Called once.
    fn events(&self) -> Events {
        Events::NONE
    }

    /// Receives an event of [`Self::events`].
    fn observe(&mut self, event: &Event) {
        let _ = event;
    }

    /// A copy of the policy with the same state.
    fn fork(&self) -> Box<dyn EvictionPolicy>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_counts_half_after_a_minute() {
        let mut served = ServedTokens::default();
        served.add(Micros::ZERO, 100, 50);
        assert_eq!(served.decayed_at(Micros(60_000_000)), 100.0);
        served.add(Micros(60_000_000), 10, 0);
        assert_eq!(served.decayed_at(Micros(180_000_000)), 27.5);
        assert_eq!((served.input, served.output), (110, 50));
    }
}
