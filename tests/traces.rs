//! `blis workload inspect`, `blis workload convert` and `blis workload compose`, as a user meets them.

use serde_json::Value;

use crate::macros::{Scratch, blis};

fn good(scratch: &Scratch, line: &str) -> String {
    blis!(in scratch, line).done().stdout
}

fn refused(scratch: &Scratch, line: &str) -> String {
    blis!(in scratch, line).refused()
}

fn profile_of(scratch: &Scratch, line: &str) -> Value {
    blis!(in scratch, "workload inspect", line, "--output json").json()
}

/// 12 turns of 3 sessions, 0.25 s apart; all prompts start with the same 512 tokens.
fn mooncake() -> String {
    let line = |n: u32| {
        let (ms, input, session) = (n * 250, 600 + n, n % 3);
        format!(
            "{{\"timestamp\": {ms}, \"input_length\": {input}, \"output_length\": 8, \"hash_ids\": [0, {}], \"session_id\": \"s{session}\"}}\n",
            n + 1
        )
    };
    (0..12).map(line).collect()
}

#[test]
fn a_trace_is_inspected() {
    let scratch = Scratch::new();
    scratch.write("m.jsonl", mooncake());
    let profile = profile_of(&scratch, "m.jsonl");
    assert_eq!((&profile["requests"], &profile["sessions"]["turns_max"]), (&12.into(), &4.into()));
    assert_eq!(profile["interarrival_cv"], 0.0);
    let hit = profile["ideal_prefix_hit"].as_f64().expect("a share");
    let total = profile["input_tokens"]["total"].as_f64().expect("a sum");
    assert!((hit - 11.0 * 512.0 / total).abs() < 1e-12, "{hit}");
    let part = profile_of(&scratch, "m.jsonl --start 1 --duration 1 --repeat 3 --time-scale 2 --max-requests 10");
    assert_eq!((&part["requests"], &part["span_s"]), (&10.into(), &4.5.into()));
    let message = good(&scratch, "workload inspect m.jsonl --output text");
    assert!(message.contains("ideal prefix hit") && message.contains('█') && !message.contains('\x1b'), "{message}");
    assert!(message.lines().all(|line| line.chars().count() <= 80), "{message}");
    scratch.write("bad.jsonl", mooncake().replacen("600", "\"many\"", 1));
    assert!(refused(&scratch, "workload inspect bad.jsonl").contains("bad.jsonl:1:"));
    assert_eq!(profile_of(&scratch, "bad.jsonl --skip-bad-lines")["requests"], 11);
}

#[test]
fn a_trace_is_converted_and_says_what_it_lost() {
    let scratch = Scratch::new();
    scratch.write("m.jsonl", mooncake());
    let same = |a: &Value, b: &Value, keys: &[&str]| keys.iter().for_each(|&key| assert_eq!(a[key], b[key], "{key}"));
    let figures = ["requests", "span_s", "interarrival_cv", "input_tokens", "output_tokens"];
    let profile = profile_of(&scratch, "m.jsonl");
    let message = good(&scratch, "convert m.jsonl again.jsonl --to mooncake");
    assert_eq!(message, "12 requests written to again.jsonl\nnothing is lost\n");
    same(&profile_of(&scratch, "again.jsonl"), &profile, &[&figures[..], &["sessions", "ideal_prefix_hit"]].concat());
    let message = good(&scratch, "convert m.jsonl b.csv --to blis-csv");
    assert_eq!(message, "12 requests written to b.csv\nlost: sessions\n");
    same(&profile_of(&scratch, "b.csv"), &profile, &[&figures[..], &["ideal_prefix_hit"]].concat());
    let message = good(&scratch, "convert m.jsonl a.csv --to azure");
    assert_eq!(message, "12 requests written to a.csv\nlost: sessions, shared prefixes of prompts\n");
    same(&profile_of(&scratch, "a.csv"), &profile, &figures);
    let message = good(&scratch, "convert m.jsonl v2 --to trace-v2");
    assert_eq!(message, "12 requests written to v2.csv\nnothing is lost\n");
    same(&profile_of(&scratch, "v2.yaml"), &profile, &[&figures[..], &["sessions", "ideal_prefix_hit"]].concat());
    let message = good(&scratch, "convert v2.csv w2.csv --to trace-v2 --start 2");
    assert_eq!(message, "4 requests written to w2.csv\nnothing is lost\n");
    assert!(refused(&scratch, "convert m.jsonl m.jsonl --to azure").contains("`m.jsonl` is the input"));
    assert!(refused(&scratch, "convert m.jsonl no/such/folder.csv --to azure").contains("hint: "));
    assert_eq!(profile_of(&scratch, "m.jsonl"), profile, "the input is untouched");
}

/// Conversations in closed loop, and bursts.
const SPEC: &str = r#"
version: "2"
seed: 3
aggregate_rate: 20
clients:
  - id: chat
    slo_class: critical
    rate_fraction: 1
    arrival: { process: poisson }
    prefix_group: system
    prefix_length: 512
    input_distribution: { type: constant, params: { value: 100 } }
    output_distribution: { type: constant, params: { value: 50 } }
    reasoning: { multi_turn: { max_rounds: 4, think_time_us: 2000000, context_growth: accumulate } }
  - id: bursts
    slo_class: batch
    rate_fraction: 3
    arrival: { process: gamma, cv: 4 }
    input_distribution: { type: constant, params: { value: 1000 } }
    output_distribution: { type: constant, params: { value: 10 } }
"#;

#[test]
fn specifications_and_presets_are_inspected_too() {
    let scratch = Scratch::new();
    scratch.write("s.yaml", SPEC);
    let profile = profile_of(&scratch, "s.yaml --max-requests 5000");
    assert_eq!((&profile["requests"], &profile["sessions"]["turns_max"]), (&5000.into(), &4.into()));
    // 5 conversations of 4 turns and 15 bursts a second.
    let (rate, chat) = (&profile["requests_per_s"], &profile["clients"]["chat"]);
    assert!((rate.as_f64().expect("a rate") / 35.0 - 1.0).abs() < 0.1, "{rate}");
    assert!((chat.as_f64().expect("a count") / (5000.0 * 20.0 / 35.0) - 1.0).abs() < 0.1, "{chat}");
    // Half of all tokens are prompts of conversations, of which four fifths repeat earlier rounds.
    assert!(profile["ideal_prefix_hit"].as_f64() > Some(0.35), "rounds share earlier ones: {profile}");
    assert_eq!(profile, profile_of(&scratch, "s.yaml --max-requests 5000 --seed 3"), "the seed of the file");
    assert_ne!(profile, profile_of(&scratch, "s.yaml --max-requests 5000 --seed 4"));
    let noted = blis!(in &scratch, "workload inspect s.yaml").stderr;
    assert!(noted.contains("first 100000 requests") && noted.contains("`chat` is in closed loop"), "{noted}");
    let profile = profile_of(&scratch, "--workload reasoning --rate 5 --max-requests 3000");
    assert!((profile["requests_per_s"].as_f64().expect("a rate") / 5.0 - 1.0).abs() < 0.1, "{profile}");
    let profile = profile_of(&scratch, "--workload interactive-chat --max-requests 3000");
    assert!(profile["sessions"]["turns_max"].as_u64() > Some(4), "{profile}");
    assert_eq!(profile_of(&scratch, "--workload chatbot")["requests"], 100);
    assert!(refused(&scratch, "workload inspect s.yaml --repeat 2").contains("cannot be used with generated requests"));
    scratch.write("wrong.yaml", SPEC.replace("cv: 4", "cv: four"));
    assert!(refused(&scratch, "workload inspect wrong.yaml").contains("wrong.yaml:18:"));
    scratch.write("m.jsonl", mooncake());
    assert!(refused(&scratch, "workload inspect m.jsonl --seed 1").contains("`--seed` cannot be used with a trace"));
    assert!(refused(&scratch, "workload inspect").contains("FILE"));
}

#[test]
fn specifications_are_composed() {
    let scratch = Scratch::new();
    let jobs = &SPEC[SPEC.find("  - id: bursts").expect("there")..];
    let head = "version: \"2\"\nseed: 4\nnum_requests: 400\naggregate_rate: 30\nclients:\n";
    scratch.write("chat.yaml", SPEC);
    scratch.write("jobs.yaml", format!("{head}{jobs}"));
    let output = blis!(in &scratch, "compose chat.yaml jobs.yaml --out both.yaml");
    assert_eq!((output.code, output.stdout.as_str()), (Some(0), ""));
    insta::assert_snapshot!(output.stderr, @r"
    note: seed 3 of chat.yaml holds for all, not 4 of jobs.yaml
    note: client `bursts` of jobs.yaml is called `bursts@jobs`: the name is taken
    ");
    let both = good(&scratch, "compose chat.yaml jobs.yaml");
    assert_eq!(scratch.read("both.yaml"), both);
    assert_eq!(good(&scratch, "compose both.yaml"), both, "what it writes it reads");
    let profile = profile_of(&scratch, "both.yaml --max-requests 4000");
    assert_eq!(profile["clients"]["bursts@jobs"], 400, "its own number");
    let alone = profile_of(&scratch, "chat.yaml --max-requests 3600");
    assert_eq!(profile["clients"]["chat"], alone["clients"]["chat"], "the rest is what it was");
    let ran =
        good(&scratch, "run --model llama-3.1-8b-instruct --workload-spec both.yaml --num-requests 600 --output json");
    let ran: Value = serde_json::from_str(&ran).expect("JSON");
    assert!(ran["completed_requests"].as_u64() > Some(550), "{ran}");
    scratch.write("wrong.yaml", SPEC.replace("rate_fraction: 3", "rate_fraction: -3"));
    assert!(refused(&scratch, "compose chat.yaml wrong.yaml").contains("wrong.yaml:17:"));
    assert!(refused(&scratch, "compose chat.yaml none.yaml").contains("`none.yaml` does not exist"));
    assert!(refused(&scratch, "compose chat.yaml jobs.yaml -o jobs.yaml").contains("`jobs.yaml` is an input"));
    assert!(refused(&scratch, "compose chat.yaml -o no/such/file.yaml").contains("hint: "));
}
