//! `roofline`: the maximum of arithmetic time and memory time, without overheads.
//!
//! It has no training, no communication, and no overhead per layer or request: a lower bound that needs only the
//! architecture and the data sheet.

use super::arithmetic::{PerGpu, exact};
use super::blackbox::HostTimes;
use super::error::{check_model, check_nonzero};
use super::{Batch, ContextEffect, LatencyError, LatencyModel, shortest_of_monotone};
use crate::limits::ROOFLINE_TOKENS;
use crate::model::{Gpu, ModelConfig, Moe, Parallelism};
use crate::numbers::index;
use crate::units::Micros;

/// Step time max(compute, memory) from first principles.
///
/// Source: BLIS f90a1e3a, `engine.md` §4.4. A request with `n` new tokens after `seq` others costs `flops = n·linear +
/// n·(seq + (n−1)/2)·quadratic` and moves `n·activations + (n + seq)·kv` bytes, so a step needs only the sums Σn,
/// Σn·seq, Σn² and Σseq.
#[derive(Clone, Debug)]
pub struct Roofline {
    host: HostTimes,
    /// FLOP per computed token.
    linear: f64,
    /// FLOP per pair of a computed token and a token that it attends to.
    quadratic: f64,
    /// Bytes per computed token, and per token attended to.
    activation_bytes: f64,
    kv_bytes: f64,
    tp: f64,
    /// Converts FLOP to seconds, in prefill and in decode.
    prefill: PerGpu,
    decode: PerGpu,
    /// Memory bandwidth, bytes per second.
    bandwidth: f64,
    weights: WeightReads,
}

impl Roofline {
    /// The model on `parallelism.tensor` GPUs. It has no α terms: BLIS's roofline takes none.
    ///
    /// # Errors
    /// If a number is missing, the experts are inconsistent, or the data-parallel degree is above 1.
    pub fn new(model: &ModelConfig, gpu: &Gpu, parallelism: Parallelism) -> Result<Self, LatencyError> {
        let mfu = gpu.mfu.ok_or(LatencyError::MfuUnknown)?;
        check_model(model)?;
        check_nonzero(&[
            ("tensor_parallel_size", f64::from(parallelism.tensor)),
            ("tflops_fp16", gpu.tflops_fp16),
            ("hbm_tb_s", gpu.hbm_tb_s),
            ("mfu_prefill", mfu.prefill),
            ("mfu_decode", mfu.decode),
        ])?;
        if parallelism.data != 1 {
            return Err(LatencyError::DataParallel { data: parallelism.data });
        }
        if let Some(moe) = model.moe.filter(|moe| !(1..=moe.num_experts).contains(&moe.num_experts_per_tok)) {
            let Moe { num_experts: experts, num_experts_per_tok: experts_per_token, .. } = moe;
            return Err(LatencyError::ExpertsPerToken { experts_per_token, experts });
        }

        let (layers, d) = (f64::from(model.num_hidden_layers), f64::from(model.hidden_size));
        let heads = f64::from(model.num_attention_heads);
        let head_dim = d / heads; // the explicit `head_dim` is ignored, as in BLIS
        let kv_width = f64::from(model.num_key_value_heads) * head_dim;
        let moe_layers = f64::from(model.moe_layers());
        let dense_layers = layers - moe_layers;
        let experts_per_token = model.moe.map_or(0.0, |moe| f64::from(moe.num_experts_per_tok));
        // Two matrices per MLP, not three; normalisation and softmax as vector operations.
        let gemm = layers * (2.0 * (d * d + 2.0 * d * kv_width) + 2.0 * d * d)
            + moe_layers * 2.0 * (2.0 * d * f64::from(model.expert_width())) * experts_per_token
            + dense_layers * 2.0 * (2.0 * d * f64::from(model.dense_width()));
        let peak = gpu.peak_tflops(model.weight_bytes) * 1e12;
        let tp = f64::from(parallelism.tensor);
        Ok(Self {
            host: HostTimes::NONE,
            linear: gemm + layers * 2.0 * d,
            quadratic: layers * 4.0 * heads * head_dim + layers * 5.0 * heads,
            activation_bytes: layers * d * model.dtype_bytes,
            kv_bytes: 2.0 * layers * f64::from(model.num_key_value_heads) * head_dim * model.kv_dtype_bytes,
            tp,
            prefill: PerGpu::new(parallelism.tensor, peak * mfu.prefill),
            decode: PerGpu::new(parallelism.tensor, peak * mfu.decode),
            bandwidth: gpu.hbm_tb_s * 1e12,
            weights: WeightReads::new(model, kv_width, tp),
        })
    }
}

impl LatencyModel for Roofline {
    fn step_time(&self, batch: &Batch) -> Micros {
        if batch.requests() == 0 {
            return Micros(1);
        }
        let (decode, context) = (exact(batch.decode_requests), exact(batch.decode_context));
        let mut compute_s = self.decode.time(decode * self.linear + context * self.quadratic);
        if batch.prefill_tokens > 0 {
            let tokens = exact(batch.prefill_tokens);
            // Σ n·(seq + (n−1)/2): each new token also attends to the new ones before it.
            let attended =
                exact(batch.prefill_tokens_by_context) + (exact(batch.prefill_tokens_squared) - tokens) / 2.0;
            compute_s += self.prefill.time(tokens * self.linear + attended * self.quadratic);
        }

        let tokens = exact(batch.tokens());
        let attended_and_new = tokens + exact(batch.prefill_context + batch.decode_context);
        let traffic = self.kv_bytes * attended_and_new + self.activation_bytes * tokens;
        let memory_s = (self.weights.bytes_per_gpu(batch.tokens()) + traffic / self.tp) / self.bandwidth;
        Micros::from_f64(compute_s.max(memory_s) * 1e6).max(Micros(1))
    }

    fn context_effect(&self) -> ContextEffect {
        ContextEffect::NonDecreasing
    }

    fn shortest_step(&self) -> Micros {
        shortest_of_monotone(self)
    }

    fn queueing_time(&self, input_tokens: u32) -> Micros {
        self.host.queueing_time(input_tokens)
    }

    fn output_token_time(&self) -> Micros {
        self.host.output_token_time()
    }
}

/// Weight bytes that a step reads: all dense weights, and the experts that its tokens visit.
///
/// With E experts of which each token visits k at random, n tokens visit E·(1 − ((E−k)/E)^n) of them. The power is too
/// slow to be computed at every step, so the first few thousand results are kept in a table.
#[derive(Clone, Debug)]
struct WeightReads {
    fixed: f64,
    /// Bytes of one expert in all layers.
    expert: f64,
    experts: f64,
    /// (E−k)/E: the probability that a token misses a given expert.
    miss: f64,
    weight_bytes: f64,
    tp: f64,
    /// `per_gpu[n]`, up to the `n` from which on every expert is visited.
    per_gpu: Vec<f64>,
}

impl WeightReads {
    fn new(model: &ModelConfig, kv_width: f64, tp: f64) -> Self {
        let (layers, d) = (f64::from(model.num_hidden_layers), f64::from(model.hidden_size));
        let moe_layers = f64::from(model.moe_layers());
        let dense = (layers - moe_layers) * 2.0 * d * f64::from(model.dense_width());
        let (experts, visits) =
            model.moe.map_or((0.0, 0.0), |moe| (f64::from(moe.num_experts), f64::from(moe.num_experts_per_tok)));
        let mut weights = Self {
            fixed: layers * (d * (d + 2.0 * kv_width) + d * d) + dense,
            expert: moe_layers * 2.0 * d * f64::from(model.expert_width()),
            experts,
            miss: if experts > 0.0 { (experts - visits) / experts } else { 0.0 },
            weight_bytes: model.weight_bytes,
            tp,
            per_gpu: Vec::new(),
        };
        let everything = weights.compute(u64::MAX);
        for tokens in 0..ROOFLINE_TOKENS {
            let bytes = weights.compute(tokens);
            weights.per_gpu.push(bytes);
            if bytes >= everything {
                break;
            }
        }
        weights
    }

    fn bytes_per_gpu(&self, tokens: u64) -> f64 {
        let last = self.per_gpu.len() - 1;
        match self.per_gpu.get(index(tokens)) {
            Some(&bytes) => bytes,
            None if self.per_gpu.len() < index(ROOFLINE_TOKENS) => self.per_gpu[last],
            None => self.compute(tokens),
        }
    }

    fn compute(&self, tokens: u64) -> f64 {
        let visited = self.experts * (1.0 - power(self.miss, tokens));
        (self.fixed + self.expert * visited) * self.weight_bytes / self.tp
    }
}

/// `base^exponent` by repeated squaring: the same bits on every machine, unlike `powf`.
pub(crate) fn power(mut base: f64, mut exponent: u64) -> f64 {
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
    use crate::latency::testing::{BatchItem, batch, random_batches};
    use crate::model::samples::{deepseek_lite, h100, llama_8b, qwen_moe, scout_fp8};

    /// The formula of `engine.md` §4.4 as it is written there, request by request.
    fn written_out(model: &ModelConfig, gpu: &Gpu, tp: f64, items: &[BatchItem]) -> u64 {
        let (l, d) = (f64::from(model.num_hidden_layers), f64::from(model.hidden_size));
        let (h, kv) = (f64::from(model.num_attention_heads), f64::from(model.num_key_value_heads));
        let (ffm, ffd) = (f64::from(model.expert_width()), f64::from(model.dense_width()));
        let lm = f64::from(model.moe_layers());
        let ld = l - lm;
        let (e, top_k) = model.moe.map_or((0.0, 0.0), |m| (f64::from(m.num_experts), f64::from(m.num_experts_per_tok)));
        let (dh, bpp, mfu) = (d / h, model.dtype_bytes, gpu.mfu.unwrap());
        let dkv = kv * dh;
        let flops = |seq: f64, n: f64| {
            let ctx = if n > 1.0 { seq + (n - 1.0) / 2.0 } else { seq };
            let gemm = l * (2.0 * n * (d * d + 2.0 * d * dkv) + 2.0 * n * d * d)
                + l * 4.0 * h * n * ctx * dh
                + lm * 2.0 * n * (2.0 * d * ffm) * top_k
                + ld * 2.0 * n * (2.0 * d * ffd);
            gemm + l * (5.0 * h * n * ctx + 2.0 * n * d)
        };
        let dynamic = |seq: f64, n: f64| 2.0 * l * kv * dh * bpp * (n + seq) + l * d * bpp * n;
        let peak = gpu.peak_tflops(model.weight_bytes) * 1e12;
        let (mut compute, mut bytes, mut tokens) = (0.0, 0.0, 0);
        for item in items {
            let (n, seq) = (f64::from(item.n), f64::from(item.context));
            let rate = peak * if item.is_prefill() { mfu.prefill } else { mfu.decode };
            compute += flops(seq, n) / tp / rate;
            bytes += dynamic(seq, n) / tp;
            tokens += item.n;
        }
        let visited = if e > 0.0 { e * (1.0 - ((e - top_k) / e).powi(tokens as i32)) } else { 0.0 };
        let weights = (l * (d * (d + 2.0 * dkv) + d * d) + lm * 2.0 * d * ffm * visited + ld * 2.0 * d * ffd)
            * model.weight_bytes;
        let memory = (weights / tp + bytes) / (gpu.hbm_tb_s * 1e12);
        ((f64::max(compute, memory) * 1e6) as u64).max(1)
    }

    #[test]
    fn equals_its_formula() {
        for (model, tensor) in [(llama_8b(), 1), (qwen_moe(), 2), (scout_fp8(), 8), (deepseek_lite(), 4)] {
            let roofline = Roofline::new(&model, &h100(), Parallelism { tensor, data: 1 }).unwrap();
            for items in random_batches(100_000) {
                let expected = written_out(&model, &h100(), f64::from(tensor), &items);
                assert_eq!(roofline.step_time(&batch(&items)).0, expected, "{items:?}");
            }
        }
    }

    #[test]
    fn very_sparse_models_outgrow_the_table() {
        let mut model = qwen_moe();
        model.moe.as_mut().unwrap().num_experts = 4096;
        model.moe.as_mut().unwrap().num_experts_per_tok = 1;
        let weights = Roofline::new(&model, &h100(), Parallelism { tensor: 1, data: 1 }).unwrap().weights;
        assert_eq!(weights.per_gpu.len(), 8192);
        for tokens in [0, 1, 8191, 8192, 1_000_000] {
            assert_eq!(weights.bytes_per_gpu(tokens), weights.compute(tokens));
        }
        assert!(weights.bytes_per_gpu(8191) < weights.bytes_per_gpu(8192));
    }

    #[test]
    fn impossible_experts_and_gpus_are_refused() {
        let one = Parallelism { tensor: 1, data: 1 };
        let mut model = qwen_moe();
        model.moe.as_mut().unwrap().num_experts_per_tok = 129;
        let expected = LatencyError::ExpertsPerToken { experts_per_token: 129, experts: 128 };
        assert_eq!(Roofline::new(&model, &h100(), one).unwrap_err(), expected);
        let gpu = Gpu { mfu: None, ..h100() };
        assert_eq!(Roofline::new(&llama_8b(), &gpu, one).unwrap_err(), LatencyError::MfuUnknown);
        let two = Parallelism { tensor: 1, data: 2 };
        assert_eq!(Roofline::new(&qwen_moe(), &h100(), two).unwrap_err(), LatencyError::DataParallel { data: 2 });
    }
}
