//! Figures of a workload: size, burstiness, lengths, and shared prefixes.

use std::collections::BTreeMap;
use std::ops::{AddAssign, Range};

use blis_sim::request::{Name, Request};
use serde::Serialize;

use super::{Names, Workload};
use blis_sim::request::session_text;

mod text;

pub use text::ProfileText;

/// What `blis workload inspect` prints with `--output json`.
#[derive(Clone, Debug, Serialize)]
pub struct WorkloadProfile {
    /// Number of the requests. Unit: requests.
    pub requests: u64,
    /// Time from the first arrival to the last.
    pub span_s: f64,
    /// Requests per second of that span; `null` if all arrive at once. Unit: requests/s.
    pub requests_per_s: Option<f64>,
    /// Coefficient of variation of the inter-arrival times: 0 for constant ones, 1 for Poisson arrivals, more for
    /// bursts; `null` if all arrive at once. Unit: ratio.
    pub interarrival_cv: Option<f64>,
    /// Most requests within one second that begins with an arrival. Unit: requests/s.
    pub peak_requests_per_s: u64,
    /// Input tokens per request.
    pub input_tokens: LengthFigures,
    /// Output tokens per request.
    pub output_tokens: LengthFigures,
    /// Input tokens that hit an unlimited prefix cache, in full KV blocks, of all. Unit: share.
    pub ideal_prefix_hit: f64,
    /// Tokens per block of that cache. Unit: tokens.
    pub block_size: u32,
    /// Sessions, and the requests in them.
    pub sessions: SessionFigures,
    /// Requests by SLO class; empty if no request has one. Unit: requests.
    pub classes: BTreeMap<String, u64>,
    /// Requests by tenant. Unit: requests.
    pub tenants: BTreeMap<String, u64>,
    /// Requests by model. Unit: requests.
    pub models: BTreeMap<String, u64>,
    /// Requests by client. Unit: requests.
    pub clients: BTreeMap<String, u64>,
    /// Requests in each of many equal parts of the span, for a chart of arrivals.
    #[serde(skip)]
    arrivals: Vec<u64>,
}

/// Lengths of prompts or outputs; percentiles are values that occur (nearest rank).
#[derive(Clone, Debug, Default, Serialize)]
pub struct LengthFigures {
    /// Sum over all requests. Unit: tokens.
    pub total: u64,
    /// Mean of the lengths. Unit: tokens.
    pub mean: f64,
    /// Median of the lengths. Unit: tokens.
    pub p50: u32,
    /// 90th percentile of the lengths. Unit: tokens.
    pub p90: u32,
    /// 99th percentile of the lengths. Unit: tokens.
    pub p99: u32,
    /// Maximum of the lengths. Unit: tokens.
    pub max: u32,
    /// Requests by length: entry n counts those of 2ⁿ⁻¹ to 2ⁿ − 1 tokens, entry 0 those without tokens. Unit: requests.
    pub by_power_of_2: Vec<u64>,
}

/// Number and length of the sessions.
#[derive(Clone, Debug, Default, Serialize)]
pub struct SessionFigures {
    /// Number of the sessions. Unit: sessions.
    pub count: u64,
    /// Requests that belong to a session. Unit: requests.
    pub requests: u64,
    /// Rounds of the longest session. Unit: rounds.
    pub turns_max: u64,
}

/// Number of parts of the span in which arrivals are counted for the chart.
const PARTS: usize = 240;

impl WorkloadProfile {
    /// The figures of `workload` with KV blocks of `block_size` tokens. `None` if it is empty.
    #[must_use]
    pub fn new(workload: Workload, block_size: u32) -> Option<Self> {
        let Workload { requests, names, .. } = workload;
        let mut seen = ProfileCounts::default();
        requests.for_each(|request| seen.add(&request, block_size));
        let (&first, &last) = (seen.arrivals.first()?, seen.arrivals.last()?);
        let count = seen.arrivals.len() as u64;
        let span_s = (last - first) as f64 / 1e6;
        let known = (last > first).then_some(());
        let input_tokens = LengthFigures::from_lengths(seen.inputs);
        Some(Self {
            requests: count,
            span_s,
            requests_per_s: known.map(|()| count as f64 / span_s),
            interarrival_cv: known.map(|()| variation(&seen.arrivals)),
            peak_requests_per_s: peak(&seen.arrivals),
            ideal_prefix_hit: seen.hit as f64 / input_tokens.total as f64,
            input_tokens,
            output_tokens: LengthFigures::from_lengths(seen.outputs),
            block_size,
            sessions: SessionFigures {
                count: seen.sessions.len() as u64,
                requests: seen.sessions.values().sum(),
                turns_max: seen.sessions.values().copied().max().unwrap_or(0),
            },
            classes: by_text(&seen.classes, &names),
            tenants: by_text(&seen.tenants, &names),
            models: by_text(&seen.models, &names),
            clients: by_text(&seen.clients, &names),
            arrivals: parts(&seen.arrivals),
        })
    }
}

/// Sums over the requests read so far.
#[derive(Default)]
struct ProfileCounts {
    /// Arrival times in the order of the requests, µs.
    arrivals: Vec<u64>,
    inputs: Vec<u32>,
    outputs: Vec<u32>,
    /// Runs of block keys that requests have had, by start and end, without overlap.
    cached: BTreeMap<u32, u32>,
    /// Input tokens that a prefix-cache hit would save.
    hit: u64,
    sessions: BTreeMap<Name, u64>,
    classes: BTreeMap<Name, u64>,
    tenants: BTreeMap<Name, u64>,
    models: BTreeMap<Name, u64>,
    clients: BTreeMap<Name, u64>,
}

impl ProfileCounts {
    fn add(&mut self, request: &Request, block_size: u32) {
        self.arrivals.push(request.arrival.0);
        self.inputs.push(request.input_tokens);
        self.outputs.push(request.output_tokens);
        let tags = request.tags;
        if tags.session != Name::NONE {
            self.sessions.entry(tags.session).or_default().add_assign(1);
        }
        let named = [
            (&mut self.classes, tags.slo_class),
            (&mut self.tenants, tags.tenant),
            (&mut self.models, tags.model),
            (&mut self.clients, tags.client),
        ];
        for (counts, name) in named {
            counts.entry(name).or_default().add_assign(1);
        }
        let mut left = request.input_tokens / block_size;
        let mut found = true;
        for span in request.content.spans() {
            let keys = span.first..span.first + span.len.min(left);
            left -= keys.end - keys.start;
            if found {
                let known = self.cached_to(keys.start).min(keys.end);
                self.hit += u64::from(known - keys.start) * u64::from(block_size);
                found = known == keys.end;
            }
            self.cache(keys);
        }
    }

    /// The end of the run of cached keys that contains `key`; `key` itself if none does.
    fn cached_to(&self, key: u32) -> u32 {
        self.cached.range(..=key).next_back().map_or(key, |(_, &end)| end.max(key))
    }

    /// Merges `keys` with the runs that they overlap or touch.
    fn cache(&mut self, mut keys: Range<u32>) {
        if keys.is_empty() {
            return;
        }
        while let Some((&start, &end)) =
            self.cached.range(..=keys.end).next_back().filter(|&(_, &end)| end >= keys.start)
        {
            self.cached.remove(&start);
            keys = keys.start.min(start)..keys.end.max(end);
        }
        self.cached.insert(keys.start, keys.end);
    }
}

/// The counts by the texts of the names; empty if no request has a name.
fn by_text(counts: &BTreeMap<Name, u64>, names: &Names) -> BTreeMap<String, u64> {
    let named = counts.keys().any(|&name| name != Name::NONE);
    let texts = counts.iter().filter(|_| named);
    texts.map(|(&name, &count)| (session_text(names.texts(), name).into_owned(), count)).collect()
}

impl LengthFigures {
    fn from_lengths(mut all: Vec<u32>) -> Self {
        all.sort_unstable();
        let rank = |share: f64| all.get(((share * all.len() as f64).ceil() as usize).saturating_sub(1)).copied();
        let total = all.iter().map(|&tokens| u64::from(tokens)).sum();
        let mut by_power_of_2 = Vec::new();
        for &tokens in &all {
            let bin = (u32::BITS - tokens.leading_zeros()) as usize;
            by_power_of_2.resize(by_power_of_2.len().max(bin + 1), 0);
            by_power_of_2[bin] += 1;
        }
        Self {
            total,
            mean: total as f64 / (all.len() as f64).max(1.0),
            p50: rank(0.5).unwrap_or(0),
            p90: rank(0.9).unwrap_or(0),
            p99: rank(0.99).unwrap_or(0),
            max: all.last().copied().unwrap_or(0),
            by_power_of_2,
        }
    }
}

/// Coefficient of variation of the inter-arrival times, not all of which are 0.
fn variation(arrivals: &[u64]) -> f64 {
    let gaps = || arrivals.windows(2).map(|pair| (pair[1] - pair[0]) as f64);
    let count = (arrivals.len() - 1) as f64;
    let mean = gaps().sum::<f64>() / count;
    let variance = gaps().map(|gap| (gap - mean).powi(2)).sum::<f64>() / count;
    variance.sqrt() / mean
}

fn peak(arrivals: &[u64]) -> u64 {
    let mut start = 0;
    let within = arrivals.iter().enumerate().map(|(end, &at)| {
        while at - arrivals[start] >= 1_000_000 {
            start += 1;
        }
        end - start + 1
    });
    within.max().unwrap_or(0) as u64
}

fn parts(arrivals: &[u64]) -> Vec<u64> {
    let (Some(&first), Some(&last)) = (arrivals.first(), arrivals.last()) else { return Vec::new() };
    let mut parts = vec![0; PARTS];
    for &at in arrivals {
        // The last arrival belongs to the last part.
        parts[(u128::from(at - first) * PARTS as u128 / (u128::from(last - first) + 1)) as usize] += 1;
    }
    parts
}

#[cfg(test)]
mod tests;
