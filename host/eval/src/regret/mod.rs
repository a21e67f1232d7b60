//! Outcome regret: the cost of a decision compared with its alternatives, in counterfactual branches of the run.
//!
//! At sampled decisions the simulation is forked. In one branch the policy decides as it did, in each of the others an
//! alternative is forced. All branches then continue under the same arrivals, and their outcomes are compared. Outcome
//! regret does not use the scores that the policy gave to the alternatives; that is score regret, which is 0 for every
//! policy that takes its own best score.
//!
//! | | |
//! |---|---|
//! | cost of a branch | request-seconds within the window after the decision ([`Cost`]): the waiting of all requests, not only of the one decided about |
//! | regret | cost of the actual branch − cost of the best alternative, at least 0; all other decisions are forced to those of the actual run |
//! | own part | the same difference, of the time of the request itself |
//! | externality | the rest: the effect of the decision on other requests |
//! | advantage | mean cost of the alternatives − cost of the actual branch: how much better the decision was than a random one |
//! | rollout regret | as regret, but in each branch the policies make all later decisions anew |
//!
//! With all other decisions forced, the difference is the effect of the one decision, to the microsecond. Policies
//! that read the state of the service would react to an alternative with hundreds of other decisions. These are as
//! good as the original ones, but not the same, and their differences add up to a noise far larger than the effect of
//! one decision (`docs/regret.md`). The rollout regret is therefore reported separately.
//!
//! Decisions of flow control are not replayed: after another dispatch other requests wait. Its policies go on deciding, in
//! all branches. After another number of replicas no decision is replayed: a replica that the actual run did not have would
//! get no requests. The cost of such a branch has GPU-seconds in it ([`ScalingBranchOptions`]).
//!
//! The best alternative is known only in hindsight, so that even a perfect policy has some regret. Regret serves to
//! compare policies under the same requests, and to find the decisions that deserve a closer look.
//!
//! The order is: [`Survey`] records the actual run, [`Survey::sample`] chooses decisions, [`decision_regrets`] runs
//! their branches, [`Regret::new`] sums up.

mod advice;
mod branches;
mod gateway;
mod look_ahead;
mod report;
mod scaling;
mod signals;
mod survey;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::sync::Arc;

use blis_plugin::Kind;
use blis_sim::cluster::{AnyTimeline, DecisionEvent, ForcedDecision, Halt, PendingDecision, RecordedDecisions};
use blis_sim::cost::Cost;
use blis_sim::ids::{InstanceIndex, RequestId};
use blis_sim::request::Request;
use blis_sim::units::Micros;
use rayon::prelude::*;
use serde::Serialize;

pub use advice::add_advice;
use branches::{DecisionFork, ObservedDecision};
pub use look_ahead::{LookAhead, look_ahead};
pub use report::{Estimate, Regret, Section};
pub use scaling::ScalingBranchOptions;
pub use signals::{DecisionColumn, DecisionNumber, KnownSignals, SignalOf};
pub use survey::{DecisionSample, RequestTimes, Survey, Surveyor};

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

/// The policy that makes a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DecisionKind {
    /// Whether a request is admitted.
    Admission,
    /// To which instance a request is routed.
    Routing,
    /// Which request is scheduled next: the alternative is the second one in the longest waiting queue.
    Scheduling,
    /// Which flow of a band flow control dispatches from: the alternatives are the heads of the other flows.
    Fairness,
    /// Which request of that flow is dispatched: the alternatives are the other requests of the flow.
    Ordering,
    /// Which request in flight flow control ends: the alternatives are the others that may be evicted, and none.
    Eviction,
    /// How many replicas a group has: the alternatives are one more and one fewer.
    Scaling,
    /// Whether a request loads what the CPU tier has for it: the alternative is the other.
    Load,
    /// Which LoRA adapter makes room for that of a request: the alternatives are the others that could.
    AdapterEviction,
    /// Where a request is prefilled: the alternatives are the other instances that prefill, and the one that decodes it.
    Disaggregation,
}

/// Why a decision was sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stratum {
    /// At random, from all decisions of its kind.
    Uniform,
    /// At random, from the decisions about requests that missed their target (without targets: from the slowest
    /// twentieth by end-to-end latency) or did not complete.
    Missed,
    /// The best score was furthest above the second best.
    Margin,
}

/// A situation in which decisions may go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Situation {
    /// Another instance had more leading blocks of the prompt in its cache.
    MissedCacheHit,
    /// The chosen instance had at least 3 requests more than the least loaded one, and at least 1.5 times the mean.
    HotInstance,
    /// The signals of queue and batch of the chosen instance were off by 2 requests or more, and by a fifth.
    StaleSignal,
}

/// The regret of one decision, with its branches.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DecisionRegret {
    /// The policy that decided.
    pub kind: DecisionKind,
    /// Why the decision was sampled.
    pub stratum: Stratum,
    /// The request; for scheduling, the one that would have been scheduled first; for eviction, the one that was evicted; for
    /// scaling, the group, as `group_0`.
    pub request_id: String,
    /// Time of the decision, µs.
    pub time_us: u64,
    /// SLO class of the request.
    pub slo_class: String,
    /// Input tokens of the request.
    pub input_tokens: u32,
    /// The reason that the policy gave; of flow control, the saturation.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The situations in which the decision was made.
    pub situations: Vec<Situation>,
    /// Cost of the actual branch − cost of the best alternative, ≥ 0, request-seconds; of scaling with GPU-seconds at their rate.
    pub regret_s: f64,
    /// The part of that difference that is the request's own time, s.
    pub own_s: f64,
    /// The part of that difference that is the time of other requests, request-seconds.
    pub externality_s: f64,
    /// Mean cost of the alternatives − cost of the actual branch, request-seconds.
    pub advantage_s: f64,
    /// As the regret, with all later decisions made anew by the policies in each branch, request-seconds.
    pub rollout_regret_s: f64,
    /// TTFT of the request − that in the best alternative, ms, if it got a first token in both.
    pub ttft_regret_ms: Option<f64>,
    /// E2E of the request − that in the best alternative, ms, if it completed in both.
    pub e2e_regret_ms: Option<f64>,
    /// Difference between the policy's best score and the score of its choice; routing only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub score_regret: Option<f64>,
    /// The signals that the policy read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed: Option<ObservedSignals>,
    /// The state of the instances at the time of the decision.
    pub state: InstanceStates,
    /// The actual branch, then the alternatives.
    pub branches: Vec<BranchOutcome>,
    /// What could be read at the decision, if it is kept.
    #[serde(skip)]
    pub signals: KnownSignals,
    /// The branch with the decision of another policy ([`add_advice`]); `None` if that is unknown.
    #[serde(skip)]
    pub advised: Option<usize>,
}

/// The outcome of one branch.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BranchOutcome {
    /// The decision, for example `instance_3`, `rejected`, `request_7 of tenant b` or `none`.
    pub decision: Cow<'static, str>,
    /// Status of the request at the end of the branch.
    pub status: &'static str,
    /// Time to first token of the request, ms.
    pub ttft_ms: Option<f64>,
    /// End-to-end latency of the request, ms.
    pub e2e_ms: Option<f64>,
    /// Request-seconds within the window.
    pub cost_s: f64,
    /// The same if the policies make all later decisions anew.
    pub rollout_cost_s: f64,
    /// The part of the cost before first tokens, request-seconds.
    pub awaiting_first_token_s: f64,
    /// Requests in the window that were rejected, dropped, evicted or timed out.
    pub failed_requests: u32,
    #[serde(skip)]
    pub(crate) own_s: f64,
    /// GPU-seconds held within the window, of decisions about the number of replicas.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_s: Option<f64>,
}

/// Signals as the policy read them, by instance.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ObservedSignals {
    /// Age of the signals of queue, batch and KV cache, µs.
    pub age_us: u64,
    /// Requests in the waiting queue.
    pub queue_depth: Vec<u32>,
    /// Requests in the running batch.
    pub batch_size: Vec<u32>,
    /// Requests that were routed and have not ended, as the router counts them.
    pub in_flight: Vec<u32>,
    /// Scores that the policy computed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub scores: Vec<f64>,
}

/// State of the instances, by instance; with replicas that come and go, of those that the decision was about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct InstanceStates {
    /// Requests in the waiting queue.
    pub queue_depth: Vec<u32>,
    /// Requests in the running batch.
    pub batch_size: Vec<u32>,
    /// Requests on the way to the queue.
    pub arriving: Vec<u32>,
    /// KV blocks that are free.
    pub free_kv_blocks: Vec<u32>,
    /// Leading blocks of the prompt in the prefix cache.
    pub cached_blocks: Vec<u32>,
}

impl DecisionRegret {
    /// Index of the alternative with the lowest cost.
    #[must_use]
    pub fn best(&self) -> usize {
        let alternatives = self.branches.iter().enumerate().skip(1);
        alternatives.min_by(|one, other| one.1.cost_s.total_cmp(&other.1.cost_s)).map_or(0, |(index, _)| index)
    }
}

impl DecisionKind {
    /// All kinds.
    pub const ALL: [Self; 10] = [
        Self::Admission,
        Self::Routing,
        Self::Scheduling,
        Self::Fairness,
        Self::Ordering,
        Self::Eviction,
        Self::Scaling,
        Self::Load,
        Self::AdapterEviction,
        Self::Disaggregation,
    ];

    /// The name in texts: that of the kind of the policy, or of the decision if such a policy makes several.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::AdapterEviction => "adapter eviction",
            other => other.of_policy().name(),
        }
    }

    /// The kind of the policy that makes it.
    #[must_use]
    pub const fn of_policy(self) -> Kind {
        match self {
            Self::Admission => Kind::Admission,
            Self::Routing => Kind::Routing,
            Self::Scheduling => Kind::Scheduling,
            Self::Fairness => Kind::Fairness,
            Self::Ordering => Kind::Ordering,
            Self::Eviction => Kind::Eviction,
            Self::Scaling => Kind::Scaling,
            Self::Load | Self::AdapterEviction => Kind::KvCache,
            Self::Disaggregation => Kind::Disaggregation,
        }
    }
}

impl InstanceStates {
    /// The columns of these `instances`, in their order.
    fn of(&self, instances: &[InstanceIndex]) -> Self {
        let column = |all: &[u32]| instances.iter().filter_map(|instance| all.get(instance.index()).copied()).collect();
        Self {
            queue_depth: column(&self.queue_depth),
            batch_size: column(&self.batch_size),
            arriving: column(&self.arriving),
            free_kv_blocks: column(&self.free_kv_blocks),
            cached_blocks: column(&self.cached_blocks),
        }
    }

    /// Requests on each instance: waiting, running and arriving.
    fn outstanding(&self) -> Vec<u32> {
        let columns = self.queue_depth.iter().zip(&self.batch_size).zip(&self.arriving);
        columns.map(|((queue, batch), arriving)| queue + batch + arriving).collect()
    }
}

/// Texts of the names of SLO classes and tenants.
pub trait WorkloadTexts: Sync {
    fn text(&self, name: blis_sim::request::Name) -> String;
}

/// Runs the branches of all `samples`, which are in the order of their decisions, along `timeline`. The branches are
/// spread over the threads of the current rayon pool; the result does not depend on their number. `actual` holds all
/// decisions of the actual run.
///
/// # Errors
/// The first failure of a branch, in the order of decisions.
pub fn decision_regrets(
    mut timeline: Box<dyn AnyTimeline>,
    samples: &[DecisionSample],
    actual: &Arc<RecordedDecisions>,
    options: &BranchOptions,
    names: &impl WorkloadTexts,
) -> Result<Vec<DecisionRegret>, Halt> {
    // The number of forks in memory is limited to what keeps all threads busy.
    let max_forks = 4 * rayon::current_num_threads();
    let mut regrets = Vec::new();
    let mut forks: Vec<DecisionFork> = Vec::new();
    let run = |forks: Vec<DecisionFork>| -> Result<Vec<Option<DecisionRegret>>, Halt> {
        // Results stay in the order of decisions, whichever branch ends first.
        let results: Vec<_> = forks.into_par_iter().map(|fork| fork.evaluate(options, actual, names)).collect();
        results.into_iter().collect()
    };
    let mut samples = samples.iter().peekable();
    while samples.peek().is_some() && timeline.next_decision(&mut ())? {
        while let Some(&sample) = samples.peek()
            && is_made_next(&mut *timeline, sample)?
        {
            samples.next();
            forks.push(DecisionFork { timeline: timeline.clone(), sample: sample.clone() });
        }
        if forks.len() >= max_forks {
            regrets.extend(run(std::mem::take(&mut forks))?);
        }
        timeline.decide(&mut ())?;
    }
    regrets.extend(run(forks)?);
    Ok(regrets.into_iter().flatten().collect())
}

/// Whether the decision `sample` is made by the next event of `timeline`. Decisions are found by their request: without an
/// instance that serves its model, no routing decision is made.
fn is_made_next(timeline: &mut dyn AnyTimeline, sample: &DecisionSample) -> Result<bool, Halt> {
    let is_about = |request: &Request| request.id == sample.request;
    let Some(PendingDecision { at, event }) = timeline.pending() else { return Ok(false) };
    Ok(match (sample.kind, event) {
        (DecisionKind::Admission, DecisionEvent::Admission(request)) => is_about(request),
        (
            DecisionKind::Routing
            | DecisionKind::Scheduling
            | DecisionKind::Load
            | DecisionKind::AdapterEviction
            | DecisionKind::Disaggregation,
            DecisionEvent::Routing(request),
        ) => is_about(request),
        (
            DecisionKind::Fairness | DecisionKind::Ordering | DecisionKind::Eviction,
            DecisionEvent::Admission(_) | DecisionEvent::Tick,
        ) => {
            at == sample.at && {
                let mut observed = ObservedDecision::new(sample.kind, sample.request);
                timeline.fork().decide(&mut observed)?;
                observed.decision.is_some()
            }
        }
        (DecisionKind::Scaling, DecisionEvent::Scaling) => at == sample.at,
        _ => false,
    })
}

/// The simulated time of a branch.
#[derive(Clone, Copy, Debug)]
struct BranchSpan {
    /// When the decision was made.
    from: Micros,
    /// Time after the decision in which its effects count.
    window: Micros,
    /// Time after the decision at which a branch ends if its request has not.
    longest: Micros,
}

/// Runs a branch from `timeline` to the end of the window, and on until the request has ended or the longest time has passed.
fn run_branch(
    mut timeline: Box<dyn AnyTimeline>,
    force: Option<(RequestId, ForcedDecision)>,
    mut cost: Cost,
    BranchSpan { from, window, longest }: BranchSpan,
) -> Result<Cost, Halt> {
    if let Some((id, force)) = force {
        timeline.force(id, force);
    }
    // The window may be as short as a microsecond.
    const STRIDE: Micros = Micros(1_000_000);
    let mut end = from.saturating_add(window);
    timeline.run_until(end, &mut cost)?;
    let last = from.saturating_add(longest);
    while end < last && cost.own.is_none() && !timeline.is_over() {
        end = end.saturating_add(window.max(STRIDE)).min(last);
        timeline.run_until(end, &mut cost)?;
    }
    timeline.finish(end, &mut cost)?;
    Ok(cost)
}
