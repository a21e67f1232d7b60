//! Figures by SLO class: SLO attainment and goodput.

use std::collections::BTreeMap;

use super::aggregate::per_second;
use super::counts::Counts;
use super::distribution::{Distribution, Means, Samples};
use crate::outcome::Outcome;
use crate::request::Name;
use crate::units::Micros;

/// SLO targets of one class; `None` or 0 means no target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SloTargets {
    /// Maximum time to first token of a request.
    pub ttft: Option<Micros>,
    /// Maximum mean inter-token latency of a request.
    pub itl: Option<Micros>,
    /// Maximum end-to-end latency of a request.
    pub e2e: Option<Micros>,
}

impl SloTargets {
    /// The same targets without those of 0.
    pub(super) fn normal(self) -> Self {
        let positive = |target: Option<Micros>| target.filter(|&target| target > Micros::ZERO);
        Self { ttft: positive(self.ttft), itl: positive(self.itl), e2e: positive(self.e2e) }
    }

    /// Whether a request that ended met all targets. A request that did not complete met none; a class without targets
    /// is always met.
    #[must_use]
    pub fn met(&self, outcome: &Outcome) -> bool {
        let met = self.normal().met_each(outcome);
        met.iter().all(|met| met.is_none_or(|met| met && outcome.completed()))
    }

    /// TTFT, ITL and E2E: whether a completed request met the target; `None` without a target. A latency that does not
    /// exist (no first token, no second token) does not meet its target.
    fn met_each(&self, outcome: &Outcome) -> [Option<bool>; 3] {
        let within = |target: Option<Micros>, value: Option<Micros>| {
            target.map(|target| value.is_some_and(|value| value <= target))
        };
        let itl = self.itl.map(|target| itl_mean_us(outcome).is_some_and(|mean| mean <= target.0 as f64));
        [within(self.ttft, outcome.ttft), itl, within(self.e2e, outcome.e2e)]
    }
}

/// Mean inter-token latency of a completed request with two tokens or more, µs.
fn itl_mean_us(outcome: &Outcome) -> Option<f64> {
    (outcome.completed() && outcome.itl_count > 0).then_some(outcome.itl_mean_us)
}

/// The figures of one class.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ClassReport {
    /// Requests by their final status.
    pub counts: Counts,
    /// Time to first token of every request that generated one.
    pub ttft: Distribution,
    /// Mean inter-token latency of each completed request that has any.
    pub itl: Distribution,
    /// End-to-end latency of completed requests.
    pub e2e: Distribution,
}

/// SLO attainment and goodput over the classes with targets.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Goodput {
    /// Requests that met all targets, per simulated second.
    pub goodput_rps: f64,
    /// Requests that met all targets / requests that arrived, 0 to 1: rejected, dropped, timed-out and unfinished ones
    /// count as missed.
    pub slo_attainment: f64,
    /// The figures by class, without classes that have no targets or no requests.
    pub per_class: Vec<(Name, ClassGoodput)>,
}

/// SLO attainment and goodput of one class.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ClassGoodput {
    /// Requests of the class that arrived: the denominator of its attainment.
    pub count: u64,
    /// Completed requests that met every target of the class.
    pub good: u64,
    /// Requests that met every target, per simulated second.
    pub goodput_rps: f64,
    /// `good / count`, 0 to 1.
    pub slo_attainment: f64,
    /// Share of the *completed* requests, 0 to 1, that met the TTFT target; `None` without one.
    pub ttft_attainment: Option<f64>,
    /// The same for the target of the mean ITL.
    pub itl_attainment: Option<f64>,
    /// The same for the E2E target.
    pub e2e_attainment: Option<f64>,
    /// 99th percentile of TTFT, ms.
    pub ttft_p99_ms: f64,
    /// Mean over requests of their mean ITL, ms.
    pub itl_mean_ms: f64,
    /// 99th percentile of E2E, ms.
    pub e2e_p99_ms: f64,
}

/// The samples of both reports: 16 bytes per request, 8 more for durations above 71 minutes.
#[derive(Clone, Debug, Default)]
pub(super) struct ClassSamples {
    counts: Counts,
    ttft: Samples,
    itl: Means,
    e2e: Samples,
    targets: SloTargets,
    good: u64,
    /// Completed requests that met the target: TTFT, ITL, E2E.
    met: [u64; 3],
}

impl ClassSamples {
    pub fn new(targets: SloTargets) -> Self {
        Self { targets, ..Self::default() }
    }

    pub fn add(&mut self, outcome: &Outcome) {
        self.counts.count(outcome.status, outcome.generated_tokens);
        self.ttft.extend(outcome.ttft);
        if let Some(us) = itl_mean_us(outcome) {
            self.itl.push(us);
        }
        self.e2e.extend(outcome.e2e);
        if outcome.completed() {
            let met = self.targets.met_each(outcome);
            self.met.iter_mut().zip(met).for_each(|(count, met)| *count += u64::from(met == Some(true)));
            self.good += u64::from(met.iter().all(|&met| met != Some(false)));
        }
    }

    pub fn report(&mut self) -> ClassReport {
        ClassReport {
            counts: self.counts,
            ttft: self.ttft.distribution(),
            itl: self.itl.distribution(),
            e2e: self.e2e.distribution(),
        }
    }

    /// The figures of the class; `None` without targets.
    fn goodput(&self, report: &ClassReport, duration: Micros) -> Option<ClassGoodput> {
        let SloTargets { ttft, itl, e2e } = self.targets;
        if self.targets == SloTargets::default() {
            return None;
        }
        let [met_ttft, met_itl, met_e2e] = self.met;
        let of_completed = |target: Option<Micros>, met| target.map(|_| share(met, self.counts.completed));
        let count = self.counts.arrived();
        Some(ClassGoodput {
            count,
            good: self.good,
            goodput_rps: per_second(self.good, duration),
            slo_attainment: share(self.good, count),
            ttft_attainment: of_completed(ttft, met_ttft),
            itl_attainment: of_completed(itl, met_itl),
            e2e_attainment: of_completed(e2e, met_e2e),
            ttft_p99_ms: report.ttft.p99_ms,
            itl_mean_ms: report.itl.mean_ms,
            e2e_p99_ms: report.e2e.p99_ms,
        })
    }
}

/// The figures of all classes; `None` if no request has a class with targets.
pub(super) fn goodput(
    classes: &BTreeMap<Name, ClassSamples>,
    reports: &[(Name, ClassReport)],
    duration: Micros,
) -> Option<Goodput> {
    let with_targets = classes
        .values()
        .zip(reports)
        .filter_map(|(class, &(name, report))| Some((name, class.goodput(&report, duration)?)));
    let per_class: Vec<(Name, ClassGoodput)> = with_targets.collect();
    let sum = |of: fn(&ClassGoodput) -> u64| per_class.iter().map(|(_, class)| of(class)).sum::<u64>();
    let (good, count) = (sum(|class| class.good), sum(|class| class.count));
    (count > 0).then(|| Goodput {
        goodput_rps: per_second(good, duration),
        slo_attainment: share(good, count),
        per_class,
    })
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
