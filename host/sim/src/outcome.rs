//! The outcome of a request, and the decisions about it.
//!
//! The engine reports every request exactly once, when it ends (or when the simulation does), to an
//! [`Observer`](crate::observer::Observer), and then forgets it: the state of the engine stays proportional to the
//! number of live requests.

use crate::ids::{InstanceIndex, RequestId};
use crate::offload::SecondaryCounters;
use crate::policy::flow::{Band, Flow, InFlight};
use crate::policy::kv_cache::{CacheTier, KvHit};
use crate::policy::{AdmissionDecision, ClusterView, Reads, RequestView, RoutingDecision};
use crate::request::{Name, Request, Tags};
use crate::units::Micros;

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// All output tokens were generated.
    Completed,
    /// The output ended early, at `max_model_len`. Counts as completed.
    LengthCapped,
    /// The client's deadline passed first.
    TimedOut,
    /// The gateway ended it on its instance, to make room for a request of higher priority.
    Evicted,
    /// Dropped on arrival: the request can never be served.
    Dropped(DropReason),
    /// Still in the waiting queue at the end of the simulation.
    Queued,
    /// Still in the running batch at the end of the simulation.
    Running,
    /// Between arrival and waiting queue at the end of the simulation.
    Arriving,
    /// In the gateway's queue at the end of the simulation.
    InGateway,
    /// Rejected by the service; it reached no instance.
    Rejected(Rejection),
}

/// What rejected a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// The admission policy rejected it.
    Admission,
    /// No instance serves the model that it names, or has the role that it needs, so it could not be routed.
    Routing,
    /// No replica of its model was active (llm-d's endpoint picker returns 503).
    NoReplica,
    /// The API server of its instance returned 503: it had as many requests or prompt tokens as it may have
    /// (`max_num_queued_reqs`, `max_num_queued_tokens`).
    Server,
    /// The gateway's queue, or its band in it, was full.
    GatewayFull,
    /// A request of higher priority displaced it from the gateway's queue (BLIS).
    GatewayDisplaced,
    /// It waited in the gateway's queue for longer than its time to live.
    GatewayExpired,
}

/// Why a request can never be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// The prompt alone reaches `max_model_len`.
    PromptTooLong,
    /// Prompt plus `max_tokens` exceed `max_model_len` (BLIS only; vLLM caps the output).
    BudgetTooLong,
    /// The prompt needs more KV blocks than the instance has.
    KvTooSmall,
    /// When its prefill had ended, the decode instance had too few free KV blocks (BLIS only; with vLLM it waits).
    NoDecodeBlocks,
}

/// The timeline of one request. Times are durations from its arrival.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// [`crate::request::Request::id`].
    pub id: RequestId,
    /// Time of arrival at the service.
    pub arrival: Micros,
    /// Length of the prompt, tokens.
    pub input_tokens: u32,
    /// Length of the whole output, tokens.
    pub output_tokens: u32,
    /// Output tokens that were generated.
    pub generated_tokens: u32,
    /// How the request ended.
    pub status: Status,
    /// When the instance had finished it: the end of its last step, or the moment its client timed out. Equal to the
    /// arrival if it reached no instance or had not ended.
    pub ended_at: Micros,
    /// Index of the instance that served it; `None` if it reached none.
    pub instance: Option<InstanceIndex>,
    /// [`crate::request::Request::tags`].
    pub tags: Tags,
    /// Time to first token; `None` if there was none.
    pub ttft: Option<Micros>,
    /// End-to-end latency; `None` unless it completed.
    pub e2e: Option<Micros>,
    /// Sum of its inter-token latencies; 0 unless it completed.
    pub itl_sum: Micros,
    /// Number of inter-token latencies in that sum.
    pub itl_count: u32,
    /// Mean inter-token latency, µs; 0 unless it completed with at least two tokens.
    pub itl_mean_us: f64,
    /// From arrival to the (last) admission into the running batch; `None` if it was never admitted.
    pub scheduling_delay: Option<Micros>,
    /// Number of times it was preempted.
    pub preemptions: u32,
    /// Prompt tokens found in the prefix cache at its first admission to the batch, those of
    /// [`Self::cpu_cached_tokens`] included.
    pub cached_tokens: u32,
    /// Of these, the tokens that were loaded from the CPU tier.
    pub cpu_cached_tokens: u32,
    /// Time in which it waited for loads from the CPU tier; 0 if it loaded nothing.
    pub kv_load_wait: Micros,
}

impl Outcome {
    /// A request that ended before anything else happened to it.
    #[must_use]
    pub fn new(request: &Request, status: Status) -> Self {
        Self {
            id: request.id,
            arrival: request.arrival,
            input_tokens: request.input_tokens,
            output_tokens: request.output_tokens,
            generated_tokens: 0,
            status,
            ended_at: request.arrival,
            instance: None,
            tags: request.tags,
            ttft: None,
            e2e: None,
            itl_sum: Micros::ZERO,
            itl_count: 0,
            itl_mean_us: 0.0,
            scheduling_delay: None,
            preemptions: 0,
            cached_tokens: 0,
            cpu_cached_tokens: 0,
            kv_load_wait: Micros::ZERO,
        }
    }

    /// The same outcome, with `at` as the time of its end.
    #[must_use]
    pub fn ended_at(self, at: Micros) -> Self {
        Self { ended_at: at, ..self }
    }

    /// Whether it completed, length-capped or not.
    #[must_use]
    pub fn completed(&self) -> bool {
        matches!(self.status, Status::Completed | Status::LengthCapped)
    }
}

/// A request generated its first token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirstToken {
    /// [`crate::request::Request::id`].
    pub id: RequestId,
    /// Index of the instance that serves it.
    pub instance: InstanceIndex,
    /// Time of arrival at the service.
    pub arrival: Micros,
    /// Time from its arrival to the token.
    pub ttft: Micros,
    /// Length of the prompt, tokens.
    pub input_tokens: u32,
    /// [`crate::request::Request::tags`].
    pub tags: Tags,
}

impl FirstToken {
    /// `request` generated its first token on `instance`, `ttft` after its arrival.
    #[must_use]
    pub fn new(request: &Request, instance: InstanceIndex, ttft: Micros) -> Self {
        let &Request { id, arrival, input_tokens, tags, .. } = request;
        Self { id, instance, arrival, ttft, input_tokens, tags }
    }
}

/// The stages of a request that was prefilled on another instance than the one that decoded it. They follow each other: with
/// the time in front of the instances their sum is the TTFT. A stage that it did not reach or end is `None`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StageTimes {
    /// [`crate::request::Request::id`].
    pub id: RequestId,
    /// Time of arrival at the service.
    pub arrival: Micros,
    /// The instance that prefilled it.
    pub prefill: InstanceIndex,
    /// The instance that decoded it, or was to.
    pub decode: InstanceIndex,
    /// From the routing decision, or from the end of [`EncodeTimes::transfer`], to the first step on the prefill instance.
    pub prefill_queue: Option<Micros>,
    /// From there to the response of the prefill instance.
    pub prefill_time: Option<Micros>,
    /// From there to the arrival on the decode instance: HTTP.
    pub hold: Option<Micros>,
    /// From there until the decode instance had KV blocks, and the transfer began.
    pub decode_wait: Option<Micros>,
    /// The transfer of KV blocks.
    pub transfer: Option<Micros>,
    /// From its end to the first token.
    pub decode_first: Option<Micros>,
    /// From the arrival to the first token.
    pub ttft: Option<Micros>,
    /// Prompt tokens with KV that was transferred; 0 without a transfer.
    pub transferred_tokens: u32,
    /// Transfers in progress when its own began, with it; 0 without a transfer.
    pub transfers: u32,
    /// The read of KV of an earlier turn from a decode instance, in front of the first step of the prefill; `None` without one.
    pub reuse: Option<Micros>,
    /// Prompt tokens with KV that was read so; 0 without such a read.
    pub reused_tokens: u32,
}

/// The stages of a request that was encoded on an instance of its own first. They follow each other, and those of
/// [`StageTimes`] follow them. A stage that it did not end is `None`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EncodeTimes {
    /// [`crate::request::Request::id`].
    pub id: RequestId,
    /// Time of arrival at the service.
    pub arrival: Micros,
    /// The instance that encoded it.
    pub encode: InstanceIndex,
    /// [`crate::request::Request::media_tokens`].
    pub tokens: u32,
    /// From the routing decision to the batch with its media; without media, to its arrival on the instance.
    pub queue: Option<Micros>,
    /// From there to the response of the instance.
    pub time: Option<Micros>,
    /// From there until the instance that computes the prompt has the embeddings.
    pub transfer: Option<Micros>,
}

impl EncodeTimes {
    /// `request`, which `encode` encodes, before its first stage.
    #[must_use]
    pub fn new(request: &Request, encode: InstanceIndex) -> Self {
        let &Request { id, arrival, media_tokens: tokens, .. } = request;
        Self { id, arrival, encode, tokens, queue: None, time: None, transfer: None }
    }
}

/// Whether a request is prefilled on another instance than the one that decodes it.
#[derive(Clone, Copy, Debug)]
pub struct DisaggregationChoice<'a> {
    /// The request, as policies see it.
    pub request: &'a RequestView<'a>,
    /// Time of the decision.
    pub now: Micros,
    /// The instance that decodes it.
    pub decode: InstanceIndex,
    /// The instance that encodes it first; `None`: none does.
    pub encode: Option<InstanceIndex>,
    /// Whether another instance prefills it.
    pub disaggregate: bool,
    /// That instance; `None` if there is none, or if it is chosen later (BLIS).
    pub prefill: Option<InstanceIndex>,
    /// All instances as the policy saw them, in the order of their indices.
    pub cluster: &'a ClusterView<'a>,
    /// The signals that the policy reads; others may be out of date.
    pub reads: Reads,
    /// The instances that decode.
    pub decodes: &'a [InstanceIndex],
    /// The instances that prefill.
    pub prefills: &'a [InstanceIndex],
}

/// A decision, and what the policy saw.
///
/// Decisions in front of the instances are reported in the order of time, and so are the decisions inside any one
/// instance. Between instances there is no such order: a decision inside an instance may be reported later than events
/// that follow it elsewhere.
#[derive(Clone, Copy, Debug)]
pub enum Decision<'a> {
    /// Whether a request is admitted to the service.
    Admission {
        /// The request that arrived, as policies see it.
        request: &'a RequestView<'a>,
        /// The service as the policy saw it.
        cluster: &'a ClusterView<'a>,
        /// Which columns are up to date, and which the policy read.
        columns: SignalColumns,
        /// The result: admit, or reject with a reason.
        decision: &'a AdmissionDecision,
    },
    /// Whether a request is prefilled on another instance. Followed by [`Self::Routing`] if it is not.
    Disaggregation(DisaggregationChoice<'a>),
    /// The instance to which a request is dispatched.
    Routing {
        /// The request that was admitted, as policies see it.
        request: &'a RequestView<'a>,
        /// The service as the policy saw it.
        cluster: &'a ClusterView<'a>,
        /// The service with the instances that could not be chosen as well: those of other roles.
        all: &'a ClusterView<'a>,
        /// Which columns are up to date, and which the policy read.
        columns: SignalColumns,
        /// The result: the chosen instance, with a reason.
        choice: &'a RoutingDecision,
        /// A score for each instance; empty if the policy has none.
        scores: &'a [f64],
    },
    /// What the gateway's queue does with a request.
    Gateway(GatewayDecision<'a>),
    /// Whether the head of a waiting queue is scheduled into the batch.
    Scheduling(SchedulingDecision),
    /// Which request is preempted because no KV blocks are free.
    Preemption(PreemptionDecision),
    /// Whether a request loads what the CPU tier has for it, or computes it again.
    Load(LoadDecision),
    /// Which LoRA adapter makes room for another.
    AdapterEviction(AdapterEviction<'a>),
}

/// What flow control does with a request, and the state of the gateway's queue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GatewayDecision<'a> {
    /// Time of the decision.
    pub now: Micros,
    /// [`crate::request::Request::id`] of the request that it is about.
    pub request: RequestId,
    /// How full the service was: 0 empty, 1 full; `None` if it was not asked for.
    pub saturation: Option<f64>,
    /// The bands before a dispatch or an eviction, and after a request was refused or left; highest priority first.
    pub bands: &'a [Band],
    /// For each of the bands, the saturation from which on it waits; empty without [`Self::saturation`].
    pub ceilings: &'a [f64],
    /// What is done.
    pub choice: GatewayChoice<'a>,
}

/// What flow control does with a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum GatewayChoice<'a> {
    /// There is no room for it in the queue.
    Refused,
    /// It leaves the queue for a request of higher priority (BLIS).
    Displaced {
        /// The request that needed its room.
        by: RequestId,
    },
    /// It leaves the queue, to be routed.
    Dispatched {
        /// The priority of its band.
        band: i32,
        /// The flows of the band, from which the fairness policy picked the one with this request at its head.
        flows: &'a [Flow],
        /// Time that it spent in the queue.
        waited: Micros,
    },
    /// It is ended on its instance, to make room for a waiting request.
    Evicted {
        /// The instance on which it ends.
        instance: InstanceIndex,
        /// The priority of the band that waits.
        demand: i32,
        /// The requests in flight that could be evicted, in the order of their dispatch.
        candidates: &'a [InFlight],
    },
    /// It leaves the queue unserved, after its time to live.
    Expired,
    /// It leaves the queue unserved, because its client timed out.
    TimedOut,
}

/// Which columns of a view hold current values. The others are zeros or stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignalColumns {
    /// Columns that are up to date, for this policy or for another reader.
    pub current: Reads,
    /// Columns that the deciding policy reads.
    pub read: Reads,
}

/// The head of a waiting queue, and whether it is scheduled into the batch. No other request can be: service is
/// strictly from the head, and the scheduling policy has decided only the position in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchedulingDecision {
    /// Index of the instance that schedules.
    pub instance: InstanceIndex,
    /// Time of the decision: the start of a step.
    pub now: Micros,
    /// [`crate::request::Request::id`].
    pub request: RequestId,
    /// Its priority on the instance: lower is served first.
    pub priority: i64,
    /// Requests in the waiting queue, this one included.
    pub waiting: u32,
    /// Requests in the batch, without this one.
    pub running: u32,
    /// KV blocks that no request holds.
    pub free_kv_blocks: u32,
    /// What is left of the step's token budget, tokens.
    pub token_budget: u32,
    /// Time since it joined the queue; after a preemption, since it joined again.
    pub waited: Micros,
    /// Tokens generated so far; more than 0 only after a preemption.
    pub generated_tokens: u32,
    /// Number of times it was preempted.
    pub preemptions: u32,
    /// Whether it was scheduled, or what it waits for.
    pub result: SchedulingResult,
}

/// Whether the head of the waiting queue is scheduled into the batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchedulingResult {
    /// It is scheduled in this step.
    Scheduled {
        /// Prompt tokens found in the prefix cache.
        cached_tokens: u32,
        /// Tokens that it computes in this step.
        num_tokens: u32,
    },
    /// It is not scheduled in this step. Reported once for each time that the request is at the head: at the first step
    /// that leaves it there.
    Waits(WaitReason),
}

/// Why a request is not scheduled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitReason {
    /// The token budget of the step is used up.
    TokenBudget,
    /// The batch holds `max_num_seqs` requests.
    BatchFull,
    /// Prefill waits for a later step (`prefill_schedule_interval`).
    PrefillInterval,
    /// KV blocks of its prompt are on their way to the CPU tier, or from it for another request; with BLIS's tiers, they are read from
    /// storage.
    KvTransfer,
    /// Its prompt must not be chunked, and is longer than what is left of the token budget.
    UnsplitPrompt {
        /// Tokens that it would compute.
        num_tokens: u32,
    },
    /// There are not enough free KV blocks.
    KvBlocks {
        /// KV blocks that it needs.
        needed: u32,
    },
    /// Its LoRA adapter has no slot: running requests use all others (vLLM), or it is not loaded yet (BLIS).
    AdapterSlot,
}

/// A change of the LoRA adapters on the GPU of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdapterEvent {
    /// Index of the instance.
    pub instance: InstanceIndex,
    /// Time of the change: the start of a step, or the end of a load between steps.
    pub now: Micros,
    /// The adapter that was loaded or evicted.
    pub adapter: Name,
    /// The change.
    pub change: AdapterChange,
}

/// A change of the LoRA adapters on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdapterChange {
    /// It was read from disk.
    LoadedFromDisk,
    /// It was copied from the host's memory.
    LoadedFromHost,
    /// It lost its slot to another one.
    Evicted,
}

/// The preemption of a request, which leaves the batch so that another can continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PreemptionDecision {
    /// Index of the instance that preempts.
    pub instance: InstanceIndex,
    /// Time of the decision: the start of a step.
    pub now: Micros,
    /// [`crate::request::Request::id`] of the preempted request.
    pub victim: RequestId,
    /// The request that needs KV blocks; it may be the victim itself.
    pub requester: RequestId,
    /// KV blocks that it needs beyond those that it holds.
    pub needed_kv_blocks: u32,
    /// KV blocks that no request holds: fewer than needed.
    pub free_kv_blocks: u32,
    /// Requests in the batch, the victim included.
    pub running: u32,
    /// Requests in the waiting queue, without the victim.
    pub waiting: u32,
    /// Tokens that the victim has computed. They are lost except for those in the prefix cache.
    pub computed_tokens: u32,
    /// Tokens that the victim has generated.
    pub generated_tokens: u32,
    /// Number of times the victim was preempted before.
    pub preemptions: u32,
}

/// A policy's decision whether a request loads what the CPU tier has for it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LoadDecision {
    /// Index of the instance.
    pub instance: InstanceIndex,
    /// What the tier has for the request, and the state of the instance.
    pub hit: KvHit,
    /// Whether it is loaded; if not, the request computes it.
    pub loads: bool,
}

/// A policy's decision which LoRA adapter makes room for that of a request which enters the batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdapterEviction<'a> {
    /// Index of the instance.
    pub instance: InstanceIndex,
    /// Time of the decision: the start of a step.
    pub now: Micros,
    /// [`crate::request::Request::id`] of the request.
    pub request: RequestId,
    /// Its adapter, which needs the room.
    pub adapter: Name,
    /// Where room is needed.
    pub tier: CacheTier,
    /// The adapters that could make room, two or more, the least recently used first.
    pub candidates: &'a [Name],
    /// The policy's rank of each.
    pub ranks: &'a [f64],
    /// The one that does.
    pub evicted: Name,
}

/// What the CPU tier of one instance did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct OffloadCounters {
    /// Bytes submitted for the way from host to GPU, of all GPUs of the instance.
    pub loaded_bytes: u64,
    /// Bytes submitted for the way from GPU to host.
    pub stored_bytes: u64,
    /// Chunks that were offered too rarely to be stored, once for each offer.
    pub skipped: u64,
    /// Chunks for which there was no room, once for each attempt.
    pub refused: u64,
    /// Chunks that made room for others.
    pub evicted: u64,
    /// Steps that waited for a store, because its KV blocks were needed for another request.
    pub flushes: u64,
    /// How long these steps waited.
    pub flush_time: Micros,
    /// Loads from the tier.
    pub loads: u64,
    /// The tier below it; zeros if there is none.
    pub secondary: SecondaryCounters,
}

/// How often a tier of the KV cache did what keeps it from being useful, under `--parity blis` with tiers. Copies to the CPU, and
/// those that evicted a block; with storage tiers: reads from storage, and those for which the CPU had no room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Thrashing {
    /// Number of such events.
    pub events: u64,
    /// Number of attempts.
    pub of: u64,
}

impl Thrashing {
    /// Events by attempt, 0 to 1; 0 without attempts.
    #[must_use]
    pub fn rate(self) -> f64 {
        if self.of == 0 { 0.0 } else { self.events as f64 / self.of as f64 }
    }
}

/// What requests found in the prefix cache of the GPU: tokens, as vLLM counts them, or KV blocks, as BLIS does
/// ([`hit_rate_of_blocks`](crate::semantics::Semantics::hit_rate_of_blocks)). All are 0 without prefix caching.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrefixCacheCounters {
    /// What was looked up: the tokens of each request that entered the batch and was never preempted. BLIS: all KV blocks that
    /// were claimed or allocated.
    pub queries: u64,
    /// Of these, what was found.
    pub hits: u64,
    /// Tokens, prompt and output, of requests that entered the batch again after a preemption: they find mostly what they had
    /// computed themselves. (vLLM keeps these apart, too, and does not export them.)
    pub preempted_queries: u64,
    /// Of these, those found.
    pub preempted_hits: u64,
}

impl PrefixCacheCounters {
    /// BLIS's counters: of `misses` KV blocks that were allocated and `hits` that were found.
    #[must_use]
    pub fn of_blocks(hits: u64, misses: u64) -> Self {
        Self { queries: hits + misses, hits, ..Self::default() }
    }

    /// Counts a request of `tokens` tokens that gets its blocks, and finds `hits` of them. It was `preempted` before, or not.
    pub fn admit(&mut self, tokens: u32, hits: u32, preempted: bool) {
        let (queries, found) = match preempted {
            false => (&mut self.queries, &mut self.hits),
            true => (&mut self.preempted_queries, &mut self.preempted_hits),
        };
        *queries += u64::from(tokens);
        *found += u64::from(hits);
    }

    /// The hit rate, 0 to 1; `None` if nothing was looked up.
    #[must_use]
    pub fn hit_rate(&self) -> Option<f64> {
        (self.queries > 0).then(|| self.hits as f64 / self.queries as f64)
    }

    /// What was counted after `before`.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self {
            queries: self.queries.saturating_sub(before.queries),
            hits: self.hits.saturating_sub(before.hits),
            preempted_queries: self.preempted_queries.saturating_sub(before.preempted_queries),
            preempted_hits: self.preempted_hits.saturating_sub(before.preempted_hits),
        }
    }

    /// Adds those of another instance.
    pub fn add(&mut self, other: &Self) {
        self.queries += other.queries;
        self.hits += other.hits;
        self.preempted_queries += other.preempted_queries;
        self.preempted_hits += other.preempted_hits;
    }
}

/// Counters of one instance at the end of a simulation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Counters {
    /// The CPU tier; zeros if there is none.
    pub offload: OffloadCounters,
    /// Preemptions of running requests.
    pub preemptions: u64,
    /// Σ [`LatencyModel::preemption_time`](crate::latency::LatencyModel::preemption_time).
    pub preemption_time: Micros,
    /// Final-token KV allocations that failed (BLIS semantics only).
    pub kv_allocation_failures: u64,
    /// What requests found in the prefix cache. With BLIS's tiers, allocations that failed although no block could be reloaded
    /// count as looked up.
    pub prefix_cache: PrefixCacheCounters,
    /// Tokens that a request had computed before it was preempted, and computed again. Of outputs that BLIS generates anew, none.
    pub recomputed_tokens: u64,
    /// With BLIS's tiers: how often one evicts what it has just taken in.
    pub thrashing: Option<Thrashing>,
    /// Sum of the prompt lengths of the requests that passed the checks on arrival, tokens.
    pub input_tokens: u64,
    /// Sum over requests of the time spent in the waiting queue, until the last executed event. Divided by the duration
    /// it is the mean queue length (Little's law).
    pub queue_time: Micros,
    /// Sum over steps of the number of distinct LoRA adapters of the scheduled requests.
    pub adapter_uses: u64,
    /// Sum over requests of the time from the first step that left one waiting for a slot of its LoRA adapter to its
    /// admission.
    pub slot_wait: Micros,
    /// Number of engine steps executed.
    pub steps: u64,
    /// Time of the last executed event.
    pub clock: Micros,
}
