//! What follows from the table of settings outside the program: JSON schemas of `--config` files and suites, the typed keys of the
//! Python package; and that no setting is accepted without effect.

use std::fmt::Write as _;

use blis_config::policy::SettingSource;
use blis_eval::experiment::{Experiment, OutputFiles};
use blis_eval::run;
use blis_eval::spec::{ExperimentSpec, KEYS, Range, RangeEnds, SettingKey, ValueForm};
use serde_json::{Map, Value, json};

use crate::macros::{blis, root};

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

/// A configuration that has load, so that most settings show.
const LOADED: &str = "--model qwen/qwen3-14b --rate 30 --num-requests 60 --num-instances 2 --total-kv-blocks 1500";
/// Without load.
const CALM: &str = "--model qwen/qwen3-14b --num-requests 30";

fn with(spec: &mut ExperimentSpec, flags: &str) -> Result<(), String> {
    let mut words = flags.split_whitespace();
    while let Some(word) = words.next() {
        let name = word.trim_start_matches("--");
        let off = name.strip_prefix("no-").and_then(|name| SettingKey::find(name).ok());
        let key = off.unwrap_or_else(|| SettingKey::find(name).unwrap_or_else(|hint| panic!("{name}: {hint}")));
        let value = match key.form {
            ValueForm::Switch => ["true", "false"][usize::from(off.is_some())],
            _ => words.next().expect("a value"),
        };
        spec.unset(key);
        spec.set(key, value, SettingSource::Flag("--flag".into()))?;
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

/// What a run says, without the echo of its configuration; or why it is refused.
fn outcome(flags: &str) -> Result<String, String> {
    let mut spec = ExperimentSpec::default();
    with(&mut spec, flags)?;
    let config = Experiment::new(spec, OutputFiles::default()).map_err(|error| error.to_string())?;
    let result = run::run(&config, &Unseen).map_err(|error| error.to_string())?;
    let document = json!(result.identity);
    let run::RunResult { report, load, replicas, cost, energy, tpot, decisions, regret, fitness, warnings, .. } =
        &result;
    let files = ["trace-path", "regret-path"].map(|name| {
        let path = flags.split_whitespace().skip_while(|word| *word != format!("--{name}")).nth(1);
        path.and_then(|path| std::fs::read_to_string(path).ok()).map(|text| text.len())
    });
    Ok(format!(
        "{report:?}{load:?}{:?}{:?}{:?}{tpot:?}{:?}{:?}{:?}{warnings:?}{:?}{files:?}",
        json!(replicas),
        json!(cost),
        json!(energy),
        json!(decisions),
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

/// Every setting alone, and beside what shows it: it changes a figure, a file or a diagnostic, or it is refused.
#[test]
fn no_setting_is_accepted_without_effect() {
    let plain = [CALM, LOADED].map(|base| outcome(base).expect("it runs"));
    let mut without = Vec::new();
    for key in KEYS.iter().filter(|key| key.silent.is_empty()) {
        let changed =
            |base: &str, usual: &str| outcome(&format!("{base} {}", other(key))).map_or(true, |text| text != usual);
        let alone = [CALM, LOADED].iter().zip(&plain).any(|(base, usual)| changed(base, usual));
        let beside = (!key.beside.is_empty()).then(|| format!("{LOADED} {}", key.beside));
        let shows = beside.is_some_and(|base| match outcome(&base) {
            Ok(usual) => outcome(&format!("{base} {}", other(key))).is_ok_and(|text| text != usual),
            Err(error) => panic!("{base}: {error}"),
        });
        if !alone && !shows {
            without.push(format!("{LOADED} {} {}", key.beside, other(key)));
        }
    }
    assert!(without.is_empty(), "{} settings change nothing:\n{}", without.len(), without.join("\n"));
}
