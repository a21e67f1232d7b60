//! The built-in policies: one row each, from which names, help, parameters and bundles follow. A row gives the same
//! description as a plugin and can be loaded like one ([`BuiltIn::load`]).

use std::ops::RangeInclusive;

use blis_sim::instance::{Preemption, Scheduler};
use blis_sim::offload::ChunkEviction;
use blis_sim::policy::flow::{
    ArrivalOrder, CeilingsPolicy, Concurrency, ConcurrencyMode, EarliestDeadline, EvictionPolicy, FairnessPolicy,
    GlobalStrict, LeastAttainedService, LowestPriorityNewest, NeverSaturated, OrderingPolicy, PriorityHoldback,
    RoundRobinFlows, SaturationPolicy, SloDeadline, SoftReflective, StaticCeiling, Utilization, VirtualTokenCounter,
    WeightedFlows,
};
use blis_sim::policy::kv_cache::{KvCachePolicy, LeastRecent, Lfu, SegmentedLru, WorkloadAware};
use blis_sim::policy::{
    AdmissionPolicy, AlwaysAdmit, AlwaysBusiest, AlwaysDisaggregate, CacheAndLoad, ClassPriority, Classes,
    ConcurrencyFilter, ConstantPriority, DisaggregationPolicy, DriftPlusPenalty, EPP_PROFILE, GaieLegacy, InvertedSlo,
    LatencySlo, LeastLoaded, NeverDisaggregate, PrefixAffinity, PrefixCacheFilter, PrefixThreshold, PriorityPolicy,
    Probabilistic, RejectAll, RoundRobin, RoutingFilter, RoutingPolicy, SENT_BLOCKS, SaturationFilter, ScorerKind,
    SloBased, StepBudget, StepState, TierShed, TokenBucket, Weighted, sarathi, sglang_ratio,
};
use blis_sim::rng::Stream;
use blis_sim::scaling::{
    BestFit, DrainPolicy, Emptiest, EmptiestNode, FirstFit, Kubernetes, Newest, PlacementPolicy, Spread,
};
use blis_sim::units::Micros;

use super::parameter::{NumericParameter, ParameterValues, Rounding, TOKENS};
use crate::{LatencyKind, latency_parameters};
use blis_plugin::{Inputs, Kind, Output, PolicyParameter};

#[derive(Debug)]
pub struct BuiltIn {
    pub kind: Kind,
    /// Name as users write it; unique within its kind.
    pub name: &'static str,
    /// Summary in one line, for help and lists.
    pub about: &'static str,
    /// Parameters of the row; those of a latency model are in [`latency_parameters`].
    parameters: &'static [NumericParameter],
    /// Whether the policy has a score for every instance.
    pub(super) scores: bool,
    pub(super) build: Build,
}

/// An admission policy, or which value is invalid.
type BuiltAdmission = Result<Box<dyn AdmissionPolicy>, String>;

/// How the policy is built from the values of its parameters.
#[derive(Debug)]
pub(super) enum Build {
    /// The stream is that of the policy's own draws.
    Admission(fn(&ParameterValues, Stream) -> BuiltAdmission),
    Routing(fn(&ParameterValues) -> Result<Box<dyn RoutingPolicy>, String>),
    Filter(fn(&ParameterValues) -> RoutingFilter),
    Priority(fn(&Classes) -> Box<dyn PriorityPolicy>),
    Scheduling(Scheduler),
    Preemption(Preemption),
    /// The deployment builds the model.
    Latency(LatencyKind),
    Saturation(fn(&ParameterValues) -> Box<dyn SaturationPolicy>),
    Ceilings(fn(&ParameterValues) -> Box<dyn CeilingsPolicy>),
    /// Built also from the weights of tenants by the index of the tenant's name.
    Fairness(fn(&ParameterValues, Vec<f64>) -> Box<dyn FairnessPolicy>),
    /// Built from the targets of TTFT by the index of the class's name.
    Ordering(fn(Vec<Option<Micros>>) -> Box<dyn OrderingPolicy>),
    Eviction(fn() -> Box<dyn EvictionPolicy>),
    Drain(fn() -> Box<dyn DrainPolicy>),
    Placement(fn() -> Box<dyn PlacementPolicy>),
    /// A policy of the tier itself, and as ranks if it can be expressed so.
    ChunkEviction(ChunkEviction, Option<fn() -> Box<dyn KvCachePolicy>>),
    KvCache(fn(&ParameterValues) -> Box<dyn KvCachePolicy>),
    Disaggregation(fn(&ParameterValues) -> Box<dyn DisaggregationPolicy>),
    /// A function of its inputs, called as a plugin is; that of the default is never called.
    Function(fn(&ParameterValues, &Inputs<'_>) -> Option<Output>),
}

const fn number(
    name: &'static str,
    key: &'static str,
    default: f64,
    range: RangeInclusive<f64>,
    about: &'static str,
) -> NumericParameter {
    NumericParameter::new(name, default, range, about).with_key(key)
}

/// A weight of `weighted`. Only the ratios of weights matter.
const fn scorer(kind: ScorerKind, default: f64) -> NumericParameter {
    NumericParameter::new(kind.name(), default, 0.0..=10.0, kind.about())
}

/// A row without parameters.
const fn row(kind: Kind, name: &'static str, about: &'static str, build: Build) -> BuiltIn {
    BuiltIn { kind, name, about, parameters: &[], scores: false, build }
}

/// A batching policy.
fn batching(inputs: &Inputs<'_>, budget: impl FnOnce(&StepState) -> StepBudget) -> Option<Output> {
    let StepBudget { prefill_tokens, prefill_requests, reserve } = budget(inputs.rows.first()?.typed().first()?);
    Some(Output::Record([prefill_tokens, prefill_requests, reserve].map(u64::from).into()))
}

impl BuiltIn {
    /// Whether it is called as a plugin is.
    #[must_use]
    pub fn is_function(&self) -> bool {
        matches!(self.build, Build::Function(_)) && self.name != Self::default_of(self.kind).name
    }

    const fn with(self, parameters: &'static [NumericParameter]) -> Self {
        Self { parameters, ..self }
    }

    const fn with_scores(self) -> Self {
        Self { scores: true, ..self }
    }
}

const PROTECTED_USES: NumericParameter =
    NumericParameter::new("protected-uses", 2.0, 1.0..=1e6, "Uses from which on a chunk is protected");
const LEAST_PROBABILITY: NumericParameter = NumericParameter::new(
    "least-probability",
    0.05,
    1e-9..=0.999,
    "Probability of reuse at which a chunk is no longer worth its room",
);
const MAX_CONCURRENCY: NumericParameter =
    NumericParameter::new("max-concurrency", 100.0, 0.001..=1e9, "Requests in flight with which an instance is full");
const MAX_TOKENS: NumericParameter = NumericParameter::new(
    "max-tokens",
    1_000_000.0,
    0.001..=1e12,
    "Prompt tokens in flight with which it is full: not cached, before the first token",
);
const CONCURRENCY_MODE: NumericParameter =
    NumericParameter::new("mode", 0.0, 0.0..=2.0, "What counts: 0 requests, 1 tokens, 2 both, the fuller of them")
        .rounded(Rounding::Down);

fn concurrency_mode(set: &ParameterValues) -> ConcurrencyMode {
    match set.get("mode") {
        mode if mode < 1.0 => ConcurrencyMode::Requests,
        mode if mode < 2.0 => ConcurrencyMode::Tokens,
        _ => ConcurrencyMode::Hybrid,
    }
}

/// Priorities of classes are from -100 to 100.
const PRIORITY: RangeInclusive<f64> = -100.0..=101.0;

/// The rows of all kinds, those of a kind together, its default first.
static BUILT_INS: &[BuiltIn] = &[
    row(Kind::Admission, "always-admit", "All requests", Build::Admission(|_, _| Ok(Box::new(AlwaysAdmit)))),
    row(
        Kind::Admission,
        "token-bucket",
        "Token bucket over input tokens, refilled at a fixed rate",
        Build::Admission(|set, _| Ok(Box::new(TokenBucket::new(set.get("capacity"), set.get("refill-rate"))?))),
    )
    .with(&[
        number("capacity", "token_bucket_capacity", 10_000.0, TOKENS, "Maximum number of tokens in the bucket"),
        number("refill-rate", "token_bucket_refill_rate", 1_000.0, TOKENS, "Refill rate, tokens per second"),
    ]),
    row(Kind::Admission, "reject-all", "No request, for comparison", Build::Admission(|_, _| Ok(Box::new(RejectAll)))),
    row(
        Kind::Admission,
        "tier-shed",
        "Under load, only classes of sufficient priority",
        Build::Admission(|set, _| {
            Ok(Box::new(TierShed::new(set.get("threshold") as u64, set.get("min-priority") as i32)))
        }),
    )
    .with(&[
        number(
            "threshold",
            "tier_shed_threshold",
            0.0,
            0.0..=10_000.0,
            "Largest load of an instance up to which all are admitted, requests",
        )
        .rounded(Rounding::Down),
        number("min-priority", "tier_shed_min_priority", 0.0, PRIORITY, "Smallest priority that is admitted beyond it")
            .rounded(Rounding::Up),
    ]),
    row(
        Kind::Admission,
        "gaie-legacy",
        "When saturated, no sheddable class",
        Build::Admission(|set, _| Ok(Box::new(GaieLegacy::new(set.get("queue-depth"), set.get("kv-utilization"))?))),
    )
    .with(&[
        number(
            "queue-depth",
            "gaie_qd_threshold",
            5.0,
            0.1..=1_000.0,
            "Waiting queue length that counts as saturated, requests",
        ),
        number(
            "kv-utilization",
            "gaie_kv_threshold",
            0.8,
            0.01..=1.0,
            "KV-cache utilisation that counts as saturated, 0 to 1",
        ),
    ]),
    row(
        Kind::Admission,
        "latency-slo",
        "Sheddable classes if an instance is predicted to serve them in time (llm-d's latency-slo-admitter)",
        Build::Admission(|set, _| Ok(Box::new(LatencySlo::new(set.get("ttft-ms"))?))),
    )
    .with(&[NumericParameter::new("ttft-ms", 1000.0, 1.0..=1e7, "TTFT target of classes without one, ms")]),
    row(
        Kind::Admission,
        "probabilistic",
        "Sheddable classes by a chance that grows with the saturation (llm-d's probabilistic admitter)",
        Build::Admission(|set, stream| {
            let (queue_depth, kv_utilization) = (set.get("queue-depth"), set.get("kv-utilization"));
            let (factor, power) = (set.get("factor"), set.get("power"));
            Ok(Box::new(Probabilistic::new(factor, power, queue_depth, kv_utilization, stream)?))
        }),
    )
    .with(&[
        NumericParameter::new(
            "factor",
            300.0,
            0.001..=1e6,
            "Probability of rejection at a saturation of 1, if it were no more than 1",
        ),
        NumericParameter::new("power", 5.0, 0.1..=20.0, "Power of the saturation"),
        NumericParameter::new(
            "queue-depth",
            5.0,
            0.1..=1_000.0,
            "Waiting queue length that counts as saturated, requests",
        ),
        NumericParameter::new(
            "kv-utilization",
            0.8,
            0.01..=1.0,
            "KV-cache utilisation that counts as saturated, 0 to 1",
        ),
    ]),
    row(Kind::Routing, "round-robin", "Instances in turn", Build::Routing(|_| Ok(Box::<RoundRobin>::default()))),
    row(
        Kind::Routing,
        "least-loaded",
        "Instance with the fewest requests",
        Build::Routing(|_| Ok(Box::<LeastLoaded>::default())),
    ),
    row(Kind::Routing, WEIGHTED, "Instance with the best weighted sum of scores", Build::Routing(weighted))
        .with(&[
            scorer(ScorerKind::PrecisePrefixCache, 2.0),
            scorer(ScorerKind::QueueDepth, 1.0),
            scorer(ScorerKind::KvUtilization, 1.0),
            scorer(ScorerKind::LoadBalance, 0.0),
            scorer(ScorerKind::ActiveRequests, 0.0),
            scorer(ScorerKind::RunningRequests, 0.0),
            scorer(ScorerKind::LoadAware, 0.0),
            scorer(ScorerKind::VllmDp, 0.0),
            scorer(ScorerKind::PrefixAffinity, 0.0),
            scorer(ScorerKind::NoHitLru, 0.0),
            scorer(ScorerKind::TokenLoad, 0.0),
            scorer(ScorerKind::LoraAffinity, 0.0),
            scorer(ScorerKind::PrecisePrefixCacheShare, 0.0),
            scorer(ScorerKind::Random, 0.0),
            scorer(ScorerKind::SessionAffinity, 0.0),
            scorer(ScorerKind::PredictedLatency, 0.0),
            SENT_BLOCKS_PARAMETER,
        ])
        .with_scores(),
    row(
        Kind::Routing,
        TOKEN_AWARE,
        "Cached prefix while the wait is short, then the fewest prompt tokens (llm-d since June 2026)",
        Build::Routing(token_aware),
    )
    .with(&PREFIX_CACHE_PARAMETERS)
    .with_scores(),
    row(
        Kind::Routing,
        EPP_DEFAULT,
        "Prefixes sent before 3, short queues 2, free KV blocks 2 (llm-d without a configuration)",
        Build::Routing(|set| Ok(Box::new(Weighted::new(EPP_PROFILE.to_vec())?.with_sent_blocks(sent_blocks(set))))),
    )
    .with(&[SENT_BLOCKS_PARAMETER])
    .with_scores(),
    row(
        Kind::Routing,
        CACHE_AND_LOAD,
        "Weighted sum of free KV blocks and low load (BLIS before scorers)",
        Build::Routing(|set| Ok(Box::new(CacheAndLoad::new(set.get("cache-weight"), set.get("load-weight"))?))),
    )
    .with(&[
        number("cache-weight", "cache_weight", 1.0, 0.0..=10.0, "Weight of free KV blocks"),
        number("load-weight", "load_weight", 1.0, 0.0..=10.0, "Weight of a low load"),
    ])
    .with_scores(),
    row(
        Kind::Routing,
        "prefix-affinity",
        "Same instance for the same prompt, else the least loaded",
        Build::Routing(|_| Ok(Box::<PrefixAffinity>::default())),
    ),
    row(
        Kind::Routing,
        "always-busiest",
        "Instance with the most requests, for comparison",
        Build::Routing(|_| Ok(Box::new(AlwaysBusiest))),
    ),
    row(
        Kind::RoutingFilter,
        "prefix-cache-affinity",
        "Instances with the cached prefix, while their wait is short",
        Build::Filter(|set| RoutingFilter::PrefixCache(prefix_cache(set))),
    )
    .with(&PREFIX_CACHE_PARAMETERS),
    row(
        Kind::RoutingFilter,
        "saturation",
        "Instances that are not saturated",
        Build::Filter(|set| {
            RoutingFilter::Saturation(SaturationFilter {
                queue_depth: set.get("queue-depth"),
                kv_utilization: set.get("kv-utilization"),
                headroom: set.get("headroom"),
            })
        }),
    )
    .with(&[
        NumericParameter::new("queue-depth", 5.0, 0.1..=1e9, "Waiting requests of a saturated instance"),
        NumericParameter::new("kv-utilization", 0.8, 0.01..=1.0, "Used share of its KV blocks, 0 to 1"),
        NumericParameter::new("headroom", 0.0, 0.0..=100.0, "Share by which both may be exceeded"),
    ]),
    row(
        Kind::RoutingFilter,
        "concurrency",
        "Instances with few requests or prompt tokens in flight",
        Build::Filter(|set| {
            RoutingFilter::Concurrency(ConcurrencyFilter {
                mode: concurrency_mode(set),
                max_concurrency: set.get("max-concurrency"),
                max_tokens: set.get("max-tokens"),
                headroom: set.get("headroom"),
            })
        }),
    )
    .with(&[
        MAX_CONCURRENCY,
        MAX_TOKENS,
        NumericParameter::new("headroom", 0.0, 0.0..=100.0, "Share by which both may be exceeded"),
        CONCURRENCY_MODE,
    ]),
    row(
        Kind::Priority,
        "class",
        "Priority of the class",
        Build::Priority(|classes| Box::new(ClassPriority::new(classes))),
    ),
    row(Kind::Priority, "constant", "Same priority for all", Build::Priority(|_| Box::new(ConstantPriority))),
    row(Kind::Priority, "slo-based", "Priority grows with age", Build::Priority(|_| Box::new(SloBased))),
    row(
        Kind::Priority,
        "inverted-slo",
        "Priority falls with age, for comparison",
        Build::Priority(|_| Box::new(InvertedSlo)),
    ),
    row(Kind::Scheduling, "fcfs", "In order of arrival", Build::Scheduling(Scheduler::Fcfs)),
    row(Kind::Scheduling, "priority-fcfs", "Highest priority first", Build::Scheduling(Scheduler::PriorityFcfs)),
    row(Kind::Scheduling, "sjf", "Shortest prompt first", Build::Scheduling(Scheduler::Sjf)),
    row(
        Kind::Scheduling,
        "reverse-priority",
        "Lowest priority first, for comparison",
        Build::Scheduling(Scheduler::ReversePriority),
    ),
    row(Kind::Preemption, "fcfs", "By order of arrival", Build::Preemption(Preemption::Fcfs)),
    row(Kind::Preemption, "priority", "By priority", Build::Preemption(Preemption::Priority)),
    latency(LatencyKind::TrainedPhysics, "Physical terms with fitted weights (BLIS)"),
    latency(LatencyKind::Physics, "Kernels on measured curves, calibrated against real servers"),
    latency(LatencyKind::Roofline, "The larger of compute and memory time"),
    latency(LatencyKind::Blackbox, "Linear in input and output tokens, fitted per model, GPU and vLLM version"),
    row(
        Kind::Saturation,
        "utilization",
        "Waiting requests and KV blocks in use, by instance",
        Build::Saturation(|set| {
            let staleness = Micros((set.get("staleness-ms") * 1000.0).round() as u64);
            Box::new(Utilization {
                queue_depth: set.get("queue-depth"),
                kv_utilization: set.get("kv-utilization"),
                staleness: (staleness > Micros::ZERO).then_some(staleness),
            })
        }),
    )
    .with(&[
        NumericParameter::new("queue-depth", 5.0, 0.1..=1e9, "Waiting requests with which an instance is full"),
        NumericParameter::new("kv-utilization", 0.8, 0.01..=1.0, "Share of used KV blocks with which it is full"),
        NumericParameter::new(
            "staleness-ms",
            200.0,
            0.0..=1e9,
            "Age of the signals beyond which the service counts as full, ms; 0 for never",
        ),
    ]),
    row(
        Kind::Saturation,
        "concurrency",
        "Requests or prompt tokens in flight",
        Build::Saturation(|set| {
            Box::new(Concurrency {
                mode: concurrency_mode(set),
                max_concurrency: set.get("max-concurrency"),
                max_tokens: set.get("max-tokens"),
            })
        }),
    )
    .with(&[MAX_CONCURRENCY, MAX_TOKENS, CONCURRENCY_MODE]),
    row(
        Kind::Saturation,
        "never",
        "Never: requests do not wait in the gateway",
        Build::Saturation(|_| Box::new(NeverSaturated)),
    ),
    row(
        Kind::Ceilings,
        "static",
        "The same limit for every band",
        Build::Ceilings(|set| Box::new(StaticCeiling { ceiling: set.get("limit") })),
    )
    .with(&[NumericParameter::new("limit", 1.0, 0.001..=1.0, "Saturation from which on all bands wait")]),
    row(
        Kind::Ceilings,
        "priority-holdback",
        "Limits that fall evenly from the highest band to the lowest",
        Build::Ceilings(|set| Box::new(PriorityHoldback { min: set.get("limit"), max: 1.0 })),
    )
    .with(&[NumericParameter::new("limit", 1.0, 0.001..=1.0, "Saturation from which on the lowest band waits")]),
    row(
        Kind::Ceilings,
        "soft-reflective",
        "Lower bands are served now and then as the service fills",
        Build::Ceilings(|_| Box::<SoftReflective>::default()),
    ),
    row(
        Kind::Fairness,
        "global-strict",
        "The request that is first in the dispatch order, of any tenant",
        Build::Fairness(|_, _| Box::new(GlobalStrict)),
    ),
    row(
        Kind::Fairness,
        "round-robin",
        "One tenant after the other",
        Build::Fairness(|_, _| Box::<RoundRobinFlows>::default()),
    ),
    row(
        Kind::Fairness,
        "program-aware",
        "The tenant that was served least of late",
        Build::Fairness(|set, _| Box::new(LeastAttainedService { service_weight: set.get("service-weight") })),
    )
    .with(&[NumericParameter::new(
        "service-weight",
        0.8,
        0.0..=1.0,
        "Weight of the service; the wait of the first request has the rest",
    )]),
    row(
        Kind::Fairness,
        "virtual-token-counter",
        "The tenant that was served the fewest tokens",
        Build::Fairness(|set, _| Box::new(VirtualTokenCounter::new(set.get("output-weight")))),
    )
    .with(&[NumericParameter::new(
        "output-weight",
        2.0,
        0.0..=1000.0,
        "Prompt tokens that an output token counts as",
    )]),
    row(
        Kind::Fairness,
        "weighted",
        "The tenant with the fewest dispatched requests for its weight (--fairness-weights)",
        Build::Fairness(|_, weights| Box::new(WeightedFlows::new(weights))),
    ),
    row(Kind::Ordering, "fcfs", "First come, first served", Build::Ordering(|_| Box::new(ArrivalOrder))),
    row(Kind::Ordering, "edf", "The request that expires first", Build::Ordering(|_| Box::new(EarliestDeadline))),
    row(
        Kind::Ordering,
        "slo-deadline",
        "The request with the earliest target of TTFT",
        Build::Ordering(|targets| Box::new(SloDeadline { targets })),
    ),
    row(
        Kind::Eviction,
        "lowest-priority-newest",
        "Of the lowest priority, the request that was dispatched last",
        Build::Eviction(|| Box::new(LowestPriorityNewest)),
    ),
    row(
        Kind::Drain,
        "newest",
        "One that waits for GPUs, then one that starts, then the newest",
        Build::Drain(|| Box::new(Newest)),
    ),
    row(
        Kind::Drain,
        "emptiest",
        "As newest, but of those that serve the one with the fewest requests",
        Build::Drain(|| Box::new(Emptiest)),
    ),
    row(
        Kind::Drain,
        "kubernetes",
        "As newest, but of those that serve one on the node with most of the group, then the last to be ready",
        Build::Drain(|| Box::new(Kubernetes)),
    ),
    row(
        Kind::Drain,
        "emptiest-node",
        "As newest, but of those that serve one on the node with the fewest replicas: nodes become empty",
        Build::Drain(|| Box::new(EmptiestNode)),
    ),
    row(
        Kind::Placement,
        "first-fit",
        "The first node with room, in the order of pools and nodes",
        Build::Placement(|| Box::new(FirstFit)),
    ),
    row(
        Kind::Placement,
        "best-fit",
        "The node with the fewest free GPUs that suffice",
        Build::Placement(|| Box::new(BestFit)),
    ),
    row(
        Kind::Placement,
        "spread",
        "The node with the fewest replicas of the group, then the most free GPUs",
        Build::Placement(|| Box::new(Spread)),
    ),
    row(
        Kind::KvCache,
        "lru",
        "The chunk that was used least recently, as in vLLM",
        Build::ChunkEviction(ChunkEviction::Lru, Some(|| Box::new(LeastRecent))),
    ),
    row(Kind::KvCache, "arc", "Adaptive replacement, as in vLLM", Build::ChunkEviction(ChunkEviction::Arc, None)),
    row(Kind::KvCache, "lfu", "The chunk that the fewest requests used", Build::KvCache(|_| Box::new(Lfu))),
    row(
        Kind::KvCache,
        "slru",
        "Chunks with few uses before the others, each least recently used, as in SGLang",
        Build::KvCache(|set| Box::new(SegmentedLru { protected_uses: set.get("protected-uses") as u32 })),
    )
    .with(&[PROTECTED_USES]),
    row(
        Kind::KvCache,
        "workload-aware",
        "The chunk that became improbable to be reused first, by prefix group and round",
        Build::KvCache(|set| Box::new(WorkloadAware::new(set.get("least-probability")))),
    )
    .with(&[LEAST_PROBABILITY]),
    row(
        Kind::Disaggregation,
        "never",
        "No request is prefilled elsewhere",
        Build::Disaggregation(|_| Box::new(NeverDisaggregate)),
    ),
    row(
        Kind::Disaggregation,
        "always",
        "Every request is prefilled elsewhere (llm-d's always-disagg-pd-decider)",
        Build::Disaggregation(|_| Box::new(AlwaysDisaggregate)),
    ),
    row(
        Kind::Disaggregation,
        "prefix-threshold",
        "Requests of which the chosen instance lacks many tokens (llm-d's prefix-based-pd-decider)",
        Build::Disaggregation(|set| {
            Box::new(PrefixThreshold {
                tokens: set.get("tokens") as u32,
                prompt_tokens: set.get("prompt-tokens") as u32,
                exceeds: false,
            })
        }),
    )
    .with(&[
        NumericParameter::new(
            "tokens",
            16.0,
            0.0..=1e9,
            "Tokens of the prompt that are not cached on the chosen instance; 0 for never",
        )
        .rounded(Rounding::Down),
        NumericParameter::new(
            "prompt-tokens",
            0.0,
            0.0..=1e9,
            "Tokens of the whole prompt; shorter ones are never prefilled elsewhere",
        )
        .rounded(Rounding::Down),
    ]),
    row(
        Kind::Disaggregation,
        "edpp",
        "Drift plus penalty: the backlog that it saves exceeds the missed targets of TTFT",
        Build::Disaggregation(|set| {
            Box::new(DriftPlusPenalty {
                tokens_per_second: set.get("prefill-rate"),
                target: Micros((set.get("ttft-target-ms") * 1000.0) as u64),
                deficit_s: 0.0,
            })
        }),
    )
    .with(&[
        NumericParameter::new(
            "prefill-rate",
            33_821.0,
            1.0..=1e9,
            "Prompt tokens that an instance computes per second",
        ),
        NumericParameter::new(
            "ttft-target-ms",
            1000.0,
            1.0..=1e7,
            "TTFT that requests prefilled elsewhere should have, ms",
        ),
    ]),
    row(
        Kind::Batching,
        "vllm",
        "No limits but those of the scheduler",
        Build::Function(|_, inputs| batching(inputs, |_| StepBudget::default())),
    ),
    row(
        Kind::Batching,
        "sarathi",
        "Decodes and prompts share a budget of tokens in each step",
        Build::Function(|set, inputs| batching(inputs, |state| sarathi(state, set.get("tokens") as u32))),
    )
    .with(&[
        NumericParameter::new("tokens", 512.0, 1.0..=1e6, "Tokens of a step, decodes included").rounded(Rounding::Down)
    ]),
    row(
        Kind::Batching,
        "sglang-ratio",
        "KV blocks stay free for further tokens of decoding requests (SGLang's new_token_ratio, fixed)",
        Build::Function(|set, inputs| {
            batching(inputs, |state| sglang_ratio(state, set.get("ratio"), set.get("tokens")))
        }),
    )
    .with(&[
        NumericParameter::new("ratio", 0.7, 0.0..=1.0, "Share of the further tokens for which blocks stay free"),
        NumericParameter::new(
            "tokens",
            256.0,
            0.0..=1e6,
            "Further tokens that a decoding request is expected to generate",
        ),
    ]),
];

const fn latency(kind: LatencyKind, about: &'static str) -> BuiltIn {
    row(Kind::Latency, kind.name(), about, Build::Latency(kind))
}

/// Version of all built-in policies.
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Name of the policy that a list of scorers configures.
pub(super) const WEIGHTED: &str = "weighted";
pub(super) const TOKEN_AWARE: &str = "token-aware";
pub(super) const EPP_DEFAULT: &str = "epp-default";
/// The policy that BLIS's two weights select. BLIS, bundles and results call it `weighted`.
pub(super) const CACHE_AND_LOAD: &str = "cache-and-load";

/// The parameters of `prefix-cache-affinity`, with llm-d's defaults. The throughput is that of Qwen3-32B on two H100, one prompt
/// of 8192 tokens on an idle instance.
static PREFIX_CACHE_PARAMETERS: [NumericParameter; 3] = [
    NumericParameter::new(
        "affinity",
        0.8,
        0.0..=1.0,
        "Cached share of the prompt from which an instance has the prefix",
    ),
    NumericParameter::new(
        "peak-prefill",
        15_928.0,
        TOKENS,
        "Prefill throughput of an idle instance, tokens per second",
    ),
    NumericParameter::new(
        "max-penalty-ms",
        18_000.0,
        0.0..=1e7,
        "Longest additional wait for a cached prefix, ms; 0 for any",
    ),
];

/// The filter that [`PREFIX_CACHE_PARAMETERS`] describe.
fn prefix_cache(set: &ParameterValues) -> PrefixCacheFilter {
    PrefixCacheFilter {
        affinity: set.get("affinity"),
        peak_prefill: set.get("peak-prefill"),
        max_penalty_ms: set.get("max-penalty-ms"),
    }
}

/// The parameter of `weighted` and `epp-default` that is no weight.
pub const PREFIX_CAPACITY: &str = "prefix-capacity";

const SENT_BLOCKS_PARAMETER: NumericParameter = NumericParameter::new(
    PREFIX_CAPACITY,
    SENT_BLOCKS as f64,
    1.0..=1e9,
    "KV blocks sent to each instance that the scorer prefix-affinity remembers",
)
.rounded(Rounding::Down);

/// The value of [`PREFIX_CAPACITY`].
pub(super) fn sent_blocks(set: &ParameterValues) -> u32 {
    set.get(PREFIX_CAPACITY) as u32
}

fn weighted(set: &ParameterValues) -> Result<Box<dyn RoutingPolicy>, String> {
    Ok(Box::new(weighted_sum(set)?))
}

/// A weighted sum of the scorers that have a weight, in the order of the list.
///
/// # Errors
/// If no scorer has a weight.
pub(super) fn weighted_sum(set: &ParameterValues) -> Result<Weighted, String> {
    let weighed = set.0.iter().filter(|(name, weight)| name != PREFIX_CAPACITY && *weight > 0.0);
    let scorers = weighed.map(|(name, weight)| Some((ScorerKind::find(name)?, *weight)));
    let scorers = scorers.collect::<Option<Vec<_>>>().expect("the other parameters are named as the scorers");
    Ok(Weighted::new(scorers)?.with_sent_blocks(sent_blocks(set)))
}

/// The scorer `token-load` behind the filter for cached prefixes.
fn token_aware(set: &ParameterValues) -> Result<Box<dyn RoutingPolicy>, String> {
    let scores = Weighted::new(vec![(ScorerKind::TokenLoad, 1.0)])?;
    Ok(Box::new(scores.with_filters(vec![RoutingFilter::PrefixCache(prefix_cache(set))])))
}

impl BuiltIn {
    /// The policies of `kind`, its default first.
    pub fn for_kind(kind: Kind) -> impl Iterator<Item = &'static Self> {
        BUILT_INS.iter().filter(move |row| row.kind == kind)
    }

    /// The rows of all kinds, those of a kind together.
    #[must_use]
    pub fn all() -> &'static [Self] {
        BUILT_INS
    }

    /// The policy of `kind` with the name `name`.
    #[must_use]
    pub fn find(kind: Kind, name: &str) -> Option<&'static Self> {
        Self::for_kind(kind).find(|row| row.name == name)
    }

    /// The policy `name` of any kind: a name that only one kind has, those of flow control left out if another has it,
    /// or `KIND/NAME`. `None` if there is no such built-in policy.
    ///
    /// # Errors
    /// If several kinds have a policy of that name: the full names to use instead.
    pub fn named(name: &str) -> Result<Option<&'static Self>, Ambiguous> {
        if let Some((kind, name)) = name.split_once('/') {
            let kind = Kind::ALL.into_iter().find(|known| known.name() == kind);
            return Ok(kind.and_then(|kind| Self::find(kind, name)));
        }
        let mut found: Vec<&'static Self> = BUILT_INS.iter().filter(|row| row.name == name).collect();
        // Decisions of flow control are the rare case: what shares its name with another kind needs its kind.
        if found.iter().any(|row| !row.kind.is_flow_control()) {
            found.retain(|row| !row.kind.is_flow_control());
        }
        match found[..] {
            [] => Ok(None),
            [row] => Ok(Some(row)),
            _ => Err(Ambiguous::new(name, &found)),
        }
    }

    /// The policy that decides `kind` by default.
    #[must_use]
    pub fn default_of(kind: Kind) -> &'static Self {
        Self::for_kind(kind).next().expect("every kind has a built-in policy")
    }

    /// The row and the parameter that have `key` in bundles.
    pub(super) fn by_key(key: &str) -> Option<(&'static Self, &'static NumericParameter)> {
        BUILT_INS.iter().find_map(|row| Some((row, row.parameters.iter().find(|parameter| parameter.key == key)?)))
    }

    /// The name in bundles and results: BLIS has one name for two policies.
    #[must_use]
    pub fn blis_name(&self) -> &'static str {
        if self.kind == Kind::Routing && self.name == CACHE_AND_LOAD { WEIGHTED } else { self.name }
    }

    /// The parameters in the form that plugins declare.
    #[must_use]
    pub fn parameters(&self) -> Vec<PolicyParameter> {
        self.declared().iter().map(PolicyParameter::from).collect()
    }

    fn declared(&self) -> &'static [NumericParameter] {
        match self.build {
            Build::Latency(kind) => latency_parameters::parameters(kind),
            _ => self.parameters,
        }
    }

    /// The parameter called `name`.
    pub(super) fn parameter(&self, name: &str) -> Option<&'static NumericParameter> {
        self.declared().iter().find(|parameter| parameter.name == name)
    }

    /// Whether every deployment has its own defaults of the parameters, so that the listed ones are an example.
    #[must_use]
    pub fn defaults_by_deployment(&self) -> bool {
        matches!(self.build, Build::Latency(LatencyKind::Blackbox))
    }

    /// Where the defaults of the parameters come from, if not from the registry alone.
    #[must_use]
    pub fn defaults_note(&self) -> Option<&'static str> {
        match self.build {
            Build::Latency(LatencyKind::Physics) => {
                Some("Defaults: the general fit; a deployment that was measured has its own")
            }
            Build::Latency(LatencyKind::Blackbox) => Some("Defaults: by model, GPU, TP and vLLM version"),
            Build::Latency(LatencyKind::Roofline) => Some("No parameters: it has no coefficients"),
            _ => None,
        }
    }

    /// The unique name `KIND/NAME`.
    #[must_use]
    pub fn full_name(&self) -> String {
        format!("{}/{}", self.kind, self.name)
    }

    /// The text that stands for the policy in hashes, because it has no file.
    #[must_use]
    pub fn identity(&self) -> String {
        let parameters = self.declared().iter().map(|one| format!(" {}={}", one.name, one.default));
        format!("built-in {} {VERSION}{}", self.full_name(), parameters.collect::<String>())
    }
}

/// A name that built-in policies of several kinds share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ambiguous {
    pub what: String,
    /// The full names to use instead.
    pub hint: String,
}

impl Ambiguous {
    fn new(name: &str, rows: &[&BuiltIn]) -> Self {
        let kinds: Vec<_> = rows.iter().map(|row| row.kind.what()).collect();
        let names: Vec<_> = rows.iter().map(|row| format!("`{}/{name}`", row.kind)).collect();
        Self {
            what: format!("`{name}` is the name of a {}", kinds.join(" and of a ")),
            hint: format!("write {}", names.join(" or ")),
        }
    }
}

/// The names of the built-in policies of `kind`.
#[must_use]
pub fn built_in_names(kind: Kind) -> Vec<&'static str> {
    BuiltIn::for_kind(kind).map(|row| row.name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use blis_plugin::Limits;
    use blis_sim::policy::DEFAULT_PROFILE;

    #[test]
    fn rows_are_described_as_plugins_are() {
        for (index, row) in BUILT_INS.iter().enumerate() {
            let again = BUILT_INS[..index].iter().any(|other| (other.kind, other.name) == (row.kind, row.name));
            assert!(!again && !row.about.is_empty() && !row.about.ends_with('.'), "{}", row.name);
            let loaded = row.load();
            let description = loaded.plugin.description().clone();
            assert_eq!((&*description.name, &description.kinds[..]), (row.name, &[row.kind][..]));
            description.checked(row.name, &Limits::default()).expect("it makes sense");
            assert_eq!(BuiltIn::find(row.kind, row.name).map(|found| found.name), Some(row.name));
            let full = format!("{}/{}", row.kind, row.name);
            assert_eq!(BuiltIn::named(&full).map(|found| found.map(|row| row.kind)), Ok(Some(row.kind)));
        }
        for kind in Kind::ALL {
            let least = match kind {
                // Rows of their own: `scaling.rs`.
                Kind::Scaling => 0,
                Kind::Eviction => 1,
                _ => 2,
            };
            assert!(BUILT_INS.iter().map(|row| row.kind).filter(|other| *other == kind).count() >= least, "{kind}");
        }
    }

    #[test]
    fn the_parameters_of_weighted_are_the_scorers() {
        let weighted = BuiltIn::find(Kind::Routing, WEIGHTED).expect("it is built in");
        let (capacity, weights) = weighted.parameters.split_last().expect("it has parameters");
        assert_eq!((capacity.name, capacity.default), (PREFIX_CAPACITY, f64::from(SENT_BLOCKS)));
        let weighed: Vec<_> = weights.iter().filter(|one| one.default > 0.0).collect();
        let defaults: Vec<_> = weighed.iter().map(|one| (one.name, one.default)).collect();
        assert_eq!(defaults, DEFAULT_PROFILE.map(|(kind, weight)| (kind.name(), weight)));
        let mut named: Vec<_> = weights.iter().map(|one| one.name).collect();
        let mut all = ScorerKind::ALL.map(ScorerKind::name);
        named.sort_unstable();
        all.sort_unstable();
        assert_eq!(named, all);
    }

    #[test]
    fn a_name_of_two_kinds_needs_its_kind() {
        let error = BuiltIn::named("fcfs").expect_err("two are called so");
        assert_eq!(error.what, "`fcfs` is the name of a scheduler and of a preemption policy");
        assert_eq!(error.hint, "write `scheduling/fcfs` or `preemption/fcfs`");
        for (name, kind) in
            [("round-robin", Kind::Routing), ("fairness/round-robin", Kind::Fairness), ("edf", Kind::Ordering)]
        {
            assert_eq!(BuiltIn::named(name).map(|row| row.map(|row| row.kind)), Ok(Some(kind)), "{name}");
        }
        assert_eq!(BuiltIn::named("weighted").map(|row| row.map(|row| row.kind)), Ok(Some(Kind::Routing)));
        for nothing in ["nothing", "routing/fcfs", "cooking/fcfs", "policies/mine.rhai", "a/b/c"] {
            assert!(BuiltIn::named(nothing).is_ok_and(|row| row.is_none()), "{nothing}");
        }
    }

    #[test]
    fn no_key_is_in_two_rows() {
        let keys: Vec<_> = BUILT_INS.iter().flat_map(|row| row.parameters).map(|one| one.key).collect();
        let named = keys.iter().filter(|key| !key.is_empty());
        assert!(named.clone().all(|key| keys.iter().filter(|other| *other == key).count() == 1));
        assert_eq!(named.count(), 8);
    }
}
