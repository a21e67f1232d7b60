//! The kinds of built-in latency models. Errors contain them, so nothing in this file may return an error.

use std::fmt;

/// The built-in latency models.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LatencyKind {
    Blackbox,
    Physics,
    Roofline,
    TrainedPhysics,
}

impl LatencyKind {
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
