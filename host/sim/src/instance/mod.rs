//! One serving instance: a wait queue, a running batch, a KV cache and a latency model.
//!
//! There are two engines with one truth. [`Plain`] touches every running request at every step
//! and is kept simple enough to be believed. [`Fast`] touches only requests to which something
//! happens and gives the same answers to the microsecond; property tests hold them together.
//!
//! The life of a request, in either:
//!
//! ```text
//! arrive ─ queueing time ─► guards ─► wait queue ─► running batch ─► finished
//!                             │          ▲  │            │
//!                          dropped       │  └ timed out ─┤
//!                                        └── preempted ──┘
//! ```
//!
//! Events of one instance at the same microsecond happen in this order, each for a reason:
//!
//! | rank | event | why there |
//! |---|---|---|
//! | 0 | arrival | everything else sees the requests of its own tick |
//! | 1 | queued | a step forms its batch from all requests that made it into the queue by its start |
//! | 3 | step | |
//! | 6 | timeout | a request that completes in a step that starts at its deadline has made it |
//!
//! Ranks are BLIS's; 2, 4 and 5 are adapter loads and two markers without effect. Among equals
//! the first one scheduled goes first.

#[cfg(test)]
mod agreement;
mod fast;
mod guards;
mod plain;
mod policy;
mod record;
mod watchdog;

use std::sync::Arc;

pub use fast::Fast;
pub use plain::Plain;
pub use policy::{Preemption, PreemptionChoice, Scheduler, SchedulingChoice};
pub use record::StepRecord;
pub use watchdog::Stuck;

use crate::latency::LatencyModel;
use crate::observer::{Observer, SimEvent};
use crate::outcome::Counters;
use crate::policy::Classes;
use crate::request::{BlockKey, Request};
use crate::semantics::Semantics;
use crate::units::Micros;

/// What one instance is made of. A copy has copies of the policies.
#[derive(Clone, Debug)]
#[repr(C)]
pub struct InstanceConfig {
    /// How long a step takes.
    pub latency: Arc<dyn LatencyModel>,
    /// Its number in the cluster, from 0.
    pub index: u32,
    /// Most requests in the running batch (vLLM `max_num_seqs`), ≥ 1.
    pub max_num_seqs: u32,
    /// Token budget of one step (vLLM `max_num_batched_tokens`), ≥ 1.
    pub max_num_batched_tokens: u32,
    /// Tokens per KV block, ≥ 1.
    pub block_size: u32,
    /// Usable KV blocks, ≥ 1. (vLLM's `num_gpu_blocks` includes one null block.)
    pub total_kv_blocks: u32,
    /// Cap on one request's prefill tokens per step; 0 for none.
    pub long_prefill_token_threshold: u32,
    /// Longest prompt plus answer, tokens; `None` for unlimited.
    pub max_model_len: Option<u32>,
    /// Whether blocks are found again by content.
    pub enable_prefix_caching: bool,
    /// Whether a prompt may be split over steps. If not, one that exceeds the budget left waits.
    pub enable_chunked_prefill: bool,
    /// vLLM's asynchronous scheduling: a step is planned before the previous one's output is
    /// known, so a finished request keeps its place and KV for one more plan.
    pub async_scheduling: bool,
    /// Admit a request only if its whole prompt fits the free KV (vLLM's
    /// `scheduler_reserve_full_isl`): far fewer preemptions under pressure.
    pub reserve_full_prompt: bool,
    /// vLLM's or BLIS's ways.
    pub semantics: Semantics,
    /// Order of the wait queue.
    pub scheduler: SchedulingChoice,
    /// Who leaves when KV runs out.
    pub preemption: PreemptionChoice,
    /// How urgent the SLO classes are. Only policies that are not built in look.
    pub classes: Arc<Classes>,
}

impl InstanceConfig {
    /// What observers are told: `count` inter-token latencies of `gap` happened here.
    #[inline]
    fn latencies(&self, gap: Micros, count: u64) -> SimEvent<'static> {
        SimEvent::InterTokenLatency { instance: self.index, gap, count }
    }
}

/// What an instance reports about itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Requests in the wait queue; not those between arrival and queue.
    pub queue_depth: u32,
    /// Requests in the running batch, with those that keep their place for one more plan
    /// (asynchronous scheduling).
    pub batch_size: u32,
    /// KV blocks that some request holds.
    pub used_kv_blocks: u32,
    /// All usable KV blocks.
    pub total_kv_blocks: u32,
    /// Requests thrown out of the batch since the start.
    pub preemptions: u64,
    /// Prefix-cache look-ups since the start that found their block.
    pub cache_hits: u64,
    /// KV blocks taken fresh since the start.
    pub cache_misses: u64,
}

/// How far from an instance, for [`Instance::prefetch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distance {
    /// The instance itself.
    Here,
    /// Its queues and tables.
    Parts,
    /// The request that finishes next.
    Request,
    /// What is known of that.
    Rest,
}

impl Distance {
    /// In the order in which to go.
    pub const ALL: [Self; 4] = [Self::Here, Self::Parts, Self::Request, Self::Rest];
}

/// What the event loop needs of an instance.
pub trait Instance {
    /// A request arrives at `now`, which is its arrival at the service or later. Arrivals come in
    /// order of time, before any event of the same tick. Events before `now` need not have been
    /// executed.
    fn arrive(&mut self, now: Micros, request: Request);

    /// Time of the next event; `None` when nothing will ever happen by itself.
    fn next_event(&self) -> Option<Micros>;

    /// No request ends in an event before this; `None` when none ever will by itself. Whoever only
    /// waits for requests to end need not look earlier.
    fn next_end(&self) -> Option<Micros> {
        self.next_event()
    }

    /// As [`Self::next_end`], for the one request that is about to arrive at `now`.
    fn earliest_end(&self, now: Micros, _request: &Request) -> Micros {
        now
    }

    /// A hint that [`Self::advance`] comes soon: what it will look at is asked of memory, as far as
    /// `distance` pointers away. Each distance wants what the one before has asked for, which takes a while.
    fn prefetch(&self, _distance: Distance) {}

    /// Requests that have arrived, and that no event has touched since.
    fn untouched(&self) -> usize;

    /// Executes every event before `limit` (exclusive).
    ///
    /// # Errors
    /// [`Stuck`] if the instance can make no progress.
    fn advance(&mut self, limit: Micros, observer: &mut impl Observer) -> Result<(), Stuck>;

    /// What the instance reports about itself, after the events executed so far: a step's effect
    /// shows from the start of the step on.
    fn load(&self) -> Load;

    /// Whether a block with this content can be found in the prefix cache now.
    fn finds(&self, key: BlockKey) -> bool;

    /// Requests in the wait queue, in its order: [`Request::id`].
    fn queue(&self) -> Vec<u32>;

    /// Moves the waiting request `id` to the head of the wait queue, against the scheduling policy. `false`
    /// if it does not wait.
    fn serve_next(&mut self, id: u32) -> bool;

    /// From now on changes of the prefix cache are kept for [`Self::cache_changes`]. What is not
    /// watched costs nothing.
    fn watch_cache(&mut self);

    /// Takes what changed since the last call: `each(key, present)` says whether the block `key`
    /// can be found now. A key may come more than once; the last word counts. Only keys that
    /// requests may share, never those of one request alone. Nothing if the cache is not watched.
    fn cache_changes(&mut self, each: &mut dyn FnMut(BlockKey, bool));

    /// Ends the simulation at `horizon` (inclusive): reports what is left, and the counters.
    fn finish(self, horizon: Micros, observer: &mut impl Observer) -> Counters;
}

/// Simulates one instance under `arrivals` (in order of time) up to and including `horizon`, with
/// nothing in front of it.
///
/// # Errors
/// [`Stuck`] if the instance would work for ever without finishing anything.
pub fn run_alone<I: Instance>(
    mut instance: I,
    arrivals: impl IntoIterator<Item = Request>,
    horizon: Micros,
    observer: &mut impl Observer,
) -> Result<Counters, Stuck> {
    for request in arrivals {
        if request.arrival > horizon {
            break;
        }
        instance.advance(request.arrival, observer)?;
        instance.arrive(request.arrival, request);
    }
    instance.advance(horizon.saturating_add(Micros(1)), observer)?;
    Ok(instance.finish(horizon, observer))
}
