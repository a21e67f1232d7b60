//! Branches continue as the original does, and differently where a decision is forced.

use super::*;
use crate::cluster::{Fate, Force, Listed, Settled, Timeline};

/// A copy of the simulation and of its log, made before decision number `.0`.
struct Fork<I> {
    number: usize,
    timeline: Timeline<I>,
    story: Told,
}

/// A simulation log with the decisions about each request.
#[derive(Clone, Debug, Default, PartialEq)]
struct Told {
    story: Story,
    answers: Vec<(u32, Force)>,
}

impl Observer for Told {
    fn interests(&self) -> Interests {
        self.story.interests()
    }

    fn record(&mut self, event: &SimEvent<'_>) {
        let SimEvent::Decision(decision) = event else { return self.story.record(event) };
        let (id, answer) = match decision {
            Decision::Admission { request, verdict, .. } => (request.id, Force::Admit(**verdict == Verdict::Admit)),
            Decision::Routing { request, choice, .. } => (request.id, Force::Route(choice.target as u32)),
            Decision::Scheduling(_) | Decision::Preemption(_) => return,
        };
        self.answers.push((id, answer));
    }
}

/// A whole run, and copies made before each of the decisions `at`.
fn run<I: Instance + Clone>(
    setup: &Setup,
    engine: impl Fn(InstanceConfig) -> I,
    requests: &[Request],
    at: &[usize],
) -> Result<(Told, Vec<Fork<I>>), Halt> {
    let cluster = Cluster::new(setup.config.clone(), setup.policies.clone(), setup.instances.clone(), engine);
    let mut timeline = Timeline::new(cluster, Listed::new(requests.into()), Reads::NOTHING);
    let (mut told, mut forks) = (Told::default(), Vec::new());
    while timeline.next_decision(&mut told)? {
        let number = told.answers.len();
        if at.contains(&number) {
            forks.push(Fork { number, timeline: timeline.clone(), story: told.clone() });
        }
        timeline.decide(&mut told)?;
    }
    told.story.counters = timeline.finish(Micros::MAX, &mut told)?;
    Ok((told, forks))
}

impl<I: Instance> Fork<I> {
    /// Runs to the end, with pauses at times without an event.
    fn go_on(mut self, pause: Micros) -> Result<Told, Halt> {
        let at = self.timeline.pending().expect("it was").at;
        self.timeline.catch_up(at, &mut self.story)?;
        for pauses in 1..4 {
            self.timeline.run_until(at.saturating_add(Micros(pauses * pause.0)), &mut self.story)?;
        }
        self.story.story.counters = self.timeline.finish(Micros::MAX, &mut self.story)?;
        Ok(self.story)
    }
}

/// The last decision about each request.
fn answers(told: &Told) -> Settled {
    let mut settled = Settled::default();
    for &(id, answer) in &told.answers {
        let fate = match answer {
            Force::Admit(false) => Fate::Rejected,
            Force::Admit(true) => Fate::Admitted,
            Force::Route(place) => Fate::Routed(place),
        };
        settled.insert(id, fate);
    }
    settled
}

fn check<I: Instance + Clone>(
    setup: &Setup,
    engine: impl Fn(InstanceConfig) -> I + Copy,
    requests: &[Request],
    at: &[usize],
    pause: Micros,
) {
    let Ok((original, forks)) = run(setup, engine, requests, at) else { return };
    let whole = tell(setup, engine, requests, Reads::NOTHING).expect("as before");
    assert_eq!((&original.story.outcomes, &original.story.itl), (&whole.outcomes, &whole.itl));
    assert_eq!(original.story.counters, whole.counters);
    for fork in forks {
        let mut forced = Fork { timeline: fork.timeline.clone(), story: fork.story.clone(), ..fork };
        let mut settled = Fork { timeline: fork.timeline.clone(), story: fork.story.clone(), ..fork };
        assert_eq!(fork.go_on(pause).as_ref(), Ok(&original), "a copy goes on differently");
        // None if only requests for models that are not served were still to come.
        if let Some(&(id, answer)) = original.answers.get(forced.number) {
            forced.timeline.force(id, answer);
        }
        // The reason of a rejection has no effect, and is not part of this log.
        assert_eq!(forced.go_on(pause).as_ref(), Ok(&original), "what was decided anyway was forced");
        settled.timeline.settle(Arc::new(answers(&original)));
        let told = settled.go_on(pause).expect("as before");
        assert_eq!(told.story, original.story, "what was decided anyway was settled");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, max_shrink_iters: 1000, ..ProptestConfig::default() })]

    #[test]
    fn a_copy_goes_on_as_the_original_does(
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
    fn what_is_forced_happens_and_nothing_before(
        setup in setup(),
        drafts in proptest::collection::vec(draft(), 1..50),
        at in 0usize..60,
        target in 0usize..6,
    ) {
        let requests = requests(&drafts, setup.config.block_size);
        let Ok((original, forks)) = run(&setup, Fast::new, &requests, &[at]) else { return Ok(()) };
        let Some(mut fork) = forks.into_iter().next() else { return Ok(()) };
        let Some(&(id, answer)) = original.answers.get(at) else { return Ok(()) };
        let other = match answer {
            Force::Admit(admitted) => Force::Admit(!admitted),
            Force::Route(_) => Force::Route((target % setup.instances.len()) as u32),
        };
        fork.timeline.force(id, other);
        let Ok(told) = fork.go_on(Micros(1_000)) else { return Ok(()) };
        prop_assert_eq!(&told.answers[..at], &original.answers[..at]);
        prop_assert_eq!(told.answers[at], (id, other));
        let outcome = &told.story.outcomes[&id];
        match other {
            Force::Admit(admit) => {
                let rejected = outcome.status == Status::Rejected(Rejection::Admission);
                prop_assert_eq!(rejected, !admit);
            }
            Force::Route(place) => prop_assert_eq!(outcome.instance, Some(place)),
        }
        // Both branches have an outcome for every request that arrived.
        prop_assert!(told.story.outcomes.keys().eq(original.story.outcomes.keys()));
    }

    #[test]
    fn whoever_is_served_next_is_at_the_head_and_nobody_gets_lost(
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
            fork.timeline.catch_up(now, &mut fork.story).ok()?;
            let instances = fork.timeline.instances();
            let (busiest, queue) = instances.iter().map(Instance::queue).enumerate().max_by_key(|(_, queue)| queue.len())?;
            let &id = queue.get(which % queue.len().max(1))?;
            assert!(fork.timeline.serve_next(busiest, id));
            assert_eq!(fork.timeline.instances()[busiest].queue()[0], id);
            assert!(!fork.timeline.serve_next(busiest, u32::MAX));
            let told = fork.go_on(Micros(1_000)).ok()?;
            Some((original, told))
        };
        let Some((original, told)) = serve(Fast::new) else { return Ok(()) };
        prop_assert!(told.story.outcomes.keys().eq(original.story.outcomes.keys()));
    }
}
