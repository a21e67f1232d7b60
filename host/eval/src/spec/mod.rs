//! The specification of an experiment: settings by name ([`ExperimentSpec`]), from flags, files or JSON.
//!
//! `table` declares them; `settings` is what follows from a row, `kind` what values are, `rules` what settings need and
//! exclude, `permission` what only the command line grants.

mod choice;
pub mod commands;
mod deployment;
mod file;
mod kind;
mod named_choice;
pub mod parse;
mod permission;
mod rules;
mod settings;
mod table;

pub use choice::{
    ArrivalName, BackpressureName, ChunkEvictionName, ConcurrencyModeName, DeciderName, DtypeName, EncodeDeciderName,
    EngineName, FitnessScaleName, GdnPrefillName, KvCacheDtypeName, OnErrorName, ParityName, QuantizationName,
    RegretName, RoleName, SecondaryTierName, SessionMode, SimulationName, StageOrderName, TieBreakName,
    TraceFormatName, TraceLevelName, TransferLinkName, WorkloadName,
};
pub use kind::{Choice, Range, RangeEnds, TimeUnit, ValueForm, ValueKind};
pub use named_choice::NamedChoice;
pub use parse::{FilterList, PolicyParam, ScorerList, TargetList, WeightList};
pub use permission::Permission;
pub(crate) use settings::invalid;
pub use settings::{ExperimentSpec, InlinePolicies, KEYS, SettingGroup, SettingKey};
pub(crate) use table::FLOW_CONTROL;

#[cfg(test)]
mod tests;
