//! What follows from a search of a capacity or a size, in a sentence.

use blis_report::{Concludes, Conclusion, ConclusionKind, latency_in_words, three_digits};

use super::capacity::{Capacity, PolicyCapacity};
use super::elastic::ElasticCurve;
use super::size::{ServiceSize, SizeResult};
use super::slo::Slo;
use super::sweep::{MeasuredPoint, Sweep, SweepPoint};
use super::text::joined;
use super::variation::in_words;
use crate::workload_config::plural;

impl Concludes for Capacity {
    fn conclusion(&self) -> Conclusion {
        let unit = self.unit.name();
        let figure = |of: &PolicyCapacity| {
            let interval = of.low.zip(of.high);
            let interval = interval
                .map_or(String::new(), |(low, high)| format!(" [{}, {}]", three_digits(low), three_digits(high)));
            format!("{}{interval}", three_digits(of.capacity))
        };
        let Some((first, others)) = self.policies.split_first() else {
            return Conclusion::new(ConclusionKind::UNDECIDED, "Undecided: nothing was compared");
        };
        let limits = joined(&self.slo);
        if others.is_empty() {
            let replicas = plural(self.replicas.into(), "replica");
            let drawn = first.with_model_error.map_or(String::new(), |drawn| {
                format!("; with the model's error {}–{}", three_digits(drawn.low), three_digits(drawn.high))
            });
            let text =
                format!("{} {unit} within {limits} on {replicas}{drawn}; {} binds", figure(first), first.binding);
            return Conclusion::new(ConclusionKind::Holds, text);
        }
        let best = self.policies.iter().max_by(|one, other| one.capacity.total_cmp(&other.capacity)).unwrap_or(first);
        // Intervals that overlap decide nothing.
        let second = self.policies.iter().filter(|of| of.policy != best.policy).filter_map(|of| Some((of, of.high?)));
        let second = second.max_by(|one, other| one.1.total_cmp(&other.1));
        let (kind, begin) = match (best.low, second) {
            (Some(low), Some((_, high))) if low > high => {
                (ConclusionKind::Better, format!("{} serves most", best.policy))
            }
            (_, Some((of, _))) => {
                (ConclusionKind::UNDECIDED, format!("Undecided between {} and {}", best.policy, of.policy))
            }
            (_, None) => (ConclusionKind::UNDECIDED, "Undecided: one seed has no interval".to_owned()),
        };
        let both = [best, first].map(|of| format!("{} under {}", figure(of), of.policy));
        let both = if best.policy == first.policy { both[0].clone() } else { both.join(", ") };
        Conclusion::new(kind, format!("{begin}: {unit} within {limits}: {both}"))
    }
}

impl Concludes for ServiceSize {
    fn conclusion(&self) -> Conclusion {
        let fewer = self.checks.get(1).map_or(String::new(), |fewer| match fewer.result {
            SizeResult::Fails => {
                let verb = if fewer.count == 1 { "does" } else { "do" };
                format!("; {} {verb} not: {}", fewer.count, self.worst(&fewer.values_ms))
            }
            SizeResult::Holds => format!("; {} would, too", fewer.count),
            SizeResult::Undecided => format!("; of {} it is undecided", fewer.count),
        });
        let (load, unit) = (three_digits(self.load), self.unit.name());
        let drawn = self.model_error.map_or(String::new(), |risk| {
            let end = |count: Option<u32>| count.map_or("no number".to_owned(), |count| count.to_string());
            match (risk.replicas_low, risk.replicas_high) {
                (low, high) if low == high && low.is_some() => String::new(),
                (low, high) => format!(", {}–{} with the model's error", end(low), end(high)),
            }
        });
        let verb = if self.replicas == 1 { "serves" } else { "serve" };
        let replicas = plural(self.replicas.into(), "replica");
        let text = format!(
            "{replicas} ({}{drawn}) {verb} {load} {unit} within {}{fewer}",
            plural(self.gpus, "GPU"),
            joined(&self.slo)
        );
        Conclusion::new(ConclusionKind::Holds, text)
    }
}

impl ServiceSize {
    /// The figure that is farthest beyond its limit, or that the requests in flight become more and more.
    fn worst(&self, values_ms: &[Option<f64>]) -> String {
        let beyond = self.slo.iter().zip(values_ms).filter_map(|(slo, value)| Some((slo, (*value)?)));
        let excess = |&(slo, value): &(&Slo, f64)| value / slo.limit.as_millis_f64();
        let worst = beyond.max_by(|one, other| excess(one).total_cmp(&excess(other)));
        match worst {
            Some((slo, value)) if value > slo.limit.as_millis_f64() => {
                format!("{} {}", slo.figure(), latency_in_words(value))
            }
            _ => "more requests arrive than they serve".to_owned(),
        }
    }
}

impl Concludes for ElasticCurve {
    fn conclusion(&self) -> Conclusion {
        let (elastic, fixed) = (&self.elastic, &self.fixed);
        let saved = three_digits(100.0 * self.saved);
        Conclusion::new(
            ConclusionKind::Holds,
            format!(
                "{} replicas that follow the load instead of {} fixed ones save {saved} % of the GPU-hours within {}",
                three_digits(elastic.mean),
                three_digits(fixed.mean),
                joined(&self.slo)
            ),
        )
    }
}

impl Concludes for Sweep {
    fn conclusion(&self) -> Conclusion {
        let measured = || self.points.iter().filter_map(|point| Some((point, point.measured.as_ref()?)));
        let has_limits = self.figures.iter().any(|figure| figure.contains('='));
        let count = self.points.len();
        let saturated = measured().filter(|(_, of)| of.saturated_seeds > 0).count();
        if saturated > 0 && saturated == measured().count() {
            let text = format!("Overloaded: none of {} serves its load", plural(count as u64, "point"));
            return Conclusion::new(ConclusionKind::OVERLOADED, text);
        }
        if !has_limits {
            let best = measured().filter(|(_, of)| of.non_dominated).count();
            return Conclusion::measured(format!(
                "{best} of {} are dominated by no other in cost and all figures; limits (--slo) choose one",
                plural(count as u64, "point")
            ));
        }
        let holding: Vec<_> = measured().filter(|(_, of)| of.meets_slos).collect();
        let cost =
            |point: &(&SweepPoint, &MeasuredPoint)| point.1.usd_per_million_output_tokens.unwrap_or(point.1.cost);
        let cheapest = holding.iter().min_by(|one, other| cost(one).total_cmp(&cost(other)));
        match cheapest {
            Some((point, of)) => Conclusion::new(
                ConclusionKind::Holds,
                format!(
                    "{} of {} hold; cheapest: {} on {} GPUs",
                    holding.len(),
                    plural(count as u64, "point"),
                    in_words(&point.settings),
                    three_digits(of.gpus)
                ),
            ),
            None => Conclusion::new(
                ConclusionKind::Fails,
                format!("None of {} is within {}", plural(count as u64, "point"), self.figures.join(", ")),
            ),
        }
    }
}
