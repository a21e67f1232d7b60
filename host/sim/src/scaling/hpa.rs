//! The formula of Kubernetes' HorizontalPodAutoscaler: from metrics to the desired number of replicas
//! (`replica_calculator.go` and `computeReplicasForMetrics` of pkg/controller/podautoscaler, release 1.34).

use crate::numbers::truncated_u32;

/// The default tolerance: a measured value that differs from its target by this share or less changes nothing.
pub const TOLERANCE: f64 = 0.1;

/// A metric and its target, > 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Metric {
    /// What was measured; `None` if it failed.
    pub reading: Option<Reading>,
    /// The target, in the unit of the reading.
    pub target: f64,
}

/// What was measured, ≥ 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reading {
    /// An external metric of type `AverageValue`: a total, with a target for one replica. KEDA's default.
    Total(f64),
    /// An external metric of type `Value`: a level that more replicas lower in proportion.
    Level(f64),
    /// A metric of pods: a value of each replica, of which the mean has the target.
    Pods {
        /// Sum over the ready replicas that have a value.
        sum: f64,
        /// Number of the replicas in the sum.
        known: u32,
        /// Ready replicas without a value.
        missing: u32,
        /// Replicas that are not ready.
        unready: u32,
    },
}

/// Replicas of a Deployment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicaCount {
    /// All that were asked for.
    pub current: u32,
    /// Those that are ready.
    pub ready: u32,
}

/// The desired number of replicas: the largest of `metrics`. `None` if no metric can say, or if one failed and the others
/// desire fewer replicas than there are: a metric that failed prevents a scale-down.
#[must_use]
pub fn desired(metrics: &[Metric], replicas: ReplicaCount, tolerance: f64) -> Option<u32> {
    let mut failed = false;
    let mut largest = None;
    for metric in metrics {
        match of_metric(metric, replicas, tolerance) {
            Some(desired) => largest = largest.max(Some(desired)),
            None => failed = true,
        }
    }
    largest.filter(|&desired| !failed || desired >= replicas.current)
}

/// The number of replicas that one metric desires.
fn of_metric(metric: &Metric, replicas: ReplicaCount, tolerance: f64) -> Option<u32> {
    let current = f64::from(replicas.current);
    let within = |ratio: f64| 1.0 - tolerance <= ratio && ratio <= 1.0 + tolerance;
    let target = (metric.target * 1000.0).round();
    match metric.reading? {
        Reading::Total(total) => {
            let total = milli(total)?;
            let unchanged = replicas.current > 0 && within(total / (target * current));
            if unchanged { Some(replicas.current) } else { whole(total / target) }
        }
        Reading::Level(level) => {
            let ratio = milli(level)? / target;
            match replicas.current {
                0 => whole(ratio),
                _ if within(ratio) => Some(replicas.current),
                _ => whole(ratio * f64::from(replicas.ready)),
            }
        }
        Reading::Pods { known: 0, .. } => None,
        Reading::Pods { sum, known, missing, unready } => {
            let mean = (milli(sum)? / f64::from(known)).floor();
            let ratio = mean / target;
            let unready = if ratio > 1.0 { unready } else { 0 };
            if missing + unready == 0 {
                return if within(ratio) { Some(replicas.current) } else { whole(ratio * f64::from(known)) };
            }
            // Replicas without a value count as idle on the way up, as at their target on the way down.
            let counted = f64::from(known + missing + unready);
            let assumed = if ratio < 1.0 { target * f64::from(missing) } else { 0.0 };
            let corrected = ((milli(sum)? + assumed) / counted).floor() / target;
            let turned = ratio < 1.0 && corrected > 1.0 || ratio > 1.0 && corrected < 1.0;
            if within(corrected) || turned {
                return Some(replicas.current);
            }
            let desired = whole(corrected * counted)?;
            let turned = corrected < 1.0 && desired > replicas.current || corrected > 1.0 && desired < replicas.current;
            Some(if turned { replicas.current } else { desired })
        }
    }
}

/// Metrics cross as thousandths, which KEDA truncates.
fn milli(value: f64) -> Option<f64> {
    (value.is_finite() && value >= 0.0).then(|| (value * 1000.0).trunc())
}

/// The next whole number of replicas.
fn whole(replicas: f64) -> Option<u32> {
    replicas.is_finite().then(|| truncated_u32(replicas.ceil().clamp(0.0, f64::from(u32::MAX))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pods(sum: f64, known: u32, missing: u32, unready: u32) -> Option<Reading> {
        Some(Reading::Pods { sum, known, missing, unready })
    }

    /// Metrics with their targets, replicas, ready ones, the desired number worked out by hand, and why.
    type FormulaCase<'a> = (&'a [(Option<Reading>, f64)], u32, u32, Option<u32>, &'a str);

    #[test]
    fn desired_numbers_are_those_of_kubernetes() {
        let total = |value| Some(Reading::Total(value));
        let level = |value| Some(Reading::Level(value));
        #[rustfmt::skip]
        let rows: &[FormulaCase<'_>] = &[
            // Totals: ⌈total / target⌉, unless total / (target · replicas) is from 0.9 to 1.1.
            (&[(total(120.0), 10.0)], 10, 10, Some(12), "1.2 of the target: ⌈120 / 10⌉"),
            (&[(total(110.0), 10.0)], 10, 10, Some(10), "1.1 is within the tolerance"),
            (&[(total(111.0), 10.0)], 10, 10, Some(12), "1.11 is not: ⌈11.1⌉"),
            (&[(total(90.0), 10.0)], 10, 10, Some(10), "0.9 is within the tolerance"),
            (&[(total(89.0), 10.0)], 10, 10, Some(9), "0.89 is not: ⌈8.9⌉"),
            (&[(total(0.0), 16.0)], 3, 3, Some(0), "nothing runs"),
            (&[(total(25.0), 10.0)], 0, 0, Some(3), "from zero there is no tolerance: ⌈2.5⌉"),
            (&[(total(30.0), 10.0)], 6, 1, Some(3), "ready replicas do not matter for a total"),
            (&[(total(2.1), 0.7)], 1, 1, Some(3), "2100 / 700 thousandths are 3, not 3.0000000000000004"),
            // Several metrics: the largest number; one that failed prevents a scale-down only.
            (&[(total(0.0), 1.0), (total(50.0), 16.0)], 3, 3, Some(3), "0, and 50 / 48 within the tolerance"),
            (&[(total(5.0), 1.0), (total(50.0), 16.0)], 3, 3, Some(5), "5 and 3"),
            (&[(None, 1.0), (total(20.0), 10.0)], 3, 3, None, "2 < 3, but the other metric failed"),
            (&[(None, 1.0), (total(50.0), 10.0)], 3, 3, Some(5), "5 > 3, although the other metric failed"),
            (&[(None, 1.0), (total(f64::NAN), 1.0)], 3, 3, None, "both failed"),
            // Levels: ⌈level / target · ready⌉.
            (&[(level(0.84), 0.7)], 4, 4, Some(5), "1.2 · 4 = 4.8"),
            (&[(level(0.75), 0.7)], 4, 4, Some(4), "1.07 is within the tolerance"),
            (&[(level(0.35), 0.7)], 4, 4, Some(2), "0.5 · 4"),
            (&[(level(1.05), 0.7)], 4, 2, Some(3), "1.5 · 2: only ready replicas count"),
            // Pods: ⌈mean / target · pods⌉, missing ones as idle on the way up and as at the target on the way down.
            (&[(pods(300.0, 3, 0, 0), 50.0)], 3, 3, Some(6), "mean 100: 2 · 3"),
            (&[(pods(300.0, 3, 1, 0), 50.0)], 4, 4, Some(6), "300 / 4 = 75: 1.5 · 4"),
            (&[(pods(110.0, 2, 1, 0), 50.0)], 3, 3, Some(3), "110 / 3 = 36.7 would turn up into down"),
            (&[(pods(40.0, 2, 2, 0), 50.0)], 4, 4, Some(3), "(40 + 2 · 50) / 4 = 35: 0.7 · 4 = 2.8"),
            (&[(pods(132.0, 3, 1, 0), 50.0)], 4, 4, Some(4), "(132 + 50) / 4 = 45.5: 0.91 is within the tolerance"),
            (&[(pods(400.0, 2, 0, 2), 50.0)], 4, 2, Some(8), "unready ones count as idle: 400 / 4 = 100: 2 · 4"),
            (&[(pods(40.0, 2, 0, 2), 50.0)], 4, 2, Some(1), "not on the way down: 0.4 · 2 = 0.8"),
            (&[(pods(0.0, 0, 4, 0), 50.0)], 4, 4, None, "no pod has a value"),
        ];
        assert_eq!(rows.len(), 26, "14 more are in `behaviour.rs`");
        for &(metrics, current, ready, expected, why) in rows {
            let metrics: Vec<_> = metrics.iter().map(|&(reading, target)| Metric { reading, target }).collect();
            assert_eq!(desired(&metrics, ReplicaCount { current, ready }, TOLERANCE), expected, "{why}");
        }
    }

    #[test]
    fn no_input_is_out_of_range() {
        let count = ReplicaCount { current: 3, ready: 3 };
        let one = |reading, target| desired(&[Metric { reading: Some(reading), target }], count, TOLERANCE);
        assert_eq!(one(Reading::Total(f64::INFINITY), 1.0), None);
        assert_eq!(one(Reading::Total(-1.0), 1.0), None);
        assert_eq!(one(Reading::Total(1e300), 1.0), Some(u32::MAX));
        assert_eq!(one(Reading::Level(1.0), 0.0), None, "a target of 0 has no ratio");
        assert_eq!(desired(&[], count, TOLERANCE), None, "no metric");
    }
}
