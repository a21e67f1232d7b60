//! Guests as policies of drain and placement.

use blis_sim::policy::Reads;
use blis_sim::scaling::{DrainGroup, DrainPolicy, FirstFit, Newest, Node, PlacementPolicy, Replica, StartingReplica};
use blis_sim::units::Micros;

use super::{PluginPolicy, fork};

impl DrainPolicy for PluginPolicy {
    /// Every replica that it gets has all signals.
    fn reads(&self) -> Reads {
        Reads { in_flight: true, tokens: true, ..Reads::NOTHING }
    }

    fn drain(&mut self, group: &DrainGroup, replicas: &[Replica]) -> usize {
        let chosen = self.decide(Micros(group.now_us), |guest| guest.drain(group, replicas));
        chosen.unwrap_or_else(|| Newest.drain(group, replicas))
    }

    fork!(DrainPolicy);
}

impl PlacementPolicy for PluginPolicy {
    fn choose_node(&mut self, replica: &StartingReplica, nodes: &[Node]) -> Option<usize> {
        let chosen = self.decide(Micros(replica.now_us), |guest| guest.placement(replica, nodes));
        chosen.unwrap_or_else(|| FirstFit.choose_node(replica, nodes))
    }

    fork!(PlacementPolicy);
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use blis_sim::cluster::Abort;
    use blis_sim::policy::BlockIds;
    use blis_sim::replica::ReplicaState;

    use super::*;
    use crate::incidents::{Incidents, OnError};
    use crate::{FaultKind, Kind, Limits, check, script};

    /// A policy of the script `source` that falls back.
    fn policy(kind: Kind, source: &str) -> (PluginPolicy, Incidents) {
        let limits = Limits::default();
        let plugin = script::load(Path::new("mine.rhai"), source, &limits).expect("compiles");
        let incidents = Incidents::new(OnError::Fallback, Abort::default());
        let guest = plugin.start(&check::setup(&*plugin, kind, 4, &limits)).expect("starts");
        (PluginPolicy::new("mine", plugin.description(), guest, BlockIds::KEYS, &incidents), incidents)
    }

    /// Which replica the script removes: 0 active with 7 requests, 1 active with 3, 2 loading.
    fn drained(source: &str) -> (usize, Incidents) {
        let (mut policy, incidents) = policy(Kind::Drain, source);
        let active = |id, batch_size| Replica {
            created_us: 5,
            active_since_us: 50,
            id,
            state: ReplicaState::Active.number(),
            instance: id,
            batch_size,
            pool: 1,
            node: 4,
            on_node: 3,
            group_on_node: 2,
            ..Replica::default()
        };
        let starts = Replica { created_us: 5, id: 2, state: ReplicaState::Loading.number(), ..Replica::default() };
        let group = DrainGroup {
            now_us: 90,
            price: 2.5,
            group: 1,
            gpus: 2,
            min_replicas: 1,
            max_replicas: 9,
            replicas: 2,
            ..DrainGroup::default()
        };
        (policy.drain(&group, &[active(0, 7), active(1, 3), starts]), incidents)
    }

    fn placed(source: &str) -> (Option<usize>, Incidents) {
        let (mut policy, incidents) = policy(Kind::Placement, source);
        let node = |node, free_gpus, ready_us| Node {
            ready_us,
            pool: 1,
            node,
            gpus: 8,
            free_gpus,
            replicas: 3,
            group_replicas: 1,
            ..Node::default()
        };
        let nodes = [node(4, 8, 200), node(5, 2, 0), node(6, 4, 0)];
        let replica =
            StartingReplica { now_us: 90, created_us: 40, id: 3, group: 1, gpus: 2, ..StartingReplica::default() };
        (policy.choose_node(&replica, &nodes), incidents)
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
