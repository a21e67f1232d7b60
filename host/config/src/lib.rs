//! From options to a resolved deployment: model, GPUs, latency model and number of KV blocks.
//!
//! Options that are left out get their values by published rules (BLIS's, `engine.md` §4). Every choice that a user
//! might not expect is recorded in [`Deployment::notes`].

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests make the files that they read"))]

pub mod adapters;
mod architecture;
mod coefficients;
mod cpu_tier;
mod deployment;
mod embedded;
pub mod engine;
mod error;
mod hardware;
mod known;
mod kv_groups;
mod kv_offload;
mod latency_kind;
mod latency_parameters;
#[cfg(test)]
mod lone_prompt;
mod model;
mod model_facts;
mod model_files;
mod model_names;
mod model_source;
pub use model_source::local_path;
pub mod physics;
pub mod policy;
mod precision;
mod resolve;
mod short_name;

pub use coefficients::{BlackboxRow, TrainedDefaults, blackbox_rows};
pub use cpu_tier::{OffloadArgs, SecondaryArgs};
pub use deployment::{
    DeployedMemory, Deployment, DeploymentArgs, KvBlocksSource, LargestErrors, MemoryWarning, Validation,
};
pub use error::ConfigError;
pub use hardware::{Catalogue, Hardware, MeasuredKernels, Network, parse as parse_hardware, same_hardware};
pub use known::{KnownModel, known_hardware, known_models};
pub use kv_groups::{CacheArgs, DeployedLayout, GdnPrefill};
pub use kv_offload::{KvOffload, TierArgs};
pub use latency_kind::LatencyKind;
pub use model::{LoadedModel, parse as parse_model};
pub use model_facts::{CacheFacts, LayerFacts, ModelArgs, ModelFacts, explain_model};
pub use precision::{Dtype, KvCacheDtype, Precision, PrecisionArgs, Quantization};
pub use resolve::resolve;
pub use short_name::short_name;
