//! The events of replicas: what changes in the service when one becomes active, drains, or is gone.
//!
//! They are compiled apart from the event loop: inlined there, they cost a service with a fixed number of instances 170
//! instructions a request (callgrind, release, 2026-11-26).

use std::sync::Arc;

use super::candidates::CandidateSet;
use super::new_instance::NewInstance;
use super::replicas::{NumberChange, ReplicaSettings, Replicas, Transition};
use super::sessions::{ArrivalSource, FollowUpObserver};
use super::storage_groups::SharedStorage;
use super::{Cluster, Gateway, Halt};
use crate::ids::InstanceIndex;
use crate::instance::{Instance, InstanceConfig, NoProgress};
use crate::observer::{Observer, SimEvent};
use crate::outcome::{Counters, Rejection};
use crate::replica::ReplicaChange;
use crate::request::Name;
use crate::scaling::ReplicaView;
use crate::units::Micros;

impl<I: Instance> Cluster<I> {
    /// The same service with replicas that come and go; its instances are the initial replicas, in the order of groups.
    /// `engine` makes the instances of further replicas.
    ///
    /// # Errors
    /// As of [`ReplicaSettings::check`].
    ///
    /// # Panics
    /// If there are not as many instances as initial replicas.
    pub fn with_replicas(
        mut self,
        settings: ReplicaSettings,
        engine: impl Fn(InstanceConfig) -> I + Send + Sync + 'static,
    ) -> Result<Self, String> {
        let initial: u32 = settings.groups.iter().map(|group| group.initial).sum();
        assert_eq!(initial as usize, self.instances.len(), "an instance for each initial replica");
        self.board.show_candidates();
        self.replicas = Some(Box::new(Replicas::new(settings)?));
        self.new_instance = Some(NewInstance(Arc::new(engine)));
        Ok(self)
    }

    /// Selects the instances that views show: the active ones that serve `model`, or all active ones if it is `None` or
    /// served by no group. With a fixed number of instances these are all, always.
    #[inline]
    pub(super) fn select(&mut self, now: Micros, model: Option<Name>) {
        if self.replicas.is_some() {
            self.select_active(now, model);
        } else if self.pairs.is_some() {
            self.select_all(now);
        }
    }

    #[inline(never)]
    fn select_active(&mut self, now: Micros, model: Option<Name>) {
        let Some(replicas) = &self.replicas else { return };
        let model = model.filter(|&model| replicas.is_known(model));
        self.board.select(now, CandidateSet::Active(replicas.version(), model), |rows| {
            let serves = |group| model.is_none_or(|model| replicas.serves(group, model));
            let active = replicas.active().iter().filter(|&&(_, group)| serves(group));
            rows.extend(active.map(|(instance, _)| instance.index()));
        });
    }

    /// Whether the gateway or a scaler decides by signals, also while decisions about requests are replayed: as before only
    /// if the signals are refreshed as before.
    pub(super) fn reads_signals(&self) -> bool {
        self.gateway.is_some() || self.replicas.is_some()
    }

    /// Why no instance can be chosen for a request for `model`; `None` if one can.
    #[inline]
    pub(super) fn refusal(&self, model: Name) -> Option<Rejection> {
        match &self.replicas {
            None => (!self.config.serves(model)).then_some(Rejection::Routing),
            Some(replicas) if !replicas.is_known(model) => Some(Rejection::Routing),
            Some(replicas) => {
                let mut groups = replicas.active().iter().map(|&(_, group)| group);
                (!groups.any(|group| replicas.serves(group, model))).then_some(Rejection::NoReplica)
            }
        }
    }

    /// Executes the transitions of replicas that are due at `now`.
    #[cold]
    #[inline(never)]
    pub(super) fn change_states(&mut self, now: Micros, observer: &mut impl Observer) -> Result<(), Halt> {
        while let Some(transition) = self.replicas.as_mut().and_then(|replicas| replicas.take_due(now)) {
            match transition {
                Transition::Ready(position) => self.activate(now, position),
                Transition::MayBeDone(position, instance) => self.drain(now, position, instance, observer)?,
                Transition::Gone(position, instance) => self.remove(now, position, instance, observer)?,
            }
        }
        self.report_states(observer);
        Ok(())
    }

    /// Executes the changes of the number of replicas that are due at `now`, and the scrapes and calls of the policy.
    #[cold]
    #[inline(never)]
    pub(super) fn scale(
        &mut self,
        now: Micros,
        clients: &mut FollowUpObserver<'_, impl ArrivalSource, impl Observer>,
    ) -> Result<(), Halt> {
        while let Some((group, replicas)) = self.replicas.as_mut().and_then(|replicas| replicas.take_scheduled(now)) {
            self.set_replicas(now, group, NumberChange::To(replicas), clients)?;
        }
        if self.replicas.as_ref().is_some_and(|replicas| replicas.scrape_is_due(now)) {
            self.scrape(now, clients)?;
        }
        if self.is_sync(now) {
            self.catch_up_serving(now, clients)?;
            let work = clients.arrivals.next_at().is_some() || self.has_requests();
            let decided: Vec<ReplicaChange> =
                self.replicas.iter_mut().flat_map(|replicas| replicas.decide(now, work)).collect();
            for change in decided {
                clients.record(&SimEvent::Scaling(&change));
                self.set_replicas(now, change.group, NumberChange::To(change.to), clients)?;
            }
        }
        while let Some((group, change)) = self.replicas.as_mut().and_then(|replicas| replicas.take_actuation(now)) {
            self.set_replicas(now, group, change, clients)?;
        }
        self.report_states(clients);
        Ok(())
    }

    /// Whether the scaling policy is called at `now`.
    pub(super) fn is_sync(&self, now: Micros) -> bool {
        self.replicas.as_ref().is_some_and(|replicas| replicas.sync_is_due(now))
    }

    /// Collects the metrics that the scaling policy reads.
    fn scrape(&mut self, now: Micros, observer: &mut impl Observer) -> Result<(), NoProgress> {
        self.catch_up_serving(now, observer)?;
        self.refresh_signals(now, observer)?;
        self.select(now, None);
        let Self { replicas: Some(replicas), board, instances, gateway, pairs, .. } = self else { return Ok(()) };
        let saturation = |gateway: &mut Gateway| match pairs.as_deref() {
            Some(pairs) => gateway.saturation_by_role(&board.view(now), &pairs.group_roles()),
            None => vec![Some(gateway.saturation(&board.view(now))); replicas.groups()],
        };
        let saturation = gateway.as_deref_mut().map(saturation);
        replicas.scrape(now, |replicas, groups| {
            for &(instance, group) in replicas.active() {
                let load = instances[instance.index()].load();
                let (requests, tokens) = board.in_flight(instance);
                groups[group].ready.push(ReplicaView::new(instance, load, requests, tokens));
            }
            if let (Some(gateway), Some(saturation)) = (gateway, saturation) {
                for (index, group) in groups.iter_mut().enumerate() {
                    group.gateway = gateway.waiting_for(now, saturation[index], |model| replicas.serves(index, model));
                }
            }
        });
        Ok(())
    }

    /// Whether a request is anywhere in the service.
    fn has_requests(&self) -> bool {
        let waiting = self.gateway.as_ref().map_or(0, |gateway| gateway.len());
        let between = self.pairs.as_ref().map_or(0, |pairs| pairs.count());
        let in_front = self.arrived.len() + self.admitted.len() + waiting + between;
        let busy = |i| self.instances[self.serving_at(i).index()].idle_since().is_none();
        in_front > 0 || (0..self.serving()).any(busy)
    }

    /// Changes the number of replicas of `group` from `now` on.
    fn set_replicas(
        &mut self,
        now: Micros,
        group: usize,
        change: NumberChange,
        observer: &mut impl Observer,
    ) -> Result<(), NoProgress> {
        self.catch_up_serving(now, observer)?;
        let reads = |replicas: &Replicas| replicas.reads_to_drain(group, change);
        if self.replicas.as_deref().is_some_and(reads) {
            self.refresh_signals(now, observer)?;
        }
        let Self { replicas: Some(replicas), instances, gateway, board, .. } = self else { return Ok(()) };
        let load = |instance: InstanceIndex| {
            let (requests, tokens) = board.in_flight(instance);
            ReplicaView::new(instance, instances[instance.index()].load(), requests, tokens)
        };
        let draining = replicas.set_replicas(now, group, change, load);
        if !draining.is_empty() {
            // The tick of this moment has been executed.
            gateway.iter_mut().for_each(|gateway| gateway.instances_changed(now.saturating_add(Micros(1))));
        }
        for instance in draining {
            self.pairs.iter_mut().for_each(|pairs| pairs.drains(instance));
            let position = self.replicas.as_ref().and_then(|replicas| replicas.position(instance));
            position.map_or(Ok(()), |position| self.drain(now, position, instance, observer))?;
        }
        Ok(())
    }

    /// A replica that is ready becomes an instance.
    fn activate(&mut self, now: Micros, position: usize) {
        let (Some(replicas), Some(new)) = (&mut self.replicas, &self.new_instance) else { return };
        let index = InstanceIndex::at(self.instances.len());
        let config = replicas.config(position, index);
        let info = (&config).into();
        SharedStorage::add(&mut self.shared, &config);
        self.more_than_advancing |= self.shared.is_some();
        let mut instance = (new.0)(config);
        if let Some(content) = self.shared.as_ref().and_then(|shared| shared.shared_by(index)) {
            instance.share_chunks(&content);
        }
        let held = self.shared.as_ref().and_then(|shared| shared.held_by_group_of(index));
        held.iter().for_each(|held| instance.peers().into_iter().for_each(|(peers, _)| peers.share(held)));
        self.board.add(info, &mut instance);
        self.instances.push(instance);
        self.next_events.grow(self.instances.len());
        self.pairs.iter_mut().for_each(|pairs| pairs.activate(index, replicas.group(position)));
        replicas.activate(now, position, index);
        self.gateway.iter_mut().for_each(|gateway| gateway.instances_changed(now));
    }

    /// Finds out whether the replica, which drains, still has requests.
    fn drain(
        &mut self,
        now: Micros,
        position: usize,
        instance: InstanceIndex,
        observer: &mut impl Observer,
    ) -> Result<(), NoProgress> {
        self.catch_up(instance, now, observer)?;
        let draining = &self.instances[instance.index()];
        let mut since = draining.idle_since();
        let mut next = draining.next_end().or(draining.next_event()).unwrap_or(Micros::MAX);
        let is_used = draining.pins() > 0 || self.pairs.as_ref().is_some_and(|pairs| pairs.uses(instance));
        if since.is_some() && is_used {
            // Events between instances make it look again.
            (since, next) = (None, draining.next_event().unwrap_or(Micros::MAX));
        }
        self.replicas.iter_mut().for_each(|replicas| replicas.drains(now, position, since, next));
        Ok(())
    }

    /// The replica, which has no requests, is gone.
    fn remove(
        &mut self,
        now: Micros,
        position: usize,
        instance: InstanceIndex,
        observer: &mut impl Observer,
    ) -> Result<(), NoProgress> {
        // Policies receive what happened before.
        self.catch_up_watched(now, observer)?;
        if self.sampling.is_some() {
            self.sample_last(now, instance, observer)?;
        }
        if self.shared.is_some() {
            self.keep_together(now, observer)?;
        }
        self.pass_on();
        self.leave_group(now, instance);
        let (Some(replicas), Some(new)) = (&mut self.replicas, &self.new_instance) else { return Ok(()) };
        debug_assert_eq!(self.instances[instance.index()].pins(), 0, "it keeps blocks for others");
        let empty = new.gone(replicas.config(position, instance));
        let counters = std::mem::replace(&mut self.instances[instance.index()], empty).finish(now, observer);
        self.next_events.set(instance, None);
        replicas.end(now, position, counters);
        self.board.remove(now, instance, &mut self.lifecycle);
        self.policies.routing.removed(instance);
        self.pairs.iter_mut().for_each(|pairs| pairs.removed(instance));
        self.deliver(now);
        Ok(())
    }

    /// A part of a request has come to `instance`, or gone from it, at `now`: if it drains, that may have been the last one.
    pub(super) fn part_moved(&mut self, now: Micros, instance: InstanceIndex) {
        self.replicas.iter_mut().for_each(|replicas| replicas.evicted(now, instance));
    }

    /// Executes the events before `now` of all instances that have requests or may get some.
    fn catch_up_serving(&mut self, now: Micros, observer: &mut impl Observer) -> Result<(), NoProgress> {
        for i in 0..self.serving() {
            self.catch_up(self.serving_at(i), now, observer)?;
        }
        Ok(())
    }

    /// Number of instances that have requests or may get some.
    pub(super) fn serving(&self) -> usize {
        self.replicas.as_ref().map_or(self.instances.len(), |replicas| replicas.serving().len())
    }

    /// The instance number `i` of [`Self::serving`].
    pub(super) fn serving_at(&self, i: usize) -> InstanceIndex {
        self.replicas.as_ref().map_or(InstanceIndex::at(i), |replicas| replicas.serving()[i])
    }

    /// Reports the changes of states since the last call.
    fn report_states(&mut self, observer: &mut impl Observer) {
        let events = self.replicas.iter_mut().flat_map(|replicas| replicas.take_events());
        events.for_each(|event| observer.record(&SimEvent::Replica(&event)));
    }
}

/// Reports the figures of `replicas`, and puts the counters of those that are gone where they belong. `horizon`: end of the
/// simulation.
pub(super) fn finish(replicas: Replicas, counters: &mut [Counters], horizon: Micros, observer: &mut impl Observer) {
    let gone = replicas.gone().to_vec();
    gone.into_iter().for_each(|(instance, last)| counters[instance.index()] = last);
    let last = counters.iter().map(|counters| counters.clock).max().unwrap_or(Micros::ZERO);
    observer.record(&SimEvent::Replicas(&replicas.finish(last.min(horizon))));
}
