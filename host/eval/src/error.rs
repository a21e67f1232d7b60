//! Errors of a command: one message, one hint, one exit code.

use std::fmt::{self, Display};
use std::io;

use blis_sim::cluster::Halt;
use serde::{Deserialize, Serialize};

use blis_diag::{Diagnose, Diagnostic};
use blis_plugin::Fault;
use blis_report::FileError;

/// Why a command failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunError {
    kind: RunErrorKind,
    diagnostic: Box<Diagnostic>,
    /// The failure of a plugin, if that is the cause. It does not cross the border of a process.
    #[serde(skip)]
    fault: Option<Box<Fault>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RunErrorKind {
    /// The command line or a file is invalid. Found before anything is simulated.
    Usage,
    /// The input was valid, but the run failed.
    Runtime,
    /// The reader of the output has closed it (`blis run | head -1`). That is not an error of the program or of its
    /// user.
    BrokenPipe,
    /// The result was printed, and this exit code says what it is. That is not an error either.
    Status(u8),
}

impl RunError {
    /// The command line or a file that it names is invalid: exit code 2.
    pub fn usage(message: impl Display) -> Self {
        Self { kind: RunErrorKind::Usage, diagnostic: Box::new(Diagnostic::new(message.to_string())), fault: None }
    }

    /// The command line or a file that it names is invalid, with the message of `error`: exit code 2.
    #[allow(clippy::needless_pass_by_value, reason = "for map_err")]
    pub fn refused(error: impl Diagnose) -> Self {
        Self { kind: RunErrorKind::Usage, diagnostic: Box::new(error.diagnostic()), fault: None }
    }

    /// The simulation or its output failed: exit code 1.
    pub fn runtime(message: impl Display) -> Self {
        Self { kind: RunErrorKind::Runtime, ..Self::usage(message) }
    }

    /// Adds what to do about it.
    pub fn hint(self, hint: impl Display) -> Self {
        Self { diagnostic: Box::new(self.diagnostic.hint(hint.to_string())), ..self }
    }

    /// Names the failure of a plugin as the cause.
    pub fn with_fault(self, fault: Fault) -> Self {
        Self { fault: Some(Box::new(fault)), ..self }
    }

    /// The failure of a plugin, if that is the cause.
    pub fn fault(&self) -> Option<&Fault> {
        self.fault.as_deref()
    }

    /// Message and hint, without `error:` in front.
    #[must_use]
    pub fn text(&self) -> String {
        self.diagnostic.to_string()
    }

    /// The message, its location and its hint, separately.
    #[must_use]
    pub fn diagnostic(&self) -> &Diagnostic {
        &self.diagnostic
    }

    /// Adds a hint, unless there is one.
    #[must_use]
    pub fn or_hint(self, hint: impl Display) -> Self {
        Self { diagnostic: Box::new(self.diagnostic.or_hint(hint.to_string())), ..self }
    }

    /// The error of a failed write to standard output.
    pub fn output(error: &io::Error) -> Self {
        let kind =
            if error.kind() == io::ErrorKind::BrokenPipe { RunErrorKind::BrokenPipe } else { RunErrorKind::Runtime };
        Self { kind, ..Self::usage(format_args!("cannot write to standard output: {error}")) }
    }

    /// The error of a result file that cannot be written, found before the run or after it.
    pub fn file(error: &FileError) -> Self {
        let failure = if matches!(error, FileError::Io { .. }) { Self::runtime(error) } else { Self::usage(error) };
        failure.hint(error.hint())
    }

    /// Whether the input, the run or the reader of the output caused it.
    #[must_use]
    pub fn kind(&self) -> RunErrorKind {
        self.kind
    }

    /// The exit code of a result that was printed.
    #[must_use]
    pub fn status(code: u8) -> Self {
        Self { kind: RunErrorKind::Status(code), ..Self::usage("") }
    }

    /// Whether no message is printed, because the output is closed or says all.
    pub fn is_quiet(&self) -> bool {
        matches!(self.kind, RunErrorKind::BrokenPipe | RunErrorKind::Status(_))
    }
}

impl From<Halt> for RunError {
    fn from(halt: Halt) -> Self {
        match halt {
            Halt::NoProgress(stuck) => Self::runtime(stuck)
                .hint("raise `--total-kv-blocks`, or limit the output tokens with `--max-model-len`"),
            Halt::Aborted => Self::runtime(halt),
            Halt::NothingDispatched { .. } => Self::runtime(halt).hint(
                "raise `--usage-limit-threshold` or the thresholds of the saturation detector, or set `--request-ttl`",
            ),
        }
    }
}

/// Plugins are loaded before anything is simulated, so the exit code is that of a usage error.
impl From<Fault> for RunError {
    fn from(fault: Fault) -> Self {
        Self { kind: RunErrorKind::Usage, diagnostic: fault.diagnostic.clone(), fault: None }.with_fault(fault)
    }
}

/// `error: …`, then `hint: …` if there is a hint.
impl Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", self.diagnostic)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_then_hint() {
        let failure = RunError::usage("unknown model `lama`").hint("did you mean `llama`?");
        assert_eq!(failure.to_string(), "error: unknown model `lama`\nhint: did you mean `llama`?");
        assert_eq!(RunError::runtime("the disk is full").to_string(), "error: the disk is full");
    }

    #[test]
    fn a_closed_output_is_not_an_error() {
        assert!(RunError::output(&io::ErrorKind::BrokenPipe.into()).is_quiet());
        assert!(!RunError::output(&io::ErrorKind::StorageFull.into()).is_quiet());
    }
}
