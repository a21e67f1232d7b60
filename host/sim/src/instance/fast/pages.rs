//! KV groups in the fast engine. A decoding request needs the pool only in few steps: where a block begins or is full, and where one
//! leaves a window. Most requests need it in the same steps of every block: their pages are counted ([`PageCycle`]). Of the others the
//! calendar has the steps; between them nothing is done.

use super::Fast;
use super::arena::RequestKey;
use super::calendar::CALENDAR;
use super::live::{LiveRequest, RequestState};
use super::page_cycle::{DecodeMoment, PageCycle};
use super::plan::StepPlan;
use crate::instance::config::InstanceConfig;
use crate::instance::gates::Gate;
use crate::instance::policy::QueueKey;
use crate::kv::fast_pages::{FastPages, HeldPages, PagesNumber};
use crate::kv::pages::{PageDemand, PageHit};
use crate::numbers::count;
use crate::outcome::WaitReason;
use crate::units::Micros;

impl InstanceConfig {
    /// The tokens of the next `tokens` of `live` at step `v`, and before it, as the pool counts them.
    fn demand<'a>(&self, live: &'a LiveRequest, held: &HeldPages, v: u64, tokens: u32) -> PageDemand<'a> {
        let start = live.computed_at(v);
        let decodes = live.state == RequestState::Decoding;
        let in_flight = match self.async_scheduling {
            false => 0,
            true if !decodes || held.decodes_from == v => held.in_flight,
            // Each step computes one token, but of those that it left out.
            true => u32::from(!live.stalled),
        };
        PageDemand {
            known: if self.async_scheduling && decodes { start } else { start + tokens },
            finished: start - in_flight,
            ..live.prompt_pages(start, start + tokens)
        }
    }
}

impl LiveRequest {
    /// For the tokens `start..end` of its prompt.
    fn prompt_pages(&self, start: u32, end: u32) -> PageDemand<'_> {
        let prefill_end = self.request.input_tokens.max(self.target.saturating_sub(1));
        PageDemand { request: &self.request, start, end, known: end, prefill_end, finished: start }
    }
}

impl Fast {
    /// Whether the model has KV groups.
    #[inline]
    pub(super) fn is_paged(&self) -> bool {
        self.calendar.is_some()
    }

    fn pages(&self) -> &FastPages {
        self.kv.pages.as_ref().expect("the model has KV groups")
    }

    /// Calls `change` with the pool, the request, and the configuration.
    fn with_pages<T>(
        &mut self,
        key: RequestKey,
        change: impl FnOnce(&mut FastPages, &mut LiveRequest, &InstanceConfig) -> T,
    ) -> T {
        let pages = self.kv.pages.as_mut().expect("the model has KV groups");
        let result = change(pages, &mut self.live[key], &self.config);
        self.kv.count_pages();
        result
    }

    fn demand_of(&self, key: RequestKey, tokens: u32) -> PageDemand<'_> {
        let live = &self.live[key];
        let none = HeldPages::default();
        let held = live.holding.pages.map_or(&none, |number| self.pages().held(number));
        self.config.demand(live, held, self.v, tokens)
    }

    /// Pages that `tokens` more tokens of a running request take.
    pub(super) fn pages_for(&self, key: RequestKey, tokens: u32) -> u32 {
        let number = self.live[key].holding.pages;
        if number.is_some_and(|number| self.pages().held(number).is_counted) {
            return 0; // in this step it takes none
        }
        self.pages().needs(number, &self.demand_of(key, tokens), None, false)
    }

    /// Number of pages that `key` holds in group `group` before the step of `at`.
    fn pages_in(&self, key: RequestKey, group: usize, at: DecodeMoment) -> u32 {
        let Some(number) = self.live[key].holding.pages else { return 0 };
        let pages = self.pages();
        match self.cycle().filter(|_| pages.held(number).is_counted) {
            Some(cycle) => cycle.held_in(pages, number, group, key, at),
            None => pages.held_in(number, group),
        }
    }

    /// Number of pages that a request holds.
    pub(super) fn held_pages(&self, key: RequestKey) -> u32 {
        let at = DecodeMoment { computed: self.live[key].computed_at(self.v), v: self.v };
        (0..self.pages().rules.layout.groups.len()).map(|group| self.pages_in(key, group, at)).sum()
    }

    /// Pages held per group when a step is planned, by all requests together; shared ones count once per request. Empty without groups.
    pub(super) fn held_by_group(&self, left_out: &[RequestKey]) -> Vec<u32> {
        let Some(pages) = &self.kv.pages else { return Vec::new() };
        // Of requests with counted pages the tables are of the past.
        let counted = |key: &RequestKey| {
            self.live[*key].holding.pages.filter(|&number| pages.held(number).is_counted).map(|number| (*key, number))
        };
        let counted: Vec<_> = self.order.iter().filter_map(|key| counted(&key)).collect();
        let gained = |&(key, number): &(RequestKey, PagesNumber), group| {
            let planned = !left_out.contains(&key);
            let (computed, v) = (self.live[key].computed_at(self.v), self.v);
            let at = DecodeMoment { computed: computed + u32::from(planned), v: v + u64::from(planned) };
            i64::from(self.pages_in(key, group, at)) - i64::from(pages.held_in(number, group))
        };
        let held = |group| pages.all_held_in(group) + counted.iter().map(|counted| gained(counted, group)).sum::<i64>();
        (0..pages.rules.layout.groups.len()).map(|group| u32::try_from(held(group)).unwrap_or_default()).collect()
    }

    fn cycle(&self) -> Option<&PageCycle> {
        self.calendar.as_ref()?.cycle.as_ref()
    }

    /// Of the next `tokens` prompt tokens of a running request, those that it computes in this step.
    pub(super) fn cut_chunk(&self, key: RequestKey, tokens: u32) -> u32 {
        let live = &self.live[key];
        let Some(number) = live.holding.pages else { return tokens };
        let junction = self.pages().held(number).junction;
        let chunk = live.prompt_pages(live.computed, live.computed + tokens);
        self.pages().cut_chunk(&chunk, live.target, junction, self.limits.most_tokens)
    }

    /// Gives back what no later token of a running request reads.
    pub(super) fn drop_pages(&mut self, key: RequestKey) {
        let v = self.v;
        let Some(number) = self.live[key].holding.pages else { return };
        if self.pages().held(number).is_counted {
            if !self.is_due(key) {
                return;
            }
            self.stop_counting(key);
            self.with_pages(key, |pages, _, _| pages.held_mut(number).next_event = v);
        }
        self.with_pages(key, |pages, live, config| {
            let finished = config.demand(live, pages.held(number), v, 0).finished;
            pages.drop_unread(number, finished);
        });
    }

    /// Whether the decoding request `key` may need the pool in this step.
    fn is_due(&self, key: RequestKey) -> bool {
        let live = &self.live[key];
        let Some(number) = live.holding.pages else { return false };
        let held = self.pages().held(number);
        match self.cycle() {
            Some(cycle) if held.is_counted => cycle.is_due(key, live.computed_at(self.v)),
            _ => held.next_event == self.v,
        }
    }

    /// The pages of `key`, which decodes, are no longer counted.
    pub(super) fn stop_counting(&mut self, key: RequestKey) {
        let (live, v) = (&self.live[key], self.v);
        let (Some(pages), Some(number)) = (&mut self.kv.pages, live.holding.pages) else { return };
        if let Some(cycle) = self.calendar.as_mut().and_then(|calendar| calendar.cycle.as_mut())
            && pages.held(number).is_counted
        {
            cycle.leave(pages, number, key, DecodeMoment { computed: live.computed_at(v), v });
        }
    }

    /// Allocates the pages of `tokens` more tokens of a running request, if it needs the pool for them. There are enough.
    pub(super) fn allocate_pages(&mut self, key: RequestKey, tokens: u32) {
        let v = self.v;
        let decodes = self.live[key].state == RequestState::Decoding;
        if decodes && !self.is_due(key) {
            return;
        }
        self.stop_counting(key);
        self.with_pages(key, |pages, live, config| {
            let number = live.holding.pages.expect("it is running");
            let demand = config.demand(live, pages.held(number), v, tokens);
            pages.extend(number, &demand);
        });
        if decodes {
            let computed = self.live[key].computed_at(v) + 1;
            self.note_event(key, DecodeMoment { computed, v: v + 1 }, u32::from(self.config.async_scheduling));
        }
    }

    /// Notes when `key` needs the pool next. The last `in_flight` of its tokens are those of a step that has not finished when that of `at`
    /// is planned.
    pub(super) fn note_event(&mut self, key: RequestKey, at: DecodeMoment, in_flight: u32) {
        let (Some(calendar), Some(pages)) = (&mut self.calendar, &mut self.kv.pages) else { return };
        let Some(number) = self.live[key].holding.pages else { return };
        if calendar.cycle.as_mut().is_some_and(|cycle| cycle.join(pages, &self.live, key, at, in_flight)) {
            return;
        }
        let steps = pages.steps_to_event(number, &self.live[key].request, at.computed, in_flight.min(1));
        // An event that comes too early does nothing.
        let event = at.v + u64::from(steps).min(CALENDAR as u64 - 1);
        pages.held_mut(number).next_event = event;
        calendar.at(event).push(key);
    }

    /// `key` decodes from the present step on.
    pub(super) fn decodes_with_pages(&mut self, key: RequestKey) {
        let v = self.v;
        let in_flight = self.with_pages(key, |pages, live, config| {
            let held = pages.held_mut(live.holding.pages?);
            held.decodes_from = v;
            Some(if config.async_scheduling { held.in_flight } else { 0 })
        });
        let at = DecodeMoment { computed: self.live[key].computed, v };
        self.note_event(key, at, in_flight.unwrap_or_default());
    }

    /// `key` computed the tokens of its chunk in the step that ends.
    pub(super) fn chunk_in_flight(&mut self, key: RequestKey) {
        self.with_pages(key, |pages, live, _| {
            if let Some(number) = live.holding.pages {
                pages.held_mut(number).in_flight = live.num_new;
            }
        });
    }

    /// Finds the decoders that need the pool in this step, in batch order, but for those that are counted.
    fn find_due(&mut self) {
        let v = self.v;
        let Some(calendar) = &mut self.calendar else { return };
        if calendar.at(v).is_empty() {
            return;
        }
        let mut due = std::mem::take(calendar.at(v));
        let pages = self.kv.pages.as_ref();
        due.retain(|&key| {
            let live = self.live.get(key).filter(|live| live.state == RequestState::Decoding);
            let held = live.and_then(|live| Some(pages?.held(live.holding.pages?)));
            held.is_some_and(|held| !held.is_counted && held.next_event == v)
        });
        due.sort_unstable_by_key(|&key| self.live[key].seq);
        due.dedup(); // a request may have been noted for the same step twice
        let emptied = std::mem::replace(&mut calendar.due, due);
        *calendar.at(v) = emptied; // to be filled again without an allocation
    }

    /// The step will be planned anew.
    fn forget_due(&mut self) {
        let v = self.v;
        if let Some(calendar) = &mut self.calendar {
            let due = std::mem::take(&mut calendar.due);
            calendar.at(v).extend(due);
        }
    }

    /// Finds the decoders that need the pool in this step, if there are pages for all of them and `others` more. Returns whether they must
    /// get them in the order of the batch.
    pub(super) fn find_fitting(&mut self, others: u32) -> Option<bool> {
        self.find_due();
        let v = self.v;
        let calendar = self.calendar.as_ref()?;
        let mut needed = others;
        if !calendar.due.is_empty() {
            needed += calendar.due.iter().map(|&key| self.pages_for(key, 1)).sum::<u32>();
        }
        let (mut mixed, mut in_any_order) = (false, false);
        if let Some(cycle) = &calendar.cycle {
            let counted = cycle.step(v);
            in_any_order = needed == 0 && calendar.due.is_empty() && cycle.takes_in_any_order();
            needed = needed.saturating_add(counted.takes);
            if counted.leaves {
                let first = calendar.due.iter().chain(&self.prefilling).map(|&key| self.live[key].seq).min();
                mixed = !cycle.leaves_in_order(v, first.unwrap_or(u64::MAX), &self.live);
            }
        }
        if needed > self.kv.free_blocks() {
            self.forget_due();
            return None;
        }
        // The order decides which requests get pages that those before them give back.
        let pages = self.kv.pages.as_mut()?;
        Some(mixed || needed > 0 && !in_any_order && needed > pages.unfindable(needed))
    }

    /// Allocates the pages of all decoders, and of the requests in prefill that compute a part of their prompts.
    fn allocate_all(&mut self, in_order: bool) {
        let v = self.v;
        let (Some(calendar), Some(pages)) = (&mut self.calendar, &mut self.kv.pages) else { return };
        if !in_order {
            if let Some(cycle) = &mut calendar.cycle {
                cycle.execute(cycle.step(v), v, &self.live, pages);
                self.kv.count_pages();
            }
            if calendar.due.is_empty() && self.prefilling.is_empty() {
                return; // as in most steps
            }
        }
        let mut keys = std::mem::take(&mut calendar.due);
        if in_order {
            keys.clear();
            keys.extend(self.order.iter());
        } else if !self.prefilling.is_empty() {
            keys.extend(&self.prefilling);
            keys.sort_unstable_by_key(|&key| self.live[key].seq);
        }
        for &key in &keys {
            let live = &self.live[key];
            match live.state {
                RequestState::Decoding => self.allocate_pages(key, 1),
                RequestState::Prefilling if live.num_new > 0 => self.allocate_pages(key, live.num_new),
                _ => {}
            }
        }
        keys.clear();
        if let Some(calendar) = &mut self.calendar {
            calendar.due = keys; // to be filled again without an allocation
        }
    }

    /// As [`Fast::plan_together`]: what one gives back the next one may take.
    pub(super) fn plan_pages_together(&mut self, budget: u32, in_order: bool) -> StepPlan {
        let mut plan = StepPlan::with_budget(budget);
        for &key in &self.prefilling {
            let tokens = self.live[key].num_new;
            if tokens > 0 {
                plan.prefill = true;
                self.limits.take(tokens);
            }
        }
        self.allocate_all(in_order);
        plan
    }

    /// A step is planned request by request: each sees for itself whether it needs the pool.
    pub(super) fn begin_one_by_one(&mut self) {
        let v = self.v;
        if let Some(calendar) = &mut self.calendar {
            calendar.at(v).clear();
        }
    }

    /// The page events of up to `most` quiet steps, from the present one on. Returns for how many steps there were enough pages.
    pub(super) fn pages_of_quiet_steps(&mut self, most: u64) -> u64 {
        let first = self.v;
        while self.v < first + most && self.pages_of_quiet_step() {
            self.v += 1;
        }
        let steps = self.v - first;
        self.v = first;
        steps
    }

    /// The page events of a quiet step. Returns `false`, and changes nothing, if there are too few pages.
    #[inline]
    pub(super) fn pages_of_quiet_step(&mut self) -> bool {
        let v = self.v;
        let enough = self.pages_for_head();
        if let (Some(calendar), Some(pages)) = (&mut self.calendar, &mut self.kv.pages)
            && calendar.at(v).is_empty()
            && let Some(cycle) = &mut calendar.cycle
        {
            let counted = cycle.step(v);
            if counted.takes == 0 && counted.drops == 0 && !counted.leaves {
                return true;
            }
            if let Some(enough) = enough
                && pages.free_pages() + cycle.most_given_back(&counted, v) >= enough + counted.takes
            {
                return false; // the head of the queue might get its pages
            }
            let takes = counted.takes;
            let in_any_order = cycle.takes_in_any_order() && takes <= pages.free_pages();
            if (takes == 0 || in_any_order || pages.unfindable(takes) >= takes)
                && (!counted.leaves || cycle.leaves_in_order(v, u64::MAX, &self.live))
            {
                // As in most steps: the order of the batch makes no difference.
                cycle.execute(counted, v, &self.live, pages);
                self.kv.count_pages();
                return true;
            }
        }
        if enough.is_some() {
            return false; // the head of the queue might get pages that others give back
        }
        let Some(in_order) = self.find_fitting(0) else { return false };
        self.allocate_all(in_order);
        true
    }

    /// With how many free pages the head of the queue can be scheduled, if it waits for pages.
    fn pages_for_head(&self) -> Option<u32> {
        let (_, head) = self.waiting.head()?;
        let most = self.config.max_num_batched_tokens.min(self.config.batch_limit());
        (self.running < most && self.refused.is_some_and(|(refused, _)| refused == head)).then_some(self.refused_pages)
    }

    /// A number of steps, at most `most`, from the present one on, that evict no page which a look-up could find.
    pub(super) fn steps_without_eviction(&mut self, most: u64) -> u64 {
        let v = self.v;
        let (Some(calendar), Some(pages)) = (&self.calendar, &mut self.kv.pages) else { return most };
        let mut left = pages.unfindable(u32::MAX);
        let without_event = calendar.next(v, most.min(CALENDAR as u64)) - v;
        let Some(cycle) = &calendar.cycle else { return without_event };
        let fits = |&step: &u64| {
            let takes = cycle.step(step).takes;
            let fits = takes <= left;
            left = left.saturating_sub(takes);
            fits
        };
        (v..v + without_event).take_while(fits).count() as u64
    }

    /// As [`Fast::admit`].
    pub(super) fn admit_with_pages(&mut self, key: RequestKey, budget: u32) -> Result<u32, WaitReason> {
        let (hit, spare) = (self.page_hit(key), self.limits.spare_blocks(self.running as usize));
        let (live, pages, free) = (&self.live[key], self.pages(), self.kv.free_blocks());
        let start = hit.tokens;
        let num_tokens = self.limits.entering(live.target - start, budget)?;
        let chunk = live.prompt_pages(start, start + num_tokens);
        let num_tokens = pages.cut_chunk(&chunk, live.target, hit.junction, self.limits.most_tokens);
        if num_tokens == 0 && start < live.target {
            // A chunk must end where a block of states ends, and the step leaves less than that: it waits for the next one.
            return Err(WaitReason::TokenBudget);
        }
        let taken = pages.needs(None, &live.prompt_pages(start, start + num_tokens), Some(&hit), false) + spare;
        let whole = || pages.needs(None, &live.prompt_pages(start, live.target), Some(&hit), true) + spare;
        // A chunk that is the whole rest takes at least what is reserved for that.
        let reserves = self.config.reserve_full_prompt && (taken > free || start + num_tokens < live.target);
        let reserved = if reserves { whole() } else { 0 };
        if pages.is_too_new(&hit) {
            // The state that it would copy is written in this very step.
            return Err(WaitReason::KvBlocks { needed: whole() });
        }
        if reserved.max(taken) > free {
            let needed = if reserved > free { reserved } else { taken };
            let finds_none = start == 0 && live.request.content.shared_blocks() == 0;
            if finds_none && !self.config.options.adaptive_prefill_threshold && !self.limits.has_budget {
                // Nothing changes what it needs: it waits until so many pages are free.
                (self.refused, self.refused_pages) = (Some((key, budget)), needed);
            }
            return Err(WaitReason::KvBlocks { needed });
        }
        self.with_pages(key, |pages, live, _| {
            let demand = live.prompt_pages(start, start + num_tokens);
            live.holding.pages = Some(pages.enter(&demand, &hit, live.preemptions > 0));
            live.computed = start;
        });
        self.count_look_up(key, start);
        Ok(num_tokens)
    }

    /// What is cached of the prompt of the waiting request `key`, but of its last token.
    fn page_hit(&self, key: RequestKey) -> PageHit {
        let live = &self.live[key];
        self.pages().look_up(&live.request, live.target.saturating_sub(1), live.preemptions > 0)
    }

    /// As [`Fast::begin_read`].
    pub(super) fn begin_read_of_pages(&mut self, queue_key: QueueKey, key: RequestKey, now: Micros) -> Gate {
        let hit = self.page_hit(key);
        let local = hit.tokens;
        let (live, pages, free) = (&self.live[key], self.pages(), self.kv.free_blocks());
        let tokens = live.request.tokens_to_read(now, local, self.config.options.kv_recompute_threshold);
        if tokens == 0 {
            // All is in its own prefix cache, or no longer there, or below `kv_recompute_threshold`.
            return Gate::Open;
        }
        let spare = self.limits.spare_blocks(self.running as usize);
        let whole = pages.needs(None, &live.prompt_pages(local, live.target), Some(&hit), true) + spare;
        if self.config.reserve_full_prompt && whole > free {
            // vLLM begins a read only if the whole prompt fits (`scheduler_reserve_full_isl`).
            return Gate::Stop(WaitReason::KvBlocks { needed: whole });
        }
        let taken = pages.needs(None, &live.prompt_pages(local, local + tokens), Some(&hit), false);
        let needed = taken + spare + self.reserved_blocks();
        if needed > free {
            // A read takes all its pages at once; those that other prompts still need must stay free.
            return Gate::Stop(WaitReason::KvBlocks { needed });
        }
        self.with_pages(key, |pages, live, _| {
            // They get their hashes after the read.
            let demand = PageDemand { known: local, ..live.prompt_pages(local, local + tokens) };
            live.holding.pages = Some(pages.enter(&demand, &hit, live.preemptions > 0));
        });
        self.reads(queue_key, key, local, tokens, now);
        Gate::Left
    }

    /// Pages that the request `key` still needs for its tokens up to `end`: the first `loaded` are loaded.
    pub(super) fn pages_for_loaded(&self, key: RequestKey, loaded: u32, end: u32, capped: bool) -> u32 {
        let live = &self.live[key];
        self.pages().needs(live.holding.pages, &live.prompt_pages(loaded, end), None, capped)
    }

    /// The first `loaded` tokens of `key` are loaded, and it computes those up to `end`.
    pub(super) fn enter_loaded_pages(&mut self, key: RequestKey, loaded: u32, end: u32) {
        self.with_pages(key, |pages, live, _| {
            let number = live.holding.pages.expect("it has loaded");
            pages.extend(number, &live.prompt_pages(loaded, end));
        });
    }

    /// The tokens of `key` are known: those of a load that has ended, before it is admitted, so that a state among them is copied; or the last
    /// one, which is no longer in flight.
    pub(super) fn register_computed(&mut self, key: RequestKey) {
        self.with_pages(key, |pages, live, _| {
            if let Some(number) = live.holding.pages {
                pages.register(number, &live.request, live.computed);
            }
        });
    }

    /// Pages that requests still need for their prompts, as [`Fast::reserved_blocks`].
    pub(super) fn reserved_pages(&self) -> u32 {
        let of = |&key: &RequestKey| {
            let live = &self.live[key];
            self.pages_for_loaded(key, live.computed + live.num_new, live.target, true)
        };
        count(self.prefilling.iter().chain(&self.loading).map(|key| of(key) as usize).sum::<usize>())
    }
}
