//! Groups, replicas that may be removed, and nodes for one that starts.

use std::sync::Arc;

use blis_abi::Row as _;
use blis_sim::units::Micros;
use rand::RngExt as _;

use super::call_inputs::{CallInputs, largest};
use super::point::generator;
use super::scaling;
use crate::Function;
use crate::rows::{DrainGroupRow, NONE_U32, NONE_U64, NodeRow, ReplicaRow, StartingReplicaRow};

/// Inputs of call number `item` of `function`, with `n` groups, replicas or nodes.
pub(super) fn plausible(function: Function, n: usize, item: u64) -> CallInputs {
    match function {
        Function::Scale => scaling::plausible(n, item),
        Function::Drain => {
            let (group, replicas) = drain(n, item);
            of_drain(group, replicas)
        }
        _ => {
            let (replica, nodes) = placement(n, item);
            of_placement(replica, nodes)
        }
    }
}

/// Inputs of `function` with values at the limits of their ranges, by name.
pub(super) fn extreme(function: Function, n: usize) -> Vec<(&'static str, CallInputs)> {
    let [small, large] = ["everything 0", "everything as large as it can be"];
    match function {
        Function::Scale => scaling::extreme(n),
        Function::Drain => {
            let replica = ReplicaRow { kv_utilization: 1.0, state: 3, ..largest() };
            let waiting = of_drain(drain(n, 5).0, vec![ReplicaRow::default(); n]);
            vec![
                (small, of_drain(DrainGroupRow::ZERO, vec![ReplicaRow::ZERO; n])),
                (large, of_drain(largest(), vec![replica; n])),
                ("all replicas wait for GPUs", waiting),
            ]
        }
        _ => vec![
            (small, of_placement(StartingReplicaRow::ZERO, vec![NodeRow::ZERO; n])),
            (large, of_placement(largest(), vec![largest(); n])),
        ],
    }
}

/// The removal of one of `replicas`, in the order in which they were created.
fn of_drain(group: DrainGroupRow, replicas: Vec<ReplicaRow>) -> CallInputs {
    CallInputs::at(Micros(group.now_us), vec![Arc::new(vec![group]), Arc::new(replicas)])
}

/// A replica that starts, and the nodes that have room for it.
fn of_placement(replica: StartingReplicaRow, nodes: Vec<NodeRow>) -> CallInputs {
    CallInputs::at(Micros(replica.now_us), vec![Arc::new(vec![replica]), Arc::new(nodes)])
}

/// Group and replicas number `item`, with `n` replicas.
fn drain(n: usize, item: u64) -> (DrainGroupRow, Vec<ReplicaRow>) {
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
    (group, (0..n).map(replica).collect())
}

/// Replica and nodes number `item`, with `n` nodes.
fn placement(n: usize, item: u64) -> (StartingReplicaRow, Vec<NodeRow>) {
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
    (replica, (0..n).map(node).collect())
}
