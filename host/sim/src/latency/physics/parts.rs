//! The unweighted parts of a step, from architecture and curves.

use super::kernels::{Curve, Kernels, RowCurve};
use super::links::Collectives;
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
        Self {
            layers,
            ranks,
            products,
            logits: machine.product(f64::from(model.vocab_size) / tp, d),
            routed,
            between: between * model.dtype_bytes / (machine.bandwidth * kernels.attention_bandwidth),
            attention_launch: kernels.attention_launch_us,
            decode_request: kernels.attention_head_us * sharing,
            context_token: (kv_elements * model.dtype_bytes / (machine.bandwidth * kernels.attention_bandwidth))
                .max(heads * 2.0 * (query + value) / (machine.flops_16bit * kernels.attention_flops)),
            prefill_pair: heads * 2.0 * (query + value) / (machine.flops_16bit * kernels.attention_flops),
            network: Collectives {
                gpus: tp,
                ranks,
                reductions: 2.0 * layers - dispatched,
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

/// The number format that tensor cores compute in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Precision {
    Bits16,
    Bits8,
    Bits4,
}

/// A GPU with the weights of one model: rates in bytes/µs and FLOP/µs.
struct Machine<'a> {
    kernels: &'a Kernels,
    precision: Precision,
    bandwidth: f64,
    flops: f64,
    flops_16bit: f64,
    weight_bytes: f64,
    dtype_bytes: f64,
}

impl<'a> Machine<'a> {
    fn new(model: &ModelConfig, gpu: &Gpu, kernels: &'a Kernels) -> Self {
        let tflops = gpu.peak_tflops(model.weight_bytes);
        let (precision, tflops) = if model.fp4_activations && gpu.tflops_fp4 > 0.0 && !kernels.gemm_4bit.is_empty() {
            (Precision::Bits4, gpu.tflops_fp4)
        } else if model.weight_bytes == 1.0 && tflops > gpu.tflops_fp16 {
            (Precision::Bits8, tflops)
        } else {
            (Precision::Bits16, tflops)
        };
        Self {
            kernels,
            precision,
            bandwidth: gpu.hbm_tb_s * 1e6,
            flops: tflops * 1e6,
            flops_16bit: gpu.tflops_fp16 * 1e6,
            weight_bytes: model.weight_bytes,
            dtype_bytes: model.dtype_bytes,
        }
    }

    /// The curve of experts.
    fn experts(&self) -> Curve {
        match (self.precision, self.kernels.experts_4bit) {
            (Precision::Bits16, _) => self.kernels.experts,
            (Precision::Bits4, Some(curve)) => curve,
            (Precision::Bits4 | Precision::Bits8, _) => self.kernels.experts_8bit,
        }
    }

    fn product(&self, outputs: f64, inputs: f64) -> Product {
        let any = [RowCurve { up_to_rows: f64::INFINITY, curve: self.kernels.gemm }];
        let curves: &[RowCurve] = match self.precision {
            Precision::Bits16 => &any,
            Precision::Bits8 => &self.kernels.gemm_8bit,
            Precision::Bits4 => &self.kernels.gemm_4bit,
        };
        Product { ranges: curves.iter().map(|curve| self.range(*curve, outputs, inputs)).collect() }
    }

    fn range(&self, RowCurve { up_to_rows, curve }: RowCurve, outputs: f64, inputs: f64) -> ProductRange {
        let (bandwidth, flops) = (self.bandwidth * curve.bandwidth, self.flops * curve.flops);
        ProductRange {
            up_to_rows,
            launch: curve.launch_us,
            weights: outputs * inputs * self.weight_bytes / bandwidth,
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
    /// µs. More rows never take less time, also where another curve begins.
    fn us(&self, rows: f64) -> f64 {
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
    /// `spread`: number of GPUs, and whether they hold whole experts.
    fn new(machine: &Machine<'_>, model: &ModelConfig, moe: &Moe, layers: f64, spread: (f64, bool)) -> Self {
        let (gpus, whole) = spread;
        let curve = machine.experts();
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
    use crate::latency::physics::samples;
    use crate::model::samples::{h100, qwen_moe, scout_fp8};

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
    fn products_of_few_and_many_rows_have_curves_of_their_own() {
        let kernels = samples::kernels();
        let machine = Machine::new(&scout_fp8(), &h100(), &kernels);
        assert_eq!(machine.precision, Precision::Bits8);
        let product = machine.product(2000.0, 4096.0);
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

    #[test]
    fn four_bits_are_computed_in_four_bits_where_the_gpu_can() {
        let (mut kernels, model) = (samples::kernels(), ModelConfig { weight_bytes: 0.5, ..scout_fp8() });
        let fp4 = ModelConfig { fp4_activations: true, ..model.clone() };
        let gpu = Gpu { tflops_fp4: 4000.0, ..h100() };
        let precision = |model: &ModelConfig, kernels: &Kernels| Machine::new(model, &gpu, kernels).precision;
        assert_eq!(precision(&fp4, &kernels), Precision::Bits16, "no kernels were measured");
        (kernels.gemm_4bit, kernels.experts_4bit) = (kernels.gemm_8bit.clone(), Some(kernels.experts_8bit));
        assert_eq!(kernels.check(), Ok(()));
        assert_eq!(precision(&fp4, &kernels), Precision::Bits4);
        assert_eq!(precision(&model, &kernels), Precision::Bits16, "only the weights have 4 bits");
        assert_eq!(Machine::new(&fp4, &h100(), &kernels).precision, Precision::Bits16, "the GPU has no FP4");
        assert_eq!(Machine::new(&fp4, &gpu, &kernels).flops, 4000e6);
    }

    #[test]
    fn all_experts_of_mixtral_are_visited_by_an_expert_for_each_token() {
        let moe = Moe { num_experts: 8, num_experts_per_tok: 8, ..qwen_moe().moe.unwrap() };
        assert!(popularity(&moe).iter().all(|&(_, visited)| visited > 0.99));
    }
}
