//! The kinds of built-in latency models. Errors contain them, so nothing in this file may return an error.

/// The built-in latency models, in the order of help.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, strum::Display, strum::EnumString, strum::IntoStaticStr, strum::VariantArray,
)]
#[strum(const_into_str, serialize_all = "kebab-case")]
pub enum LatencyKind {
    TrainedPhysics,
    Physics,
    Roofline,
    Blackbox,
}

impl LatencyKind {
    /// The name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.into_str()
    }
}
