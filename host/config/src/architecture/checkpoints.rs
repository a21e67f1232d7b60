//! Every `config.json` of `shared/reference`, against the sizes of `shared/reference/architectures/architectures.md` §1.

use std::path::{Path, PathBuf};

use blis_sim::architecture::{CacheKind, Mlp};
use blis_sim::model::ModelConfig;
use serde_json::Value;

use super::of_sidecar;
use crate::model::{LoadedModel, parse_beside};

/// What a model of the table has; `kv`: layers of each kind with the bytes of a token in all of them, 16 bits.
struct CheckpointRow {
    file: &'static str,
    parameters: f64,
    experts: f64,
    kv: &'static [Kv],
}

/// A kind of cache: number of layers, and bytes of a token in all of them; of a state, bytes per layer.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Kv {
    kind: &'static str,
    layers: u32,
    bytes: f64,
}

const fn kv(kind: &'static str, layers: u32, bytes: f64) -> Kv {
    Kv { kind, layers, bytes }
}

const fn row(file: &'static str, parameters: f64, experts: f64, kv: &'static [Kv]) -> CheckpointRow {
    CheckpointRow { file, parameters, experts, kv }
}

/// Parameters of the text model: of the two Gemma 3, those of the table less 438 298 688 and 435 054 656 of the encoder; 0 where the
/// table has none.
#[rustfmt::skip]
const TABLE: &[CheckpointRow] = &[
    row("google--gemma-2-9b", 9_241_705_984.0, 0.0, &[kv("window 4096", 21, 172_032.0), kv("full", 21, 172_032.0)]),
    row("google--gemma-3-27b-it", 27_009_346_304.0, 0.0, &[kv("window 1024", 52, 425_984.0), kv("full", 10, 81_920.0)]),
    row("google--gemma-3-4b-it", 3_880_263_168.0, 0.0, &[kv("window 1024", 29, 118_784.0), kv("full", 5, 20_480.0)]),
    row("google--gemma-4-26B-A4B", 25_233_141_760.0, 0.0, &[kv("window 1024", 25, 204_800.0), kv("full", 5, 20_480.0)]),
    row("LGAI-EXAONE--EXAONE-4.0-32B", 32_003_216_384.0, 0.0, &[kv("window 4096", 48, 196_608.0), kv("full", 16, 65_536.0)]),
    row("mistralai--Mistral-7B-v0.1", 7_241_732_096.0, 0.0, &[kv("window 4096", 32, 131_072.0)]),
    row("baidu--ERNIE-4.5-21B-A3B-PT", 21_825_437_888.0, 20_384_317_440.0, &[kv("full", 28, 57_344.0)]),
    row("tencent--Hunyuan-A13B-Instruct", 80_393_183_232.0, 77_309_411_328.0, &[kv("full", 32, 131_072.0)]),
    row("MiniMaxAI--MiniMax-M2.7", 228_689_748_992.0, 224_680_476_672.0, &[kv("full", 62, 253_952.0)]),
    row("MiniMaxAI--MiniMax-M2.5", 228_689_748_992.0, 224_680_476_672.0, &[kv("full", 62, 253_952.0)]),
    row("MiniMaxAI--MiniMax-M3", 426.2e9, 413.1e9, &[kv("full", 60, 122_880.0), kv("block index", 57, 14_592.0)]),
    row("XiaomiMiMo--MiMo-V2-Flash", 308_778_768_832.0, 302_795_194_368.0, &[kv("full", 9, 23_040.0), kv("window 128", 39, 199_680.0)]),
    row("ibm-granite--granite-4.0-h-small", 32_207_337_984.0, 27_179_089_920.0, &[kv("state", 36, 2_147_840.0), kv("full", 4, 16_384.0)]),
    row("nvidia--Nemotron-H-56B-Base-8K", 56_324_350_464.0, 0.0, &[kv("state", 54, 16_900_096.0), kv("full", 10, 40_960.0)]),
    row("nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", 31_577_937_344.0, 29_374_808_064.0, &[kv("state", 23, 2_134_016.0), kv("full", 6, 6_144.0)]),
    row("nvidia--NVIDIA-Nemotron-3-Super-120B-A12B-FP8", 120_668_687_360.0, 112_742_891_520.0, &[kv("state", 40, 4_255_744.0), kv("full", 8, 8_192.0)]),
    row("nvidia--NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16", 549_308_968_960.0, 515_396_075_520.0, &[kv("state", 48, 8_499_200.0), kv("full", 12, 12_288.0)]),
    row("moonshotai--Kimi-Linear-48B-A3B-Instruct", 49_122_675_072.0, 47_110_422_528.0, &[kv("state", 20, 2_170_880.0), kv("latent", 7, 8_064.0)]),
    row("moonshotai--Kimi-K3", 2_779e9, 2_722.7e9, &[kv("state", 69, 6_512_640.0), kv("latent", 24, 27_648.0)]),
    row("deepseek-ai--DeepSeek-V3.2", 671_877_929_216.0, 0.0, &[kv("latent", 61, 70_272.0), kv("index", 61, 8_052.0)]),
    row("deepseek-ai--DeepSeek-V4-Flash", 284_332_230_231.0, 277_025_390_592.0, &[]),
    row("deepseek-ai--DeepSeek-V4-Pro", 1_572_997_179_491.0, 1_547_396_186_112.0, &[]),
    row("zai-org--GLM-5", 743_911_199_232.0, 0.0, &[kv("latent", 78, 89_856.0), kv("index", 78, 10_296.0)]),
    row("zai-org--GLM-5.2", 743_377_000_704.0, 0.0, &[kv("latent", 78, 89_856.0), kv("index", 21, 2_772.0)]),
    row("tiiuae--falcon-7b", 6_921_720_704.0, 0.0, &[kv("full", 32, 8_192.0)]),
    row("tiiuae--falcon-40b", 41_303_293_952.0, 0.0, &[kv("full", 60, 122_880.0)]),
    row("facebook--opt-13b", 12_853_473_280.0, 0.0, &[kv("full", 40, 819_200.0)]),
    row("Qwen--Qwen3.5-27B", 26_895_998_464.0, 0.0, &[kv("state", 48, 3_207_168.0), kv("full", 16, 65_536.0)]),
    row("Qwen--Qwen3-Next-80B-A3B-Instruct", 79_674_391_296.0, 0.0, &[kv("state", 36, 1_097_728.0), kv("full", 12, 24_576.0)]),
    row("openai--gpt-oss-20b", 20_914_757_184.0, 0.0, &[kv("window 128", 12, 24_576.0), kv("full", 12, 24_576.0)]),
];

/// Bytes per weight of checkpoints in several formats: of any weight, attention, layers with a state, dense, experts; 0 for that of any.
#[rustfmt::skip]
const FORMATS: &[(&str, [f64; 5], bool)] = &[
    ("nvidia--DeepSeek-V3.1-NVFP4", [0.5625, 2.0, 0.0, 0.5625, 0.5625], true),
    ("nvidia--DeepSeek-V3.2-NVFP4", [0.5625, 2.0, 0.0, 0.5625, 0.5625], true),
    ("nvidia--GLM-5-NVFP4", [0.5625, 2.0, 0.0, 0.5625, 0.5625], true),
    ("nvidia--Qwen3-235B-A22B-NVFP4", [0.5625, 0.5625, 0.0, 0.5625, 0.5625], true),
    ("nvidia--MiniMax-M2.7-NVFP4", [0.5625, 2.0, 0.0, 0.5625, 0.5625], true),
    ("nvidia--Qwen3.5-397B-A17B-NVFP4", [0.5625, 0.5625, 2.0, 2.0, 0.5625], true),
    ("nvidia--MiniMax-M3-NVFP4", [2.0, 1.03125, 0.0, 1.03125, 0.5625], false),
    ("nvidia--DeepSeek-V4-Flash-NVFP4", [1.0, 0.0, 0.0, 0.0, 0.5625], false),
    ("deepseek-ai--DeepSeek-V4-Flash", [1.0, 0.0, 0.0, 0.0, 0.53125], false),
    ("moonshotai--Kimi-K3", [0.53125, 2.0, 0.0, 2.0, 0.0], false),
    ("nvidia--NVIDIA-Nemotron-3-Super-120B-A12B-FP8", [1.0, 0.0, 0.0, 0.0, 0.0], true),
    ("nvidia--NVIDIA-Nemotron-3.5-Lightning-30B-A3B-NVFP4", [2.0, 0.0, 1.0, 0.0, 0.5625], true),
];

/// The configs of `shared/reference`; `None` if the folder is not there.
fn configs() -> Option<Vec<PathBuf>> {
    let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/reference");
    let mut files = Vec::new();
    for folder in ["models", "architectures"] {
        let Ok(entries) = std::fs::read_dir(shared.join(folder)) else {
            println!("skipped: {} is not there", shared.display());
            return None;
        };
        let paths = entries.map(|entry| entry.unwrap().path());
        files.extend(paths.filter(|path| path.to_string_lossy().ends_with(".config.json")));
    }
    files.sort();
    Some(files)
}

fn name(path: &Path) -> String {
    path.file_name().unwrap().to_string_lossy().trim_end_matches(".config.json").to_owned()
}

fn read(path: &Path) -> Result<LoadedModel, String> {
    let text = std::fs::read_to_string(path).unwrap();
    let sidecar = path.to_string_lossy().replace(".config.json", ".hf_quant_config.json");
    let formats = std::fs::read_to_string(sidecar).ok().map(|text| {
        let Ok(Value::Object(keys)) = serde_json::from_str(&text) else { panic!("{text}") };
        of_sidecar(&keys).unwrap()
    });
    parse_beside(&name(path).to_lowercase(), path.to_owned(), &text, formats).map_err(|error| error.to_string())
}

/// Layers and bytes of each kind of cache, in the order of the layers.
fn caches(model: &ModelConfig) -> Vec<(String, u32, f64)> {
    let mut found: Vec<(String, u32, f64)> = Vec::new();
    for group in model.architecture().groups {
        for cache in group.attention.caches(1.0, 2.0, 2.0) {
            let kind = match cache.kind {
                CacheKind::Full => "full".to_owned(),
                CacheKind::Window(tokens) => format!("window {tokens}"),
                CacheKind::Latent => "latent".to_owned(),
                CacheKind::Index => "index".to_owned(),
                CacheKind::BlockIndex => "block index".to_owned(),
                CacheKind::State { .. } => "state".to_owned(),
                other => format!("{other:?}"),
            };
            let (count, state) = (f64::from(group.count), cache.request_bytes);
            match found.iter_mut().find(|(other, ..)| *other == kind) {
                Some((_, layers, bytes)) => {
                    *layers += group.count;
                    *bytes += count * cache.token_bytes;
                }
                None => found.push((kind, group.count, if state > 0.0 { state } else { count * cache.token_bytes })),
            }
        }
    }
    found
}

fn experts(model: &ModelConfig) -> f64 {
    let weights = |(layers, mlp): (f64, Mlp)| match mlp {
        Mlp::Experts(experts) => {
            layers * f64::from(experts.count) * experts.expert_weights(f64::from(model.hidden_size))
        }
        _ => 0.0,
    };
    model.architecture().mlps().into_iter().map(weights).sum()
}

#[test]
fn every_config_is_understood() {
    let Some(files) = configs() else { return };
    assert!(files.len() >= 62, "{}", files.len());
    let mut wrong = Vec::new();
    for path in &files {
        match read(path) {
            Err(error) => wrong.push(format!("{}: {error}", name(path))),
            Ok(model) => wrong.extend(model.warnings.iter().map(|warning| format!("{}: {warning}", name(path)))),
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn models_have_the_sizes_of_the_table() {
    let Some(files) = configs() else { return };
    let mut wrong = Vec::new();
    for row in TABLE {
        let path = files.iter().find(|path| name(path) == row.file).unwrap_or_else(|| panic!("{}", row.file));
        let Ok(LoadedModel { config, .. }) = read(path) else { continue };
        let tolerance = if row.parameters.rem_euclid(1e8) == 0.0 { 0.01 } else { 0.001 };
        let error = config.parameters().total / row.parameters - 1.0;
        if error.abs() > tolerance {
            wrong.push(format!("{}: {} parameters, {:.3} % off", row.file, config.parameters().total, 100.0 * error));
        }
        if row.experts > 0.0 && (experts(&config) / row.experts - 1.0).abs() > 1e-4 {
            wrong.push(format!("{}: experts {}", row.file, experts(&config)));
        }
        let found = caches(&config);
        let equal = |kv: &Kv| {
            found.iter().any(|(kind, layers, bytes)| (kind.as_str(), *layers, *bytes) == (kv.kind, kv.layers, kv.bytes))
        };
        if !row.kv.is_empty() && (!row.kv.iter().all(equal) || found.len() != row.kv.len()) {
            wrong.push(format!("{}: {found:?}", row.file));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// DeepSeek-V4-Flash: 3850 bytes per token that has left the window. DeepSeek-V3.2 with a cache in FP8: 656 bytes and 132 per layer.
#[test]
fn sparse_models_have_caches_of_their_own() {
    let Some(files) = configs() else { return };
    let of = |file: &str, kv_dtype_bytes: f64| -> f64 {
        let path = files.iter().find(|path| name(path) == file).unwrap();
        let groups = read(path).unwrap().config.architecture().groups;
        groups.iter().map(|group| f64::from(group.count) * group.attention.cached_bytes(8.0, kv_dtype_bytes)).sum()
    };
    assert_eq!(of("deepseek-ai--DeepSeek-V4-Flash", 1.0), 3850.25);
    assert_eq!(of("deepseek-ai--DeepSeek-V3.2", 1.0), 40_016.0 + 8_052.0);
}

#[test]
fn checkpoints_have_the_formats_of_their_files() {
    let Some(files) = configs() else { return };
    let mut wrong = Vec::new();
    for (file, expected, fp8_kv_cache) in FORMATS {
        let path = files.iter().find(|path| name(path) == *file).unwrap();
        let model = match read(path) {
            Ok(model) => model,
            Err(error) => {
                wrong.push(error);
                continue;
            }
        };
        let weights = model.config.architecture().weights;
        let classes = [weights.attention, weights.linear, weights.dense, weights.experts];
        let mut found = vec![model.config.weight_bytes];
        found.extend(classes.map(|class| class.unwrap_or(0.0)));
        let equal = |(expected, found): (&f64, &f64)| {
            expected == found || *expected == 0.0 && *found == model.config.weight_bytes
        };
        if !expected.iter().zip(&found).all(equal) || model.fp8_kv_cache != *fp8_kv_cache {
            wrong.push(format!("{file}: {found:?}, FP8 KV cache: {}", model.fp8_kv_cache));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
