//! The beginning and the end of a simulation.

use super::disaggregation::PairObserver;
use super::measures::RouterMeasures;
use super::{Cluster, Halt, scaling};
use crate::ids::InstanceIndex;
use crate::instance::Instance;
use crate::observer::{Observer, SimEvent};
use crate::outcome::{Counters, Outcome, StageTimes, Status};
use crate::policy::Reads;
use crate::units::Micros;

impl<I: Instance> Cluster<I> {
    /// Starts to keep the signals up to date that are read.
    pub(super) fn start(&mut self, observed: Reads, ends_matter: bool) {
        let mut reads = self.admission_reads.and(self.routing_reads).and(observed);
        let mut ends_matter = ends_matter;
        if let Some(gateway) = &self.gateway {
            reads = reads.and(gateway.reads());
            ends_matter |= gateway.reads_ends();
        }
        if let Some(replicas) = &self.replicas {
            reads = reads.and(replicas.reads());
        }
        if let Some(pairs) = &self.pairs {
            // The policies of pools share what is computed for a request.
            self.routing_reads = self.routing_reads.and(pairs.reads());
            reads = reads.and(self.routing_reads);
            ends_matter = true;
        }
        self.lifecycle.want(RouterMeasures::events(reads));
        if reads.tokens {
            // They are counted when a request is routed, without what is cached then, for all readers.
            self.routing_reads.cached_blocks = true;
        }
        self.board.start(reads, self.lifecycle.wanted(), ends_matter, &mut self.instances);
    }

    pub(super) fn finish(mut self, observer: &mut impl Observer) -> Result<Vec<Counters>, Halt> {
        let horizon = self.config.horizon;
        for request in self.arrived.drain(..).chain(self.admitted.drain(..).map(|(_, request)| request)) {
            observer.record(&SimEvent::Outcome(&Outcome::new(&request, Status::Arriving)));
        }
        for request in self.gateway.iter_mut().flat_map(|gateway| gateway.drain()) {
            observer.record(&SimEvent::Outcome(&Outcome::new(&request, Status::InGateway)));
        }
        if self.shared.is_some() {
            self.keep_together(horizon.saturating_add(Micros(1)), observer)?;
        }
        if self.sampling.is_some() {
            self.sample_rest(horizon, observer)?;
        }
        let rest = &mut PairObserver { observer, pairs: self.pairs.as_deref_mut() };
        let end = |(index, mut instance): (usize, I)| {
            instance.advance(horizon.saturating_add(Micros(1)), rest)?;
            // No further turn comes.
            let kept = rest.pairs.iter_mut().flat_map(|pairs| pairs.forget_kept(InstanceIndex::at(index)));
            kept.for_each(|turn| instance.release_prefilled(horizon, turn));
            Ok(instance.finish(horizon, rest))
        };
        let counters: Result<Vec<Counters>, Halt> = self.instances.into_iter().enumerate().map(end).collect();
        for (times, outcome) in self.pairs.iter_mut().flat_map(|pairs| pairs.drain_encoding()) {
            observer.record(&SimEvent::Encoded(&times));
            outcome.iter().for_each(|outcome| observer.record(&SimEvent::Outcome(outcome)));
        }
        for (times, outcome) in self.pairs.iter_mut().flat_map(|pairs| pairs.drain()) {
            record_of(observer, &times, &outcome);
        }
        self.config.abort.check()?;
        let mut counters = counters?;
        if let Some(replicas) = self.replicas {
            scaling::finish(*replicas, &mut counters, horizon, observer);
        }
        Ok(counters)
    }
}

/// Reports the outcome of a request that was prefilled and decoded on different instances.
pub(super) fn record_of(observer: &mut impl Observer, times: &StageTimes, outcome: &Outcome) {
    observer.record(&SimEvent::Disaggregated(times));
    observer.record(&SimEvent::Outcome(outcome));
}
