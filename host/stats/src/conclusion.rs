//! What follows from a difference.

use crate::interval::{MeanEstimate, MeanInterval};
use crate::student::{t_quantile, two_sided_p};

/// The largest factor that "about N times more requests would tell" names.
pub const MOST_TIMES_MORE: f64 = 1000.0;

/// Which values of a figure are the better ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BetterSide {
    /// Less is better: latencies, costs.
    Less,
    /// More is better: throughput, attainment.
    More,
}

/// What is known of B beside A.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DifferenceConclusion {
    /// B is better, by more than the margin.
    Better,
    /// B is worse, by more than the margin.
    Worse,
    /// They differ by no more than the margin.
    Equal,
    /// The data do not tell.
    Undecided,
}

impl DifferenceConclusion {
    /// Its name in documents.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Better => "better",
            Self::Worse => "worse",
            Self::Equal => "equal",
            Self::Undecided => "undecided",
        }
    }
}

/// A difference B − A with its conclusion.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeanDifference {
    /// The difference, in the unit of the figure.
    pub estimate: f64,
    /// Its interval; `None` if the runs are too short.
    pub interval: Option<MeanInterval>,
    /// What follows from the interval.
    pub conclusion: DifferenceConclusion,
    /// By which factor the runs would have to be longer to tell, about, from 1 to [`MOST_TIMES_MORE`]; only if undecided.
    pub times_more: Option<f64>,
    /// The probability of a difference at least this far beyond the margin if there were none beyond it, 0 to 1; 1 without an interval. For
    /// [`multiplicity`](crate::holm).
    pub p: f64,
}

impl MeanDifference {
    /// The conclusion about `difference`, B − A, with the margin of interest `margin` ≥ 0 in the unit of the figure.
    ///
    /// u and l are the limits for a figure of which less is better: u < −margin better; l > margin worse; both within the margin equal;
    /// otherwise undecided, and about (h/max(|Δ| − margin, margin/2))² times more requests would tell, with half the width h.
    #[must_use]
    pub fn conclude(difference: &MeanEstimate, margin: f64, direction: BetterSide) -> Self {
        let margin = if margin.is_finite() { margin.max(0.0) } else { 0.0 };
        let estimate = difference.estimate();
        match difference {
            MeanEstimate::Known(interval) => {
                let conclusion = conclusion(interval, margin, direction);
                let times_more = (conclusion == DifferenceConclusion::Undecided).then(|| times_more(interval, margin));
                Self { estimate, interval: Some(*interval), conclusion, times_more, p: p_value(interval, margin) }
            }
            MeanEstimate::TooShort(short) => {
                let times_more = Some(short.factor.min(MOST_TIMES_MORE));
                Self { estimate, interval: None, conclusion: DifferenceConclusion::Undecided, times_more, p: 1.0 }
            }
        }
    }

    /// The same without a conclusion for either side, where the other rows of a table, or earlier looks, do not allow one.
    #[must_use]
    pub fn withdrawn(self, margin: f64) -> Self {
        match (self.conclusion, self.interval) {
            (DifferenceConclusion::Better | DifferenceConclusion::Worse, Some(interval)) => Self {
                conclusion: DifferenceConclusion::Undecided,
                times_more: Some(times_more(&interval, margin)),
                ..self
            },
            _ => self,
        }
    }
}

fn conclusion(interval: &MeanInterval, margin: f64, direction: BetterSide) -> DifferenceConclusion {
    let costs = match direction {
        BetterSide::Less => *interval,
        BetterSide::More => interval.negated(),
    };
    if costs.high < -margin {
        DifferenceConclusion::Better
    } else if costs.low > margin {
        DifferenceConclusion::Worse
    } else if margin > 0.0 && -margin <= costs.low && costs.high <= margin {
        DifferenceConclusion::Equal
    } else {
        DifferenceConclusion::Undecided
    }
}

fn times_more(interval: &MeanInterval, margin: f64) -> f64 {
    let goal = (interval.estimate.abs() - margin).max(margin / 2.0);
    let factor = (interval.half_width() / goal).powi(2);
    // 0/0: no difference was seen, and none is of interest.
    if factor.is_nan() { MOST_TIMES_MORE } else { factor.clamp(1.0, MOST_TIMES_MORE) }
}

/// Two-sided, of the hypothesis that the difference is within the margin: 1 − confidence where the limit on the side of 0 is at the margin.
fn p_value(interval: &MeanInterval, margin: f64) -> f64 {
    let beyond = interval.estimate.abs() - margin;
    if beyond <= 0.0 {
        return 1.0;
    }
    // Skewness moves the limits unequally.
    let is_above = interval.estimate > 0.0;
    let towards_0 = if is_above { interval.estimate - interval.low } else { interval.high - interval.estimate };
    if towards_0 <= 0.0 {
        return 0.0;
    }
    two_sided_p(t_quantile(interval.freedom, interval.confidence) * beyond / towards_0, interval.freedom)
}
