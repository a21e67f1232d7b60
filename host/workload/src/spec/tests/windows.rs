//! The times in which clients send: windows, changing rates, cohorts, absolute rates.

use super::super::arrival::IntervalShape;
use super::*;

fn window(from: u64, to: u64) -> Window {
    Window::usual(secs(from), secs(to))
}

fn weighted(from: u64, to: u64, weight: f64) -> Window {
    Window { rate: WindowRate::Weight(weight), ..window(from, to) }
}

fn count(requests: &[Request], names: &Names, id: &str, from: u64, to: u64) -> usize {
    let during = secs(from)..secs(to);
    of_client(requests, names, id).iter().filter(|r| during.contains(&r.0)).count()
}

/// `a` and `always` share the first half, `b` and `always` the second, in BLIS's way.
#[test]
fn rates_are_shared_among_those_active_together() {
    let constant = |id: &str, windows| Client { arrival: Arrival::Constant, windows, ..client(id, 1.0) };
    let clients =
        vec![constant("a", vec![window(0, 100)]), constant("b", vec![window(100, 200)]), constant("always", vec![])];
    let (requests, names) = requests(&Spec { horizon: Some(secs(200)), ..spec(12.0, clients) });
    let of = |id, from, to| count(&requests, &names, id, from, to);
    assert_eq!([of("a", 0, 100), of("a", 100, 200), of("b", 0, 100)], [600, 0, 0]);
    // One more interval of 166 666 µs fits into 100 s because of truncation.
    assert!((599..=601).contains(&of("b", 100, 200)), "{}", of("b", 100, 200));
    assert_eq!(of("always", 0, 200), 799, "250 000 µs apart, the last one at the horizon");
}

/// Quirk of BLIS: there, such clients stop sending.
#[test]
fn who_has_no_windows_sends_where_others_have_rates() {
    let clients = vec![
        Client { windows: vec![weighted(10, 20, 3.0), weighted(20, 30, 1.0)], ..client("varying", 1.0) },
        Client { arrival: Arrival::Constant, ..client("always", 1.0) },
    ];
    let (requests, names) = requests(&Spec { horizon: Some(secs(40)), ..spec(20.0, clients) });
    let of = |id, from, to| count(&requests, &names, id, from, to);
    // 20 · 3 / (3 + 1) and 20 · 1 / (1 + 1) per second; exactly that number in each window.
    assert_eq!(
        [of("varying", 0, 10), of("varying", 10, 20), of("varying", 20, 30), of("varying", 30, 40)],
        [0, 150, 100, 0]
    );
    assert_eq!(of("always", 0, 40), 400);
}

#[test]
fn windows_bring_lengths_and_spacing_of_their_own() {
    let special = Window {
        arrival: Some(Arrival::Constant),
        input: Some(Lengths::Constant(7)),
        output: Some(Lengths::Constant(3)),
        ..weighted(10, 20, 1.0)
    };
    let client = Client {
        windows: vec![weighted(0, 10, 1.0), special],
        prefix: Some(Prefix { group: "g".into(), tokens: 40 }),
        timeout: Timeout::After(secs(5)),
        ..client("a", 1.0)
    };
    let (requests, _) = requests(&spec(1.0, vec![client]));
    let lengths: Vec<_> = requests.iter().map(|r| (r.input_tokens, r.output_tokens)).collect();
    assert_eq!(lengths, [[(140, 10); 10], [(47, 3); 10]].concat());
    // Quirk of BLIS: there, requests of such windows have neither prefix nor deadline.
    assert!(requests.iter().all(|r| r.content.shared_blocks() == 2 && r.deadline == Some(r.arrival + secs(5))));
    let gaps: Vec<u64> = requests[10..].windows(2).map(|pair| pair[1].arrival.0 - pair[0].arrival.0).collect();
    assert!(gaps.iter().all(|&us| us.abs_diff(909_090) <= 1), "ten requests make eleven equal parts: {gaps:?}");
}

/// The mean number of requests of a window is right, also far below 1.
#[test]
fn small_rates_are_not_rounded_up() {
    let windows = (0..1000).map(|n| weighted(n * 10, n * 10 + 10, 0.03)).collect();
    let quiet = Client { windows, arrival: Arrival::Gamma(IntervalShape::Cv(2.0)), ..client("quiet", 1.0) };
    let (requests, _) = requests(&spec(0.0, vec![quiet]));
    // Mean 300, standard deviation √(1000 · 0.3 · 0.7).
    assert!((requests.len() as f64 - 300.0).abs() < 2.576 * 14.5, "{}", requests.len());
}

#[test]
fn a_cohort_is_many_clients() {
    let cohort = Cohort {
        client: Client { prefix: Some(Prefix { group: "g".into(), tokens: 32 }), ..client("c", 1.0) },
        population: 50,
        prefix_sharing: PrefixSharing::PerMember,
        diurnal: None,
        spike: Some(Spike { start: secs(100), duration: secs(100), trace_rate: Some(25.0) }),
        drain: None,
    };
    let spec = Spec { cohorts: vec![cohort], ..Spec::default() };
    let (requests, names) = requests(&spec);
    assert_eq!(requests.len(), 2500);
    assert!(requests.iter().all(|r| (secs(100)..secs(200)).contains(&r.arrival)));
    assert_eq!(of_client(&requests, &names, "c-49").len(), 50);
    let keys: BTreeSet<_> = requests.iter().map(|r| r.content.keys().next()).collect();
    assert_eq!((keys.len(), names.find("g-7").is_some()), (50, true));
}

#[test]
fn windows_that_overlap_add_up() {
    let both = Client { windows: vec![weighted(0, 100, 1.0), weighted(50, 60, 10.0)], ..client("a", 1.0) };
    let (requests, names) = requests(&spec(0.0, vec![both]));
    assert_eq!(requests.len(), 200);
    let inside = count(&requests, &names, "a", 50, 60);
    assert!((105..=125).contains(&inside), "{inside}");
    assert!(requests.is_sorted_by_key(|r| r.arrival));
}

#[test]
fn what_never_ends_or_never_starts_is_refused() {
    let check = |spec: &Spec, options: &GenerateOptions| spec.generate(options).unwrap_err().to_string();
    insta::assert_snapshot!(check(&spec(1.0, vec![client("a", 1.0)]), &options()), @r"
    the workload has no end
    hint: set `num_requests` or `horizon` in the specification, or --num-requests or --horizon
    ");
    let much = GenerateOptions { horizon: secs(10_000_000), ..options() };
    insta::assert_snapshot!(check(&spec(1000.0, vec![client("a", 1.0)]), &much), @r"
    about 10000000000 requests, more than 4294967295
    hint: lower the rate, the horizon or the windows
    ");
    let late = Client { windows: vec![window(100, 200)], ..client("a", 1.0) };
    insta::assert_snapshot!(check(&spec(1.0, vec![late]), &GenerateOptions { horizon: secs(50), ..options() }), @r"
    no client ever sends a request
    hint: the windows lie after the horizon, or the rates are 0
    ");
    let counted = Client { windows: vec![weighted(0, 1_000_000, 1e9)], ..client("a", 1.0) };
    insta::assert_snapshot!(check(&spec(0.0, vec![counted]), &GenerateOptions { num_requests: Some(1), ..options() }), @r"
    about 1000000000000000 requests in one window with a rate of its own, more than 100000000
    hint: lower the rate, or cut the window in pieces
    ");
}

#[test]
fn windows_that_are_drawn_at_once_are_limited_together() {
    let many = |id: &str| Client {
        windows: vec![Window { rate: WindowRate::Count(60_000_000), ..window(0, 10) }],
        ..client(id, 1.0)
    };
    let spec = Spec { num_requests: Some(1), ..spec(1.0, vec![many("a"), many("b")]) };
    insta::assert_snapshot!(spec.generate(&options()).unwrap_err(), @r"
    about 120000000 requests in the first windows of all clients, which have rates of their own: more than 100000000
    hint: lower the rates, or cut the windows in pieces
    ");
}

/// Every window needs the groups that are active at the same time; equal windows get the same result.
#[test]
fn tens_of_thousands_of_users_are_ready_at_once() {
    let text = "inference_perf:\n  stages: [{ rate: 60000, duration: 1 }]\n  shared_prefix: { num_unique_system_prompts: 300, \
                num_users_per_system_prompt: 200, system_prompt_len: 16, question_len: 1, output_len: 1 }\n";
    let spec = Spec { num_requests: Some(100), ..Spec::parse("perf.yaml", text, &NoFiles).unwrap() };
    assert_eq!((spec.clients.len(), requests(&spec).0.len()), (60_000, 100));
}
