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

mod admission;
mod block_lru;
mod classes;
mod event;
mod instance;
mod prefix_index;
mod priority;
mod routing;
#[cfg(test)]
mod testing;
mod view;

use std::fmt::{self, Debug, Display};

use rand::RngExt as _;

pub use admission::{AlwaysAdmit, GaieLegacy, RejectAll, TenantBudgets, TierShed, TokenBucket};
pub use classes::Classes;
pub use event::{Event, EventKind, Events};
pub(crate) use instance::Progress;
pub use instance::{BatchView, PreemptionPolicy, QueuedView, Rank, SchedulingPolicy};
pub use prefix_index::PrefixIndex;
pub use priority::{ClassPriority, ConstantPriority, InvertedSlo, SloBased};
pub use routing::{
    AlwaysBusiest, CacheAndLoad, DEFAULT_PROFILE, LeastLoaded, PrefixAffinity, RoundRobin, ScorerKind, Weighted,
};
pub use view::{Ages, Changes, ClusterView, InstanceInfo, RequestView, Signals, Versions};

use crate::request::Name;
use crate::rng::Stream;

/// Which columns of [`Signals`] a policy looks at. What nobody reads is not kept up to date.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reads {
    /// The periodic columns: queue, batch, KV, cache hit rate, preemptions.
    pub load: bool,
    /// [`Signals::in_flight`] and [`ClusterView::tenants_in_flight`].
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

    /// What it wants to be told. Asked once.
    fn events(&self) -> Events {
        Events::NONE
    }

    /// Something happened that it wants to be told.
    fn notice(&mut self, event: &Event) {
        let _ = event;
    }

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

    /// `request`, about which it was just asked, goes to instance number `instance`: its own choice, unless
    /// a counterfactual forces another. Whoever remembers what went where does it here.
    fn sent(&mut self, request: &RequestView<'_>, instance: u32) {
        let _ = (request, instance);
    }

    /// What it wants to be told. Asked once.
    fn events(&self) -> Events {
        Events::NONE
    }

    /// Something happened that it wants to be told.
    fn notice(&mut self, event: &Event) {
        let _ = event;
    }

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
    /// Higher is more urgent. `request` is about to be handed to its instance at `now`. Instances
    /// count the other way, as vLLM does: [`crate::request::Request::priority`] is the negated
    /// answer.
    fn priority(&mut self, request: &RequestView<'_>, now: crate::units::Micros) -> i64;

    /// What it wants to be told. Asked once.
    fn events(&self) -> Events {
        Events::NONE
    }

    /// Something happened that it wants to be told.
    fn notice(&mut self, event: &Event) {
        let _ = event;
    }

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
    /// The token bucket holds fewer tokens than the prompt.
    InsufficientTokens,
    /// Nobody comes in.
    RejectAll,
    /// Not urgent enough for a loaded service.
    TierShed {
        /// Service class of the request.
        class: Name,
        /// Its urgency.
        priority: i32,
        /// The least urgency let in.
        min: i32,
        /// The largest load of an instance.
        load: u64,
    },
    /// The service is saturated and the class may be shed.
    GaieSaturated {
        /// Service class of the request.
        class: Name,
        /// Mean over the instances, ≥ 1.
        saturation: f64,
    },
    /// The tenant has more in flight than its share.
    TenantBudget,
    /// A policy from outside, with the score of the chosen instance if it has scores.
    Plugin(Option<f64>),
    /// A policy from outside failed; the least loaded instance was taken.
    Fallback,
    /// Nobody decided so: what would have happened, if.
    Forced,
    /// Any other text.
    Text(Box<str>),
}

impl Reason {
    /// In words, with the text of each class by its number.
    #[must_use]
    pub fn text<'a>(&self, class_text: &dyn Fn(Name) -> &'a str) -> String {
        match self {
            Self::TierShed { class, priority, min, load } => tier_shed(class_text(*class), *priority, *min, *load),
            Self::GaieSaturated { class, saturation } => gaie_saturated(class_text(*class), *saturation),
            _ => self.to_string(),
        }
    }
}

fn tier_shed(class: impl Display, priority: i32, min: i32, load: u64) -> String {
    format!("tier-shed: class={class} priority={priority} < min={min} load={load}")
}

fn gaie_saturated(class: impl Display, saturation: f64) -> String {
    format!("gaie-saturated: class={class} saturation={saturation:.2}")
}

/// As [`Reason::text`], with numbers for the classes.
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
            Self::InsufficientTokens => f.write_str("insufficient tokens"),
            Self::RejectAll => f.write_str("reject-all"),
            Self::TierShed { class, priority, min, load } => f.write_str(&tier_shed(class.0, *priority, *min, *load)),
            Self::GaieSaturated { class, saturation } => f.write_str(&gaie_saturated(class.0, *saturation)),
            Self::TenantBudget => f.write_str("tenant-budget-shed"),
            Self::Plugin(None) => f.write_str("plugin"),
            Self::Plugin(Some(score)) => write!(f, "plugin (score={score:.3})"),
            Self::Fallback => f.write_str("fallback (plugin failed)"),
            Self::Forced => f.write_str("forced"),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_read_as_in_blis() {
        let class = Name(1);
        let reasons = [
            Reason::RoundRobin(240),
            Reason::LeastLoaded(7),
            Reason::Weighted(0.6875),
            Reason::AlwaysBusiest(9),
            Reason::PrefixAffinity { hit: true },
            Reason::PrefixAffinity { hit: false },
            Reason::InsufficientTokens,
            Reason::RejectAll,
            Reason::TierShed { class, priority: -3, min: 3, load: 15 },
            Reason::GaieSaturated { class, saturation: 1.256 },
            Reason::TenantBudget,
        ];
        let texts: Vec<_> =
            reasons.iter().map(|reason| reason.text(&|name| ["", "background"][name.index()])).collect();
        insta::assert_snapshot!(texts.join("\n"), @r"
        round-robin[240]
        least-loaded (load=7)
        weighted-scoring (score=0.688)
        always-busiest (load=9)
        prefix-affinity (hit)
        prefix-affinity (miss)
        insufficient tokens
        reject-all
        tier-shed: class=background priority=-3 < min=3 load=15
        gaie-saturated: class=background saturation=1.26
        tenant-budget-shed
        ");
        assert_eq!(Reason::None.to_string(), "");
        assert_eq!(reasons[8].to_string(), "tier-shed: class=1 priority=-3 < min=3 load=15", "without names");
    }

    #[test]
    fn random_ties_fall_on_all_alike() {
        let ties = Ties::Random(Stream::new(42, "router"));
        let mut counts = [0_u32; 4];
        for id in 0..40_000 {
            counts[ties.pick(id, 4)] += 1;
        }
        // 10 000 each, standard deviation 87: five of them.
        assert!(counts.iter().all(|&count| count.abs_diff(10_000) < 433), "{counts:?}");
        assert_eq!(ties.pick(7, 4), ties.pick(7, 4), "depends on the request only");
    }

    #[test]
    fn without_randomness_the_first_wins() {
        let picks = [Ties::LowestIndex.pick(3, 5), Ties::Random(Stream::new(42, "router")).pick(3, 1)];
        assert_eq!(picks, [0, 0]);
    }
}
