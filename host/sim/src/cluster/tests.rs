//! Invariants over random clusters, for every built-in policy and both engines.

mod disaggregation;
mod forks;
mod gateway;
mod live;
mod load_samples;
mod nodes;
mod peers;
mod replicas;
mod scaling_forks;
mod shared_storage;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use proptest::prelude::*;

use super::*;
use crate::adapters::{AdapterCosts, AdapterReport, AdapterSettings};
use crate::instance::{
    Fast, InstanceLoad, InstancePolicies, Plain, Preemption, SampledMoments, Scheduler, SchedulerOptions,
};
use crate::kv::tiers::{BlisTiers, samples};
use crate::latency::Blackbox;
use crate::offload::{
    BackpressurePolicy, ChunkEviction, ChunkKey, CpuTier, LinkSpeed, OffloadConfig, PeerTier, SecondaryConfig,
    SecondaryKind, SharedChunks,
};
use crate::outcome::{GatewayChoice, GatewayDecision};
use crate::policy::flow;
use crate::policy::kv_cache::CacheTier;
use crate::policy::{
    AdmissionPolicy, AlwaysAdmit, AlwaysBusiest, CacheAndLoad, ClassPriority, Classes, ClusterView, ConstantPriority,
    EventKind, Events, GaieLegacy, InvertedSlo, LeastLoaded, PrefixAffinity, PriorityPolicy, RejectAll, RequestView,
    RoundRobin, RoutingPolicy, ScorerKind, SloBased, TenantBudgets, TierShed, Ties, TokenBucket, Weighted,
};
use crate::replica::{ReplicaChange, ReplicaEvent, ReplicaReport, ReplicaState};
use crate::request::{BlockKey, Content, Name, Span, Tags};
use crate::rng::Stream;
use crate::semantics::Semantics;

/// An instance that checks its invariants at every call.
#[derive(Clone, Debug)]
struct CheckedInstance<I> {
    inner: I,
    now: Micros,
    total_kv_blocks: u32,
    max_num_seqs: u32,
    /// Whether requests hold KV blocks outside the batch, too: while they load from a CPU tier.
    loads: bool,
    /// Whether a request of the queue may hold KV blocks, because BLIS's tiers leave it what it has claimed in vain.
    claims_in_queue: bool,
    /// Whether KV blocks stay, and requests wait, for events outside of the instance.
    waits_outside: bool,
    /// Whether nothing is left at the end of a simulation without a horizon.
    ends_empty: bool,
}

impl<I: Instance> CheckedInstance<I> {
    /// An event from outside at `now`. One that follows immediately from an event of another instance comes after the other
    /// events of that microsecond.
    fn check_order(&mut self, now: Micros) {
        assert!(now.saturating_add(Micros(1)) >= self.now, "events are out of order");
        self.now = self.now.min(now);
    }

    fn check(&self) {
        let load = self.inner.load();
        assert_eq!(load.total_kv_blocks, self.total_kv_blocks);
        assert!(load.used_kv_blocks <= load.total_kv_blocks, "more KV blocks than there are: {load:?}");
        assert!(load.batch_size <= self.max_num_seqs, "{load:?}");
        if self.waits_outside {
            assert!(self.inner.next_event().is_none_or(|at| at >= self.now), "an event in the past");
            return;
        }
        let may_hold = self.loads && self.inner.next_event().is_some() || self.claims_in_queue && load.queue_depth > 0;
        if load.batch_size == 0 && !may_hold {
            assert_eq!(load.used_kv_blocks, 0, "KV blocks were lost: {load:?}");
        }
        if load.queue_depth + load.batch_size > 0 {
            assert!(self.inner.next_event().is_some(), "requests wait without a next event: {load:?}");
        }
        assert!(self.inner.next_event().is_none_or(|at| at >= self.now), "an event in the past");
    }
}

impl<I: Instance> Instance for CheckedInstance<I> {
    fn arrive(&mut self, now: Micros, request: impl Into<Box<Request>>) {
        let request = request.into();
        // A request that follows immediately from an end comes after the other events of that microsecond.
        assert!(now.saturating_add(Micros(1)) >= self.now, "arrivals are out of order");
        self.now = self.now.min(now);
        assert!(request.arrival <= now, "dispatched before it arrived");
        self.inner.arrive(now, request);
        self.check();
    }

    fn next_event(&self) -> Option<Micros> {
        self.inner.next_event()
    }

    fn next_end(&self) -> Option<Micros> {
        self.inner.next_end()
    }

    fn idle_since(&self) -> Option<Micros> {
        self.inner.idle_since()
    }

    fn earliest_end(&self, now: Micros, request: &Request) -> Micros {
        self.inner.earliest_end(now, request)
    }

    fn pending_arrivals(&self) -> usize {
        self.inner.pending_arrivals()
    }

    fn advance(&mut self, limit: Micros, observer: &mut impl Observer) -> Result<(), NoProgress> {
        let next_end = self.inner.next_end();
        let mut ended = EndCounter { observer, count: 0 };
        self.inner.advance(limit, &mut ended)?;
        if ended.count > 0 {
            assert!(
                next_end.is_some_and(|at| at < limit),
                "a request ended before the next possible end: {next_end:?}"
            );
        }
        self.now = self.now.max(limit);
        self.check();
        Ok(())
    }

    fn load(&self) -> InstanceLoad {
        self.inner.load()
    }

    fn waiting_tokens(&self) -> u64 {
        self.inner.waiting_tokens()
    }

    fn adapters(&self, report: &mut AdapterReport) {
        self.inner.adapters(report);
    }

    fn finds(&self, key: BlockKey) -> bool {
        self.inner.finds(key)
    }

    fn queue(&self) -> Vec<RequestId> {
        self.inner.queue()
    }

    fn serve_next(&mut self, id: RequestId) -> bool {
        self.inner.serve_next(id)
    }

    fn force_load(&mut self, id: RequestId, loads: bool) {
        self.inner.force_load(id, loads);
    }

    fn force_eviction(&mut self, id: RequestId, tier: CacheTier, adapter: Name) {
        self.inner.force_eviction(id, tier, adapter);
    }

    fn evict(&mut self, now: Micros, id: RequestId, observer: &mut impl Observer) -> bool {
        let evicted = self.inner.evict(now, id, observer);
        self.check();
        evicted
    }

    fn watch_cache(&mut self) {
        self.inner.watch_cache();
    }

    fn cache_changes(&mut self, now: Micros, each: &mut dyn FnMut(BlockKey, bool)) -> Option<Micros> {
        self.inner.cache_changes(now, each)
    }

    fn watch_tier(&mut self) -> u32 {
        self.inner.watch_tier()
    }

    fn tier_changes(&mut self, now: Micros, each: &mut dyn FnMut(BlockKey, bool)) {
        self.inner.tier_changes(now, each);
    }

    fn take_written_chunks(&mut self) -> Vec<(ChunkKey, Micros)> {
        self.inner.take_written_chunks()
    }

    fn share_chunks(&mut self, content: &SharedChunks) {
        self.inner.share_chunks(content);
    }

    fn peers(&mut self) -> Option<(&mut PeerTier, &mut CpuTier)> {
        self.inner.peers()
    }

    fn reserve(&mut self, request: &Request) -> bool {
        let reserved = self.inner.reserve(request);
        self.check();
        reserved
    }

    fn arrive_prefilled(&mut self, now: Micros, request: Box<Request>) {
        self.check_order(now);
        self.inner.arrive_prefilled(now, request);
        self.check();
    }

    fn next_read(&self) -> Option<Micros> {
        self.inner.next_read()
    }

    fn take_reads(&mut self) -> Vec<crate::instance::KvRead> {
        self.inner.take_reads()
    }

    fn read_ended(&mut self, now: Micros, id: RequestId) {
        self.check_order(now);
        self.inner.read_ended(now, id);
        self.check();
    }

    fn release_prefilled(&mut self, now: Micros, id: RequestId) {
        self.check_order(now);
        self.inner.release_prefilled(now, id);
        self.check();
    }

    fn pins(&self) -> usize {
        self.inner.pins()
    }

    fn finish(self, horizon: Micros, observer: &mut impl Observer) -> Counters {
        if self.ends_empty && horizon == Micros::MAX {
            assert_eq!(self.inner.pins(), 0, "KV blocks stay for a request that has ended");
            assert_eq!(self.inner.load().used_kv_blocks, 0, "KV blocks were lost: {:?}", self.inner.load());
        }
        self.inner.finish(horizon, observer)
    }
}

/// Counts the requests that end.
struct EndCounter<'a, O> {
    observer: &'a mut O,
    count: u32,
}

impl<O: Observer> Observer for EndCounter<'_, O> {
    fn interests(&self) -> Interests {
        self.observer.interests() | Interests::OUTCOMES
    }

    fn record(&mut self, event: &SimEvent<'_>) {
        self.count += u32::from(matches!(event, SimEvent::Outcome(_)));
        self.observer.record(event);
    }
}

/// The events and results of a simulation.
#[derive(Clone, Debug, Default, PartialEq)]
struct SimulationLog {
    outcomes: BTreeMap<RequestId, Outcome>,
    itl: BTreeMap<(InstanceIndex, Micros), u64>,
    decisions: Vec<String>,
    last_decision: Micros,
    reads: Reads,
    counters: Vec<Counters>,
    /// What the scaling policy decided.
    scaling: Vec<ReplicaChange>,
    replicas: Vec<ReplicaEvent>,
    report: Option<ReplicaReport>,
}

impl Observer for SimulationLog {
    fn interests(&self) -> Interests {
        Interests::DECISIONS | Interests::INTER_TOKEN_LATENCIES | Interests::OUTCOMES | self.reads.into()
    }

    fn record(&mut self, event: &SimEvent<'_>) {
        match *event {
            SimEvent::Outcome(outcome) => {
                assert_eq!(self.outcomes.insert(outcome.id, *outcome), None, "request {} ended twice", outcome.id);
            }
            SimEvent::InterTokenLatency { instance, gap, count } => {
                *self.itl.entry((instance, gap)).or_default() += count;
            }
            SimEvent::InterTokenLatencyRetracted { instance, gap, count } => {
                let total = self.itl.get_mut(&(instance, gap)).expect("retracted what was never reported");
                *total -= count;
                if *total == 0 {
                    self.itl.remove(&(instance, gap));
                }
            }
            SimEvent::Decision(decision) => self.decided(decision),
            SimEvent::Scaling(change) => self.scaling.push(*change),
            SimEvent::Replica(event) => self.replicas.push(*event),
            SimEvent::Replicas(report) => self.report = Some(report.clone()),
            _ => {}
        }
    }
}

impl SimulationLog {
    fn decided(&mut self, decision: &Decision<'_>) {
        let (now, text) = match decision {
            Decision::Admission { request, cluster, decision, .. } => {
                (cluster.now, format!("{} {decision:?}", request.id))
            }
            Decision::Routing { request, cluster, choice, scores, .. } => {
                assert!(scores.is_empty() || scores.len() == cluster.len(), "a score for each or for none");
                (cluster.now, format!("{} {choice:?} {scores:?}", request.id))
            }
            Decision::Gateway(decision) => (decision.now, format!("{decision:?}")),
            Decision::Disaggregation(_)
            | Decision::Scheduling(_)
            | Decision::Preemption(_)
            | Decision::Load(_)
            | Decision::AdapterEviction(_) => {
                unreachable!("not of interest")
            }
        };
        assert!(now >= self.last_decision, "decisions are out of order");
        self.last_decision = now;
        self.decisions.push(text);
    }
}

#[derive(Clone, Copy, Debug)]
struct RequestDraft {
    gap: u64,
    input: u32,
    output: u32,
    deadline: Option<u64>,
    family: u32,
    shared: u32,
    class: u32,
    tenant: u32,
    model: u32,
}

fn draft() -> impl Strategy<Value = RequestDraft> {
    let gap = prop_oneof![Just(0u64), 0u64..1_500, 0u64..40_000];
    let timeout = prop_oneof![1u64..20_000, 1u64..400_000];
    (
        (gap, 1u32..60, 0u32..25, proptest::option::weighted(0.2, timeout)),
        (0u32..3, 0u32..8, 0u32..6, 0u32..3, prop_oneof![9 => Just(0u32), 1 => 7u32..9]),
    )
        .prop_map(|((gap, input, output, deadline), (family, shared, class, tenant, model))| RequestDraft {
            gap,
            input,
            output,
            deadline,
            family,
            shared,
            class,
            tenant,
            model,
        })
}

const TENANTS: u32 = 10;

/// Two adapters, the names 1 and 2: those of the families 0 and 1 of requests.
fn adapters(slots: u32) -> Arc<AdapterSettings> {
    let costs = AdapterCosts { rank: 8, from_disk: Micros(900), from_host: Micros(70), overhead: 0.02 };
    Arc::new(AdapterSettings::new(slots, 2, [(Name(1), costs), (Name(2), costs)]))
}

fn requests(drafts: &[RequestDraft], block_size: u32) -> Vec<Request> {
    let mut now = 0;
    let requests = drafts.iter().enumerate().map(|(id, draft)| {
        now += draft.gap;
        let blocks = draft.shared.min((draft.input + draft.output) / block_size);
        Request {
            deadline: draft.deadline.map(|after| Micros(now + after)),
            tags: Tags {
                slo_class: Name(draft.class),
                tenant: if draft.tenant == 0 { Name::NONE } else { Name(TENANTS + draft.tenant) },
                model: Name(draft.model),
                adapter: Name(1 + draft.family),
                session: Name(1 + draft.family),
                ..Tags::default()
            },
            content: Content::shared(&[Span { first: draft.family * 600, len: blocks }]),
            ..Request::new(RequestId(id as u32), Micros(now), draft.input, draft.output)
        }
    });
    requests.collect()
}

#[derive(Clone, Debug)]
struct ClusterSetup {
    config: ClusterConfig,
    instances: Vec<InstanceConfig>,
    policies: Policies,
    flow: Option<FlowControl>,
    replicas: Option<ReplicaSettings>,
    fcfs: bool,
}

impl ClusterSetup {
    fn serves(&self, model: Name) -> bool {
        let groups = self.replicas.as_ref().map_or(Vec::new(), |settings| settings.groups.clone());
        let in_groups = groups.iter().any(|group| group.serves.contains(&model));
        model == Name::NONE || if self.replicas.is_some() { in_groups } else { model == Name(7) }
    }

    /// An idle service.
    fn cluster<I: Instance>(&self, engine: impl Fn(InstanceConfig) -> I + Copy + Send + Sync + 'static) -> Cluster<I> {
        let cluster = Cluster::new(self.config.clone(), self.policies.clone(), self.instances.clone(), engine);
        let cluster = match &self.flow {
            Some(flow) => cluster.with_flow_control(flow.clone()),
            None => cluster,
        };
        match &self.replicas {
            Some(settings) => cluster.with_replicas(settings.clone(), engine).expect("valid settings"),
            None => cluster,
        }
    }
}

/// No flow control, or one with random policies and limits.
fn flow() -> impl Strategy<Value = Option<FlowControl>> {
    let policies = (0usize..6, 0usize..3, 0usize..5, 0usize..3);
    let limits = (proptest::option::of(1u32..20), proptest::option::of(1u32..10), any::<bool>());
    let ttl = prop_oneof![1_000u64..20_000, 1_000u64..400_000];
    let times = (proptest::option::of(ttl), prop_oneof![Just(0u64), 1u64..90_000], 1u64..5_000);
    let flags = (any::<bool>(), any::<bool>());
    let one = (policies, limits, times, flags).prop_map(|(policies, limits, times, (blis, evicts))| {
        let (saturation, ceilings, fairness, ordering) = policies;
        FlowControl {
            saturation: match saturation {
                0 => Box::new(flow::NeverSaturated),
                1 => Box::new(flow::Utilization { queue_depth: 1.0, kv_utilization: 0.5, staleness: None }),
                2 => Box::new(flow::Utilization {
                    queue_depth: 2.0,
                    kv_utilization: 0.8,
                    staleness: Some(Micros(200_000)),
                }),
                mode => Box::new(flow::Concurrency {
                    mode: [
                        flow::ConcurrencyMode::Requests,
                        flow::ConcurrencyMode::Tokens,
                        flow::ConcurrencyMode::Hybrid,
                    ][mode - 3],
                    max_concurrency: 2.0,
                    max_tokens: 50.0,
                }),
            },
            ceilings: match ceilings {
                0 => Box::new(flow::StaticCeiling { ceiling: 1.0 }),
                1 => Box::new(flow::PriorityHoldback { min: 0.4, max: 1.0 }),
                _ => Box::new(flow::SoftReflective::default()),
            },
            fairness: match fairness {
                0 => Box::new(flow::GlobalStrict),
                1 => Box::new(flow::RoundRobinFlows::default()),
                2 => Box::new(flow::LeastAttainedService { service_weight: 0.8 }),
                3 => Box::new(flow::VirtualTokenCounter::new(2.0)),
                _ => Box::new(flow::WeightedFlows::new(vec![3.0, 1.0])),
            },
            ordering: match ordering {
                0 => Box::new(flow::ArrivalOrder),
                1 => Box::new(flow::EarliestDeadline),
                _ => Box::new(flow::SloDeadline { targets: vec![Some(Micros(50_000)), None, Some(Micros(1))] }),
            },
            eviction: evicts.then(|| Box::new(flow::LowestPriorityNewest) as Box<dyn flow::EvictionPolicy>),
            settings: FlowSettings {
                eviction_grace: Micros(if blis { 0 } else { 5_000 }),
                evictions_at_once: if blis { 1 } else { 2 },
                max_requests: limits.0,
                band_requests: limits.1,
                band_bytes: None,
                displaces: limits.2,
                ttl: times.0.map(Micros),
                sweep: Micros(times.1),
                tick: Micros(times.2),
                ticks_from_enqueue: blis,
                clients_time_out: !blis,
                tenants: Vec::new(),
            },
        }
    });
    proptest::option::of(one)
}

fn setup() -> impl Strategy<Value = ClusterSetup> {
    let sizes = (1u32..6, 1u32..6, 8u32..50, 1u32..9, 12u32..60);
    let pause = || proptest::sample::select(vec![0u64, 700, 5_000, 50_000]);
    let times = (prop_oneof![Just(0u64), 1u64..3_000], prop_oneof![Just(0u64), 1u64..3_000], pause(), pause());
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    let order = (0usize..4, any::<bool>(), 0usize..4);
    let front = (0usize..7, 0..6 + ScorerKind::ALL.len(), any::<u64>(), flow());
    (sizes, times, flags, order, front).prop_map(
        |((n, seqs, tokens, block_size, blocks), times, (blis, lowest, async_scheduling), order, front)| {
            let semantics = if blis { Semantics::BLIS } else { Semantics::VLLM_0_33 };
            let (admission, routing, load, cache) = times;
            let (scheduler, by_priority, priority) = order;
            let latency = Arc::new(Blackbox::new(&[232.0, 1.7, 33.4], &[52.7, 17.2, 5.9]).expect("valid"));
            let instance = |index| InstanceConfig {
                index,
                labels: crate::policy::InstanceLabels::default(),
                max_num_seqs: seqs,
                max_num_batched_tokens: tokens.max(seqs),
                long_prefill_token_threshold: 0,
                max_model_len: None,
                block_size,
                // Every request fits, so that nothing is preempted for ever under BLIS's semantics.
                total_kv_blocks: blocks.max(90u32.div_ceil(block_size)),
                enable_prefix_caching: true,
                enable_chunked_prefill: true,
                async_scheduling: async_scheduling && !blis,
                reserve_full_prompt: false,
                options: SchedulerOptions::default(),
                policies: InstancePolicies {
                    scheduler: [Scheduler::Fcfs, Scheduler::PriorityFcfs, Scheduler::Sjf, Scheduler::ReversePriority]
                        [scheduler]
                        .into(),
                    preemption: if by_priority { Preemption::Priority } else { Preemption::Fcfs }.into(),
                    ..InstancePolicies::default()
                },
                classes: Arc::default(),
                offload: (!blis && by_priority).then_some(OffloadConfig {
                    // Small tiers, so that fetched chunks have left when the fetch arrives.
                    capacity: if front.2 / 9 % 2 == 0 { blocks } else { 1 + blocks % 8 },
                    blocks_per_chunk: 1 + u32::from(lowest),
                    block_bytes: 100_000,
                    gpus: 1,
                    eviction: if lowest { ChunkEviction::Lru } else { ChunkEviction::Arc },
                    store_threshold: 0,
                    prompt_only: true,
                    speed: LinkSpeed { alone: 200.0, together: 160.0, base: Micros(30) },
                    secondary: lowest.then_some(SecondaryConfig {
                        kind: if front.2 / 9 % 2 == 0 { SecondaryKind::Files } else { SecondaryKind::Peers },
                        bandwidth: 100.0,
                        latency: Micros([200, 1, 3_000][(front.2 / 3 % 3) as usize]),
                        backpressure: BackpressurePolicy::Throttle,
                        shared: front.2 % 3 > 0 && front.2 / 9 % 2 == 0,
                    }),
                }),
                blis_tiers: None,
                kv_groups: None,
                // Requests that are passed over are not served in order.
                adapters: (front.2 % 2 == 0 && (blis || scheduler != 0)).then(|| adapters(if blis { 2 } else { 1 })),
                semantics,
                latency: latency.clone(),
            };
            let classes = ["", "critical", "standard", "batch", "sheddable", "background"];
            ClusterSetup {
                config: ClusterConfig {
                    admission_latency: Micros(admission),
                    routing_latency: Micros(routing),
                    snapshot_refresh_interval: Micros(load),
                    cache_signal_delay: Micros(cache),
                    ties: if lowest { Ties::LowestIndex } else { Ties::Random(Stream::new(front.2, "router")) },
                    classes: Classes::new(classes, &[]),
                    serves: vec![Name(7)],
                    block_size,
                    semantics,
                    horizon: Micros::MAX,
                    abort: Abort::default(),
                },
                instances: (0..n).map(InstanceIndex).map(instance).collect(),
                policies: policies(front.0, front.1, priority),
                flow: front.3,
                replicas: None,
                fcfs: scheduler == 0,
            }
        },
    )
}

fn policies(admission: usize, routing: usize, priority: usize) -> Policies {
    let budgets = vec![(Name(TENANTS + 1), 0.1), (Name(TENANTS + 2), 0.0)];
    let admission: Box<dyn AdmissionPolicy> = match admission {
        0 => Box::new(TokenBucket::new(200.0, 900.0).expect("valid")),
        1 => Box::new(TierShed::new(3, 0)),
        2 => Box::new(GaieLegacy::new(1.0, 0.3).expect("valid")),
        3 => Box::new(TenantBudgets::new(budgets, Box::new(AlwaysAdmit)).expect("valid")),
        4 => Box::new(RejectAll),
        _ => Box::new(AlwaysAdmit),
    };
    let routing: Box<dyn RoutingPolicy> = match routing {
        0 => Box::new(RoundRobin::default()),
        1 => Box::new(LeastLoaded::default()),
        2 => Box::new(AlwaysBusiest),
        3 => Box::new(PrefixAffinity::default()),
        4 => Box::new(CacheAndLoad::new(0.6, 0.4).expect("valid")),
        5 => Box::new(Weighted::new(ScorerKind::ALL.iter().map(|&kind| (kind, 1.0)).collect()).expect("valid")),
        one => Box::new(Weighted::new(vec![(ScorerKind::ALL[one - 6], 1.0)]).expect("valid")),
    };
    let priority: Box<dyn PriorityPolicy> = match priority {
        0 => Box::new(ConstantPriority),
        1 => Box::new(SloBased),
        2 => Box::new(InvertedSlo),
        _ => Box::new(ClassPriority::new(&Classes::default())),
    };
    Policies { admission, routing, priority }
}

fn simulate<I: Instance>(
    setup: &ClusterSetup,
    engine: impl Fn(InstanceConfig) -> I + Copy + Send + Sync + 'static,
    requests: &[Request],
    reads: Reads,
) -> Result<SimulationLog, Halt> {
    simulate_sessions(setup, engine, requests, None, reads)
}

fn simulate_sessions<I: Instance>(
    setup: &ClusterSetup,
    engine: impl Fn(InstanceConfig) -> I + Copy + Send + Sync + 'static,
    requests: &[Request],
    follow_ups: Option<&mut dyn FollowUps>,
    reads: Reads,
) -> Result<SimulationLog, Halt> {
    let checked = move |config: InstanceConfig| CheckedInstance {
        now: Micros::ZERO,
        total_kv_blocks: config.total_kv_blocks,
        max_num_seqs: config.max_num_seqs,
        loads: config.offload.is_some(),
        claims_in_queue: config.blis_tiers.is_some(),
        waits_outside: false,
        ends_empty: false,
        inner: engine(config),
    };
    let cluster = setup.cluster(checked);
    let mut log = SimulationLog { reads, ..SimulationLog::default() };
    log.counters = cluster.run_sessions(requests.iter().cloned(), follow_ups, &mut log)?;
    log.reads = Reads::NOTHING;
    Ok(log)
}

/// Invariants of every run.
fn assert_sound(setup: &ClusterSetup, requests: &[Request], log: &SimulationLog) {
    let horizon = setup.config.horizon;
    let injected = requests.iter().filter(|request| request.arrival <= horizon);
    assert!(injected.map(|request| request.id).eq(log.outcomes.keys().copied()), "a request was lost or duplicated");
    for (outcome, request) in log.outcomes.values().zip(requests) {
        assert_eq!((outcome.arrival, outcome.tags), (request.arrival, request.tags));
        if let (Some(ttft), Some(admitted)) = (outcome.ttft, outcome.scheduling_delay)
            && outcome.preemptions == 0
        {
            assert!(ttft > admitted, "a token was generated before the request was scheduled");
        }
        if let Some(e2e) = outcome.e2e {
            assert!(Some(e2e) >= outcome.ttft && outcome.completed());
        }
        let refused = matches!(outcome.status, Status::Rejected(_));
        let waits = matches!(outcome.status, Status::Arriving | Status::InGateway)
            || setup.flow.is_some() && outcome.status == Status::TimedOut;
        assert!(outcome.instance.is_some() || refused || waits, "{outcome:?}");
        assert!(!(refused && outcome.instance.is_some()));
        let foreign = !setup.serves(request.tags.model);
        if horizon == Micros::MAX {
            assert!(
                outcome.completed()
                    || refused
                    || matches!(outcome.status, Status::TimedOut | Status::Dropped(_))
                    || setup.flow.is_some() && outcome.status == Status::Evicted,
                "unfinished at the end of the simulation: {outcome:?}"
            );
            assert!(!foreign || outcome.instance.is_none(), "a request for another model was served");
        }
    }
    // A request that waits for a load is overtaken.
    let loads = setup.instances.iter().any(|instance| instance.offload.is_some());
    if setup.fcfs && setup.flow.is_none() && !loads {
        assert_in_order(log);
    }
}

/// Under fcfs no request overtakes another: requests enter the batch in the order in which they joined the queue.
fn assert_in_order(log: &SimulationLog) {
    let mut latest: BTreeMap<InstanceIndex, (Micros, Micros)> = BTreeMap::new();
    let fixed_delay = Micros(232 + 2 * 60);
    for outcome in log.outcomes.values().filter(|outcome| outcome.preemptions == 0) {
        let (Some(instance), Some(delay)) = (outcome.instance, outcome.scheduling_delay) else { continue };
        let entered = outcome.arrival + delay;
        if let Some(&(arrival, before)) = latest.get(&instance)
            && arrival + fixed_delay < outcome.arrival
        {
            assert!(entered >= before, "request {} overtook", outcome.id);
        }
        latest.insert(instance, (outcome.arrival, entered));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, max_shrink_iters: 1000, ..ProptestConfig::default() })]

    #[test]
    fn random_clusters_keep_the_invariants(
        mut setup in setup(),
        drafts in proptest::collection::vec(draft(), 1..50),
        horizon in prop_oneof![3 => Just(Micros::MAX), 1 => (1_000u64..900_000).prop_map(Micros)],
    ) {
        setup.config.horizon = horizon;
        let requests = requests(&drafts, setup.config.block_size);
        let everything = Reads {
            load: true,
            in_flight: true,
            cached_blocks: true,
            cpu_cached_blocks: true,
            tokens: true,
            latencies: true,
            waiting_tokens: true,
            adapters: true,
        };
        match (simulate(&setup, Fast::new, &requests, Reads::NOTHING), simulate(&setup, Plain::new, &requests, Reads::NOTHING)) {
            (Ok(fast), Ok(plain)) => {
                assert_sound(&setup, &requests, &fast);
                prop_assert_eq!(&fast, &plain);
                // An observer that reads everything changes nothing.
                prop_assert_eq!(&simulate(&setup, Fast::new, &requests, everything).expect("as before"), &fast);
            }
            // Only under BLIS's semantics can requests preempt each other for ever.
            (Err(fast), Err(plain)) => {
                prop_assert!(setup.config.semantics == Semantics::BLIS, "{fast}");
                prop_assert_eq!(fast, plain);
            }
            (fast, plain) => prop_assert!(false, "{:?} {:?}", fast.err(), plain.err()),
        }
    }
}

/// The same service as BLIS has it, each instance with `tiers`.
fn with_tiers(mut setup: ClusterSetup, tiers: BlisTiers) -> ClusterSetup {
    setup.config.semantics = Semantics::BLIS;
    setup.fcfs = false; // requests that wait for storage are overtaken
    let tiers = Arc::new(tiers);
    for instance in &mut setup.instances {
        (instance.semantics, instance.async_scheduling) = (Semantics::BLIS, false);
        (instance.offload, instance.blis_tiers) = (None, Some(Arc::clone(&tiers)));
    }
    setup
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, max_shrink_iters: 1000, ..ProptestConfig::default() })]

    #[test]
    fn random_clusters_with_tiers_keep_the_invariants(
        setup in setup(),
        tiers in samples::tiers(),
        drafts in proptest::collection::vec(draft(), 1..50),
    ) {
        let setup = with_tiers(setup, tiers);
        let requests = requests(&drafts, setup.config.block_size);
        let everything = Reads { load: true, in_flight: true, cached_blocks: true, waiting_tokens: true, ..Reads::NOTHING };
        if let Ok(plain) = simulate(&setup, Plain::new, &requests, Reads::NOTHING) {
            assert_sound(&setup, &requests, &plain);
            prop_assert_eq!(&simulate(&setup, Plain::new, &requests, everything).expect("as before"), &plain);
        }
    }
}

/// With other seeds, the test above took these KV blocks for lost: with BLIS's tiers a request that found its prefix in part, but no room
/// for the rest, waits with what it has claimed, and the batch may be empty meanwhile.
#[test]
fn kv_blocks_that_a_waiting_request_has_claimed_are_not_lost() {
    use proptest::strategy::ValueTree as _;
    use proptest::test_runner::TestRunner;

    let mut runner = TestRunner::deterministic();
    let strategy = (setup(), samples::tiers(), proptest::collection::vec(draft(), 1..50));
    let mut seen = 0;
    for _ in 0..2_000 {
        let (setup, tiers, drafts) = strategy.new_tree(&mut runner).expect("a setup").current();
        let setup = with_tiers(setup, tiers);
        let mut arrivals = requests(&drafts, setup.config.block_size).into_iter().peekable();
        let mut instance = Plain::new(setup.instances[0].clone());
        while let Some(at) = instance.next_event().into_iter().chain(arrivals.peek().map(|next| next.arrival)).min() {
            while let Some(request) = arrivals.next_if(|next| next.arrival <= at) {
                instance.arrive(at, request);
            }
            if instance.advance(at.saturating_add(Micros(1)), &mut ()).is_err() {
                break;
            }
            let load = instance.load();
            let is_empty = load.queue_depth + load.batch_size == 0;
            assert!(!is_empty || load.used_kv_blocks == 0, "KV blocks were lost: {load:?}");
            seen += usize::from(!is_empty && load.batch_size == 0 && load.used_kv_blocks > 0);
        }
    }
    assert!(seen > 0, "no request waited with KV blocks while the batch was empty");
}

/// After each of the first requests come some more like it, however it ended.
struct RoundClients<'a> {
    first: &'a [Request],
    rounds: u32,
    /// Think time before a round.
    think: u64,
    /// Ordered as they became known.
    followed: Vec<Request>,
}

impl FollowUps for RoundClients<'_> {
    fn next(&mut self, ended: &Outcome) -> Option<Request> {
        let first = &self.first[ended.id.index() % self.first.len()];
        let round = ended.id.0 / self.first.len() as u32 + 1;
        let arrival = ended.ended_at + Micros(self.think * u64::from(1 + round % 2));
        let request = Request {
            id: RequestId(first.id.0 + round * self.first.len() as u32),
            arrival,
            deadline: first.deadline.map(|deadline| arrival + (deadline - first.arrival)),
            ..first.clone()
        };
        (round < self.rounds).then(|| {
            self.followed.push(request.clone());
            request
        })
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, max_shrink_iters: 1000, ..ProptestConfig::default() })]

    /// Closed-loop clients send the same requests as an open-loop list with the same arrival times.
    #[test]
    fn closed_loops_are_open_loops_of_the_same_arrivals(
        mut setup in setup(),
        drafts in proptest::collection::vec(draft(), 1..20),
        rounds in 1u32..5,
        think in prop_oneof![Just(0u64), 1u64..40_000],
        horizon in prop_oneof![3 => Just(Micros::MAX), 1 => (1_000u64..900_000).prop_map(Micros)],
    ) {
        setup.config.horizon = horizon;
        let first = requests(&drafts, setup.config.block_size);
        let mut sessions = [(); 2].map(|()| RoundClients { first: &first, rounds, think, followed: Vec::new() });
        let [fast_sessions, plain_sessions] = &mut sessions;
        let nothing = Reads::NOTHING;
        let fast = simulate_sessions(&setup, Fast::new, &first, Some(fast_sessions), nothing);
        let plain = simulate_sessions(&setup, Plain::new, &first, Some(plain_sessions), nothing);
        let (Ok(fast), Ok(plain)) = (fast, plain) else {
            prop_assert!(setup.config.semantics == Semantics::BLIS, "only under BLIS's semantics can requests preempt each other for ever");
            return Ok(());
        };
        prop_assert_eq!(&fast, &plain);
        if think == 0 {
            return Ok(()); // a request that follows immediately comes after the decisions of the same microsecond
        }
        let mut all: Vec<Request> = first.iter().chain(&sessions[0].followed).cloned().collect();
        all.sort_by_key(|request| request.arrival);
        prop_assert_eq!(&simulate(&setup, Fast::new, &all, nothing).expect("as before"), &fast);
    }
}

/// An admission policy that logs all events and decides as the inner policy does.
#[derive(Debug)]
struct EventLogger {
    inner: Box<dyn AdmissionPolicy>,
    events: Arc<Mutex<Vec<LoggedEvent>>>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum LoggedEvent {
    Event(Event),
    Decision(Micros),
}

impl AdmissionPolicy for EventLogger {
    fn reads(&self) -> Reads {
        self.inner.reads()
    }

    fn admit(&mut self, request: &RequestView<'_>, cluster: &ClusterView<'_>) -> AdmissionDecision {
        self.events.lock().unwrap().push(LoggedEvent::Decision(cluster.now));
        self.inner.admit(request, cluster)
    }

    fn events(&self) -> Events {
        Events { routed: true, first_token: true, completed: true, ended: true, rejected: true, blocks: true }
    }

    fn observe(&mut self, event: &Event) {
        self.events.lock().unwrap().push(LoggedEvent::Event(*event));
    }

    fn fork(&self) -> Box<dyn AdmissionPolicy> {
        Box::new(Self { inner: self.inner.fork(), events: Arc::clone(&self.events) })
    }
}

impl ClusterSetup {
    fn with_logger(&self) -> (Self, Arc<Mutex<Vec<LoggedEvent>>>) {
        let events = Arc::default();
        let mut setup = self.clone();
        let inner = self.policies.admission.fork();
        setup.policies.admission = Box::new(EventLogger { inner, events: Arc::clone(&events) });
        (setup, events)
    }
}

/// Every event is delivered in order, in time and once.
fn assert_events(events: &[LoggedEvent], log: &SimulationLog) {
    let (mut now, mut latest) = (Micros::ZERO, Micros::ZERO);
    let mut ends: BTreeMap<RequestId, EventKind> = BTreeMap::new();
    let mut first_tokens: BTreeMap<RequestId, Micros> = BTreeMap::new();
    let mut cached = std::collections::BTreeSet::new();
    for entry in events {
        let event = match entry {
            LoggedEvent::Decision(at) => {
                assert!(latest <= *at, "delivered before {at:?} what happens at {latest:?}");
                now = *at;
                continue;
            }
            LoggedEvent::Event(event) => event,
        };
        assert!(event.at >= latest, "out of order: {event:?} after {latest:?}");
        latest = event.at;
        match event.kind {
            EventKind::Completed | EventKind::Ended | EventKind::Rejected => {
                assert_eq!(ends.insert(event.request, event.kind), None, "{event:?} twice");
                let outcome = &log.outcomes[&event.request];
                assert_eq!((event.e2e, event.ttft, event.tags), (outcome.e2e, outcome.ttft, outcome.tags));
                assert_eq!(event.instance, outcome.instance);
            }
            EventKind::FirstToken => drop(first_tokens.insert(event.request, event.ttft.unwrap())),
            EventKind::BlockStored => assert!(cached.insert((event.instance, event.block)), "{event:?} twice"),
            EventKind::BlockEvicted => assert!(cached.remove(&(event.instance, event.block)), "{event:?} from nowhere"),
            EventKind::Routed => {}
        }
    }
    for outcome in log.outcomes.values() {
        let done = outcome.e2e.map_or(outcome.ended_at, |e2e| outcome.arrival + e2e);
        let ended = outcome.completed() || matches!(outcome.status, Status::TimedOut | Status::Dropped(_));
        if ended && done < now {
            assert!(ends.contains_key(&outcome.id), "{outcome:?} was not delivered before {now:?}");
        }
        if let Some(ttft) = outcome.ttft.filter(|&ttft| outcome.arrival + ttft < now) {
            assert_eq!(first_tokens.get(&outcome.id), Some(&ttft), "{outcome:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn policies_receive_events_in_order(setup in setup(), drafts in proptest::collection::vec(draft(), 1..60)) {
        let requests = requests(&drafts, setup.config.block_size);
        let quiet = simulate(&setup, Fast::new, &requests, Reads::NOTHING);
        let mut logs = Vec::new();
        for plain in [false, true] {
            let (listening, events) = setup.with_logger();
            let log = if plain {
                simulate(&listening, Plain::new, &requests, Reads::NOTHING)
            } else {
                simulate(&listening, Fast::new, &requests, Reads::NOTHING)
            };
            prop_assert_eq!(&log, &quiet, "receiving events changes nothing");
            let events = events.lock().unwrap().clone();
            if let Ok(log) = log {
                assert_events(&events, &log);
            }
            logs.push(events);
        }
        prop_assert_eq!(&logs[0], &logs[1], "both engines report the same events");
    }
}

/// Routes by the fewest prompt tokens in flight, and counts these itself from its own decisions and from events.
#[derive(Clone, Debug, Default)]
struct TokenCounter {
    counted: BTreeMap<RequestId, (usize, u64)>,
    /// Those of the present decision, if each instance were chosen.
    uncached: Vec<u64>,
}

impl RoutingPolicy for TokenCounter {
    fn reads(&self) -> Reads {
        Reads { tokens: true, latencies: true, cached_blocks: true, ..Reads::NOTHING }
    }

    fn route(
        &mut self,
        request: &RequestView<'_>,
        cluster: &ClusterView<'_>,
        ties: &Ties,
        _: &mut Vec<f64>,
    ) -> RoutingDecision {
        let signals = cluster.signals;
        let mut sums = vec![0; cluster.len()];
        self.counted.values().for_each(|&(instance, tokens)| sums[instance] += tokens);
        assert_eq!(signals.in_flight_tokens, sums, "request {}", request.id);
        self.uncached.clear();
        self.uncached.extend((0..cluster.len()).map(|i| {
            u64::from(request.input_tokens - (signals.cached_blocks[i] * request.block_size).min(request.input_tokens))
        }));
        let least = *sums.iter().min().expect("there are instances");
        let tied: Vec<usize> = (0..cluster.len()).filter(|&i| sums[i] == least).collect();
        RoutingDecision { target: tied[ties.pick(request.id, tied.len())], reason: Reason::None }
    }

    fn dispatched(&mut self, request: &RequestView<'_>, instance: InstanceIndex) {
        self.counted.insert(request.id, (instance.index(), self.uncached[instance.index()]));
    }

    fn events(&self) -> Events {
        Events { first_token: true, completed: true, ended: true, ..Events::NONE }
    }

    fn observe(&mut self, event: &Event) {
        self.counted.remove(&event.request);
    }

    fn fork(&self) -> Box<dyn RoutingPolicy> {
        Box::new(self.clone())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// The columns that the router keeps equal what a policy counts itself, on both engines.
    #[test]
    fn tokens_in_flight_are_those_of_requests_without_a_first_token(
        mut setup in setup(),
        drafts in proptest::collection::vec(draft(), 1..60),
    ) {
        setup.policies.routing = Box::<TokenCounter>::default();
        let requests = requests(&drafts, setup.config.block_size);
        let fast = simulate(&setup, Fast::new, &requests, Reads::NOTHING);
        prop_assert_eq!(fast, simulate(&setup, Plain::new, &requests, Reads::NOTHING));
    }
}
