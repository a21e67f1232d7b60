//! Properties of all specifications.

use proptest::collection::vec;
use proptest::prelude::*;

use super::super::arrival::IntervalShape;
use super::*;

fn arrivals() -> impl Strategy<Value = Arrival> {
    prop_oneof![
        Just(Arrival::Constant),
        Just(Arrival::Poisson),
        (0.2_f64..4.0).prop_map(|cv| Arrival::Gamma(IntervalShape::Cv(cv))),
        (0.2_f64..4.0).prop_map(|cv| Arrival::Weibull(IntervalShape::Cv(cv))),
    ]
}

fn windows() -> impl Strategy<Value = Vec<Window>> {
    let window = (0_u64..50, 1_u64..50, proptest::option::of(0.0_f64..3.0)).prop_map(|(from, length, weight)| Window {
        rate: weight.map_or(WindowRate::Usual, WindowRate::Weight),
        ..Window::usual(secs(from), secs(from + length))
    });
    vec(window, 0..3)
}

fn clients() -> impl Strategy<Value = Client> {
    let turns = (1_u32..4, 0_u64..20, any::<bool>(), any::<bool>()).prop_map(
        |(max_rounds, think, accumulate, single_session)| MultiTurn {
            max_rounds,
            think_time: secs(think),
            accumulate,
            single_session,
        },
    );
    let prefix = (0_u32..3, 0_u32..100).prop_map(|(group, tokens)| Prefix { group: format!("g{group}"), tokens });
    (0.1_f64..5.0, arrivals(), windows(), proptest::option::of(turns), proptest::option::of(prefix)).prop_map(
        |(share, arrival, windows, multi_turn, prefix)| Client {
            arrival,
            windows,
            multi_turn,
            prefix,
            timeout: Timeout::After(secs(9)),
            ..Client::new("", share, Lengths::exponential(200.0), Lengths::gaussian(50.0, 30.0, 1, 90))
        },
    )
}

pub(super) fn specs() -> impl Strategy<Value = Spec> {
    (vec(clients(), 1..5), 0.5_f64..20.0, 1_u64..200).prop_map(|(mut clients, rate, count)| {
        for (index, client) in clients.iter_mut().enumerate() {
            client.id = format!("c{index}");
        }
        Spec { num_requests: Some(count), horizon: Some(secs(60)), ..spec(rate, clients) }
    })
}

fn try_requests(spec: &Spec) -> Option<(Vec<Request>, Names)> {
    let options = GenerateOptions { num_requests: spec.num_requests, horizon: spec.horizon?, ..options() };
    let workload = spec.generate(&options).ok()?;
    Some((workload.requests.collect(), workload.names))
}

proptest! {
    #[test]
    fn requests_are_in_order_and_numbered(spec in specs()) {
        let Some((requests, _)) = try_requests(&spec) else { return Ok(()) };
        prop_assert!(requests.len() as u64 <= spec.num_requests.unwrap());
        prop_assert!(requests.is_sorted_by_key(|r| r.arrival));
        prop_assert!(requests.iter().zip(0..).all(|(r, id)| r.id.0 == id));
        for request in &requests {
            prop_assert!(request.arrival < secs(60));
            prop_assert!(request.input_tokens >= 1 && request.output_tokens >= 1);
            prop_assert!(request.max_output_tokens.is_none_or(|limit| limit > request.output_tokens), "{:?}", request);
            prop_assert_eq!(request.deadline, Some(request.arrival + secs(9)));
            prop_assert!(request.content.shared_blocks() <= (request.input_tokens + request.output_tokens) / BLOCK);
        }
    }

    /// The same seed gives the same requests, and a longer workload has the same beginning.
    #[test]
    fn the_beginning_does_not_depend_on_the_end(spec in specs()) {
        let Some((all, _)) = try_requests(&spec) else { return Ok(()) };
        let fewer = Spec { num_requests: Some(spec.num_requests.unwrap().div_ceil(2)), ..spec };
        let (some, _) = try_requests(&fewer).unwrap();
        prop_assert_eq!(&all[..some.len()], &some[..]);
    }

    /// Other clients make no difference to the requests of a client, as long as its rate is the same.
    #[test]
    fn clients_do_not_disturb_each_other(spec in specs(), other in clients()) {
        // Without windows all shares count at all times, so that the test can compute the share that keeps the rates.
        let alone = |client: Client| Client { windows: Vec::new(), ..client };
        let spec = Spec { num_requests: None, clients: spec.clients.into_iter().map(alone).collect(), ..spec };
        let share = |spec: &Spec| spec.clients.iter().map(|c| c.load.share()).sum::<f64>();
        let other = Client { id: "other".into(), windows: Vec::new(), prefix: None, ..other };
        let mut more = spec.clone();
        more.clients.insert(0, other);
        more.aggregate_rate *= share(&more) / share(&spec);
        let (Some((alone, names)), Some((together, all_names))) = (try_requests(&spec), try_requests(&more)) else {
            return Ok(());
        };
        // The last bit of the rate may differ, and then, rarely, a µs. Lengths never depend on the rate.
        for client in &spec.clients {
            let before = of_client(&alone, &names, &client.id);
            let after = of_client(&together, &all_names, &client.id);
            prop_assert!(before.len().abs_diff(after.len()) <= 3);
            for (before, after) in before.iter().zip(&after).take(if client.multi_turn.is_some() { 1 } else { usize::MAX }) {
                prop_assert!(before.0.0.abs_diff(after.0.0) <= 100 && before.1 == after.1 && before.2 == after.2);
            }
        }
    }

    /// Blocks are equal where tokens are equal: within a group's prefix, and along a session.
    #[test]
    fn equal_keys_mean_equal_beginnings(spec in specs()) {
        let Some((requests, _)) = try_requests(&spec) else { return Ok(()) };
        let mut before: BTreeMap<u32, Option<u32>> = BTreeMap::new();
        for request in &requests {
            let mut previous = None;
            for key in request.content.keys() {
                prop_assert_eq!(*before.entry(key).or_insert(previous), previous, "key {}", key);
                previous = Some(key);
            }
        }
    }
}

/// Clients that differ only in their index get different random streams.
#[test]
fn clients_of_the_same_id_are_not_the_same() {
    let twin = || Client::new("twin", 1.0, Lengths::exponential(500.0), Lengths::Constant(1));
    let (requests, _) = requests(&Spec { num_requests: Some(100), ..spec(10.0, vec![twin(), twin()]) });
    let lengths: BTreeSet<u32> = requests.iter().map(|r| r.input_tokens).collect();
    assert!(lengths.len() > 80, "{}", lengths.len());
}
