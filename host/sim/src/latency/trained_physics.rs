//! `trained-physics`, the default: physical times, each with a trained weight.
//!
//! Arithmetic, KV traffic, weight loading and collectives are computed from architecture and data sheet. The weights
//! (β) scale these times to those of a real engine, and add overheads per layer, per request and per step.

use super::arithmetic::{PerGpu, exact};
use super::error::{check_coefficients, check_model, check_nonzero};
use super::{Batch, ContextEffect, ContextSum, LatencyError, LatencyModel, OverContext, shortest_of_monotone};
use crate::model::{Gpu, ModelConfig, Moe, Parallelism};
use crate::units::Micros;

/// Step time as a weighted sum of physical times.
///
/// Source: BLIS f90a1e3a, `engine.md` §4.3, in its order of operations: the results are those of BLIS to the
/// microsecond. Products of integers are computed in advance where they are exact (below 2^53).
///
/// Known simplifications, kept for parity: a head is `hidden_size / num_attention_heads` wide even if the config has
/// another width, KV elements take two bytes, latent attention counts as full KV, and the attention of a prompt chunk
/// counts the whole prompt.
#[derive(Clone, Debug)]
pub struct TrainedPhysics {
    alpha: [f64; 3],
    beta: TrainedBeta,
    kv_split: KvSplit,
    physics: PhysicalTimes,
    /// Constants: b2·weight loading; b4·layers; b7·MoE layers, µs.
    weights_us: f64,
    layers_us: f64,
    interleaved_us: f64,
}

/// Trained weights, named by the term that they multiply.
#[derive(Clone, Copy, Debug, Default)]
struct TrainedBeta {
    prefill_compute: f64,
    decode_compute: f64,
    weight_loading: f64,
    all_reduce: f64,
    layer: f64,
    request: f64,
    step: f64,
    interleaved_moe_layer: f64,
    prefill_kv: f64,
    decode_kv: f64,
    dispatch: f64,
}

/// The phases in which KV traffic has its own weight (and is added) instead of max(compute, KV).
#[derive(Clone, Copy, Debug)]
struct KvSplit {
    prefill: bool,
    decode: bool,
}

impl TrainedPhysics {
    /// α: µs per request before the queue, after the last token, and per output token. β: 7 to 11 trained weights, in
    /// the order b0 … b10 of `engine.md` §4.3.
    ///
    /// # Errors
    /// If the coefficients are malformed, a number is missing, or heads or experts do not fit the GPUs.
    pub fn new(
        model: &ModelConfig,
        gpu: &Gpu,
        parallelism: Parallelism,
        comm: MoeComm,
        alpha: &[f64],
        beta: &[f64],
    ) -> Result<Self, LatencyError> {
        check_coefficients("alpha", alpha)?;
        check_coefficients("beta", beta)?;
        let alpha = <[f64; 3]>::try_from(alpha).map_err(|_| count("alpha", "3", alpha.len()))?;
        let &[b0, b1, b2, b3, b4, b5, b6, ref rest @ ..] = beta else {
            return Err(count("beta", "7 to 11", beta.len()));
        };
        if rest.len() > 4 {
            return Err(count("beta", "7 to 11", beta.len()));
        }
        let optional = |index: usize| rest.get(index).copied();
        let beta = TrainedBeta {
            prefill_compute: b0,
            decode_compute: b1,
            weight_loading: b2,
            all_reduce: b3,
            layer: b4,
            request: b5,
            step: b6,
            interleaved_moe_layer: optional(0).unwrap_or(0.0),
            prefill_kv: optional(1).unwrap_or(0.0),
            decode_kv: optional(2).unwrap_or(0.0),
            dispatch: optional(3).unwrap_or(b3),
        };
        check(model, gpu, parallelism)?;
        let physics = PhysicalTimes::new(model, gpu, parallelism, comm);
        let interleaved = model.moe.is_some_and(|moe| moe.interleave_moe_layer_step > 0);
        Ok(Self {
            alpha,
            beta,
            kv_split: KvSplit { prefill: rest.len() > 1, decode: rest.len() > 2 },
            weights_us: beta.weight_loading * weight_loading_us(model, &physics),
            layers_us: beta.layer * f64::from(model.num_hidden_layers),
            interleaved_us: if interleaved { beta.interleaved_moe_layer * physics.moe_layers } else { 0.0 },
            physics,
        })
    }

    /// Prefill part of the step, µs.
    fn prefill(&self, batch: &Batch) -> f64 {
        if batch.prefill_tokens == 0 {
            return 0.0;
        }
        let (beta, physics) = (&self.beta, &self.physics);
        if !self.kv_split.prefill {
            return beta.prefill_compute * physics.prefill_compute(batch).max(physics.prefill_kv(batch));
        }
        let mut us = beta.prefill_compute * physics.prefill_compute(batch);
        if beta.prefill_kv > 0.0 {
            us += beta.prefill_kv * physics.prefill_kv(batch);
        }
        us
    }
}

impl LatencyModel for TrainedPhysics {
    fn step_time(&self, batch: &Batch) -> Micros {
        if batch.requests() == 0 {
            return Micros(1);
        }
        let (beta, physics) = (&self.beta, &self.physics);
        // The published order of the sum; terms that are zero are left out, which changes no bit.
        let mut us = self.prefill(batch);
        if batch.decode_requests > 0 {
            if !self.kv_split.decode {
                us += beta.decode_compute * physics.decode_compute(batch).max(physics.decode_kv(batch));
            } else {
                if beta.decode_compute > 0.0 {
                    us += beta.decode_compute * physics.decode_compute(batch);
                }
                us += beta.decode_kv * physics.decode_kv(batch);
            }
        }
        us += self.weights_us;
        if physics.collectives {
            us += beta.all_reduce * physics.all_reduce(exact(batch.tokens()));
            us += beta.dispatch * physics.dispatch(exact(batch.tokens()));
        }
        us = us + self.layers_us + beta.request * exact(batch.requests()) + beta.step;
        if self.interleaved_us > 0.0 {
            us += self.interleaved_us;
        }
        Micros::from_f64(us).max(Micros(1))
    }

    /// A chunk of n tokens costs n²/2 pairs of attention beyond n times the prompt: finer chunks cost fewer of them.
    fn least_step_time(&self, batch: &Batch) -> Micros {
        self.step_time(&Batch { prefill_tokens_squared: 0, ..*batch })
    }

    fn context_effect(&self) -> ContextEffect {
        let ignored = self.beta.decode_compute == 0.0 && !(self.kv_split.decode && self.beta.decode_kv > 0.0);
        if ignored { ContextEffect::None } else { ContextEffect::NonDecreasing }
    }

    fn over_context(&self, batch: &Batch) -> Option<OverContext> {
        let (beta, physics) = (&self.beta, &self.physics);
        if !self.kv_split.decode || beta.decode_compute > 0.0 || batch.prefill_tokens > 0 || batch.decode_requests == 0
        {
            return None;
        }
        let exchanged = |us: f64| if physics.collectives { us } else { 0.0 };
        let tokens = exact(batch.tokens());
        Some(OverContext::Sum(ContextSum {
            requests: batch.decode_requests,
            token_bytes: physics.kv_elements * physics.kv_bytes,
            bandwidth: physics.bandwidth,
            weight: beta.decode_kv,
            // The same terms as in `step_time`, in the same order; adding a zero changes no bit.
            terms_us: [
                self.weights_us,
                exchanged(beta.all_reduce * physics.all_reduce(tokens)),
                exchanged(beta.dispatch * physics.dispatch(tokens)),
                self.layers_us,
                beta.request * exact(batch.requests()),
                beta.step,
                self.interleaved_us.max(0.0),
            ],
        }))
    }

    fn shortest_step(&self) -> Micros {
        shortest_of_monotone(self)
    }

    fn queueing_time(&self, _input_tokens: u32) -> Micros {
        Micros::from_f64(self.alpha[0])
    }

    fn output_token_time(&self) -> Micros {
        Micros::from_f64(self.alpha[2])
    }

    fn post_decode_time(&self) -> Micros {
        Micros::from_f64(self.alpha[1])
    }
}

fn count(name: &'static str, expected: &'static str, actual: usize) -> LatencyError {
    LatencyError::CoefficientCount { model: "trained-physics", name, expected, actual }
}

fn check(model: &ModelConfig, gpu: &Gpu, parallelism: Parallelism) -> Result<(), LatencyError> {
    check_model(model)?;
    check_nonzero(&[
        ("tensor_parallel_size", f64::from(parallelism.tensor)),
        ("data_parallel_size", f64::from(parallelism.data)),
        ("tflops_fp16", gpu.tflops_fp16),
        ("hbm_tb_s", gpu.hbm_tb_s),
    ])?;
    let tensor = parallelism.tensor;
    for (kind, heads) in [("attention", model.num_attention_heads), ("KV", model.num_key_value_heads)] {
        if !heads.is_multiple_of(tensor) {
            return Err(LatencyError::HeadsNotDivisible { kind, heads, tensor });
        }
    }
    match model.moe {
        Some(Moe { num_experts: experts, num_experts_per_tok: experts_per_token @ 0, .. }) => {
            Err(LatencyError::ExpertsPerToken { experts_per_token, experts })
        }
        None if parallelism.data > 1 => Err(LatencyError::DataParallel { data: parallelism.data }),
        _ => Ok(()),
    }
}

/// How the ranks of a data-parallel group exchange tokens with the experts of other ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MoeComm {
    /// Each token is sent once (`naive`, `allgather_reducescatter`).
    #[default]
    AllGather,
    /// Each token is sent once per expert that it visits (`pplx`, `deepep_*`, `mori`, `flashinfer_all2allv`).
    AllToAll,
}

/// The physical times, µs, before their weights. Constants that are integers are exact.
#[derive(Clone, Copy, Debug)]
struct PhysicalTimes {
    /// Performance of one GPU: FLOP/µs and bytes/µs.
    flops: f64,
    bandwidth: f64,
    /// Converts the bytes of an all-reduce, times tp, to µs.
    reduce: PerGpu,
    tp: f64,
    dp: f64,
    /// Number of GPUs of the group, tp·dp, and of those over which experts are distributed.
    gpus: f64,
    expert_gpus: f64,
    layers: f64,
    moe_layers: f64,
    hidden: f64,
    /// L·2·d·(2d + 2·dKV): projections, FLOP per token.
    projections: f64,
    /// (H/tp)·dh: attention, FLOP per pair of tokens, to be multiplied by 4.
    attention: f64,
    experts_per_token: f64,
    expert_width: f64,
    /// Lm·6·d·shared and Ld·6·d·ff: FLOP per token.
    shared_experts: f64,
    dense_mlp: f64,
    /// L·2·(dKV/gpus): KV elements per token, one GPU.
    kv_elements: f64,
    /// Bytes per token that one all-reduce after each of L, Ld, Lm layers sends, times tp.
    reduce_attention: f64,
    reduce_dense: f64,
    reduce_experts: f64,
    /// Lm and x·(G−1)/G·2·d·bpp of the exchange with the experts; 0 without data parallelism.
    dispatch_layers: f64,
    copies_per_token: f64,
    dtype_bytes: f64,
    /// Bytes of a cached KV element. BLIS counts 2 for any model: an FP8 cache takes half.
    kv_bytes: f64,
    /// Whether there is any exchange between GPUs.
    collectives: bool,
}

impl PhysicalTimes {
    fn new(model: &ModelConfig, gpu: &Gpu, parallelism: Parallelism, comm: MoeComm) -> Self {
        let (layers, d) = (f64::from(model.num_hidden_layers), f64::from(model.hidden_size));
        let moe_layers = f64::from(model.moe_layers());
        let dense_layers = layers - moe_layers;
        let (tp, dp) = (f64::from(parallelism.tensor), f64::from(parallelism.data));
        let head_dim = f64::from(model.hidden_size / model.num_attention_heads);
        let kv_width = f64::from(model.num_key_value_heads) * head_dim;
        let shared = model.moe.map_or(0.0, |moe| f64::from(moe.shared_intermediate_size));
        let experts_per_token = model.moe.map_or(1.0, |moe| f64::from(moe.num_experts_per_tok));
        let reduce = |layers: f64| layers * d * model.dtype_bytes * 2.0 * (tp - 1.0);
        let distributed = model.moe.is_some() && parallelism.data > 1;
        Self {
            flops: gpu.peak_tflops(model.weight_bytes) * 1e6,
            bandwidth: gpu.hbm_tb_s * 1e6,
            reduce: PerGpu::new(parallelism.tensor, gpu.hbm_tb_s * 1e6),
            tp,
            dp,
            gpus: tp * dp,
            expert_gpus: if model.moe.is_some() { tp * dp } else { tp },
            layers,
            moe_layers,
            hidden: d,
            projections: layers * 2.0 * d * (2.0 * d + 2.0 * kv_width),
            attention: f64::from(model.num_attention_heads / parallelism.tensor) * head_dim,
            experts_per_token,
            expert_width: f64::from(model.expert_width()),
            shared_experts: moe_layers * 6.0 * d * shared,
            dense_mlp: dense_layers * 6.0 * d * f64::from(model.dense_width()),
            kv_elements: layers * 2.0 * (kv_width / (tp * dp)),
            reduce_attention: reduce(layers),
            reduce_dense: reduce(dense_layers),
            reduce_experts: if distributed { 0.0 } else { reduce(moe_layers) },
            dispatch_layers: if distributed { moe_layers } else { 0.0 },
            copies_per_token: if comm == MoeComm::AllToAll { experts_per_token } else { 1.0 },
            dtype_bytes: model.dtype_bytes,
            kv_bytes: 2.0 * (model.kv_dtype_bytes / model.dtype_bytes),
            collectives: parallelism.tensor > 1 || distributed,
        }
    }

    fn prefill_compute(&self, batch: &Batch) -> f64 {
        let tokens = exact(batch.prefill_tokens);
        // Σ 4·n·(input + n/2), an integer.
        let pairs = exact(4 * batch.prefill_tokens_by_input + 2 * batch.prefill_tokens_squared);
        (self.projections * tokens / self.gpus
            + self.layers * (self.attention * pairs) / self.dp
            + self.feed_forward(tokens))
            / self.flops
    }

    fn prefill_kv(&self, batch: &Batch) -> f64 {
        self.kv_elements * exact(batch.prefill_tokens) * self.kv_bytes / self.bandwidth
    }

    fn decode_compute(&self, batch: &Batch) -> f64 {
        let tokens = exact(batch.decode_requests);
        let pairs = 4.0 * exact(batch.decode_context);
        (self.projections * tokens / self.gpus
            + self.layers * (self.attention * pairs) / self.dp
            + self.feed_forward(tokens))
            / self.flops
    }

    fn decode_kv(&self, batch: &Batch) -> f64 {
        self.kv_elements * self.kv_bytes * exact(batch.decode_context + batch.decode_requests) / self.bandwidth
    }

    /// FLOP of the MLPs on one GPU.
    fn feed_forward(&self, tokens: f64) -> f64 {
        let dense = self.dense_mlp * tokens / self.gpus;
        if self.moe_layers == 0.0 {
            return dense;
        }
        let visits = tokens * self.experts_per_token / self.expert_gpus;
        self.moe_layers * visits * 6.0 * self.hidden * self.expert_width
            + self.shared_experts * tokens / self.gpus
            + dense
    }

    /// Time of the all-reduces within the tensor-parallel group, µs.
    fn all_reduce(&self, tokens: f64) -> f64 {
        let time = |bytes_per_token: f64| self.reduce.time(bytes_per_token * tokens);
        let attention = time(self.reduce_attention) / self.dp;
        if self.moe_layers == 0.0 {
            return attention + attention; // every layer also reduces after its dense MLP
        }
        attention + time(self.reduce_dense) / self.dp + time(self.reduce_experts)
    }

    /// Time of the exchange of tokens between data-parallel ranks and experts, µs.
    fn dispatch(&self, tokens: f64) -> f64 {
        if self.dispatch_layers == 0.0 {
            return 0.0;
        }
        self.dispatch_layers * (tokens / self.dp) * self.copies_per_token * (self.expert_gpus - 1.0) / self.expert_gpus
            * 2.0
            * self.hidden
            * self.dtype_bytes
            / self.bandwidth
    }
}

/// Time of reading every weight of one GPU once, µs.
fn weight_loading_us(model: &ModelConfig, physics: &PhysicalTimes) -> f64 {
    let (layers, d, tp) = (physics.layers, physics.hidden, physics.tp);
    let dense_layers = layers - physics.moe_layers;
    let head_dim = f64::from(model.hidden_size / model.num_attention_heads);
    let kv_width = f64::from(model.num_key_value_heads) * head_dim;
    let mut bytes = layers * d * (2.0 * d + 2.0 * kv_width) * model.weight_bytes / tp;
    if let Some(moe) = model.moe {
        let experts = f64::from(moe.num_experts) / physics.expert_gpus;
        bytes += physics.moe_layers * experts * 3.0 * d * physics.expert_width * model.weight_bytes;
        bytes += physics.moe_layers * 3.0 * d * f64::from(moe.shared_intermediate_size) * model.weight_bytes / tp;
    }
    bytes += dense_layers * 3.0 * d * f64::from(model.dense_width()) * model.weight_bytes / tp;
    bytes / physics.bandwidth
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::latency::testing::{BatchItem, batch, random_batches};
    use crate::model::samples::{deepseek_lite, h100, llama_8b, qwen_moe, scout_fp8};

    const ALPHA: [f64; 3] = [15563.199579, 777.3455, 45.907545];
    const BETA: [f64; 11] = [
        0.152128,
        0.0,
        1.36252915,
        0.752037,
        32.09546717,
        4.41684444,
        126.024825,
        481.8613888,
        0.0,
        1.94710771,
        0.752037,
    ];

    /// The formula of `engine.md` §4.3 as it is written there, request by request.
    fn written_out(m: &ModelConfig, gpu: &Gpu, par: Parallelism, comm: MoeComm, b: &[f64], items: &[BatchItem]) -> u64 {
        let (l, d, h) = (f64::from(m.num_hidden_layers), f64::from(m.hidden_size), f64::from(m.num_attention_heads));
        let (tp, dp) = (f64::from(par.tensor), f64::from(par.data));
        let (td, f, w) = (tp * dp, gpu.peak_tflops(m.weight_bytes) * 1e6, gpu.hbm_tb_s * 1e6);
        let dh = (d / h).floor();
        let dkv = f64::from(m.num_key_value_heads) * dh;
        let (ffm, ffd) = (f64::from(m.expert_width()), f64::from(m.dense_width()));
        let lm = f64::from(m.moe_layers());
        let ld = l - lm;
        let (e, k, shared, s) = m.moe.map_or((0.0, 1.0, 0.0, 0), |x| {
            let counts = (f64::from(x.num_experts), f64::from(x.num_experts_per_tok.max(1)));
            (counts.0, counts.1, f64::from(x.shared_intermediate_size), x.interleave_moe_layer_step)
        });
        let (moe, bpp, wbpp) = (m.moe.is_some(), m.dtype_bytes, m.weight_bytes);
        let g = if moe { td } else { tp };
        let (mut tpre, mut tdec, mut c, mut a) = (0.0, 0.0, 0.0, 0.0);
        for item in items {
            let n = f64::from(item.n);
            if item.is_prefill() {
                tpre += n;
                a += 4.0 * (h / tp) * n * (f64::from(item.input) + n / 2.0) * dh;
            } else {
                tdec += 1.0;
                c += f64::from(item.context);
            }
        }
        let ffn =
            |t: f64| lm * (t * k / g) * 6.0 * d * ffm + lm * t * 6.0 * d * shared / td + ld * t * 6.0 * d * ffd / td;
        let t_pc = (l * 2.0 * tpre * d * (2.0 * d + 2.0 * dkv) / td + l * a / dp + ffn(tpre)) / f;
        let t_pk = l * 2.0 * (dkv / td) * tpre * 2.0 / w;
        let attention = l * 4.0 * (h / tp) * c * dh / dp;
        let t_dc = (l * 2.0 * tdec * d * (2.0 * d + 2.0 * dkv) / td + attention + ffn(tdec)) / f;
        let t_dk = if tdec > 0.0 { l * 2.0 * (dkv / td) * 2.0 * (c + tdec) / w } else { 0.0 };
        let t_w = (l * d * (2.0 * d + 2.0 * dkv) * wbpp / tp
            + lm * (e / g) * 3.0 * d * ffm * wbpp
            + lm * 3.0 * d * shared * wbpp / tp
            + ld * 3.0 * d * ffd * wbpp / tp)
            / w;
        let t = tpre + tdec;
        let ar = |u: f64| u * t * d * bpp * 2.0 * (tp - 1.0) / tp / w;
        let experts_reduced = moe && par.data == 1 && par.tensor > 1;
        let comm_us = ar(l) / dp + ar(ld) / dp + if experts_reduced { ar(lm) } else { 0.0 };
        let x = if comm == MoeComm::AllToAll { k } else { 1.0 };
        let disp = if moe && par.data > 1 { lm * (t / dp) * x * (g - 1.0) / g * 2.0 * d * bpp / w } else { 0.0 };
        let at = |i: usize| b.get(i).copied().unwrap_or(0.0);
        let compute = match b.len() {
            7 | 8 => b[0] * t_pc.max(t_pk) + b[1] * t_dc.max(t_dk),
            9 => b[0] * t_pc + b[8] * t_pk + b[1] * t_dc.max(t_dk),
            _ => b[0] * t_pc + b[8] * t_pk + b[1] * t_dc + b[9] * t_dk,
        };
        let b10 = b.get(10).copied().unwrap_or(b[3]);
        let interleaved = if s > 0 && moe { at(7) * lm } else { 0.0 };
        let step = compute
            + b[2] * t_w
            + b[3] * comm_us
            + b10 * disp
            + b[4] * l
            + b[5] * items.len() as f64
            + b[6]
            + interleaved;
        (step as u64).max(1)
    }

    fn compare(model: &ModelConfig, tensor: u32, data: u32, comm: MoeComm, beta: &[f64], batches: usize) {
        let parallelism = Parallelism { tensor, data };
        let physics = TrainedPhysics::new(model, &h100(), parallelism, comm, &ALPHA, beta).unwrap();
        for items in random_batches(batches) {
            let expected = written_out(model, &h100(), parallelism, comm, beta, &items);
            assert_eq!(physics.step_time(&batch(&items)).0, expected, "{items:?}");
        }
    }

    #[test]
    fn equals_its_formula() {
        compare(&llama_8b(), 1, 1, MoeComm::AllGather, &BETA, 100_000);
        compare(&llama_8b(), 4, 1, MoeComm::AllGather, &BETA, 100_000);
        compare(&scout_fp8(), 8, 1, MoeComm::AllGather, &BETA, 100_000);
        compare(&deepseek_lite(), 2, 1, MoeComm::AllGather, &BETA, 100_000);
        compare(&qwen_moe(), 2, 3, MoeComm::AllToAll, &BETA, 100_000);
        compare(&qwen_moe(), 1, 2, MoeComm::AllGather, &BETA, 100_000);
    }

    #[test]
    fn every_number_of_coefficients_has_its_form() {
        let beta = [0.5, 0.4, 1.1, 0.9, 20.0, 3.0, 100.0, 7.5, 0.3, 0.6, 0.8];
        for count in 7..=11 {
            compare(&scout_fp8(), 2, 1, MoeComm::AllGather, &beta[..count], 20_000);
            compare(&qwen_moe(), 2, 2, MoeComm::AllToAll, &beta[..count], 20_000);
        }
    }

    #[test]
    fn alpha_acts_before_the_queue_per_token_and_after_the_last_token() {
        let one = Parallelism { tensor: 1, data: 1 };
        let physics = TrainedPhysics::new(&llama_8b(), &h100(), one, MoeComm::AllGather, &ALPHA, &BETA).unwrap();
        assert_eq!(physics.queueing_time(1), Micros(15_563));
        assert_eq!(physics.queueing_time(100_000), Micros(15_563));
        assert_eq!(physics.output_token_time(), Micros(45));
        assert_eq!(physics.post_decode_time(), Micros(777));
        assert_eq!(physics.step_time(&Batch::default()), Micros(1));
    }

    #[test]
    fn context_is_ignored_exactly_when_its_weights_are_zero() {
        let ignores = |beta: &[f64]| {
            let one = Parallelism { tensor: 1, data: 1 };
            let physics = TrainedPhysics::new(&llama_8b(), &h100(), one, MoeComm::AllGather, &ALPHA, beta).unwrap();
            physics.context_effect() == ContextEffect::None
        };
        assert!(!ignores(&BETA));
        assert!(!ignores(&[1.0; 7]));
        assert!(ignores(&[1.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0]));
        assert!(ignores(&[1.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0]));
    }

    #[test]
    fn invalid_configurations_are_refused() {
        let error = |model: &ModelConfig, tensor, data, beta: &[f64]| {
            let parallelism = Parallelism { tensor, data };
            TrainedPhysics::new(model, &h100(), parallelism, MoeComm::AllGather, &ALPHA, beta).unwrap_err()
        };
        assert_eq!(error(&llama_8b(), 1, 1, &[1.0; 6]), count("beta", "7 to 11", 6));
        assert_eq!(error(&llama_8b(), 1, 1, &[1.0; 12]), count("beta", "7 to 11", 12));
        assert_eq!(error(&llama_8b(), 1, 2, &BETA), LatencyError::DataParallel { data: 2 });
        let expected = LatencyError::HeadsNotDivisible { kind: "KV", heads: 8, tensor: 16 };
        assert_eq!(error(&llama_8b(), 16, 1, &BETA), expected);
        assert_eq!(error(&llama_8b(), 0, 1, &BETA), LatencyError::Missing { field: "tensor_parallel_size" });
        let model = ModelConfig { hidden_size: 0, ..llama_8b() };
        assert_eq!(error(&model, 1, 1, &BETA), LatencyError::Missing { field: "hidden_size" });
        let mut model = qwen_moe();
        model.moe.as_mut().unwrap().num_experts_per_tok = 0;
        let expected = LatencyError::ExpertsPerToken { experts_per_token: 0, experts: 128 };
        assert_eq!(error(&model, 1, 1, &BETA), expected);
    }
}
