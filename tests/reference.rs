//! The reference pages are what the program says, and the schemas what its types say: `BLIS_RECORD=1 cargo test --workspace
//! --test tests reference` writes them anew.

mod attributes;
mod doc;
mod documents;
mod page;
mod samples;
mod schema;
mod sources;
mod writer;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::OnceLock;

use serde_json::{Map, Value, json};

use crate::macros::{Scratch, blis, root};
use crate::markdown::{Document, documents};
use crate::search_model::ModelServer;

#[test]
fn flags_are_those_of_the_program() {
    check("docs/flags.md", &::blis::cli::flags_page());
}

#[test]
fn definitions_for_editors_are_those_of_the_engine() {
    let text = blis_plugin::script::definitions();
    assert!(text.contains("fn get queue_depth(of: cluster) -> ?;") && text.contains("fn pick(a: ?) -> ?;"), "{text}");
    check("sdk/rhai/policy.d.rhai", &text);
}

/// Commands in sentences and blocks, run or not: the command is there, and has these flags.
#[test]
fn commands_of_documents_are_those_of_the_program() {
    let page = ::blis::cli::flags_page();
    let sections: BTreeMap<&str, &str> =
        page.split("\n## ").skip(1).filter_map(|section| section.split_once('\n')).collect();
    let mut wrong = Vec::new();
    for document in documents().iter().filter(|name| *name != "CHANGELOG.md").map(|name| Document::read(name)) {
        let blocks = document.blocks.iter().filter(|block| block.language == "sh");
        let of_blocks = blocks.flat_map(|block| block.text.lines().map(|line| (block.line, line)));
        let of_spans = document.spans.iter().map(|span| (span.line, span.text.as_str()));
        for (line, command) in of_blocks.chain(of_spans).filter(|(_, command)| command.starts_with("blis ")) {
            if let Err(what) = check_command(command, &sections) {
                wrong.push(format!("{}:{line}: `{command}`: {what}", document.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What the program does not know in a command; `sections` are those of `docs/flags.md`.
fn check_command(command: &str, sections: &BTreeMap<&str, &str>) -> Result<(), String> {
    /// Words after `blis` that are no commands with flags, or not there yet.
    const OTHERS: [&str; 2] = ["help", "…"];
    let words: Vec<&str> = command.split([' ', '[', ']', '=']).filter(|word| !word.is_empty()).collect();
    let path = (2..=words.len().min(3)).rev().map(|count| words[..count].join(" "));
    let Some(section) = path.into_iter().find_map(|path| sections.get(path.as_str())) else {
        return if OTHERS.contains(&words[1]) { Ok(()) } else { Err("no such command".to_owned()) };
    };
    let is_known = |flag: &&str| section.contains(&format!("`{flag}`")) || ["--help", "--color"].contains(flag);
    match words.into_iter().filter(|word| word.starts_with("--")).find(|flag| !is_known(flag)) {
        Some(flag) => Err(format!("no flag {flag}")),
        None => Ok(()),
    }
}

#[test]
fn schemas_are_those_of_the_types() {
    for (name, text) in schemas() {
        check(&format!("docs/{name}.schema.json"), text);
    }
    check("docs/json.md", &page::fields(&schema));
}

#[test]
fn documents_follow_their_schema() {
    let folder = Scratch::new();
    let [metrics, results] = ["metrics.json", "results.json"].map(|name| folder.path(name));
    let [printed, metrics_file, results_file] = ["run", "metrics_file", "results_file"].map(validator);
    let mut seen = BTreeSet::new();
    for (command, flags) in runs() {
        let line = format!("{command} --model llama-3.1-8b-instruct {flags} --metrics-path {metrics}");
        let line = if command == "run" { line } else { format!("{line} --results-path {results}") };
        let document = blis!(&line).whole_json();
        assert_valid(&printed, &document, &line);
        let file = |path: &str| serde_json::from_str::<Value>(&fs::read_to_string(path).expect(path)).expect("JSON");
        assert_valid(&metrics_file, &file(&metrics), &line);
        names(&document, &mut seen);
        names(&file(&metrics), &mut seen);
        if command == "replay" {
            assert_valid(&results_file, &file(&results), &line);
            names(&file(&results), &mut seen);
        }
    }
    let is_unseen = |name: &String| !seen.contains(name) && !RARE.contains(&name.as_str());
    let unseen: Vec<String> = properties(&schema("run")).into_iter().filter(is_unseen).collect();
    assert!(unseen.is_empty(), "no run has these fields of docs/run.schema.json: {unseen:?}");
}

/// The documents of the other commands: all that they print is in the schemas, and all fields of the schemas occur.
#[test]
fn other_documents_follow_their_schemas() {
    follow_their_schemas(&other_documents(&Scratch::new()));
}

#[test]
#[ignore = "heavy: `.ci/run` runs it in a step of its own"]
fn documents_of_searches_follow_their_schema() {
    let searches = [
        format!("search sdk/python/tests/small.yaml --evaluations 24 {GRANTED}"),
        format!("search {}", ModelServer::proposing().words("--evaluations 48")),
    ];
    follow_their_schemas(&searches.map(|line| ("search", "search", line)));
}

/// The documents of the commands are as the parts of their schemas say, and have all fields of these schemas.
fn follow_their_schemas(documents: &[(&'static str, &'static str, String)]) {
    let mut seen: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for (name, part, line) in documents {
        let document = blis!(format!("{line} --output json")).whole_json();
        assert_valid(&validator(part), &document, line);
        names(&document, seen.entry(name).or_default());
    }
    for (name, seen) in seen {
        let is_unseen = |field: &String| !seen.contains(field) && !ABSENT.contains(&field.as_str());
        let unseen: Vec<String> = properties(&schema(name)).into_iter().filter(is_unseen).collect();
        assert!(unseen.is_empty(), "no document has these fields of docs/{name}.schema.json: {unseen:?}");
    }
}

/// Signals that a policy of another program did not read, which traces of this one leave out; and what was granted, by commands that
/// grant nothing.
const ABSENT: [&str; 2] = ["unread", "run"];

/// Grants what the policies in `policies/` need.
const GRANTED: &str = "--allow-large-components";

/// Commands that together print all fields: the schema, its part, and the command.
fn other_documents(folder: &Scratch) -> Vec<(&'static str, &'static str, String)> {
    let model = "--model llama-3.1-8b-instruct --num-instances 4 --num-requests 40 --rate 100";
    let suite = "--suite sdk/python/tests/small.yaml";
    let measured = "examples/fit-a-server/requests.csv --model qwen/qwen3-14b --hardware H100 --tp 1";
    let [a, b, coefficients] = ["a.jsonl", "b.jsonl", "coefficients.yaml"].map(|name| folder.path(name));
    for (trace, flags) in [(&a, "--routing-policy least-loaded --max-num-seqs 2"), (&b, "--routing-policy weighted")] {
        blis!(format!("run {model} {flags} --trace-level decisions --trace-path {trace}")).done();
    }
    let tables = folder.path("tables");
    fs::create_dir_all(&tables).expect("a folder");
    let table = "allreduce_dtype,num_gpus,message_size,latency,backend\nbfloat16,2,128,0.0043,vllm_graph\n";
    fs::write(format!("{tables}/h100_sxm__comm__custom_allreduce_perf.csv"), table).expect("a table");
    let weights = "--fitness-weights mean_ttft:1";
    let scrape = |requests: u32| {
        let latency = "vllm:e2e_request_latency_seconds";
        let queue = "vllm:request_queue_time_seconds";
        format!(
            "{latency}_sum {}\n{latency}_count {requests}\n{queue}_sum {requests}\n{queue}_count {requests}\n",
            5 * requests
        )
    };
    let [before, after] = [("before.txt", 10), ("after.txt", 200)].map(|(name, requests)| {
        folder.write(name, scrape(requests));
        folder.path(name)
    });
    let planned =
        "--model llama-3.1-8b-instruct --output-tokens 20 --output-tokens-stdev 5 --seeds 2 --slo ttft_p90=1s";
    vec![
        ("held-out", "held_out", format!("evaluate held-out policies/rhai-least-loaded.rhai {suite} {GRANTED}")),
        ("tune", "tune", format!("tune policies/prefix-then-load.rhai --evals 3 {suite} {GRANTED}")),
        ("compare", "compare", format!("compare round-robin least-loaded {model} --seeds 2 {weights} {GRANTED}")),
        ("compare", "compare", format!("compare --vary tp=1,2 {model} --rate 6 --num-requests 400 --model-error 2")),
        ("planning", "capacity", format!("capacity {planned} --routing-policy round-robin,least-loaded {GRANTED}")),
        ("planning", "size", format!("size {planned} --rate 20 --prices examples/autoscaling/prices.yaml")),
        ("planning", "elastic", format!("size {planned} --rate 20 --num-requests 6000 --elastic")),
        (
            "planning",
            "sweep",
            format!("sweep {planned} --gpu-memory-utilization 0.5 --vary tp=1,2 --vary hardware=H100,L4"),
        ),
        (
            "planning",
            "advise",
            format!(
                "advise {planned} --rate 200 --prices examples/autoscaling/prices.yaml --hardware H100 --vary tp=1,2 --budget 20"
            ),
        ),
        (
            "planning",
            "advise",
            format!("advise {} --hardware H100 --tp 1 --max-gpus 1", planned.replace("=1s", "=1us")),
        ),
        ("planning", "diagnose", format!("diagnose {planned} --rate 20 --num-requests 60 --total-kv-blocks 3000")),
        ("planning", "diagnose_metrics", format!("diagnose --metrics {before} {after}")),
        ("regret", "regret_document", format!("regret {model} --look-ahead --bound --allow-large-components")),
        ("decisions", "decisions_show", format!("decisions show {a} --request 39")),
        ("decisions", "decisions_show", format!("decisions show {b} --request 39")),
        ("decisions", "decisions_top", format!("decisions top {b} --by wait")),
        ("decisions", "decisions_diff", format!("decisions diff {a} {b}")),
        ("plugin", "plugin_list", "plugin list".to_owned()),
        ("plugin", "plugin_check", "plugin check policies/rhai-least-loaded.rhai weighted".to_owned()),
        ("plugin", "plugin_bench", "plugin bench round-robin".to_owned()),
        ("workload", "workload_inspect", "workload inspect examples/workload-spec/mixed.yaml".to_owned()),
        ("models", "models", "models".to_owned()),
        ("models", "models_explain", "models explain qwen3.5-35b-a3b --tp 2".to_owned()),
        ("models", "models_explain", "models explain gemma-4-26b-a4b".to_owned()),
        ("models", "hardware", "hardware".to_owned()),
        ("models", "validate", format!("validate {measured} --stages 2x40+4x60")),
        ("models", "validate", "validate tests/measured/runs.csv --parity blis".to_owned()),
        ("models", "validate_steps", "validate tests/measured/steps/steps.csv".to_owned()),
        ("models", "validate_kernels", format!("validate {tables} --kernels")),
        ("models", "fit", format!("fit {measured} --out {coefficients}")),
        ("models", "fit_memory", "fit-memory examples/fit-a-server/start.log".to_owned()),
    ]
}

/// Lines of decision traces in other documents are those of the schema of traces.
#[test]
fn decisions_in_documents_are_lines_of_traces() {
    let folder = Scratch::new();
    let trace = folder.path("run.jsonl");
    let run = "run --model llama-3.1-8b-instruct --num-instances 2 --num-requests 10 --trace-level decisions";
    blis!(format!("{run} --trace-path {trace}")).done();
    let lines = jsonschema::validator_for(&schema("decision-trace")).expect("a schema");
    let document = blis!(format!("decisions show {trace} --request 7 --output json")).json();
    let events = document["events"].as_array().expect("events");
    assert!(events.len() > 2, "{document}");
    for event in events {
        let mut line = event.clone();
        line.as_object_mut().expect("an object").retain(|name, _| name != "observed" && name != "entered_meanwhile");
        assert_valid(&lines, &line, "decisions show");
    }
}

/// Checks a document that is as `part` of a schema says.
pub(crate) fn validator(part: &str) -> jsonschema::Validator {
    // All parts in one schema: no two have the same name.
    let parts = schemas().keys().flat_map(|name| schema(name)["$defs"].as_object().cloned().unwrap_or_default());
    let parts: Map<String, Value> = parts.collect();
    let whole = json!({"$ref": format!("#/$defs/{part}"), "$defs": parts}).to_string();
    let own = schemas().keys().fold(whole, |text, name| text.replace(&format!("urn:blis:{name}:1#/"), "#/"));
    let schema: Value = serde_json::from_str(&own).expect("it was JSON");
    jsonschema::validator_for(&schema).unwrap_or_else(|error| panic!("{part}: {error}"))
}

/// Fields that none of the runs has, because nothing goes wrong in them.
const RARE: [&str; 19] = [
    "first_at_s",
    "first_message",
    "gpu_s",
    "kv_allocation_failures",
    "length_capped",
    "model",
    "others_mean_queue_length",
    "rejected_no_replica",
    "rejected_server",
    "gateway_evicted",
    "gateway_queue_delay_ms",
    "gateway_queue_expired",
    "gateway_queue_rejected",
    "gateway_queue_shed",
    "gateway_wait",
    "in_gateway",
    "evicted",
    "still_in_gateway",
    "score_regret",
];

/// Runs that together have nearly all fields.
fn runs() -> Vec<(&'static str, String)> {
    let bundle = "--trace-header examples/policy-bundle/trace.yaml --trace-data examples/policy-bundle/trace.csv";
    vec![
        ("run", "--num-requests 20 --energy --kv-offloading-size 1".to_owned()),
        ("run", "--num-requests 20 --kv-offloading-size 1 --kv-offloading-secondary fs".to_owned()),
        ("run", "--num-requests 20 --prefill-instances 1 --decode-instances 1 --pd-decider always".to_owned()),
        (
            "run",
            "--workload-spec tests/encode/images.yaml --num-requests 20 --decode-instances 1 --encode-instances 1 \
             --encode-decider multimodal"
                .to_owned(),
        ),
        ("run", "--workload-spec examples/closed-loop/chat.yaml --horizon 10s --max-num-seqs 64".to_owned()),
        ("run", "--workload-spec examples/closed-loop/chat.yaml --horizon 30s --prefill-instances 1 --decode-instances 1 --pd-decider always --pd-bidirectional".to_owned()),
        ("run", "--num-instances 3 --routing-policy prefix-then-load --num-requests 60 --rate 30 --trace-level decisions --summarize-trace".to_owned()),
        ("run", "--num-instances 2 --routing-policy weighted --routing-filters saturation --routing-scorers examples/built-ins/token-load.rhai:1,queue-depth:1 --routing-picker rhai-least-loaded --workload-spec examples/workload-spec/mixed.yaml --horizon 5s --regret outcome --fitness-weights mean_ttft:1".to_owned()),
        ("run", "--hardware H100 --rate 20 --num-requests 100 --autoscaler queue --policy-param scaling.running=1 --scaling-interval 1 --startup-time 1s --group tp=2 --prices examples/autoscaling/prices.yaml --slo-ttft 1s".to_owned()),
        ("run", "--hardware H100 --rate 20 --num-requests 20 --autoscaler queue --role prefill --group role=decode".to_owned()),
        ("run", "--hardware H100 --tp 1 --rate 20 --num-requests 100 --node-pool name=a,max=1,price=30 --slo-ttft 1s".to_owned()),
        ("run", "--workload-spec examples/adapters.yaml --lora-config examples/lora.yaml --horizon 10s --num-instances 2".to_owned()),
        ("run", "--parity blis --num-requests 20 --kv-cpu-blocks 100".to_owned()),
        ("run", "--total-kv-blocks 300 --max-model-len 4096 --rate 20 --num-requests 40".to_owned()), // preempts
        ("replay", format!("{bundle} --num-instances 2 --max-num-seqs 16 --slo-ttft critical=300ms,standard=1s --policy-config policies/slo-tiers.yaml --fitness-weights slo_attainment:1")),
    ]
}

/// Compares a generated page with the file, or writes it.
pub fn check(name: &str, generated: &str) {
    let path = root().join(name);
    if std::env::var_os("BLIS_RECORD").is_some() {
        fs::write(&path, generated).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    let differs = generated.lines().zip(written.lines()).position(|(generated, written)| generated != written);
    let line = differs.unwrap_or(generated.lines().count().min(written.lines().count())) + 1;
    let how = "`BLIS_RECORD=1 cargo test --workspace --test tests reference` writes it anew";
    assert!(generated == written, "{name}:{line} is not what it should be: {how}");
}

/// The texts of the generated schemas by their names.
fn schemas() -> &'static BTreeMap<String, String> {
    static SCHEMAS: OnceLock<BTreeMap<String, String>> = OnceLock::new();
    let kinds = blis_plugin::Kind::ALL.map(blis_plugin::Kind::name).to_vec();
    SCHEMAS.get_or_init(|| documents::generated(root(), &BTreeMap::from([("Kind", kinds)])))
}

fn schema(name: &str) -> Value {
    serde_json::from_str(&schemas()[name]).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn assert_valid(validator: &jsonschema::Validator, document: &Value, what: &str) {
    let errors: Vec<String> =
        validator.iter_errors(document).map(|error| format!("{}: {error}", error.instance_path())).collect();
    assert!(errors.is_empty(), "blis {what}: not as in its schema:\n{}", errors.join("\n"));
}

/// The names of all fields of a document.
fn names(document: &Value, found: &mut BTreeSet<String>) {
    match document {
        Value::Object(fields) => {
            for (name, value) in fields {
                found.insert(name.clone());
                names(value, found);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| names(item, found)),
        _ => {}
    }
}

/// The names of all properties of a schema.
fn properties(schema: &Value) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    if let Some(fields) = schema.get("properties").and_then(Value::as_object) {
        found.extend(fields.keys().cloned());
    }
    let below: Box<dyn Iterator<Item = &Value>> = match schema {
        Value::Object(fields) => Box::new(fields.values()),
        Value::Array(items) => Box::new(items.iter()),
        _ => return found,
    };
    found.extend(below.flat_map(properties));
    found
}
