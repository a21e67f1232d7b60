use blis_sim::architecture::{Attention, AttentionSpan, LayerGroup, MXFP4_BYTES, Mlp, WeightBytes};
use blis_sim::memory::{CachedBytes, kv_bytes_per_token, weight_bytes};
use blis_sim::model::{ModelConfig, Parallelism};
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::Value;

use super::known_keys::READ;
use crate::embedded;
use crate::model::{self, LoadedModel, parse};

fn built_in(name: &str) -> LoadedModel {
    model::built_in(name, None).unwrap().unwrap_or_else(|| panic!("{name} is not built in"))
}

fn read(text: &str) -> LoadedModel {
    parse("m", "config.json".into(), text).unwrap()
}

fn refused(text: &str) -> String {
    parse("m", "config.json".into(), text).unwrap_err().to_string()
}

/// A small model, and further keys.
fn small(rest: &str) -> String {
    format!(
        r#"{{"num_hidden_layers": 12, "hidden_size": 1024, "num_attention_heads": 8, "num_key_value_heads": 4,
            "vocab_size": 1000, "intermediate_size": 4096, "torch_dtype": "bfloat16"{rest}}}"#
    )
}

/// Layers with a limit, by their number.
fn limited(model: &ModelConfig) -> Vec<u32> {
    let mut layer = 0;
    let mut numbers = Vec::new();
    for LayerGroup { count, attention, .. } in model.architecture().groups {
        if matches!(attention, Attention::Heads(heads) if heads.span != AttentionSpan::Full) {
            numbers.extend(layer..layer + count);
        }
        layer += count;
    }
    numbers
}

/// Billions of weights by the model cards, all and those that a token uses; the cards of gpt-oss (3.6, 5.1) and MiniMax (10)
/// leave out embeddings of the latter.
const PARAMETERS: [(&str, f64, f64); 19] = [
    ("deepseek-v3", 671.0, 37.6),
    ("deepseek-r1", 671.0, 37.6),
    ("kimi-k2-instruct", 1026.0, 32.9),
    ("gpt-oss-20b", 20.9, 4.2),
    ("gpt-oss-120b", 116.8, 5.7),
    ("qwen3-8b", 8.2, 8.2),
    ("qwen3-32b", 32.8, 32.8),
    ("qwen3-32b-fp8", 32.8, 32.8),
    ("qwen3-235b-a22b", 235.0, 22.0),
    ("qwen3-235b-a22b-fp8", 235.0, 22.0),
    ("qwen3-coder-480b-a35b-instruct", 480.0, 35.0),
    ("qwen3.5-27b", 27.0, 27.0),
    ("qwen3.5-35b-a3b", 35.0, 3.4),
    ("qwen3.5-397b-a17b", 397.0, 17.0),
    ("llama-3.1-405b", 405.0, 405.0),
    ("llama-4-maverick-17b-128e-instruct", 400.0, 17.2),
    ("gemma-4-26b-a4b", 25.2, 3.8),
    ("glm-5", 744.0, 40.0),
    ("minimax-m2.5", 229.0, 11.0),
];

#[test]
fn models_have_the_parameters_of_their_names() {
    let mut wrong = Vec::new();
    for (name, total, active) in PARAMETERS {
        let counted = built_in(name).config.parameters();
        let [total_error, active_error] =
            [counted.total / total, counted.active / active].map(|share| 100.0 * (share / 1e9 - 1.0));
        if total_error.abs() > 3.0 || active_error.abs() > 6.0 {
            wrong.push(format!("{name}: {:.1} B, {:.2} B", counted.total / 1e9, counted.active / 1e9));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// DeepSeek-V3: 512 + 64 numbers of two bytes in each of 61 layers, on every GPU.
#[test]
fn latent_attention_caches_one_vector() {
    let model = built_in("deepseek-v3").config;
    assert_eq!([1, 8].map(|tensor| kv_bytes_per_token(&model, tensor)), [576.0 * 61.0 * 2.0; 2]);
    let kinds = model.architecture().mlps();
    assert!(matches!(kinds[..], [(3.0, Mlp::Dense { width: 18_432 }), (58.0, Mlp::Experts(_))]), "{kinds:?}");
}

/// Gemma-4-26B-A4B: 25 layers with 8 KV heads of 256, which keep 1023 tokens and those of a step, and 5 with 2 of 512.
/// Without the window, requests of 100 000 tokens would take 30 layers of 8 KV heads of 256.
#[test]
fn windows_of_gemma() {
    let cached = CachedBytes::of_model(&built_in("gemma-4-26b-a4b").config, 1, 2048);
    assert_eq!((cached.windowed, cached.full), (25.0 * 2.0 * 8.0 * 256.0 * 2.0, 5.0 * 2.0 * 2.0 * 512.0 * 2.0));
    assert_eq!(cached.window_tokens, 3071);
    let text = embedded::model_config("gemma-4-26b-a4b").unwrap();
    let all_full = text.replace("sliding_attention", "full_attention");
    let full = CachedBytes::of_model(&read(&all_full).config, 1, 2048);
    assert_eq!((full.windowed, full.full), (0.0, 30.0 * 2.0 * 2.0 * 512.0 * 2.0));
}

/// Qwen3.5-35B-A3B: 10 of 40 layers cache 2 KV heads of 256; each of the others keeps 32 matrices of 128 × 128 in 32 bits,
/// and 3 inputs of 8192 numbers.
#[test]
fn linear_layers_of_qwen() {
    let model = built_in("qwen3.5-35b-a3b").config;
    let cached = CachedBytes::of_model(&model, 2, 2048);
    assert_eq!(cached.full, 10.0 * 2.0 * 1.0 * 256.0 * 2.0);
    assert_eq!(cached.state, 30.0 * (32.0 * 128.0 * 128.0 * 4.0 + 3.0 * 8192.0 * 2.0) / 2.0);
    let first_full = model.architecture().groups[1];
    assert_eq!(first_full.count, 1);
    let Attention::Heads(heads) = first_full.attention else { panic!("{first_full:?}") };
    assert!(heads.gated && heads.dim == 256.0);
}

/// By the type of the model, or by a flag that says otherwise.
#[test]
fn norms_of_queries_and_keys_are_known() {
    assert!(built_in("qwen3-14b").config.qk_norm && built_in("qwen3-30b-a3b").config.qk_norm);
    assert!(!built_in("qwen2.5-7b-instruct").config.qk_norm && !built_in("llama-3.1-8b").config.qk_norm);
    assert!(read(&small(r#", "model_type": "gemma3_text""#)).config.qk_norm);
    assert!(read(&small(r#", "model_type": "minimax_m2", "use_qk_norm": true"#)).config.qk_norm);
    assert!(!read(&small(r#", "model_type": "qwen3", "use_qk_norm": false"#)).config.qk_norm);
    assert!(refused(&small(r#", "use_qk_norm": 3"#)).contains("use_qk_norm"));
}

/// gpt-oss: experts in 4.25 bits, everything else in 16; every second layer has a window of 128 tokens.
#[test]
fn only_experts_are_in_four_bits() {
    let LoadedModel { config, notes, .. } = built_in("gpt-oss-20b");
    let weights = config.architecture().weights;
    assert_eq!((weights.experts, config.weight_bytes), (Some(MXFP4_BYTES), 2.0));
    assert_eq!((weights.attention, weights.output, weights.router), (Some(2.0), Some(2.0), Some(2.0)));
    assert_eq!(limited(&config), (0..24).step_by(2).collect::<Vec<_>>());
    assert!(notes.iter().all(|note| note.contains("torch_dtype")), "{notes:?}");
}

#[test]
fn maverick_alternates() {
    let config = built_in("llama-4-maverick-17b-128e-instruct").config;
    let kinds = config.architecture().mlps();
    assert!(matches!(kinds[..], [(24.0, Mlp::Dense { width: 16_384 }), (24.0, Mlp::Experts(_))]), "{kinds:?}");
    let expected: Vec<u32> = (0..48).filter(|layer| layer % 4 != 3).collect();
    assert_eq!(limited(&config), expected, "every fourth layer attends to everything");
    let Attention::Heads(heads) = config.architecture().groups[0].attention else { panic!() };
    assert_eq!(heads.span, AttentionSpan::Chunk(8192));
}

#[test]
fn windows_follow_the_class_of_the_model() {
    let of = |rest: &str| limited(&read(&small(rest)).config);
    let (all, none): (Vec<u32>, Vec<u32>) = ((0..12).collect(), Vec::new());
    assert_eq!(of(""), none);
    assert_eq!(of(r#", "model_type": "mistral", "sliding_window": 4096"#), all);
    assert_eq!(of(r#", "model_type": "qwen2", "sliding_window": 4096"#), none);
    let qwen = r#", "model_type": "qwen2", "sliding_window": 4096, "max_window_layers": 10, "use_sliding_window""#;
    assert_eq!(of(&format!("{qwen}: false")), none);
    assert_eq!(of(&format!("{qwen}: true")), [10, 11]);
    let gemma: Vec<u32> = (0..12).filter(|layer| layer % 6 != 5).collect();
    assert_eq!(of(r#", "model_type": "gemma3_text", "sliding_window": 512"#), gemma);
    assert_eq!(
        of(r#", "model_type": "gemma3_text", "sliding_window": 512, "sliding_window_pattern": 2"#),
        [0, 2, 4, 6, 8, 10]
    );
    assert_eq!(of(r#", "model_type": "gemma2", "sliding_window": 512"#), [0, 2, 4, 6, 8, 10]);
    assert_eq!(of(r#", "model_type": "x", "sliding_window": null"#), none);
}

#[test]
fn layers_that_share_kv_cache_nothing() {
    let model = read(&small(r#", "num_kv_shared_layers": 4"#)).config;
    assert_eq!(kv_bytes_per_token(&model, 1), 8.0 * 2.0 * 4.0 * 128.0 * 2.0);
}

/// Layer 0 of 2 has 8 / 4 KV heads and a width of 2 · 2.625 · 1024 / 3 = 1792 = 7 · 256; layer 1 has no attention and
/// 2 · 0.5 · 1024 / 3 = 341, up to 512.
#[test]
fn blocks_are_read_one_by_one() {
    let block = |attention: &str, ffn: &str| format!(r#"{{"attention": {{{attention}}}, "ffn": {{{ffn}}}}}"#);
    let text = format!(
        r#"{{"num_hidden_layers": 2, "hidden_size": 1024, "num_attention_heads": 8, "num_key_value_heads": null,
            "vocab_size": 10, "intermediate_size": null, "torch_dtype": "bfloat16", "block_configs": [{}, {}]}}"#,
        block(r#""n_heads_in_group": 4, "no_op": false"#, r#""ffn_mult": 2.625"#),
        block(r#""n_heads_in_group": null, "no_op": true"#, r#""ffn_mult": 0.5"#),
    );
    let model = read(&text).config;
    assert_eq!((model.num_key_value_heads, model.intermediate_size), (2, 1792));
    let groups = model.architecture().groups;
    assert_eq!((groups[0].mlp, groups[1].mlp), (Mlp::Dense { width: 1792 }, Mlp::Dense { width: 512 }));
    assert_eq!(groups[1].attention, Attention::None);
    assert_eq!(kv_bytes_per_token(&model, 1), 2.0 * 2.0 * 128.0 * 2.0);
    let broken = text.replace("2.625", "-1");
    insta::assert_snapshot!(refused(&broken), @"config.json: `block_configs[0].ffn.ffn_mult` is missing or no number above 0");
}

#[test]
fn equal_layers_need_no_list() {
    for name in
        ["llama-3.1-8b-instruct", "qwen3-14b", "qwen3-30b-a3b", "mixtral-8x7b-v0.1", "deepseek-v2-lite", "yi-34b"]
    {
        assert_eq!(built_in(name).config.architecture, None, "{name}");
    }
    let qwen = built_in("qwen2.5-7b-instruct").config;
    assert_eq!(qwen.architecture, None, "its window is switched off");
}

#[test]
fn unknown_keys_are_named() {
    let warnings = |rest: &str| read(&small(rest)).warnings;
    assert!(warnings(r#", "attention_bias": true, "rope_theta": 1e6, "num_nextn_predict_layers": 1"#).is_empty());
    assert!(warnings(r#", "attention_sink_window": 0, "sparse_thing": false, "kv_magic": null"#).is_empty());
    insta::assert_snapshot!(warnings(r#", "attention_sink_window": 64"#).join("\n"), @"config.json: `attention_sink_window` is not modelled: if it changes attention, experts or precision, times and KV blocks are wrong");
    let quantised = r#", "quantization_config": {"quant_method": "fp8", "kv_cache_scheme": {"num_bits": 8}}"#;
    insta::assert_snapshot!(warnings(quantised).join("\n"), @"");
    // Found by a reader of configs of Falcon, DBRX and others: they changed nothing, in silence.
    for key in ["alibi", "use_mla", "new_decoder_architecture", "mixture_of_depths"] {
        assert_eq!(warnings(&format!(r#", "{key}": true"#)).len(), 1, "{key}");
    }
    assert_eq!(
        warnings(r#", "cla_share_factor": 2, "attn_config": {"kv_n_heads": 8}"#).len(),
        1,
        "`use_cla` is not set"
    );
}

/// Regression: a folder called `my-fp8-experiments` had 8-bit weights in silence.
#[test]
fn a_number_format_by_name_is_noted() {
    let named = |name: &str, rest: &str| parse(name, "config.json".into(), &small(rest)).unwrap();
    let fp8 = named("my-fp8-experiments", "");
    assert_eq!((fp8.config.weight_bytes, fp8.quantization.as_deref()), (1.0, Some("fp8")));
    insta::assert_snapshot!(fp8.notes.join("\n"), @"my-fp8-experiments: weights of 8 bits by its name; the config names no quantisation");
    assert_eq!(named("m.w4a16", "").quantization.as_deref(), Some("compressed-tensors"));
    assert!(named("my-experiments", "").notes.is_empty());
}

/// Regression: each of these was computed as if the key were not there, without a word.
#[test]
fn keys_without_effect_are_refused_or_warned_of() {
    let heads = |more: &str| {
        format!(
            r#"{{"num_hidden_layers": 2, "hidden_size": 1024, "num_attention_heads": 8, "intermediate_size": 4096{more}}}"#
        )
    };
    insta::assert_snapshot!(refused(&heads(r#", "num_query_groups": 2"#)), @r#"
    config.json: `num_key_value_heads` is missing, and `num_query_groups` is 2
    hint: add `"num_key_value_heads": 2` if each group of query heads shares one KV head
    "#);
    insta::assert_snapshot!(refused(&heads(r#", "num_key_value_heads": 3"#)), @r"
    config.json: `num_key_value_heads` is 3, and `num_attention_heads` is 8
    hint: as many query heads share each KV head: the one must divide the other
    ");
    assert!(refused(&heads(r#", "num_key_value_heads": 80"#)).contains("`num_key_value_heads` is 80"));
    let warnings = [
        r#", "index_topk": 2048"#,
        r#", "model_type": "qwen3_next", "full_attention_interval": 4"#,
        r#", "model_type": "qwen2", "sliding_window": 512, "sliding_window_pattern": 2"#,
    ]
    .map(|keys| read(&small(keys)).warnings.join("\n"));
    insta::assert_snapshot!(warnings.join("\n"), @r"
    config.json: `index_topk` has no effect without `kv_lora_rank`: all layers have full attention
    config.json: `full_attention_interval` has no effect without `linear_num_value_heads`: all layers have full attention
    config.json: `sliding_window_pattern` has no effect in Qwen's models: their layers with a window follow from `use_sliding_window` and `max_window_layers`
    ");
    assert!(warnings.iter().all(|text| text.lines().count() == 1));
}

#[test]
fn layers_that_are_not_modelled_are_refused_by_name() {
    insta::assert_snapshot!(refused(&small(r#", "state_size": 16"#)), @r"
    config.json: `state_size` is 16: Mamba-1 layers, which is not modelled
    hint: with coefficients of its own, a model needs no architecture: `--latency-model blackbox`
    ");
    insta::assert_snapshot!(refused(&small(r#", "attn_type_list": [1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 1, 1]"#)), @r"
    config.json: `attn_type_list` is 0 in layer 9: lightning attention, which is not modelled
    hint: 1 is softmax attention; with coefficients of its own, a model needs no architecture: `--latency-model blackbox`
    ");
    assert!(refused(&small(r#", "mamba_d_state": 256, "mamba_n_heads": 24"#)).contains("`mamba_d_state` is 256"));
    let kinds = r#", "layer_types": ["full_attention", "recurrent"], "num_hidden_layers": 2"#;
    let text = small(kinds).replacen(r#""num_hidden_layers": 12, "#, "", 1);
    insta::assert_snapshot!(refused(&text), @r#"
    config.json: `layer_types`: layers of the kind "recurrent" are not modelled
    hint: known: full_attention, sliding_attention, chunked_attention, linear_attention, mamba
    "#);
    insta::assert_snapshot!(refused(&small(r#", "layer_types": ["full_attention"]"#)), @r"
    config.json: `layer_types` has 1 entries, and `num_hidden_layers` is 12
    hint: it lists every layer
    ");
    let latent = r#", "kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128"#;
    insta::assert_snapshot!(refused(&small(&format!(r#"{latent}, "index_topk": 2048"#))), @r"
    config.json: `index_n_heads` is missing or zero, which sparse attention needs
    hint: copy it from the config on Hugging Face
    ");
    insta::assert_snapshot!(refused(&small(r#", "kv_lora_rank": 512"#)), @r"
    config.json: `qk_rope_head_dim`, `qk_nope_head_dim`, `v_head_dim` are missing or zero, which latent attention (`kv_lora_rank`) needs
    hint: copy what is missing from the config on Hugging Face
    ");
    insta::assert_snapshot!(refused(&small(&latent.replace(r#", "v_head_dim": 128"#, ""))), @r"
    config.json: `v_head_dim` is missing or zero, which latent attention (`kv_lora_rank`) needs
    hint: copy what is missing from the config on Hugging Face
    ");
    insta::assert_snapshot!(refused(&small(r#", "sliding_window": "big""#)), @r#"
    config.json: `sliding_window` is `"big"`
    hint: a whole number from 0 to 4294967295 belongs there
    "#);
}

#[test]
fn modules_out_of_quantisation_keep_16_bits() {
    let weights = |list: &str| {
        let config =
            format!(r#", "quantization_config": {{"quant_method": "fp8", "modules_to_not_convert": [{list}]}}"#);
        read(&small(&config)).config.architecture().weights
    };
    assert_eq!(weights(""), WeightBytes::default());
    let attention = Some(2.0);
    assert_eq!(weights(r#""re:.*self_attn.*""#), WeightBytes { attention, ..WeightBytes::default() });
    assert_eq!(weights(r#""model.layers.3.self_attn", "model.layers.4.self_attn""#), WeightBytes::default());
    let listed: Vec<String> = (0..6).map(|layer| format!("\"model.layers.{layer}.self_attn\"")).collect();
    assert_eq!(weights(&listed.join(",")), WeightBytes { attention, ..WeightBytes::default() });
    let (router, output) = (Some(2.0), Some(2.0));
    assert_eq!(
        weights(r#""lm_head", "model.layers.0.mlp.gate""#),
        WeightBytes { router, output, ..WeightBytes::default() }
    );
}

/// Lists with another number of entries than layers, or with entries that mean nothing, are mistakes of the file.
#[test]
fn lists_of_layers_have_an_entry_for_each() {
    insta::assert_snapshot!(refused(&small(r#", "compress_ratios": [0, 4]"#)), @r"
    config.json: `compress_ratios` has 2 entries, and `num_hidden_layers` is 12
    hint: it lists every layer
    ");
    for (keys, names) in [
        (r#""attn_type_list": [1, 1]"#, "`attn_type_list` has 2 entries"),
        (r#""hybrid_layer_pattern": [0, 1], "sliding_window": 8"#, "`hybrid_layer_pattern` has 2 entries"),
        (r#""hybrid_override_pattern": "M*-""#, "`hybrid_override_pattern` has 3 entries"),
        (r#""hybrid_override_pattern": "X***********""#, "has `X`, which is no kind of layer"),
        (r#""layers_block_type": ["mamba"]"#, "`layers_block_type` has 1 entries"),
        (r#""num_experts": 4, "num_experts_per_tok": 1, "moe_layer_freq": [0, 1]"#, "`moe_layer_freq` has 2 entries"),
        (r#""sliding_window": 8, "sliding_window_pattern": "LLX""#, "`X` is no kind of layer"),
        (r#""linear_attn_config": {"kda_layers": [0]}"#, "`linear_attn_config.kda_layers` has layer 0"),
        (r#""linear_attn_config": {"kda_layers": [1], "full_attn_layers": [2, 1]}"#, "full_attn_layers` has layer 1"),
        (r#""linear_attn_config": {"kda_layers": [1], "full_attn_layers": [2]}"#, "has layer 3 in none of its lists"),
        (r#""num_experts": 4, "moe_topk": [2, 2, 3]"#, "`moe_topk` is 2 in layer 0 and 3 in layer 2"),
        (r#""index_topk_freq": 4, "kv_lora_rank": 8"#, "`index_topk_freq` is 4, and `indexer_types` is missing"),
    ] {
        let error = refused(&small(&format!(", {keys}")));
        let latent = keys.contains("kv_lora_rank") && error.contains("latent attention");
        assert!(error.contains(names) || latent, "{keys}: {error}");
    }
}

/// What Python writes and JSON lacks is read, and the location of a mistake after it stays.
#[test]
fn numbers_of_python_are_read() {
    let model = read(&small(r#", "time_step_limit": [0.0, Infinity, -Infinity, NaN], "note": "Infinity, \"NaN\"""#));
    assert_eq!(model.config.num_hidden_layers, 12);
    let wrong = "{\n \"a\": NaN, \"b\": -Infinity, \"hidden_size\": \"big\"\n}";
    assert!(refused(wrong).starts_with("config.json:2:47: invalid type: string \"big\""), "{}", refused(wrong));
    assert!(
        refused(r#"{"hidden_size": Infinity}"#).contains("config.json:1:24"),
        "{}",
        refused(r#"{"hidden_size": Infinity}"#)
    );
}

/// Values of any type, some of which fit.
fn any_value() -> impl Strategy<Value = Value> {
    let text =
        prop_oneof!["[M*E-]{12}", Just("LLLG".to_owned()), Just("falcon".to_owned()), Just("opt".to_owned()), ".{0,6}"];
    let number = prop_oneof![0_u64..200, any::<u64>()];
    let of_layer =
        prop_oneof![(0_u64..5).prop_map(Value::from), Just(Value::from("mamba")), Just(Value::from("full_attention"))];
    prop_oneof![
        number.prop_map(Value::from),
        any::<bool>().prop_map(Value::from),
        text.prop_map(Value::from),
        vec(of_layer, 10..14).prop_map(Value::from),
        Just(
            serde_json::json!({"kda_layers": [1, 2, 3, 4, 5, 6], "full_attn_layers": [7, 8, 9, 10, 11, 12], "num_heads": 4, "head_dim": 8})
        ),
        Just(
            serde_json::json!({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": {"a.experts": {"quant_algo": "NVFP4"}}})
        ),
        Just(Value::Null),
    ]
}

proptest! {
    /// Any values of keys are refused, or give layers that can be counted.
    #[test]
    fn values_of_any_type_never_panic(values in vec((0..READ.len(), any_value()), 0..8)) {
        let Ok(Value::Object(mut keys)) = serde_json::from_str(&small("")) else { panic!("it is an object") };
        keys.extend(values.into_iter().map(|(key, value)| (READ[key].to_owned(), value)));
        if let Ok(model) = parse("m", "config.json".into(), &Value::Object(keys).to_string()) {
            let config = &model.config;
            prop_assert!(config.parameters().total >= 0.0 && kv_bytes_per_token(config, 8) >= 0.0);
            let eight = Parallelism { tensor: 8, data: 1 };
            prop_assert!(weight_bytes(config, eight, 1) >= 0.0);
        }
    }
}
