//! The built-in autoscaler `queue` as a component: requests in the gateway's queue, and running requests, by the formula of
//! Kubernetes' HorizontalPodAutoscaler.
//!
//! Runs with it have the results of the built-in, byte for byte. `examples/built-ins/queue.rhai` is the same as a script.

use blis_sdk::{Description, Group, Policy, Scaling, Setup};
use serde::{Deserialize, Serialize};

/// The parameters, as of the built-in.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct QueueScaler {
    queued: f64,
    running: f64,
    tolerance: f64,
}

impl Policy for QueueScaler {
    type Signals = ();

    fn describe() -> Description {
        Description::new("rust-queue-scaler")
            .version(env!("CARGO_PKG_VERSION"))
            .about("The autoscaler queue: requests in the gateway's queue, and running requests.")
            .parameter("queued", 1.0, 0.001..=1e6, "Queued requests for one replica")
            .parameter("running", 16.0, 0.001..=1e6, "Running requests for one replica")
            .parameter(
                "tolerance",
                0.1,
                0.0..=10.0,
                "Share by which a signal may differ from its target without a change",
            )
    }

    fn new(setup: &Setup) -> Result<Self, String> {
        Ok(Self {
            queued: setup.parameter("queued"),
            running: setup.parameter("running"),
            tolerance: setup.parameter("tolerance"),
        })
    }
}

impl Scaling for QueueScaler {
    fn scale(&mut self, _: u64, groups: &[Group], _: &[Group], replicas: &mut Vec<f64>) {
        replicas.extend(groups.iter().map(|group| {
            let by_queued = self.desired(group.queued, self.queued, group.replicas);
            by_queued.max(self.desired(group.batch_size, self.running, group.replicas))
        }));
    }
}

impl QueueScaler {
    /// The replicas for `total` requests of which one replica has `target`: `current` ones if that is within the tolerance.
    /// Numbers cross to the HorizontalPodAutoscaler as thousandths.
    fn desired(self, total: u32, target: f64, current: u32) -> f64 {
        let (total, target) = (f64::from(total) * 1000.0, (target * 1000.0).round());
        let ratio = total / (target * f64::from(current));
        if current > 0 && 1.0 - self.tolerance <= ratio && ratio <= 1.0 + self.tolerance {
            f64::from(current)
        } else {
            (total / target).ceil()
        }
    }
}

blis_sdk::export_policy!(QueueScaler: Scaling);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_larger_number_counts() {
        let mut policy = QueueScaler { queued: 1.0, running: 16.0, tolerance: 0.1 };
        let group = |queued, batch_size| Group { queued, batch_size, replicas: 2, ..Group::default() };
        let groups = [group(0, 48), group(7, 48), group(0, 0), group(0, 35), group(0, 36)];
        let mut replicas = Vec::new();
        policy.scale(0, &groups, &[], &mut replicas);
        assert_eq!(replicas, [3.0, 7.0, 0.0, 2.0, 3.0], "35 of 32 are within a tenth, 36 are not");
    }
}
