//! Branches continue as the original does, and differently where a decision is forced.

use super::gateway::with_flow;
use super::*;
use crate::cluster::decisions::{ForcedDecision, RecordedDecision, RecordedDecisions};
use crate::cluster::{ArrivalList, Timeline};
use crate::kv::tiers::samples;

/// A copy of the simulation and of its log, made before the event with decision number `.0`.
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
    /// For each of them, its time, and what flow control could have chosen.
    gateway: Vec<(Micros, ChoiceOptions)>,
}

#[derive(Clone, Debug, PartialEq)]
enum ChoiceOptions {
    /// It was no decision of flow control.
    None,
    /// The band, its flows, and the requests in them.
    Dispatch(i32, Vec<Name>, u32),
    /// The requests that could be evicted.
    Evict(Vec<RequestId>),
}

impl ChoiceOptions {
    fn has_alternative(&self) -> bool {
        match self {
            Self::None => false,
            Self::Dispatch(_, _, waiting) => *waiting > 1,
            Self::Evict(_) => true,
        }
    }
}

impl Observer for DecisionLog {
    fn interests(&self) -> Interests {
        self.simulation.interests()
    }

    fn record(&mut self, event: &SimEvent<'_>) {
        let SimEvent::Decision(decision) = event else { return self.simulation.record(event) };
        let (id, decision, now, options) = match decision {
            Decision::Admission { request, cluster, decision, .. } => {
                let admit = ForcedDecision::Admit(**decision == AdmissionDecision::Admit);
                (request.id, admit, cluster.now, ChoiceOptions::None)
            }
            Decision::Routing { request, cluster, choice, .. } => {
                let target = ForcedDecision::Route(cluster.instances[choice.target].id);
                (request.id, target, cluster.now, ChoiceOptions::None)
            }
            Decision::Gateway(GatewayDecision { now, request, choice, .. }) => match *choice {
                GatewayChoice::Dispatched { band, flows, .. } => {
                    let waiting = flows.iter().map(|flow| flow.queued).sum();
                    let flows = flows.iter().map(|flow| Name(flow.tenant)).collect();
                    let options = ChoiceOptions::Dispatch(band, flows, waiting);
                    (*request, ForcedDecision::Dispatch(*request), *now, options)
                }
                GatewayChoice::Evicted { candidates, .. } => {
                    let options = ChoiceOptions::Evict(candidates.iter().map(|one| RequestId(one.id)).collect());
                    (*request, ForcedDecision::Evict(Some(*request)), *now, options)
                }
                _ => return,
            },
            Decision::Disaggregation(_)
            | Decision::Scheduling(_)
            | Decision::Preemption(_)
            | Decision::Load(_)
            | Decision::AdapterEviction(_) => {
                return;
            }
        };
        self.decisions.push((id, decision));
        self.gateway.push((now, options));
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
        // An event makes a few decisions, or none: admission, dispatch, eviction.
        let first = log.decisions.len();
        let may_be_here = at.iter().any(|at| (first..first + 4).contains(at));
        let before = may_be_here.then(|| (timeline.clone(), log.clone()));
        timeline.decide(&mut log)?;
        if let Some((timeline, before)) = before {
            let made = (first..log.decisions.len()).filter(|number| at.contains(number));
            let fork = |number| BranchPoint { number, timeline: timeline.clone(), log: before.clone() };
            forks.extend(made.map(fork));
        }
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
            // Pairs have tests of their own.
            ForcedDecision::Dispatch(_) | ForcedDecision::Evict(_) | ForcedDecision::Prefill(_) => continue,
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
        let (id, decision) = original.decisions[forced.number];
        forced.timeline.force(id, decision);
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
    fn a_clone_with_tiers_continues_as_the_original_does(
        setup in setup(),
        tiers in samples::tiers(),
        drafts in proptest::collection::vec(draft(), 1..50),
        at in proptest::collection::vec(0usize..60, 1..5),
        pause in (0u64..50_000).prop_map(Micros),
    ) {
        let setup = with_tiers(setup, tiers);
        check(&setup, Plain::new, &requests(&drafts, setup.config.block_size), &at, pause);
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
        let (id, decision) = original.decisions[at];
        let other = match decision {
            ForcedDecision::Admit(admitted) => ForcedDecision::Admit(!admitted),
            ForcedDecision::Route(_) => ForcedDecision::Route(setup.instances[target % setup.instances.len()].index),
            ForcedDecision::Dispatch(_) | ForcedDecision::Evict(_) | ForcedDecision::Prefill(_) => return Ok(()),
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
            ForcedDecision::Dispatch(_) | ForcedDecision::Evict(_) | ForcedDecision::Prefill(_) => {
                unreachable!("they were left out")
            }
        }
        // Both branches have an outcome for every request that arrived.
        prop_assert!(log.simulation.outcomes.keys().eq(original.simulation.outcomes.keys()));
    }

    #[test]
    fn another_choice_of_flow_control_is_made_once_and_no_request_is_lost(
        setup in with_flow(),
        drafts in proptest::collection::vec(draft(), 5..60),
        which in any::<usize>(),
    ) {
        let requests = requests(&drafts, setup.config.block_size);
        let forced = forced_choice(&setup, Fast::new, &requests, which);
        prop_assert_eq!(&forced_choice(&setup, Plain::new, &requests, which), &forced, "both engines");
        let Some((original, BranchChoice { at, other, log })) = forced else { return Ok(()) };
        let (id, _) = original.decisions[at];
        prop_assert_eq!(&log.decisions[..at], &original.decisions[..at]);
        match other {
            ForcedDecision::Evict(None) => {
                // None now, and no other before the grace has passed.
                let (now, _) = original.gateway[at];
                let grace = setup.flow.as_ref().expect("it has").settings.eviction_grace;
                let next = log.decisions.iter().zip(&log.gateway).skip(at).find(|((next, what), _)| {
                    *next == id && matches!(what, ForcedDecision::Evict(_))
                });
                prop_assert!(next.is_none_or(|(_, (then, _))| *then >= now + grace), "{:?}", next);
            }
            ForcedDecision::Dispatch(chosen) => prop_assert_eq!(log.decisions[at], (chosen, other)),
            _ => {
                let ForcedDecision::Evict(Some(chosen)) = other else { unreachable!("{other:?}") };
                prop_assert_eq!(log.decisions[at], (chosen, other));
            }
        }
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

/// A branch in which decision number `at` of flow control was forced to be `other`.
#[derive(Clone, Debug, PartialEq)]
struct BranchChoice {
    at: usize,
    other: ForcedDecision,
    log: DecisionLog,
}

/// A run and a branch of it, in which one of its choices of flow control is another one, if there are any.
fn forced_choice<I: Instance + Clone>(
    setup: &ClusterSetup,
    engine: impl Fn(InstanceConfig) -> I + Copy + Send + Sync + 'static,
    requests: &[Request],
    which: usize,
) -> Option<(DecisionLog, BranchChoice)> {
    let (original, _) = run(setup, engine, requests, &[]).ok()?;
    let choices: Vec<usize> =
        (0..original.gateway.len()).filter(|&number| original.gateway[number].1.has_alternative()).collect();
    let at = *choices.get(which % choices.len().max(1))?;
    let (_, forks) = run(setup, engine, requests, &[at]).ok()?;
    let mut fork = forks.into_iter().next()?;
    let (id, _) = original.decisions[at];
    let mut after = fork.timeline.clone();
    after.decide(&mut ()).ok()?;
    let others: Vec<ForcedDecision> = match &original.gateway[at].1 {
        ChoiceOptions::None => Vec::new(),
        // What still waits could have been dispatched.
        ChoiceOptions::Dispatch(band, flows, _) => {
            let waiting = flows.iter().flat_map(|&tenant| after.flow(*band, tenant));
            waiting.map(|request| ForcedDecision::Dispatch(request.id)).collect()
        }
        ChoiceOptions::Evict(candidates) => {
            let others =
                candidates.iter().filter(|&&other| other != id).map(|&other| ForcedDecision::Evict(Some(other)));
            others.chain([ForcedDecision::Evict(None)]).collect()
        }
    };
    let other = *others.get(which % others.len().max(1))?;
    fork.timeline.force(id, other);
    let log = fork.continue_to_end(Micros(1_000)).ok()?;
    Some((original, BranchChoice { at, other, log }))
}

#[test]
fn the_random_runs_force_every_choice() {
    use proptest::strategy::ValueTree as _;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut kinds = std::collections::BTreeSet::new();
    for which in 0..200 {
        let setup = with_flow().new_tree(&mut runner).expect("a setup").current();
        let drafts = proptest::collection::vec(draft(), 20..60).new_tree(&mut runner).expect("drafts").current();
        let requests = requests(&drafts, setup.config.block_size);
        let forced = forced_choice(&setup, Fast::new, &requests, which);
        kinds.extend(forced.map(|(_, branch)| match branch.other {
            ForcedDecision::Dispatch(_) => "another dispatch",
            ForcedDecision::Evict(Some(_)) => "another eviction",
            ForcedDecision::Evict(None) => "no eviction",
            ForcedDecision::Admit(_) | ForcedDecision::Route(_) | ForcedDecision::Prefill(_) => "not of flow control",
        }));
    }
    assert_eq!(kinds.into_iter().collect::<Vec<_>>(), ["another dispatch", "another eviction", "no eviction"]);
}
