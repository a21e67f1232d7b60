//! Every flag of `blis run` and `blis replay` does something: for each flag, under each of its
//! names, the real program runs twice and the figures move the way the flag says.
//!
//! The tables are complete: [`every_flag_has_its_test`] reads `--help` and misses nothing.

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;

use crate::macros::{Ended, Scratch, blis};

/// What shows that a flag works.
type Check = fn(&Trial);

/// Flags that `run` and `replay` have in common, tried in both.
const COMMON: &[(&[&str], Check)] = &[
    (&["--model"], model),
    (&["--hardware", "--gpu"], hardware),
    (&["--tp", "--tensor-parallel-size"], tp),
    (&["--dp", "--data-parallel-size"], dp),
    (&["--enable-expert-parallel"], enable_expert_parallel),
    (&["--moe-comm-backend"], moe_comm_backend),
    (&["--vllm-version"], vllm_version),
    (&["--model-config-folder"], model_config_folder),
    (&["--hardware-config"], hardware_config),
    (&["--latency-model"], latency_model),
    (&["--alpha-coeffs"], alpha_coeffs),
    (&["--beta-coeffs"], beta_coeffs),
    (&["--coefficients"], coefficients),
    (&["--total-kv-blocks", "--num-gpu-blocks", "--num-gpu-blocks-override"], total_kv_blocks),
    (&["--block-size-in-tokens", "--block-size"], block_size),
    (&["--max-model-len"], max_model_len),
    (&["--gpu-memory-utilization"], gpu_memory_utilization),
    (&["--max-num-seqs", "--max-num-running-reqs"], max_num_seqs),
    (&["--max-num-batched-tokens", "--max-num-scheduled-tokens"], max_num_batched_tokens),
    (&["--long-prefill-token-threshold"], long_prefill_token_threshold),
    (&["--enable-prefix-caching"], enable_prefix_caching),
    (&["--no-enable-prefix-caching"], no_enable_prefix_caching),
    (&["--enable-chunked-prefill"], enable_chunked_prefill),
    (&["--no-enable-chunked-prefill"], no_enable_chunked_prefill),
    (&["--async-scheduling"], async_scheduling),
    (&["--no-async-scheduling"], no_async_scheduling),
    (&["--scheduler-reserve-full-isl"], reserve_full_isl),
    (&["--no-scheduler-reserve-full-isl"], no_reserve_full_isl),
    (&["--scheduler"], scheduler),
    (&["--preemption-policy"], preemption_policy),
    (&["--scheduling-policy"], scheduling_policy),
    (&["--parity"], parity),
    (&["--num-instances"], num_instances),
    (&["--admission-latency"], latency_in_front),
    (&["--routing-latency"], latency_in_front),
    (&["--snapshot-refresh-interval"], snapshot_refresh_interval),
    (&["--cache-signal-delay"], cache_signal_delay),
    (&["--tie-break"], tie_break),
    (&["--policy-config"], policy_config),
    (&["--admission-policy"], admission_policy),
    (&["--token-bucket-capacity"], token_bucket_capacity),
    (&["--token-bucket-refill-rate"], token_bucket_refill_rate),
    (&["--routing-policy"], routing_policy),
    (&["--routing-scorers"], routing_scorers),
    (&["--routing-cache-weight"], routing_cache_weight),
    (&["--routing-load-weight"], routing_load_weight),
    (&["--priority-policy"], priority_policy),
    (&["--policy-param"], policy_param),
    (&["--policy-dir"], policy_dir),
    (&["--allow-native"], allow_native),
    (&["--on-plugin-error"], on_plugin_error),
    (&["--slo-ttft"], |t| t.promised("ttft")),
    (&["--slo-itl"], |t| t.promised("itl")),
    (&["--slo-e2e"], |t| t.promised("e2e")),
    (&["--fitness-weights"], fitness_weights),
    (&["--fitness-scale"], fitness_scale),
    (&["--baseline"], baseline),
    (&["--trace-level"], trace_level),
    (&["--trace-path"], trace_path),
    (&["--counterfactual-k"], counterfactual_k),
    (&["--summarize-trace"], summarize_trace),
    (&["--regret"], regret),
    (&["--regret-samples"], regret_samples),
    (&["--regret-alternatives"], regret_alternatives),
    (&["--regret-window"], regret_window),
    (&["--regret-path"], regret_path),
    (&["--engine"], engine),
    (&["--seed"], seed),
    (&["--horizon"], horizon),
    (&["--config"], config),
    (&["--explain-config"], explain_config),
    (&["--log"], log),
    (&["--output"], output),
    (&["--no-progress"], no_progress),
    (&["--metrics-path"], metrics_path),
    (&["--export"], export),
    (&["--trace-output"], trace_output),
    (&["--skip-bad-lines"], skip_bad_lines),
    (&["--start"], start),
    (&["--duration"], duration),
    (&["--time-scale"], time_scale),
    (&["--repeat"], repeat),
    (&["--spread-bins"], spread_bins),
    (&["--max-requests"], max_requests),
    (&["--help", "-h"], help),
];

const RUN: &[(&[&str], Check)] = &[
    (&["--results-path"], metrics_path),
    (&["--workload"], workload),
    (&["--workload-spec"], workload_spec),
    (&["--workload-trace", "--workload-traces-filepath"], workload_trace),
    (&["--trace-format"], trace_format),
    (&["--session-mode"], session_mode_of_a_trace),
    (&["--mooncake-block-size", "--hash-block-size"], mooncake_block_size),
    (&["--timeout", "--request-timeout"], timeout),
    (&["--rate", "--request-rate"], rate),
    (&["--concurrency"], concurrency),
    (&["--think-time-ms"], think_time_of_users),
    (&["--arrival-process"], arrival_process),
    (&["--num-requests", "--max-prompts", "--num-prompts"], num_requests),
    (&["--prompt-tokens", "--random-input-len", "--input-len"], |t| t.length("input", 512, 700)),
    (&["--prompt-tokens-stdev"], |t| t.spread("input", 256, 20)),
    (&["--prompt-tokens-min"], |t| t.bound("input", "num_prefill_tokens", 200, true)),
    (&["--prompt-tokens-max"], |t| t.bound("input", "num_prefill_tokens", 600, false)),
    (&["--output-tokens", "--random-output-len", "--output-len"], |t| t.length("output", 512, 300)),
    (&["--output-tokens-stdev"], |t| t.spread("output", 256, 20)),
    (&["--output-tokens-min"], |t| t.bound("output", "num_decode_tokens", 200, true)),
    (&["--output-tokens-max"], |t| t.bound("output", "num_decode_tokens", 600, false)),
    (&["--prefix-tokens", "--random-prefix-len"], prefix_tokens),
];

const REPLAY: &[(&[&str], Check)] = &[
    (&["--results-path"], results_path),
    (&["--trace-header"], trace_header),
    (&["--trace-data"], trace_data),
    (&["--session-mode"], session_mode),
    (&["--think-time-ms"], think_time_ms),
    (&["--think-time-dist"], think_time_dist),
];

/// Accepted, but not in the help: what the user would get anyway, and a tool of ours.
const HIDDEN: [&str; 3] = ["--no-async-scheduling", "--no-scheduler-reserve-full-isl", "--engine"];

#[test]
fn every_flag_of_run_has_an_effect() {
    try_all("run", [COMMON, RUN]);
}

#[test]
fn every_flag_of_replay_has_an_effect() {
    try_all("replay", [COMMON, REPLAY]);
}

#[test]
fn every_flag_has_its_test() {
    for (command, own) in [("run", RUN), ("replay", REPLAY)] {
        let tried = COMMON.iter().chain(own).flat_map(|(names, _)| names.iter().copied());
        let tried: BTreeSet<&str> = tried.filter(|name| !HIDDEN.contains(name)).collect();
        let help = blis!(command, "--help").stdout;
        let offered: BTreeSet<&str> = help.lines().flat_map(flags_of).filter(|name| *name != "--color").collect();
        assert_eq!(tried, offered, "blis {command} --help");
    }
}

/// The flags that a line of the help defines: `  -h, --help`, `--tp <N>`, `[aliases: --a, --b]`.
fn flags_of(line: &str) -> impl Iterator<Item = &str> {
    let line = line.trim();
    let definition = line.starts_with('-') && !line.starts_with("- ") || line.starts_with("[alias");
    let words = line.split([' ', ',', '[', ']']).filter(move |word| definition && word.starts_with('-'));
    words.filter(|word| word.len() > 1)
}

/// Tries all, so that one run shows every flag that does nothing.
fn try_all(command: &'static str, tables: [&[(&[&'static str], Check)]; 2]) {
    let mut failed = Vec::new();
    for (names, check) in tables.into_iter().flatten() {
        for flag in *names {
            if std::panic::catch_unwind(|| check(&Trial::new(command, flag))).is_err() {
                failed.push(*flag);
            }
        }
    }
    assert!(failed.is_empty(), "blis {command}: {failed:?}");
}

/// A request of the trace that both commands read.
#[derive(Clone, Copy)]
struct Row {
    arrival_us: u32,
    input: u32,
    output: u32,
    priority: i32,
    /// Tokens of `input` that all such requests start with.
    prefix: u32,
    class: &'static str,
}

const ROW: Row = Row { arrival_us: 0, input: 300, output: 50, priority: 1, prefix: 0, class: "" };

/// `count` requests like `row`, `gap_us` apart.
fn rows(count: u32, gap_us: u32, row: Row) -> Vec<Row> {
    (0..count).map(|index| Row { arrival_us: 1_000 + index * gap_us, ..row }).collect()
}

/// One flag of one command, and a folder for files.
struct Trial {
    command: &'static str,
    flag: &'static str,
    folder: Scratch,
}

const MODEL: &str = "--model meta-llama/llama-3.1-8b-instruct";
const MOE: &str = "--model qwen3-30b-a3b --tp 2";

impl Trial {
    fn new(command: &'static str, flag: &'static str) -> Self {
        Self { command, flag, folder: Scratch::new() }
    }

    fn file(&self, name: &str, text: &str) -> String {
        self.folder.write(name, text).display().to_string()
    }

    /// Runs the command on `rows`; `{}` stands for the flag, `{dir}` for the folder.
    fn on(&self, rows: &[Row], flags: &str) -> Ended {
        self.file("t.yaml", "trace_version: 3\ntime_unit: microseconds\n");
        self.file("t.csv", &trace(rows));
        let trace = match self.command {
            "run" => "--workload-trace {dir}/t.csv",
            _ => "--trace-header {dir}/t.yaml --trace-data {dir}/t.csv",
        };
        self.bare(&format!("{trace} {flags}"))
    }

    /// The same without a trace of ours.
    fn bare(&self, flags: &str) -> Ended {
        let folder = self.folder.display().to_string();
        let with_model = if flags.contains("--model ") { flags.to_owned() } else { format!("{MODEL} {flags}") };
        let flags = with_model.replace("{}", self.flag).replace("{dir}", &folder);
        blis!(self.command, flags)
    }

    fn json(&self, output: &Ended) -> Value {
        output.clone().json()
    }

    /// The aggregate figures.
    fn figures(&self, rows: &[Row], flags: &str) -> Value {
        self.json(&self.on(rows, flags))
    }

    /// The figures and every request, from the metrics file.
    fn metrics(&self, rows: &[Row], flags: &str) -> Value {
        let path = self.folder.join("all.json");
        self.json(&self.on(rows, &format!("{flags} --metrics-path {}", path.display())));
        serde_json::from_slice(&fs::read(path).expect("written")).expect("JSON")
    }

    /// The instance of each request; `None` if it reached none.
    fn placements(&self, rows: &[Row], flags: &str) -> Vec<Option<u32>> {
        let metrics = self.metrics(rows, flags);
        let mut requests = metrics["requests"].as_array().expect("requests").clone();
        requests.sort_by_key(|request| id_of(request["requestID"].as_str().expect("a name")));
        requests
            .iter()
            .map(|request| request["handled_by"].as_str().filter(|name| !name.is_empty()).map(id_of))
            .collect()
    }

    /// The lines of `--trace-path`.
    fn decisions(&self, rows: &[Row], flags: &str) -> Vec<Value> {
        let path = self.folder.join("decisions.jsonl");
        let flags = format!("--trace-level decisions --trace-path {} {flags}", path.display());
        self.json(&self.on(rows, &flags));
        let lines = fs::read_to_string(path).expect("written");
        lines.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
    }

    /// A target for the latency `what` is kept by all, by none, or by those for whom it is wide enough.
    fn promised(&self, what: &str) {
        let class = |class| Row { class, ..ROW };
        let rows = [rows(10, 1_000_000, class("gold")), rows(10, 1_000_001, ROW)].concat();
        assert_eq!(self.figures(&rows, "")["slo_attainment"], Value::Null);
        let attainment = |targets: &str| {
            let figures = self.figures(&rows, &format!("{{}} {targets}"));
            let dim = figures["per_class"]["gold"]["slo_attainment_by_dim"].clone();
            assert!(dim.as_object().is_none_or(|dim| dim.keys().eq([what])), "{dim}");
            number(&figures, "slo_attainment")
        };
        assert_eq!(["gold=1h", "gold=1us", "gold=1h,default=1us"].map(attainment), [1.0, 0.0, 0.5]);
    }

    fn summary(&self, rows: &[Row], flags: &str) -> String {
        let output = self.on(rows, &format!("{flags} --output text"));
        assert_eq!(output.code, Some(0), "{flags}: {}", output.stderr);
        output.stdout
    }

    fn error(&self, rows: &[Row], flags: &str) -> String {
        let output = self.on(rows, flags);
        assert_eq!(output.code, Some(2), "{flags}: {}", output.stdout);
        output.stderr
    }

    /// The requests of a generated workload.
    fn generated(&self, flags: &str) -> (Value, Vec<Value>) {
        let path = self.folder.join("all.json");
        let figures = self.json(&self.bare(&format!("{flags} --metrics-path {}", path.display())));
        let metrics: Value = serde_json::from_slice(&fs::read(path).expect("written")).expect("JSON");
        (figures, metrics["requests"].as_array().expect("requests").clone())
    }

    /// A mean length near `mean` where `usual` is the default.
    fn length(&self, side: &str, usual: u32, mean: u32) {
        let total = format!("total_{side}_tokens");
        let of = |flags: &str| number(&self.generated(&format!("--num-requests 400 --timeout -1 {flags}")).0, &total);
        let [default, asked] = [of(""), of(&format!("{{}} {mean}"))].map(|tokens| tokens / 400.0);
        assert!((default / f64::from(usual) - 1.0).abs() < 0.1, "{} {default}", self.flag);
        assert!((asked / f64::from(mean) - 1.0).abs() < 0.1, "{} {asked}", self.flag);
    }

    /// The standard deviation goes from about `usual` to about `asked`.
    fn spread(&self, side: &str, usual: u32, asked: u32) {
        let key = if side == "input" { "num_prefill_tokens" } else { "num_decode_tokens" };
        let of = |flags: &str| {
            let (_, requests) = self.generated(&format!("--num-requests 400 --timeout -1 {flags}"));
            let all: Vec<f64> = requests.iter().map(|request| number(request, key)).collect();
            let mean = all.iter().sum::<f64>() / all.len() as f64;
            (all.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / all.len() as f64).sqrt()
        };
        let (default, narrow) = (of(""), of(&format!("{{}} {asked}")));
        assert!((default / f64::from(usual) - 1.0).abs() < 0.15, "{} {default}", self.flag);
        assert!((narrow / f64::from(asked) - 1.0).abs() < 0.15, "{} {narrow}", self.flag);
    }

    /// No length lies beyond `bound`; by default some do.
    fn bound(&self, _side: &str, key: &str, bound: u32, lower: bool) {
        let beyond = |flags: &str| {
            let (_, requests) = self.generated(&format!("--num-requests 100 --timeout -1 {flags}"));
            let bound = f64::from(bound);
            requests.iter().map(|r| number(r, key)).filter(|&n| if lower { n < bound } else { n > bound }).count()
        };
        assert!(beyond("") > 10, "{}", self.flag);
        assert_eq!(beyond(&format!("{{}} {bound}")), 0, "{}", self.flag);
    }
}

fn number(value: &Value, key: &str) -> f64 {
    value[key].as_f64().unwrap_or_else(|| panic!("no number `{key}` in {value}"))
}

/// `instance_3`, `request_3`: 3.
fn id_of(name: &str) -> u32 {
    let (_, id) = name.rsplit_once('_').expect("a numbered name");
    id.parse().expect("a number")
}

/// How many different ones there are.
fn distinct<T: Ord>(all: impl IntoIterator<Item = T>) -> usize {
    all.into_iter().collect::<BTreeSet<T>>().len()
}

/// The figure `key` of request `id` in a metrics file.
fn of_request(metrics: &Value, id: u32, key: &str) -> f64 {
    let name = format!("request_{id}");
    let requests = metrics["requests"].as_array().expect("requests");
    number(requests.iter().find(|request| request["requestID"] == name.as_str()).expect("that request"), key)
}

/// The TraceV2 CSV of `rows`.
fn trace(rows: &[Row]) -> String {
    let mut csv = "request_id,client_id,tenant_id,slo_class,session_id,round_index,prefix_group,prefix_length,\
                   streaming,input_tokens,output_tokens,text_tokens,image_tokens,audio_tokens,video_tokens,\
                   reason_ratio,model,deadline_us,server_input_tokens,arrival_time_us,send_time_us,\
                   first_chunk_time_us,last_chunk_time_us,num_chunks,status,error_message,finish_reason,\
                   vllm_priority\n"
        .to_owned();
    for (id, Row { arrival_us, input, output, priority, prefix, class }) in rows.iter().enumerate() {
        let (group, own) = (if *prefix > 0 { "g" } else { "" }, input - prefix);
        csv += &format!(
            "{id},c,,{class},,0,{group},{prefix},false,{own},{output},0,0,0,0,0,,0,0,{arrival_us},0,0,0,0,ok,,,{priority}\n"
        );
    }
    csv
}

/// A calm load of 20 equal requests.
fn calm() -> Vec<Row> {
    rows(20, 100_000, ROW)
}

/// 40 requests at once that grow past a small cache.
fn pressed() -> Vec<Row> {
    rows(40, 1, Row { output: 100, ..ROW })
}

const TIGHT: &str = "--total-kv-blocks 200 --max-model-len 2048";

// Model and hardware

fn model(t: &Trial) {
    let e2e = |name: &str| number(&t.figures(&calm(), &format!("{{}} {name} --tp 4")), "e2e_mean_ms");
    assert!(e2e("llama-3.1-70b-instruct") > 2.0 * e2e("llama-3.1-8b-instruct"));
    assert_eq!(e2e("meta-llama/Llama-3.1-8B-Instruct"), e2e("llama-3.1-8b-instruct"));
}

fn hardware(t: &Trial) {
    let itl = |gpu: &str| number(&t.figures(&calm(), &format!("{{}} {gpu}")), "itl_mean_ms");
    let [h200, h100, a100, l40s] = ["H200", "H100", "A100-SXM", "L40S"].map(itl);
    assert!(h200 < h100 && h100 < a100 && a100 < l40s, "{h200} {h100} {a100} {l40s}");
}

fn tp(t: &Trial) {
    let e2e = |tp: u32| number(&t.figures(&calm(), &format!("{{}} {tp}")), "e2e_mean_ms");
    assert!(e2e(2) < e2e(1));
    assert_eq!(e2e(0), e2e(1), "0 is the default");
    assert!(t.summary(&calm(), "{} 4").contains("4 × H100 (TP 4)"));
}

fn dp(t: &Trial) {
    let blocks = |dp: u32| kv_blocks(&t.summary(&calm(), &format!("{MOE} {{}} {dp}")));
    assert_eq!(blocks(2), 2 * blocks(1));
    let e2e = |dp: u32| number(&t.figures(&calm(), &format!("{MOE} {{}} {dp}")), "e2e_mean_ms");
    assert_ne!(e2e(2), e2e(1));
    assert!(t.error(&calm(), "{} 2").contains("needs a mixture-of-experts model"));
}

fn enable_expert_parallel(t: &Trial) {
    assert!(
        t.summary(&calm(), &format!("{MOE} --latency-model trained-physics {{}}")).contains("expert parallelism"),
        "it is spoken of"
    );
    assert!(t.error(&calm(), "{}").contains("needs a mixture-of-experts model"));
}

fn moe_comm_backend(t: &Trial) {
    let e2e = |name: &str| number(&t.figures(&calm(), &format!("{MOE} --dp 2 {{}} {name}")), "e2e_mean_ms");
    assert_ne!(e2e("naive"), e2e("pplx"));
    assert!(t.error(&calm(), &format!("{MOE} {{}} plx")).contains("did you mean `pplx`?"));
}

fn vllm_version(t: &Trial) {
    assert!(t.summary(&calm(), "{} v0.8.4").contains("blackbox"));
    let model = "--model llama-3.1-8b-instruct --tp 1";
    let e2e = |version: &str| number(&t.figures(&calm(), &format!("{model} {{}} {version}")), "e2e_mean_ms");
    assert_ne!(e2e("v0.8.4"), e2e("v0.11.0"));
    assert_eq!(e2e("v0.8.4"), e2e("0.8.4"));
}

fn model_config_folder(t: &Trial) {
    let config = |layers: u32| {
        format!(
            r#"{{"num_hidden_layers": {layers}, "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8,
                "vocab_size": 128256, "intermediate_size": 14336, "hidden_act": "silu", "torch_dtype": "bfloat16",
                "max_position_embeddings": 131072}}"#
        )
    };
    for layers in [8, 16] {
        t.file(&format!("{layers}/config.json"), &config(layers));
        t.file(&format!("tree/mine-{layers}/config.json"), &config(layers));
    }
    let e2e = |flags: &str| number(&t.figures(&calm(), flags), "e2e_mean_ms");
    let (small, large) = (e2e("--model mine {} {dir}/8"), e2e("--model mine {} {dir}/16"));
    assert!(small < large && large < e2e(""), "half the layers, half the time");
    assert_eq!(e2e("--model mine-8 {} {dir}/tree"), small, "by name below the folder");
}

fn hardware_config(t: &Trial) {
    let gpu = |name: &str, tb_s: f64| {
        t.file(
            name,
            &format!("tflops_fp16: 989.5\nhbm_tb_s: {tb_s}\nmemory_gib: 80\nmfu_prefill: 0.45\nmfu_decode: 0.3\n"),
        );
    };
    gpu("one/fast.yaml", 6.7);
    gpu("one/slow.yaml", 1.0);
    let itl = |flags: &str| number(&t.figures(&calm(), flags), "itl_mean_ms");
    let (fast, slow) = (itl("{} {dir}/one/fast.yaml"), itl("{} {dir}/one --hardware slow"));
    assert!(fast < itl("") && itl("") < slow);
}

// Latency model

fn latency_model(t: &Trial) {
    let names = ["trained-physics", "physics", "roofline", "blackbox"];
    let mut e2e = names.map(|name| number(&t.figures(&calm(), &format!("--tp 1 {{}} {name}")), "e2e_mean_ms"));
    e2e.sort_by(f64::total_cmp);
    assert!(e2e.is_sorted_by(|a, b| a < b), "{e2e:?}");
    assert!(t.summary(&calm(), "{} physics").contains("physics coefficients: general, not measured"));
    for name in names {
        assert!(t.summary(&calm(), &format!("{{}} {name}")).contains(name));
    }
}

fn alpha_coeffs(t: &Trial) {
    let ttft =
        |a0: u32| number(&t.figures(&calm(), &format!("{{}} {a0},0,0 --beta-coeffs 5000,10,10")), "ttft_mean_ms");
    assert!((ttft(3_000) - ttft(0) - 3.0).abs() < 1e-9, "3 ms before the queue are 3 ms of TTFT");
    assert!(t.error(&calm(), "{} 1,2,3").contains("without `--beta-coeffs`"));
}

fn beta_coeffs(t: &Trial) {
    let itl = |b0: u32| number(&t.figures(&calm(), &format!("--alpha-coeffs 0,0,0 {{}} {b0},0,0")), "itl_mean_ms");
    assert_eq!((itl(5_000), itl(8_000)), (5.0, 8.0));
    let eleven = "0.1,0.2,0.3,0.4,0.5,0.6,0.7,8,9,10,11";
    assert!(t.summary(&calm(), &format!("--alpha-coeffs 0,0,0 {{}} {eleven}")).contains("trained-physics"));
}

fn coefficients(t: &Trial) {
    let weights = |name: &str, step_us: u32| {
        t.file(
            name,
            &format!(
                "fitted: '2026-11-22'\nblis: test\ndata: []\ngeneral:\n  alpha: {{ arrival_us: 0, input_token_us: 0, \
                 first_token_steps: 0 }}\n  beta: {{ gemm: 0, experts: 0, decode_attention: 0, prefill_attention: 0, \
                 collectives: 0, layer_us: 0, request_us: 0, step_us: {step_us} }}\n"
            ),
        );
        number(&t.figures(&calm(), &format!("{{}} {{dir}}/{name}")), "itl_mean_ms")
    };
    assert_eq!((weights("five.yaml", 5_000), weights("eight.yaml", 8_000)), (5.0, 8.0));
    assert!(t.error(&calm(), "--latency-model roofline {} {dir}/five.yaml").contains("not of roofline"));
    t.file("wrong.yaml", "fitted: yes\nblis: 1\n");
    assert!(t.error(&calm(), "{} {dir}/wrong.yaml").contains("wrong.yaml:"));
}

// Engine

/// The number of KV blocks in a summary.
fn kv_blocks(summary: &str) -> u64 {
    let line = summary.lines().find(|line| line.starts_with("KV cache")).expect("a line on the cache");
    let (count, _) = line.split_once(" blocks").expect("blocks");
    count.chars().filter(char::is_ascii_digit).collect::<String>().parse().expect("a number")
}

fn total_kv_blocks(t: &Trial) {
    let preemptions =
        |n: u32| number(&t.figures(&pressed(), &format!("{{}} {n} --max-model-len 2048")), "preemption_count");
    assert!(preemptions(200) > 0.0);
    assert_eq!(preemptions(10_000), 0.0);
}

fn block_size(t: &Trial) {
    let blocks = |size: u32| kv_blocks(&t.summary(&calm(), &format!("{{}} {size}")));
    assert_eq!(blocks(32), blocks(16) / 2);
    let hits = |size: u32| number(&t.metrics(&sharing(), &format!("{{}} {size}")), "cache_hit_rate");
    assert!(hits(16) > 0.5 && hits(512) == 0.0, "no prefix fills a block of 512");
}

fn max_model_len(t: &Trial) {
    let capped = |flags: &str| number(&t.figures(&calm(), flags), "length_capped_requests");
    assert_eq!((capped("{} 320"), capped("{} 0"), capped("")), (20.0, 0.0, 0.0));
    assert_eq!(number(&t.figures(&calm(), "{} 200"), "dropped_unservable"), 20.0);
}

fn gpu_memory_utilization(t: &Trial) {
    let blocks = |flags: &str| kv_blocks(&t.summary(&calm(), flags));
    let [half, default, all] = [blocks("{} 0.5"), blocks(""), blocks("{} 1")];
    assert!(half < default && default < all && blocks("{} 0.9") == default, "{half} {default} {all}");
}

fn max_num_seqs(t: &Trial) {
    let ttft = |n: u32| number(&t.figures(&pressed(), &format!("{{}} {n}")), "ttft_p99_ms");
    let [one, four, many] = [1, 4, 64].map(ttft);
    assert!(one > 2.0 * four && four > 2.0 * many, "{one} {four} {many}");
}

fn max_num_batched_tokens(t: &Trial) {
    let ttft = |n: u32| number(&t.figures(&pressed(), &format!("{{}} {n}")), "ttft_mean_ms");
    let [small, usual] = [128, 2048].map(ttft);
    assert!(small > usual, "{small} {usual}");
}

fn long_prefill_token_threshold(t: &Trial) {
    let alone = rows(20, 1_000_000, ROW);
    let steps = |flags: &str| number(&t.figures(&alone, flags), "steps");
    assert_eq!((steps("{} 0"), steps("{} 300")), (steps(""), steps("")));
    assert_eq!(steps("{} 100"), steps("") + 40.0, "20 prompts of 300 tokens take two steps more each");
}

/// 20 requests, 256 of their 300 tokens in common.
fn sharing() -> Vec<Row> {
    rows(20, 100_000, Row { prefix: 256, ..ROW })
}

fn no_enable_prefix_caching(t: &Trial) {
    let hit_rate = |flags: &str| number(&t.metrics(&sharing(), flags), "cache_hit_rate");
    assert!(hit_rate("") > 0.5);
    assert_eq!(hit_rate("{}"), 0.0);
}

fn enable_prefix_caching(t: &Trial) {
    let hit_rate = |flags: &str| number(&t.metrics(&sharing(), flags), "cache_hit_rate");
    assert!(hit_rate("--no-enable-prefix-caching {}") > 0.5, "the last one counts");
}

fn no_enable_chunked_prefill(t: &Trial) {
    let dropped = |flags: &str| number(&t.figures(&calm(), flags), "dropped_unservable");
    assert_eq!(dropped("--max-num-batched-tokens 256"), 0.0);
    assert_eq!(dropped("--max-num-batched-tokens 256 {}"), 20.0, "300 tokens do not fit into one step");
}

fn enable_chunked_prefill(t: &Trial) {
    let flags = "--max-num-batched-tokens 256 --no-enable-chunked-prefill {}";
    assert_eq!(number(&t.figures(&calm(), flags), "dropped_unservable"), 0.0, "the last one counts");
}

fn async_scheduling(t: &Trial) {
    let figures = |flags: &str| t.figures(&pressed(), &format!("{TIGHT} {flags}"));
    assert_ne!(figures("{}"), figures(""), "blocks come free a step later");
}

fn no_async_scheduling(t: &Trial) {
    let figures = |flags: &str| t.figures(&pressed(), &format!("{TIGHT} {flags}"));
    assert_eq!(figures("--async-scheduling {}"), figures(""), "the last one counts");
}

fn reserve_full_isl(t: &Trial) {
    let preemptions = |flags: &str| {
        let rows = rows(30, 1, Row { input: 1_000, output: 20, ..ROW });
        let flags = format!("--total-kv-blocks 150 --max-model-len 2048 --max-num-batched-tokens 128 {flags}");
        number(&t.figures(&rows, &flags), "preemption_count")
    };
    assert!(preemptions("{}") < preemptions(""), "{} {}", preemptions("{}"), preemptions(""));
}

fn no_reserve_full_isl(t: &Trial) {
    let figures = |flags: &str| t.figures(&pressed(), &format!("{TIGHT} {flags}"));
    assert_eq!(figures("--scheduler-reserve-full-isl {}"), figures(""), "the last one counts");
}

/// While request 0 runs, 1 (long, middle priority), 2 (short, lowest priority) and 3 (middling, highest priority) wait.
fn queueing() -> Vec<Row> {
    let row = |arrival_us, input, priority| Row { arrival_us, input, priority, ..ROW };
    vec![row(1_000, 100, 1), row(2_000, 900, 2), row(3_000, 100, 3), row(4_000, 500, 1)]
}

/// Requests 1 to 3 in the order of their first tokens.
fn order(metrics: &Value) -> Vec<u32> {
    let mut ids = vec![1, 2, 3];
    ids.sort_by_key(|&id| {
        let first_ms = of_request(metrics, id, "ttft_ms") + f64::from(id);
        (first_ms * 1e3) as u64
    });
    ids
}

fn scheduler(t: &Trial) {
    let with = |name: &str| order(&t.metrics(&queueing(), &format!("--max-num-seqs 1 {{}} {name}")));
    assert_eq!(with("fcfs"), [1, 2, 3]);
    assert_eq!(with("sjf"), [2, 3, 1]);
    let (priority, reverse) = (with("priority-fcfs"), with("reverse-priority"));
    assert!(priority == [3, 1, 2] && reverse == [2, 1, 3], "{priority:?} {reverse:?}");
}

/// The first request has the lowest priority, the second the highest; then the cache is full.
fn contending() -> Vec<Row> {
    let row = |arrival_us, priority| Row { arrival_us, priority, output: 400, ..ROW };
    vec![row(1_000, 9), row(1_001, 1)]
}

fn preemption_policy(t: &Trial) {
    let preempted = |name: &str| {
        let metrics = t.metrics(&contending(), &format!("--total-kv-blocks 60 --max-model-len 900 {{}} {name}"));
        [0, 1].map(|id| of_request(&metrics, id, "preemption_count") > 0.0)
    };
    assert_eq!(preempted("fcfs"), [false, true], "the later one goes");
    assert_eq!(preempted("priority"), [true, false], "the victim is the request of lower priority");
}

fn scheduling_policy(t: &Trial) {
    let metrics = |flags: &str| t.metrics(&queueing(), &format!("--max-num-seqs 1 {flags}"));
    assert_eq!(metrics("{} fcfs"), metrics(""));
    let both = metrics("--scheduler priority-fcfs --preemption-policy priority");
    assert_eq!(metrics("{} priority"), both);
    assert_ne!(both, metrics(""));
}

fn policy_config(t: &Trial) {
    t.file("policy.yaml", "scheduler: priority-fcfs\npreemption: {policy: priority}\n");
    let metrics = |flags: &str| t.metrics(&queueing(), &format!("--max-num-seqs 1 {flags}"));
    assert_eq!(metrics("{} {dir}/policy.yaml"), metrics("--scheduling-policy priority"));
    assert_eq!(metrics("{} {dir}/policy.yaml --scheduling-policy fcfs"), metrics(""), "a flag wins");
    t.file("wrong.yaml", "scheduler: fcsf\n");
    assert!(t.error(&calm(), "{} {dir}/wrong.yaml").contains("wrong.yaml:1:12: unknown scheduler `fcsf`"));
}

fn parity(t: &Trial) {
    let figures = |load: &[Row], flags: &str| t.figures(load, &format!("{TIGHT} {flags}"));
    assert_eq!(figures(&pressed(), "{} vllm"), figures(&pressed(), ""));
    assert_ne!(figures(&pressed(), "{} blis"), figures(&pressed(), ""), "they differ under pressure");
}

fn engine(t: &Trial) {
    for parity in ["vllm", "blis"] {
        let out = |name: &str| t.on(&pressed(), &format!("{TIGHT} --parity {parity} {{}} {name}")).stdout;
        assert!(
            out("plain") == out("fast")
                && out("fast") == t.on(&pressed(), &format!("{TIGHT} --parity {parity}")).stdout
        );
    }
    assert!(t.error(&calm(), "{} slow").contains("[possible values: fast, plain]"));
}

// Cluster

/// So far apart that none meets another.
fn apart() -> Vec<Row> {
    rows(8, 3_000_000, ROW)
}

fn num_instances(t: &Trial) {
    let metrics = t.metrics(&pressed(), "{} 3");
    assert_eq!(metrics["instances"].as_array().map(Vec::len), Some(3));
    assert_eq!(distinct(t.placements(&pressed(), "{} 3")), 3);
    let ttft = |n: u32| number(&t.figures(&pressed(), &format!("{{}} {n} --max-num-seqs 4")), "ttft_mean_ms");
    assert!(ttft(4) < ttft(2) && ttft(2) < ttft(1));
    assert_eq!(t.figures(&pressed(), "{} 1"), t.figures(&pressed(), ""));
}

fn latency_in_front(t: &Trial) {
    let ttft = |us: u32| number(&t.figures(&apart(), &format!("{{}} {us}")), "ttft_mean_ms");
    assert!((ttft(5_000) - ttft(0) - 5.0).abs() < 1e-9, "5 ms before the queue are 5 ms of TTFT");
    assert_eq!(t.figures(&apart(), "{} 0"), t.figures(&apart(), ""));
}

/// Requests that find others waiting.
const QUEUES: &str = "--num-instances 4 --max-num-seqs 1 --tie-break lowest-index --routing-policy weighted \
                      --routing-scorers queue-depth:1";

fn snapshot_refresh_interval(t: &Trial) {
    let rows = rows(12, 100_000, ROW);
    let instances = |us: &str| distinct(t.placements(&rows, &format!("{QUEUES} {us}")));
    assert_eq!(instances("{} 1000000000000"), 1, "the queues look empty for ever");
    assert!(instances("{} 0") > 1, "they are seen as they are");
    let ages = |us: u32| {
        let lines = t.decisions(&rows, &format!("{QUEUES} {{}} {us}"));
        lines
            .iter()
            .filter(|line| line["kind"] == "routing")
            .map(|line| line["reading_age_us"].as_u64().expect("an age"))
            .max()
    };
    assert_eq!(ages(0), Some(0));
    assert!(ages(250_000) >= Some(100_000) && ages(250_000) < Some(250_000), "{:?}", ages(250_000));
}

fn cache_signal_delay(t: &Trial) {
    let flags = "--num-instances 4 --routing-policy weighted --routing-scorers precise-prefix-cache:1";
    let instances = |us: &str| distinct(t.placements(&sharing(), &format!("{flags} {us}")));
    assert_eq!(instances("{} 0"), 1, "where the prefix is");
    assert!(instances("{} 1000000000000") > 1, "the signal of the caches stays that of empty ones");
}

fn tie_break(t: &Trial) {
    let placements = |flags: &str| t.placements(&apart(), &format!("--num-instances 4 {LEAST} {flags}"));
    assert_eq!(placements("{} lowest-index"), [Some(0); 8]);
    assert_eq!(placements("{} lowest-index --seed 7"), [Some(0); 8]);
    assert_eq!(placements("{} random"), placements(""));
    assert!(distinct(placements("")) > 1);
    assert_ne!(placements("{} random --seed 7"), placements("{} random"));
}

const LEAST: &str = "--routing-policy least-loaded";

// Policies

fn admission_policy(t: &Trial) {
    let figures = t.figures(&calm(), "{} reject-all");
    assert_eq!((number(&figures, "rejected_admission"), number(&figures, "completed_requests")), (20.0, 0.0));
    assert_eq!(t.figures(&calm(), "{} always-admit"), t.figures(&calm(), ""));
    assert!(t.error(&calm(), "{} reject-al").contains("reject-all"));
}

fn token_bucket_capacity(t: &Trial) {
    let rows = rows(40, 1, ROW);
    let admitted = |flags: &str| {
        let flags = format!("--admission-policy token-bucket --token-bucket-refill-rate 0.001 {flags}");
        number(&t.figures(&rows, &flags), "completed_requests")
    };
    assert_eq!((admitted("{} 899"), admitted("{} 900"), admitted("")), (2.0, 3.0, 33.0), "prompts of 300 tokens");
    assert!(t.error(&rows, "{} 900").contains("only makes sense with the admission policy `token-bucket`"));
}

fn token_bucket_refill_rate(t: &Trial) {
    let rows = rows(20, 1_000_000, ROW);
    let admitted = |flags: &str| {
        let flags = format!("--admission-policy token-bucket --token-bucket-capacity 300 {flags}");
        number(&t.figures(&rows, &flags), "completed_requests")
    };
    assert_eq!((admitted("{} 150"), admitted("{} 300"), admitted("")), (10.0, 20.0, 20.0), "a prompt needs 300");
    assert!(t.error(&rows, "{} 900").contains("only makes sense with the admission policy `token-bucket`"));
}

fn routing_policy(t: &Trial) {
    let rows = rows(6, 10, ROW);
    let placements = |flags: &str| t.placements(&rows, &format!("--num-instances 3 --tie-break lowest-index {flags}"));
    let turns = [0, 1, 2, 0, 1, 2].map(Some);
    assert_eq!(placements("{} round-robin"), turns);
    assert_eq!(placements(""), turns);
    assert_eq!(placements("{} least-loaded"), turns, "equal requests at once");
    assert_eq!(placements("{} always-busiest"), [Some(0); 6]);
    let apart = |name: &str| {
        let flags = format!("--num-instances 3 --tie-break lowest-index --snapshot-refresh-interval 0 {{}} {name}");
        distinct(t.placements(&apart(), &flags))
    };
    assert_eq!((apart("round-robin"), apart("least-loaded"), apart("weighted")), (3, 1, 1), "no instance is loaded");
    let same = self::rows(20, 100_000, Row { prefix: 288, ..ROW });
    let sharing = |name: &str| distinct(t.placements(&same, &format!("--num-instances 3 {{}} {name}")));
    assert_eq!((sharing("prefix-affinity"), sharing("round-robin")), (1, 3));
}

fn routing_scorers(t: &Trial) {
    let rows = rows(8, 10, Row { prefix: 256, ..ROW });
    let instances = |scorers: &str| {
        let flags = format!("--num-instances 4 --routing-policy weighted {{}} {scorers}");
        distinct(t.placements(&rows, &flags))
    };
    assert_eq!((instances("prefix-affinity:1"), instances("active-requests:1")), (1, 4));
    assert_eq!(instances("prefix-affinity:1,active-requests:100"), 4, "weights count");
    let usual = t.metrics(&rows, "--num-instances 4 --routing-policy weighted");
    let same = "--num-instances 4 --routing-policy weighted {} precise-prefix-cache:2,queue-depth:1,kv-utilization:1";
    assert_eq!(t.metrics(&rows, same), usual);
    assert!(t.error(&rows, "--routing-policy weighted {} queue-dpth:1").contains("did you mean `queue-depth`?"));
}

/// A long request, then short ones that run beside it.
fn uneven() -> Vec<Row> {
    let short = rows(5, 100_000, Row { input: 20, output: 200, ..ROW });
    short
        .into_iter()
        .enumerate()
        .map(|(id, row)| if id == 0 { Row { input: 6_000, output: 400, ..row } } else { row })
        .collect()
}

const PAIR: &str = "--num-instances 2 --tie-break lowest-index --snapshot-refresh-interval 0 --routing-policy weighted";

fn routing_cache_weight(t: &Trial) {
    let placements = |flags: &str| t.placements(&uneven(), &format!("{PAIR} {flags}"));
    assert_eq!(placements("{} 1"), [0, 1, 1, 1, 1].map(Some), "more KV blocks are free beside the long one");
    assert_eq!(placements("{} 0 --routing-load-weight 1"), [0, 1, 0, 1, 0].map(Some));
}

fn routing_load_weight(t: &Trial) {
    let placements = |flags: &str| t.placements(&uneven(), &format!("{PAIR} {flags}"));
    assert_eq!(placements("{} 1"), [0, 1, 0, 1, 0].map(Some), "as many requests here as there");
    assert_eq!(placements("{} 0 --routing-cache-weight 1"), [0, 1, 1, 1, 1].map(Some));
}

fn priority_policy(t: &Trial) {
    let flags = "--max-num-seqs 1 --scheduler priority-fcfs";
    let with = |more: &str| order(&t.metrics(&queueing(), &format!("{flags} {more}")));
    assert_eq!((with(""), with("{} class")), (vec![3, 1, 2], vec![3, 1, 2]));
    assert_eq!((with("{} constant"), with("{} slo-based")), (vec![1, 2, 3], vec![1, 2, 3]));
    assert_eq!(with("{} inverted-slo"), [3, 2, 1], "the newest first");
}

fn policy_param(t: &Trial) {
    let script = t.file("to.rhai", "// @param to 0 0 2\nfn route(r, s) { s.indices == to }\n");
    let placements = |flags: &str| {
        let flags = format!("--num-instances 3 --routing-policy {script} {flags}");
        distinct(t.placements(&calm(), &flags)) * 10 + t.placements(&calm(), &flags)[0].expect("an instance") as usize
    };
    assert_eq!(
        (placements(""), placements("{} routing.to=2"), placements("{} routing.to=2 {} routing.to=1")),
        (10, 12, 11)
    );
    let message = t.error(&calm(), &format!("--routing-policy {script} {{}} routing.to=3"));
    assert!(message.contains("it must be a number from 0 to 2"), "{message}");
}

fn policy_dir(t: &Trial) {
    let script = t.file("mine/second.rhai", "fn route(r, s) { 1 }\n");
    let folder = script.strip_suffix("/second.rhai").expect("as it was named").to_owned();
    let flags = format!("--num-instances 3 --routing-policy second {{}} {folder}");
    assert!(t.placements(&calm(), &flags).iter().all(|&instance| instance == Some(1)));
    assert!(t.error(&calm(), "--routing-policy second").contains("unknown routing policy `second`"));
}

fn allow_native(t: &Trial) {
    let library = t.file("mine.so", "not a library");
    assert!(t.error(&calm(), &format!("--routing-policy {library}")).contains("`--allow-native`"));
    let message = t.error(&calm(), &format!("--routing-policy {library} {{}}"));
    assert!(!message.contains("`--allow-native`"), "it was allowed, and cannot be loaded: {message}");
}

fn on_plugin_error(t: &Trial) {
    let script = t.file("late.rhai", "fn route(r, s) { if r.id == 2 { throw 1 } 0 }\n");
    let flags = |flag: &str| format!("--num-instances 2 --routing-policy {script} {flag}");
    for flag in ["", "{} fail"] {
        assert_eq!(t.on(&calm(), &flags(flag)).code, Some(1), "{flag}");
    }
    let figures = t.figures(&calm(), &flags("{} fallback"));
    assert_eq!(figures["plugins"][0]["faults"][0]["count"], 1);
}

// Evaluation

fn fitness_weights(t: &Trial) {
    let score =
        |weights: &str| number(&t.figures(&calm(), &format!("--num-instances 2 {{}} {weights}"))["fitness"], "score");
    // Round-robin against itself.
    assert_eq!(score("p99_ttft:1,throughput:2"), 0.5);
    assert!(t.figures(&calm(), "")["fitness"].is_null());
    assert!(t.error(&calm(), "{} p99_tft:1").contains("did you mean `p99_ttft`?"));
}

fn fitness_scale(t: &Trial) {
    let fitness =
        |scale: &str| t.figures(&calm(), &format!("--fitness-weights throughput:1 {{}} {scale}"))["fitness"].clone();
    assert_eq!(number(&fitness("baseline"), "score"), 0.5);
    let (blis, figures) = (fitness("blis"), t.figures(&calm(), ""));
    let per_second = number(&figures, "responses_per_sec");
    assert!((number(&blis, "score") - per_second / (per_second + 100.0)).abs() < 1e-12);
}

fn baseline(t: &Trial) {
    let score = |baseline: &str| {
        let flags = format!("--num-instances 3 --fitness-weights mean_e2e:1 {{}} {baseline}");
        number(&t.figures(&calm(), &flags)["fitness"], "score")
    };
    assert!(score("always-busiest") > score("round-robin"), "an easier opponent");
    assert!(t.error(&calm(), "--fitness-weights mean_e2e:1 {} round-robbin").contains("did you mean `round-robin`?"));
}

fn trace_level(t: &Trial) {
    let figures = t.figures(&calm(), "{} decisions --summarize-trace");
    assert_eq!(number(&figures["decisions"], "total_decisions"), 20.0);
    assert!(t.error(&calm(), "{} none --summarize-trace").contains("needs recorded decisions"));
    assert!(t.error(&calm(), "--summarize-trace").contains("`--trace-level decisions`"));
}

fn trace_path(t: &Trial) {
    let printed = t.figures(&calm(), "--num-instances 2 --trace-level decisions {} {dir}/d.jsonl");
    let lines = fs::read_to_string(t.folder.join("d.jsonl")).expect("written");
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let of = |what: &'static str| lines.iter().filter(move |line| line["kind"] == what);
    assert_eq!(["admission", "routing", "scheduling", "outcome"].map(|what| of(what).count()), [20; 4]);
    let chosen: Vec<_> = of("routing").map(|line| line["instance"].as_u64().map(|number| number as u32)).collect();
    assert_eq!(chosen, t.placements(&calm(), "--num-instances 2"));
    assert_eq!(printed, t.figures(&calm(), "--num-instances 2"), "watching changes nothing");
}

fn counterfactual_k(t: &Trial) {
    let routed = |flags: &str| {
        let lines = t.decisions(&calm(), &format!("--num-instances 4 --routing-policy always-busiest {flags}"));
        lines.into_iter().filter(|line| line["kind"] == "routing").collect::<Vec<Value>>()
    };
    let candidates = |line: &Value| {
        let all = line["candidates"].as_array()?.clone();
        Some(all.into_iter().map(|one| (one["instance"].as_u64(), number(&one, "score"))).collect::<Vec<_>>())
    };
    assert!(routed("").iter().chain(&routed("{} 0")).all(|line| candidates(line).is_none()));
    let two = routed("{} 2");
    // The fourth request meets three on instance 0; the others are idle.
    let best = candidates(&two[3]).expect("candidates");
    assert_eq!(best, [(Some(1), -0.0), (Some(2), -0.0)], "two of four, best first, then in order");
    assert!(two[3]["instance"] == 0 && number(&two[3], "score_regret") >= 3.0, "{}", two[3]);
    let all = candidates(&routed("{} 99")[3]).expect("candidates");
    assert_eq!((all.len(), all[3].0, -all[3].1), (4, Some(0), number(&two[3], "score_regret")));
}

fn summarize_trace(t: &Trial) {
    let flags = "--num-instances 2 --routing-policy always-busiest --trace-level decisions";
    assert_eq!(t.figures(&calm(), flags)["decisions"], Value::Null);
    let summary = t.figures(&calm(), &format!("{flags} {{}}"))["decisions"].clone();
    assert_eq!([number(&summary, "admitted"), number(&summary, "rejected")], [20.0, 0.0]);
    assert_eq!(summary["target_distribution"], serde_json::json!({"0": 20}));
    assert!(number(&summary, "max_regret") >= 3.0, "the other one was idle");
    assert!(t.summary(&calm(), &format!("{flags} {{}}")).contains("\nTotal Decisions: 20\n"));
}

/// The regret of routing everything to one of four.
fn regretted(t: &Trial, flags: &str) -> Value {
    let flags = format!("--num-instances 4 --routing-policy always-busiest --regret outcome {flags}");
    t.figures(&pressed(), &flags)["regret"].clone()
}

fn regret(t: &Trial) {
    assert_eq!(t.figures(&calm(), "")["regret"], Value::Null);
    let regret = t.figures(&calm(), "{} outcome")["regret"].clone();
    assert_eq!(number(&regret["kinds"]["admission"], "decisions"), 20.0);
    assert!(t.summary(&calm(), "{} outcome").contains("\nOutcome regret: request-seconds per decision"));
}

fn regret_samples(t: &Trial) {
    let evaluated = |flags: &str| number(&regretted(t, flags)["kinds"]["routing"]["uniform"], "evaluated");
    assert!(evaluated("{} 4") < evaluated("{} 16"));
    assert!(t.error(&calm(), "{} 0").contains("invalid value '0'"));
}

fn regret_alternatives(t: &Trial) {
    let branches = |flags: &str| regretted(t, flags)["worst"][0]["branches"].as_array().expect("branches").len();
    assert_eq!([branches("{} 1"), branches("{} 2"), branches(""), branches("{} 9")], [2, 3, 4, 4]);
}

fn regret_window(t: &Trial) {
    let window = |flags: &str| number(&regretted(t, flags), "window_s");
    assert_eq!(window("{} 2.5"), 2.5);
    assert!(window("") >= 1.0);
}

fn regret_path(t: &Trial) {
    regretted(t, "{} {dir}/r.jsonl --regret-samples 8");
    let lines = fs::read_to_string(t.folder.join("r.jsonl")).expect("written");
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    // Some of those that are late may be among those at random.
    let routing = lines.iter().filter(|line| line["kind"] == "routing").count();
    assert!((6..=8).contains(&routing), "{routing}");
    assert!(lines.iter().all(|line| line["branches"].as_array().is_some_and(|branches| branches.len() > 1)));
    assert!(t.error(&calm(), "{} {dir}/r.jsonl").contains("add `--regret outcome`"));
}

// Workload

fn workload(t: &Trial) {
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

const SPEC: &str = "\
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

fn workload_spec(t: &Trial) {
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
        let answered = number(round(0.0), "arrived_at") + number(round(0.0), "e2e_ms") / 1e3;
        assert_eq!(number(round(1.0), "arrived_at") >= answered - 1e-9, waits);
        assert_eq!(figures["sessions"]["completed"].is_u64(), waits, "states are those of closed loops");
    }
}

const AZURE: &str = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.0000000,374,44\n\
                     2023-11-16 18:15:47.5000000,396,10\n";

fn workload_trace(t: &Trial) {
    t.file("azure.csv", AZURE);
    let figures = t.json(&t.bare("{} {dir}/azure.csv"));
    assert_eq!(number(&figures, "injected_requests"), 2.0);
    assert_eq!(number(&figures, "total_input_tokens"), 770.0);
}

fn trace_format(t: &Trial) {
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
        "otel",
        "vllm-vcr",
    ] {
        assert_eq!(with(other).code, Some(2), "read as {other}");
    }
}

fn mooncake_block_size(t: &Trial) {
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
fn arrivals(t: &Trial, flags: &str) -> Vec<f64> {
    let metrics = t.metrics(&calm(), flags);
    metrics["requests"].as_array().expect("requests").iter().map(|request| number(request, "arrived_at")).collect()
}

fn start(t: &Trial) {
    let late = arrivals(t, "{} 1.5");
    assert_eq!(late, [0.001, 0.101, 0.201, 0.301, 0.401]);
    assert_eq!(arrivals(t, "{} 0"), arrivals(t, ""));
    assert!(t.error(&calm(), "{} 7").contains("no request arrives from 7 s on; the last one arrives at 1.901 s"));
    assert!(t.error(&calm(), "{} -1").contains("must be a number of seconds"));
}

fn duration(t: &Trial) {
    assert_eq!(arrivals(t, "{} 0.25"), [0.001, 0.101, 0.201]);
    assert_eq!(arrivals(t, "--start 0.1 {} 0.2"), [0.001, 0.101]);
    assert!(t.error(&calm(), "{} 0").contains("must be a number of seconds from 0.000001"));
}

fn time_scale(t: &Trial) {
    let (usual, slow) = (arrivals(t, ""), arrivals(t, "{} 2.5"));
    assert!(usual.iter().zip(&slow).all(|(usual, slow)| (slow - 2.5 * usual).abs() < 2e-6));
    assert!(t.error(&calm(), "{} 0").contains("must be a number from 0.000001"));
}

fn repeat(t: &Trial) {
    let (once, twice) = (arrivals(t, ""), arrivals(t, "{} 2"));
    assert_eq!((once.len(), twice.len()), (20, 40));
    assert_eq!(twice[..20], once);
    // The second pass follows one interval behind the first.
    assert!((twice[20] - twice[19] - 0.1).abs() < 0.002, "{twice:?}");
}

fn spread_bins(t: &Trial) {
    let at_once = rows(4, 0, ROW);
    let metrics = t.metrics(&at_once, "{} 400");
    let all = metrics["requests"].as_array().expect("requests").clone();
    let all: Vec<f64> = all.iter().map(|request| number(request, "arrived_at")).collect();
    assert_eq!(all, [0.001, 0.101, 0.201, 0.301]);
}

fn max_requests(t: &Trial) {
    assert_eq!(arrivals(t, "{} 3"), [0.001, 0.101, 0.201]);
    assert_eq!(arrivals(t, "--start 0.05 --repeat 2 {} 25").len(), 25);
    assert!(t.error(&calm(), "{} 0").contains("must be a whole number from 1"));
}

fn skip_bad_lines(t: &Trial) {
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

fn timeout(t: &Trial) {
    let timed_out = |flags: &str| number(&t.json(&t.bare(flags)), "timed_out_requests");
    assert_eq!(timed_out("--max-num-seqs 1 --rate 100 {} -1"), 0.0);
    assert!(timed_out("--max-num-seqs 1 --rate 100 {} 5") > timed_out("--max-num-seqs 1 --rate 100 {} 50"));
    t.file("azure.csv", AZURE);
    assert_eq!(timed_out("--workload-trace {dir}/azure.csv {} 0.05"), 2.0, "a trace takes it too");
}

fn rate(t: &Trial) {
    let figures = |flags: &str| t.json(&t.bare(flags));
    let (slow, fast) = (figures("{} 1"), figures("{} 10"));
    assert!(number(&fast, "responses_per_sec") > 5.0 * number(&slow, "responses_per_sec"));
    assert!(number(&fast, "ttft_mean_ms") > number(&slow, "ttft_mean_ms"));
}

/// Requests in service at the same time, at most.
fn at_once(requests: &[Value]) -> usize {
    let span = |r: &Value| (number(r, "arrived_at"), number(r, "arrived_at") + number(r, "e2e_ms") / 1e3 - 1e-6);
    let spans: Vec<(f64, f64)> = requests.iter().map(span).collect();
    let during = |time: f64| spans.iter().filter(|&&(start, end)| start <= time && time < end).count();
    spans.iter().map(|&(start, _)| during(start)).max().unwrap_or(0)
}

fn concurrency(t: &Trial) {
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
        message("{} 3 --num-requests 9 --rate 2").contains("cannot be used with '--rate"),
        "{}",
        message("{} 3 --rate 2")
    );
    assert!(message("{} 3").contains("`--concurrency` needs an end"));
    assert!(message("{} 3 --num-requests 9 --workload bursty").contains("cannot be used with `--workload bursty`"));
    assert!(message("{} 3 --num-requests 9 --arrival-process poisson").contains("cannot be used with `--concurrency`"));
}

fn think_time_of_users(t: &Trial) {
    let pauses = |flags: &str| {
        let (_, requests) = t.generated(&format!("--concurrency 2 --num-requests 20 {flags}"));
        let of_one = requests.iter().filter(|request| request["session_id"] == "sess_0").collect::<Vec<_>>();
        let answered = |r: &Value| number(r, "arrived_at") + number(r, "e2e_ms") / 1e3;
        of_one.windows(2).map(|pair| number(pair[1], "arrived_at") - answered(pair[0])).collect::<Vec<f64>>()
    };
    for (flags, pause) in [("", 0.0), ("{} 0", 0.0), ("{} 1500", 1.5)] {
        assert!(pauses(flags).iter().all(|seconds| (seconds - pause).abs() < 1e-5), "{flags}: {:?}", pauses(flags));
    }
    assert!(t.bare("{} 5").stderr.contains("--concurrency <N>"), "it is needed");
}

fn arrival_process(t: &Trial) {
    let gaps = |name: &str| {
        let (_, requests) = t.generated(&format!("{{}} {name} --rate 10"));
        let mut times: Vec<u64> = requests.iter().map(|r| (number(r, "arrived_at") * 1e6).round() as u64).collect();
        times.sort_unstable();
        times.windows(2).map(|pair| pair[1] - pair[0]).collect::<BTreeSet<_>>().len()
    };
    assert_eq!(gaps("constant"), 1);
    assert!(gaps("poisson") > 90);
}

fn num_requests(t: &Trial) {
    let injected = |flags: &str| number(&t.json(&t.bare(flags)), "injected_requests");
    assert_eq!((injected("{} 7"), injected("")), (7.0, 100.0));
    assert!(injected("{} 0 --horizon 10000000 --rate 5") > 40.0, "as many as arrive");
}

fn prefix_tokens(t: &Trial) {
    let (none, _) = t.generated("--num-requests 50");
    let (some, requests) = t.generated("--num-requests 50 {} 320");
    assert_eq!(number(&some, "total_input_tokens"), number(&none, "total_input_tokens") + 50.0 * 320.0);
    assert!(requests.iter().filter(|r| number(r, "num_cached_tokens") == 320.0).count() >= 48);
}

fn trace_header(t: &Trial) {
    let figures = t.figures(&calm(), "");
    assert_eq!(number(&figures, "completed_requests"), 20.0);
    t.file("other.yaml", "trace_version: 2\n");
    let message = t.bare("{} {dir}/other.yaml --trace-data {dir}/t.csv").stderr;
    assert!(message.contains("trace_version"), "{message}");
}

fn trace_data(t: &Trial) {
    t.figures(&calm(), "");
    t.file("other.csv", &trace(&rows(5, 10, ROW)));
    let figures = t.json(&t.bare("--trace-header {dir}/t.yaml {} {dir}/other.csv"));
    assert_eq!(number(&figures, "completed_requests"), 5.0);
}

/// A round that has only the delay after the output of the round before.
fn session_mode_of_a_trace(t: &Trial) {
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
fn conversations(t: &Trial, flags: &str) -> Value {
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
fn thinking(metrics: &Value) -> Vec<f64> {
    let time = |id: u32| of_request(metrics, id, "arrived_at");
    (2..6).map(|id| time(id) - time(id - 2) - of_request(metrics, id - 2, "e2e_ms") / 1e3).collect()
}

fn session_mode(t: &Trial) {
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

fn think_time_ms(t: &Trial) {
    let waiting = thinking(&conversations(t, "--session-mode closed-loop {} 700"));
    assert!(waiting.iter().all(|seconds| (seconds - 0.7).abs() < 1e-5), "{waiting:?}");
    assert!(t.error(&calm(), "{} 700").contains("needs `--session-mode closed-loop`"));
    for moved in ["--repeat 2", "--start 1", "--duration 1", "--time-scale 2", "--spread-bins 10"] {
        let message = t.error(&calm(), &format!("--session-mode closed-loop {moved} {{}} 700"));
        assert!(message.contains("cannot be used with `--session-mode closed-loop`"), "{message}");
    }
}

fn think_time_dist(t: &Trial) {
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

// Simulation and output

fn seed(t: &Trial) {
    if t.command == "run" {
        let out = |flags: &str| t.bare(flags).stdout;
        assert!(out("{} 1") == out("{} 1") && out("{} 42") == out("") && out("{} 1") != out("{} 2"));
    } else {
        let figures = |seed: u32| t.figures(&calm(), &format!("{{}} {seed}"));
        assert_eq!(figures(1), figures(2), "a recorded trace leaves nothing to chance");
        assert!(t.error(&calm(), "{} -1").contains("must be a whole number from 0"));
    }
}

fn horizon(t: &Trial) {
    let figures = t.figures(&calm(), "{} 1000000");
    assert!(number(&figures, "vllm_estimated_duration_s") <= 1.0);
    let seen =
        ["completed_requests", "still_running", "still_queued", "still_arriving"].map(|key| number(&figures, key));
    assert!(seen[0] > 0.0 && seen[0] < 20.0 && seen.iter().sum::<f64>() < 20.0, "{seen:?}");
}

fn config(t: &Trial) {
    let file = t.file("settings.yaml", "cluster:\n  num-instances: 3\nrouting:\n  policy: least-loaded\n");
    let instances = |flags: &str| t.placements(&calm(), flags).into_iter().flatten().collect::<BTreeSet<u32>>().len();
    assert_eq!(instances(&format!("{{}} {file}")), 3);
    assert_eq!(instances(&format!("{{}} {file} --num-instances 2")), 2, "flags win");
}

fn explain_config(t: &Trial) {
    let output = t.on(&calm(), "{} --seed 7 --scheduler sjf");
    assert_eq!(output.code, Some(0));
    let page = output.stdout;
    assert!(page.contains("\n  seed: 7  # flag --seed\n") && page.contains("\nscheduler: sjf  # flag --scheduler\n"));
    assert!(!page.contains("completed_requests"), "nothing is simulated");
}

fn log(t: &Trial) {
    let message = |level: &str| t.on(&calm(), &format!("--max-model-len 200 {{}} {level}")).stderr;
    assert_eq!((message("off").as_str(), message("error").as_str()), ("", ""));
    assert!(message("warn").contains("WARN") && !message("warn").contains("INFO"));
    assert!(message("info").contains("INFO") && !message("info").contains("DEBUG"));
    // There nothing is too long for the model.
    let served = |level: &str| t.on(&calm(), &format!("{{}} {level}")).stderr;
    let debug = served("debug");
    for event in ["admitted", "routed", "scheduled", "step"] {
        // Behind the span of the experiment.
        let is_told = |line: &str| line.contains("DEBUG experiment{") && line.contains(&format!(" {event} "));
        assert!(debug.lines().any(is_told), "{event}: {debug}");
    }
    assert!(
        !debug.contains("TRACE")
            && served("trace").lines().any(|line| line.contains("TRACE ") && line.contains(" requests of the step "))
    );
}

fn output(t: &Trial) {
    let out = |form: &str| t.on(&calm(), &format!("{{}} {form}")).stdout;
    assert!(out("text").starts_with("Model "));
    assert!(out("json") == out("auto") && serde_json::from_str::<Value>(&out("json")).is_ok());
}

/// The bar needs a terminal (see `output.rs`); elsewhere the flag must at least disturb nothing.
fn no_progress(t: &Trial) {
    assert_eq!(t.on(&calm(), "{}").stdout, t.on(&calm(), "").stdout);
}

fn metrics_path(t: &Trial) {
    let printed = t.figures(&calm(), "{} {dir}/metrics.json");
    let metrics: Value =
        serde_json::from_slice(&fs::read(t.folder.join("metrics.json")).expect("written")).expect("JSON");
    assert_eq!(metrics["requests"].as_array().map(Vec::len), Some(20));
    assert_eq!((&metrics["e2e_mean_ms"], &printed["requests"]), (&printed["e2e_mean_ms"], &Value::Null));
}

fn export(t: &Trial) {
    t.figures(&calm(), "{} vllm-bench={dir}/bench.json");
    let bench: Value = serde_json::from_slice(&fs::read(t.folder.join("bench.json")).expect("written")).expect("JSON");
    assert_eq!((&bench["completed"], bench["itls"].as_array().map(Vec::len)), (&20.into(), Some(20)));
}

fn trace_output(t: &Trial) {
    t.figures(&calm(), "{} {dir}/out");
    let header = fs::read_to_string(t.folder.join("out.yaml")).expect("written");
    assert!(header.starts_with("trace_version: 3\n"), "{header}");
    assert_eq!(fs::read_to_string(t.folder.join("out.csv")).expect("written").lines().count(), 21);
}

fn results_path(t: &Trial) {
    t.figures(&calm(), "{} {dir}/results.json");
    let results: Value =
        serde_json::from_slice(&fs::read(t.folder.join("results.json")).expect("written")).expect("JSON");
    assert_eq!(results.as_array().map(Vec::len), Some(20));
    assert!(number(&results[0], "ttft_us") > 0.0);
}

fn help(t: &Trial) {
    let output = blis!(t.command, t.flag);
    assert_eq!(output.code, Some(0));
    assert!(output.stdout.contains(&format!("Usage: blis {}", t.command)));
}
