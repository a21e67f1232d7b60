//! Wrong inputs whose hint was once absurd: each has the right one, or works.

use crate::macros::{Scratch, blis, root};

const RUN: &str = "run --model qwen/qwen3-14b --num-requests 5";

/// The message about `line`, which is refused.
fn message(line: &str) -> String {
    blis!(line).refused()
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
fn a_kv_cache_larger_than_the_gpu_is_a_warning() {
    let ended = blis!(format!("{RUN} --kv-cache-memory-bytes 90000000000")).done();
    assert!(ended.stderr.contains("of KV cache exceed the 79.2 GiB of a GPU: no server starts so"), "{}", ended.stderr);
}

/// Each decoding request of a model with states needs a page: vLLM 0.33 does not start with more requests than pages.
#[test]
fn more_requests_than_states_do_not_start() {
    let hybrid = "run --model qwen/qwen3.5-27b --hardware H100 --tp 1 --num-requests 5";
    let message = message(&format!("{hybrid} --max-num-seqs 1024"));
    assert!(
        message.contains("vLLM would not start: max_num_seqs (1024) exceeds available Mamba cache blocks ("),
        "{message}"
    );
    assert!(message.contains("hint: give `--max-num-seqs "), "{message}");
    let by_default = blis!(hybrid).done();
    assert!(
        by_default.stderr.contains("vLLM would not start with its default of max_num_seqs"),
        "{}",
        by_default.stderr
    );
    let eager = blis!(format!("{hybrid} --max-num-seqs 1024 --enforce-eager")).done();
    assert!(!eager.stderr.contains("Mamba"), "without CUDA graphs vLLM starts: {}", eager.stderr);
}

#[test]
fn a_cpu_tier_knows_no_groups() {
    let document = blis!("run --model qwen/qwen3.5-27b --max-num-seqs 64 --kv-offloading-size 10 --num-requests 5");
    let notes = document.whole_json()["run"]["notes"].to_string();
    assert!(notes.contains("the CPU tier knows no KV groups: blocks of equal layers are simulated"), "{notes}");
}

#[test]
fn an_unknown_plugin_has_a_short_hint() {
    let message = message("plugin bench nothere");
    assert!(message.starts_with("error: unknown plugin: `nothere`\nhint: "), "{message}");
    assert!(message.lines().all(|line| line.chars().count() <= 160), "{message}");
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
        message.starts_with("error: `--trace-header` needs `--trace-data`\nhint: a recorded trace has two files"),
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

/// Inputs as users of vLLM, its benchmarks and llm-d would give them: the command, and a part of the message.
const WRONG: &[(&str, &str)] = &[
    // Flags of benchmarks, and values in their way.
    ("run --model qwen/qwen3-14b --endpoint-type chat", "hint: nothing is sent to a server"),
    ("run --model qwen/qwen3-14b --temperature 0", "hint: lengths are simulated, not texts"),
    ("run --model qwen/qwen3-14b --rate-type sweep", "hint: `--arrival-process` names the process"),
    ("run --model qwen/qwen3-14b --measurement-interval 5000", "hint: `--horizon 10s` ends a run"),
    ("run --model qwen/qwen3-14b --device cuda", "hint: `--hardware` names the GPU"),
    ("run --model qwen/qwen3-14b --request-rate inf", "hint: all requests at once: `--rate 1000000`"),
    ("run --model qwen/qwen3-14b --workload sharegpt", "`--workload-trace FILE` reads recorded requests"),
    ("run --model qwen/qwen3-14b --rate 0", "must be a number of requests per second from 0.000001"),
    ("run --model qwen/qwen3-14b --max-model-len 8k", "hint: write the number: 8000"),
    ("run --model qwen/qwen3-14b --max-num-batched-tokens 8K", "hint: write the number: 8192"),
    (
        "run --model qwen/qwen3-14b --prefill-instances 1 --decode-instances 1 --group tp=2",
        "hint: give each group its `role=`",
    ),
    (
        "run --model meta-llama/llama-3.1-8b-instruct --latency-model blackbox --parity blis --gpu-memory-utilization 0.5",
        "hint: leave out `--gpu-memory-utilization`",
    ),
    ("run --model qwen/qwen3-14b --gpu-memory-utilization 90", "hint: it is a share: 0.9 for 90 %"),
    ("run --model qwen/qwen3-14b --gpu-memory-utilization 90%", "hint: it is a share: 0.9 for 90 %"),
    ("run --model qwen/qwen3-14b --tp 3", "hint: choose a `--tensor-parallel-size` that divides 40"),
    ("run --model qwen/qwen3-14b --data-parallel-size 2", "are `--num-instances 2`"),
    // Models and commands.
    (
        "run --model gpt-4",
        "hint: `blis models` lists the built-in ones; of another model, put the Hugging Face `config.json`",
    ),
    ("run --model qwen3-14", "hint: did you mean `qwen3-14b`? `blis models` lists"),
    ("run", "error: `--model <NAME>` is missing\nhint: `blis models` lists the built-in models"),
    ("evaluate", "is missing\nhint: name a script, a component or a built-in policy"),
    ("evaluate weighted --stage test", "hint: `blis evaluate held-out` runs candidates on the held-out split"),
    ("evaluate wieghted", "there is no file and no built-in policy `wieghted`\nhint: did you mean `weighted`?"),
    ("evaluate README.md", "is a file of data, not a policy\nhint: a policy is a Rhai script (.rhai)"),
    ("evaluate policies/mixed.yaml", "is a file of settings, not a policy"),
    ("evaluate weighted --suite chta", "hint: did you mean `chat`?"),
    ("serve --model qwen/qwen3-14b", "hint: `blis run --model NAME` simulates a server"),
    ("--model qwen/qwen3-14b", "hint: `blis run --model NAME` simulates a server"),
    ("qwen/qwen3-14b", "hint: `blis run --model qwen/qwen3-14b` simulates a server"),
    ("bench serve", "error: unknown command `bench`\nhint: `blis run` simulates what `vllm bench serve` measures"),
    ("trace show x", "hint: `blis decisions` analyses recorded decisions"),
    ("simulate", "hint: `blis run` simulates a workload"),
    ("evalute weighted", "error: unknown command `evalute`\nhint: did you mean `evaluate`?"),
    ("nothing", "error: unknown command `nothing`\nhint: `blis help` lists the commands"),
    // Policies of llm-d.
    (
        "run --model qwen/qwen3-14b --num-instances 2 --routing-policy precise-prefix-cache-scorer",
        "hint: it is a scorer of `weighted`: `--routing-policy weighted --routing-scorers precise-prefix-cache:1`",
    ),
    (
        "run --model qwen/qwen3-14b --num-instances 2 --routing-policy max-score-picker",
        "hint: `weighted` picks the instance with the highest score",
    ),
    ("run --model qwen/qwen3-14b --num-instances 2 --routing-policy random", "hint: built in are round-robin, "),
    (
        "run --model qwen/qwen3-14b --num-instances 2 --routing-scorers load-aware-scorer:1",
        "unknown scorer `load-aware-scorer`; did you mean `load-aware`?",
    ),
    (
        "run --model qwen/qwen3-14b --num-instances 2 --routing-policy weighted --routing-scorers queue:2",
        "error: unknown scorer `queue`\nhint: did you mean `queue-depth`?",
    ),
    // The wrong kind of file.
    (
        "run --model qwen/qwen3-14b --num-instances 2 --routing-policy policies/slo-tiers.yaml",
        "hint: `--policy-config FILE`",
    ),
    (
        "run --model qwen/qwen3-14b --num-instances 2 --routing-policy ./policies",
        "a folder, not a plugin\nhint: name a file in it",
    ),
    (
        "run --model qwen/qwen3-14b --num-instances 2 --routing-policy examples/fifty_clients.py",
        "hint: policies are Rhai scripts",
    ),
    ("plugin check policies", "hint: `policies` is a folder: name a file in it"),
    ("run --model qwen/qwen3-14b --policy-config policies/prefix-then-load.rhai", "`--routing-policy FILE`"),
    ("run --model qwen/qwen3-14b --policy-config policies", "`policies` is a folder\nhint: name a file in it"),
    (
        "run --model qwen/qwen3-14b --workload-spec examples/replay-a-trace/chat.csv",
        "hint: `--workload-trace FILE` reads",
    ),
    (
        "run --model qwen/qwen3-14b --workload-trace examples/closed-loop/chat.yaml",
        "hint: `--workload-spec FILE` reads",
    ),
    ("decisions show docs/run.schema.json", "not a decision trace: it starts with `{`"),
];

#[test]
fn mistakes_of_users_of_other_programs_have_a_hint() {
    let wrong: Vec<String> = WRONG
        .iter()
        .map(|(line, expected)| (line, expected, message(line)))
        .filter(|(_, expected, message)| !message.contains(*expected))
        .map(|(line, expected, message)| format!("blis {line}\n{message}expected: {expected}\n"))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn empty_files_are_named_as_empty() {
    let folder = Scratch::new();
    for (name, flag, expected) in [
        ("empty.yaml", "run --policy-config", "the bundle is empty"),
        ("spec.yaml", "run --workload-spec", "the specification is empty"),
        ("trace.csv", "run --workload-trace", "no requests"),
        ("header.yaml", "replay --trace-data examples/policy-bundle/trace.csv --trace-header", "the header is empty"),
        ("policy.rhai", "run --num-instances 2 --routing-policy", "none of the functions that policies are made of"),
    ] {
        let file = folder.write(name, "");
        let message = message(&format!("{flag} {} --model qwen/qwen3-14b", file.display()));
        assert!(message.contains(expected), "{flag}: {message}");
    }
}

#[test]
fn flags_of_genai_perf_are_aliases() {
    let run = |flags: &str| blis!(format!("run --model qwen/qwen3-14b --seed 7 {flags}")).done().stdout;
    assert_eq!(
        run("--request-count 5 --synthetic-input-tokens-mean 300 --osl 20"),
        run("--num-requests 5 --prompt-tokens 300 --output-tokens 20")
    );
}
