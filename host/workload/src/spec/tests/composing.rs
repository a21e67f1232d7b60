//! Composed specifications send the requests of their sources, and can be written and read back.

use std::path::Path;

use proptest::prelude::*;

use super::super::compose::{Composed, SpecSource, merge};
use super::super::parse::parse_placed;
use super::super::servegen::ServeGenReading;
use super::properties::specs;
use super::*;

const CHAT: &str = "\
version: \"2\"
seed: 7
aggregate_rate: 12
clients:
  - id: chat
    slo_class: critical
    rate_fraction: 3
    arrival: { process: gamma, cv: 2 }
    prefix_group: system
    prefix_length: 64
    input_distribution: { type: lognormal, params: { mu: 5, sigma: 1 } }
    output_distribution: { type: exponential, params: { mean: 80 } }
  - id: help
    slo_class: standard
    rate_fraction: 1
    arrival: { process: poisson }
    input_distribution: { type: constant, params: { value: 50 } }
    output_distribution: { type: empirical, params: { 5: 0.3, 50: 0.7 } }
";

const JOBS: &str = "\
version: \"2\"
seed: 7
aggregate_rate: 4
clients:
  - id: batch
    slo_class: batch
    rate_fraction: 0.5
    arrival: { process: weibull, cv: 1.5 }
    input_distribution: { type: uniform, params: { min: 10, max: 2000 } }
    output_distribution: { type: constant, params: { value: 9 } }
";

/// The jobs, in a part.
fn of_part(part: &str) -> String {
    JOBS.replace("aggregate_rate: 4\n", "").replace("    slo_class", &format!("    part: {part}\n    slo_class"))
}

fn source(file: &str, text: &str) -> SpecSource {
    let (spec, locations) =
        parse_placed(file, text, &NoFiles, ServeGenReading::Measured).unwrap_or_else(|error| panic!("{error}"));
    SpecSource::new(Path::new(file), spec, text.to_owned(), locations)
}

fn composed(files: &[(&str, &str)]) -> Composed {
    let sources = files.iter().map(|(file, text)| source(file, text)).collect();
    let composed = merge(sources).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(as_written(&composed.spec), as_written(&parse(&composed.spec.to_string())), "it reads back");
    composed
}

/// Everything that is written of it.
fn as_written(spec: &Spec) -> String {
    spec.to_string()
}

fn refused(files: &[(&str, &str)]) -> String {
    merge(files.iter().map(|(file, text)| source(file, text)).collect()).expect_err("it is refused").to_string()
}

/// Requests until `end`, with the seed of the tests.
fn until(spec: &Spec, end: Micros) -> (Vec<Request>, Names) {
    let horizon = spec.horizon.unwrap_or(end).min(end);
    let options = GenerateOptions { horizon, num_requests: spec.num_requests, ..options() };
    let workload = spec.generate(&options).unwrap_or_else(|error| panic!("{error}"));
    (workload.requests.collect(), workload.names)
}

/// `id`, under any name.
fn sent(spec: &Spec, end: Micros, id: &str) -> Vec<(Micros, u32, u32, u32)> {
    let (requests, names) = until(spec, end);
    of_client(&requests, &names, id)
}

#[test]
fn rates_add_up_and_every_client_sends_what_it_sent() {
    let Composed { spec, notes } = composed(&[("chat.yaml", CHAT), ("jobs.yaml", JOBS)]);
    assert_eq!((spec.aggregate_rate, spec.seed, spec.parts.len(), notes.len()), (16.0, Some(7), 0, 0));
    let shares: Vec<f64> =
        spec.clients.iter().map(|c| if let ClientLoad::Share(share) = c.load { share } else { 0.0 }).collect();
    // 9 and 3 of the chat's 12, 4 of the jobs: 16 in total.
    assert!(shares.iter().zip([9.0, 3.0, 4.0]).all(|(share, rate)| (share * 16.0 - rate).abs() < 1e-12), "{shares:?}");
    for (id, text) in [("chat", CHAT), ("help", CHAT), ("batch", JOBS)] {
        let (alone, together) = (sent(&parse(text), secs(500), id), sent(&spec, secs(500), id));
        assert!(alone.len() > 1000 && alone.len().abs_diff(together.len()) <= 1, "{id}: {}", alone.len());
        for (alone, together) in alone.iter().zip(&together) {
            // The last bit of a rate may differ, and then some arrivals by a µs.
            assert!(alone.0.0.abs_diff(together.0.0) <= 100, "{id}");
            assert_eq!((alone.1, alone.2, alone.3), (together.1, together.2, together.3), "{id}");
        }
    }
}

/// Windows, numbers of requests and horizons are kept part by part: no arrival moves by a µs.
#[test]
fn what_does_not_add_up_becomes_a_part() {
    let windows = "    lifecycle: { windows: [{ start_us: 0, end_us: 40000000 }, { start_us: 90000000, end_us: 200000000, trace_rate: 2 }] }\n";
    let chat = CHAT.to_owned() + windows;
    let jobs = JOBS.replace("aggregate_rate: 4", "aggregate_rate: 4\nnum_requests: 100\nhorizon: 900000000");
    let Composed { spec, notes } = composed(&[("a/chat.yaml", &chat), ("b/jobs.yaml", &jobs), ("b/more.yaml", JOBS)]);
    insta::assert_snapshot!(notes.join("\n"), @"client `batch` of b/more.yaml is called `batch@more`: the name is taken");
    assert_eq!(spec.parts.iter().map(|part| part.name.as_str()).collect::<Vec<_>>(), ["chat", "jobs", "more"]);
    assert_eq!((spec.horizon, spec.num_requests), (None, None), "others go on");
    let end = secs(300);
    for (id, text) in [("chat", chat.as_str()), ("help", &chat), ("batch", &jobs)] {
        let (alone, together) = (sent(&parse(text), end, id), sent(&spec, end, id));
        assert!(!alone.is_empty() && alone == together, "{id}: {} {}", alone.len(), together.len());
    }
    assert_eq!(sent(&spec, end, "batch").len(), 100);
    let (many, more) = (sent(&parse(JOBS), end, "batch").len() as f64, sent(&spec, end, "batch@more").len() as f64);
    assert!((many - more).abs() < 2.58 * (2.0 * many).sqrt() * 1.5, "other numbers, the same rate: {many} {more}");
    // Composed again, parts remain parts.
    let again = merge(vec![source("x.yaml", &spec.to_string()), source("y.yaml", CHAT)]).unwrap();
    assert_eq!(again.spec.parts.len(), 4);
    for id in ["chat", "help", "batch", "batch@more"] {
        assert_eq!(sent(&spec, end, id), sent(&again.spec, end, id), "{id}");
    }
}

#[test]
fn other_kinds_of_files_are_written_out() {
    let perf = "\
load: { type: poisson, stages: [{ rate: 4, duration: 30 }, { rate: 9, duration: 20 }] }
data: { type: random, input_distribution: { mean: 50, std_dev: 9 }, output_distribution: { mean: 20, std_dev: 4 } }
";
    let shared = "inference_perf:\n  stages: [{ rate: 20, duration: 10 }]\n  shared_prefix: { num_unique_system_prompts: 2, \
                  num_users_per_system_prompt: 3, system_prompt_len: 40, question_len: 9, output_len: 3 }\n";
    let everything = include_str!("everything.yaml");
    for text in [perf, shared, everything] {
        let before = parse(text);
        let after = parse(&composed(&[("x.yaml", text)]).spec.to_string());
        let (before, after) = (until(&before, secs(60)), until(&after, secs(60)));
        assert!(before.0.len() > 100 && before.0 == after.0, "{} {}", before.0.len(), after.0.len());
    }
    let two = composed(&[("perf.yaml", shared), ("everything.yaml", everything)]).spec;
    assert_eq!(two.parts.len(), 2);
    for (id, text) in [("prompt-1-user-2", shared), ("chat", everything), ("crowd-7", everything)] {
        let (alone, together) = (sent(&parse(text), secs(60), id), sent(&two, secs(60), id));
        assert!(!alone.is_empty() && alone == together, "{id}: {} {}", alone.len(), together.len());
    }
}

#[test]
fn names_that_are_taken_get_others() {
    let groups = |spec: &Spec| -> Vec<String> {
        spec.clients.iter().filter_map(|client| client.prefix.as_ref()).map(|prefix| prefix.group.clone()).collect()
    };
    let other = CHAT.replace("seed: 7", "seed: 8").replace("id: help", "id: crowd-3");
    let crowd = "cohorts:\n  - { id: crowd, slo_class: batch, population: 5, rate_fraction: 1, prefix_group: system, \
                 prefix_sharing: per_member, arrival: { process: poisson }, input_distribution: { type: constant, params: { value: 1 } }, \
                 output_distribution: { type: constant, params: { value: 1 } } }\naggregate_rate: 1\n";
    let Composed { spec, notes } = composed(&[("chat.yaml", CHAT), ("x/chat.yaml", &other), ("crowd.yaml", crowd)]);
    insta::assert_snapshot!(notes.join("\n"), @r"
    seed 7 of chat.yaml holds for all, not 8 of x/chat.yaml
    client `chat` of x/chat.yaml is called `chat@chat-2`: the name is taken
    prefix group `system` of x/chat.yaml is called `system@chat-2`: the name is taken
    client `crowd` of crowd.yaml is called `crowd@crowd`: the name is taken
    ");
    assert_eq!(groups(&spec), ["system", "system@chat-2"]);
    let (requests, names) = until(&spec, secs(100));
    let used: BTreeMap<&str, u32> =
        requests.iter().map(|r| (names.text(r.tags.client), r.content.shared_blocks())).collect();
    assert!(used.len() == 9 && used["chat"] == 4 && used["chat@chat-2"] == 4, "{used:?}");
}

#[test]
fn what_one_file_cannot_say_is_refused() {
    let users = JOBS.replace("rate_fraction: 0.5", "concurrency: 3");
    let turns = CHAT.to_owned() + "    reasoning: { multi_turn: { max_rounds: 3 } }\n";
    insta::assert_snapshot!(refused(&[("users.yaml", &users), ("turns.yaml", &turns)]), @r"
    turns.yaml:13:9: client `help` has `multi_turn`, client `batch` of users.yaml has `concurrency`
      13 |   - id: help
         |         ^^^^
    hint: one specification cannot have both
    ");
    let classless = JOBS.replace("    slo_class: batch\n", "");
    insta::assert_snapshot!(refused(&[("chat.yaml", CHAT), ("jobs.yaml", &classless)]), @r"
    jobs.yaml:5:9: client `batch` has no `slo_class`, client `chat` of chat.yaml has one
      5 |   - id: batch
        |         ^^^^^
    hint: name a class for all clients and cohorts, or for none
    ");
    let targets = |ms: u32| format!("goodput_slo_targets:\n  batch: {{ e2e_ms: {ms} }}\n");
    let [one, other] = [10, 20].map(|ms| JOBS.replace("seed: 7\n", &targets(ms)));
    insta::assert_snapshot!(refused(&[("one.yaml", &one), ("other.yaml", &other)]), @r"
    other.yaml:3:3: class `batch` has other targets in one.yaml
      3 |   batch: { e2e_ms: 20 }
        |   ^^^^^
    hint: make the targets equal, or give the clients of one file another class
    ");
    assert_eq!(composed(&[("one.yaml", &one), ("same.yaml", &one)]).spec.goodput_slo_targets.len(), 1);
    let limited = format!("num_requests: 5\nparts: {{ a: {{ aggregate_rate: 3 }} }}\n{}", of_part("a"));
    insta::assert_snapshot!(refused(&[("parts.yaml", &limited), ("jobs.yaml", JOBS)]), @r"
    parts.yaml: `num_requests` 5 of all its parts together
    hint: give the number of requests of each part, under `parts`
    ");
    insta::assert_snapshot!(error(&limited.replace("part: a", "part: b")), @r"
    spec.yaml:7:11: client `batch`: there is no part `b`
      7 |     part: b
        |           ^
    hint: did you mean `a`?
    ");
    insta::assert_snapshot!(error(&limited.replace("aggregate_rate: 3", "")), @r"
    spec.yaml:6:9: client `batch` has no rate: `aggregate_rate` of part `a` is 0, and each of its `lifecycle` windows needs a `trace_rate`
      6 |   - id: batch
        |         ^^^^^
    hint: set `aggregate_rate`, in requests per second, or give every rate
    ");
}

/// The keys that BLIS does not have are checked as strictly as the others.
#[test]
fn extensions_are_understood_or_refused() {
    let window = |more: &str| format!("{JOBS}    lifecycle: {{ windows: [{{ end_us: 9000000, {more} }}] }}\n");
    let seven = parse(&window("requests: 7"));
    let exact = parse(&window("rate: 7")).clients[0].windows[0].rate;
    assert_eq!((exact, seven.clients[0].windows[0].rate), (WindowRate::Exact(7.0), WindowRate::Count(7)));
    let arrivals = sent(&seven, secs(100), "batch");
    assert!(arrivals.len() == 7 && arrivals.iter().all(|arrival| arrival.0 < secs(9)), "{arrivals:?}");
    let turns = |more: &str| {
        let turns = format!("{{ max_rounds: 9, {more} }}");
        format!("{JOBS}    reasoning: {{ multi_turn: {turns} }}\n    closed_loop: false\n")
    };
    let value = |tokens: u32| format!("{{ type: constant, params: {{ value: {tokens} }} }}");
    let opened = parse(&turns(&format!(
        "rounds_distribution: {}, opening_distribution: {}, think_time_ms_distribution: {}",
        value(3),
        value(5000),
        value(2000)
    )));
    let (requests, _) = until(&opened, secs(100));
    let prompts = |round: u32| requests.iter().filter(move |r| r.tags.round_index == round).map(|r| r.input_tokens);
    assert!(prompts(0).all(|tokens| tokens > 5000) && prompts(1).all(|tokens| tokens <= 2000));
    assert!(prompts(2).count() > 100 && prompts(3).count() == 0, "three rounds");
    assert_eq!(composed(&[("x.yaml", &opened.to_string())]).spec.clients, opened.clients);
    for (text, expected) in [
        (window("rate: 7, requests: 7"), "`trace_rate`, `rate` and `requests` all define how much it sends"),
        (window("requests: 7.5"), "it must be a whole number"),
        (turns(&format!("think_time_us: 5, think_time_ms_distribution: {}", value(3))), "both define the think time"),
        (turns("opening_distribution: 7"), "keys with values are expected here"),
        (format!("parts: {{ \"\": {{ aggregate_rate: 1 }} }}\n{JOBS}"), "the name has 0 bytes"),
        (format!("parts: {{ a: {{ rate: 1 }} }}\n{JOBS}"), "unknown key `rate`"),
        ("parts: { a: {} }\nservegen_data: { path: x }\n".to_owned(), "`parts` with `servegen_data`"),
    ] {
        let message = error(&text);
        assert!(message.contains(expected), "{expected}: {message}");
    }
}

/// A part ends after its number of requests, sessions included, and others continue.
#[test]
fn parts_have_budgets_of_their_own() {
    let turns = "    reasoning: { multi_turn: { max_rounds: 4, think_time_us: 1000 } }\n    closed_loop: false\n";
    let parts = "parts: { a: { aggregate_rate: 10, num_requests: 30 }, b: { aggregate_rate: 10, horizon: 5000000 } }";
    let late = JOBS[JOBS.find("  - id").unwrap()..].replace("batch\n    slo", "late\n    part: b\n    slo");
    let text = format!("{parts}\n{}{turns}{late}", of_part("a"));
    let spec = parse(&text);
    let by = |id: &str| sent(&spec, Micros::MAX, id);
    assert_eq!(by("batch").len(), 30);
    assert!((30..70).contains(&by("late").len()) && by("late").iter().all(|sent| sent.0 < secs(5)));
    // In closed loop a part ends in the same way as a separate specification.
    let waiting = |text: &str| parse(&text.replace("closed_loop: false", "closed_loop: true"));
    let immediate = |spec: &Spec, num_requests| {
        let options = GenerateOptions { num_requests, ..options() };
        let Workload { requests, names, .. } = spec.generate_immediate(&options).unwrap();
        let requests: Vec<Request> = requests.collect();
        assert!(requests.is_sorted_by_key(|request| request.arrival));
        assert!(requests.iter().any(|request| request.tags.round_index == 3), "rounds follow");
        of_client(&requests, &names, "batch")
    };
    let alone = waiting(&format!("{}{turns}", JOBS.replace("aggregate_rate: 4", "aggregate_rate: 10")));
    assert_eq!(immediate(&waiting(&text), None), immediate(&alone, Some(30)));
}

proptest! {
    /// In the composition of any two specifications, every client sends the same requests as before.
    #[test]
    fn together_is_the_sum_of_the_parts(one in specs(), other in specs()) {
        let named = |spec: Spec, name: &str| {
            let client = |c: Client| Client {
                id: format!("{name}-{}", c.id),
                prefix: c.prefix.map(|p| Prefix { group: format!("{name}-{}", p.group), tokens: p.tokens.max(1) }),
                ..c
            };
            Spec { clients: spec.clients.into_iter().map(client).collect(), ..spec }
        };
        let (one, other) = (named(one, "one"), named(other, "other"));
        let source = |name: &str, spec: &Spec| SpecSource::new(Path::new(name), spec.clone(), String::new(), Default::default());
        let composed = merge(vec![source("a.yaml", &one), source("b.yaml", &other)]).unwrap().spec;
        let read = Spec::parse("c.yaml", &composed.to_string(), &NoFiles).map_err(|e| TestCaseError::fail(e.to_string()))?;
        prop_assert_eq!(read.to_string(), composed.to_string());
        let run = |spec: &Spec| {
            let options = GenerateOptions { num_requests: spec.num_requests, horizon: secs(60), ..options() };
            spec.generate(&options).map(|workload| (workload.requests.collect::<Vec<_>>(), workload.names))
        };
        let (Ok(one_alone), Ok(other_alone), Ok(together)) = (run(&one), run(&other), run(&read)) else { return Ok(()) };
        for (alone, spec) in [(&one_alone, &one), (&other_alone, &other)] {
            for client in &spec.clients {
                prop_assert_eq!(of_client(&alone.0, &alone.1, &client.id), of_client(&together.0, &together.1, &client.id));
            }
        }
    }
}
