//! The built-in latency models by kind. Errors name them, so nothing here may need an error.

use std::fmt;

/// The built-in latency models.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LatencyKind {
    /// [`blis_sim::latency::Blackbox`].
    Blackbox,
    /// [`blis_sim::latency::Physics`].
    Physics,
    /// [`blis_sim::latency::Roofline`].
    Roofline,
    /// [`blis_sim::latency::TrainedPhysics`].
    TrainedPhysics,
}

impl LatencyKind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::TrainedPhysics, Self::Physics, Self::Roofline, Self::Blackbox];

    /// The name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Blackbox => "blackbox",
            Self::Physics => "physics",
            Self::Roofline => "roofline",
            Self::TrainedPhysics => "trained-physics",
        }
    }
}

impl fmt::Display for LatencyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
