//! Which replica goes and on which node one starts, where replicas share nodes.

use super::replicas::{at, second, steady};
use super::*;
use crate::scaling::{BestFit, DrainPolicy, EmptiestNode, FirstFit, Kubernetes, Newest, PlacementPolicy, Spread};

/// One replica of `gpus` GPUs on two nodes of 4, to which two others may come, and a request every second for 500 s.
fn sharing(gpus: u32, drain: &dyn DrainPolicy, placement: &dyn PlacementPolicy) -> (ClusterSetup, Vec<Request>) {
    let (mut setup, requests) = steady(1, 500, |group| (group.gpus, group.pools) = (gpus, vec![0]));
    let settings = setup.replicas.as_mut().expect("it has replicas");
    (settings.drain, settings.placement) = (drain.fork(), placement.fork());
    settings.pools =
        vec![NodePool { gpus: 4, min: 2, max: 4, provisioning: second(60), empty_delay: second(100), price: None }];
    (setup, requests)
}

/// The replicas, by number, that are removed at 400 s and 401 s of four, which share nodes in pairs.
fn removed(drain: &dyn DrainPolicy, placement: &dyn PlacementPolicy) -> Vec<u32> {
    let (setup, requests) = sharing(2, drain, placement);
    let log = setup.scheduled(&[at(10, 4), at(400, 3), at(401, 2)]).run(&requests);
    let drained = log.replicas.iter().filter(|event| event.state == Some(ReplicaState::Draining));
    drained.map(|event| event.replica).collect()
}

#[test]
fn kubernetes_removes_those_that_share_a_node() {
    // First fit: 0 and 1 on the first node, 2 and 3 on the second.
    assert_eq!(removed(&Newest, &FirstFit), [3, 2]);
    assert_eq!(removed(&Kubernetes, &FirstFit), [3, 1], "then one of the node that still has two");
    assert_eq!(removed(&EmptiestNode, &FirstFit), [3, 2], "the rest of the node that has one");
    // Spread: 0 and 2, 1 and 3.
    assert_eq!(removed(&Newest, &Spread), [3, 2]);
    assert_eq!(removed(&EmptiestNode, &Spread), [3, 1]);
}

#[test]
fn a_node_without_replicas_goes_sooner_if_the_emptiest_is_drained() {
    // Six replicas on three nodes, of which three go: from two nodes, or one from each.
    let [few, many] = [&EmptiestNode as &dyn DrainPolicy, &Kubernetes].map(|drain| {
        let (setup, mut requests) = sharing(2, drain, &BestFit);
        requests.push(Request::new(RequestId(500), second(2000), 64, 10));
        let log = setup.scheduled(&[at(10, 6), at(400, 3)]).run(&requests);
        log.report.expect("reported").pools[0].node_time
    });
    assert_eq!(many.saturating_sub(few).0 / 1_000_000, 2000 - 500, "one node more, from 100 s after 400 s on");
}

#[test]
fn initial_replicas_are_placed_by_the_policy() {
    // Of four GPUs a node; the replica that is removed is the newest of the node with the most replicas.
    let drained = |placement: &dyn PlacementPolicy| {
        let (mut setup, requests) = sharing(1, &EmptiestNode, placement);
        let settings = setup.replicas.as_mut().expect("it has replicas");
        settings.groups[0].initial = 3;
        let config = setup.instances[0].clone();
        setup.instances = (0..3).map(|i| InstanceConfig { index: InstanceIndex(i), ..config.clone() }).collect();
        let log = setup.scheduled(&[at(400, 2)]).run(&requests);
        log.replicas.iter().find(|event| event.state == Some(ReplicaState::Draining)).map(|event| event.replica)
    };
    assert_eq!(drained(&FirstFit), Some(2), "all are on the first node");
    assert_eq!(drained(&Spread), Some(1), "0 and 2 share a node");
}
