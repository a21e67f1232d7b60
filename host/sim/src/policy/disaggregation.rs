//! Whether a request is prefilled on another instance than the one that decodes it.
//!
//! A policy is called once for each request, after the instance was chosen that decodes it. Built in are never, always,
//! a threshold on the tokens that this instance has not cached ([`PrefixThreshold`]), and [`DriftPlusPenalty`].

use std::fmt::Debug;

use super::{ClusterView, Event, Events, Reads, RequestView};
use crate::ids::InstanceIndex;
use crate::units::Micros;

/// The instances between which a policy decides.
#[derive(Clone, Copy, Debug)]
pub struct PoolsView<'a> {
    /// All instances, in the order of their indices, with their signals.
    pub cluster: &'a ClusterView<'a>,
    /// The instances that decode.
    pub decode: &'a [InstanceIndex],
    /// The one that was chosen for the request.
    pub chosen: InstanceIndex,
    /// The instances that prefill, at least one.
    pub prefill: &'a [InstanceIndex],
    /// The transfers between them.
    pub transfers: TransfersView<'a>,
}

/// Transfers of KV between instances. All are 0 for a policy that does not read them, and in BLIS's flow.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TransfersView<'a> {
    /// Those in progress.
    pub total: TransferLoad,
    /// Moving average of the time of a transfer, µs per token, in which each new one counts 0.1; 0 before the first.
    pub us_per_token: f64,
    /// Those to or from each instance, by its index; empty for none.
    pub by_instance: &'a [TransferLoad],
}

/// Transfers in progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransferLoad {
    /// Their number.
    pub count: u32,
    /// Tokens that they transfer.
    pub tokens: u32,
}

impl TransfersView<'_> {
    /// The transfers to or from `instance`.
    #[must_use]
    pub fn load(&self, instance: InstanceIndex) -> TransferLoad {
        self.by_instance.get(instance.index()).copied().unwrap_or_default()
    }
}

impl PoolsView<'_> {
    /// Tokens of the prompt of `request` that `instance` does not have in its prefix cache.
    #[must_use]
    pub fn uncached_tokens(&self, request: &RequestView<'_>, instance: InstanceIndex) -> u32 {
        request.input_tokens - self.cluster.signals.cached_tokens(request, instance.index())
    }
}

/// The result of a policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DisaggregationDecision {
    /// Whether the request is prefilled on another instance.
    pub disaggregate: bool,
    /// The instance that decodes it, instead of the one that was chosen.
    pub decode: Option<InstanceIndex>,
    /// The instance that prefills it; `None`: the routing policy of prefill chooses.
    pub prefill: Option<InstanceIndex>,
}

impl DisaggregationDecision {
    /// The decision without a choice of instances.
    #[must_use]
    pub fn new(disaggregate: bool) -> Self {
        Self { disaggregate, ..Self::default() }
    }
}

/// Decides whether a request is prefilled on another instance.
pub trait DisaggregationPolicy: Debug + Send {
    /// The signals that it reads. Called once.
    fn reads(&self) -> Reads;

    /// Decides where `request` is prefilled.
    fn decide(&mut self, request: &RequestView<'_>, pools: &PoolsView<'_>) -> DisaggregationDecision;

    /// Whether it reads [`PoolsView::transfers`].
    fn reads_transfers(&self) -> bool {
        false
    }

    /// The events that it receives. A request that is prefilled elsewhere has a first token on either instance.
    fn events(&self) -> Events {
        Events::NONE
    }

    /// Receives an event, in simulated order and before any later decision.
    fn observe(&mut self, event: &Event) {
        let _ = event;
    }

    /// Whether [`Self::first_token`] has an effect. Called at every first token.
    fn reads_first_tokens(&self) -> bool {
        false
    }

    /// A request that was prefilled elsewhere had its first token `ttft` after its arrival.
    fn first_token(&mut self, ttft: Micros) {
        let _ = ttft;
    }

    /// A copy of the policy with the same state.
    fn fork(&self) -> Box<dyn DisaggregationPolicy>;
}

/// No request is prefilled elsewhere.
#[derive(Clone, Copy, Debug, Default)]
pub struct NeverDisaggregate;

impl DisaggregationPolicy for NeverDisaggregate {
    fn reads(&self) -> Reads {
        Reads::NOTHING
    }

    fn decide(&mut self, _: &RequestView<'_>, _: &PoolsView<'_>) -> DisaggregationDecision {
        DisaggregationDecision::new(false)
    }

    fn fork(&self) -> Box<dyn DisaggregationPolicy> {
        Box::new(*self)
    }
}

/// Every request is prefilled elsewhere.
#[derive(Clone, Copy, Debug, Default)]
pub struct AlwaysDisaggregate;

impl DisaggregationPolicy for AlwaysDisaggregate {
    fn reads(&self) -> Reads {
        Reads::NOTHING
    }

    fn decide(&mut self, _: &RequestView<'_>, _: &PoolsView<'_>) -> DisaggregationDecision {
        DisaggregationDecision::new(true)
    }

    fn fork(&self) -> Box<dyn DisaggregationPolicy> {
        Box::new(*self)
    }
}

/// A request is prefilled elsewhere if the chosen instance lacks many tokens of its prompt: with llm-d (`prefix-based-pd-decider`)
/// at least [`Self::tokens`], where 0 means never; in BLIS more than that.
#[derive(Clone, Copy, Debug)]
pub struct PrefixThreshold {
    /// Tokens.
    pub tokens: u32,
    /// Tokens of the whole prompt; shorter ones are not prefilled elsewhere (llm-d's `promptTokens`).
    pub prompt_tokens: u32,
    /// Whether as many tokens do not suffice, and 0 is a threshold as others (BLIS).
    pub exceeds: bool,
}

impl DisaggregationPolicy for PrefixThreshold {
    fn reads(&self) -> Reads {
        Reads { cached_blocks: true, ..Reads::NOTHING }
    }

    fn decide(&mut self, request: &RequestView<'_>, pools: &PoolsView<'_>) -> DisaggregationDecision {
        let uncached = pools.uncached_tokens(request, pools.chosen);
        let is_long = request.input_tokens >= self.prompt_tokens;
        DisaggregationDecision::new(match self.exceeds {
            true => is_long && uncached > self.tokens,
            false => is_long && self.tokens > 0 && uncached >= self.tokens,
        })
    }

    fn fork(&self) -> Box<dyn DisaggregationPolicy> {
        Box::new(*self)
    }
}

/// Drift plus penalty (`edpp`). With v the rate of prefill, the backlog of an instance is the time to compute what it has and
/// would have to compute: (tokens in flight without a first token + uncached tokens of the request) / v. The request is
/// prefilled elsewhere if the backlog of the chosen instance exceeds the smallest one of the prefill instances by more than Z. Z
/// is a virtual queue of missed targets: Z ← max(Z + TTFT − target, 0) at each first token of a request that was prefilled
/// elsewhere.
///
/// The rule is described in llm-d's blog of July 2026, and its formula is not published: the units are our reading.
#[derive(Clone, Copy, Debug)]
pub struct DriftPlusPenalty {
    /// Prompt tokens that an instance computes per second, > 0 (llm-d's `peakPrefillThroughput`).
    pub tokens_per_second: f64,
    /// The TTFT that requests prefilled elsewhere should have.
    pub target: Micros,
    /// Z, seconds, ≥ 0.
    pub deficit_s: f64,
}

impl DriftPlusPenalty {
    /// Time to compute what `instance` has and would have to compute, seconds.
    fn backlog_s(&self, request: &RequestView<'_>, pools: &PoolsView<'_>, instance: InstanceIndex) -> f64 {
        let queued = pools.cluster.signals.in_flight_tokens[instance.index()];
        (queued as f64 + f64::from(pools.uncached_tokens(request, instance))) / self.tokens_per_second
    }
}

impl DisaggregationPolicy for DriftPlusPenalty {
    fn reads(&self) -> Reads {
        Reads { cached_blocks: true, tokens: true, ..Reads::NOTHING }
    }

    fn decide(&mut self, request: &RequestView<'_>, pools: &PoolsView<'_>) -> DisaggregationDecision {
        let prefill = pools.prefill.iter().map(|&instance| self.backlog_s(request, pools, instance));
        let saved = self.backlog_s(request, pools, pools.chosen) - prefill.fold(f64::INFINITY, f64::min);
        DisaggregationDecision::new(saved > self.deficit_s)
    }

    fn reads_first_tokens(&self) -> bool {
        true
    }

    fn first_token(&mut self, ttft: Micros) {
        self.deficit_s = (self.deficit_s + ttft.as_secs_f64() - self.target.as_secs_f64()).max(0.0);
    }

    fn fork(&self) -> Box<dyn DisaggregationPolicy> {
        Box::new(*self)
    }
}

/// Which requests are encoded on an instance of its own first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EncodeRule {
    /// No request.
    #[default]
    Never,
    /// Every request.
    Always,
    /// Requests with images, audio or video.
    Multimodal,
}

impl EncodeRule {
    /// Whether a request with so many tokens of images, audio and video is encoded.
    #[must_use]
    pub fn applies(self, media_tokens: u32) -> bool {
        match self {
            Self::Never => false,
            Self::Always => true,
            Self::Multimodal => media_tokens > 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::testing::{TestService, request, view_of};

    #[test]
    fn a_threshold_counts_uncached_tokens_of_prompts_that_are_long_enough() {
        let service = TestService::idle(2);
        let cluster = service.view();
        let (decode, prefill) = ([InstanceIndex(0)], [InstanceIndex(1)]);
        let transfers = TransfersView::default();
        let pools = PoolsView { cluster: &cluster, decode: &decode, chosen: decode[0], prefill: &prefill, transfers };
        // 35 tokens, none of them cached.
        let request = request(0, 2, &[]);
        let decides = |tokens, prompt_tokens, exceeds| {
            let mut policy = PrefixThreshold { tokens, prompt_tokens, exceeds };
            policy.decide(&view_of(&request), &pools).disaggregate
        };
        assert!(decides(35, 0, false) && decides(35, 35, false) && !decides(35, 36, false));
        assert!(!decides(36, 0, false) && !decides(0, 0, false), "0 is never");
        assert!(decides(34, 0, true) && !decides(35, 0, true) && decides(0, 0, true), "BLIS: more than that");
    }
}
