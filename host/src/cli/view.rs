//! Pages to look at: `blis view`, and `--report` of the commands that print one result.

use std::fs;
use std::path::{Path, PathBuf};

use blis_diag::{read_text, unreadable};
use blis_eval::error::RunError;
use blis_eval::evaluation::history::read_history;
use blis_report::{PageResult, check_target, write_page};
use clap::Args;

/// Largest file that is shown, bytes: a page must stay small enough for a browser.
const MOST_BYTES: u64 = 16 << 20;

#[derive(Debug, Args)]
pub(super) struct ViewArgs {
    /// Files of results: what `blis run`, `compare`, `capacity`, `size`, `sweep`, `evaluate` or `tune` prints with --output
    /// json, and folders with the history of a search (--history). Several are shown below each other, and runs beside each other
    #[arg(value_name = "RESULT", required = true)]
    results: Vec<PathBuf>,
    /// The page, HTML: one file that needs no network
    #[arg(long, value_name = "FILE.html", required = true)]
    report: PathBuf,
}

/// `blis view`.
pub(super) fn view(args: &ViewArgs) -> Result<(), RunError> {
    check_page(Some(&args.report))?;
    let mut results = Vec::new();
    for path in &args.results {
        results.extend(read(path)?);
    }
    let title = match &results[..] {
        [one] => one.name.clone(),
        several => format!("{} results", several.len()),
    };
    write_page(&args.report, &title, &results).map_err(|error| RunError::file(&error))
}

/// The results in a file, or the history in a folder.
fn read(path: &Path) -> Result<Vec<PageResult>, RunError> {
    let shown = path.display();
    let unreadable = |error: std::io::Error| RunError::refused(unreadable(&shown.to_string(), &error));
    let metadata = fs::metadata(path).map_err(unreadable)?;
    if metadata.is_dir() {
        let history = read_history(path)?.ok_or_else(|| {
            RunError::usage(format_args!("the folder `{shown}` has no `history.jsonl`"))
                .hint("histories of searches are written by `--history FOLDER`")
        })?;
        let name = path.file_name().map_or_else(|| shown.to_string(), |name| name.to_string_lossy().into_owned());
        return Ok(vec![PageResult::new(name, &history, None)]);
    }
    let text = read_text(path, MOST_BYTES).map_err(|error| match error.kind() {
        std::io::ErrorKind::FileTooLarge => {
            let what = format_args!("`{shown}` has {} MB: a page shows results of at most 16 MB", metadata.len() >> 20);
            RunError::usage(what)
                .hint("results with every request are not shown: name the output of `--output json`, or add `--report` to the run")
        }
        _ => unreadable(error),
    })?;
    let name = path.file_name().map_or_else(|| shown.to_string(), |name| name.to_string_lossy().into_owned());
    let results = PageResult::read(&name, &text).map_err(|error| {
        RunError::usage(format_args!("`{shown}` is not JSON: {error}")).hint("results are written by `--output json`")
    })?;
    if results.is_empty() {
        return Err(RunError::usage(format_args!("`{shown}` is empty")).hint("results are written by `--output json`"));
    }
    Ok(results)
}

/// Refuses a page that cannot be written, before anything is simulated.
pub(super) fn check_page(path: Option<&Path>) -> Result<(), RunError> {
    path.map_or(Ok(()), |path| check_target(path).map_err(|error| RunError::file(&error)))
}
