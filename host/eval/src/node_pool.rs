//! Node pools: the GPUs that replicas may have, `--node-pool name=a,hardware=H100,gpus-per-node=8,max=4`.

use blis_config::{Deployment, same_hardware};
use blis_sim::units::Micros;

/// Nodes of one kind.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodePoolSettings {
    /// Name, for messages and results.
    pub name: String,
    /// GPU of its nodes, as of `--hardware`; `None` for that of the first group.
    pub hardware: Option<String>,
    /// GPUs of a node, ≥ 1.
    pub gpus_per_node: u32,
    /// Nodes that are always there.
    pub min: u32,
    /// Largest number of nodes, ≥ 1.
    pub max: u32,
    /// Time from the request of a node until it can be used.
    pub provisioning: Micros,
    /// Price of a node, dollars per hour.
    pub price: Option<f64>,
}

/// GPUs of a node, unless a setting says otherwise: as of NVIDIA's HGX boards.
pub const GPUS_PER_NODE: u32 = 8;

impl NodePoolSettings {
    /// Whether its nodes have the GPU of `deployment`, where `first` is that of the first group.
    pub(crate) fn fits(&self, deployment: &Deployment, first: &Deployment) -> bool {
        match &self.hardware {
            Some(hardware) => same_hardware(&deployment.hardware, hardware),
            None => deployment.hardware == first.hardware,
        }
    }

    /// Whether a replica with so many `gpus` has room in it: on a node, or on as many nodes as it needs.
    pub(crate) fn has_room(&self, gpus: u32) -> bool {
        gpus.div_ceil(self.gpus_per_node) <= self.max
    }
}
