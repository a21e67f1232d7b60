//! Plugins with a state, typed by what they decide: a guest for routing has no function for admission.
//!
//! A host makes one type for all kinds ([`EveryGuest`]), because a file may be used for several. What it
//! hands out ([`StartedGuest`]) is one kind of guest, and the question about another does not compile:
//!
//! ```
//! # use blis_plugin::RoutingGuest;
//! # use blis_sim::policy::{ClusterView, RequestView, Ties};
//! fn ask(guest: &mut dyn RoutingGuest, request: &RequestView<'_>, cluster: &ClusterView<'_>) {
//!     let _ = guest.route(request, cluster, &Ties::LowestIndex, &mut Vec::new());
//! }
//! ```
//!
//! ```compile_fail,E0599
//! # use blis_plugin::{AdmissionGuest, RoutingGuest};
//! # use blis_sim::policy::{ClusterView, RequestView, Ties};
//! fn ask(guest: &mut dyn RoutingGuest, request: &RequestView<'_>, cluster: &ClusterView<'_>) {
//!     let _ = guest.admit(request, cluster);
//! }
//! ```

use std::fmt::Debug;
use std::ops::{Deref, DerefMut};

use blis_sim::latency::Batch;
use blis_sim::policy::{AdmissionDecision, BatchView, ClusterView, Event, QueuedView, RequestView, Ties};
use blis_sim::units::Micros;

use super::{Constants, Fault, FaultKind, Kind};

/// A plugin with a state, whatever it decides. After a fault the guest is as fresh as after `start`
/// (a WebAssembly instance that trapped cannot go on), or as it was; it can be asked again.
pub trait Guest: Debug + Send {
    /// Something happened that it asked for.
    ///
    /// # Errors
    /// If the guest fails.
    fn notice(&mut self, event: &Event) -> Result<(), Fault> {
        let _ = event;
        Ok(())
    }

    /// Its state as bytes, for comparison and for [`Self::restore`] in a guest of the same plugin.
    ///
    /// # Errors
    /// If the guest fails, or the state is larger than allowed.
    fn save(&mut self) -> Result<Vec<u8>, Fault>;

    /// Takes the place of the guest that saved `state`.
    ///
    /// # Errors
    /// If the guest fails or refuses.
    fn restore(&mut self, state: &[u8]) -> Result<(), Fault>;

    /// A guest of the same kind that goes on exactly as this one would.
    ///
    /// # Errors
    /// If the guest fails or refuses.
    fn fork(&mut self) -> Result<StartedGuest, Fault>;

    /// Fuel or operations the latest call used; `None` if not counted.
    fn used(&self) -> Option<u64> {
        None
    }
}

/// A guest that decides who enters.
pub trait AdmissionGuest: Guest {
    /// Whether `request` may enter.
    ///
    /// # Errors
    /// If the guest fails.
    fn admit(&mut self, request: &RequestView<'_>, cluster: &ClusterView<'_>) -> Result<AdmissionDecision, Fault>;
}

/// A guest that decides where requests go.
pub trait RoutingGuest: Guest {
    /// The place of the chosen instance in the columns. Scores go to `scores` (empty) if the guest has
    /// some at hand, or was told to `explain`. The caller checks the range of both.
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
}

/// A guest that decides how urgent requests are.
pub trait PriorityGuest: Guest {
    /// Higher is more urgent.
    ///
    /// # Errors
    /// If the guest fails.
    fn priority(&mut self, request: &RequestView<'_>, now: Micros) -> Result<i64, Fault>;
}

/// A guest that decides the order of a wait queue.
pub trait SchedulingGuest: Guest {
    /// The smallest is served first. The caller refuses NaN.
    ///
    /// # Errors
    /// If the guest fails.
    fn rank(&mut self, queued: &QueuedView<'_>) -> Result<f64, Fault>;
}

/// A guest that decides who gives way.
pub trait PreemptionGuest: Guest {
    /// The place of the victim in the columns. The caller checks the range.
    ///
    /// # Errors
    /// If the guest fails.
    fn victim(&mut self, batch: &BatchView) -> Result<usize, Fault>;
}

/// A guest that says how long things take.
pub trait LatencyGuest: Guest {
    /// µs; the caller refuses 0.
    ///
    /// # Errors
    /// If the guest fails.
    fn step_time(&mut self, batch: &Batch) -> Result<u64, Fault>;

    /// µs from arrival to the wait queue.
    ///
    /// # Errors
    /// If the guest fails.
    fn queueing_time(&mut self, input_tokens: u32) -> Result<u64, Fault>;

    /// The other terms of a latency model.
    ///
    /// # Errors
    /// If the guest fails.
    fn constants(&mut self) -> Result<Constants, Fault>;
}

/// What a technology makes of a plugin's state, before it is known which kind it is used for.
pub trait EveryGuest:
    AdmissionGuest + RoutingGuest + PriorityGuest + SchedulingGuest + PreemptionGuest + LatencyGuest + 'static
{
}

impl<G> EveryGuest for G where
    G: AdmissionGuest + RoutingGuest + PriorityGuest + SchedulingGuest + PreemptionGuest + LatencyGuest + 'static
{
}

/// A guest by the kind it was started for, where that is known only when the program runs.
#[derive(Debug)]
pub enum StartedGuest {
    /// For admission.
    Admission(Box<dyn AdmissionGuest>),
    /// For routing.
    Routing(Box<dyn RoutingGuest>),
    /// For priority.
    Priority(Box<dyn PriorityGuest>),
    /// For scheduling.
    Scheduling(Box<dyn SchedulingGuest>),
    /// For preemption.
    Preemption(Box<dyn PreemptionGuest>),
    /// For latency.
    Latency(Box<dyn LatencyGuest>),
}

impl StartedGuest {
    /// `guest`, which could decide anything, as a guest for `kind` and nothing else.
    pub(crate) fn of(kind: Kind, guest: impl EveryGuest) -> Self {
        match kind {
            Kind::Admission => Self::Admission(Box::new(guest)),
            Kind::Routing => Self::Routing(Box::new(guest)),
            Kind::Priority => Self::Priority(Box::new(guest)),
            Kind::Scheduling => Self::Scheduling(Box::new(guest)),
            Kind::Preemption => Self::Preemption(Box::new(guest)),
            Kind::Latency => Self::Latency(Box::new(guest)),
        }
    }

    /// What it was started for.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::Admission(_) => Kind::Admission,
            Self::Routing(_) => Kind::Routing,
            Self::Priority(_) => Kind::Priority,
            Self::Scheduling(_) => Kind::Scheduling,
            Self::Preemption(_) => Kind::Preemption,
            Self::Latency(_) => Kind::Latency,
        }
    }

    /// Where a question that is known only when the program runs is of another kind than the guest.
    #[must_use]
    pub fn mismatch(&self) -> Fault {
        let what = format!("a guest for `{}` is asked something else", self.kind());
        Fault::new(FaultKind::MissingExport, what)
    }

    /// As the guest of a kind that the caller names by type: `guest.into_kind::<dyn RoutingGuest>()`.
    ///
    /// # Errors
    /// If it was started for another kind.
    pub fn into_kind<G: GuestKind + ?Sized>(self) -> Result<Box<G>, Fault> {
        G::of(self).ok_or_else(|| Fault::missing(G::KIND))
    }
}

/// What every guest can do needs no look at its kind.
impl Deref for StartedGuest {
    type Target = dyn Guest;

    fn deref(&self) -> &Self::Target {
        match self {
            Self::Admission(guest) => guest.as_ref(),
            Self::Routing(guest) => guest.as_ref(),
            Self::Priority(guest) => guest.as_ref(),
            Self::Scheduling(guest) => guest.as_ref(),
            Self::Preemption(guest) => guest.as_ref(),
            Self::Latency(guest) => guest.as_ref(),
        }
    }
}

impl DerefMut for StartedGuest {
    fn deref_mut(&mut self) -> &mut Self::Target {
        match self {
            Self::Admission(guest) => guest.as_mut(),
            Self::Routing(guest) => guest.as_mut(),
            Self::Priority(guest) => guest.as_mut(),
            Self::Scheduling(guest) => guest.as_mut(),
            Self::Preemption(guest) => guest.as_mut(),
            Self::Latency(guest) => guest.as_mut(),
        }
    }
}

/// The six types of guests: `dyn AdmissionGuest` to `dyn LatencyGuest`.
pub trait GuestKind: Guest {
    /// What it decides.
    const KIND: Kind;

    /// `guest`, if it was started for this kind.
    fn of(guest: StartedGuest) -> Option<Box<Self>>;

    /// `guest`, which could decide anything, as a guest of this kind.
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
    Priority PriorityGuest
    Scheduling SchedulingGuest
    Preemption PreemptionGuest
    Latency LatencyGuest
}
