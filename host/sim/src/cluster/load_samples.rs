//! The load of instances at regular moments, for time series.
//!
//! Sampling changes nothing: an instance is not called at every moment. When it catches up for another reason, it reports its
//! load at the moments on its way ([`Instance::advance_sampled`]).

use super::{Cluster, Halt};
use crate::ids::InstanceIndex;
use crate::instance::{Instance, LoadSampling, NoProgress, SampledMoments};
use crate::observer::{Observer, SimEvent};
use crate::units::Micros;

impl<I: Instance> Cluster<I> {
    /// The same service, which reports the load of its instances at `moments` ([`SimEvent::Load`]).
    ///
    /// # Panics
    /// If the interval is 0.
    #[must_use]
    pub fn with_load_samples(self, moments: SampledMoments) -> Self {
        assert!(moments.interval > Micros::ZERO, "an interval of at least 1 µs");
        let sampling = Some(Box::new(LoadSampling::new(moments)));
        Self { sampling, more_than_advancing: true, ..self }
    }

    /// Executes the events of `behind` before `now`, and samples its load at the moments before.
    #[cold]
    #[inline(never)]
    pub(super) fn advance_sampled(
        &mut self,
        behind: InstanceIndex,
        now: Micros,
        observer: &mut impl Observer,
    ) -> Result<(), NoProgress> {
        let Some(mut sampling) = self.sampling.take() else { return self.advance(behind, now, observer) };
        let (instance, mut observer) = self.observed(behind, observer);
        let advanced = instance.advance_sampled(now, behind, sampling.moments(behind), &mut observer);
        self.sampling = Some(sampling);
        advanced
    }

    /// Samples the load of all instances up to `horizon`, inclusive; at the first moment after it, the load is that of the
    /// horizon.
    #[cold]
    #[inline(never)]
    pub(super) fn sample_rest(&mut self, horizon: Micros, observer: &mut impl Observer) -> Result<(), Halt> {
        for instance in (0..self.instances.len()).map(InstanceIndex::at) {
            let end = horizon.saturating_add(Micros(1));
            self.advance_sampled(instance, end, observer)?;
            let after = self.sampling.as_mut().map_or(Micros::MAX, |sampling| sampling.moments(instance).after(end));
            if after < Micros::MAX {
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
        self.sampling.iter_mut().for_each(|sampling| sampling.moments(instance).end());
        Ok(())
    }
}
