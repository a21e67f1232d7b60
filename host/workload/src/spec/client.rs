//! A sender of requests, as a specification describes it.

use blis_sim::units::Micros;

use super::arrival::Arrival;
use super::lengths::Lengths;
use super::prompts::PromptCycle;
use super::sampling::ClientSampling;
use super::window::Window;
use crate::MaxTokens;

/// A sender of requests.
#[derive(Clone, Debug, PartialEq)]
pub struct Client {
    pub id: String,
    /// Index in [`Spec::parts`](super::Spec::parts); `None`: it shares the rate of the specification.
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
