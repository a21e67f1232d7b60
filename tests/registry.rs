//! Built-in policies are policies like others: listed, checked, measured, configured, evaluated and tuned.

use serde_json::Value;

use crate::macros::blis;

/// What `blis <line>` prints, which must succeed.
fn done(line: &str) -> String {
    blis!(line).done().stdout
}

fn json(line: &str) -> Value {
    blis!(line).json()
}

/// The message about `line`, which is invalid.
fn refused(line: &str) -> String {
    blis!(line).with_code(2).stderr
}

#[test]
fn the_list_shows_parameters_and_defaults() {
    let text = done("plugin list --output text");
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    for line in
        ["Parameters of weighted:", "  precise-prefix-cache        2", "  capacity     10000", "scheduling/fcfs"]
    {
        assert!(text.contains(line), "{line}: {text}");
    }
    let list = json("plugin list --output json");
    let list = list.as_array().expect("a list");
    let built_in = list.iter().filter(|entry| entry["technology"] == "built-in");
    let of = |kind: &str| built_in.clone().filter(|entry| entry["kinds"][0] == kind).count();
    let counts = ["admission", "routing", "routing-filter", "priority", "scheduling", "preemption", "latency"].map(of);
    assert_eq!(counts, [7, 8, 3, 4, 4, 2, 4]);
    assert_eq!(["saturation", "ceilings", "fairness", "ordering", "eviction"].map(of), [3, 3, 5, 3, 1]);
    let weighted = built_in.clone().find(|entry| entry["name"] == "weighted").expect("it is built in");
    let parameters = weighted["parameters"].as_array().expect("a list");
    let (capacity, weights) = parameters.split_last().expect("parameters");
    assert_eq!((weights.len(), &weights[0]["name"]), (16, &"precise-prefix-cache".into()));
    assert!(weights.iter().all(|one| one["min"] == 0.0 && one["max"] == 10.0), "{weights:?}");
    assert_eq!((&capacity["name"], &capacity["default"]), (&"prefix-capacity".into(), &10_000.0.into()));
}

#[test]
fn the_list_shows_the_coefficients_of_latency_models() {
    let text = done("plugin list --output text");
    for line in [
        "Parameters of trained-physics:",
        "Defaults: the general fit; a deployment that was measured has its own",
        "No parameters: it has no coefficients",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    for row in [&["weight-loading", "1.36252915", "0", "to", "100"][..], &["decode-token-us", "by", "deployment"]] {
        assert!(rows.iter().any(|words| words.starts_with(row)), "{row:?}: {text}");
    }
    let list = json("plugin list --output json");
    let parameters = |name: &str| {
        let mut models = list.as_array().expect("a list").iter().filter(|entry| entry["kinds"][0] == "latency");
        let model = models.find(|entry| entry["name"] == name).expect("it is built in");
        model["parameters"].as_array().expect("a list").clone()
    };
    let counts = ["trained-physics", "physics", "roofline", "blackbox"].map(|name| parameters(name).len());
    assert_eq!(counts, [14, 13, 0, 6]);
    assert_eq!(parameters("trained-physics")[9]["default"], 126.024825);
    assert_eq!((&parameters("blackbox")[3]["default"], &parameters("blackbox")[3]["max"]), (&Value::Null, &1e6.into()));
}

#[test]
fn every_built_in_policy_passes_the_check() {
    let weighted = json("plugin check weighted --no-cost --output json");
    assert_eq!((&weighted[0]["passed"], &weighted[0]["technology"]), (&true.into(), &"built-in".into()));
    assert!(weighted[0]["checks"].as_array().is_some_and(|checks| checks.len() > 7), "{weighted}");
    assert_eq!(weighted[0]["not_applicable"].as_array().map(Vec::len), Some(2));
    let list = json("plugin list --output json");
    let built_in = list.as_array().expect("a list").iter().filter(|entry| entry["technology"] == "built-in");
    let names = built_in.map(|entry| {
        let (kind, name) = (entry["kinds"][0].as_str(), entry["name"].as_str());
        format!("{}/{}", kind.expect("a kind"), name.expect("a name"))
    });
    // Adaptive replacement gives no ranks: it is not asked like a policy.
    let names: Vec<String> = names.filter(|name| name != "kv-cache/arc").collect();
    assert!(blis!("plugin check kv-cache/arc --no-cost").with_code(1).stderr.contains("1 of 2 checks failed"));
    let line = format!("plugin check {} --no-cost --output json", names.join(" "));
    let checked = json(&line);
    assert_eq!(checked.as_array().map(Vec::len), Some(65));
    for policy in checked.as_array().expect("a list") {
        assert_eq!(policy["passed"], true, "{policy}");
    }
}

#[test]
fn a_name_of_two_kinds_is_ambiguous() {
    let message = refused("plugin check fcfs");
    assert_eq!(
        message,
        "error: `fcfs` is the name of a scheduler and of a preemption policy\n\
         hint: write `scheduling/fcfs` or `preemption/fcfs`\n"
    );
}

#[test]
fn a_built_in_policy_is_measured() {
    let rows = json("plugin bench round-robin --output json");
    let rows = rows.as_array().expect("rows");
    assert_eq!(rows.len(), 5);
    assert!(rows.iter().all(|row| row["kind"] == "routing" && row["built_in"] == "least-loaded"), "{rows:?}");
}

const RUN: &str = "run --model meta-llama/llama-3.1-8b-instruct --num-instances 4 --num-requests 40 --rate 40 \
                   --routing-policy weighted";

#[test]
fn a_weight_is_a_parameter() {
    let parameter = done(&format!("{RUN} --policy-param routing.queue-depth=2"));
    let scorers = "precise-prefix-cache:2,queue-depth:2,kv-utilization:1";
    assert_eq!(parameter, done(&format!("{RUN} --routing-scorers {scorers}")), "two names of one thing");
    let explained = done(&format!("{RUN} --policy-param routing.queue-depth=2 --explain-config"));
    assert!(explained.contains("- {name: queue-depth, weight: 2}  # flag --policy-param"), "{explained}");
    let message = refused("run --model m --policy-param routing.queue-depth=2");
    assert_eq!(message, "error: `round-robin` has no parameter `queue-depth`\nhint: it has no parameters\n");
}

const DEPLOYMENT: &str = "run --model meta-llama/llama-3.1-8b-instruct --num-requests 40 --rate 10";

#[test]
fn a_coefficient_is_a_parameter_of_its_latency_model() {
    let alike = [
        (
            "--latency-model trained-physics --policy-param latency.step-us=300",
            "--latency-model trained-physics --alpha-coeffs 15563.199579,777.3455,45.907545 --beta-coeffs \
             0.152128,0,1.36252915,0.752037,32.09546717,4.41684444,300,481.8613888,0,1.94710771,0.752037",
        ),
        (
            "--latency-model blackbox --tp 2 --policy-param latency.arrival-us=5 --policy-param latency.step-us=7000",
            "--latency-model blackbox --tp 2 --alpha-coeffs 5,3.512476196805965,1805.5430360826988 \
             --beta-coeffs 7000,17.67057489844186,2.8377471109943855",
        ),
    ];
    for (by_name, by_list) in alike {
        let parameter = done(&format!("{DEPLOYMENT} {by_name}"));
        assert_eq!(parameter, done(&format!("{DEPLOYMENT} {by_list}")), "{by_name}");
        let (without, _) = by_name.split_once(" --policy-param").expect("it has a parameter");
        assert_ne!(parameter, done(&format!("{DEPLOYMENT} {without}")), "{by_name}");
    }
}

#[test]
fn an_explained_coefficient_reads_back() {
    let folder = std::env::temp_dir().join(format!("blis-coefficient-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("scratch");
    let file = folder.join("e.yaml");
    let line = format!("{DEPLOYMENT} --policy-param latency.gemm=1.5 --policy-param latency.gemm=1.25");
    let explained = done(&format!("{line} --explain-config"));
    assert!(explained.contains("latency:\n  parameters:\n    gemm: 1.25  # flag --policy-param\n"), "{explained}");
    std::fs::write(&file, &explained).expect("scratch");
    assert_eq!(done(&format!("run --config {}", file.display())), done(&line), "{explained}");
    std::fs::write(&file, "latency:\n  parameters: {gemms: 1}\n").expect("scratch");
    let message = refused(&format!("{DEPLOYMENT} --policy-config {}", file.display()));
    assert!(message.contains("e.yaml:2:23: `physics` has no parameter `gemms`\n"), "{message}");
    assert!(message.contains("hint: did you mean `gemm`?"), "{message}");
    std::fs::remove_dir_all(&folder).expect("scratch");
}

#[test]
fn wrong_coefficients_are_refused() {
    let messages = [
        "latency.step-us=1 --latency-model roofline",
        "latency.step=1",
        "latency.prefill-token-us=1",
        "latency.gemm=-1",
        "latency.gemm=101",
        "latency.step-us=1 --latency-model blackbox --alpha-coeffs 1,2,3 --beta-coeffs 4,5,6",
    ]
    .map(|rest| refused(&format!("{DEPLOYMENT} --policy-param {rest}")));
    insta::assert_snapshot!(messages.join("\n"));
}

#[test]
fn a_bundle_of_parameters_reads_back() {
    let folder = std::env::temp_dir().join(format!("blis-registry-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("scratch");
    let bundle = folder.join("bundle.yaml");
    let explained = done(&format!("{RUN} --policy-param routing.vllm-dp=0.5 --explain-config"));
    let (_, policies) = explained.split_once("a bundle for --policy-config\n").expect("the bundle comes last");
    std::fs::write(&bundle, policies).expect("scratch");
    let (before, _) = RUN.split_once(" --routing-policy").expect("the last flag");
    let again = done(&format!("{before} --policy-config {}", bundle.display()));
    assert_eq!(again, done(&format!("{RUN} --policy-param routing.vllm-dp=0.5")));
    std::fs::remove_dir_all(&folder).expect("scratch");
}

#[test]
fn a_built_in_policy_is_evaluated_as_a_candidate() {
    let result = json("evaluate weighted --suite sdk/python/tests/small.yaml");
    assert_eq!((&result["status"], result["hashes"]["candidate"].as_str().map(str::len)), (&"ok".into(), Some(64)));
    assert!(result["combined_score"].as_f64() > Some(0.0), "{result}");
    let message = refused("evaluate fcfs");
    assert!(message.contains("write `scheduling/fcfs` or `preemption/fcfs`"), "{message}");
}

#[test]
fn the_weights_of_weighted_are_tuned() {
    assert_tuned("sdk/python/tests/small.yaml", 50);
}

#[test]
#[ignore = "minutes"]
fn the_weights_of_weighted_are_tuned_on_a_suite_of_the_program() {
    // Fifty take a minute of an optimised build.
    assert_tuned("chat", 3);
}

fn assert_tuned(suite: &str, evaluations: u32) {
    let tuned = json(&format!("tune weighted --suite {suite} --evals {evaluations} --output json"));
    assert_eq!(tuned["parameters"].as_array().map(Vec::len), Some(16), "{tuned}");
    let (default, best) = (tuned["default_score"].as_f64(), tuned["tuned_score"].as_f64());
    assert!(default > Some(0.0) && best >= default, "{tuned}");
}
