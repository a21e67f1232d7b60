//! The differences between versions of the real vLLM scheduler and the published BLIS: one named field each.
//!
//! [`Semantics::VLLM_0_33`] is the default. [`Semantics::VLLM_0_15`] is the behaviour of vLLM 0.15.1, and
//! [`Semantics::BLIS`] reproduces BLIS (commit f90a1e3a) to the microsecond, quirks included. Both engines read the
//! same fields.

/// Every difference, in the order in which it affects a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Semantics {
    /// Refuse a request if its prompt plus `max_tokens` exceeds `max_model_len`. vLLM's scheduler admits it and ends
    /// the output at the limit.
    pub drop_over_budget: bool,
    /// Refuse on arrival a request that can never finish: its prompt and output need more KV blocks than there are, or
    /// its unchunked prompt exceeds the token budget. vLLM refuses to start in such a configuration; BLIS admits the
    /// request and preempts it for ever.
    pub refuse_unfinishable: bool,
    /// A prompt that is found completely in the prefix cache costs nothing and does not claim its blocks, so they can
    /// be evicted while it runs. vLLM always recomputes the last block.
    pub full_hit_is_free: bool,
    /// The step that admits a request sees a context of 0 even if a prefix was cached: BLIS updates the progress after
    /// it has computed the step time.
    pub hit_context_is_zero: bool,
    /// A preempted request loses its generated tokens. vLLM keeps the tokens and recomputes their KV as part of the
    /// prompt.
    pub preemption_restarts: bool,
    /// Among requests of equal priority and arrival, preempt the one admitted last; vLLM preempts the one admitted
    /// first.
    pub preempt_last_of_ties: bool,
    /// Of several blocks with the same content only the latest can be found, and evicting any of them hides it. vLLM
    /// keeps them all and finds the oldest.
    pub forget_duplicate_blocks: bool,
    /// A block that starts during decode is hashed only when a later token fills it; with one-token blocks that never
    /// happens.
    pub skip_one_token_decode_blocks: bool,
    /// Completion allocates KV for the last output token, although nothing reads it. A failure of that allocation is
    /// counted.
    pub final_token_kv: bool,
    /// An inter-token latency includes the time in which the request was not scheduled since its previous token (steps
    /// without it, a preemption). BLIS counts only the step that generated the token.
    pub itl_spans_waits: bool,
    /// The mean inter-token latency of a length-capped request divides by one too few.
    pub capped_itl_divides_by_one_less: bool,
    /// Freed blocks without a hash (the partial last one; all, if prefix caching is off) are reused first; those with a
    /// hash join the end of the queue of free blocks. vLLM 0.15 appends them all, so that they push out cached ones.
    pub free_unhashed_first: bool,
    /// A request that is its own preemption victim does not end the pass over the running requests: those behind it are
    /// scheduled, too.
    pub self_preemption_continues: bool,
    /// If a request is preempted that stands in front of the requester and has no tokens in this step (it has finished,
    /// under asynchronous scheduling), the pass skips the request behind the requester: a fault of vLLM 0.15.
    pub idle_victim_skips_next: bool,
    /// `long_prefill_token_threshold` does not apply while there is one request, running or waiting.
    pub lone_prefill_ignores_threshold: bool,
    /// The router counts a request as completed when its last step starts. A real router counts it when the output is
    /// complete.
    pub completed_at_step_start: bool,
    /// An instance whose step ends all its requests is idle from the start of that step: a request that arrives before
    /// the step's end is scheduled at once. A real engine schedules it when the step has ended. (Asynchronous scheduling
    /// keeps the requests for one more pass, so that the question does not arise.)
    pub idle_at_step_start: bool,
    /// All signals, free KV blocks included, are 0 until they are first read. Otherwise they start with the values of
    /// an idle instance.
    pub signals_start_at_zero: bool,
    /// A LoRA adapter is loaded between steps, one at a time, for the head of the queue, which holds back all requests
    /// behind it; a request keeps its adapter from its first admission to its end. vLLM loads within the step that
    /// introduces the adapter, passes over requests without a slot, and keeps the adapters of running requests only.
    pub adapters_load_ahead: bool,
    /// With prefill apart from decode, the decode instance reserves KV blocks for the whole prompt when the prefill ends,
    /// whatever it has in its prefix cache, and a request for which there are none is dropped. The blocks of the prefill
    /// instance are free from then on, and the decode part enters the batch with a token of its own. In vLLM the request waits
    /// on the decode instance until there are blocks, those on the prefill instance stay until they are read, and the last
    /// token of the prompt is computed again.
    pub reserves_before_decode: bool,
    /// The prefix-cache hit rate is of KV blocks: each that is claimed or allocated counts as looked up, those of outputs and
    /// of tokens that are computed again included. vLLM counts the tokens of a request once, when it first enters the batch, and
    /// those of preempted requests separately.
    pub hit_rate_of_blocks: bool,
    /// The router sees blocks that a step stores or evicts as soon as the step is planned. vLLM publishes them when a step has
    /// ended.
    pub cache_events_at_step_start: bool,
}

impl Semantics {
    /// The real scheduler: vLLM 0.33.0.
    pub const VLLM_0_33: Self = Self {
        free_unhashed_first: true,
        self_preemption_continues: true,
        idle_victim_skips_next: false,
        lone_prefill_ignores_threshold: true,
        ..Self::VLLM_0_15
    };

    /// The real scheduler: vLLM 0.15.1, v1 engine.
    pub const VLLM_0_15: Self = Self {
        drop_over_budget: false,
        refuse_unfinishable: true,
        full_hit_is_free: false,
        hit_context_is_zero: false,
        preemption_restarts: false,
        preempt_last_of_ties: false,
        forget_duplicate_blocks: false,
        skip_one_token_decode_blocks: false,
        final_token_kv: false,
        itl_spans_waits: true,
        capped_itl_divides_by_one_less: false,
        free_unhashed_first: false,
        self_preemption_continues: false,
        idle_victim_skips_next: true,
        lone_prefill_ignores_threshold: false,
        completed_at_step_start: false,
        idle_at_step_start: false,
        signals_start_at_zero: false,
        adapters_load_ahead: false,
        reserves_before_decode: false,
        hit_rate_of_blocks: false,
        cache_events_at_step_start: false,
    };

    /// The published simulator: inference-sim, commit f90a1e3a.
    pub const BLIS: Self = Self {
        drop_over_budget: true,
        refuse_unfinishable: false,
        full_hit_is_free: true,
        hit_context_is_zero: true,
        preemption_restarts: true,
        preempt_last_of_ties: true,
        forget_duplicate_blocks: true,
        skip_one_token_decode_blocks: true,
        final_token_kv: true,
        itl_spans_waits: false,
        capped_itl_divides_by_one_less: true,
        free_unhashed_first: false,
        self_preemption_continues: false,
        idle_victim_skips_next: false,
        lone_prefill_ignores_threshold: false,
        completed_at_step_start: true,
        idle_at_step_start: true,
        signals_start_at_zero: true,
        adapters_load_ahead: true,
        reserves_before_decode: true,
        hit_rate_of_blocks: true,
        cache_events_at_step_start: true,
    };
}

impl Default for Semantics {
    fn default() -> Self {
        Self::VLLM_0_33
    }
}
