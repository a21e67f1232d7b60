//! The moments at which the load of an instance is sampled, for time series.
//!
//! Only moments count before which the instance has had events: in between, its load is that of the moment before. So an
//! idle instance costs nothing.

use crate::ids::InstanceIndex;
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

/// The moments of one instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadMoments {
    moments: SampledMoments,
    next: Micros,
}

impl LoadMoments {
    /// All of `moments`.
    #[must_use]
    pub fn new(moments: SampledMoments) -> Self {
        Self { moments, next: Micros::ZERO }
    }

    /// The next moment; the end of time if the instance is gone.
    #[must_use]
    pub fn next_at(&self) -> Micros {
        self.next
    }

    /// The load at the next moment is known, and no event follows before `event`, nor an arrival before `limit`.
    pub fn sampled(&mut self, event: Micros, limit: Micros) {
        self.next = self.after(event.saturating_add(Micros(1)).min(limit));
    }

    /// The first moment not before `at`; the end of time if the instance is gone.
    pub fn after(&mut self, at: Micros) -> Micros {
        if self.next == Micros::MAX {
            // An instance that is gone has no load.
            return Micros::MAX;
        }
        let next = self.moments.not_before(at);
        if self.moments.most.is_none() {
            // Only a limit on the number of moments makes the interval longer.
            return next;
        }
        self.moments.reach(next);
        self.moments.not_before(next)
    }

    /// The instance is gone.
    pub fn end(&mut self) {
        self.next = Micros::MAX;
    }
}

/// The moments of each instance of a service.
#[derive(Clone, Debug)]
pub(crate) struct LoadSampling {
    moments: SampledMoments,
    /// By instance.
    instances: Vec<LoadMoments>,
}

impl LoadSampling {
    /// All of `moments`, for every instance.
    pub fn new(moments: SampledMoments) -> Self {
        Self { moments, instances: Vec::new() }
    }

    /// The moments of `instance`: from the beginning, if it has come since.
    pub fn moments(&mut self, instance: InstanceIndex) -> &mut LoadMoments {
        if self.instances.len() <= instance.index() {
            self.instances.resize(instance.index() + 1, LoadMoments::new(self.moments));
        }
        &mut self.instances[instance.index()]
    }
}
