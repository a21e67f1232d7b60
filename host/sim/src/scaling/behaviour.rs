//! From a policy's target to the number of replicas: the stabilization windows and rates of the HorizontalPodAutoscaler
//! (`behavior` of autoscaling/v2; `stabilizeRecommendationWithBehaviors` and `convertDesiredReplicasWithBehaviorRate` of
//! Kubernetes' pkg/controller/podautoscaler), and KEDA's way from and to zero.

use std::cmp::Ordering;
use std::collections::VecDeque;

use crate::units::Micros;

/// The number of replicas of one group over time: what the last decisions were, and which next one is allowed.
#[derive(Clone, Debug)]
pub struct ReplicaControl {
    limits: ReplicaLimits,
    behaviour: Behaviour,
    /// Targets within the longer window, oldest first.
    recommendations: VecDeque<(Micros, u32)>,
    /// Changes within the longest period of a rule, oldest first: by how many replicas.
    changes: VecDeque<(Micros, i64)>,
    /// When the group was last active.
    active_at: Micros,
}

/// Limits of the number of replicas of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicaLimits {
    /// Fewest replicas; with 0 the group goes to zero after a cooldown without requests.
    pub min: u32,
    /// Most replicas, ≥ 1 and ≥ `min`.
    pub max: u32,
}

/// How fast the number of replicas may change.
#[derive(Clone, Debug, PartialEq)]
pub struct Behaviour {
    /// For changes to more replicas.
    pub up: ScalingRules,
    /// For changes to fewer replicas.
    pub down: ScalingRules,
    /// Time without activity after which a group with `min` 0 goes to zero (KEDA's `cooldownPeriod`).
    pub cooldown: Micros,
}

/// The rules of one direction.
#[derive(Clone, Debug, PartialEq)]
pub struct ScalingRules {
    /// The smallest target of this window counts on the way up, the largest on the way down; 0 for the present one.
    pub window: Micros,
    /// Largest change within a period. Without any there is no limit.
    pub policies: Vec<(Change, Micros)>,
    /// Which of `policies` counts.
    pub select: Select,
}

/// A change of the number of replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// By so many replicas.
    Pods(u32),
    /// By this percentage of the replicas at the start of the period.
    Percent(u32),
}

/// Which of several rules counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Select {
    /// The one that allows the largest change.
    Max,
    /// The one that allows the smallest change.
    Min,
    /// No change in this direction.
    Disabled,
}

impl Behaviour {
    /// The defaults of Kubernetes: up at once by the larger of 100 % and 4 replicas per 15 s, down by 100 % per 15 s
    /// after 300 s; and of KEDA: to zero after 300 s.
    #[must_use]
    pub fn kubernetes() -> Self {
        const PERIOD: Micros = Micros(15_000_000);
        Self {
            up: ScalingRules {
                window: Micros::ZERO,
                policies: vec![(Change::Percent(100), PERIOD), (Change::Pods(4), PERIOD)],
                select: Select::Max,
            },
            down: ScalingRules {
                window: Micros(300_000_000),
                policies: vec![(Change::Percent(100), PERIOD)],
                select: Select::Max,
            },
            cooldown: Micros(300_000_000),
        }
    }

    /// The longest period of a rule.
    fn longest_period(&self) -> Micros {
        let policies = self.up.policies.iter().chain(&self.down.policies);
        policies.map(|&(_, period)| period).max().unwrap_or(Micros::ZERO)
    }
}

impl ReplicaControl {
    /// The control of a group that was never changed. At first it counts as active.
    #[must_use]
    pub fn new(limits: ReplicaLimits, behaviour: Behaviour) -> Self {
        Self { limits, behaviour, recommendations: VecDeque::new(), changes: VecDeque::new(), active_at: Micros::ZERO }
    }

    /// The number of replicas from `now` on: `current` is the present one (without those that drain), `target` that of
    /// the policy, `active` whether the group has requests.
    pub fn decide(&mut self, now: Micros, current: u32, target: Option<u32>, active: bool) -> u32 {
        if active {
            self.active_at = now;
        }
        let min = self.limits.min;
        if current == 0 {
            return if active || min > 0 { min.max(1) } else { 0 };
        }
        if min == 0 && now.saturating_sub(self.active_at) >= self.behaviour.cooldown {
            return 0;
        }
        let next = self.allowed(now, current, target);
        if next != current {
            let longest = self.behaviour.longest_period();
            self.changes.retain(|&(at, _)| now.saturating_sub(at) < longest);
            self.changes.push_back((now, i64::from(next) - i64::from(current)));
        }
        next
    }

    /// The decision of the HorizontalPodAutoscaler, which never goes below one replica.
    fn allowed(&mut self, now: Micros, current: u32, target: Option<u32>) -> u32 {
        let (least, max) = (self.limits.min.max(1), self.limits.max);
        if current > max || current < least {
            return current.clamp(least, max);
        }
        let Some(target) = target else { return current };
        let stable = self.stabilized(now, current, target);
        match stable.cmp(&current) {
            Ordering::Greater => stable.min(self.limit_up(now, current).max(current)).min(max),
            Ordering::Less => stable.max(self.limit_down(now, current).min(current)).max(least),
            Ordering::Equal => current,
        }
    }

    /// `current`, moved between the smallest target of the upward window and the largest of the downward one.
    fn stabilized(&mut self, now: Micros, current: u32, target: u32) -> u32 {
        let (up, down) = (self.behaviour.up.window, self.behaviour.down.window);
        let (mut least, mut most) = (target, target);
        for &(at, earlier) in &self.recommendations {
            let age = now.saturating_sub(at);
            if age < up {
                least = least.min(earlier);
            }
            if age < down {
                most = most.max(earlier);
            }
        }
        let kept = up.max(down);
        self.recommendations.retain(|&(at, _)| now.saturating_sub(at) < kept);
        self.recommendations.push_back((now, target));
        current.max(least).min(most)
    }

    /// The most replicas that the rules allow now.
    fn limit_up(&self, now: Micros, current: u32) -> u32 {
        let rules = &self.behaviour.up;
        let limits = rules.policies.iter().map(|&(change, period)| {
            let start = self.at_start(now, current, period);
            match change {
                Change::Pods(pods) => start + i64::from(pods),
                // Rounded up: else one replica would never become two.
                Change::Percent(percent) => (start * (100 + i64::from(percent)) + 99).div_euclid(100),
            }
        });
        let limit = match rules.select {
            Select::Disabled => Some(i64::from(current)),
            Select::Max => limits.max(),
            Select::Min => limits.min(),
        };
        limit.map_or(u32::MAX, |limit| u32::try_from(limit.max(0)).unwrap_or(u32::MAX))
    }

    /// The fewest replicas that the rules allow now.
    fn limit_down(&self, now: Micros, current: u32) -> u32 {
        let rules = &self.behaviour.down;
        let limits = rules.policies.iter().map(|&(change, period)| {
            let start = self.at_start(now, current, period);
            match change {
                Change::Pods(pods) => start - i64::from(pods),
                Change::Percent(percent) => start * (100 - i64::from(percent)) / 100,
            }
        });
        let limit = match rules.select {
            Select::Disabled => Some(i64::from(current)),
            Select::Max => limits.min(),
            Select::Min => limits.max(),
        };
        limit.map_or(0, |limit| u32::try_from(limit.max(0)).unwrap_or(u32::MAX))
    }

    /// The number of replicas at the start of the `period` that ends now.
    fn at_start(&self, now: Micros, current: u32, period: Micros) -> i64 {
        let within = self.changes.iter().filter(|&&(at, _)| now.saturating_sub(at) < period);
        i64::from(current) - within.map(|&(_, change)| change).sum::<i64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(window_s: u64, policies: &[(Change, u64)], select: Select) -> ScalingRules {
        let policies = policies.iter().map(|&(change, period_s)| (change, Micros(period_s * 1_000_000))).collect();
        ScalingRules { window: Micros(window_s * 1_000_000), policies, select }
    }

    fn behaviour(up: ScalingRules, down: ScalingRules) -> Behaviour {
        Behaviour { up, down, cooldown: Micros(300_000_000) }
    }

    /// A sync: time in seconds, the target, whether there are requests, the number of replicas worked out by hand.
    type Sync = (u64, Option<u32>, bool, u32);

    /// Limits, rules, replicas at first, syncs, and why.
    type ControlCase<'a> = ((u32, u32), Behaviour, u32, &'a [Sync], &'a str);

    #[test]
    fn numbers_of_replicas_are_those_of_kubernetes_and_keda() {
        let (percent, pods) = (Change::Percent, Change::Pods);
        let usual = Behaviour::kubernetes;
        let at_once = || rules(0, &[], Select::Max);
        let up = |up| behaviour(up, at_once());
        let down = |down| behaviour(at_once(), down);
        #[rustfmt::skip]
        let rows: &[ControlCase<'_>] = &[
            ((1, 20), usual(), 1, &[(0, Some(10), true, 5), (15, Some(10), true, 10)],
             "up by max(100 %, 4): to max(2, 5), then to max(10, 9)"),
            ((1, 20), usual(), 1, &[(0, Some(10), true, 5), (10, Some(10), true, 5), (15, Some(10), true, 10)],
             "the change of 0 s counts until 15 s"),
            ((1, 20), up(rules(0, &[(percent(50), 15)], Select::Max)), 1,
             &[(0, Some(9), true, 2), (15, Some(9), true, 3), (30, Some(9), true, 5)],
             "percentages are rounded up: 1.5, 3, 4.5"),
            ((1, 20), up(rules(0, &[(percent(100), 15), (pods(4), 15)], Select::Min)), 3, &[(0, Some(20), true, 6)],
             "min(6, 7)"),
            ((1, 20), up(rules(0, &[(pods(4), 15)], Select::Disabled)), 3, &[(0, Some(20), true, 3)],
             "disabled"),
            ((1, 20), up(rules(30, &[], Select::Max)), 4,
             &[(0, Some(4), true, 4), (15, Some(8), true, 4), (30, Some(9), true, 8), (45, Some(9), true, 9)],
             "up: the smallest target of less than 30 s ago"),
            ((1, 20), usual(), 8,
             &[(0, Some(8), true, 8), (15, Some(2), true, 8), (285, Some(3), true, 8), (300, Some(2), true, 3),
               (570, Some(2), true, 3), (585, Some(2), true, 2)],
             "down: the largest target of less than 300 s ago"),
            ((3, 8), down(rules(0, &[(pods(1), 120)], Select::Max)), 8,
             &[(0, Some(4), true, 7), (15, Some(4), true, 7), (105, Some(4), true, 7), (120, Some(4), true, 6)],
             "down by one in 120 s"),
            ((1, 20), down(rules(0, &[(percent(50), 60), (pods(2), 60)], Select::Min)), 9, &[(0, Some(1), true, 7)],
             "the smaller change: max(4, 7)"),
            ((1, 20), down(rules(0, &[(percent(50), 60), (pods(2), 60)], Select::Max)), 9, &[(0, Some(1), true, 4)],
             "the larger change: 4.5 is truncated"),
            ((2, 6), behaviour(at_once(), at_once()), 4,
             &[(0, Some(9), true, 6), (15, Some(0), true, 2), (30, None, true, 2)],
             "limits; a policy that cannot say changes nothing"),
            ((2, 6), usual(), 9, &[(0, None, true, 6), (15, Some(6), true, 6)],
             "beyond the limits without regard to windows"),
            ((0, 6), usual(), 0,
             &[(0, Some(3), false, 0), (15, None, true, 1), (30, Some(3), true, 3)],
             "from zero to one with the first request, by KEDA; then by the target"),
            ((0, 6), behaviour(at_once(), at_once()), 2,
             &[(0, Some(0), true, 1), (15, Some(0), true, 1), (300, Some(0), false, 1), (315, Some(0), false, 0),
               (330, Some(0), false, 0)],
             "to one by the target, to zero 300 s after the last request"),
        ];
        assert_eq!(rows.len(), 14, "26 more are in `hpa.rs`");
        for &((min, max), ref rules, first, syncs, why) in rows {
            let mut control = ReplicaControl::new(ReplicaLimits { min, max }, rules.clone());
            let mut replicas = first;
            for &(at, target, active, expected) in syncs {
                replicas = control.decide(Micros(at * 1_000_000), replicas, target, active);
                assert_eq!(replicas, expected, "{why}: at {at} s");
            }
        }
    }

    proptest::proptest! {
        #[test]
        fn the_number_stays_within_its_limits(
            min in 0_u32..4, more in 0_u32..6, targets in proptest::collection::vec((0_u32..20, 0_u64..40, proptest::bool::ANY), 1..40),
        ) {
            let limits = ReplicaLimits { min, max: (min + more).max(1) };
            let mut control = ReplicaControl::new(limits, Behaviour::kubernetes());
            let (mut now, mut replicas) = (0, limits.max);
            for (target, later, active) in targets {
                now += later * 1_000_000;
                let next = control.decide(Micros(now), replicas, Some(target), active);
                proptest::prop_assert!((min..=limits.max).contains(&next));
                proptest::prop_assert!(next > 0 || replicas == 0 || !active, "to zero with requests");
                replicas = next;
            }
        }
    }
}
