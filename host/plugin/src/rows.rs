//! Rows of `blis-abi`: built from the simulator's views, and kept from decision to decision.

use blis_sim::latency::Batch;
use blis_sim::policy::{
    BatchView, ClusterView, Event, EventKind, Events, QueuedView, Reads, RequestView, Staleness, Versions,
};
use blis_sim::request::Tags;
use blis_sim::units::Micros;

pub use blis_abi::{
    Event as EventRow, Instance as InstanceRow, NONE_I32, NONE_U32, NONE_U64, Queued as QueuedRow,
    Request as RequestRow, Row, Running as RunningRow, Staleness as StalenessRow, Step as StepRow,
};

/// The versions that a guest got at its latest decision: only what changed since is written or read again.
#[derive(Clone, Copy, Debug, Default)]
pub struct LatestView {
    instances: usize,
    versions: Versions,
    /// Number of changes of `in_flight` by then.
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
    /// Indices with a changed `in_flight`; `None` if any may have.
    in_flight: Option<&'a [u32]>,
}

impl LatestView {
    /// Compares `cluster` with the latest view and replaces it.
    pub fn advance<'a>(&mut self, cluster: &ClusterView<'a>) -> ViewChanges<'a> {
        let all = self.instances != cluster.len();
        let fresh = |before: u64, now: u64| all || now == 0 || before != now;
        let since = ViewChanges {
            instances: cluster.len(),
            all,
            load: fresh(self.versions.load, cluster.versions.load),
            cached_blocks: fresh(self.versions.cached_blocks, cluster.versions.cached_blocks),
            in_flight: cluster.in_flight_changes.since(self.changes).filter(|_| !all),
        };
        *self =
            Self { instances: cluster.len(), versions: cluster.versions, changes: cluster.in_flight_changes.count() };
        since
    }
}

impl<'a> ViewChanges<'a> {
    /// The indices of the instances with rows that may have changed, some more than once; `None` if all may have, or so
    /// many that reading all rows is as fast. The result of `host.changed`.
    #[must_use]
    pub fn changed(&self) -> Option<&'a [u32]> {
        let few = |indices: &&[u32]| {
            indices.len() < self.instances && indices.iter().all(|&index| (index as usize) < self.instances)
        };
        self.in_flight.filter(few).filter(|_| !self.load && !self.cached_blocks)
    }
}

/// Rows of the instances, kept from call to call: only rows that may have changed are written.
#[derive(Clone, Debug, Default)]
pub struct InstanceRows {
    rows: Vec<InstanceRow>,
    latest: LatestView,
}

/// The instances of one decision.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'r, 'c> {
    /// One row per instance.
    pub rows: &'r [InstanceRow],
    /// The result of [`ViewChanges::changed`] since the call before.
    pub changed: Option<&'c [u32]>,
}

impl InstanceRows {
    /// Updates the rows from `cluster`.
    pub fn of<'c>(&mut self, cluster: &ClusterView<'c>) -> Rows<'_, 'c> {
        let signals = cluster.signals;
        let since = self.latest.advance(cluster);
        if since.all {
            self.rows.clear();
            let info = |info: &blis_sim::policy::InstanceInfo| InstanceRow {
                total_kv_blocks: info.total_kv_blocks,
                ..InstanceRow::default()
            };
            self.rows.extend(cluster.instances.iter().map(info));
        }
        if since.load {
            for (i, row) in self.rows.iter_mut().enumerate() {
                row.kv_utilization = signals.kv_utilization[i];
                row.cache_hit_rate = signals.cache_hit_rate[i];
                row.preemption_count = signals.preemption_count[i];
                row.queue_depth = signals.queue_depth[i];
                row.batch_size = signals.batch_size[i];
                row.free_kv_blocks = signals.free_kv_blocks[i];
            }
        }
        if since.cached_blocks {
            self.rows.iter_mut().zip(&signals.cached_blocks).for_each(|(row, &blocks)| row.cached_blocks = blocks);
        }
        match since.in_flight {
            Some(changed) => changed.iter().map(|&i| i as usize).for_each(|i| {
                if let (Some(row), Some(&count)) = (self.rows.get_mut(i), signals.in_flight.get(i)) {
                    row.in_flight = count;
                }
            }),
            None => self.rows.iter_mut().zip(&signals.in_flight).for_each(|(row, &count)| row.in_flight = count),
        }
        Rows { rows: &self.rows, changed: since.changed() }
    }

    /// The guest has a new state or missed a result: at the next decision any row may have changed.
    #[cold]
    pub fn forget(&mut self) {
        *self = Self::default();
    }
}

/// The row of `request` for a decision at `now`; `tenant_in_flight` is the count if it is known.
#[must_use]
#[inline]
pub fn request_row(request: &RequestView<'_>, now: Micros, tenant_in_flight: u32) -> RequestRow {
    let Tags { slo_class, tenant, session, model, client, prefix_group, round_index } = request.tags;
    RequestRow {
        now_us: now.0,
        arrival_us: request.arrival.0,
        deadline_us: request.deadline.map_or(NONE_U64, |at| at.0),
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
    }
}

/// The row of `request` for a decision that reads the cluster.
#[must_use]
#[inline]
pub fn decision_row(request: &RequestView<'_>, cluster: &ClusterView<'_>) -> RequestRow {
    request_row(request, cluster.now, cluster.tenant_in_flight(request.tags.tenant))
}

/// The row of the staleness of the signals.
#[must_use]
#[inline]
pub fn staleness_row(staleness: Staleness) -> StalenessRow {
    StalenessRow { load_us: staleness.load.0, cached_blocks_us: staleness.cached_blocks.0 }
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

/// The columns that a plugin reads, from the bits that it declares.
#[must_use]
pub fn reads_of(bits: u32) -> Reads {
    use blis_abi::ColumnSet as Bits;
    let has = |column| Bits::from_bits(bits).contains(column);
    Reads { load: has(Bits::LOAD), in_flight: has(Bits::IN_FLIGHT), cached_blocks: has(Bits::CACHED_BLOCKS) }
}

/// The events that a plugin subscribes to, from the bits that it declares.
#[must_use]
pub fn events_of(bits: u32) -> Events {
    use blis_abi::EventSet as Bits;
    let has = |event| Bits::from_bits(bits).contains(event);
    Events {
        routed: has(Bits::ROUTED),
        first_token: has(Bits::FIRST_TOKEN),
        completed: has(Bits::COMPLETED),
        ended: has(Bits::ENDED),
        rejected: has(Bits::REJECTED),
        blocks: has(Bits::BLOCKS),
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
    use blis_sim::ids::InstanceIndex;
    use blis_sim::policy::{Changes, InstanceInfo, Signals};
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
            let info = |id| InstanceInfo { id, max_num_seqs: 8, total_kv_blocks: 100 + id.0, block_size: 16 };
            let instances: Vec<InstanceInfo> = (0..n).map(InstanceIndex::at).map(info).collect();
            let column = vec![0; n];
            let mut signals = Signals {
                queue_depth: column.clone(),
                batch_size: column.clone(),
                kv_utilization: vec![0.0; n],
                free_kv_blocks: column.clone(),
                cache_hit_rate: vec![0.0; n],
                preemption_count: vec![0; n],
                in_flight: column.clone(),
                cached_blocks: column,
            };
            let mut kept = InstanceRows::default();
            // At the latest view: the rows, the number of changes if it was counted, and the versions.
            let mut last: Option<(Vec<InstanceRow>, Option<usize>, Versions)> = None;
            let (mut log, mut versions) = (Vec::new(), Versions { load: 1, cached_blocks: 1 });
            for (index, value, load, look, forgotten) in steps {
                signals.in_flight[index % n] = value;
                log.push((index % n) as u32);
                if let Some(load) = load {
                    signals.queue_depth[index % n] = load;
                    signals.kv_utilization[index % n] = f64::from(load) / 5.0;
                    signals.cached_blocks[index % n] = load;
                    versions = Versions { load: versions.load + 1, cached_blocks: versions.cached_blocks + 1 };
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
                    let followed = kept.of(&view(&instances, &signals, versions, changes));
                    let mut anew = InstanceRows::default();
                    let expected = anew.of(&view(&instances, &signals, versions, Changes::UNKNOWN));
                    prop_assert_eq!(expected.changed, None, "nothing was seen before");
                    prop_assert_eq!(followed.rows, expected.rows);
                    let known = last.as_ref().filter(|last| last.2 == versions).and_then(|last| last.1);
                    let known = known.filter(|&seen| counted && seen >= before && log.len() - seen < n);
                    prop_assert_eq!(followed.changed, known.map(|seen| &log[seen..]));
                    if let Some(changed) = followed.changed {
                        let (last, ..) = last.expect("there was a look before");
                        let unnamed = (0..n).find(|&i| last[i] != followed.rows[i] && !changed.contains(&(i as u32)));
                        prop_assert_eq!(unnamed, None, "differs");
                    }
                    last = Some((followed.rows.to_vec(), counted.then_some(log.len()), versions));
                }
            }
        }
    }
}
