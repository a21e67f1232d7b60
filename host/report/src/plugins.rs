//! Which plugins decided in a run, and how that went.

use std::collections::BTreeMap;

use serde::Serialize;

use blis_config::policy::{PolicySettings, PolicyUse};
use blis_plugin::Technology;
use blis_plugin::incidents::Incident;

/// What goes under `plugins` in JSON: one entry for each plugin used; none if all policies are built in.
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
    /// Whether its results can be trusted to depend on nothing but its inputs.
    sandboxed: bool,
    file: String,
    sha256: String,
    version: String,
    parameters: BTreeMap<String, f64>,
    /// Decisions that a built-in took in its place.
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
            parameters: used.parameters.iter().map(|(name, value)| (name.clone(), value.value)).collect(),
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
