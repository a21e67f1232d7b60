//! The regret of one decision, with its branches.

use std::borrow::Cow;

use serde::Serialize;

use super::decision_kind::DecisionKind;
use super::instance_states::InstanceStates;
use super::signals::KnownSignals;
use super::survey::Stratum;

/// Regret of one decision.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DecisionRegret {
    /// The policy that decided.
    pub kind: DecisionKind,
    /// Why the decision was sampled.
    pub stratum: Stratum,
    /// The request; for scheduling, the one that would have been scheduled first; for eviction, the one that was
    /// evicted; for scaling, the group, as `group_0`.
    pub request_id: String,
    /// Time of the decision.
    pub time_us: u64,
    /// SLO class of the request.
    pub slo_class: String,
    /// Input tokens of the request.
    pub input_tokens: u32,
    /// Reason that the policy gave; of flow control, the saturation; of scaling, the number of replicas before.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Situations in which the decision was made.
    pub situations: Vec<Situation>,
    /// Cost of the actual branch − cost of the best alternative; of scaling with GPU-seconds at their rate. Unit:
    /// request-seconds, 0 or more.
    pub regret_s: f64,
    /// Part of it that is the time of the request itself.
    pub own_s: f64,
    /// Part of it that is the time of other requests. Unit: request-seconds.
    pub externality_s: f64,
    /// Mean cost of the alternatives − cost of the actual branch. Unit: request-seconds.
    pub advantage_s: f64,
    /// The regret if the policies make all later decisions anew. Unit: request-seconds.
    pub rollout_regret_s: f64,
    /// TTFT of the request − that in the best alternative; `null` unless it got a first token in both.
    pub ttft_regret_ms: Option<f64>,
    /// E2E of the request − that in the best alternative; `null` unless it completed in both.
    pub e2e_regret_ms: Option<f64>,
    /// Best score of the policy − score of its choice; routing only. Unit: score.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub score_regret: Option<f64>,
    /// Signals that the policy read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed: Option<ObservedSignals>,
    /// State of the instances at the time of the decision.
    pub state: InstanceStates,
    /// The actual branch, then the alternatives.
    pub branches: Vec<BranchOutcome>,
    /// What could be read at the decision, if it is kept.
    #[serde(skip)]
    pub signals: KnownSignals,
    /// The branch with the decision of another policy ([`add_advice`](super::add_advice)); `None` if that is unknown.
    #[serde(skip)]
    pub advised: Option<usize>,
}

impl DecisionRegret {
    /// Index of the alternative with the lowest cost.
    #[must_use]
    pub fn best(&self) -> usize {
        let alternatives = self.branches.iter().enumerate().skip(1);
        alternatives.min_by(|one, other| one.1.cost_s.total_cmp(&other.1.cost_s)).map_or(0, |(index, _)| index)
    }
}

/// The outcome of one branch.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BranchOutcome {
    /// The decision, for example `instance_3`, `rejected`, `request_7 of tenant b`, `none` or `3 replicas`.
    pub decision: Cow<'static, str>,
    /// Status of the request at the end of the branch.
    pub status: &'static str,
    /// Time to first token of the request.
    pub ttft_ms: Option<f64>,
    /// End-to-end latency of the request.
    pub e2e_ms: Option<f64>,
    /// Request-seconds within the window; of scaling with the GPU-seconds, each as the mean number of requests for a
    /// GPU of the run. Unit: request-seconds.
    pub cost_s: f64,
    /// The same if the policies make all later decisions anew. Unit: request-seconds.
    pub rollout_cost_s: f64,
    /// Part of the cost before first tokens. Unit: request-seconds.
    pub awaiting_first_token_s: f64,
    /// Requests in the window that were rejected, dropped, evicted or timed out.
    pub failed_requests: u32,
    #[serde(skip)]
    pub(crate) own_s: f64,
    /// GPU time held within the window; of scaling only. Unit: GPU-seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_s: Option<f64>,
}

/// A situation in which decisions may go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(const_into_str)]
pub enum Situation {
    /// Another instance had more leading blocks of the prompt in its cache.
    #[strum(to_string = "missed cache hit")]
    MissedCacheHit,
    /// The chosen instance had at least 3 requests more than the least loaded one, and at least 1.5 times the mean.
    #[strum(to_string = "hot instance")]
    HotInstance,
    /// The signals of queue and batch of the chosen instance were off by 2 requests or more, and by a fifth.
    #[strum(to_string = "stale signal")]
    StaleSignal,
}

/// Signals as the policy read them, an entry for each instance.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ObservedSignals {
    /// Age of the signals of queue, batch and KV cache.
    pub age_us: u64,
    /// Requests in the waiting queue. Unit: requests.
    pub queue_depth: Vec<u32>,
    /// Requests in the running batch. Unit: requests.
    pub batch_size: Vec<u32>,
    /// Requests that were routed and have not ended. Unit: requests.
    pub in_flight: Vec<u32>,
    /// Scores that the policy computed. Unit: score.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub scores: Vec<f64>,
}
