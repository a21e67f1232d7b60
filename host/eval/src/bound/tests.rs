//! The bound beside policies that it must not pass.

use std::sync::Arc;

use blis_sim::cluster::{Abort, ArrivalList, Cluster, ClusterConfig, Engine, Policies};
use blis_sim::ids::{InstanceIndex, RequestId};
use blis_sim::instance::{Fast, InstanceConfig, InstancePolicies, Scheduler, SchedulerOptions};
use blis_sim::latency::Blackbox;
use blis_sim::metrics::Distribution;
use blis_sim::observer::{Interests, Observer, SimEvent};
use blis_sim::outcome::Outcome;
use blis_sim::policy::{
    AlwaysAdmit, AlwaysBusiest, CacheAndLoad, Classes, ConstantPriority, LeastLoaded, Reads, RoundRobin, RoutingPolicy,
    Ties,
};
use blis_sim::request::{Content, Span};
use blis_sim::semantics::Semantics;
use proptest::prelude::*;

use super::*;

const BLOCK: u32 = 16;

/// Steps of 5 ms, and 0.1 ms for each input token and 1 ms for each token that is decoded.
fn service(instances: u32, max_num_seqs: u32) -> BoundedService {
    let latency = Arc::new(Blackbox::new(&[300.0, 2.0, 70.0], &[5_000.0, 100.0, 1_000.0]).expect("valid"));
    let instance = InstanceConfig {
        index: InstanceIndex(0),
        labels: blis_sim::policy::InstanceLabels::default(),
        max_num_seqs,
        max_num_batched_tokens: 512,
        long_prefill_token_threshold: 0,
        max_model_len: None,
        block_size: BLOCK,
        total_kv_blocks: 150,
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
        latency,
    };
    BoundedService { instance, instances, admission_latency: Micros(40), routing_latency: Micros(3) }
}

#[derive(Default)]
struct ServedOutcomes(Vec<Outcome>);

impl Observer for ServedOutcomes {
    fn interests(&self) -> Interests {
        Interests::OUTCOMES
    }

    fn record(&mut self, event: &SimEvent<'_>) {
        if let SimEvent::Outcome(outcome) = event {
            self.0.push(**outcome);
        }
    }
}

/// The outcomes of the requests that got a first token.
fn run(service: &BoundedService, arrivals: &[Request], routing: Box<dyn RoutingPolicy>) -> Vec<Outcome> {
    let front = ClusterConfig {
        admission_latency: service.admission_latency,
        routing_latency: service.routing_latency,
        snapshot_refresh_interval: Micros::ZERO,
        cache_signal_delay: Micros::ZERO,
        ties: Ties::LowestIndex,
        classes: Classes::default(),
        serves: Vec::new(),
        block_size: BLOCK,
        semantics: service.instance.semantics,
        horizon: Micros::MAX,
        abort: Abort::default(),
    };
    let policies = Policies { admission: Box::new(AlwaysAdmit), routing, priority: Box::new(ConstantPriority) };
    let instances =
        (0..service.instances).map(InstanceIndex).map(|index| InstanceConfig { index, ..service.instance.clone() });
    let cluster = Cluster::new(front, policies, instances, Fast::new);
    let mut outcomes = ServedOutcomes::default();
    let timeline = Fast::timeline(cluster, ArrivalList::new(arrivals.into()), Reads::NOTHING);
    timeline.finish(Micros::MAX, &mut outcomes).expect("it ends");
    outcomes.0.retain(|outcome| outcome.ttft.is_some());
    outcomes.0.sort_by_key(|outcome| outcome.id);
    outcomes.0
}

fn served(outcomes: &[Outcome]) -> Vec<ServedRequest> {
    let of = |outcome: &Outcome| ServedRequest {
        index: outcome.id.index(),
        generated_tokens: outcome.generated_tokens,
        completed: outcome.completed(),
    };
    outcomes.iter().map(of).collect()
}

/// Figures of a run and their bounds: mean, p95 and p99 of TTFT, then of E2E.
fn figures(service: &BoundedService, arrivals: &[Request], outcomes: &[Outcome]) -> Vec<(f64, LowerBound)> {
    let bound = ClairvoyantBound::new(service, arrivals, &served(outcomes)).expect("it ends");
    let mut ttft: Vec<Micros> = outcomes.iter().filter_map(|outcome| outcome.ttft).collect();
    let mut e2e: Vec<Micros> = outcomes.iter().filter_map(|outcome| outcome.e2e).collect();
    let of = |samples: &mut [Micros], bounds: Option<LatencyBounds>| {
        let Distribution { mean_ms, p95_ms, p99_ms, .. } = Distribution::from_samples(samples);
        let bounds = bounds.map(|LatencyBounds { mean, p95, p99 }| [mean, p95, p99]);
        [mean_ms, p95_ms, p99_ms].into_iter().zip(bounds.into_iter().flatten()).collect::<Vec<_>>()
    };
    let mut all = of(&mut ttft, bound.ttft);
    all.extend(of(&mut e2e, bound.e2e));
    all
}

/// A request with `shared` blocks of the prefix `family` and a hundred input tokens of its own.
fn request(id: u32, at_ms: u64, (family, shared): (u32, u32), output: u32) -> Request {
    Request {
        content: Content::shared(&[Span { first: family * 1_000, len: shared }]),
        ..Request::new(RequestId(id), Micros(at_ms * 1_000), shared * BLOCK + 100, output)
    }
}

fn policies() -> [Box<dyn RoutingPolicy>; 4] {
    [
        Box::new(RoundRobin::default()),
        Box::new(LeastLoaded::default()),
        Box::new(AlwaysBusiest),
        Box::new(CacheAndLoad::new(1.0, 1.0).expect("valid")),
    ]
}

#[test]
fn a_request_that_is_alone_meets_its_bound() {
    // A second apart, one instance: every prefix of an earlier request is in its cache.
    let arrivals: Vec<Request> = (0..12).map(|id| request(id, u64::from(id) * 1_000, (id % 2, 20), 30)).collect();
    for (policy, bound) in
        figures(&service(1, 8), &arrivals, &run(&service(1, 8), &arrivals, Box::new(RoundRobin::default())))
    {
        assert!((bound.ms - policy).abs() < 1e-9, "{bound:?} {policy}");
        assert_eq!(bound.relaxation, Relaxation::Alone);
    }
}

#[test]
fn under_overload_the_pooled_server_is_the_closer_bound() {
    // One request a step: 100 prompt tokens take 15 ms, each further token 6 ms; a request comes every 10 ms.
    let arrivals: Vec<Request> = (0..200).map(|id| request(id, u64::from(id) * 10, (0, 0), 6)).collect();
    let service = service(2, 1);
    let found = figures(&service, &arrivals, &run(&service, &arrivals, Box::new(LeastLoaded::default())));
    assert!(found.iter().all(|(policy, bound)| bound.ms <= *policy), "{found:?}");
    // Prompts alone are no overload: a policy could serve them first.
    let relaxations: Vec<Relaxation> = found.iter().map(|(_, bound)| bound.relaxation).collect();
    assert_eq!(relaxations, [[Relaxation::Alone; 3], [Relaxation::Pooled; 3]].concat());
    let (policy, bound) = found[3];
    assert!(bound.ms > 0.75 * policy, "mean E2E of equal requests: {bound:?} of {policy}");
}

/// The first request of a prefix is slow. A later one fills the cache of its own instance sooner than the first could
/// compute it, and the bound allows for that.
#[test]
fn a_later_request_may_fill_the_cache() {
    let arrivals = [request(0, 0, (1, 60), 2), request(1, 10, (1, 60), 2)];
    let service = service(1, 8);
    let prefixes = PrefixTable::new(&arrivals, &service.instance);
    assert_eq!(prefixes.cached_blocks(0, Micros(9_999)), 0);
    assert_eq!((prefixes.cached_blocks(0, Micros(10_000)), prefixes.cached_blocks(1, Micros(10_000))), (60, 60));
    let outcomes = run(&service, &arrivals, Box::new(RoundRobin::default()));
    let alone = alone::latencies(&service, &arrivals, &prefixes, &served(&outcomes)).expect("it ends");
    assert_eq!(alone[0].ttft, alone[1].ttft, "both find 60 blocks");
    assert!(alone[0].ttft < outcomes[0].ttft.expect("it got one"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Neither a figure nor a single request is better under any policy, scheduler, semantics or load.
    #[test]
    fn no_policy_undercuts_the_bound(
        instances in 1u32..4,
        max_num_seqs in prop_oneof![Just(1u32), 2u32..10],
        semantics in prop_oneof![Just(Semantics::VLLM_0_33), Just(Semantics::VLLM_0_15), Just(Semantics::BLIS)],
        scheduler in prop_oneof![Just(Scheduler::Fcfs), Just(Scheduler::Sjf)],
        async_scheduling in any::<bool>(),
        gaps in prop::collection::vec((0u64..400, 0u32..4, 0u32..30, 1u32..40), 2..60),
        pace in 1u64..10,
    ) {
        let mut service = service(instances, max_num_seqs);
        service.instance.semantics = semantics;
        service.instance.policies.scheduler = scheduler.into();
        service.instance.async_scheduling = async_scheduling;
        let mut at = 0;
        let mut arrivals = Vec::new();
        for (id, (gap, family, shared, output)) in (0..).zip(gaps) {
            at += gap / pace;
            arrivals.push(request(id, at, (family, shared), output));
        }
        let prefixes = PrefixTable::new(&arrivals, &service.instance);
        for routing in policies() {
            let outcomes = run(&service, &arrivals, routing);
            let alone = alone::latencies(&service, &arrivals, &prefixes, &served(&outcomes)).expect("it ends");
            for (alone, outcome) in alone.iter().zip(&outcomes) {
                prop_assert!(Some(alone.ttft) <= outcome.ttft, "{:?} {:?}", alone, outcome);
                prop_assert!(outcome.e2e.is_none_or(|e2e| alone.e2e <= e2e), "{:?} {:?}", alone, outcome);
            }
            for (policy, bound) in figures(&service, &arrivals, &outcomes) {
                prop_assert!(bound.ms <= policy + 1e-9, "{:?} {}", bound, policy);
            }
        }
    }
}
