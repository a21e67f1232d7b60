//! The terms of `weighted` routing: sixteen scorers of instances from 0 to 1, where higher is better
//! (`reference/cluster.md` §1.5).
//!
//! Four of them scale a signal to its range over the instances, so a difference of one request counts as much as a
//! difference of a hundred; the others are absolute. With both kinds in one sum, the effective weights of the terms
//! change with the load.

use std::fmt::{self, Display};

use super::no_hit_lru::ColdOrder;
use super::predicted_latency::LatencyPredictor;
use super::sent_blocks::SentBlocks;
use super::sessions::BoundSessions;
use super::smaller;
use crate::ids::InstanceIndex;
use crate::policy::{
    AdapterSlotUse, ClusterView, Event, Events, Reads, RequestView, RoutingStep, Signals, StepFailed, StepMemory, Ties,
    Versions,
};

/// The default terms of `weighted`, with their weights.
pub const DEFAULT_PROFILE: [(ScorerKind, f64); 3] =
    [(ScorerKind::PrecisePrefixCache, 2.0), (ScorerKind::QueueDepth, 1.0), (ScorerKind::KvUtilization, 1.0)];

/// The terms of llm-d's endpoint picker without a configuration, with their weights.
pub const EPP_PROFILE: [(ScorerKind, f64); 3] =
    [(ScorerKind::PrefixAffinity, 3.0), (ScorerKind::QueueDepth, 2.0), (ScorerKind::KvUtilization, 2.0)];

/// The kinds of scorers, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScorerKind {
    /// Requests waiting, scaled to the range: fewest 1, most 0; 1 for all if equal.
    QueueDepth,
    /// Share of the KV blocks that is free.
    KvUtilization,
    /// 1 / (1 + load), with the load of [`ClusterView::effective_load`].
    LoadBalance,
    /// Requests in flight relative to the instance with most of them: none 1, most 0. If all are equal and not 0: 0 for
    /// all.
    ActiveRequests,
    /// Requests in the batch, scaled to the range: fewest 1, most 0; 1 for all if equal.
    RunningRequests,
    /// Requests waiting: from 0.5 for none down to 0 for 128 or more.
    LoadAware,
    /// vLLM's own balancer for data-parallel ranks: 4 · waiting + running, scaled as [`Self::QueueDepth`].
    VllmDp,
    /// Share of the prompt's full blocks, from the first on, that the router sent to the instance before.
    PrefixAffinity,
    /// Leading blocks of the prompt in the prefix cache, scaled to the range: most 1, fewest 0; 1 for all if equal,
    /// also if no instance has any.
    PrecisePrefixCache,
    /// For a request without a cached block on any instance, instances that were sent such a request least recently
    /// score highest; for all other requests 0.5.
    NoHitLru,
    /// Uncached prompt tokens in flight, the request included: none 1, 4 194 304 and more 0 (llm-d's `token-load-scorer`).
    TokenLoad,
    /// Whether the LoRA adapter of the request is active (1), fits a free slot (0.8), waits for one already (0.6) or does not
    /// fit (0): llm-d's `lora-affinity-scorer`. BLIS scores 1 where it is loaded, 0 elsewhere, and 1 for all if these are
    /// equal. 1 for all without adapters.
    LoraAffinity,
    /// Share of the prompt's full blocks that are leading and in the prefix cache (llm-d's `prefix-cache-scorer` behind
    /// `precise-prefix-cache-producer`).
    PrecisePrefixCacheShare,
    /// A number from 0 to 1, drawn for the request and the instance: alone, any instance with equal probability
    /// (llm-d's `random-picker`). 0 if ties are not broken at random.
    Random,
    /// 1 for the instance that served the latest request of the session within 300 s, 0 for the others (llm-d's
    /// `session-affinity-scorer`).
    SessionAffinity,
    /// Short predicted times to first token and between tokens, by what the router measured so far (llm-d's
    /// `latency-scorer`).
    PredictedLatency,
}

impl ScorerKind {
    /// Every kind of scorer.
    pub const ALL: [Self; 16] = [
        Self::QueueDepth,
        Self::KvUtilization,
        Self::LoadBalance,
        Self::ActiveRequests,
        Self::RunningRequests,
        Self::LoadAware,
        Self::VllmDp,
        Self::PrefixAffinity,
        Self::PrecisePrefixCache,
        Self::NoHitLru,
        Self::TokenLoad,
        Self::LoraAffinity,
        Self::PrecisePrefixCacheShare,
        Self::Random,
        Self::SessionAffinity,
        Self::PredictedLatency,
    ];

    /// The name in flags and bundles.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::QueueDepth => "queue-depth",
            Self::KvUtilization => "kv-utilization",
            Self::LoadBalance => "load-balance",
            Self::ActiveRequests => "active-requests",
            Self::RunningRequests => "running-requests",
            Self::LoadAware => "load-aware",
            Self::VllmDp => "vllm-dp",
            Self::PrefixAffinity => "prefix-affinity",
            Self::PrecisePrefixCache => "precise-prefix-cache",
            Self::NoHitLru => "no-hit-lru",
            Self::TokenLoad => "token-load",
            Self::LoraAffinity => "lora-affinity",
            Self::PrecisePrefixCacheShare => "precise-prefix-cache-share",
            Self::Random => "random",
            Self::SessionAffinity => "session-affinity",
            Self::PredictedLatency => "predicted-latency",
        }
    }

    /// The instances that it prefers, in one line.
    #[must_use]
    pub const fn about(self) -> &'static str {
        match self {
            Self::QueueDepth => "Short waiting queues",
            Self::KvUtilization => "Free KV blocks",
            Self::LoadBalance => "Few requests waiting, running and in flight",
            Self::ActiveRequests => "Few requests in flight",
            Self::RunningRequests => "Small batches",
            Self::LoadAware => "Short waiting queues, up to 128",
            Self::VllmDp => "Few requests waiting and running, waiting counted four times",
            Self::PrefixAffinity => "The prefix was routed to the instance before",
            Self::PrecisePrefixCache => "The prefix is in the prefix cache",
            Self::NoHitLru => "Cold prefixes in rotation, least recently used instance first",
            Self::TokenLoad => "Few uncached prompt tokens without a first token",
            Self::LoraAffinity => "The LoRA adapter is in use, or fits a free slot",
            Self::PrecisePrefixCacheShare => "Much of the prompt is in the prefix cache",
            Self::Random => "Any instance, by chance",
            Self::SessionAffinity => "The session was there within 300 s",
            Self::PredictedLatency => "Short predicted TTFT and ITL, learned from its own measurements",
        }
    }

    /// The scorer called `name`.
    #[must_use]
    pub fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The signals that it reads.
    #[must_use]
    pub fn reads(self) -> Reads {
        let load = Reads { load: true, ..Reads::NOTHING };
        match self {
            Self::QueueDepth | Self::KvUtilization | Self::RunningRequests | Self::LoadAware | Self::VllmDp => load,
            Self::LoadBalance => Reads { in_flight: true, ..load },
            Self::ActiveRequests => Reads { in_flight: true, ..Reads::NOTHING },
            Self::PrecisePrefixCache | Self::PrecisePrefixCacheShare | Self::NoHitLru => {
                Reads { cached_blocks: true, ..Reads::NOTHING }
            }
            Self::TokenLoad => Reads { cached_blocks: true, tokens: true, ..Reads::NOTHING },
            Self::PredictedLatency => Reads { cached_blocks: true, tokens: true, in_flight: true, ..Reads::NOTHING },
            Self::LoraAffinity => Reads { adapters: true, ..load },
            Self::PrefixAffinity | Self::Random | Self::SessionAffinity => Reads::NOTHING,
        }
    }
}

impl ScorerKind {
    /// Version of the columns on which its scores depend; 0 if they depend on anything without a version.
    pub(super) fn version(self, versions: &Versions) -> u64 {
        match self {
            Self::QueueDepth | Self::KvUtilization | Self::RunningRequests | Self::LoadAware | Self::VllmDp => {
                versions.load
            }
            Self::PrecisePrefixCache => versions.cached_blocks,
            Self::LoadBalance
            | Self::ActiveRequests
            | Self::PrefixAffinity
            | Self::NoHitLru
            | Self::TokenLoad
            | Self::LoraAffinity
            | Self::PrecisePrefixCacheShare
            | Self::Random
            | Self::SessionAffinity
            | Self::PredictedLatency => 0,
        }
    }
}

impl Display for ScorerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A scorer of a routing pipeline.
#[derive(Debug)]
pub enum ScorerStep {
    /// One of this crate.
    BuiltIn(ScorerKind),
    /// A plugin.
    Step(Box<dyn RoutingStep>),
}

/// A scorer with its state.
#[derive(Clone, Debug)]
pub(super) enum Scorer {
    /// A scorer without state, computed from columns.
    Column(ScorerKind),
    PrefixAffinity(SentBlocks),
    NoHitLru(ColdOrder),
    SessionAffinity(BoundSessions),
    PredictedLatency(Box<LatencyPredictor>),
    Step(Box<dyn RoutingStep>),
}

impl Scorer {
    pub fn new(step: ScorerStep) -> Self {
        match step {
            ScorerStep::BuiltIn(ScorerKind::PrefixAffinity) => Self::PrefixAffinity(SentBlocks::default()),
            ScorerStep::BuiltIn(ScorerKind::NoHitLru) => Self::NoHitLru(ColdOrder::default()),
            ScorerStep::BuiltIn(ScorerKind::SessionAffinity) => Self::SessionAffinity(BoundSessions::default()),
            ScorerStep::BuiltIn(ScorerKind::PredictedLatency) => Self::PredictedLatency(Box::default()),
            ScorerStep::BuiltIn(kind) => Self::Column(kind),
            ScorerStep::Step(step) => Self::Step(step),
        }
    }

    pub fn reads(&self) -> Reads {
        match self {
            Self::Column(kind) => kind.reads(),
            Self::PrefixAffinity(_) => ScorerKind::PrefixAffinity.reads(),
            Self::NoHitLru(_) => ScorerKind::NoHitLru.reads(),
            Self::SessionAffinity(_) => ScorerKind::SessionAffinity.reads(),
            Self::PredictedLatency(_) => ScorerKind::PredictedLatency.reads(),
            Self::Step(step) => step.reads(),
        }
    }

    /// Version of the columns on which its scores depend; 0 if they depend on anything without a version.
    #[inline]
    pub fn version(&self, versions: &Versions) -> u64 {
        match self {
            Self::Column(kind) => kind.version(versions),
            _ => 0,
        }
    }

    /// Overwrites `scores`, one per instance.
    pub fn score(
        &mut self,
        request: &RequestView<'_>,
        cluster: &ClusterView<'_>,
        ties: &Ties,
        memory: &mut StepMemory,
        scores: &mut Vec<f64>,
    ) -> Result<(), StepFailed> {
        if let Self::Step(step) = self {
            return step.compute(request, cluster, ties, memory, scores);
        }
        scores.resize(cluster.len(), 0.0);
        match self {
            Self::Column(ScorerKind::PrecisePrefixCacheShare) => cached_share(request, cluster, scores),
            Self::Column(ScorerKind::TokenLoad) => token_load(request, cluster, scores),
            Self::Column(ScorerKind::Random) => ties.draw(request.id, scores),
            Self::Column(kind) => score_column(*kind, cluster, scores),
            Self::PrefixAffinity(sent) => sent.score(request, cluster, scores),
            Self::NoHitLru(order) => order.score(cluster, scores),
            Self::SessionAffinity(sessions) => sessions.score(request, cluster, scores),
            Self::PredictedLatency(predictor) => predictor.score(request, cluster, scores),
            Self::Step(_) => unreachable!("computed above"),
        }
        Ok(())
    }

    /// Whether it has to know where requests are dispatched.
    pub fn remembers(&self) -> bool {
        // A plugin gets the event that a request was routed.
        !matches!(self, Self::Column(_) | Self::Step(_))
    }

    /// Records that `request`, scored last, is dispatched to `instance`.
    pub fn dispatched(&mut self, request: &RequestView<'_>, instance: InstanceIndex) {
        match self {
            Self::Column(_) | Self::Step(_) => {}
            Self::PrefixAffinity(sent) => sent.dispatched(request, instance),
            Self::NoHitLru(order) => order.dispatched(instance),
            Self::SessionAffinity(sessions) => sessions.dispatched(request, instance),
            Self::PredictedLatency(predictor) => predictor.dispatched(request, instance),
        }
    }

    /// The replica `instance` is gone.
    pub fn removed(&mut self, instance: InstanceIndex) {
        if let Self::PrefixAffinity(sent) = self {
            sent.removed(instance);
        }
    }

    pub fn events(&self) -> Events {
        match self {
            Self::PredictedLatency(_) => LatencyPredictor::EVENTS,
            Self::Step(step) => step.events(),
            _ => Events::NONE,
        }
    }

    /// Receives an event of [`Self::events`].
    pub fn observe(&mut self, event: &Event) {
        match self {
            Self::PredictedLatency(predictor) => predictor.observe(event),
            Self::Step(step) => step.observe(event),
            _ => {}
        }
    }
}

/// Scores for the scorers without state.
fn score_column(kind: ScorerKind, cluster: &ClusterView<'_>, scores: &mut [f64]) {
    let signals = cluster.signals;
    match kind {
        ScorerKind::QueueDepth => fewest_best(signals.queue_depth.iter().copied(), scores),
        ScorerKind::RunningRequests => fewest_best(signals.batch_size.iter().copied(), scores),
        ScorerKind::VllmDp => {
            let columns = signals.queue_depth.iter().zip(&signals.batch_size);
            fewest_best(columns.map(|(&waiting, &running)| waiting.saturating_mul(4).saturating_add(running)), scores);
        }
        ScorerKind::KvUtilization => fill(scores, signals.kv_utilization.iter().map(|used| 1.0 - used)),
        ScorerKind::LoadBalance => {
            let columns = signals.queue_depth.iter().zip(&signals.batch_size).zip(&signals.in_flight);
            let load = columns.map(|((&q, &b), &in_flight)| f64::from(q) + f64::from(b) + f64::from(in_flight));
            fill(scores, load.map(|load| 1.0 / (1.0 + load)));
        }
        ScorerKind::ActiveRequests => active_requests(&signals.in_flight, scores),
        ScorerKind::LoadAware => {
            let full = signals.queue_depth.iter().map(|&waiting| f64::from(waiting.min(128)) / 128.0);
            fill(scores, full.map(|full| 0.5 * (1.0 - full)));
        }
        ScorerKind::PrecisePrefixCache => most_best(signals.cached_blocks.iter().copied(), scores),
        ScorerKind::LoraAffinity => lora_affinity(signals, scores),
        ScorerKind::PrecisePrefixCacheShare | ScorerKind::Random | ScorerKind::TokenLoad => {
            unreachable!("{kind} depends on the request")
        }
        ScorerKind::PrefixAffinity
        | ScorerKind::NoHitLru
        | ScorerKind::SessionAffinity
        | ScorerKind::PredictedLatency => unreachable!("{kind} has state"),
    }
}

/// Scores adapters in use 1, those that fit a free slot 0.8, those that wait for one 0.6, others 0.
///
/// Source: llm-d's `lora-affinity-scorer`, which counts the adapters of running and waiting requests that vLLM reports. A
/// request of the base model has no adapter and fits where a slot is free.
fn lora_affinity(signals: &Signals, scores: &mut [f64]) {
    match signals.adapter_slots {
        AdapterSlotUse::None => return scores.fill(1.0),
        AdapterSlotUse::Loaded => return most_best(signals.adapter_active.iter().copied(), scores),
        AdapterSlotUse::Requested => {}
    }
    for (i, score) in scores.iter_mut().enumerate() {
        *score = if signals.adapter_active[i] > 0 {
            1.0
        } else if signals.free_adapter_slots[i] > 0 {
            0.8
        } else if signals.adapter_waiting[i] > 0 {
            0.6
        } else {
            0.0
        };
    }
}

/// Scores cached / all full blocks of the prompt; 0 for prompts shorter than a block.
fn cached_share(request: &RequestView<'_>, cluster: &ClusterView<'_>, scores: &mut [f64]) {
    let blocks = f64::from(request.prompt_blocks.max(1));
    fill(scores, cluster.signals.cached_blocks.iter().map(|&cached| f64::from(cached) / blocks));
}

/// Scores 1 − tokens / [`MOST_TOKENS`], at least 0, with the uncached prompt tokens in flight if the request is sent there:
/// llm-d's `token-load-scorer`.
fn token_load(request: &RequestView<'_>, cluster: &ClusterView<'_>, scores: &mut [f64]) {
    let signals = cluster.signals;
    for (i, score) in scores.iter_mut().enumerate() {
        let uncached = u64::from(request.input_tokens - signals.cached_tokens(request, i));
        *score = 1.0 - smaller((signals.in_flight_tokens[i] + uncached) as f64 / MOST_TOKENS, 1.0);
    }
}

/// Uncached prompt tokens in flight at which an instance scores 0.
const MOST_TOKENS: f64 = 4_194_304.0;

/// Scores (most − x) / (most − least), or 1 if all are equal.
fn fewest_best(column: impl Iterator<Item = u32> + Clone, scores: &mut [f64]) {
    match extremes(column.clone()) {
        (least, most) if least < most => fill(scores, column.map(|x| f64::from(most - x) / f64::from(most - least))),
        _ => scores.fill(1.0),
    }
}

/// Scores (x − least) / (most − least), or 1 if all are equal.
fn most_best(column: impl Iterator<Item = u32> + Clone, scores: &mut [f64]) {
    match extremes(column.clone()) {
        (least, most) if least < most => fill(scores, column.map(|x| f64::from(x - least) / f64::from(most - least))),
        _ => scores.fill(1.0),
    }
}

/// The smallest and the largest value.
fn extremes(column: impl Iterator<Item = u32>) -> (u32, u32) {
    column.fold((u32::MAX, 0), |(least, most), x| (least.min(x), most.max(x)))
}

/// Scores (most − x) / most, or 1 where x is 0.
fn active_requests(in_flight: &[u32], scores: &mut [f64]) {
    match in_flight.iter().copied().fold(0, u32::max) {
        0 => scores.fill(1.0),
        most => fill(scores, in_flight.iter().map(|&x| f64::from(most - x) / f64::from(most))),
    }
}

fn fill(scores: &mut [f64], values: impl Iterator<Item = f64>) {
    for (score, value) in scores.iter_mut().zip(values) {
        *score = value;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::policy::Signals;
    use crate::policy::testing::{TestService, request, view_of};
    use crate::request::Span;
    use crate::rng::Stream;

    fn scores(kind: ScorerKind, n: usize, change: impl FnOnce(&mut Signals)) -> Vec<f64> {
        let service = TestService::idle(n).with(change);
        let mut scores = vec![f64::NAN; n];
        let scored = Scorer::new(ScorerStep::BuiltIn(kind)).score(
            &view_of(&request(0, 2, &[])),
            &service.view(),
            &Ties::LowestIndex,
            &mut StepMemory::default(),
            &mut scores,
        );
        scored.expect("built-in scorers do not fail");
        scores
    }

    #[test]
    fn queue_depth_and_running_requests_scale_to_the_range() {
        let queues = |q: &[u32]| scores(ScorerKind::QueueDepth, q.len(), |signals| signals.queue_depth = q.to_vec());
        let batches =
            |b: &[u32]| scores(ScorerKind::RunningRequests, b.len(), |signals| signals.batch_size = b.to_vec());
        for scores in [&queues as &dyn Fn(&[u32]) -> Vec<f64>, &batches] {
            assert_eq!(scores(&[3, 7, 4]), [1.0, 0.0, 0.75]);
            assert_eq!(scores(&[0, 1]), [1.0, 0.0], "one request is the whole range");
            assert_eq!(scores(&[5, 5, 5]), [1.0; 3]);
            assert_eq!(scores(&[9]), [1.0]);
        }
    }

    #[test]
    fn kv_utilization_is_absolute() {
        let used = |signals: &mut Signals| signals.kv_utilization = vec![0.0, 0.25, 1.0, 0.25];
        assert_eq!(scores(ScorerKind::KvUtilization, 4, used), [1.0, 0.75, 0.0, 0.75]);
    }

    #[test]
    fn load_balance_counts_waiting_running_and_in_flight() {
        let loads = |signals: &mut Signals| {
            signals.queue_depth = vec![0, 1, 0, 0];
            signals.batch_size = vec![0, 1, 0, 1];
            signals.in_flight = vec![0, 1, 1, 2];
        };
        assert_eq!(scores(ScorerKind::LoadBalance, 4, loads), [1.0, 0.25, 0.5, 0.25]);
    }

    #[test]
    fn active_requests_score_zero_if_equal() {
        let active = |a: &[u32]| scores(ScorerKind::ActiveRequests, a.len(), |signals| signals.in_flight = a.to_vec());
        assert_eq!(active(&[0, 4, 1]), [1.0, 0.0, 0.75]);
        assert_eq!(active(&[2, 4, 3]), [0.5, 0.0, 0.25], "against the most, not the range");
        assert_eq!(active(&[0, 0]), [1.0; 2]);
        assert_eq!(active(&[3, 3]), [0.0; 2]);
    }

    #[test]
    fn load_aware_ends_at_128_waiting() {
        let queues = |signals: &mut Signals| signals.queue_depth = vec![0, 32, 127, 128, 500];
        assert_eq!(scores(ScorerKind::LoadAware, 5, queues), [0.5, 0.375, 0.5 * (1.0 - 127.0 / 128.0), 0.0, 0.0]);
    }

    #[test]
    fn vllm_dp_counts_a_waiting_request_four_times() {
        let loads = |signals: &mut Signals| {
            signals.queue_depth = vec![1, 0, 2];
            signals.batch_size = vec![0, 4, 0];
        };
        assert_eq!(scores(ScorerKind::VllmDp, 3, loads), [1.0, 1.0, 0.0]);
        let equal = |signals: &mut Signals| {
            signals.queue_depth = vec![1, 0];
            signals.batch_size = vec![0, 4];
        };
        assert_eq!(scores(ScorerKind::VllmDp, 2, equal), [1.0; 2]);
        let huge = |signals: &mut Signals| signals.queue_depth = vec![u32::MAX, 0];
        assert_eq!(scores(ScorerKind::VllmDp, 2, huge), [0.0, 1.0]);
    }

    #[test]
    fn precise_prefix_cache_scales_to_the_range() {
        let cached =
            |c: &[u32]| scores(ScorerKind::PrecisePrefixCache, c.len(), |signals| signals.cached_blocks = c.to_vec());
        assert_eq!(cached(&[2, 6, 3]), [0.0, 1.0, 0.25]);
        assert_eq!(cached(&[0, 0]), [1.0; 2]);
        assert_eq!(cached(&[7, 7]), [1.0; 2]);
    }

    #[test]
    fn the_cached_share_is_absolute() {
        let share = |blocks: u32, cached: &[u32]| {
            let service = TestService::idle(cached.len()).with(|signals| signals.cached_blocks = cached.to_vec());
            let mut scores = vec![f64::NAN; cached.len()];
            let prompt = request(0, blocks, &[]);
            let mut scorer = Scorer::new(ScorerStep::BuiltIn(ScorerKind::PrecisePrefixCacheShare));
            let scored = scorer.score(
                &view_of(&prompt),
                &service.view(),
                &Ties::LowestIndex,
                &mut StepMemory::default(),
                &mut scores,
            );
            scored.map(|()| scores).expect("it does not fail")
        };
        assert_eq!(share(8, &[2, 6, 8]), [0.25, 0.75, 1.0]);
        assert_eq!(share(8, &[2, 2]), [0.25; 2], "not scaled to the range");
        assert_eq!(share(0, &[0, 0]), [0.0; 2], "shorter than a block");
    }

    #[test]
    fn random_scores_prefer_no_instance_and_no_request_before() {
        let ties = Ties::Random(Stream::new(42, "router"));
        let scores = |id: u32, ties: &Ties| {
            let mut scores = vec![f64::NAN; 4];
            let mut scorer = Scorer::new(ScorerStep::BuiltIn(ScorerKind::Random));
            let prompt = request(id, 2, &[]);
            let scored = scorer.score(
                &view_of(&prompt),
                &TestService::idle(4).view(),
                ties,
                &mut StepMemory::default(),
                &mut scores,
            );
            scored.map(|()| scores).expect("it does not fail")
        };
        assert_eq!(scores(7, &ties), scores(7, &ties));
        assert_eq!(scores(7, &Ties::LowestIndex), [0.0; 4]);
        let mut chosen = [0; 4];
        for id in 0..4000 {
            let scores = scores(id, &ties);
            chosen[(0..4).max_by(|&a, &b| scores[a].total_cmp(&scores[b])).expect("four")] += 1;
        }
        // 1000 each, with a standard deviation of 27.
        assert!(chosen.iter().all(|&count| (880..1120).contains(&count)), "{chosen:?}");
    }

    #[test]
    fn adapters_draw_requests_to_where_they_are() {
        let columns = |signals: &mut Signals| {
            signals.adapter_active = vec![1, 0, 0, 0];
            signals.free_adapter_slots = vec![0, 2, 0, 0];
            signals.adapter_waiting = vec![0, 1, 1, 0];
        };
        let of = |slots, change: &dyn Fn(&mut Signals)| {
            scores(ScorerKind::LoraAffinity, 4, |signals| {
                change(signals);
                signals.adapter_slots = slots;
            })
        };
        assert_eq!(of(AdapterSlotUse::Requested, &columns), [1.0, 0.8, 0.6, 0.0]);
        assert_eq!(of(AdapterSlotUse::Loaded, &columns), [1.0, 0.0, 0.0, 0.0]);
        assert_eq!(of(AdapterSlotUse::Loaded, &|_| ()), [1.0; 4], "all are equal");
        assert_eq!(of(AdapterSlotUse::None, &columns), [1.0; 4], "there are no adapters");
    }

    prop_compose! {
        /// What a few instances may report, many of them alike.
        fn signals()(rows in prop::collection::vec((0..4_u32, 0..300_u32, 0.0..=1.0, 0..3_u32, 0..3_u32), 1..9)) -> TestService {
            TestService::idle(rows.len()).with(|signals| {
                for (i, &(queue_depth, batch_size, kv_utilization, in_flight, cached_blocks)) in rows.iter().enumerate() {
                    signals.queue_depth[i] = queue_depth;
                    signals.batch_size[i] = batch_size;
                    signals.kv_utilization[i] = kv_utilization;
                    signals.in_flight[i] = in_flight;
                    signals.cached_blocks[i] = cached_blocks;
                }
            })
        }
    }

    proptest! {
        #[test]
        fn scores_lie_between_0_and_1(services in prop::collection::vec((signals(), 0..9_usize), 1..5)) {
            for kind in ScorerKind::ALL {
                let mut scorer = Scorer::new(ScorerStep::BuiltIn(kind));
                for (id, (service, target)) in (0..).zip(&services) {
                    let prompt = request(id, 3, &[Span { first: 0, len: 2 }]);
                    let mut scores = vec![f64::NAN; service.instances.len()];
                    let scored =
                        scorer.score(&view_of(&prompt), &service.view(), &Ties::LowestIndex, &mut StepMemory::default(), &mut scores);
                    prop_assert_eq!(scored, Ok(()));
                    prop_assert!(scores.iter().all(|score| (0.0..=1.0).contains(score)), "{} {:?}", kind, scores);
                    scorer.dispatched(&view_of(&prompt), InstanceIndex::at(*target % scores.len()));
                }
            }
        }
    }
}
