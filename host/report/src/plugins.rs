//! The plugins that decided in a run, and their faults.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use blis_config::policy::{PolicySettings, PolicyUse};
use blis_plugin::incidents::Incident;
use blis_plugin::{OtherValue, Technology};

/// The value of `plugins` in JSON: one entry for each plugin; none if all policies are built in.
#[must_use]
pub fn plugins_document(policies: &PolicySettings, incidents: &[Incident]) -> Option<impl Serialize + use<>> {
    let used = |used: &PolicyUse| Used::new(used, incidents);
    policies.plugins().next().is_some().then(|| policies.plugins().map(used).collect::<Vec<_>>())
}

#[derive(Serialize)]
struct Used {
    kind: &'static str,
    name: String,
    technology: &'static str,
    /// Whether a sandbox guarantees that its results depend on its inputs alone.
    sandboxed: bool,
    file: String,
    sha256: String,
    version: String,
    parameters: BTreeMap<String, Value>,
    /// Faults after which a built-in policy decided instead.
    faults: Vec<Counted>,
}

#[derive(Serialize)]
struct Counted {
    kind: &'static str,
    count: u64,
    first_at_s: f64,
    first_message: String,
}

impl Used {
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
                .map(|Incident { at, fault, count, .. }| Counted {
                    kind: fault.kind.name(),
                    count: *count,
                    first_at_s: at.as_secs_f64(),
                    first_message: fault.message(),
                })
                .collect(),
        }
    }
}

/// All parameters: numbers, texts, and tables as lists of rows.
fn parameters(used: &PolicyUse) -> BTreeMap<String, Value> {
    let numbers = used.parameters.iter().map(|(name, value)| (name.clone(), Value::from(value.value)));
    let others = used.others.iter().map(|(name, value)| (name.clone(), other_value(&value.value)));
    numbers.chain(others).collect()
}

/// A value of a parameter that is no number: a text, or a table as a list of rows.
#[must_use]
pub fn other_value(value: &OtherValue) -> Value {
    match value {
        OtherValue::Text(text) => Value::from(text.as_str()),
        OtherValue::Table(table) => table.numbers.chunks(table.columns.max(1) as usize).map(Value::from).collect(),
    }
}
