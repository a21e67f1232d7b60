//! Writes decisions and steps to the program's log while the simulation runs (`--log debug`).
//!
//! The simulation advances an instance only when it is needed, so steps may appear after later ones of another
//! instance. This log is for people; programs read a decision trace ([`decisions`](crate::decisions)).

use blis_sim::ids::{InstanceIndex, RequestId};
use blis_sim::instance::StepRecord;
use blis_sim::observer::{Interests, Observer, SimEvent};
use blis_sim::outcome::{
    AdapterEviction, Decision, GatewayDecision, LoadDecision, PreemptionDecision, SchedulingDecision, SchedulingResult,
};
use blis_sim::policy::AdmissionDecision;
use tracing::{Level, debug, trace};

/// An observer that writes to the program's log.
#[derive(Clone, Copy, Debug)]
pub struct EventLog(());

impl EventLog {
    /// `None` if the log level excludes all of it: without an observer, runs of equal steps are simulated at once.
    #[must_use]
    pub fn if_enabled() -> Option<Self> {
        tracing::enabled!(Level::DEBUG).then_some(Self(()))
    }
}

impl Observer for EventLog {
    #[inline]
    fn interests(&self) -> Interests {
        Interests::DECISIONS | Interests::SCHEDULING | Interests::STEPS
    }

    #[inline]
    fn record(&mut self, event: &SimEvent<'_>) {
        match *event {
            SimEvent::Decision(decision) => log_decision(decision),
            SimEvent::Step { instance, step } => log_step(instance, step),
            _ => {}
        }
    }
}

fn log_decision(decision: &Decision<'_>) {
    match decision {
        Decision::Admission { request, cluster, decision, .. } => {
            let (request, time_us) = (request.id.0, cluster.now.0);
            match decision {
                AdmissionDecision::Admit => debug!(request, time_us, "admitted"),
                AdmissionDecision::Reject(reason) => debug!(request, time_us, %reason, "rejected"),
            }
        }
        Decision::Routing { request, cluster, choice, scores, .. } => {
            let (request, time_us, instance) = (request.id.0, cluster.now.0, cluster.instances[choice.target].id.0);
            debug!(request, time_us, instance, reason = %choice.reason, ?scores, "routed");
        }
        Decision::Gateway(GatewayDecision { now, request, saturation, choice, .. }) => {
            debug!(request = request.0, time_us = now.0, saturation, ?choice, "gateway");
        }
        Decision::Disaggregation(choice) => {
            let (request, time_us, decode) = (choice.request.id.0, choice.now.0, choice.decode.0);
            let prefill = choice.prefill.map(|instance| instance.0);
            debug!(request, time_us, decode, ?prefill, disaggregate = choice.disaggregate, "prefill and decode");
        }
        Decision::Scheduling(decision) => log_scheduling(decision),
        Decision::Preemption(decision) => log_preemption(decision),
        Decision::Load(decision) => log_load(decision),
        Decision::AdapterEviction(eviction) => log_adapter_eviction(eviction),
    }
}

fn log_scheduling(decision: &SchedulingDecision) {
    let &SchedulingDecision { request, now, instance, running, waiting, free_kv_blocks, token_budget, .. } = decision;
    let (request, time_us, instance) = (request.0, now.0, instance.0);
    match decision.result {
        SchedulingResult::Scheduled { cached_tokens, num_tokens } => debug!(
            request,
            time_us, instance, running, waiting, free_kv_blocks, token_budget, cached_tokens, num_tokens, "scheduled"
        ),
        SchedulingResult::Waits(reason) => {
            debug!(request, time_us, instance, running, waiting, free_kv_blocks, token_budget, obstacle = ?reason, "waits");
        }
    }
}

fn log_preemption(decision: &PreemptionDecision) {
    let &PreemptionDecision {
        victim, requester, now, instance, needed_kv_blocks, free_kv_blocks, computed_tokens, ..
    } = decision;
    let (request, requester, time_us, instance) = (victim.0, requester.0, now.0, instance.0);
    debug!(request, time_us, instance, requester, needed_kv_blocks, free_kv_blocks, computed_tokens, "preempted");
}

fn log_load(decision: &LoadDecision) {
    let LoadDecision { instance, hit, loads } = decision;
    let (request, time_us, instance) = (hit.request, hit.now_us, instance.0);
    let (tokens, bytes, queued_bytes) = (hit.tokens, hit.bytes, hit.queued_bytes);
    debug!(request, time_us, instance, loads, tokens, bytes, queued_bytes, "load");
}

fn log_adapter_eviction(eviction: &AdapterEviction<'_>) {
    let &AdapterEviction { instance, now, request, adapter, evicted, candidates, .. } = eviction;
    let (request, time_us, instance, candidates) = (request.0, now.0, instance.0, candidates.len());
    debug!(request, time_us, instance, adapter = adapter.0, evicted = evicted.0, candidates, "adapter eviction");
}

/// Logs the sums of a step, and at the next level each request as (request, tokens, context before).
fn log_step(InstanceIndex(instance): InstanceIndex, step: &StepRecord) {
    let tokens: u64 = step.scheduled.iter().map(|&(_, tokens, _)| u64::from(tokens)).sum();
    let &StepRecord { now, end, running, waiting, free_blocks, .. } = step;
    let (time_us, end_us, free_kv_blocks) = (now.0, end.0, free_blocks);
    let (finished, preempted) = (step.finished.len(), step.preempted.len());
    debug!(time_us, end_us, instance, running, waiting, tokens, finished, preempted, free_kv_blocks, "step");
    // Fields are evaluated only if they are logged.
    let scheduled = || step.scheduled.iter().map(|&(id, tokens, context)| (id.0, tokens, context)).collect::<Vec<_>>();
    let numbers = |ids: &[RequestId]| ids.iter().map(|id| id.0).collect::<Vec<_>>();
    trace!(
        time_us,
        instance,
        scheduled = ?scheduled(),
        finished = ?numbers(&step.finished),
        preempted = ?numbers(&step.preempted),
        "requests of the step"
    );
}
