//! TraceV2, the trace format of BLIS: a YAML header ([`TraceHeader`]) and a CSV of requests.
//!
//! In a replay as recorded ("fixed"), every record arrives at its recorded time, sessions included. In closed loop
//! ([`ClosedLoop`]), the later rounds of a session follow the ends of earlier ones. The requests of a prefix group
//! start with the same tokens, as many as the group's first record says, and share nothing else. Columns are found by
//! name. Latencies, where they are wanted: from `send_time_us` (or `arrival_time_us`) to `first_chunk_time_us` and
//! `last_chunk_time_us`, of requests with the status `ok`.

use std::borrow::Cow;
use std::io::BufRead;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;

use blis_sim::ids::RequestId;
use blis_sim::request::{Name, Tags};
use rustc_hash::{FxHashMap, FxHashSet};

use super::error::TraceError;
use super::names::Names;
use super::prefix::{PathNode, ROOT, RunTree, SharedPrefixes, TooManyBlocks};
use super::records::Records;
use super::row::{RequestMetadata, TraceRow};
use super::rows::{Intake, Origin, SharedContents};
use super::{TraceOptions, Workload, field};
use blis_diag::RowError;

mod columns;
mod header;
mod sessions;
mod think_time;

pub use columns::{ADAPTER, BLOCK_KEYS, COLUMNS, CONNECT_TIME_US, MAX_TOKENS, VLLM_PRIORITY, keys_text};
use columns::{Fields, TraceColumn, TraceColumns};
pub use header::{
    GoodputTargets, Mode, ObservedKv, RecordedNetwork, RecordedServer, SessionGrowth, TraceHeader, read_header,
};
pub(super) use sessions::{Extra, Later};
pub use think_time::{ClosedLoop, ThinkTime};

/// Reads the CSV half of the TraceV2 trace with this `header`.
///
/// # Errors
/// See [`TraceError`].
pub fn read(
    data: impl BufRead,
    file: &str,
    header: &TraceHeader,
    options: &TraceOptions,
) -> Result<Workload, TraceError> {
    let file: Arc<str> = file.into();
    let mut intake = Intake::new(&file, options);
    let mut records = Records::new(data, &file);
    let mut extras = Vec::new();
    let mut replay = RecordReader::new(options);
    intake.aside.extend(header.aside());
    if records.advance()? {
        let first = TraceColumns::from_header(&records.record, options.block_size);
        let (columns, notes) = first.map_err(|fault| records.locate(fault))?;
        replay.contents = columns.has_block_keys().then(RunTree::new);
        intake.notes.extend(notes);
        while intake.wants_more() && records.advance()? {
            let read = columns.fields(&records.record).and_then(|fields| {
                let extra = options.closed_loop.is_some().then(|| Extra::from_fields(&fields)).transpose()?;
                intake.aside.extend(fields.aside()?);
                let times = intake.times(|| fields.times())?.flatten();
                Ok((extra, replay.row(&fields)?, times))
            });
            let Some((extra, row, times)) = intake.valid(read, |fault| records.locate(fault))? else { continue };
            extras.extend(extra);
            intake.add_measured(row, times);
        }
    }
    let shared = if let Some(contents) = replay.contents {
        let (prefixes, renumbered) = contents.finish().map_err(|_| intake.too_many("shared KV blocks"))?;
        SharedContents { prefixes, renumbered, block_size: None }
    } else {
        for &(row, group) in &replay.groups.early {
            intake.lengthen(row, replay.groups.groups[group as usize - 1].length)?;
        }
        intake.notes.extend(replay.groups.notes());
        replay.groups.shared(options.block_size).map_err(|_| intake.too_many("shared KV blocks"))?
    };
    let workload = match &options.closed_loop {
        None => intake.finish(Origin::Zero, shared, replay.names)?,
        Some(how) => {
            let later = Later::take(&mut intake.rows, &extras, &shared, &file, &replay.names)?;
            let first = intake.finish(Origin::Zero, shared, replay.names)?;
            later.follow(first, how, header.session_context_growth, options)
        }
    };
    Ok(Workload { slo_targets: header.goodput_slo_targets.clone(), ..workload })
}

/// The seed in the header at `path`; `None` if it cannot be read, which the reader of the trace reports.
#[must_use]
pub fn recorded_seed(path: &Path) -> Option<u64> {
    let header = read_header(blis_diag::open(path).ok()?, "").ok()?;
    // The two's complement of a negative seed, as in Go.
    header.workload_seed.map(|seed| seed as u64)
}

/// The state of the reading, which earlier records determine for later ones.
struct RecordReader {
    recorded_priority: bool,
    lengths_as_limits: bool,
    adapters_share_prefixes: bool,
    ids: FxHashSet<RequestId>,
    /// Block contents of traces that record which blocks are equal; groups are then only names.
    contents: Option<RunTree>,
    groups: Groups,
    names: Names,
}

/// Output limit, deadline, priority and names as recorded.
#[derive(Clone, Copy)]
struct TraceV2Metadata {
    max_output_tokens: Option<u32>,
    time_to_deadline: Option<i64>,
    client_priority: Option<i32>,
    tags: Tags,
    media_tokens: u32,
}

impl RequestMetadata for TraceV2Metadata {
    fn max_output_tokens(self) -> Option<u32> {
        self.max_output_tokens
    }
    fn time_to_deadline(self) -> Option<i64> {
        self.time_to_deadline
    }
    fn client_priority(self) -> Option<i32> {
        self.client_priority
    }
    fn tags(self) -> Tags {
        self.tags
    }
    fn media_tokens(self) -> u32 {
        self.media_tokens
    }
}

impl RecordReader {
    fn new(options: &TraceOptions) -> Self {
        Self {
            recorded_priority: options.recorded_priority,
            lengths_as_limits: options.lengths_as_limits,
            adapters_share_prefixes: options.adapters_share_prefixes,
            ids: FxHashSet::default(),
            contents: None,
            groups: Groups::default(),
            names: Names::default(),
        }
    }

    fn row(&mut self, fields: &Fields<'_>) -> Result<TraceRow<TraceV2Metadata>, RowError> {
        fields.check()?;
        let id = RequestId(fields.count(TraceColumn::RequestId)?);
        let (arrived, arrival) = (fields.time(TraceColumn::ArrivalTimeUs)?, fields.arrival_us()?);
        let deadline_us = fields.time(TraceColumn::DeadlineUs)?;
        if deadline_us > 0 && deadline_us < arrived {
            return Err(RowError::new(format!("`deadline_us` {deadline_us} is before `arrival_time_us` {arrived}")));
        }
        let own = fields.own_tokens()?;
        let tags = self.tags(fields)?;
        let group = self.content_group(fields)?;
        let client_priority = fields.vllm_priority()?.filter(|_| self.recorded_priority);
        let prefix_length = fields.count(TraceColumn::PrefixLength)?;
        let length = self.groups.length(&group, prefix_length);
        let input = field::fits_u32(u64::from(length) + u64::from(own), "prefix_length + input_tokens")?;
        let input = field::prompt_tokens(input, TraceColumn::InputTokens.name())?;
        let output = fields.count(TraceColumn::OutputTokens)?;
        let max_output_tokens = fields.max_tokens(Some(output).filter(|_| self.lengths_as_limits))?;
        let media = [TraceColumn::ImageTokens, TraceColumn::AudioTokens, TraceColumn::VideoTokens];
        let sum = |sum: u32, column| Ok::<_, RowError>(sum.saturating_add(fields.count(column)?));
        let media_tokens = media.into_iter().try_fold(0, sum)?;
        let keys = fields.block_keys(u64::from(input) + u64::from(output))?;
        if !self.ids.insert(id) {
            return Err(
                RowError::new(format!("`request_id` {id} is there already")).hint("every request needs its own")
            );
        }
        // Only now is the record known to be valid: a skipped one must not create a group.
        let prefix = match &mut self.contents {
            Some(contents) => contents.insert(keys).map_err(|_| too_many_blocks())?,
            None => self.groups.join(&group, prefix_length, self.ids.len() - 1),
        };
        // Both fit a signed integer, so their difference does.
        let time_to_deadline = (deadline_us > 0).then(|| deadline_us.cast_signed() - arrival.cast_signed());
        Ok(TraceRow {
            arrival,
            id,
            input,
            output,
            prefix,
            terms: TraceV2Metadata { max_output_tokens, time_to_deadline, client_priority, tags, media_tokens },
        })
    }

    /// The requests of a group have the same leading KV blocks: its name, and that of the adapter, because the adapter changes
    /// what is cached.
    fn content_group<'a>(&self, fields: &Fields<'a>) -> Result<Cow<'a, str>, RowError> {
        let (group, adapter) = (fields.text(TraceColumn::PrefixGroup)?, fields.adapter()?);
        let apart = !(group.is_empty() || adapter.is_empty() || self.adapters_share_prefixes);
        Ok(if apart { format!("{group}\0{adapter}").into() } else { group.into() })
    }

    fn tags(&mut self, fields: &Fields<'_>) -> Result<Tags, RowError> {
        let mut name = |column| -> Result<Name, RowError> { Ok(self.names.intern(fields.text(column)?)) };
        let tags = Tags {
            slo_class: name(TraceColumn::SloClass)?,
            tenant: name(TraceColumn::TenantId)?,
            session: name(TraceColumn::SessionId)?,
            model: name(TraceColumn::Model)?,
            client: name(TraceColumn::ClientId)?,
            prefix_group: name(TraceColumn::PrefixGroup)?,
            round_index: fields.count(TraceColumn::RoundIndex)?,
            adapter: Name::NONE,
        };
        let adapter = self.names.intern_adapter(fields.adapter()?, tags.model);
        Ok(Tags { adapter, ..tags })
    }
}

fn too_many_blocks() -> RowError {
    RowError::new("more than 4294967295 different KV blocks".to_owned()).hint("read fewer requests of it")
}

/// Prefix groups, in the order of appearance.
#[derive(Default)]
struct Groups {
    by_name: FxHashMap<Box<str>, PathNode>,
    groups: Vec<PrefixGroup>,
    /// Numbers of rows that were read before the length of their group was known.
    early: Vec<(usize, PathNode)>,
}

struct PrefixGroup {
    /// Length in tokens, from the first record with more than 0.
    length: u32,
    requests: u64,
    /// Another length that a later record has.
    disputed: Option<u32>,
}

impl Groups {
    /// The length of `group`'s prefix, tokens; `recorded` if no earlier record has it.
    fn length(&self, group: &str, recorded: u32) -> u32 {
        let known = self.by_name.get(group).map_or(0, |&node| self.groups[node as usize - 1].length);
        match known {
            _ if group.is_empty() => 0,
            0 => recorded,
            known => known,
        }
    }

    /// Adds a record to `group`. Nodes count from 1; [`ROOT`] is no group.
    fn join(&mut self, group: &str, recorded: u32, row: usize) -> PathNode {
        if group.is_empty() {
            return ROOT;
        }
        let node = match self.by_name.get(group) {
            Some(&node) => node,
            None => {
                self.groups.push(PrefixGroup { length: recorded, requests: 0, disputed: None });
                // There are no more groups than requests, which are numbered in 32 bits.
                let node = self.groups.len() as PathNode;
                self.by_name.insert(group.into(), node);
                node
            }
        };
        let group = &mut self.groups[node as usize - 1];
        group.requests += 1;
        if group.length == 0 {
            group.length = recorded;
        }
        if group.length == 0 {
            self.early.push((row, node));
        }
        if group.length != recorded {
            group.disputed.get_or_insert(recorded);
        }
        node
    }

    /// The full blocks of the prefix of every group with at least two requests.
    fn shared(&self, block_size: NonZeroU32) -> Result<SharedContents, TooManyBlocks> {
        let mut prefixes = SharedPrefixes::default();
        let mut renumbered = vec![ROOT];
        for group in &self.groups {
            let blocks = if group.requests > 1 { group.length / block_size } else { 0 };
            renumbered.push(if blocks > 0 { prefixes.add(ROOT, blocks)? } else { ROOT });
        }
        Ok(SharedContents { prefixes, renumbered, block_size: Some(block_size) })
    }

    fn notes(&self) -> Option<String> {
        let (length, other) = self.groups.iter().find_map(|group| Some((group.length, group.disputed?)))?;
        Some(format!(
            "records of one prefix group differ in prefix_length ({length} and {other}); the first that is not 0 counts"
        ))
    }
}

#[cfg(test)]
mod tests;
