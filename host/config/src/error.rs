//! Errors in a deployment, with hints.

use std::path::{Path, PathBuf};

use blis_diag::{Diagnose, Diagnostic, Location, json_words, most_alike, nearest, unreadable};
use blis_sim::capacity::CapacityError;
use blis_sim::latency::LatencyError;
use thiserror::Error;

use super::latency_kind::LatencyKind;

/// A deployment that cannot be simulated as described.
#[derive(Debug, Error)]
#[error("{}", self.diagnostic())]
pub enum ConfigError {
    /// A name that is not among the known ones.
    Unknown {
        /// Kind of the name: `model`, `hardware`, …
        what: &'static str,
        /// The name that the user wrote.
        given: String,
        /// All names that are known for it.
        known: Vec<String>,
        extra: Option<String>,
    },
    /// An option with a value out of range.
    OutOfRange { option: &'static str, given: String, expected: &'static str },
    /// Options that contradict each other.
    Conflict {
        /// The options and the contradiction.
        message: String,
        hint: String,
    },
    /// A file or folder that cannot be read.
    Read {
        /// Path of the file or folder.
        path: PathBuf,
        source: std::io::Error,
    },
    /// A file with invalid content.
    Parse(Diagnostic),
    /// A coefficient by name that the latency model does not have, or with a value out of range.
    Parameter(Diagnostic),
    /// The architecture is needed but unknown.
    NoModelConfig {
        model: String,
        /// The computation that needs the architecture.
        needed_for: String,
        /// An alternative without it, starting with a comma.
        instead: &'static str,
    },
    /// No coefficients were fitted for that deployment.
    NoCoefficients {
        /// The requested model, GPU, tensor-parallel size and vLLM version.
        wanted: String,
        /// The deployments of that model that have coefficients.
        available: String,
    },
    /// The latency model refuses its inputs.
    Latency { kind: LatencyKind, model: String, hardware: String, source: LatencyError },
    /// The size of the KV cache cannot be computed.
    Capacity { model: String, hardware: String, source: CapacityError },
}

impl Diagnose for ConfigError {
    fn diagnostic(&self) -> Diagnostic {
        match self {
            Self::Unknown { what, given, known, extra } => {
                Diagnostic::new(format!("unknown {what}: `{given}`")).hint(unknown_hint(given, known, extra.as_deref()))
            }
            Self::OutOfRange { option, given, expected } => {
                Diagnostic::new(format!("`{option}` is {given}")).hint(*expected)
            }
            Self::Conflict { message, hint } => Diagnostic::new(message).hint(hint),
            Self::Read { path, source } => unreadable(&path.display().to_string(), source),
            Self::Parse(diagnostic) | Self::Parameter(diagnostic) => diagnostic.clone(),
            Self::NoModelConfig { model, needed_for, instead } => Diagnostic::new(format!(
                "the architecture of `{model}` is unknown, and {needed_for} needs it"
            ))
            .hint(format!(
                "put its Hugging Face `config.json` into a folder and give `--model-config-folder`{instead}"
            )),
            Self::NoCoefficients { wanted, available } => {
                Diagnostic::new(format!("no blackbox coefficients for {wanted}"))
                    .hint(format!("there are some for {available}; or give `--beta-coeffs`"))
            }
            Self::Latency { kind, model, hardware, source } => {
                Diagnostic::new(format!("{kind} for `{model}` on {hardware}: {}", source.what())).hint(source.hint())
            }
            Self::Capacity { model, hardware, source } => {
                Diagnostic::new(format!("KV cache of `{model}` on {hardware}: {}", source.what())).hint(source.hint())
            }
        }
    }
}

impl ConfigError {
    pub(super) fn unknown(what: &'static str, given: &str, known: Vec<String>, extra: Option<&str>) -> Self {
        Self::Unknown { what, given: given.into(), known, extra: extra.map(str::to_owned) }
    }

    /// A mistake in a file, without line and column.
    pub(super) fn in_file(path: &Path, mistake: Diagnostic) -> Self {
        Self::Parse(mistake.at(whole(path)))
    }

    /// An error of `serde_json`, with its line and column as location.
    pub(super) fn json(path: &Path, error: &serde_json::Error) -> Self {
        let (line, column) = (error.line() as u64, error.column() as u64);
        let location = if line > 0 { whole(path).characters(line, column, 1) } else { whole(path) };
        Self::Parse(Diagnostic::new(json_words(error)).at(location))
    }

    /// An error of the YAML reader, with its line and column as location.
    pub(super) fn yaml(path: &Path, error: &blis_diag::yaml::Error) -> Self {
        let location =
            error.location().map_or_else(|| whole(path), |at| whole(path).characters(at.line(), at.column(), 1));
        Self::Parse(Diagnostic::new(error.to_string()).at(location))
    }
}

fn whole(path: &Path) -> Location {
    Location::file(blis_diag::display(path))
}

/// The hint for an unknown name: `extra` after the known names. Of many known ones only a near one is named.
fn unknown_hint(given: &str, known: &[String], extra: Option<&str>) -> String {
    const FEW: usize = 20;
    let names: Vec<&str> = known.iter().map(String::as_str).collect();
    match extra {
        None => known_hint(given, known),
        Some(extra) if known.len() <= FEW => format!("{}; {extra}", known_hint(given, known)),
        Some(extra) => nearest(given, &names).map_or(String::new(), |name| format!("did you mean `{name}`? ")) + extra,
    }
}

/// The hint for an unknown name: the most similar known name, if any is similar, and all of them.
pub(super) fn known_hint(given: &str, known: &[impl AsRef<str>]) -> String {
    let known: Vec<&str> = known.iter().map(AsRef::as_ref).collect();
    let guess = most_alike(given, &known).map_or(String::new(), |name| format!("did you mean `{name}`? "));
    format!("{guess}known: {}", known.join(", "))
}
