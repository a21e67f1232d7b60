//! The scorer `no-hit-lru`: requests without a prefix-cache hit on any instance ("cold" requests) rotate over the
//! instances, least recently used first, so that new prefixes spread.

use crate::ids::InstanceIndex;
use crate::policy::ClusterView;

/// Marks an instance that is not in the columns.
const NONE: u32 = u32::MAX;

/// The order in which instances were last sent a cold request.
#[derive(Clone, Debug, Default)]
pub(super) struct ColdOrder {
    /// Instances, least recently used first.
    used: Vec<InstanceIndex>,
    /// Whether the request scored last had no hit on any instance.
    cold: bool,
    /// Index in the columns of each instance.
    columns: Vec<u32>,
}

impl ColdOrder {
    /// 0.5 for all instances if any of them has cached a block of the prompt. Otherwise from 1 down to 0 by rank: first
    /// the instances that were never used, in the order of the columns, then the others, least recently used first; 1
    /// for a single instance. Instances that no longer exist are removed from the order.
    pub fn score(&mut self, cluster: &ClusterView<'_>, scores: &mut [f64]) {
        self.cold = cluster.signals.cached_blocks.iter().all(|&blocks| blocks == 0);
        if !self.cold {
            scores.fill(0.5);
            return;
        }
        self.find_columns(cluster);
        self.used.retain(|&instance| self.columns.get(instance.index()).is_some_and(|&column| column != NONE));
        let last = (cluster.len() - 1).max(1) as f64;
        let score = |rank: usize| 1.0 - rank as f64 / last;
        let unused = cluster.len() - self.used.len();
        for (rank, &instance) in (unused..).zip(&self.used) {
            let column = std::mem::replace(&mut self.columns[instance.index()], NONE);
            scores[column as usize] = score(rank);
        }
        let never = cluster.instances.iter().map(|instance| self.columns[instance.id.index()]).filter(|&p| p != NONE);
        for (rank, column) in never.enumerate() {
            scores[column as usize] = score(rank);
        }
    }

    /// Records that the request scored last is dispatched to `instance`.
    pub fn dispatched(&mut self, instance: InstanceIndex) {
        if self.cold {
            self.used.retain(|&other| other != instance);
            self.used.push(instance);
        }
    }

    fn find_columns(&mut self, cluster: &ClusterView<'_>) {
        self.columns.fill(NONE);
        for (column, instance) in (0..).zip(cluster.instances) {
            let number = instance.id.index();
            if number >= self.columns.len() {
                self.columns.resize(number + 1, NONE);
            }
            self.columns[number] = column;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::testing::TestService;

    fn scores(order: &mut ColdOrder, service: &TestService) -> Vec<f64> {
        let mut scores = vec![f64::NAN; service.instances.len()];
        order.score(&service.view(), &mut scores);
        scores
    }

    #[test]
    fn cold_requests_rotate() {
        let cold = TestService::idle(4);
        let mut order = ColdOrder::default();
        let third = 1.0 / 3.0;
        assert_eq!(scores(&mut order, &cold), [1.0, 1.0 - third, 1.0 - 2.0 / 3.0, 0.0]);
        order.dispatched(InstanceIndex(1));
        assert_eq!(scores(&mut order, &cold), [1.0, 0.0, 1.0 - third, 1.0 - 2.0 / 3.0], "never used first");
        order.dispatched(InstanceIndex(0));
        assert_eq!(scores(&mut order, &cold), [0.0, 1.0 - 2.0 / 3.0, 1.0, 1.0 - third]);
        order.dispatched(InstanceIndex(1));
        assert_eq!(scores(&mut order, &cold), [1.0 - 2.0 / 3.0, 0.0, 1.0, 1.0 - third], "1 is the last used again");
    }

    #[test]
    fn a_hit_anywhere_scores_all_equally_and_is_not_recorded() {
        let mut order = ColdOrder::default();
        let warm = TestService::idle(3).with(|signals| signals.cached_blocks[2] = 1);
        assert_eq!(scores(&mut order, &warm), [0.5; 3]);
        order.dispatched(InstanceIndex(0));
        assert_eq!(scores(&mut order, &TestService::idle(3)), [1.0, 0.5, 0.0]);
    }

    #[test]
    fn one_instance_is_best() {
        let mut order = ColdOrder::default();
        for _ in 0..2 {
            assert_eq!(scores(&mut order, &TestService::idle(1)), [1.0]);
            order.dispatched(InstanceIndex(0));
        }
    }

    #[test]
    fn removed_instances_leave_the_order() {
        let mut order = ColdOrder::default();
        scores(&mut order, &TestService::idle(3));
        order.dispatched(InstanceIndex(0));
        let mut without_first = TestService::idle(3);
        without_first.instances.remove(0);
        without_first.signals.cached_blocks.remove(0);
        assert_eq!(scores(&mut order, &without_first), [1.0, 0.0]);
        assert_eq!(scores(&mut order, &TestService::idle(3)), [1.0, 0.5, 0.0], "added again, as if never used");
    }
}
