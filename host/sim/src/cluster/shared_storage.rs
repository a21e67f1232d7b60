//! What the instances of a group share below their CPU tiers: storage, or the CPU tiers of one another.
//!
//! The result of a look-up depends on what other instances have written by then. No write is shorter than the latency of the storage,
//! and its end is known when it is submitted: so an instance can be simulated by itself up to the latency beyond the time to
//! which all others were simulated. [`Cluster::keep_together`] advances all of them in such windows, and passes on the writes of
//! each between two of them. Times without events are skipped. News of instances that fetch from one another ([`PeerNews`]) reach the others
//! after the latency, too, and are passed on likewise.

use super::Cluster;
use crate::ids::InstanceIndex;
use crate::instance::{Instance, NoProgress};
use crate::observer::Observer;
use crate::offload::{ChunkKey, FetchRequest, PeerIndex, PeerNews, PeerTier, SharedChunks};
use crate::units::Micros;

impl<I: Instance> Cluster<I> {
    /// Advances all instances until one of them can be advanced to `limit` by itself. Nothing happens if they share no storage.
    #[cold]
    #[inline(never)]
    pub(super) fn keep_together(&mut self, limit: Micros, observer: &mut impl Observer) -> Result<(), NoProgress> {
        while let Some(until) = self.next_window(limit) {
            for instance in (0..self.instances.len()).map(InstanceIndex::at) {
                self.catch_up_alone(instance, until, observer)?;
            }
            self.shared.iter_mut().for_each(|shared| shared.known_until = until);
            self.pass_on();
        }
        Ok(())
    }

    /// The end of the next window before `limit`, if an instance cannot be advanced to `limit` by itself.
    fn next_window(&mut self, limit: Micros) -> Option<Micros> {
        let shared = self.shared.as_deref()?;
        if limit <= shared.known_until.saturating_add(shared.latency) {
            // What others write from now on cannot be found before `limit`: the storage latency is longer.
            return None;
        }
        // What instances wrote since the last window, when one was advanced by itself, must not be skipped with the time.
        self.pass_on();
        let next = self.instances.iter().filter_map(Instance::next_event).min();
        // Without an event nothing is written. A request may still arrive just before `limit`.
        let last = limit.saturating_sub(Micros(1));
        let shared = self.shared.as_deref_mut()?;
        shared.known_until = next.unwrap_or(last).clamp(shared.known_until, last.max(shared.known_until));
        let until = shared.known_until.saturating_add(shared.latency);
        self.serve_fetches();
        (until < limit).then_some(until)
    }

    /// Passes on what each instance has begun to write, and its news, to the others of its group.
    pub(super) fn pass_on(&mut self) {
        self.pass_on_writes();
        self.pass_on_news();
        self.serve_fetches();
    }

    /// Passes on which chunks came and went, and what instances fetch from one another.
    fn pass_on_news(&mut self) {
        let Some(shared) = self.shared.as_deref_mut().filter(|shared| shared.has_peers) else { return };
        let mut changed = vec![false; shared.held.len()];
        for index in 0..self.instances.len() {
            // Only instances that fetch from the CPU tiers of others have news: the rest share storage, or nothing.
            let Some(group) = shared.groups.get(index).copied().flatten() else { continue };
            let Some((peers, _)) = self.instances[index].peers() else { continue };
            let PeerNews { held, fetches, refusals } = peers.take_news();
            if !held.is_empty() {
                if !std::mem::replace(&mut changed[group as usize], true) {
                    // With one handle nothing is copied, unless a branch of the simulation has another.
                    share_index(&mut self.instances, &shared.groups, group, &PeerIndex::default());
                }
                shared.held[group as usize].add(InstanceIndex::at(index), &held, shared.known_until);
            }
            let receive = |peers: &mut PeerTier, fetch| peers.receive(fetch);
            fetches.into_iter().for_each(|fetch: FetchRequest| deliver(&mut self.instances, fetch.to, fetch, receive));
            let refuse = |peers: &mut PeerTier, refusal| peers.receive_refusal(refusal);
            refusals.into_iter().for_each(|refusal| deliver(&mut self.instances, refusal.to, refusal, refuse));
        }
        for group in (0..).zip(&changed).filter(|(_, changed)| **changed).map(|(group, _)| group) {
            share_index(&mut self.instances, &shared.groups, group, &shared.held[group as usize]);
        }
    }

    /// Serves the fetches that have reached instances by the time up to which all are known.
    fn serve_fetches(&mut self) {
        let Some(shared) = self.shared.as_deref().filter(|shared| shared.has_peers) else { return };
        for index in 0..self.instances.len() {
            // Only instances that fetch from others are fetched from.
            let Some((peers, tier)) = self.instances[index].peers() else { continue };
            peers.serve(shared.known_until, tier);
            for refusal in peers.take_refusals() {
                let refuse = |peers: &mut PeerTier, refusal| peers.receive_refusal(refusal);
                deliver(&mut self.instances, refusal.to, refusal, refuse);
            }
        }
    }

    /// `instance` is gone at `now`: the others fetch nothing from it once they know.
    pub(super) fn leave_group(&mut self, now: Micros, instance: InstanceIndex) {
        let Some(shared) = self.shared.as_deref_mut().filter(|shared| shared.has_peers) else { return };
        // An instance without peers is in no index from which others fetch.
        let Some(group) = shared.groups.get(instance.index()).copied().flatten() else { return };
        let Some((peers, tier)) = self.instances[instance.index()].peers() else { return };
        peers.leave(now, tier);
        share_index(&mut self.instances, &shared.groups, group, &PeerIndex::default());
        shared.held[group as usize].remove(instance, now.saturating_add(shared.latency));
        share_index(&mut self.instances, &shared.groups, group, &shared.held[group as usize]);
        self.serve_fetches();
    }

    fn pass_on_writes(&mut self) {
        let Some(shared) = &mut self.shared else { return };
        let mut written: Vec<(usize, Vec<(ChunkKey, Micros)>)> = Vec::new();
        for (instance, group) in self.instances.iter_mut().zip(&shared.groups) {
            if let Some(group) = group {
                written.push((*group as usize, instance.take_written_chunks()));
            }
        }
        written.retain(|(_, chunks)| !chunks.is_empty());
        if written.is_empty() {
            // Without writes the index of each group stays: handing it out to all instances again only costs time.
            return;
        }
        // With one handle nothing is copied, unless a branch of the simulation has another.
        self.instances.iter_mut().for_each(|instance| instance.share_chunks(&SharedChunks::default()));
        written.iter().for_each(|(group, chunks)| shared.content[*group].add(chunks));
        for (index, instance) in self.instances.iter_mut().enumerate() {
            if let Some(content) = shared.shared_by(InstanceIndex::at(index)) {
                instance.share_chunks(&content);
            }
        }
    }
}

/// Gives `index` to the instances of `group`.
fn share_index<I: Instance>(instances: &mut [I], groups: &[Option<u32>], group: u32, index: &PeerIndex) {
    let of_group = instances.iter_mut().zip(groups).filter(|(_, of)| **of == Some(group));
    of_group.filter_map(|(instance, _)| instance.peers()).for_each(|(peers, _)| peers.share(index));
}

/// Hands `what` to instance `to`.
fn deliver<I: Instance, T>(instances: &mut [I], to: InstanceIndex, what: T, how: impl FnOnce(&mut PeerTier, T)) {
    let (peers, _) = instances[to.index()].peers().expect("only instances that fetch are fetched from");
    how(peers, what);
}
