//! `blis plugin replay` from outside: equal policies make equal decisions, faults that were put in are found, and
//! traces that hold too little are refused.

use std::fs;

use serde_json::Value;

use crate::macros::{Ended, Scratch, assert_fits, blis, root};
use crate::plugins::compiled;

/// Two instances that are too small for what comes: queues, cached prefixes, preemptions.
const RUN: &str = "run --latency-model trained-physics --model llama-3.1-8b-instruct --num-requests 60 --rate 40 \
                   --arrival-process poisson --prompt-tokens 100 --prompt-tokens-stdev 60 --output-tokens 60 \
                   --prefix-tokens 64 --num-instances 2 --total-kv-blocks 60 --max-num-seqs 6 --timeout -1 \
                   --trace-level decisions";

const LEAST_LOADED: &str = "--routing-policy least-loaded";

/// A script with the built-in's scores, and one with the opposite sign.
const SCRIPT: &str = "fn route(r, s) { -(s.queue_depth + s.batch_size + s.in_flight) }";
const INVERTED: &str = "fn route(r, s) { s.queue_depth + s.batch_size + s.in_flight }";

/// A folder with a trace `t.jsonl`.
struct RecordedTrace(Scratch);

impl RecordedTrace {
    fn new(flags: &str) -> Self {
        let recorded = Self(Scratch::new());
        recorded.record("t.jsonl", flags);
        recorded
    }

    fn record(&self, file: &str, flags: &str) {
        blis!(format!("{RUN} {flags} --trace-path {}", self.0.path(file))).done();
    }

    /// `blis plugin replay POLICY t.jsonl`; names of files in the folder may stand in `arguments` as `@/`.
    fn replay(&self, arguments: &str) -> Ended {
        let (policy, flags) = arguments.split_once(' ').unwrap_or((arguments, ""));
        let line = format!("plugin replay {policy} @/t.jsonl {flags}");
        blis!(line.replace('@', &self.0.display().to_string()))
    }

    fn json(&self, arguments: &str) -> Value {
        self.replay(&format!("{arguments} --output json")).json()
    }

    /// (decisions, those that differ)
    fn counts(&self, arguments: &str) -> (u64, u64) {
        let replay = self.json(arguments);
        (number(&replay["decisions"]), number(&replay["differ"]))
    }

    fn lines(&self, kind: &str) -> Vec<Value> {
        let lines = self.0.read("t.jsonl");
        let lines = lines.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        lines.filter(|line| line["kind"] == kind).collect()
    }

    /// Number of routing decisions between instances with unequal loads.
    fn unequal_loads(&self) -> u64 {
        let (signals, routings) = (self.lines("signals"), self.lines("routing"));
        let is_unequal = |line: &&Value| {
            let reading = signals.iter().find(|signals| signals["reading"] == line["reading"]).expect("a reading");
            let load = |i: usize| {
                number(&reading["queue_depth"][i]) + number(&reading["batch_size"][i]) + number(&line["in_flight"][i])
            };
            load(0) != load(1)
        };
        routings.iter().filter(is_unequal).count() as u64
    }
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no number"))
}

#[test]
fn a_policy_repeats_its_own_decisions() {
    // The second has a state, the third draws random numbers.
    let scripts = [
        SCRIPT,
        "fn init() { #{ next: 0 } }\nfn route(r, s) { let i = this.next; this.next = (i + 3) % 5; i % 2 }",
        "fn route(r, s) { if random() < 0.5 { 0 } else { 1 } }",
    ];
    for script in scripts {
        let recorded = RecordedTrace(Scratch::new());
        recorded.0.write("mine.rhai", script);
        recorded.record("t.jsonl", &format!("--routing-policy {}", recorded.0.path("mine.rhai")));
        let chosen = recorded.lines("routing").iter().filter(|line| line["instance"] == 1).count();
        assert!((5..55).contains(&chosen), "{script}: {chosen} of 60");
        assert_eq!(recorded.counts("@/mine.rhai"), (60, 0), "{script}");
    }
}

#[test]
fn columns_of_adapters_are_recorded() {
    let recorded = RecordedTrace(Scratch::new());
    let script = "fn route(r, s) { s.adapter_active + 0.5 * s.adapter_waiting + 0.1 * s.free_adapter_slots - 0.01 * s.in_flight }";
    recorded.0.write("mine.rhai", script);
    recorded.0.write("opposite.rhai", script.replace("s.adapter_active +", "-s.adapter_active +"));
    let run = |flags: &str, policy: &str| {
        let trace = format!("--trace-level decisions --trace-path {}", recorded.0.path("t.jsonl"));
        let service = "run --model llama-3.1-8b-instruct --hardware H100 --tp 1 --num-instances 2 --workload-spec";
        blis!(format!("{service} examples/adapters.yaml {flags} --routing-policy {policy} {trace}")).done();
    };
    run("--lora-config examples/lora.yaml", &recorded.0.path("mine.rhai"));
    let routings = recorded.lines("routing");
    let active = |line: &&Value| line["adapter_active"].as_array().is_some_and(|column| column.contains(&1.into()));
    assert!(routings.iter().filter(active).count() > 10, "{:?}", routings.first());
    assert!(routings.iter().all(|line| line["free_adapter_slots"].as_array().is_some_and(|column| column.len() == 2)));
    assert_eq!(recorded.counts("@/mine.rhai").1, 0);
    assert!(recorded.counts("@/opposite.rhai").1 > 10);
    run("", "weighted --routing-scorers lora-affinity:1,queue-depth:1");
    assert!(!recorded.0.read("t.jsonl").contains("adapter_active"), "without adapters there are no columns");
    run("--lora-config examples/lora.yaml", "least-loaded");
    let message = recorded.replay("@/mine.rhai").refused();
    assert!(message.contains("no `adapter_active`"), "{message}");
}

#[test]
fn policies_with_the_same_choices_do_not_differ() {
    let recorded = RecordedTrace::new("--routing-policy weighted");
    for policy in ["weighted", "policies/prefix-then-load.rhai", "prefix-then-load --policy-param routing.cache=2"] {
        assert_eq!(recorded.counts(policy), (60, 0), "{policy}");
    }
    let (decisions, differ) = recorded.counts("prefix-then-load --policy-param routing.cache=0");
    assert!(decisions == 60 && differ > 5, "{differ}");
}

#[test]
fn an_inverted_sign_in_a_script_is_found() {
    let recorded = RecordedTrace::new(LEAST_LOADED);
    recorded.0.write("right.rhai", SCRIPT);
    recorded.0.write("wrong.rhai", INVERTED);
    let unequal = recorded.unequal_loads();
    assert!((10..60).contains(&unequal), "{unequal}");
    assert_eq!(recorded.counts("@/right.rhai"), (60, 0));
    assert_eq!(recorded.counts("@/wrong.rhai"), (60, unequal));
}

#[test]
fn an_inverted_sign_in_a_component_is_found() {
    let recorded = RecordedTrace::new(LEAST_LOADED);
    assert_eq!(recorded.counts("policies/rust-least-loaded.wasm"), (60, 0));
    assert_eq!(recorded.counts("least-loaded"), (60, 0), "the built-in");
    recorded.record("t.jsonl", "--routing-policy always-busiest");
    let unequal = recorded.unequal_loads();
    let (decisions, differ) = recorded.counts("policies/rust-least-loaded.wasm");
    assert!(decisions == 60 && unequal > 40 && differ >= unequal, "{differ} of {decisions}, {unequal}");
}

#[test]
fn an_inverted_sign_in_a_library_is_found() {
    let recorded = RecordedTrace::new(LEAST_LOADED);
    let source = fs::read_to_string(root().join("plugins/c-least-loaded/policy.c")).expect("a source");
    let right = "return load < UINT32_MAX ? (uint32_t)load : UINT32_MAX;";
    let wrong = "return load < UINT32_MAX ? UINT32_MAX - (uint32_t)load : 0;";
    assert!(source.contains(right), "{source}");
    for (name, source) in [("right", source.clone()), ("wrong", source.replace(right, wrong))] {
        let file = recorded.0.write(&format!("{name}.c"), source);
        if !compiled(&file, None, &recorded.0.join(format!("{name}.so"))) {
            return;
        }
    }
    assert_eq!(recorded.counts("@/right.so --allow-native"), (60, 0));
    assert_eq!(recorded.counts("@/wrong.so --allow-native"), (60, recorded.unequal_loads()));
    assert!(recorded.replay("@/right.so").refused().contains("--allow-native"));
}

/// The bucket's content is a state; the rejected requests are not routed.
#[test]
fn admission_is_replayed() {
    let bucket = "--admission-policy token-bucket --token-bucket-capacity 500 --token-bucket-refill-rate 2000";
    let recorded = RecordedTrace::new(bucket);
    let rejected = recorded.lines("admission").iter().filter(|line| line["admitted"] == false).count() as u64;
    assert!((5..55).contains(&rejected), "{rejected}");
    let same = "token-bucket --policy-param admission.capacity=500 --policy-param admission.refill-rate=2000";
    assert_eq!(recorded.counts(same), (60, 0));
    let all = recorded.json("always-admit --limit 1");
    assert_eq!(number(&all["differ"]), rejected);
    let first = &all["differences"][0];
    assert_eq!(first["recorded"]["admitted"], false);
    assert_eq!(first["replayed"]["admitted"], true);
    assert!(first["recorded"]["reason"].as_str().is_some_and(|reason| !reason.is_empty()), "{first}");
    let routings = &all["not_replayed"][0];
    assert_eq!((routings["kind"].as_str(), number(&routings["decisions"])), (Some("routing"), 60 - rejected));
}

#[test]
fn a_difference_has_the_signals_of_both_instances() {
    let recorded = RecordedTrace::new(LEAST_LOADED);
    recorded.0.write("wrong.rhai", INVERTED);
    let replay = recorded.json("@/wrong.rhai --limit 3");
    assert_eq!(replay["differences"].as_array().map(Vec::len), Some(3));
    let first = &replay["differences"][0];
    let load = |side: &str| {
        ["queue_depth", "batch_size", "in_flight"].iter().map(|column| number(&first[side][column])).sum::<u64>()
    };
    assert!(load("recorded") < load("replayed"), "{first}");
    assert_eq!(first["replayed"]["replayed_score"].as_f64(), Some(load("replayed") as f64));
    let line = recorded.lines("routing").into_iter().find(|line| line["request"] == first["request"]);
    let line = line.expect("the decision");
    assert_eq!((&line["time_us"], &line["instance"]), (&first["time_us"], &first["recorded"]["instance"]));
    let kinds = replay["not_replayed"].as_array().expect("a list").iter().map(|row| row["kind"].as_str());
    assert_eq!(kinds.collect::<Vec<_>>(), [Some("admission"), Some("scheduling"), Some("preemption")]);
    assert!(replay["assumed"].as_array().is_some_and(|rows| rows.len() >= 4), "{replay}");
}

#[test]
fn text_fits_and_strict_fails() {
    let recorded = RecordedTrace::new(LEAST_LOADED);
    recorded.0.write("right.rhai", SCRIPT);
    recorded.0.write("wrong.rhai", INVERTED);
    recorded.replay("@/right.rhai --strict").done();
    let found = recorded.replay("@/wrong.rhai --strict --output text --limit 2").with_code(1);
    assert_fits("plugin replay", &found.stdout);
    for part in ["The first 2 differences:", "queued", "recorded\n", "replayed\n", "Not replayed:", "assumed:"] {
        assert!(found.stdout.contains(part), "no `{part}`: {}", found.stdout);
    }
    assert!(found.stderr.contains("of 60 decisions differ"), "{}", found.stderr);
}

#[test]
fn a_missing_column_is_named() {
    let recorded = RecordedTrace::new("--routing-policy round-robin");
    let refused = |policy: &str| recorded.replay(policy).refused();
    let message = refused("least-loaded");
    assert!(message.contains("`reading`") && message.contains("--counterfactual-k"), "{message}");
    let message = refused("weighted");
    assert!(message.contains("`reading`"), "{message}");
    recorded.record("t.jsonl", "--routing-policy round-robin --counterfactual-k 2");
    assert_eq!(recorded.counts("least-loaded").0, 60, "as the hint promises");
    let message = recorded.replay("weighted").refused();
    assert!(message.contains("`cached_blocks`") && message.contains("--routing-policy weighted"), "{message}");
    recorded.0.write("full.rhai", "fn admit(r, s) { s.queue_depth.sum() < 10 }");
    let message = recorded.replay("@/full.rhai").refused();
    assert!(message.contains("for admission") && message.contains("--admission-policy"), "{message}");
}

#[test]
fn a_cut_trace_is_replayed_up_to_the_cut() {
    let recorded = RecordedTrace::new(LEAST_LOADED);
    let whole = recorded.0.read("t.jsonl");
    let lines: Vec<&str> = whole.lines().collect();
    recorded.0.write("t.jsonl", lines[..lines.len() / 2].join("\n"));
    let cut = recorded.replay("least-loaded --output json");
    assert!(cut.stderr.contains(&format!("cut off after line {}", lines.len() / 2 - 1)), "{}", cut.stderr);
    let decisions = number(&cut.json()["decisions"]);
    assert!((20..60).contains(&decisions), "{decisions} of 60");
    recorded.0.write("t.jsonl", &whole[..whole.len() / 2]);
    let (half, differ) = recorded.counts("least-loaded");
    assert!((20..=60).contains(&half) && differ == 0, "{half}, {differ}");
}

#[test]
fn nonsense_is_refused() {
    let recorded = RecordedTrace::new(LEAST_LOADED);
    let whole = recorded.0.read("t.jsonl");
    for (policy, part) in [
        ("nothere", "unknown plugin"),
        ("fcfs", "a scheduler and of a preemption policy"),
        ("slo-scheduler", "cannot be replayed"),
        ("least-loaded --kind admission", "does not implement admission"),
        ("least-loaded --policy-param routing.nothere=1", "no parameter"),
        ("prefix-then-load --policy-param routing.cache=11", "from 0 to 10"),
        ("prefix-then-load --policy-param admission.cache=1", "no decisions of admission"),
        ("least-loaded --limit x", "--limit"),
    ] {
        let message = recorded.replay(policy).refused();
        assert!(message.contains(part), "{policy}: {message}");
    }
    let count = "\"count\":2";
    let no_admission: String = whole
        .lines()
        .filter(|line| !line.contains("\"admission\",\"request\""))
        .map(|line| format!("{line}\n"))
        .collect();
    let lines = no_admission.lines().count() - 1;
    let end = whole.lines().last().expect("an end").to_owned();
    let no_admission = no_admission.replace(&end, &format!("{{\"kind\":\"end\",\"lines\":{lines}}}"));
    for (content, part) in [
        (String::new(), "empty"),
        ("{}\n".to_owned(), "not a decision trace"),
        (whole.replacen(count, "\"count\":4000000000", 1), "instances"),
        (whole.replacen("\"block_size\":16", "\"block_size\":0", 1), "`block_size` is 0"),
        (no_admission, "no line before admits it"),
    ] {
        recorded.0.write("t.jsonl", content);
        let message = recorded.replay("round-robin").refused();
        assert!(message.contains(part), "{part}: {message}");
    }
    let missing = blis!("plugin replay least-loaded nothere.jsonl").refused();
    assert!(missing.contains("nothere.jsonl"), "{missing}");
}

#[test]
fn a_failing_decision_is_located() {
    let recorded = RecordedTrace::new(LEAST_LOADED);
    recorded.0.write("late.rhai", "fn route(r, s) { if r.id == 7 { throw \"seven\" } 0 }");
    let message = recorded.replay("@/late.rhai").with_code(1).stderr;
    assert!(message.contains("routing of request 7 at ") && message.contains("seven"), "{message}");
}

/// A policy of several kinds is replayed in all that a trace has; the others are named.
#[test]
fn every_replayable_kind_is_replayed() {
    let recorded = RecordedTrace::new(LEAST_LOADED);
    let script = format!("fn admit(r, s) {{ true }}\n{SCRIPT}\nfn priority(r) {{ 0 }}\nfn rank(r, q) {{ 0 }}\n");
    let file = recorded.0.join("several.rhai");
    fs::write(&file, script).expect("scratch");
    let (file, admits) = (file.display(), "which `several` reads for admission");
    let refused = recorded.replay("@/several.rhai").with_code(2).stderr;
    assert!(refused.contains(admits) && refused.contains("`--kind routing`"), "{refused}");
    recorded.record("t.jsonl", &format!("--admission-policy {file} --routing-policy {file}"));
    let replay = recorded.json("@/several.rhai");
    let kinds = replay["kinds"].as_array().expect("a list");
    assert_eq!(kinds.iter().map(|kind| &kind["kind"]).collect::<Vec<_>>(), ["admission", "routing"]);
    assert!(kinds.iter().all(|kind| kind["decisions"] == 60), "{kinds:?}");
    assert_eq!(replay["not_replayable"], serde_json::json!(["priority", "scheduling"]));
    let text = recorded.replay("@/several.rhai --output text").done().stdout;
    assert!(text.contains("not replayed: priority, scheduling; lines of a trace hold everything"), "{text}");
}
