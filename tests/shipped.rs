//! All shipped policies pass `blis plugin check`: those in `policies/`, and every whole script in a document.

use std::fs;
use std::path::PathBuf;

use crate::macros::{Scratch, blis, root};

fn check(plugin: &str) {
    let ended = blis!(["plugin", "check", plugin, "--no-cost", "--output", "text"]);
    assert_eq!(ended.code, Some(0), "{plugin}: {}{}", ended.stdout, ended.stderr);
}

#[test]
fn every_policy_that_is_found_by_name_passes_the_check() {
    let entries = fs::read_dir(root().join("policies")).expect("policies").map(|entry| entry.expect("an entry").path());
    let is_plugin =
        |path: &PathBuf| path.extension().is_some_and(|extension| extension == "rhai" || extension == "wasm");
    let plugins: Vec<PathBuf> = entries.filter(is_plugin).collect();
    assert!(plugins.len() >= 9, "{plugins:?}");
    for plugin in plugins {
        check(&plugin.display().to_string());
    }
}

/// Bundles name built-in policies and plugins.
#[test]
fn every_bundle_runs() {
    let entries = fs::read_dir(root().join("policies")).expect("policies").map(|entry| entry.expect("an entry").path());
    let is_bundle = |path: &PathBuf| {
        let name = path.to_string_lossy();
        name.ends_with(".yaml") && !name.ends_with(".test.yaml")
    };
    let bundles: Vec<PathBuf> = entries.filter(is_bundle).collect();
    assert!(bundles.len() >= 3, "{bundles:?}");
    for bundle in bundles {
        let flags = "run --model llama-3.1-8b-instruct --num-instances 2 --num-requests 5 --policy-config";
        assert_eq!(blis!(flags, bundle).json()["completed_requests"], 5);
    }
}

/// Blocks in ```` ```rhai ````, each of which is a whole policy.
#[test]
fn every_script_in_a_document_passes_the_check() {
    let scratch = Scratch::new();
    let mut checked = 0;
    let pages = [
        "README.md",
        "docs/plugins.md",
        "docs/policies.md",
        "docs/evaluate.md",
        "sdk/rhai/README.md",
        "sdk/python/README.md",
        "sdk/python/templates/shinka/interface.md",
    ];
    for page in pages {
        let text = fs::read_to_string(root().join(page)).expect("a document");
        for (number, block) in text.split("```rhai\n").skip(1).enumerate() {
            let script = block.split("```").next().unwrap_or_default();
            let name = format!("{}-{number}.rhai", page.replace(['/', '.'], "-"));
            check(&scratch.write(&name, script).display().to_string());
            checked += 1;
        }
    }
    assert!(checked >= 11, "only {checked}");
}

/// Seeds and examples that are files.
#[test]
fn every_script_file_passes_the_check() {
    let scripts = [
        "examples/built-ins/blackbox.rhai",
        "examples/built-ins/class.rhai",
        "examples/built-ins/gaie-legacy.rhai",
        "examples/built-ins/priority.rhai",
        "examples/built-ins/queue.rhai",
        "examples/built-ins/sjf.rhai",
        "examples/built-ins/weighted.rhai",
        "examples/policy-search/found.rhai",
        "sdk/python/templates/gepa/seed.rhai",
        "sdk/python/templates/openevolve/seed.rhai",
        "sdk/python/templates/shinka/seed.rhai",
        "sdk/python/templates/skydiscover/seed.rhai",
    ];
    for script in scripts {
        check(&root().join(script).display().to_string());
    }
}
