//! The built-in scheduling and preemption policies of an instance, and the calls of custom ones.

use std::cmp::Ordering;

use rustc_hash::FxHashMap;

use crate::policy::kv_cache::KvCacheChoice;
use crate::policy::{
    BatchView, BatchingPolicy, PreemptionPolicy, QueuedView, Rank, SchedulingPolicy, StepBudget, StepState,
};
use crate::request::{Content, Request};
use crate::units::Micros;

/// The policies of an instance; a clone forks them. The default are those of vLLM.
#[derive(Clone, Debug, Default)]
pub struct InstancePolicies {
    /// The order of the waiting queue.
    pub scheduler: SchedulingChoice,
    /// The choice of the preemption victim.
    pub preemption: PreemptionChoice,
    /// The policy of the CPU tier, which an instance takes out, and, copied, of the room for adapters.
    pub kv_cache: KvCacheChoice,
    /// What a step may compute of prompts.
    pub batching: BatchingChoice,
}

/// The batching policy of an instance, with the budgets that it has given; `None` for vLLM's, which has no further limits. A
/// clone forks it.
#[derive(Debug, Default)]
pub struct BatchingChoice(Option<(Box<dyn BatchingPolicy>, FxHashMap<StepState, StepBudget>)>);

impl From<Box<dyn BatchingPolicy>> for BatchingChoice {
    fn from(policy: Box<dyn BatchingPolicy>) -> Self {
        Self(Some((policy, FxHashMap::default())))
    }
}

impl BatchingChoice {
    /// Whether a policy limits steps.
    #[inline]
    pub(super) fn is_used(&self) -> bool {
        self.0.is_some()
    }

    /// The budget of a step that starts at `now` in `state`, which is put on the grid first; `None` if no policy limits it, or
    /// nothing of it can be limited: no request is in prefill, and none can enter the batch.
    pub(super) fn budget(&mut self, now: Micros, state: StepState) -> Option<StepBudget> {
        let (policy, known) = self.0.as_mut()?;
        let running = state.decoding + state.prefilling;
        let may_enter =
            state.waiting > 0 && running < state.max_num_seqs && state.decoding < state.max_num_batched_tokens;
        if state.prefilling == 0 && !may_enter {
            return None;
        }
        let state = StepState {
            decoding: on_grid(state.decoding),
            prefilling: on_grid(state.prefilling),
            prefill_tokens: on_grid(state.prefill_tokens),
            waiting: on_grid(state.waiting),
            head_tokens: on_grid(state.head_tokens),
            free_kv_blocks: on_grid(state.free_kv_blocks),
            ..state
        };
        let budget = *known.entry(state).or_insert_with(|| policy.budget(now, &state));
        // Without decodes the step has nothing else to compute: it must make progress.
        let least = u32::from(state.decoding == 0);
        Some(StepBudget {
            prefill_tokens: budget.prefill_tokens.max(least),
            prefill_requests: budget.prefill_requests.max(least),
            reserve: budget.reserve.min(state.total_kv_blocks),
        })
    }
}

impl Clone for BatchingChoice {
    fn clone(&self) -> Self {
        Self(self.0.as_ref().map(|(policy, known)| (policy.fork(), known.clone())))
    }
}

/// The largest number up to `number` that has at most four significant binary digits.
fn on_grid(number: u32) -> u32 {
    let shift = number.checked_ilog2().unwrap_or(0).saturating_sub(3);
    number >> shift << shift
}

/// The scheduling policy of an instance.
#[derive(Debug)]
pub enum SchedulingChoice {
    /// A policy of BLIS and vLLM, which the engine computes without a view.
    BuiltIn(Scheduler),
    /// A custom policy, such as a plugin.
    Custom(Box<dyn SchedulingPolicy>),
}

/// The preemption policy of an instance.
#[derive(Debug)]
pub enum PreemptionChoice {
    /// A policy of BLIS and vLLM, which the engine computes without a view.
    BuiltIn(Preemption),
    /// A custom policy, such as a plugin.
    Custom(Box<dyn PreemptionPolicy>),
}

/// The built-in orders of the waiting queue. Among equal ranks the earlier arrival is first, then the smaller request
/// id *as text* (`request_10` before `request_2`), which is what both vLLM and BLIS compare.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scheduler {
    /// First come, first served; preempted requests go to the front.
    #[default]
    Fcfs,
    /// Highest priority first (vLLM's `priority` policy).
    PriorityFcfs,
    /// Shortest job first: the request with the shortest prompt.
    Sjf,
    /// Lowest priority first: a bad policy on purpose, for comparison.
    ReversePriority,
}

/// The built-in choices of the preemption victim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Preemption {
    /// The request admitted last.
    #[default]
    Fcfs,
    /// The request of lowest priority; among equals the one that arrived last.
    Priority,
}

/// Sort key of a request in the waiting queue: the smallest is served first. The order is total, because ids are
/// unique.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct QueueKey {
    pub rank: Rank,
    arrival: Micros,
    id: TextOrder,
}

impl QueueKey {
    pub(super) fn new(rank: Rank, request: &Request) -> Self {
        Self { rank, arrival: request.arrival, id: TextOrder(request.id.0) }
    }
}

impl Scheduler {
    pub(super) fn key(self, request: &Request, turn: i64) -> QueueKey {
        let rank = match self {
            Self::Fcfs => turn,
            Self::PriorityFcfs => request.priority,
            Self::Sjf => i64::from(request.input_tokens),
            Self::ReversePriority => request.priority.saturating_neg(),
        };
        QueueKey::new(Rank::new(rank), request)
    }
}

/// The data for a [`QueuedView`], before the view is built.
pub(super) struct JoiningRequest<'a> {
    pub now: Micros,
    pub request: &'a Request,
    pub content: &'a Content,
    pub generated_tokens: u32,
    pub preemptions: u32,
    pub turn: i64,
}

impl SchedulingPolicy for Scheduler {
    fn rank(&mut self, request: &QueuedView<'_>) -> Rank {
        Rank::new(match self {
            Self::Fcfs => request.turn,
            Self::PriorityFcfs => request.priority,
            Self::Sjf => i64::from(request.request.input_tokens),
            Self::ReversePriority => request.priority.saturating_neg(),
        })
    }

    fn fork(&self) -> Box<dyn SchedulingPolicy> {
        Box::new(*self)
    }
}

impl PreemptionPolicy for Preemption {
    fn victim(&mut self, batch: &BatchView) -> usize {
        let rank = |i: usize| (batch.priority[i], batch.arrival[i]);
        let all = 0..batch.len();
        let victim = match self {
            Self::Fcfs => all.last(),
            Self::Priority if batch.last_of_ties => all.max_by_key(|&i| rank(i)),
            Self::Priority => all.rev().max_by_key(|&i| rank(i)),
        };
        victim.expect("the batch has at least one request")
    }

    fn fork(&self) -> Box<dyn PreemptionPolicy> {
        Box::new(*self)
    }
}

impl SchedulingChoice {
    pub(super) fn policy(&mut self) -> &mut dyn SchedulingPolicy {
        match self {
            Self::BuiltIn(scheduler) => scheduler,
            Self::Custom(policy) => policy.as_mut(),
        }
    }
}

impl PreemptionChoice {
    pub(super) fn policy(&mut self) -> &mut dyn PreemptionPolicy {
        match self {
            Self::BuiltIn(preemption) => preemption,
            Self::Custom(policy) => policy.as_mut(),
        }
    }
}

/// A clone forks the policy.
impl Clone for SchedulingChoice {
    fn clone(&self) -> Self {
        match self {
            Self::BuiltIn(scheduler) => Self::BuiltIn(*scheduler),
            Self::Custom(policy) => Self::Custom(policy.fork()),
        }
    }
}

/// A clone forks the policy.
impl Clone for PreemptionChoice {
    fn clone(&self) -> Self {
        match self {
            Self::BuiltIn(preemption) => Self::BuiltIn(*preemption),
            Self::Custom(policy) => Self::Custom(policy.fork()),
        }
    }
}

impl Default for SchedulingChoice {
    fn default() -> Self {
        Self::BuiltIn(Scheduler::default())
    }
}

impl Default for PreemptionChoice {
    fn default() -> Self {
        Self::BuiltIn(Preemption::default())
    }
}

impl From<Scheduler> for SchedulingChoice {
    fn from(scheduler: Scheduler) -> Self {
        Self::BuiltIn(scheduler)
    }
}

impl From<Preemption> for PreemptionChoice {
    fn from(preemption: Preemption) -> Self {
        Self::BuiltIn(preemption)
    }
}

/// A number that sorts like its decimal text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TextOrder(u32);

impl Ord for TextOrder {
    fn cmp(&self, other: &Self) -> Ordering {
        if self.0 == other.0 {
            return Ordering::Equal; // by far the most frequent case under FCFS
        }
        // Pad the shorter number with zeros; if that makes them equal, the shorter text is a prefix of the longer and
        // comes first.
        let digits = |n: u32| n.checked_ilog10().unwrap_or(0);
        let (a, b) = (digits(self.0), digits(other.0));
        let widest = a.max(b);
        let pad = |n: u32, d: u32| u64::from(n) * 10u64.pow(widest - d);
        pad(self.0, a).cmp(&pad(other.0, b)).then(a.cmp(&b))
    }
}

impl PartialOrd for TextOrder {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_sort_like_their_text(a: u32, b: u32, small_a in 0u32..200, small_b in 0u32..200) {
            prop_assert_eq!(TextOrder(a).cmp(&TextOrder(b)), a.to_string().cmp(&b.to_string()));
            prop_assert_eq!(
                TextOrder(small_a).cmp(&TextOrder(small_b)),
                small_a.to_string().cmp(&small_b.to_string())
            );
        }
    }
}
