//! Rows of `blis-abi`: built from the simulator's views, and kept from decision to decision.

use blis_abi::{ColumnGroup, EventSet};
use blis_sim::ids::RequestId;
use blis_sim::latency::Batch;
use blis_sim::policy::{
    BatchView, ClusterView, Event, EventKind, Events, InstanceInfo, InstanceRole, QueuedView, Reads, RequestView,
    Signals, Staleness, Versions,
};
use blis_sim::request::Tags;
use blis_sim::units::Micros;

pub use blis_abi::{
    Ages as AgesRow, Band as BandRow, ChunkOffer as ChunkOfferRow, Column, DrainGroup as DrainGroupRow,
    Event as EventRow, Flow as FlowRow, Group as GroupRow, InFlight as InFlightRow, KvChunk as ChunkRow,
    KvHit as TierHitRow, NONE_I32, NONE_U32, NONE_U64, Node as NodeRow, PoolInstance as PoolInstanceRow,
    PrefillChoice as PrefillChoiceRow, Queued as QueuedRow, Replica as ReplicaRow, Request as RequestRow,
    RoutedRequest as RoutedRequestRow, Row, Running as RunningRow, StartingReplica as StartingReplicaRow,
    Step as StepRow,
};

/// Number of decisions of which a guest that scales gets the groups, besides those of the present one: 5 min at one every
/// 15 s, the longest stabilization window of Kubernetes' defaults.
pub const HISTORY: usize = 20;

/// The versions that a guest got at its latest decision: only what changed since is written or read again.
#[derive(Clone, Copy, Debug, Default)]
pub struct LatestView {
    instances: usize,
    versions: Versions,
    /// Number of changes of the router's columns by then.
    changes: u64,
}

/// What may have changed since the latest decision.
#[derive(Clone, Copy, Debug)]
pub struct ViewChanges<'a> {
    /// Number of instances in the service.
    instances: usize,
    /// Whether everything changed, because the instances are others.
    all: bool,
    load: bool,
    cached_blocks: bool,
    /// Indices with changed columns of the router; `None` if any may have.
    router: Option<&'a [u32]>,
}

impl LatestView {
    /// Compares `cluster` with the latest view and replaces it.
    pub fn advance<'a>(&mut self, cluster: &ClusterView<'a>) -> ViewChanges<'a> {
        // Without versions the instances may be others, as those that the filters of a pipeline leave to its picker.
        let others = self.instances != cluster.len() || self.versions.instances != cluster.versions.instances;
        let all = others || cluster.versions.load == 0;
        let fresh = |before: u64, now: u64| all || now == 0 || before != now;
        let since = ViewChanges {
            instances: cluster.len(),
            all,
            load: fresh(self.versions.load, cluster.versions.load),
            cached_blocks: fresh(self.versions.cached_blocks, cluster.versions.cached_blocks),
            router: cluster.in_flight_changes.since(self.changes).filter(|_| !all),
        };
        *self =
            Self { instances: cluster.len(), versions: cluster.versions, changes: cluster.in_flight_changes.count() };
        since
    }
}

/// The entries of a column that may have changed.
#[derive(Clone, Copy, Debug)]
pub enum OutdatedEntries<'a> {
    None,
    /// Those at these indices.
    At(&'a [u32]),
    All,
}

impl<'a> ViewChanges<'a> {
    /// What may have changed of the columns of `group`.
    #[must_use]
    #[inline]
    pub fn outdated(&self, group: ColumnGroup) -> OutdatedEntries<'a> {
        let all = match group {
            ColumnGroup::Constant => self.all,
            ColumnGroup::Periodic => self.load,
            ColumnGroup::Cache => self.cached_blocks,
            ColumnGroup::Decision => true,
            ColumnGroup::Router => return self.router.map_or(OutdatedEntries::All, OutdatedEntries::At),
        };
        if all { OutdatedEntries::All } else { OutdatedEntries::None }
    }

    /// The indices of the instances with rows that may have changed, some more than once; `None` if all may have, or so
    /// many that reading all rows is as fast. The result of `host.changed`.
    #[must_use]
    pub fn changed(&self) -> Option<&'a [u32]> {
        let few = |indices: &&[u32]| {
            indices.len() < self.instances && indices.iter().all(|&index| (index as usize) < self.instances)
        };
        self.router.filter(few).filter(|_| !self.load && !self.cached_blocks)
    }
}

/// Rows of the instances, kept from call to call: only rows that may have changed are written. A row has the columns
/// that the plugin reads, in the order of its description.
#[derive(Clone, Debug, Default)]
pub struct InstanceRows {
    columns: Vec<Column>,
    /// Row by row.
    numbers: Vec<f64>,
    latest: LatestView,
    /// Whether a column is computed for each decision, so that all rows may differ every time.
    by_decision: bool,
}

/// The instances of one decision.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rows<'r, 'c> {
    /// Number of instances.
    pub count: usize,
    /// One row per instance, row by row.
    pub numbers: &'r [f64],
    /// The result of [`ViewChanges::changed`] since the call before.
    pub changed: Option<&'c [u32]>,
}

impl InstanceRows {
    /// Rows with these columns.
    #[must_use]
    pub fn new(columns: &[Column]) -> Self {
        let by_decision = columns.iter().any(|column| column.group() == ColumnGroup::Decision);
        Self { columns: columns.to_vec(), by_decision, ..Self::default() }
    }

    /// Updates the rows from `cluster`, for a decision about `request`, if it is about one.
    #[inline]
    pub fn of<'c>(&mut self, request: Option<&RequestView<'_>>, cluster: &ClusterView<'c>) -> Rows<'_, 'c> {
        let Self { columns, numbers, latest, by_decision } = self;
        let since = latest.advance(cluster);
        if since.all {
            numbers.clear();
            numbers.resize(columns.len() * cluster.len(), 0.0);
        }
        for (position, &column) in columns.iter().enumerate() {
            match since.outdated(column.group()) {
                OutdatedEntries::None => {}
                OutdatedEntries::At(changed) => {
                    update(numbers, columns.len(), position, column, changed, cluster.signals);
                }
                OutdatedEntries::All => fill(numbers, columns.len(), position, column, request, cluster),
            }
        }
        Rows { count: cluster.len(), numbers, changed: since.changed().filter(|_| !*by_decision) }
    }

    /// The guest has a new state or missed a result: at the next decision any row may have changed.
    #[cold]
    pub fn forget(&mut self) {
        let Self { columns, by_decision, .. } = self;
        *self = Self { columns: std::mem::take(columns), by_decision: *by_decision, ..Self::default() };
    }
}

/// Writes the entries of `column`, one of the router, at the `changed` indices into rows of `width` numbers.
#[inline]
pub(crate) fn update(
    numbers: &mut [f64],
    width: usize,
    position: usize,
    column: Column,
    changed: &[u32],
    signals: &Signals,
) {
    let mut write = |index: usize, value: f64| {
        if let Some(number) = numbers.get_mut(index * width + position) {
            *number = value;
        }
    };
    match column {
        Column::InFlight => each_at(changed, &signals.in_flight, |i, count| write(i, count.into())),
        Column::InFlightTokens => each_at(changed, &signals.in_flight_tokens, |i, tokens| write(i, tokens as f64)),
        Column::InFlightOutput => each_at(changed, &signals.in_flight_output, |i, tokens| write(i, tokens as f64)),
        Column::TtftEwma => each_at(changed, &signals.ttft_ewma, write),
        Column::ItlEwma => each_at(changed, &signals.itl_ewma, write),
        other => unreachable!("{} is no column of the router", other.name()),
    }
}

/// Gives `to` the entries of a column at these indices, with their index.
#[inline]
fn each_at<T: Copy>(indices: &[u32], column: &[T], mut to: impl FnMut(usize, T)) {
    for i in indices.iter().map(|&i| i as usize) {
        if let Some(&value) = column.get(i) {
            to(i, value);
        }
    }
}

/// Writes a whole column into rows of `width` numbers.
fn fill(
    numbers: &mut [f64],
    width: usize,
    position: usize,
    column: Column,
    request: Option<&RequestView<'_>>,
    cluster: &ClusterView<'_>,
) {
    let mut rows = numbers.chunks_exact_mut(width);
    each_value(column, request, cluster, |value| {
        if let Some(number) = rows.next().and_then(|row| row.get_mut(position)) {
            *number = value;
        }
    });
}

/// Takes the values of a column: one for each instance, in turn.
pub(crate) trait TakeValues {
    /// Takes all of them.
    fn take(self, values: impl Iterator<Item = f64>);
}

impl<F: FnMut(f64)> TakeValues for F {
    fn take(self, values: impl Iterator<Item = f64>) {
        values.for_each(self);
    }
}

/// The role of an instance as the column `role` has it.
fn role_number(role: InstanceRole) -> u32 {
    match role {
        InstanceRole::PrefillDecode => 0,
        InstanceRole::Prefill => 1,
        InstanceRole::Decode => 2,
        InstanceRole::Encode => 3,
        InstanceRole::Unassigned => 4,
    }
}

/// The values of `column`, one for each instance; empty if the host does not keep it up to date. Without a request, nothing of
/// it is cached.
#[must_use]
pub fn column_values(column: Column, request: Option<&RequestView<'_>>, cluster: &ClusterView<'_>) -> Vec<f64> {
    let mut values = Vec::with_capacity(cluster.len());
    each_value(column, request, cluster, |value| values.push(value));
    values
}

/// Gives `to` the values of `column`. Without a request, nothing of it is cached.
pub(crate) fn each_value(
    column: Column,
    request: Option<&RequestView<'_>>,
    cluster: &ClusterView<'_>,
    to: impl TakeValues,
) {
    fn counts(column: &[u32], to: impl TakeValues) {
        to.take(column.iter().map(|&count| f64::from(count)));
    }
    fn sums(column: &[u64], to: impl TakeValues) {
        to.take(column.iter().map(|&count| count as f64));
    }
    fn infos(instances: &[InstanceInfo], get: fn(&InstanceInfo) -> f64, to: impl TakeValues) {
        to.take(instances.iter().map(get));
    }
    fn same(value: f64, count: usize, to: impl TakeValues) {
        to.take(std::iter::repeat_n(value, count));
    }
    // As `Signals::cached_tokens`, in floating point, of which the processor computes several at once: the smaller number is
    // exact.
    fn cached_tokens(request: &RequestView<'_>, blocks: &[u32], to: impl TakeValues) {
        let (size, prompt) = (f64::from(request.block_size), f64::from(request.input_tokens));
        to.take(blocks.iter().map(|&blocks| {
            let tokens = f64::from(blocks) * size;
            if tokens < prompt { tokens } else { prompt }
        }));
    }
    let (signals, instances) = (cluster.signals, cluster.instances);
    match column {
        Column::Id => infos(instances, |info| info.id.0.into(), to),
        Column::TotalKvBlocks => infos(instances, |info| info.total_kv_blocks.into(), to),
        Column::MaxNumSeqs => infos(instances, |info| info.max_num_seqs.into(), to),
        Column::QueueDepth => counts(&signals.queue_depth, to),
        Column::BatchSize => counts(&signals.batch_size, to),
        Column::KvUtilization => to.take(signals.kv_utilization.iter().copied().map(canonical)),
        Column::FreeKvBlocks => counts(&signals.free_kv_blocks, to),
        Column::CacheHitRate => to.take(signals.cache_hit_rate.iter().copied().map(canonical)),
        Column::PreemptionCount => sums(&signals.preemption_count, to),
        Column::InFlight => counts(&signals.in_flight, to),
        Column::CachedBlocks => counts(&signals.cached_blocks, to),
        Column::InFlightTokens => sums(&signals.in_flight_tokens, to),
        Column::InFlightOutput => sums(&signals.in_flight_output, to),
        Column::CachedTokensGpu => match request {
            Some(request) => cached_tokens(request, &signals.cached_blocks, to),
            None => same(0.0, instances.len(), to),
        },
        Column::CachedTokensCpu => match request {
            Some(request) => cached_tokens(request, &signals.cpu_cached_blocks, to),
            None => same(0.0, instances.len(), to),
        },
        // No instance has such a tier.
        Column::CachedTokensRemote => same(0.0, instances.len(), to),
        Column::Role => infos(instances, |info| role_number(info.labels.role).into(), to),
        Column::Group => infos(instances, |info| info.labels.group.into(), to),
        Column::Price => infos(instances, |info| canonical(info.labels.price), to),
        Column::WaitingTokens => sums(&signals.waiting_tokens, to),
        Column::AdapterActive => counts(&signals.adapter_active, to),
        Column::AdapterWaiting => counts(&signals.adapter_waiting, to),
        Column::FreeAdapterSlots => counts(&signals.free_adapter_slots, to),
        Column::RunningTokens => {
            let held = |(info, &free): (&InstanceInfo, &u32)| {
                u64::from(info.total_kv_blocks.saturating_sub(free)) * u64::from(info.block_size)
            };
            to.take(instances.iter().zip(&signals.free_kv_blocks).map(|one| held(one) as f64));
        }
        Column::TtftEwma => to.take(signals.ttft_ewma.iter().copied()),
        Column::ItlEwma => to.take(signals.itl_ewma.iter().copied()),
        Column::Staleness => same(cluster.staleness.load.0 as f64, instances.len(), to),
        Column::Score if cluster.scores.is_empty() => same(0.0, instances.len(), to),
        Column::Score => to.take(cluster.scores.iter().copied()),
    }
}

/// The row of `request` for a decision at `now`; `tenant_in_flight` is the count if it is known.
#[must_use]
#[inline]
pub fn request_row(request: &RequestView<'_>, now: Micros, tenant_in_flight: u32) -> RequestRow {
    let Tags { slo_class, tenant, session, model, client, prefix_group, round_index, adapter } = request.tags;
    RequestRow {
        now_us: now.0,
        arrival_us: request.arrival.0,
        deadline_us: request.deadline.map_or(NONE_U64, |at| at.0),
        slo_ttft_us: request.targets.ttft.map_or(NONE_U64, |target| target.0),
        slo_itl_us: request.targets.itl.map_or(NONE_U64, |target| target.0),
        id: request.id.0,
        input_tokens: request.input_tokens,
        max_output_tokens: request.max_output_tokens.unwrap_or(NONE_U32),
        prompt_blocks: request.prompt_blocks,
        shared_blocks: request.shared_block_count(),
        block_size: request.block_size,
        class_priority: request.class_priority,
        client_priority: request.client_priority.unwrap_or(NONE_I32),
        slo_class: slo_class.0,
        tenant: tenant.0,
        session: session.0,
        model: model.0,
        client: client.0,
        prefix_group: prefix_group.0,
        round_index,
        tenant_in_flight,
        adapter: adapter.0,
        stage: 0,
    }
}

/// The row of `request` for a decision that reads the cluster.
#[must_use]
#[inline]
pub fn decision_row(request: &RequestView<'_>, cluster: &ClusterView<'_>) -> RequestRow {
    request_row(request, cluster.now, cluster.tenant_in_flight(request.tags.tenant))
}

/// The row of the ages of the signals.
#[must_use]
#[inline]
pub fn ages_row(staleness: Staleness) -> AgesRow {
    AgesRow { periodic_us: staleness.load.0, cache_us: staleness.cached_blocks.0, ..AgesRow::default() }
}

/// The scheduling row of a request that joins a waiting queue; its [`request_row`] is separate.
#[must_use]
#[inline]
pub fn queued_row(queued: &QueuedView<'_>) -> QueuedRow {
    QueuedRow {
        priority: queued.priority,
        turn: queued.turn,
        generated_tokens: queued.generated_tokens,
        preemptions: queued.preemptions,
    }
}

/// The number that stands for the request in a decision at `now` that is about none, as the index of random numbers: the
/// lower half of the time.
#[must_use]
pub fn number_of(now: Micros) -> RequestId {
    RequestId(now.0 as u32)
}

/// `number`, or the one NaN that guests see: the processor chooses the sign of the NaN of 0/0, and processors differ.
pub(crate) fn canonical(number: f64) -> f64 {
    if number.is_nan() { f64::NAN } else { number }
}

/// The first index with not-a-number, which is rare: all are looked at, several at once.
#[must_use]
pub(crate) fn first_nan(numbers: &[f64]) -> Option<usize> {
    if !numbers.iter().fold(false, |found, number| found | number.is_nan()) {
        return None;
    }
    numbers.iter().position(|number| number.is_nan())
}

/// The row of an engine step.
#[must_use]
#[inline]
pub fn step_row(batch: &Batch) -> StepRow {
    StepRow {
        prefill_requests: batch.prefill_requests,
        prefill_tokens: batch.prefill_tokens,
        prefill_tokens_squared: batch.prefill_tokens_squared,
        prefill_tokens_by_input: batch.prefill_tokens_by_input,
        prefill_tokens_by_context: batch.prefill_tokens_by_context,
        prefill_context: batch.prefill_context,
        decode_requests: batch.decode_requests,
        decode_context: batch.decode_context,
    }
}

#[must_use]
pub fn event_row(event: &Event) -> EventRow {
    let latency = |latency: Option<Micros>| latency.map_or(NONE_U64, |us| us.0);
    let kind = match event.kind {
        EventKind::Routed => blis_abi::EventKind::Routed,
        EventKind::FirstToken => blis_abi::EventKind::FirstToken,
        EventKind::Completed => blis_abi::EventKind::Completed,
        EventKind::Ended => blis_abi::EventKind::Ended,
        EventKind::Rejected => blis_abi::EventKind::Rejected,
        EventKind::BlockStored => blis_abi::EventKind::BlockStored,
        EventKind::BlockEvicted => blis_abi::EventKind::BlockEvicted,
    };
    EventRow {
        at_us: event.at.0,
        ttft_us: latency(event.ttft),
        e2e_us: latency(event.e2e),
        kind: kind as u32,
        request: event.request.0,
        instance: event.instance.map_or(NONE_U32, |instance| instance.0),
        input_tokens: event.input_tokens,
        generated_tokens: event.generated_tokens,
        slo_class: event.tags.slo_class.0,
        tenant: event.tags.tenant.0,
        session: event.tags.session.0,
        prefix_group: event.tags.prefix_group.0,
        block: event.block,
    }
}

/// The signals that must be kept up to date for a plugin that reads `columns`.
#[must_use]
pub fn reads_of(columns: &[Column]) -> Reads {
    columns.iter().copied().map(reads_of_one).fold(Reads::NOTHING, Reads::and)
}

fn reads_of_one(column: Column) -> Reads {
    match column {
        Column::Id
        | Column::TotalKvBlocks
        | Column::MaxNumSeqs
        | Column::CachedTokensRemote
        | Column::Role
        | Column::Group
        | Column::Price
        | Column::Score => Reads::NOTHING,
        Column::QueueDepth
        | Column::BatchSize
        | Column::KvUtilization
        | Column::FreeKvBlocks
        | Column::CacheHitRate
        | Column::PreemptionCount
        | Column::RunningTokens
        | Column::Staleness => Reads { load: true, ..Reads::NOTHING },
        Column::AdapterActive | Column::AdapterWaiting | Column::FreeAdapterSlots => {
            Reads { load: true, adapters: true, ..Reads::NOTHING }
        }
        Column::WaitingTokens => Reads { load: true, waiting_tokens: true, ..Reads::NOTHING },
        Column::InFlight => Reads { in_flight: true, ..Reads::NOTHING },
        Column::InFlightTokens | Column::InFlightOutput => Reads { tokens: true, ..Reads::NOTHING },
        Column::TtftEwma | Column::ItlEwma => Reads { latencies: true, ..Reads::NOTHING },
        Column::CachedTokensCpu => Reads { cached_blocks: true, cpu_cached_blocks: true, ..Reads::NOTHING },
        Column::CachedBlocks | Column::CachedTokensGpu => Reads { cached_blocks: true, ..Reads::NOTHING },
    }
}

/// The events that a plugin subscribes to.
#[must_use]
pub fn events_of(events: EventSet) -> Events {
    let has = |event| events.contains(event);
    Events {
        routed: has(EventSet::ROUTED),
        first_token: has(EventSet::FIRST_TOKEN),
        completed: has(EventSet::COMPLETED),
        ended: has(EventSet::ENDED),
        rejected: has(EventSet::REJECTED),
        blocks: has(EventSet::BLOCKS),
    }
}

/// The rows of a batch, in the order of admission.
#[must_use]
pub fn running_rows(batch: &BatchView) -> Vec<RunningRow> {
    let row = |i: usize| RunningRow {
        arrival_us: batch.arrival[i].0,
        deadline_us: batch.deadline[i].map_or(NONE_U64, |at| at.0),
        priority: batch.priority[i],
        id: batch.id[i].0,
        input_tokens: batch.input_tokens[i],
        computed_tokens: batch.computed_tokens[i],
        generated_tokens: batch.generated_tokens[i],
        kv_blocks: batch.kv_blocks[i],
        preemptions: batch.preemptions[i],
        class_priority: batch.class_priority[i],
        slo_class: batch.tags[i].slo_class.0,
        tenant: batch.tags[i].tenant.0,
        session: batch.tags[i].session.0,
    };
    (0..batch.len()).map(row).collect()
}

#[cfg(test)]
mod tests {
    use blis_sim::ids::{InstanceIndex, RequestId};
    use blis_sim::policy::{Changes, InstanceInfo, Signals};
    use blis_sim::request::Request;
    use proptest::prelude::*;

    use super::*;

    fn view<'a>(
        instances: &'a [InstanceInfo],
        signals: &'a Signals,
        versions: Versions,
        in_flight_changes: Changes<'a>,
    ) -> ClusterView<'a> {
        ClusterView {
            now: Micros::ZERO,
            instances,
            signals,
            staleness: Staleness::default(),
            versions,
            in_flight_changes,
            tenants_in_flight: &[],
            scores: &[],
        }
    }

    proptest! {
        /// Kept rows equal rows built anew, however many of the changes are known; and every row that differs from the
        /// latest view is reported as changed.
        #[test]
        fn kept_rows_follow(
            n in 1usize..9,
            steps in prop::collection::vec((0usize..9, 0u32..5, prop::option::of(0u32..5), any::<bool>(), 0usize..12), 1..60),
        ) {
            let info = |id| InstanceInfo { id, max_num_seqs: 8, total_kv_blocks: 100 + id.0, block_size: 16, ..InstanceInfo::default() };
            let mut instances: Vec<InstanceInfo> = (0..n).map(InstanceIndex::at).map(info).collect();
            let mut signals = Signals::idle(vec![0; n]);
            // Columns of the decision at hand change all rows.
            let columns: Vec<Column> =
                Column::ALL.iter().copied().filter(|column| column.group() != ColumnGroup::Decision).collect();
            let request = Request::new(RequestId(0), Micros::ZERO, 40, 1);
            let request = RequestView::new(&request, 0, 16);
            let mut kept = InstanceRows::new(&columns);
            // At the latest view: the rows, the number of changes if it was counted, and the versions.
            let mut last: Option<(Vec<f64>, Option<usize>, Versions)> = None;
            let (mut log, mut versions) = (Vec::new(), Versions { load: 1, cached_blocks: 1, instances: 0 });
            for (index, value, load, look, forgotten) in steps {
                signals.in_flight[index % n] = value;
                signals.in_flight_tokens[index % n] = u64::from(value) * 100;
                signals.ttft_ewma[index % n] = f64::from(value) / 2.0;
                log.push((index % n) as u32);
                if let Some(load) = load {
                    signals.queue_depth[index % n] = load;
                    signals.kv_utilization[index % n] = f64::from(load) / 5.0;
                    signals.cached_blocks[index % n] = load;
                    versions.load += 1;
                    versions.cached_blocks += 1;
                    // Sometimes another instance has the row.
                    if load == 0 {
                        versions.instances += 1;
                        instances[index % n] = info(InstanceIndex(10 * log.len() as u32));
                    }
                }
                if look {
                    let before = log.len().min(forgotten);
                    let counted = forgotten != 11;
                    let changes =
                        if counted { Changes::new(before as u64, &log[before..]) } else { Changes::UNKNOWN };
                    // Sometimes the guest starts with a new state.
                    if value == 4 {
                        kept.forget();
                        last = None;
                    }
                    let followed = kept.of(Some(&request), &view(&instances, &signals, versions, changes));
                    let mut anew = InstanceRows::new(&columns);
                    let expected = anew.of(Some(&request), &view(&instances, &signals, versions, Changes::UNKNOWN));
                    prop_assert_eq!(expected.changed, None, "nothing was seen before");
                    prop_assert_eq!(followed.numbers, expected.numbers);
                    let known = last.as_ref().filter(|last| last.2 == versions).and_then(|last| last.1);
                    let known = known.filter(|&seen| counted && seen >= before && log.len() - seen < n);
                    prop_assert_eq!(followed.changed, known.map(|seen| &log[seen..]));
                    if let Some(changed) = followed.changed {
                        let (last, ..) = last.expect("there was a look before");
                        let row = |rows: &[f64], i: usize| rows.chunks(columns.len()).nth(i).map(<[f64]>::to_vec);
                        let unnamed = (0..n).find(|&i| {
                            row(&last, i) != row(followed.numbers, i) && !changed.contains(&(i as u32))
                        });
                        prop_assert_eq!(unnamed, None, "differs");
                    }
                    last = Some((followed.numbers.to_vec(), counted.then_some(log.len()), versions));
                }
            }
        }
    }
}
