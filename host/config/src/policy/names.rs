//! The names of policies and scorers: one table each for flags, bundles, help and messages.

use blis_sim::policy::ScorerKind;

use crate::LatencyKind;
use blis_diag::name_hint;
use blis_plugin::Kind;

/// A closed set of names.
pub trait Named: Copy + PartialEq + 'static {
    /// What they name, like `routing policy`.
    const WHAT: &'static str;
    /// All of them.
    const ALL: &'static [Self];

    /// As users write it.
    fn name(self) -> &'static str;

    /// What it does, in a line.
    fn about(self) -> &'static str;

    /// The one called `name`.
    fn find(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|known| known.name() == name)
    }

    /// What to tell about `name`, which nothing is called.
    fn hint(name: &str) -> String {
        name_hint(name, &Self::ALL.iter().map(|known| known.name()).collect::<Vec<_>>())
    }
}

/// The built-in policies of `kind`.
#[must_use]
pub fn built_in_names(kind: Kind) -> Vec<&'static str> {
    fn names<N: Named>() -> Vec<&'static str> {
        N::ALL.iter().map(|name| name.name()).collect()
    }
    match kind {
        Kind::Admission => names::<AdmissionName>(),
        Kind::Routing => names::<RoutingName>(),
        Kind::Priority => names::<PriorityName>(),
        Kind::Scheduling => names::<SchedulerName>(),
        Kind::Preemption => names::<PreemptionName>(),
        Kind::Latency => names::<LatencyKind>(),
    }
}

macro_rules! names {
    ($(#[$doc:meta])* $type:ident, $what:literal: $($(#[doc = $about:literal])+ $variant:ident = $name:literal),+ $(,)?) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $type {
            $($(#[doc = $about])+ $variant,)+
        }

        impl Named for $type {
            const WHAT: &'static str = $what;
            const ALL: &'static [Self] = &[$(Self::$variant),+];

            fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }

            fn about(self) -> &'static str {
                match self { $(Self::$variant => concat!($($about),+).trim()),+ }
            }
        }
    };
}

names! {
    /// Who may enter the service.
    AdmissionName, "admission policy":
    /// Everybody
    AlwaysAdmit = "always-admit",
    /// Prompts take tokens out of a bucket that refills at a fixed rate
    TokenBucket = "token-bucket",
    /// Nobody, for comparison
    RejectAll = "reject-all",
    /// Under load, only classes urgent enough
    TierShed = "tier-shed",
    /// When saturated, no sheddable class
    GaieLegacy = "gaie-legacy",
}

names! {
    /// Which instance serves a request.
    RoutingName, "routing policy":
    /// One after the other
    RoundRobin = "round-robin",
    /// The one with the fewest requests
    LeastLoaded = "least-loaded",
    /// The best weighted sum of scores
    Weighted = "weighted",
    /// The same prompt to the same instance, others to the least loaded
    PrefixAffinity = "prefix-affinity",
    /// The one with the most requests, for comparison
    AlwaysBusiest = "always-busiest",
}

/// What the routing policy `weighted` adds up.
impl Named for ScorerKind {
    const WHAT: &'static str = "scorer";
    const ALL: &'static [Self] = &Self::ALL;

    fn name(self) -> &'static str {
        self.name()
    }

    fn about(self) -> &'static str {
        match self {
            Self::QueueDepth => "Short wait queues",
            Self::KvUtilization => "Free KV blocks",
            Self::LoadBalance => "Few requests waiting, running and in flight",
            Self::ActiveRequests => "Few requests in flight",
            Self::RunningRequests => "Small batches",
            Self::LoadAware => "Short wait queues, up to 128",
            Self::VllmDp => "Few waiting and running, waiting counted four times",
            Self::PrefixAffinity => "The prefix was routed there before",
            Self::PrecisePrefixCache => "The prefix is in the cache",
            Self::NoHitLru => "Cold prefixes to whoever had none for longest",
            Self::LoraAffinity => "The adapter is loaded",
        }
    }
}

names! {
    /// How urgent a request is on its instance.
    PriorityName, "priority policy":
    /// By its class
    Class = "class",
    /// All alike
    Constant = "constant",
    /// The older, the more urgent
    SloBased = "slo-based",
    /// The older, the less urgent: for comparison
    InvertedSlo = "inverted-slo",
}

names! {
    /// Order of the wait queue.
    SchedulerName, "scheduler":
    /// In order of arrival
    Fcfs = "fcfs",
    /// Most urgent first
    PriorityFcfs = "priority-fcfs",
    /// Shortest prompt first
    Sjf = "sjf",
    /// Least urgent first, for comparison
    ReversePriority = "reverse-priority",
}

names! {
    /// Who leaves the batch when KV blocks run out.
    PreemptionName, "preemption policy":
    /// By order of arrival
    Fcfs = "fcfs",
    /// By urgency
    Priority = "priority",
}

impl Named for LatencyKind {
    const WHAT: &'static str = "latency model";
    const ALL: &'static [Self] = &[Self::TrainedPhysics, Self::Physics, Self::Roofline, Self::Blackbox];

    fn name(self) -> &'static str {
        self.name()
    }

    fn about(self) -> &'static str {
        match self {
            Self::TrainedPhysics => "Physical terms with fitted weights (BLIS)",
            Self::Physics => "Kernels on measured curves, calibrated against real servers",
            Self::Roofline => "The larger of compute and memory time",
            Self::Blackbox => "Linear in prompt and answer tokens, fitted per model, GPU and vLLM version",
        }
    }
}
