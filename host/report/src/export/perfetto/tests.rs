//! Both forms of the trace have the same events, and those are the events of the journal.

use std::collections::BTreeMap;
use std::io::Read as _;

use serde_json::Value as Json;

use super::proto::{SEQUENCE_CLOCK, TRANSFERS, field};
use super::*;
use crate::export::tests::{about, journal};

/// An event of either form.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct TraceEvent {
    process: u64,
    at_us: u64,
    kind: &'static str,
    name: String,
    /// Properties as text, or the value of a counter.
    values: Vec<(String, String)>,
}

fn written(name: &str, window: &ExportWindow) -> Vec<u8> {
    let (journal, ..) = journal(true);
    let mut out = Vec::new();
    write(Path::new(name), &journal, &about(), &Names::default(), window, &mut out).expect("memory");
    out
}

/// The events of the JSON form; steps as their begin and end.
fn of_json(bytes: &[u8]) -> Vec<TraceEvent> {
    let document: Json = serde_json::from_slice(bytes).expect("JSON");
    let mut events = Vec::new();
    for event in document["traceEvents"].as_array().expect("a list") {
        let number = |name: &str| event[name].as_u64().unwrap_or_else(|| panic!("{name} of {event}"));
        let text = |name: &str| event[name].as_str().unwrap_or_else(|| panic!("{name} of {event}")).to_owned();
        let args = event["args"].as_object().cloned().unwrap_or_default();
        let shown = |value: &Json| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let values = args.iter().map(|(name, value)| (name.clone(), shown(value))).collect();
        let one = |kind, at_us, values| TraceEvent { process: number("pid"), at_us, kind, name: text("name"), values };
        match text("ph").as_str() {
            "X" => {
                events.push(one("begin", number("ts"), values));
                events.push(TraceEvent { name: String::new(), ..one("end", number("ts") + number("dur"), Vec::new()) });
            }
            "b" => events.push(one("begin", number("ts"), values)),
            "e" => events.push(TraceEvent { name: String::new(), ..one("end", number("ts"), values) }),
            "C" => events.push(one("count", number("ts"), vec![("value".to_owned(), shown(&event["args"]["value"]))])),
            "s" => {
                let name = format!("{} {}", text("cat"), number("id"));
                events.push(TraceEvent { name, ..one("arrow starts", number("ts"), values) });
            }
            "f" => {
                assert_eq!(event["bp"], "e");
                let name = format!("{} {}", text("cat"), number("id"));
                events.push(TraceEvent { name, ..one("arrow ends", number("ts"), values) });
            }
            "M" => assert!(event["args"]["name"].is_string()),
            other => panic!("phase {other}"),
        }
    }
    events.sort();
    events
}

/// The fields of a message: number, and value or bytes.
fn fields(mut bytes: &[u8]) -> Vec<(u32, u64, Vec<u8>)> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let (mut value, mut shift) = (0, 0);
        loop {
            let byte = bytes[0];
            *bytes = &bytes[1..];
            value |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte < 0x80 {
                return value;
            }
        }
    }
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let (value, content) = match key & 7 {
            0 => (varint(&mut bytes), Vec::new()),
            1 => {
                let (content, rest) = bytes.split_at(8);
                bytes = rest;
                (u64::from_le_bytes(content.try_into().expect("eight bytes")), Vec::new())
            }
            2 => {
                let length = varint(&mut bytes) as usize;
                let (content, rest) = bytes.split_at(length);
                bytes = rest;
                (0, content.to_vec())
            }
            kind => panic!("wire type {kind}"),
        };
        found.push(((key >> 3) as u32, value, content));
    }
    found
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

/// The arrow with this number, as the JSON form has it.
fn arrow(number: u64) -> String {
    let request = (number - 1) % TRANSFERS;
    format!("{} {request}", if number > TRANSFERS { "transfer" } else { "routing" })
}

/// What a decoder knows of a sequence of packets.
#[derive(Debug, Default)]
struct DecodedSequence {
    names: BTreeMap<u64, String>,
    properties: BTreeMap<u64, String>,
    track: u64,
    counters: Vec<u64>,
    /// Time of the latest event.
    at_us: u64,
}

impl DecodedSequence {
    /// What its first packet says.
    fn start(packet: &[(u32, u64, Vec<u8>)]) -> Self {
        let defaults = fields(one(packet, field::DEFAULTS).map(|(_, _, bytes)| &bytes[..]).expect("defaults"));
        assert_eq!(one(&defaults, field::CLOCK_OF_TIMESTAMP).map(|field| field.1), Some(SEQUENCE_CLOCK));
        let event = fields(&one(&defaults, field::TRACK_EVENT).expect("defaults of events").2);
        let clocks: Vec<_> = fields(&one(packet, field::CLOCKS).expect("clocks").2)
            .into_iter()
            .map(|(_, _, clock)| fields(&clock).into_iter().map(|(_, value, _)| value).collect::<Vec<_>>())
            .collect();
        // Both clocks are 0 at the same time; the second counts µs from one event to the next.
        assert_eq!(clocks, [vec![6, 0], vec![SEQUENCE_CLOCK, 0, 1, 1_000]]);
        let counters = event.iter().filter(|field| field.0 == field::EVENT_COUNTER_TRACKS).map(|field| field.1);
        let track = one(&event, field::EVENT_TRACK).expect("a track").1;
        Self { track, counters: counters.collect(), ..Self::default() }
    }
}

fn one(message: &[(u32, u64, Vec<u8>)], wanted: u32) -> Option<&(u32, u64, Vec<u8>)> {
    message.iter().find(|&&(number, ..)| number == wanted)
}

/// The events of the protobuf form. Checks that every track is described before its first event, that what begins ends, and
/// that names are known before they are referred to.
fn of_proto(bytes: &[u8]) -> Vec<TraceEvent> {
    let mut sequences: BTreeMap<u64, DecodedSequence> = BTreeMap::new();
    // Tracks: process, name, number of events that have begun and not ended, value of a counter.
    let mut tracks: BTreeMap<u64, (u64, String, i64, Option<u64>)> = BTreeMap::new();
    let mut events = Vec::new();
    for (number, _, packet) in fields(bytes) {
        assert_eq!(number, field::PACKET);
        let packet = fields(&packet);
        let id = one(&packet, field::SEQUENCE).expect("a sequence").1;
        let flags = one(&packet, field::SEQUENCE_FLAGS).map(|field| field.1);
        if flags == Some(1) {
            assert!(sequences.insert(id, DecodedSequence::start(&packet)).is_none(), "a sequence starts once");
        }
        let sequence = sequences.get_mut(&id).expect("it has started");
        if let Some((_, _, interned)) = one(&packet, field::INTERNED) {
            for (list, _, entry) in fields(interned) {
                let entry = fields(&entry);
                let all = if list == field::NAMES { &mut sequence.names } else { &mut sequence.properties };
                assert_eq!((entry[0].0, entry[1].0), (field::ENTRY_ID, field::ENTRY_NAME));
                assert!(all.insert(entry[0].1, text(&entry[1].2)).is_none(), "a name is written once");
            }
        }
        if let Some((_, _, descriptor)) = one(&packet, field::TRACK_DESCRIPTOR) {
            let descriptor = fields(descriptor);
            let process = match (one(&descriptor, field::TRACK_PROCESS), one(&descriptor, field::TRACK_PARENT)) {
                (Some((_, _, process)), _) => fields(process)[0].1,
                (None, Some(&(_, parent, _))) => tracks[&parent].0,
                (None, None) => panic!("a track of no process"),
            };
            let name = one(&descriptor, field::TRACK_NAME).map(|(_, _, name)| text(name)).unwrap_or_default();
            tracks.insert(one(&descriptor, field::TRACK).expect("a number").1, (process, name, 0, None));
        }
        let Some((_, _, event)) = one(&packet, field::TRACK_EVENT) else { continue };
        assert_eq!(flags, Some(2), "it needs the packets before");
        sequence.at_us += one(&packet, field::TIMESTAMP).expect("a time").1;
        let at_us = sequence.at_us;
        let event = fields(event);
        let written = event.iter().filter(|field| field.0 == field::EVENT_COUNTERS).map(|field| field.1);
        for (track, value) in sequence.counters.iter().zip(written) {
            let (process, name, _, before) = tracks.get_mut(track).expect("described");
            if before.replace(value) != Some(value) {
                let values = vec![("value".to_owned(), value.to_string())];
                events.push(TraceEvent { process: *process, at_us, kind: "count", name: name.clone(), values });
            }
        }
        let (process, _, open, _) = tracks.get_mut(&sequence.track).expect("described");
        let process = *process;
        let mut push = |kind, name, values| events.push(TraceEvent { process, at_us, kind, name, values });
        let kind = one(&event, field::EVENT_TYPE).expect("a type").1;
        if kind == 2 {
            *open -= 1;
            assert!(*open >= 0, "what ends has begun");
            push("end", String::new(), Vec::new());
            continue;
        }
        let interned = one(&event, field::EVENT_NAME_ID).map(|(_, id, _)| sequence.names[id].clone());
        let name = interned.or_else(|| one(&event, field::EVENT_NAME).map(|(_, _, name)| text(name))).expect("a name");
        let annotations = event.iter().filter(|field| field.0 == field::EVENT_PROPERTY).map(|(_, _, one)| fields(one));
        let mut values: Vec<_> = annotations
            .map(|one| {
                let value = if one[1].0 == field::PROPERTY_NUMBER { one[1].1.to_string() } else { text(&one[1].2) };
                (sequence.properties[&one[0].1].clone(), value)
            })
            .collect();
        values.sort();
        push("begin", name, values);
        for (number, id, _) in &event {
            match *number {
                field::EVENT_FLOW => push("arrow starts", arrow(*id), Vec::new()),
                field::EVENT_FLOW_END => push("arrow ends", arrow(*id), Vec::new()),
                _ => {}
            }
        }
        match kind {
            1 => *open += 1,
            // An event without duration.
            3 => push("end", String::new(), Vec::new()),
            other => panic!("type {other}"),
        }
    }
    assert!(tracks.values().all(|&(_, _, open, _)| open == 0), "what begins ends");
    events.sort();
    events
}

#[test]
fn both_forms_have_the_same_events() {
    for window in [ExportWindow::default(), ExportWindow { from: Micros(2_000), to: Micros(6_000), instances: vec![1] }]
    {
        let (json, proto) = (of_json(&written("a.json", &window)), of_proto(&written("a.pftrace", &window)));
        assert!(json.len() > 50, "{}", json.len());
        assert_eq!(json, proto);
    }
}

#[test]
fn events_are_those_of_the_journal() {
    let (journal, ..) = journal(true);
    let events = of_json(&written("a.json", &ExportWindow::default()));
    let count = |kind: &str, name: &str| events.iter().filter(|one| one.kind == kind && one.name == name).count();
    let steps = count("begin", "decode step") + count("begin", "prefill step") + count("begin", "mixed step");
    assert_eq!(steps, journal.steps.len());
    // In the gateway: until it is routed, and the moment of that; then at its instance.
    assert_eq!(count("begin", "request_20"), 2);
    assert_eq!(
        count("begin", "routed"),
        journal.journeys.iter().filter(|journey| journey.handed_over.is_some()).count()
    );
    let left = journal.journeys.iter().flat_map(|journey| &journey.in_batch).filter(|change| !change.entered).count();
    assert!(left > 0);
    assert_eq!(count("begin", "preempted"), left, "every preemption is a stage");
    let served = journal.journeys.iter().filter(|journey| !journey.in_batch.is_empty()).count();
    for kind in ["arrow starts", "arrow ends"] {
        assert_eq!(events.iter().filter(|one| one.kind == kind).count(), served, "{kind}");
    }
    let begins = events.iter().filter(|one| one.kind == "begin").count();
    assert_eq!(events.iter().filter(|one| one.kind == "end").count(), begins);
}

#[test]
fn stages_add_up_to_the_time_at_the_instance() {
    let (journal, ..) = journal(true);
    for journey in journal.journeys.iter().filter(|journey| journey.completed().is_some()) {
        let span = in_instance(journey, Micros::MAX).expect("it was served");
        let (start, end) = span.times;
        assert_eq!(
            (span.stages[0].1, span.stages[span.stages.len() - 1].2),
            (start, end),
            "{span:?}",
            span = span.stages
        );
        assert!(span.stages.windows(2).all(|pair| pair[0].2 == pair[1].1), "{:?}", span.stages);
        let prefill: Vec<_> = span.stages.iter().filter(|stage| stage.0 == "prefill").collect();
        assert_eq!(Some(prefill[prefill.len() - 1].2), journey.first_output);
    }
}

#[test]
fn a_window_leaves_the_rest_out() {
    let window = ExportWindow { from: Micros(3_000), to: Micros(5_000), instances: vec![0] };
    let events = of_json(&written("a.json", &window));
    assert!(events.iter().all(|one| one.process != 3), "instance 1 is left out");
    let begins = events.iter().filter(|one| one.kind == "count" || one.name.ends_with(" step"));
    assert!(begins.clone().count() > 0);
    assert!(begins.into_iter().all(|one| one.at_us < 5_000));
}

#[test]
fn either_form_can_be_compressed() {
    for (name, plain) in [("a.json.gz", "a.json"), ("a.pftrace.gz", "a.pftrace")] {
        let (compressed, mut text) = (written(name, &ExportWindow::default()), Vec::new());
        flate2::read::GzDecoder::new(&compressed[..]).read_to_end(&mut text).expect("gzip");
        assert!(text == written(plain, &ExportWindow::default()) && compressed.len() * 2 < text.len(), "{name}");
    }
}
