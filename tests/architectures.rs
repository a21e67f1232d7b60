//! The architecture files of the models of 2024 to 2026, where they are.

use std::fs;
use std::path::Path;

use ::blis_config::{DeploymentArgs, LatencyKind, LoadedModel, parse_model, resolve};
use ::blis_sim::latency::Batch;

use crate::macros::{Scratch, blis, root};
use crate::shared::{read as read_table, shared};

/// Billions of weights in the name or on the model card, all and those that a token uses; the cards of gpt-oss (3.6, 5.1) and
/// MiniMax (10) leave out embeddings of the latter.
const PARAMETERS: [(&str, f64, f64); 30] = [
    ("MiniMaxAI--MiniMax-M2.5", 229.0, 11.0),
    ("Qwen--Qwen3-235B-A22B-FP8", 235.0, 22.0),
    ("Qwen--Qwen3-235B-A22B", 235.0, 22.0),
    ("Qwen--Qwen3-30B-A3B-FP8", 30.5, 3.3),
    ("Qwen--Qwen3-30B-A3B", 30.5, 3.3),
    ("Qwen--Qwen3-32B-FP8", 32.8, 32.8),
    ("Qwen--Qwen3-32B", 32.8, 32.8),
    ("Qwen--Qwen3-8B", 8.2, 8.2),
    ("Qwen--Qwen3-Coder-480B-A35B-Instruct", 480.0, 35.0),
    ("Qwen--Qwen3.5-27B", 27.0, 27.0),
    ("Qwen--Qwen3.5-35B-A3B", 35.0, 3.4),
    ("Qwen--Qwen3.5-397B-A17B", 397.0, 17.0),
    ("deepseek-ai--DeepSeek-R1", 671.0, 37.6),
    ("deepseek-ai--DeepSeek-V3.2", 671.0, 37.6),
    ("deepseek-ai--DeepSeek-V3", 671.0, 37.6),
    ("google--gemma-4-26B-A4B", 25.2, 3.8),
    ("meta-llama--Llama-4-Maverick-17B-128E-Instruct", 400.0, 17.2),
    ("meta-llama--Llama-4-Scout-17B-16E-Instruct", 109.0, 17.2),
    ("meta-llama--Meta-Llama-3.1-405B", 405.0, 405.0),
    ("meta-llama--Meta-Llama-3.1-70B", 70.6, 70.6),
    ("meta-llama--Meta-Llama-3.1-8B", 8.0, 8.0),
    ("mistralai--Mixtral-8x22B-v0.1", 141.0, 39.0),
    ("mistralai--Mixtral-8x7B-v0.1", 46.7, 12.9),
    ("moonshotai--Kimi-K2-Instruct", 1026.0, 32.9),
    ("nvidia--Llama-3.1-70B-Instruct-FP8", 70.6, 70.6),
    ("nvidia--Llama-3_3-Nemotron-Super-49B-v1", 49.9, 49.9),
    ("openai--gpt-oss-120b", 116.8, 5.7),
    ("openai--gpt-oss-20b", 20.9, 4.2),
    ("zai-org--GLM-5", 744.0, 40.0),
    ("deepseek-ai--DeepSeek-V4-Flash", 284.3, 13.8),
];

fn read(path: &Path) -> Result<LoadedModel, String> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let name = name.trim_end_matches(".config.json").rsplit("--").next().unwrap_or_default().to_lowercase();
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    parse_model(&name, path.into(), &text).map_err(|error| error.to_string())
}

/// Every file is read, with the number of weights that its model has.
#[test]
fn files_are_read_with_their_parameters() {
    let Some(folder) = shared("reference/models") else { return };
    let mut wrong = Vec::new();
    for (file, total, active) in PARAMETERS {
        let read = read(&folder.join(format!("{file}.config.json")));
        let model = read.unwrap_or_else(|error| panic!("{file}: {error}"));
        let counted = model.config.parameters();
        let [total_error, active_error] =
            [counted.total / total, counted.active / active].map(|share| 100.0 * (share / 1e9 - 1.0));
        if total_error.abs() > 3.0 || active_error.abs() > 6.0 {
            wrong.push(format!("{file}: {:.1} B, {:.2} B", counted.total / 1e9, counted.active / 1e9));
        }
        let usual = |note: &&String| note.contains("torch_dtype") || note.contains("bits by its name");
        let strange: Vec<_> = model.notes.iter().filter(|note| !usual(note)).chain(&model.warnings).collect();
        assert!(strange.is_empty(), "{file}: {strange:?}");
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    let files = fs::read_dir(&folder).expect("a folder").flatten();
    let configs = files.filter(|file| file.file_name().to_str().is_some_and(|name| name.ends_with(".config.json")));
    assert_eq!(configs.count(), PARAMETERS.len());
}

/// The time of latent attention per token that a decode reads, against the measured modules of DeepSeek-V3 on H100: 128
/// heads on one GPU to 8 on each of 16, batches of 128 requests, between 1024 and 16 384 tokens.
#[test]
fn latent_attention_reads_as_fast_as_measured() {
    let table = "docs/fidelity/kernels/h100_sxm__mla__vllm__0.24.0__mla_generation_module_perf.csv";
    let text = read_table(&root().join(table));
    let columns: Vec<&str> = text.lines().next().expect("a header").split(',').collect();
    let measured_us = |heads: u32, step: u32| {
        let (heads_text, step_text) = (heads.to_string(), step.to_string());
        let wanted = [
            ("mla_dtype", "bfloat16"),
            ("kv_cache_dtype", "bfloat16"),
            ("num_heads", &heads_text),
            ("batch_size", "128"),
            ("step", &step_text),
        ];
        let row = text.lines().find(|line| {
            let fields: Vec<&str> = line.split(',').collect();
            wanted.iter().all(|(column, value)| {
                columns.iter().position(|name| name == column).map(|at| fields[at]) == Some(*value)
            })
        });
        let ms = row.and_then(|row| row.rsplit(',').next()?.parse::<f64>().ok());
        1e3 * ms.unwrap_or_else(|| panic!("{heads} heads, {step} tokens are not in the table"))
    };
    for tensor in [1, 2, 4, 8, 16] {
        let mut beta = vec![0.0; 10];
        beta[2] = 1.0; // attention of decodes, as the GPU's curve has it
        let args = DeploymentArgs {
            tensor_parallel_size: Some(tensor),
            total_kv_blocks: Some(1_000_000),
            latency_model: Some(LatencyKind::Physics),
            alpha_coeffs: Some(vec![0.0; 3]),
            beta_coeffs: Some(beta),
            ..DeploymentArgs::new("deepseek-v3")
        };
        let deployment = resolve(&args).expect("it is built in");
        let step_us = |context: u64| {
            let batch = Batch { decode_requests: 128, decode_context: 128 * context, ..Batch::default() };
            deployment.latency.step_time(&batch).0 as f64
        };
        let simulated = (step_us(16_384) - step_us(1024)) / 61.0;
        let measured = measured_us(128 / tensor, 16_384) - measured_us(128 / tensor, 1024);
        let error = 100.0 * (simulated / measured - 1.0);
        assert!(error.abs() < 6.0, "{} heads: {simulated:.0} µs, measured {measured:.0} ({error:+.1} %)", 128 / tensor);
    }
}

/// Requests of the longest length that the KV cache holds at once, and mean ITL of requests of 16 000 tokens, by a config and the same
/// without what makes its layers differ.
fn capacity_and_itl(name: &str, change: impl Fn(String) -> String) -> [(f64, f64); 2] {
    let text = fs::read_to_string(root().join(format!("model_configs/{name}/config.json"))).expect("it is built in");
    let folder = Scratch::new();
    [text.clone(), change(text)].map(|text| {
        let config = folder.write("config.json", text);
        let config = config.parent().expect("a folder").display().to_string();
        let flags = "--tp 4 --num-requests 40 --rate 5 --prompt-tokens 16000 --prompt-tokens-max 16000 --output-tokens 200 \
                     --max-model-len 32768 --max-num-batched-tokens 2048";
        let run = blis!("run --model", name, "--model-config-folder", config, flags).whole_json();
        let number = |value: &serde_json::Value| value.as_f64().unwrap_or_else(|| panic!("{run}"));
        (number(&run["kv_cache"]["max_concurrency"]), number(&run["itl_mean_ms"]))
    })
}

#[test]
fn windows_save_memory_and_time() {
    let [with, without] = capacity_and_itl("gemma-4-26b-a4b", |text| {
        text.replace("\"sliding_window\": 1024", "\"sliding_window\": 32768")
    });
    assert!(with.0 > 3.0 * without.0, "25 of 30 layers keep 5119 of 32 768 tokens: {with:?} {without:?}");
    assert!(with.1 < 0.95 * without.1, "and read 1024 of 16 000: {with:?} {without:?}");
}

#[test]
fn linear_attention_saves_memory_and_time() {
    let [with, without] =
        capacity_and_itl("qwen3.5-35b-a3b", |text| text.replace("linear_attention", "full_attention"));
    assert!(with.0 > 3.0 * without.0, "10 of 40 layers cache tokens: {with:?} {without:?}");
    assert!(with.1 < 0.95 * without.1, "{with:?} {without:?}");
}

/// `blis models explain` on a hybrid with experts, on two GPUs: half of the states and of the KV heads on each.
#[test]
fn a_model_is_explained() {
    let text = blis!("models explain qwen3.5-35b-a3b --tp 2 --output text").done().stdout;
    insta::assert_snapshot!(text, @r"
    qwen3.5-35b-a3b  (model_configs/qwen3.5-35b-a3b/config.json)
      parameters             34.660 G, 3.455 G active
      number formats         bfloat16, KV cache bfloat16
      weights per GPU        34.68 GB on each of 2
      context                262144 tokens
      layers                 30 × gated delta rule, 32 states of 128 × 128; 8 of 256
                             experts of 512, shared 512
      layers                 10 × full attention, 16 heads, 2 of KV, width 256; 8 of
                             256 experts of 512, shared 512
      state per request      state of gated delta rule: 30 layers × 1073152 B =
                             32194560 B
      KV per token           full: 10240 B in 10 layers
    ");
    let facts = blis!("models explain qwen3.5-35b-a3b --output json").json();
    let state = facts["caches"].as_array().expect("caches").iter().find(|cache| cache["bytes_per_token"] == 0.0);
    assert_eq!(state.expect("a state")["bytes_per_request_and_layer"], 2_146_304.0);
    let unknown = blis!("models explain qwen3-33b").refused();
    assert!(unknown.contains("did you mean `qwen3-32b`?"), "{unknown}");
}
