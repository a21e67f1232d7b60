//! The content of lines. Names and units are those of the file; times are µs on the clock of the simulation.

use blis_sim::ids::{InstanceIndex, RequestId};
use blis_sim::outcome::{DropReason, Rejection, Status, WaitReason};
use serde::{Deserialize, Serialize};
use strum::{EnumCount, EnumDiscriminants, EnumMessage, IntoStaticStr, VariantArray};

use super::gateway::GatewayLine;

/// A line of a decision trace.
#[derive(Clone, Debug, PartialEq, Serialize, EnumDiscriminants)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[strum_discriminants(
    name(LineKind),
    doc = "The kinds of lines that can be selected.",
    derive(PartialOrd, Ord, EnumCount, EnumMessage, IntoStaticStr, VariantArray),
    strum(serialize_all = "snake_case")
)]
pub enum TraceLine {
    /// The signals of the instances, after a refresh of the periodic ones.
    #[strum_discriminants(doc = "Refreshed signals of instances")]
    Signals(SignalsLine),
    /// Decision of the admission policy.
    #[strum_discriminants(doc = "Admission")]
    Admission(AdmissionLine),
    /// What flow control did with a request.
    #[strum_discriminants(doc = "Flow control: requests refused, dispatched, expired or evicted by the gateway")]
    Gateway(GatewayLine),
    #[strum_discriminants(doc = "Routing")]
    Routing(RoutingLine),
    /// Decision whether a request enters the running batch.
    #[strum_discriminants(doc = "Scheduling: requests that enter a batch or wait at the head of a queue")]
    Scheduling(SchedulingLine),
    /// A request is preempted.
    #[strum_discriminants(doc = "Preemption: victims when KV blocks run out")]
    Preemption(PreemptionLine),
    /// A request loads what the CPU tier has for it, or computes it.
    #[strum_discriminants(doc = "Loads from the CPU tier: loaded or computed again")]
    Load(LoadLine),
    /// A LoRA adapter makes room for another.
    #[strum_discriminants(doc = "LoRA adapters that make room for others")]
    AdapterEviction(AdapterEvictionLine),
    /// Decision which instance prefills a request, where some prefill apart from others.
    #[strum_discriminants(doc = "Instances that prefill, where some prefill apart from others")]
    Prefill(PrefillLine),
    #[strum_discriminants(doc = "Ends of requests")]
    Outcome(OutcomeLine),
}

impl LineKind {
    /// The name of the kind in the file.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }
}

impl TraceLine {
    #[must_use]
    pub fn kind(&self) -> LineKind {
        self.into()
    }

    /// The request that the line is about.
    #[must_use]
    pub fn request(&self) -> Option<RequestId> {
        let number = match self {
            Self::Signals(_) => None,
            Self::Admission(line) => Some(line.request),
            Self::Gateway(line) => Some(line.request),
            Self::Routing(line) => Some(line.request),
            Self::Scheduling(line) => Some(line.request),
            Self::Preemption(line) => Some(line.request),
            Self::Load(line) => Some(line.request),
            Self::AdapterEviction(line) => Some(line.request),
            Self::Prefill(line) => Some(line.request),
            Self::Outcome(line) => Some(line.request),
        };
        number.map(RequestId)
    }

    /// The instance that the line is about, if it is only one.
    #[must_use]
    pub fn instance(&self) -> Option<InstanceIndex> {
        let number = match self {
            Self::Signals(_) | Self::Admission(_) => None,
            Self::Gateway(line) => line.instance,
            Self::Routing(line) => Some(line.instance),
            Self::Scheduling(line) => Some(line.instance),
            Self::Preemption(line) => Some(line.instance),
            Self::Load(line) => Some(line.instance),
            Self::AdapterEviction(line) => Some(line.instance),
            Self::Prefill(line) => Some(line.decode),
            Self::Outcome(line) => line.instance,
        };
        number.map(InstanceIndex)
    }

    /// Time of the line; `None` for a request that had not ended.
    #[must_use]
    pub fn time_us(&self) -> Option<u64> {
        match self {
            Self::Signals(line) => Some(line.time_us),
            Self::Admission(line) => Some(line.time_us),
            Self::Gateway(line) => Some(line.time_us),
            Self::Routing(line) => Some(line.time_us),
            Self::Scheduling(line) => Some(line.time_us),
            Self::Preemption(line) => Some(line.time_us),
            Self::Load(line) => Some(line.time_us),
            Self::AdapterEviction(line) => Some(line.time_us),
            Self::Prefill(line) => Some(line.time_us),
            Self::Outcome(line) => line.time_us,
        }
    }
}

/// The first line.
#[derive(Serialize)]
pub(super) struct HeaderLine<'a> {
    /// Kind of the line. One of `header`.
    pub kind: &'static str,
    #[serde(flatten)]
    pub header: &'a DecisionHeader,
}

/// The last line: without it, the trace is cut off.
#[derive(Serialize)]
pub(super) struct EndLine {
    /// Kind of the line. One of `end`.
    pub kind: &'static str,
    /// Number of lines before it. Unit: lines, 1 or more.
    pub lines: u64,
}

/// The first line: the configuration of the simulation and the names of the policies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DecisionHeader {
    /// Name of the format. One of `blis-decisions`.
    pub format: String,
    /// Version of the format. Unit: number, 1 to 1.
    pub version: u32,
    /// Name and version of the program that wrote the file. Not empty.
    pub program: String,
    /// SHA-256 of everything that the results of the simulation depend on, the seed included, without the origin of the
    /// settings and without outputs and evaluation: equal digests mean equal simulations.
    pub config_sha256: String,
    /// Seed of all random numbers. Unit: number.
    pub seed: u64,
    /// Model that is served. Not empty.
    pub model: String,
    /// GPU of the instances. Not empty.
    pub hardware: String,
    /// Description of the workload for people. Not empty.
    pub workload: String,
    /// Names of the policies, built in or plugins.
    pub policies: PolicyNames,
    /// Delay from arrival to admission.
    pub admission_latency_us: u64,
    /// Delay from admission to routing.
    pub routing_latency_us: u64,
    /// Refresh interval of the periodic columns; 0 if they are always fresh.
    pub snapshot_refresh_interval_us: u64,
    /// Refresh interval of the prefix-cache contents; 0 if they are always fresh.
    pub cache_signal_delay_us: u64,
    /// Number of candidates that are listed with a routing decision. Unit: candidates.
    pub counterfactual_k: u32,
    /// The instances in the order of columns; consecutive ones with the same configuration are one entry. One or more.
    pub instances: Vec<InstanceGroup>,
}

/// The names of the policies, built in or plugins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyNames {
    /// The admission policy, which admits requests. Not empty.
    pub admission: String,
    /// The routing policy, which selects the instance. Not empty.
    pub routing: String,
    /// The priority policy, which orders requests on an instance. Not empty.
    pub priority: String,
    /// The scheduling policy, which orders the waiting queues. Not empty.
    pub scheduling: String,
    /// The preemption policy, which selects the victim. Not empty.
    pub preemption: String,
}

/// Consecutive instances with the same configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InstanceGroup {
    /// Number of the first instance. Unit: number.
    pub first: u32,
    /// Number of instances, numbered consecutively. Unit: instances, 1 or more.
    pub count: u32,
    /// Maximum batch size. Unit: requests, 1 or more.
    pub max_num_seqs: u32,
    /// Token budget of a step. Unit: tokens, 1 or more.
    pub max_num_batched_tokens: u32,
    /// Size of the KV cache. Unit: blocks, 1 or more.
    pub total_kv_blocks: u32,
    /// Tokens per KV block. Unit: tokens, 1 or more.
    pub block_size: u32,
}

/// The periodic columns after a refresh. Written before the first decision that uses them. `cache_hit_rate` and
/// `preemption_count` are left out if they equal those of the line `signals` before.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignalsLine {
    /// Number of the refresh, from 1. Unit: number, 1 or more.
    pub reading: u64,
    /// Time of the refresh.
    pub time_us: u64,
    /// Requests in the waiting queue. A column over the instances. One or more. Unit: requests.
    pub queue_depth: Vec<u32>,
    /// Requests in the batch. A column over the instances. One or more. Unit: requests.
    pub batch_size: Vec<u32>,
    /// KV blocks that no request uses; `kv_utilization` is 1 minus their share of `total_kv_blocks`. A column over the
    /// instances. One or more.
    pub free_kv_blocks: Vec<u32>,
    /// Prefix-cache hit rate since the start. A column over the instances. Always if `reading` is `1`. One or more.
    /// Unit: share, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_hit_rate: Option<Vec<f64>>,
    /// Preemptions since the start. A column over the instances. Always if `reading` is `1`. One or more. Unit: events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preemption_count: Option<Vec<u64>>,
    /// Prompt tokens of the requests in the waiting queue, if a policy reads them. A column over the instances. One or
    /// more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_tokens: Option<Vec<u64>>,
}

/// The signals of a decision: see [`RoutingLine`] for the fields.
#[derive(Clone, Copy, Debug)]
pub struct DecisionSignals<'a> {
    pub reading: Option<u64>,
    pub reading_age_us: Option<u64>,
    pub in_flight: Option<&'a [u32]>,
    pub cached_blocks: Option<&'a [u32]>,
    pub cached_blocks_age_us: Option<u64>,
    pub in_flight_tokens: Option<&'a [u64]>,
    pub in_flight_output: Option<&'a [u64]>,
    pub ttft_ewma_us: Option<&'a [f64]>,
    pub itl_ewma_us: Option<&'a [f64]>,
    pub adapter_active: Option<&'a [u32]>,
    pub adapter_waiting: Option<&'a [u32]>,
    pub free_adapter_slots: Option<&'a [u32]>,
    pub unread: &'a [String],
}

/// Lines of decisions that contain the signals of the policy: `before` and `after` these are their own fields.
macro_rules! with_signals {
    ($($(#[$meta:meta])* pub struct $line:ident { before { $($before:tt)* } after { $($after:tt)* } })+) => {$(
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $line {
            $($before)*
            /// The periodic columns that the decision used: `reading` of the latest line `signals`. Beside
            /// `reading_age_us`. Unit: number, 1 or more.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub reading: Option<u64>,
            /// Age of the periodic columns. Beside `reading`.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub reading_age_us: Option<u64>,
            /// Requests in flight on each instance. Always fresh. A column over the instances. One or more. Unit:
            /// requests.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub in_flight: Option<Vec<u32>>,
            /// Leading KV blocks of the prompt in the prefix cache of each instance. A column over the instances.
            /// Beside `cached_blocks_age_us`. One or more.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub cached_blocks: Option<Vec<u32>>,
            /// Age of `cached_blocks`. Beside `cached_blocks`.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub cached_blocks_age_us: Option<u64>,
            /// Uncached prompt tokens of the requests without a first token on each instance, if the policy reads them.
            /// Always fresh. A column over the instances. One or more.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub in_flight_tokens: Option<Vec<u64>>,
            /// Output tokens expected of the requests in flight on each instance, if the policy reads them. Always
            /// fresh. A column over the instances. One or more. Unit: tokens.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub in_flight_output: Option<Vec<u64>>,
            /// Moving average of the times to first token of each instance, if the policy reads it. Always fresh. A
            /// column over the instances. One or more. Unit: µs, 0 or more.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub ttft_ewma_us: Option<Vec<f64>>,
            /// Moving average of the inter-token latencies of each instance, if the policy reads it. Always fresh.
            /// A column over the instances. One or more. Unit: µs, 0 or more.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub itl_ewma_us: Option<Vec<f64>>,
            /// Whether a running request of each instance uses the LoRA adapter of this one, 1 or 0, if the policy
            /// reads it and there are adapters. A column over the instances. One or more. Unit: 1 or 0.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub adapter_active: Option<Vec<u32>>,
            /// Whether a waiting request of each instance names it, 1 or 0, if the policy reads it and there are
            /// adapters. A column over the instances. One or more. Unit: 1 or 0.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub adapter_waiting: Option<Vec<u32>>,
            /// Free slots for LoRA adapters of each instance, if the policy reads them and there are adapters. A column
            /// over the instances. One or more. Unit: slots.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub free_adapter_slots: Option<Vec<u32>>,
            /// Names of those columns that the policy did not read. One of `reading`, `in_flight`.
            #[serde(default, skip_serializing_if = "Vec::is_empty")]
            pub unread: Vec<String>,
            $($after)*
        }

        impl $line {
            /// The signals of the policy.
            #[must_use]
            pub fn seen(&self) -> DecisionSignals<'_> {
                DecisionSignals {
                    reading: self.reading,
                    reading_age_us: self.reading_age_us,
                    in_flight: self.in_flight.as_deref(),
                    cached_blocks: self.cached_blocks.as_deref(),
                    cached_blocks_age_us: self.cached_blocks_age_us,
                    in_flight_tokens: self.in_flight_tokens.as_deref(),
                    in_flight_output: self.in_flight_output.as_deref(),
                    ttft_ewma_us: self.ttft_ewma_us.as_deref(),
                    itl_ewma_us: self.itl_ewma_us.as_deref(),
                    adapter_active: self.adapter_active.as_deref(),
                    adapter_waiting: self.adapter_waiting.as_deref(),
                    free_adapter_slots: self.free_adapter_slots.as_deref(),
                    unread: &self.unread,
                }
            }
        }
    )+};
}

with_signals! {
    /// Decision of the admission policy.
    pub struct AdmissionLine {
        before {
            /// Number of the request. Unit: number.
            pub request: u32,
            /// Time of the decision.
            pub time_us: u64,
            /// Whether it is admitted.
            pub admitted: bool,
            /// Reason that the policy gives.
            #[serde(default, skip_serializing_if = "String::is_empty")]
            pub reason: String,
            /// Tokens of its prompt.
            pub input_tokens: u32,
            /// The client's limit of output tokens.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub max_output_tokens: Option<u32>,
            /// Deadline of the client.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub deadline_us: Option<u64>,
            /// Name of its SLO class.
            #[serde(default, skip_serializing_if = "String::is_empty")]
            pub class: String,
            /// Name of its tenant.
            #[serde(default, skip_serializing_if = "String::is_empty")]
            pub tenant: String,
            /// The model that the request names.
            #[serde(default, skip_serializing_if = "String::is_empty")]
            pub model: String,
            /// Requests of its tenant in flight, if the policy reads requests in flight. Unit: requests.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub tenant_in_flight: Option<u32>,
        }
        after {}
    }

    /// Decision of the routing policy.
    pub struct RoutingLine {
        before {
            /// Number of the request. Unit: number.
            pub request: u32,
            /// Time of the decision.
            pub time_us: u64,
            /// The instance that gets the request. Unit: number.
            pub instance: u32,
            /// Reason that the policy gives.
            #[serde(default, skip_serializing_if = "String::is_empty")]
            pub reason: String,
        }
        after {
            /// The policy's score for each instance, higher being better; `null` for instances that do not decode. A
            /// column over the instances. Unit: score.
            #[serde(default, skip_serializing_if = "Vec::is_empty")]
            pub scores: Vec<Option<f64>>,
            /// Best score minus the score of the chosen instance; `null` if that is not a finite number. For a policy
            /// without scores, minus the load (queued plus running plus in flight) replaces the score; with
            /// `--counterfactual-k`. Beside `candidates`. JSON: `Option<Option<f64>>`. Unit: score, 0 or more.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub score_regret: Option<f64>,
            /// The best instances by score, best first. With `--counterfactual-k`. Beside `score_regret`. One or more.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub candidates: Option<Vec<RoutingCandidate>>,
        }
    }
}

/// An instance that could have been chosen.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoutingCandidate {
    /// Number of an instance. Unit: number.
    pub instance: u32,
    /// `null` if the score is not a finite number. Unit: score.
    pub score: Option<f64>,
}

/// Whether the head of a waiting queue enters the running batch, decided at the start of a step. `waits` is recorded
/// only for the first step that leaves the request at the head.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SchedulingLine {
    /// Number of the request. Unit: number.
    pub request: u32,
    /// Time of the decision: the start of the step.
    pub time_us: u64,
    /// Number of an instance. Unit: number.
    pub instance: u32,
    /// Whether it enters or waits; waiting is recorded for the first step that leaves it at the head.
    pub decision: BatchEntry,
    /// Why it waits: the token budget of the step is used up; all batch slots are taken; prefill waits for a later step
    /// (`--prefill-schedule-interval`); blocks of its prompt are read from a lower tier, or written to it; the prompt
    /// must not be chunked and exceeds the rest of the token budget; there are not enough free KV blocks; its LoRA
    /// adapter has no slot, or is not loaded yet. Always if `decision` is `waits`. Only if `decision` is `waits`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub obstacle: Option<BatchObstacle>,
    /// Tokens that it computes in this step; with `unsplit-prompt`, would compute. Always if `decision` is `enters`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub num_tokens: Option<u32>,
    /// Free KV blocks that it would allocate. Only if `decision` is `waits`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needed_kv_blocks: Option<u32>,
    /// KV blocks found in the prefix cache. Always if `decision` is `enters`. Only if `decision` is `enters`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_blocks: Option<u32>,
    /// Time since it (last) joined the queue.
    pub waited_us: u64,
    /// Requests in the queue, this one included. Unit: requests, 1 or more.
    pub waiting: u32,
    /// Requests in the batch, without this one. Unit: requests.
    pub running: u32,
    /// KV blocks that no request uses, before the decision.
    pub free_kv_blocks: u32,
    /// Rest of the step's token budget, before the decision. Unit: tokens.
    pub token_budget: u32,
    /// Its priority: a lower number is served first; absent if 0. Unit: priority.
    #[serde(default, skip_serializing_if = "is_0")]
    pub priority: i64,
    /// Output tokens generated before its preemption; absent if 0.
    #[serde(default, skip_serializing_if = "is_0")]
    pub generated_tokens: u32,
    /// Number of its preemptions; absent if 0. Unit: events.
    #[serde(default, skip_serializing_if = "is_0")]
    pub preemptions: u32,
}

fn is_0<N: Default + PartialEq>(number: &N) -> bool {
    *number == N::default()
}

/// Whether a request enters the running batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BatchEntry {
    /// The request enters the running batch.
    Enters,
    /// It stays at the head of the queue.
    Waits,
}

/// Why a request does not enter the running batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr, VariantArray)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum BatchObstacle {
    /// The step's token budget is used up.
    TokenBudget,
    /// All batch slots are taken.
    BatchFull,
    /// Prefill waits for a later step.
    PrefillInterval,
    /// Blocks of its prompt are read from a lower tier, or written to it.
    KvTransfer,
    /// Its prompt must not be chunked and exceeds the rest of the step's token budget.
    UnsplitPrompt,
    /// Not enough free KV blocks.
    KvBlocks,
    /// Its LoRA adapter has no slot, or is not loaded yet.
    AdapterSlot,
}

impl From<WaitReason> for BatchObstacle {
    fn from(reason: WaitReason) -> Self {
        match reason {
            WaitReason::TokenBudget => Self::TokenBudget,
            WaitReason::BatchFull => Self::BatchFull,
            WaitReason::PrefillInterval => Self::PrefillInterval,
            WaitReason::KvTransfer => Self::KvTransfer,
            WaitReason::UnsplitPrompt { .. } => Self::UnsplitPrompt,
            WaitReason::KvBlocks { .. } => Self::KvBlocks,
            WaitReason::AdapterSlot => Self::AdapterSlot,
        }
    }
}

/// A request is preempted because another needs KV blocks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PreemptionLine {
    /// Number of the preempted request. Unit: number.
    pub request: u32,
    /// Time of the decision: the start of the step.
    pub time_us: u64,
    /// Number of an instance. Unit: number.
    pub instance: u32,
    /// Number of the request that needs KV blocks; it may be the same. Unit: number.
    pub wanting: u32,
    /// KV blocks that it needs beyond those that it has. Unit: blocks, 1 or more.
    pub needed_kv_blocks: u32,
    /// KV blocks that no request uses, before the decision.
    pub free_kv_blocks: u32,
    /// Requests in the queue before the preempted one returns to it. Unit: requests.
    pub waiting: u32,
    /// Requests in the batch, the preempted one included. Unit: requests, 1 or more.
    pub running: u32,
    /// Tokens of the preempted request that were computed. They are computed again, except those in the prefix cache.
    pub computed_tokens: u32,
    /// Output tokens of the preempted request.
    pub generated_tokens: u32,
    /// Number of its earlier preemptions; absent if 0. Unit: events.
    #[serde(default, skip_serializing_if = "is_0")]
    pub preemptions: u32,
}

/// A policy decides whether a request loads what the CPU tier has for it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoadLine {
    /// Number of the request. Unit: number.
    pub request: u32,
    /// Time of the decision: the start of a step.
    pub time_us: u64,
    /// Number of an instance. Unit: number.
    pub instance: u32,
    /// Whether it is loaded; if not, the request computes it.
    pub loads: bool,
    /// Tokens of the prompt that the GPU has.
    pub gpu_tokens: u32,
    /// Tokens behind them that the tier has. Unit: tokens, 1 or more.
    pub tokens: u32,
    /// Size of these on the link of one GPU. Unit: bytes.
    pub bytes: u64,
    /// Bytes of loads that are queued or in progress, on the link of one GPU; absent if 0.
    #[serde(default, skip_serializing_if = "is_0")]
    pub queued_bytes: u64,
    /// Prompt tokens that the requests of the batch still have to compute; absent if 0.
    #[serde(default, skip_serializing_if = "is_0")]
    pub prefill_tokens: u64,
    /// Requests in the queue, this one included. Unit: requests.
    pub waiting: u32,
    /// Requests in the running batch. Unit: requests.
    pub running: u32,
}

/// A policy decides which LoRA adapter makes room for that of a request which enters the batch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdapterEvictionLine {
    /// Number of the request. Unit: number.
    pub request: u32,
    /// Time of the decision: the start of a step.
    pub time_us: u64,
    /// Number of an instance. Unit: number.
    pub instance: u32,
    /// The adapter of the request, which needs the room.
    pub adapter: String,
    /// Where room is made: in the slots on the GPU, or in the host's memory.
    pub from: AdapterRoom,
    /// The adapter that makes room.
    pub evicted: String,
    /// The adapters that could make room, the least recently used first. Two or more.
    pub candidates: Vec<RankedAdapterLine>,
}

/// Where an adapter makes room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AdapterRoom {
    /// In a slot on the GPU.
    Gpu,
    /// In the host's memory.
    Host,
}

/// An adapter that could make room.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RankedAdapterLine {
    /// Its name.
    pub adapter: String,
    /// The policy's rank, of which the smallest makes room; `null` if it is not finite. Unit: rank.
    pub rank: Option<f64>,
}

/// Which instance prefills a request, and which decodes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PrefillLine {
    /// Number of the request. Unit: number.
    pub request: u32,
    /// Time of the decision.
    pub time_us: u64,
    /// Length of the prompt, tokens.
    pub input_tokens: u32,
    /// The instance that decodes it. Unit: number.
    pub decode: u32,
    /// Whether another instance prefills it.
    pub remote: bool,
    /// That instance, if it is known already. Unit: number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefill: Option<u32>,
    /// The instance that encodes its images, audio and video first. Unit: number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encode: Option<u32>,
    /// The instances that decode, with the signals that the policy reads.
    pub decodes: Vec<PoolInstanceLine>,
    /// The instances that prefill, with the same signals.
    pub prefills: Vec<PoolInstanceLine>,
}

/// An instance that may prefill or decode a request. Signals that the policy does not read are missing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PoolInstanceLine {
    /// Number of an instance. Unit: number.
    pub instance: u32,
    /// Tokens of the prompt that it has not cached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uncached_tokens: Option<u32>,
    /// Prompt tokens in flight there that were not cached, of requests without a first token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_flight_tokens: Option<u64>,
    /// Requests that the router sent and that have not ended. Unit: requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_flight: Option<u32>,
    /// Requests in its waiting queue. Unit: requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_depth: Option<u32>,
    /// Requests in its running batch. Unit: requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch_size: Option<u32>,
    /// Its free KV blocks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free_kv_blocks: Option<u32>,
}

/// The outcome of a request: one line for each. Latencies count from its arrival.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OutcomeLine {
    /// Number of the request. Unit: number.
    pub request: u32,
    /// Time of its end; its arrival if it reached no instance; absent if it had not ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_us: Option<u64>,
    /// The state in which it ended.
    pub status: OutcomeStatus,
    /// The instance that it was routed to, if any. Unit: number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<u32>,
    /// Time of arrival.
    pub arrival_us: u64,
    /// Tokens of its prompt.
    pub input_tokens: u32,
    /// Output tokens that the request asks for.
    pub output_tokens: u32,
    /// Output tokens that were generated.
    pub generated_tokens: u32,
    /// Time to first token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttft_us: Option<u64>,
    /// End-to-end latency of a request that completed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub e2e_us: Option<u64>,
    /// Time from arrival to its (last) entry into the batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduling_delay_us: Option<u64>,
    /// KV blocks of its prompt found in the prefix cache when it first entered the batch; absent if 0.
    #[serde(default, skip_serializing_if = "is_0")]
    pub cached_blocks: u32,
    /// Number of its preemptions; absent if 0. Unit: events.
    #[serde(default, skip_serializing_if = "is_0")]
    pub preemptions: u32,
}

/// The state in which a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr, VariantArray)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum OutcomeStatus {
    /// It has all output tokens.
    Completed,
    /// It reached the maximum length of a sequence.
    LengthCapped,
    TimedOut,
    /// Ended on its instance by the gateway, for a request of higher priority.
    Evicted,
    /// Its prompt alone is too long for the model.
    DroppedPromptTooLong,
    /// Input and output together are too long (BLIS).
    DroppedBudgetTooLong,
    /// The KV cache is too small for it.
    DroppedKvTooSmall,
    /// Prefilled elsewhere: no instance that decodes has the KV blocks for it.
    DroppedNoDecodeBlocks,
    /// In a waiting queue at the end of the simulation.
    Queued,
    /// In a running batch at the end of the simulation.
    Running,
    /// Between client and instance at the end of the simulation.
    Arriving,
    /// In the gateway's queue at the end of the simulation.
    InGateway,
    /// Rejected by the admission policy.
    RejectedByAdmission,
    /// No instance serves its model.
    RejectedByRouting,
    RejectedNoReplica,
    RejectedByServer,
    /// There was no room for it in the gateway's queue.
    RejectedGatewayFull,
    /// It left the gateway's queue for a request of higher priority.
    DisplacedInGateway,
    /// It left the gateway's queue after its time to live.
    ExpiredInGateway,
}

impl From<Status> for OutcomeStatus {
    fn from(status: Status) -> Self {
        match status {
            Status::Completed => Self::Completed,
            Status::LengthCapped => Self::LengthCapped,
            Status::TimedOut => Self::TimedOut,
            Status::Evicted => Self::Evicted,
            Status::Dropped(DropReason::PromptTooLong) => Self::DroppedPromptTooLong,
            Status::Dropped(DropReason::BudgetTooLong) => Self::DroppedBudgetTooLong,
            Status::Dropped(DropReason::KvTooSmall) => Self::DroppedKvTooSmall,
            Status::Dropped(DropReason::NoDecodeBlocks) => Self::DroppedNoDecodeBlocks,
            Status::Queued => Self::Queued,
            Status::Running => Self::Running,
            Status::Arriving => Self::Arriving,
            Status::InGateway => Self::InGateway,
            Status::Rejected(Rejection::Admission) => Self::RejectedByAdmission,
            Status::Rejected(Rejection::Routing) => Self::RejectedByRouting,
            Status::Rejected(Rejection::NoReplica) => Self::RejectedNoReplica,
            Status::Rejected(Rejection::Server) => Self::RejectedByServer,
            Status::Rejected(Rejection::GatewayFull) => Self::RejectedGatewayFull,
            Status::Rejected(Rejection::GatewayDisplaced) => Self::DisplacedInGateway,
            Status::Rejected(Rejection::GatewayExpired) => Self::ExpiredInGateway,
        }
    }
}

/// The last line of a complete file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct End {
    /// Number of lines before it.
    pub lines: u64,
}
