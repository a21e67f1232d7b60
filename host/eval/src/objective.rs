//! What a fitness counts: figures of all requests or of one class, and the ends of all requests.

use std::collections::BTreeMap;
use std::fmt::{self, Display};

use serde::{Deserialize, Serialize};

use super::figures::Figure;

/// A figure of all requests, or of the requests of one SLO class.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Objective {
    /// Name in weights and results: `p99_ttft`, or `critical.p99_ttft`.
    pub key: String,
    /// The class; `None` for all requests.
    pub class: Option<String>,
    pub figure: Figure,
}

impl Objective {
    #[must_use]
    pub fn new(class: Option<&str>, figure: Figure) -> Self {
        let key = class.map_or_else(|| figure.key().to_owned(), |class| format!("{class}.{}", figure.key()));
        Self { key, class: class.map(str::to_owned), figure }
    }
}

impl Display for Objective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.key)
    }
}

/// The figures of a run that a fitness reads, with every end of a request charged: see
/// `EndLog`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ChargedFigures {
    /// Figures with a sample, by [`Objective::key`].
    pub figures: BTreeMap<String, f64>,
    pub ends: EndValues,
}

/// How the requests of a run ended, each with the value of its class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EndValues {
    /// Requests that arrived, of classes that may not be shed.
    pub arrived: f64,
    /// Those that completed.
    pub completed: f64,
    /// Those that were lost: rejected, or starved (unfinished or timed out, while later ones were served in their stead).
    pub lost: f64,
    /// Completed requests of classes that may be shed.
    pub sheddable_completed: f64,
}

/// Part of the requests that may not be shed which a policy can lose beyond its reference and still be as good. Near its
/// capacity a service gains more than in proportion from each request that it does not serve: without 2 % of them, those that
/// are left can be served in a tenth of the time.
const FREE_LOSS: f64 = 0.002;

impl ChargedFigures {
    /// The value; `None` if the run had no sample.
    #[must_use]
    pub fn get(&self, objective: &Objective) -> Option<f64> {
        self.figures.get(&objective.key).copied()
    }
}

impl EndValues {
    /// Completed part of the requests that may not be shed, 0 to 1; 1 if there are none.
    #[must_use]
    pub fn completed_share(&self) -> f64 {
        if self.arrived > 0.0 { self.completed / self.arrived } else { 1.0 }
    }

    /// Lost part of the requests that may not be shed, 0 to 1.
    #[must_use]
    pub fn lost_share(&self) -> f64 {
        if self.arrived > 0.0 { self.lost / self.arrived } else { 0.0 }
    }

    /// Whether no request completed.
    #[must_use]
    pub fn nothing_completed(&self) -> bool {
        self.completed + self.sheddable_completed <= 0.0
    }

    /// q², 0 to 1: q is the completed share less the lost share, relative to the reference's, at most 1.
    #[must_use]
    pub fn completed_factor(&self, reference: &Self) -> f64 {
        // Another request that completed instead of a lost one does not make up for it: in an overload, those that are
        // easy to serve could replace all others.
        let served = |ends: &Self| (ends.completed_share() - ends.lost_share()).max(0.0);
        let (ours, theirs) = (served(self), served(reference));
        if ours >= theirs { 1.0 } else { (ours / theirs).powi(2) }
    }

    /// The highest score of a run with these ends: q²/(1 − q²), and
    /// 0.002 · (1 − l)/l with l the part of the requests that is lost beyond the reference's. Infinite if as much is
    /// served, and no more is lost.
    #[must_use]
    pub fn most(&self, reference: &Self) -> f64 {
        let completed = self.completed_factor(reference);
        let lost = (self.lost_share() - reference.lost_share()).max(0.0);
        (completed / (1.0 - completed)).min(FREE_LOSS * (1.0 - lost) / lost)
    }

    /// The value that is left where requests that may be shed are, relative to the reference: above 1 if more of them
    /// completed.
    #[must_use]
    pub fn kept_factor(&self, reference: &Self) -> f64 {
        let (ours, theirs) = (self.sheddable_completed, reference.sheddable_completed);
        let value = reference.arrived + theirs;
        if value > 0.0 { (reference.arrived + ours) / value } else { 1.0 }
    }
}
