//! A latency model with steps that take longer or shorter by constant factors: what its error would do.

use std::sync::Arc;

use super::{Batch, ContextEffect, ContextLine, ContextSum, LatencyModel, OverContext};
use crate::sampling::{Sampling, SamplingParams};
use crate::units::Micros;

/// Factors of the time of steps; the delays around steps are those of the model.
///
/// The time of a step of decoding requests only is multiplied by one factor, what prompts add to it by the other.
#[derive(Clone, Debug)]
pub struct Scaled {
    inner: Arc<dyn LatencyModel>,
    prefill: f64,
    decode: f64,
}

impl Scaled {
    /// `inner` with steps that take `prefill` and `decode` times as long, both above 0.
    #[must_use]
    pub fn new(inner: Arc<dyn LatencyModel>, prefill: f64, decode: f64) -> Self {
        Self { inner, prefill, decode }
    }

    fn decode_us(&self, batch: &Batch) -> f64 {
        self.inner.step_time(batch).0 as f64 * self.decode
    }
}

fn micros(us: f64) -> Micros {
    Micros::from_f64(us).max(Micros(1))
}

impl LatencyModel for Scaled {
    fn step_time(&self, batch: &Batch) -> Micros {
        if batch.prefill_requests == 0 {
            let over_context = self.over_context(batch);
            return over_context
                .map_or_else(|| micros(self.decode_us(batch)), |over| over.step_time(batch.decode_context));
        }
        let whole = self.inner.step_time(batch).0 as f64;
        if batch.decode_requests == 0 {
            return micros(whole * self.prefill);
        }
        let decodes = Batch {
            decode_requests: batch.decode_requests,
            decode_context: batch.decode_context,
            common_prefix: batch.common_prefix,
            ..Batch::default()
        };
        let alone = self.inner.step_time(&decodes).0 as f64;
        micros(alone * self.decode + (whole - alone).max(0.0) * self.prefill)
    }

    fn context_effect(&self) -> ContextEffect {
        self.inner.context_effect()
    }

    fn over_context(&self, batch: &Batch) -> Option<OverContext> {
        let factor = self.decode;
        Some(match self.inner.over_context(batch)? {
            OverContext::Line(line) => OverContext::Line(ContextLine {
                fixed_us: line.fixed_us * factor,
                token_us: line.token_us * factor,
                shared_tokens: line.shared_tokens,
            }),
            OverContext::Sum(sum) => OverContext::Sum(ContextSum {
                weight: sum.weight * factor,
                terms_us: sum.terms_us.map(|term| term * factor),
                ..sum
            }),
        })
    }

    fn reads_common_prefix(&self) -> bool {
        self.inner.reads_common_prefix()
    }

    fn sampling(&self, params: SamplingParams) -> Option<Sampling> {
        self.inner.sampling(params)
    }

    fn least_step_time(&self, batch: &Batch) -> Micros {
        shortened(self.inner.least_step_time(batch), self.prefill.min(self.decode))
    }

    fn shortest_step(&self) -> Micros {
        shortened(self.inner.shortest_step(), self.prefill.min(self.decode))
    }

    fn queueing_time(&self, input_tokens: u32) -> Micros {
        self.inner.queueing_time(input_tokens)
    }

    fn output_token_time(&self) -> Micros {
        self.inner.output_token_time()
    }

    fn first_token_time(&self) -> Micros {
        self.inner.first_token_time()
    }

    fn plans_ahead(&self) -> bool {
        self.inner.plans_ahead()
    }

    fn post_decode_time(&self) -> Micros {
        self.inner.post_decode_time()
    }

    fn scheduling_time(&self) -> Micros {
        self.inner.scheduling_time()
    }

    fn preemption_time(&self) -> Micros {
        self.inner.preemption_time()
    }
}

/// A lower bound of a time that is multiplied by `factor` before or after it is rounded.
fn shortened(time: Micros, factor: f64) -> Micros {
    Micros::from_f64(((time.0 as f64 - 1.0) * factor * (1.0 - 1e-9) - 1.0).max(0.0)).max(Micros(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::latency::testing::{batch, random_batches};
    use crate::latency::{Blackbox, Roofline};
    use crate::model::Parallelism;
    use crate::model::samples::{h100, llama_8b};

    fn models() -> [Arc<dyn LatencyModel>; 2] {
        let one = Parallelism { tensor: 1, data: 1 };
        [
            Arc::new(Blackbox::new(&[0.0; 3], &[52.7, 17.2, 5.9]).expect("valid")),
            Arc::new(Roofline::new(&llama_8b(), &h100(), one).expect("valid")),
        ]
    }

    #[test]
    fn factors_of_1_change_nothing_and_others_scale_each_part() {
        for model in models() {
            let same = Scaled::new(Arc::clone(&model), 1.0, 1.0);
            let scaled = Scaled::new(Arc::clone(&model), 2.0, 3.0);
            for items in random_batches(500) {
                let batch = batch(&items);
                let usual = model.step_time(&batch).0 as f64;
                assert!((same.step_time(&batch).0 as f64 - usual).abs() <= 1.0, "{items:?}");
                let ratio = scaled.step_time(&batch).0 as f64 / usual;
                let (least, most) = match (batch.prefill_requests, batch.decode_requests) {
                    (0, _) => (3.0, 3.0),
                    (_, 0) => (2.0, 2.0),
                    _ => (2.0, 3.0),
                };
                assert!((least - 0.1..=most + 0.1).contains(&ratio), "{ratio} {items:?}");
                assert!(scaled.step_time(&batch) >= scaled.least_step_time(&batch));
            }
        }
    }

    #[test]
    fn the_form_over_context_is_the_step_time() {
        for model in models() {
            let scaled = Scaled::new(model, 0.7, 1.3);
            for context in [1, 77, 4000, 100_000] {
                let mut batch = Batch::default();
                batch.add_decode(context);
                batch.add_decode(9);
                if let Some(over) = scaled.over_context(&batch) {
                    assert_eq!(over.step_time(batch.decode_context), scaled.step_time(&batch));
                }
                assert!(scaled.step_time(&batch) >= scaled.shortest_step());
            }
        }
    }
}
