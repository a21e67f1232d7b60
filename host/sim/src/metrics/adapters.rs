//! The figures of LoRA adapters, of each instance and of the cluster.

use std::collections::BTreeMap;

use super::aggregate::per_second;
use super::distribution::{Distribution, Samples};
use crate::outcome::{AdapterChange, AdapterEvent, Outcome, Status};
use crate::request::Name;
use crate::units::Micros;

/// The figures of one LoRA adapter.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct AdapterFigures {
    /// How often it was read from disk.
    pub loads_from_disk: u64,
    /// How often it was copied from the host's memory.
    pub loads_from_host: u64,
    /// How often it lost its slot on a GPU.
    pub evictions: u64,
    /// Completed requests that named it.
    pub completed: u64,
    /// Output tokens of these requests.
    pub output_tokens: u64,
    /// Time to first token of every request that named it and generated one.
    pub ttft: Distribution,
    /// Output tokens of its completed requests per simulated second.
    pub tokens_per_second: f64,
}

impl AdapterFigures {
    /// How often it was loaded into a slot.
    #[must_use]
    pub fn loads(&self) -> u64 {
        self.loads_from_disk + self.loads_from_host
    }
}

/// The samples and counts of the adapters of one instance.
#[derive(Clone, Debug, Default)]
pub(super) struct AdapterCollector(BTreeMap<Name, AdapterSamples>);

#[derive(Clone, Debug, Default)]
struct AdapterSamples {
    figures: AdapterFigures,
    ttft: Samples,
}

impl AdapterCollector {
    /// Adds the outcome of a request, if it named an adapter.
    pub fn ended(&mut self, outcome: &Outcome) {
        if outcome.tags.adapter == Name::NONE {
            return;
        }
        let samples = self.0.entry(outcome.tags.adapter).or_default();
        samples.ttft.extend(outcome.ttft);
        if matches!(outcome.status, Status::Completed | Status::LengthCapped) {
            samples.figures.completed += 1;
            samples.figures.output_tokens += u64::from(outcome.generated_tokens);
        }
    }

    pub fn changed(&mut self, event: &AdapterEvent) {
        let figures = &mut self.0.entry(event.adapter).or_default().figures;
        match event.change {
            AdapterChange::LoadedFromDisk => figures.loads_from_disk += 1,
            AdapterChange::LoadedFromHost => figures.loads_from_host += 1,
            AdapterChange::Evicted => figures.evictions += 1,
        }
    }

    /// The figures over `duration`, in the order of the names.
    pub fn figures(&mut self, duration: Micros) -> Vec<(Name, AdapterFigures)> {
        let of = |(&name, samples): (&Name, &mut AdapterSamples)| {
            let AdapterSamples { figures, ttft } = samples;
            let tokens_per_second = per_second(figures.output_tokens, duration);
            (name, AdapterFigures { ttft: ttft.distribution(), tokens_per_second, ..*figures })
        };
        self.0.iter_mut().map(of).collect()
    }

    /// The adapters of all `parts` together.
    pub fn merged(parts: &[Self]) -> Self {
        let mut names: BTreeMap<Name, Vec<&AdapterSamples>> = BTreeMap::new();
        for (&name, samples) in parts.iter().flat_map(|part| &part.0) {
            names.entry(name).or_default().push(samples);
        }
        let merge = |parts: Vec<&AdapterSamples>| {
            let sum = |of: fn(&AdapterFigures) -> u64| parts.iter().map(|part| of(&part.figures)).sum();
            let figures = AdapterFigures {
                loads_from_disk: sum(|figures| figures.loads_from_disk),
                loads_from_host: sum(|figures| figures.loads_from_host),
                evictions: sum(|figures| figures.evictions),
                completed: sum(|figures| figures.completed),
                output_tokens: sum(|figures| figures.output_tokens),
                ..AdapterFigures::default()
            };
            AdapterSamples { figures, ttft: Samples::merged(parts.iter().map(|part| &part.ttft)) }
        };
        Self(names.into_iter().map(|(name, parts)| (name, merge(parts))).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{InstanceIndex, RequestId};
    use crate::request::{Request, Tags};

    #[test]
    fn adapters_are_counted_by_name_and_merged_over_instances() {
        let outcome = |adapter: u32, ttft: u64, status| Outcome {
            generated_tokens: 10,
            ttft: Some(Micros(ttft)),
            tags: Tags { adapter: Name(adapter), ..Tags::default() },
            ..Outcome::new(&Request::new(RequestId(0), Micros(0), 5, 10), status)
        };
        let event = |change| AdapterEvent { instance: InstanceIndex(0), now: Micros(0), adapter: Name(2), change };
        let mut parts = [AdapterCollector::default(), AdapterCollector::default()];
        parts[0].changed(&event(AdapterChange::LoadedFromDisk));
        parts[0].changed(&event(AdapterChange::Evicted));
        parts[1].changed(&event(AdapterChange::LoadedFromHost));
        for (part, adapter, ttft, status) in
            [(0, 2, 1000, Status::Completed), (1, 2, 3000, Status::TimedOut), (1, 0, 9000, Status::Completed)]
        {
            parts[part].ended(&outcome(adapter, ttft, status));
        }
        assert!(parts[1].0.len() == 1, "requests of the base model have no adapter");
        let all = AdapterCollector::merged(&parts).figures(Micros(2_000_000));
        let [(Name(2), figures)] = all[..] else { panic!("{all:?}") };
        assert_eq!((figures.loads(), figures.loads_from_host, figures.evictions), (2, 1, 1));
        assert_eq!((figures.completed, figures.ttft.count, figures.ttft.p50_ms), (1, 2, 2.0));
        assert_eq!(figures.tokens_per_second, 5.0);
    }
}
