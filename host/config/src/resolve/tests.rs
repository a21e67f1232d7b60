//! What `resolve` chooses, and what it refuses.

use blis_sim::latency::Batch;
use blis_sim::units::Micros;

use super::*;
use crate::engine::EngineProfile;
use strum::VariantArray as _;

const LLAMA: &str = "meta-llama/Llama-3.1-8B-Instruct";

fn with(model: &str, change: impl FnOnce(&mut DeploymentArgs)) -> Result<Deployment, ConfigError> {
    let mut args = DeploymentArgs::new(model);
    change(&mut args);
    resolve(&args)
}

fn refused(model: &str, change: impl FnOnce(&mut DeploymentArgs)) -> String {
    with(model, change).unwrap_err().to_string()
}

#[test]
fn a_model_is_enough() {
    let deployment = with(LLAMA, |_| {}).unwrap();
    assert_eq!(deployment.model, "llama-3.1-8b-instruct");
    assert_eq!((deployment.hardware.as_str(), deployment.tensor_parallel_size), ("H100", 1));
    assert_eq!(deployment.latency_kind, LatencyKind::Physics);
    assert_eq!((deployment.total_kv_blocks, deployment.kv_blocks_source), (26_312, KvBlocksSource::Computed));
    assert_eq!((deployment.max_model_len, deployment.beta.len()), (Some(131_072), 10));
    insta::assert_snapshot!(deployment.notes[..2].join("\n"), @r"
    hardware H100: the default
    tensor parallel size 1: the smallest that holds the model
    ");
    assert!(deployment.notes[2].starts_with("physics coefficients: general"), "{:?}", deployment.notes);
    let blis = with(LLAMA, |args| args.default_latency = LatencyKind::TrainedPhysics).unwrap();
    assert_eq!((blis.latency_kind, blis.beta.len()), (LatencyKind::TrainedPhysics, 11));
}

#[test]
fn tensor_parallelism_grows_until_the_model_fits() {
    let size = |model: &str, hardware: &str| {
        let deployment = with(model, |args| args.hardware = Some(hardware.into()));
        deployment.map(|deployment| deployment.tensor_parallel_size)
    };
    assert_eq!(size("llama-3.1-70b-instruct", "H100").unwrap(), 2);
    assert_eq!(size("llama-3.1-70b-instruct", "L40S").unwrap(), 4);
    assert_eq!(size("llama-3.1-70b-instruct", "B200").unwrap(), 1);
    assert_eq!(size("mixtral-8x7b-v0.1", "H100").unwrap(), 2);
    assert_eq!(size("glm-5.2-fp8", "H100").unwrap(), 16);
    insta::assert_snapshot!(
        refused("glm-5.2-fp8", |args| args.tensor_parallel_size = Some(8)), @r"
    KV cache of `glm-5.2-fp8` on H100: the model does not fit: it needs 709.4 GiB, and 8 GPU(s) offer 576.0 GiB
    hint: use at least 10 GPUs (`--tensor-parallel-size 16`)
    ");
}

/// With BLIS's latency model and its formula for KV blocks, as `--parity blis` has them: the size is one that BLIS accepts, and it accepts no
/// smaller power of two. The sizes of the list follow from the table of `engine.md` §4.5, where BLIS names 10 GPUs for the last one.
#[test]
fn the_smallest_size_that_blis_accepts_is_chosen() {
    let deployment = |model: &str, size: Option<u32>| {
        with(model, |args| {
            args.latency_model = Some(LatencyKind::TrainedPhysics);
            args.tensor_parallel_size = size;
        })
    };
    let published = [
        ("llama-2-7b-hf", 1),
        ("codellama-34b-instruct-hf", 1),
        ("yi-34b", 1),
        ("qwen3-30b-a3b", 1),
        ("llama-3.1-70b-instruct", 2),
        ("mixtral-8x7b-v0.1", 2),
        ("llama-4-scout-17b-16e-instruct-fp8-dynamic", 2),
        ("glm-5.2-fp8", 16),
    ];
    for (model, size) in published {
        assert_eq!(deployment(model, None).unwrap().tensor_parallel_size, size, "{model}");
    }
    let models = crate::known_models().into_iter().filter(|model| model.has_config);
    let chosen: Vec<_> = models
        .filter_map(|model| Some((deployment(&model.name, None).ok()?.tensor_parallel_size, model.name)))
        .collect();
    assert!(chosen.len() > 20, "{chosen:?}");
    for (size, model) in chosen {
        assert!(deployment(&model, Some(size)).is_ok(), "{model} {size}");
        for smaller in (0..size.ilog2()).map(|power| 1 << power) {
            assert!(deployment(&model, Some(smaller)).is_err(), "{model} {smaller}");
        }
    }
}

/// The table of automatic KV sizes, `engine.md` §4.5: H100, blocks of 16, utilisation 0.9.
#[test]
fn kv_sizes_are_the_published_ones() {
    let table: [(&str, [Option<u32>; 4]); 13] = [
        ("llama-2-7b-hf", [Some(6886), Some(31_935), Some(136_984), Some(566_424)]),
        ("llama-3.1-8b-instruct", [Some(26_312), Some(125_278), Some(543_011), Some(2_255_841)]),
        ("llama-3.1-70b-instruct", [None, Some(2409), Some(121_801), Some(711_530)]),
        ("codellama-34b-instruct-hf", [Some(1193), Some(50_822), Some(296_614), Some(1_373_107)]),
        ("yi-34b", [Some(626), Some(40_001), Some(235_979), Some(1_095_861)]),
        ("mistral-nemo-instruct-2407", [Some(17_512), Some(93_147), Some(420_258), Some(1_776_371)]),
        ("qwen2.5-7b-instruct", [Some(61_048), Some(288_159), Some(1_244_786), Some(5_163_441)]),
        ("qwen3-14b", [Some(15_909), Some(89_941), Some(413_846), Some(1_763_547)]),
        ("qwen3-30b-a3b", [Some(5276), Some(107_423), Some(604_786), Some(2_769_330)]),
        ("mixtral-8x7b-v0.1", [None, Some(48_956), Some(390_367), Some(1_950_553)]),
        ("deepseek-v2-lite", [Some(74_312), Some(227_391), Some(535_491), Some(1_151_692)]),
        ("llama-4-scout-17b-16e-instruct-fp8-dynamic", [None, Some(27_345), Some(249_660), Some(1_279_198)]),
        ("glm-5.2-fp8", [None; 4]),
    ];
    for (model, expected) in table {
        for (tensor, blocks) in [1, 2, 4, 8].into_iter().zip(expected) {
            let deployment = with(model, |args| {
                args.tensor_parallel_size = Some(tensor);
                // Roofline accepts what trained-physics refuses: fewer KV heads than GPUs.
                args.latency_model = Some(LatencyKind::Roofline);
            });
            assert_eq!(deployment.ok().map(|deployment| deployment.total_kv_blocks), blocks, "{model} tp{tensor}");
        }
    }
    let l40s = with(LLAMA, |args| args.hardware = Some("L40S".into())).unwrap();
    assert_eq!(l40s.total_kv_blocks, 11_567);
    let two_ranks = with("qwen3-30b-a3b", |args| {
        args.tensor_parallel_size = Some(2);
        args.data_parallel_size = 2;
    });
    assert_eq!(two_ranks.unwrap().total_kv_blocks, 214_846);
    let qwen = refused("qwen2.5-7b-instruct", |args| args.tensor_parallel_size = Some(8));
    insta::assert_snapshot!(qwen, @r"
    physics for `qwen2.5-7b-instruct` on H100: 28 attention heads cannot be split over tensor parallel size 8
    hint: choose a `--tensor-parallel-size` that divides 28
    ");
}

#[test]
fn a_vllm_version_selects_coefficients() {
    let deployment = with(LLAMA, |args| args.vllm_version = Some("v0.8.4".into())).unwrap();
    assert_eq!(deployment.latency_kind, LatencyKind::Blackbox);
    assert_eq!((deployment.tensor_parallel_size, deployment.total_kv_blocks), (2, 132_139), "the preset is tp2");
    assert_eq!(deployment.kv_blocks_source, KvBlocksSource::CoefficientRow);
    assert_eq!(deployment.beta, [6910.420479880494, 17.67057489844186, 2.8377471109943855]);
    let step = Batch { prefill_requests: 1, prefill_tokens: 100, decode_requests: 3, ..Batch::default() };
    assert_eq!(deployment.latency.step_time(&step), Micros(8685));

    let deployment = with(LLAMA, |args| args.vllm_version = Some("0.11.0".into())).unwrap();
    assert_eq!((deployment.tensor_parallel_size, deployment.total_kv_blocks), (1, 26_312), "no blocks recorded");
    assert_eq!(deployment.kv_blocks_source, KvBlocksSource::Computed);

    let on_a100 = |args: &mut DeploymentArgs| {
        args.latency_model = Some(LatencyKind::Blackbox);
        args.hardware = Some("a100-sxm".into());
        args.tensor_parallel_size = Some(4);
        args.block_size = 32;
        args.total_kv_blocks = None;
    };
    let deployment = with(LLAMA, on_a100).unwrap();
    assert_eq!((deployment.hardware.as_str(), deployment.total_kv_blocks), ("A100-SXM", 559_190 / 2));
    assert_eq!(deployment.beta[0], 497.6895574004801);
}

#[test]
fn a_model_without_architecture_takes_its_coefficients() {
    let deployment = with("meta-llama/llama-4-maverick-17b-128e-instruct-fp8", |_| {}).unwrap();
    assert_eq!(deployment.latency_kind, LatencyKind::Blackbox);
    assert_eq!((deployment.tensor_parallel_size, deployment.max_model_len), (8, None));
    insta::assert_snapshot!(deployment.notes.join("\n"), @r"
    blackbox latency model: the architecture of llama-4-maverick-17b-128e-instruct-fp8 is unknown, trained coefficients are not
    blackbox coefficients of llama-4-maverick-17b-128e-instruct-fp8 on H100 tp8 v0.8.4
    the context length of llama-4-maverick-17b-128e-instruct-fp8 is unknown: no request is too long
    ");
    insta::assert_snapshot!(refused("llama-4-maverick-17b-128e-instruct-fp8", |args| args.latency_model = Some(LatencyKind::Roofline)), @r"
    the architecture of `llama-4-maverick-17b-128e-instruct-fp8` is unknown, and roofline needs it
    hint: put its Hugging Face `config.json` into a folder and give `--model-config-folder`, or three coefficients for blackbox
    ");
}

#[test]
fn every_coefficient_row_resolves() {
    for row in blackbox_rows() {
        let deployment = with(&row.model, |args| {
            args.hardware = Some(row.hardware.clone());
            args.tensor_parallel_size = Some(row.tensor_parallel_size);
            args.vllm_version = Some(row.vllm_version.clone());
        });
        let deployment = deployment.unwrap_or_else(|error| panic!("{row:?}: {error}"));
        assert_eq!(deployment.beta, row.beta);
        assert_eq!(row.total_kv_blocks.unwrap_or(deployment.total_kv_blocks), deployment.total_kv_blocks);
    }
}

#[test]
fn the_number_of_coefficients_selects_the_latency_model() {
    let given = |alpha: &[f64], beta: &[f64]| {
        with(LLAMA, |args| {
            args.alpha_coeffs = Some(alpha.to_vec());
            args.beta_coeffs = Some(beta.to_vec());
        })
    };
    assert_eq!(given(&[1.0; 3], &[1.0; 3]).unwrap().latency_kind, LatencyKind::Blackbox);
    assert_eq!(given(&[1.0; 3], &[1.0; 7]).unwrap().latency_kind, LatencyKind::TrainedPhysics);
    insta::assert_snapshot!(given(&[1.0; 3], &[1.0; 5]).unwrap_err(), @r"
    `--beta-coeffs` is 5 values long
    hint: 3 values select blackbox, 7 to 11 trained-physics; physics takes 8, and its name
    ");
    insta::assert_snapshot!(given(&[1.0; 2], &[1.0; 7]).unwrap_err(), @r"
    trained-physics for `llama-3.1-8b-instruct` on H100: trained-physics takes 3 alpha coefficients, not 2
    hint: set as many with `--alpha-coeffs`
    ");
    insta::assert_snapshot!(given(&[1.0; 3], &[1.0, f64::INFINITY, 1.0]).unwrap_err(), @r"
    blackbox for `llama-3.1-8b-instruct` on H100: beta[1] is inf
    hint: coefficients are finite and not negative
    ");
    insta::assert_snapshot!(refused(LLAMA, |args| args.beta_coeffs = Some(vec![1.0; 3])), @r"
    `--beta-coeffs` is given without `--alpha-coeffs`
    hint: coefficients belong together: give both or neither
    ");
    insta::assert_snapshot!(
        refused(LLAMA, |args| {
            args.latency_model = Some(LatencyKind::Roofline);
            args.alpha_coeffs = Some(vec![1.0; 3]);
            args.beta_coeffs = Some(vec![1.0; 3]);
        }),
        @r"
    `--latency-model roofline` takes no coefficients
    hint: drop `--alpha-coeffs` and `--beta-coeffs`, or choose another latency model
    "
    );
    let own = |args: &mut DeploymentArgs| {
        args.alpha_coeffs = Some(vec![1.0; 3]);
        args.beta_coeffs = Some(vec![1.0; 3]);
        args.total_kv_blocks = Some(1000);
    };
    assert_eq!(with("my/model", own).unwrap().total_kv_blocks, 1000, "blackbox needs no architecture");
}

#[test]
fn unknown_names_get_suggestions() {
    let message = refused("meta-llama/llama-3.1-8b-instuct", |_| {});
    assert!(message.starts_with(
        "unknown model: `llama-3.1-8b-instuct`\nhint: did you mean `llama-3.1-8b-instruct`? `blis models` lists"
    ));
    insta::assert_snapshot!(refused(LLAMA, |args| args.hardware = Some("H101".into())), @r"
    unknown hardware: `H101`
    hint: did you mean `H100`? `blis hardware` lists them; or describe one in a file and give `--hardware-config`
    ");
    insta::assert_snapshot!(refused(LLAMA, |args| args.vllm_version = Some("v0.8.5".into())), @r"
    unknown vLLM version: `v0.8.5`
    hint: did you mean `v0.8.4`? known: v0.10.1.1, v0.11.0, v0.8.4
    ");
    insta::assert_snapshot!(
        refused(LLAMA, |args| {
            args.vllm_version = Some("v0.11.0".into());
            args.tensor_parallel_size = Some(2);
        }),
        @r"
    no blackbox coefficients for `llama-3.1-8b-instruct` on hardware any, tensor parallel size 2, vLLM v0.11.0
    hint: there are some for A100-80 tp1 v0.8.4, A100-80 tp2 v0.8.4, A100-80 tp4 v0.8.4, H100 tp1 v0.11.0, H100 tp1 v0.8.4, H100 tp2 v0.8.4, H100 tp4 v0.8.4; or give `--beta-coeffs`
    "
    );
    insta::assert_snapshot!(
        refused("qwen3-30b-a3b", |args| args.moe_comm_backend = Some("deepep".into())), @r"
    unknown MoE communication backend: `deepep`
    hint: did you mean `deepep_low_latency`? known: naive, allgather_reducescatter, pplx, deepep_high_throughput, deepep_low_latency, mori, flashinfer_all2allv
    ");
}

#[test]
fn expert_options_need_experts() {
    insta::assert_snapshot!(refused(LLAMA, |args| args.enable_expert_parallel = true), @r"
    `--enable-expert-parallel` needs a mixture-of-experts model and the physics or trained-physics latency model
    hint: drop `--enable-expert-parallel`
    ");
    insta::assert_snapshot!(refused(LLAMA, |args| args.data_parallel_size = 2), @r"
    physics for `llama-3.1-8b-instruct` on H100: data parallel size 2 needs a mixture-of-experts model and the physics or trained-physics latency model
    hint: drop `--data-parallel-size`: 2 replicas of a dense model are `--num-instances 2`
    ");
    let step = |backend: &str| {
        let deployment = with("qwen3-30b-a3b", |args| {
            args.tensor_parallel_size = Some(2);
            args.data_parallel_size = 2;
            args.enable_expert_parallel = true;
            args.moe_comm_backend = Some(backend.into());
        });
        let batch = Batch { prefill_requests: 1, prefill_tokens: 4000, ..Batch::default() };
        deployment.unwrap().latency.step_time(&batch)
    };
    assert!(step("pplx") > step("naive"), "each token travels to eight experts");
    assert_eq!(step("naive"), step("allgather_reducescatter"));
}

#[test]
fn numbers_out_of_range_are_refused() {
    insta::assert_snapshot!(refused(LLAMA, |args| args.gpu_memory_utilization = Some(1.5)), @r"
    `--gpu-memory-utilization` is 1.5
    hint: it must lie in (0, 1]
    ");
    insta::assert_snapshot!(refused(LLAMA, |args| args.block_size = 0), @r"
    `--block-size` is 0
    hint: it must be at least 1
    ");
    insta::assert_snapshot!(refused(LLAMA, |args| args.tensor_parallel_size = Some(0)), @r"
    `--tensor-parallel-size` is 0
    hint: it must be at least 1
    ");
    insta::assert_snapshot!(refused(LLAMA, |args| args.total_kv_blocks = Some(1 << 32)), @r"
    `--total-kv-blocks` is 4294967296
    hint: there must be 1 to 4294967295 KV blocks
    ");
    insta::assert_snapshot!(refused("meta-llama/", |_| {}), @r"
    `--model` is blank
    hint: `blis models` lists the names that are known
    ");
    assert!(with(LLAMA, |args| args.gpu_memory_utilization = Some(f64::NAN)).is_err());
}

#[test]
fn the_context_is_the_models_unless_the_cache_is_smaller() {
    let length = |given, blocks| {
        let deployment = with(LLAMA, |args| {
            args.max_model_len = given;
            args.total_kv_blocks = Some(blocks);
        });
        deployment.unwrap().max_model_len
    };
    assert_eq!(length(None, 20_000), Some(131_072));
    assert_eq!(length(Some(0), 100), Some(1600));
    assert_eq!(length(Some(4096), 20_000), Some(4096));
    assert_eq!(length(Some(4096), 100), Some(1600), "a given length is capped too, with a note");
}

#[test]
fn folders_of_the_command_line_come_first() {
    let folder = std::env::temp_dir().join(format!("blis-config-test-{}", std::process::id()));
    std::fs::create_dir_all(folder.join("mine")).unwrap();
    let config = super::super::embedded::model_config("llama-3.1-8b-instruct").unwrap();
    std::fs::write(
        folder.join("mine/config.json"),
        config.replace("\"num_hidden_layers\": 32", "\"num_hidden_layers\": 16"),
    )
    .unwrap();
    std::fs::write(folder.join("small.yaml"), "tflops_fp16: 100\nhbm_tb_s: 1\nmemory_gib: 40\n").unwrap();
    let here = |args: &mut DeploymentArgs| {
        args.model_config_folder = Some(folder.clone());
        args.hardware_config = Some(folder.join("small.yaml"));
    };
    let mine = with("x/mine", here).unwrap();
    assert_eq!((mine.hardware.as_str(), mine.tensor_parallel_size), ("small", 1), "the only GPU given is meant");
    let absent = with(LLAMA, here).unwrap_err().to_string();
    assert!(absent.contains("no config.json of `llama-3.1-8b-instruct` in this folder"), "{absent}");
    let roofline = |args: &mut DeploymentArgs| {
        here(args);
        args.latency_model = Some(LatencyKind::Roofline);
    };
    insta::assert_snapshot!(refused("x/mine", roofline), @r"
    roofline for `mine` on small: roofline needs `mfu_prefill` and `mfu_decode`
    hint: add them to the hardware file, each in (0, 1]
    ");
    std::fs::remove_dir_all(&folder).unwrap();
}

/// 70B in BF16 is 131 GiB: 2 H100 at 0.9.
#[test]
fn the_share_of_memory_never_changes_the_tensor_parallel_size() {
    const LARGE: &str = "meta-llama/llama-3.1-70b-instruct";
    for share in [0.87, 0.9, 0.95, 1.0] {
        let deployment = with(LARGE, |args| args.gpu_memory_utilization = Some(share)).unwrap();
        assert_eq!(deployment.tensor_parallel_size, with(LARGE, |_| ()).unwrap().tensor_parallel_size, "{share}");
    }
    let refused = with(LARGE, |args| args.gpu_memory_utilization = Some(0.3)).unwrap_err().to_string();
    assert!(refused.contains("raise `--gpu-memory-utilization` from 0.3"), "{refused}");
}

/// The weights of Qwen3-32B leave 7 GiB of an H100.
#[test]
fn the_limits_of_a_batch_never_change_the_tensor_parallel_size() {
    let sized = |model: &str, budget: Option<u32>, seqs: Option<u32>| {
        with(model, |args| {
            args.batch.engine = Some(EngineProfile::Vllm033);
            args.batch.max_num_batched_tokens = budget;
            args.batch.max_num_seqs = seqs;
        })
    };
    let mut refused = Vec::new();
    for model in ["qwen3-32b", "llama-3.1-70b-instruct", "mixtral-8x7b-v0.1", "llama-4-scout-17b-16e-instruct"] {
        let usual = sized(model, None, None).unwrap().tensor_parallel_size;
        for budget in [1, 256, 2048, 16_384, 65_536, 262_144, 1_000_000] {
            match sized(model, Some(budget), Some(1)) {
                Ok(deployment) => assert_eq!(deployment.tensor_parallel_size, usual, "{model} {budget}"),
                Err(error) => refused.push(error.to_string()),
            }
        }
        for seqs in [1, 64, 100_000] {
            match sized(model, None, Some(seqs)) {
                Ok(deployment) => assert_eq!(deployment.tensor_parallel_size, usual, "{model} {seqs}"),
                Err(error) => refused.push(error.to_string()),
            }
        }
    }
    insta::assert_snapshot!(refused.join("\n"), @r"
    `llama-4-scout-17b-16e-instruct`: the model does not fit: it needs 299.4 GiB, and 4 GPU(s) offer 291.4 GiB; vLLM: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine.
    hint: lower `--max-num-seqs` from 100000: with the default 1024 it fits; or use more GPUs (`--tensor-parallel-size`)
    ");
}

/// Of configs with the keys of GPT-2, MPT, DBRX, Falcon-7B, Bloom: what is missing, and which key it has instead.
#[test]
fn keys_of_other_architectures_are_named() {
    let folder = std::env::temp_dir().join(format!("blis-config-foreign-{}", std::process::id()));
    let refused = |config: &str| {
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("config.json"), config).unwrap();
        let refused = refused("x/mine", |args| args.model_config_folder = Some(folder.clone()));
        refused.replace(&folder.display().to_string(), "folder")
    };
    let gpt2 = r#"{"n_embd": 768, "n_head": 12, "n_layer": 12, "vocab_size": 50257}"#;
    insta::assert_snapshot!(refused(gpt2), @r"
    folder/config.json: `num_hidden_layers`, `hidden_size`, `num_attention_heads`, `intermediate_size`, `torch_dtype` are missing or zero
    hint: the config has other keys: `n_layer` for `num_hidden_layers`, `n_embd` for `hidden_size`, `n_head` for `num_attention_heads`; add the usual ones, whose values follow from the model's code
    ");
    let mpt = r#"{"d_model": 4096, "n_heads": 32, "n_layers": 32, "vocab_size": 50432, "expansion_ratio": 4,
                  "attn_config": {"attn_impl": "triton"}, "torch_dtype": "bfloat16"}"#;
    insta::assert_snapshot!(refused(mpt), @r"
    folder/config.json: `num_hidden_layers`, `hidden_size`, `num_attention_heads`, `num_key_value_heads`, `intermediate_size` are missing or zero
    hint: the config has other keys: `n_layers` for `num_hidden_layers`, `d_model` for `hidden_size`, `n_heads` for `num_attention_heads`, `attn_config` for `num_key_value_heads`, `expansion_ratio` for `intermediate_size`; add the usual ones, whose values follow from the model's code
    ");
    let falcon = r#"{"hidden_size": 4544, "num_attention_heads": 71, "num_hidden_layers": 32, "vocab_size": 65024,
                     "multi_query": true, "num_kv_heads": 71, "torch_dtype": "bfloat16"}"#;
    insta::assert_snapshot!(refused(falcon), @r#"
    folder/config.json: `num_key_value_heads` is missing, and `multi_query` is true
    hint: add `"num_key_value_heads": 1`: all query heads share one KV head
    "#);
    insta::assert_snapshot!(refused(&falcon.replace("num_kv_heads\": 71", "num_key_value_heads\": 1")), @r"
    folder/config.json: `intermediate_size` is missing or zero
    hint: add it: every model has one
    ");
    let bloom =
        r#"{"hidden_size": 4096, "n_head": 32, "n_layer": 30, "vocab_size": 250880, "torch_dtype": "bfloat16"}"#;
    insta::assert_snapshot!(refused(bloom), @r"
    folder/config.json: `num_hidden_layers`, `num_attention_heads`, `intermediate_size` are missing or zero
    hint: the config has other keys: `n_layer` for `num_hidden_layers`, `n_head` for `num_attention_heads`; add the usual ones, whose values follow from the model's code
    ");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn listed_defaults_are_those_of_the_deployment() {
    for &kind in LatencyKind::VARIANTS {
        let deployment = with(LLAMA, |args| args.latency_model = Some(kind)).unwrap();
        let listed: Vec<f64> = latency_parameters::parameters(kind).iter().map(|parameter| parameter.default).collect();
        let resolved = [deployment.alpha, deployment.beta].concat();
        assert_eq!(listed, if kind == LatencyKind::Roofline { Vec::new() } else { resolved }, "{kind}");
    }
}

/// The notes about a GPU's kernels and links.
fn kernel_notes_of(hardware: &str, tensor: u32) -> String {
    let deployment = with(LLAMA, |args| {
        args.hardware = Some(hardware.into());
        args.tensor_parallel_size = Some(tensor);
        args.total_kv_blocks = Some(10_000);
    });
    let about = ["kernel", "links", "GPUs are"];
    let notes = deployment.unwrap().notes;
    notes.into_iter().filter(|note| about.iter().any(|word| note.contains(word))).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_gpu_that_was_not_measured_says_whose_kernels_and_links_it_has() {
    let own = kernel_notes_of("H100", 1);
    assert!(own.starts_with("kernels of H100: fitted 2026-") && own.lines().count() == 1, "{own}");
    let l4 = kernel_notes_of("nvidia l4", 2);
    let kernels = "kernel efficiencies of L4 are not measured: those of L40S are used, as shares of the peaks of L4; the error is unknown \
                   (L40S: fitted 2026-";
    let links = "links of L4 are not measured: those of L40S are used (fitted 2026-";
    assert!(l4.lines().any(|note| note.starts_with(kernels)) && l4.lines().any(|note| note.starts_with(links)), "{l4}");
    // GB200 has links of its own and the kernels of B200.
    let gb200 = kernel_notes_of("GB200", 4);
    assert!(gb200.contains("those of B200 are used") && gb200.contains("links of GB200: fitted 2026-"), "{gb200}");
}

#[test]
fn collectives_between_nodes_are_noted_and_cost_time() {
    let crossing = "16 GPUs are 2 nodes of 8: their collectives cross InfiniBand NDR, 50 GB/s per GPU and direction and 10 µs per \
                    message (NVIDIA DGX H100 data sheet";
    let notes = kernel_notes_of("H100", 16);
    assert!(notes.lines().any(|note| note.starts_with(crossing)), "{notes}");
    assert!(!kernel_notes_of("H100", 8).contains("nodes of"));
    // All-reduces of 16 GPUs cross the network twice per layer and direction: 32 layers × 2 × 2 messages of 10 µs at least. The
    // other kernels become faster, but by less.
    let step = |tensor| {
        let deployment = with(LLAMA, |args| {
            args.tensor_parallel_size = Some(tensor);
            args.total_kv_blocks = Some(10_000);
        });
        deployment.unwrap().latency.step_time(&Batch { decode_requests: 8, decode_context: 8_000, ..Batch::default() })
    };
    assert!(step(16) > step(8) && step(16) < step(8) + Micros(2_000), "{:?} {:?}", step(16), step(8));
}

/// Step times in µs, recorded when runs of these models were equal, to the microsecond, to runs of the program that knew
/// only equal layers (commit 41d3543).
#[test]
fn models_of_equal_layers_keep_their_step_times() {
    let mut batches = Vec::new();
    for (requests, context) in [(1, 100), (17, 1_234), (256, 900)] {
        batches.push(Batch { decode_requests: requests, decode_context: requests * context, ..Batch::default() });
    }
    let mut mixed = batches[1];
    mixed.add_prefill(700, 3_000, 3_700);
    batches.push(mixed);
    let mut lines = String::new();
    for (model, hardware, tp) in [
        ("llama-3.1-8b-instruct", "H100", 1),
        ("llama-3.1-70b-instruct", "H100", 4),
        ("yi-34b", "A100-SXM", 2),
        ("qwen3-30b-a3b", "H100", 2),
        ("mixtral-8x7b-v0.1", "H100", 2),
        ("phi-4-fp8-dynamic", "L40S", 1),
        ("qwen2.5-7b-instruct-quantized.w4a16", "H100", 1),
    ] {
        let deployment = with(model, |args| {
            args.hardware = Some(hardware.into());
            args.tensor_parallel_size = Some(tp);
            args.latency_model = Some(LatencyKind::Physics);
            args.total_kv_blocks = Some(10_000);
        });
        let latency = deployment.unwrap().latency;
        let times: Vec<String> = batches.iter().map(|batch| latency.step_time(batch).0.to_string()).collect();
        lines += &format!("{model} {hardware} {tp}: {}\n", times.join(" "));
    }
    insta::assert_snapshot!(lines);
}
