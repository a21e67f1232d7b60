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
mod reason;
mod routing;
#[cfg(test)]
mod testing;
mod ties;
mod view;

pub use admission::{
    AdmissionDecision, AdmissionPolicy, AlwaysAdmit, GaieLegacy, LatencySlo, Probabilistic, RejectAll, TenantBudgets,
    TierShed, TokenBucket,
};
pub use classes::{Classes, ClientTargets};
pub use disaggregation::{
    AlwaysDisaggregate, DisaggregationDecision, DisaggregationPolicy, DriftPlusPenalty, EncodeRule, NeverDisaggregate,
    PoolsView, PrefixThreshold, TransferLoad, TransfersView,
};
pub use event::{Event, EventKind, Events};
pub(crate) use instance::Progress;
pub use instance::*;
pub use prefix_index::PrefixIndex;
pub use priority::{ClassPriority, ConstantPriority, InvertedSlo, PriorityPolicy, SloBased};
pub use reason::Reason;
pub use routing::{
    AlwaysBusiest, CacheAndLoad, ConcurrencyFilter, DEFAULT_PROFILE, EPP_PROFILE, FilterStep, LeastLoaded,
    PrefixAffinity, PrefixCacheFilter, RoundRobin, RoutingDecision, RoutingFilter, RoutingPolicy, RoutingStep,
    SENT_BLOCKS, SaturationFilter, ScorerKind, ScorerStep, StepFailed, StepMemory, Weighted,
};
pub use ties::Ties;
pub(crate) use view::copy_rows;
pub use view::{
    AdapterSlotUse, BlockIds, Changes, ClusterView, InstanceInfo, InstanceLabels, InstanceRole, Reads, RequestView,
    Signals, Staleness, Versions,
};

use self::linear_model::{Features, LinearModel};
