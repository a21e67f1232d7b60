//! Instances catch up with the cluster: before a decision reads what may have changed on them, and when their ends matter.

use super::signals::{SignalObserver, WatchedEvents};
use super::{Cluster, Halt, to_policies};
use crate::ids::InstanceIndex;
use crate::instance::{Instance, NoProgress, PrefetchDistance};
use crate::limits;
use crate::observer::Observer;
use crate::units::Micros;

impl<I: Instance> Cluster<I> {
    /// Refreshes the signals that a policy or an observer reads.
    pub(super) fn refresh_signals(&mut self, now: Micros, observer: &mut impl Observer) -> Result<(), NoProgress> {
        if self.board.is_refreshed(now) {
            return Ok(());
        }
        if self.board.is_due(now) && self.board.watches() != WatchedEvents::Events {
            for i in 0..self.serving() {
                let behind = self.serving_at(i);
                self.prefetch_after(behind);
                if self.instances[behind.index()].next_event().is_some_and(|at| at < now) {
                    self.catch_up(behind, now, observer)?;
                }
            }
        } else {
            self.catch_up_watched(now, observer)?;
        }
        self.board.refresh(now, &mut self.instances, &mut self.lifecycle);
        self.deliver(now);
        Ok(())
    }

    /// Executes the watched events of the instances before `now`.
    pub(super) fn catch_up_watched(&mut self, now: Micros, observer: &mut impl Observer) -> Result<(), NoProgress> {
        while let Some(behind) = self.next_events.first_before(now) {
            self.catch_up(behind, now, observer)?;
        }
        Ok(())
    }

    /// Delivers the events before `now` to the policies.
    pub(super) fn deliver(&mut self, now: Micros) {
        let Self { lifecycle, board, policies, gateway, pairs, .. } = self;
        let mut observe = to_policies(policies, gateway, pairs);
        lifecycle.deliver(now, |event| {
            board.observe(event);
            observe(event);
        });
    }

    /// Prefetches the instance of the next event, a little further at every call.
    pub(super) fn prefetch_next(&mut self) {
        if self.instances.len() <= limits::INSTANCES_AT_HAND {
            return;
        }
        let Some(next) = self.next_events.first_before(Micros::MAX) else { return };
        let (instance, distance) = &mut self.prefetching;
        if *instance != next {
            (*instance, *distance) = (next, 0);
        }
        if let Some(&far) = PrefetchDistance::ALL.get(*distance) {
            self.instances[next.index()].prefetch(far);
            *distance += 1;
        }
    }

    /// As [`Self::prefetch_next`], while the instances are visited one after the other.
    pub(super) fn prefetch_after(&self, present: InstanceIndex) {
        for (ahead, distance) in (1..).zip(PrefetchDistance::ALL.into_iter().rev()) {
            self.instances.get(present.index() + ahead).into_iter().for_each(|instance| instance.prefetch(distance));
        }
    }

    /// Advances the first instance on which a request may end before `until`, up to that moment. Returns `false` if
    /// there is none.
    pub(super) fn next_end_before(&mut self, until: Micros, observer: &mut impl Observer) -> Result<bool, Halt> {
        let Some(instance) = self.next_events.first_before(until) else { return Ok(false) };
        self.config.abort.check()?;
        let at = self.next_events.time(instance);
        self.pairs.iter_mut().for_each(|pairs| pairs.now = at);
        self.catch_up(instance, at.saturating_add(Micros(1)), observer)?;
        Ok(true)
    }

    /// Executes the events of instance `behind` before `now`.
    pub(super) fn catch_up(
        &mut self,
        behind: InstanceIndex,
        now: Micros,
        observer: &mut impl Observer,
    ) -> Result<(), NoProgress> {
        debug_assert_eq!(
            self.more_than_advancing,
            self.shared.is_some() || self.sampling.is_some() || self.pairs.is_some()
        );
        if self.more_than_advancing {
            // One flag stands for three rare features, as it is asked at every event: their code stays out of line.
            return self.catch_up_with_others(behind, now, observer);
        }
        self.advance(behind, now, observer)?;
        self.board.mark_dirty(behind);
        self.watch(behind);
        Ok(())
    }

    #[inline(never)]
    pub(super) fn catch_up_with_others(
        &mut self,
        behind: InstanceIndex,
        now: Micros,
        observer: &mut impl Observer,
    ) -> Result<(), NoProgress> {
        if self.shared.is_some() {
            self.keep_together(now, observer)?;
        }
        self.catch_up_alone(behind, now, observer)
    }

    /// As [`Self::catch_up`], if instances share no storage or the others have caught up far enough.
    #[inline]
    pub(super) fn catch_up_alone(
        &mut self,
        behind: InstanceIndex,
        now: Micros,
        observer: &mut impl Observer,
    ) -> Result<(), NoProgress> {
        if self.sampling.is_some() {
            self.advance_sampled(behind, now, observer)?;
        } else {
            self.advance(behind, now, observer)?;
        }
        if self.pairs.is_some() {
            self.begin_reads(behind);
        }
        self.board.mark_dirty(behind);
        self.watch(behind);
        Ok(())
    }

    /// Executes the events of instance `behind` before `now`, for [`Self::catch_up_alone`].
    #[inline(always)]
    pub(super) fn advance(
        &mut self,
        behind: InstanceIndex,
        now: Micros,
        observer: &mut impl Observer,
    ) -> Result<(), NoProgress> {
        let (instance, mut observer) = self.observed(behind, observer);
        instance.advance(now, &mut observer)
    }

    /// Instance `behind`, and the observer that keeps the signals of the service up to date with its events.
    #[inline(always)]
    pub(super) fn observed<'a, O: Observer>(
        &'a mut self,
        behind: InstanceIndex,
        observer: &'a mut O,
    ) -> (&'a mut I, SignalObserver<'a, O>) {
        let observer = SignalObserver {
            observer,
            board: &mut self.board,
            lifecycle: &mut self.lifecycle,
            gateway: self.gateway.as_deref_mut().filter(|gateway| gateway.reads_ends()),
            outcomes: self.replicas.as_mut().and_then(|replicas| replicas.outcome_log()),
            pairs: self.pairs.as_deref_mut(),
        };
        (&mut self.instances[behind.index()], observer)
    }

    /// Records when `instance` must be advanced again.
    pub(super) fn watch(&mut self, instance: InstanceIndex) {
        let next = match self.board.watches() {
            WatchedEvents::Nothing => return,
            WatchedEvents::Ends => self.instances[instance.index()].next_end(),
            WatchedEvents::Events => self.instances[instance.index()].next_event(),
        };
        if self.pairs.is_some() {
            // A KV read may begin before the next end, and shares the network with others from then on.
            return self.watch_reads(instance, next);
        }
        self.next_events.set(instance, next);
    }

    /// As [`Self::watch`], if requests move between instances.
    #[inline(never)]
    pub(super) fn watch_reads(&mut self, instance: InstanceIndex, next: Option<Micros>) {
        let read = self.instances[instance.index()].next_read();
        self.next_events.set(instance, next.into_iter().chain(read).min());
    }
}
