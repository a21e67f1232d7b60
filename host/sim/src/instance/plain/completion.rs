//! The end of a step in the plain engine: tokens, and requests that are complete.

use super::{Plain, allocate};
use crate::kv::plain::AllocationRequest;
use crate::numbers::count;
use crate::observer::{Observer, SimEvent};
use crate::outcome::{Outcome, Status};
use crate::units::Micros;

impl Plain {
    /// Ends the requests that are finished, in batch order.
    pub(super) fn complete(&mut self, end: Micros, observer: &mut impl Observer) {
        let cap = self.config.length_cap();
        let mut i = 0;
        while i < self.running.len() {
            let live = &self.running[i];
            let status = if live.prefilling() {
                None
            } else if live.generated >= live.request.output_tokens {
                Some(Status::Completed)
            } else if live.computed + 1 >= cap {
                Some(Status::LengthCapped)
            } else {
                None
            };
            let Some(status) = status else {
                i += 1;
                // It stays in the batch for the rest of its prompt or its next token.
                continue;
            };
            if self.config.aborts_before(self.running[i].request.deadline, end) {
                i += 1;
                // Its deadline ends it before the next step is planned.
                continue;
            }
            self.report_completion(i, status, end, observer);
            if self.config.async_scheduling {
                self.running[i].draining = true;
                i += 1;
                // The next step was planned with it: its slot and KV blocks are free after one more plan.
                continue;
            }
            self.write_final_token(i, status);
            let live = self.running.remove(i);
            self.end_offloading(live.request.id, end);
            self.leaves_batch(live.request.tags.adapter, true);
            self.release_finished(&live.request);
            self.present -= 1;
        }
    }

    /// Allocates KV for the last output token, as BLIS does before it frees the request, although nothing reads it.
    pub(super) fn write_final_token(&mut self, index: usize, status: Status) {
        let live = &self.running[index];
        if !self.config.semantics.final_token_kv || status == Status::LengthCapped || live.request.output_tokens == 0 {
            // vLLM never writes KV of the last token, and BLIS not if the length cap ended the output.
            return;
        }
        let (start, end) = (live.computed, live.computed + 1);
        let allocation =
            AllocationRequest { prefill: false, ..AllocationRequest::of_prompt(&live.request, start, end) };
        if !allocate(&mut self.kv, &mut self.tiers, &allocation) {
            self.counters.kv_allocation_failures += 1;
        }
    }

    pub(super) fn report_completion(
        &mut self,
        index: usize,
        status: Status,
        end: Micros,
        observer: &mut impl Observer,
    ) {
        let live = &self.running[index];
        let itl_sum: Micros = live.itl.iter().copied().sum();
        let gaps = count(live.itl.len());
        let divisor = match status {
            Status::LengthCapped if self.config.semantics.capped_itl_divides_by_one_less => {
                gaps.saturating_sub(1).max(1)
            }
            _ => gaps.max(1),
        };
        let post = if live.request.output_tokens > 0 { self.config.latency.post_decode_time() } else { Micros::ZERO };
        for &gap in &live.itl {
            observer.record(&self.config.latencies(gap, 1));
        }
        observer.record(&SimEvent::Outcome(&Outcome {
            e2e: live.ttft.or(live.request.before_decode()).map(|ttft| ttft + itl_sum + post),
            itl_sum,
            itl_count: gaps,
            itl_mean_us: itl_sum.0 as f64 / f64::from(divisor),
            ..live.outcome(self.config.index, status).ended_at(end)
        }));
        self.last_step.finished.push(live.request.id);
        self.watchdog.progress();
        self.left_at = end;
    }
}
