//! Options of the outcome regret.

use blis_sim::units::Micros;

use super::decision_kind::DecisionKind;

/// Options of the outcome regret.
#[derive(Clone, Debug)]
pub struct RegretOptions {
    /// Routing decisions to sample: half of them at random, a quarter among those of requests that missed their
    /// targets, a quarter among those with the widest margins; and a quarter as many decisions of admission, scheduling,
    /// fairness, ordering, eviction, scaling, loads, adapter evictions and prefills elsewhere each. Without routing, this number is divided equally among the kinds.
    pub samples: usize,
    /// Time after a decision in which its effects count; `None` for twice the mean end-to-end latency, at least a
    /// second.
    pub window: Option<Micros>,
    /// Whether that number is drawn at random of each kind instead, and no others.
    pub at_random: bool,
    /// Seed of the sample.
    pub seed: u64,
    /// The kinds of decisions to sample.
    pub kinds: Vec<DecisionKind>,
}

/// What is run for each decision.
#[derive(Clone, Copy, Debug)]
pub struct BranchOptions {
    /// Time after the decision in which its effects count.
    pub window: Micros,
    /// Time after the decision until which a branch goes on at most, beyond the window, for the latencies of its request.
    pub longest: Micros,
    /// Maximum number of alternatives to a routing decision.
    pub alternatives: usize,
    /// Whether each alternative is run a second time with all later decisions made anew; without, the rollout regret is that
    /// with the actual ones.
    pub rollouts: bool,
    /// Whether the signals of each decision are kept.
    pub signals: bool,
    /// What differs for the number of replicas.
    pub scaling: ScalingBranchOptions,
}

/// What is different in branches with another number of replicas.
#[derive(Clone, Copy, Debug, Default)]
pub struct ScalingBranchOptions {
    /// Time after the decision in which its effects count: long enough for a replica to start and to serve.
    pub window: Micros,
    /// Request-seconds that a GPU-second counts as ([`Survey::requests_per_gpu`](super::Survey::requests_per_gpu)).
    pub requests_per_gpu: f64,
}
