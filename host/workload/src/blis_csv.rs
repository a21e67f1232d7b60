//! The CSV of the first BLIS versions (`--workload traces`), which contains token ids.
//!
//! Columns by position, after one header row: arrival (s), request id (not used), model (not used), input tokens and
//! output tokens as JSON arrays. Requests share the KV blocks in which their tokens, input and output, are equal from
//! the start. There is no limit of output tokens and no deadline. Rows must be in order: reading stops at the first one
//! after the horizon.

use std::io::BufRead;
use std::sync::Arc;

use blis_sim::ids::RequestId;
use blis_sim::units::Micros;
use csv::ByteRecord;

use super::error::TraceError;
use super::names::Names;
use super::prefix::{PrefixTree, ROOT, TokenBlocks, TooManyBlocks};
use super::records::Records;
use super::row::{NoMetadata, TraceRow};
use super::rows::{Intake, Origin, SharedContents};
use super::{TraceOptions, Workload, field};
use blis_diag::{RowError, quoted};

/// Reads a BLIS CSV.
///
/// # Errors
/// See [`TraceError`].
pub fn read(input: impl BufRead, file: &str, options: &TraceOptions) -> Result<Workload, TraceError> {
    let file: Arc<str> = file.into();
    let mut intake = Intake::new(&file, options);
    let mut records = Records::new(input, &file);
    let mut contents = Contents::new(options);
    if records.advance()? && field::float(records.record.get(0).unwrap_or(&[]), "").is_ok() {
        intake.notes.push("the first row is taken for the header and not simulated".into());
    }
    let mut late = false;
    while !late && intake.wants_more() && records.advance()? {
        let id = intake.next_id()?;
        let row = row(&records.record, id, &mut contents.tokens);
        let Some(row) = intake.valid(row, |fault| records.locate(fault))? else { continue };
        late = options.window.is_whole() && row.arrival > options.horizon.0;
        let prefix = contents.path().map_err(|_| intake.too_many("shared KV blocks"))?;
        intake.add(TraceRow { prefix, ..row });
    }
    let (prefixes, renumbered) =
        contents.tree.finish(|depth| depth).map_err(|_| intake.too_many("shared KV blocks"))?;
    intake.finish(Origin::Zero, SharedContents { prefixes, renumbered, block_size: None }, Names::default())
}

/// Shared prefixes of token sequences.
struct Contents {
    /// Input and output tokens of the current row.
    tokens: Vec<u32>,
    block: usize,
    blocks: TokenBlocks,
    tree: PrefixTree,
}

impl Contents {
    fn new(options: &TraceOptions) -> Self {
        let block = options.block_size;
        let (blocks, tree) = (TokenBlocks::new(block), PrefixTree::new());
        Self { tokens: Vec::new(), block: block.get() as usize, blocks, tree }
    }

    fn path(&mut self) -> Result<u32, TooManyBlocks> {
        let blocks = self.tokens.chunks_exact(self.block).map(|block| self.blocks.intern(block));
        self.tree.insert(blocks.collect::<Result<Vec<u64>, _>>()?)
    }
}

/// Parses a row; its input and output tokens are left in `tokens`.
fn row(record: &ByteRecord, id: RequestId, tokens: &mut Vec<u32>) -> Result<TraceRow, RowError> {
    const COLUMNS: usize = 5;
    if record.len() < COLUMNS {
        let fault = RowError::new(format!("{} fields, at least {COLUMNS} are needed", record.len()));
        return Err(fault.hint("columns are arrival_time, request_id, model, prefill_tokens, decode_tokens"));
    }
    let seconds = field::float(&record[0], "arrival_time")?;
    if seconds < 0.0 {
        return Err(RowError::new(format!("`arrival_time` is negative: {}", quoted(&record[0]))));
    }
    let arrival = Micros::from_secs_f64(seconds);
    if arrival == Micros::MAX {
        return Err(RowError::new(format!("`arrival_time` is too large: {}", quoted(&record[0]))));
    }
    tokens.clear();
    token_array(&record[3], "prefill_tokens", tokens)?;
    let input = field::fits_u32(tokens.len() as u64, "number of prefill_tokens")?;
    field::prompt_tokens(input, "number of prefill_tokens")?;
    token_array(&record[4], "decode_tokens", tokens)?;
    let output = field::fits_u32((tokens.len() - input as usize) as u64, "number of decode_tokens")?;
    Ok(TraceRow { arrival: arrival.0, id, input, output, prefix: ROOT, terms: NoMetadata })
}

/// Appends the numbers of a JSON array.
fn token_array(text: &[u8], name: &str, tokens: &mut Vec<u32>) -> Result<(), RowError> {
    let inner = text.trim_ascii().strip_prefix(b"[").and_then(|rest| rest.strip_suffix(b"]"));
    let Some(inner) = inner else {
        let fault = RowError::new(format!("`{name}` is not a JSON array: {}", quoted(text)));
        return Err(fault.hint("write it as \"[1, 2, 3]\", in quotation marks"));
    };
    if inner.trim_ascii().is_empty() {
        return Ok(());
    }
    for token in inner.split(|&byte| byte == b',') {
        tokens.push(field::count(token, name)?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use blis_sim::request::{Request, Span};
    use proptest::collection::vec;
    use proptest::prelude::*;
    use std::num::NonZeroU32;

    const HEADER: &str = "arrival_time,request_id,model,prefill_tokens,decode_tokens\n";

    fn options(block: u32) -> TraceOptions {
        TraceOptions { block_size: NonZeroU32::new(block).unwrap(), ..TraceOptions::default() }
    }

    fn trace(rows: &str, options: &TraceOptions) -> Result<Workload, TraceError> {
        read(format!("{HEADER}{rows}").as_bytes(), "t.csv", options)
    }

    #[test]
    fn equal_tokens_share_blocks_through_the_output() {
        let rows = "0.1,a,m,\"[1,2,3]\",\"[4,5]\"\r\n0.2,b,m,\"[1,2,3,4,5,6]\",\"[7]\",more\n\
                    0.30000001,c,m,\"[ 9, 2 ]\",[]\n";
        let workload = trace(rows, &options(2)).unwrap();
        let requests: Vec<Request> = workload.requests.collect();
        let seen: Vec<_> = requests.iter().map(|r| (r.id.0, r.arrival.0, r.input_tokens, r.output_tokens)).collect();
        assert_eq!(seen, [(0, 100_000, 3, 2), (1, 200_000, 6, 1), (2, 300_000, 2, 0)]);
        let spans: Vec<_> = requests.iter().map(|r| r.content.spans()).collect();
        let shared = [Span { first: 0, len: 2 }];
        assert_eq!(spans, [&shared[..], &shared[..], &[]]);
        assert_eq!((requests[0].max_output_tokens, requests[0].deadline), (None, None));
    }

    #[test]
    fn reading_stops_at_the_horizon() {
        let rows = "0,a,m,[1],[1]\n2,b,m,[1],[1]\nthis row is not reached\n";
        let workload = trace(rows, &TraceOptions { horizon: Micros(1_000_000), ..options(16) }).unwrap();
        assert_eq!(workload.count, Some(1));
    }

    #[test]
    fn errors_say_where() {
        let error = |rows: &str| trace(rows, &options(16)).unwrap_err().to_string();
        insta::assert_snapshot!(error("0,a,m,[1]\n"), @r"
        t.csv:2: 4 fields, at least 5 are needed
        hint: columns are arrival_time, request_id, model, prefill_tokens, decode_tokens
        ");
        insta::assert_snapshot!(error("0,a,m,[1],[]\nnan,a,m,[1],[]\n"), @"t.csv:3: `arrival_time` is not finite: `nan`");
        insta::assert_snapshot!(error("-1,a,m,[1],[]\n"), @"t.csv:2: `arrival_time` is negative: `-1`");
        insta::assert_snapshot!(error("0,a,m,[],[1]\n"), @"t.csv:2: `number of prefill_tokens` is 0: a prompt has at least one token");
        insta::assert_snapshot!(error("0,a,m,\"[1,-2]\",[1]\n"), @"t.csv:2: `prefill_tokens` is negative: `-2`");
        insta::assert_snapshot!(error("0,a,m,\"[1,]\",[1]\n"), @"t.csv:2: `prefill_tokens` is empty");
        insta::assert_snapshot!(error("0,a,m,12,[1]\n"), @r#"
        t.csv:2: `prefill_tokens` is not a JSON array: `12`
        hint: write it as "[1, 2, 3]", in quotation marks
        "#);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>, row in "[0-9.,\"\\[\\] a-]{0,60}") {
            let _ = read(bytes.as_slice(), "x", &options(3));
            let _ = trace(&row, &options(3));
        }

        /// Keys against their definition: equal ⇔ equal tokens in the block and all before it.
        #[test]
        fn keys_are_equal_where_tokens_are(all in vec((vec(0_u32..2, 1..7), vec(0_u32..2, 0..4)), 1..10), block in 1_u32..4) {
            let rows: String = all.iter().map(|(p, d)| format!("0,r,m,\"{p:?}\",\"{d:?}\"\n")).collect();
            let requests: Vec<Request> = trace(&rows, &options(block)).unwrap().requests.collect();
            let keys: Vec<Vec<u32>> = requests.iter().map(|r| r.content.keys().collect()).collect();
            let tokens: Vec<Vec<u32>> = all.into_iter().map(|(p, d)| [p, d].concat()).collect();
            for (a, x) in tokens.iter().enumerate() {
                for end in (block as usize..=x.len()).step_by(block as usize) {
                    let at = end / block as usize - 1;
                    let twins = (0..tokens.len()).filter(|&b| b != a && tokens[b].get(..end) == Some(&x[..end]));
                    let twins: Vec<_> = twins.map(|b| keys[b].get(at)).collect();
                    prop_assert_eq!(keys[a].get(at).is_some(), !twins.is_empty());
                    prop_assert!(twins.iter().all(|key| *key == keys[a].get(at)));
                }
            }
        }
    }
}
