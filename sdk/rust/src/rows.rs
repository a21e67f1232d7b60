//! What policies see: rows of numbers, in the layout of the WIT records of the same names (and of the
//! structs in `sdk/c/blis_policy.h`). The host writes them, policies read them where they lie.
//!
//! All times are microseconds of simulated time. Names (classes, tenants, sessions, models …) are
//! numbers; equal names have equal numbers, 0 is "not said", and [`crate::text`] gives the text. Where
//! a number may be missing, the field holds a number that says so and a method returns an `Option`.

/// A request as the service knows it on arrival. How long its answer will be is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Request {
    /// The time of the decision.
    pub now_us: u64,
    /// When it reached the service.
    pub arrival_us: u64,
    /// When the client gives up; the largest number if never ([`Self::deadline`]).
    pub deadline_us: u64,
    /// Its number in the workload.
    pub id: u32,
    /// Prompt length, tokens.
    pub input_tokens: u32,
    /// The client's budget for the answer, tokens; the largest number if it gave none
    /// ([`Self::budget`]).
    pub max_output_tokens: u32,
    /// Full KV blocks of the prompt.
    pub prompt_blocks: u32,
    /// How many of them, from the first on, may equal blocks of other requests
    /// ([`crate::prompt_blocks`] names them).
    pub shared_blocks: u32,
    /// Tokens in a KV block.
    pub block_size: u32,
    /// Urgency of its service class: bigger is more urgent, below 0 may be shed.
    pub urgency: i32,
    /// Priority the client asks for, lower is more urgent; the smallest number if it left that open
    /// ([`Self::asked_priority`]).
    pub client_priority: i32,
    /// Service class.
    pub slo_class: u32,
    /// Who pays.
    pub tenant: u32,
    /// The conversation it belongs to.
    pub session: u32,
    /// The model asked for.
    pub model: u32,
    /// The load generator's client.
    pub client: u32,
    /// Requests of one group start with the same tokens.
    pub prefix_group: u32,
    /// Round in its session, from 0.
    pub round_index: u32,
    /// Requests of its tenant in flight. Kept up to date if the policy reads
    /// [`crate::Reads::IN_FLIGHT`].
    pub tenant_in_flight: u32,
}

impl Request {
    /// When the client gives up, if ever.
    #[must_use]
    pub fn deadline(&self) -> Option<u64> {
        (self.deadline_us != u64::MAX).then_some(self.deadline_us)
    }

    /// The client's budget for the answer, tokens, if it gave one.
    #[must_use]
    pub fn budget(&self) -> Option<u32> {
        (self.max_output_tokens != u32::MAX).then_some(self.max_output_tokens)
    }

    /// Priority the client asks for, if it does: lower is more urgent.
    #[must_use]
    pub fn asked_priority(&self) -> Option<i32> {
        (self.client_priority != i32::MIN).then_some(self.client_priority)
    }
}

/// Of no class and no tenant, without deadline, budget or priority; everything else 0.
impl Default for Request {
    fn default() -> Self {
        Self {
            now_us: 0,
            arrival_us: 0,
            deadline_us: u64::MAX,
            id: 0,
            input_tokens: 0,
            max_output_tokens: u32::MAX,
            prompt_blocks: 0,
            shared_blocks: 0,
            block_size: 0,
            urgency: 0,
            client_priority: i32::MIN,
            slo_class: 0,
            tenant: 0,
            session: 0,
            model: 0,
            client: 0,
            prefix_group: 0,
            round_index: 0,
            tenant_in_flight: 0,
        }
    }
}

/// How old the signals are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Ages {
    /// All columns of [`Instance`] but the next two.
    pub load_us: u64,
    /// [`Instance::cached_blocks`]. ([`Instance::in_flight`] is never stale.)
    pub cached_blocks_us: u64,
}

/// What is known of an instance at a decision. Columns that the policy does not read
/// ([`crate::Description::reads`]) hold what they happen to hold.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C)]
pub struct Instance {
    /// Used share of its KV blocks, 0 to 1.
    pub kv_utilization: f64,
    /// Share of its prefix-cache look-ups that hit since the start, 0 to 1.
    pub cache_hit_rate: f64,
    /// Requests thrown out of its batch since the start.
    pub preemption_count: u64,
    /// Requests in its wait queue.
    pub queue_depth: u32,
    /// Requests in its running batch.
    pub batch_size: u32,
    /// Requests handed to it and not yet answered, counted by the router itself.
    pub in_flight: u32,
    /// Leading blocks of this request's prompt in its prefix cache.
    pub cached_blocks: u32,
    /// Unused KV blocks.
    pub free_kv_blocks: u32,
    /// All its KV blocks.
    pub total_kv_blocks: u32,
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

/// A request that joins the wait queue of its instance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Queued {
    /// Priority on the instance: lower is more urgent.
    pub priority: i64,
    /// Its number in the order of joining: up from 1 for those that come, down from -1 for those
    /// thrown out of the batch.
    pub turn: i64,
    /// Tokens generated so far; more than 0 only after a preemption.
    pub generated_tokens: u32,
    /// Times it was thrown out of the batch.
    pub preemptions: u32,
}

/// A request of the running batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Running {
    /// When it reached the service.
    pub arrival_us: u64,
    /// When the client gives up; the largest number if never ([`Self::deadline`]).
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
    /// Times it was thrown out of the batch before.
    pub preemptions: u32,
    /// Urgency of its service class.
    pub urgency: i32,
    /// Service class.
    pub slo_class: u32,
    /// Who pays.
    pub tenant: u32,
    /// The conversation it belongs to.
    pub session: u32,
}

impl Running {
    /// When the client gives up, if ever.
    #[must_use]
    pub fn deadline(&self) -> Option<u64> {
        (self.deadline_us != u64::MAX).then_some(self.deadline_us)
    }
}

/// Without deadline; everything else 0.
impl Default for Running {
    fn default() -> Self {
        Self {
            arrival_us: 0,
            deadline_us: u64::MAX,
            priority: 0,
            id: 0,
            input_tokens: 0,
            computed_tokens: 0,
            generated_tokens: 0,
            kv_blocks: 0,
            preemptions: 0,
            urgency: 0,
            slo_class: 0,
            tenant: 0,
            session: 0,
        }
    }
}

/// The requests of one engine step, in sums. A request computes n tokens on top of its context; it is
/// in prefill while its context is shorter than its prompt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
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
#[repr(C)]
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
    /// Who pays.
    pub tenant: u32,
    /// The conversation it belongs to.
    pub session: u32,
    /// Requests of one group start with the same tokens.
    pub prefix_group: u32,
    /// The block, as [`crate::prompt_blocks`] names it; of requests: 0.
    pub block: u32,
}

/// What an [`Event`] is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum EventKind {
    /// A request was handed to an instance.
    Routed = 0,
    /// Its first token reached the client.
    FirstToken = 1,
    /// Its answer is complete.
    Completed = 2,
    /// It ended without: timed out, or dropped.
    Ended = 3,
    /// The service refused it.
    Rejected = 4,
    /// A block can be found in an instance's prefix cache.
    BlockStored = 5,
    /// It no longer can.
    BlockEvicted = 6,
}

impl Event {
    /// What happened; `None` for an event of a later version of the interface.
    #[must_use]
    pub fn what(&self) -> Option<EventKind> {
        Some(match self.kind {
            0 => EventKind::Routed,
            1 => EventKind::FirstToken,
            2 => EventKind::Completed,
            3 => EventKind::Ended,
            4 => EventKind::Rejected,
            5 => EventKind::BlockStored,
            6 => EventKind::BlockEvicted,
            _ => return None,
        })
    }

    /// The instance, if it reached one.
    #[must_use]
    pub fn instance(&self) -> Option<usize> {
        (self.instance != u32::MAX).then_some(self.instance as usize)
    }

    /// Time to first token, if there was one by now.
    #[must_use]
    pub fn ttft(&self) -> Option<u64> {
        (self.ttft_us != u64::MAX).then_some(self.ttft_us)
    }

    /// End-to-end latency, if it completed.
    #[must_use]
    pub fn e2e(&self) -> Option<u64> {
        (self.e2e_us != u64::MAX).then_some(self.e2e_us)
    }
}

/// Of kind 0, of no instance and without latencies; everything else 0.
impl Default for Event {
    fn default() -> Self {
        Self {
            at_us: 0,
            ttft_us: u64::MAX,
            e2e_us: u64::MAX,
            kind: 0,
            request: 0,
            instance: u32::MAX,
            input_tokens: 0,
            generated_tokens: 0,
            slo_class: 0,
            tenant: 0,
            session: 0,
            prefix_group: 0,
            block: 0,
        }
    }
}

/// The rare terms of a latency model, µs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
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

/// Steps of 1 µs or more, and nothing added.
impl Default for Constants {
    fn default() -> Self {
        Self { shortest_step: 1, output_token: 0, post_decode: 0, scheduling: 0, preemption: 0 }
    }
}

/// An instance, as it stays for the whole run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
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

/// The instances at a decision, of which there is at least one.
#[derive(Clone, Copy, Debug)]
pub struct Cluster<'a> {
    /// How old the signals are.
    pub ages: Ages,
    /// What is known of each.
    pub instances: &'a [Instance],
}

// Without gaps, as in the C header and in the WIT records.
const _: () = {
    assert!(size_of::<Request>() == 3 * 8 + 16 * 4);
    assert!(size_of::<Ages>() == 2 * 8);
    assert!(size_of::<Instance>() == 3 * 8 + 6 * 4);
    assert!(size_of::<Queued>() == 2 * 8 + 2 * 4);
    assert!(size_of::<Running>() == 3 * 8 + 10 * 4);
    assert!(size_of::<Step>() == 8 * 8);
    assert!(size_of::<Event>() == 3 * 8 + 10 * 4);
    assert!(size_of::<Constants>() == 5 * 8);
    assert!(size_of::<InstanceInfo>() == 4 * 4);
};
