//! The first look: one seed and few requests tell about how many replicas a design needs.

use std::collections::BTreeMap;

use crate::error::RunError;
use crate::planning::load::{MeanTokens, SeededLoad};
use crate::planning::load_run::{EarlyStop, LoadRun};
use crate::planning::slo::Slo;
use blis_sim::latency::Batch;

use crate::planning::size::probe;

use super::bench::Bench;
use super::space::{Design, ReplicaLayout};
use crate::planning::fewest::{Fewest, ProbeResult, fewest};

/// A run ends once it misses a percentile.
const STOP: EarlyStop = EarlyStop(1.0);
/// How many divisions of the same replicas into roles are tried.
const DIVISIONS: usize = 5;

/// About how many replicas a design needs.
#[derive(Clone, Debug)]
pub(super) struct Screened {
    pub result: Fewest,
    /// The fewest that held, or the most that were tried.
    pub layout: ReplicaLayout,
    /// The run of that layout.
    pub run: LoadRun,
}

impl Screened {
    pub fn holds(&self) -> bool {
        matches!(self.result, Fewest::Found(_))
    }
}

/// Searches the fewest replicas of the design `index` up to `most`, from `start`.
pub(super) fn screen(
    bench: &Bench,
    index: usize,
    seeded: &SeededLoad,
    start: u32,
    most: u32,
) -> Result<Screened, RunError> {
    let design = &bench.designs[index];
    let mut tried: BTreeMap<u32, (ReplicaLayout, LoadRun)> = BTreeMap::new();
    let mut share = 0.5;
    let result = fewest(start, design.least, most.max(design.least), |replicas| {
        let (layout, run) = best_division(bench, index, seeded, replicas, share)?;
        if layout.prefill > 0 {
            share = f64::from(layout.prefill) / f64::from(replicas);
        }
        let found = probe(&run, replicas);
        tried.insert(replicas, (layout, run));
        Ok(found)
    })?;
    let (Fewest::Found(count) | Fewest::Beyond(count) | Fewest::Idle(count)) = result;
    let found = tried.remove(&count);
    let (layout, run) = found.ok_or_else(|| RunError::runtime("a number of replicas was not tried"))?;
    Ok(Screened { result, layout, run })
}

/// The run of `replicas`; with roles, of the division of them that meets the SLOs, or comes closest. `share`: about how many prefill.
pub(super) fn best_division(
    bench: &Bench,
    index: usize,
    seeded: &SeededLoad,
    replicas: u32,
    share: f64,
) -> Result<(ReplicaLayout, LoadRun), RunError> {
    let design = &bench.designs[index];
    let run = |layout: ReplicaLayout| Ok::<_, RunError>((layout, bench.run(index, layout, seeded, 1.0, STOP)?));
    if let Some(fixed) = design.fixed_roles {
        return run(fixed);
    }
    if !design.has_roles {
        return run(ReplicaLayout::of(replicas));
    }
    let first = (f64::from(replicas) * share).round() as u32;
    let mut prefill = first.clamp(1, replicas - 1);
    let mut tried: BTreeMap<u32, LoadRun> = BTreeMap::new();
    for _ in 0..DIVISIONS {
        let (_, of) = run(ReplicaLayout { replicas, prefill })?;
        let wants_prefill = misses_first_tokens(&of, bench.slos);
        let is_found = probe(&of, replicas) == ProbeResult::Holds;
        tried.insert(prefill, of);
        let next = if wants_prefill { prefill + 1 } else { prefill - 1 };
        if is_found || next == 0 || next >= replicas || tried.contains_key(&next) {
            break;
        }
        prefill = next;
    }
    let excess = |run: &LoadRun| run.results.iter().map(|of| of.excess).fold(f64::NEG_INFINITY, f64::max);
    let best = tried
        .into_iter()
        .min_by(|(_, a), (_, b)| (b.meets_all().cmp(&a.meets_all())).then(excess(a).total_cmp(&excess(b))));
    best.map(|(prefill, run)| (ReplicaLayout { replicas, prefill }, run))
        .ok_or_else(|| RunError::runtime("no division into roles was tried"))
}

/// Whether time to first token, rather than the time between tokens, is missed most.
fn misses_first_tokens(run: &LoadRun, slos: &[Slo]) -> bool {
    use crate::planning::slo::SloMetric;
    let binding = run.binding(slos);
    matches!(slos[binding].metric, SloMetric::Ttft | SloMetric::E2e)
}

/// Replicas that `design` needs at least for its decode steps and prompts alone, as far as is known before a run: where the search begins.
/// `rate`: requests per second.
pub(super) fn first_guess(design: &Design, rate: f64, tokens: MeanTokens) -> u32 {
    let limits = design.deployment.instance_limits();
    let latency = &design.deployment.latency;
    let context = tokens.input + tokens.output / 2.0;
    let cached = f64::from(design.deployment.total_kv_blocks) * f64::from(design.deployment.block_size);
    let together = (cached / (tokens.input + tokens.output)).clamp(1.0, f64::from(limits.max_num_seqs));
    let mut decode = Batch::default();
    (0..together as u32).for_each(|_| decode.add_decode(context as u32));
    let decode_us = latency.step_time(&decode).0 as f64 / together.floor().max(1.0) * tokens.output;
    let mut prefill = Batch::default();
    let chunk = limits.max_num_batched_tokens.clamp(1, 1 << 20).min(tokens.input.max(1.0) as u32);
    prefill.add_prefill(chunk, 0, chunk);
    let prefill_us = latency.step_time(&prefill).0 as f64 / f64::from(chunk) * tokens.input;
    // Prefixes that are cached need no prefill: of that, nothing is known here.
    let busy = rate * (decode_us + 0.5 * prefill_us) / 1e6;
    (busy.ceil().clamp(1.0, f64::from(u16::MAX)) as u32).clamp(design.least, design.most)
}
