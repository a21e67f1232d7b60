//! Prefix-cache hits weighed against load: the default profile of the built-in `weighted`
//! (`precise-prefix-cache:2,queue-depth:1,kv-utilization:1`), written as a plugin.
//!
//! Three scores from 0 to 1, higher being better, each with a weight:
//!
//! * *prefix*: leading blocks of the prompt in the instance's cache, scaled to the range over the instances: the most
//!   1, the fewest 0, all 1 if they are equal;
//! * *queue*: requests waiting, scaled the same way, the fewest 1;
//! * *kv*: the unused share of the KV blocks, not scaled.
//!
//! The first two depend on differences only, so a single cached block may outweigh a long queue; the third is absolute.
//! To try other weights, use `--routing-policy rust-weighted-prefix` with `prefix_weight`, `queue_weight` and
//! `kv_weight`.
//!
//! Every floating-point operation is that of the built-in, in its order: sums that are equal there are equal here, so
//! ties are the same and every request is routed to the same instance.

use blis_sdk::{Cluster, Description, Policy, Request, Routing, Setup, argmax};
use serde::{Deserialize, Serialize};

blis_sdk::signals! {
    /// What the three scores are computed from.
    pub struct Scored { cached_blocks, queue_depth, kv_utilization }
}

/// The weights, normalised to a sum of 1.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WeightedPrefix {
    prefix: f64,
    queue: f64,
    kv: f64,
    /// A buffer kept from call to call to avoid allocation; not part of the state.
    #[serde(skip)]
    sums: Vec<f64>,
}

impl Policy for WeightedPrefix {
    type Signals = Scored;

    fn describe() -> Description {
        Description::new("rust-weighted-prefix")
            .version(env!("CARGO_PKG_VERSION"))
            .about("Weighs cached prefixes against queues and KV use, as `weighted` does by default.")
            .scores()
            .parameter("prefix_weight", 2.0, 0.0..=1000.0, "for blocks of the prompt in the prefix cache")
            .parameter("queue_weight", 1.0, 0.0..=1000.0, "for a short wait queue")
            .parameter("kv_weight", 1.0, 0.0..=1000.0, "for unused KV blocks")
    }

    fn new(setup: &Setup) -> Result<Self, String> {
        let weights = ["prefix_weight", "queue_weight", "kv_weight"].map(|name| setup.parameter(name));
        let sum: f64 = weights.iter().sum();
        if sum <= 0.0 {
            return Err("one of prefix_weight, queue_weight and kv_weight must be above 0".to_owned());
        }
        let [prefix, queue, kv] = weights.map(|weight| weight / sum);
        Ok(Self { prefix, queue, kv, sums: Vec::new() })
    }
}

impl Routing for WeightedPrefix {
    fn route(&mut self, _: &Request, cluster: &Cluster<'_, Scored>) -> usize {
        let mut sums = std::mem::take(&mut self.sums);
        sums.clear();
        self.add_up(cluster.instances, &mut sums);
        let index = argmax(sums.iter().copied());
        self.sums = sums;
        index
    }

    fn scores(&self, _: &Request, cluster: &Cluster<'_, Scored>, scores: &mut Vec<f64>) {
        self.add_up(cluster.instances, scores);
    }
}

impl WeightedPrefix {
    fn add_up(&self, instances: &[Scored], sums: &mut Vec<f64>) {
        let cached = ColumnRange::over(instances.iter().map(|instance| instance.cached_blocks));
        let queue = ColumnRange::over(instances.iter().map(|instance| instance.queue_depth));
        sums.extend(instances.iter().map(|instance| {
            let mut sum = 0.0;
            sum += self.prefix * cached.above_least(instance.cached_blocks);
            sum += self.queue * queue.below_most(instance.queue_depth);
            sum += self.kv * within_1(1.0 - instance.kv_utilization);
            sum
        }));
    }
}

/// The smallest and the largest value of a column; one apart if all are equal, so that no division by 0 can occur.
#[derive(Clone, Copy)]
struct ColumnRange {
    least: f64,
    most: f64,
    width: f64,
}

impl ColumnRange {
    fn over(column: impl Iterator<Item = f64>) -> Self {
        let (least, most) = column.fold((f64::INFINITY, 0.0), |(least, most): (f64, f64), x| {
            (if x < least { x } else { least }, if x > most { x } else { most })
        });
        if least < most {
            return Self { least, most, width: most - least };
        }
        Self { least: least - 1.0, most: most + 1.0, width: 1.0 }
    }

    /// 0 for the smallest, 1 for the largest; 1 if all are equal.
    fn above_least(self, x: f64) -> f64 {
        (x - self.least) / self.width
    }

    /// 1 for the smallest, 0 for the largest; 1 if all are equal.
    fn below_most(self, x: f64) -> f64 {
        (self.most - x) / self.width
    }
}

fn within_1(score: f64) -> f64 {
    let below = if 1.0 < score { 1.0 } else { score };
    if 0.0 > below { 0.0 } else { below }
}

blis_sdk::export_policy!(WeightedPrefix: Routing);

#[cfg(test)]
mod tests {
    use blis_sdk::testing::{Host, with};
    use blis_sdk::{Ages, Kind};

    use super::*;

    fn made(setup: impl FnOnce(Setup) -> Setup) -> Result<WeightedPrefix, String> {
        WeightedPrefix::new(&setup(Setup::of(Kind::Routing, &WeightedPrefix::describe())))
    }

    fn instance(cached_blocks: u32, queue_depth: u32, kv_utilization: f64) -> Scored {
        Scored { cached_blocks: cached_blocks.into(), queue_depth: queue_depth.into(), kv_utilization }
    }

    #[test]
    fn scores_follow_the_formula() {
        let instances = [instance(8, 4, 0.5), instance(0, 0, 0.0), instance(2, 1, 1.0)];
        let cluster = Cluster { ages: Ages::default(), instances: &instances };
        let mut policy = made(|setup| setup).unwrap();
        let mut scores = Vec::new();
        policy.scores(&Request::default(), &cluster, &mut scores);
        // prefix/2 + queue/4 + kv/4
        assert_eq!(scores, [0.5 + 0.0 + 0.125, 0.0 + 0.25 + 0.25, 0.125 + 0.1875 + 0.0]);
        assert_eq!(policy.route(&Request::default(), &cluster), 0);
        let mut queue_only = made(|s| s.with("prefix_weight", 0.0).with("kv_weight", 0.0)).unwrap();
        assert_eq!(queue_only.route(&Request::default(), &cluster), 1);
    }

    #[test]
    fn equal_instances_tie() {
        let instances = [instance(3, 3, 0.1); 4];
        let cluster = Cluster { ages: Ages::default(), instances: &instances };
        let host = Host { picks: vec![3], ..Host::default() };
        let (index, host) = with(host, || made(|setup| setup).unwrap().route(&Request::default(), &cluster));
        assert_eq!((index, host.pick_sizes), (3, vec![4]));
    }

    #[test]
    fn no_weight_at_all_is_refused() {
        let none = made(|s| s.with("prefix_weight", 0.0).with("queue_weight", 0.0).with("kv_weight", 0.0));
        assert_eq!(none.unwrap_err(), "one of prefix_weight, queue_weight and kv_weight must be above 0");
    }
}
