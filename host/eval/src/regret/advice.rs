//! What another policy would have decided: it sees the decisions of the actual run as they come, and states its own.

use std::sync::Arc;

use blis_sim::cluster::{AnyTimeline, DecisionEvent, ForcedDecision, Halt, RecordedDecision, RecordedDecisions};
use blis_sim::cost::Cost;
use blis_sim::ids::RequestId;
use blis_sim::units::Micros;

use super::branches::{ObservedDecision, state};
use super::decision_kind::DecisionKind;
use super::is_made_next;
use super::survey::{Advice, DecisionSample};

/// Adds to each of `samples` about admission and routing what the policy of `timeline` would have decided. `timeline` is a simulation
/// from the start, in which all other kinds are decided by the policies of the actual run; every decision in front of
/// the instances is forced to the `actual` one, so that the policy learns of what happened and can keep its state.
///
/// # Errors
/// If a policy fails.
pub fn add_advice(
    mut timeline: Box<dyn AnyTimeline>,
    samples: &mut [DecisionSample],
    actual: &Arc<RecordedDecisions>,
) -> Result<(), Halt> {
    let advised = |kind| matches!(kind, DecisionKind::Admission | DecisionKind::Routing);
    let mut samples = samples.iter_mut().filter(|sample| advised(sample.kind)).peekable();
    while samples.peek().is_some() && timeline.next_decision(&mut ())? {
        while let Some(sample) = samples.peek()
            && is_made_next(&mut *timeline, sample)?
        {
            if let Some(sample) = samples.next() {
                sample.advice = advice(timeline.fork(), sample)?.map(Arc::new);
            }
        }
        let forced = match timeline.pending().map(|pending| pending.event) {
            Some(DecisionEvent::Admission(request)) => admission(request.id, actual),
            Some(DecisionEvent::Routing(request)) => routing(request.id, actual),
            Some(DecisionEvent::Tick | DecisionEvent::Scaling) | None => None,
        };
        if let Some((id, decision)) = forced {
            timeline.force(id, decision);
        }
        timeline.decide(&mut ())?;
    }
    Ok(())
}

fn admission(id: RequestId, actual: &RecordedDecisions) -> Option<(RequestId, ForcedDecision)> {
    let admitted = !matches!(actual.get(&id)?, RecordedDecision::Rejected);
    Some((id, ForcedDecision::Admit(admitted)))
}

fn routing(id: RequestId, actual: &RecordedDecisions) -> Option<(RequestId, ForcedDecision)> {
    match actual.get(&id)? {
        RecordedDecision::Routed(instance) => Some((id, ForcedDecision::Route(*instance))),
        RecordedDecision::Rejected
        | RecordedDecision::Admitted
        | RecordedDecision::Split { .. }
        | RecordedDecision::Encoded { .. } => None,
    }
}

/// The decision that the policy of `timeline` makes next, and the state before it.
fn advice(mut timeline: Box<dyn AnyTimeline>, sample: &DecisionSample) -> Result<Option<Advice>, Halt> {
    let Some(at) = timeline.pending().map(|pending| pending.at) else { return Ok(None) };
    let Some(request) = timeline.request(sample.request).cloned() else { return Ok(None) };
    let mut ended = Cost::new(at, at.saturating_add(Micros(1)), request.id);
    timeline.catch_up(at, &mut ended)?;
    let state = state(&*timeline, &request);
    let mut observed = ObservedDecision::new(sample.kind, request.id);
    timeline.decide(&mut observed)?;
    Ok(observed.decision.map(|decision| Advice { decision, state }))
}
