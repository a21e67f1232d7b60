//! The same policy makes the same decisions in every language and technology.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use serde_json::Value;

use crate::macros::{Scratch, blis, root};

/// Enough requests for every queue to fill and empty, on 16 instances unless there are to be [`MANY`].
const SERVICE: &str = "--model meta-llama/llama-3.1-8b-instruct --workload chatbot --prefix-tokens 512 --output json \
                       --log error";
const USUAL: &str = "--num-instances 16 --rate 500 --num-requests 5000";
const MANY: &str = "--num-instances 50 --rate 1500 --num-requests 20000";

#[test]
#[ignore = "heavy: `.ci/run` runs it in a step of its own"]
fn least_loaded_is_the_same_in_every_technology() {
    let built_in = placements("least-loaded", "");
    assert!(built_in.iter().any(|instance| instance != &built_in[0]), "they go to different instances");
    assert_eq!(placements("rust-least-loaded", ""), built_in, "Rust, component");
    assert_eq!(placements("c-least-loaded", ""), built_in, "C, component");
    assert_eq!(placements("rhai-least-loaded", ""), built_in, "Rhai");
    if let Some(library) = library("least-loaded") {
        assert_eq!(placements(&library, "--allow-native"), built_in, "Rust, native");
    }
}

/// So many that they do not look at all, but at those that changed.
#[test]
#[ignore = "heavy: `.ci/run` runs it in a step of its own"]
fn least_loaded_is_the_same_among_many() {
    let built_in = placements("least-loaded", MANY);
    assert!(built_in.iter().any(|instance| instance.ends_with("_49")), "all instances are used");
    assert_eq!(placements("rust-least-loaded", MANY), built_in, "Rust, component");
    assert_eq!(placements("c-least-loaded", MANY), built_in, "C, component");
    if let Some(library) = library("least-loaded") {
        assert_eq!(placements(&library, &format!("{MANY} --allow-native")), built_in, "Rust, native");
    }
}

#[test]
fn weighted_is_the_same_in_every_technology() {
    let built_in = placements("weighted", "");
    assert_eq!(placements("rust-weighted-prefix", ""), built_in, "Rust, component");
    assert_eq!(placements("prefix-then-load", ""), built_in, "Rhai");
    if let Some(library) = library("weighted-prefix") {
        assert_eq!(placements(&library, "--allow-native"), built_in, "Rust, native");
    }
}

#[test]
fn parameters_reach_every_technology() {
    let memory_alone = "--policy-param routing.cache=0 --policy-param routing.queue=0";
    let script = placements("prefix-then-load", memory_alone);
    assert_ne!(script, placements("prefix-then-load", ""), "they change something");
    assert_eq!(script, placements("weighted", "--routing-scorers kv-utilization:1"));
    let declared = ["cache", "queue", "memory"];
    let message = run("rust-weighted-prefix", "--policy-param routing.nonsense=1");
    assert!(message.contains("no parameter `nonsense`"), "{message}");
    assert!(declared.iter().any(|name| message.contains(name)), "{message}");
}

/// The instance that served each request.
fn placements(policy: &str, flags: &str) -> Vec<String> {
    let folder = Scratch::new();
    let message = run(policy, &format!("{flags} --metrics-path {}", folder.path("m.json")));
    let text = fs::read_to_string(folder.join("m.json")).unwrap_or_else(|error| panic!("{policy}: {error}: {message}"));
    let metrics: Value = serde_json::from_str(&text).expect("JSON");
    let requests = metrics["requests"].as_array().expect("requests");
    let mut placed: Vec<(u64, String)> = requests
        .iter()
        .map(|request| {
            let id = request["requestID"].as_str().and_then(|id| id.strip_prefix("request_")).expect("an id");
            (id.parse().expect("a number"), request["handled_by"].as_str().expect("an instance").to_owned())
        })
        .collect();
    placed.sort();
    let expected = if flags.contains("--num-requests") { 20_000 } else { 5000 };
    assert_eq!(placed.len(), expected, "{policy}");
    placed.into_iter().map(|(_, instance)| instance).collect()
}

/// What is printed on standard error.
fn run(policy: &str, flags: &str) -> String {
    let size = if flags.contains("--num-instances") { "" } else { USUAL };
    blis!("run --routing-policy", policy, SERVICE, size, flags).stderr
}

/// The example plugin of that name as a native library, built as its author would.
fn library(name: &str) -> Option<String> {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let folder = BUILT.get_or_init(|| {
        let folder = root().join("target/native-plugins");
        let built = Command::new(env!("CARGO"))
            .args([
                "build",
                "--offline",
                "--profile",
                "native",
                "-p",
                "least-loaded",
                "-p",
                "weighted-prefix",
                "--target-dir",
            ])
            .arg(&folder)
            .current_dir(root())
            .output()
            .expect("cargo starts");
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        folder
    });
    let file = format!("{}{}{}", std::env::consts::DLL_PREFIX, name.replace('-', "_"), std::env::consts::DLL_SUFFIX);
    let library = folder.join("native").join(file);
    if !library.is_file() {
        return None; // none on this platform
    }
    Some(library.to_str().expect("UTF-8").to_owned())
}
