//! The routing policy `weighted`, a pipeline as that of llm-d's router: filters leave out instances, scorers add up to a
//! weighted sum, and the instance with the largest is chosen, or the one that a picker prefers. Each step is one of this
//! crate or a plugin ([`RoutingStep`](crate::policy::RoutingStep)).

use super::filters::{FilterStep, RoutingFilter};
use super::scorers::{DEFAULT_PROFILE, Scorer, ScorerKind, ScorerStep};
use super::sent_blocks::SentBlocks;
use super::step_memory::StepMemory;
use super::{highest, is_weight, larger, smaller};
use crate::ids::InstanceIndex;
use crate::numbers::count;
use crate::policy::{
    Changes, ClusterView, Event, Events, InstanceInfo, Reads, Reason, RequestView, RoutingDecision, RoutingPolicy,
    Signals, StepFailed, Ties, Versions, copy_rows,
};

/// Number of sums of which the highest is looked for at once.
const BEST_IN_CHUNKS_OF: usize = 16;

/// Score of an instance that a filter left out: below all others, which are from 0 on.
pub(super) const LEFT_OUT: f64 = -1.0;

/// Chooses the instance with the largest weighted sum of scores.
#[derive(Debug)]
pub struct Weighted {
    filters: Vec<FilterStep>,
    terms: Vec<Term>,
    /// Chooses instead of the largest sum.
    picker: Option<PickingStep>,
    events: Events,
    /// Whether a scorer or the picker remembers where requests were sent.
    remembers: bool,
    /// Whether the filters keep each instance.
    kept: Vec<bool>,
    /// What a plugin keeps.
    mask: Vec<f64>,
    memory: StepMemory,
    /// Sum over the terms, indexed by instance.
    sums: Vec<f64>,
    /// Indices at which the sum is highest.
    best: Vec<u32>,
}

/// A policy that chooses among the instances that no filter left out, and their view.
#[derive(Debug)]
struct PickingStep {
    policy: Box<dyn RoutingPolicy>,
    reads: Reads,
    /// Indices of the instances that are left.
    left: Vec<usize>,
    instances: Vec<InstanceInfo>,
    signals: Signals,
    sums: Vec<f64>,
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
        Self::pipeline(
            Vec::new(),
            scorers.into_iter().map(|(kind, weight)| (ScorerStep::BuiltIn(kind), weight)).collect(),
            None,
        )
    }

    /// Routing by `filters` in their order, then by `scorers` with their weights, which are scaled to add up to 1. The
    /// instance with the largest sum is chosen; with a `picker`, the one that it chooses of those that no filter left
    /// out: it sees these only, with their sums ([`ClusterView::scores`]).
    ///
    /// # Errors
    ///
    /// A message if there is neither scorer nor picker, a scorer of this crate occurs twice, or a weight is not a finite
    /// number above 0.
    pub fn pipeline(
        filters: Vec<FilterStep>,
        scorers: Vec<(ScorerStep, f64)>,
        picker: Option<Box<dyn RoutingPolicy>>,
    ) -> Result<Self, String> {
        if scorers.is_empty() && picker.is_none() {
            return Err("weighted routing needs a scorer or a picker".to_owned());
        }
        let kind_of = |step: &ScorerStep| match step {
            ScorerStep::BuiltIn(kind) => Some(*kind),
            ScorerStep::Step(_) => None,
        };
        for (i, (step, weight)) in scorers.iter().enumerate() {
            let kind = kind_of(step);
            let name = kind.map_or("of a plugin", ScorerKind::name);
            if !is_weight(*weight) {
                return Err(format!("the weight of scorer `{name}` is a finite number above 0, not {weight}"));
            }
            if kind.is_some() && scorers[..i].iter().any(|(other, _)| kind_of(other) == kind) {
                return Err(format!("scorer `{name}` is listed twice: list it once, with the sum of its weights"));
            }
        }
        let sum: f64 = scorers.iter().map(|(_, weight)| weight).sum();
        if !sum.is_finite() {
            return Err("the weights of the scorers are too large to add up".to_owned());
        }
        let term = |(step, weight): (ScorerStep, f64)| Term {
            scorer: Scorer::new(step),
            weight: weight / sum,
            scores: Vec::new(),
            version: 0,
        };
        let policy = Self {
            filters,
            terms: scorers.into_iter().map(term).collect(),
            picker: picker.map(PickingStep::new),
            events: Events::NONE,
            remembers: false,
            kept: Vec::new(),
            mask: Vec::new(),
            memory: StepMemory::default(),
            sums: Vec::new(),
            best: Vec::new(),
        };
        let remembers = policy.picker.is_some() || policy.terms.iter().any(|term| term.scorer.remembers());
        Ok(Self { events: policy.subscribed(), remembers, ..policy })
    }

    /// The same with a record of at most `blocks` blocks sent to each instance, at least one, behind the scorer
    /// [`ScorerKind::PrefixAffinity`]. Of a policy that has decided nothing yet.
    #[must_use]
    pub fn with_sent_blocks(mut self, blocks: u32) -> Self {
        for term in &mut self.terms {
            if let Scorer::PrefixAffinity(sent) = &mut term.scorer {
                *sent = SentBlocks::new(blocks);
            }
        }
        self
    }

    /// The union of the events of all steps.
    fn subscribed(&self) -> Events {
        let filters = self.filters.iter().map(|filter| match filter {
            FilterStep::BuiltIn(_) => Events::NONE,
            FilterStep::Step(step) => step.events(),
        });
        let terms = self.terms.iter().map(|term| term.scorer.events());
        let picker = self.picker.iter().map(|picker| picker.policy.events());
        filters.chain(terms).chain(picker).fold(Events::NONE, Events::and)
    }

    /// The same after `filters`, in their order: only instances that all of them keep can be chosen. Others have the score -1.
    #[must_use]
    pub fn with_filters(self, filters: Vec<RoutingFilter>) -> Self {
        Self { filters: filters.into_iter().map(FilterStep::BuiltIn).collect(), ..self }
    }
}

impl Clone for Weighted {
    fn clone(&self) -> Self {
        Self {
            filters: self.filters.clone(),
            terms: self.terms.clone(),
            picker: self.picker.as_ref().map(|picker| PickingStep::new(picker.policy.fork())),
            events: self.events,
            remembers: self.remembers,
            kept: self.kept.clone(),
            mask: Vec::new(),
            memory: StepMemory::default(),
            sums: self.sums.clone(),
            best: self.best.clone(),
        }
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
        let filters = self.filters.iter().map(|filter| match filter {
            FilterStep::BuiltIn(filter) => filter.reads(),
            FilterStep::Step(step) => step.reads(),
        });
        let terms = self.terms.iter().map(|term| term.scorer.reads());
        let picker = self.picker.iter().map(|picker| picker.reads);
        filters.chain(terms).chain(picker).fold(Reads::NOTHING, Reads::and)
    }

    /// The terms are added in the order given, so that sums that are equal in BLIS are equal here.
    fn route(
        &mut self,
        request: &RequestView<'_>,
        cluster: &ClusterView<'_>,
        ties: &Ties,
        scores: &mut Vec<f64>,
    ) -> RoutingDecision {
        let chosen = self.choose(request, cluster, ties, scores);
        chosen.unwrap_or_else(|StepFailed| {
            scores.clear();
            // Whatever the failed step has changed, all is computed anew next time.
            self.sums.clear();
            let least = (0..cluster.len()).min_by_key(|&i| cluster.effective_load(i));
            RoutingDecision { target: least.unwrap_or(0), reason: Reason::Fallback }
        })
    }

    fn dispatched(&mut self, request: &RequestView<'_>, instance: InstanceIndex) {
        if !self.remembers {
            return;
        }
        for term in &mut self.terms {
            term.scorer.dispatched(request, instance);
        }
        if let Some(picker) = &mut self.picker {
            picker.policy.dispatched(request, instance);
        }
    }

    fn removed(&mut self, instance: InstanceIndex) {
        self.terms.iter_mut().for_each(|term| term.scorer.removed(instance));
        self.picker.iter_mut().for_each(|picker| picker.policy.removed(instance));
    }

    fn events(&self) -> Events {
        self.events
    }

    fn observe(&mut self, event: &Event) {
        for filter in &mut self.filters {
            match filter {
                FilterStep::Step(step) if step.events().include(event.kind) => step.observe(event),
                _ => {}
            }
        }
        for term in self.terms.iter_mut().filter(|term| term.scorer.events().include(event.kind)) {
            term.scorer.observe(event);
        }
        if let Some(picker) = self.picker.as_mut().filter(|picker| picker.policy.events().include(event.kind)) {
            picker.policy.observe(event);
        }
    }

    fn fork(&self) -> Box<dyn RoutingPolicy> {
        Box::new(self.clone())
    }
}

impl Weighted {
    fn choose(
        &mut self,
        request: &RequestView<'_>,
        cluster: &ClusterView<'_>,
        ties: &Ties,
        scores: &mut Vec<f64>,
    ) -> Result<RoutingDecision, StepFailed> {
        self.memory.begin();
        if self.evaluate(request, cluster, ties)? || !self.filters.is_empty() {
            self.add_up(cluster.len());
            self.filter(request, cluster, ties)?;
            self.find_best();
        }
        if let Some(picker) = &mut self.picker {
            return Ok(picker.choose(request, cluster, ties, &self.sums, scores));
        }
        scores.extend_from_slice(&self.sums);
        let target = self.best[ties.pick(request.id, self.best.len())] as usize;
        Ok(RoutingDecision { target, reason: Reason::Weighted(scores[target]) })
    }

    /// Updates the scores of the terms. Returns whether any changed.
    fn evaluate(
        &mut self,
        request: &RequestView<'_>,
        cluster: &ClusterView<'_>,
        ties: &Ties,
    ) -> Result<bool, StepFailed> {
        let mut changed = self.sums.len() != cluster.len();
        let Self { terms, memory, .. } = self;
        for Term { scorer, scores, version, .. } in terms {
            let current = scorer.version(&cluster.versions);
            if current != 0 && current == *version {
                continue;
            }
            *version = current;
            changed = true;
            scorer.score(request, cluster, ties, memory, scores)?;
        }
        Ok(changed)
    }

    fn add_up(&mut self, instances: usize) {
        self.sums.clear();
        self.sums.resize(instances, 0.0);
        for Term { weight, scores, .. } in &self.terms {
            add(&mut self.sums, *weight, scores);
        }
    }

    fn filter(&mut self, request: &RequestView<'_>, cluster: &ClusterView<'_>, ties: &Ties) -> Result<(), StepFailed> {
        if self.filters.is_empty() {
            return Ok(());
        }
        self.kept.clear();
        self.kept.resize(cluster.len(), true);
        let Self { filters, kept, mask, memory, .. } = self;
        for filter in filters {
            match filter {
                FilterStep::BuiltIn(filter) => filter.apply(request, cluster, kept),
                FilterStep::Step(step) => {
                    step.compute(request, cluster, ties, memory, mask)?;
                    keep(kept, mask);
                }
            }
        }
        let left_out = self.sums.iter_mut().zip(&self.kept).filter(|&(_, &kept)| !kept);
        left_out.for_each(|(sum, _)| *sum = LEFT_OUT);
        Ok(())
    }

    fn find_best(&mut self) {
        let highest = highest(&self.sums);
        self.best.clear();
        // Few are: chunks without any are left out.
        for (number, chunk) in self.sums.chunks(BEST_IN_CHUNKS_OF).enumerate() {
            if chunk.iter().fold(false, |found, &sum| found | (sum == highest)) {
                let start = number * BEST_IN_CHUNKS_OF;
                let is_best = |&(_, &sum): &(usize, &f64)| sum == highest;
                self.best.extend(chunk.iter().enumerate().filter(is_best).map(|(index, _)| count(start + index)));
            }
        }
    }
}

impl PickingStep {
    fn new(policy: Box<dyn RoutingPolicy>) -> Self {
        Self {
            reads: policy.reads(),
            policy,
            left: Vec::new(),
            instances: Vec::new(),
            signals: Signals::default(),
            sums: Vec::new(),
        }
    }

    /// The choice among the instances that `sums` does not leave out. Pushes onto `scores` what the policy computes, or
    /// else `sums`.
    fn choose(
        &mut self,
        request: &RequestView<'_>,
        cluster: &ClusterView<'_>,
        ties: &Ties,
        sums: &[f64],
        scores: &mut Vec<f64>,
    ) -> RoutingDecision {
        let all = !sums.contains(&LEFT_OUT);
        let mut choice = if all {
            self.policy.route(request, &ClusterView { scores: sums, ..*cluster }, ties, scores)
        } else {
            self.look_at(cluster, sums);
            let Self { policy, instances, signals, sums, .. } = self;
            // The rows are others than those of the latest decision, without a record of what changed.
            let view = ClusterView {
                instances,
                signals,
                versions: Versions::default(),
                in_flight_changes: Changes::UNKNOWN,
                scores: sums,
                ..*cluster
            };
            policy.route(request, &view, ties, scores)
        };
        if !all {
            choice.target = self.left[choice.target];
        }
        let failed = choice.reason == Reason::Fallback;
        match (scores.is_empty(), all) {
            (true, _) if failed => {}
            (true, _) => scores.extend_from_slice(sums),
            (false, true) => {}
            (false, false) => {
                let own = std::mem::replace(scores, vec![LEFT_OUT; cluster.len()]);
                self.left.iter().zip(own).for_each(|(&index, own)| scores[index] = own);
            }
        }
        choice
    }

    /// Copies what the policy reads of the instances that are left.
    fn look_at(&mut self, cluster: &ClusterView<'_>, all_sums: &[f64]) {
        let Self { reads, left, instances, signals, sums, .. } = self;
        left.clear();
        left.extend((0..cluster.len()).filter(|&index| all_sums[index] != LEFT_OUT));
        copy_rows(left, cluster.instances, instances, true);
        copy_rows(left, all_sums, sums, true);
        signals.copy_rows(cluster.signals, left, *reads);
    }
}

/// Leaves out the instances for which `mask` is 0, unless these are all that are left.
fn keep(kept: &mut [bool], mask: &[f64]) {
    if kept.iter().zip(mask).any(|(&kept, &mask)| kept && mask != 0.0) {
        kept.iter_mut().zip(mask).for_each(|(kept, &mask)| *kept &= mask != 0.0);
    }
}

/// `sums += weight * scores`, each score from 0 to 1.
fn add(sums: &mut [f64], weight: f64, scores: &[f64]) {
    for (sum, &score) in sums.iter_mut().zip(scores) {
        *sum += weight * larger(0.0, smaller(1.0, score));
    }
}
