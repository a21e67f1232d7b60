//! The built-in scheduling and preemption policies of an instance, and the calls of custom ones.

use std::cmp::Ordering;

use crate::policy::kv_cache::KvCacheChoice;
use crate::policy::{BatchView, PreemptionPolicy, QueuedView, Rank, SchedulingPolicy};
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
