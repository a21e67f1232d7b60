//! The unweighted parts of a step, from architecture and curves.

use super::attention::{self, AttentionCost, Rates};
use super::kernels::{Curve, Kernels, RowCurve};
use super::links::Collectives;
use crate::architecture::{
    Architecture, Attention, Compressed, Heads, Index, Latent, Linear, LinearKind, Mlp, RoutedExperts,
};
use crate::model::{Gpu, ModelConfig, Parallelism};
use crate::numbers::truncated;

/// The norms of queries and of keys, two kernels, as a share of the five that every layer has: two norms, rotary positions, the
/// write into the KV cache, the activation. Qwen3-14B takes 4 to 7 µs more per layer than that of models without, on H100 and A100.
const QK_NORM: f64 = 0.4;

/// The unweighted parts of a step, computed from architecture and curves.
#[derive(Clone, Debug)]
pub(super) struct StepParts {
    pub(super) layers: f64,
    /// Small kernels of all layers, in layers that have none of the optional ones.
    pub(super) small_kernels: f64,
    /// Number of kernels of attention.
    pub(super) attentions: f64,
    /// Data-parallel ranks: each has its share of the requests.
    pub(super) ranks: f64,
    /// Matrix products of a step with the number of each; and the product that gives the output logits.
    products: Vec<(f64, Product)>,
    logits: Product,
    routed: Vec<Experts>,
    /// Time per token of norms, activations and similar kernels, all layers, µs.
    between: f64,
    pub(super) attention_launch: f64,
    /// The kinds of attention.
    pub(super) attention: Vec<AttentionCost>,
    network: Collectives,
}

impl StepParts {
    pub(super) fn new(
        model: &ModelConfig,
        architecture: &Architecture,
        gpu: &Gpu,
        kernels: &Kernels,
        parallelism: Parallelism,
        expert_parallel: bool,
    ) -> Self {
        let machine = Machine::new(model, gpu, kernels);
        let (tp, ranks) = (f64::from(parallelism.tensor), f64::from(parallelism.data));
        let d = f64::from(model.hidden_size);
        let weights = architecture.weights;
        let bytes = |class: Option<f64>| class.unwrap_or(model.weight_bytes);
        let mut layers = LayerParts { machine: &machine, d, tp, products: Vec::new(), elements: 0.0 };
        let (mut attention, mut attentions, mut reductions) = (Vec::new(), 0.0, 0.0);
        let mut small_kernels = f64::from(architecture.layers());
        for (count, kind) in architecture.attentions() {
            layers.attention(count, &kind, bytes(weights.of(&kind)));
            let costs = attention::costs(count, &kind, tp, machine.rates());
            attentions += count * costs.len() as f64;
            reductions += if kind == Attention::None { 0.0 } else { count };
            if model.qk_norm && matches!(kind, Attention::Heads(_)) {
                small_kernels += QK_NORM * count;
            }
            attention.extend(costs);
        }
        let (mut routed, mut moe_layers) = (Vec::new(), 0.0);
        let (gpus, whole) = (tp * ranks, expert_parallel || ranks > 1.0);
        for (count, mlp) in architecture.mlps() {
            layers.mlp(count, &mlp, bytes(weights.dense), bytes(weights.router));
            reductions += if mlp == Mlp::None { 0.0 } else { count };
            if let Mlp::Experts(experts) = mlp {
                moe_layers += count;
                routed.push(Experts::new(&machine, d, &experts, bytes(weights.experts), count, gpus, whole));
            }
        }
        let dispatched = if ranks > 1.0 { moe_layers } else { 0.0 };
        Self {
            layers: f64::from(architecture.layers()),
            small_kernels,
            attentions,
            ranks,
            between: layers.elements * model.dtype_bytes / (machine.bandwidth * kernels.attention_bandwidth),
            products: layers.products,
            logits: machine.product(f64::from(model.vocab_size) / tp, d, bytes(weights.output)),
            routed,
            attention_launch: kernels.attention_launch_us,
            attention,
            network: Collectives {
                gpus: tp,
                ranks,
                reductions: reductions - dispatched,
                dispatches: dispatched,
                message: d * model.dtype_bytes,
                links: kernels.links.clone(),
            },
        }
    }

    /// Time of all matrix products except those of experts and output logits, µs.
    pub(super) fn gemms(&self, tokens: f64) -> f64 {
        let tokens = (tokens / self.ranks).ceil();
        self.products.iter().map(|(count, product)| count * product.us(tokens)).sum::<f64>() + self.between * tokens
    }

    pub(super) fn experts(&self, tokens: f64) -> f64 {
        self.routed.iter().map(|experts| experts.us(tokens)).sum()
    }

    pub(super) fn collectives(&self, tokens: f64) -> f64 {
        let tokens = (tokens / self.ranks).ceil();
        self.network.us(tokens)
    }

    /// Time of the last matrix product, which gives the logits for sampling, µs.
    pub(super) fn logits(&self, requests: f64) -> f64 {
        self.logits.us((requests / self.ranks).ceil())
    }

    /// Time in which the hidden states of the tokens reach the GPUs of the next of so many pipeline stages, µs.
    pub(super) fn handover(&self, tokens: f64, stages: f64) -> f64 {
        self.network.handover((tokens / self.ranks).ceil(), stages)
    }
}

/// The products of all layers of a GPU, as they are added up.
struct LayerParts<'a> {
    machine: &'a Machine<'a>,
    /// Width of the residual stream, and number of GPUs that share a layer.
    d: f64,
    tp: f64,
    products: Vec<(f64, Product)>,
    /// Elements per token that the kernels between products read and write, in all layers.
    elements: f64,
}

impl LayerParts<'_> {
    fn add(&mut self, count: f64, outputs: f64, inputs: f64, weight_bytes: f64) {
        if count > 0.0 {
            self.products.push((count, self.machine.product(outputs, inputs, weight_bytes)));
        }
    }

    fn attention(&mut self, layers: f64, kind: &Attention, bytes: f64) {
        let (d, tp) = (self.d, self.tp);
        let mixed = match *kind {
            Attention::Heads(shape) => self.heads(layers, shape, bytes),
            Attention::Latent(latent) => {
                self.latent(layers, latent, bytes);
                let heads = f64::from(latent.heads) / tp;
                (heads + 2.0 * heads) * f64::from(latent.nope_dim)
            }
            Attention::Compressed(compressed) => self.compressed(layers, compressed, bytes),
            Attention::Linear(linear) => self.linear(layers, linear, bytes),
            Attention::Matrix => {
                self.add(layers, d, d / tp, bytes);
                0.0
            }
            Attention::None => 0.0,
        };
        self.elements += layers * (8.0 * d + 2.0 * mixed);
    }

    /// Elements per token between the products of a layer with keys and values.
    fn heads(&mut self, layers: f64, shape: Heads, bytes: f64) -> f64 {
        let (d, tp) = (self.d, self.tp);
        let queries = f64::from(shape.queries) / tp;
        // Fewer KV heads than GPUs: every GPU keeps a copy of one head.
        let kv = shape.kv_on(tp);
        let gate = if shape.gated { queries } else { 0.0 };
        let projections = shape.projections();
        let keys = (queries + projections.keys * kv) * shape.dim;
        self.add(layers, keys + (gate + projections.values * kv) * shape.value_dim, d, bytes);
        self.add(layers, d, queries * shape.value_dim, bytes);
        if let Some(index) = shape.index {
            self.add(layers, (f64::from(index.heads) + 1.0) * f64::from(index.dim), d, bytes);
        }
        (queries + kv) * shape.dim + (gate + kv) * shape.value_dim
    }

    /// The same of a layer with a state. KDA has gates of its own beside the projections.
    fn linear(&mut self, layers: f64, linear: Linear, bytes: f64) -> f64 {
        let (d, tp) = (self.d, self.tp);
        let (mixed, values) = (linear.mixed_on(tp), linear.values() / tp);
        let heads = f64::from(linear.value_heads) / tp;
        match linear.kind {
            LinearKind::GatedDelta => {
                self.add(layers, mixed + values, d, bytes);
                self.add(layers, 2.0 * heads, d, bytes);
            }
            LinearKind::Mamba2 => self.add(layers, mixed + values + heads, d, bytes),
            LinearKind::Kda { full_rank_gate, .. } => {
                let narrow = f64::from(linear.value_dim);
                self.add(layers, mixed + heads, d, bytes);
                let pairs = if full_rank_gate { 1.0 } else { 2.0 };
                self.add(pairs * layers, narrow, d, bytes);
                self.add(pairs * layers, values, narrow, bytes);
                if full_rank_gate {
                    self.add(layers, values, d, bytes);
                }
            }
        }
        self.add(layers, d, values, bytes);
        let decays = if matches!(linear.kind, LinearKind::Kda { .. }) { values } else { 0.0 };
        2.0 * mixed + values + decays
    }

    /// The same of DeepSeek-V4. The residual streams are read and written once more around attention and around the MLP: 16 bytes
    /// per element of `d` and stream in all, in 16 bits (architectures.md §4).
    fn compressed(&mut self, layers: f64, shape: Compressed, bytes: f64) -> f64 {
        let (d, dtype_bytes) = (self.d, self.machine.dtype_bytes);
        let (heads, dim) = (f64::from(shape.heads) / self.tp, f64::from(shape.dim));
        let (query, output) = (f64::from(shape.query_rank), f64::from(shape.output_rank));
        let (groups, overlap) =
            (f64::from(shape.output_groups) / self.tp, if shape.index.is_some() { 2.0 } else { 1.0 });
        self.add(layers, query + dim, d, bytes);
        self.add(layers, heads * dim, query, bytes);
        if groups > 0.0 {
            // Block-diagonal: each group has the heads of its own as inputs.
            self.add(layers, groups * output, heads * dim / groups, bytes);
            self.add(layers, d, groups * output, bytes);
        }
        if shape.ratio > 0 {
            self.add(layers, 2.0 * overlap * dim, d, dtype_bytes);
        }
        if let Some(index) = shape.index {
            let (heads, dim) = (f64::from(index.heads), f64::from(index.dim));
            self.add(layers, heads * dim, query, bytes);
            self.add(layers, heads + 2.0 * overlap * dim, d, dtype_bytes);
        }
        if shape.streams > 1 {
            self.elements += layers * 4.0 * f64::from(shape.streams) * d;
        }
        (heads + 2.0) * dim
    }

    /// Compressions of query and KV are on every GPU, and so is the index. The matrices absorbed into query and output
    /// have 16 bits in any case.
    fn latent(&mut self, layers: f64, latent: Latent, bytes: f64) {
        let (d, heads) = (self.d, f64::from(latent.heads) / self.tp);
        let (rank, rope) = (f64::from(latent.kv_rank), f64::from(latent.rope_dim));
        let (nope, value) = (f64::from(latent.nope_dim), f64::from(latent.value_dim));
        let inputs = latent.query_rank.map_or(d, f64::from);
        self.add(layers, heads * (nope + rope), inputs, bytes);
        let compression = rank + rope + latent.query_rank.map_or(0.0, f64::from);
        self.add(layers, compression, d, bytes);
        let dtype_bytes = self.machine.dtype_bytes;
        if latent.nope_dim == latent.value_dim {
            self.add(2.0 * layers, heads * nope, rank, dtype_bytes);
        } else {
            self.add(layers, heads * nope, rank, dtype_bytes);
            self.add(layers, heads * value, rank, dtype_bytes);
        }
        if let Some(index) = latent.index.and_then(Index::own) {
            let (heads, dim) = (f64::from(index.heads), f64::from(index.dim));
            self.add(layers, heads * dim, inputs, bytes);
            self.add(layers, dim + heads, d, dtype_bytes);
        }
        if latent.gated {
            self.add(layers, heads * value, d, bytes);
        }
        self.add(layers, d, heads * value, bytes);
    }

    /// `dense` and `router`: bytes per weight of the MLP itself, and of the router of its experts.
    fn mlp(&mut self, layers: f64, mlp: &Mlp, dense: f64, router: f64) {
        let d = self.d;
        let gated = |matrices: u32| if matrices > 2 { 2.0 } else { 1.0 };
        let (width, inputs) = match *mlp {
            Mlp::Dense { width } => (f64::from(width) / self.tp, 2.0),
            Mlp::Plain { width } => (f64::from(width) / self.tp, 1.0),
            Mlp::Experts(experts) => {
                self.add(layers, f64::from(experts.count), d, router);
                if let Some(latent) = experts.latent.map(f64::from) {
                    self.add(layers, latent, d, dense);
                    self.add(layers, d, latent, dense);
                }
                (f64::from(experts.shared_width) / self.tp, gated(experts.matrices))
            }
            Mlp::Matrix => {
                self.add(layers, d, d / self.tp, dense);
                (0.0, 2.0)
            }
            Mlp::None => (0.0, 2.0),
        };
        if width > 0.0 {
            self.add(layers, inputs * width, d, dense);
            self.add(layers, d, width, dense);
            self.elements += layers * (inputs + 1.0) * width;
        }
    }
}

/// The number format that products are computed in: that of the activations (16 bits, or 32), or a narrower one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProductFormat {
    Bits16,
    Bits8,
    Bits4,
}

/// Bytes of a weight of 8 bits, scales of blocks included (MXFP8: 33 / 32).
const EIGHT_BITS: std::ops::RangeInclusive<f64> = 1.0..=1.0625;

/// A GPU with the weights of one model: rates in bytes/µs and FLOP/µs.
struct Machine<'a> {
    kernels: &'a Kernels,
    gpu: &'a Gpu,
    /// Whether the model's inputs to 4-bit weights have 4 bits as well.
    fp4_activations: bool,
    bandwidth: f64,
    /// Peak of products with activations of the model's type, as in attention.
    flops_dense: f64,
    /// Bytes of a cached KV element.
    kv_dtype_bytes: f64,
    dtype_bytes: f64,
}

impl<'a> Machine<'a> {
    fn new(model: &ModelConfig, gpu: &'a Gpu, kernels: &'a Kernels) -> Self {
        Self {
            kernels,
            gpu,
            fp4_activations: model.fp4_activations,
            bandwidth: gpu.hbm_tb_s * 1e6,
            flops_dense: gpu.dense_tflops(model.dtype_bytes) * 1e6,
            kv_dtype_bytes: model.kv_dtype_bytes,
            dtype_bytes: model.dtype_bytes,
        }
    }

    fn rates(&self) -> Rates<'a> {
        let flops_8bit = (self.gpu.tflops_fp8 * 1e6).max(self.flops_dense);
        let Self { kernels, bandwidth, flops_dense, dtype_bytes, kv_dtype_bytes, .. } = *self;
        let converted = kv_dtype_bytes == 1.0 && dtype_bytes > 1.0;
        let kv_share = if converted { kernels.attention_bandwidth_8bit / kernels.attention_bandwidth } else { 1.0 };
        let (l2_bytes, flops) = (self.gpu.l2_mb * 1e6, flops_dense);
        Rates { kernels, bandwidth, l2_bytes, kv_share, flops, flops_8bit, dtype_bytes, kv_dtype_bytes }
    }

    /// The format that products with weights of that many bytes are computed in, and its peak, FLOP/µs.
    fn precision(&self, weight_bytes: f64) -> (ProductFormat, f64) {
        let flops_8bit = self.gpu.tflops_fp8 * 1e6;
        let in_4bit = self.fp4_activations && self.gpu.tflops_fp4 > 0.0 && !self.kernels.gemm_4bit.is_empty();
        if weight_bytes < 1.0 && in_4bit {
            (ProductFormat::Bits4, self.gpu.tflops_fp4 * 1e6)
        } else if EIGHT_BITS.contains(&weight_bytes) && flops_8bit > self.flops_dense {
            (ProductFormat::Bits8, flops_8bit)
        } else {
            (ProductFormat::Bits16, self.flops_dense)
        }
    }

    /// The curve of experts with weights of that many bytes, and the peak, FLOP/µs.
    fn experts(&self, weight_bytes: f64) -> (Curve, f64) {
        let (precision, flops) = self.precision(weight_bytes);
        let curve = match (precision, self.kernels.experts_4bit) {
            (ProductFormat::Bits16, _) if weight_bytes < 1.0 => {
                self.kernels.experts_4bit_weights.unwrap_or(self.kernels.experts)
            }
            (ProductFormat::Bits16, _) => self.kernels.experts,
            (ProductFormat::Bits4, Some(curve)) => curve,
            (ProductFormat::Bits4 | ProductFormat::Bits8, _) => self.kernels.experts_8bit,
        };
        (curve, flops)
    }

    fn product(&self, outputs: f64, inputs: f64, weight_bytes: f64) -> Product {
        let any = [RowCurve { up_to_rows: f64::INFINITY, curve: self.kernels.gemm }];
        let (precision, flops) = self.precision(weight_bytes);
        let curves: &[RowCurve] = match precision {
            ProductFormat::Bits16 => &any,
            ProductFormat::Bits8 => &self.kernels.gemm_8bit,
            ProductFormat::Bits4 => &self.kernels.gemm_4bit,
        };
        let range = |curve: &RowCurve| self.range(*curve, outputs, inputs, weight_bytes, flops);
        Product { ranges: curves.iter().map(range).collect() }
    }

    /// A product on one curve; `peak` is that of its number format, FLOP/µs.
    fn range(
        &self,
        RowCurve { up_to_rows, curve }: RowCurve,
        outputs: f64,
        inputs: f64,
        weight_bytes: f64,
        peak: f64,
    ) -> ProductRange {
        let (bandwidth, flops) = (self.bandwidth * curve.bandwidth, peak * curve.flops);
        ProductRange {
            up_to_rows,
            launch: curve.launch_us,
            weights: outputs * inputs * weight_bytes / bandwidth,
            activations: (outputs + inputs) * self.dtype_bytes / bandwidth,
            arithmetic: 2.0 * outputs * inputs / flops,
            narrow: narrow(curve, outputs),
            tile_rows: curve.tile_rows,
            scaling: curve.input_passes * inputs * SCALING_BYTES / self.bandwidth,
        }
    }
}

/// Factor on the reading of a product with that many outputs: see [`Kernels`].
fn narrow(curve: Curve, outputs: f64) -> f64 {
    let share = curve.narrow_outputs / outputs;
    (1.0 + share * share).sqrt()
}

/// One matrix product, by number of rows of its input.
#[derive(Clone, Debug)]
struct Product {
    /// Ascending; the last one has no end.
    ranges: Vec<ProductRange>,
}

/// A matrix product of some numbers of rows: µs at launch, of reading its weights, and per row of input.
#[derive(Clone, Copy, Debug)]
struct ProductRange {
    up_to_rows: f64,
    launch: f64,
    weights: f64,
    activations: f64,
    arithmetic: f64,
    /// Factor on the memory traffic, ≥ 1.
    narrow: f64,
    /// Rows computed in vain, and time to scale a row of input, µs.
    tile_rows: f64,
    scaling: f64,
}

/// Bytes that one pass over an element of the input moves: 16 bits in, 8 bits out.
const SCALING_BYTES: f64 = 3.0;

impl Product {
    /// µs. More rows never take less time, also where another curve begins, and no longer than in parts, each on an earlier curve:
    /// neighbouring curves do not meet, and over the peaks of another GPU they can be far apart.
    fn us(&self, rows: f64) -> f64 {
        let ends = self.ranges.iter().map(|range| range.up_to_rows).take_while(|end| *end < rows);
        let parts = ends.map(|end| {
            let (full, rest) = ((rows / end).floor(), rows % end);
            let remaining = if rest > 0.0 { self.us(rest) } else { 0.0 };
            let count = (rows / end).ceil();
            (full * self.whole_us(end) + remaining).min(count * self.whole_us(rows / count))
        });
        parts.fold(self.whole_us(rows), f64::min)
    }

    /// µs of all rows at once.
    fn whole_us(&self, rows: f64) -> f64 {
        let mut us: f64 = 0.0;
        for range in &self.ranges {
            us = us.max(range.us(rows.min(range.up_to_rows)));
            if rows <= range.up_to_rows {
                break;
            }
        }
        us
    }
}

impl ProductRange {
    fn us(&self, rows: f64) -> f64 {
        let memory = (self.weights + self.activations * rows) * self.narrow;
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
    /// The experts of `layers` layers on one of `gpus` GPUs; `whole`: whether they hold whole experts.
    fn new(
        machine: &Machine<'_>,
        d: f64,
        shape: &RoutedExperts,
        weight_bytes: f64,
        layers: f64,
        gpus: f64,
        whole: bool,
    ) -> Self {
        let (curve, peak) = machine.experts(weight_bytes);
        let (width, matrices, d) = (f64::from(shape.width), f64::from(shape.matrices), shape.inputs(d));
        let (experts, visits) = (f64::from(shape.count), f64::from(shape.per_token));
        let (bandwidth, flops) = (machine.bandwidth * curve.bandwidth, peak * curve.flops);
        let width_here = if whole { width } else { width / gpus };
        // Visits of one token to experts on this GPU.
        let visits_here = if whole { visits / gpus } else { visits };
        let here = if whole { (experts / gpus).max(1.0) / experts } else { 1.0 };
        Self {
            layers,
            launch: curve.launch_us,
            groups: popularity(shape).into_iter().map(|(count, visited)| (count * here, 1.0 - visited)).collect(),
            weights: matrices * d * width_here * weight_bytes / bandwidth,
            arithmetic: visits_here * 2.0 * matrices * d * width_here / flops,
            activations: machine.kernels.expert_activations
                * visits_here
                * (2.0 * d + matrices * width_here)
                * machine.dtype_bytes
                / machine.bandwidth,
            tile: curve.tile_rows * 2.0 * matrices * d * width_here / flops,
        }
    }

    /// Number of experts on this GPU that at least one of the tokens visits.
    fn visited(&self, tokens: f64) -> f64 {
        self.groups.iter().map(|&(count, miss)| count * (1.0 - power(miss, truncated(tokens)))).sum()
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
fn popularity(shape: &RoutedExperts) -> Vec<(f64, f64)> {
    const GROUPS: u32 = 16;
    let (experts, visits) = (shape.count, f64::from(shape.per_token));
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
    use crate::architecture::MXFP4_BYTES;
    use crate::latency::LatencyError;
    use crate::latency::physics::samples;
    use crate::model::samples::{h100, qwen_moe, scout_fp8};

    fn experts(model: &ModelConfig) -> RoutedExperts {
        let mlps = model.architecture().mlps();
        let found = mlps.into_iter().find_map(|(_, mlp)| match mlp {
            Mlp::Experts(experts) => Some(experts),
            _ => None,
        });
        found.expect("it has experts")
    }

    #[test]
    fn visits_of_a_token_add_up() {
        for model in [qwen_moe(), scout_fp8()] {
            let shape = experts(&model);
            let groups = popularity(&shape);
            let (experts, visits): (f64, f64) = (
                groups.iter().map(|(count, _)| count).sum(),
                groups.iter().map(|(count, visited)| count * visited).sum(),
            );
            assert!((experts - f64::from(shape.count)).abs() < 1e-9);
            assert!((visits / f64::from(shape.per_token) - 1.0).abs() < 1e-3, "{visits}");
            assert!(groups.iter().all(|&(_, visited)| visited > 0.0 && visited <= 1.0));
        }
    }

    #[test]
    fn products_of_few_and_many_rows_have_curves_of_their_own() {
        let kernels = samples::kernels();
        let (model, gpu) = (scout_fp8(), h100());
        let machine = Machine::new(&model, &gpu, &kernels);
        assert_eq!(machine.precision(1.0).0, ProductFormat::Bits8);
        let product = machine.product(2000.0, 4096.0, 1.0);
        // 64 rows: 2000·4096 bytes of weights, 64·(2000 + 4096) elements of 2 bytes, 3·4096 bytes per row and pass.
        let memory: f64 = (8.192e6 + 64.0 * 12_192.0) / (3.35e6 * 0.86);
        let arithmetic: f64 = 2.0 * 64.0 * 8.192e6 / (1979e6 * 0.7);
        let few = 14.2 + (memory.powi(4) + arithmetic.powi(4)).powf(0.25) + 64.0 * 10.0 * 12_288.0 / 3.35e6;
        assert!((product.us(64.0) / few - 1.0).abs() < 1e-12);
        // 1000 rows: √2 times as long to read 2000 outputs, where `narrow_outputs` is 2000; 90 rows more of arithmetic.
        let memory: f64 = 2f64.sqrt() * (8.192e6 + 1000.0 * 12_192.0) / (3.35e6 * 0.7);
        let arithmetic: f64 = 2.0 * 1090.0 * 8.192e6 / (1979e6 * 0.7);
        let many = 12.0 + (memory.powi(4) + arithmetic.powi(4)).powf(0.25) + 1000.0 * 10.0 * 12_288.0 / 3.35e6;
        assert!((product.us(1000.0) / many - 1.0).abs() < 1e-12);
        // No row more makes it faster, also not at the border between the curves.
        assert!((1..200).all(|rows| product.us(f64::from(rows) + 1.0) >= product.us(f64::from(rows))));
    }

    /// 100 rows on a curve that is 300 µs dearer than that of up to 64 rows.
    #[test]
    fn no_product_is_slower_than_its_parts() {
        let mut kernels = samples::kernels();
        kernels.gemm_8bit[1].curve.launch_us = 312.0;
        let (model, gpu) = (scout_fp8(), h100());
        let product = Machine::new(&model, &gpu, &kernels).product(2000.0, 4096.0, 1.0);
        assert!(product.whole_us(100.0) > 312.0);
        assert_eq!(product.us(100.0), (product.us(64.0) + product.us(36.0)).min(2.0 * product.us(50.0)));
        for rows in (1..3000).map(f64::from) {
            assert!(product.us(rows + 1.0) >= product.us(rows) && product.us(2.0 * rows) <= 2.0 * product.us(rows));
        }
    }

    #[test]
    fn four_bits_are_computed_in_four_bits_where_the_gpu_can() {
        let (mut kernels, model) = (samples::kernels(), ModelConfig { weight_bytes: 0.5, ..scout_fp8() });
        let fp4 = ModelConfig { fp4_activations: true, ..model.clone() };
        let gpu = Gpu { tflops_fp4: 4000.0, ..h100() };
        let precision = |model: &ModelConfig, kernels: &Kernels| Machine::new(model, &gpu, kernels).precision(0.5).0;
        assert_eq!(precision(&fp4, &kernels), ProductFormat::Bits16, "no kernels were measured");
        (kernels.gemm_4bit, kernels.experts_4bit) = (kernels.gemm_8bit.clone(), Some(kernels.experts_8bit));
        assert_eq!(kernels.check(), Ok(()));
        assert_eq!(precision(&fp4, &kernels), ProductFormat::Bits4);
        assert_eq!(precision(&model, &kernels), ProductFormat::Bits16, "only the weights have 4 bits");
        assert_eq!(Machine::new(&fp4, &h100(), &kernels).precision(0.5).0, ProductFormat::Bits16, "the GPU has no FP4");
        assert_eq!(Machine::new(&fp4, &gpu, &kernels).precision(0.5).1, 4000e6);
    }

    #[test]
    fn experts_with_weights_in_four_bits_have_a_curve_of_their_own_where_it_was_measured() {
        let (mut kernels, model) = (samples::kernels(), qwen_moe());
        let gpu = h100();
        let curve = |kernels: &Kernels, bytes: f64| Machine::new(&model, &gpu, kernels).experts(bytes);
        assert_eq!(curve(&kernels, MXFP4_BYTES), (kernels.experts, gpu.tflops_fp16 * 1e6));
        let own = Curve { launch_us: 36.0, tile_rows: 54.0, ..kernels.experts };
        kernels.experts_4bit_weights = Some(own);
        assert_eq!(kernels.check(), Ok(()));
        assert_eq!(curve(&kernels, MXFP4_BYTES), (own, gpu.tflops_fp16 * 1e6));
        assert_eq!(curve(&kernels, 2.0).0, kernels.experts);
        assert_eq!(curve(&kernels, 1.0).0, kernels.experts_8bit);
        kernels.experts_4bit_weights = Some(Curve { flops: 0.0, ..own });
        assert_eq!(kernels.check(), Err(LatencyError::Missing { field: "experts_4bit_weights" }));
    }

    #[test]
    fn all_experts_of_mixtral_are_visited_by_an_expert_for_each_token() {
        let shape = RoutedExperts { count: 8, per_token: 8, ..experts(&qwen_moe()) };
        assert!(popularity(&shape).iter().all(|&(_, visited)| visited > 0.99));
    }
}
