//! `blis workload inspect`, `blis convert` and `blis compose`, as a user meets them.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// A folder of its own, gone at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("blis-traces-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("scratch");
        Self(path)
    }

    fn file(&self, name: &str, text: &str) {
        fs::write(self.0.join(name), text).expect("scratch");
    }

    /// Runs `blis` in the folder.
    fn blis(&self, line: &str) -> Output {
        let mut program = Command::new(env!("CARGO_BIN_EXE_blis"));
        program.args(line.split_whitespace()).current_dir(&self.0).stdin(Stdio::null());
        program.output().expect("blis runs")
    }

    fn good(&self, line: &str) -> String {
        let output = self.blis(line);
        assert_eq!(output.status.code(), Some(0), "{line}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    fn refused(&self, line: &str) -> String {
        let output = self.blis(line);
        assert_eq!(output.status.code(), Some(2), "{line}: {}", text(&output.stdout));
        text(&output.stderr)
    }

    fn profile(&self, line: &str) -> Value {
        serde_json::from_str(&self.good(&format!("workload inspect {line} --json"))).expect("JSON")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
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
    let scratch = Scratch::new("inspect");
    scratch.file("m.jsonl", &mooncake());
    let profile = scratch.profile("m.jsonl");
    assert_eq!((&profile["requests"], &profile["sessions"]["turns_max"]), (&12.into(), &4.into()));
    assert_eq!(profile["interarrival_cv"], 0.0);
    let hit = profile["ideal_prefix_hit"].as_f64().expect("a share");
    let total = profile["input_tokens"]["total"].as_f64().expect("a sum");
    assert!((hit - 11.0 * 512.0 / total).abs() < 1e-12, "{hit}");
    let part = scratch.profile("m.jsonl --start 1 --duration 1 --repeat 3 --time-scale 2 --max-requests 10");
    assert_eq!((&part["requests"], &part["span_s"]), (&10.into(), &4.5.into()));
    let told = scratch.good("workload inspect m.jsonl --no-color");
    assert!(told.contains("ideal prefix hit") && told.contains('█') && !told.contains('\x1b'), "{told}");
    assert!(told.lines().all(|line| line.chars().count() <= 80), "{told}");
    scratch.file("bad.jsonl", &mooncake().replacen("600", "\"many\"", 1));
    assert!(scratch.refused("workload inspect bad.jsonl").contains("bad.jsonl:1:"));
    assert_eq!(scratch.profile("bad.jsonl --skip-bad-lines")["requests"], 11);
}

#[test]
fn a_trace_is_converted_and_says_what_it_lost() {
    let scratch = Scratch::new("convert");
    scratch.file("m.jsonl", &mooncake());
    let same = |a: &Value, b: &Value, keys: &[&str]| keys.iter().for_each(|&key| assert_eq!(a[key], b[key], "{key}"));
    let figures = ["requests", "span_s", "interarrival_cv", "input_tokens", "output_tokens"];
    let profile = scratch.profile("m.jsonl");
    let told = scratch.good("convert m.jsonl again.jsonl --to mooncake");
    assert_eq!(told, "12 requests written to again.jsonl\nnothing is lost\n");
    same(&scratch.profile("again.jsonl"), &profile, &[&figures[..], &["sessions", "ideal_prefix_hit"]].concat());
    let told = scratch.good("convert m.jsonl b.csv --to blis-csv");
    assert_eq!(told, "12 requests written to b.csv\nlost: sessions\n");
    same(&scratch.profile("b.csv"), &profile, &[&figures[..], &["ideal_prefix_hit"]].concat());
    let told = scratch.good("convert m.jsonl a.csv --to azure");
    assert_eq!(told, "12 requests written to a.csv\nlost: sessions, what prompts have in common\n");
    same(&scratch.profile("a.csv"), &profile, &figures);
    let told = scratch.good("convert m.jsonl v2 --to trace-v2");
    assert_eq!(told, "12 requests written to v2.csv\nnothing is lost\n");
    same(&scratch.profile("v2.yaml"), &profile, &[&figures[..], &["sessions", "ideal_prefix_hit"]].concat());
    let told = scratch.good("convert v2.csv w2.csv --to trace-v2 --start 2");
    assert_eq!(told, "4 requests written to w2.csv\nnothing is lost\n");
    assert!(scratch.refused("convert m.jsonl m.jsonl --to azure").contains("`m.jsonl` is what is read"));
    assert!(scratch.refused("convert m.jsonl no/such/folder.csv --to azure").contains("hint: "));
    assert_eq!(scratch.profile("m.jsonl"), profile, "the input is untouched");
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
    let scratch = Scratch::new("inspect-spec");
    scratch.file("s.yaml", SPEC);
    let profile = scratch.profile("s.yaml --max-requests 5000");
    assert_eq!((&profile["requests"], &profile["sessions"]["turns_max"]), (&5000.into(), &4.into()));
    // 5 conversations of 4 turns and 15 bursts a second.
    let (rate, chat) = (&profile["requests_per_s"], &profile["clients"]["chat"]);
    assert!((rate.as_f64().expect("a rate") / 35.0 - 1.0).abs() < 0.1, "{rate}");
    assert!((chat.as_f64().expect("a count") / (5000.0 * 20.0 / 35.0) - 1.0).abs() < 0.1, "{chat}");
    // Of the prompts of conversations, half of all tokens, four fifths were said before.
    assert!(profile["ideal_prefix_hit"].as_f64() > Some(0.35), "turns share what was said: {profile}");
    assert_eq!(profile, scratch.profile("s.yaml --max-requests 5000 --seed 3"), "the seed of the file");
    assert_ne!(profile, scratch.profile("s.yaml --max-requests 5000 --seed 4"));
    let noted = text(&scratch.blis("workload inspect s.yaml").stderr);
    assert!(noted.contains("first 100000 requests") && noted.contains("`chat` waits for answers"), "{noted}");
    let profile = scratch.profile("--workload reasoning --rate 5 --max-requests 3000");
    assert!((profile["requests_per_s"].as_f64().expect("a rate") / 5.0 - 1.0).abs() < 0.1, "{profile}");
    let profile = scratch.profile("--workload interactive-chat --max-requests 3000");
    assert!(profile["sessions"]["turns_max"].as_u64() > Some(4), "{profile}");
    assert_eq!(scratch.profile("--workload chatbot")["requests"], 100);
    assert!(scratch.refused("workload inspect s.yaml --repeat 2").contains("cannot be used with generated requests"));
    scratch.file("wrong.yaml", &SPEC.replace("cv: 4", "cv: four"));
    assert!(scratch.refused("workload inspect wrong.yaml").contains("wrong.yaml:18:"));
    scratch.file("m.jsonl", &mooncake());
    assert!(scratch.refused("workload inspect m.jsonl --seed 1").contains("`--seed` cannot be used with a trace"));
    assert!(scratch.refused("workload inspect").contains("FILE"));
}

#[test]
fn specifications_are_composed() {
    let scratch = Scratch::new("compose");
    let jobs = &SPEC[SPEC.find("  - id: bursts").expect("there")..];
    let head = "version: \"2\"\nseed: 4\nnum_requests: 400\naggregate_rate: 30\nclients:\n";
    scratch.file("chat.yaml", SPEC);
    scratch.file("jobs.yaml", &format!("{head}{jobs}"));
    let output = scratch.blis("compose chat.yaml jobs.yaml --output both.yaml");
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(0), String::new()));
    insta::assert_snapshot!(text(&output.stderr), @r"
    note: seed 3 of chat.yaml holds for all, not 4 of jobs.yaml
    note: client `bursts` of jobs.yaml is called `bursts@jobs`: the name is taken
    ");
    let both = scratch.good("compose chat.yaml jobs.yaml");
    assert_eq!(fs::read_to_string(scratch.0.join("both.yaml")).expect("written"), both);
    assert_eq!(scratch.good("compose both.yaml"), both, "what it writes it reads");
    let profile = scratch.profile("both.yaml --max-requests 4000");
    assert_eq!(profile["clients"]["bursts@jobs"], 400, "its own number");
    let alone = scratch.profile("chat.yaml --max-requests 3600");
    assert_eq!(profile["clients"]["chat"], alone["clients"]["chat"], "the rest is what it was");
    let ran =
        scratch.good("run --model llama-3.1-8b-instruct --workload-spec both.yaml --num-requests 600 --output json");
    let ran: Value = serde_json::from_str(&ran).expect("JSON");
    assert!(ran["completed_requests"].as_u64() > Some(550), "{ran}");
    scratch.file("wrong.yaml", &SPEC.replace("rate_fraction: 3", "rate_fraction: -3"));
    assert!(scratch.refused("compose chat.yaml wrong.yaml").contains("wrong.yaml:17:"));
    assert!(scratch.refused("compose chat.yaml none.yaml").contains("`none.yaml` does not exist"));
    assert!(scratch.refused("compose chat.yaml jobs.yaml -o jobs.yaml").contains("`jobs.yaml` is what is read"));
    assert!(scratch.refused("compose chat.yaml -o no/such/file.yaml").contains("hint: "));
}
