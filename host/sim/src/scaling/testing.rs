//! Views for the tests of policies.

use super::{
    GatewayView, GroupFacts, GroupView, OutcomeWindow, ReplicaLimits, ReplicaView, ScalingPolicy, ScalingView,
};
use crate::ids::InstanceIndex;
use crate::policy::InstanceRole;
use crate::request::Name;
use crate::units::Micros;

/// What a test sets of a group.
#[derive(Clone, Debug)]
pub(super) struct TestGroup {
    pub facts: GroupFacts,
    pub loading: Vec<Micros>,
    pub ready: Vec<ReplicaView>,
    pub gateway: GatewayView,
    pub outcomes: OutcomeWindow,
}

impl TestGroup {
    /// `ready` idle replicas with 1000 tokens of KV cache each.
    pub fn idle(ready: u32) -> Self {
        Self {
            facts: GroupFacts {
                model: Name(1),
                role: InstanceRole::default(),
                limits: ReplicaLimits { min: 1, max: 8 },
                gpus: 1,
                price: None,
                kv_tokens: 1000,
                max_num_seqs: 64,
                max_num_batched_tokens: 512,
            },
            loading: Vec::new(),
            ready: (0..ready)
                .map(|index| ReplicaView { instance: InstanceIndex(index), ..ReplicaView::default() })
                .collect(),
            gateway: GatewayView::default(),
            outcomes: OutcomeWindow::default(),
        }
    }

    pub fn with(mut self, set: impl FnOnce(&mut Self)) -> Self {
        set(&mut self);
        self
    }

    fn view(&self) -> GroupView<'_> {
        GroupView {
            facts: self.facts,
            replicas: (self.ready.len() + self.loading.len()) as u32,
            loading: &self.loading,
            draining: 0,
            ready: &self.ready,
            gateway: self.gateway,
            outcomes: self.outcomes,
        }
    }
}

/// The targets of `policy` at `now_s`, which is the time of the scrape as well.
pub(super) fn targets(policy: &mut impl ScalingPolicy, now_s: u64, groups: &[TestGroup]) -> Vec<Option<u32>> {
    let groups: Vec<_> = groups.iter().map(TestGroup::view).collect();
    let now = Micros(now_s * 1_000_000);
    let mut targets = Vec::new();
    policy.scale(&ScalingView { now, scraped_at: now, groups: &groups }, &mut targets);
    targets
}
