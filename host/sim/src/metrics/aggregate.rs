//! The figures of one instance, and of all instances together.

use super::counts::Counts;
use super::distribution::{Distribution, Samples};
use crate::limits::RECENT_OUTCOMES;
use crate::outcome::{Counters, Outcome, Status, Thrashing};
use crate::units::Micros;

/// The figures of one instance or of the cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Aggregate {
    /// Requests by their final status. Those that reached no instance are only counted for the cluster.
    pub counts: Counts,
    /// The instance's own counters; for the cluster their sums, and the latest clock.
    pub counters: Counters,
    /// Simulated time after the warm-up: until the last executed event, at most the horizon. For the cluster: the longest.
    pub duration: Micros,
    /// [`PrefixCacheCounters::hit_rate`](crate::outcome::PrefixCacheCounters::hit_rate), 0 to 1; 0 without look-ups. For the cluster: the mean over its instances, as
    /// published.
    pub cache_hit_rate: f64,
    /// [`Thrashing::rate`] of BLIS's tiers, if there are any. For the cluster: the mean over its instances.
    pub kv_thrashing_rate: Option<f64>,
    /// Mean number of requests in the waiting queue over the duration *of the cluster*, so that instances are
    /// comparable; for the cluster: in all waiting queues together.
    pub mean_queue_length: f64,
    /// Time to first token of every request that generated one, completed or not.
    pub ttft: Distribution,
    /// Inter-token latencies of completed requests, pooled.
    pub itl: Distribution,
    /// End-to-end latency of completed requests.
    pub e2e: Distribution,
    /// Time from arrival to (last) admission into the batch, of every request ever admitted to it.
    pub scheduling_delay: Distribution,
}

impl Aggregate {
    /// Completed requests per simulated second; 0 if no time passed.
    #[must_use]
    pub fn responses_per_second(&self) -> f64 {
        per_second(self.counts.completed, self.duration)
    }

    /// Output tokens of completed requests per simulated second; 0 if no time passed.
    #[must_use]
    pub fn tokens_per_second(&self) -> f64 {
        per_second(self.counts.output_tokens, self.duration)
    }
}

/// Events per second; 0 if no time passed.
pub(super) fn per_second(count: u64, duration: Micros) -> f64 {
    if duration == Micros::ZERO { 0.0 } else { count as f64 / duration.as_secs_f64() }
}

/// The samples and counts of an [`Aggregate`].
///
/// Every instance has one, and with many instances they do not fit the processor's caches. Outcomes are therefore
/// buffered in one buffer per instance and sorted some dozens at a time.
#[derive(Clone, Debug, Default)]
pub(super) struct InstanceSamples {
    /// Outcomes that are not sorted yet.
    recent: Vec<EndedRequest>,
    pub counts: Counts,
    ttft: Samples,
    e2e: Samples,
    scheduling_delay: Samples,
}

/// The parts of an outcome that are counted: half a cache line.
#[derive(Clone, Copy, Debug)]
struct EndedRequest {
    /// TTFT, end-to-end latency and scheduling delay in µs; [`EndedRequest::NONE`] where there is none.
    latencies: [u64; 3],
    generated_tokens: u32,
    status: Status,
}

impl EndedRequest {
    /// Marks a missing latency: no duration is that long.
    const NONE: u64 = u64::MAX;
}

impl InstanceSamples {
    pub fn add(&mut self, outcome: &Outcome) {
        if self.recent.len() == RECENT_OUTCOMES {
            self.flush();
        }
        let &Outcome { status, generated_tokens, ttft, e2e, scheduling_delay, .. } = outcome;
        let latencies =
            [ttft, e2e, scheduling_delay].map(|latency| latency.map_or(EndedRequest::NONE, |Micros(us)| us));
        if self.recent.capacity() == 0 {
            self.recent.reserve(RECENT_OUTCOMES);
        }
        self.recent.push(EndedRequest { latencies, generated_tokens, status });
    }

    /// The samples of both.
    pub fn with(&mut self, other: &mut Self) -> Self {
        self.flush();
        other.flush();
        let mut counts = self.counts;
        counts.add(&other.counts);
        let merged = |of: fn(&Self) -> &Samples| Samples::merged([&*self, &*other].into_iter().map(of));
        Self {
            recent: Vec::new(),
            counts,
            ttft: merged(|part| &part.ttft),
            e2e: merged(|part| &part.e2e),
            scheduling_delay: merged(|part| &part.scheduling_delay),
        }
    }

    /// Sorts the buffered outcomes; called before the samples are read.
    pub fn flush(&mut self) {
        let mut recent = std::mem::take(&mut self.recent);
        for ended in recent.drain(..) {
            self.counts.count(ended.status, ended.generated_tokens);
            let samples = [&mut self.ttft, &mut self.e2e, &mut self.scheduling_delay];
            for (samples, us) in samples.into_iter().zip(ended.latencies) {
                samples.extend((us != EndedRequest::NONE).then_some(Micros(us)));
            }
        }
        self.recent = recent;
    }

    /// The figures of the time from `warmup` to `horizon`. `itl` are its inter-token latencies; `whole` is the duration of the cluster
    /// with the warm-up. Without `latencies` all of them are empty.
    pub fn aggregate(
        &mut self,
        itl: Distribution,
        latencies: bool,
        counters: &Counters,
        warmup: Micros,
        horizon: Micros,
        whole: Micros,
    ) -> Aggregate {
        self.flush();
        let of = |samples: &mut Samples| if latencies { samples.distribution() } else { Distribution::default() };
        Aggregate {
            counts: self.counts,
            counters: *counters,
            duration: counters.clock.min(horizon).saturating_sub(warmup),
            cache_hit_rate: counters.prefix_cache.hit_rate().unwrap_or(0.0),
            kv_thrashing_rate: counters.thrashing.map(Thrashing::rate),
            mean_queue_length: mean_queue_length(counters, whole),
            ttft: of(&mut self.ttft),
            itl,
            e2e: of(&mut self.e2e),
            scheduling_delay: of(&mut self.scheduling_delay),
        }
    }
}

/// The figures of all instances together. `parts` are their samples, and those of requests that reached no instance;
/// `duration` is that without the warm-up, `whole` that with it. Without `delays` there are no scheduling delays.
pub(super) fn cluster(
    parts: &[&InstanceSamples],
    itl: Distribution,
    delays: bool,
    instances: &[Aggregate],
    duration: Micros,
    whole: Micros,
) -> Aggregate {
    let mut counts = Counts::default();
    parts.iter().for_each(|part| counts.add(&part.counts));
    let mut counters = Counters::default();
    instances.iter().for_each(|instance| add(&mut counters, &instance.counters));
    // One after the other, because each copies its samples.
    let merged =
        |of: fn(&InstanceSamples) -> &Samples| Samples::merged(parts.iter().map(|part| of(part))).distribution();
    Aggregate {
        counts,
        counters,
        duration,
        cache_hit_rate: instances.iter().map(|instance| instance.cache_hit_rate).sum::<f64>() / instances.len() as f64,
        kv_thrashing_rate: (instances.iter().map(|instance| instance.kv_thrashing_rate).sum::<Option<f64>>())
            .filter(|_| !instances.is_empty())
            .map(|sum| sum / instances.len() as f64),
        mean_queue_length: mean_queue_length(&counters, whole),
        ttft: merged(|part| &part.ttft),
        itl,
        e2e: merged(|part| &part.e2e),
        scheduling_delay: if delays { merged(|part| &part.scheduling_delay) } else { Distribution::default() },
    }
}

/// Mean queue length over `duration`, by Little's law.
fn mean_queue_length(counters: &Counters, duration: Micros) -> f64 {
    if duration == Micros::ZERO { 0.0 } else { counters.queue_time.0 as f64 / duration.0 as f64 }
}

fn add(sum: &mut Counters, other: &Counters) {
    sum.clock = sum.clock.max(other.clock);
    sum.steps += other.steps;
    sum.preemptions += other.preemptions;
    sum.preemption_time += other.preemption_time;
    sum.kv_allocation_failures += other.kv_allocation_failures;
    sum.prefix_cache.add(&other.prefix_cache);
    sum.recomputed_tokens += other.recomputed_tokens;
    if let Some(Thrashing { events, of }) = other.thrashing {
        let sum = sum.thrashing.get_or_insert_default();
        (sum.events, sum.of) = (sum.events + events, sum.of + of);
    }
    sum.input_tokens += other.input_tokens;
    sum.queue_time += other.queue_time;
    sum.offload.add(&other.offload);
    sum.adapter_uses += other.adapter_uses;
    sum.slot_wait += other.slot_wait;
}
