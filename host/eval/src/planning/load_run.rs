//! One simulation at one load, and whether it meets the SLOs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use blis_config::Deployment;
use blis_report::{LoadLog, LoadReport, LoadState, time_per_output_token};
use blis_sim::cluster::{FollowUps, SessionStates};
use blis_sim::metrics::{Distribution, Report};
use blis_sim::observer::{Interests, Observer, SimEvent};
use blis_sim::outcome::Outcome;
use blis_sim::request::{Name, Request};
use blis_sim::units::Micros;
use blis_stats::{Growth, RunEvidence, RunState, StateReason, state_of};

use crate::error::RunError;
use crate::experiment::Experiment;
use crate::load_warnings::synchronised;
use crate::measure::{Measurement, measure};
use crate::targets::NamedWorkload;

use super::load::{SeededLoad, WARMUP, class_names};
use super::slo::{Slo, SloMetric, SloStatistic};

/// Mean number of requests in flight, per replica, below which a request is almost always alone: at lower loads latencies are
/// the same.
pub(super) const ALONE: f64 = 0.02;

/// How many times the violations that a percentile allows end the arrivals of a run. 1 is enough to know that this run misses it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct EarlyStop(pub f64);

/// What a run at one load measured.
#[derive(Clone, Debug)]
pub(super) struct LoadRun {
    /// By SLO.
    pub results: Vec<SloResult>,
    /// Offered and served load; `None` if all requests arrive at once.
    pub load: Option<LoadReport>,
    /// Mean end-to-end latency of completed requests, s.
    pub mean_e2e_s: f64,
    /// For how long sessions must begin, by their life in this run, s; 0 of other loads.
    pub needed_s: f64,
    /// Share of the requests that are within the limits of all SLOs of their class; `None` without requests. A single
    /// inter-token latency is none of a request.
    pub attainment: Option<f64>,
    pub held: MeanGpus,
    pub rates: ServedRates,
    /// Variance over mean of the arrivals per second, if clients that wait for outputs send together.
    pub synchronised: Option<f64>,
}

/// What the whole run served, per second of simulated time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct ServedRates {
    /// Requests that arrived, whatever became of them.
    pub arrived_per_s: f64,
    /// Requests that completed.
    pub requests_per_s: f64,
    /// Their output tokens.
    pub output_tokens_per_s: f64,
}

impl ServedRates {
    fn from_report(report: &Report) -> Self {
        let (requests, tokens) = (report.cluster.responses_per_second(), report.cluster.tokens_per_second());
        let seconds = report.cluster.duration.as_secs_f64();
        let arrived = report.cluster.counts.arrived() as f64;
        Self {
            arrived_per_s: if seconds > 0.0 { arrived / seconds } else { 0.0 },
            requests_per_s: requests,
            output_tokens_per_s: tokens,
        }
    }
}

/// The GPUs that a whole run held, and what they generated.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct MeanGpus {
    /// Hours, summed over GPUs.
    pub gpu_hours: f64,
    /// Mean number over the run.
    pub mean: f64,
    /// Dollars; `None` without a price list.
    pub usd: Option<f64>,
    /// Output tokens of completed requests.
    pub output_tokens: u64,
}

impl MeanGpus {
    fn from_report(report: &Report) -> Self {
        let gpu_hours = report.gpu_hours().unwrap_or(0.0);
        let span = report.replicas.as_ref().map_or(report.cluster.duration, |replicas| replicas.end);
        let hours = span.as_secs_f64() / 3600.0;
        Self {
            gpu_hours,
            mean: if hours > 0.0 { gpu_hours / hours } else { 0.0 },
            usd: report.dollars(),
            output_tokens: report.cluster.counts.output_tokens,
        }
    }
}

/// An SLO in a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct SloResult {
    /// The value of its statistic, ms; infinite if too many requests did not complete, `None` without a sample.
    pub value_ms: Option<f64>,
    /// Above 0 if the SLO is missed: the share of violations beyond the share that is allowed; for means, and for inter-token
    /// latencies, the relative excess of the value over the limit.
    pub excess: f64,
    /// Requests (inter-token latencies) that count.
    pub samples: u64,
}

impl LoadRun {
    /// Simulates `service` under the requests of `seeded` at `load`. `stop`: when to end a run that misses a percentile.
    pub(super) fn new(
        service: &Experiment,
        deployment: &Deployment,
        seeded: &SeededLoad,
        load: f64,
        slos: &[Slo],
        stop: EarlyStop,
    ) -> Result<Self, RunError> {
        let config = seeded.on(service);
        // A warm-up of the settings is a time; without one, it is a share of the requests.
        let usual_cut = seeded.cut(load).filter(|_| service.warmup == Micros::ZERO);
        let config = Experiment { warmup: usual_cut.unwrap_or(service.warmup), ..config };
        let (requests, follow_ups) = seeded.at(load)?;
        let is_open = follow_ups.is_none() || seeded.sessions.is_some();
        let steady = seeded.sessions.as_ref().map(|sessions| &sessions.steady);
        let waits = follow_ups.is_some() && steady.is_none_or(|sessions| sessions.is_closed_loop);
        let is_stopped = Arc::new(AtomicBool::new(false));
        let limits = slos.iter().map(|slo| Limit::new(slo, seeded, config.warmup, load, stop)).collect();
        let latencies = LatencyLog {
            warmup: config.warmup,
            limits,
            is_stopped: Arc::clone(&is_stopped),
            samples: Vec::new(),
            times: seeded.sessions.map(|_| RequestTimes::default()),
        };
        let observers = (LoadLog::default(), latencies);
        let ends = Arc::clone(&is_stopped);
        let follow_ups = follow_ups.map(|inner| Box::new(UntilStopped { inner, is_stopped: ends }) as Box<_>);
        let requests = requests.take_while(|_| !is_stopped.load(Ordering::Relaxed));
        let named = NamedWorkload { names: &seeded.names, slo_targets: &BTreeMap::new() };
        let Measurement { report, observer, .. } =
            measure(&config, deployment, named, requests, follow_ups, observers)?;
        let (load_log, LatencyLog { limits, mut samples, times, .. }) = observer;
        if usual_cut.is_none() && service.warmup == Micros::ZERO {
            samples.sort_by_key(|sample| sample.arrival);
            samples.drain(..(samples.len() as f64 * WARMUP) as usize);
        }
        let results = slos.iter().zip(&limits).map(|(slo, limit)| limit.result(slo, &samples, &report.cluster.itl));
        let within = samples.iter().filter(|sample| limits.iter().all(|limit| limit.is_met_by(sample))).count();
        let completed: Vec<f64> = samples.iter().map(|sample| sample.e2e_ms).filter(|ms| ms.is_finite()).collect();
        let mean_e2e_s = completed.iter().sum::<f64>() / completed.len().max(1) as f64 / 1e3;
        // However many wait: the SLOs say how long they may. What counts is whether they become more and more.
        let mut load = load_log.report(is_open.then_some(u64::MAX));
        if let (Some(load), Some(times)) = (&mut load, times) {
            load.state = Some(times.state(config.warmup));
        }
        Ok(Self {
            results: results.collect(),
            load,
            mean_e2e_s,
            needed_s: seeded.sessions.map_or(0.0, |sessions| sessions.needed_s(mean_e2e_s)),
            attainment: (!samples.is_empty()).then(|| within as f64 / samples.len() as f64),
            held: MeanGpus::from_report(&report),
            rates: ServedRates::from_report(&report),
            synchronised: synchronised(&load_log, steady, waits).and_then(|found| match found.reason {
                StateReason::Bursts { arrivals, .. } => Some(arrivals),
                _ => None,
            }),
        })
    }

    /// Whether more requests arrive than are served, as far as a run of that length shows.
    pub(super) fn is_saturated(&self) -> bool {
        self.load.is_some_and(|load| matches!(load.state, Some(LoadState::Overloaded | LoadState::TooShort)))
    }

    /// Whether the requests in flight became more, and a longer run could show that the service only filled.
    pub(super) fn is_undecided(&self) -> bool {
        self.meets_slos() && self.load.is_some_and(|load| load.state == Some(LoadState::TooShort))
    }

    /// Whether this run alone meets all SLOs, and keeps up with its arrivals.
    pub(super) fn meets_all(&self) -> bool {
        !self.is_saturated() && self.meets_slos()
    }

    /// Whether this run alone meets all SLOs.
    pub(super) fn meets_slos(&self) -> bool {
        self.results.iter().all(|result| result.excess <= 0.0)
    }

    /// The SLO that is closest to its limit, or furthest beyond: its index.
    pub(super) fn binding(&self, slos: &[Slo]) -> usize {
        let ratio = |index: usize| {
            let value = self.results[index].value_ms.unwrap_or(0.0);
            value / slos[index].limit.as_millis_f64()
        };
        (0..slos.len()).max_by(|&a, &b| ratio(a).total_cmp(&ratio(b)).then(b.cmp(&a))).unwrap_or(0)
    }
}

/// Which requests an SLO is about, and how many of them may miss it.
struct Limit {
    metric: SloMetric,
    limit_ms: f64,
    class: Option<[Name; 2]>,
    /// Violations beyond which arrivals end; `None` if that is not known before the run.
    allowed: Option<u64>,
    violations: u64,
}

impl Limit {
    fn new(slo: &Slo, seeded: &SeededLoad, warmup: Micros, load: f64, EarlyStop(times): EarlyStop) -> Self {
        let class = slo.class.as_deref().map(|class| class_names(class, &seeded.names));
        let counted = seeded.counted(class, warmup, load);
        let tail = slo.statistic.tail().filter(|_| slo.metric != SloMetric::Itl);
        let allowed = counted.zip(tail).map(|(counted, tail)| (counted * tail * times) as u64);
        Self { metric: slo.metric, limit_ms: slo.limit.as_millis_f64(), class, allowed, violations: 0 }
    }

    fn covers(&self, class: Name) -> bool {
        self.class.is_none_or(|names| names.contains(&class))
    }

    /// Whether the request of `sample` is within the limit, or of another class. NaN is no violation.
    fn is_met_by(&self, sample: &Sample) -> bool {
        let latency = sample.get(self.metric);
        let exceeds = if self.metric == SloMetric::Itl { latency.is_infinite() } else { latency > self.limit_ms };
        !(self.covers(sample.class) && exceeds)
    }

    fn result(&self, slo: &Slo, samples: &[Sample], itl: &Distribution) -> SloResult {
        let mut values: Vec<f64> = samples
            .iter()
            .filter(|sample| self.covers(sample.class))
            .map(|sample| sample.get(slo.metric))
            .filter(|ms| !ms.is_nan())
            .collect();
        if slo.metric == SloMetric::Itl {
            return pooled(slo, itl, &values);
        }
        values.sort_by(f64::total_cmp);
        let samples = values.len() as u64;
        if samples == 0 {
            return SloResult { value_ms: None, excess: 0.0, samples };
        }
        let (value_ms, excess) = match slo.statistic.tail() {
            Some(tail) => {
                let violations = values.len() - values.partition_point(|&ms| ms <= self.limit_ms);
                let rank = ((1.0 - tail) * values.len() as f64 - ROUNDING).ceil() as usize;
                (values[rank.clamp(1, values.len()) - 1], violations as f64 / values.len() as f64 - tail)
            }
            None => {
                let mean = values.iter().sum::<f64>() / values.len() as f64;
                (mean, mean / self.limit_ms - 1.0)
            }
        };
        SloResult { value_ms: Some(value_ms), excess: without_rounding(excess), samples }
    }
}

/// Inter-token latencies have the figures of the whole run. Requests that did not complete count as in the other latencies.
fn pooled(slo: &Slo, itl: &Distribution, ends: &[f64]) -> SloResult {
    let failed = ends.iter().filter(|ms| ms.is_infinite()).count() as f64 / ends.len().max(1) as f64;
    let value = match slo.statistic {
        SloStatistic::Mean => itl.mean_ms,
        SloStatistic::P50 => itl.p50_ms,
        SloStatistic::P90 => itl.p90_ms,
        SloStatistic::P95 => itl.p95_ms,
        SloStatistic::P99 => itl.p99_ms,
    };
    let value = if failed > slo.statistic.tail().unwrap_or(0.0) { f64::INFINITY } else { value };
    if itl.count == 0 && value.is_finite() {
        return SloResult { value_ms: None, excess: 0.0, samples: 0 };
    }
    SloResult { value_ms: Some(value), excess: value / slo.limit.as_millis_f64() - 1.0, samples: itl.count }
}

/// Shares such as 0.1 are no binary fractions: 20 violations of 200 requests are not more than 10 %.
const ROUNDING: f64 = 1e-9;

fn without_rounding(excess: f64) -> f64 {
    if excess.abs() < ROUNDING { 0.0 } else { excess }
}

/// The latencies of a request, ms.
#[derive(Clone, Copy, Debug)]
struct Sample {
    arrival: Micros,
    class: Name,
    ttft_ms: f64,
    /// NaN for one output token.
    tpot_ms: f64,
    e2e_ms: f64,
}

impl Sample {
    fn new(outcome: &Outcome) -> Self {
        let completed = outcome.completed();
        let ms = |time: Option<Micros>| time.filter(|_| completed).map_or(f64::INFINITY, Micros::as_millis_f64);
        let tpot = time_per_output_token(outcome);
        let has_tpot = tpot.is_some() || !completed;
        Self {
            arrival: outcome.arrival,
            class: outcome.tags.slo_class,
            ttft_ms: ms(outcome.ttft),
            tpot_ms: if has_tpot { ms(tpot) } else { f64::NAN },
            e2e_ms: ms(outcome.e2e),
        }
    }

    /// For inter-token latencies: whether the request completed, as its end-to-end latency.
    fn get(&self, metric: SloMetric) -> f64 {
        match metric {
            SloMetric::Ttft => self.ttft_ms,
            SloMetric::Tpot => self.tpot_ms,
            SloMetric::E2e | SloMetric::Itl => self.e2e_ms,
        }
    }
}

/// Clients of a closed loop, which send nothing more once a run that misses a percentile is stopped.
struct UntilStopped {
    inner: Box<dyn FollowUps + Send>,
    is_stopped: Arc<AtomicBool>,
}

impl FollowUps for UntilStopped {
    fn next(&mut self, ended: &Outcome) -> Option<Request> {
        self.inner.next(ended).filter(|_| !self.is_stopped.load(Ordering::Relaxed))
    }

    fn states(&self) -> SessionStates {
        self.inner.states()
    }
}

/// When the requests of sessions arrived and ended, s.
#[derive(Debug, Default)]
struct RequestTimes {
    arrivals: Vec<f64>,
    ends: Vec<f64>,
    /// Those after the warm-up that did not complete.
    lost: u64,
    counted: u64,
}

impl RequestTimes {
    fn add(&mut self, outcome: &Outcome, counts: bool) {
        self.arrivals.push(outcome.arrival.as_secs_f64());
        self.ends.push(outcome.ended_at.as_secs_f64());
        self.counted += u64::from(counts);
        self.lost += u64::from(counts && !outcome.completed());
    }

    /// Whether the requests in flight become more and more once later rounds of sessions arrive: the share of arrivals that stay counts, however
    /// slowly sessions that wait for outputs let them become more.
    fn state(&self, warmup: Micros) -> LoadState {
        // Nothing arrives after the warm-up in a run that was stopped in it.
        let growth = Growth::of(&self.arrivals, &self.ends, warmup.as_secs_f64()).ok();
        let lost_share = self.lost as f64 / self.counted.max(1) as f64;
        // Of few requests in flight one more is a large share, and three more are no trend.
        let matters = growth.is_some_and(|growth| growth.late > 1.25 * growth.early + 5.0);
        match state_of(&RunEvidence { growth, lost_share, ..RunEvidence::default() }).state {
            RunState::Undecided if matters => LoadState::TooShort,
            RunState::Steady | RunState::Undecided => LoadState::Steady,
            _ => LoadState::Overloaded,
        }
    }
}

/// Collects the latencies of requests, and ends the arrivals of a run that can meet a percentile no more.
struct LatencyLog {
    /// Requests that arrive before do not count.
    warmup: Micros,
    limits: Vec<Limit>,
    is_stopped: Arc<AtomicBool>,
    samples: Vec<Sample>,
    /// Of sessions that begin at a rate.
    times: Option<RequestTimes>,
}

impl Observer for LatencyLog {
    #[inline]
    fn interests(&self) -> Interests {
        Interests::OUTCOMES
    }

    #[inline]
    fn record(&mut self, event: &SimEvent<'_>) {
        let SimEvent::Outcome(outcome) = event else { return };
        let counts = outcome.arrival >= self.warmup;
        if let Some(times) = &mut self.times {
            times.add(outcome, counts);
        }
        if !counts {
            return;
        }
        let sample = Sample::new(outcome);
        for limit in &mut self.limits {
            if !limit.is_met_by(&sample) {
                limit.violations += 1;
                if limit.allowed.is_some_and(|allowed| limit.violations > allowed) {
                    self.is_stopped.store(true, Ordering::Relaxed);
                }
            }
        }
        self.samples.push(sample);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use blis_sim::ids::RequestId;
    use blis_sim::outcome::{Rejection, Status};
    use blis_workload::Names;
    use proptest::prelude::*;

    fn limit(slo: &Slo) -> Limit {
        Limit { metric: slo.metric, limit_ms: slo.limit.as_millis_f64(), class: None, allowed: None, violations: 0 }
    }

    fn result(slo: &str, samples: &[Sample]) -> SloResult {
        let slo = Slo::parse(slo).expect("valid");
        limit(&slo).result(&slo, samples, &Distribution::default())
    }

    /// A request with that TTFT, ms; an infinite one was rejected.
    fn sample(ttft_ms: f64) -> Sample {
        let request = Request::new(RequestId(0), Micros(5), 10, 1);
        let outcome = if ttft_ms.is_finite() {
            let time = Some(Micros::from_f64(ttft_ms * 1e3));
            Outcome { ttft: time, e2e: time, generated_tokens: 1, ..Outcome::new(&request, Status::Completed) }
        } else {
            Outcome::new(&request, Status::Rejected(Rejection::Admission))
        };
        Sample::new(&outcome)
    }

    #[test]
    fn a_share_at_its_limit_is_met() {
        let mut samples: Vec<Sample> = (0..200).map(|n| sample(if n < 20 { f64::INFINITY } else { 7.0 })).collect();
        let met = result("ttft_p90=7ms", &samples);
        assert_eq!(met, SloResult { value_ms: Some(7.0), excess: 0.0, samples: 200 });
        samples.push(sample(f64::INFINITY));
        let missed = result("ttft_p90=7ms", &samples);
        assert!(missed.excess > 0.0 && missed.value_ms == Some(f64::INFINITY), "{missed:?}");
    }

    #[test]
    fn one_rejected_request_misses_a_mean() {
        let missed = result("e2e_mean=1h", &[sample(1.0), sample(f64::INFINITY)]);
        assert_eq!((missed.value_ms, missed.excess), (Some(f64::INFINITY), f64::INFINITY));
    }

    /// Requests of one token have no TPOT, whatever the limit; rejected ones violate it.
    #[test]
    fn requests_without_gaps_have_no_tpot() {
        assert_eq!(result("tpot_p99=1us", &[sample(3.0)]), SloResult { value_ms: None, excess: 0.0, samples: 0 });
        assert!(result("tpot_p99=1us", &[sample(f64::INFINITY)]).excess > 0.0);
    }

    #[test]
    fn classes_without_a_name_are_the_default_class() {
        let mut names = Names::default();
        let batch = names.intern("batch");
        assert!(class_names("default", &names).contains(&Name::NONE));
        assert_eq!(class_names("batch", &names), [batch, batch]);
        assert!(!class_names("gold", &names).contains(&Name::NONE));
    }

    proptest! {
        /// The share of violations and the percentile say the same.
        #[test]
        fn the_value_is_within_the_limit_if_the_share_is(
            ttfts in prop::collection::vec(prop_oneof![8 => 0u32..20, 1 => Just(u32::MAX)], 1..200),
            statistic in prop::sample::select(vec!["p50", "p90", "p95", "p99"]),
            limit_ms in 1u32..20,
        ) {
            let ms = |ttft: u32| if ttft == u32::MAX { f64::INFINITY } else { f64::from(ttft) };
            let samples: Vec<Sample> = ttfts.iter().map(|&ttft| sample(ms(ttft))).collect();
            let found = result(&format!("ttft_{statistic}={limit_ms}ms"), &samples);
            let value = found.value_ms.expect("samples");
            prop_assert_eq!(found.excess <= 0.0, value <= f64::from(limit_ms), "{:?}", found);
        }
    }
}
