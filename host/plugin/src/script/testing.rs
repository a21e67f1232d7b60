//! Test functions of scripts: functions without arguments whose names begin with `test_`, which `blis plugin test` runs.
//! They pass if they return true or nothing, and fail if they return false or throw.
//!
//! They run on an engine of their own, which has functions that build the views of policies. The engine of runs does not
//! have them, and the fields that only tests use are not kept up to date in runs.

use std::sync::Arc;

use blis_abi::AnyRows;
use blis_sim::ids::RequestId;
use blis_sim::policy::Staleness;
use blis_sim::units::Micros;
use rhai::{Array, Dynamic, INT, ImmutableString, Map};

use super::call::{NO_REQUEST, failure};
use super::column::{Column, type_name};
use super::engine::Kit;
use super::guest::ScriptGuest;
use super::plugin::{ScriptPlugin, compile};
use super::registry::{Registry, ScriptError};
use super::rows::{LinkObject, RowObject, RowViews, RowsObject, UsedRowFields, link_fields, link_name};
use super::scan::{Scan, SourceSpan};
use super::values::NameTexts;
use super::views::{ClusterFields, ClusterObject, RequestFields, RequestObject, UsedFields};
use crate::fields::{FieldError, FieldValue, NameTable, NamedInstances, NamedRequest, real, rows, whole};
use crate::inputs::DecisionPoint;
use crate::rows::{
    BandRow, ChunkOfferRow, ChunkRow, DrainGroupRow, FlowRow, GroupRow, InFlightRow, NodeRow, PoolInstanceRow,
    QueuedRow, ReplicaRow, RoutedRequestRow, Row, RunningRow, StartingReplicaRow, StepRow, TierHitRow,
};
use crate::{Fault, FaultKind, Limits, Plugin as _, TestFunction, check};

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
    to.add("groups", |list: Array| groups(&list, &Array::new()).map_err(|error| refused("groups", &error)));
    to.add("groups", |list: Array, history: Array| groups(&list, &history).map_err(|error| refused("groups", &error)));
    to.add("chunks", |list: Array| chunks(&list).map_err(|error| refused("chunks", &error)));
    to.add("decodes", |list: Array, chosen: INT| decodes(&list, chosen).map_err(|error| refused("decodes", &error)));
    to.add("link", |fields: Map| link(&fields).map_err(|error| refused("link", &error)));
    view_of_row::<StepRow>(to, "step");
    view_of_row::<DrainGroupRow>(to, "drain_group");
    view_of_row::<StartingReplicaRow>(to, "starting");
    view_of_row::<ChunkOfferRow>(to, "tier");
    view_of_row::<TierHitRow>(to, "tier_hit");
    view_of_row::<RoutedRequestRow>(to, "routed");
    view_of_rows::<BandRow, 0>(to, "bands");
    view_of_rows::<FlowRow, 0>(to, "flows");
    view_of_rows::<InFlightRow, 0>(to, "in_flight");
    view_of_rows::<ReplicaRow, 0>(to, "replicas");
    view_of_rows::<NodeRow, 0>(to, "nodes");
    view_of_rows::<PoolInstanceRow, 1>(to, "prefills");
}

/// Registers `function`, which makes the view of a row.
fn view_of_row<R: Row + Default + Send + Sync>(to: &mut Registry, function: &'static str) {
    to.add(function, move |fields: Map| one::<R>(&fields).map_err(|error| refused(function, &error)));
}

/// Registers `function`, which makes the view of a list of rows.
fn view_of_rows<R: Row + Default + Send + Sync, const LIST: usize>(to: &mut Registry, function: &'static str) {
    to.add(function, move |rows: Array| list::<R, LIST>(&rows).map_err(|error| refused(function, &error)));
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
    let in_flight = Some(request.row.tenant_in_flight);
    let fields = RequestFields::new(&point.request(), request.now(), in_flight, &UsedFields::ALL, &texts);
    Ok(RequestObject(Arc::new(fields)))
}

fn queued(fields: &Map) -> Result<RowObject<QueuedRow>, FieldError> {
    let (mut row, mut names) = (QueuedRow { turn: 1, ..QueuedRow::default() }, TestNames::default());
    let mut now = Micros::ZERO;
    set_all(fields, |name, value| match name {
        "now" | "now_us" => whole(name, value, 0..=i64::MAX.cast_unsigned()).map(|us| now = Micros(us)),
        _ => rows::set(&mut row, name, value, &mut names.0),
    })?;
    Ok(names.one(row, now))
}

fn cluster(list: &Array, more: &Map) -> Result<ClusterObject, FieldError> {
    let mut instances = NamedInstances::default();
    for (index, fields) in list.iter().enumerate() {
        instances.add();
        set_all(&map_of(index, fields)?, |name, value| instances.set(name, value))?;
        instances.finish()?;
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

fn batch(list: &Array, more: &Map) -> Result<RowsObject<RunningRow>, FieldError> {
    let mut names = TestNames::default();
    let rows: Vec<RunningRow> = names.rows(list)?;
    let last = rows.len().saturating_sub(1) as u32;
    let (mut now, mut requester) = (Micros::ZERO, last);
    set_all(more, |name, value| {
        match name {
            "now" | "now_us" => now = Micros(whole(name, value, 0..=i64::MAX.cast_unsigned())?),
            "requester" => requester = whole(name, value, 0..=last)?,
            _ => return Err(FieldError::unknown("a batch", name, &["now", "requester"])),
        }
        Ok(())
    })?;
    Ok(names.list(&rows, now).with_chosen(requester))
}

/// The names of a test, and how views of rows are made with all fields.
#[derive(Default)]
struct TestNames(NameTable);

impl TestNames {
    /// A row of these fields, which differ from those of `row`.
    fn row<R: Row>(&mut self, mut row: R, fields: &Map) -> Result<R, FieldError> {
        set_all(fields, |name, value| rows::set(&mut row, name, value, &mut self.0))?;
        Ok(row)
    }

    /// The rows of a list.
    fn rows<R: Row + Default>(&mut self, list: &Array) -> Result<Vec<R>, FieldError> {
        let row = |(index, fields)| self.row(rows::usual(index, Micros::ZERO), &map_of(index, fields)?);
        list.iter().enumerate().map(row).collect()
    }

    /// The view of `row`, at `now`.
    fn one<R: Row>(&self, row: R, now: Micros) -> RowObject<R> {
        self.views(now, |views| views.one(&AnyRows::one(&row)))
    }

    /// The view of `rows`, at `now`.
    fn list<R: Row, const LIST: usize>(&self, rows: &[R], now: Micros) -> RowsObject<R, LIST> {
        self.views(now, |views| views.list(&AnyRows::new(rows)))
    }

    fn views<T>(&self, now: Micros, make: impl FnOnce(RowViews<'_>) -> T) -> T {
        make(RowViews { now, used: &UsedRowFields::ALL, names: &self.0.texts().into() })
    }
}

/// A row, as a view.
fn one<R: Row + Default>(fields: &Map) -> Result<RowObject<R>, FieldError> {
    let mut names = TestNames::default();
    let row = names.row(R::default(), fields)?;
    Ok(names.one(row, Micros::ZERO))
}

/// Rows, as a view.
fn list<R: Row + Default, const LIST: usize>(list: &Array) -> Result<RowsObject<R, LIST>, FieldError> {
    let mut names = TestNames::default();
    let rows = names.rows(list)?;
    Ok(names.list(&rows, Micros::ZERO))
}

fn band(fields: &Map) -> Result<RowObject<BandRow>, FieldError> {
    let (mut row, mut names) = (BandRow::default(), TestNames::default());
    let (mut now, mut saturation) = (Micros::ZERO, 0.0);
    set_all(fields, |name, value| {
        match name {
            "now" | "now_us" => now = Micros(whole(name, value, 0..=i64::MAX.cast_unsigned())?),
            "saturation" => saturation = real(name, value, 0.0)?,
            _ => rows::set(&mut row, name, value, &mut names.0)?,
        }
        Ok(())
    })?;
    Ok(RowObject { saturation: Some(saturation), ..names.one(row, now) })
}

/// The groups of a decision, and those of decisions before it, oldest first.
fn groups(list: &Array, history: &Array) -> Result<RowsObject<GroupRow>, FieldError> {
    let mut names = TestNames::default();
    let (groups, history): (Vec<GroupRow>, Vec<_>) = (names.rows(list)?, names.rows(history)?);
    let now = Micros(groups.first().map_or(0, |group| group.now_us));
    Ok(names.list::<_, 0>(&groups, now).with_history(&history, &groups))
}

/// The chunks of `keep` and `store`, at the time of the last use of any of them.
fn chunks(list: &Array) -> Result<RowsObject<ChunkRow>, FieldError> {
    let mut names = TestNames::default();
    let rows: Vec<ChunkRow> = names.rows(list)?;
    let now = rows.iter().map(|chunk| chunk.last_use_us).max().unwrap_or_default();
    Ok(names.list(&rows, Micros(now)))
}

/// The instances of `disaggregate` that decode, with the index of the chosen one.
fn decodes(instances: &Array, chosen: INT) -> Result<RowsObject<PoolInstanceRow>, FieldError> {
    let view = list(instances)?;
    match u32::try_from(chosen).ok().filter(|&index| (index as usize) < instances.len()) {
        Some(chosen) => Ok(view.with_chosen(chosen)),
        None => Err(FieldError {
            what: format!("the chosen instance has the index {chosen}"),
            hint: format!("there are {} instances; the first has the index 0", instances.len()),
            of_name: false,
        }),
    }
}

/// The transfers of `disaggregate`.
fn link(fields: &Map) -> Result<LinkObject, FieldError> {
    let (mut row, mut names) = (RoutedRequestRow::default(), TestNames::default());
    set_all(fields, |name, value| {
        let Some(field) = link_fields().find(|field| link_name(field) == name) else {
            let known: Vec<&str> = link_fields().map(link_name).collect();
            return Err(FieldError::unknown("transfers", name, &known));
        };
        rows::set(&mut row, field.name, value, &mut names.0)
    })?;
    Ok(LinkObject(names.one(row, Micros::ZERO)))
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
