//! The documents of `blis plugin list`, `check` and `bench`. Their fields stand in the order of the alphabet.

use serde::{Deserialize, Serialize};

/// What `blis plugin list` prints with `--output json`.
pub(super) type PluginList = Vec<PolicyDocument>;

/// A built-in policy, or a plugin.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct PolicyDocument {
    /// The description that it has.
    pub about: String,
    /// Where the defaults come from, if they are no constants.
    pub defaults_note: Option<String>,
    /// Why the plugin cannot be loaded; `null` if it can.
    pub error: Option<String>,
    /// Path of the plugin; `null` for a built-in policy.
    pub file: Option<String>,
    /// Kinds of decisions that it makes. JSON: `Vec<Kind>`.
    pub kinds: Vec<String>,
    /// Name of the policy.
    pub name: String,
    /// The parameters that it declares.
    pub parameters: Vec<ParameterDocument>,
    /// SHA-256 of the file; `null` for a built-in policy, and if it cannot be loaded.
    pub sha256: Option<String>,
    /// `built-in`, or how the plugin is loaded; `-` if that is not known.
    pub technology: String,
    /// Version of the policy; of a built-in one, that of the program.
    pub version: String,
}

/// A parameter of a policy.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct ParameterDocument {
    /// Its meaning, with its unit.
    pub about: String,
    /// Default; `null` if it depends on the deployment. Unit: of the parameter.
    pub default: Option<f64>,
    /// Greatest value. Unit: of the parameter.
    pub max: f64,
    /// Least value. Unit: of the parameter.
    pub min: f64,
    /// Name of the parameter.
    pub name: String,
}

/// What `blis plugin check` prints with `--output json`.
pub(super) type PluginChecks = Vec<ConformanceDocument>;

/// The checks of a policy.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct ConformanceDocument {
    /// The checks that ran.
    pub checks: Vec<CheckDocument>,
    /// CPU time of the calls; empty with `--no-cost`.
    pub costs: Vec<CallCost>,
    /// Path of the plugin; of a built-in policy, its kind and its name.
    pub file: String,
    /// Kinds of decisions that it makes; `null` if it cannot be loaded, as the next ones. JSON: `Option<Vec<Kind>>`.
    pub kinds: Option<Vec<String>>,
    /// Name that the plugin has in its description.
    pub name: Option<String>,
    /// Checks that do not apply.
    pub not_applicable: Vec<SkippedCheck>,
    /// Whether all checks passed.
    pub passed: bool,
    /// Name or file, as given.
    pub plugin: String,
    /// SHA-256 of the file.
    pub sha256: Option<String>,
    /// `built-in`, or how the plugin is loaded.
    pub technology: String,
    /// What the calls used of each limit.
    pub usage: Vec<UsageDocument>,
    /// Version in its description.
    pub version: Option<String>,
}

/// A check that ran.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct CheckDocument {
    /// What the check is about.
    pub check: String,
    /// What was measured, or what is wrong.
    pub detail: String,
    /// Kind of decision; `null` for the whole plugin. JSON: `Option<Kind>`.
    pub kind: Option<String>,
    /// Whether the check passed.
    pub passed: bool,
}

/// A check that does not apply.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct SkippedCheck {
    /// What the check is about.
    pub check: String,
    /// Kind of decision. JSON: `Kind`.
    pub kind: String,
    /// Why it does not apply.
    pub reason: String,
}

/// Use of the limit on fuel or operations.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct UsageDocument {
    /// Kind of decision. JSON: `Kind`.
    pub kind: String,
    /// What one call may use. Unit: operations.
    pub limit: u64,
    /// Most that one call used. Unit: operations.
    pub most: u64,
    /// Instances, or requests in the queue. Unit: number.
    pub n: usize,
}

/// CPU time of a call.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct CallCost {
    /// Median CPU time of a call. Unit: ns.
    pub cpu_ns_per_call: f64,
    /// Kind of decision. JSON: `Kind`.
    pub kind: String,
    /// Instances, or requests in the queue. Unit: number.
    pub n: usize,
}

/// What `blis plugin bench` prints with `--output json`.
pub(super) type PluginBenchmarks = Vec<BenchmarkDocument>;

/// Calls of a policy beside those of a built-in policy.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct BenchmarkDocument {
    /// Name of the built-in policy; `null` for a kind that has none to compare with.
    pub built_in: Option<String>,
    /// The same after other work. Unit: ns.
    pub built_in_cold_cpu_ns_per_call: Option<f64>,
    /// CPU time of a call of the built-in policy. Unit: ns.
    pub built_in_cpu_ns_per_call: Option<f64>,
    /// The same after other work, which fills the caches of the CPU. Unit: ns.
    pub cold_cpu_ns_per_call: Option<f64>,
    /// CPU time of a call. Unit: ns.
    pub cpu_ns_per_call: f64,
    /// Kind of decision. JSON: `Kind`.
    pub kind: String,
    /// Instances, or requests in the queue. Unit: number.
    pub n: usize,
}
