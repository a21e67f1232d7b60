//! The energy of GPUs in a run: their power in each step, from the bytes that it reads and the products that it computes.
//!
//! ```text
//! power of a GPU = min(limit, limit · (base + weights·w + cache·k + compute·f))
//! ```
//!
//! `w` and `k` are the bytes of weights and of the KV cache that the GPU reads per second, as shares of its memory bandwidth, and `f`
//! its FLOP per second as a share of the peak of dense products. The shares of [`GpuPower`] were measured on one H100 (SXM, 700 W,
//! 26 November 2026: `examples/energy/power.json`): `base` is a GPU with weights in its memory and nothing to do, `weights` and
//! `compute` are those of the linear layers of Llama-3.1-8B, within 4 % of the measured power, `cache` that of the attention of
//! decodes. Other GPUs take the same shares of their own limits, and are not calibrated. Neither are several GPUs, since their links draw
//! power as well; hosts, fans and cooling are not counted.

use crate::architecture::{Attention, Mlp};
use crate::instance::StepRecord;
use crate::latency::roofline::power;
use crate::model::{Gpu, ModelConfig, Parallelism};
use crate::observer::{Interests, Observer, SimEvent};
use crate::units::Micros;

/// The power of one GPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GpuPower {
    /// Power limit, W: the TDP of the data sheet.
    pub limit_w: f64,
}

impl GpuPower {
    /// Of a GPU with weights in its memory and nothing to do, as a share of the limit: 115 of 700 W.
    const BASE: f64 = 115.0 / 700.0;
    /// Beyond that, to read weights at the whole memory bandwidth: 434 W.
    const WEIGHTS: f64 = 434.0 / 700.0;
    /// The same for the KV cache: 640 W, attention of decodes.
    const CACHE: f64 = 640.0 / 700.0;
    /// Beyond that, to compute products at their peak: 1100 W, which the limit does not allow.
    const COMPUTE: f64 = 1100.0 / 700.0;

    /// Power without work, W.
    #[must_use]
    pub fn idle_w(self) -> f64 {
        self.limit_w * Self::BASE
    }

    /// Power at these rates, each a share of the peak, W.
    #[must_use]
    pub fn watts(self, weights: f64, cache: f64, compute: f64) -> f64 {
        let share = Self::BASE + Self::WEIGHTS * weights + Self::CACHE * cache + Self::COMPUTE * compute;
        self.limit_w * share.min(1.0)
    }
}

/// The energy of the steps of an instance.
#[derive(Clone, Debug, PartialEq)]
pub struct StepEnergy {
    power: GpuPower,
    /// GPUs of the instance.
    gpus: f64,
    /// Of one GPU: bytes per second, and FLOP per second of dense products in the width of the weights.
    bandwidth: f64,
    peak: f64,
    /// FLOP per token in all layers, and per request in the output matrix.
    token_flop: f64,
    output_flop: f64,
    /// Bytes of weights that every step reads, and those of all routed experts.
    fixed_bytes: f64,
    expert_bytes: f64,
    /// Probability that a token does not visit a given expert.
    miss: f64,
    /// Attention, by kind.
    attention: Vec<AttentionWork>,
}

/// The work of all layers with the same attention.
#[derive(Clone, Copy, Debug, PartialEq)]
struct AttentionWork {
    /// Tokens that one token attends to at most.
    limit: f64,
    /// FLOP per pair of a token and one that it attends to.
    pair_flop: f64,
    /// Bytes of a cached token, on all GPUs.
    token_bytes: f64,
}

impl StepEnergy {
    /// The energy of a model on `pipeline` stages of GPUs with this power limit.
    #[must_use]
    pub fn new(model: &ModelConfig, gpu: &Gpu, power: GpuPower, parallelism: Parallelism, pipeline: u32) -> Self {
        let architecture = model.architecture();
        let table = f64::from(model.vocab_size) * f64::from(model.hidden_size);
        let parameters = model.parameters();
        let tables = if model.tie_word_embeddings { table } else { 2.0 * table };
        let width = f64::from(model.hidden_size);
        let (mut experts, mut miss) = (0.0, 0.0);
        for (layers, mlp) in architecture.mlps() {
            if let Mlp::Experts(routed) = mlp {
                experts += layers * f64::from(routed.count) * routed.expert_weights(width);
                miss = 1.0 - f64::from(routed.per_token) / f64::from(routed.count.max(1));
            }
        }
        let expert_width = architecture.weights.experts.unwrap_or(model.weight_bytes);
        let fixed = parameters.total - tables - experts;
        let tensor = parallelism.tensor;
        Self {
            power,
            gpus: f64::from(tensor) * f64::from(parallelism.data) * f64::from(pipeline),
            bandwidth: gpu.hbm_tb_s * 1e12,
            peak: gpu.peak_tflops(model.weight_bytes) * 1e12,
            token_flop: 2.0 * (parameters.active - tables),
            output_flop: 2.0 * table,
            fixed_bytes: fixed * model.weight_bytes + table * model.dtype_bytes,
            expert_bytes: experts * expert_width,
            miss,
            attention: attention(model, tensor),
        }
    }

    /// Energy of all GPUs in a step, J.
    #[must_use]
    pub fn joules(&self, step: &StepRecord) -> f64 {
        let seconds = step.end.saturating_sub(step.now).as_secs_f64();
        if seconds == 0.0 {
            return 0.0;
        }
        let (mut tokens, mut flop, mut cached) = (0, 0.0, 0.0);
        for &(_, computed, context) in &step.scheduled {
            let (n, context) = (f64::from(computed), f64::from(context));
            tokens += u64::from(computed);
            for kind in &self.attention {
                let pairs = (n * (context + (n + 1.0) / 2.0)).min(n * kind.limit);
                flop += pairs * kind.pair_flop;
                cached += (context + n).min(kind.limit + n) * kind.token_bytes;
            }
        }
        flop += tokens as f64 * self.token_flop + step.scheduled.len() as f64 * self.output_flop;
        let weights = self.fixed_bytes + self.expert_bytes * (1.0 - power(self.miss, tokens));
        let share = |amount: f64, most: f64| amount / self.gpus / seconds / most;
        let (weights, cached) = (share(weights, self.bandwidth), share(cached, self.bandwidth));
        self.power.watts(weights, cached, share(flop, self.peak)) * self.gpus * seconds
    }

    /// Power of all GPUs without work, W.
    #[must_use]
    pub fn idle_w(&self) -> f64 {
        self.power.idle_w() * self.gpus
    }
}

/// The kinds of attention of `model`. A layer with a state of constant size counts as one token.
fn attention(model: &ModelConfig, tensor: u32) -> Vec<AttentionWork> {
    let gpus = f64::from(tensor);
    let work = |(layers, kind): (f64, Attention)| match kind {
        Attention::Heads(heads) => Some(AttentionWork {
            limit: heads.limit().map_or(f64::INFINITY, f64::from),
            pair_flop: layers * 2.0 * f64::from(heads.queries) * (heads.dim + heads.value_dim),
            // A KV head is never divided.
            token_bytes: layers
                * f64::from(heads.kv.max(tensor))
                * (heads.dim + heads.value_dim)
                * model.kv_dtype_bytes,
        }),
        Attention::Latent(latent) => {
            let (rank, rope) = (f64::from(latent.kv_rank), f64::from(latent.rope_dim));
            Some(AttentionWork {
                limit: latent.index.map_or(f64::INFINITY, |index| f64::from(index.top_k)),
                pair_flop: layers * 2.0 * f64::from(latent.heads) * (2.0 * rank + rope),
                token_bytes: layers * gpus * (rank + rope) * model.kv_dtype_bytes,
            })
        }
        // The window and, of sparse layers, the chosen vectors; what is read of a longer context is small.
        Attention::Compressed(compressed) => {
            let chosen = compressed.index.map_or(0.0, |index| f64::from(index.top_k));
            Some(AttentionWork {
                limit: f64::from(compressed.window) + chosen,
                pair_flop: layers * 4.0 * f64::from(compressed.heads) * f64::from(compressed.dim),
                token_bytes: layers * gpus * compressed.vector_bytes(),
            })
        }
        Attention::Linear(linear) => Some(AttentionWork {
            limit: 0.0,
            pair_flop: 0.0,
            token_bytes: layers * 2.0 * linear.state_bytes(1.0, model.dtype_bytes),
        }),
        Attention::Matrix | Attention::None => None,
    };
    model.architecture().attentions().into_iter().filter_map(work).collect()
}

/// Joules of a kilowatt-hour.
pub const JOULES_PER_KWH: f64 = 3.6e6;

/// The energy of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct EnergyUse {
    /// Time in which steps are computed, summed over instances, s.
    pub busy_s: f64,
    /// Energy of their GPUs in that time, J.
    pub busy_joules: f64,
    /// Power of the GPUs of an instance without work, W.
    pub idle_w: f64,
}

/// Adds up the energy of steps.
#[derive(Clone, Debug)]
pub struct EnergyLog {
    steps: StepEnergy,
    /// Steps that start before this time do not count.
    warmup: Micros,
    used: EnergyUse,
}

impl EnergyLog {
    /// Nothing so far; steps that start before `warmup` do not count.
    #[must_use]
    pub fn new(steps: StepEnergy, warmup: Micros) -> Self {
        let used = EnergyUse { idle_w: steps.idle_w(), ..EnergyUse::default() };
        Self { steps, warmup, used }
    }

    /// What was used.
    #[must_use]
    pub fn used(&self) -> EnergyUse {
        self.used
    }
}

impl Observer for EnergyLog {
    fn interests(&self) -> Interests {
        Interests::STEPS
    }

    #[inline]
    fn record(&mut self, event: &SimEvent<'_>) {
        let SimEvent::Step { step, .. } = event else { return };
        if step.now >= self.warmup {
            self.used.busy_s += step.end.saturating_sub(step.now).as_secs_f64();
            self.used.busy_joules += self.steps.joules(step);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::RequestId;
    use crate::memory::kv_bytes_per_token;
    use crate::model::samples::{h100, llama_8b, qwen_moe};
    use proptest::prelude::*;

    const H100: GpuPower = GpuPower { limit_w: 700.0 };

    fn gpu() -> Gpu {
        Gpu { mfu: None, ..h100() }
    }

    fn energy(model: &ModelConfig, tensor: u32) -> StepEnergy {
        StepEnergy::new(model, &gpu(), H100, Parallelism { tensor, data: 1 }, 1)
    }

    fn step(us: u64, scheduled: &[(u32, u32)]) -> StepRecord {
        let request = |(id, &(tokens, context)): (usize, &(u32, u32))| (RequestId(id as u32), tokens, context);
        let scheduled = scheduled.iter().enumerate().map(request).collect();
        StepRecord { end: Micros(us), scheduled, ..StepRecord::default() }
    }

    /// One decode of Llama-3.1-8B in 6 ms: 6.98e9 weights of layers and 0.53e9 of the output matrix in 16 bits, and 1001 tokens of
    /// 131 072 bytes of KV.
    #[test]
    fn a_decode_reads_its_weights_and_its_context() {
        let model = llama_8b();
        let found = energy(&model, 1).joules(&step(6000, &[(1, 1000)])) / 0.006;
        let bandwidth = 3.35e12 * 0.006;
        let weights = (32.0 * (2.0 * 4096.0 * 4096.0 + 2.0 * 4096.0 * 1024.0 + 3.0 * 4096.0 * 14_336.0)
            + 128_256.0 * 4096.0)
            * 2.0;
        let expected = 115.0 + 434.0 * weights / bandwidth + 640.0 * 1001.0 * kv_bytes_per_token(&model, 1) / bandwidth;
        // Its products are 15 GFLOP, 0.3 % of the peak.
        assert!((found - expected).abs() < 4.0, "{found} {expected}");
    }

    #[test]
    fn prompts_reach_the_limit_and_idle_steps_do_not() {
        let energy = energy(&llama_8b(), 2);
        let prompt = energy.joules(&step(200_000, &[(8192, 0)])) / 0.2;
        assert!(prompt > 800.0 && prompt <= 1400.0, "{prompt} W of two GPUs");
        assert_eq!(energy.joules(&step(70_000, &[(8192, 0)])) / 0.07, 1400.0);
        assert_eq!((energy.idle_w(), energy.joules(&step(0, &[(1, 5)]))), (230.0, 0.0));
    }

    #[test]
    fn a_batch_reads_more_experts_than_a_request() {
        let energy = energy(&qwen_moe(), 1);
        let [one, many] = [1, 64].map(|requests| energy.joules(&step(10_000, &vec![(1, 0); requests])));
        assert!(many > 2.0 * one - energy.idle_w() * 0.01, "{one} {many}");
    }

    #[test]
    fn the_log_adds_steps_behind_the_warm_up() {
        let mut log = EnergyLog::new(energy(&llama_8b(), 1), Micros(1));
        let record = |log: &mut EnergyLog, step: &StepRecord| {
            log.record(&SimEvent::Step { instance: crate::ids::InstanceIndex(0), step });
        };
        record(&mut log, &step(6000, &[(1, 9)]));
        assert_eq!(log.used().busy_s, 0.0);
        record(&mut log, &StepRecord { now: Micros(6000), ..step(12_000, &[(1, 10)]) });
        assert!((log.used().busy_s - 0.006).abs() < 1e-12 && log.used().busy_joules > 0.006 * 115.0);
    }

    proptest! {
        /// Never less than without work, never more than the limit; more work is no less energy.
        #[test]
        fn power_lies_between_idle_and_the_limit(
            us in 1u64..1_000_000,
            scheduled in prop::collection::vec((1u32..9000, 0u32..200_000), 1..40),
            tensor in prop::sample::select(vec![1u32, 2, 8]),
        ) {
            let energy = energy(&qwen_moe(), tensor);
            let seconds = us as f64 / 1e6;
            let all = energy.joules(&step(us, &scheduled));
            let most = 700.0 * f64::from(tensor) * seconds;
            prop_assert!((energy.idle_w() * seconds..=most * (1.0 + 1e-12)).contains(&all), "{}", all);
            prop_assert!(energy.joules(&step(us, &scheduled[1..])) <= all * (1.0 + 1e-12));
        }
    }
}
