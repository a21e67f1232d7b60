//! The reference pages are what the program and the schemas say: `BLIS_RECORD=1 cargo test --workspace --test tests
//! reference` writes them anew.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;

use serde_json::Value;

use crate::macros::{Scratch, blis, root};
use crate::markdown::{Document, documents};
use crate::search_model::ModelServer;

/// Schemas of documents, and the headings of their sections.
const SCHEMAS: [(&str, &str); 14] = [
    ("run.schema.json", "`blis run`, `blis replay`"),
    ("evaluation.schema.json", "`blis evaluate`"),
    ("held-out.schema.json", "`blis evaluate held-out`"),
    ("record.schema.json", "`blis evaluate --record`"),
    ("search.schema.json", "`blis search`"),
    ("tune.schema.json", "`blis tune`"),
    ("compare.schema.json", "`blis compare`"),
    ("planning.schema.json", "`blis capacity`, `blis size`, `blis sweep`"),
    ("regret.schema.json", "`blis regret`"),
    ("decisions.schema.json", "`blis decisions`"),
    ("plugin.schema.json", "`blis plugin`"),
    ("real-time.schema.json", "`blis observe`, `blis calibrate`"),
    ("workload.schema.json", "`blis workload`"),
    ("models.schema.json", "`blis models`, `blis hardware`, `blis validate`, `blis fit`"),
];

/// The sources of the documents, with the schema that has to name all of their fields.
const SOURCES: [(&str, &str); 45] = [
    ("host/report/src/adapters.rs", "run.schema.json"),
    ("host/report/src/aggregate.rs", "run.schema.json"),
    ("host/report/src/breakdown.rs", "run.schema.json"),
    ("host/report/src/load.rs", "run.schema.json"),
    ("host/report/src/replicas.rs", "run.schema.json"),
    ("host/report/src/cost.rs", "run.schema.json"),
    ("host/eval/src/prices.rs", "run.schema.json"),
    ("host/report/src/energy.rs", "run.schema.json"),
    ("host/eval/src/identity.rs", "run.schema.json"),
    ("host/report/src/requests.rs", "run.schema.json"),
    ("host/report/src/results.rs", "run.schema.json"),
    ("host/report/src/plugins.rs", "run.schema.json"),
    ("host/report/src/decision_summary.rs", "run.schema.json"),
    ("host/eval/src/regret/report.rs", "run.schema.json"),
    ("host/eval/src/regret/decision_regret.rs", "run.schema.json"),
    ("host/eval/src/regret/instance_states.rs", "run.schema.json"),
    ("host/eval/src/result.rs", "evaluation.schema.json"),
    ("host/eval/src/patterns.rs", "evaluation.schema.json"),
    ("host/eval/src/decision_costs.rs", "evaluation.schema.json"),
    ("host/eval/src/evaluation/held_out.rs", "held-out.schema.json"),
    ("host/eval/src/evaluation/record.rs", "record.schema.json"),
    ("host/eval/src/search/model.rs", "search.schema.json"),
    ("host/eval/src/search/result.rs", "search.schema.json"),
    ("host/eval/src/evaluation/tune.rs", "tune.schema.json"),
    ("host/eval/src/table.rs", "compare.schema.json"),
    ("host/eval/src/planning/capacity.rs", "planning.schema.json"),
    ("host/eval/src/planning/size.rs", "planning.schema.json"),
    ("host/eval/src/planning/elastic.rs", "planning.schema.json"),
    ("host/eval/src/planning/sweep.rs", "planning.schema.json"),
    ("host/eval/src/planning/variation.rs", "planning.schema.json"),
    ("host/eval/src/counterfactual.rs", "regret.schema.json"),
    ("host/eval/src/regret/look_ahead.rs", "regret.schema.json"),
    ("host/report/src/decisions/history.rs", "decisions.schema.json"),
    ("host/report/src/decisions/top.rs", "decisions.schema.json"),
    ("host/report/src/decisions/diff.rs", "decisions.schema.json"),
    ("host/report/src/decisions/seen.rs", "decisions.schema.json"),
    ("host/http/src/observe/report.rs", "real-time.schema.json"),
    ("host/eval/src/calibration/pairs.rs", "real-time.schema.json"),
    ("host/eval/src/calibration/report.rs", "real-time.schema.json"),
    ("host/eval/src/calibration/figures.rs", "real-time.schema.json"),
    ("host/workload/src/profile.rs", "workload.schema.json"),
    ("host/fit/src/errors.rs", "models.schema.json"),
    ("host/fit/src/breakdown.rs", "models.schema.json"),
    ("host/fit/src/validate.rs", "models.schema.json"),
    ("host/fit/src/steps.rs", "models.schema.json"),
];

/// Fields of a serialised structure that is no part of a document.
const NOT_PRINTED: [&str; 1] = ["signals"];

const INTRODUCTION: &str = "\
# Fields of JSON documents

Every field with its type and unit, made from the schemas in this folder: `BLIS_RECORD=1 cargo test --workspace --test tests
reference` writes this page anew. Where no unit stands, the value has none. *Optional* fields are left out where they do not
apply. Shares are 0 to 1. [metrics.md](metrics.md) defines the figures, [decisions.md](decisions.md) the lines of decision
traces.
";

#[test]
fn flags_are_those_of_the_program() {
    check("docs/flags.md", &::blis::cli::flags_page());
}

/// Where a schema lists all kinds of decisions, these are those of the table.
#[test]
fn schemas_have_the_kinds_of_the_table() {
    const FIRST: &str = "[\"admission\", \"routing\", \"routing-filter\"";
    let kinds = blis_plugin::Kind::ALL.map(|kind| format!("\"{kind}\"")).join(", ");
    let name = "docs/plugin.schema.json";
    let text = fs::read_to_string(root().join(name)).expect("readable");
    let mut parts = text.split(FIRST);
    let before = parts.next().unwrap_or_default().to_owned();
    let all = parts.fold(before, |text, part| {
        let (_, rest) = part.split_once(']').expect("the list ends");
        format!("{text}[{kinds}]{rest}")
    });
    check(name, &all);
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
fn fields_are_those_of_the_schemas() {
    let mut page = INTRODUCTION.to_owned();
    let mut parts = BTreeSet::new();
    for (name, heading) in SCHEMAS {
        let schema = schema(name);
        let title = schema["title"].as_str().expect("a title");
        write!(page, "\n## {heading}\n\n{title}: [{name}]({name}).\n").expect("a text");
        if schema.get("properties").is_some() {
            page.push_str(&table(&schema));
        }
        for (name, part) in definitions(&schema) {
            let description = part["description"].as_str().unwrap_or_else(|| panic!("`{name}` has no description"));
            write!(page, "\n### {}\n\n{description}\n", heading_of(name)).expect("a text");
            page.push_str(&table(part));
            assert!(parts.insert(name.clone()), "two schemas have a part `{name}`: a link could mean either");
        }
    }
    check("docs/json.md", &page);
}

#[test]
fn documents_follow_their_schema() {
    let folder = Scratch::new();
    let [metrics, results] = ["metrics.json", "results.json"].map(|name| folder.path(name));
    let schema = schema("run.schema.json");
    let part = |name: &str| {
        let mut part = schema.clone();
        part["$ref"] = format!("#/$defs/{name}").into();
        jsonschema::validator_for(&part).expect("a schema")
    };
    let (printed, metrics_file, results_file) = (part("run"), part("metrics_file"), part("results_file"));
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
    let unseen: Vec<String> = properties(&schema).into_iter().filter(is_unseen).collect();
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
    follow_their_schemas(&searches.map(|line| ("search.schema.json", "search", line)));
}

/// The documents of the commands are as the parts of their schemas say, and have all fields of these schemas.
fn follow_their_schemas(documents: &[(&'static str, &'static str, String)]) {
    let mut seen: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for (name, part, line) in documents {
        let document = blis!(format!("{line} --output json")).whole_json();
        assert_valid(&validator(name, part), &document, line);
        names(&document, seen.entry(name).or_default());
    }
    for (name, seen) in seen {
        let is_unseen = |field: &String| !seen.contains(field) && field != UNREAD;
        let unseen: Vec<String> = properties(&schema(name)).into_iter().filter(is_unseen).collect();
        assert!(unseen.is_empty(), "no document has these fields of docs/{name}: {unseen:?}");
    }
}

/// Signals that a policy of another program did not read: traces of this one leave them out.
const UNREAD: &str = "unread";

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
    let planned =
        "--model llama-3.1-8b-instruct --output-tokens 20 --output-tokens-stdev 5 --seeds 2 --slo ttft_p90=1s";
    vec![
        (
            "held-out.schema.json",
            "held_out",
            format!("evaluate held-out policies/rhai-least-loaded.rhai {suite} {GRANTED}"),
        ),
        ("tune.schema.json", "tune", format!("tune policies/prefix-then-load.rhai --evals 3 {suite} {GRANTED}")),
        (
            "compare.schema.json",
            "compare",
            format!("compare round-robin least-loaded {model} --seeds 2 {weights} {GRANTED}"),
        ),
        (
            "planning.schema.json",
            "capacity",
            format!("capacity {planned} --routing-policy round-robin,least-loaded {GRANTED}"),
        ),
        ("planning.schema.json", "size", format!("size {planned} --rate 20 --prices examples/autoscaling/prices.yaml")),
        ("planning.schema.json", "elastic", format!("size {planned} --rate 20 --num-requests 6000 --elastic")),
        (
            "planning.schema.json",
            "sweep",
            format!("sweep {planned} --gpu-memory-utilization 0.5 --vary tp=1,2 --vary hardware=H100,L4"),
        ),
        (
            "regret.schema.json",
            "regret_document",
            format!("regret {model} --look-ahead --bound --allow-large-components"),
        ),
        ("decisions.schema.json", "decisions_show", format!("decisions show {a} --request 39")),
        ("decisions.schema.json", "decisions_show", format!("decisions show {b} --request 39")),
        ("decisions.schema.json", "decisions_top", format!("decisions top {b} --by wait")),
        ("decisions.schema.json", "decisions_diff", format!("decisions diff {a} {b}")),
        ("plugin.schema.json", "plugin_list", "plugin list".to_owned()),
        ("plugin.schema.json", "plugin_check", "plugin check policies/rhai-least-loaded.rhai weighted".to_owned()),
        ("plugin.schema.json", "plugin_bench", "plugin bench round-robin".to_owned()),
        ("workload.schema.json", "workload_inspect", "workload inspect examples/workload-spec/mixed.yaml".to_owned()),
        ("models.schema.json", "models", "models".to_owned()),
        ("models.schema.json", "hardware", "hardware".to_owned()),
        ("models.schema.json", "validate", format!("validate {measured} --stages 2x40+4x60")),
        ("models.schema.json", "validate", "validate tests/measured/runs.csv --parity blis".to_owned()),
        ("models.schema.json", "validate_steps", "validate tests/measured/steps/steps.csv".to_owned()),
        ("models.schema.json", "validate_kernels", format!("validate {tables} --kernels")),
        ("models.schema.json", "fit", format!("fit {measured} --out {coefficients}")),
    ]
}

/// Lines of decision traces in other documents are those of the schema of traces.
#[test]
fn decisions_in_documents_are_lines_of_traces() {
    let folder = Scratch::new();
    let trace = folder.path("run.jsonl");
    let run = "run --model llama-3.1-8b-instruct --num-instances 2 --num-requests 10 --trace-level decisions";
    blis!(format!("{run} --trace-path {trace}")).done();
    let lines = jsonschema::validator_for(&schema("decision-trace.schema.json")).expect("a schema");
    let document = blis!(format!("decisions show {trace} --request 7 --output json")).json();
    let events = document["events"].as_array().expect("events");
    assert!(events.len() > 2, "{document}");
    for event in events {
        let mut line = event.clone();
        line.as_object_mut().expect("an object").retain(|name, _| name != "observed" && name != "entered_meanwhile");
        assert_valid(&lines, &line, "decisions show");
    }
}

/// A document of the schema `name` that is as its part says.
fn validator(name: &str, part: &str) -> jsonschema::Validator {
    let mut schema = schema(name);
    schema["$ref"] = format!("#/$defs/{part}").into();
    // Parts of the schema of runs, which others refer to.
    let runs: Value = self::schema("run.schema.json");
    let text = schema.to_string().replace("urn:blis:run:1#/", "#/");
    let mut schema: Value = serde_json::from_str(&text).expect("it was JSON");
    for (name, part) in runs["$defs"].as_object().expect("definitions") {
        let parts = schema["$defs"].as_object_mut().expect("definitions");
        parts.entry(name.clone()).or_insert_with(|| part.clone());
    }
    jsonschema::validator_for(&schema).unwrap_or_else(|error| panic!("{name}: {error}"))
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
        ("replay", format!("{bundle} --num-instances 2 --max-num-seqs 16 --slo-ttft critical=300ms,standard=1s --policy-config policies/slo-tiers.yaml --fitness-weights slo_attainment:1")),
    ]
}

/// Every field of a serialised structure is in the schema, also one that no run of the tests has.
#[test]
fn every_field_of_the_sources_is_in_a_schema() {
    for (source, name) in SOURCES {
        let known = properties(&schema(name));
        let text = fs::read_to_string(root().join(source)).unwrap_or_else(|error| panic!("{source}: {error}"));
        let fields = serialized_fields(&text);
        assert!(fields.len() > 1, "{source}: {fields:?}");
        for field in fields {
            let is_known = known.contains(&field) || NOT_PRINTED.contains(&field.as_str());
            assert!(is_known, "{source}: `{field}` is not in docs/{name}");
        }
    }
}

/// The names of the fields of structures with `Serialize`, without skipped and flattened ones.
fn serialized_fields(source: &str) -> Vec<String> {
    let mut fields = Vec::new();
    let (mut derives, mut inside) = (false, false);
    let mut attribute = String::new();
    for line in source.lines().map(str::trim) {
        if line.starts_with("#[derive") {
            derives = line.contains("Serialize");
        } else if line.starts_with("struct ")
            || line.starts_with("pub struct ")
            || line.starts_with("pub(super) struct ")
        {
            inside = derives && line.ends_with('{');
            derives = false;
        } else if line.starts_with('}') || line.starts_with("enum ") || line.starts_with("pub enum ") {
            (inside, derives) = (false, false);
        } else if line.starts_with("#[serde(") {
            attribute = line.to_owned();
        } else if let Some((name, _)) = line.split_once(": ").filter(|_| inside && !line.starts_with("//")) {
            let renamed = attribute.split_once("rename = \"").and_then(|(_, rest)| rest.split_once('"'));
            let name = renamed.map_or(name.rsplit(' ').next().unwrap_or_default(), |(name, _)| name);
            if !attribute.contains("(skip)") && !attribute.contains("(flatten)") {
                fields.push(name.to_owned());
            }
            attribute.clear();
        }
    }
    fields
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

fn schema(name: &str) -> Value {
    let text = fs::read_to_string(root().join("docs").join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"))
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

/// The definitions of a schema: whole documents first, which no other contains.
fn definitions(schema: &Value) -> Vec<(&String, &Value)> {
    let parts = &schema["$defs"];
    let text = parts.to_string();
    let mut definitions: Vec<(&String, &Value)> = parts.as_object().expect("definitions").iter().collect();
    definitions.sort_by_key(|(name, _)| text.contains(&format!("\"#/$defs/{name}\"")));
    definitions
}

/// The fields of an object as a table; nothing for what is no object with known fields.
fn table(object: &Value) -> String {
    let mut text = String::new();
    if let Some(others) = object["allOf"].as_array() {
        let names = others.iter().filter_map(definition).map(|name| link(&name)).collect::<Vec<_>>();
        text = format!("\nIt has the fields of {}, and:\n", names.join(", "));
    }
    let mut rows = String::new();
    add_rows(object, "", &mut rows);
    if rows.is_empty() {
        return items(object).map(|name| format!("\nA list of {}.\n", link(&name))).unwrap_or_default();
    }
    format!("{text}\n| field | type | unit | meaning |\n|---|---|---|---|\n{rows}")
}

fn items(list: &Value) -> Option<String> {
    definition(list.get("items")?)
}

/// A row for each field of `object`, and below it those of the objects that it holds.
fn add_rows(object: &Value, prefix: &str, rows: &mut String) {
    let required: Vec<&str> = object["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    for (name, field) in object["properties"].as_object().into_iter().flatten() {
        let path = format!("{prefix}{name}");
        let meaning = field["description"].as_str().unwrap_or_else(|| panic!("`{path}` has no description"));
        let optional = if required.contains(&name.as_str()) { "" } else { "*optional* " };
        let kind = kind(field);
        writeln!(
            rows,
            "| `{path}` | {optional}{kind} | {} | {} |",
            unit(name, field, &kind),
            meaning.replace('|', "\\|")
        )
        .expect("a text");
        let nested = field["oneOf"].as_array().into_iter().flatten().chain([field]);
        nested.for_each(|nested| add_rows(nested, &format!("{path}."), rows));
    }
}

/// The type of a field in words.
fn kind(field: &Value) -> String {
    if let Some(name) = definition(field) {
        return link(&name);
    }
    if let Some(choices) = field["oneOf"].as_array() {
        return choices.iter().map(kind).collect::<Vec<_>>().join(" or ");
    }
    if let Some(choices) = field["allOf"].as_array() {
        return choices.iter().map(kind).collect::<Vec<_>>().join(" and ");
    }
    if let Some(choices) = field["enum"].as_array() {
        return choices
            .iter()
            .filter_map(Value::as_str)
            .map(|choice| format!("`{choice}`"))
            .collect::<Vec<_>>()
            .join(", ");
    }
    if let Some(value) = field.get("const") {
        return format!("`{value}`");
    }
    let types = match &field["type"] {
        Value::Array(types) => types.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" or "),
        one => one.as_str().unwrap_or_default().to_owned(),
    };
    match (field.get("items"), field.get("additionalProperties").filter(|values| values.is_object())) {
        (Some(item), _) => format!("{types} of {}", kind(item)),
        (None, Some(values)) => format!("object: {} by name", kind(values)),
        (None, None) => types,
    }
}

/// The unit of a number: that of the schema, or of the end of its name.
fn unit(name: &str, field: &Value, kind: &str) -> String {
    let of_name = [("_ms", "ms"), ("_us", "µs"), ("_s", "s"), ("_tokens", "tokens"), ("_blocks", "blocks")];
    if let Some(unit) = field["unit"].as_str() {
        return unit.to_owned();
    }
    let is_number = kind.contains("number") || kind.contains("integer");
    let of_name = of_name.iter().find(|(end, _)| is_number && name.ends_with(end)).map(|(_, unit)| *unit);
    assert!(!is_number || of_name.is_some(), "`{name}` is a number without `unit`");
    of_name.unwrap_or_default().to_owned()
}

/// The name of the definition that a schema refers to.
fn definition(schema: &Value) -> Option<String> {
    Some(schema.get("$ref")?.as_str()?.rsplit_once("#/$defs/")?.1.to_owned())
}

fn link(name: &str) -> String {
    format!("[{}](#{})", heading_of(name), heading_of(name).replace(' ', "-"))
}

fn heading_of(name: &str) -> String {
    name.replace('_', " ")
}
