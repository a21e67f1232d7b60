//! `physics`: a step as the sum of its kernels, each on the curve of its GPU, plus overheads of the host.
//!
//! ```text
//! step = β·(GEMMs, experts, attention of decodes, attention of prompts, collectives, layers, requests, 1)
//! ```
//!
//! The curves ([`Kernels`]) are a few numbers per GPU, fitted to measured kernels, so that the times are already right
//! to some 10 % with every weight β at 1. Training adjusts the weights and adds overheads that kernels do not include:
//! µs per layer, per request and per step. A model that was never measured uses the weights of other models, since no
//! weight depends on the size of the model.
//!
//! A token costs the same in prefill and decode, so all terms that depend on the number of tokens are in one table, all
//! terms that depend on the number of requests in another, and a step is two table look-ups and a dozen
//! multiplications.

use super::arithmetic::exact;
use super::error::{check_coefficients, check_model, check_nonzero};
use super::{Batch, ContextEffect, LatencyError, LatencyModel, OverContext, shortest_of_monotone};
use crate::limits::{PHYSICS_REQUESTS, PHYSICS_TOKENS};
use crate::model::{Gpu, ModelConfig, Moe, Parallelism};
use crate::units::Micros;

/// The attainable performance of the kernels of one GPU. Shares are relative to the data sheet's peak; a time is per
/// kernel, µs.
///
/// A matrix product of `F` FLOP and `B` bytes takes `launch + ⁴√((B/bandwidth)⁴ + (F/flops)⁴)`: bound by memory for few
/// tokens, by arithmetic for many, and a little slower than either where both matter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Kernels {
    /// Matrix products with 16-bit weights; also those with 4-bit weights, which are dequantised first.
    pub gemm: Curve,
    /// Matrix products with 8-bit weights, including the scaling of their input.
    pub gemm_8bit: Curve,
    /// Fused experts, with weights of the model's own width.
    pub experts: Curve,
    /// Fused experts with 8-bit weights.
    pub experts_8bit: Curve,
    /// Factor on the time of one pass over an expert's input and output, ≥ 0.
    pub expert_activations: f64,
    /// Launch time of one attention kernel, µs.
    pub attention_launch_us: f64,
    /// Time of attention per decoding request and KV head, µs.
    pub attention_head_us: f64,
    /// Share of the memory bandwidth with which attention reads the KV cache.
    pub attention_bandwidth: f64,
    /// Share of the FLOP peak that attention of prompts attains.
    pub attention_flops: f64,
    /// All-reduce in one pass, in which every GPU reads from every other: µs, and GB/s.
    pub reduce_once: Link,
    /// All-reduce in two passes (reduce-scatter, all-gather): µs, and GB/s.
    pub reduce_twice: Link,
}

/// Launch time and attainable shares of one kind of matrix product.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Curve {
    /// Time of the smallest product, µs.
    pub launch_us: f64,
    /// Share of the memory bandwidth, in (0, 1.5].
    pub bandwidth: f64,
    /// Share of the tensor cores' peak, in (0, 1.5].
    pub flops: f64,
}

/// One algorithm of exchanging data between GPUs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// Time of the smallest message, µs.
    pub launch_us: f64,
    /// Data that one GPU receives in a second, 10⁹ bytes.
    pub gb_s: f64,
}

impl Kernels {
    /// Every number with its name in hardware files.
    fn named(&self) -> [(&'static str, f64); 21] {
        let Self { gemm, gemm_8bit, experts, experts_8bit, reduce_once, reduce_twice, .. } = self;
        [
            ("gemm.launch_us", gemm.launch_us),
            ("gemm.bandwidth", gemm.bandwidth),
            ("gemm.flops", gemm.flops),
            ("gemm_8bit.launch_us", gemm_8bit.launch_us),
            ("gemm_8bit.bandwidth", gemm_8bit.bandwidth),
            ("gemm_8bit.flops", gemm_8bit.flops),
            ("experts.launch_us", experts.launch_us),
            ("experts.bandwidth", experts.bandwidth),
            ("experts.flops", experts.flops),
            ("experts_8bit.launch_us", experts_8bit.launch_us),
            ("experts_8bit.bandwidth", experts_8bit.bandwidth),
            ("experts_8bit.flops", experts_8bit.flops),
            ("expert_activations", self.expert_activations),
            ("attention_launch_us", self.attention_launch_us),
            ("attention_head_us", self.attention_head_us),
            ("attention_bandwidth", self.attention_bandwidth),
            ("attention_flops", self.attention_flops),
            ("reduce_once.launch_us", reduce_once.launch_us),
            ("reduce_once.gb_s", reduce_once.gb_s),
            ("reduce_twice.launch_us", reduce_twice.launch_us),
            ("reduce_twice.gb_s", reduce_twice.gb_s),
        ]
    }

    /// Checks that every number is valid.
    ///
    /// # Errors
    /// If a number is missing, negative or not a number.
    pub fn check(&self) -> Result<(), LatencyError> {
        check_nonzero(&self.named())
    }
}

/// Overheads of the host around the engine: α of [`Physics`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PhysicsAlpha {
    /// Time from arrival to the waiting queue, µs per request.
    pub arrival_us: f64,
    /// Additional time per prompt token (tokenisation), µs.
    pub input_token_us: f64,
    /// Time from the end of the step that generates the first token until the client has it, µs.
    pub first_token_us: f64,
}

impl PhysicsAlpha {
    /// Names in coefficient files, in the order of [`Self::to_array`].
    pub const NAMES: [&'static str; 3] = ["arrival_us", "input_token_us", "first_token_us"];

    /// The coefficients in the order of `--alpha-coeffs`.
    #[must_use]
    pub fn to_array(self) -> [f64; 3] {
        [self.arrival_us, self.input_token_us, self.first_token_us]
    }
}

impl From<[f64; 3]> for PhysicsAlpha {
    fn from([arrival_us, input_token_us, first_token_us]: [f64; 3]) -> Self {
        Self { arrival_us, input_token_us, first_token_us }
    }
}

/// Weights of the parts of a step: β of [`Physics`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PhysicsBeta {
    /// Matrix products and the kernels between them; 1 is the curve of the GPU, here and below.
    pub gemm: f64,
    /// Routed experts, their weights and activations.
    pub experts: f64,
    /// Attention of decoding requests.
    pub decode_attention: f64,
    /// Attention of requests in prefill.
    pub prefill_attention: f64,
    /// All-reduces and the exchange with experts.
    pub collectives: f64,
    /// Small kernels, µs per layer.
    pub layer_us: f64,
    /// Sampling and bookkeeping, µs per request in the batch.
    pub request_us: f64,
    /// Scheduling, input and output, µs per step.
    pub step_us: f64,
}

impl PhysicsBeta {
    /// Names in coefficient files, in the order of [`Self::to_array`].
    pub const NAMES: [&'static str; 8] = [
        "gemm",
        "experts",
        "decode_attention",
        "prefill_attention",
        "collectives",
        "layer_us",
        "request_us",
        "step_us",
    ];

    /// The coefficients in the order of `--beta-coeffs`.
    #[must_use]
    pub fn to_array(self) -> [f64; 8] {
        [
            self.gemm,
            self.experts,
            self.decode_attention,
            self.prefill_attention,
            self.collectives,
            self.layer_us,
            self.request_us,
            self.step_us,
        ]
    }
}

impl From<[f64; 8]> for PhysicsBeta {
    fn from(values: [f64; 8]) -> Self {
        let [gemm, experts, decode_attention, prefill_attention, collectives, layer_us, request_us, step_us] = values;
        Self { gemm, experts, decode_attention, prefill_attention, collectives, layer_us, request_us, step_us }
    }
}

/// The latency model `physics`, described at the top of this file.
#[derive(Clone, Debug)]
pub struct Physics {
    alpha: PhysicsAlpha,
    beta: PhysicsBeta,
    parts: StepParts,
    /// Weighted µs of the terms that depend on the number of tokens, and of those that depend on the number of
    /// requests; the constants of the step are in the former.
    by_tokens: Vec<f64>,
    by_requests: Vec<f64>,
    /// Weighted µs per decoding request, and per token of its context.
    decode_request_us: f64,
    decode_context_us: f64,
    /// Weighted µs per pair of a prompt token and a token that it attends to, and per token of KV read.
    prefill_pair_us: f64,
    prefill_context_us: f64,
}

impl Physics {
    /// α and β as in [`PhysicsAlpha::to_array`] and [`PhysicsBeta::to_array`]. With `expert_parallel`, whole experts
    /// are distributed over the GPUs instead of slices of each.
    ///
    /// # Errors
    /// If a coefficient is negative, a number is missing, or heads or experts do not fit the GPUs.
    pub fn new(
        model: &ModelConfig,
        (gpu, kernels): (&Gpu, &Kernels),
        parallelism: Parallelism,
        expert_parallel: bool,
        alpha: PhysicsAlpha,
        beta: PhysicsBeta,
    ) -> Result<Self, LatencyError> {
        check_coefficients("alpha", &alpha.to_array())?;
        check_coefficients("beta", &beta.to_array())?;
        kernels.check()?;
        check(model, gpu, parallelism)?;
        let parts = StepParts::new(model, gpu, kernels, parallelism, expert_parallel);
        let attention = parts.layers / parts.ranks;
        let mut physics = Self {
            alpha,
            beta,
            by_tokens: Vec::new(),
            by_requests: Vec::new(),
            decode_request_us: beta.decode_attention * attention * parts.decode_request,
            decode_context_us: beta.decode_attention * attention * parts.context_token,
            prefill_pair_us: beta.prefill_attention * attention * parts.prefill_pair,
            prefill_context_us: beta.prefill_attention * attention * parts.context_token,
            parts,
        };
        physics.by_tokens = (0..=PHYSICS_TOKENS).map(|tokens| physics.of_tokens(tokens)).collect();
        physics.by_requests = (0..=PHYSICS_REQUESTS).map(|requests| physics.of_requests(requests)).collect();
        Ok(physics)
    }

    /// Weighted µs of a step with that many tokens, without attention and sampling.
    fn of_tokens(&self, tokens: u64) -> f64 {
        let (beta, parts) = (&self.beta, &self.parts);
        let tokens = exact(tokens);
        beta.gemm * parts.gemms(tokens)
            + beta.experts * parts.experts(tokens)
            + beta.collectives * parts.collectives(tokens)
            + beta.decode_attention * parts.layers * parts.attention_launch
            + beta.layer_us * parts.layers
            + beta.step_us
    }

    /// Weighted µs of the outputs of a step with that many requests: last matrix and sampling.
    fn of_requests(&self, requests: u64) -> f64 {
        let requests = exact(requests);
        self.beta.gemm * self.parts.logits(requests) + self.beta.request_us * requests
    }

    /// Weighted µs of a step, without the terms of context and of prefill attention.
    fn fixed_us(&self, batch: &Batch) -> f64 {
        let tokens = match self.by_tokens.get(batch.tokens() as usize) {
            Some(&us) => us,
            None => self.of_tokens(batch.tokens()),
        };
        let requests = match self.by_requests.get(batch.requests() as usize) {
            Some(&us) => us,
            None => self.of_requests(batch.requests()),
        };
        tokens + requests
    }

    fn us(&self, batch: &Batch) -> f64 {
        let mut us = self.fixed_us(batch);
        if batch.prefill_tokens > 0 {
            // Σ n·(context + (n+1)/2): each new token attends to the new ones before it and to itself.
            let own = (exact(batch.prefill_tokens_squared) + exact(batch.prefill_tokens)) / 2.0;
            us += self.prefill_pair_us * (exact(batch.prefill_tokens_by_context) + own)
                + self.prefill_context_us * exact(batch.prefill_context + batch.prefill_tokens);
        }
        us + self.decode_request_us * exact(batch.decode_requests)
            + self.decode_context_us * exact(batch.decode_context)
    }
}

impl LatencyModel for Physics {
    fn step_time(&self, batch: &Batch) -> Micros {
        if batch.requests() == 0 {
            return Micros(1);
        }
        Micros::from_f64(self.us(batch)).max(Micros(1))
    }

    fn context_effect(&self) -> ContextEffect {
        if self.decode_context_us == 0.0 { ContextEffect::None } else { ContextEffect::NonDecreasing }
    }

    fn over_context(&self, batch: &Batch) -> Option<OverContext> {
        // The same sum as in `us`, in the same order.
        let fixed_us = self.fixed_us(batch) + self.decode_request_us * exact(batch.decode_requests);
        Some(OverContext { fixed_us, token_us: self.decode_context_us })
    }

    fn shortest_step(&self) -> Micros {
        shortest_of_monotone(self)
    }

    fn queueing_time(&self, input_tokens: u32) -> Micros {
        Micros::from_f64(self.alpha.arrival_us + self.alpha.input_token_us * f64::from(input_tokens))
    }

    fn first_token_time(&self) -> Micros {
        Micros::from_f64(self.alpha.first_token_us)
    }

    fn plans_ahead(&self) -> bool {
        true
    }
}

/// The unweighted parts of a step, computed from architecture and curves.
#[derive(Clone, Debug)]
struct StepParts {
    layers: f64,
    /// Data-parallel ranks: each has its share of the requests.
    ranks: f64,
    /// Matrix products of a step with the number of each; and the product that gives the output logits.
    products: Vec<(f64, Product)>,
    logits: Product,
    routed: Option<Experts>,
    /// Time per token of norms, activations and similar kernels, all layers, µs.
    between: f64,
    attention_launch: f64,
    /// One layer, one GPU: µs per decoding request; per token of KV; per pair of prompt tokens.
    decode_request: f64,
    context_token: f64,
    prefill_pair: f64,
    network: Collectives,
}

impl StepParts {
    fn new(model: &ModelConfig, gpu: &Gpu, kernels: &Kernels, parallelism: Parallelism, expert_parallel: bool) -> Self {
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
            let shared = f64::from(moe.shared_intermediate_size) / tp;
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
                reductions: 2.0 * layers - dispatched,
                dispatches: 2.0 * dispatched,
                message: d * model.dtype_bytes,
                kernels: *kernels,
            },
        }
    }

    /// Time of all matrix products except those of experts and output logits, µs.
    fn gemms(&self, tokens: f64) -> f64 {
        let tokens = (tokens / self.ranks).ceil();
        self.products.iter().map(|(count, product)| count * product.us(tokens)).sum::<f64>() + self.between * tokens
    }

    fn experts(&self, tokens: f64) -> f64 {
        self.routed.as_ref().map_or(0.0, |experts| experts.us(tokens))
    }

    fn collectives(&self, tokens: f64) -> f64 {
        let tokens = (tokens / self.ranks).ceil();
        self.network.us(tokens)
    }

    /// Time of the last matrix product, which gives the logits for sampling, µs.
    fn logits(&self, requests: f64) -> f64 {
        self.logits.us((requests / self.ranks).ceil())
    }
}

/// A GPU with the weights of one model: rates in bytes/µs and FLOP/µs.
struct Machine<'a> {
    kernels: &'a Kernels,
    bandwidth: f64,
    flops: f64,
    flops_16bit: f64,
    weight_bytes: f64,
    dtype_bytes: f64,
}

impl<'a> Machine<'a> {
    fn new(model: &ModelConfig, gpu: &Gpu, kernels: &'a Kernels) -> Self {
        Self {
            kernels,
            bandwidth: gpu.hbm_tb_s * 1e6,
            flops: gpu.peak_tflops(model.weight_bytes) * 1e6,
            flops_16bit: gpu.tflops_fp16 * 1e6,
            weight_bytes: model.weight_bytes,
            dtype_bytes: model.dtype_bytes,
        }
    }

    /// Whether the tensor cores compute with 8-bit weights.
    fn is_8bit(&self) -> bool {
        self.weight_bytes == 1.0 && self.flops > self.flops_16bit
    }

    fn product(&self, outputs: f64, inputs: f64) -> Product {
        let curve = if self.is_8bit() { self.kernels.gemm_8bit } else { self.kernels.gemm };
        let (bandwidth, flops) = (self.bandwidth * curve.bandwidth, self.flops * curve.flops);
        Product {
            launch: curve.launch_us,
            weights: outputs * inputs * self.weight_bytes / bandwidth,
            activations: (outputs + inputs) * self.dtype_bytes / bandwidth,
            arithmetic: 2.0 * outputs * inputs / flops,
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
}

impl Product {
    fn us(&self, rows: f64) -> f64 {
        let memory = self.weights + self.activations * rows;
        let arithmetic = self.arithmetic * rows;
        self.launch + slower(memory, arithmetic)
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
    /// Number of experts on this GPU, and the probability that a token misses a given one.
    experts: f64,
    miss: f64,
    /// µs: the weights of one expert; arithmetic and memory traffic of one token.
    weights: f64,
    arithmetic: f64,
    activations: f64,
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
        Self {
            layers,
            launch: curve.launch_us,
            experts: if whole { (experts / gpus).max(1.0) } else { experts },
            miss: (experts - visits) / experts,
            weights: 3.0 * d * width_here * machine.weight_bytes / bandwidth,
            arithmetic: visits_here * 6.0 * d * width_here / flops,
            activations: machine.kernels.expert_activations
                * visits_here
                * (2.0 * d + 3.0 * width_here)
                * machine.dtype_bytes
                / machine.bandwidth,
        }
    }

    /// Tokens choose experts at random: `n` of them visit E·(1 − (1 − k/E)ⁿ).
    fn us(&self, tokens: f64) -> f64 {
        let visited = self.experts * (1.0 - power(self.miss, tokens as u64));
        let memory = self.weights * visited;
        let arithmetic = self.arithmetic * tokens;
        self.layers * (self.launch + slower(memory, arithmetic) + self.activations * tokens)
    }
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
        let Kernels { reduce_once, reduce_twice, .. } = self.kernels;
        let over = |link: Link, bytes: f64| link.launch_us + bytes / (link.gb_s * 1e3);
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

fn check(model: &ModelConfig, gpu: &Gpu, parallelism: Parallelism) -> Result<(), LatencyError> {
    check_model(model)?;
    let tensor = parallelism.tensor;
    check_nonzero(&[
        ("tensor_parallel_size", f64::from(tensor)),
        ("data_parallel_size", f64::from(parallelism.data)),
        ("tflops_fp16", gpu.tflops_fp16),
        ("hbm_tb_s", gpu.hbm_tb_s),
        ("vocab_size", f64::from(model.vocab_size)),
    ])?;
    let (heads, kv_heads) = (model.num_attention_heads, model.num_key_value_heads);
    if !heads.is_multiple_of(tensor) {
        return Err(LatencyError::HeadsNotDivisible { kind: "attention", heads, tensor });
    }
    if model.mla.is_none() && !kv_heads.is_multiple_of(tensor) && !tensor.is_multiple_of(kv_heads) {
        return Err(LatencyError::HeadsNotDivisible { kind: "KV", heads: kv_heads, tensor });
    }
    match model.moe {
        Some(Moe { num_experts: experts, num_experts_per_tok: experts_per_token, .. })
            if !(1..=experts).contains(&experts_per_token) =>
        {
            Err(LatencyError::ExpertsPerToken { experts_per_token, experts })
        }
        None if parallelism.data > 1 => Err(LatencyError::DataParallel { data: parallelism.data }),
        _ => Ok(()),
    }
}

/// Width of a head: the config's own `head_dim` where it has one.
fn head_dim(model: &ModelConfig) -> f64 {
    model.head_dim.map_or(f64::from(model.hidden_size) / f64::from(model.num_attention_heads), f64::from)
}

/// Number of layers with experts. Unlike in BLIS, leading dense layers have none.
fn moe_layers(model: &ModelConfig) -> f64 {
    let dense = model.moe.map_or(0, |moe| moe.first_k_dense_replace);
    f64::from(model.moe_layers().min(model.num_hidden_layers.saturating_sub(dense)))
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
pub(crate) mod samples {
    use super::{Curve, Kernels, Link};

    /// Curves similar to those of an H100.
    pub fn kernels() -> Kernels {
        Kernels {
            gemm: Curve { launch_us: 3.5, bandwidth: 0.9, flops: 0.89 },
            gemm_8bit: Curve { launch_us: 14.2, bandwidth: 0.86, flops: 0.3 },
            experts: Curve { launch_us: 33.7, bandwidth: 0.91, flops: 0.23 },
            experts_8bit: Curve { launch_us: 42.6, bandwidth: 0.79, flops: 0.13 },
            expert_activations: 2.5,
            attention_launch_us: 12.0,
            attention_head_us: 0.017,
            attention_bandwidth: 0.95,
            attention_flops: 0.62,
            reduce_once: Link { launch_us: 4.3, gb_s: 124.0 },
            reduce_twice: Link { launch_us: 10.1, gb_s: 147.0 },
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::samples::kernels;
    use super::*;
    use crate::latency::testing::{BatchItem, batch, random_batches};
    use crate::model::samples::{deepseek_lite, h100, llama_8b, qwen_moe, scout_fp8};

    const ALPHA: PhysicsAlpha = PhysicsAlpha { arrival_us: 4500.0, input_token_us: 0.5, first_token_us: 1250.0 };
    const BETA: PhysicsBeta = PhysicsBeta {
        gemm: 0.97,
        experts: 0.98,
        decode_attention: 0.96,
        prefill_attention: 1.1,
        collectives: 0.9,
        layer_us: 13.0,
        request_us: 1.0,
        step_us: 200.0,
    };

    fn physics(model: &ModelConfig, tensor: u32, data: u32) -> Physics {
        let parallelism = Parallelism { tensor, data };
        Physics::new(model, (&h100(), &kernels()), parallelism, false, ALPHA, BETA).unwrap()
    }

    /// The formula of a dense model on one rank, kernel by kernel and request by request.
    fn written_out(m: &ModelConfig, tp: f64, items: &[BatchItem]) -> f64 {
        let (k, bandwidth, flops) = (kernels(), 3.35e6, 989.5e6);
        let (l, d, h) =
            (f64::from(m.num_hidden_layers), f64::from(m.hidden_size), f64::from(m.num_attention_heads) / tp);
        let (kv, ff) = (f64::from(m.num_key_value_heads) / tp, f64::from(m.intermediate_size) / tp);
        let dh = 128.0;
        let product = |rows: f64, outputs: f64, inputs: f64| {
            let memory = 2.0 * (outputs * inputs + rows * (outputs + inputs)) / (bandwidth * k.gemm.bandwidth);
            let arithmetic = 2.0 * rows * outputs * inputs / (flops * k.gemm.flops);
            k.gemm.launch_us + (memory.powi(4) + arithmetic.powi(4)).powf(0.25)
        };
        let tokens: f64 = items.iter().map(|item| f64::from(item.n)).sum();
        let mut us = BETA.step_us + BETA.request_us * items.len() as f64 + BETA.layer_us * l;
        let per_layer = product(tokens, (h + 2.0 * kv) * dh, d)
            + product(tokens, d, h * dh)
            + product(tokens, 2.0 * ff, d)
            + product(tokens, d, ff);
        let between =
            tokens * 2.0 * (8.0 * d + 2.0 * (h + 2.0 * kv) * dh + 3.0 * ff) / bandwidth / k.attention_bandwidth;
        us += BETA.gemm * (l * (per_layer + between) + product(items.len() as f64, f64::from(m.vocab_size) / tp, d));
        if tp > 1.0 {
            let bytes = 2.0 * d * tokens;
            let once = k.reduce_once.launch_us + (tp - 1.0) * bytes / (k.reduce_once.gb_s * 1e3);
            let twice = k.reduce_twice.launch_us + 2.0 * (tp - 1.0) / tp * bytes / (k.reduce_twice.gb_s * 1e3);
            us += BETA.collectives * 2.0 * l * once.min(twice);
        }
        us += BETA.decode_attention * l * k.attention_launch_us;
        for item in items {
            let kv_us = |tokens: f64| tokens * 2.0 * kv * dh * 2.0 / bandwidth / k.attention_bandwidth;
            let (n, context) = (f64::from(item.n), f64::from(item.context));
            us += l * if item.is_prefill() {
                let pairs: f64 = (0..item.n).map(|new| context + f64::from(new) + 1.0).sum();
                let arithmetic = 4.0 * pairs * h * dh / (flops * k.attention_flops);
                BETA.prefill_attention * (arithmetic + kv_us(context + n))
            } else {
                BETA.decode_attention * (k.attention_head_us * kv + kv_us(context))
            };
        }
        us
    }

    #[test]
    fn equals_its_formula() {
        for (tensor, share) in [(1, 1.0), (4, 4.0)] {
            let physics = physics(&llama_8b(), tensor, 1);
            for items in random_batches(3_000) {
                let expected = written_out(&llama_8b(), share, &items);
                let us = physics.us(&batch(&items));
                assert!((us / expected - 1.0).abs() < 1e-9, "{us} is not {expected}: {items:?}");
            }
        }
    }

    #[test]
    fn batches_beyond_the_tables_use_the_same_formula() {
        let mut physics = physics(&qwen_moe(), 2, 1);
        let batches: Vec<Batch> = random_batches(2_000).map(|items| batch(&items)).collect();
        let tables: Vec<Micros> = batches.iter().map(|batch| physics.step_time(batch)).collect();
        physics.by_tokens.clear();
        physics.by_requests.clear();
        let computed: Vec<Micros> = batches.iter().map(|batch| physics.step_time(batch)).collect();
        assert_eq!(tables, computed);
    }

    #[test]
    fn decoding_reads_weights_and_context() {
        // Llama-3.1-8B in BF16: 15 GB of weights and 128 KiB of KV per token on 3.35 TB/s.
        let physics = physics(&llama_8b(), 1, 1);
        let mut one = Batch::default();
        one.add_decode(1000);
        let us = physics.step_time(&one).0;
        assert!((5_000..7_500).contains(&us), "{us} µs");
        let full = Batch { decode_context: 100_000, ..one };
        let context_us = physics.step_time(&full).0 - us;
        assert!((3_500..4_500).contains(&context_us), "99 000 tokens of KV are 3.9 ms at peak: {context_us} µs");
    }

    #[test]
    fn more_gpus_are_faster_with_overheads() {
        let step = |tensor, requests| {
            let physics = physics(&llama_8b(), tensor, 1);
            physics.step_time(&Batch { decode_requests: requests, decode_context: 500 * requests, ..Batch::default() })
        };
        assert!(step(2, 16) < step(1, 16) && step(4, 16) < step(2, 16));
        assert!(step(4, 16).0 * 3 > step(1, 16).0, "collectives and launches do not shrink");
    }

    #[test]
    fn a_batch_visits_more_experts_than_a_request() {
        let physics = physics(&qwen_moe(), 1, 1);
        let step = |requests| physics.step_time(&Batch { decode_requests: requests, ..Batch::default() }).0 as f64;
        assert!(step(32) > 1.5 * step(1), "32 tokens visit 111 of 128 experts, one visits 8");
        assert!(step(128) < 1.5 * step(64), "then all are visited");
    }

    #[test]
    fn latent_attention_reads_less_than_heads_would() {
        let heads = ModelConfig { mla: None, ..deepseek_lite() };
        let of_context = |model: &ModelConfig| physics(model, 1, 1).decode_context_us;
        assert!(of_context(&deepseek_lite()) < of_context(&heads) / 3.0);
    }

    #[test]
    fn alpha_acts_before_the_queue_and_behind_the_first_token() {
        let physics = physics(&llama_8b(), 1, 1);
        assert_eq!(physics.queueing_time(100), Micros(4550));
        assert_eq!(physics.first_token_time(), Micros(1250));
        assert_eq!((physics.output_token_time(), physics.post_decode_time()), (Micros::ZERO, Micros::ZERO));
        assert_eq!(physics.step_time(&Batch::default()), Micros(1));
    }

    #[test]
    fn invalid_configurations_are_refused() {
        let error = |model: &ModelConfig, tensor, data, kernels: &Kernels, beta| {
            let parallelism = Parallelism { tensor, data };
            Physics::new(model, (&h100(), kernels), parallelism, false, ALPHA, beta).unwrap_err()
        };
        let fine = kernels();
        assert_eq!(error(&llama_8b(), 1, 2, &fine, BETA), LatencyError::DataParallel { data: 2 });
        let expected = LatencyError::HeadsNotDivisible { kind: "attention", heads: 32, tensor: 5 };
        assert_eq!(error(&llama_8b(), 5, 1, &fine, BETA), expected);
        let expected = LatencyError::CoefficientValue { name: "beta", index: 5, value: -1.0 };
        assert_eq!(error(&llama_8b(), 1, 1, &fine, PhysicsBeta { layer_us: -1.0, ..BETA }), expected);
        let unknown = Kernels { attention_flops: 0.0, ..fine };
        assert_eq!(error(&llama_8b(), 1, 1, &unknown, BETA), LatencyError::Missing { field: "attention_flops" });
    }

    fn any_physics() -> impl Strategy<Value = Physics> {
        prop_oneof![
            Just(physics(&llama_8b(), 1, 1)),
            Just(physics(&llama_8b(), 8, 1)),
            Just(physics(&scout_fp8(), 4, 1)),
            Just(physics(&deepseek_lite(), 2, 1)),
            Just(physics(&qwen_moe(), 2, 2)),
        ]
    }

    proptest! {
        /// Equal to the bit, also beyond the tables.
        #[test]
        fn over_its_context_a_step_is_a_line(
            physics in any_physics(), requests in 1u64..9_000, contexts in prop::collection::vec(0u64..4_000_000, 1..50),
        ) {
            let batch = Batch { decode_requests: requests, ..Batch::default() };
            let line = physics.over_context(&batch).expect("a line");
            for decode_context in contexts {
                let exact = physics.us(&Batch { decode_context, ..batch });
                prop_assert_eq!(line.fixed_us + line.token_us * decode_context as f64, exact);
                prop_assert_eq!(line.step_time(decode_context), physics.step_time(&Batch { decode_context, ..batch }));
            }
        }

        /// More tokens or context never make a step faster, and no step is faster than the shortest step.
        #[test]
        fn steps_are_monotone(
            physics in any_physics(),
            requests in 0u64..300,
            context in 0u64..300_000,
            chunk in 1u32..9_000,
            before in 0u32..50_000,
            more in 1u64..200,
        ) {
            let decodes = Batch { decode_requests: requests, decode_context: context, ..Batch::default() };
            let mut mixed = decodes;
            mixed.add_prefill(chunk, before, before + chunk);
            let mut longer = decodes;
            longer.add_prefill(chunk + 1, before, before + chunk + 1);
            let mut further = decodes;
            further.add_prefill(chunk, before + 100, before + 100 + chunk);
            let wider = Batch { decode_requests: requests + more, ..mixed };
            let deeper = Batch { decode_context: context + more, ..mixed };
            let step = physics.step_time(&mixed);
            prop_assert!(step > physics.step_time(&decodes));
            for larger in [longer, further, wider, deeper] {
                prop_assert!(physics.step_time(&larger) >= step);
            }
            prop_assert!(step >= physics.shortest_step() && physics.shortest_step() > Micros(500));
        }
    }
}
