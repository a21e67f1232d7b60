//! The recorded plans and steps of vLLM 0.33's KV manager (`cases/vllm-groups`).

use std::io::Read;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::case::layers_of;
use super::{EngineKind, RecordedScenario, steps};
use blis_sim::kv::pages::{KvLayout, LayerRule, LayoutSettings, NeedsTooMuch, Packing, StartLimits, plan};

/// The folder of the recordings, if it is there.
fn recordings() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/cases/vllm-groups");
    if !folder.exists() {
        eprintln!("skipped: {} is not there", folder.display());
        return None;
    }
    Some(folder)
}

fn read(path: &Path) -> String {
    let file = std::fs::File::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut text = String::new();
    flate2::read::MultiGzDecoder::new(file).read_to_string(&mut text).expect("gzip");
    text
}

/// All 115 plans, from their layers: groups, pages, logged tokens, greatest length and refusals.
#[test]
fn plans_are_those_of_vllm() {
    let Some(folder) = recordings() else { return };
    let plans: Vec<Value> = serde_json::from_str(&read(&folder.join("tables.json.gz"))).expect("a list");
    let wrong: Vec<String> = plans.iter().filter_map(|plan| compare(plan).err()).collect();
    assert!(plans.len() >= 115, "{} plans", plans.len());
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), plans.len(), wrong.join("\n"));
}

fn compare(recorded: &Value) -> Result<(), String> {
    let (input, result) = (&recorded["input"], &recorded["result"]);
    let number = |value: &Value| value.as_u64().unwrap_or_default();
    let layers = layers_of(&recorded["layers"]).map_err(|error| error.to_string())?;
    let settings = LayoutSettings {
        hybrid: input["disable_hybrid_kv_cache_manager"] == false,
        prefix_caching: input["enable_prefix_caching"] == true,
        prefix_match_unit: input["prefix_match_unit"].as_u64().map(|unit| unit as u32),
        packing: if input["layout"] == "BLHNC" { Packing::BlocksOutermost } else { Packing::EqualPages },
    };
    let say = |what: String| Err(format!("{} {}: {what}", recorded["id"], input["model"]));
    let layout = match plan(&layers, settings) {
        Ok(layout) => layout,
        Err(error) => return say(error.to_string()),
    };
    let batches = 1 + u64::from(input["async_scheduling"] == true);
    let mut limits = StartLimits {
        max_model_len: number(&input["max_model_len"]) as u32,
        tokens_in_flight: number(&input["max_num_batched_tokens"]) * batches,
    };
    let available = number(&input["available_bytes"]);
    if input["auto_fit"] == true {
        match layout.auto_fit(available, limits) {
            Ok(length) => limits.max_model_len = length,
            Err(error) => return say(error.to_string()),
        }
        if Some(u64::from(limits.max_model_len)) != result["max_model_len"].as_u64() {
            return say(format!("length {} expected {}", limits.max_model_len, result["max_model_len"]));
        }
    }
    match (layout.blocks(available, limits), result["refused"].as_str()) {
        (Err(error), Some(refused)) => same_refusal(&error, refused).or_else(say),
        (Err(error), None) => say(format!("refused: {error}")),
        (Ok(_), Some(refused)) => say(format!("started; vLLM: {refused}")),
        (Ok(blocks), None) => same_plan(&layout, blocks, limits, result).or_else(say),
    }
}

/// The leading sentence and all of its numbers.
fn same_refusal(error: &NeedsTooMuch, refused: &str) -> Result<(), String> {
    let until = |text: &str| text.split(" Try increasing").next().unwrap_or_default().to_owned();
    let (got, want) = (until(&error.to_string()), until(refused));
    if got == want { Ok(()) } else { Err(format!("{got}\n  expected {want}")) }
}

fn same_plan(layout: &KvLayout, blocks: u64, limits: StartLimits, result: &Value) -> Result<(), String> {
    let groups: Vec<Value> = layout
        .groups
        .iter()
        .map(|group| {
            serde_json::json!([group.rule.name(), group.block, group.layers, group.page_bytes, group.pages(limits)])
        })
        .collect();
    let expected: Vec<Value> = result["groups"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|group| {
            serde_json::json!([
                group["kind"],
                group["block"],
                group["layers"],
                group["page"],
                group["max_blocks_per_request"]
            ])
        })
        .collect();
    let got = serde_json::json!([
        blocks,
        layout.bytes_per_block,
        layout.logged_tokens(blocks, limits),
        layout.scheduler_block,
        layout.hash_block,
        layout.hit_alignment,
        groups
    ]);
    let keys = ["num_blocks", "bytes_per_block", "tokens", "scheduler_block", "hash_block", "hit_alignment"];
    let mut want: Vec<Value> = keys.iter().map(|&key| result[key].clone()).collect();
    want.push(Value::Array(expected));
    let concurrency = result["max_concurrency"].as_f64().unwrap_or_default();
    let close = (layout.max_concurrency(blocks, limits) - concurrency).abs() <= 1e-9 * concurrency.max(1.0);
    if got == Value::Array(want.clone()) && close {
        Ok(())
    } else {
        Err(format!("{got}\n  expected {}", Value::Array(want)))
    }
}

/// Scenarios that differ, with the first row that does; the issue knows of it.
const DIFFERENT: [(&str, usize); 1] = [("mimo-v2-flash-0", 231)];

/// Every row of every scenario by both engines.
#[test]
fn steps_are_those_of_vllm() {
    let Some(folder) = recordings() else { return };
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(&folder).expect("a folder").map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    let mut wrong = Vec::new();
    let mut scenarios = 0;
    for file in files {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let Some(name) = name.strip_suffix(".json.gz").filter(|name| !["tables", "hits"].contains(name)) else {
            continue;
        };
        scenarios += 1;
        let known = DIFFERENT.iter().find(|(different, _)| *different == name).map(|&(_, row)| row);
        for engine in [EngineKind::Plain, EngineKind::Fast] {
            let found = first_difference(&read(&file), engine);
            if found.as_ref().map(|(row, _)| *row) != known {
                wrong.push(format!("{name}, {engine:?}: {found:?}, known {known:?}"));
            }
        }
    }
    assert!(scenarios >= 70, "{scenarios} scenarios");
    assert!(wrong.is_empty(), "{} of {scenarios}:\n{}", wrong.len(), wrong.join("\n"));
}

fn first_difference(json: &str, engine: EngineKind) -> Option<(usize, String)> {
    let recorded: Value = serde_json::from_str(json).expect("JSON");
    let case = RecordedScenario::read(json).expect("a scenario");
    let done = serde_json::to_value(steps(&case, engine).expect("it runs")).expect("JSON");
    let rows = |value: &Value| value["steps"].as_array().cloned().unwrap_or_default();
    let (want, got) = (rows(&recorded), rows(&done));
    for (row, (want, got)) in want.iter().zip(&got).enumerate() {
        if want != got {
            return Some((row, format!("{got} expected {want}")));
        }
    }
    let last = want.len().min(got.len());
    if want.len() != got.len() {
        return Some((last, format!("{} rows expected {}", got.len(), want.len())));
    }
    (recorded["summary"] != done["summary"])
        .then(|| (last, format!("{} expected {}", done["summary"], recorded["summary"])))
}

/// A state group without prefix caching has one page per request, whatever its length.
#[test]
fn a_state_without_a_cache_is_one_page() {
    let layers = serde_json::json!([
        {"spec": {"kind": "mamba", "block": 4096, "mode": "none", "page_bytes": 65536}, "layers": ["a", "b"]},
        {"spec": {"kind": "full_attention", "block": 32, "page_bytes": 65536}, "layers": ["c", "d"]},
    ]);
    let layers = layers_of(&layers).expect("layers");
    let settings = LayoutSettings { prefix_caching: false, ..LayoutSettings::default() };
    let layout = plan(&layers, settings).expect("a layout");
    assert!(matches!(layout.groups[0].rule, LayerRule::State { .. }));
    let limits = StartLimits { max_model_len: 4096, tokens_in_flight: 2048 };
    assert_eq!(layout.groups.iter().map(|group| group.pages(limits)).collect::<Vec<_>>(), [1, 128]);
}

/// Numbers with which nothing can be planned are refused, not divided by.
#[test]
fn nonsense_is_refused() {
    let scenario = |config: &str, prompt: u32| {
        format!(
            r#"{{"config":{{"max_num_seqs":1,"max_num_batched_tokens":16,"num_blocks":9,"max_model_len":99,{config}}},
            "requests":[{{"id":"a","prompt":[[0,{prompt}]],"max_tokens":2,"arrival_step":0}}]}}"#
        )
    };
    let run = |json: &str| RecordedScenario::read(json).and_then(|scenario| steps(&scenario, EngineKind::Plain));
    assert!(run(&scenario(r#""block_size":16"#, 5)).is_ok());
    for (config, prompt) in [(r#""block_size":0"#, 5), (r#""block_size":16"#, 0), (r#""block_size":16"#, u32::MAX)] {
        assert!(run(&scenario(config, prompt)).is_err(), "{config} {prompt}");
    }
    assert!(run(&scenario(r#""policy":"fcfs""#, 5)).is_err(), "neither a block size nor groups");
}
