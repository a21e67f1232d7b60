//! Instances and requests for the benchmarks: llama-3.1-8b on one H100, vLLM's defaults.

use std::num::NonZeroU32;
use std::sync::Arc;

use blis_config::{Deployment, DeploymentArgs, LatencyKind, resolve};
use blis_sim::ids::{InstanceIndex, RequestId};
use blis_sim::instance::{InstanceConfig, InstancePolicies, SchedulerOptions};
use blis_sim::observer::{Interests, Observer, SimEvent};
use blis_sim::request::{Content, Request};
use blis_sim::semantics::Semantics;
use blis_sim::units::Micros;
use blis_workload::distribution::DistributionSpec;

/// Size of a KV block, tokens.
pub const BLOCK: u32 = 16;

pub fn deployment(latency: LatencyKind) -> Deployment {
    let arguments = DeploymentArgs {
        latency_model: Some(latency),
        block_size: BLOCK,
        ..DeploymentArgs::new("meta-llama/llama-3.1-8b-instruct")
    };
    resolve(&arguments).expect("a built-in model")
}

pub fn instance(latency: LatencyKind) -> InstanceConfig {
    instance_of(&deployment(latency))
}

pub fn instance_of(deployment: &Deployment) -> InstanceConfig {
    InstanceConfig {
        index: InstanceIndex(0),
        labels: blis_sim::policy::InstanceLabels::default(),
        max_num_seqs: 256,
        max_num_batched_tokens: 2048,
        long_prefill_token_threshold: 0,
        max_model_len: deployment.max_model_len,
        block_size: BLOCK,
        total_kv_blocks: deployment.total_kv_blocks,
        enable_prefix_caching: true,
        enable_chunked_prefill: true,
        async_scheduling: false,
        reserve_full_prompt: false,
        options: SchedulerOptions::default(),
        policies: InstancePolicies::default(),
        classes: Arc::default(),
        offload: None,
        blis_tiers: None,
        kv_groups: None,
        adapters: None,
        semantics: Semantics::VLLM_0_33,
        latency: deployment.latency.clone(),
    }
}

/// Requests of the preset `chatbot` (256 ± 100 in, 256 ± 100 out) with constant inter-arrival times and without
/// deadlines.
pub fn chat(requests: u64, rate: f64) -> Vec<Request> {
    let preset = DistributionSpec::preset("chatbot").expect("it exists");
    let spec = DistributionSpec { rate, num_requests: Some(requests), timeout: None, ..preset };
    spec.generate(NonZeroU32::new(BLOCK).expect("not 0")).expect("it is valid").requests.collect()
}

pub fn request(id: u32, arrival: Micros, input_tokens: u32, output_tokens: u32, content: Content) -> Request {
    Request { content, ..Request::new(RequestId(id), arrival, input_tokens, output_tokens) }
}

/// An observer that counts the requests that ended.
#[derive(Clone, Copy, Debug, Default)]
pub struct OutcomeCounter(pub u32);

impl Observer for OutcomeCounter {
    #[inline]
    fn interests(&self) -> Interests {
        Interests::OUTCOMES
    }

    #[inline]
    fn record(&mut self, event: &SimEvent<'_>) {
        self.0 += u32::from(matches!(event, SimEvent::Outcome(_)));
    }
}
