//! What is measured, and what it is compared with.
//!
//! The published figures were measured with the same loads on two shared 2.6 GHz cores.

use std::path::{Path, PathBuf};

/// How long a scenario takes, which decides how often it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// Well below a second.
    Quick,
    /// About a second; minutes under valgrind, which is left out.
    Large,
}

/// One way to call `blis`.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub name: String,
    /// What it is, for whoever reads the table.
    pub what: &'static str,
    pub arguments: Vec<String>,
    pub size: Size,
    pub target: Target,
    /// What others need.
    pub published: &'static str,
}

/// Limits a scenario has to keep; `None` where there is none.
#[derive(Clone, Copy, Debug, Default)]
pub struct Target {
    /// CPU seconds of the whole process.
    pub cpu_s: Option<f64>,
    /// Peak memory, 10⁶ bytes.
    pub peak_mb: Option<f64>,
}

/// Scenarios whose figures are compared with each other.
pub const CHAT: &str = "chat 10k";
pub const CHAT_PLAIN: &str = "chat 10k, plain";
pub const CHAT_100K: &str = "chat 100k";
pub const CHAT_1M: &str = "chat 1M";
pub const FIXED: &str = "512/256 10k";
pub const FIXED_PLAIN: &str = "512/256 10k, plain";

/// Every scenario that can be run here.
pub fn all() -> Vec<Scenario> {
    let mut scenarios = vec![start_up()];
    scenarios.extend(chat());
    scenarios.extend(fixed_lengths());
    scenarios.extend(traces());
    scenarios
}

fn start_up() -> Scenario {
    let arguments = "--workload chatbot --rate 20 --num-requests 1";
    Scenario { what: "one request: what every run pays", ..scenario("start-up", arguments) }
}

/// The preset `chatbot`: prompts and answers of 256 ± 100 tokens (cut-off Gaussians), 20 requests
/// per second, evenly spaced; llama-3.1-8b on one H100.
fn chat() -> [Scenario; 4] {
    let chat = |name, number: u32, more| {
        let arguments = format!("--workload chatbot --rate 20 --num-requests {number} {more}");
        Scenario { what: "256 in / 256 out on average, 20 req/s", ..scenario(name, &arguments) }
    };
    [
        Scenario {
            // 400 000 requests per CPU second.
            target: Target { cpu_s: Some(0.025), peak_mb: Some(40.0) },
            published: "BLIS (Go): 1.70 s, 241 MB; floor 0.01 s",
            ..chat(CHAT, 10_000, "")
        },
        Scenario {
            what: "the same, every request touched at every step",
            ..chat(CHAT_PLAIN, 10_000, "--engine plain")
        },
        chat(CHAT_100K, 100_000, ""),
        Scenario { size: Size::Large, ..chat(CHAT_1M, 1_000_000, "") },
    ]
}

/// Exactly 512 in / 256 out; 20 requests per second keep about 45 of 256 places busy.
fn fixed_lengths() -> [Scenario; 2] {
    let lengths = "--prompt-tokens 512 --prompt-tokens-stdev 0 --output-tokens 256 --output-tokens-stdev 0";
    let fixed = |name, more| {
        let arguments = format!("{lengths} --rate 20 --num-requests 10000 {more}");
        Scenario { what: "exactly 512 in / 256 out, 20 req/s", ..scenario(name, &arguments) }
    };
    [
        Scenario {
            target: Target { cpu_s: Some(0.03), peak_mb: Some(25.0) },
            published: "fastest simulator known: 0.30 s, 14 MB",
            ..fixed(FIXED, "")
        },
        Scenario { what: "the same, every request touched at every step", ..fixed(FIXED_PLAIN, "--engine plain") },
    ]
}

/// Real traces, where `../shared` is beside the repository.
fn traces() -> Vec<Scenario> {
    let known = [
        ("azure conv", "azure-2023/AzureLLMInferenceTrace_conv.csv", "one hour, 19 366 requests", Some(0.10)),
        ("azure code", "azure-2023/AzureLLMInferenceTrace_code.csv", "one hour, 8 819 requests", None),
        ("mooncake", "mooncake/synthetic_trace.jsonl", "3 993 requests, shared prefixes", Some(0.25)),
    ];
    let mut found = Vec::new();
    for (name, file, what, cpu_s) in known {
        let Some(path) = shared(&format!("data/traces/{file}")) else { continue };
        let mut trace = scenario(name, "");
        trace.arguments.extend(["--workload-trace".to_owned(), path.display().to_string()]);
        found.push(Scenario { what, target: Target { cpu_s, peak_mb: None }, ..trace });
    }
    found
}

fn scenario(name: &str, arguments: &str) -> Scenario {
    let always = "run --model meta-llama/llama-3.1-8b-instruct --output json --log error";
    let arguments = always.split(' ').chain(arguments.split_whitespace()).map(str::to_owned).collect();
    Scenario { name: name.to_owned(), what: "", arguments, size: Size::Quick, target: Target::default(), published: "" }
}

/// `../shared/<path>` if it is there.
fn shared(path: &str) -> Option<PathBuf> {
    let full = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared").join(path);
    if full.exists() {
        return full.canonicalize().ok();
    }
    eprintln!("skipped: {} is not there", full.display());
    None
}
