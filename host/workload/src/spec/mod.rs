//! Workload specifications: many clients, each with its own arrivals, lengths and sessions, in one YAML file.
//!
//! ```text
//! file ─ parse ──────────┐
//! ServeGen folder ───────┤→ Spec: clients, cohorts → expand → a Plan per client → generate → requests
//! inference-perf stages ─┤          (as specified)            (rates, windows)     (merged, one at a time)
//! named workloads ───────┘                                                              ↑ session
//! ```
//!
//! The schema is that of BLIS, versions 1 and 2. Request `n` of a client depends on the seed, the client's id and `n`;
//! other clients only affect its share of the rate.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use blis_sim::units::Micros;

pub mod arrival;
mod chats;
mod cohort;
pub mod compose;
mod drawn;
mod error;
mod expand;
pub mod files;
mod generate;
mod immediate;
mod inference_perf;
mod lengths;
mod numbers;
mod parse;
pub mod presets;
mod prompts;
mod raw;
mod read;
mod sampling;
mod servegen;
pub mod session;
mod source;
mod write;

pub use arrival::Arrival;
pub use cohort::{Diurnal, DrainSpec, PrefixSharing, Spike};
pub use error::{ExpandError, SpecFileError};
pub use files::{Beside, Files, NoFiles};
pub use generate::{DrawnRequest, Requests};
pub use lengths::{Empirical, LONGEST, Lengths};
pub use prompts::PromptCycle;
pub use sampling::ClientSampling;
pub use servegen::ServeGenReading;

use super::trace_v2::GoodputTargets;
use super::{MaxTokens, Names, Skipped, Workload, closed_loop};

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Spec {
    /// Seed of all random numbers, if the file has one.
    pub seed: Option<u64>,
    /// `language`, `multimodal`, `reasoning` or empty. A label without effect.
    pub category: String,
    /// Requests per second of all clients together; 0: every window has its own rate.
    pub aggregate_rate: f64,
    /// Maximum number of requests; `None` for no limit.
    pub num_requests: Option<u64>,
    /// No request arrives at this time or later.
    pub horizon: Option<Micros>,
    pub clients: Vec<Client>,
    /// Groups of clients that are alike.
    pub cohorts: Vec<Cohort>,
    /// Parts with their own rate, number of requests and horizon. A client belongs to at most one of them.
    pub parts: Vec<Part>,
    /// Latency targets by class.
    pub goodput_slo_targets: BTreeMap<String, GoodputTargets>,
    /// Warnings about settings that may have unexpected effects: (what, hint).
    pub warnings: Vec<(String, String)>,
}

/// Clients that share a rate of their own: one of several specifications before they were composed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Part {
    /// Name by which clients and cohorts refer to it.
    pub name: String,
    /// As [`Spec::aggregate_rate`], for its clients.
    pub aggregate_rate: f64,
    /// Maximum number of requests of its clients.
    pub num_requests: Option<u64>,
    /// None of its requests arrives at this time or later.
    pub horizon: Option<Micros>,
}

/// A sender of requests.
#[derive(Clone, Debug, PartialEq)]
pub struct Client {
    pub id: String,
    /// Index in [`Spec::parts`]; `None`: it shares the rate of the specification.
    pub part: Option<usize>,
    /// Tenant of its requests, for budgets and fairness.
    pub tenant_id: String,
    /// Service class, by its name in version 2.
    pub slo_class: String,
    pub model: String,
    /// The LoRA adapter that its requests name; empty for the base model.
    pub adapter: String,
    /// How much it sends.
    pub load: ClientLoad,
    /// Distribution of its inter-arrival times.
    pub arrival: Arrival,
    /// Input tokens, without prefix and earlier rounds.
    pub input: Lengths,
    /// Output tokens.
    pub output: Lengths,
    /// The limits of output tokens that its requests announce.
    pub max_tokens: MaxTokens,
    /// Shared prefix of its prompts.
    pub prefix: Option<Prefix>,
    /// Fixed prompts that it sends in turn, instead of a new one for each request.
    pub prompts: Option<PromptCycle>,
    /// The sampling parameters that its requests set.
    pub sampling: ClientSampling,
    /// Whether it reads tokens as they are generated.
    pub streaming: bool,
    /// The network between client and service. It does not affect the simulation, only the latencies that the client
    /// sees.
    pub network: Option<ClientNetwork>,
    /// Windows in which it sends; always, if there is none.
    pub windows: Vec<Window>,
    /// Prompts of several parts, which replace `input`, except in windows with inputs of their own.
    pub multimodal: Option<Multimodal>,
    /// Share of reasoning in the output, percent. Recorded only.
    pub reason_ratio: Option<Lengths>,
    /// Sessions of several requests.
    pub multi_turn: Option<MultiTurn>,
    /// Properties that differ from session to session and from round to round.
    pub turns: Turns,
    /// Timeout of its requests.
    pub timeout: Timeout,
    /// The latency that it expects. Recorded only.
    pub slo_target: Option<Micros>,
    /// Whether the next round of a session waits for the end of the one before.
    pub closed_loop: bool,
}

/// How much a client sends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ClientLoad {
    /// A share of the aggregate rate, relative to the shares of the others; above 0.
    Share(f64),
    /// A number of concurrent users, each with one request at a time.
    Users {
        /// Number of concurrent users, at least 1.
        count: u32,
        /// Think time of a user between the end of a request and the next one.
        think_time: Micros,
    },
    /// A fixed number of concurrent sessions, at least 1: where one ends, the next begins.
    Sessions(u32),
}

impl ClientLoad {
    /// Weight in the aggregate rate; 0 if the load does not depend on it.
    #[must_use]
    pub fn share(self) -> f64 {
        match self {
            Self::Share(share) => share,
            Self::Users { .. } | Self::Sessions(_) => 0.0,
        }
    }

    /// Whether the load is a number of concurrent users or sessions, and not a rate.
    #[must_use]
    pub fn is_concurrency(self) -> bool {
        matches!(self, Self::Users { .. } | Self::Sessions(_))
    }
}

/// A shared prefix: the requests of one group start with the same tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// Name of the group.
    pub group: String,
    /// Length, tokens; the length in the group's first client counts for all.
    pub tokens: u32,
}

/// The network between client and service.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ClientNetwork {
    /// Round-trip time, ms, at least 0.
    pub rtt_ms: f64,
    /// Bandwidth, Mbit/s; 0 for unlimited.
    pub bandwidth_mbps: f64,
}

impl ClientNetwork {
    /// Transfer time of `tokens` tokens of four bytes each, s.
    #[must_use]
    pub fn transfer_secs(&self, tokens: u32) -> f64 {
        if self.bandwidth_mbps > 0.0 { f64::from(tokens) * 32.0 / (self.bandwidth_mbps * 1e6) } else { 0.0 }
    }
}

/// A time window in which a client sends.
#[derive(Clone, Debug, PartialEq)]
pub struct Window {
    /// Start of the window.
    pub start: Micros,
    /// End of the window, exclusive; after `start`.
    pub end: Micros,
    /// Rate within the window, if it differs.
    pub rate: WindowRate,
    /// Arrival process within the window, if it differs.
    pub arrival: Option<Arrival>,
    /// Input lengths within the window, if they differ.
    pub input: Option<Lengths>,
    /// Output lengths within the window, if they differ.
    pub output: Option<Lengths>,
    /// Share of reasoning within the window, percent, if it differs.
    pub reason_ratio: Option<Lengths>,
}

/// How much a client sends in a window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum WindowRate {
    /// Its share of the aggregate rate.
    #[default]
    Usual,
    /// `trace_rate`: requests per second in absolute mode, else its weight in the aggregate rate.
    Weight(f64),
    /// Requests per second, independent of other clients.
    Exact(f64),
    /// A fixed number of requests.
    Count(u64),
}

impl Window {
    /// A window from `start` to `end` without other settings.
    #[must_use]
    pub fn usual(start: Micros, end: Micros) -> Self {
        Self { start, end, rate: WindowRate::Usual, arrival: None, input: None, output: None, reason_ratio: None }
    }

    /// Whether it has a rate or distribution of its own.
    fn overrides(&self) -> bool {
        let as_usual = matches!(self.rate, WindowRate::Usual | WindowRate::Exact(_) | WindowRate::Count(_));
        let lengths = [&self.input, &self.output, &self.reason_ratio];
        !as_usual || self.arrival.is_some() || lengths.into_iter().any(Option::is_some)
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.start < other.end && other.start < self.end
    }
}

/// Parts of a prompt, tokens.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Multimodal {
    pub text: Option<Lengths>,
    /// Tokens of one item and number of items, for images, audio and video.
    pub items: [Option<(Lengths, Lengths)>; 3],
}

/// Sessions of several requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MultiTurn {
    /// Number of rounds of a session, at least 1; the maximum if [`Turns::rounds`] gives the number.
    pub max_rounds: u32,
    /// Think time between a round and the next prompt.
    pub think_time: Micros,
    /// Whether a prompt contains the conversation before it.
    pub accumulate: bool,
    /// Whether there is only one session, instead of one per arrival.
    pub single_session: bool,
}

/// Distributions of the properties of sessions that are not all alike.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Turns {
    /// Number of rounds of a session.
    pub rounds: Option<Lengths>,
    /// Think time between a round and the next prompt, ms; replaces [`MultiTurn::think_time`].
    pub think_time_ms: Option<Lengths>,
    /// Tokens in front of the first prompt, which later rounds contain.
    pub opening: Option<Lengths>,
}

/// Timeout of the requests of a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Timeout {
    /// The default: 300 s in closed loop, else no deadline.
    #[default]
    Unsaid,
    /// Requests have no deadline.
    Never,
    /// Requests time out after this duration.
    After(Micros),
}

/// Clients that are alike.
#[derive(Clone, Debug, PartialEq)]
pub struct Cohort {
    /// Their common properties. The share is that of all members together; the windows are not used.
    pub client: Client,
    /// Number of members, 1 to 100 000.
    pub population: u32,
    /// Whether members share their prefix.
    pub prefix_sharing: PrefixSharing,
    /// Load by the hour of the day.
    pub diurnal: Option<Diurnal>,
    /// A phase with its own rate.
    pub spike: Option<Spike>,
    /// A gradual end of the load.
    pub drain: Option<DrainSpec>,
}

impl Client {
    /// A client with a share of the rate and Poisson arrivals.
    #[must_use]
    pub fn new(id: &str, share: f64, input: Lengths, output: Lengths) -> Self {
        Self {
            id: id.to_owned(),
            part: None,
            tenant_id: String::new(),
            slo_class: String::new(),
            model: String::new(),
            adapter: String::new(),
            load: ClientLoad::Share(share),
            arrival: Arrival::Poisson,
            input,
            output,
            max_tokens: MaxTokens::Drawn,
            prefix: None,
            prompts: None,
            sampling: ClientSampling::default(),
            streaming: false,
            network: None,
            windows: Vec::new(),
            multimodal: None,
            reason_ratio: None,
            multi_turn: None,
            turns: Turns::default(),
            timeout: Timeout::Unsaid,
            slo_target: None,
            closed_loop: false,
        }
    }

    /// Whether its requests wait for the end of earlier ones.
    #[must_use]
    pub fn is_closed_loop(&self) -> bool {
        let chats = self.prompts.is_some_and(|cycle| cycle.conversations);
        matches!(self.load, ClientLoad::Users { .. }) || chats || (self.closed_loop && self.multi_turn.is_some())
    }
}

/// Options for generating requests from a [`Spec`].
#[derive(Clone, Copy, Debug)]
pub struct GenerateOptions {
    /// Seed of all random numbers.
    pub seed: u64,
    /// Tokens per KV block of the engine.
    pub block_size: NonZeroU32,
    /// No request arrives at this time or later. [`Micros::MAX`] = no limit.
    pub horizon: Micros,
    /// Maximum number of requests.
    pub num_requests: Option<u64>,
    /// A timeout for all clients, which replaces their own; `Some(None)` for no deadline.
    pub timeout: Option<Option<Micros>>,
    /// As in BLIS: every request announces its output length as limit, and a round of an open session contains the outputs
    /// before it and arrives 1 µs later for each of their tokens.
    pub as_in_blis: bool,
}

impl Spec {
    /// Reads the specification or the ServeGen folder at `path`.
    ///
    /// # Errors
    /// If it cannot be read, is not YAML, or contains an unknown key or an invalid value.
    pub fn load(path: &Path) -> Result<Self, SpecFileError> {
        Self::load_with(path, ServeGenReading::Measured, Beside)
    }

    /// Reads `path`; if it is a ServeGen folder, or refers to one, in the given way. `files_of` gives access to the files of a folder:
    /// that of the specification.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn load_with<F: Files>(
        path: &Path,
        servegen: ServeGenReading,
        files_of: impl FnOnce(PathBuf) -> F,
    ) -> Result<Self, SpecFileError> {
        parse::load(path, servegen, files_of).map(|(spec, ..)| spec)
    }

    /// Parses `text`, the content of `file`. `files` gives access to the files that it refers to.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn parse(file: &str, text: &str, files: &dyn Files) -> Result<Self, SpecFileError> {
        parse::parse(file, text, files)
    }

    /// The first client with requests that wait for the ends of others.
    #[must_use]
    pub fn first_in_closed_loop(&self) -> Option<&Client> {
        let cohorts = self.cohorts.iter().map(|cohort| &cohort.client);
        self.clients.iter().chain(cohorts).find(|client| client.is_closed_loop())
    }

    /// Its keys that are recorded only: they have no effect on a simulation.
    #[must_use]
    pub fn keys_without_effect(&self) -> Vec<&'static str> {
        let clients = || self.clients.iter().chain(self.cohorts.iter().map(|cohort| &cohort.client));
        let any = |has: fn(&Client) -> bool| clients().any(has);
        let keys = [
            ("category", !self.category.is_empty()),
            ("streaming", any(|client| client.streaming)),
            ("network", any(|client| client.network.is_some())),
            ("slo_target_us", any(|client| client.slo_target.is_some())),
            ("reason_ratio_distribution", any(|client| client.reason_ratio.is_some())),
        ];
        keys.into_iter().filter(|&(_, has)| has).map(|(name, _)| name).collect()
    }

    /// The requests. Of closed loops, only those that wait for no other request; the others follow from calls of
    /// [`Requests::ended`].
    ///
    /// # Errors
    /// If the workload has no end, or more requests than 32 bits can number.
    pub fn requests(&self, options: &GenerateOptions) -> Result<(Requests, Names), ExpandError> {
        let expanded = expand::expand(self, options)?;
        Ok(Requests::new(expanded, &self.parts, options))
    }

    /// The requests if every output token takes 1 µs: closed loops without a simulation.
    ///
    /// # Errors
    /// As [`Self::requests`].
    pub fn generate_immediate(&self, options: &GenerateOptions) -> Result<Workload, ExpandError> {
        let (requests, names) = self.requests(options)?;
        Ok(Workload {
            count: None,
            requests: Box::new(immediate::ImmediateRequests::new(requests)),
            follow_ups: None,
            names,
            slo_targets: self.goodput_slo_targets.clone(),
            aside: BTreeSet::new(),
            recorded: Vec::new(),
            skipped: Skipped::default(),
            notes: Vec::new(),
        })
    }

    /// The requests as a workload.
    ///
    /// # Errors
    /// As [`Self::requests`].
    pub fn generate(&self, options: &GenerateOptions) -> Result<Workload, ExpandError> {
        let (requests, names) = self.requests(options)?;
        let count = requests.known_count();
        let (requests, follow_ups): (Box<dyn Iterator<Item = _> + Send>, _) = if self.first_in_closed_loop().is_some() {
            let (requests, follow_ups) = closed_loop::split(requests);
            (Box::new(requests), Some(follow_ups))
        } else {
            (Box::new(requests.map(|drawn| drawn.request)), None)
        };
        Ok(Workload {
            count: count.filter(|_| follow_ups.is_none()),
            requests,
            follow_ups,
            names,
            slo_targets: self.goodput_slo_targets.clone(),
            aside: BTreeSet::new(),
            recorded: Vec::new(),
            skipped: Skipped::default(),
            notes: Vec::new(),
        })
    }
}

#[cfg(test)]
mod tests;
