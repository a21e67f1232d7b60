//! What a request needs at least, whatever the policy.

use blis_sim::request::Request;
use blis_sim::units::Micros;

use super::alone::Latencies;
use super::prefixes::{EVER, PrefixTable};
use super::service::{BoundedService, ServedRequest};

/// What a request needs at least, whatever the policy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Demand {
    /// Time at which it reaches a waiting queue, µs.
    pub release_us: f64,
    /// Time before the queue, µs.
    pub before_us: f64,
    /// Time from the last step that it needs to the client, µs: of the first token and of the last.
    pub after_first_us: f64,
    pub after_last_us: f64,
    /// Prompt tokens that no other request can have computed.
    pub prefill_tokens: f64,
    /// Steps after the first token, and the sum of the context in them, tokens.
    pub decodes: f64,
    pub decode_context: f64,
    /// Length with all output tokens.
    pub tokens: u32,
    pub sets_sampling: bool,
    pub completed: bool,
    pub alone: Latencies,
}

impl Demand {
    pub fn new(
        service: &BoundedService,
        request: &Request,
        prefixes: &PrefixTable<'_>,
        served: ServedRequest,
        alone: Latencies,
    ) -> Self {
        let (instance, latency) = (&service.instance, &service.instance.latency);
        let queueing = latency.queueing_time(request.input_tokens);
        let before_us = us(service.admission_latency) + us(service.routing_latency) + us(queueing);
        let cached = prefixes.cached_blocks(served.index, EVER) * instance.block_size;
        let least = u32::from(!instance.semantics.full_hit_is_free);
        let decodes = f64::from(served.generated_tokens.saturating_sub(1));
        let tokens_out = f64::from(served.generated_tokens.max(1));
        let post = if request.output_tokens > 0 { latency.post_decode_time() } else { Micros::ZERO };
        let (per_token, first) = (us(latency.output_token_time()), us(latency.first_token_time()));
        Self {
            release_us: us(request.arrival) + before_us,
            before_us,
            after_first_us: per_token + first,
            after_last_us: first + per_token * tokens_out + us(post),
            prefill_tokens: f64::from(request.input_tokens.saturating_sub(cached).max(least)),
            decodes,
            // The first of these steps has the prompt as context, each further one a token more.
            decode_context: decodes * f64::from(request.input_tokens) + decodes * (decodes - 1.0).max(0.0) / 2.0,
            tokens: request.input_tokens.saturating_add(served.generated_tokens),
            sets_sampling: !request.sampling.is_unset(),
            completed: served.completed,
            alone,
        }
    }
}

pub(super) fn us(time: Micros) -> f64 {
    time.0 as f64
}
