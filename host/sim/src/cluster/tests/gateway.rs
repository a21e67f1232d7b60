//! Flow control over random clusters: skipped ticks change nothing, and what the queue promises holds in every cycle.

use std::collections::BTreeSet;

use super::*;
use crate::policy::flow::{Band, CeilingsPolicy};

/// A policy that is called at every tick.
#[derive(Debug)]
struct EveryTick(Box<dyn CeilingsPolicy>);

impl CeilingsPolicy for EveryTick {
    fn ceilings(&mut self, now: Micros, saturation: f64, bands: &[Band], ceilings: &mut Vec<f64>) {
        self.0.ceilings(now, saturation, bands, ceilings);
    }

    fn fork(&self) -> Box<dyn CeilingsPolicy> {
        Box::new(Self(self.0.fork()))
    }
}

/// A choice of the gateway without borrowed state, for the checks below.
#[derive(Clone, Debug)]
struct LoggedChoice {
    now: Micros,
    request: RequestId,
    saturation: Option<f64>,
    bands: Vec<Band>,
    ceilings: Vec<f64>,
    what: LoggedKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LoggedKind {
    Refused,
    Displaced,
    Dispatched { band: i32, waited: Micros },
    Evicted { demand: i32 },
    Expired,
    TimedOut,
}

#[derive(Debug, Default)]
struct ChoiceLog {
    choices: Vec<LoggedChoice>,
    /// The time of each admission.
    admitted: BTreeMap<RequestId, Micros>,
    ended: BTreeMap<RequestId, Outcome>,
}

impl Observer for ChoiceLog {
    fn interests(&self) -> Interests {
        Interests::DECISIONS | Interests::OUTCOMES
    }

    fn record(&mut self, event: &SimEvent<'_>) {
        match *event {
            SimEvent::Decision(Decision::Admission { request, cluster, decision, .. })
                if **decision == AdmissionDecision::Admit =>
            {
                self.admitted.insert(request.id, cluster.now);
            }
            SimEvent::Decision(Decision::Gateway(decision)) => {
                let GatewayDecision { now, request, saturation, bands, ceilings, choice } = *decision;
                let what = match choice {
                    GatewayChoice::Refused => LoggedKind::Refused,
                    GatewayChoice::Displaced { .. } => LoggedKind::Displaced,
                    GatewayChoice::Dispatched { band, flows, waited } => {
                        assert!(flows.iter().any(|flow| flow.head_id == request.0), "it was the head of a flow");
                        LoggedKind::Dispatched { band, waited }
                    }
                    GatewayChoice::Evicted { demand, candidates, .. } => {
                        assert!(candidates.iter().any(|one| one.id == request.0 && one.priority < demand));
                        LoggedKind::Evicted { demand }
                    }
                    GatewayChoice::Expired => LoggedKind::Expired,
                    GatewayChoice::TimedOut => LoggedKind::TimedOut,
                };
                let (bands, ceilings) = (bands.to_vec(), ceilings.to_vec());
                self.choices.push(LoggedChoice { now, request, saturation, bands, ceilings, what });
            }
            SimEvent::Outcome(outcome) => {
                self.ended.insert(outcome.id, *outcome);
            }
            _ => {}
        }
    }
}

impl ChoiceLog {
    /// Requests are dispatched below the ceiling of their band and of all above it, and evicted at or above one.
    fn assert_below_ceilings(&self) {
        for LoggedChoice { saturation, bands, ceilings, what, .. } in &self.choices {
            let full = saturation.unwrap_or(0.0);
            let closed = |band: &i32| bands.iter().zip(ceilings).any(|(one, &c)| one.priority >= *band && full >= c);
            match what {
                LoggedKind::Dispatched { band, .. } => assert!(!closed(band), "{bands:?} {ceilings:?} at {full}"),
                LoggedKind::Evicted { demand } => assert!(closed(demand), "{bands:?} {ceilings:?} at {full}"),
                _ => {}
            }
        }
    }

    /// No more than one request is dispatched in a cycle: of those at one moment, one by the tick, and one by each request
    /// that was admitted then.
    fn assert_one_for_each_cycle(&self) {
        let mut at: BTreeMap<Micros, u32> = BTreeMap::new();
        let dispatched = |choice: &&LoggedChoice| matches!(choice.what, LoggedKind::Dispatched { .. });
        self.choices.iter().filter(dispatched).for_each(|choice| *at.entry(choice.now).or_default() += 1);
        for (now, dispatches) in at {
            let enqueued = self.admitted.values().filter(|&&admitted| admitted == now).count();
            assert!(dispatches as usize <= enqueued + 1, "{dispatches} at {now:?}, {enqueued} enqueued");
        }
    }

    /// Requests expire at the first sweep after their time to live, and no request is dispatched later than that.
    fn assert_expire(&self, FlowSettings { ttl, sweep, .. }: &FlowSettings) {
        for LoggedChoice { now, request, what, .. } in &self.choices {
            let Some(ttl) = *ttl else { return assert!(*what != LoggedKind::Expired) };
            let expires = self.admitted[request] + ttl;
            let swept = if sweep.0 == 0 { expires.0 } else { expires.0.next_multiple_of(sweep.0) };
            match what {
                LoggedKind::Expired => assert_eq!(now.0, swept, "{request}"),
                LoggedKind::Dispatched { .. } => assert!(now.0 <= swept, "{request}"),
                _ => {}
            }
        }
    }

    /// The queue and its bands hold no more than they may, and requests are refused only if they are full.
    fn assert_limits(&self, FlowSettings { max_requests, band_requests, .. }: &FlowSettings) {
        let limit = |limit: &Option<u32>| limit.unwrap_or(u32::MAX);
        for LoggedChoice { bands, what, .. } in &self.choices {
            let queued: u32 = bands.iter().map(|band| band.queued).sum();
            assert!(queued <= limit(max_requests) && bands.iter().all(|band| band.queued <= limit(band_requests)));
            if *what == LoggedKind::Refused {
                let band_is_full = bands.iter().any(|band| band.queued == limit(band_requests));
                assert!(band_is_full || queued == limit(max_requests), "refused with room: {bands:?}");
            }
        }
    }

    /// Between two moments of evictions there is the grace, and at each of them no more than may be.
    fn assert_paced(&self, FlowSettings { eviction_grace, evictions_at_once, .. }: &FlowSettings) {
        let evicted = |choice: &&LoggedChoice| matches!(choice.what, LoggedKind::Evicted { .. });
        let mut moments: Vec<(Micros, u32)> = Vec::new();
        for LoggedChoice { now, .. } in self.choices.iter().filter(evicted) {
            match moments.last_mut() {
                Some((at, count)) if at == now && eviction_grace.0 > 0 => *count += 1,
                _ => moments.push((*now, 1)),
            }
        }
        for pair in moments.windows(2) {
            assert!(pair[1].0 >= pair[0].0 + *eviction_grace, "{moments:?}");
        }
        assert!(moments.iter().all(|&(_, count)| count <= *evictions_at_once), "{moments:?}");
    }

    /// Every admitted request leaves the queue once, or is in it at the end.
    fn assert_nothing_lost(&self) {
        let mut left: BTreeMap<RequestId, LoggedKind> = BTreeMap::new();
        for LoggedChoice { request, what, .. } in &self.choices {
            if !matches!(what, LoggedKind::Evicted { .. }) {
                assert_eq!(left.insert(*request, *what), None, "request {request} left the queue twice");
            }
        }
        for id in self.admitted.keys() {
            let status = self.ended[id].status;
            match left.get(id) {
                None => assert_eq!(status, Status::InGateway, "{id}"),
                Some(LoggedKind::Refused) => assert_eq!(status, Status::Rejected(Rejection::GatewayFull)),
                Some(LoggedKind::Displaced) => assert_eq!(status, Status::Rejected(Rejection::GatewayDisplaced)),
                Some(LoggedKind::Expired) => assert_eq!(status, Status::Rejected(Rejection::GatewayExpired)),
                Some(LoggedKind::TimedOut) => assert_eq!(status, Status::TimedOut),
                Some(LoggedKind::Dispatched { waited, .. }) => {
                    assert!(!matches!(status, Status::InGateway), "{id} {status:?}");
                    let first = self.ended[id].ttft.unwrap_or(Micros::MAX);
                    assert!(first > *waited, "the wait is part of TTFT");
                }
                Some(LoggedKind::Evicted { .. }) => unreachable!("they were left out"),
            }
        }
    }
}

pub(super) fn with_flow() -> impl Strategy<Value = ClusterSetup> {
    (setup(), flow().prop_filter_map("no flow control", |flow| flow))
        .prop_map(|(setup, flow)| ClusterSetup { flow: Some(flow), ..setup })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, max_shrink_iters: 1000, ..ProptestConfig::default() })]

    #[test]
    fn skipped_ticks_change_nothing(
        setup in with_flow(),
        drafts in proptest::collection::vec(draft(), 1..50),
        horizon in prop_oneof![3 => Just(Micros::MAX), 1 => (1_000u64..900_000).prop_map(Micros)],
    ) {
        let mut setup = setup;
        setup.config.horizon = horizon;
        let requests = requests(&drafts, setup.config.block_size);
        let mut every_tick = setup.clone();
        every_tick.flow = setup.flow.clone().map(|flow| {
            let ceilings = Box::new(EveryTick(flow.ceilings.fork()));
            FlowControl { ceilings, ..flow }
        });
        let [lazy, eager] = [&setup, &every_tick].map(|setup| simulate(setup, Fast::new, &requests, Reads::NOTHING));
        prop_assert_eq!(&lazy, &eager);
        prop_assert_eq!(&simulate(&setup, Plain::new, &requests, Reads::NOTHING), &lazy);
    }

    #[test]
    fn the_queue_keeps_its_promises(
        setup in with_flow(),
        drafts in proptest::collection::vec(draft(), 1..80),
        horizon in prop_oneof![3 => Just(Micros::MAX), 1 => (1_000u64..900_000).prop_map(Micros)],
    ) {
        let mut setup = setup;
        setup.config.horizon = horizon;
        let requests = requests(&drafts, setup.config.block_size);
        let mut log = ChoiceLog::default();
        let run = setup.cluster(Fast::new).run_sessions(requests.iter().cloned(), None, &mut log);
        prop_assume!(run.is_ok());
        let settings = &setup.flow.as_ref().expect("it has flow control").settings;
        log.assert_below_ceilings();
        log.assert_one_for_each_cycle();
        log.assert_expire(settings);
        log.assert_limits(settings);
        log.assert_paced(settings);
        log.assert_nothing_lost();
    }
}

#[test]
fn the_random_runs_show_every_choice() {
    use proptest::strategy::ValueTree as _;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let (mut kinds, mut closed) = (BTreeSet::new(), false);
    for _ in 0..200 {
        let setup = with_flow().new_tree(&mut runner).expect("a setup").current();
        let drafts = proptest::collection::vec(draft(), 40..80).new_tree(&mut runner).expect("drafts").current();
        let mut log = ChoiceLog::default();
        let _ = setup.cluster(Fast::new).run(requests(&drafts, setup.config.block_size), &mut log);
        closed |= log.choices.iter().any(|choice| choice.ceilings.contains(&0.0));
        kinds.extend(log.choices.iter().map(|choice| match choice.what {
            LoggedKind::Refused => "refused",
            LoggedKind::Displaced => "displaced",
            LoggedKind::Dispatched { .. } => "dispatched",
            LoggedKind::Evicted { .. } => "evicted",
            LoggedKind::Expired => "expired",
            LoggedKind::TimedOut => "timed out",
        }));
    }
    let all = ["dispatched", "displaced", "evicted", "expired", "refused", "timed out"];
    assert_eq!((kinds.into_iter().collect::<Vec<_>>(), closed), (all.to_vec(), true));
}
