//! `blis decisions show`, `top` and `diff`: the recorded decisions of runs.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use blis_sim::ids::{InstanceIndex, RequestId};
use blis_sim::units::Micros;
use clap::{Args, Subcommand};

use super::envelope::print_result;
use super::one_of::OneOf;
use super::output::{OutputForm, print_note, wants_text_form};
use blis_diag::wrapped;
use blis_eval::envelope::Envelope;
use blis_eval::error::RunError;
use blis_eval::spec::parse;
use blis_report::decisions::{Diff, LineFilter, LineKind, Listing, RequestHistory, Top, TopBy, cut_off};
use blis_workload::TraceError;

#[derive(Debug, Args)]
pub(super) struct DecisionsArgs {
    #[command(subcommand)]
    command: DecisionsCommand,
}

#[derive(Debug, Subcommand)]
enum DecisionsCommand {
    /// Show the decisions of a run, or all decisions about one request
    #[command(args_override_self = true)]
    Show(ShowArgs),
    /// Show the worst decisions
    #[command(args_override_self = true)]
    Top(TopArgs),
    /// Show where two runs first differ, how often, and the effect on requests
    #[command(args_override_self = true)]
    Diff(DiffArgs),
}

#[derive(Debug, Args)]
struct ShowArgs {
    /// Decision trace, written by `blis run --trace-level decisions --trace-path FILE`
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Request: its admission and routing with the signals of the policies, the requests that it waited for, and its
    /// end
    #[arg(long, value_name = "ID", value_parser = request, conflicts_with_all = ["instance", "from", "to", "kind"])]
    request: Option<RequestId>,
    /// Instance: only its decisions
    #[arg(long, value_name = "N", value_parser = parse::count_or_zero)]
    instance: Option<u32>,
    /// Start of the time range, s or with a unit
    #[arg(long, value_name = "S", value_parser = parse::seconds_from_0)]
    from: Option<Micros>,
    /// End of the time range, s or with a unit
    #[arg(long, value_name = "S", value_parser = parse::seconds_from_0)]
    to: Option<Micros>,
    /// Kinds of lines [default: all but signals]
    #[arg(long, value_parser = OneOf::<LineKind>::new(), value_name = "KIND,…", value_delimiter = ',')]
    kind: Vec<LineKind>,
    /// Form of the output; auto is text on a terminal, JSON elsewhere: one object for --request, else the
    /// lines of the trace
    #[arg(long, value_enum, value_name = "FORM", default_value_t = OutputForm::Auto)]
    output: OutputForm,
}

#[derive(Debug, Args)]
struct TopArgs {
    /// Decision trace, written by `blis run --trace-level decisions --trace-path FILE`
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Figure to sort by
    #[arg(long, value_parser = OneOf::<TopBy>::new(), value_name = "FIGURE", default_value_t = TopBy::E2e)]
    by: TopBy,
    /// Number of decisions, ≥ 1
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = parse::count)]
    limit: u32,
    /// Form of the output; auto is text on a terminal, JSON elsewhere
    #[arg(long, value_enum, value_name = "FORM", default_value_t = OutputForm::Auto)]
    output: OutputForm,
}

#[derive(Debug, Args)]
struct DiffArgs {
    /// Decision trace of one run
    #[arg(value_name = "A")]
    a: PathBuf,
    /// Decision trace of another run of the same requests
    #[arg(value_name = "B")]
    b: PathBuf,
    /// Form of the output; auto is text on a terminal, JSON elsewhere
    #[arg(long, value_enum, value_name = "FORM", default_value_t = OutputForm::Auto)]
    output: OutputForm,
}

pub(super) fn dispatch(args: DecisionsArgs) -> Result<(), RunError> {
    match args.command {
        DecisionsCommand::Show(args) => match args.request {
            Some(request) => show_request(&args, request),
            None => list(args),
        },
        DecisionsCommand::Top(args) => top(&args),
        DecisionsCommand::Diff(args) => diff(&args),
    }
}

fn show_request(args: &ShowArgs, request: RequestId) -> Result<(), RunError> {
    let history = RequestHistory::read(&args.file, request).map_err(unusable)?;
    warn_of_cut(&args.file)?;
    let history = history.ok_or_else(|| {
        let file = args.file.display();
        RunError::usage(format_args!("{file}: no request {request}"))
            .hint(format_args!("`blis decisions show {file} --kind admission` lists those that are in it"))
    })?;
    print_result(args.output, &history, &about(&[&args.file]), &history)
}

/// Line by line: a trace can be longer than memory.
fn list(args: ShowArgs) -> Result<(), RunError> {
    let filter = LineFilter {
        instance: args.instance.map(InstanceIndex),
        from_us: args.from.map(|from| from.0),
        to_us: args.to.map(|to| to.0),
        kinds: args.kind,
    };
    let text = wants_text_form(args.output);
    let mut listing = Listing::open(&args.file, filter).map_err(unusable)?;
    let mut out = io::BufWriter::new(io::stdout().lock());
    let mut write = |text: &str| out.write_all(text.as_bytes()).map_err(|error| RunError::output(&error));
    if text {
        write(&wrapped(&listing.heading()))?;
    }
    let read = loop {
        match listing.next_text(!text) {
            Ok(Some(line)) if text => write(&wrapped(&line))?,
            Ok(Some(line)) => write(&line)?,
            Ok(None) => break Ok(()),
            Err(error) => break Err(unusable(error)),
        }
    };
    // What could be read is shown, then the error.
    out.flush().map_err(|error| RunError::output(&error))?;
    read.and_then(|()| warn_of_cut(&args.file))
}

fn top(args: &TopArgs) -> Result<(), RunError> {
    let top = Top::read(&args.file, args.by, args.limit as usize).map_err(unusable)?;
    warn_of_cut(&args.file)?;
    print_result(args.output, &top, &about(&[&args.file]), &top)
}

fn diff(args: &DiffArgs) -> Result<(), RunError> {
    let same = |path: &Path| path.canonicalize().ok();
    if let (Some(a), Some(b)) = (same(&args.a), same(&args.b))
        && a == b
    {
        return Err(
            RunError::usage(format_args!("`{}` is named twice", args.a.display())).hint("name the traces of two runs")
        );
    }
    let diff = Diff::read(&args.a, &args.b).map_err(unusable)?;
    warn_of_cut(&args.a)?;
    warn_of_cut(&args.b)?;
    print_result(args.output, &diff, &about(&[&args.a, &args.b]), &diff)
}

/// Traces as the subject of a result.
fn about(files: &[&Path]) -> Envelope {
    let names = files.iter().map(|file| file.display().to_string());
    Envelope::in_words(names.collect::<Vec<_>>().join(" and "))
}

/// Says on standard error where a trace is cut off.
pub(super) fn warn_of_cut(file: &Path) -> Result<(), RunError> {
    if let Some(cut) = cut_off(file).map_err(unusable)? {
        print_note(&cut.to_string());
    }
    Ok(())
}

fn unusable(error: TraceError) -> RunError {
    RunError::refused(error)
}

/// The number of a request, as `17` or `request_17`.
fn request(text: &str) -> Result<RequestId, String> {
    let number = text.strip_prefix("request_").unwrap_or(text);
    number.parse().map(RequestId).map_err(|_| "must be the number of a request, like 17 or request_17".to_owned())
}
