//! The least loaded instance, updated incrementally from decision to decision.
//!
//! Between two decisions a few counts of requests in flight change, and nothing else until the signals are refreshed.
//! The smallest load of every [`CHUNK`] neighbouring instances is therefore kept, with the number of instances that
//! have it: a decision reads the changed entries and a sixteenth of the rest.

use crate::ids::RequestId;
use crate::policy::{ClusterView, Ties};

/// [`ClusterView::effective_load`] of every instance; a value that exceeds 32 bits counts as the largest.
#[derive(Clone, Debug, Default)]
pub(super) struct LeastLoadedIndex {
    /// Waiting and running requests, as of `version` of the columns.
    present: Vec<u32>,
    version: u64,
    /// The same with requests in flight added, as of `changes` changes of those.
    all: Vec<u32>,
    changes: u64,
    /// The minimum of each [`CHUNK`] of `all`.
    least: Vec<ChunkMinimum>,
}

/// Neighbouring instances that share one minimum.
const CHUNK: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ChunkMinimum {
    load: u32,
    /// How many instances have this load.
    tied: u32,
}

impl LeastLoadedIndex {
    /// Index of the least loaded instance; among equals, the one that `ties` selects for request `id`.
    pub fn least(&mut self, id: RequestId, cluster: &ClusterView<'_>, ties: &Ties) -> usize {
        self.update(cluster);
        let least = self.least.iter().map(|chunk| chunk.load).min().expect("there are instances");
        let tied = |chunk: &ChunkMinimum| if chunk.load == least { chunk.tied } else { 0 };
        let all_tied: u32 = self.least.iter().map(tied).sum();
        let mut nth = ties.pick(id, all_tied as usize);
        for (number, (chunk, loads)) in self.least.iter().zip(self.all.chunks(CHUNK)).enumerate() {
            let tied = tied(chunk) as usize;
            if nth < tied {
                let mut indices = (0..loads.len()).filter(|&index| loads[index] == least);
                return number * CHUNK + indices.nth(nth).expect("it is one of them");
            }
            nth -= tied;
        }
        unreachable!("no load is the least")
    }

    fn update(&mut self, cluster: &ClusterView<'_>) {
        let signals = cluster.signals;
        let changed = cluster.in_flight_changes.since(self.changes);
        self.changes = cluster.in_flight_changes.count();
        let present_is_current = self.version != 0 && self.version == cluster.versions.load;
        match changed {
            Some(changed) if present_is_current && changed.len() < self.all.len() => {
                for &index in changed {
                    let index = index as usize;
                    self.all[index] = self.present[index].saturating_add(signals.in_flight[index]);
                    let first = index - index % CHUNK;
                    let end = self.all.len().min(first + CHUNK);
                    self.least[index / CHUNK] = ChunkMinimum::new(&self.all[first..end]);
                }
            }
            _ => self.recompute(cluster, present_is_current),
        }
    }

    fn recompute(&mut self, cluster: &ClusterView<'_>, present_is_current: bool) {
        let signals = cluster.signals;
        if !present_is_current {
            self.version = cluster.versions.load;
            self.present.clear();
            let columns = signals.queue_depth.iter().zip(&signals.batch_size);
            self.present.extend(columns.map(|(&waiting, &running)| waiting.saturating_add(running)));
        }
        self.all.clear();
        let columns = self.present.iter().zip(&signals.in_flight);
        self.all.extend(columns.map(|(&present, &in_flight)| present.saturating_add(in_flight)));
        self.least.clear();
        self.least.extend(self.all.chunks(CHUNK).map(ChunkMinimum::new));
    }
}

impl ChunkMinimum {
    fn new(loads: &[u32]) -> Self {
        let load = loads.iter().copied().fold(u32::MAX, u32::min);
        Self { load, tied: loads.iter().map(|&other| u32::from(other == load)).sum() }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::policy::testing::TestService;
    use crate::policy::{Changes, Versions};
    use crate::rng::Stream;

    /// A change of the signals: a request is dispatched to or leaves an instance, or the periodic columns are
    /// refreshed.
    #[derive(Clone, Copy, Debug)]
    enum SignalChange {
        InFlight(usize, u32),
        Present(usize, u32),
    }

    fn change() -> impl Strategy<Value = SignalChange> {
        let (index, load) = (0usize..50, 0u32..3);
        prop_oneof![
            9 => (index.clone(), load.clone()).prop_map(|(index, load)| SignalChange::InFlight(index, load)),
            1 => (index, load).prop_map(|(index, load)| SignalChange::Present(index, load)),
        ]
    }

    proptest! {
        #[test]
        fn the_least_loaded_is_found_after_any_change(
            n in 1usize..50,
            rounds in prop::collection::vec(prop::collection::vec(change(), 0..6), 1..30),
            dropped in prop::collection::vec(any::<bool>(), 30),
        ) {
            let mut service = TestService::idle(n);
            let (mut loads, mut version) = (LeastLoadedIndex::default(), 1);
            let (mut before, mut recent) = (0, Vec::new());
            let ties = Ties::Random(Stream::new(42, "router"));
            for (id, (round, dropped)) in (0..).map(RequestId).zip(rounds.into_iter().zip(dropped)) {
                if dropped {
                    before += recent.len() as u64;
                    recent.clear();
                }
                for change in round {
                    match change {
                        SignalChange::InFlight(index, load) => {
                            service.signals.in_flight[index % n] = load;
                            recent.push((index % n) as u32);
                        }
                        SignalChange::Present(index, load) => {
                            service.signals.queue_depth[index % n] = load;
                            version += 1;
                        }
                    }
                }
                let cluster = ClusterView {
                    versions: Versions { load: version, cached_blocks: 1, instances: 0 },
                    in_flight_changes: Changes::new(before, &recent),
                    ..service.view()
                };
                let load = |&index: &usize| cluster.effective_load(index);
                let least = (0..n).map(|index| load(&index)).min();
                let tied: Vec<usize> = (0..n).filter(|index| Some(load(index)) == least).collect();
                prop_assert_eq!(loads.clone().least(id, &cluster, &Ties::LowestIndex), tied[0]);
                prop_assert_eq!(loads.least(id, &cluster, &ties), tied[ties.pick(id, tied.len())]);
            }
        }
    }
}
