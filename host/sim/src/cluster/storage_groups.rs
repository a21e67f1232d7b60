//! What the groups of instances share that share storage.

use crate::ids::InstanceIndex;
use crate::instance::InstanceConfig;
use crate::offload::{PeerIndex, SharedChunks};
use crate::units::Micros;

/// The storage of all groups.
#[derive(Clone, Debug)]
pub(super) struct SharedStorage {
    /// The shortest time of a write, µs, ≥ 1.
    pub latency: Micros,
    /// The events of all instances before this time were executed, and what they write was passed on.
    pub known_until: Micros,
    /// The group of each instance that shares storage, and what that group has written.
    pub groups: Vec<Option<u32>>,
    pub content: Vec<SharedChunks>,
    /// What the instances of each group have in their CPU tiers, for one another.
    pub held: Vec<PeerIndex>,
    /// Whether instances fetch from one another.
    pub has_peers: bool,
}

impl SharedStorage {
    /// Adds the next instance. `storage` is `None` as long as no instance shares any.
    pub fn add(storage: &mut Option<Box<Self>>, instance: &InstanceConfig) {
        let shared = instance.offload.and_then(|tier| tier.secondary).filter(|tier| tier.connects());
        if storage.is_none() && shared.is_none() {
            // Without shared storage each instance advances by itself, which is faster than in common windows.
            return;
        }
        let group = shared.is_some().then_some(instance.labels.group);
        let latency = shared.map_or(Micros::MAX, |tier| tier.latency.max(Micros(1)));
        let storage = storage.get_or_insert_with(|| {
            let (groups, content, held) = (Vec::new(), Vec::new(), Vec::new());
            Box::new(Self { latency, known_until: Micros::ZERO, groups, content, held, has_peers: false })
        });
        storage.latency = storage.latency.min(latency);
        storage.has_peers |= shared.is_some_and(|tier| !tier.shared);
        // Those before it share nothing.
        storage.groups.resize(instance.index.index(), None);
        storage.groups.push(group);
        if let Some(group) = group {
            let groups = storage.content.len().max(group as usize + 1);
            storage.content.resize(groups, SharedChunks::default());
            storage.held.resize(groups, PeerIndex::default());
        }
    }

    /// What the group of `instance` has written; `None` if it shares nothing.
    pub fn shared_by(&self, instance: InstanceIndex) -> Option<SharedChunks> {
        let group = self.groups.get(instance.index()).copied().flatten()?;
        self.content.get(group as usize).cloned()
    }

    /// What the group of `instance` has in its CPU tiers; `None` if it shares nothing.
    pub fn held_by_group_of(&self, instance: InstanceIndex) -> Option<PeerIndex> {
        let group = self.groups.get(instance.index()).copied().flatten()?;
        self.held.get(group as usize).cloned()
    }
}
