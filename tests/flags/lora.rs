//! Flags of LoRA adapters.

use super::*;

/// A file with the adapters `a` and `b`, and what else stands in it.
fn declared(t: &Trial, more: &str) -> String {
    t.file("lora.yaml", &format!("lora: {{adapters: [{{id: a, rank: 8}}, {{id: b, rank: 16}}]{more}}}\n"))
}

/// Requests in turn for `a` and `b`, so close that both wait at the same time.
fn in_turn(t: &Trial) -> String {
    of_adapters(t, 20, |id| if id % 2 == 0 { "a" } else { "b" })
}

/// The flags that read a trace in which request `id` asks for `adapter(id)`.
fn of_adapters(t: &Trial, count: u32, adapter: impl Fn(u32) -> &'static str) -> String {
    let all = trace(&rows(count, 10_000, ROW));
    let lines = all.lines().enumerate().map(|(line, text)| match line.checked_sub(1) {
        None => format!("{text},adapter\n"),
        Some(id) => format!("{text},{}\n", adapter(id as u32)),
    });
    let lines: String = lines.collect();
    t.file("named.csv", &lines);
    t.file("named.yaml", "trace_version: 3\ntime_unit: microseconds\n");
    match t.command {
        "run" => "--workload-trace {dir}/named.csv".to_owned(),
        _ => "--trace-header {dir}/named.yaml --trace-data {dir}/named.csv".to_owned(),
    }
}

/// The figures of a run with requests in turn for two adapters.
fn figures(t: &Trial, flags: &str) -> Value {
    let trace = in_turn(t);
    t.json(&t.bare(&format!("{trace} {flags}")))
}

fn loads(figures: &Value, adapter: &str) -> (f64, f64) {
    let adapter = &figures["adapters"][adapter];
    (number(adapter, "loads_from_disk"), number(adapter, "loads_from_host"))
}

fn refused(t: &Trial, flags: &str) -> String {
    let trace = in_turn(t);
    let ended = t.bare(&format!("{trace} {flags}"));
    assert_eq!(ended.code, Some(2), "{flags}: {}", ended.stdout);
    ended.stderr
}

pub(super) fn enable_lora(t: &Trial) {
    assert_eq!(figures(t, "")["adapters"], Value::Null);
    let on = figures(t, "{}");
    assert_eq!(on["adapters"].as_object().map(|adapters| adapters.len()), Some(2));
    assert!(number(&on, "slot_wait_s") > 0.0 && number(&on, "adapters_per_step") <= 1.0, "one slot");
    assert!(number(&on, "ttft_mean_ms") > number(&figures(t, ""), "ttft_mean_ms"));
}

pub(super) fn lora_config(t: &Trial) {
    declared(t, ", adapter_capacity: 2");
    let on = figures(t, "{} {dir}/lora.yaml");
    assert_eq!((loads(&on, "a"), loads(&on, "b")), ((1.0, 0.0), (1.0, 0.0)), "each has a slot");
    t.file("other.yaml", "lora: {adapters: [{id: c, rank: 8}]}\n");
    let error = refused(t, "{} {dir}/other.yaml");
    assert!(error.contains("the LoRA adapter `a`, which is not declared"), "{error}");
}

pub(super) fn max_loras(t: &Trial) {
    let slot_wait = |n: u32| number(&figures(t, &format!("--enable-lora {{}} {n}")), "slot_wait_s");
    assert!(slot_wait(1) > 0.0 && slot_wait(2) == 0.0);
    assert!(refused(t, "{} 2").contains("needs `--enable-lora`"));
}

pub(super) fn max_cpu_loras(t: &Trial) {
    let again = |n: u32| {
        let figures = figures(t, &format!("--enable-lora --max-loras 1 {{}} {n}"));
        let ((disk, host), b) = (loads(&figures, "a"), loads(&figures, "b"));
        (disk + b.0, host + b.1)
    };
    let ((one_disk, one_host), (two_disk, two_host)) = (again(1), again(2));
    assert!(one_host == 0.0 && one_disk >= 2.0, "whatever leaves its slot is read again");
    assert!(two_disk == 2.0 && two_host >= 0.0, "each is read once");
}

pub(super) fn max_lora_rank(t: &Trial) {
    declared(t, "");
    let trace = in_turn(t);
    let blocks = |rank: u32| {
        let flags = format!("{trace} --lora-config {{dir}}/lora.yaml {{}} {rank} --output text");
        kv_blocks(&t.bare(&flags).stdout)
    };
    assert!(blocks(16) > blocks(256), "slots take memory from the KV cache");
    assert!(refused(t, "--lora-config {dir}/lora.yaml {} 8").contains("`b` has rank 16"));
    assert!(refused(t, "--enable-lora {} 17").contains("must be one of 1, 8, 16"));
}

/// The first request waits for its adapter to be loaded.
fn first_ttft(t: &Trial, flags: &str) -> f64 {
    let trace = of_adapters(t, 1, |_| "a");
    let figures = t.json(&t.bare(&format!("{trace} --enable-lora {flags}")));
    number(&figures, "ttft_mean_ms")
}

pub(super) fn lora_load_base(t: &Trial) {
    let [none, second] = [0, 1_000_000].map(|us| first_ttft(t, &format!("{{}} {us}")));
    assert!((second - none - 1000.0).abs() < 0.01, "{none} {second}");
}

pub(super) fn lora_load_bandwidth(t: &Trial) {
    let [slow, fast] = [100, 1000].map(|bandwidth| first_ttft(t, &format!("{{}} {bandwidth}")));
    // 16 · 5.24 MB at 0.1 and at 1 GB/s
    assert!((slow - fast - 0.9 * 838.8608).abs() < 0.01, "{slow} {fast}");
}

pub(super) fn lora_footprint(t: &Trial) {
    let [small, large] = [1e6, 2e6].map(|bytes| first_ttft(t, &format!("{{}} {bytes}")));
    // 16 MB more at 1 GB/s from disk and at 50 GB/s into the slot
    assert!((large - small - 16.32).abs() < 0.01, "{small} {large}");
}

pub(super) fn lora_scorer_weight(t: &Trial) {
    let trace = in_turn(t);
    let path = t.folder.join("all.json");
    let mixed = |flags: &str| {
        let flags = format!("{trace} --enable-lora --num-instances 2 --routing-policy weighted {flags}");
        t.json(&t.bare(&format!("{flags} --metrics-path {}", path.display())));
        let metrics: Value = serde_json::from_slice(&fs::read(&path).expect("written")).expect("JSON");
        let requests = metrics["requests"].as_array().expect("requests");
        distinct(requests.iter().map(|request| (request["adapter"].to_string(), request["handled_by"].to_string())))
    };
    assert_eq!(
        mixed("--routing-scorers queue-depth:1 {} 10 --snapshot-refresh-interval 0"),
        2,
        "an instance for each adapter"
    );
    assert!(mixed("--routing-scorers queue-depth:1") > 2, "both go to both");
    assert!(
        refused(t, "--enable-lora --routing-policy weighted --routing-scorers lora-affinity:1 {} 1")
            .contains("lora-affinity")
    );
}
