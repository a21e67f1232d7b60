//! The measured scenarios, their limits, and published figures for comparison.
//!
//! The published figures were measured with the same loads on two shared 2.6 GHz cores.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// Duration of a scenario, which decides how often it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScenarioSize {
    /// Well below a second.
    Quick,
    /// About a second; under valgrind it would take minutes, so it is left out there.
    Large,
}

/// One command line of `blis` with its limits.
#[derive(Clone, Debug)]
pub struct BenchScenario {
    pub name: String,
    /// Description for the readers of the table.
    pub what: &'static str,
    pub arguments: Vec<String>,
    pub size: ScenarioSize,
    pub target: ScenarioLimits,
    /// Published cost of other simulators, for comparison.
    pub published: &'static str,
}

/// Limits that a scenario has to meet; `None` where there is none.
#[derive(Clone, Copy, Debug, Default)]
pub struct ScenarioLimits {
    /// CPU seconds of the whole process.
    pub cpu_s: Option<f64>,
    /// Peak memory, 10⁶ bytes.
    pub peak_mb: Option<f64>,
}

/// Names of scenarios that are compared with each other.
pub const CHAT: &str = "chat 10k";
pub const CHAT_PLAIN: &str = "chat 10k, plain";
pub const CHAT_100K: &str = "chat 100k";
pub const CHAT_1M: &str = "chat 1M";
pub const FIXED: &str = "512/256 10k";
pub const FIXED_PLAIN: &str = "512/256 10k, plain";
/// The same load per instance on 16 and on 256 instances, by policy.
pub const SCALING: [[&str; 2]; 2] =
    [["16 x 1 000, least-loaded", "256 x 1 000, least-loaded"], ["16 x 1 000, weighted", "256 x 1 000, weighted"]];

/// The scenario for the fixed cost of every run.
pub const START_UP: &str = "start-up";

/// Every scenario for which the input files exist.
pub fn all() -> Vec<BenchScenario> {
    let mut scenarios = vec![start_up()];
    scenarios.extend(chat());
    scenarios.extend(fixed_lengths());
    scenarios.extend(traces());
    scenarios.extend(clusters());
    scenarios.extend(scaling());
    scenarios.extend(shared_prefixes());
    scenarios
}

fn start_up() -> BenchScenario {
    let arguments = "--workload chatbot --rate 20 --num-requests 1";
    BenchScenario { what: "one request: the fixed cost of every run", ..scenario(START_UP, arguments) }
}

/// The preset `chatbot`: inputs and outputs of 256 ± 100 tokens (cut-off Gaussians), 20 requests per second with
/// constant inter-arrival times; llama-3.1-8b on one H100.
fn chat() -> [BenchScenario; 4] {
    let chat = |name, number: u32, more| {
        let arguments = format!("--workload chatbot --rate 20 --num-requests {number} {more}");
        BenchScenario { what: "256 in / 256 out on average, 20 req/s", ..scenario(name, &arguments) }
    };
    [
        BenchScenario {
            // 400 000 requests per CPU second.
            target: ScenarioLimits { cpu_s: Some(0.025), peak_mb: Some(40.0) },
            published: "BLIS (Go): 1.70 s, 241 MB; floor 0.01 s",
            ..chat(CHAT, 10_000, "")
        },
        BenchScenario {
            what: "the same, every request updated at every step",
            ..chat(CHAT_PLAIN, 10_000, "--simulation plain")
        },
        chat(CHAT_100K, 100_000, ""),
        BenchScenario { size: ScenarioSize::Large, ..chat(CHAT_1M, 1_000_000, "") },
    ]
}

/// Exactly 512 in / 256 out; 20 requests per second keep about 45 of 256 slots of the batch busy.
fn fixed_lengths() -> [BenchScenario; 2] {
    let lengths = "--prompt-tokens 512 --prompt-tokens-stdev 0 --output-tokens 256 --output-tokens-stdev 0";
    let fixed = |name, more| {
        let arguments = format!("{lengths} --rate 20 --num-requests 10000 {more}");
        BenchScenario { what: "exactly 512 in / 256 out, 20 req/s", ..scenario(name, &arguments) }
    };
    [
        BenchScenario {
            target: ScenarioLimits { cpu_s: Some(0.03), peak_mb: Some(25.0) },
            published: "fastest simulator known: 0.30 s, 14 MB",
            ..fixed(FIXED, "")
        },
        BenchScenario {
            what: "the same, every request updated at every step",
            ..fixed(FIXED_PLAIN, "--simulation plain")
        },
    ]
}

/// Real traces, where `../shared` exists beside the repository.
fn traces() -> Vec<BenchScenario> {
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
        found.push(BenchScenario { what, target: ScenarioLimits { cpu_s, peak_mb: None }, ..trace });
    }
    found
}

/// Many instances, each with 20 chat requests per second.
fn clusters() -> [BenchScenario; 3] {
    let cluster = |name, what, instances: u32, requests: u32, routing: &str, target| {
        let rate = 20 * instances;
        let arguments = format!(
            "--workload chatbot --rate {rate} --num-requests {requests} --num-instances {instances} --routing-policy {routing}"
        );
        BenchScenario { what, size: ScenarioSize::Large, target, ..scenario(name, &arguments) }
    };
    // 250 000 requests per CPU second.
    let small = ScenarioLimits { cpu_s: Some(0.8), peak_mb: Some(300.0) };
    let large = ScenarioLimits { cpu_s: Some(8.0), peak_mb: Some(1000.0) };
    let published = "BLIS (Go): 136 s, 6.4 GB";
    let what = "64 instances, 20 req/s each";
    [
        BenchScenario {
            published,
            ..cluster("64 x chat, least-loaded 200k", what, 64, 200_000, "least-loaded", small)
        },
        BenchScenario { published, ..cluster("64 x chat, weighted 200k", what, 64, 200_000, "weighted", small) },
        cluster("256 x chat, least-loaded 1M", "256 instances, 20 req/s each", 256, 1_000_000, "least-loaded", large),
    ]
}

/// Growth of the cost of a request with the number of instances, at the same load per instance.
fn scaling() -> impl Iterator<Item = BenchScenario> {
    let at = |name: &str, instances: u32, routing: &str| {
        let (rate, requests) = (20 * instances, 1000 * instances);
        let arguments = format!(
            "--workload chatbot --rate {rate} --num-requests {requests} --num-instances {instances} --routing-policy {routing}"
        );
        BenchScenario { what: "1 000 requests per instance, 20 req/s each", ..scenario(name, &arguments) }
    };
    SCALING
        .into_iter()
        .zip(["least-loaded", "weighted"])
        .flat_map(move |([few, many], routing)| [at(few, 16, routing), at(many, 256, routing)])
}

/// 32 shared prefixes of 4096 tokens on 16 instances, routed by the contents of their prefix caches.
fn shared_prefixes() -> Option<BenchScenario> {
    const HEADER: &str = "trace_version: 3\ntime_unit: microseconds\nmode: generated\nwarm_up_requests: 0\n";
    const COLUMNS: &str = "request_id,client_id,tenant_id,slo_class,session_id,round_index,prefix_group,prefix_length,\
        streaming,input_tokens,output_tokens,text_tokens,image_tokens,audio_tokens,video_tokens,reason_ratio,model,\
        deadline_us,server_input_tokens,arrival_time_us,send_time_us,first_chunk_time_us,last_chunk_time_us,num_chunks,\
        status,error_message,finish_reason\n";
    let mut rows = COLUMNS.to_owned();
    for id in 0..20_000u32 {
        // 320 requests per second; lengths and prefixes in an order without a pattern.
        let mixed = id.wrapping_mul(2_654_435_761) >> 8;
        let (arrival, group) = (u64::from(id) * 3125, mixed % 32);
        let (input, output) = (128 + mixed / 32 % 256, 128 + mixed / 8192 % 256);
        let row = format!("{id},,,,,0,p{group},4096,false,{input},{output},0,0,0,0,0,,0,0,{arrival},0,0,0,0,ok,,\n");
        let _ = rows.write_str(&row);
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let [header, data] = ["prefixes.yaml", "prefixes.csv"].map(|name| folder.join(name));
    fs::write(&header, HEADER).and_then(|()| fs::write(&data, rows)).ok()?;
    let mut prefixes = scenario(
        "16 x 32 prefixes, weighted 20k",
        "--num-instances 16 --routing-policy weighted --routing-scorers precise-prefix-cache:2,queue-depth:1,kv-utilization:1",
    );
    prefixes.arguments.extend(["--workload-trace".to_owned(), header.display().to_string()]);
    Some(BenchScenario {
        what: "16 instances, 32 shared prefixes of 4096 tokens",
        // 60 000 requests per CPU second.
        target: ScenarioLimits { cpu_s: Some(0.333), peak_mb: None },
        published: "BLIS (Go): 16.3 s, 1.3 GB",
        ..prefixes
    })
}

fn scenario(name: &str, arguments: &str) -> BenchScenario {
    let always =
        "run --latency-model trained-physics --model meta-llama/llama-3.1-8b-instruct --output json --log error";
    let arguments = always.split(' ').chain(arguments.split_whitespace()).map(str::to_owned).collect();
    BenchScenario {
        name: name.to_owned(),
        what: "",
        arguments,
        size: ScenarioSize::Quick,
        target: ScenarioLimits::default(),
        published: "",
    }
}

/// The path `../shared/<path>`, if it exists.
fn shared(path: &str) -> Option<PathBuf> {
    let full = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared").join(path);
    if full.exists() {
        return full.canonicalize().ok();
    }
    eprintln!("skipped: {} is not there", full.display());
    None
}
