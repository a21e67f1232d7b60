//! ServeGen folders: measured rates and lengths of the clients of a real service.
//!
//! A client ("chunk") has two files: `chunk-<id>-trace.csv`, with the rate and the inter-arrival distribution of every
//! 600 s, and `chunk-<id>-dataset.json`, with the distributions of its lengths from certain times on.

use std::path::Path;

use super::error::SpecFileError;
use super::files::Files;
use super::{Client, Cohort};

mod blis;
mod chunk;
mod measured;

/// The way to read a ServeGen folder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ServeGenReading {
    /// One client per chunk, with one window per row of its trace, and lengths as measured.
    #[default]
    Measured,
    /// As BLIS: cohorts with mean rates and lognormal lengths, at three times of the day.
    Blis,
}

/// Options for reading a folder.
#[derive(Clone, Copy, Debug)]
pub(super) struct ServeGenOptions {
    pub reading: ServeGenReading,
    /// Start of the selected part of the measurement, s.
    pub start_secs: u32,
    /// Length of the selected part, s.
    pub duration_secs: Option<u32>,
    /// For BLIS's reading: simulated time of each part of the day, s.
    pub window_secs: u32,
    /// For BLIS's reading: pause after each part, s.
    pub drain_secs: u32,
    /// For BLIS's reading: seed that selects the window of the day and the classes of clients.
    pub seed: u64,
}

impl Default for ServeGenOptions {
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
    /// Warnings about settings that may have unexpected effects: (what, hint).
    pub warnings: Vec<(String, String)>,
}

/// The clients of the folder at `path`.
pub(super) fn load(
    files: &dyn Files,
    path: &Path,
    shown: &str,
    options: &ServeGenOptions,
) -> Result<Senders, SpecFileError> {
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
