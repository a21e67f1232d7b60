//! Guests as policies of flow control, with the same checks and incidents as those in front of the instances.

use blis_sim::policy::flow::{
    BandView, CeilingsPolicy, EvictionPolicy, FairnessPolicy, FlowView, GlobalStrict, InFlightView, OrderingPolicy,
    SaturationPolicy, Utilization,
};
use blis_sim::policy::{ClusterView, Event, Events, Reads, RequestView};
use blis_sim::units::Micros;

use super::PluginPolicy;
use crate::incidents::MeteredCall;
use crate::{CeilingsGuest, EvictionGuest, FairnessGuest, Fault, GuestKind, OrderingGuest, SaturationGuest};

/// The detector that decides instead of a failed one: llm-d's default.
const DEFAULT_DETECTOR: Utilization =
    Utilization { queue_depth: 5.0, kv_utilization: 0.8, staleness: Some(Micros(200_000)) };

impl<G: GuestKind + ?Sized> PluginPolicy<G> {
    /// The checked output at `now`, or that of `instead` after a fault, which is recorded.
    fn checked<T>(&mut self, now: Micros, output: Result<T, Fault>, instead: impl FnOnce() -> T) -> T {
        let output = output.unwrap_or_else(|fault| {
            self.failed(now, fault);
            instead()
        });
        self.charge(MeteredCall::Decision, now);
        output
    }
}

impl SaturationPolicy for PluginPolicy<dyn SaturationGuest> {
    fn reads(&self) -> Reads {
        self.reads
    }

    fn saturation(&mut self, cluster: &ClusterView<'_>) -> f64 {
        let saturation = match self.guest().saturation(cluster) {
            Ok(saturation) if saturation.is_nan() => Err(self.not_a_number("saturation", "")),
            Ok(saturation) if !(0.0..f64::INFINITY).contains(&saturation) => {
                Err(self.out_of_range("saturation", saturation, "at least 0 and finite, where 1 is full"))
            }
            result => result,
        };
        self.checked(cluster.now, saturation, || SaturationPolicy::saturation(&mut { DEFAULT_DETECTOR }, cluster))
    }

    fn events(&self) -> Events {
        self.events
    }

    fn observe(&mut self, event: &Event) {
        self.deliver(event);
    }

    fn fork(&self) -> Box<dyn SaturationPolicy> {
        Box::new(self.copy())
    }
}

impl CeilingsPolicy for PluginPolicy<dyn CeilingsGuest> {
    fn ceilings(&mut self, now: Micros, saturation: f64, bands: &[BandView], ceilings: &mut Vec<f64>) {
        let computed = self.guest().ceilings(now, saturation, bands, ceilings).and_then(|()| {
            if ceilings.len() != bands.len() {
                let output = format!("{} numbers", ceilings.len());
                return Err(self.out_of_range("ceilings", output, &format!("one for each of {} bands", bands.len())));
            }
            match ceilings.iter().position(|ceiling| ceiling.is_nan()) {
                Some(index) => Err(self.not_a_number("ceilings", &format!(" for band {index}"))),
                None => Ok(()),
            }
        });
        self.checked(now, computed, || {
            ceilings.clear();
            ceilings.resize(bands.len(), 1.0);
        });
    }

    fn events(&self) -> Events {
        self.events
    }

    fn observe(&mut self, event: &Event) {
        self.deliver(event);
    }

    fn fork(&self) -> Box<dyn CeilingsPolicy> {
        Box::new(self.copy())
    }
}

impl FairnessPolicy for PluginPolicy<dyn FairnessGuest> {
    /// Every flow that it gets has requests in flight and output tokens.
    fn reads_ends(&self) -> bool {
        true
    }

    fn pick(&mut self, now: Micros, saturation: f64, band: BandView, flows: &[FlowView]) -> usize {
        let index = match self.guest().fair_pick(now, saturation, band, flows) {
            Ok(index) if index >= flows.len() => {
                Err(self.out_of_range("fair_pick", index, &format!("an index from 0 to {}", flows.len() - 1)))
            }
            result => result,
        };
        self.checked(now, index, || FairnessPolicy::pick(&mut GlobalStrict, now, saturation, band, flows))
    }

    fn events(&self) -> Events {
        self.events
    }

    fn observe(&mut self, event: &Event) {
        self.deliver(event);
    }

    fn fork(&self) -> Box<dyn FairnessPolicy> {
        Box::new(self.copy())
    }
}

impl OrderingPolicy for PluginPolicy<dyn OrderingGuest> {
    fn rank(&mut self, request: &RequestView<'_>, now: Micros, expires: Micros) -> f64 {
        let request = request.with_block_ids(self.block_ids);
        let rank = match self.guest().order(&request, now, expires) {
            Ok(rank) if rank.is_nan() => Err(self.not_a_number("order", "")),
            result => result,
        };
        self.checked(now, rank, || now.0 as f64)
    }

    fn events(&self) -> Events {
        self.events
    }

    fn observe(&mut self, event: &Event) {
        self.deliver(event);
    }

    fn fork(&self) -> Box<dyn OrderingPolicy> {
        Box::new(self.copy())
    }
}

impl EvictionPolicy for PluginPolicy<dyn EvictionGuest> {
    fn victim(&mut self, now: Micros, demand: BandView, in_flight: &[InFlightView]) -> Option<usize> {
        let victim = match self.guest().evict(now, demand, in_flight) {
            Ok(Some(index)) if index >= in_flight.len() => {
                let range = format!("none, or an index from 0 to {}", in_flight.len() - 1);
                Err(self.out_of_range("evict", index, &range))
            }
            result => result,
        };
        self.checked(now, victim, || None)
    }

    fn events(&self) -> Events {
        self.events
    }

    fn observe(&mut self, event: &Event) {
        self.deliver(event);
    }

    fn fork(&self) -> Box<dyn EvictionPolicy> {
        Box::new(self.copy())
    }
}
