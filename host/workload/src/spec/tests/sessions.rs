//! Sessions: rounds in open loop, follow-ups in closed loop, and the KV blocks they share.

use super::super::numbers::{Budgets, RequestNumbers};
use super::super::session::SessionState;
use super::*;
use crate::closed_loop::SessionSource as _;

fn chat(accumulate: bool, closed_loop: bool) -> Client {
    let turns = MultiTurn { max_rounds: 3, think_time: secs(2), accumulate, single_session: false };
    Client {
        multi_turn: Some(turns),
        closed_loop,
        arrival: Arrival::Constant,
        prefix: Some(Prefix { group: "system".into(), tokens: 40 }),
        ..client("chat", 1.0)
    }
}

/// (arrival s, round, input tokens, keys of the shareable blocks)
fn rounds(requests: &[Request]) -> Vec<(f64, u32, u32, Vec<u32>)> {
    let one = |r: &Request| (r.arrival.as_secs_f64(), r.tags.round_index, r.input_tokens, r.content.keys().collect());
    requests.iter().map(one).collect()
}

#[test]
fn rounds_follow_after_think_time_and_output() {
    let (requests, names) = requests(&Spec { horizon: Some(secs(11)), ..spec(0.1, vec![chat(true, false)]) });
    let message = rounds(&requests);
    // 40 tokens of the prefix, then 100 + 10 per round. The output may differ from the recorded one that follows.
    assert_eq!(message, [(10.0, 0, 140, (0..8).collect::<Vec<_>>())][..message.len()]);
    let (requests, _) = self::requests(&Spec { horizon: Some(secs(19)), ..spec(0.1, vec![chat(true, false)]) });
    let message = rounds(&requests);
    assert_eq!(message.iter().map(|t| (t.1, t.2)).collect::<Vec<_>>(), [(0, 140), (1, 250), (2, 360)]);
    assert_eq!(message[1].0, 12.0, "10 s + 2 s, whatever the output is");
    // 140 / 16 = 8 full blocks, then 250 / 16 = 15, and 260 / 16 = 16 before the last prompt, which nothing follows.
    assert_eq!(message.iter().map(|t| t.3.len()).collect::<Vec<_>>(), [8, 15, 16]);
    assert_eq!((&message[1].3[..8], &message[2].3[..15]), (&message[0].3[..], &message[1].3[..]));
    let sessions: Vec<_> = requests.iter().map(|r| session(&r.tags, &names)).collect();
    assert_eq!(sessions, ["sess_0", "sess_0", "sess_0"]);
}

/// In BLIS a round of an open session contains the output before it, which may still be generated, and waits for it.
#[test]
fn in_blis_open_sessions_show_their_outputs() {
    let spec = Spec { horizon: Some(secs(19)), ..spec(0.1, vec![chat(true, false)]) };
    let options = GenerateOptions { horizon: secs(19), as_in_blis: true, ..options() };
    let requests: Vec<Request> = spec.generate(&options).unwrap().requests.collect();
    let message = rounds(&requests);
    assert_eq!(message.iter().map(|t| (t.1, t.2)).collect::<Vec<_>>(), [(0, 140), (1, 250), (2, 360)]);
    assert_eq!(message[1].0, 12.000_01, "10 s + 2 s + 10 µs");
    // (40 + 110) / 16 = 9 full blocks, then 260 / 16 = 16. Nothing follows the last round.
    assert_eq!(message.iter().map(|t| t.3.len()).collect::<Vec<_>>(), [9, 16, 16]);
    assert_eq!((&message[1].3[..9], &message[2].3), (&message[0].3[..], &message[1].3));
    assert!(requests.iter().all(|request| request.max_output_tokens == Some(request.output_tokens)));
}

fn session(tags: &blis_sim::request::Tags, names: &Names) -> String {
    blis_sim::request::session_text(names.texts(), tags.session).into_owned()
}

#[test]
fn without_growth_rounds_share_the_prefix_only() {
    let (requests, _) = requests(&Spec { horizon: Some(secs(19)), ..spec(0.1, vec![chat(false, false)]) });
    assert_eq!(rounds(&requests).iter().map(|t| (t.2, t.3.clone())).collect::<Vec<_>>(), vec![(140, vec![0, 1]); 3]);
}

/// Keys are allocated when they are needed, and two sessions share the prefix only.
#[test]
fn sessions_share_nothing_but_the_prefix() {
    let (requests, _) = requests(&Spec { num_requests: Some(3000), ..spec(10.0, vec![chat(true, false)]) });
    let mut owner: BTreeMap<u32, (u32, usize)> = BTreeMap::new();
    for request in &requests {
        for (position, key) in request.content.keys().enumerate().skip(2) {
            let first = *owner.entry(key).or_insert((request.tags.session.0, position));
            assert_eq!(first, (request.tags.session.0, position), "key {key}");
        }
    }
    let most = owner.keys().max().copied().unwrap();
    // 0 and 1 are those of the prefix. Those of outputs before rounds that are not among the 3 000 requests are missing.
    let missing = most - 1 - owner.len() as u32;
    assert!(missing < 100, "{missing} keys are left out");
}

#[test]
fn a_single_session_starts_once() {
    let mut one = chat(true, false);
    one.multi_turn.as_mut().unwrap().single_session = true;
    one.windows = vec![Window::usual(secs(5), secs(100))];
    let (requests, _) = requests(&spec(0.25, vec![one.clone()]));
    assert_eq!(rounds(&requests).iter().map(|t| t.1).collect::<Vec<_>>(), [0, 1, 2]);
    let always = Client { windows: Vec::new(), ..one };
    assert_eq!(self::requests(&spec(0.25, vec![always])).0.len(), 3, "it ends by itself");
}

fn follow(client: Client, num_requests: u64, horizon: Micros) -> (Requests, Vec<Request>) {
    let options = GenerateOptions { num_requests: Some(num_requests), horizon, ..options() };
    let (mut requests, _) = spec(0.1, vec![client]).requests(&options).unwrap();
    let first = requests.by_ref().take(1).map(|drawn| drawn.request).collect();
    (requests, first)
}

fn completed(at: Micros, generated_tokens: u32) -> RequestEnd {
    RequestEnd { at, generated_tokens, status: EndStatus::Completed }
}

#[test]
fn a_round_follows_when_the_one_before_has_ended() {
    let (mut requests, first) = follow(chat(true, true), 100, Micros::MAX);
    let name = first[0].tags.session;
    assert_eq!((first[0].deadline, requests.waiting()), (Some(first[0].arrival + secs(300)), 1));
    // The output ended at 4 of 10 tokens: 144 tokens are known, 9 blocks.
    let second = requests.ended(name, completed(secs(20), 4)).unwrap();
    assert_eq!((second.arrival, second.input_tokens, second.tags.round_index, second.id.0), (secs(22), 244, 1, 1));
    let shared = |a: &Request, b: &Request| a.content.keys().zip(b.content.keys()).take_while(|(a, b)| a == b).count();
    assert_eq!(shared(&first[0], &second), 9);
    let third = requests.ended(name, completed(secs(30), 10)).unwrap();
    assert_eq!((third.input_tokens, shared(&second, &third)), (354, 254 / 16));
    assert_eq!(requests.ended(name, completed(secs(40), 10)), None, "three rounds");
    assert_eq!((requests.waiting(), requests.ended(name, completed(secs(41), 10))), (0, None));
}

#[test]
fn sessions_end_early_for_four_reasons() {
    let states = [
        (100, Micros::MAX, EndStatus::Failed, SessionState::Cancelled),
        (1, Micros::MAX, EndStatus::Completed, SessionState::BudgetExhausted),
        (100, secs(21), EndStatus::Completed, SessionState::HorizonInterrupted),
        (100, Micros::MAX, EndStatus::Completed, SessionState::Active),
    ];
    for (num_requests, horizon, status, expected) in states {
        let options = GenerateOptions { num_requests: Some(num_requests), horizon, ..options() };
        let expanded = expand::expand(&spec(0.1, vec![chat(true, true)]), &options).unwrap();
        let plan = std::sync::Arc::new(expanded.plans.into_iter().next().unwrap());
        let start = drawn::SenderStart {
            at: secs(10),
            number: 0,
            segment: 0,
            session: blis_sim::request::Name(9),
            rounds: Some(3),
        };
        let follow_ups = Budgets::new(Some(num_requests - 1), std::iter::empty());
        let mut numbers = RequestNumbers::new(&options, follow_ups, expanded.first_key, blis_sim::request::Name(5));
        let (mut session, _) = session::Session::begin(&plan, start, &mut numbers);
        let next = session.next_round(RequestEnd { at: secs(20), generated_tokens: 10, status }, &mut numbers);
        assert_eq!((session.state(), next.is_some()), (expected, expected == SessionState::Active));
    }
}

#[test]
fn rounds_of_closed_loops_count_among_the_requests_asked_for() {
    let options = GenerateOptions { num_requests: Some(20), ..options() };
    let (mut requests, _) = spec(1.0, vec![chat(true, true)]).requests(&options).unwrap();
    let (mut made, mut turn) = (0, 0);
    // Between two new sessions, a request of every open session ends.
    while let Some(drawn) = requests.next() {
        made += 1;
        turn += 1;
        let ended = completed(secs(turn), 10);
        made += u64::from(requests.ended(drawn.request.tags.session, ended).is_some());
    }
    assert_eq!(made, 20);
}

#[test]
fn users_begin_one_after_the_other_and_go_on_for_ever() {
    let users = Client { load: ClientLoad::Users { count: 4, think_time: secs(8) }, ..client("users", 1.0) };
    let (mut requests, _) =
        spec(0.0, vec![users]).requests(&GenerateOptions { num_requests: Some(6), ..options() }).unwrap();
    let first: Vec<Request> = requests.by_ref().map(|drawn| drawn.request).collect();
    assert_eq!(first.iter().map(|r| r.arrival).collect::<Vec<_>>(), [0, 2, 4, 6].map(secs));
    let next = requests.ended(first[2].tags.session, completed(secs(5), 10)).unwrap();
    assert_eq!((next.arrival, next.id.0, next.tags.round_index), (secs(13), 4, 1));
    assert!(requests.ended(first[2].tags.session, completed(secs(20), 10)).is_some());
    assert_eq!(requests.ended(first[2].tags.session, completed(secs(30), 10)), None, "the limit is six requests");
}

/// Two concurrent sessions of three rounds each.
fn two_at_once() -> Client {
    Client { load: ClientLoad::Sessions(2), prefix: None, ..chat(true, true) }
}

#[test]
fn a_session_follows_one_that_ends() {
    let options = GenerateOptions { num_requests: Some(100), ..options() };
    let (mut requests, _) = spec(0.0, vec![two_at_once()]).requests(&options).unwrap();
    let first: Vec<Request> = requests.by_ref().map(|drawn| drawn.request).collect();
    assert_eq!(first.iter().map(|r| r.arrival).collect::<Vec<_>>(), [Micros::ZERO; 2], "all begin at once");
    let name = first[1].tags.session;
    requests.ended(name, completed(secs(10), 10)).unwrap();
    requests.ended(name, completed(secs(20), 10)).unwrap();
    let next = requests.ended(name, completed(secs(30), 10)).unwrap();
    assert_eq!((next.arrival, next.tags.round_index, next.input_tokens), (secs(30), 0, 100));
    assert_ne!(next.tags.session, name);
    assert_eq!((requests.waiting(), requests.states().completed), (2, 1));
    // The same session whatever the other one does in the meantime.
    let (mut again, _) = spec(0.0, vec![two_at_once()]).requests(&options).unwrap();
    let first: Vec<Request> = again.by_ref().map(|drawn| drawn.request).collect();
    again.ended(first[0].tags.session, completed(secs(1), 10)).unwrap();
    let ends = [10, 20, 30].map(|at| again.ended(first[1].tags.session, completed(secs(at), 10)).unwrap());
    assert_eq!((ends[2].arrival, ends[2].input_tokens, ends[2].output_tokens), (secs(30), 100, next.output_tokens));
}

/// A service that rejects everything at once is not asked without end at the same moment.
#[test]
fn after_a_failure_the_next_session_waits_a_second() {
    let options = GenerateOptions { num_requests: Some(100), ..options() };
    let (mut requests, _) = spec(0.0, vec![two_at_once()]).requests(&options).unwrap();
    let first = requests.next().unwrap().request;
    let failed = RequestEnd { at: secs(5), generated_tokens: 0, status: EndStatus::Failed };
    let next = requests.ended(first.tags.session, failed).unwrap();
    assert_eq!((next.arrival, requests.states().cancelled), (secs(6), 1));
}

#[test]
fn concurrent_sessions_end_with_the_workload() {
    let end = |num_requests, horizon| {
        let options = GenerateOptions { num_requests, horizon, ..options() };
        let (mut requests, _) = spec(0.0, vec![two_at_once()]).requests(&options).unwrap();
        let mut open: Vec<Request> = requests.by_ref().map(|drawn| drawn.request).collect();
        let (mut at, mut made) = (secs(0), open.len());
        while let Some(request) = (!open.is_empty()).then(|| open.remove(0)) {
            at = at.max(request.arrival) + secs(1);
            let next = requests.ended(request.tags.session, completed(at, 10));
            made += usize::from(next.is_some());
            open.extend(next);
        }
        assert_eq!(requests.waiting(), 0);
        (made, at)
    };
    assert_eq!(end(Some(17), Micros::MAX).0, 17);
    assert!(end(None, secs(60)).1 < secs(62));
}
