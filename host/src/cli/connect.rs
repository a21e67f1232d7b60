//! Where the command line meets configuration and workloads.
//!
//! [`super::run`] needs four things from the rest of the crate: a deployment, a workload, and the
//! names of what is known. Everything it assumes about them is in this file.

use blis_sim::request::Request;

use super::config::RunConfig;
use super::error::Failure;
use crate::config::{KnownModel, known_hardware, known_models};
use crate::report::Labels;

pub(super) use crate::config::{Deployment, DeploymentArgs, LatencyKind};

// -- until `blis::workload` is merged: then `pub(super) use crate::workload::Workload;`

/// Requests, in order of arrival.
pub(super) struct Workload {
    pub requests: Box<dyn Iterator<Item = Request> + Send>,
    pub count: Option<u64>,
    pub labels: Box<dyn Labels>,
    pub skipped: u64,
    pub notes: Vec<String>,
}

/// The deployment that was asked for.
pub(super) fn resolve(config: &RunConfig) -> Result<Deployment, Failure> {
    crate::config::resolve(&config.deployment).map_err(Failure::usage)
}

/// The workload that was asked for. Later a match over [`super::config::WorkloadConfig`]: the
/// generator, `crate::workload::open_trace` or `crate::workload::open_trace_v2`.
pub(super) fn open(config: &RunConfig) -> Result<Workload, Failure> {
    Err(Failure::runtime(format_args!("this build cannot load the workload `{}`", config.workload))
        .hint("generators and traces are not linked in yet"))
}

/// A line per model with anything built in: its name, then what can simulate it.
pub(super) fn models() -> Vec<String> {
    let models = known_models();
    let width = models.iter().map(|model| model.name.len()).max().unwrap_or(0);
    models.iter().map(|model| format!("{:width$}  {}", model.name, latency_models(model))).collect()
}

fn latency_models(model: &KnownModel) -> String {
    let mut kinds = Vec::new();
    if model.has_config {
        kinds.extend([LatencyKind::TrainedPhysics.to_string(), LatencyKind::Roofline.to_string()]);
    }
    if !model.blackbox.is_empty() {
        kinds.push(format!("{} ({})", LatencyKind::Blackbox, model.blackbox.join("; ")));
    }
    kinds.join(", ")
}

/// A line per GPU with a description: its name, its figures, its other names.
pub(super) fn hardware() -> Vec<String> {
    let hardware = known_hardware();
    let width = hardware.iter().map(|entry| entry.name.len()).max().unwrap_or(0);
    let line = |entry: &crate::config::Hardware| {
        let gpu = &entry.gpu;
        let aliases =
            if entry.aliases.is_empty() { String::new() } else { format!("  also {}", entry.aliases.join(", ")) };
        let (name, memory, flops, bandwidth) = (&entry.name, gpu.memory_gib, gpu.tflops_fp16, gpu.hbm_tb_s);
        format!("{name:width$}  {memory:>6} GiB  {flops:>7} TFLOPS  {bandwidth:>6} TB/s{aliases}")
    };
    hardware.iter().map(line).collect()
}
