//! Every bound of a loop, a queue or a table in the simulator.
//!
//! Three bounds change results: [`STEPS_WITHOUT_PROGRESS`] and [`IDLE_TICKS`] end a simulation that makes no progress, and
//! [`GPUS`] ends a search for enough GPUs. All others trade memory for time: beyond them the same result is computed by the slow path,
//! or a buffer is compacted. Constants that belong to a policy are its parameters and stand beside it.

// Bounds that end something.

/// Preemptions and empty steps in a row before progress is measured. Tests have small instances and use a smaller
/// bound.
pub(crate) const STEPS_WITHOUT_PROGRESS: u32 = if cfg!(test) { 20 } else { 1000 };

/// GPUs in a tensor-parallel group: 2¹⁰, the maximum of `--tensor-parallel-size`.
pub(crate) const GPUS: f64 = 1024.0;

/// Ticks of the gateway's queue in a row, without any other event, before the simulation ends: 100 s at a tick every
/// millisecond.
pub(crate) const IDLE_TICKS: u32 = 100_000;

// The cluster.

/// Requests that may wait to be handed to an instance before it catches up. The number is large enough that the
/// instance works for a while on data that is in the cache.
pub(crate) const PENDING_ARRIVALS: usize = 32;

/// Number of instances that stay in the processor's caches anyway. With no more than that, nothing is prefetched.
pub(crate) const INSTANCES_AT_HAND: usize = 8;

/// Changes of the requests in flight that are listed one by one. A reader that falls further behind reads all
/// instances.
pub(crate) const IN_FLIGHT_CHANGES: usize = 512;

// The fast engine.

/// Requests for which memory is reserved from the start. A vector that grows from empty is copied repeatedly, and the
/// simulation of most instances is too short to amortise that. On the other hand, queues cycle through all the memory
/// they have, and with many instances that memory must fit the caches.
pub(crate) const USUAL_REQUESTS: usize = 128;

/// Shortest run of equal steps worth searching for: the search calls the latency model several times.
pub(crate) const EQUAL_STEPS: u64 = 4;

/// Entries of the step log before it is searched for entries that can be dropped.
pub(crate) const STEP_LOG_ENTRIES: usize = 192;

/// Gaps in the order of the batch that are not worth closing, in addition to three for each running request.
pub(crate) const ORDER_GAPS: usize = 256;

/// Deadlines of ended requests that are not worth removing, in addition to half of all deadlines.
pub(crate) const DEADLINES_GONE: usize = 32;

// The KV cache.

/// Changes of the set of cached blocks before the list is searched for changes that cancel each other.
pub(crate) const CACHE_CHANGES: usize = if cfg!(test) { 8 } else { 1024 };

// Metrics.

/// Inter-token latencies of all instances that are buffered before they are counted: 32 KiB.
pub(crate) const RECENT_GAPS: usize = 4096;

/// Number of instances for which the histograms stay in the processor's caches anyway: nothing is buffered for them.
pub(crate) const HISTOGRAMS_AT_HAND: usize = 8;

/// Durations of an instance that are listed before they are counted: 64 KiB, less than the counters of as many values
/// take.
pub(crate) const LISTED_DURATIONS: usize = 8192;

/// Durations below this bound have counters in pages, µs: at most 256 pages, 1 MiB. A step seldom takes longer (131
/// ms).
pub(crate) const DENSE_DURATIONS_US: u64 = 1 << 17;

/// Outcomes of an instance that are buffered before they are sorted.
pub(crate) const RECENT_OUTCOMES: usize = 64;

/// Samples for which memory is reserved from the start: 2 KiB. A vector that grows from empty is copied repeatedly.
pub(crate) const FIRST_SAMPLES: usize = 512;

// Latency models.

/// Number of tokens in a step up to which `physics` keeps a table: 64 kB.
pub(crate) const PHYSICS_TOKENS: u64 = 8192;

/// Number of requests in a step up to which `physics` keeps a table: 8 kB.
pub(crate) const PHYSICS_REQUESTS: u64 = 1024;

/// Number of tokens in a step up to which `roofline` keeps a table of weights read: 64 kB. Only extremely sparse models
/// need more.
pub(crate) const ROOFLINE_TOKENS: u64 = 8192;
