//! Errors of the latency model, drawn: the same service on GPUs that are faster or slower than the model says.
//!
//! `data/step-errors.csv` has the errors of deployments that were measured; a later one replaces the file. They are those of all
//! deployments, unless the coefficients were measured on this very deployment: then the largest error of its own tests counts.

use std::str::FromStr;
use std::sync::Arc;

use blis_config::Deployment;
use blis_plugin::Kind;
use blis_sim::latency::Scaled;
use blis_stats::{StepFactors, draw_step_factors};
use serde::Serialize;

use crate::error::RunError;
use crate::experiment::Experiment;

/// Measured errors: comments, a heading, and lines that end with the errors (ln) of prefill and decode.
const MEASURED: &str = include_str!("../../data/step-errors.csv");
/// Share of the draws at either end that a range leaves out.
pub(super) const OUTSIDE: f64 = 0.05;
/// Draws where a run is short, and where it is long.
const DRAWS: usize = 20;
const COARSE_DRAWS: usize = 5;
/// Requests of a run from which it is long.
const LONG: u64 = 20_000;

/// By how much a measured latency differs from the simulated one, in nine of ten deployments.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LatencyBand {
    /// The latency. One of `ttft`, `tpot`.
    pub figure: &'static str,
    /// Measured over simulated, at the lower end. Unit: factor.
    pub low: f64,
    /// The same in the middle. Unit: factor.
    pub center: f64,
    /// The same at the upper end. Unit: factor.
    pub high: f64,
    /// Measurements of other deployments that this is from; `null` for the largest errors of its own tests. Unit: rows.
    pub rows: Option<u64>,
}

/// The bands of all deployments, from the whole table: a test repeats them.
const OF_ALL: [LatencyBand; 2] = [
    LatencyBand { figure: "ttft", low: 0.403, center: 1.330, high: 4.390, rows: Some(443) },
    LatencyBand { figure: "tpot", low: 0.558, center: 1.075, high: 2.071, rows: Some(443) },
];

/// By how much measured latencies differ from those of `deployment`: from the largest errors of its own tests, if its coefficients were
/// measured on this very deployment, else from those of all deployments that were measured. None for a latency model that is a plugin.
pub(crate) fn latency_bands(config: &Experiment, deployment: &Deployment) -> Vec<LatencyBand> {
    if config.cluster.policies.plugin(Kind::Latency).is_some() {
        return Vec::new();
    }
    let own = deployment.validation.as_ref().and_then(|validation| validation.largest);
    let band = |figure, largest: f64| LatencyBand {
        figure,
        low: 1.0 / (1.0 + largest),
        center: 1.0,
        high: 1.0 + largest,
        rows: None,
    };
    own.map_or_else(|| OF_ALL.to_vec(), |own| vec![band("ttft", own.prefill), band("tpot", own.decode)])
}

/// How many errors of the model are drawn: `--model-error`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ModelErrorDraws {
    /// 20, or 5 where runs are long.
    #[default]
    On,
    /// None.
    Off,
    /// That many, 1 or more.
    Count(usize),
}

impl ModelErrorDraws {
    /// The number of draws, for runs of so many requests.
    pub(crate) fn count(self, requests: Option<u64>) -> usize {
        match self {
            Self::On if requests.unwrap_or(0) > LONG => COARSE_DRAWS,
            Self::On => DRAWS,
            Self::Off => 0,
            Self::Count(count) => count,
        }
    }
}

impl FromStr for ModelErrorDraws {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let count = || text.parse().ok().filter(|count| (1..=blis_stats::MOST_DRAWS).contains(count)).map(Self::Count);
        match text {
            "on" => Ok(Self::On),
            "off" | "0" => Ok(Self::Off),
            _ => count().ok_or_else(|| "must be on, off, or a number of draws from 1 to 1000".to_owned()),
        }
    }
}

/// A number of replicas under draws of the error of the latency model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ModelRisk {
    /// Equally likely errors of the times of prefill and decode. Unit: draws.
    pub draws: u64,
    /// Draws in which the deployment holds. Unit: draws.
    pub held: u64,
    /// The fewest replicas that a draw needs, without the lowest 5 % of the draws; `null` if no number holds there. Unit: replicas.
    pub replicas_low: Option<u32>,
    /// The most that a draw needs, without the highest 5 %; `null` if no number holds there. Unit: replicas.
    pub replicas_high: Option<u32>,
    /// The fewest replicas that hold in all draws but the share `risk`; `null` if no number does. Unit: replicas.
    pub replicas_within_risk: Option<u32>,
}

impl ModelRisk {
    /// `needed`: replicas that each draw needs, `None` if no number holds. `replicas`: those that there are. `risk`: the share of draws that
    /// may fail.
    pub(super) fn new(needed: &[Option<u32>], replicas: u32, risk: f64) -> Self {
        let draws = needed.len();
        let mut needed: Vec<u32> = needed.iter().map(|count| count.unwrap_or(u32::MAX)).collect();
        needed.sort_unstable();
        let held = needed.iter().filter(|&&count| count <= replicas).count() as u64;
        let at = |rank: usize| needed.get(rank.min(draws.saturating_sub(1))).copied().filter(|&count| count < u32::MAX);
        let outside = (OUTSIDE * draws as f64) as usize;
        let most_held = ((1.0 - risk) * draws as f64).ceil() as usize;
        Self {
            draws: draws as u64,
            held,
            replicas_low: at(outside),
            replicas_high: at(draws.saturating_sub(1 + outside)),
            replicas_within_risk: at(most_held.max(1) - 1),
        }
    }
}

/// `draws` equally likely factors of the times of steps of `deployment`.
pub(crate) fn factors(deployment: &Deployment, draws: usize) -> Result<Vec<StepFactors>, RunError> {
    let (mut prefill, mut decode) = (Vec::new(), Vec::new());
    for (number, line) in MEASURED.lines().enumerate().filter(|(_, line)| !line.starts_with('#')).skip(1) {
        let mut cells = line.rsplit(',').map(str::parse::<f64>);
        let (Some(Ok(of_decode)), Some(Ok(of_prefill))) = (cells.next(), cells.next()) else {
            let line = number + 1;
            return Err(RunError::runtime(format_args!(
                "step-errors.csv:{line}: the last two columns must be numbers"
            )));
        };
        decode.push(of_decode);
        prefill.push(of_prefill);
    }
    if let Some(own) = deployment.validation.as_ref().and_then(|validation| validation.largest) {
        (prefill, decode) = (uniform(own.prefill), uniform(own.decode));
    }
    draw_step_factors(&prefill, &decode, draws).map_err(RunError::runtime)
}

/// Errors (ln) that are spread evenly, with 90 % of them up to `largest`, a share, to either side.
fn uniform(largest: f64) -> Vec<f64> {
    const STEPS: i32 = 50;
    (-STEPS..=STEPS).map(|step| f64::from(step) / f64::from(STEPS) * (1.0 + largest).ln() / 0.9).collect()
}

/// `deployment` with steps that take as many times as long.
pub(crate) fn scaled(deployment: &Deployment, factors: StepFactors) -> Deployment {
    let latency = Scaled::new(Arc::clone(&deployment.latency), factors.prefill, factors.decode);
    Deployment { latency: Arc::new(latency), ..deployment.clone() }
}

#[cfg(test)]
mod tests {
    use blis_stats::{ErrorBand, ModelErrorRow};

    use super::*;

    #[test]
    fn bands_are_those_of_the_table() {
        let rows: Vec<Vec<&str>> = MEASURED
            .lines()
            .filter(|line| !line.starts_with('#'))
            .skip(1)
            .map(|line| line.split(',').collect())
            .collect();
        for (band, column) in OF_ALL.iter().zip([4, 5]) {
            let errors: Vec<ModelErrorRow<'_>> = rows
                .iter()
                .map(|row| ModelErrorRow {
                    class: "all",
                    model: row[0],
                    deployment: row[3],
                    error: row[column].parse().expect("a number"),
                })
                .collect();
            let found = ErrorBand::of(&errors, 0.9).expect("rows");
            let expected = [found.low_factor(), found.centre_factor(), found.high_factor()];
            let near = |(is, wanted): (f64, f64)| (is / wanted - 1.0).abs() < 5e-3;
            assert!([band.low, band.center, band.high].into_iter().zip(expected).all(near), "{band:?} {expected:?}");
            assert_eq!(band.rows, Some(found.rows as u64));
        }
    }

    #[test]
    fn the_middle_of_the_draws_is_the_median_of_the_measured_errors() {
        let deployment = blis_config::resolve(&blis_config::DeploymentArgs::new("qwen3-32b"));
        let factors = factors(&deployment.expect("a model"), 21).expect("a table");
        let middle = |of: fn(&StepFactors) -> f64| {
            let mut values: Vec<f64> = factors.iter().map(of).collect();
            values.sort_by(f64::total_cmp);
            values[10]
        };
        let (prefill, decode) = (middle(|of| of.prefill), middle(|of| of.decode));
        assert!((prefill - 1.32).abs() < 0.02 && (decode - 1.07).abs() < 0.02, "{prefill} {decode}");
    }
}
