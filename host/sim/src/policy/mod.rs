//! Policies: five kinds of decision, one set of names, one view of the service.
//!
//! | kind | called | result |
//! |---|---|---|
//! | [`AdmissionPolicy`] | once per arrival | admit, or reject with a reason |
//! | [`RoutingPolicy`] | once per admitted request | an instance; optionally a score for each |
//! | [`PriorityPolicy`] | when a request is dispatched to its instance | a number, higher is served first |
//! | [`SchedulingPolicy`] | when a request joins a waiting queue | its rank in the queue |
//! | [`PreemptionPolicy`] | when no KV blocks are free | the preemption victim |
//!
//! A view holds what a production service would have. The true output length is in none of these types, so no policy
//! can read it. Signals are columns over instances, with their staleness.
//!
//! A policy declares beforehand which signals it reads ([`Reads`]); only those are kept up to date. Its whole state
//! lies in itself and can be copied at any time (`fork`): a counterfactual continues with a copy of everything.

mod admission;
mod block_lru;
mod classes;
mod disaggregation;
mod event;
pub mod flow;
mod instance;
pub mod kv_cache;
mod linear_model;
mod prefix_index;
mod priority;
mod routing;
#[cfg(test)]
mod testing;
mod view;

use std::fmt::{self, Debug, Display};

use rand::RngExt as _;

pub use admission::{
    AlwaysAdmit, GaieLegacy, LatencySlo, Probabilistic, RejectAll, TenantBudgets, TierShed, TokenBucket,
};
pub use classes::{Classes, ClientTargets};
pub use disaggregation::{
    AlwaysDisaggregate, DisaggregationDecision, DisaggregationPolicy, DriftPlusPenalty, EncodeRule, NeverDisaggregate,
    PoolsView, PrefixThreshold, TransferLoad, TransfersView,
};
pub use event::{Event, EventKind, Events};
pub(crate) use instance::Progress;
pub use instance::{BatchView, PreemptionPolicy, QueuedView, Rank, SchedulingPolicy};
pub use prefix_index::PrefixIndex;
pub use priority::{ClassPriority, ConstantPriority, InvertedSlo, SloBased};
pub use routing::{
    AlwaysBusiest, CacheAndLoad, ConcurrencyFilter, DEFAULT_PROFILE, EPP_PROFILE, FilterStep, LeastLoaded,
    PrefixAffinity, PrefixCacheFilter, RoundRobin, RoutingFilter, SENT_BLOCKS, SaturationFilter, ScorerKind,
    ScorerStep, StepMemory, Weighted,
};
pub(crate) use view::copy_rows;
pub use view::{
    AdapterSlotUse, BlockIds, Changes, ClusterView, InstanceInfo, InstanceLabels, InstanceRole, RequestView, Signals,
    Staleness, Versions,
};

use self::linear_model::{Features, LinearModel};
use crate::ids::{InstanceIndex, RequestId};
use crate::request::Name;
use crate::rng::Stream;

/// The columns of [`Signals`] that a policy reads. Columns that no policy reads are not kept up to date.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reads {
    /// The periodic columns: queue depth, batch size, KV blocks, cache hit rate, preemptions.
    pub load: bool,
    /// [`Signals::in_flight`] and [`ClusterView::tenants_in_flight`].
    pub in_flight: bool,
    /// [`Signals::cached_blocks`], computed for the prompt of each request.
    pub cached_blocks: bool,
    /// [`Signals::cpu_cached_blocks`], computed for the prompt of each request.
    pub cpu_cached_blocks: bool,
    /// [`Signals::in_flight_tokens`] and [`Signals::in_flight_output`].
    pub tokens: bool,
    /// [`Signals::ttft_ewma`] and [`Signals::itl_ewma`].
    pub latencies: bool,
    /// [`Signals::waiting_tokens`], a periodic column that instances count only if it is read.
    pub waiting_tokens: bool,
    /// [`Signals::adapter_active`] and the columns of adapters behind it, which instances report only if they are read.
    pub adapters: bool,
}

impl Reads {
    /// No column: the policy does not depend on the state of instances.
    pub const NOTHING: Self = Self {
        load: false,
        in_flight: false,
        cached_blocks: false,
        cpu_cached_blocks: false,
        tokens: false,
        latencies: false,
        waiting_tokens: false,
        adapters: false,
    };

    /// The union of the columns of two policies.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            load: self.load || other.load,
            in_flight: self.in_flight || other.in_flight,
            cached_blocks: self.cached_blocks || other.cached_blocks,
            cpu_cached_blocks: self.cpu_cached_blocks || other.cpu_cached_blocks,
            tokens: self.tokens || other.tokens,
            latencies: self.latencies || other.latencies,
            waiting_tokens: self.waiting_tokens || other.waiting_tokens,
            adapters: self.adapters || other.adapters,
        }
    }
}

/// Decides whether a request is admitted to the service.
pub trait AdmissionPolicy: Debug + Send {
    /// The signals that it reads. Called once.
    fn reads(&self) -> Reads;

    /// Decides whether `request` is admitted.
    fn admit(&mut self, request: &RequestView<'_>, cluster: &ClusterView<'_>) -> AdmissionDecision;

    /// The events that it receives. Called once.
    fn events(&self) -> Events {
        Events::NONE
    }

    /// Receives an event of [`Self::events`].
    fn observe(&mut self, event: &Event) {
        let _ = event;
    }

    /// A copy of the policy with the same state.
    fn fork(&self) -> Box<dyn AdmissionPolicy>;
}

/// The result of an admission policy.
#[derive(Clone, Debug, PartialEq)]
pub enum AdmissionDecision {
    /// The request continues to routing.
    Admit,
    /// The request is rejected, with the reason.
    Reject(Reason),
}

/// Chooses the instance that serves a request.
pub trait RoutingPolicy: Debug + Send {
    /// The signals that it reads. Called once.
    fn reads(&self) -> Reads;

    /// Chooses among the instances of `cluster`, of which there is at least one. A policy that computes a score for
    /// every instance pushes the scores onto `scores` (empty at the call) in the order of the columns; higher is
    /// better.
    fn route(
        &mut self,
        request: &RequestView<'_>,
        cluster: &ClusterView<'_>,
        ties: &Ties,
        scores: &mut Vec<f64>,
    ) -> RoutingDecision;

    /// `request`, the request of the last call of [`Self::route`], is dispatched to `instance`: the choice of the
    /// policy, unless a counterfactual forces another. A policy that remembers its decisions records them here.
    fn dispatched(&mut self, request: &RequestView<'_>, instance: InstanceIndex) {
        let _ = (request, instance);
    }

    /// The replica `instance` is gone. Its index is never used again.
    fn removed(&mut self, instance: InstanceIndex) {
        let _ = instance;
    }

    /// The events that it receives. Called once.
    fn events(&self) -> Events {
        Events::NONE
    }

    /// Receives an event of [`Self::events`].
    fn observe(&mut self, event: &Event) {
        let _ = event;
    }

    /// A copy of the policy with the same state.
    fn fork(&self) -> Box<dyn RoutingPolicy>;
}

/// A step of a routing pipeline ([`Weighted`]) from outside of this crate: a scorer or a filter. It computes a number for
/// every instance: as a scorer its score, of which values below 0 count as 0 and above 1 as 1; as a filter 0 if it leaves
/// the instance out, anything else if it keeps it.
pub trait RoutingStep: Debug + Send {
    /// The signals that it reads. Called once.
    fn reads(&self) -> Reads;

    /// Replaces `numbers` by one for each instance, in the order of the columns; none is NaN. `memory` is that of the
    /// pipeline, for what its steps need alike.
    ///
    /// # Errors
    /// [`StepFailed`] if there is no result. The step has recorded why.
    fn compute(
        &mut self,
        request: &RequestView<'_>,
        cluster: &ClusterView<'_>,
        ties: &Ties,
        memory: &mut StepMemory,
        numbers: &mut Vec<f64>,
    ) -> Result<(), StepFailed>;

    /// The events that it receives. Called once.
    fn events(&self) -> Events {
        Events::NONE
    }

    /// Receives an event of [`Self::events`].
    fn observe(&mut self, event: &Event) {
        let _ = event;
    }

    /// A copy of the step with the same state.
    fn fork(&self) -> Box<dyn RoutingStep>;
}

impl Clone for Box<dyn RoutingStep> {
    fn clone(&self) -> Self {
        self.fork()
    }
}

/// A [`RoutingStep`] has no result: the least loaded instance is chosen instead, the first of several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepFailed;

/// The result of a routing policy.
#[derive(Clone, Debug, PartialEq)]
pub struct RoutingDecision {
    /// Index of the chosen instance in the columns of the view.
    pub target: usize,
    /// Why the instance was chosen, for the decision trace.
    pub reason: Reason,
}

/// Sets the priority of a request on its instance.
pub trait PriorityPolicy: Debug + Send {
    /// Returns the priority: higher is served first. `request` is about to be dispatched to its instance at `now`. On
    /// instances, as in vLLM, lower is served first: [`crate::request::Request::priority`] is the negated result.
    fn priority(&mut self, request: &RequestView<'_>, now: crate::units::Micros) -> i64;

    /// The events that it receives. Called once.
    fn events(&self) -> Events {
        Events::NONE
    }

    /// Receives an event of [`Self::events`].
    fn observe(&mut self, event: &Event) {
        let _ = event;
    }

    /// A copy of the policy with the same state.
    fn fork(&self) -> Box<dyn PriorityPolicy>;
}

/// The reason for a decision, for people. The text is built only when it is read.
#[derive(Clone, Debug, PartialEq)]
pub enum Reason {
    /// The policy gave no reason.
    None,
    /// The number of the turn, from 0. The texts are those of BLIS, each with the number that decided.
    RoundRobin(u64),
    /// The load of the chosen instance, the smallest one.
    LeastLoaded(u64),
    /// The score of the chosen instance.
    Weighted(f64),
    /// The load of the chosen instance, the largest one.
    AlwaysBusiest(u64),
    /// Whether the same prompt was sent to the chosen instance before.
    PrefixAffinity {
        /// It was: the prompt is probably cached there.
        hit: bool,
    },
    /// The token bucket holds fewer tokens than the prompt has.
    InsufficientTokens,
    /// The policy rejects every request.
    RejectAll,
    /// The priority of the class is too low for the present load.
    TierShed {
        /// Service class of the request.
        class: Name,
        /// The priority of its class.
        priority: i32,
        /// The lowest priority that is admitted.
        min: i32,
        /// The largest effective load of an instance, requests.
        load: u64,
    },
    /// The service is saturated and the class may be shed.
    GaieSaturated {
        /// Service class of the request.
        class: Name,
        /// Mean saturation over the instances, at least 1.
        saturation: f64,
    },
    /// The class may be shed, and chance decided so.
    Probabilistic {
        /// Service class of the request.
        class: Name,
        /// The probability of its rejection, 0 to 1.
        probability: f64,
    },
    /// The class may be shed, and no instance is predicted to serve the request in time.
    LatencySlo {
        /// Service class of the request.
        class: Name,
        /// The shortest predicted TTFT of an instance, µs.
        predicted_us: f64,
    },
    /// The tenant has more requests in flight than its share.
    TenantBudget,
    /// A policy that was loaded as a plugin, with the score of the chosen instance if it has scores.
    Plugin(Option<f64>),
    /// A plugin failed; the least loaded instance was chosen instead.
    Fallback,
    /// A counterfactual forced this decision.
    Forced,
    /// Any other reason, in the words of the policy.
    Text(Box<str>),
}

impl Reason {
    /// The reason as text. `class_text` gives the name of a class.
    #[must_use]
    pub fn text<'a>(&self, class_text: &dyn Fn(Name) -> &'a str) -> String {
        match self {
            Self::TierShed { class, priority, min, load } => tier_shed(class_text(*class), *priority, *min, *load),
            Self::GaieSaturated { class, saturation } => gaie_saturated(class_text(*class), *saturation),
            Self::Probabilistic { class, probability } => probabilistic(class_text(*class), *probability),
            Self::LatencySlo { class, predicted_us } => latency_slo(class_text(*class), *predicted_us),
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

fn probabilistic(class: impl Display, probability: f64) -> String {
    format!("probabilistic: class={class} probability={probability:.2}")
}

fn latency_slo(class: impl Display, predicted_us: f64) -> String {
    format!("latency-slo: class={class} ttft={:.1}ms", predicted_us / 1000.0)
}

/// As [`Reason::text`], with the indices of classes instead of their names.
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
            Self::Probabilistic { class, probability } => f.write_str(&probabilistic(class.0, *probability)),
            Self::LatencySlo { class, predicted_us } => f.write_str(&latency_slo(class.0, *predicted_us)),
            Self::TenantBudget => f.write_str("tenant-budget-shed"),
            Self::Plugin(None) => f.write_str("plugin"),
            Self::Plugin(Some(score)) => write!(f, "plugin (score={score:.3})"),
            Self::Fallback => f.write_str("fallback (plugin failed)"),
            Self::Forced => f.write_str("forced"),
            Self::Text(text) => f.write_str(text),
        }
    }
}

/// Which of several equally good choices is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ties {
    /// Each of them with equal probability, drawn from the router's own stream for that request. Always choosing the
    /// first one loads instances unevenly: the variance of the p95 latency between seeds is then 6.8 times as large
    /// (`reference/cluster.md` §1.5).
    Random(Stream),
    /// The one with the lowest index: instances for comparison with recorded results, preemption victims as in vLLM.
    LowestIndex,
    /// The one with the highest index: preemption victims as in BLIS.
    HighestIndex,
}

impl Ties {
    /// Which of `tied` ≥ 1 equally good choices is taken for request `id`; 0 is the first of them.
    #[must_use]
    pub fn pick(&self, id: RequestId, tied: usize) -> usize {
        match self {
            Self::Random(stream) if tied > 1 => stream.at(u64::from(id.0)).random_range(0..tied),
            Self::HighestIndex => tied.saturating_sub(1),
            Self::Random(_) | Self::LowestIndex => 0,
        }
    }

    /// A number from 0 to 1 for each instance, drawn for request `id` apart from [`Self::pick`]; 0 if ties are not broken
    /// at random.
    pub(crate) fn draw(&self, id: RequestId, numbers: &mut [f64]) {
        match self {
            Self::Random(stream) => {
                let mut generator = stream.at(u64::from(id.0) | DRAWS);
                numbers.fill_with(|| generator.random());
            }
            Self::LowestIndex | Self::HighestIndex => numbers.fill(0.0),
        }
    }
}

/// The part of the router's stream that [`Ties::draw`] reads: request ids have 32 bits.
const DRAWS: u64 = 1 << 63;

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
    fn random_ties_are_uniform() {
        let ties = Ties::Random(Stream::new(42, "router"));
        let mut counts = [0_u32; 4];
        for id in (0..40_000).map(RequestId) {
            counts[ties.pick(id, 4)] += 1;
        }
        // 10 000 each, standard deviation 87: five of them.
        assert!(counts.iter().all(|&count| count.abs_diff(10_000) < 433), "{counts:?}");
        assert_eq!(ties.pick(RequestId(7), 4), ties.pick(RequestId(7), 4), "depends on the request only");
    }

    #[test]
    fn without_randomness_the_first_or_the_last_is_chosen() {
        let id = RequestId(3);
        let picks = [Ties::LowestIndex.pick(id, 5), Ties::Random(Stream::new(42, "router")).pick(id, 1)];
        assert_eq!(picks, [0, 0]);
        assert_eq!([Ties::HighestIndex.pick(id, 5), Ties::HighestIndex.pick(id, 1)], [4, 0]);
    }
}
