//! Scenarios with known best decisions.

use std::sync::Arc;

use blis_sim::adapters::{AdapterCosts, AdapterSettings};
use blis_sim::cluster::{Abort, ArrivalList, Cluster, ClusterConfig, Engine, FlowControl, FlowSettings, Policies};
use blis_sim::cost::Cost;
use blis_sim::ids::{InstanceIndex, RequestId};
use blis_sim::instance::{Fast, Instance, InstanceConfig, InstancePolicies, Plain, SchedulerOptions};
use blis_sim::latency::Blackbox;
use blis_sim::outcome::Outcome;
use blis_sim::policy::flow::{
    ArrivalOrder, Concurrency, ConcurrencyMode, GlobalStrict, LowestPriorityNewest, StaticCeiling,
};
use blis_sim::policy::kv_cache::{KvCacheChoice, Lfu};
use blis_sim::policy::{
    AdmissionPolicy, AlwaysAdmit, AlwaysBusiest, Classes, ConstantPriority, LeastLoaded, Reads, RejectAll, RoundRobin,
    RoutingPolicy, ScorerKind, Ties, TokenBucket, Weighted,
};
use blis_sim::request::{Content, Name, Request, Span, Tags};
use blis_sim::semantics::Semantics;
use blis_sim::units::Micros;

use super::*;
use blis_plugin::{Column, rows};
use strum::VariantArray as _;

/// The texts of names; a request without a class has the first one.
const CLASSES: [&str; 3] = ["", "critical", "background"];

#[derive(Debug)]
struct TestService {
    instances: u32,
    max_num_seqs: u32,
    refresh: u64,
    admission: Box<dyn AdmissionPolicy>,
    routing: Box<dyn RoutingPolicy>,
    /// The routing policy that is asked for its decisions.
    advisor: Box<dyn RoutingPolicy>,
    flow: Option<FlowControl>,
    /// LoRA adapters, and the policy that decides which one makes room.
    adapters: Option<(Arc<AdapterSettings>, KvCacheChoice)>,
}

impl TestService {
    fn new(instances: u32, routing: impl RoutingPolicy + 'static) -> Self {
        let (admission, advisor) = (Box::new(AlwaysAdmit), routing.fork());
        let routing = Box::new(routing);
        Self { instances, max_num_seqs: 8, refresh: 0, admission, routing, advisor, flow: None, adapters: None }
    }

    fn copy(&self) -> Self {
        let &Self { instances, max_num_seqs, refresh, .. } = self;
        let (admission, routing, advisor) = (self.admission.fork(), self.routing.fork(), self.advisor.fork());
        let (flow, adapters) = (self.flow.clone(), self.adapters.clone());
        Self { instances, max_num_seqs, refresh, admission, routing, advisor, flow, adapters }
    }

    fn cluster<I: Instance>(&self, engine: impl Fn(InstanceConfig) -> I) -> Cluster<I> {
        // Steps of 5 ms, and 0.1 ms for each input token and 1 ms for each token that is decoded.
        let latency = Arc::new(Blackbox::new(&[0.0; 3], &[5_000.0, 100.0, 1_000.0]).expect("valid"));
        let instance = |index| InstanceConfig {
            index,
            labels: blis_sim::policy::InstanceLabels::default(),
            max_num_seqs: self.max_num_seqs,
            max_num_batched_tokens: 2_048,
            long_prefill_token_threshold: 0,
            max_model_len: None,
            block_size: 16,
            total_kv_blocks: 2_000,
            enable_prefix_caching: true,
            enable_chunked_prefill: true,
            async_scheduling: false,
            reserve_full_prompt: false,
            options: SchedulerOptions::default(),
            policies: InstancePolicies {
                kv_cache: self.adapters.as_ref().map(|(_, policy)| policy.clone()).unwrap_or_default(),
                ..InstancePolicies::default()
            },
            classes: Arc::default(),
            offload: None,
            blis_tiers: None,
            kv_groups: None,
            adapters: self.adapters.as_ref().map(|(adapters, _)| Arc::clone(adapters)),
            semantics: Semantics::VLLM_0_33,
            latency: latency.clone(),
        };
        let config = ClusterConfig {
            admission_latency: Micros::ZERO,
            routing_latency: Micros::ZERO,
            snapshot_refresh_interval: Micros(self.refresh),
            cache_signal_delay: Micros::ZERO,
            ties: Ties::LowestIndex,
            classes: Classes::new(CLASSES, &[]),
            serves: Vec::new(),
            block_size: 16,
            semantics: Semantics::VLLM_0_33,
            horizon: Micros::MAX,
            abort: Abort::default(),
        };
        let policies = Policies {
            admission: self.admission.fork(),
            routing: self.routing.fork(),
            priority: Box::new(ConstantPriority),
        };
        let cluster = Cluster::new(config, policies, (0..self.instances).map(InstanceIndex).map(instance), engine);
        match &self.flow {
            Some(flow) => cluster.with_flow_control(flow.clone()),
            None => cluster,
        }
    }

    /// Computes the regret of every decision.
    fn regret(&self, requests: &[Request]) -> (Regret, Vec<DecisionRegret>) {
        let of = |fast: bool, threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
            let service = self.copy();
            pool.install(
                move || {
                    if fast { service.with(Fast::new, requests) } else { service.with(Plain::new, requests) }
                },
            )
        };
        let one = of(true, 1);
        assert_eq!(of(true, 3), one, "the number of threads changes nothing");
        assert_eq!(of(false, 2), one, "both engines have the same branches");
        one
    }

    fn with<I: Engine>(
        &self,
        engine: impl Fn(InstanceConfig) -> I + Copy,
        requests: &[Request],
    ) -> (Regret, Vec<DecisionRegret>) {
        let mut surveyor = Surveyor { survey: Survey::default(), missed: |_: &Outcome| false, inside: true };
        self.cluster(engine).run(requests.iter().cloned(), &mut surveyor).expect("it ends");
        let mut survey = surveyor.survey;
        survey.with_targets(false);
        let (samples, window, kinds) = (10_000, Some(Micros(20_000_000)), DecisionKind::VARIANTS.to_vec());
        let options = RegretOptions { samples, window, at_random: false, seed: 1, kinds };
        let window = survey.window(&options);
        let samples = survey.sample(&options);
        let mut samples = samples;
        let advisor = TestService { routing: self.advisor.fork(), ..self.copy() };
        let reads = Reads { adapters: false, ..rows::reads_of(Column::ALL) };
        let timeline =
            |service: &Self| I::timeline(service.cluster(engine), ArrivalList::new(survey.arrivals()), reads);
        add_advice(timeline(&advisor), &mut samples, &survey.actual_decisions()).expect("it ends");
        let timeline = timeline(self);
        let regrets = decision_regrets(
            timeline,
            &samples,
            &survey.actual_decisions(),
            &BranchOptions {
                window,
                longest: Micros::MAX,
                alternatives: 10,
                rollouts: true,
                signals: true,
                scaling: ScalingBranchOptions { window, requests_per_gpu: 0.0 },
            },
            &NoNames,
        )
        .expect("they end");
        (Regret::new(regrets.clone(), &survey, window), regrets)
    }
}

struct NoNames;

impl WorkloadTexts for NoNames {
    fn text(&self, _name: Name) -> String {
        String::new()
    }
}

/// A request with `shared` blocks of the prefix `family` and a hundred input tokens of its own.
fn request(id: u32, at_ms: u64, family: u32, shared: u32, output: u32) -> Request {
    Request {
        content: Content::shared(&[Span { first: family * 1_000, len: shared }]),
        ..Request::new(RequestId(id), Micros(at_ms * 1_000), shared * 16 + 100, output)
    }
}

/// Long and short outputs in turn, faster than one instance can serve.
fn long_and_short() -> Vec<Request> {
    (0..60).map(|id| request(id, u64::from(id) * 40, 0, 0, if id % 2 == 0 { 200 } else { 10 })).collect()
}

fn mean_of(kind: DecisionKind, regrets: &[DecisionRegret]) -> f64 {
    let regrets: Vec<f64> = regrets.iter().filter(|one| one.kind == kind).map(|one| one.regret_s).collect();
    regrets.iter().sum::<f64>() / regrets.len() as f64
}

#[test]
fn the_worse_the_policy_the_larger_its_regret() {
    // Round-robin routes all long requests to one instance, where they overlap while the other is idle.
    let requests: Vec<Request> =
        (0..60).map(|id| request(id, u64::from(id) * 300, 0, 0, if id % 2 == 0 { 200 } else { 10 })).collect();
    let mean = |regrets: &(Regret, Vec<DecisionRegret>)| mean_of(DecisionKind::Routing, &regrets.1);
    let least = TestService::new(2, LeastLoaded::default()).regret(&requests);
    let turns = TestService::new(2, RoundRobin::default()).regret(&requests);
    let busiest = TestService::new(2, AlwaysBusiest).regret(&requests);
    let (least, turns, busiest) = (mean(&least), mean(&turns), mean(&busiest));
    assert!(least < 0.02 && turns > 10.0 * least, "round-robin {turns}, least-loaded {least}");
    assert!(busiest > 1.5 * turns, "always-busiest {busiest}, round-robin {turns}");
}

#[test]
fn the_hot_instance_is_named() {
    let (regret, regrets) = TestService::new(3, AlwaysBusiest).regret(&long_and_short());
    let hot = &regret.kinds[&DecisionKind::Routing].situations[&Situation::HotInstance];
    assert!(hot.regret_s > 0.1 && hot.share_positive > 0.9, "{hot:?}");
    // All requests are on instance 0; the first of the others is better.
    let worst = &regret.worst[0];
    assert_eq!((worst.kind, worst.situations.as_slice()), (DecisionKind::Routing, &[Situation::HotInstance][..]));
    assert_eq!((&*worst.branches[0].decision, &*worst.branches[1].decision), ("instance_0", "instance_1"));
    assert!(worst.branches[0].cost_s > worst.branches[1].cost_s);
    let routed = regrets.iter().filter(|one| one.kind == DecisionKind::Routing);
    assert!(routed.into_iter().all(|one| one.branches[1..].iter().all(|branch| branch.status == "completed")));
}

#[test]
fn a_stale_signal_is_named() {
    // A policy that reads a queue signal of half a second ago routes all requests of that time to the same instance.
    let herd = || Weighted::new(vec![(ScorerKind::QueueDepth, 1.0)]).expect("valid");
    let requests: Vec<Request> = (0..60).map(|id| request(id, u64::from(id) * 20, 0, 0, 60)).collect();
    let stale = TestService { refresh: 500_000, max_num_seqs: 2, ..TestService::new(3, herd()) };
    let fresh = TestService { max_num_seqs: 2, ..TestService::new(3, herd()) };
    let (regret, regrets) = stale.regret(&requests);
    let section = &regret.kinds[&DecisionKind::Routing];
    assert!(section.situations[&Situation::StaleSignal].regret_s > 0.05, "{section:?}");
    let (_, with_fresh) = fresh.regret(&requests);
    let (stale, fresh) = (mean_of(DecisionKind::Routing, &regrets), mean_of(DecisionKind::Routing, &with_fresh));
    assert!(stale > 2.0 * fresh, "stale {stale}, fresh {fresh}");
    assert!(with_fresh.iter().all(|one| !one.situations.contains(&Situation::StaleSignal)));
}

#[test]
fn the_one_missed_cache_hit_is_named() {
    // Round-robin routes the second request of the prefix group to the instance that does not have the prefix.
    let requests = [
        request(0, 0, 1, 100, 5),
        request(1, 1_000, 2, 0, 5),
        request(2, 2_000, 3, 0, 5),
        request(3, 3_000, 1, 100, 5),
    ];
    let (regret, regrets) = TestService::new(2, RoundRobin::default()).regret(&requests);
    let missed: Vec<&DecisionRegret> =
        regrets.iter().filter(|one| one.situations.contains(&Situation::MissedCacheHit)).collect();
    assert_eq!(missed.iter().map(|one| &*one.request_id).collect::<Vec<_>>(), ["request_3"]);
    assert_eq!(missed[0].state.cached_blocks, [100, 0]);
    // 1 600 tokens of prefill at 0.1 ms, without an effect on other requests.
    assert!((missed[0].regret_s - 0.160).abs() < 1e-6 && missed[0].externality_s == 0.0, "{:?}", missed[0]);
    assert_eq!(missed[0].ttft_regret_ms, Some(160.0));
    // The first request, too, would better have gone where the second went. No other decision mattered.
    let regretted: Vec<&str> = regret.worst.iter().map(|one| &*one.request_id).collect();
    assert_eq!(regretted, ["request_3", "request_0"], "the same but for rounding");
    let other = |one: &&DecisionRegret| one.kind == DecisionKind::Routing && !regretted.contains(&&*one.request_id);
    assert!(regrets.iter().filter(other).all(|one| one.regret_s == 0.0));
}

#[test]
fn rejecting_requests_has_regret() {
    let requests = long_and_short();
    let idle =
        |admission: Box<dyn AdmissionPolicy>| TestService { admission, ..TestService::new(8, LeastLoaded::default()) };
    let (rejecting, regrets) = idle(Box::new(RejectAll)).regret(&requests);
    let section = &rejecting.kinds[&DecisionKind::Admission];
    assert_eq!(section.decisions, 60);
    let admissions = regrets.iter().filter(|one| one.kind == DecisionKind::Admission);
    for one in admissions {
        assert_eq!((one.branches[0].status, one.branches[1].status), ("rejected", "completed"));
        assert!(one.regret_s > 10.0, "the window is 20 s, and the service idle: {one:?}");
    }
    let half = TokenBucket::new(4_000.0, 2_000.0).expect("valid");
    let (some, _) = idle(Box::new(half)).regret(&requests);
    let (all, _) = idle(Box::new(AlwaysAdmit)).regret(&requests);
    let mean = |regret: &Regret| {
        let section = &regret.kinds[&DecisionKind::Admission];
        section.uniform.as_ref().map_or(0.0, |estimate| estimate.regret_s)
    };
    assert!(mean(&rejecting) > mean(&some) && mean(&all) < 1e-9, "{} {} {}", mean(&rejecting), mean(&some), mean(&all));
}

#[test]
fn a_short_request_behind_a_long_one_would_be_served_first() {
    // Batch size 1: behind the first request waits a long one, then short ones.
    let mut requests = vec![request(0, 0, 0, 0, 50), request(1, 10, 0, 0, 400)];
    requests.extend((2..12).map(|id| request(id, 20 + u64::from(id), 0, 0, 2)));
    let service = TestService { max_num_seqs: 1, ..TestService::new(1, RoundRobin::default()) };
    let (regret, regrets) = service.regret(&requests);
    let scheduling: Vec<&DecisionRegret> = regrets.iter().filter(|one| one.kind == DecisionKind::Scheduling).collect();
    assert!(!scheduling.is_empty());
    let best = scheduling.iter().find(|one| one.request_id == "request_2").expect("it is second once");
    assert!(best.regret_s > 1.0 && best.own_s > 1.0, "400 tokens at 6 ms would not delay it: {best:?}");
    assert!(regret.kinds[&DecisionKind::Scheduling].uniform.is_some());
}

/// A policy that is asked for its decisions sees all that was decided before, as if it had decided it: asked about its own run, it
/// decides the same each time, also if it counts.
#[test]
fn a_policy_would_decide_as_it_did() {
    let requests = long_and_short();
    let services = [
        TestService::new(3, RoundRobin::default()),
        TestService::new(3, LeastLoaded::default()),
        TestService { refresh: 300_000, ..TestService::new(3, LeastLoaded::default()) },
        TestService {
            admission: Box::new(TokenBucket::new(4_000.0, 2_000.0).expect("valid")),
            ..TestService::new(3, RoundRobin::default())
        },
    ];
    for service in services {
        let (_, regrets) = service.regret(&requests);
        let asked = regrets.iter().filter(|one| matches!(one.kind, DecisionKind::Routing | DecisionKind::Admission));
        assert!(asked.into_iter().all(|one| one.advised == Some(0)), "{service:?}");
    }
}

#[test]
fn the_decision_of_another_policy_has_a_branch() {
    let busiest = TestService { advisor: Box::new(LeastLoaded::default()), ..TestService::new(3, AlwaysBusiest) };
    let (_, regrets) = busiest.regret(&long_and_short());
    let routing: Vec<&DecisionRegret> = regrets.iter().filter(|one| one.kind == DecisionKind::Routing).collect();
    // All requests are on instance 0: the least loaded is one of the others, and the first of them of equal ones.
    let advised = |one: &&DecisionRegret| one.advised.map(|branch| one.branches[branch].decision.clone().into_owned());
    let names: Vec<Option<String>> = routing.iter().map(advised).collect();
    assert_eq!(names.len(), 60);
    assert_eq!(names[0].as_deref(), Some("instance_0"), "all are idle");
    assert!(names[1..].iter().all(|name| name.as_deref() == Some("instance_1")), "{names:?}");
    let one = routing[30];
    let column = |signal: &str| {
        let column = one.signals.columns.iter().find(|column| column.signal == signal);
        column.map(|column| column.values.clone()).unwrap_or_default()
    };
    let seen = one.observed.as_ref().expect("signals");
    assert_eq!(column("in_flight"), seen.in_flight.iter().map(|&count| f64::from(count)).collect::<Vec<_>>());
    assert!(!column("waiting_tokens").is_empty() && column("id").is_empty(), "signals, whether the policy reads them");
    assert_eq!(one.signals.rows[..2], [Some(0), Some(1)]);
}

/// One instance that serves so many requests at a time; the others wait in the gateway.
/// Two slots: adapter 1 runs once and adapter 2 twice, so that the least frequently used one, 1, makes room for 3. But 1 is what the
/// next request has, and 2 is used no more.
#[test]
fn the_adapter_that_is_used_next_should_not_have_made_room() {
    let costs = AdapterCosts { rank: 8, from_disk: Micros(1_000_000), from_host: Micros(1_000_000), overhead: 0.0 };
    let settings = AdapterSettings::new(2, 4, (1..=3).map(|name| (Name(name), costs)));
    let adapters = Some((Arc::new(settings), KvCacheChoice::Custom(Box::new(Lfu))));
    let service = TestService { adapters, ..TestService::new(1, RoundRobin::default()) };
    let uses = [(0, 1), (2, 2), (4, 2), (6, 3), (8, 1)];
    let with = |(number, (at_s, adapter)): (u32, (u64, u32))| {
        let mut request = request(number, at_s * 1_000, number, 0, 4);
        request.tags.adapter = Name(adapter);
        request
    };
    let requests: Vec<Request> = (0..).zip(uses).map(with).collect();
    let (sum, regrets) = service.regret(&requests);
    let evictions: Vec<_> = regrets.iter().filter(|one| one.kind == DecisionKind::AdapterEviction).collect();
    assert_eq!(sum.kinds[&DecisionKind::AdapterEviction].decisions, 2);
    let [third, last] = &evictions[..] else { panic!("{evictions:#?}") };
    assert_eq!((third.request_id.as_str(), third.branches.len()), ("request_3", 2));
    let seconds = |regret: &DecisionRegret| [regret.regret_s, regret.own_s, regret.rollout_regret_s];
    let whole = |seconds: [f64; 3]| seconds.map(|one| (one * 1e6).round() as i64);
    assert_eq!(
        whole(seconds(third)),
        [1_000_000, 0, 1_000_000],
        "the last request would not have waited for its adapter: {third:#?}"
    );
    assert_eq!((last.request_id.as_str(), seconds(last)), ("request_4", [0.0; 3]), "nothing follows");
}

fn with_gateway(at_a_time: f64, evicts: bool) -> TestService {
    let flow = FlowControl {
        saturation: Box::new(Concurrency {
            mode: ConcurrencyMode::Requests,
            max_concurrency: at_a_time,
            max_tokens: f64::INFINITY,
        }),
        ceilings: Box::new(StaticCeiling { ceiling: 1.0 }),
        fairness: Box::new(GlobalStrict),
        ordering: Box::new(ArrivalOrder),
        eviction: evicts.then(|| Box::new(LowestPriorityNewest) as _),
        settings: FlowSettings { ttl: None, ..FlowSettings::usual() },
    };
    TestService { flow: Some(flow), ..TestService::new(1, RoundRobin::default()) }
}

fn of_tenant(tenant: u32, request: Request) -> Request {
    Request { tags: Tags { tenant: Name(tenant), ..request.tags }, ..request }
}

fn of_class(class: u32, request: Request) -> Request {
    Request { tags: Tags { slo_class: Name(class), ..request.tags }, ..request }
}

#[test]
fn a_short_request_of_the_same_tenant_would_be_dispatched_first() {
    let mut requests = vec![request(0, 0, 0, 0, 50), request(1, 10, 0, 0, 400)];
    requests.extend((2..12).map(|id| request(id, 20 + u64::from(id), 0, 0, 2)));
    let (regret, regrets) = with_gateway(1.0, false).regret(&requests);
    assert!(!regret.kinds.contains_key(&DecisionKind::Fairness), "there is one tenant");
    let long = regrets.iter().find(|one| one.kind == DecisionKind::Ordering && one.request_id == "request_1");
    let long = long.expect("others waited behind it");
    assert_eq!((&*long.branches[0].decision, long.branches.len()), ("request_1", 11));
    // 400 tokens at 6 ms: each of the ten requests behind it would be served 2.4 s earlier if it went last. One goes first.
    assert!(long.regret_s > 2.0 && long.regret_s < 3.0, "{long:?}");
    assert!(long.own_s < 0.0 && long.externality_s > long.regret_s, "it waits longer itself: {long:?}");
    let short = regrets.iter().find(|one| one.kind == DecisionKind::Ordering && one.request_id == "request_2");
    assert!(short.is_some_and(|short| short.regret_s < 0.01), "all behind it are alike: {short:?}");
}

#[test]
fn the_request_of_another_tenant_would_be_dispatched_first() {
    let requests = [
        of_tenant(1, request(0, 0, 0, 0, 50)),
        of_tenant(1, request(1, 10, 0, 0, 400)),
        of_tenant(2, request(2, 20, 0, 0, 2)),
    ];
    let (regret, regrets) = with_gateway(1.0, false).regret(&requests);
    let fairness: Vec<&DecisionRegret> = regrets.iter().filter(|one| one.kind == DecisionKind::Fairness).collect();
    let [only] = fairness[..] else { panic!("two flows once: {fairness:?}") };
    let decisions: Vec<&str> = only.branches.iter().map(|branch| &*branch.decision).collect();
    assert_eq!(decisions, ["request_1", "request_2"], "without texts of names");
    assert!(only.regret_s > 2.0 && only.own_s < 0.0, "{only:?}");
    assert_eq!(regret.kinds[&DecisionKind::Fairness].decisions, 1);
}

#[test]
fn an_eviction_without_need_has_regret() {
    // Two requests that may be shed are in flight, the newest nearly complete, when a critical one arrives.
    let requests = [
        of_class(2, request(0, 0, 0, 0, 400)),
        of_class(2, request(1, 10, 0, 0, 10)),
        of_class(1, request(2, 60, 0, 0, 10)),
    ];
    let (regret, regrets) = with_gateway(2.0, true).regret(&requests);
    assert_eq!(regret.kinds[&DecisionKind::Eviction].decisions, 1);
    let eviction = regrets.iter().find(|one| one.kind == DecisionKind::Eviction).expect("one was evicted");
    let branches: Vec<(&str, &str)> =
        eviction.branches.iter().map(|branch| (&*branch.decision, branch.status)).collect();
    assert_eq!(branches, [("request_1", "evicted"), ("none", "completed"), ("request_0", "completed")]);
    // An evicted request counts until the window of 20 s closes; in some 50 ms it would have been complete.
    assert!(eviction.own_s > 19.0 && eviction.externality_s.abs() < 1.0, "{eviction:?}");
    assert_eq!(eviction.branches.iter().map(|branch| branch.failed_requests).collect::<Vec<_>>(), [1, 0, 1]);
}

#[test]
fn the_look_ahead_is_no_worse_than_what_it_corrects() {
    let requests = long_and_short();
    let total = |service: &TestService, looks_ahead: bool| -> (f64, LookAhead) {
        let mut all = Cost::new(Micros::ZERO, Micros(3_600_000_000), RequestId(u32::MAX));
        let reads = Reads { load: true, in_flight: true, ..Reads::NOTHING };
        let timeline = Fast::timeline(service.cluster(Fast::new), ArrivalList::new(requests.as_slice().into()), reads);
        let window = if looks_ahead { Micros(20_000_000) } else { Micros(0) };
        let (_, found) = look_ahead(timeline, window, if looks_ahead { 3 } else { 0 }, &mut all).expect("it ends");
        (all.present.as_secs_f64(), found)
    };
    for service in [TestService::new(2, RoundRobin::default()), TestService::new(2, AlwaysBusiest)] {
        let ((policy, unchanged), (found, changed)) = (total(&service, false), total(&service, true));
        assert!(found < 0.9 * policy, "{found} {policy}");
        assert_eq!((unchanged.changed, unchanged.decisions, changed.decisions), (0, 60, 60));
        assert!(changed.changed > 10);
    }
}

/// Regression: a request that no instance serves has no routing decision, and the decisions after it were taken for
/// those of other requests.
#[test]
fn requests_for_another_model_shift_no_decision() {
    let mut requests = long_and_short();
    for other in [3, 4, 20] {
        requests[other].tags.model = Name(9);
    }
    let (_, regrets) = TestService::new(2, RoundRobin::default()).regret(&requests);
    let routed = regrets.iter().filter(|one| one.kind == DecisionKind::Routing).count();
    assert_eq!(routed, 57, "all but three");
}

#[test]
fn report_text() {
    let requests = [
        request(0, 0, 1, 100, 5),
        request(1, 1_000, 2, 0, 5),
        request(2, 2_000, 3, 0, 5),
        request(3, 3_000, 1, 100, 5),
    ];
    let (regret, _) = TestService::new(2, RoundRobin::default()).regret(&requests);
    insta::assert_snapshot!(regret, @r"
    Outcome regret: request-seconds per decision, within 20.0 s after it, against
    the best alternative in hindsight, all other decisions being the same; `> 0` is
    how many have any, `others` the part of other requests. Above 0 the `advantage`
    over the mean alternative is good. `rollout`: regret if the policies make all
    later decisions anew, which adds noise.

                            n  regret   95 % interval  > 0  others advantage rollout
    admission
      at random             4   0.000  0.000 to 0.000   0%   0.000     19.88   0.000
    routing
      at random             4   0.080 -0.067 to 0.227  50%   0.040    -0.080   0.080
      missed cache hit      1   0.160                 100%   0.000    -0.160   0.160

    Largest regret:
      routing of request_3 at 3.000 s: 0.160, own 0.160, round-robin[3] [missed cache hit]
        * instance_1: 0.199, TTFT 175.0 ms, E2E 199.0 ms
          instance_0: 0.039, TTFT 15.0 ms, E2E 39.0 ms
          queue [0, 0] batch [0, 0] arriving [0, 0] cached [100, 0]
      routing of request_0 at 0.000 s: 0.160, own 0.000, round-robin[0]
        * instance_0: 0.476, TTFT 175.0 ms, E2E 199.0 ms
          instance_1: 0.316, TTFT 175.0 ms, E2E 199.0 ms
          queue [0, 0] batch [0, 0] arriving [0, 0] cached [0, 0]
    ");
}
