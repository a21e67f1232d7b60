//! The parts of the simulated end-to-end latency: what the host adds before, between and after the steps.
//!
//! ```text
//! arrival ─ arrival ─► waiting queue ─ queue ─► running batch ─ steps ─► last token ─ delivery ─► client
//!                                                  │    ▲
//!                                                  └────┘ preemption: waiting to be scheduled again
//! ```

use std::sync::Arc;

use blis_config::{Deployment, LatencyKind};
use blis_sim::instance::{Fast, StepRecord, run_alone};
use blis_sim::latency::{LatencyModel, PhysicsBeta};
use blis_sim::observer::{Interests, Observer, SimEvent};
use blis_sim::outcome::{Decision, Outcome, SchedulingDecision, SchedulingResult};
use blis_sim::units::Micros;
use serde::Serialize;

use super::replay::{Predicted, all_served, failed, instance, requests};
use super::runs::{FitError, MeasuredRun};

/// Parts of the simulated end-to-end latency. All but `scheduling` add up to it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LatencyBreakdown {
    /// Before the waiting queue: HTTP, tokenisation (`arrival_us` and `input_token_us` of the coefficients).
    pub arrival: LatencyPart,
    /// In the waiting queue until first scheduled.
    pub queue: LatencyPart,
    /// In the waiting queue again, after preemptions; the recomputation is a part of `steps`.
    pub preemption: LatencyPart,
    /// In the running batch.
    pub steps: LatencyPart,
    /// The part of `steps` in which the host plans and the GPU waits (`step_us` and `request_us` of the coefficients).
    pub scheduling: LatencyPart,
    /// From the end of the first token's step to the client (`first_token_us` of the coefficients).
    pub first_token: LatencyPart,
    /// Host time per output token and after the last one; 0 in the model `physics`.
    pub output_tokens: LatencyPart,
    /// Transfer of KV blocks between instances: 0, because prompts are computed where they are decoded.
    pub kv_transfer: LatencyPart,
}

/// A part of the end-to-end latency.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct LatencyPart {
    /// Mean over all requests.
    pub mean_ms: f64,
    /// Share of the mean end-to-end latency. Unit: share.
    pub share: f64,
}

/// The simulated latency of one request in parts, µs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RequestParts {
    arrival_us: f64,
    queue_us: f64,
    preemption_us: f64,
    scheduling_us: f64,
    first_token_us: f64,
    output_tokens_us: f64,
    e2e_us: f64,
    /// Number of preemptions.
    pub preemptions: u32,
}

impl LatencyBreakdown {
    /// The means of `parts`.
    #[must_use]
    pub fn new(parts: &[RequestParts]) -> Self {
        let count = parts.len().max(1) as f64;
        let mean = |of: fn(&RequestParts) -> f64| parts.iter().map(of).sum::<f64>() / count;
        let e2e_us = mean(|parts| parts.e2e_us);
        let part = |us: f64| LatencyPart { mean_ms: us / 1e3, share: if e2e_us > 0.0 { us / e2e_us } else { 0.0 } };
        let [arrival, queue, preemption, first_token, output_tokens] = [
            mean(|parts| parts.arrival_us),
            mean(|parts| parts.queue_us),
            mean(|parts| parts.preemption_us),
            mean(|parts| parts.first_token_us),
            mean(|parts| parts.output_tokens_us),
        ];
        Self {
            arrival: part(arrival),
            queue: part(queue),
            preemption: part(preemption),
            steps: part(e2e_us - arrival - queue - preemption - first_token - output_tokens),
            scheduling: part(mean(|parts| parts.scheduling_us)),
            first_token: part(first_token),
            output_tokens: part(output_tokens),
            kv_transfer: LatencyPart::default(),
        }
    }
}

/// Simulates `run` on `deployment` as [`super::replay::replay`] does, with the parts of each latency.
///
/// # Errors
/// If a request cannot be served.
pub fn replay_parts(
    run: &MeasuredRun,
    deployment: &Deployment,
) -> Result<(Vec<Predicted>, Vec<RequestParts>), FitError> {
    let latency = &deployment.latency;
    let mut log = PartsLog {
        latency: Arc::clone(latency),
        host: HostCost::new(deployment),
        waits_count: !run.parity,
        parts: vec![RequestParts::default(); run.requests.len()],
        first_scheduled: vec![None; run.requests.len()],
        preempted: vec![None; run.requests.len()],
        ends: vec![None; run.requests.len()],
    };
    let instance = Fast::new(instance(run, deployment, latency)).recording();
    run_alone(instance, requests(run), Micros::MAX, &mut log).map_err(|stuck| failed(run, &stuck))?;
    Ok((all_served(run, log.ends)?, log.parts))
}

/// Host time in a step, µs.
#[derive(Clone, Copy, Default)]
struct HostCost {
    step_us: f64,
    /// Per request in the step.
    request_us: f64,
}

impl HostCost {
    /// The coefficients of `physics`; the other models have no such terms.
    fn new(deployment: &Deployment) -> Self {
        match <[f64; 10]>::try_from(deployment.beta.as_slice()) {
            Ok(beta) if deployment.latency_kind == LatencyKind::Physics => {
                let PhysicsBeta { step_us, request_us, .. } = PhysicsBeta::from(beta);
                Self { step_us, request_us }
            }
            _ => Self::default(),
        }
    }
}

/// Collects the parts of the latencies, by the number of the request.
struct PartsLog {
    latency: Arc<dyn LatencyModel>,
    host: HostCost,
    /// Whether E2E has the waits after preemptions; BLIS leaves them out.
    waits_count: bool,
    parts: Vec<RequestParts>,
    first_scheduled: Vec<Option<Micros>>,
    /// Time of the last preemption, until the request is scheduled again.
    preempted: Vec<Option<Micros>>,
    ends: Vec<Option<Predicted>>,
}

impl Observer for PartsLog {
    fn interests(&self) -> Interests {
        Interests::OUTCOMES.union(Interests::SCHEDULING).union(Interests::STEPS)
    }

    fn record(&mut self, event: &SimEvent<'_>) {
        match event {
            SimEvent::Decision(Decision::Scheduling(decision)) => self.schedule(decision),
            SimEvent::Decision(Decision::Preemption(decision)) => {
                let victim = decision.victim.index();
                self.preempted[victim] = Some(decision.now);
                self.parts[victim].preemptions += 1;
            }
            SimEvent::Step { step, .. } => self.step(step),
            SimEvent::Outcome(outcome) => self.end(outcome),
            _ => {}
        }
    }
}

impl PartsLog {
    fn schedule(&mut self, decision: &SchedulingDecision) {
        if !matches!(decision.result, SchedulingResult::Scheduled { .. }) {
            return;
        }
        let number = decision.request.index();
        self.first_scheduled[number].get_or_insert(decision.now);
        if let Some(since) = self.preempted[number].take() {
            self.parts[number].preemption_us += decision.now.saturating_sub(since).0 as f64;
        }
    }

    fn step(&mut self, step: &StepRecord) {
        let us = self.host.step_us + self.host.request_us * step.scheduled.len() as f64;
        for &(request, _, _) in &step.scheduled {
            self.parts[request.index()].scheduling_us += us;
        }
    }

    fn end(&mut self, outcome: &Outcome) {
        let number = outcome.id.index();
        let before_queue = self.latency.queueing_time(outcome.input_tokens);
        self.ends[number] = Predicted::from_outcome(outcome, before_queue);
        let Some((e2e, scheduled)) = outcome.e2e.zip(self.first_scheduled[number]) else { return };
        let tokens = f64::from(outcome.generated_tokens);
        let after_last = if outcome.output_tokens > 0 { self.latency.post_decode_time() } else { Micros::ZERO };
        let parts = &mut self.parts[number];
        parts.e2e_us = e2e.0 as f64;
        parts.arrival_us = before_queue.0 as f64;
        parts.queue_us = scheduled.saturating_sub(outcome.arrival).saturating_sub(before_queue).0 as f64;
        parts.first_token_us = self.latency.first_token_time().0 as f64;
        parts.output_tokens_us = tokens * self.latency.output_token_time().0 as f64 + after_last.0 as f64;
        if !self.waits_count {
            parts.preemption_us = 0.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runs::testing::run;
    use crate::validate::deployment;

    /// A request alone, of one token, then of three: its parts follow from the coefficients and the step times.
    #[test]
    fn the_parts_of_a_lone_request_add_up() {
        let mut run = run(&[(0, 32, 3)]);
        run.deployment.alpha_coeffs = Some(vec![3000.0, 0.5, 2000.0]);
        run.deployment.beta_coeffs = Some(vec![1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 12.0, 50.0, 1.0, 200.0]);
        let deployment = deployment(&run).unwrap();
        let (predicted, parts) = replay_parts(&run, &deployment).unwrap();
        let breakdown = LatencyBreakdown::new(&parts);
        let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a} is not {b}");
        // 3000 µs and 0.5 µs for each of 32 tokens; the queue is empty, so a step begins at once.
        close(breakdown.arrival.mean_ms, 3.016);
        close(breakdown.queue.mean_ms, 0.0);
        close(breakdown.preemption.mean_ms, 0.0);
        close(breakdown.first_token.mean_ms, 2.0);
        // Three steps of one request: 200 µs + 1 µs each.
        close(breakdown.scheduling.mean_ms, 0.603);
        let e2e_ms = predicted[0].e2e_us / 1e3;
        close(breakdown.steps.mean_ms, e2e_ms - 3.016 - 2.0);
        let shares = [breakdown.arrival, breakdown.queue, breakdown.preemption, breakdown.steps, breakdown.first_token];
        close(shares.iter().map(|part| part.share).sum::<f64>() + breakdown.output_tokens.share, 1.0);
        assert_eq!(breakdown.kv_transfer, LatencyPart { mean_ms: 0.0, share: 0.0 });
        let mut batch = blis_sim::latency::Batch::default();
        batch.add_prefill(32, 0, 32);
        let mut us = deployment.latency.step_time(&batch).0;
        for context in [32, 33] {
            let mut batch = blis_sim::latency::Batch::default();
            batch.add_decode(context);
            us += deployment.latency.step_time(&batch).0;
        }
        close(breakdown.steps.mean_ms, us as f64 / 1e3);
    }

    #[test]
    fn waiting_and_preemption_are_parts_of_their_own() {
        // 8 blocks of 16 tokens: two requests of 48 + 40 tokens need 6 each in the end, so one is preempted.
        let mut run = run(&[(0, 48, 40), (0, 48, 40), (0, 48, 40)]);
        run.deployment.total_kv_blocks = Some(8);
        let deployment = deployment(&run).unwrap();
        let (predicted, parts) = replay_parts(&run, &deployment).unwrap();
        let plain = super::super::replay::replay(&run, &deployment, &deployment.latency).unwrap();
        assert_eq!(predicted, plain, "observing changes nothing");
        let breakdown = LatencyBreakdown::new(&parts);
        assert!(parts.iter().map(|parts| parts.preemptions).sum::<u32>() > 0);
        assert!(breakdown.preemption.share > 0.0 && breakdown.queue.share > 0.0, "{breakdown:?}");
    }

    #[test]
    fn nothing_has_no_shares() {
        assert_eq!(LatencyBreakdown::new(&[]).steps, LatencyPart::default());
    }
}
