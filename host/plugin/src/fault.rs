//! Faults of plugins: a kind, and a diagnostic with which the author can correct the plugin.

use blis_abi::Kind;
use blis_diag::{Diagnose, Diagnostic, Location};

/// A fault of a plugin.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{diagnostic} [{}]", kind.name())]
pub struct Fault {
    pub kind: FaultKind,
    /// What happened, the location in the plugin (the file; line and column of a script; the source line or a backtrace
    /// as excerpt), and a hint. Boxed, because every call of a guest returns a `Result` with a fault.
    pub diagnostic: Box<Diagnostic>,
}

/// Kinds of [`Fault`]. Results and tests use their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum FaultKind {
    /// The file cannot be read, is too large, or has a format that does not match its extension.
    Unreadable,
    /// The source does not compile.
    Syntax,
    /// The plugin was built for another version of the interface.
    VersionSkew,
    /// The plugin imports functions that the host does not offer (WASI …).
    ForbiddenImport,
    /// A function is missing, or has another signature.
    MissingExport,
    /// The plugin refused to be configured or restored, or reported that it cannot compute an output.
    Refused,
    /// A script uses a function, a field or a variable that does not exist.
    UnknownName,
    /// The call ended with a trap, a panic, a thrown error or a type error.
    Trap,
    /// The call used more instructions than allowed.
    OutOfFuel,
    /// The guest used more memory than allowed, or built a value larger than allowed.
    OutOfMemory,
    /// The call exceeded a limit of wall-clock time; the same call may pass on another run.
    OutOfTime,
    /// The nesting of function calls exceeded its limit.
    TooDeep,
    /// An output was not-a-number.
    NotANumber,
    /// An output was outside the valid range.
    OutOfRange,
    /// The plugin is a native library, and native libraries were not allowed.
    NotAllowed,
    /// The host lacks memory or address space; no fault of the plugin.
    HostResources,
}

impl FaultKind {
    /// The name in result documents.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }
}

impl Fault {
    #[must_use]
    pub fn new(kind: FaultKind, what: impl Into<String>) -> Self {
        Self::of(kind, Diagnostic::new(what))
    }

    #[must_use]
    pub fn of(kind: FaultKind, diagnostic: Diagnostic) -> Self {
        Self { kind, diagnostic: Box::new(diagnostic) }
    }

    /// Sets the location: a whole file or a position in it.
    #[must_use]
    pub fn at(mut self, location: Location) -> Self {
        self.diagnostic.location = Some(location);
        self
    }

    /// Sets the hint: what the user can do.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.diagnostic.hint = Some(hint.into());
        self
    }

    /// The whole diagnostic as text.
    #[must_use]
    pub fn message(&self) -> String {
        self.diagnostic.to_string()
    }

    /// With the name of the plugin in front, unless it has a location in the plugin.
    pub(crate) fn of_plugin(mut self, name: &str) -> Self {
        if self.diagnostic.location.is_none() {
            self.diagnostic.what = format!("{name}: {}", self.diagnostic.what);
        }
        self
    }

    pub(crate) fn missing(kind: Kind) -> Self {
        Self::new(FaultKind::MissingExport, format!("the plugin does not implement `{kind}`"))
    }
}

impl Diagnose for Fault {
    fn diagnostic(&self) -> Diagnostic {
        (*self.diagnostic).clone()
    }
}
