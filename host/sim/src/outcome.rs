//! What becomes of a request, and what was decided about it.
//!
//! The engine reports every request exactly once, when it ends (or when the simulation does), and
//! keeps nothing: its own state stays proportional to what is live. [`Observer`](crate::observer::Observer)s are told.

use crate::policy::{Choice, ClusterView, Reads, RequestView, Verdict};
use crate::request::{Request, Tags};
use crate::units::Micros;

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// All output tokens were generated.
    Completed,
    /// Ended early at `max_model_len`. Counts as completed.
    LengthCapped,
    /// The client's deadline passed first.
    TimedOut,
    /// Refused on arrival: it can never be served.
    Dropped(DropReason),
    /// Still in the wait queue at the end of the simulation.
    Queued,
    /// Still in the running batch at the end of the simulation.
    Running,
    /// Between arrival and wait queue at the end of the simulation.
    Arriving,
    /// Refused by the service; no instance saw it.
    Rejected(Rejection),
}

/// Who refused a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// The admission policy.
    Admission,
    /// Nobody: no instance serves the model it asks for.
    Routing,
}

/// Why a request can never be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// The prompt alone reaches `max_model_len`.
    PromptTooLong,
    /// Prompt plus the client's budget exceed `max_model_len` (BLIS only; vLLM caps the answer).
    BudgetTooLong,
    /// The prompt needs more KV blocks than the instance has.
    KvTooSmall,
}

/// The life of one request. Times are durations from its arrival.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// [`crate::request::Request::id`].
    pub id: u32,
    /// When it arrived.
    pub arrival: Micros,
    /// Prompt tokens.
    pub input_tokens: u32,
    /// Output tokens the request asked for.
    pub output_tokens: u32,
    /// Output tokens it got.
    pub generated_tokens: u32,
    /// How it ended.
    pub status: Status,
    /// When the instance was done with it: end of its last step, or the moment its client gave up. Its
    /// arrival if it reached no instance, or had not ended.
    pub ended_at: Micros,
    /// The instance that had it; `None` if it reached none.
    pub instance: Option<u32>,
    /// [`crate::request::Request::tags`].
    pub tags: Tags,
    /// Time to first token; `None` if there was none.
    pub ttft: Option<Micros>,
    /// End-to-end latency; `None` unless it completed.
    pub e2e: Option<Micros>,
    /// Σ inter-token latencies of the finished request; 0 unless it completed.
    pub itl_sum: Micros,
    /// How many inter-token latencies that sum has.
    pub itl_count: u32,
    /// Mean inter-token latency, µs; 0 unless it completed with at least one gap.
    pub itl_mean_us: f64,
    /// From arrival to the (last) admission into the running batch; `None` if never admitted.
    pub scheduling_delay: Option<Micros>,
    /// Times it was thrown out of the batch.
    pub preemptions: u32,
    /// Prompt tokens found in the prefix cache at its first admission.
    pub cached_tokens: u32,
}

impl Outcome {
    /// A request to which nothing happened but its end.
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
        }
    }

    /// The same, ended at `at`.
    #[must_use]
    pub fn ended_at(self, at: Micros) -> Self {
        Self { ended_at: at, ..self }
    }

    /// Completed, capped or not.
    #[must_use]
    pub fn completed(&self) -> bool {
        matches!(self.status, Status::Completed | Status::LengthCapped)
    }
}

/// A request got its first token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirstToken {
    /// [`crate::request::Request::id`].
    pub id: u32,
    /// Where.
    pub instance: u32,
    /// When it arrived.
    pub arrival: Micros,
    /// How long after its arrival the token was out.
    pub ttft: Micros,
    /// Prompt tokens.
    pub input_tokens: u32,
    /// [`crate::request::Request::tags`].
    pub tags: Tags,
}

impl FirstToken {
    /// `request` got it on `instance`, `ttft` after its arrival.
    #[must_use]
    pub fn new(request: &Request, instance: u32, ttft: Micros) -> Self {
        let &Request { id, arrival, input_tokens, tags, .. } = request;
        Self { id, instance, arrival, ttft, input_tokens, tags }
    }
}

/// A decision, and what the policy saw.
///
/// Those in front of the instances come in the order of time, and so do those of any one instance. But
/// an instance may be told of later than what happened after it elsewhere.
#[derive(Clone, Copy, Debug)]
pub enum Decision<'a> {
    /// Whether a request may enter.
    Admission {
        /// The request.
        request: &'a RequestView<'a>,
        /// The service.
        cluster: &'a ClusterView<'a>,
        /// Which columns are up to date, and whether the policy looked.
        columns: Columns,
        /// The answer.
        verdict: &'a Verdict,
    },
    /// Where it goes.
    Routing {
        /// The request.
        request: &'a RequestView<'a>,
        /// The service.
        cluster: &'a ClusterView<'a>,
        /// Which columns are up to date, and whether the policy looked.
        columns: Columns,
        /// The answer.
        choice: &'a Choice,
        /// A score for each instance; empty if the policy has none.
        scores: &'a [f64],
    },
    /// Whether the head of a wait queue enters the batch.
    Scheduling(SchedulingDecision),
    /// Who leaves the batch because KV blocks ran out.
    Preemption(PreemptionDecision),
}

/// What a view shows beyond zeros and what is long past.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Columns {
    /// Up to date, whoever wants them to be.
    pub current: Reads,
    /// Read by the policy that decided.
    pub read: Reads,
}

/// The head of a wait queue, and whether it enters the batch. Nobody else can: service is strictly from
/// the head, and the scheduling policy's word was its place in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchedulingDecision {
    /// Where.
    pub instance: u32,
    /// When: the start of a step.
    pub now: Micros,
    /// [`crate::request::Request::id`].
    pub request: u32,
    /// Its priority on the instance: lower is more urgent.
    pub priority: i64,
    /// Requests in the wait queue, with this one.
    pub waiting: u32,
    /// Requests in the batch, without this one.
    pub running: u32,
    /// KV blocks nobody holds.
    pub free_kv_blocks: u32,
    /// What is left of the step's token budget.
    pub token_budget: u32,
    /// Since it joined the queue, the last time if it was there before.
    pub waited: Micros,
    /// Tokens generated so far; more than 0 only after a preemption.
    pub generated_tokens: u32,
    /// Times it was thrown out of the batch.
    pub preemptions: u32,
    /// The answer.
    pub entry: Entry,
}

/// Whether a request enters the batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// It does.
    Enters {
        /// Tokens found in the prefix cache.
        cached_tokens: u32,
        /// Tokens it computes in this step.
        num_tokens: u32,
    },
    /// Not in this step. Told once for each time that a request is at the head: at the first step that
    /// leaves it there.
    Waits(Obstacle),
}

/// Why a request does not enter the batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// The token budget of the step is used up.
    TokenBudget,
    /// There are `max_num_seqs` requests in the batch.
    BatchFull,
    /// Its prompt must not be split over steps, and is longer than what is left of the token budget.
    UnsplitPrompt {
        /// What it would compute, tokens.
        num_tokens: u32,
    },
    /// There are not enough free KV blocks.
    KvBlocks {
        /// What it takes, blocks.
        needed: u32,
    },
}

/// A request that leaves the batch so that another can go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PreemptionDecision {
    /// Where.
    pub instance: u32,
    /// When: the start of a step.
    pub now: Micros,
    /// [`crate::request::Request::id`] of the one that leaves.
    pub victim: u32,
    /// The one that needs room; it may be the victim itself.
    pub wanting: u32,
    /// KV blocks that one needs beyond those it has.
    pub needed_kv_blocks: u32,
    /// KV blocks nobody holds: fewer.
    pub free_kv_blocks: u32,
    /// Requests in the batch, with the victim.
    pub running: u32,
    /// Requests in the wait queue, without the victim.
    pub waiting: u32,
    /// Tokens the victim has computed, which are lost but for what the prefix cache keeps.
    pub computed_tokens: u32,
    /// Tokens the victim has generated.
    pub generated_tokens: u32,
    /// How often the victim was thrown out before.
    pub preemptions: u32,
}

/// The instance's own counters at the end of a simulation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Counters {
    /// Requests thrown out of the running batch.
    pub preemptions: u64,
    /// Σ [`LatencyModel::preemption_time`](crate::latency::LatencyModel::preemption_time).
    pub preemption_time: Micros,
    /// Final-token KV allocations that failed (BLIS semantics only).
    pub kv_allocation_failures: u64,
    /// Prefix-cache look-ups that found their block.
    pub cache_hits: u64,
    /// KV blocks taken fresh.
    pub cache_misses: u64,
    /// Σ prompt tokens of the requests that passed the arrival checks.
    pub input_tokens: u64,
    /// Σ over requests of the time spent in the wait queue, until the last executed event. Divided
    /// by the duration: the mean queue length (Little's law).
    pub queue_time: Micros,
    /// Engine steps taken.
    pub steps: u64,
    /// Time of the last executed event.
    pub clock: Micros,
}
