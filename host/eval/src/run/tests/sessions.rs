//! Simulations of closed loops.

use std::num::NonZeroU32;

use blis_sim::outcome::Outcome;
use blis_sim::request::Request;
use proptest::prelude::*;

use super::super::*;
use super::{config, deployment};
use blis_workload::spec::{Client, ClientLoad, GenerateOptions, Lengths, MultiTurn, Prefix, Spec};

/// Requests that arrived and outcomes, in the order of events.
#[derive(Debug, Default)]
struct RecordedRun {
    arrived: Vec<Request>,
    ended: Vec<Outcome>,
}

impl Observer for RecordedRun {
    fn interests(&self) -> Interests {
        Interests::ARRIVALS | Interests::OUTCOMES
    }

    fn record(&mut self, event: &SimEvent<'_>) {
        match *event {
            SimEvent::Arrival(request) => self.arrived.push(request.clone()),
            SimEvent::Outcome(outcome) => self.ended.push(*outcome),
            _ => {}
        }
    }
}

const THINK: Micros = Micros(50_000);

/// Sessions of three rounds with growing prompts, and users; with a timeout some requests time out.
fn spec(users: u32, rate: f64, timeout_ms: Option<u64>) -> Spec {
    let lengths = |mean: f64| Lengths::exponential(mean);
    let chat = Client {
        prefix: Some(Prefix { group: "system".into(), tokens: 40 }),
        multi_turn: Some(MultiTurn { max_rounds: 3, think_time: THINK, accumulate: true, single_session: false }),
        closed_loop: true,
        ..Client::new("chat", 1.0, lengths(100.0), lengths(10.0))
    };
    let users = Client {
        load: ClientLoad::Users { count: users, think_time: THINK },
        ..Client::new("users", 1.0, lengths(60.0), lengths(6.0))
    };
    let timeout = timeout_ms
        .map_or(blis_workload::spec::Timeout::Never, |ms| blis_workload::spec::Timeout::After(Micros(ms * 1_000)));
    let clients = [chat, users].map(|client| Client { timeout, ..client }).to_vec();
    Spec { aggregate_rate: rate, clients, ..Spec::default() }
}

fn simulated(config: &Experiment, workload: Workload) -> (Report, RecordedRun) {
    let Workload { requests, follow_ups, names, .. } = workload;
    let deployment = deployment(400, None);
    let named = NamedWorkload { names: &names, slo_targets: &BTreeMap::new() };
    let measured = measure(config, &deployment, named, requests, follow_ups, RecordedRun::default());
    let Measurement { report, observer, .. } = measured.unwrap_or_else(|failure| panic!("{failure}"));
    (report, observer)
}

fn by_id(mut outcomes: Vec<Outcome>) -> Vec<Outcome> {
    outcomes.sort_by_key(|outcome| outcome.id);
    outcomes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// INV-10 and INV-11, and: the requests of a closed loop, replayed as an open loop, have the same outcomes.
    #[test]
    fn closed_loops_are_causal_complete_and_equal_their_own_replay(
        (users, rate, seed) in (1_u32..12, 2.0..40.0, 0_u64..1_000),
        timeout_ms in proptest::option::of(20_u64..2_000), horizon_ms in 300_u64..6_000, instances in 1_u32..4,
        blis: bool, plain: bool,
    ) {
        let flags = format!(
            "--num-instances {instances} --routing-policy least-loaded --snapshot-refresh-interval 7000 --parity {} \
             --simulation {} --horizon {horizon_ms}000 --max-num-seqs 4",
            if blis { "blis" } else { "vllm" }, if plain { "plain" } else { "fast" },
        );
        let config = config(&flags);
        let options = GenerateOptions {
            seed,
            block_size: NonZeroU32::new(16).expect("16 > 0"),
            horizon: config.horizon,
            num_requests: Some(150),
            timeout: None,
            as_in_blis: false,
        };
        let spec = spec(users, rate, timeout_ms);
        let (report, recorded) = simulated(&config, spec.generate(&options).expect("it ends"));
        prop_assert_eq!(recorded.arrived.len(), recorded.ended.len());
        let sessions = report.sessions.expect("sessions");
        let states = sessions.states.expect("closed loops");

        // INV-11: every session is in one state, and sessions with an uncompleted request are cancelled or active.
        prop_assert_eq!(sessions.sessions, states.sessions());
        let failed = |outcome: &&Outcome| {
            matches!(outcome.status, Status::TimedOut | Status::Dropped(_) | Status::Rejected(_))
        };
        prop_assert_eq!(states.cancelled, recorded.ended.iter().filter(failed).count() as u64);
        let unended =
            |outcome: &&Outcome| matches!(outcome.status, Status::Queued | Status::Running | Status::Arriving | Status::InGateway);
        prop_assert!(states.active >= recorded.ended.iter().filter(unended).count() as u64);

        // INV-10: a round arrives a think time after the output of the round before, and only if that one completed.
        for later in recorded.ended.iter().filter(|outcome| outcome.tags.round_index > 0) {
            let before = recorded.ended.iter().find(|other| {
                (other.tags.session, other.tags.round_index + 1) == (later.tags.session, later.tags.round_index)
            }).expect("the round before");
            prop_assert!(before.completed());
            let received = if blis { before.ended_at } else { before.arrival + before.e2e.expect("completed") };
            prop_assert_eq!(later.arrival, received.max(before.ended_at) + THINK);
        }

        let mut arrived = recorded.arrived;
        arrived.sort_by_key(|request| request.arrival);
        let names = spec.generate(&options).expect("it ends").names;
        let (again, open) = simulated(&config, Workload { names, ..super::workload(arrived) });
        prop_assert_eq!(by_id(recorded.ended), by_id(open.ended));
        let open_loop = again.sessions.map(|sessions| blis_sim::metrics::SessionReport { states: Some(states), ..sessions });
        prop_assert_eq!(open_loop, Some(sessions));
    }
}

/// A conversation keeps all output tokens; BLIS drops the last one.
#[test]
fn blis_drops_the_last_output_token() {
    let grown = |parity: &str| {
        let config = config(&format!("--parity {parity}"));
        let options = GenerateOptions {
            seed: 1,
            block_size: NonZeroU32::new(16).expect("16 > 0"),
            horizon: Micros::MAX,
            num_requests: Some(3),
            timeout: None,
            as_in_blis: false,
        };
        let mut spec = spec(1, 1.0, None);
        spec.clients.truncate(1);
        let (_, recorded) = simulated(&config, spec.generate(&options).expect("it ends"));
        let rounds: Vec<&Request> = recorded
            .arrived
            .iter()
            .filter(|request| request.tags.session == recorded.arrived[0].tags.session)
            .collect();
        rounds
            .windows(2)
            .map(|pair| pair[1].input_tokens - pair[0].input_tokens - pair[0].output_tokens)
            .collect::<Vec<_>>()
    };
    let (whole, cut) = (grown("vllm"), grown("blis"));
    assert!(!whole.is_empty());
    assert_eq!(cut, whole.iter().map(|new| new - 1).collect::<Vec<_>>());
}
