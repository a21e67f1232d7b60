//! Perfetto's own form: `Trace` of `protos/perfetto/trace/trace.proto`
//! (<https://perfetto.dev/docs/reference/synthetic-track-event>), written field by field. Times in ns.
//!
//! Names that repeat are written once and referred to by a number (interned).

use std::io::{self, Write};

use blis_sim::units::Micros;

use super::{Arrow, Counter, Properties, Property, TraceForm, Track};

/// Fields of the messages, by their numbers in Perfetto's definitions.
pub(super) mod field {
    /// The field number of `Trace.packet`.
    pub const PACKET: u32 = 1;
    pub const TIMESTAMP: u32 = 8;
    pub const SEQUENCE: u32 = 10;
    pub const TRACK_EVENT: u32 = 11;
    pub const INTERNED: u32 = 12;
    pub const SEQUENCE_FLAGS: u32 = 13;
    pub const TRACK_DESCRIPTOR: u32 = 60;
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
    pub const EVENT_COUNT: u32 = 30;
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
const COUNT: u64 = 4;

/// `TracePacket.SequenceFlags`: the interned names start anew; they are needed.
const CLEARED: u64 = 1;
const NEEDED: u64 = 2;

/// Names that repeat. Those of single requests are written out.
const NAMES: [&str; 9] =
    ["routed", "decode step", "prefill step", "mixed step", "gateway queue", "queue", "prefill", "decode", "preempted"];
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
    head: Message,
    packet: Message,
    event: Message,
    inner: Message,
}

impl<'a> ProtoForm<'a> {
    /// Starts the trace with its names.
    pub fn new(out: &'a mut dyn Write) -> io::Result<Self> {
        let mut names = Message::default();
        for (list, field) in [(&NAMES[..], field::NAMES), (&PROPERTIES[..], field::PROPERTY_NAMES)] {
            for (id, name) in (1..).zip(list) {
                let mut entry = Message::default();
                entry.number(field::ENTRY_ID, id);
                entry.bytes(field::ENTRY_NAME, name.as_bytes());
                names.bytes(field, &entry.0);
            }
        }
        let [head, packet, event, inner] = std::array::from_fn(|_| Message::default());
        let mut proto = Self { out, head, packet, event, inner };
        proto.packet.number(field::SEQUENCE, 1);
        proto.packet.number(field::SEQUENCE_FLAGS, CLEARED | NEEDED);
        proto.packet.bytes(field::INTERNED, &names.0);
        proto.write_packet()?;
        Ok(proto)
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

    /// Writes the present event as a packet.
    fn write_event(&mut self, at: Micros) -> io::Result<()> {
        self.packet.number(field::TIMESTAMP, at.0.saturating_mul(1_000));
        self.packet.number(field::SEQUENCE, 1);
        self.packet.number(field::SEQUENCE_FLAGS, NEEDED);
        self.packet.bytes(field::TRACK_EVENT, &self.event.0);
        self.write_packet()
    }

    fn event(&mut self, kind: u64, track: u64) {
        self.event.0.clear();
        self.event.number(field::EVENT_TYPE, kind);
        self.event.number(field::EVENT_TRACK, track);
    }

    /// A packet that describes a track.
    fn describe(&mut self, track: u64, describe: impl FnOnce(&mut Message)) -> io::Result<()> {
        let mut descriptor = Message::default();
        descriptor.number(field::TRACK, track);
        describe(&mut descriptor);
        self.packet.number(field::SEQUENCE, 1);
        self.packet.bytes(field::TRACK_DESCRIPTOR, &descriptor.0);
        self.write_packet()
    }

    fn name(&mut self, name: &str) {
        match number_of(&NAMES, name) {
            Some(id) => self.event.number(field::EVENT_NAME_ID, id),
            None => self.event.bytes(field::EVENT_NAME, name.as_bytes()),
        }
    }

    fn properties(&mut self, properties: Properties<'_>) {
        for (name, value) in properties {
            self.inner.0.clear();
            let id = number_of(&PROPERTIES, name).expect("every property is in the list");
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

impl TraceForm for ProtoForm<'_> {
    fn process(&mut self, number: u32, name: &str, steps: &str) -> io::Result<()> {
        self.describe(process(number), |track| {
            let mut described = Message::default();
            described.number(field::PROCESS, number.into());
            described.bytes(field::PROCESS_NAME, name.as_bytes());
            track.bytes(field::TRACK_PROCESS, &described.0);
        })?;
        for (kind, name) in Counter::ALL.into_iter().filter(|_| number != Track::GATEWAY) {
            self.describe(counter(number, kind), |track| {
                track.bytes(field::TRACK_NAME, name.as_bytes());
                track.number(field::TRACK_PARENT, process(number));
                track.bytes(field::TRACK_COUNTER, &[]);
            })?;
        }
        self.describe(line(Track { process: number, line: Track::STEPS }), |track| {
            track.bytes(field::TRACK_NAME, steps.as_bytes());
            track.number(field::TRACK_PARENT, process(number));
        })
    }

    fn lane(&mut self, track: Track) -> io::Result<()> {
        self.describe(line(track), |described| {
            described.bytes(field::TRACK_NAME, b"requests");
            described.number(field::TRACK_PARENT, process(track.process));
        })
    }

    fn slice(
        &mut self,
        track: Track,
        name: &str,
        (start, end): (Micros, Micros),
        properties: Properties<'_>,
        arrows: &[Arrow],
    ) -> io::Result<()> {
        self.event(BEGIN, line(track));
        self.name(name);
        self.properties(properties);
        for arrow in arrows {
            match arrow {
                Arrow::Starts(id) => self.event.fixed(field::EVENT_FLOW, u64::from(*id) + 1),
                Arrow::Ends(id) => self.event.fixed(field::EVENT_FLOW_END, u64::from(*id) + 1),
            }
        }
        self.write_event(start)?;
        self.event(END, line(track));
        self.write_event(end)
    }

    fn begin(
        &mut self,
        track: Track,
        _request: u32,
        name: &str,
        at: Micros,
        properties: Properties<'_>,
    ) -> io::Result<()> {
        self.event(BEGIN, line(track));
        self.name(name);
        self.properties(properties);
        self.write_event(at)
    }

    fn end(&mut self, track: Track, _request: u32, _name: &str, at: Micros) -> io::Result<()> {
        self.event(END, line(track));
        self.write_event(at)
    }

    fn count(&mut self, process: u32, kind: Counter, at: Micros, value: u64) -> io::Result<()> {
        self.event(COUNT, counter(process, kind));
        self.event.number(field::EVENT_COUNT, value);
        self.write_event(at)
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
