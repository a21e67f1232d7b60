//! The built-in routing policies (`reference/cluster.md` §1.5), a file each.
//!
//! They scan columns. Values that depend only on columns that have not changed since the last decision are kept
//! ([`Versions`](super::Versions)). After warm-up nothing is allocated.

mod always_busiest;
mod cache_and_load;
mod filters;
mod least_loaded;
mod loads;
mod no_hit_lru;
mod policy;
mod predicted_latency;
mod prefix_affinity;
mod round_robin;
mod scorers;
mod sent_blocks;
mod sessions;
mod step_memory;
#[cfg(test)]
mod tests;
mod weighted;

pub use always_busiest::AlwaysBusiest;
pub use cache_and_load::CacheAndLoad;
pub use filters::{ConcurrencyFilter, FilterStep, PrefixCacheFilter, RoutingFilter, SaturationFilter};
pub use least_loaded::LeastLoaded;
pub use policy::{RoutingDecision, RoutingPolicy, RoutingStep, StepFailed};
pub use prefix_affinity::PrefixAffinity;
pub use round_robin::RoundRobin;
pub use scorers::{DEFAULT_PROFILE, EPP_PROFILE, ScorerKind, ScorerStep};
pub use sent_blocks::SENT_BLOCKS;
pub use step_memory::StepMemory;
pub use weighted::Weighted;

use super::{ClusterView, Reads, Ties};
use crate::ids::RequestId;

/// The signals of [`ClusterView::effective_load`].
const LOAD: Reads = Reads { load: true, in_flight: true, ..Reads::NOTHING };

/// Whether `weight` is valid: finite and above 0.
fn is_weight(weight: f64) -> bool {
    weight.is_finite() && weight > 0.0
}

/// [`ClusterView::effective_load`] of every instance. Half as wide, so that twice as many fit a vector register; a
/// value that exceeds 32 bits counts as the largest.
fn loads(cluster: &ClusterView<'_>) -> impl Iterator<Item = u32> + Clone {
    let signals = cluster.signals;
    let columns = signals.queue_depth.iter().zip(&signals.batch_size).zip(&signals.in_flight);
    columns.map(|((&waiting, &running), &in_flight)| waiting.saturating_add(running).saturating_add(in_flight))
}

/// Index of the highest score, with ties broken by `ties`.
fn best(scores: &[f64], id: RequestId, ties: &Ties) -> usize {
    pick(scores, highest(scores), id, ties)
}

/// The maximum, computed in eight lanes, so that one comparison does not depend on the one before.
fn highest(scores: &[f64]) -> f64 {
    let (chunks, rest) = scores.as_chunks::<8>();
    let mut lanes = [f64::NEG_INFINITY; 8];
    for chunk in chunks {
        for (lane, &score) in lanes.iter_mut().zip(chunk) {
            *lane = larger(*lane, score);
        }
    }
    lanes.iter().chain(rest).copied().fold(f64::NEG_INFINITY, larger)
}

/// One machine instruction, which `f64::max`, `min` and `clamp` are not, because they handle NaN.
fn larger(a: f64, b: f64) -> f64 {
    if a > b { a } else { b }
}

fn smaller(a: f64, b: f64) -> f64 {
    if a < b { a } else { b }
}

/// Index of the value that equals `best`; if there are several, of the one that `ties` selects for request `id`. Counts
/// in chunks, and compares single values only in the chunk that contains the result.
fn pick<T: Copy + PartialEq>(values: &[T], best: T, id: RequestId, ties: &Ties) -> usize {
    const CHUNK: usize = 16;
    let mut nth = ties.pick(id, count(values, best));
    for (number, chunk) in values.chunks(CHUNK).enumerate() {
        let tied = count(chunk, best);
        if nth < tied {
            let mut indices = (0..chunk.len()).filter(|&index| chunk[index] == best);
            return number * CHUNK + indices.nth(nth).expect("it is one of them");
        }
        nth -= tied;
    }
    unreachable!("no value is the best")
}

fn count<T: Copy + PartialEq>(values: &[T], wanted: T) -> usize {
    values.iter().filter(|&&value| value == wanted).count()
}
