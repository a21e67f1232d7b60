//! Flags of workloads and traces.

use super::*;

pub(super) fn workload(t: &Trial) {
    for (name, input, output) in
        [("chatbot", 256, 256), ("summarization", 4096, 512), ("contentgen", 1024, 1024), ("multidoc", 10_240, 1_536)]
    {
        let (figures, _) = t.generated(&format!("{{}} {name} --num-requests 50 --timeout -1"));
        let [ours_in, ours_out] = ["total_input_tokens", "total_output_tokens"].map(|key| number(&figures, key) / 50.0);
        assert!((ours_in / f64::from(input) - 1.0).abs() < 0.2, "{name}: {ours_in}");
        assert!((ours_out / f64::from(output) - 1.0).abs() < 0.2, "{name}: {ours_out}");
    }
    for (name, classes) in [("bursty", 1), ("unfair-tenants", 2), ("prefix-heavy", 2), ("mixed-slo", 3)] {
        let (figures, _) = t.generated(&format!("{{}} {name} --num-requests 50 --rate 5"));
        assert_eq!(figures["slo_classes"].as_object().map(|all| all.len()), Some(classes), "{name}: {figures}");
    }
    for (name, input) in [("reasoning", 1_000), ("summarization-rag", 15_000), ("synthetic-data", 500)] {
        let (_, requests) = t.generated(&format!("{{}} {name} --num-requests 400 --timeout -1 --horizon 1000000000"));
        let own = |request: &Value| number(request, "num_prefill_tokens");
        let mean = requests.iter().map(own).sum::<f64>() / requests.len() as f64;
        assert!((mean / f64::from(input) - 1.0).abs() < 0.25, "{name}: {mean}");
    }
    assert_eq!(t.bare("{} distribution").stdout, t.bare("").stdout);
    assert!(t.bare("{} traces").stderr.contains("needs a trace"));
}

pub(super) const SPEC: &str = "\
version: 2
seed: 5
aggregate_rate: 10
num_requests: 40
goodput_slo_targets: { critical: { e2e_ms: 600000 } }
clients:
  - id: chat
    tenant_id: acme
    slo_class: critical
    rate_fraction: 3
    prefix_group: g
    prefix_length: 160
    arrival: { process: constant }
    input_distribution: { type: constant, params: { value: 40 } }
    output_distribution: { type: constant, params: { value: 20 } }
  - id: batch
    slo_class: batch
    rate_fraction: 1
    arrival: { process: poisson }
    input_distribution: { type: exponential, params: { mean: 300 } }
    output_distribution: { type: constant, params: { value: 50 } }
";

pub(super) fn workload_spec(t: &Trial) {
    let path = t.file("spec.yaml", SPEC);
    let requests = |flags: &str| t.generated(&format!("{{}} {path} {flags}"));
    let (figures, all) = requests("");
    let chat: Vec<&Value> = all.iter().filter(|request| request["tenant_id"] == "acme").collect();
    assert!(all.len() == 40 && (25..=35).contains(&chat.len()), "{} of {}", chat.len(), all.len());
    assert!(chat.iter().all(|request| number(request, "num_prefill_tokens") == 200.0));
    assert_eq!(number(&figures, "slo_attainment"), 1.0);
    assert!(chat.iter().filter(|request| number(request, "num_cached_tokens") == 160.0).count() >= chat.len() - 2);
    // Flags win over the file.
    assert_eq!(requests("--num-requests 7").1.len(), 7);
    assert_eq!(requests("--seed 5").0, figures);
    assert_ne!(requests("--seed 6").0, figures);
    assert!(requests("--horizon 2000000").1.len() < 25);
    assert_eq!(number(&requests("--timeout 0.001").0, "timed_out_requests"), 40.0);
    // Contradictions are refused.
    assert!(t.bare(&format!("{{}} {path} --rate 3")).stderr.contains("`--rate` cannot be used with `--workload-spec`"));
    // Rounds wait for the output of the round before, unless that is turned off.
    let turns = "    reasoning: { multi_turn: { max_rounds: 2 } }\n";
    for (closed_loop, waits) in [("", true), ("    closed_loop: false\n", false)] {
        let path = t.file("turns.yaml", &format!("{SPEC}{turns}{closed_loop}"));
        let (figures, all) = t.generated(&format!("{{}} {path}"));
        let round = |round: f64| {
            let of = |request: &&Value| request["session_id"] == "sess_0" && number(request, "round_index") == round;
            all.iter().find(of).expect("both rounds")
        };
        let ended = number(round(0.0), "arrived_at") + number(round(0.0), "e2e_ms") / 1e3;
        assert_eq!(number(round(1.0), "arrived_at") >= ended - 1e-9, waits);
        assert_eq!(figures["sessions"]["completed"].is_u64(), waits, "states are those of closed loops");
    }
}

pub(super) const AZURE: &str = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.0000000,374,44\n\
                     2023-11-16 18:15:47.5000000,396,10\n";

pub(super) fn workload_trace(t: &Trial) {
    t.file("azure.csv", AZURE);
    let figures = t.json(&t.bare("{} {dir}/azure.csv"));
    assert_eq!(number(&figures, "injected_requests"), 2.0);
    assert_eq!(number(&figures, "total_input_tokens"), 770.0);
}

pub(super) fn trace_format(t: &Trial) {
    t.file("azure.csv", AZURE);
    let with = |format: &str| t.bare(&format!("--workload-trace {{dir}}/azure.csv {{}} {format}"));
    assert_eq!(with("azure").stdout, with("auto").stdout);
    for other in [
        "blis-csv",
        "mooncake",
        "trace-v2",
        "bailian",
        "burstgpt",
        "vllm-bench",
        "sglang-bench",
        "aiperf",
        "guidellm",
        "otel",
        "vllm-vcr",
        "csv",
        "sharegpt",
    ] {
        assert_eq!(with(other).code, Some(2), "read as {other}");
    }
}

pub(super) fn mooncake_block_size(t: &Trial) {
    let line = |at: u32| {
        format!("{{\"timestamp\": {at}, \"input_length\": 1024, \"output_length\": 5, \"hash_ids\": [1, 2]}}\n")
    };
    t.file("m.jsonl", &(line(0) + line(1_000).as_str()));
    let hits = |flags: &str| {
        t.json(&t.bare(&format!("--workload-trace {{dir}}/m.jsonl {flags} --metrics-path {{dir}}/m.json")));
        let metrics: Value = serde_json::from_slice(&fs::read(t.folder.join("m.json")).expect("file")).expect("JSON");
        number(&metrics, "cache_hit_rate")
    };
    assert_eq!(hits("{} 512"), hits(""));
    assert!(hits("{} 512") > 0.0);
    let message = t.bare("--workload-trace {dir}/m.jsonl {} 1024");
    assert!(message.stderr.contains("2 `hash_ids`, but 1024 tokens are 1 blocks of 1024"), "{}", message.stderr);
}

/// When the requests of [`calm`] arrive, s: 20 from 0.001 on, 0.1 apart.
pub(super) fn arrivals(t: &Trial, flags: &str) -> Vec<f64> {
    let metrics = t.metrics(&calm(), flags);
    metrics["requests"].as_array().expect("requests").iter().map(|request| number(request, "arrived_at")).collect()
}

pub(super) fn start(t: &Trial) {
    let late = arrivals(t, "{} 1.5");
    assert_eq!(late, [0.001, 0.101, 0.201, 0.301, 0.401]);
    assert_eq!(arrivals(t, "{} 0"), arrivals(t, ""));
    assert!(t.error(&calm(), "{} 7").contains("no request arrives from 7 s on; the last one arrives at 1.901 s"));
    assert!(t.error(&calm(), "{} -1").contains("or a number of seconds"));
}

pub(super) fn duration(t: &Trial) {
    assert_eq!(arrivals(t, "{} 0.25"), [0.001, 0.101, 0.201]);
    assert_eq!(arrivals(t, "--start 0.1 {} 0.2"), [0.001, 0.101]);
    assert!(t.error(&calm(), "{} 0").contains("or a number of seconds from 0.000001"));
}

pub(super) fn time_scale(t: &Trial) {
    let (usual, slow) = (arrivals(t, ""), arrivals(t, "{} 2.5"));
    assert!(usual.iter().zip(&slow).all(|(usual, slow)| (slow - 2.5 * usual).abs() < 2e-6));
    assert!(t.error(&calm(), "{} 0").contains("must be a number from 0.000001"));
}

pub(super) fn repeat(t: &Trial) {
    let (once, twice) = (arrivals(t, ""), arrivals(t, "{} 2"));
    assert_eq!((once.len(), twice.len()), (20, 40));
    assert_eq!(twice[..20], once);
    // The second pass follows one interval behind the first.
    assert!((twice[20] - twice[19] - 0.1).abs() < 0.002, "{twice:?}");
}

pub(super) fn spread_bins(t: &Trial) {
    let at_once = rows(4, 0, ROW);
    let metrics = t.metrics(&at_once, "{} 400");
    let all = metrics["requests"].as_array().expect("requests").clone();
    let all: Vec<f64> = all.iter().map(|request| number(request, "arrived_at")).collect();
    assert_eq!(all, [0.001, 0.101, 0.201, 0.301]);
}

pub(super) fn max_requests(t: &Trial) {
    assert_eq!(arrivals(t, "{} 3"), [0.001, 0.101, 0.201]);
    assert_eq!(arrivals(t, "--start 0.05 --repeat 2 {} 25").len(), 25);
    assert!(t.error(&calm(), "{} 0").contains("must be a whole number from 1"));
}

pub(super) fn skip_bad_lines(t: &Trial) {
    let good = trace(&calm());
    let broken = good.replacen(",false,300,50,", ",false,many,50,", 1);
    t.file("bad.yaml", "trace_version: 3\ntime_unit: microseconds\n");
    t.file("bad.csv", &broken);
    let trace = match t.command {
        "run" => "--workload-trace {dir}/bad.csv",
        _ => "--trace-header {dir}/bad.yaml --trace-data {dir}/bad.csv",
    };
    let strict = t.bare(trace);
    assert_eq!(strict.code, Some(2));
    assert!(strict.stderr.contains("bad.csv:2:"), "{}", strict.stderr);
    let lenient = t.bare(&format!("{trace} {{}}"));
    assert_eq!(number(&t.json(&lenient), "completed_requests"), 19.0);
    assert!(lenient.stderr.contains("1 line of the trace left out"), "{}", lenient.stderr);
}

pub(super) fn timeout(t: &Trial) {
    let timed_out = |flags: &str| number(&t.json(&t.bare(flags)), "timed_out_requests");
    assert_eq!(timed_out("--max-num-seqs 1 --rate 100 {} -1"), 0.0);
    assert!(timed_out("--max-num-seqs 1 --rate 100 {} 5") > timed_out("--max-num-seqs 1 --rate 100 {} 50"));
    t.file("azure.csv", AZURE);
    assert_eq!(timed_out("--workload-trace {dir}/azure.csv {} 0.05"), 2.0, "a trace takes it too");
}

pub(super) fn rate(t: &Trial) {
    let figures = |flags: &str| t.json(&t.bare(flags));
    let (slow, fast) = (figures("{} 1"), figures("{} 10"));
    assert!(number(&fast, "responses_per_sec") > 5.0 * number(&slow, "responses_per_sec"));
    assert!(number(&fast, "ttft_mean_ms") > number(&slow, "ttft_mean_ms"));
}

/// Requests in service at the same time, at most.
pub(super) fn at_once(requests: &[Value]) -> usize {
    let span = |r: &Value| (number(r, "arrived_at"), number(r, "arrived_at") + number(r, "e2e_ms") / 1e3 - 1e-6);
    let spans: Vec<(f64, f64)> = requests.iter().map(span).collect();
    let during = |time: f64| spans.iter().filter(|&&(start, end)| start <= time && time < end).count();
    spans.iter().map(|&(start, _)| during(start)).max().unwrap_or(0)
}

pub(super) fn concurrency(t: &Trial) {
    let (figures, requests) = t.generated("{} 7 --num-requests 60");
    assert_eq!((requests.len(), at_once(&requests)), (60, 7));
    assert_eq!(figures["sessions"]["budget_exhausted"], 7);
    let (_, chats) = t.generated("{} 3 --horizon 20000000 --workload chatbot --prefix-tokens 160");
    assert!(chats.len() > 12 && at_once(&chats) == 3, "until the horizon");
    assert!(chats.iter().all(|request| (162.0..=960.0).contains(&number(request, "num_prefill_tokens"))));
    let message = |flags: &str| {
        let output = t.bare(flags);
        assert_eq!(output.code, Some(2), "{flags}");
        output.stderr
    };
    assert!(
        message("{} 3 --num-requests 9 --rate 2").contains("`--rate` cannot be used with `--concurrency`"),
        "{}",
        message("{} 3 --rate 2")
    );
    assert!(message("{} 3").contains("`--concurrency` needs an end"));
    assert!(
        message("{} 3 --num-requests 9 --workload bursty")
            .contains("cannot be used with a `--workload` of several clients")
    );
    assert!(message("{} 3 --num-requests 9 --arrival-process poisson").contains("cannot be used with `--concurrency`"));
}

pub(super) fn think_time_of_users(t: &Trial) {
    let pauses = |flags: &str| {
        let (_, requests) = t.generated(&format!("--concurrency 2 --num-requests 20 {flags}"));
        let of_one = requests.iter().filter(|request| request["session_id"] == "sess_0").collect::<Vec<_>>();
        let ended = |r: &Value| number(r, "arrived_at") + number(r, "e2e_ms") / 1e3;
        of_one.windows(2).map(|pair| number(pair[1], "arrived_at") - ended(pair[0])).collect::<Vec<f64>>()
    };
    for (flags, pause) in [("", 0.0), ("{} 0", 0.0), ("{} 1500", 1.5)] {
        assert!(pauses(flags).iter().all(|seconds| (seconds - pause).abs() < 1e-5), "{flags}: {:?}", pauses(flags));
    }
    assert!(t.bare("{} 5").stderr.contains("needs `--concurrency`"), "it is needed");
}

pub(super) fn arrival_process(t: &Trial) {
    let gaps = |name: &str| {
        let (_, requests) = t.generated(&format!("{{}} {name} --rate 10"));
        let mut times: Vec<u64> = requests.iter().map(|r| (number(r, "arrived_at") * 1e6).round() as u64).collect();
        times.sort_unstable();
        times.windows(2).map(|pair| pair[1] - pair[0]).collect::<BTreeSet<_>>().len()
    };
    assert_eq!(gaps("constant"), 1);
    assert!(gaps("poisson") > 90);
}

pub(super) fn num_requests(t: &Trial) {
    let injected = |flags: &str| number(&t.json(&t.bare(flags)), "injected_requests");
    assert_eq!((injected("{} 7"), injected("")), (7.0, 100.0));
    assert!(injected("{} 0 --horizon 10000000 --rate 5") > 40.0, "as many as arrive");
}

pub(super) fn prefix_tokens(t: &Trial) {
    let (none, _) = t.generated("--num-requests 50");
    let (some, requests) = t.generated("--num-requests 50 {} 320");
    assert_eq!(number(&some, "total_input_tokens"), number(&none, "total_input_tokens") + 50.0 * 320.0);
    assert!(requests.iter().filter(|r| number(r, "num_cached_tokens") == 320.0).count() >= 48);
}

pub(super) fn trace_header(t: &Trial) {
    let figures = t.figures(&calm(), "");
    assert_eq!(number(&figures, "completed_requests"), 20.0);
    t.file("other.yaml", "trace_version: 2\n");
    let message = t.bare("{} {dir}/other.yaml --trace-data {dir}/t.csv").stderr;
    assert!(message.contains("trace_version"), "{message}");
}

pub(super) fn trace_data(t: &Trial) {
    t.figures(&calm(), "");
    t.file("other.csv", &trace(&rows(5, 10, ROW)));
    let figures = t.json(&t.bare("--trace-header {dir}/t.yaml {} {dir}/other.csv"));
    assert_eq!(number(&figures, "completed_requests"), 5.0);
}

/// A round that has only the delay after the output of the round before.
pub(super) fn session_mode_of_a_trace(t: &Trial) {
    let line =
        |when: &str| format!("{{\"session_id\": \"s\", {when}, \"input_length\": 100, \"output_length\": 100}}\n");
    t.file("turns.jsonl", &(line("\"timestamp\": 0") + line("\"delay\": 3000").as_str()));
    let path = t.folder.join("turns.json");
    let flags = format!("--workload-trace {{dir}}/turns.jsonl --metrics-path {}", path.display());
    let fixed = t.bare(&format!("{{}} fixed {flags}")).stderr;
    assert!(fixed.contains("turns.jsonl:2:") && fixed.contains("--session-mode closed-loop"), "{fixed}");
    let summary = t.json(&t.bare(&format!("{{}} closed-loop {flags}")));
    assert_eq!(summary["sessions"]["completed"], 1);
    let metrics: Value = serde_json::from_slice(&fs::read(&path).expect("written")).expect("JSON");
    let waited = of_request(&metrics, 1, "arrived_at") - of_request(&metrics, 0, "e2e_ms") / 1e3;
    assert!((waited - 3.0).abs() < 1e-5, "{waited}");
    t.file("azure.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,10,5\n");
    let message = t.bare("{} closed-loop --workload-trace {dir}/azure.csv").stderr;
    assert!(message.contains("closed loop is for mooncake and trace-v2"), "{message}");
    let message = t.bare("{} closed-loop --workload-trace {dir}/turns.jsonl --repeat 2").stderr;
    assert!(message.contains("`--repeat` cannot be used with `--session-mode closed-loop`"), "{message}");
    assert!(t.bare("{} closed-loop").stderr.contains("needs `--workload-trace`"));
}

/// Two sessions of three rounds, recorded 0.1 s apart: less than the latency of a round.
pub(super) fn conversations(t: &Trial, flags: &str) -> Value {
    let rows = rows(6, 100_000, Row { output: 100, ..ROW });
    let round = |line: &str, index: usize| match index {
        0 => line.to_owned(),
        _ => line.replacen(",c,,,,0,", &format!(",c,,,s{},{},", (index - 1) % 2, (index - 1) / 2), 1),
    };
    let csv: Vec<String> = trace(&rows).lines().enumerate().map(|(index, line)| round(line, index)).collect();
    t.file("s.yaml", "trace_version: 3\ntime_unit: microseconds\n");
    t.file("s.csv", &(csv.join("\n") + "\n"));
    let path = t.folder.join("all.json");
    let files = "--trace-header {dir}/s.yaml --trace-data {dir}/s.csv";
    t.json(&t.bare(&format!("{files} {flags} --metrics-path {}", path.display())));
    serde_json::from_slice(&fs::read(path).expect("written")).expect("JSON")
}

/// Time from the end of each output to the next prompt, s.
pub(super) fn thinking(metrics: &Value) -> Vec<f64> {
    let time = |id: u32| of_request(metrics, id, "arrived_at");
    (2..6).map(|id| time(id) - time(id - 2) - of_request(metrics, id - 2, "e2e_ms") / 1e3).collect()
}

pub(super) fn session_mode(t: &Trial) {
    let fixed = conversations(t, "");
    assert_eq!(fixed, conversations(t, "{} fixed"));
    assert_eq!((&fixed["sessions"]["count"], &fixed["sessions"]["completed"]), (&2.into(), &Value::Null));
    assert!(
        thinking(&fixed).iter().all(|&seconds| seconds < 0.0),
        "the next prompt arrives before the end of the output"
    );
    let waiting = conversations(t, "{} closed-loop");
    assert_eq!(waiting["sessions"]["completed"], 2);
    assert!(thinking(&waiting).iter().all(|seconds| (seconds - 0.2).abs() < 1e-5), "{:?}", thinking(&waiting));
}

pub(super) fn think_time_ms(t: &Trial) {
    let waiting = thinking(&conversations(t, "--session-mode closed-loop {} 700"));
    assert!(waiting.iter().all(|seconds| (seconds - 0.7).abs() < 1e-5), "{waiting:?}");
    assert!(t.error(&calm(), "{} 700").contains("or `--session-mode closed-loop` with"));
    for flags in ["--repeat 2", "--start 1", "--duration 1", "--time-scale 2", "--spread-bins 10"] {
        let message = t.error(&calm(), &format!("--session-mode closed-loop {flags} {{}} 700"));
        assert!(message.contains("cannot be used with `--session-mode closed-loop`"), "{message}");
    }
}

pub(super) fn think_time_dist(t: &Trial) {
    let drawn = |seed: u32| {
        let flags = "--session-mode closed-loop {} lognormal:mu=1.0,sigma=0.5,min=2s,max=4s";
        thinking(&conversations(t, &format!("{flags} --seed {seed}")))
    };
    let (one, other) = (drawn(1), drawn(2));
    assert!(one.iter().chain(&other).all(|seconds| (1.99..4.01).contains(seconds)), "{one:?} {other:?}");
    assert_eq!(one, drawn(1));
    assert_ne!(one, other);
    assert!(t.error(&calm(), "{} lognormal:mu=1").contains("`mu` and `sigma` are needed"));
}
