//! The specification of an experiment: settings by name ([`ExperimentSpec`]), from flags, files or JSON.

mod choice;
pub mod defaults;
mod deployment;
mod file;
pub mod parse;
mod settings;
pub(crate) mod text;

pub use choice::{
    ArrivalName, BackpressureName, ChunkEvictionName, ConcurrencyModeName, DeciderName, DtypeName, EncodeDeciderName,
    EngineName, FitnessScaleName, KvCacheDtypeName, NamedChoice, OnErrorName, ParityName, QuantizationName, RegretName,
    RoleName, SecondaryTierName, SessionMode, SimulationName, StageOrderName, TieBreakName, TraceFormatName,
    TraceLevelName, TransferLinkName, WorkloadName,
};
pub use parse::{FilterList, PolicyParam, ScorerList, TargetList, WeightList};
pub(crate) use settings::value_hint;
pub use settings::{ExperimentSpec, InlinePolicies, KEYS, SettingKey, ValueForm};

#[cfg(test)]
mod tests;
