//! The least loaded instance, updated incrementally from decision to decision.
//!
//! Between two decisions a few counts of requests in flight change, and nothing else until the signals are refreshed.
//! The smallest load of every [`CHUNK`] neighbouring instances is therefore kept, with the number of instances that
//! have it: a decision reads the changed entries and a sixteenth of the rest.

use crate::policy::{ClusterView, Ties};

/// [`ClusterView::effective_load`] of every instance; a value that exceeds 32 bits counts as the largest.
#[derive(Clone, Debug, Default)]
pub(super) struct Loads {
    /// Waiting and running requests, as of `version` of the columns.
    on_board: Vec<u32>,
    version: u64,
    /// The same with requests in flight added, as of `changes` changes of those.
    all: Vec<u32>,
    changes: u64,
    /// The minimum of each [`CHUNK`] of `all`.
    least: Vec<Least>,
}

/// Neighbouring instances that share one minimum.
const CHUNK: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Least {
    load: u32,
    /// How many instances have this load.
    tied: u32,
}

impl Loads {
    /// Index of the least loaded instance; among equals, the one that `ties` selects for request `id`.
    pub fn least(&mut self, id: u32, cluster: &ClusterView<'_>, ties: &Ties) -> usize {
        self.follow(cluster);
        let least = self.least.iter().map(|chunk| chunk.load).min().expect("there are instances");
        let tied = |chunk: &Least| if chunk.load == least { chunk.tied } else { 0 };
        let all_tied: u32 = self.least.iter().map(tied).sum();
        let mut nth = ties.pick(id, all_tied as usize);
        for (number, (chunk, loads)) in self.least.iter().zip(self.all.chunks(CHUNK)).enumerate() {
            let tied = tied(chunk) as usize;
            if nth < tied {
                let mut places = (0..loads.len()).filter(|&place| loads[place] == least);
                return number * CHUNK + places.nth(nth).expect("it is one of them");
            }
            nth -= tied;
        }
        unreachable!("no load is the least")
    }

    fn follow(&mut self, cluster: &ClusterView<'_>) {
        let signals = cluster.signals;
        let changed = cluster.in_flight_changes.since(self.changes);
        self.changes = cluster.in_flight_changes.count();
        let on_board_stands = self.version != 0 && self.version == cluster.versions.load;
        match changed {
            Some(changed) if on_board_stands && changed.len() < self.all.len() => {
                for &place in changed {
                    let place = place as usize;
                    self.all[place] = self.on_board[place].saturating_add(signals.in_flight[place]);
                    let first = place - place % CHUNK;
                    let end = self.all.len().min(first + CHUNK);
                    self.least[place / CHUNK] = Least::of(&self.all[first..end]);
                }
            }
            _ => self.look_at_all(cluster, on_board_stands),
        }
    }

    fn look_at_all(&mut self, cluster: &ClusterView<'_>, on_board_stands: bool) {
        let signals = cluster.signals;
        if !on_board_stands {
            self.version = cluster.versions.load;
            self.on_board.clear();
            let columns = signals.queue_depth.iter().zip(&signals.batch_size);
            self.on_board.extend(columns.map(|(&waiting, &running)| waiting.saturating_add(running)));
        }
        self.all.clear();
        let columns = self.on_board.iter().zip(&signals.in_flight);
        self.all.extend(columns.map(|(&on_board, &in_flight)| on_board.saturating_add(in_flight)));
        self.least.clear();
        self.least.extend(self.all.chunks(CHUNK).map(Least::of));
    }
}

impl Least {
    fn of(loads: &[u32]) -> Self {
        let load = loads.iter().copied().fold(u32::MAX, u32::min);
        Self { load, tied: loads.iter().map(|&other| u32::from(other == load)).sum() }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::policy::testing::Service;
    use crate::policy::{Changes, Versions};
    use crate::rng::Stream;

    /// A change of the signals: a request is dispatched to or leaves an instance, or the periodic columns are
    /// refreshed.
    #[derive(Clone, Copy, Debug)]
    enum Change {
        InFlight(usize, u32),
        Board(usize, u32),
    }

    fn change() -> impl Strategy<Value = Change> {
        let (place, load) = (0usize..50, 0u32..3);
        prop_oneof![
            9 => (place.clone(), load.clone()).prop_map(|(place, load)| Change::InFlight(place, load)),
            1 => (place, load).prop_map(|(place, load)| Change::Board(place, load)),
        ]
    }

    proptest! {
        #[test]
        fn the_least_is_found_whatever_changed(
            n in 1usize..50,
            rounds in prop::collection::vec(prop::collection::vec(change(), 0..6), 1..30),
            forgotten in prop::collection::vec(any::<bool>(), 30),
        ) {
            let mut service = Service::idle(n);
            let (mut loads, mut version) = (Loads::default(), 1);
            let (mut before, mut recent) = (0, Vec::new());
            let ties = Ties::Random(Stream::new(42, "router"));
            for (id, (round, forgotten)) in (0..).zip(rounds.into_iter().zip(forgotten)) {
                if forgotten {
                    before += recent.len() as u64;
                    recent.clear();
                }
                for change in round {
                    match change {
                        Change::InFlight(place, load) => {
                            service.signals.in_flight[place % n] = load;
                            recent.push((place % n) as u32);
                        }
                        Change::Board(place, load) => {
                            service.signals.queue_depth[place % n] = load;
                            version += 1;
                        }
                    }
                }
                let cluster = ClusterView {
                    versions: Versions { load: version, cached_blocks: 1 },
                    in_flight_changes: Changes::new(before, &recent),
                    ..service.view()
                };
                let load = |&place: &usize| cluster.effective_load(place);
                let least = (0..n).map(|place| load(&place)).min();
                let tied: Vec<usize> = (0..n).filter(|place| Some(load(place)) == least).collect();
                prop_assert_eq!(loads.clone().least(id, &cluster, &Ties::LowestIndex), tied[0]);
                prop_assert_eq!(loads.least(id, &cluster, &ties), tied[ties.pick(id, tied.len())]);
            }
        }
    }
}
