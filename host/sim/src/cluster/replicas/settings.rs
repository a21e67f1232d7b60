//! The groups of a service with instances that come and go: what a replica is, how many there are, and how long one takes
//! to start.

use super::control::ScalingLoop;
use rand::RngExt as _;

use super::nodes::{NodePool, Nodes, Placement};
use crate::instance::InstanceConfig;
use crate::request::Name;
use crate::rng::{Generator, Stream};
use crate::scaling::ReplicaLimits;
use crate::units::Micros;

/// The groups of replicas of a service, and what changes their number.
#[derive(Clone, Debug)]
pub struct ReplicaSettings {
    /// The groups. Requests for a model go to the replicas of all groups that serve it.
    pub groups: Vec<ReplicaGroup>,
    /// The nodes; empty if there are always enough GPUs.
    pub pools: Vec<NodePool>,
    /// Changes at fixed times, in order of time.
    pub scheduled: Vec<ScheduledReplicas>,
    /// The policy that sets the numbers of replicas; `None` for none.
    pub scaling: Option<ScalingLoop>,
    /// The random numbers of starts, by replica.
    pub starts: Stream,
}

/// Replicas with the same configuration.
#[derive(Clone, Debug)]
pub struct ReplicaGroup {
    /// The configuration of each replica, apart from the index.
    pub instance: InstanceConfig,
    /// Names of the model that it serves, as of `ClusterConfig::serves`. A request
    /// that names no model may go to any group.
    pub serves: Vec<Name>,
    /// Replicas that are active from the start on.
    pub initial: u32,
    /// Fewest and most replicas.
    pub limits: ReplicaLimits,
    /// GPUs of a replica, ≥ 1.
    pub gpus: u32,
    /// Indices of the node pools in which a replica may be, the preferred one first; not read without pools.
    pub pools: Vec<usize>,
    /// Price of a GPU, dollars per hour; `None` without a price list.
    pub price: Option<f64>,
    /// How long a replica takes to start.
    pub start: StartTimes,
    /// What is ready before a replica starts.
    pub mode: StartMode,
    /// Which replica is removed first.
    pub drain: DrainChoice,
}

/// The number of replicas of a group from a time on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScheduledReplicas {
    /// Time of the change.
    pub at: Micros,
    /// Index of the group.
    pub group: usize,
    /// Number of replicas, without those that drain; clamped to the limits of the group.
    pub replicas: u32,
}

/// The phases of a start, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartTimes {
    /// Image, process, imports.
    pub process: PhaseTime,
    /// Loading the weights: their size over the bandwidth.
    pub weights: PhaseTime,
    /// Compilation of the model (`torch.compile`).
    pub compile: PhaseTime,
    /// Capture of CUDA graphs and the like: the state [`ReplicaState::Warming`](crate::replica::ReplicaState).
    pub warm_up: PhaseTime,
    /// Instead of all of these, for a replica that sleeps ([`StartMode::Hot`]).
    pub wake: PhaseTime,
}

/// How long a phase takes: a normal distribution, of which negative times count as 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PhaseTime {
    /// Mean.
    pub mean: Micros,
    /// Standard deviation; 0 if the phase always takes the mean.
    pub deviation: Micros,
}

/// What is ready before a replica starts (llm-d's Fast Model Actuation).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartMode {
    /// Nothing: all phases.
    Cold,
    /// The process runs and has imported its modules (a launcher): all phases but the first.
    Warm,
    /// So many replicas sleep, with their weights in host memory and without a GPU. Those that drain go to sleep if fewer
    /// do. Further ones start cold.
    Hot {
        /// Number of replicas that sleep at the start, and at most.
        pool: u32,
    },
}

/// Which of the active replicas of a group is removed first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DrainChoice {
    /// The one that was active for the shortest time (Kubernetes' ReplicaSet controller).
    #[default]
    Newest,
    /// The one with the fewest requests waiting and running; the newest of several.
    Emptiest,
}

impl Default for StartTimes {
    /// Qwen3-32B, TP1, H100 with vLLM: 90.7 s from process start to ready, of which the capture of CUDA graphs takes
    /// 11.4 s (llm-d blog of 26 August 2026). A compile cache saves 35 s (135 s → 100 s with TP2, llm-d's SLO-aware guide),
    /// and a rank reads its weights from NFS in 30.3 s (ModelExpress); the rest is the process. 3 s to wake: "seconds" in
    /// llm-d's Fast Model Actuation.
    fn default() -> Self {
        Self {
            process: PhaseTime::constant(Micros(14_000_000)),
            weights: PhaseTime::constant(Micros(30_300_000)),
            compile: PhaseTime::constant(Micros(35_000_000)),
            warm_up: PhaseTime::constant(Micros(11_400_000)),
            wake: PhaseTime::constant(Micros(3_000_000)),
        }
    }
}

impl StartTimes {
    /// The times in the states loading and warming of a replica that sleeps or not, by `time` of each phase.
    fn phases(&self, mode: StartMode, sleeps: bool, mut time: impl FnMut(PhaseTime) -> Micros) -> (Micros, Micros) {
        let Self { process, weights, compile, warm_up, wake } = *self;
        let [process, weights, compile, warm_up, wake] = [process, weights, compile, warm_up, wake].map(&mut time);
        match mode {
            _ if sleeps => (wake, Micros::ZERO),
            StartMode::Warm => (weights.saturating_add(compile), warm_up),
            StartMode::Cold | StartMode::Hot { .. } => {
                (process.saturating_add(weights).saturating_add(compile), warm_up)
            }
        }
    }

    /// The times in the states loading and warming, drawn from `generator`.
    pub(super) fn draw(&self, mode: StartMode, sleeps: bool, generator: &mut Generator) -> (Micros, Micros) {
        self.phases(mode, sleeps, |phase| phase.draw(generator))
    }

    /// The mean of both together.
    pub(super) fn mean(&self, mode: StartMode, sleeps: bool) -> Micros {
        let (loading, warm_up) = self.phases(mode, sleeps, |phase| phase.mean);
        loading.saturating_add(warm_up)
    }
}

impl PhaseTime {
    /// Always the same time.
    #[must_use]
    pub const fn constant(mean: Micros) -> Self {
        Self { mean, deviation: Micros::ZERO }
    }

    /// A time of the distribution. The same numbers are drawn whatever the distribution is.
    pub(super) fn draw(self, generator: &mut Generator) -> Micros {
        let (radius, angle): (f64, f64) = (generator.random(), generator.random());
        if self.deviation == Micros::ZERO {
            return self.mean;
        }
        // Box and Muller, 1958; the first number is below 1.
        let normal = libm::sqrt(-2.0 * libm::log(1.0 - radius)) * libm::cos(std::f64::consts::TAU * angle);
        Micros::from_f64(libm::round(self.mean.0 as f64 + normal * self.deviation.0 as f64))
    }
}

impl ReplicaGroup {
    /// Whether a request for `model` may go to its replicas.
    pub(super) fn serves(&self, model: Name) -> bool {
        model == Name::NONE || self.serves.contains(&model)
    }
}

impl ReplicaSettings {
    /// The nodes with the initial replicas, and where these are, in the order of groups.
    ///
    /// # Errors
    /// A message if a setting is out of range, or the nodes have no room for the initial replicas.
    pub(super) fn initial_nodes(&self) -> Result<(Nodes, Vec<Placement>), String> {
        self.check_ranges()?;
        let mut nodes = Nodes::new(self.pools.clone());
        let mut placements = Vec::new();
        for (index, group) in self.groups.iter().enumerate() {
            for replica in 0..group.initial {
                let placement = if self.pools.is_empty() {
                    Some(Vec::new())
                } else {
                    nodes.allocate_initial(group.gpus, &group.pools)
                };
                placements.push(placement.ok_or_else(|| {
                    format!(
                        "the nodes have room for {replica} of the {} initial replicas of group {index}",
                        group.initial
                    )
                })?);
            }
        }
        Ok((nodes, placements))
    }

    /// Checks that a service can have these replicas.
    ///
    /// # Errors
    /// A message that names the group or pool, and the setting, that is out of range.
    pub fn check(&self) -> Result<(), String> {
        self.initial_nodes().map(|_| ())
    }

    fn check_ranges(&self) -> Result<(), String> {
        for (index, NodePool { gpus, min, max, .. }) in self.pools.iter().enumerate() {
            if *gpus == 0 || *max == 0 || min > max {
                return Err(format!(
                    "node pool {index} has {min} to {max} nodes with {gpus} GPUs: at least one GPU, and no fewer than 1 and \
                     {min} nodes at most"
                ));
            }
        }
        // The service hashes prompts in blocks of one size.
        let sizes = self.groups.iter().map(|group| group.instance.block_size);
        if let Some((index, (one, other))) = sizes.clone().zip(sizes.skip(1)).enumerate().find(|(_, (a, b))| a != b) {
            return Err(format!(
                "KV blocks of group {index} have {one} tokens and those of group {} {other}: one size",
                index + 1
            ));
        }
        for (index, group) in self.groups.iter().enumerate() {
            let ReplicaGroup { limits: ReplicaLimits { min, max }, initial, gpus, pools, .. } = group;
            if *max == 0 || !(min..=max).contains(&initial) {
                return Err(format!(
                    "group {index} has {initial} replicas at the start and {min} to {max} later: the first is between the others"
                ));
            }
            if *gpus == 0 {
                return Err(format!("a replica of group {index} has no GPU: at least 1"));
            }
            if let Some(pool) = pools.iter().find(|&&pool| pool >= self.pools.len() && !self.pools.is_empty()) {
                return Err(format!("group {index} uses node pool {pool}, but there are {}", self.pools.len()));
            }
        }
        if !self.scheduled.is_sorted_by_key(|change| change.at) {
            return Err("changes of the number of replicas are in order of time".to_owned());
        }
        if let Some(change) = self.scheduled.iter().find(|change| change.group >= self.groups.len()) {
            return Err(format!("a change is of group {}, but there are {}", change.group, self.groups.len()));
        }
        match &self.scaling {
            Some(scaling) if scaling.sync == Micros::ZERO || scaling.scrape == Micros::ZERO => {
                Err("the sync and scrape intervals of scaling are above 0".to_owned())
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_start_takes_as_long_as_published() {
        let start = StartTimes::default();
        let phases = |mode, sleeps| start.draw(mode, sleeps, &mut Stream::new(1, "starts").at(0));
        let (loading, warming) = phases(StartMode::Cold, false);
        assert_eq!((loading + warming, warming), (Micros(90_700_000), Micros(11_400_000)));
        assert_eq!(start.mean(StartMode::Cold, false), Micros(90_700_000));
        assert_eq!(phases(StartMode::Warm, false).0, Micros(65_300_000), "without the process");
        assert_eq!(phases(StartMode::Hot { pool: 1 }, false), (loading, warming), "nothing sleeps");
        assert_eq!(phases(StartMode::Hot { pool: 1 }, true), (Micros(3_000_000), Micros::ZERO));
    }

    #[test]
    fn random_times_have_their_mean_and_deviation_and_depend_on_the_replica_alone() {
        let phase = PhaseTime { mean: Micros(40_000_000), deviation: Micros(4_000_000) };
        let start = StartTimes { compile: phase, ..StartTimes::default() };
        let stream = Stream::new(7, "starts");
        let draw = |replica| start.draw(StartMode::Cold, false, &mut stream.at(replica));
        let times: Vec<f64> = (0..10_000).map(|replica| draw(replica).0.as_secs_f64() - 44.3).collect();
        let mean = times.iter().sum::<f64>() / 1e4;
        let deviation = (times.iter().map(|time| (time - mean).powi(2)).sum::<f64>() / 1e4).sqrt();
        // Three standard errors: 3 · 4 / √10 000, and 3 · 4 / √20 000.
        assert!((mean - 40.0).abs() < 0.12 && (deviation - 4.0).abs() < 0.085, "{mean} {deviation}");
        assert_eq!(draw(3), draw(3));
        assert_eq!(draw(3).1, Micros(11_400_000), "other phases are as they were");
        let wide = PhaseTime { mean: Micros(1), deviation: Micros(1_000_000) };
        assert!((0..100).any(|replica| wide.draw(&mut stream.at(replica)) == Micros::ZERO), "never negative");
    }
}
