//! The look-ahead: the same run, with each routing decision replaced by the best one that a search of one step finds.
//!
//! At every decision the candidates are tried in rollouts, in which the policy makes all later decisions. The
//! candidate with the lowest cost is taken, and the run continues. It uses arrivals and output lengths of the future,
//! which no real policy has. It is an improvement of that policy, and neither an optimum nor a bound: another policy may
//! be far better. [`crate::bound`] has a bound.

use blis_sim::cluster::{AnyTimeline, DecisionEvent, ForcedDecision, Halt, PendingDecision};
use blis_sim::cost::Cost;
use blis_sim::ids::InstanceIndex;
use blis_sim::observer::Observer;
use blis_sim::outcome::Counters;
use blis_sim::units::Micros;
use rayon::prelude::*;
use serde::Serialize;

use super::branch_span::{BranchSpan, run_branch};
use super::branches::{ObservedDecision, candidates, state};
use super::decision_kind::DecisionKind;

/// Statistics of a look-ahead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LookAhead {
    /// Routing decisions. Unit: decisions.
    pub decisions: u64,
    /// Routing decisions that differ from the policy's. Unit: decisions.
    pub changed: u64,
}

/// Runs `timeline` to its end. Every routing decision is the best of the policy's and `alternatives` others over
/// `window`; among equal ones the policy's.
///
/// # Errors
/// The first failure of a branch.
pub fn look_ahead(
    mut timeline: Box<dyn AnyTimeline>,
    window: Micros,
    alternatives: usize,
    observer: &mut dyn Observer,
) -> Result<(Vec<Counters>, LookAhead), Halt> {
    let mut counted = LookAhead::default();
    while timeline.next_decision(observer)? {
        let routed = match timeline.pending() {
            Some(PendingDecision { at, event: DecisionEvent::Routing(request) }) => Some((at, request.clone())),
            _ => None,
        };
        if let Some((at, request)) = routed {
            let mut observed = ObservedDecision::new(DecisionKind::Routing, request.id);
            timeline.clone().decide(&mut observed)?;
            if let Some(ForcedDecision::Route(chosen)) = observed.decision {
                let mut fork = timeline.clone();
                let mut past = Cost::new(at, at.saturating_add(window), request.id);
                fork.catch_up(at, &mut past)?;
                let state = state(&*fork, &request).only(&observed.shown);
                let mut targets = vec![chosen];
                targets.extend(candidates(&observed, &state, chosen, alternatives));
                let branches: Vec<(Box<dyn AnyTimeline>, InstanceIndex)> =
                    targets.iter().map(|&target| (fork.clone(), target)).collect();
                let costs: Vec<Result<Cost, Halt>> = branches
                    .into_par_iter()
                    .map(|(branch, target)| {
                        let force = Some((request.id, ForcedDecision::Route(target)));
                        run_branch(branch, force, past.clone(), BranchSpan { from: at, window, longest: Micros::ZERO })
                    })
                    .collect();
                let costs: Vec<Micros> =
                    costs.into_iter().map(|cost| Ok(cost?.present)).collect::<Result<_, Halt>>()?;
                let best =
                    targets.iter().zip(&costs).min_by_key(|(_, cost)| **cost).map_or(chosen, |(&target, _)| target);
                counted.decisions += 1;
                if best != chosen {
                    counted.changed += 1;
                    timeline.force(request.id, ForcedDecision::Route(best));
                }
            }
        }
        timeline.decide(observer)?;
    }
    Ok((timeline.finish(Micros::MAX, observer)?, counted))
}
