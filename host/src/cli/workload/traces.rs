//! `blis workload inspect` and `convert`: requests of traces and specifications.

use std::io::{self, IsTerminal as _, Write};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use blis_sim::units::Micros;
use clap::Args;

use super::super::args::Settings;
use super::super::envelope::Document;
use super::super::one_of::OneOf;
use super::super::output::{OutputForm, colour_wanted, print, print_json, print_note, print_text, wants_text_form};
use blis_eval::envelope::Envelope;
use blis_eval::error::RunError;
use blis_eval::spec::{NamedChoice as _, TraceFormatName, WorkloadName, commands, parse};
use blis_eval::workload_config::TracePart;
use blis_report::Concludes as _;
use blis_report::{check_target, write_pair, write_whole};
use blis_workload::convert::{Lost, TRACE_V2_HEADER, TargetFormat};
use blis_workload::distribution::ArrivalProcess;
use blis_workload::profile::{ProfileText, WorkloadProfile};
use blis_workload::spec::{GenerateOptions, Spec};
use blis_workload::{DrawnArrivals, TraceOptions, TraceWindow, Workload, is_trace_v2_header, open_trace};

#[derive(Debug, Args)]
pub(super) struct InspectArgs {
    /// Request trace in any format that `blis run --workload-trace` reads, plain or gzip-compressed, or what
    /// `--workload-spec` reads: of that, --max-requests requests [default: 100000], as if every output token took 1 µs
    #[arg(value_name = "FILE", required_unless_present = "workload")]
    file: Option<PathBuf>,
    /// Built-in workload, in place of a file
    #[arg(long, value_parser = OneOf::<WorkloadName>::new(), value_name = "NAME", conflicts_with = "file")]
    workload: Option<WorkloadName>,
    #[command(flatten)]
    input: InputSettings,
    /// Block size for shared prefixes, tokens ≥ 1
    #[arg(long, visible_alias = "block-size", value_name = "N", default_value = "16", value_parser = parse::nonzero)]
    block_size_in_tokens: NonZeroU32,
    /// Form of the output; auto is text on a terminal, JSON elsewhere
    #[arg(long, value_enum, value_name = "FORM", default_value_t = OutputForm::Auto)]
    output: OutputForm,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct ConvertArgs {
    /// Request trace in any format that `blis run --workload-trace` reads, plain or gzip-compressed
    #[arg(value_name = "IN")]
    from: PathBuf,
    /// Output file; trace-v2 writes two, with the endings .yaml and .csv
    #[arg(value_name = "OUT")]
    out: PathBuf,
    /// Output format
    #[arg(long, value_parser = OneOf::<TargetFormat>::new(), value_name = "FORMAT")]
    to: TargetFormat,
    #[command(flatten)]
    input: InputSettings,
    /// Block size for shared prefixes in the output, tokens ≥ 1 [default: mooncake 512, blis-csv 16; trace-v2 has
    /// them to the token]
    #[arg(long, visible_alias = "block-size", value_name = "N", value_parser = parse::nonzero)]
    block_size_in_tokens: Option<NonZeroU32>,
}

/// How the input is read.
type InputSettings = Settings<{ commands::TRACES }>;

impl InputSettings {
    /// The workload, and notes about it.
    fn open(&self, path: &Path, block_size: NonZeroU32) -> Result<(Workload, Vec<String>), RunError> {
        let TracePart { window, max_requests } = TracePart::new(&self.0);
        let seed = self.0.seed();
        let arrivals = self.0.rate.map(|rate| DrawnArrivals { rate, process: ArrivalProcess::Poisson, seed });
        if arrivals.is_none() && self.0.seed.is_some() {
            return Err(RunError::usage("`--seed` cannot be used with a trace without `--rate`")
                .hint("a trace has its requests already"));
        }
        let options = TraceOptions {
            arrivals,
            format: self.0.trace_format().format(),
            block_size,
            hash_block_size: self.0.mooncake_block_size,
            skip_bad_lines: self.0.skip_bad_lines(),
            max_requests,
            window,
            ..TraceOptions::default()
        };
        let workload = open_trace(path, &options).map_err(|error| {
            RunError::refused(error).or_hint("correct the line, or leave out such lines with `--skip-bad-lines`")
        })?;
        let mut notes = workload.notes.clone();
        if let Some(first) = workload.skipped.first.first() {
            notes.push(format!("{} bad lines left out; the first: {}", workload.skipped.count, first.headline()));
        }
        Ok((workload, notes))
    }
}

/// Number of generated requests without `--max-requests`.
const USUAL_REQUESTS: u64 = 100_000;

impl InspectArgs {
    /// The requests of `spec`, and notes about them.
    fn generated(&self, spec: &Spec) -> Result<(Workload, Vec<String>), RunError> {
        let TracePart { window, max_requests } = TracePart::new(&self.input.0);
        let flag = if window != TraceWindow::default() {
            Some("--start, --duration, --repeat, --time-scale or --spread-bins")
        } else if self.input.0.trace_format() != TraceFormatName::Auto {
            Some("--trace-format")
        } else if self.input.0.mooncake_block_size.is_some() {
            Some("--mooncake-block-size")
        } else {
            self.input.0.skip_bad_lines().then_some("--skip-bad-lines")
        };
        if let Some(flag) = flag {
            return Err(RunError::usage(format_args!("`{flag}` cannot be used with generated requests"))
                .hint("it is for traces; `--max-requests` and `--seed` are for both"));
        }
        let most = max_requests.unwrap_or(USUAL_REQUESTS);
        let options = GenerateOptions {
            seed: self.input.0.seed.or(spec.seed).unwrap_or_else(|| self.input.0.seed()),
            block_size: self.block_size_in_tokens,
            horizon: spec.horizon.unwrap_or(Micros::MAX),
            num_requests: Some(spec.num_requests.map_or(most, |own| own.min(most))),
            timeout: None,
            as_in_blis: false,
        };
        let workload = spec.generate_immediate(&options).map_err(RunError::refused)?;
        let mut notes: Vec<String> =
            spec.warnings.iter().map(|(what, hint)| format!("{what} (hint: {hint})")).collect();
        if spec.num_requests.is_none_or(|own| own > most) {
            notes.push(format!("the first {most} requests at most; `--max-requests` sets another number"));
        }
        if let Some(client) = spec.first_in_closed_loop() {
            let id = &client.id;
            notes.push(format!("client `{id}` is in closed loop; here an output token takes 1 µs"));
        }
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        Ok((Workload { requests: Box::new(workload.requests.take(most)), ..workload }, notes))
    }
}

/// Whether `path` is a ServeGen folder, or a YAML file that is not the header of a trace.
fn is_specification(path: &Path) -> bool {
    let named = path.extension().is_some_and(|end| end.eq_ignore_ascii_case("yaml") || end.eq_ignore_ascii_case("yml"));
    path.is_dir() || named && !is_trace_v2_header(path)
}

pub(super) fn inspect(args: &InspectArgs) -> Result<(), RunError> {
    /// Width of the output, columns, if it does not go to a terminal.
    const USUAL_WIDTH: usize = 80;
    let block_size = args.block_size_in_tokens;
    let (workload, notes) = match (&args.file, args.workload) {
        (_, Some(name)) => args.generated(&name.spec(args.input.0.rate.unwrap_or(1.0))?)?,
        (Some(file), None) if is_specification(file) => {
            if args.input.0.rate.is_some() {
                return Err(RunError::usage("`--rate` cannot be used with a specification")
                    .hint("the specification sets the rate"));
            }
            args.generated(&Spec::load(file).map_err(RunError::refused)?)?
        }
        (Some(file), None) => args.input.open(file, block_size)?,
        (None, None) => return Err(RunError::usage("there is nothing to inspect").hint("name a file")),
    };
    let nothing = || {
        let name = args.file.as_ref().map_or_else(String::new, |file| format!("{}: ", file.display()));
        RunError::usage(format_args!("{name}no requests are left")).hint("allow more with `--max-requests`")
    };
    let profile = WorkloadProfile::new(workload, block_size.get()).ok_or_else(nothing)?;
    notes.iter().for_each(print_note);
    if !wants_text_form(args.output) {
        let preset = args.workload.map(|name| name.name().to_owned());
        let file = args.file.as_ref().map(|file| file.display().to_string());
        let about = Envelope::in_words(file.or(preset).unwrap_or_default());
        return print_json(&Document::new(&profile, &about));
    }
    let terminal = io::stdout().is_terminal();
    let width = terminal_size::terminal_size().filter(|_| terminal).map_or(USUAL_WIDTH, |(width, _)| width.0.into());
    let colour = colour_wanted(&io::stdout());
    let text = ProfileText { profile: &profile, width, colour };
    print_text(format_args!("{}\n\n{text}", profile.conclusion()))
}

pub(in crate::cli) fn convert(args: &ConvertArgs) -> Result<(), RunError> {
    let target = args.to;
    let data = if target == TargetFormat::TraceV2 { args.out.with_extension("csv") } else { args.out.clone() };
    let header = (target == TargetFormat::TraceV2).then(|| args.out.with_extension("yaml"));
    if target == TargetFormat::TraceV2 && args.block_size_in_tokens.is_some() {
        return Err(RunError::usage("`--block-size-in-tokens` cannot be used with `--to trace-v2`")
            .hint("trace-v2 has shared prefixes to the token"));
    }
    for file in header.iter().chain([&data]) {
        // The input must not be overwritten while it is read.
        let same = file.canonicalize().is_ok_and(|file| args.from.canonicalize().is_ok_and(|from| from == file));
        if same {
            return Err(RunError::usage(format_args!("`{}` is the input", file.display())).hint("name another file"));
        }
        check_target(file).map_err(|error| RunError::file(&error))?;
    }
    let block_size = args.block_size_in_tokens.unwrap_or(target.block_size());
    let (workload, notes) = args.input.open(&args.from, block_size)?;
    notes.iter().for_each(print_note);
    let mut outcome = None;
    // Whole or not at all: what cannot be written must not leave half a trace.
    let content = |mut out: &mut dyn Write| {
        let written = target.write(workload, block_size, &mut out);
        let failed = written.is_err();
        outcome = Some(written);
        if failed { Err(io::ErrorKind::Other.into()) } else { Ok(()) }
    };
    let file = match &header {
        Some(header) => write_pair(&data, content, header, |out| out.write_all(TRACE_V2_HEADER.as_bytes())),
        None => write_whole(&data, content),
    };
    let (count, lost) = match (outcome, file) {
        (Some(Err(error)), _) => {
            return Err(RunError::runtime(format_args!("cannot write `{}`: {error}", data.display())));
        }
        (Some(Ok(written)), Ok(())) => written,
        (_, Err(error)) => return Err(RunError::file(&error)),
        (None, Ok(())) => (0, Lost::new()),
    };
    let requests = if count == 1 { "request" } else { "requests" };
    print_text(format_args!("{count} {requests} written to {}\n", data.display()))?;
    if lost.is_empty() {
        return print("nothing is lost\n");
    }
    print_text(format_args!("lost: {}\n", lost.into_iter().collect::<Vec<_>>().join(", ")))
}
