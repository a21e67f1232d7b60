//! One serving instance: a waiting queue, a running batch, a KV cache and a latency model.
//!
//! There are two engines with the same results. [`Plain`] updates every running request at every step and is kept
//! simple enough to be checked by reading. [`Fast`] updates only requests to which something happens, and gives the
//! same results to the microsecond; property tests compare both.
//!
//! The states of a request, in either engine:
//!
//! ```text
//! arrive ─ queueing time ─► guards ─► waiting queue ─► running batch ─► finished
//!                             │          ▲  │            │
//!                          dropped       │  └ timed out ─┤
//!                                        └── preempted ──┘
//! ```
//!
//! With a CPU tier a request may go from the queue to the batch through a load, during which it holds KV blocks, and neither a
//! slot nor tokens of the budget (`offloading.rs`).
//!
//! Events of one instance at the same microsecond are executed in this order, each for a reason:
//!
//! | rank | event | reason |
//! |---|---|---|
//! | 0 | arrival | all other events see the requests of their own tick |
//! | 1 | queued | a step forms its batch from all requests that joined the queue by its start |
//! | 2 | adapter loaded | a step schedules requests with an adapter that is loaded by its start (BLIS only) |
//! | 3 | step | |
//! | 6 | timeout | a request that completes in a step that starts at its deadline has not timed out |
//!
//! If steps are planned ahead (asynchronous scheduling under a latency model that says so), a request that would join
//! the queue during a step joins it 1 µs after the start of the next step, which was planned before it came.
//!
//! The ranks are BLIS's; 4 and 5 are two markers without effect. Among equals the event scheduled
//! first is executed first.

#[cfg(test)]
pub(crate) mod agreement;
mod cache_events;
mod cadence;
mod config;
mod fast;
mod gates;
mod guards;
mod load_moments;
mod offloading;
mod plain;
mod policy;
mod prefilled;
mod record;
mod step_limits;
mod watchdog;

pub use config::{InstanceConfig, KvGroups, SchedulerOptions};
pub use fast::Fast;
pub(crate) use load_moments::LoadSampling;
pub use load_moments::{LoadMoments, SampledMoments};
pub(crate) use offloading::StoreFence;
pub use plain::Plain;
pub use policy::{InstancePolicies, Preemption, PreemptionChoice, Scheduler, SchedulingChoice};
pub use prefilled::KvRead;
pub use record::{InstanceLoad, StepRecord};
pub use watchdog::NoProgress;

use crate::adapters::AdapterReport;
use crate::ids::{InstanceIndex, RequestId};
use crate::observer::{Observer, SimEvent};
use crate::offload::{ChunkKey, CpuTier, PeerTier, SharedChunks};
use crate::outcome::Counters;
use crate::policy::kv_cache::CacheTier;
use crate::request::{BlockKey, Name, Request};

use crate::units::Micros;

/// Number of pointers between an instance and the data that [`Instance::prefetch`] requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrefetchDistance {
    /// The instance's own fields.
    Here,
    /// The queues and tables that the fields refer to.
    Parts,
    /// The request that finishes next.
    Request,
    /// The further data of that request.
    Rest,
}

impl PrefetchDistance {
    /// All distances, from near to far.
    pub const ALL: [Self; 4] = [Self::Here, Self::Parts, Self::Request, Self::Rest];
}

/// The operations on an instance that the event loop needs.
pub trait Instance {
    /// A request arrives at `now`, which is its arrival at the service or later. Arrivals are passed in order of time,
    /// before any other event of the same tick. Events before `now` need not have been executed.
    fn arrive(&mut self, now: Micros, request: impl Into<Box<Request>>);

    /// Time of the next event; `None` if there is none without a further arrival.
    fn next_event(&self) -> Option<Micros>;

    /// A time before which no event ends a request; `None` if none will without a further arrival. A caller that waits
    /// only for the ends of requests need not check earlier.
    fn next_end(&self) -> Option<Micros> {
        self.next_event()
    }

    /// The end of the last step that completed a request, if all requests have ended; `None` while it has others.
    fn idle_since(&self) -> Option<Micros>;

    /// As [`Self::next_end`], for the one request that is about to arrive at `now`.
    fn earliest_end(&self, now: Micros, _request: &Request) -> Micros {
        now
    }

    /// A hint that [`Self::advance`] will be called soon: prefetches the data at this `distance`. Each distance depends
    /// on data requested by the previous one, which takes some time to arrive.
    fn prefetch(&self, _distance: PrefetchDistance) {}

    /// Number of requests that have arrived and for which no event was executed since.
    fn pending_arrivals(&self) -> usize;

    /// Executes every event before `limit` (exclusive).
    ///
    /// # Errors
    /// [`NoProgress`] if the instance can make no progress.
    fn advance(&mut self, limit: Micros, observer: &mut impl Observer) -> Result<(), NoProgress>;

    /// As [`Self::advance`], and reports the load of this `instance` at its moments before `limit` ([`SimEvent::Load`]), and
    /// at those only before which it has had events.
    ///
    /// # Errors
    /// [`NoProgress`] if the instance can make no progress.
    fn advance_sampled(
        &mut self,
        limit: Micros,
        instance: InstanceIndex,
        moments: &mut LoadMoments,
        observer: &mut impl Observer,
    ) -> Result<(), NoProgress> {
        while moments.next_at() < limit {
            let at = moments.next_at();
            self.advance(at, observer)?;
            observer.record(&SimEvent::Load { instance, at, load: &self.load() });
            moments.sampled(self.next_event().unwrap_or(Micros::MAX), limit);
        }
        self.advance(limit, observer)
    }

    /// The load of the instance after the events executed so far: the effect of a step is visible from the start of the
    /// step on.
    fn load(&self) -> InstanceLoad;

    /// Tokens of the requests in the waiting queue that must be computed before their next token: their prompts, and what
    /// preempted ones had generated. Counts them one by one.
    fn waiting_tokens(&self) -> u64;

    /// Adds its LoRA adapters to `report`, which is empty. Reads the requests of the waiting queue one by one.
    fn adapters(&self, report: &mut AdapterReport);

    /// Whether a block with this content is in the prefix cache now.
    fn finds(&self, key: BlockKey) -> bool;

    /// The waiting queue in its order: [`Request::id`] of each request.
    fn queue(&self) -> Vec<RequestId>;

    /// Moves the waiting request `id` to the head of the waiting queue, against the scheduling policy. Returns `false`
    /// if it does not wait.
    fn serve_next(&mut self, id: RequestId) -> bool;

    /// Decides whether request `id` loads what the CPU tier has for it, against the policy; the next decision about it
    /// only. Without a policy that decides about loads it has no effect.
    fn force_load(&mut self, id: RequestId, loads: bool);

    /// Decides that `adapter` makes room when request `id` next needs some in `tier` for its own, against the policy, if it can
    /// then. Without a policy for adapters it has no effect.
    fn force_eviction(&mut self, id: RequestId, tier: CacheTier, adapter: Name);

    /// Ends request `id` at `now` ([`Status::Evicted`](crate::outcome::Status::Evicted)); all events before `now` were
    /// executed. Returns `false` if it is not here or has finished.
    fn evict(&mut self, now: Micros, id: RequestId, observer: &mut impl Observer) -> bool;

    /// From now on changes of the prefix cache are collected for [`Self::cache_changes`]. Without this call they cost
    /// nothing.
    fn watch_cache(&mut self);

    /// Removes and returns the changes that are published by `now`, up to which all events were executed: `each(key, present)` is
    /// called with each changed block and whether it was in the cache then. A key may occur more than once; the last call
    /// counts. Only blocks that requests may share are reported, never those of one request alone. Nothing is reported unless
    /// the cache is watched. Returns when the next of the other changes is published, if there are any.
    fn cache_changes(&mut self, now: Micros, each: &mut dyn FnMut(BlockKey, bool)) -> Option<Micros>;

    /// From now on changes of the CPU tier are collected for [`Self::tier_changes`]. Returns the number of KV blocks of a chunk,
    /// 0 without a tier.
    fn watch_tier(&mut self) -> u32;

    /// As [`Self::cache_changes`], of the chunks of the CPU tier, by the key of their last block. A chunk is there from the end of its
    /// store on, until `now`, up to which all events were executed; one that ends during the step under way may be there already.
    fn tier_changes(&mut self, now: Micros, each: &mut dyn FnMut(BlockKey, bool));

    /// Removes and returns the chunks that it has begun to write to storage that instances share, since the last call, with the
    /// times from which the others can read them.
    fn take_written_chunks(&mut self) -> Vec<(ChunkKey, Micros)>;

    /// The instances that share its storage, itself included, have written `content`.
    fn share_chunks(&mut self, content: &SharedChunks);

    /// The CPU tiers of other instances as it sees them, and its own; `None` if it does not fetch from others.
    fn peers(&mut self) -> Option<(&mut PeerTier, &mut CpuTier)>;

    /// Reserves KV blocks for the prompt of `request` after its prefill has ended elsewhere
    /// ([`reserves_before_decode`](crate::semantics::Semantics::reserves_before_decode)); the events before were executed.
    /// Returns `false` if there are not enough.
    fn reserve(&mut self, request: &Request) -> bool;

    /// The decode part of a request with reserved blocks joins the waiting queue at `now`, without queueing time.
    fn arrive_prefilled(&mut self, now: Micros, request: Box<Request>);

    /// A time before which the instance begins to read no KV blocks of a prefill instance; `None` if it will read none
    /// without a further arrival.
    fn next_read(&self) -> Option<Micros>;

    /// Removes and returns the reads that have begun since the last call.
    fn take_reads(&mut self) -> Vec<KvRead>;

    /// The KV blocks of request `id` have been read at `now`; the events before `now` were executed.
    fn read_ended(&mut self, now: Micros, id: RequestId);

    /// The KV blocks of the prefill of request `id` have been read elsewhere, or will not be: they are released at `now`; the
    /// events before `now` were executed.
    fn release_prefilled(&mut self, now: Micros, id: RequestId);

    /// Number of requests that hold KV blocks without being in queue or batch: prefills to be read, reservations, and reads for
    /// requests that have ended.
    fn pins(&self) -> usize;

    /// Ends the simulation at `horizon` (inclusive): reports the requests that are left, and returns the counters.
    fn finish(self, horizon: Micros, observer: &mut impl Observer) -> Counters;
}

/// Simulates one instance under `arrivals` (in order of time) up to and including `horizon`, without admission and
/// routing.
///
/// # Errors
/// [`NoProgress`] if the instance would execute for ever without completing a request.
pub fn run_alone<I: Instance>(
    mut instance: I,
    arrivals: impl IntoIterator<Item = Request>,
    horizon: Micros,
    observer: &mut impl Observer,
) -> Result<Counters, NoProgress> {
    for request in arrivals {
        if request.arrival > horizon {
            // What arrives after the horizon is not simulated.
            break;
        }
        instance.advance(request.arrival, observer)?;
        instance.arrive(request.arrival, request);
    }
    instance.advance(horizon.saturating_add(Micros(1)), observer)?;
    Ok(instance.finish(horizon, observer))
}
