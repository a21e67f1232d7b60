//! The routing policy `weighted`: a weighted sum of scores, of the instances that filters keep.

use super::filters::RoutingFilter;
use super::prompt_tokens::{self, PromptTokens};
use super::scorers::{DEFAULT_PROFILE, Scorer, ScorerKind};
use super::{highest, is_weight, larger, smaller};
use crate::ids::InstanceIndex;
use crate::policy::{ClusterView, Event, Events, Reads, Reason, RequestView, RoutingDecision, RoutingPolicy, Ties};

/// Score of an instance that a filter left out: below all others, which are from 0 on.
const LEFT_OUT: f64 = -1.0;

/// Chooses the instance with the largest weighted sum of scores.
#[derive(Clone, Debug)]
pub struct Weighted {
    filters: Vec<RoutingFilter>,
    terms: Vec<Term>,
    /// Prompt tokens in flight, if a filter or a scorer reads them.
    tokens: Option<PromptTokens>,
    /// Whether the filters keep each instance.
    kept: Vec<bool>,
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
        let terms = scorers.into_iter().map(term).collect();
        let policy =
            Self { filters: Vec::new(), terms, tokens: None, kept: Vec::new(), sums: Vec::new(), best: Vec::new() };
        Ok(policy.with_filters(Vec::new()))
    }

    /// The same after `filters`, in their order: only instances that all of them keep can be chosen. Others have the score -1.
    #[must_use]
    pub fn with_filters(mut self, filters: Vec<RoutingFilter>) -> Self {
        let reads_tokens = filters.iter().any(RoutingFilter::reads_tokens)
            || self.terms.iter().any(|term| term.scorer.kind() == ScorerKind::TokenLoad);
        self.tokens = reads_tokens.then(PromptTokens::default);
        self.filters = filters;
        self
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
        let filters = self.filters.iter().map(RoutingFilter::reads);
        let terms = self.terms.iter().map(|term| term.scorer.kind().reads());
        filters.chain(terms).fold(Reads::NOTHING, Reads::and)
    }

    /// The terms are added in the order given, so that sums that are equal in BLIS are equal here.
    fn route(
        &mut self,
        request: &RequestView<'_>,
        cluster: &ClusterView<'_>,
        ties: &Ties,
        scores: &mut Vec<f64>,
    ) -> RoutingDecision {
        if let Some(tokens) = &mut self.tokens {
            tokens.update(request, cluster);
        }
        if self.evaluate(request, cluster, ties) || !self.filters.is_empty() {
            self.add_up(cluster.len());
            self.filter(request, cluster);
            self.find_best();
        }
        scores.extend_from_slice(&self.sums);
        let target = self.best[ties.pick(request.id, self.best.len())] as usize;
        RoutingDecision { target, reason: Reason::Weighted(scores[target]) }
    }

    fn dispatched(&mut self, request: &RequestView<'_>, instance: InstanceIndex) {
        for term in &mut self.terms {
            term.scorer.dispatched(request, instance);
        }
        if let Some(tokens) = &mut self.tokens {
            tokens.dispatched(request, instance);
        }
    }

    fn events(&self) -> Events {
        if self.tokens.is_some() { prompt_tokens::EVENTS } else { Events::NONE }
    }

    fn observe(&mut self, event: &Event) {
        if let Some(tokens) = &mut self.tokens {
            tokens.observe(event);
        }
    }

    fn fork(&self) -> Box<dyn RoutingPolicy> {
        Box::new(self.clone())
    }
}

impl Weighted {
    /// Updates the scores of the terms. Returns whether any changed.
    fn evaluate(&mut self, request: &RequestView<'_>, cluster: &ClusterView<'_>, ties: &Ties) -> bool {
        let mut changed = self.sums.len() != cluster.len();
        for Term { scorer, scores, version, .. } in &mut self.terms {
            let current = scorer.kind().version(&cluster.versions);
            if current != 0 && current == *version {
                continue;
            }
            *version = current;
            changed = true;
            scores.resize(cluster.len(), 0.0);
            match &self.tokens {
                Some(tokens) if scorer.kind() == ScorerKind::TokenLoad => token_load(tokens, scores),
                _ => scorer.score(request, cluster, ties, scores),
            }
        }
        changed
    }

    fn add_up(&mut self, instances: usize) {
        self.sums.clear();
        self.sums.resize(instances, 0.0);
        for Term { weight, scores, .. } in &self.terms {
            add(&mut self.sums, *weight, scores);
        }
    }

    fn filter(&mut self, request: &RequestView<'_>, cluster: &ClusterView<'_>) {
        if self.filters.is_empty() {
            return;
        }
        let tokens = self.tokens.as_ref().map_or(&[][..], PromptTokens::columns);
        self.kept.clear();
        self.kept.resize(cluster.len(), true);
        for filter in &self.filters {
            filter.apply(request.input_tokens, cluster, tokens, &mut self.kept);
        }
        let left_out = self.sums.iter_mut().zip(&self.kept).filter(|&(_, &kept)| !kept);
        left_out.for_each(|(sum, _)| *sum = LEFT_OUT);
    }

    fn find_best(&mut self) {
        let highest = highest(&self.sums);
        self.best.clear();
        self.best.extend((0..).zip(&self.sums).filter(|&(_, &sum)| sum == highest).map(|(index, _)| index));
    }
}

/// Scores 1 − tokens / [`MOST_TOKENS`], at least 0, with the uncached prompt tokens in flight if the request is sent there:
/// llm-d's `token-load-scorer`.
fn token_load(tokens: &PromptTokens, scores: &mut [f64]) {
    for (score, row) in scores.iter_mut().zip(tokens.columns()) {
        *score = 1.0 - smaller(row.with_request() as f64 / MOST_TOKENS, 1.0);
    }
}

/// Uncached prompt tokens in flight at which an instance scores 0.
const MOST_TOKENS: f64 = 4_194_304.0;

/// `sums += weight * scores`, each score from 0 to 1.
fn add(sums: &mut [f64], weight: f64, scores: &[f64]) {
    for (sum, &score) in sums.iter_mut().zip(scores) {
        *sum += weight * larger(0.0, smaller(1.0, score));
    }
}
