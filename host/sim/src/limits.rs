//! Every bound of a loop, a queue or a table in the simulator.
//!
//! Two bounds change results: [`USELESS_IN_A_ROW`] ends a simulation that goes nowhere, and [`GPUS`] ends a search for
//! enough GPUs. All others trade memory for time: beyond them the same answer takes the slow way, or room is
//! made. Figures that belong to a policy are its parameters, and live with it.

// What ends.

/// Preemptions and empty steps in a row before progress is measured. Tests have small instances, and less patience.
pub(crate) const USELESS_IN_A_ROW: u32 = if cfg!(test) { 20 } else { 1000 };

/// GPUs in a tensor-parallel group: 2¹⁰, the most of `--tensor-parallel-size`.
pub(crate) const GPUS: f64 = 1024.0;

// The cluster.

/// Requests an instance may be behind. Enough to work for a while on what is at hand.
pub(crate) const UNTOUCHED_REQUESTS: usize = 32;

/// Instances that stay in the processor's caches anyway: no more are asked of memory beforehand.
pub(crate) const INSTANCES_AT_HAND: usize = 8;

/// Changes of requests in flight worth knowing one by one: whoever looks less often looks at all instances.
pub(crate) const IN_FLIGHT_CHANGES: usize = 512;

// The fast engine.

/// Requests for which there is room from the start. What grows from nothing is copied again and
/// again, and for most instances a simulation is not long enough to pay for that. But queues go round
/// in all the room they have, and with many instances that shall fit the caches.
pub(crate) const USUAL_REQUESTS: usize = 128;

/// Shortest run of equal steps worth searching for: the search asks the latency model a few times.
pub(crate) const EQUAL_STEPS: u64 = 4;

/// Entries of the step log before anybody looks for what can be dropped.
pub(crate) const STEP_LOG_ENTRIES: usize = 192;

/// Gaps in the order of the batch that are not worth closing, beside three for each running request.
pub(crate) const ORDER_GAPS: usize = 256;

/// Deadlines of ended requests that are not worth forgetting, beside half of all.
pub(crate) const DEADLINES_GONE: usize = 32;

// The KV cache.

/// Changes of findable blocks that are not worth looking through for those that cancel out.
pub(crate) const CACHE_CHANGES: usize = if cfg!(test) { 8 } else { 1024 };

// Metrics.

/// Inter-token latencies of all instances written down before they are handed on: 32 KiB.
pub(crate) const RECENT_GAPS: usize = 4096;

/// Instances whose histograms are at hand anyway: theirs are not written down first.
pub(crate) const HISTOGRAMS_AT_HAND: usize = 8;

/// Durations of an instance listed before they are counted: 64 KiB, less than the counters of as many values take.
pub(crate) const LISTED_DURATIONS: usize = 8192;

/// Durations below have counters in pages, µs: 256 pages at most, 1 MiB. A step seldom takes longer (131 ms).
pub(crate) const DENSE_DURATIONS_US: u64 = 1 << 17;

/// Outcomes of an instance written down before they are sorted in.
pub(crate) const RECENT_OUTCOMES: usize = 64;

/// Samples for which there is room to begin with: 2 KiB. What grows from nothing is copied again and again.
pub(crate) const FIRST_SAMPLES: usize = 512;

// Latency models.

/// Tokens of a step of which `physics` keeps a table: 64 kB.
pub(crate) const PHYSICS_TOKENS: u64 = 8192;

/// Requests of a step of which `physics` keeps a table: 8 kB.
pub(crate) const PHYSICS_REQUESTS: u64 = 1024;

/// Tokens of a step of which `roofline` keeps a table of weights read: 64 kB. Only extremely sparse models have more.
pub(crate) const ROOFLINE_TOKENS: u64 = 8192;
