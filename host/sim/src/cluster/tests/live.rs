//! Requests that are added as they come end as those of a list, and cancelled ones end once.

use super::*;
use crate::cluster::{ArrivalList, Timeline};

/// A simulation log, and the instance of each request that was dispatched.
#[derive(Clone, Debug, Default)]
struct RoutedLog {
    simulation: SimulationLog,
    instances: BTreeMap<RequestId, InstanceIndex>,
}

impl Observer for RoutedLog {
    fn interests(&self) -> Interests {
        self.simulation.interests() | Interests::DECISIONS
    }

    fn record(&mut self, event: &SimEvent<'_>) {
        if let SimEvent::Decision(Decision::Routing { request, cluster, choice, .. }) = event {
            self.instances.insert(request.id, cluster.instances[choice.target].id);
        }
        self.simulation.record(event);
    }
}

/// Adds the requests as they come, and cancels some of them: (time, index in `requests`), in order of time.
fn live<I: Instance + Clone>(
    setup: &ClusterSetup,
    engine: impl Fn(InstanceConfig) -> I + Copy + Send + Sync + 'static,
    requests: &[Request],
    cancelled: &[(Micros, usize)],
) -> Result<SimulationLog, Halt> {
    let mut timeline = Timeline::new(setup.cluster(engine), ArrivalList::new([].into()), Reads::NOTHING);
    let mut log = RoutedLog::default();
    let mut cancelled = cancelled.iter().copied().peekable();
    let mut cancel_until = |end: Micros, timeline: &mut Timeline<I>, log: &mut RoutedLog| {
        while let Some((at, index)) = cancelled.next_if(|&(at, _)| at < end) {
            timeline.run_until(at, log)?;
            let id = requests[index].id;
            let instance = log.instances.get(&id).copied();
            if requests[index].arrival <= at {
                timeline.cancel(at, id, instance, log)?;
            }
        }
        Ok::<(), Halt>(())
    };
    for request in requests {
        cancel_until(request.arrival, &mut timeline, &mut log)?;
        if request.arrival > Micros::ZERO {
            timeline.run_until(request.arrival.saturating_sub(Micros(1)), &mut log)?;
        }
        assert!(timeline.next_event().is_none_or(|at| at >= request.arrival), "all before was executed");
        timeline.arrive(request.clone());
    }
    cancel_until(Micros::MAX, &mut timeline, &mut log)?;
    while let Some(at) = timeline.next_event() {
        timeline.run_until(at, &mut log)?;
    }
    log.simulation.counters = timeline.finish(Micros::MAX, &mut log)?;
    Ok(log.simulation)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, max_shrink_iters: 1000, ..ProptestConfig::default() })]

    #[test]
    fn added_requests_end_as_those_of_a_list(setup in setup(), drafts in proptest::collection::vec(draft(), 1..40)) {
        let requests = requests(&drafts, setup.config.block_size);
        let Ok(whole) = simulate(&setup, Fast::new, &requests, Reads::NOTHING) else { return Ok(()) };
        for log in [live(&setup, Fast::new, &requests, &[]), live(&setup, Plain::new, &requests, &[])] {
            let log = log.expect("as the whole list");
            prop_assert_eq!((&log.outcomes, &log.counters), (&whole.outcomes, &whole.counters));
        }
    }

    #[test]
    fn a_cancelled_request_ends_once(
        setup in setup(),
        drafts in proptest::collection::vec(draft(), 1..40),
        cancelled in proptest::collection::vec((0u64..2_000_000, any::<prop::sample::Index>()), 1..12),
    ) {
        let requests = requests(&drafts, setup.config.block_size);
        let mut cancelled: Vec<(Micros, usize)> =
            cancelled.iter().map(|(at, index)| (Micros(*at), index.index(requests.len()))).collect();
        cancelled.sort_unstable();
        let logs = [live(&setup, Fast::new, &requests, &cancelled), live(&setup, Plain::new, &requests, &cancelled)];
        let [Ok(fast), Ok(plain)] = logs else { return Ok(()) };
        prop_assert_eq!(fast.outcomes.len(), requests.len());
        prop_assert_eq!((&fast.outcomes, &fast.counters), (&plain.outcomes, &plain.counters));
    }
}
