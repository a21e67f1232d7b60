//! Guests as policies of flow control, with the same checks and incidents as those in front of the instances.

use blis_sim::policy::flow::{
    Band, CeilingsPolicy, EvictionPolicy, FairnessPolicy, Flow, GlobalStrict, InFlight, OrderingPolicy,
    SaturationPolicy, Utilization,
};
use blis_sim::policy::{ClusterView, Event, Events, Reads, RequestView};
use blis_sim::units::Micros;

use super::{PluginPolicy, fork, lifecycle};

/// The detector that decides instead of a failed one: llm-d's default.
const DEFAULT_DETECTOR: Utilization =
    Utilization { queue_depth: 5.0, kv_utilization: 0.8, staleness: Some(Micros(200_000)) };

impl SaturationPolicy for PluginPolicy {
    fn saturation(&mut self, cluster: &ClusterView<'_>) -> f64 {
        let saturation = self.decide(cluster.now, |guest| guest.saturation(cluster));
        saturation.unwrap_or_else(|| SaturationPolicy::saturation(&mut { DEFAULT_DETECTOR }, cluster))
    }

    lifecycle!(SaturationPolicy, reads);
}

impl CeilingsPolicy for PluginPolicy {
    fn ceilings(&mut self, now: Micros, saturation: f64, bands: &[Band], ceilings: &mut Vec<f64>) {
        let computed = self.decide(now, |guest| guest.ceilings(now, saturation, bands, ceilings));
        if computed.is_none() {
            ceilings.clear();
            ceilings.resize(bands.len(), 1.0);
        }
    }

    lifecycle!(CeilingsPolicy);
}

impl FairnessPolicy for PluginPolicy {
    /// Every flow that it gets has requests in flight and output tokens.
    fn reads_ends(&self) -> bool {
        true
    }

    fn pick(&mut self, now: Micros, saturation: f64, band: Band, flows: &[Flow]) -> usize {
        let index = self.decide(now, |guest| guest.fair_pick(now, saturation, band, flows));
        index.unwrap_or_else(|| FairnessPolicy::pick(&mut GlobalStrict, now, saturation, band, flows))
    }

    lifecycle!(FairnessPolicy);
}

impl OrderingPolicy for PluginPolicy {
    fn rank(&mut self, request: &RequestView<'_>, now: Micros, expires: Micros) -> f64 {
        let request = request.with_block_ids(self.block_ids);
        self.decide(now, |guest| guest.order(&request, now, expires)).unwrap_or(now.0 as f64)
    }

    lifecycle!(OrderingPolicy);
}

impl EvictionPolicy for PluginPolicy {
    fn victim(&mut self, now: Micros, demand: Band, in_flight: &[InFlight]) -> Option<usize> {
        self.decide(now, |guest| guest.evict(now, demand, in_flight)).flatten()
    }

    lifecycle!(EvictionPolicy);
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use blis_sim::cluster::Abort;
    use blis_sim::policy::BlockIds;
    use blis_sim::request::Request;

    use super::*;
    use crate::incidents::{Incidents, OnError};
    use crate::inputs::{DecisionPoint, GatewayState};
    use crate::{FaultKind, Kind, Limits, check, script};

    const NOW: Micros = Micros(1_000);

    /// The policy of a script that falls back, and its incidents.
    fn policy(kind: Kind, source: &str) -> (PluginPolicy, Incidents) {
        let limits = Limits::default();
        let plugin = script::load(Path::new("bad.rhai"), source, &limits).expect("compiles");
        let incidents = Incidents::new(OnError::Fallback, Abort::default());
        let guest = plugin.start(&check::setup(&*plugin, kind, 4, &limits)).expect("starts");
        (PluginPolicy::new("bad", plugin.description(), guest, BlockIds::KEYS, &incidents), incidents)
    }

    /// The kind and the message of the only incident.
    fn incident(incidents: &Incidents) -> (FaultKind, String) {
        let fault = incidents.first().expect("there is one").fault;
        (fault.kind, fault.to_string())
    }

    fn is_bad<T: PartialEq + std::fmt::Debug>(
        (output, incidents): (T, Incidents),
        instead: &T,
        kind: FaultKind,
        says: &str,
    ) {
        assert_eq!(output, *instead);
        let (found, message) = incident(&incidents);
        assert!(found == kind && message.contains(says), "{found:?}: {message}");
    }

    #[test]
    fn a_bad_saturation_is_that_of_the_default_detector() {
        let point = DecisionPoint::plausible(4, 3);
        let mut cluster = point.cluster();
        cluster.staleness.load = Micros::ZERO;
        let usual = SaturationPolicy::saturation(&mut { DEFAULT_DETECTOR }, &cluster);
        assert!(usual > 0.0 && usual != 1.0, "{usual}");
        let of = |source| {
            let (mut policy, incidents) = policy(Kind::Saturation, source);
            assert!(SaturationPolicy::reads(&policy).load, "for the fallback");
            (policy.saturation(&cluster), incidents)
        };
        is_bad(of("fn saturation(s) { 0.0 / 0.0 }"), &usual, FaultKind::NotANumber, "NaN");
        is_bad(of("fn saturation(s) { -0.5 }"), &usual, FaultKind::OutOfRange, "at least 0");
        is_bad(of("fn saturation(s) { 1.0 / 0.0 }"), &usual, FaultKind::OutOfRange, "finite");
        is_bad(of("fn saturation(s) { throw \"no\" }"), &usual, FaultKind::Trap, "no");
        let (good, incidents) = of("fn saturation(s) { s.len / 8.0 }");
        assert_eq!((good, incidents.first().is_none()), (0.5, true));
    }

    #[test]
    fn bad_ceilings_are_1() {
        let state = GatewayState::plausible(3, 1);
        let of = |source| {
            let (mut policy, incidents) = policy(Kind::Ceilings, source);
            let mut ceilings = Vec::new();
            CeilingsPolicy::ceilings(&mut policy, NOW, 0.5, &state.bands, &mut ceilings);
            (ceilings, incidents)
        };
        let ones = vec![1.0; 3];
        is_bad(of("fn ceilings(saturation, b) { [0.5] }"), &ones, FaultKind::OutOfRange, "one for each of 3 bands");
        is_bad(of("fn ceilings(saturation, b) { [0.5, 0.0 / 0.0, 1.0] }"), &ones, FaultKind::NotANumber, "band 1");
        is_bad(of("fn ceilings(saturation, b) { 0.5 }"), &ones, FaultKind::Trap, "a ceiling for each band");
        assert_eq!(of("fn ceilings(saturation, b) { b.indices + saturation }").0, [0.5, 1.5, 2.5]);
    }

    #[test]
    fn a_bad_flow_is_that_of_global_strict() {
        let mut state = GatewayState::plausible(3, 1);
        state.flows.iter_mut().zip([3.0, 1.0, 2.0]).for_each(|(flow, rank)| flow.head_rank = rank);
        let of = |source| {
            let (mut policy, incidents) = policy(Kind::Fairness, source);
            assert!(policy.reads_ends());
            (policy.pick(NOW, 0.5, state.bands[0], &state.flows), incidents)
        };
        is_bad(of("fn fair_pick(b, f) { 3 }"), &1, FaultKind::OutOfRange, "from 0 to 2");
        is_bad(of("fn fair_pick(b, f) { -1 }"), &1, FaultKind::OutOfRange, "from 0 to 2");
        is_bad(of("fn fair_pick(b, f) { [1.0] }"), &1, FaultKind::OutOfRange, "one for each of 3");
        is_bad(of("fn fair_pick(b, f) { f.head_rank / 0.0 - f.head_rank / 0.0 }"), &1, FaultKind::NotANumber, "NaN");
        assert_eq!(of("fn fair_pick(b, f) { f.head_rank }").0, 0);
    }

    #[test]
    fn a_bad_rank_is_the_order_of_arrival() {
        let request = Request::new(blis_sim::ids::RequestId(1), Micros::ZERO, 100, 10);
        let view = RequestView::new(&request, 0, 16);
        let of = |source| {
            let (mut policy, incidents) = policy(Kind::Ordering, source);
            (OrderingPolicy::rank(&mut policy, &view, NOW, Micros::MAX), incidents)
        };
        is_bad(of("fn order(r, expires) { 0.0 / 0.0 }"), &1_000.0, FaultKind::NotANumber, "NaN");
        is_bad(of("fn order(r, expires) { \"first\" }"), &1_000.0, FaultKind::Trap, "a number");
        assert_eq!(of("fn order(r, expires) { if expires == () { r.input_tokens } else { 0 } }").0, 100.0);
    }

    #[test]
    fn a_bad_victim_is_none() {
        let state = GatewayState::plausible(3, 1);
        let of = |source| {
            let (mut policy, incidents) = policy(Kind::Eviction, source);
            (policy.victim(NOW, state.bands[0], &state.in_flight), incidents)
        };
        is_bad(of("fn evict(b, f) { 3 }"), &None, FaultKind::OutOfRange, "from 0 to 2");
        is_bad(of("fn evict(b, f) { \"all\" }"), &None, FaultKind::Trap, "evict returned");
        let (none, incidents) = of("fn evict(b, f) { () }");
        assert_eq!((none, incidents.first().is_none()), (None, true));
        assert_eq!(of("fn evict(b, f) { f.indices }").0, Some(2));
    }

    /// A script that needs the prompt of a request cannot say how full the service is.
    #[test]
    fn a_detector_reads_nothing_of_a_request() {
        let source = "fn saturation(s) { mean(s.cached_blocks) }";
        let refused = script::load(Path::new("bad.rhai"), source, &Limits::default()).expect_err("refused");
        assert_eq!(refused.kind, FaultKind::Refused);
        assert!(refused.to_string().contains("cannot read `cached_blocks`"), "{refused}");
    }

    #[test]
    fn copies_continue_as_the_original() {
        let state = GatewayState::plausible(3, 1);
        let source =
            "fn init(info) { #{next: 0} }\nfn fair_pick(b, f) { this.next = (this.next + 1) % f.len; this.next }";
        let (mut original, incidents) = policy(Kind::Fairness, source);
        let pick = |policy: &mut dyn FairnessPolicy| policy.pick(NOW, 0.5, state.bands[0], &state.flows);
        assert_eq!(pick(&mut original), 1);
        let mut copy = FairnessPolicy::fork(&original);
        assert_eq!([pick(&mut original), pick(&mut original)], [2, 0]);
        assert_eq!([pick(&mut *copy), pick(&mut *copy)], [2, 0]);
        assert!(incidents.first().is_none());
    }
}
