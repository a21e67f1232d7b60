//! How unequally the mean of a run varies to either side.
//!
//! Waiting times and their differences are skewed: most runs have a mean below the true one, and a few, with a rare congestion, one far above
//! it. A symmetric interval is then too low: at the lengths at which runs begin to have an interval at all, it misses the mean of M/G/1 in
//! 10 to 60 % of them, always from below. Hall's transformation of Student's t (1992, *Journal of the Royal Statistical Society B* 54;
//! after Johnson 1978, *JASA* 73) corrects for it. Its skewness is that of the mean of 300 short batches, with the third cumulants of
//! neighbours; it is left out where it is no more than chance in a normal series.
//!
//! A run of the smallest length shows less skewness than there is, for the same reason for which its mean is too low. There it counts up to
//! 2.2 times as much ([`SkewShape::understated`]), and where single batches dominate the variance up to three times. These factors are not from
//! the literature: they are those with which the intervals of `tests/coverage.rs` cover 90 to 97 %.

use crate::batch_means::BatchMeans;
use crate::moments::centred;

/// Short batches into which a run is cut.
const SHORT: usize = 300;
/// Standard errors of the skewness of normal values beyond which a skewness is none of chance.
const SIGNIFICANT: f64 = 3.0;
/// The largest skewness of a mean with which the transformation is used.
const LARGEST: f64 = 0.5;

/// The shape of the distribution of the short batches of a run.
pub(crate) struct SkewShape {
    batches: f64,
    /// Autocorrelation at lag 1.
    pub lag_1: f64,
    skewness: f64,
    /// The skewness with which neighbours vary together: of two third-order products each.
    shared: f64,
    kurtosis: f64,
}

impl SkewShape {
    pub(crate) fn of(values: &[f64]) -> Self {
        let batches = BatchMeans::cut_at_least(values, SHORT);
        let d = centred(&batches.means);
        let n = d.len() as f64;
        let moment = |power: i32| d.iter().map(|d| d.powi(power)).sum::<f64>() / n;
        let variance = moment(2);
        let in_deviations = |moment: f64, power: f64| if variance > 0.0 { moment / variance.powf(power) } else { 0.0 };
        let shared = d.windows(2).map(|pair| pair[0] * pair[1] * (pair[0] + pair[1])).sum::<f64>() / n;
        Self {
            batches: n,
            lag_1: batches.lag_1,
            skewness: in_deviations(moment(3), 1.5),
            shared: in_deviations(shared, 1.5),
            kurtosis: in_deviations(moment(4), 2.0),
        }
    }

    /// The skewness of the mean of a run that lasts `times` correlation times.
    pub(crate) fn of_mean(&self, times: f64) -> Skewness {
        if self.skewness.abs() <= SIGNIFICANT * (6.0 / self.batches).sqrt() {
            return Skewness(0.0);
        }
        let variance = (1.0 + 2.0 * self.lag_1).max(0.2);
        let of_mean = (self.skewness + 3.0 * self.shared) / variance.powf(1.5) / self.batches.sqrt();
        Skewness((of_mean * self.understated(times)).clamp(-LARGEST, LARGEST))
    }

    /// By which factor a run shows less skewness than there is, about.
    fn understated(&self, times: f64) -> f64 {
        let by_length = (1000.0 - times) / 430.0;
        let by_dependence = (self.lag_1 - 0.25) / 0.2;
        let by_tail = (self.kurtosis - 12.0) / 20.0;
        (1.0 + 1.2 * by_length.max(by_dependence).clamp(0.0, 1.0)) * (1.0 + 2.0 * by_tail.clamp(0.0, 1.0))
    }
}

/// The skewness of a mean.
#[derive(Clone, Copy)]
pub(crate) struct Skewness(f64);

impl Skewness {
    /// The T for which T + aT² + a²T³/3 + γ/6 = `t` with a = γ/3: a limit at −`t` standard errors becomes one at −T.
    pub(crate) fn transformed(self, t: f64) -> f64 {
        let a = self.0 / 3.0;
        if a == 0.0 || !t.is_finite() { t } else { ((1.0 + 3.0 * a * (t - self.0 / 6.0)).cbrt() - 1.0) / a }
    }
}
