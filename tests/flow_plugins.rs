//! Plugins of flow control: the built-in policies and their re-implementations as scripts (`examples/built-ins/`) and as a
//! component (`plugins/flow-control`) give the same results, byte for byte; and mistakes are refused.

use std::fs;
use std::path::Path;

use crate::macros::{Scratch, blis};
use crate::plugins::{compiled, fixture};

/// Two tenants of unequal demand in three bands, more than two instances can serve; some requests time out sooner than
/// others of their tenant.
const WORKLOAD: &str = r#"
version: "2"
aggregate_rate: 90
num_requests: 220
clients:
  - id: many
    tenant_id: many
    slo_class: standard
    rate_fraction: 5
    arrival: { process: poisson }
    input_distribution: { type: lognormal, params: { mu: 5.5, sigma: 0.7, max: 1200 } }
    output_distribution: { type: exponential, params: { mean: 120 } }
  - id: hasty
    tenant_id: many
    slo_class: standard
    rate_fraction: 3
    timeout: 2500000
    arrival: { process: poisson }
    input_distribution: { type: lognormal, params: { mu: 5.5, sigma: 0.7, max: 1200 } }
    output_distribution: { type: exponential, params: { mean: 60 } }
  - id: few
    tenant_id: few
    slo_class: standard
    rate_fraction: 1
    arrival: { process: gamma, cv: 3 }
    input_distribution: { type: lognormal, params: { mu: 5.0, sigma: 0.7, max: 1200 } }
    output_distribution: { type: exponential, params: { mean: 150 } }
  - id: premium
    slo_class: critical
    rate_fraction: 1
    arrival: { process: poisson }
    input_distribution: { type: gaussian, params: { mean: 150, std_dev: 80, min: 20, max: 600 } }
    output_distribution: { type: exponential, params: { mean: 80 } }
  - id: sheddable
    tenant_id: few
    slo_class: background
    rate_fraction: 2
    arrival: { process: poisson }
    input_distribution: { type: gaussian, params: { mean: 300, std_dev: 150, min: 20, max: 900 } }
    output_distribution: { type: exponential, params: { mean: 200 } }
"#;

const SERVICE: &str = "run --model llama-3.1-8b-instruct --tp 1 --num-instances 2 --max-num-seqs 6 --total-kv-blocks 900 \
                       --output json --flow-control --in-flight-eviction --request-ttl 4s";

/// The flag of a kind, a built-in policy with its own flags, and the parameters of its re-implementation.
struct FlowControlPolicy {
    kind: &'static str,
    flag: &'static str,
    name: &'static str,
    own: &'static str,
    parameters: &'static [&'static str],
    /// Whether `rust-flow-control` has it.
    is_in_component: bool,
}

const POLICIES: [FlowControlPolicy; 6] = [
    FlowControlPolicy {
        kind: "saturation",
        flag: "--saturation-detector",
        name: "utilization",
        own: "--queue-depth-threshold 2 --kv-cache-util-threshold 0.7",
        parameters: &["queue_depth=2", "kv_utilization=0.7"],
        is_in_component: true,
    },
    FlowControlPolicy {
        kind: "ceilings",
        flag: "--usage-limit-policy",
        name: "priority-holdback",
        own: "--usage-limit-threshold 0.6",
        parameters: &["limit=0.6"],
        is_in_component: true,
    },
    FlowControlPolicy {
        kind: "fairness",
        flag: "--fairness-policy",
        name: "virtual-token-counter",
        own: "",
        parameters: &[],
        is_in_component: true,
    },
    FlowControlPolicy {
        kind: "fairness",
        flag: "--fairness-policy",
        name: "global-strict",
        own: "",
        parameters: &[],
        is_in_component: false,
    },
    FlowControlPolicy {
        kind: "ordering",
        flag: "--dispatch-order",
        name: "edf",
        own: "",
        parameters: &[],
        is_in_component: true,
    },
    FlowControlPolicy {
        kind: "eviction",
        flag: "--eviction-policy",
        name: "lowest-priority-newest",
        own: "",
        parameters: &[],
        is_in_component: true,
    },
];

impl FlowControlPolicy {
    fn built_in(&self) -> String {
        format!("{} {} {}", self.flag, self.name, self.own)
    }

    /// The same policy from `file`.
    fn plugin(&self, file: &str) -> String {
        let parameters: String =
            self.parameters.iter().map(|one| format!(" --policy-param {}.{one}", self.kind)).collect();
        format!("{} {file}{parameters}", self.flag)
    }

    fn script(&self) -> String {
        self.plugin(&format!("examples/built-ins/{}.rhai", self.name))
    }
}

/// The results and the record of every request, without what names the plugins.
fn run(scratch: &Scratch, flags: &str) -> [String; 2] {
    let out = Scratch::new();
    let workload = scratch.path("workload.yaml");
    let document = blis!(format!("{SERVICE} --workload-spec {workload} {flags} --metrics-path {}", out.path("m.json")))
        .done()
        .stdout;
    let document = match document.split_once(",\n  \"plugins\": [\n") {
        Some((before, _)) => format!("{before}\n}}\n"),
        None => document,
    };
    [document, out.read("m.json")]
}

/// The first policy of each kind but those of `kind`, which `instead` replaces.
fn all_with(kind: &str, instead: &str) -> String {
    let others = POLICIES.iter().filter(|one| one.kind != kind && one.name != "global-strict");
    others.map(FlowControlPolicy::built_in).chain([instead.to_owned()]).collect::<Vec<_>>().join(" ")
}

fn scratch() -> Scratch {
    let scratch = Scratch::new();
    scratch.write("workload.yaml", WORKLOAD);
    scratch
}

#[test]
fn reimplemented_policies_give_the_same_bytes() {
    let scratch = scratch();
    for more in ["--seed 1", "--seed 2 --snapshot-refresh-interval 0", "--seed 3 --parity blis"] {
        for policy in &POLICIES {
            let with = |instead: &str| run(&scratch, &format!("{more} {}", all_with(policy.kind, instead)));
            let built_in = with(&policy.built_in());
            assert!(built_in == with(&policy.script()), "{} as a script, {more}", policy.name);
            if policy.is_in_component {
                let component = with(&policy.plugin("rust-flow-control"));
                assert!(built_in == component, "{} as a component, {more}", policy.name);
            }
        }
        let all = |of: fn(&FlowControlPolicy) -> String| {
            let of = POLICIES.iter().filter(|one| one.is_in_component).map(of);
            run(&scratch, &format!("{more} {}", of.collect::<Vec<_>>().join(" ")))
        };
        let built_in = all(FlowControlPolicy::built_in);
        assert!(built_in == all(FlowControlPolicy::script), "all as scripts, {more}");
        assert!(built_in == all(|one| one.plugin("rust-flow-control")), "all as one component, {more}");
    }
}

/// The component looks at eight flows at once: more tenants than that, of unequal demand, which come and go, in two bands.
#[test]
fn fairness_among_many_tenants_is_the_same_in_a_component() {
    let client = |number: usize| {
        let (tenant, fraction, class) = (number % 37, number % 7 + 1, ["critical", "standard"][number % 2]);
        format!(
            "  - {{ id: c{number}, tenant_id: t{tenant}, slo_class: {class}, rate_fraction: {fraction},\n      \
             arrival: {{ process: gamma, cv: 4 }},\n      \
             input_distribution: {{ type: constant, params: {{ value: {} }} }},\n      \
             output_distribution: {{ type: exponential, params: {{ mean: 60 }} }} }}\n",
            100 * fraction
        )
    };
    let clients: String = (0..60).map(client).collect();
    let scratch = Scratch::new();
    let workload = format!("version: \"2\"\naggregate_rate: 120\nnum_requests: 900\nclients:\n{clients}");
    scratch.write("workload.yaml", &workload);
    for seed in 1..=3 {
        let with = |policy: &str| run(&scratch, &format!("--seed {seed} --fairness-policy {policy}"));
        let built_in = with("virtual-token-counter");
        assert!(built_in == with("rust-flow-control"), "seed {seed}");
        assert!(built_in != with("global-strict"), "seed {seed}: fairness has no effect");
    }
}

/// The functions of the C interface: a native library with all five.
#[test]
#[ignore = "heavy: `.ci/run` runs it in a step of its own"]
fn c_functions_give_the_same_bytes() {
    let scratch = scratch();
    let library = scratch.path("flow.so");
    if !compiled(&fixture("flow"), None, Path::new(&library)) {
        return;
    }
    let checked = blis!(format!("plugin check {library} --allow-native"));
    assert_eq!(checked.code, Some(0), "{}{}", checked.stdout, checked.stderr);
    let of_library = || POLICIES.iter().filter(|one| one.is_in_component);
    for more in ["--seed 1", "--seed 2 --snapshot-refresh-interval 0"] {
        for policy in of_library() {
            let with = |instead: &str| run(&scratch, &format!("{more} {}", all_with(policy.kind, instead)));
            let native = with(&format!("--allow-native {}", policy.plugin(&library)));
            assert!(with(&policy.built_in()) == native, "{} in C, {more}", policy.name);
        }
        let more = format!("{more} --allow-native");
        let all = |of: &dyn Fn(&FlowControlPolicy) -> String| {
            run(&scratch, &format!("{more} {}", of_library().map(of).collect::<Vec<_>>().join(" ")))
        };
        assert!(all(&|one| one.plugin(&library)) == all(&FlowControlPolicy::built_in), "all in C, {more}");
    }
}

/// Their decisions are the same, so the regret of them must be the same: copies of plugins behave as the plugins do.
#[test]
#[ignore = "heavy: `.ci/run` runs it in a step of its own"]
fn plugins_have_the_regret_of_the_equal_built_in_policies() {
    let scratch = scratch();
    let workload = scratch.path("workload.yaml");
    let regret = |of: &dyn Fn(&FlowControlPolicy) -> String| {
        let out = Scratch::new();
        let policies = POLICIES.iter().filter(|one| one.is_in_component).map(of).collect::<Vec<_>>().join(" ");
        let service = SERVICE.replace("run ", "regret ");
        let more = format!("--regret-samples 40 --regret-path {}", out.path("regret.jsonl"));
        let document = blis!(format!("{service} --workload-spec {workload} {policies} {more}")).json();
        (document, out.read("regret.jsonl"))
    };
    let (document, lines) = regret(&FlowControlPolicy::built_in);
    for (kind, of) in [("fairness", " of tenant "), ("ordering", "request_"), ("eviction", "none")] {
        assert!(document["regret"]["kinds"][kind]["uniform"]["evaluated"].as_u64() > Some(4), "{kind}: {document}");
        let kind = format!("\"kind\":\"{kind}\"");
        assert!(lines.lines().any(|line| line.contains(&kind) && line.contains(of)), "{kind}: {lines}");
    }
    assert!((document, lines) == regret(&FlowControlPolicy::script));
}

/// Otherwise the comparison would prove nothing.
#[test]
fn every_reimplemented_policy_has_an_effect() {
    let scratch = scratch();
    let others = [
        ("saturation", "--saturation-detector never"),
        ("ceilings", "--usage-limit-policy static --usage-limit-threshold 0.9"),
        ("fairness", "--fairness-policy global-strict"),
        ("ordering", "--dispatch-order slo-deadline --slo-targets standard=1s,default=10s"),
    ];
    let usual = run(&scratch, &all_with("", ""));
    for (kind, other) in others {
        assert!(run(&scratch, &all_with(kind, other)) != usual, "{other}");
    }
    let evicts_none = scratch.path("none.rhai");
    fs::write(&evicts_none, "fn evict(b, f) { () }").expect("written");
    assert!(run(&scratch, &all_with("eviction", &format!("--eviction-policy {evicts_none}"))) != usual);
}

#[test]
fn a_bundle_names_policies_with_their_parameters() {
    let scratch = scratch();
    let bundle = scratch.path("bundle.yaml");
    let built_in = "saturation: {policy: utilization, parameters: {queue-depth: 2, kv-utilization: 0.7}}\n\
                    ceilings: {policy: priority-holdback, parameters: {limit: 0.6}}\n\
                    fairness: {policy: virtual-token-counter}\nordering: {policy: edf}\n";
    let plugins = "saturation: {policy: rust-flow-control, parameters: {queue_depth: 2, kv_utilization: 0.7}}\n\
                   ceilings: {policy: rust-flow-control, parameters: {limit: 0.6}}\n\
                   fairness: {policy: rust-flow-control}\nordering: {policy: rust-flow-control}\n\
                   eviction: {policy: rust-flow-control}\n";
    let usual = run(&scratch, &all_with("", ""));
    for text in [built_in, plugins] {
        fs::write(&bundle, text).expect("written");
        assert!(run(&scratch, &format!("--policy-config {bundle}")) == usual, "{text}");
        // A flag wins over the bundle.
        let other = format!("--policy-config {bundle} --saturation-detector never");
        let flag = all_with("saturation", "--saturation-detector never");
        assert!(run(&scratch, &other) == run(&scratch, &flag), "{text}");
    }
}

/// Built-in policies that flags select have the same parameters as in a bundle, and flags such as
/// `--queue-depth-threshold` set them as well.
#[test]
fn parameters_and_flags_set_the_same_values() {
    let scratch = scratch();
    let usual = run(&scratch, &all_with("", ""));
    let mixed =
        "--saturation-detector utilization --queue-depth-threshold 2 --policy-param saturation.kv-utilization=0.7";
    assert!(run(&scratch, &all_with("saturation", mixed)) == usual, "one by its flag, one by its name");
    let by_name = "--policy-param saturation.queue-depth=2 --policy-param saturation.kv-utilization=0.7";
    assert!(run(&scratch, &all_with("saturation", by_name)) == usual, "of the default detector");
    let last = format!("{by_name} --queue-depth-threshold 4");
    assert!(run(&scratch, &all_with("saturation", &last)) == usual, "what is named wins over the flag");
    let limit = "--usage-limit-policy priority-holdback --policy-param ceilings.limit=0.6";
    assert!(run(&scratch, &all_with("ceilings", limit)) == usual);
    let weighted = |flags: &str| run(&scratch, &all_with("fairness", &format!("--fairness-policy {flags}")));
    let counter = "virtual-token-counter --policy-param fairness.output-weight";
    assert!(weighted(&format!("{counter}=2")) == usual);
    assert!(weighted(&format!("{counter}=0")) != usual);
    let tokens = "--saturation-detector concurrency --max-concurrency 8";
    let by_flag = format!("{tokens} --concurrency-mode hybrid --max-token-concurrency 900");
    let by_name = format!("{tokens} --policy-param saturation.mode=2 --policy-param saturation.max-tokens=900");
    let [by_flag, by_name] = [by_flag, by_name].map(|flags| run(&scratch, &all_with("saturation", &flags)));
    assert!(by_flag == by_name && by_flag != usual);
    // A page of `--explain-config` has them.
    let workload = scratch.path("workload.yaml");
    let flags = format!("{SERVICE} --workload-spec {workload} {}", all_with("saturation", mixed));
    scratch.write("page.yaml", &blis!(format!("{flags} --explain-config")).done().stdout);
    let again = blis!(format!("run --output json --config {}", scratch.path("page.yaml"))).done().stdout;
    assert_eq!(again, blis!(flags).done().stdout);
}

/// What a page of `--explain-config` says gives the same run.
#[test]
fn explained_plugins_run_again() {
    let scratch = scratch();
    let workload = scratch.path("workload.yaml");
    let flags = format!("{SERVICE} --workload-spec {workload} {}", all_with("", ""));
    let flags = flags.replace("--fairness-policy virtual-token-counter", "--fairness-policy rust-flow-control");
    let page = blis!(format!("{flags} --explain-config")).done().stdout;
    assert!(page.contains("fairness:\n") && !page.contains("fairness-policy:"), "{page}");
    scratch.write("page.yaml", &page);
    let again = blis!(format!("run --output json --config {}", scratch.path("page.yaml"))).done().stdout;
    assert_eq!(again, blis!(flags).done().stdout);
}

#[test]
fn mistakes_are_refused() {
    let refused = |flags: &str| {
        let ended = blis!(format!("run --model llama-3.1-8b-instruct --num-requests 5 {flags}"));
        let message = ended.refused();
        assert!(message.contains("hint: "), "{message}");
        message
    };
    let says = |flags: &str, text: &str| {
        let message = refused(flags);
        assert!(message.contains(text), "{flags}: {message}");
    };
    says("--flow-control --fairness-policy virtual-token-count", "virtual-token-counter");
    says("--flow-control --saturation-detector least-loaded-script", "least-loaded-script");
    says("--flow-control --saturation-detector rust-least-loaded", "is no saturation detector");
    says("--flow-control --fairness-policy rust-flow-control --policy-param fairness.weight=1", "output_weight");
    says("--flow-control --policy-param fairness.output-weight=1", "`global-strict` has no parameter `output-weight`");
    let counter = "--fairness-policy virtual-token-counter --policy-param fairness.output";
    says(&format!("--flow-control {counter}-wait=1"), "did you mean `output-weight`?");
    says("--policy-param fairness.output-weight=1", "`global-strict` has no parameter");
    says("--policy-param saturation.queue-depth=7", "has no effect without `--flow-control`");
    says("--fairness-policy rust-flow-control", "needs `--flow-control`");
    says("--flow-control --eviction-policy rust-flow-control", "needs `--in-flight-eviction`");
    let scratch = Scratch::new();
    scratch.write("bundle.yaml", "fairness: {policy: round-robin}\n");
    says(&format!("--policy-config {}", scratch.path("bundle.yaml")), "has no effect without `--flow-control`");
    scratch.write("bad.rhai", "fn fair_pick(b, f) { f.served }");
    says(&format!("--flow-control --fairness-policy {}", scratch.path("bad.rhai")), "no field `served`");
}

/// A bad output ends the run, or is counted where a built-in policy decides instead.
#[test]
fn a_failing_plugin_is_reported() {
    let scratch = scratch();
    let file = scratch.path("bad.rhai");
    fs::write(&file, "fn fair_pick(b, f) { f.len }").expect("written");
    let flags = all_with("fairness", &format!("--fairness-policy {file}"));
    let workload = scratch.path("workload.yaml");
    let ended = blis!(format!("{SERVICE} --workload-spec {workload} {flags}"));
    assert!(ended.stderr.contains("fair_pick returned"), "{}", ended.stderr);
    let document =
        blis!(format!("{SERVICE} --workload-spec {workload} {flags} --on-plugin-error fallback")).done().stdout;
    let document: serde_json::Value = serde_json::from_str(&document).expect("JSON");
    let plugins = document["plugins"].as_array().expect("a list");
    assert!(plugins.iter().any(|plugin| plugin.to_string().contains("fairness")), "{plugins:?}");
    let strict = run(&scratch, &all_with("fairness", "--fairness-policy global-strict"));
    let [fallback, _] = run(&scratch, &format!("{flags} --on-plugin-error fallback"));
    let figure = |text: &str| serde_json::from_str::<serde_json::Value>(text).expect("JSON")["ttft_mean_ms"].clone();
    assert_eq!(figure(&fallback), figure(&strict[0]));
}

/// The detector counts by events what the router counts in a column: all that happened before a decision is delivered
/// before it.
#[test]
fn events_come_before_decisions() {
    let scratch = scratch();
    let source = "// @events routed, completed, ended\n\
                  fn init(info) { #{ count: 0 } }\n\
                  fn observe(e) { if e.kind == \"routed\" { this.count += 1; } else if e.instance != () { this.count -= 1; } }\n\
                  fn saturation(s) {\n    \
                      if this.count != to_int(sum(s.in_flight)) { throw `${this.count}, not ${sum(s.in_flight)}`; }\n    \
                      this.count / 12.0\n\
                  }\n";
    scratch.write("events.rhai", source);
    let detector = format!("--saturation-detector {}", scratch.path("events.rhai"));
    for more in ["", "--snapshot-refresh-interval 0"] {
        let counted = run(&scratch, &format!("{more} {detector}"));
        let built_in = run(&scratch, &format!("{more} --saturation-detector concurrency --max-concurrency 6"));
        assert!(counted == built_in, "{more}");
    }
}

/// The branches of regret continue with copies of the policies, their state included.
#[test]
fn branches_continue_with_copies() {
    let scratch = scratch();
    let workload = scratch.path("workload.yaml");
    let regret = |instead: &str| {
        let service = SERVICE.strip_prefix("run").expect("it is a run");
        let flags = all_with("fairness", instead);
        let samples = "--routing-policy least-loaded --regret-samples 6 --regret-alternatives 1";
        blis!(format!("regret{service} --workload-spec {workload} {flags} {samples}")).done().stdout
    };
    let built_in = regret("--fairness-policy virtual-token-counter");
    for plugin in ["examples/built-ins/virtual-token-counter.rhai", "rust-flow-control"] {
        assert!(regret(&format!("--fairness-policy {plugin}")) == built_in, "{plugin}");
    }
    assert!(regret("--fairness-policy global-strict") != built_in, "it has an effect");
}
