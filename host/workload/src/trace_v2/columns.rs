//! The columns of a TraceV2 CSV: 27 mandatory ones, and eight optional ones.

use std::fmt::Write as _;
use std::num::NonZeroU32;
use std::ops::Range;

use blis_sim::request::Content;
use csv::ByteRecord;
use strum::VariantNames as _;

use crate::field;
use crate::recorded::RecordedTimes;
use blis_diag::{RowError, nearest, quoted};

/// A mandatory column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::VariantNames)]
#[strum(serialize_all = "snake_case")]
#[expect(dead_code, reason = "the last ones are not read")]
pub(super) enum TraceColumn {
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
    Status,
    ErrorMessage,
    FinishReason,
}

/// The mandatory columns, in the order of the file.
pub const COLUMNS: &[&str] = TraceColumn::VARIANTS;

/// The priority of a request on its instance.
pub const VLLM_PRIORITY: &str = "vllm_priority";
/// Prefix of a column name, followed by the tokens of a KV block. The column contains the blocks that may equal blocks
/// of other requests, as runs of keys, `first+count`. Only in traces of this program.
pub const BLOCK_KEYS: &str = "block_keys_";
/// The client's limit of output tokens, empty for none. Only in traces of this program; in others, the limit is the
/// output length.
pub const MAX_TOKENS: &str = "max_tokens";
const THINK_TIME_US: &str = "think_time_us";
/// The LoRA adapter that the request names, empty for the base model.
pub const ADAPTER: &str = "adapter";
/// Time to open the connection of the request, µs; empty if an open one was used. Only in traces of this program, and no
/// simulation uses it.
pub const CONNECT_TIME_US: &str = "connect_time_us";
const OPTIONAL: [&str; 7] =
    [VLLM_PRIORITY, "slo_target_us", "x_request_id", ADAPTER, THINK_TIME_US, MAX_TOKENS, CONNECT_TIME_US];

impl TraceColumn {
    pub fn name(self) -> &'static str {
        COLUMNS[self as usize]
    }
}

/// No prompt has more KV blocks.
const MOST_BLOCKS: u64 = 1 << 26;

/// Indices of the columns of one file.
pub(super) struct TraceColumns {
    at: [usize; COLUMNS.len()],
    vllm_priority: Option<usize>,
    think_time_us: Option<usize>,
    max_tokens: Option<usize>,
    adapter: Option<usize>,
    block_keys: Option<BlockKeys>,
    all: usize,
}

/// The column that contains which blocks are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BlockKeys {
    at: usize,
    /// Tokens per block of the column.
    tokens: u32,
    scale: Scale,
}

/// Conversion from the blocks of the column to those of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scale {
    /// Each is divided into so many engine blocks.
    Split(u32),
    /// So many are one engine block.
    Join(u32),
}

impl BlockKeys {
    /// The column of `header` with blocks that equal, divide or are divided by blocks of `block_size` tokens.
    fn find(header: &ByteRecord, block_size: NonZeroU32) -> Option<Self> {
        let wanted = block_size.get();
        let scales = header.iter().enumerate().filter_map(|(at, field)| {
            let tokens = std::str::from_utf8(field.trim_ascii()).ok()?.strip_prefix(BLOCK_KEYS)?;
            let tokens: u32 = tokens.parse().ok().filter(|&tokens| tokens > 0)?;
            let scale = match (tokens % wanted, wanted % tokens) {
                (0, _) => Scale::Split(tokens / wanted),
                (_, 0) => Scale::Join(wanted / tokens),
                _ => return None,
            };
            Some(Self { at, tokens, scale })
        });
        scales.min_by_key(|keys| match keys.scale {
            Scale::Split(ours) | Scale::Join(ours) => ours,
        })
    }
}

impl Scale {
    /// The same contents in engine blocks. `None` if 32 bits are too few for their keys.
    fn ours(self, runs: Vec<Range<u32>>) -> Option<Vec<Range<u32>>> {
        match self {
            Self::Split(1) | Self::Join(1) => Some(runs),
            Self::Split(each) => {
                let wider = |run: Range<u32>| Some(run.start.checked_mul(each)?..run.end.checked_mul(each)?);
                runs.into_iter().map(wider).collect()
            }
            // A key stands for everything up to its block, so the key of the last joined block stands for the engine
            // block.
            Self::Join(each) => {
                let last = runs.into_iter().flatten().skip(each as usize - 1).step_by(each as usize);
                Some(last.map(|key| key..key.saturating_add(1)).collect())
            }
        }
    }
}

impl TraceColumns {
    /// Reads the header row, for engine blocks of `block_size` tokens; the note lists columns that are not used.
    pub fn from_header(header: &ByteRecord, block_size: NonZeroU32) -> Result<(Self, Option<String>), RowError> {
        let block_keys = BlockKeys::find(header, block_size);
        let position = |name: &str| header.iter().position(|field| field.trim_ascii() == name.as_bytes());
        let unknown: Vec<String> = header
            .iter()
            .map(|field| String::from_utf8_lossy(field.trim_ascii()).into_owned())
            .filter(|name| !COLUMNS.contains(&name.as_str()) && !OPTIONAL.contains(&name.as_str()))
            .filter(|name| block_keys.is_none() || !name.starts_with(BLOCK_KEYS))
            .collect();
        let mut at = [0; COLUMNS.len()];
        for (at, name) in at.iter_mut().zip(COLUMNS) {
            *at = position(name).ok_or_else(|| missing(name, &unknown))?;
        }
        let notes = unknown.iter().map(|name| match nearest(name, &OPTIONAL) {
            _ if name.starts_with(BLOCK_KEYS) => {
                format!(
                    "column `{name}` is not read, so that no prompts have anything in common: blocks of {block_size} \
                     tokens are no multiple of its, nor the other way round"
                )
            }
            Some(known) => format!("column `{name}` is not known and not read; did you mean `{known}`?"),
            None => format!("column `{name}` is not known and not read"),
        });
        let notes: Vec<String> = notes.collect();
        let note = (!notes.is_empty()).then(|| notes.join("; "));
        let [vllm_priority, think_time_us, max_tokens, adapter] =
            [VLLM_PRIORITY, THINK_TIME_US, MAX_TOKENS, ADAPTER].map(position);
        Ok((Self { at, vllm_priority, think_time_us, max_tokens, adapter, block_keys, all: header.len() }, note))
    }

    /// Whether records contain which of their blocks are equal.
    pub fn has_block_keys(&self) -> bool {
        self.block_keys.is_some()
    }

    /// The fields of a record, which must have all columns.
    pub fn fields<'a>(&'a self, record: &'a ByteRecord) -> Result<Fields<'a>, RowError> {
        if record.len() == self.all {
            Ok(Fields { record, columns: self })
        } else {
            Err(RowError::new(format!("{} fields where the header has {}", record.len(), self.all)))
        }
    }
}

fn missing(name: &str, unknown: &[String]) -> RowError {
    let fault = RowError::new(format!("there is no column `{name}`"));
    let unknown: Vec<&str> = unknown.iter().map(String::as_str).collect();
    match nearest(name, &unknown) {
        Some(near) => fault.hint(format!("rename `{near}`")),
        None => fault.hint(format!("a TraceV2 file has the {} columns {}", COLUMNS.len(), COLUMNS.join(","))),
    }
}

/// The fields of one record, by column.
pub(super) struct Fields<'a> {
    record: &'a ByteRecord,
    columns: &'a TraceColumns,
}

impl<'a> Fields<'a> {
    /// Checks the columns that a replay does not use: an invalid one means that the file is not a TraceV2 trace.
    pub fn check(&self) -> Result<(), RowError> {
        use TraceColumn::{
            AudioTokens, FirstChunkTimeUs, ImageTokens, LastChunkTimeUs, NumChunks, TextTokens, VideoTokens,
        };
        for column in [TextTokens, ImageTokens, AudioTokens, VideoTokens, NumChunks] {
            self.count(column)?;
        }
        for column in [FirstChunkTimeUs, LastChunkTimeUs] {
            self.time(column)?;
        }
        self.think_time()?;
        let ratio = field::float(self.bytes(TraceColumn::ReasonRatio), TraceColumn::ReasonRatio.name())?;
        if !(0.0..=1.0).contains(&ratio) {
            return Err(RowError::new(format!("`reason_ratio` is {ratio}, not within 0 and 1")));
        }
        match self.bytes(TraceColumn::Streaming) {
            b"true" | b"True" | b"TRUE" | b"t" | b"T" | b"1" => Ok(()),
            b"false" | b"False" | b"FALSE" | b"f" | b"F" | b"0" => Ok(()),
            other => Err(RowError::new(format!("`streaming` is neither `true` nor `false`: {}", quoted(other)))),
        }
    }

    pub fn count(&self, column: TraceColumn) -> Result<u32, RowError> {
        field::count(self.bytes(column), column.name())
    }

    /// The time at which it was sent, if known, else of its arrival, µs on the clock of the trace.
    pub fn arrival_us(&self) -> Result<u64, RowError> {
        match self.time(TraceColumn::SendTimeUs)? {
            0 => self.time(TraceColumn::ArrivalTimeUs),
            sent => Ok(sent),
        }
    }

    /// Tokens of the prompt, without those of a prefix group.
    pub fn own_tokens(&self) -> Result<u32, RowError> {
        match self.count(TraceColumn::ServerInputTokens)? {
            counted if counted > 0 && self.text(TraceColumn::PrefixGroup)?.is_empty() => Ok(counted),
            _ => self.count(TraceColumn::InputTokens),
        }
    }

    /// The measured latencies; `None` for a request that did not complete or was not sent.
    pub fn times(&self) -> Result<Option<RecordedTimes>, RowError> {
        let completed = matches!(self.bytes(TraceColumn::Status).trim_ascii(), b"" | b"ok" | b"completed");
        let sent = self.arrival_us()?;
        let (first, last) = (self.time(TraceColumn::FirstChunkTimeUs)?, self.time(TraceColumn::LastChunkTimeUs)?);
        if !completed || first == 0 || last == 0 {
            return Ok(None);
        }
        let since = |at: u64| at as f64 - sent as f64;
        let times = RecordedTimes::new(since(first), since(last));
        let fault =
            || RowError::new(format!("sent at {sent} µs, first chunk at {first}, last at {last}: not in order"));
        times.ok_or_else(fault).map(Some)
    }

    /// The properties of this record that no simulation uses.
    pub fn aside(&self) -> Result<impl Iterator<Item = &'static str> + use<>, RowError> {
        use TraceColumn::{AudioTokens, ImageTokens, ReasonRatio, TextTokens, VideoTokens};
        let mut parts = false;
        for column in [TextTokens, ImageTokens, AudioTokens, VideoTokens] {
            parts |= self.count(column)? > 0;
        }
        let reasons = field::float(self.bytes(ReasonRatio), ReasonRatio.name())? > 0.0;
        let unused = [
            (parts, "the parts of prompts: text, images, audio and video"),
            (reasons, "the share of reasoning in outputs"),
            (self.think_time()? > 0, "think times"),
        ];
        Ok(unused.into_iter().filter_map(|(there, what)| there.then_some(what)))
    }

    /// The time in a column, µs.
    pub fn time(&self, column: TraceColumn) -> Result<u64, RowError> {
        field::micros(self.bytes(column), column.name())
    }

    pub fn text(&self, column: TraceColumn) -> Result<&'a str, RowError> {
        text(self.bytes(column), column.name())
    }

    /// The LoRA adapter; empty for the base model, and without the column.
    pub fn adapter(&self) -> Result<&'a str, RowError> {
        self.columns.adapter.map_or(Ok(""), |at| text(self.record[at].trim_ascii(), ADAPTER))
    }

    /// The priority on the instance, if the trace has one.
    pub fn vllm_priority(&self) -> Result<Option<i32>, RowError> {
        let Some(bytes) = self.columns.vllm_priority.map(|at| self.record[at].trim_ascii()) else {
            return Ok(None);
        };
        if bytes.is_empty() {
            return Ok(None);
        }
        let value = std::str::from_utf8(bytes).ok().and_then(|text| text.parse().ok());
        let fault = || RowError::new(format!("`{VLLM_PRIORITY}` is not a 32-bit whole number: {}", quoted(bytes)));
        value.ok_or_else(fault).map(Some)
    }

    /// The client's limit of output tokens, from its column; `otherwise` without the column.
    pub fn max_tokens(&self, otherwise: Option<u32>) -> Result<Option<u32>, RowError> {
        let Some(bytes) = self.columns.max_tokens.map(|at| self.record[at].trim_ascii()) else {
            return Ok(otherwise);
        };
        if bytes.is_empty() { Ok(None) } else { field::count(bytes, MAX_TOKENS).map(Some) }
    }

    /// Think time before this prompt, µs; 0 if the trace has none.
    pub fn think_time(&self) -> Result<u64, RowError> {
        let bytes = self.columns.think_time_us.map(|at| self.record[at].trim_ascii());
        bytes.filter(|bytes| !bytes.is_empty()).map_or(Ok(0), |bytes| field::micros(bytes, THINK_TIME_US))
    }

    /// Runs of keys of the leading blocks that may equal others, if the trace has them. The request has `all_tokens`,
    /// output included.
    pub fn block_keys(&self, all_tokens: u64) -> Result<Vec<Range<u32>>, RowError> {
        let Some(BlockKeys { at, tokens, scale }) = self.columns.block_keys else { return Ok(Vec::new()) };
        let (bytes, full_blocks) = (&self.record[at], all_tokens / u64::from(tokens));
        let fault = || {
            RowError::new(format!("`{BLOCK_KEYS}…` is not a list of first+count: {}", quoted(bytes)))
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
                return Err(RowError::new(what).hint("only blocks that its tokens fill have keys"));
            }
        }
        let too_many =
            || RowError::new("more than 4294967295 different KV blocks".to_owned()).hint("read larger blocks");
        scale.ours(runs).ok_or_else(too_many)
    }

    fn bytes(&self, column: TraceColumn) -> &'a [u8] {
        &self.record[self.columns.at[column as usize]]
    }
}

fn text<'a>(bytes: &'a [u8], column: &str) -> Result<&'a str, RowError> {
    std::str::from_utf8(bytes).map_err(|_| RowError::new(format!("`{column}` is not UTF-8: {}", quoted(bytes))))
}

/// The content of a column [`BLOCK_KEYS`].
pub fn keys_text(content: &Content) -> String {
    let mut text = String::new();
    for span in content.spans().iter().filter(|span| span.len > 0) {
        let separator = if text.is_empty() { "" } else { " " };
        let _ = write!(text, "{separator}{}+{}", span.first, span.len);
    }
    text
}
