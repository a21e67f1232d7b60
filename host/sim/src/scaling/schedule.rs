//! Numbers of replicas that do not depend on the state of the service: a constant, a schedule, and the bound of a scaler
//! that sees the future.

use super::behaviour::{Behaviour, ScalingRules, Select};
use super::{ScalingPolicy, ScalingView};
use crate::numbers::truncated_u32;
use crate::policy::Reads;
use crate::units::Micros;

/// Numbers of replicas at given times, the same for every group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// From each time on so many replicas, in order of time; before the first one nothing changes.
    steps: Vec<(Micros, u32)>,
}

impl Schedule {
    /// From each time on so many replicas; `steps` are in order of time.
    #[must_use]
    pub fn new(steps: Vec<(Micros, u32)>) -> Self {
        debug_assert!(steps.is_sorted_by_key(|&(at, _)| at), "in order of time");
        Self { steps }
    }

    /// Always so many replicas.
    #[must_use]
    pub fn constant(replicas: u32) -> Self {
        Self { steps: vec![(Micros::ZERO, replicas)] }
    }

    /// The replicas of a scaler that knows the arrivals: in each interval ⌈λ/μ⌉ for its arrival rate λ and the rate μ that
    /// one replica serves within the SLO (llm-d-autoscaling #1499: the fewest GPUs that a perfect system would have
    /// needed). `arrivals` are in order of time, `rate_per_s` is μ > 0. `lead` is the time that a replica takes to start:
    /// so much earlier are replicas added, and no earlier removed.
    #[must_use]
    pub fn perfect(
        arrivals: impl IntoIterator<Item = Micros>,
        rate_per_s: f64,
        interval: Micros,
        lead: Micros,
    ) -> Self {
        let width = interval.0.max(1);
        let served = rate_per_s * Micros(width).as_secs_f64();
        // (interval, arrivals), without empty intervals.
        let mut counts: Vec<(u64, u64)> = Vec::new();
        for index in arrivals.into_iter().map(|at| at.0 / width) {
            match counts.last_mut() {
                Some((last, count)) if *last == index => *count += 1,
                _ => counts.push((index, 1)),
            }
        }
        let ahead = lead.0.div_ceil(width);
        let mut changes: Vec<u64> =
            counts.iter().flat_map(|&(index, _)| [index.saturating_sub(ahead), index + 1]).chain([0]).collect();
        changes.sort_unstable();
        changes.dedup();
        let mut steps: Vec<(Micros, u32)> = Vec::new();
        for at in changes {
            let from = counts.partition_point(|&(index, _)| index < at);
            let soon = counts[from..].iter().take_while(|&&(index, _)| index <= at + ahead);
            let most = soon.map(|&(_, count)| count).max().unwrap_or(0);
            let replicas = truncated_u32((most as f64 / served).ceil());
            if steps.last().is_none_or(|&(_, last)| last != replicas) {
                steps.push((Micros(at.saturating_mul(width)), replicas));
            }
        }
        Self { steps }
    }

    /// The steps: from each time on so many replicas.
    #[must_use]
    pub fn steps(&self) -> &[(Micros, u32)] {
        &self.steps
    }
}

impl ScalingPolicy for Schedule {
    fn reads(&self) -> Reads {
        Reads::NOTHING
    }

    /// At once, without limits.
    fn behaviour(&self) -> Behaviour {
        let at_once = ScalingRules { window: Micros::ZERO, policies: Vec::new(), select: Select::Max };
        Behaviour { up: at_once.clone(), down: at_once, cooldown: Behaviour::kubernetes().cooldown }
    }

    fn scale(&mut self, view: &ScalingView<'_>, targets: &mut Vec<Option<u32>>) {
        let past = self.steps.partition_point(|&(at, _)| at <= view.now);
        let target = past.checked_sub(1).map(|last| self.steps[last].1);
        targets.resize(view.groups.len(), target);
    }

    fn fork(&self) -> Box<dyn ScalingPolicy> {
        Box::new(self.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{TestGroup, targets};
    use super::*;

    const SECOND: u64 = 1_000_000;

    #[test]
    fn steps_count_from_their_time_on() {
        let mut policy = Schedule::new(vec![(Micros(10 * SECOND), 3), (Micros(20 * SECOND), 1)]);
        let groups = [TestGroup::idle(1), TestGroup::idle(2)];
        let at = |policy: &mut Schedule, now_s| targets(policy, now_s, &groups);
        assert_eq!(at(&mut policy, 9), [None, None]);
        assert_eq!(at(&mut policy, 10), [Some(3); 2]);
        assert_eq!(at(&mut policy, 25), [Some(1); 2]);
        assert_eq!(at(&mut Schedule::constant(4), 0), [Some(4); 2]);
    }

    #[test]
    fn a_perfect_scaler_has_the_rate_over_that_of_a_replica() {
        // Per 10 s: 20, 41, 0, 10 arrivals; a replica serves 2 per s, 20 in an interval.
        let arrivals = [(0, 20), (1, 41), (3, 10)];
        let arrivals = || {
            arrivals
                .into_iter()
                .flat_map(|(interval, count)| (0..count).map(move |n| Micros(interval * 10 * SECOND + n * SECOND / 5)))
        };
        let steps = |lead_s| {
            let curve = Schedule::perfect(arrivals(), 2.0, Micros(10 * SECOND), Micros(lead_s * SECOND));
            curve.steps().iter().map(|&(at, replicas)| (at.0 / SECOND, replicas)).collect::<Vec<_>>()
        };
        assert_eq!(steps(0), [(0, 1), (10, 3), (20, 0), (30, 1), (40, 0)]);
        assert_eq!(steps(5), [(0, 3), (20, 1), (40, 0)], "an interval earlier");
        assert_eq!(steps(100), [(0, 3), (20, 1), (40, 0)]);
    }

    #[test]
    fn arrivals_at_the_end_of_time_are_no_problem() {
        let arrivals = [Micros::ZERO, Micros::MAX];
        let curve = Schedule::perfect(arrivals, 1.0, Micros(1), Micros(0));
        assert_eq!(curve.steps().first(), Some(&(Micros::ZERO, 1_000_000)));
        assert_eq!(curve.steps().len(), 4);
        assert_eq!(Schedule::perfect([], 1.0, Micros(1), Micros(0)).steps(), [(Micros::ZERO, 0)]);
    }
}
