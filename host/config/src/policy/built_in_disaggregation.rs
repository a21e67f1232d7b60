//! Built-in policies of prefill apart from decode as plugins: their rows as views.

use blis_sim::ids::{InstanceIndex, RequestId};
use blis_sim::policy::{
    Changes, ClusterView, DisaggregationPolicy, InstanceInfo, PoolsView, RequestView, Signals, Staleness, TransferLoad,
    TransfersView, Versions,
};
use blis_sim::request::{Name, Request, Tags};
use blis_sim::units::Micros;

use blis_plugin::rows::{NONE_U32, PoolInstanceRow, RoutedRequestRow};

/// The fields of the choice of `policy`. The instances that decode have the indices in front of those that prefill. Blocks have
/// one token, so that every number of cached tokens is a number of blocks.
pub(super) fn disaggregated(
    policy: &mut dyn DisaggregationPolicy,
    request: &RoutedRequestRow,
    decode: &[PoolInstanceRow],
    prefill: &[PoolInstanceRow],
) -> Box<[u64]> {
    let all = || decode.iter().chain(prefill);
    let signals = Signals {
        queue_depth: all().map(|row| row.queue_depth).collect(),
        batch_size: all().map(|row| row.batch_size).collect(),
        kv_utilization: all().map(|row| row.kv_utilization).collect(),
        in_flight: all().map(|row| row.in_flight).collect(),
        in_flight_tokens: all().map(|row| row.in_flight_tokens).collect(),
        cached_blocks: all().map(|row| request.input_tokens.saturating_sub(row.uncached_tokens)).collect(),
        ..Signals::idle(all().map(|row| row.free_kv_blocks))
    };
    let index = InstanceIndex::at;
    let info = |id| InstanceInfo {
        id: index(id),
        max_num_seqs: 1,
        total_kv_blocks: 1,
        block_size: 1,
        ..InstanceInfo::default()
    };
    let infos: Vec<InstanceInfo> = (0..decode.len() + prefill.len()).map(info).collect();
    let now = Micros(request.now_us);
    let cluster = ClusterView {
        now,
        instances: &infos,
        signals: &signals,
        staleness: Staleness::default(),
        versions: Versions::default(),
        in_flight_changes: Changes::new(0, &[]),
        tenants_in_flight: &[],
        scores: &[],
    };
    let [decodes, prefills] = [0..decode.len(), decode.len()..infos.len()].map(|range| range.map(index));
    let (decodes, prefills): (Vec<_>, Vec<_>) = (decodes.collect(), prefills.collect());
    let load = |count, tokens| TransferLoad { count, tokens };
    let by_instance: Vec<TransferLoad> = all().map(|row| load(row.transfers, row.transfer_tokens)).collect();
    let transfers = TransfersView {
        total: load(request.transfers, request.transfer_tokens),
        us_per_token: request.transfer_us_per_token,
        by_instance: &by_instance,
    };
    let whole = whole(request);
    let chosen = index(request.chosen as usize);
    let view = PoolsView { cluster: &cluster, decode: &decodes, chosen, prefill: &prefills, transfers };
    let decision = policy.decide(&RequestView::new(&whole, 0, 1), &view);
    let number = |instance: Option<InstanceIndex>, first: usize| {
        instance.map_or(NONE_U32, |instance| (instance.index() - first) as u32)
    };
    let fields = [u32::from(decision.disaggregate), number(decision.decode, 0), number(decision.prefill, decode.len())];
    fields.into_iter().map(u64::from).collect()
}

/// The request of a row; it has no content.
fn whole(row: &RoutedRequestRow) -> Request {
    Request {
        tags: Tags {
            slo_class: Name(row.slo_class),
            tenant: Name(row.tenant),
            session: Name(row.session),
            prefix_group: Name(row.prefix_group),
            round_index: row.round,
            ..Tags::default()
        },
        ..Request::new(RequestId(row.request), Micros(row.now_us), row.input_tokens, 0)
    }
}
