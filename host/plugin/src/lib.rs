//! Plugins: policies from WebAssembly components, Rhai scripts and native libraries.
//!
//! ```text
//! file ── load ──► Plugin (compiled, with a description) ── start ──► Guest (one state, makes decisions)
//!                                                                        │
//!                            simulator ◄── policy traits ◄── adapt ◄─────┘
//! ```
//!
//! Three technologies, one interface: [`wasm`], [`script`] and [`native`] each provide [`Guest`]s, which make every decision by
//! one function; what it gets and returns is in the table of decisions ([`blis_abi::decisions`]), and `ranges.rs` checks it.
//! [`adapt`] turns a guest into a policy of the simulator; there and nowhere else failures become errors or counted fallbacks.
//!
//! Each policy of a simulation has its own guest: a plugin that serves as two kinds has two guests without shared
//! state, and every instance has its own guest of a scheduling, preemption or latency plugin.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests make the files that they read"))]

use std::fmt::Debug;
use std::sync::Arc;

use blis_sim::cluster::Abort;
use blis_sim::policy::{Events, InstanceInfo, Reads};
use blis_sim::rng::Stream;

pub mod adapt;
mod call;
pub mod check;
mod describe;
pub mod export;
mod fault;
mod fields;
pub mod find;
pub mod fixture;
mod guest;
pub mod incidents;
pub mod inputs;
mod limits;
pub mod meter;
pub mod native;
mod ranges;
pub mod rows;
pub mod script;
mod sha256;
mod surroundings;
mod text;
pub mod user_cache;
mod value;
pub mod wasm;

pub use blis_abi::{Column, ColumnGroup, Function, Kind, LatencyConstants, decisions};
pub use call::{Inputs, Output};
pub use fault::{Fault, FaultKind};
pub use guest::Guest;
pub use limits::Limits;
pub use surroundings::Surroundings;
pub use value::{OtherValue, ParameterValue, ValueTable};

/// The description that a plugin returns.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyDescription {
    /// The name of the policy, one word.
    pub name: String,
    /// Version of the policy; empty if it has none.
    pub version: String,
    /// One line about the policy.
    pub about: String,
    /// The kinds that it implements, at least one, in the order of [`Kind::ALL`].
    pub kinds: Vec<Kind>,
    /// The columns that it reads about each instance, in the order of the rows that it gets; empty for a built-in policy.
    pub columns: Vec<Column>,
    /// Signals that the host keeps up to date for it.
    pub reads: Reads,
    /// Events that it subscribes to.
    pub events: Events,
    /// Whether it computes scores that explain a routing decision.
    pub scores: bool,
    /// Latency: every step must be computed by the guest (`ContextEffect::Any`); otherwise `NonDecreasing`.
    pub every_step: bool,
    /// The numeric parameters that users may set. Names of parameters are unique.
    pub parameters: Vec<PolicyParameter>,
    /// The parameters that are no numbers.
    pub others: Vec<OtherParameter>,
}

/// A numeric parameter that users may set.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyParameter {
    pub name: String,
    /// The value unless the user sets one.
    pub default: f64,
    pub min: f64,
    pub max: f64,
    /// One line about the parameter; may be empty.
    pub about: String,
}

/// A parameter that is a text or a table.
#[derive(Clone, Debug, PartialEq)]
pub struct OtherParameter {
    pub name: String,
    /// The value unless the user sets one. Other values have the same type, and tables as many columns.
    pub default: OtherValue,
    /// Limits of every number of a table.
    pub min: f64,
    pub max: f64,
    /// One line about the parameter; may be empty.
    pub about: String,
    /// Position among all parameters of the plugin, in the order of their declaration.
    pub position: usize,
}

/// A compiled plugin, from which guests are started.
pub trait Plugin: Debug + Send + Sync {
    /// The validated description of the plugin.
    fn description(&self) -> &PolicyDescription;

    fn technology(&self) -> Technology;

    /// Starts a guest with a new state for `setup.kind`, which must be one of the plugin's kinds.
    ///
    /// # Errors
    /// If the guest cannot be created, or refuses the setup.
    fn start(&self, setup: &GuestSetup) -> Result<Box<dyn Guest>, Fault>;

    /// Runs the test functions in the plugin itself, which only scripts have.
    ///
    /// # Errors
    /// If they cannot be run at all.
    fn run_tests(&self, limits: &Limits) -> Result<Vec<TestFunction>, Fault> {
        let _ = limits;
        Ok(Vec::new())
    }
}

/// A test function of a script, which was run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestFunction {
    pub name: String,
    /// Location of the function in the script.
    pub location: Option<blis_diag::Location>,
    /// The message if it failed.
    pub outcome: Result<(), String>,
}

/// A plugin that was found and compiled.
#[derive(Clone, Debug)]
pub struct LoadedPlugin {
    /// The name of the file without extension.
    pub name: String,
    /// The path of the file.
    pub file: String,
    /// SHA-256 of the file, hexadecimal.
    pub sha256: String,
    /// Size of the file in bytes.
    pub bytes: u64,
    pub plugin: Arc<dyn Plugin>,
}

/// The technology that runs a plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Technology {
    /// WebAssembly, which runs in a sandbox.
    Component,
    /// Rhai, which runs in a sandbox.
    Script,
    /// A shared library, which runs without a sandbox.
    Native,
    /// A policy that is part of the program.
    BuiltIn,
}

/// The configuration that a guest gets once, before its first decision.
#[derive(Clone, Debug)]
pub struct GuestSetup {
    /// The kind for which it is started.
    pub kind: Kind,
    /// Values of the numeric parameters, in their order, within their ranges.
    pub parameters: Vec<f64>,
    /// Values of the parameters that are no numbers, in their order.
    pub others: Vec<OtherValue>,
    /// The instances of the service; for scheduling, preemption and latency the one instance that the guest serves.
    pub instances: Arc<[InstanceInfo]>,
    /// The text of each name of the workload by number; number 0 has the empty text.
    pub names: Arc<[Box<str>]>,
    /// Metadata of model and hardware, as (`num_layers`, 32.0).
    pub model_facts: Arc<[(String, f64)]>,
    /// The random-number stream of this guest.
    pub stream: Stream,
    /// Whether the scores of a routing policy are recorded.
    pub explain: bool,
    /// The resource limits of the guest.
    pub limits: Limits,
    /// Set when the simulation is cancelled, which also ends a call in progress.
    pub abort: Abort,
}

impl GuestSetup {
    /// The values of all parameters in the order in which `description` declares them. The setup has as many values as
    /// the description has parameters.
    pub(crate) fn values(&self, description: &PolicyDescription) -> Vec<ParameterValue<'_>> {
        let mut values: Vec<_> = self.parameters.iter().map(|&number| ParameterValue::Number(number)).collect();
        for (parameter, value) in description.others.iter().zip(&self.others) {
            values.insert(parameter.position.min(values.len()), value.borrowed());
        }
        values
    }
}

/// Tests of limits need what the program has.
#[cfg(test)]
#[global_allocator]
static ALLOCATOR: meter::MeteredAllocator<std::alloc::System> = meter::MeteredAllocator(std::alloc::System);
