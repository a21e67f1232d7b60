//! Policies from outside: WebAssembly components, Rhai scripts, native libraries.
//!
//! ```text
//! file ── load ──► Plugin (compiled; says what it is) ── start ──► Guest (one state, answers)
//!                                                                    │
//!                        simulator ◄── policy traits ◄── adapt ◄─────┘
//! ```
//!
//! Three hosts, one vocabulary: [`wasm`], [`script`] and [`native`] each make [`Guest`]s, which take
//! what the simulator's traits take. [`adapt`] turns a guest into a policy of the simulator; there,
//! and nowhere else, answers are checked and failures become errors or counted fallbacks.
//!
//! One guest per policy and simulation: a plugin used for two kinds has two guests that share
//! nothing, and every instance has its own guest of a scheduling, preemption or latency plugin.

use std::fmt::{self, Debug, Display};
use std::sync::Arc;

use blis_diag::{Diagnose, Diagnostic, Location};
use blis_sim::cluster::Abort;
use blis_sim::latency::Batch;
use blis_sim::policy::{
    BatchView, ClusterView, Event, Events, InstanceInfo, QueuedView, Reads, RequestView, Ties, Verdict,
};
use blis_sim::rng::Stream;
use blis_sim::units::Micros;

pub mod adapt;
pub mod check;
mod describe;
pub mod find;
pub mod incidents;
pub mod inputs;
mod limits;
pub mod native;
pub mod rows;
pub mod script;
mod sha256;
pub mod wasm;

pub use blis_abi::{Constants, Kind};
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

    /// A fresh state. `setup.kind` is one of its kinds.
    ///
    /// # Errors
    /// If the guest cannot be made, or refuses.
    fn start(&self, setup: &Setup) -> Result<Box<dyn Guest>, Fault>;
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

/// A plugin with a state. Only the methods of the kind it was started for are called; every other
/// answers with [`FaultKind::MissingExport`]. After a fault the guest is as fresh as after `start`
/// (a WebAssembly instance that trapped cannot go on), or as it was; it can be asked again.
pub trait Guest: Debug + Send {
    /// Whether `request` may enter.
    fn admit(&mut self, request: &RequestView<'_>, cluster: &ClusterView<'_>) -> Result<Verdict, Fault> {
        let _ = (request, cluster);
        Err(Fault::missing(Kind::Admission))
    }

    /// The place of the chosen instance in the columns. Scores go to `scores` (empty) if the guest has
    /// some at hand, or was told to `explain`. The caller checks the range of both.
    fn route(
        &mut self,
        request: &RequestView<'_>,
        cluster: &ClusterView<'_>,
        ties: &Ties,
        scores: &mut Vec<f64>,
    ) -> Result<usize, Fault> {
        let _ = (request, cluster, ties, scores);
        Err(Fault::missing(Kind::Routing))
    }

    /// Higher is more urgent.
    fn priority(&mut self, request: &RequestView<'_>, now: Micros) -> Result<i64, Fault> {
        let _ = (request, now);
        Err(Fault::missing(Kind::Priority))
    }

    /// The smallest is served first. The caller refuses NaN.
    fn rank(&mut self, queued: &QueuedView<'_>) -> Result<f64, Fault> {
        let _ = queued;
        Err(Fault::missing(Kind::Scheduling))
    }

    /// The place of the victim in the columns. The caller checks the range.
    fn victim(&mut self, batch: &BatchView) -> Result<usize, Fault> {
        let _ = batch;
        Err(Fault::missing(Kind::Preemption))
    }

    /// µs; the caller refuses 0.
    fn step_time(&mut self, batch: &Batch) -> Result<u64, Fault> {
        let _ = batch;
        Err(Fault::missing(Kind::Latency))
    }

    /// µs from arrival to the wait queue.
    fn queueing_time(&mut self, input_tokens: u32) -> Result<u64, Fault> {
        let _ = input_tokens;
        Err(Fault::missing(Kind::Latency))
    }

    /// The other terms of a latency model.
    fn constants(&mut self) -> Result<Constants, Fault> {
        Err(Fault::missing(Kind::Latency))
    }

    /// Something happened that it asked for.
    fn notice(&mut self, event: &Event) -> Result<(), Fault> {
        let _ = event;
        Ok(())
    }

    /// Its state as bytes, for comparison and for [`Self::restore`] in a guest of the same plugin.
    ///
    /// # Errors
    /// If the guest fails, or the state is larger than allowed.
    fn save(&mut self) -> Result<Vec<u8>, Fault>;

    /// Takes the place of the guest that saved `state`.
    ///
    /// # Errors
    /// If the guest fails or refuses.
    fn restore(&mut self, state: &[u8]) -> Result<(), Fault>;

    /// A guest that goes on exactly as this one would.
    ///
    /// # Errors
    /// If the guest fails or refuses.
    fn fork(&mut self) -> Result<Box<dyn Guest>, Fault>;

    /// Fuel or operations the latest call used; `None` if not counted.
    fn used(&self) -> Option<u64> {
        None
    }
}

/// What went wrong in a plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What kind of thing.
    pub kind: FaultKind,
    /// What, where in the plugin (its file, of a script line and column; the line or a backtrace as excerpt), and
    /// what to do. In a box, because every answer of a guest may be a fault.
    pub diagnostic: Box<Diagnostic>,
}

/// Kinds of [`Fault`], by the names that results and tests use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FaultKind {
    /// The file cannot be read, is too large, or is not what its name says.
    Unreadable,
    /// It does not compile.
    Syntax,
    /// It was built for another version of the interface.
    VersionSkew,
    /// It wants something from outside that there is not (WASI …).
    ForbiddenImport,
    /// A function is missing, or has another signature.
    MissingExport,
    /// It refused to be configured or restored, or said that it cannot answer.
    Refused,
    /// It gave up: a trap, a panic, a thrown error, an error of types.
    Trap,
    /// It used more instructions than allowed.
    OutOfFuel,
    /// It used more memory than allowed, or made something larger than allowed.
    OutOfMemory,
    /// It took too long by the clock, so that another time it may not.
    OutOfTime,
    /// It called itself too deeply.
    TooDeep,
    /// It answered with not-a-number.
    NotANumber,
    /// It answered with something outside the range of answers.
    OutOfRange,
    /// Native libraries were not allowed.
    NotAllowed,
}

impl FaultKind {
    /// As results write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Unreadable => "unreadable",
            Self::Syntax => "syntax",
            Self::VersionSkew => "version-skew",
            Self::ForbiddenImport => "forbidden-import",
            Self::MissingExport => "missing-export",
            Self::Refused => "refused",
            Self::Trap => "trap",
            Self::OutOfFuel => "out-of-fuel",
            Self::OutOfMemory => "out-of-memory",
            Self::OutOfTime => "out-of-time",
            Self::TooDeep => "too-deep",
            Self::NotANumber => "not-a-number",
            Self::OutOfRange => "out-of-range",
            Self::NotAllowed => "not-allowed",
        }
    }
}

impl Fault {
    /// A fault of `kind`.
    #[must_use]
    pub fn new(kind: FaultKind, what: impl Into<String>) -> Self {
        Self::of(kind, Diagnostic::new(what))
    }

    /// A fault of `kind`, described by `diagnostic`.
    #[must_use]
    pub fn of(kind: FaultKind, diagnostic: Diagnostic) -> Self {
        Self { kind, diagnostic: Box::new(diagnostic) }
    }

    /// Where it is, as a whole file or a part of one.
    #[must_use]
    pub fn at(mut self, location: Location) -> Self {
        self.diagnostic.location = Some(location);
        self
    }

    /// What to do about it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.diagnostic.hint = Some(hint.into());
        self
    }

    /// All of the diagnostic as text.
    #[must_use]
    pub fn message(&self) -> String {
        self.diagnostic.to_string()
    }

    fn missing(kind: Kind) -> Self {
        Self::new(FaultKind::MissingExport, format!("the plugin has nothing for `{kind}`"))
    }
}

impl Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} [{}]", self.diagnostic, self.kind.name())
    }
}

impl std::error::Error for Fault {}

impl Diagnose for Fault {
    fn diagnostic(&self) -> Diagnostic {
        (*self.diagnostic).clone()
    }
}
