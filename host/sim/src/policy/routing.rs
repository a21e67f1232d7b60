//! Which instance serves a request: the built-in routing policies (`reference/cluster.md` §1.5).
//!
//! They scan columns; what depends only on columns that have not changed since the last decision is
//! kept ([`Versions`](super::Versions)). Nothing is allocated once warmed up.

use rustc_hash::FxHashMap;

use super::loads::Loads;
use super::scorers::{DEFAULT_PROFILE, Scorer, ScorerKind};
use super::{Choice, ClusterView, Reads, Reason, RequestView, RoutingPolicy, Ties};
use crate::request::BlockKey;

/// What [`ClusterView::effective_load`] looks at.
const LOAD: Reads = Reads { load: true, in_flight: true, cached_blocks: false };

/// In turn. The turn goes on when the instances to choose from change.
#[derive(Clone, Copy, Debug, Default)]
pub struct RoundRobin {
    turn: u64,
}

impl RoutingPolicy for RoundRobin {
    fn reads(&self) -> Reads {
        Reads::NOTHING
    }

    fn route(&mut self, _: &RequestView<'_>, cluster: &ClusterView<'_>, _: &Ties, _: &mut Vec<f64>) -> Choice {
        let turn = self.turn;
        self.turn += 1;
        Choice { target: (turn % cluster.len() as u64) as usize, reason: Reason::RoundRobin(turn) }
    }

    fn fork(&self) -> Box<dyn RoutingPolicy> {
        Box::new(*self)
    }
}

/// The smallest load ([`ClusterView::effective_load`]).
#[derive(Clone, Debug, Default)]
pub struct LeastLoaded {
    loads: Loads,
}

impl RoutingPolicy for LeastLoaded {
    fn reads(&self) -> Reads {
        LOAD
    }

    fn route(&mut self, request: &RequestView<'_>, cluster: &ClusterView<'_>, ties: &Ties, _: &mut Vec<f64>) -> Choice {
        let target = self.loads.least(request.id, cluster, ties);
        Choice { target, reason: Reason::LeastLoaded(cluster.effective_load(target)) }
    }

    fn fork(&self) -> Box<dyn RoutingPolicy> {
        Box::new(self.clone())
    }
}

/// The largest load, the first of those: for tests of what notices that.
#[derive(Clone, Copy, Debug, Default)]
pub struct AlwaysBusiest;

impl RoutingPolicy for AlwaysBusiest {
    fn reads(&self) -> Reads {
        LOAD
    }

    fn route(&mut self, _: &RequestView<'_>, cluster: &ClusterView<'_>, _: &Ties, _: &mut Vec<f64>) -> Choice {
        let most = loads(cluster).fold(0, u32::max);
        let target = loads(cluster).position(|load| load == most).expect("it is one of them");
        Choice { target, reason: Reason::AlwaysBusiest(cluster.effective_load(target)) }
    }

    fn fork(&self) -> Box<dyn RoutingPolicy> {
        Box::new(*self)
    }
}

/// The largest weighted sum of scores.
#[derive(Clone, Debug)]
pub struct Weighted {
    terms: Vec<Term>,
    /// Σ over the terms, by instance.
    sums: Vec<f64>,
    /// Where they are highest.
    best: Vec<u32>,
}

#[derive(Clone, Debug)]
struct Term {
    scorer: Scorer,
    /// All add up to 1.
    weight: f64,
    /// By instance, as of that version of what it depends on.
    scores: Vec<f64>,
    version: u64,
}

impl Weighted {
    /// `scorers` with their weights, which are scaled to add up to 1.
    ///
    /// # Errors
    ///
    /// Says what is wrong: nothing to score by, a scorer twice, a weight that is not a finite
    /// number above 0.
    pub fn new(scorers: Vec<(ScorerKind, f64)>) -> Result<Self, String> {
        if scorers.is_empty() {
            return Err("weighted routing needs a scorer".to_owned());
        }
        for (i, &(kind, weight)) in scorers.iter().enumerate() {
            if !is_weight(weight) {
                return Err(format!("the weight of scorer `{kind}` is a finite number above 0, not {weight}"));
            }
            if scorers[..i].iter().any(|&(other, _)| other == kind) {
                return Err(format!("scorer `{kind}` is there twice: give it the sum of its weights once"));
            }
        }
        let sum: f64 = scorers.iter().map(|&(_, weight)| weight).sum();
        if !sum.is_finite() {
            return Err("the weights of the scorers are too large to add up".to_owned());
        }
        let term = |(kind, weight): (ScorerKind, f64)| Term {
            scorer: Scorer::new(kind),
            weight: weight / sum,
            scores: Vec::new(),
            version: 0,
        };
        Ok(Self { terms: scorers.into_iter().map(term).collect(), sums: Vec::new(), best: Vec::new() })
    }
}

impl Default for Weighted {
    /// By [`DEFAULT_PROFILE`].
    fn default() -> Self {
        Self::new(DEFAULT_PROFILE.to_vec()).expect("the default profile is well formed")
    }
}

impl RoutingPolicy for Weighted {
    fn reads(&self) -> Reads {
        self.terms.iter().fold(Reads::NOTHING, |reads, term| reads.and(term.scorer.kind().reads()))
    }

    /// The terms are added in the order given, so that sums that are equal in BLIS are equal here.
    fn route(
        &mut self,
        request: &RequestView<'_>,
        cluster: &ClusterView<'_>,
        ties: &Ties,
        scores: &mut Vec<f64>,
    ) -> Choice {
        if self.evaluate(request, cluster) {
            self.add_up(cluster.len());
        }
        scores.extend_from_slice(&self.sums);
        let target = self.best[ties.pick(request.id, self.best.len())] as usize;
        Choice { target, reason: Reason::Weighted(scores[target]) }
    }

    fn sent(&mut self, request: &RequestView<'_>, instance: u32) {
        for term in &mut self.terms {
            term.scorer.sent(request, instance);
        }
    }

    fn fork(&self) -> Box<dyn RoutingPolicy> {
        Box::new(self.clone())
    }
}

impl Weighted {
    /// Brings the terms up to date. Whether any changed.
    fn evaluate(&mut self, request: &RequestView<'_>, cluster: &ClusterView<'_>) -> bool {
        let mut changed = self.sums.len() != cluster.len();
        for Term { scorer, scores, version, .. } in &mut self.terms {
            let current = scorer.kind().version(&cluster.versions);
            if current != 0 && current == *version {
                continue;
            }
            *version = current;
            changed = true;
            scores.resize(cluster.len(), 0.0);
            scorer.score(request, cluster, scores);
        }
        changed
    }

    fn add_up(&mut self, instances: usize) {
        self.sums.clear();
        self.sums.resize(instances, 0.0);
        for Term { weight, scores, .. } in &self.terms {
            add(&mut self.sums, *weight, scores);
        }
        let highest = highest(&self.sums);
        self.best.clear();
        self.best.extend((0..).zip(&self.sums).filter(|&(_, &sum)| sum == highest).map(|(place, _)| place));
    }
}

/// Whether `weight` can weigh a term.
fn is_weight(weight: f64) -> bool {
    weight.is_finite() && weight > 0.0
}

/// What `weighted` meant before there were scorers: `--routing-cache-weight` and
/// `--routing-load-weight`. Equally good: the first.
#[derive(Clone, Copy, Debug)]
pub struct CacheAndLoad {
    /// Both add up to 1.
    cache_weight: f64,
    load_weight: f64,
}

impl CacheAndLoad {
    /// `cache_weight` for the unused KV blocks against the most of an instance, `load_weight` for
    /// 1 / (1 + load); scaled to add up to 1.
    ///
    /// # Errors
    ///
    /// Says which weight is not a finite number from 0 on, or that both are 0.
    pub fn new(cache_weight: f64, load_weight: f64) -> Result<Self, String> {
        for (name, weight) in [("cache", cache_weight), ("load", load_weight)] {
            if !(weight.is_finite() && weight >= 0.0) {
                return Err(format!("the {name} weight of routing is a finite number, 0 or more: not {weight}"));
            }
        }
        let sum = cache_weight + load_weight;
        if !is_weight(sum) {
            return Err(format!("the cache and load weights of routing add up to {sum}: one must be above 0"));
        }
        Ok(Self { cache_weight: cache_weight / sum, load_weight: load_weight / sum })
    }
}

impl RoutingPolicy for CacheAndLoad {
    fn reads(&self) -> Reads {
        LOAD
    }

    fn route(
        &mut self,
        request: &RequestView<'_>,
        cluster: &ClusterView<'_>,
        _: &Ties,
        scores: &mut Vec<f64>,
    ) -> Choice {
        let free = &cluster.signals.free_kv_blocks;
        let most_free = f64::from(free.iter().copied().max().unwrap_or(0).max(1));
        scores.extend(free.iter().zip(loads(cluster)).map(|(&free, load)| {
            self.cache_weight * (f64::from(free) / most_free) + self.load_weight * (1.0 / (1.0 + f64::from(load)))
        }));
        let target = best(scores, request.id, &Ties::LowestIndex);
        Choice { target, reason: Reason::Weighted(scores[target]) }
    }

    fn fork(&self) -> Box<dyn RoutingPolicy> {
        Box::new(*self)
    }
}

/// The same prompt again goes where it went before; any other goes to the least loaded instance.
///
/// BLIS compared hashes of the whole list of tokens. Here two prompts are the same if they are
/// equally long and all their full blocks are equal; the tokens behind the last full block are not
/// compared. A prompt with a block that no other request has, or shorter than a block, is like no
/// other. What went where is kept for good, as in BLIS.
#[derive(Clone, Debug, Default)]
pub struct PrefixAffinity {
    /// Instance number by prompt.
    homes: FxHashMap<Prompt, u32>,
    loads: Loads,
}

/// A prompt other requests may have: its last full block (which stands for all before it) and its
/// length in tokens.
type Prompt = (BlockKey, u32);

impl RoutingPolicy for PrefixAffinity {
    fn reads(&self) -> Reads {
        LOAD
    }

    fn route(&mut self, request: &RequestView<'_>, cluster: &ClusterView<'_>, ties: &Ties, _: &mut Vec<f64>) -> Choice {
        let prompt = common_prompt(request);
        let home = prompt.and_then(|prompt| self.homes.get(&prompt));
        let home = home.and_then(|home| cluster.instances.iter().position(|instance| instance.id == *home));
        if let Some(target) = home {
            return Choice { target, reason: Reason::PrefixAffinity { hit: true } };
        }
        let target = self.loads.least(request.id, cluster, ties);
        Choice { target, reason: Reason::PrefixAffinity { hit: false } }
    }

    fn sent(&mut self, request: &RequestView<'_>, instance: u32) {
        if let Some(prompt) = common_prompt(request) {
            self.homes.insert(prompt, instance);
        }
    }

    fn fork(&self) -> Box<dyn RoutingPolicy> {
        Box::new(self.clone())
    }
}

/// The prompt of `request`, if other requests may have the same.
fn common_prompt(request: &RequestView<'_>) -> Option<Prompt> {
    let (last, shared) = request.shared_blocks().fold((None, 0), |(_, n), key| (Some(key), n + 1));
    last.filter(|_| shared == request.prompt_blocks).map(|key| (key, request.input_tokens))
}

/// [`ClusterView::effective_load`] of every instance. Half as wide, so that twice as many fit a
/// vector register; what does not fit counts as the largest.
fn loads(cluster: &ClusterView<'_>) -> impl Iterator<Item = u32> + Clone {
    let signals = cluster.signals;
    let columns = signals.queue_depth.iter().zip(&signals.batch_size).zip(&signals.in_flight);
    columns.map(|((&waiting, &running), &in_flight)| waiting.saturating_add(running).saturating_add(in_flight))
}

/// `sums += weight * scores`, each score from 0 to 1.
fn add(sums: &mut [f64], weight: f64, scores: &[f64]) {
    for (sum, &score) in sums.iter_mut().zip(scores) {
        *sum += weight * larger(0.0, smaller(1.0, score));
    }
}

/// Place of the highest score.
fn best(scores: &[f64], id: u32, ties: &Ties) -> usize {
    pick(scores, highest(scores), id, ties)
}

/// In eight lanes: one comparison need not wait for the one before.
fn highest(scores: &[f64]) -> f64 {
    let (chunks, rest) = scores.as_chunks::<8>();
    let mut lanes = [f64::NEG_INFINITY; 8];
    for chunk in chunks {
        for (lane, &score) in lanes.iter_mut().zip(chunk) {
            *lane = larger(*lane, score);
        }
    }
    lanes.iter().chain(rest).copied().fold(f64::NEG_INFINITY, larger)
}

/// One machine instruction each, which `f64::max`, `min` and `clamp` are not: they care for NaN.
fn larger(a: f64, b: f64) -> f64 {
    if a > b { a } else { b }
}

fn smaller(a: f64, b: f64) -> f64 {
    if a < b { a } else { b }
}

/// Place of the value that is `best`; where there are several, of the one that `ties` picks for
/// request `id`. Counts in chunks, and looks at single values only in the chunk with that one.
fn pick<T: Copy + PartialEq>(values: &[T], best: T, id: u32, ties: &Ties) -> usize {
    const CHUNK: usize = 16;
    let mut nth = ties.pick(id, count(values, best));
    for (number, chunk) in values.chunks(CHUNK).enumerate() {
        let tied = count(chunk, best);
        if nth < tied {
            let mut places = (0..chunk.len()).filter(|&place| chunk[place] == best);
            return number * CHUNK + places.nth(nth).expect("it is one of them");
        }
        nth -= tied;
    }
    unreachable!("no value is the best")
}

fn count<T: Copy + PartialEq>(values: &[T], wanted: T) -> usize {
    values.iter().filter(|&&value| value == wanted).count()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::Versions;
    use super::super::testing::{Service, request, seen};
    use super::*;
    use crate::request::{Request, Span};
    use crate::rng::Stream;

    fn random() -> Ties {
        Ties::Random(Stream::new(42, "router"))
    }

    fn route(policy: &mut dyn RoutingPolicy, request: &Request, service: &Service, ties: Ties) -> (Choice, Vec<f64>) {
        let mut scores = Vec::new();
        let choice = policy.route(&seen(request), &service.view(), &ties, &mut scores);
        policy.sent(&seen(request), service.instances[choice.target].id);
        (choice, scores)
    }

    /// Where requests of one block go, one after the other, with ties to the first.
    fn targets(policy: &mut dyn RoutingPolicy, services: &[&Service]) -> Vec<usize> {
        let one = |(id, service)| route(policy, &request(id, 1, &[]), service, Ties::LowestIndex).0.target;
        (0..).zip(services.iter().copied()).map(one).collect()
    }

    fn loaded(queue: &[u32], batch: &[u32], in_flight: &[u32]) -> Service {
        Service::idle(queue.len()).with(|signals| {
            signals.queue_depth = queue.to_vec();
            signals.batch_size = batch.to_vec();
            signals.in_flight = in_flight.to_vec();
        })
    }

    #[test]
    fn round_robin_counts_on_when_instances_change() {
        let (three, two) = (Service::idle(3), Service::idle(2));
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
        assert_eq!(choose(&mut LeastLoaded::default()), (Choice { target: 1, reason: Reason::LeastLoaded(4) }, vec![]));
        assert_eq!(choose(&mut AlwaysBusiest), (Choice { target: 3, reason: Reason::AlwaysBusiest(6) }, vec![]));
        let equal = Service::idle(3);
        assert_eq!(targets(&mut AlwaysBusiest, &[&equal]), [0]);
    }

    #[test]
    fn ties_go_to_all_tied_and_to_nobody_else() {
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
        let service = Service::idle(2).with(|signals| {
            signals.cached_blocks = vec![0, 8];
            signals.queue_depth = vec![0, 3];
            signals.kv_utilization = vec![0.5, 0.25];
        });
        let (choice, scores) = route(&mut Weighted::default(), &request(0, 8, &[]), &service, random());
        assert_eq!(scores, [0.375, 0.6875]); // 0.5·0 + 0.25·1 + 0.25·0.5, 0.5·1 + 0.25·0 + 0.25·0.75
        assert_eq!(choice, Choice { target: 1, reason: Reason::Weighted(0.6875) });
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
    fn scorers_that_remember_hear_where_a_request_went() {
        let service = Service::idle(3);
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
    fn cold_requests_go_round_under_no_hit_lru() {
        let service = Service::idle(4);
        let weights =
            [(ScorerKind::NoHitLru, 2.0), (ScorerKind::PrecisePrefixCache, 1.0), (ScorerKind::LoadBalance, 1.0)];
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
        assert_eq!(choose(1.0, 1.0), (Choice { target: 0, reason: Reason::Weighted(0.625) }, vec![0.625, 0.625]));
        assert_eq!(choose(3.0, 1.0).1, [0.4375, 0.8125]);
        assert_eq!(choose(0.0, 5.0).1, [1.0, 0.25]);
        let full = Service::idle(2).with(|signals| signals.free_kv_blocks = vec![0, 0]);
        let (choice, scores) = route(&mut CacheAndLoad::new(0.5, 0.5).unwrap(), &request(0, 1, &[]), &full, random());
        assert_eq!((choice.target, scores), (0, vec![0.5; 2]), "nothing free is no score; ties to the first");
    }

    #[test]
    fn the_same_prompt_goes_home() {
        let (idle, busy) = (loaded(&[1, 0, 1], &[0; 3], &[0; 3]), loaded(&[0, 9, 0], &[0; 3], &[0; 3]));
        let shared = [Span { first: 0, len: 4 }];
        let mut policy = PrefixAffinity::default();
        let mut choose = |request: &Request, service: &Service| {
            let choice = route(&mut policy, request, service, Ties::LowestIndex).0;
            (choice.target, choice.reason == Reason::PrefixAffinity { hit: true })
        };
        assert_eq!(choose(&request(0, 4, &shared), &idle), (1, false));
        assert_eq!(choose(&request(1, 4, &shared), &busy), (1, true));
        assert_eq!(choose(&request(2, 3, &shared), &busy), (0, false), "shorter");
        assert_eq!(choose(&request(3, 5, &shared), &busy), (0, false), "a block of its own");
        assert_eq!(choose(&request(3, 5, &shared), &idle), (1, false), "which no other prompt has");
        assert_eq!(choose(&request(4, 0, &shared), &busy), (0, false), "no full block");
        let mut without = busy.clone();
        for signal in
            [&mut without.signals.queue_depth, &mut without.signals.batch_size, &mut without.signals.in_flight]
        {
            signal.remove(1);
        }
        without.instances.remove(1);
        assert_eq!(choose(&request(5, 4, &shared), &without), (0, false), "its home is gone");
        assert_eq!(choose(&request(6, 4, &shared), &idle), (0, true), "it has a new one");
    }

    #[test]
    fn policies_read_what_they_look_at() {
        let default = Reads { load: true, in_flight: false, cached_blocks: true };
        assert_eq!(RoundRobin::default().reads(), Reads::NOTHING);
        assert_eq!(
            [LeastLoaded::default().reads(), AlwaysBusiest.reads(), PrefixAffinity::default().reads()],
            [LOAD; 3]
        );
        assert_eq!(Weighted::default().reads(), default);
        let reads = |kind| Weighted::new(vec![(kind, 1.0)]).unwrap().reads();
        assert_eq!(reads(ScorerKind::ActiveRequests), Reads { in_flight: true, ..Reads::NOTHING });
        assert_eq!(reads(ScorerKind::PrefixAffinity), Reads::NOTHING);
    }

    #[test]
    fn nonsense_is_refused_in_words() {
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
        scorer `queue-depth` is there twice: give it the sum of its weights once
        the weights of the scorers are too large to add up
        the cache weight of routing is a finite number, 0 or more: not -1
        the load weight of routing is a finite number, 0 or more: not NaN
        the cache and load weights of routing add up to 0: one must be above 0
        ");
    }

    proptest! {
        #[test]
        fn the_tied_are_counted_off(values in prop::collection::vec(0..3_u32, 1..100), id in any::<u32>()) {
            let least = *values.iter().min().unwrap();
            let tied: Vec<usize> = (0..values.len()).filter(|&place| values[place] == least).collect();
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
        /// What is kept from the last decision is what would be computed again.
        #[test]
        fn what_is_kept_is_what_would_be_computed(
            n in 1usize..9,
            changes in proptest::collection::vec((0usize..9, 0u32..4, 0u8..4), 1..40),
        ) {
            let weighted = Weighted::new(ScorerKind::ALL.iter().map(|&kind| (kind, 1.5)).collect()).expect("valid");
            let default = Weighted::default();
            let mut kept: Vec<Box<dyn RoutingPolicy>> =
                vec![Box::new(weighted), Box::new(default), Box::new(LeastLoaded::default())];
            let mut computed: Vec<_> = kept.iter().map(|policy| policy.fork()).collect();
            let mut service = Service::idle(n);
            let mut versions = Versions { load: 1, cached_blocks: 1 };
            for (id, (place, value, column)) in (0..).zip(changes) {
                let place = place % n;
                match column {
                    0 => service.signals.queue_depth[place] = value,
                    1 => service.signals.kv_utilization[place] = f64::from(value) / 4.0,
                    2 => service.signals.cached_blocks[place] = value,
                    _ => service.signals.in_flight[place] = value,
                }
                versions.load += u64::from(column < 2);
                versions.cached_blocks += u64::from(column == 2);
                let request = request(id, 3, &[]);
                for (kept, computed) in kept.iter_mut().zip(&mut computed) {
                    let (mut expected, mut scores) = (Vec::new(), Vec::new());
                    let view = service.view();
                    let expects = computed.route(&seen(&request), &view, &random(), &mut expected);
                    let view = ClusterView { versions, ..view };
                    let choice = kept.route(&seen(&request), &view, &random(), &mut scores);
                    prop_assert_eq!((choice, scores), (expects, expected));
                }
            }
        }
    }
}
