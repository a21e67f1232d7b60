//! What can be wrong with a deployment, and what to do about it.

use std::path::{Path, PathBuf};

use blis_diag::{Diagnose, Diagnostic, Location, json_words, most_alike, unreadable};
use blis_sim::capacity::CapacityError;
use blis_sim::latency::LatencyError;
use thiserror::Error;

use super::latency_kind::LatencyKind;

/// A deployment that cannot be simulated as described.
#[derive(Debug, Error)]
#[error("{}", self.diagnostic())]
pub enum ConfigError {
    /// A name that nothing known carries.
    Unknown {
        /// `model`, `hardware`, …
        what: &'static str,
        /// What the user wrote.
        given: String,
        /// All known names.
        known: Vec<String>,
        /// A further way out.
        extra: Option<String>,
    },
    /// An option outside its range.
    OutOfRange {
        /// The option.
        option: &'static str,
        /// Its value.
        given: String,
        /// What it may be.
        expected: &'static str,
    },
    /// Options that contradict each other.
    Conflict {
        /// Which ones, and how.
        message: String,
        /// What to do.
        hint: String,
    },
    /// A file or folder that cannot be read.
    Read {
        /// The file or folder.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// A file whose content makes no sense.
    Parse(Diagnostic),
    /// The architecture is needed, and unknown.
    NoModelConfig {
        /// The model.
        model: String,
        /// What needs the architecture.
        needed_for: String,
        /// A way without it, starting with a comma.
        instead: &'static str,
    },
    /// No coefficients were trained for that deployment.
    NoCoefficients {
        /// Model, GPU, TP and vLLM version asked for.
        wanted: String,
        /// The deployments of that model that have some.
        available: String,
    },
    /// The latency model refuses its inputs.
    Latency {
        /// The latency model.
        kind: LatencyKind,
        /// The served model.
        model: String,
        /// The GPU.
        hardware: String,
        /// Why.
        source: LatencyError,
    },
    /// The KV cache cannot be sized.
    Capacity {
        /// The served model.
        model: String,
        /// The GPU.
        hardware: String,
        /// Why.
        source: CapacityError,
    },
}

impl Diagnose for ConfigError {
    fn diagnostic(&self) -> Diagnostic {
        match self {
            Self::Unknown { what, given, known, extra } => {
                let extra = extra.as_ref().map_or(String::new(), |extra| format!("; {extra}"));
                Diagnostic::new(format!("unknown {what}: `{given}`")).hint(known_hint(given, known) + extra.as_str())
            }
            Self::OutOfRange { option, given, expected } => {
                Diagnostic::new(format!("`{option}` is {given}")).hint(*expected)
            }
            Self::Conflict { message, hint } => Diagnostic::new(message).hint(hint),
            Self::Read { path, source } => unreadable(&path.display().to_string(), source),
            Self::Parse(diagnostic) => diagnostic.clone(),
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
    /// An unknown name.
    pub(super) fn unknown(what: &'static str, given: &str, known: Vec<String>, extra: Option<&str>) -> Self {
        Self::Unknown { what, given: given.into(), known, extra: extra.map(str::to_owned) }
    }

    /// A mistake in a file, without line and column.
    pub(super) fn in_file(path: &Path, mistake: Diagnostic) -> Self {
        Self::Parse(mistake.at(whole(path)))
    }

    /// What `serde_json` says, with its line and column as location.
    pub(super) fn json(path: &Path, error: &serde_json::Error) -> Self {
        let (line, column) = (error.line() as u64, error.column() as u64);
        let location = if line > 0 { whole(path).characters(line, column, 1) } else { whole(path) };
        Self::Parse(Diagnostic::new(json_words(error)).at(location))
    }

    /// What the YAML reader says, with its line and column as location.
    pub(super) fn yaml(path: &Path, error: &blis_diag::yaml::Error) -> Self {
        let location =
            error.location().map_or_else(|| whole(path), |at| whole(path).characters(at.line(), at.column(), 1));
        Self::Parse(Diagnostic::new(error.to_string()).at(location))
    }
}

fn whole(path: &Path) -> Location {
    Location::file(blis_diag::display(path))
}

/// The known name that looks most like `given`, if one looks at all like it, and all of them.
pub(super) fn known_hint(given: &str, known: &[impl AsRef<str>]) -> String {
    let known: Vec<&str> = known.iter().map(AsRef::as_ref).collect();
    let guess = most_alike(given, &known).map_or(String::new(), |name| format!("did you mean `{name}`? "));
    format!("{guess}known: {}", known.join(", "))
}
