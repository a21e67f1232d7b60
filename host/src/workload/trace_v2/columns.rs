//! The columns of a TraceV2 CSV: 27 that must be there, five that may.

use std::num::NonZeroU32;
use std::ops::Range;

use csv::ByteRecord;

use crate::workload::error::{Fault, nearest, quoted};
use crate::workload::field;

/// A column every trace has, and that is looked at here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Column {
    RequestId,
    ClientId,
    TenantId,
    SloClass,
    SessionId,
    RoundIndex,
    PrefixGroup,
    PrefixLength,
    Streaming,
    InputTokens,
    OutputTokens,
    TextTokens,
    ImageTokens,
    AudioTokens,
    VideoTokens,
    ReasonRatio,
    Model,
    DeadlineUs,
    ServerInputTokens,
    ArrivalTimeUs,
    SendTimeUs,
    FirstChunkTimeUs,
    LastChunkTimeUs,
    NumChunks,
}

/// All columns every trace has, in the order of the file and of [`Column`].
pub(crate) const COLUMNS: [&str; 27] = [
    "request_id",
    "client_id",
    "tenant_id",
    "slo_class",
    "session_id",
    "round_index",
    "prefix_group",
    "prefix_length",
    "streaming",
    "input_tokens",
    "output_tokens",
    "text_tokens",
    "image_tokens",
    "audio_tokens",
    "video_tokens",
    "reason_ratio",
    "model",
    "deadline_us",
    "server_input_tokens",
    "arrival_time_us",
    "send_time_us",
    "first_chunk_time_us",
    "last_chunk_time_us",
    "num_chunks",
    "status",
    "error_message",
    "finish_reason",
];

/// The instance priority a request asks for.
pub(crate) const VLLM_PRIORITY: &str = "vllm_priority";
/// With the tokens of a KV block behind it: which blocks may equal blocks of other requests, as runs of
/// keys, `first+count`. Only in traces of ours.
pub(crate) const BLOCK_KEYS: &str = "block_keys_";
const THINK_TIME_US: &str = "think_time_us";
const OPTIONAL: [&str; 5] = [VLLM_PRIORITY, "slo_target_us", "x_request_id", "adapter", THINK_TIME_US];

impl Column {
    pub fn name(self) -> &'static str {
        COLUMNS[self as usize]
    }
}

/// No prompt has more KV blocks.
const MOST_BLOCKS: u64 = 1 << 26;

/// Where the columns of one file are.
pub(super) struct Columns {
    at: [usize; COLUMNS.len()],
    vllm_priority: Option<usize>,
    think_time_us: Option<usize>,
    block_keys: Option<usize>,
    all: usize,
}

impl Columns {
    /// Reads the header row; notes say which columns mean nothing here.
    /// Block keys are of use for blocks of `block_size` tokens only.
    pub fn of(header: &ByteRecord, block_size: NonZeroU32) -> Result<(Self, Option<String>), Fault> {
        let keys = format!("{BLOCK_KEYS}{block_size}");
        let position = |name: &str| header.iter().position(|field| field.trim_ascii() == name.as_bytes());
        let unknown: Vec<String> = header
            .iter()
            .map(|field| String::from_utf8_lossy(field.trim_ascii()).into_owned())
            .filter(|name| !COLUMNS.contains(&name.as_str()) && !OPTIONAL.contains(&name.as_str()) && *name != keys)
            .collect();
        let mut at = [0; COLUMNS.len()];
        for (at, name) in at.iter_mut().zip(COLUMNS) {
            *at = position(name).ok_or_else(|| missing(name, &unknown))?;
        }
        let notes = unknown.iter().map(|name| match nearest(name, &OPTIONAL) {
            _ if name.starts_with(BLOCK_KEYS) => {
                format!("column `{name}` is for KV blocks of another size than {block_size} tokens and not read")
            }
            Some(known) => format!("column `{name}` is not known and not read; did you mean `{known}`?"),
            None => format!("column `{name}` is not known and not read"),
        });
        let notes: Vec<String> = notes.collect();
        let note = (!notes.is_empty()).then(|| notes.join("; "));
        let [vllm_priority, think_time_us, block_keys] = [VLLM_PRIORITY, THINK_TIME_US, &keys].map(position);
        Ok((Self { at, vllm_priority, think_time_us, block_keys, all: header.len() }, note))
    }

    /// Whether records say which of their blocks are equal.
    pub fn has_block_keys(&self) -> bool {
        self.block_keys.is_some()
    }

    /// The fields of a record that has all columns.
    pub fn fields<'a>(&'a self, record: &'a ByteRecord) -> Result<Fields<'a>, Fault> {
        if record.len() == self.all {
            Ok(Fields { record, columns: self })
        } else {
            Err(Fault::new(format!("{} fields where the header has {}", record.len(), self.all)))
        }
    }
}

fn missing(name: &str, unknown: &[String]) -> Fault {
    let fault = Fault::new(format!("there is no column `{name}`"));
    let unknown: Vec<&str> = unknown.iter().map(String::as_str).collect();
    match nearest(name, &unknown) {
        Some(near) => fault.hint(format!("rename `{near}`")),
        None => fault.hint(format!("a TraceV2 file has the {} columns {}", COLUMNS.len(), COLUMNS.join(","))),
    }
}

/// One record by column.
pub(super) struct Fields<'a> {
    record: &'a ByteRecord,
    columns: &'a Columns,
}

impl<'a> Fields<'a> {
    /// What a replay does not use must make sense nevertheless: if it does not, the file is not
    /// what it seems.
    pub fn check(&self) -> Result<(), Fault> {
        use Column::{AudioTokens, FirstChunkTimeUs, ImageTokens, LastChunkTimeUs, NumChunks, TextTokens, VideoTokens};
        for column in [TextTokens, ImageTokens, AudioTokens, VideoTokens, NumChunks] {
            self.count(column)?;
        }
        for column in [FirstChunkTimeUs, LastChunkTimeUs] {
            self.time(column)?;
        }
        self.think_time()?;
        let ratio = field::float(self.bytes(Column::ReasonRatio), Column::ReasonRatio.name())?;
        if !(0.0..=1.0).contains(&ratio) {
            return Err(Fault::new(format!("`reason_ratio` is {ratio}, not within 0 and 1")));
        }
        match self.bytes(Column::Streaming) {
            b"true" | b"True" | b"TRUE" | b"t" | b"T" | b"1" => Ok(()),
            b"false" | b"False" | b"FALSE" | b"f" | b"F" | b"0" => Ok(()),
            other => Err(Fault::new(format!("`streaming` is neither `true` nor `false`: {}", quoted(other)))),
        }
    }

    pub fn count(&self, column: Column) -> Result<u32, Fault> {
        field::count(self.bytes(column), column.name())
    }

    /// µs.
    pub fn time(&self, column: Column) -> Result<u64, Fault> {
        field::micros(self.bytes(column), column.name())
    }

    pub fn text(&self, column: Column) -> Result<&'a str, Fault> {
        let bytes = self.bytes(column);
        std::str::from_utf8(bytes)
            .map_err(|_| Fault::new(format!("`{}` is not UTF-8: {}", column.name(), quoted(bytes))))
    }

    /// The instance priority, where the trace has one.
    pub fn vllm_priority(&self) -> Result<Option<i32>, Fault> {
        let Some(bytes) = self.columns.vllm_priority.map(|at| self.record[at].trim_ascii()) else {
            return Ok(None);
        };
        if bytes.is_empty() {
            return Ok(None);
        }
        let value = std::str::from_utf8(bytes).ok().and_then(|text| text.parse().ok());
        let fault = || Fault::new(format!("`{VLLM_PRIORITY}` is not a 32-bit whole number: {}", quoted(bytes)));
        value.ok_or_else(fault).map(Some)
    }

    /// From the answer before to this prompt, µs; 0 where the trace says nothing of it.
    pub fn think_time(&self) -> Result<u64, Fault> {
        let bytes = self.columns.think_time_us.map(|at| self.record[at].trim_ascii());
        bytes.filter(|bytes| !bytes.is_empty()).map_or(Ok(0), |bytes| field::micros(bytes, THINK_TIME_US))
    }

    /// Keys of the leading blocks that may equal others, where the trace has them: runs. The request has
    /// `full_blocks`.
    pub fn block_keys(&self, full_blocks: u64) -> Result<Vec<Range<u32>>, Fault> {
        let Some(bytes) = self.columns.block_keys.map(|at| &self.record[at]) else { return Ok(Vec::new()) };
        let fault = || {
            Fault::new(format!("`{BLOCK_KEYS}…` is not a list of first+count: {}", quoted(bytes)))
                .hint("as in `0+9 120+4`")
        };
        let text = std::str::from_utf8(bytes).map_err(|_| fault())?;
        let mut runs = Vec::new();
        let mut blocks = 0;
        for run in text.split_ascii_whitespace() {
            let (first, count) = run.split_once('+').ok_or_else(fault)?;
            let (first, count): (u32, u32) = first.parse().ok().zip(count.parse().ok()).ok_or_else(fault)?;
            runs.push(first..first.checked_add(count).ok_or_else(fault)?);
            blocks += u64::from(count);
            if blocks > full_blocks.min(MOST_BLOCKS) {
                let most = full_blocks.min(MOST_BLOCKS);
                let what = format!("`{BLOCK_KEYS}…` names more blocks than the request can have, {most}");
                return Err(Fault::new(what).hint("only blocks that its tokens fill have keys"));
            }
        }
        Ok(runs)
    }

    fn bytes(&self, column: Column) -> &'a [u8] {
        &self.record[self.columns.at[column as usize]]
    }
}
