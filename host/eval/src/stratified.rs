//! Mean differences over scenarios: the interval of a stratified mean, and its correction for interim looks.
//!
//! Every scenario is a stratum. Its runs have seeds of their own ([`Suite::seed`](super::suite::Suite::seed)), so that
//! all differences are independent, within a scenario and between scenarios. With v = s²/n, the squared standard error
//! of the mean of a stratum of n differences:
//!
//! | | |
//! |---|---|
//! | mean | of the means of the k strata |
//! | standard error | √(Σ v) / k |
//! | degrees of freedom | (Σ v)² / Σ (v² / (n + 1)) − 2, at least 1 and at most the sum of the n − 1, which would be too many where strata differ in their variance |
//!
//! The degrees of freedom are those of Welch (1947, *Biometrika* 34) and Satterthwaite (1946, *Biometrics Bulletin* 2),
//! (Σ v)² / Σ (v² / (n − 1)) of the true v, estimated without bias: of two or three differences each, the square of an estimated v is
//! 1 + 2/(n − 1) times the square of the true one on average, and (Σ v)² too large by 2·Σ (v² / (n − 1)). Inserted as it is, intervals of
//! five strata with two differences each were 1.9 times as wide as with known variances, and now are 1.4 times.
//!
//! An evaluation that may end early looks at its differences several times, and each look can be wrong. The error
//! probability of 5 % is shared by all looks ([`confidence_at`]): a tenth of it by the looks before the last, in equal
//! parts, the rest by the last one. That the sum is an upper limit is Bonferroni's inequality; that early looks get
//! little, so that the last interval is hardly wider, is the rule of Haybittle (1971, *British Journal of Radiology* 44)
//! and Peto et al. (1976, *British Journal of Cancer* 34).

use statrs::distribution::{ContinuousCDF as _, StudentsT};

use super::paired::{CONFIDENCE, ConfidenceInterval, quantile, supported};

/// Mean of paired differences, stratified by scenario.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StratifiedDifference {
    /// Number of pairs of runs.
    pub pairs: usize,
    /// Mean over scenarios of the means over seeds.
    pub mean: f64,
    /// Standard error of the mean; `None` if a scenario has a single pair.
    pub standard_error: Option<f64>,
    /// Confidence interval of the mean. `None` if a scenario has a single pair, or if there are ties and too few other
    /// differences to show anything (`supported`).
    pub interval: Option<ConfidenceInterval>,
    /// Probability that the mean is above 0; `None` without an interval.
    pub p_better: Option<f64>,
}

impl StratifiedDifference {
    /// `scenarios` holds the differences of each scenario, one per seed; scenarios without any are left out. The
    /// interval has the level [`CONFIDENCE`].
    #[must_use]
    pub fn stratified(scenarios: &[Vec<f64>]) -> Self {
        Self::at_level(scenarios, CONFIDENCE)
    }

    /// The same with an interval of the level `confidence`, above 0 and below 1.
    #[must_use]
    pub fn at_level(scenarios: &[Vec<f64>], confidence: f64) -> Self {
        let scenarios: Vec<Vec<f64>> = scenarios.iter().map(|values| untied(values)).collect();
        let strata: Vec<ScenarioMean> =
            scenarios.iter().filter_map(|values| ScenarioMean::from_values(values)).collect();
        let sum = |of: &dyn Fn(&ScenarioMean) -> f64| strata.iter().fold(0.0, |sum, one| sum + of(one));
        let count = strata.len().max(1) as f64;
        let pairs = strata.iter().map(|one| one.pairs).sum();
        let mean = sum(&|one| one.mean) / count;
        let squared_error = sum(&|one| one.squared_error);
        let error = squared_error.sqrt() / count;
        let most = sum(&|one| one.pairs as f64 - 1.0).max(1.0);
        let freedom = squared_error.powi(2) / sum(&|one| one.squared_error.powi(2) / (one.pairs as f64 + 1.0)) - 2.0;
        let freedom = freedom.clamp(1.0, most);
        let has_spread = !strata.is_empty() && strata.iter().all(|one| one.pairs > 1);
        let known = has_spread && supported(&scenarios.concat(), error);
        let reach = if error > 0.0 { quantile(freedom, confidence) * error } else { 0.0 };
        let p_better = match error > 0.0 {
            true => StudentsT::new(0.0, 1.0, freedom).map_or(0.5, |t| t.cdf(mean / error)),
            false if mean == 0.0 => 0.5,
            false => f64::from(u8::from(mean > 0.0)),
        };
        Self {
            pairs,
            mean,
            standard_error: has_spread.then_some(error),
            interval: known.then_some(ConfidenceInterval { low: mean - reach, high: mean + reach }),
            p_better: known.then_some(p_better),
        }
    }

    /// Whether the whole interval lies below 0.
    #[must_use]
    pub fn is_worse(&self) -> bool {
        self.interval.is_some_and(|interval| interval.high < 0.0)
    }
}

/// The mean of the differences of one scenario.
struct ScenarioMean {
    pairs: usize,
    mean: f64,
    /// s²/n; 0 for one pair.
    squared_error: f64,
}

impl ScenarioMean {
    fn from_values(values: &[f64]) -> Option<Self> {
        let pairs = values.len();
        let mean = super::paired::mean(values.iter().copied())?;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let squared_error = if pairs > 1 { squares / (pairs - 1) as f64 / pairs as f64 } else { 0.0 };
        Some(Self { pairs, mean, squared_error })
    }
}

/// The differences, those of rounding errors as 0: scores are about 1.
fn untied(values: &[f64]) -> Vec<f64> {
    const ROUNDING: f64 = 1e-12;
    values.iter().map(|&one| if one.abs() <= ROUNDING { 0.0 } else { one }).collect()
}

/// Confidence level of the interval at look number `look` of `looks`, from 1: all of them together are wrong with a
/// probability of at most 1 − [`CONFIDENCE`].
#[must_use]
pub fn confidence_at(look: usize, looks: usize) -> f64 {
    /// The part of the error probability that the looks before the last one share.
    const EARLY: f64 = 0.1;
    let error = 1.0 - CONFIDENCE;
    match looks.saturating_sub(1) {
        0 => CONFIDENCE,
        early if look <= early => 1.0 - EARLY * error / early as f64,
        _ => 1.0 - (1.0 - EARLY) * error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use blis_sim::rng::Stream;
    use rand::RngExt as _;

    fn close(one: f64, other: f64) {
        assert!((one - other).abs() < 1e-9, "{one} {other}");
    }

    /// Two scenarios with the differences 1, 3 and 2, 2: mean 2, v = 1 and 0, standard error √1/2 = 1/2, and one degree
    /// of freedom, because all variance comes from two differences: t₁ = 12.706205.
    #[test]
    fn strata_by_hand() {
        let difference = StratifiedDifference::stratified(&[vec![1.0, 3.0], vec![2.0, 2.0]]);
        assert_eq!((difference.pairs, difference.mean), (4, 2.0));
        let ConfidenceInterval { low, high } = difference.interval.unwrap();
        close(high - low, 12.706_204_736_432_1);
        assert!((difference.p_better.unwrap() - 0.922_0).abs() < 1e-3, "{difference:?}");
        assert_eq!(StratifiedDifference::stratified(&[vec![1.0]]).interval, None);
        assert_eq!(StratifiedDifference::stratified(&[vec![1.0], vec![1.0, 2.0]]).interval, None, "no variance of one");
    }

    /// v = 1/3 and 4/3: ν = (5/3)² / ((1/9)/4 + (16/9)/4) − 2 = 66/17, standard error √(5/3)/2.
    #[test]
    fn freedom_follows_from_the_variances() {
        let difference = StratifiedDifference::stratified(&[vec![0.0, 1.0, 2.0], vec![0.0, 2.0, 4.0]]);
        let ConfidenceInterval { low, high } = difference.interval.unwrap();
        close(high - low, quantile(66.0 / 17.0, CONFIDENCE) * (5.0_f64 / 3.0).sqrt());
        let equal = StratifiedDifference::stratified(&[vec![0.0, 1.0, 2.0], vec![1.0, 0.0, 2.0]]);
        let ConfidenceInterval { low, high } = equal.interval.unwrap();
        close(high - low, quantile(4.0, CONFIDENCE) * (2.0_f64 / 3.0).sqrt());
    }

    #[test]
    fn ties_are_no_difference_and_few_constants_show_nothing() {
        let same = StratifiedDifference::stratified(&[vec![0.0; 3], vec![0.0; 3]]);
        assert_eq!((same.interval, same.p_better), (None, None));
        assert!(!same.is_worse());
        assert_eq!(
            StratifiedDifference::stratified(&[vec![-1.0; 5]]).interval,
            None,
            "five signs are chance in 1 of 16"
        );
        assert!(StratifiedDifference::stratified(&[vec![-1.0; 3], vec![-1.0; 3]]).is_worse());
    }

    #[test]
    fn looks_share_the_error_probability() {
        for looks in 1..12 {
            let errors: f64 = (1..=looks).map(|look| 1.0 - confidence_at(look, looks)).sum();
            close(errors, 1.0 - CONFIDENCE);
        }
        close(confidence_at(3, 3), 0.955);
        close(confidence_at(1, 3), 0.9975);
    }

    /// Regression: the intervals of ties, [0, 0], contained the true difference in 43 % of the epochs of two policies that mostly
    /// decide alike.
    #[test]
    fn ties_claim_nothing() {
        let of = |strata: &[&[f64]]| {
            StratifiedDifference::stratified(&strata.iter().map(|values| values.to_vec()).collect::<Vec<_>>())
        };
        let ties = of(&[&[0.0; 30], &[1e-13; 30]]);
        assert_eq!((ties.mean, ties.interval, ties.p_better), (0.0, None, None));
        let five = of(&[&[0.1, 0.2, 0.1], &[0.2, 0.3, 0.0], &[0.0; 4]]);
        assert_eq!(five.interval, None, "half of ten");
        let six = of(&[&[0.1, 0.2, 0.1], &[0.2, 0.3, 0.0], &[0.1, 0.0, 0.0, 0.0, 0.0, 0.0]]);
        assert!(six.interval.is_some(), "six");
        let most = of(&[&[0.1, 0.2, 0.1], &[0.2, 0.0, 0.0]]);
        assert!(most.interval.is_some(), "four of six");
    }

    /// Differences of which a part p is 0 and the others are skewed: in at most 3.5 % of the evaluations an interval lies wholly on
    /// the wrong side of the mean, however large p is.
    #[test]
    fn intervals_of_many_ties_are_no_claims() {
        const EVALUATIONS: u64 = 4_000;
        let random = Stream::new(11, "ties");
        for (number, other) in [0.05, 0.2, 0.4, 0.6, 0.8, 0.95].into_iter().enumerate() {
            let (mut known, mut above, mut below) = (0, 0, 0);
            for evaluation in 0..EVALUATIONS {
                let mut generator = random.at(evaluation + EVALUATIONS * number as u64);
                // An exponential variate less 0.7: 0.3 on average.
                let mut draw =
                    || if generator.random::<f64>() < other { -generator.random::<f64>().ln() - 0.7 } else { 0.0 };
                let all: Vec<Vec<f64>> = (0..5).map(|_| (0..3).map(|_| draw()).collect()).collect();
                let Some(ConfidenceInterval { low, high }) = StratifiedDifference::stratified(&all).interval else {
                    continue;
                };
                let mean = 0.3 * other;
                known += 1;
                above += u32::from(low > mean);
                below += u32::from(high < mean);
            }
            let share = |count: u32| f64::from(count) / EVALUATIONS as f64;
            println!("{other}: {:.3} have one, {:.3} above, {:.3} below", share(known), share(above), share(below));
            assert!(share(above) <= 0.035, "{other}: {}", share(above));
        }
    }

    /// Differences of a suite with scenarios that differ in their mean and tenfold in their spread, one of them skewed, with
    /// looks after three, four and five seeds. The interval must contain the true mean in 93 to 97 % of 4 000
    /// evaluations, be at most 1.3 times as wide as with known variances, and show a difference where
    /// there is none on either side in at most 3.5 %.
    #[test]
    fn intervals_cover() {
        const EVALUATIONS: u64 = 4_000;
        let (spreads, shift) = ([1.0, 2.0, 0.2, 0.7], [0.3, -0.1, 0.0, -0.2]);
        let random = Stream::new(7, "coverage");
        let (mut covered, mut better, mut worse, mut width) = (0, 0, 0, 0.0);
        for evaluation in 0..EVALUATIONS {
            let mut generator = random.at(evaluation);
            let mut draw = |index: usize| -> f64 {
                // An exponential variate, and a normal one by Box and Muller.
                let (exponential, angle) = (-(1.0 - generator.random::<f64>()).ln(), generator.random::<f64>());
                let normal = (2.0 * exponential).sqrt() * (std::f64::consts::TAU * angle).cos();
                shift[index] + spreads[index] * if index == 3 { exponential - 1.0 } else { normal }
            };
            let mut all: Vec<Vec<f64>> = (0..4).map(|index| (0..3).map(|_| draw(index)).collect()).collect();
            let mut difference = StratifiedDifference::at_level(&all, confidence_at(1, 3));
            for look in 2..=3 {
                if difference.is_worse() {
                    break;
                }
                all.iter_mut().enumerate().for_each(|(index, values)| values.push(draw(index)));
                difference = StratifiedDifference::at_level(&all, confidence_at(look, 3));
            }
            let ConfidenceInterval { low, high } = difference.interval.unwrap();
            covered += u32::from(low <= 0.0 && 0.0 <= high);
            better += u32::from(low > 0.0);
            worse += u32::from(high < 0.0);
            width += high - low;
        }
        let share = |count: u32| f64::from(count) / EVALUATIONS as f64;
        let error = (spreads.iter().map(|spread: &f64| spread.powi(2) / 5.0).sum::<f64>()).sqrt() / 4.0;
        let relative = width / EVALUATIONS as f64 / (2.0 * 1.96 * error);
        println!("covered {:.3}, {relative:.2} times the width with known variances", share(covered));
        assert!((0.93..=0.97).contains(&share(covered)), "{}", share(covered));
        assert!(share(better) <= 0.035 && share(worse) <= 0.035, "{} {}", share(better), share(worse));
        assert!(relative <= 1.3, "{relative}");
    }
}
