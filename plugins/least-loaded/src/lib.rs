//! The least loaded instance: the built-in policy `least-loaded`, written as a plugin.
//!
//! Load is what waits, what runs and what the router itself has in flight. The last is never stale, so
//! a burst between two readings of the other signals spreads over the instances all the same. Ties go
//! to any of the tied, as the host picks: always taking the first loads instances unevenly.
//!
//! This is the smallest complete policy. The same crate becomes a component
//! (`policies/rust-least-loaded.wasm`) and a native library (`cargo build -p least-loaded --profile
//! native`).

use blis_sdk::{Cluster, Description, Instance, Policy, Reads, Request, Routing, Setup, argmin};
use serde::{Deserialize, Serialize};

/// It remembers nothing.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LeastLoaded;

impl Policy for LeastLoaded {
    fn describe() -> Description {
        Description::new("rust-least-loaded")
            .version(env!("CARGO_PKG_VERSION"))
            .about("The instance with the fewest requests waiting, running and in flight.")
            .reads(Reads::LOAD | Reads::IN_FLIGHT)
    }

    fn new(_: &Setup) -> Result<Self, String> {
        Ok(Self)
    }
}

impl Routing for LeastLoaded {
    fn route(&mut self, _: &Request, cluster: &Cluster<'_>) -> usize {
        argmin(cluster.instances.iter().map(Instance::effective_load))
    }
}

blis_sdk::export_policy!(LeastLoaded: Routing);

#[cfg(test)]
mod tests {
    use blis_sdk::Ages;
    use blis_sdk::testing::{Host, with};

    use super::*;

    #[test]
    fn the_least_loaded_and_of_equals_the_picked() {
        let loads = [[2, 0, 3], [0, 2, 2], [0, 0, 4], [3, 3, 0]]; // 5, 4, 4, 6
        let instance = |[queue_depth, batch_size, in_flight]: [u32; 3]| Instance {
            queue_depth,
            batch_size,
            in_flight,
            ..Instance::default()
        };
        let instances = loads.map(instance);
        let cluster = Cluster { ages: Ages::default(), instances: &instances };
        let host = Host { picks: vec![0, 1], ..Host::default() };
        let route = || LeastLoaded.route(&Request::default(), &cluster);
        let (places, host) = with(host, || [route(), route()]);
        assert_eq!((places, host.asked), ([1, 2], vec![2, 2]));
    }
}
