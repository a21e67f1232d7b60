//! The plain engine as an instance of a service.

use super::{Plain, PlainRequest};
use crate::adapters::AdapterReport;
use crate::ids::RequestId;
use crate::instance::policy::QueueKey;
use crate::instance::prefilled::KvRead;
use crate::instance::{Instance, InstanceLoad, NoProgress};
use crate::latency::Batch;
use crate::numbers::count;
use crate::observer::{Interests, Observer, SimEvent};
use crate::offload::{ChunkKey, CpuTier, PeerTier, SharedChunks};
use crate::outcome::{Counters, PrefixCacheCounters, Status};
use crate::policy::kv_cache::CacheTier;
use crate::request::{BlockKey, Name, Request, Stage};
use crate::units::Micros;

impl Plain {
    /// If all requests here wait for transfers from storage: executes the steps from `now` on that change nothing, before `limit` and
    /// any other event, and returns the start of the last of them. There may be millions, because BLIS's empty steps are short.
    pub(super) fn wait_for_transfers(
        &mut self,
        now: Micros,
        limit: Micros,
        observer: &impl Observer,
    ) -> Option<Micros> {
        let tiers = self.tiers.as_ref().filter(|_| self.running.is_empty())?;
        let (_, head) = self.waiting.first_key_value()?;
        let interests = observer.interests();
        let reports = interests.contains(Interests::SCHEDULING) && self.reported_waiting != Some(head.request.id);
        if reports
            || interests.contains(Interests::STEPS)
            || !self.waiting.values().all(|live| tiers.awaits(live.request.id))
        {
            // Such a step has something to report, or a request that does not wait for storage.
            return None;
        }
        let queued = self.arriving.front().map(|&(at, _)| at);
        let deadline = self.deadlines.first_key_value().map(|(&(at, _), _)| at);
        let until = [queued, deadline, tiers.next_change(now)].into_iter().flatten().fold(limit, Micros::min);
        let step = self.config.latency.step_time(&Batch::default()).0.max(1);
        let count = until.saturating_sub(now).0.div_ceil(step);
        if count == 0 || until == Micros::MAX {
            // A change is due in this very step, or none is known that could end the wait.
            return None;
        }
        self.counters.steps += count;
        self.step_at = Some(Micros(now.0 + count * step));
        Some(Micros(now.0 + (count - 1) * step))
    }

    pub(super) fn prefix_cache(&self) -> PrefixCacheCounters {
        if self.config.semantics.hit_rate_of_blocks {
            let misses = self.kv.misses() + self.tiers.as_ref().map_or(0, |tiers| tiers.misses);
            return PrefixCacheCounters::of_blocks(self.kv.hits(), misses);
        }
        self.counters.prefix_cache
    }

    pub(super) fn join_arriving(&mut self, at: Micros, live: PlainRequest) {
        let index = self.arriving.partition_point(|&(other, _)| other <= at);
        self.arriving.insert(index, (at, live));
    }

    /// If steps are planned ahead and one is under way at `now`: the time just after the start of the next step, which
    /// was planned without `request`.
    pub(super) fn planned_until(&self, now: Micros, request: &Request) -> Option<Micros> {
        let after_next = self.step_at.filter(|&at| at > now)?.saturating_add(Micros(1));
        let ahead =
            self.config.plans_ahead() && self.postponed_until != Some(now) && self.config.refuses(request).is_none();
        ahead.then_some(after_next)
    }

    pub(super) fn postpone(&mut self, at: Micros, live: PlainRequest) {
        self.postponed_until = Some(at);
        self.join_arriving(at, live);
    }
}

impl Instance for Plain {
    fn arrive(&mut self, now: Micros, request: impl Into<Box<Request>>) {
        let request = *request.into();
        self.counters.clock = self.counters.clock.max(now);
        if request.stage != Stage::Whole {
            self.transferred.get_or_insert_default();
        }
        let queued_at = now.saturating_add(self.config.latency.queueing_time(request.input_tokens));
        let live = PlainRequest::new(request);
        self.join_arriving(queued_at, live);
    }

    fn next_event(&self) -> Option<Micros> {
        let queued = self.arriving.front().map(|&(at, _)| at);
        let deadline = self.deadlines.first_key_value().map(|(&(at, _), _)| at);
        [queued, self.adapter_loaded_at(), self.step_at, deadline].into_iter().flatten().min()
    }

    fn idle_since(&self) -> Option<Micros> {
        let is_idle =
            self.arriving.is_empty() && self.queue_len() == 0 && self.running.iter().all(|live| live.draining);
        is_idle.then_some(self.left_at)
    }

    fn pending_arrivals(&self) -> usize {
        self.arriving.len()
    }

    fn advance(&mut self, limit: Micros, observer: &mut impl Observer) -> Result<(), NoProgress> {
        while let Some(now) = self.next_event().filter(|&at| at < limit) {
            if self.arriving.front().is_some_and(|&(at, _)| at == now) {
                let (_, live) = self.arriving.pop_front().expect("just seen");
                match self.planned_until(now, &live.request) {
                    Some(at) => self.postpone(at, live),
                    None => self.enqueue(now, live, observer),
                }
            } else if self.adapter_loaded_at() == Some(now) {
                self.adapter_loaded(now, observer);
            } else if self.step_at == Some(now) {
                if let Some(last) = self.wait_for_transfers(now, limit, observer) {
                    self.counters.clock = self.counters.clock.max(last);
                    // The empty steps are counted: the next one is the first that can change something.
                    continue;
                }
                self.step(now, observer)?;
            } else if let Some((_, id)) = self.deadlines.pop_first()
                && !self.end_early(now, id, Status::TimedOut, observer)
            {
                continue; // it ended before: this is no event, and the clock stays
            }
            self.counters.clock = self.counters.clock.max(now);
        }
        Ok(())
    }

    fn load(&self) -> InstanceLoad {
        InstanceLoad {
            queue_depth: count(self.queue_len()),
            batch_size: count(self.running.len()),
            used_kv_blocks: self.kv.held_blocks(),
            total_kv_blocks: self.config.total_kv_blocks,
            preemptions: self.counters.preemptions,
            prefix_cache: self.prefix_cache(),
        }
    }

    fn waiting_tokens(&self) -> u64 {
        self.waiting.values().chain(&self.loading).map(|live| u64::from(live.target)).sum()
    }

    fn adapters(&self, report: &mut AdapterReport) {
        if let Some(slots) = &self.adapters {
            slots.report(report);
            self.waiting.values().for_each(|live| report.waits(live.request.tags.adapter));
        }
    }

    fn finds(&self, key: BlockKey) -> bool {
        self.kv.finds(key)
    }

    fn queue(&self) -> Vec<RequestId> {
        self.waiting.values().map(|live| live.request.id).collect()
    }

    fn serve_next(&mut self, id: RequestId) -> bool {
        // Only a waiting request has a position in the queue that a counterfactual can change.
        let Some((&head, _)) = self.waiting.first_key_value() else { return false };
        let found = self.waiting.iter().find(|(_, live)| live.request.id == id);
        let Some(key) = found.map(|(&key, _)| key) else { return false };
        let live = self.waiting.remove(&key).expect("just found");
        self.waiting.insert(QueueKey::new(head.rank.before(), &live.request), live);
        true
    }

    fn force_load(&mut self, id: RequestId, loads: bool) {
        if let Some(offloading) = &mut self.offloading {
            offloading.force_load(id, loads);
        }
    }

    fn force_eviction(&mut self, id: RequestId, tier: CacheTier, adapter: Name) {
        if let Some(slots) = &mut self.adapters {
            slots.force_eviction(id, tier, adapter);
        }
    }

    fn evict(&mut self, now: Micros, id: RequestId, observer: &mut impl Observer) -> bool {
        self.counters.clock = self.counters.clock.max(now);
        if let Some(index) = self.arriving.iter().position(|(_, live)| live.request.id == id) {
            let (_, live) = self.arriving.remove(index).expect("just found");
            if live.computed > 0 {
                self.unpin(now, id);
            }
            observer.record(&SimEvent::Outcome(&live.outcome(self.config.index, Status::Evicted).ended_at(now)));
            // Before it joins the queue it holds no slot, and no KV blocks but reserved ones.
            return true;
        }
        self.end_early(now, id, Status::Evicted, observer)
    }

    fn watch_cache(&mut self) {
        self.kv.watch();
        self.cache_events = self.config.cache_events();
    }

    fn cache_changes(&mut self, now: Micros, each: &mut dyn FnMut(BlockKey, bool)) -> Option<Micros> {
        if let Some(events) = &mut self.cache_events {
            return events.take(now, each);
        }
        self.kv.take_changes(each);
        None
    }

    fn watch_tier(&mut self) -> u32 {
        self.offloading.as_mut().map_or(0, |offloading| offloading.watch())
    }

    fn tier_changes(&mut self, now: Micros, each: &mut dyn FnMut(BlockKey, bool)) {
        if let Some(offloading) = &mut self.offloading {
            offloading.take_changes(now, each);
        }
    }

    fn take_written_chunks(&mut self) -> Vec<(ChunkKey, Micros)> {
        self.offloading.as_mut().map(|offloading| offloading.take_written()).unwrap_or_default()
    }

    fn share_chunks(&mut self, content: &SharedChunks) {
        self.offloading.iter_mut().for_each(|offloading| offloading.share(content));
    }

    fn peers(&mut self) -> Option<(&mut PeerTier, &mut CpuTier)> {
        self.offloading.as_mut()?.peers()
    }

    fn reserve(&mut self, request: &Request) -> bool {
        self.reserve_prompt(request)
    }

    fn arrive_prefilled(&mut self, now: Micros, request: Box<Request>) {
        self.prefilled_arrives(now, *request);
    }

    fn next_read(&self) -> Option<Micros> {
        self.may_read().then(|| self.next_event())?
    }

    fn take_reads(&mut self) -> Vec<KvRead> {
        self.transferred.as_mut().map(|transferred| transferred.take_begun()).unwrap_or_default()
    }

    fn read_ended(&mut self, now: Micros, id: RequestId) {
        self.end_read(now, id);
    }

    fn release_prefilled(&mut self, now: Micros, id: RequestId) {
        self.unpin(now, id);
    }

    fn pins(&self) -> usize {
        self.transferred.as_ref().map_or(0, |transferred| transferred.pins())
    }

    fn finish(mut self, horizon: Micros, observer: &mut impl Observer) -> Counters {
        for live in self.running.iter().filter(|live| !live.draining) {
            observer.record(&SimEvent::Outcome(&live.outcome(self.config.index, Status::Running)));
        }
        for live in self.waiting.values().chain(&self.loading) {
            observer.record(&SimEvent::Outcome(&live.outcome(self.config.index, Status::Queued)));
        }
        for (_, live) in &self.arriving {
            observer.record(&SimEvent::Outcome(&live.outcome(self.config.index, Status::Arriving)));
        }
        if self.left_at <= horizon {
            self.counters.clock = self.counters.clock.max(self.left_at);
        }
        for live in self.waiting.values().chain(&self.loading) {
            self.counters.waited(live.queued_at, self.counters.clock);
        }
        let (prefix_cache, thrashing) = (self.prefix_cache(), self.tiers.as_ref().map(|tiers| tiers.thrashing()));
        let offload = self.offloading.map(|offloading| offloading.counters()).unwrap_or_default();
        Counters { prefix_cache, thrashing, offload, ..self.counters }
    }
}
