use blis_sim::outcome::{Outcome, Status};
use blis_sim::request::Span;
use proptest::prelude::*;

use super::super::{ThinkTime, TraceHeader, read};
use super::*;

const COLUMNS: &str = "request_id,client_id,tenant_id,slo_class,session_id,round_index,prefix_group,prefix_length,streaming,input_tokens,output_tokens,text_tokens,image_tokens,audio_tokens,video_tokens,reason_ratio,model,deadline_us,server_input_tokens,arrival_time_us,send_time_us,first_chunk_time_us,last_chunk_time_us,num_chunks,status,error_message,finish_reason,think_time_us";

#[derive(Clone, Copy)]
struct RoundRecord {
    session: &'static str,
    round: u32,
    arrival: u64,
    input: u32,
    think_time: u64,
    deadline: u64,
    prefix: u32,
}

const RECORD: RoundRecord =
    RoundRecord { session: "s", round: 0, arrival: 0, input: 100, think_time: 0, deadline: 0, prefix: 0 };

/// Every output has 28 tokens.
fn csv(records: &[RoundRecord]) -> String {
    let line = |(id, r): (usize, &RoundRecord)| {
        let RoundRecord { session, round, arrival, input, think_time, deadline, prefix } = r;
        let group = if *prefix > 0 { "g" } else { "" };
        format!(
            "{id},c,,,{session},{round},{group},{prefix},false,{input},28,0,0,0,0,0,,{deadline},0,{arrival},0,0,0,0,ok,,,{think_time}\n"
        )
    };
    format!("{COLUMNS}\n{}", records.iter().enumerate().map(line).collect::<String>())
}

const USUAL: ClosedLoop = ClosedLoop { think_time: None, seed: 1, timeout: None };

fn open(
    records: &[RoundRecord],
    how: ClosedLoop,
    growth: SessionGrowth,
    horizon: Micros,
) -> Result<Workload, TraceError> {
    let header = TraceHeader { session_context_growth: growth, ..TraceHeader::default() };
    let options = TraceOptions { closed_loop: Some(how), horizon, ..TraceOptions::default() };
    read(csv(records).as_bytes(), "t.csv", &header, &options)
}

/// All requests in the order of arrival, if each ends `takes` µs after it, in the way `ends`.
fn play(workload: Workload, takes: u64, ends: impl Fn(&Request) -> Status) -> (Vec<Request>, SessionStates) {
    let mut follow_ups = workload.follow_ups.expect("closed loop");
    let mut coming: Vec<Request> = workload.requests.collect();
    let mut all = Vec::new();
    while let Some(next) = (0..coming.len()).min_by_key(|&at| (coming[at].arrival, coming[at].id)) {
        let request = coming.remove(next);
        let status = ends(&request);
        let ended_at = request.arrival + Micros(takes);
        let generated_tokens = if status == Status::Completed { request.output_tokens } else { 0 };
        coming.extend(follow_ups.next(&Outcome { ended_at, generated_tokens, ..Outcome::new(&request, status) }));
        all.push(request);
    }
    (all, follow_ups.states())
}

fn completes(_: &Request) -> Status {
    Status::Completed
}

fn arrivals(requests: &[Request]) -> Vec<(u32, u64)> {
    requests.iter().map(|request| (request.id.0, request.arrival.0)).collect()
}

/// Two sessions that share nothing, and a request without session.
fn two() -> Vec<RoundRecord> {
    vec![
        RoundRecord { arrival: 100, ..RECORD },
        RoundRecord { session: "t", arrival: 150, ..RECORD },
        RoundRecord { round: 1, arrival: 1_100, ..RECORD },
        RoundRecord { session: "", round: 7, arrival: 160, ..RECORD },
        RoundRecord { session: "t", round: 1, arrival: 155, ..RECORD },
        RoundRecord { round: 2, arrival: 3_100, ..RECORD },
    ]
}

#[test]
fn rounds_follow_after_the_recorded_gap() {
    let workload = open(&two(), USUAL, SessionGrowth::None, Micros::MAX).unwrap();
    assert_eq!(workload.count, None);
    let (all, states) = play(workload, 10_000, completes);
    // 100 + 10000 + 1000, then + 10000 + 2000; 150 + 10000 + 5.
    assert_eq!(arrivals(&all), [(0, 100), (1, 150), (3, 160), (4, 10_155), (2, 11_100), (5, 23_100)]);
    assert_eq!(states, SessionStates { completed: 2, ..SessionStates::default() });
    assert!(all.iter().all(|request| (request.input_tokens, request.max_output_tokens) == (100, None)));
}

#[test]
fn think_times_come_from_the_flag_the_column_or_the_gaps() {
    let mut records = two();
    // It has no effect on a first round.
    records[0].think_time = 9;
    let of = |records: &[RoundRecord], think_time: Option<ThinkTime>| {
        let how = ClosedLoop { think_time, ..USUAL };
        let (all, _) = play(open(records, how, SessionGrowth::None, Micros::MAX).unwrap(), 10, completes);
        let time = |id: u32| all.iter().find(|request| request.id.0 == id).map_or(0, |request| request.arrival.0);
        [time(2) - time(0) - 10, time(5) - time(2) - 10, time(4) - time(1) - 10]
    };
    assert_eq!(of(&records, None), [1_000, 2_000, 5]);
    records[5].think_time = 77;
    assert_eq!(of(&records, None), [0, 77, 0], "one value is enough for 0 to mean 0");
    assert_eq!(of(&records, Some(ThinkTime::Constant(Micros(33)))), [33; 3]);
}

#[test]
fn sessions_end_in_one_of_five_ways() {
    let one = [RECORD, RoundRecord { round: 1, arrival: 50, ..RECORD }];
    let ends = |horizon: u64, status: Status| {
        let workload = open(&one, USUAL, SessionGrowth::None, Micros(horizon)).unwrap();
        let (all, states) = play(workload, 100, |request| if request.id.0 == 1 { Status::Completed } else { status });
        (all.len(), states)
    };
    let none = SessionStates::default();
    assert_eq!(ends(1_000, Status::Completed), (2, SessionStates { completed: 1, ..none }));
    assert_eq!(ends(150, Status::LengthCapped).0, 2, "the horizon itself is simulated");
    assert_eq!(ends(149, Status::Completed), (1, SessionStates { horizon_interrupted: 1, ..none }));
    for status in [Status::TimedOut, Status::Dropped(blis_sim::outcome::DropReason::KvTooSmall)] {
        assert_eq!(ends(1_000, status), (1, SessionStates { cancelled: 1, ..none }));
    }
    let mut workload = open(&one, USUAL, SessionGrowth::None, Micros::MAX).unwrap();
    let states = |workload: &Workload| workload.follow_ups.as_ref().expect("closed loop").states();
    assert_eq!(states(&workload), none, "it has not begun");
    assert_eq!(workload.requests.next().map(|request| request.id.0), Some(0));
    assert_eq!(states(&workload), SessionStates { active: 1, ..none });
}

#[test]
fn deadlines_keep_their_distance() {
    let records = [
        RoundRecord { arrival: 10, deadline: 60, ..RECORD },
        RoundRecord { round: 1, arrival: 100, deadline: 500, ..RECORD },
        RoundRecord { round: 2, arrival: 1_000, ..RECORD },
    ];
    for timeout in [None, Some(Micros(7))] {
        let how = ClosedLoop { timeout, ..USUAL };
        let (all, _) = play(open(&records, how, SessionGrowth::None, Micros::MAX).unwrap(), 100, completes);
        let waits: Vec<_> = all.iter().map(|request| request.deadline.map(|at| at.0 - request.arrival.0)).collect();
        assert_eq!(waits, [Some(50), Some(400), timeout.map(|timeout| timeout.0)]);
    }
}

#[test]
fn prompts_grow_where_the_header_says_so() {
    let records = [
        RoundRecord { prefix: 40, input: 60, ..RECORD },
        RoundRecord { session: "other", prefix: 40, ..RECORD },
        RoundRecord { round: 1, prefix: 40, input: 50, ..RECORD },
        RoundRecord { round: 2, prefix: 40, input: 20, ..RECORD },
    ];
    let of = |growth| {
        let (all, _) = play(open(&records, USUAL, growth, Micros::MAX).unwrap(), 100, completes);
        let rounds = all.into_iter().filter(|request| request.id.0 != 1);
        rounds.map(|request| (request.input_tokens, request.content)).collect::<Vec<_>>()
    };
    // Two blocks of the prefix are shared with the other session.
    let alone = of(SessionGrowth::None);
    assert_eq!(alone.iter().map(|(tokens, _)| *tokens).collect::<Vec<_>>(), [100, 90, 60]);
    assert!(alone.iter().all(|(_, content)| content.spans() == [Span { first: 0, len: 2 }]));
    // 40 + 60 + 28 = 128 tokens are 8 blocks; 128 + 50 + 28 = 206 are 12, and the last round adds none.
    let grown = of(SessionGrowth::Accumulate);
    let expected = [(100, 8), (178, 12), (226, 12)];
    assert_eq!(grown.iter().map(|(tokens, content)| (*tokens, content.shared_blocks())).collect::<Vec<_>>(), expected);
    let keys: Vec<Vec<u32>> = grown.iter().map(|(_, content)| content.keys().collect()).collect();
    assert_eq!((&keys[1][..8], &keys[2]), (&keys[0][..], &keys[1]));
    assert_eq!(keys[1], (0..12).collect::<Vec<_>>());
}

/// The next prompt contains the output that was generated, not the recorded one.
#[test]
fn a_short_output_makes_a_short_context() {
    let records = [RECORD, RoundRecord { round: 1, ..RECORD }];
    let workload = open(&records, USUAL, SessionGrowth::Accumulate, Micros::MAX).unwrap();
    let (mut requests, mut follow_ups) = (workload.requests, workload.follow_ups.expect("closed loop"));
    let first = requests.next().expect("the first round");
    assert_eq!((first.input_tokens, first.content.shared_blocks()), (100, 8));
    let ended = Outcome { generated_tokens: 27, ..Outcome::new(&first, Status::LengthCapped) };
    let second = follow_ups.next(&ended).expect("the second round");
    // 127 tokens are 7 full blocks: the eighth now has another last token.
    assert_eq!((second.input_tokens, second.content.shared_blocks()), (227, 7));
}

#[test]
fn rounds_must_count_from_0() {
    let message = |rounds: &[u32]| {
        let records: Vec<RoundRecord> = rounds.iter().map(|&round| RoundRecord { round, ..RECORD }).collect();
        open(&records, USUAL, SessionGrowth::None, Micros::MAX).unwrap_err()
    };
    insta::assert_snapshot!(message(&[1, 2]), @r"
    t.csv: round 0 of session `s` is not there
    hint: in closed loop the rounds of a session count 0, 1, 2, …; with `--session-mode fixed` each arrives as recorded
    ");
    assert!(message(&[3, 0, 1]).to_string().starts_with("t.csv: round 2 of session `s` is not there"));
    assert!(message(&[1, 0, 1]).to_string().starts_with("t.csv: round 1 of session `s` is twice there"));
    let fixed = read(
        csv(&[RoundRecord { round: 4, ..RECORD }]).as_bytes(),
        "t.csv",
        &TraceHeader::default(),
        &TraceOptions::default(),
    );
    assert_eq!(fixed.unwrap().requests.count(), 1, "as recorded, any round will do");
}

#[test]
fn a_think_time_is_read_even_if_it_is_not_used() {
    let text = csv(&[RECORD]).replace(",ok,,,0", ",ok,,,-3");
    let message = read(text.as_bytes(), "t.csv", &TraceHeader::default(), &TraceOptions::default()).unwrap_err();
    assert!(message.to_string().starts_with("t.csv:2: `think_time_us` is negative: `-3`"), "{message}");
}

proptest! {
    /// Drawn think times lie within their bounds, and those of one session do not depend on others.
    #[test]
    fn drawn_think_times_are_those_of_their_round(
        seed: u64, mu in -2.0..6.0, sigma in 0.0..3.0, min in 0_u64..5_000_000, more in 0_u64..50_000_000, takes in 0_u64..9_000
    ) {
        let think_time = ThinkTime::LogNormal { mu, sigma, min: Micros(min), max: Micros(min + more) };
        let how = ClosedLoop { think_time: Some(think_time), seed, timeout: None };
        let times = |takes: u64, horizon: Micros| {
            let workload = open(&two(), how.clone(), SessionGrowth::None, horizon).unwrap();
            let (all, _) = play(workload, takes, completes);
            let time = |id: u32| all.iter().find(|request| request.id.0 == id).map_or(0, |request| request.arrival.0);
            [time(2) - time(0) - takes, time(5) - time(2) - takes, time(4) - time(1) - takes]
        };
        let drawn = times(takes, Micros::MAX);
        prop_assert!(drawn.iter().all(|time| (min..=min + more).contains(time)), "{:?}", drawn);
        prop_assert_eq!(drawn, times(3 * takes + 1, Micros::MAX));
    }

    /// In any course of events, every open or ended session is in one state, and no round arrives early.
    #[test]
    fn sessions_are_complete_and_causal(
        rounds in proptest::collection::vec(1_u32..5, 1..8), outcomes in proptest::collection::vec(0_u8..8, 40),
        takes in 1_u64..500, think in 0_u64..300, horizon in 50_u64..3_000, grows: bool
    ) {
        const NAMES: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];
        let mut records = Vec::new();
        for (session, &rounds) in rounds.iter().enumerate() {
            let arrival = 40 * session as u64;
            records.extend((0..rounds).map(|round| RoundRecord { session: NAMES[session], round, arrival, ..RECORD }));
        }
        let how = ClosedLoop { think_time: Some(ThinkTime::Constant(Micros(think))), ..USUAL };
        let growth = if grows { SessionGrowth::Accumulate } else { SessionGrowth::None };
        let workload = open(&records, how, growth, Micros(horizon)).unwrap();
        let times_out = |request: &Request| outcomes[request.id.index()] == 0;
        let outcome = |request: &Request| if times_out(request) { Status::TimedOut } else { Status::Completed };
        let (all, states) = play(workload, takes, outcome);
        let begun = all.iter().filter(|request| request.tags.round_index == 0).count() as u64;
        prop_assert_eq!((states.sessions(), states.active), (begun, 0));
        let failed = all.iter().filter(|request| outcome(request) == Status::TimedOut).count() as u64;
        prop_assert_eq!(states.cancelled, failed);
        for later in all.iter().filter(|request| request.tags.round_index > 0) {
            let before = all.iter().find(|other| other.tags.session == later.tags.session
                && other.tags.round_index + 1 == later.tags.round_index).expect("the round before");
            prop_assert_eq!(later.arrival, before.arrival + Micros(takes + think));
            prop_assert!(later.arrival.0 <= horizon && outcome(before) == Status::Completed);
            if grows {
                prop_assert_eq!(later.input_tokens, before.input_tokens + 28 + 100);
                let shared = before.content.keys().zip(later.content.keys()).filter(|(a, b)| a == b).count() as u32;
                prop_assert_eq!(shared, (before.input_tokens + 28) / 16);
            }
        }
    }
}
