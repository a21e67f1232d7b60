//! The regret of a number of replicas: one more and one fewer.

use blis_sim::cluster::{AnyTimeline, Halt};
use blis_sim::cost::Cost;
use blis_sim::ids::RequestId;
use blis_sim::observer::{Interests, Observer, SimEvent};
use blis_sim::replica::{ReplicaChange, ReplicaReport, ReplicaState};
use blis_sim::request::Request;
use blis_sim::units::Micros;

use super::branches::{DecisionContext, DecisionFork, WorkloadTexts, branch, compare, state};
use super::decision_regret::{BranchOutcome, DecisionRegret};
use super::options::{BranchOptions, ScalingBranchOptions};
use super::signals::KnownSignals;

impl DecisionFork {
    /// Runs the branches with one replica more and one fewer than `decided`, as far as the limits of the group allow them.
    /// The policies make all later decisions.
    pub fn evaluate_scaling(
        self,
        at: Micros,
        options: &BranchOptions,
        decided: ReplicaChange,
        names: &impl WorkloadTexts,
    ) -> Result<Option<DecisionRegret>, Halt> {
        let request = Request::new(RequestId(0), at, 1, 1);
        let mut fork = self.timeline.fork();
        // Requests that ended before the decision, but are not reported yet, count in all branches.
        let mut past = Cost::new(at, at.saturating_add(options.scaling.window), RequestId(u32::MAX));
        fork.catch_up(at, &mut past)?;
        let state = state(&*fork, &request);
        let run = |number: Option<u32>| run_branch(&*fork, past.clone(), at, decided.group, number, options.scaling);
        let (actual, to) = run(None)?;
        let mut branches = vec![actual];
        for number in [Some(to + 1), to.checked_sub(1)].into_iter().flatten() {
            let (outcome, set) = run(Some(number))?;
            // Beyond the limits nothing changes.
            if set == number {
                branches.push(outcome);
            }
        }
        let about = DecisionContext { sample: self.sample, request: &request, at, situations: Vec::new() };
        let reason = format!("{} before", decided.from);
        let request_id = format!("group_{}", decided.group);
        let signals =
            if options.signals { KnownSignals::of_group(decided.from, &state) } else { KnownSignals::default() };
        Ok(compare(about, branches, state, names).map(|regret| DecisionRegret {
            request_id,
            reason,
            signals,
            ..regret
        }))
    }
}

/// Runs a branch in which the group gets `number` replicas, or what its policy decides, to the end of the window. Returns the
/// outcome, and the number that was set.
fn run_branch(
    timeline: &dyn AnyTimeline,
    past: Cost,
    at: Micros,
    group: usize,
    number: Option<u32>,
    options: ScalingBranchOptions,
) -> Result<(BranchOutcome, u32), Halt> {
    let mut timeline = timeline.fork();
    if let Some(number) = number {
        timeline.force_scaling(group, number);
    }
    let end = at.saturating_add(options.window);
    let mut observed = ScalingObserver { cost: past, group, set: None, report: None };
    timeline.run_until(end, &mut observed)?;
    timeline.finish(end, &mut observed)?;
    let ScalingObserver { cost, set, report, .. } = observed;
    let set = set.unwrap_or(0);
    let held = report.map_or(0.0, |report| gpu_seconds(&report, at, end));
    let outcome = branch(format!("{set} replica{}", if set == 1 { "" } else { "s" }), &cost, &cost);
    let cost_s = outcome.cost_s + options.requests_per_gpu * held;
    Ok((BranchOutcome { cost_s, rollout_cost_s: cost_s, status: "none", gpu_s: Some(held), ..outcome }, set))
}

/// GPU-seconds that replicas hold between `from` and `to`.
fn gpu_seconds(report: &ReplicaReport, from: Micros, to: Micros) -> f64 {
    let next = report.timeline.iter().skip(1).map(|&(at, _)| at).chain([Micros::MAX]);
    let held = |counts: &[[u32; 5]]| -> u64 {
        let gpus = |(group, counts): (usize, &[u32; 5])| {
            let states = ReplicaState::ALL.into_iter().filter(|state| state.holds_gpus());
            states.map(|state| u64::from(counts[state.index()])).sum::<u64>() * u64::from(report.groups[group].gpus)
        };
        counts.iter().enumerate().map(gpus).sum()
    };
    let spans = report.timeline.iter().zip(next);
    let within = |at: Micros, next: Micros| next.min(to).saturating_sub(at.max(from)).as_secs_f64();
    spans.map(|((at, counts), next)| within(*at, next) * held(counts) as f64).sum()
}

/// Adds up what a branch costs.
struct ScalingObserver {
    cost: Cost,
    group: usize,
    /// The first number of replicas that was set.
    set: Option<u32>,
    report: Option<ReplicaReport>,
}

impl Observer for ScalingObserver {
    fn interests(&self) -> Interests {
        Interests::OUTCOMES
    }

    fn record(&mut self, event: &SimEvent<'_>) {
        match *event {
            SimEvent::Scaling(change) if change.group == self.group && self.set.is_none() => {
                self.set = Some(change.to);
            }
            SimEvent::Replicas(report) => self.report = Some(report.clone()),
            _ => self.cost.record(event),
        }
    }
}

#[cfg(test)]
mod tests {
    use blis_sim::replica::GroupReport;

    use super::*;

    #[test]
    fn gpu_seconds_are_those_of_the_window() {
        let second = |number: u64| Micros(number * 1_000_000);
        let report = ReplicaReport {
            groups: vec![
                GroupReport { gpus: 2, ..GroupReport::default() },
                GroupReport { gpus: 1, ..GroupReport::default() },
            ],
            timeline: vec![
                (second(0), vec![[0, 0, 0, 1, 0], [0; 5]]),
                (second(10), vec![[5, 1, 0, 1, 0], [0; 5]]),
                (second(30), vec![[0, 0, 0, 1, 1], [0, 0, 3, 0, 0]]),
            ],
            ..ReplicaReport::default()
        };
        // 5 s with one replica of 2 GPUs, 20 s with two, then 10 s with two and three of one.
        assert_eq!(gpu_seconds(&report, second(5), second(40)), 5.0 * 2.0 + 20.0 * 4.0 + 10.0 * 7.0);
        assert_eq!(gpu_seconds(&report, second(50), second(51)), 7.0, "the last counts go on");
    }
}
