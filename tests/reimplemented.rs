//! Built-in policies and their re-implementations give the same results, byte for byte: the scripts in
//! `examples/built-ins/` and the component `rust-built-ins` (`plugins/built-ins`), one of each kind.
//!
//! So a plugin sees all that these policies see, ties are broken alike, and no number is rounded on the way.

use std::{fs, thread};

use crate::macros::{Scratch, blis, root};

/// More than four instances can serve, with few KV blocks. The two clients with constant arrivals send pairs of requests
/// at the same microsecond, between which preemption has to choose.
const WORKLOAD: &str = r#"
version: "2"
aggregate_rate: 60
num_requests: 160
clients:
  - id: chat
    slo_class: critical
    rate_fraction: 1
    arrival: { process: poisson }
    prefix_group: system-prompt
    prefix_length: 128
    input_distribution: { type: lognormal, params: { mu: 4.2, sigma: 0.8, max: 600 } }
    output_distribution: { type: exponential, params: { mean: 120 } }
  - id: documents
    slo_class: batch
    rate_fraction: 1
    arrival: { process: gamma, cv: 3 }
    input_distribution: { type: lognormal, params: { mu: 5.5, sigma: 0.7, max: 1200 } }
    output_distribution: { type: exponential, params: { mean: 100 } }
  - id: agents
    slo_class: standard
    rate_fraction: 1
    prefix_group: tools
    prefix_length: 256
    arrival: { process: constant }
    input_distribution: { type: gaussian, params: { mean: 150, std_dev: 80, min: 20, max: 600 } }
    output_distribution: { type: exponential, params: { mean: 150 } }
  - id: more-agents
    slo_class: standard
    rate_fraction: 1
    prefix_group: tools
    prefix_length: 256
    arrival: { process: constant }
    input_distribution: { type: gaussian, params: { mean: 150, std_dev: 80, min: 20, max: 600 } }
    output_distribution: { type: exponential, params: { mean: 150 } }
  - id: crawler
    slo_class: background
    rate_fraction: 1
    arrival: { process: poisson }
    input_distribution: { type: gaussian, params: { mean: 200, std_dev: 150, min: 20, max: 900 } }
    output_distribution: { type: exponential, params: { mean: 150 } }
"#;

const SERVICE: &str = "run --model llama-3.1-8b-instruct --tp 1 --num-instances 4 --total-kv-blocks 110 --output json";

/// A built-in policy: the flag of its kind, its name, and the name of another one.
struct Reimplemented {
    flag: &'static str,
    name: &'static str,
    other: &'static str,
}

const POLICIES: [Reimplemented; 6] = [
    Reimplemented { flag: "--admission-policy", name: "gaie-legacy", other: "always-admit" },
    Reimplemented { flag: "--routing-policy", name: "weighted", other: "round-robin" },
    Reimplemented { flag: "--priority-policy", name: "class", other: "constant" },
    Reimplemented { flag: "--scheduler", name: "sjf", other: "fcfs" },
    Reimplemented { flag: "--preemption-policy", name: "priority", other: "fcfs" },
    Reimplemented { flag: "--latency-model", name: "blackbox", other: "roofline" },
];

/// Times of `blackbox`, none of which gives whole microseconds.
const BLACKBOX: &str = "--alpha-coeffs 1601.35,3.51,1805.54 --beta-coeffs 6910.42,17.67,2.84";
const BLACKBOX_PARAMETERS: &str = "--policy-param latency.a0=1601.35 --policy-param latency.a1=3.51 \
    --policy-param latency.a2=1805.54 --policy-param latency.b0=6910.42 --policy-param latency.b1=17.67 \
    --policy-param latency.b2=2.84";

impl Reimplemented {
    /// The flags that select `policy` for this kind.
    fn with(&self, policy: &str) -> String {
        let times = match policy {
            "blackbox" => BLACKBOX,
            _ if self.name == "blackbox" && policy != self.other => BLACKBOX_PARAMETERS,
            _ => "",
        };
        format!("{} {policy} {times}", self.flag)
    }

    fn script(&self) -> String {
        format!("examples/built-ins/{}.rhai", self.name)
    }
}

/// All that a run writes.
#[derive(PartialEq)]
struct RunFiles {
    document: String,
    /// The files about single requests.
    files: Vec<String>,
    /// The decision log, without what names the policies.
    decisions: Vec<String>,
}

/// Runs under one seed, one age of signals, and one reference.
struct RunSetting<'a> {
    scratch: &'a Scratch,
    flags: String,
}

impl RunSetting<'_> {
    /// The results with the re-implementation `instead(policy)` where there is one, else with the built-in.
    fn run(&self, instead: impl Fn(&Reimplemented) -> Option<String>) -> RunFiles {
        let policies = POLICIES.iter().map(|one| one.with(instead(one).as_deref().unwrap_or(one.name)));
        self.run_with(&policies.collect::<Vec<_>>().join(" "))
    }

    /// The results with the policies that `flags` select.
    fn run_with(&self, policies: &str) -> RunFiles {
        let out = Scratch::new();
        let flags = format!(
            "{SERVICE} --workload-spec {} {} {} --metrics-path {} --trace-output {} --export vllm-bench={} \
             --trace-level decisions --counterfactual-k 2 --trace-path {}",
            self.scratch.path("workload.yaml"),
            self.flags,
            policies,
            out.path("metrics.json"),
            out.path("trace"),
            out.path("bench.json"),
            out.path("decisions.jsonl"),
        );
        let document = without_plugins(blis!(flags).done().stdout);
        let files = ["metrics.json", "trace.yaml", "trace.csv", "bench.json"].map(|file| out.read(file));
        let decisions = out.read("decisions.jsonl");
        RunFiles { document, files: files.into(), decisions: decisions.lines().skip(1).map(without_policy).collect() }
    }

    /// `written` must be what the built-ins write.
    fn compare(&self, what: &str, built_in: &RunFiles, written: &RunFiles) {
        let pairs = built_in.files.iter().zip(&written.files);
        for (one, other) in pairs.chain([(&built_in.document, &written.document)]) {
            assert!(one == other, "{what} {}: {}", self.flags, first_difference(one, other));
        }
    }
}

fn first_difference(one: &str, other: &str) -> String {
    let at = one.chars().zip(other.chars()).position(|(one, other)| one != other).unwrap_or(one.len().min(other.len()));
    let [one, other] = [one, other].map(|text| text.chars().skip(at.saturating_sub(60)).take(120).collect::<String>());
    format!("{one} != {other}")
}

/// `document` without its section `plugins`, the last one.
fn without_plugins(document: String) -> String {
    match document.split_once(",\n  \"plugins\": [\n") {
        Some((before, _)) => format!("{before}\n}}\n"),
        None => document,
    }
}

/// A line of the decision log. The reason of a routing decision begins with the kind of the policy.
fn without_policy(line: &str) -> String {
    line.replace("\"reason\":\"weighted-scoring (", "\"reason\":\"plugin (")
}

fn settings(scratch: &Scratch) -> Vec<RunSetting<'_>> {
    let mut settings = Vec::new();
    for seed in 1..=3 {
        for signals in ["", "--snapshot-refresh-interval 0 --cache-signal-delay 0"] {
            for reference in ["vllm", "blis"] {
                settings.push(RunSetting { scratch, flags: format!("--seed {seed} --parity {reference} {signals}") });
            }
        }
    }
    settings
}

#[test]
fn reimplemented_policies_give_the_same_bytes() {
    let scratch = Scratch::new();
    scratch.write("workload.yaml", WORKLOAD);
    thread::scope(|scope| {
        for setting in settings(&scratch) {
            scope.spawn(move || compare_all(&setting));
        }
    });
}

/// The flag that selects a policy, by its kind.
fn flag(kind: &str) -> Option<&'static str> {
    Some(match kind {
        "admission" => "--admission-policy",
        "routing" => "--routing-policy",
        "routing-filter" => "--routing-policy weighted --routing-filters",
        "priority" => "--scheduling-policy priority --priority-policy",
        "scheduling" => "--scheduler",
        "preemption" => "--preemption-policy",
        "latency" => "--latency-model",
        "saturation" => "--flow-control --saturation-detector",
        "ceilings" => "--flow-control --usage-limit-policy",
        "fairness" => "--flow-control --fairness-policy",
        "ordering" => "--flow-control --dispatch-order",
        "eviction" => "--flow-control --in-flight-eviction --eviction-policy",
        _ => return None,
    })
}

/// A component in any language decides as the script of the same rule: `sdk/test-languages.sh` has built the templates of `blis plugin
/// new` in the folder that `BLIS_LANGUAGES` names, `KIND.rhai` and `KIND-LANGUAGE.wasm`.
#[test]
fn templates_of_all_languages_give_the_same_bytes() {
    let Some(folder) = std::env::var_os("BLIS_LANGUAGES").map(|folder| root().join(folder)) else {
        println!("skipped: BLIS_LANGUAGES names no folder");
        return;
    };
    let scratch = Scratch::new();
    scratch.write("workload.yaml", WORKLOAD);
    let entries = fs::read_dir(&folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let mut components: Vec<_> = entries.filter(|path| path.extension().is_some_and(|end| end == "wasm")).collect();
    components.sort();
    for component in &components {
        let name = component.file_stem().unwrap_or_default().to_string_lossy();
        let (kind, language) = name.rsplit_once('-').unwrap_or_else(|| panic!("{name}: no KIND-LANGUAGE"));
        let select = flag(kind).unwrap_or_else(|| panic!("{name}: {kind} is no kind"));
        for signals in ["", "--snapshot-refresh-interval 0 --cache-signal-delay 0"] {
            let setting = RunSetting { scratch: &scratch, flags: format!("--seed 1 {signals}") };
            let [script, written] = [folder.join(format!("{kind}.rhai")), component.clone()]
                .map(|file| setting.run_with(&format!("{select} {} --allow-large-components", file.display())));
            for (one, other) in script.files.iter().zip(&written.files) {
                assert!(one == other, "{kind}, {language} {signals}: {}", first_difference(one, other));
            }
        }
        println!("{kind}, {language}: the same requests at the same times");
    }
    for language in ["-c", "-zig", "-javascript", "-python"] {
        assert!(
            components.iter().any(|path| path.to_string_lossy().ends_with(&format!("{language}.wasm"))),
            "{language}"
        );
    }
}

/// The policy is a filter and a scorer of `weighted`: by flags, and in a bundle.
#[test]
fn token_aware_routing_as_filter_and_scorer_gives_the_same_bytes() {
    let scratch = Scratch::new();
    scratch.write("workload.yaml", WORKLOAD);
    let bundle = "routing:\n  policy: weighted\n  filters:\n    - {name: prefix-cache-affinity, parameters: {affinity: 0.5, \
                peak-prefill: 2000, max-penalty-ms: 100}}\n  scorers: [{name: token-load, weight: 3}]\n";
    scratch.write("bundle.yaml", bundle);
    let bundle = scratch.path("bundle.yaml");
    let own = "--policy-param routing.affinity=0.5 --policy-param routing.peak-prefill=2000 \
               --policy-param routing.max-penalty-ms=100";
    let flags = "--routing-policy weighted --routing-scorers token-load:1 \
                 --routing-filters prefix-cache-affinity:affinity=0.5:peak-prefill=2000:max-penalty-ms=100";
    for setting in settings(&scratch) {
        let built_in = setting.run_with(&format!("--routing-policy token-aware {own}"));
        for pipeline in [flags.to_owned(), format!("--policy-config {bundle}")] {
            let staged = setting.run_with(&pipeline);
            setting.compare("token-aware", &built_in, &staged);
            assert!(staged.decisions == built_in.decisions, "{} {pipeline}", setting.flags);
        }
    }
}

/// Flags of the built-in `token-aware`, and of the same parameters under the names `route` (of a policy) or `step` (of the
/// steps of a pipeline).
const TOKEN_AWARE: [(&str, &[(&str, &str)]); 3] = [
    ("", &[]),
    (
        "--policy-param routing.affinity=0.4 --policy-param routing.peak-prefill=2000",
        &[("affinity", "0.4"), ("peak_prefill", "2000")],
    ),
    (
        "--policy-param routing.affinity=0.3 --policy-param routing.peak-prefill=2000 --policy-param \
         routing.max-penalty-ms=20",
        &[("affinity", "0.3"), ("peak_prefill", "2000"), ("max_penalty_ms", "20")],
    ),
];

/// As a script, as a component, and as a pipeline with a filter and a scorer that are scripts or that component.
#[test]
#[ignore = "heavy: `.ci/run` runs it in a step of its own"]
fn token_aware_routing_as_plugins_gives_the_same_bytes() {
    let scratch = Scratch::new();
    scratch.write("workload.yaml", WORKLOAD);
    let mut left_out = 0;
    for setting in settings(&scratch) {
        for (own, parameters) in TOKEN_AWARE {
            let flags = |step: &str| -> String {
                parameters.iter().map(|(name, value)| format!(" --policy-param routing.{step}{name}={value}")).collect()
            };
            let values: String = parameters.iter().map(|(name, value)| format!(":{name}={value}")).collect();
            let built_in = setting.run_with(&format!("--routing-policy token-aware {own}"));
            let ways = [
                format!("--routing-policy examples/built-ins/token-aware.rhai {}", flags("")),
                format!("--routing-policy rust-token-aware {}", flags("")),
                format!(
                    "--routing-policy weighted --routing-filters examples/built-ins/sticky.rhai{values} \
                     --routing-scorers examples/built-ins/token-load.rhai:1"
                ),
                format!(
                    "--routing-policy weighted --routing-filters rust-token-aware --routing-scorers \
                     rust-token-aware:3 {}",
                    flags("rust-token-aware.")
                ),
                format!(
                    "--routing-policy weighted --routing-filters examples/built-ins/sticky.rhai --routing-scorers \
                     token-load:2 {}",
                    flags("sticky.")
                ),
            ];
            for way in ways {
                let written = setting.run_with(&way);
                setting.compare(&way, &built_in, &written);
                assert!(written.decisions == built_in.decisions, "{way} {}", setting.flags);
            }
            left_out += built_in.decisions.iter().filter(|line| line.contains("-1.0,") || line.contains("-1,")).count();
        }
    }
    assert!(left_out > 100, "{left_out}");
}

/// In the order of the list, as the built-in scorers are added.
#[test]
fn weighted_routing_as_three_plugin_scorers_gives_the_same_bytes() {
    let scratch = Scratch::new();
    scratch.write("workload.yaml", WORKLOAD);
    let bundle = "routing:\n  policy: weighted\n  scorers:\n    - {name: ./examples/built-ins/cached-prefix.rhai, weight: 2}\n    \
                  - {name: ./examples/built-ins/short-queue.rhai, weight: 1}\n    \
                  - {name: ./examples/built-ins/free-memory.rhai, weight: 1}\n";
    scratch.write("bundle.yaml", bundle);
    let bundle = format!("--policy-config {}", scratch.path("bundle.yaml"));
    let scripts = "--routing-policy weighted --routing-scorers examples/built-ins/cached-prefix.rhai:2,\
                   examples/built-ins/short-queue.rhai:1,examples/built-ins/free-memory.rhai:1";
    let mixed = "--routing-policy weighted --routing-scorers precise-prefix-cache:2,\
                 examples/built-ins/short-queue.rhai:1,kv-utilization:1";
    for setting in settings(&scratch) {
        let built_in = setting.run_with("--routing-policy weighted");
        for way in [scripts, mixed, &bundle] {
            let written = setting.run_with(way);
            setting.compare(way, &built_in, &written);
            assert!(written.decisions == built_in.decisions, "{way} {}", setting.flags);
        }
    }
}

fn compare_all(setting: &RunSetting<'_>) {
    let built_in = setting.run(|_| None);
    for one in &POLICIES {
        let only = |policy: String| setting.run(|other| (other.name == one.name).then(|| policy.clone()));
        let script = only(one.script());
        setting.compare(one.name, &built_in, &script);
        assert!(script.decisions == built_in.decisions, "{} {}", one.name, setting.flags);
        // The log lists the columns that a policy reads, which a component declares for all its kinds.
        setting.compare(one.name, &built_in, &only("rust-built-ins".to_owned()));
    }
    let scripts = setting.run(|one| Some(one.script()));
    setting.compare("all scripts", &built_in, &scripts);
    assert!(scripts.decisions == built_in.decisions, "all scripts {}", setting.flags);
    setting.compare("the component", &built_in, &setting.run(|_| Some("rust-built-ins".to_owned())));
}

/// Otherwise the comparison would prove nothing.
#[test]
fn every_reimplemented_policy_has_an_effect() {
    let scratch = Scratch::new();
    scratch.write("workload.yaml", WORKLOAD);
    for setting in settings(&scratch).into_iter().take(2) {
        let built_in = setting.run(|_| None);
        let document: serde_json::Value = serde_json::from_str(&built_in.document).expect("JSON");
        let figure = |name: &str| document[name].as_f64().unwrap_or_else(|| panic!("{name}: {}", document[name]));
        assert!(figure("preemption_count") > 20.0 && figure("mean_queue_length") > 1.0, "{}", setting.flags);
        assert!(figure("rejected_admission") > 20.0, "{}", setting.flags);
        let hits = built_in
            .decisions
            .iter()
            .filter(|line| line.contains("cached_blocks") && !line.contains("\"cached_blocks\":[0,0,0,0]"));
        assert!(hits.count() > 20, "{}", setting.flags);
        for one in &POLICIES {
            let other = setting.run(|kind| (kind.name == one.name).then(|| one.other.to_owned()));
            assert!(other.document != built_in.document, "{} {}", one.name, setting.flags);
        }
    }
}
