//! Replicas that may be removed, and nodes for one that starts.

use blis_abi::Row as _;
use rand::RngExt as _;

use super::generator;
use crate::rows::{DrainGroupRow, NONE_U32, NONE_U64, NodeRow, ReplicaRow, StartingReplicaRow};

/// A group and its replicas at the removal of one.
#[derive(Clone, Debug, PartialEq)]
pub struct DrainState {
    pub(crate) group: DrainGroupRow,
    /// In the order in which they were created; never empty.
    pub(crate) replicas: Vec<ReplicaRow>,
}

/// A replica and the nodes that have room for it.
#[derive(Clone, Debug, PartialEq)]
pub struct PlacementState {
    pub(crate) replica: StartingReplicaRow,
    pub(crate) nodes: Vec<NodeRow>,
}

const LATEST: u64 = i64::MAX.cast_unsigned();

impl DrainState {
    /// State number `item`, with `n` replicas.
    #[must_use]
    pub fn plausible(n: usize, item: u64) -> Self {
        let mut rng = generator("drain", item);
        let now_us = 1_000_000_000 + 15_000_000 * item;
        let group = DrainGroupRow {
            now_us,
            price: 2.5,
            group: (item % 2) as u32,
            model: 0,
            gpus: 1 << (item % 4),
            min_replicas: 1,
            max_replicas: 16,
            replicas: (n as u32).saturating_sub(1),
        };
        let replica = |index: usize| {
            let state = if rng.random_bool(0.8) { 3 } else { rng.random_range(0..3) };
            let (active, placed) = (state == 3, state > 0);
            let created_us = index as u64 * 10_000_000;
            let mut load = |most: u32| if active { rng.random_range(0..=most) } else { 0 };
            let batch_size = load(64);
            let group_on_node = 1 + load(2);
            ReplicaRow {
                created_us,
                active_since_us: if active { created_us + 90_000_000 } else { NONE_U64 },
                in_flight_tokens: load(50_000).into(),
                kv_utilization: f64::from(load(1000)) / 1000.0,
                id: index as u32,
                state,
                instance: if active { index as u32 } else { NONE_U32 },
                queue_depth: load(12),
                batch_size,
                in_flight: batch_size + load(9),
                pool: if placed { 0 } else { NONE_U32 },
                node: if placed { index as u32 / 2 } else { NONE_U32 },
                on_node: if placed { group_on_node + load(2) } else { 0 },
                group_on_node: if placed { group_on_node } else { 0 },
            }
        };
        Self { group, replicas: (0..n).map(replica).collect() }
    }

    /// States with values at the limits of their ranges, by name.
    #[must_use]
    pub fn extreme(n: usize) -> Vec<(&'static str, Self)> {
        let smallest = Self { group: DrainGroupRow::ZERO, replicas: vec![ReplicaRow::ZERO; n] };
        let group = DrainGroupRow {
            now_us: LATEST,
            price: 1e300,
            group: u32::MAX,
            model: 0,
            gpus: u32::MAX,
            min_replicas: u32::MAX,
            max_replicas: u32::MAX,
            replicas: u32::MAX,
        };
        let replica = ReplicaRow {
            created_us: LATEST,
            active_since_us: LATEST,
            in_flight_tokens: LATEST,
            kv_utilization: 1.0,
            id: u32::MAX,
            state: 3,
            instance: u32::MAX - 1,
            queue_depth: u32::MAX,
            batch_size: u32::MAX,
            in_flight: u32::MAX,
            pool: u32::MAX - 1,
            node: u32::MAX - 1,
            on_node: u32::MAX,
            group_on_node: u32::MAX,
        };
        let waiting = Self { replicas: vec![ReplicaRow::default(); n], ..Self::plausible(n, 5) };
        vec![
            ("everything 0", smallest),
            ("everything as large as it can be", Self { group, replicas: vec![replica; n] }),
            ("all replicas wait for GPUs", waiting),
        ]
    }
}

impl PlacementState {
    /// State number `item`, with `n` nodes.
    #[must_use]
    pub fn plausible(n: usize, item: u64) -> Self {
        let mut rng = generator("placement", item);
        let now_us = 1_000_000_000 + 15_000_000 * item;
        let replica = StartingReplicaRow {
            now_us,
            created_us: now_us - rng.random_range(0..100_000_000),
            id: item as u32,
            group: (item % 2) as u32,
            model: 0,
            gpus: 1 << (item % 3),
        };
        let node = |index: usize| {
            let replicas = rng.random_range(0..4);
            // The first one is ready.
            let late = index > 0 && rng.random_bool(0.2);
            NodeRow {
                ready_us: if late { now_us + rng.random_range(1..100_000_000) } else { 0 },
                price: 20.0,
                pool: (index % 2) as u32,
                node: index as u32,
                gpus: 8,
                free_gpus: rng.random_range(replica.gpus..=8),
                replicas,
                group_replicas: rng.random_range(0..=replicas),
            }
        };
        Self { replica, nodes: (0..n).map(node).collect() }
    }

    /// States with values at the limits of their ranges, by name.
    #[must_use]
    pub fn extreme(n: usize) -> Vec<(&'static str, Self)> {
        let smallest = Self { replica: StartingReplicaRow::ZERO, nodes: vec![NodeRow::ZERO; n] };
        let replica = StartingReplicaRow {
            now_us: LATEST,
            created_us: LATEST,
            id: u32::MAX,
            group: u32::MAX,
            model: 0,
            gpus: u32::MAX,
        };
        let node = NodeRow {
            ready_us: LATEST,
            price: 1e300,
            pool: u32::MAX,
            node: u32::MAX,
            gpus: u32::MAX,
            free_gpus: u32::MAX,
            replicas: u32::MAX,
            group_replicas: u32::MAX,
        };
        vec![("everything 0", smallest), ("everything as large as it can be", Self { replica, nodes: vec![node; n] })]
    }
}
