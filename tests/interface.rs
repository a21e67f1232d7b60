//! Versions of the interface of plugins: what was built for an earlier one runs as it did.

use crate::macros::blis;

/// A component of version 1.0: `plugins/weighted-prefix` of commit fa7d218d, as `policies/rust-weighted-prefix.wasm` was
/// committed there.
const KEPT: &str = "tests/interface/weighted-prefix-1.0.wasm";

const RUN: &str = "run --model meta-llama/llama-3.1-8b-instruct --num-instances 4 --rate 30 --num-requests 300 \
    --prompt-tokens 800 --prefix-tokens 400 --output-tokens 60 --seed 5 --total-kv-blocks 900 --output json";

#[test]
fn the_kept_component_is_of_the_first_version() {
    let bytes = std::fs::read(format!("{}/../{KEPT}", env!("CARGO_MANIFEST_DIR"))).expect("it is there");
    let has = |text: &str| bytes.windows(text.len()).any(|window| window == text.as_bytes());
    assert!(has("blis:policy/routing@1.0.0") && !has("@1.1.0"));
}

#[test]
fn a_component_of_the_first_version_decides_as_before() {
    let of = |policy: &str| {
        let document = blis!(format!("{RUN} --routing-policy {policy}")).done().stdout;
        let mut document: serde_json::Value = serde_json::from_str(&document).expect("JSON");
        let run = document.as_object_mut().expect("an object");
        // What names the policy.
        for key in ["run", "plugins"] {
            run.remove(key);
        }
        assert!(run.contains_key("e2e_mean_ms"), "{run:?}");
        document
    };
    let kept = of(KEPT);
    assert_eq!(kept, of("weighted"));
    assert_ne!(kept, of("round-robin"), "it has an effect");
}

#[test]
fn a_component_of_the_first_version_passes_the_checks() {
    let checked = blis!(format!("plugin check {KEPT} --output text")).done().stdout;
    assert!(checked.contains("outputs are in range"), "{checked}");
}

/// A component of each version of the interface that was released, with what it decided in [`RUN`] when it was kept. The ones of 1.1.0
/// are from before and after kinds were added to it: additions change nothing for them.
const FIXTURES: [&str; 4] =
    ["weighted-prefix-1.0", "c-least-loaded-1.0.0", "c-least-loaded-1.1.0", "c-least-loaded-1.1.0-drain"];

/// The instance of each request, a digit each, by fixture.
fn decisions(fixture: &str) -> String {
    let dir = crate::macros::Scratch::new();
    let trace = dir.join("trace.jsonl");
    let run = format!("{RUN} --routing-policy tests/interface/{fixture}.wasm --trace-level decisions --trace-path");
    blis!(run, trace).done();
    let text = std::fs::read_to_string(&trace).expect("a trace");
    let lines = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON"));
    lines.filter(|line| line["kind"] == "routing").map(|line| line["instance"].to_string()).collect()
}

/// Every build loads and runs them, and they decide what they decided. `BLIS_RECORD=1` records new ones, never others.
#[test]
fn kept_components_decide_as_recorded() {
    let path = format!("{}/../tests/interface/decisions.txt", env!("CARGO_MANIFEST_DIR"));
    let found: String = FIXTURES.iter().map(|fixture| format!("{fixture} {}\n", decisions(fixture))).collect();
    if std::env::var_os("BLIS_RECORD").is_some() {
        std::fs::write(&path, &found).expect("the repository");
    }
    let recorded = std::fs::read_to_string(&path).expect("recorded decisions");
    assert_eq!(found, recorded);
    for line in found.lines() {
        let (fixture, digits) = line.split_once(' ').expect("two words");
        assert_eq!(digits.len(), 300, "{fixture}");
    }
}

/// A component of an interface that called itself 1.0.0 before that was frozen is not "missing" something: the versions do not fit.
#[test]
fn version_skew_is_named() {
    let ended = blis!("plugin check tests/interface/c-least-loaded-1.0.0-draft.wasm --output json").with_code(1);
    let document: serde_json::Value = serde_json::from_str(&ended.stdout).expect("JSON");
    let detail = document[0]["checks"][0]["detail"].as_str().expect("a reason").to_owned();
    for part in ["[version-skew]", "speaks blis:policy 1.0.0", "this host 1.1.0", "rebuild it with sdk 1.1.0"] {
        assert!(detail.contains(part), "{part}: {detail}");
    }
}
