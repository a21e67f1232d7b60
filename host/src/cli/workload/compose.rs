//! `blis workload compose`: several workload specifications as one.

use std::path::PathBuf;

use clap::Args;

use super::super::output::{print, print_note};
use blis_eval::error::RunError;
use blis_report::{check_target, write_text};
use blis_workload::spec::compose::{Composed, compose as merge};

#[derive(Debug, Args)]
pub(in crate::cli) struct ComposeArgs {
    /// Workload specifications (YAML), ServeGen folders, inference-perf files; a single one is converted
    #[arg(value_name = "FILE", required_unless_present = "from")]
    files: Vec<PathBuf>,
    /// BLIS's way to name one; may be given several times
    #[arg(long, value_name = "FILE")]
    from: Vec<PathBuf>,
    /// File for the specification [default: standard output]
    #[arg(long, short, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Reads all, then writes. Changes that were needed are reported on standard error.
pub(in crate::cli) fn compose(args: &ComposeArgs) -> Result<(), RunError> {
    let files: Vec<PathBuf> = args.files.iter().chain(&args.from).cloned().collect();
    if let Some(output) = &args.out {
        // An input must not be overwritten: it would be lost.
        let same =
            |file: &PathBuf| file.canonicalize().is_ok_and(|file| output.canonicalize().is_ok_and(|o| o == file));
        if let Some(file) = files.iter().find(|file| same(file)) {
            return Err(RunError::usage(format_args!("`{}` is an input", file.display())).hint("name another file"));
        }
        check_target(output).map_err(|error| RunError::file(&error))?;
    }
    let Composed { spec, notes } = merge(&files).map_err(RunError::refused)?;
    let warnings = spec.warnings.iter().map(|(what, hint)| format!("{what} (hint: {hint})"));
    for note in notes.into_iter().chain(warnings) {
        print_note(&note);
    }
    match &args.out {
        Some(output) => write_text(output, &spec.to_string()).map_err(|error| RunError::file(&error)),
        None => print(spec),
    }
}
