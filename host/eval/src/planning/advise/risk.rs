//! Errors of the latency model, drawn: the same service on GPUs that are faster or slower than the model says.
//!
//! `data/step-errors.csv` has the errors of deployments that were measured; a later one replaces the file.

use std::sync::Arc;

use blis_config::Deployment;
use blis_sim::latency::Scaled;
use blis_stats::{StepFactors, draw_step_factors};

use crate::error::RunError;
use crate::planning::load::SeededLoad;
use crate::planning::load_run::{EarlyStop, LoadRun};

use super::bench::{Bench, probe};
use super::document::ModelRisk;
use super::fewest::{Fewest, fewest};
use super::space::Layout;

/// Measured errors: comments, a heading, and lines that end with the errors (ln) of prefill and decode.
const MEASURED: &str = include_str!("../../../data/step-errors.csv");
/// How many times the replicas a draw may need.
const MOST_TIMES: u32 = 8;
/// Share of the draws at either end that a range of replicas leaves out.
const OUTSIDE: f64 = 0.05;

/// `draws` equally likely factors of the times of steps.
pub(super) fn factors(draws: usize) -> Result<Vec<StepFactors>, RunError> {
    let (mut prefill, mut decode) = (Vec::new(), Vec::new());
    for line in MEASURED.lines().filter(|line| !line.starts_with('#')).skip(1) {
        let mut cells = line.rsplit(',').map(str::parse::<f64>);
        if let (Some(Ok(of_decode)), Some(Ok(of_prefill))) = (cells.next(), cells.next()) {
            decode.push(of_decode);
            prefill.push(of_prefill);
        }
    }
    draw_step_factors(&prefill, &decode, draws).map_err(RunError::runtime)
}

/// `deployment` with steps that take as many times as long.
fn scaled(deployment: &Deployment, factors: StepFactors) -> Deployment {
    let latency = Scaled::new(Arc::clone(&deployment.latency), factors.prefill, factors.decode);
    Deployment { latency: Arc::new(latency), ..deployment.clone() }
}

/// The replicas that the design `index` needs in each draw, and whether `layout` is enough. A share `risk` of the draws may fail.
pub(super) fn model_risk(
    bench: &Bench,
    index: usize,
    layout: Layout,
    seeded: &SeededLoad,
    draws: &[StepFactors],
    risk: f64,
) -> Result<ModelRisk, RunError> {
    let needed = crate::runs::run_all(draws, &[0], |&factors, _| needed(bench, index, layout, seeded, factors))?;
    let mut needed: Vec<u32> = needed.into_iter().flatten().map(|count| count.unwrap_or(u32::MAX)).collect();
    let held = needed.iter().filter(|&&count| count <= layout.replicas).count() as u64;
    needed.sort_unstable();
    let at = |rank: usize| needed.get(rank.min(needed.len() - 1)).copied().filter(|&count| count < u32::MAX);
    let outside = (OUTSIDE * draws.len() as f64) as usize;
    let most_held = ((1.0 - risk) * draws.len() as f64).ceil() as usize;
    Ok(ModelRisk {
        draws: draws.len() as u64,
        held,
        replicas_low: at(outside),
        replicas_high: at(draws.len() - 1 - outside),
        replicas_within_risk: at(most_held.max(1) - 1),
    })
}

/// The fewest replicas that hold in a draw, searched from those of `layout`; `None` if not even many times as many do.
fn needed(
    bench: &Bench,
    index: usize,
    layout: Layout,
    seeded: &SeededLoad,
    factors: StepFactors,
) -> Result<Option<u32>, RunError> {
    const STOP: EarlyStop = EarlyStop(1.0);
    let design = &bench.designs[index];
    let deployment = scaled(&design.deployment, factors);
    let most = if design.least == design.most { layout.replicas } else { layout.replicas.saturating_mul(MOST_TIMES) };
    let share = f64::from(layout.prefill) / f64::from(layout.replicas);
    let found = fewest(layout.replicas, design.least, most, |replicas| {
        let prefill = (f64::from(replicas) * share).round() as u32;
        let prefill = if layout.prefill > 0 { prefill.clamp(1, replicas.max(2) - 1) } else { 0 };
        let service = design.with(Layout { replicas, prefill });
        bench.count_run();
        let run = LoadRun::new(&service, &deployment, seeded, seeded.usual, bench.slos, STOP)?;
        Ok(probe(&run, replicas))
    })?;
    Ok(match found {
        Fewest::Found(count) => Some(count),
        Fewest::Beyond(_) | Fewest::Idle(_) => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_of_the_draws_is_the_median_of_the_measured_errors() {
        let factors = factors(21).expect("a table");
        let middle = |of: fn(&StepFactors) -> f64| {
            let mut values: Vec<f64> = factors.iter().map(of).collect();
            values.sort_by(f64::total_cmp);
            values[10]
        };
        let (prefill, decode) = (middle(|of| of.prefill), middle(|of| of.decode));
        assert!((prefill - 1.32).abs() < 0.02 && (decode - 1.07).abs() < 0.02, "{prefill} {decode}");
    }
}
