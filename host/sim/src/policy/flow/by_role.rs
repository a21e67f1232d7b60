//! The saturation of a service of instances with roles.

use super::SaturationPolicy;
use crate::policy::{
    Changes, ClusterView, Event, Events, InstanceInfo, InstanceRole, Reads, Signals, Versions, copy_rows,
};
use crate::units::Micros;

/// The larger of the saturations of the instances that prefill and of those that decode, as llm-d's flow control has it. An
/// instance that does both counts in both, one that encodes in none.
#[derive(Debug)]
pub struct SaturationByRole {
    /// Of the roles that the service has.
    pools: Vec<RolePool>,
    reads: Reads,
}

/// The instances of a role, and the policy that looks at them alone.
#[derive(Debug)]
struct RolePool {
    is_in: fn(InstanceRole) -> bool,
    policy: Box<dyn SaturationPolicy>,
    rows: Vec<usize>,
    instances: Vec<InstanceInfo>,
    signals: Signals,
}

impl RolePool {
    fn new(policy: &dyn SaturationPolicy, is_in: fn(InstanceRole) -> bool) -> Self {
        Self {
            is_in,
            policy: policy.fork(),
            rows: Vec::new(),
            instances: Vec::new(),
            signals: Signals::idle(Vec::new()),
        }
    }

    /// The saturation of its instances among those of `all`; 1 without any.
    fn saturation(&mut self, all: &ClusterView<'_>, reads: Reads) -> f64 {
        let Self { is_in, policy, rows, instances, signals } = self;
        rows.clear();
        rows.extend(all.instances.iter().enumerate().filter(|(_, one)| is_in(one.labels.role)).map(|(row, _)| row));
        if rows.is_empty() {
            return 1.0;
        }
        copy_rows(rows, all.instances, instances, true);
        signals.copy_rows(all.signals, rows, reads);
        let versions = Versions::default();
        policy.saturation(&ClusterView { instances, signals, versions, in_flight_changes: Changes::UNKNOWN, ..*all })
    }
}

impl SaturationByRole {
    /// The saturation by copies of `policy` for the instances that prefill and for those that decode, of a service that has
    /// instances with these `roles`, now or later.
    #[must_use]
    pub fn new(policy: &dyn SaturationPolicy, roles: &[InstanceRole]) -> Self {
        let pools = [InstanceRole::prefills, InstanceRole::decodes].into_iter();
        let has = |is_in: &fn(InstanceRole) -> bool| roles.iter().any(|&role| is_in(role));
        Self { pools: pools.filter(has).map(|is_in| RolePool::new(policy, is_in)).collect(), reads: policy.reads() }
    }
}

impl SaturationPolicy for SaturationByRole {
    fn reads(&self) -> Reads {
        self.reads
    }

    fn saturation(&mut self, cluster: &ClusterView<'_>) -> f64 {
        self.pools.iter_mut().map(|pool| pool.saturation(cluster, self.reads)).fold(0.0, f64::max)
    }

    /// `None` for a role that neither prefills nor decodes.
    fn saturation_of(&mut self, role: InstanceRole, cluster: &ClusterView<'_>) -> Option<f64> {
        let of_role = self.pools.iter_mut().filter(|pool| (pool.is_in)(role));
        of_role.map(|pool| pool.saturation(cluster, self.reads)).reduce(f64::max)
    }

    fn steady_until(&self, cluster: &ClusterView<'_>) -> Micros {
        // By the passing of time alone, the saturation of a pool changes when that of all instances does.
        self.pools.iter().map(|pool| pool.policy.steady_until(cluster)).min().unwrap_or(Micros::MAX)
    }

    fn events(&self) -> Events {
        self.pools.iter().fold(Events::NONE, |events, pool| events.and(pool.policy.events()))
    }

    fn observe(&mut self, event: &Event) {
        self.pools.iter_mut().for_each(|pool| pool.policy.observe(event));
    }

    fn fork(&self) -> Box<dyn SaturationPolicy> {
        let pools = self.pools.iter().map(|pool| RolePool::new(&*pool.policy, pool.is_in));
        Box::new(Self { pools: pools.collect(), reads: self.reads })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::InstanceRole::{Decode, Encode, Prefill};
    use crate::policy::flow::{Concurrency, ConcurrencyMode};
    use crate::policy::testing::TestService;

    /// The saturations of the service, and of its instances that prefill, decode and encode, with so many requests in flight.
    fn by_role(roles: &[InstanceRole], instances: &[(InstanceRole, u32)]) -> (f64, [Option<f64>; 3]) {
        let policy = Concurrency { mode: ConcurrencyMode::Requests, max_concurrency: 10.0, max_tokens: 1.0 };
        let mut by_role = SaturationByRole::new(&policy, roles);
        let mut service = TestService::idle(instances.len()).with(|signals| {
            signals.in_flight = instances.iter().map(|&(_, in_flight)| in_flight).collect();
        });
        for (info, &(role, _)) in service.instances.iter_mut().zip(instances) {
            info.labels.role = role;
        }
        let view = service.view();
        (by_role.saturation(&view), [Prefill, Decode, Encode].map(|role| by_role.saturation_of(role, &view)))
    }

    #[test]
    fn the_fuller_role_counts() {
        let all = |in_flight: [u32; 3]| {
            by_role(
                &[Prefill, Decode],
                &std::array::from_fn::<_, 3, _>(|i| ([Prefill, Decode, Decode][i], in_flight[i])),
            )
        };
        assert_eq!(all([9, 0, 0]), (0.9, [Some(0.9), Some(0.0), None]));
        assert_eq!(all([2, 10, 8]), (0.9, [Some(0.2), Some(0.9), None]));
        assert_eq!(all([0, 0, 0]).0, 0.0);
    }

    /// It counted as full, so that flow control kept all requests for ever.
    #[test]
    fn a_role_that_no_group_has_is_not_full() {
        let instances = [(Encode, 5), (Decode, 3)];
        assert_eq!(by_role(&[Encode, Decode], &instances), (0.3, [None, Some(0.3), None]));
        assert_eq!(by_role(&[Prefill, Encode, Decode], &instances).0, 1.0, "none is there at present");
    }
}
