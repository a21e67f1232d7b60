//! ServeGen folders: measured rates and lengths of the clients of a real service.
//!
//! A client ("chunk") is two files: `chunk-<id>-trace.csv`, per 600 s its rate and the form of its
//! intervals, and `chunk-<id>-dataset.json`, the distributions of its lengths from some times on.

use std::path::Path;

use super::error::SpecFileError;
use super::files::Files;
use super::{Client, Cohort};

mod blis;
mod chunk;
mod measured;

/// How a ServeGen folder is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ServeGenReading {
    /// A client per chunk, with a window per row of its trace and the lengths as counted.
    #[default]
    Measured,
    /// As BLIS: cohorts with average rates and lognormal lengths, at three times of the day.
    Blis,
}

/// What to make of a folder.
#[derive(Clone, Copy, Debug)]
pub(super) struct Options {
    pub reading: ServeGenReading,
    /// Of the measurements, what comes before is left out.
    pub start_secs: u32,
    /// And what comes so long after it.
    pub duration_secs: Option<u32>,
    /// Of BLIS's reading: simulated time of each part of the day.
    pub window_secs: u32,
    /// Of BLIS's reading: silence after it.
    pub drain_secs: u32,
    /// Of BLIS's reading: decides which window of the day, and which client has which class.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            reading: ServeGenReading::Measured,
            start_secs: 0,
            duration_secs: None,
            window_secs: 600,
            drain_secs: 180,
            seed: 42,
        }
    }
}

#[derive(Debug, Default, PartialEq)]
pub(super) struct Senders {
    pub clients: Vec<Client>,
    pub cohorts: Vec<Cohort>,
    /// What may not be what the author expects: (what, what to do).
    pub warnings: Vec<(String, String)>,
}

/// The clients of the folder at `path`.
pub(super) fn load(files: &dyn Files, path: &Path, shown: &str, options: &Options) -> Result<Senders, SpecFileError> {
    let (chunks, warnings) = chunk::load(files, path, shown, options.reading)?;
    let mut senders = Senders { warnings, ..Senders::default() };
    match options.reading {
        ServeGenReading::Measured => senders.clients = measured::clients(&chunks, options),
        ServeGenReading::Blis => senders.cohorts = blis::cohorts(&chunks, options),
    }
    if senders.clients.is_empty() && senders.cohorts.is_empty() {
        let what = "no client of this folder is ever active";
        let hint = "a client is `chunk-<id>-trace.csv` with rates above 0, and `chunk-<id>-dataset.json`; \
                    `start_secs` and `duration_secs` may leave out all of it";
        return Err(SpecFileError::whole(shown, what, hint));
    }
    Ok(senders)
}

#[cfg(test)]
mod tests;
