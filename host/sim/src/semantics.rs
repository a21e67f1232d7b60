//! Where the real vLLM scheduler and the published BLIS differ: one named field each.
//!
//! [`Semantics::VLLM`] is the default: what vLLM 0.15 does. [`Semantics::BLIS`] reproduces BLIS
//! (commit f90a1e3a) to the microsecond, quirks included. Both engines read the same fields.

/// Every difference, in the order in which a request meets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Semantics {
    /// Refuse a request whose prompt plus budget exceeds `max_model_len`. vLLM's scheduler admits
    /// it and stops the answer at the limit.
    pub drop_over_budget: bool,
    /// Refuse on arrival what can never finish: prompt and answer need more KV than there is, or
    /// an unchunked prompt exceeds the token budget. vLLM refuses to start in such a
    /// configuration; BLIS admits the request and preempts it for ever.
    pub refuse_unfinishable: bool,
    /// A prompt found whole in the prefix cache costs nothing and does not claim its blocks, so
    /// they can be evicted under it. vLLM always recomputes the last block.
    pub full_hit_is_free: bool,
    /// The step that admits a request sees a context of 0 even if a prefix was cached: BLIS
    /// writes the progress after it asked for the step time.
    pub hit_context_is_zero: bool,
    /// A preempted request forgets what it generated. vLLM keeps the tokens and recomputes their
    /// KV as part of the prompt.
    pub preemption_restarts: bool,
    /// Among full ties of (priority, arrival), preempt the request admitted last; vLLM takes the
    /// one admitted first.
    pub preempt_last_of_ties: bool,
    /// Of several blocks with the same content only the latest can be found, and evicting any of
    /// them hides it. vLLM keeps them all and finds the oldest.
    pub forget_twins: bool,
    /// A block that starts during decode is hashed only when a later token fills it, so with
    /// one-token blocks never.
    pub skip_one_token_decode_blocks: bool,
    /// Completion allocates KV for the last output token, which nothing will read. The failure
    /// of that allocation is counted.
    pub final_token_kv: bool,
    /// An inter-token latency spans the wait since the previous token (steps that left the
    /// request out, a preemption). BLIS counts the step that made the token and nothing else.
    pub itl_spans_waits: bool,
    /// The mean inter-token latency of a length-capped request divides by one too few.
    pub capped_itl_divides_by_one_less: bool,
    /// A router counts a request as answered when the step starts that ends it. A real one hears
    /// of it when the answer is complete.
    pub answered_at_step_start: bool,
    /// Signals are 0 until they are first read, free KV blocks too. They start as idle instances
    /// are.
    pub signals_start_at_zero: bool,
}

impl Semantics {
    /// The real scheduler: vLLM 0.15.1, v1 engine.
    pub const VLLM: Self = Self {
        drop_over_budget: false,
        refuse_unfinishable: true,
        full_hit_is_free: false,
        hit_context_is_zero: false,
        preemption_restarts: false,
        preempt_last_of_ties: false,
        forget_twins: false,
        skip_one_token_decode_blocks: false,
        final_token_kv: false,
        itl_spans_waits: true,
        capped_itl_divides_by_one_less: false,
        answered_at_step_start: false,
        signals_start_at_zero: false,
    };

    /// The published simulator: inference-sim, commit f90a1e3a.
    pub const BLIS: Self = Self {
        drop_over_budget: true,
        refuse_unfinishable: false,
        full_hit_is_free: true,
        hit_context_is_zero: true,
        preemption_restarts: true,
        preempt_last_of_ties: true,
        forget_twins: true,
        skip_one_token_decode_blocks: true,
        final_token_kv: true,
        itl_spans_waits: false,
        capped_itl_divides_by_one_less: true,
        answered_at_step_start: true,
        signals_start_at_zero: true,
    };
}

impl Default for Semantics {
    fn default() -> Self {
        Self::VLLM
    }
}
