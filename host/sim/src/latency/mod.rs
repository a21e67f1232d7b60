//! The latency models, which compute the duration of a step and the delays around it.
//!
//! A step's time is a function of a few sums over the batch ([`Batch`]), so that the engine can keep those sums instead
//! of reading every request. Every sum is an integer far below 2^53: as an `f64` it is exact, whatever the order of its
//! terms.

mod arithmetic;
pub mod blackbox;
mod error;
pub mod physics;
pub mod roofline;
mod scaled;
pub mod trained_physics;

pub use blackbox::Blackbox;
pub use error::LatencyError;
pub use physics::{Kernels, Launch, Physics, PhysicsAlpha, PhysicsBeta, Pipeline, Sampler, SamplingRows, Serving};
pub use roofline::Roofline;
pub use scaled::Scaled;
pub use trained_physics::{MoeComm, TrainedPhysics};

use crate::sampling::{SampledRows, Sampling, SamplingParams};
use crate::units::Micros;

/// The requests of one step, in sums. Only requests that compute at least one token count.
///
/// For a request, `n` is the number of tokens that it computes in this step, `context` the number already computed,
/// `input` its prompt length. It is in *prefill* while `context < input`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// Number of requests in prefill.
    pub prefill_requests: u64,
    /// Σ n over requests in prefill.
    pub prefill_tokens: u64,
    /// Σ n² over requests in prefill.
    pub prefill_tokens_squared: u64,
    /// Σ n·input over requests in prefill.
    pub prefill_tokens_by_input: u64,
    /// Σ n·context over requests in prefill.
    pub prefill_tokens_by_context: u64,
    /// Σ context over requests in prefill.
    pub prefill_context: u64,
    /// Number of decoding requests, which compute one token each.
    pub decode_requests: u64,
    /// Σ context over decoding requests.
    pub decode_context: u64,
    /// Tokens in the leading KV blocks that all requests of the running batch hold, such as those of a common system prompt. 0 if
    /// there are fewer than two, and under a latency model that does not read it ([`LatencyModel::reads_common_prefix`]).
    pub common_prefix: u64,
    /// Requests with sampling parameters of their own, in prefill and decode.
    pub sampled: SampledRows,
}

impl Batch {
    /// Adds a request that computes `n` prompt tokens.
    pub fn add_prefill(&mut self, n: u32, context: u32, input: u32) {
        let (n, context, input) = (u64::from(n), u64::from(context), u64::from(input));
        self.prefill_requests += 1;
        self.prefill_tokens += n;
        self.prefill_tokens_squared += n * n;
        self.prefill_tokens_by_input += n * input;
        self.prefill_tokens_by_context += n * context;
        self.prefill_context += context;
    }

    /// Adds a request that generates one token.
    pub fn add_decode(&mut self, context: u32) {
        self.decode_requests += 1;
        self.decode_context += u64::from(context);
    }

    /// Number of requests that compute a token in this step.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.prefill_requests + self.decode_requests
    }

    /// Number of tokens computed in this step.
    #[must_use]
    pub fn tokens(&self) -> u64 {
        self.prefill_tokens + self.decode_requests
    }
}

/// [`LatencyModel::shortest_step`] of a model in which further tokens and context never shorten a step.
fn shortest_of_monotone(model: &impl LatencyModel) -> Micros {
    let (mut decode, mut prefill) = (Batch::default(), Batch::default());
    decode.add_decode(0);
    prefill.add_prefill(1, 0, 1);
    model.step_time(&decode).min(model.step_time(&prefill))
}

/// How the duration of a step depends on `decode_context`, all else being equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContextEffect {
    /// The context has no effect: the same requests take equally long at every step.
    None,
    /// More context never makes a step shorter, not by a bit: sums and products of numbers ≥ 0 and maxima qualify,
    /// rounding included, since IEEE rounding keeps order.
    NonDecreasing,
    /// Any other dependence on the context.
    Any,
}

/// The number of tokens of `context` that take time, if `shared` of them are those of a request before. The L2 cache serves these
/// while other requests' are read from memory. Its bandwidth is about twice that of the memory (Jia et al., "Dissecting the NVIDIA
/// Volta GPU architecture via microbenchmarking", 2018), so half of the context takes time in any case.
#[inline]
fn read_from_memory(context: u64, shared: u64) -> u64 {
    context - shared.min(context / 2)
}

/// The time of a step of decoding requests over their context, with everything computed that does not depend on it.
#[derive(Clone, Copy, Debug)]
pub enum OverContext {
    /// A linear function.
    Line(ContextLine),
    /// A sum, one term of which grows with the context.
    Sum(ContextSum),
}

/// A linear function of the context.
#[derive(Clone, Copy, Debug)]
pub struct ContextLine {
    /// Time without any context, µs, ≥ 0.
    pub fixed_us: f64,
    /// Time per token of context, µs, ≥ 0.
    pub token_us: f64,
    /// Number of tokens of the context that requests share with a request before them: the L2 cache serves them, up to half of the context.
    pub shared_tokens: u64,
}

/// The weighted time of reading the context and the present tokens, plus terms in an order that decides the last bit.
#[derive(Clone, Copy, Debug)]
pub struct ContextSum {
    /// Number of decoding requests, each of which reads one token in addition to the context.
    pub requests: u64,
    /// KV bytes of a token.
    pub token_bytes: f64,
    /// Bytes per µs.
    pub bandwidth: f64,
    /// Factor of the time of reading.
    pub weight: f64,
    /// Added in this order, µs, ≥ 0.
    pub terms_us: [f64; 7],
}

impl OverContext {
    /// The duration of a step with that context: at least 1 µs, as of any step.
    #[inline]
    pub(crate) fn step_time(&self, context: u64) -> Micros {
        let us = match self {
            Self::Line(line) => {
                let tokens = read_from_memory(context, line.shared_tokens);
                line.fixed_us + line.token_us * arithmetic::exact(tokens)
            }
            Self::Sum(sum) => {
                let tokens = arithmetic::exact(context + sum.requests);
                let reading = sum.weight * (sum.token_bytes * tokens / sum.bandwidth);
                sum.terms_us.iter().fold(reading, |us, term| us + term)
            }
        };
        Micros::from_f64(us).max(Micros(1))
    }
}

/// A latency model: the durations that a simulation needs. Those that few models have default to 0.
pub trait LatencyModel: std::fmt::Debug + Send + Sync {
    /// Duration of one engine step. At least 1 µs, also for an empty batch.
    fn step_time(&self, batch: &Batch) -> Micros;

    /// How the duration of a step with decoding requests only depends on their context. Lets the engine execute many
    /// equal steps at once; [`ContextEffect::Any`] is always correct.
    fn context_effect(&self) -> ContextEffect {
        ContextEffect::Any
    }

    /// The step time of `batch`, which has decoding requests only, as a function of their context: equal to
    /// [`Self::step_time`] to the bit. `None` if it has neither form.
    fn over_context(&self, _batch: &Batch) -> Option<OverContext> {
        None
    }

    /// Whether step times depend on [`Batch::common_prefix`].
    fn reads_common_prefix(&self) -> bool {
        false
    }

    /// The sampling of a request that sets `params`, if it costs other than that of requests that set none. A model
    /// that does not price sampling leaves it out.
    fn sampling(&self, _params: SamplingParams) -> Option<Sampling> {
        None
    }

    /// A lower bound of the duration of a step that computes at least the tokens of `batch`, whatever else it computes;
    /// summed over the chunks of a prompt, also of the steps of any finer chunks, up to the rounding of each step to a
    /// microsecond. For bounds of latencies.
    fn least_step_time(&self, batch: &Batch) -> Micros {
        self.step_time(batch)
    }

    /// A lower bound of the duration of steps that compute a token. Lets a cluster skip an instance while no request of
    /// it can end; 1 µs is always correct.
    fn shortest_step(&self) -> Micros {
        Micros(1)
    }

    /// Time from arrival to the waiting queue (tokenisation, HTTP). It does not occupy the engine.
    fn queueing_time(&self, _input_tokens: u32) -> Micros {
        Micros::ZERO
    }

    /// Added once to TTFT and once to every inter-token latency; it delays no step.
    fn output_token_time(&self) -> Micros {
        Micros::ZERO
    }

    /// Added once to TTFT, and so to the end-to-end latency; it delays no step. It covers the way of a token from the
    /// end of its step to the client: output processing, detokenisation, HTTP.
    fn first_token_time(&self) -> Micros {
        Micros::ZERO
    }

    /// Whether the next step is planned while the current one is computed, if scheduling is asynchronous: a request
    /// that arrives during a step is then in neither that step nor the one after it.
    fn plans_ahead(&self) -> bool {
        false
    }

    /// Added once to the end-to-end latency of a request with at least one output token.
    fn post_decode_time(&self) -> Micros {
        Micros::ZERO
    }

    /// Added to the recorded scheduling delay of a request when it enters the batch.
    fn scheduling_time(&self) -> Micros {
        Micros::ZERO
    }

    /// Bookkeeping time of a preemption; it is recorded and delays no event.
    fn preemption_time(&self) -> Micros {
        Micros::ZERO
    }
}

#[cfg(test)]
pub(crate) mod testing {
    //! Random batches, request by request, to compare a model with its formula written out.
    use rand::{RngExt, SeedableRng};

    use super::Batch;

    /// One request of a batch.
    #[derive(Clone, Copy, Debug)]
    pub struct BatchItem {
        /// Tokens computed in this step.
        pub n: u32,
        /// Tokens computed in earlier steps.
        pub context: u32,
        /// Length of the prompt, tokens.
        pub input: u32,
    }

    impl BatchItem {
        pub fn is_prefill(self) -> bool {
            self.context < self.input
        }
    }

    pub fn batch(items: &[BatchItem]) -> Batch {
        let mut batch = Batch::default();
        for item in items {
            if item.is_prefill() {
                batch.add_prefill(item.n, item.context, item.input);
            } else {
                batch.add_decode(item.context);
            }
        }
        batch
    }

    /// `count` batches of up to 64 requests: prefill only, decode only, and both.
    pub fn random_batches(count: usize) -> impl Iterator<Item = Vec<BatchItem>> {
        let mut rng = rand_pcg::Pcg64Mcg::seed_from_u64(7);
        (0..count).map(move |_| {
            let requests = rng.random_range(1..=64);
            let prefill_percent = [0, 10, 50, 100][rng.random_range(0..4)];
            let longest = [100, 4000, 130_000][rng.random_range(0..3)];
            (0..requests)
                .map(|_| {
                    let input = rng.random_range(1..=longest);
                    if rng.random_range(0..100) < prefill_percent {
                        let context = rng.random_range(0..input);
                        BatchItem { n: rng.random_range(1..=(input - context).min(8192)), context, input }
                    } else {
                        BatchItem { n: 1, context: input + rng.random_range(0..2000), input }
                    }
                })
                .collect()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::physics::samples::kernels;
    use super::testing::{BatchItem, batch, random_batches};
    use super::*;
    use crate::model::Parallelism;
    use crate::model::samples::{gemma_4, h100, llama_8b, qwen_moe};

    fn models() -> [Box<dyn LatencyModel>; 3] {
        let one = Parallelism { tensor: 1, data: 1 };
        let alpha = [1563.2, 777.3, 45.9];
        let beta = [0.152128, 0.0, 1.36252915, 0.752037, 32.09546717, 4.41684444, 126.024825, 0.0, 0.0, 1.94710771];
        [
            Box::new(Blackbox::new(&alpha, &[52.7, 17.2, 5.9]).expect("valid")),
            Box::new(Roofline::new(&llama_8b(), &h100(), one).expect("valid")),
            Box::new(TrainedPhysics::new(&llama_8b(), &h100(), one, MoeComm::AllGather, &alpha, &beta).expect("valid")),
        ]
    }

    /// One request alone, then the same with others; a prompt in one chunk, then in two.
    fn check_least_step_times(model: &dyn LatencyModel) {
        for items in random_batches(3_000) {
            let decodes = items.iter().filter(|item| !item.is_prefill());
            let common_prefix = decodes.map(|item| u64::from(item.context)).min().unwrap_or(0);
            let whole = model.step_time(&Batch { common_prefix, ..batch(&items) });
            let mut largest = items[0];
            largest.context = if largest.is_prefill() { 0 } else { largest.context };
            assert!(whole >= model.least_step_time(&batch(&items[..1])), "{model:?} {items:?}");
            if !largest.is_prefill() || largest.n < 2 {
                continue;
            }
            let (first, rest) = (largest.n / 2, largest.n - largest.n / 2);
            let chunk = |n, context| BatchItem { n, context, ..largest };
            let step = |item| model.step_time(&batch(&[item]));
            let chunks = step(chunk(first, 0)) + step(chunk(rest, first));
            // Either step was rounded down.
            assert!(chunks + Micros(1) >= model.least_step_time(&batch(&[largest])), "{model:?} {largest:?}");
        }
    }

    #[test]
    fn no_company_and_no_chunks_are_faster_than_the_least_step_time() {
        for model in models() {
            check_least_step_times(&*model);
        }
        let (alpha, gpu, kernels) = (PhysicsAlpha::default(), h100(), kernels());
        let beta = PhysicsBeta::from([1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 10.0, 50.0, 1.0, 200.0]);
        for (model, pipeline) in [(llama_8b(), 1), (gemma_4(), 1), (qwen_moe(), 1), (llama_8b(), 2), (llama_8b(), 4)] {
            let serving = Serving { pipeline, ..Serving::on(Parallelism { tensor: 1, data: 1 }) };
            if pipeline == 1 {
                let physics = Physics::new(&model, &gpu, &kernels, serving, alpha, beta);
                check_least_step_times(&physics.expect("valid"));
            } else {
                let stages = Pipeline::new(&model, &gpu, &kernels, serving, alpha, beta);
                check_least_step_times(&stages.expect("valid"));
            }
        }
    }

    #[test]
    fn shortest_step_is_a_lower_bound() {
        for model in models() {
            let shortest = model.shortest_step();
            assert!(shortest > Micros(50), "a useful bound: {model:?}");
            for items in random_batches(5_000) {
                assert!(model.step_time(&batch(&items)) >= shortest, "{items:?}");
                assert!(model.step_time(&batch(&items[..1])) >= shortest, "{items:?}");
            }
        }
    }
}
