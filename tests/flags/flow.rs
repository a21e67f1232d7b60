//! Flags of flow control.

use super::*;

/// One instance that is full with four requests, and a queue in front of it.
const FULL: &str = "--flow-control --saturation-detector concurrency --max-concurrency 4";

/// Twenty requests at once.
fn crowd() -> Vec<Row> {
    rows(20, 1, ROW)
}

/// Ten of each of two classes, those of the first earlier.
fn classes(first: &'static str, second: &'static str) -> Vec<Row> {
    let of = |class, start: u32| (0..10_u32).map(move |index| Row { arrival_us: start + index, class, ..ROW });
    of(first, 1_000).chain(of(second, 1_010)).collect()
}

impl Trial {
    /// Number of requests that waited in the gateway.
    fn delayed(&self, rows: &[Row], flags: &str) -> usize {
        let metrics = self.metrics(rows, flags);
        let requests = metrics["requests"].as_array().expect("requests");
        requests.iter().filter(|request| request["gateway_queue_delay_ms"].is_number()).count()
    }

    /// Requests that the gateway refused, or that left its queue unserved.
    fn refused(&self, rows: &[Row], flags: &str) -> u64 {
        let figures = self.figures(rows, flags);
        assert_eq!(figures["conservation"]["holds"], true, "{flags}");
        let counts = ["gateway_queue_rejected", "gateway_queue_shed", "gateway_queue_expired"];
        counts.map(|name| figures[name].as_u64().unwrap_or(0)).iter().sum()
    }

    /// The mean TTFT of a class, ms.
    fn ttft_of(&self, rows: &[Row], class: &str, flags: &str) -> f64 {
        let figures = self.metrics(rows, flags);
        let requests = figures["requests"].as_array().expect("requests").clone();
        let of: Vec<f64> = requests
            .iter()
            .filter(|request| request["slo_class"].as_str().unwrap_or("") == class)
            .map(|request| number(request, "ttft_ms"))
            .collect();
        of.iter().sum::<f64>() / of.len() as f64
    }
}

pub(super) fn flow_control(t: &Trial) {
    assert_eq!(t.delayed(&crowd(), "{} --saturation-detector concurrency --max-concurrency 4"), 16);
    assert_eq!(t.delayed(&crowd(), ""), 0);
    assert!(t.error(&crowd(), "--max-concurrency 4").contains("needs `--flow-control`"));
}

pub(super) fn saturation_detector(t: &Trial) {
    let delayed = |name: &str| t.delayed(&crowd(), &format!("--flow-control {{}} {name}"));
    assert_eq!((delayed("never"), delayed("concurrency --max-concurrency 4")), (0, 16));
    assert!(delayed("utilization") < 16);
    assert!(t.error(&crowd(), "--flow-control {} utilisation").contains("utilization"));
}

const WAITS: &str = "--flow-control --max-num-seqs 1 --snapshot-refresh-interval 0";

pub(super) fn queue_depth_threshold(t: &Trial) {
    let delayed = |number: &str| t.delayed(&rows(20, 10_000, ROW), &format!("{WAITS} {number}"));
    assert!(delayed("{} 1") > delayed("{} 8") && delayed("{} 8") > delayed("{} 1000"));
    assert_eq!(delayed("{} 5"), delayed(""));
}

pub(super) fn kv_cache_util_threshold(t: &Trial) {
    let delayed = |number: &str| {
        let flags = "--flow-control --total-kv-blocks 400 --snapshot-refresh-interval 0 --queue-depth-threshold 1000";
        t.delayed(&rows(20, 10_000, ROW), &format!("{flags} {number}"))
    };
    assert!(delayed("{} 0.1") > delayed("{} 0.5"));
    assert_eq!(delayed("{} 0.8"), delayed(""));
}

pub(super) fn metrics_staleness_threshold(t: &Trial) {
    let delayed = |age: &str| {
        let flags = "--flow-control --snapshot-refresh-interval 1000000 --queue-depth-threshold 1000";
        t.delayed(&rows(10, 100_000, ROW), &format!("{flags} {age}"))
    };
    assert!(delayed("{} 1ms") > delayed("{} 500ms"));
    assert_eq!((delayed("{} 0"), delayed("{} 200ms")), (0, delayed("")));
}

pub(super) fn max_concurrency(t: &Trial) {
    let delayed =
        |number: &str| t.delayed(&crowd(), &format!("--flow-control --saturation-detector concurrency {number}"));
    assert_eq!((delayed("{} 4"), delayed("{} 12"), delayed("")), (16, 8, 0));
}

const TOKENS: &str = "--flow-control --saturation-detector concurrency --max-token-concurrency 2000";
const BOTH: &str = "--flow-control --saturation-detector concurrency --max-concurrency 4 --max-token-concurrency 2000";

pub(super) fn concurrency_mode(t: &Trial) {
    let delayed = |flags: &str| t.delayed(&crowd(), flags);
    let (requests, tokens) = (delayed(&format!("{FULL} {{}} requests")), delayed(&format!("{TOKENS} {{}} tokens")));
    assert_eq!((requests, delayed(FULL)), (16, 16));
    assert!(tokens < requests && delayed(&format!("{BOTH} {{}} hybrid")) == requests, "{tokens}");
    assert!(t.error(&crowd(), "--flow-control {} token").contains("tokens"));
}

pub(super) fn max_token_concurrency(t: &Trial) {
    let flags = "--flow-control --saturation-detector concurrency --concurrency-mode tokens";
    let delayed = |number: &str| t.delayed(&crowd(), &format!("{flags} {number}"));
    assert!(delayed("{} 200") > delayed("{} 1000"));
    assert_eq!((delayed("{} 1000000"), delayed("")), (0, 0));
}

pub(super) fn usage_limit_policy(t: &Trial) {
    let rows = classes("background", "critical");
    let ttft = |flags: &str| t.ttft_of(&rows, "critical", &format!("{FULL} {{}} {flags}"));
    assert!(ttft("priority-holdback --usage-limit-threshold 0.5") < ttft("static --usage-limit-threshold 0.5"));
    assert!(ttft("soft-reflective") < ttft("static --usage-limit-threshold 0.5"));
}

pub(super) fn usage_limit_threshold(t: &Trial) {
    let delayed = |share: &str| t.delayed(&crowd(), &format!("{FULL} {share}"));
    assert_eq!((delayed("{} 0.5"), delayed("{} 1"), delayed("")), (18, 16, 16));
}

pub(super) fn fairness_policy(t: &Trial) {
    let of =
        |tenant, start: u32, count: u32| (0..count).map(move |index| Row { arrival_us: start + index, tenant, ..ROW });
    let rows: Vec<Row> = of("many", 1_000, 16).chain(of("few", 1_016, 4)).collect();
    let first_of_few = |name: &str| {
        let metrics = t.metrics(&rows, &format!("{FULL} {{}} {name}"));
        let requests = metrics["requests"].as_array().expect("requests").clone();
        let few = requests.iter().filter(|request| request["tenant_id"] == "few");
        few.map(|request| number(request, "ttft_ms")).sum::<f64>()
    };
    let strict = first_of_few("global-strict");
    for fair in ["round-robin", "program-aware", "virtual-token-counter"] {
        assert!(first_of_few(fair) < strict, "{fair}");
    }
}

pub(super) fn fairness_weights(t: &Trial) {
    let of = |tenant, start: u32| (0..10_u32).map(move |index| Row { arrival_us: start + index, tenant, ..ROW });
    let rows: Vec<Row> = of("a", 1_000).chain(of("b", 1_010)).collect();
    let ttft = |weights: &str| {
        let metrics = t.metrics(&rows, &format!("{FULL} --fairness-policy weighted {weights}"));
        let requests = metrics["requests"].as_array().expect("requests").clone();
        let of_b = requests.iter().filter(|request| request["tenant_id"] == "b");
        of_b.map(|request| number(request, "ttft_ms")).sum::<f64>()
    };
    assert!(ttft("{} b=4") < ttft(""));
    assert!(ttft("{} a=4") > ttft(""));
    assert_eq!(ttft("{} a=1,b=1"), ttft(""));
    assert!(t.error(&rows, &format!("{FULL} {{}} a=2")).contains("--fairness-policy weighted"));
    assert!(t.error(&rows, &format!("{FULL} --fairness-policy weighted {{}} a=0")).contains("weight of tenant `a`"));
}

const TARGETS: &str = "--slo-targets standard=1ms,default=10s";

pub(super) fn dispatch_order(t: &Trial) {
    let rows = classes("", "standard");
    let ttft = |name: &str| t.ttft_of(&rows, "standard", &format!("{FULL} {{}} {name}"));
    assert!(ttft(&format!("slo-deadline {TARGETS}")) < ttft("fcfs"));
    assert_eq!((ttft("fifo"), ttft("edf")), (ttft("fcfs"), ttft("fcfs")), "all expire in the order of arrival");
}

pub(super) fn slo_targets(t: &Trial) {
    let rows = classes("", "standard");
    let ttft = |targets: &str| t.ttft_of(&rows, "standard", &format!("{FULL} --dispatch-order slo-deadline {targets}"));
    assert!(ttft("{} standard=1ms,default=10s") < ttft("{} standard=10s,default=1ms"));
    assert!(t.error(&rows, "--flow-control {} critical").contains("critical"));
}

pub(super) fn request_ttl(t: &Trial) {
    let refused = |ttl: &str| t.refused(&crowd(), &format!("{FULL} {ttl}"));
    assert_eq!((refused(""), refused("{} 0")), (0, 0), "a minute is enough");
    assert_eq!(refused("{} 1ms"), 8, "found at the first second: twelve were dispatched by then");
}

pub(super) fn max_gateway_queue_depth(t: &Trial) {
    let refused = |depth: &str| t.refused(&crowd(), &format!("{FULL} {depth}"));
    assert_eq!((refused("{} 5"), refused("{} 100"), refused("{} 0"), refused("")), (11, 0, 0, 0));
}

pub(super) fn per_band_capacity(t: &Trial) {
    let rows = classes("critical", "standard");
    let refused = |number: &str| t.refused(&rows, &format!("{FULL} {number}"));
    assert_eq!(
        (refused("{} 3"), refused("{} 0"), refused("")),
        (10, 0, 0),
        "ten, less four that are served, and three"
    );
}

pub(super) fn per_band_bytes(t: &Trial) {
    // Each request has 300 prompt tokens, 1200 bytes.
    let refused = |number: &str| t.refused(&crowd(), &format!("{FULL} {number}"));
    assert_eq!((refused("{} 6000"), refused("{} 0"), refused("")), (11, 0, 0), "twenty, less four and five");
}

pub(super) fn queue_shedding(t: &Trial) {
    let rows = classes("background", "critical");
    let flags = format!("{FULL} --max-gateway-queue-depth 5 --parity blis");
    let critical = |more: &str| number(&t.figures(&rows, &format!("{flags} {more}")), "completed_requests");
    assert_eq!(critical("{}"), critical(""), "as many in all");
    let shed = |more: &str| t.figures(&rows, &format!("{flags} {more}"))["shed_by_class"]["background"].clone();
    assert_eq!((shed("{}"), shed("")), (serde_json::json!(5), Value::Null));
    assert!(t.error(&rows, &format!("{FULL} {{}}")).contains("--parity blis"));
}

pub(super) fn in_flight_eviction(t: &Trial) {
    let long =
        |class, start: u32| (0..4_u32).map(move |index| Row { arrival_us: start + index, output: 400, class, ..ROW });
    let rows: Vec<Row> = long("background", 1_000).chain(long("critical", 500_000)).collect();
    let ttft = |more: &str| t.ttft_of(&rows, "critical", &format!("{FULL} {more}"));
    assert!(ttft("{}") < ttft(""));
    let evicted = |more: &str| t.figures(&rows, &format!("{FULL} {more}"))["conservation"]["evicted"].clone();
    assert!(evicted("{}").as_u64() >= Some(1));
    assert_eq!(evicted(""), Value::Null);
}

pub(super) fn eviction_policy(t: &Trial) {
    let long =
        |class, start: u32| (0..4_u32).map(move |index| Row { arrival_us: start + index, output: 400, class, ..ROW });
    let rows: Vec<Row> = long("background", 1_000).chain(long("critical", 500_000)).collect();
    let none = t.file("none.rhai", "fn evict(b, f) { () }");
    let evicted = |policy: &str| {
        let figures = t.figures(&rows, &format!("{FULL} --in-flight-eviction {policy}"));
        figures["conservation"]["evicted"].as_u64().unwrap_or(0)
    };
    assert!(evicted("{} lowest-priority-newest") >= 1);
    assert_eq!((evicted("{} lowest-priority-newest"), evicted(&format!("{{}} {none}"))), (evicted(""), 0));
    assert!(t.error(&rows, &format!("{FULL} {{}} lowest-priority-newest")).contains("needs `--in-flight-eviction`"));
}

pub(super) fn dispatch_tick_interval(t: &Trial) {
    let ttft = |interval: &str| number(&t.figures(&crowd(), &format!("{FULL} {interval}")), "ttft_mean_ms");
    assert!(ttft("{} 1s") > ttft("{} 1ms"));
    assert_eq!(ttft("{} 1ms"), ttft(""));
    assert!(t.error(&crowd(), &format!("{FULL} {{}} 0s")).contains("from 1 to"));
}
