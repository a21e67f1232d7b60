//! The plugins that decided in a run, and their faults.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use blis_config::policy::{PolicySettings, PolicyUse};
use blis_plugin::incidents::Incident;
use blis_plugin::{OtherValue, Technology, ValueTable};

/// The value of `plugins` in JSON: one entry for each plugin; none if all policies are built in.
#[must_use]
pub fn plugins_document(policies: &PolicySettings, incidents: &[Incident]) -> Option<impl Serialize + use<>> {
    let used = |used: &PolicyUse| UsedPlugin::new(used, incidents);
    policies.plugins().next().is_some().then(|| policies.plugins().map(used).collect::<Vec<_>>())
}

/// A plugin that decided in the run.
#[derive(Serialize)]
struct UsedPlugin {
    /// Kind of the decision.
    kind: &'static str,
    /// Name of the plugin.
    name: String,
    /// Script, component or native library.
    technology: &'static str,
    /// Whether a sandbox guarantees that its results depend on its inputs alone.
    sandboxed: bool,
    /// Path of its file.
    file: String,
    /// SHA-256 of the file.
    sha256: String,
    /// Version that the plugin declares.
    version: String,
    /// Values of its parameters. Unit: of the parameter.
    parameters: BTreeMap<String, UsedValue>,
    /// Faults after which a built-in policy decided instead.
    faults: Vec<FaultCount>,
}

/// Faults of one kind.
#[derive(Serialize)]
struct FaultCount {
    /// Kind of the fault.
    kind: &'static str,
    /// Number of faults. Unit: events.
    count: u64,
    /// Simulated time of the first one.
    first_at_s: f64,
    /// Message of the first one.
    first_message: String,
}

impl UsedPlugin {
    fn new(used: &PolicyUse, incidents: &[Incident]) -> Self {
        let loaded = &used.loaded;
        let description = loaded.plugin.description();
        let technology = loaded.plugin.technology();
        let own = incidents.iter().filter(|incident| incident.kind == used.kind && *incident.plugin == *loaded.name);
        Self {
            kind: used.kind.name(),
            name: loaded.name.clone(),
            technology: technology.name(),
            sandboxed: technology != Technology::Native,
            file: loaded.file.clone(),
            sha256: loaded.sha256.clone(),
            version: description.version.clone(),
            parameters: parameters(used),
            faults: own
                .map(|Incident { at, fault, count, .. }| FaultCount {
                    kind: fault.kind.name(),
                    count: *count,
                    first_at_s: at.as_secs_f64(),
                    first_message: fault.message(),
                })
                .collect(),
        }
    }
}

/// The value of a parameter; a table is a list of rows.
#[derive(Serialize)]
#[serde(untagged)]
enum UsedValue {
    Number(f64),
    Text(String),
    Table(Vec<Vec<f64>>),
}

fn parameters(used: &PolicyUse) -> BTreeMap<String, UsedValue> {
    let numbers = used.parameters.iter().map(|(name, value)| (name.clone(), UsedValue::Number(value.value)));
    let others = used.others.iter().map(|(name, value)| {
        let value = match &value.value {
            OtherValue::Text(text) => UsedValue::Text(text.clone()),
            OtherValue::Table(table) => UsedValue::Table(rows(table).map(<[f64]>::to_vec).collect()),
        };
        (name.clone(), value)
    });
    numbers.chain(others).collect()
}

fn rows(table: &ValueTable) -> impl Iterator<Item = &[f64]> {
    table.numbers.chunks(table.columns.max(1) as usize)
}

/// A value of a parameter that is no number: a text, or a table as a list of rows.
#[must_use]
pub fn other_value(value: &OtherValue) -> Value {
    match value {
        OtherValue::Text(text) => Value::from(text.as_str()),
        OtherValue::Table(table) => rows(table).map(Value::from).collect(),
    }
}
