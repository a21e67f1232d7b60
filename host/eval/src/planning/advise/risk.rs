//! Deployments under draws of the error of the latency model.

use blis_stats::StepFactors;

use crate::error::RunError;
use crate::planning::load::SeededLoad;
use crate::planning::load_run::{EarlyStop, LoadRun};
use crate::planning::model_error::{ModelRisk, scaled};

use crate::planning::size::probe;

use super::bench::Bench;
use super::space::ReplicaLayout;
use crate::planning::fewest::{Fewest, fewest};

/// How many times the replicas a draw may need.
const MOST_TIMES: u32 = 8;

/// The replicas that the design `index` needs in each draw, and whether `layout` is enough. A share `risk` of the draws may fail.
pub(super) fn model_risk(
    bench: &Bench,
    index: usize,
    layout: ReplicaLayout,
    seeded: &SeededLoad,
    draws: &[StepFactors],
    risk: f64,
) -> Result<ModelRisk, RunError> {
    let needed = crate::runs::run_all(draws, &[0], |&factors, _| needed(bench, index, layout, seeded, factors))?;
    let needed: Vec<Option<u32>> = needed.into_iter().flatten().collect();
    Ok(ModelRisk::new(&needed, layout.replicas, risk))
}

/// The fewest replicas that hold in a draw, searched from those of `layout`; `None` if not even many times as many do.
fn needed(
    bench: &Bench,
    index: usize,
    layout: ReplicaLayout,
    seeded: &SeededLoad,
    factors: StepFactors,
) -> Result<Option<u32>, RunError> {
    const STOP: EarlyStop = EarlyStop(1.0);
    let design = &bench.designs[index];
    let deployment = scaled(&design.deployment, factors);
    let most = if design.is_sized { layout.replicas } else { layout.replicas.saturating_mul(MOST_TIMES) };
    let share = f64::from(layout.prefill) / f64::from(layout.replicas);
    let found = fewest(layout.replicas, design.least, most, |replicas| {
        let prefill = (f64::from(replicas) * share).round() as u32;
        let prefill = if layout.prefill > 0 { prefill.clamp(1, replicas.max(2) - 1) } else { 0 };
        let service = design.with(ReplicaLayout { replicas, prefill });
        bench.count_run();
        let run = LoadRun::new(&service, &deployment, seeded, seeded.usual, bench.slos, STOP)?;
        Ok(probe(&run, replicas))
    })?;
    Ok(match found {
        Fewest::Found(count) => Some(count),
        Fewest::Beyond(_) | Fewest::Idle(_) => None,
    })
}
