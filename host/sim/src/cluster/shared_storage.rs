//! Storage below the CPU tiers that the instances of a group share.
//!
//! The result of a look-up depends on what other instances have written by then. No write is shorter than the latency of the storage,
//! and its end is known when it is submitted: so an instance can be simulated by itself up to the latency beyond the time to
//! which all others were simulated. [`Cluster::keep_together`] advances all of them in such windows, and passes on the writes of
//! each between two of them. Times without events are skipped.

use super::Cluster;
use crate::ids::InstanceIndex;
use crate::instance::{Instance, InstanceConfig, NoProgress};
use crate::observer::Observer;
use crate::offload::{ChunkKey, SharedChunks};
use crate::units::Micros;

/// The storage of all groups.
#[derive(Clone, Debug)]
pub(super) struct SharedStorage {
    /// The shortest time of a write, µs, ≥ 1.
    latency: Micros,
    /// The events of all instances before this time were executed, and what they write was passed on.
    known_until: Micros,
    /// The group of each instance that shares storage, and what that group has written.
    groups: Vec<Option<u32>>,
    content: Vec<SharedChunks>,
}

impl SharedStorage {
    /// Adds the next instance. `storage` is `None` as long as no instance shares any.
    pub fn add(storage: &mut Option<Box<Self>>, instance: &InstanceConfig) {
        let shared = instance.offload.and_then(|tier| tier.secondary).filter(|tier| tier.shared);
        if storage.is_none() && shared.is_none() {
            return;
        }
        let group = shared.is_some().then_some(instance.labels.group);
        let latency = shared.map_or(Micros::MAX, |tier| tier.latency.max(Micros(1)));
        let storage = storage.get_or_insert_with(|| {
            Box::new(Self { latency, known_until: Micros::ZERO, groups: Vec::new(), content: Vec::new() })
        });
        storage.latency = storage.latency.min(latency);
        // Those before it share nothing.
        storage.groups.resize(instance.index.index(), None);
        storage.groups.push(group);
        if let Some(group) = group {
            storage.content.resize(storage.content.len().max(group as usize + 1), SharedChunks::default());
        }
    }

    /// What the group of `instance` has written; `None` if it shares nothing.
    pub fn of(&self, instance: InstanceIndex) -> Option<SharedChunks> {
        let group = self.groups.get(instance.index()).copied().flatten()?;
        self.content.get(group as usize).cloned()
    }
}

impl<I: Instance> Cluster<I> {
    /// Advances all instances until one of them can be advanced to `limit` by itself. Nothing happens if they share no storage.
    #[cold]
    #[inline(never)]
    pub(super) fn keep_together(&mut self, limit: Micros, observer: &mut impl Observer) -> Result<(), NoProgress> {
        while let Some(until) = self.next_window(limit) {
            for instance in (0..self.instances.len()).map(InstanceIndex::at) {
                self.catch_up_alone(instance, until, observer)?;
            }
            self.pass_on_writes();
            self.shared.iter_mut().for_each(|shared| shared.known_until = until);
        }
        Ok(())
    }

    /// The end of the next window before `limit`, if an instance cannot be advanced to `limit` by itself.
    fn next_window(&mut self, limit: Micros) -> Option<Micros> {
        let shared = self.shared.as_deref()?;
        if limit <= shared.known_until.saturating_add(shared.latency) {
            return None;
        }
        // What instances wrote since the last window, when one was advanced by itself, must not be skipped with the time.
        self.pass_on_writes();
        let next = self.instances.iter().filter_map(Instance::next_event).min();
        // Without an event nothing is written. A request may still arrive just before `limit`.
        let last = limit.saturating_sub(Micros(1));
        let shared = self.shared.as_deref_mut()?;
        shared.known_until = next.unwrap_or(last).clamp(shared.known_until, last.max(shared.known_until));
        let until = shared.known_until.saturating_add(shared.latency);
        (until < limit).then_some(until)
    }

    /// Passes on what each instance has begun to write to the others of its group.
    pub(super) fn pass_on_writes(&mut self) {
        let Some(shared) = &mut self.shared else { return };
        let mut written: Vec<(usize, Vec<(ChunkKey, Micros)>)> = Vec::new();
        for (instance, group) in self.instances.iter_mut().zip(&shared.groups) {
            if let Some(group) = group {
                written.push((*group as usize, instance.take_written_chunks()));
            }
        }
        written.retain(|(_, chunks)| !chunks.is_empty());
        if written.is_empty() {
            return;
        }
        // With one handle nothing is copied, unless a branch of the simulation has another.
        self.instances.iter_mut().for_each(|instance| instance.share_chunks(&SharedChunks::default()));
        written.iter().for_each(|(group, chunks)| shared.content[*group].add(chunks));
        for (index, instance) in self.instances.iter_mut().enumerate() {
            if let Some(content) = shared.of(InstanceIndex::at(index)) {
                instance.share_chunks(&content);
            }
        }
    }
}
