//! BLIS's autoscaler (commit f90a1e3a): its analyzer of saturation (version 2), and the number of replicas that its engine
//! "unlimited" adds or removes.
//!
//! With the capacity k of a replica's KV cache in tokens, times `kv`, and the demand of a replica, its tokens in use and `input`
//! tokens for each waiting request:
//!
//! ```text
//! S = Σ k of the ready replicas     P = Σ k of those that load     D = Σ demand of the ready replicas
//! required = D / up − (S + P) > 0                 add max(1, ⌈required / k⌉)
//! else, of several ready ones, S − k > D / down   remove ⌊(S − D / down) / k⌋, of 1 up to all
//! ```
//!
//! Without demand all are removed. Without a ready replica there is no signal, so that none is added again.

use super::{GroupView, ScalingPolicy, ScalingView};
use crate::numbers::truncated_u32;
use crate::policy::Reads;
use crate::units::Micros;

/// The parameters of BLIS's autoscaler.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BlisSettings {
    /// Share of the KV cache that counts as capacity.
    pub kv: f64,
    /// Share of the capacity in use above which replicas are added.
    pub up: f64,
    /// Share of the capacity below which replicas are removed.
    pub down: f64,
    /// Tokens of a waiting request.
    pub input: f64,
    /// How long replicas must be missing before some are added.
    pub up_window: Micros,
    /// How long replicas must be too many before some are removed.
    pub down_window: Micros,
}

impl Default for BlisSettings {
    /// BLIS's defaults.
    fn default() -> Self {
        Self { kv: 0.8, up: 0.8, down: 0.4, input: 512.0, up_window: Micros::ZERO, down_window: Micros::ZERO }
    }
}

/// BLIS's autoscaler.
#[derive(Clone, Debug)]
pub struct BlisAnalyzer {
    settings: BlisSettings,
    /// For each group since when replicas are missing or too many.
    since: Vec<Option<(Direction, Micros)>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Up,
    Down,
}

impl BlisAnalyzer {
    /// The policy with these parameters.
    #[must_use]
    pub fn new(settings: BlisSettings) -> Self {
        Self { settings, since: Vec::new() }
    }

    /// In which direction, and by how many replicas, the number is to change.
    fn signal(&self, group: &GroupView<'_>) -> Option<(Direction, u32)> {
        let BlisSettings { kv, up, down, input, .. } = self.settings;
        let tokens = group.facts.kv_tokens as f64;
        let (ready, one) = (group.ready.len() as f64, tokens * kv);
        if group.ready.is_empty() || one <= 0.0 {
            return None;
        }
        let of_replica = |queue: u32, used: f64| (used * tokens).round() + f64::from(queue) * input;
        let demand: f64 =
            group.ready.iter().map(|replica| of_replica(replica.queue_depth, replica.kv_utilization)).sum();
        let supply = ready * one;
        let required = demand / up - (supply + group.loading.len() as f64 * one);
        if required > 0.0 {
            return Some((Direction::Up, truncated_u32((required / one).ceil().max(1.0))));
        }
        let spare = supply - demand / down;
        // Removing one must leave enough.
        (group.ready.len() > 1 && spare > one)
            .then(|| (Direction::Down, truncated_u32((spare / one).floor().clamp(1.0, ready))))
    }
}

impl ScalingPolicy for BlisAnalyzer {
    fn reads(&self) -> Reads {
        Reads { load: true, ..Reads::NOTHING }
    }

    fn scale(&mut self, view: &ScalingView<'_>, targets: &mut Vec<Option<u32>>) {
        self.since.resize(view.groups.len(), None);
        for (index, group) in view.groups.iter().enumerate() {
            let Some((direction, number)) = self.signal(group) else {
                self.since[index] = None;
                targets.push(None);
                continue;
            };
            let since = match self.since[index] {
                Some((same, since)) if same == direction => since,
                _ => view.now,
            };
            self.since[index] = Some((direction, since));
            let (window, target) = match direction {
                Direction::Up => (self.settings.up_window, group.replicas.saturating_add(number)),
                Direction::Down => (self.settings.down_window, group.replicas.saturating_sub(number)),
            };
            targets.push((view.now.saturating_sub(since) >= window).then_some(target));
        }
    }

    fn fork(&self) -> Box<dyn ScalingPolicy> {
        Box::new(self.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::super::ReplicaView;
    use super::super::testing::{TestGroup, targets};
    use super::*;

    /// Replicas with these numbers of waiting requests, each with this share of its KV cache of 1000 tokens in use.
    fn busy(queues: &[u32], used: f64) -> TestGroup {
        TestGroup::idle(queues.len() as u32).with(|group| {
            for (replica, &queue) in group.ready.iter_mut().zip(queues) {
                *replica = ReplicaView { queue_depth: queue, kv_utilization: used, ..*replica };
            }
        })
    }

    fn first(settings: BlisSettings, group: TestGroup) -> Option<u32> {
        targets(&mut BlisAnalyzer::new(settings), 0, &[group])[0]
    }

    #[test]
    fn without_demand_all_are_removed_and_none_comes_back() {
        // S = 2 · 0.8 · 1000 = 1600, D = 0: required = −1600; spare = 1600 > k = 800, so ⌊1600 / 800⌋ = 2 go.
        assert_eq!(first(BlisSettings::default(), TestGroup::idle(2)), Some(0));
        assert_eq!(first(BlisSettings::default(), TestGroup::idle(1)), None, "one alone is never removed");
        assert_eq!(first(BlisSettings::default(), TestGroup::idle(0)), None, "no signal");
    }

    #[test]
    fn missing_capacity_is_counted_with_what_loads() {
        // D = 2 · 900 + 3 · 512 = 3336; S = 1600; required = 3336 / 0.8 − 1600 = 2570; ⌈2570 / 800⌉ = 4 come.
        assert_eq!(first(BlisSettings::default(), busy(&[1, 2], 0.9)), Some(6));
        // Three load: required = 2570 − 2400 = 170, and 1 comes.
        let three = busy(&[1, 2], 0.9).with(|group| group.loading = vec![Micros(1); 3]);
        assert_eq!(first(BlisSettings::default(), three), Some(6));
        // Four load: required = −630. Down: D / 0.4 = 8340 > S: no signal.
        let four = busy(&[1, 2], 0.9).with(|group| group.loading = vec![Micros(1); 4]);
        assert_eq!(first(BlisSettings::default(), four), None);
    }

    #[test]
    fn spare_capacity_leaves_enough() {
        // D = 4 · 100 = 400, D / 0.4 = 1000; S = 3200; spare = 2200 > 800: ⌊2200 / 800⌋ = 2 of 4 go.
        assert_eq!(first(BlisSettings::default(), busy(&[0; 4], 0.1)), Some(2));
        // D = 2 · 200 = 400, D / 0.4 = 1000; S = 1600; spare = 600 < 800: both stay.
        assert_eq!(first(BlisSettings::default(), busy(&[0; 2], 0.2)), None);
    }

    #[test]
    fn a_signal_must_last_for_its_window() {
        let second = |s: u64| Micros(s * 1_000_000);
        let mut policy = BlisAnalyzer::new(BlisSettings {
            down_window: second(30),
            up_window: second(10),
            ..BlisSettings::default()
        });
        let mut at = |now, group: TestGroup| targets(&mut policy, now, &[group])[0];
        let (idle, full) = (|| TestGroup::idle(2), || busy(&[1, 2], 0.9));
        assert_eq!([at(0, idle()), at(15, idle()), at(30, idle())], [None, None, Some(0)]);
        assert_eq!([at(45, full()), at(55, full())], [None, Some(6)]);
        // A call without a signal begins the window again.
        assert_eq!(
            [at(60, idle()), at(75, busy(&[0; 2], 0.2)), at(90, idle()), at(120, idle())],
            [None, None, None, Some(0)]
        );
    }
}
