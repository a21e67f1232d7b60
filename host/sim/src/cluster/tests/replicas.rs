//! Replicas that come and go: both engines agree, nothing is lost, and the times add up.

use std::fmt;

use super::*;
use crate::outcome::Rejection;
use crate::policy::{InstanceInfo, Signals, Versions};
use crate::scaling::{
    self, Behaviour, BestFit, DrainGroup, DrainPolicy, Emptiest, EmptiestNode, FirstFit, Hpa, Kubernetes, Newest, Node,
    PlacementPolicy, Replica, ReplicaLimits, ScalingPolicy, ScalingRules, ScalingView, Select, Spread, StartingReplica,
};

/// Changes of the number of replicas at random times, of the instances of a setup, which are of one or two groups, with or
/// without node pools.
pub(super) fn changing() -> impl Strategy<Value = ClusterSetup> {
    let time = || prop_oneof![Just(0u64), 1u64..2_000, 1u64..60_000];
    let changes = proptest::collection::vec((prop_oneof![1u64..20_000, 1u64..400_000], 0usize..2, 0u32..6), 0..8);
    let start = (time(), time(), time());
    let modes = (0usize..3, 0usize..20, 0u32..3, 0u32..3);
    let groups = (any::<bool>(), 1u32..4, 1u32..6);
    let pools = proptest::option::of((time(), 1u64..100_000, 0u32..3));
    (setup(), changes, start, modes, groups, pools).prop_map(|(mut setup, changes, start, modes, groups, pools)| {
        let (mode, choice, min, room) = modes;
        let (two, gpus, other_gpus) = groups;
        let total = setup.instances.len() as u32;
        let of_second = if two { total / 2 } else { 0 };
        let group = |instance: &InstanceConfig, model, initial: u32, gpus| ReplicaGroup {
            instance: instance.clone(),
            serves: vec![Name(model)],
            initial,
            limits: ReplicaLimits { min: min.min(initial), max: initial + room.max(1) },
            gpus,
            pools: vec![0, 1],
            price: None,
            start: StartTimes {
                process: PhaseTime::constant(Micros(start.0)),
                weights: PhaseTime { mean: Micros(start.1), deviation: Micros(start.0 / 2) },
                compile: PhaseTime::default(),
                warm_up: PhaseTime { mean: Micros(start.2), deviation: Micros(start.1 / 2) },
                wake: PhaseTime::constant(Micros(500)),
            },
            mode: [StartMode::Cold, StartMode::Warm, StartMode::Hot { pool: 2 }][mode],
        };
        let mut all = vec![group(&setup.instances[0], 7, total - of_second, gpus)];
        if of_second > 0 {
            let small = |config: &mut InstanceConfig| (config.max_num_seqs, config.max_num_batched_tokens) = (1, 16);
            setup.instances.iter_mut().skip((total - of_second) as usize).for_each(small);
            let last = setup.instances.last().expect("there are instances");
            all.push(group(last, 8, of_second, other_gpus));
        }
        let pool = |(provisioning, empty, min)| {
            let pool = NodePool {
                gpus: 2,
                min,
                max: 3,
                provisioning: Micros(provisioning),
                empty_delay: Micros(empty),
                price: None,
            };
            vec![pool, NodePool { gpus: 4, min: 0, max: 14, ..pool }]
        };
        let mut at = 0;
        let scheduled = changes.into_iter().map(|(gap, group, replicas)| {
            at += gap;
            ScheduledReplicas { at: Micros(at), group: group % all.len(), replicas }
        });
        let scheduled = scheduled.collect();
        let pools = pools.map_or(Vec::new(), pool);
        let (drain, placement) = choices(choice);
        let starts = Stream::new(3, "starts");
        setup.replicas =
            Some(ReplicaSettings { groups: all, pools, scheduled, scaling: None, starts, drain, placement });
        setup
    })
}

/// A drain and a placement policy of each kind, by a number below 20.
fn choices(number: usize) -> (Box<dyn DrainPolicy>, Box<dyn PlacementPolicy>) {
    let drain: Box<dyn DrainPolicy> = match number % 5 {
        0 => Box::new(Newest),
        1 => Box::new(Emptiest),
        2 => Box::new(Kubernetes),
        3 => Box::new(EmptiestNode),
        _ => Box::new(ViewDigest::default()),
    };
    let placement: Box<dyn PlacementPolicy> = match number / 5 {
        0 => Box::new(FirstFit),
        1 => Box::new(BestFit),
        2 => Box::new(Spread),
        _ => Box::new(ViewDigest::default()),
    };
    (drain, placement)
}

/// What is known of a replica from its events.
#[derive(Clone, Copy, Debug, Default)]
struct Life {
    group: usize,
    created: Micros,
    loading: Micros,
    active: Option<Micros>,
    draining: Option<Micros>,
    gone: Option<Micros>,
}

/// The lives of all replicas by number, and the numbers of the instances'.
fn lives(groups: &[ReplicaGroup], log: &SimulationLog) -> (Vec<Life>, BTreeMap<InstanceIndex, usize>) {
    let mut lives = Vec::new();
    for (index, group) in groups.iter().enumerate() {
        let initial = Life { group: index, active: Some(Micros::ZERO), ..Life::default() };
        lives.resize(lives.len() + group.initial as usize, initial);
    }
    let mut instances: BTreeMap<_, _> = (0..lives.len()).map(|i| (InstanceIndex::at(i), i)).collect();
    let mut latest = Micros::ZERO;
    for event in &log.replicas {
        assert!(event.at >= latest, "out of order: {event:?}");
        latest = event.at;
        let number = event.replica as usize;
        if number == lives.len() {
            lives.push(Life { group: event.group, created: event.at, loading: Micros::MAX, ..Life::default() });
        }
        let life = &mut lives[number];
        assert_eq!((life.gone, life.group), (None, event.group), "{event:?} after its end");
        match event.state {
            Some(ReplicaState::Loading) => life.loading = event.at,
            Some(ReplicaState::Active) => {
                life.active = Some(event.at);
                let instance = event.instance.expect("an active replica is an instance");
                assert_eq!(instance.index(), instances.len(), "indices are not used again");
                instances.insert(instance, number);
            }
            Some(ReplicaState::Draining) => life.draining = Some(event.at),
            Some(_) => assert_eq!(life.active, None),
            None => life.gone = Some(event.at),
        }
    }
    (lives, instances)
}

fn assert_replicas(setup: &ClusterSetup, log: &SimulationLog) {
    let ReplicaSettings { groups, pools, .. } = setup.replicas.as_ref().expect("it has replicas");
    let (lives, instances) = lives(groups, log);
    assert_eq!(log.counters.len(), instances.len());
    for outcome in log.outcomes.values() {
        let Some(instance) = outcome.instance else { continue };
        let life = lives[instances[&instance]];
        let model = outcome.tags.model;
        assert!(model == Name::NONE || groups[life.group].serves.contains(&model), "{outcome:?} on {life:?}");
        assert!(life.draining.is_none_or(|at| outcome.arrival <= at), "{outcome:?} came to one that drains: {life:?}");
        let first = outcome.ttft.map(|ttft| outcome.arrival + ttft);
        assert!(first.is_none_or(|at| Some(at) > life.active), "{outcome:?} on {life:?}");
        assert!(life.gone.is_none_or(|at| outcome.ended_at <= at), "{outcome:?} after the end of {life:?}");
    }
    let report = log.report.as_ref().expect("it is reported");
    let mut gpu_time = 0;
    for (index, (group, figures)) in groups.iter().zip(&report.groups).enumerate() {
        let since = |life: &Life, from: Micros| life.gone.unwrap_or(Micros::MAX).min(report.end).saturating_sub(from);
        let of_group = || lives.iter().filter(|life| life.group == index);
        let all: Micros = of_group().map(|life| since(life, life.created)).sum();
        assert_eq!(figures.time_in.iter().copied().sum::<Micros>(), all, "the times in the states add up");
        let held: Micros = of_group().map(|life| since(life, life.loading)).sum();
        assert_eq!(figures.provisioned(), held, "GPUs are held from loading on");
        assert_eq!((figures.started + group.initial) as usize, of_group().count());
        gpu_time += held.0 * u64::from(group.gpus);
        let ReplicaLimits { min, max } = group.limits;
        let valid = |change: &ReplicaChange| (min..=max).contains(&change.to) && change.to != change.from;
        assert!(report.changes_of(index).all(valid));
    }
    let available: u64 = pools.iter().zip(&report.pools).map(|(pool, of)| of.node_time.0 * u64::from(pool.gpus)).sum();
    assert!(pools.is_empty() || gpu_time <= available, "{gpu_time} of {available} GPU-µs");
    assert!(pools.iter().zip(&report.pools).all(|(pool, of)| of.peak <= pool.max));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, max_shrink_iters: 1000, ..ProptestConfig::default() })]

    #[test]
    fn engines_agree_while_replicas_come_and_go(
        mut setup in changing(),
        drafts in proptest::collection::vec(draft(), 1..60),
        horizon in prop_oneof![3 => Just(Micros::MAX), 1 => (1_000u64..900_000).prop_map(Micros)],
    ) {
        setup.config.horizon = horizon;
        let requests = requests(&drafts, setup.config.block_size);
        let [fast, plain] = [
            simulate(&setup, Fast::new, &requests, Reads::NOTHING),
            simulate(&setup, Plain::new, &requests, Reads::NOTHING),
        ];
        prop_assert_eq!(&fast, &plain);
        if let Ok(log) = fast {
            assert_sound(&setup, &requests, &log);
            assert_replicas(&setup, &log);
        }
    }

    #[test]
    fn forks_with_replicas_continue_as_the_original(
        setup in changing(),
        drafts in proptest::collection::vec(draft(), 1..50),
        at in proptest::collection::vec(0usize..60, 1..5),
        pause in (0u64..50_000).prop_map(Micros),
    ) {
        let requests = requests(&drafts, setup.config.block_size);
        forks::check(&setup, Fast::new, &requests, &at, pause);
    }

    #[test]
    fn replicas_that_never_change_are_a_fixed_cluster(
        mut setup in changing(),
        drafts in proptest::collection::vec(draft(), 1..50),
    ) {
        let requests = requests(&drafts, setup.config.block_size);
        setup.replicas.iter_mut().for_each(|settings| {
            settings.scheduled.clear();
            settings.groups.iter_mut().for_each(|group| group.serves = setup.config.serves.clone());
        });
        let changing = simulate(&setup, Fast::new, &requests, Reads::NOTHING);
        setup.replicas = None;
        let fixed = simulate(&setup, Fast::new, &requests, Reads::NOTHING);
        let without = |log: SimulationLog| SimulationLog { report: None, ..log };
        prop_assert_eq!(changing.map(without), fixed);
    }
}

/// A service of `initial` replicas with the default start times, at which one request arrives every second for `seconds`.
pub(super) fn steady(
    initial: u32,
    seconds: u32,
    change: impl FnOnce(&mut ReplicaGroup),
) -> (ClusterSetup, Vec<Request>) {
    let config = InstanceConfig {
        latency: Arc::new(Blackbox::new(&[232.0, 1.7, 33.4], &[52.7, 17.2, 5.9]).expect("valid")),
        index: InstanceIndex(0),
        labels: crate::policy::InstanceLabels::default(),
        max_num_seqs: 8,
        max_num_batched_tokens: 256,
        long_prefill_token_threshold: 0,
        max_model_len: None,
        block_size: 16,
        total_kv_blocks: 100,
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
    };
    let mut group = ReplicaGroup {
        instance: config.clone(),
        serves: Vec::new(),
        initial,
        limits: ReplicaLimits { min: 0, max: 8 },
        gpus: 1,
        pools: Vec::new(),
        price: None,
        start: StartTimes::default(),
        mode: StartMode::Cold,
    };
    change(&mut group);
    let setup = ClusterSetup {
        config: ClusterConfig {
            admission_latency: Micros::ZERO,
            routing_latency: Micros::ZERO,
            snapshot_refresh_interval: Micros::ZERO,
            cache_signal_delay: Micros::ZERO,
            ties: Ties::LowestIndex,
            classes: Classes::default(),
            serves: Vec::new(),
            block_size: 16,
            semantics: Semantics::VLLM_0_33,
            horizon: Micros::MAX,
            abort: Abort::default(),
        },
        instances: (0..initial).map(|i| InstanceConfig { index: InstanceIndex(i), ..config.clone() }).collect(),
        policies: policies(6, 0, 0),
        flow: None,
        replicas: Some(ReplicaSettings {
            groups: vec![group],
            pools: Vec::new(),
            scheduled: Vec::new(),
            scaling: None,
            drain: Box::new(Newest),
            placement: Box::new(FirstFit),
            starts: Stream::new(3, "starts"),
        }),
        fcfs: true,
    };
    // The same prompt, so that its blocks are found in the prefix cache.
    let request = |id: u32| Request {
        content: Content::shared(&[Span { first: 0, len: 4 }]),
        ..Request::new(RequestId(id), second(id.into()), 64, 10)
    };
    (setup, (0..seconds).map(request).collect())
}

pub(super) fn second(number: u64) -> Micros {
    Micros(number * 1_000_000)
}

pub(super) fn at(seconds: u64, replicas: u32) -> ScheduledReplicas {
    ScheduledReplicas { at: second(seconds), group: 0, replicas }
}

impl ClusterSetup {
    pub(super) fn scheduled(mut self, changes: &[ScheduledReplicas]) -> Self {
        self.replicas.iter_mut().for_each(|settings| settings.scheduled = changes.to_vec());
        self
    }

    pub(super) fn run(&self, requests: &[Request]) -> SimulationLog {
        let log = simulate(self, Fast::new, requests, Reads::NOTHING).expect("it ends");
        assert_sound(self, requests, &log);
        assert_replicas(self, &log);
        log
    }
}

#[test]
fn a_replica_serves_after_its_start_with_an_empty_cache() {
    let (setup, requests) = steady(1, 200, |_| {});
    let log = setup.scheduled(&[at(10, 2), at(150, 1)]).run(&requests);
    let state = |event: &ReplicaEvent| (event.at, event.replica, event.state);
    assert_eq!(
        log.replicas.iter().map(state).collect::<Vec<_>>(),
        [
            (second(10), 1, Some(ReplicaState::Loading)),
            (Micros(89_300_000), 1, Some(ReplicaState::Warming)),
            (Micros(100_700_000), 1, Some(ReplicaState::Active)),
            (second(150), 1, Some(ReplicaState::Draining)),
            (second(150), 1, None),
        ]
    );
    let on_new: Vec<&Outcome> = log.outcomes.values().filter(|one| one.instance == Some(InstanceIndex(1))).collect();
    assert!(on_new.iter().all(|one| (second(101)..=second(150)).contains(&one.arrival)), "{on_new:?}");
    assert_eq!((on_new[0].cached_tokens, on_new[1].cached_tokens), (0, 48), "its cache was empty");
    let report = log.report.expect("reported");
    let group = report.groups[0];
    assert_eq!(group.time_in[ReplicaState::Loading.index()], Micros(79_300_000));
    assert_eq!(group.time_in[ReplicaState::Active.index()], report.end + Micros(49_300_000));
    assert_eq!((group.peak, group.started, group.removed), (2, 1, 1));
    assert_eq!(report.flaps(0), 1);
}

#[test]
fn without_a_replica_requests_are_rejected_or_wait_in_the_gateway() {
    let (setup, requests) = steady(1, 200, |_| {});
    let setup = setup.scheduled(&[at(50, 0), at(60, 1)]);
    let log = setup.run(&requests);
    // The next one is ready 90.7 s after its start.
    let rejected = |one: &&Outcome| one.status == Status::Rejected(Rejection::NoReplica);
    assert!(log.outcomes.values().filter(rejected).map(|one| one.arrival).eq((51..=150).map(second)));
    let waiting = ClusterSetup { flow: Some(waits()), ..setup };
    let log = waiting.run(&requests);
    assert!(log.outcomes.values().all(Outcome::completed), "all wait, none expires");
    let first = &log.outcomes[&RequestId(51)];
    let ready = Micros(150_700_000);
    let ttft = first.arrival + first.ttft.expect("it completed");
    assert!((ready..ready + Micros(50_000)).contains(&ttft), "{ttft:?}");
}

/// Flow control without limits of number and time.
fn waits() -> FlowControl {
    FlowControl {
        saturation: Box::new(flow::NeverSaturated),
        ceilings: Box::new(flow::StaticCeiling { ceiling: 1.0 }),
        fairness: Box::new(flow::GlobalStrict),
        ordering: Box::new(flow::ArrivalOrder),
        eviction: None,
        settings: FlowSettings { ttl: None, ..FlowSettings::usual() },
    }
}

/// The requests in flight of a tenant at each dispatch from the gateway's queue.
#[derive(Clone, Debug, Default)]
struct InFlightLog(Arc<Mutex<Vec<(Micros, u32)>>>);

impl flow::FairnessPolicy for InFlightLog {
    fn reads_ends(&self) -> bool {
        true
    }

    fn pick(&mut self, now: Micros, _: f64, _: flow::Band, flows: &[flow::Flow]) -> usize {
        self.0.lock().expect("one thread").push((now, flows[0].in_flight));
        0
    }

    fn fork(&self) -> Box<dyn flow::FairnessPolicy> {
        Box::new(self.clone())
    }
}

/// Regression: it counted as in flight for ever.
#[test]
fn a_request_between_the_queue_and_routing_is_refused_when_the_last_replica_drains() {
    let (mut setup, requests) = steady(1, 20, |_| {});
    setup.config.routing_latency = Micros(1_500_000);
    let seen = InFlightLog::default();
    setup.flow = Some(FlowControl { fairness: Box::new(seen.clone()), ..waits() });
    let drains = ScheduledReplicas { at: Micros(9_700_000), ..at(9, 0) };
    let log = setup.scheduled(&[drains, at(12, 1)]).run(&requests);
    let refused = |outcome: &&Outcome| outcome.status == Status::Rejected(Rejection::NoReplica);
    let refused: Vec<RequestId> = log.outcomes.values().filter(refused).map(|outcome| outcome.id).collect();
    assert_eq!(refused, [RequestId(9)], "it was dispatched at 9 s, and routed at 10.5 s");
    assert_eq!(log.outcomes.values().filter(|outcome| outcome.completed()).count(), 19, "the others wait");
    let seen = seen.0.lock().expect("one thread");
    let after = seen.iter().find(|(at, _)| *at > second(100)).expect("a replica started at 102.7 s");
    assert_eq!(after.1, 0, "{seen:?}");
}

/// BLIS's autoscaler: two idle replicas are drained, and none is started again.
#[test]
fn the_loop_of_blis_drains_an_idle_service_for_ever() {
    let (mut setup, mut requests) = steady(2, 20, |_| {});
    requests.retain(|request| request.arrival >= second(5));
    let scaling = ScalingLoop {
        policy: Box::new(scaling::BlisAnalyzer::new(scaling::BlisSettings::default())),
        sync: second(2),
        scrape: second(2),
        behaviour: None,
        actuation: Some(DelayedActuation {
            delay: PhaseTime::constant(second(1)),
            delays: Stream::new(1, "actuation"),
        }),
    };
    setup.replicas.iter_mut().for_each(|settings| {
        settings.scaling = Some(scaling.clone());
        settings.drain = Box::new(scaling::ByName { initial: 2 });
    });
    let log = setup.run(&requests);
    let gone = |event: &&ReplicaEvent| event.state.is_none();
    let gone: Vec<_> = log.replicas.iter().filter(gone).map(|event| (event.at, event.replica)).collect();
    // S = 2 · 0.8 · 1600 tokens, D = 0: at 0 s both are to be removed, which takes effect at 1 s.
    assert_eq!(gone, [(second(1), 0), (second(1), 1)]);
    let refused = Status::Rejected(Rejection::NoReplica);
    assert!(log.outcomes.len() == 15 && log.outcomes.values().all(|outcome| outcome.status == refused));
}

/// Eleven replicas on a node of twelve GPUs: there is room for one more, and the names are in the order of text.
#[test]
fn blis_adds_what_has_room_and_drains_in_the_order_of_names() {
    #[derive(Clone, Debug)]
    struct UpThenDown;
    impl ScalingPolicy for UpThenDown {
        fn reads(&self) -> Reads {
            Reads::NOTHING
        }
        fn scale(&mut self, view: &ScalingView<'_>, targets: &mut Vec<Option<u32>>) {
            let present = view.groups[0].replicas;
            targets.push(
                [Some(present + 3), None, Some(present - 3)].get((view.now.0 / 60_000_000) as usize).copied().flatten(),
            );
        }
        fn fork(&self) -> Box<dyn ScalingPolicy> {
            Box::new(self.clone())
        }
    }
    let (mut setup, requests) = steady(11, 200, |group| {
        group.limits.max = 20;
        group.pools = vec![0];
        group.start = StartTimes { process: PhaseTime::constant(second(1)), ..StartTimes::default() };
    });
    let settings = setup.replicas.as_mut().expect("it has replicas");
    let pool =
        NodePool { gpus: 12, min: 1, max: 1, provisioning: second(1), empty_delay: EMPTY_NODE_DELAY, price: None };
    settings.pools = vec![pool];
    settings.drain = Box::new(scaling::ByName { initial: 11 });
    settings.scaling = Some(ScalingLoop {
        policy: Box::new(UpThenDown),
        sync: second(60),
        scrape: second(60),
        behaviour: None,
        actuation: Some(DelayedActuation { delay: PhaseTime::default(), delays: Stream::new(1, "actuation") }),
    });
    let log = setup.run(&requests);
    let report = log.report.as_ref().expect("reported");
    let changes: Vec<_> = report.changes.iter().map(|one| (one.at, one.from, one.to)).collect();
    assert_eq!(changes, [(second(0), 11, 12), (second(120), 12, 9)]);
    assert_eq!(report.groups[0].started, 1);
    let drained = |event: &&ReplicaEvent| event.state == Some(ReplicaState::Draining);
    let drained: Vec<u32> = log.replicas.iter().filter(drained).map(|event| event.replica).collect();
    // autoscale-…-000000, instance_0, instance_1; instance_10 would be next.
    assert_eq!(drained, [11, 0, 1]);
}

#[test]
fn requests_for_which_no_replica_will_start_end_the_simulation() {
    let (setup, requests) = steady(1, 20, |_| {});
    let setup = ClusterSetup { flow: Some(waits()), ..setup.scheduled(&[at(10, 0)]) };
    let halt = simulate(&setup, Fast::new, &requests, Reads::NOTHING);
    assert_eq!(halt, Err(Halt::NothingDispatched { waiting: 9 }));
}

#[test]
fn a_sleeping_replica_wakes_in_seconds_and_the_next_one_starts_cold() {
    let (setup, requests) = steady(1, 200, |group| group.mode = StartMode::Hot { pool: 1 });
    let changes = [at(10, 3), at(20, 1), at(30, 2), at(40, 1), at(50, 2), at(51, 1), at(60, 2)];
    let log = setup.scheduled(&changes).run(&requests);
    let of = |state| {
        let events = log.replicas.iter().filter(move |event| event.state == state);
        events.map(|event| (event.at, event.replica)).collect::<Vec<_>>()
    };
    assert_eq!(of(Some(ReplicaState::Active)), [(second(13), 1), (second(33), 3), (second(63), 5)]);
    let gone = of(None);
    assert_eq!(gone[..2], [(second(20), 2), (second(20), 1)], "the one that loads first");
    assert_eq!(gone[2..], [(second(40), 3), (second(51), 4)], "one that was woken sleeps again");
}

#[test]
fn the_emptiest_or_the_newest_drains() {
    let policies: [(Box<dyn DrainPolicy>, u32); 2] = [(Box::new(Newest), 2), (Box::new(Emptiest), 1)];
    for (drain, first) in policies {
        let (mut setup, mut requests) = steady(3, 3, |_| ());
        setup.replicas.iter_mut().for_each(|settings| settings.drain = drain.clone());
        // Round robin: the request of instance 1 is short.
        for (request, output) in requests.iter_mut().zip([140_000, 10, 140_000]) {
            *request = Request { output_tokens: output, ..request.clone() };
        }
        setup.instances.iter_mut().for_each(|instance| instance.total_kv_blocks = 10_000);
        let log = setup.scheduled(&[at(5, 2)]).run(&requests);
        let drained = log.replicas.iter().find(|event| event.state == Some(ReplicaState::Draining));
        assert_eq!(drained.map(|event| event.replica), Some(first), "{drain:?}");
        assert!(log.outcomes.values().all(Outcome::completed), "a replica that drains finishes its requests");
    }
}

/// Decides by everything that it sees: if two runs show it anything different, they have other replicas.
#[derive(Clone, Debug, Default)]
struct ViewDigest {
    reads: Reads,
    outcomes: bool,
}

impl ScalingPolicy for ViewDigest {
    fn reads(&self) -> Reads {
        self.reads
    }

    fn reads_outcomes(&self) -> bool {
        self.outcomes
    }

    fn behaviour(&self) -> Behaviour {
        let free = ScalingRules { window: Micros::ZERO, policies: Vec::new(), select: Select::Max };
        Behaviour { up: free.clone(), down: free, cooldown: Micros(100_000) }
    }

    fn scale(&mut self, view: &ScalingView<'_>, targets: &mut Vec<Option<u32>>) {
        assert!(view.scraped_at <= view.now);
        for group in view.groups {
            assert!(group.loading.is_sorted() && group.loading.iter().all(|&at| at >= view.now));
            assert!(group.ready.is_sorted_by_key(|one| one.instance));
            let digest = digest(view);
            targets.push((!digest.is_multiple_of(7)).then_some(digest as u32 % 5));
        }
    }

    fn fork(&self) -> Box<dyn ScalingPolicy> {
        Box::new(self.clone())
    }
}

fn digest(view: &dyn fmt::Debug) -> usize {
    format!("{view:?}").bytes().fold(7usize, |sum, byte| sum.wrapping_mul(31) ^ usize::from(byte)) % 9973
}

impl DrainPolicy for ViewDigest {
    fn reads(&self) -> Reads {
        Reads { in_flight: true, tokens: true, ..Reads::NOTHING }
    }

    fn drain(&mut self, group: &DrainGroup, replicas: &[Replica]) -> usize {
        assert!(replicas.is_sorted_by_key(|one| one.id));
        for one in replicas {
            let is_active = one.state == ReplicaState::Active.number();
            assert!(one.state != ReplicaState::Draining.number() && one.created_us <= group.now_us);
            assert_eq!((one.instance().is_some(), one.active_since().is_some()), (is_active, is_active));
            let has_node = one.node != u32::MAX;
            assert_eq!(one.on_node > 0, has_node);
            assert!(one.on_node >= one.group_on_node && (!has_node || one.group_on_node > 0));
            assert!(one.in_flight >= one.batch_size, "{one:?}");
        }
        digest(&(group, replicas)) % replicas.len()
    }

    fn fork(&self) -> Box<dyn DrainPolicy> {
        Box::new(self.clone())
    }
}

impl PlacementPolicy for ViewDigest {
    fn choose_node(&mut self, replica: &StartingReplica, nodes: &[Node]) -> Option<usize> {
        assert!(nodes.iter().any(|node| node.ready_us <= replica.now_us), "one is ready");
        for node in nodes {
            assert!(node.free_gpus >= replica.gpus.min(node.gpus) && node.replicas >= node.group_replicas);
        }
        // One choice of several is to wait.
        Some(digest(&(replica, nodes)) % (nodes.len() + 1)).filter(|&index| index < nodes.len())
    }

    fn fork(&self) -> Box<dyn PlacementPolicy> {
        Box::new(self.clone())
    }
}

/// A setup with a scaler, the intervals of which are short.
pub(super) fn scaled() -> impl Strategy<Value = ClusterSetup> {
    (changing(), scaling_loop()).prop_map(|(mut setup, scaling)| {
        setup.replicas.iter_mut().for_each(|settings| settings.scaling = Some(scaling.clone()));
        setup
    })
}

/// A scaler with short intervals, of which the numbers depend on all that it sees.
pub(super) fn scaling_loop() -> impl Strategy<Value = ScalingLoop> {
    let intervals = (1_000u64..60_000, 1_000u64..60_000);
    (intervals, any::<bool>(), any::<bool>()).prop_map(|((sync, scrape), in_flight, outcomes)| {
        let reads = Reads { in_flight, tokens: in_flight, ..Reads::NOTHING };
        let policy = Box::new(ViewDigest { reads, outcomes });
        ScalingLoop { policy, sync: Micros(sync), scrape: Micros(scrape), behaviour: None, actuation: None }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, max_shrink_iters: 1000, ..ProptestConfig::default() })]

    #[test]
    fn a_scaler_sees_the_same_on_both_engines(
        mut setup in scaled(),
        drafts in proptest::collection::vec(draft(), 1..60),
        horizon in prop_oneof![3 => Just(Micros::MAX), 1 => (1_000u64..900_000).prop_map(Micros)],
    ) {
        setup.config.horizon = horizon;
        let requests = requests(&drafts, setup.config.block_size);
        let [fast, plain] = [
            simulate(&setup, Fast::new, &requests, Reads::NOTHING),
            simulate(&setup, Plain::new, &requests, Reads::NOTHING),
        ];
        prop_assert_eq!(&fast, &plain);
        if let Ok(log) = fast {
            assert_sound(&setup, &requests, &log);
            assert_replicas(&setup, &log);
        }
    }

    #[test]
    fn forks_with_a_scaler_continue_as_the_original(
        setup in scaled(),
        drafts in proptest::collection::vec(draft(), 1..50),
        at in proptest::collection::vec(0usize..60, 1..5),
        pause in (0u64..50_000).prop_map(Micros),
    ) {
        let requests = requests(&drafts, setup.config.block_size);
        forks::check(&setup, Fast::new, &requests, &at, pause);
    }
}

#[test]
fn a_replica_waits_for_its_node_and_the_node_goes_ten_minutes_after_it() {
    let (mut setup, mut requests) = steady(1, 200, |group| (group.gpus, group.pools) = (2, vec![0]));
    requests.push(Request::new(RequestId(200), second(1000), 64, 10));
    let settings = setup.replicas.as_mut().expect("it has replicas");
    settings.pools = vec![NodePool {
        gpus: 2,
        min: 1,
        max: 2,
        provisioning: second(120),
        empty_delay: EMPTY_NODE_DELAY,
        price: None,
    }];
    let log = setup.scheduled(&[at(10, 3), at(300, 1)]).run(&requests);
    let state = |event: &ReplicaEvent| (event.at, event.replica, event.state);
    assert_eq!(
        log.replicas.iter().map(state).collect::<Vec<_>>(),
        [
            (second(10), 1, Some(ReplicaState::Scheduling)),
            (second(10), 2, Some(ReplicaState::Scheduling)),
            (second(130), 1, Some(ReplicaState::Loading)),
            (Micros(209_300_000), 1, Some(ReplicaState::Warming)),
            (Micros(220_700_000), 1, Some(ReplicaState::Active)),
            (second(300), 2, None),
            (second(300), 1, Some(ReplicaState::Draining)),
            (second(300), 1, None),
        ],
        "the third never gets a node"
    );
    let report = log.report.expect("reported");
    assert_eq!(report.groups[0].time_in[ReplicaState::Scheduling.index()], second(120 + 290));
    assert_eq!(report.pools[0].node_time, report.end + second(900 - 10));
}

#[test]
fn settings_that_no_service_can_have_are_refused() {
    let (setup, _) = steady(2, 1, |group| group.pools = vec![0]);
    let settings = setup.replicas.expect("it has replicas");
    assert_eq!(settings.check(), Ok(()));
    let check = |change: fn(&mut ReplicaSettings)| {
        let mut settings = settings.clone();
        change(&mut settings);
        settings.check().expect_err("it is refused")
    };
    let pool =
        |gpus, max| NodePool { gpus, min: 0, max, provisioning: second(1), empty_delay: EMPTY_NODE_DELAY, price: None };
    let mut small = settings.clone();
    small.pools = vec![pool(1, 1)];
    assert_eq!(small.check(), Err("the nodes have room for 1 of the 2 initial replicas of group 0".to_owned()));
    small.pools = vec![pool(0, 1)];
    assert!(small.check().is_err_and(|why| why.starts_with("node pool 0 has 0 to 1 nodes with 0 GPUs")));
    small.pools = vec![pool(1, 2)];
    small.groups[0].pools = vec![1];
    assert_eq!(small.check(), Err("group 0 uses node pool 1, but there are 1".to_owned()));
    assert!(check(|settings| settings.groups[0].limits.max = 1).contains("2 replicas at the start and 0 to 1 later"));
    assert!(check(|settings| settings.groups[0].gpus = 0).contains("no GPU"));
    let two_sizes = check(|settings| {
        settings.groups.push(settings.groups[0].clone());
        settings.groups[1].instance.block_size = 32;
    });
    assert_eq!(two_sizes, "KV blocks of group 0 have 16 tokens and those of group 1 32: one size");
    assert!(check(|settings| settings.scheduled = vec![at(2, 1), at(1, 1)]).contains("in order of time"));
    assert!(
        check(|settings| settings.scheduled = vec![ScheduledReplicas { group: 1, ..at(2, 1) }]).contains("group 1")
    );
}

#[test]
fn a_service_at_zero_starts_by_its_queue_and_returns_to_zero_after_the_cooldown() {
    let (mut setup, mut requests) = steady(0, 100, |group| group.limits.max = 3);
    requests.push(Request::new(RequestId(100), second(2000), 64, 10));
    setup.flow = Some(waits());
    let policy = Box::new(Hpa::new(scaling::SignalSet::Queue { queued: 1.0, running: 16.0 }, 0.1));
    let scaling = ScalingLoop { policy, sync: second(15), scrape: second(15), behaviour: None, actuation: None };
    setup.replicas.iter_mut().for_each(|settings| settings.scaling = Some(scaling.clone()));
    let log = setup.run(&requests);
    assert!(log.outcomes.values().all(Outcome::completed));
    let changes = log.report.expect("reported").changes;
    let up: Vec<_> = changes.iter().filter(|one| one.to > one.from).map(|one| (one.at, one.from, one.to)).collect();
    // One by activity, then as many as the queue asks for, doubled every 15 s at most.
    assert_eq!(up, [(second(15), 0, 1), (second(30), 1, 2), (second(45), 2, 3), (second(2010), 0, 1)]);
    let zero = changes.iter().find(|one| one.to == 0).map(|one| one.at);
    // The last scrape with requests is at 105 s.
    assert_eq!(zero, Some(second(405)), "{changes:?}");
    let last = log.outcomes[&RequestId(100)].ttft.expect("it completed");
    assert!((Micros(100_700_000)..Micros(100_750_000)).contains(&last), "{last:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, max_shrink_iters: 1000, ..ProptestConfig::default() })]

    #[test]
    fn closed_loops_see_the_same_replicas_on_both_engines(
        setup in scaled(),
        drafts in proptest::collection::vec(draft(), 1..20),
        rounds in 1u32..5,
        think in prop_oneof![Just(0u64), 1u64..40_000],
    ) {
        let first = requests(&drafts, setup.config.block_size);
        let mut sessions = [(); 2].map(|()| RoundClients { first: &first, rounds, think, followed: Vec::new() });
        let [fast_sessions, plain_sessions] = &mut sessions;
        let fast = simulate_sessions(&setup, Fast::new, &first, Some(fast_sessions), Reads::NOTHING);
        let plain = simulate_sessions(&setup, Plain::new, &first, Some(plain_sessions), Reads::NOTHING);
        prop_assert_eq!(fast, plain);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn policies_receive_events_in_order_while_replicas_come_and_go(
        setup in scaled(),
        drafts in proptest::collection::vec(draft(), 1..60),
    ) {
        let requests = requests(&drafts, setup.config.block_size);
        let quiet = simulate(&setup, Fast::new, &requests, Reads::NOTHING);
        let logged = |plain: bool| {
            let (listening, events) = setup.with_logger();
            let log = if plain {
                simulate(&listening, Plain::new, &requests, Reads::NOTHING)
            } else {
                simulate(&listening, Fast::new, &requests, Reads::NOTHING)
            };
            if let Ok(log) = &log {
                assert_events(&events.lock().unwrap(), log);
            }
            let events = events.lock().unwrap().clone();
            (log, events)
        };
        let (log, events) = logged(false);
        prop_assert_eq!(&log, &quiet, "receiving events changes nothing");
        prop_assert_eq!(logged(true), (log, events));
    }
}

/// Round robin that checks what versions say: equal numbers mean the same instances, and equal columns.
#[derive(Clone, Debug, Default)]
struct VersionChecker {
    turn: usize,
    last: Option<(Versions, Vec<InstanceInfo>, Signals)>,
}

impl RoutingPolicy for VersionChecker {
    fn reads(&self) -> Reads {
        Reads { load: true, in_flight: true, cached_blocks: true, ..Reads::NOTHING }
    }

    fn route(&mut self, _: &RequestView<'_>, cluster: &ClusterView<'_>, _: &Ties, _: &mut Vec<f64>) -> RoutingDecision {
        let (versions, signals) = (cluster.versions, cluster.signals);
        assert!(versions.load > 0 && versions.cached_blocks > 0, "they are counted");
        let lengths = [signals.queue_depth.len(), signals.in_flight.len(), signals.cached_blocks.len()];
        assert_eq!(lengths, [cluster.len(); 3]);
        if let Some((before, instances, columns)) = &self.last {
            let same = before.instances == versions.instances;
            assert!(!same || instances == cluster.instances, "other instances under the same number");
            let load = before.load == versions.load;
            assert!(
                !load
                    || same
                        && (&columns.queue_depth, &columns.batch_size) == (&signals.queue_depth, &signals.batch_size)
            );
            let cached = before.cached_blocks == versions.cached_blocks;
            assert!(!cached || same && columns.cached_blocks == signals.cached_blocks);
        }
        self.last = Some((versions, cluster.instances.to_vec(), signals.clone()));
        self.turn += 1;
        RoutingDecision { target: self.turn % cluster.len(), reason: Reason::None }
    }

    fn fork(&self) -> Box<dyn RoutingPolicy> {
        Box::new(self.clone())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn versions_change_with_the_rows(mut setup in changing(), drafts in proptest::collection::vec(draft(), 1..60)) {
        setup.policies.routing = Box::<VersionChecker>::default();
        let requests = requests(&drafts, setup.config.block_size);
        let fast = simulate(&setup, Fast::new, &requests, Reads::NOTHING);
        prop_assert_eq!(fast, simulate(&setup, Plain::new, &requests, Reads::NOTHING));
    }
}
