//! The saturation of a service of instances with roles.

use super::SaturationPolicy;
use crate::ids::InstanceIndex;
use crate::policy::{Changes, ClusterView, Event, Events, InstanceInfo, Reads, Signals, Versions, copy_rows};
use crate::units::Micros;

/// The larger of the saturations of the instances that prefill and of those that decode, as llm-d's flow control has it. An
/// instance that does both counts in both, one that encodes in none.
#[derive(Debug)]
pub struct SaturationByRole {
    pools: [RolePool; 2],
}

/// The instances of a role, and the policy that looks at them alone.
#[derive(Debug)]
struct RolePool {
    policy: Box<dyn SaturationPolicy>,
    rows: Vec<usize>,
    instances: Vec<InstanceInfo>,
    signals: Signals,
}

impl RolePool {
    fn new(policy: &dyn SaturationPolicy, instances: &[InstanceIndex]) -> Self {
        Self {
            policy: policy.fork(),
            rows: instances.iter().map(|instance| instance.index()).collect(),
            instances: Vec::new(),
            signals: Signals::idle(Vec::new()),
        }
    }

    /// The view of its instances, which is up to date in the columns of `reads`.
    fn view<'a>(&'a mut self, all: &ClusterView<'a>, reads: Reads) -> (&'a mut dyn SaturationPolicy, ClusterView<'a>) {
        let Self { policy, rows, instances, signals } = self;
        copy_rows(rows, all.instances, instances, true);
        signals.copy_rows(all.signals, rows, reads);
        let versions = Versions::default();
        (&mut **policy, ClusterView { instances, signals, versions, in_flight_changes: Changes::UNKNOWN, ..*all })
    }
}

impl SaturationByRole {
    /// The saturation by copies of `policy` for the instances that prefill and for those that decode.
    #[must_use]
    pub fn new(policy: &dyn SaturationPolicy, prefill: &[InstanceIndex], decode: &[InstanceIndex]) -> Self {
        Self { pools: [RolePool::new(policy, prefill), RolePool::new(policy, decode)] }
    }
}

impl SaturationPolicy for SaturationByRole {
    fn reads(&self) -> Reads {
        self.pools[0].policy.reads()
    }

    fn saturation(&mut self, cluster: &ClusterView<'_>) -> f64 {
        let reads = self.reads();
        let of = |pool: &mut RolePool| {
            let (policy, view) = pool.view(cluster, reads);
            policy.saturation(&view)
        };
        let [prefill, decode] = self.pools.each_mut().map(of);
        prefill.max(decode)
    }

    fn steady_until(&self, cluster: &ClusterView<'_>) -> Micros {
        // By the passing of time alone, the saturation of a pool changes when that of all instances does.
        let [prefill, decode] = self.pools.each_ref().map(|pool| pool.policy.steady_until(cluster));
        prefill.min(decode)
    }

    fn events(&self) -> Events {
        self.pools[0].policy.events()
    }

    fn observe(&mut self, event: &Event) {
        self.pools.iter_mut().for_each(|pool| pool.policy.observe(event));
    }

    fn fork(&self) -> Box<dyn SaturationPolicy> {
        let pools = self.pools.each_ref().map(|pool| RolePool {
            policy: pool.policy.fork(),
            rows: pool.rows.clone(),
            instances: Vec::new(),
            signals: Signals::idle(Vec::new()),
        });
        Box::new(Self { pools })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::flow::{Concurrency, ConcurrencyMode};
    use crate::policy::testing::TestService;

    #[test]
    fn the_fuller_role_counts() {
        let policy = Concurrency { mode: ConcurrencyMode::Requests, max_concurrency: 10.0, max_tokens: 1.0 };
        let of = |in_flight: &[u32]| {
            let mut by_role =
                SaturationByRole::new(&policy, &[InstanceIndex(0)], &[InstanceIndex(1), InstanceIndex(2)]);
            let service = TestService::idle(3).with(|signals| signals.in_flight = in_flight.to_vec());
            by_role.saturation(&service.view())
        };
        assert_eq!(of(&[9, 0, 0]), 0.9);
        assert_eq!(of(&[2, 10, 8]), 0.9);
        assert_eq!(of(&[0, 0, 0]), 0.0);
    }
}
