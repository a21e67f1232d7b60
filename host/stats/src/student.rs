//! Student's t and the normal distribution, from `statrs`.

use statrs::distribution::{ContinuousCDF as _, FisherSnedecor, Normal, StudentsT};

/// Confidence level of every interval unless another is chosen.
pub const CONFIDENCE: f64 = 0.95;

/// Half the width of the interval of the level `confidence` (0 to 1) in standard errors: the quantile (1 + `confidence`)/2 of Student's t
/// with `freedom` > 0 degrees of freedom, which may be a fraction or infinite. Infinite where there is none.
#[must_use]
pub fn t_quantile(freedom: f64, confidence: f64) -> f64 {
    let at = f64::midpoint(1.0, confidence);
    if !(0.5..1.0).contains(&at) || freedom.is_nan() || freedom <= 0.0 {
        return f64::INFINITY;
    }
    if freedom > LIKE_NORMAL {
        return normal_quantile(at);
    }
    StudentsT::new(0.0, 1.0, freedom).map_or(f64::INFINITY, |t| t.inverse_cdf(at))
}

/// Degrees of freedom above which Student's t is the normal distribution to seven digits.
const LIKE_NORMAL: f64 = 1e7;

/// The probability of a value of Student's t at least as far from 0 as `t`, on either side: 0 to 1.
#[must_use]
pub fn two_sided_p(t: f64, freedom: f64) -> f64 {
    if t.is_nan() || freedom.is_nan() || freedom <= 0.0 {
        return 1.0;
    }
    let below = |x: f64| match freedom > LIKE_NORMAL {
        true => Normal::standard().cdf(x),
        false => StudentsT::new(0.0, 1.0, freedom).map_or(0.5, |t| t.cdf(x)),
    };
    (2.0 * below(-t.abs())).clamp(0.0, 1.0)
}

/// The probability of a ratio of variances above `ratio` ≥ 0, with these degrees of freedom above and below the line: 0 to 1.
pub(crate) fn f_tail(ratio: f64, above: f64, below: f64) -> f64 {
    if ratio.is_nan() {
        return 1.0;
    }
    if ratio.is_infinite() { 0.0 } else { FisherSnedecor::new(above, below).map_or(1.0, |f| f.sf(ratio)) }
}

/// The value below which a share `p` (above 0, below 1) of a standard normal distribution lies.
#[must_use]
pub(crate) fn normal_quantile(p: f64) -> f64 {
    Normal::standard().inverse_cdf(p)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expected values: `qt(0.975, n)` and `2 * pt(-t, n)` of R.
    #[test]
    fn quantiles_are_those_of_the_tables() {
        let known = [(1.0, 12.706_204_736_432_1), (19.0, 2.093_024_054_408_26), (29.0, 2.045_229_642_132_70)];
        for (freedom, expected) in known {
            let t = t_quantile(freedom, CONFIDENCE);
            assert!((t / expected - 1.0).abs() < 1e-10, "{freedom}: {t}");
            assert!((two_sided_p(t, freedom) - 0.05).abs() < 1e-9);
        }
        assert!((t_quantile(f64::INFINITY, CONFIDENCE) - 1.959_963_984_540).abs() < 1e-9);
    }

    #[test]
    fn numbers_out_of_range_have_no_quantile_and_show_nothing() {
        for (freedom, confidence) in [(0.0, 0.95), (f64::NAN, 0.95), (5.0, 1.0), (5.0, f64::NAN), (-1.0, 0.9)] {
            assert_eq!(t_quantile(freedom, confidence), f64::INFINITY, "{freedom} {confidence}");
        }
        assert_eq!((two_sided_p(f64::NAN, 3.0), two_sided_p(9.0, 0.0)), (1.0, 1.0));
    }
}
