//! Models with KV groups: random groups of all kinds, in both engines.

use super::*;
use crate::instance::KvGroups;
use crate::kv::pages::{CacheSpec, KvLayout, LayerRule, LayoutSettings, Packing, StateMode, plan};

/// One kind of layers: (rule, its size, blocks of the unit per block, bytes per token, layers).
type LayerNumbers = (u8, u32, u32, u32, u32);

/// What decides about the groups of random layers.
#[derive(Clone, Debug)]
pub(crate) struct GroupNumbers {
    layers: Vec<LayerNumbers>,
    unit: u32,
    /// Blocks of the unit per block of a state, and pages and alignment of its checkpoints.
    state: (u32, u32, u32),
    match_unit: bool,
    hybrid: bool,
    retention: Option<u32>,
}

impl GroupNumbers {
    fn layers(&self, caching: bool, max_model_len: u32) -> Vec<CacheSpec> {
        let layer = |&(rule, size, blocks, bytes, layers): &LayerNumbers| {
            let block = self.unit * blocks;
            let page_bytes = u64::from(block * bytes);
            let (rule, block, page_bytes) = match rule {
                0 => (LayerRule::Full, block, page_bytes),
                1 => (LayerRule::Window(size), block, page_bytes),
                2 => (LayerRule::Chunk(size), block, page_bytes),
                3 => (LayerRule::Latent { tokens_per_state: 1 }, block, page_bytes),
                4 => (LayerRule::LatentWindow(size), block, page_bytes),
                _ => {
                    let (blocks, checkpoints, checkpoint_alignment) = self.state;
                    let mode = if caching { StateMode::Align } else { StateMode::None };
                    let block = if caching { self.unit * blocks } else { max_model_len };
                    (LayerRule::State { mode, checkpoints, checkpoint_alignment }, block, 1)
                }
            };
            CacheSpec { rule, block, page_bytes, layers }
        };
        self.layers.iter().map(layer).collect()
    }

    fn layout(&self, caching: bool, max_model_len: u32) -> Option<KvLayout> {
        let layers = self.layers(caching, max_model_len);
        let settings = LayoutSettings {
            hybrid: self.hybrid,
            prefix_caching: caching,
            prefix_match_unit: self.match_unit.then_some(self.unit),
            packing: if layers.len() > 2 { Packing::BlocksOutermost } else { Packing::EqualPages },
        };
        plan(&layers, settings).ok()
    }
}

pub(crate) fn group_numbers() -> impl Strategy<Value = GroupNumbers> {
    let size = prop_oneof![1u32..12, 1u32..90];
    let layer = (0u8..7, size, prop_oneof![3 => Just(1u32), 1 => 1u32..4], 1u32..3, 1u32..4);
    let retention = prop_oneof![2 => Just(Some(0u32)), 1 => Just(None), 1 => (1u32..60).prop_map(Some)];
    let state = (1u32..5, 0u32..2, prop_oneof![Just(1u32), 1u32..9]);
    let flags = (any::<bool>(), prop_oneof![6 => Just(true), 1 => Just(false)]);
    (proptest::collection::vec(layer, 1..5), prop_oneof![Just(4u32), 1u32..17], state, flags, retention).prop_map(
        |(layers, unit, state, (match_unit, hybrid), retention)| GroupNumbers {
            layers,
            unit,
            state,
            match_unit,
            hybrid,
            retention,
        },
    )
}

/// Windows beside layers that hold all tokens, of which the fast engine counts the pages of decoding requests.
fn window_numbers() -> impl Strategy<Value = GroupNumbers> {
    let rule = proptest::sample::select(vec![0u8, 1, 1, 3, 4]);
    let layer = (rule, 1u32..24, prop_oneof![3 => Just(1u32), 1 => 2u32..4], 1u32..3, 1u32..3);
    (proptest::collection::vec(layer, 2..4), prop_oneof![Just(1u32), 2u32..5]).prop_map(|(layers, unit)| GroupNumbers {
        layers,
        unit,
        state: (1, 0, 1),
        match_unit: false,
        hybrid: true,
        retention: Some(0),
    })
}

/// The same configuration with a pool of `pages` pages for these groups, which BLIS does not know; or with blocks, if no pool can have them.
pub(crate) fn with_groups(config: InstanceConfig, numbers: &GroupNumbers, pages: u32) -> InstanceConfig {
    let max_model_len = config.max_model_len.unwrap_or(210);
    let Some(layout) = numbers.layout(config.enable_prefix_caching, max_model_len) else {
        return InstanceConfig { kv_groups: None, ..config };
    };
    InstanceConfig {
        max_model_len: Some(max_model_len),
        block_size: layout.hash_block,
        total_kv_blocks: pages,
        kv_groups: Some(Arc::new(KvGroups { layout, retention: numbers.retention, pipeline: 1 })),
        semantics: Semantics {
            full_hit_is_free: false,
            final_token_kv: false,
            reserves_before_decode: false,
            ..config.semantics
        },
        ..config
    }
}

/// The same configuration with layers of windows beside others, of which requests outgrow the windows.
pub(super) fn of_windows(config: InstanceConfig) -> InstanceConfig {
    let numbers = GroupNumbers {
        layers: vec![(1, 32, 1, 1, 1), (0, 0, 1, 1, 1)],
        unit: config.block_size,
        state: (1, 0, 1),
        match_unit: false,
        hybrid: true,
        retention: Some(0),
    };
    let pages = 2 * config.total_kv_blocks;
    with_groups(config, &numbers, pages)
}

pub(super) fn config_with_groups() -> impl Strategy<Value = InstanceConfig> {
    (config(), group_numbers(), 3u32..120).prop_map(|(config, numbers, pages)| with_groups(config, &numbers, pages))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, max_shrink_iters: 4000, ..ProptestConfig::default() })]

    #[test]
    fn fast_equals_plain_with_groups(
        config in config_with_groups(),
        drafts in drafts(),
        horizon in prop_oneof![3 => Just(Micros::MAX), 1 => (1000u64..200_000).prop_map(Micros)],
    ) {
        compare(config, &drafts, horizon)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, max_shrink_iters: 4000, ..ProptestConfig::default() })]

    /// Models of which the fast engine counts the pages, where requests take the last ones.
    #[test]
    fn fast_equals_plain_with_few_pages_for_windows(
        numbers in window_numbers(),
        (pages, max_num_seqs, max_num_batched_tokens) in (8u32..70, 1u32..5, 8u32..64),
        prompts in drafts(),
        async_scheduling: bool,
    ) {
        let config = InstanceConfig { max_num_seqs, max_num_batched_tokens, async_scheduling, ..steady() };
        compare(with_groups(config, &numbers, pages), &prompts, Micros::MAX)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, max_shrink_iters: 2000, ..ProptestConfig::default() })]

    #[test]
    fn both_report_the_same_with_groups(
        config in config_with_groups(),
        drafts in drafts(),
        reports in proptest::collection::vec((prop_oneof![1u64..2000, 1u64..40_000], any::<bool>()), 1..40),
    ) {
        let requests = requests(&drafts, config.block_size);
        watch(&config, &requests, &reports)?;
    }
}

/// Random loads are a useful test only if they reach the difficult cases.
#[test]
fn random_loads_with_groups_reach_the_difficult_cases() {
    use proptest::strategy::ValueTree as _;
    use proptest::test_runner::TestRunner;

    let mut runner = TestRunner::deterministic();
    let mut reached = [0; 8];
    for _ in 0..1000 {
        let config = config_with_groups().new_tree(&mut runner).expect("a config").current();
        let requests = requests(&drafts().new_tree(&mut runner).expect("drafts").current(), config.block_size);
        let Some(groups) = &config.kv_groups else { continue };
        let has = |kind: fn(LayerRule) -> bool| u64::from(groups.layout.groups.iter().any(|group| kind(group.rule)));
        reached[0] += u64::from(groups.layout.groups.len() > 2);
        reached[1] += has(|rule| rule.window().is_some());
        reached[2] += has(|rule| matches!(rule, LayerRule::State { mode: StateMode::Align, .. }));
        reached[3] += has(|rule| matches!(rule, LayerRule::Chunk(_)));
        reached[4] += u64::from(groups.layout.hit_alignment < groups.layout.scheduler_block);
        let log = simulate(Fast::new(config), &requests, Micros::MAX);
        reached[5] += log.counters.preemptions;
        reached[6] += log.counters.prefix_cache.hits;
        let waits = |decision: &&SchedulingDecision| {
            matches!(decision.result, SchedulingResult::Waits(WaitReason::KvBlocks { .. }))
        };
        reached[7] += log.scheduled.iter().filter(waits).count() as u64;
    }
    let names = ["groups", "windows", "states", "chunks", "fine hits", "preemptions", "hits", "waits for pages"];
    for (name, count) in names.iter().zip(reached) {
        assert!(count > 20, "{name}: only {count} in 1000 loads");
    }
}
