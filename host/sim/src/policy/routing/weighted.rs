//! The routing policy `weighted`: a weighted sum of scores.

use super::scorers::{DEFAULT_PROFILE, Scorer, ScorerKind};
use super::{highest, is_weight, larger, smaller};
use crate::ids::InstanceIndex;
use crate::policy::{ClusterView, Reads, Reason, RequestView, RoutingDecision, RoutingPolicy, Ties};

/// Chooses the instance with the largest weighted sum of scores.
#[derive(Clone, Debug)]
pub struct Weighted {
    terms: Vec<Term>,
    /// Sum over the terms, indexed by instance.
    sums: Vec<f64>,
    /// Indices at which the sum is highest.
    best: Vec<u32>,
}

#[derive(Clone, Debug)]
struct Term {
    scorer: Scorer,
    /// Weight of the term; the weights of all terms add up to 1.
    weight: f64,
    /// Scores indexed by instance, as of `version` of the columns that they depend on.
    scores: Vec<f64>,
    version: u64,
}

impl Weighted {
    /// Routing by `scorers` with their weights, which are scaled to add up to 1.
    ///
    /// # Errors
    ///
    /// A message if there is no scorer, a scorer occurs twice, or a weight is not a finite number above 0.
    pub fn new(scorers: Vec<(ScorerKind, f64)>) -> Result<Self, String> {
        if scorers.is_empty() {
            return Err("weighted routing needs a scorer".to_owned());
        }
        for (i, &(kind, weight)) in scorers.iter().enumerate() {
            if !is_weight(weight) {
                return Err(format!("the weight of scorer `{kind}` is a finite number above 0, not {weight}"));
            }
            if scorers[..i].iter().any(|&(other, _)| other == kind) {
                return Err(format!("scorer `{kind}` is listed twice: list it once, with the sum of its weights"));
            }
        }
        let sum: f64 = scorers.iter().map(|&(_, weight)| weight).sum();
        if !sum.is_finite() {
            return Err("the weights of the scorers are too large to add up".to_owned());
        }
        let term = |(kind, weight): (ScorerKind, f64)| Term {
            scorer: Scorer::new(kind),
            weight: weight / sum,
            scores: Vec::new(),
            version: 0,
        };
        Ok(Self { terms: scorers.into_iter().map(term).collect(), sums: Vec::new(), best: Vec::new() })
    }
}

impl Default for Weighted {
    /// Routing by [`DEFAULT_PROFILE`], BLIS's default.
    fn default() -> Self {
        Self::new(DEFAULT_PROFILE.to_vec()).expect("the default profile is well formed")
    }
}

impl RoutingPolicy for Weighted {
    fn reads(&self) -> Reads {
        self.terms.iter().fold(Reads::NOTHING, |reads, term| reads.and(term.scorer.kind().reads()))
    }

    /// The terms are added in the order given, so that sums that are equal in BLIS are equal here.
    fn route(
        &mut self,
        request: &RequestView<'_>,
        cluster: &ClusterView<'_>,
        ties: &Ties,
        scores: &mut Vec<f64>,
    ) -> RoutingDecision {
        if self.evaluate(request, cluster) {
            self.add_up(cluster.len());
        }
        scores.extend_from_slice(&self.sums);
        let target = self.best[ties.pick(request.id, self.best.len())] as usize;
        RoutingDecision { target, reason: Reason::Weighted(scores[target]) }
    }

    fn dispatched(&mut self, request: &RequestView<'_>, instance: InstanceIndex) {
        for term in &mut self.terms {
            term.scorer.dispatched(request, instance);
        }
    }

    fn fork(&self) -> Box<dyn RoutingPolicy> {
        Box::new(self.clone())
    }
}

impl Weighted {
    /// Updates the scores of the terms. Returns whether any changed.
    fn evaluate(&mut self, request: &RequestView<'_>, cluster: &ClusterView<'_>) -> bool {
        let mut changed = self.sums.len() != cluster.len();
        for Term { scorer, scores, version, .. } in &mut self.terms {
            let current = scorer.kind().version(&cluster.versions);
            if current != 0 && current == *version {
                continue;
            }
            *version = current;
            changed = true;
            scores.resize(cluster.len(), 0.0);
            scorer.score(request, cluster, scores);
        }
        changed
    }

    fn add_up(&mut self, instances: usize) {
        self.sums.clear();
        self.sums.resize(instances, 0.0);
        for Term { weight, scores, .. } in &self.terms {
            add(&mut self.sums, *weight, scores);
        }
        let highest = highest(&self.sums);
        self.best.clear();
        self.best.extend((0..).zip(&self.sums).filter(|&(_, &sum)| sum == highest).map(|(index, _)| index));
    }
}

/// `sums += weight * scores`, each score from 0 to 1.
fn add(sums: &mut [f64], weight: f64, scores: &[f64]) {
    for (sum, &score) in sums.iter_mut().zip(scores) {
        *sum += weight * larger(0.0, smaller(1.0, score));
    }
}
