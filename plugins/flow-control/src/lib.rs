//! Five built-in policies of flow control, one of each kind, as one component: the saturation detector `utilization`, the
//! usage limits of `priority-holdback`, `virtual-token-counter`, `edf`, and `lowest-priority-newest`.
//!
//! Runs with it have the results of the built-ins, byte for byte. Every floating-point operation is that of the built-in,
//! in its order. `examples/built-ins/` has the same as scripts.

mod smallest;

use std::collections::BTreeMap;

use blis_sdk::{
    Band, Ceilings, Cluster, Description, Eviction, Fairness, Flow, InFlight, Ordering, Policy, Request, Saturation,
    Setup,
};
use serde::{Deserialize, Serialize};

use self::smallest::{Smallest, served, smallest};

blis_sdk::signals! {
    /// What the detector reads about an instance.
    pub struct LoadSignals { queue_depth, kv_utilization }
}

/// The parameters of all five, and the state of the fairness policy.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReimplementedFlowControl {
    queue_depth: f64,
    kv_utilization: f64,
    staleness_us: u64,
    limit: f64,
    output_weight: f64,
    /// What is added to the served tokens of a tenant, by the number of its name.
    lifts: Vec<f64>,
    /// For each band, the tenants with queued requests at the latest decision.
    active: BTreeMap<i32, ActiveTenants>,
    /// The instances at the latest decision, and how full they were.
    #[serde(skip)]
    seen: Vec<LoadSignals>,
    #[serde(skip)]
    saturation: f64,
    /// Limits by rank as of the latest decision: they depend on the number of bands alone.
    #[serde(skip)]
    limits: Vec<f64>,
}

/// Tenants in the order of the flows of their band, and what is added to their served tokens.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct ActiveTenants {
    tenants: Vec<u32>,
    lifts: Vec<f64>,
}

impl Policy for ReimplementedFlowControl {
    type Signals = LoadSignals;

    fn describe() -> Description {
        Description::new("rust-flow-control")
            .version(env!("CARGO_PKG_VERSION"))
            .about("utilization, priority-holdback, virtual-token-counter, edf and lowest-priority-newest.")
            .parameter("queue_depth", 5.0, 0.1..=1000.0, "utilization: waiting requests with which an instance is full")
            .parameter("kv_utilization", 0.8, 0.01..=1.0, "utilization: used share of its KV blocks, as well")
            .parameter("staleness_ms", 200.0, 0.0..=1e6, "utilization: age of signals that count as full, ms; 0: never")
            .parameter("limit", 1.0, 0.001..=1.0, "priority-holdback: saturation from which on the lowest band waits")
            .parameter("output_weight", 2.0, 0.0..=1000.0, "virtual-token-counter: weight of an output token")
    }

    fn new(setup: &Setup) -> Result<Self, String> {
        Ok(Self {
            queue_depth: setup.parameter("queue_depth"),
            kv_utilization: setup.parameter("kv_utilization"),
            staleness_us: (setup.parameter("staleness_ms") * 1000.0).round() as u64,
            limit: setup.parameter("limit"),
            output_weight: setup.parameter("output_weight"),
            lifts: Vec::new(),
            active: BTreeMap::new(),
            seen: Vec::new(),
            saturation: 0.0,
            limits: Vec::new(),
        })
    }
}

/// `utilization`: the mean over the instances of the larger of two shares.
impl Saturation for ReimplementedFlowControl {
    fn saturation(&mut self, _: u64, cluster: &Cluster<'_, LoadSignals>) -> f64 {
        let instances = cluster.instances;
        let is_stale = self.staleness_us > 0 && cluster.ages.periodic_us > self.staleness_us;
        if instances.is_empty() || is_stale {
            return 1.0;
        }
        // Between two reports of the instances nothing changes.
        let differs = |(a, b): (&LoadSignals, &LoadSignals)| {
            (a.queue_depth.to_bits() ^ b.queue_depth.to_bits())
                | (a.kv_utilization.to_bits() ^ b.kv_utilization.to_bits())
        };
        let is_new = self.seen.len() != instances.len()
            || self.seen.iter().zip(instances).map(differs).fold(0, |some, more| some | more) != 0;
        if is_new {
            let full = instances.iter().map(|instance| {
                (instance.queue_depth / self.queue_depth).max(instance.kv_utilization / self.kv_utilization)
            });
            self.saturation = full.sum::<f64>() / instances.len() as f64;
            self.seen.clear();
            self.seen.extend_from_slice(instances);
        }
        self.saturation
    }
}

/// `priority-holdback`: limits that fall evenly from 1 for the highest band to `limit` for the lowest.
impl Ceilings for ReimplementedFlowControl {
    fn ceilings(&mut self, _: u64, _: f64, bands: &[Band], ceilings: &mut Vec<f64>) {
        if self.limits.len() != bands.len() {
            let steps = bands.len().saturating_sub(1).max(1) as f64;
            self.limits = (0..bands.len()).map(|rank| 1.0 - rank as f64 * (1.0 - self.limit) / steps).collect();
        }
        ceilings.extend_from_slice(&self.limits);
    }
}

/// `virtual-token-counter`: the tenant that was served the fewest tokens; one that returns starts with the others.
impl Fairness for ReimplementedFlowControl {
    fn fair_pick(&mut self, _: u64, _: f64, band: &Band, flows: &[Flow]) -> usize {
        let Self { lifts, active, output_weight, .. } = self;
        let weight = *output_weight;
        let before = active.entry(band.priority).or_default();
        // Mostly no tenant has come or gone.
        match smallest(flows, &before.tenants, &before.lifts, weight) {
            Smallest::At(index) => return index,
            Smallest::Unclear => return first(flows, &before.lifts, weight),
            Smallest::OfOtherTenants => {}
        }
        let lift_of = |tenant: u32, lifts: &[f64]| lifts.get(tenant as usize).copied().unwrap_or(0.0);
        let counter = |flow: &Flow| served(flow, weight) + lift_of(flow.tenant, lifts);
        let returns = |flow: &&Flow| flow.in_flight == 0 && !before.tenants.contains(&flow.tenant);
        let least = flows.iter().filter(|flow| !returns(flow)).map(counter).reduce(f64::min);
        let returned = flows.iter().filter(returns).map(|flow| (flow.tenant as usize, counter(flow)));
        let missing = returned.filter_map(|(tenant, counter)| Some((tenant, least? - counter)));
        let missing: Vec<(usize, f64)> = missing.filter(|&(_, missing)| missing > 0.0).collect();
        before.tenants = flows.iter().map(|flow| flow.tenant).collect();
        let raises_any = !missing.is_empty();
        for (tenant, missing) in missing {
            if tenant >= lifts.len() {
                lifts.resize(tenant + 1, 0.0);
            }
            lifts[tenant] += missing;
        }
        before.lifts = before.tenants.iter().map(|&tenant| lift_of(tenant, lifts)).collect();
        let chosen = first(flows, &before.lifts, weight);
        if raises_any {
            // A tenant may have requests in several bands.
            for band in active.values_mut() {
                band.lifts = band.tenants.iter().map(|&tenant| lift_of(tenant, lifts)).collect();
            }
        }
        chosen
    }
}

/// The flow with the smallest counter; of equal ones that with the head of the smallest rank, then the one enqueued first.
/// `lifts` are those of the tenants of `flows`.
fn first(flows: &[Flow], lifts: &[f64], output_weight: f64) -> usize {
    let mut first = FirstFlow::default();
    for (index, (flow, lift)) in flows.iter().zip(lifts).enumerate() {
        first.offer(flows, index, served(flow, output_weight) + lift);
    }
    first.index
}

/// The first flow of those seen, by its counter and its head.
struct FirstFlow {
    index: usize,
    counter: f64,
}

impl Default for FirstFlow {
    fn default() -> Self {
        Self { index: 0, counter: f64::INFINITY }
    }
}

impl FirstFlow {
    fn offer(&mut self, flows: &[Flow], index: usize, counter: f64) {
        let head = |index: usize| (flows[index].head_rank, flows[index].head_turn);
        if counter < self.counter || counter == self.counter && head(index) < head(self.index) {
            *self = Self { index, counter };
        }
    }
}

/// `edf`: the request that leaves the queue unserved first.
impl Ordering for ReimplementedFlowControl {
    fn order(&mut self, request: &Request, expires_us: u64) -> f64 {
        request.deadline_us.min(expires_us) as f64
    }
}

/// `lowest-priority-newest`: of the lowest priority, the request that was dispatched last.
impl Eviction for ReimplementedFlowControl {
    fn evict(&mut self, _: u64, _: &Band, in_flight: &[InFlight]) -> Option<usize> {
        // They are in the order of their dispatch.
        let (mut victim, mut lowest) = (None, i32::MAX);
        for (index, request) in in_flight.iter().enumerate() {
            if request.priority <= lowest {
                (victim, lowest) = (Some(index), request.priority);
            }
        }
        let newest = victim?;
        // Of those dispatched at the same time, the last in the workload.
        let same_time = |index: &usize| in_flight[*index].dispatched_us == in_flight[newest].dispatched_us;
        let others = (0..newest).rev().take_while(same_time).filter(|&index| in_flight[index].priority == lowest);
        Some(others.fold(newest, |last, index| if in_flight[index].id >= in_flight[last].id { index } else { last }))
    }
}

blis_sdk::export_policy!(ReimplementedFlowControl: Saturation, Ceilings, Fairness, Ordering, Eviction);

#[cfg(test)]
mod tests {
    use blis_sdk::Kind;

    use super::*;

    fn made(kind: Kind) -> ReimplementedFlowControl {
        let setup = Setup::of(kind, &ReimplementedFlowControl::describe()).with("limit", 0.5);
        ReimplementedFlowControl::new(&setup).expect("made")
    }

    fn flow(tenant: u32, served_input: u64, in_flight: u32) -> Flow {
        Flow { tenant, served_input, in_flight, head_turn: tenant.into(), ..Flow::default() }
    }

    #[test]
    fn limits_fall_evenly() {
        let mut limits = Vec::new();
        made(Kind::Ceilings).ceilings(0, 0.0, &[Band::default(); 3], &mut limits);
        assert_eq!(limits, [1.0, 0.75, 0.5]);
    }

    #[test]
    fn a_tenant_that_returns_starts_with_the_others() {
        let mut policy = made(Kind::Fairness);
        let band = Band::default();
        assert_eq!(policy.fair_pick(0, 0.0, &band, &[flow(1, 900, 1)]), 0);
        assert_eq!(policy.fair_pick(0, 0.0, &band, &[flow(1, 900, 1), flow(2, 0, 0)]), 0, "both at 900; 1 came first");
        assert_eq!(policy.fair_pick(0, 0.0, &band, &[flow(1, 950, 1), flow(2, 0, 0)]), 1);
    }

    #[test]
    fn the_newest_of_the_lowest_priority_is_evicted() {
        let request = |priority, dispatched_us| InFlight { priority, dispatched_us, ..InFlight::default() };
        let in_flight = [request(-1, 9), request(-2, 3), request(-2, 5)];
        assert_eq!(made(Kind::Eviction).evict(9, &Band::default(), &in_flight), Some(2));
    }
}
