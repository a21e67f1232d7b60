//! The checks that a request passes before it joins the waiting queue, and other limits that both engines apply.
//!
//! Source: BLIS f90a1e3a, `EnqueueRequest`; the vLLM equivalents are spread over its API server and start-up checks.

use super::config::{InstanceConfig, KvGroups};
use crate::kv::pages::{StartLimits, pages_of_request};
use crate::outcome::DropReason;
use crate::request::Request;

impl InstanceConfig {
    /// The reason why `request` can never be served, or `None`. The checks are in BLIS's order.
    #[inline]
    pub(super) fn refuses(&self, request: &Request) -> Option<DropReason> {
        let input = u64::from(request.input_tokens);
        if let Some(max_model_len) = self.max_model_len.map(u64::from) {
            if input >= max_model_len {
                // vLLM's API server rejects a prompt that leaves no room for a token within `max_model_len`.
                return Some(DropReason::PromptTooLong);
            }
            let budget = request.max_output_tokens.map_or(0, u64::from);
            if self.semantics.drop_over_budget && budget > 0 && input + budget > max_model_len {
                // BLIS counts `max_tokens` here; vLLM's scheduler ends the output at the limit.
                return Some(DropReason::BudgetTooLong);
            }
        }
        if !self.fits(input) {
            // Its prompt does not fit an empty KV cache: it would hold back the queue for ever.
            return Some(DropReason::KvTooSmall);
        }
        if self.semantics.refuse_unfinishable {
            // KV of the last output token is never written.
            let needed = input + u64::from(request.output_tokens.max(1)) - 1;
            let most = self.max_model_len.map_or(needed, |limit| needed.min(u64::from(limit) - 1));
            if !self.fits(most) {
                // Its last tokens never find a KV block: BLIS preempts it for ever, vLLM does not start.
                return Some(DropReason::KvTooSmall);
            }
            // A preempted request recomputes its prompt and generated tokens in one chunk.
            if !self.enable_chunked_prefill && most > u64::from(self.max_num_batched_tokens) {
                return Some(DropReason::PromptTooLong);
            }
        }
        None
    }

    /// Whether KV of `tokens` tokens of one request fits the empty cache.
    #[inline]
    fn fits(&self, tokens: u64) -> bool {
        match &self.kv_groups {
            None => tokens <= u64::from(self.total_kv_blocks) * u64::from(self.block_size),
            Some(groups) => self.fits_pages(groups, tokens),
        }
    }

    /// The same of a model with KV groups.
    #[cold]
    fn fits_pages(&self, groups: &KvGroups, tokens: u64) -> bool {
        let settings = self.pool_settings(groups);
        let limits = StartLimits {
            max_model_len: u32::try_from(tokens).unwrap_or(u32::MAX),
            tokens_in_flight: settings.tokens_in_flight,
        };
        pages_of_request(&groups.layout, limits) <= u64::from(self.total_kv_blocks)
    }

    /// Maximum number of prefill tokens of one request in a step that starts with so many `requests`, running and
    /// waiting.
    pub(super) fn prefill_limit(&self, requests: usize) -> u32 {
        match self.long_prefill_token_threshold {
            0 => u32::MAX,
            _ if requests <= 1 && self.semantics.lone_prefill_ignores_threshold => u32::MAX,
            threshold if self.options.adaptive_prefill_threshold => {
                let requests = u32::try_from(requests).unwrap_or(u32::MAX).max(1);
                threshold.max(self.max_num_batched_tokens / requests)
            }
            threshold => threshold,
        }
    }

    /// How many of the first `allocated` tokens of a request are generated, if its prompt, with what it generated before
    /// a preemption, has `target` tokens: with asynchronous scheduling, the last token of a decoding request is not.
    pub(super) fn known_tokens(&self, allocated: u32, target: u32) -> u32 {
        if self.async_scheduling { allocated.saturating_sub(1).max(allocated.min(target)) } else { allocated }
    }

    /// Number of requests at which the running batch is full.
    pub(super) fn batch_limit(&self) -> u32 {
        self.options.max_num_active_seqs.map_or(self.max_num_seqs, |active| active.min(self.max_num_seqs))
    }

    /// Whether the API server refuses a further request, given the number of unfinished ones and, if that is needed, the
    /// prompt tokens of those without a first token. As in vLLM 0.33, parts of these prompts that are computed count.
    pub(super) fn server_refuses(&self, unfinished: usize, prompt_tokens: impl FnOnce() -> u64) -> bool {
        self.options.max_num_queued_reqs.is_some_and(|limit| unfinished >= limit as usize)
            || self.options.max_num_queued_tokens.is_some_and(|limit| prompt_tokens() >= limit)
    }

    /// Whether the API server may refuse requests because of those that it has.
    pub(super) fn server_is_limited(&self) -> bool {
        self.options.max_num_queued_reqs.is_some() || self.options.max_num_queued_tokens.is_some()
    }

    /// Length, prompt included, at which `max_model_len` ends the generation of a request.
    pub(super) fn length_cap(&self) -> u32 {
        self.max_model_len.unwrap_or(u32::MAX)
    }
}
