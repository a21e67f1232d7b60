//! Where the command line meets configuration and workloads.
//!
//! [`super::run`] needs four things from the rest of the crate: a deployment, a workload, and the
//! names of what is known. Everything it assumes about them is in this file.

use std::path::PathBuf;
use std::sync::Arc;

use blis_sim::latency::LatencyModel;
use blis_sim::request::Request;

use super::config::RunConfig;
use super::error::Failure;
use crate::report::Labels;

// -- until `blis::config` is merged: then `pub(super) use crate::config::{Deployment, DeploymentArgs, LatencyKind};`

/// What was asked for.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct DeploymentArgs {
    pub model: String,
    pub hardware: Option<String>,
    pub tensor_parallel_size: Option<u32>,
    pub data_parallel_size: u32,
    pub vllm_version: Option<String>,
    pub enable_expert_parallel: bool,
    pub moe_comm_backend: Option<String>,
    pub latency_model: Option<LatencyKind>,
    pub alpha_coeffs: Option<Vec<f64>>,
    pub beta_coeffs: Option<Vec<f64>>,
    pub total_kv_blocks: Option<u64>,
    pub block_size: u32,
    pub max_model_len: Option<u32>,
    pub gpu_memory_utilization: f64,
    pub model_config_folder: Option<PathBuf>,
    pub hardware_config: Option<PathBuf>,
}

/// Which latency model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LatencyKind {
    TrainedPhysics,
    Roofline,
    Blackbox,
}

/// What it resolves to.
#[derive(Clone, Debug)]
pub(super) struct Deployment {
    pub model: String,
    pub hardware: String,
    pub tensor_parallel_size: u32,
    pub latency: Arc<dyn LatencyModel>,
    pub latency_kind: String,
    pub total_kv_blocks: u32,
    pub kv_blocks_source: String,
    pub max_model_len: Option<u32>,
    pub notes: Vec<String>,
}

// -- until `blis::workload` is merged: then `pub(super) use crate::workload::Workload;`

/// Requests, in order of arrival.
pub(super) struct Workload {
    pub requests: Box<dyn Iterator<Item = Request> + Send>,
    pub count: Option<u64>,
    pub labels: Box<dyn Labels>,
    pub skipped: u64,
    pub notes: Vec<String>,
}

/// The deployment that was asked for. Later `crate::config::resolve(&config.deployment)`.
pub(super) fn resolve(config: &RunConfig) -> Result<Deployment, Failure> {
    Err(not_connected(&format!("the configuration of `{}`", config.deployment.model)))
}

/// The workload that was asked for. Later a match over [`super::config::WorkloadConfig`]: the
/// generator, `crate::workload::open_trace` or `crate::workload::open_trace_v2`.
pub(super) fn open(config: &RunConfig) -> Result<Workload, Failure> {
    Err(not_connected(&config.workload.to_string()))
}

/// Names of the models with a configuration.
pub(super) fn models() -> Result<Vec<String>, Failure> {
    Err(not_connected("the list of models"))
}

/// Names of the GPUs with a description.
pub(super) fn hardware() -> Result<Vec<String>, Failure> {
    Err(not_connected("the list of GPUs"))
}

fn not_connected(what: &str) -> Failure {
    Failure::runtime(format_args!("this build cannot load {what}"))
        .hint("it holds the command line only; configuration and workloads are not linked in yet")
}
