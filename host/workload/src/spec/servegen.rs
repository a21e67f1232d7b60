//! ServeGen folders: measured rates and lengths of the clients of a real service.
//!
//! A client ("chunk") has two files: `chunk-<id>-trace.csv`, with the rate and the inter-arrival distribution of every
//! 600 s, and `chunk-<id>-dataset.json`, with the distributions of its lengths from certain times on.

use std::path::Path;

use super::client::Client;
use super::cohort::Cohort;
use super::error::SpecFileError;
use super::files::Files;

mod blis;
mod chunk;
mod measured;
mod options;

pub(super) use options::ServeGenOptions;
pub use options::ServeGenReading;

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
