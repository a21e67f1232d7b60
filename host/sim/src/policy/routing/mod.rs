//! Which instance serves a request: the built-in routing policies (`reference/cluster.md` §1.5), a file each.
//!
//! They scan columns; what depends only on columns that have not changed since the last decision is
//! kept ([`Versions`](super::Versions)). Nothing is allocated once warmed up.

mod always_busiest;
mod cache_and_load;
mod least_loaded;
mod loads;
mod no_hit_lru;
mod prefix_affinity;
mod round_robin;
mod scorers;
mod sent_blocks;
#[cfg(test)]
mod tests;
mod weighted;

pub use always_busiest::AlwaysBusiest;
pub use cache_and_load::CacheAndLoad;
pub use least_loaded::LeastLoaded;
pub use prefix_affinity::PrefixAffinity;
pub use round_robin::RoundRobin;
pub use scorers::{DEFAULT_PROFILE, ScorerKind};
pub use weighted::Weighted;

use super::{ClusterView, Reads, Ties};

/// What [`ClusterView::effective_load`] looks at.
const LOAD: Reads = Reads { load: true, in_flight: true, cached_blocks: false };

/// Whether `weight` can weigh a term.
fn is_weight(weight: f64) -> bool {
    weight.is_finite() && weight > 0.0
}

/// [`ClusterView::effective_load`] of every instance. Half as wide, so that twice as many fit a
/// vector register; what does not fit counts as the largest.
fn loads(cluster: &ClusterView<'_>) -> impl Iterator<Item = u32> + Clone {
    let signals = cluster.signals;
    let columns = signals.queue_depth.iter().zip(&signals.batch_size).zip(&signals.in_flight);
    columns.map(|((&waiting, &running), &in_flight)| waiting.saturating_add(running).saturating_add(in_flight))
}

/// Place of the highest score.
fn best(scores: &[f64], id: u32, ties: &Ties) -> usize {
    pick(scores, highest(scores), id, ties)
}

/// In eight lanes: one comparison need not wait for the one before.
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

/// One machine instruction each, which `f64::max`, `min` and `clamp` are not: they care for NaN.
fn larger(a: f64, b: f64) -> f64 {
    if a > b { a } else { b }
}

fn smaller(a: f64, b: f64) -> f64 {
    if a < b { a } else { b }
}

/// Place of the value that is `best`; where there are several, of the one that `ties` picks for
/// request `id`. Counts in chunks, and looks at single values only in the chunk with that one.
fn pick<T: Copy + PartialEq>(values: &[T], best: T, id: u32, ties: &Ties) -> usize {
    const CHUNK: usize = 16;
    let mut nth = ties.pick(id, count(values, best));
    for (number, chunk) in values.chunks(CHUNK).enumerate() {
        let tied = count(chunk, best);
        if nth < tied {
            let mut places = (0..chunk.len()).filter(|&place| chunk[place] == best);
            return number * CHUNK + places.nth(nth).expect("it is one of them");
        }
        nth -= tied;
    }
    unreachable!("no value is the best")
}

fn count<T: Copy + PartialEq>(values: &[T], wanted: T) -> usize {
    values.iter().filter(|&&value| value == wanted).count()
}
