//! The two files of one ServeGen client.

use std::path::Path;
use std::sync::Arc;

use super::super::arrival::{Arrival, IntervalShape};
use super::super::error::SpecFileError;
use super::super::files::Files;
use super::options::ServeGenReading;
use blis_diag::Location;
use blis_diag::{name_hint, quoted};

mod dataset;

pub(in super::super) use dataset::{Dataset, datasets};

pub(super) const DAY_SECS: u32 = 86_400;
/// Time that a row of a trace covers, s.
pub(super) const WINDOW_SECS: u32 = 600;

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Chunk {
    pub id: String,
    pub rows: Vec<ChunkRow>,
    pub datasets: Vec<Dataset>,
}

/// Arrivals of the client in one period of 600 s.
#[derive(Clone, Debug, PartialEq)]
pub(in super::super) struct ChunkRow {
    pub line: u64,
    pub start: u32,
    pub rate: f64,
    pub cv: f64,
    pub pattern: Pattern,
    pub shape: Option<f64>,
    pub scale_secs: Option<f64>,
}

/// The distribution of its inter-arrival times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Pattern {
    /// No pattern is named: exponential.
    Unsaid,
    Gamma,
    Weibull,
}

impl Chunk {
    /// The lengths at `time`: of the last dataset that starts by then and has data, else of the first.
    pub fn dataset_at(&self, time: u32) -> Option<&Dataset> {
        let known = || self.datasets.iter().filter(|dataset| dataset.is_known());
        known().rfind(|dataset| dataset.start <= time).or_else(|| known().next())
    }

    pub fn has_reason_ratio(&self) -> bool {
        self.datasets.iter().any(|dataset| dataset.reason_ratio.is_some())
    }

    /// The first row that has a rate but, at its time, no lengths.
    fn first_without_lengths(&self) -> Option<&ChunkRow> {
        let own = |time| self.datasets.iter().rfind(|dataset| dataset.start <= time);
        self.rows.iter().find(|row| row.rate > 0.0 && !own(row.start).is_some_and(Dataset::is_known))
    }
}

/// Warnings as (what, hint).
type Warnings = Vec<(String, String)>;

/// All clients of a folder, by number.
pub(super) fn load(
    files: &dyn Files,
    folder: &Path,
    shown: &str,
    reading: ServeGenReading,
) -> Result<(Vec<Chunk>, Warnings), SpecFileError> {
    let names = files.names(folder).map_err(|error| SpecFileError::unreadable(shown, &error))?;
    let id = |name: &String| Some(name.strip_prefix("chunk-")?.strip_suffix("-trace.csv")?.to_owned());
    let mut ids: Vec<String> = names.iter().filter_map(id).collect();
    ids.sort_by_key(|id| (id.len(), id.clone()));
    if ids.is_empty() {
        let what = "no file `chunk-<id>-trace.csv` in this folder";
        return Err(SpecFileError::whole(shown, what, "a ServeGen folder has one, and a `-dataset.json`, per client"));
    }
    let mut warnings = Vec::new();
    let chunk = |id: String| {
        let trace = ChunkFile::read(files, folder, shown, &format!("chunk-{id}-trace.csv"))?;
        let lengths = ChunkFile::read(files, folder, shown, &format!("chunk-{id}-dataset.json"))?;
        let rows = rows(&trace.file, trace.content())?;
        let chunk = Chunk { id, rows, datasets: datasets(&lengths.file, lengths.content())? };
        warnings.extend(check(&chunk, &trace, &lengths.file, reading)?);
        Ok(chunk)
    };
    let chunks: Result<Vec<Chunk>, SpecFileError> = ids.into_iter().map(chunk).collect();
    Ok((chunks?, warnings))
}

/// A file of the folder.
struct ChunkFile {
    file: Arc<str>,
    text: String,
}

impl ChunkFile {
    fn read(files: &dyn Files, folder: &Path, shown: &str, name: &str) -> Result<Self, SpecFileError> {
        let file: Arc<str> = format!("{shown}/{name}").into();
        match files.read(&folder.join(name)) {
            Ok(text) => Ok(Self { file, text }),
            Err(error) => Err(SpecFileError::unreadable(&file, &error)),
        }
    }

    /// The text without its byte order mark.
    fn content(&self) -> &str {
        self.text.strip_prefix('\u{feff}').unwrap_or(&self.text)
    }
}

/// Checks that a client that sends has lengths; otherwise refuses the folder or warns.
fn check(
    chunk: &Chunk,
    trace: &ChunkFile,
    lengths: &str,
    reading: ServeGenReading,
) -> Result<Option<(String, String)>, SpecFileError> {
    let Some(row) = chunk.first_without_lengths() else { return Ok(None) };
    let what = match chunk.dataset_at(row.start) {
        Some(other) => {
            let what = format!("nothing at {} s in {lengths}; those from {} s on are used", row.start, other.start);
            let warning = format!("{}:{}: the client sends, but its lengths are unknown: {what}", trace.file, row.line);
            return Ok(Some((warning, "complete the file, or set the rate to 0".to_owned())));
        }
        None => format!("the client sends, but {lengths} has no start with `input_tokens` and `output_tokens`"),
    };
    if reading == ServeGenReading::Blis {
        let hint = "complete the file: BLIS takes the lengths of other clients of the class, or if there are none \
                    512 ± 128 and 128 ± 32 tokens";
        return Ok(Some((format!("{}:{}: {what}", trace.file, row.line), hint.to_owned())));
    }
    Err(wrong_field(trace, row, what))
}

fn wrong_field(trace: &ChunkFile, row: &ChunkRow, what: String) -> SpecFileError {
    let line = usize::try_from(row.line).ok().and_then(|line| trace.content().lines().nth(line - 1));
    let location = location_of(&trace.file, row.line, line.unwrap_or_default(), 1);
    SpecFileError::at(location, trace.content(), what, "complete the file, or set the rate to 0")
}

const ROW: &str = "a row is start,rate,cv,pattern[,shape,scale], seconds and requests per second";

/// The rows of the CSV: start, rate, cv, pattern, and for most clients shape and scale.
pub(in super::super) fn rows(file: &Arc<str>, text: &str) -> Result<Vec<ChunkRow>, SpecFileError> {
    let mut rows: Vec<ChunkRow> = Vec::new();
    for (line, content) in (1_u64..).zip(text.lines()) {
        if content.trim().is_empty() || (line == 1 && is_header(content)) {
            continue;
        }
        let row = row(line, content).and_then(|row| match rows.last() {
            Some(last) if row.start <= last.start => {
                Err((0, format!("the start is {} s, not after that of the row before, {} s", row.start, last.start)))
            }
            _ => Ok(row),
        });
        rows.push(
            row.map_err(|(field, what)| SpecFileError::at(location_of(file, line, content, field), text, what, ROW))?,
        );
    }
    if rows.is_empty() {
        return Err(SpecFileError::whole(file, "there is no row", ROW));
    }
    Ok(rows)
}

fn is_header(content: &str) -> bool {
    content.split(',').all(|field| field.trim().starts_with(|first: char| first.is_alphabetic()))
}

/// The location of field number `field` of a line, from 0.
fn location_of(file: &Arc<str>, line: u64, content: &str, field: usize) -> Location {
    let before: usize = content.split(',').take(field).map(|field| field.chars().count() + 1).sum();
    let len = content.split(',').nth(field).map_or(1, |field| field.chars().count().max(1));
    Location::file(Arc::clone(file)).characters(line, before as u64 + 1, len as u64)
}

/// Parses a row; an error is the index of the wrong field, and the mistake.
fn row(line: u64, content: &str) -> Result<ChunkRow, (usize, String)> {
    let fields: Vec<&str> = content.split(',').map(str::trim).collect();
    if !matches!(fields.len(), 4 | 6) {
        return Err((0, format!("{} fields; a row has 4 or 6", fields.len())));
    }
    let wrong = |field: usize, name: &str, must: String| {
        (field, format!("{name} is {}, but must be {must}", quoted(fields[field].as_bytes())))
    };
    let number = |field: usize, name: &str, most: f64| {
        let fits = fields[field].parse().ok().filter(|number| (0.0..=most).contains(number));
        fits.ok_or_else(|| wrong(field, name, format!("a number from 0 to {most}")))
    };
    let optional = |field: usize, name| match fields.get(field) {
        None | Some(&"") => Ok(None),
        Some(_) => number(field, name, 1e9).map(Some),
    };
    let start = number(0, "the start", 1e9)?;
    if start.fract() > 0.0 {
        return Err(wrong(0, "the start", "a whole number of seconds".to_owned()));
    }
    let row = ChunkRow {
        line,
        start: start as u32,
        rate: number(1, "the rate", 1e6)?,
        cv: optional(2, "the cv")?.unwrap_or(0.0),
        pattern: Pattern::named(fields[3]).map_err(|what| (3, what))?,
        shape: optional(4, "the shape")?,
        scale_secs: optional(5, "the scale")?,
    };
    if row.rate > 0.0 {
        row.arrival()?;
    }
    Ok(row)
}

impl Pattern {
    fn named(name: &str) -> Result<Self, String> {
        match name.to_ascii_lowercase().as_str() {
            "" => Ok(Self::Unsaid),
            "gamma" => Ok(Self::Gamma),
            "weibull" => Ok(Self::Weibull),
            _ => Err(format!(
                "the pattern is {}; {}",
                quoted(name.as_bytes()),
                name_hint(name, &["Gamma", "Weibull", "nothing"])
            )),
        }
    }
}

impl ChunkRow {
    /// The arrival process: by the shape, or without one by the coefficient of variation.
    pub fn arrival(&self) -> Result<Arrival, (usize, String)> {
        /// Smallest shape of a Weibull distribution: smaller ones have inter-arrival times that overflow.
        const WEIBULL_LEAST: f64 = 0.01;
        let (least, cvs) = match self.pattern {
            Pattern::Unsaid => return Ok(Arrival::Poisson),
            Pattern::Gamma => (1e-4, Arrival::GAMMA_CV),
            Pattern::Weibull => (WEIBULL_LEAST, Arrival::WEIBULL_CV),
        };
        let shape = match self.shape.filter(|&shape| shape > 0.0) {
            Some(shape) if !(least..=1e4).contains(&shape) => {
                return Err((4, format!("the shape is {shape}, but must be a number from {least} to 10000")));
            }
            // The scale has no effect, because requests fill the window.
            Some(shape) => {
                let scale_us = self.scale_secs.filter(|&scale| scale > 0.0).unwrap_or(1.0) * 1e6;
                IntervalShape::Own { shape, scale_us: scale_us.clamp(1e-6, 1e18) }
            }
            None if cvs.contains(&self.cv) => IntervalShape::Cv(self.cv),
            None => {
                let (least, most) = cvs.into_inner();
                let what =
                    format!("the cv is {}, but without a shape must be a number from {least} to {most}", self.cv);
                return Err((2, what));
            }
        };
        Ok(if self.pattern == Pattern::Gamma { Arrival::Gamma(shape) } else { Arrival::Weibull(shape) })
    }
}
