//! The columns of a TraceV2 CSV: 27 that must be there, five that may.

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
const NAMES: [&str; 27] = [
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

const VLLM_PRIORITY: &str = "vllm_priority";
const THINK_TIME_US: &str = "think_time_us";
const OPTIONAL: [&str; 5] = [VLLM_PRIORITY, "slo_target_us", "x_request_id", "adapter", THINK_TIME_US];

impl Column {
    pub fn name(self) -> &'static str {
        NAMES[self as usize]
    }
}

/// Where the columns of one file are.
pub(super) struct Columns {
    at: [usize; NAMES.len()],
    vllm_priority: Option<usize>,
    think_time_us: Option<usize>,
    all: usize,
}

impl Columns {
    /// Reads the header row; notes say which columns mean nothing here.
    pub fn of(header: &ByteRecord) -> Result<(Self, Option<String>), Fault> {
        let position = |name: &str| header.iter().position(|field| field.trim_ascii() == name.as_bytes());
        let unknown: Vec<String> = header
            .iter()
            .map(|field| String::from_utf8_lossy(field.trim_ascii()).into_owned())
            .filter(|name| !NAMES.contains(&name.as_str()) && !OPTIONAL.contains(&name.as_str()))
            .collect();
        let mut at = [0; NAMES.len()];
        for (at, name) in at.iter_mut().zip(NAMES) {
            *at = position(name).ok_or_else(|| missing(name, &unknown))?;
        }
        let notes = unknown.iter().map(|name| match nearest(name, &OPTIONAL) {
            Some(known) => format!("column `{name}` is not known and not read; did you mean `{known}`?"),
            None => format!("column `{name}` is not known and not read"),
        });
        let notes: Vec<String> = notes.collect();
        let note = (!notes.is_empty()).then(|| notes.join("; "));
        let [vllm_priority, think_time_us] = [VLLM_PRIORITY, THINK_TIME_US].map(position);
        Ok((Self { at, vllm_priority, think_time_us, all: header.len() }, note))
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
        None => fault.hint(format!("a TraceV2 file has the {} columns {}", NAMES.len(), NAMES.join(","))),
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

    fn bytes(&self, column: Column) -> &'a [u8] {
        &self.record[self.columns.at[column as usize]]
    }
}
