//! Branches continue as the original does, and differently where a decision is forced.

use super::*;
use crate::cluster::{ArrivalList, ForcedDecision, RecordedDecision, RecordedDecisions, Timeline};

/// A copy of the simulation and of its log, made before decision number `.0`.
struct BranchPoint<I> {
    number: usize,
    timeline: Timeline<I>,
    log: DecisionLog,
}

/// A simulation log with the decisions about each request.
#[derive(Clone, Debug, Default, PartialEq)]
struct DecisionLog {
    simulation: SimulationLog,
    decisions: Vec<(RequestId, ForcedDecision)>,
}

impl Observer for DecisionLog {
    fn interests(&self) -> Interests {
        self.simulation.interests()
    }

    fn record(&mut self, event: &SimEvent<'_>) {
        let SimEvent::Decision(decision) = event else { return self.simulation.record(event) };
        let (id, decision) = match decision {
            Decision::Admission { request, decision, .. } => {
                (request.id, ForcedDecision::Admit(**decision == AdmissionDecision::Admit))
            }
            Decision::Routing { request, cluster, choice, .. } => {
                (request.id, ForcedDecision::Route(cluster.instances[choice.target].id))
            }
            Decision::Gateway(_) | Decision::Scheduling(_) | Decision::Preemption(_) => return,
        };
        self.decisions.push((id, decision));
    }
}

/// A whole run, and copies made before each of the decisions `at`.
fn run<I: Instance + Clone>(
    setup: &ClusterSetup,
    engine: impl Fn(InstanceConfig) -> I + Copy + Send + Sync + 'static,
    requests: &[Request],
    at: &[usize],
) -> Result<(DecisionLog, Vec<BranchPoint<I>>), Halt> {
    let cluster = setup.cluster(engine);
    let mut timeline = Timeline::new(cluster, ArrivalList::new(requests.into()), Reads::NOTHING);
    let (mut log, mut forks) = (DecisionLog::default(), Vec::new());
    while timeline.next_decision(&mut log)? {
        let number = log.decisions.len();
        if at.contains(&number) {
            forks.push(BranchPoint { number, timeline: timeline.clone(), log: log.clone() });
        }
        timeline.decide(&mut log)?;
    }
    log.simulation.counters = timeline.finish(Micros::MAX, &mut log)?;
    Ok((log, forks))
}

impl<I: Instance> BranchPoint<I> {
    /// Runs to the end, with pauses at times without an event.
    fn continue_to_end(mut self, pause: Micros) -> Result<DecisionLog, Halt> {
        let at = self.timeline.pending().expect("it was").at;
        self.timeline.catch_up(at, &mut self.log)?;
        for pauses in 1..4 {
            self.timeline.run_until(at.saturating_add(Micros(pauses * pause.0)), &mut self.log)?;
        }
        self.log.simulation.counters = self.timeline.finish(Micros::MAX, &mut self.log)?;
        Ok(self.log)
    }
}

/// The last decision about each request.
fn decisions(log: &DecisionLog) -> RecordedDecisions {
    let mut recorded = RecordedDecisions::default();
    for &(id, decision) in &log.decisions {
        let decision = match decision {
            ForcedDecision::Admit(false) => RecordedDecision::Rejected,
            ForcedDecision::Admit(true) => RecordedDecision::Admitted,
            ForcedDecision::Route(instance) => RecordedDecision::Routed(instance),
        };
        recorded.insert(id, decision);
    }
    recorded
}

pub(super) fn check<I: Instance + Clone>(
    setup: &ClusterSetup,
    engine: impl Fn(InstanceConfig) -> I + Copy + Send + Sync + 'static,
    requests: &[Request],
    at: &[usize],
    pause: Micros,
) {
    let Ok((original, forks)) = run(setup, engine, requests, at) else { return };
    let whole = simulate(setup, engine, requests, Reads::NOTHING).expect("as before");
    assert_eq!((&original.simulation.outcomes, &original.simulation.itl), (&whole.outcomes, &whole.itl));
    assert_eq!(original.simulation.counters, whole.counters);
    for fork in forks {
        let mut forced = BranchPoint { timeline: fork.timeline.clone(), log: fork.log.clone(), ..fork };
        let mut recorded = BranchPoint { timeline: fork.timeline.clone(), log: fork.log.clone(), ..fork };
        assert_eq!(fork.continue_to_end(pause).as_ref(), Ok(&original), "a clone continues differently");
        // None if only requests for models that are not served were still to come.
        if let Some(&(id, decision)) = original.decisions.get(forced.number) {
            forced.timeline.force(id, decision);
        }
        // The reason of a rejection has no effect, and is not part of this log.
        assert_eq!(
            forced.continue_to_end(pause).as_ref(),
            Ok(&original),
            "forcing the same decision changed the result"
        );
        recorded.timeline.replay(Arc::new(decisions(&original)));
        let log = recorded.continue_to_end(pause).expect("as before");
        assert_eq!(log.simulation, original.simulation, "replaying the same decisions changed the result");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, max_shrink_iters: 1000, ..ProptestConfig::default() })]

    #[test]
    fn a_clone_continues_as_the_original_does(
        mut setup in setup(),
        drafts in proptest::collection::vec(draft(), 1..50),
        horizon in prop_oneof![3 => Just(Micros::MAX), 1 => (1_000u64..900_000).prop_map(Micros)],
        at in proptest::collection::vec(0usize..60, 1..5),
        pause in (0u64..50_000).prop_map(Micros),
    ) {
        setup.config.horizon = horizon;
        let requests = requests(&drafts, setup.config.block_size);
        check(&setup, Fast::new, &requests, &at, pause);
        check(&setup, Plain::new, &requests, &at, pause);
    }

    #[test]
    fn a_forced_decision_changes_nothing_before_it(
        setup in setup(),
        drafts in proptest::collection::vec(draft(), 1..50),
        at in 0usize..60,
        target in 0usize..6,
    ) {
        let requests = requests(&drafts, setup.config.block_size);
        let Ok((original, forks)) = run(&setup, Fast::new, &requests, &[at]) else { return Ok(()) };
        let Some(mut fork) = forks.into_iter().next() else { return Ok(()) };
        let Some(&(id, decision)) = original.decisions.get(at) else { return Ok(()) };
        let other = match decision {
            ForcedDecision::Admit(admitted) => ForcedDecision::Admit(!admitted),
            ForcedDecision::Route(_) => ForcedDecision::Route(setup.instances[target % setup.instances.len()].index),
        };
        fork.timeline.force(id, other);
        let Ok(log) = fork.continue_to_end(Micros(1_000)) else { return Ok(()) };
        prop_assert_eq!(&log.decisions[..at], &original.decisions[..at]);
        prop_assert_eq!(log.decisions[at], (id, other));
        let outcome = &log.simulation.outcomes[&id];
        match other {
            ForcedDecision::Admit(admit) => {
                let rejected = outcome.status == Status::Rejected(Rejection::Admission);
                prop_assert_eq!(rejected, !admit);
            }
            ForcedDecision::Route(instance) => prop_assert_eq!(outcome.instance, Some(instance)),
        }
        // Both branches have an outcome for every request that arrived.
        prop_assert!(log.simulation.outcomes.keys().eq(original.simulation.outcomes.keys()));
    }

    #[test]
    fn a_request_served_next_is_at_the_head_and_no_request_is_lost(
        setup in setup(),
        drafts in proptest::collection::vec(draft(), 5..50),
        at in 3usize..60,
        which in any::<usize>(),
    ) {
        let requests = requests(&drafts, setup.config.block_size);
        let serve = |engine: fn(InstanceConfig) -> Fast| {
            let (original, forks) = run(&setup, engine, &requests, &[at]).ok()?;
            let mut fork = forks.into_iter().next()?;
            let now = fork.timeline.pending()?.at;
            fork.timeline.catch_up(now, &mut fork.log).ok()?;
            let instances = fork.timeline.instances();
            let (busiest, queue) = instances.iter().map(Instance::queue).enumerate().max_by_key(|(_, queue)| queue.len())?;
            let &id = queue.get(which % queue.len().max(1))?;
            let instance = InstanceIndex::at(busiest);
            assert!(fork.timeline.serve_next(instance, id));
            assert_eq!(fork.timeline.instances()[busiest].queue()[0], id);
            assert!(!fork.timeline.serve_next(instance, RequestId(u32::MAX)));
            let log = fork.continue_to_end(Micros(1_000)).ok()?;
            Some((original, log))
        };
        let Some((original, log)) = serve(Fast::new) else { return Ok(()) };
        prop_assert!(log.simulation.outcomes.keys().eq(original.simulation.outcomes.keys()));
    }
}
