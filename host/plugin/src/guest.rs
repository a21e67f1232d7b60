//! Guests: plugins with a state, typed by the kind of decision. A guest for routing has no function for admission.
//!
//! A host implements one type for all kinds ([`EveryGuest`]), because one file may implement several. A
//! [`StartedGuest`] has exactly one kind, and a call of a function of another kind does not compile:
//!
//! ```
//! # use blis_plugin::RoutingGuest;
//! # use blis_sim::policy::{ClusterView, RequestView, Ties};
//! fn decide(guest: &mut dyn RoutingGuest, request: &RequestView<'_>, cluster: &ClusterView<'_>) {
//!     let _ = guest.route(request, cluster, &Ties::LowestIndex, &mut Vec::new());
//! }
//! ```
//!
//! ```compile_fail,E0599
//! # use blis_plugin::{AdmissionGuest, RoutingGuest};
//! # use blis_sim::policy::{ClusterView, RequestView, Ties};
//! fn decide(guest: &mut dyn RoutingGuest, request: &RequestView<'_>, cluster: &ClusterView<'_>) {
//!     let _ = guest.admit(request, cluster);
//! }
//! ```

use std::fmt::Debug;
use std::ops::{Deref, DerefMut};

use blis_sim::latency::Batch;
use blis_sim::policy::flow::{BandView, FlowView, InFlightView};
use blis_sim::policy::kv_cache::KvCacheDecisions;
use blis_sim::policy::{AdmissionDecision, BatchView, ClusterView, Event, QueuedView, RequestView, StepMemory, Ties};
use blis_sim::units::Micros;

use super::rows::{
    ChunkOfferRow, ChunkRow, DrainGroupRow, GroupRow, NodeRow, PoolInstanceRow, PrefillChoiceRow, ReplicaRow,
    RoutedRequestRow, StartingReplicaRow, TierHitRow,
};
use super::{Fault, FaultKind, Kind, LatencyConstants};

/// A plugin with a state, of any kind. After a fault the guest is in the state that `start` gives it (a WebAssembly
/// instance cannot continue after a trap) or in the state before the call; further calls are allowed.
pub trait Guest: Debug + Send {
    /// Delivers an event that the plugin subscribes to.
    ///
    /// # Errors
    /// If the guest fails.
    fn observe(&mut self, event: &Event) -> Result<(), Fault> {
        let _ = event;
        Ok(())
    }

    /// The state as bytes, for comparison and for [`Self::restore`] in a guest of the same plugin.
    ///
    /// # Errors
    /// If the guest fails, or the state is larger than the limit.
    fn save(&mut self) -> Result<Vec<u8>, Fault>;

    /// Replaces the state of this guest by `state`, which a guest of the same plugin saved.
    ///
    /// # Errors
    /// If the guest fails or refuses the state.
    fn restore(&mut self, state: &[u8]) -> Result<(), Fault>;

    /// A copy of the guest, of the same kind, which continues exactly as the original would.
    ///
    /// # Errors
    /// If the guest fails or refuses the state.
    fn fork(&mut self) -> Result<StartedGuest, Fault>;

    /// Fuel or operations that the latest call used; `None` if the technology does not count.
    fn used(&self) -> Option<u64> {
        None
    }
}

/// A guest that admits or rejects requests.
pub trait AdmissionGuest: Guest {
    /// Admits or rejects `request`.
    ///
    /// # Errors
    /// If the guest fails.
    fn admit(&mut self, request: &RequestView<'_>, cluster: &ClusterView<'_>) -> Result<AdmissionDecision, Fault>;
}

/// A guest that chooses the instance of a request.
pub trait RoutingGuest: Guest {
    /// The index of the chosen instance in the columns. Appends scores to `scores`, which is empty, if the guest
    /// computes them anyway or was started with `explain`. The caller checks the range of both.
    ///
    /// # Errors
    /// If the guest fails.
    fn route(
        &mut self,
        request: &RequestView<'_>,
        cluster: &ClusterView<'_>,
        ties: &Ties,
        scores: &mut Vec<f64>,
    ) -> Result<usize, Fault>;

    /// Appends a score for each instance to `scores`, which is empty, without choosing one: the guest is a scorer of a
    /// pipeline. The caller checks their number and refuses NaN.
    ///
    /// # Errors
    /// If the guest fails or computes no scores.
    fn scores(
        &mut self,
        request: &RequestView<'_>,
        cluster: &ClusterView<'_>,
        ties: &Ties,
        scores: &mut Vec<f64>,
    ) -> Result<(), Fault>;

    /// As [`Self::scores`], with the memory of the pipeline.
    ///
    /// # Errors
    /// As [`Self::scores`].
    fn step_scores(
        &mut self,
        request: &RequestView<'_>,
        cluster: &ClusterView<'_>,
        ties: &Ties,
        memory: &mut StepMemory,
        scores: &mut Vec<f64>,
    ) -> Result<(), Fault> {
        let _ = memory;
        self.scores(request, cluster, ties, scores)
    }
}

/// A guest that leaves out instances before others choose.
pub trait FilterGuest: Guest {
    /// Appends a number for each instance to `kept`, which is empty: 0 if it is left out, anything else if it is kept. The
    /// caller checks their number and refuses NaN.
    ///
    /// # Errors
    /// If the guest fails.
    fn filter(
        &mut self,
        request: &RequestView<'_>,
        cluster: &ClusterView<'_>,
        ties: &Ties,
        kept: &mut Vec<f64>,
    ) -> Result<(), Fault>;

    /// As [`Self::filter`], with the memory of the pipeline.
    ///
    /// # Errors
    /// If the guest fails.
    fn step_filter(
        &mut self,
        request: &RequestView<'_>,
        cluster: &ClusterView<'_>,
        ties: &Ties,
        memory: &mut StepMemory,
        kept: &mut Vec<f64>,
    ) -> Result<(), Fault> {
        let _ = memory;
        self.filter(request, cluster, ties, kept)
    }
}

/// A guest that sets the priority of requests on their instance.
pub trait PriorityGuest: Guest {
    /// The priority: a request with a higher value goes first.
    ///
    /// # Errors
    /// If the guest fails.
    fn priority(&mut self, request: &RequestView<'_>, now: Micros) -> Result<i64, Fault>;
}

/// A guest that decides the order of a waiting queue.
pub trait SchedulingGuest: Guest {
    /// The rank: the request with the smallest rank is scheduled first. The caller refuses NaN.
    ///
    /// # Errors
    /// If the guest fails.
    fn rank(&mut self, queued: &QueuedView<'_>) -> Result<f64, Fault>;
}

/// A guest that chooses preemption victims.
pub trait PreemptionGuest: Guest {
    /// The index of the victim in the columns. The caller checks the range.
    ///
    /// # Errors
    /// If the guest fails.
    fn victim(&mut self, batch: &BatchView) -> Result<usize, Fault>;
}

/// A guest that predicts the duration of engine steps.
pub trait LatencyGuest: Guest {
    /// The duration of a step, µs; the caller refuses 0.
    ///
    /// # Errors
    /// If the guest fails.
    fn step_time(&mut self, batch: &Batch) -> Result<u64, Fault>;

    /// The time from arrival to the waiting queue, µs.
    ///
    /// # Errors
    /// If the guest fails.
    fn queueing_time(&mut self, input_tokens: u32) -> Result<u64, Fault>;

    /// The constants of the latency model, µs.
    ///
    /// # Errors
    /// If the guest fails.
    fn constants(&mut self) -> Result<LatencyConstants, Fault>;
}

/// A guest that says how full the service is.
pub trait SaturationGuest: Guest {
    /// The saturation: 0 empty, 1 full. The caller checks the range.
    ///
    /// # Errors
    /// If the guest fails.
    fn saturation(&mut self, cluster: &ClusterView<'_>) -> Result<f64, Fault>;
}

/// A guest that says up to which saturation each band is served.
pub trait CeilingsGuest: Guest {
    /// Appends a ceiling for each of `bands` to `ceilings`, which is empty. The caller checks their number and refuses
    /// NaN.
    ///
    /// # Errors
    /// If the guest fails.
    fn ceilings(
        &mut self,
        now: Micros,
        saturation: f64,
        bands: &[BandView],
        ceilings: &mut Vec<f64>,
    ) -> Result<(), Fault>;
}

/// A guest that chooses the flow that is served next.
pub trait FairnessGuest: Guest {
    /// The index of a flow of `flows`, all of `band`. The caller checks the range.
    ///
    /// # Errors
    /// If the guest fails.
    fn fair_pick(&mut self, now: Micros, saturation: f64, band: BandView, flows: &[FlowView]) -> Result<usize, Fault>;
}

/// A guest that decides the order of the requests of a flow.
pub trait OrderingGuest: Guest {
    /// The rank of `request`, which is enqueued at `now` and expires at `expires` ([`Micros::MAX`] if never): the smallest
    /// goes first. The caller refuses NaN.
    ///
    /// # Errors
    /// If the guest fails.
    fn order(&mut self, request: &RequestView<'_>, now: Micros, expires: Micros) -> Result<f64, Fault>;
}

/// A guest that chooses requests in flight that are ended to make room.
pub trait EvictionGuest: Guest {
    /// The index of a request of `in_flight`, or `None`. The caller checks the range.
    ///
    /// # Errors
    /// If the guest fails.
    fn evict(&mut self, now: Micros, demand: BandView, in_flight: &[InFlightView]) -> Result<Option<usize>, Fault>;
}

/// A guest that says how many replicas each group has.
pub trait ScalingGuest: Guest {
    /// Appends a number of replicas for each of `groups` to `targets`, which is empty; below 0 it says none. `history` has
    /// the groups of earlier decisions, oldest first, as many rows for each as `groups` has. The caller checks the number
    /// and the range of the targets.
    ///
    /// # Errors
    /// If the guest fails.
    fn scale(
        &mut self,
        now: Micros,
        groups: &[GroupRow],
        history: &[GroupRow],
        targets: &mut Vec<f64>,
    ) -> Result<(), Fault>;
}

/// A guest that chooses the replica that is removed.
pub trait DrainGuest: Guest {
    /// The index of a replica of `replicas`, all of `group`. The caller checks the range.
    ///
    /// # Errors
    /// If the guest fails.
    fn drain(&mut self, group: &DrainGroupRow, replicas: &[ReplicaRow]) -> Result<usize, Fault>;
}

/// A guest that chooses the node of a replica that starts.
pub trait PlacementGuest: Guest {
    /// The index of a node of `nodes`, or `None`. The caller checks the range.
    ///
    /// # Errors
    /// If the guest fails.
    fn placement(&mut self, replica: &StartingReplicaRow, nodes: &[NodeRow]) -> Result<Option<usize>, Fault>;
}

/// A guest that decides about the chunks of a KV tier.
pub trait KvCacheGuest: Guest {
    /// What it decides besides ranks.
    fn decides(&self) -> KvCacheDecisions {
        KvCacheDecisions { store: true, load: true }
    }

    /// Appends a rank for each chunk; the caller checks the number, and NaN.
    ///
    /// # Errors
    /// If the guest fails.
    fn keep(&mut self, now: Micros, chunks: &[ChunkRow], ranks: &mut Vec<f64>) -> Result<(), Fault>;

    /// Appends for each chunk whether it is stored, 0 for no; the caller checks the number, and NaN.
    ///
    /// # Errors
    /// If the guest fails.
    fn store(&mut self, offer: &ChunkOfferRow, chunks: &[ChunkRow], stored: &mut Vec<f64>) -> Result<(), Fault>;

    /// Whether a request loads what was found.
    ///
    /// # Errors
    /// If the guest fails.
    fn load(&mut self, hit: &TierHitRow) -> Result<bool, Fault>;
}

/// A guest that decides where a request is prefilled.
pub trait DisaggregationGuest: Guest {
    /// Where `request` is prefilled, with indices of `decode` and of `prefill`; the caller checks their ranges.
    ///
    /// # Errors
    /// If the guest fails.
    fn disaggregate(
        &mut self,
        request: &RoutedRequestRow,
        decode: &[PoolInstanceRow],
        prefill: &[PoolInstanceRow],
    ) -> Result<PrefillChoiceRow, Fault>;
}

/// The guest of one technology, with the functions of all kinds, before it is narrowed to one kind.
pub trait EveryGuest:
    AdmissionGuest
    + RoutingGuest
    + FilterGuest
    + PriorityGuest
    + SchedulingGuest
    + PreemptionGuest
    + LatencyGuest
    + SaturationGuest
    + CeilingsGuest
    + FairnessGuest
    + OrderingGuest
    + EvictionGuest
    + ScalingGuest
    + DrainGuest
    + PlacementGuest
    + KvCacheGuest
    + DisaggregationGuest
    + 'static
{
}

impl<G> EveryGuest for G where
    G: AdmissionGuest
        + RoutingGuest
        + FilterGuest
        + PriorityGuest
        + SchedulingGuest
        + PreemptionGuest
        + LatencyGuest
        + SaturationGuest
        + CeilingsGuest
        + FairnessGuest
        + OrderingGuest
        + EvictionGuest
        + ScalingGuest
        + DrainGuest
        + PlacementGuest
        + KvCacheGuest
        + DisaggregationGuest
        + 'static
{
}

/// A guest by the kind for which it was started, where that kind is known at run time only.
#[derive(Debug)]
pub enum StartedGuest {
    Admission(Box<dyn AdmissionGuest>),
    Routing(Box<dyn RoutingGuest>),
    RoutingFilter(Box<dyn FilterGuest>),
    Priority(Box<dyn PriorityGuest>),
    Scheduling(Box<dyn SchedulingGuest>),
    Preemption(Box<dyn PreemptionGuest>),
    Latency(Box<dyn LatencyGuest>),
    Saturation(Box<dyn SaturationGuest>),
    Ceilings(Box<dyn CeilingsGuest>),
    Fairness(Box<dyn FairnessGuest>),
    Ordering(Box<dyn OrderingGuest>),
    Eviction(Box<dyn EvictionGuest>),
    Scaling(Box<dyn ScalingGuest>),
    Drain(Box<dyn DrainGuest>),
    Placement(Box<dyn PlacementGuest>),
    KvCache(Box<dyn KvCacheGuest>),
    Disaggregation(Box<dyn DisaggregationGuest>),
}

impl StartedGuest {
    /// Narrows `guest`, which has the functions of all kinds, to `kind`.
    pub(crate) fn of(kind: Kind, guest: impl EveryGuest) -> Self {
        match kind {
            Kind::Admission => Self::Admission(Box::new(guest)),
            Kind::Routing => Self::Routing(Box::new(guest)),
            Kind::RoutingFilter => Self::RoutingFilter(Box::new(guest)),
            Kind::Priority => Self::Priority(Box::new(guest)),
            Kind::Scheduling => Self::Scheduling(Box::new(guest)),
            Kind::Preemption => Self::Preemption(Box::new(guest)),
            Kind::Latency => Self::Latency(Box::new(guest)),
            Kind::Saturation => Self::Saturation(Box::new(guest)),
            Kind::Ceilings => Self::Ceilings(Box::new(guest)),
            Kind::Fairness => Self::Fairness(Box::new(guest)),
            Kind::Ordering => Self::Ordering(Box::new(guest)),
            Kind::Eviction => Self::Eviction(Box::new(guest)),
            Kind::Scaling => Self::Scaling(Box::new(guest)),
            Kind::Drain => Self::Drain(Box::new(guest)),
            Kind::Placement => Self::Placement(Box::new(guest)),
            Kind::KvCache => Self::KvCache(Box::new(guest)),
            Kind::Disaggregation => Self::Disaggregation(Box::new(guest)),
        }
    }

    /// The kind for which it was started.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::Admission(_) => Kind::Admission,
            Self::Routing(_) => Kind::Routing,
            Self::RoutingFilter(_) => Kind::RoutingFilter,
            Self::Priority(_) => Kind::Priority,
            Self::Scheduling(_) => Kind::Scheduling,
            Self::Preemption(_) => Kind::Preemption,
            Self::Latency(_) => Kind::Latency,
            Self::Saturation(_) => Kind::Saturation,
            Self::Ceilings(_) => Kind::Ceilings,
            Self::Fairness(_) => Kind::Fairness,
            Self::Ordering(_) => Kind::Ordering,
            Self::Eviction(_) => Kind::Eviction,
            Self::Scaling(_) => Kind::Scaling,
            Self::Drain(_) => Kind::Drain,
            Self::Placement(_) => Kind::Placement,
            Self::KvCache(_) => Kind::KvCache,
            Self::Disaggregation(_) => Kind::Disaggregation,
        }
    }

    /// The fault for a call of another kind than the guest's, where the kind of the call is known at run time only.
    #[must_use]
    pub fn mismatch(&self) -> Fault {
        let what = format!("a guest for `{}` is called as another kind", self.kind());
        Fault::new(FaultKind::MissingExport, what)
    }

    /// Converts to the guest type that the caller names: `guest.into_kind::<dyn RoutingGuest>()`.
    ///
    /// # Errors
    /// If the guest was started for another kind.
    pub fn into_kind<G: GuestKind + ?Sized>(self) -> Result<Box<G>, Fault> {
        G::of(self).ok_or_else(|| Fault::missing(G::KIND))
    }
}

/// Functions that every guest has are called without a match on the kind.
impl Deref for StartedGuest {
    type Target = dyn Guest;

    fn deref(&self) -> &Self::Target {
        match self {
            Self::Admission(guest) => guest.as_ref(),
            Self::Routing(guest) => guest.as_ref(),
            Self::RoutingFilter(guest) => guest.as_ref(),
            Self::Priority(guest) => guest.as_ref(),
            Self::Scheduling(guest) => guest.as_ref(),
            Self::Preemption(guest) => guest.as_ref(),
            Self::Latency(guest) => guest.as_ref(),
            Self::Saturation(guest) => guest.as_ref(),
            Self::Ceilings(guest) => guest.as_ref(),
            Self::Fairness(guest) => guest.as_ref(),
            Self::Ordering(guest) => guest.as_ref(),
            Self::Eviction(guest) => guest.as_ref(),
            Self::Scaling(guest) => guest.as_ref(),
            Self::Drain(guest) => guest.as_ref(),
            Self::Placement(guest) => guest.as_ref(),
            Self::KvCache(guest) => guest.as_ref(),
            Self::Disaggregation(guest) => guest.as_ref(),
        }
    }
}

impl DerefMut for StartedGuest {
    fn deref_mut(&mut self) -> &mut Self::Target {
        match self {
            Self::Admission(guest) => guest.as_mut(),
            Self::Routing(guest) => guest.as_mut(),
            Self::RoutingFilter(guest) => guest.as_mut(),
            Self::Priority(guest) => guest.as_mut(),
            Self::Scheduling(guest) => guest.as_mut(),
            Self::Preemption(guest) => guest.as_mut(),
            Self::Latency(guest) => guest.as_mut(),
            Self::Saturation(guest) => guest.as_mut(),
            Self::Ceilings(guest) => guest.as_mut(),
            Self::Fairness(guest) => guest.as_mut(),
            Self::Ordering(guest) => guest.as_mut(),
            Self::Eviction(guest) => guest.as_mut(),
            Self::Scaling(guest) => guest.as_mut(),
            Self::Drain(guest) => guest.as_mut(),
            Self::Placement(guest) => guest.as_mut(),
            Self::KvCache(guest) => guest.as_mut(),
            Self::Disaggregation(guest) => guest.as_mut(),
        }
    }
}

/// The guest types, one for each kind: `dyn AdmissionGuest` to `dyn DisaggregationGuest`.
pub trait GuestKind: Guest {
    /// The kind of its decisions.
    const KIND: Kind;

    /// `guest` as this type, if it was started for this kind.
    fn of(guest: StartedGuest) -> Option<Box<Self>>;

    /// Narrows `guest`, which has the functions of all kinds, to this kind.
    fn narrowed(guest: impl EveryGuest) -> Box<Self>;
}

macro_rules! guest_kinds {
    ($($kind:ident $guest:ident)*) => {$(
        impl GuestKind for dyn $guest {
            const KIND: Kind = Kind::$kind;

            fn of(guest: StartedGuest) -> Option<Box<Self>> {
                let StartedGuest::$kind(guest) = guest else { return None };
                Some(guest)
            }

            fn narrowed(guest: impl EveryGuest) -> Box<Self> {
                Box::new(guest)
            }
        }
    )*};
}

guest_kinds! {
    Admission AdmissionGuest
    Routing RoutingGuest
    RoutingFilter FilterGuest
    Priority PriorityGuest
    Scheduling SchedulingGuest
    Preemption PreemptionGuest
    Latency LatencyGuest
    Saturation SaturationGuest
    Ceilings CeilingsGuest
    Fairness FairnessGuest
    Ordering OrderingGuest
    Eviction EvictionGuest
    Scaling ScalingGuest
    Drain DrainGuest
    Placement PlacementGuest
    KvCache KvCacheGuest
    Disaggregation DisaggregationGuest
}
