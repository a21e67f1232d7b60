//! The effect of a step: tokens computed, tokens generated, requests finished.

use super::Fast;
use super::arena::RequestKey;
use super::live::{LiveRequest, RequestState};
use super::page_cycle::DecodeMoment;
use super::plan::StepPlan;
use crate::instance::config::InstanceConfig;
use crate::numbers::{count, narrow};
use crate::observer::{Interests, Observer, SimEvent};
use crate::outcome::{FirstToken, Outcome, Status};
use crate::units::Micros;

impl Fast {
    /// Executes the step `now..end`.
    #[inline(always)]
    pub(super) fn execute(&mut self, now: Micros, end: Micros, plan: &StepPlan, observer: &mut impl Observer) {
        self.decode(now, end, plan, observer);
        if !self.prefilling.is_empty() {
            self.finish_prefills(end, observer);
        }
        self.complete_decoders(end, observer);
    }

    /// Generates one token for each decoder, except those left out.
    #[inline(always)]
    fn decode(&mut self, now: Micros, end: Micros, plan: &StepPlan, observer: &mut impl Observer) {
        let (each, per_token) = (end - now, self.per_token);
        let participants = self.decoders.count - count(plan.left_out.len());
        let waited = if self.stalled.is_empty() { 0 } else { self.end_waits(end, plan) };
        if participants > waited {
            observer.record(&self.config.latencies(each + per_token, u64::from(participants - waited)));
        }
        for &key in &plan.left_out {
            self.leave_out(key, now, end, observer);
        }
        self.log.push(1, each);
        self.v += 1;
        self.decoders.context += u64::from(participants);
        for &key in &plan.left_out {
            let live = &self.live[key];
            let computed = live.computed_at(self.v);
            self.decoders.delay(key, computed, self.v, live.finish_v);
            self.track(key, computed, self.v);
            if self.is_paged() {
                self.note_event(key, DecodeMoment { computed, v: self.v }, 0); // it computed nothing in the last step
            }
        }
    }

    /// Ends the waits of decoders that were left out before and get a token now: their gap includes the wait, if the
    /// semantics count waits. Returns the number of such gaps.
    fn end_waits(&mut self, end: Micros, plan: &StepPlan) -> u32 {
        let per_token = self.per_token;
        let mut waited = 0;
        for key in std::mem::take(&mut self.stalled) {
            if plan.left_out.contains(&key) {
                self.stalled.push(key);
                // It waits on: the gap ends with the step that generates its next token.
                continue;
            }
            let live = &mut self.live[key];
            live.stalled = false;
            if !self.config.semantics.itl_spans_waits {
                continue; // its next gap is the step alone, as for all decoders
            }
            self.rares.state(live).resumes(end, per_token);
            live.generated += 1;
            live.joined_v = self.v + 1;
            live.joined_at = end;
            waited += 1;
        }
        waited
    }

    /// Leaves `key` out of the step `now..end` with number `self.v`.
    fn leave_out(&mut self, key: RequestKey, now: Micros, end: Micros, observer: &mut impl Observer) {
        self.close_period(key, now, observer);
        self.stop_counting(key);
        let live = &mut self.live[key];
        live.base -= 1;
        live.finish_v += 1;
        live.joined_v = self.v + 1;
        live.joined_at = end;
        if !live.stalled {
            live.stalled = true;
            self.stalled.push(key);
        }
    }

    /// Retracts the inter-token latencies of `key` since it joined the step log, and stores them with the request.
    fn close_period(&mut self, key: RequestKey, now: Micros, observer: &mut impl Observer) {
        let per_token = self.per_token;
        let live = &mut self.live[key];
        if !live.stalled {
            self.rares.state(live).last_token = now;
        }
        if live.joined_v >= self.v {
            // It has generated no token since it joined the step log: no latency is to be retracted.
            return;
        }
        for (each, steps) in self.log.between(live.joined_v, self.v) {
            observer.record(&SimEvent::InterTokenLatencyRetracted {
                instance: self.config.index,
                gap: each + per_token,
                count: steps,
            });
            self.rares.state(live).saved.push((each + per_token, narrow(steps)));
        }
        live.generated += narrow(self.v - live.joined_v);
        live.joined_v = self.v;
    }

    /// Removes `key`, which has not finished, from the decoders. It stays in the batch.
    pub(super) fn leave_decoders(&mut self, key: RequestKey, now: Micros, observer: &mut impl Observer) {
        self.close_period(key, now, observer);
        self.stop_counting(key);
        let live = &mut self.live[key];
        live.computed = live.computed_at(self.v);
        live.state = RequestState::Prefilling;
        self.decoders.leave(live.computed, self.v, self.config.sampling(&live.request));
        if std::mem::take(&mut live.stalled) {
            self.stalled.retain(|&other| other != key);
        }
    }

    /// Computes the prompt tokens of the step; a prompt that is complete generates a token, which may finish the request.
    #[inline(always)]
    fn finish_prefills(&mut self, end: Micros, observer: &mut impl Observer) {
        let per_token = self.per_token;
        let first_tokens = observer.interests().contains(Interests::FIRST_TOKENS);
        let mut kept = 0;
        for at in 0..self.prefilling.len() {
            let key = self.prefilling[at];
            if self.is_paged() {
                self.chunk_in_flight(key);
            }
            let live = &mut self.live[key];
            if live.preemptions > 0 {
                // Tokens that it had before a preemption, as far as its prompt goes: what BLIS generates anew is no repetition.
                let known = self.rares.state(live).furthest.min(live.target).saturating_sub(live.computed);
                self.counters.recomputed_tokens += u64::from(known.min(live.num_new));
            }
            live.computed += std::mem::take(&mut live.num_new);
            if live.computed < live.target {
                self.prefilling[kept] = key;
                kept += 1;
                // Only the last chunk of a chunked prefill generates a token.
                continue;
            }
            if live.generated == 0 {
                let out = end + per_token + self.config.latency.first_token_time();
                let ttft = out - live.request.arrival;
                live.set_ttft(ttft);
                if first_tokens {
                    observer.record(&SimEvent::FirstToken(&FirstToken::new(&live.request, self.config.index, ttft)));
                }
            } else {
                if let Some(first) = live.first_of_decode(self.config.index, end + per_token)
                    && first_tokens
                    && self.rares.saved(live).is_empty()
                {
                    observer.record(&SimEvent::FirstToken(&first));
                }
                self.rares.state(live).resumes(end, per_token);
            }
            live.generated += u32::from(live.request.output_tokens > 0);
            let room = self.config.length_cap().saturating_sub(live.computed + 1);
            let left = live.request.output_tokens.saturating_sub(live.generated).min(room);
            if left == 0 {
                self.finished.push(key);
            } else {
                self.join_decoders(key, left, end);
            }
        }
        self.prefilling.truncate(kept);
    }

    /// Adds `key` to the decoders from the next step on, for `left` tokens.
    #[inline]
    fn join_decoders(&mut self, key: RequestKey, left: u32, end: Micros) {
        let live = &mut self.live[key];
        live.state = RequestState::Decoding;
        live.base = i64::from(live.computed) - self.v as i64;
        live.joined_v = self.v;
        live.joined_at = end;
        live.finish_v = self.v + u64::from(left);
        let (computed, finish_v) = (live.computed, live.finish_v);
        let sampling = self.config.sampling(&live.request);
        self.decoders.join(key, computed, self.v, finish_v, sampling);
        if live.holding.pages.is_some() {
            self.decodes_with_pages(key);
        }
        self.track(key, computed, self.v);
    }

    /// Tracks the blocks that `key` will fill, if other requests may share them.
    #[inline]
    pub(super) fn track(&mut self, key: RequestKey, computed: u32, v: u64) {
        if self.config.fills_shared_blocks(&self.live[key]) {
            self.decoders.track(key, computed, v, self.config.async_scheduling);
        }
    }

    /// Ends the requests that are finished, and the decoders that generated their last token when the clock reached
    /// `self.v`: in most steps none.
    #[inline]
    pub(super) fn complete_decoders(&mut self, end: Micros, observer: &mut impl Observer) {
        if self.decoders.soonest_finish() <= self.v {
            self.pop_finished();
        }
        if !self.finished.is_empty() {
            self.complete_all(end, observer);
        }
    }

    /// Adds the decoders that have generated their last token to those that are finished.
    fn pop_finished(&mut self) {
        let Self { finished, decoders, live, v, .. } = self;
        let before = finished.len();
        while let Some(slot) = decoders.pop_finished(*v, finished.len() - before, live) {
            finished.extend(live.at(slot).map(|(key, _)| key));
        }
    }

    /// Ends the requests that are finished, in batch order.
    fn complete_all(&mut self, end: Micros, observer: &mut impl Observer) {
        let mut finished = std::mem::take(&mut self.finished);
        if finished.len() > 1 {
            finished.sort_unstable_by_key(|&key| self.live[key].seq);
            finished.dedup(); // a request that left and joined again may be in the finish heap twice
        }
        for key in finished.drain(..) {
            self.complete(key, end, observer);
        }
        self.finished = finished; // to be filled again without an allocation
    }

    fn complete(&mut self, key: RequestKey, end: Micros, observer: &mut impl Observer) {
        let v = self.v;
        let live = &mut self.live[key];
        if self.config.aborts_before(live.request.deadline, end) {
            if live.state == RequestState::Prefilling {
                self.prefilling.push(key);
            }
            // Its deadline ends it before the next step is planned.
            return;
        }
        let (generated, computed) = (live.generated_at(v), live.computed_at(v));
        let capped = generated < live.request.output_tokens;
        let status = if capped { Status::LengthCapped } else { Status::Completed };
        let saved = self.rares.saved(live);
        let mut outcome = self.config.completion(live, saved, status, v, end, self.per_token);
        self.rares.add_loads(live, &mut outcome);
        for &(gap, count) in saved {
            observer.record(&self.config.latencies(gap, u64::from(count)));
        }
        observer.record(&SimEvent::Outcome(&outcome));
        if live.state == RequestState::Decoding {
            self.decoders.leave(computed, v, self.config.sampling(&live.request));
        }
        live.computed = computed;
        live.generated = generated;
        live.state = RequestState::Draining;
        if live.deadline != 0 && self.deadlines.forget(live.deadline) {
            self.next_deadline = self.deadlines.next();
        }
        if live.holding.pages.is_some() {
            self.stop_counting(key);
        }
        self.watchdog.progress();
        self.left_at = end;
        if let Some(record) = &mut self.record {
            record.finished.push(self.live[key].request.id);
        }
        if self.config.async_scheduling {
            self.draining.push(key);
            // The next step was planned with it: its slot and KV blocks are free after one more plan.
            return;
        }
        let allocated = self.write_final_token(key, capped);
        self.leave_batch(key, true);
        self.release_finished(key, allocated, allocated, end);
        if let Some(live) = self.live.remove(key) {
            self.rares.forget(&live);
        }
    }

    /// Allocates KV for the last output token, as BLIS does, although nothing reads it. Returns the tokens with KV.
    fn write_final_token(&mut self, key: RequestKey, capped: bool) -> u32 {
        let live = &mut self.live[key];
        let allocated = live.computed;
        if !self.config.semantics.final_token_kv || capped || live.request.output_tokens == 0 {
            // vLLM never writes KV of the last token, and BLIS not if the length cap ended the output.
            return allocated;
        }
        if allocated.is_multiple_of(self.config.block_size) {
            if self.kv.free_blocks() == 0 {
                self.counters.kv_allocation_failures += 1;
                // BLIS counts the failure and ends the request all the same, because nothing reads this KV.
                return allocated;
            }
            self.kv.take(1);
        }
        if let Some(index) = self.config.shared_block_filled(live, allocated) {
            self.kv.filled(&mut live.holding, &live.keys, index);
        }
        allocated + 1
    }
}

impl InstanceConfig {
    /// Whether blocks that `live` fills from now on may be shared with other requests.
    fn fills_shared_blocks(&self, live: &LiveRequest) -> bool {
        let unhashed = self.block_size == 1 && self.semantics.skip_one_token_decode_blocks;
        self.enable_prefix_caching
            && !unhashed
            && live.holding.skipped == 0
            && live.holding.pages.is_none()
            && live.holding.keyed_blocks() < live.keys.shared()
    }

    /// The index of the shared block that can be hashed when token number `token` is decoded.
    pub(super) fn shared_block_filled(&self, live: &LiveRequest, token: u32) -> Option<u32> {
        // With asynchronous scheduling, the token itself is still being generated when its position is planned.
        let known = if self.async_scheduling { token } else { token + 1 };
        let next = live.holding.keyed_blocks();
        (known == (next + 1) * self.block_size && self.fills_shared_blocks(live)).then_some(next)
    }

    /// The outcome of a request that generated its last token at `end`, virtual time `v`.
    fn completion(
        &self,
        live: &LiveRequest,
        saved: &[(Micros, u32)],
        status: Status,
        v: u64,
        end: Micros,
        per_token: Micros,
    ) -> Outcome {
        let logged = if live.state == RequestState::Decoding { v.saturating_sub(live.joined_v) } else { 0 };
        let mut itl_sum: Micros = saved.iter().map(|&(gap, count)| Micros(gap.0 * u64::from(count))).sum();
        let mut gaps: u32 = saved.iter().map(|&(_, count)| count).sum();
        if logged > 0 {
            itl_sum += end - live.joined_at + Micros(per_token.0 * logged);
            gaps += narrow(logged);
        }
        let divisor = match status {
            Status::LengthCapped if self.semantics.capped_itl_divides_by_one_less => gaps.saturating_sub(1).max(1),
            _ => gaps.max(1),
        };
        let post = if live.request.output_tokens > 0 { self.latency.post_decode_time() } else { Micros::ZERO };
        Outcome {
            e2e: live.ttft().or(live.request.before_decode()).map(|ttft| ttft + itl_sum + post),
            itl_sum,
            itl_count: gaps,
            itl_mean_us: itl_sum.0 as f64 / f64::from(divisor),
            ..live.outcome(self.index, live.generated_at(v), status).ended_at(end)
        }
    }
}
