//! Simulates the requests of a measured run.

use std::sync::Arc;

use blis_sim::instance::{Fast, InstanceConfig, Preemption, Scheduler, SchedulerOptions, run_alone};
use blis_sim::latency::LatencyModel;
use blis_sim::observer::{Interests, Observer, SimEvent};
use blis_sim::outcome::Outcome;
use blis_sim::policy::Classes;
use blis_sim::request::{Content, Request, Span};
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
    let wrong = |mistake: Diagnostic| FitError::Run { run: run.name.clone(), mistake: Box::new(mistake) };
    let mut sink = Ends { ends: vec![None; run.requests.len()], latency: Arc::clone(latency) };
    let instance = Fast::new(instance(run, deployment, latency));
    run_alone(instance, requests(run), Micros::MAX, &mut sink)
        .map_err(|stuck| wrong(Diagnostic::new(stuck.to_string())))?;
    let number_of_refused = sink.ends.iter().position(Option::is_none);
    if let Some(number) = number_of_refused {
        let request = &run.requests[number];
        let (input, output) = (request.input_tokens, request.output_tokens);
        let what = format!("request {number} ({input} tokens in, {output} out) cannot be served");
        let hint = "are `max_model_len` and the number of KV blocks those of the server?";
        return Err(wrong(Diagnostic::new(what).hint(hint)));
    }
    Ok(sink.ends.into_iter().flatten().collect())
}

fn instance(run: &MeasuredRun, deployment: &Deployment, latency: &Arc<dyn LatencyModel>) -> InstanceConfig {
    InstanceConfig {
        latency: Arc::clone(latency),
        index: 0,
        max_num_seqs: run.max_num_seqs,
        max_num_batched_tokens: run.max_num_batched_tokens,
        block_size: run.deployment.block_size,
        total_kv_blocks: deployment.total_kv_blocks,
        long_prefill_token_threshold: 0,
        max_model_len: deployment.max_model_len,
        enable_prefix_caching: run.prefix_caching,
        enable_chunked_prefill: true,
        async_scheduling: true,
        reserve_full_prompt: run.engine.reserves_full_prompt(),
        options: SchedulerOptions::default(),
        semantics: run.engine.semantics(),
        scheduler: Scheduler::Fcfs.into(),
        preemption: Preemption::Fcfs.into(),
        classes: Arc::new(Classes::default()),
    }
}

/// Equal prompts have equal blocks, and the shared prefix has the same blocks in all prompts.
fn requests(run: &MeasuredRun) -> impl Iterator<Item = Request> {
    let block = run.deployment.block_size;
    let longest = run.requests.iter().map(|request| request.input_tokens / block).max().unwrap_or(0);
    let shared = run.shared_prefix_tokens / block;
    run.requests.iter().zip(0..).map(move |(measured, id)| {
        let mut request = Request::new(id, Micros(measured.arrival_us), measured.input_tokens, measured.output_tokens);
        if let Some(prompt) = measured.prompt {
            let blocks = measured.input_tokens / block;
            let own = Span { first: shared + prompt * longest, len: blocks.saturating_sub(shared) };
            request.content = Content::shared(&[Span { first: 0, len: shared.min(blocks) }, own]);
        }
        request
    })
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
            self.add(outcome);
        }
    }
}

impl Ends {
    fn add(&mut self, outcome: &Outcome) {
        if let (Some(ttft), Some(e2e), Some(delay)) = (outcome.ttft, outcome.e2e, outcome.scheduling_delay) {
            let before_queue = self.latency.queueing_time(outcome.input_tokens);
            self.ends[outcome.id as usize] = Some(Predicted {
                ttft_us: ttft.0 as f64,
                e2e_us: e2e.0 as f64,
                queue_us: delay.saturating_sub(before_queue).0 as f64,
            });
        }
    }
}
