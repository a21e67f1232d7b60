//! The effect of a knob on a figure: the relative change with its interval, from runs under the same requests.

use blis_stats::{
    BetterSide, CONFIDENCE, ComparisonRule, PairedRun, compare_paired, quantile_difference, sample_interval,
};

use super::super::slo::SloMetric;
use super::figure::{LostValue, RunLatencies, TargetFigure};

/// A relative change: −0.4 is 40 % less.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Effect {
    pub change: f64,
    /// 95 % interval; `None` if the runs do not show one.
    pub interval: Option<ChangeInterval>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ChangeInterval {
    pub low: f64,
    pub high: f64,
}

/// Latencies below this many ms, and shares below this part, count as this.
const LEAST: f64 = 1e-3;

impl Effect {
    /// The change of `figure` from `before` to `after`, runs of the same seeds. `None` without samples.
    pub fn between(figure: &TargetFigure, before: &[RunLatencies], after: &[RunLatencies]) -> Option<Self> {
        let ratio = |(a, b): (&RunLatencies, &RunLatencies)| {
            let lost = LostValue::AtLeast(figure.largest(a));
            Some((figure.value(b, lost)?.max(LEAST) / figure.value(a, lost)?.max(LEAST)).ln())
        };
        let ratios: Option<Vec<f64>> = before.iter().zip(after).map(ratio).collect();
        let ratios = ratios.filter(|ratios| !ratios.is_empty())?;
        let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
        let interval = match (before, after) {
            ([a], [b]) => within_run(figure, a, b),
            _ => sample_interval(&ratios, CONFIDENCE)
                .ok()
                .map(|interval| ChangeInterval { low: interval.low.exp_m1(), high: interval.high.exp_m1() }),
        };
        Some(Self { change: mean.exp_m1(), interval })
    }

    /// Whether the figure falls, as far as the runs show.
    pub fn is_better(&self) -> bool {
        match self.interval {
            Some(interval) => interval.high < 0.0 && self.change < -0.005,
            None => self.change < -0.02,
        }
    }

    /// Whether the figure rises, as far as the runs show.
    pub fn is_worse(&self) -> bool {
        match self.interval {
            Some(interval) => interval.low > 0.0 && self.change > 0.005,
            None => self.change > 0.02,
        }
    }

    /// By which power of e it falls.
    pub fn gain(&self) -> f64 {
        -self.change.max(-1.0 + 1e-9).ln_1p()
    }
}

/// The interval within one run, of the differences of the same requests.
fn within_run(figure: &TargetFigure, a: &RunLatencies, b: &RunLatencies) -> Option<ChangeInterval> {
    if matches!(figure, TargetFigure::Latency { metric: SloMetric::Itl, .. }) {
        return None;
    }
    let lost = LostValue::AtLeast(figure.largest(a));
    let (one, other) = (figure.series(a, lost), figure.series(b, lost));
    let same = a.samples.len() == b.samples.len() && a.samples.iter().zip(&b.samples).all(|(a, b)| a.id == b.id);
    if !same || one.len() != other.len() || one.is_empty() {
        return None;
    }
    let value = figure.value(a, lost)?;
    let interval = match figure.quantile() {
        Some(q) => quantile_difference(&[&one], &[&other], q, CONFIDENCE).ok()?.interval()?,
        None => {
            let pair = [PairedRun { a: &one, b: &other }];
            compare_paired(&pair, &ComparisonRule::standard(BetterSide::Less)).ok()?.difference.interval?
        }
    };
    let relative = |difference: f64| (difference / value.max(LEAST)).max(-1.0);
    Some(ChangeInterval { low: relative(interval.low), high: relative(interval.high) })
}

#[cfg(test)]
mod tests {
    use blis_sim::metrics::Distribution;
    use blis_sim::request::Name;
    use blis_sim::units::Micros;

    use super::super::super::slo::SloStatistic;
    use super::super::figure::LatencySample;
    use super::*;

    fn run(ttfts_ms: &[f64]) -> RunLatencies {
        let sample = |(id, &ms): (usize, &f64)| LatencySample {
            id: u32::try_from(id).expect("few"),
            arrival: Micros::ZERO,
            class: Name::NONE,
            completed: ms.is_finite(),
            ttft_ms: ms.is_finite().then_some(ms),
            tpot_ms: None,
            e2e_ms: ms.is_finite().then_some(ms),
        };
        RunLatencies::new(ttfts_ms.iter().enumerate().map(sample).collect(), Distribution::default())
    }

    #[test]
    fn a_figure_that_halves_under_all_seeds_has_a_narrow_interval() {
        let figure = TargetFigure::overall(SloMetric::Ttft, SloStatistic::Mean);
        let before: Vec<RunLatencies> = [10.0, 30.0, 20.0].map(|ms| run(&[ms, 2.0 * ms])).into();
        let after: Vec<RunLatencies> = [5.0, 15.0, 10.0].map(|ms| run(&[ms, 2.0 * ms])).into();
        let effect = Effect::between(&figure, &before, &after).expect("samples");
        assert!((effect.change + 0.5).abs() < 1e-9 && effect.is_better() && !effect.is_worse());
        let back = Effect::between(&figure, &after, &before).expect("samples");
        assert!((back.change - 1.0).abs() < 1e-9 && back.is_worse());
        let same = Effect::between(&figure, &before, &before).expect("samples");
        assert!(!same.is_better() && !same.is_worse(), "{same:?}");
    }

    #[test]
    fn losing_what_is_slow_is_no_gain() {
        let figure = TargetFigure::overall(SloMetric::Ttft, SloStatistic::Mean);
        let before = [run(&[10.0, 100.0]), run(&[10.0, 100.0])];
        let after = [run(&[10.0, f64::INFINITY]), run(&[10.0, f64::INFINITY])];
        let effect = Effect::between(&figure, &before, &after).expect("samples");
        assert!(effect.change >= 0.0, "{effect:?}");
    }
}
