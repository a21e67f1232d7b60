//! The two analyzers of llm-d's Workload Variant Autoscaler (WVA, b08b1c7 of February 2026; llm-d froze them in August):
//! the groups of one model and role are its variants and share its load (`reference/scaling.md` §2).

use std::collections::{BTreeMap, VecDeque};

use super::{GroupView, OUTCOME_WINDOW, ReplicaView, ScalingPolicy, ScalingView};
use crate::ids::InstanceIndex;
use crate::numbers::truncated_u32;
use crate::policy::{InstanceRole, Reads};
use crate::request::Name;
use crate::units::Micros;

/// The period of both analyzers.
const PERIOD: Micros = Micros(60_000_000);

/// The result of the last run of an analyzer, which counts until the next one.
#[derive(Clone, Debug, Default)]
struct LastRun {
    at: Option<Micros>,
    targets: Vec<Option<u32>>,
}

impl LastRun {
    fn is_due(&self, now: Micros) -> bool {
        self.at.is_none_or(|at| now.saturating_sub(at) >= PERIOD)
    }
}

/// The groups of the view by model and role, in the order of the view.
fn variants(view: &ScalingView<'_>) -> Vec<Vec<usize>> {
    let mut models: BTreeMap<(Name, InstanceRole), Vec<usize>> = BTreeMap::new();
    for (index, group) in view.groups.iter().enumerate() {
        models.entry((group.facts.model, group.facts.role)).or_default().push(index);
    }
    models.into_values().collect()
}

impl GroupView<'_> {
    /// Price of a replica per hour; without prices, its GPUs.
    fn cost(&self) -> f64 {
        f64::from(self.facts.gpus) * self.facts.price.unwrap_or(1.0)
    }
}

/// V1: by spare capacity. A replica is saturated from a share of used KV blocks or a number of waiting requests on (the
/// largest values of the last minute). If the unsaturated ones have little to spare, the cheapest variant gets a replica;
/// if one replica fewer would still leave enough, the most expensive variant loses one.
#[derive(Clone, Debug)]
pub struct WvaV1 {
    settings: WvaV1Settings,
    /// Scraped values of the last minute of each replica: time, share of used KV blocks, waiting requests.
    seen: BTreeMap<InstanceIndex, VecDeque<(Micros, f64, f64)>>,
    last: LastRun,
}

/// The thresholds of [`WvaV1`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WvaV1Settings {
    /// Share of used KV blocks from which on a replica is saturated.
    pub kv: f64,
    /// Waiting requests from which on a replica is saturated.
    pub queue: f64,
    /// Mean share of KV blocks to spare below which a replica is added.
    pub spare_kv: f64,
    /// Mean waiting requests to spare below which a replica is added.
    pub spare_queue: f64,
}

impl WvaV1 {
    /// The analyzer with these thresholds.
    #[must_use]
    pub fn new(settings: WvaV1Settings) -> Self {
        Self { settings, seen: BTreeMap::new(), last: LastRun::default() }
    }

    fn remember(&mut self, view: &ScalingView<'_>) {
        for one in view.groups.iter().flat_map(|group| group.ready) {
            let values = self.seen.entry(one.instance).or_default();
            if values.back().is_none_or(|&(at, ..)| at < view.scraped_at) {
                values.push_back((view.scraped_at, one.kv_utilization, one.queue_depth.into()));
            }
        }
        self.seen.retain(|_, values| {
            values.retain(|&(at, ..)| view.scraped_at.saturating_sub(at) < OUTCOME_WINDOW);
            !values.is_empty()
        });
    }

    /// The largest share of used KV blocks and the longest queue of a replica in the last minute.
    fn largest(&self, one: &ReplicaView) -> (f64, f64) {
        let values = self.seen.get(&one.instance).into_iter().flatten();
        values.fold((0.0, 0.0), |(kv, queue), &(_, more_kv, more_queue)| (more_kv.max(kv), more_queue.max(queue)))
    }

    /// Sets the targets of the variants of one model.
    fn analyze(&self, view: &ScalingView<'_>, variants: &[usize], targets: &mut [Option<u32>]) {
        let WvaV1Settings { kv, queue, spare_kv, spare_queue } = self.settings;
        let groups = || variants.iter().map(|&index| (index, &view.groups[index]));
        let loads = groups().flat_map(|(_, group)| group.ready).map(|one| self.largest(one));
        let spare: Vec<_> = loads
            .filter(|&(used, waiting)| used < kv && waiting < queue)
            .map(|(used, waiting)| (kv - used, queue - waiting))
            .collect();
        if groups().all(|(_, group)| group.ready.is_empty()) {
            return; // nothing was measured
        }
        let replicas = spare.len() as f64;
        let mean = |total: f64| if spare.is_empty() { 0.0 } else { total / replicas };
        let mean_kv = mean(spare.iter().map(|&(kv, _)| kv).sum());
        let mean_queue = mean(spare.iter().map(|&(_, queue)| queue).sum());
        // A variant of which replicas are still starting keeps its number.
        let still = || groups().filter(|(_, group)| group.loading.is_empty());
        if mean_kv < spare_kv || mean_queue < spare_queue {
            let open = still().filter(|(_, group)| group.replicas < group.facts.limits.max);
            if let Some((index, group)) = open.min_by(|(_, a), (_, b)| a.cost().total_cmp(&b.cost())) {
                targets[index] = Some(group.replicas + 1);
            }
        } else if spare.len() >= 2 {
            // The load of the replicas, spread over one fewer.
            let spread = |spare: f64, threshold: f64| threshold - (threshold - spare) * replicas / (replicas - 1.0);
            let holds = spread(mean_kv, kv) >= spare_kv && spread(mean_queue, queue) >= spare_queue;
            let open = still().filter(|(_, group)| holds && group.replicas > group.facts.limits.min.max(1));
            // Of several equally expensive variants the last one.
            if let Some((index, group)) = open.max_by(|(_, a), (_, b)| a.cost().total_cmp(&b.cost())) {
                targets[index] = Some(group.replicas - 1);
            }
        }
    }
}

impl ScalingPolicy for WvaV1 {
    fn reads(&self) -> Reads {
        Reads { load: true, in_flight: true, ..Reads::NOTHING }
    }

    fn scale(&mut self, view: &ScalingView<'_>, targets: &mut Vec<Option<u32>>) {
        self.remember(view);
        if self.last.is_due(view.now) {
            let mut next: Vec<_> = view.groups.iter().map(|group| Some(group.replicas)).collect();
            for variants in variants(view) {
                self.analyze(view, &variants, &mut next);
            }
            self.last = LastRun { at: Some(view.now), targets: next };
        }
        targets.extend_from_slice(&self.last.targets);
    }

    fn fork(&self) -> Box<dyn ScalingPolicy> {
        Box::new(self.clone())
    }
}

/// V2: by tokens. The capacity of a replica is the smaller of its KV cache and of what it held when requests waited; the
/// demand is what is held, waits, and is queued in the gateway.
#[derive(Clone, Debug)]
pub struct WvaV2 {
    settings: WvaV2Settings,
    /// Tokens that replicas of a group held while requests waited, the last [`OBSERVATIONS`], by group and the length of
    /// outputs.
    observed: BTreeMap<(usize, OutputLength), VecDeque<f64>>,
    /// The last capacity of a replica of each group, tokens.
    capacities: Vec<Option<f64>>,
    /// Mean prompt and output length of each model and role, tokens, while none completes.
    lengths: BTreeMap<(Name, InstanceRole), (f64, f64)>,
    last: LastRun,
}

/// The thresholds of [`WvaV2`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WvaV2Settings {
    /// Share of the KV cache that counts as capacity.
    pub kv: f64,
    /// Waiting requests from which on the tokens that a replica holds are its capacity.
    pub queue: f64,
    /// Share of the capacity that is in use after replicas were added.
    pub up: f64,
    /// Share of the capacity below which replicas are removed.
    pub down: f64,
}

/// Observations of capacity that count.
const OBSERVATIONS: usize = 10;

/// Class of a mean output length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum OutputLength {
    /// A mean below 100 tokens.
    Short,
    /// A mean below 500 tokens.
    Medium,
    /// A mean of 500 tokens and more.
    Long,
}

impl OutputLength {
    fn from_mean(mean: f64) -> Self {
        if mean < 100.0 {
            Self::Short
        } else if mean < 500.0 {
            Self::Medium
        } else {
            Self::Long
        }
    }
}

impl WvaV2 {
    /// The analyzer with these thresholds.
    #[must_use]
    pub fn new(settings: WvaV2Settings) -> Self {
        Self {
            settings,
            observed: BTreeMap::new(),
            capacities: Vec::new(),
            lengths: BTreeMap::new(),
            last: LastRun::default(),
        }
    }

    /// Mean prompt and output length of a model, tokens: of the last minute, else the last that were known.
    fn lengths(&mut self, view: &ScalingView<'_>, variants: &[usize]) -> (f64, f64) {
        let outcomes = || variants.iter().map(|&index| view.groups[index].outcomes);
        let completed: u32 = outcomes().map(|window| window.completed).sum();
        let facts = view.groups[variants[0]].facts;
        let model = (facts.model, facts.role);
        if completed > 0 {
            let mean = |tokens: u64| tokens as f64 / f64::from(completed);
            let input = outcomes().map(|window| window.input_tokens).sum();
            let output = outcomes().map(|window| window.output_tokens).sum();
            self.lengths.insert(model, (mean(input), mean(output)));
        }
        self.lengths.get(&model).copied().unwrap_or_default()
    }

    /// Capacity of a replica of group `index`, tokens: the median over the ready ones, else the last one, else its share
    /// of the KV cache. `input` and `output`: mean tokens of a request.
    fn capacity(&mut self, index: usize, group: &GroupView<'_>, input: f64, output: f64) -> f64 {
        let WvaV2Settings { kv, queue, .. } = self.settings;
        let facts = group.facts;
        let by_memory = facts.kv_tokens as f64 * kv;
        let observed = self.observed.entry((index, OutputLength::from_mean(output))).or_default();
        for one in group.ready.iter().filter(|one| f64::from(one.queue_depth) >= queue) {
            observed.push_back(held(one, group));
        }
        observed.drain(..observed.len().saturating_sub(OBSERVATIONS));
        if group.ready.is_empty() {
            return self.capacities[index].unwrap_or(by_memory);
        }
        let by_compute = if !observed.is_empty() {
            observed.iter().sum::<f64>() / observed.len() as f64
        } else if input + output > 0.0 {
            let batch = f64::from(facts.max_num_batched_tokens) * output / (input + output);
            batch.min(facts.max_num_seqs.into()) * (input + output / 2.0)
        } else {
            by_memory
        };
        // All replicas of a group have the same facts and observations: their median is that of any of them.
        let capacity = by_memory.min(by_compute);
        self.capacities[index] = Some(capacity);
        capacity
    }

    /// Sets the targets of the variants of one model.
    fn analyze(&mut self, view: &ScalingView<'_>, variants: &[usize], targets: &mut [Option<u32>]) {
        let (input, output) = self.lengths(view, variants);
        let groups = || variants.iter().map(|&index| (index, &view.groups[index]));
        let mut sized: Vec<SizedVariant<'_, '_>> = Vec::new();
        for (index, group) in groups() {
            let capacity = self.capacity(index, group, input, output);
            sized.push(SizedVariant { index, group, capacity });
        }
        let served: f64 = groups()
            .flat_map(|(_, group)| group.ready.iter().map(move |one| (one, group)))
            .map(|(one, group)| held(one, group) + f64::from(one.queue_depth) * input)
            .sum();
        let first = &view.groups[variants[0]];
        let queued = f64::from(first.gateway.queued);
        let prompts = (first.gateway.queued_tokens as f64).max(queued * input);
        let demand = served + prompts * (1.0 - hit_rate(view, variants)) + queued * output;

        let replicas = |one: &SizedVariant<'_, '_>| f64::from(one.group.replicas) * one.capacity;
        let ready = |one: &SizedVariant<'_, '_>| one.group.ready.len() as f64 * one.capacity;
        let required = demand / self.settings.up - sized.iter().map(replicas).sum::<f64>();
        let spare = sized.iter().map(ready).sum::<f64>() - demand / self.settings.down;
        sized.retain(|one| one.capacity > 0.0);
        sized.sort_by(|a, b| (a.group.cost() / a.capacity).total_cmp(&(b.group.cost() / b.capacity)));
        if required > 0.0 {
            add(required, &sized, targets);
        } else if spare > 0.0 {
            remove(spare, &mut sized, targets);
        }
    }
}

/// A group and the capacity of one of its replicas, tokens.
struct SizedVariant<'a, 'v> {
    index: usize,
    group: &'a GroupView<'v>,
    capacity: f64,
}

/// Adds replicas for `required` tokens to the variants that cost least per token.
fn add(mut required: f64, cheapest_first: &[SizedVariant<'_, '_>], targets: &mut [Option<u32>]) {
    for one in cheapest_first {
        let room = one.group.facts.limits.max.saturating_sub(one.group.replicas);
        let more = truncated_u32((required / one.capacity).ceil().max(0.0)).min(room);
        targets[one.index] = Some(one.group.replicas + more);
        required -= f64::from(more) * one.capacity;
        if required <= 0.0 {
            return;
        }
    }
}

/// Removes replicas with `spare` tokens from the most expensive variants; the cheapest one keeps its last replica.
fn remove(mut spare: f64, variants: &mut [SizedVariant<'_, '_>], targets: &mut [Option<u32>]) {
    variants.sort_by(|a, b| b.group.cost().total_cmp(&a.group.cost()));
    for (position, one) in variants.iter().enumerate() {
        let kept = one.group.facts.limits.min.max(u32::from(position + 1 == variants.len()));
        let fewer = truncated_u32((spare / one.capacity).floor().max(0.0)).min(one.group.replicas.saturating_sub(kept));
        targets[one.index] = Some(one.group.replicas - fewer);
        spare -= f64::from(fewer) * one.capacity;
    }
}

/// Tokens in the KV cache of a replica that are in use.
fn held(one: &ReplicaView, group: &GroupView<'_>) -> f64 {
    one.kv_utilization * group.facts.kv_tokens as f64
}

/// Share of the prompt tokens that were cached, of the requests that completed in the last minute.
fn hit_rate(view: &ScalingView<'_>, variants: &[usize]) -> f64 {
    let outcomes = || variants.iter().map(|&index| view.groups[index].outcomes);
    let input: u64 = outcomes().map(|window| window.input_tokens).sum();
    let cached: u64 = outcomes().map(|window| window.cached_tokens).sum();
    if input == 0 { 0.0 } else { cached as f64 / input as f64 }
}

impl ScalingPolicy for WvaV2 {
    fn reads(&self) -> Reads {
        Reads { load: true, in_flight: true, ..Reads::NOTHING }
    }

    fn reads_outcomes(&self) -> bool {
        true
    }

    fn scale(&mut self, view: &ScalingView<'_>, targets: &mut Vec<Option<u32>>) {
        if self.last.is_due(view.now) {
            self.capacities.resize(view.groups.len(), None);
            let mut next: Vec<_> = view.groups.iter().map(|group| Some(group.replicas)).collect();
            for variants in variants(view) {
                self.analyze(view, &variants, &mut next);
            }
            self.last = LastRun { at: Some(view.now), targets: next };
        }
        targets.extend_from_slice(&self.last.targets);
    }

    fn fork(&self) -> Box<dyn ScalingPolicy> {
        Box::new(self.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{TestGroup, targets};
    use super::super::{GatewayView, OutcomeWindow};
    use super::*;

    const V1: WvaV1Settings = WvaV1Settings { kv: 0.8, queue: 5.0, spare_kv: 0.1, spare_queue: 3.0 };
    const V2: WvaV2Settings = WvaV2Settings { kv: 0.8, queue: 5.0, up: 0.85, down: 0.7 };

    /// A group of replicas with these numbers, the first with the number `first`.
    fn group(first: u32, gpus: u32, replicas: &[(f64, u32)]) -> TestGroup {
        TestGroup::idle(replicas.len() as u32).with(|group| {
            group.facts.gpus = gpus;
            for ((index, one), &(kv, queue)) in (first..).zip(&mut group.ready).zip(replicas) {
                *one = ReplicaView {
                    instance: InstanceIndex(index),
                    kv_utilization: kv,
                    queue_depth: queue,
                    ..ReplicaView::default()
                };
            }
        })
    }

    fn v1(groups: &[TestGroup]) -> Vec<Option<u32>> {
        targets(&mut WvaV1::new(V1), 0, groups)
    }

    #[test]
    fn spare_capacity_adds_to_the_cheapest_variant_and_removes_from_the_dearest() {
        // To spare: 0.05 of the KV cache < 0.1.
        let full = [group(0, 2, &[(0.75, 0)]), group(1, 1, &[(0.75, 0)])];
        assert_eq!(v1(&full), [Some(1), Some(2)]);
        let starting =
            full.clone().map(|one| one.with(|group| group.loading.resize(group.facts.gpus as usize - 1, Micros::MAX)));
        assert_eq!(v1(&starting), [Some(2), Some(2)], "the first is starting one: the second gets the other");
        // To spare: mean 0.45 and 4.5; on one replica fewer 0.8 - 0.35 · 4 / 3 = 0.333 and 5 - 0.5 · 4 / 3 = 4.33.
        let idle = [group(0, 2, &[(0.3, 0), (0.4, 1)]), group(2, 1, &[(0.3, 0), (0.4, 1)])];
        assert_eq!(v1(&idle), [Some(1), Some(2)]);
        // To spare: 0.4; on one of two replicas 0.8 - 0.8 = 0.
        assert_eq!(v1(&[group(0, 1, &[(0.4, 0), (0.4, 0)])]), [Some(2)]);
        // Waiting requests: 2 to spare < 3. All saturated: nothing to spare.
        assert_eq!(v1(&[group(0, 1, &[(0.1, 3)])]), [Some(2)]);
        assert_eq!(v1(&[group(0, 1, &[(0.9, 9)])]), [Some(2)]);
        assert_eq!(v1(&[group(0, 1, &[])]), [Some(0)], "nothing was measured");
    }

    #[test]
    fn the_largest_values_of_a_minute_count_every_minute() {
        let mut policy = WvaV1::new(V1);
        let mut at = |now_s, kv| targets(&mut policy, now_s, &[group(0, 1, &[(kv, 0)])])[0];
        assert_eq!([at(0, 0.5), at(15, 0.79), at(30, 0.5), at(45, 0.5)], [Some(1); 4]);
        assert_eq!(at(60, 0.5), Some(2), "0.79 at 15 s");
        assert_eq!([at(75, 0.5), at(105, 0.5)], [Some(2); 2], "until the next minute");
        assert_eq!(at(120, 0.5), Some(1));
    }

    fn outcomes(completed: u32, input: u64, output: u64) -> OutcomeWindow {
        OutcomeWindow {
            completed,
            input_tokens: u64::from(completed) * input,
            output_tokens: u64::from(completed) * output,
            ..OutcomeWindow::default()
        }
    }

    fn v2(groups: &[TestGroup]) -> Vec<Option<u32>> {
        targets(&mut WvaV2::new(V2), 0, groups)
    }

    #[test]
    fn demand_over_capacity_in_tokens() {
        // 1000 tokens of KV cache: capacity min(800, min(512 · 10 / 20, 64) · 15 = 960) = 800.
        let with = |kv| group(0, 1, &[(kv, 0), (kv, 0)]).with(|group| group.outcomes = outcomes(4, 10, 10));
        assert_eq!(v2(&[with(0.6)]), [Some(2)], "1200 / 0.85 = 1412 < 1600; 1600 - 1200 / 0.7 < 0");
        assert_eq!(v2(&[with(0.9)]), [Some(3)], "1800 / 0.85 = 2118 > 1600 by 518: one");
        assert_eq!(v2(&[with(0.2)]), [Some(1)], "1600 - 400 / 0.7 = 1029: one");
        assert_eq!(v2(&[with(0.0)]), [Some(1)], "the last one stays");
        // Capacity min(800, min(512 · 10 / 20, 8) · 15 = 120).
        let small = with(0.1).with(|group| group.facts.max_num_seqs = 8);
        assert_eq!(v2(&[small]), [Some(2)], "200 / 0.85 = 235 < 240; 240 - 286 < 0");
        // The queue of the gateway: max(100, 4 · 10) · (1 - 0.5) + 4 · 10 = 90, and 400 held: 490 / 0.85 = 576.
        let queued = group(0, 1, &[(0.4, 0)]).with(|group| {
            group.outcomes = OutcomeWindow { cached_tokens: 20, ..outcomes(4, 10, 10) };
            group.facts.kv_tokens = 1000;
            group.facts.max_num_seqs = 38;
            group.gateway = GatewayView { queued: 4, queued_tokens: 100, ..GatewayView::default() };
        });
        assert_eq!(v2(std::slice::from_ref(&queued)), [Some(2)], "576 > 38 · 15 = 570");
        assert_eq!(v2(&[queued.with(|group| group.facts.max_num_seqs = 39)]), [Some(1)], "576 < 39 · 15 = 585");
    }

    #[test]
    fn what_a_replica_held_while_requests_waited_is_its_capacity() {
        let mut policy = WvaV2::new(V2);
        let with = |kv, queue| [group(0, 1, &[(kv, queue)]).with(|group| group.outcomes = outcomes(4, 10, 10))];
        // Observed 500: 500 + 5 · 10 = 550; 550 / 0.85 = 647 > 500 by 147.
        assert_eq!(targets(&mut policy, 0, &with(0.5, 5)), [Some(2)]);
        // Still 500: 450 / 0.85 = 529 > 500.
        assert_eq!(targets(&mut policy, 60, &with(0.45, 0)), [Some(2)]);
        // Without the observation 800: 529 < 800.
        assert_eq!(v2(&with(0.45, 0)), [Some(1)]);
    }

    #[test]
    fn cheap_tokens_are_added_and_dear_replicas_removed() {
        // Capacities 800 and 1600 (KV cache of 2000): per token the second costs less at 1.5 times the price.
        let dear = |kv: f64, count: usize| {
            group(4, 1, &vec![(kv, 0); count]).with(|group| {
                group.facts.kv_tokens = 2000;
                group.facts.price = Some(3.0);
            })
        };
        let cheap = |kv: f64| group(0, 1, &[(kv, 0)]).with(|group| group.facts.price = Some(2.0));
        // 800 + 1600 held, capacity 2400: 2400 / 0.85 = 2824, 424 more.
        assert_eq!(v2(&[cheap(0.8), dear(0.8, 1)]), [Some(1), Some(2)]);
        // Nothing held, 800 + 3200 spare: both dear ones, the cheapest keeps one; the minimum of the dear group is 1.
        assert_eq!(v2(&[cheap(0.0), dear(0.0, 2)]), [Some(1), Some(1)]);
    }
}
