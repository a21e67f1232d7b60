//! What a line says. Names and units are those of the file; times are µs on the clock of the simulation.

use serde::{Deserialize, Serialize};

/// A line of a trace.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Line {
    /// What instances reported when that was read anew.
    Signals(Signals),
    /// Whether a request may enter the service.
    Admission(Admission),
    Routing(Routing),
    /// Whether it enters the batch.
    Scheduling(Scheduling),
    /// It leaves the batch.
    Preemption(Preemption),
    Outcome(Outcome),
}

/// The kinds of lines that can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Signals,
    Admission,
    Routing,
    Scheduling,
    Preemption,
    Outcome,
}

impl Kind {
    pub const ALL: [Self; 6] =
        [Self::Signals, Self::Admission, Self::Routing, Self::Scheduling, Self::Preemption, Self::Outcome];

    /// As the file has it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Signals => "signals",
            Self::Admission => "admission",
            Self::Routing => "routing",
            Self::Scheduling => "scheduling",
            Self::Preemption => "preemption",
            Self::Outcome => "outcome",
        }
    }
}

impl Line {
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::Signals(_) => Kind::Signals,
            Self::Admission(_) => Kind::Admission,
            Self::Routing(_) => Kind::Routing,
            Self::Scheduling(_) => Kind::Scheduling,
            Self::Preemption(_) => Kind::Preemption,
            Self::Outcome(_) => Kind::Outcome,
        }
    }

    /// The request it is about.
    #[must_use]
    pub fn request(&self) -> Option<u32> {
        match self {
            Self::Signals(_) => None,
            Self::Admission(line) => Some(line.request),
            Self::Routing(line) => Some(line.request),
            Self::Scheduling(line) => Some(line.request),
            Self::Preemption(line) => Some(line.request),
            Self::Outcome(line) => Some(line.request),
        }
    }

    /// The one instance it is about.
    #[must_use]
    pub fn instance(&self) -> Option<u32> {
        match self {
            Self::Signals(_) | Self::Admission(_) => None,
            Self::Routing(line) => Some(line.instance),
            Self::Scheduling(line) => Some(line.instance),
            Self::Preemption(line) => Some(line.instance),
            Self::Outcome(line) => line.instance,
        }
    }

    /// When it happened; `None` of a request that had not ended.
    #[must_use]
    pub fn time_us(&self) -> Option<u64> {
        match self {
            Self::Signals(line) => Some(line.time_us),
            Self::Admission(line) => Some(line.time_us),
            Self::Routing(line) => Some(line.time_us),
            Self::Scheduling(line) => Some(line.time_us),
            Self::Preemption(line) => Some(line.time_us),
            Self::Outcome(line) => line.time_us,
        }
    }
}

/// The first line: what was simulated, and by whom it was decided.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    pub format: String,
    pub version: u32,
    /// The program that wrote it, and its version.
    pub program: String,
    /// SHA-256 of everything the simulation depends on, without where it comes from and without what
    /// is only written or judged.
    pub config_sha256: String,
    /// Seed of everything random.
    pub seed: u64,
    pub model: String,
    pub hardware: String,
    /// The workload, for people.
    pub workload: String,
    pub policies: PolicyNames,
    /// From arrival to admission.
    pub admission_latency_us: u64,
    /// From admission to routing.
    pub routing_latency_us: u64,
    /// Age at which the periodic columns are read anew; 0 for always fresh.
    pub snapshot_refresh_interval_us: u64,
    /// Age at which the contents of prefix caches are read anew; 0 for always fresh.
    pub cache_signal_delay_us: u64,
    /// How many candidates are listed with a routing decision.
    pub counterfactual_k: u32,
    /// The instances by number, those that are alike together.
    pub instances: Vec<InstanceGroup>,
}

/// The names of the policies: built in, or of a plugin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyNames {
    pub admission: String,
    /// Where a request goes.
    pub routing: String,
    /// How urgent it is there.
    pub priority: String,
    /// Order of the wait queues.
    pub scheduling: String,
    /// Who leaves the batch.
    pub preemption: String,
}

/// Instances that are alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InstanceGroup {
    /// Number of the first.
    pub first: u32,
    /// How many, numbered one after the other.
    pub count: u32,
    /// Most requests in the batch.
    pub max_num_seqs: u32,
    /// Token budget of a step.
    pub max_num_batched_tokens: u32,
    /// Size of the KV cache, blocks.
    pub total_kv_blocks: u32,
    /// Tokens in one of them.
    pub block_size: u32,
}

/// The periodic columns, over instances. In the file, two of them are left out where they are as in the line
/// before.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Signals {
    /// Its number, from 1.
    pub reading: u64,
    /// When they were read.
    pub time_us: u64,
    /// Requests in the wait queue.
    pub queue_depth: Vec<u32>,
    /// Requests in the batch.
    pub batch_size: Vec<u32>,
    /// KV blocks nobody holds.
    pub free_kv_blocks: Vec<u32>,
    /// Share of prefix-cache look-ups that hit, since the start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_hit_rate: Option<Vec<f64>>,
    /// Requests thrown out of the batch since the start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preemption_count: Option<Vec<u64>>,
}

/// Whether a request may enter the service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Admission {
    /// Number of the request.
    pub request: u32,
    /// When it was decided.
    pub time_us: u64,
    pub admitted: bool,
    /// Why, if the policy says so.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Length of the prompt, tokens.
    pub input_tokens: u32,
    /// The client's budget for the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_output_tokens: Option<u32>,
    /// When the client gives up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_us: Option<u64>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub class: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub tenant: String,
    /// The model it asks for.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub model: String,
    /// Requests of its tenant in flight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant_in_flight: Option<u32>,
    /// The periodic columns: number of their [`Signals`] line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reading: Option<u64>,
    /// How old they were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reading_age_us: Option<u64>,
    /// Requests handed to each instance and not yet answered. Always fresh.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_flight: Option<Vec<u32>>,
    /// Leading blocks of the prompt in the prefix cache of each instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_blocks: Option<Vec<u32>>,
    /// How old that was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_blocks_age_us: Option<u64>,
    /// What of that the policy did not look at.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unread: Vec<String>,
}

/// What of the service was up to date at a decision: see [`Routing`].
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    pub reading: Option<u64>,
    pub reading_age_us: Option<u64>,
    pub in_flight: Option<&'a [u32]>,
    pub cached_blocks: Option<&'a [u32]>,
    pub cached_blocks_age_us: Option<u64>,
    pub unread: &'a [String],
}

macro_rules! seen {
    ($($line:ty),+) => {$(
        impl $line {
            /// What the policy saw.
            #[must_use]
            pub fn seen(&self) -> Seen<'_> {
                Seen {
                    reading: self.reading,
                    reading_age_us: self.reading_age_us,
                    in_flight: self.in_flight.as_deref(),
                    cached_blocks: self.cached_blocks.as_deref(),
                    cached_blocks_age_us: self.cached_blocks_age_us,
                    unread: &self.unread,
                }
            }
        }
    )+};
}

seen!(Admission, Routing);

/// Which instance serves a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Routing {
    /// Number of the request.
    pub request: u32,
    /// When it was decided.
    pub time_us: u64,
    /// The instance that gets the request.
    pub instance: u32,
    /// Why, if the policy says so.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The periodic columns: number of their [`Signals`] line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reading: Option<u64>,
    /// How old they were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reading_age_us: Option<u64>,
    /// Requests handed to each instance and not yet answered. Always fresh.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_flight: Option<Vec<u32>>,
    /// Leading blocks of the prompt in the prefix cache of each instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_blocks: Option<Vec<u32>>,
    /// How old that was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_blocks_age_us: Option<u64>,
    /// What of that the policy did not look at.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unread: Vec<String>,
    /// The policy's score for each instance; `None` where it is no number.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scores: Vec<Option<f64>>,
    /// How far the chosen instance is below the best score. Of a policy without scores: of minus the load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score_regret: Option<f64>,
    /// The best instances by score.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub candidates: Option<Vec<Candidate>>,
}

/// An instance that could have been chosen.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Candidate {
    pub instance: u32,
    /// Its score; `None` where it is no number.
    pub score: Option<f64>,
}

/// Whether the head of a wait queue enters the batch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scheduling {
    /// Number of the request.
    pub request: u32,
    /// When: the start of a step.
    pub time_us: u64,
    /// The instance in whose queue it waits.
    pub instance: u32,
    /// It enters, or waits: told for the first step that leaves it at the head.
    pub answer: Answer,
    /// Why it is not in the running batch yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub obstacle: Option<Obstacle>,
    /// Tokens it computes in this step, or would.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub num_tokens: Option<u32>,
    /// KV blocks it would take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needed_kv_blocks: Option<u32>,
    /// KV blocks found in the prefix cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_blocks: Option<u32>,
    /// Since it joined the queue.
    pub waited_us: u64,
    /// Requests in the queue, with it.
    pub waiting: u32,
    /// Requests in the batch, without it.
    pub running: u32,
    /// KV blocks nobody holds.
    pub free_kv_blocks: u32,
    /// What is left of the step's token budget.
    pub token_budget: u32,
    /// Its priority: lower is more urgent.
    #[serde(default, skip_serializing_if = "is_0")]
    pub priority: i64,
    /// Tokens it got before it was thrown out.
    #[serde(default, skip_serializing_if = "is_0")]
    pub generated_tokens: u32,
    /// How often it was thrown out.
    #[serde(default, skip_serializing_if = "is_0")]
    pub preemptions: u32,
}

fn is_0<N: Default + PartialEq>(number: &N) -> bool {
    *number == N::default()
}

/// Whether a request enters the batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// The request enters the running batch.
    Enters,
    /// It stays at the head of the queue.
    Waits,
}

/// Why a request does not enter the batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Obstacle {
    /// The step's tokens are used up.
    TokenBudget,
    /// Every place is taken.
    BatchFull,
    /// Its prompt must not be split and exceeds what is left of the step's tokens.
    UnsplitPrompt,
    /// Not enough free KV blocks.
    KvBlocks,
}

/// A request leaves the batch, so that another can go on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Preemption {
    /// The one that leaves.
    pub request: u32,
    /// When: the start of a step.
    pub time_us: u64,
    /// The instance whose running batch it leaves.
    pub instance: u32,
    /// The one that needs room; may be the same.
    pub wanting: u32,
    /// KV blocks that one needs.
    pub needed_kv_blocks: u32,
    /// KV blocks nobody holds.
    pub free_kv_blocks: u32,
    /// Requests in the queue before it comes back to it.
    pub waiting: u32,
    /// Requests in the batch, with it.
    pub running: u32,
    /// Tokens it had computed.
    pub computed_tokens: u32,
    /// Tokens it had got.
    pub generated_tokens: u32,
    /// How often it had been thrown out before.
    #[serde(default, skip_serializing_if = "is_0")]
    pub preemptions: u32,
}

/// How a request ended. Latencies count from its arrival.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Outcome {
    /// Number of the request.
    pub request: u32,
    /// When, if it had ended. Its arrival if it was rejected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_us: Option<u64>,
    pub status: Status,
    /// Where, if it reached an instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<u32>,
    /// Time of arrival, µs.
    pub arrival_us: u64,
    /// Length of the prompt, tokens.
    pub input_tokens: u32,
    /// Tokens it asked for.
    pub output_tokens: u32,
    /// Output tokens that were generated.
    pub generated_tokens: u32,
    /// Time to first token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttft_us: Option<u64>,
    /// End-to-end latency, if it completed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub e2e_us: Option<u64>,
    /// Until it entered the batch, the last time if it was thrown out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduling_delay_us: Option<u64>,
    /// KV blocks of its prompt found in the prefix cache, when it first entered the batch.
    #[serde(default, skip_serializing_if = "is_0")]
    pub cached_blocks: u32,
    /// How often it was thrown out of the batch.
    #[serde(default, skip_serializing_if = "is_0")]
    pub preemptions: u32,
}

/// How a request ended, in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// It got all it asked for.
    Completed,
    /// It reached the longest sequence there may be.
    LengthCapped,
    /// Its client gave up.
    TimedOut,
    /// Its prompt alone is too long for the model.
    DroppedPromptTooLong,
    /// Prompt and answer are (BLIS).
    DroppedBudgetTooLong,
    /// The KV cache is too small for it.
    DroppedKvTooSmall,
    /// In a wait queue at the end of the simulation.
    Queued,
    /// In a batch at the end of the simulation.
    Running,
    /// On its way at the end of the simulation.
    Arriving,
    /// By the admission policy.
    RejectedByAdmission,
    /// Nobody serves its model.
    RejectedByRouting,
}

/// The last line of a complete file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct End {
    /// Number of lines before it.
    pub lines: u64,
}
