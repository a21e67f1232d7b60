//! How a command fails: one message, one hint, one exit code.

use std::fmt::{self, Display};
use std::io;

use blis_sim::cluster::Halt;

use blis_diag::{Diagnose, Diagnostic};
use blis_plugin::Fault;
use blis_report::FileError;

/// Why a command could not do what was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    kind: FailureKind,
    diagnostic: Box<Diagnostic>,
    /// What a plugin did.
    fault: Option<Box<Fault>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// What was asked makes no sense. Found before anything is simulated.
    Usage,
    /// It made sense and went wrong.
    Runtime,
    /// Nobody reads our output any more (`blis run | head -1`): nobody's error.
    BrokenPipe,
}

impl Failure {
    /// The command line or a file it names is wrong: exit code 2.
    pub fn usage(message: impl Display) -> Self {
        Self { kind: FailureKind::Usage, diagnostic: Box::new(Diagnostic::new(message.to_string())), fault: None }
    }

    /// The command line or a file it names is wrong, as `error` says: exit code 2.
    #[allow(clippy::needless_pass_by_value, reason = "for map_err")]
    pub fn refused(error: impl Diagnose) -> Self {
        Self { kind: FailureKind::Usage, diagnostic: Box::new(error.diagnostic()), fault: None }
    }

    /// The simulation or its output failed: exit code 1.
    pub fn runtime(message: impl Display) -> Self {
        Self { kind: FailureKind::Runtime, ..Self::usage(message) }
    }

    /// What to do about it.
    pub fn hint(self, hint: impl Display) -> Self {
        Self { diagnostic: Box::new(self.diagnostic.hint(hint.to_string())), ..self }
    }

    /// A plugin is to blame.
    pub fn because(self, fault: Fault) -> Self {
        Self { fault: Some(Box::new(fault)), ..self }
    }

    /// What a plugin did, if one is to blame.
    pub fn fault(&self) -> Option<&Fault> {
        self.fault.as_deref()
    }

    /// What is wrong and what to do about it, without `error:`.
    #[must_use]
    pub fn text(&self) -> String {
        self.diagnostic.to_string()
    }

    /// The same in parts.
    #[must_use]
    pub fn diagnostic(&self) -> &Diagnostic {
        &self.diagnostic
    }

    /// What to do about it, unless that is known.
    #[must_use]
    pub fn or_hint(self, hint: impl Display) -> Self {
        Self { diagnostic: Box::new(self.diagnostic.or_hint(hint.to_string())), ..self }
    }

    /// Standard output could not be written.
    pub fn output(error: &io::Error) -> Self {
        let kind =
            if error.kind() == io::ErrorKind::BrokenPipe { FailureKind::BrokenPipe } else { FailureKind::Runtime };
        Self { kind, ..Self::usage(format_args!("cannot write to standard output: {error}")) }
    }

    /// A result file cannot be written: known before the run, or found after it.
    pub fn file(error: &FileError) -> Self {
        let failure = if matches!(error, FileError::Io { .. }) { Self::runtime(error) } else { Self::usage(error) };
        failure.hint(error.hint())
    }

    /// Whose mistake it is.
    #[must_use]
    pub fn kind(&self) -> FailureKind {
        self.kind
    }

    /// Whether there is nobody to tell.
    pub fn is_quiet(&self) -> bool {
        self.kind == FailureKind::BrokenPipe
    }
}

impl From<Halt> for Failure {
    fn from(halt: Halt) -> Self {
        match halt {
            Halt::NoProgress(stuck) => Self::runtime(stuck)
                .hint("give it more with `--total-kv-blocks`, or limit the answers with `--max-model-len`"),
            Halt::Aborted => Self::runtime(halt),
        }
    }
}

/// Found before anything is simulated.
impl From<Fault> for Failure {
    fn from(fault: Fault) -> Self {
        Self { kind: FailureKind::Usage, diagnostic: fault.diagnostic.clone(), fault: None }.because(fault)
    }
}

/// `error: …`, then `hint: …` where there is one.
impl Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", self.diagnostic)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_then_hint() {
        let failure = Failure::usage("unknown model `lama`").hint("did you mean `llama`?");
        assert_eq!(failure.to_string(), "error: unknown model `lama`\nhint: did you mean `llama`?");
        assert_eq!(Failure::runtime("the disk is full").to_string(), "error: the disk is full");
    }

    #[test]
    fn a_reader_that_left_is_not_an_error() {
        assert!(Failure::output(&io::ErrorKind::BrokenPipe.into()).is_quiet());
        assert!(!Failure::output(&io::ErrorKind::StorageFull.into()).is_quiet());
    }
}
