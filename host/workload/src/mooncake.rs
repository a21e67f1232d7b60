//! Mooncake traces: JSONL with arrival (ms), lengths, and one hash id per 512 tokens of the prompt.
//!
//! ```text
//! {"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47, 2353, …]}
//! ```
//! AIPerf and dynamo add fields: `session_id` groups rounds, which are counted; `delay` is the think time (ms) from the
//! end of the round before, used in closed loop. Without it, the think time is the time between the timestamps.
//! <https://github.com/kvcache-ai/Mooncake>

use std::io::BufRead;
use std::num::NonZeroU32;
use std::sync::Arc;

use blis_sim::ids::RequestId;
use blis_sim::request::Name;
use blis_sim::units::Micros;
use rustc_hash::FxHashMap;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::error::TraceError;
use super::hashed::HashedPrompts;
use super::json::{self, Label, MILLISECOND, Number, need};
use super::names::Names;
use super::prefix::ROOT;
use super::row::{NamedMetadata, TraceRow};
use super::rows::{Intake, Origin};
use super::trace_v2::{Extra, Later, SessionGrowth};
use super::{TraceOptions, Workload};
use blis_diag::LineReader;
use blis_diag::RowError;

/// Tokens per hash id in the published traces.
pub const HASH_BLOCK_TOKENS: NonZeroU32 = NonZeroU32::new(512).expect("512 > 0");

/// Reads a Mooncake trace.
///
/// # Errors
/// See [`TraceError`].
pub fn read(input: impl BufRead, file: &str, options: &TraceOptions) -> Result<Workload, TraceError> {
    let file: Arc<str> = file.into();
    let mut intake = Intake::new(&file, options);
    let mut lines = LineReader::new(input, &file);
    let mut prompts = HashedPrompts::new(options, HASH_BLOCK_TOKENS);
    let (mut names, mut turns) = (Names::default(), SessionTurns::default());
    let (mut timestamps, mut scratch) = (TimestampNotes::default(), Vec::new());
    turns.waits = options.closed_loop.is_some();
    while intake.wants_more() && lines.advance()? {
        let id = intake.next_id()?;
        let read = parse(lines.text(), &mut scratch, &prompts, id).and_then(|(record, row)| {
            let row = turns.in_session(&record, row, &mut names)?;
            Ok((record, row))
        });
        let Some((record, mut row)) = intake.valid(read, |fault| lines.locate(fault))? else { continue };
        row.prefix = prompts.insert(&record.hash_ids, row.input, &intake)?;
        timestamps.add(row, record.delay.is_some());
        intake.add(row);
    }
    intake.notes.extend(timestamps.notes(turns.waits));
    intake.aside.extend((timestamps.delays > 0).then_some("delays between turns"));
    let extras = turns.in_order(&mut intake.rows);
    let shared = prompts.finish(&mut intake, options.block_size)?;
    match &options.closed_loop {
        None => intake.finish(Origin::FirstArrival, shared, names),
        Some(how) => {
            let later = Later::take(&mut intake.rows, &extras, &shared, &file, &names)?;
            let first = intake.finish(Origin::FirstArrival, shared, names)?;
            // Prompts have the lengths and contents of their records.
            Ok(later.follow(first, how, SessionGrowth::None, options))
        }
    }
}

/// The rounds of sessions.
#[derive(Default)]
struct SessionTurns {
    /// Whether rounds wait for the end of the round before (closed loop).
    waits: bool,
    /// Number of the next round, and arrival of the last one, µs.
    by_session: FxHashMap<Name, (u32, u64)>,
    /// Think time of each row, if it has one.
    delays: Vec<Option<Micros>>,
}

impl SessionTurns {
    /// Numbers the rounds of `rows` in the order of time, whatever the order of the lines. Returns the properties of
    /// each row for closed loop.
    fn in_order(&mut self, rows: &mut [TraceRow<NamedMetadata>]) -> Vec<Extra> {
        let delays = self.delays.iter().map(|delay| delay.unwrap_or(Micros::ZERO));
        let extra = |(row, think_time): (&TraceRow<NamedMetadata>, _)| Extra {
            own: row.input,
            think_time,
            time_to_deadline: None,
        };
        let mut extras: Vec<Extra> = rows.iter().zip(delays).map(extra).collect();
        let mut order: Vec<usize> = (0..rows.len()).filter(|&at| rows[at].terms.tags.session != Name::NONE).collect();
        order.sort_by_key(|&at| rows[at].arrival);
        self.by_session.clear();
        for at in order {
            let (arrival, tags) = (rows[at].arrival, &mut rows[at].terms.tags);
            let (turn, last) = self.by_session.get(&tags.session).copied().unwrap_or((0, arrival));
            tags.round_index = turn;
            self.by_session.insert(tags.session, (turn.saturating_add(1), arrival));
            if self.delays[at].is_none() {
                extras[at].think_time = Micros(arrival - last);
            }
        }
        extras
    }

    /// `row`, with its session and round.
    fn in_session(
        &mut self,
        record: &MooncakeRecord<'_>,
        mut row: TraceRow<NamedMetadata>,
        names: &mut Names,
    ) -> Result<TraceRow<NamedMetadata>, RowError> {
        let delay = record.delay.map(|ms| ms.micros("delay", MILLISECOND)).transpose()?;
        let session = record.session_id.as_ref().map_or(Name::NONE, |Label(name)| names.intern(name));
        let before = self.by_session.get(&session).copied().filter(|_| session != Name::NONE);
        if record.timestamp.is_none() {
            // Its arrival if the round before took no time.
            row.arrival = match (before, delay) {
                (Some((_, last)), Some(delay)) if self.waits => last.saturating_add(delay),
                (Some(_), Some(_)) => {
                    let fault =
                        RowError::new("`timestamp` is missing: the turn has only a `delay` after the one before it");
                    return Err(fault.hint(
                        "`blis run --session-mode closed-loop` lets rounds wait for the end of the round before",
                    ));
                }
                (None, Some(_)) => {
                    let fault =
                        RowError::new("`timestamp` is missing: there is no turn before that a `delay` could follow");
                    return Err(
                        fault.hint("the first turn of a session has a timestamp, and later ones its `session_id`")
                    );
                }
                (_, None) => return Err(RowError::new("`timestamp` is missing")),
            };
        }
        if session != Name::NONE {
            row.terms.tags.session = session;
            self.by_session.insert(session, (0, row.arrival));
        }
        self.delays.push(delay.map(Micros));
        Ok(row)
    }
}

#[derive(Deserialize)]
struct MooncakeRecord<'a> {
    /// Time of arrival, ms from the start of the trace.
    timestamp: Option<Number>,
    input_length: Option<Number>,
    output_length: Option<Number>,
    #[serde(default)]
    hash_ids: Vec<u64>,
    #[serde(borrow, default)]
    session_id: Option<Label<'a>>,
    delay: Option<Number>,
    text_input: Option<IgnoredAny>,
}

fn parse<'a>(
    line: &'a [u8],
    scratch: &'a mut Vec<u8>,
    prompts: &HashedPrompts,
    id: RequestId,
) -> Result<(MooncakeRecord<'a>, TraceRow<NamedMetadata>), RowError> {
    let record: MooncakeRecord<'_> = json::object(line, scratch)?;
    let arrival = record.timestamp.map_or(Ok(0), |ms| ms.micros("timestamp", MILLISECOND))?;
    let input = match (record.input_length, &record.text_input) {
        (None, Some(_)) => {
            let fault = RowError::new("`input_length` is missing: only the text is given");
            return Err(fault.hint("count its tokens with the model's tokenizer first"));
        }
        (length, _) => need(length, "input_length")?.prompt("input_length")?,
    };
    let output = need(record.output_length, "output_length")?.count("output_length")?;
    prompts.check(record.hash_ids.len(), input, "hash_ids")?;
    Ok((record, TraceRow { arrival, id, input, output, prefix: ROOT, terms: NamedMetadata::default() }))
}

/// Irregularities of the rows, for the notes.
#[derive(Default)]
struct TimestampNotes {
    rows: u64,
    distinct: u64,
    last: Option<u64>,
    first: Option<u64>,
    delays: u64,
}

impl TimestampNotes {
    fn add(&mut self, row: TraceRow<NamedMetadata>, delayed: bool) {
        self.rows += 1;
        self.distinct += u64::from(self.last != Some(row.arrival));
        self.last = Some(row.arrival);
        self.first = Some(self.first.map_or(row.arrival, |first| first.min(row.arrival)));
        self.delays += u64::from(delayed);
    }

    /// `waits`: whether delays are used.
    fn notes(&self, waits: bool) -> impl Iterator<Item = String> {
        let Self { rows, distinct, delays, .. } = *self;
        let shift = self.first.filter(|&first| first > 0);
        let shift = shift.map(|us| format!("the trace starts at {} ms; time 0 is its first arrival", us as f64 / 1e3));
        let bins = (distinct.saturating_mul(4) < rows).then(|| {
            format!(
                "{rows} requests arrive at {distinct} instants: waiting times at those instants are an artefact; \
                 `--spread-bins` spreads them"
            )
        });
        let unused = "`delay` is not used: every turn arrives at its timestamp";
        let delays = (delays > 0 && !waits).then(|| unused.to_owned());
        shift.into_iter().chain(bins).chain(delays)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use blis_sim::request::Request;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn options(block: u32, hash_block: u32) -> TraceOptions {
        let [block_size, hash_block_size] = [block, hash_block].map(|size| NonZeroU32::new(size).unwrap());
        TraceOptions { block_size, hash_block_size: Some(hash_block_size), ..TraceOptions::default() }
    }

    fn trace(text: &str, options: &TraceOptions) -> Result<Workload, TraceError> {
        read(text.as_bytes(), "t.jsonl", options)
    }

    #[test]
    fn hash_blocks_are_split_into_engine_blocks() {
        let text = r#"{"timestamp": 1000, "input_length": 1100, "output_length": 5, "hash_ids": [0, 1, 2]}
                      {"timestamp": 1000.5, "input_length": 1200, "output_length": 0, "hash_ids": [0, 1, 3], "x": {}}
                      {"timestamp": 2000, "input_length": 600, "output_length": 7, "hash_ids": [0, 4], "session_id": "a"}"#;
        let workload = trace(text, &options(16, 512)).unwrap();
        assert_eq!(workload.notes, ["the trace starts at 1000 ms; time 0 is its first arrival"]);
        let names = workload.names;
        let requests: Vec<Request> = workload.requests.collect();
        assert_eq!(requests.iter().map(|r| r.arrival.0).collect::<Vec<_>>(), [0, 500, 1_000_000]);
        assert_eq!(requests.iter().map(|r| names.text(r.tags.session)).collect::<Vec<_>>(), ["", "", "a"]);
        assert_eq!(requests.iter().map(|r| r.content.shared_blocks()).collect::<Vec<_>>(), [64, 64, 32]);
        assert!(requests.iter().all(|r| r.content.spans().len() == 1 && r.content.spans()[0].first == 0));
    }

    #[test]
    fn blocks_of_any_size_belong_to_the_hash_block_of_their_last_token() {
        let text = r#"{"timestamp": 0, "input_length": 1536, "output_length": 1, "hash_ids": [0, 1, 2]}
                      {"timestamp": 0, "input_length": 1536, "output_length": 1, "hash_ids": [0, 1, 3]}"#;
        let shared =
            |block| trace(text, &options(block, 512)).unwrap().requests.next().unwrap().content.shared_blocks();
        assert_eq!(
            [shared(1), shared(100), shared(512), shared(600), shared(1024), shared(2000)],
            [1024, 10, 2, 1, 1, 0]
        );
    }

    #[test]
    fn errors_say_where() {
        let error = |text: &str| trace(text, &TraceOptions::default()).unwrap_err().to_string();
        insta::assert_snapshot!(error(r#"{"timestamp": 0, "input_length": "a"}"#), @r#"t.jsonl:1:36: invalid value: string "a", expected a number"#);
        insta::assert_snapshot!(error("\n{\"timestamp\": 0"), @"t.jsonl:2:15: EOF while parsing an object");
        insta::assert_snapshot!(error(r#"{"timestamp": 0, "input_length": -1, "output_length": 1}"#), @"t.jsonl:1: `input_length` is negative: `-1`");
        insta::assert_snapshot!(error(r#"{"timestamp": 0, "input_length": 0, "output_length": 1}"#), @"t.jsonl:1: `input_length` is 0: a prompt has at least one token");
        insta::assert_snapshot!(error(r#"{"timestamp": 0, "input_length": 1}"#), @"t.jsonl:1: `output_length` is missing");
        insta::assert_snapshot!(error(r#"{"timestamp": 0, "input_length": 1, "output_length": 1e10}"#), @"t.jsonl:1: `output_length` is 10000000000, more than 4294967295");
        insta::assert_snapshot!(error(r#"{"delay": 5, "input_length": 1, "output_length": 1}"#), @r"
        t.jsonl:1: `timestamp` is missing: there is no turn before that a `delay` could follow
        hint: the first turn of a session has a timestamp, and later ones its `session_id`
        ");
        insta::assert_snapshot!(error(TURNS), @r"
        t.jsonl:2: `timestamp` is missing: the turn has only a `delay` after the one before it
        hint: `blis run --session-mode closed-loop` lets rounds wait for the end of the round before
        ");
        insta::assert_snapshot!(error(&TURNS.replace("\"delay\": 2500", "\"delay\": -1")), @"t.jsonl:2: `delay` is negative: `-1`");
        insta::assert_snapshot!(error(r#"{"input_length": 1, "output_length": 1, "session_id": "a"}"#), @"t.jsonl:1: `timestamp` is missing");
        insta::assert_snapshot!(error(r#"{"timestamp": 0, "input_length": 32, "output_length": 1, "hash_ids": [1, 2]}"#), @r"
        t.jsonl:1: 2 `hash_ids`, but 32 tokens are 1 blocks of 512
        hint: set the hash block size to that of the trace (Mooncake 512, Bailian 16)
        ");
    }

    /// Sessions as AIPerf and dynamo write them: only the first round has a timestamp.
    const TURNS: &str = r#"{"session_id": "a", "timestamp": 1000, "input_length": 100, "output_length": 7, "hash_ids": [1]}
{"session_id": "a", "delay": 2500, "input_length": 600, "output_length": 8, "hash_ids": [1, 2]}
{"timestamp": 1500, "input_length": 9, "output_length": 9}
{"session_id": "b", "timestamp": 1250, "input_length": 512, "output_length": 1, "hash_ids": [1]}
{"session_id": "b", "timestamp": 4250, "input_length": 700, "output_length": 2, "hash_ids": [1, 3]}
{"session_id": "a", "delay": 0, "timestamp": 9000, "input_length": 601, "output_length": 3, "hash_ids": [1, 2]}
"#;

    #[test]
    fn rounds_with_delays_wait_for_earlier_ones() {
        use crate::trace_v2::{ClosedLoop, ThinkTime};
        use blis_sim::outcome::{Outcome, Status};

        let how = |think_time| ClosedLoop { think_time, seed: 1, timeout: None };
        let run = |think_time: Option<ThinkTime>| {
            let options = TraceOptions { closed_loop: Some(how(think_time)), ..options(16, 512) };
            let Workload { requests, follow_ups, notes, .. } = trace(TURNS, &options).unwrap();
            let sorted = "the rows are not in order of arrival; they were sorted";
            assert_eq!(notes, ["the trace starts at 1000 ms; time 0 is its first arrival", sorted]);
            let (mut waiting, mut follow_ups) = (requests.collect::<Vec<Request>>(), follow_ups.unwrap());
            let mut seen = Vec::new();
            // Every request takes a second.
            while !waiting.is_empty() {
                let request = waiting.remove(0);
                let ended_at = request.arrival + Micros(1_000_000);
                seen.push((request.id.0, request.arrival.0, request.input_tokens, request.content.shared_blocks()));
                assert_eq!(request.max_output_tokens, None, "a trace has no limits of output tokens");
                waiting.extend(follow_ups.next(&Outcome { ended_at, ..Outcome::new(&request, Status::Completed) }));
                waiting.sort_by_key(|request| request.arrival);
            }
            (seen, follow_ups.states().completed)
        };
        let (seen, completed) = run(None);
        // `a`: 1 s for the output, then 2.5 s; then at once, whatever its timestamp. `b`: 3 s between its timestamps.
        let expected = [
            (0, 0, 100, 6),
            (3, 250_000, 512, 32),
            (2, 500_000, 9, 0),
            (1, 3_500_000, 600, 37),
            (4, 4_250_000, 700, 32),
            (5, 4_500_000, 601, 37),
        ];
        assert_eq!((seen.as_slice(), completed), (&expected[..], 2));
        let (seen, _) = run(Some(ThinkTime::Constant(Micros(10))));
        assert_eq!(seen[3].1, 1_000_010);
    }

    #[test]
    fn turns_are_numbered_in_the_order_of_time() {
        use crate::trace_v2::ClosedLoop;
        use blis_sim::outcome::{Outcome, Status};

        let line = |ms: u32| {
            let output = ms / 1000;
            format!(r#"{{"session_id": "a", "timestamp": {ms}, "input_length": 5, "output_length": {output}}}"#)
        };
        let text = [5000, 1000, 9000].map(line).join("\n");
        let Workload { requests, .. } = trace(&text, &options(16, 512)).unwrap();
        let turns: Vec<_> = requests.map(|r| (r.output_tokens, r.tags.round_index, r.arrival.0)).collect();
        assert_eq!(turns, [(1, 0, 0), (5, 1, 4_000_000), (9, 2, 8_000_000)]);
        let how = ClosedLoop { think_time: None, seed: 1, timeout: None };
        let Workload { requests, follow_ups, .. } =
            trace(&text, &TraceOptions { closed_loop: Some(how), ..options(16, 512) }).unwrap();
        let first: Vec<Request> = requests.collect();
        assert_eq!(first.iter().map(|r| r.output_tokens).collect::<Vec<_>>(), [1]);
        let ended = Outcome { ended_at: Micros(500_000), ..Outcome::new(&first[0], Status::Completed) };
        let second = follow_ups.unwrap().next(&ended).unwrap();
        assert_eq!((second.output_tokens, second.arrival.0), (5, 4_500_000));
    }

    #[test]
    fn delays_without_a_turn_before_them_are_refused() {
        use crate::trace_v2::ClosedLoop;
        let closed_loop = Some(ClosedLoop { think_time: None, seed: 1, timeout: None });
        let error = |text: &str| {
            trace(text, &TraceOptions { closed_loop: closed_loop.clone(), ..options(16, 512) }).unwrap_err().to_string()
        };
        insta::assert_snapshot!(error(r#"{"delay": 5, "input_length": 1, "output_length": 1, "session_id": "a"}"#), @r"
        t.jsonl:1: `timestamp` is missing: there is no turn before that a `delay` could follow
        hint: the first turn of a session has a timestamp, and later ones its `session_id`
        ");
        insta::assert_snapshot!(error(r#"{"delay": 5, "input_length": 1, "output_length": 1}"#), @r"
        t.jsonl:1: `timestamp` is missing: there is no turn before that a `delay` could follow
        hint: the first turn of a session has a timestamp, and later ones its `session_id`
        ");
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>, text in "[{}\\[\\]\":,a-z_0-9.eE-]{0,80}") {
            let _ = read(bytes.as_slice(), "x", &TraceOptions::default());
            let _ = trace(&text, &TraceOptions::default());
        }

        /// Keys against their definition, token by token: a hash block is its path of ids, a token is that block with
        /// an offset, an engine block is all tokens up to its end.
        #[test]
        fn keys_are_equal_where_tokens_are(
            prompts in vec((vec(0_u64..2, 1..5), 1_u32..=8), 1..8), block in 1_u32..20,
        ) {
            let input = |ids: &Vec<u64>, last: u32| (ids.len() as u32 - 1) * 8 + last;
            let line = |(ids, last): &(Vec<u64>, u32)| format!(
                "{{\"timestamp\":0,\"input_length\":{},\"output_length\":1,\"hash_ids\":{ids:?}}}\n", input(ids, *last));
            let text: String = prompts.iter().map(line).collect();
            let requests: Vec<Request> = trace(&text, &options(block, 8)).unwrap().requests.collect();
            let mut key_of: BTreeMap<(Vec<u64>, u32), u32> = BTreeMap::new();
            let mut meaning: BTreeMap<u32, (Vec<u64>, u32)> = BTreeMap::new();
            for ((ids, last), request) in prompts.iter().zip(&requests) {
                for (index, key) in request.content.keys().enumerate() {
                    let end = (index as u32 + 1) * block;
                    prop_assert!(end <= input(ids, *last));
                    let content = (ids[..end.div_ceil(8) as usize].to_vec(), end);
                    prop_assert_eq!(*key_of.entry(content.clone()).or_insert(key), key);
                    prop_assert_eq!(meaning.entry(key).or_insert(content.clone()), &content);
                }
            }
            // All shared prefixes of two prompts are found.
            for (a, (ids, last)) in prompts.iter().enumerate() {
                for (b, (other, other_last)) in prompts.iter().enumerate().filter(|&(b, _)| b != a) {
                    let common = ids.iter().zip(other).take_while(|(x, y)| x == y).count() as u32 * 8;
                    let common = common.min(input(ids, *last)).min(input(other, *other_last)) / block;
                    let [x, y] = [a, b].map(|at| requests[at].content.keys().take(common as usize).collect::<Vec<_>>());
                    prop_assert_eq!((x.len() as u32, &x), (common, &y));
                }
            }
        }
    }
}
