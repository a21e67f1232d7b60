//! From layers to groups and pages: vLLM 0.33's `get_kv_cache_groups` and `get_kv_cache_configs` (`v1/core/kv_cache_planning.py`).

use thiserror::Error;

use super::layers::{CacheSpec, LayerRule, StateMode};

/// Layers that share a block table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvGroup {
    /// Which tokens its pages hold.
    pub rule: LayerRule,
    /// Tokens of a block.
    pub block: u32,
    /// Bytes of a page of one layer, or of all layers if they differ.
    pub page_bytes: u64,
    /// Number of its layers.
    pub layers: u32,
}

/// The groups of a model on one GPU, in the order in which they take and give back pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KvLayout {
    /// At least one, in the order of the layers.
    pub groups: Vec<KvGroup>,
    /// Bytes of one page of the pool.
    pub bytes_per_block: u64,
    /// Least common multiple of the groups' blocks, tokens: hits end there.
    pub scheduler_block: u32,
    /// Tokens of one content hash: each group's block is a multiple of it.
    pub hash_block: u32,
    /// A prefix hit ends at a multiple of so many tokens.
    pub hit_alignment: u32,
}

/// How the pages of different layers share one pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Packing {
    /// Pages of one size: vLLM's layouts with layers outermost.
    #[default]
    EqualPages,
    /// Pages of different layers side by side in a block (`BLHNC`, `BLNHC`).
    BlocksOutermost,
}

/// What decides about groups beside the layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayoutSettings {
    /// Whether windows and chunks have groups of their own; if not, they hold all tokens where others do
    /// (`--disable-hybrid-kv-cache-manager`).
    pub hybrid: bool,
    /// Whether blocks are hashed.
    pub prefix_caching: bool,
    /// Tokens of one content hash instead of the blocks' common divisor (`--prefix-match-unit`).
    pub prefix_match_unit: Option<u32>,
    /// How pages lie in memory.
    pub packing: Packing,
}

impl Default for LayoutSettings {
    fn default() -> Self {
        Self { hybrid: true, prefix_caching: true, prefix_match_unit: None, packing: Packing::default() }
    }
}

/// The layers cannot share a pool of pages.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum MixedPages {
    /// No layer caches anything.
    #[error("no layer of the model caches anything")]
    NoLayers,
    /// The page of compressed vectors does not divide the page of the others.
    #[error("KV cache layout LBNHC cannot express this model's mixed page sizes: {page} and {largest} bytes")]
    Latent {
        /// Bytes of a page of latent attention.
        page: u64,
        /// Bytes of the largest page.
        largest: u64,
    },
    /// A hash block must divide every block.
    #[error("prefix_match_unit {unit} does not divide the KV block of {block} tokens")]
    Unit {
        /// The given number of tokens.
        unit: u32,
        /// The block.
        block: u32,
    },
    /// Hashes finer than the blocks of a single group.
    #[error("prefix_match_unit {unit} is not the block of {block} tokens, and the model has one KV group")]
    UnitOfOneGroup {
        /// The given number of tokens.
        unit: u32,
        /// The block.
        block: u32,
    },
}

/// The groups of a model with these `layers`: one entry per kind, in the order in which the kinds first occur.
///
/// # Errors
/// If pages of these sizes cannot share a pool, or `prefix_match_unit` does not fit the blocks.
pub fn plan(layers: &[CacheSpec], settings: LayoutSettings) -> Result<KvLayout, MixedPages> {
    let layers = merged(layers.iter().map(|&layer| if settings.hybrid { layer } else { layer.holding_all(layers) }));
    let (groups, bytes_per_block) = match &layers[..] {
        [] => return Err(MixedPages::NoLayers),
        [only] => (vec![KvGroup::of_layers(*only, only.layers)], only.bytes()),
        _ if is_uniform(&layers) => summed(&layers),
        _ if settings.packing == Packing::BlocksOutermost => side_by_side(&layers),
        _ => equal_pages(&layers)?,
    };
    let scheduler_block = groups.iter().fold(1, |multiple, group| lcm(multiple, group.block));
    let (hash_block, hit_alignment) = hashing(&groups, scheduler_block, settings)?;
    Ok(KvLayout { groups, bytes_per_block, scheduler_block, hash_block, hit_alignment })
}

/// Hash block and alignment of hits.
fn hashing(groups: &[KvGroup], scheduler_block: u32, settings: LayoutSettings) -> Result<(u32, u32), MixedPages> {
    if !settings.prefix_caching {
        return Ok((scheduler_block, scheduler_block));
    }
    let cacheable = || groups.iter().filter(|group| group.is_cacheable());
    let divisor = cacheable().fold(0, |divisor, group| gcd(divisor, group.block));
    let divisor = if divisor == 0 { scheduler_block } else { divisor };
    let Some(unit) = settings.prefix_match_unit else { return Ok((divisor, scheduler_block)) };
    if let Some(group) = cacheable().find(|group| unit == 0 || !group.block.is_multiple_of(unit)) {
        return Err(MixedPages::Unit { unit, block: group.block });
    }
    if let [only] = groups
        && only.block != unit
    {
        return Err(MixedPages::UnitOfOneGroup { unit, block: only.block });
    }
    let fine_state = |group: &KvGroup| matches!(group.rule, LayerRule::State { .. }) && group.block > unit;
    let others_fit = |group: &KvGroup| {
        matches!(group.rule, LayerRule::State { .. }) || group.rule.holds_all() || group.block == unit
    };
    // A hit inside a block needs a state there, and nothing beside it that only hits on its own blocks.
    let fine = cacheable().any(fine_state) && cacheable().all(others_fit);
    Ok((unit, if fine { unit } else { scheduler_block }))
}

impl CacheSpec {
    /// The same layers without windows and chunks, if others of `layers` hold all tokens.
    fn holding_all(self, layers: &[Self]) -> Self {
        let bounded = !matches!(self.rule, LayerRule::State { .. }) && !self.rule.holds_all();
        if !bounded || !layers.iter().any(|layer| layer.rule.holds_all()) {
            return self;
        }
        let rule = match self.rule {
            LayerRule::LatentWindow(_) => LayerRule::Latent { tokens_per_state: 1 },
            _ => LayerRule::Full,
        };
        Self { rule, ..self }
    }
}

impl KvGroup {
    fn of_layers(layer: CacheSpec, layers: u32) -> Self {
        Self { rule: layer.rule, block: layer.block, page_bytes: layer.page_bytes, layers }
    }

    /// Whether its blocks can be found again.
    #[must_use]
    pub fn is_cacheable(&self) -> bool {
        !matches!(self.rule, LayerRule::State { mode: StateMode::None, .. })
    }
}

/// Equal specifications as one entry, in the order of their first occurrence.
fn merged(layers: impl Iterator<Item = CacheSpec>) -> Vec<CacheSpec> {
    let mut kinds: Vec<CacheSpec> = Vec::new();
    for layer in layers.filter(|layer| layer.layers > 0) {
        let same = |kind: &&mut CacheSpec| CacheSpec { layers: layer.layers, ..**kind } == layer;
        match kinds.iter_mut().find(same) {
            Some(kind) => kind.layers += layer.layers,
            None => kinds.push(layer),
        }
    }
    kinds
}

/// Whether all layers take pages at the same rate, so that one block table serves them whatever their pages.
fn is_uniform(layers: &[CacheSpec]) -> bool {
    let first = layers[0];
    let same_rate = |layer: &CacheSpec| {
        layer.block == first.block
            && (layer.rule.holds_all() && first.rule.holds_all()
                || layer.rule.window().is_some() && layer.rule.window() == first.rule.window())
    };
    layers.iter().all(same_rate)
}

/// One group; its page is the sum of its layers' pages.
fn summed(layers: &[CacheSpec]) -> (Vec<KvGroup>, u64) {
    let page_bytes = layers.iter().map(CacheSpec::bytes).fold(0, u64::saturating_add);
    let count = layers.iter().map(|layer| layer.layers).sum();
    (vec![KvGroup { page_bytes, ..KvGroup::of_layers(layers[0], count) }], page_bytes)
}

impl CacheSpec {
    /// Bytes of a block of all these layers.
    fn bytes(&self) -> u64 {
        self.page_bytes.saturating_mul(u64::from(self.layers))
    }
}

/// Groups with pages of different sizes side by side: a block is as wide as the widest group that holds all tokens; windows are
/// split to fit it.
fn side_by_side(layers: &[CacheSpec]) -> (Vec<KvGroup>, u64) {
    let mut buckets: Vec<Vec<CacheSpec>> = Vec::new();
    for &layer in layers {
        match buckets.iter_mut().find(|bucket| is_uniform(&[bucket[0], layer])) {
            Some(bucket) => bucket.push(layer),
            None => buckets.push(vec![layer]),
        }
    }
    let bytes = |bucket: &Vec<CacheSpec>| bucket.iter().map(CacheSpec::bytes).fold(0, u64::saturating_add);
    let widest = |bounded: bool| {
        let of_kind = buckets.iter().filter(|bucket| bucket[0].rule.holds_all() != bounded);
        of_kind.map(bytes).max()
    };
    // Without a layer that holds all tokens the smallest window sets the width.
    let width = widest(false).or_else(|| buckets.iter().map(bytes).min()).unwrap_or(1);
    let mut groups = Vec::new();
    for bucket in &buckets {
        let parts = if bucket[0].rule.holds_all() { 1 } else { bytes(bucket).div_ceil(width).max(1) };
        groups.extend((0..parts).map(|part| part_of(bucket, part, parts)));
    }
    (groups, width)
}

/// Part number `part` of `parts` of the layers of a bucket: each takes every `parts`-th layer.
fn part_of(bucket: &[CacheSpec], part: u64, parts: u64) -> KvGroup {
    let mut group = KvGroup { page_bytes: 0, ..KvGroup::of_layers(bucket[0], 0) };
    let mut index = 0;
    for layer in bucket {
        for _ in 0..layer.layers {
            if index % parts == part {
                group.layers += 1;
                group.page_bytes += layer.page_bytes;
            }
            index += 1;
        }
    }
    group
}

/// Groups with pages of one size, the largest: smaller ones get more tokens or padding.
fn equal_pages(layers: &[CacheSpec]) -> Result<(Vec<KvGroup>, u64), MixedPages> {
    let page = layers.iter().map(|layer| layer.page_bytes).max().unwrap_or(1);
    let indivisible = |layer: &&CacheSpec| {
        matches!(layer.rule, LayerRule::Latent { .. } | LayerRule::LatentWindow(_))
            && !page.is_multiple_of(layer.page_bytes)
    };
    if let Some(latent) = layers.iter().find(indivisible) {
        // Windows that hold all tokens can share a block table with it: then their pages add up.
        let all: Vec<CacheSpec> = merged(layers.iter().map(|layer| layer.holding_all(layers)));
        if is_uniform(&all) {
            return Ok(summed(&all));
        }
        return Err(MixedPages::Latent { page: latent.page_bytes, largest: page });
    }
    let widened = layers.iter().map(|layer| match layer.rule {
        LayerRule::State { .. } => CacheSpec { page_bytes: page, ..*layer },
        _ if page.is_multiple_of(layer.page_bytes) => {
            let times = u32::try_from(page / layer.page_bytes).unwrap_or(u32::MAX);
            CacheSpec { page_bytes: page, block: layer.block.saturating_mul(times), ..*layer }
        }
        _ => CacheSpec { page_bytes: page, ..*layer },
    });
    let buckets = merged(widened);
    let sizes = buckets.iter().map(|bucket| bucket.layers);
    let (smallest, largest) = (sizes.clone().min().unwrap_or(1), sizes.max().unwrap_or(1));
    // vLLM's limit for padding: half as many layers again.
    let size = if 2 * u64::from(largest) < 3 * u64::from(smallest) { largest } else { smallest };
    let mut groups = Vec::new();
    for bucket in &buckets {
        let parts = bucket.layers.div_ceil(size);
        let layers = |part: u32| (bucket.layers - part).div_ceil(parts);
        groups.extend((0..parts).map(|part| KvGroup::of_layers(*bucket, layers(part))));
    }
    Ok((groups, page.saturating_mul(u64::from(size))))
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

pub(super) fn lcm(a: u32, b: u32) -> u32 {
    (a / gcd(a, b)).saturating_mul(b)
}
