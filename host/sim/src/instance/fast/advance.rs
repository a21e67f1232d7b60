//! Execution of events, and of quiet runs of steps.

use std::sync::Arc;

use super::Fast;
use super::deadlines::NEVER;
use crate::adapters::lengthened;
use crate::instance::cache_events::PublishedStep;
use crate::instance::{Instance as _, NoProgress, PrefetchDistance};
use crate::latency::{Batch, ContextEffect, LatencyModel};
use crate::limits::EQUAL_STEPS;
use crate::numbers::narrow;
use crate::observer::{Interests, Observer, SimEvent};
use crate::outcome::Status;
use crate::prefetch::soon;
use crate::units::Micros;

impl Fast {
    /// Executes every event before `limit`. `TIERED`: whether there is a CPU tier, or adapters, or KV blocks
    /// that move between instances; without them the loop has none of their checks.
    #[inline(never)]
    pub(super) fn catch_up<const TIERED: bool>(
        &mut self,
        limit: Micros,
        observer: &mut impl Observer,
    ) -> Result<(), NoProgress> {
        // The limit, or before it the next moment at which the load is sampled.
        let mut stop = limit.min(self.next_sample);
        loop {
            let (queued, deadline) = (self.next_queued, self.next_deadline);
            let step = self.step_at;
            let mut now = queued.min(step).min(deadline);
            if TIERED {
                now = now.min(self.next_load);
            }
            if now >= stop {
                if self.next_sample <= now && self.next_sample < limit {
                    self.sample_load(now, limit, observer);
                }
                if now >= limit {
                    // Events at `limit` itself wait: an arrival of that tick is executed before them.
                    return Ok(());
                }
                stop = limit.min(self.next_sample);
            }
            if queued == now {
                let (_, request) = self.arriving.pop_front().expect("just seen");
                self.next_queued = self.arriving.front().map_or(NEVER, |&(at, _)| at);
                self.arriving.front().into_iter().for_each(|(_, next)| soon(&**next));
                match self.planned_until(now, &request) {
                    Some(at) => {
                        self.postponed_until = at;
                        self.join_arriving(at, request);
                    }
                    None => self.enqueue::<TIERED>(now, request, observer),
                }
            } else if TIERED && self.next_load == now {
                self.adapter_loaded(now, observer);
            } else if step == now {
                // A step that starts at a deadline is executed first.
                let mut until = limit.min(queued).min(deadline.saturating_add(Micros(1)));
                if TIERED {
                    until = until.min(self.next_transfer()).min(self.next_load);
                }
                let reported = observer.interests().contains(Interests::SCHEDULING);
                if !(self.quiet::<TIERED>(reported) && self.run_quietly::<TIERED>(now, until, observer)) {
                    self.step::<TIERED>(now, observer)?;
                }
            } else {
                let popped = self.deadlines.pop();
                self.next_deadline = self.deadlines.next();
                let Some((key, _)) = popped.and_then(|slot| self.live.at(slot)) else {
                    continue; // it ended before: this is no event, and the clock stays
                };
                self.end_early(now, key, Status::TimedOut, observer);
            }
            self.counters.clock = self.counters.clock.max(now);
        }
    }

    /// Reports the load at the next moment. Nothing changes it before `event` and `limit`.
    #[cold]
    #[inline(never)]
    fn sample_load(&mut self, event: Micros, limit: Micros, observer: &mut impl Observer) {
        let load = self.load();
        // Without time series no load is sampled.
        let Some((instance, moments)) = &mut self.samples else { return };
        observer.record(&SimEvent::Load { instance: *instance, at: self.next_sample, load: &load });
        moments.sampled(event, limit);
        self.next_sample = moments.next_at();
    }

    /// Whether the next steps do nothing but decode until an event of another kind or a finish: every request in the
    /// batch decodes and gets its token, and no request can be scheduled.
    ///
    /// A head of the queue that lacks KV blocks continues to lack them: decoding takes free blocks one by one, and each
    /// of them the head either needed as a free block, or counted as cached and must now recompute. (Only BLIS can lose
    /// several cached blocks by reusing one, see `forget_duplicate_blocks`; in that case the head is not remembered.) With KV groups, of which
    /// windows give pages back, each step sees for itself whether the head might get its pages.
    /// With a CPU tier such a head could be passed over while transfers are in progress (`transfers_are_quiet`).
    /// If waiting is `reported`, the waiting of this head must have been reported before. A prefill interval counts steps,
    /// and an adaptive prefill threshold depends on the length of the queue: with them no head is remembered. A head that
    /// lacks a slot for its adapter is remembered if no request behind it can be scheduled; a request that joins or leaves
    /// the queue makes the engine forget it.
    #[inline]
    fn quiet<const TIERED: bool>(&self, reported: bool) -> bool {
        let budget = self.config.max_num_batched_tokens;
        self.decoders.count == self.running
            && self.running > 0
            && self.running <= budget
            && self.stalled.is_empty()
            && !self.decoders.tracks()
            && self.record.is_none()
            && !self.cadence.is_used()
            && !(TIERED && (!self.transfers_are_quiet() || self.would_load()))
            && (self.running == budget
                || self.running >= self.config.batch_limit()
                || self.waiting.head().is_none_or(|(_, head)| self.refused == Some((head, budget - self.running))))
            && !(reported && self.waiting_is_unreported())
    }

    /// Whether the head of the queue waits and that was not reported yet.
    fn waiting_is_unreported(&self) -> bool {
        let head = self.waiting.head();
        head.is_some_and(|(_, head)| self.reported_waiting != Some(self.live[head].request.id))
    }

    /// A lower bound of the start of the next step that ends a request in queue or batch; the next step starts at
    /// `next`. Whatever else happens, a request computes one token per step, and no step that computes is shorter than
    /// the shortest step.
    pub(super) fn last_step_at(&self, next: Micros) -> Micros {
        let decoding = u32::try_from(self.decoders.soonest_finish().saturating_sub(self.v)).unwrap_or(u32::MAX);
        let prefilling = self.prefilling.iter().map(|&key| {
            let live = &self.live[key];
            self.tokens_left(&live.request, live.target, live.generated)
        });
        let waiting = (self.queue_len() > 0).then_some(self.fewest_waiting);
        let entering = prefilling.chain(waiting).map(|left| left.saturating_sub(self.free_tokens()));
        let decoding = (self.decoders.count > 0).then_some(decoding);
        let fewest = entering.chain(decoding).min().unwrap_or(0);
        self.after_steps(next, fewest)
    }

    /// Executes quiet steps that start before `until`, up to the step in which the next request finishes. Returns
    /// `false` if not even one is possible, because KV blocks are short.
    fn run_quietly<const TIERED: bool>(&mut self, now: Micros, until: Micros, observer: &mut impl Observer) -> bool {
        let finish_v = self.decoders.next_finish(0, &self.live).expect("every decoder finishes");
        let before = self.v;
        self.prefetch_at(PrefetchDistance::Rest);
        let last = self.last_of_run(finish_v);
        let (end, last_start) = self.decode_until::<TIERED>(now, until, last, observer);
        if self.v == before {
            // KV blocks are short: a full step has to preempt.
            return false;
        }
        self.counters.clock = self.counters.clock.max(last_start);
        self.step_at = end;
        self.trim_log();
        if self.v == finish_v {
            self.complete_decoders(end, observer);
            self.prefetch_at(PrefetchDistance::Request);
            self.schedule_next::<TIERED>(end);
            if TIERED {
                self.quiet_end_of_transfers();
            }
        }
        self.publish(PublishedStep { start: last_start, end, follows: true, computes: true });
        true
    }

    /// The virtual time at which a run of quiet steps ends, at most `finish_v`. If the router learns of the blocks that a step evicts
    /// at its end, and not where it starts, a step that may evict some is a run of its own.
    #[inline]
    fn last_of_run(&mut self, finish_v: u64) -> u64 {
        if self.cache_events.as_ref().is_none_or(|events| !events.at_end()) {
            // All steps of the run but the last one have ended when it is executed, and that one publishes where it starts.
            return finish_v;
        }
        self.last_before_eviction(finish_v)
    }

    /// The virtual time of the last step, at most `finish_v`, before one that may evict a block; of the next step, if that may.
    #[inline(never)]
    fn last_before_eviction(&mut self, finish_v: u64) -> u64 {
        if self.is_paged() {
            return self.v + self.steps_without_eviction(finish_v - self.v).max(1);
        }
        let blocks = self.decoders.starting_in(self.v, finish_v - self.v);
        if blocks > u64::from(self.kv.without_eviction()) { self.v + 1 } else { finish_v }
    }

    /// Executes quiet steps: runs of equal steps at once where they are long enough, otherwise one by one. Returns the
    /// end and the start of the last step.
    fn decode_until<const TIERED: bool>(
        &mut self,
        now: Micros,
        until: Micros,
        finish_v: u64,
        observer: &mut impl Observer,
    ) -> (Micros, Micros) {
        let latency = Arc::clone(&self.config.latency);
        let before = self.v;
        let adapters = self.adapters.as_ref().filter(|_| TIERED).map(|slots| slots.mix_of_batch());
        let mut quiet = QuietRun {
            latency: latency.as_ref(),
            per_token: self.per_token,
            batch: Batch {
                decode_requests: u64::from(self.decoders.count),
                decode_context: self.decoders.context,
                common_prefix: self.common_prefix(),
                sampled: self.decoders.sampled,
                ..Batch::default()
            },
            now,
            last_start: now,
            until,
            finish_v,
            factor: adapters.map_or(1.0, |adapters| adapters.factor()),
        };
        let in_runs = match latency.context_effect() {
            ContextEffect::None => true,
            ContextEffect::NonDecreasing => u64::from(self.equal_tokens) >= EQUAL_STEPS * quiet.batch.decode_requests,
            ContextEffect::Any => false,
        };
        let line = if in_runs { None } else { latency.over_context(&quiet.batch) };
        loop {
            // The load at a moment on the way is that between two steps.
            quiet.until = until.min(self.next_sample);
            match &line {
                _ if in_runs => self.decode_in_runs::<TIERED>(&mut quiet, observer),
                Some(line) => {
                    let step_time = |batch: &Batch| line.step_time(batch.decode_context);
                    self.decode_one_by_one::<TIERED>(&mut quiet, step_time, observer);
                }
                None => self.decode_one_by_one::<TIERED>(&mut quiet, |batch| latency.step_time(batch), observer),
            }
            if quiet.until == until || quiet.now < quiet.until || self.v == finish_v {
                // An event, a finish or a lack of KV blocks ends the run; a sample only interrupts it.
                break;
            }
            self.sample_load(quiet.now, until, observer);
        }
        self.decoders.context = quiet.batch.decode_context;
        if let Some(adapters) = adapters {
            self.counters.adapter_uses += u64::from(adapters.distinct) * (self.v - before);
        }
        (quiet.now, quiet.last_start)
    }

    fn decode_in_runs<const TIERED: bool>(&mut self, quiet: &mut QuietRun<'_>, observer: &mut impl Observer) {
        let count = quiet.batch.decode_requests;
        let ignored = quiet.latency.context_effect() == ContextEffect::None;
        while quiet.now < quiet.until && self.v < quiet.finish_v {
            let step_time = quiet.latency.step_time(&quiet.batch);
            let each = if TIERED { lengthened(step_time, quiet.factor) } else { step_time };
            let mut steps = (quiet.until - quiet.now).0.div_ceil(each.0).min(quiet.finish_v - self.v);
            if !ignored {
                let cut = steps;
                steps = equal_steps(quiet.latency, quiet.batch, step_time, steps, u64::from(self.equal_tokens) / count);
                if steps < cut {
                    self.grew_by(steps * count);
                }
            }
            let mut blocks = self.decoders.starting_in(self.v, steps);
            if TIERED && self.is_paged() {
                (steps, blocks) = (self.pages_of_quiet_steps(steps), 0);
            }
            if blocks > u64::from(self.kv.free_blocks()) {
                steps = self.steps_that_fit(steps);
                blocks = self.decoders.starting_in(self.v, steps);
            }
            if steps == 0 {
                // Not even one step finds its KV blocks: the next one has to preempt.
                return;
            }
            self.kv.take(narrow(blocks));
            observer.record(&self.config.latencies(each + quiet.per_token, count * steps));
            self.log.push(steps, each);
            quiet.now += Micros(each.0 * steps);
            quiet.last_start = quiet.now - each;
            quiet.batch.decode_context += count * steps;
            self.v += steps;
        }
    }

    fn decode_one_by_one<const TIERED: bool>(
        &mut self,
        quiet: &mut QuietRun<'_>,
        step_time: impl Fn(&Batch) -> Micros,
        observer: &mut impl Observer,
    ) {
        let count = quiet.batch.decode_requests;
        let first_v = self.v;
        let (mut first, mut each) = (None, Micros::ZERO);
        let mut phase = self.decoders.phase_of(self.v);
        while quiet.now < quiet.until && self.v < quiet.finish_v {
            let blocks = self.decoders.starting_in_turn(&mut phase);
            if TIERED && self.is_paged() {
                if !self.pages_of_quiet_step() {
                    break; // the step does not find its pages
                }
            } else if blocks > self.kv.free_blocks() {
                // The step does not find its KV blocks: it has to preempt.
                break;
            } else {
                self.kv.take(blocks);
            }
            each = step_time(&quiet.batch);
            if TIERED {
                each = lengthened(each, quiet.factor);
            }
            first.get_or_insert(each);
            observer.record(&self.config.latencies(each + quiet.per_token, count));
            self.log.push(1, each);
            quiet.last_start = quiet.now;
            quiet.now += each;
            quiet.batch.decode_context += count;
            self.v += 1;
        }
        let steps = self.v - first_v;
        if first == Some(each) && steps >= EQUAL_STEPS {
            self.grew_by(steps * count); // they were equal after all
        }
    }

    /// Records that a run of equal steps ended, in which the context grew by `tokens`.
    fn grew_by(&mut self, tokens: u64) {
        self.equal_tokens = tokens.try_into().unwrap_or(u32::MAX); // an estimate
    }

    /// The largest number of steps, fewer than `steps`, for which there are enough free blocks.
    fn steps_that_fit(&self, steps: u64) -> u64 {
        let free = u64::from(self.kv.free_blocks());
        // The number of blocks grows with the number of steps.
        let (mut fits, mut exceeds) = (0, steps);
        while exceeds - fits > 1 {
            let middle = u64::midpoint(fits, exceeds);
            if self.decoders.starting_in(self.v, middle) > free { exceeds = middle } else { fits = middle }
        }
        fits
    }

    /// Schedules the step after the one that ended at `end`.
    pub(super) fn schedule_next<const TIERED: bool>(&mut self, end: Micros) {
        let waits = self.queued::<TIERED>() > 0 && (!TIERED || self.next_load == NEVER);
        self.step_at = if self.running > 0 || waits { end } else { NEVER };
    }

    /// Drops step durations that no running request needs any more.
    #[inline]
    pub(super) fn trim_log(&mut self) {
        if self.log.needs_trim() {
            self.trim_long_log();
        }
    }

    #[cold]
    fn trim_long_log(&mut self) {
        self.log.drop_before(self.order.first().map_or(self.v, |key| self.live[key].admitted_v));
    }
}

/// A run of quiet steps in progress.
struct QuietRun<'a> {
    latency: &'a dyn LatencyModel,
    /// Added to every inter-token latency.
    per_token: Micros,
    batch: Batch,
    now: Micros,
    /// Start of the latest step.
    last_start: Micros,
    /// No step may start at or after this time.
    until: Micros,
    /// No step may go beyond this virtual time.
    finish_v: u64,
    /// The factor by which adapters lengthen its steps.
    factor: f64,
}

/// The number of steps from `batch` on, at most `most`, that take `each`, for a model in which steps never get shorter
/// as the context grows: then a step as long as the first has only equal steps before it. `guess` is tried first.
fn equal_steps(latency: &dyn LatencyModel, batch: Batch, each: Micros, most: u64, guess: u64) -> u64 {
    let equal = |steps: u64| {
        let decode_context = batch.decode_context + batch.decode_requests * (steps - 1);
        latency.step_time(&Batch { decode_context, ..batch }) == each
    };
    let mut stride = 1;
    let (mut same, mut longer) = (1, most + 1);
    let mut probe = guess.clamp(1, most);
    loop {
        if probe == same || equal(probe) {
            same = probe;
            probe = same + stride;
            stride *= 2;
        } else {
            longer = probe;
            probe = longer.saturating_sub(stride).max(same);
            stride *= 2;
        }
        if longer - same <= 1 {
            // Steps never get shorter as the context grows: `same` of them are equal, and no more.
            return same;
        }
        if probe >= longer || probe <= same {
            probe = u64::midpoint(same, longer);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Debug)]
    struct Staircase {
        tread: u64,
    }

    impl LatencyModel for Staircase {
        fn step_time(&self, batch: &Batch) -> Micros {
            Micros(1 + batch.decode_context / self.tread)
        }
    }

    proptest! {
        #[test]
        fn a_run_ends_where_the_first_longer_step_begins(
            tread in 1u64..500, requests in 1u64..40, context in 0u64..10_000, most in 1u64..600, guess in 4u64..700,
        ) {
            let model = Staircase { tread };
            let batch = Batch { decode_requests: requests, decode_context: context, ..Batch::default() };
            let each = model.step_time(&batch);
            let at = |step: u64| Batch { decode_context: context + requests * step, ..batch };
            let expected = (0..most).take_while(|&step| model.step_time(&at(step)) == each).count() as u64;
            prop_assert_eq!(equal_steps(&model, batch, each, most, guess), expected);
        }
    }
}
