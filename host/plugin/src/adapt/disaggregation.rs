//! Guests as policies of prefill apart from decode.

use blis_sim::ids::InstanceIndex;
use blis_sim::policy::{DisaggregationDecision, DisaggregationPolicy, Event, Events, PoolsView, Reads, RequestView};

use super::{PluginPolicy, fork, lifecycle};
use crate::rows::{NONE_U32, PoolInstanceRow, PrefillChoiceRow, RoutedRequestRow, canonical};

impl DisaggregationPolicy for PluginPolicy {
    /// Every instance that it gets has all signals.
    fn reads(&self) -> Reads {
        Reads { load: true, in_flight: true, tokens: true, cached_blocks: true, ..Reads::NOTHING }
    }

    fn reads_transfers(&self) -> bool {
        true
    }

    fn decide(&mut self, request: &RequestView<'_>, pools: &PoolsView<'_>) -> DisaggregationDecision {
        let row = request_row(request, pools);
        let [decode, prefill] = [pools.decode, pools.prefill].map(|pool| {
            pool.iter().map(|&instance| instance_row(request, pools, instance)).collect::<Vec<PoolInstanceRow>>()
        });
        let choice = self.decide(pools.cluster.now, |guest| guest.disaggregate(&row, &decode, &prefill));
        let PrefillChoiceRow { remote, decode, prefill } = choice.unwrap_or_default();
        DisaggregationDecision {
            disaggregate: remote != 0,
            decode: pools.decode.get(decode as usize).copied(),
            prefill: pools.prefill.get(prefill as usize).copied(),
        }
    }

    lifecycle!(DisaggregationPolicy);
}

fn request_row(request: &RequestView<'_>, pools: &PoolsView<'_>) -> RoutedRequestRow {
    let tags = request.tags;
    let chosen = pools.decode.iter().position(|&instance| instance == pools.chosen);
    RoutedRequestRow {
        now_us: pools.cluster.now.0,
        transfer_us_per_token: canonical(pools.transfers.us_per_token),
        request: request.id.0,
        input_tokens: request.input_tokens,
        chosen: chosen.map_or(NONE_U32, |index| index as u32),
        transfers: pools.transfers.total.count,
        transfer_tokens: pools.transfers.total.tokens,
        slo_class: tags.slo_class.0,
        tenant: tags.tenant.0,
        session: tags.session.0,
        prefix_group: tags.prefix_group.0,
        round: tags.round_index,
    }
}

fn instance_row(request: &RequestView<'_>, pools: &PoolsView<'_>, instance: InstanceIndex) -> PoolInstanceRow {
    let (signals, index) = (pools.cluster.signals, instance.index());
    let transfers = pools.transfers.load(instance);
    PoolInstanceRow {
        in_flight_tokens: signals.in_flight_tokens[index],
        kv_utilization: canonical(signals.kv_utilization[index]),
        instance: instance.0,
        queue_depth: signals.queue_depth[index],
        batch_size: signals.batch_size[index],
        in_flight: signals.in_flight[index],
        uncached_tokens: pools.uncached_tokens(request, instance),
        free_kv_blocks: signals.free_kv_blocks[index],
        transfers: transfers.count,
        transfer_tokens: transfers.tokens,
    }
}
