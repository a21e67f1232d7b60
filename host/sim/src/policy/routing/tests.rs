//! Tests of the routing policies: the chosen instance, and parameters that are refused.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use proptest::prelude::*;

use super::weighted::LEFT_OUT;
use super::*;
use crate::policy::testing::{TestService, request, view_of};
use crate::policy::{
    Event, EventKind, Events, Reason, RequestView, RoutingDecision, RoutingPolicy, RoutingStep, StepFailed, StepMemory,
    Versions,
};
use crate::request::{Request, Span, Tags};
use crate::rng::Stream;
use crate::units::Micros;

fn random() -> Ties {
    Ties::Random(Stream::new(42, "router"))
}

fn route(
    policy: &mut dyn RoutingPolicy,
    request: &Request,
    service: &TestService,
    ties: Ties,
) -> (RoutingDecision, Vec<f64>) {
    let mut scores = Vec::new();
    let choice = policy.route(&view_of(request), &service.view(), &ties, &mut scores);
    policy.dispatched(&view_of(request), service.instances[choice.target].id);
    (choice, scores)
}

/// The targets of a sequence of requests of one block, with ties to the lowest index.
fn targets(policy: &mut dyn RoutingPolicy, services: &[&TestService]) -> Vec<usize> {
    let one = |(id, service)| route(policy, &request(id, 1, &[]), service, Ties::LowestIndex).0.target;
    (0..).zip(services.iter().copied()).map(one).collect()
}

fn loaded(queue: &[u32], batch: &[u32], in_flight: &[u32]) -> TestService {
    TestService::idle(queue.len()).with(|signals| {
        signals.queue_depth = queue.to_vec();
        signals.batch_size = batch.to_vec();
        signals.in_flight = in_flight.to_vec();
    })
}

#[test]
fn round_robin_counts_on_when_instances_change() {
    let (three, two) = (TestService::idle(3), TestService::idle(2));
    let mut policy = RoundRobin::default();
    assert_eq!(targets(&mut policy, &[&three, &three, &three, &three, &two, &two]), [0, 1, 2, 0, 0, 1]);
    let (choice, scores) = route(policy.fork().as_mut(), &request(0, 1, &[]), &three, random());
    assert_eq!((choice.reason, scores), (Reason::RoundRobin(6), vec![]));
}

#[test]
fn loads_decide() {
    let service = loaded(&[2, 0, 0, 3], &[0, 2, 0, 3], &[3, 2, 4, 0]); // 5, 4, 4, 6
    let prompt = request(0, 1, &[]);
    let choose = |policy: &mut dyn RoutingPolicy| route(policy, &prompt, &service, Ties::LowestIndex);
    assert_eq!(
        choose(&mut LeastLoaded::default()),
        (RoutingDecision { target: 1, reason: Reason::LeastLoaded(4) }, vec![])
    );
    assert_eq!(choose(&mut AlwaysBusiest), (RoutingDecision { target: 3, reason: Reason::AlwaysBusiest(6) }, vec![]));
    let equal = TestService::idle(3);
    assert_eq!(targets(&mut AlwaysBusiest, &[&equal]), [0]);
}

#[test]
fn ties_go_to_all_tied_instances_and_to_no_other() {
    let service = loaded(&[1, 0, 1, 0, 0], &[0; 5], &[0; 5]);
    for policy in [&mut LeastLoaded::default() as &mut dyn RoutingPolicy, &mut Weighted::default()] {
        let mut counts = [0_u32; 5];
        for id in 0..3000 {
            counts[route(policy, &request(id, 1, &[]), &service, random()).0.target] += 1;
        }
        // 1000 each, standard deviation 26: five of them.
        assert_eq!((counts[0], counts[2]), (0, 0));
        assert!([1, 3, 4].iter().all(|&i| counts[i].abs_diff(1000) < 129), "{counts:?}");
    }
}

#[test]
fn the_default_profile_adds_up() {
    let service = TestService::idle(2).with(|signals| {
        signals.cached_blocks = vec![0, 8];
        signals.queue_depth = vec![0, 3];
        signals.kv_utilization = vec![0.5, 0.25];
    });
    let (choice, scores) = route(&mut Weighted::default(), &request(0, 8, &[]), &service, random());
    assert_eq!(scores, [0.375, 0.6875]); // 0.5·0 + 0.25·1 + 0.25·0.5, 0.5·1 + 0.25·0 + 0.25·0.75
    assert_eq!(choice, RoutingDecision { target: 1, reason: Reason::Weighted(0.6875) });
}

#[test]
fn weights_are_shares() {
    let service = loaded(&[0, 4], &[4, 0], &[1, 0]);
    let scores = |queue, running| {
        let weights = vec![(ScorerKind::QueueDepth, queue), (ScorerKind::RunningRequests, running)];
        route(&mut Weighted::new(weights).unwrap(), &request(0, 1, &[]), &service, random()).1
    };
    assert_eq!(scores(3.0, 1.0), [0.75, 0.25]);
    assert_eq!(scores(300.0, 100.0), [0.75, 0.25]);
    assert_eq!(scores(0.375, 0.125), [0.75, 0.25]);
}

#[test]
fn scorers_with_state_record_where_a_request_went() {
    let service = TestService::idle(3);
    let weights = vec![(ScorerKind::PrefixAffinity, 1.0), (ScorerKind::LoadBalance, 1.0)];
    let mut policy = Weighted::new(weights).unwrap();
    let prompt = |id| request(id, 2, &[Span { first: 0, len: 2 }]);
    let (first, scores) = route(&mut policy, &prompt(0), &service, random());
    assert_eq!(scores, [0.5; 3]);
    let mut fork = policy.fork();
    for policy in [&mut policy, fork.as_mut()] {
        let (second, scores) = route(policy, &prompt(1), &service, random());
        assert_eq!((second.target, scores[second.target]), (first.target, 1.0));
    }
}

#[test]
fn cold_requests_rotate_under_no_hit_lru() {
    let service = TestService::idle(4);
    let weights = [(ScorerKind::NoHitLru, 2.0), (ScorerKind::PrecisePrefixCache, 1.0), (ScorerKind::LoadBalance, 1.0)];
    let mut policy = Weighted::new(weights.to_vec()).unwrap();
    assert_eq!(targets(&mut policy, &[&service; 6]), [0, 1, 2, 3, 0, 1]);
}

#[test]
fn cache_and_load_as_before_there_were_scorers() {
    let service = loaded(&[0, 1], &[0, 1], &[0, 1]).with(|signals| signals.free_kv_blocks = vec![250, 1000]);
    let choose = |cache, load| {
        let mut policy = CacheAndLoad::new(cache, load).unwrap();
        route(&mut policy, &request(0, 1, &[]), &service, random())
    };
    assert_eq!(choose(1.0, 1.0), (RoutingDecision { target: 0, reason: Reason::Weighted(0.625) }, vec![0.625, 0.625]));
    assert_eq!(choose(3.0, 1.0).1, [0.4375, 0.8125]);
    assert_eq!(choose(0.0, 5.0).1, [1.0, 0.25]);
    let full = TestService::idle(2).with(|signals| signals.free_kv_blocks = vec![0, 0]);
    let (choice, scores) = route(&mut CacheAndLoad::new(0.5, 0.5).unwrap(), &request(0, 1, &[]), &full, random());
    assert_eq!((choice.target, scores), (0, vec![0.5; 2]), "without free blocks the score is 0; ties go to the first");
}

#[test]
fn the_same_prompt_goes_to_the_same_instance() {
    let (idle, busy) = (loaded(&[1, 0, 1], &[0; 3], &[0; 3]), loaded(&[0, 9, 0], &[0; 3], &[0; 3]));
    let shared = [Span { first: 0, len: 4 }];
    let mut policy = PrefixAffinity::default();
    let mut choose = |request: &Request, service: &TestService| {
        let choice = route(&mut policy, request, service, Ties::LowestIndex).0;
        (choice.target, choice.reason == Reason::PrefixAffinity { hit: true })
    };
    assert_eq!(choose(&request(0, 4, &shared), &idle), (1, false));
    assert_eq!(choose(&request(1, 4, &shared), &busy), (1, true));
    assert_eq!(choose(&request(2, 3, &shared), &busy), (0, false), "shorter");
    assert_eq!(choose(&request(3, 5, &shared), &busy), (0, false), "one unique block");
    assert_eq!(choose(&request(3, 5, &shared), &idle), (1, false), "with a block that no other prompt has");
    assert_eq!(choose(&request(4, 0, &shared), &busy), (0, false), "no full block");
    let mut without = busy.clone();
    for signal in [&mut without.signals.queue_depth, &mut without.signals.batch_size, &mut without.signals.in_flight] {
        signal.remove(1);
    }
    without.instances.remove(1);
    assert_eq!(choose(&request(5, 4, &shared), &without), (0, false), "its instance was removed");
    assert_eq!(choose(&request(6, 4, &shared), &idle), (0, true), "it has a new instance");
}

#[test]
fn policies_declare_the_signals_that_they_read() {
    let default = Reads { load: true, cached_blocks: true, ..Reads::NOTHING };
    assert_eq!(RoundRobin::default().reads(), Reads::NOTHING);
    assert_eq!([LeastLoaded::default().reads(), AlwaysBusiest.reads(), PrefixAffinity::default().reads()], [LOAD; 3]);
    assert_eq!(Weighted::default().reads(), default);
    let reads = |kind| Weighted::new(vec![(kind, 1.0)]).unwrap().reads();
    assert_eq!(reads(ScorerKind::ActiveRequests), Reads { in_flight: true, ..Reads::NOTHING });
    assert_eq!(reads(ScorerKind::PrefixAffinity), Reads::NOTHING);
}

#[test]
fn invalid_parameters_are_refused_with_a_message() {
    let queue = ScorerKind::QueueDepth;
    let errors = [
        Weighted::new(vec![]).unwrap_err(),
        Weighted::new(vec![(queue, 0.0)]).unwrap_err(),
        Weighted::new(vec![(queue, 1.0), (ScorerKind::LoadAware, f64::NAN)]).unwrap_err(),
        Weighted::new(vec![(queue, 1.0), (queue, 2.0)]).unwrap_err(),
        Weighted::new(vec![(queue, f64::MAX), (ScorerKind::LoadAware, f64::MAX)]).unwrap_err(),
        CacheAndLoad::new(-1.0, 2.0).unwrap_err(),
        CacheAndLoad::new(1.0, f64::NAN).unwrap_err(),
        CacheAndLoad::new(0.0, 0.0).unwrap_err(),
    ];
    insta::assert_snapshot!(errors.join("\n"), @r"
    weighted routing needs a scorer
    the weight of scorer `queue-depth` is a finite number above 0, not 0
    the weight of scorer `load-aware` is a finite number above 0, not NaN
    scorer `queue-depth` is listed twice: list it once, with the sum of its weights
    the weights of the scorers are too large to add up
    the cache weight of routing is a finite number, 0 or more: not -1
    the load weight of routing is a finite number, 0 or more: not NaN
    the cache and load weights of routing add up to 0: one must be above 0
    ");
}

proptest! {
    #[test]
    fn ties_are_broken_by_index(values in prop::collection::vec(0..3_u32, 1..100), id: u32) {
        let id = RequestId(id);
        let least = *values.iter().min().unwrap();
        let tied: Vec<usize> = (0..values.len()).filter(|&index| values[index] == least).collect();
        prop_assert_eq!(pick(&values, least, id, &random()), tied[random().pick(id, tied.len())]);
        prop_assert_eq!(pick(&values, least, id, &Ties::LowestIndex), tied[0]);
        let scores: Vec<f64> = values.iter().map(|&value| f64::from(value) / 2.0).collect();
        prop_assert_eq!(highest(&scores), f64::from(*values.iter().max().unwrap()) / 2.0);
    }

    #[test]
    fn the_target_has_the_highest_score_and_a_fork_agrees(
        weights in prop::collection::vec(0.001..1e6, 11),
        kinds in prop::sample::subsequence(ScorerKind::ALL.to_vec(), 1..=11),
        rounds in prop::collection::vec(prop::collection::vec((0..4_u32, 0..4_u32, 0..3_u32, 0..2_u32), 5), 1..20),
    ) {
        let mut policy = Weighted::new(kinds.into_iter().zip(weights).collect()).unwrap();
        for (id, rows) in (0..).zip(rounds) {
            let column = |cell: fn(&(u32, u32, u32, u32)) -> u32| rows.iter().map(cell).collect::<Vec<_>>();
            let service = loaded(&column(|r| r.0), &column(|r| r.1), &column(|r| r.2))
                .with(|signals| signals.cached_blocks = column(|r| r.3));
            let prompt = request(id, 3, &[Span { first: rows[0].0 * 10, len: 2 }]);
            let mut fork = policy.fork();
            let (choice, scores) = route(&mut policy, &prompt, &service, random());
            prop_assert!(scores.iter().all(|&score| (0.0..=1.0 + 1e-9).contains(&score)), "{:?}", scores);
            prop_assert!(scores.iter().all(|&score| score <= scores[choice.target]), "{:?} {:?}", scores, choice);
            prop_assert_eq!(route(fork.as_mut(), &prompt, &service, random()), (choice, scores));
        }
    }
}

proptest! {
    /// Values kept from the last decision equal the values computed anew.
    #[test]
    fn kept_values_equal_recomputed_values(
        n in 1usize..9,
        changes in proptest::collection::vec((0usize..9, 0u32..4, 0u8..4), 1..40),
    ) {
        let weighted = Weighted::new(ScorerKind::ALL.iter().map(|&kind| (kind, 1.5)).collect()).expect("valid");
        let default = Weighted::default();
        let mut kept: Vec<Box<dyn RoutingPolicy>> =
            vec![Box::new(weighted), Box::new(default), Box::new(LeastLoaded::default())];
        let mut computed: Vec<_> = kept.iter().map(|policy| policy.fork()).collect();
        let mut service = TestService::idle(n);
        let mut versions = Versions { load: 1, cached_blocks: 1, instances: 0 };
        for (id, (index, value, column)) in (0..).zip(changes) {
            let index = index % n;
            match column {
                0 => service.signals.queue_depth[index] = value,
                1 => service.signals.kv_utilization[index] = f64::from(value) / 4.0,
                2 => service.signals.cached_blocks[index] = value,
                _ => service.signals.in_flight[index] = value,
            }
            versions.load += u64::from(column < 2);
            versions.cached_blocks += u64::from(column == 2);
            let request = request(id, 3, &[]);
            for (kept, computed) in kept.iter_mut().zip(&mut computed) {
                let (mut expected, mut scores) = (Vec::new(), Vec::new());
                let view = service.view();
                let expects = computed.route(&view_of(&request), &view, &random(), &mut expected);
                let view = ClusterView { versions, ..view };
                let choice = kept.route(&view_of(&request), &view, &random(), &mut scores);
                prop_assert_eq!((choice, scores), (expects, expected));
            }
        }
    }
}

/// Instances with these cached blocks of a prompt of 10 blocks and 3 tokens.
fn caches(cached: &[u32]) -> TestService {
    TestService::idle(cached.len()).with(|signals| signals.cached_blocks = cached.to_vec())
}

#[test]
fn token_load_counts_the_prompt_tokens_ahead() {
    let mut policy = Weighted::new(vec![(ScorerKind::TokenLoad, 1.0)]).expect("valid");
    assert_eq!(policy.reads(), Reads { cached_blocks: true, tokens: true, ..Reads::NOTHING });
    let prompt = request(0, 10, &[Span { first: 0, len: 10 }]);
    let load = |tokens: u32| 1.0 - f64::from(tokens) / 4_194_304.0;
    // 160 of its 163 tokens are cached on the first instance, where 163 are in flight.
    let service = caches(&[10, 0]).with(|signals| signals.in_flight_tokens = vec![163, 0]);
    let (choice, scores) = route(&mut policy, &prompt, &service, Ties::LowestIndex);
    assert_eq!((choice.target, scores), (1, vec![load(166), load(163)]));
    let full = caches(&[0, 0]).with(|signals| signals.in_flight_tokens = vec![u64::from(u32::MAX), 0]);
    assert_eq!(route(&mut policy, &prompt, &full, Ties::LowestIndex).1, [0.0, load(163)]);
}

#[test]
fn instances_that_filters_leave_out_cannot_be_chosen() {
    let filter = PrefixCacheFilter { affinity: 0.5, peak_prefill: 1000.0, max_penalty_ms: 100.0 };
    let scores = Weighted::new(vec![(ScorerKind::TokenLoad, 1.0)]).expect("valid");
    let mut policy = scores.with_filters(vec![RoutingFilter::PrefixCache(filter)]);
    let prompt = request(0, 10, &[Span { first: 0, len: 10 }]);
    let mut target = |tokens: &[u64]| {
        let service = caches(&[0, 6, 0]).with(|signals| signals.in_flight_tokens = tokens.to_vec());
        route(&mut policy, &prompt, &service, Ties::LowestIndex).0.target
    };
    // 1000 tokens are a second of prefill, 100 a tenth.
    let targets = [target(&[0, 0, 0]), target(&[0, 100, 0]), target(&[0, 101, 0]), target(&[500, 101, 20])];
    assert_eq!(targets, [1, 1, 0, 1]);
    let (_, scores) = route(&mut policy.clone(), &prompt, &caches(&[10, 0, 0]), Ties::LowestIndex);
    assert_eq!(scores[1..], [LEFT_OUT, LEFT_OUT]);
}

/// A step with the numbers of a list, which counts its calls and the events that it gets.
#[derive(Clone, Debug)]
struct ListStep {
    numbers: Option<Vec<f64>>,
    events: Events,
    calls: Arc<AtomicUsize>,
    observed: Arc<AtomicUsize>,
}

impl ListStep {
    fn new(numbers: &[f64]) -> Self {
        Self { numbers: Some(numbers.to_vec()), events: Events::NONE, calls: Arc::default(), observed: Arc::default() }
    }
}

impl RoutingStep for ListStep {
    fn reads(&self) -> Reads {
        Reads { waiting_tokens: true, ..Reads::NOTHING }
    }

    fn compute(
        &mut self,
        _: &RequestView<'_>,
        _: &ClusterView<'_>,
        _: &Ties,
        _: &mut StepMemory,
        numbers: &mut Vec<f64>,
    ) -> Result<(), StepFailed> {
        self.calls.fetch_add(1, Relaxed);
        numbers.clone_from(self.numbers.as_ref().ok_or(StepFailed)?);
        Ok(())
    }

    fn events(&self) -> Events {
        self.events
    }

    fn observe(&mut self, _: &Event) {
        self.observed.fetch_add(1, Relaxed);
    }

    fn fork(&self) -> Box<dyn RoutingStep> {
        Box::new(self.clone())
    }
}

fn scorer(step: &ListStep) -> ScorerStep {
    ScorerStep::Step(Box::new(step.clone()))
}

fn filter(step: &ListStep) -> FilterStep {
    FilterStep::Step(Box::new(step.clone()))
}

#[test]
fn scores_of_plugins_are_clamped_and_added_in_order() {
    let service = loaded(&[0, 4, 2], &[0; 3], &[0; 3]);
    let mine = ListStep::new(&[-3.0, f64::INFINITY, 0.5]);
    let scorers = vec![(scorer(&mine), 3.0), (ScorerStep::BuiltIn(ScorerKind::QueueDepth), 1.0)];
    let mut policy = Weighted::pipeline(Vec::new(), scorers, None).expect("valid");
    assert_eq!(policy.reads(), Reads { load: true, waiting_tokens: true, ..Reads::NOTHING });
    let prompt = request(0, 1, &[]);
    for _ in 0..2 {
        let (choice, scores) = route(&mut policy, &prompt, &service, Ties::LowestIndex);
        assert_eq!((choice.target, scores), (1, vec![0.25, 0.75, 0.5]));
    }
    assert_eq!(mine.calls.load(Relaxed), 2, "its scores are computed for every request");
}

#[test]
fn filters_of_plugins_leave_out_zeros_unless_all_are() {
    let service = loaded(&[0; 3], &[0; 3], &[0; 3]);
    let scores = |filters: Vec<FilterStep>| {
        let scorers = vec![(ScorerStep::BuiltIn(ScorerKind::QueueDepth), 1.0)];
        let mut policy = Weighted::pipeline(filters, scorers, None).expect("valid");
        route(&mut policy, &request(0, 1, &[]), &service, Ties::LowestIndex).1
    };
    let [first, last] = [ListStep::new(&[1.0, -2.0, 0.0]), ListStep::new(&[0.0, 0.0, 1.0])];
    assert_eq!(scores(vec![filter(&first)]), [1.0, 1.0, LEFT_OUT]);
    assert_eq!(
        scores(vec![filter(&first), filter(&last)]),
        [1.0, 1.0, LEFT_OUT],
        "the second would leave out the rest"
    );
    assert_eq!(scores(vec![filter(&last), filter(&first)]), [LEFT_OUT, LEFT_OUT, 1.0]);
    assert_eq!(scores(vec![filter(&ListStep::new(&[0.0; 3]))]), [1.0; 3]);
}

#[test]
fn after_a_failed_step_the_least_loaded_instance_is_chosen() {
    let service = loaded(&[3, 1, 1], &[0; 3], &[0; 3]);
    let mut failing = ListStep::new(&[]);
    failing.numbers = None;
    let fallback = |policy: &mut Weighted| route(policy, &request(0, 1, &[]), &service, random());
    let weighed = |step: &ListStep| vec![(scorer(step), 1.0)];
    for (filters, scorers) in
        [(vec![], weighed(&failing)), (vec![filter(&failing)], weighed(&ListStep::new(&[1.0; 3])))]
    {
        let mut policy = Weighted::pipeline(filters, scorers, None).expect("valid");
        let (choice, scores) = fallback(&mut policy);
        assert_eq!(choice, RoutingDecision { target: 1, reason: Reason::Fallback });
        assert_eq!(scores, []);
    }
}

/// Ids, scores and queue depths.
type SeenColumns = (Vec<u32>, Vec<f64>, Vec<u32>);

/// Chooses the instance with the lowest score, and remembers what it saw.
#[derive(Clone, Debug, Default)]
struct LowestScore {
    seen: Arc<Mutex<SeenColumns>>,
    explains: bool,
}

impl RoutingPolicy for LowestScore {
    fn reads(&self) -> Reads {
        Reads { load: true, ..Reads::NOTHING }
    }

    fn route(
        &mut self,
        _: &RequestView<'_>,
        cluster: &ClusterView<'_>,
        _: &Ties,
        scores: &mut Vec<f64>,
    ) -> RoutingDecision {
        let ids = cluster.instances.iter().map(|instance| instance.id.0).collect();
        *self.seen.lock().expect("one thread") = (ids, cluster.scores.to_vec(), cluster.signals.queue_depth.clone());
        if self.explains {
            scores.extend(cluster.scores.iter().map(|score| 5.0 - score));
        }
        let lowest = (0..cluster.len()).min_by(|&a, &b| cluster.scores[a].total_cmp(&cluster.scores[b]));
        RoutingDecision { target: lowest.expect("one is left"), reason: Reason::Plugin(None) }
    }

    fn fork(&self) -> Box<dyn RoutingPolicy> {
        Box::new(self.clone())
    }
}

#[test]
fn a_picker_chooses_among_the_instances_that_are_left() {
    let service = loaded(&[0, 4, 2], &[0; 3], &[0; 3]);
    let pick = |filters: Vec<FilterStep>, explains: bool| {
        let picker = LowestScore { explains, ..LowestScore::default() };
        let scorers = vec![(ScorerStep::BuiltIn(ScorerKind::QueueDepth), 1.0)];
        let mut policy = Weighted::pipeline(filters, scorers, Some(Box::new(picker.clone()))).expect("valid");
        let (choice, scores) = route(&mut policy, &request(0, 1, &[]), &service, random());
        let seen = picker.seen.lock().expect("one thread").clone();
        (choice.target, scores, seen)
    };
    let second = || vec![filter(&ListStep::new(&[1.0, 0.0, 1.0]))];
    assert_eq!(pick(second(), false), (2, vec![1.0, LEFT_OUT, 0.5], (vec![0, 2], vec![1.0, 0.5], vec![0, 2])));
    assert_eq!(pick(second(), true).1, [4.0, LEFT_OUT, 4.5], "its own scores decide");
    let sums = vec![1.0, 0.0, 0.5];
    assert_eq!(pick(vec![], false), (1, sums.clone(), (vec![0, 1, 2], sums, vec![0, 4, 2])));
    let alone = Weighted::pipeline(second(), vec![], Some(Box::<LowestScore>::default())).expect("needs no scorer");
    assert_eq!(route(&mut alone.clone(), &request(0, 1, &[]), &service, random()).0.target, 0);
    assert!(Weighted::pipeline(vec![], vec![], None).is_err());
}

#[test]
fn steps_receive_their_events_and_forks_copy_them() {
    let mut subscribed = ListStep::new(&[1.0]);
    subscribed.events = Events { completed: true, ..Events::NONE };
    let silent = ListStep::new(&[1.0]);
    let scorers = vec![(scorer(&subscribed), 1.0), (scorer(&silent), 1.0)];
    let mut policy = Weighted::pipeline(vec![filter(&subscribed)], scorers, None).expect("valid");
    assert_eq!(policy.events(), subscribed.events);
    let event = Event {
        at: Micros::ZERO,
        kind: EventKind::Completed,
        request: RequestId(0),
        instance: None,
        input_tokens: 1,
        generated_tokens: 1,
        ttft: None,
        e2e: None,
        tags: Tags::default(),
        block: 0,
    };
    policy.observe(&event);
    assert_eq!((subscribed.observed.load(Relaxed), silent.observed.load(Relaxed)), (2, 0));
    policy.fork().observe(&event);
    assert_eq!(subscribed.observed.load(Relaxed), 4, "the copy has the same steps");
}
