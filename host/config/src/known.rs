//! The models and GPUs that are built in.

use super::coefficients::blackbox_rows;
use super::embedded;
use super::hardware::{Catalogue, Hardware};

/// A model with a built-in architecture or built-in coefficients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownModel {
    /// Short name, lower case.
    pub name: String,
    /// Whether its architecture is known, which roofline, physics and trained-physics need.
    pub has_config: bool,
    /// Deployments that have blackbox coefficients, like `H100 tp2 v0.8.4`.
    pub blackbox: Vec<String>,
}

/// The built-in models, sorted by name.
#[must_use]
pub fn known_models() -> Vec<KnownModel> {
    let mut models: Vec<KnownModel> = embedded::model_names()
        .map(|name| KnownModel { name: name.into(), has_config: true, blackbox: Vec::new() })
        .collect();
    for row in blackbox_rows() {
        let known = models.iter().position(|model| model.name == row.model);
        let index = known.unwrap_or_else(|| {
            models.push(KnownModel { name: row.model.clone(), has_config: false, blackbox: Vec::new() });
            models.len() - 1
        });
        let deployment = row.deployment();
        if !models[index].blackbox.contains(&deployment) {
            models[index].blackbox.push(deployment);
        }
    }
    models.sort_by(|a, b| a.name.cmp(&b.name));
    models
}

/// The built-in GPUs, sorted by name.
#[must_use]
pub fn known_hardware() -> Vec<Hardware> {
    let catalogue = Catalogue::load(None).expect("embedded files are read by a test");
    let mut hardware: Vec<Hardware> = catalogue.entries().cloned().collect();
    hardware.sort_by(|a, b| a.name.cmp(&b.name));
    hardware
}
