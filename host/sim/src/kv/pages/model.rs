//! From a model's architecture to the caches of its layers: their blocks and pages on one GPU (`reference/memory.md` §1.1 to 1.3, 1.6).

use super::layers::{CacheSpec, LayerRule, StateMode};
use super::plan::{KvLayout, LayoutSettings, MixedPages, Packing, plan};
use crate::architecture::{Architecture, CacheKind, LinearKind};
use crate::model::ModelConfig;
use crate::numbers::truncated;

/// Smallest blocks of the attention kernels of a Hopper GPU, tokens: of heads, of latent attention (FlashMLA), of latent attention
/// beside states, and of MiniMax-M3's index of blocks.
const HEADS_KERNEL: u32 = 16;
const LATENT_KERNEL: u32 = 64;
const LATENT_HYBRID_KERNEL: u32 = 128;
const BLOCK_INDEX_KERNEL: u32 = 128;

/// Alignment of the checkpoints of states, tokens: of the gated delta rule with FlashInfer's prefill, and of FlashKDA.
const FLASHINFER_ALIGNMENT: u32 = 64;
const FLASH_KDA_ALIGNMENT: u32 = 16;

/// Blocks of DeepSeek-V4's caches, tokens, and what their pages are multiples of, bytes.
const WINDOW_BLOCK: u32 = 64;
const COMPRESSED_BLOCK: u32 = 256;
const PAGE_MULTIPLE: u64 = 576;

/// Settings on which blocks and groups depend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheSettings {
    /// `--block-size`, tokens: the smallest block.
    pub block_size: u32,
    /// `--max-model-len`, tokens: without prefix caching the block of a state.
    pub max_model_len: u32,
    /// Whether blocks are hashed.
    pub prefix_caching: bool,
    /// `--disable-hybrid-kv-cache-manager`: windows and chunks hold all tokens.
    pub disable_hybrid: bool,
    /// `--prefix-match-unit`: tokens of one content hash.
    pub prefix_match_unit: Option<u32>,
    /// Whether FlashInfer's kernel computes the prefill of the gated delta rule (`--gdn-prefill-backend`).
    pub flashinfer_prefill: bool,
}

/// The KV groups of the layers of `architecture` on each of `tensor` GPUs.
///
/// # Errors
/// As [`plan`].
pub fn layout_of(
    architecture: &Architecture,
    model: &ModelConfig,
    tensor: u32,
    settings: CacheSettings,
) -> Result<KvLayout, MixedPages> {
    let caches = caches(architecture, model, tensor);
    let layers = layers(&caches, settings);
    let chunked = layers.iter().any(|layer| matches!(layer.rule, LayerRule::Chunk(_)));
    let compressed = layers.iter().any(|layer| matches!(layer.rule, LayerRule::LatentWindow(_)));
    let settings = LayoutSettings {
        // Chunks have no groups unless `VLLM_ALLOW_CHUNKED_LOCAL_ATTN_WITH_HYBRID_KV_CACHE` is set.
        hybrid: !settings.disable_hybrid && !chunked,
        prefix_caching: settings.prefix_caching,
        prefix_match_unit: settings.prefix_match_unit,
        packing: if compressed { Packing::BlocksOutermost } else { Packing::EqualPages },
    };
    plan(&layers, settings)
}

/// A cache that so many layers have.
#[derive(Clone, Copy, Debug)]
struct CacheOfLayers {
    kind: CacheKind,
    token_bytes: f64,
    layers: u32,
}

impl CacheOfLayers {
    fn state_bytes(&self) -> f64 {
        match self.kind {
            CacheKind::State { convolution_bytes, recurrent_bytes, .. } => convolution_bytes + recurrent_bytes,
            _ => 0.0,
        }
    }

    fn is_latent(&self) -> bool {
        matches!(self.kind, CacheKind::Latent | CacheKind::Index)
    }
}

fn caches(architecture: &Architecture, model: &ModelConfig, tensor: u32) -> Vec<CacheOfLayers> {
    let mut all = Vec::new();
    for group in &architecture.groups {
        let caches = group.attention.caches(f64::from(tensor), model.kv_dtype_bytes, model.dtype_bytes);
        let kept = caches.into_iter().filter(|cache| cache.kind != CacheKind::Reused);
        all.extend(kept.map(|cache| CacheOfLayers {
            kind: cache.kind,
            token_bytes: cache.token_bytes,
            layers: group.count,
        }));
    }
    all
}

fn layers(caches: &[CacheOfLayers], settings: CacheSettings) -> Vec<CacheSpec> {
    let block = attention_block(caches, settings);
    let attention = caches.iter().map(|cache| cache.token_bytes).fold(0.0, f64::max);
    let state_page = truncated(attention * f64::from(block));
    let layer = |cache: &CacheOfLayers| {
        let (rule, block) = match cache.kind {
            CacheKind::Full | CacheKind::Reused => (LayerRule::Full, block),
            CacheKind::Window(tokens) => (LayerRule::Window(tokens), block),
            CacheKind::Chunk(tokens) => (LayerRule::Chunk(tokens), block),
            CacheKind::Latent | CacheKind::Index | CacheKind::BlockIndex => {
                (LayerRule::Latent { tokens_per_state: 1 }, block)
            }
            CacheKind::State { kind, .. } => return state(cache, kind, block, state_page, settings),
            CacheKind::LatentWindow(tokens) => (LayerRule::LatentWindow(tokens), WINDOW_BLOCK),
            CacheKind::CompressedLatent { ratio } | CacheKind::CompressedIndex { ratio } => {
                (LayerRule::Latent { tokens_per_state: ratio }, COMPRESSED_BLOCK)
            }
            CacheKind::CompressorState { ratio, window } | CacheKind::IndexCompressorState { ratio, window } => {
                (LayerRule::LatentWindow(window), if ratio > 4 { 8 } else { 4 })
            }
        };
        let bytes = truncated((cache.token_bytes * f64::from(block)).round());
        let padded = matches!(rule, LayerRule::LatentWindow(_)) || is_compressed(cache.kind);
        let page_bytes = if padded { bytes.next_multiple_of(PAGE_MULTIPLE) } else { bytes };
        CacheSpec { rule, block, page_bytes, layers: cache.layers }
    };
    caches.iter().map(layer).collect()
}

fn is_compressed(kind: CacheKind) -> bool {
    matches!(kind, CacheKind::CompressedLatent { .. } | CacheKind::CompressedIndex { .. })
}

/// The block of attention, tokens: beside states so large that a page holds a state (`_align_hybrid_block_size`).
fn attention_block(caches: &[CacheOfLayers], settings: CacheSettings) -> u32 {
    let latent = caches.iter().any(CacheOfLayers::is_latent);
    let block_index = caches.iter().any(|cache| cache.kind == CacheKind::BlockIndex);
    let kernel = match (latent, block_index) {
        (_, true) => BLOCK_INDEX_KERNEL,
        (true, false) => LATENT_KERNEL,
        (false, false) => HEADS_KERNEL,
    };
    let state_bytes = caches.iter().map(CacheOfLayers::state_bytes).fold(0.0, f64::max);
    let token_bytes = caches.iter().map(|cache| cache.token_bytes).fold(0.0, f64::max);
    let given = settings.block_size.max(1);
    if state_bytes <= 0.0 || token_bytes <= 0.0 {
        // Blocks are as given, in whole blocks of the kernel where that needs more.
        return if given < kernel && kernel > HEADS_KERNEL { kernel } else { given };
    }
    let mut unit = kernel.max(given);
    if latent {
        unit = unit.max(LATENT_HYBRID_KERNEL);
    }
    let all_flashinfer = caches.iter().all(|cache| match cache.kind {
        CacheKind::State { kind, .. } => kind == LinearKind::GatedDelta && settings.flashinfer_prefill,
        _ => true,
    });
    if settings.prefix_caching && all_flashinfer {
        unit = super::plan::lcm(unit, FLASHINFER_ALIGNMENT);
    }
    let blocks = (state_bytes / (f64::from(unit) * token_bytes)).ceil();
    unit.saturating_mul(u32::try_from(truncated(blocks)).unwrap_or(u32::MAX))
}

/// A state: its page is that of attention.
fn state(cache: &CacheOfLayers, kind: LinearKind, block: u32, state_page: u64, settings: CacheSettings) -> CacheSpec {
    let (checkpoints, alignment) = match kind {
        LinearKind::Mamba2 => (1, 1),
        LinearKind::GatedDelta if settings.flashinfer_prefill => {
            (1, super::plan::lcm(FLASHINFER_ALIGNMENT, settings.prefix_match_unit.unwrap_or(block)))
        }
        LinearKind::Kda { flash: true, .. } => (1, FLASH_KDA_ALIGNMENT),
        LinearKind::GatedDelta | LinearKind::Kda { .. } => (0, 1),
    };
    let (mode, block) = match settings.prefix_caching {
        true => (StateMode::Align, block),
        false => (StateMode::None, settings.max_model_len.max(1)),
    };
    let rule = LayerRule::State { mode, checkpoints, checkpoint_alignment: alignment };
    CacheSpec { rule, block, page_bytes: state_page.max(truncated(cache.state_bytes())), layers: cache.layers }
}
