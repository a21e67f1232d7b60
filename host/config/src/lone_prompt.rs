//! Tests of the TTFT of a prompt that has a server for itself, over the built-in models and GPUs.

use std::sync::Arc;

use blis_sim::ids::{InstanceIndex, RequestId};
use blis_sim::instance::{Fast, InstanceConfig, Preemption, Scheduler, SchedulerOptions, run_alone};
use blis_sim::latency::Batch;
use blis_sim::observer::{Interests, Observer, SimEvent};
use blis_sim::policy::Classes;
use blis_sim::request::Request;
use blis_sim::semantics::Semantics;
use blis_sim::units::Micros;

use crate::{Catalogue, Deployment, DeploymentArgs, resolve};

const MODELS: [&str; 8] = [
    "llama-2-7b-hf",
    "llama-3.1-8b-instruct",
    "llama-3.1-70b-instruct",
    "qwen2.5-7b-instruct-fp8-dynamic",
    "qwen3-14b",
    "qwen3-30b-a3b",
    "mixtral-8x7b-v0.1",
    "llama-4-scout-17b-16e-instruct-fp8-dynamic",
];

#[derive(Default)]
struct Ttft(Option<Micros>);

impl Observer for Ttft {
    fn interests(&self) -> Interests {
        Interests::OUTCOMES
    }

    fn record(&mut self, event: &SimEvent<'_>) {
        if let SimEvent::Outcome(outcome) = event {
            self.0 = outcome.ttft;
        }
    }
}

/// TTFT of a lone prompt, and the time of its steps, µs.
fn lone_prompt(deployment: &Deployment, tokens: u32, budget: u32) -> (u64, u64) {
    let config = InstanceConfig {
        latency: Arc::clone(&deployment.latency),
        index: InstanceIndex(0),
        max_num_seqs: 128,
        max_num_batched_tokens: budget,
        block_size: 16,
        total_kv_blocks: 10_000,
        long_prefill_token_threshold: 0,
        max_model_len: None,
        enable_prefix_caching: true,
        enable_chunked_prefill: true,
        async_scheduling: true,
        reserve_full_prompt: false,
        options: SchedulerOptions::default(),
        semantics: Semantics::VLLM_0_15,
        scheduler: Scheduler::Fcfs.into(),
        preemption: Preemption::Fcfs.into(),
        classes: Arc::new(Classes::default()),
    };
    let mut ttft = Ttft::default();
    let request = Request::new(RequestId(0), Micros(0), tokens, 4);
    run_alone(Fast::new(config), std::iter::once(request), Micros::MAX, &mut ttft).expect("it is served");
    let mut steps = 0;
    let mut context = 0;
    while context < tokens {
        let chunk = budget.min(tokens - context);
        let mut batch = Batch::default();
        batch.add_prefill(chunk, context, tokens);
        steps += deployment.latency.step_time(&batch).0;
        context += chunk;
    }
    (ttft.0.expect("it was served").0, steps)
}

#[test]
fn a_lone_prompt_takes_its_steps_and_no_longer_with_larger_chunks() {
    let catalogue = Catalogue::load(None).unwrap();
    for hardware in catalogue.entries() {
        let links = catalogue.kernels(hardware).unwrap().links_source;
        for model in MODELS {
            let args = DeploymentArgs {
                hardware: Some(hardware.name.clone()),
                tensor_parallel_size: Some(4),
                total_kv_blocks: Some(10_000),
                ..DeploymentArgs::new(model)
            };
            let deployment = resolve(&args).unwrap();
            for tokens in [17, 1000, 8192, 30_000] {
                let mut before = u64::MAX;
                for budget in [512, 2048, 8192, 16_384] {
                    let (ttft, steps) = lone_prompt(&deployment, tokens, budget);
                    let what = format!("{model} on {}, {tokens} tokens in chunks of {budget}", hardware.name);
                    assert!(ttft as f64 <= 1.2 * steps as f64 + 10_000.0, "{what}: TTFT {ttft}, steps {steps} µs");
                    // Over PCIe, collectives of NCCL lose bandwidth with the size of the message: two halves are faster than the whole.
                    let slack = if links.contains("PCIe 4") { 1.03 } else { 1.0 };
                    assert!(
                        ttft as f64 <= slack * before as f64,
                        "{what}: {ttft} µs, and {before} with smaller chunks"
                    );
                    before = ttft;
                }
            }
        }
    }
}
