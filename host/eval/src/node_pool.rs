//! Node pools: the GPUs that replicas may have, `--node-pool name=a,hardware=H100,gpus-per-node=8,max=4`.

use std::fmt::{self, Display};

use blis_config::{Deployment, same_hardware};
use blis_diag::name_hint;
use blis_sim::units::Micros;

use crate::duration::{or_zero, time_text};
use crate::entries::entries;
use crate::spec::parse::{above_0, instances, instances_or_zero, parallelism};

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

/// Nodes with GPUs: `name=a,hardware=H100,gpus-per-node=8,min=0,max=4,provisioning=5m,price=20`.
pub(crate) fn node_pool(text: &str) -> Result<NodePoolSettings, String> {
    let mut pool = NodePoolSettings { gpus_per_node: GPUS_PER_NODE, ..NodePoolSettings::default() };
    entries(text, "a setting of the node pool and its value, like name=a", |name, value| {
        set_node_pool(&mut pool, name, value)
    })?;
    if pool.name.is_empty() {
        return Err("`name` is missing: messages and results name the pool by it".to_owned());
    }
    if pool.max == 0 {
        return Err("`max` is missing: the most nodes of the pool, as max=4".to_owned());
    }
    Ok(pool)
}

/// Sets `name` of `pool`.
///
/// # Errors
/// What the value must be, or which settings there are.
pub(crate) fn set_node_pool(pool: &mut NodePoolSettings, name: &str, value: &str) -> Result<(), String> {
    const KEYS: [&str; 7] = ["name", "hardware", "gpus-per-node", "min", "max", "provisioning", "price"];
    let message = |message: String| format!("`{name}` {message}");
    match name {
        "name" => pool.name = value.to_owned(),
        "hardware" => pool.hardware = Some(value.to_owned()),
        "gpus-per-node" => pool.gpus_per_node = parallelism(value).map_err(message)?,
        "min" => pool.min = instances_or_zero(value).map_err(message)?,
        "max" => pool.max = instances(value).map_err(message)?,
        "provisioning" => pool.provisioning = or_zero(value).map_err(message)?,
        "price" => pool.price = Some(above_0(value).map_err(message)?),
        _ => return Err(format!("there is no setting `{name}` of a node pool: {}", name_hint(name, &KEYS))),
    }
    Ok(())
}

/// As the flag has it.
impl Display for NodePoolSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, hardware, gpus_per_node, min, max, provisioning, price } = self;
        write!(f, "name={name}")?;
        hardware.iter().try_for_each(|hardware| write!(f, ",hardware={hardware}"))?;
        write!(f, ",gpus-per-node={gpus_per_node},min={min},max={max},provisioning={}", time_text(*provisioning))?;
        price.iter().try_for_each(|price| write!(f, ",price={price}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_pools_come_back() {
        for text in [
            "name=a,max=4",
            "name=cheap,hardware=H100,gpus-per-node=4,min=1,max=2,provisioning=5m30s,price=12.5",
            "max=1,name=b,provisioning=0",
        ] {
            let parsed = node_pool(text).expect(text);
            assert_eq!(node_pool(&parsed.to_string()), Ok(parsed), "{text}");
        }
        assert_eq!(node_pool("name=a,max=4").map(|pool| (pool.gpus_per_node, pool.min)), Ok((8, 0)));
        for text in [
            "",
            "name=a",
            "max=4",
            "name=,max=4",
            "name=a,max=0",
            "name=a,max=4,max=5",
            "name=a,max=4,gpus-per-node=0",
            "name=a,max=4,price=0",
            "name=a,max=4,provisioning=300",
            "name=a,max=4,gpus=8",
        ] {
            assert!(node_pool(text).is_err(), "{text}");
        }
    }
}
