//! Every flag of `blis run` and `blis replay` does something: for each flag, under each of its
//! names, the real program runs twice and the figures move the way the flag says.
//!
//! The tables are complete: [`every_flag_has_its_test`] reads `--help` and misses nothing.

mod cpu_tier;
mod deployment;
mod disaggregation;
mod engine;
mod flow;
mod lora;
mod output;
mod policies;
mod recording;
mod scaling;
mod workload;

use std::collections::BTreeSet;
use std::fs;

use blis_eval::spec::KEYS;
use serde_json::Value;

use crate::macros::{Ended, Scratch, blis};
use cpu_tier::*;
use deployment::*;
use disaggregation::*;
use engine::*;
use flow::*;
use lora::*;
use output::*;
use policies::*;
use recording::*;
use scaling::*;
use workload::*;

/// What shows that a flag works.
type Check = fn(&Trial);

/// Flags that `run` and `replay` have in common, tried in both.
const COMMON: &[(&[&str], Check)] = &[
    (&["--model"], model),
    (&["--hardware", "--gpu"], hardware),
    (&["--tp", "--tensor-parallel-size"], tp),
    (&["--pp", "--pipeline-parallel-size"], pp),
    (&["--dp", "--data-parallel-size"], dp),
    (&["--enable-expert-parallel"], enable_expert_parallel),
    (&["--enforce-eager"], enforce_eager),
    (&["--dtype"], dtype),
    (&["--quantization"], quantization),
    (&["--kv-cache-dtype"], kv_cache_dtype),
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
    (&["--kv-cpu-blocks"], kv_cpu_blocks),
    (&["--kv-transfer-bandwidth"], kv_transfer_bandwidth),
    (&["--kv-transfer-base-latency"], kv_transfer_base_latency),
    (&["--kv-offload-threshold"], kv_offload_threshold),
    (&["--kv-offload-config"], kv_offload_config),
    (&["--max-num-seqs", "--max-num-running-reqs"], max_num_seqs),
    (&["--max-num-batched-tokens", "--max-num-scheduled-tokens"], max_num_batched_tokens),
    (&["--max-num-active-seqs"], max_num_active_seqs),
    (&["--long-prefill-token-threshold"], long_prefill_token_threshold),
    (&["--long-prefill-token-threshold-adaptive"], adaptive_prefill_threshold),
    (&["--prefill-schedule-interval"], prefill_schedule_interval),
    (&["--watermark"], watermark),
    (&["--max-num-queued-reqs"], max_num_queued_reqs),
    (&["--max-num-queued-tokens"], max_num_queued_tokens),
    (&["--kv-offloading-size"], kv_offloading_size),
    (&["--kv-offloading-eviction-policy"], kv_offloading_eviction_policy),
    (&["--kv-cache-policy"], kv_cache_policy),
    (&["--kv-offloading-blocks-per-chunk"], kv_offloading_blocks_per_chunk),
    (&["--kv-offloading-store-threshold"], kv_offloading_store_threshold),
    (&["--kv-offloading-all-tokens"], kv_offloading_all_tokens),
    (&["--kv-offloading-bandwidth"], kv_offloading_bandwidth),
    (&["--kv-offloading-bandwidth-both"], kv_offloading_bandwidth_both),
    (&["--kv-offloading-latency"], kv_offloading_latency),
    (&["--kv-offloading-secondary"], kv_offloading_secondary),
    (&["--kv-offloading-secondary-shared"], kv_offloading_secondary_shared),
    (&["--kv-offloading-secondary-bandwidth"], kv_offloading_secondary_bandwidth),
    (&["--kv-offloading-secondary-latency"], kv_offloading_secondary_latency),
    (&["--kv-offloading-backpressure"], kv_offloading_backpressure),
    (&["--enable-prefix-caching"], enable_prefix_caching),
    (&["--no-enable-prefix-caching"], no_enable_prefix_caching),
    (&["--enable-chunked-prefill"], enable_chunked_prefill),
    (&["--no-enable-chunked-prefill"], no_enable_chunked_prefill),
    (&["--async-scheduling"], async_scheduling),
    (&["--no-async-scheduling"], no_async_scheduling),
    (&["--scheduler-reserve-full-isl"], reserve_full_isl),
    (&["--no-scheduler-reserve-full-isl"], no_reserve_full_isl),
    (&["--enable-lora"], enable_lora),
    (&["--lora-config"], lora_config),
    (&["--max-loras", "--lora-adapter-capacity"], max_loras),
    (&["--max-cpu-loras"], max_cpu_loras),
    (&["--max-lora-rank"], max_lora_rank),
    (&["--lora-load-base-latency-us"], lora_load_base),
    (&["--lora-load-bandwidth-bytes-us"], lora_load_bandwidth),
    (&["--lora-footprint-bytes-per-rank"], lora_footprint),
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
    (&["--flow-control"], flow_control),
    (&["--saturation-detector"], saturation_detector),
    (&["--queue-depth-threshold"], queue_depth_threshold),
    (&["--kv-cache-util-threshold"], kv_cache_util_threshold),
    (&["--metrics-staleness-threshold"], metrics_staleness_threshold),
    (&["--max-concurrency"], max_concurrency),
    (&["--concurrency-mode"], concurrency_mode),
    (&["--max-token-concurrency"], max_token_concurrency),
    (&["--usage-limit-policy"], usage_limit_policy),
    (&["--usage-limit-threshold"], usage_limit_threshold),
    (&["--fairness-policy"], fairness_policy),
    (&["--fairness-weights"], fairness_weights),
    (&["--dispatch-order"], dispatch_order),
    (&["--slo-targets"], slo_targets),
    (&["--request-ttl"], request_ttl),
    (&["--max-gateway-queue-depth"], max_gateway_queue_depth),
    (&["--per-band-capacity"], per_band_capacity),
    (&["--per-band-bytes"], per_band_bytes),
    (&["--queue-shedding"], queue_shedding),
    (&["--in-flight-eviction"], in_flight_eviction),
    (&["--eviction-policy"], eviction_policy),
    (&["--dispatch-tick-interval"], dispatch_tick_interval),
    (&["--prefill-instances"], prefill_instances),
    (&["--decode-instances"], decode_instances),
    (&["--prefill-decode-instances"], prefill_decode_instances),
    (&["--encode-instances"], encode_instances),
    (&["--role"], role),
    (&["--prefill-tp"], prefill_tp),
    (&["--decode-tp"], decode_tp),
    (&["--prefill-hardware"], prefill_hardware),
    (&["--decode-hardware"], decode_hardware),
    (&["--prefill-latency-model"], prefill_latency_model),
    (&["--decode-latency-model"], decode_latency_model),
    (&["--prefill-max-model-len"], prefill_max_model_len),
    (&["--decode-max-model-len"], decode_max_model_len),
    (&["--prefill-routing-scorers"], prefill_routing_scorers),
    (&["--decode-routing-scorers"], decode_routing_scorers),
    (&["--encode-routing-scorers"], encode_routing_scorers),
    (&["--prefill-routing-filters"], prefill_routing_filters),
    (&["--decode-routing-filters"], decode_routing_filters),
    (&["--encode-routing-filters"], encode_routing_filters),
    (&["--disaggregation-policy"], disaggregation_policy),
    (&["--pd-decider"], pd_decider),
    (&["--pd-prefix-threshold"], pd_prefix_threshold),
    (&["--pd-ttft-target"], pd_ttft_target),
    (&["--pd-prefill-rate"], pd_prefill_rate),
    (&["--pd-stage-order"], pd_stage_order),
    (&["--pd-transfer-link"], pd_transfer_link),
    (&["--pd-transfer-bandwidth"], pd_transfer_bandwidth),
    (&["--pd-transfer-base-latency"], pd_transfer_base_latency),
    (&["--pd-transfer-contention"], pd_transfer_contention),
    (&["--pd-handshake-latency"], pd_handshake_latency),
    (&["--pd-hop-latency"], pd_hop_latency),
    (&["--pd-bidirectional"], pd_bidirectional),
    (&["--pd-recompute-threshold"], pd_recompute_threshold),
    (&["--pd-decoder-kv-ttl"], pd_decoder_kv_ttl),
    (&["--encode-decider"], encode_decider),
    (&["--encode-rate"], encode_rate),
    (&["--encode-base-latency"], encode_base_latency),
    (&["--group"], group),
    (&["--node-pool"], node_pool),
    (&["--node-idle"], node_idle),
    (&["--autoscaler"], autoscaler),
    (&["--min-replicas"], min_replicas),
    (&["--max-replicas"], max_replicas),
    (&["--scrape-interval"], scrape_interval),
    (&["--scaling-interval"], scaling_interval),
    (&["--scale-up"], scale_up),
    (&["--scale-down"], scale_down),
    (&["--cooldown-period"], cooldown_period),
    (&["--startup-time"], startup_time),
    (&["--start-mode"], start_mode),
    (&["--drain-policy"], drain_policy),
    (&["--placement-policy"], placement_policy),
    (&["--policy-config"], policy_config),
    (&["--admission-policy"], admission_policy),
    (&["--token-bucket-capacity"], token_bucket_capacity),
    (&["--token-bucket-refill-rate"], token_bucket_refill_rate),
    (&["--routing-policy"], routing_policy),
    (&["--routing-filters"], routing_filters),
    (&["--routing-scorers"], routing_scorers),
    (&["--lora-scorer-weight"], lora_scorer_weight),
    (&["--routing-picker"], routing_picker),
    (&["--routing-cache-weight"], routing_cache_weight),
    (&["--routing-load-weight"], routing_load_weight),
    (&["--priority-policy"], priority_policy),
    (&["--policy-param"], policy_param),
    (&["--policy-dir"], policy_dir),
    (&["--allow-native"], allow_native),
    (&["--allow-large-components"], allow_large_components),
    (&["--on-plugin-error"], on_plugin_error),
    (&["--slo-ttft"], |t| t.meets_targets("ttft")),
    (&["--slo-itl"], |t| t.meets_targets("itl")),
    (&["--slo-e2e"], |t| t.meets_targets("e2e")),
    (&["--fitness-weights"], fitness_weights),
    (&["--fitness-scale"], fitness_scale),
    (&["--baseline"], baseline),
    (&["--prices"], prices),
    (&["--energy"], energy),
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
    (&["--engine-version"], engine_version),
    (&["--simulation"], simulation),
    (&["--seed"], seed),
    (&["--horizon"], horizon),
    (&["--warmup"], warmup),
    (&["--config"], config),
    (&["--explain-config"], explain_config),
    (&["--log"], log),
    (&["--output"], output),
    (&["--no-progress"], no_progress),
    (&["--wall-s"], |t| t.ends_in_time("--wall-s")),
    (&["--cpu-s"], |t| t.ends_in_time("--cpu-s")),
    (&["--metrics-path"], metrics_path),
    (&["--export"], export),
    (&["--trace-output"], trace_output),
    (&["--export-from"], export_from),
    (&["--export-to"], export_to),
    (&["--export-instances"], export_instances),
    (&["--timeline"], timeline),
    (&["--interval"], interval),
    (&["--report"], report),
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
    (&["--num-requests", "--max-prompts", "--num-prompts", "--request-count"], num_requests),
    (&["--prompt-tokens", "--random-input-len", "--input-len", "--synthetic-input-tokens-mean", "--isl"], |t| {
        t.length("input", 512, 700);
    }),
    (&["--prompt-tokens-stdev", "--synthetic-input-tokens-stddev"], |t| t.spread("input", 256, 20)),
    (&["--prompt-tokens-min"], |t| t.bound("input", "num_prefill_tokens", 200, true)),
    (&["--prompt-tokens-max"], |t| t.bound("input", "num_prefill_tokens", 600, false)),
    (&["--output-tokens", "--random-output-len", "--output-len", "--output-tokens-mean", "--osl"], |t| {
        t.length("output", 512, 300);
    }),
    (&["--output-tokens-stdev", "--output-tokens-stddev"], |t| t.spread("output", 256, 20)),
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

/// Accepted, but not in the help: a tool of ours.
const HIDDEN: [&str; 1] = ["--simulation"];

#[test]
#[ignore = "heavy: `.ci/run` runs it in a step of its own"]
fn every_flag_of_run_has_an_effect() {
    try_all("run", [COMMON, RUN]);
}

#[test]
#[ignore = "heavy: `.ci/run` runs it in a step of its own"]
fn every_flag_of_replay_has_an_effect() {
    try_all("replay", [COMMON, REPLAY]);
}

/// Here, or in its row: `settings::no_setting_is_accepted_without_effect` uses the example of every setting that has no reason to be silent.
#[test]
fn every_flag_has_its_test() {
    let rows = KEYS.iter().filter(|key| key.silent.is_empty());
    let rows: BTreeSet<String> =
        rows.flat_map(|key| key.aliases.iter().chain([&key.name])).map(|name| format!("--{name}")).collect();
    for (command, own) in [("run", RUN), ("replay", REPLAY)] {
        let tried = COMMON.iter().chain(own).flat_map(|(names, _)| names.iter().copied());
        let tried: BTreeSet<&str> = tried.filter(|name| !HIDDEN.contains(name)).collect();
        let help = blis!(command, "--help").stdout;
        let offered: BTreeSet<&str> = help.lines().flat_map(flags_of).filter(|name| *name != "--color").collect();
        let untried: Vec<&&str> = offered.difference(&tried).filter(|name| !rows.contains(**name)).collect();
        let gone: Vec<&&str> = tried.difference(&offered).collect();
        assert!(untried.is_empty() && gone.is_empty(), "blis {command} --help: {untried:?} {gone:?}");
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
    /// Tokens of `input` that are of images.
    images: u32,
    class: &'static str,
    tenant: &'static str,
}

const ROW: Row =
    Row { arrival_us: 0, input: 300, output: 50, priority: 1, prefix: 0, images: 0, class: "", tenant: "" };

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
    fn meets_targets(&self, what: &str) {
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

    /// A run that would take minutes ends after the seconds of the flag `name`, which its message names.
    fn ends_in_time(&self, name: &str) {
        let ended = self.on(&rows(20, 100_000, ROW), "{} 0.2 --repeat 100000000");
        assert!(ended.code == Some(1) && ended.stderr.contains(name), "{}", ended.stderr);
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
    for (id, Row { arrival_us, input, output, priority, prefix, images, class, tenant }) in rows.iter().enumerate() {
        let (group, own) = (if *prefix > 0 { "g" } else { "" }, input - prefix);
        csv += &format!(
            "{id},c,{tenant},{class},,0,{group},{prefix},false,{own},{output},0,{images},0,0,0,,0,0,{arrival_us},0,0,0,0,ok,,,{priority}\n"
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
