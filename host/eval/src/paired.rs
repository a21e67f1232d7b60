//! Paired differences: by how much two policies differ under the same seeds, with a confidence interval.
//!
//! Differences of runs that share their requests vary far less than the runs themselves. The interval of their mean is
//! that of Student's t; one policy is called better only if the interval does not contain 0.
//!
//! Differences of a rounding error are ties: they count as 0. Ties show nothing about a difference that occurs in other runs, and
//! where most runs are ties, the spread of the few others is hardly known. With ties there is an interval only if enough differences
//! are none ([`supported`]); so it is with equal differences other than 0, as figures that are small counts have them by chance.
//! Of a figure that does not vary at all under either policy the difference is exact.

use blis_stats::{t_quantile, two_sided_p};
use serde::Serialize;
use statrs::distribution::{ContinuousCDF, StudentsT};

use super::figures::Better;

/// Confidence level of every interval.
pub const CONFIDENCE: f64 = 0.95;

/// The difference of policy B from policy A, over the seeds under which both have a sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Paired {
    /// Seeds under which both have a sample, n ≥ 1.
    pub pairs: usize,
    /// Seeds under which one or both have no sample.
    pub left_out: usize,
    /// Mean of A over the pairs.
    pub mean_a: f64,
    /// Mean of B over the pairs.
    pub mean_b: f64,
    /// Mean of B − A.
    pub difference: f64,
    /// s/√n with s the standard deviation of the differences (n − 1 in its denominator); `None` for one pair, which
    /// has no spread.
    pub standard_error: Option<f64>,
    /// Interval of the mean difference at the level [`CONFIDENCE`]; `None` for one pair, and for equal differences that
    /// are too few to show anything.
    pub interval: Option<ConfidenceInterval>,
    /// Whether the interval shows that one of the two is better.
    pub result: PairedResult,
}

/// Two limits, low ≤ high.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ConfidenceInterval {
    /// Lower limit, in the unit of the values.
    pub low: f64,
    /// Upper limit, in the unit of the values.
    pub high: f64,
}

/// Whether B is better than A.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, strum::IntoStaticStr)]
#[serde(rename_all = "lowercase")]
#[strum(const_into_str, serialize_all = "lowercase")]
pub enum PairedResult {
    /// The interval lies wholly on the better side of 0.
    Better,
    /// The interval lies wholly on the worse side of 0.
    Worse,
    /// The interval contains 0, or there is no interval.
    Undecided,
}

impl Paired {
    /// Compares `a` and `b`, seed by seed. `None` if no seed has a sample of both.
    ///
    /// # Panics
    ///
    /// If `a` and `b` have different lengths.
    #[must_use]
    pub fn compare(a: &[Option<f64>], b: &[Option<f64>], better: Better) -> Option<Self> {
        assert_eq!(a.len(), b.len(), "both sides have a value, or a gap, for each seed");
        let pairs: Vec<(f64, f64)> = a.iter().zip(b).filter_map(|(&a, &b)| a.zip(b)).collect();
        let differences: Vec<f64> = pairs.iter().map(|&(a, b)| untied(a, b)).collect();
        let difference = mean(differences.iter().copied())?;
        let largest = pairs.iter().map(|(a, b)| a.abs().max(b.abs())).fold(0.0, f64::max);
        let standard_error =
            standard_error(&differences, difference).map(|error| if error > ROUNDING * largest { error } else { 0.0 });
        let fixed = pairs.len() >= FEWEST_FIXED && pairs.iter().all(|pair| *pair == pairs[0]);
        let known = |error: &f64| fixed || supported(&differences, *error);
        let interval = standard_error.filter(known).map(|error| {
            let reach = quantile((differences.len() - 1) as f64, CONFIDENCE) * error;
            ConfidenceInterval { low: difference - reach, high: difference + reach }
        });
        Some(Self {
            pairs: pairs.len(),
            left_out: a.len() - pairs.len(),
            mean_a: mean(pairs.iter().map(|&(a, _)| a))?,
            mean_b: mean(pairs.iter().map(|&(_, b)| b))?,
            difference,
            standard_error,
            interval,
            result: result(interval, better),
        })
    }

    /// The probability of a difference at least this large if there were none, 0 to 1; 1 without an interval.
    pub(super) fn p(&self) -> f64 {
        let Some(interval) = self.interval else { return 1.0 };
        if self.difference == 0.0 {
            return 1.0;
        }
        // Of one trace: the limits are about those of a normal distribution.
        let towards_0 =
            if self.difference > 0.0 { self.difference - interval.low } else { interval.high - self.difference };
        let freedom = if self.standard_error.is_some() { (self.pairs - 1) as f64 } else { NEARLY_NORMAL };
        if towards_0 <= 0.0 {
            return 0.0;
        }
        two_sided_p(t_quantile(freedom, CONFIDENCE) * self.difference.abs() / towards_0, freedom)
    }

    /// The same with the limits of the difference that the requests of one trace give, as distances from it, instead of those of its runs, which have
    /// the same requests.
    pub(super) fn of_one_trace(self, limits: Option<ConfidenceInterval>, better: Better) -> Self {
        let interval = limits.map(|ConfidenceInterval { low, high }| ConfidenceInterval {
            low: self.difference + low,
            high: self.difference + high,
        });
        Self { standard_error: None, interval, result: result(interval, better), ..self }
    }
}

/// Degrees of freedom of intervals within a trace, which are from twenty or thirty batches.
const NEARLY_NORMAL: f64 = 29.0;

/// Figures that differ by less than this part of them differ by rounding errors.
const ROUNDING: f64 = 1e-12;

/// `b` − `a`; 0 if they differ by no more than rounding errors.
fn untied(a: f64, b: f64) -> f64 {
    if (b - a).abs() <= ROUNDING * a.abs().max(b.abs()) { 0.0 } else { b - a }
}

/// Pairs from which a figure that is the same under all seeds, for either policy, counts as one without randomness. If
/// it had two values that are equally likely, three equal ones of each policy would occur in 1 of 32 comparisons.
const FEWEST_FIXED: usize = 3;

/// Whether differences, of which ties are 0, have an interval; `error` is the standard error of their mean.
///
/// * Without ties and with a spread: that of Student's t.
/// * All equal, other than 0: they show as much as their signs. By the sign test six equal signs have the probability 2/2⁶ = 3.1 % if
///   both signs are equally likely, five 6.3 %.
/// * Some ties: if most differences are none, or as many as six. In the sign test ties count for nothing (Dixon and Mood 1946, *Journal of the
///   American Statistical Association* 41); and intervals by Student's t miss the mean of a population with many zeros if a
///   sample has few others (Kvanli, Shen and Deng 1998, *Journal of Business & Economic Statistics* 16).
/// * Ties only: none. They show how often policies differ, in at most 1 − 0.05^(1/n) of the runs (Hanley and
///   Lippman-Hand 1983, *JAMA* 249), and nothing about by how much.
pub(super) fn supported(differences: &[f64], error: f64) -> bool {
    const FEWEST_SIGNS: usize = 6;
    let signs = differences.iter().filter(|&&difference| difference != 0.0).count();
    signs >= FEWEST_SIGNS || (error > 0.0 && 2 * signs > differences.len())
}

fn result(interval: Option<ConfidenceInterval>, better: Better) -> PairedResult {
    match (interval, better) {
        (Some(ConfidenceInterval { low, .. }), Better::Higher) if low > 0.0 => PairedResult::Better,
        (Some(ConfidenceInterval { high, .. }), Better::Lower) if high < 0.0 => PairedResult::Better,
        (Some(ConfidenceInterval { high, .. }), Better::Higher) if high < 0.0 => PairedResult::Worse,
        (Some(ConfidenceInterval { low, .. }), Better::Lower) if low > 0.0 => PairedResult::Worse,
        _ => PairedResult::Undecided,
    }
}

/// The mean of the values; `None` if there are none.
pub(super) fn mean(values: impl ExactSizeIterator<Item = f64>) -> Option<f64> {
    let count = values.len();
    (count > 0).then(|| values.sum::<f64>() / count as f64)
}

/// Interval of the mean of `values` at the level [`CONFIDENCE`], by Student's t; `None` for fewer than two values.
pub(super) fn mean_interval(values: &[f64]) -> Option<ConfidenceInterval> {
    let mean = mean(values.iter().copied())?;
    let reach = quantile(values.len().saturating_sub(1) as f64, CONFIDENCE) * standard_error(values, mean)?;
    Some(ConfidenceInterval { low: mean - reach, high: mean + reach })
}

fn standard_error(differences: &[f64], mean: f64) -> Option<f64> {
    let n = differences.len();
    let squares: f64 = differences.iter().map(|d| (d - mean).powi(2)).sum();
    (n > 1).then(|| (squares / (n - 1) as f64 / n as f64).sqrt())
}

/// Half the width of the interval of the level `confidence` in standard errors: the quantile (1 + `confidence`)/2 of
/// Student's t with `freedom` > 0 degrees of freedom; infinite for others.
pub(super) fn quantile(freedom: f64, confidence: f64) -> f64 {
    let quantile = StudentsT::new(0.0, 1.0, freedom).map(|t| t.inverse_cdf(f64::midpoint(1.0, confidence)));
    quantile.unwrap_or(f64::INFINITY)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn compared(a: &[f64], b: &[f64], better: Better) -> Paired {
        let some = |values: &[f64]| values.iter().copied().map(Some).collect::<Vec<_>>();
        Paired::compare(&some(a), &some(b), better).expect("pairs")
    }

    /// Expected values: `qt(0.975, n)` of R.
    #[test]
    fn quantiles_are_those_of_the_tables() {
        let known = [
            (1, 12.706_204_736_432_1),
            (2, 4.302_652_729_911_27),
            (3, 3.182_446_305_284_26),
            (4, 2.776_445_105_197_79),
            (9, 2.262_157_162_740_99),
            (29, 2.045_229_642_132_70),
            (99, 1.984_216_951_508_68),
            (999, 1.962_341_461_133_45),
        ];
        for (freedom, expected) in known {
            let t = quantile(f64::from(freedom), CONFIDENCE);
            assert!((t / expected - 1.0).abs() < 1e-10, "{freedom}: {t}");
        }
    }

    /// Differences −2, −4, −3, −5, −1: mean −3, s² = 10/4, s/√5 = √0.5, t₄ = 2.776445.
    #[test]
    fn a_difference_by_hand() {
        let a = [10.0, 20.0, 30.0, 40.0, 50.0];
        let b = [8.0, 16.0, 27.0, 35.0, 49.0];
        let paired = compared(&a, &b, Better::Lower);
        assert_eq!((paired.pairs, paired.left_out), (5, 0));
        assert_eq!((paired.mean_a, paired.mean_b, paired.difference), (30.0, 27.0, -3.0));
        assert_eq!(paired.standard_error, Some(0.5_f64.sqrt()));
        let ConfidenceInterval { low, high } = paired.interval.expect("five pairs");
        assert!((low + 4.963_243_161).abs() < 1e-8 && (high + 1.036_756_839).abs() < 1e-8, "{low} {high}");
        assert_eq!(paired.result, PairedResult::Better);
        assert_eq!(compared(&a, &b, Better::Higher).result, PairedResult::Worse);
        assert_eq!(compared(&b, &a, Better::Lower).result, PairedResult::Worse);
        assert_eq!(compared(&b, &a, Better::Higher).result, PairedResult::Better);
        assert_eq!(compared(&[1.0, 2.0], &[2.0, 1.0], Better::Higher).result, PairedResult::Undecided);
    }

    #[test]
    fn one_pair_decides_nothing() {
        let one = compared(&[5.0], &[1.0], Better::Lower);
        assert_eq!((one.difference, one.standard_error, one.interval), (-4.0, None, None));
        assert_eq!(one.result, PairedResult::Undecided);
    }

    #[test]
    fn seeds_without_a_sample_are_left_out() {
        let (a, b) = ([Some(1.0), None, Some(3.0), None], [Some(2.0), Some(9.0), None, None]);
        let paired = Paired::compare(&a, &b, Better::Higher).expect("one pair");
        assert_eq!((paired.pairs, paired.left_out, paired.difference), (1, 3, 1.0));
        assert_eq!(Paired::compare(&a[1..2], &b[1..2], Better::Higher), None);
        assert_eq!(Paired::compare(&[], &[], Better::Higher), None);
    }

    #[test]
    fn ties_are_undecided() {
        assert_eq!(compared(&[3.0, 4.0], &[3.0, 4.0], Better::Lower).result, PairedResult::Undecided);
        let rounded = compared(&[0.3, 0.6, 0.9], &[0.1 + 0.2, 0.6, 0.9], Better::Lower);
        assert_eq!((rounded.difference, rounded.result), (0.0, PairedResult::Undecided));
    }

    /// Regression: two runs with 3 and 4 preemptions against 2 and 3 were a proof.
    #[test]
    fn equal_differences_are_shown_by_six_signs_or_a_figure_that_does_not_vary() {
        let few = compared(&[3.0, 4.0, 3.0, 4.0, 5.0], &[2.0, 3.0, 2.0, 3.0, 4.0], Better::Lower);
        assert_eq!((few.interval, few.result), (None, PairedResult::Undecided));
        let six = compared(&[3.0, 4.0, 3.0, 4.0, 5.0, 3.0], &[2.0, 3.0, 2.0, 3.0, 4.0, 2.0], Better::Lower);
        assert_eq!(six.result, PairedResult::Better);
        assert_eq!(compared(&[3.0, 3.0], &[2.0, 2.0], Better::Lower).result, PairedResult::Undecided);
        assert_eq!(compared(&[3.0, 3.0, 3.0], &[2.0, 2.0, 2.0], Better::Lower).result, PairedResult::Better);
    }

    proptest! {
        /// Exchanging the sides mirrors everything; a shift of both changes no difference.
        #[test]
        fn sides_are_symmetric(pairs in prop::collection::vec((0..1000u32, 0..1000u32), 2..12), shift in 0..1000u32) {
            let column = |pick: fn(&(u32, u32)) -> u32, add: u32| -> Vec<f64> {
                pairs.iter().map(|pair| f64::from(pick(pair) + add)).collect()
            };
            let (a, b) = (column(|pair| pair.0, 0), column(|pair| pair.1, 0));
            let (there, back) = (compared(&a, &b, Better::Higher), compared(&b, &a, Better::Higher));
            prop_assert_eq!(there.difference, -back.difference);
            prop_assert_eq!(there.standard_error, back.standard_error);
            let mirrored = back.interval.map(|limits| ConfidenceInterval { low: -limits.high, high: -limits.low });
            prop_assert_eq!(there.interval, mirrored);
            prop_assert_eq!(there.result == PairedResult::Better, back.result == PairedResult::Worse);
            let shifted = compared(&column(|pair| pair.0, shift), &column(|pair| pair.1, shift), Better::Higher);
            prop_assert_eq!(shifted.interval, there.interval);
        }
    }
}
