//! Workloads: where requests come from.
//!
//! A generator ([`distribution`]) or a trace in one of several formats, one importer a file, ends
//! as the same thing: a [`Workload`], numbers for the simulator and names for the reports.
//!
//! ```text
//! file → input (gzip, lines) → one of the importers → rows → window → Workload
//!        json (numbers, NaN)     hashed → prefix ↗
//!                                bench  (two of them)
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::{BufRead, Cursor, Read as _};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use blis_sim::cluster::FollowUps;
use blis_sim::request::Request;
use blis_sim::units::Micros;

pub mod aiperf;
pub mod azure;
pub mod bailian;
mod bench;
pub mod blis_csv;
pub mod burstgpt;
mod closed_loop;
mod conversation;
pub mod convert;
pub mod distribution;
mod error;
mod field;
mod format;
mod hashed;
mod json;
pub mod mooncake;
mod names;
pub mod otel;
mod prefix;
pub mod profile;
mod records;
mod rows;
pub mod sglang_bench;
pub mod spec;
pub mod trace_v2;
pub mod vllm_bench;
pub mod vllm_vcr;
mod window;

pub use error::{Skipped, TraceError};
pub use format::TraceFormat;
pub use names::Names;
pub use window::Window;

/// Requests for one simulation.
pub struct Workload {
    /// In order of arrival. Generated workloads make them one at a time.
    pub requests: Box<dyn Iterator<Item = Request> + Send>,
    /// What follows from the ends of earlier ones, where clients wait for answers.
    pub follow_ups: Option<Box<dyn FollowUps + Send>>,
    /// How many there will be, where that is known beforehand.
    pub count: Option<u64>,
    /// The text behind the numbers in their [`Tags`](blis_sim::request::Tags).
    pub names: Names,
    /// Latency targets by class, where the trace brings any.
    pub slo_targets: BTreeMap<String, trace_v2::GoodputTargets>,
    /// What the trace says beside, and what is not carried on from here. Ordered, for messages.
    pub aside: BTreeSet<&'static str>,
    /// Rows left out under [`TraceOptions::skip_bad_lines`].
    pub skipped: Skipped,
    /// What the user should know about this workload, a sentence each.
    pub notes: Vec<String>,
}

impl fmt::Debug for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { requests: _, follow_ups: _, count, names: _, slo_targets: _, aside: _, skipped, notes } = self;
        let mut fields = f.debug_struct("Workload");
        fields.field("count", count).field("skipped", skipped).field("notes", notes).finish_non_exhaustive()
    }
}

/// How to read a trace.
#[derive(Clone, Debug)]
pub struct TraceOptions {
    /// The format, where it shall not be told from the content.
    pub format: Option<TraceFormat>,
    /// Tokens per KV block of the engine.
    pub block_size: NonZeroU32,
    /// Tokens per hash id, where it shall not be what the format usually has.
    pub hash_block_size: Option<NonZeroU32>,
    /// Count and leave out rows that cannot be read, instead of refusing the trace.
    pub skip_bad_lines: bool,
    /// Simulate so many requests at most, the first ones of the window.
    pub max_requests: Option<u64>,
    /// Which part of the trace, and how fast.
    pub window: Window,
    /// A TraceV2 column `vllm_priority` decides over the class. BLIS does not read it.
    pub recorded_priority: bool,
    /// Sessions of a TraceV2 or Mooncake trace wait for their answers; `None`: every round arrives as recorded.
    pub closed_loop: Option<trace_v2::ClosedLoop>,
    /// End of the simulation: what arrives later is left out. [`Micros::MAX`] = none.
    pub horizon: Micros,
}

impl Default for TraceOptions {
    /// vLLM's block of 16 tokens, Mooncake's of 512, everything, strictly.
    fn default() -> Self {
        const VLLM_BLOCK: NonZeroU32 = NonZeroU32::new(16).expect("16 > 0");
        Self {
            format: None,
            block_size: VLLM_BLOCK,
            hash_block_size: None,
            skip_bad_lines: false,
            max_requests: None,
            window: Window::default(),
            recorded_priority: true,
            closed_loop: None,
            horizon: Micros::MAX,
        }
    }
}

/// Reads the trace at `path`, gzipped or not, in the format it has.
///
/// A TraceV2 trace is two files, `x.yaml` and `x.csv` (or `x.csv.gz`): either names both.
///
/// # Errors
/// Whatever [`TraceError`] lists.
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
    let input = Cursor::new(start.clone()).chain(input);
    match format {
        TraceFormat::Azure => azure::read(input, &file, options),
        TraceFormat::Mooncake if options.format.is_none() && format::is_guess(&start) => {
            mooncake::read(input, &file, options).map_err(TraceError::of_a_guess)
        }
        TraceFormat::Mooncake => mooncake::read(input, &file, options),
        TraceFormat::BlisCsv => blis_csv::read(input, &file, options),
        TraceFormat::Bailian => bailian::read(input, &file, options),
        TraceFormat::BurstGpt => burstgpt::read(input, &file, options),
        TraceFormat::VllmBench => vllm_bench::read(input, &file, options),
        TraceFormat::SglangBench => sglang_bench::read(input, &file, options),
        TraceFormat::AiPerf => aiperf::read(input, &file, options),
        TraceFormat::Otel => otel::read(input, &file, options),
        TraceFormat::VllmVcr => vllm_vcr::read(input, &file, options),
        TraceFormat::TraceV2 if format::is_trace_v2_data(&start) => {
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

/// Reads a TraceV2 trace whose two files are named one by one.
///
/// # Errors
/// Whatever [`TraceError`] lists.
pub fn open_trace_v2(header: &Path, data: &Path, options: &TraceOptions) -> Result<Workload, TraceError> {
    let header = trace_v2::read_header(blis_diag::open(header)?, &blis_diag::display(header))?;
    trace_v2::read(blis_diag::open(data)?, &blis_diag::display(data), &header, options)
}

/// Whether the file at `path` begins like the header of a TraceV2 trace. Not, if it cannot be read.
#[must_use]
pub fn is_trace_v2_header(path: &Path) -> bool {
    let start = peek(path).map(|(start, _)| start).unwrap_or_default();
    !format::is_trace_v2_data(&start)
        && TraceFormat::detect("", &start).is_ok_and(|format| format == TraceFormat::TraceV2)
}

/// The first bytes of a file, and the rest of it.
fn peek(path: &Path) -> Result<(Vec<u8>, impl BufRead + Send + use<>), TraceError> {
    const START_BYTES: u64 = 4096;
    let mut input = blis_diag::open(path)?;
    let mut start = Vec::new();
    let read = (&mut input).take(START_BYTES).read_to_end(&mut start);
    read.map_err(|source| TraceError::Io { file: blis_diag::display(path), source })?;
    Ok((start, input))
}

/// The other file of a TraceV2 trace: the same name with one of `extensions`.
fn other_half(path: &Path, half: &'static str, extensions: &[&str]) -> Result<PathBuf, TraceError> {
    let unpacked = if path.extension().is_some_and(|e| e == "gz") { path.with_extension("") } else { path.into() };
    let candidates = extensions.iter().map(|extension| unpacked.with_extension(extension));
    candidates.clone().find(|candidate| candidate.is_file()).ok_or_else(|| {
        let missing: Vec<_> = candidates.map(|candidate| candidate.display().to_string()).collect();
        TraceError::HalfMissing { file: blis_diag::display(path), half, missing: missing.join("` or `") }
    })
}

#[cfg(test)]
mod tests;
