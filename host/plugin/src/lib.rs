//! Policies from outside: WebAssembly components, Rhai scripts, native libraries.
//!
//! ```text
//! file ── load ──► Plugin (compiled; says what it is) ── start ──► Guest (one state, answers)
//!                                                                    │
//!                        simulator ◄── policy traits ◄── adapt ◄─────┘
//! ```
//!
//! Three hosts, one vocabulary: [`wasm`], [`script`] and [`native`] each make [`Guest`]s, which take
//! what the simulator's traits take. The type of a guest says what it decides ([`RoutingGuest`] …), so
//! that none is asked for anything else. [`adapt`] turns a guest into a policy of the simulator; there,
//! and nowhere else, answers are checked and failures become errors or counted fallbacks.
//!
//! One guest per policy and simulation: a plugin used for two kinds has two guests that share
//! nothing, and every instance has its own guest of a scheduling, preemption or latency plugin.

use std::fmt::Debug;
use std::sync::Arc;

use blis_sim::cluster::Abort;
use blis_sim::policy::{Events, InstanceInfo, Reads};
use blis_sim::rng::Stream;

pub mod adapt;
pub mod check;
mod describe;
mod fault;
pub mod find;
mod guest;
pub mod incidents;
pub mod inputs;
mod limits;
pub mod native;
pub mod rows;
pub mod script;
mod sha256;
pub mod wasm;

pub use blis_abi::{Constants, Kind};
pub use fault::{Fault, FaultKind};
pub use guest::{
    AdmissionGuest, Guest, GuestKind, LatencyGuest, PreemptionGuest, PriorityGuest, RoutingGuest, SchedulingGuest,
    StartedGuest,
};
pub use limits::Limits;

/// What a plugin says about itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Description {
    /// Its name.
    pub name: String,
    /// Its own version; empty if it has none.
    pub version: String,
    /// What it is, in a line.
    pub about: String,
    /// What it can be used for, at least one, in the order of [`Kind::ALL`].
    pub kinds: Vec<Kind>,
    /// Columns that are kept up to date for it.
    pub reads: Reads,
    /// What it wants to be told.
    pub events: Events,
    /// Whether it has scores to show.
    pub scores: bool,
    /// Latency: every step must be asked for (`ContextEffect::Any`); else `NonDecreasing`.
    pub every_step: bool,
    /// Numbers that users may set, with different names.
    pub parameters: Vec<Parameter>,
}

/// A number that users may set.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// Its name.
    pub name: String,
    /// Its value if nobody sets it.
    pub default: f64,
    /// The smallest value allowed.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// What it is, in a line; may be empty.
    pub about: String,
}

/// A compiled plugin.
pub trait Plugin: Debug + Send + Sync {
    /// What it says about itself.
    fn description(&self) -> &Description;

    /// How it is run.
    fn technology(&self) -> Technology;

    /// A fresh state, as a guest for `setup.kind`, which is one of its kinds.
    ///
    /// # Errors
    /// If the guest cannot be made, or refuses.
    fn start(&self, setup: &Setup) -> Result<StartedGuest, Fault>;
}

/// A plugin that was found and compiled.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// Its name: that of the file without extension.
    pub name: String,
    /// Where it was found.
    pub file: String,
    /// SHA-256 of the file, hexadecimal.
    pub sha256: String,
    /// Length of the file.
    pub bytes: u64,
    /// Ready to be started.
    pub plugin: Arc<dyn Plugin>,
}

/// How a plugin is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Technology {
    /// WebAssembly: sandboxed.
    Component,
    /// Rhai: sandboxed.
    Script,
    /// A shared library: not sandboxed.
    Native,
    /// Part of the program.
    BuiltIn,
}

/// What a guest is told once.
#[derive(Clone, Debug)]
pub struct Setup {
    /// What it is used for.
    pub kind: Kind,
    /// Values of the declared parameters, in their order, within their ranges.
    pub parameters: Vec<f64>,
    /// The instances of the service; for scheduling, preemption and latency the one it belongs to.
    pub instances: Arc<[InstanceInfo]>,
    /// The text of each name of the workload by number; 0 is empty.
    pub names: Arc<[Box<str>]>,
    /// What is known about model and hardware, as (`num_layers`, 32.0).
    pub facts: Arc<[(String, f64)]>,
    /// Its own randomness.
    pub stream: Stream,
    /// Whether anybody reads the scores of a routing policy.
    pub explain: bool,
    /// What it may use up.
    pub limits: Limits,
    /// Set when the simulation is to end: a call that takes long ends then, too.
    pub abort: Abort,
}
