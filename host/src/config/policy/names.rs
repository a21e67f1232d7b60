//! The names of policies and scorers: one table each for flags, bundles, help and messages.

use crate::workload::name_hint;

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

names! {
    /// What the routing policy `weighted` adds up.
    ScorerName, "scorer":
    /// Short wait queues
    QueueDepth = "queue-depth",
    /// Free KV blocks
    KvUtilization = "kv-utilization",
    /// Few requests waiting, running and in flight
    LoadBalance = "load-balance",
    /// Few requests in flight
    ActiveRequests = "active-requests",
    /// Small batches
    RunningRequests = "running-requests",
    /// Short wait queues, up to 128
    LoadAware = "load-aware",
    /// Few waiting and running, waiting counted four times
    VllmDp = "vllm-dp",
    /// The prefix was routed there before
    PrefixAffinity = "prefix-affinity",
    /// The prefix is in the cache
    PrecisePrefixCache = "precise-prefix-cache",
    /// Cold prefixes to whoever had none for longest
    NoHitLru = "no-hit-lru",
    /// The adapter is loaded
    LoraAffinity = "lora-affinity",
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
