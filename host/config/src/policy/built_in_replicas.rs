//! Built-in policies of drain and placement as plugins: their rows as views.

use blis_sim::ids::InstanceIndex;
use blis_sim::replica::ReplicaState;
use blis_sim::request::Name;
use blis_sim::scaling::{
    DrainCandidate, DrainPolicy, DrainView, NodeId, NodeView, PlacementPolicy, PlacementView, ReplicaGroupView,
    ReplicaLimits, ReplicaView,
};
use blis_sim::units::Micros;

use super::built_in::{BuiltInGuest, BuiltInPolicy};
use blis_plugin::rows::{DrainGroupRow, NONE_U32, NodeRow, ReplicaRow, StartingReplicaRow};
use blis_plugin::{DrainGuest, Fault, PlacementGuest, StartedGuest};

impl BuiltInPolicy for Box<dyn DrainPolicy> {
    fn start(self) -> StartedGuest {
        StartedGuest::Drain(Box::new(BuiltInGuest(self)))
    }

    fn copy(&self) -> Self {
        self.fork()
    }
}

impl BuiltInPolicy for Box<dyn PlacementPolicy> {
    fn start(self) -> StartedGuest {
        StartedGuest::Placement(Box::new(BuiltInGuest(self)))
    }

    fn copy(&self) -> Self {
        self.fork()
    }
}

impl DrainGuest for BuiltInGuest<Box<dyn DrainPolicy>> {
    fn drain(&mut self, group: &DrainGroupRow, replicas: &[ReplicaRow]) -> Result<usize, Fault> {
        let replicas: Vec<DrainCandidate> = replicas.iter().map(candidate).collect();
        let of = ReplicaGroupView {
            index: group.group as usize,
            model: Name(group.model),
            gpus: group.gpus,
            price: Some(group.price),
            limits: ReplicaLimits { min: group.min_replicas, max: group.max_replicas },
            replicas: group.replicas,
        };
        Ok(self.0.drain(&DrainView { now: Micros(group.now_us), group: of, replicas: &replicas }))
    }
}

impl PlacementGuest for BuiltInGuest<Box<dyn PlacementPolicy>> {
    fn placement(&mut self, replica: &StartingReplicaRow, nodes: &[NodeRow]) -> Result<Option<usize>, Fault> {
        let nodes: Vec<NodeView> = nodes.iter().map(node).collect();
        let group = ReplicaGroupView {
            index: replica.group as usize,
            model: Name(replica.model),
            gpus: replica.gpus,
            price: None,
            limits: ReplicaLimits { min: 0, max: u32::MAX },
            replicas: 0,
        };
        Ok(self.0.choose_node(&PlacementView {
            now: Micros(replica.now_us),
            group,
            replica: replica.id,
            created_at: Micros(replica.created_us),
            nodes: &nodes,
        }))
    }
}

fn candidate(row: &ReplicaRow) -> DrainCandidate {
    let state = ReplicaState::ALL[row.state.min(3) as usize];
    let load = ReplicaView {
        instance: InstanceIndex(row.instance),
        queue_depth: row.queue_depth,
        batch_size: row.batch_size,
        kv_utilization: row.kv_utilization,
        in_flight: row.in_flight,
        in_flight_tokens: row.in_flight_tokens,
    };
    DrainCandidate {
        replica: row.id,
        state,
        created_at: Micros(row.created_us),
        active_since: row.active_since().map(Micros),
        load: (state == ReplicaState::Active).then_some(load),
        node: (row.node != NONE_U32).then_some(NodeId { pool: row.pool as usize, number: row.node }),
        on_node: row.on_node,
        group_on_node: row.group_on_node,
    }
}

fn node(row: &NodeRow) -> NodeView {
    NodeView {
        id: NodeId { pool: row.pool as usize, number: row.node },
        gpus: row.gpus,
        free: row.free_gpus,
        replicas: row.replicas,
        group_replicas: row.group_replicas,
        price: Some(row.price),
        ready_at: Micros(row.ready_us),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use blis_plugin::inputs::GuestCall;
    use blis_plugin::{Kind, Limits, Plugin, check, script};
    use blis_sim::policy::Ties;

    use crate::policy::BuiltIn;

    /// The outputs of `plugin` for generated inputs and those at the limits of their ranges.
    fn outputs(plugin: &dyn Plugin, kind: Kind) -> Vec<String> {
        let mut guest = plugin.start(&check::setup(plugin, kind, 4, &Limits::default())).expect("it starts");
        let usual = (0..300).map(|item| GuestCall::plausible(kind, 1 + item as usize % 9, item));
        let calls = usual.chain(GuestCall::extreme(kind, 4).into_iter().map(|(_, call)| call));
        calls.map(|call| format!("{:?}", call.run(&mut guest, &Ties::LowestIndex))).collect()
    }

    #[test]
    fn scripts_of_the_built_ins_choose_alike() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/built-ins");
        for (kind, name) in [(Kind::Drain, "emptiest"), (Kind::Placement, "best-fit")] {
            let row = BuiltIn::find(kind, name).expect("it is built in");
            let built_in = outputs(&*row.load().plugin, kind);
            let file = folder.join(format!("{name}.rhai"));
            let loaded = script::load_file(&file, &Limits::default()).expect("compiles");
            assert_eq!(outputs(&*loaded, kind), built_in, "{name}");
            let other = BuiltIn::default_of(kind);
            assert_ne!(outputs(&*other.load().plugin, kind), built_in, "the inputs tell them apart");
        }
    }
}
