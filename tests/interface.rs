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
