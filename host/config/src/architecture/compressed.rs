//! The attention of DeepSeek-V4, by `compress_ratios`.

use blis_diag::Diagnostic;
use blis_sim::architecture::{Attention, Compressed, Index};
use blis_sim::model::ModelConfig;

use super::keys::{ArchitectureKeys, check_length, invalid};

/// Tokens that a compressed vector stands for, where an index chooses among them.
const SPARSE: u32 = 4;
/// The same, where all are read.
const DENSE: u32 = 128;

/// The attention of every layer. The list may have entries for the layers of speculative decoding at its end.
pub(super) fn read(keys: ArchitectureKeys<'_>, model: &ModelConfig) -> Result<Vec<Attention>, Diagnostic> {
    let (key, layers) = ("compress_ratios", model.num_hidden_layers);
    let ratios = keys.numbers(key)?;
    let drafting = keys.number("num_nextn_predict_layers")?.unwrap_or(1).max(1);
    let own = ratios.len().saturating_sub(drafting as usize);
    if ratios.len() as u64 != u64::from(layers) && own as u64 != u64::from(layers) {
        check_length(key, ratios.len(), layers)?;
    }
    let needed = "compressed attention (`compress_ratios`)";
    let number = |key| keys.required(key, needed);
    let index = Index {
        heads: number("index_n_heads")?,
        dim: number("index_head_dim")?,
        top_k: number("index_topk")?,
        reused: false,
    };
    let window = Compressed {
        heads: model.num_attention_heads,
        dim: number("head_dim")?,
        rope_dim: number("qk_rope_head_dim")?,
        query_rank: number("q_lora_rank")?,
        output_groups: number("o_groups")?,
        output_rank: number("o_lora_rank")?,
        window: number("sliding_window")?,
        ratio: 0,
        index: None,
        streams: keys.positive("hc_mult")?.unwrap_or(1),
    };
    let of_layer = |ratio: &u32| match *ratio {
        0 => Ok(Attention::Compressed(window)),
        SPARSE => Ok(Attention::Compressed(Compressed { ratio: SPARSE, index: Some(index), ..window })),
        DENSE => Ok(Attention::Compressed(Compressed { ratio: DENSE, ..window })),
        other => Err(invalid(key, &other.into(), "0, 4 or 128 for every layer")),
    };
    ratios.iter().take(layers as usize).map(of_layer).collect()
}
