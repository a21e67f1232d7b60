//! Alibaba Bailian (Qwen) traces: JSONL with arrival (s), lengths, one hash id per 16 tokens, and chats.
//!
//! ```text
//! {"chat_id": 7, "parent_chat_id": 3, "timestamp": 61.114, "input_length": 521, "output_length": 132,
//!  "type": "text", "turn": 2, "hash_ids": [1089, 1090, …]}
//! ```
//! A request follows the one that `parent_chat_id` refers to (−1: none). The session is the first request of that
//! chain; `type` becomes the client. <https://github.com/alibaba-edu/qwen-bailian-usagetraces-anon>

use std::borrow::Cow;
use std::io::BufRead;
use std::num::NonZeroU32;
use std::sync::Arc;

use blis_sim::ids::RequestId;
use blis_sim::request::{Name, Tags};
use rustc_hash::FxHashMap;
use serde::Deserialize;

use super::error::TraceError;
use super::hashed::HashedPrompts;
use super::json::{self, Label, Number, SECOND, need};
use super::names::Names;
use super::prefix::ROOT;
use super::row::{NamedMetadata, TraceRow};
use super::rows::{Intake, Origin, counted};
use super::{TraceOptions, Workload};
use blis_diag::LineReader;
use blis_diag::RowError;

/// Tokens per hash id in the published traces.
pub const HASH_BLOCK_TOKENS: NonZeroU32 = NonZeroU32::new(16).expect("16 > 0");

/// Reads a Bailian trace.
///
/// # Errors
/// See [`TraceError`].
pub fn read(input: impl BufRead, file: &str, options: &TraceOptions) -> Result<Workload, TraceError> {
    let file: Arc<str> = file.into();
    let mut intake = Intake::new(&file, options);
    let mut lines = LineReader::new(input, &file);
    let mut prompts = HashedPrompts::new(options, HASH_BLOCK_TOKENS);
    let mut chats = Chats::default();
    let mut scratch = Vec::new();
    while intake.wants_more() && lines.advance()? {
        let id = intake.next_id()?;
        let parsed = json::object(lines.text(), &mut scratch).and_then(|record: BailianRecord<'_>| {
            let row = row(&record, &prompts, id)?;
            Ok((record, row))
        });
        let Some((record, mut row)) = intake.valid(parsed, |fault| lines.locate(fault))? else { continue };
        row.prefix = prompts.insert(&record.hash_ids, row.input, &intake)?;
        row.terms.tags = chats.tags(&record, row.terms.tags.round_index);
        intake.add(row);
    }
    if chats.orphans > 0 {
        let orphans = chats.orphans;
        intake
            .notes
            .push(format!("{} after one that is not in the trace: there its chat starts", counted(orphans, "request")));
    }
    let shared = prompts.finish(&mut intake, options.block_size)?;
    intake.finish(Origin::FirstArrival, shared, chats.names)
}

#[derive(Deserialize)]
struct BailianRecord<'a> {
    #[serde(borrow)]
    chat_id: Option<Label<'a>>,
    #[serde(borrow, default)]
    parent_chat_id: Option<Label<'a>>,
    /// Time of arrival, s from the start of the trace.
    timestamp: Option<Number>,
    input_length: Option<Number>,
    output_length: Option<Number>,
    #[serde(borrow, default, rename = "type")]
    kind: Option<Cow<'a, str>>,
    /// Number of the round in its session, from 1.
    turn: Option<Number>,
    #[serde(default)]
    hash_ids: Vec<u64>,
}

fn row(
    record: &BailianRecord<'_>,
    prompts: &HashedPrompts,
    id: RequestId,
) -> Result<TraceRow<NamedMetadata>, RowError> {
    need(record.chat_id.as_ref(), "chat_id")?;
    let arrival = need(record.timestamp, "timestamp")?.micros("timestamp", SECOND)?;
    let input = need(record.input_length, "input_length")?.prompt("input_length")?;
    let output = need(record.output_length, "output_length")?.count("output_length")?;
    let turn = record.turn.map_or(Ok(1), |turn| turn.count("turn"))?;
    prompts.check(record.hash_ids.len(), input, "hash_ids")?;
    let tags = Tags { round_index: turn.saturating_sub(1), ..Tags::default() };
    Ok(TraceRow { arrival, id, input, output, prefix: ROOT, terms: NamedMetadata { tags, max_output_tokens: None } })
}

/// The chats of all requests so far.
#[derive(Default)]
struct Chats {
    names: Names,
    /// The session of each request so far.
    sessions: FxHashMap<Box<str>, Name>,
    orphans: u64,
}

impl Chats {
    fn tags(&mut self, record: &BailianRecord<'_>, round_index: u32) -> Tags {
        let own = record.chat_id.as_ref().map_or("", |Label(id)| id);
        let parent = record.parent_chat_id.as_ref().map_or("-1", |Label(id)| id);
        let session = match self.sessions.get(parent) {
            _ if matches!(parent, "-1" | "") => self.names.intern(own),
            Some(&session) => session,
            None => {
                self.orphans += 1;
                self.names.intern(parent)
            }
        };
        self.sessions.insert(own.into(), session);
        let client = self.names.intern(record.kind.as_deref().unwrap_or(""));
        Tags { session, client, round_index, ..Tags::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use blis_sim::request::Request;
    use proptest::prelude::*;

    fn trace(text: &str) -> Result<Workload, TraceError> {
        read(text.as_bytes(), "b.jsonl", &TraceOptions::default())
    }

    #[test]
    fn turns_of_a_chat_share_a_session_and_their_blocks() {
        let text = r#"{"chat_id": 5, "parent_chat_id": -1, "timestamp": 1.5, "input_length": 33, "output_length": 7, "type": "text", "turn": 1, "hash_ids": [1, 2, 3]}
{"chat_id": 9, "parent_chat_id": -1, "timestamp": 1.75, "input_length": 16, "output_length": 1, "type": "search", "turn": 1, "hash_ids": [9]}
{"chat_id": 6, "parent_chat_id": 5, "timestamp": "2", "input_length": 5e1, "output_length": 0, "type": "text", "turn": 2, "hash_ids": [1, 2, 4, 5]}
{"chat_id": 7, "parent_chat_id": 4, "timestamp": 3.000001, "input_length": 8, "output_length": 2, "turn": 3}"#;
        let workload = trace(text).unwrap();
        assert_eq!(workload.notes, ["1 request after one that is not in the trace: there its chat starts"]);
        let names = workload.names;
        let all: Vec<Request> = workload.requests.collect();
        let seen = all.iter().map(|r| {
            let tags = r.tags;
            (
                r.arrival.0,
                names.text(tags.session),
                tags.round_index,
                names.text(tags.client),
                r.content.shared_blocks(),
            )
        });
        let expected = [
            (0, "5", 0, "text", 2),
            (250_000, "9", 0, "search", 0),
            (500_000, "5", 1, "text", 2),
            (1_500_001, "4", 2, "", 0),
        ];
        assert_eq!(seen.collect::<Vec<_>>(), expected);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>, text in "[{}\\[\\]\":,a-z_0-9.eE-]{0,80}") {
            let _ = read(bytes.as_slice(), "x", &TraceOptions::default());
            let _ = trace(&text);
        }
    }
}
