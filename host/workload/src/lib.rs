//! Workloads: the requests of a simulation.
//!
//! A generator ([`distribution`], [`spec`]) or a trace in one of several formats (one importer per file) results in a
//! [`Workload`]: requests with numbers for the simulator, and names for the reports.
//!
//! ```text
//! file → input (gzip, lines) → one of the importers → rows → window → Workload
//!        json (numbers, NaN)     hashed → prefix ↗
//!                                bench  (two of them)
//! ```

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests make the files that they read"))]

use std::io::{BufRead, Cursor, Read as _};
use std::path::{Path, PathBuf};

use blis_diag::{Diagnostic, Location};

pub mod aiperf;
pub mod azure;
pub mod bailian;
mod bench;
pub mod blis_csv;
pub mod burstgpt;
mod closed_loop;
mod conversation;
pub mod convert;
mod detect;
pub mod distribution;
mod drawn_arrivals;
mod error;
mod field;
mod format;
pub mod guidellm;
mod hashed;
mod json;
mod max_tokens;
pub mod mooncake;
mod names;
pub mod otel;
pub mod otel_steps;
pub mod plain_csv;
mod prefix;
pub mod profile;
mod recorded;
mod records;
mod row;
mod rows;
pub mod sglang_bench;
pub mod sharegpt;
pub mod spec;
mod trace_options;
pub mod trace_v2;
pub mod vllm_bench;
pub mod vllm_vcr;
mod window;
mod workload;

pub use drawn_arrivals::DrawnArrivals;
pub use error::{Skipped, TraceError};
pub use format::TraceFormat;
pub use max_tokens::MaxTokens;
pub use names::Names;
pub use recorded::RecordedTimes;
pub use rows::counted;
pub use trace_options::TraceOptions;
pub use window::TraceWindow;
pub use workload::Workload;

/// Reads the trace at `path`, gzip-compressed or not, and detects its format.
///
/// A TraceV2 trace has two files, `x.yaml` and `x.csv` (or `x.csv.gz`): either path selects both.
///
/// # Errors
/// See [`TraceError`].
pub fn open_trace(path: &Path, options: &TraceOptions) -> Result<Workload, TraceError> {
    let file = blis_diag::display(path);
    let (start, input) = peek(path)?;
    let format = match options.format {
        Some(format) => format,
        None => TraceFormat::detect(&file, &start)?,
    };
    if options.closed_loop.is_some() && !matches!(format, TraceFormat::TraceV2 | TraceFormat::Mooncake) {
        return Err(TraceError::NoSessions { file, format });
    }
    if options.arrivals.is_some() && !matches!(format, TraceFormat::Csv | TraceFormat::ShareGpt) {
        return Err(TraceError::HasArrivals { file, format: format!("format {format}") });
    }
    let input = Cursor::new(start.clone()).chain(input);
    match format {
        TraceFormat::Azure => azure::read(input, &file, options),
        TraceFormat::Mooncake if options.format.is_none() && detect::is_guess(&start) => {
            mooncake::read(input, &file, options).map_err(TraceError::of_a_guess)
        }
        TraceFormat::Mooncake => mooncake::read(input, &file, options),
        TraceFormat::BlisCsv => blis_csv::read(input, &file, options),
        TraceFormat::Bailian => bailian::read(input, &file, options),
        TraceFormat::BurstGpt => burstgpt::read(input, &file, options),
        TraceFormat::VllmBench => vllm_bench::read(input, &file, options),
        TraceFormat::SglangBench => sglang_bench::read(input, &file, options),
        TraceFormat::AiPerf => aiperf::read(input, &file, options),
        TraceFormat::Guidellm => guidellm::read(input, &file, options),
        TraceFormat::Otel => otel::read(input, &file, options),
        TraceFormat::VllmVcr => vllm_vcr::read(input, &file, options),
        TraceFormat::Csv => plain_csv::read(input, &file, options),
        TraceFormat::ShareGpt => sharegpt::read(input, &file, options),
        TraceFormat::TraceV2 if detect::is_trace_v2_data(&start) => {
            let header = other_half(path, "data", &["yaml", "yml"])?;
            let header = trace_v2::read_header(blis_diag::open(&header)?, &blis_diag::display(&header))?;
            trace_v2::read(input, &file, &header, options)
        }
        TraceFormat::TraceV2 => {
            let header = trace_v2::read_header(input, &file)?;
            let data = other_half(path, "header", &["csv", "csv.gz"])?;
            trace_v2::read(blis_diag::open(&data)?, &blis_diag::display(&data), &header, options)
        }
    }
}

/// Reads a TraceV2 trace from two given files.
///
/// # Errors
/// See [`TraceError`].
pub fn open_trace_v2(header: &Path, data: &Path, options: &TraceOptions) -> Result<Workload, TraceError> {
    let header = trace_v2::read_header(blis_diag::open(header)?, &blis_diag::display(header))?;
    trace_v2::read(blis_diag::open(data)?, &blis_diag::display(data), &header, options)
}

/// Whether the file at `path` begins like the header of a TraceV2 trace. False if it cannot be read.
#[must_use]
pub fn is_trace_v2_header(path: &Path) -> bool {
    let start = peek(path).map(|(start, _)| start).unwrap_or_default();
    !detect::is_trace_v2_data(&start)
        && TraceFormat::detect("", &start).is_ok_and(|format| format == TraceFormat::TraceV2)
}

/// The first bytes of a file, and the rest of it.
fn peek(path: &Path) -> Result<(Vec<u8>, impl BufRead + Send + use<>), TraceError> {
    const START_BYTES: u64 = 4096;
    let mut input = blis_diag::open_or_stdin(path)?;
    let mut start = Vec::new();
    let read = (&mut input).take(START_BYTES).read_to_end(&mut start);
    read.map_err(|source| TraceError::Io { file: blis_diag::display(path), source })?;
    Ok((start, input))
}

/// The other file of a TraceV2 trace: the same name with one of `extensions`.
fn other_half(path: &Path, half: &'static str, extensions: &[&str]) -> Result<PathBuf, TraceError> {
    if path == Path::new("-") {
        let what = Diagnostic::new(format!("a TraceV2 trace has two files, and this is its {half}"));
        let what = what.at(Location::file(blis_diag::display(path)));
        return Err(what.hint("name one of the two files; the other is found beside it").into());
    }
    let unpacked = if path.extension().is_some_and(|e| e == "gz") { path.with_extension("") } else { path.into() };
    let candidates = extensions.iter().map(|extension| unpacked.with_extension(extension));
    candidates.clone().find(|candidate| candidate.is_file()).ok_or_else(|| {
        let missing: Vec<_> = candidates.map(|candidate| candidate.display().to_string()).collect();
        TraceError::HalfMissing { file: blis_diag::display(path), half, missing: missing.join("` or `") }
    })
}

#[cfg(test)]
mod tests;
