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

/// The first line: the configuration of the simulation and the names of the policies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DecisionHeader {
    /// The format, which is `blis-decisions`.
    pub format: String,
    /// Version of the format. Unit: number, 1 to 1.
    pub version: u32,
    /// Name and version of the program that wrote the file.
    pub program: String,
    /// SHA-256 of everything that the results of the simulation depend on, the seed included, without the origin of the
    /// settings and without outputs and evaluation: equal digests mean equal simulations.
    pub config_sha256: String,
    /// Seed of all random numbers. Unit: number.
    pub seed: u64,
    /// Model that is served.
    pub model: String,
    /// GPU of the instances.
    pub hardware: String,
    /// Description of the workload for people.
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
    /// The instances in the order of columns; consecutive ones with the same configuration are one entry.
    pub instances: Vec<InstanceGroup>,
}

/// The names of the policies, built in or plugins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyNames {
    /// The admission policy, which admits requests.
    pub admission: String,
    /// The routing policy, which selects the instance.
    pub routing: String,
    /// The priority policy, which orders requests on an instance.
    pub priority: String,
    /// The scheduling policy, which orders the waiting queues.
    pub scheduling: String,
    /// The preemption policy, which selects the victim.
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

/// The periodic signals, one entry per instance. The file leaves out two of the columns where they equal those of the
/// line before.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignalsLine {
    /// Number of the refresh, from 1.
    pub reading: u64,
    /// Time of the refresh.
    pub time_us: u64,
    /// Requests in the waiting queue.
    pub queue_depth: Vec<u32>,
    /// Requests in the running batch.
    pub batch_size: Vec<u32>,
    /// KV blocks that no request uses.
    pub free_kv_blocks: Vec<u32>,
    /// Prefix-cache hit rate since the start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_hit_rate: Option<Vec<f64>>,
    /// Preemptions since the start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preemption_count: Option<Vec<u64>>,
    /// Prompt tokens of the requests in the waiting queue.
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
            /// Number of the [`SignalsLine`] line that holds the periodic signals.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub reading: Option<u64>,
            /// Age of the periodic signals, µs.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub reading_age_us: Option<u64>,
            /// Requests in flight on each instance. Always fresh.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub in_flight: Option<Vec<u32>>,
            /// Leading blocks of the prompt in the prefix cache of each instance.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub cached_blocks: Option<Vec<u32>>,
            /// Age of `cached_blocks`, µs.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub cached_blocks_age_us: Option<u64>,
            /// Uncached prompt tokens of the requests without a first token on each instance.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub in_flight_tokens: Option<Vec<u64>>,
            /// Output tokens expected of the requests in flight on each instance.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub in_flight_output: Option<Vec<u64>>,
            /// Moving average of the times to first token of each instance, µs.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub ttft_ewma_us: Option<Vec<f64>>,
            /// Moving average of the inter-token latencies of each instance, µs.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub itl_ewma_us: Option<Vec<f64>>,
            /// Whether a running request of each instance uses the LoRA adapter of this one, 1 or 0.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub adapter_active: Option<Vec<u32>>,
            /// Whether a waiting request of each instance names it, 1 or 0.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub adapter_waiting: Option<Vec<u32>>,
            /// Free slots for adapters of each instance.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub free_adapter_slots: Option<Vec<u32>>,
            /// Names of those signals that the policy did not read.
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
            /// Number of the request.
            pub request: u32,
            /// Time of the decision.
            pub time_us: u64,
            pub admitted: bool,
            /// Reason, if the policy gives one.
            #[serde(default, skip_serializing_if = "String::is_empty")]
            pub reason: String,
            /// Length of the prompt, tokens.
            pub input_tokens: u32,
            /// The client's limit of output tokens.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub max_output_tokens: Option<u32>,
            /// Deadline of the client, µs.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub deadline_us: Option<u64>,
            #[serde(default, skip_serializing_if = "String::is_empty")]
            pub class: String,
            #[serde(default, skip_serializing_if = "String::is_empty")]
            pub tenant: String,
            /// The model that the request names.
            #[serde(default, skip_serializing_if = "String::is_empty")]
            pub model: String,
            /// Requests in flight of the same tenant.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub tenant_in_flight: Option<u32>,
        }
        after {}
    }

    /// Decision of the routing policy.
    pub struct RoutingLine {
        before {
            /// Number of the request.
            pub request: u32,
            /// Time of the decision.
            pub time_us: u64,
            /// The instance that gets the request.
            pub instance: u32,
            /// Reason, if the policy gives one.
            #[serde(default, skip_serializing_if = "String::is_empty")]
            pub reason: String,
        }
        after {
            /// The policy's score for each instance; `None` if it is not a finite number.
            #[serde(default, skip_serializing_if = "Vec::is_empty")]
            pub scores: Vec<Option<f64>>,
            /// Best score minus the score of the chosen instance. Without scores, minus the load replaces the score.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub score_regret: Option<f64>,
            /// The instances with the best scores.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub candidates: Option<Vec<RoutingCandidate>>,
        }
    }
}

/// An instance that could have been chosen.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoutingCandidate {
    pub instance: u32,
    /// Its score; `None` if it is not a finite number.
    pub score: Option<f64>,
}

/// Decision whether the request at the head of a waiting queue enters the running batch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SchedulingLine {
    /// Number of the request.
    pub request: u32,
    /// Time of the decision: the start of a step.
    pub time_us: u64,
    /// The instance that has the queue.
    pub instance: u32,
    /// Whether it enters or waits; waiting is recorded for the first step that leaves it at the head.
    pub decision: BatchEntry,
    /// Why it is not in the running batch yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub obstacle: Option<BatchObstacle>,
    /// Tokens that it computes in this step, or would compute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub num_tokens: Option<u32>,
    /// KV blocks that it would allocate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needed_kv_blocks: Option<u32>,
    /// KV blocks found in the prefix cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_blocks: Option<u32>,
    /// Time since it joined the queue, µs.
    pub waited_us: u64,
    /// Requests in the queue, this one included.
    pub waiting: u32,
    /// Requests in the running batch, without this one.
    pub running: u32,
    /// KV blocks that no request uses.
    pub free_kv_blocks: u32,
    /// Rest of the step's token budget.
    pub token_budget: u32,
    /// Its priority: a lower number is served first.
    #[serde(default, skip_serializing_if = "is_0")]
    pub priority: i64,
    /// Output tokens generated before its preemption.
    #[serde(default, skip_serializing_if = "is_0")]
    pub generated_tokens: u32,
    /// Number of its preemptions.
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

/// A request is preempted, so that another can continue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PreemptionLine {
    /// Number of the preempted request.
    pub request: u32,
    /// Time of the decision: the start of a step.
    pub time_us: u64,
    /// The instance that has the running batch.
    pub instance: u32,
    /// Number of the request that needs KV blocks; may be the same.
    pub wanting: u32,
    /// KV blocks that it needs.
    pub needed_kv_blocks: u32,
    /// KV blocks that no request uses.
    pub free_kv_blocks: u32,
    /// Requests in the queue before the preempted one returns to it.
    pub waiting: u32,
    /// Requests in the running batch, the preempted one included.
    pub running: u32,
    /// Tokens of the preempted request that were computed.
    pub computed_tokens: u32,
    /// Output tokens of the preempted request.
    pub generated_tokens: u32,
    /// Number of its earlier preemptions.
    #[serde(default, skip_serializing_if = "is_0")]
    pub preemptions: u32,
}

/// A policy decides whether a request loads what the CPU tier has for it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoadLine {
    /// Number of the request.
    pub request: u32,
    /// Time of the decision: the start of a step.
    pub time_us: u64,
    /// The instance that has the tier.
    pub instance: u32,
    /// Whether it is loaded; if not, the request computes it.
    pub loads: bool,
    /// Tokens of the prompt that the GPU has.
    pub gpu_tokens: u32,
    /// Tokens behind them that the tier has.
    pub tokens: u32,
    /// Size of these on the link of one GPU, bytes.
    pub bytes: u64,
    /// Bytes of loads that are queued or in progress, on the link of one GPU.
    #[serde(default, skip_serializing_if = "is_0")]
    pub queued_bytes: u64,
    /// Prompt tokens that the requests of the batch still have to compute.
    #[serde(default, skip_serializing_if = "is_0")]
    pub prefill_tokens: u64,
    /// Requests in the queue, this one included.
    pub waiting: u32,
    /// Requests in the running batch.
    pub running: u32,
}

/// A policy decides which LoRA adapter makes room for that of a request which enters the batch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdapterEvictionLine {
    /// Number of the request.
    pub request: u32,
    /// Time of the decision: the start of a step.
    pub time_us: u64,
    /// The instance that holds the adapters.
    pub instance: u32,
    /// The adapter of the request, which needs the room.
    pub adapter: String,
    /// Where room is made.
    pub from: AdapterRoom,
    /// The adapter that makes room.
    pub evicted: String,
    /// Those that could, two or more, the least recently used first.
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
    /// The policy's rank, of which the smallest makes room; `null` if it is not finite.
    pub rank: Option<f64>,
}

/// Which instance prefills a request, and which decodes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PrefillLine {
    /// Number of the request.
    pub request: u32,
    /// Time of the decision.
    pub time_us: u64,
    /// Length of the prompt, tokens.
    pub input_tokens: u32,
    /// The instance that decodes it.
    pub decode: u32,
    /// Whether another instance prefills it.
    pub remote: bool,
    /// That instance, if it is known already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefill: Option<u32>,
    /// The instance that encodes its images, audio and video first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encode: Option<u32>,
    /// The instances that decode, as the policy saw them.
    pub decodes: Vec<PoolInstanceLine>,
    /// Those that prefill.
    pub prefills: Vec<PoolInstanceLine>,
}

/// An instance that may prefill or decode a request. Signals that the policy does not read are missing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PoolInstanceLine {
    /// Number of the instance.
    pub instance: u32,
    /// Tokens of the prompt that it has not cached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uncached_tokens: Option<u32>,
    /// Prompt tokens in flight there that were not cached, of requests without a first token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_flight_tokens: Option<u64>,
    /// Requests that the router sent and that have not ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_flight: Option<u32>,
    /// Requests in its waiting queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_depth: Option<u32>,
    /// Requests in its running batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch_size: Option<u32>,
    /// Its free KV blocks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free_kv_blocks: Option<u32>,
}

/// How a request ended. Latencies count from its arrival, in µs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OutcomeLine {
    /// Number of the request.
    pub request: u32,
    /// Time of its end, if it had ended; its arrival if it was rejected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_us: Option<u64>,
    pub status: OutcomeStatus,
    /// The instance that it was routed to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<u32>,
    /// Time of arrival, µs.
    pub arrival_us: u64,
    /// Length of the prompt, tokens.
    pub input_tokens: u32,
    /// Output tokens that the request asks for.
    pub output_tokens: u32,
    /// Output tokens that were generated.
    pub generated_tokens: u32,
    /// Time to first token, µs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttft_us: Option<u64>,
    /// End-to-end latency, if it completed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub e2e_us: Option<u64>,
    /// From arrival to its (last) entry into the running batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduling_delay_us: Option<u64>,
    /// KV blocks of its prompt found in the prefix cache when it first entered the batch.
    #[serde(default, skip_serializing_if = "is_0")]
    pub cached_blocks: u32,
    /// Number of its preemptions.
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
