//! A latency model from its name on the command line.

use std::str::FromStr;

use super::error::ConfigError;
use super::latency_kind::LatencyKind;

impl FromStr for LatencyKind {
    type Err = ConfigError;

    fn from_str(name: &str) -> Result<Self, ConfigError> {
        Self::ALL.into_iter().find(|kind| kind.name() == name).ok_or_else(|| {
            let known = Self::ALL.map(|kind| kind.name().to_owned()).to_vec();
            ConfigError::unknown("latency model", name, known, None)
        })
    }
}
