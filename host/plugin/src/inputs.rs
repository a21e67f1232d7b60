//! Inputs with which plugins are checked and measured: situations generated from a seed, equal on every machine, some
//! plausible and some extreme.

use std::fmt::Debug;
use std::sync::Arc;

use blis_abi::decisions::{Area, NumberOf, OutputShape};
use blis_abi::{AnyRows, Field, Primitive, Row, RowShape, Unit};
use blis_sim::ids::{InstanceIndex, RequestId};
use blis_sim::latency::Batch;
use blis_sim::policy::{
    AdapterSlotUse, AdmissionDecision, BatchView, Changes, ClientTargets, ClusterView, Event, EventKind, Events,
    InstanceInfo, Reads, RequestView, Signals, Staleness, StepMemory, Ties, Versions,
};
use blis_sim::request::{Content, Name, Request, Span, Tags};
use blis_sim::rng::{Generator, Stream};
use blis_sim::units::Micros;
use rand::RngExt as _;

use super::fields::{NamedInstances, NamedRequest};
use super::limits::LONGEST_US;
use super::rows::{NONE_U32, QueuedRow, first_nan, number_of, step_row};
use super::{Fault, FaultKind, Function, Guest, Inputs, Kind, Output};

mod disaggregation;
mod flow;
mod kv_cache;
mod replicas;
mod scaling;

pub use flow::{GatewayState, names};
pub(crate) use scaling::replicas_of;

const BLOCK_SIZE: u32 = 16;
/// Maximum batch size of every instance (sequences).
const MAX_NUM_SEQS: u32 = 256;
const TOTAL_KV_BLOCKS: u32 = 20_000;

/// The texts of all names that occur in the generated situations.
pub const NAMES: [&str; 12] = [
    "",
    "critical",
    "standard",
    "batch",
    "tenant-a",
    "tenant-b",
    "tenant-c",
    "session-1",
    "session-2",
    "model-x",
    "client-1",
    "group-1",
];

/// The tie-breaking of all calls in the checks.
#[must_use]
pub fn ties() -> Ties {
    Ties::Random(Stream::new(42, "router"))
}

/// The configuration of each instance of a service of `n`.
#[must_use]
pub fn instances(n: usize) -> Vec<InstanceInfo> {
    let info = |id| InstanceInfo {
        id,
        max_num_seqs: MAX_NUM_SEQS,
        total_kv_blocks: TOTAL_KV_BLOCKS,
        block_size: BLOCK_SIZE,
        ..InstanceInfo::default()
    };
    (0..n).map(InstanceIndex::at).map(info).collect()
}

/// A request, and the state of the service at the time of a decision about it.
#[derive(Clone, Debug)]
pub struct DecisionPoint {
    now: Micros,
    request: Request,
    class_priority: i32,
    targets: ClientTargets,
    instances: Vec<InstanceInfo>,
    signals: Signals,
    staleness: Staleness,
    versions: Versions,
    tenants_in_flight: Vec<u32>,
    /// [`ClusterView::scores`].
    scores: Vec<f64>,
    block_size: u32,
}

impl DecisionPoint {
    /// A decision about `request` in a service of `instances`.
    pub(crate) fn new(request: &NamedRequest, instances: &NamedInstances, staleness: Staleness) -> Self {
        let mut tenants_in_flight = vec![0; request.request.tags.tenant.index() + 1];
        tenants_in_flight[request.request.tags.tenant.index()] = request.tenant_in_flight;
        Self {
            now: request.now(),
            request: request.request.clone(),
            class_priority: request.class_priority,
            targets: request.targets,
            instances: instances.infos.clone(),
            signals: instances.signals.clone(),
            staleness,
            versions: Versions::default(),
            tenants_in_flight,
            scores: instances.scores(),
            block_size: request.block_size,
        }
    }

    /// Situation number `item` of a service of `n` instances under load.
    #[must_use]
    pub fn plausible(n: usize, item: u64) -> Self {
        let mut rng = generator("scene", item);
        let rng = &mut rng;
        let now = Micros(1_000 * item + rng.random_range(0..1_000));
        let request = request(RequestId(item as u32), now, rng);
        let blocks = request.input_tokens / BLOCK_SIZE;
        let column = |rng: &mut Generator, most: u32| (0..n).map(|_| rng.random_range(0..=most)).collect::<Vec<u32>>();
        let batch_size = column(rng, 64);
        let free_kv_blocks: Vec<u32> = column(rng, TOTAL_KV_BLOCKS);
        let used = |&free: &u32| f64::from(TOTAL_KV_BLOCKS - free) / f64::from(TOTAL_KV_BLOCKS);
        let signals = Signals {
            queue_depth: column(rng, 12),
            in_flight: batch_size.iter().map(|&running| running + rng.random_range(0..=9)).collect(),
            kv_utilization: free_kv_blocks.iter().map(used).collect(),
            cache_hit_rate: (0..n).map(|_| rng.random_range(0.0..=1.0)).collect(),
            preemption_count: (0..n).map(|_| rng.random_range(0..50)).collect(),
            cached_blocks: column(rng, blocks),
            batch_size,
            free_kv_blocks,
            ..measured(n, item)
        };
        Self {
            now,
            request,
            class_priority: rng.random_range(-3..=4),
            targets: ClientTargets::default(),
            instances: instances(n),
            signals,
            staleness: Staleness {
                load: Micros(rng.random_range(0..50_000)),
                cached_blocks: Micros(rng.random_range(0..50_000)),
                in_flight: Micros::ZERO,
            },
            versions: Versions::default(),
            tenants_in_flight: column_of_tenants(rng),
            scores: Vec::new(),
            block_size: BLOCK_SIZE,
        }
    }

    /// Situations with values at the limits of their ranges, by name.
    #[must_use]
    pub fn extreme(n: usize) -> Vec<(&'static str, Self)> {
        let usual = Self::plausible(n, 7);
        let all = |load: u32, share: f64, point: &Self| {
            let mut point = point.clone();
            point.signals = Signals {
                queue_depth: vec![load; n],
                batch_size: vec![load; n],
                kv_utilization: vec![share; n],
                free_kv_blocks: vec![if share > 0.5 { 0 } else { TOTAL_KV_BLOCKS }; n],
                cache_hit_rate: vec![share; n],
                preemption_count: vec![load.into(); n],
                in_flight: vec![load; n],
                cached_blocks: vec![if load == 0 { 0 } else { point.request.input_tokens / BLOCK_SIZE }; n],
                cpu_cached_blocks: vec![if load == 0 { 0 } else { point.request.input_tokens / BLOCK_SIZE }; n],
                waiting_tokens: vec![u64::from(load) * 1000; n],
                adapter_active: vec![u32::from(load > 0); n],
                adapter_waiting: vec![u32::from(load > 0); n],
                free_adapter_slots: vec![load; n],
                adapter_slots: AdapterSlotUse::Requested,
                in_flight_tokens: vec![u64::from(load) * 1000; n],
                in_flight_output: vec![u64::from(load) * 1500; n],
                ttft_ewma: vec![f64::from(load) * 1e3; n],
                itl_ewma: vec![f64::from(load) * 10.0; n],
            };
            point
        };
        let mut smallest = all(0, 0.0, &usual);
        smallest.now = Micros::ZERO;
        smallest.request = Request::new(RequestId(0), Micros::ZERO, 1, 1);
        smallest.class_priority = i32::MIN;
        let mut largest = all(u32::MAX, 1.0, &usual);
        largest.now = Micros(i64::MAX.cast_unsigned());
        largest.staleness = Staleness { load: largest.now, cached_blocks: largest.now, in_flight: Micros::ZERO };
        largest.class_priority = i32::MAX;
        largest.targets = ClientTargets { ttft: Some(largest.now), itl: Some(largest.now) };
        largest.request.arrival = Micros::ZERO;
        largest.request.input_tokens = u32::MAX;
        largest.request.max_output_tokens = Some(u32::MAX - 1);
        largest.request.deadline = Some(largest.now);
        largest.request.client_priority = Some(i32::MAX);
        largest.signals.preemption_count.fill(u64::MAX);
        largest.tenants_in_flight.fill(u32::MAX);
        let mut one_idle = all(30, 0.9, &usual);
        if let Some(last) = n.checked_sub(1) {
            let signals = &mut one_idle.signals;
            (signals.queue_depth[last], signals.batch_size[last], signals.in_flight[last]) = (0, 0, 0);
            (signals.kv_utilization[last], signals.free_kv_blocks[last]) = (0.0, TOTAL_KV_BLOCKS);
        }
        vec![
            ("everything 0", smallest),
            ("everything as large as it can be", largest),
            ("all instances equal", all(5, 0.25, &usual)),
            ("one instance idle", one_idle),
        ]
    }

    /// The request as policies get it.
    #[must_use]
    pub fn request(&self) -> RequestView<'_> {
        RequestView::new(&self.request, self.class_priority, self.block_size).with_targets(self.targets)
    }

    /// The service as policies get it.
    #[must_use]
    pub fn cluster(&self) -> ClusterView<'_> {
        ClusterView {
            now: self.now,
            instances: &self.instances,
            signals: &self.signals,
            staleness: self.staleness,
            versions: self.versions,
            in_flight_changes: Changes::UNKNOWN,
            tenants_in_flight: &self.tenants_in_flight,
            scores: &self.scores,
        }
    }

    /// The same situation with the signals of `other`, except those that change at every decision.
    fn with_load_of(mut self, other: &Self, versions: Versions) -> Self {
        let Signals { in_flight, cached_blocks, in_flight_tokens, in_flight_output, ttft_ewma, itl_ewma, .. } =
            self.signals;
        self.signals = Signals {
            in_flight,
            cached_blocks,
            in_flight_tokens,
            in_flight_output,
            ttft_ewma,
            itl_ewma,
            ..other.signals.clone()
        };
        self.versions = versions;
        self
    }
}

/// Calls for measuring. Those that read the instances use as many services in turn ("cold"): their signals lie far
/// apart in memory, and the indices that changed are unknown.
#[must_use]
pub fn traffic(kind: Kind, n: usize) -> Vec<GuestCall> {
    const CALLS: u64 = 64;
    const PER_REPORT: u64 = 16;
    let call = |item: u64| {
        let report = item / PER_REPORT;
        let versions = Versions { load: 1 + report, cached_blocks: 1 + item, instances: 0 };
        let mut call = GuestCall::plausible(kind, n, item);
        if let GuestCall::Decide(function, inputs) = &mut call
            && function.row().inputs.cluster
            && let Some(point) = &mut inputs.point
        {
            let reported = DecisionPoint::plausible(n, report * PER_REPORT);
            *point = point.clone().with_load_of(&reported, versions);
        }
        call
    };
    // A simulation calls a latency model for steps far more often than for queueing times.
    (0..CALLS).map(call).filter(|call| call.function() != Some(Function::QueueingTime)).collect()
}

/// A service of `n` instances in the course of a run, for decisions that read the instances: little changes between two
/// decisions, and the indices that changed are known.
///
/// Requests arrive at 20 per second and instance and instances report every 50 ms, so one instance reports every `n`
/// decisions; for each request that is routed another one ends.
#[derive(Clone, Debug)]
pub struct SyntheticService {
    point: DecisionPoint,
    requests: Vec<(Request, i32)>,
    /// The signals that the instances report in turn.
    reports: Vec<Signals>,
    /// Log of the changes of the router's columns: the number of entries dropped from its start, and the rest.
    changes: (u64, Vec<u32>),
    decisions: usize,
}

impl SyntheticService {
    /// A service of `n` instances, at least 1.
    #[must_use]
    pub fn new(n: usize) -> Self {
        let points: Vec<_> = (0..64).map(|item| DecisionPoint::plausible(n, item)).collect();
        Self {
            point: DecisionPoint {
                versions: Versions { load: 1, cached_blocks: 1, instances: 0 },
                ..points[0].clone()
            },
            reports: points[..4].iter().map(|point| point.signals.clone()).collect(),
            requests: points.into_iter().map(|point| (point.request, point.class_priority)).collect(),
            changes: (0, Vec::with_capacity(2 * Self::REMEMBERED)),
            decisions: 0,
        }
    }

    /// Approximate number of log entries that are kept.
    const REMEMBERED: usize = 4096;

    /// Advances to the next decision. Signals that no policy `reads` stay as they are, as in a simulation.
    pub fn advance(&mut self, reads: Reads) {
        let (n, number, point) = (self.point.instances.len(), self.decisions, &mut self.point);
        self.decisions += 1;
        let signals = &mut point.signals;
        if reads.load && number % n == 0 {
            let report = &self.reports[number / n % self.reports.len()];
            signals.queue_depth.copy_from_slice(&report.queue_depth);
            signals.batch_size.copy_from_slice(&report.batch_size);
            signals.kv_utilization.copy_from_slice(&report.kv_utilization);
            signals.free_kv_blocks.copy_from_slice(&report.free_kv_blocks);
            signals.cache_hit_rate.copy_from_slice(&report.cache_hit_rate);
            signals.preemption_count.copy_from_slice(&report.preemption_count);
            signals.waiting_tokens.copy_from_slice(&report.waiting_tokens);
            signals.adapter_active.copy_from_slice(&report.adapter_active);
            signals.adapter_waiting.copy_from_slice(&report.adapter_waiting);
            signals.free_adapter_slots.copy_from_slice(&report.free_adapter_slots);
            point.versions.load += 1;
        }
        if reads.cached_blocks {
            signals.cached_blocks.copy_from_slice(&self.reports[number % self.reports.len()].cached_blocks);
            point.versions.cached_blocks += 1;
        }
        let (forgotten, recent) = &mut self.changes;
        if recent.len() >= Self::REMEMBERED {
            *forgotten += recent.len() as u64;
            recent.clear();
        }
        let (came, ended) = (number * 7 % n, number * 13 % n);
        signals.in_flight[came] += 1;
        signals.in_flight[ended] = signals.in_flight[ended].saturating_sub(1);
        if reads.tokens {
            signals.in_flight_tokens[came] += 500;
            signals.in_flight_output[came] += 750;
            signals.in_flight_tokens[ended] = signals.in_flight_tokens[ended].saturating_sub(500);
            signals.in_flight_output[ended] = signals.in_flight_output[ended].saturating_sub(750);
        }
        if reads.latencies {
            signals.ttft_ewma[ended] = 0.9 * signals.ttft_ewma[ended] + 1e4;
            signals.itl_ewma[ended] = 0.9 * signals.itl_ewma[ended] + 1e3;
        }
        recent.extend([came as u32, ended as u32]);
    }

    /// The request that the next decision is about.
    #[must_use]
    pub fn request(&self) -> RequestView<'_> {
        let (request, class_priority) = &self.requests[self.decisions % self.requests.len()];
        RequestView::new(request, *class_priority, BLOCK_SIZE)
    }

    /// The service as policies get it.
    #[must_use]
    pub fn cluster(&self) -> ClusterView<'_> {
        let (forgotten, recent) = &self.changes;
        ClusterView { in_flight_changes: Changes::new(*forgotten, recent), ..self.point.cluster() }
    }
}

/// The decision of `guest`, of a kind that reads the instances, without a check of the output; scores and the numbers of a filter,
/// for which `memory` is that of its pipeline, are appended to `numbers`.
///
/// # Errors
/// If the guest fails, or is of another kind.
pub fn decide(
    guest: &mut dyn Guest,
    request: &RequestView<'_>,
    cluster: &ClusterView<'_>,
    memory: &mut StepMemory,
    numbers: &mut Vec<f64>,
) -> Result<Output, Fault> {
    let ties = &ties();
    match guest.kind() {
        Kind::Admission => guest.admit(request, cluster).map(Output::Decision),
        Kind::RoutingFilter => guest.filter(request, cluster, ties, Some(memory), numbers).map(|()| Output::Numbers),
        Kind::Saturation => guest.saturation(cluster).map(Output::Number),
        _ => guest.route(request, cluster, ties, numbers).map(Output::Index),
    }
}

fn generator(what: &str, item: u64) -> Generator {
    Stream::new(42, what).at(item)
}

/// The columns of tokens and latencies in situation number `item`; the others are empty. Drawn apart from the others, which
/// are as before there were these.
fn measured(n: usize, item: u64) -> Signals {
    let mut rng = generator("measures", item);
    let mut column = |most: u64| (0..n).map(|_| rng.random_range(0..=most)).collect::<Vec<u64>>();
    let few = |column: Vec<u64>| column.into_iter().map(|value| value as u32).collect();
    Signals {
        waiting_tokens: column(40_000),
        in_flight_tokens: column(60_000),
        in_flight_output: column(90_000),
        ttft_ewma: column(2_000_000).into_iter().map(|us| us as f64).collect(),
        itl_ewma: column(60_000).into_iter().map(|us| us as f64).collect(),
        adapter_active: few(column(1)),
        adapter_waiting: few(column(1)),
        free_adapter_slots: few(column(3)),
        adapter_slots: AdapterSlotUse::Requested,
        ..Signals::default()
    }
}

fn column_of_tenants(rng: &mut Generator) -> Vec<u32> {
    (0..NAMES.len()).map(|_| rng.random_range(0..20)).collect()
}

fn request(id: RequestId, now: Micros, rng: &mut Generator) -> Request {
    let mut request = Request::new(id, now, rng.random_range(1..4_000), 100);
    request.max_output_tokens = rng.random_bool(0.5).then(|| rng.random_range(1..2_000));
    request.deadline = rng.random_bool(0.3).then(|| Micros(now.0 + rng.random_range(1..60_000_000)));
    request.client_priority = rng.random_bool(0.2).then(|| rng.random_range(-5..=5));
    request.tags = tags(rng);
    let shared = rng.random_range(0..=request.input_tokens / BLOCK_SIZE);
    request.content = Content::shared(&[Span { first: rng.random_range(0..8) * 1_000, len: shared }]);
    request
}

fn tags(rng: &mut Generator) -> Tags {
    let mut one_of = |first: u32, count: u32| Name(rng.random_range(first..first + count));
    Tags {
        slo_class: one_of(1, 3),
        tenant: one_of(4, 3),
        session: one_of(7, 2),
        model: one_of(9, 1),
        client: one_of(10, 1),
        prefix_group: one_of(11, 1),
        round_index: 0,
        adapter: Name::NONE,
    }
}

/// A running batch of `n` requests, number `item`.
pub(crate) fn batch(n: usize, item: u64) -> BatchView {
    let mut rng = generator("batch", item);
    let rng = &mut rng;
    let now = Micros(100_000_000 + 1_000 * item);
    let mut batch = BatchView { now, last_of_ties: true, ..BatchView::default() };
    for index in 0..n as u32 {
        let input: u32 = rng.random_range(1..4_000);
        let generated = rng.random_range(0..500);
        batch.id.push(RequestId(index + item as u32));
        batch.priority.push(rng.random_range(-5..=5));
        batch.arrival.push(Micros(now.0 - rng.random_range(0..50_000_000)));
        batch.deadline.push(rng.random_bool(0.3).then(|| Micros(now.0 + rng.random_range(0..60_000_000))));
        batch.class_priority.push(rng.random_range(-3..=4));
        batch.tags.push(tags(rng));
        batch.input_tokens.push(input);
        batch.computed_tokens.push(input + generated);
        batch.generated_tokens.push(generated);
        batch.kv_blocks.push((input + generated).div_ceil(BLOCK_SIZE));
        batch.preemptions.push(rng.random_range(0..3));
    }
    batch.requester = rng.random_range(0..n.max(1));
    batch
}

/// Batches with values at the limits of their ranges, by name.
fn extreme_batches(n: usize) -> Vec<(&'static str, BatchView)> {
    let mut smallest = batch(n, 7);
    (smallest.now, smallest.requester) = (Micros::ZERO, 0);
    smallest.priority.fill(0);
    smallest.arrival.fill(Micros::ZERO);
    smallest.deadline.fill(None);
    smallest.class_priority.fill(0);
    smallest.tags.fill(Tags::default());
    smallest.id.fill(RequestId(0));
    for column in [
        &mut smallest.input_tokens,
        &mut smallest.computed_tokens,
        &mut smallest.generated_tokens,
        &mut smallest.kv_blocks,
        &mut smallest.preemptions,
    ] {
        column.fill(0);
    }
    let mut largest = smallest.clone();
    largest.now = Micros(i64::MAX.cast_unsigned());
    largest.priority.fill(i64::MAX);
    largest.deadline.fill(Some(largest.now));
    largest.class_priority.fill(i32::MAX);
    largest.requester = n - 1;
    largest.id.fill(RequestId(u32::MAX - 1));
    for column in [
        &mut largest.input_tokens,
        &mut largest.computed_tokens,
        &mut largest.generated_tokens,
        &mut largest.kv_blocks,
        &mut largest.preemptions,
    ] {
        column.fill(u32::MAX - 1);
    }
    vec![("everything 0", smallest), ("everything as large as it can be", largest)]
}

/// Engine step number `item`, of about `n` requests.
pub(crate) fn step(n: usize, item: u64) -> Batch {
    let mut rng = generator("step", item);
    let mut batch = Batch::default();
    for _ in 0..n {
        if rng.random_bool(0.1) {
            let input = rng.random_range(1..4_000);
            let context = rng.random_range(0..input);
            batch.add_prefill(rng.random_range(1..=input - context), context, input);
        } else {
            batch.add_decode(rng.random_range(1..8_000));
        }
    }
    batch
}

fn extreme_steps() -> Vec<(&'static str, Batch)> {
    let one = |make: fn(&mut Batch)| {
        let mut batch = Batch::default();
        make(&mut batch);
        batch
    };
    let full = |_: u32| {
        let mut batch = Batch::default();
        (0..1024).for_each(|_| batch.add_decode(1_000_000));
        (0..64).for_each(|_| batch.add_prefill(8192, 1_000_000, 1_008_192));
        batch
    };
    vec![
        ("an empty step", Batch::default()),
        ("one token of prefill", one(|batch| batch.add_prefill(1, 0, 1))),
        ("one request that decodes", one(|batch| batch.add_decode(1))),
        ("1024 requests of a million tokens", full(0)),
    ]
}

/// Event number `item` in a service of `n` instances, of one of the kinds in `wanted`.
#[must_use]
pub fn event(n: usize, item: u64, wanted: Events) -> Option<Event> {
    use EventKind::{BlockEvicted, BlockStored, Completed, Ended, FirstToken, Rejected, Routed};
    let kinds: Vec<_> = [Routed, FirstToken, Completed, Ended, Rejected, BlockStored, BlockEvicted]
        .into_iter()
        .filter(|&kind| wanted.include(kind))
        .collect();
    let mut rng = generator("event", item);
    let kind = *kinds.get(rng.random_range(0..kinds.len().max(1)))?;
    let (block, n) = (matches!(kind, BlockStored | BlockEvicted), n as u32);
    let of_request = |number: u32| if block { 0 } else { number };
    let ttft = Micros(rng.random_range(1_000..2_000_000));
    Some(Event {
        at: Micros(1_000 * item),
        kind,
        request: RequestId(of_request(item as u32)),
        instance: (kind != Rejected && n > 0).then(|| InstanceIndex(rng.random_range(0..n))),
        input_tokens: of_request(rng.random_range(1..4_000)),
        generated_tokens: if kind == Completed { rng.random_range(1..500) } else { 0 },
        ttft: matches!(kind, FirstToken | Completed).then_some(ttft),
        e2e: (kind == Completed).then(|| Micros(ttft.0 + 1_000_000)),
        tags: if block { Tags::default() } else { tags(&mut rng) },
        block: if block { rng.random_range(0..8_000) } else { 0 },
    })
}

/// A call of a guest, with its inputs.
#[derive(Clone, Debug)]
pub enum GuestCall {
    /// A function of the table of decisions.
    Decide(Function, Box<CallInputs>),
    /// An event for the guest.
    Observe(Event),
}

/// The inputs of a call: those of the function's [`blis_abi::decisions::InputShape`].
#[derive(Clone, Debug, Default)]
pub struct CallInputs {
    pub now: Micros,
    /// The request and the service.
    pub point: Option<DecisionPoint>,
    /// The running batch.
    pub batch: Option<BatchView>,
    /// The number, of a floating-point number the bits.
    pub number: u64,
    /// The row, and then the lists.
    pub rows: Vec<Arc<dyn OwnedRows>>,
}

/// Rows of any type.
pub trait OwnedRows: Debug + Send + Sync {
    /// These rows.
    fn rows(&self) -> AnyRows<'_>;
}

impl<R: Row + Debug + Send + Sync> OwnedRows for Vec<R> {
    fn rows(&self) -> AnyRows<'_> {
        AnyRows::new(self)
    }
}

/// Rows of a type that is known at run time only.
#[derive(Debug)]
pub struct AnyOwnedRows {
    words: Vec<u64>,
    shape: &'static RowShape,
}

impl AnyOwnedRows {
    /// So many rows of this shape; numbers are 0, or missing where they may be.
    pub(crate) fn new(shape: &'static RowShape, count: usize) -> Self {
        let mut rows = Self { words: vec![0; count * shape.size.div_ceil(size_of::<u64>())], shape };
        for (row, field) in (0..count).flat_map(|row| shape.fields.iter().map(move |field| (row, field))) {
            let missing = if field.number == Primitive::I32 { i32::MIN.cast_unsigned().into() } else { u64::MAX };
            rows.set(row, field, if field.meaning.optional { missing } else { 0 });
        }
        rows
    }

    /// Sets `field` of the row at `index` to `word`.
    pub(crate) fn set(&mut self, index: usize, field: &Field, word: u64) {
        let at = index * self.shape.size + field.offset;
        let half = &mut self.words[at / size_of::<u64>()];
        match (field.size, at % size_of::<u64>()) {
            (8, _) => *half = word,
            (_, 0) => *half = *half >> 32 << 32 | word & u64::from(u32::MAX),
            _ => *half = *half & u64::from(u32::MAX) | word << 32,
        }
    }
}

impl OwnedRows for AnyOwnedRows {
    fn rows(&self) -> AnyRows<'_> {
        AnyRows::of_words(&self.words, self.shape)
    }
}

/// Most rows and lists of a function.
const MOST_ROWS: usize = 3;

impl CallInputs {
    /// Inputs without request.
    pub(crate) fn at(now: Micros, rows: Vec<Arc<dyn OwnedRows>>) -> Self {
        Self { now, rows, ..Self::default() }
    }

    /// Inputs about the request and the service of `point`.
    pub(crate) fn about(point: DecisionPoint) -> Self {
        Self { now: point.now, point: Some(point), ..Self::default() }
    }

    /// Inputs about the request of `queued`, as it joins a waiting queue.
    pub(crate) fn queued(point: DecisionPoint, queued: QueuedRow) -> Self {
        Self { rows: vec![Arc::new(vec![queued])], ..Self::about(point) }
    }

    /// Inputs about a running batch.
    pub(crate) fn of_batch(batch: BatchView) -> Self {
        let number = u64::from(u32::try_from(batch.requester).unwrap_or(u32::MAX));
        Self { now: batch.now, number, batch: Some(batch), ..Self::default() }
    }

    /// Inputs of an engine step.
    pub(crate) fn of_step(batch: &Batch) -> Self {
        Self::at(Micros::ZERO, vec![Arc::new(vec![step_row(batch)])])
    }

    /// The rows at `index`: the row, and then the lists.
    pub(crate) fn rows_at<R: Row>(&self, index: usize) -> &[R] {
        self.rows.get(index).map_or(&[], |rows| rows.rows().typed())
    }

    /// Calls `make` with these inputs for `function`.
    fn with<T>(&self, function: Function, ties: &Ties, make: impl FnOnce(Inputs<'_>) -> T) -> T {
        let (point, batch) = (self.point.as_ref(), self.batch.as_ref());
        let (request, cluster) = (point.map(DecisionPoint::request), point.map(DecisionPoint::cluster));
        let shape = &function.row().inputs;
        let rows: [AnyRows<'_>; MOST_ROWS] =
            std::array::from_fn(|index| self.rows.get(index).map_or(AnyRows::new::<QueuedRow>(&[]), |all| all.rows()));
        let of_batch = batch.map(BatchView::ties);
        let ties = match (shape.request, &function.row().output) {
            _ if batch.is_some() => of_batch.as_ref(),
            (true, OutputShape::Index | OutputShape::Numbers(_)) => Some(ties),
            (true, _) => None,
            (false, _) if function.kind() == Kind::Latency => None,
            // As built-in policies, which take the first of equally good choices.
            (false, _) => Some(&Ties::LowestIndex),
        };
        let about = match (shape.request, batch) {
            (true, _) => point.map(|point| point.request.id),
            (false, Some(batch)) => batch.id.get(batch.requester).copied(),
            (false, None) => (function.kind() != Kind::Latency).then(|| number_of(self.now)),
        };
        make(Inputs {
            now: self.now,
            about,
            ties,
            request: request.as_ref().filter(|_| shape.request),
            cluster: cluster.as_ref().filter(|_| shape.cluster),
            batch,
            memory: None,
            number: self.number,
            rows: &rows[..self.rows.len().min(MOST_ROWS)],
        })
    }

    /// What `function` chooses from, or returns a number for each of: its name, and how many there are.
    pub(crate) fn choices(&self, function: Function) -> (&'static str, usize) {
        let shape = &function.row().inputs;
        let list = self.rows.get(usize::from(shape.row.is_some())).map(|all| all.rows());
        match (&self.point, &self.batch, list) {
            (Some(point), ..) if shape.cluster => ("instance", point.instances.len()),
            (_, Some(batch), _) => ("request", batch.len()),
            (_, _, Some(list)) => (list.shape().what, list.len()),
            _ => ("", 0),
        }
    }
}

/// The output of a guest; floating-point numbers are compared bit by bit.
#[derive(Clone, Debug, PartialEq)]
pub enum GuestOutput {
    Decision(AdmissionDecision),
    /// An index, and the bits of the scores.
    Index(usize, Vec<u64>),
    /// An index, or none.
    Chosen(Option<usize>),
    Integer(i64),
    /// A duration in µs.
    Micros(u64),
    /// The bits of a number.
    Number(u64),
    Flag(bool),
    /// The bits of a number for each row.
    Numbers(Vec<u64>),
    /// Yes or no for each instance or row.
    Flags(Vec<bool>),
    /// The number of replicas of each group, where it says one.
    Replicas(Vec<Option<u32>>),
    /// The fields of a record; `None` for an index that was not chosen.
    Record(Vec<Option<usize>>),
    /// No output, for [`GuestCall::Observe`].
    None,
}

impl GuestCall {
    /// Call number `item` of a plugin of `kind`, with `n` instances or requests.
    #[must_use]
    pub fn plausible(kind: Kind, n: usize, item: u64) -> Self {
        let function = match (kind, item % 16) {
            // A chunk is ranked more often than it is stored or loaded, and a step is longer than a queueing time.
            (Kind::KvCache, 0 | 4 | 8 | 12) => Function::Load,
            (Kind::KvCache, 1 | 5 | 9 | 13) => Function::Store,
            (Kind::Latency, 15) => Function::QueueingTime,
            _ => kind.functions()[0],
        };
        Self::Decide(function, Box::new(plausible(function, n, item)))
    }

    /// Calls with inputs at the limits of their ranges.
    #[must_use]
    pub fn extreme(kind: Kind, n: usize) -> Vec<(&'static str, Self)> {
        let functions = kind.functions().iter().filter(|&&function| function != Function::Scores);
        let calls = functions.flat_map(|&function| {
            extreme(function, n).into_iter().map(move |(name, inputs)| (name, Self::Decide(function, Box::new(inputs))))
        });
        calls.collect()
    }

    /// The function that it calls; `None` for an event.
    #[must_use]
    pub fn function(&self) -> Option<Function> {
        match self {
            Self::Decide(function, _) => Some(*function),
            Self::Observe(_) => None,
        }
    }

    /// Calls `guest` without a check of the output; numbers are appended to `numbers`, which is empty. `None` for an event.
    ///
    /// # Errors
    /// If the guest fails, or was started for another kind.
    pub fn make(&self, guest: &mut dyn Guest, ties: &Ties, numbers: &mut Vec<f64>) -> Result<Option<Output>, Fault> {
        match self {
            Self::Decide(function, inputs) => {
                inputs.with(*function, ties, |inputs| guest.call(*function, inputs, numbers)).map(Some)
            }
            Self::Observe(event) => guest.observe(event).map(|()| None),
        }
    }

    /// Calls `guest`, and checks the range of its output as the simulator does.
    ///
    /// # Errors
    /// If the guest fails, or its output cannot be used.
    pub fn run(&self, guest: &mut dyn Guest, ties: &Ties) -> Result<GuestOutput, Fault> {
        let mut numbers = Vec::new();
        let output = self.make(guest, ties, &mut numbers)?;
        let (Some(output), Self::Decide(function, inputs)) = (output, self) else { return Ok(GuestOutput::None) };
        checked(inputs, *function, output, numbers)
    }
}

/// The inputs of call number `item` of `function`, with `n` instances, requests or rows.
fn plausible(function: Function, n: usize, item: u64) -> CallInputs {
    let point = || DecisionPoint::plausible(n, item);
    match function {
        Function::Rank => {
            let (priority, turn) = ((item % 11) as i64 - 5, item as i64 + 1);
            CallInputs::queued(point(), QueuedRow { priority, turn, ..QueuedRow::ZERO })
        }
        Function::Victim => CallInputs::of_batch(batch(n, item)),
        Function::StepTime => CallInputs::of_step(&step(n, item)),
        Function::QueueingTime => CallInputs { number: item * 37 % 4_000, ..CallInputs::default() },
        Function::Order => {
            let point = point();
            let expires = if item % 8 == 7 { Micros::MAX } else { point.now.saturating_add(Micros(60_000_000)) };
            CallInputs { number: expires.0, ..CallInputs::about(point) }
        }
        _ if function.row().inputs.request || function.row().inputs.cluster => CallInputs::about(point()),
        _ => match function.kind().area() {
            Area::FlowControl => GatewayState::plausible(n, item).inputs(function),
            Area::Replicas => replicas::plausible(function, n, item),
            Area::KvTiers => kv_cache::plausible(function, n, item),
            Area::Front | Area::Engine | Area::Roles => disaggregation::plausible(n, item),
        },
    }
}

/// Inputs of `function` with values at the limits of their ranges, by name.
fn extreme(function: Function, n: usize) -> Vec<(&'static str, CallInputs)> {
    let points = |make: fn(DecisionPoint) -> CallInputs| {
        DecisionPoint::extreme(n).into_iter().map(|(name, point)| (name, make(point))).collect::<Vec<_>>()
    };
    let usual = || DecisionPoint::plausible(n, 3);
    match function {
        Function::Rank => {
            let queued = |point, priority, turn| {
                // A turn below 0 is that of a preempted request.
                let generated_tokens = if turn < 0 { 17 } else { 0 };
                let preemptions = u32::from(turn < 0);
                CallInputs::queued(point, QueuedRow { priority, turn, generated_tokens, preemptions })
            };
            let all = DecisionPoint::extreme(n).into_iter().map(|(name, point)| (name, queued(point, 0, 1)));
            let lowest = ("the lowest priority", queued(usual(), i64::MAX, i64::MAX));
            all.chain([lowest, ("the highest priority", queued(usual(), i64::MIN, i64::MIN))]).collect()
        }
        Function::Victim => {
            extreme_batches(n).into_iter().map(|(name, batch)| (name, CallInputs::of_batch(batch))).collect()
        }
        Function::StepTime => {
            extreme_steps().into_iter().map(|(name, batch)| (name, CallInputs::of_step(&batch))).collect()
        }
        Function::QueueingTime => {
            let tokens = |number| CallInputs { number, ..CallInputs::default() };
            vec![("no tokens", tokens(0)), ("the longest prompt", tokens(u32::MAX.into()))]
        }
        Function::Order => {
            let mut all = points(|point| CallInputs { number: Micros::MAX.0, ..CallInputs::about(point) });
            all.push(("expired at once", CallInputs::about(usual())));
            all
        }
        _ if function.row().inputs.request || function.row().inputs.cluster => points(CallInputs::about),
        _ => match function.kind().area() {
            Area::FlowControl => {
                let states = GatewayState::extreme(n).into_iter();
                states.map(|(name, state)| (name, state.inputs(function))).collect()
            }
            Area::Replicas => replicas::extreme(function, n),
            Area::KvTiers => kv_cache::extreme(function, n),
            Area::Roles => disaggregation::extreme(n),
            // The constants of a latency model have no inputs.
            Area::Front | Area::Engine => Vec::new(),
        },
    }
}

/// The row with numbers as large as they can be; it has no names.
fn largest<R: Row>() -> R {
    let mut row = R::ZERO;
    for field in R::FIELDS {
        row.set(
            field,
            match (field.meaning.unit, field.number) {
                (Unit::Name | Unit::NameNumber, _) => 0,
                (_, Primitive::F64) => 1e300_f64.to_bits(),
                (_, Primitive::U32) => u64::from(u32::MAX) - u64::from(field.meaning.optional),
                (_, Primitive::I32) => u64::from(i32::MAX.cast_unsigned()),
                _ => i64::MAX.cast_unsigned(),
            },
        );
    }
    row
}

/// The output of `function`, if it is in range.
fn checked(inputs: &CallInputs, function: Function, output: Output, numbers: Vec<f64>) -> Result<GuestOutput, Fault> {
    let (name, (row, count)) = (function.name(), inputs.choices(function));
    let bits = |numbers: Vec<f64>| numbers.into_iter().map(f64::to_bits).collect::<Vec<_>>();
    let last = count.saturating_sub(1);
    Ok(match (output, &function.row().output) {
        (Output::Decision(decision), _) => GuestOutput::Decision(decision),
        (Output::Index(index), _) if index >= count => {
            return out_of_range(format!("{name} returned {index}; it must be from 0 to {last}"));
        }
        // Of other choices nobody asks for the scores.
        (Output::Index(index), _) if function != Function::Route => GuestOutput::Index(index, Vec::new()),
        (Output::Index(index), _) => {
            check_scores(&numbers, count)?;
            GuestOutput::Index(index, bits(numbers))
        }
        (Output::Chosen(Some(index)), _) if index >= count => {
            return out_of_range(format!("{name} returned {index}; it must be none, or from 0 to {last}"));
        }
        (Output::Chosen(index), _) => GuestOutput::Chosen(index),
        (Output::Integer(priority), _) => GuestOutput::Integer(priority),
        (Output::Duration(us), _) if function == Function::StepTime && !(1..=LONGEST_US).contains(&us) => {
            return out_of_range(format!("{name} returned {us} µs; it must be from 1 to a day"));
        }
        (Output::Duration(us), _) => GuestOutput::Micros(us),
        (Output::Number(number), _) if number.is_nan() => return not_a_number(format!("{name} returned NaN")),
        (Output::Number(number), OutputShape::Number(least))
            if least.is_finite() && !(*least..f64::INFINITY).contains(&number) =>
        {
            return out_of_range(format!("{name} returned {number}; it must be at least {least} and finite"));
        }
        (Output::Number(number), _) => GuestOutput::Number(number.to_bits()),
        (Output::Flag(flag), _) => GuestOutput::Flag(flag),
        (Output::Numbers, OutputShape::Numbers(NumberOf::Replicas)) => {
            GuestOutput::Replicas(replicas_of(&numbers, count)?)
        }
        (Output::Numbers, shape) => {
            check_numbers(name, &numbers, count, row)?;
            match shape {
                OutputShape::Numbers(NumberOf::Flag) => {
                    GuestOutput::Flags(numbers.into_iter().map(|number| number != 0.0).collect())
                }
                _ => GuestOutput::Numbers(bits(numbers)),
            }
        }
        (Output::Record(words), OutputShape::Record { shape, flags, .. }) => {
            let lists = inputs.rows.iter().skip(usize::from(function.row().inputs.row.is_some()));
            let (truths, indices) = words.split_at(*flags);
            let mut fields: Vec<Option<usize>> = truths.iter().map(|&truth| Some(usize::from(truth != 0))).collect();
            for ((&word, field), list) in indices.iter().zip(&shape.fields[*flags..]).zip(lists) {
                let (what, len) = (field.name, list.rows().len());
                let index = (word != u64::from(NONE_U32)).then_some(word as usize);
                if index.is_some_and(|index| index >= len) {
                    let last = len.saturating_sub(1);
                    return out_of_range(format!(
                        "{name} returned {word} for {what}; it must be none, or from 0 to {last}"
                    ));
                }
                fields.push(index);
            }
            GuestOutput::Record(fields)
        }
        (Output::Record(_), _) => GuestOutput::None,
    })
}

fn out_of_range<T>(message: String) -> Result<T, Fault> {
    Err(Fault::new(FaultKind::OutOfRange, message))
}

fn not_a_number<T>(message: String) -> Result<T, Fault> {
    Err(Fault::new(FaultKind::NotANumber, message))
}

/// Refuses anything but one number for each of `count` rows, which are called `row`.
fn check_numbers(function: &str, numbers: &[f64], count: usize, row: &str) -> Result<(), Fault> {
    if numbers.len() != count {
        let got = numbers.len();
        return out_of_range(format!("{function} returned {got} numbers; it must be one for each of {count} {row}s"));
    }
    match first_nan(numbers) {
        Some(index) => not_a_number(format!("{function} returned NaN for {row} {index}")),
        None => Ok(()),
    }
}

/// Refuses scores of instances, unless there are none.
fn check_scores(scores: &[f64], instances: usize) -> Result<(), Fault> {
    if !scores.is_empty() && scores.len() != instances {
        return out_of_range(format!("{} scores for {instances} instances", scores.len()));
    }
    match first_nan(scores) {
        Some(index) => not_a_number(format!("the score of instance {index} is NaN")),
        None => Ok(()),
    }
}

/// The index of the instance that `guest` chooses, with the range of its outputs checked as the simulator does.
///
/// # Errors
/// If the guest fails, or its output cannot be used.
pub fn route(
    guest: &mut dyn Guest,
    request: &RequestView<'_>,
    cluster: &ClusterView<'_>,
    ties: &Ties,
    scores: &mut Vec<f64>,
) -> Result<usize, Fault> {
    let index = guest.route(request, cluster, ties, scores)?;
    if index >= cluster.len() {
        return out_of_range(format!("route returned {index}; it must be from 0 to {}", cluster.len() - 1));
    }
    check_scores(scores, cluster.len())?;
    Ok(index)
}

/// Whether `guest` keeps each instance, with its output checked as the simulator does.
///
/// # Errors
/// If the guest fails, or its output cannot be used.
pub fn kept(
    guest: &mut dyn Guest,
    request: &RequestView<'_>,
    cluster: &ClusterView<'_>,
    ties: &Ties,
) -> Result<Vec<bool>, Fault> {
    let mut numbers = Vec::new();
    guest.filter(request, cluster, ties, None, &mut numbers)?;
    check_numbers(Function::Filter.name(), &numbers, cluster.len(), "instance")?;
    Ok(numbers.into_iter().map(|number| number != 0.0).collect())
}
