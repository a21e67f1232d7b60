//! The views that scripts get besides rows: a request, the cluster as columns, an event. A column is built
//! only if its name occurs in the script.

use std::sync::Arc;

use blis_sim::ids::RequestId;
use blis_sim::policy::{ClientTargets, ClusterView, Event, EventKind, Reads, RequestView};
use blis_sim::request::{Name, Tags};
use blis_sim::units::Micros;
use rhai::{Dynamic, INT};

use super::call::{self, failure};
use super::column::Column;
use super::registry::{Registry, ScriptError};
use super::rows::UsedRowFields;
use super::scan::Scan;
use super::values::{NameTexts, int, optional, register_column, register_length, text};
use crate::limits::ROW_NUMBERS;
use crate::rows::{LatestView, OutdatedEntries, TakeValues, each_value, reads_of, update};
use blis_sim::request::session_text;

type NameOf = fn(&Tags) -> Name;

/// Numbers for names, equal for equal names, 0 without one: keys of tables that need no text.
const NAME_NUMBERS: [(&str, NameOf); 4] = [
    ("slo_class_number", |tags| tags.slo_class),
    ("tenant_number", |tags| tags.tenant),
    ("session_number", |tags| tags.session),
    ("prefix_group_number", |tags| tags.prefix_group),
];

/// The request, `r` in scripts.
#[derive(Clone, Debug)]
pub(super) struct RequestObject(pub Arc<RequestFields>);

#[derive(Clone, Debug)]
pub(super) struct RequestFields {
    id: RequestId,
    now: Micros,
    arrival: Micros,
    deadline: Option<Micros>,
    client_priority: Option<i32>,
    max_output_tokens: Option<u32>,
    input_tokens: u32,
    prompt_blocks: u32,
    shared_blocks: u32,
    block_size: u32,
    class_priority: i32,
    targets: ClientTargets,
    tags: Tags,
    /// `None` for policies that do not get the cluster.
    tenant_in_flight: Option<u32>,
    blocks: Option<Column>,
    names: NameTexts,
}

impl RequestFields {
    pub fn new(
        request: &RequestView<'_>,
        now: Micros,
        tenant_in_flight: Option<u32>,
        used_fields: &UsedFields,
        names: &NameTexts,
    ) -> Self {
        Self {
            id: request.id,
            now,
            arrival: request.arrival,
            deadline: request.deadline,
            client_priority: request.client_priority,
            max_output_tokens: request.max_output_tokens,
            input_tokens: request.input_tokens,
            prompt_blocks: request.prompt_blocks,
            shared_blocks: request.shared_block_count(),
            block_size: request.block_size,
            class_priority: request.class_priority,
            targets: request.targets,
            tags: request.tags,
            tenant_in_flight,
            blocks: used_fields.blocks.then(|| Column::new(request.shared_blocks().map(f64::from))),
            names: Arc::clone(names),
        }
    }
}

/// The cluster, `s` in scripts.
#[derive(Clone, Debug)]
pub(super) struct ClusterObject(pub Arc<ClusterFields>);

#[derive(Clone, Debug, Default)]
pub(super) struct ClusterFields {
    now: Micros,
    load_staleness: Micros,
    cached_blocks_staleness: Micros,
    len: usize,
    columns: [Option<Column>; COLUMNS],
    latest: LatestView,
}

/// One instance, `s[i]` in scripts.
#[derive(Clone, Debug)]
pub(super) struct InstanceObject {
    cluster: Arc<ClusterFields>,
    index: usize,
}

/// Number of columns: those of the interface, and `effective_load`. At most 64.
const COLUMNS: usize = EFFECTIVE_LOAD + 1;
/// Index of the column that the host computes from three others.
const EFFECTIVE_LOAD: usize = crate::Column::ALL.len();
/// Those others.
const EFFECTIVE_LOAD_PARTS: [crate::Column; 3] =
    [crate::Column::QueueDepth, crate::Column::BatchSize, crate::Column::InFlight];

/// The field of the column at `number`.
fn column_name(number: usize) -> &'static str {
    crate::Column::ALL.get(number).map_or("effective_load", |column| column.field())
}

/// The fields that a script uses, found by the words in its code.
#[derive(Clone, Copy, Debug)]
pub(super) struct UsedFields {
    /// A bit for each column.
    columns: u64,
    blocks: bool,
    staleness: [bool; 2],
    tenants: bool,
    pub changed: bool,
    /// Those of rows in lists.
    pub rows: UsedRowFields,
}

impl UsedFields {
    /// All fields, for views that are built by hand.
    pub const ALL: Self = Self {
        columns: u64::MAX >> (u64::BITS as usize - COLUMNS),
        blocks: true,
        staleness: [true; 2],
        tenants: true,
        changed: true,
        rows: UsedRowFields::ALL,
    };

    pub fn by(scan: &Scan<'_>) -> Self {
        Self {
            columns: (0..COLUMNS)
                .filter(|&number| scan.has_any(&[column_name(number)]))
                .fold(0, |columns, number| columns | 1 << number),
            blocks: scan.has_any(&["blocks"]),
            staleness: [&["load_staleness", "load_us"], &["cached_blocks_staleness", "cached_blocks_us"]]
                .map(|names| scan.has_any(names)),
            tenants: scan.has_any(&["tenant_in_flight"]),
            changed: scan.has_any(&["changed"]),
            rows: UsedRowFields::by(scan),
        }
    }

    /// The columns of the interface among these fields; `effective_load` is computed from three of them.
    pub fn columns(&self) -> Vec<crate::Column> {
        let is_used = |number: usize| self.columns & 1 << number != 0;
        let parts: &[_] = if is_used(EFFECTIVE_LOAD) { &EFFECTIVE_LOAD_PARTS } else { &[] };
        let all = crate::Column::ALL.iter().copied().enumerate();
        all.filter(|(number, column)| is_used(*number) || parts.contains(column)).map(|(_, column)| column).collect()
    }

    /// Whether views with these fields have all that `other` uses of a request and of the cluster.
    pub fn cover(&self, other: &Self) -> bool {
        other.columns & !self.columns == 0 && self.blocks >= other.blocks
    }

    /// These fields, and those of a request and of the cluster that `other` uses.
    pub fn and(self, other: &Self) -> Self {
        Self { columns: self.columns | other.columns, blocks: self.blocks | other.blocks, ..self }
    }

    /// The columns that the host must keep up to date for these fields.
    pub fn reads(&self) -> Reads {
        let [load, cached_blocks] = self.staleness;
        let others = Reads { load, cached_blocks, in_flight: self.tenants, ..Reads::NOTHING };
        reads_of(&self.columns()).and(others)
    }
}

impl ClusterFields {
    /// Updates the columns that are `used_fields`, for a decision about `request`, if it is about one.
    pub fn update(&mut self, request: Option<&RequestView<'_>>, cluster: &ClusterView<'_>, used_fields: &UsedFields) {
        let since = self.latest.advance(cluster);
        self.now = cluster.now;
        self.load_staleness = cluster.staleness.load;
        self.cached_blocks_staleness = cluster.staleness.cached_blocks;
        self.len = cluster.len();
        let mut left = used_fields.columns;
        while left != 0 {
            let number = left.trailing_zeros() as usize;
            left &= left - 1;
            let column = self.columns[number].get_or_insert_with(|| Column::new([]));
            let Some(&of) = crate::Column::ALL.get(number) else {
                column.refill((0..cluster.len()).map(|i| cluster.effective_load(i) as f64));
                continue;
            };
            match since.outdated(of.group()) {
                OutdatedEntries::None | OutdatedEntries::At([]) => {}
                OutdatedEntries::At(changed) => update(column.entries(), 1, 0, of, changed, cluster.signals),
                OutdatedEntries::All => {
                    each_value(of, request, cluster, EntriesToFill(column.entries_to_fill(cluster.len())));
                }
            }
        }
    }
}

/// The entries of a column, all of which are set.
struct EntriesToFill<'a>(&'a mut [f64]);

impl TakeValues for EntriesToFill<'_> {
    fn take(self, values: impl Iterator<Item = f64>) {
        self.0.iter_mut().zip(values).for_each(|(entry, value)| *entry = value);
    }
}

/// The event, `e` of `observe`.
#[derive(Clone, Debug)]
pub(super) struct EventObject {
    pub event: Event,
    pub names: NameTexts,
}

pub(super) fn register(to: &mut Registry) {
    request(to);
    cluster(to);
    event(to);
    super::rows::register(to);
}

/// The numbers of sessions follow those of the other names.
fn session(names: &NameTexts, name: Name) -> Dynamic {
    session_text(names, name).into_owned().into()
}

fn request(to: &mut Registry) {
    const WHAT: &str = "request";
    to.engine.register_type_with_name::<RequestObject>(WHAT);
    let mut int_field = |names: &[&'static str], get: fn(&RequestFields) -> Dynamic| {
        to.field(WHAT, names, move |r: &RequestObject| Ok(get(&r.0)));
    };
    int_field(&["id"], |r| int(r.id.0));
    int_field(&["now", "now_us"], |r| int(r.now.0));
    int_field(&["arrival", "arrival_us"], |r| int(r.arrival.0));
    int_field(&["deadline", "deadline_us"], |r| optional(r.deadline.map(|at| at.0)));
    int_field(&["slo_ttft", "slo_ttft_us"], |r| optional(r.targets.ttft.map(|target| target.0)));
    int_field(&["slo_itl", "slo_itl_us"], |r| optional(r.targets.itl.map(|target| target.0)));
    int_field(&["adapter"], |_| "".into());
    int_field(&["input_tokens", "prompt_tokens"], |r| int(r.input_tokens));
    int_field(&["max_output_tokens", "max_tokens"], |r| optional(r.max_output_tokens));
    int_field(&["prompt_blocks"], |r| int(r.prompt_blocks));
    int_field(&["shared_blocks"], |r| int(r.shared_blocks));
    int_field(&["block_size"], |r| int(r.block_size));
    int_field(&["class_priority"], |r| int(r.class_priority));
    int_field(&["client_priority"], |r| optional(r.client_priority));
    int_field(&["round_index"], |r| int(r.tags.round_index));
    int_field(&["slo_class"], |r| text(&r.names, r.tags.slo_class));
    int_field(&["tenant"], |r| text(&r.names, r.tags.tenant));
    int_field(&["session"], |r| session(&r.names, r.tags.session));
    int_field(&["model"], |r| text(&r.names, r.tags.model));
    int_field(&["client"], |r| text(&r.names, r.tags.client));
    int_field(&["prefix_group"], |r| text(&r.names, r.tags.prefix_group));
    int_field(&["tenant_in_flight"], |r| optional(r.tenant_in_flight));
    for (field, get) in NAME_NUMBERS {
        to.field(WHAT, &[field], move |r: &RequestObject| Ok(int(get(&r.0.tags).0)));
    }
    register_column(to, WHAT, "blocks", |r: &RequestObject| r.0.blocks.as_ref());
}

fn cluster(to: &mut Registry) {
    const WHAT: &str = "cluster";
    to.engine.register_type_with_name::<ClusterObject>(WHAT);
    to.engine.register_type_with_name::<InstanceObject>("instance");
    for (number, name) in (0..COLUMNS).map(|number| (number, column_name(number))) {
        register_column(to, WHAT, name, move |s: &ClusterObject| s.0.columns[number].as_ref());
        to.field("instance", &[name], move |x: &InstanceObject| {
            let column = x.cluster.columns[number].as_ref();
            let column = column.ok_or_else(|| failure(format!("the column `{name}` was not prepared")))?;
            Ok(Dynamic::from_float(column.values()[x.index]))
        });
    }
    to.field("instance", &["index"], |x: &InstanceObject| Ok(int(x.index as u64)));
    register_length(to, WHAT, |s: &ClusterObject| s.0.len);
    to.field(WHAT, &["now", "now_us"], |s: &ClusterObject| Ok(int(s.0.now.0)));
    to.field(WHAT, &["load_staleness", "load_us"], |s: &ClusterObject| Ok(int(s.0.load_staleness.0)));
    to.field(WHAT, &["cached_blocks_staleness", "cached_blocks_us"], |s: &ClusterObject| {
        Ok(int(s.0.cached_blocks_staleness.0))
    });
    to.engine.register_indexer_get(|s: &mut ClusterObject, index: INT| -> Result<InstanceObject, ScriptError> {
        let inside = usize::try_from(index).ok().filter(|&index| index < s.0.len);
        let index = inside.ok_or_else(|| failure(format!("there is no instance {index}: there are {}", s.0.len)))?;
        Ok(InstanceObject { cluster: Arc::clone(&s.0), index })
    });
    to.engine.register_iterator::<ClusterObject>();
}

impl IntoIterator for ClusterObject {
    type Item = InstanceObject;
    type IntoIter = std::vec::IntoIter<InstanceObject>;

    fn into_iter(self) -> Self::IntoIter {
        call::charge_later(self.0.len.saturating_add(1).saturating_mul(ROW_NUMBERS));
        let one = |index| InstanceObject { cluster: Arc::clone(&self.0), index };
        (0..self.0.len).map(one).collect::<Vec<_>>().into_iter()
    }
}

fn event(to: &mut Registry) {
    const WHAT: &str = "event";
    to.engine.register_type_with_name::<EventObject>(WHAT);
    to.field(WHAT, &["kind"], |e: &EventObject| Ok(kind_name(e.event.kind).into()));
    to.field(WHAT, &["at", "at_us", "now"], |e: &EventObject| Ok(int(e.event.at.0)));
    to.field(WHAT, &["request", "id"], |e: &EventObject| Ok(int(e.event.request.0)));
    to.field(WHAT, &["instance"], |e: &EventObject| Ok(optional(e.event.instance.map(|instance| instance.0))));
    to.field(WHAT, &["input_tokens"], |e: &EventObject| Ok(int(e.event.input_tokens)));
    to.field(WHAT, &["generated_tokens"], |e: &EventObject| Ok(int(e.event.generated_tokens)));
    to.field(WHAT, &["ttft", "ttft_us"], |e: &EventObject| Ok(optional(e.event.ttft.map(|us| us.0))));
    to.field(WHAT, &["e2e", "e2e_us"], |e: &EventObject| Ok(optional(e.event.e2e.map(|us| us.0))));
    to.field(WHAT, &["block"], |e: &EventObject| Ok(int(e.event.block)));
    let texts: [(&'static str, NameOf); 6] = [
        ("slo_class", |tags| tags.slo_class),
        ("tenant", |tags| tags.tenant),
        ("session", |tags| tags.session),
        ("model", |tags| tags.model),
        ("client", |tags| tags.client),
        ("prefix_group", |tags| tags.prefix_group),
    ];
    for (name, get) in texts {
        to.field(WHAT, &[name], move |e: &EventObject| Ok(text(&e.names, get(&e.event.tags))));
    }
    for (field, get) in NAME_NUMBERS {
        to.field(WHAT, &[field], move |e: &EventObject| Ok(int(get(&e.event.tags).0)));
    }
}

fn kind_name(kind: EventKind) -> &'static str {
    match kind {
        EventKind::Routed => "routed",
        EventKind::FirstToken => "first_token",
        EventKind::Completed => "completed",
        EventKind::Ended => "ended",
        EventKind::Rejected => "rejected",
        EventKind::BlockStored => "block_stored",
        EventKind::BlockEvicted => "block_evicted",
    }
}
