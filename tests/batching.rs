//! Batching policies: that of vLLM changes nothing, a rule gives the same results in every technology, and no policy stops a service.

use serde_json::Value;

use crate::macros::{Scratch, blis};

const SERVICE: &str = "run --model llama-3.1-8b-instruct --tp 1 --total-kv-blocks 600 --max-num-seqs 24 --num-requests 150 --rate 40 \
                       --num-instances 2 --output json";

/// The results of a run with `flags`, without the settings and what names the policies.
fn results(flags: &str) -> Value {
    let mut document: Value = serde_json::from_str(&blis!(SERVICE, flags).done().stdout).expect("JSON");
    let all = document.as_object_mut().expect("an object");
    all.retain(|key, _| !["run", "plugins", "policies", "settings"].contains(&key.as_str()));
    document
}

#[test]
fn the_policy_of_vllm_changes_nothing() {
    let scratch = Scratch::new();
    let script = scratch.write("unlimited.rhai", "fn budget(v) { #{} }\n");
    for more in ["", "--seed 7 --scheduler sjf --prefill-schedule-interval 3", "--simulation plain"] {
        let usual = results(more);
        assert_eq!(results(&format!("{more} --batching-policy vllm")), usual, "{more}");
        assert_eq!(results(&format!("{more} --batching-policy {}", script.display())), usual, "{more}");
    }
}

#[test]
fn a_rule_is_the_same_in_every_technology_and_engine() {
    let scratch = Scratch::new();
    let sarathi = scratch.write(
        "s.rhai",
        "// @param tokens 512 1 1e6 tokens\nfn budget(v) { #{ prefill_tokens: max(tokens - v.decoding, 0) } }\n",
    );
    let ratio = "// @param ratio 0.7 0 1 share\n// @param tokens 256 0 1e6 tokens\n\
                 fn budget(v) { #{ reserve: ceil(v.decoding * ratio * tokens / v.block_size) } }\n";
    let ratio = scratch.write("r.rhai", ratio);
    let usual = results("");
    for (name, script, values) in [("sarathi", sarathi, "tokens=128"), ("sglang-ratio", ratio, "ratio=0.9")] {
        let flags = |policy: &str| format!("--batching-policy {policy} --policy-param batching.{values}");
        let built_in = results(&flags(name));
        assert_ne!(built_in, usual, "{name} has an effect");
        assert_eq!(results(&flags(&script.display().to_string())), built_in, "{name}");
        assert_eq!(results(&format!("{} --simulation plain", flags(name))), built_in, "{name}");
    }
}

#[test]
fn no_budget_stops_a_service_and_bad_ones_are_refused() {
    let scratch = Scratch::new();
    for budget in [
        "prefill_tokens: 0",
        "prefill_requests: 0",
        "reserve: 1e9",
        "prefill_tokens: 0, prefill_requests: 0, reserve: 1e9",
    ] {
        let script = scratch.write("none.rhai", format!("fn budget(v) {{ #{{ {budget} }} }}\n"));
        let document = results(&format!("--batching-policy {} --timeout -1", script.display()));
        assert_eq!(document["completed_requests"], 150, "{budget}");
    }
    for (source, says) in [
        ("fn budget(v) { #{ prefill_token: 3 } }", "there is no field `prefill_token`"),
        ("fn budget(v) { 3 }", "it must return an object map"),
        ("fn budget(v) { #{ reserve: -1 } }", "it must be at least 0"),
        ("fn budget(v) { #{ prefill_tokens: 0.0 / 0.0 } }", "NaN"),
        ("fn budget(v) { v.queue }", "queue"),
    ] {
        let script = scratch.write("bad.rhai", source);
        let ended = blis!(SERVICE, format!("--batching-policy {}", script.display()));
        assert!(ended.code != Some(0) && ended.stderr.contains(says), "{source}: {}", ended.stderr);
    }
    let refused = blis!(SERVICE, "--batching-policy sarathi --parity blis");
    assert!(refused.code != Some(0) && refused.stderr.contains("BLIS has none"), "{}", refused.stderr);
}
