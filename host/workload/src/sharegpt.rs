//! Conversations in ShareGPT's form: a JSON list, or JSON lines, of objects with `conversations`, each a list of turns
//! with `from` and `value`.
//!
//! As in vLLM's and SGLang's benchmarks, the first two turns of a conversation are a request: prompt and output. Later
//! turns are counted in a note. The files have texts and no tokens: lengths are estimated by [`BYTES_PER_TOKEN`]. They
//! have no times either: arrivals are drawn at a rate ([`TraceOptions::arrivals`]).

use std::fmt;
use std::io::BufRead;
use std::sync::Arc;

use serde::de::{self, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::drawn_arrivals::ArrivalClock;
use super::error::TraceError;
use super::format::TraceFormat;
use super::json::{Documents, deserialize_by_kind};
use super::names::Names;
use super::prefix::ROOT;
use super::row::{NoMetadata, TraceRow};
use super::rows::{Intake, Origin, SharedContents, counted};
use super::{TraceOptions, Workload};
use blis_diag::RowError;

/// Bytes of UTF-8 text that count as one token: English prose has about four characters per token in the vocabularies of
/// GPT and Llama (<https://help.openai.com/en/articles/4936856>), each of one byte. Code and other languages differ.
pub const BYTES_PER_TOKEN: u64 = 4;

/// Reads conversations.
///
/// # Errors
/// See [`TraceError`].
pub fn read(input: impl BufRead, file: &str, options: &TraceOptions) -> Result<Workload, TraceError> {
    let file: Arc<str> = file.into();
    let mut intake = Intake::new(&file, options);
    let mut clock = ArrivalClock::new(options.arrivals, &file, TraceFormat::ShareGpt)?;
    let mut documents: Documents<_, ConversationList> = Documents::new(input, &file);
    let (mut short, mut later) = (0_u64, 0_u64);
    while let Some(document) = if intake.wants_more() { documents.next()? } else { None } {
        for conversation in document.0 {
            let id = intake.next_id()?;
            let ShortConversation { prompt, output, turns } = conversation;
            later += turns.saturating_sub(2);
            match (prompt, output) {
                (Some(prompt), Some(output)) if prompt > 0 && output > 0 => {
                    if intake.wants_more() {
                        let at = |fault: RowError| fault.at(&file, documents.line());
                        let lengths = tokens(prompt).and_then(|input| Ok((input, tokens(output)?)));
                        match lengths.map_err(at) {
                            Ok((input, output)) => {
                                let arrival = clock.tick();
                                intake.add(TraceRow { arrival, id, input, output, prefix: ROOT, terms: NoMetadata });
                            }
                            Err(fault) => intake.bad(fault)?,
                        }
                    }
                }
                _ => short += 1,
            }
        }
    }
    intake.notes.push(format!("lengths are estimated: a token per {BYTES_PER_TOKEN} bytes of UTF-8 text"));
    intake.notes.push(clock.note());
    if short > 0 {
        intake.notes.push(format!("{} without two turns of text left out", counted(short, "conversation")));
    }
    if later > 0 {
        let turns = counted(later, "later turn");
        intake.notes.push(format!("{turns} left out: the first two of each conversation are prompt and output"));
    }
    intake.finish(Origin::Zero, SharedContents::default(), Names::default())
}

fn tokens(bytes: u64) -> Result<u32, RowError> {
    let tokens = bytes.div_ceil(BYTES_PER_TOKEN);
    u32::try_from(tokens).map_err(|_| RowError::new(format!("a text of {bytes} bytes is too long")))
}

/// The conversations of a document: a list of them, or one.
struct ConversationList(Vec<ShortConversation>);

impl<'de> Deserialize<'de> for ConversationList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OneOrMore;
        impl<'de> Visitor<'de> for OneOrMore {
            type Value = ConversationList;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of conversations, or one with the key `conversations`")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<ConversationList, A::Error> {
                let mut all = Vec::new();
                while let Some(ListedConversation(conversation)) = items.next_element()? {
                    all.push(conversation);
                }
                Ok(ConversationList(all))
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ConversationList, A::Error> {
                Ok(ConversationList(vec![ShortConversation::read(map)?]))
            }
        }
        deserializer.deserialize_any(OneOrMore)
    }
}

/// What is kept of a conversation: lengths of its first two texts, bytes.
#[derive(Clone, Copy, Debug, Default)]
struct ShortConversation {
    prompt: Option<u64>,
    output: Option<u64>,
    turns: u64,
}

impl ShortConversation {
    fn read<'de, A: MapAccess<'de>>(mut map: A) -> Result<Self, A::Error> {
        let mut found: Option<TextTurns> = None;
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "conversations" | "conversation" if found.is_some() => {
                    return Err(de::Error::custom(format_args!("duplicate field `{key}`")));
                }
                "conversations" | "conversation" => found = Some(map.next_value()?),
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        found.map(|TextTurns(turns)| turns).ok_or_else(|| de::Error::missing_field("conversations"))
    }
}

/// A conversation: an object with turns among other keys.
struct ListedConversation(ShortConversation);

impl<'de> Deserialize<'de> for ListedConversation {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ConversationKeys;
        impl<'de> Visitor<'de> for ConversationKeys {
            type Value = ListedConversation;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a conversation: an object with the key `conversations`")
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ListedConversation, A::Error> {
                ShortConversation::read(map).map(ListedConversation)
            }
        }
        deserializer.deserialize_map(ConversationKeys)
    }
}

/// The turns of a conversation.
struct TextTurns(ShortConversation);

impl<'de> Deserialize<'de> for TextTurns {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TurnList;
        impl<'de> Visitor<'de> for TurnList {
            type Value = TextTurns;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of turns, each with `from` and `value`")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<TextTurns, A::Error> {
                let mut kept = ShortConversation::default();
                while let Some(TextTurn { value: TextBytes(bytes) }) = items.next_element()? {
                    match kept.turns {
                        0 => kept.prompt = Some(bytes),
                        1 => kept.output = Some(bytes),
                        _ => {}
                    }
                    kept.turns += 1;
                }
                Ok(TextTurns(kept))
            }
        }
        deserializer.deserialize_seq(TurnList)
    }
}

#[derive(Deserialize)]
struct TextTurn {
    #[serde(alias = "content", alias = "text")]
    value: TextBytes,
}

/// The length of a text; 0 for null.
struct TextBytes(u64);

deserialize_by_kind!(TextBytes, "a text", deserialize_any, {
    visit_str(text: &str) => Ok(TextBytes(text.len() as u64)),
    visit_unit() => Ok(TextBytes(0)),
});

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DrawnArrivals;
    use crate::distribution::ArrivalProcess;
    use proptest::prelude::*;

    fn options() -> TraceOptions {
        let arrivals = Some(DrawnArrivals { rate: 1.0, process: ArrivalProcess::Constant, seed: 1 });
        TraceOptions { arrivals, ..TraceOptions::default() }
    }

    fn trace(text: &str) -> Result<Workload, TraceError> {
        read(text.as_bytes(), "s.json", &options())
    }

    const TWO: &str = r#"[{"id": "a", "conversations": [{"from": "human", "value": "Hello there"},
        {"from": "gpt", "value": "Hi"}, {"from": "human", "value": "And?"}]},
        {"id": "b", "conversations": []}, {"id": "c", "conversations": [{"from": "human", "value": "äöü日本"},
        {"from": "gpt", "value": "12345678"}]}]"#;

    #[test]
    fn the_first_two_turns_are_a_request() {
        let workload = trace(TWO).unwrap();
        assert_eq!(
            workload.notes,
            [
                "lengths are estimated: a token per 4 bytes of UTF-8 text",
                "arrivals are not recorded: constant inter-arrival times, 1 requests per second (`--rate`)",
                "1 conversation without two turns of text left out",
                "1 later turn left out: the first two of each conversation are prompt and output",
            ]
        );
        let all: Vec<_> = workload.requests.map(|r| (r.id.0, r.arrival.0, r.input_tokens, r.output_tokens)).collect();
        assert_eq!(all, [(0, 1_000_000, 3, 1), (2, 2_000_000, 3, 2)]);
    }

    #[test]
    fn lines_are_read_like_a_list() {
        let lines = r#"{"conversations": [{"from": "human", "value": "Hello"}, {"from": "gpt", "value": "Hi"}]}"#;
        assert_eq!(trace(&format!("{lines}\n{lines}\n")).unwrap().count, Some(2));
    }

    #[test]
    fn what_is_wrong_is_located() {
        let errors = ["[{\"id\": 1}]", "[{\"conversations\": [{\"value\": 5}]}]", "[\n[]]", "[]", &TWO[..60]]
            .map(|text| format!("{text}\n{}\n", trace(text).unwrap_err()));
        let no_rate = read(TWO.as_bytes(), "s.json", &TraceOptions::default()).unwrap_err();
        insta::assert_snapshot!(format!("{}\n{no_rate}", errors.join("\n")));
    }

    proptest! {
        #[test]
        fn lengths_are_bytes_over_four(texts in prop::collection::vec(("\\PC{1,40}", "\\PC{1,40}"), 1..10)) {
            let list: Vec<_> = texts.iter().map(|(prompt, output)| serde_json::json!({
                "conversations": [{"from": "human", "value": prompt}, {"from": "gpt", "value": output}]
            })).collect();
            let read: Vec<_> = trace(&serde_json::Value::from(list).to_string()).unwrap()
                .requests.map(|request| (request.input_tokens as usize, request.output_tokens as usize)).collect();
            let expected: Vec<_> =
                texts.iter().map(|(prompt, output)| (prompt.len().div_ceil(4), output.len().div_ceil(4))).collect();
            prop_assert_eq!(read, expected);
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>, inner in "[\\[\\]{}\":,a-z0-9 ]{0,60}") {
            let _ = read(bytes.as_slice(), "x", &options());
            let _ = trace(&format!("[{{\"conversations\": [{inner}]}}]"));
        }
    }
}
