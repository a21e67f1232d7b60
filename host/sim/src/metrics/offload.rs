//! Figures of CPU tiers.

use super::Distribution;
use crate::offload::SecondaryCounters;
use crate::outcome::{Counters, OffloadCounters, Outcome};
use crate::units::Micros;

/// What the CPU tiers of all instances did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OffloadReport {
    /// The sums over the instances.
    pub counters: OffloadCounters,
    /// Prompt tokens that requests found in the prefix cache of the GPU at their first admission.
    pub gpu_hit_tokens: u64,
    /// Prompt tokens that they loaded from the CPU tier then.
    pub cpu_hit_tokens: u64,
    /// Times for which requests waited for loads; of those that loaded something.
    pub load_wait: Distribution,
}

/// The data of an [`OffloadReport`].
#[derive(Clone, Debug, Default)]
pub(super) struct OffloadSamples {
    gpu_hit_tokens: u64,
    cpu_hit_tokens: u64,
    load_waits: Vec<Micros>,
}

impl OffloadSamples {
    pub fn add(&mut self, outcome: &Outcome) {
        self.cpu_hit_tokens += u64::from(outcome.cpu_cached_tokens);
        self.gpu_hit_tokens += u64::from(outcome.cached_tokens.saturating_sub(outcome.cpu_cached_tokens));
        if outcome.kv_load_wait > Micros::ZERO {
            self.load_waits.push(outcome.kv_load_wait);
        }
    }

    /// Reorders the samples.
    pub fn report(&mut self, instances: &[Counters]) -> OffloadReport {
        let mut counters = OffloadCounters::default();
        instances.iter().for_each(|instance| counters.add(&instance.offload));
        OffloadReport {
            counters,
            gpu_hit_tokens: self.gpu_hit_tokens,
            cpu_hit_tokens: self.cpu_hit_tokens,
            load_wait: Distribution::from_samples(&mut self.load_waits),
        }
    }
}

impl SecondaryCounters {
    fn add(&mut self, other: &Self) {
        self.read_bytes += other.read_bytes;
        self.written_bytes += other.written_bytes;
        self.refused += other.refused;
        self.dropped += other.dropped;
        self.hit_tokens += other.hit_tokens;
        self.hit_tokens_of_others += other.hit_tokens_of_others;
    }
}

impl OffloadCounters {
    pub(super) fn add(&mut self, other: &Self) {
        self.loads += other.loads;
        self.loaded_bytes += other.loaded_bytes;
        self.stored_bytes += other.stored_bytes;
        self.skipped += other.skipped;
        self.refused += other.refused;
        self.evicted += other.evicted;
        self.flushes += other.flushes;
        self.flush_time += other.flush_time;
        self.secondary.add(&other.secondary);
    }
}
