//! KV groups in the fast engine. A decoding request needs the pool only in few steps: where a block begins or is full, and where one
//! leaves a window. The calendar has these steps; between them nothing is done.

use super::Fast;
use super::arena::RequestKey;
use super::calendar::CALENDAR;
use super::live::{LiveRequest, RequestState};
use super::plan::StepPlan;
use crate::instance::config::InstanceConfig;
use crate::instance::gates::Gate;
use crate::instance::policy::QueueKey;
use crate::kv::fast_pages::{FastPages, HeldPages};
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
        self.pages().needs(self.live[key].holding.pages, &self.demand_of(key, tokens), None, false)
    }

    /// Number of pages that a request holds.
    pub(super) fn held_pages(&self, key: RequestKey) -> u32 {
        self.live[key].holding.pages.map_or(0, |number| self.pages().held(number).held())
    }

    /// Pages held per group, by all requests together; shared ones count once per request. Empty without groups.
    pub(super) fn held_by_group(&self) -> Vec<u32> {
        let Some(pages) = &self.kv.pages else { return Vec::new() };
        let held = || self.live.values().filter_map(|live| Some(pages.held(live.holding.pages?)));
        (0..pages.rules.layout.groups.len()).map(|group| held().map(|held| held.held_in(group)).sum()).collect()
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
        self.with_pages(key, |pages, live, config| {
            let Some(number) = live.holding.pages else { return };
            let finished = config.demand(live, pages.held(number), v, 0).finished;
            pages.drop_unread(number, finished);
        });
    }

    /// Allocates the pages of `tokens` more tokens of a running request, if it needs the pool for them. There are enough.
    pub(super) fn allocate_pages(&mut self, key: RequestKey, tokens: u32) {
        let v = self.v;
        let decodes = self.live[key].state == RequestState::Decoding;
        let is_due = self.with_pages(key, |pages, live, config| {
            let number = live.holding.pages.expect("it is running");
            if decodes && pages.held(number).next_event != v {
                return false;
            }
            let demand = config.demand(live, pages.held(number), v, tokens);
            pages.extend(number, &demand);
            true
        });
        if decodes && is_due {
            let computed = self.live[key].computed_at(v) + 1;
            self.note_event(key, computed, v + 1, self.config.async_scheduling);
        }
    }

    /// Notes the next event of `key`, which has computed `computed` tokens before step `v`, the last one perhaps `in_flight`.
    pub(super) fn note_event(&mut self, key: RequestKey, computed: u32, v: u64, in_flight: bool) {
        let Some(calendar) = &mut self.calendar else { return };
        let (Some(pages), Some(number)) = (&mut self.kv.pages, self.live[key].holding.pages) else { return };
        let steps = pages.steps_to_event(number, &self.live[key].request, computed, u32::from(in_flight));
        // An event that comes too early does nothing.
        let at = v + u64::from(steps).min(CALENDAR as u64 - 1);
        pages.held_mut(number).next_event = at;
        calendar.at(at).push(key);
    }

    /// `key` decodes from the present step on.
    pub(super) fn decodes_with_pages(&mut self, key: RequestKey) {
        let v = self.v;
        self.with_pages(key, |pages, live, _| {
            if let Some(number) = live.holding.pages {
                pages.held_mut(number).decodes_from = v;
            }
        });
        self.note_event(key, self.live[key].computed, v, self.config.async_scheduling);
    }

    /// `key` computed the tokens of its chunk in the step that ends.
    pub(super) fn chunk_in_flight(&mut self, key: RequestKey, tokens: u32) {
        self.with_pages(key, |pages, live, _| {
            if let Some(number) = live.holding.pages {
                pages.held_mut(number).in_flight = tokens;
            }
        });
    }

    /// Finds the decoders that need the pool in this step, in batch order.
    fn find_due(&mut self) {
        let v = self.v;
        let Some(calendar) = &mut self.calendar else { return };
        let mut due = std::mem::take(calendar.at(v));
        due.retain(|&key| {
            let live = self.live.get(key).filter(|live| live.state == RequestState::Decoding);
            live.and_then(|live| live.holding.pages).is_some_and(|number| self.pages_of(number).next_event == v)
        });
        due.sort_unstable_by_key(|&key| self.live[key].seq);
        due.dedup(); // a request may have been noted for the same step twice
        let calendar = self.calendar.as_mut().expect("just seen");
        let emptied = std::mem::replace(&mut calendar.due, due);
        *calendar.at(v) = emptied; // to be filled again without an allocation
    }

    fn pages_of(&self, number: crate::kv::fast_pages::PagesNumber) -> &HeldPages {
        self.pages().held(number)
    }

    /// The step will be planned anew.
    fn forget_due(&mut self) {
        let v = self.v;
        if let Some(calendar) = &mut self.calendar {
            let due = std::mem::take(&mut calendar.due);
            calendar.at(v).extend(due);
        }
    }

    fn due(&self) -> &[RequestKey] {
        self.calendar.as_ref().map_or(&[], |calendar| &calendar.due)
    }

    fn needs_of_due(&self) -> u32 {
        self.due().iter().map(|&key| self.pages_for(key, 1)).sum()
    }

    /// As [`Fast::budget_if_all_fit`]. Finds the decoders that need the pool.
    pub(super) fn budget_if_pages_fit(&mut self) -> Option<u32> {
        if (self.limits.holds_prefill || self.limits.has_budget) && !self.prefilling.is_empty() {
            // A prefill that is held back, or shares a budget, gets less than it can use.
            return None;
        }
        let mut budget = self.config.max_num_batched_tokens.checked_sub(self.decoders.count)?;
        let behind_all = self.lone_prefill_is_last();
        for i in 0..self.prefilling.len() {
            let key = self.prefilling[i];
            let mut chunk = self.limits.running(self.live[key].target - self.live[key].computed, u32::MAX);
            if chunk > budget {
                if !behind_all || budget == 0 {
                    // Which request gets less than it can use depends on the order of the batch.
                    return None;
                }
                chunk = budget;
            }
            let chunk = self.cut_chunk(key, chunk);
            let live = &mut self.live[key];
            live.num_new = chunk;
            live.context = live.computed;
            budget -= chunk;
        }
        self.find_due();
        let of_prefills = self.prefilling.iter().filter(|&&key| self.live[key].num_new > 0);
        let of_prefills: u32 = of_prefills.map(|&key| self.pages_for(key, self.live[key].num_new)).sum();
        let fit = of_prefills.saturating_add(self.needs_of_due()) <= self.kv.free_blocks();
        if !fit {
            self.forget_due();
        }
        fit.then_some(budget)
    }

    /// As [`Fast::plan_together`], in batch order: what one gives back the next one may take.
    pub(super) fn plan_pages_together(&mut self, budget: u32) -> StepPlan {
        let mut plan = StepPlan::with_budget(budget);
        let mut all = self.calendar.as_mut().map(|calendar| std::mem::take(&mut calendar.due)).unwrap_or_default();
        for &key in &self.prefilling {
            let live = &self.live[key];
            if live.num_new > 0 {
                plan.prefill = true;
                self.limits.take(live.num_new);
                all.push(key);
            }
        }
        if plan.prefill {
            all.sort_unstable_by_key(|&key| self.live[key].seq);
        }
        for &key in &all {
            let live = &self.live[key];
            self.allocate_pages(key, if live.state == RequestState::Decoding { 1 } else { live.num_new });
        }
        all.clear();
        if let Some(calendar) = &mut self.calendar {
            calendar.due = all; // to be filled again without an allocation
        }
        plan
    }

    /// A step is planned request by request: each sees for itself whether it needs the pool.
    pub(super) fn begin_one_by_one(&mut self) {
        let v = self.v;
        if let Some(calendar) = &mut self.calendar {
            calendar.at(v).clear();
        }
    }

    /// The page events of a quiet step. Returns `false`, and changes nothing, if there are too few pages.
    pub(super) fn pages_of_quiet_step(&mut self) -> bool {
        self.find_due();
        if self.due().is_empty() {
            return true;
        }
        if self.needs_of_due() > self.kv.free_blocks() {
            self.forget_due();
            return false;
        }
        let Some(calendar) = &mut self.calendar else { return true };
        let mut due = std::mem::take(&mut calendar.due);
        due.drain(..).for_each(|key| self.allocate_pages(key, 1));
        if let Some(calendar) = &mut self.calendar {
            calendar.due = due;
        }
        true
    }

    /// The number of steps after the present one, at most `most`, before the next that may have page events.
    pub(super) fn steps_without_page_events(&self, most: u64) -> u64 {
        let calendar = self.calendar.as_ref().expect("the model has KV groups");
        calendar.next(self.v + 1, most.min(CALENDAR as u64)) - self.v - 1
    }

    /// Whether the present step may have page events.
    pub(super) fn may_have_page_events(&self) -> bool {
        let calendar = self.calendar.as_ref().expect("the model has KV groups");
        calendar.next(self.v, 1) == self.v
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
        let needed = pages.needs(None, &live.prompt_pages(start, live.target), Some(&hit), true) + spare;
        if self.config.reserve_full_prompt && needed > free || pages.is_too_new(&hit) {
            // It fits only in part, or the state that it would copy is written in this very step.
            return Err(WaitReason::KvBlocks { needed });
        }
        let needed = pages.needs(None, &live.prompt_pages(start, start + num_tokens), Some(&hit), false) + spare;
        if needed > free {
            return Err(WaitReason::KvBlocks { needed });
        }
        self.with_pages(key, |pages, live, _| {
            live.holding.pages = Some(pages.enter(&live.prompt_pages(start, start + num_tokens), &hit));
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
            live.holding.pages = Some(pages.enter(&demand, &hit));
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
            pages.register(number, &live.request, loaded);
            pages.extend(number, &live.prompt_pages(loaded, end));
        });
    }

    /// The last of the tokens of `key` is no longer in flight: a block that it filled gets its hash.
    pub(super) fn finish_in_flight(&mut self, key: RequestKey) {
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
