//! Step times and KV blocks of parallel deployments, against numbers that were worked out by hand: real models on a GPU of round numbers.
//!
//! It reads 10⁶ bytes per µs, computes in no time, starts a matrix product in 10 µs, experts in 20 µs and attention in 5 µs. An all-reduce
//! over two GPUs takes 7 µs and 1 µs per 1000 bytes, a gather 11 µs and 1 µs per 2000 bytes. Every weight of the latency model is 1 or 0.

use std::fs;
use std::path::Path;

use ::blis_config::engine::{BatchSettings, EngineProfile};
use ::blis_config::{Deployment, DeploymentArgs, LatencyKind, parse_model, resolve};
use ::blis_sim::latency::Batch;
use ::blis_sim::memory::{CachedBytes, kv_bytes_per_token};
use ::blis_sim::model::ModelConfig;

use crate::macros::{Scratch, root};

const GPU: &str = "\
name: ROUND
tflops_fp16: 1.0e+9
hbm_tb_s: 1.0
memory_gib: 80
usable_gib: 80
kernels:
  source: none
  gemm: { launch_us: 10, bandwidth: 1, flops: 1 }
  gemm_8bit:
  - { launch_us: 10, bandwidth: 1, flops: 1 }
  experts: { launch_us: 20, bandwidth: 1, flops: 1 }
  experts_8bit: { launch_us: 20, bandwidth: 1, flops: 1 }
  expert_activations: 1.0e-12
  attention_launch_us: 5
  attention_head_us: 1.0e-12
  attention_bandwidth: 1
  attention_flops: 1
links:
  source: none
  all_reduce:
  - gpus: 2
    segments:
    - { from_bytes: 0, launch_us: 7, gb_s: 1 }
  gather:
  - gpus: 2
    segments:
    - { from_bytes: 0, launch_us: 11, gb_s: 2 }
";

/// Weights of the latency model: products, experts, attention of decodes, attention of prompts, collectives; none for the host.
const KERNELS: [f64; 10] = [1.0, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0];
/// Attention of decodes alone.
const ATTENTION: [f64; 10] = [0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0];

/// `model` on GPUs of round numbers, served by vLLM for 128 requests and 2048 tokens a step at most.
fn deployment(model: &str, weights: [f64; 10], change: impl FnOnce(&mut DeploymentArgs)) -> Deployment {
    let folder = Scratch::new();
    let mut args = DeploymentArgs {
        hardware: Some("ROUND".into()),
        hardware_config: Some(folder.write("round.yaml", GPU)),
        latency_model: Some(LatencyKind::Physics),
        alpha_coeffs: Some(vec![0.0; 3]),
        beta_coeffs: Some(weights.to_vec()),
        batch: BatchSettings {
            engine: Some(EngineProfile::Vllm015),
            max_num_seqs: Some(128),
            max_num_batched_tokens: Some(2048),
            unchunked_prefill: false,
        },
        ..DeploymentArgs::new(model)
    };
    change(&mut args);
    resolve(&args).unwrap_or_else(|error| panic!("{model}: {error}"))
}

/// The time of a step with so many decodes of `context` tokens each, µs.
fn decode_us(deployment: &Deployment, requests: u64, context: u64) -> f64 {
    let batch = Batch { decode_requests: requests, decode_context: requests * context, ..Batch::default() };
    deployment.latency.step_time(&batch).0 as f64
}

#[track_caller]
fn about(us: f64, expected: f64) {
    assert!((us - expected).abs() <= 1.0, "{us} µs, by hand {expected}");
}

/// Mixtral-8x7B, 8 decodes of 1000 tokens on four GPUs: two servers with TP 2 and 4 requests each, or TP 2 with DP 2.
///
/// A server, by hand. Per layer and GPU, with 4 rows (bytes of 16 bits):
///
/// ```text
/// product             outputs  inputs  weights, µs  rows, µs   launch
/// query, key, value      3072    4096    25.165824  0.057344   10
/// output                 4096    2048    16.777216  0.049152   10
/// router                    8    4096     0.065536  0.032832   10
///                                        42.008576  0.139328   30   = 72.147904
/// norms and activations: 4 rows × 38 912 elements × 2 bytes         =  0.311296
/// attention: 5 + 4 requests × 1000 tokens × 2 · 4 heads · 128 · 2 B = 13.192
/// ```
///
/// 32 layers of these are 2740.84 µs. Logits: 16 000 outputs from 4096: 131.072 + 0.160768 + 10 = 141.23. Experts: the one of popularity
/// rank r is visited by a token with probability 2/(r·H), H = 1 + 1/2 + … + 1/8; 4 tokens visit 4.62510 of the 8. A GPU has half of each:
/// 3 · 4096 · 7168 · 2 = 176 160 768 bytes. 32 layers: 32 · (20 + 4.62510 · 176.160768) = 26 712.37. Two all-reduces a layer of 4 · 8192
/// bytes: 64 · (7 + 32.768) = 2545.15. Together 32 139.59 µs.
///
/// With DP 2, each rank has 4 of the 8 requests: attention, router and logits stay as they are. 8 tokens visit 6.16837 experts, of each of
/// which a GPU reads a quarter: 32 · (20 + 6.16837 · 88.080384) = 18 025.98. The all-reduce behind the experts is replaced by a gather and a
/// scatter of the rows of both ranks: 32 · 39.768 + 64 · (11 + 65 536/2000) = 4073.73. Together 24 981.78 µs.
#[test]
fn two_ranks_of_mixtral_share_experts_that_two_servers_read_twice() {
    let server = deployment("mixtral-8x7b-v0.1", KERNELS, |args| args.tensor_parallel_size = Some(2));
    about(decode_us(&server, 4, 1000), 32_139.59);
    let ranks = deployment("mixtral-8x7b-v0.1", KERNELS, |args| {
        args.tensor_parallel_size = Some(2);
        args.data_parallel_size = 2;
    });
    about(decode_us(&ranks, 8, 1000), 24_981.78);
}

/// The same deployments. A server has on each GPU, in bytes:
///
/// ```text
/// attention     32 layers · 20 971 520 weights · 2             1 342 177 280
/// experts       32 layers · 8 · 3 · 4096 · 14 336 / 2 · 2     45 097 156 608
/// router, norms 32 layers · (8 + 2) · 4096 · 2                     2 621 440
/// tables        2 · 32 000 · 4096 / 2 · 2, norm 4096 · 2         262 152 192
/// sampler       4096 · 2048 · 2 + 38.3 · 128 · 32 000            173 654 016
/// experts' run  2048 · 2 · 2 · (2 · 7168 + 7168)                 176 160 768
/// context       0.55 GiB                                         590 558 004
/// ```
///
/// Of 72 GiB, 29 664 931 020 bytes are left, and a block takes 32 · 2 · 4 · 128 · 2 · 16 = 1 048 576 bytes: 28 290.7 blocks. With DP 2,
/// half of the experts, 22 548 578 304 bytes, make room for 21 504 more blocks on each of the two ranks.
#[test]
fn two_ranks_of_mixtral_have_the_blocks_of_half_the_experts_more() {
    let blocks = |data: u32| {
        let deployment = deployment("mixtral-8x7b-v0.1", KERNELS, |args| {
            args.tensor_parallel_size = Some(2);
            args.data_parallel_size = data;
        });
        deployment.total_kv_blocks
    };
    assert_eq!((blocks(1), blocks(2)), (28_290, 2 * (28_290 + 21_504)));
}

/// Llama-3.1-8B on two stages of 16 layers. Per layer, with `m` decodes of 1000 tokens:
///
/// ```text
/// product            outputs  inputs  weights, µs  per row, µs
/// query, key, value     6144    4096    50.331648  0.020480
/// output                4096    4096    33.554432  0.016384
/// gate and up         28 672    4096   234.881024  0.065536
/// down                  4096  14 336   117.440512  0.036864
///                                      436.207616  0.139264
/// norms and activations: 88 064 elements · 2 bytes  0.176128
/// attention: 1000 tokens × 2 · 8 · 128 · 2 bytes    4.096
/// launches: 4 · 10 + 5                   45
/// ```
///
/// 16 layers: 7699.321856 + 70.582272·m. The last stage has the logits besides: 1050.673152 + 10 + 0.264704·m. Between the stages, hidden
/// state and residual of m rows: 11 + 16.384·m.
///
/// One decode passes both stages: 2 · 7769.904128 + 1060.937856 + 27.384 = 16 628.13 µs, in half of which a stage is idle. Of eight, four
/// are in each stage at a time: the first takes 7981.65 µs, the last 9043.38 and the handover 76.54, so that a round takes
/// 2 · 9119.92 = 18 239.84 µs, and the first stage waits for an eighth of it: the bubble.
#[test]
fn two_stages_work_on_two_micro_batches() {
    let stages = deployment("llama-3.1-8b-instruct", KERNELS, |args| {
        args.tensor_parallel_size = Some(1);
        args.pipeline_parallel_size = Some(2);
    });
    about(decode_us(&stages, 1, 1000), 16_628.13);
    about(decode_us(&stages, 8, 1000), 18_239.84);
    // One GPU: 32 · 481.207616 + 8 · (32 · 4.411392 + 0.264704) + 1060.673152.
    let alone = deployment("llama-3.1-8b-instruct", KERNELS, |args| args.tensor_parallel_size = Some(1));
    about(decode_us(&alone, 8, 1000), 17_590.75);
}

/// The same stages. 16 layers have 16 · (436 207 616 + 2 · 4096 · 2) = 6 979 584 000 bytes of weights, the embedding of the first stage and
/// the output matrix of the last 1 050 673 152, the norm 8192. In the profile run the first needs 1.1 · 2 · 2048 · 3 · (14 336 + 4096) = 249 145 754 for its MLP,
/// the last 16 777 216 + 38.3 · 128 · 128 256 = 645 539 430 for the sampler. With 0.07 GiB of context, 68 954 838 302
/// and 68 558 444 626 bytes of 72 GiB are left. A block of 16 layers takes 16 · 4096 · 16 = 1 048 576 bytes: 65 760 and 65 382 blocks.
#[test]
fn the_last_stage_has_the_fewest_blocks() {
    let stages = deployment("llama-3.1-8b-instruct", KERNELS, |args| {
        args.tensor_parallel_size = Some(1);
        args.pipeline_parallel_size = Some(2);
    });
    assert_eq!(stages.total_kv_blocks, 65_382);
}

fn config_file(name: &str) -> String {
    let path = root().join(format!("model_configs/{name}/config.json"));
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn config(name: &str, text: &str) -> ModelConfig {
    parse_model(name, Path::new("config.json").into(), text).unwrap_or_else(|error| panic!("{name}: {error}")).config
}

/// Each of 61 layers keeps the compressed vector of 512 numbers and the rotated key of 64, in BF16, on every GPU.
#[test]
fn a_token_of_deepseek_v3_takes_576_numbers_a_layer() {
    let model = config("deepseek-v3", &config_file("deepseek-v3"));
    assert_eq!([1, 8].map(|tensor| kv_bytes_per_token(&model, tensor)), [576.0 * 61.0 * 2.0; 2]);
}

/// The duration of a step with one decode of 16 000 tokens, attention alone, by a config.
fn attention_us(name: &str, tensor: u32, text: &str) -> f64 {
    let folder = Scratch::new();
    let file = folder.write("config.json", text);
    let deployment = deployment(name, ATTENTION, |args| {
        args.model_config_folder = file.parent().map(Path::to_owned);
        args.tensor_parallel_size = Some(tensor);
        args.total_kv_blocks = Some(100_000);
    });
    decode_us(&deployment, 1, 16_000)
}

/// Gemma-4-26B-A4B on four GPUs. A token takes 2 · 2 heads · 256 · 2 = 2048 bytes in each of 25 layers with a window of 1024, and
/// 2 · 1 · 512 · 2 = 2048 in each of 5 without.
///
/// Memory of a request of 32 768 tokens, per token: 5 · 2048 + 25 · 2048 · 3071/32 768 = 15 038.4375 bytes, as 1023 tokens and the 2048 of a
/// step are kept; 61 440 without the window. A decode of 16 000 tokens: 30 launches of 5 µs, 5 · 16 000 and 25 · 1024 tokens:
/// 150 + 163.84 + 52.4288 µs; without the window 150 + 163.84 + 819.2.
#[test]
fn windows_of_gemma_save_what_lies_outside() {
    let with = config_file("gemma-4-26b-a4b");
    let without = with.replace("\"sliding_window\": 1024", "\"sliding_window\": 32768");
    assert_ne!(with, without);
    let cached = |text: &str| CachedBytes::of_model(&config("gemma-4-26b-a4b", text), 4, 2048);
    assert_eq!(cached(&with).per_token(Some(32_768)), 15_038.437_5);
    assert_eq!(cached(&without).per_token(Some(32_768)), 61_440.0);
    about(attention_us("gemma-4-26b-a4b", 4, &with), 366.27);
    about(attention_us("gemma-4-26b-a4b", 4, &without), 1133.04);
}

/// Qwen3.5-35B-A3B on two GPUs. A token takes 2 · 1 head · 256 · 2 = 1024 bytes in a layer of full attention. Each of 30 linear layers
/// keeps the state of 16 heads, 128 · 128 numbers of 32 bits, and three inputs of the convolution, 4096 numbers of 16 bits: 1 073 152 bytes.
///
/// Memory of a request of 32 768 tokens, per token: 10 · 1024 + 30 · 1 073 152/32 768 = 11 222.5 bytes; 40 960 if all 40 layers were of full
/// attention. A decode of 16 000 tokens: 40 launches of 5 µs, 10 · 16 000 tokens, and each state read and written:
/// 200 + 163.84 + 64.39 µs; with full attention 200 + 655.36.
#[test]
fn linear_layers_of_qwen_save_what_a_state_replaces() {
    let with = config_file("qwen3.5-35b-a3b");
    let without = with.replace("linear_attention", "full_attention");
    let cached = |text: &str| CachedBytes::of_model(&config("qwen3.5-35b-a3b", text), 2, 2048);
    assert_eq!(cached(&with).per_token(Some(32_768)), 11_222.5);
    assert_eq!(cached(&without).per_token(Some(32_768)), 40_960.0);
    about(attention_us("qwen3.5-35b-a3b", 2, &with), 428.23);
    about(attention_us("qwen3.5-35b-a3b", 2, &without), 855.36);
}
