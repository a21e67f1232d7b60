//! Summary of the decisions of a run in BLIS's terms (`--summarize-trace`).
//!
//! *Score regret* is the best score of a routing decision minus the score of the chosen instance; without scores, minus
//! the effective load replaces the score. It is 0 by definition for a policy that chooses its best score, so
//! it is a bad figure for comparing policies; it is here because BLIS prints it.

use std::collections::BTreeMap;
use std::fmt::{self, Display};

use blis_sim::observer::{Interests, Observer, SimEvent};
use blis_sim::outcome::Decision;
use blis_sim::policy::{AdmissionDecision, ClusterView};
use serde::Serialize;

/// Numbers of decisions (`--summarize-trace`).
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct DecisionSummary {
    /// Admissions and rejections. Unit: decisions.
    pub total_decisions: u64,
    /// Requests that were admitted. Unit: requests.
    pub admitted: u64,
    /// Requests that the admission policy rejected. Unit: requests.
    pub rejected: u64,
    /// Instances that were chosen at least once. Unit: instances.
    pub unique_targets: usize,
    /// Requests by number of the chosen instance. Unit: requests.
    pub target_distribution: BTreeMap<u32, u64>,
    /// Mean score regret, which is the best score − the score of the chosen instance; 0 without routing decisions.
    /// Unit: score.
    pub mean_regret: f64,
    /// Largest score regret. Unit: score.
    pub max_regret: f64,
    #[serde(skip)]
    regret_sum: f64,
}

/// The text that BLIS prints.
impl Display for DecisionSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "=== Trace Summary ===\nTotal Decisions: {}", self.total_decisions)?;
        writeln!(f, "  Admitted: {}\n  Rejected: {}", self.admitted, self.rejected)?;
        writeln!(f, "Unique Targets: {}\nTarget Distribution:", self.unique_targets)?;
        for (instance, requests) in &self.target_distribution {
            writeln!(f, "  instance_{instance}: {requests}")?;
        }
        writeln!(f, "Mean Regret: {:.6}\nMax Regret: {:.6}", self.mean_regret, self.max_regret)
    }
}

impl DecisionSummary {
    fn add(&mut self, decision: &Decision<'_>) {
        match *decision {
            Decision::Admission { decision, .. } => {
                self.total_decisions += 1;
                match decision {
                    AdmissionDecision::Admit => self.admitted += 1,
                    AdmissionDecision::Reject(_) => self.rejected += 1,
                }
            }
            Decision::Routing { cluster, choice, scores, .. } => {
                let regret = score_regret(cluster, scores, choice.target);
                self.regret_sum += regret;
                self.max_regret = self.max_regret.max(regret);
                *self.target_distribution.entry(cluster.instances[choice.target].id.0).or_default() += 1;
                self.unique_targets = self.target_distribution.len();
                let routed: u64 = self.target_distribution.values().sum();
                self.mean_regret = self.regret_sum / routed as f64;
            }
            Decision::Gateway(_)
            | Decision::Disaggregation(_)
            | Decision::Scheduling(_)
            | Decision::Preemption(_)
            | Decision::Load(_)
            | Decision::AdapterEviction(_) => {}
        }
    }
}

impl Observer for DecisionSummary {
    #[inline]
    fn interests(&self) -> Interests {
        Interests::DECISIONS | Interests::LOAD | Interests::IN_FLIGHT
    }

    #[inline]
    fn record(&mut self, event: &SimEvent<'_>) {
        if let SimEvent::Decision(decision) = event {
            self.add(decision);
        }
    }
}

/// The policy's score of instance `i`; minus its effective load under a policy without scores.
pub fn score(cluster: &ClusterView<'_>, scores: &[f64], i: usize) -> f64 {
    scores.get(i).copied().unwrap_or_else(|| -(cluster.effective_load(i) as f64))
}

/// Difference between the best score and that of `target`.
pub fn score_regret(cluster: &ClusterView<'_>, scores: &[f64], target: usize) -> f64 {
    let best = (0..cluster.len()).map(|i| score(cluster, scores, i)).fold(f64::NEG_INFINITY, f64::max);
    (best - score(cluster, scores, target)).max(0.0)
}
