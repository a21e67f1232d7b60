//! Both forms of the trace have the same events, and those are the events of the journal.

use std::collections::BTreeMap;
use std::io::Read as _;

use serde_json::Value as Json;

use super::proto::field;
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
    write(Path::new(name), &journal, (&about(), &Names::default()), window, &mut out).expect("memory");
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
                events.push(TraceEvent { name: number("id").to_string(), ..one("arrow starts", number("ts"), values) });
            }
            "f" => {
                assert_eq!(event["bp"], "e");
                events.push(TraceEvent { name: number("id").to_string(), ..one("arrow ends", number("ts"), values) });
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

/// The events of the protobuf form. Checks that every track is described before its first event, that its events are in
/// order of time, and that what begins ends.
fn of_proto(bytes: &[u8]) -> Vec<TraceEvent> {
    let (mut names, mut properties) = (BTreeMap::new(), BTreeMap::new());
    // Tracks: process, name, time of the latest event, number of events that have begun and not ended.
    let mut tracks: BTreeMap<u64, (u64, String, u64, i64)> = BTreeMap::new();
    let mut events = Vec::new();
    for (number, _, packet) in fields(bytes) {
        assert_eq!(number, field::PACKET);
        let packet = fields(&packet);
        let of = |wanted: u32| packet.iter().find(|&&(number, ..)| number == wanted);
        assert_eq!(of(field::SEQUENCE).map(|one| one.1), Some(1));
        if let Some((_, _, interned)) = of(field::INTERNED) {
            for (list, _, entry) in fields(interned) {
                let entry = fields(&entry);
                let all = if list == field::NAMES { &mut names } else { &mut properties };
                assert_eq!((entry[0].0, entry[1].0), (field::ENTRY_ID, field::ENTRY_NAME));
                all.insert(entry[0].1, text(&entry[1].2));
            }
        }
        if let Some((_, _, descriptor)) = of(field::TRACK_DESCRIPTOR) {
            let descriptor = fields(descriptor);
            let of = |wanted: u32| descriptor.iter().find(|&&(number, ..)| number == wanted);
            let process = match (of(field::TRACK_PROCESS), of(field::TRACK_PARENT)) {
                (Some((_, _, process)), _) => fields(process)[0].1,
                (None, Some(&(_, parent, _))) => tracks[&parent].0,
                (None, None) => panic!("a track of no process"),
            };
            let name = of(field::TRACK_NAME).map(|(_, _, name)| text(name)).unwrap_or_default();
            tracks.insert(of(field::TRACK).expect("a number").1, (process, name, 0, 0));
        }
        let Some((_, _, event)) = of(field::TRACK_EVENT) else { continue };
        let at_us = of(field::TIMESTAMP).expect("a time").1 / 1_000;
        let event = fields(event);
        let of = |wanted: u32| event.iter().find(|&&(number, ..)| number == wanted);
        let (process, track, latest, open) =
            tracks.get_mut(&of(field::EVENT_TRACK).expect("a track").1).expect("described");
        assert!(*latest <= at_us, "events of a track in order of time");
        *latest = at_us;
        let mut push = |kind, name, values| events.push(TraceEvent { process: *process, at_us, kind, name, values });
        match of(field::EVENT_TYPE).expect("a type").1 {
            1 => {
                *open += 1;
                let interned = of(field::EVENT_NAME_ID).map(|(_, id, _)| names[id].clone());
                let name = interned.or_else(|| of(field::EVENT_NAME).map(|(_, _, name)| text(name))).expect("a name");
                let annotations =
                    event.iter().filter(|one| one.0 == field::EVENT_PROPERTY).map(|(_, _, one)| fields(one));
                let mut values: Vec<_> = annotations
                    .map(|one| {
                        let value =
                            if one[1].0 == field::PROPERTY_NUMBER { one[1].1.to_string() } else { text(&one[1].2) };
                        (properties[&one[0].1].clone(), value)
                    })
                    .collect();
                values.sort();
                push("begin", name, values);
                for (number, id, _) in &event {
                    match *number {
                        field::EVENT_FLOW => push("arrow starts", (id - 1).to_string(), Vec::new()),
                        field::EVENT_FLOW_END => push("arrow ends", (id - 1).to_string(), Vec::new()),
                        _ => {}
                    }
                }
            }
            2 => {
                *open -= 1;
                assert!(*open >= 0, "what ends has begun");
                push("end", String::new(), Vec::new());
            }
            4 => {
                let value = of(field::EVENT_COUNT).expect("a value").1;
                push("count", track.clone(), vec![("value".to_owned(), value.to_string())]);
            }
            other => panic!("type {other}"),
        }
    }
    assert!(tracks.values().all(|&(.., open)| open == 0), "what begins ends");
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
        assert_eq!(prefill[prefill.len() - 1].2, journey.tokens[0]);
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
