//! How long a replica takes to start, as settings have it.

use blis_config::Deployment;
use blis_sim::cluster::{PhaseTime, StartTimes};
use blis_sim::units::Micros;

use crate::error::RunError;

/// The phases of a start: `process=14s,weights-bandwidth=2GB/s,compile=gaussian(35s,5s)`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StartupSettings {
    /// The phases; that of the weights is not read if there is a bandwidth.
    pub times: StartTimes,
    /// Bandwidth at which each GPU reads its weights, bytes per second, > 0.
    pub bandwidth: Option<f64>,
}

impl StartupSettings {
    /// At once.
    pub const NONE: Self = {
        let none = PhaseTime::constant(Micros::ZERO);
        let times = StartTimes { process: none, weights: none, compile: none, warm_up: none, wake: none };
        Self { times, bandwidth: None }
    };

    /// The phases of a replica of `deployment`.
    ///
    /// # Errors
    /// If the weights are read at a bandwidth, and their size is unknown.
    pub(crate) fn of(&self, deployment: &Deployment) -> Result<StartTimes, RunError> {
        let Some(bandwidth) = self.bandwidth else { return Ok(self.times) };
        let Some(bytes) = deployment.weight_bytes else {
            let what = format!("the size of the weights of {} is unknown", deployment.model);
            return Err(RunError::usage(what)
                .hint("`weights-bandwidth` needs the model's config.json: name its folder with `--model-config-folder`, or set `weights=30s`"));
        };
        let weights = PhaseTime::constant(Micros::from_secs_f64(bytes / bandwidth));
        Ok(StartTimes { weights, ..self.times })
    }
}
