//! Writes a workload as a trace, request by request, in one of several formats.
//!
//! Properties that the format cannot represent are left out and reported afterwards ([`Lost`]).

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::num::NonZeroU32;

use blis_diag::{Diagnose, Diagnostic};
use blis_sim::request::{Name, Request, Tags};

use super::trace_v2::{ADAPTER, BLOCK_KEYS, COLUMNS, MAX_TOKENS, keys_text};
use super::{Names, Workload};
use blis_sim::request::session_text;

mod tokens;

use tokens::{Tokens, hash_ids};

/// A trace format that can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::EnumMessage, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub enum TargetFormat {
    /// BLIS: a header and a CSV, with prefix groups
    // The CSV; see [`TRACE_V2_HEADER`] for the other half.
    TraceV2,
    /// Mooncake: JSON lines with hash ids
    Mooncake,
    /// BLIS: token ids, equal where contents are equal
    BlisCsv,
    /// Azure: timestamps and lengths only
    Azure,
}

/// Properties of a workload that a format cannot represent. Ordered, for messages.
pub type Lost = BTreeSet<&'static str>;

/// The YAML half of a TraceV2 trace.
pub const TRACE_V2_HEADER: &str = "trace_version: 3\ntime_unit: microseconds\nmode: generated\n";

const TRACE_V2_PRIORITY: &str = "slo_class,vllm_priority,";

/// Why a workload could not be written.
#[derive(Debug, thiserror::Error)]
#[error("{}", self.diagnostic())]
pub enum WriteError {
    /// The file could not be written.
    Io(#[from] io::Error),
    /// There are more distinct contents than 32-bit token ids.
    TooManyTokens,
    /// An arrival in a year that needs more than four digits.
    TooLate,
}

impl Diagnose for WriteError {
    fn diagnostic(&self) -> Diagnostic {
        match self {
            Self::Io(error) => Diagnostic::new(error.to_string()),
            Self::TooManyTokens => Diagnostic::new("more distinct KV blocks than token ids")
                .hint("convert fewer requests with `--max-requests`"),
            Self::TooLate => {
                Diagnostic::new("a request arrives after the year 9999").hint("convert a part with `--duration`")
            }
        }
    }
}

impl TargetFormat {
    /// Tokens of the KV blocks in which this format represents shared prefixes, if the workload is read for it.
    #[must_use]
    pub fn block_size(self) -> NonZeroU32 {
        match self {
            // Blocks of one token, because a prefix group may have any length.
            Self::TraceV2 => NonZeroU32::MIN,
            Self::Mooncake => super::mooncake::HASH_BLOCK_TOKENS,
            Self::BlisCsv | Self::Azure => NonZeroU32::new(16).unwrap_or(NonZeroU32::MIN),
        }
    }

    /// Writes `workload`, which has KV blocks of `block_size` tokens; returns the number of requests, and the properties
    /// that were left out.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub fn write(
        self,
        workload: Workload,
        block_size: NonZeroU32,
        out: &mut impl Write,
    ) -> Result<(u64, Lost), WriteError> {
        let Workload { requests, names, slo_targets, aside, .. } = workload;
        let mut lost: Lost = aside;
        if !slo_targets.is_empty() {
            lost.insert("latency targets");
        }
        let mut tokens = Tokens::new(block_size);
        match self {
            Self::TraceV2 => {
                let columns = COLUMNS.join(",").replace("slo_class,", TRACE_V2_PRIORITY);
                let adapter = if names.adapters().next().is_some() { format!("{ADAPTER},") } else { String::new() };
                writeln!(out, "{columns},{adapter}{MAX_TOKENS},{BLOCK_KEYS}{block_size}")?;
            }
            Self::Mooncake => {}
            Self::BlisCsv => writeln!(out, "arrival_time,request_id,model,prefill_tokens,decode_tokens")?,
            Self::Azure => writeln!(out, "TIMESTAMP,ContextTokens,GeneratedTokens")?,
        }
        let mut count = 0;
        for request in requests {
            self.note_lost(&request, block_size, count, &mut lost);
            match self {
                Self::TraceV2 => trace_v2(&request, &names, out)?,
                Self::Mooncake => mooncake(&request, &names, block_size, &mut tokens, out)?,
                Self::BlisCsv => blis_csv(&request, &names, &mut tokens, out)?,
                Self::Azure => {
                    let (prompt, output) = (request.input_tokens, request.output_tokens);
                    let time = timestamp(request.arrival.0).ok_or(WriteError::TooLate)?;
                    writeln!(out, "{time},{prompt},{output}")?;
                }
            }
            count += 1;
        }
        out.flush()?;
        Ok((count, lost))
    }

    /// Records the properties of `request`, number `index`, that are left out.
    fn note_lost(self, request: &Request, block_size: NonZeroU32, index: u64, lost: &mut Lost) {
        let Tags { slo_class, tenant, session, model, client, prefix_group, round_index: _, adapter } = request.tags;
        let shared = u64::from(request.content.shared_blocks()) * u64::from(block_size.get());
        let prompt_shared = shared.min(u64::from(request.input_tokens));
        let (v2, hashes, ids) = (self == Self::TraceV2, self == Self::Mooncake, self == Self::BlisCsv);
        let mut note = |kept: bool, there: bool, what| {
            if there && !kept {
                lost.insert(what);
            }
        };
        note(hashes || ids || v2, prompt_shared > 0, "shared prefixes of prompts");
        note(ids || v2, shared > prompt_shared, "outputs in the prompts of later rounds");
        note(v2, prefix_group != Name::NONE, "names of prefix groups");
        note(v2 || hashes, session != Name::NONE, "sessions");
        note(v2, slo_class != Name::NONE, "service classes");
        note(v2, tenant != Name::NONE, "tenants");
        note(v2 || ids, model != Name::NONE, "models");
        note(v2, client != Name::NONE, "clients");
        note(v2, adapter != Name::NONE, "adapters");
        note(v2, request.deadline.is_some(), "deadlines");
        note(v2, request.client_priority.is_some(), "priorities");
        note(v2, request.max_output_tokens.is_some(), "budgets");
        note(v2, u64::from(request.id.0) != index, "numbers of requests");
        note(
            !matches!(self, Self::Azure | Self::Mooncake),
            index == 0 && request.arrival.0 > 0,
            "the time before the first arrival",
        );
    }
}

fn trace_v2(request: &Request, names: &Names, out: &mut impl Write) -> io::Result<()> {
    let Tags { slo_class, tenant, session, model, client, prefix_group, round_index, adapter } = request.tags;
    let [class, tenant, model, client, group, adapter] =
        [slo_class, tenant, model, client, prefix_group, adapter].map(|name| field(names.text(name)));
    // The column is there if any request names an adapter.
    let adapter = if names.adapters().next().is_some() { format!("{adapter},") } else { String::new() };
    let session = field(&session_text(names.texts(), session)).into_owned();
    // A block is a token here.
    let prefix = if prefix_group == Name::NONE { 0 } else { request.content.shared_blocks().min(request.input_tokens) };
    let own = request.input_tokens - prefix;
    let priority = request.client_priority.map_or(String::new(), |priority| priority.to_string());
    let deadline = request.deadline.map_or(0, |deadline| deadline.0.max(request.arrival.0).max(1));
    let budget = request.max_output_tokens.map_or(String::new(), |tokens| tokens.to_string());
    let keys = keys_text(&request.content);
    let (id, output, arrival) = (request.id, request.output_tokens, request.arrival.0);
    writeln!(
        out,
        "{id},{client},{tenant},{class},{priority},{session},{round_index},{group},{prefix},false,{own},{output},\
         0,0,0,0,0,{model},{deadline},0,{arrival},0,0,0,0,,,,{adapter}{budget},{keys}"
    )
}

fn mooncake(
    request: &Request,
    names: &Names,
    block_size: NonZeroU32,
    tokens: &mut Tokens,
    out: &mut impl Write,
) -> io::Result<()> {
    let (input, output) = (request.input_tokens, request.output_tokens);
    let (ms, us) = (request.arrival.0 / 1_000, request.arrival.0 % 1_000);
    write!(out, "{{\"timestamp\": {ms}")?;
    if us > 0 {
        write!(out, ".{us:03}")?;
    }
    write!(out, ", \"input_length\": {input}, \"output_length\": {output}, \"hash_ids\": [")?;
    for (index, id) in hash_ids(request, block_size, tokens).enumerate() {
        write!(out, "{}{id}", if index > 0 { ", " } else { "" })?;
    }
    write!(out, "]")?;
    let session = session_text(names.texts(), request.tags.session);
    if !session.is_empty() {
        write!(out, ", \"session_id\": {}", serde_json::Value::String(session.into_owned()))?;
    }
    writeln!(out, "}}")
}

fn blis_csv(request: &Request, names: &Names, tokens: &mut Tokens, out: &mut impl Write) -> Result<(), WriteError> {
    let mut all = tokens.prompt(request).ok_or(WriteError::TooManyTokens)?;
    let (seconds, us) = (request.arrival.0 / 1_000_000, request.arrival.0 % 1_000_000);
    let model = field(names.text(request.tags.model));
    // Half a µs more, because readers cut off the digits that a float cannot hold.
    write!(out, "{seconds}.{us:06}5,request_{},{model},", request.id)?;
    for (count, end) in [(request.input_tokens, ","), (request.output_tokens, "\n")] {
        write!(out, "\"[")?;
        for (index, token) in all.by_ref().take(count as usize).enumerate() {
            write!(out, "{}{token}", if index > 0 { "," } else { "" })?;
        }
        write!(out, "]\"{end}")?;
    }
    Ok(())
}

/// A field of a CSV, quoted if necessary.
fn field(text: &str) -> std::borrow::Cow<'_, str> {
    if text.contains(['"', ',', '\n', '\r']) || text.trim() != text {
        format!("\"{}\"", text.replace('"', "\"\"")).into()
    } else {
        text.into()
    }
}

/// µs from the start of 2023, in Azure's notation; `None` after the year 9999.
fn timestamp(us: u64) -> Option<String> {
    let (days, rest) = (us / 86_400_000_000, us % 86_400_000_000);
    let (seconds, fraction) = (rest / 1_000_000, rest % 1_000_000);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    let text = format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{fraction:06}0");
    (year <= 9_999).then_some(text)
}

/// Year, month and day of the given number of days after 2023-01-01.
fn civil(mut days: u64) -> (u64, usize, u64) {
    let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let mut year = 2023;
    // Any 400 consecutive years have the same number of days.
    year += days / 146_097 * 400;
    days %= 146_097;
    while days >= 365 + u64::from(leap(year)) {
        days -= 365 + u64::from(leap(year));
        year += 1;
    }
    let lengths = [31, 28 + u64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while days >= lengths[month] {
        days -= lengths[month];
        month += 1;
    }
    (year, month + 1, days + 1)
}

#[cfg(test)]
mod tests;
