//! What a policy is: five kinds of decision, one vocabulary, one view of the world.
//!
//! | kind | asked | answers |
//! |---|---|---|
//! | [`AdmissionPolicy`] | once per arrival | admit, or reject with a reason |
//! | [`RoutingPolicy`] | once per admitted request | an instance; optionally a score for each |
//! | [`PriorityPolicy`] | when a request is handed to its instance | a number, higher is more urgent |
//! | [`SchedulingPolicy`] | when a request joins a wait queue | its place in the queue |
//! | [`PreemptionPolicy`] | when KV blocks run out | who leaves the batch |
//!
//! A view holds what production would know. The true output length is in none of these types, so
//! no policy can read it. Signals come as columns over instances, with their age.
//!
//! A policy says beforehand what it reads ([`Reads`]); only that is brought up to date. It keeps
//! its state in itself and can be copied at any time (`fork`): a counterfactual runs on with a copy
//! of everything.

mod classes;
mod prefix_index;
mod view;

use std::fmt::{self, Debug, Display};

use rand::RngExt as _;

pub use classes::Classes;
pub use prefix_index::PrefixIndex;
pub use view::{Ages, ClusterView, InstanceInfo, RequestView, Signals};

use crate::rng::Stream;

/// Which columns of [`Signals`] a policy looks at. What nobody reads is not kept up to date.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reads {
    /// The periodic columns: queue, batch, KV, cache hit rate, preemptions.
    pub load: bool,
    /// [`Signals::in_flight`].
    pub in_flight: bool,
    /// [`Signals::cached_blocks`].
    pub cached_blocks: bool,
}

impl Reads {
    /// Nothing: the policy does not look at instances.
    pub const NOTHING: Self = Self { load: false, in_flight: false, cached_blocks: false };

    /// What either of two policies reads.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            load: self.load || other.load,
            in_flight: self.in_flight || other.in_flight,
            cached_blocks: self.cached_blocks || other.cached_blocks,
        }
    }
}

/// Who may enter the service.
pub trait AdmissionPolicy: Debug + Send {
    /// What it looks at. Asked once.
    fn reads(&self) -> Reads;

    /// Decides about `request`.
    fn admit(&mut self, request: &RequestView<'_>, cluster: &ClusterView<'_>) -> Verdict;

    /// A copy with the same state.
    fn fork(&self) -> Box<dyn AdmissionPolicy>;
}

/// The answer of an admission policy.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// Come in.
    Admit,
    /// Stay out, and why.
    Reject(Reason),
}

/// Which instance serves a request.
pub trait RoutingPolicy: Debug + Send {
    /// What it looks at. Asked once.
    fn reads(&self) -> Reads;

    /// Chooses among the instances of `cluster`, of which there is at least one. A policy that
    /// has a score for every instance pushes them onto `scores` (empty at the call) in the order
    /// of the columns, higher being better.
    fn route(
        &mut self,
        request: &RequestView<'_>,
        cluster: &ClusterView<'_>,
        ties: &Ties,
        scores: &mut Vec<f64>,
    ) -> Choice;

    /// A copy with the same state.
    fn fork(&self) -> Box<dyn RoutingPolicy>;
}

/// The answer of a routing policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// Place of the chosen instance in the columns of the view.
    pub target: usize,
    /// Why.
    pub reason: Reason,
}

/// How urgent a request is on its instance.
pub trait PriorityPolicy: Debug + Send {
    /// Higher is more urgent. `request` is about to be handed to its instance at `now`.
    fn priority(&mut self, request: &RequestView<'_>, now: crate::units::Micros) -> i64;

    /// A copy with the same state.
    fn fork(&self) -> Box<dyn PriorityPolicy>;
}

/// Why a policy decided as it did, for people. Built only where somebody reads it.
#[derive(Clone, Debug, PartialEq)]
pub enum Reason {
    /// Nothing to say.
    None,
    /// BLIS's words, with the number that decided.
    RoundRobin(u64),
    /// The load of the chosen instance.
    LeastLoaded(u64),
    /// The score of the chosen instance.
    Weighted(f64),
    /// The load of the chosen instance.
    AlwaysBusiest(u64),
    /// Whether the same prompt went there before.
    PrefixAffinity {
        /// It did.
        hit: bool,
    },
    /// Any other text.
    Text(Box<str>),
}

impl Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => Ok(()),
            Self::RoundRobin(turn) => write!(f, "round-robin[{turn}]"),
            Self::LeastLoaded(load) => write!(f, "least-loaded (load={load})"),
            Self::Weighted(score) => write!(f, "weighted-scoring (score={score:.3})"),
            Self::AlwaysBusiest(load) => write!(f, "always-busiest (load={load})"),
            Self::PrefixAffinity { hit: true } => f.write_str("prefix-affinity (hit)"),
            Self::PrefixAffinity { hit: false } => f.write_str("prefix-affinity (miss)"),
            Self::Text(text) => f.write_str(text),
        }
    }
}

/// What happens when several instances are equally good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ties {
    /// Any of them, with equal chances, drawn from the router's own stream for that request. Always
    /// taking the first loads instances unevenly: 6.8 times more variance of the p95 between seeds
    /// (`reference/cluster.md` §1.5).
    Random(Stream),
    /// The first: for comparison with recorded answers.
    LowestIndex,
}

impl Ties {
    /// Which of `tied` ≥ 1 equally good instances request `id` goes to: 0 is the first of them.
    #[must_use]
    pub fn pick(&self, id: u32, tied: usize) -> usize {
        match self {
            Self::Random(stream) if tied > 1 => stream.at(u64::from(id)).random_range(0..tied),
            _ => 0,
        }
    }
}
