//! Reads a trace line by line and checks every line.

use std::io::{self, BufRead};
use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::line::{DecisionHeader, DecisionSignals, End, SignalsLine, TraceLine};
use super::{FORMAT, VERSION};
use blis_diag::{Diagnostic, LineReader, ReadError, RowError, json_error, json_object, open as open_input, quoted};
use blis_workload::TraceError;

/// The lines of a trace, one at a time.
pub struct TraceReader {
    lines: LineReader<Box<dyn BufRead + Send>>,
    header: DecisionHeader,
    instances: u64,
    /// Number of lines read so far.
    count: u64,
    /// The latest periodic signals, with all columns.
    signals: Option<SignalsLine>,
    ended: bool,
    /// Whether the rest is missing.
    cut: bool,
}

const WRITE_ANEW: &str = "the file is damaged; write it anew with `blis run --trace-level decisions --trace-path FILE`";

impl TraceReader {
    /// Opens the file at `path`, gzip-compressed or not.
    ///
    /// # Errors
    /// If it cannot be read, or is not a trace of this version.
    pub fn open(path: &Path) -> Result<Self, TraceError> {
        Self::new(open_input(path)?, &path.display().to_string().into())
    }

    /// Reads `input`; `file` is its name in messages.
    ///
    /// # Errors
    /// If it cannot be read, or is not a trace of this version.
    pub fn new(input: Box<dyn BufRead + Send>, file: &Arc<str>) -> Result<Self, TraceError> {
        let mut lines = LineReader::new(input, file);
        if !lines.advance()? {
            let fault = RowError::new("the file is empty: a decision trace begins with its header").hint(WRITE_ANEW);
            return Err(fault.at(file, 1).into());
        }
        let header = header(lines.text()).map_err(|fault| lines.locate(fault))?;
        let instances = header.instances.iter().map(|group| u64::from(group.count)).sum();
        Ok(Self { lines, header, instances, count: 1, signals: None, ended: false, cut: false })
    }

    #[must_use]
    pub fn header(&self) -> &DecisionHeader {
        &self.header
    }

    /// The periodic signals that the following decisions use.
    #[must_use]
    pub fn signals(&self) -> Option<&SignalsLine> {
        self.signals.as_ref()
    }

    /// The current line as it is in the file.
    #[must_use]
    pub fn text(&self) -> &[u8] {
        self.lines.text()
    }

    /// The error `fault` at the current line.
    pub(super) fn fault(&self, fault: RowError) -> TraceError {
        self.lines.locate(fault).into()
    }

    /// The next line; `None` at the end, or where the trace is cut off ([`cut_off`] says where).
    ///
    /// # Errors
    /// If it cannot be read or is invalid.
    pub fn next_line(&mut self) -> Result<Option<TraceLine>, TraceError> {
        if self.cut || !advance(&mut self.lines)? {
            return Ok(None);
        }
        let line = match self.parse() {
            Ok(line) => line,
            Err(_) if !self.lines.is_whole() => {
                self.cut = true;
                return Ok(None);
            }
            Err(fault) => return Err(self.lines.locate(fault.or_hint(WRITE_ANEW)).into()),
        };
        self.count += 1;
        match line {
            Some(line) => Ok(Some(line)),
            None => self.next_line(), // at most once: nothing may follow the end
        }
    }

    /// The current line; `None` if it is the end of the trace.
    fn parse(&mut self) -> Result<Option<TraceLine>, RowError> {
        let text = self.lines.text();
        if self.ended {
            return Err(RowError::new("there are lines after the line `end`"));
        }
        let line = match kind(text)?.as_str() {
            "signals" => TraceLine::Signals(self.complete(object(text)?)?),
            "admission" => TraceLine::Admission(object(text)?),
            "gateway" => TraceLine::Gateway(object(text)?),
            "routing" => TraceLine::Routing(object(text)?),
            "scheduling" => TraceLine::Scheduling(object(text)?),
            "preemption" => TraceLine::Preemption(object(text)?),
            "load" => TraceLine::Load(object(text)?),
            "adapter_eviction" => TraceLine::AdapterEviction(object(text)?),
            "prefill" => TraceLine::Prefill(object(text)?),
            "outcome" => TraceLine::Outcome(object(text)?),
            "end" => {
                let End { lines } = object(text)?;
                self.ended = true;
                return if lines == self.count {
                    Ok(None)
                } else {
                    Err(RowError::new(format!("{lines} lines were written, and {} are there", self.count)))
                };
            }
            "header" => return Err(RowError::new("a second header")),
            other => return Err(RowError::new(format!("unknown kind of line {}", quoted(other.as_bytes())))),
        };
        self.check(&line)?;
        if let TraceLine::Signals(signals) = &line {
            self.signals = Some(signals.clone());
        }
        Ok(Some(line))
    }

    /// Fills in columns that are left out because they are unchanged.
    fn complete(&self, signals: SignalsLine) -> Result<SignalsLine, RowError> {
        let before = self.signals.as_ref();
        let expected = before.map_or(1, |before| before.reading.saturating_add(1));
        if signals.reading != expected {
            return Err(RowError::new(format!("`reading` is {}, not {expected}", signals.reading)));
        }
        let cache_hit_rate = signals.cache_hit_rate.or_else(|| before?.cache_hit_rate.clone());
        let preemption_count = signals.preemption_count.or_else(|| before?.preemption_count.clone());
        for (missing, name) in
            [(cache_hit_rate.is_none(), "cache_hit_rate"), (preemption_count.is_none(), "preemption_count")]
        {
            if missing {
                return Err(RowError::new(format!("the first line `signals` has no `{name}`")));
            }
        }
        Ok(SignalsLine { cache_hit_rate, preemption_count, ..signals })
    }

    /// Refuses a line with numbers of instances that do not exist.
    fn check(&self, line: &TraceLine) -> Result<(), RowError> {
        if let Some(instance) = line.instance().filter(|&instance| u64::from(instance.0) >= self.instances) {
            return Err(RowError::new(format!("there is no instance {instance}: the header has {}", self.instances)));
        }
        match line {
            TraceLine::Signals(signals) => {
                self.column("queue_depth", signals.queue_depth.len())?;
                self.column("batch_size", signals.batch_size.len())?;
                self.column("free_kv_blocks", signals.free_kv_blocks.len())?;
                self.column("cache_hit_rate", signals.cache_hit_rate.iter().map(Vec::len).sum())?;
                self.column("preemption_count", signals.preemption_count.iter().map(Vec::len).sum())?;
                signals.waiting_tokens.as_ref().map_or(Ok(()), |tokens| self.column("waiting_tokens", tokens.len()))
            }
            TraceLine::Admission(admission) => self.check_seen(&admission.seen()),
            TraceLine::Routing(routing) => {
                if !routing.scores.is_empty() {
                    self.column("scores", routing.scores.len())?;
                }
                self.check_seen(&routing.seen())
            }
            TraceLine::Gateway(_)
            | TraceLine::Scheduling(_)
            | TraceLine::Preemption(_)
            | TraceLine::Load(_)
            | TraceLine::AdapterEviction(_)
            | TraceLine::Prefill(_)
            | TraceLine::Outcome(_) => Ok(()),
        }
    }

    fn check_seen(&self, seen: &DecisionSignals<'_>) -> Result<(), RowError> {
        let read = self.signals.as_ref().map(|signals| signals.reading);
        if seen.reading.is_some_and(|reading| Some(reading) != read) {
            return Err(RowError::new("`reading` is not that of the line `signals` before it"));
        }
        for (len, name) in [
            (seen.in_flight.map(<[u32]>::len), "in_flight"),
            (seen.cached_blocks.map(<[u32]>::len), "cached_blocks"),
            (seen.in_flight_tokens.map(<[u64]>::len), "in_flight_tokens"),
            (seen.in_flight_output.map(<[u64]>::len), "in_flight_output"),
            (seen.adapter_active.map(<[u32]>::len), "adapter_active"),
            (seen.adapter_waiting.map(<[u32]>::len), "adapter_waiting"),
            (seen.free_adapter_slots.map(<[u32]>::len), "free_adapter_slots"),
            (seen.ttft_ewma_us.map(<[f64]>::len), "ttft_ewma_us"),
            (seen.itl_ewma_us.map(<[f64]>::len), "itl_ewma_us"),
        ] {
            len.map_or(Ok(()), |len| self.column(name, len))?;
        }
        Ok(())
    }

    fn column(&self, name: &str, len: usize) -> Result<(), RowError> {
        if len as u64 == self.instances {
            return Ok(());
        }
        Err(RowError::new(format!("`{name}` has {len} entries, and there are {} instances", self.instances)))
    }
}

/// Reads the next line. A gzip stream that is cut off ends there.
fn advance<R: BufRead>(lines: &mut LineReader<R>) -> Result<bool, ReadError> {
    match lines.advance() {
        Err(ReadError::Io { source, .. }) if source.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        other => other,
    }
}

/// A warning that says where the trace at `path` is cut off: its last line is not `end`, because the run was stopped, is
/// still running, or had no more space. `None` if it is whole.
///
/// # Errors
/// If the file cannot be read.
pub fn cut_off(path: &Path) -> Result<Option<Diagnostic>, TraceError> {
    let file = path.display().to_string().into();
    let mut lines = LineReader::new(open_input(path)?, &file);
    let (mut whole, mut ended) = (0, false);
    while advance(&mut lines)? {
        ended = kind(lines.text()).is_ok_and(|kind| kind == "end");
        whole += u64::from(lines.is_whole());
    }
    let what = format!("the trace is cut off after line {whole}; what follows is not in this output");
    let cut = RowError::new(what).hint("the run was stopped, or is still running").at(&file, whole);
    Ok((!ended).then_some(cut))
}

fn header(text: &[u8]) -> Result<DecisionHeader, RowError> {
    #[derive(Deserialize)]
    struct FormatOnly {
        format: String,
        version: u32,
        #[serde(default)]
        program: String,
    }
    let no_trace = || {
        RowError::new(format!("not a decision trace: it starts with {}", quoted(text)))
            .hint("`blis run --trace-level decisions --trace-path FILE` writes one")
    };
    let start: FormatOnly = serde_json::from_slice(text).map_err(|_| no_trace())?;
    if start.format != FORMAT {
        return Err(no_trace());
    }
    if start.version != VERSION {
        let fault = RowError::new(format!("version {} of the format; this program reads {VERSION}", start.version));
        let program = if start.program.is_empty() { "the program that wrote it" } else { &start.program };
        return Err(fault.hint(format!("read it with {program}, or write it anew")));
    }
    let header: DecisionHeader = object(text).map_err(|fault| fault.or_hint(WRITE_ANEW))?;
    let mut next = 0_u64;
    for group in &header.instances {
        if u64::from(group.first) != next || group.count == 0 {
            return Err(RowError::new(format!("instance {next} is not described")).hint(WRITE_ANEW));
        }
        next += u64::from(group.count);
    }
    if next == 0 || next > u64::from(u32::MAX) {
        return Err(RowError::new(format!("a service of {next} instances")).hint(WRITE_ANEW));
    }
    Ok(header)
}

/// The kind of a line. This program writes it first; other programs may not.
fn kind(text: &[u8]) -> Result<String, RowError> {
    #[derive(Deserialize)]
    struct KindOnly {
        kind: String,
    }
    match leading_kind(text) {
        Some((kind, _)) => Ok(kind.to_owned()),
        None => json_object::<KindOnly>(text).map(|only| only.kind),
    }
}

/// The kind, if it is the first field, and the index of the rest.
fn leading_kind(text: &[u8]) -> Option<(&str, usize)> {
    const START: &[u8] = b"{\"kind\":\"";
    let rest = text.strip_prefix(START)?;
    let end = rest.iter().position(|&byte| byte == b'"')?;
    let kind = std::str::from_utf8(&rest[..end]).ok().filter(|kind| !kind.contains('\\'))?;
    let next = START.len() + end + 1;
    Some((kind, next + usize::from(text.get(next) == Some(&b','))))
}

/// The fields of a line without its kind.
fn object<T: DeserializeOwned>(text: &[u8]) -> Result<T, RowError> {
    let read = match leading_kind(text) {
        Some((_, next)) => {
            // Blanks instead, so that columns in messages stay the same.
            let mut rest = text.to_vec();
            rest[1..next].fill(b' ');
            serde_json::from_slice(&rest)
        }
        None => serde_json::from_slice(text).and_then(|mut fields: serde_json::Map<String, serde_json::Value>| {
            fields.remove("kind");
            serde_json::from_value(fields.into())
        }),
    };
    read.map_err(|error| json_error(&error))
}
