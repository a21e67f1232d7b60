//! Policies inside an instance: the order of the wait queue, and who leaves the batch.
//!
//! They are part of an instance, which threads may share to copy it; hence `Sync`.

use std::fmt::Debug;

use super::RequestView;
use crate::request::{Request, Tags};
use crate::units::Micros;

/// The order of an instance's wait queue. Service is strictly from its head: a head that does not
/// fit holds up everybody behind it.
pub trait SchedulingPolicy: Debug + Send + Sync {
    /// The place of `request`, which joins the queue. It keeps it until it leaves the queue, and
    /// is asked about again if it comes back after a preemption.
    fn rank(&mut self, request: &QueuedView<'_>) -> Rank;

    /// A copy with the same state.
    fn fork(&self) -> Box<dyn SchedulingPolicy>;
}

/// Who leaves the running batch when KV blocks run out.
pub trait PreemptionPolicy: Debug + Send + Sync {
    /// Chooses the victim: a place in the columns of `batch`, which has at least one entry. Beyond
    /// the end means the last. Asked again as long as there is not enough room; choosing
    /// [`BatchView::wanting`] ends that.
    fn victim(&mut self, batch: &BatchView) -> usize;

    /// A copy with the same state.
    fn fork(&self) -> Box<dyn PreemptionPolicy>;
}

/// A place in a wait queue: the smaller is served first. Among equals it is the earlier arrival,
/// then the request id *as text* (`request_10` before `request_2`).
///
/// Made of a whole number or of a real one; the two do not compare in a meaningful way, so a policy
/// uses one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank(i64);

impl Rank {
    /// A whole number.
    #[must_use]
    pub fn new(rank: i64) -> Self {
        Self(rank)
    }

    /// What it was made of, if that was a whole number.
    #[must_use]
    pub fn number(self) -> i64 {
        self.0
    }

    /// The one just in front of it.
    #[must_use]
    pub fn before(self) -> Self {
        Self(self.0.saturating_sub(1))
    }

    /// A real number. Both zeros are equal; not-a-number comes behind everything.
    #[must_use]
    pub fn real(rank: f64) -> Self {
        if rank.is_nan() {
            return Self(i64::MAX);
        }
        // As integers, the bits of positive floats are in order and those of negative ones in
        // reverse; adding 0.0 makes -0.0 positive.
        let bits = (rank + 0.0).to_bits().cast_signed();
        Self(if bits < 0 { bits ^ i64::MAX } else { bits })
    }
}

/// A request that joins a wait queue, as its instance knows it.
#[derive(Clone, Copy, Debug)]
pub struct QueuedView<'a> {
    /// The time.
    pub now: Micros,
    /// What it was on arrival.
    pub request: RequestView<'a>,
    /// Its priority on the instance: lower is more urgent.
    pub priority: i64,
    /// Tokens generated so far; more than 0 only after a preemption.
    pub generated_tokens: u32,
    /// Times it was thrown out of the batch, this one included.
    pub preemptions: u32,
    /// Its number in the order of joining: up from 1 for those that come, down from -1 for those
    /// thrown out of the batch, which go to the front under first come, first served.
    pub turn: i64,
}

/// The running batch: a column each, in the order of admission.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BatchView {
    /// The time.
    pub now: Micros,
    /// Place of the request that needs room.
    pub wanting: usize,
    /// Built-in policies take, of equals, the one admitted last, as BLIS does; vLLM the first.
    pub last_of_ties: bool,
    /// Numbers in the workload.
    pub id: Vec<u32>,
    /// Priorities on the instance: lower is more urgent.
    pub priority: Vec<i64>,
    /// When each reached the service.
    pub arrival: Vec<Micros>,
    /// When each client gives up (absolute); `None` if never.
    pub deadline: Vec<Option<Micros>>,
    /// Urgency of its class: bigger is more urgent, below 0 may be shed.
    pub urgency: Vec<i32>,
    /// Names.
    pub tags: Vec<Tags>,
    /// Prompt length, tokens.
    pub input_tokens: Vec<u32>,
    /// Tokens whose KV is computed, before this step.
    pub computed_tokens: Vec<u32>,
    /// Tokens generated so far.
    pub generated_tokens: Vec<u32>,
    /// KV blocks held, shared ones included, with what this step gave it so far. Shared ones do not
    /// become free as long as others hold them.
    pub kv_blocks: Vec<u32>,
    /// Times it was thrown out of the batch before.
    pub preemptions: Vec<u32>,
}

/// What an engine knows of a running request besides the request itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    pub computed_tokens: u32,
    pub generated_tokens: u32,
    pub kv_blocks: u32,
    pub preemptions: u32,
}

impl BatchView {
    /// An empty batch.
    pub(crate) fn new(now: Micros, last_of_ties: bool) -> Self {
        Self { now, last_of_ties, ..Self::default() }
    }

    /// The next request in the order of admission.
    pub(crate) fn push(&mut self, request: &Request, urgency: i32, progress: Progress) {
        self.id.push(request.id);
        self.priority.push(request.priority);
        self.arrival.push(request.arrival);
        self.deadline.push(request.deadline);
        self.urgency.push(urgency);
        self.tags.push(request.tags);
        self.input_tokens.push(request.input_tokens);
        self.computed_tokens.push(progress.computed_tokens);
        self.generated_tokens.push(progress.generated_tokens);
        self.kv_blocks.push(progress.kv_blocks);
        self.preemptions.push(progress.preemptions);
    }

    /// Number of requests in the batch.
    #[must_use]
    pub fn len(&self) -> usize {
        self.id.len()
    }

    /// Whether nobody is in it; never when a policy is asked.
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
    fn zeros_are_equal_and_nonsense_comes_last() {
        assert_eq!(Rank::real(-0.0), Rank::real(0.0));
        assert!(Rank::real(f64::INFINITY) < Rank::real(f64::NAN));
        assert_eq!(Rank::real(f64::NAN), Rank::real(-f64::NAN));
        assert!(Rank::real(f64::NEG_INFINITY) < Rank::real(f64::MIN) && Rank::real(f64::MIN) < Rank::real(-1e-300));
        assert!(Rank::new(-3) < Rank::new(2));
    }
}
