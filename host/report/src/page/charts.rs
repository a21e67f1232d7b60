//! What a page shows of one run beyond its figures: lines over time, latencies by class and tenant, stages, the slowest
//! requests.
//!
//! Sizes are bounded, however long the run: of the moments of a series every n-th is kept, so that there are at most
//! [`POINTS`] of each line and [`CELLS`] of all instances; a distribution is its quantiles at [`quantiles`]; windows of
//! arrivals are at most [`WINDOWS`]. Values are those of the run at these points, rounded to µs and to four digits.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

use blis_sim::outcome::Status;
use blis_sim::request::{Name, session_text};
use blis_sim::units::Micros;
use blis_workload::Names;
use serde::Serialize;

use crate::requests::{RequestLog, RequestRecord};
use crate::time_series::{ClusterRow, LoadChange, TimeSeries};

/// Most points of a line.
const POINTS: usize = 2_000;
/// Most points of a rate: with more, the rates of a steady load are noise.
const RATES: usize = 120;
/// Most points of all instances together, for one figure.
const CELLS: usize = 100_000;
/// Most windows of arrivals, of equal length.
const WINDOWS: usize = 60;
/// Requests of a window, at least on average.
const REQUESTS_OF_A_WINDOW: usize = 20;
/// Most classes, and most tenants, that are shown: those with the most requests.
const GROUPS: usize = 8;
/// Requests that are described one by one.
const SLOWEST: usize = 10;
/// Parts of the requests in the order of their latency, to show their stages.
const PARTS: usize = 20;

/// The charts of one run.
#[derive(Clone, Debug, Serialize)]
pub struct RunCharts {
    /// Times of the moments, s.
    time_s: Vec<f64>,
    /// Times of the rates, s: the rates of all requests since the time before.
    rates_s: Vec<f64>,
    cluster: ClusterLines,
    instances: Vec<InstanceLines>,
    /// The quantiles of every distribution, 0 to 1.
    quantiles: Vec<f64>,
    /// Begin of each window of arrivals, s.
    windows_s: Vec<f64>,
    latencies: Vec<GroupLatencies>,
    /// Mean stages of requests from the fastest part to the slowest.
    stages: Vec<Stages>,
    slowest: Vec<SlowRequest>,
}

/// The service at each moment, and its rates.
#[derive(Clone, Debug, Default, Serialize)]
struct ClusterLines {
    arrivals_per_s: Vec<f64>,
    completions_per_s: Vec<f64>,
    rejections_per_s: Vec<f64>,
    timeouts_per_s: Vec<f64>,
    output_tokens_per_s: Vec<f64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    gateway_queue: Vec<u32>,
    replicas_starting: Vec<u32>,
    replicas_active: Vec<u32>,
    replicas_draining: Vec<u32>,
}

/// An instance at each moment; `None` where it is not there.
#[derive(Clone, Debug, Serialize)]
struct InstanceLines {
    name: String,
    waiting: Vec<Option<u32>>,
    running: Vec<Option<u32>>,
    /// Share of its KV blocks that requests hold.
    kv: Vec<Option<f64>>,
    /// Share of the KV blocks allocated since the time before that were found in the prefix cache, at the times of
    /// the rates.
    hit: Vec<Option<f64>>,
}

/// The latencies of the completed requests of a class, of a tenant, or of all.
#[derive(Clone, Debug, Serialize)]
struct GroupLatencies {
    /// `all`, `class` or `tenant`.
    by: &'static str,
    name: String,
    completed: usize,
    ttft: LatencyLines,
    tpot: LatencyLines,
    e2e: LatencyLines,
    /// Means of all its requests.
    stages: Stages,
}

/// A latency of many requests, ms.
#[derive(Clone, Debug, Serialize)]
struct LatencyLines {
    quantiles: Vec<f64>,
    /// By the window in which they arrived; `None` for windows without a request.
    p50: Vec<Option<f64>>,
    p90: Vec<Option<f64>>,
    p99: Vec<Option<f64>>,
}

/// The stages of a request, or their means over requests, ms. They add up to its end-to-end latency.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
struct Stages {
    /// In the gateway's queue.
    gateway: f64,
    /// From there to the last admission to the batch, or to the first token if it was preempted after that.
    queue: f64,
    /// From there to the first token.
    prefill: f64,
    /// From the first token to the last, with the time after preemptions.
    decode: f64,
}

/// One of the slowest requests.
#[derive(Clone, Debug, Serialize)]
struct SlowRequest {
    request: String,
    class: String,
    tenant: String,
    session: String,
    instance: Option<String>,
    arrival_s: f64,
    input_tokens: u32,
    output_tokens: u32,
    cached_tokens: u32,
    preemptions: u32,
    ttft_ms: f64,
    tpot_ms: f64,
    e2e_ms: f64,
    stages: Stages,
    /// What its instance did when it arrived: requests waiting and running there, share of KV blocks in use.
    found: Option<(u32, u32, f64)>,
}

impl RunCharts {
    /// The charts of a run with these records; requests that arrive before `warmup` count in no latency.
    #[must_use]
    pub fn new(series: &TimeSeries, log: &RequestLog, names: &Names, warmup: Micros) -> Self {
        let all: Vec<_> = series.moments().collect();
        let count = series.instances().len().max(1);
        let points = (CELLS / count).clamp(20, POINTS);
        let stride = all.len().div_ceil(points).max(1);
        let rate_stride = all.len().div_ceil(RATES).max(1);
        // The last moment is kept, so that all events are in the rates.
        let seconds = |stride| kept(all.len(), stride).map(|index| all[index].as_secs_f64()).collect();
        let completed = |record: &&RequestRecord| record.e2e().is_some() && record.arrival >= warmup;
        let mut records: Vec<&RequestRecord> = Vec::with_capacity(log.len());
        records.extend(log.records().filter(completed));
        let windows = Windows::from_records(&records);
        let quantiles = quantiles();
        let mut grouped = GroupedLatencies { log, quantiles: &quantiles, windows: &windows, sorted: Vec::new() };
        let mut latencies = vec![grouped.group(("all", "all requests".to_owned(), records.as_slice().into()))];
        grouped.sorted.iter_mut().for_each(|latency| *latency >>= GroupedLatencies::WINDOW);
        let stages = stages_by_latency(&records, log, &grouped.sorted);
        latencies.extend(groups(&records, names).into_iter().map(|group| grouped.group(group)));
        let slowest = slowest(&records).map(|record| SlowRequest::new(record, log, names, series)).collect();
        Self {
            time_s: seconds(stride),
            rates_s: seconds(rate_stride),
            cluster: ClusterLines::new(series, stride, rate_stride, all.len()),
            instances: instance_lines(series, &all, stride, rate_stride),
            windows_s: windows.begins_s(),
            latencies,
            quantiles,
            stages,
            slowest,
        }
    }
}

impl ClusterLines {
    /// Every `stride`-th of the `rows`, the last one included, and rates over every `rate_stride` of them.
    fn new(series: &TimeSeries, stride: usize, rate_stride: usize, rows: usize) -> Self {
        let mut lines = Self::default();
        let mut sums = [0_u64; 5];
        let span = series.interval().as_secs_f64() * rate_stride as f64;
        for (index, ClusterRow { since, gateway_queue, replicas, .. }) in series.cluster().enumerate() {
            let counts = [since.arrivals, since.completions, since.rejections, since.timeouts].map(u64::from);
            sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
            sums[4] += since.output_tokens;
            if is_kept(index, rows, rate_stride) {
                let rates = [
                    &mut lines.arrivals_per_s,
                    &mut lines.completions_per_s,
                    &mut lines.rejections_per_s,
                    &mut lines.timeouts_per_s,
                    &mut lines.output_tokens_per_s,
                ];
                let rate = |sum: &mut u64| digits(std::mem::take(sum) as f64 / span);
                rates.into_iter().zip(&mut sums).for_each(|(line, sum)| line.push(rate(sum)));
            }
            if !is_kept(index, rows, stride) {
                continue;
            }
            lines.gateway_queue.extend(gateway_queue);
            let [starting, active, draining] = replicas;
            lines.replicas_starting.push(starting);
            lines.replicas_active.push(active);
            lines.replicas_draining.push(draining);
        }
        lines
    }
}

fn instance_lines(series: &TimeSeries, all: &[Micros], stride: usize, rate_stride: usize) -> Vec<InstanceLines> {
    let kept = |stride| kept(all.len(), stride).map(|index| all[index]);
    let lines = series.instances().iter().enumerate().map(|(number, instance)| {
        let mut before = None;
        let mut lines = InstanceLines {
            name: format!("instance_{number}"),
            waiting: Vec::new(),
            running: Vec::new(),
            kv: Vec::new(),
            hit: Vec::new(),
        };
        for load in instance.at(kept(stride)) {
            lines.waiting.push(load.map(|load| load.queue_depth));
            lines.running.push(load.map(|load| load.batch_size));
            lines.kv.push(load.map(|load| digits(share(load.used_kv_blocks, load.total_kv_blocks))));
        }
        for load in instance.at(kept(rate_stride)) {
            let change = load.map(|load| LoadChange::between(&before.unwrap_or_default(), &load));
            lines.hit.push(change.and_then(|change| change.prefix_cache.hit_rate()).map(digits));
            before = load.or(before);
        }
        lines
    });
    lines.collect()
}

/// Requests of a class or of a tenant, or all: which of these it is, its name, and they.
type RequestGroup<'a> = (&'static str, String, Cow<'a, [&'a RequestRecord]>);

/// Each class and each tenant, if there are several.
fn groups<'a>(records: &[&'a RequestRecord], names: &Names) -> Vec<RequestGroup<'a>> {
    let by_class = groups_by("class", |record| record.tags.slo_class, records, names);
    let by_tenant = groups_by("tenant", |record| record.tags.tenant, records, names);
    by_class.into_iter().chain(by_tenant).collect()
}

/// The largest groups of requests by `key`, if there are several.
fn groups_by<'a>(
    by: &'static str,
    key: impl Fn(&RequestRecord) -> Name,
    records: &[&'a RequestRecord],
    names: &Names,
) -> Vec<RequestGroup<'a>> {
    let mut counts: Vec<u32> = Vec::new();
    for name in records.iter().map(|record| key(record).0 as usize) {
        if counts.len() <= name {
            counts.resize(name + 1, 0);
        }
        counts[name] += 1;
    }
    let mut found: Vec<Name> =
        (0..).map(Name).zip(&counts).filter(|&(_, &count)| count > 0).map(|(name, _)| name).collect();
    if found.len() < 2 {
        return Vec::new();
    }
    found.sort_by_key(|name| Reverse(counts[name.0 as usize]));
    found.truncate(GROUPS);
    let mut members: Vec<Vec<&RequestRecord>> =
        found.iter().map(|name| Vec::with_capacity(counts[name.0 as usize] as usize)).collect();
    for &record in records {
        if let Some(group) = found.iter().position(|&name| name == key(record)) {
            members[group].push(record);
        }
    }
    let named = |(name, records): (Name, Vec<_>)| {
        let text = names.text(name);
        (by, if text.is_empty() { format!("without {by}") } else { text.to_owned() }, records.into())
    };
    found.into_iter().zip(members).map(named).collect()
}

/// Windows of equal length between the first arrival and the last.
struct Windows {
    first: Micros,
    width: u64,
    count: usize,
}

impl Windows {
    fn from_records(records: &[&RequestRecord]) -> Self {
        let arrivals = || records.iter().map(|record| record.arrival);
        let (first, last) = (arrivals().min().unwrap_or_default(), arrivals().max().unwrap_or_default());
        let count = (records.len() / REQUESTS_OF_A_WINDOW).clamp(1, WINDOWS);
        Self { first, width: (last - first).0 / count as u64 + 1, count }
    }

    fn index(&self, at: Micros) -> usize {
        (((at - self.first).0 / self.width) as usize).min(self.count - 1)
    }

    fn begins_s(&self) -> Vec<f64> {
        (0..self.count as u64).map(|index| (self.first + Micros(index * self.width)).as_secs_f64()).collect()
    }
}

/// Makes the latencies of one group after the other.
struct GroupedLatencies<'a> {
    log: &'a RequestLog,
    quantiles: &'a [f64],
    windows: &'a Windows,
    /// The latest latencies, from the smallest to the largest, µs, each with its window in the lowest bits. The memory is used
    /// again for each latency: pages that are new cost as much as sorting.
    sorted: Vec<u64>,
}

impl GroupedLatencies<'_> {
    /// Bits of a window.
    const WINDOW: u32 = 6;

    /// The latencies of a group. Afterwards `sorted` has the end-to-end latencies of its requests.
    fn group(&mut self, (by, name, records): RequestGroup<'_>) -> GroupLatencies {
        let windows: Vec<u8> = records.iter().map(|record| self.windows.index(record.arrival) as u8).collect();
        let stages = StageSums::sum(records.iter().map(|record| Stages::micros(record, self.log)));
        GroupLatencies {
            by,
            name,
            completed: records.len(),
            ttft: self.lines(&records, &windows, |record| Some(record.ttft()?.0)),
            tpot: self.lines(&records, &windows, |record| {
                (record.itl_mean_us > 0.0).then_some(record.itl_mean_us.round() as u64)
            }),
            e2e: self.lines(&records, &windows, |record| Some(record.e2e()?.0)),
            stages: stages.mean(),
        }
    }

    fn lines(
        &mut self,
        records: &[&RequestRecord],
        windows: &[u8],
        of: impl Fn(&RequestRecord) -> Option<u64>,
    ) -> LatencyLines {
        const { assert!(WINDOWS <= 1 << GroupedLatencies::WINDOW, "a window fits") };
        let with_window = |(record, &window): (&&RequestRecord, &u8)| {
            Some(of(record)?.min(u64::MAX >> Self::WINDOW) << Self::WINDOW | u64::from(window))
        };
        let sorted = &mut self.sorted;
        sorted.clear();
        sorted.reserve(records.len());
        sorted.extend(records.iter().zip(windows).filter_map(with_window));
        sorted.sort_unstable();
        let quantile = |&q: &f64| quantile_ms(sorted.len(), |rank| sorted[rank] >> Self::WINDOW, q);
        let quantiles = self.quantiles.iter().filter_map(quantile).collect();
        let percentiles = [0.5, 0.9, 0.99];
        let by_window = WindowRanks::from_sorted(sorted, self.windows.count, &percentiles);
        let [p50, p90, p99] = percentiles.map(|q| by_window.iter().map(|window| window.quantile_ms(q)).collect());
        LatencyLines { quantiles, p50, p90, p99 }
    }
}

/// The latencies of a window at the ranks that its percentiles need.
#[derive(Clone, Debug, Default)]
struct WindowRanks {
    /// Number of its latencies.
    count: usize,
    /// The ranks, in order, and the latencies there, µs.
    ranks: Vec<usize>,
    latencies: Vec<u64>,
    /// Number of latencies that were seen.
    seen: usize,
}

impl WindowRanks {
    /// Of latencies with their windows, in order.
    fn from_sorted(sorted: &[u64], windows: usize, percentiles: &[f64]) -> Vec<Self> {
        let window = |one: u64| (one & ((1 << GroupedLatencies::WINDOW) - 1)) as usize;
        let mut all = vec![Self::default(); windows];
        sorted.iter().for_each(|&one| all[window(one)].count += 1);
        for of in &mut all {
            let last = of.count.saturating_sub(1) as f64;
            of.ranks =
                percentiles.iter().flat_map(|q| [(q * last).floor(), (q * last).ceil()]).map(|r| r as usize).collect();
            of.ranks.sort_unstable();
            of.ranks.dedup();
        }
        for &one in sorted {
            let of = &mut all[window(one)];
            if of.ranks.get(of.latencies.len()) == Some(&of.seen) {
                of.latencies.push(one >> GroupedLatencies::WINDOW);
            }
            of.seen += 1;
        }
        all
    }

    fn quantile_ms(&self, q: f64) -> Option<f64> {
        let latency = |rank: usize| self.latencies[self.ranks.partition_point(|&known| known < rank)];
        quantile_ms(self.count, latency, q)
    }
}

/// Quantiles of a distribution, 0 to 1: every half percent, and more towards the end.
fn quantiles() -> Vec<f64> {
    let even = (0..199).map(|half| f64::from(half) / 200.0);
    even.chain([0.995, 0.998, 0.999, 0.9995, 0.9999, 1.0]).collect()
}

/// Linear interpolation between the two nearest of `count` sorted values, µs, as the report has it; ms.
fn quantile_ms(count: usize, value: impl Fn(usize) -> u64, q: f64) -> Option<f64> {
    let rank = q * count.checked_sub(1)? as f64;
    let (low, high) = (value(rank.floor() as usize) as f64, value(rank.ceil() as usize) as f64);
    Some((low + (high - low) * rank.fract()).round() / 1e3)
}

impl Stages {
    /// The stages of a request, µs: gateway, queue, prefill, decode.
    fn micros(record: &RequestRecord, log: &RequestLog) -> [u64; 4] {
        let e2e = record.e2e().unwrap_or_default();
        let ttft = record.ttft().unwrap_or(e2e);
        let admitted = record.scheduling_delay().unwrap_or_default().min(ttft);
        let gateway = log.waited(record.id).min(admitted);
        [gateway, admitted.saturating_sub(gateway), ttft.saturating_sub(admitted), e2e.saturating_sub(ttft)]
            .map(|stage| stage.0)
    }

    fn from_record(record: &RequestRecord, log: &RequestLog) -> Self {
        Self::from_ms(Self::micros(record, log).map(|micros| Micros(micros).as_millis_f64()))
    }

    fn from_ms([gateway, queue, prefill, decode]: [f64; 4]) -> Self {
        Self { gateway, queue, prefill, decode }
    }
}

/// Sums of the stages of requests.
#[derive(Clone, Debug, Default)]
struct StageSums {
    requests: u64,
    /// Gateway, queue, prefill, decode, µs.
    micros: [u128; 4],
}

impl StageSums {
    fn sum(stages: impl Iterator<Item = [u64; 4]>) -> Self {
        let mut sums = Self::default();
        stages.for_each(|stages| sums.add(stages));
        sums
    }

    fn add(&mut self, stages: [u64; 4]) {
        self.requests += 1;
        self.micros.iter_mut().zip(stages).for_each(|(sum, stage)| *sum += u128::from(stage));
    }

    fn mean(&self) -> Stages {
        let requests = self.requests.max(1) as f64;
        Stages::from_ms(self.micros.map(|sum| digits(sum as f64 / 1e3 / requests)))
    }
}

/// The mean stages of equal parts of the requests from the fastest to the slowest; `sorted` are their end-to-end latencies, µs.
///
/// Records are read in the order in which they are in memory: in the order of their latency, each would be waited for.
fn stages_by_latency(records: &[&RequestRecord], log: &RequestLog, sorted: &[u64]) -> Vec<Stages> {
    let size = sorted.len().div_ceil(PARTS).max(1);
    let mut limits: Vec<PartLimit> =
        (size..sorted.len()).step_by(size).map(|rank| PartLimit::at(sorted, rank)).collect();
    let mut sums = vec![StageSums::default(); sorted.len().div_ceil(size)];
    for record in records {
        let latency = record.e2e().unwrap_or_default().0;
        let first = limits.partition_point(|limit| limit.latency < latency);
        let equal = limits[first..].iter_mut().take_while(|limit| limit.latency == latency);
        let beyond = equal.map(PartLimit::is_beyond).filter(|&is_beyond| is_beyond).count();
        sums[first + beyond].add(Stages::micros(record, log));
    }
    sums.iter().map(StageSums::mean).collect()
}

/// Where a part of the requests begins: at this latency, of which the first requests still belong to the part before.
struct PartLimit {
    latency: u64,
    before: usize,
}

impl PartLimit {
    fn at(sorted: &[u64], rank: usize) -> Self {
        let latency = sorted[rank];
        Self { latency, before: rank - sorted.partition_point(|&one| one < latency) }
    }

    /// Whether the next request of its latency belongs to the part that begins here.
    fn is_beyond(&mut self) -> bool {
        let is_beyond = self.before == 0;
        self.before = self.before.saturating_sub(1);
        is_beyond
    }
}

/// The slowest requests, the slowest first; of equal ones that which ended last.
fn slowest<'a>(records: &[&'a RequestRecord]) -> impl Iterator<Item = &'a RequestRecord> {
    let mut most: BinaryHeap<Reverse<(Micros, usize)>> = BinaryHeap::with_capacity(SLOWEST + 1);
    for (index, record) in records.iter().enumerate() {
        let latency = record.e2e().unwrap_or_default();
        if most.len() < SLOWEST || most.peek().is_some_and(|Reverse((least, _))| *least <= latency) {
            most.push(Reverse((latency, index)));
            if most.len() > SLOWEST {
                most.pop();
            }
        }
    }
    most.into_sorted_vec().into_iter().map(|Reverse((_, index))| records[index])
}

impl SlowRequest {
    fn new(record: &RequestRecord, log: &RequestLog, names: &Names, series: &TimeSeries) -> Self {
        let ms = |time: Option<Micros>| time.unwrap_or_default().as_millis_f64();
        let series = record.instance.and_then(|instance| series.instances().get(instance.index()));
        let found = series.and_then(|series| series.at(std::iter::once(record.arrival)).next().flatten());
        debug_assert!(matches!(record.status, Status::Completed | Status::LengthCapped));
        Self {
            request: format!("request_{}", record.id),
            class: names.text(record.tags.slo_class).to_owned(),
            tenant: names.text(record.tags.tenant).to_owned(),
            session: session_text(names.texts(), record.tags.session).into_owned(),
            instance: record.instance.map(|instance| format!("instance_{instance}")),
            arrival_s: record.arrival.as_secs_f64(),
            input_tokens: record.input_tokens,
            output_tokens: record.output_tokens,
            cached_tokens: record.cached_tokens,
            preemptions: record.preemptions,
            ttft_ms: ms(record.ttft()),
            tpot_ms: digits(record.itl_mean_us / 1e3),
            e2e_ms: ms(record.e2e()),
            stages: Stages::from_record(record, log),
            found: found.map(|load| {
                (load.queue_depth, load.batch_size, digits(share(load.used_kv_blocks, load.total_kv_blocks)))
            }),
        }
    }
}

/// Every `stride`-th of so many rows, the last one included.
fn kept(rows: usize, stride: usize) -> impl Iterator<Item = usize> {
    (0..rows).filter(move |&index| is_kept(index, rows, stride))
}

fn is_kept(index: usize, rows: usize, stride: usize) -> bool {
    (rows - 1 - index).is_multiple_of(stride)
}

fn share(part: u32, whole: u32) -> f64 {
    f64::from(part) / f64::from(whole.max(1))
}

/// Four digits behind the point.
fn digits(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}

#[cfg(test)]
mod tests;
