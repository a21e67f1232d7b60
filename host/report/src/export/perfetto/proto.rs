//! Perfetto's own form: `Trace` of `protos/perfetto/trace/trace.proto`
//! (<https://perfetto.dev/docs/reference/synthetic-track-event>), written field by field.
//!
//! What repeats is written once, in the way of Perfetto's own library: the events of a track are a sequence of packets; the first packet
//! has the number of the track; names are referred to by a number (interned), and times are differences, in µs, to the event
//! before. Counters are written with the begin of the step at which they change.

use std::io::{self, Write};

use blis_sim::units::Micros;

use super::form::{Arrow, ArrowPath, Counter, CounterValues, Properties, Property, TraceForm, TraceSlice, Track};

/// Fields of the messages, by their numbers in Perfetto's definitions.
pub(super) mod field {
    /// The field number of `Trace.packet`.
    pub const PACKET: u32 = 1;
    // TracePacket
    pub const CLOCKS: u32 = 6;
    pub const TIMESTAMP: u32 = 8;
    pub const SEQUENCE: u32 = 10;
    pub const TRACK_EVENT: u32 = 11;
    pub const INTERNED: u32 = 12;
    pub const SEQUENCE_FLAGS: u32 = 13;
    /// `TracePacket.timestamp_clock_id`, and of `TracePacketDefaults` likewise, as [`TRACK_EVENT`] is.
    pub const CLOCK_OF_TIMESTAMP: u32 = 58;
    pub const DEFAULTS: u32 = 59;
    pub const TRACK_DESCRIPTOR: u32 = 60;
    // ClockSnapshot
    pub const CLOCK: u32 = 1;
    // ClockSnapshot.Clock
    pub const CLOCK_ID: u32 = 1;
    pub const CLOCK_TIME: u32 = 2;
    pub const CLOCK_IS_INCREMENTAL: u32 = 3;
    pub const CLOCK_UNIT_NS: u32 = 4;
    // TrackDescriptor
    pub const TRACK: u32 = 1;
    pub const TRACK_NAME: u32 = 2;
    pub const TRACK_PROCESS: u32 = 3;
    pub const TRACK_PARENT: u32 = 5;
    pub const TRACK_COUNTER: u32 = 8;
    // ProcessDescriptor
    pub const PROCESS: u32 = 1;
    pub const PROCESS_NAME: u32 = 6;
    // TrackEvent
    pub const EVENT_TYPE: u32 = 9;
    pub const EVENT_NAME_ID: u32 = 10;
    pub const EVENT_TRACK: u32 = 11;
    pub const EVENT_NAME: u32 = 23;
    pub const EVENT_PROPERTY: u32 = 4;
    pub const EVENT_COUNTERS: u32 = 12;
    pub const EVENT_COUNTER_TRACKS: u32 = 31;
    pub const EVENT_FLOW: u32 = 47;
    pub const EVENT_FLOW_END: u32 = 48;
    // DebugAnnotation
    pub const PROPERTY_NAME_ID: u32 = 1;
    pub const PROPERTY_NUMBER: u32 = 3;
    pub const PROPERTY_TEXT: u32 = 6;
    // InternedData, and its entries
    pub const NAMES: u32 = 2;
    pub const PROPERTY_NAMES: u32 = 3;
    pub const ENTRY_ID: u32 = 1;
    pub const ENTRY_NAME: u32 = 2;
}

/// The values of `TrackEvent.Type`.
const BEGIN: u64 = 1;
const END: u64 = 2;
const INSTANT: u64 = 3;

/// The clock of the trace (`BUILTIN_CLOCK_BOOTTIME`), ns, and that of a sequence, µs since its event before.
const TRACE_CLOCK: u64 = 6;
pub(super) const SEQUENCE_CLOCK: u64 = 64;

/// Numbers of arrows above this are those of transfers.
pub(super) const TRANSFERS: u64 = 1 << 32;

/// `TracePacket.SequenceFlags`: the interned names start anew; they are needed.
const CLEARED: u64 = 1;
const NEEDED: u64 = 2;

/// Names that repeat. Those of single requests are written out.
const NAMES: [&str; 11] = [
    "routed",
    "decode step",
    "prefill step",
    "mixed step",
    "gateway queue",
    "queue",
    "prefill",
    "KV wait",
    "KV transfer",
    "decode",
    "preempted",
];
const PROPERTIES: [&str; 10] = [
    "prefill_tokens",
    "prefill_requests",
    "decode_requests",
    "preempted",
    "input_tokens",
    "output_tokens",
    "class",
    "tenant",
    "model",
    "ended",
];

pub(super) struct ProtoForm<'a> {
    out: &'a mut dyn Write,
    /// The sequences of the present process, by line.
    sequences: Vec<PacketSequence>,
    /// Number of sequences so far.
    started: u64,
    head: Message,
    packet: Message,
    event: Message,
    interned: Message,
    inner: Message,
}

/// What the packets of a track have in common.
#[derive(Clone, Copy, Debug, Default)]
struct PacketSequence {
    /// Its number, from 1 on.
    id: u64,
    /// Time of its latest event.
    latest: Micros,
    /// A bit for each entry of [`NAMES`] and of [`PROPERTIES`] that it has.
    names: u32,
    properties: u32,
}

impl<'a> ProtoForm<'a> {
    pub fn new(out: &'a mut dyn Write) -> Self {
        let [head, packet, event, interned, inner] = std::array::from_fn(|_| Message::default());
        Self { out, sequences: Vec::new(), started: 0, head, packet, event, interned, inner }
    }

    fn write_packet(&mut self) -> io::Result<()> {
        self.head.0.clear();
        self.head.key(field::PACKET, Message::BYTES);
        self.head.varint(self.packet.0.len() as u64);
        self.out.write_all(&self.head.0)?;
        self.out.write_all(&self.packet.0)?;
        self.packet.0.clear();
        Ok(())
    }

    /// Starts the sequence of the next line of the present process. `counters`: those of its events.
    fn start(&mut self, track: Track, counters: &[(Counter, &str)]) -> io::Result<()> {
        self.started += 1;
        debug_assert_eq!(self.sequences.len(), track.line as usize, "lines are started in order");
        self.sequences.push(PacketSequence { id: self.started, ..PacketSequence::default() });
        let mut event = Message::default();
        event.number(field::EVENT_TRACK, line(track));
        for &(kind, _) in counters {
            event.number(field::EVENT_COUNTER_TRACKS, counter(track.process, kind));
        }
        let mut defaults = Message::default();
        defaults.bytes(field::TRACK_EVENT, &event.0);
        defaults.number(field::CLOCK_OF_TIMESTAMP, SEQUENCE_CLOCK);
        let mut clocks = Message::default();
        for clock in [TRACE_CLOCK, SEQUENCE_CLOCK] {
            let mut described = Message::default();
            described.number(field::CLOCK_ID, clock);
            described.number(field::CLOCK_TIME, 0);
            if clock == SEQUENCE_CLOCK {
                described.number(field::CLOCK_IS_INCREMENTAL, 1);
                described.number(field::CLOCK_UNIT_NS, 1_000);
            }
            clocks.bytes(field::CLOCK, &described.0);
        }
        self.packet.bytes(field::CLOCKS, &clocks.0);
        self.packet.number(field::TIMESTAMP, 0);
        self.packet.number(field::SEQUENCE, self.started);
        self.packet.number(field::SEQUENCE_FLAGS, CLEARED);
        self.packet.number(field::CLOCK_OF_TIMESTAMP, TRACE_CLOCK);
        self.packet.bytes(field::DEFAULTS, &defaults.0);
        self.write_packet()
    }

    /// A packet that describes a track, in the latest sequence.
    fn describe(&mut self, track: u64, describe: impl FnOnce(&mut Message)) -> io::Result<()> {
        let mut descriptor = Message::default();
        descriptor.number(field::TRACK, track);
        describe(&mut descriptor);
        self.packet.number(field::SEQUENCE, self.started);
        self.packet.bytes(field::TRACK_DESCRIPTOR, &descriptor.0);
        self.write_packet()
    }

    fn event(&mut self, kind: u64) {
        self.event.0.clear();
        self.interned.0.clear();
        self.event.number(field::EVENT_TYPE, kind);
    }

    /// Writes the present event as a packet.
    fn write_event(&mut self, track: Track, at: Micros) -> io::Result<()> {
        let sequence = &mut self.sequences[track.line as usize];
        debug_assert!(sequence.latest <= at, "events of a track are in order of time");
        self.packet.number(field::TIMESTAMP, at.saturating_sub(sequence.latest).0);
        sequence.latest = at;
        self.packet.number(field::SEQUENCE, sequence.id);
        self.packet.number(field::SEQUENCE_FLAGS, NEEDED);
        if !self.interned.0.is_empty() {
            self.packet.bytes(field::INTERNED, &self.interned.0);
        }
        self.packet.bytes(field::TRACK_EVENT, &self.event.0);
        self.write_packet()
    }

    fn name(&mut self, track: Track, name: &str) {
        let Some(id) = number_of(&NAMES, name) else { return self.event.bytes(field::EVENT_NAME, name.as_bytes()) };
        self.event.number(field::EVENT_NAME_ID, id);
        let known = &mut self.sequences[track.line as usize].names;
        if *known & 1 << id == 0 {
            *known |= 1 << id;
            self.intern(field::NAMES, id, name);
        }
    }

    fn intern(&mut self, list: u32, id: u64, name: &str) {
        self.inner.0.clear();
        self.inner.number(field::ENTRY_ID, id);
        self.inner.bytes(field::ENTRY_NAME, name.as_bytes());
        self.interned.bytes(list, &self.inner.0);
    }

    fn properties(&mut self, track: Track, properties: Properties<'_>) {
        for (name, value) in properties {
            let id = number_of(&PROPERTIES, name).expect("every property is in the list");
            let known = &mut self.sequences[track.line as usize].properties;
            if *known & 1 << id == 0 {
                *known |= 1 << id;
                self.intern(field::PROPERTY_NAMES, id, name);
            }
            self.inner.0.clear();
            self.inner.number(field::PROPERTY_NAME_ID, id);
            match value {
                Property::Number(number) => self.inner.number(field::PROPERTY_NUMBER, *number),
                Property::Text(text) => self.inner.bytes(field::PROPERTY_TEXT, text.as_bytes()),
            }
            self.event.bytes(field::EVENT_PROPERTY, &self.inner.0);
        }
    }
}

/// The number of an interned name, from 1 on.
fn number_of(list: &[&str], name: &str) -> Option<u64> {
    list.iter().position(|known| *known == name).map(|index| index as u64 + 1)
}

/// Numbers of tracks: those of a process lie together.
fn process(process: u32) -> u64 {
    u64::from(process) << 24
}

fn line(track: Track) -> u64 {
    process(track.process) + 8 + u64::from(track.line)
}

fn counter(process_number: u32, counter: Counter) -> u64 {
    process(process_number) + 1 + counter as u64
}

/// The number of an arrow, from 1 on.
fn flow(path: ArrowPath, request: u32) -> u64 {
    let number = u64::from(request) + 1;
    match path {
        ArrowPath::Routing => number,
        ArrowPath::Transfer => TRANSFERS + number,
    }
}

impl TraceForm for ProtoForm<'_> {
    fn process(&mut self, number: u32, name: &str, steps: &str) -> io::Result<()> {
        let counters = if number == Track::GATEWAY { &[][..] } else { &Counter::ALL };
        let track = Track { process: number, line: Track::STEPS };
        self.sequences.clear();
        self.start(track, counters)?;
        self.describe(process(number), |track| {
            let mut described = Message::default();
            described.number(field::PROCESS, number.into());
            described.bytes(field::PROCESS_NAME, name.as_bytes());
            track.bytes(field::TRACK_PROCESS, &described.0);
        })?;
        for &(kind, name) in counters {
            self.describe(counter(number, kind), |track| {
                track.bytes(field::TRACK_NAME, name.as_bytes());
                track.number(field::TRACK_PARENT, process(number));
                track.bytes(field::TRACK_COUNTER, &[]);
            })?;
        }
        self.describe(line(track), |track| {
            track.bytes(field::TRACK_NAME, steps.as_bytes());
            track.number(field::TRACK_PARENT, process(number));
        })
    }

    fn lane(&mut self, track: Track) -> io::Result<()> {
        self.start(track, &[])?;
        self.describe(line(track), |described| {
            described.bytes(field::TRACK_NAME, b"requests");
            described.number(field::TRACK_PARENT, process(track.process));
        })
    }

    fn slice(&mut self, track: Track, slice: &TraceSlice<'_>) -> io::Result<()> {
        let (start, end) = slice.times;
        self.event(if start == end { INSTANT } else { BEGIN });
        self.name(track, slice.name);
        self.properties(track, slice.properties);
        for arrow in slice.arrows {
            match arrow {
                Arrow::Starts(path, id) => self.event.fixed(field::EVENT_FLOW, flow(*path, *id)),
                Arrow::Ends(path, id) => self.event.fixed(field::EVENT_FLOW_END, flow(*path, *id)),
            }
        }
        let CounterValues { values, changed } = slice.counters;
        // The values are those of the first tracks of the sequence.
        let written = changed.iter().rposition(|&changed| changed).map_or(0, |last| last + 1);
        for value in &values[..written] {
            self.event.number(field::EVENT_COUNTERS, *value);
        }
        self.write_event(track, start)?;
        if start == end {
            return Ok(());
        }
        self.event(END);
        self.write_event(track, end)
    }

    fn begin(
        &mut self,
        track: Track,
        _request: u32,
        name: &str,
        at: Micros,
        properties: Properties<'_>,
    ) -> io::Result<()> {
        self.event(BEGIN);
        self.name(track, name);
        self.properties(track, properties);
        self.write_event(track, at)
    }

    fn end(&mut self, track: Track, _request: u32, _name: &str, at: Micros) -> io::Result<()> {
        self.event(END);
        self.write_event(track, at)
    }
}

/// A message of protocol buffers (<https://protobuf.dev/programming-guides/encoding/>).
#[derive(Clone, Debug, Default)]
struct Message(Vec<u8>);

impl Message {
    const VARINT: u32 = 0;
    const FIXED: u32 = 1;
    const BYTES: u32 = 2;

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn key(&mut self, field: u32, kind: u32) {
        self.varint(u64::from(field << 3 | kind));
    }

    fn number(&mut self, field: u32, value: u64) {
        self.key(field, Self::VARINT);
        self.varint(value);
    }

    fn fixed(&mut self, field: u32, value: u64) {
        self.key(field, Self::FIXED);
        self.0.extend(value.to_le_bytes());
    }

    fn bytes(&mut self, field: u32, value: &[u8]) {
        self.key(field, Self::BYTES);
        self.varint(value.len() as u64);
        self.0.extend(value);
    }
}
