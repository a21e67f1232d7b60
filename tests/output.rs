//! What comes out, and where: one JSON document for programs, a summary for people, the same bytes
//! wherever the program runs.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::macros::{Scratch, assert_fits, blis, ended, program, root};

const RUN: &str = "run --model llama-3.1-8b-instruct --num-requests 30 --arrival-process poisson --rate 5";

/// The published fields of the aggregate, in their order; ours follow. `kv_allocation_failures`
/// appears only where there are any, `cache_hit_rate` only in the metrics file.
const PUBLISHED: [&str; 27] = [
    "instance_id",
    "completed_requests",
    "still_queued",
    "still_running",
    "injected_requests",
    "total_input_tokens",
    "total_output_tokens",
    "vllm_estimated_duration_s",
    "responses_per_sec",
    "tokens_per_sec",
    "e2e_mean_ms",
    "e2e_p90_ms",
    "e2e_p95_ms",
    "e2e_p99_ms",
    "ttft_mean_ms",
    "ttft_p90_ms",
    "ttft_p95_ms",
    "ttft_p99_ms",
    "itl_mean_ms",
    "itl_p90_ms",
    "itl_p95_ms",
    "itl_p99_ms",
    "scheduling_delay_p99_ms",
    "preemption_count",
    "dropped_unservable",
    "length_capped_requests",
    "timed_out_requests",
];

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A folder with a recorded trace, removed when the test ends.
struct Folder(Scratch);

impl Folder {
    fn new() -> Self {
        let folder = Scratch::new();
        let header = "trace_version: 3\ntime_unit: microseconds\n";
        let columns = "request_id,client_id,tenant_id,slo_class,session_id,round_index,prefix_group,prefix_length,\
                       streaming,input_tokens,output_tokens,text_tokens,image_tokens,audio_tokens,video_tokens,\
                       reason_ratio,model,deadline_us,server_input_tokens,arrival_time_us,send_time_us,\
                       first_chunk_time_us,last_chunk_time_us,num_chunks,status,error_message,finish_reason\n";
        let rows: String = (0..30)
            .map(|id| format!("{id},c,,,,0,,0,false,200,20,0,0,0,0,0,,0,0,{},0,0,0,0,ok,,\n", id * 10_000))
            .collect();
        folder.write("t.yaml", header);
        folder.write("t.csv", format!("{columns}{rows}"));
        Self(folder)
    }

    fn replay(&self) -> String {
        let at = self.0.display();
        format!("replay --model llama-3.1-8b-instruct --trace-header {at}/t.yaml --trace-data {at}/t.csv")
    }
}

#[test]
fn piped_output_is_one_json_document() {
    let folder = Folder::new();
    for command in [RUN.to_owned(), folder.replay()] {
        for form in ["", "--output auto", "--output json", "--log trace", "--no-progress --output json"] {
            let out = blis!(&format!("{command} {form}")).done().stdout;
            let document: Value =
                serde_json::from_str(&out).unwrap_or_else(|error| panic!("{command} {form}: {error}"));
            assert_eq!(document["completed_requests"], 30);
            let keys = out.lines().filter_map(|line| Some(line.strip_prefix("  \"")?.split_once('"')?.0));
            // What follows comes first, then what BLIS prints.
            let first = ["conclusion", "state"].into_iter().chain(PUBLISHED);
            assert!(keys.take(2 + PUBLISHED.len()).eq(first), "{out}");
            assert!(out.ends_with("}\n") && !out.contains('\x1b'));
        }
    }
}

#[test]
fn the_summary_is_plain_text_away_from_a_terminal() {
    let out = blis!(&format!("{RUN} --output text")).done();
    let (summary, aside) = (out.stdout, out.stderr);
    assert!(serde_json::from_str::<Value>(&summary).is_err() && !summary.contains('\x1b'), "{summary}");
    for name in ["Model", "KV cache", "Requests", "Throughput", "Latency, ms", "TTFT", "E2E"] {
        assert!(summary.lines().any(|line| line.starts_with(name)), "{name}\n{summary}");
    }
    assert!(aside.starts_with("simulated in ") && !summary.contains("CPU"), "speed is no result: {aside}");
}

#[test]
fn same_inputs_same_bytes() {
    let folder = Folder::new();
    for command in [RUN.to_owned(), folder.replay()] {
        let files = |name: &str| ["metrics", "results"].map(|kind| folder.0.join(format!("{kind}-{name}.json")));
        let run = |name: &str, change: &dyn Fn(&mut Command)| {
            let [metrics, results] = files(name);
            let mut program = program!(command);
            program.arg("--metrics-path").arg(&metrics);
            if command.starts_with("replay") {
                program.arg("--results-path").arg(&results);
            }
            change(&mut program);
            let printed = ended(&mut program).done().stdout;
            (printed, fs::read(metrics).expect("written"), fs::read(results).unwrap_or_default())
        };
        let expected = run("one", &|_| ());
        let elsewhere = run("two", &|program| {
            program.current_dir(Path::new("/")).env_clear().env("HOME", "/nonexistent").env("LANG", "tr_TR.UTF-8");
        });
        let coloured = run("three", &|program| {
            program.env("NO_COLOR", "1").env("CLICOLOR_FORCE", "1").env("RUST_LOG", "trace").env("TZ", "Asia/Tokyo");
        });
        assert!(elsewhere == expected && coloured == expected, "{command}");
    }
}

#[test]
fn lists_pipe_cleanly() {
    for (list, least) in [("models", 30), ("hardware", 5)] {
        let out = blis!(format!("{list} --output text")).done();
        let lines = &out.stdout;
        assert!(lines.lines().count() >= least && !lines.contains('\x1b') && out.stderr.is_empty(), "{lines}");
        let names: Vec<&str> = lines.lines().filter_map(|line| line.split_whitespace().next()).collect();
        assert!(names.len() >= least && lines.lines().all(|line| line == line.trim_end()), "{lines}");
        assert!(lines.lines().all(|line| line.chars().count() <= 80), "{lines}");
    }
}

#[test]
fn every_listed_name_works() {
    let names = |list: &str| {
        let list = blis!(list).json();
        let entries = list.as_array().expect("a list").clone();
        entries.iter().map(|entry| entry["name"].as_str().expect("a name").to_owned()).collect::<Vec<_>>()
    };
    for model in names("models") {
        blis!(&format!("run --model {model} --num-requests 2")).done();
    }
    for gpu in names("hardware") {
        blis!(&format!("run --model llama-3.1-8b-instruct --hardware {gpu} --num-requests 2")).done();
    }
}

/// The examples of the help pages are checked as well, by tests/help_examples.rs.
#[test]
fn text_fits_eighty_columns() {
    let folder = Scratch::new();
    let model = "--model llama-3.1-8b-instruct";
    let many = format!("{model} --num-requests 40 --arrival-process poisson --rate 400 --num-instances 32");
    let classes = "--slo-ttft critical=1ms,standard=20s --fitness-weights goodput:1";
    let tight = "--total-kv-blocks 200 --prompt-tokens 900 --output-tokens 200";
    let trace = format!("--trace-level decisions --trace-path {}", folder.path("a.jsonl"));
    let other = format!("--trace-level decisions --routing-policy weighted --trace-path {}", folder.path("b.jsonl"));
    let long_name = format!("a-policy-with-a-name-that-{}.rhai", "goes-on-and-on-".repeat(4));
    fs::copy(root().join("policies/rhai-least-loaded.rhai"), folder.join(&long_name)).expect("a shipped script");
    let long = folder.path(&long_name);
    let lines = [
        format!("run {many} {tight} {classes} {trace} --summarize-trace"),
        format!("run {many} {tight} {other}"),
        format!("run {many} --regret outcome"),
        format!("run {many} --explain-config"),
        format!("run {model} --latency-model blackbox --num-requests 5 --explain-config"),
        "run --model qwen/qwen3-14b --num-requests 1000 --rate 1000000 --max-model-len 1000".to_owned(),
        format!("compare round-robin least-loaded {many} --seeds 3"),
        format!("compare round-robin least-loaded weighted {long} {many} --seeds 3 {classes}"),
        format!("compare {long} round-robin {many} {tight} --seeds 1"),
        format!("regret {model} --num-instances 4 --num-requests 60 --rate 40 --look-ahead --bound"),
        format!("decisions show {}", folder.path("a.jsonl")),
        format!("decisions show {} --request 7", folder.path("a.jsonl")),
        format!("decisions top {} --by score-regret", folder.path("b.jsonl")),
        format!("decisions top {} --by wait", folder.path("a.jsonl")),
        format!("decisions diff {} {}", folder.path("a.jsonl"), folder.path("b.jsonl")),
        format!("plugin replay round-robin {} --limit 2", folder.path("b.jsonl")),
        format!("plugin list --policy-dir {}", folder.display()),
        format!("plugin check {long} weighted policies/learned-latency.wasm"),
        "plugin bench weighted".to_owned(),
        "models".to_owned(),
        "hardware".to_owned(),
        "workload inspect examples/workload-spec/mixed.yaml".to_owned(),
        "workload inspect examples/cluster-routing/assistants.jsonl".to_owned(),
    ];
    for line in &lines {
        let form = if line.contains("--explain-config") { "" } else { " --output text" };
        assert_fits(line, &blis!(format!("{line}{form}")).done().stdout);
    }
}

#[test]
fn short_help_is_shorter() {
    for command in ["run", "replay"] {
        let lines = |flag: &str| blis!(&format!("{command} {flag}")).done().stdout.lines().count();
        assert!(lines("-h") < lines("--help") * 3 / 4, "{command}");
    }
}

/// On a terminal: a summary in bold, and a bar while something takes long, which tests say how long is.
#[cfg(target_os = "linux")]
#[test]
fn a_terminal_gets_a_summary_and_a_bar() {
    let on_terminal = |flags: &str, after_ms: &str| {
        let line = format!("{} {flags}", env!("CARGO_BIN_EXE_blis"));
        let mut script = Command::new("script");
        script.args(["-qec", &line, "/dev/null"]).env("TERM", "xterm").env_remove("NO_COLOR").stdin(Stdio::null());
        let script = script.env("BLIS_PROGRESS_AFTER_MS", after_ms).output();
        script.map(|output| text(&output.stdout))
    };
    let many = "run --model llama-3.1-8b-instruct --num-requests 3000";
    // A day.
    let Ok(short) = on_terminal(many, "86400000") else {
        eprintln!("skipped: there is no `script` to make a terminal");
        return;
    };
    assert!(short.contains("\x1b[1mModel") && !short.contains(" s left"), "{short}");
    let bar = on_terminal(many, "0").expect("as before");
    assert!(bar.contains("/3") && bar.contains(" s left"), "{bar}");
    let quiet = on_terminal(&format!("{many} --no-progress"), "0").expect("as before");
    assert!(!quiet.contains(" s left") && quiet.contains("Throughput"), "{quiet}");
}

/// Messages are wrapped where standard error is a terminal, but excerpts are not.
#[cfg(target_os = "linux")]
#[test]
fn messages_fit_a_terminal() {
    let folder = Scratch::new();
    let long_line =
        format!("routing: {{policy: weighted, scorers: [{}]}}", "{name: queue-depht, weight: 1}, ".repeat(3));
    let bundle = folder.write("bundle.yaml", &long_line);
    let on_terminal = |line: &str| {
        let line = format!("{} {line} > /dev/null", env!("CARGO_BIN_EXE_blis"));
        let mut script = Command::new("script");
        script.args(["-qec", &line, "/dev/null"]).env("TERM", "xterm").env("NO_COLOR", "1").stdin(Stdio::null());
        script.current_dir(root()).output().map(|output| text(&output.stdout).replace('\r', ""))
    };
    let run = "run --model qwen/qwen3-14b --num-requests 5";
    let Ok(refused) = on_terminal("run --model gpt-4") else {
        eprintln!("skipped: there is no `script` to make a terminal");
        return;
    };
    let warned = on_terminal(&format!("{run} --trace-level decisions")).expect("as before");
    for (what, message) in [("error", &refused), ("WARN", &warned)] {
        assert!(message.contains(what) && message.lines().count() > 1, "{message}");
        assert_fits(what, message);
    }
    let located = on_terminal(&format!("{run} --policy-config {}", bundle.display())).expect("as before");
    let lines: Vec<&str> = located.lines().collect();
    let excerpt =
        lines.iter().position(|line| line.contains("1 | ")).unwrap_or_else(|| panic!("no excerpt: {located}"));
    assert!(lines[excerpt].len() > 80 && lines[excerpt + 1].trim_end().ends_with('^'), "{located}");
    let piped = blis!("run --model gpt-4").refused();
    assert_eq!(piped.lines().count(), 2, "a pipe gets whole lines: {piped}");
}
