//! What can be wrong with a deployment, and what to do about it.

use std::fmt;
use std::path::PathBuf;

use blis_sim::capacity::CapacityError;
use blis_sim::latency::LatencyError;
use thiserror::Error;

use super::LatencyKind;
use blis_diag::unreadable;

/// A deployment that cannot be simulated as described.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// A name that nothing known carries.
    #[error("unknown {what}: `{given}`\n{}", hint(nearest.as_deref(), known, extra.as_deref()))]
    Unknown {
        /// `model`, `hardware`, …
        what: &'static str,
        /// What the user wrote.
        given: String,
        /// The known name that looks most alike, if any does.
        nearest: Option<String>,
        /// All known names.
        known: Vec<String>,
        /// A further way out.
        extra: Option<String>,
    },
    /// An option outside its range.
    #[error("`{option}` is {given}\nhint: {expected}")]
    OutOfRange {
        /// The option.
        option: &'static str,
        /// Its value.
        given: String,
        /// What it may be.
        expected: &'static str,
    },
    /// Options that contradict each other.
    #[error("{message}\nhint: {hint}")]
    Conflict {
        /// Which ones, and how.
        message: String,
        /// What to do.
        hint: String,
    },
    /// A file or folder that cannot be read.
    #[error("{}", unreadable(&path.display().to_string(), source))]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// A file whose content makes no sense.
    #[error("{at}: {message}")]
    Parse {
        /// Where.
        at: Place,
        /// What is wrong.
        message: String,
    },
    /// The architecture is needed, and unknown.
    #[error(
        "the architecture of `{model}` is unknown, and {needed_for} needs it\n\
         hint: put its Hugging Face `config.json` into a folder and give `--model-config-folder`{instead}"
    )]
    NoModelConfig {
        /// The model.
        model: String,
        /// What needs the architecture.
        needed_for: String,
        /// A way without it, starting with a comma.
        instead: &'static str,
    },
    /// No coefficients were trained for that deployment.
    #[error("no blackbox coefficients for {wanted}\nhint: there are some for {available}; or give `--beta-coeffs`")]
    NoCoefficients {
        /// Model, GPU, TP and vLLM version asked for.
        wanted: String,
        /// The deployments of that model that have some.
        available: String,
    },
    /// The latency model refuses its inputs.
    #[error("{kind} for `{model}` on {hardware}: {source}")]
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
    #[error("KV cache of `{model}` on {hardware}: {source}")]
    Capacity {
        /// The served model.
        model: String,
        /// The GPU.
        hardware: String,
        /// Why.
        source: CapacityError,
    },
}

/// A place in a file. The path of an embedded file is the one it has in the repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file.
    pub path: PathBuf,
    /// Line and column, from 1, where they are known.
    pub line_column: Option<(u64, u64)>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())?;
        self.line_column.map_or(Ok(()), |(line, column)| write!(f, ":{line}:{column}"))
    }
}

impl ConfigError {
    /// An unknown name, with the known one that looks most alike.
    pub(super) fn unknown(what: &'static str, given: &str, known: Vec<String>, extra: Option<&str>) -> Self {
        let nearest = nearest(given, &known).map(str::to_owned);
        Self::Unknown { what, given: given.into(), nearest, known, extra: extra.map(str::to_owned) }
    }

    /// A mistake in a file, without line and column.
    pub(super) fn in_file(path: impl Into<PathBuf>, message: impl Into<String>) -> Self {
        Self::Parse { at: Place { path: path.into(), line_column: None }, message: message.into() }
    }

    /// What `serde_json` says, with its line and column moved to the front.
    pub(super) fn json(path: impl Into<PathBuf>, error: &serde_json::Error) -> Self {
        let text = error.to_string();
        let message = text.rfind(" at line ").map_or(text.as_str(), |end| &text[..end]).to_owned();
        let line_column = (error.line() > 0).then(|| (error.line() as u64, error.column() as u64));
        Self::Parse { at: Place { path: path.into(), line_column }, message }
    }

    /// What the YAML reader says, with its line and column moved to the front.
    pub(super) fn yaml(path: impl Into<PathBuf>, error: &serde_yaml::Error) -> Self {
        use serde_yaml::MessageFormatter;
        let error = error.without_snippet();
        // Control characters of the file must not reach a terminal.
        let message = serde_yaml::UserMessageFormatter.format_message(error);
        let message = message.replace(char::is_control, " ");
        let line_column = error.location().map(|location| (location.line(), location.column()));
        Self::Parse { at: Place { path: path.into(), line_column }, message }
    }
}

/// The known name that looks most like `given`, if one looks at all like it.
pub(super) fn nearest<'a>(given: &str, known: &'a [String]) -> Option<&'a str> {
    const ALIKE: f64 = 0.7;
    let given = given.to_lowercase();
    let score = |name: &str| strsim::jaro_winkler(&given, &name.to_lowercase());
    known
        .iter()
        .map(|name| (score(name), name.as_str()))
        .filter(|(score, _)| *score >= ALIKE)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, name)| name)
}

fn hint(nearest: Option<&str>, known: &[String], extra: Option<&str>) -> String {
    let guess = nearest.map_or(String::new(), |name| format!("did you mean `{name}`? "));
    let extra = extra.map_or(String::new(), |extra| format!("; {extra}"));
    format!("hint: {guess}known: {}{extra}", known.join(", "))
}
