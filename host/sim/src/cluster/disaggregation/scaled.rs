//! Pools of which the instances come and go: which may be chosen, and which are still needed by requests.

use super::Pairs;
use super::pairs::{PairEvent, ScaledPools};
use crate::cluster::candidates::ServingPool;
use crate::ids::InstanceIndex;
use crate::policy::InstanceRole;
use crate::units::Micros;

impl Pairs {
    /// The role of each group of replicas.
    pub fn group_roles(&self) -> Vec<InstanceRole> {
        self.settings.groups.iter().map(|group| group.role).collect()
    }

    /// The instances of `pool` that may be chosen, by index.
    pub fn pool(&self, pool: ServingPool) -> &[InstanceIndex] {
        match pool {
            ServingPool::Prefill => &self.prefill,
            ServingPool::Decode => &self.decode,
            ServingPool::Encode => &self.encode,
        }
    }

    /// Number of changes of the pools.
    pub fn version(&self) -> u64 {
        self.scaled.as_ref().map_or(0, |scaled| scaled.version)
    }

    /// Whether the instances that prefill or those that decode are none at present, of a service that has some at times.
    pub fn lacks_pool(&self) -> bool {
        let lacks = |pool: &[InstanceIndex], is_in: fn(InstanceRole) -> bool| {
            pool.is_empty() && self.settings.groups.iter().any(|group| is_in(group.role))
        };
        lacks(&self.prefill, InstanceRole::prefills) || lacks(&self.decode, InstanceRole::decodes)
    }

    /// From now on instances may come and go.
    pub fn scales(&mut self) {
        let users = vec![0; self.settings.roles.len()];
        self.scaled = Some(ScaledPools { users, version: 0 });
    }

    /// Adds `instance`, a replica of `group`, behind the others.
    pub fn activate(&mut self, instance: InstanceIndex, group: usize) {
        let group = self.settings.groups[group];
        self.settings.roles.push(group.role);
        self.network.iter_mut().for_each(|network| network.add(group.gpus, group.token_bytes));
        self.encoders.iter_mut().for_each(|encoders| encoders.add_instance(group.encoder));
        let pools = [
            (&mut self.prefill, group.role.prefills()),
            (&mut self.decode, group.role.decodes()),
            (&mut self.encode, group.role == InstanceRole::Encode),
        ];
        pools.into_iter().filter(|&(_, is_in)| is_in).for_each(|(pool, _)| pool.push(instance));
        if let Some(scaled) = &mut self.scaled {
            scaled.users.push(0);
            scaled.version += 1;
        }
    }

    /// `instance` is no longer chosen.
    pub fn drains(&mut self, instance: InstanceIndex) {
        for pool in [&mut self.prefill, &mut self.decode, &mut self.encode] {
            pool.retain(|&other| other != instance);
        }
        self.scaled.iter_mut().for_each(|scaled| scaled.version += 1);
    }

    /// `instance` is gone.
    pub fn removed(&mut self, instance: InstanceIndex) {
        self.settings.routings_mut().for_each(|pool| pool.policy.removed(instance));
    }

    /// Whether a request still needs `instance`.
    pub fn uses(&self, instance: InstanceIndex) -> bool {
        self.scaled.as_ref().is_some_and(|scaled| scaled.users[instance.index()] > 0)
    }

    /// A request needs `instance` from now on.
    pub(super) fn begin_use(&mut self, instance: InstanceIndex) {
        self.scaled.iter_mut().for_each(|scaled| scaled.users[instance.index()] += 1);
    }

    /// A request no longer needs `instance` from `at` on.
    pub(super) fn end_use(&mut self, at: Micros, instance: InstanceIndex) {
        let Some(scaled) = &mut self.scaled else { return };
        scaled.users[instance.index()] -= 1;
        self.schedule(at, PairEvent::Left(instance));
    }
}
