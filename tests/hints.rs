//! Wrong inputs whose hint was once absurd: each has the right one, or works.

use crate::macros::{Scratch, blis, root};

const RUN: &str = "run --model qwen/qwen3-14b --num-requests 5";

/// The message about `line`, which is refused.
fn message(line: &str) -> String {
    blis!(line).refused()
}

#[test]
fn flow_control_is_not_simulated_yet() {
    assert_eq!(
        message(&format!("{RUN} --flow-control")),
        "error: `--flow-control` is not simulated yet: flow control, the queue of the gateway\nhint: leave it out\n"
    );
}

#[test]
fn speculative_decoding_is_not_simulated_yet() {
    let message = message(&format!("{RUN} --speculative-config x"));
    assert!(
        message.starts_with("error: `--speculative-config` is not simulated yet: speculative decoding"),
        "{message}"
    );
}

#[test]
fn request_rate_is_rate() {
    let rate = |flag: &str| blis!(format!("{RUN} --num-instances 2 {flag} 10")).done().stdout;
    assert_eq!(rate("--request-rate"), rate("--rate"));
}

#[test]
fn too_little_memory_is_a_question_of_utilization() {
    let message = message(&format!("{RUN} --gpu-memory-utilization 0.01"));
    assert!(message.contains("hint: raise `--gpu-memory-utilization`"), "{message}");
}

#[test]
fn an_unknown_plugin_has_a_short_hint() {
    let message = message("plugin bench nothere");
    assert!(message.starts_with("error: unknown plugin: `nothere`\nhint: "), "{message}");
    assert!(message.lines().all(|line| line.chars().count() <= 160), "{message}");
}

#[test]
fn observe_is_not_there_yet() {
    assert_eq!(
        message("observe"),
        "error: `blis observe` is not there yet: a load generator for a real server\nhint: `blis help` lists what is\n"
    );
}

#[test]
fn completions_are_printed() {
    for shell in ["bash", "zsh", "fish"] {
        assert!(blis!(format!("completions {shell}")).done().stdout.contains("workload"), "{shell}");
    }
    assert!(blis!("completion bash").done().stdout.contains("workload"), "BLIS's name");
}

#[test]
fn a_benchmark_result_is_named_as_one() {
    let folder = Scratch::new();
    let result = r#"{"backend": "vllm", "ttfts": [0.1], "itls": [[0.01]], "input_lens": [10], "output_lens": [2]}"#;
    let file = folder.write("bench.json", result);
    let message = message(&format!("validate {}", file.display()));
    assert!(message.contains("`vllm bench serve`"), "{message}");
}

#[test]
fn null_in_a_model_config_is_named() {
    let folder = Scratch::new();
    let config = std::fs::read_to_string(root().join("model_configs/qwen3-14b/config.json")).expect("it is shipped");
    let line = config.lines().find(|line| line.contains("\"num_hidden_layers\"")).expect("it has layers").to_owned();
    folder.write("config.json", config.replace(&line, "  \"num_hidden_layers\": null,"));
    let message = message(&format!("{RUN} --model-config-folder {}", folder.display()));
    assert!(message.contains("`num_hidden_layers` is null") && message.contains("config.json"), "{message}");
}

#[test]
fn a_future_version_is_no_misspelling() {
    let folder = Scratch::new();
    let spec = std::fs::read_to_string(root().join("examples/workload-spec/mixed.yaml")).expect("it is shipped");
    let version = spec.lines().find(|line| line.starts_with("version:")).expect("a version").to_owned();
    let file = folder.write("spec.yaml", spec.replace(&version, "version: \"7\""));
    let message = message(&format!("{RUN} --workload-spec {}", file.display()));
    assert!(!message.contains("did you mean") && message.contains("versions 1 and 2 are read"), "{message}");
}

#[test]
fn a_target_without_a_class_is_of_every_class() {
    let run = |target: &str| blis!(format!("{RUN} --slo-ttft {target}")).json();
    assert_eq!(run("500ms")["slo_attainment"], run("default=500ms")["slo_attainment"]);
    assert!(run("500ms")["slo_attainment"].is_number());
}

#[test]
fn a_misspelt_field_of_a_script_is_found_before_the_run() {
    let folder = Scratch::new();
    folder.write("typo.rhai", "fn route(r, s) {\n    s.cached_blocks - s.efective_load\n}\n");
    let run = format!("{RUN} --num-instances 2 --routing-policy {}/typo.rhai", folder.display());
    let message = message(&run);
    assert!(message.contains("typo.rhai:2:25") && message.contains("did you mean `effective_load`?"), "{message}");
    assert!(!message.contains(" at 1 s"), "{message}");
}

#[test]
fn a_missing_trace_header_is_named() {
    let message = message("replay --model qwen/qwen3-14b --trace-header nothere");
    assert!(
        message.starts_with("error: cannot read `nothere`: no such file\nhint: a recorded trace has two files"),
        "{message}"
    );
}

#[test]
fn a_trace_level_alone_warns() {
    let output = blis!(format!("{RUN} --trace-level decisions")).done();
    assert!(output.stderr.contains("`--trace-level decisions` has no effect alone"), "{}", output.stderr);
}

#[test]
fn an_empty_model_config_folder_is_refused() {
    let folder = Scratch::new();
    let message = message(&format!("{RUN} --model-config-folder {}", folder.display()));
    assert!(message.contains("no config.json") && message.contains("qwen3-14b/config.json"), "{message}");
}

#[test]
fn a_vllm_image_names_its_version() {
    let run = |version: &str| {
        blis!(format!("run --model qwen/qwen3-14b --num-requests 5 --latency-model blackbox --vllm-version {version}"))
    };
    let (image, plain) = (run("vllm/vllm-openai:v0.8.4"), run("v0.8.4"));
    assert_eq!((image.code, image.stdout.clone()), (plain.code, plain.stdout.clone()));
    assert!(!image.stderr.contains("unknown vLLM version"), "{}", image.stderr);
}
