//! The checks that a request passes before it joins the waiting queue, and other limits that both engines apply.
//!
//! Source: BLIS f90a1e3a, `EnqueueRequest`; the vLLM equivalents are spread over its API server and start-up checks.

use super::InstanceConfig;
use crate::outcome::DropReason;
use crate::request::Request;

impl InstanceConfig {
    /// The reason why `request` can never be served, or `None`. The checks are in BLIS's order.
    pub(super) fn refuses(&self, request: &Request) -> Option<DropReason> {
        let input = u64::from(request.input_tokens);
        if let Some(max_model_len) = self.max_model_len.map(u64::from) {
            if input >= max_model_len {
                return Some(DropReason::PromptTooLong);
            }
            let budget = request.max_output_tokens.map_or(0, u64::from);
            if self.semantics.drop_over_budget && budget > 0 && input + budget > max_model_len {
                return Some(DropReason::BudgetTooLong);
            }
        }
        let block_size = u64::from(self.block_size);
        if input.div_ceil(block_size) > u64::from(self.total_kv_blocks) {
            return Some(DropReason::KvTooSmall);
        }
        if self.semantics.refuse_unfinishable {
            // KV of the last output token is never written.
            let needed = input + u64::from(request.output_tokens.max(1)) - 1;
            let most = self.max_model_len.map_or(needed, |limit| needed.min(u64::from(limit) - 1));
            if most.div_ceil(block_size) > u64::from(self.total_kv_blocks) {
                return Some(DropReason::KvTooSmall);
            }
            // A preempted request recomputes its prompt and generated tokens in one chunk.
            if !self.enable_chunked_prefill && most > u64::from(self.max_num_batched_tokens) {
                return Some(DropReason::PromptTooLong);
            }
        }
        None
    }

    /// The next chunk of `left` prompt tokens: at most `long_prefill_token_threshold`.
    pub(super) fn chunk(&self, left: u32) -> u32 {
        match self.long_prefill_token_threshold {
            0 => left,
            threshold => left.min(threshold),
        }
    }

    /// Length, prompt included, at which `max_model_len` ends the generation of a request.
    pub(super) fn length_cap(&self) -> u32 {
        self.max_model_len.unwrap_or(u32::MAX)
    }
}
