//! The weighted time of attention in a step, from the sums of its batch.
//!
//! Full attention is linear in the sums. A window or chunk of `w` tokens limits what one token reads, request by request,
//! while a batch has sums over all requests: its terms are exact if the requests of a step are equally far, and never
//! below the truth for decodes, since `Σ min(cᵢ, w) ≤ min(Σ cᵢ, n·w)`. Tokens of a chunk attend to half of it on
//! average, once a request is longer than a chunk; they count as attending to `w`, like those of a window.

use super::attention::AttentionCost;
use super::coefficients::PhysicsBeta;
use crate::latency::arithmetic::exact;
use crate::latency::{Batch, read_from_memory};
use crate::numbers::truncated;

/// Weighted µs of attention, all layers of a GPU.
#[derive(Clone, Debug, Default)]
pub(super) struct AttentionTerms {
    /// Per decoding request, and per token of its context in full attention.
    decode_request_us: f64,
    decode_context_us: f64,
    /// The latter beyond itself, in a step with prompts.
    mixed_context_us: f64,
    /// Number of leading tokens that requests share and that the L2 cache keeps for all but the first of them.
    l2_tokens: u64,
    /// Data-parallel ranks: each of them reads the shared tokens once.
    ranks: u64,
    /// Per pair of a prompt token and a token that it attends to, and per token of earlier context, in full attention.
    prefill_pair_us: f64,
    prefill_context_us: f64,
    /// Layers with limits, by limit.
    limited: Vec<LimitedLayers>,
    /// Linear attention, per request.
    state_us: f64,
    /// Per token of a prompt, in all kinds.
    prompt_token_us: f64,
}

/// Weighted µs of the layers in which a token attends to `limit` tokens at most.
#[derive(Clone, Copy, Debug)]
struct LimitedLayers {
    limit: f64,
    decode_us: f64,
    mixed_us: f64,
    pair_us: f64,
    context_us: f64,
}

impl AttentionTerms {
    /// `ranks`: data-parallel ranks, which share the requests.
    pub fn new(costs: &[AttentionCost], ranks: f64, beta: PhysicsBeta) -> Self {
        let unlimited = costs.iter().filter(|cost| cost.limit.is_none() && cost.context_token > 0.0);
        let l2_tokens = unlimited.map(|cost| cost.l2_tokens).reduce(f64::min).unwrap_or(0.0);
        let mut terms = Self { l2_tokens: truncated(l2_tokens), ranks: truncated(ranks), ..Self::default() };
        for cost in costs {
            let [decode, prefill] =
                [beta.decode_attention, beta.prefill_attention].map(|weight| weight * (cost.layers / ranks));
            terms.decode_request_us += decode * cost.request;
            terms.state_us += decode * cost.state;
            terms.prompt_token_us += prefill * cost.prompt_token;
            let (pair_us, context_us) = (prefill * cost.pair, prefill * cost.prompt_context);
            let (decode_us, mixed_us) = (decode * cost.context_token, decode * cost.mixed_token);
            match cost.limit {
                None => {
                    terms.decode_context_us += decode_us;
                    terms.mixed_context_us += mixed_us;
                    terms.prefill_pair_us += pair_us;
                    terms.prefill_context_us += context_us;
                }
                Some(limit) => terms.limited.push(LimitedLayers { limit, decode_us, mixed_us, pair_us, context_us }),
            }
        }
        terms
    }

    /// Time of the decodes of a batch that does not depend on their context, and state of linear attention of all its
    /// requests.
    #[inline]
    pub fn of_decodes(&self, batch: &Batch) -> f64 {
        let requests = self.decode_request_us * exact(batch.decode_requests);
        // Linear attention is rare: without it, the sum has the same bits.
        requests + self.state_us * exact(batch.requests())
    }

    /// Time of the decodes without and with their context.
    #[inline]
    pub fn decodes(&self, batch: &Batch) -> (f64, f64) {
        let context = exact(batch.decode_context);
        let mut us = self.decode_context_us * exact(read_from_memory(batch.decode_context, self.shared_tokens(batch)));
        for kind in &self.limited {
            us += kind.decode_us * context.min(exact(batch.decode_requests) * kind.limit);
        }
        (self.of_decodes(batch), us)
    }

    /// Time of the prompts, and what they add to the decodes beside them.
    pub fn prompts(&self, batch: &Batch) -> f64 {
        // Σ n·(context + (n+1)/2): each new token attends to the new ones before it and to itself.
        let own = (exact(batch.prefill_tokens_squared) + exact(batch.prefill_tokens)) / 2.0;
        let pairs = exact(batch.prefill_tokens_by_context) + own;
        let mut us = self.prefill_pair_us * pairs
            + self.prefill_context_us * exact(batch.prefill_context)
            + self.prompt_token_us * exact(batch.prefill_tokens)
            + self.mixed_context_us * exact(batch.decode_context);
        for kind in &self.limited {
            let earlier = exact(batch.prefill_context).min(exact(batch.prefill_requests) * kind.limit);
            let decoded = exact(batch.decode_context).min(exact(batch.decode_requests) * kind.limit);
            us += kind.pair_us * limited_pairs(batch, pairs, kind.limit)
                + kind.context_us * earlier
                + kind.mixed_us * decoded;
        }
        us
    }

    /// Whether the duration of a step depends on the context of its decodes.
    pub fn reads_context(&self) -> bool {
        self.decode_context_us > 0.0 || self.limited.iter().any(|kind| kind.decode_us > 0.0)
    }

    /// Context of the decodes that all but the first of each rank find in the L2 cache.
    #[inline]
    pub fn shared_tokens(&self, batch: &Batch) -> u64 {
        batch.common_prefix.min(self.l2_tokens) * batch.decode_requests.saturating_sub(self.ranks)
    }

    /// Whether a shared prefix shortens steps.
    pub fn reads_common_prefix(&self) -> bool {
        self.l2_tokens > 0 && self.decode_context_us > 0.0
    }

    /// Time per token of context, if the time of decodes is a linear function of it.
    pub fn over_context(&self) -> Option<f64> {
        self.limited.is_empty().then_some(self.decode_context_us)
    }
}

/// Pairs of a prompt token and a token that it attends to, if each attends to `limit` tokens at most; `pairs` without
/// that limit.
///
/// A request with context `c` that computes `n` tokens has `n·w` pairs less `½·x·(x − 1)`, where `x = w − c` of its tokens,
/// at most `n`, see fewer than `w`. For equal requests, `X = Σ n·(w − c)`, `S = Σ n²` and `T = Σ n` give the sum:
/// `T·w − ½·X·(X − T)/S` if `T ≤ X ≤ S`.
fn limited_pairs(batch: &Batch, pairs: f64, limit: f64) -> f64 {
    let (tokens, squared) = (exact(batch.prefill_tokens), exact(batch.prefill_tokens_squared));
    let all = tokens * limit;
    let short = all - exact(batch.prefill_tokens_by_context);
    if short >= squared {
        pairs
    } else if short <= tokens {
        all
    } else {
        (all - short * (short - tokens) / squared / 2.0).min(pairs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requests with context `c` that compute `n` tokens each, token by token.
    fn counted(requests: u64, n: u64, c: u64, limit: u64) -> f64 {
        let of_one: u64 = (1..=n).map(|token| (c + token).min(limit)).sum();
        (requests * of_one) as f64
    }

    #[test]
    fn pairs_of_equal_requests_are_exact() {
        for requests in [1, 3] {
            for n in [1, 7, 100, 2000] {
                for context in [0, 1, 50, 127, 128, 129, 1000] {
                    let mut batch = Batch::default();
                    (0..requests).for_each(|_| batch.add_prefill(n as u32, context as u32, 10_000));
                    let own = (exact(batch.prefill_tokens_squared) + exact(batch.prefill_tokens)) / 2.0;
                    let pairs = exact(batch.prefill_tokens_by_context) + own;
                    assert_eq!(pairs, counted(requests, n, context, u64::MAX));
                    let limited = limited_pairs(&batch, pairs, 128.0);
                    let expected = counted(requests, n, context, 128);
                    assert!(
                        (limited / expected - 1.0).abs() < 1e-12,
                        "{requests} × {n} from {context}: {limited} {expected}"
                    );
                }
            }
        }
    }

    #[test]
    fn decodes_read_a_window_at_most() {
        let cost =
            AttentionCost { layers: 25.0, limit: Some(1024.0), context_token: 0.001, ..AttentionCost::default() };
        let beta = PhysicsBeta { decode_attention: 1.0, ..PhysicsBeta::from([0.0; 10]) };
        let terms = AttentionTerms::new(&[cost], 1.0, beta);
        let us = |contexts: &[u32]| {
            let mut batch = Batch::default();
            contexts.iter().for_each(|&context| batch.add_decode(context));
            terms.decodes(&batch).1
        };
        let close = |us: f64, expected: f64| assert!((us / expected - 1.0).abs() < 1e-12, "{us} {expected}");
        close(us(&[100, 100]), 25.0 * 0.2);
        close(us(&[5000, 5000]), 25.0 * 2.048);
        assert!(us(&[100, 5000]) >= 25.0 * 1.124, "never below the truth");
        assert_eq!(terms.over_context(), None);
        assert!(terms.reads_context());
    }
}
