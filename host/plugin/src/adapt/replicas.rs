//! Guests as policies of drain and placement.

use blis_sim::policy::Reads;
use blis_sim::replica::ReplicaState;
use blis_sim::scaling::{
    DrainCandidate, DrainPolicy, DrainView, FirstFit, Newest, NodeView, PlacementPolicy, PlacementView,
    ReplicaGroupView,
};
use blis_sim::units::Micros;

use super::PluginPolicy;
use crate::rows::{DrainGroupRow, NONE_U32, NONE_U64, NodeRow, ReplicaRow, StartingReplicaRow, canonical};
use crate::{DrainGuest, PlacementGuest};

impl DrainPolicy for PluginPolicy<dyn DrainGuest> {
    /// Every replica that it gets has all signals.
    fn reads(&self) -> Reads {
        Reads { in_flight: true, tokens: true, ..Reads::NOTHING }
    }

    fn drain(&mut self, view: &DrainView<'_>) -> usize {
        let group = group_row(view.now, &view.group);
        let replicas: Vec<ReplicaRow> = view.replicas.iter().map(replica_row).collect();
        let chosen = match self.guest().drain(&group, &replicas) {
            Ok(index) if index >= replicas.len() => {
                Err(self.out_of_range("drain", index, &format!("an index from 0 to {}", replicas.len() - 1)))
            }
            result => result,
        };
        self.checked(view.now, chosen, || Newest.drain(view))
    }

    fn fork(&self) -> Box<dyn DrainPolicy> {
        Box::new(self.copy())
    }
}

impl PlacementPolicy for PluginPolicy<dyn PlacementGuest> {
    fn choose_node(&mut self, view: &PlacementView<'_>) -> Option<usize> {
        let replica = StartingReplicaRow {
            now_us: view.now.0,
            created_us: view.created_at.0,
            id: view.replica,
            group: view.group.index as u32,
            model: view.group.model.0,
            gpus: view.group.gpus,
        };
        let nodes: Vec<NodeRow> = view.nodes.iter().map(node_row).collect();
        let chosen = match self.guest().placement(&replica, &nodes) {
            Ok(Some(index)) if index >= nodes.len() => {
                let range = format!("none, or an index from 0 to {}", nodes.len() - 1);
                Err(self.out_of_range("placement", index, &range))
            }
            result => result,
        };
        self.checked(view.now, chosen, || FirstFit.choose_node(view))
    }

    fn fork(&self) -> Box<dyn PlacementPolicy> {
        Box::new(self.copy())
    }
}

fn group_row(now: Micros, group: &ReplicaGroupView) -> DrainGroupRow {
    DrainGroupRow {
        now_us: now.0,
        price: canonical(group.price.unwrap_or(0.0)),
        group: group.index as u32,
        model: group.model.0,
        gpus: group.gpus,
        min_replicas: group.limits.min,
        max_replicas: group.limits.max,
        replicas: group.replicas,
    }
}

fn replica_row(replica: &DrainCandidate) -> ReplicaRow {
    let load = replica.load.unwrap_or_default();
    let state = match replica.state {
        ReplicaState::Scheduling => 0,
        ReplicaState::Loading => 1,
        ReplicaState::Warming => 2,
        ReplicaState::Active | ReplicaState::Draining => 3,
    };
    ReplicaRow {
        created_us: replica.created_at.0,
        active_since_us: replica.active_since.map_or(NONE_U64, |at| at.0),
        in_flight_tokens: load.in_flight_tokens,
        kv_utilization: canonical(load.kv_utilization),
        id: replica.replica,
        state,
        instance: replica.load.map_or(NONE_U32, |load| load.instance.0),
        queue_depth: load.queue_depth,
        batch_size: load.batch_size,
        in_flight: load.in_flight,
        pool: replica.node.map_or(NONE_U32, |node| node.pool as u32),
        node: replica.node.map_or(NONE_U32, |node| node.number),
        on_node: replica.on_node,
        group_on_node: replica.group_on_node,
    }
}

fn node_row(node: &NodeView) -> NodeRow {
    NodeRow {
        ready_us: node.ready_at.0,
        price: canonical(node.price.unwrap_or(0.0)),
        pool: node.id.pool as u32,
        node: node.id.number,
        gpus: node.gpus,
        free_gpus: node.free,
        replicas: node.replicas,
        group_replicas: node.group_replicas,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use blis_sim::cluster::Abort;
    use blis_sim::ids::InstanceIndex;
    use blis_sim::policy::BlockIds;
    use blis_sim::request::Name;
    use blis_sim::scaling::{NodeId, ReplicaLimits, ReplicaView};

    use super::*;
    use crate::incidents::{Incidents, OnError};
    use crate::{FaultKind, GuestKind, Limits, StartedGuest, check, script};

    const GROUP: ReplicaGroupView = ReplicaGroupView {
        index: 1,
        model: Name::NONE,
        gpus: 2,
        price: Some(2.5),
        limits: ReplicaLimits { min: 1, max: 9 },
        replicas: 2,
    };

    /// A policy of the script `source` that falls back.
    fn policy<G: GuestKind + ?Sized>(source: &str) -> (PluginPolicy<G>, Incidents) {
        let limits = Limits::default();
        let plugin = script::load(Path::new("mine.rhai"), source, &limits).expect("compiles");
        let incidents = Incidents::new(OnError::Fallback, Abort::default());
        let guest = plugin.start(&check::setup(&*plugin, G::KIND, 4, &limits)).and_then(StartedGuest::into_kind);
        let guest = guest.expect("starts");
        (PluginPolicy::new("mine", plugin.description(), guest, BlockIds::KEYS, &incidents), incidents)
    }

    /// Which replica the script removes: 0 active with 7 requests, 1 active with 3, 2 loading.
    fn drained(source: &str) -> (usize, Incidents) {
        let (mut policy, incidents) = policy::<dyn DrainGuest>(source);
        let active = |replica, requests| DrainCandidate {
            replica,
            state: ReplicaState::Active,
            created_at: Micros(5),
            active_since: Some(Micros(50)),
            load: Some(ReplicaView {
                instance: InstanceIndex(replica),
                batch_size: requests,
                ..ReplicaView::default()
            }),
            node: Some(NodeId { pool: 1, number: 4 }),
            on_node: 3,
            group_on_node: 2,
        };
        let starts = DrainCandidate {
            state: ReplicaState::Loading,
            active_since: None,
            load: None,
            node: None,
            on_node: 0,
            group_on_node: 0,
            ..active(2, 0)
        };
        let view = DrainView { now: Micros(90), group: GROUP, replicas: &[active(0, 7), active(1, 3), starts] };
        (policy.drain(&view), incidents)
    }

    fn placed(source: &str) -> (Option<usize>, Incidents) {
        let (mut policy, incidents) = policy::<dyn PlacementGuest>(source);
        let node = |number, free, ready| NodeView {
            id: NodeId { pool: 1, number },
            gpus: 8,
            free,
            replicas: 3,
            group_replicas: 1,
            price: None,
            ready_at: Micros(ready),
        };
        let nodes = [node(4, 8, 200), node(5, 2, 0), node(6, 4, 0)];
        let view = PlacementView { now: Micros(90), group: GROUP, replica: 3, created_at: Micros(40), nodes: &nodes };
        (policy.choose_node(&view), incidents)
    }

    #[test]
    fn a_script_drains_a_replica() {
        let (chosen, incidents) = drained("fn drain(g, r) { r.batch_size }");
        assert_eq!((chosen, incidents.first().is_none()), (0, true), "the highest score");
        let (chosen, _) = drained("fn drain(g, r) { for i in 0..r.len { if r.state[i] < 3 { return i; } } 0 }");
        assert_eq!(chosen, 2);
        let source = "fn drain(g, r) {
            let group = [g.now, g.group, g.gpus, g.min_replicas, g.max_replicas, g.replicas] == [90, 1, 2, 1, 9, 2];
            let rest = g.model == \"\" && g.price == 2.5 && r.active_since[2] > 1e300 && r.node[2] > 1e300;
            let node = r.node[0] == 4 && r.pool[0] == 1 && r.on_node[0] == 3 && r.group_on_node[0] == 2;
            let times = r.id[1] == 1 && r.instance[1] == 1 && r.created[1] == 5 && r.active_since[1] == 50;
            if group && rest && node && times { 1 } else { 0 }
        }";
        let (chosen, incidents) = drained(source);
        assert_eq!((chosen, incidents.first().map(|one| one.fault.to_string())), (1, None));
    }

    #[test]
    fn a_script_chooses_a_node() {
        assert_eq!(placed("fn placement(r, n) { if r.now - r.created < 60 { () } else { 0 } }").0, None, "it waits");
        assert_eq!(placed("fn placement(r, n) { -n.free_gpus - 100.0 * (n.ready > r.now) }").0, Some(1));
        assert_eq!(placed("fn placement(r, n) { n.node.len - 1 }").0, Some(2));
    }

    #[test]
    fn a_bad_index_is_that_of_the_default() {
        for (source, kind, says) in [
            ("fn drain(g, r) { 3 }", FaultKind::OutOfRange, "from 0 to 2"),
            ("fn drain(g, r) { }", FaultKind::Trap, "a column of scores, or an index"),
            ("fn drain(g, r) { 0.0 * r.state / 0.0 }", FaultKind::NotANumber, "NaN"),
        ] {
            let (chosen, incidents) = drained(source);
            let fault = incidents.first().expect("recorded").fault;
            assert!(fault.kind == kind && fault.to_string().contains(says), "{fault}");
            assert_eq!(chosen, 2, "newest: the one that starts");
        }
        let (chosen, incidents) = placed("fn placement(r, n) { -1 }");
        assert_eq!((chosen, incidents.first().map(|one| one.fault.kind)), (Some(1), Some(FaultKind::OutOfRange)));
    }
}
