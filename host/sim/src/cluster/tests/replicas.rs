//! Replicas that come and go: both engines agree, nothing is lost, and the times add up.

use super::*;

/// Changes of the number of replicas at random times, of the instances of a setup.
fn changing() -> impl Strategy<Value = ClusterSetup> {
    let time = || prop_oneof![Just(0u64), 1u64..2_000, 1u64..60_000];
    let changes = proptest::collection::vec((prop_oneof![1u64..20_000, 1u64..400_000], 0u32..6), 0..8);
    let start = (time(), time(), time());
    let modes = (0usize..3, any::<bool>(), 0u32..3, 0u32..3);
    (setup(), changes, start, modes).prop_map(|(mut setup, changes, start, (mode, emptiest, min, room))| {
        let initial = setup.instances.len() as u32;
        let mut at = 0;
        let scheduled = changes.into_iter().map(|(gap, replicas)| {
            at += gap;
            ScheduledReplicas { at: Micros(at), group: 0, replicas }
        });
        let group = ReplicaGroup {
            instance: setup.instances[0].clone(),
            serves: setup.config.serves.clone(),
            initial,
            min: min.min(initial),
            max: initial + room,
            gpus: 2,
            price: None,
            start: StartTimes {
                process: Micros(start.0),
                weights: Micros(start.1),
                compile: Micros::ZERO,
                warm_up: Micros(start.2),
                wake: Micros(500),
            },
            mode: [StartMode::Cold, StartMode::Warm, StartMode::Hot { pool: 2 }][mode],
            drain: if emptiest { DrainChoice::Emptiest } else { DrainChoice::Newest },
        };
        setup.replicas = Some(ReplicaSettings { groups: vec![group], scheduled: scheduled.collect() });
        setup
    })
}

/// What is known of a replica from its events.
#[derive(Clone, Copy, Debug, Default)]
struct Life {
    created: Micros,
    active: Option<Micros>,
    draining: Option<Micros>,
    gone: Option<Micros>,
}

/// The lives of all replicas by number, and the numbers of the instances'.
fn lives(setup: &ClusterSetup, log: &SimulationLog) -> (Vec<Life>, BTreeMap<InstanceIndex, usize>) {
    let initial = setup.instances.len();
    let mut lives = vec![Life { active: Some(Micros::ZERO), ..Life::default() }; initial];
    let mut instances: BTreeMap<_, _> = (0..initial).map(|i| (InstanceIndex::at(i), i)).collect();
    let mut latest = Micros::ZERO;
    for event in &log.replicas {
        assert!(event.at >= latest, "out of order: {event:?}");
        latest = event.at;
        let number = event.replica as usize;
        if number == lives.len() {
            lives.push(Life { created: event.at, ..Life::default() });
        }
        let life = &mut lives[number];
        assert_eq!(life.gone, None, "{event:?} after its end");
        match event.state {
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
    let (lives, instances) = lives(setup, log);
    assert_eq!(log.counters.len(), instances.len());
    for outcome in log.outcomes.values() {
        let Some(instance) = outcome.instance else { continue };
        let life = lives[instances[&instance]];
        assert!(life.draining.is_none_or(|at| outcome.arrival <= at), "{outcome:?} came to one that drains: {life:?}");
        let first = outcome.ttft.map(|ttft| outcome.arrival + ttft);
        assert!(first.is_none_or(|at| Some(at) > life.active), "{outcome:?} on {life:?}");
        let end = outcome.e2e.map_or(outcome.ended_at, |e2e| outcome.arrival + e2e);
        // What the client sees includes times outside of the instance.
        let on_instance = if outcome.e2e.is_some() { outcome.ended_at } else { end };
        assert!(life.gone.is_none_or(|at| on_instance <= at), "{outcome:?} after the end of {life:?}");
    }
    let report = log.report.as_ref().expect("it is reported");
    let time = |life: &Life| {
        let until = life.gone.map_or(report.end, |gone| gone.min(report.end));
        until.saturating_sub(life.created)
    };
    let all: Micros = lives.iter().map(time).sum();
    let group = &report.groups[0];
    assert_eq!(group.time_in.iter().copied().sum::<Micros>(), all, "the times in the states add up");
    assert_eq!(group.provisioned(), all, "without node pools no replica waits for GPUs");
    assert_eq!(group.started as usize, lives.len() - setup.instances.len());
    let limits = &setup.replicas.as_ref().expect("it has replicas").groups[0];
    assert!(
        report.changes.iter().all(|change| (limits.min..=limits.max).contains(&change.to) && change.to != change.from)
    );
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
        setup.replicas.iter_mut().for_each(|settings| settings.scheduled.clear());
        let changing = simulate(&setup, Fast::new, &requests, Reads::NOTHING);
        setup.replicas = None;
        let fixed = simulate(&setup, Fast::new, &requests, Reads::NOTHING);
        let without = |log: SimulationLog| SimulationLog { report: None, ..log };
        prop_assert_eq!(changing.map(without), fixed);
    }
}

/// A service of `initial` replicas with the default start times, at which one request arrives every second for `seconds`.
fn steady(initial: u32, seconds: u32, change: impl FnOnce(&mut ReplicaGroup)) -> (ClusterSetup, Vec<Request>) {
    let config = InstanceConfig {
        latency: Arc::new(Blackbox::new(&[232.0, 1.7, 33.4], &[52.7, 17.2, 5.9]).expect("valid")),
        index: InstanceIndex(0),
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
        scheduler: Scheduler::Fcfs.into(),
        preemption: Preemption::Fcfs.into(),
        classes: Arc::default(),
        semantics: Semantics::VLLM_0_33,
    };
    let mut group = ReplicaGroup {
        instance: config.clone(),
        serves: Vec::new(),
        initial,
        min: 0,
        max: 8,
        gpus: 1,
        price: None,
        start: StartTimes::default(),
        mode: StartMode::Cold,
        drain: DrainChoice::Newest,
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
        policies: policies(6, 1, 0),
        flow: None,
        replicas: Some(ReplicaSettings { groups: vec![group], scheduled: Vec::new() }),
        fcfs: true,
    };
    // The same prompt, so that its blocks are found in the prefix cache.
    let request = |id: u32| Request {
        content: Content::shared(&[Span { first: 0, len: 4 }]),
        ..Request::new(RequestId(id), second(id.into()), 64, 10)
    };
    (setup, (0..seconds).map(request).collect())
}

fn second(number: u64) -> Micros {
    Micros(number * 1_000_000)
}

fn at(seconds: u64, replicas: u32) -> ScheduledReplicas {
    ScheduledReplicas { at: second(seconds), group: 0, replicas }
}

impl ClusterSetup {
    fn scheduled(mut self, changes: &[ScheduledReplicas]) -> Self {
        self.replicas.iter_mut().for_each(|settings| settings.scheduled = changes.to_vec());
        self
    }

    fn run(&self, requests: &[Request]) -> SimulationLog {
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
    let rejected = |one: &&Outcome| one.status == Status::Rejected(Rejection::Routing);
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
    let log = setup.scheduled(&[at(10, 3), at(20, 1), at(30, 2)]).run(&requests);
    let active = log.replicas.iter().filter(|event| event.state == Some(ReplicaState::Active));
    assert!(active.map(|event| (event.at, event.replica)).eq([(second(13), 1), (second(33), 3)]));
    let gone = log.replicas.iter().filter(|event| event.state.is_none());
    assert!(
        gone.map(|event| (event.at, event.replica)).eq([(second(20), 2), (second(20), 1)]),
        "the one that loads first"
    );
}

#[test]
fn the_emptiest_or_the_newest_drains() {
    for (drain, first) in [(DrainChoice::Newest, 2), (DrainChoice::Emptiest, 1)] {
        let (mut setup, mut requests) = steady(3, 3, |group| group.drain = drain);
        setup.policies = policies(6, 0, 0);
        // Round robin: the request of instance 1 is short.
        for (request, output) in requests.iter_mut().zip([40_000, 10, 40_000]) {
            *request = Request { output_tokens: output, ..request.clone() };
        }
        setup.instances.iter_mut().for_each(|instance| instance.total_kv_blocks = 10_000);
        let log = setup.scheduled(&[at(5, 2)]).run(&requests);
        let drained = log.replicas.iter().find(|event| event.state == Some(ReplicaState::Draining));
        assert_eq!(drained.map(|event| event.replica), Some(first), "{drain:?}");
        assert!(log.outcomes.values().all(Outcome::completed), "a replica that drains finishes its requests");
    }
}
