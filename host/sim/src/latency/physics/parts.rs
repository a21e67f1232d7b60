//! The unweighted parts of a step, from architecture and curves.

use super::kernels::{Kernels, Link};
use crate::model::{Gpu, ModelConfig, Moe, Parallelism};

/// The unweighted parts of a step, computed from architecture and curves.
#[derive(Clone, Debug)]
pub(super) struct StepParts {
    pub(super) layers: f64,
    /// Data-parallel ranks: each has its share of the requests.
    pub(super) ranks: f64,
    /// Matrix products of a step with the number of each; and the product that gives the output logits.
    products: Vec<(f64, Product)>,
    logits: Product,
    routed: Option<Experts>,
    /// Time per token of norms, activations and similar kernels, all layers, µs.
    between: f64,
    pub(super) attention_launch: f64,
    /// One layer, one GPU: µs per decoding request; per token of KV; per pair of prompt tokens.
    pub(super) decode_request: f64,
    pub(super) context_token: f64,
    pub(super) prefill_pair: f64,
    network: Collectives,
}

impl StepParts {
    pub(super) fn new(
        model: &ModelConfig,
        gpu: &Gpu,
        kernels: &Kernels,
        parallelism: Parallelism,
        expert_parallel: bool,
    ) -> Self {
        let machine = Machine::new(model, gpu, kernels);
        let (tp, ranks) = (f64::from(parallelism.tensor), f64::from(parallelism.data));
        let (layers, d) = (f64::from(model.num_hidden_layers), f64::from(model.hidden_size));
        let heads = f64::from(model.num_attention_heads) / tp;
        // Fewer KV heads than GPUs: every GPU keeps a copy of one head.
        let kv_heads = (f64::from(model.num_key_value_heads) / tp).max(1.0);
        let head = head_dim(model);
        let moe_layers = moe_layers(model);
        let dense_layers = layers - moe_layers;
        let dense_width = f64::from(model.dense_width()) / tp;

        let mut products = Vec::new();
        let mut add = |count: f64, outputs: f64, inputs: f64| {
            if count > 0.0 {
                products.push((count, machine.product(outputs, inputs)));
            }
        };
        // KV elements per token and layer; widths of queries and values in attention; KV heads per GPU.
        let (kv_elements, query, value, sharing) = match model.mla {
            None => {
                add(layers, (heads + 2.0 * kv_heads) * head, d);
                (2.0 * kv_heads * head, head, head, kv_heads)
            }
            Some(mla) => {
                let (rank, rope) = (f64::from(mla.kv_lora_rank), f64::from(mla.qk_rope_head_dim));
                add(layers, heads * (head + rope), d);
                add(layers, rank + rope, d); // replicated on every GPU
                add(2.0 * layers, heads * head, rank); // absorbed into query and output
                (rank + rope, rank + rope, rank, 1.0)
            }
        };
        add(layers, d, heads * head);
        add(dense_layers, 2.0 * dense_width, d);
        add(dense_layers, d, dense_width);
        let mut between = layers * (8.0 * d + 2.0 * (heads + 2.0 * kv_heads) * head) + dense_layers * 3.0 * dense_width;
        let routed = model.moe.map(|moe| {
            add(moe_layers, f64::from(moe.num_experts), d);
            let shared = shared_width(model, &moe) / tp;
            if shared > 0.0 {
                add(moe_layers, 2.0 * shared, d);
                add(moe_layers, d, shared);
                between += moe_layers * 3.0 * shared;
            }
            Experts::new(&machine, model, &moe, moe_layers, (tp * ranks, expert_parallel || ranks > 1.0))
        });
        let dispatched = if ranks > 1.0 { moe_layers } else { 0.0 };
        let pair = heads * 2.0 * (query + value) / (machine.flops_dense * kernels.attention_flops);
        Self {
            layers,
            ranks,
            products,
            logits: machine.product(f64::from(model.vocab_size) / tp, d),
            routed,
            between: between * model.dtype_bytes / (machine.bandwidth * kernels.attention_bandwidth),
            attention_launch: kernels.attention_launch_us,
            decode_request: kernels.attention_head_us * sharing,
            context_token: (kv_elements * model.kv_dtype_bytes / machine.kv_bandwidth).max(pair),
            prefill_pair: pair,
            network: Collectives {
                gpus: tp,
                reductions: 2.0 * layers - dispatched,
                dispatches: 2.0 * dispatched,
                message: d * model.dtype_bytes,
                kernels: *kernels,
            },
        }
    }

    /// Time of all matrix products except those of experts and output logits, µs.
    pub(super) fn gemms(&self, tokens: f64) -> f64 {
        let tokens = (tokens / self.ranks).ceil();
        self.products.iter().map(|(count, product)| count * product.us(tokens)).sum::<f64>() + self.between * tokens
    }

    pub(super) fn experts(&self, tokens: f64) -> f64 {
        self.routed.as_ref().map_or(0.0, |experts| experts.us(tokens))
    }

    pub(super) fn collectives(&self, tokens: f64) -> f64 {
        let tokens = (tokens / self.ranks).ceil();
        self.network.us(tokens)
    }

    /// Time of the last matrix product, which gives the logits for sampling, µs.
    pub(super) fn logits(&self, requests: f64) -> f64 {
        self.logits.us((requests / self.ranks).ceil())
    }
}

/// A GPU with the weights of one model: rates in bytes/µs and FLOP/µs.
struct Machine<'a> {
    kernels: &'a Kernels,
    bandwidth: f64,
    flops: f64,
    /// Peak of products with activations of the model's type, as in attention.
    flops_dense: f64,
    /// Rate at which attention reads the KV cache.
    kv_bandwidth: f64,
    weight_bytes: f64,
    dtype_bytes: f64,
}

impl<'a> Machine<'a> {
    fn new(model: &ModelConfig, gpu: &Gpu, kernels: &'a Kernels) -> Self {
        let (bandwidth, flops_dense) = (gpu.hbm_tb_s * 1e6, gpu.dense_tflops(model.dtype_bytes) * 1e6);
        let in_8bit = model.weight_bytes == 1.0 && gpu.tflops_fp8 > 0.0;
        let kv_8bit = model.kv_dtype_bytes == 1.0 && model.dtype_bytes > 1.0;
        let kv_share = if kv_8bit { kernels.attention_bandwidth_8bit } else { kernels.attention_bandwidth };
        Self {
            kernels,
            bandwidth,
            flops: if in_8bit { gpu.tflops_fp8 * 1e6 } else { flops_dense },
            flops_dense,
            kv_bandwidth: bandwidth * kv_share,
            weight_bytes: model.weight_bytes,
            dtype_bytes: model.dtype_bytes,
        }
    }

    /// Whether the tensor cores compute with 8-bit weights.
    fn is_8bit(&self) -> bool {
        self.weight_bytes == 1.0 && self.flops > self.flops_dense
    }

    fn product(&self, outputs: f64, inputs: f64) -> Product {
        let curve = if self.is_8bit() { self.kernels.gemm_8bit } else { self.kernels.gemm };
        let (bandwidth, flops) = (self.bandwidth * curve.bandwidth, self.flops * curve.flops);
        Product {
            launch: curve.launch_us,
            weights: outputs * inputs * self.weight_bytes / bandwidth,
            activations: (outputs + inputs) * self.dtype_bytes / bandwidth,
            arithmetic: 2.0 * outputs * inputs / flops,
            tile_rows: curve.tile_rows,
            scaling: curve.input_passes * inputs * SCALING_BYTES / self.bandwidth,
        }
    }
}

/// One matrix product: µs at launch, of reading its weights, and per row of input.
#[derive(Clone, Copy, Debug)]
struct Product {
    launch: f64,
    weights: f64,
    activations: f64,
    arithmetic: f64,
    /// Rows computed in vain, and time to scale a row of input, µs.
    tile_rows: f64,
    scaling: f64,
}

/// Bytes that one pass over an element of the input moves: 16 bits in, 8 bits out.
const SCALING_BYTES: f64 = 3.0;

impl Product {
    fn us(&self, rows: f64) -> f64 {
        let memory = self.weights + self.activations * rows;
        let arithmetic = self.arithmetic * (rows + self.tile_rows);
        self.launch + slower(memory, arithmetic) + self.scaling * rows
    }
}

/// The larger of two times, and a little more where they are similar. It uses two square roots because `powf` may
/// differ in the last bit between machines.
fn slower(memory: f64, arithmetic: f64) -> f64 {
    let (memory, arithmetic) = (memory * memory, arithmetic * arithmetic);
    (memory * memory + arithmetic * arithmetic).sqrt().sqrt()
}

/// The routed experts of a model on one GPU.
#[derive(Clone, Debug)]
struct Experts {
    layers: f64,
    launch: f64,
    /// Experts on this GPU in groups of equal popularity: number of experts, and the probability that a token misses
    /// one of them.
    groups: Vec<(f64, f64)>,
    /// µs: the weights of one expert; arithmetic and memory traffic of one token.
    weights: f64,
    arithmetic: f64,
    activations: f64,
    /// Arithmetic on the rows that one visited expert computes in vain, µs.
    tile: f64,
}

impl Experts {
    /// `spread`: number of GPUs, and whether they hold whole experts.
    fn new(machine: &Machine<'_>, model: &ModelConfig, moe: &Moe, layers: f64, spread: (f64, bool)) -> Self {
        let (gpus, whole) = spread;
        let curve = if machine.is_8bit() { machine.kernels.experts_8bit } else { machine.kernels.experts };
        let (d, width) = (f64::from(model.hidden_size), f64::from(model.expert_width()));
        let (experts, visits) = (f64::from(moe.num_experts), f64::from(moe.num_experts_per_tok));
        let (bandwidth, flops) = (machine.bandwidth * curve.bandwidth, machine.flops * curve.flops);
        let width_here = if whole { width } else { width / gpus };
        // Visits of one token to experts on this GPU.
        let visits_here = if whole { visits / gpus } else { visits };
        let here = if whole { (experts / gpus).max(1.0) / experts } else { 1.0 };
        Self {
            layers,
            launch: curve.launch_us,
            groups: popularity(moe).into_iter().map(|(count, visited)| (count * here, 1.0 - visited)).collect(),
            weights: 3.0 * d * width_here * machine.weight_bytes / bandwidth,
            arithmetic: visits_here * 6.0 * d * width_here / flops,
            activations: machine.kernels.expert_activations
                * visits_here
                * (2.0 * d + 3.0 * width_here)
                * machine.dtype_bytes
                / machine.bandwidth,
            tile: curve.tile_rows * 6.0 * d * width_here / flops,
        }
    }

    /// Number of experts on this GPU that at least one of the tokens visits.
    fn visited(&self, tokens: f64) -> f64 {
        self.groups.iter().map(|&(count, miss)| count * (1.0 - power(miss, tokens as u64))).sum()
    }

    fn us(&self, tokens: f64) -> f64 {
        let visited = self.visited(tokens);
        let memory = self.weights * visited;
        let arithmetic = self.arithmetic * tokens + self.tile * visited;
        self.layers * (self.launch + slower(memory, arithmetic) + self.activations * tokens)
    }
}

/// The experts of a layer in at most 16 groups: number of experts, and the probability that a token visits one of them.
///
/// Experts are not equally popular among the requests of one service: the expert of rank `r` is visited in proportion
/// to `1/r` (Zipf), at most once by a token. Measured steps of Mixtral-8x7B (2 of 8 experts) and Llama-4-Scout (1 of
/// 16) at batches of 10 to 35 agree with it; with equal popularity they would be 4 to 20 % slower.
fn popularity(moe: &Moe) -> Vec<(f64, f64)> {
    const GROUPS: u32 = 16;
    let (experts, visits) = (moe.num_experts, f64::from(moe.num_experts_per_tok));
    let bound = |group: u32| u64::from(group) * u64::from(experts) / u64::from(GROUPS.min(experts));
    let groups: Vec<(f64, f64)> = (0..GROUPS.min(experts))
        .map(|group| {
            let ranks = bound(group)..bound(group + 1);
            let count = (ranks.end - ranks.start) as f64;
            (count, ranks.map(|rank| 1.0 / (rank + 1) as f64).sum::<f64>() / count)
        })
        .collect();
    // A few rounds find the factor with which the probabilities, each at most 1, add up to the visits.
    let sum = |factor: f64| groups.iter().map(|(count, share)| count * (factor * share).min(1.0)).sum::<f64>();
    let mut factor = visits / groups.iter().map(|(count, share)| count * share).sum::<f64>();
    for _ in 0..60 {
        factor *= visits / sum(factor);
    }
    groups.iter().map(|&(count, share)| (count, (factor * share).min(1.0))).collect()
}

/// The collectives of one step.
#[derive(Clone, Copy, Debug)]
struct Collectives {
    /// Number of GPUs in a tensor-parallel group.
    gpus: f64,
    /// Number of all-reduces, and of exchanges with the experts of other ranks.
    reductions: f64,
    dispatches: f64,
    /// Size of a message, bytes per token.
    message: f64,
    kernels: Kernels,
}

impl Collectives {
    fn us(&self, tokens: f64) -> f64 {
        let bytes = self.message * tokens;
        let Kernels { reduce_once, reduce_twice, reduce_hop_us, reduce_crowding, .. } = self.kernels;
        let further = (self.gpus - 2.0).max(0.0);
        let crowded = 1.0 + reduce_crowding * further;
        let over =
            |link: Link, bytes: f64| link.launch_us + reduce_hop_us * further + bytes * crowded / (link.gb_s * 1e3);
        let mut us = 0.0;
        if self.gpus > 1.0 {
            let others = self.gpus - 1.0;
            // The faster of two algorithms: one pass over everything, or two passes over parts.
            let once = over(reduce_once, others * bytes);
            let twice = over(reduce_twice, 2.0 * others / self.gpus * bytes);
            us += self.reductions * once.min(twice);
        }
        if self.dispatches > 0.0 {
            us += self.dispatches * over(reduce_twice, bytes);
        }
        us
    }
}

/// Width of a head: the config's own `head_dim` where it has one.
fn head_dim(model: &ModelConfig) -> f64 {
    model.head_dim.map_or(f64::from(model.hidden_size) / f64::from(model.num_attention_heads), f64::from)
}

/// Number of layers with experts. Unlike in BLIS, leading dense layers have none, and experts are in every
/// `interleave_moe_layer_step`-th layer: in all of Llama-4-Scout (1), in half of Maverick (2).
fn moe_layers(model: &ModelConfig) -> f64 {
    let Some(moe) = model.moe else { return 0.0 };
    f64::from(model.num_hidden_layers.saturating_sub(moe.first_k_dense_replace) / moe.interleave_moe_layer_step.max(1))
}

/// Width of the shared experts of a layer. Llama 4, the only architecture with an `intermediate_size_mlp`, has one that
/// its config does not name, as wide as a routed one.
fn shared_width(model: &ModelConfig, moe: &Moe) -> f64 {
    let unnamed = model.dense_intermediate_size.is_some() && moe.shared_intermediate_size == 0;
    f64::from(if unnamed { model.expert_width() } else { moe.shared_intermediate_size })
}

/// `base^exponent` by repeated squaring: the same bits on every machine, unlike `powf`.
fn power(mut base: f64, mut exponent: u64) -> f64 {
    let mut result = 1.0;
    while exponent != 0 {
        if exponent & 1 == 1 {
            result *= base;
        }
        base *= base;
        exponent >>= 1;
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::samples::{qwen_moe, scout_fp8};

    #[test]
    fn visits_of_a_token_add_up() {
        for model in [qwen_moe(), scout_fp8()] {
            let moe = model.moe.unwrap();
            let groups = popularity(&moe);
            let (experts, visits): (f64, f64) = (
                groups.iter().map(|(count, _)| count).sum(),
                groups.iter().map(|(count, visited)| count * visited).sum(),
            );
            assert!((experts - f64::from(moe.num_experts)).abs() < 1e-9);
            assert!((visits / f64::from(moe.num_experts_per_tok) - 1.0).abs() < 1e-3, "{visits}");
            assert!(groups.iter().all(|&(_, visited)| visited > 0.0 && visited <= 1.0));
        }
    }

    #[test]
    fn all_experts_of_mixtral_are_visited_by_an_expert_for_each_token() {
        let moe = Moe { num_experts: 8, num_experts_per_tok: 8, ..qwen_moe().moe.unwrap() };
        assert!(popularity(&moe).iter().all(|&(_, visited)| visited > 0.99));
    }
}
