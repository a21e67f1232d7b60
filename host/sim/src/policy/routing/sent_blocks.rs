//! The scorer `prefix-affinity`: the share of the prompt that was sent to each instance before.
//!
//! The router records the blocks that it sent, so the score is never stale. But the record does not contain what an
//! instance has evicted since, nor what it drops before it runs.

use crate::ids::InstanceIndex;
use crate::policy::block_lru::BlockLru;
use crate::policy::{ClusterView, PrefixIndex, RequestView};

/// Maximum number of blocks recorded per instance without a setting, as in BLIS.
pub const SENT_BLOCKS: u32 = 10_000;

/// The blocks sent to each instance.
#[derive(Clone, Debug)]
pub(super) struct SentBlocks {
    /// Maximum number of blocks recorded per instance, > 0.
    capacity: u32,
    /// The record of each instance, indexed by [`InstanceIndex`].
    sent: Vec<BlockLru>,
    index: PrefixIndex,
    /// Leading blocks of the present prompt, indexed by [`InstanceIndex`].
    counts: Vec<u32>,
}

impl Default for SentBlocks {
    fn default() -> Self {
        Self::new(SENT_BLOCKS)
    }
}

impl SentBlocks {
    /// An empty record of at most `capacity` blocks per instance, at least one.
    pub fn new(capacity: u32) -> Self {
        Self { capacity: capacity.max(1), sent: Vec::new(), index: PrefixIndex::default(), counts: Vec::new() }
    }

    /// Share of the prompt's full blocks that are leading and were sent to the instance; 0 for prompts shorter than a
    /// block. Scoring does not change the order of eviction.
    pub fn score(&mut self, request: &RequestView<'_>, cluster: &ClusterView<'_>, scores: &mut [f64]) {
        self.index.leading(request.shared_blocks(), &mut self.counts);
        let total = f64::from(request.prompt_blocks.max(1));
        for (score, instance) in scores.iter_mut().zip(cluster.instances) {
            let known = self.counts.get(instance.id.index()).copied().unwrap_or(0);
            *score = f64::from(known) / total;
        }
    }

    /// Drops the record of `instance`, which is gone.
    pub fn removed(&mut self, instance: InstanceIndex) {
        if let Some(sent) = self.sent.get_mut(instance.index()) {
            *sent = BlockLru::new(self.capacity);
            self.index.remove(instance, |_| {});
        }
    }

    /// Records that `request` is dispatched to `instance`.
    pub fn dispatched(&mut self, request: &RequestView<'_>, instance: InstanceIndex) {
        if instance.index() >= self.sent.len() {
            let instances = instance.index() + 1;
            self.sent.resize_with(instances, || BlockLru::new(self.capacity));
            self.index.grow(instances);
        }
        let index = &mut self.index;
        let changed = &mut |key, present| {
            index.set(key, instance, present);
        };
        self.sent[instance.index()].record(request.shared_blocks(), request.prompt_blocks, changed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::testing::{TestService, request, view_of};
    use crate::request::{Request, Span};

    fn scores(memory: &mut SentBlocks, request: &Request, service: &TestService) -> Vec<f64> {
        let mut scores = vec![f64::NAN; service.instances.len()];
        memory.score(&view_of(request), &service.view(), &mut scores);
        scores
    }

    #[test]
    fn scores_are_the_leading_share_of_the_full_blocks() {
        let service = TestService::idle(3);
        let mut memory = SentBlocks::default();
        assert_eq!(scores(&mut memory, &request(0, 4, &[Span { first: 0, len: 4 }]), &service), [0.0; 3]);
        memory.dispatched(&view_of(&request(0, 4, &[Span { first: 0, len: 4 }])), InstanceIndex(1));
        // Two blocks as before, then others; two more are unique. The partial block does not count.
        let similar = request(1, 8, &[Span { first: 0, len: 2 }, Span { first: 90, len: 4 }]);
        assert_eq!(scores(&mut memory, &similar, &service), [0.0, 0.25, 0.0]);
        memory.dispatched(&view_of(&similar), InstanceIndex(2));
        assert_eq!(scores(&mut memory, &similar, &service), [0.0, 0.25, 0.75], "unique blocks never match");
        let short = request(2, 0, &[Span { first: 0, len: 4 }]);
        assert_eq!(scores(&mut memory, &short, &service), [0.0; 3]);
    }

    #[test]
    fn instances_are_identified_by_number_not_by_column() {
        let mut service = TestService::idle(3);
        let prompt = request(0, 1, &[Span { first: 0, len: 1 }]);
        let mut memory = SentBlocks::default();
        memory.dispatched(&view_of(&prompt), InstanceIndex(2));
        service.instances.remove(0);
        assert_eq!(scores(&mut memory, &prompt, &service), [0.0, 1.0]);
    }

    #[test]
    fn the_record_of_an_instance_goes_with_it() {
        let service = TestService::idle(2);
        let prompt = request(0, 1, &[Span { first: 0, len: 1 }]);
        let mut memory = SentBlocks::default();
        (0..2).for_each(|instance| memory.dispatched(&view_of(&prompt), InstanceIndex(instance)));
        memory.removed(InstanceIndex(1));
        memory.removed(InstanceIndex(7));
        assert_eq!(scores(&mut memory, &prompt, &service), [1.0, 0.0]);
    }

    #[test]
    fn unique_blocks_evict_shared_ones() {
        fills(SentBlocks::default(), SENT_BLOCKS);
        fills(SentBlocks::new(31_250), 31_250);
    }

    /// `memory` forgets the first of more than `capacity` blocks.
    fn fills(mut memory: SentBlocks, capacity: u32) {
        let service = TestService::idle(1);
        let prompt = request(0, 10, &[Span { first: 0, len: 10 }]);
        memory.dispatched(&view_of(&prompt), InstanceIndex(0));
        memory.dispatched(&view_of(&request(1, capacity - 10, &[])), InstanceIndex(0));
        assert_eq!(scores(&mut memory, &prompt, &service), [1.0], "just fits");
        memory.dispatched(&view_of(&request(2, 1, &[])), InstanceIndex(0));
        assert_eq!(scores(&mut memory, &prompt, &service), [0.0], "its first block is the oldest, and was evicted");
    }
}
