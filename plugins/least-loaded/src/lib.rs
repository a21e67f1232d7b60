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

use blis_sdk::{Cluster, Description, Policy, Request, Routing, Setup, argmin};
use loads::{CHUNK, LoadIndex};
use serde::{Deserialize, Serialize};

blis_sdk::signals! {
    /// The load of an instance: requests waiting, running, and in flight from the router.
    pub struct Load { queue_depth, batch_size, in_flight }
}

impl Load {
    /// All requests, added as in the built-in policies: a request on the instance counts twice, once in the current
    /// count of the router and once in the stale signals.
    fn requests(&self) -> f64 {
        self.queue_depth + self.batch_size + self.in_flight
    }
}

/// The policy has no state that a decision depends on.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RustLeastLoaded {
    #[serde(skip)]
    loads: LoadIndex,
}

impl Policy for RustLeastLoaded {
    type Signals = Load;

    fn describe() -> Description {
        Description::new("rust-least-loaded")
            .version(env!("CARGO_PKG_VERSION"))
            .about("The instance with the fewest requests waiting, running and in flight.")
    }

    fn new(_: &Setup) -> Result<Self, String> {
        Ok(Self::default())
    }
}

impl Routing for RustLeastLoaded {
    fn route(&mut self, _: &Request, cluster: &Cluster<'_, Load>) -> usize {
        let Cluster { instances, .. } = *cluster;
        // For a few instances, reading all is as fast as following the changes.
        let followed = instances.len() > CHUNK && blis_sdk::changed(|indices| self.loads.follow(instances, indices));
        if followed { self.loads.least(blis_sdk::pick) } else { argmin(instances.iter().map(Load::requests)) }
    }
}

blis_sdk::export_policy!(RustLeastLoaded: Routing);

#[cfg(test)]
mod tests {
    use blis_sdk::Ages;
    use blis_sdk::testing::{Host, with};

    use super::*;

    #[test]
    fn the_least_loaded_with_ties_picked() {
        let loads = [[2, 0, 3], [0, 2, 2], [0, 0, 4], [3, 3, 0]]; // 5, 4, 4, 6
        let instance = |load: [u32; 3]| {
            let [queue_depth, batch_size, in_flight] = load.map(f64::from);
            Load { queue_depth, batch_size, in_flight }
        };
        let instances = loads.map(instance);
        let cluster = Cluster { ages: Ages::default(), instances: &instances };
        let host = Host { picks: vec![0, 1], ..Host::default() };
        let mut policy = RustLeastLoaded::default();
        let mut route = || policy.route(&Request::default(), &cluster);
        let (indices, host) = with(host, || [route(), route()]);
        assert_eq!((indices, host.pick_sizes), ([1, 2], vec![2, 2]));
    }

    #[test]
    fn it_reads_what_changed() {
        let mut instances = [Load { in_flight: 5.0, ..Load::default() }; 20];
        instances[19].in_flight = 4.0;
        let mut policy = RustLeastLoaded::default();
        let mut route = |instances: &[Load], changed: Option<Vec<u32>>| {
            let cluster = Cluster { ages: Ages::default(), instances };
            with(Host { changed, ..Host::default() }, || policy.route(&Request::default(), &cluster)).0
        };
        assert_eq!(route(&instances, None), 19);
        assert_eq!(route(&instances, Some(vec![])), 19, "nothing changed");
        (instances[3].in_flight, instances[19].in_flight) = (3.0, 9.0);
        assert_eq!(route(&instances, Some(vec![])), 19, "the change was not reported");
        assert_eq!(route(&instances, Some(vec![19, 3, 19])), 3);
        instances[3].in_flight = 6.0;
        instances[0].in_flight = 2.0;
        assert_eq!(route(&instances[..19], Some(vec![])), 0, "other instances: the index is built again");
        assert_eq!(route(&instances[1..6], Some(vec![])), 0, "few instances are all read");
    }
}
