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

mod attention;
mod coefficients;
mod kernels;
mod links;
mod parts;
mod pipeline;
mod sampling;
mod terms;

pub use coefficients::{PhysicsAlpha, PhysicsBeta};
pub use kernels::{Curve, Kernels, RowCurve};
pub use links::{GroupLink, LinkSegment, Links, ServerNode};
pub use pipeline::Pipeline;
pub use sampling::{Sampler, SamplingRows};

#[cfg(test)]
pub(crate) use kernels::samples;

use self::parts::StepParts;
use self::terms::AttentionTerms;
use super::arithmetic::exact;
use super::error::{check_coefficients, check_model, check_nonzero};
use super::{Batch, ContextEffect, ContextLine, LatencyError, LatencyModel, OverContext, shortest_of_monotone};
use crate::architecture::{Architecture, Attention, LinearKind, Mlp};
use crate::limits::{PHYSICS_REQUESTS, PHYSICS_TOKENS};
use crate::model::{Gpu, ModelConfig, Parallelism};
use crate::numbers::index;
use crate::sampling::{SampledRows, Sampling, SamplingParams};
use crate::units::Micros;

/// How an engine serves a model, as far as it concerns the time of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Serving {
    /// Distribution over GPUs.
    pub parallelism: Parallelism,
    /// Pipeline stages, at least 1; [`Pipeline`] has the step times of more than one.
    pub pipeline: u32,
    /// Whether whole experts are distributed over the GPUs instead of slices of each.
    pub expert_parallel: bool,
    /// The sampling parameters of requests that set none: those of the model's `generation_config.json`.
    pub sampling: SamplingParams,
    /// The engine's implementation of sampling.
    pub sampler: Sampler,
    /// How its kernels are launched.
    pub launch: Launch,
}

impl Serving {
    /// Greedy sampling, CUDA graphs and sliced experts on that many GPUs.
    #[must_use]
    pub fn on(parallelism: Parallelism) -> Self {
        Self {
            parallelism,
            pipeline: 1,
            expert_parallel: false,
            sampling: SamplingParams::default(),
            sampler: Sampler::default(),
            launch: Launch::default(),
        }
    }
}

/// How the kernels of a decode step are launched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Launch {
    /// One CUDA graph for the whole step.
    #[default]
    Graph,
    /// CUDA graphs between attention, which is launched by itself: for attention that cannot be captured, such as the
    /// chunked local attention of Llama 4 (vLLM issues 26034, 28739).
    Piecewise,
    /// Every kernel by itself: `--enforce-eager`.
    Eager,
}

impl Launch {
    /// Multiple of [`PhysicsBeta::launch_us`] per layer.
    fn weight(self) -> f64 {
        match self {
            Self::Graph => 0.0,
            // Half of what prompts add: set on a17 and a21 of docs/fidelity.md.
            Self::Piecewise => 0.5,
            // A decoder layer launches about 12 kernels of 6 µs each, which is 75 µs with the general `launch_us` of 12.5; not measured.
            Self::Eager => 6.0,
        }
    }
}

/// All layers of a model, or those of one of its pipeline stages.
#[derive(Clone, Copy, Debug)]
struct ComputedLayers<'a> {
    model: &'a ModelConfig,
    /// These layers alone.
    architecture: &'a Architecture,
    /// Whether the output matrix and sampling follow them.
    has_outputs: bool,
}

/// The latency model `physics`, described at the top of this file.
#[derive(Clone, Debug)]
pub struct Physics {
    alpha: PhysicsAlpha,
    beta: PhysicsBeta,
    parts: StepParts,
    serving: Serving,
    /// The sampling of requests that set no parameter.
    sampling: Sampling,
    vocabulary: f64,
    hbm_tb_s: f64,
    /// Weighted µs of the terms that depend on the number of tokens, and of those that depend on the number of
    /// requests; the constants of the step are in the former.
    by_tokens: Vec<f64>,
    by_requests: Vec<f64>,
    /// Weighted µs of attention.
    attention: AttentionTerms,
    /// Weighted µs of a step with prompts beyond their own: launches, as its CUDA graphs leave attention out. Those of attention
    /// take as long as for prompts, in a step with decodes at least as long as for these.
    prompts_us: f64,
    mixed_us: f64,
    /// Whether these layers are followed by the output matrix and sampling: all layers of a model, or its last stage.
    has_outputs: bool,
}

impl Physics {
    /// The step times of a model on GPUs with these kernels.
    ///
    /// # Errors
    /// If a coefficient is negative, a number is missing, or heads or experts do not fit the GPUs.
    pub fn new(
        model: &ModelConfig,
        gpu: &Gpu,
        kernels: &Kernels,
        serving: Serving,
        alpha: PhysicsAlpha,
        beta: PhysicsBeta,
    ) -> Result<Self, LatencyError> {
        check_coefficients("alpha", &alpha.to_array())?;
        check_coefficients("beta", &beta.to_array())?;
        kernels.check()?;
        let architecture = model.architecture();
        check(model, &architecture, gpu, serving.parallelism)?;
        let layers = ComputedLayers { model, architecture: &architecture, has_outputs: true };
        Ok(Self::of_layers(layers, gpu, kernels, serving, alpha, beta))
    }

    /// The step times of these layers of a model, which are valid.
    fn of_layers(
        ComputedLayers { model, architecture, has_outputs }: ComputedLayers<'_>,
        gpu: &Gpu,
        kernels: &Kernels,
        serving: Serving,
        alpha: PhysicsAlpha,
        beta: PhysicsBeta,
    ) -> Self {
        let parts = StepParts::new(model, architecture, gpu, kernels, serving.parallelism, serving.expert_parallel);
        let launches = if serving.launch == Launch::Graph { beta.launch_us * parts.layers } else { 0.0 };
        let longer = (kernels.attention_prompt_launch_us - kernels.attention_launch_us).max(0.0);
        let instead = beta.prefill_attention * kernels.attention_prompt_launch_us
            - beta.decode_attention * kernels.attention_launch_us;
        let mut physics = Self {
            alpha,
            beta,
            by_tokens: Vec::new(),
            by_requests: Vec::new(),
            attention: AttentionTerms::new(&parts.attention, parts.ranks, beta),
            prompts_us: launches + parts.attentions * instead,
            mixed_us: launches + beta.prefill_attention * parts.attentions * longer,
            parts,
            serving,
            sampling: serving.sampling.work(),
            vocabulary: f64::from(model.vocab_size),
            hbm_tb_s: gpu.hbm_tb_s,
            has_outputs,
        };
        physics.by_tokens = (0..=PHYSICS_TOKENS).map(|tokens| physics.of_tokens(tokens)).collect();
        physics.by_requests =
            (0..=PHYSICS_REQUESTS).map(|requests| physics.of_requests(requests, SampledRows::default())).collect();
        physics
    }

    /// Weighted µs of a step with that many tokens, without attention and sampling.
    fn of_tokens(&self, tokens: u64) -> f64 {
        let (beta, parts) = (&self.beta, &self.parts);
        let tokens = exact(tokens);
        beta.gemm * parts.gemms(tokens)
            + beta.experts * parts.experts(tokens)
            + beta.collectives * parts.collectives(tokens)
            + beta.decode_attention * parts.attentions * parts.attention_launch
            + beta.layer_us * parts.small_kernels
            + beta.launch_us * self.serving.launch.weight() * parts.layers
            + if self.has_outputs { beta.step_us } else { 0.0 }
    }

    /// Weighted µs of the outputs of a step with that many requests: last matrix and sampling.
    fn of_requests(&self, requests: u64, sampled: SampledRows) -> f64 {
        if !self.has_outputs {
            return 0.0;
        }
        let rows = SamplingRows::new(requests, sampled, self.sampling);
        let sampling_us = self.serving.sampler.us(rows, self.vocabulary, self.hbm_tb_s);
        let requests = exact(requests);
        self.beta.gemm * self.parts.logits(requests)
            + self.beta.sampling * sampling_us
            + self.beta.request_us * requests
    }

    /// Weighted µs of a step, without the terms of context and of prefill attention.
    fn fixed_us(&self, batch: &Batch) -> f64 {
        let tokens = match self.by_tokens.get(index(batch.tokens())) {
            Some(&us) => us,
            None => self.of_tokens(batch.tokens()),
        };
        let requests = match self.by_requests.get(index(batch.requests())) {
            Some(&us) if batch.sampled.own == 0 => us,
            _ => self.of_requests(batch.requests(), batch.sampled),
        };
        tokens + requests
    }

    fn us(&self, batch: &Batch) -> f64 {
        let mut us = self.fixed_us(batch);
        let decode = self.attention.decodes(batch);
        if batch.prefill_tokens > 0 {
            us += self.attention.prompts(batch)
                + if batch.decode_requests == 0 { self.prompts_us } else { self.mixed_us };
        }
        us + decode.0 + decode.1
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
        if self.attention.reads_context() { ContextEffect::NonDecreasing } else { ContextEffect::None }
    }

    fn over_context(&self, batch: &Batch) -> Option<OverContext> {
        // The same sum as in `us`, in the same order.
        let token_us = self.attention.over_context()?;
        Some(OverContext::Line(ContextLine {
            fixed_us: self.fixed_us(batch) + self.attention.of_decodes(batch),
            token_us,
            shared_tokens: self.attention.shared_tokens(batch),
        }))
    }

    fn reads_common_prefix(&self) -> bool {
        self.attention.reads_common_prefix()
    }

    fn least_step_time(&self, batch: &Batch) -> Micros {
        self.step_time(&all_shared(batch))
    }

    fn sampling(&self, params: SamplingParams) -> Option<Sampling> {
        let own = params.over(self.serving.sampling).work();
        (own != self.sampling).then_some(own)
    }

    fn shortest_step(&self) -> Micros {
        let mut greedy = Batch::default();
        greedy.add_decode(0);
        greedy.sampled.add(Some(Sampling::default()));
        shortest_of_monotone(self).min(self.step_time(&greedy))
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

/// The batch with as long a prefix in common as its decodes can have.
fn all_shared(batch: &Batch) -> Batch {
    let common_prefix = batch.decode_context.checked_div(batch.decode_requests).unwrap_or(0);
    Batch { common_prefix, ..*batch }
}

fn check(
    model: &ModelConfig,
    architecture: &Architecture,
    gpu: &Gpu,
    parallelism: Parallelism,
) -> Result<(), LatencyError> {
    check_model(model)?;
    check_nonzero(&[
        ("tensor_parallel_size", f64::from(parallelism.tensor)),
        ("data_parallel_size", f64::from(parallelism.data)),
        ("tflops_fp16", gpu.tflops_fp16),
        ("hbm_tb_s", gpu.hbm_tb_s),
        ("vocab_size", f64::from(model.vocab_size)),
    ])?;
    if model.dtype_bytes == 4.0 {
        check_nonzero(&[("tflops_fp32", gpu.tflops_fp32)])?;
    }
    for (_, attention) in architecture.attentions() {
        check_heads(attention, parallelism.tensor)?;
    }
    let mut has_experts = false;
    for (_, mlp) in architecture.mlps() {
        let Mlp::Experts(shape) = mlp else { continue };
        has_experts = true;
        if !(1..=shape.count).contains(&shape.per_token) {
            return Err(LatencyError::ExpertsPerToken { experts_per_token: shape.per_token, experts: shape.count });
        }
    }
    if parallelism.data > 1 && !has_experts {
        return Err(LatencyError::DataParallel { data: parallelism.data });
    }
    Ok(())
}

/// Heads are divided evenly; KV heads may also be replicated, if there are fewer of them than GPUs.
fn check_heads(attention: Attention, tensor: u32) -> Result<(), LatencyError> {
    let divided = |kind, heads: u32| match heads > 0 && heads.is_multiple_of(tensor) {
        true => Ok(()),
        false => Err(LatencyError::HeadsNotDivisible { kind, heads, tensor }),
    };
    match attention {
        Attention::Heads(heads) => {
            divided("attention", heads.queries)?;
            if heads.kv > 0 && tensor.is_multiple_of(heads.kv) { Ok(()) } else { divided("KV", heads.kv) }
        }
        Attention::Latent(latent) => divided("attention", latent.heads),
        Attention::Compressed(compressed) => divided("attention", compressed.heads),
        Attention::Linear(linear) => {
            // Groups of Mamba-2 that cannot be divided are on every GPU.
            if linear.kind != LinearKind::Mamba2 {
                divided("linear attention", linear.key_heads)?;
            }
            divided("linear attention", linear.value_heads)
        }
        Attention::Matrix | Attention::None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::samples::kernels;
    use super::*;
    use crate::latency::testing::{BatchItem, batch, random_batches};
    use crate::model::samples::{deepseek_lite, gemma_4, h100, llama_8b, qwen_3_5, qwen_moe, scout_fp8};
    use crate::sampling::SamplingParam;

    const ALPHA: PhysicsAlpha = PhysicsAlpha { arrival_us: 4500.0, input_token_us: 0.5, first_token_us: 1250.0 };
    const BETA: PhysicsBeta = PhysicsBeta {
        gemm: 0.97,
        experts: 0.98,
        decode_attention: 0.96,
        prefill_attention: 1.1,
        collectives: 0.9,
        sampling: 1.0,
        layer_us: 13.0,
        launch_us: 100.0,
        request_us: 1.0,
        step_us: 200.0,
    };

    fn physics(model: &ModelConfig, tensor: u32, data: u32) -> Physics {
        let parallelism = Parallelism { tensor, data };
        Physics::new(model, &h100(), &kernels(), Serving::on(parallelism), ALPHA, BETA).unwrap()
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
            assert_eq!(tp, 4.0, "the lines of 4 GPUs in the samples follow");
            let (few, many) = (4.6 + bytes / 100e3, 6.9 + bytes.max(524_288.0) / 180e3);
            us += BETA.collectives * 2.0 * l * if bytes < 524_288.0 { few.min(many) } else { many };
        }
        us += BETA.decode_attention * l * k.attention_launch_us;
        if items.iter().any(|item| item.is_prefill()) {
            us += BETA.launch_us * l;
            us += if items.iter().all(|item| item.is_prefill()) {
                l * (BETA.prefill_attention * 13.5 - BETA.decode_attention * k.attention_launch_us)
            } else {
                l * BETA.prefill_attention * 1.5
            };
        }
        for item in items {
            let kv_us = |tokens: f64| tokens * 2.0 * kv * dh * 2.0 / bandwidth / k.attention_bandwidth;
            let (n, context) = (f64::from(item.n), f64::from(item.context));
            us += l * if item.is_prefill() {
                let pairs: f64 = (0..item.n).map(|new| context + f64::from(new) + 1.0).sum();
                let arithmetic = 4.0 * pairs * h * dh / (flops * k.attention_flops);
                let moved = n * 2.0 * (h + kv) * dh * 2.0 / bandwidth / k.attention_traffic;
                BETA.prefill_attention * (arithmetic + kv_us(context) + moved)
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

    /// 32 layers × 8 heads × 2 × 128 elements of a token, of one byte at 0.76 of 3.35 TB/s instead of two at 0.95:
    /// 0.0257 µs and 0.0412 µs, and 0.96 of that by β.
    #[test]
    fn an_fp8_cache_is_read_faster() {
        let model = ModelConfig { kv_dtype_bytes: 1.0, ..llama_8b() };
        let [whole, half] = [&llama_8b(), &model].map(|model| physics(model, 1, 1).attention.over_context().unwrap());
        let elements = 32.0 * 8.0 * 2.0 * 128.0;
        assert!((whole / (0.96 * elements * 2.0 / (3.35e6 * 0.95)) - 1.0).abs() < 1e-12, "{whole}");
        assert!((half / (0.96 * elements / (3.35e6 * 0.76)) - 1.0).abs() < 1e-12, "{half}");
        let prompt = |model| physics(model, 1, 1).us(&batch(&[BatchItem { n: 512, context: 0, input: 512 }]));
        assert!(prompt(&model) < prompt(&llama_8b()), "prompts write and read it as well");
    }

    /// A step of one request reads every weight once, four bytes instead of two; a large prompt computes at 67 instead of
    /// 989.5 TFLOPS.
    #[test]
    fn float32_doubles_the_weights_and_leaves_the_tensor_cores() {
        let model = ModelConfig { dtype_bytes: 4.0, kv_dtype_bytes: 4.0, weight_bytes: 4.0, ..llama_8b() };
        let ratio = |n, context| {
            let items = batch(&[BatchItem { n, context, input: 8192 }]);
            physics(&model, 1, 1).us(&items) / physics(&llama_8b(), 1, 1).us(&items)
        };
        assert!((1.7..2.0).contains(&ratio(1, 8192)), "{}", ratio(1, 8192));
        assert!((12.0..989.5 / 67.0).contains(&ratio(8192, 0)), "{}", ratio(8192, 0));
        let unknown = Gpu { tflops_fp32: 0.0, ..h100() };
        let serving = Serving::on(Parallelism { tensor: 1, data: 1 });
        let refused = Physics::new(&model, &unknown, &kernels(), serving, ALPHA, BETA).unwrap_err();
        assert_eq!(refused, LatencyError::Missing { field: "tflops_fp32" });
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
    fn sampling_and_launches_cost_time() {
        let with = |change: fn(&mut Serving)| {
            let mut serving = Serving::on(Parallelism { tensor: 1, data: 1 });
            change(&mut serving);
            let physics = Physics::new(&llama_8b(), &h100(), &kernels(), serving, ALPHA, BETA).unwrap();
            physics.step_time(&Batch { decode_requests: 64, decode_context: 32_000, ..Batch::default() }).0
        };
        let greedy = with(|_| {});
        let truncates = |serving: &mut Serving| serving.sampling = serving.sampling.with(SamplingParam::TopP, 0.9);
        let top_p = with(truncates) - greedy;
        assert!((900..1300).contains(&top_p), "vLLM #40376 measured 1.07 ms: {top_p} µs");
        let eager = with(|serving| serving.launch = Launch::Eager);
        assert!(eager > with(|serving| serving.launch = Launch::Piecewise) && eager - greedy == 19_200, "{eager}");
    }

    /// Requests that set what the model sets, and requests that set nothing, take the same time to the bit.
    #[test]
    fn the_sampling_of_requests_costs_what_that_of_the_model_does() {
        let top_p = SamplingParams::default().with(SamplingParam::TopP, 0.9);
        let of = |sampling| {
            let serving = Serving { sampling, ..Serving::on(Parallelism { tensor: 1, data: 1 }) };
            Physics::new(&llama_8b(), &h100(), &kernels(), serving, ALPHA, BETA).unwrap()
        };
        let (greedy, restricted) = (of(SamplingParams::default()), of(top_p));
        assert_eq!((greedy.sampling(SamplingParams::default()), restricted.sampling(top_p)), (None, None));
        let us = |model: &Physics, own: u32, params| {
            let mut batch = Batch { decode_requests: 64, decode_context: 32_000, ..Batch::default() };
            (0..own).for_each(|_| batch.sampled.add(model.sampling(params)));
            model.us(&batch)
        };
        assert_eq!(us(&greedy, 64, top_p), us(&restricted, 0, top_p));
        let off = SamplingParams::default().with(SamplingParam::TopP, 1.0);
        assert_eq!(us(&restricted, 64, off), us(&greedy, 0, off));
        assert_eq!(us(&restricted, 63, off), us(&restricted, 0, off), "one request is enough for the sort of all");
        let lone = restricted.shortest_step();
        assert_eq!(lone, greedy.shortest_step(), "a request may be greedy");
    }

    /// Two small kernels more in each of 32 layers: 0.4 of the five that take 13 µs.
    #[test]
    fn norms_of_queries_and_keys_are_small_kernels() {
        let normed = ModelConfig { qk_norm: true, ..llama_8b() };
        let [with, without] = [&normed, &llama_8b()].map(|model| {
            let batch = Batch { decode_requests: 8, decode_context: 4000, ..Batch::default() };
            physics(model, 1, 1).us(&batch)
        });
        assert!((with - without - 32.0 * 0.4 * BETA.layer_us).abs() < 1e-9, "{}", with - without);
    }

    #[test]
    fn mixed_steps_cost_old_attention_kernels_more() {
        let old = Kernels { attention_mixed_rows: 128.0, ..kernels() };
        let us = |kernels: &Kernels, prefill: u32| {
            let serving = Serving::on(Parallelism { tensor: 1, data: 1 });
            let physics = Physics::new(&llama_8b(), &h100(), kernels, serving, ALPHA, BETA).unwrap();
            let mut batch = Batch { decode_requests: 64, decode_context: 64_000, ..Batch::default() };
            if prefill > 0 {
                batch.add_prefill(prefill, 0, prefill);
            }
            physics.step_time(&batch).0
        };
        assert_eq!(us(&old, 0), us(&kernels(), 0));
        // 64 000 tokens × 32 heads × 4 · 128 FLOP × 128 rows at 0.62 of 989.5 TFLOPS are 218.8 µs a layer; reading 4096 bytes of
        // KV each at 0.95 of 3.35 TB/s takes 82.4 µs of them anyway.
        let more = us(&old, 5) - us(&kernels(), 5);
        assert!(more.abs_diff((BETA.decode_attention * 32.0 * 136.4) as u64) < 5, "{more} µs");
    }

    /// 64 requests of 1000 tokens in 32 layers; 63 of them read 96 tokens of 4096 bytes from the L2 cache, meanwhile others from
    /// memory at 95 % of 3.35 TB/s. It keeps 50 MB, 12 207 tokens.
    #[test]
    fn a_common_prefix_is_read_from_the_l2_cache() {
        let physics = physics(&llama_8b(), 1, 1);
        let us = |common_prefix, context: u64| {
            physics.us(&Batch { decode_requests: 64, decode_context: 64 * context, common_prefix, ..Batch::default() })
        };
        let per_token = BETA.decode_attention * 32.0 * 4096.0 / (3.35e6 * 0.95);
        assert!((us(0, 1000) - us(96, 1000) - 63.0 * 96.0 * per_token).abs() < 1e-6);
        assert_eq!(us(12_207, 30_000), us(16_000, 30_000), "the rest does not fit");
        assert!((us(0, 30_000) - us(16_000, 30_000) - 63.0 * 12_207.0 * per_token).abs() < 1e-6);
        assert!((us(0, 1000) - us(900, 1000) - 32_000.0 * per_token).abs() < 1e-6, "then the L2 cache is the limit");
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
        let of_context = |model: &ModelConfig| physics(model, 1, 1).attention.over_context().expect("a line");
        assert!(of_context(&deepseek_lite()) < of_context(&heads) / 3.0);
    }

    /// 64 requests of 8000 tokens: 25 layers read 1024 of them instead of 8000, 2 · 8 · 256 numbers of two bytes each, at 95 %
    /// of 3.35 TB/s.
    #[test]
    fn windows_shorten_long_requests_only() {
        let mut full = gemma_4();
        for group in &mut full.architecture.as_mut().expect("it has kinds").groups {
            let Attention::Heads(heads) = &mut group.attention else { panic!("{group:?}") };
            heads.span = crate::architecture::AttentionSpan::Full;
        }
        let [windowed, full] = [&gemma_4(), &full].map(|model| {
            let physics = physics(model, 1, 1);
            move |context: u64| {
                let batch = Batch { decode_requests: 64, decode_context: 64 * context, ..Batch::default() };
                physics.us(&batch)
            }
        });
        assert!((windowed(1000) / full(1000) - 1.0).abs() < 1e-12);
        let saved = 25.0 * 64.0 * (8000.0 - 1024.0) * 2.0 * 8.0 * 256.0 * 2.0 / (3.35e6 * 0.95);
        assert!((full(8000) - windowed(8000) - BETA.decode_attention * saved).abs() < 1e-6);
    }

    /// 30 layers of linear attention read and write a state of 2 146 304 bytes per request, whatever its length; 10 layers
    /// read 2 · 2 · 256 numbers of two bytes per token.
    #[test]
    fn linear_attention_does_not_grow() {
        let physics = physics(&qwen_3_5(), 1, 1);
        let us = |requests: u64, context: u64| {
            let batch = Batch { decode_requests: requests, decode_context: requests * context, ..Batch::default() };
            physics.attention.decodes(&batch)
        };
        let rate = 3.35e6 * 0.95 / BETA.decode_attention;
        let (fixed, context) = us(1, 1000);
        assert!((context - 10.0 * 1000.0 * 2.0 * 2.0 * 256.0 * 2.0 / rate).abs() < 1e-6);
        let heads = BETA.decode_attention * 10.0 * 0.017 * 2.0;
        assert!((fixed - heads - 30.0 * 2.0 * 2_146_304.0 / rate).abs() < 1e-6);
        assert_eq!(us(1, 100_000).0, fixed);
    }

    /// DeepSeek-V2-Lite on 8 GPUs: each reads 576 numbers of two bytes per token and layer.
    #[test]
    fn latent_attention_reads_its_vectors() {
        let physics = physics(&deepseek_lite(), 8, 1);
        let token_us = physics.attention.over_context().expect("a line");
        let expected = BETA.decode_attention * 27.0 * 576.0 * 2.0 / (3.35e6 * 0.915);
        assert!((token_us / expected - 1.0).abs() < 1e-12, "{token_us} {expected}");
    }

    /// MXFP4 experts take 4.25 of 16 bits.
    #[test]
    fn experts_are_read_at_their_own_width() {
        let mut narrow = qwen_moe();
        narrow.architecture = Some(narrow.architecture());
        assert_eq!(physics(&narrow, 2, 1).by_tokens, physics(&qwen_moe(), 2, 1).by_tokens, "equal kinds, equal times");
        let weights = &mut narrow.architecture.as_mut().expect("it has kinds").weights;
        weights.experts = Some(crate::architecture::MXFP4_BYTES);
        let experts = |model: &ModelConfig| {
            let physics = physics(model, 1, 1);
            physics.parts.experts(1.0)
        };
        assert!(experts(&narrow) < 0.7 * experts(&qwen_moe()));
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
            Physics::new(model, &h100(), kernels, Serving::on(parallelism), ALPHA, beta).unwrap_err()
        };
        let fine = kernels();
        assert_eq!(error(&llama_8b(), 1, 2, &fine, BETA), LatencyError::DataParallel { data: 2 });
        let expected = LatencyError::HeadsNotDivisible { kind: "attention", heads: 32, tensor: 5 };
        assert_eq!(error(&llama_8b(), 5, 1, &fine, BETA), expected);
        let expected = LatencyError::CoefficientValue { name: "beta", index: 6, value: -1.0 };
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
            Just(physics(&qwen_3_5(), 2, 1)),
        ]
    }

    fn any_attention() -> impl Strategy<Value = Physics> {
        prop_oneof![3 => any_physics(), 1 => Just(physics(&gemma_4(), 2, 1))]
    }

    proptest! {
        /// Equal to the bit, also beyond the tables.
        #[test]
        fn over_its_context_a_step_is_a_line(
            physics in any_physics(),
            requests in 1u64..9_000,
            common_prefix in prop_oneof![Just(0u64), 0u64..3_000],
            contexts in prop::collection::vec(0u64..4_000_000, 1..50),
        ) {
            let batch = Batch { decode_requests: requests, common_prefix, ..Batch::default() };
            let over_context = physics.over_context(&batch).expect("a line");
            let OverContext::Line(line) = over_context else { panic!("a line") };
            for decode_context in contexts {
                let exact = physics.us(&Batch { decode_context, ..batch });
                let read = decode_context - line.shared_tokens.min(decode_context / 2);
                prop_assert_eq!(line.fixed_us + line.token_us * read as f64, exact);
                prop_assert_eq!(over_context.step_time(decode_context), physics.step_time(&Batch { decode_context, ..batch }));
            }
        }

        /// More tokens or context never make a step faster, and no step is faster than the shortest step.
        #[test]
        fn steps_are_monotone(
            physics in any_attention(),
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
