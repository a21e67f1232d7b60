//! `blis plugin test` from outside: the shipped fixtures pass, seeded faults are found in every technology, and files
//! that are no fixtures are refused with their line.

use std::path::Path;

use serde_json::Value;

use crate::macros::{Ended, Scratch, assert_fits, blis};
use crate::plugins::compiled;

const KINDS: [&str; 6] = ["admission", "routing", "priority", "scheduling", "preemption", "latency"];

fn tests(ended: &Ended) -> Value {
    serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {}{}", ended.stdout, ended.stderr))
}

/// The names of the failed tests, with what they got.
fn failed(document: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let rows = document["tests"].as_array().expect("tests").iter();
    rows.filter(|row| row["passed"] == false).map(|row| (text(&row["name"]), text(&row["got"]))).collect()
}

/// Two instances, of which the second is idle: every reasonable policy takes it.
const IDLE_SECOND: &str = "schema: 1\ncases:\n  - name: the idle one\n    kind: routing\n    instances: \
                           [{queue_depth: 3, batch_size: 2, in_flight: 5}, {}]\n    expect: {instance: 1}\n";

fn wrong() -> String {
    IDLE_SECOND.replace("instance: 1", "instance: 0")
}

#[test]
fn the_shipped_fixtures_pass() {
    let names = ["prefix-then-load", "rhai-least-loaded", "shed-late", "shortest-with-aging"];
    for name in names.into_iter().chain(["expected-reuse", "load-or-compute"]) {
        let document = blis!("plugin", "test", name).json();
        assert_eq!(document["passed"], true, "{document}");
        assert!(document["tests"].as_array().is_some_and(|tests| tests.len() >= 3), "{document}");
        let file = format!("policies/{name}.rhai");
        assert_eq!((document["file"].as_str(), document["technology"].as_str()), (Some(&*file), Some("script")));
    }
}

/// They are part of the program: no file is needed where it runs.
#[test]
fn embedded_policies_have_their_fixtures() {
    let folder = Scratch::new();
    let document = blis!(in &folder, "plugin", "test", "shed-late").json();
    assert_eq!(document["tests"][0]["file"], "policies/shed-late.test.yaml");
}

/// The same decisions in all technologies, and the same message about a wrong one.
#[test]
fn a_wrong_choice_fails_in_every_technology() {
    let folder = Scratch::new();
    folder.write("right.yaml", IDLE_SECOND);
    folder.write("wrong.yaml", wrong());
    let library = folder.join("router.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../plugins/c-least-loaded/policy.c");
    let native = compiled(&source, None, &library).then_some("router.so --allow-native");
    let plugins = ["rhai-least-loaded", "rust-least-loaded", "c-least-loaded", "least-loaded"];
    for plugin in plugins.into_iter().chain(native) {
        let (plugin, flags) = plugin.split_once(' ').unwrap_or((plugin, ""));
        let path = if flags.is_empty() { plugin.to_owned() } else { library.display().to_string() };
        let test = |fixture: &str| blis!(in &folder, "plugin", "test", [path.as_str(), fixture], flags);
        assert_eq!(failed(&test("right.yaml").json()), [], "{plugin}");
        let ended = test("wrong.yaml").with_code(1);
        let document = tests(&ended);
        let row = &document["tests"][0];
        assert_eq!((&row["expected"], &row["line"], &row["column"]), (&"instance 0".into(), &3.into(), &11.into()));
        assert!(row["got"].as_str().is_some_and(|got| got.starts_with("instance 1")), "{plugin}: {row}");
        assert!(ended.stderr.contains("1 of 1 tests failed"), "{}", ended.stderr);
    }
}

/// A parameter that turns the decision round.
#[test]
fn parameters_reach_the_plugin() {
    let folder = Scratch::new();
    let case = "schema: 1\ncases:\n  - {name: a, kind: routing, parameters: {cache: 0}, request: {input_tokens: 320}, \
                instances: [{cached_blocks: 20, queue_depth: 5}, {}], expect: {instance: 0}}\n";
    folder.write("zero.yaml", case);
    folder.write("usual.yaml", case.replace("parameters: {cache: 0}, ", ""));
    let policy = crate::macros::root().join("policies/prefix-then-load.rhai");
    let test = |fixture: &str| blis!(in &folder, "plugin", "test", [policy.to_str().expect("UTF-8"), fixture]);
    assert_eq!(failed(&test("usual.yaml").json()), []);
    let got = failed(&tests(&test("zero.yaml").with_code(1)));
    assert_eq!(got, [("a".to_owned(), "instance 1, scores 1, 2".to_owned())]);
}

/// A case that holds for some draws among equally good instances fails.
#[test]
fn the_luck_of_a_draw_is_no_pass() {
    let folder = Scratch::new();
    let fixture =
        "schema: 1\ncases:\n  - {name: a, kind: routing, instances: [{}, {}, {}], expect: {one_of: [0, 2]}}\n";
    folder.write("f.yaml", fixture);
    for plugin in ["rhai-least-loaded", "rust-least-loaded", "least-loaded"] {
        let got = failed(&tests(&blis!(in &folder, "plugin", "test", [plugin, "f.yaml"]).with_code(1)));
        assert!(got[0].1.starts_with("instance 0, 1 or 2, by the draw"), "{plugin}: {got:?}");
    }
}

/// Every template passes its own cases; in C also as a native library.
#[test]
fn new_policies_pass_their_cases() {
    let folder = Scratch::new();
    for kind in KINDS {
        let new = |name: &str, lang: &str| {
            blis!(in &folder, "plugin", format!("new {name} --kind {kind} --lang {lang} --dir .")).done();
        };
        new(&format!("r-{kind}"), "rhai");
        let document = blis!(in &folder, "plugin", format!("test r-{kind}.rhai")).json();
        assert_eq!(document["tests"].as_array().map(Vec::len), Some(3), "{document}");
        new(&format!("c-{kind}"), "c");
        new(&format!("rs-{kind}"), "rust");
        let library = folder.join(format!("c-{kind}/c-{kind}.so"));
        if compiled(&folder.join(format!("c-{kind}/policy.c")), None, &library) {
            blis!(in &folder, "plugin", format!("test ./c-{kind}/c-{kind}.so --allow-native")).done();
        }
        let fixture = folder.read(&format!("rs-{kind}/rs-{kind}.test.yaml"));
        assert!(!fixture.contains('@') && fixture.contains("blis plugin test"), "{fixture}");
    }
}

/// A script that routes, with a state and further `functions`.
fn script(functions: &str) -> String {
    format!(
        "fn init() {{ #{{ turns: 0 }} }}\n\
         fn route(r, s) {{ this.turns += 1; -s.queue_depth - r.input_tokens * s.kv_utilization }}\n{functions}\n"
    )
}

#[test]
fn test_functions_of_scripts_are_run() {
    let folder = Scratch::new();
    let passing = "fn two() { [#{queue_depth: 3}, #{queue_depth: 1, kv_utilization: 0.5}] }
fn test_scores() {
    let scores = this.route(request(#{input_tokens: 10}), cluster(two()));
    assert(scores[0] == -3 && scores[1] == -6, `scores ${scores}`);
    this.turns == 1
}
fn test_state_is_new() { assert(this.turns == 0, \"a new state\"); }
fn test_views() {
    let r = request(#{slo_class: \"batch\", deadline: 9, blocks: [4, 5], input_tokens: 40, tenant_in_flight: 7});
    assert(r.slo_class == \"batch\" && r.deadline == 9 && r.shared_blocks == 2 && r.tenant_in_flight == 7, \"request\");
    assert(r.max_output_tokens == () && r.tenant == \"\" && r.blocks[1] == 5, \"defaults\");
    let s = cluster(two(), #{now: 5, load_staleness: 6});
    assert(s.now == 5 && s.load_staleness == 6 && s[1].free_kv_blocks == 10000 && s.effective_load[0] == 3, \"cluster\");
    assert(queued(#{turn: -2, preemptions: 1}).turn == -2, \"queued\");
    let b = batch([#{kv_blocks: 4}, #{slo_class: \"batch\"}], #{requester: 0});
    assert(b.len == 2 && b.kv_blocks[0] == 4 && b.slo_class[1] == \"batch\" && b.requester == 0, \"batch\");
    step(#{prefill_tokens: 8, decode_requests: 2}).tokens == 10
}";
    folder.write("good.rhai", script(passing));
    let document = blis!(in &folder, "plugin test good.rhai").json();
    let names: Vec<_> = document["tests"].as_array().expect("tests").iter().map(|row| &row["name"]).collect();
    assert_eq!(names, ["test_scores", "test_state_is_new", "test_views"], "{document}");
    let failing = "fn test_false() { false }
fn test_assert() { assert(1 > 2, \"one is more\"); }
fn test_throw() { throw \"no\"; }
fn test_number() { 7 }
fn test_field() { request(#{input_token: 3}) }
fn test_value() { cluster([#{kv_utilization: 3}]) }
fn test_endless() { loop { } }
fn test_good() { true }";
    folder.write("bad.rhai", script(failing));
    let got = failed(&tests(&blis!(in &folder, "plugin test bad.rhai").with_code(1)));
    let parts = ["returned false", "one is more", "it threw: no", "7", "did you mean `input_tokens`?", "from 0 to 1"];
    assert_eq!(got.len(), 7, "{got:?}");
    for ((name, message), part) in got.iter().zip(parts) {
        assert!(message.contains(part) && message.starts_with("bad.rhai:"), "{name}: {message}");
    }
}

/// What tests have is not in runs, and tests change nothing about runs.
#[test]
fn test_helpers_are_not_in_runs() {
    let folder = Scratch::new();
    for (functions, part) in [
        ("fn admit(r, s) { assert(true, \"x\"); true }", "`assert` is available to test functions only"),
        ("fn admit(r, s) { test_a() }\nfn test_a() { true }", "`test_a` is a test"),
        ("fn test_a(x) { request(#{}) }", "`request` is available to test functions only"),
        ("fn test_a() { requst(#{}) }", "there is no function `requst`"),
    ] {
        folder.write("f.rhai", script(functions));
        let message = blis!(in &folder, "plugin test f.rhai").refused();
        assert!(message.contains(part), "{message}");
    }
    folder.write(
        "f.rhai",
        "fn route(r, s) { -s.queue_depth }\nfn test_a() { s_of(cluster([#{}])) }\nfn s_of(s) { true }\n",
    );
    let (before, after) = (blis!(in &folder, "plugin check f.rhai --no-cost").json(), folder.read("f.rhai"));
    assert_eq!(before[0]["passed"], true, "{after}");
}

#[test]
fn files_that_are_no_fixtures_are_refused() {
    let folder = Scratch::new();
    let case = |rest: &str| format!("schema: 1\ncases:\n  - {{name: a, kind: routing, {rest}}}\n");
    let fixtures = [
        (String::new(), "f.yaml:1:1: the fixture file is empty"),
        ("schema: 2\ncases: []\n".to_owned(), "f.yaml:1:9: fixtures of schema `2`"),
        ("schema: 1\ncases: []\n".to_owned(), "f.yaml:2:8: there are no cases"),
        ("schema: 1\ncase: []\n".to_owned(), "f.yaml:2:1: unknown key `case`"),
        ("schema: 1\ncases: 7\n".to_owned(), "a list is expected"),
        ("schema: [\n".to_owned(), "f.yaml:"),
        (case("instances: [{}], expect: {}"), "nothing is expected"),
        (case("expect: {instance: 0}"), "needs `instances`"),
        (case("instances: [{}], expect: {instance: 1}"), "`instance` is `1`"),
        (case("instances: [{}], expect: {victim: 0}"), "`victim` does not belong to a case of routing"),
        (case("instances: [{}], batch: [], expect: {instance: 0}"), "`batch` does not belong"),
        (case("instances: [{queue_dept: 1}], expect: {instance: 0}"), "hint: did you mean `queue_depth`?"),
        (case("instances: [{queue_depth: -1}], expect: {instance: 0}"), "`queue_depth` is `-1`"),
        (case("instances: [{effective_load: 1}], expect: {instance: 0}"), "cannot be set"),
        (case("instances: [{kv_utilization: .nan}], expect: {instance: 0}"), "`kv_utilization` is"),
        (case("instances: [{}], request: {prompt_blocks: 3, input_tokens: 9}, expect: {instance: 0}"), "0 full blocks"),
        (case("instances: [{}], request: {shared_blocks: 3}, expect: {instance: 0}"), "3 blocks are shared"),
        (case("instances: [{}], request: {id: [1]}, expect: {instance: 0}"), "`id` is a list"),
        (case("instances: [{}], parameters: {cash: 1}, expect: {instance: 0}"), "no parameter `cash`"),
        (case("instances: [{}], parameters: {cache: 11}, expect: {instance: 0}"), "`cache` is 11"),
        (case("instances: [{}], expect: {scores: [1, 2]}"), "2 scores for 1 instances"),
        ("schema: 1\ncases: [{name: a, kind: routng, expect: {}}]\n".to_owned(), "hint: did you mean `routing`?"),
        (
            "schema: 1\ncases: [{name: a, kind: priority, expect: {priority: 1}}]\n".to_owned(),
            "does not implement priority",
        ),
        (
            "schema: 1\ncases: [{name: a, kind: scheduling, queue: [{name: x}, {}], expect: {order: [x]}}]\n"
                .to_owned(),
            "1 of the 2 requests",
        ),
        (
            "schema: 1\ncases: [{name: a, kind: scheduling, queue: [{name: x}, {}], expect: {order: [x, 7]}}]\n"
                .to_owned(),
            "no request `7`",
        ),
    ];
    for (fixture, part) in fixtures {
        folder.write("f.yaml", &fixture);
        let message = blis!(in &folder, "plugin test prefix-then-load f.yaml").refused();
        assert!(message.contains(part) && message.contains("hint: "), "{fixture}\n{message}");
        assert!(message.contains("f.yaml:"), "{fixture}\n{message}");
    }
    folder.write("f.yaml", [0xff, 0xfe, 0x00]);
    blis!(in &folder, "plugin test prefix-then-load f.yaml").refused();
    blis!(in &folder, "plugin test prefix-then-load missing.yaml").refused();
    blis!(in &folder, "plugin test prefix-then-load .").refused();
}

#[test]
fn a_policy_without_tests_is_refused() {
    let folder = Scratch::new();
    folder.write("a.rhai", "fn route(r, s) { -s.queue_depth }");
    let message = blis!(in &folder, "plugin test a.rhai").refused();
    assert!(message.contains("there are no tests of `a.rhai`") && message.contains("a.test.yaml"), "{message}");
    let message = blis!(in &folder, "plugin test weighted").refused();
    assert!(message.contains("name a fixture file"), "{message}");
}

#[test]
fn the_text_shows_expected_and_got() {
    let folder = Scratch::new();
    folder.write(
        "f.yaml",
        format!("{}  - {{name: b, kind: routing, instances: [{{}}], expect: {{instance: 0}}}}\n", wrong()),
    );
    let ended = blis!(in &folder, "plugin test rhai-least-loaded f.yaml --output text").with_code(1);
    assert_fits("plugin test", &ended.stdout);
    insta::assert_snapshot!(ended.stdout, @r"
    policies/rhai-least-loaded.rhai: script, for routing

    f.yaml
    ✗ the idle one
        f.yaml:3:11
        expected instance 0
        got      instance 1, scores -10, -0
    ✓ b

    1 of 2 tests passed
    ");
}
