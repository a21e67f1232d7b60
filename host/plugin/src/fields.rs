//! Inputs of policies from named values: requests, instances, queued requests, running batches and steps, for the
//! fixture files of `blis plugin test` and for the test functions of scripts.
//!
//! The names are those of `sdk/rhai/README.md`. A field that is not set has a default: 0, no deadline, no limit, the
//! empty text, and what the fields below say.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

use blis_diag::{name_hint, quoted, yaml};
use blis_sim::ids::{InstanceIndex, RequestId};
use blis_sim::policy::{BatchView, ClientTargets, InstanceInfo, Signals};
use blis_sim::request::{Content, Name, Request, Span, Tags};
use blis_sim::units::Micros;

pub(crate) mod rows;

/// The KV blocks of an instance, unless a fixture sets them.
const TOTAL_KV_BLOCKS: u32 = 20_000;
/// The maximum batch size of an instance, unless a fixture sets it.
const MAX_NUM_SEQS: u32 = 256;
/// The size of a KV block, unless a fixture sets it.
const BLOCK_SIZE: u32 = 16;
/// Times have 63 bits in scripts.
const LATEST_US: u64 = i64::MAX.cast_unsigned();

/// The value of a field, as text: numbers are parsed by the field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FieldValue {
    /// As if the field were not set.
    Nothing,
    Word(String),
    List(Vec<String>),
}

/// Why a field cannot be set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FieldError {
    pub what: String,
    pub hint: String,
    /// Whether the name is wrong, not the value.
    pub of_name: bool,
}

/// The names of a fixture: their texts by number, the empty one first.
#[derive(Clone, Debug)]
pub(crate) struct NameTable(Vec<Box<str>>);

impl Default for NameTable {
    fn default() -> Self {
        Self(vec!["".into()])
    }
}

impl NameTable {
    fn name(&mut self, text: &str) -> Name {
        let known = self.0.iter().position(|known| **known == *text);
        Name(known.unwrap_or_else(|| {
            self.0.push(text.into());
            self.0.len() - 1
        }) as u32)
    }

    pub fn texts(&self) -> &[Box<str>] {
        &self.0
    }
}

/// A request from named fields.
#[derive(Clone, Debug)]
pub(crate) struct NamedRequest {
    pub request: Request,
    /// Time of the decision; by default that of the arrival.
    pub now: Option<Micros>,
    pub class_priority: i32,
    pub block_size: u32,
    pub tenant_in_flight: u32,
    pub targets: ClientTargets,
    input_tokens: Option<u32>,
    prompt_blocks: Option<u32>,
    shared_blocks: Option<u32>,
    blocks: Vec<u32>,
}

const REQUEST: [&str; 30] = [
    "id",
    "now",
    "now_us",
    "arrival",
    "arrival_us",
    "deadline",
    "deadline_us",
    "slo_ttft",
    "slo_ttft_us",
    "slo_itl",
    "slo_itl_us",
    "input_tokens",
    "prompt_tokens",
    "max_output_tokens",
    "max_tokens",
    "prompt_blocks",
    "block_size",
    "shared_blocks",
    "blocks",
    "class_priority",
    "client_priority",
    "slo_class",
    "tenant",
    "session",
    "model",
    "client",
    "prefix_group",
    "round_index",
    "tenant_in_flight",
    "name",
];

impl NamedRequest {
    /// Request `id`, of one token.
    pub fn new(id: RequestId) -> Self {
        Self {
            request: Request::new(id, Micros::ZERO, 1, 1),
            now: None,
            class_priority: 0,
            block_size: BLOCK_SIZE,
            tenant_in_flight: 0,
            targets: ClientTargets::default(),
            input_tokens: None,
            prompt_blocks: None,
            shared_blocks: None,
            blocks: Vec::new(),
        }
    }

    pub fn set(&mut self, name: &str, value: &FieldValue, names: &mut NameTable) -> Result<(), FieldError> {
        if *value == FieldValue::Nothing && REQUEST.contains(&name) {
            return Ok(());
        }
        let request = &mut self.request;
        match name {
            "id" => request.id = RequestId(whole(name, value, 0..=u32::MAX - 1)?),
            "now" | "now_us" => self.now = Some(time(name, value)?),
            "arrival" | "arrival_us" => request.arrival = time(name, value)?,
            "deadline" | "deadline_us" => request.deadline = Some(time(name, value)?),
            "slo_ttft" | "slo_ttft_us" => self.targets.ttft = Some(time(name, value)?),
            "slo_itl" | "slo_itl_us" => self.targets.itl = Some(time(name, value)?),
            "input_tokens" | "prompt_tokens" => self.input_tokens = Some(whole(name, value, 1..=u32::MAX)?),
            "max_output_tokens" | "max_tokens" => {
                request.max_output_tokens = Some(whole(name, value, 0..=u32::MAX - 1)?);
            }
            "prompt_blocks" => self.prompt_blocks = Some(whole(name, value, 0..=u32::MAX)?),
            "block_size" => self.block_size = whole(name, value, 1..=1 << 20)?,
            "shared_blocks" => self.shared_blocks = Some(whole(name, value, 0..=u32::MAX)?),
            "blocks" => self.blocks = list(name, value, 0..=u32::MAX)?,
            "class_priority" => self.class_priority = whole(name, value, i32::MIN..=i32::MAX)?,
            "client_priority" => request.client_priority = Some(whole(name, value, i32::MIN + 1..=i32::MAX)?),
            "tenant_in_flight" => self.tenant_in_flight = whole(name, value, 0..=u32::MAX)?,
            _ => return tag(&mut request.tags, name, value, names, &REQUEST),
        }
        Ok(())
    }

    /// Completes the request after its last field.
    pub fn finish(mut self) -> Result<Self, FieldError> {
        let whole_blocks = self.prompt_blocks.map(|blocks| blocks.saturating_mul(self.block_size));
        let input_tokens = self.input_tokens.or(whole_blocks.filter(|&tokens| tokens > 0)).unwrap_or(1);
        let blocks = input_tokens / self.block_size;
        if let Some(given) = self.prompt_blocks.filter(|&given| given != blocks) {
            let what = format!("`prompt_blocks` is {given}, but {input_tokens} tokens are {blocks} full blocks");
            return Err(wrong(what, format!("a block has {} tokens (`block_size`)", self.block_size)));
        }
        let listed = self.blocks.len() as u32;
        let shared = self.shared_blocks.unwrap_or(listed);
        if listed > 0 && shared != listed {
            let what = format!("`shared_blocks` is {shared}, but `blocks` has {listed}");
            return Err(wrong(what, "give one of them"));
        }
        if shared > blocks {
            let what = format!("{shared} blocks are shared, but the prompt has {blocks} full blocks");
            return Err(wrong(what, format!("raise `input_tokens`: a block has {} tokens", self.block_size)));
        }
        let spans: Vec<Span> = if listed > 0 {
            self.blocks.iter().map(|&first| Span { first, len: 1 }).collect()
        } else {
            vec![Span { first: 0, len: shared }]
        };
        self.request.content = Content::shared(&spans);
        self.request.input_tokens = input_tokens;
        Ok(self)
    }

    pub fn now(&self) -> Micros {
        self.now.unwrap_or(self.request.arrival)
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

const RUNNING: [&str; 13] = [
    "id",
    "priority",
    "arrival",
    "deadline",
    "class_priority",
    "input_tokens",
    "computed_tokens",
    "generated_tokens",
    "kv_blocks",
    "preemptions",
    "slo_class",
    "tenant",
    "session",
];

/// Appends a request with default fields to `batch`.
pub(crate) fn push_running(batch: &mut BatchView) {
    batch.id.push(RequestId(batch.len() as u32));
    batch.priority.push(0);
    batch.arrival.push(Micros::ZERO);
    batch.deadline.push(None);
    batch.class_priority.push(0);
    batch.tags.push(Tags::default());
    batch.input_tokens.push(1);
    batch.computed_tokens.push(0);
    batch.generated_tokens.push(0);
    batch.kv_blocks.push(0);
    batch.preemptions.push(0);
}

/// Sets a field of the last request of `batch`.
pub(crate) fn set_running(
    batch: &mut BatchView,
    name: &str,
    value: &FieldValue,
    names: &mut NameTable,
) -> Result<(), FieldError> {
    if *value == FieldValue::Nothing && RUNNING.contains(&name) {
        return Ok(());
    }
    let count = || whole(name, value, 0..=u32::MAX - 1);
    match name {
        "id" => last(&mut batch.id, RequestId(count()?)),
        "priority" => last(&mut batch.priority, whole(name, value, i64::MIN..=i64::MAX)?),
        "arrival" | "arrival_us" => last(&mut batch.arrival, time(name, value)?),
        "deadline" | "deadline_us" => last(&mut batch.deadline, Some(time(name, value)?)),
        "class_priority" => last(&mut batch.class_priority, whole(name, value, i32::MIN..=i32::MAX)?),
        "input_tokens" => last(&mut batch.input_tokens, count()?),
        "computed_tokens" => last(&mut batch.computed_tokens, count()?),
        "generated_tokens" => last(&mut batch.generated_tokens, count()?),
        "kv_blocks" => last(&mut batch.kv_blocks, count()?),
        "preemptions" => last(&mut batch.preemptions, count()?),
        "slo_class" | "tenant" | "session" => {
            if let Some(tags) = batch.tags.last_mut() {
                tag(tags, name, value, names, &RUNNING)?;
            }
        }
        _ => return Err(FieldError::unknown("a request of the batch", name, &RUNNING)),
    }
    Ok(())
}

fn tag(
    tags: &mut Tags,
    name: &str,
    value: &FieldValue,
    names: &mut NameTable,
    known: &[&str],
) -> Result<(), FieldError> {
    let field = match name {
        "slo_class" => &mut tags.slo_class,
        "tenant" => &mut tags.tenant,
        "session" => &mut tags.session,
        "model" => &mut tags.model,
        "client" => &mut tags.client,
        "prefix_group" => &mut tags.prefix_group,
        "round_index" => {
            tags.round_index = whole(name, value, 0..=u32::MAX)?;
            return Ok(());
        }
        // A label for the fixture, which policies do not get.
        "name" if known.contains(&name) => return word(name, value).map(|_| ()),
        _ => return Err(FieldError::unknown("a request", name, known)),
    };
    *field = names.name(word(name, value)?);
    Ok(())
}

/// The text of a value that is no list.
pub(crate) fn word<'a>(name: &str, value: &'a FieldValue) -> Result<&'a str, FieldError> {
    match value {
        FieldValue::Word(text) => Ok(text),
        FieldValue::Nothing => Err(wrong(format!("`{name}` has no value"), "give one, or remove the field")),
        FieldValue::List(_) => Err(wrong(format!("`{name}` is a list"), "it must be a single value")),
    }
}

/// A whole number within `range`; `1e6` and `2.0` are whole numbers too.
pub(crate) fn whole<T>(name: &str, value: &FieldValue, range: RangeInclusive<T>) -> Result<T, FieldError>
where
    T: FromStr + PartialOrd + Display,
{
    whole_of(name, word(name, value)?, range)
}

fn whole_of<T>(name: &str, text: &str, range: RangeInclusive<T>) -> Result<T, FieldError>
where
    T: FromStr + PartialOrd + Display,
{
    let exponential = || yaml::real(text).filter(|n| n.fract() == 0.0 && n.abs() < 1e15).map(|n| format!("{n}"));
    let number = text.parse().ok().or_else(|| exponential()?.parse().ok()).filter(|number| range.contains(number));
    number.ok_or_else(|| {
        let hint = format!("it must be a whole number from {} to {}", range.start(), range.end());
        wrong(format!("`{name}` is {}", quoted(text.as_bytes())), hint)
    })
}

fn list(name: &str, value: &FieldValue, range: RangeInclusive<u32>) -> Result<Vec<u32>, FieldError> {
    let FieldValue::List(items) = value else {
        return Err(wrong(format!("`{name}` is no list"), "write `[1, 2, 3]`"));
    };
    items.iter().map(|item| whole_of(name, item, range.clone())).collect()
}

fn time(name: &str, value: &FieldValue) -> Result<Micros, FieldError> {
    whole(name, value, 0..=LATEST_US).map(Micros)
}

fn share(name: &str, value: &FieldValue) -> Result<f64, FieldError> {
    let text = word(name, value)?;
    yaml::real(text)
        .filter(|number| (0.0..=1.0).contains(number))
        .ok_or_else(|| wrong(format!("`{name}` is {}", quoted(text.as_bytes())), "it must be a number from 0 to 1"))
}

/// A number that is at least `least`.
pub(crate) fn real(name: &str, value: &FieldValue, least: f64) -> Result<f64, FieldError> {
    let text = word(name, value)?;
    let number = yaml::real(text).filter(|number| number.is_finite() && *number >= least);
    number.ok_or_else(|| {
        wrong(format!("`{name}` is {}", quoted(text.as_bytes())), format!("it must be a number from {least} on"))
    })
}

fn wrong(what: impl Into<String>, hint: impl Into<String>) -> FieldError {
    FieldError { what: what.into(), hint: hint.into(), of_name: false }
}

impl FieldError {
    /// `what` has no field `name`.
    pub fn unknown(what: &str, name: &str, known: &[&str]) -> Self {
        let text = format!("{what} has no field {}", quoted(name.as_bytes()));
        Self { of_name: true, ..wrong(text, name_hint(name, known)) }
    }
}
