//! The figure that matters: the worst violated SLO, or without SLOs the part of the latency that loses most.

use blis_sim::metrics::Distribution;
use blis_sim::observer::{Interests, Observer, SimEvent};
use blis_sim::outcome::{Outcome, Status};
use blis_sim::request::Name;
use blis_sim::units::Micros;

use super::super::slo::{Slo, SloMetric, SloStatistic};

/// What a knob must improve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TargetFigure {
    /// A statistic of a latency, of all requests or those of a class.
    Latency { metric: SloMetric, statistic: SloStatistic, class: Option<Vec<Name>> },
    /// The share of the requests that do not complete.
    Lost,
}

/// The latencies of a request, ms.
#[derive(Clone, Copy, Debug)]
pub(super) struct LatencySample {
    pub id: u32,
    pub arrival: Micros,
    pub class: Name,
    pub completed: bool,
    /// Of a request that timed out, the time until then; `None` if it was lost otherwise.
    pub ttft_ms: Option<f64>,
    /// `None` with one output token, too.
    pub tpot_ms: Option<f64>,
    pub e2e_ms: Option<f64>,
}

impl LatencySample {
    fn new(outcome: &Outcome) -> Self {
        let completed = outcome.completed();
        let timed_out = (outcome.status == Status::TimedOut).then(|| outcome.ended_at.saturating_sub(outcome.arrival));
        let ms = |time: Option<Micros>| time.filter(|_| completed).or(timed_out).map(Micros::as_millis_f64);
        let tpot = blis_report::time_per_output_token(outcome);
        Self {
            id: outcome.id.0,
            arrival: outcome.arrival,
            class: outcome.tags.slo_class,
            completed,
            ttft_ms: ms(outcome.ttft),
            tpot_ms: if completed { tpot.map(Micros::as_millis_f64) } else { ms(None) },
            e2e_ms: ms(outcome.e2e),
        }
    }

    fn get(&self, metric: SloMetric) -> Option<f64> {
        match metric {
            SloMetric::Ttft => self.ttft_ms,
            SloMetric::Tpot | SloMetric::Itl => self.tpot_ms,
            SloMetric::E2e => self.e2e_ms,
        }
    }

    /// Whether it has a value of `metric`, or would have one had it completed.
    fn counts(&self, metric: SloMetric) -> bool {
        !self.completed || self.get(metric).is_some()
    }
}

/// An observer: the latencies of all requests of a run but those that can never be served.
#[derive(Debug, Default)]
pub(super) struct LatencySamples {
    pub warmup: Micros,
    pub samples: Vec<LatencySample>,
}

impl Observer for LatencySamples {
    fn interests(&self) -> Interests {
        Interests::OUTCOMES
    }

    fn record(&mut self, event: &SimEvent<'_>) {
        if let SimEvent::Outcome(outcome) = event
            && outcome.arrival >= self.warmup
            && !matches!(outcome.status, Status::Dropped(_))
        {
            self.samples.push(LatencySample::new(outcome));
        }
    }
}

/// The latencies of one run.
#[derive(Clone, Debug)]
pub(super) struct RunLatencies {
    /// In the order of the requests.
    pub samples: Vec<LatencySample>,
    pub itl: Distribution,
}

impl RunLatencies {
    pub fn new(mut samples: Vec<LatencySample>, itl: Distribution) -> Self {
        samples.sort_by_key(|sample| sample.id);
        Self { samples, itl }
    }

    /// Requests that do not complete, as a share of all.
    pub fn lost(&self) -> f64 {
        let lost = self.samples.iter().filter(|sample| !sample.completed).count();
        lost as f64 / self.samples.len().max(1) as f64
    }

    fn of_class<'a>(&'a self, class: Option<&'a [Name]>) -> impl Iterator<Item = &'a LatencySample> {
        self.samples.iter().filter(move |sample| class.is_none_or(|names| names.contains(&sample.class)))
    }
}

/// How requests that do not complete count.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum LostValue {
    /// As infinite: they violate every limit.
    Infinite,
    /// As the largest latency of the run, or this one, ms, if it is larger: so that effects can be compared.
    AtLeast(f64),
}

impl TargetFigure {
    pub fn of_slo(slo: &Slo, class: Option<Vec<Name>>) -> Self {
        Self::Latency { metric: slo.metric, statistic: slo.statistic, class }
    }

    pub fn overall(metric: SloMetric, statistic: SloStatistic) -> Self {
        Self::Latency { metric, statistic, class: None }
    }

    /// The latencies that count, ms, in the order of the requests.
    pub fn series(&self, run: &RunLatencies, lost: LostValue) -> Vec<f64> {
        let Self::Latency { metric, class, .. } = self else {
            return run.samples.iter().map(|sample| if sample.completed { 0.0 } else { 1.0 }).collect();
        };
        let samples: Vec<&LatencySample> =
            run.of_class(class.as_deref()).filter(|sample| sample.counts(*metric)).collect();
        let largest = match lost {
            LostValue::Infinite => f64::INFINITY,
            LostValue::AtLeast(least) => samples.iter().filter_map(|sample| sample.get(*metric)).fold(least, f64::max),
        };
        let value = |sample: &&LatencySample| match (sample.completed, lost) {
            (false, LostValue::Infinite) => f64::INFINITY,
            (false, LostValue::AtLeast(_)) => largest,
            (true, _) => sample.get(*metric).unwrap_or(largest),
        };
        samples.iter().map(value).collect()
    }

    /// The largest finite latency of a run, ms.
    pub fn largest(&self, run: &RunLatencies) -> f64 {
        let Self::Latency { metric, class, .. } = self else { return 0.0 };
        run.of_class(class.as_deref()).filter_map(|sample| sample.get(*metric)).fold(0.0, f64::max)
    }

    /// Its value, ms (a share of lost requests); `None` without a sample.
    pub fn value(&self, run: &RunLatencies, lost: LostValue) -> Option<f64> {
        let Self::Latency { metric, statistic, .. } = self else { return Some(run.lost()) };
        if *metric == SloMetric::Itl {
            return pooled(&run.itl, *statistic);
        }
        let mut values = self.series(run, lost);
        if values.is_empty() {
            return None;
        }
        let Some(tail) = statistic.tail() else { return Some(values.iter().sum::<f64>() / values.len() as f64) };
        values.sort_by(f64::total_cmp);
        let rank = ((1.0 - tail) * values.len() as f64 - 1e-9).ceil() as usize;
        values.get(rank.clamp(1, values.len()) - 1).copied()
    }

    /// The quantile that it is; `None` for a mean.
    pub fn quantile(&self) -> Option<f64> {
        match self {
            Self::Latency { statistic, .. } => statistic.tail().map(|tail| 1.0 - tail),
            Self::Lost => None,
        }
    }

    /// As flags write it.
    pub fn name(&self) -> String {
        match self {
            Self::Latency { metric, statistic, .. } => format!("{}_{}", metric.into_str(), statistic.into_str()),
            Self::Lost => "lost_share".to_owned(),
        }
    }

    /// As sentences write it.
    pub fn words(&self) -> String {
        match self {
            Self::Latency { metric, statistic, .. } => {
                format!("{} {}", statistic.into_str(), metric.into_str().to_uppercase())
            }
            Self::Lost => "share of lost requests".to_owned(),
        }
    }
}

fn pooled(itl: &Distribution, statistic: SloStatistic) -> Option<f64> {
    (itl.count > 0).then_some(match statistic {
        SloStatistic::Mean => itl.mean_ms,
        SloStatistic::P50 => itl.p50_ms,
        SloStatistic::P90 => itl.p90_ms,
        SloStatistic::P95 => itl.p95_ms,
        SloStatistic::P99 => itl.p99_ms,
    })
}
