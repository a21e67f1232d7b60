//! The node pools of an experiment, and which groups may use them.

use blis_config::Deployment;
use blis_sim::cluster::NodePool;

use crate::error::RunError;
use crate::node_pool::NodePoolSettings;
use crate::spec::{ExperimentSpec, ParityName};

/// The pools of the simulation, and for each of the groups, given by their deployments, the indices of the pools in which its
/// replicas may be.
///
/// # Errors
/// A group with replicas that fit into no pool, and a pool without a group.
pub(crate) fn pools(
    spec: &ExperimentSpec,
    groups: &[&Deployment],
) -> Result<(Vec<NodePool>, Vec<Vec<usize>>), RunError> {
    let settings = spec.node_pool.as_deref().unwrap_or_default();
    let Some(first) = groups.first().filter(|_| !settings.is_empty()) else {
        return Ok((Vec::new(), vec![Vec::new(); groups.len()]));
    };
    let allowed = |group: &&Deployment| -> Result<Vec<usize>, RunError> {
        let of_gpu = settings.iter().enumerate().filter(|(_, pool)| pool.fits(group, first));
        let gpus = group.gpus();
        let allowed: Vec<usize> = of_gpu.filter(|(_, pool)| pool.has_room(gpus)).map(|(index, _)| index).collect();
        if allowed.is_empty() {
            return Err(without_room(spec, settings, group, first));
        }
        Ok(allowed)
    };
    let allowed: Vec<Vec<usize>> = groups.iter().map(allowed).collect::<Result<_, _>>()?;
    if let Some(index) = (0..settings.len()).find(|index| !allowed.iter().flatten().any(|pool| pool == index)) {
        let NodePoolSettings { name, .. } = &settings[index];
        let used: Vec<&str> = groups.iter().map(|group| group.hardware.as_str()).collect();
        let what = format!("`{name}` is used by no group");
        return Err(spec.misplaced_item(
            "node-pool",
            index,
            &what,
            &format!(
                "groups run on {}: correct `hardware`, `gpus-per-node` or `max`, or leave the pool out",
                used.join(", ")
            ),
        ));
    }
    let empty_delay = spec.node_idle();
    let pool = |NodePoolSettings { gpus_per_node, min, max, provisioning, price, .. }: &NodePoolSettings| NodePool {
        gpus: *gpus_per_node,
        min: *min,
        max: *max,
        provisioning: *provisioning,
        empty_delay,
        price: *price,
    };
    Ok((settings.iter().map(pool).collect(), allowed))
}

/// The error about a group with replicas that have room in no pool.
fn without_room(
    spec: &ExperimentSpec,
    settings: &[NodePoolSettings],
    group: &Deployment,
    first: &Deployment,
) -> RunError {
    let (gpus, hardware) = (group.gpus(), &group.hardware);
    let what = format!("has no room for a replica of {} on {gpus} × {hardware}", group.model);
    let of_gpu: Vec<String> = settings
        .iter()
        .filter(|pool| pool.fits(group, first))
        .map(|pool| format!("`{}` has {} × {} GPUs at most", pool.name, pool.max, pool.gpus_per_node))
        .collect();
    let hint = match of_gpu.is_empty() {
        true => format!("no pool has nodes with {hardware}: add one"),
        false => format!("{}: raise `max`, or lower the parallelism", of_gpu.join(", ")),
    };
    spec.misplaced("node-pool", &what, &hint)
}

/// Refuses node pools that contradict each other or other settings.
///
/// # Errors
/// The first contradiction.
pub(crate) fn check(spec: &ExperimentSpec) -> Result<(), RunError> {
    let settings = spec.node_pool.as_deref().unwrap_or_default();
    for (index, pool) in settings.iter().enumerate() {
        let wrong = |what: String, hint: &str| Err(spec.misplaced_item("node-pool", index, &what, hint));
        let NodePoolSettings { name, min, max, price, .. } = pool;
        if min > max {
            return wrong(format!("`{name}` has {min} nodes at least, but {max} at most"), "correct `min` or `max`");
        }
        if spec.parity == Some(ParityName::Blis) && min != max {
            let what = format!("`{name}` has {min} to {max} nodes, which cannot be used with `--parity blis`");
            return wrong(what, "BLIS adds no node during a run: set `min` and `max` to the same number");
        }
        if settings[..index].iter().any(|other| other.name == *name) {
            return wrong(format!("`{name}` is defined twice"), "give one of them another name");
        }
        if price.is_some() != settings[0].price.is_some() {
            let what = format!("`{name}` and `{}`: one has a price and the other has none", settings[0].name);
            return wrong(what, "nodes cost by the hour if every pool has a price: set all of them, or none");
        }
        if price.is_some() && spec.prices.is_some() {
            let hint = "a node has the price of its GPUs in its own: leave out one of them";
            return wrong(format!("`{name}` has a price, and `--prices` has those of GPUs"), hint);
        }
    }
    Ok(())
}
