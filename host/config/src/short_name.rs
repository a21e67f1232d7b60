//! Names of models without their owner.

/// The part of a model name that counts: after the last `/`, lower case.
#[must_use]
pub fn short_name(model: &str) -> String {
    model.rsplit('/').next().unwrap_or(model).to_lowercase()
}
