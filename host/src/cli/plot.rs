//! `blis plot`: figures for papers.

use std::io;
use std::path::{Path, PathBuf};

use blis_diag::open_bounded;
use blis_eval::error::RunError;
use blis_report::{FigureKind, PlotError, PlotInput, check_target, plot, write_pair};
use clap::Args;
use strum::VariantNames as _;

use super::output::print_note;

/// Largest file that is read, bytes: a million requests.
const MOST_BYTES: u64 = 512 << 20;

#[derive(Debug, Args)]
pub(super) struct PlotArgs {
    /// Results: files of --metrics-path of `run` or `replay`, or what `sweep` or `compare` prints with --output json
    #[arg(value_name = "RESULT.json", required = true)]
    results: Vec<PathBuf>,
    /// The picture; its numbers are written beside it, as FILE.csv
    #[arg(long, value_name = "FILE.svg|png", required = true, value_parser = picture)]
    out: PathBuf,
    /// Figure: cdf or percentiles (runs), sweep or pareto (sweeps), differences (comparisons) [default: the first of its result]
    #[arg(long, value_name = "KIND", value_parser = kind)]
    kind: Option<FigureKind>,
    /// What is drawn: ttft, tpot, e2e or scheduling_delay of runs, a limit of a sweep, a figure of a comparison [default: the first;
    /// all of a comparison]
    #[arg(long, value_name = "NAME")]
    figure: Option<String>,
}

fn kind(text: &str) -> Result<FigureKind, String> {
    text.parse().map_err(|_| format!("figures are {}", FigureKind::VARIANTS.join(", ")))
}

/// The file of a picture.
fn picture(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    if ["svg", "png"].iter().any(|form| has_extension(&path, form)) {
        return Ok(path);
    }
    Err("a picture is SVG or PNG: name a file that ends in .svg or .png; other forms are made of the SVG, such as \
         `rsvg-convert --format pdf --output FILE.pdf FILE.svg`"
        .to_owned())
}

fn has_extension(path: &Path, wanted: &str) -> bool {
    path.extension().is_some_and(|found| found.eq_ignore_ascii_case(wanted))
}

/// Runs the command `blis plot`.
pub(super) fn plot_results(args: &PlotArgs) -> Result<(), RunError> {
    let table = args.out.with_extension("csv");
    for path in [&args.out, &table] {
        check_target(path).map_err(|error| RunError::file(&error))?;
    }
    let inputs = args.results.iter().map(|path| read(path)).collect::<Result<Vec<_>, _>>()?;
    let figure = plot(args.kind, args.figure.as_deref(), &inputs).map_err(|error| refused(&error))?;
    let picture = if has_extension(&args.out, "png") { figure.png() } else { figure.svg().into_bytes() };
    write_pair(&args.out, |out| out.write_all(&picture), &table, |out| out.write_all(figure.csv().as_bytes()))
        .map_err(|error| RunError::file(&error))?;
    print_note(&format_args!("{} and its numbers, {}", args.out.display(), table.display()));
    Ok(())
}

fn read(path: &Path) -> Result<PlotInput, RunError> {
    let shown = path.display();
    let unreadable = |error: &io::Error| match error.kind() {
        io::ErrorKind::FileTooLarge => RunError::usage(format_args!("`{shown}` has more than {} MB", MOST_BYTES >> 20))
            .hint("draw a shorter run, or a part of it: `blis replay --start --duration`"),
        _ => RunError::refused(blis_diag::unreadable(&shown.to_string(), error)),
    };
    // In parts: what is no JSON is refused at its first byte.
    let input = open_bounded(path, MOST_BYTES).map_err(|error| unreadable(&error))?;
    let document = serde_json::from_reader(input).map_err(|error| {
        if error.is_io() {
            return unreadable(&error.into());
        }
        RunError::usage(format_args!("`{shown}` is not JSON: {error}"))
            .hint("results are written by `--metrics-path` of `blis run`, and by `--output json`")
    })?;
    let name = path.file_stem().map_or_else(|| shown.to_string(), |name| name.to_string_lossy().into_owned());
    Ok(PlotInput { name, document })
}

fn refused(error: &PlotError) -> RunError {
    let hint = match error {
        PlotError::OtherKind { .. } | PlotError::Several { .. } => "name results of one kind, or another `--kind`",
        PlotError::NoKind(_) => {
            "`blis run --metrics-path FILE` writes every request, `--output json` the other results"
        }
        PlotError::NoFigure { .. } => "name one of these with `--figure`",
        PlotError::Empty { .. } => "another `--figure` may have values",
    };
    RunError::usage(error).hint(hint)
}
