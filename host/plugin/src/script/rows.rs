//! The views of rows that scripts get: one row with its fields, or a list of rows with a column for each field. Fields and their
//! names are those of the table of rows ([`blis_abi::Field`]).

use std::fmt::Debug;
use std::sync::{Arc, LazyLock};

use blis_abi::decisions::{Function, InputShape};
use blis_abi::rows::visit_row;
use blis_abi::{AnyRows, Field, Layout as _, NumberUnit, Row, RowShape, RowVisitor};
use blis_sim::request::Name;
use blis_sim::units::Micros;
use rhai::{Array, Dynamic, INT};

use super::column::Column;
use super::registry::Registry;
use super::scan::Scan;
use super::values::{NameTexts, int, register_column, register_length, text};
use crate::rows::{
    BandRow, ChunkRow, FlowRow, GroupRow, InFlightRow, NodeRow, PoolInstanceRow, QueuedRow, ReplicaRow,
    RoutedRequestRow, RunningRow, StepRow,
};

/// One row.
#[derive(Clone, Debug)]
pub(super) struct RowObject<R> {
    pub row: R,
    /// Time of the decision, where the row does not have it.
    pub now: Micros,
    /// Of a band, where it is known.
    pub saturation: Option<f64>,
    pub names: NameTexts,
}

/// Rows as columns. `LIST` distinguishes lists of the same rows in one decision.
#[derive(Debug)]
pub(super) struct RowsObject<R, const LIST: usize = 0>(Arc<RowsView<R>>);

impl<R, const LIST: usize> Clone for RowsObject<R, LIST> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

#[derive(Clone, Debug)]
struct RowsView<R> {
    now: Micros,
    len: usize,
    /// Those that the script uses, by the number of the field. Of names they have the numbers.
    columns: Box<[Option<Column>]>,
    used: UsedRowFields,
    names: NameTexts,
    /// The index of the row that was chosen before, or that needs KV blocks.
    chosen: u32,
    /// The rows of earlier decisions and of this one, oldest first, of a list with a history.
    history: Arc<[R]>,
}

/// The transfers between instances, `link` of `disaggregate`.
#[derive(Clone, Debug)]
pub(super) struct LinkObject(pub RowObject<RoutedRequestRow>);

/// What scripts call the transfers.
pub(super) const LINK: &str = "transfers";

/// What scripts call list number `list` of `shape` in a decision.
pub(super) fn list_name(shape: &RowShape, list: usize) -> &'static str {
    match (shape.name, list) {
        (RunningRow::NAME, _) => "running batch",
        (BandRow::NAME, _) => "list of bands",
        (FlowRow::NAME, _) => "list of flows",
        (InFlightRow::NAME, _) => "list of requests in flight",
        (GroupRow::NAME, _) => "list of groups",
        (ReplicaRow::NAME, _) => "list of replicas",
        (NodeRow::NAME, _) => "list of nodes",
        (ChunkRow::NAME, _) => "list of chunks",
        (_, 0) => "list of instances that decode",
        _ => "list of instances that prefill",
    }
}

/// The rows that policies get lists of.
static LISTS: LazyLock<Vec<RowShape>> = LazyLock::new(|| shapes(|inputs| inputs.lists));

/// The rows that `of` finds among the inputs of all functions, each once.
fn shapes(of: impl Fn(&'static InputShape) -> &'static [RowShape]) -> Vec<RowShape> {
    let mut shapes: Vec<RowShape> = Vec::new();
    for shape in Function::ALL.iter().flat_map(|function| of(&function.row().inputs)) {
        if shapes.iter().all(|known| known.name != shape.name) {
            shapes.push(*shape);
        }
    }
    shapes
}

struct RegisteredRow<'a>(&'a mut Registry);

impl RowVisitor for RegisteredRow<'_> {
    type Output = ();

    fn visit<R: Row + Default + Debug + Send + Sync>(self) {
        row::<R>(self.0);
    }
}

struct RegisteredList<'a>(&'a mut Registry);

impl RowVisitor for RegisteredList<'_> {
    type Output = ();

    fn visit<R: Row + Default + Debug + Send + Sync>(self) {
        rows::<R, 0>(self.0);
    }
}

/// The fields of rows in lists that a script uses, found by the words in its code.
#[derive(Clone, Copy, Debug)]
pub(super) struct UsedRowFields {
    /// A bit for each field, by the number of the row in [`LISTS`].
    fields: [u64; 16],
    /// Whether it may look at earlier decisions.
    history: bool,
}

impl UsedRowFields {
    /// All fields, for views that are built by hand.
    pub const ALL: Self = Self { fields: [u64::MAX; 16], history: true };

    pub fn by(scan: &Scan<'_>) -> Self {
        let is_used = |field: &Field| field.names().any(|name| scan.has_any(&[name]));
        let mut fields = [0; 16];
        for (used, shape) in fields.iter_mut().zip(&*LISTS) {
            let numbers = shape.fields.iter().enumerate().filter(|(_, field)| is_used(field));
            *used = numbers.fold(0, |used, (number, _)| used | 1 << number);
        }
        Self { fields, history: scan.has_any(&["before", "history"]) }
    }

    /// Those of rows of the type `R`.
    fn of<R: Row>(&self) -> u64 {
        LISTS.iter().position(|shape| shape.name == R::NAME).map_or(0, |number| self.fields[number])
    }
}

/// Makes the views of the rows of one call.
#[derive(Clone, Copy)]
pub(super) struct RowViews<'a> {
    /// Time of the decision.
    pub now: Micros,
    pub used: &'a UsedRowFields,
    pub names: &'a NameTexts,
}

impl RowViews<'_> {
    /// Whether the script uses the field `name` of rows of the type `R`.
    pub fn uses<R: Row>(&self, name: &str) -> bool {
        let used = self.used.of::<R>();
        R::FIELDS.iter().position(|field| field.name == name).is_some_and(|number| used & 1 << number != 0)
    }

    /// The view of the first of `rows`.
    pub fn one<R: Row>(&self, rows: &AnyRows<'_>) -> RowObject<R> {
        RowObject { row: rows.typed()[0], now: self.now, saturation: None, names: Arc::clone(self.names) }
    }

    /// The view of the first of `rows`, of any type.
    pub fn any(self, rows: &AnyRows<'_>) -> Dynamic {
        visit_row(rows.shape().name, AnyView { views: self, rows }).unwrap_or_default()
    }

    /// The view of all `rows`.
    pub fn list<R: Row, const LIST: usize>(&self, rows: &AnyRows<'_>) -> RowsObject<R, LIST> {
        let wanted = self.used.of::<R>();
        let column = |(number, field): (usize, &Field)| {
            let rows = rows.bytes().chunks_exact(size_of::<R>());
            (wanted & 1 << number != 0).then(|| Column::new(rows.map(|row| field.number(row))))
        };
        RowsObject(Arc::new(RowsView {
            now: self.now,
            len: rows.len(),
            columns: R::FIELDS.iter().enumerate().map(column).collect(),
            used: *self.used,
            names: Arc::clone(self.names),
            chosen: 0,
            history: Arc::new([]),
        }))
    }
}

struct AnyView<'a> {
    views: RowViews<'a>,
    rows: &'a AnyRows<'a>,
}

impl RowVisitor for AnyView<'_> {
    type Output = Dynamic;

    fn visit<R: Row + Default + Debug + Send + Sync>(self) -> Dynamic {
        Dynamic::from(self.views.one::<R>(self.rows))
    }
}

impl<R: Row> RowObject<R> {
    fn value(&self, field: &Field) -> Dynamic {
        let row = R::bytes(std::slice::from_ref(&self.row));
        match (field.meaning.unit, field.whole(row)) {
            (NumberUnit::Real | NumberUnit::Sum, _) => Dynamic::from_float(field.number(row)),
            (NumberUnit::Name, Some(name)) => text(&self.names, Name(name as u32)),
            (_, Some(number)) => int(number),
            (_, None) => Dynamic::UNIT,
        }
    }
}

impl<R: Row, const LIST: usize> RowsObject<R, LIST> {
    /// The same with the rows of earlier decisions, oldest first, as many for each as there are now.
    pub fn with_history(mut self, history: &[R], rows: &[R]) -> Self {
        if self.0.used.history
            && let Some(view) = Arc::get_mut(&mut self.0)
        {
            view.history = history.iter().chain(rows).copied().collect();
        }
        self
    }

    /// The same with the row at `index` chosen before, or as the one that needs KV blocks.
    pub fn with_chosen(mut self, index: u32) -> Self {
        if let Some(view) = Arc::get_mut(&mut self.0) {
            view.chosen = index;
        }
        self
    }
}

/// A field of a step that is a sum of two others.
type StepSum = fn(&StepRow) -> u64;

const STEP_SUMS: [(&str, StepSum); 2] = [
    ("requests", |step| step.prefill_requests + step.decode_requests),
    ("tokens", |step| step.prefill_tokens + step.decode_requests),
];

pub(super) fn register(to: &mut Registry) {
    for shape in shapes(|inputs| inputs.row.as_slice()) {
        visit_row(shape.name, RegisteredRow(to));
    }
    for shape in LISTS.iter() {
        visit_row(shape.name, RegisteredList(to));
    }
    now::<QueuedRow>(to);
    for (name, sum) in STEP_SUMS {
        to.field(StepRow::WHAT, &[name], move |b: &RowObject<StepRow>| Ok(Dynamic::from_float(sum(&b.row) as f64)));
    }
    now::<BandRow>(to);
    to.field(BandRow::WHAT, &["saturation"], |b: &RowObject<BandRow>| {
        Ok(b.saturation.map_or(Dynamic::UNIT, Dynamic::from_float))
    });
    to.engine.register_type_with_name::<LinkObject>(LINK);
    for field in link_fields() {
        to.field(LINK, &[link_name(field)], move |link: &LinkObject| Ok(link.0.value(field)));
    }
    history(to);
    let decode = list_name(&PoolInstanceRow::SHAPE, 0);
    to.field(decode, &["chosen"], |d: &RowsObject<PoolInstanceRow, 0>| Ok(int(d.0.chosen)));
    rows::<PoolInstanceRow, 1>(to);
    let batch = list_name(&RunningRow::SHAPE, 0);
    to.field(batch, &["requester"], |b: &RowsObject<RunningRow, 0>| Ok(int(b.0.chosen)));
}

/// Whether a field of a routed request is about all transfers: scripts get it as one of `link`.
fn is_of_link(field: &Field) -> bool {
    field.name.starts_with("transfer")
}

/// The name of a field of [`LINK`].
pub(super) fn link_name(field: &Field) -> &'static str {
    field.name.strip_prefix("transfer_").unwrap_or(field.name)
}

/// The fields of [`LINK`].
pub(super) fn link_fields() -> impl Iterator<Item = &'static Field> {
    RoutedRequestRow::FIELDS.iter().filter(|field| is_of_link(field))
}

fn row<R: Row + Send + Sync>(to: &mut Registry) {
    to.engine.register_type_with_name::<RowObject<R>>(R::WHAT);
    for field in R::FIELDS.iter().filter(|field| !is_of_link(field)) {
        let names: Vec<&str> = field.names().collect();
        to.field(R::WHAT, &names, move |one: &RowObject<R>| Ok(one.value(field)));
    }
}

/// The time of the decision, of a row that does not have it.
fn now<R: Row + Send + Sync>(to: &mut Registry) {
    to.field(R::WHAT, &["now", "now_us"], |one: &RowObject<R>| Ok(int(one.now.0)));
}

fn rows<R: Row + Send + Sync, const LIST: usize>(to: &mut Registry) {
    let what = list_name(&R::SHAPE, LIST);
    to.engine.register_type_with_name::<RowsObject<R, LIST>>(what);
    // Times of a batch have the short name only.
    let most = if R::NAME == RunningRow::NAME { 1 } else { usize::MAX };
    for (number, field) in R::FIELDS.iter().enumerate() {
        let names: Vec<&str> = field.names().take(most).collect();
        match field.meaning.unit {
            NumberUnit::Hidden => {}
            // The time of the decision is no column.
            _ if field.name == NOW => {}
            NumberUnit::Name => to.field(what, &names, move |all: &RowsObject<R, LIST>| {
                let numbers = all.0.columns[number].iter().flat_map(|column| column.values());
                let texts = numbers.map(|&name| text(&all.0.names, Name(name as u32)));
                Ok(Dynamic::from_array(texts.collect::<Array>()))
            }),
            _ => names.into_iter().for_each(|name| {
                register_column(to, what, name, move |all: &RowsObject<R, LIST>| all.0.columns[number].as_ref());
            }),
        }
    }
    if has_time(&R::SHAPE) {
        to.field(what, &["now", "now_us"], |all: &RowsObject<R, LIST>| Ok(int(all.0.now.0)));
    }
    register_length(to, what, |all: &RowsObject<R, LIST>| all.0.len);
}

/// The field for the time of the decision.
const NOW: &str = "now_us";

/// Whether decisions about a list of `shape` get the time apart from rows.
fn has_time(shape: &RowShape) -> bool {
    let inputs = Function::ALL.iter().map(|function| &function.row().inputs);
    { inputs }.any(|inputs| inputs.now && inputs.lists.iter().any(|list| list.name == shape.name))
}

/// The groups of earlier decisions.
fn history(to: &mut Registry) {
    type GroupList = RowsObject<GroupRow, 0>;
    let before = |g: &GroupList| (g.0.history.len() / g.0.len.max(1)).saturating_sub(1);
    to.field(list_name(&GroupRow::SHAPE, 0), &["history"], move |g: &GroupList| Ok(int(before(g) as u64)));
    to.add("before", move |g: GroupList, decisions: INT| {
        let (view, before) = (&*g.0, before(&g));
        // Those of the oldest decision if there are fewer, of this one if there is none.
        let back = usize::try_from(decisions.max(0)).unwrap_or(usize::MAX).min(before);
        let known = (before + 1 - back) * view.len;
        let Some((earlier, groups)) = view.history.get(..known).and_then(|all| all.split_at_checked(known - view.len))
        else {
            return g;
        };
        let now = groups.first().map_or(view.now, |group| Micros(group.now_us));
        let views = RowViews { now, used: &view.used, names: &view.names };
        views.list::<GroupRow, 0>(&AnyRows::new(groups)).with_history(earlier, groups)
    });
}
