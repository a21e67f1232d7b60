use super::*;
use crate::{TraceError, TraceOptions, azure, blis_csv, mooncake, trace_v2};
use blis_sim::ids::RequestId;
use blis_sim::request::{BlockKey, Content, Span};
use blis_sim::units::Micros;
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

type ReadTrace = fn(&[u8], &str, &TraceOptions) -> Result<Workload, TraceError>;

fn reader(target: TargetFormat) -> ReadTrace {
    match target {
        TargetFormat::TraceV2 => {
            |bytes, file, options| trace_v2::read(bytes, file, &trace_v2::TraceHeader::default(), options)
        }
        TargetFormat::Mooncake => |bytes, file, options| mooncake::read(bytes, file, options),
        TargetFormat::BlisCsv => |bytes, file, options| blis_csv::read(bytes, file, options),
        TargetFormat::Azure => |bytes, file, options| azure::read(bytes, file, options),
    }
}

fn block(tokens: u32) -> NonZeroU32 {
    NonZeroU32::new(tokens).unwrap()
}

fn workload(requests: Vec<Request>, names: Names) -> Workload {
    let count = Some(requests.len() as u64);
    let (slo_targets, skipped, notes) = (BTreeMap::new(), Default::default(), Vec::new());
    Workload {
        requests: Box::new(requests.into_iter()),
        follow_ups: None,
        count,
        names,
        slo_targets,
        aside: BTreeSet::new(),
        recorded: Vec::new(),
        skipped,
        notes,
    }
}

/// Writes a workload and reads it back.
fn there_and_back(
    target: TargetFormat,
    requests: &[Request],
    names: &Names,
    size: NonZeroU32,
) -> (Vec<Request>, Names, Lost) {
    let mut text = Vec::new();
    let (count, lost) = target.write(workload(requests.to_vec(), names.clone()), size, &mut text).unwrap();
    assert_eq!(count, requests.len() as u64);
    let options = TraceOptions { block_size: size, hash_block_size: Some(size), ..TraceOptions::default() };
    let read = reader(target)(&text, "t", &options).unwrap_or_else(|error| panic!("{error}"));
    (read.requests.collect(), read.names, lost)
}

/// Keys renamed by first appearance, so that equal structures compare as equal.
fn structure(requests: &[Request], most: impl Fn(&Request) -> u32) -> Vec<Vec<usize>> {
    let mut uses: BTreeMap<BlockKey, u32> = BTreeMap::new();
    let keys: Vec<Vec<BlockKey>> = requests.iter().map(|r| r.content.keys().take(most(r) as usize).collect()).collect();
    keys.iter().flatten().for_each(|&key| *uses.entry(key).or_default() += 1);
    let mut numbers: BTreeMap<BlockKey, usize> = BTreeMap::new();
    let shared = keys.into_iter().map(|keys| keys.into_iter().filter(|key| uses[key] > 1).collect::<Vec<_>>());
    shared
        .collect::<Vec<_>>()
        .into_iter()
        .map(|keys| {
            keys.into_iter()
                .map(|key| {
                    let next = numbers.len();
                    *numbers.entry(key).or_insert(next)
                })
                .collect()
        })
        .collect()
}

fn figures(request: &Request) -> (u64, u32, u32) {
    (request.arrival.0, request.input_tokens, request.output_tokens)
}

/// Requests with a shared prefix of one of three lengths, in sequence.
fn requests() -> impl Strategy<Value = Vec<Request>> {
    vec((0_u64..3_000_000, 1_u32..100, 0_u32..50, 0_u32..4), 1..20).prop_map(|drafts| {
        let mut at = 0;
        let request = |(id, (gap, input, output, depth)): (usize, (u64, u32, u32, u32))| {
            at += if id == 0 { 0 } else { gap };
            let spans = [Span { first: 0, len: depth.min(input / 16) }];
            Request {
                content: Content::shared(&spans),
                ..Request::new(RequestId(id as u32), Micros(at), input, output)
            }
        };
        drafts.into_iter().enumerate().map(request).collect()
    })
}

proptest! {
    #[test]
    fn what_a_format_carries_comes_back(requests in requests()) {
        for target in [TargetFormat::Azure, TargetFormat::Mooncake, TargetFormat::BlisCsv, TargetFormat::TraceV2] {
            let (back, _, lost) = there_and_back(target, &requests, &Names::default(), block(16));
            prop_assert_eq!(back.iter().map(figures).collect::<Vec<_>>(), requests.iter().map(figures).collect::<Vec<_>>());
            let some_shared = requests.iter().any(|request| request.content.shared_blocks() > 0);
            prop_assert_eq!(lost.contains("shared prefixes of prompts"), target == TargetFormat::Azure && some_shared);
            if target != TargetFormat::Azure {
                let all = |request: &Request| request.input_tokens / 16;
                prop_assert_eq!(structure(&back, all), structure(&requests, all), "{:?}", target);
            }
        }
    }

    #[test]
    fn times_of_any_day_come_back(us in 0_u64..250_000_000_000_000_000) {
        let requests = [(0, 0), (1, us)].map(|(id, at)| Request::new(RequestId(id), Micros(at), 1, 1));
        let (back, _, _) = there_and_back(TargetFormat::Azure, &requests, &Names::default(), block(16));
        prop_assert_eq!(back[1].arrival.0, us);
    }
}

#[test]
fn trace_v2_carries_names_groups_and_deadlines() {
    let mut names = Names::default();
    let [class, tenant, session, group] = ["critical", "a \"b\", c", "s 1", "g"].map(|text| names.intern(text));
    let tags = Tags { slo_class: class, tenant, session, prefix_group: group, round_index: 2, ..Tags::default() };
    let content = Content::shared(&[Span { first: 0, len: 37 }]);
    let first = Request {
        deadline: Some(Micros(5_000)),
        client_priority: Some(-3),
        max_output_tokens: Some(9),
        tags,
        content,
        ..Request::new(RequestId(4), Micros(1_000), 100, 9)
    };
    let second = Request {
        tags: Tags { prefix_group: group, ..Tags::default() },
        id: RequestId(9),
        client_priority: None,
        ..first.clone()
    };
    let (back, read, lost) = there_and_back(TargetFormat::TraceV2, &[first.clone(), second.clone()], &names, block(1));
    assert!(lost.is_empty(), "{lost:?}");
    for (back, request) in back.iter().zip([&first, &second]) {
        assert_eq!((back.id, figures(back), back.deadline), (request.id, figures(request), request.deadline));
        assert_eq!(
            (back.client_priority, back.max_output_tokens),
            (request.client_priority, request.max_output_tokens)
        );
        assert_eq!(back.content.shared_blocks(), 37);
        let texts = |tags: Tags, names: &Names| {
            [tags.slo_class, tags.tenant, tags.session, tags.prefix_group].map(|name| names.text(name).to_owned())
        };
        assert_eq!(texts(back.tags, &read), texts(request.tags, &names));
        assert_eq!(back.tags.round_index, request.tags.round_index);
    }
    let (_, _, lost) = there_and_back(TargetFormat::Azure, &[first], &names, block(1));
    let all = "budgets, deadlines, names of prefix groups, numbers of requests, priorities, service classes, sessions, \
               shared prefixes of prompts, tenants, the time before the first arrival";
    assert_eq!(lost.into_iter().collect::<Vec<_>>().join(", "), all);
}

#[test]
fn turns_of_a_session_are_counted_again_in_mooncake() {
    let mut names = Names::default();
    let session = names.intern("chat \"1\"");
    let request = |id, round_index| Request {
        tags: Tags { session, round_index, ..Tags::default() },
        ..Request::new(RequestId(id), Micros(u64::from(id) * 1_001), 600, 3)
    };
    let (back, read, lost) =
        there_and_back(TargetFormat::Mooncake, &[request(0, 0), request(1, 1)], &names, block(512));
    assert!(lost.is_empty());
    let seen: Vec<_> = back.iter().map(|r| (r.arrival.0, r.tags.round_index, read.text(r.tags.session))).collect();
    assert_eq!(seen, [(0, 0, "chat \"1\""), (1_001, 1, "chat \"1\"")]);
}

/// Accepts so many bytes, and no more.
struct Short(usize);

impl Write for Short {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::StorageFull)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn billions_of_tokens_are_written_one_by_one() {
    let request = Request::new(RequestId(0), Micros(0), u32::MAX, u32::MAX);
    let written = TargetFormat::BlisCsv.write(workload(vec![request], Names::default()), block(16), &mut Short(1_000));
    assert!(matches!(written, Err(WriteError::Io(error)) if error.kind() == io::ErrorKind::StorageFull));
}
