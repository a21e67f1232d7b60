//! The queue by itself: bands, limits, sweeps, ticks.

use super::*;
use crate::ids::RequestId;
use crate::policy::flow::{
    ArrivalOrder, CeilingsPolicy, GlobalStrict, PriorityHoldback, SaturationPolicy, StaticCeiling,
};
use crate::policy::{InstanceInfo, Signals, Staleness, Versions};
use crate::request::Tags;

/// As full as the test says.
#[derive(Clone, Debug)]
struct FixedSaturation(std::sync::Arc<std::sync::Mutex<f64>>);

impl SaturationPolicy for FixedSaturation {
    fn reads(&self) -> Reads {
        Reads::NOTHING
    }

    fn saturation(&mut self, _: &ClusterView<'_>) -> f64 {
        *self.0.lock().expect("one thread")
    }

    fn fork(&self) -> Box<dyn SaturationPolicy> {
        Box::new(self.clone())
    }
}

struct GatewayTrial {
    gateway: Gateway,
    full: std::sync::Arc<std::sync::Mutex<f64>>,
    next: u32,
}

impl GatewayTrial {
    fn new(ceilings: impl CeilingsPolicy + 'static, settings: FlowSettings) -> Self {
        let full = std::sync::Arc::new(std::sync::Mutex::new(0.0));
        let control = FlowControl {
            saturation: Box::new(FixedSaturation(std::sync::Arc::clone(&full))),
            ceilings: Box::new(ceilings),
            fairness: Box::new(GlobalStrict),
            ordering: Box::new(ArrivalOrder),
            eviction: None,
            settings,
        };
        Self { gateway: Gateway::new(control), full, next: 0 }
    }

    fn enqueue(&mut self, now: u64, priority: i32) -> Enqueued {
        let tags = Tags { tenant: Name(1), ..Tags::default() };
        let request = Request { tags, ..Request::new(RequestId(self.next), Micros(now), 100, 10) };
        self.next += 1;
        self.gateway.enqueue(Micros(now), request.into(), |request| RequestView::new(request, priority, 16))
    }

    /// The request that is dispatched at a saturation of `full`.
    fn dispatch(&mut self, now: u64, full: f64) -> Option<u32> {
        *self.full.lock().expect("one thread") = full;
        let view = ClusterView {
            now: Micros(now),
            instances: &[InstanceInfo::default()],
            signals: &Signals::default(),
            staleness: Staleness::default(),
            versions: Versions::default(),
            in_flight_changes: crate::policy::Changes::new(0, &[]),
            tenants_in_flight: &[],
            scores: &[],
        };
        match self.gateway.cycle(Micros(now), &view) {
            Cycle::Dispatch(request, _) => Some(request.id.0),
            Cycle::Nothing | Cycle::Evict(_) => None,
        }
    }
}

#[test]
fn bands_are_served_from_the_top_below_their_ceilings() {
    let mut trial = GatewayTrial::new(PriorityHoldback { min: 0.5, max: 1.0 }, FlowSettings::usual());
    for priority in [-1, 3, 4, 3] {
        assert!(matches!(trial.enqueue(0, priority), Enqueued::Waits));
    }
    assert_eq!(trial.dispatch(1, 1.0), None, "the highest band waits, and so do all");
    assert_eq!(trial.dispatch(1, 0.9), Some(2));
    assert_eq!(trial.dispatch(1, 0.9), None, "0.75 for the second band");
    assert_eq!([trial.dispatch(1, 0.7), trial.dispatch(1, 0.7)], [Some(1), Some(3)]);
    assert_eq!(trial.dispatch(1, 0.7), None, "0.5 for the third");
    assert_eq!(trial.dispatch(1, 0.4), Some(0));
    assert_eq!(trial.dispatch(1, 0.0), None, "it is empty");
}

#[test]
fn a_full_band_and_a_full_queue_refuse() {
    let settings = FlowSettings { band_requests: Some(2), max_requests: Some(3), ..FlowSettings::usual() };
    let mut trial = GatewayTrial::new(StaticCeiling { ceiling: 1.0 }, settings.clone());
    assert!((0..2).all(|_| matches!(trial.enqueue(0, 3), Enqueued::Waits)));
    assert!(matches!(trial.enqueue(0, 3), Enqueued::Refused(request) if request.id.0 == 2));
    assert!(matches!(trial.enqueue(0, -1), Enqueued::Waits));
    assert!(matches!(trial.enqueue(0, 4), Enqueued::Refused(_)));
    let mut trial = GatewayTrial::new(StaticCeiling { ceiling: 1.0 }, FlowSettings { displaces: true, ..settings });
    for priority in [-2, -1, -2] {
        trial.enqueue(0, priority);
    }
    assert!(matches!(trial.enqueue(0, 4), Enqueued::Displaced(request) if request.id.0 == 2), "the last of the lowest");
    assert!(matches!(trial.enqueue(0, -2), Enqueued::Refused(_)), "it displaces none of its own priority");
}

#[test]
fn a_band_holds_so_many_bytes() {
    // Each request has 100 prompt tokens.
    let settings = FlowSettings { band_bytes: Some(1000), ..FlowSettings::usual() };
    let mut trial = GatewayTrial::new(StaticCeiling { ceiling: 1.0 }, settings);
    assert!((0..2).all(|_| matches!(trial.enqueue(0, 3), Enqueued::Waits)));
    assert!(matches!(trial.enqueue(0, 3), Enqueued::Refused(_)), "1200 bytes");
    assert!(matches!(trial.enqueue(0, -1), Enqueued::Waits), "the other band is empty");
    assert_eq!(trial.dispatch(1, 0.0), Some(0));
    assert!(matches!(trial.enqueue(2, 3), Enqueued::Waits));
}

#[test]
fn requests_expire_at_the_next_sweep() {
    let settings = FlowSettings { ttl: Some(Micros(60_000_000)), ..FlowSettings::usual() };
    let mut trial = GatewayTrial::new(StaticCeiling { ceiling: 1.0 }, settings);
    trial.enqueue(1_500_000, 3);
    trial.enqueue(1_600_000, 3);
    trial.gateway.enqueued(Micros(1_600_000));
    assert_eq!(trial.gateway.next_tick(), Some(Micros(1_601_000)));
    assert_eq!(trial.dispatch(2_000_000, 0.0), Some(0));
    assert_eq!(trial.gateway.next_leave(), Some(Micros(62_000_000)), "up to a second late");
    assert!(matches!(trial.gateway.leave(), Some((request, Leaves::Expired)) if request.id.0 == 1));
    assert_eq!((trial.gateway.next_leave(), trial.gateway.len()), (None, 0));
    trial.gateway.ticked(Micros(62_000_000));
    assert_eq!(trial.gateway.next_tick(), None, "nothing waits");
}
