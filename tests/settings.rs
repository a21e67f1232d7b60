//! What follows from the table of settings outside the program: JSON schemas of `--config` files and suites, the typed keys of the
//! Python package; and that no setting is accepted without effect.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use blis_config::policy::SettingSource;
use blis_eval::experiment::{Experiment, OutputFiles};
use blis_eval::run;
use blis_eval::spec::{ExperimentSpec, KEYS, Range, RangeEnds, SettingKey, ValueForm};
use serde_json::{Map, Value, json};

use crate::macros::{Scratch, blis, root};

/// The JSON schema of the value of `key`.
fn schema_of(key: &SettingKey) -> Value {
    let one = match (&key.range, key.form) {
        (_, ValueForm::Switch) => json!({"type": "boolean"}),
        (Range::Whole { least, most, .. }, _) => json!({"type": "integer", "minimum": least, "maximum": most}),
        (Range::Number { least, most, ends, .. }, _) => {
            let (from, to) = match ends {
                RangeEnds::Both => ("minimum", "maximum"),
                RangeEnds::Most => ("exclusiveMinimum", "maximum"),
                RangeEnds::Least => ("minimum", "exclusiveMaximum"),
            };
            let mut schema = json!({"type": "number", from: least});
            if *most < f64::MAX {
                schema[to] = json!(most);
            }
            schema
        }
        (Range::Time { .. }, _) => json!({"type": ["number", "string"]}),
        (_, ValueForm::Number | ValueForm::Numbers) => json!({"type": "number"}),
        (_, ValueForm::Text | ValueForm::Texts) if (key.choices)().is_empty() => json!({"type": "string"}),
        (_, ValueForm::Text | ValueForm::Texts) => {
            json!({"enum": (key.choices)().into_iter().map(|(name, _)| name).collect::<Vec<_>>()})
        }
    };
    let mut schema = if key.form.is_list() { json!({"type": "array", "items": one}) } else { one };
    schema["description"] = json!(key.help.trim());
    if let Some(default) = key.default {
        schema["default"] = key.json(&[default.to_owned()]);
    }
    schema
}

/// The settings of `keys` by each of their names.
fn properties(keys: impl Iterator<Item = &'static SettingKey>) -> Map<String, Value> {
    let named = |key: &'static SettingKey| key.aliases.iter().chain([&key.name]).map(move |name| (key, *name));
    keys.flat_map(named).map(|(key, name)| (name.to_owned(), schema_of(key))).collect()
}

/// The same where `null` stands for a setting that is not set.
fn or_null(mut properties: Map<String, Value>) -> Map<String, Value> {
    for schema in properties.values_mut() {
        match schema.get_mut("enum") {
            Some(Value::Array(names)) => names.push(Value::Null),
            _ => {
                let mut types =
                    [schema["type"].take()].map(|one| one.as_array().cloned().unwrap_or(vec![one])).concat();
                types.push("null".into());
                schema["type"] = types.into();
            }
        }
    }
    properties
}

const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";

fn config_schema() -> Value {
    let in_files = || KEYS.iter().filter(|key| key.permission.is_none());
    let mut all = or_null(properties(in_files()));
    let sections: std::collections::BTreeSet<&str> = KEYS.iter().map(|key| key.group.section).collect();
    for section in sections {
        let of_section = or_null(properties(in_files().filter(|key| key.group.section == section)));
        let object = json!({"type": "object", "properties": of_section, "additionalProperties": false});
        let value = match all.remove(section) {
            Some(setting) => json!({"anyOf": [setting, object]}),
            None => object,
        };
        all.insert(section.to_owned(), value);
    }
    json!({
        "$schema": DIALECT,
        "title": "Configuration file of BLIS (`--config`)",
        "description": "Settings by the names of the flags, with or without sections; keys of a policy bundle and `deployment` may stand beside them.",
        "type": "object",
        "properties": all,
    })
}

fn suite_schema() -> Value {
    let mut run = properties(KEYS.iter().filter(|key| key.suites && key.permission.is_none()));
    // A suite has each value as its flag does, a list too.
    for key in KEYS.iter().filter(|key| key.form.is_list()) {
        if let Some(schema) = run.get_mut(key.name) {
            *schema = json!({"type": ["string", "number"], "description": key.help.trim()});
        }
    }
    let run = json!({"type": "object", "properties": run});
    json!({
        "$schema": DIALECT,
        "title": "Suite of BLIS (`blis evaluate --suite`)",
        "description": "docs/evaluate.md describes the other keys.",
        "type": "object",
        "properties": {
            "schema": {"const": 1},
            "name": {"type": "string"},
            "run": run,
            "scenarios": {"type": "array", "items": {"type": "object", "properties": {
                "name": {"type": "string"},
                "splits": {"type": "array", "items": {"enum": ["smoke", "train", "select", "test"]}},
                "run": {"$ref": "#/properties/run"},
            }, "required": ["name", "splits"]}},
        },
        "required": ["schema", "name", "weights", "scenarios"],
    })
}

/// The module of the Python package with the keys of specifications and their types.
fn python_module() -> String {
    let mut text =
        "# ruff: noqa: E501\n\"\"\"Keys of specifications with their types, made from the table of settings: tests/settings.rs.\"\"\"\n\n\
                    from __future__ import annotations\n\nfrom typing import Literal, TypedDict\n\n\
                    Settings = TypedDict(\n    \"Settings\",\n    {\n"
            .to_owned();
    for key in KEYS.iter().filter(|key| key.permission.is_none()) {
        let choices = (key.choices)();
        let one = match key.form {
            ValueForm::Switch => "bool".to_owned(),
            ValueForm::Number | ValueForm::Numbers => match key.range {
                Range::Whole { .. } => "int".to_owned(),
                Range::Time { .. } => "float | str".to_owned(),
                _ => "float".to_owned(),
            },
            ValueForm::Text | ValueForm::Texts if choices.is_empty() => "str".to_owned(),
            ValueForm::Text | ValueForm::Texts => {
                let names: Vec<String> = choices.iter().map(|(name, _)| format!("{name:?}")).collect();
                format!("Literal[{}]", names.join(", "))
            }
        };
        let form = if key.form.is_list() { format!("list[{one}]") } else { one };
        let quote = if form.contains('"') { '\'' } else { '"' };
        let _ = writeln!(text, "        {:?}: {quote}{form}{quote},", key.name);
    }
    text + "    },\n    total=False,\n)\n\"\"\"Settings by name, as the flags of `blis run`.\"\"\"\n"
}

#[test]
fn generated_files_are_those_of_the_table() {
    let pretty = |value: Value| serde_json::to_string_pretty(&value).expect("JSON") + "\n";
    let files = [
        ("docs/config.schema.json", pretty(config_schema())),
        ("docs/suite.schema.json", pretty(suite_schema())),
        ("sdk/python/src/blis_sim/_settings.py", python_module()),
    ];
    for (name, text) in files {
        let path = root().join(name);
        if std::env::var_os("BLIS_RECORD").is_some() {
            std::fs::write(&path, &text).expect("written");
        }
        let known = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(known == text, "{name} is not what the table of settings says: BLIS_RECORD=1 writes it anew");
    }
}

/// Every built-in suite and explained configurations are valid by their schemas; what is refused is not.
#[test]
fn schemas_describe_what_is_read() {
    let valid = |schema: &Value, name: &str, text: &str| {
        let schema = jsonschema::validator_for(schema).expect("a schema");
        let value: Value = serde_yaml::from_str(text).unwrap_or_else(|error| panic!("{name}: {error}"));
        let errors: Vec<String> = schema.iter_errors(&value).map(|error| error.to_string()).collect();
        if errors.is_empty() { Ok(()) } else { Err(format!("{name}: {errors:#?}")) }
    };
    for file in std::fs::read_dir(root().join("examples/suites")).expect("a folder") {
        let path = file.expect("an entry").path();
        if path.extension().is_some_and(|end| end == "yaml") {
            let text = std::fs::read_to_string(&path).expect("text");
            assert_eq!(valid(&suite_schema(), &path.display().to_string(), &text), Ok(()));
        }
    }
    let config = config_schema();
    for flags in [
        "",
        "--parity blis --kv-cpu-blocks 9",
        "--autoscaler queue --group tp=2",
        "--flow-control --prefill-instances 1 --decode-instances 1",
    ] {
        let page = blis!("run --model qwen/qwen3-14b --explain-config", flags).done().stdout;
        assert_eq!(valid(&config, flags, &page), Ok(()));
    }
    assert_eq!(valid(&config, "an alias", "gpu: H100\nengine: { max-num-running-reqs: 5 }\n"), Ok(()));
    for refused in ["tp: -1", "engine: vllm-9", "watermark: 2", "policy-param: a.b=1", "flow-control: yess"] {
        assert!(valid(&config, refused, refused).is_err(), "{refused}");
    }
}

/// What every configuration here begins with.
const MODEL: &str = "--model qwen/qwen3-14b";

fn with(spec: &mut ExperimentSpec, flags: &str) -> Result<(), String> {
    let mut words = flags.split_whitespace();
    while let Some(word) = words.next() {
        let name = word.trim_start_matches("--");
        let off = name.strip_prefix("no-").and_then(|name| SettingKey::get(name));
        let key = off.unwrap_or_else(|| SettingKey::find(name).unwrap_or_else(|hint| panic!("{name}: {hint}")));
        let value = match key.form {
            ValueForm::Switch => ["true", "false"][usize::from(off.is_some())].to_owned(),
            _ => words.next().expect("a value").to_owned(),
        };
        if key.form != ValueForm::Texts {
            spec.unset(key);
        }
        let is_file = key.range == Range::Path || value.contains('/') && root().join(&value).is_file();
        let value = if is_file { root().join(value).display().to_string() } else { value };
        spec.set(key, &value, SettingSource::Flag("--flag".into()))?;
    }
    Ok(())
}

/// Counts nothing.
struct Unseen;

impl run::RequestCounter for Unseen {
    fn watch<'a>(
        &self,
        requests: Box<dyn Iterator<Item = blis_sim::request::Request> + Send + 'a>,
        _: Option<u64>,
    ) -> Box<dyn Iterator<Item = blis_sim::request::Request> + Send + 'a> {
        requests
    }
}

/// A digest of what a run says, without the echo of its configuration; or why it is refused. Each run is made once.
fn outcome(flags: &str) -> Result<u64, String> {
    static KNOWN: Mutex<BTreeMap<String, Result<u64, String>>> = Mutex::new(BTreeMap::new());
    if let Some(known) = KNOWN.lock().expect("no panic").get(flags) {
        return known.clone();
    }
    let outcome = run_once(flags).map(|text| {
        let mut digest = DefaultHasher::new();
        text.hash(&mut digest);
        digest.finish()
    });
    KNOWN.lock().expect("no panic").insert(flags.to_owned(), outcome.clone());
    outcome
}

fn run_once(flags: &str) -> Result<String, String> {
    let mut spec = ExperimentSpec::default();
    with(&mut spec, flags)?;
    let scratch = Scratch::new();
    let written = ["trace-path", "regret-path"].map(|name| {
        let key = SettingKey::named(name);
        let path = spec.has(name).then(|| scratch.join(name));
        path.inspect(|path| {
            spec.unset(key);
            spec.set(key, &path.display().to_string(), SettingSource::Flag("--flag".into())).expect("a path");
        })
    });
    let config = Experiment::new(spec, OutputFiles::default()).map_err(|error| error.to_string())?;
    let result = run::run(&config, &Unseen).map_err(|error| error.to_string())?;
    let document = json!(result.identity);
    let run::RunResult {
        report,
        load,
        replicas,
        cost,
        energy,
        tpot,
        kv_cache,
        decisions,
        regret,
        fitness,
        warnings,
        ..
    } = &result;
    let files = written.map(|path| path.map(|path| std::fs::read_to_string(path).unwrap_or_default()));
    Ok(format!(
        "{report:?}{load:?}{:?}{:?}{:?}{tpot:?}{:?}{:?}{:?}{warnings:?}{:?}{files:?}",
        json!(replicas),
        json!(cost),
        json!(energy),
        json!((kv_cache, decisions)),
        json!(regret),
        fitness.as_ref().map(|(fitness, baseline)| (json!(fitness.document(baseline.as_deref())), baseline)),
        document["notes"]
    ))
}

/// A value that is not the default.
fn sample(key: &SettingKey) -> String {
    let names: Vec<&str> = (key.choices)().into_iter().map(|(name, _)| name).collect();
    let choice = names.iter().find(|name| Some(**name) != key.default && !["auto", "none"].contains(name));
    match (key.example, &key.range, choice) {
        ("", _, Some(choice)) => (*choice).to_owned(),
        ("", Range::Whole { least, most, .. }, _) => {
            let usual: u64 = key.default.map_or(2, |default| default.parse().expect("a number"));
            (usual * 2 + 1).clamp(*least, *most).to_string()
        }
        ("", Range::Number { .. }, _) => {
            let double =
                key.default.and_then(|default| default.parse::<f64>().ok()).map(|usual| (usual * 2.0).to_string());
            let fits = |text: &String| text != "0" && key.validate(text).is_ok();
            double.filter(fits).unwrap_or_else(|| "0.5".to_owned())
        }
        ("", Range::Time { .. }, _) => "1700ms".to_owned(),
        ("", ..) if key.placeholder == "N" => "3".to_owned(),
        ("", ..) => format!("no-such-{}", key.name),
        (example, ..) => example.to_owned(),
    }
}

/// The flag of `key` with another value than its default.
fn other(key: &SettingKey) -> String {
    match (key.form, key.off) {
        (ValueForm::Switch, "") => format!("--{}", key.name),
        (ValueForm::Switch, _) => format!("--{}", key.off_name),
        _ => format!("--{} {}", key.name, sample(key)),
    }
}

/// The flags beside which the example of `key` shows.
fn base(key: &SettingKey) -> String {
    let own = if key.beside.is_empty() { key.group.beside } else { key.beside };
    format!("{MODEL} {own}")
}

/// Whether the example of `key` is used beside `base`, and changes something.
fn shows(base: &str, key: &SettingKey) -> bool {
    let with = outcome(&format!("{base} {}", other(key)));
    with.is_ok() && with != outcome(base)
}

/// Every setting, alone or beside what it needs, is used and changes a figure, a file or a diagnostic.
#[test]
fn no_setting_is_accepted_without_effect() {
    let seen = KEYS.iter().filter(|key| key.silent.is_empty());
    let without = seen.filter(|key| !shows(&base(key), key)).map(|key| {
        let flags = format!("{} {}", base(key), other(key));
        let why = outcome(&flags).err().unwrap_or_default();
        format!("{flags}: {}", why.lines().next().unwrap_or_default())
    });
    let without: Vec<String> = without.collect();
    assert!(without.is_empty(), "{} settings change nothing:\n{}", without.len(), without.join("\n"));
}

/// What a setting shows it also shows beside each setting of its heading, beside what its rules name, and in every mode; or the two are
/// refused. The snapshot has the exceptions, each of which was read: the two values are the same (`--no-async-scheduling` and
/// `--parity blis`), or under this load the one never comes to bear (no request waits that long, none is left to be routed, no more
/// blocks are used).
#[test]
#[ignore = "heavy: `.ci/run` runs it in a step of its own"]
fn no_setting_is_overruled_without_a_word() {
    let keys: Vec<&SettingKey> = KEYS.iter().filter(|key| key.silent.is_empty()).collect();
    let next = AtomicUsize::new(0);
    let found = Mutex::new(Vec::new());
    let work = || {
        while let Some(key) = keys.get(next.fetch_add(1, Ordering::Relaxed)) {
            let overruled = overruled(key);
            found.lock().expect("no panic").extend(overruled);
        }
    };
    std::thread::scope(|scope| (0..2).for_each(|_| drop(scope.spawn(work))));
    let mut found = found.into_inner().expect("no panic");
    found.sort();
    // A rule may name a setting of the same heading.
    found.dedup();
    insta::assert_snapshot!(found.join("\n"));
}

/// Flags that change how much of the program works, each under a heading of its own.
const MODES: [&str; 8] = [
    "--parity blis",
    "--engine vllm-0.15",
    "--latency-model roofline",
    "--latency-model blackbox --model meta-llama/llama-3.1-8b-instruct",
    "--group tp=1,instances=2",
    "--autoscaler saturation",
    "--flow-control",
    "--prefill-instances 1 --decode-instances 1 --pd-decider always",
];

/// Flags beside which the example of `key` is used, but changes nothing.
fn overruled(key: &SettingKey) -> Vec<String> {
    let base = base(key);
    let is_there = |flag: &str| base.split_whitespace().any(|word| word == flag);
    let of_heading = KEYS.iter().filter(|other| other.group.heading == key.group.heading);
    let others = of_heading.chain(key.related()).filter(|other| other.name != key.name && other.permission.is_none());
    let others = others.map(other).chain(MODES.map(str::to_owned));
    // Another model replaces the usual one.
    let is_free = |flag: &str| flag == "--model" || !is_there(flag) && flag.trim_start_matches("--") != key.name;
    let free = others.filter(|text| text.split_whitespace().filter(|word| word.starts_with("--")).all(is_free));
    let hides = |text: &String| {
        let without = outcome(&format!("{base} {text}"));
        without.is_ok() && outcome(&format!("{base} {text} {}", other(key))) == without
    };
    free.filter(hides).map(|text| format!("{} beside {text}", other(key))).collect()
}
