//! Property tests: the two engines give the same results to the microsecond, whatever the load.

mod blis_tiers;
mod cpu_tier;
pub(crate) mod groups;
mod hit_counters;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::hash::{Hash as _, Hasher as _};
use std::sync::Arc;

use proptest::prelude::*;
use rustc_hash::FxHasher;

use super::config::{InstanceConfig, SchedulerOptions};
use super::policy::BatchingChoice;
use super::{
    Fast, Instance, InstancePolicies, NoProgress, Plain, Preemption, PreemptionChoice, Scheduler, SchedulingChoice,
    run_alone,
};
use crate::adapters::{AdapterCosts, AdapterReport, AdapterSettings};
use crate::ids::{InstanceIndex, RequestId};
use crate::latency::Serving;
use crate::latency::physics::samples::kernels;
use crate::latency::{
    Batch, Blackbox, ContextEffect, LatencyModel, MoeComm, Physics, PhysicsBeta, Roofline, TrainedPhysics,
};
use crate::model::Parallelism;
use crate::model::samples::{h100, llama_8b};
use crate::observer::{Interests, Observer, SimEvent};
use crate::offload::{
    BackpressurePolicy, ChunkEviction, LinkSpeed, OffloadConfig, SecondaryConfig, SecondaryCounters, SecondaryKind,
};
use crate::outcome::{
    AdapterChange, AdapterEvent, Counters, Decision, FirstToken, LoadDecision, OffloadCounters, Outcome,
    PreemptionDecision, Rejection, SchedulingDecision, SchedulingResult, Status, WaitReason,
};
use crate::policy::kv_cache::{ChunkOffer, KvCacheChoice, KvCacheDecisions, KvCachePolicy, KvChunk, KvHit};
use crate::policy::{
    BatchView, BatchingPolicy, Classes, PreemptionPolicy, QueuedView, Rank, SchedulingPolicy, StepBudget, StepState,
    sarathi,
};
use crate::request::{BlockKey, Content, Name, Request, Span, Tags};
use crate::sampling::{SampledRows, Sampling, SamplingParam, SamplingParams};
use crate::semantics::Semantics;
use crate::units::Micros;

/// The events and results of a simulation, in order.
#[derive(Clone, Debug, Default, PartialEq)]
struct EngineLog {
    outcomes: Vec<Outcome>,
    first_tokens: Vec<FirstToken>,
    itl: BTreeMap<Micros, u64>,
    counters: Counters,
    stuck: Option<String>,
    scheduled: Vec<SchedulingDecision>,
    preempted: Vec<PreemptionDecision>,
    loads: Vec<LoadDecision>,
    /// Which adapters made room, in words.
    evictions: Vec<String>,
    adapters: Vec<AdapterEvent>,
    /// Whether it ignores decisions.
    without_decisions: bool,
}

impl Observer for EngineLog {
    fn interests(&self) -> Interests {
        let interests = Interests::FIRST_TOKENS | Interests::INTER_TOKEN_LATENCIES | Interests::OUTCOMES;
        if self.without_decisions { interests } else { interests | Interests::SCHEDULING }
    }

    fn record(&mut self, event: &SimEvent<'_>) {
        match *event {
            SimEvent::Decision(Decision::Scheduling(decision)) => self.scheduled.push(*decision),
            SimEvent::Decision(Decision::Preemption(decision)) => self.preempted.push(*decision),
            SimEvent::Decision(Decision::Load(decision)) => self.loads.push(*decision),
            SimEvent::Decision(Decision::AdapterEviction(eviction)) => self.evictions.push(format!("{eviction:?}")),
            SimEvent::Decision(_)
            | SimEvent::Arrival(_)
            | SimEvent::Dispatched { .. }
            | SimEvent::Scaling(_)
            | SimEvent::StageEnded(_)
            | SimEvent::Encoded(_)
            | SimEvent::Disaggregated(_)
            | SimEvent::Replica(_)
            | SimEvent::Replicas(_) => {
                unreachable!("there is no admission, routing or scaling here")
            }
            SimEvent::Step { .. } | SimEvent::Load { .. } => unreachable!("not of interest"),
            SimEvent::Adapter(event) => self.adapters.push(*event),
            SimEvent::Outcome(outcome) => self.outcomes.push(*outcome),
            SimEvent::FirstToken(first) => self.first_tokens.push(*first),
            SimEvent::InterTokenLatency { gap, count, .. } => *self.itl.entry(gap).or_default() += count,
            SimEvent::InterTokenLatencyRetracted { gap, count, .. } => {
                let total = self.itl.get_mut(&gap).expect("retracted what was never reported");
                *total = total.checked_sub(count).expect("retracted more than was reported");
                if *total == 0 {
                    self.itl.remove(&gap);
                }
            }
        }
    }
}

impl EngineLog {
    /// Checks that the decisions fit the outcomes of the requests.
    fn is_consistent(&self) -> Result<(), TestCaseError> {
        prop_assert_eq!(self.preempted.len() as u64, self.counters.preemptions);
        prop_assert!(
            self.preempted.iter().all(|decision| decision.needed_kv_blocks > decision.free_kv_blocks),
            "a preemption without need"
        );
        let entered = |decision: &&SchedulingDecision| matches!(decision.result, SchedulingResult::Scheduled { .. });
        let waited: Micros = self.scheduled.iter().filter(entered).map(|decision| decision.waited).sum();
        prop_assert!(waited <= self.counters.queue_time, "{waited:?} of {:?}", self.counters.queue_time);
        for outcome in &self.outcomes {
            let of = self.scheduled.iter().filter(|decision| decision.request == outcome.id);
            let entries: Vec<_> = of.filter(entered).collect();
            let Some(first) = entries.first() else {
                prop_assert_eq!(outcome.scheduling_delay, None);
                continue;
            };
            // A draining request that is preempted does not come back.
            let back = outcome.status == Status::Queued || outcome.status == Status::TimedOut;
            let expected = outcome.preemptions as usize + 1;
            prop_assert!(entries.len() == expected || back && entries.len() + 1 == expected);
            let SchedulingResult::Scheduled { cached_tokens, .. } = first.result else { unreachable!("filtered") };
            prop_assert_eq!(cached_tokens, outcome.cached_tokens);
        }
        Ok(())
    }
}

/// A latency model with random coefficients.
#[derive(Debug, Clone)]
struct RandomLatency {
    base: u64,
    per_prefill: u64,
    per_decode: u64,
    /// Time per 1024 tokens of context, µs; 0 makes steps repeat.
    per_context: u64,
    queueing: u64,
    queueing_per_token: u64,
    per_output: u64,
    /// Time per kind of sampling work of a request that sets parameters, µs; 0: sampling costs nothing.
    per_sampled: u64,
    /// Time per token of a prefix that all requests share, µs; 0: it is not read.
    per_common: u64,
}

impl RandomLatency {
    const CONSTANT: Self = Self {
        base: 100,
        per_prefill: 0,
        per_decode: 0,
        per_context: 0,
        queueing: 0,
        queueing_per_token: 0,
        per_output: 0,
        per_sampled: 0,
        per_common: 0,
    };
}

impl LatencyModel for RandomLatency {
    fn step_time(&self, batch: &Batch) -> Micros {
        let context = batch.decode_context + batch.prefill_context + batch.prefill_tokens_by_context / 8;
        let SampledRows { own, truncated, min_p, penalized } = batch.sampled;
        let sampled = u64::from(own) + 2 * u64::from(truncated) + 4 * u64::from(min_p) + 8 * u64::from(penalized);
        let us = self.base
            + self.per_prefill * batch.prefill_tokens
            + self.per_decode * batch.decode_requests
            + self.per_context * context / 1024
            + self.per_sampled * sampled
            + self.per_common * batch.common_prefix;
        Micros(us.max(1))
    }
    fn context_effect(&self) -> ContextEffect {
        match self.per_context {
            0 => ContextEffect::None,
            odd if odd % 2 == 1 => ContextEffect::Any,
            _ => ContextEffect::NonDecreasing,
        }
    }
    fn reads_common_prefix(&self) -> bool {
        self.per_common > 0
    }
    fn sampling(&self, params: SamplingParams) -> Option<Sampling> {
        (self.per_sampled > 0).then(|| params.work())
    }
    fn queueing_time(&self, input_tokens: u32) -> Micros {
        Micros(self.queueing + self.queueing_per_token * u64::from(input_tokens))
    }
    fn output_token_time(&self) -> Micros {
        Micros(self.per_output)
    }
    fn first_token_time(&self) -> Micros {
        Micros(5 * self.per_output)
    }
    fn plans_ahead(&self) -> bool {
        self.queueing.is_multiple_of(2)
    }
    fn post_decode_time(&self) -> Micros {
        Micros(7)
    }
}

fn shape() -> impl Strategy<Value = RandomLatency> {
    let per_context = prop_oneof![Just(0u64), 1u64..60, 1u64..2000];
    let work = (0u64..300, 0u64..20, 0u64..30, per_context);
    let [per_sampled, per_common] = [9, 4].map(|most| prop_oneof![Just(0u64), 1u64..most]);
    (work, 0u64..500, 0u64..20, 0u64..9, per_sampled, per_common).prop_map(
        |(work, queueing, queueing_per_token, per_output, per_sampled, per_common)| {
            let (base, per_prefill, per_decode, per_context) = work;
            RandomLatency {
                base,
                per_prefill,
                per_decode,
                per_context,
                queueing,
                queueing_per_token,
                per_output,
                per_sampled,
                per_common,
            }
        },
    )
}

/// The models that users choose, on a small time scale; and random models that stress the engines more.
fn latency() -> impl Strategy<Value = Arc<dyn LatencyModel>> {
    let one = Parallelism { tensor: 1, data: 1 };
    let blackbox: Arc<dyn LatencyModel> =
        Arc::new(Blackbox::new(&[232.462, 1.75236, 33.4], &[52.7, 17.2509, 5.99914]).expect("valid"));
    let roofline: Arc<dyn LatencyModel> = Arc::new(Roofline::new(&llama_8b(), &h100(), one).expect("valid"));
    let alpha = [1563.199579, 777.3455, 45.907545];
    let beta = [0.152128, 0.0, 1.36252915, 0.752037, 32.09546717, 4.41684444, 126.024825, 0.0, 0.0, 1.94710771];
    let trained = TrainedPhysics::new(&llama_8b(), &h100(), one, MoeComm::AllGather, &alpha, &beta).expect("valid");
    let trained: Arc<dyn LatencyModel> = Arc::new(trained);
    let beta = PhysicsBeta::from([0.97, 0.98, 0.96, 1.1, 0.9, 1.0, 13.0, 100.0, 1.0, 200.0]);
    // By default top-p; requests may differ.
    let sampling = SamplingParams::default().with(SamplingParam::TopP, 0.9);
    let serving = Serving { sampling, ..Serving::on(one) };
    let physics = Physics::new(&llama_8b(), &h100(), &kernels(), serving, [450.0, 0.5, 125.0].into(), beta);
    let physics: Arc<dyn LatencyModel> = Arc::new(physics.expect("valid"));
    prop_oneof![
        5 => shape().prop_map(|shape| Arc::new(shape) as Arc<dyn LatencyModel>),
        1 => Just(blackbox),
        1 => Just(roofline),
        1 => Just(trained),
        1 => Just(physics),
    ]
}

fn semantics() -> impl Strategy<Value = Semantics> {
    let mixed = any::<[bool; 19]>().prop_map(|b| Semantics {
        drop_over_budget: b[0],
        refuse_unfinishable: b[1],
        full_hit_is_free: b[2],
        hit_context_is_zero: b[3],
        preemption_restarts: b[4],
        preempt_last_of_ties: b[5],
        forget_duplicate_blocks: b[6],
        skip_one_token_decode_blocks: b[7],
        final_token_kv: b[8],
        itl_spans_waits: b[9],
        capped_itl_divides_by_one_less: b[10],
        // With neither of BLIS's two ways to leave blocks without a hash, which vLLM 0.33 does not know.
        free_unhashed_first: b[11] && !b[2] && !b[7],
        self_preemption_continues: b[12],
        lone_prefill_ignores_threshold: b[13],
        idle_victim_skips_next: b[14],
        idle_at_step_start: b[15],
        adapters_load_ahead: b[16],
        hit_rate_of_blocks: b[17],
        cache_events_at_step_start: b[18],
        // The remaining fields concern the cluster.
        ..Semantics::VLLM_0_15
    });
    prop_oneof![Just(Semantics::VLLM_0_33), Just(Semantics::VLLM_0_15), Just(Semantics::BLIS), mixed]
}

/// A policy with results that depend on everything in its views so far: engines that show it different views, or
/// call it at other times, soon diverge.
#[derive(Clone, Debug)]
struct ViewHashPolicy {
    state: u64,
}

impl ViewHashPolicy {
    fn next(&mut self, view: &impl Debug) -> u64 {
        let mut hasher = FxHasher::default();
        hasher.write_u64(self.state);
        hasher.write(format!("{view:?}").as_bytes());
        self.state = hasher.finish();
        self.state >> 32
    }
}

impl SchedulingPolicy for ViewHashPolicy {
    fn rank(&mut self, request: &QueuedView<'_>) -> Rank {
        Rank::real((self.next(request) % 7) as f64 - 3.0)
    }

    fn fork(&self) -> Box<dyn SchedulingPolicy> {
        Box::new(self.clone())
    }
}

impl PreemptionPolicy for ViewHashPolicy {
    fn victim(&mut self, batch: &BatchView) -> usize {
        self.next(batch) as usize % (batch.len() + 1)
    }

    fn fork(&self) -> Box<dyn PreemptionPolicy> {
        Box::new(self.clone())
    }
}

impl KvCachePolicy for ViewHashPolicy {
    fn decides(&self) -> KvCacheDecisions {
        KvCacheDecisions { store: self.state & 1 == 0, load: self.state & 2 == 0 }
    }

    fn keep(&mut self, now: Micros, chunks: &[KvChunk], ranks: &mut Vec<f64>) {
        ranks.extend(chunks.iter().map(|chunk| (self.next(&(now, chunk)) % 7) as f64 - 3.0));
    }

    fn store(&mut self, tier: &ChunkOffer, chunks: &[KvChunk], stored: &mut Vec<bool>) {
        stored.extend(chunks.iter().map(|chunk| !self.next(&(tier, chunk)).is_multiple_of(5)));
    }

    fn load(&mut self, hit: &KvHit) -> bool {
        !self.next(hit).is_multiple_of(3)
    }

    fn fork(&self) -> Box<dyn KvCachePolicy> {
        Box::new(self.clone())
    }
}

fn kv_cache() -> impl Strategy<Value = KvCacheChoice> {
    prop_oneof![
        1 => Just(KvCacheChoice::BuiltIn),
        2 => any::<u64>().prop_map(|state| KvCacheChoice::Custom(Box::new(ViewHashPolicy { state }))),
    ]
}

fn scheduling() -> impl Strategy<Value = SchedulingChoice> {
    prop_oneof![
        Just(Scheduler::Fcfs.into()),
        Just(Scheduler::PriorityFcfs.into()),
        Just(Scheduler::Sjf.into()),
        Just(Scheduler::ReversePriority.into()),
        any::<u64>().prop_map(|state| SchedulingChoice::Custom(Box::new(ViewHashPolicy { state }))),
    ]
}

fn preemption() -> impl Strategy<Value = PreemptionChoice> {
    prop_oneof![
        Just(Preemption::Fcfs.into()),
        Just(Preemption::Priority.into()),
        any::<u64>().prop_map(|state| PreemptionChoice::Custom(Box::new(ViewHashPolicy { state }))),
    ]
}

/// The same configuration, with custom policies that do what the built-in ones do.
fn with_custom_policies(config: &InstanceConfig) -> InstanceConfig {
    let mut config = config.clone();
    if let SchedulingChoice::BuiltIn(scheduler) = config.policies.scheduler {
        config.policies.scheduler = SchedulingChoice::Custom(Box::new(scheduler));
    }
    if let PreemptionChoice::BuiltIn(preemption) = config.policies.preemption {
        config.policies.preemption = PreemptionChoice::Custom(Box::new(preemption));
    }
    config
}

fn options() -> impl Strategy<Value = SchedulerOptions> {
    let limit = |most: u32| prop_oneof![2 => Just(None), 1 => (0..most).prop_map(Some)];
    let set = (limit(12), any::<bool>(), 0u32..5, 0u32..6, limit(20), limit(500)).prop_map(
        |(active, adaptive_prefill_threshold, prefill_schedule_interval, watermark_blocks, requests, tokens)| {
            SchedulerOptions {
                max_num_active_seqs: active.map(|active| active + 1),
                adaptive_prefill_threshold,
                prefill_schedule_interval,
                watermark_blocks,
                max_num_queued_reqs: requests,
                max_num_queued_tokens: tokens.map(u64::from),
                ..SchedulerOptions::default()
            }
        },
    );
    prop_oneof![2 => Just(SchedulerOptions::default()), 1 => set]
}

/// Budgets that depend on the state in no useful way.
#[derive(Clone, Debug)]
struct HashedBudget(u64);

impl BatchingPolicy for HashedBudget {
    fn budget(&mut self, _: Micros, state: &StepState) -> StepBudget {
        let mut hasher = FxHasher::default();
        (self.0, state).hash(&mut hasher);
        let bits = hasher.finish();
        let one_of = |numbers: [u32; 5], at: u32| numbers[(bits >> at) as usize % 5];
        StepBudget {
            prefill_tokens: one_of([0, 1, 5, 23, u32::MAX], 40),
            prefill_requests: one_of([0, 1, 2, 5, u32::MAX], 48),
            reserve: one_of([0, 0, 1, 7, u32::MAX], 56),
        }
    }

    fn fork(&self) -> Box<dyn BatchingPolicy> {
        Box::new(self.clone())
    }
}

/// [`sarathi`] with so many tokens.
#[derive(Clone, Debug)]
struct SharedBudget(u32);

impl BatchingPolicy for SharedBudget {
    fn budget(&mut self, _: Micros, state: &StepState) -> StepBudget {
        sarathi(state, self.0)
    }

    fn fork(&self) -> Box<dyn BatchingPolicy> {
        Box::new(self.clone())
    }
}

fn batching() -> impl Strategy<Value = BatchingChoice> {
    let custom = |policy: Box<dyn BatchingPolicy>| BatchingChoice::from(policy);
    prop_oneof![
        3 => Just(BatchingChoice::default()),
        1 => (1u32..60).prop_map(move |tokens| custom(Box::new(SharedBudget(tokens)))),
        2 => any::<u64>().prop_map(move |seed| custom(Box::new(HashedBudget(seed)))),
    ]
}

fn config() -> impl Strategy<Value = InstanceConfig> {
    let limits =
        (1u32..12, 1u32..120, prop_oneof![Just(0u32), 1u32..40], prop_oneof![Just(None), (20u32..200).prop_map(Some)]);
    let kv = (prop_oneof![Just(16u32), 1u32..20], 3u32..60);
    let flags = any::<[bool; 5]>();
    let policies = (scheduling(), preemption(), kv_cache(), batching());
    (limits, kv, (flags, options()), policies, semantics(), latency(), adapters()).prop_map(
        |(limits, (block_size, total_kv_blocks), (flags, options), policies, semantics, latency, adapters)| {
            let (scheduler, preemption, kv_cache, batching) = policies;
            InstanceConfig {
                index: InstanceIndex(3),
                labels: crate::policy::InstanceLabels::default(),
                max_num_seqs: limits.0,
                max_num_batched_tokens: limits.1,
                long_prefill_token_threshold: limits.2,
                max_model_len: limits.3,
                block_size,
                total_kv_blocks,
                enable_prefix_caching: flags[0],
                enable_chunked_prefill: flags[1] || limits.2 > 0,
                async_scheduling: flags[2] && flags[3],
                reserve_full_prompt: flags[4],
                options,
                policies: InstancePolicies { scheduler, preemption, kv_cache, batching },
                classes: Arc::new(Classes::new(["", "critical", "batch"], &[])),
                blis_tiers: None,
                kv_groups: None,
                semantics,
                latency,
                offload: None,
                adapters,
            }
        },
    )
}

/// CPU tiers, on links from slow to infinitely fast.
fn tier() -> impl Strategy<Value = OffloadConfig> {
    let bandwidth = prop_oneof![Just(f64::INFINITY), 0.5..20.0_f64, 20.0..2000.0_f64];
    let eviction = prop_oneof![Just(ChunkEviction::Lru), Just(ChunkEviction::Arc)];
    let capacity = prop_oneof![1u32..12, 12u32..200];
    let sizes = (capacity, prop_oneof![2 => Just(1u32), 1 => 2u32..5], 1u64..5000);
    let store = (prop_oneof![2 => Just(0u32), 1 => 2u32..4], prop_oneof![3 => Just(true), 1 => Just(false)]);
    let links = (bandwidth, 0.5..1.0_f64, prop_oneof![Just(0u64), 1u64..2000]);
    (sizes, eviction, store, links, secondary()).prop_map(
        |(
            (capacity, blocks_per_chunk, block_bytes),
            eviction,
            (store_threshold, prompt_only),
            (alone, shared, base),
            secondary,
        )| {
            OffloadConfig {
                capacity,
                blocks_per_chunk,
                block_bytes,
                gpus: 2,
                eviction,
                store_threshold,
                prompt_only,
                speed: LinkSpeed { alone, together: alone * shared, base: Micros(base) },
                secondary,
            }
        },
    )
}

/// Tiers below a CPU tier, from slow to fast.
fn secondary() -> impl Strategy<Value = Option<SecondaryConfig>> {
    let kind = prop_oneof![Just(SecondaryKind::Files), Just(SecondaryKind::Objects)];
    let bandwidth = prop_oneof![1 => Just(f64::INFINITY), 1 => 0.05..2.0_f64, 2 => 2.0..500.0_f64];
    let backpressure = prop_oneof![
        2 => Just(BackpressurePolicy::None), 1 => Just(BackpressurePolicy::Drop), 1 => Just(BackpressurePolicy::Throttle)
    ];
    let latency = prop_oneof![Just(0u64), 1u64..3000].prop_map(Micros);
    let tier = (kind, bandwidth, latency, backpressure).prop_map(|(kind, bandwidth, latency, backpressure)| {
        Some(SecondaryConfig { kind, bandwidth, latency, backpressure, shared: false })
    });
    prop_oneof![Just(None), tier]
}

/// Configurations with a CPU tier, which BLIS does not know.
fn config_with_tier() -> impl Strategy<Value = InstanceConfig> {
    (config(), tier(), kv_cache()).prop_map(|(config, tier, kv_cache)| InstanceConfig {
        enable_prefix_caching: true,
        policies: InstancePolicies { kv_cache, ..config.policies },
        semantics: Semantics { full_hit_is_free: false, ..config.semantics },
        offload: Some(tier),
        ..config
    })
}

/// Few slots, and adapters that take longer or shorter to load than a step; the names 1 to 4 of [`requests`].
fn adapters() -> impl Strategy<Value = Option<Arc<AdapterSettings>>> {
    let costs =
        (1u32..4, 1u64..3000, 0u64..200, 0u32..50).prop_map(|(rank, from_disk, from_host, percent)| AdapterCosts {
            rank,
            from_disk: Micros(from_disk),
            from_host: Micros(from_host),
            overhead: f64::from(percent) / 100.0,
        });
    let set = (1u32..4, 1u32..6, proptest::collection::vec(costs, 3)).prop_map(|(slots, host_slots, costs)| {
        Some(Arc::new(AdapterSettings::new(slots, host_slots, (1..).map(Name).zip(costs))))
    });
    prop_oneof![2 => Just(None), 1 => set]
}

/// (gap, input, output, deadline after, priority, family, branch, shared blocks, sampling parameters)
type RequestNumbers = (u64, u32, u32, Option<u64>, i32, u32, u32, u32, (u8, u8));

fn drafts() -> impl Strategy<Value = Vec<RequestNumbers>> {
    let gap = prop_oneof![3 => Just(0u64), 3 => 0u64..3000, 1 => 0u64..30_000];
    let deadline = prop_oneof![4 => Just(None), 1 => (0u64..40_000).prop_map(Some)];
    let shared = prop_oneof![1 => Just(0u32), 2 => 0u32..40];
    let sampling = prop_oneof![2 => Just((0, 0)), 1 => any::<(u8, u8)>()];
    proptest::collection::vec((gap, 1u32..150, 0u32..60, deadline, 0i32..3, 0u32..3, 0u32..3, shared, sampling), 1..40)
}

/// The adapter of request `id`, 0 to 4, without a pattern.
fn adapter_of(id: usize) -> u32 {
    let mixed = (id as u32).wrapping_mul(0x9e37_79b1) >> 29;
    mixed.saturating_sub(3)
}

fn requests(drafts: &[RequestNumbers], block_size: u32) -> Vec<Request> {
    let mut now = 0;
    let mut requests = Vec::new();
    for (id, &(gap, input, output, deadline, priority, family, branch, shared, sampling)) in drafts.iter().enumerate() {
        now += gap;
        // A family shares its first three blocks; each of its branches shares the rest.
        let shared = shared.min((input + output) / block_size);
        let trunk = Span { first: family * 100, len: shared.min(3) };
        let rest = Span { first: 1000 + (family * 3 + branch) * 200, len: shared.saturating_sub(3) };
        requests.push(Request {
            max_output_tokens: (id % 2 == 0).then_some(output),
            deadline: deadline.map(|after| Micros(now + after)),
            priority: priority.into(),
            sampling: SamplingParams::from_bits(sampling.0, sampling.1),
            // Half of them name no adapter, and one in eight one that is none.
            tags: Tags { slo_class: Name(branch), adapter: Name(adapter_of(id)), ..Tags::default() },
            content: Content::shared(&[trunk, rest]),
            ..Request::new(RequestId(id as u32), Micros(now), input, output)
        });
    }
    requests
}

/// As [`simulate`], but from the middle of the run on with a clone.
fn simulate_with_clone(mut instance: impl Instance + Clone, requests: &[Request], horizon: Micros) -> EngineLog {
    let mut log = EngineLog::default();
    let (before, after) = requests.split_at(requests.len() / 2);
    for request in before.iter().filter(|request| request.arrival <= horizon) {
        if instance.advance(request.arrival, &mut log).is_err() {
            return simulate(instance, &[], horizon);
        }
        instance.arrive(request.arrival, request.clone());
    }
    let copy = instance.clone();
    // The original continues separately; its events must not affect the clone.
    let _ = instance.advance(horizon, &mut EngineLog { itl: log.itl.clone(), ..EngineLog::default() });
    match run_alone(copy, after.iter().cloned(), horizon, &mut log) {
        Ok(counters) => EngineLog { counters, ..log },
        Err(stuck) => EngineLog { stuck: Some(stuck.to_string()), ..EngineLog::default() },
    }
}

fn simulate(instance: impl Instance, requests: &[Request], horizon: Micros) -> EngineLog {
    simulate_into(EngineLog::default(), instance, requests, horizon)
}

fn simulate_into(mut log: EngineLog, instance: impl Instance, requests: &[Request], horizon: Micros) -> EngineLog {
    match run_alone(instance, requests.iter().cloned(), horizon, &mut log) {
        Ok(counters) => log.counters = counters,
        // The events before livelock is detected may differ: the engines report in other units.
        Err(stuck) => return EngineLog { stuck: Some(stuck.to_string()), ..EngineLog::default() },
    }
    log
}

/// An instance, its reported events, and the shared keys that it reports as cached.
#[derive(Clone)]
struct WatchedInstance<I> {
    instance: I,
    log: EngineLog,
    present: BTreeSet<BlockKey>,
    /// The same of its CPU tier.
    in_tier: BTreeSet<BlockKey>,
}

impl<I: Instance + Clone> WatchedInstance<I> {
    fn new(mut instance: I) -> Self {
        instance.watch_cache();
        instance.watch_tier();
        Self { instance, log: EngineLog::default(), present: BTreeSet::new(), in_tier: BTreeSet::new() }
    }

    fn advance(&mut self, limit: Micros) -> Result<(), NoProgress> {
        self.instance.advance(limit, &mut self.log)
    }

    fn catch_up(&mut self, now: Micros) -> &BTreeSet<BlockKey> {
        let present = &mut self.present;
        self.instance.cache_changes(now, &mut |key, is_present| {
            if is_present {
                present.insert(key)
            } else {
                present.remove(&key)
            };
        });
        present
    }

    fn tier_at(&mut self, now: Micros) -> &BTreeSet<BlockKey> {
        let in_tier = &mut self.in_tier;
        self.instance.tier_changes(now, &mut |key, is_present| {
            if is_present {
                in_tier.insert(key)
            } else {
                in_tier.remove(&key)
            };
        });
        in_tier
    }
}

/// Both engines side by side, and all keys in the requests.
struct EnginePair {
    plain: WatchedInstance<Plain>,
    fast: WatchedInstance<Fast>,
    keys: BTreeSet<BlockKey>,
}

impl EnginePair {
    fn new(config: &InstanceConfig, requests: &[Request]) -> Self {
        Self {
            plain: WatchedInstance::new(Plain::new(config.clone())),
            fast: WatchedInstance::new(Fast::new(config.clone())),
            keys: requests.iter().flat_map(|request| request.content.keys()).collect(),
        }
    }

    /// Advances both engines. Returns `false` if both are stuck.
    fn advance(&mut self, limit: Micros) -> Result<bool, TestCaseError> {
        let (plain, fast) = (self.plain.advance(limit), self.fast.advance(limit));
        prop_assert_eq!(&plain, &fast);
        Ok(plain.is_ok())
    }

    /// Checks that load and cached blocks are reported correctly and equally by both, and by a clone made before the
    /// changes were read.
    fn compare(&mut self, now: Micros, continue_with_clone: bool) -> Result<(), TestCaseError> {
        prop_assert_eq!(self.plain.instance.load(), self.fast.instance.load());
        prop_assert_eq!(self.plain.instance.waiting_tokens(), self.fast.instance.waiting_tokens());
        let (mut plain, mut fast) = (AdapterReport::default(), AdapterReport::default());
        self.plain.instance.adapters(&mut plain);
        self.fast.instance.adapters(&mut fast);
        prop_assert_eq!(plain, fast);
        let mut copy = self.fast.clone();
        let (mut last_of_plain, mut last_of_fast) = (self.plain.clone(), self.fast.clone());
        let plain = self.plain.catch_up(now);
        prop_assert_eq!(plain, self.fast.catch_up(now));
        prop_assert_eq!(plain, copy.catch_up(now));
        let plain = self.plain.tier_at(now);
        prop_assert_eq!(plain, self.fast.tier_at(now));
        prop_assert_eq!(plain, copy.tier_at(now));
        let found = |finds: &dyn Fn(BlockKey) -> bool| -> BTreeSet<BlockKey> {
            self.keys.iter().copied().filter(|&key| finds(key)).collect()
        };
        // All that has happened is published in the end.
        prop_assert_eq!(last_of_plain.catch_up(Micros::MAX), &found(&|key| self.plain.instance.finds(key)));
        prop_assert_eq!(last_of_fast.catch_up(Micros::MAX), &found(&|key| self.fast.instance.finds(key)));
        if continue_with_clone {
            self.fast = copy;
        }
        Ok(())
    }

    fn finish(self, horizon: Micros) -> Result<(), TestCaseError> {
        let (mut plain, mut fast) = (self.plain, self.fast);
        plain.log.counters = plain.instance.finish(horizon, &mut plain.log);
        fast.log.counters = fast.instance.finish(horizon, &mut fast.log);
        prop_assert_eq!(plain.log, fast.log);
        Ok(())
    }
}

/// Compares the reports of load and cache at the times of `reports`: (time since the previous one, whether to continue
/// with a clone).
fn watch(config: &InstanceConfig, requests: &[Request], reports: &[(u64, bool)]) -> Result<(), TestCaseError> {
    let mut pair = EnginePair::new(config, requests);
    let mut arrivals = requests.iter().peekable();
    let mut now = 0;
    for &(gap, continue_with_clone) in reports {
        now += gap;
        while let Some(request) = arrivals.next_if(|request| request.arrival.0 <= now) {
            if !pair.advance(request.arrival)? {
                return Ok(());
            }
            pair.plain.instance.arrive(request.arrival, request.clone());
            pair.fast.instance.arrive(request.arrival, request.clone());
        }
        if !pair.advance(Micros(now))? {
            return Ok(());
        }
        pair.compare(Micros(now), continue_with_clone)?;
    }
    pair.finish(Micros(now.saturating_sub(1)))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, max_shrink_iters: 2000, ..ProptestConfig::default() })]

    #[test]
    fn fast_equals_plain(
        config in config(),
        drafts in drafts(),
        horizon in prop_oneof![3 => Just(Micros::MAX), 1 => (1000u64..200_000).prop_map(Micros)],
    ) {
        compare(config, &drafts, horizon)?;
    }

    #[test]
    fn fast_equals_plain_with_a_cpu_tier(
        config in config_with_tier(),
        drafts in drafts(),
        horizon in prop_oneof![3 => Just(Micros::MAX), 1 => (1000u64..200_000).prop_map(Micros)],
    ) {
        compare(config, &drafts, horizon)?;
    }
}

/// Compares the results of both engines, and those of the fast one if it is observed less, custom policies are used, or
/// it goes on as a clone.
fn compare(config: InstanceConfig, drafts: &[RequestNumbers], horizon: Micros) -> Result<(), TestCaseError> {
    let requests = requests(drafts, config.block_size);
    let plain = simulate(Plain::new(config.clone()), &requests, horizon);
    let fast = simulate(Fast::new(config.clone()), &requests, horizon);
    prop_assert_eq!(&plain, &fast);
    let custom = simulate(Fast::new(with_custom_policies(&config)), &requests, horizon);
    prop_assert_eq!(&plain, &custom);
    let fast_instance = Fast::new(config.clone());
    let recording = simulate(Fast::new(config.clone()).recording(), &requests, horizon);
    prop_assert_eq!(&plain, &recording);
    if plain.stuck.is_none() {
        let without_decisions = EngineLog { without_decisions: true, ..EngineLog::default() };
        let undisturbed = simulate_into(without_decisions, Fast::new(config), &requests, horizon);
        let expected = EngineLog {
            scheduled: Vec::new(),
            preempted: Vec::new(),
            loads: Vec::new(),
            evictions: Vec::new(),
            without_decisions: true,
            ..plain.clone()
        };
        prop_assert_eq!(&expected, &undisturbed, "observing decisions changes nothing");
        plain.is_consistent()?;
    }
    if plain.stuck.is_none() {
        let forked = simulate_with_clone(fast_instance, &requests, horizon);
        prop_assert_eq!(&plain, &forked);
    }
    if plain.stuck.is_none() {
        let arrived = requests.iter().filter(|r| r.arrival <= horizon).count();
        prop_assert_eq!(plain.outcomes.len(), arrived, "every request ends exactly once");
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, max_shrink_iters: 2000, ..ProptestConfig::default() })]

    #[test]
    fn both_report_the_same_and_correctly(
        config in config(),
        drafts in drafts(),
        reports in proptest::collection::vec((prop_oneof![1u64..2000, 1u64..40_000], any::<bool>()), 1..40),
    ) {
        let requests = requests(&drafts, config.block_size);
        watch(&config, &requests, &reports)?;
    }

    #[test]
    fn both_report_the_same_with_a_cpu_tier(
        config in config_with_tier(),
        drafts in drafts(),
        reports in proptest::collection::vec((prop_oneof![1u64..2000, 1u64..40_000], any::<bool>()), 1..40),
    ) {
        let requests = requests(&drafts, config.block_size);
        watch(&config, &requests, &reports)?;
    }
}

/// Start and end of the steps in which an instance computes, in order.
#[derive(Default)]
struct BusyTimes(Vec<(Micros, Micros)>);

impl Observer for BusyTimes {
    fn interests(&self) -> Interests {
        Interests::STEPS
    }

    fn record(&mut self, event: &SimEvent<'_>) {
        if let SimEvent::Step { step, .. } = *event
            && !step.scheduled.is_empty()
        {
            self.0.push((step.now, step.end));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn a_step_starts_when_the_one_before_has_ended(config in config(), drafts in drafts()) {
        let config = InstanceConfig {
            semantics: Semantics { idle_at_step_start: false, ..config.semantics },
            ..config
        };
        let requests = requests(&drafts, config.block_size);
        let (mut plain, mut fast) = (BusyTimes::default(), BusyTimes::default());
        let _ = run_alone(Plain::new(config.clone()), requests.iter().cloned(), Micros::MAX, &mut plain);
        let _ = run_alone(Fast::new(config).recording(), requests.iter().cloned(), Micros::MAX, &mut fast);
        for steps in [plain, fast] {
            for pair in steps.0.windows(2) {
                prop_assert!(pair[0].1 <= pair[1].0, "{:?} and {:?} overlap", pair[0], pair[1]);
            }
        }
    }
}

/// Random loads are a useful test only if they reach the difficult cases.
#[test]
fn random_loads_reach_the_difficult_cases() {
    use proptest::strategy::ValueTree as _;
    use proptest::test_runner::TestRunner;

    let mut runner = TestRunner::deterministic();
    let (mut preemptions, mut hits, mut failures, mut timed_out, mut capped, mut coalesced) = (0, 0, 0, 0, 0, 0);
    let (mut waits, mut refused, mut loads, mut evictions, mut copies) = ([0; 6], 0, 0, 0, 0);
    for _ in 0..1000 {
        let config = config().new_tree(&mut runner).expect("a config").current();
        let requests = requests(&drafts().new_tree(&mut runner).expect("drafts").current(), config.block_size);
        let log = simulate(Fast::new(config), &requests, Micros::MAX);
        preemptions += log.counters.preemptions;
        hits += log.counters.prefix_cache.hits;
        failures += log.counters.kv_allocation_failures;
        let ended = |status| log.outcomes.iter().filter(|outcome| outcome.status == status).count();
        timed_out += ended(Status::TimedOut);
        capped += ended(Status::LengthCapped);
        refused += ended(Status::Rejected(Rejection::Server));
        for decision in &log.scheduled {
            match decision.result {
                SchedulingResult::Scheduled { .. } => {}
                SchedulingResult::Waits(WaitReason::TokenBudget) => waits[0] += 1,
                SchedulingResult::Waits(WaitReason::BatchFull) => waits[1] += 1,
                SchedulingResult::Waits(WaitReason::UnsplitPrompt { .. }) => waits[2] += 1,
                SchedulingResult::Waits(WaitReason::KvBlocks { .. }) => waits[3] += 1,
                SchedulingResult::Waits(WaitReason::PrefillInterval) => waits[4] += 1,
                SchedulingResult::Waits(WaitReason::KvTransfer) => unreachable!("there are no tiers"),
                SchedulingResult::Waits(WaitReason::AdapterSlot) => waits[5] += 1,
            }
        }
        for event in &log.adapters {
            match event.change {
                AdapterChange::LoadedFromDisk => loads += 1,
                AdapterChange::LoadedFromHost => copies += 1,
                AdapterChange::Evicted => evictions += 1,
            }
        }
        coalesced += log.itl.values().filter(|&&count| count > 30).count();
    }
    for (what, count) in [
        ("preemptions", preemptions),
        ("prefix hits", hits),
        ("failed final-token allocations", failures),
        ("timeouts", timed_out as u64),
        ("length caps", capped as u64),
        ("long runs of equal steps", coalesced as u64),
        ("waits for the next step's tokens", waits[0]),
        ("waits for a slot in the batch", waits[1]),
        ("waits for a whole step's tokens", waits[2]),
        ("waits for KV blocks", waits[3]),
        ("waits for a later step's prefill", waits[4]),
        ("refusals of the API server", refused as u64),
        ("waits for a slot of an adapter", waits[5]),
        ("adapters read from disk", loads),
        ("adapters copied from the host", copies),
        ("adapters evicted", evictions),
    ] {
        assert!(count > 3, "{what}: only {count} in 1000 loads");
    }
}

/// An instance with steps that all take 100 µs.
fn steady() -> InstanceConfig {
    InstanceConfig {
        index: InstanceIndex(0),
        labels: crate::policy::InstanceLabels::default(),
        max_num_seqs: 16,
        max_num_batched_tokens: 512,
        long_prefill_token_threshold: 0,
        max_model_len: None,
        block_size: 16,
        total_kv_blocks: 2000,
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
        latency: Arc::new(RandomLatency::CONSTANT),
    }
}

/// The blocks that a preempted request has generated are reused after blocks without hashes, also if it starts again and will not look
/// them up.
#[test]
fn generated_blocks_of_a_request_that_starts_again_are_reused_last() {
    let shape = RandomLatency {
        base: 0,
        per_prefill: 4,
        per_decode: 4,
        per_context: 1456,
        queueing_per_token: 17,
        ..RandomLatency::CONSTANT
    };
    let config = InstanceConfig {
        max_num_seqs: 4,
        max_num_batched_tokens: 26,
        block_size: 9,
        total_kv_blocks: 27,
        long_prefill_token_threshold: 12,
        policies: InstancePolicies {
            scheduler: Scheduler::ReversePriority.into(),
            preemption: Preemption::Priority.into(),
            ..InstancePolicies::default()
        },
        semantics: Semantics { preemption_restarts: true, ..Semantics::VLLM_0_33 },
        latency: Arc::new(shape),
        ..steady()
    };
    let draft =
        |(gap, input, output, priority): (u64, u32, u32, i32)| (gap, input, output, None, priority, 0, 0, 0, (0, 0));
    let loads = [
        (0, 27, 44, 0),
        (0, 71, 8, 0),
        (0, 23, 31, 0),
        (231, 129, 35, 2),
        (0, 4, 0, 0),
        (129, 71, 3, 2),
        (959, 6, 57, 0),
        (0, 127, 0, 0),
        (11_533, 144, 0, 2),
        (0, 144, 0, 0),
        (16_880, 10, 0, 0),
    ];
    let requests = requests(&loads.map(draft), config.block_size);
    watch(&config, &requests, &[(17_970, false), (15_334, false)]).expect("the engines agree");
}

/// Three requests at once, a batch of one, one token each: steps at 0, 100 and 200 µs.
#[test]
fn queue_time_is_the_integral_of_the_queue_length() {
    let requests: Vec<Request> = (0..3).map(|id| Request::new(RequestId(id), Micros(0), 10, 1)).collect();
    let config = InstanceConfig { max_num_seqs: 1, ..steady() };
    for (horizon, queue_time) in [
        (Micros::MAX, 100 + 200),
        (Micros(150), 100 + 100), // the step at 100 µs is the last event
        (Micros(200), 100 + 200),
        (Micros(0), 0),
    ] {
        let (plain, fast) = (Plain::new(config.clone()), Fast::new(config.clone()));
        assert_eq!(simulate(plain, &requests, horizon).counters.queue_time, Micros(queue_time), "{horizon:?}");
        assert_eq!(simulate(fast, &requests, horizon).counters.queue_time, Micros(queue_time), "{horizon:?}");
    }
}

/// The cost of a clone depends on the live requests, not on the number of requests so far.
#[test]
fn state_does_not_grow_with_history() {
    let shape = RandomLatency {
        base: 500,
        per_prefill: 2,
        per_decode: 3,
        per_context: 40,
        queueing: 10,
        ..RandomLatency::CONSTANT
    };
    let config = InstanceConfig { latency: Arc::new(shape), ..steady() };
    let with_groups = groups::of_windows(config.clone());
    let in_advance = InstanceConfig { async_scheduling: true, ..with_groups.clone() };
    for config in [config, with_groups, in_advance] {
        let (short, long) = (size_after(&config, 2_000), size_after(&config, 20_000));
        // The step log may hold a thousand entries before it is trimmed, and the pool of pages twice as many that left windows.
        let most = if config.kv_groups.is_some() { 2048 } else { 1024 };
        assert!(long <= short + most, "{short} entries after 2 000 requests, {long} after 20 000");
    }
}

fn size_after(config: &InstanceConfig, requests: u32) -> usize {
    let mut instance = Fast::new(config.clone());
    let mut log = EngineLog::default();
    for id in 0..requests {
        let arrival = Micros(u64::from(id) * 5000);
        instance.advance(arrival, &mut log).expect("not stuck");
        let request = Request::new(RequestId(id), arrival, 100 + id % 7, 40 + id % 11);
        let content = Content::shared(&[Span { first: (id % 5) * 8, len: 3 + id % 2 * 3 }]);
        instance.arrive(arrival, Request { deadline: Some(Micros(arrival.0 + 300_000_000)), content, ..request });
    }
    instance.state_size()
}
