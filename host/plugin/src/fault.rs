//! What goes wrong in plugins: of which kind, and told so that its author can mend it.

use std::fmt::{self, Display};

use blis_abi::Kind;
use blis_diag::{Diagnose, Diagnostic, Location};

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

    pub(crate) fn missing(kind: Kind) -> Self {
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
