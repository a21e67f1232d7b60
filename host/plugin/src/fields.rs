//! Inputs of policies from named values: requests, instances, queued requests, running batches and steps, for the
//! fixture files of `blis plugin test` and for the test functions of scripts.
//!
//! The names are those of `sdk/rhai/README.md`. A field that is not set has a default: 0, no deadline, no limit, the
//! empty text, and what the fields below say.

use blis_abi::{Field, Layout as _};
use blis_sim::ids::{InstanceIndex, RequestId};
use blis_sim::policy::{ClientTargets, InstanceInfo, Signals};
use blis_sim::request::{Content, Name, Request, Span, Tags};
use blis_sim::units::Micros;

pub(crate) use self::value::{FieldError, FieldValue, NameTable, real, whole};
use self::value::{LATEST_US, list, share, time, word, wrong};
use crate::rows::RequestRow;

pub(crate) mod rows;
mod value;

/// The KV blocks of an instance, unless a fixture sets them.
const TOTAL_KV_BLOCKS: u32 = 20_000;
/// The maximum batch size of an instance, unless a fixture sets it.
const MAX_NUM_SEQS: u32 = 256;
/// The size of a KV block, unless a fixture sets it.
const BLOCK_SIZE: u32 = 16;

/// A request from named fields.
#[derive(Clone, Debug)]
pub(crate) struct NamedRequest {
    /// What is set of it, but for the prompt.
    pub row: RequestRow,
    /// The request, once it is complete.
    pub request: Request,
    /// Time of the decision; by default that of the arrival.
    pub now: Option<Micros>,
    input_tokens: Option<u32>,
    prompt_blocks: Option<u32>,
    shared_blocks: Option<u32>,
    blocks: Vec<u32>,
}

/// The names of the fields of a request: those of its row but for what the host sets, and others.
fn request_names() -> Vec<&'static str> {
    let own = RequestRow::FIELDS.iter().filter(|field| !matches!(field.name, "adapter" | "stage"));
    own.flat_map(Field::names).chain(["prompt_tokens", "max_tokens", "blocks", "name"]).collect()
}

impl NamedRequest {
    /// Request `id`, of one token.
    pub fn new(id: RequestId) -> Self {
        Self {
            row: RequestRow { id: id.0, block_size: BLOCK_SIZE, ..RequestRow::default() },
            request: Request::new(id, Micros::ZERO, 1, 1),
            now: None,
            input_tokens: None,
            prompt_blocks: None,
            shared_blocks: None,
            blocks: Vec::new(),
        }
    }

    pub fn set(&mut self, name: &str, value: &FieldValue, names: &mut NameTable) -> Result<(), FieldError> {
        let known = request_names();
        if !known.contains(&name) {
            return Err(FieldError::unknown("a request", name, &known));
        }
        if *value == FieldValue::Nothing {
            return Ok(());
        }
        match name {
            "id" => self.row.id = whole(name, value, 0..=u32::MAX - 1)?,
            "now" | "now_us" => self.now = Some(time(name, value)?),
            "input_tokens" | "prompt_tokens" => self.input_tokens = Some(whole(name, value, 1..=u32::MAX)?),
            "max_output_tokens" | "max_tokens" => self.row.max_output_tokens = whole(name, value, 0..=u32::MAX - 1)?,
            "prompt_blocks" => self.prompt_blocks = Some(whole(name, value, 0..=u32::MAX)?),
            "block_size" => self.row.block_size = whole(name, value, 1..=1 << 20)?,
            "shared_blocks" => self.shared_blocks = Some(whole(name, value, 0..=u32::MAX)?),
            "blocks" => self.blocks = list(name, value, 0..=u32::MAX)?,
            // A label for the fixture, which policies do not get.
            "name" => return word(name, value).map(|_| ()),
            _ => return rows::set(&mut self.row, name, value, names),
        }
        Ok(())
    }

    /// Completes the request after its last field.
    pub fn finish(mut self) -> Result<Self, FieldError> {
        let whole_blocks = self.prompt_blocks.map(|blocks| blocks.saturating_mul(self.row.block_size));
        let input_tokens = self.input_tokens.or(whole_blocks.filter(|&tokens| tokens > 0)).unwrap_or(1);
        let blocks = input_tokens / self.row.block_size;
        if let Some(given) = self.prompt_blocks.filter(|&given| given != blocks) {
            let what = format!("`prompt_blocks` is {given}, but {input_tokens} tokens are {blocks} full blocks");
            return Err(wrong(what, format!("a block has {} tokens (`block_size`)", self.row.block_size)));
        }
        let listed = self.blocks.len() as u32;
        let shared = self.shared_blocks.unwrap_or(listed);
        if listed > 0 && shared != listed {
            let what = format!("`shared_blocks` is {shared}, but `blocks` has {listed}");
            return Err(wrong(what, "give one of them"));
        }
        if shared > blocks {
            let what = format!("{shared} blocks are shared, but the prompt has {blocks} full blocks");
            return Err(wrong(what, format!("raise `input_tokens`: a block has {} tokens", self.row.block_size)));
        }
        let spans: Vec<Span> = if listed > 0 {
            self.blocks.iter().map(|&first| Span { first, len: 1 }).collect()
        } else {
            vec![Span { first: 0, len: shared }]
        };
        let row = &self.row;
        self.request = Request {
            deadline: row.deadline().map(Micros),
            max_output_tokens: row.output_limit(),
            client_priority: row.client_priority(),
            tags: Tags {
                slo_class: Name(row.slo_class),
                tenant: Name(row.tenant),
                session: Name(row.session),
                model: Name(row.model),
                client: Name(row.client),
                prefix_group: Name(row.prefix_group),
                round_index: row.round_index,
                adapter: Name::NONE,
            },
            input_tokens,
            content: Content::shared(&spans),
            ..Request::new(RequestId(row.id), Micros(row.arrival_us), 1, 1)
        };
        Ok(self)
    }

    pub fn now(&self) -> Micros {
        self.now.unwrap_or(Micros(self.row.arrival_us))
    }

    pub fn targets(&self) -> ClientTargets {
        ClientTargets { ttft: self.row.slo_ttft().map(Micros), itl: self.row.slo_itl().map(Micros) }
    }
}

/// The instances of a service from named fields. Of `kv_utilization` and `free_kv_blocks` one follows from the other.
#[derive(Clone, Debug, Default)]
pub(crate) struct NamedInstances {
    pub infos: Vec<InstanceInfo>,
    pub signals: Signals,
    /// The sums of scores that a picker sees, where they are set.
    scores: Vec<Option<f64>>,
    /// Of the last instance, where they are set.
    kv_utilization: Option<f64>,
    free_kv_blocks: Option<u32>,
}

/// How a field of an instance is set.
#[derive(Clone, Copy)]
enum InstanceField {
    /// A field that is no column of [`Signals`] alone.
    Own,
    /// A whole number, at most so much.
    Count(u32, fn(&mut Signals) -> &mut Vec<u32>),
    /// A whole number.
    Sum(fn(&mut Signals) -> &mut Vec<u64>),
    /// A number from 0 to 1.
    Share(fn(&mut Signals) -> &mut Vec<f64>),
    /// A number that is at least 0.
    Real(fn(&mut Signals) -> &mut Vec<f64>),
}

const INSTANCE: [(&str, InstanceField); 22] = [
    ("id", InstanceField::Own),
    ("queue_depth", InstanceField::Count(u32::MAX, |signals| &mut signals.queue_depth)),
    ("batch_size", InstanceField::Count(u32::MAX, |signals| &mut signals.batch_size)),
    ("kv_utilization", InstanceField::Own),
    ("free_kv_blocks", InstanceField::Own),
    ("total_kv_blocks", InstanceField::Own),
    ("cache_hit_rate", InstanceField::Share(|signals| &mut signals.cache_hit_rate)),
    ("preemption_count", InstanceField::Sum(|signals| &mut signals.preemption_count)),
    ("in_flight", InstanceField::Count(u32::MAX, |signals| &mut signals.in_flight)),
    ("cached_blocks", InstanceField::Count(u32::MAX, |signals| &mut signals.cached_blocks)),
    ("cpu_cached_blocks", InstanceField::Count(u32::MAX, |signals| &mut signals.cpu_cached_blocks)),
    ("max_num_seqs", InstanceField::Own),
    ("block_size", InstanceField::Own),
    ("waiting_tokens", InstanceField::Sum(|signals| &mut signals.waiting_tokens)),
    ("in_flight_tokens", InstanceField::Sum(|signals| &mut signals.in_flight_tokens)),
    ("in_flight_output", InstanceField::Sum(|signals| &mut signals.in_flight_output)),
    ("ttft_ewma", InstanceField::Real(|signals| &mut signals.ttft_ewma)),
    ("itl_ewma", InstanceField::Real(|signals| &mut signals.itl_ewma)),
    ("score", InstanceField::Own),
    ("adapter_active", InstanceField::Count(1, |signals| &mut signals.adapter_active)),
    ("adapter_waiting", InstanceField::Count(1, |signals| &mut signals.adapter_waiting)),
    ("free_adapter_slots", InstanceField::Count(u32::MAX, |signals| &mut signals.free_adapter_slots)),
];

impl NamedInstances {
    /// Adds an idle instance.
    pub fn add(&mut self) {
        self.infos.push(InstanceInfo {
            id: InstanceIndex::at(self.infos.len()),
            max_num_seqs: MAX_NUM_SEQS,
            total_kv_blocks: TOTAL_KV_BLOCKS,
            block_size: BLOCK_SIZE,
            ..InstanceInfo::default()
        });
        for (_, field) in INSTANCE {
            match field {
                InstanceField::Own => {}
                InstanceField::Count(_, column) => column(&mut self.signals).push(0),
                InstanceField::Sum(column) => column(&mut self.signals).push(0),
                InstanceField::Share(column) | InstanceField::Real(column) => column(&mut self.signals).push(0.0),
            }
        }
        self.scores.push(None);
        (self.kv_utilization, self.free_kv_blocks) = (None, None);
    }

    /// Sets a field of the last instance.
    pub fn set(&mut self, name: &str, value: &FieldValue) -> Result<(), FieldError> {
        let Some((_, field)) = INSTANCE.iter().find(|(known, _)| *known == name) else {
            return Err(Self::unknown(name));
        };
        let signals = &mut self.signals;
        match *field {
            InstanceField::Own => return self.set_own(name, value),
            InstanceField::Count(most, column) => last(column(signals), whole(name, value, 0..=most)?),
            InstanceField::Sum(column) => last(column(signals), whole(name, value, 0..=LATEST_US)?),
            InstanceField::Share(column) => last(column(signals), share(name, value)?),
            InstanceField::Real(column) => last(column(signals), real(name, value, 0.0)?),
        }
        Ok(())
    }

    fn set_own(&mut self, name: &str, value: &FieldValue) -> Result<(), FieldError> {
        let Some(info) = self.infos.last_mut() else { return Ok(()) };
        match name {
            "id" => info.id = InstanceIndex(whole(name, value, 0..=u32::MAX - 1)?),
            "total_kv_blocks" => info.total_kv_blocks = whole(name, value, 1..=u32::MAX)?,
            "max_num_seqs" => info.max_num_seqs = whole(name, value, 1..=u32::MAX)?,
            "block_size" => info.block_size = whole(name, value, 1..=1 << 20)?,
            "kv_utilization" => self.kv_utilization = Some(share(name, value)?),
            "free_kv_blocks" => self.free_kv_blocks = Some(whole(name, value, 0..=u32::MAX)?),
            _ => last(&mut self.scores, Some(real(name, value, -1.0)?)),
        }
        Ok(())
    }

    /// The error for a field that cannot be set.
    fn unknown(name: &str) -> FieldError {
        match name {
            "effective_load" | "index" | "indices" | "cached_tokens_gpu" | "cached_tokens_cpu" | "running_tokens"
            | "staleness" => {
                let what = format!("`{name}` cannot be set");
                let hint = "effective_load is queue_depth + batch_size + in_flight, indices are positions in the list, \
                            cached_tokens_gpu follows from cached_blocks, cached_tokens_cpu from cpu_cached_blocks, running_tokens from the KV blocks, staleness \
                            from load_staleness";
                FieldError { of_name: true, ..wrong(what, hint) }
            }
            _ => FieldError::unknown("an instance", name, &INSTANCE.map(|(name, _)| name)),
        }
    }

    /// Completes the last instance after its last field.
    pub fn finish(&mut self) -> Result<(), FieldError> {
        let total = self.infos.last().map_or(0, |info| info.total_kv_blocks);
        if let Some(free) = self.free_kv_blocks.filter(|&free| free > total) {
            let what = format!("`free_kv_blocks` is {free}, of {total} blocks");
            return Err(wrong(what, "set `total_kv_blocks` too"));
        }
        let used = self.kv_utilization.unwrap_or(0.0);
        let free = self.free_kv_blocks.unwrap_or_else(|| (f64::from(total) * (1.0 - used)).round() as u32);
        self.signals.free_kv_blocks.push(free);
        let used = self.kv_utilization.unwrap_or_else(|| f64::from(total - free) / f64::from(total));
        self.signals.kv_utilization.push(used);
        Ok(())
    }

    /// The sums of scores, 0 where none is set; empty if none is set at all.
    pub fn scores(&self) -> Vec<f64> {
        let any = self.scores.iter().any(Option::is_some);
        self.scores.iter().filter(|_| any).map(|score| score.unwrap_or(0.0)).collect()
    }
}

/// Sets the last entry of a column.
fn last<T>(column: &mut [T], value: T) {
    if let Some(last) = column.last_mut() {
        *last = value;
    }
}
