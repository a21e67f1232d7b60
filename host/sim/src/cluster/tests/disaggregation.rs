//! Prefill apart from decode: the two parts are one request, nothing is lost, and both engines agree.

mod encoding;

use super::replicas::scaling_loop;
use super::*;
use crate::cluster::{
    ArrivalList, BlisTransfer, DisaggregationConfig, Encoder, InstanceRole, KvNetwork, NixlFlow, PoolRouting,
    RoleGroup, Timeline, TransferFlow,
};
use crate::instance::agreement::groups::{group_numbers, with_groups};
use crate::outcome::{EncodeTimes, StageTimes};
use crate::policy::{
    AlwaysDisaggregate, DisaggregationDecision, DisaggregationPolicy, DriftPlusPenalty, EncodeRule, InstanceLabels,
    PoolsView, PrefixThreshold,
};
use crate::scaling::{DrainPolicy, Emptiest, FirstFit, Newest, ReplicaLimits};

/// A service with roles.
#[derive(Clone, Debug)]
struct PairSetup {
    inner: ClusterSetup,
    disaggregation: DisaggregationConfig,
}

impl PairSetup {
    fn cluster<I: Instance>(&self, engine: impl Fn(InstanceConfig) -> I + Copy + Send + Sync + 'static) -> Cluster<I> {
        self.inner.cluster(engine).with_disaggregation(self.disaggregation.clone())
    }

    /// Whether every instance either prefills or decodes: others can wait for each other for ever.
    fn is_apart(&self) -> bool {
        !self.disaggregation.roles.contains(&InstanceRole::PrefillDecode)
    }

    fn network(&mut self) -> Option<&mut KvNetwork> {
        match &mut self.disaggregation.flow {
            TransferFlow::Nixl(flow) => Some(&mut flow.network),
            TransferFlow::Blis(_) => None,
        }
    }
}

/// What happened, and the stages of requests.
#[derive(Clone, Debug, Default, PartialEq)]
struct PairLog {
    simulation: SimulationLog,
    stages: BTreeMap<RequestId, StageTimes>,
    encoded: BTreeMap<RequestId, EncodeTimes>,
    parts: Vec<Outcome>,
}

impl Observer for PairLog {
    fn interests(&self) -> Interests {
        Interests::INTER_TOKEN_LATENCIES | Interests::OUTCOMES | Interests::FIRST_TOKENS
    }

    fn record(&mut self, event: &SimEvent<'_>) {
        match *event {
            SimEvent::StageEnded(part) => self.parts.push(*part),
            SimEvent::Disaggregated(times) => {
                assert_eq!(self.stages.insert(times.id, *times), None, "request {} ended twice", times.id);
            }
            SimEvent::Encoded(times) => {
                assert_eq!(self.encoded.insert(times.id, *times), None, "request {} was encoded twice", times.id);
                assert!(!self.simulation.outcomes.contains_key(&times.id), "after its end: {times:?}");
            }
            SimEvent::Decision(_) => {}
            _ => self.simulation.record(event),
        }
    }
}

impl PairLog {
    /// Reports of different instances have no order between them.
    fn sorted(mut self) -> Self {
        self.parts.sort_by_key(|part| (part.id, part.instance));
        self
    }
}

/// Instances that encode 1 token per 20 µs.
const ENCODER: Encoder = Encoder { rate: 0.05, base_latency: Micros(700), budget: 400 };

/// The same requests, three of four with images.
fn with_media(requests: Vec<Request>) -> Vec<Request> {
    let tokens = |id: u32| [30, 0, 150, 900][id as usize % 4];
    requests.into_iter().map(|request| Request { media_tokens: tokens(request.id.0), ..request }).collect()
}

fn pair_setup() -> impl Strategy<Value = PairSetup> {
    let link = (prop_oneof![Just(f64::INFINITY), 1.0f64..400.0], 0u64..5_000, 0u64..20_000, 0u64..3_000);
    let roles = proptest::collection::vec(0usize..5, 6);
    let keeps = proptest::option::of((prop_oneof![1_000u64..100_000, 1_000u64..2_000_000], 0u32..20));
    (setup(), roles, 0usize..4, link, any::<bool>(), (0usize..6, keeps)).prop_map(
        |(mut inner, roles, decider, (card, latency, handshake, hop), contention, (encode, keeps))| {
            inner.instances.truncate(5);
            while inner.instances.len() < 2 {
                let index = InstanceIndex::at(inner.instances.len());
                inner.instances.push(InstanceConfig { index, ..inner.instances[0].clone() });
            }
            for instance in &mut inner.instances {
                (instance.offload, instance.adapters) = (None, None);
                if let Some((_, threshold)) = keeps.filter(|_| !inner.config.semantics.reserves_before_decode) {
                    instance.options.keeps_decoded_kv = true;
                    instance.options.kv_recompute_threshold = threshold;
                }
            }
            let n = inner.instances.len();
            let encode = [EncodeRule::Always, EncodeRule::Multimodal].get(encode).copied().filter(|_| n > 2);
            let role = |i: usize| match (i, roles[i]) {
                (2, _) if encode.is_some() => InstanceRole::Encode,
                (4, 2 | 3) if encode.is_some() => InstanceRole::Encode,
                (0, _) => InstanceRole::Prefill,
                (1, _) => InstanceRole::Decode,
                (_, 0 | 1) => InstanceRole::Prefill,
                (_, 2 | 3) => InstanceRole::Decode,
                _ => InstanceRole::PrefillDecode,
            };
            let is_blis = inner.config.semantics.reserves_before_decode;
            let decider: Box<dyn DisaggregationPolicy> = match decider {
                0 => Box::new(PrefixThreshold { tokens: 12, prompt_tokens: 0, exceeds: is_blis }),
                1 => Box::new(DriftPlusPenalty { tokens_per_second: 500.0, target: Micros(60_000), deficit_s: 0.0 }),
                _ => Box::new(AlwaysDisaggregate),
            };
            let flow = match is_blis {
                true => TransferFlow::Blis(BlisTransfer {
                    token_bytes: 1000.0,
                    bandwidth: card.min(1e9),
                    base_us: latency as f64 / 7.0,
                    contention,
                }),
                false => TransferFlow::Nixl(NixlFlow {
                    network: KvNetwork {
                        card,
                        latency: Micros(latency),
                        handshake: Micros(handshake),
                        hop: Micros(hop),
                        gpus: (0..n).map(|i| 1 + i as u32 % 3).collect(),
                        token_bytes: vec![1000.0; n],
                        embedding_bytes: 200.0,
                    },
                    encoders: (0..n).map(|i| (role(i) == InstanceRole::Encode).then_some(ENCODER)).collect(),
                    prefill_first: contention && roles[5] == 0,
                    keeps: keeps.map(|(time, _)| Micros(time)),
                }),
            };
            let disaggregation = DisaggregationConfig {
                roles: (0..n).map(role).collect(),
                groups: Vec::new(),
                flow,
                decider,
                decode_routing: None,
                prefill_routing: None,
                encode_routing: None,
                encode: encode.unwrap_or_default(),
            };
            PairSetup { inner, disaggregation }
        },
    )
}

/// Instances of a model with KV groups, under vLLM's rules.
fn pairs_with_groups() -> impl Strategy<Value = PairSetup> {
    let not_blis = |setup: &PairSetup| !setup.inner.config.semantics.reserves_before_decode;
    (pair_setup().prop_filter("BLIS knows no groups", not_blis), group_numbers(), 10u32..150, any::<bool>()).prop_map(
        |(mut setup, numbers, pages, reserves)| {
            for instance in &mut setup.inner.instances {
                let config = InstanceConfig { reserve_full_prompt: reserves, ..instance.clone() };
                *instance = with_groups(config, &numbers, pages);
            }
            setup.inner.config.block_size = setup.inner.instances[0].block_size;
            setup
        },
    )
}

fn run_pairs<I: Instance>(
    setup: &PairSetup,
    engine: impl Fn(InstanceConfig) -> I + Copy + Send + Sync + 'static,
    requests: &[Request],
) -> Result<PairLog, Halt> {
    // Without deadlines, instances that do both can wait for each other to the end.
    let ends_empty = setup.is_apart() || requests.iter().all(|request| request.deadline.is_some());
    let checked = move |config: InstanceConfig| CheckedInstance {
        now: Micros::ZERO,
        total_kv_blocks: config.total_kv_blocks,
        max_num_seqs: config.max_num_seqs,
        loads: false,
        claims_in_queue: false,
        waits_outside: true,
        ends_empty,
        inner: engine(config),
    };
    let mut log = PairLog::default();
    log.simulation.counters = setup.cluster(checked).run(requests.iter().cloned(), &mut log)?;
    Ok(log.sorted())
}

/// Invariants of every run.
fn assert_pairs(setup: &PairSetup, requests: &[Request], log: &PairLog) {
    let horizon = setup.inner.config.horizon;
    let is_blis = setup.inner.config.semantics.reserves_before_decode;
    let injected = requests.iter().filter(|request| request.arrival <= horizon);
    let outcomes = &log.simulation.outcomes;
    assert!(injected.map(|request| request.id).eq(outcomes.keys().copied()), "a request was lost or duplicated");
    assert_encoded(setup, requests, log);
    for times in log.stages.values() {
        let outcome = &outcomes[&times.id];
        let stages = [
            times.prefill_queue,
            times.prefill_time,
            times.hold,
            times.decode_wait,
            times.transfer,
            times.decode_first,
        ];
        let encoded = log.encoded.get(&times.id).map_or(Micros::ZERO, encoding_time);
        let sum: Micros = stages.into_iter().flatten().sum::<Micros>() + encoded;
        if let (Some(ttft), Some(_)) = (outcome.ttft, times.decode_first) {
            assert!(sum <= ttft, "the stages take longer than the TTFT: {times:?} {outcome:?}");
        }
        assert!(times.reused_tokens <= outcome.input_tokens, "{times:?}");
        assert!(
            times.prefill_queue.is_none_or(|queue| times.reuse <= Some(queue)),
            "it is a part of the queue: {times:?}"
        );
        if outcome.completed() {
            assert!(stages.into_iter().all(|stage| stage.is_some()), "a stage is missing: {times:?}");
            assert_eq!(times.reuse.is_some(), times.reused_tokens > 0, "a read that did not end: {times:?}");
            assert_eq!(outcome.instance, Some(times.decode));
            let part = log.parts.iter().find(|part| part.id == times.id && part.instance == Some(times.decode));
            let cached = part.expect("it decoded").cached_tokens;
            let missing = if is_blis { outcome.input_tokens } else { outcome.input_tokens - cached };
            assert_eq!(times.transferred_tokens, missing, "tokens that the decode instance lacked: {times:?}");
        }
    }
    if horizon == Micros::MAX && setup.is_apart() {
        for outcome in outcomes.values() {
            let over = outcome.completed()
                || matches!(
                    outcome.status,
                    Status::TimedOut | Status::Dropped(_) | Status::Rejected(_) | Status::Evicted
                );
            assert!(over, "unfinished at the end of the simulation: {outcome:?}");
        }
    }
}

/// The time of the stages that a request has ended on its way over an instance that encodes.
fn encoding_time(times: &EncodeTimes) -> Micros {
    [times.queue, times.time, times.transfer].into_iter().flatten().sum()
}

/// Whatever is served was encoded first, if it was to be, and took the time that its batch and the network need.
fn assert_encoded(setup: &PairSetup, requests: &[Request], log: &PairLog) {
    let DisaggregationConfig { encode, flow: TransferFlow::Nixl(flow), roles, .. } = &setup.disaggregation else {
        assert!(log.encoded.is_empty());
        return;
    };
    let KvNetwork { latency, hop, .. } = flow.network;
    for request in requests {
        let Some(outcome) = log.simulation.outcomes.get(&request.id) else { continue };
        let Some(times) = log.encoded.get(&request.id) else {
            assert!(!encode.applies(request.media_tokens) || outcome.scheduling_delay.is_none(), "{outcome:?}");
            continue;
        };
        assert!(encode.applies(request.media_tokens) && times.tokens == request.media_tokens);
        assert!(setup.inner.replicas.is_some() || roles[times.encode.index()] == InstanceRole::Encode);
        let batch = if times.tokens > 0 { Micros(700 + 20 * u64::from(times.tokens)) } else { Micros::ZERO };
        assert!(times.queue.is_none_or(|queue| queue >= hop), "{times:?}");
        assert!(times.time.is_none_or(|time| time >= batch + hop), "{times:?}");
        let read = if times.tokens > 0 { latency } else { Micros::ZERO };
        assert!(times.transfer.is_none_or(|transfer| transfer >= read), "{times:?}");
        if let Some(delay) = outcome.scheduling_delay {
            assert!(times.transfer.is_some() && delay >= encoding_time(times), "{times:?} {outcome:?}");
        }
        if times.transfer.is_none() && outcome.status == Status::TimedOut {
            assert_eq!(
                Some(outcome.ended_at.max(request.arrival)),
                request.deadline.map(|at| at.max(outcome.ended_at))
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, max_shrink_iters: 1000, ..ProptestConfig::default() })]

    /// Pins are checked at the end of each instance: see `CheckedInstance::finish`.
    #[test]
    fn both_parts_are_one_request_and_nothing_is_lost(
        mut setup in pair_setup(),
        drafts in proptest::collection::vec(draft(), 1..40),
        horizon in prop_oneof![3 => Just(Micros::MAX), 1 => (1_000u64..900_000).prop_map(Micros)],
    ) {
        setup.inner.config.horizon = horizon;
        let requests = with_media(requests(&drafts, setup.inner.config.block_size));
        let plain = run_pairs(&setup, Plain::new, &requests);
        // In BLIS, an instance that does both may execute both parts of a request, of which the blocks have the same content: only the
        // plain engine sees that, and such services run on it.
        if setup.network().is_none() && !setup.is_apart() {
            plain.iter().for_each(|plain| assert_pairs(&setup, &requests, plain));
            return Ok(());
        }
        match (run_pairs(&setup, Fast::new, &requests), plain) {
            (Ok(fast), Ok(plain)) => {
                assert_pairs(&setup, &requests, &plain);
                prop_assert_eq!(&fast, &plain);
            }
            // Only under BLIS's semantics can requests preempt each other for ever.
            (Err(fast), Err(plain)) => {
                let may_halt = setup.inner.config.semantics == Semantics::BLIS || setup.inner.flow.is_some();
                prop_assert!(may_halt, "{fast}");
                prop_assert_eq!(fast, plain);
            }
            (fast, plain) => prop_assert!(false, "{:?} {:?}", fast.err(), plain.err()),
        }
    }

    /// With KV groups: which parts of a prompt move, and which are recomputed.
    #[test]
    fn both_engines_move_the_same_pages(
        setup in pairs_with_groups(),
        drafts in proptest::collection::vec(draft(), 1..40),
        horizon in prop_oneof![3 => Just(Micros::MAX), 1 => (1_000u64..900_000).prop_map(Micros)],
    ) {
        let mut setup = setup;
        setup.inner.config.horizon = horizon;
        let requests = with_media(requests(&drafts, setup.inner.config.block_size));
        let [fast, plain] = [run_pairs(&setup, Fast::new, &requests), run_pairs(&setup, Plain::new, &requests)];
        prop_assert_eq!(fast.map_err(|halt| halt.to_string()), plain.map_err(|halt| halt.to_string()));
    }

    /// A copy made in the middle continues as the original does.
    #[test]
    fn copies_continue_as_the_original(
        setup in prop_oneof![pair_setup(), changing_pairs()],
        drafts in proptest::collection::vec(draft(), 1..30),
        pause in 1_000u64..400_000,
    ) {
        let requests = with_media(requests(&drafts, setup.inner.config.block_size));
        let mut log = PairLog::default();
        let mut timeline =
            Timeline::new(setup.cluster(Fast::new), ArrivalList::new(requests.clone().into()), Reads::NOTHING);
        prop_assume!(timeline.run_until(Micros(pause), &mut log).is_ok());
        let (copy, mut copied) = (timeline.clone(), log.clone());
        let first = timeline.finish(Micros::MAX, &mut log).map(|counters| (log.sorted(), counters));
        let second = copy.finish(Micros::MAX, &mut copied).map(|counters| (copied.sorted(), counters));
        prop_assert_eq!(&first, &second);
        if let (Ok((log, counters)), Ok(whole)) = (first, run_pairs(&setup, Fast::new, &requests)) {
            prop_assert_eq!(&log.simulation.outcomes, &whole.simulation.outcomes);
            prop_assert_eq!(&log.stages, &whole.stages);
            prop_assert_eq!(counters, whole.simulation.counters);
        }
    }

    /// Whatever ends where, the router counts nothing as in flight in the end.
    #[test]
    fn counts_in_flight_return_to_zero(
        setup in prop_oneof![pair_setup(), changing_pairs()],
        drafts in proptest::collection::vec(draft(), 1..30),
    ) {
        let requests = with_media(requests(&drafts, setup.inner.config.block_size));
        prop_assume!(setup.is_apart());
        let reads = Reads { in_flight: true, tokens: true, ..Reads::NOTHING };
        let mut timeline = Timeline::new(setup.cluster(Fast::new), ArrivalList::new(requests.into()), reads);
        let mut log = PairLog::default();
        prop_assume!(timeline.run_until(Micros::MAX, &mut log).is_ok());
        let cluster = &mut timeline.cluster;
        cluster.refresh_signals(Micros(u64::MAX / 2), &mut log).expect("all is over");
        for instance in (0..cluster.instances.len()).map(InstanceIndex::at) {
            prop_assert_eq!(cluster.board.in_flight(instance), (0, 0), "on instance {}", instance);
        }
    }

    /// On an idle service a faster network is never slower.
    #[test]
    fn infinite_bandwidth_never_loses(mut setup in pair_setup(), draft in draft()) {
        setup.inner.policies.admission = Box::new(AlwaysAdmit);
        setup.inner.flow = None;
        setup.disaggregation.decider = Box::new(AlwaysDisaggregate);
        let mut requests = with_media(requests(&[draft], setup.inner.config.block_size));
        requests[0].deadline = None;
        prop_assume!(setup.network().is_some());
        let finite = run_pairs(&setup, Fast::new, &requests).expect("it ends");
        if let Some(network) = setup.network() {
            network.card = f64::INFINITY;
        }
        let infinite = run_pairs(&setup, Fast::new, &requests).expect("it ends");
        let [finite, infinite] = [finite, infinite].map(|log| log.simulation.outcomes[&requests[0].id]);
        prop_assert_eq!(finite.status, infinite.status);
        prop_assert!(infinite.ttft <= finite.ttft && infinite.e2e <= finite.e2e, "{:?} {:?}", infinite, finite);
    }
}

/// A service with roles of which the replicas come and go, in vLLM's flow: a group of each role, and its instances in the order of
/// groups.
fn changing_pairs() -> impl Strategy<Value = PairSetup> {
    let changes = proptest::collection::vec((prop_oneof![1u64..20_000, 1u64..300_000], 0usize..3, 0u32..5), 0..12);
    let times = (prop_oneof![Just(0u64), 1u64..60_000], 0u32..2, 0usize..5);
    let scaling = proptest::option::of(scaling_loop());
    (pair_setup(), changes, times, scaling, (any::<bool>(), any::<bool>())).prop_filter_map(
        "BLIS's flow has a fixed number of instances",
        |(mut setup, changes, (start, min, drain), scaling, (both, encode))| {
            let mut roles = vec![InstanceRole::Prefill, InstanceRole::Decode];
            roles.extend(both.then_some(InstanceRole::PrefillDecode));
            roles.extend(encode.then_some(InstanceRole::Encode));
            setup.network()?;
            setup.disaggregation.encode = if encode { EncodeRule::Multimodal } else { EncodeRule::Never };
            let encoder = |role| (role == InstanceRole::Encode).then_some(ENCODER);
            let initial = [2, 1, 1, 1];
            let group = |(&role, &initial): (&InstanceRole, &u32)| ReplicaGroup {
                instance: InstanceConfig {
                    labels: InstanceLabels { role, ..InstanceLabels::default() },
                    ..setup.inner.instances[0].clone()
                },
                serves: vec![Name(7), Name(8)],
                initial,
                limits: ReplicaLimits { min, max: 4 },
                gpus: 1 + initial,
                pools: Vec::new(),
                price: None,
                start: StartTimes {
                    process: PhaseTime::constant(Micros(start)),
                    weights: PhaseTime::default(),
                    compile: PhaseTime::default(),
                    warm_up: PhaseTime::default(),
                    wake: PhaseTime::default(),
                },
                mode: StartMode::Cold,
            };
            let groups: Vec<ReplicaGroup> = roles.iter().zip(&initial).map(group).collect();
            let each = || groups.iter().flat_map(|group| (0..group.initial).map(move |_| group));
            let network = setup.network()?;
            network.gpus = each().map(|group| group.gpus).collect();
            network.token_bytes = vec![1000.0; network.gpus.len()];
            setup.disaggregation.roles = each().map(|group| group.instance.labels.role).collect();
            if let TransferFlow::Nixl(flow) = &mut setup.disaggregation.flow {
                flow.encoders = setup.disaggregation.roles.iter().map(|&role| encoder(role)).collect();
            }
            setup.disaggregation.groups = groups
                .iter()
                .map(|group| RoleGroup {
                    role: group.instance.labels.role,
                    gpus: group.gpus,
                    token_bytes: 1000.0,
                    encoder: encoder(group.instance.labels.role),
                })
                .collect();
            setup.inner.instances = each()
                .enumerate()
                .map(|(i, group)| InstanceConfig { index: InstanceIndex::at(i), ..group.instance.clone() })
                .collect();
            let mut at = 0;
            let scheduled = changes.into_iter().map(|(gap, group, replicas)| {
                at += gap;
                ScheduledReplicas { at: Micros(at), group: group % groups.len(), replicas }
            });
            let drain: Box<dyn DrainPolicy> = if drain == 0 { Box::new(Emptiest) } else { Box::new(Newest) };
            setup.inner.replicas = Some(ReplicaSettings {
                scheduled: scheduled.collect(),
                groups,
                pools: Vec::new(),
                scaling,
                starts: Stream::new(3, "starts"),
                drain,
                placement: Box::new(FirstFit),
            });
            Some(setup)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, max_shrink_iters: 1000, ..ProptestConfig::default() })]

    /// Nothing is lost while replicas of each role come and go, one that drains serves what it has, and one that is gone has kept no
    /// blocks (`Cluster::remove`).
    #[test]
    fn engines_agree_while_replicas_with_roles_come_and_go(
        mut setup in changing_pairs(),
        drafts in proptest::collection::vec(draft(), 1..50),
        horizon in prop_oneof![3 => Just(Micros::MAX), 1 => (1_000u64..900_000).prop_map(Micros)],
    ) {
        setup.inner.config.horizon = horizon;
        let requests = with_media(requests(&drafts, setup.inner.config.block_size));
        match (run_pairs(&setup, Fast::new, &requests), run_pairs(&setup, Plain::new, &requests)) {
            (Ok(fast), Ok(plain)) => {
                assert_pairs(&setup, &requests, &plain);
                assert_lives(&setup, &plain);
                prop_assert_eq!(&fast, &plain);
            }
            (Err(fast), Err(plain)) => {
                prop_assert!(setup.inner.flow.is_some(), "{fast}");
                prop_assert_eq!(fast, plain);
            }
            (fast, plain) => prop_assert!(false, "{:?} {:?}", fast.err(), plain.err()),
        }
    }
}

/// Parts are on replicas of their role, which were there.
fn assert_lives(setup: &PairSetup, log: &PairLog) {
    let mut roles = setup.disaggregation.roles.clone();
    let mut gone = BTreeMap::new();
    for event in &log.simulation.replicas {
        match (event.state, event.instance) {
            (Some(ReplicaState::Active), Some(instance)) => {
                assert_eq!(instance.index(), roles.len());
                roles.push(setup.disaggregation.groups[event.group].role);
            }
            (None, Some(instance)) => {
                gone.insert(instance, event.at);
            }
            _ => {}
        }
    }
    for times in log.stages.values() {
        assert!(roles[times.prefill.index()].prefills() && roles[times.decode.index()].decodes(), "{times:?}");
        let outcome = &log.simulation.outcomes[&times.id];
        assert!(
            gone.get(&times.decode).is_none_or(|&at| outcome.ended_at <= at),
            "{outcome:?} after the end of its replica"
        );
    }
    for times in log.encoded.values() {
        assert_eq!(roles[times.encode.index()], InstanceRole::Encode, "{times:?}");
        let outcome = &log.simulation.outcomes[&times.id];
        let gone = outcome.instance.and_then(|instance| gone.get(&instance));
        assert!(gone.is_none_or(|&at| outcome.ended_at <= at), "{outcome:?} after the end of its replica");
    }
    assert_eq!(log.simulation.counters.len(), roles.len());
}

/// Two prefill instances and a decode instance with a slow network.
fn by_hand(hop: u64) -> PairSetup {
    let latency = Arc::new(Blackbox::new(&[1000.0, 10.0, 100.0], &[0.0, 0.0, 0.0]).expect("valid"));
    let instance = |index| InstanceConfig {
        index: InstanceIndex(index),
        labels: InstanceLabels::default(),
        max_num_seqs: 8,
        max_num_batched_tokens: 2048,
        long_prefill_token_threshold: 0,
        max_model_len: None,
        block_size: 16,
        total_kv_blocks: 40,
        enable_prefix_caching: true,
        enable_chunked_prefill: true,
        async_scheduling: false,
        reserve_full_prompt: true,
        options: SchedulerOptions::default(),
        policies: InstancePolicies::default(),
        classes: Arc::default(),
        offload: None,
        blis_tiers: None,
        kv_groups: None,
        adapters: None,
        semantics: Semantics::VLLM_0_33,
        latency: latency.clone(),
    };
    PairSetup {
        inner: ClusterSetup {
            config: ClusterConfig {
                admission_latency: Micros::ZERO,
                routing_latency: Micros::ZERO,
                snapshot_refresh_interval: Micros(50_000),
                cache_signal_delay: Micros(50_000),
                ties: Ties::LowestIndex,
                classes: Classes::default(),
                serves: Vec::new(),
                block_size: 16,
                semantics: Semantics::VLLM_0_33,
                horizon: Micros::MAX,
                abort: Abort::default(),
            },
            instances: (0..3).map(instance).collect(),
            policies: policies(9, 0, 0),
            flow: None,
            replicas: None,
            fcfs: true,
        },
        disaggregation: DisaggregationConfig {
            roles: vec![InstanceRole::Prefill, InstanceRole::Prefill, InstanceRole::Decode],
            groups: Vec::new(),
            flow: TransferFlow::Nixl(NixlFlow {
                network: KvNetwork {
                    card: 100.0,
                    latency: Micros(500),
                    handshake: Micros(3_000),
                    hop: Micros(hop),
                    gpus: vec![1; 3],
                    token_bytes: vec![1000.0; 3],
                    embedding_bytes: 200.0,
                },
                encoders: Vec::new(),
                prefill_first: false,
                keeps: None,
            }),
            decider: Box::new(AlwaysDisaggregate),
            decode_routing: None,
            prefill_routing: Some(PoolRouting { policy: Box::new(RoundRobin::default()), ties: Ties::LowestIndex }),
            encode_routing: None,
            encode: EncodeRule::Never,
        },
    }
}

#[test]
fn the_stages_of_a_request_by_hand() {
    let setup = by_hand(200);
    let requests = [Request::new(RequestId(0), Micros(50), 320, 3)];
    let log = run_pairs(&setup, Plain::new, &requests).expect("it ends");
    let times = log.stages[&RequestId(0)];
    let stages =
        [times.prefill_queue, times.prefill_time, times.hold, times.decode_wait, times.transfer, times.decode_first];
    // Hop to the prefill instance and its queueing time (1000 + 10 · 320 by α); a prefill step by β; the response; queueing time there;
    // latency, handshake and 320 000 bytes at 100 bytes/µs; the step of the last token.
    assert_eq!(stages.map(|stage| stage.map(|stage| stage.0)), [4400, 101, 200, 4200, 6700, 101].map(Some));
    assert_eq!(times.transferred_tokens, 320);
    assert_eq!(log.simulation.outcomes[&RequestId(0)].generated_tokens, 3);
}

/// The decode instance has room for one prompt at a time: the second waits there, and its blocks on the prefill instance stay, so
/// that a third waits there.
#[test]
fn a_full_decode_instance_holds_back_prefill() {
    let setup = by_hand(0);
    let request = |id: u32| Request::new(RequestId(id), Micros(u64::from(id)), 480, 100);
    let requests: Vec<Request> = (0..4).map(request).collect();
    for log in [run_pairs(&setup, Plain::new, &requests), run_pairs(&setup, Fast::new, &requests)] {
        let log = log.expect("it ends");
        assert!(log.simulation.outcomes.values().all(Outcome::completed));
        let stage = |id: u32| log.stages[&RequestId(id)];
        assert_eq!(stage(0).decode_wait, Some(Micros(5_800)), "its queueing time");
        // Until the first has generated its output: its transfer, and 100 steps.
        assert!(stage(1).decode_wait > Some(Micros(5_800 + 8_300)), "{:?}", stage(1));
        assert!(stage(2).prefill_queue > Some(Micros(5_800 + 5_800)), "until the blocks of the first were read");
        assert!(stage(3).prefill_queue > stage(2).prefill_queue, "until those of the second were");
    }
}

/// Routes in turn and logs all events.
#[derive(Debug, Default)]
struct PoolLogger {
    inner: RoundRobin,
    events: Arc<Mutex<Vec<Event>>>,
}

impl RoutingPolicy for PoolLogger {
    fn reads(&self) -> Reads {
        self.inner.reads()
    }

    fn route(
        &mut self,
        request: &RequestView<'_>,
        cluster: &ClusterView<'_>,
        ties: &Ties,
        scores: &mut Vec<f64>,
    ) -> RoutingDecision {
        self.inner.route(request, cluster, ties, scores)
    }

    fn events(&self) -> Events {
        Events { routed: true, first_token: true, completed: true, ..Events::NONE }
    }

    fn observe(&mut self, event: &Event) {
        self.events.lock().unwrap().push(*event);
    }

    fn fork(&self) -> Box<dyn RoutingPolicy> {
        Box::new(Self { inner: self.inner, events: Arc::clone(&self.events) })
    }
}

/// They received none: only the policy of the whole service did, which decides nothing beside them.
#[test]
fn routing_policies_of_pools_receive_events() {
    let requests: Vec<Request> =
        (0..6).map(|id| Request::new(RequestId(id), Micros(u64::from(id) * 60_000), 64, 3)).collect();
    let log = |plain: bool| {
        let mut setup = by_hand(200);
        let [decode, prefill]: [PoolLogger; 2] = Default::default();
        let events = [Arc::clone(&decode.events), Arc::clone(&prefill.events)];
        let pool = |policy| Some(PoolRouting { policy: Box::new(policy), ties: Ties::LowestIndex });
        (setup.disaggregation.decode_routing, setup.disaggregation.prefill_routing) = (pool(decode), pool(prefill));
        let ended =
            if plain { run_pairs(&setup, Plain::new, &requests) } else { run_pairs(&setup, Fast::new, &requests) };
        assert!(ended.expect("it ends").simulation.outcomes.values().all(Outcome::completed));
        events.map(|events| events.lock().unwrap().clone())
    };
    let [decode, prefill] = log(true);
    assert_eq!(decode, prefill, "both pools receive all events");
    let of = |kind: EventKind| decode.iter().filter(move |event| event.kind == kind);
    assert_eq!(of(EventKind::Routed).map(|event| event.request.0).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
    assert!(of(EventKind::Routed).all(|event| event.instance == Some(InstanceIndex(2))), "the one that decodes");
    // What happens after the last decision is not delivered.
    assert!(of(EventKind::FirstToken).count() >= 5 && of(EventKind::Completed).count() >= 5, "{decode:?}");
    assert_eq!(log(false), [decode.clone(), prefill]);
}

/// Prefills each request on the instance that does not decode it.
#[derive(Clone, Copy, Debug)]
struct OnTheOther;

impl DisaggregationPolicy for OnTheOther {
    fn reads(&self) -> Reads {
        Reads::NOTHING
    }

    fn decide(&mut self, _: &RequestView<'_>, pools: &PoolsView<'_>) -> DisaggregationDecision {
        let prefill = pools.prefill.iter().copied().find(|&instance| instance != pools.chosen);
        DisaggregationDecision { prefill, ..DisaggregationDecision::new(true) }
    }

    fn fork(&self) -> Box<dyn DisaggregationPolicy> {
        Box::new(*self)
    }
}

/// Each of two instances keeps a prompt for the other and has no room for its own, as in vLLM, where an instance renews the lease
/// of what it waits for. A client that times out frees both, also in the microsecond in which the other's blocks let its read begin
/// (a read that the service had not seen kept its blocks for ever).
#[test]
fn instances_that_do_both_wait_for_each_other_until_clients_time_out() {
    for deadline in [None, Some(Micros(900_000))] {
        let mut setup = by_hand(0);
        setup.inner.instances.truncate(2);
        setup.disaggregation.roles = vec![InstanceRole::PrefillDecode; 2];
        setup.disaggregation.decider = Box::new(OnTheOther);
        let routing = Box::new(RoundRobin::default());
        setup.disaggregation.decode_routing = Some(PoolRouting { policy: routing, ties: Ties::LowestIndex });
        if let Some(network) = setup.network() {
            (network.gpus, network.token_bytes) = (vec![1; 2], vec![1000.0; 2]);
        }
        let request = |id: u32| Request { deadline, ..Request::new(RequestId(id), Micros(u64::from(id)), 480, 10) };
        let requests: Vec<Request> = (0..2).map(request).collect();
        for log in [run_pairs(&setup, Plain::new, &requests), run_pairs(&setup, Fast::new, &requests)] {
            let outcomes = log.expect("it ends").simulation.outcomes;
            let are = |status: Status| outcomes.values().all(|outcome| outcome.status == status);
            assert!(if deadline.is_some() { are(Status::TimedOut) } else { are(Status::Queued) }, "{outcomes:?}");
        }
    }
}
