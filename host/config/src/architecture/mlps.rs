//! The MLP of each layer: dense or experts, by the keys of each family.

use blis_diag::Diagnostic;
use blis_sim::architecture::{Mlp, RoutedExperts};
use blis_sim::model::ModelConfig;

use super::attentions::{LAYERS, OfLayers};
use super::keys::ArchitectureKeys;

/// Types of models with MLPs of two matrices, up and down, by their classes in transformers.
const WITHOUT_GATE: [&str; 11] = [
    "falcon",
    "RefinedWeb",
    "opt",
    "phi",
    "starcoder2",
    "gpt_neox",
    "gpt_bigcode",
    "nemotron",
    "arcee",
    "persimmon",
    "codegen",
];

/// Which layers have experts.
struct ExpertLayers {
    /// The first so many layers are dense.
    leading: u32,
    /// The last layer with experts.
    last: u32,
    /// Experts are in every so many-th layer, counted from `from`.
    step: u32,
    from: u32,
    /// Dense layers by number.
    dense_layers: Vec<u32>,
    /// Layers with experts one by one: 0 or 1 for each.
    listed: Option<Vec<u32>>,
}

/// The MLPs of a model.
pub(super) struct Mlps {
    pub dense: Mlp,
    pub experts: Option<Mlp>,
}

impl Mlps {
    /// Their shapes; Gemma 4 has a dense MLP beside the experts (`enable_moe_block`).
    pub(super) fn read(keys: ArchitectureKeys<'_>, model: &ModelConfig) -> Result<Self, Diagnostic> {
        let beside = match keys.flag("enable_moe_block")? {
            Some(true) => model.intermediate_size,
            _ => 0,
        };
        let gated = has_gate(keys, model);
        let latent = keys.positive("routed_expert_hidden_size")?.filter(|width| *width != model.hidden_size);
        let experts = model.moe.map(|moe| {
            Mlp::Experts(RoutedExperts {
                count: moe.num_experts,
                per_token: moe.num_experts_per_tok,
                width: model.expert_width(),
                shared_width: model.shared_width().saturating_add(beside),
                matrices: if gated { 3 } else { 2 },
                latent,
            })
        });
        let width = model.dense_width();
        Ok(Self { dense: if gated { Mlp::Dense { width } } else { Mlp::Plain { width } }, experts })
    }

    /// The MLP of each layer.
    pub(super) fn of_layers(
        &self,
        keys: ArchitectureKeys<'_>,
        model: &ModelConfig,
    ) -> Result<OfLayers<Mlp>, Diagnostic> {
        let layers = model.num_hidden_layers;
        let Some(experts) = self.experts else { return self.dense_layers(keys, layers) };
        let expert_layers = ExpertLayers::read(keys, model)?;
        if expert_layers.are_all(layers) {
            return Ok(OfLayers::Equal(experts));
        }
        let of_layer = |layer| if expert_layers.has(layer) { experts } else { self.dense };
        Ok(OfLayers::Each((0..layers.min(LAYERS + 1)).map(of_layer).collect()))
    }
}

impl Mlps {
    /// Those of a model without experts: the layers of small Gemma 4 that reuse a cache are twice as wide (`use_double_wide_mlp`).
    fn dense_layers(&self, keys: ArchitectureKeys<'_>, layers: u32) -> Result<OfLayers<Mlp>, Diagnostic> {
        let sharing = keys.number("num_kv_shared_layers")?.unwrap_or(0);
        let (true, Mlp::Dense { width }) = (keys.flag("use_double_wide_mlp")? == Some(true) && sharing > 0, self.dense)
        else {
            return Ok(OfLayers::Equal(self.dense));
        };
        let wide = Mlp::Dense { width: width.saturating_mul(2) };
        let of_layer = |layer| if layer >= layers.saturating_sub(sharing) { wide } else { self.dense };
        Ok(OfLayers::Each((0..layers.min(LAYERS + 1)).map(of_layer).collect()))
    }
}

/// Whether MLPs have a gate beside their up matrix: all but those of the types above, and of squared ReLU.
fn has_gate(keys: ArchitectureKeys<'_>, model: &ModelConfig) -> bool {
    let kind = keys.text("model_type");
    model.hidden_act != "relu2" && !WITHOUT_GATE.contains(&kind) && kind != "nemotron_h"
}

/// The warning about a model with an activation that most MLPs without a gate have, and a type that is not known to have none.
pub(super) fn doubtful_gate(keys: ArchitectureKeys<'_>, model: &ModelConfig) -> Option<String> {
    const USUAL_WITHOUT: [&str; 5] = ["gelu", "gelu_new", "gelu_fast", "gelu_python", "relu"];
    let known = keys.text("model_type").starts_with("gemma") || !has_gate(keys, model);
    (!known && USUAL_WITHOUT.contains(&model.hidden_act.as_str())).then(|| {
        format!(
            "config.json: `hidden_act` is `{}`: MLPs are taken to have three matrices (gate, up, down); with two, weights and times are less",
            model.hidden_act
        )
    })
}

impl ExpertLayers {
    /// `first_k_dense_replace` (DeepSeek), `interleave_moe_layer_step` (Llama 4), `decoder_sparse_step` and
    /// `mlp_only_layers` (Qwen), `moe_layer_freq` (MiMo and MiniMax-M3: 0 or 1 per layer), `moe_layer_start_index` and others
    /// (ERNIE: the last one counts, in every so many-th layer), `moe_layer_num_skipped` (Hunyuan).
    fn read(keys: ArchitectureKeys<'_>, model: &ModelConfig) -> Result<Self, Diagnostic> {
        let listed = keys.per_layer("moe_layer_freq", model.num_hidden_layers)?;
        let freq = if listed.is_some() { None } else { keys.positive("moe_layer_freq")? };
        let step = [
            model.moe.map(|moe| moe.interleave_moe_layer_step),
            keys.number("decoder_sparse_step")?,
            freq,
            keys.positive("moe_layer_interval")?,
        ];
        let first = [
            model.moe.map(|moe| moe.first_k_dense_replace),
            keys.number("moe_layer_start_index")?,
            keys.number("moe_layer_num_skipped")?,
        ];
        let start = keys.number("moe_layer_start_index")?;
        // -1: the last layer.
        let last = match keys.get("moe_layer_end_index").and_then(serde_json::Value::as_i64) {
            Some(-1) => None,
            _ => keys.number("moe_layer_end_index")?,
        };
        let leading = first.into_iter().flatten().max().unwrap_or(0);
        Ok(Self {
            leading,
            last: last.unwrap_or(u32::MAX),
            step: step.into_iter().flatten().max().unwrap_or(1).max(1),
            // ERNIE counts from the first layer of the model, DeepSeek from the first with experts.
            from: if start.is_some() { 0 } else { leading },
            dense_layers: keys.numbers("mlp_only_layers")?,
            listed,
        })
    }

    fn are_all(&self, layers: u32) -> bool {
        let everywhere = self.leading == 0 && self.step == 1 && self.last >= layers.saturating_sub(1);
        everywhere && self.dense_layers.is_empty() && self.listed.is_none()
    }

    fn has(&self, layer: u32) -> bool {
        if let Some(listed) = &self.listed {
            return listed.get(layer as usize).is_some_and(|kind| *kind != 0);
        }
        let Some(after) = layer.checked_sub(self.from) else { return false };
        (self.leading..=self.last).contains(&layer)
            && (after + 1).is_multiple_of(self.step)
            && !self.dense_layers.contains(&layer)
    }
}
