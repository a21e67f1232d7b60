//! A request, and the state of the service at the time of a decision about it.

use blis_sim::ids::{InstanceIndex, RequestId};
use blis_sim::policy::{
    AdapterSlotUse, Changes, ClientTargets, ClusterView, InstanceInfo, RequestView, Signals, Staleness, Ties, Versions,
};
use blis_sim::request::{Content, Name, Request, Span, Tags};
use blis_sim::rng::{Generator, Stream};
use blis_sim::units::Micros;
use rand::RngExt as _;

use crate::fields::{NamedInstances, NamedRequest};

pub(super) const BLOCK_SIZE: u32 = 16;
/// Maximum batch size of every instance (sequences).
pub(super) const MAX_NUM_SEQS: u32 = 256;
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
    pub(super) now: Micros,
    pub(super) request: Request,
    pub(super) class_priority: i32,
    pub(super) targets: ClientTargets,
    pub(super) instances: Vec<InstanceInfo>,
    pub(super) signals: Signals,
    pub(super) staleness: Staleness,
    pub(super) versions: Versions,
    pub(super) tenants_in_flight: Vec<u32>,
    /// [`ClusterView::scores`].
    pub(super) scores: Vec<f64>,
    pub(super) block_size: u32,
}

impl DecisionPoint {
    /// A decision about `request` in a service of `instances`.
    pub(crate) fn new(request: &NamedRequest, instances: &NamedInstances, staleness: Staleness) -> Self {
        let tenant = request.request.tags.tenant.index();
        let mut tenants_in_flight = vec![0; tenant + 1];
        tenants_in_flight[tenant] = request.row.tenant_in_flight;
        Self {
            now: request.now(),
            request: request.request.clone(),
            class_priority: request.row.class_priority,
            targets: request.targets(),
            instances: instances.infos.clone(),
            signals: instances.signals.clone(),
            staleness,
            versions: Versions::default(),
            tenants_in_flight,
            scores: instances.scores(),
            block_size: request.row.block_size,
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
    pub(super) fn with_load_of(mut self, other: &Self, versions: Versions) -> Self {
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

pub(super) fn generator(what: &str, item: u64) -> Generator {
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

pub(super) fn tags(rng: &mut Generator) -> Tags {
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
