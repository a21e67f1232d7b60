//! Tests of the TTFT of a prompt that has a server for itself, over the built-in models and GPUs.

use std::sync::Arc;

use blis_sim::ids::{InstanceIndex, RequestId};
use blis_sim::instance::{Fast, InstanceConfig, InstancePolicies, SchedulerOptions, run_alone};
use blis_sim::latency::Batch;
use blis_sim::observer::{Interests, Observer, SimEvent};
use blis_sim::policy::Classes;
use blis_sim::request::Request;
use blis_sim::semantics::Semantics;
use blis_sim::units::Micros;

use crate::{Catalogue, Deployment, DeploymentArgs, known_models, resolve};

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
        labels: blis_sim::policy::InstanceLabels::default(),
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
        policies: InstancePolicies::default(),
        classes: Arc::new(Classes::default()),
        offload: None,
        blis_tiers: None,
        kv_groups: None,
        adapters: None,
    };
    let mut ttft = Ttft::default();
    let request = Request::new(RequestId(0), Micros(0), tokens, 4);
    run_alone(Fast::new(config), std::iter::once(request), Micros::MAX, &mut ttft).expect("it is served");
    (ttft.0.expect("it was served").0, steps_us(deployment, tokens, budget))
}

/// The time of the steps of a lone prompt, µs.
fn steps_us(deployment: &Deployment, tokens: u32, budget: u32) -> u64 {
    let mut steps = 0;
    let mut context = 0;
    while context < tokens {
        let chunk = budget.min(tokens - context);
        let mut batch = Batch::default();
        batch.add_prefill(chunk, context, tokens);
        steps += deployment.latency.step_time(&batch).0;
        context += chunk;
    }
    steps
}

/// The deployment of a model on so many GPUs; `None` where its heads cannot be divided by them.
fn deployed(model: &str, hardware: &str, tensor: u32) -> Option<Deployment> {
    let args = DeploymentArgs {
        hardware: Some(hardware.into()),
        tensor_parallel_size: Some(tensor),
        total_kv_blocks: Some(10_000),
        ..DeploymentArgs::new(model)
    };
    match resolve(&args) {
        Ok(deployment) => Some(deployment),
        Err(error) if error.to_string().contains("divi") => None,
        Err(error) => panic!("{model} on {tensor} {hardware}: {error}"),
    }
}

#[test]
fn a_lone_prompt_takes_its_steps() {
    let catalogue = Catalogue::load(None).unwrap();
    for hardware in catalogue.entries() {
        for model in MODELS {
            let deployment = deployed(model, &hardware.name, 4).expect("4 GPUs divide its heads");
            for (tokens, budget) in [(17, 512), (1000, 256), (1000, 2048), (8192, 512), (8192, 8192), (30_000, 2048)] {
                let (ttft, steps) = lone_prompt(&deployment, tokens, budget);
                let what = format!("{model} on {}, {tokens} tokens in chunks of {budget}", hardware.name);
                assert!(ttft >= steps, "{what}: TTFT {ttft}, steps {steps} µs");
                assert!(ttft as f64 <= 1.2 * steps as f64 + 10_000.0, "{what}: TTFT {ttft}, steps {steps} µs");
            }
        }
    }
}

/// Compares the steps of prompts in chunks of each size with those in chunks of half the size, which take at least as long. The number
/// of comparisons.
fn compare_budgets(deployment: &Deployment, what: &str) -> usize {
    let mut compared = 0;
    for tokens in [255, 512, 1000, 3000, 8192, 10_000, 30_000] {
        let mut before = u64::MAX;
        for budget in [128, 256, 512, 1024, 2048, 4096, 8192, 16_384, 32_768] {
            let us = steps_us(deployment, tokens, budget);
            // Each step is rounded to a microsecond.
            let rounding = u64::from(tokens / budget) + 1;
            assert!(
                us <= before.saturating_add(rounding),
                "{what}, {tokens} tokens: {us} µs in chunks of {budget}, {before} µs in chunks of half the size"
            );
            before = us;
            compared += 1;
        }
    }
    compared
}

/// The number of comparisons of [`compare_budgets`] for a model on 1, 2, 4 and 8 of each GPU.
fn compare_on_all_gpus(model: &str) -> usize {
    let catalogue = Catalogue::load(None).unwrap();
    let deployments = catalogue.entries().flat_map(|hardware| [1, 2, 4, 8].map(|tensor| (hardware, tensor)));
    let compared = deployments.map(|(hardware, tensor)| {
        let what = format!("{model} on {tensor} {}", hardware.name);
        deployed(model, &hardware.name, tensor).map_or(0, |deployment| compare_budgets(&deployment, &what))
    });
    compared.sum()
}

#[test]
fn no_prompt_is_slower_in_larger_chunks() {
    let compared: usize = MODELS.into_iter().map(compare_on_all_gpus).sum();
    assert!(compared > 25_000, "{compared}");
}

#[test]
#[ignore = "heavy: `.ci/run` runs it in a step of its own"]
fn no_prompt_to_any_model_is_slower_in_larger_chunks() {
    let models = known_models().into_iter().filter(|model| model.has_config);
    let compared: usize = models.map(|model| compare_on_all_gpus(&model.name)).sum();
    assert!(compared > 200_000, "{compared}");
}
