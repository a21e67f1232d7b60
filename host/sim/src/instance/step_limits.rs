//! What a request may compute in one step, and the KV blocks that it must leave: of one form in both engines.

use super::config::InstanceConfig;
use crate::outcome::WaitReason;
use crate::policy::StepBudget;

/// Limits of the prefill in one step, less what was planned of it so far.
#[derive(Clone, Copy, Debug)]
pub(super) struct StepLimits {
    /// Prompt tokens that the step may still compute beside the token budget; none if no request may.
    tokens: u32,
    /// All that the step may compute of prompts, beside the token budget.
    pub most_tokens: u32,
    /// Requests that may still compute a part of their prompts.
    requests: u32,
    /// Maximum number of prefill tokens of one request.
    chunk: u32,
    /// Whether prefill is held back for the sake of the decoders (`prefill_schedule_interval`).
    pub holds_prefill: bool,
    /// Whether a prompt may be chunked over several steps.
    chunked: bool,
    /// KV blocks that stay free when a request enters a batch that is not empty.
    spare: u32,
    /// Whether a batching policy set them: with other counts it may set others.
    pub has_budget: bool,
}

impl StepLimits {
    /// Those of a step that starts with so many `requests`, running and waiting.
    #[inline]
    pub fn new(config: &InstanceConfig, requests: usize, holds_prefill: bool) -> Self {
        Self {
            tokens: u32::MAX,
            most_tokens: u32::MAX,
            requests: u32::MAX,
            chunk: config.prefill_limit(requests),
            holds_prefill,
            chunked: config.enable_chunked_prefill,
            spare: config.options.watermark_blocks,
            has_budget: false,
        }
    }

    /// The same within the `budget` of a batching policy.
    pub fn within(self, budget: StepBudget) -> Self {
        let StepBudget { prefill_tokens, prefill_requests, reserve } = budget;
        let tokens = if prefill_requests == 0 { 0 } else { prefill_tokens };
        Self {
            tokens,
            most_tokens: prefill_tokens,
            requests: prefill_requests,
            spare: self.spare.saturating_add(reserve),
            has_budget: true,
            ..self
        }
    }

    /// A request computes `tokens` of its prompt.
    #[inline]
    pub fn take(&mut self, tokens: u32) {
        if self.has_budget {
            self.requests = self.requests.saturating_sub(u32::from(tokens > 0));
            self.tokens = if self.requests == 0 { 0 } else { self.tokens.saturating_sub(tokens) };
        }
    }

    /// Most tokens of one further request.
    #[inline]
    fn chunk(&self) -> u32 {
        self.chunk.min(self.tokens)
    }

    /// Tokens that a running request computes that has `left` of its prompt to compute, with so much of the token `budget` left.
    #[inline]
    pub fn running(&self, left: u32, budget: u32) -> u32 {
        if self.holds_prefill { 0 } else { left.min(self.chunk()).min(budget) }
    }

    /// The same for a request that enters the batch, or why it waits.
    #[inline]
    pub fn entering(&self, left: u32, budget: u32) -> Result<u32, WaitReason> {
        let chunk = self.entering_chunk(left)?;
        if self.is_uncut(chunk, budget) {
            // Without chunked prefill vLLM stops here until the budget suffices for the whole prompt.
            return Err(WaitReason::UnsplitPrompt { num_tokens: chunk });
        }
        Ok(chunk.min(budget))
    }

    /// Tokens that it computes if the token budget suffices, or why it waits.
    #[inline]
    pub fn entering_chunk(&self, left: u32) -> Result<u32, WaitReason> {
        if self.holds_prefill && left > 1 {
            // This step leaves prefill out for the sake of the decoders (`prefill_schedule_interval`).
            return Err(WaitReason::PrefillInterval);
        }
        let chunk = left.min(self.chunk());
        if chunk == 0 && left > 0 {
            // The batching policy leaves nothing to it.
            return Err(WaitReason::TokenBudget);
        }
        Ok(chunk)
    }

    /// Whether `chunk` tokens exceed the token `budget`, and no part of them may be computed.
    #[inline]
    pub fn is_uncut(&self, chunk: u32, budget: u32) -> bool {
        !self.chunked && chunk > budget
    }

    /// KV blocks that must stay free when a request enters the batch, which has so many `running` ones.
    #[inline]
    pub fn spare_blocks(&self, running: usize) -> u32 {
        if running == 0 { 0 } else { self.spare }
    }
}
