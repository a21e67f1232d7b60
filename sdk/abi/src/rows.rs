//! What policies see: rows of numbers.
//!
//! Numbers only, largest first, no gaps: the memory of a row is what the WIT record and the C struct of the same name
//! prescribe, and rows are copied as they lie.
//!
//! All times are microseconds of simulated time. Names (classes, tenants, sessions, models …) are numbers; equal names
//! have equal numbers, 0 is "not said", and the host has the text. Where a number may be missing, the field holds a
//! number that says so and a method returns an `Option`.

#![allow(unsafe_code)] // in what `rows!` expands to

use crate::layout::{Row, number, rows, structs};
use crate::sets::EventKind;

/// No deadline, no latency.
pub const NONE_U64: u64 = u64::MAX;
/// No budget, no instance.
pub const NONE_U32: u32 = u32::MAX;
/// No client priority.
pub const NONE_I32: i32 = i32::MIN;

rows! {
    /// A request as the service knows it on arrival. The number of output tokens is not known.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Request {
        /// The time of the decision.
        pub now_us: u64,
        /// When it reached the service.
        pub arrival_us: u64,
        /// Deadline of the client; the largest number if there is none ([`Self::deadline`]).
        pub deadline_us: u64,
        /// Its number in the workload.
        pub id: u32,
        /// Prompt length, tokens.
        pub input_tokens: u32,
        /// Most output tokens that the client wants; the largest number if it set no limit
        /// ([`Self::budget`]).
        pub max_output_tokens: u32,
        /// Full KV blocks of the prompt.
        pub prompt_blocks: u32,
        /// How many of them, from the first on, may equal blocks of other requests
        /// (`prompt_blocks` of the host names them).
        pub shared_blocks: u32,
        /// Tokens in a KV block.
        pub block_size: u32,
        /// Priority of its service class: higher is more urgent, below 0 may be rejected under load.
        pub urgency: i32,
        /// Priority set by the client, lower is more urgent; the smallest number if it set none
        /// ([`Self::asked_priority`]).
        pub client_priority: i32,
        /// Service class.
        pub slo_class: u32,
        /// Tenant.
        pub tenant: u32,
        /// Session.
        pub session: u32,
        /// Model.
        pub model: u32,
        /// Client of the load generator.
        pub client: u32,
        /// Prefix group: its requests start with the same tokens.
        pub prefix_group: u32,
        /// Round in its session, from 0.
        pub round_index: u32,
        /// Requests of its tenant in flight. Kept up to date if the policy reads
        /// [`crate::Reads::IN_FLIGHT`].
        pub tenant_in_flight: u32,
    }

    /// How old the signals are.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Ages {
        /// All columns of [`Instance`] but the next two.
        pub load_us: u64,
        /// [`Instance::cached_blocks`]. ([`Instance::in_flight`] is never stale.)
        pub cached_blocks_us: u64,
    }

    /// What is known of an instance at a decision. Columns that the policy does not read
    /// ([`crate::Reads`]) are not kept up to date.
    #[derive(Clone, Copy, Debug, Default, PartialEq)]
    pub struct Instance {
        /// Used share of its KV blocks, 0 to 1.
        pub kv_utilization: f64,
        /// Share of its prefix-cache look-ups that hit since the start, 0 to 1.
        pub cache_hit_rate: f64,
        /// Preemptions since the start.
        pub preemption_count: u64,
        /// Requests in its wait queue.
        pub queue_depth: u32,
        /// Requests in its running batch.
        pub batch_size: u32,
        /// Requests routed to it and not yet finished, counted by the router itself.
        pub in_flight: u32,
        /// Leading blocks of this request's prompt in its prefix cache.
        pub cached_blocks: u32,
        /// Unused KV blocks.
        pub free_kv_blocks: u32,
        /// All its KV blocks.
        pub total_kv_blocks: u32,
    }

    /// A request that joins the wait queue of its instance.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Queued {
        /// Priority on the instance: lower is more urgent.
        pub priority: i64,
        /// Its number in the order of joining: up from 1 for new requests, down from -1 for preempted
        /// ones.
        pub turn: i64,
        /// Tokens generated so far; more than 0 only after a preemption.
        pub generated_tokens: u32,
        /// Times it was preempted.
        pub preemptions: u32,
    }

    /// A request of the running batch.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Running {
        /// When it reached the service.
        pub arrival_us: u64,
        /// Deadline of the client; the largest number if there is none ([`Self::deadline`]).
        pub deadline_us: u64,
        /// Priority on the instance: lower is more urgent.
        pub priority: i64,
        /// Its number in the workload.
        pub id: u32,
        /// Prompt length, tokens.
        pub input_tokens: u32,
        /// Tokens whose KV is computed.
        pub computed_tokens: u32,
        /// Tokens generated so far.
        pub generated_tokens: u32,
        /// KV blocks it holds, shared ones included.
        pub kv_blocks: u32,
        /// Times it was preempted before.
        pub preemptions: u32,
        /// Priority of its service class, higher is more urgent.
        pub urgency: i32,
        /// Service class.
        pub slo_class: u32,
        /// Tenant.
        pub tenant: u32,
        /// Session.
        pub session: u32,
    }

    /// The requests of one engine step, in sums. A request computes n tokens on top of its context; it is
    /// in prefill while its context is shorter than its prompt.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Step {
        /// Requests in prefill.
        pub prefill_requests: u64,
        /// Sum of n over prefill.
        pub prefill_tokens: u64,
        /// Sum of n · n over prefill.
        pub prefill_tokens_squared: u64,
        /// Sum of n · prompt over prefill.
        pub prefill_tokens_by_input: u64,
        /// Sum of n · context over prefill.
        pub prefill_tokens_by_context: u64,
        /// Sum of context over prefill.
        pub prefill_context: u64,
        /// Requests that decode, one token each.
        pub decode_requests: u64,
        /// Sum of context over decode.
        pub decode_context: u64,
    }

    /// Something that happened to a request, or to a prefix cache.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Event {
        /// When.
        pub at_us: u64,
        /// Time to first token; the largest number if there was none, or not yet ([`Self::ttft`]).
        pub ttft_us: u64,
        /// End-to-end latency; the largest number unless it completed ([`Self::e2e`]).
        pub e2e_us: u64,
        /// What, by number ([`Self::what`]).
        pub kind: u32,
        /// The request; of blocks: 0.
        pub request: u32,
        /// The instance; the largest number if it reached none ([`Self::instance`]).
        pub instance: u32,
        /// Prompt length, tokens.
        pub input_tokens: u32,
        /// Tokens generated.
        pub generated_tokens: u32,
        /// Service class.
        pub slo_class: u32,
        /// Tenant.
        pub tenant: u32,
        /// Session.
        pub session: u32,
        /// Prefix group: its requests start with the same tokens.
        pub prefix_group: u32,
        /// The block, as `prompt_blocks` of the host names it; of requests: 0.
        pub block: u32,
    }

    /// The rare terms of a latency model, µs.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Constants {
        /// No step that computes a token takes less; at least 1.
        pub shortest_step: u64,
        /// Added to TTFT and to every inter-token latency.
        pub output_token: u64,
        /// Added to the end-to-end latency.
        pub post_decode: u64,
        /// Added to the scheduling delay.
        pub scheduling: u64,
        /// Of a preemption; recorded only.
        pub preemption: u64,
    }

    /// An instance, as it stays for the whole run.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct InstanceInfo {
        /// Its number, from 0.
        pub id: u32,
        /// Most requests in its batch.
        pub max_num_seqs: u32,
        /// Its KV blocks.
        pub total_kv_blocks: u32,
        /// Tokens in one of them.
        pub block_size: u32,
    }
}

impl Request {
    /// Deadline of the client, if there is one.
    #[must_use]
    pub fn deadline(&self) -> Option<u64> {
        (self.deadline_us != NONE_U64).then_some(self.deadline_us)
    }

    /// Most output tokens that the client wants, if it set a limit.
    #[must_use]
    pub fn budget(&self) -> Option<u32> {
        (self.max_output_tokens != NONE_U32).then_some(self.max_output_tokens)
    }

    /// Priority set by the client, if any: lower is more urgent.
    #[must_use]
    pub fn asked_priority(&self) -> Option<i32> {
        (self.client_priority != NONE_I32).then_some(self.client_priority)
    }
}

/// Of no class and no tenant, without deadline, budget or priority; everything else 0.
impl Default for Request {
    fn default() -> Self {
        Self { deadline_us: NONE_U64, max_output_tokens: NONE_U32, client_priority: NONE_I32, ..Self::ZERO }
    }
}

impl Instance {
    /// Waiting, running and in flight, as the built-in policies add them up: a request on the
    /// instance counts twice, once fresh and once as old as the signals are. Reads
    /// [`crate::Reads::LOAD`] and [`crate::Reads::IN_FLIGHT`].
    #[must_use]
    #[inline]
    pub fn effective_load(&self) -> u64 {
        u64::from(self.queue_depth) + u64::from(self.batch_size) + u64::from(self.in_flight)
    }
}

impl Running {
    /// Deadline of the client, if there is one.
    #[must_use]
    pub fn deadline(&self) -> Option<u64> {
        (self.deadline_us != NONE_U64).then_some(self.deadline_us)
    }
}

/// Without deadline; everything else 0.
impl Default for Running {
    fn default() -> Self {
        Self { deadline_us: NONE_U64, ..Self::ZERO }
    }
}

impl Event {
    /// What happened; `None` for an event of a later version of the interface.
    #[must_use]
    pub fn what(&self) -> Option<EventKind> {
        EventKind::ALL.into_iter().find(|&kind| kind as u32 == self.kind)
    }

    /// The instance, if it reached one.
    #[must_use]
    pub fn instance(&self) -> Option<usize> {
        (self.instance != NONE_U32).then_some(self.instance as usize)
    }

    /// Time to first token, if there was one by now.
    #[must_use]
    pub fn ttft(&self) -> Option<u64> {
        (self.ttft_us != NONE_U64).then_some(self.ttft_us)
    }

    /// End-to-end latency, if it completed.
    #[must_use]
    pub fn e2e(&self) -> Option<u64> {
        (self.e2e_us != NONE_U64).then_some(self.e2e_us)
    }
}

/// Of kind 0, of no instance and without latencies; everything else 0.
impl Default for Event {
    fn default() -> Self {
        Self { ttft_us: NONE_U64, e2e_us: NONE_U64, instance: NONE_U32, ..Self::ZERO }
    }
}

/// Steps of 1 µs or more, and nothing added.
impl Default for Constants {
    fn default() -> Self {
        Self { shortest_step: 1, ..Self::ZERO }
    }
}
