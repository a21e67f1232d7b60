//! The admission policy `latency-slo`.

use rustc_hash::FxHashMap;

use super::positive;
use crate::ids::{InstanceIndex, RequestId};
use crate::policy::{
    AdmissionDecision, AdmissionPolicy, ClusterView, Event, EventKind, Events, Features, LinearModel, Reads, Reason,
    RequestView,
};

/// Used share of the KV blocks below which an instance counts as free (llm-d).
const FREE_KV: f64 = 0.02;

/// Classes that may be shed are admitted only if an instance can serve them in time (llm-d's `latency-slo-admitter`): it has
/// no request in flight, or uses less than 2 % of its KV blocks, or its predicted TTFT is within the SLO.
///
/// TTFT = a0 + a1 · prompt tokens in flight, its own included + a2 · requests in flight, when it was admitted; fitted to
/// what the router measures, as that of the scorer `predicted-latency`. A class without a target of TTFT has the
/// policy's.
#[derive(Clone, Debug)]
pub struct LatencySlo {
    /// Target of classes without one, µs.
    target: f64,
    ttft: LinearModel,
    /// For each request that was admitted and not routed, the inputs of the model by instance.
    admitted: FxHashMap<RequestId, Vec<(InstanceIndex, Features)>>,
    /// Inputs of the model for the requests without a first token.
    routed: FxHashMap<RequestId, Features>,
}

impl LatencySlo {
    /// `target`: TTFT of classes without a target, ms.
    ///
    /// # Errors
    /// A message if it is not above 0.
    pub fn new(target: f64) -> Result<Self, String> {
        positive("the TTFT of latency-slo", target)?;
        Ok(Self {
            target: target * 1000.0,
            ttft: LinearModel::default(),
            admitted: FxHashMap::default(),
            routed: FxHashMap::default(),
        })
    }
}

impl AdmissionPolicy for LatencySlo {
    fn reads(&self) -> Reads {
        Reads { load: true, in_flight: true, cached_blocks: true, tokens: true, ..Reads::NOTHING }
    }

    fn admit(&mut self, request: &RequestView<'_>, cluster: &ClusterView<'_>) -> AdmissionDecision {
        let signals = cluster.signals;
        let features = |i: usize| {
            let uncached = f64::from(request.input_tokens - signals.cached_tokens(request, i));
            [1.0, (signals.in_flight_tokens[i] as f64 + uncached) / 1000.0, f64::from(signals.in_flight[i])]
        };
        let instances: Vec<(InstanceIndex, Features)> =
            cluster.instances.iter().enumerate().map(|(i, instance)| (instance.id, features(i))).collect();
        let is_free = |i: usize| signals.in_flight[i] == 0 || signals.kv_utilization[i] < FREE_KV;
        let target = request.targets.ttft.map_or(self.target, |target| target.0 as f64);
        let predicted = instances.iter().map(|(_, features)| self.ttft.predict(features)).fold(f64::INFINITY, f64::min);
        if request.class_priority >= 0 || predicted <= target || (0..cluster.len()).any(is_free) {
            self.admitted.insert(request.id, instances);
            return AdmissionDecision::Admit;
        }
        AdmissionDecision::Reject(Reason::LatencySlo { class: request.tags.slo_class, predicted_us: predicted })
    }

    fn events(&self) -> Events {
        Events { routed: true, rejected: true, first_token: true, completed: true, ended: true, ..Events::NONE }
    }

    fn observe(&mut self, event: &Event) {
        match event.kind {
            EventKind::Routed => {
                let Some(instances) = self.admitted.remove(&event.request) else { return };
                let chosen = instances.iter().find(|(instance, _)| Some(*instance) == event.instance);
                self.routed.extend(chosen.map(|&(_, features)| (event.request, features)));
            }
            EventKind::FirstToken => {
                if let (Some(features), Some(ttft)) = (self.routed.remove(&event.request), event.ttft) {
                    self.ttft.add(&features, ttft.0 as f64);
                }
            }
            EventKind::Completed | EventKind::Ended | EventKind::Rejected => {
                self.admitted.remove(&event.request);
                self.routed.remove(&event.request);
            }
            EventKind::BlockStored | EventKind::BlockEvicted => {}
        }
    }

    fn fork(&self) -> Box<dyn AdmissionPolicy> {
        Box::new(self.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::testing::{TestService, request};
    use crate::request::Tags;
    use crate::units::Micros;

    fn event(kind: EventKind, request: u32, ttft: Option<Micros>) -> Event {
        Event {
            at: Micros::ZERO,
            kind,
            request: RequestId(request),
            instance: Some(InstanceIndex(0)),
            input_tokens: 35,
            generated_tokens: 1,
            ttft,
            e2e: None,
            tags: Tags::default(),
            block: 0,
        }
    }

    #[test]
    fn requests_that_may_be_shed_are_rejected_if_none_serves_them_in_time() {
        let mut policy = LatencySlo::new(5.0).expect("valid");
        let service = |tokens: u64, in_flight: u32, kv: f64| {
            TestService::idle(2).with(|signals| {
                signals.in_flight_tokens = vec![tokens; 2];
                signals.in_flight = vec![in_flight; 2];
                signals.kv_utilization = vec![kv; 2];
            })
        };
        let admits = |policy: &mut LatencySlo, id, priority, service: &TestService| {
            let request = request(id, 2, &[]);
            policy.admit(&RequestView::new(&request, priority, 16), &service.view()) == AdmissionDecision::Admit
        };
        assert!(admits(&mut policy, 0, -1, &service(9000, 4, 0.5)), "nothing is measured");
        // One millisecond per thousand prompt tokens in flight.
        for id in 1..80 {
            let tokens = u64::from(id % 10) * 1000;
            assert!(admits(&mut policy, id, 0, &service(tokens, id % 3 + 1, 0.5)));
            policy.observe(&event(EventKind::Routed, id, None));
            policy.observe(&event(EventKind::FirstToken, id, Some(Micros(tokens + 35))));
        }
        assert!(admits(&mut policy, 100, -1, &service(4000, 2, 0.5)), "4 ms");
        assert!(!admits(&mut policy, 101, -1, &service(6000, 2, 0.5)), "6 ms");
        assert!(admits(&mut policy, 102, 0, &service(6000, 2, 0.5)), "it may not be shed");
        assert!(admits(&mut policy, 103, -1, &service(6000, 2, 0.01)), "there is KV cache");
        assert!(admits(&mut policy, 104, -1, &service(6000, 0, 0.5)), "an instance is idle");
        assert!(policy.routed.is_empty());
        for id in [0, 100, 102, 103, 104] {
            policy.observe(&event(EventKind::Rejected, id, None));
        }
        assert!(policy.admitted.is_empty(), "{:?}", policy.admitted);
    }
}
