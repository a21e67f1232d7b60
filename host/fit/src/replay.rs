//! Simulates the requests of a measured run.

use std::sync::Arc;

use blis_sim::ids::{InstanceIndex, RequestId};
use blis_sim::instance::{Fast, InstanceConfig, InstancePolicies, NoProgress, SchedulerOptions, run_alone};
use blis_sim::latency::LatencyModel;
use blis_sim::observer::{Interests, Observer, SimEvent};
use blis_sim::outcome::Outcome;
use blis_sim::policy::Classes;
use blis_sim::request::{Content, Request, Span};
use blis_sim::semantics::Semantics;
use blis_sim::units::Micros;

use super::runs::{FitError, MeasuredRun};
use blis_config::Deployment;
use blis_diag::Diagnostic;

/// Simulated latencies of one request, µs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Predicted {
    /// From arrival to the first token, µs.
    pub ttft_us: f64,
    /// From arrival to the last token, µs.
    pub e2e_us: f64,
    /// From the waiting queue to the running batch, µs.
    pub queue_us: f64,
}

/// Simulates the requests of `run` on `deployment` with the step times of `latency`; results in their order.
///
/// # Errors
/// If one of them cannot be served.
pub fn replay(
    run: &MeasuredRun,
    deployment: &Deployment,
    latency: &Arc<dyn LatencyModel>,
) -> Result<Vec<Predicted>, FitError> {
    let mut sink = Ends { ends: vec![None; run.requests.len()], latency: Arc::clone(latency) };
    let instance = Fast::new(instance(run, deployment, latency));
    run_alone(instance, requests(run), Micros::MAX, &mut sink).map_err(|stuck| failed(run, &stuck))?;
    all_served(run, sink.ends)
}

/// The error that `run` came to a halt.
pub(super) fn failed(run: &MeasuredRun, stuck: &NoProgress) -> FitError {
    FitError::Run { run: run.name.clone(), mistake: Box::new(Diagnostic::new(stuck.to_string())) }
}

/// The latencies of all requests of `run`, or the first that was not served.
pub(super) fn all_served(run: &MeasuredRun, ends: Vec<Option<Predicted>>) -> Result<Vec<Predicted>, FitError> {
    let Some(number) = ends.iter().position(Option::is_none) else { return Ok(ends.into_iter().flatten().collect()) };
    let request = &run.requests[number];
    let (input, output) = (request.input_tokens, request.output_tokens);
    let what = format!("request {number} ({input} tokens in, {output} out) cannot be served");
    let hint = "are `max_model_len` and the number of KV blocks those of the server?";
    Err(FitError::Run { run: run.name.clone(), mistake: Box::new(Diagnostic::new(what).hint(hint)) })
}

pub(super) fn instance(run: &MeasuredRun, deployment: &Deployment, latency: &Arc<dyn LatencyModel>) -> InstanceConfig {
    let limits = deployment.instance_limits();
    InstanceConfig {
        latency: Arc::clone(latency),
        index: InstanceIndex(0),
        labels: blis_sim::policy::InstanceLabels::default(),
        max_num_seqs: limits.max_num_seqs,
        max_num_batched_tokens: limits.max_num_batched_tokens,
        block_size: run.deployment.block_size,
        total_kv_blocks: deployment.total_kv_blocks,
        long_prefill_token_threshold: deployment.prompt_threshold(0),
        max_model_len: deployment.max_model_len,
        enable_prefix_caching: run.prefix_caching,
        enable_chunked_prefill: true,
        async_scheduling: !run.parity,
        reserve_full_prompt: !run.parity && run.engine.reserves_full_prompt(),
        options: SchedulerOptions::default(),
        semantics: if run.parity { Semantics::BLIS } else { run.engine.semantics() },
        policies: InstancePolicies::default(),
        classes: Arc::new(Classes::default()),
        offload: None,
        blis_tiers: None,
        kv_groups: None,
        adapters: None,
    }
}

/// Equal prompts have equal blocks, and the shared prefix has the same blocks in all prompts.
pub(super) fn requests(run: &MeasuredRun) -> impl Iterator<Item = Request> {
    let block = run.deployment.block_size;
    let longest = run.requests.iter().map(|request| request.input_tokens / block).max().unwrap_or(0);
    let shared = run.shared_prefix_tokens / block;
    run.requests.iter().zip((0..).map(RequestId)).map(move |(measured, id)| {
        let arrival = Micros(measured.arrival_us);
        let mut request = Request::new(id, arrival, measured.input_tokens, measured.output_tokens);
        if let Some(prompt) = measured.prompt {
            let blocks = measured.input_tokens / block;
            let own = Span { first: shared + prompt * longest, len: blocks.saturating_sub(shared) };
            request.content = Content::shared(&[Span { first: 0, len: shared.min(blocks) }, own]);
        } else {
            request.content = measured.content.clone();
        }
        request
    })
}

/// The run with the most that a prefix cache can do: all prompts are beginnings of one text, so that a block which was
/// computed once is found by every longer prompt.
#[must_use]
pub fn fully_cached(run: &MeasuredRun) -> MeasuredRun {
    let mut run = run.clone();
    let block = run.deployment.block_size.max(1);
    (run.prefix_caching, run.shared_prefix_tokens) = (true, 0);
    for request in &mut run.requests {
        request.prompt = None;
        request.content = Content::shared(&[Span { first: 0, len: request.input_tokens / block }]);
    }
    run
}

struct Ends {
    ends: Vec<Option<Predicted>>,
    latency: Arc<dyn LatencyModel>,
}

impl Observer for Ends {
    #[inline]
    fn interests(&self) -> Interests {
        Interests::OUTCOMES
    }

    #[inline]
    fn record(&mut self, event: &SimEvent<'_>) {
        if let SimEvent::Outcome(outcome) = event {
            let before_queue = self.latency.queueing_time(outcome.input_tokens);
            self.ends[outcome.id.index()] = Predicted::from_outcome(outcome, before_queue);
        }
    }
}

impl Predicted {
    /// The latencies of a request that completed, which was `before_queue` on its way to the waiting queue.
    pub(super) fn from_outcome(outcome: &Outcome, before_queue: Micros) -> Option<Self> {
        let (ttft, e2e, delay) = (outcome.ttft?, outcome.e2e?, outcome.scheduling_delay?);
        let queue_us = delay.saturating_sub(before_queue).0 as f64;
        Some(Self { ttft_us: ttft.0 as f64, e2e_us: e2e.0 as f64, queue_us })
    }
}
