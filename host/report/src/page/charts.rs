//! What a page shows of one run beyond its figures: lines over time, latencies by class and tenant, stages, the slowest
//! requests.
//!
//! Sizes are bounded, however long the run: of the moments of a series every n-th is kept, so that there are at most
//! [`POINTS`] of each line and [`CELLS`] of all instances; a distribution is its quantiles at [`quantiles`]; windows of
//! arrivals are at most [`WINDOWS`]. Values are those of the run at these points, rounded to µs and to four digits.

use std::collections::BTreeMap;

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
        let records: Vec<&RequestRecord> = log.records().filter(completed).collect();
        let windows = Windows::of(&records);
        let quantiles = quantiles();
        let group = |(by, name, records): RequestGroup<'_>| {
            let latency = |of: fn(&RequestRecord) -> Option<u64>| LatencyLines::new(&records, of, &quantiles, &windows);
            GroupLatencies {
                by,
                name,
                completed: records.len(),
                ttft: latency(|record| Some(record.ttft()?.0)),
                tpot: latency(|record| (record.itl_mean_us > 0.0).then_some(record.itl_mean_us.round() as u64)),
                e2e: latency(|record| Some(record.e2e()?.0)),
                stages: Stages::mean(&records, log),
            }
        };
        let latencies = groups(&records, names).into_iter().map(group).collect();
        let (stages, slowest) = by_latency(&records, log, names, series);
        Self {
            time_s: seconds(stride),
            rates_s: seconds(rate_stride),
            cluster: ClusterLines::new(series, (stride, rate_stride), all.len()),
            instances: instance_lines(series, &all, (stride, rate_stride)),
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
    fn new(series: &TimeSeries, (stride, rate_stride): (usize, usize), rows: usize) -> Self {
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

fn instance_lines(series: &TimeSeries, all: &[Micros], (stride, rate_stride): (usize, usize)) -> Vec<InstanceLines> {
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
            lines.hit.push(change.and_then(|change| change.hit_rate()).map(digits));
            before = load.or(before);
        }
        lines
    });
    lines.collect()
}

/// Requests of a class or of a tenant, or all: which of these it is, its name, and they.
type RequestGroup<'a> = (&'static str, String, Vec<&'a RequestRecord>);

/// All requests, then each class and each tenant, if there are several.
fn groups<'a>(records: &[&'a RequestRecord], names: &Names) -> Vec<RequestGroup<'a>> {
    let all = ("all", "all requests".to_owned(), records.to_vec());
    let by_class = groups_by("class", |record| record.tags.slo_class, records, names);
    let by_tenant = groups_by("tenant", |record| record.tags.tenant, records, names);
    std::iter::once(all).chain(by_class).chain(by_tenant).collect()
}

/// The largest groups of requests by `key`, if there are several.
fn groups_by<'a>(
    by: &'static str,
    key: fn(&RequestRecord) -> Name,
    records: &[&'a RequestRecord],
    names: &Names,
) -> Vec<RequestGroup<'a>> {
    let mut found: BTreeMap<Name, Vec<&RequestRecord>> = BTreeMap::new();
    records.iter().for_each(|record| found.entry(key(record)).or_default().push(record));
    if found.len() < 2 {
        return Vec::new();
    }
    let mut found: Vec<_> = found.into_iter().collect();
    found.sort_by_key(|(_, records)| std::cmp::Reverse(records.len()));
    found.truncate(GROUPS);
    let named = |(name, records)| {
        let text = names.text(name);
        (by, if text.is_empty() { format!("without {by}") } else { text.to_owned() }, records)
    };
    found.into_iter().map(named).collect()
}

/// Windows of equal length between the first arrival and the last.
struct Windows {
    first: Micros,
    width: u64,
    count: usize,
}

impl Windows {
    fn of(records: &[&RequestRecord]) -> Self {
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

impl LatencyLines {
    fn new(
        records: &[&RequestRecord],
        of: fn(&RequestRecord) -> Option<u64>,
        quantiles: &[f64],
        windows: &Windows,
    ) -> Self {
        let mut all = Vec::with_capacity(records.len());
        let mut by_window = vec![Vec::new(); windows.count];
        for record in records {
            let Some(value) = of(record) else { continue };
            all.push(value);
            by_window[windows.index(record.arrival)].push(value);
        }
        all.sort_unstable();
        let mut over_time = |q| by_window.iter_mut().map(|values: &mut Vec<u64>| quantile_of_ms(values, q)).collect();
        Self {
            quantiles: quantiles.iter().filter_map(|&q| quantile_ms(&all, q)).collect(),
            p50: over_time(0.5),
            p90: over_time(0.9),
            p99: over_time(0.99),
        }
    }
}

/// Quantiles of a distribution, 0 to 1: every half percent, and more towards the end.
fn quantiles() -> Vec<f64> {
    let even = (0..199).map(|half| f64::from(half) / 200.0);
    even.chain([0.995, 0.998, 0.999, 0.9995, 0.9999, 1.0]).collect()
}

/// Linear interpolation between the two nearest of the sorted values, µs, as the report has it; ms.
fn quantile_ms(sorted: &[u64], q: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let rank = q * last as f64;
    Some(between_ms(sorted[rank.floor() as usize], sorted[rank.ceil() as usize], rank.fract()))
}

/// The same of values in any order, which is faster for a few quantiles: they are partly sorted afterwards.
fn quantile_of_ms(values: &mut [u64], q: f64) -> Option<f64> {
    let last = values.len().checked_sub(1)?;
    let rank = q * last as f64;
    let (below, &mut high, _) = values.select_nth_unstable(rank.ceil() as usize);
    let low = if rank.fract() > 0.0 { *below.iter().max()? } else { high };
    Some(between_ms(low, high, rank.fract()))
}

/// The value at `share` of the way from `low` to `high`, µs; ms.
fn between_ms(low: u64, high: u64, share: f64) -> f64 {
    let (low, high) = (low as f64, high as f64);
    (low + (high - low) * share).round() / 1e3
}

impl Stages {
    fn of(record: &RequestRecord, log: &RequestLog) -> Self {
        let ms = |from: Micros, to: Micros| to.saturating_sub(from).as_millis_f64();
        let e2e = record.e2e().unwrap_or_default();
        let ttft = record.ttft().unwrap_or(e2e);
        let admitted = record.scheduling_delay().unwrap_or_default().min(ttft);
        let gateway = log.waited(record.id).min(admitted);
        Self {
            gateway: gateway.as_millis_f64(),
            queue: ms(gateway, admitted),
            prefill: ms(admitted, ttft),
            decode: ms(ttft, e2e),
        }
    }

    fn mean(records: &[&RequestRecord], log: &RequestLog) -> Self {
        let mut sum = Self::default();
        for stages in records.iter().map(|record| Self::of(record, log)) {
            sum.gateway += stages.gateway;
            sum.queue += stages.queue;
            sum.prefill += stages.prefill;
            sum.decode += stages.decode;
        }
        let mean = |sum: f64| digits(sum / records.len().max(1) as f64);
        Self {
            gateway: mean(sum.gateway),
            queue: mean(sum.queue),
            prefill: mean(sum.prefill),
            decode: mean(sum.decode),
        }
    }
}

/// The mean stages of equal parts of the requests from the fastest to the slowest, and the slowest requests.
fn by_latency(
    records: &[&RequestRecord],
    log: &RequestLog,
    names: &Names,
    series: &TimeSeries,
) -> (Vec<Stages>, Vec<SlowRequest>) {
    let mut order: Vec<(Micros, u32)> =
        (0..).zip(records).map(|(i, record)| (record.e2e().unwrap_or_default(), i)).collect();
    order.sort_unstable();
    let size = order.len().div_ceil(PARTS).max(1);
    let part = |part: &[(Micros, u32)]| {
        let records: Vec<_> = part.iter().map(|&(_, index)| records[index as usize]).collect();
        Stages::mean(&records, log)
    };
    let slow = |&(_, index): &(Micros, u32)| SlowRequest::new(records[index as usize], log, names, series);
    (order.chunks(size).map(part).collect(), order.iter().rev().take(SLOWEST).map(slow).collect())
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
            stages: Stages::of(record, log),
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
