//! From event to event, and through quiet runs of steps.

use std::cmp::Reverse;

use super::Fast;
use super::live::State;
use crate::instance::Stuck;
use crate::latency::Batch;
use crate::outcome::Sink;
use crate::units::Micros;

impl Fast {
    /// Executes every event before `limit`.
    pub(super) fn catch_up(&mut self, limit: Micros, sink: &mut impl Sink) -> Result<(), Stuck> {
        loop {
            self.forget_met_deadlines();
            let queued = self.arriving.front().map_or(Micros::MAX, |&(at, _)| at);
            let step = self.step_at.unwrap_or(Micros::MAX);
            let deadline = self.deadlines.peek().map_or(Micros::MAX, |&Reverse((at, _, _))| at);
            let now = queued.min(step).min(deadline);
            if now >= limit {
                return Ok(());
            }
            if queued == now {
                let (_, request) = self.arriving.pop_front().expect("just seen");
                self.enqueue(now, request, sink);
            } else if step == now {
                // A step that starts at a deadline still goes first.
                let until = limit.min(queued).min(deadline.saturating_add(Micros(1)));
                if !(self.quiet() && self.run_quietly(now, until, sink)) {
                    self.step(now, sink)?;
                }
            } else if let Some(Reverse((_, _, key))) = self.deadlines.pop() {
                self.time_out(now, key, sink);
            }
            self.counters.clock = self.counters.clock.max(now);
        }
    }

    /// Requests that ended before their deadline leave no event, not even for the clock.
    fn forget_met_deadlines(&mut self) {
        while let Some(&Reverse((_, _, key))) = self.deadlines.peek() {
            if self.live.get(key).is_some_and(|live| live.state != State::Draining) {
                return;
            }
            self.deadlines.pop();
        }
    }

    /// Whether the next steps do nothing but decode, until something from outside happens or a
    /// request finishes: everyone in the batch decodes and gets its token, and nobody can enter.
    ///
    /// A head of the queue that KV refused stays refused: decoding takes free blocks one by one,
    /// each of which the head was either counting on as free, or counting on as cached and needs
    /// to recompute. (Only BLIS can lose several cached blocks by reusing one, see
    /// `forget_twins`; such a refusal is not remembered.)
    fn quiet(&self) -> bool {
        let budget = self.config.max_num_batched_tokens;
        self.decoders.count == self.running
            && self.running > 0
            && self.running <= budget
            && self.decoders.stalled.is_empty()
            && !self.decoders.tracks()
            && self.record.is_none()
            && (self.running == budget
                || self.running >= self.config.max_num_seqs
                || self
                    .waiting
                    .first_key_value()
                    .is_none_or(|(&head, _)| self.refused == Some((head, budget - self.running))))
    }

    /// Takes quiet steps that start before `until`, up to the one in which the next request
    /// finishes. `false` if not even one is possible, for want of KV.
    fn run_quietly(&mut self, now: Micros, until: Micros, sink: &mut impl Sink) -> bool {
        let live = &self.live;
        let finish_v = self
            .decoders
            .next_finish(|key, finish_v| {
                live.get(key).is_some_and(|live| live.finish_v == finish_v && live.state == State::Decoding)
            })
            .expect("every decoder finishes");
        let before = self.v;
        let (end, last_start) = if self.config.latency.ignores_context() {
            self.multiply(now, until, finish_v, sink)
        } else {
            self.iterate(now, until, finish_v, sink)
        };
        if self.v == before {
            return false;
        }
        self.counters.steps += self.v - before;
        self.counters.clock = self.counters.clock.max(last_start);
        self.step_at = Some(end);
        self.trim_log();
        if self.v == finish_v {
            self.complete_decoders(end, sink);
            self.schedule_next(end);
        }
        true
    }

    /// Quiet steps one by one: their duration changes with the context. Returns the end and the
    /// start of the last one.
    fn iterate(&mut self, mut now: Micros, until: Micros, finish_v: u64, sink: &mut impl Sink) -> (Micros, Micros) {
        let per_token = self.config.latency.output_token_time();
        let count = u64::from(self.decoders.count);
        let mut last_start = now;
        let mut batch = Batch { decode_requests: count, decode_context: self.decoders.context, ..Batch::default() };
        while now < until && self.v < finish_v {
            let blocks = self.decoders.starting(self.v);
            if blocks > self.kv.free_blocks() {
                break;
            }
            self.kv.take(blocks);
            let each = self.config.latency.step_time(&batch);
            sink.itl(each + per_token, count);
            self.log.push(self.v, 1, each);
            last_start = now;
            now += each;
            batch.decode_context += count;
            self.v += 1;
        }
        self.decoders.context = batch.decode_context;
        (now, last_start)
    }

    /// Quiet steps in closed form: they all take equally long.
    fn multiply(&mut self, now: Micros, until: Micros, finish_v: u64, sink: &mut impl Sink) -> (Micros, Micros) {
        let count = u64::from(self.decoders.count);
        let batch = Batch { decode_requests: count, decode_context: self.decoders.context, ..Batch::default() };
        let each = self.config.latency.step_time(&batch);
        let mut steps = (until.saturating_sub(now).0).div_ceil(each.0).min(finish_v - self.v);
        let free = u64::from(self.kv.free_blocks());
        if self.decoders.starting_in(self.v, steps) > free {
            // The last step count that fits: the need grows with the number of steps.
            let (mut fits, mut exceeds) = (0, steps);
            while exceeds - fits > 1 {
                let middle = u64::midpoint(fits, exceeds);
                if self.decoders.starting_in(self.v, middle) > free { exceeds = middle } else { fits = middle }
            }
            steps = fits;
        }
        if steps == 0 {
            return (now, now);
        }
        let blocks = self.decoders.starting_in(self.v, steps);
        self.kv.take(u32::try_from(blocks).expect("no more than are free"));
        sink.itl(each + self.config.latency.output_token_time(), count * steps);
        self.log.push(self.v, steps, each);
        self.v += steps;
        self.decoders.context += count * steps;
        (Micros(now.0 + each.0 * steps), Micros(now.0 + each.0 * (steps - 1)))
    }

    /// After a step that ended at `end`.
    pub(super) fn schedule_next(&mut self, end: Micros) {
        self.step_at = (self.running > 0 || !self.waiting.is_empty()).then_some(end);
    }

    /// Forgets step durations that no running request needs.
    pub(super) fn trim_log(&mut self) {
        if self.log.wants_trim() {
            let decoding = self.order.iter().filter(|&&entry| self.is_running(entry)).map(|&(_, key)| &self.live[key]);
            let oldest = decoding.filter(|live| live.state == State::Decoding).map(|live| live.joined_v).min();
            self.log.drop_before(oldest.unwrap_or(self.v));
        }
    }
}
