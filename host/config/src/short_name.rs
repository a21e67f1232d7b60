//! Names of models without their organisation.

/// The short name of a model: after the last `/`, lower case.
#[must_use]
pub fn short_name(model: &str) -> String {
    model.rsplit('/').next().unwrap_or(model).to_lowercase()
}
