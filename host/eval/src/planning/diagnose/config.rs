//! What to diagnose, with checked settings.

use blis_config::policy::SettingSource;

use crate::error::RunError;
use crate::experiment::{Experiment, OutputFiles};
use crate::spec::{ExperimentSpec, SettingKey};
use crate::workload_config::WorkloadConfig;

use super::super::slo::Slo;

/// Requests of a run, if neither the settings nor the workload say how many.
const REQUESTS: u32 = 1000;

/// A service to diagnose.
pub struct DiagnoseConfig {
    /// The service as its settings describe it.
    pub base: Experiment,
    pub(super) spec: ExperimentSpec,
    pub(super) slos: Vec<Slo>,
    /// How many seeds, counted from that of the service.
    pub(super) seeds: u32,
    /// Number of threads; 0 for one per core.
    pub(super) threads: usize,
}

impl DiagnoseConfig {
    /// `seeds`: how many, counted from the seed of `spec`. `threads`: 0 for one per core.
    ///
    /// # Errors
    /// If a figure has two limits, or a setting is invalid.
    pub fn new(mut spec: ExperimentSpec, slos: &[Slo], seeds: u32, threads: usize) -> Result<Self, RunError> {
        let is_repeated = |(i, slo): &(usize, &Slo)| slos[..*i].iter().any(|other| other.figure() == slo.figure());
        if let Some((_, twin)) = slos.iter().enumerate().find(is_repeated) {
            let figure = twin.figure();
            return Err(RunError::usage(format_args!("`{figure}` has two limits")).hint("leave out one of them"));
        }
        if spec.routing_policy.as_ref().is_some_and(|policy| policy.contains(',')) {
            return Err(RunError::usage("`--routing-policy` names several policies, and a service has one")
                .hint("name one; the diagnosis tries others by itself"));
        }
        if has_no_length(&spec) {
            let flag = SettingSource::Other("`blis diagnose`".into());
            spec.set(SettingKey::named("num-requests"), &REQUESTS.to_string(), flag).map_err(RunError::usage)?;
        }
        let base = Experiment::new(spec.clone(), OutputFiles::default())?;
        Ok(Self { base, spec, slos: slos.to_vec(), seeds, threads })
    }

    /// Whether every seed has the same requests.
    pub(super) fn is_one_sample(&self) -> bool {
        match &self.base.workload {
            WorkloadConfig::Trace(trace) => trace.arrivals.is_none(),
            WorkloadConfig::Recorded { .. } => true,
            WorkloadConfig::Synthetic(_) | WorkloadConfig::Specified(_) => false,
        }
    }
}

/// Whether the number of requests is that of the default.
fn has_no_length(spec: &ExperimentSpec) -> bool {
    let has_end = spec.num_requests.is_some() || spec.horizon.is_some();
    let has_own = spec.workload_spec.is_some() || spec.workload_trace.is_some() || spec.trace_header.is_some();
    !has_end && !has_own
}
