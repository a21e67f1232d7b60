//! The simulated time of a branch, and its run.

use blis_sim::cluster::{AnyTimeline, ForcedDecision, Halt};
use blis_sim::cost::Cost;
use blis_sim::ids::RequestId;
use blis_sim::units::Micros;

/// The simulated time of a branch.
#[derive(Clone, Copy, Debug)]
pub(super) struct BranchSpan {
    /// When the decision was made.
    pub from: Micros,
    /// Time after the decision in which its effects count.
    pub window: Micros,
    /// Time after the decision at which a branch ends if its request has not.
    pub longest: Micros,
}

/// Runs a branch from `timeline` to the end of the window, and on until the request has ended or the longest time has passed.
pub(super) fn run_branch(
    mut timeline: Box<dyn AnyTimeline>,
    force: Option<(RequestId, ForcedDecision)>,
    mut cost: Cost,
    BranchSpan { from, window, longest }: BranchSpan,
) -> Result<Cost, Halt> {
    if let Some((id, force)) = force {
        timeline.force(id, force);
    }
    // The window may be as short as a microsecond.
    const STRIDE: Micros = Micros(1_000_000);
    let mut end = from.saturating_add(window);
    timeline.run_until(end, &mut cost)?;
    let last = from.saturating_add(longest);
    while end < last && cost.own.is_none() && !timeline.is_over() {
        end = end.saturating_add(window.max(STRIDE)).min(last);
        timeline.run_until(end, &mut cost)?;
    }
    timeline.finish(end, &mut cost)?;
    Ok(cost)
}
