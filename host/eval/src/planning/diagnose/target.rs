//! Which figure matters, and of which requests: the worst violated SLO, or without SLOs where most time is lost.

use std::collections::HashMap;

use blis_sim::units::Micros;
use blis_workload::Names;

use super::super::load::class_names;
use super::super::slo::{Slo, SloMetric, SloStatistic};
use super::attribution::{AttributedRequest, CauseTimes};
use super::cause::{Cause, TIMED};
use super::document::CheckedSlo;
use super::figure::{LatencySample, LostValue, RunLatencies, TargetFigure};

/// The figure that a diagnosis is about.
pub(super) struct Target {
    pub figure: TargetFigure,
    pub limit: Option<Micros>,
    pub slo: Vec<CheckedSlo>,
    /// Whether there are SLOs, and all are met.
    pub meets_slos: bool,
    pub infeasible: Option<Infeasible>,
}

/// What no load meets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Infeasible {
    /// The limit of the figure is below its value alone.
    Slo,
    /// So many requests cannot end before their deadlines; the deadline that nearly all could meet.
    Deadline { share: f64, wanted: Micros },
}

/// The requests of a run beside themselves alone.
pub(super) struct Alone {
    by_id: HashMap<u32, LatencySample>,
    pub latencies: RunLatencies,
}

impl Alone {
    pub fn new(latencies: RunLatencies) -> Self {
        Self { by_id: latencies.samples.iter().map(|sample| (sample.id, *sample)).collect(), latencies }
    }

    pub fn of(&self, request: &AttributedRequest) -> Option<&LatencySample> {
        self.by_id.get(&request.id.0)
    }
}

/// The share of requests that cannot meet their deadlines from which on the deadline is what binds.
const MOST_HOPELESS: f64 = 0.05;

impl Target {
    /// `runs`: one by seed; `alone` and `requests` are of the first.
    pub fn choose(
        slos: &[Slo],
        names: &Names,
        runs: &[RunLatencies],
        alone: &Alone,
        requests: &[AttributedRequest],
    ) -> Self {
        let figures: Vec<TargetFigure> = slos.iter().map(|slo| of_slo(slo, names)).collect();
        let slo: Vec<CheckedSlo> =
            slos.iter().zip(&figures).map(|(slo, figure)| checked(slo, figure, runs, alone)).collect();
        let meets_slos = !slo.is_empty() && slo.iter().all(|slo| slo.meets);
        let worst = worst(slos, &slo);
        let infeasible_slo = worst.is_some_and(|index| slo[index].infeasible).then_some(Infeasible::Slo);
        let infeasible = infeasible_slo.or_else(|| hopeless(alone, requests).filter(|_| !meets_slos));
        let (figure, limit) = match (infeasible, worst) {
            (Some(Infeasible::Deadline { .. }), _) => (TargetFigure::Lost, None),
            (_, Some(index)) => (figures[index].clone(), Some(slos[index].limit)),
            (_, None) => (without_slos(alone, requests), None),
        };
        Self { figure, limit, slo, meets_slos, infeasible }
    }

    /// The requests with the time that is divided.
    pub fn requests<'a>(&self, all: &'a [AttributedRequest]) -> Vec<&'a AttributedRequest> {
        let TargetFigure::Latency { metric, class, .. } = &self.figure else {
            return all.iter().filter(|request| !request.completed()).collect();
        };
        let of_class = |request: &&AttributedRequest| class.as_ref().is_none_or(|names| names.contains(&request.class));
        let all: Vec<&AttributedRequest> = all.iter().filter(of_class).collect();
        let Some(limit) = self.limit else { return all };
        let violates = |request: &&&AttributedRequest| {
            !request.completed() || latency_us(request, *metric).is_some_and(|us| us > limit.0 as f64)
        };
        let violating: Vec<&AttributedRequest> = all.iter().filter(violates).copied().collect();
        if violating.is_empty() { all } else { violating }
    }

    /// The time of `request` that the figure has.
    pub fn times(&self, request: &AttributedRequest) -> CauseTimes {
        let both = || std::array::from_fn(|cause| request.before[cause] + request.after[cause]);
        match &self.figure {
            TargetFigure::Latency { metric: SloMetric::Ttft, .. } => request.before,
            TargetFigure::Latency { metric: SloMetric::Tpot | SloMetric::Itl, .. } if request.ttft_us.is_some() => {
                request.after
            }
            TargetFigure::Latency { .. } | TargetFigure::Lost => both(),
        }
    }
}

/// A latency of a request, µs.
fn latency_us(request: &AttributedRequest, metric: SloMetric) -> Option<f64> {
    let ttft = request.ttft_us?;
    match metric {
        SloMetric::Ttft => Some(ttft),
        SloMetric::E2e => Some(request.life_us),
        SloMetric::Tpot | SloMetric::Itl => {
            (request.generated > 1).then(|| (request.life_us - ttft) / f64::from(request.generated - 1))
        }
    }
}

fn of_slo(slo: &Slo, names: &Names) -> TargetFigure {
    TargetFigure::of_slo(slo, slo.class.as_deref().map(|class| class_names(class, names).to_vec()))
}

fn checked(slo: &Slo, figure: &TargetFigure, runs: &[RunLatencies], alone: &Alone) -> CheckedSlo {
    let limit = slo.limit.as_millis_f64();
    let value = median(runs.iter().filter_map(|run| figure.value(run, LostValue::Infinite)));
    let alone_ms = figure.value(&alone.latencies, LostValue::Infinite);
    CheckedSlo {
        slo: slo.to_string(),
        value_ms: value.filter(|ms| ms.is_finite()),
        alone_ms: alone_ms.filter(|ms| ms.is_finite()),
        meets: value.is_none_or(|ms| ms <= limit),
        infeasible: alone_ms.is_some_and(|ms| ms > limit),
    }
}

/// The SLO that is furthest beyond its limit, alone if one is infeasible; otherwise closest to it.
fn worst(slos: &[Slo], checked: &[CheckedSlo]) -> Option<usize> {
    let ratio = |index: usize| {
        let slo = &checked[index];
        let value = if slo.infeasible { slo.alone_ms } else { slo.value_ms };
        let value = value.unwrap_or(if slo.meets { 0.0 } else { f64::INFINITY });
        (slo.infeasible, value / slos[index].limit.as_millis_f64())
    };
    (0..slos.len()).max_by(|&a, &b| {
        let (a, b) = (ratio(a), ratio(b));
        a.0.cmp(&b.0).then(a.1.total_cmp(&b.1))
    })
}

/// Whether many requests cannot end before their deadlines even alone.
fn hopeless(alone: &Alone, requests: &[AttributedRequest]) -> Option<Infeasible> {
    let pairs: Vec<(f64, f64)> = requests
        .iter()
        .filter_map(|request| Some((request.deadline?.as_millis_f64(), alone.of(request)?.e2e_ms?)))
        .collect();
    let late = pairs.iter().filter(|(deadline, e2e)| e2e > deadline).count();
    let share = late as f64 / requests.len().max(1) as f64;
    let lost = requests.iter().filter(|request| !request.completed()).count() as f64;
    // Otherwise it is load that makes most of them late.
    if share < MOST_HOPELESS || share * requests.len() as f64 <= 0.5 * lost {
        return None;
    }
    let mut e2es: Vec<f64> = pairs.iter().map(|(_, e2e)| *e2e).collect();
    e2es.sort_by(f64::total_cmp);
    let most = e2es[((0.99 * e2es.len() as f64) as usize).min(e2es.len() - 1)];
    // Half as much again for the load, in whole seconds.
    let wanted = Micros::from_secs_f64((1.5 * most / 1e3).ceil());
    Some(Infeasible::Deadline { share, wanted })
}

/// TTFT p95 if most of the lost time is before the first token, and that is much; otherwise mean E2E.
fn without_slos(alone: &Alone, requests: &[AttributedRequest]) -> TargetFigure {
    let (mut before, mut after, mut life) = (0.0, 0.0, 0.0);
    for request in requests {
        let Some(alone) = alone.of(request) else { continue };
        let (Some(ttft), Some(e2e)) = (alone.ttft_ms, alone.e2e_ms) else { continue };
        let first = request.ttft_us.unwrap_or(request.life_us) / 1e3;
        before += (first - ttft).max(0.0);
        after += (request.life_us / 1e3 - first - (e2e - ttft)).max(0.0);
        life += request.life_us / 1e3;
    }
    if before > after && before > 0.05 * life {
        TargetFigure::overall(SloMetric::Ttft, SloStatistic::P95)
    } else {
        TargetFigure::overall(SloMetric::E2e, SloStatistic::Mean)
    }
}

/// The median; the lower one of two.
pub(super) fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len().saturating_sub(1) / 2).copied()
}

/// How often the time of an instance exceeds that of the median one for it to be hot.
const HOT: f64 = 1.5;

/// Moves the excess of instances over the median one to [`Cause::HotInstance`]. `instances`: how many there are at the start; those without requests
/// count, too. With several kinds of instances there is no median.
pub(super) fn find_hot_instances(requests: &mut [AttributedRequest], alone: &Alone, instances: usize) {
    const OF_LOAD: [Cause; 6] =
        [Cause::KvBlocks, Cause::BatchSlots, Cause::TokenBudget, Cause::Interference, Cause::Preemption, Cause::Decode];
    // The decode steps that it would have alone are no excess.
    let decode_alone = |request: &AttributedRequest| {
        let alone = alone.of(request);
        alone.and_then(|alone| Some(1e3 * (alone.e2e_ms? - alone.ttft_ms?))).unwrap_or(f64::INFINITY)
    };
    let load = |request: &AttributedRequest| {
        let sum: f64 =
            OF_LOAD.iter().map(|&cause| request.before[cause as usize] + request.after[cause as usize]).sum();
        let decode = request.before[Cause::Decode as usize] + request.after[Cause::Decode as usize];
        sum - decode.min(decode_alone(request))
    };
    let mut sums = vec![(0.0, 0_u64); instances];
    for request in requests.iter() {
        let Some(index) = request.instance.map(|instance| instance.index()) else { continue };
        if sums.len() <= index {
            sums.resize(index + 1, (0.0, 0));
        }
        sums[index] = (sums[index].0 + load(request), sums[index].1 + 1);
    }
    let means: Vec<f64> = sums.iter().map(|&(sum, count)| sum / count.max(1) as f64).collect();
    let Some(usual) = median(means.iter().copied()).filter(|_| means.len() > 1) else { return };
    for request in requests {
        let Some(&mean) = request.instance.and_then(|instance| means.get(instance.index())) else { continue };
        if mean <= HOT * usual || mean <= 0.0 {
            continue;
        }
        let share = 1.0 - usual / mean;
        let decode = request.before[Cause::Decode as usize] + request.after[Cause::Decode as usize];
        let slowed = if decode > 0.0 { (decode - decode_alone(request)).max(0.0) / decode } else { 0.0 };
        for times in [&mut request.before, &mut request.after] {
            for cause in OF_LOAD {
                let part = if cause == Cause::Decode { share * slowed } else { share };
                let moved = part * times[cause as usize];
                times[cause as usize] -= moved;
                times[Cause::HotInstance as usize] += moved;
            }
        }
    }
}

/// The part of the decode steps of `requests` beyond those that each has alone. Unit: share, 0 to 1.
pub(super) fn decode_excess(target: &Target, requests: &[&AttributedRequest], alone: &Alone) -> f64 {
    let (mut whole, mut excess) = (0.0, 0.0);
    for request in requests {
        let Some(least) = alone.of(request).and_then(|alone| Some(1e3 * (alone.e2e_ms? - alone.ttft_ms?))) else {
            continue;
        };
        let decode = target.times(request)[Cause::Decode as usize];
        whole += decode;
        excess += (decode - least).max(0.0);
    }
    if whole > 0.0 { excess / whole } else { 0.0 }
}

/// The shares of the causes in the time of `requests`, which sum to 1; and that time, µs.
pub(super) fn shares(target: &Target, requests: &[&AttributedRequest]) -> (CauseTimes, f64) {
    let mut sums = [0.0; TIMED];
    for request in requests {
        sums.iter_mut().zip(target.times(request)).for_each(|(sum, time)| *sum += time);
    }
    let whole: f64 = sums.iter().sum();
    if whole <= 0.0 {
        let mut nothing = [0.0; TIMED];
        nothing[Cause::Fixed as usize] = 1.0;
        return (nothing, 0.0);
    }
    (sums.map(|sum| sum / whole), whole)
}
