//! Flags of the CPU tier.

use super::*;

/// Prompts with a shared prefix of 256 tokens, and between them others that need its KV blocks on the GPU.
fn alternating() -> Vec<Row> {
    let shared = rows(10, 2_000_000, Row { prefix: 256, ..ROW });
    let other = rows(10, 2_000_000, ROW);
    let later = |row: Row| Row { arrival_us: row.arrival_us + 1_000_000, ..row };
    shared.into_iter().zip(other).flat_map(|(shared, other)| [shared, later(other)]).collect()
}

/// A GPU with room for one of them.
const SMALL: &str = "--total-kv-blocks 22 --max-model-len 352 --no-async-scheduling";

/// A CPU tier with room for all.
const TIER: &str = "--total-kv-blocks 22 --max-model-len 352 --no-async-scheduling --kv-offloading-size 2";

impl Trial {
    fn tier(&self, flags: &str) -> Value {
        self.figures(&alternating(), flags)["cpu_tier"].clone()
    }
}

pub(super) fn kv_offloading_size(t: &Trial) {
    let [off, on] = ["{} 0", "{} 1"].map(|flags| t.figures(&alternating(), &format!("{SMALL} {flags}")));
    assert_eq!(off, t.figures(&alternating(), SMALL));
    assert_eq!(number(&on["cpu_tier"], "cpu_hit_tokens"), 9.0 * 256.0);
    assert!(number(&on, "ttft_mean_ms") < number(&off, "ttft_mean_ms"));
    let one = t.error(&alternating(), &format!("{SMALL} {{}} 0.001"));
    assert!(one.contains("smaller than one chunk"), "{one}");
    let one = t.error(&alternating(), &format!("{SMALL} {{}} 1 --no-enable-prefix-caching"));
    assert!(one.contains("hashes of the prefix cache"), "{one}");
    let one = t.error(&alternating(), "{} 1 --parity blis");
    assert!(one.contains("cannot be used with `--parity blis`"), "{one}");
    assert!(t.summary(&alternating(), &format!("{SMALL} {{}} 1")).contains("\nCPU tier"));
}

pub(super) fn kv_offloading_eviction_policy(t: &Trial) {
    // Room for 30 chunks of 2 MiB: two prompts have more.
    let hits = |flags: &str| {
        let small = format!("{SMALL} --kv-offloading-size 0.0586 {flags}");
        number(&t.tier(&small), "cpu_hit_tokens")
    };
    assert_eq!(hits(""), hits("{} lru"));
    assert!(hits("{} arc") < hits("{} lru") - 100.0, "{} {}", hits("{} arc"), hits("{} lru"));
}

pub(super) fn kv_cache_policy(t: &Trial) {
    // Room for 30 chunks of 2 MiB: two prompts have more.
    const SIZE: &str = "--kv-offloading-size 0.0586";
    let tier = |flags: &str| t.tier(&format!("{SMALL} {SIZE} {flags}"));
    assert_eq!(tier("{} lru"), tier(""));
    assert_eq!(tier("{} arc"), tier("--kv-offloading-eviction-policy arc"));
    assert_eq!(tier("{} arc --kv-offloading-eviction-policy arc"), tier("{} arc"));
    assert_ne!(tier("{} arc"), tier("{} lru"));
    // Between two uses of the shared prefix a whole other prompt comes: of chunks with one use all must go.
    assert_eq!(tier("{} slru --policy-param kv-cache.protected-uses=1"), tier("{} lru"));
    let one = t.error(&alternating(), &format!("{SMALL} {{}} lfu"));
    assert!(one.contains("no effect without `--kv-offloading-size`"), "{one}");
    let one = t.error(&alternating(), &format!("{SMALL} --kv-offloading-size 0 {{}} lfu"));
    assert!(one.contains("no effect without `--kv-offloading-size`"), "{one}");
    let one = t.error(&alternating(), &format!("{SMALL} {SIZE} {{}} lfu --kv-offloading-eviction-policy arc"));
    assert!(one.contains("is `arc`, and the KV cache policy is `lfu`"), "{one}");
    let one = t.error(&alternating(), &format!("{SMALL} {SIZE} {{}} lrv"));
    assert!(one.contains("did you mean `lru`"), "{one}");
}

pub(super) fn kv_offloading_blocks_per_chunk(t: &Trial) {
    let hits = |flags: &str| number(&t.tier(&format!("{TIER} {flags}")), "cpu_hit_tokens");
    assert_eq!((hits("{} 1"), hits("{} 5")), (9.0 * 256.0, 9.0 * 240.0), "of 16 blocks");
}

pub(super) fn kv_offloading_store_threshold(t: &Trial) {
    let of = |flags: &str, name: &str| number(&t.tier(&format!("{TIER} {flags}")), name);
    assert_eq!((of("{} 1", "skipped_chunks"), of("{} 0", "skipped_chunks")), (0.0, 0.0));
    assert!(of("{} 2", "skipped_chunks") > 100.0);
    assert_eq!(of("{} 2", "cpu_hit_tokens"), 8.0 * 256.0, "the second request stores the prefix");
}

pub(super) fn kv_offloading_all_tokens(t: &Trial) {
    let stored = |flags: &str| number(&t.tier(&format!("{TIER} {flags}")), "stored_bytes");
    // Of 349 tokens with KV, 300 are the prompt: 21 full blocks instead of 18, of 2 MiB.
    assert_eq!(stored("{}") - stored(""), 20.0 * 3.0 * f64::from(2 << 20));
}

/// Mean wait for loads, ms.
fn wait(t: &Trial, flags: &str) -> f64 {
    number(&t.tier(&format!("{TIER} {flags}"))["load_wait"], "mean_ms")
}

pub(super) fn kv_offloading_bandwidth(t: &Trial) {
    assert_eq!(wait(t, "{} 50"), wait(t, ""));
    // 32 MiB at 1 GB/s.
    assert!((wait(t, "{} 1") - 33.6).abs() < 1.0, "{}", wait(t, "{} 1"));
}

pub(super) fn kv_offloading_bandwidth_both(t: &Trial) {
    // Stores take longer than the second until the next request comes. The GPU has room for two requests, so that none waits for them.
    let every_third = |(index, row)| Row { prefix: if index % 3 == 0 { 256 } else { 0 }, ..row };
    let load: Vec<Row> = rows(30, 1_500_000, ROW).into_iter().enumerate().map(every_third).collect();
    let slow = |both: f64| {
        let gpu = "--total-kv-blocks 44 --max-model-len 352 --kv-offloading-size 2 --kv-offloading-bandwidth 0.02";
        let flags = format!("{gpu} {{}} {both}");
        number(&t.figures(&load, &flags)["cpu_tier"]["load_wait"], "mean_ms")
    };
    assert!(slow(0.02) > 1.1 * slow(0.04), "{} {}", slow(0.02), slow(0.04));
    let refused = t.error(&alternating(), &format!("{TIER} {{}} 120"));
    assert!(refused.contains("at most twice as much"), "{refused}");
    let refused = t.error(&alternating(), &format!("{SMALL} {{}} 60"));
    assert!(refused.contains("needs `--kv-offloading-size`"), "{refused}");
}

pub(super) fn kv_offloading_latency(t: &Trial) {
    assert!((wait(t, "{} 100ms") - wait(t, "{} 0") - 100.0).abs() < 0.1);
}

/// A CPU tier of 25 chunks, which holds one prompt of 18, and the tier below it with these flags.
fn below(t: &Trial, flags: &str) -> Value {
    t.tier(&format!("{SMALL} --kv-offloading-size 0.049 {flags}"))
}

pub(super) fn kv_offloading_secondary(t: &Trial) {
    let [none, fs, obj] = ["{} none", "{} fs", "{} obj"].map(|flags| below(t, flags));
    assert_eq!(none, below(t, ""));
    assert!(none.get("secondary").is_none());
    for tier in [fs, obj] {
        assert!(number(&tier, "cpu_hit_tokens") > number(&none, "cpu_hit_tokens") + 1000.0, "{tier} {none}");
        let hits = number(&tier["secondary"], "hit_tokens");
        assert!(hits > 1000.0 && hits <= number(&tier, "cpu_hit_tokens"), "{tier}");
        assert!(number(&tier["secondary"], "read_bytes") >= hits / 16.0 * f64::from(2 << 20), "{tier}");
    }
    let refused = t.error(&alternating(), &format!("{SMALL} {{}} fs"));
    assert!(refused.contains("needs `--kv-offloading-size`"), "{refused}");
}

pub(super) fn kv_offloading_secondary_shared(t: &Trial) {
    // Round robin sends the shared prefix to each of three instances in turn.
    let below = |flags: &str| {
        let tier = "--kv-offloading-size 0.049 --kv-offloading-secondary obj";
        t.tier(&format!("{SMALL} --num-instances 3 --routing-policy round-robin {tier} {flags}"))["secondary"].clone()
    };
    let [own, shared] = [below(""), below("{}")];
    assert_eq!(number(&own, "hit_tokens_of_others"), 0.0);
    assert!(number(&shared, "hit_tokens_of_others") > 0.0, "{shared}");
    assert!(number(&shared, "hit_tokens") > number(&own, "hit_tokens"), "{shared} {own}");
    assert!(number(&shared, "written_bytes") < number(&own, "written_bytes"), "{shared} {own}");
    let refused = t.error(&alternating(), &format!("{TIER} {{}}"));
    assert!(refused.contains("needs `--kv-offloading-secondary`"), "{refused}");
    let refused = t.error(
        &alternating(),
        &format!("{TIER} --kv-offloading-secondary fs --kv-offloading-secondary-latency 0 {{}}"),
    );
    assert!(refused.contains("latency of 0"), "{refused}");
}

/// Mean TTFT with files below the CPU tier, ms.
fn ttft_below(t: &Trial, flags: &str) -> f64 {
    let all = format!("{SMALL} --kv-offloading-size 0.049 --kv-offloading-secondary fs {flags}");
    number(&t.figures(&alternating(), &all), "ttft_mean_ms")
}

pub(super) fn kv_offloading_secondary_bandwidth(t: &Trial) {
    assert_eq!(ttft_below(t, "{} 5"), ttft_below(t, ""));
    assert!(ttft_below(t, "{} 0.5") > ttft_below(t, "{} 5") + 10.0, "32 MiB take 67 ms instead of 7");
    let refused = t.error(&alternating(), &format!("{TIER} {{}} 5"));
    assert!(refused.contains("needs `--kv-offloading-secondary`"), "{refused}");
}

pub(super) fn kv_offloading_secondary_latency(t: &Trial) {
    assert_eq!(ttft_below(t, "{} 100"), ttft_below(t, ""));
    // Every request is looked up, and half of them are read.
    assert!(ttft_below(t, "{} 50ms") > ttft_below(t, "{} 100") + 50.0);
}

pub(super) fn kv_offloading_backpressure(t: &Trial) {
    let load: Vec<Row> = rows(60, 20_000, ROW);
    let dropped = |flags: &str| {
        let slow = "--kv-offloading-secondary fs --kv-offloading-secondary-bandwidth 0.05";
        let flags = format!("{SMALL} --kv-offloading-size 4 {slow} {flags}");
        number(&t.figures(&load, &flags)["cpu_tier"]["secondary"], "dropped_chunks")
    };
    assert_eq!((dropped(""), dropped("{} none")), (0.0, 0.0));
    assert!(dropped("{} drop") >= dropped("{} throttle") && dropped("{} throttle") > 0.0);
}
