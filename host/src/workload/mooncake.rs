//! Mooncake traces: JSONL of arrival (ms), lengths, and a hash id per 512 tokens of the prompt.
//!
//! ```text
//! {"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47, 2353, …]}
//! ```
//! Fields that AIPerf and dynamo add: `session_id` is kept, and turns of a session are counted;
//! `delay` is not needed where every turn has its timestamp. <https://github.com/kvcache-ai/Mooncake>

use std::io::BufRead;
use std::num::NonZeroU32;
use std::sync::Arc;

use blis_sim::request::Name;
use rustc_hash::FxHashMap;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::error::{Fault, TraceError};
use super::hashed::HashedPrompts;
use super::input::Lines;
use super::json::{self, Label, MILLISECOND, Number, need};
use super::names::Names;
use super::prefix::ROOT;
use super::rows::{Intake, Origin, Row, Said};
use super::{TraceOptions, Workload};

/// Tokens per hash id in the published traces.
pub const HASH_BLOCK_TOKENS: NonZeroU32 = NonZeroU32::new(512).expect("512 > 0");

/// Reads a Mooncake trace.
///
/// # Errors
/// Whatever [`TraceError`] lists.
pub fn read(input: impl BufRead, file: &str, options: &TraceOptions) -> Result<Workload, TraceError> {
    let file: Arc<str> = file.into();
    let mut intake = Intake::new(&file, options);
    let mut lines = Lines::new(input, &file);
    let mut prompts = HashedPrompts::new(options, HASH_BLOCK_TOKENS);
    let (mut names, mut turns) = (Names::default(), FxHashMap::<Name, u32>::default());
    let (mut stamps, mut scratch) = (Stamps::default(), Vec::new());
    while intake.wants_more() && lines.advance()? {
        let id = intake.next_id()?;
        let (record, mut row) = match parse(lines.text(), &mut scratch, &prompts, id) {
            Ok(read) => read,
            Err(fault) => {
                intake.bad(lines.locate(fault))?;
                continue;
            }
        };
        row.prefix = prompts.insert(&record.hash_ids, row.input, &intake)?;
        if let Some(Label(name)) = &record.session_id {
            row.terms.tags.session = names.intern(name);
            let turn = turns.entry(row.terms.tags.session).or_default();
            row.terms.tags.round_index = *turn;
            *turn += 1;
        }
        stamps.add(row, record.delay.is_some());
        intake.add(row);
    }
    intake.notes.extend(stamps.notes());
    let shared = prompts.finish(&mut intake, options.block_size)?;
    intake.finish(Origin::FirstArrival, shared, names)
}

#[derive(Deserialize)]
struct Record<'a> {
    /// ms.
    timestamp: Option<Number>,
    input_length: Option<Number>,
    output_length: Option<Number>,
    #[serde(default)]
    hash_ids: Vec<u64>,
    #[serde(borrow, default)]
    session_id: Option<Label<'a>>,
    #[serde(default)]
    delay: Option<IgnoredAny>,
    #[serde(default)]
    text_input: Option<IgnoredAny>,
}

fn parse<'a>(
    line: &'a [u8],
    scratch: &'a mut Vec<u8>,
    prompts: &HashedPrompts,
    id: u32,
) -> Result<(Record<'a>, Row<Said>), Fault> {
    let record: Record<'_> = json::object(line, scratch)?;
    let arrival = match (record.timestamp, &record.delay) {
        (Some(ms), _) => ms.micros("timestamp", MILLISECOND)?,
        (None, Some(_)) => {
            let fault = Fault::new("`timestamp` is missing: the turn has only a `delay` after the one before it");
            return Err(fault.hint("such sessions need closed-loop replay; give every turn a timestamp for this one"));
        }
        (None, None) => return Err(Fault::new("`timestamp` is missing")),
    };
    let input = match (record.input_length, &record.text_input) {
        (None, Some(_)) => {
            let fault = Fault::new("`input_length` is missing: only the text is given");
            return Err(fault.hint("count its tokens with the model's tokenizer first"));
        }
        (length, _) => need(length, "input_length")?.prompt("input_length")?,
    };
    let output = need(record.output_length, "output_length")?.count("output_length")?;
    prompts.check(record.hash_ids.len(), input, "hash_ids")?;
    Ok((record, Row { arrival, id, input, output, prefix: ROOT, terms: Said::default() }))
}

/// What is odd about the rows, for the notes.
#[derive(Default)]
struct Stamps {
    rows: u64,
    distinct: u64,
    last: Option<u64>,
    first: Option<u64>,
    delays: u64,
}

impl Stamps {
    fn add(&mut self, row: Row<Said>, delayed: bool) {
        self.rows += 1;
        self.distinct += u64::from(self.last != Some(row.arrival));
        self.last = Some(row.arrival);
        self.first = Some(self.first.map_or(row.arrival, |first| first.min(row.arrival)));
        self.delays += u64::from(delayed);
    }

    fn notes(&self) -> impl Iterator<Item = String> {
        let Self { rows, distinct, delays, .. } = *self;
        let shift = self.first.filter(|&first| first > 0);
        let shift = shift.map(|us| format!("the trace starts at {} ms; time 0 is its first arrival", us as f64 / 1e3));
        let bins = (distinct.saturating_mul(4) < rows).then(|| {
            format!(
                "{rows} requests arrive at {distinct} instants: waiting times at those instants are an artefact; \
                 `--spread-bins` spreads them"
            )
        });
        let delays = (delays > 0).then(|| "`delay` is not used: every turn arrives at its timestamp".to_owned());
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
        t.jsonl:1: `timestamp` is missing: the turn has only a `delay` after the one before it
        hint: such sessions need closed-loop replay; give every turn a timestamp for this one
        ");
        insta::assert_snapshot!(error(r#"{"timestamp": 0, "input_length": 32, "output_length": 1, "hash_ids": [1, 2]}"#), @r"
        t.jsonl:1: 2 `hash_ids`, but 32 tokens are 1 blocks of 512
        hint: set the hash block size to that of the trace (Mooncake 512, Bailian 16)
        ");
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>, text in "[{}\\[\\]\":,a-z_0-9.eE-]{0,80}") {
            let _ = read(bytes.as_slice(), "x", &TraceOptions::default());
            let _ = trace(&text, &TraceOptions::default());
        }

        /// Keys against what they mean, token by token: a hash block is its path of ids, a token
        /// is that and an offset, an engine block is all tokens up to its end.
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
            // Nothing that two prompts have in common is missed.
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
