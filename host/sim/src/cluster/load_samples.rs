//! The load of instances at regular moments, for time series.
//!
//! Sampling changes nothing: an instance is not called at every moment. When it catches up for another reason, it stops at
//! the moments on its way, and only at those before which it has had events: in between, its load is that of the moment
//! before. So an idle instance costs nothing, and a busy one a stop at each moment, at most.

use super::{Cluster, Halt};
use crate::ids::InstanceIndex;
use crate::instance::{Instance, NoProgress};
use crate::observer::{Observer, SimEvent};
use crate::units::Micros;

/// The moments at which the load of instances is sampled: the multiples of an interval, from 0 on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampledMoments {
    /// Time between two moments, at least 1 µs.
    pub interval: Micros,
    /// The interval doubles whenever there would be more moments than this; `None`: it never does.
    pub most: Option<u64>,
}

impl SampledMoments {
    /// The first moment that is not before `at`.
    #[must_use]
    pub fn not_before(self, at: Micros) -> Micros {
        Micros(at.0.div_ceil(self.interval.0).saturating_mul(self.interval.0)).min(Micros::MAX)
    }

    /// Makes the interval longer if there would be too many moments up to `at`.
    pub fn reach(&mut self, at: Micros) {
        while self.most.is_some_and(|most| at.0 / self.interval.0 >= most) && self.interval <= Micros(Micros::MAX.0 / 2)
        {
            self.interval = Micros(self.interval.0 * 2);
        }
    }
}

/// The next moment of each instance.
#[derive(Clone, Debug)]
pub(super) struct LoadSampling {
    moments: SampledMoments,
    /// By instance; 0 for an instance that has come since.
    next: Vec<Micros>,
}

impl LoadSampling {
    /// The next moment of `instance`, if it is before `now`.
    fn due(&mut self, instance: InstanceIndex, now: Micros) -> Option<Micros> {
        if self.next.len() <= instance.index() {
            self.next.resize(instance.index() + 1, Micros::ZERO);
        }
        let mut next = self.next[instance.index()];
        if next < now {
            // The interval may have grown since.
            self.moments.reach(next);
            next = self.moments.not_before(next);
        }
        (next < now).then_some(next)
    }

    /// The first moment not before `end`; the end of time if `instance` is gone.
    fn after(&self, instance: InstanceIndex, end: Micros) -> Micros {
        let gone = self.next.get(instance.index()) == Some(&Micros::MAX);
        if gone { Micros::MAX } else { self.moments.not_before(end) }
    }

    /// The load of `instance` at the moment `at`, before `now`, is known; its next event is at `event`.
    fn sampled(&mut self, instance: InstanceIndex, event: Option<Micros>, now: Micros) {
        let after_event = event.unwrap_or(Micros::MAX).saturating_add(Micros(1));
        self.next[instance.index()] = self.moments.not_before(after_event.min(now));
    }
}

impl<I: Instance> Cluster<I> {
    /// The same service, which reports the load of its instances at `moments` ([`SimEvent::Load`]).
    ///
    /// # Panics
    /// If the interval is 0.
    #[must_use]
    pub fn with_load_samples(self, moments: SampledMoments) -> Self {
        assert!(moments.interval > Micros::ZERO, "an interval of at least 1 µs");
        Self { sampling: Some(Box::new(LoadSampling { moments, next: Vec::new() })), ..self }
    }

    /// Samples the load of `behind` at the moments before `now`.
    #[cold]
    #[inline(never)]
    pub(super) fn sample_before(
        &mut self,
        behind: InstanceIndex,
        now: Micros,
        observer: &mut impl Observer,
    ) -> Result<(), NoProgress> {
        while let Some(at) = self.sampling.as_mut().and_then(|sampling| sampling.due(behind, now)) {
            self.advance(behind, at, observer)?;
            let instance = &self.instances[behind.index()];
            observer.record(&SimEvent::Load { instance: behind, at, load: &instance.load() });
            let event = instance.next_event();
            self.sampling.iter_mut().for_each(|sampling| sampling.sampled(behind, event, now));
        }
        Ok(())
    }

    /// Samples the load of all instances up to `horizon`, inclusive; at the first moment after it, the load is that of the
    /// horizon.
    #[cold]
    #[inline(never)]
    pub(super) fn sample_rest(&mut self, horizon: Micros, observer: &mut impl Observer) -> Result<(), Halt> {
        for instance in (0..self.instances.len()).map(InstanceIndex::at) {
            let end = horizon.saturating_add(Micros(1));
            self.sample_before(instance, end, observer)?;
            let after = self.sampling.as_ref().map_or(Micros::MAX, |sampling| sampling.after(instance, end));
            if after < Micros::MAX {
                self.advance(instance, end, observer)?;
                let load = self.instances[instance.index()].load();
                observer.record(&SimEvent::Load { instance, at: after, load: &load });
            }
        }
        Ok(())
    }

    /// Samples the load of `instance` up to `now`, at which it is gone.
    #[cold]
    #[inline(never)]
    pub(super) fn sample_last(
        &mut self,
        now: Micros,
        instance: InstanceIndex,
        observer: &mut impl Observer,
    ) -> Result<(), NoProgress> {
        self.catch_up(instance, now, observer)?;
        if let Some(next) = self.sampling.as_mut().and_then(|sampling| sampling.next.get_mut(instance.index())) {
            *next = Micros::MAX;
        }
        Ok(())
    }
}
