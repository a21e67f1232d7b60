//! The signals that instances report, and their staleness.
//!
//! | group | freshness |
//! |---|---|
//! | queue, batch, KV, hit rate, preemptions | refreshed when a decision reads them and they are older than the refresh
//! interval |
//! | contents of the prefix caches | the same, with an interval of its own; all instances together |
//! | in flight, tokens in flight, latencies | always fresh: the router measures them |
//!
//! The cost of a refresh is proportional to the changes: instances without an event are skipped, and the caches report
//! the blocks stored and evicted since the last refresh. The effect is a copy on write of all caches, in one index from
//! a block to the set of instances that have it.

use super::ClusterConfig;
use super::candidates::{CandidateSet, Candidates};
use super::disaggregation::{Pairs, StageEnd};
use super::gateway::Gateway;
use super::in_flight::InFlightCounter;
use super::lifecycle::EventDelivery;
use super::measures::RouterMeasures;
use super::replicas::OutcomeLog;
use crate::adapters::AdapterReport;
use crate::ids::InstanceIndex;
use crate::instance::{Instance, InstanceConfig};
use crate::observer::{Interests, Observer, SimEvent};
use crate::outcome::{FirstToken, Outcome, SignalColumns};
use crate::policy::{
    AdapterSlotUse, ClusterView, Event, Events, InstanceInfo, PrefixIndex, Reads, RequestView, Signals, Staleness,
    Versions,
};
use crate::request::Name;
use crate::units::Micros;

/// The signals as of their last refresh.
#[derive(Clone, Debug)]
pub(super) struct SignalBoard {
    instances: Vec<InstanceInfo>,
    signals: Signals,
    versions: Versions,
    reads: Reads,
    /// The events that policies receive.
    events: Events,
    /// Whether closed-loop clients wait for the ends of requests.
    ends_matter: bool,
    load: SignalGroup,
    caches: SignalGroup,
    cached: PrefixIndex,
    /// Time of the next change of a cache that happened, but was not published at the last refresh.
    unpublished: Micros,
    /// The content of CPU tiers, if a policy reads it.
    tiers: Option<Box<TierSignal>>,
    /// The adapters of each instance as of the last refresh; empty if no policy reads them.
    adapters: Vec<AdapterReport>,
    /// Whether the column of cached blocks may hold anything but 0.
    found_any: bool,
    in_flight: InFlightCounter,
    measures: RouterMeasures,
    starts_at_zero: bool,
    /// Time of the latest [`Self::refresh`].
    refreshed_at: Option<Micros>,
    /// The instances that may be chosen, if these are not always all.
    candidates: Option<Box<Candidates>>,
}

/// The events on an instance before which a decision must make it catch up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WatchedEvents {
    /// No event; instances catch up when signals are refreshed.
    Nothing,
    /// Events that end requests, which are then no longer in flight.
    Ends,
    /// Every event: the signals are refreshed at every decision.
    Events,
}

/// Signals that are refreshed together.
#[derive(Clone, Debug)]
struct SignalGroup {
    /// Age at which the signals are refreshed.
    interval: Micros,
    read_at: Micros,
    /// Instances with events since the last refresh, and for each instance whether it is listed.
    dirty: Vec<InstanceIndex>,
    is_dirty: Vec<bool>,
}

impl SignalBoard {
    pub fn new(instances: Vec<InstanceInfo>, config: &ClusterConfig) -> Self {
        let n = instances.len();
        Self {
            // Free KV blocks are unknown before the first refresh.
            signals: Signals::idle(vec![0; n]),
            versions: Versions { load: 1, cached_blocks: 1, instances: 0 },
            reads: Reads::NOTHING,
            events: Events::NONE,
            ends_matter: false,
            load: SignalGroup::new(config.snapshot_refresh_interval, n),
            caches: SignalGroup::new(config.cache_signal_delay, n),
            cached: PrefixIndex::new(n),
            unpublished: Micros::MAX,
            tiers: None,
            adapters: Vec::new(),
            found_any: false,
            in_flight: InFlightCounter::new(config.semantics.completed_at_step_start),
            measures: RouterMeasures::default(),
            starts_at_zero: config.semantics.signals_start_at_zero,
            refreshed_at: None,
            candidates: None,
            instances,
        }
    }

    /// From now on, views show only the instances that were selected.
    pub fn show_candidates(&mut self) {
        self.candidates = Some(Box::default());
    }

    /// Selects the instances of views: `rows` pushes their indices.
    pub fn select(&mut self, now: Micros, set: CandidateSet, rows: impl FnOnce(&mut Vec<usize>)) {
        let Some(mut candidates) = self.candidates.take() else { return };
        candidates.select(&self.view_of_all(now), self.reads, set, rows);
        self.candidates = Some(candidates);
    }

    /// Adds `instance`, which is idle, behind the others.
    pub fn add(&mut self, info: InstanceInfo, instance: &mut impl Instance) {
        let (i, reads) = (self.instances.len(), self.reads);
        self.instances.push(info);
        self.signals.push_idle(0);
        self.load.add(info.id);
        self.caches.add(info.id);
        self.cached.grow(i + 1);
        if reads.adapters {
            self.adapters.push(AdapterReport::default());
        }
        if reads.load && !self.starts_at_zero {
            self.signals.read(i, instance, reads);
            read_adapters(&mut self.adapters, i, instance);
        }
        if reads.cached_blocks {
            instance.watch_cache();
        }
        if let Some(tiers) = &mut self.tiers {
            tiers.add(instance);
        }
    }

    /// From now on keeps `reads` up to date and collects `events`; and the ends of requests if `ends_matter`.
    pub fn start<I: Instance>(&mut self, reads: Reads, events: Events, ends_matter: bool, instances: &mut [I]) {
        // Changes of the caches are found by a refresh of the cache signal; tokens in flight are those that were not cached.
        let reads = Reads {
            cached_blocks: reads.cached_blocks || events.blocks || reads.tokens || reads.cpu_cached_blocks,
            ..reads
        };
        self.reads = reads;
        self.events = events;
        self.ends_matter = ends_matter;
        self.in_flight.start(reads);
        self.measures.start(reads);
        if reads.adapters {
            self.adapters.resize(instances.len(), AdapterReport::default());
        }
        if reads.load && !self.starts_at_zero {
            for (i, instance) in instances.iter().enumerate() {
                self.signals.read(i, instance, reads);
                read_adapters(&mut self.adapters, i, instance);
            }
        }
        if reads.cached_blocks {
            instances.iter_mut().for_each(Instance::watch_cache);
        }
        if reads.cpu_cached_blocks {
            let tiers = self.tiers.insert(Box::default());
            instances.iter_mut().for_each(|instance| tiers.add(instance));
        }
    }

    /// The caches show no block of `instance` any more, which is gone.
    pub fn remove(&mut self, now: Micros, instance: InstanceIndex, lifecycle: &mut EventDelivery) {
        self.cached.remove(instance, |key| lifecycle.block(now, instance, key, false));
        if let Some(tiers) = &mut self.tiers {
            tiers.present.remove(instance, |_| {});
        }
    }

    /// The columns that a policy with these `reads` sees. Columns that depend on the request are computed only if the
    /// policy reads them.
    pub fn columns(&self, read: Reads) -> SignalColumns {
        let Reads { cached_blocks, cpu_cached_blocks, .. } = read;
        SignalColumns { current: Reads { cached_blocks, cpu_cached_blocks, ..self.reads }, read }
    }

    pub fn watches(&self) -> WatchedEvents {
        let Events { first_token, completed, ended, .. } = self.events;
        if first_token || self.is_always_fresh() {
            WatchedEvents::Events
        } else if self.reads.in_flight || completed || ended || self.ends_matter {
            WatchedEvents::Ends
        } else {
            WatchedEvents::Nothing
        }
    }

    /// Whether a signal that is read has no refresh interval.
    fn is_always_fresh(&self) -> bool {
        self.reads.load && self.load.interval == Micros::ZERO
            || self.reads.cached_blocks && self.caches.interval == Micros::ZERO
    }

    /// Whether a signal that is read has become too old.
    pub fn is_due(&self, now: Micros) -> bool {
        self.reads.load && self.load.is_due(now) || self.reads.cached_blocks && self.caches.is_due(now)
    }

    /// Whether another refresh at `now` would change nothing: the last one was at `now` too, and no signal that is read is
    /// always fresh. Ends before `now` have then been reported, and what happens at `now` is delivered after it. (An
    /// instance may be watched for an end before `now`, because bounds of ends are early; it has none.)
    pub fn is_refreshed(&self, now: Micros) -> bool {
        self.refreshed_at == Some(now) && !self.is_always_fresh()
    }

    /// The time until which, inclusive, no signal changes by the passing of time alone: not by a refresh, and not by an end
    /// that was reported before its time.
    pub fn steady_until(&self) -> Micros {
        let refresh = |group: &SignalGroup, read: bool| {
            // Without an interval, the events of instances are watched.
            if read && group.interval > Micros::ZERO { group.read_at + group.interval - Micros(1) } else { Micros::MAX }
        };
        let load = refresh(&self.load, self.reads.load);
        let load = if self.caches.interval > Micros::ZERO {
            load
        } else {
            load.min(self.unpublished.saturating_sub(Micros(1)))
        };
        load.min(refresh(&self.caches, self.reads.cached_blocks)).min(self.in_flight.next_end())
    }

    /// Marks `instance` as dirty: an event happened on it.
    pub fn mark_dirty(&mut self, instance: InstanceIndex) {
        if self.reads.load {
            self.load.mark_dirty(instance);
        }
        if self.reads.cached_blocks {
            self.caches.mark_dirty(instance);
        }
    }

    /// Requests in flight on `instance`, and their prompt tokens without a first token, as far as they are counted.
    pub fn in_flight(&self, instance: InstanceIndex) -> (u32, u64) {
        (self.signals.in_flight[instance.index()], self.signals.in_flight_tokens[instance.index()])
    }

    /// Counts a request of `tenant` that is dispatched to `instance`.
    pub fn dispatched(&mut self, instance: InstanceIndex, tenant: Name) {
        self.in_flight.dispatched(&mut self.signals.in_flight, instance, tenant);
    }

    /// A request of `tenant` leaves `instance` now, without an event there.
    pub fn left(&mut self, instance: InstanceIndex, tenant: Name) {
        self.in_flight.left(&mut self.signals.in_flight, instance, tenant);
    }

    /// The routing policy, or a forced decision, chose `instance` for `request`; called before [`Self::dispatched`].
    pub fn routed(&mut self, request: &RequestView<'_>, instance: InstanceIndex) {
        if self.measures.is_on() && self.measures.dispatched(&mut self.signals, request, instance) {
            self.in_flight.changed(instance);
        }
    }

    /// Follows an event, delivered in order of time.
    pub fn observe(&mut self, event: &Event) {
        if self.measures.is_on() {
            let changed = self.measures.observe(&mut self.signals, event);
            changed.into_iter().flatten().for_each(|instance| self.in_flight.changed(instance));
        }
    }

    /// Refreshes the signals that are due. Instances must have caught up with `now`.
    pub fn refresh<I: Instance>(&mut self, now: Micros, instances: &mut [I], lifecycle: &mut EventDelivery) {
        self.refreshed_at = Some(now);
        self.in_flight.catch_up(&mut self.signals.in_flight, now);
        let (signals, reads) = (&mut self.signals, self.reads);
        let adapters = &mut self.adapters;
        let mut read = |i: InstanceIndex| {
            signals.read(i.index(), &instances[i.index()], reads);
            read_adapters(adapters, i.index(), &instances[i.index()]);
        };
        let read = |i| {
            read(i);
            false
        };
        if self.load.refresh(now, read) {
            self.versions.load += 1;
        }
        if let Some(tiers) = &mut self.tiers
            && self.caches.is_due(now)
        {
            tiers.refresh(now, instances);
        }
        let (cached, mut unpublished) = (&mut self.cached, Micros::MAX);
        let is_read = self.caches.refresh(now, |i| {
            let next = instances[i.index()].cache_changes(now, &mut |key, present| {
                if cached.set(key, i, present) {
                    lifecycle.block(now, i, key, present);
                }
            });
            unpublished = next.map_or(unpublished, |next| unpublished.min(next));
            next.is_some()
        });
        if is_read {
            self.unpublished = unpublished;
        }
    }

    /// Computes the columns that depend on the request, if the policy to be called reads them.
    #[inline(always)]
    pub fn probe(&mut self, request: &RequestView<'_>, reads: Reads) {
        if reads.adapters {
            self.probe_adapters(request.tags.adapter);
        }
        if reads.cpu_cached_blocks
            && let Some(tiers) = &mut self.tiers
        {
            tiers.probe(request, &mut self.signals.cpu_cached_blocks);
            self.versions.cached_blocks += 1;
        }
        if !reads.cached_blocks {
            // The look-up of the prompt's blocks costs time at every request: without a reader it is skipped.
            return;
        }
        let column = &mut self.signals.cached_blocks;
        if request.shares_blocks() {
            self.cached.leading(request.shared_blocks(), column);
            self.found_any = true;
        } else if std::mem::take(&mut self.found_any) {
            column.fill(0);
        } else {
            return; // neither the last request nor this one has a block that any instance has
        }
        self.versions.cached_blocks += 1;
    }

    /// Computes the columns of adapters for a request with `adapter`.
    #[inline(never)]
    fn probe_adapters(&mut self, adapter: Name) {
        for (i, report) in self.adapters.iter().enumerate() {
            let is_in = |list: &[Name]| u32::from(adapter != Name::NONE && list.contains(&adapter));
            self.signals.adapter_active[i] = is_in(&report.active);
            self.signals.adapter_waiting[i] = is_in(&report.waiting);
            self.signals.free_adapter_slots[i] = report.free_slots();
            if report.slots_in_use != AdapterSlotUse::None {
                self.signals.adapter_slots = report.slots_in_use;
            }
        }
    }

    /// The view of the instances that may be chosen.
    pub fn view(&self, now: Micros) -> ClusterView<'_> {
        let all = self.view_of_all(now);
        match &self.candidates {
            Some(candidates) => candidates.view(all),
            None => all,
        }
    }

    /// The view of all instances.
    pub fn view_of_all(&self, now: Micros) -> ClusterView<'_> {
        ClusterView {
            now,
            instances: &self.instances,
            signals: &self.signals,
            staleness: Staleness {
                load: now - self.load.read_at,
                cached_blocks: now - self.caches.read_at,
                in_flight: Micros::ZERO,
            },
            versions: self.versions,
            in_flight_changes: self.in_flight.changes(),
            tenants_in_flight: &self.in_flight.by_tenant,
            scores: &[],
        }
    }
}

/// The chunks of prompts in the CPU tiers, as of the last refresh of the cache signal.
#[derive(Clone, Debug, Default)]
struct TierSignal {
    present: PrefixIndex,
    /// KV blocks of a chunk; 0 without tiers.
    blocks_per_chunk: u32,
}

impl TierSignal {
    /// Adds `instance` behind the others.
    fn add(&mut self, instance: &mut impl Instance) {
        self.present.grow(self.present.instances() + 1);
        self.blocks_per_chunk = self.blocks_per_chunk.max(instance.watch_tier());
    }

    fn refresh<I: Instance>(&mut self, now: Micros, instances: &mut [I]) {
        for (i, instance) in instances.iter_mut().enumerate() {
            instance.tier_changes(now, &mut |key, present| {
                self.present.set(key, InstanceIndex::at(i), present);
            });
        }
    }

    /// Fills `column` with the leading blocks of the prompt that each tier has. A chunk has the key of its last block.
    fn probe(&mut self, request: &RequestView<'_>, column: &mut Vec<u32>) {
        let Some(others) = self.blocks_per_chunk.checked_sub(1) else { return };
        let chunks = request.shared_blocks().skip(others as usize).step_by(others as usize + 1);
        self.present.leading(chunks, column);
        column.iter_mut().for_each(|count| *count *= others + 1);
    }
}

/// Replaces the report of instance `i`, if reports are kept.
fn read_adapters(reports: &mut [AdapterReport], i: usize, instance: &impl Instance) {
    if let Some(report) = reports.get_mut(i) {
        report.active.clear();
        report.waiting.clear();
        instance.adapters(report);
    }
}

impl Signals {
    fn read(&mut self, i: usize, instance: &impl Instance, reads: Reads) {
        let load = instance.load();
        let share = |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
        self.queue_depth[i] = load.queue_depth;
        self.batch_size[i] = load.batch_size;
        self.kv_utilization[i] = share(load.used_kv_blocks.into(), load.total_kv_blocks.into());
        self.free_kv_blocks[i] = load.total_kv_blocks - load.used_kv_blocks;
        self.cache_hit_rate[i] = load.prefix_cache.hit_rate().unwrap_or(0.0);
        self.preemption_count[i] = load.preemptions;
        if reads.waiting_tokens {
            self.waiting_tokens[i] = instance.waiting_tokens();
        }
    }
}

impl SignalGroup {
    fn new(interval: Micros, instances: usize) -> Self {
        // The first refresh reads all instances.
        let dirty = (0..instances).map(InstanceIndex::at).collect();
        Self { interval, read_at: Micros::ZERO, dirty, is_dirty: vec![true; instances] }
    }

    /// Adds `instance`, which the next refresh reads.
    fn add(&mut self, instance: InstanceIndex) {
        self.is_dirty.push(true);
        self.dirty.push(instance);
    }

    fn mark_dirty(&mut self, instance: InstanceIndex) {
        if !std::mem::replace(&mut self.is_dirty[instance.index()], true) {
            self.dirty.push(instance);
        }
    }

    fn is_due(&self, now: Micros) -> bool {
        now - self.read_at >= self.interval
    }

    /// Refreshes the changed instances, if the interval has passed. Returns whether there were any. If `read` returns `true`, more
    /// changes of an instance follow without an event there: the next refresh reads it again.
    fn refresh(&mut self, now: Micros, mut read: impl FnMut(InstanceIndex) -> bool) -> bool {
        if !self.is_due(now) {
            return false;
        }
        self.read_at = now;
        let (all, mut kept) = (self.dirty.len(), 0);
        // Not `retain`: most groups keep none, and then the compiler leaves all of that out.
        for at in 0..all {
            let instance = self.dirty[at];
            let more = read(instance);
            self.is_dirty[instance.index()] = more;
            self.dirty[kept] = instance;
            kept += usize::from(more);
        }
        self.dirty.truncate(kept);
        all > 0
    }
}

/// An observer that passes every event on, and updates the signals with those of this instance.
pub(super) struct SignalObserver<'a, O> {
    pub observer: &'a mut O,
    pub board: &'a mut SignalBoard,
    pub lifecycle: &'a mut EventDelivery,
    /// The gateway's queue, if it counts the ends of requests.
    pub gateway: Option<&'a mut Gateway>,
    /// The latencies that a scaling policy reads.
    pub outcomes: Option<&'a mut OutcomeLog>,
    /// The requests that are prefilled and decoded on different instances.
    pub pairs: Option<&'a mut Pairs>,
}

impl<O: Observer> SignalObserver<'_, O> {
    /// Makes one outcome of the two of a request with two parts. Returns `false` if it has one.
    #[cold]
    #[inline(never)]
    fn stage_ended(&mut self, ended: &Outcome) -> bool {
        let of_pair = self.pairs.as_mut().and_then(|pairs| pairs.stage_ended(ended));
        let Some(StageEnd { part, leaves, whole }) = of_pair else { return false };
        for counted in leaves.iter().chain([&part]) {
            self.board.in_flight.ended(&mut self.board.signals.in_flight, counted);
        }
        self.observer.record(&SimEvent::StageEnded(&part));
        let Some((times, outcome)) = whole else {
            // The group that prefills has completed it, with the one token that it generates.
            self.outcomes.iter_mut().for_each(|outcomes| outcomes.ended(ended));
            return true;
        };
        self.lifecycle.ended(&outcome);
        self.gateway.iter_mut().for_each(|gateway| gateway.ended(&outcome));
        if let Some(outcomes) = &mut self.outcomes {
            outcomes.ended(&Outcome { cached_tokens: part.cached_tokens, ..outcome });
        }
        self.observer.record(&SimEvent::Disaggregated(&times));
        self.observer.record(&SimEvent::Outcome(&outcome));
        true
    }
}

impl<O: Observer> Observer for SignalObserver<'_, O> {
    #[inline(always)]
    fn interests(&self) -> Interests {
        let wanted = self.lifecycle.wanted().first_token || self.outcomes.is_some() || self.pairs.is_some();
        let first_tokens = if wanted { Interests::FIRST_TOKENS } else { Interests::NONE };
        self.observer.interests() | Interests::OUTCOMES | first_tokens
    }

    #[inline(always)]
    fn record(&mut self, event: &SimEvent<'_>) {
        match event {
            SimEvent::Outcome(outcome) => {
                if self.pairs.is_some() && self.stage_ended(outcome) {
                    // The outcome is that of a part: `stage_ended` reports the request with its last part.
                    return;
                }
                self.board.in_flight.ended(&mut self.board.signals.in_flight, outcome);
                self.lifecycle.ended(outcome);
                if let Some(gateway) = &mut self.gateway {
                    gateway.ended(outcome);
                }
                if let Some(outcomes) = &mut self.outcomes {
                    outcomes.ended(outcome);
                }
            }
            SimEvent::FirstToken(first) => {
                self.lifecycle.first_token(first);
                let (is_first, ttft) = match &mut self.pairs {
                    Some(pairs) => pairs.first_token(first),
                    None => (true, first.ttft),
                };
                if let Some(outcomes) = &mut self.outcomes {
                    outcomes.first_token(&FirstToken { ttft, ..**first });
                }
                if !is_first {
                    // vLLM discards the token of the prefill: the client gets its first one from the decode instance.
                    return;
                }
            }
            _ => {}
        }
        self.observer.record(event);
    }
}

impl From<&InstanceConfig> for InstanceInfo {
    fn from(config: &InstanceConfig) -> Self {
        Self {
            id: config.index,
            max_num_seqs: config.max_num_seqs,
            total_kv_blocks: config.total_kv_blocks,
            block_size: config.block_size,
            labels: config.labels,
        }
    }
}
