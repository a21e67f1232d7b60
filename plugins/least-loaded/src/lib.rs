//! The least loaded instance: the built-in policy `least-loaded`, written as a plugin.
//!
//! Load is the number of requests waiting, running and in flight from the router. The last count is never stale, so a
//! burst between two refreshes of the other signals still spreads over the instances. Ties are broken by the host's
//! random pick: always taking the first would load instances unevenly.
//!
//! The load index (`loads.rs`) only saves time: the next decision of a new state builds it again, so none of it is
//! saved. The same crate becomes a component (`policies/rust-least-loaded.wasm`) and a native library (`cargo build -p
//! least-loaded --profile native`).

mod loads;

use blis_sdk::{Cluster, Description, Instance, Policy, Reads, Request, Routing, Setup, argmin};
use loads::{CHUNK, Loads};
use serde::{Deserialize, Serialize};

/// The policy has no state that a decision depends on.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct LeastLoaded {
    #[serde(skip)]
    loads: Loads,
}

impl Policy for LeastLoaded {
    fn describe() -> Description {
        Description::new("rust-least-loaded")
            .version(env!("CARGO_PKG_VERSION"))
            .about("The instance with the fewest requests waiting, running and in flight.")
            .reads(Reads::LOAD | Reads::IN_FLIGHT)
    }

    fn new(_: &Setup) -> Result<Self, String> {
        Ok(Self::default())
    }
}

impl Routing for LeastLoaded {
    fn route(&mut self, _: &Request, cluster: &Cluster<'_>) -> usize {
        let Cluster { instances, .. } = *cluster;
        // For a few instances, reading all is as fast as following the changes.
        let followed = instances.len() > CHUNK && blis_sdk::changed(|places| self.loads.follow(instances, places));
        if followed { self.loads.least(blis_sdk::pick) } else { argmin(instances.iter().map(Instance::effective_load)) }
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
        let mut policy = LeastLoaded::default();
        let mut route = || policy.route(&Request::default(), &cluster);
        let (places, host) = with(host, || [route(), route()]);
        assert_eq!((places, host.asked), ([1, 2], vec![2, 2]));
    }

    #[test]
    fn it_looks_at_what_changed() {
        let mut instances = [Instance { in_flight: 5, ..Instance::default() }; 20];
        instances[19].in_flight = 4;
        let mut policy = LeastLoaded::default();
        let mut route = |instances: &[Instance], changed: Option<Vec<u32>>| {
            let cluster = Cluster { ages: Ages::default(), instances };
            with(Host { changed, ..Host::default() }, || policy.route(&Request::default(), &cluster)).0
        };
        assert_eq!(route(&instances, None), 19);
        assert_eq!(route(&instances, Some(vec![])), 19, "from here on it knows");
        (instances[3].in_flight, instances[19].in_flight) = (3, 9);
        assert_eq!(route(&instances, Some(vec![])), 19, "nobody told it");
        assert_eq!(route(&instances, Some(vec![19, 3, 19])), 3);
        instances[3].in_flight = 6;
        instances[0].in_flight = 2;
        assert_eq!(route(&instances[..19], Some(vec![])), 0, "other instances: what was known is of no use");
        assert_eq!(route(&instances[1..6], Some(vec![])), 0, "few are looked at");
    }
}
