//! Workload specifications: many clients, each with its own arrivals, lengths and sessions, in one YAML file.
//!
//! ```text
//! file ─ parse ──────────┐
//! ServeGen folder ───────┤→ Spec: clients, cohorts → expand → a Plan per client → generate → requests
//! inference-perf stages ─┤          (as specified)            (rates, windows)     (merged, one at a time)
//! named workloads ───────┘                                                              ↑ session
//! ```
//!
//! The schema is that of BLIS, versions 1 and 2. Request `n` of a client depends on the seed, the client's id and `n`;
//! other clients only affect its share of the rate.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

pub mod arrival;
mod chats;
mod client;
mod cohort;
pub mod compose;
mod drawn;
mod error;
mod expand;
pub mod files;
mod generate;
mod immediate;
mod inference_perf;
mod lengths;
mod numbers;
mod options;
mod parse;
pub mod presets;
mod prompts;
mod raw;
mod read;
mod sampling;
mod servegen;
pub mod session;
mod source;
mod specification;
mod steady;
mod window;
mod write;

pub use arrival::Arrival;
pub use client::{Client, ClientLoad, ClientNetwork, MultiTurn, Multimodal, Prefix, Timeout, Turns};
pub use cohort::{Cohort, Diurnal, DrainSpec, PrefixSharing, Spike};
pub use error::{ExpandError, SpecFileError};
pub use files::{Beside, Files, NoFiles};
pub use generate::{DrawnRequest, Requests};
pub use lengths::{Empirical, LONGEST, Lengths};
pub use options::GenerateOptions;
pub use prompts::PromptCycle;
pub use sampling::ClientSampling;
pub use servegen::ServeGenReading;
pub use specification::{Part, Spec};
pub use steady::SteadySessions;
pub use window::{Window, WindowRate};

use super::{Names, Skipped, Workload, closed_loop};

impl Spec {
    /// Reads the specification or the ServeGen folder at `path`.
    ///
    /// # Errors
    /// If it cannot be read, is not YAML, or contains an unknown key or an invalid value.
    pub fn load(path: &Path) -> Result<Self, SpecFileError> {
        Self::load_with(path, ServeGenReading::Measured, Beside)
    }

    /// Reads `path`; if it is a ServeGen folder, or refers to one, in the given way. `files_of` gives access to the files of a folder:
    /// that of the specification.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn load_with<F: Files>(
        path: &Path,
        servegen: ServeGenReading,
        files_of: impl FnOnce(PathBuf) -> F,
    ) -> Result<Self, SpecFileError> {
        parse::load(path, servegen, files_of).map(|(spec, ..)| spec)
    }

    /// Parses `text`, the content of `file`. `files` gives access to the files that it refers to.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn parse(file: &str, text: &str, files: &dyn Files) -> Result<Self, SpecFileError> {
        parse::parse(file, text, files)
    }

    /// The requests. Of closed loops, only those that wait for no other request; the others follow from calls of
    /// [`Requests::ended`].
    ///
    /// # Errors
    /// If the workload has no end, or more requests than 32 bits can number.
    pub fn requests(&self, options: &GenerateOptions) -> Result<(Requests, Names), ExpandError> {
        let expanded = expand::expand(self, options)?;
        Ok(Requests::new(expanded, &self.parts, options))
    }

    /// The requests if every output token takes 1 µs: closed loops without a simulation.
    ///
    /// # Errors
    /// As [`Self::requests`].
    pub fn generate_immediate(&self, options: &GenerateOptions) -> Result<Workload, ExpandError> {
        let (requests, names) = self.requests(options)?;
        Ok(Workload {
            count: None,
            requests: Box::new(immediate::ImmediateRequests::new(requests)),
            follow_ups: None,
            names,
            slo_targets: self.goodput_slo_targets.clone(),
            aside: BTreeSet::new(),
            recorded: Vec::new(),
            skipped: Skipped::default(),
            notes: Vec::new(),
        })
    }

    /// The requests as a workload.
    ///
    /// # Errors
    /// As [`Self::requests`].
    pub fn generate(&self, options: &GenerateOptions) -> Result<Workload, ExpandError> {
        let (requests, names) = self.requests(options)?;
        let count = requests.known_count();
        let (requests, follow_ups): (Box<dyn Iterator<Item = _> + Send>, _) = if self.first_in_closed_loop().is_some() {
            let (requests, follow_ups) = closed_loop::split(requests);
            (Box::new(requests), Some(follow_ups))
        } else {
            (Box::new(requests.map(|drawn| drawn.request)), None)
        };
        Ok(Workload {
            count: count.filter(|_| follow_ups.is_none()),
            requests,
            follow_ups,
            names,
            slo_targets: self.goodput_slo_targets.clone(),
            aside: BTreeSet::new(),
            recorded: Vec::new(),
            skipped: Skipped::default(),
            notes: Vec::new(),
        })
    }
}

#[cfg(test)]
mod tests;
