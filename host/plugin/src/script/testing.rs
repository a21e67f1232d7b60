//! Test functions of scripts: functions without arguments whose names begin with `test_`, which `blis plugin test` runs.
//! They pass if they return true or nothing, and fail if they return false or throw.
//!
//! They run on an engine of their own, which has functions that build the views of policies. The engine of runs does not
//! have them, and the fields that only tests use are not kept up to date in runs.

use std::sync::Arc;

use blis_sim::ids::{InstanceIndex, RequestId};
use blis_sim::latency::Batch;
use blis_sim::policy::{BatchView, Staleness};
use blis_sim::units::Micros;
use rhai::{Array, Dynamic, INT, ImmutableString, Map};

use super::call::{NO_REQUEST, failure};
use super::column::{Column, type_name};
use super::engine::Kit;
use super::flow::{BandObject, BandsObject, FlowsObject, InFlightObject, UsedFlowFields};
use super::guest::ScriptGuest;
use super::kv_cache::{ChunksObject, HitObject, OfferObject};
use super::pools::{DecodesObject, LinkObject, PrefillsObject, RoutedObject};
use super::registry::{Registry, ScriptError};
use super::replicas::{RowObject, RowsObject};
use super::scaling::GroupsObject;
use super::scan::{Scan, SourceSpan};
use super::values::NameTexts;
use super::views::{
    BatchObject, ClusterFields, ClusterObject, QueuedObject, RequestFields, RequestObject, StepObject, UsedFields,
};
use super::{ScriptPlugin, compile};
use crate::fields::replicas::NamedRow;
use crate::fields::{
    FieldError, FieldValue, NameTable, NamedInstance, NamedInstances, NamedQueued, NamedRequest, flow, push_running,
    real, scaling, set_running, set_step, whole,
};
use crate::inputs::DecisionPoint;
use crate::rows::{
    ChunkRow, DrainGroupRow, GroupRow, NodeRow, PoolInstanceRow, ReplicaRow, RoutedRequestRow, StartingReplicaRow,
    step_row,
};
use crate::{Fault, FaultKind, Limits, Plugin as _, TestFunction, check};

/// The functions that test functions may call besides those of every script.
pub(super) const TEST_HELPERS: [&str; 22] = [
    "assert",
    "band",
    "bands",
    "batch",
    "chunks",
    "cluster",
    "decodes",
    "flows",
    "groups",
    "in_flight",
    "link",
    "nodes",
    "prefills",
    "queued",
    "drain_group",
    "replicas",
    "request",
    "routed",
    "starting",
    "step",
    "tier",
    "tier_hit",
];

/// Runs the test functions of `plugin`, each with a new state.
pub(super) fn run(plugin: &ScriptPlugin, limits: &Limits) -> Result<Vec<TestFunction>, Fault> {
    let source = &plugin.script.source;
    let scan = Scan::of(&source.text);
    let tests: Vec<SourceSpan<'_>> =
        scan.functions.iter().filter(|function| scan.tests.contains(function.text)).copied().collect();
    if tests.is_empty() {
        return Ok(Vec::new());
    }
    let plugin = compile(source.path.as_ref().as_ref(), &source.text, limits, Arc::new(Kit::new(limits, register)))?;
    Ok(tests.into_iter().map(|test| run_one(&plugin, test, limits)).collect())
}

fn run_one(plugin: &ScriptPlugin, test: SourceSpan<'_>, limits: &Limits) -> TestFunction {
    let name = test.text;
    let located = |text: String| plugin.script.source.fault(FaultKind::Trap, Some(test), &text);
    let outcome = (|| {
        let kind = plugin.description().kinds.first().copied().ok_or_else(|| located("it has no kind".to_owned()))?;
        let setup = check::setup(plugin, kind, 4, limits);
        let mut guest = ScriptGuest::start(Arc::clone(&plugin.script), plugin.code.clone(), &setup)?;
        let output = guest.run(name, (), NO_REQUEST, None)?;
        match output.as_bool() {
            Ok(true) => Ok(()),
            Ok(false) => Err(located(format!("`{name}` returned false"))),
            Err(_) if output.is_unit() => Ok(()),
            Err(_) => {
                let text = format!("`{name}` returned {}; a test returns true, false or nothing", type_name(&output));
                Err(located(text))
            }
        }
    })();
    let location = located(String::new()).diagnostic.location;
    TestFunction { name: name.to_owned(), location, outcome: outcome.map_err(|fault: Fault| fault.message()) }
}

fn register(to: &mut Registry) {
    to.add("assert", |holds: bool, text: ImmutableString| -> Result<(), ScriptError> {
        if holds { Ok(()) } else { Err(failure(format!("assertion failed: {text}"))) }
    });
    to.add("request", |fields: Map| request(&fields).map_err(|error| refused("request", &error)));
    to.add("queued", |fields: Map| queued(&fields).map_err(|error| refused("queued", &error)));
    to.add("cluster", |list: Array| cluster(&list, &Map::new()).map_err(|error| refused("cluster", &error)));
    to.add("cluster", |list: Array, more: Map| cluster(&list, &more).map_err(|error| refused("cluster", &error)));
    to.add("batch", |list: Array| batch(&list, &Map::new()).map_err(|error| refused("batch", &error)));
    to.add("batch", |list: Array, more: Map| batch(&list, &more).map_err(|error| refused("batch", &error)));
    to.add("band", |fields: Map| band(&fields).map_err(|error| refused("band", &error)));
    to.add("bands", |list: Array| bands(&list).map_err(|error| refused("bands", &error)));
    to.add("flows", |list: Array| flows(&list).map_err(|error| refused("flows", &error)));
    to.add("in_flight", |list: Array| in_flight(&list).map_err(|error| refused("in_flight", &error)));
    to.add("groups", |list: Array| groups(&list, &Array::new()).map_err(|error| refused("groups", &error)));
    to.add("groups", |list: Array, history: Array| groups(&list, &history).map_err(|error| refused("groups", &error)));
    to.add("drain_group", |fields: Map| row::<DrainGroupRow>(&fields).map_err(|error| refused("drain_group", &error)));
    to.add("replicas", |list: Array| rows::<ReplicaRow>(&list).map_err(|error| refused("replicas", &error)));
    to.add("starting", |fields: Map| row::<StartingReplicaRow>(&fields).map_err(|error| refused("starting", &error)));
    to.add("nodes", |list: Array| rows::<NodeRow>(&list).map_err(|error| refused("nodes", &error)));
    to.add("chunks", |list: Array| chunks(&list).map_err(|error| refused("chunks", &error)));
    to.add("tier", |fields: Map| row_of(&fields).map(OfferObject).map_err(|error| refused("tier", &error)));
    to.add("tier_hit", |fields: Map| row_of(&fields).map(HitObject).map_err(|error| refused("tier_hit", &error)));
    to.add("routed", |fields: Map| routed(&fields).map_err(|error| refused("routed", &error)));
    to.add("decodes", |list: Array, chosen: INT| decodes(&list, chosen).map_err(|error| refused("decodes", &error)));
    to.add("prefills", |list: Array| {
        rows(&list).map(|all| PrefillsObject { rows: all.0 }).map_err(|error| refused("prefills", &error))
    });
    to.add("link", |fields: Map| link(&fields).map_err(|error| refused("link", &error)));
    to.add("step", |fields: Map| step(&fields).map_err(|error| refused("step", &error)));
}

fn refused(function: &str, error: &FieldError) -> ScriptError {
    failure(format!("{function}: {}; {}", error.what, error.hint))
}

fn request(fields: &Map) -> Result<RequestObject, FieldError> {
    let (mut request, mut names) = (NamedRequest::new(RequestId(0)), NameTable::default());
    set_all(fields, |name, value| request.set(name, value, &mut names))?;
    let request = request.finish()?;
    let texts: NameTexts = names.texts().into();
    let point = DecisionPoint::new(&request, &NamedInstances::default(), Staleness::default());
    let in_flight = Some(request.tenant_in_flight);
    let fields = RequestFields::new(&point.request(), request.now(), in_flight, &UsedFields::ALL, &texts);
    Ok(RequestObject(Arc::new(fields)))
}

fn queued(fields: &Map) -> Result<QueuedObject, FieldError> {
    const KNOWN: [&str; 6] = ["now", "now_us", "priority", "turn", "generated_tokens", "preemptions"];
    let (mut queued, mut names) = (NamedQueued::new(0), NameTable::default());
    set_all(fields, |name, value| {
        if !KNOWN.contains(&name) {
            return Err(FieldError::unknown("a queued request", name, &KNOWN));
        }
        queued.set(name, value, &mut names)
    })?;
    let now = queued.request.now();
    Ok(QueuedObject::new(now, &queued.row()))
}

fn cluster(list: &Array, more: &Map) -> Result<ClusterObject, FieldError> {
    let mut instances = NamedInstances::default();
    for (index, fields) in list.iter().enumerate() {
        let mut instance = NamedInstance::new(InstanceIndex::at(index));
        set_all(&map_of(index, fields)?, |name, value| instance.set(name, value))?;
        instances.push(&instance)?;
    }
    let (mut request, mut staleness) = (NamedRequest::new(RequestId(0)), Staleness::default());
    set_all(more, |name, value| {
        let time = || whole(name, value, 0..=i64::MAX.cast_unsigned()).map(Micros);
        match name {
            "now" | "now_us" => request.now = Some(time()?),
            "load_staleness" | "load_us" => staleness.load = time()?,
            "cached_blocks_staleness" | "cached_blocks_us" => staleness.cached_blocks = time()?,
            _ => {
                let known = ["now", "load_staleness", "cached_blocks_staleness"];
                return Err(FieldError::unknown("a cluster", name, &known));
            }
        }
        Ok(())
    })?;
    let mut fields = ClusterFields::default();
    let point = DecisionPoint::new(&request, &instances, staleness);
    fields.update(Some(&point.request()), &point.cluster(), &UsedFields::ALL);
    Ok(ClusterObject(Arc::new(fields)))
}

fn batch(list: &Array, more: &Map) -> Result<BatchObject, FieldError> {
    let (mut batch, mut names) = (BatchView { last_of_ties: true, ..BatchView::default() }, NameTable::default());
    for (index, fields) in list.iter().enumerate() {
        push_running(&mut batch);
        set_all(&map_of(index, fields)?, |name, value| set_running(&mut batch, name, value, &mut names))?;
    }
    let last = batch.len().saturating_sub(1);
    batch.requester = last;
    set_all(more, |name, value| {
        match name {
            "now" | "now_us" => batch.now = Micros(whole(name, value, 0..=i64::MAX.cast_unsigned())?),
            "requester" => batch.requester = whole(name, value, 0..=last)?,
            _ => return Err(FieldError::unknown("a batch", name, &["now", "requester"])),
        }
        Ok(())
    })?;
    Ok(BatchObject::new(&batch, &names.texts().into()))
}

fn step(fields: &Map) -> Result<StepObject, FieldError> {
    let mut step = Batch::default();
    set_all(fields, |name, value| set_step(&mut step, name, value))?;
    Ok(StepObject(step_row(&step)))
}

fn band(fields: &Map) -> Result<BandObject, FieldError> {
    let mut object = BandObject { now: Micros::ZERO, saturation: Some(0.0), band: flow::band() };
    set_all(fields, |name, value| {
        match name {
            "now" | "now_us" => object.now = Micros(whole(name, value, 0..=i64::MAX.cast_unsigned())?),
            "saturation" => object.saturation = Some(real(name, value, 0.0)?),
            _ => flow::set_band(&mut object.band, name, value)?,
        }
        Ok(())
    })?;
    Ok(object)
}

fn bands(list: &Array) -> Result<BandsObject, FieldError> {
    let mut bands = Vec::new();
    for (index, fields) in list.iter().enumerate() {
        let mut band = flow::band();
        set_all(&map_of(index, fields)?, |name, value| flow::set_band(&mut band, name, value))?;
        bands.push(band);
    }
    Ok(BandsObject::new(Micros::ZERO, &bands))
}

fn flows(list: &Array) -> Result<FlowsObject, FieldError> {
    let (mut flows, mut names) = (Vec::new(), NameTable::default());
    for (index, fields) in list.iter().enumerate() {
        let mut one = flow::flow(index);
        set_all(&map_of(index, fields)?, |name, value| {
            flow::set_flow(&mut one, Micros::ZERO, name, value, &mut names)
        })?;
        flows.push(one);
    }
    Ok(FlowsObject::new(Micros::ZERO, &flows, &UsedFlowFields::ALL, &names.texts().into()))
}

fn in_flight(list: &Array) -> Result<InFlightObject, FieldError> {
    let (mut requests, mut names) = (Vec::new(), NameTable::default());
    for (index, fields) in list.iter().enumerate() {
        let mut request = flow::in_flight(index);
        set_all(&map_of(index, fields)?, |name, value| flow::set_in_flight(&mut request, name, value, &mut names))?;
        requests.push(request);
    }
    Ok(InFlightObject::new(Micros::ZERO, &requests, &UsedFlowFields::ALL, &names.texts().into()))
}

/// The groups of a decision, and those of decisions before it, oldest first.
fn groups(list: &Array, history: &Array) -> Result<GroupsObject, FieldError> {
    let mut names = NameTable::default();
    let mut rows = |list: &Array| {
        let one = |(index, fields): (usize, &Dynamic)| {
            let mut group = GroupRow::default();
            set_all(&map_of(index, fields)?, |name, value| scaling::set_group(&mut group, name, value, &mut names))?;
            Ok(group)
        };
        list.iter().enumerate().map(one).collect::<Result<Vec<_>, FieldError>>()
    };
    let (groups, history) = (rows(list)?, rows(history)?);
    let now = Micros(groups.first().map_or(0, |group| group.now_us));
    Ok(GroupsObject::new(now, &groups, &history, &names.texts().into()))
}

/// The group of a removal, or the replica of a placement.
fn row<R: NamedRow + Default>(fields: &Map) -> Result<RowObject<R>, FieldError> {
    let (mut row, mut names) = (R::default(), NameTable::default());
    set_all(fields, |name, value| row.set(name, value, &mut names))?;
    Ok(RowObject { row, names: names.texts().into() })
}

/// A row without names.
fn row_of<R: NamedRow + Default>(fields: &Map) -> Result<R, FieldError> {
    row::<R>(fields).map(|object| object.row)
}

/// The chunks of `keep` and `store`, at the time of the last use of any of them.
fn chunks(list: &Array) -> Result<ChunksObject, FieldError> {
    let rows = rows::<ChunkRow>(list)?.0;
    let now = rows.iter().map(|chunk| chunk.last_use_us).max().unwrap_or_default();
    Ok(ChunksObject { now: Micros(now), rows })
}

/// The request of `disaggregate`.
fn routed(fields: &Map) -> Result<RoutedObject, FieldError> {
    let (mut row, mut names) = (RoutedRequestRow::default(), NameTable::default());
    set_all(fields, |name, value| row.set(name, value, &mut names))?;
    Ok(RoutedObject { row, names: names.texts().into() })
}

/// The instances of `disaggregate` that decode, with the index of the chosen one.
fn decodes(list: &Array, chosen: INT) -> Result<DecodesObject, FieldError> {
    let rows = rows::<PoolInstanceRow>(list)?.0;
    match u32::try_from(chosen).ok().filter(|&index| (index as usize) < rows.len()) {
        Some(chosen) => Ok(DecodesObject { rows, chosen }),
        None => Err(FieldError {
            what: format!("the chosen instance has the index {chosen}"),
            hint: format!("there are {} instances; the first has the index 0", rows.len()),
            of_name: false,
        }),
    }
}

/// The transfers of `disaggregate`.
fn link(fields: &Map) -> Result<LinkObject, FieldError> {
    let (mut row, mut names) = (RoutedRequestRow::default(), NameTable::default());
    set_all(fields, |name, value| {
        let of_row = match name {
            "us_per_token" => "transfer_us_per_token",
            "tokens" => "transfer_tokens",
            "transfers" => name,
            other => return Err(FieldError::unknown("transfers", other, &["us_per_token", "transfers", "tokens"])),
        };
        row.set(of_row, value, &mut names)
    })?;
    Ok(LinkObject(row))
}

/// The replicas of a removal, or the nodes of a placement.
fn rows<R: NamedRow + Default>(list: &Array) -> Result<RowsObject<R>, FieldError> {
    let mut names = NameTable::default();
    let one = |(index, fields): (usize, &Dynamic)| {
        let mut row = R::default();
        set_all(&map_of(index, fields)?, |name, value| row.set(name, value, &mut names))?;
        Ok(row)
    };
    Ok(RowsObject(list.iter().enumerate().map(one).collect::<Result<Vec<R>, FieldError>>()?.into()))
}

/// The fields of the entry at `index` of a list.
fn map_of(index: usize, fields: &Dynamic) -> Result<Map, FieldError> {
    fields.clone().try_cast::<Map>().ok_or_else(|| FieldError {
        what: format!("entry {index} is {}", type_name(fields)),
        hint: "it must be an object map `#{…}`".to_owned(),
        of_name: false,
    })
}

fn set_all(fields: &Map, mut set: impl FnMut(&str, &FieldValue) -> Result<(), FieldError>) -> Result<(), FieldError> {
    fields.iter().try_for_each(|(name, value)| set(name, &value_of(value)))
}

fn value_of(value: &Dynamic) -> FieldValue {
    if value.is_unit() {
        return FieldValue::Nothing;
    }
    if let Some(column) = value.read_lock::<Column>() {
        return FieldValue::List(column.values().iter().map(f64::to_string).collect());
    }
    match value.as_array_ref() {
        Ok(array) => FieldValue::List(array.iter().map(Dynamic::to_string).collect()),
        Err(_) => FieldValue::Word(value.to_string()),
    }
}
