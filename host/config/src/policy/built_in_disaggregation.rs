//! Built-in policies of prefill apart from decode as plugins: their rows as views.

use blis_sim::ids::{InstanceIndex, RequestId};
use blis_sim::policy::{
    Changes, ClusterView, DisaggregationPolicy, InstanceInfo, PoolsView, RequestView, Signals, Staleness, TransferLoad,
    TransfersView, Versions,
};
use blis_sim::request::{Name, Request, Tags};
use blis_sim::units::Micros;

use super::built_in::{BuiltInGuest, BuiltInPolicy};
use blis_plugin::rows::{NONE_U32, PoolInstanceRow, PrefillChoiceRow, RoutedRequestRow};
use blis_plugin::{DisaggregationGuest, Fault, StartedGuest};

impl BuiltInPolicy for Box<dyn DisaggregationPolicy> {
    fn start(self) -> StartedGuest {
        StartedGuest::Disaggregation(Box::new(BuiltInGuest(self)))
    }

    fn copy(&self) -> Self {
        self.fork()
    }
}

impl DisaggregationGuest for BuiltInGuest<Box<dyn DisaggregationPolicy>> {
    /// The instances that decode have the indices in front of those that prefill. Blocks have one token, so that every number of
    /// cached tokens is a number of blocks.
    fn disaggregate(
        &mut self,
        request: &RoutedRequestRow,
        decode: &[PoolInstanceRow],
        prefill: &[PoolInstanceRow],
    ) -> Result<PrefillChoiceRow, Fault> {
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
        let decision = self.0.decide(&RequestView::new(&whole, 0, 1), &view);
        let number = |instance: Option<InstanceIndex>, first: usize| {
            instance.map_or(NONE_U32, |instance| (instance.index() - first) as u32)
        };
        Ok(PrefillChoiceRow {
            remote: u32::from(decision.disaggregate),
            decode: number(decision.decode, 0),
            prefill: number(decision.prefill, decode.len()),
        })
    }
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use blis_plugin::inputs::GuestCall;
    use blis_plugin::{Kind, Limits, Plugin, check, script};
    use blis_sim::policy::Ties;

    use crate::policy::BuiltIn;

    /// The outputs of `plugin` for generated inputs and those at the limits of their ranges.
    fn outputs(plugin: &dyn Plugin) -> Vec<String> {
        let setup = check::setup(plugin, Kind::Disaggregation, 4, &Limits::default());
        let mut guest = plugin.start(&setup).expect("it starts");
        let usual = (0..300).map(|item| GuestCall::plausible(Kind::Disaggregation, 1 + item as usize % 9, item));
        let calls = usual.chain(GuestCall::extreme(Kind::Disaggregation, 4).into_iter().map(|(_, call)| call));
        calls.map(|call| format!("{:?}", call.run(&mut guest, &Ties::LowestIndex))).collect()
    }

    #[test]
    fn scripts_of_the_built_ins_decide_alike() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/built-ins");
        for name in ["always", "prefix-threshold", "edpp"] {
            let row = BuiltIn::find(Kind::Disaggregation, name).expect("it is built in");
            let file = folder.join(format!("{name}.rhai"));
            let loaded = script::load_file(&file, &Limits::default()).expect("compiles");
            let (script, built_in) = (outputs(&*loaded), outputs(&*row.load().plugin));
            assert_eq!(script, built_in, "{name}");
            assert!(script.iter().any(|output| output.contains("true")), "{name}");
        }
    }
}
