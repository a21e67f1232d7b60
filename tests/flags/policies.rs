//! Flags of the cluster and its policies.

use super::*;

/// So far apart that none meets another.
pub(super) fn apart() -> Vec<Row> {
    rows(8, 3_000_000, ROW)
}

pub(super) fn num_instances(t: &Trial) {
    let metrics = t.metrics(&pressed(), "{} 3");
    assert_eq!(metrics["instances"].as_array().map(Vec::len), Some(3));
    assert_eq!(distinct(t.placements(&pressed(), "{} 3")), 3);
    let ttft = |n: u32| number(&t.figures(&pressed(), &format!("{{}} {n} --max-num-seqs 4")), "ttft_mean_ms");
    assert!(ttft(4) < ttft(2) && ttft(2) < ttft(1));
    assert_eq!(t.figures(&pressed(), "{} 1"), t.figures(&pressed(), ""));
}

pub(super) fn latency_in_front(t: &Trial) {
    let ttft = |us: u32| number(&t.figures(&apart(), &format!("{{}} {us}")), "ttft_mean_ms");
    assert!((ttft(5_000) - ttft(0) - 5.0).abs() < 1e-9, "5 ms before the queue are 5 ms of TTFT");
    assert_eq!(t.figures(&apart(), "{} 0"), t.figures(&apart(), ""));
}

/// Requests that find others waiting.
pub(super) const QUEUES: &str = "--num-instances 4 --max-num-seqs 1 --tie-break lowest-index --routing-policy weighted \
                      --routing-scorers queue-depth:1";

pub(super) fn snapshot_refresh_interval(t: &Trial) {
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

pub(super) fn cache_signal_delay(t: &Trial) {
    let flags = "--num-instances 4 --routing-policy weighted --routing-scorers precise-prefix-cache:1";
    let instances = |us: &str| distinct(t.placements(&sharing(), &format!("{flags} {us}")));
    assert_eq!(instances("{} 0"), 1, "where the prefix is");
    assert!(instances("{} 1000000000000") > 1, "the signal of the caches stays that of empty ones");
}

pub(super) fn tie_break(t: &Trial) {
    let placements = |flags: &str| t.placements(&apart(), &format!("--num-instances 4 {LEAST} {flags}"));
    assert_eq!(placements("{} lowest-index"), [Some(0); 8]);
    assert_eq!(placements("{} lowest-index --seed 7"), [Some(0); 8]);
    assert_eq!(placements("{} random"), placements(""));
    assert!(distinct(placements("")) > 1);
    assert_ne!(placements("{} random --seed 7"), placements("{} random"));
}

pub(super) const LEAST: &str = "--routing-policy least-loaded";

pub(super) fn admission_policy(t: &Trial) {
    let figures = t.figures(&calm(), "{} reject-all");
    assert_eq!((number(&figures, "rejected_admission"), number(&figures, "completed_requests")), (20.0, 0.0));
    assert_eq!(t.figures(&calm(), "{} always-admit"), t.figures(&calm(), ""));
    assert!(t.error(&calm(), "{} reject-al").contains("reject-all"));
}

pub(super) fn token_bucket_capacity(t: &Trial) {
    let rows = rows(40, 1, ROW);
    let admitted = |flags: &str| {
        let flags = format!("--admission-policy token-bucket --token-bucket-refill-rate 0.001 {flags}");
        number(&t.figures(&rows, &flags), "completed_requests")
    };
    assert_eq!((admitted("{} 899"), admitted("{} 900"), admitted("")), (2.0, 3.0, 33.0), "prompts of 300 tokens");
    assert!(t.error(&rows, "{} 900").contains("only makes sense with the admission policy `token-bucket`"));
}

pub(super) fn token_bucket_refill_rate(t: &Trial) {
    let rows = rows(20, 1_000_000, ROW);
    let admitted = |flags: &str| {
        let flags = format!("--admission-policy token-bucket --token-bucket-capacity 300 {flags}");
        number(&t.figures(&rows, &flags), "completed_requests")
    };
    assert_eq!((admitted("{} 150"), admitted("{} 300"), admitted("")), (10.0, 20.0, 20.0), "a prompt needs 300");
    assert!(t.error(&rows, "{} 900").contains("only makes sense with the admission policy `token-bucket`"));
}

pub(super) fn routing_policy(t: &Trial) {
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

pub(super) fn routing_filters(t: &Trial) {
    let same = rows(20, 100_000, Row { prefix: 288, ..ROW });
    let scores =
        "--num-instances 3 --cache-signal-delay 0 --routing-policy weighted --routing-scorers active-requests:1";
    let instances = |filters: &str| distinct(t.placements(&same, &format!("{scores} {{}} {filters}")));
    assert_eq!(distinct(t.placements(&same, scores)), 3, "no instance is loaded");
    assert_eq!(instances("prefix-cache-affinity:affinity=0.1"), 1, "the first one has the prefix");
    assert_eq!(instances("prefix-cache-affinity:affinity=1"), 3, "none has all of a prompt");
    assert_eq!(instances("saturation"), 3, "none is saturated");
    assert!(t.error(&same, "--routing-policy weighted {} saturatoin").contains("did you mean `saturation`?"));
}

pub(super) fn routing_scorers(t: &Trial) {
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

/// The picker sees the sums of the scores and may choose the worst of them.
pub(super) fn routing_picker(t: &Trial) {
    let worst = t.file("worst.rhai", "fn route(r, s) { -s.score }\n");
    let rows = rows(8, 10, Row { prefix: 256, ..ROW });
    let instances = |picker: &str| {
        let scorers = "--num-instances 4 --routing-policy weighted --routing-scorers active-requests:1";
        distinct(t.placements(&rows, &format!("{scorers} {{}} {picker}")))
    };
    assert_eq!(instances(&worst), 1, "the most requests in flight");
    assert_eq!(distinct(t.placements(&rows, "--num-instances 4 --routing-policy weighted")), 4);
    assert!(t.error(&rows, "--routing-policy weighted {} wrst").contains("unknown"));
}

/// A long request, then short ones that run beside it.
pub(super) fn uneven() -> Vec<Row> {
    let short = rows(5, 100_000, Row { input: 20, output: 200, ..ROW });
    short
        .into_iter()
        .enumerate()
        .map(|(id, row)| if id == 0 { Row { input: 6_000, output: 400, ..row } } else { row })
        .collect()
}

pub(super) const PAIR: &str =
    "--num-instances 2 --tie-break lowest-index --snapshot-refresh-interval 0 --routing-policy weighted";

pub(super) fn routing_cache_weight(t: &Trial) {
    let placements = |flags: &str| t.placements(&uneven(), &format!("{PAIR} {flags}"));
    assert_eq!(placements("{} 1"), [0, 1, 1, 1, 1].map(Some), "more KV blocks are free beside the long one");
    assert_eq!(placements("{} 0 --routing-load-weight 1"), [0, 1, 0, 1, 0].map(Some));
}

pub(super) fn routing_load_weight(t: &Trial) {
    let placements = |flags: &str| t.placements(&uneven(), &format!("{PAIR} {flags}"));
    assert_eq!(placements("{} 1"), [0, 1, 0, 1, 0].map(Some), "as many requests here as there");
    assert_eq!(placements("{} 0 --routing-cache-weight 1"), [0, 1, 1, 1, 1].map(Some));
}

pub(super) fn priority_policy(t: &Trial) {
    let flags = "--max-num-seqs 1 --scheduler priority-fcfs";
    let with = |more: &str| order(&t.metrics(&queueing(), &format!("{flags} {more}")));
    assert_eq!((with(""), with("{} class")), (vec![3, 1, 2], vec![3, 1, 2]));
    assert_eq!((with("{} constant"), with("{} slo-based")), (vec![1, 2, 3], vec![1, 2, 3]));
    assert_eq!(with("{} inverted-slo"), [3, 2, 1], "the newest first");
}

pub(super) fn policy_param(t: &Trial) {
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

pub(super) fn policy_dir(t: &Trial) {
    let script = t.file("mine/second.rhai", "fn route(r, s) { 1 }\n");
    let folder = script.strip_suffix("/second.rhai").expect("as it was named").to_owned();
    let flags = format!("--num-instances 3 --routing-policy second {{}} {folder}");
    assert!(t.placements(&calm(), &flags).iter().all(|&instance| instance == Some(1)));
    assert!(t.error(&calm(), "--routing-policy second").contains("unknown routing policy `second`"));
}

pub(super) fn allow_native(t: &Trial) {
    let library = t.file("mine.so", "not a library");
    assert!(t.error(&calm(), &format!("--routing-policy {library}")).contains("`--allow-native`"));
    let message = t.error(&calm(), &format!("--routing-policy {library} {{}}"));
    assert!(!message.contains("`--allow-native`"), "it was allowed, and cannot be loaded: {message}");
}

/// A component with more nested blocks than the compiler of the sandbox is given by default.
pub(super) fn allow_large_components(t: &Trial) {
    let small = include_str!("../../host/plugin/src/wasm/fixtures/least_loaded.wat");
    let module = small.trim_end().strip_suffix(')').expect("a module");
    let large = format!("{module} (func {} {}))", "(block ".repeat(300), ")".repeat(300));
    let path = t.folder.join("large.wasm");
    fs::write(&path, wat::parse_str(large).expect("assembles")).expect("scratch");
    let flags = |flag: &str| format!("--num-instances 2 --routing-policy {} {flag}", path.display());
    assert!(t.error(&calm(), &flags("")).contains("`--allow-large-components`"));
    assert_eq!(t.figures(&calm(), &flags("{}"))["plugins"][0]["name"], "large");
}

pub(super) fn on_plugin_error(t: &Trial) {
    let script = t.file("late.rhai", "fn route(r, s) { if r.id == 2 { throw 1 } 0 }\n");
    let flags = |flag: &str| format!("--num-instances 2 --routing-policy {script} {flag}");
    for flag in ["", "{} fail"] {
        assert_eq!(t.on(&calm(), &flags(flag)).code, Some(1), "{flag}");
    }
    let figures = t.figures(&calm(), &flags("{} fallback"));
    assert_eq!(figures["plugins"][0]["faults"][0]["count"], 1);
}
