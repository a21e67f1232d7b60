//! Flags of prefill apart from decode.

use super::*;

const APART: &str = "--prefill-instances 1 --decode-instances 1 --pd-decider always";

/// The figures of twenty requests of `tokens` tokens, far enough apart to be alone.
fn apart(t: &Trial, tokens: u32, flags: &str) -> Value {
    let row = Row { input: tokens, ..ROW };
    t.figures(&rows(20, 1_000_000, row), flags)["pd_metrics"].clone()
}

fn mean(figures: &Value, stage: &str) -> f64 {
    number(&figures[stage], "mean_ms")
}

/// The instances that decoded, and those that prefilled.
fn instances(t: &Trial, flags: &str) -> (Vec<u32>, Vec<u32>) {
    let metrics = t.metrics(&rows(12, 1_000_000, ROW), flags);
    let requests = metrics["requests"].as_array().expect("requests");
    let of = |field: &str| {
        let names = requests.iter().filter_map(|request| request[field].as_str()).map(id_of);
        names.collect::<BTreeSet<u32>>().into_iter().collect()
    };
    (of("handled_by"), of("prefilled_by"))
}

pub(super) fn prefill_instances(t: &Trial) {
    let placed = instances(t, "{} 2 --decode-instances 1 --pd-decider always");
    assert_eq!(placed, (vec![2], vec![0, 1]));
    assert!(t.error(&rows(1, 1, ROW), "{} 2").contains("no instance decodes"));
    assert!(
        t.error(&rows(1, 1, ROW), "{} 2 --decode-instances 1 --num-instances 2").contains("3 instances have roles")
    );
}

pub(super) fn decode_instances(t: &Trial) {
    let placed = instances(t, "{} 2 --prefill-instances 1 --pd-decider always");
    assert_eq!(placed, (vec![1, 2], vec![0]));
    assert!(t.error(&rows(1, 1, ROW), "{} 2").contains("no instance prefills"));
}

pub(super) fn prefill_decode_instances(t: &Trial) {
    let placed = instances(t, "{} 1 --prefill-instances 1 --pd-decider always");
    assert_eq!(placed, (vec![1], vec![0]), "on one instance there is nothing to transfer");
}

pub(super) fn encode_instances(t: &Trial) {
    let flags = format!("{APART} {{}} 1 --encode-decider always");
    assert_eq!(instances(t, &flags), (vec![1], vec![0]), "the third only encodes");
    assert!(t.error(&rows(1, 1, ROW), "{} 1").contains("no instance decodes"));
}

pub(super) fn role(t: &Trial) {
    let placed = instances(t, "{} prefill --group role=decode,instances=2 --pd-decider always");
    assert_eq!(placed, (vec![1, 2], vec![0]));
    assert!(t.error(&rows(1, 1, ROW), "{} prefill").contains("no instance decodes"));
    assert!(t.error(&rows(1, 1, ROW), &format!("{{}} both {APART}")).contains("by role"));
    let other = "{} prefill --group role=decode,block-size=32";
    assert!(t.error(&rows(1, 1, ROW), other).contains("KV blocks of 32 tokens"));
}

/// The stage `stage` is shorter with `--…-tp 4`.
fn speeds_up(t: &Trial, stage: &str, flag: &str) {
    let figures = |flag: &str| apart(t, 3000, &format!("{APART} --tp 1 {flag}"));
    let (slow, fast) = (mean(&figures(""), stage), mean(&figures(flag), stage));
    assert!(fast < 0.8 * slow, "{stage}: {fast} ms, before {slow} ms");
}

pub(super) fn prefill_tp(t: &Trial) {
    speeds_up(t, "p_prefill", "{} 4");
}

pub(super) fn decode_tp(t: &Trial) {
    speeds_up(t, "d_first", "{} 4");
    let small = "--model meta-llama/llama-3.1-70b-instruct --tp 4 --prefill-instances 1 --decode-instances 1 {} 1";
    assert!(t.error(&rows(1, 1, ROW), small).contains("does not fit"), "a model that fits one role only");
}

pub(super) fn prefill_hardware(t: &Trial) {
    let slow = apart(t, 3000, &format!("{APART} --tp 1 --hardware H100 {{}} A100-SXM --prefill-tp 1"));
    let fast = apart(t, 3000, &format!("{APART} --tp 1 --hardware H100"));
    assert!(mean(&slow, "p_prefill") > 1.2 * mean(&fast, "p_prefill"));
}

pub(super) fn decode_hardware(t: &Trial) {
    let slow = apart(t, 3000, &format!("{APART} --tp 1 --hardware H100 {{}} A100-SXM --decode-tp 1"));
    let fast = apart(t, 3000, &format!("{APART} --tp 1 --hardware H100"));
    assert!(mean(&slow, "d_first") > 1.2 * mean(&fast, "d_first"));
}

/// Another latency model changes the stage `stage` and not `other`.
fn changes_only(t: &Trial, stage: &str, other: &str) {
    let [usual, roofline] = ["", "{} roofline"].map(|flag| apart(t, 3000, &format!("{APART} --tp 1 {flag}")));
    assert!((mean(&usual, stage) - mean(&roofline, stage)).abs() > 0.1, "{usual} {roofline}");
    assert_eq!(mean(&usual, other), mean(&roofline, other));
    assert!(t.error(&rows(1, 1, ROW), &format!("{APART} {{}} nothing")).contains("is no built-in latency model"));
}

pub(super) fn prefill_latency_model(t: &Trial) {
    changes_only(t, "p_prefill", "d_first");
}

pub(super) fn decode_latency_model(t: &Trial) {
    changes_only(t, "d_first", "p_prefill");
}

/// Requests that are too long for an instance are dropped there.
fn drops(t: &Trial) {
    let figures = t.figures(&rows(5, 1_000_000, ROW), &format!("{APART} {{}} 200"));
    assert_eq!((number(&figures, "dropped_unservable"), number(&figures, "completed_requests")), (5.0, 0.0));
}

pub(super) fn prefill_max_model_len(t: &Trial) {
    drops(t);
}

pub(super) fn decode_max_model_len(t: &Trial) {
    drops(t);
}

pub(super) fn prefill_routing_scorers(t: &Trial) {
    let flags = "--prefill-instances 2 --decode-instances 1 --pd-decider always --tie-break lowest-index";
    assert_eq!(instances(t, flags).1, [0, 1]);
    assert_eq!(instances(t, &format!("{flags} {{}} active-requests:1")).1, [0], "each is idle again");
    assert!(t.error(&rows(1, 1, ROW), &format!("{flags} {{}} nothing:1")).contains("not built in"));
}

pub(super) fn decode_routing_scorers(t: &Trial) {
    let flags = "--prefill-instances 1 --decode-instances 2 --pd-decider always --tie-break lowest-index";
    assert_eq!(instances(t, flags).0, [1, 2]);
    assert_eq!(instances(t, &format!("{flags} {{}} active-requests:1")).0, [1], "each is idle again");
}

/// The instances that encode twelve requests with images, far enough apart to be alone.
fn encoders(t: &Trial, flags: &str) -> Vec<u32> {
    let metrics = t.metrics(&rows(12, 1_000_000, Row { images: 250, ..ROW }), flags);
    let requests = metrics["requests"].as_array().expect("requests");
    let names = requests.iter().map(|request| id_of(request["encoded_by"].as_str().expect("it was encoded")));
    names.collect::<BTreeSet<u32>>().into_iter().collect()
}

/// The mean of `stage` of twenty requests with images of 2000 tokens.
fn encoding(t: &Trial, stage: &str, flags: &str) -> f64 {
    let row = Row { input: 2100, images: 2000, ..ROW };
    let figures = t.figures(&rows(20, 1_000_000, row), &format!("{APART} --encode-instances 1 {flags}"));
    mean(&figures["pd_metrics"], stage)
}

pub(super) fn encode_rate(t: &Trial) {
    let flags = "--encode-decider multimodal --hardware H100 --tp 1";
    let of = |rate: u32| encoding(t, "encode", &format!("{flags} {{}} {rate}"));
    assert_eq!((of(10_000), of(40_000)), (206.0, 56.0), "2000 tokens, 5 ms and a hop");
    // 989.5 TFLOPS at 45 %, 5.5 GFLOP for a token.
    assert!((encoding(t, "encode", flags) - (2000.0 / 80.959 + 6.0)).abs() < 0.01);
    needs_encoding(t, "10000");
}

pub(super) fn encode_base_latency(t: &Trial) {
    let of = |time: &str| encoding(t, "encode", &format!("--encode-decider always --encode-rate 10000 {{}} {time}"));
    assert_eq!((of("0"), of("30ms")), (201.0, 231.0));
    needs_encoding(t, "7ms");
}

/// A value of the flag without requests that are encoded, or in BLIS.
fn needs_encoding(t: &Trial, value: &str) {
    let error = |flags: &str| t.error(&rows(1, 1, ROW), &format!("{flags} {{}} {value}"));
    assert!(error(APART).contains("needs requests that are encoded"));
    let never = format!("{APART} --encode-instances 1 --encode-decider never");
    assert!(error(&never).contains("needs requests that are encoded"));
    assert!(error("").contains("needs instances that prefill apart from others"));
    let blis = format!("{APART} --encode-instances 1 --encode-decider always --parity blis");
    assert!(error(&blis).contains("cannot be used with `--parity blis`"));
}

pub(super) fn encode_routing_scorers(t: &Trial) {
    of_encoding(t, "active-requests:1", "queue-dpth:1");
}

pub(super) fn encode_routing_filters(t: &Trial) {
    of_encoding(t, "saturation", "saturatoin");
}

fn of_encoding(t: &Trial, steps: &str, wrong: &str) {
    let flags = format!("{APART} --encode-instances 2 --encode-decider always --tie-break lowest-index");
    assert_eq!(instances(t, &format!("{flags} {{}} {steps}")), (vec![1], vec![0]));
    assert_eq!(encoders(t, &format!("{flags} --routing-policy round-robin")), [2, 3], "in turn");
    assert_eq!(encoders(t, &format!("{flags} --routing-policy round-robin {{}} {steps}")), [2], "each is idle again");
    assert!(t.error(&rows(1, 1, ROW), &format!("{flags} {{}} {wrong}")).contains("not built in"));
}

pub(super) fn prefill_routing_filters(t: &Trial) {
    let flags = "--prefill-instances 2 --decode-instances 1 --prefill-routing-scorers no-hit-lru:1";
    let prefilled = |flags: &str| instances_in_role(t, flags, "prefilled_by");
    assert_eq!(
        (prefilled(flags), prefilled(&format!("{flags} {{}} {STICKY}"))),
        (2, 1),
        "the first one has the prefix"
    );
    assert!(t.error(&rows(1, 1, ROW), &format!("{flags} {{}} saturatoin")).contains("not built in"));
}

pub(super) fn decode_routing_filters(t: &Trial) {
    let flags = "--prefill-instances 1 --decode-instances 2 --decode-routing-scorers no-hit-lru:1";
    let decoded = |flags: &str| instances_in_role(t, flags, "handled_by");
    assert_eq!((decoded(flags), decoded(&format!("{flags} {{}} {STICKY}"))), (2, 1), "the first one has the prefix");
}

const STICKY: &str = "prefix-cache-affinity:affinity=0.1";

/// How many instances took requests with a common prefix, of those in `field`.
fn instances_in_role(t: &Trial, flags: &str, field: &str) -> usize {
    let rows = rows(12, 1_000_000, Row { prefix: 288, ..ROW });
    let metrics = t.metrics(&rows, &format!("{flags} --pd-decider always --cache-signal-delay 0"));
    let requests = metrics["requests"].as_array().expect("requests");
    requests.iter().filter_map(|request| request[field].as_str()).collect::<BTreeSet<&str>>().len()
}

fn disaggregated(t: &Trial, tokens: u32, flags: &str) -> f64 {
    let flags = format!("--prefill-instances 1 --decode-instances 1 {flags}");
    number(&apart(t, tokens, &flags), "disaggregated_requests")
}

pub(super) fn pd_decider(t: &Trial) {
    let of = |name: &str| disaggregated(t, 300, &format!("{{}} {name}"));
    assert_eq!([of("never"), of("always"), of("prefix-threshold"), of("edpp")], [0.0, 20.0, 20.0, 0.0]);
    assert_eq!(
        (disaggregated(t, 300, ""), disaggregated(t, 300, "--parity blis")),
        (20.0, 0.0),
        "llm-d's threshold, BLIS's never"
    );
    assert!(t.error(&rows(1, 1, ROW), "{} always").contains("needs instances that prefill"));
}

pub(super) fn disaggregation_policy(t: &Trial) {
    let of = |flags: &str| disaggregated(t, 300, flags);
    assert_eq!([of("{} never"), of("{} always"), of("{} prefix-threshold"), of("{} edpp")], [0.0, 20.0, 20.0, 0.0]);
    assert_eq!(of("{} prefix-threshold --policy-param disaggregation.tokens=301"), 0.0);
    assert_eq!(of("{} examples/built-ins/always.rhai"), 20.0);
    let error = |flags: &str| t.error(&rows(1, 1, ROW), flags);
    assert!(error("{} always").contains("needs instances that prefill"));
    assert!(error(&format!("{APART} {{}} always")).contains("cannot be used with `--disaggregation-policy`"));
    let apart = "--prefill-instances 1 --decode-instances 1";
    assert!(error(&format!("{apart} --parity blis {{}} always")).contains("cannot be used with `--parity blis`"));
    let first = error(&format!("{apart} --pd-stage-order prefill-first {{}} always"));
    assert!(first.contains("cannot be used with `--pd-stage-order prefill-first`"), "{first}");
}

pub(super) fn pd_prefix_threshold(t: &Trial) {
    let of = |tokens: u32| disaggregated(t, 300, &format!("--pd-decider prefix-threshold {{}} {tokens}"));
    assert_eq!([of(300), of(301), of(0)], [20.0, 0.0, 0.0]);
    let in_blis =
        |tokens: u32| disaggregated(t, 300, &format!("--parity blis --pd-decider prefix-threshold {{}} {tokens}"));
    assert_eq!([in_blis(299), in_blis(300), in_blis(0)], [20.0, 0.0, 20.0], "more tokens than that");
}

/// Requests that come at once, so that the decode instance has a backlog.
fn under_load(t: &Trial, flags: &str) -> f64 {
    let flags =
        format!("--prefill-instances 1 --decode-instances 1 --pd-decider edpp --pd-handshake-latency 0 {flags}");
    let figures = t.figures(&rows(80, 30_000, Row { input: 3000, ..ROW }), &flags);
    number(&figures["pd_metrics"], "disaggregated_requests")
}

pub(super) fn pd_ttft_target(t: &Trial) {
    let (strict, lax) = (under_load(t, "{} 1ms"), under_load(t, "{} 100s"));
    assert!(strict < lax, "{strict} with a target that is missed, {lax} with one that is met");
}

pub(super) fn pd_prefill_rate(t: &Trial) {
    let target = "--pd-ttft-target 50ms";
    let (slow, fast) =
        (under_load(t, &format!("{target} {{}} 1000")), under_load(t, &format!("{target} {{}} 10000000")));
    assert!(slow > fast, "{slow} with a long backlog, {fast} with a short one");
}

pub(super) fn pd_stage_order(t: &Trial) {
    assert_eq!(disaggregated(t, 10, "{} prefill-first"), 20.0);
    assert_eq!(disaggregated(t, 10, "{} decode-first"), 0.0, "fewer tokens than the threshold");
    let both = format!("{APART} {{}} prefill-first");
    assert!(t.error(&rows(1, 1, ROW), &both).contains("cannot be used with `--pd-stage-order prefill-first`"));
}

fn transfer(t: &Trial, flags: &str) -> f64 {
    mean(&apart(t, 3000, &format!("{APART} --pd-handshake-latency 0 {flags}")), "transfer")
}

pub(super) fn pd_transfer_link(t: &Trial) {
    let [ethernet, rdma, nvlink] = ["ethernet", "rdma", "nvlink"].map(|name| transfer(t, &format!("{{}} {name}")));
    assert!(ethernet > rdma && rdma > nvlink, "{ethernet} {rdma} {nvlink}");
    assert_eq!(transfer(t, ""), rdma);
}

pub(super) fn pd_transfer_bandwidth(t: &Trial) {
    // 3000 tokens of 131 072 bytes, and 2 ms.
    let ms = 3000.0 * 131_072.0 / 10e6 + 2.0;
    let ours = transfer(t, "{} 10");
    assert!((ours - ms).abs() < 0.01, "{ours} ms instead of {ms}");
    assert!(t.error(&rows(1, 1, ROW), &format!("{APART} {{}} 0")).contains("above 0"));
}

pub(super) fn pd_transfer_base_latency(t: &Trial) {
    let difference = transfer(t, "{} 7.5") - transfer(t, "{} 2.5");
    assert!((difference - 5.0).abs() < 1e-6, "{difference}");
}

pub(super) fn pd_transfer_contention(t: &Trial) {
    let figures = |flags: &str| {
        let flags = format!("{APART} --parity blis --pd-transfer-bandwidth 0.5 {flags}");
        mean(&t.figures(&rows(20, 20_000, ROW), &flags)["pd_metrics"], "transfer")
    };
    assert!(figures("{}") > 1.5 * figures(""));
    assert!(t.error(&rows(1, 1, ROW), &format!("{APART} {{}}")).contains("needs `--parity blis`"));
}

pub(super) fn pd_handshake_latency(t: &Trial) {
    // The first of twenty transfers.
    let of = |ms: u32| mean(&apart(t, 300, &format!("{APART} {{}} {ms}000")), "transfer");
    assert!((of(200) - of(0) - 10.0).abs() < 1e-6);
}

pub(super) fn pd_hop_latency(t: &Trial) {
    let of = |ms: u32| apart(t, 300, &format!("{APART} {{}} {ms}000"));
    let (near, far) = (of(0), of(4));
    assert_eq!((mean(&near, "hold"), mean(&far, "hold")), (0.0, 4.0));
    assert!((mean(&far, "ttft") - mean(&near, "ttft") - 8.0).abs() < 0.1, "there and back");
}

/// Tokens that prefills read from the decode instance in three rounds of a session that start with the same 160 tokens, without a prefix
/// cache.
fn reused(t: &Trial, flags: &str) -> Option<u64> {
    let csv = trace(&rows(3, 5_000_000, Row { prefix: 160, ..ROW }));
    let line = |(index, line): (usize, &str)| line.replacen(",c,,,,0,", &format!(",c,,,s,{},", index.max(1) - 1), 1);
    let csv: Vec<String> = csv.lines().enumerate().map(line).collect();
    t.file("s.yaml", "trace_version: 3\ntime_unit: microseconds\n");
    t.file("s.csv", &(csv.join("\n") + "\n"));
    let files = match t.command {
        "run" => "--workload-trace {dir}/s.csv",
        _ => "--trace-header {dir}/s.yaml --trace-data {dir}/s.csv",
    };
    let figures = t.json(&t.bare(&format!("{files} {APART} --no-enable-prefix-caching {flags}")));
    figures["pd_metrics"]["reused_tokens"].as_u64()
}

pub(super) fn pd_bidirectional(t: &Trial) {
    assert_eq!((reused(t, ""), reused(t, "{}")), (None, Some(320)));
    assert!(t.error(&rows(1, 1, ROW), "{}").contains("needs instances that prefill apart"));
    assert!(t.error(&rows(1, 1, ROW), &format!("{APART} --parity blis {{}}")).contains("with `--parity blis`"));
}

pub(super) fn pd_recompute_threshold(t: &Trial) {
    let of = |tokens: u32| reused(t, &format!("--pd-bidirectional {{}} {tokens}"));
    assert_eq!((of(50), of(500)), (Some(320), None));
    assert!(t.error(&rows(1, 1, ROW), &format!("{APART} {{}} 5")).contains("needs `--pd-bidirectional`"));
}

pub(super) fn pd_decoder_kv_ttl(t: &Trial) {
    let of = |time: &str| reused(t, &format!("--pd-bidirectional {{}} {time}"));
    assert_eq!((of("30s"), of("1ms")), (Some(320), None));
    assert!(t.error(&rows(1, 1, ROW), &format!("{APART} {{}} 1s")).contains("needs `--pd-bidirectional`"));
}

pub(super) fn encode_decider(t: &Trial) {
    let flags = format!("{APART} --encode-instances 1 {{}}");
    let image = Row { images: 250, ..ROW };
    for (name, encoded) in [("never", 0.0), ("always", 3.0), ("multimodal", 1.0)] {
        let figures = t.figures(&[ROW, ROW, image], &format!("{flags} {name}"))["pd_metrics"].clone();
        let requests = figures["encoded_requests"].as_f64().unwrap_or(0.0);
        assert_eq!(requests, encoded, "{name}: {figures}");
    }
    assert!(t.error(&rows(1, 1, ROW), &format!("{APART} {{}} always")).contains("needs instances that encode"));
}
