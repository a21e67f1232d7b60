//! The flow of a band that is served next.

use rustc_hash::FxHashMap;

use super::{Band, FairnessPolicy, Flow, ServedTokens};
use crate::request::Name;
use crate::units::Micros;

/// The flow with the head of the smallest rank, however much its tenant was served (llm-d's `global-strict-fairness`, the default).
#[derive(Clone, Copy, Debug, Default)]
pub struct GlobalStrict;

impl FairnessPolicy for GlobalStrict {
    fn pick(&mut self, _now: Micros, _saturation: f64, _band: Band, flows: &[Flow]) -> usize {
        first_by(flows, |flow| flow.head_rank)
    }

    fn fork(&self) -> Box<dyn FairnessPolicy> {
        Box::new(*self)
    }
}

/// One flow after the other in the order of tenants' names (llm-d's `round-robin-fairness`).
#[derive(Clone, Debug, Default)]
pub struct RoundRobinFlows {
    /// For each band, the position of the tenant that was served last.
    last: FxHashMap<i32, u32>,
}

impl FairnessPolicy for RoundRobinFlows {
    fn pick(&mut self, _now: Micros, _saturation: f64, band: Band, flows: &[Flow]) -> usize {
        let last = self.last.get(&band.priority).copied();
        let next = flows.iter().position(|flow| last.is_none_or(|last| flow.tenant_order > last)).unwrap_or(0);
        self.last.insert(band.priority, flows[next].tenant_order);
        next
    }

    fn fork(&self) -> Box<dyn FairnessPolicy> {
        Box::new(self.clone())
    }
}

/// Least attained service: the tenant that was served least in the last minutes, and a little the one that waits longest
/// (llm-d's `program-aware-fairness`).
///
/// The score is 0.8 × the attained service, inverted, + 0.2 × the wait of the head, both scaled to 0 … 1 over the flows;
/// the highest is served.
#[derive(Clone, Copy, Debug)]
pub struct LeastAttainedService {
    /// Weight of the attained service, from 0 to 1; the wait has the rest.
    pub service_weight: f64,
}

impl FairnessPolicy for LeastAttainedService {
    fn reads_ends(&self) -> bool {
        true
    }

    fn pick(&mut self, now: Micros, _saturation: f64, _band: Band, flows: &[Flow]) -> usize {
        let attained: Vec<f64> = flows.iter().map(|flow| ServedTokens::from(flow).decayed_at(now)).collect();
        let waits: Vec<f64> = flows.iter().map(|flow| flow.head_wait_us as f64).collect();
        let (attained, waits) = (scaled(&attained), scaled(&waits));
        let mut scores = attained
            .iter()
            .zip(&waits)
            .map(|(attained, wait)| -(self.service_weight * (1.0 - attained) + (1.0 - self.service_weight) * wait));
        first_by(flows, |_| scores.next().unwrap_or(0.0))
    }

    fn fork(&self) -> Box<dyn FairnessPolicy> {
        Box::new(*self)
    }
}

/// Virtual token counters (Sheng et al., Fairness in Serving Large Language Models, OSDI 2024): the tenant with the smallest
/// counter is served. A counter counts prompt tokens at dispatch and output tokens, with a weight, when they are known; that
/// of a tenant that had nothing to do is lifted to the smallest of the others, so that idle time earns nothing.
#[derive(Clone, Debug)]
pub struct VirtualTokenCounter {
    /// Weight of an output token beside a prompt token.
    output_weight: f64,
    /// What is added to the served tokens of a tenant, by tenant.
    lifts: FxHashMap<Name, f64>,
    /// Tenants with queued requests at the last call, by band.
    active: FxHashMap<i32, Vec<Name>>,
}

impl VirtualTokenCounter {
    /// An output token counts `output_weight` times a prompt token.
    #[must_use]
    pub fn new(output_weight: f64) -> Self {
        Self { output_weight, lifts: FxHashMap::default(), active: FxHashMap::default() }
    }

    fn counter(&self, flow: &Flow) -> f64 {
        let lift = self.lifts.get(&Name(flow.tenant)).copied().unwrap_or(0.0);
        flow.served_input as f64 + self.output_weight * flow.served_output as f64 + lift
    }
}

impl FairnessPolicy for VirtualTokenCounter {
    fn reads_ends(&self) -> bool {
        true
    }

    fn pick(&mut self, _now: Micros, _saturation: f64, band: Band, flows: &[Flow]) -> usize {
        let before = self.active.remove(&band.priority).unwrap_or_default();
        let is_new = |flow: &&Flow| flow.in_flight == 0 && !before.contains(&Name(flow.tenant));
        let least = flows.iter().filter(|flow| !is_new(flow)).map(|flow| self.counter(flow)).reduce(f64::min);
        if let Some(least) = least {
            for flow in flows.iter().filter(is_new) {
                let missing = least - self.counter(flow);
                if missing > 0.0 {
                    *self.lifts.entry(Name(flow.tenant)).or_default() += missing;
                }
            }
        }
        self.active.insert(band.priority, flows.iter().map(|flow| Name(flow.tenant)).collect());
        first_by(flows, |flow| self.counter(flow))
    }

    fn fork(&self) -> Box<dyn FairnessPolicy> {
        Box::new(self.clone())
    }
}

/// Shares by weight: the tenant with the fewest dispatched requests for its weight is served.
#[derive(Clone, Debug, Default)]
pub struct WeightedFlows {
    /// Weight of each tenant by the index of its name, > 0; 1 where there is none.
    pub weights: Vec<f64>,
    /// For each band and tenant, dispatches over the weight; a tenant that returns starts with the others.
    shares: FxHashMap<(i32, Name), f64>,
    /// The share of the flow served last in each band.
    level: FxHashMap<i32, f64>,
}

impl WeightedFlows {
    /// Tenants with these weights, by the index of their names.
    #[must_use]
    pub fn new(weights: Vec<f64>) -> Self {
        Self { weights, ..Self::default() }
    }
}

impl FairnessPolicy for WeightedFlows {
    fn pick(&mut self, _now: Micros, _saturation: f64, band: Band, flows: &[Flow]) -> usize {
        // Start-time fair queueing (Goyal et al. 1996): a flow starts at the level of the one that is served.
        let level = self.level.get(&band.priority).copied().unwrap_or(0.0);
        let start =
            |flow: &Flow| self.shares.get(&(band.priority, Name(flow.tenant))).copied().unwrap_or(0.0).max(level);
        let picked = first_by(flows, start);
        let (tenant, share) = (Name(flows[picked].tenant), start(&flows[picked]));
        let weight = self.weights.get(tenant.index()).copied().unwrap_or(1.0);
        self.shares.insert((band.priority, tenant), share + 1.0 / weight);
        self.level.insert(band.priority, share);
        picked
    }

    fn fork(&self) -> Box<dyn FairnessPolicy> {
        Box::new(self.clone())
    }
}

/// The flow with the smallest number; among equals the one with the head of the smallest rank, then the one enqueued first.
fn first_by(flows: &[Flow], mut number: impl FnMut(&Flow) -> f64) -> usize {
    let mut best: Option<(usize, f64)> = None;
    for (index, flow) in flows.iter().enumerate() {
        let value = number(flow);
        let is_first = best.is_none_or(|(other, least)| {
            let head = |flow: &Flow| (flow.head_rank, flow.head_turn);
            value < least || value == least && head(flow) < head(&flows[other])
        });
        if is_first {
            best = Some((index, value));
        }
    }
    best.map_or(0, |(index, _)| index)
}

/// Values scaled to 0 … 1; all 0 if they are equal.
fn scaled(values: &[f64]) -> Vec<f64> {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let range = values.iter().copied().fold(f64::NEG_INFINITY, f64::max) - least;
    values.iter().map(|value| if range > 0.0 { (value - least) / range } else { 0.0 }).collect()
}

#[cfg(test)]
mod tests {
    use super::super::flow_of;
    use super::*;
    use crate::ids::RequestId;
    use crate::request::Request;

    const BAND: Band = Band { priority: 3, queued: 9, oldest_wait_us: 0 };

    fn flow(tenant: u32, turn: u64) -> Flow {
        let head = Request::new(RequestId(0), Micros::ZERO, 100, 1);
        Flow { tenant, tenant_order: tenant, queued: 3, head_turn: turn, ..flow_of(&head) }
    }

    fn picks(policy: &mut dyn FairnessPolicy, flows: &mut [Flow], times: usize) -> Vec<u32> {
        let pick = |_| {
            let picked = policy.pick(Micros::ZERO, 0.0, BAND, flows);
            let flow = &mut flows[picked];
            let mut served = ServedTokens::from(&*flow);
            served.add(Micros::ZERO, u64::from(flow.head_input_tokens), 0);
            served.write_to(flow);
            flow.head_turn += 100;
            flow.tenant
        };
        (0..times).map(pick).collect()
    }

    #[test]
    fn each_policy_has_its_order() {
        let flows = || [flow(1, 5), flow(2, 3), flow(3, 4)];
        assert_eq!(picks(&mut GlobalStrict, &mut flows(), 4), [2, 3, 1, 2]);
        assert_eq!(picks(&mut RoundRobinFlows::default(), &mut flows(), 5), [1, 2, 3, 1, 2]);
        let mut unequal = flows();
        unequal[1].head_input_tokens = 300;
        assert_eq!(picks(&mut VirtualTokenCounter::new(2.0), &mut unequal, 7), [2, 3, 1, 3, 1, 3, 1]);
        let mut weighted = WeightedFlows::new(vec![1.0, 2.0, 1.0, 1.0]);
        assert_eq!(picks(&mut weighted, &mut flows(), 8), [2, 3, 1, 1, 2, 3, 1, 1]);
        let mut waiting = flows();
        waiting[0].head_wait_us = 1000;
        assert_eq!(picks(&mut LeastAttainedService { service_weight: 0.8 }, &mut waiting, 2)[0], 1);
    }

    #[test]
    fn idle_time_earns_no_tokens() {
        let mut policy = VirtualTokenCounter::new(2.0);
        let mut busy = [flow(1, 0)];
        picks(&mut policy, &mut busy, 50);
        let mut both = [busy[0], flow(2, 1)];
        let picked = picks(&mut policy, &mut both, 10);
        assert_eq!(picked.iter().filter(|&&tenant| tenant == 2).count(), 5, "{picked:?}");
    }
}
