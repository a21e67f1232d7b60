//! The least load, updated from decision to decision.
//!
//! Between two decisions a few loads change, and the host reports which. The index keeps, for every chunk of
//! neighbouring instances, the least load and how many instances have it: a decision reads the changed loads and a
//! sixteenth of the rest.

use crate::Load;

/// [`Load::requests`] of every instance; a load that exceeds 32 bits counts as the largest.
#[derive(Clone, Debug, Default)]
pub struct LoadIndex {
    all: Vec<u32>,
    /// One entry for each [`CHUNK`] of `all`.
    least: Vec<ChunkLoad>,
}

/// Number of neighbouring instances in a chunk.
pub const CHUNK: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ChunkLoad {
    load: u32,
    /// Number of instances with this load.
    tied: u32,
}

impl LoadIndex {
    /// Updates the loads: those at the indices in `changed`, or all if it is `None`. Returns `false`, and keeps
    /// nothing, if any load may have changed, because the next decision may be the same.
    pub fn follow(&mut self, instances: &[Load], changed: Option<&[u32]>) -> bool {
        match changed {
            Some(indices) if self.all.len() == instances.len() => {
                // Updates all loads before the chunks: reading what was just written is slow.
                let indices = || indices.iter().map(|&index| index as usize);
                indices().for_each(|index| self.all[index] = load(&instances[index]));
                for chunk in indices().map(|index| index / CHUNK) {
                    let loads = &self.all[chunk * CHUNK..];
                    // A chunk of constant length compiles to faster code.
                    self.least[chunk] =
                        loads.first_chunk::<CHUNK>().map_or_else(|| ChunkLoad::new(loads), |full| ChunkLoad::new(full));
                }
            }
            Some(_) => {
                self.all.clear();
                self.all.extend(instances.iter().map(load));
                self.least.clear();
                self.least.extend(self.all.chunks(CHUNK).map(ChunkLoad::new));
            }
            None => self.all.clear(),
        }
        changed.is_some()
    }

    /// The index of the least load; among equal ones, the one that `pick` chooses from so many.
    pub fn least(&self, pick: impl FnOnce(u32) -> u32) -> usize {
        let least = self.least.iter().map(|chunk| chunk.load).fold(u32::MAX, u32::min);
        let tied = |chunk: &ChunkLoad| if chunk.load == least { chunk.tied } else { 0 };
        let all_tied: u32 = self.least.iter().map(tied).sum();
        let mut nth = if all_tied == 1 { 0 } else { pick(all_tied) };
        for (number, (chunk, loads)) in self.least.iter().zip(self.all.chunks(CHUNK)).enumerate() {
            let tied = tied(chunk);
            if nth < tied {
                let mut indices = (0..loads.len()).filter(|&index| loads[index] == least);
                return number * CHUNK + indices.nth(nth as usize).expect("it is one of them");
            }
            nth -= tied;
        }
        panic!("there is nothing to choose from, or the choice is none");
    }
}

fn load(instance: &Load) -> u32 {
    instance.requests() as u32
}

impl ChunkLoad {
    #[inline]
    fn new(loads: &[u32]) -> Self {
        let load = loads.iter().copied().fold(u32::MAX, u32::min);
        Self { load, tied: loads.iter().map(|&other| u32::from(other == load)).sum() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The next pseudo-random number of a linear congruential generator.
    fn next(state: &mut u64) -> usize {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*state >> 33) as usize
    }

    #[test]
    fn the_least_is_found_whatever_changed() {
        let mut state = 42;
        let (mut loads, mut instances) = (LoadIndex::default(), Vec::new());
        for round in 0..2000 {
            let load = |state: &mut u64| (next(state) % 3) as f64;
            // Sometimes the number of instances changes, which makes all loads unknown.
            if round % 40 == 0 {
                instances = vec![Load::default(); 1 + round / 40];
                instances.iter_mut().for_each(|instance| instance.queue_depth = load(&mut state));
                assert!(!loads.follow(&instances, None));
            }
            let n = instances.len();
            let indices: Vec<u32> = (0..next(&mut state) % 4).map(|_| (next(&mut state) % n) as u32).collect();
            indices.iter().for_each(|&index| instances[index as usize].in_flight = load(&mut state));
            assert!(loads.follow(&instances, Some(&indices)));
            let least = instances.iter().map(Load::requests).fold(f64::INFINITY, f64::min);
            let tied: Vec<_> = (0..n).filter(|&i| instances[i].requests() == least).collect();
            for (number, &index) in tied.iter().enumerate() {
                let chosen = loads.least(|count| {
                    assert_eq!(count as usize, tied.len());
                    number as u32
                });
                assert_eq!(chosen, index, "round {round}");
            }
        }
    }

    #[test]
    fn the_largest_loads_are_equal() {
        let most = f64::from(u32::MAX);
        let instance = |queue_depth| Load { queue_depth, batch_size: most, ..Load::default() };
        let mut loads = LoadIndex::default();
        assert!(loads.follow(&[0.0, 1.0, most].map(instance), Some(&[])));
        assert_eq!(loads.least(|tied| tied - 1), 2, "none is less than 32 bits hold");
    }
}
