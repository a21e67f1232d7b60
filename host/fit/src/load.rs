//! Finds and reads measured runs.
//!
//! There are three ways to name runs: a folder with `runs.csv` (one line per run, requests in `requests/<run>.csv`) or
//! `aggregates.csv` (runs of which only means are known) or both; one of these files itself; or one file of requests
//! with the deployment on the command line.

use std::path::PathBuf;

use super::aggregates::load_aggregates;
use super::catalogue::{load_catalogue, load_single};
use super::runs::{FitError, MeasuredRun, RunOptions};

/// Reads the runs of all `paths`, in their order.
///
/// # Errors
/// If a file cannot be read or is invalid.
pub fn load(paths: &[PathBuf], options: &RunOptions) -> Result<Vec<MeasuredRun>, FitError> {
    let mut runs = Vec::new();
    for path in paths {
        let (catalogue, aggregates) = (path.join("runs.csv"), path.join("aggregates.csv"));
        if path.is_dir() {
            if catalogue.exists() || !aggregates.exists() {
                runs.extend(load_catalogue(&catalogue, options)?);
            }
            if aggregates.exists() {
                runs.extend(load_aggregates(&aggregates, options)?);
            }
        } else if path.file_name().is_some_and(|name| name == "runs.csv") {
            runs.extend(load_catalogue(path, options)?);
        } else if path.file_name().is_some_and(|name| name == "aggregates.csv") {
            runs.extend(load_aggregates(path, options)?);
        } else {
            runs.push(load_single(path, options)?);
        }
    }
    Ok(runs)
}
