//! Chrome's trace event format
//! (<https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU>): one JSON object, an event per line,
//! times in µs.
//!
//! Requests are asynchronous events (`b`, `e`), which the viewer lays out itself.

use std::io::{self, Write};

use blis_sim::units::Micros;

use super::form::{Arrow, ArrowPath, Counter, CounterValues, Properties, Property, TraceForm, TraceSlice, Track};

pub(super) struct JsonForm<'a> {
    out: &'a mut dyn Write,
    is_first: bool,
}

impl<'a> JsonForm<'a> {
    pub fn new(out: &'a mut dyn Write) -> io::Result<Self> {
        out.write_all(b"{\"displayTimeUnit\":\"ms\",\"traceEvents\":[")?;
        Ok(Self { out, is_first: true })
    }

    pub fn finish(self) -> io::Result<()> {
        self.out.write_all(b"\n]}\n")
    }

    /// The beginning of an event, up to its further fields.
    fn event(&mut self, phase: char, process: u32, line: u32, name: &str) -> io::Result<()> {
        let comma = if std::mem::take(&mut self.is_first) { "" } else { "," };
        write!(self.out, "{comma}\n{{\"ph\":\"{phase}\",\"pid\":{process},\"tid\":{line},\"name\":")?;
        serde_json::to_writer(&mut *self.out, name)?;
        Ok(())
    }

    fn properties(&mut self, properties: Properties<'_>) -> io::Result<()> {
        if properties.is_empty() {
            return Ok(());
        }
        self.out.write_all(b",\"args\":{")?;
        for (index, (name, value)) in properties.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            write!(self.out, "{comma}\"{name}\":")?;
            match value {
                Property::Number(number) => write!(self.out, "{number}")?,
                Property::Text(text) => serde_json::to_writer(&mut *self.out, text)?,
            }
        }
        self.out.write_all(b"}")
    }

    fn arrow(&mut self, track: Track, at: Micros, arrow: &Arrow) -> io::Result<()> {
        let (phase, path, id, bound) = match arrow {
            Arrow::Starts(path, id) => ('s', path, id, ""),
            Arrow::Ends(path, id) => ('f', path, id, ",\"bp\":\"e\""),
        };
        // The two ends of an arrow have the same name, category and id.
        let (name, category) = match path {
            ArrowPath::Routing => ("to its instance", "routing"),
            ArrowPath::Transfer => ("to its decode instance", "transfer"),
        };
        self.event(phase, track.process, track.line, name)?;
        write!(self.out, ",\"cat\":\"{category}\",\"id\":{id},\"ts\":{}{bound}}}", at.0)
    }

    /// The name of a process or of a track in it.
    fn named(&mut self, what: &str, process: u32, line: u32, name: &str) -> io::Result<()> {
        self.event('M', process, line, what)?;
        self.out.write_all(b",\"args\":{\"name\":")?;
        serde_json::to_writer(&mut *self.out, name)?;
        self.out.write_all(b"}}")
    }

    /// The beginning or the end of a request or a stage.
    fn edge(&mut self, phase: char, track: Track, request: u32, name: &str, at: Micros) -> io::Result<()> {
        self.event(phase, track.process, track.line, name)?;
        // A request has two ids: one process each.
        write!(self.out, ",\"cat\":\"request\",\"id2\":{{\"local\":\"{request:#x}\"}},\"ts\":{}", at.0)
    }
}

impl TraceForm for JsonForm<'_> {
    fn process(&mut self, process: u32, name: &str, steps: &str) -> io::Result<()> {
        self.named("process_name", process, Track::STEPS, name)?;
        self.named("thread_name", process, Track::STEPS, steps)
    }

    fn lane(&mut self, _track: Track) -> io::Result<()> {
        Ok(())
    }

    fn slice(&mut self, track: Track, slice: &TraceSlice<'_>) -> io::Result<()> {
        let (start, end) = slice.times;
        self.event('X', track.process, track.line, slice.name)?;
        write!(self.out, ",\"ts\":{},\"dur\":{}", start.0, end.saturating_sub(start).0)?;
        self.properties(slice.properties)?;
        self.out.write_all(b"}")?;
        slice.arrows.iter().try_for_each(|arrow| self.arrow(track, start, arrow))?;
        let CounterValues { values, changed } = slice.counters;
        for ((_, name), (value, _)) in
            Counter::ALL.into_iter().zip(values.into_iter().zip(changed)).filter(|(_, (_, changed))| *changed)
        {
            self.event('C', track.process, Track::STEPS, name)?;
            write!(self.out, ",\"ts\":{},\"args\":{{\"value\":{value}}}}}", start.0)?;
        }
        Ok(())
    }

    fn begin(
        &mut self,
        track: Track,
        request: u32,
        name: &str,
        at: Micros,
        properties: Properties<'_>,
    ) -> io::Result<()> {
        self.edge('b', track, request, name, at)?;
        self.properties(properties)?;
        self.out.write_all(b"}")
    }

    fn end(&mut self, track: Track, request: u32, name: &str, at: Micros) -> io::Result<()> {
        self.edge('e', track, request, name, at)?;
        self.out.write_all(b"}")
    }
}
