//! Policies of prefill apart from decode as plugins: scripts of the built-in ones give the same results, decisions are recorded with what
//! the policy saw and have a regret, and a plugin chooses the instances.

use serde_json::Value;

use crate::macros::{Scratch, blis};

const SERVICE: &str = "run --model llama-3.1-8b-instruct --hardware H100 --tp 1 --prefill-instances 2 --decode-instances 2 \
                       --rate 12 --num-requests 300 --prompt-tokens 3000 --output-tokens 60 --seed 5 --output json";

/// The document of a run with `flags`.
fn run(flags: &str) -> String {
    blis!(format!("{SERVICE} {flags}")).done().stdout
}

/// The document of a run with `flags`, without what names the policies and their parameters.
fn results(flags: &str) -> String {
    let mut document = json(&run(flags));
    let object = document.as_object_mut().expect("an object");
    object.remove("plugins");
    object.remove("run");
    document.to_string()
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

#[test]
fn scripts_of_the_built_in_policies_give_the_same_results() {
    let mut seen = Vec::new();
    for (name, parameters) in
        [("always", ""), ("prefix-threshold", "--policy-param disaggregation.tokens=2800"), ("edpp", "")]
    {
        let built_in = results(&format!("--disaggregation-policy {name} {parameters}"));
        let script = results(&format!("--disaggregation-policy examples/built-ins/{name}.rhai {parameters}"));
        assert_eq!(built_in, script, "{name}");
        seen.push(json(&built_in)["pd_metrics"]["disaggregated_requests"].as_u64().expect("a number"));
    }
    assert!(seen[0] == 300 && (10..290).contains(&seen[1]) && (10..290).contains(&seen[2]), "{seen:?}");
    let by_name = |flags: &str| json(&run(flags))["pd_metrics"].clone();
    assert_eq!(by_name("--disaggregation-policy always"), by_name("--pd-decider always"));
}

#[test]
fn a_policy_chooses_both_instances_and_sees_the_transfers() {
    let scratch = Scratch::new();
    scratch.write(
        "last.rhai",
        "fn disaggregate(r, d, p, link) { #{ remote: true, decode: d.len - 1, prefill: p.len - 1 } }",
    );
    scratch.write(
        "first.rhai",
        "fn disaggregate(r, d, p, link) { #{ remote: link.us_per_token == 0.0, decode: 0, prefill: 0 } }",
    );
    let of = |name: &str| {
        let path = scratch.path("metrics.json");
        run(&format!("--disaggregation-policy {} --metrics-path {path}", scratch.path(name)));
        let metrics = json(&std::fs::read_to_string(path).expect("written"));
        let requests = metrics["requests"].as_array().expect("requests").clone();
        let of = |field: &str| {
            let mut names: Vec<String> =
                requests.iter().filter_map(|one| one[field].as_str()).map(ToOwned::to_owned).collect();
            names.sort();
            let remote = names.len();
            names.dedup();
            (names, remote)
        };
        (of("handled_by"), of("prefilled_by"))
    };
    let ((decodes, _), (prefills, remote)) = of("last.rhai");
    assert!(decodes.len() == 1 && prefills.len() == 1 && remote == 300, "{decodes:?} {prefills:?} {remote}");
    let ((other, _), (first, remote)) = of("first.rhai");
    assert!(other.len() == 1 && first.len() == 1 && other != decodes && first != prefills, "{other:?} {first:?}");
    assert!((1..50).contains(&remote), "{remote} before the first transfer had ended");
}

#[test]
fn decisions_are_recorded_with_what_the_policy_saw_and_have_a_regret() {
    let scratch = Scratch::new();
    scratch.write("some.rhai", "fn disaggregate(r, d, p, link) { r.id % 2 == 0 }");
    let policy = format!("--disaggregation-policy {}", scratch.path("some.rhai"));
    let trace = scratch.path("trace.jsonl");
    run(&format!("{policy} --trace-level decisions --trace-path {trace}"));
    let lines = std::fs::read_to_string(&trace).expect("written");
    let lines: Vec<Value> = lines.lines().filter(|line| line.contains("\"kind\":\"prefill\"")).map(json).collect();
    assert_eq!(lines.len(), 300);
    for line in &lines {
        assert_eq!(line["remote"], line["request"].as_u64().expect("a number") % 2 == 0, "{line}");
        assert_eq!(line["remote"], line["prefill"].is_u64(), "{line}");
        let pools = [&line["decodes"], &line["prefills"]].map(|pool| pool.as_array().expect("a list").len());
        assert_eq!(pools, [2, 2], "{line}");
        assert!(
            line["prefills"][1]["uncached_tokens"].is_u64() && line["decodes"][0]["free_kv_blocks"].is_u64(),
            "{line}"
        );
    }
    scratch.write("all.rhai", "fn disaggregate(r, d, p, link) { d.uncached[d.chosen] >= 0 }");
    let all = scratch.path("all.rhai");
    run(&format!("--disaggregation-policy {all} --trace-level decisions --trace-path {trace}"));
    let listed = blis!(format!("decisions show {trace} --kind prefill --output text")).done().stdout;
    assert!(listed.contains("instance 1 prefills it") && listed.contains("lacks"), "{listed}");
    let regret = json(&run(&format!("{policy} --regret outcome --regret-samples 24")))["regret"].clone();
    let of_kind = &regret["kinds"]["disaggregation"]["uniform"];
    assert!(of_kind["evaluated"].as_u64().is_some_and(|count| count > 4), "{regret}");
    assert!(of_kind["regret_s"].as_f64().is_some_and(|mean| mean > 0.0), "{regret}");
}

#[test]
fn a_bundle_names_the_policy() {
    let scratch = Scratch::new();
    scratch.write("bundle.yaml", "disaggregation: {policy: prefix-threshold, parameters: {tokens: 2800}}\n");
    let by_bundle = run(&format!("--policy-config {}", scratch.path("bundle.yaml")));
    let by_flags = run("--disaggregation-policy prefix-threshold --policy-param disaggregation.tokens=2800");
    assert_eq!(json(&by_bundle)["pd_metrics"], json(&by_flags)["pd_metrics"]);
}

/// Routing lines had columns of the instances that decode, and the reader refused them.
#[test]
fn a_trace_with_roles_whose_routing_lines_have_signals_is_read() {
    let scratch = Scratch::new();
    let path = scratch.path("trace.jsonl");
    let flags = "--disaggregation-policy prefix-threshold --policy-param disaggregation.tokens=2800 --routing-policy weighted \
                 --admission-policy gaie-legacy --trace-level decisions --counterfactual-k 2";
    run(&format!("{flags} --trace-path {path}"));
    let text = blis!("decisions show", path, "--kind routing --output json").done().stdout;
    assert!(text.contains("null"), "instances that do not decode have no score: {text}");
    for command in ["show", "top"] {
        let ended = blis!("decisions", command, path).done();
        assert!(!ended.stdout.is_empty(), "{command}");
    }
    let replayed = blis!("plugin replay examples/built-ins/weighted.rhai", path).refused();
    assert!(replayed.contains("instances have roles: routing policies chose among those that decode"), "{replayed}");
}
