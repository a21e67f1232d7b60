//! The time of a step of pipeline parallelism: the stages of a model one behind the other.
//!
//! vLLM keeps one batch per stage in flight, and a request is in one of them at a time. A step of the simulator is a
//! round of this pipeline: the requests of its batch are dealt to `p` micro-batches, whole requests each, and every
//! micro-batch passes all stages once. With `k ≤ p` micro-batches, of which the largest takes `tₛ` in stage `s`, a round
//! takes
//!
//! ```text
//! max(Σ tₛ + (p − 1)·handover, k·max (tₛ + handover))
//! ```
//!
//! A lone request passes one stage after the other; with as many micro-batches as stages, every stage is busy, and a round
//! is as long as the slowest stage needs for all of them. Since every micro-batch has the token budget of a step, a round
//! has it `p` times. Approximations: the micro-batches count as if each were as large as the largest, and a round begins
//! when the one before has ended, while real micro-batches follow each other independently.

use super::{ComputedLayers, Kernels, Physics, PhysicsAlpha, PhysicsBeta, Serving, all_shared, check};
use crate::latency::arithmetic::exact;
use crate::latency::error::check_coefficients;
use crate::latency::{Batch, ContextEffect, LatencyError, LatencyModel, shortest_of_monotone};
use crate::model::{Gpu, ModelConfig};
use crate::sampling::{SampledRows, Sampling, SamplingParams};
use crate::units::Micros;

/// The step times of a model whose layers are divided over pipeline stages, described at the top of this file.
#[derive(Clone, Debug)]
pub struct Pipeline {
    stages: Vec<Physics>,
    /// Weight of the transfers between stages.
    collectives: f64,
}

impl Pipeline {
    /// The step times of a model on [`Serving::pipeline`] stages of GPUs with these kernels.
    ///
    /// # Errors
    /// As [`Physics::new`]; or if there are more stages than layers, or none.
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
        let (stages, layers) = (serving.pipeline, architecture.layers());
        if !(1..=layers).contains(&stages) {
            return Err(LatencyError::PipelineStages { stages, layers });
        }
        let stage = |index| {
            let architecture = &architecture.stage(index, stages);
            let layers = ComputedLayers { model, architecture, has_outputs: index + 1 == stages };
            Physics::of_layers(layers, gpu, kernels, serving, alpha, beta)
        };
        Ok(Self { stages: (0..stages).map(stage).collect(), collectives: beta.collectives })
    }

    fn us(&self, batch: &Batch) -> f64 {
        let stages = self.stages.len() as u64;
        let micro = micro_batch(batch, stages);
        let handover = self.collectives * self.first().parts.handover(exact(micro.tokens()), exact(stages));
        let (mut all, mut slowest) = (handover * exact(stages - 1), 0.0_f64);
        for stage in &self.stages {
            let us = stage.us(&micro);
            all += us;
            slowest = slowest.max(us + handover);
        }
        let in_flight = batch.requests().min(stages);
        if in_flight > 1 { all.max(exact(in_flight) * slowest) } else { all }
    }

    /// The stage with the outputs, which samples.
    fn last(&self) -> &Physics {
        &self.stages[self.stages.len() - 1]
    }

    fn first(&self) -> &Physics {
        &self.stages[0]
    }
}

/// A quotient of a product of two numbers of 64 bits, which fits them again.
fn whole(quotient: u128) -> u64 {
    u64::try_from(quotient).unwrap_or(u64::MAX)
}

/// The largest of `parts` micro-batches: of the requests in prefill and of those that decode the share that falls to it,
/// rounded up to whole requests, with the same share of the sums.
fn micro_batch(batch: &Batch, parts: u64) -> Batch {
    let share = |sum: u64, requests: u64| match requests {
        0 => 0,
        _ => whole((u128::from(sum) * u128::from(requests.div_ceil(parts))).div_ceil(u128::from(requests))),
    };
    let prefill = |sum| share(sum, batch.prefill_requests);
    let decode_requests = share(batch.decode_requests, batch.decode_requests);
    let prefill_requests = prefill(batch.prefill_requests);
    Batch {
        prefill_requests,
        prefill_tokens: prefill(batch.prefill_tokens),
        prefill_tokens_squared: prefill(batch.prefill_tokens_squared),
        prefill_tokens_by_input: prefill(batch.prefill_tokens_by_input),
        prefill_tokens_by_context: prefill(batch.prefill_tokens_by_context),
        prefill_context: prefill(batch.prefill_context),
        decode_requests,
        decode_context: share(batch.decode_context, batch.decode_requests),
        common_prefix: batch.common_prefix,
        sampled: sampled_rows(batch, prefill_requests + decode_requests),
    }
}

/// One of `parts` equal parts of every sum, rounded up. Where requests set their own sampling, none costs more than a
/// greedy choice.
fn equal_share(batch: &Batch, parts: u64) -> Batch {
    let share = |sum: u64| sum.div_ceil(parts);
    let (prefill_requests, decode_requests) = (share(batch.prefill_requests), share(batch.decode_requests));
    let own = if batch.sampled.own > 0 { prefill_requests + decode_requests } else { 0 };
    Batch {
        prefill_requests,
        prefill_tokens: share(batch.prefill_tokens),
        prefill_tokens_squared: share(batch.prefill_tokens_squared),
        prefill_tokens_by_input: share(batch.prefill_tokens_by_input),
        prefill_tokens_by_context: share(batch.prefill_tokens_by_context),
        prefill_context: share(batch.prefill_context),
        decode_requests,
        decode_context: share(batch.decode_context),
        common_prefix: batch.common_prefix,
        sampled: SampledRows { own: u32::try_from(own).unwrap_or(u32::MAX), ..SampledRows::default() },
    }
}

/// The share of `requests` of the batch's requests in each kind of sampling, rounded up: also of those with the model's
/// default.
fn sampled_rows(batch: &Batch, requests: u64) -> SampledRows {
    let SampledRows { own, truncated, min_p, penalized } = batch.sampled;
    if own == 0 {
        return SampledRows::default();
    }
    let all = u128::from(batch.requests());
    let share = |rows: u64| whole((u128::from(rows) * u128::from(requests)).div_ceil(all));
    let rows = |rows: u32| u32::try_from(share(rows.into())).unwrap_or(u32::MAX);
    let default = share(batch.requests().saturating_sub(own.into()));
    SampledRows {
        // The slowest micro-batch has at least one of them.
        own: u32::try_from(requests.saturating_sub(default).max(1)).unwrap_or(u32::MAX),
        truncated: rows(truncated),
        min_p: rows(min_p),
        penalized: rows(penalized),
    }
}

impl LatencyModel for Pipeline {
    fn step_time(&self, batch: &Batch) -> Micros {
        if batch.requests() == 0 {
            return Micros(1);
        }
        Micros::from_f64(self.us(batch)).max(Micros(1))
    }

    /// The largest micro-batch has at least an equal share of every sum, and passes all stages.
    fn least_step_time(&self, batch: &Batch) -> Micros {
        if batch.requests() == 0 {
            return Micros(1);
        }
        let part = equal_share(&all_shared(batch), self.stages.len() as u64);
        Micros::from_f64(self.stages.iter().map(|stage| stage.us(&part)).sum()).max(Micros(1))
    }

    /// Shares are rounded up, sums and maxima of terms that never shrink do not shrink.
    fn context_effect(&self) -> ContextEffect {
        let effects = self.stages.iter().map(LatencyModel::context_effect);
        if effects.into_iter().all(|effect| effect == ContextEffect::None) {
            ContextEffect::None
        } else {
            ContextEffect::NonDecreasing
        }
    }

    fn reads_common_prefix(&self) -> bool {
        self.stages.iter().any(LatencyModel::reads_common_prefix)
    }

    fn sampling(&self, params: SamplingParams) -> Option<Sampling> {
        self.last().sampling(params)
    }

    fn shortest_step(&self) -> Micros {
        let mut greedy = Batch::default();
        greedy.add_decode(0);
        greedy.sampled.add(Some(Sampling::default()));
        shortest_of_monotone(self).min(self.step_time(&greedy))
    }

    fn queueing_time(&self, input_tokens: u32) -> Micros {
        self.first().queueing_time(input_tokens)
    }

    fn first_token_time(&self) -> Micros {
        self.first().first_token_time()
    }

    fn plans_ahead(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::latency::physics::samples::kernels;
    use crate::model::Parallelism;
    use crate::model::samples::{h100, llama_8b};

    const BETA: PhysicsBeta = PhysicsBeta {
        gemm: 1.0,
        experts: 1.0,
        decode_attention: 1.0,
        prefill_attention: 1.0,
        collectives: 1.0,
        sampling: 1.0,
        layer_us: 10.0,
        launch_us: 0.0,
        request_us: 1.0,
        step_us: 200.0,
    };

    fn serving(pipeline: u32) -> Serving {
        Serving { pipeline, ..Serving::on(Parallelism { tensor: 1, data: 1 }) }
    }

    fn pipeline(stages: u32) -> Pipeline {
        Pipeline::new(&llama_8b(), &h100(), &kernels(), serving(stages), PhysicsAlpha::default(), BETA).unwrap()
    }

    fn alone() -> Physics {
        Physics::new(&llama_8b(), &h100(), &kernels(), serving(1), PhysicsAlpha::default(), BETA).unwrap()
    }

    fn decodes(requests: u64) -> Batch {
        Batch { decode_requests: requests, decode_context: 1000 * requests, ..Batch::default() }
    }

    /// One request passes both halves of the layers, and between them the hidden state and residual of one token:
    /// 2 · 4096 · 2 bytes in 4.3 µs at 124 GB/s.
    #[test]
    fn a_lone_request_gains_nothing() {
        let handover = 5.3 + 2.0 * 16_384.0 / 400e3;
        let (two, one) = (pipeline(2).us(&decodes(1)), alone().us(&decodes(1)));
        assert!((two - one - handover).abs() < 1e-6, "{two} {one}");
    }

    /// With 64 requests, each of two stages computes two micro-batches of 32 in a round. The second stage has half of the
    /// layers, the output matrix and sampling: it is the slower one.
    #[test]
    fn two_micro_batches_are_in_flight() {
        let (two, micro) = (pipeline(2), decodes(32));
        let stages: Vec<f64> = two.stages.iter().map(|stage| stage.us(&micro)).collect();
        assert!(stages[1] > stages[0]);
        let handover = 5.3 + 32.0 * 2.0 * 16_384.0 / 400e3;
        let round = two.us(&decodes(64));
        assert!((round - 2.0 * (stages[1] + handover)).abs() < 1e-6, "{round} {stages:?}");
        let whole = alone().us(&micro);
        assert!((stages[0] + stages[1] - whole).abs() < 1e-6, "the stages are the model: {stages:?} {whole}");
    }

    #[test]
    fn a_prompt_is_in_one_micro_batch() {
        let mut batch = Batch::default();
        batch.add_prefill(2000, 0, 2000);
        let micro = micro_batch(&batch, 4);
        assert_eq!(micro, batch);
        batch.add_prefill(2000, 0, 2000);
        assert_eq!(micro_batch(&batch, 2), micro);
        assert_eq!(micro_batch(&decodes(5), 2), decodes(3));
    }

    /// Of 5 requests, 3 are in the largest of two micro-batches: of the 2 with `top_p` of their own 2·3/5, of the 3 others
    /// 3·3/5, both rounded up to 2, so that one of the three counts as a request of its own. Requests that all set what the
    /// model could set take the same time.
    #[test]
    fn micro_batches_have_their_share_of_the_sampling() {
        let top_p = SamplingParams::default().with(crate::sampling::SamplingParam::TopP, 0.9);
        let restricted = Serving { sampling: top_p, ..serving(2) };
        let alpha = PhysicsAlpha::default();
        let restricted = Pipeline::new(&llama_8b(), &h100(), &kernels(), restricted, alpha, BETA).unwrap();
        let own = |requests| {
            let mut batch = decodes(5);
            (0..requests).for_each(|_| batch.sampled.add(pipeline(2).sampling(top_p)));
            batch
        };
        assert_eq!(micro_batch(&own(2), 2).sampled, SampledRows { own: 1, truncated: 2, min_p: 0, penalized: 0 });
        assert_eq!(pipeline(2).us(&own(5)), restricted.us(&decodes(5)));
        assert!(pipeline(2).us(&own(0)) < pipeline(2).us(&own(1)), "one request is enough");
        assert_eq!(restricted.sampling(top_p), None);
    }

    #[test]
    fn stages_have_layers() {
        let alpha = PhysicsAlpha::default();
        let error = Pipeline::new(&llama_8b(), &h100(), &kernels(), serving(33), alpha, BETA).unwrap_err();
        assert_eq!(error, LatencyError::PipelineStages { stages: 33, layers: 32 });
    }

    #[test]
    fn more_context_is_never_faster() {
        let three = pipeline(3);
        for requests in [1, 2, 7, 64] {
            let mut before = Micros(0);
            for context in (0..2000).step_by(7) {
                let step = three.step_time(&Batch { decode_context: context, ..decodes(requests) });
                assert!(step >= before);
                before = step;
            }
        }
    }
}
