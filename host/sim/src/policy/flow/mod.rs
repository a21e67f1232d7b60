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

pub use blis_abi::{Band, Flow, InFlight};

use blis_abi::{NONE_U32, NONE_U64, Row as _};

use super::{ClusterView, Event, Events, InstanceRole, Reads, RequestView};
use crate::request::Request;
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

/// Says up to which saturation the requests of each band are dispatched.
pub trait CeilingsPolicy: Debug + Send {
    /// Pushes a ceiling for each of `bands`, highest priority first, onto `ceilings` (empty at the call). A band waits
    /// while the saturation is at or above its ceiling, and so do all bands below it. `now` is the time of the cycle.
    fn ceilings(&mut self, now: Micros, saturation: f64, bands: &[Band], ceilings: &mut Vec<f64>);

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

/// The flow of `head`, of which only that is waiting, and was enqueued just now.
#[must_use]
pub fn flow_of(head: &Request) -> Flow {
    Flow {
        head_deadline_us: head.deadline.map_or(NONE_U64, |at| at.0),
        tenant: head.tags.tenant.0,
        queued: 1,
        head_id: head.id.0,
        head_input_tokens: head.input_tokens,
        head_max_output_tokens: head.max_output_tokens.unwrap_or(NONE_U32),
        head_slo_class: head.tags.slo_class.0,
        ..Flow::ZERO
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

impl From<&Flow> for ServedTokens {
    /// What the service has worked for the tenant of a flow.
    fn from(flow: &Flow) -> Self {
        Self {
            input: flow.served_input,
            output: flow.served_output,
            decayed: flow.served_decayed,
            as_of: Micros(flow.served_as_of_us),
        }
    }
}

impl ServedTokens {
    /// Writes them into the flow of the tenant.
    pub fn write_to(self, flow: &mut Flow) {
        (flow.served_input, flow.served_output) = (self.input, self.output);
        (flow.served_decayed, flow.served_as_of_us) = (self.decayed, self.as_of.0);
    }

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
    /// Whether it reads [`Flow::in_flight`] or the output tokens in it. Called once.
    fn reads_ends(&self) -> bool {
        false
    }

    /// The index of a flow of `flows`, of which there is at least one; they are in the order of tenants' names.
    /// `saturation` is that of this cycle, below the ceiling of the `band`.
    fn pick(&mut self, now: Micros, saturation: f64, band: Band, flows: &[Flow]) -> usize;

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

/// Chooses a request in flight that is ended, so that a waiting one of higher priority can be dispatched.
pub trait EvictionPolicy: Debug + Send {
    /// The index of a request of `in_flight`, which may all be shed and are of lower priority than the waiting
    /// `demand`; `None` to evict none.
    fn victim(&mut self, now: Micros, demand: Band, in_flight: &[InFlight]) -> Option<usize>;

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
