//! Policies inside an instance: the order of the waiting queue, and the choice of the preemption victim.
//!
//! They are part of an instance, which may be copied while several threads share it; hence `Sync`.

use std::fmt::Debug;

pub use blis_abi::rows::{StepBudget, StepState};

use super::{RequestView, Ties};
use crate::ids::RequestId;
use crate::numbers::truncated_u32;
use crate::request::{Request, Tags};
use crate::units::Micros;

/// Decides the order of an instance's waiting queue. Service is strictly from the head: a head that does not fit blocks
/// all requests behind it.
pub trait SchedulingPolicy: Debug + Send + Sync {
    /// The rank of `request`, which joins the queue. It holds until the request leaves the queue; after a preemption
    /// the policy is called again.
    fn rank(&mut self, request: &QueuedView<'_>) -> Rank;

    /// A copy of the policy with the same state.
    fn fork(&self) -> Box<dyn SchedulingPolicy>;
}

/// Chooses the preemption victim when no KV blocks are free.
pub trait PreemptionPolicy: Debug + Send + Sync {
    /// Returns the index of the victim in the columns of `batch`, which has at least one entry. An index beyond the end
    /// means the last entry. Called again as long as there are not enough free blocks; choosing [`BatchView::requester`]
    /// ends that.
    fn victim(&mut self, batch: &BatchView) -> usize;

    /// A copy of the policy with the same state.
    fn fork(&self) -> Box<dyn PreemptionPolicy>;
}

/// Decides what a step may compute of prompts, and which KV blocks stay free.
pub trait BatchingPolicy: Debug + Send + Sync {
    /// The budget of a step that starts at `now` in `state`. It must depend on the state only.
    fn budget(&mut self, now: Micros, state: &StepState) -> StepBudget;

    /// A copy of the policy with the same state.
    fn fork(&self) -> Box<dyn BatchingPolicy>;
}

/// Sarathi: decodes and prompts share a budget of `tokens` in each step, so that its duration is bounded.
#[must_use]
pub fn sarathi(state: &StepState, tokens: u32) -> StepBudget {
    StepBudget { prefill_tokens: tokens.saturating_sub(state.decoding), ..StepBudget::default() }
}

/// SGLang's `new_token_ratio`, fixed: KV blocks stay free for `ratio` of `tokens` further tokens of every decoding request.
#[must_use]
pub fn sglang_ratio(state: &StepState, ratio: f64, tokens: f64) -> StepBudget {
    let reserved = (f64::from(state.decoding) * ratio * tokens / f64::from(state.block_size.max(1))).ceil();
    StepBudget { reserve: truncated_u32(reserved), ..StepBudget::default() }
}

/// Sort key in a waiting queue: the smallest rank is served first. Among equal ranks the earlier arrival is first, then
/// the smaller request id *as text* (`request_10` before `request_2`).
///
/// A rank is made from an integer or from a real number. The two kinds do not compare in a meaningful way, so a policy
/// must use only one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank(i64);

impl Rank {
    /// The rank for an integer: the smaller is served first.
    #[must_use]
    pub fn new(rank: i64) -> Self {
        Self(rank)
    }

    /// The integer from which the rank was made, if it was made from one.
    #[must_use]
    pub fn number(self) -> i64 {
        self.0
    }

    /// The rank immediately in front of this one.
    #[must_use]
    pub fn before(self) -> Self {
        Self(self.0.saturating_sub(1))
    }

    /// The rank for a real number. Both zeros are equal; NaN ranks behind everything.
    #[must_use]
    pub fn real(rank: f64) -> Self {
        if rank.is_nan() {
            return Self(i64::MAX);
        }
        // Read as integers, the bits of positive floats are in ascending order and those of negative floats in
        // descending order; adding 0.0 makes -0.0 positive.
        let bits = (rank + 0.0).to_bits().cast_signed();
        Self(if bits < 0 { bits ^ i64::MAX } else { bits })
    }
}

/// A request that joins a waiting queue, as its instance sees it.
#[derive(Clone, Copy, Debug)]
pub struct QueuedView<'a> {
    /// Time at which it joins.
    pub now: Micros,
    /// The request as it was on arrival.
    pub request: RequestView<'a>,
    /// Its priority on the instance: lower is served first.
    pub priority: i64,
    /// Tokens generated so far; more than 0 only after a preemption.
    pub generated_tokens: u32,
    /// Number of times it was preempted, including the preemption that put it here.
    pub preemptions: u32,
    /// Sequence number of joining: 1, 2, … for arriving requests, −1, −2, … for preempted ones, which go to the front
    /// of the queue under first come, first served.
    pub turn: i64,
}

/// The running batch: a column for each property, in the order of admission.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BatchView {
    /// Time of the decision.
    pub now: Micros,
    /// Index of the request that needs KV blocks.
    pub requester: usize,
    /// Tie-breaking of built-in policies: among equals they choose the request admitted last, as BLIS does; otherwise
    /// the first, as vLLM does.
    pub last_of_ties: bool,
    /// The requests.
    pub id: Vec<RequestId>,
    /// Priorities on the instance: lower is served first.
    pub priority: Vec<i64>,
    /// Times at which they reached the service.
    pub arrival: Vec<Micros>,
    /// Times at which their clients time out (absolute); `None` if never.
    pub deadline: Vec<Option<Micros>>,
    /// Priorities of their service classes: higher is served first, below 0 may be shed.
    pub class_priority: Vec<i32>,
    /// Service classes, tenants, sessions and other metadata.
    pub tags: Vec<Tags>,
    /// Lengths of the prompts, tokens.
    pub input_tokens: Vec<u32>,
    /// Tokens for which KV was computed before this step.
    pub computed_tokens: Vec<u32>,
    /// Tokens generated so far.
    pub generated_tokens: Vec<u32>,
    /// KV blocks held, including shared ones and those allocated by this step so far. A shared block does not become
    /// free as long as another request holds it.
    pub kv_blocks: Vec<u32>,
    /// Number of times each was preempted before.
    pub preemptions: Vec<u32>,
}

/// Progress of a running request, which only the engine has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    pub computed_tokens: u32,
    pub generated_tokens: u32,
    pub kv_blocks: u32,
    pub preemptions: u32,
}

impl BatchView {
    /// An empty batch at time `now`.
    pub(crate) fn new(now: Micros, last_of_ties: bool) -> Self {
        Self { now, last_of_ties, ..Self::default() }
    }

    /// Appends the next request in the order of admission.
    pub(crate) fn push(&mut self, request: &Request, class_priority: i32, progress: Progress) {
        self.id.push(request.id);
        self.priority.push(request.priority);
        self.arrival.push(request.arrival);
        self.deadline.push(request.deadline);
        self.class_priority.push(class_priority);
        self.tags.push(request.tags);
        self.input_tokens.push(request.input_tokens);
        self.computed_tokens.push(progress.computed_tokens);
        self.generated_tokens.push(progress.generated_tokens);
        self.kv_blocks.push(progress.kv_blocks);
        self.preemptions.push(progress.preemptions);
    }

    /// Which of several equally good victims the built-in policies choose.
    #[must_use]
    pub fn ties(&self) -> Ties {
        if self.last_of_ties { Ties::HighestIndex } else { Ties::LowestIndex }
    }

    /// Number of requests in the batch.
    #[must_use]
    pub fn len(&self) -> usize {
        self.id.len()
    }

    /// Whether the batch is empty; never when a policy is called.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.id.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn real_ranks_are_in_the_order_of_their_numbers(a: f64, b: f64) {
            let by_number = match (a.is_nan(), b.is_nan()) {
                (false, false) => a.partial_cmp(&b).expect("numbers"),
                (a, b) => a.cmp(&b),
            };
            prop_assert_eq!(Rank::real(a).cmp(&Rank::real(b)), by_number);
        }
    }

    #[test]
    fn zeros_are_equal_and_nan_ranks_last() {
        assert_eq!(Rank::real(-0.0), Rank::real(0.0));
        assert!(Rank::real(f64::INFINITY) < Rank::real(f64::NAN));
        assert_eq!(Rank::real(f64::NAN), Rank::real(-f64::NAN));
        assert!(Rank::real(f64::NEG_INFINITY) < Rank::real(f64::MIN) && Rank::real(f64::MIN) < Rank::real(-1e-300));
        assert!(Rank::new(-3) < Rank::new(2));
    }
}
