//! Captures of vllm-vcr: JSONL, at most one line with `meta`, then one request per line.
//!
//! A request arrives at `arrival_ms`; `prompt_tokens` and `output_tokens` are its lengths. Its `block_hashes` are
//! chained: each stands for a block and all blocks before it. They cover full blocks of `meta.block_size` tokens (16 if
//! it is missing).

use std::borrow::Cow;
use std::io::BufRead;
use std::num::NonZeroU32;
use std::sync::Arc;

use blis_sim::ids::RequestId;
use rustc_hash::FxHashMap;
use serde::Deserialize;

use super::error::TraceError;
use super::hashed::HashedPrompts;
use super::json::{self, Label, MILLISECOND, Number, need};
use super::names::Names;
use super::prefix::ROOT;
use super::row::{NamedMetadata, TraceRow};
use super::rows::{Intake, Origin};
use super::{TraceOptions, Workload};
use blis_diag::LineReader;
use blis_diag::RowError;

const HASH_BLOCK_TOKENS: NonZeroU32 = NonZeroU32::new(16).expect("16 > 0");

/// Reads a capture of vllm-vcr.
///
/// # Errors
/// See [`TraceError`].
pub fn read(input: impl BufRead, file: &str, options: &TraceOptions) -> Result<Workload, TraceError> {
    let file: Arc<str> = file.into();
    let mut intake = Intake::new(&file, options);
    let mut lines = LineReader::new(input, &file);
    let mut prompts = HashedPrompts::new(options, HASH_BLOCK_TOKENS);
    let (mut hashes, mut scratch) = (BlockHashes::default(), Vec::new());
    while intake.wants_more() && lines.advance()? {
        let record: Result<VcrRecord<'_>, _> = json::object(lines.text(), &mut scratch);
        if record.is_err() {
            intake.next_id()?;
        }
        let Some(record) = intake.valid(record, |fault| lines.locate(fault))? else { continue };
        if let Some(meta) = &record.meta {
            let block = meta.block_size.map(block_size).transpose();
            let block = block.map_err(|fault| lines.locate(fault))?;
            prompts.hash_block = options.hash_block_size.or(block).unwrap_or(prompts.hash_block);
            intake.measured_with(meta.model.as_deref());
            continue;
        }
        let id = intake.next_id()?;
        let row = row(&record, &prompts, id);
        let Some(row) = intake.valid(row, |fault| lines.locate(fault))? else { continue };
        let path = hashes.numbers(&record.block_hashes);
        let prefix = prompts.insert(&path, row.input, &intake)?;
        intake.add(TraceRow { prefix, ..row });
    }
    let shared = prompts.finish(&mut intake, options.block_size)?;
    intake.finish(Origin::FirstArrival, shared, Names::default())
}

#[derive(Deserialize)]
struct VcrRecord<'a> {
    #[serde(borrow, default)]
    meta: Option<Meta<'a>>,
    prompt_tokens: Option<Number>,
    output_tokens: Option<Number>,
    arrival_ms: Option<Number>,
    #[serde(borrow, default)]
    block_hashes: Vec<Label<'a>>,
}

#[derive(Deserialize)]
struct Meta<'a> {
    #[serde(borrow, default)]
    model: Option<Cow<'a, str>>,
    block_size: Option<Number>,
}

fn block_size(size: Number) -> Result<NonZeroU32, RowError> {
    NonZeroU32::new(size.count("block_size")?).ok_or_else(|| RowError::new("`block_size` is 0"))
}

fn row(record: &VcrRecord<'_>, prompts: &HashedPrompts, id: RequestId) -> Result<TraceRow<NamedMetadata>, RowError> {
    let arrival = need(record.arrival_ms, "arrival_ms")?.micros("arrival_ms", MILLISECOND)?;
    let input = need(record.prompt_tokens, "prompt_tokens")?.prompt("prompt_tokens")?;
    let output = need(record.output_tokens, "output_tokens")?.count("output_tokens")?;
    prompts.check(record.block_hashes.len(), input, "block_hashes")?;
    Ok(TraceRow { arrival, id, input, output, prefix: ROOT, terms: NamedMetadata::default() })
}

/// Maps hashes to numbers. Hashes are integers of any length or hexadecimal text: only their equality matters.
#[derive(Default)]
struct BlockHashes(FxHashMap<Box<str>, u64>);

impl BlockHashes {
    fn numbers(&mut self, hashes: &[Label<'_>]) -> Vec<u64> {
        let number = |Label(hash): &Label<'_>| match self.0.get(hash.as_ref()) {
            Some(&number) => number,
            None => {
                let number = self.0.len() as u64;
                self.0.insert(hash.as_ref().into(), number);
                number
            }
        };
        hashes.iter().map(number).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn trace(text: &str) -> Result<Workload, TraceError> {
        read(text.as_bytes(), "v.jsonl", &TraceOptions::default())
    }

    const TEXT: &str = r#"{"meta": {"model": "m", "gpu": "H100", "block_size": 32, "source": "x"}}
{"prompt_tokens": 100, "cached_tokens": 0, "output_tokens": 3, "ttft_ms": 20.5, "itl_ms": [10, 11], "arrival_ms": 1000.25, "block_hashes": ["0xa", "0xb", "0xc"], "finish_reason": "stop"}
{"prompt_tokens": 70, "output_tokens": 4, "arrival_ms": 1001, "block_hashes": ["0xa", "0xb"]}
{"prompt_tokens": 70, "output_tokens": 4, "arrival_ms": 1002, "block_hashes": [18446744073709551615, -5]}
"#;

    #[test]
    fn blocks_of_the_capture_become_blocks_of_the_engine() {
        let workload = trace(TEXT).unwrap();
        assert_eq!(workload.notes, ["recorded with `m`"]);
        let seen: Vec<_> =
            workload.requests.map(|r| (r.id.0, r.arrival.0, r.input_tokens, r.content.shared_blocks())).collect();
        assert_eq!(seen, [(0, 0, 100, 4), (1, 750, 70, 4), (2, 1750, 70, 0)]);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>, at: usize, byte: u8) {
            let _ = read(bytes.as_slice(), "x", &TraceOptions::default());
            let mut text = TEXT.as_bytes().to_vec();
            text[at % TEXT.len()] = byte;
            let _ = read(text.as_slice(), "x", &TraceOptions::default());
        }
    }
}
