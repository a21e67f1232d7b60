//! Outcome regret: the cost of a decision compared with its alternatives, in counterfactual branches of the run.
//!
//! At sampled decisions the simulation is forked. In one branch the policy decides as it did, in each of the others an
//! alternative is forced. All branches then continue under the same arrivals, and their outcomes are compared. Outcome
//! regret does not use the scores that the policy gave to the alternatives; that is score regret, which is 0 for every
//! policy that takes its own best score.
//!
//! | | |
//! |---|---|
//! | cost of a branch | request-seconds within the window after the decision ([`Cost`](blis_sim::cost::Cost)): the waiting of all requests, not only of the one decided about |
//! | regret | cost of the actual branch − cost of the best alternative, at least 0; all other decisions are forced to those of the actual run |
//! | own part | the same difference, of the time of the request itself |
//! | externality | the rest: the effect of the decision on other requests |
//! | advantage | mean cost of the alternatives − cost of the actual branch: how much better the decision was than a random one |
//! | rollout regret | as regret, but in each branch the policies make all later decisions anew |
//!
//! With all other decisions forced, the difference is the effect of the one decision, to the microsecond. Policies
//! that read the state of the service would react to an alternative with hundreds of other decisions. These are as
//! good as the original ones, but not the same, and their differences add up to a noise far larger than the effect of
//! one decision (`docs/regret.md`). The rollout regret is therefore reported separately.
//!
//! Decisions of flow control are not replayed: after another dispatch other requests wait. Its policies go on deciding, in
//! all branches. After another number of replicas no decision is replayed: a replica that the actual run did not have would
//! get no requests. The cost of such a branch has GPU-seconds in it ([`ScalingBranchOptions`]).
//!
//! The best alternative is known only in hindsight, so that even a perfect policy has some regret. Regret serves to
//! compare policies under the same requests, and to find the decisions that deserve a closer look.
//!
//! The order is: [`Survey`] records the actual run, [`Survey::sample`] chooses decisions, [`decision_regrets`] runs
//! their branches, [`Regret::new`] sums up.

mod advice;
mod branch_span;
mod branches;
mod decision_kind;
mod decision_regret;
mod gateway;
mod instance_states;
mod look_ahead;
mod options;
mod report;
mod scaling;
mod signals;
mod survey;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use blis_sim::cluster::{AnyTimeline, DecisionEvent, Halt, PendingDecision, RecordedDecisions};
use blis_sim::request::Request;
use rayon::prelude::*;

pub use advice::add_advice;
pub use branches::WorkloadTexts;
use branches::{DecisionFork, ObservedDecision};
pub use decision_kind::DecisionKind;
pub use decision_regret::{BranchOutcome, DecisionRegret, ObservedSignals, Situation};
pub use instance_states::InstanceStates;
pub use look_ahead::{LookAhead, look_ahead};
pub use options::{BranchOptions, RegretOptions, ScalingBranchOptions};
pub use report::{Estimate, Regret, RegretSection};
pub use signals::{DecisionColumn, DecisionNumber, KnownSignals, SignalOf};
pub use survey::{DecisionSample, RequestTimes, Stratum, Survey, Surveyor};

/// Runs the branches of all `samples`, which are in the order of their decisions, along `timeline`. The branches are
/// spread over the threads of the current rayon pool; the result does not depend on their number. `actual` holds all
/// decisions of the actual run.
///
/// # Errors
/// The first failure of a branch, in the order of decisions.
pub fn decision_regrets(
    mut timeline: Box<dyn AnyTimeline>,
    samples: &[DecisionSample],
    actual: &Arc<RecordedDecisions>,
    options: &BranchOptions,
    names: &impl WorkloadTexts,
) -> Result<Vec<DecisionRegret>, Halt> {
    // The number of forks in memory is limited to what keeps all threads busy.
    let max_forks = 4 * rayon::current_num_threads();
    let mut regrets = Vec::new();
    let mut forks: Vec<DecisionFork> = Vec::new();
    let run = |forks: Vec<DecisionFork>| -> Result<Vec<Option<DecisionRegret>>, Halt> {
        // Results stay in the order of decisions, whichever branch ends first.
        let results: Vec<_> = forks.into_par_iter().map(|fork| fork.evaluate(options, actual, names)).collect();
        results.into_iter().collect()
    };
    let mut samples = samples.iter().peekable();
    while samples.peek().is_some() && timeline.next_decision(&mut ())? {
        while let Some(&sample) = samples.peek()
            && is_made_next(&mut *timeline, sample)?
        {
            samples.next();
            forks.push(DecisionFork { timeline: timeline.clone(), sample: sample.clone() });
        }
        if forks.len() >= max_forks {
            regrets.extend(run(std::mem::take(&mut forks))?);
        }
        timeline.decide(&mut ())?;
    }
    regrets.extend(run(forks)?);
    Ok(regrets.into_iter().flatten().collect())
}

/// Whether the decision `sample` is made by the next event of `timeline`. Decisions are found by their request: without an
/// instance that serves its model, no routing decision is made.
fn is_made_next(timeline: &mut dyn AnyTimeline, sample: &DecisionSample) -> Result<bool, Halt> {
    let is_about = |request: &Request| request.id == sample.request;
    let Some(PendingDecision { at, event }) = timeline.pending() else { return Ok(false) };
    Ok(match (sample.kind, event) {
        (DecisionKind::Admission, DecisionEvent::Admission(request)) => is_about(request),
        (
            DecisionKind::Routing
            | DecisionKind::Scheduling
            | DecisionKind::Load
            | DecisionKind::AdapterEviction
            | DecisionKind::Disaggregation,
            DecisionEvent::Routing(request),
        ) => is_about(request),
        (
            DecisionKind::Fairness | DecisionKind::Ordering | DecisionKind::Eviction,
            DecisionEvent::Admission(_) | DecisionEvent::Tick,
        ) => {
            at == sample.at && {
                let mut observed = ObservedDecision::new(sample.kind, sample.request);
                timeline.fork().decide(&mut observed)?;
                observed.decision.is_some()
            }
        }
        (DecisionKind::Scaling, DecisionEvent::Scaling) => at == sample.at,
        _ => false,
    })
}
