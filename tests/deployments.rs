//! Deployments and step times against the recorded results of BLIS (`shared/cases/blis`).

use std::path::{Path, PathBuf};

use blis_config::{Deployment, DeploymentArgs, KvBlocksSource, resolve};
use blis_sim::latency::Batch;
use serde_json::Value;

use crate::shared::{read, shared};

/// The cases with one instance: their folders and their entries in the manifest.
fn cases() -> Option<Vec<(PathBuf, Value)>> {
    let folder = shared("cases/blis")?;
    let manifest = read(&folder.join("manifest.json"));
    let manifest: Value = serde_json::from_str(&manifest).unwrap();
    let cases = manifest["cases"].as_array().unwrap().iter().cloned();
    let cases = cases.map(|case| (folder.join(case["name"].as_str().unwrap()), case));
    let single = |path: &Path| path.file_name().unwrap().to_str().unwrap().starts_with(['s', 'm']);
    Some(cases.filter(|(path, _)| single(path)).collect())
}

fn deploy(flags: &Value) -> Deployment {
    let text = |key: &str| flags[key].as_str().map(str::to_owned);
    let number = |key: &str| flags[key].as_u64();
    let list = |key: &str| text(key).map(|list| list.split(',').map(|value| value.parse().unwrap()).collect());
    let mut args = DeploymentArgs::new(text("model").unwrap());
    args.hardware = text("hardware");
    args.tensor_parallel_size = number("tp").map(|tp| tp as u32);
    args.latency_model = text("latency-model").map(|kind| kind.parse().unwrap());
    args.alpha_coeffs = list("alpha-coeffs");
    args.beta_coeffs = list("beta-coeffs");
    args.total_kv_blocks = number("total-kv-blocks");
    args.max_model_len = number("max-model-len").map(|length| length as u32);
    args.block_size = number("block-size-in-tokens").unwrap_or(16) as u32;
    resolve(&args).unwrap()
}

#[test]
fn deployments_are_those_of_blis() {
    let Some(cases) = cases() else { return };
    for (path, case) in &cases {
        let (flags, effective) = (&case["flags"], &case["effective"]);
        let deployment = deploy(flags);
        let name = path.display();
        let list = |key: &str| -> Vec<f64> {
            let text = effective[key].as_str().unwrap().trim_matches(['[', ']']);
            text.split(' ').map(|value| value.parse().unwrap()).collect()
        };
        assert_eq!(deployment.alpha, list("alpha"), "{name}");
        assert_eq!(deployment.beta, list("beta"), "{name}");
        assert_eq!(effective["kv_blocks"], deployment.total_kv_blocks.to_string(), "{name}");
        let computed = deployment.kv_blocks_source == KvBlocksSource::Computed;
        assert_eq!(computed, effective.get("total_kv_blocks_auto").is_some(), "{name}");
        let length = effective["max_model_len_auto"].as_str().map(|length| length.parse().unwrap());
        let given = flags["max-model-len"].as_u64().map(|length| length as u32);
        assert_eq!(deployment.max_model_len, length.or(given), "{name}");
    }
    assert!(cases.len() > 20, "only {} cases", cases.len());
}

#[test]
fn every_step_takes_what_it_takes_in_blis() {
    let Some(cases) = cases() else { return };
    let mut compared = 0;
    for (path, case) in cases {
        let mut left_out = ["lora-config", "kv-cpu-blocks", "kv-offload-config"].into_iter();
        if left_out.any(|flag| case["flags"].get(flag).is_some()) {
            continue; // durations include KV transfers or adapters
        }
        let latency = deploy(&case["flags"]).latency;
        let steps = read(&path.join("steps.csv"));
        let mut in_case = 0;
        for line in steps.lines().skip(1) {
            let cells: Vec<&str> = line.split(',').collect();
            let expected: u64 = cells[3].parse().unwrap();
            assert_eq!(latency.step_time(&batch(cells[8])).0, expected, "{}: {line}", path.display());
            in_case += 1;
        }
        assert_eq!(Some(in_case), case["n_steps"].as_u64(), "{}", path.display());
        compared += in_case;
    }
    eprintln!("{compared} steps compared");
    assert!(compared > 20_000);
}

/// `id:progress before:new tokens:input;…`
fn batch(items: &str) -> Batch {
    let mut batch = Batch::default();
    for item in items.split(';').filter(|item| !item.is_empty()) {
        let mut numbers = item.split(':').skip(1).map(|number| number.parse::<u32>().unwrap());
        let [progress, new_tokens, input] = std::array::from_fn(|_| numbers.next().unwrap());
        match new_tokens {
            0 => {}
            n if progress < input => batch.add_prefill(n, progress, input),
            _ => batch.add_decode(progress),
        }
    }
    batch
}
