//! Flags of the engine: KV cache, batches, scheduling.

use super::*;

/// The number of KV blocks in a summary.
pub(super) fn kv_blocks(summary: &str) -> u64 {
    let line = summary.lines().find(|line| line.starts_with("KV cache")).expect("a line on the cache");
    let (count, _) = line.split_once(" blocks").expect("blocks");
    count.chars().filter(char::is_ascii_digit).collect::<String>().parse().expect("a number")
}

pub(super) fn total_kv_blocks(t: &Trial) {
    let preemptions =
        |n: u32| number(&t.figures(&pressed(), &format!("{{}} {n} --max-model-len 2048")), "preemption_count");
    assert!(preemptions(200) > 0.0);
    assert_eq!(preemptions(10_000), 0.0);
}

pub(super) fn block_size(t: &Trial) {
    let blocks = |size: u32| kv_blocks(&t.summary(&calm(), &format!("{{}} {size}")));
    assert_eq!(blocks(32), blocks(16) / 2);
    let hits = |size: u32| number(&t.metrics(&sharing(), &format!("{{}} {size}")), "cache_hit_rate");
    assert!(hits(16) > 0.5 && hits(512) == 0.0, "no prefix fills a block of 512");
}

pub(super) fn max_model_len(t: &Trial) {
    let capped = |flags: &str| number(&t.figures(&calm(), flags), "length_capped_requests");
    assert_eq!((capped("{} 320"), capped("{} 0"), capped("")), (20.0, 0.0, 0.0));
    assert_eq!(number(&t.figures(&calm(), "{} 200"), "dropped_unservable"), 20.0);
    let small = "--tp 1 --kv-cache-memory-bytes 100000000";
    assert!(t.error(&calm(), &format!("{small} {{}} 4000")).contains("To serve at least one request"));
    assert!(t.summary(&calm(), &format!("{small} {{}} -1")).contains("the longest request that fits the KV cache"));
}

pub(super) fn gpu_memory_utilization(t: &Trial) {
    let blocks = |flags: &str| kv_blocks(&t.summary(&calm(), flags));
    let [half, default, all] = [blocks("{} 0.5"), blocks(""), blocks("{} 1")];
    assert!(half < default && default < all && blocks("{} 0.92") == default, "{half} {default} {all}");
}

/// Groups of requests with a shared prefix, which a cache of 60 blocks holds for one group at a time.
fn alternating() -> Vec<Row> {
    let row = |index: u32, tenant| Row { arrival_us: 1_000 + 500_000 * index, prefix: 288, tenant, ..ROW };
    (0..20)
        .map(|index| if index % 2 == 0 { row(index, "a") } else { Row { prefix: 0, input: 900, ..row(index, "b") } })
        .collect()
}

const MIRRORED: &str = "--parity blis --total-kv-blocks 60 --max-model-len 960";

pub(super) fn kv_cpu_blocks(t: &Trial) {
    let metrics = |flags: &str| t.metrics(&alternating(), &format!("{MIRRORED} {flags}"));
    let [without, zero, with] = [metrics(""), metrics("{} 0"), metrics("{} 1000")];
    assert_eq!(without, zero);
    assert!(number(&with, "cache_hit_rate") > number(&without, "cache_hit_rate") + 0.1, "{with:#}");
    assert!(without["kv_thrashing_rate"].is_null() && with["kv_thrashing_rate"] == 0.0);
    assert!(number(&metrics("{} 10"), "kv_thrashing_rate") > 0.5);
    let summary = t.summary(&alternating(), &format!("{MIRRORED} {{}} 1000"));
    assert!(summary.contains("KV tiers") && summary.contains("0.0 % thrashing rate"), "{summary}");
    assert!(t.error(&calm(), "{} 10").contains("needs `--parity blis`"));
    assert!(t.error(&calm(), "--parity blis {} 10 --no-enable-prefix-caching").contains("--no-enable-prefix-caching"));
}

pub(super) fn kv_transfer_bandwidth(t: &Trial) {
    let ttft = |flags: &str| {
        number(&t.figures(&alternating(), &format!("{MIRRORED} --kv-cpu-blocks 1000 {flags}")), "ttft_max_ms")
    };
    assert_eq!(ttft("{} 100"), ttft(""));
    assert!(ttft("{} 0.01") > ttft("") + 25.0, "1.6 ms for each of 18 blocks");
    assert!(t.error(&calm(), "--parity blis {} 3").contains("needs `--kv-cpu-blocks`"));
}

pub(super) fn kv_transfer_base_latency(t: &Trial) {
    let ttft = |flags: &str| {
        number(&t.figures(&alternating(), &format!("{MIRRORED} --kv-cpu-blocks 1000 {flags}")), "ttft_max_ms")
    };
    assert_eq!(ttft("{} 0"), ttft(""));
    assert!(ttft("{} 2ms") > ttft("") + 30.0, "2 ms for each of 18 blocks");
}

pub(super) fn kv_offload_threshold(t: &Trial) {
    let flags = format!("{MIRRORED} --kv-cpu-blocks 1000 {{}} 0.5");
    let output = t.on(&alternating(), &flags);
    assert!(output.stderr.contains("`--kv-offload-threshold` has no effect"), "{}", output.stderr);
    assert!(t.error(&alternating(), &format!("{MIRRORED} --kv-cpu-blocks 1000 {{}} 1.5")).contains("from 0 to 1"));
}

pub(super) fn kv_offload_config(t: &Trial) {
    let file = |bytes: u64, tiers: &str| {
        t.file("offload.yaml", &format!("kv_offload:\n  cpu_bytes_to_use: {bytes}\n  secondary_tiers: [{tiers}]\n"))
    };
    let metrics = |flags: &str| t.metrics(&alternating(), &format!("{MIRRORED} {flags}"));
    let hits = |metrics: &Value| number(metrics, "cache_hit_rate");
    let without = metrics("");
    file(1 << 40, "");
    let large = metrics("{} {dir}/offload.yaml");
    assert!(hits(&large) > hits(&without) + 0.1 && large["kv_thrashing_rate"] == 0.0, "{large:#}");
    // The CPU holds 20 blocks of 2 MiB: the prefix returns from the disk.
    file(20 << 21, "{type: fs, root_dir: /kv, direct_io: true, device_class: nvme_gen4}");
    let disk = metrics("{} {dir}/offload.yaml");
    assert!(hits(&disk) > hits(&without) + 0.1, "{disk:#}");
    file(1000, "");
    assert!(t.error(&calm(), "--parity blis {} {dir}/offload.yaml").contains("give room for at least one block"));
    assert!(t.error(&calm(), "--parity blis {} {dir}/offload.yaml --kv-cpu-blocks 3").contains("cannot be used with"));
    assert!(t.error(&calm(), "{} {dir}/offload.yaml").contains("needs `--parity blis`"));
}

pub(super) fn max_num_seqs(t: &Trial) {
    let ttft = |n: u32| number(&t.figures(&pressed(), &format!("{{}} {n}")), "ttft_p99_ms");
    let [one, four, many] = [1, 4, 64].map(ttft);
    assert!(one > 2.0 * four && four > 2.0 * many, "{one} {four} {many}");
}

pub(super) fn max_num_batched_tokens(t: &Trial) {
    let ttft = |n: u32| number(&t.figures(&pressed(), &format!("{{}} {n}")), "ttft_mean_ms");
    let [small, usual] = [128, 2048].map(ttft);
    assert!(small > usual, "{small} {usual}");
}

pub(super) fn max_num_active_seqs(t: &Trial) {
    let ttft = |flags: &str| number(&t.figures(&pressed(), flags), "ttft_p99_ms");
    assert_eq!(ttft("{} 4"), ttft("--max-num-seqs 4"), "as many requests run");
    assert!(ttft("{} 4") > 2.0 * ttft(""));
}

pub(super) fn long_prefill_token_threshold(t: &Trial) {
    let pairs = || rows(10, 1_000_000, ROW).into_iter().flat_map(|row| [row, row]).collect::<Vec<_>>();
    let steps = |load: &[Row], flags: &str| number(&t.figures(load, flags), "steps");
    assert_eq!((steps(&pairs(), "{} 0"), steps(&pairs(), "{} 300")), (steps(&pairs(), ""), steps(&pairs(), "")));
    assert!(steps(&pairs(), "{} 100") > steps(&pairs(), "") + 19.0, "prompts of 300 tokens take two steps more");
    let alone = rows(20, 1_000_000, ROW);
    assert_eq!(steps(&alone, "{} 100"), steps(&alone, ""), "a lone request may use the whole budget");
    assert_eq!(steps(&alone, "--engine vllm-0.15 {} 100"), steps(&alone, "--engine vllm-0.15") + 40.0);
}

pub(super) fn adaptive_prefill_threshold(t: &Trial) {
    let steps = |flags: &str| {
        let load = rows(2, 1, Row { input: 900, ..ROW });
        number(&t.figures(&load, &format!("--long-prefill-token-threshold 100 {flags}")), "steps")
    };
    assert!(steps("{}") + 5.0 < steps(""), "half of the budget is more than 100 tokens");
}

pub(super) fn prefill_schedule_interval(t: &Trial) {
    let ttft = |flags: &str| number(&t.figures(&rows(20, 30_000, ROW), flags), "ttft_mean_ms");
    assert_eq!(ttft("{} 1"), ttft(""));
    assert!(ttft("{} 20") > ttft("") + 20.0, "{} {}", ttft("{} 20"), ttft(""));
}

pub(super) fn watermark(t: &Trial) {
    let preemptions = |flags: &str| number(&t.figures(&pressed(), &format!("{TIGHT} {flags}")), "preemption_count");
    assert_eq!(preemptions("{} 0"), preemptions(""));
    assert!(preemptions("{} 0.3") < preemptions(""), "{} {}", preemptions("{} 0.3"), preemptions(""));
}

/// 503 is counted apart: not the admission policy's, and no request that could never be served.
fn refused(figures: &Value) -> (f64, f64, f64) {
    let of = |name: &str| number(figures, name);
    (of("rejected_server"), of("rejected_admission"), of("completed_requests"))
}

pub(super) fn max_num_queued_reqs(t: &Trial) {
    assert_eq!(refused(&t.figures(&pressed(), "{} 10")), (30.0, 0.0, 10.0), "40 requests at once");
    assert!(t.figures(&pressed(), "").get("rejected_server").is_none(), "no limit");
}

pub(super) fn max_num_queued_tokens(t: &Trial) {
    assert_eq!(refused(&t.figures(&pressed(), "{} 900")), (37.0, 0.0, 3.0), "three prompts of 300 tokens");
}

/// 20 requests, 256 of their 300 tokens in common.
pub(super) fn sharing() -> Vec<Row> {
    rows(20, 100_000, Row { prefix: 256, ..ROW })
}

pub(super) fn no_enable_prefix_caching(t: &Trial) {
    let hit_rate = |flags: &str| number(&t.metrics(&sharing(), flags), "cache_hit_rate");
    assert!(hit_rate("") > 0.5);
    assert_eq!(hit_rate("{}"), 0.0);
}

pub(super) fn enable_prefix_caching(t: &Trial) {
    let hit_rate = |flags: &str| number(&t.metrics(&sharing(), flags), "cache_hit_rate");
    assert!(hit_rate("--no-enable-prefix-caching {}") > 0.5, "the last one counts");
}

pub(super) fn no_enable_chunked_prefill(t: &Trial) {
    let dropped = |flags: &str| number(&t.figures(&calm(), flags), "dropped_unservable");
    assert_eq!(dropped("--max-num-batched-tokens 256"), 0.0);
    assert_eq!(dropped("--max-num-batched-tokens 256 {}"), 20.0, "300 tokens do not fit into one step");
}

pub(super) fn enable_chunked_prefill(t: &Trial) {
    let flags = "--max-num-batched-tokens 256 --no-enable-chunked-prefill {}";
    assert_eq!(number(&t.figures(&calm(), flags), "dropped_unservable"), 0.0, "the last one counts");
}

pub(super) fn async_scheduling(t: &Trial) {
    let figures = |flags: &str| t.figures(&pressed(), &format!("{TIGHT} {flags}"));
    assert_eq!(figures("--no-async-scheduling {}"), figures(""), "the default, and the last one counts");
}

pub(super) fn no_async_scheduling(t: &Trial) {
    let figures = |flags: &str| t.figures(&pressed(), &format!("{TIGHT} {flags}"));
    assert_ne!(figures("{}"), figures(""), "blocks come free a step earlier");
}

/// Preemptions of prompts that are computed in many chunks, in a small cache.
fn preemptions_of_long_prompts(t: &Trial, flags: &str) -> f64 {
    let rows = rows(30, 1, Row { input: 1_000, output: 20, ..ROW });
    let flags = format!("--total-kv-blocks 150 --max-model-len 2048 --max-num-batched-tokens 128 {flags}");
    number(&t.figures(&rows, &flags), "preemption_count")
}

pub(super) fn reserve_full_isl(t: &Trial) {
    let preemptions = |flags: &str| preemptions_of_long_prompts(t, flags);
    assert!(preemptions("--engine vllm-0.15 {}") < preemptions("--engine vllm-0.15"));
    assert_eq!(preemptions("{}"), preemptions(""), "the default of 0.33");
}

pub(super) fn no_reserve_full_isl(t: &Trial) {
    let preemptions = |flags: &str| preemptions_of_long_prompts(t, flags);
    assert!(preemptions("") < preemptions("{}"));
    assert_eq!(preemptions("{} --scheduler-reserve-full-isl"), preemptions(""), "the last one counts");
}

/// While request 0 runs, 1 (long, middle priority), 2 (short, lowest priority) and 3 (middling, highest priority) wait.
pub(super) fn queueing() -> Vec<Row> {
    let row = |arrival_us, input, priority| Row { arrival_us, input, priority, ..ROW };
    vec![row(1_000, 100, 1), row(2_000, 900, 2), row(3_000, 100, 3), row(4_000, 500, 1)]
}

/// Requests 1 to 3 in the order of their first tokens.
pub(super) fn order(metrics: &Value) -> Vec<u32> {
    let mut ids = vec![1, 2, 3];
    ids.sort_by_key(|&id| {
        let first_ms = of_request(metrics, id, "ttft_ms") + f64::from(id);
        (first_ms * 1e3) as u64
    });
    ids
}

pub(super) fn scheduler(t: &Trial) {
    let with = |name: &str| order(&t.metrics(&queueing(), &format!("--max-num-seqs 1 {{}} {name}")));
    assert_eq!(with("fcfs"), [1, 2, 3]);
    assert_eq!(with("sjf"), [2, 3, 1]);
    let (priority, reverse) = (with("priority-fcfs"), with("reverse-priority"));
    assert!(priority == [3, 1, 2] && reverse == [2, 1, 3], "{priority:?} {reverse:?}");
}

/// The first request has the lowest priority, the second the highest; then the cache is full.
pub(super) fn contending() -> Vec<Row> {
    let row = |arrival_us, priority| Row { arrival_us, priority, output: 400, ..ROW };
    vec![row(1_000, 9), row(1_001, 1)]
}

pub(super) fn preemption_policy(t: &Trial) {
    let preempted = |name: &str| {
        let metrics = t.metrics(&contending(), &format!("--total-kv-blocks 60 --max-model-len 900 {{}} {name}"));
        [0, 1].map(|id| of_request(&metrics, id, "preemption_count") > 0.0)
    };
    assert_eq!(preempted("fcfs"), [false, true], "the later one goes");
    assert_eq!(preempted("priority"), [true, false], "the victim is the request of lower priority");
}

pub(super) fn scheduling_policy(t: &Trial) {
    let metrics = |flags: &str| t.metrics(&queueing(), &format!("--max-num-seqs 1 {flags}"));
    assert_eq!(metrics("{} fcfs"), metrics(""));
    let both = metrics("--scheduler priority-fcfs --preemption-policy priority");
    assert_eq!(metrics("{} priority"), both);
    assert_ne!(both, metrics(""));
}

pub(super) fn policy_config(t: &Trial) {
    t.file("policy.yaml", "scheduler: priority-fcfs\npreemption: {policy: priority}\n");
    let metrics = |flags: &str| t.metrics(&queueing(), &format!("--max-num-seqs 1 {flags}"));
    assert_eq!(metrics("{} {dir}/policy.yaml"), metrics("--scheduling-policy priority"));
    assert_eq!(metrics("{} {dir}/policy.yaml --scheduling-policy fcfs"), metrics(""), "a flag wins");
    t.file("wrong.yaml", "scheduler: fcsf\n");
    assert!(t.error(&calm(), "{} {dir}/wrong.yaml").contains("wrong.yaml:1:12: unknown scheduler `fcsf`"));
}

pub(super) fn parity(t: &Trial) {
    let figures = |load: &[Row], flags: &str| t.figures(load, &format!("{TIGHT} {flags}"));
    assert_eq!(figures(&pressed(), "{} vllm"), figures(&pressed(), ""));
    assert_ne!(figures(&pressed(), "{} blis"), figures(&pressed(), ""), "they differ under pressure");
}

pub(super) fn engine(t: &Trial) {
    let figures = |flags: &str| t.figures(&pressed(), &format!("{TIGHT} {flags}"));
    assert_eq!(figures("{} vllm-0.33"), figures(""), "the default");
    assert_ne!(figures("{} vllm-0.15"), figures(""), "they differ under pressure");
    assert!(t.error(&calm(), "{} vllm-0.14").contains("[possible values: vllm-0.33, vllm-0.15]"));
    let error = t.error(&calm(), "--parity blis {} vllm-0.15");
    assert!(error.contains("cannot be used with `--parity blis`"), "{error}");
    let error = t.error(&calm(), "{} vllm-0.15 --watermark 0.1");
    assert!(error.contains("`--watermark` needs `--engine vllm-0.33`"), "0.15 has no such option: {error}");
}

pub(super) fn engine_version(t: &Trial) {
    let blocks = |flags: &str| kv_blocks(&t.summary(&calm(), flags));
    let [default, newest, old, sorting] = ["", "{} 0.33", "{} 0.19", "{} 0.15.1"].map(blocks);
    assert!(default == newest && sorting < old && old != newest, "{default} {newest} {old} {sorting}");
    assert_eq!(blocks("--engine vllm-0.15"), blocks("--engine vllm-0.15 {} 0.15"));
    assert!(t.error(&calm(), "{} 0.9").contains("0.10 to 0.33"));
    assert!(t.error(&calm(), "--parity blis {} 0.19").contains("cannot be used with `--parity blis`"));
}

pub(super) fn simulation(t: &Trial) {
    for parity in ["vllm", "blis"] {
        let out = |name: &str| t.on(&pressed(), &format!("{TIGHT} --parity {parity} {{}} {name}")).stdout;
        assert!(
            out("plain") == out("fast")
                && out("fast") == t.on(&pressed(), &format!("{TIGHT} --parity {parity}")).stdout
        );
    }
    assert!(t.error(&calm(), "{} slow").contains("[possible values: fast, plain]"));
}
