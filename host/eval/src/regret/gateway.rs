//! Alternatives to the decisions of flow control.

use blis_sim::cluster::{AnyTimeline, ForcedDecision};
use blis_sim::ids::RequestId;
use blis_sim::outcome::GatewayChoice;
use blis_sim::policy::flow::{Flow, InFlight};
use blis_sim::request::{Name, Request};

use super::decision_kind::DecisionKind;

/// What flow control could choose from.
#[derive(Default)]
pub(super) struct GatewayOptions {
    /// The band of a dispatch.
    band: i32,
    /// Its flows, each with the request at its head.
    flows: Vec<Flow>,
    /// The requests that could be evicted, in the order of their dispatch.
    candidates: Vec<InFlight>,
}

impl From<GatewayChoice<'_>> for GatewayOptions {
    fn from(choice: GatewayChoice<'_>) -> Self {
        match choice {
            GatewayChoice::Dispatched { band, flows, .. } => {
                Self { band, flows: flows.to_vec(), candidates: Vec::new() }
            }
            GatewayChoice::Evicted { candidates, .. } => Self { candidates: candidates.to_vec(), ..Self::default() },
            _ => Self::default(),
        }
    }
}

/// At most `most` alternatives to the choice of request `chosen`, from `options`. `after` is the simulation after the
/// choice.
///
/// | kind | alternatives, in this order |
/// |---|---|
/// | fairness | the heads of the other flows, the one that has waited longest first |
/// | ordering | of the other requests of the flow: the next, that with the shortest prompt, that with the earliest deadline, the last; then the others in their order |
/// | eviction | none; of the other candidates: the newest, the oldest, that with the longest prompt; then the others, the newest first |
pub(super) fn alternatives(
    kind: DecisionKind,
    chosen: RequestId,
    options: &GatewayOptions,
    after: &dyn AnyTimeline,
    most: usize,
) -> Vec<ForcedDecision> {
    match kind {
        DecisionKind::Fairness => other_heads(chosen, &options.flows, most),
        DecisionKind::Ordering => {
            let flow = options.flows.iter().find(|flow| flow.head_id == chosen.0);
            flow.map_or(Vec::new(), |flow| others_of_flow(&after.flow(options.band, Name(flow.tenant)), most))
        }
        DecisionKind::Eviction => other_victims(chosen, &options.candidates, most),
        DecisionKind::Admission
        | DecisionKind::Routing
        | DecisionKind::Scheduling
        | DecisionKind::Scaling
        | DecisionKind::Load
        | DecisionKind::AdapterEviction
        | DecisionKind::Disaggregation => Vec::new(),
    }
}

fn other_heads(chosen: RequestId, flows: &[Flow], most: usize) -> Vec<ForcedDecision> {
    let mut others: Vec<&Flow> = flows.iter().filter(|flow| flow.head_id != chosen.0).collect();
    // Stable: among equal waits, the order of tenants.
    others.sort_by_key(|flow| std::cmp::Reverse(flow.head_wait_us));
    others.into_iter().take(most).map(|flow| ForcedDecision::Dispatch(RequestId(flow.head_id))).collect()
}

fn others_of_flow(waiting: &[&Request], most: usize) -> Vec<ForcedDecision> {
    let shortest = waiting.iter().min_by_key(|request| request.input_tokens);
    let earliest = waiting.iter().filter(|request| request.deadline.is_some()).min_by_key(|request| request.deadline);
    let ordered = waiting.first().into_iter().chain(shortest).chain(earliest).chain(waiting.last()).chain(waiting);
    distinct(ordered.map(|request| request.id), most).into_iter().map(ForcedDecision::Dispatch).collect()
}

fn other_victims(chosen: RequestId, candidates: &[InFlight], most: usize) -> Vec<ForcedDecision> {
    let others: Vec<&InFlight> = candidates.iter().filter(|other| other.id != chosen.0).collect();
    let longest = others.iter().max_by_key(|other| other.input_tokens);
    let ordered = others.last().into_iter().chain(others.first()).chain(longest).chain(others.iter().rev());
    let victims = distinct(ordered.map(|other| RequestId(other.id)), most.saturating_sub(1));
    let none = ForcedDecision::Evict(None);
    [none].into_iter().chain(victims.into_iter().map(|id| ForcedDecision::Evict(Some(id)))).collect()
}

/// The first `most` different ones.
fn distinct(all: impl Iterator<Item = RequestId>, most: usize) -> Vec<RequestId> {
    let mut found = Vec::new();
    for one in all {
        if found.len() >= most {
            break;
        }
        if !found.contains(&one) {
            found.push(one);
        }
    }
    found
}
