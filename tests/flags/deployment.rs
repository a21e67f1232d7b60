//! Flags of model, GPU and latency model.

use super::*;

pub(super) fn model(t: &Trial) {
    let e2e = |name: &str| number(&t.figures(&calm(), &format!("{{}} {name} --tp 4")), "e2e_mean_ms");
    assert!(e2e("llama-3.1-70b-instruct") > 2.0 * e2e("llama-3.1-8b-instruct"));
    assert_eq!(e2e("meta-llama/Llama-3.1-8B-Instruct"), e2e("llama-3.1-8b-instruct"));
}

pub(super) fn hardware(t: &Trial) {
    let itl = |gpu: &str| number(&t.figures(&calm(), &format!("{{}} {gpu}")), "itl_mean_ms");
    let [h200, h100, a100, l40s] = ["H200", "H100", "A100-SXM", "L40S"].map(itl);
    assert!(h200 < h100 && h100 < a100 && a100 < l40s, "{h200} {h100} {a100} {l40s}");
}

pub(super) fn tp(t: &Trial) {
    let e2e = |tp: u32| number(&t.figures(&calm(), &format!("{{}} {tp}")), "e2e_mean_ms");
    assert!(e2e(2) < e2e(1));
    assert_eq!(e2e(0), e2e(1), "0 is the default");
    assert!(t.summary(&calm(), "{} 4").contains("4 × H100 (TP 4)"));
}

pub(super) fn pp(t: &Trial) {
    let summary = t.summary(&calm(), "{} 2");
    assert!(summary.contains("2 × H100 (TP 1, PP 2)"), "{summary}");
    assert!(kv_blocks(&summary) > 2 * kv_blocks(&t.summary(&calm(), "{} 1")), "each stage has half of the layers");
    let e2e = |pp: u32| number(&t.figures(&calm(), &format!("{{}} {pp}")), "e2e_mean_ms");
    assert_ne!(e2e(2), e2e(1));
    assert!(t.error(&calm(), "--latency-model roofline {} 2").contains("needs the physics latency model"));
}

pub(super) fn dp(t: &Trial) {
    let blocks = |dp: u32| kv_blocks(&t.summary(&calm(), &format!("{MOE} {{}} {dp}")));
    assert!(blocks(2) > 2 * blocks(1), "each rank has half of the experts");
    let blocks = |dp: u32| kv_blocks(&t.summary(&calm(), &format!("{MOE} {{}} {dp} --parity blis")));
    assert_eq!(blocks(2), 2 * blocks(1), "as BLIS counts");
    let e2e = |dp: u32| number(&t.figures(&calm(), &format!("{MOE} {{}} {dp}")), "e2e_mean_ms");
    assert_ne!(e2e(2), e2e(1));
    assert!(t.error(&calm(), "{} 2").contains("needs a mixture-of-experts model"));
}

pub(super) fn enable_expert_parallel(t: &Trial) {
    assert!(
        t.summary(&calm(), &format!("{MOE} --latency-model trained-physics {{}}")).contains("expert parallelism"),
        "it is spoken of"
    );
    assert!(t.error(&calm(), "{}").contains("needs a mixture-of-experts model"));
}

pub(super) fn enforce_eager(t: &Trial) {
    let itl = |flags: &str| number(&t.figures(&calm(), flags), "itl_mean_ms");
    assert!(itl("{}") > 1.2 * itl(""), "every kernel is launched alone");
}

pub(super) fn dtype(t: &Trial) {
    let itl = |name: &str| number(&t.figures(&calm(), &format!("{{}} {name}")), "itl_mean_ms");
    for name in ["auto", "half", "float16", "bfloat16"] {
        assert_eq!(itl(name), itl("auto"), "{name}: 16 bits");
    }
    assert!(itl("float") > 1.5 * itl("auto"), "twice the bytes");
    assert_eq!(itl("float"), itl("float32"));
    assert!(t.error(&calm(), "{} half --parity blis").contains("cannot be used with `--parity blis`"));
}

pub(super) fn quantization(t: &Trial) {
    let itl = |flags: &str| number(&t.figures(&calm(), flags), "itl_mean_ms");
    assert!(itl("{} fp8") < 0.85 * itl("") && itl("{} awq") < itl("{} fp8"));
    assert!(t.summary(&calm(), "{} fp8").contains("weights of 8 bits"));
    assert!(t.error(&calm(), "{} gguf").contains("possible values: fp8"));
    assert!(t.error(&calm(), "{} awq --model phi-4-fp8-dynamic").contains("says `compressed-tensors`"));
}

pub(super) fn kv_cache_dtype(t: &Trial) {
    let blocks = |name: &str| kv_blocks(&t.summary(&calm(), &format!("{{}} {name}")));
    assert_eq!(blocks("auto"), blocks("bfloat16"));
    for name in ["fp8", "fp8_e4m3", "fp8_e5m2"] {
        assert!(blocks(name).abs_diff(2 * blocks("auto")) <= 1, "{name}");
    }
    let itl = |name: &str| number(&t.figures(&calm(), &format!("{{}} {name}")), "itl_mean_ms");
    assert!(itl("fp8") < itl("auto"), "fewer bytes are read");
}

pub(super) fn moe_comm_backend(t: &Trial) {
    let e2e = |name: &str| number(&t.figures(&calm(), &format!("{MOE} --dp 2 {{}} {name}")), "e2e_mean_ms");
    assert_ne!(e2e("naive"), e2e("pplx"));
    assert!(t.error(&calm(), &format!("{MOE} {{}} plx")).contains("did you mean `pplx`?"));
}

pub(super) fn vllm_version(t: &Trial) {
    assert!(t.summary(&calm(), "{} v0.8.4").contains("blackbox"));
    let model = "--model llama-3.1-8b-instruct --tp 1";
    let e2e = |version: &str| number(&t.figures(&calm(), &format!("{model} {{}} {version}")), "e2e_mean_ms");
    assert_ne!(e2e("v0.8.4"), e2e("v0.11.0"));
    assert_eq!(e2e("v0.8.4"), e2e("0.8.4"));
}

pub(super) fn model_config_folder(t: &Trial) {
    let config = |layers: u32| {
        format!(
            r#"{{"num_hidden_layers": {layers}, "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8,
                "vocab_size": 128256, "intermediate_size": 14336, "hidden_act": "silu", "torch_dtype": "bfloat16",
                "max_position_embeddings": 131072}}"#
        )
    };
    for layers in [8, 16] {
        t.file(&format!("{layers}/config.json"), &config(layers));
        t.file(&format!("tree/mine-{layers}/config.json"), &config(layers));
    }
    let e2e = |flags: &str| number(&t.figures(&calm(), flags), "e2e_mean_ms");
    let (small, large) = (e2e("--model mine {} {dir}/8"), e2e("--model mine {} {dir}/16"));
    assert!(small < large && large < e2e(""), "half the layers, half the time");
    assert_eq!(e2e("--model mine-8 {} {dir}/tree"), small, "by name below the folder");
}

pub(super) fn hardware_config(t: &Trial) {
    let gpu = |name: &str, tb_s: f64| {
        t.file(
            name,
            &format!("tflops_fp16: 989.5\nhbm_tb_s: {tb_s}\nmemory_gib: 80\nmfu_prefill: 0.45\nmfu_decode: 0.3\n"),
        );
    };
    gpu("one/fast.yaml", 6.7);
    gpu("one/slow.yaml", 1.0);
    let itl = |flags: &str| number(&t.figures(&calm(), flags), "itl_mean_ms");
    let (fast, slow) = (itl("{} {dir}/one/fast.yaml"), itl("{} {dir}/one --hardware slow"));
    assert!(fast < itl("") && itl("") < slow);
}

pub(super) fn latency_model(t: &Trial) {
    let names = ["trained-physics", "physics", "roofline", "blackbox"];
    let mut e2e = names.map(|name| number(&t.figures(&calm(), &format!("--tp 1 {{}} {name}")), "e2e_mean_ms"));
    e2e.sort_by(f64::total_cmp);
    assert!(e2e.is_sorted_by(|a, b| a < b), "{e2e:?}");
    assert!(t.summary(&calm(), "{} physics").contains("physics coefficients: general, not measured"));
    for name in names {
        assert!(t.summary(&calm(), &format!("{{}} {name}")).contains(name));
    }
}

pub(super) fn alpha_coeffs(t: &Trial) {
    let ttft =
        |a0: u32| number(&t.figures(&calm(), &format!("{{}} {a0},0,0 --beta-coeffs 5000,10,10")), "ttft_mean_ms");
    assert!((ttft(3_000) - ttft(0) - 3.0).abs() < 1e-9, "3 ms before the queue are 3 ms of TTFT");
    assert!(t.error(&calm(), "{} 1,2,3").contains("without `--beta-coeffs`"));
}

pub(super) fn beta_coeffs(t: &Trial) {
    let itl = |b0: u32| number(&t.figures(&calm(), &format!("--alpha-coeffs 0,0,0 {{}} {b0},0,0")), "itl_mean_ms");
    assert_eq!((itl(5_000), itl(8_000)), (5.0, 8.0));
    let eleven = "0.1,0.2,0.3,0.4,0.5,0.6,0.7,8,9,10,11";
    assert!(t.summary(&calm(), &format!("--alpha-coeffs 0,0,0 {{}} {eleven}")).contains("trained-physics"));
}

pub(super) fn coefficients(t: &Trial) {
    let weights = |name: &str, step_us: u32| {
        t.file(
            name,
            &format!(
                "fitted: '2026-11-22'\nblis: test\ndata: []\ngeneral:\n  alpha: {{ arrival_us: 0, input_token_us: 0, \
                 first_token_us: 0 }}\n  beta: {{ gemm: 0, experts: 0, decode_attention: 0, prefill_attention: 0, \
                 collectives: 0, sampling: 0, layer_us: 0, launch_us: 0, request_us: 0, step_us: {step_us} }}\n"
            ),
        );
        number(&t.figures(&calm(), &format!("{{}} {{dir}}/{name}")), "itl_mean_ms")
    };
    assert_eq!((weights("five.yaml", 5_000), weights("eight.yaml", 8_000)), (5.0, 8.0));
    assert!(t.error(&calm(), "--latency-model roofline {} {dir}/five.yaml").contains("not of roofline"));
    t.file("wrong.yaml", "fitted: yes\nblis: 1\n");
    assert!(t.error(&calm(), "{} {dir}/wrong.yaml").contains("wrong.yaml:"));
}
