//! What the program says when it is asked for something that makes no sense: one error that says
//! what, where and what to do, exit code 2, and nothing simulated. The snapshot is there to be read.
//!
//! What is merely extreme is simulated: it ends, and every request is accounted for.

use std::fs;
use std::io::Write as _;
use std::process::Stdio;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::Value;

use crate::macros::{Ended, Scratch, blis, program};

const AZURE: &str = "TIMESTAMP,ContextTokens,GeneratedTokens\n";
const MODEL: &str = "--model llama-3.1-8b-instruct";

/// A folder with invalid files of every kind; the program runs in it.
struct Folder(Scratch);

impl Folder {
    fn new() -> Self {
        let folder = Scratch::new();
        fs::create_dir_all(folder.join("folder")).expect("scratch");
        Self(folder)
    }

    fn file(&self, name: &str, content: impl AsRef<[u8]>) {
        self.0.write(name, content);
    }

    fn blis(&self, arguments: &[&str]) -> Ended {
        blis!(in &self.0, arguments)
    }

    /// `blis run` on the usual model. `''` is an empty word.
    fn run(&self, flags: &str) -> Ended {
        let line = format!("run {MODEL} {flags}");
        self.blis(&line.split_whitespace().map(|word| if word == "''" { "" } else { word }).collect::<Vec<_>>())
    }

    fn traces(&self) {
        let row = "2023-11-16 18:15:46.6805900,374,44\n";
        self.file("empty.csv", "");
        self.file("blank.csv", "\n\n \n");
        self.file("header.csv", AZURE);
        self.file("binary.csv", [0, 159, 146, 150, 0, 1, 2, 3]);
        self.file("other.csv", "a,b,c\n1,2,3\n");
        self.file("utf8.csv", [AZURE.as_bytes(), b"2023-11-16 18:15:46.68,3\xff4,44\n"].concat());
        self.file("columns.csv", format!("{AZURE}{row}2023-11-16 18:15:47,3,44,5\n"));
        self.file("negative.csv", format!("{AZURE}{row}2023-11-16 18:15:47,-3,44\n"));
        self.file("huge.csv", format!("{AZURE}{row}2023-11-16 18:15:47,3,99999999999999999999\n"));
        self.file("time.csv", format!("{AZURE}{row}yesterday,3,4\n"));
        self.file("nan.jsonl", "{\"timestamp\": NaN, \"input_length\": 1, \"output_length\": 1}\n");
        self.file("1e400.jsonl", "{\"timestamp\": 1e400, \"input_length\": 1, \"output_length\": 1}\n");
        self.file("cut.jsonl", "{\"timestamp\": 0, \"input_length\": 1,");
        self.file("header.yaml", "trace_version: 3\ntime_unit: microseconds\n");
        self.file("old.yaml", "trace_version: 2\ntime_unit: microseconds\n");
        self.file("key.yaml", "trace_version: 3\ntime_units: microseconds\n");
        self.file("broken.yaml", "trace_version: [3\n");
        let mut compressed = GzEncoder::new(Vec::new(), Compression::fast());
        let rows: String = (0..5_000).map(|n| format!("2023-11-16 18:15:46,{},44\n", n * 7919 % 997 + 1)).collect();
        compressed.write_all(format!("{AZURE}{rows}").as_bytes()).expect("in memory");
        let compressed = compressed.finish().expect("in memory");
        self.file("cut.csv.gz", &compressed[..compressed.len() / 2]);
        let mut damaged = compressed;
        let middle = damaged.len() / 2;
        damaged[middle..middle + 64].fill(0xff);
        self.file("damaged.csv.gz", damaged);
    }

    fn bundles(&self) {
        for (name, text) in [
            ("empty", ""),
            ("list", "- admission\n"),
            ("binary", "\u{1}"),
            ("cut", "routing: {policy: weighted\n"),
            ("key", "routing:\n  polciy: weighted\n"),
            ("twice", "scheduler: fcfs\nscheduler: sjf\n"),
            ("pools", "node_pools:\n  - {name: a, gpu_type: H100}\n"),
            ("admission", "admission: {policy: tier-shd}\n"),
            ("routing", "routing: {policy: least_loaded}\n"),
            ("priority", "priority: {policy: slo}\n"),
            ("scheduler", "scheduler: {policy: fcfs}\n"),
            ("threshold", "admission: {policy: tier-shed, tier_shed_threshold: -1}\n"),
            ("class-priority", "admission:\n  slo_priorities:\n    batch: 101\n"),
            ("bucket", "admission: {policy: token-bucket, token_bucket_capacity: 0}\n"),
            ("gaie", "admission: {policy: gaie-legacy, gaie_kv_threshold: 1.5}\n"),
            ("owner", "admission: {policy: tier-shed, gaie_qd_threshold: 5}\n"),
            ("budget", "tenant_budgets: {alice: 0.5, bob: 1.01}\n"),
            ("nan", "tenant_budgets: {alice: .nan}\n"),
            ("scorer", "routing:\n  policy: weighted\n  scorers:\n    - {name: queue-dpth, weight: 1}\n"),
            ("weight", "routing: {policy: weighted, scorers: [{name: queue-depth, weight: 0}]}\n"),
            ("weightless", "routing: {policy: weighted, scorers: [{name: queue-depth}]}\n"),
            (
                "same",
                "routing:\n  policy: weighted\n  scorers:\n    - {name: vllm-dp, weight: 1}\n    \
                 - {name: queue-depth, weight: 1}\n    - {name: vllm-dp, weight: 2}\n",
            ),
            ("no-scorer", "routing: {policy: weighted, scorers: []}\n"),
            ("both", "routing: {policy: weighted, cache_weight: 1, scorers: [{name: vllm-dp, weight: 1}]}\n"),
            ("unused", "routing: {policy: round-robin, scorers: [{name: vllm-dp, weight: 1}]}\n"),
        ] {
            self.file(&format!("{name}.yaml"), text);
        }
    }

    fn configurations(&self) {
        self.file("binary.yaml", [0, 159, 146, 150]);
        self.file("missing.yaml", "tflops_fp16: 100\n");
        self.file("negative.yaml", "tflops_fp16: 100\nhbm_tb_s: -1\nmemory_gib: 80\n");
        self.file("word.yaml", "tflops_fp16: 100\nhbm_tb_s: fast\n");
        self.file("unknown.yaml", "tflops_fp16: 100\nhbm_tb: 1\n");
        for (name, config) in [
            ("cut", "{"),
            ("list", "[1, 2]"),
            ("word", "{\n  \"hidden_size\": \"big\"\n}"),
            ("empty", "{}"),
            ("dtype", "{\"torch_dtype\": \"float7\"}"),
        ] {
            fs::create_dir_all(self.0.join(name)).expect("scratch");
            self.file(&format!("{name}/config.json"), config);
        }
    }
}

/// One error, one hint, exit code 2, nothing on standard output.
fn refused(line: &str, output: &Ended) -> String {
    let message = &output.stderr;
    assert_eq!(output.code, Some(2), "{line}: {message}");
    assert_eq!(output.stdout, "", "{line}");
    for start in ["error: ", "hint: "] {
        assert_eq!(message.lines().filter(|line| line.starts_with(start)).count(), 1, "{line}: {start}\n{message}");
    }
    assert!(
        message.starts_with("error: ") && !message.contains("panicked") && !message.contains("os error"),
        "{line}: {message}"
    );
    assert!(!message.chars().any(|c| c.is_control() && c != '\n'), "{line}: {message:?}");
    // Lists of everything known would change with every model.
    let message = message.lines().map(|line| line.split("known: codellama").next().unwrap_or(line)).collect::<Vec<_>>();
    format!("$ blis {line}\n{}\n", message.join("\n"))
}

#[test]
fn bad_flags_are_refused() {
    let folder = Folder::new();
    let flags = [
        "--rate -1",
        "--rate inf",
        "--rate 1e400",
        "--rate 1e308",
        "--rate 1e-300",
        "--rate ''",
        "--seed 1e3",
        "--seed ''",
        "--seed 18446744073709551616",
        "--horizon 0",
        "--horizon -5",
        "--horizon 9223372036854775808",
        "--timeout NaN",
        "--timeout 1e-9",
        "--tp ''",
        "--tp 3",
        "--tp 1024",
        "--dp 2",
        "--gpu ''",
        "--hardware H10",
        "--vllm-version ''",
        "--vllm-version 9",
        "--hardware L40S --latency-model blackbox",
        "--moe-comm-backend pplx",
        "--enable-expert-parallel",
        "--alpha-coeffs 1,2,3",
        "--alpha-coeffs '' --beta-coeffs 1,2,3",
        "--alpha-coeffs 1,2 --beta-coeffs 1,2,3",
        "--alpha-coeffs 1,2,3 --beta-coeffs 1,2",
        "--alpha-coeffs 1,2,3 --beta-coeffs 1e300,2,3",
        "--alpha-coeffs 1,2,3 --beta-coeffs 1,nan,3",
        "--latency-model roofline --alpha-coeffs 1,2,3 --beta-coeffs 1,2,3",
        "--latency-model trained-physics --alpha-coeffs 1,2,3 --beta-coeffs 1,2,3",
        "--total-kv-blocks -1",
        "--total-kv-blocks 4294967296",
        "--block-size 4294967295",
        "--block-size 0",
        "--max-model-len -2",
        "--max-num-seqs 0",
        "--max-num-batched-tokens 0",
        "--long-prefill-token-threshold -1",
        "--gpu-memory-utilization 0",
        "--gpu-memory-utilization NaN",
        "--gpu-memory-utilization 1e-9",
        "--num-requests 0",
        "--num-requests 0 --rate 1000000 --horizon 9223372036854775806",
        "--num-requests -1",
        "--prompt-tokens 0",
        "--prompt-tokens 1",
        "--prompt-tokens-min 0",
        "--output-tokens-stdev -1",
        "--prefix-tokens 4294967295",
        "--scheduling-policy priority --preemption-policy fcfs",
        "--num-instances 0",
        "--num-instances 65537",
        "--admission-latency -1",
        "--routing-latency 1e3",
        "--snapshot-refresh-interval 9223372036854775808",
        "--tie-break first",
        "--admission-policy token-buket",
        "--admission-policy token-bucket --token-bucket-capacity 0",
        "--token-bucket-refill-rate 5",
        "--routing-policy least-load",
        "--routing-policy weighted --routing-scorers queue-depth",
        "--routing-policy weighted --routing-scorers queue-depth:1,vllm-dp:-1",
        "--routing-policy weighted --routing-scorers queue-depth:1,queue-depth:2",
        "--routing-policy weighted --routing-scorers ''",
        "--routing-policy weighted --routing-cache-weight 0",
        "--routing-cache-weight 1",
        "--priority-policy urgent",
        "--slo-ttft default=0ms",
        "--slo-ttft default=-1s",
        "--slo-ttft default=300y",
        "--slo-ttft default=99999999h",
        "--slo-ttft 100",
        "--slo-itl default=10",
        "--slo-e2e default=1s,default=2s",
        "--counterfactual-k 3",
        "--counterfactual-k -1 --trace-level decisions",
        "--summarize-trace",
        "--trace-path d.jsonl",
        "--trace-level all",
        "--trace-level decisions --trace-path folder",
        "--trace-level decisions --trace-path missing/d.jsonl",
        "--trace-level decisions --trace-path d.json --metrics-path d.json",
        "--output xml",
        "--log loud",
        "--unknown",
        "surplus",
    ];
    let message: Vec<_> = flags.iter().map(|flags| refused(&format!("run {flags}"), &folder.run(flags))).collect();
    insta::assert_snapshot!(message.join("\n"));
    assert_eq!(fs::read_dir(&folder.0).expect("folder").count(), 1, "nothing is left behind");
}

#[test]
fn bad_files_are_refused() {
    let folder = Folder::new();
    folder.traces();
    folder.configurations();
    let flags = [
        "--workload-trace missing.csv",
        "--workload-trace folder",
        "--workload-trace ''",
        "--workload-trace empty.csv",
        "--workload-trace blank.csv",
        "--workload-trace header.csv",
        "--workload-trace binary.csv",
        "--workload-trace other.csv",
        "--workload-trace other.csv --trace-format azure",
        "--workload-trace utf8.csv",
        "--workload-trace utf8.csv --skip-bad-lines",
        "--workload-trace columns.csv",
        "--workload-trace negative.csv",
        "--workload-trace huge.csv",
        "--workload-trace time.csv",
        "--workload-trace nan.jsonl",
        "--workload-trace 1e400.jsonl",
        "--workload-trace cut.jsonl",
        "--workload-trace cut.csv.gz",
        "--workload-trace damaged.csv.gz",
        "--workload-trace header.yaml",
        "--hardware-config missing",
        "--hardware-config folder",
        "--hardware-config binary.yaml",
        "--hardware-config missing.yaml",
        "--hardware-config negative.yaml",
        "--hardware-config word.yaml",
        "--hardware-config unknown.yaml",
        "--model-config-folder missing",
        "--model-config-folder header.csv",
        "--model-config-folder cut",
        "--model-config-folder list",
        "--model-config-folder word",
        "--model-config-folder empty",
        "--model-config-folder dtype",
        "--metrics-path ''",
        "--metrics-path folder",
        "--metrics-path missing/m.json",
    ];
    let mut message: Vec<_> = flags.iter().map(|flags| refused(&format!("run {flags}"), &folder.run(flags))).collect();
    for header in ["missing.yaml2", "folder", "old.yaml", "key.yaml", "broken.yaml", "binary.yaml", "header.yaml"] {
        let line = format!("replay {MODEL} --trace-header {header} --trace-data header.csv");
        message.push(refused(&line, &folder.blis(&line.split_whitespace().collect::<Vec<_>>())));
    }
    insta::assert_snapshot!(message.join("\n"));
}

#[test]
fn bad_bundles_are_refused() {
    let folder = Folder::new();
    folder.bundles();
    let names = [
        "missing.yaml",
        "folder",
        "''",
        "empty.yaml",
        "list.yaml",
        "binary.yaml",
        "cut.yaml",
        "key.yaml",
        "twice.yaml",
        "pools.yaml",
        "admission.yaml",
        "routing.yaml",
        "priority.yaml",
        "scheduler.yaml",
        "threshold.yaml",
        "class-priority.yaml",
        "bucket.yaml",
        "gaie.yaml",
        "owner.yaml",
        "budget.yaml",
        "nan.yaml",
        "scorer.yaml",
        "weight.yaml",
        "weightless.yaml",
        "same.yaml",
        "no-scorer.yaml",
        "both.yaml",
        "unused.yaml",
    ];
    let message = names.map(|name| {
        let flags = format!("--policy-config {name}");
        refused(&format!("run {flags}"), &folder.run(&flags))
    });
    insta::assert_snapshot!(message.join("\n"));
}

#[test]
fn unknown_models_get_the_nearest_as_hint() {
    let folder = Folder::new();
    let names = ["", " ", "llama-3.1-8b-instrct", "meta-llama/Llama-3.1-9B", "gpt-4o", "../etc/passwd"];
    let message = names.map(|name| refused(&format!("run --model '{name}'"), &folder.blis(&["run", "--model", name])));
    insta::assert_snapshot!(message.join("\n"));
}

#[cfg(target_os = "linux")]
#[test]
fn a_folder_that_takes_no_file_is_known_before_the_run() {
    let output = Folder::new().run("--metrics-path /proc/metrics.json");
    assert_eq!((output.code, output.stdout.as_str()), (Some(2), ""));
    assert!(output.stderr.starts_with("error: cannot write `/proc/metrics.json`: its folder takes no file"));
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_costs_the_exit_code_and_not_the_results() {
    let output = Folder::new().run("--metrics-path /dev/full");
    assert_eq!(output.code, Some(1));
    assert!(serde_json::from_str::<Value>(&output.stdout).is_ok());
    assert!(output.stderr.starts_with("error: cannot write `/dev/full`: "), "{}", output.stderr);
}

/// Every request is somewhere, and no figure is absurd.
fn accounted_for(line: &str, output: &Ended) -> Value {
    assert_eq!(output.code, Some(0), "{line}: {}", output.stderr);
    let figures: Value = serde_json::from_str(&output.stdout).unwrap_or_else(|error| panic!("{line}: {error}"));
    let count = |key: &str| figures[key].as_u64().unwrap_or_else(|| panic!("{line}: {key}"));
    let ended = ["completed_requests", "still_queued", "still_running", "dropped_unservable", "timed_out_requests"];
    assert_eq!(ended.map(count).iter().sum::<u64>(), count("injected_requests"), "{line}");
    for (key, value) in figures.as_object().expect("an object") {
        // Latencies without samples are null.
        let is_absurd = value.as_f64().map_or(value.is_null() && !key.ends_with("_ms"), |number| number < 0.0);
        assert!(!is_absurd, "{line}: {key} is {value}");
    }
    figures
}

#[test]
fn extremes_are_simulated() {
    let folder = Folder::new();
    let table = [
        ("--horizon 1", "injected_requests", 0),
        ("--timeout 0.000001", "timed_out_requests", 20),
        ("--timeout 1e300", "completed_requests", 20),
        ("--max-model-len 1", "dropped_unservable", 20),
        ("--max-model-len 4294967295 --total-kv-blocks 100000", "completed_requests", 20),
        ("--block-size 1", "completed_requests", 20),
        ("--block-size 4096", "completed_requests", 20),
        ("--total-kv-blocks 4294967295", "completed_requests", 20),
        (
            "--max-num-batched-tokens 1 --timeout -1 --prompt-tokens 20 --prompt-tokens-stdev 2",
            "completed_requests",
            20,
        ),
        ("--max-num-seqs 1 --timeout -1", "completed_requests", 20),
        ("--max-num-seqs 4294967295 --max-num-batched-tokens 4294967295", "completed_requests", 20),
        ("--rate 1000000 --timeout -1", "completed_requests", 20),
        ("--rate 0.000001", "completed_requests", 20),
        ("--seed 18446744073709551615", "completed_requests", 20),
        ("--alpha-coeffs 0,0,0 --beta-coeffs 0,0,0", "completed_requests", 20),
        ("--alpha-coeffs 0,0,0 --beta-coeffs 1e12,1e12,1e12 --timeout -1", "injected_requests", 20),
        ("--num-requests 4294967295 --horizon 10000000", "injected_requests", 10),
    ];
    for (flags, key, expected) in table {
        for parity in ["vllm", "blis"] {
            let line = format!("--num-requests 20 {flags} --parity {parity}");
            let figures = accounted_for(&line, &folder.run(&line));
            let capped = flags.contains("4294967295 --horizon");
            assert!(capped || figures[key] == expected, "{line}: {key} is {}", figures[key]);
        }
    }
}

#[test]
fn marks_line_ends_and_order_do_not_matter() {
    let folder = Folder::new();
    let rows = ["2023-11-16 18:15:46.5,374,44", "2023-11-16 18:15:47.5,100,10", "2023-11-16 18:15:49,50,5"];
    folder.file("plain.csv", format!("{AZURE}{}\n", rows.join("\n")));
    folder.file("marks.csv", format!("\u{feff}{AZURE}{}\r\n\r\n", rows.join("\r\n")));
    folder.file("unsorted.csv", format!("{AZURE}{}", [rows[2], rows[0], rows[1]].join("\n")));
    let expected = accounted_for("plain", &folder.run("--workload-trace plain.csv"));
    for name in ["marks", "unsorted"] {
        assert_eq!(accounted_for(name, &folder.run(&format!("--workload-trace {name}.csv"))), expected, "{name}");
    }
    let message = folder.run("--workload-trace unsorted.csv --log info").stderr;
    assert!(message.contains("not in order of arrival; they were sorted"), "{message}");
}

#[test]
fn bad_lines_are_counted_when_they_are_skipped() {
    let folder = Folder::new();
    let row = "2023-11-16 18:15:46,374,44\n";
    folder.file("t.csv", format!("{AZURE}{row}bad\n{row}2023-11-16 18:15:46,-1,44\n{row}"));
    let output = folder.run("--workload-trace t.csv --skip-bad-lines");
    assert_eq!(accounted_for("t.csv", &output)["injected_requests"], 3);
    insta::assert_snapshot!(output.stderr, @" WARN 2 lines of the trace left out; the first: t.csv:3: 1 fields where the header has 3 (hint: without `--skip-bad-lines` a bad line ends the run)");
}

#[test]
fn requests_that_never_fit_are_refused_by_name() {
    let folder = Folder::new();
    let rows: String = (0..12).map(|n| format!("2023-11-16 18:15:46,{},44\n", 100 * (n + 1))).collect();
    folder.file("t.csv", format!("{AZURE}{rows}"));
    let table = [
        ("--max-model-len 500", 8),
        ("--total-kv-blocks 40", 6),
        ("--total-kv-blocks 40 --max-model-len 8192", 6),
        ("--total-kv-blocks 43 --max-model-len 8192 --parity blis", 6),
        ("--max-num-batched-tokens 1000 --no-enable-chunked-prefill", 3),
        ("--max-model-len 1", 12),
    ];
    let mut message = String::new();
    for (flags, refused) in table {
        let output = folder.run(&format!("--workload-trace t.csv {flags}"));
        let figures = accounted_for(flags, &output);
        message += &format!("$ blis run {flags}\n{}\n", output.stderr);
        assert_eq!(figures["dropped_unservable"], refused, "{message}");
    }
    insta::assert_snapshot!(message);
}

/// Whatever the cache, a run ends: with results, or with an error that shows the state.
#[test]
fn nothing_hangs_under_kv_pressure() {
    let folder = Folder::new();
    for parity in ["vllm", "blis"] {
        for blocks in [1, 2, 5, 10, 33, 60] {
            for more in [
                "",
                "--max-model-len 131072",
                "--async-scheduling",
                "--scheduler-reserve-full-isl",
                "--scheduling-policy priority",
            ] {
                let line = format!("--rate 100 --num-requests 60 --total-kv-blocks {blocks} --parity {parity} {more}");
                let output = folder.run(&line);
                match output.code {
                    Some(0) => {
                        let figures = accounted_for(&line, &output);
                        assert!(figures["still_running"] == 0 && figures["still_queued"] == 0, "{line}");
                    }
                    Some(1) => {
                        let message = &output.stderr;
                        assert!(
                            message.starts_with("error: no progress at ") && message.contains("\nhint: "),
                            "{line}: {message}"
                        );
                        assert!(output.stdout.is_empty() && parity == "blis", "{line}: {message}");
                    }
                    other => panic!("{line}: {other:?} {}", output.stderr),
                }
            }
        }
    }
    // Only a model of unknown context length lets a request in that cannot end.
    let flags =
        "run --model llama-4-maverick-17b-128e-instruct-fp8 --rate 100 --total-kv-blocks 10 --parity blis --timeout -1";
    let stuck = folder.blis(&flags.split_whitespace().collect::<Vec<_>>());
    assert_eq!(stuck.code, Some(1));
    insta::assert_snapshot!(stuck.stderr);
}

#[cfg(unix)]
#[test]
fn a_reader_that_leaves_early_is_no_error() {
    for arguments in
        ["models", "hardware", "run --model llama-3.1-8b-instruct", "run --model llama-3.1-8b-instruct --output text"]
    {
        let mut child = program!(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("blis starts");
        drop(child.stdout.take());
        let output = child.wait_with_output().expect("blis ends");
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && !message.contains("error"), "{arguments}: {message}");
    }
}
