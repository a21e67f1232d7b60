//! Workload specifications: many clients, each with its own arrivals, lengths and sessions, in one
//! YAML file.
//!
//! ```text
//! file ─ parse ──────────┐
//! ServeGen folder ───────┤→ Spec: clients, cohorts → expand → a Plan per client → generate → requests
//! inference-perf stages ─┤          (what was said)           (rates, windows)     (merged, one at a time)
//! named workloads ───────┘                                                              ↑ session
//! ```
//!
//! The schema is that of BLIS, versions 1 and 2. What request `n` of a client is depends on the
//! seed, the client's id and `n`, and on no other client but through the share of the rate.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::path::Path;

use blis_sim::units::Micros;

mod answered;
pub mod arrival;
mod cohort;
pub mod compose;
mod drawn;
mod error;
mod expand;
pub mod files;
mod generate;
mod inference_perf;
mod lengths;
mod numbers;
mod parse;
pub mod presets;
mod raw;
mod read;
mod servegen;
pub mod session;
mod source;
mod write;

pub use arrival::Arrival;
pub use cohort::{Diurnal, Drain, PrefixSharing, Spike};
pub use error::{ExpandError, SpecFileError};
pub use files::{Beside, Files, NoFiles};
pub use generate::{Drawn, Requests};
pub use lengths::{Empirical, LONGEST, Lengths};
pub use servegen::ServeGenReading;

use super::trace_v2::GoodputTargets;
use super::{Names, Skipped, Workload, closed_loop};

/// A workload as specified.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Spec {
    /// Seed of everything drawn, where it says one.
    pub seed: Option<u64>,
    /// `language`, `multimodal`, `reasoning` or empty. Says what the authors had in mind, no more.
    pub category: String,
    /// Requests per second of all clients together; 0: every window says its own rate.
    pub aggregate_rate: f64,
    /// At most so many; `None` for as many as arrive.
    pub num_requests: Option<u64>,
    /// No request arrives at this time or later.
    pub horizon: Option<Micros>,
    pub clients: Vec<Client>,
    /// Many of a kind.
    pub cohorts: Vec<Cohort>,
    /// Parts with a rate, a number and an end of their own. A client is in one of them, or in none.
    pub parts: Vec<Part>,
    /// Latencies to keep to, by class.
    pub goodput_slo_targets: BTreeMap<String, GoodputTargets>,
    /// What may not be what the author expects: (what, what to do).
    pub warnings: Vec<(String, String)>,
}

/// Clients that share a rate of their own: what was a specification before several were composed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Part {
    /// What its clients and cohorts call it.
    pub name: String,
    /// As [`Spec::aggregate_rate`], of its clients.
    pub aggregate_rate: f64,
    /// At most so many requests of its clients.
    pub num_requests: Option<u64>,
    /// None of its requests arrives at this time or later.
    pub horizon: Option<Micros>,
}

/// One sender of requests.
#[derive(Clone, Debug, PartialEq)]
pub struct Client {
    pub id: String,
    /// Place in [`Spec::parts`]; `None`: the rate of the specification is shared.
    pub part: Option<usize>,
    /// Tenant to whose budget its requests belong.
    pub tenant_id: String,
    /// Service class, of version 2.
    pub slo_class: String,
    /// The model asked for.
    pub model: String,
    /// The LoRA adapter asked for. Not simulated yet.
    pub adapter: String,
    /// How much it sends.
    pub load: Load,
    /// How its requests are spaced.
    pub arrival: Arrival,
    /// Prompt, without prefix and earlier rounds.
    pub input: Lengths,
    /// Answer. The client's budget is the same.
    pub output: Lengths,
    /// What its prompts start with.
    pub prefix: Option<Prefix>,
    /// Whether it reads tokens as they come.
    pub streaming: bool,
    /// The way between client and service. Nothing in a simulation: for the client's view of it.
    pub network: Option<Network>,
    /// When it sends; always, where there is none.
    pub windows: Vec<Window>,
    /// Prompts of several parts; then `input` is not used, but by windows that bring their own.
    pub multimodal: Option<Multimodal>,
    /// Share of the answer that is thought, percent. Recorded only.
    pub reason_ratio: Option<Lengths>,
    /// Sessions of several requests.
    pub multi_turn: Option<MultiTurn>,
    /// What differs from session to session and from turn to turn.
    pub turns: Turns,
    /// How long it waits for an answer.
    pub timeout: Timeout,
    /// Latency it expects. Recorded only.
    pub slo_target: Option<Micros>,
    /// Whether the next round of a session waits for the end of the one before.
    pub closed_loop: bool,
}

/// How much a client sends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Load {
    /// A share of the aggregate rate, relative to those of the others; above 0.
    Share(f64),
    /// So many users, each with one request at a time.
    Users {
        /// Number of concurrent users, at least 1.
        count: u32,
        /// From the end of a request to the next of the user.
        think_time: Micros,
    },
}

/// Requests of one group start with the same tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// Name of the group.
    pub group: String,
    /// Length; that of the group's first client holds for all.
    pub tokens: u32,
}

/// The way between client and service.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Network {
    /// Round trip, ms ≥ 0.
    pub rtt_ms: f64,
    /// Mbit/s; 0 for unlimited.
    pub bandwidth_mbps: f64,
}

impl Network {
    /// Seconds that `tokens` take, at four bytes each.
    #[must_use]
    pub fn transfer_secs(&self, tokens: u32) -> f64 {
        if self.bandwidth_mbps > 0.0 { f64::from(tokens) * 32.0 / (self.bandwidth_mbps * 1e6) } else { 0.0 }
    }
}

/// A time in which a client sends.
#[derive(Clone, Debug, PartialEq)]
pub struct Window {
    /// Start of the window.
    pub start: Micros,
    /// To, exclusive; after `start`.
    pub end: Micros,
    /// How much, where not as usual.
    pub rate: WindowRate,
    /// Arrival process within the window, if it differs.
    pub arrival: Option<Arrival>,
    /// Input lengths within the window, if they differ.
    pub input: Option<Lengths>,
    /// Output lengths within the window, if they differ.
    pub output: Option<Lengths>,
    /// Another share of the answer that is thought, percent.
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
    /// Requests per second, whatever the others send.
    Exact(f64),
    /// A fixed number of requests.
    Count(u64),
}

impl Window {
    /// From `start` to `end`, as usual.
    #[must_use]
    pub fn usual(start: Micros, end: Micros) -> Self {
        Self { start, end, rate: WindowRate::Usual, arrival: None, input: None, output: None, reason_ratio: None }
    }

    /// Whether anything in it is not as usual.
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
    /// One item of each kind, and how many items: images, audio, video.
    pub items: [Option<(Lengths, Lengths)>; 3],
}

/// Sessions of several requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MultiTurn {
    /// Rounds of a session, at least 1; where [`Turns::rounds`] says how many, no more than these.
    pub max_rounds: u32,
    /// From an answer to the next prompt.
    pub think_time: Micros,
    /// Whether a prompt holds the conversation before it.
    pub accumulate: bool,
    /// One session only, not one per arrival.
    pub single_session: bool,
}

/// What is drawn anew where sessions are not all alike.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Turns {
    /// Rounds of a session.
    pub rounds: Option<Lengths>,
    /// From an answer to the next prompt, ms, in place of [`MultiTurn::think_time`].
    pub think_time_ms: Option<Lengths>,
    /// Tokens in front of the first prompt: what the session is about.
    pub opening: Option<Lengths>,
}

/// How long a client waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Timeout {
    /// Not said: 300 s in closed loop, else for ever.
    #[default]
    Unsaid,
    /// Requests have no deadline.
    Never,
    /// Requests time out after this duration.
    After(Micros),
}

/// Clients of a kind.
#[derive(Clone, Debug, PartialEq)]
pub struct Cohort {
    /// What they have in common. Its share is that of all of them together; its windows are not used.
    pub client: Client,
    /// How many, 1 to 100 000.
    pub population: u32,
    /// Whether they share their prefix.
    pub prefix_sharing: PrefixSharing,
    /// By the hour of the day.
    pub diurnal: Option<Diurnal>,
    /// More of them for a while.
    pub spike: Option<Spike>,
    /// Fewer and fewer of them.
    pub drain: Option<Drain>,
}

impl Client {
    /// A client with a share of the rate, Poisson arrivals, and nothing else to say.
    #[must_use]
    pub fn new(id: &str, share: f64, input: Lengths, output: Lengths) -> Self {
        Self {
            id: id.to_owned(),
            part: None,
            tenant_id: String::new(),
            slo_class: String::new(),
            model: String::new(),
            adapter: String::new(),
            load: Load::Share(share),
            arrival: Arrival::Poisson,
            input,
            output,
            prefix: None,
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
    pub fn waits_for_answers(&self) -> bool {
        matches!(self.load, Load::Users { .. }) || (self.closed_loop && self.multi_turn.is_some())
    }
}

/// How requests are made from a [`Spec`].
#[derive(Clone, Copy, Debug)]
pub struct GenerateOptions {
    /// Seed of everything drawn.
    pub seed: u64,
    /// Tokens per KV block of the engine.
    pub block_size: NonZeroU32,
    /// No request arrives at this time or later. [`Micros::MAX`] = none.
    pub horizon: Micros,
    /// At most so many.
    pub num_requests: Option<u64>,
    /// The same for all clients, in place of what they say; `Some(None)` for never.
    pub timeout: Option<Option<Micros>>,
}

impl Spec {
    /// Reads the file at `path`, or the ServeGen folder.
    ///
    /// # Errors
    /// If it cannot be read, is no YAML, or says anything that is not understood.
    pub fn load(path: &Path) -> Result<Self, SpecFileError> {
        Self::load_with(path, ServeGenReading::Measured)
    }

    /// The same, with the ServeGen folder that it is, or names, read in one of two ways.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn load_with(path: &Path, servegen: ServeGenReading) -> Result<Self, SpecFileError> {
        parse::load(path, servegen).map(|(spec, ..)| spec)
    }

    /// Understands `text`, the content of `file`. `files`: where to find the files it names.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn parse(file: &str, text: &str, files: &dyn Files) -> Result<Self, SpecFileError> {
        parse::parse(file, text, files)
    }

    /// The first client whose requests wait for answers.
    #[must_use]
    pub fn first_in_closed_loop(&self) -> Option<&Client> {
        let cohorts = self.cohorts.iter().map(|cohort| &cohort.client);
        self.clients.iter().chain(cohorts).find(|client| client.waits_for_answers())
    }

    /// The requests, those of closed loops included: of these only what nothing must be waited for,
    /// until [`Requests::ended`] is told of the ends.
    ///
    /// # Errors
    /// If it has no end, or more requests than can be numbered.
    pub fn requests(&self, options: &GenerateOptions) -> Result<(Requests, Names), ExpandError> {
        let expanded = expand::expand(self, options)?;
        Ok(Requests::new(expanded, &self.parts, options))
    }

    /// The requests as they come where every answer takes 1 µs a token: what there is to see without a
    /// simulation.
    ///
    /// # Errors
    /// As [`Self::requests`].
    pub fn generate_answered(&self, options: &GenerateOptions) -> Result<Workload, ExpandError> {
        let (requests, names) = self.requests(options)?;
        Ok(Workload {
            count: None,
            requests: Box::new(answered::Answered::new(requests)),
            follow_ups: None,
            names,
            slo_targets: self.goodput_slo_targets.clone(),
            aside: BTreeSet::new(),
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
            let (requests, answered) = closed_loop::split(requests);
            (Box::new(requests), Some(answered))
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
            skipped: Skipped::default(),
            notes: Vec::new(),
        })
    }
}

#[cfg(test)]
mod tests;
