//! The views of flow control that scripts get: bands, the band of a decision, flows, requests in flight.

use std::sync::Arc;

use blis_abi::{NONE_U32, NONE_U64};
use blis_sim::policy::flow::{Band, Flow, InFlight, ServedTokens};
use blis_sim::request::Name;
use blis_sim::units::Micros;
use rhai::{Array, Dynamic, INT};

use super::column::Column;
use super::registry::Registry;
use super::scan::Scan;
use super::values::{NameTexts, int, register_column, text};

/// What scripts call the views.
pub(super) const BANDS: &str = "list of bands";
pub(super) const BAND: &str = "band";
pub(super) const FLOWS: &str = "list of flows";
pub(super) const IN_FLIGHT: &str = "list of requests in flight";

/// The band of a decision, `b` of `fair_pick` and `evict`.
#[derive(Clone, Copy, Debug)]
pub(super) struct BandObject {
    pub now: Micros,
    /// `None` where it is not known.
    pub saturation: Option<f64>,
    pub band: Band,
}

/// All bands, `b` of `ceilings`.
#[derive(Clone, Debug)]
pub(super) struct BandsObject {
    now: Micros,
    len: usize,
    columns: [Column; BAND_COLUMNS.len()],
}

const BAND_COLUMNS: [&str; 3] = ["priority", "queued", "oldest_wait"];

impl BandsObject {
    pub fn new(now: Micros, bands: &[Band]) -> Self {
        let columns = [
            Column::new(bands.iter().map(|band| f64::from(band.priority))),
            Column::new(bands.iter().map(|band| f64::from(band.queued))),
            Column::new(bands.iter().map(|band| band.oldest_wait_us as f64)),
        ];
        Self { now, len: bands.len(), columns }
    }
}

/// Columns of one view that a script uses, and its lists of texts.
#[derive(Clone, Debug)]
struct UsedColumns<const N: usize> {
    now: Micros,
    len: usize,
    columns: [Option<Column>; N],
    /// Names of tenants, one for each entry; `None` if the script does not use them.
    tenants: Option<Vec<Name>>,
    /// The same of service classes.
    classes: Option<Vec<Name>>,
    names: NameTexts,
}

/// The flows of a band, `f` of `fair_pick`.
#[derive(Clone, Debug)]
pub(super) struct FlowsObject(Arc<UsedColumns<{ FLOW_COLUMNS.len() }>>);

/// The requests in flight, `f` of `evict`.
#[derive(Clone, Debug)]
pub(super) struct InFlightObject(Arc<UsedColumns<{ IN_FLIGHT_COLUMNS.len() }>>);

/// The numbers of a flow. A missing deadline or limit is infinite.
type FlowNumber = fn(&Flow, Micros) -> f64;

const FLOW_COLUMNS: [(&str, FlowNumber); 14] = [
    ("tenant_order", |flow, _| flow.tenant_order.into()),
    ("queued", |flow, _| flow.queued.into()),
    ("in_flight", |flow, _| flow.in_flight.into()),
    ("dispatched", |flow, _| flow.dispatched as f64),
    ("served_input", |flow, _| flow.served_input as f64),
    ("served_output", |flow, _| flow.served_output as f64),
    ("served_decayed", |flow, now| ServedTokens::from(flow).decayed_at(now)),
    ("head_id", |flow, _| flow.head_id.into()),
    ("head_rank", |flow, _| flow.head_rank),
    ("head_turn", |flow, _| flow.head_turn as f64),
    ("head_wait", |flow, _| flow.head_wait_us as f64),
    ("head_deadline", |flow, _| match flow.head_deadline_us {
        NONE_U64 => f64::INFINITY,
        at => at as f64,
    }),
    ("head_input_tokens", |flow, _| flow.head_input_tokens.into()),
    ("head_max_output_tokens", |flow, _| match flow.head_max_output_tokens {
        NONE_U32 => f64::INFINITY,
        limit => limit.into(),
    }),
];

/// The numbers of a request in flight.
type InFlightNumber = fn(&InFlight) -> f64;

const IN_FLIGHT_COLUMNS: [(&str, InFlightNumber); 4] = [
    ("id", |request| request.id.into()),
    ("priority", |request| request.priority.into()),
    ("dispatched_at", |request| request.dispatched_us as f64),
    ("input_tokens", |request| request.input_tokens.into()),
];

/// The fields of flows and of requests in flight that a script uses, found by the words in its code.
#[derive(Clone, Copy, Debug)]
pub(super) struct UsedFlowFields {
    flows: [bool; FLOW_COLUMNS.len()],
    in_flight: [bool; IN_FLIGHT_COLUMNS.len()],
    tenant: bool,
    head_slo_class: bool,
}

impl UsedFlowFields {
    /// All fields, for views that are built by hand.
    pub const ALL: Self = Self {
        flows: [true; FLOW_COLUMNS.len()],
        in_flight: [true; IN_FLIGHT_COLUMNS.len()],
        tenant: true,
        head_slo_class: true,
    };

    pub fn by(scan: &Scan<'_>) -> Self {
        Self {
            flows: FLOW_COLUMNS.map(|(name, _)| scan.has_any(&[name])),
            in_flight: IN_FLIGHT_COLUMNS.map(|(name, _)| scan.has_any(&[name])),
            tenant: scan.has_any(&["tenant"]),
            head_slo_class: scan.has_any(&["head_slo_class"]),
        }
    }
}

impl FlowsObject {
    pub fn new(now: Micros, flows: &[Flow], used: &UsedFlowFields, names: &NameTexts) -> Self {
        let column = |number: usize| {
            let (_, get) = FLOW_COLUMNS[number];
            used.flows[number].then(|| Column::new(flows.iter().map(|flow| get(flow, now))))
        };
        Self(Arc::new(UsedColumns {
            now,
            len: flows.len(),
            columns: std::array::from_fn(column),
            tenants: used.tenant.then(|| flows.iter().map(|flow| Name(flow.tenant)).collect()),
            classes: used.head_slo_class.then(|| flows.iter().map(|flow| Name(flow.head_slo_class)).collect()),
            names: Arc::clone(names),
        }))
    }
}

impl InFlightObject {
    pub fn new(now: Micros, requests: &[InFlight], used: &UsedFlowFields, names: &NameTexts) -> Self {
        let column = |number: usize| {
            let (_, get) = IN_FLIGHT_COLUMNS[number];
            used.in_flight[number].then(|| Column::new(requests.iter().map(get)))
        };
        Self(Arc::new(UsedColumns {
            now,
            len: requests.len(),
            columns: std::array::from_fn(column),
            tenants: used.tenant.then(|| requests.iter().map(|request| Name(request.tenant)).collect()),
            classes: None,
            names: Arc::clone(names),
        }))
    }
}

impl<const N: usize> UsedColumns<N> {
    /// The text of each name. As for columns, the list exists if the script names it.
    fn texts(&self, list: Option<&Vec<Name>>) -> Dynamic {
        let list: Array = list.into_iter().flatten().map(|&name| text(&self.names, name)).collect();
        Dynamic::from_array(list)
    }
}

pub(super) fn register(to: &mut Registry) {
    bands(to);
    band(to);
    flows(to);
    in_flight(to);
}

fn indices(len: usize) -> Dynamic {
    Dynamic::from(Column::new((0..len).map(|i| i as f64)))
}

fn bands(to: &mut Registry) {
    to.engine.register_type_with_name::<BandsObject>(BANDS);
    for (number, name) in BAND_COLUMNS.into_iter().enumerate() {
        register_column(to, BANDS, name, move |b: &BandsObject| Some(&b.columns[number]));
    }
    to.field(BANDS, &["now", "now_us"], |b: &BandsObject| Ok(int(b.now.0)));
    to.field(BANDS, &["len", "n", "count"], |b: &BandsObject| Ok(int(b.len as u64)));
    to.field(BANDS, &["indices"], |b: &BandsObject| Ok(indices(b.len)));
    to.add("len", |b: BandsObject| b.len as INT);
}

fn band(to: &mut Registry) {
    to.engine.register_type_with_name::<BandObject>(BAND);
    to.field(BAND, &["now", "now_us"], |b: &BandObject| Ok(int(b.now.0)));
    to.field(BAND, &["saturation"], |b: &BandObject| Ok(b.saturation.map_or(Dynamic::UNIT, Dynamic::from_float)));
    to.field(BAND, &["priority"], |b: &BandObject| Ok(int(b.band.priority)));
    to.field(BAND, &["queued"], |b: &BandObject| Ok(int(b.band.queued)));
    to.field(BAND, &["oldest_wait", "oldest_wait_us"], |b: &BandObject| Ok(int(b.band.oldest_wait_us)));
}

fn flows(to: &mut Registry) {
    to.engine.register_type_with_name::<FlowsObject>(FLOWS);
    for (number, (name, _)) in FLOW_COLUMNS.into_iter().enumerate() {
        register_column(to, FLOWS, name, move |f: &FlowsObject| f.0.columns[number].as_ref());
    }
    to.field(FLOWS, &["tenant"], |f: &FlowsObject| Ok(f.0.texts(f.0.tenants.as_ref())));
    to.field(FLOWS, &["head_slo_class"], |f: &FlowsObject| Ok(f.0.texts(f.0.classes.as_ref())));
    to.field(FLOWS, &["now", "now_us"], |f: &FlowsObject| Ok(int(f.0.now.0)));
    to.field(FLOWS, &["len", "n", "count"], |f: &FlowsObject| Ok(int(f.0.len as u64)));
    to.field(FLOWS, &["indices"], |f: &FlowsObject| Ok(indices(f.0.len)));
    to.add("len", |f: FlowsObject| f.0.len as INT);
}

fn in_flight(to: &mut Registry) {
    to.engine.register_type_with_name::<InFlightObject>(IN_FLIGHT);
    for (number, (name, _)) in IN_FLIGHT_COLUMNS.into_iter().enumerate() {
        register_column(to, IN_FLIGHT, name, move |f: &InFlightObject| f.0.columns[number].as_ref());
    }
    to.field(IN_FLIGHT, &["tenant"], |f: &InFlightObject| Ok(f.0.texts(f.0.tenants.as_ref())));
    to.field(IN_FLIGHT, &["now", "now_us"], |f: &InFlightObject| Ok(int(f.0.now.0)));
    to.field(IN_FLIGHT, &["len", "n", "count"], |f: &InFlightObject| Ok(int(f.0.len as u64)));
    to.field(IN_FLIGHT, &["indices"], |f: &InFlightObject| Ok(indices(f.0.len)));
    to.add("len", |f: InFlightObject| f.0.len as INT);
}
