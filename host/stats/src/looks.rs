//! Several looks at data that grow: "until decided".
//!
//! An ordinary interval that is looked at again and again is wrong at one of the looks far more often than in 5 %. With a known number of looks
//! each one has the same constant instead of 1.96, larger than that, as those of Pocock (1977, *Biometrika* 64). Those are for looks at equal
//! distances; at data that double, five of them are wrong in 6.0 %. These constants are for doubling, by the recursion of Armitage, McPherson
//! and Rowe (1969, *Journal of the Royal Statistical Society A* 132), which a test repeats.
//!
//! Without a known number, as in a shadow or a canary, an asymptotic confidence sequence holds at all times together (Waudby-Smith, Arbour, Sinha,
//! Kennedy and Ramdas 2021, arXiv:2103.06476).

use crate::conclusion::{BetterSide, DifferenceConclusion, MeanDifference};
use crate::error::{StatisticsError, check_range, check_series};
use crate::interval::{MeanEstimate, MeanInterval};
use crate::moments::{mean, sample_variance};
use crate::student::two_sided_p;

/// Constants for 1 to 5 looks at 5 %, two-sided; data double from one to the next.
pub(crate) const CONSTANTS: [f64; MOST_LOOKS] = [1.959_963_985, 2.178, 2.312, 2.408, 2.484];

/// The largest number of looks that has a constant.
pub const MOST_LOOKS: usize = 5;

/// By which factor an interval at 95 % becomes wider when it is looked at up to `looks` times, 1 to [`MOST_LOOKS`], while data double.
#[must_use]
pub fn widening(looks: usize) -> f64 {
    CONSTANTS[looks.clamp(1, MOST_LOOKS) - 1] / CONSTANTS[0]
}

/// The probability, two-sided, below which one of so many looks decides.
#[must_use]
pub fn level_of_look(looks: usize) -> f64 {
    const NEARLY_NORMAL: f64 = 1e9;
    two_sided_p(CONSTANTS[looks.clamp(1, MOST_LOOKS) - 1], NEARLY_NORMAL)
}

/// A comparison that doubles its runs until it is decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UntilDecided {
    looks: usize,
    done: usize,
}

/// What to do after a look.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Look {
    /// The difference with the interval and the conclusion that this look allows.
    pub difference: MeanDifference,
    /// By which factor to lengthen the runs before the next look; `None` if it is decided, or this was the last look.
    pub lengthen: Option<f64>,
}

impl UntilDecided {
    /// With at most `looks` looks, 1 to [`MOST_LOOKS`].
    ///
    /// # Errors
    /// If `looks` is out of range.
    pub fn new(looks: usize) -> Result<Self, StatisticsError> {
        check_range("the number of looks", looks as f64, (1..=MOST_LOOKS).contains(&looks), "from 1 to 5")?;
        Ok(Self { looks, done: 0 })
    }

    /// The next look: `difference` is B − A of all data so far, with an interval at 95 %. Both limits are moved outwards by the ratio of
    /// the constant of the number of looks to 1.96, as that of quantiles of Student's t. A run that was too short was no look at the difference, but counts as one.
    pub fn look(&mut self, difference: &MeanEstimate, margin: f64, direction: BetterSide) -> Look {
        self.done += 1;
        let widened = difference.map(|interval| interval.widened(widening(self.looks)));
        let difference = MeanDifference::conclude(&widened, margin, direction);
        let goes_on = difference.conclusion == DifferenceConclusion::Undecided && self.done < self.looks;
        Look { difference, lengthen: goes_on.then_some(2.0) }
    }
}

/// The interval of a mean after `batch_means`, which holds at all numbers of batches together with the probability 1 − `alpha`, for large
/// numbers: mean ± s·√(2(bρ² + 1)/(b²ρ²)·ln(√(bρ² + 1)/α)) after b batches, ρ² = (−2 ln α + ln(−2 ln α) + 1)/b*. `tightest` is b*, the number
/// of batches at which it is tightest; 50 is a good one.
///
/// # Errors
/// If there are fewer than two batches, one is not finite, or a parameter is out of range.
pub fn confidence_sequence(batch_means: &[f64], alpha: f64, tightest: usize) -> Result<MeanInterval, StatisticsError> {
    check_series(batch_means)?;
    check_range("the number of batches", batch_means.len() as f64, batch_means.len() > 1, "two or more")?;
    check_range("the level of a confidence sequence", alpha, alpha > 0.0 && alpha < 0.5, "above 0 and below 0.5")?;
    check_range("the tightest number of batches", tightest as f64, tightest > 0, "one or more")?;
    let b = batch_means.len() as f64;
    let log = -2.0 * alpha.ln();
    let rho_2 = (log + log.ln() + 1.0) / tightest as f64;
    let spread = b * rho_2 + 1.0;
    let deviation = sample_variance(batch_means).sqrt();
    let half = deviation * (2.0 * spread / (b * b * rho_2) * (spread.sqrt() / alpha).ln()).sqrt();
    let estimate = mean(batch_means);
    let standard_error = deviation / b.sqrt();
    let (low, high) = (estimate - half, estimate + half);
    Ok(MeanInterval { estimate, low, high, standard_error, freedom: b - 1.0, confidence: 1.0 - alpha })
}
