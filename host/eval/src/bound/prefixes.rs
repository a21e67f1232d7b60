//! The prefixes of prompts that other requests have as well.

use std::collections::hash_map::Entry;

use blis_sim::instance::InstanceConfig;
use blis_sim::request::{BlockKey, Request};
use blis_sim::units::Micros;
use rustc_hash::FxHashMap;

/// At any time.
pub(super) const EVER: Micros = Micros::MAX;

/// For each KV block that requests may share, the first requests with it.
pub(super) struct PrefixTable<'a> {
    arrivals: &'a [Request],
    block_size: u32,
    /// Empty without prefix caching.
    blocks: FxHashMap<BlockKey, FirstRequests>,
}

/// The first two requests with a block, as indices in the arrivals.
struct FirstRequests {
    first: usize,
    second: Option<usize>,
}

impl<'a> PrefixTable<'a> {
    /// The blocks of `arrivals`, which are in order of time.
    pub fn new(arrivals: &'a [Request], instance: &InstanceConfig) -> Self {
        let mut blocks = FxHashMap::default();
        let cached = if instance.enable_prefix_caching { arrivals } else { &[] };
        for (index, request) in cached.iter().enumerate() {
            for key in request.content.keys() {
                match blocks.entry(key) {
                    Entry::Vacant(entry) => _ = entry.insert(FirstRequests { first: index, second: None }),
                    Entry::Occupied(mut entry) => {
                        let FirstRequests { first, second } = entry.get_mut();
                        if second.is_none() && *first != index {
                            *second = Some(index);
                        }
                    }
                }
            }
        }
        Self { arrivals, block_size: instance.block_size, blocks }
    }

    /// Number of leading blocks in the prompt of request `index` that other requests arriving until `end` have.
    pub fn cached_blocks(&self, index: usize, end: Micros) -> u32 {
        let request = &self.arrivals[index];
        let whole_blocks = request.input_tokens / self.block_size;
        let shared = request.content.keys().take(whole_blocks as usize);
        shared.take_while(|&key| self.arrival_of_another(index, key).is_some_and(|arrival| arrival <= end)).count()
            as u32
    }

    /// Arrival of the first request other than `index` with this block.
    fn arrival_of_another(&self, index: usize, key: BlockKey) -> Option<Micros> {
        let FirstRequests { first, second } = self.blocks.get(&key)?;
        let another = if *first == index { *second } else { Some(*first) };
        another.map(|index| self.arrivals[index].arrival)
    }
}
