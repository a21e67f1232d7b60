//! The groups of a service whose instances come and go: what a replica is, how many there are, and how long one takes
//! to start.

use crate::instance::InstanceConfig;
use crate::request::Name;
use crate::units::Micros;

/// The groups of replicas of a service, and what changes their number.
#[derive(Clone, Debug)]
pub struct ReplicaSettings {
    /// The groups. Requests for a model go to the replicas of all groups that serve it.
    pub groups: Vec<ReplicaGroup>,
    /// Changes at fixed times, in order of time.
    pub scheduled: Vec<ScheduledReplicas>,
}

/// Replicas with the same configuration.
#[derive(Clone, Debug)]
pub struct ReplicaGroup {
    /// The configuration of each replica, apart from the index.
    pub instance: InstanceConfig,
    /// Names of the model that it serves, as of [`ClusterConfig::serves`](super::super::ClusterConfig::serves). A request
    /// that names no model may go to any group.
    pub serves: Vec<Name>,
    /// Replicas that are active from the start on.
    pub initial: u32,
    /// Fewest replicas.
    pub min: u32,
    /// Most replicas, ≥ `min`.
    pub max: u32,
    /// GPUs of a replica, ≥ 1.
    pub gpus: u32,
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
    pub process: Micros,
    /// Loading the weights: their size over the bandwidth.
    pub weights: Micros,
    /// Compilation of the model (`torch.compile`).
    pub compile: Micros,
    /// Capture of CUDA graphs and the like: the state [`ReplicaState::Warming`](crate::replica::ReplicaState).
    pub warm_up: Micros,
    /// Instead of all of these, for a replica that sleeps ([`StartMode::Hot`]).
    pub wake: Micros,
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
            process: Micros(14_000_000),
            weights: Micros(30_300_000),
            compile: Micros(35_000_000),
            warm_up: Micros(11_400_000),
            wake: Micros(3_000_000),
        }
    }
}

impl StartTimes {
    /// The same, with the time to read `bytes` of weights at `bandwidth`, bytes per second.
    #[must_use]
    pub fn with_weights(self, bytes: f64, bandwidth: f64) -> Self {
        Self { weights: Micros::from_secs_f64(bytes / bandwidth), ..self }
    }

    /// The times in the states loading and warming of a replica that does not sleep.
    pub(super) fn phases(&self, mode: StartMode) -> (Micros, Micros) {
        let process = if mode == StartMode::Warm { Micros::ZERO } else { self.process };
        (process.saturating_add(self.weights).saturating_add(self.compile), self.warm_up)
    }
}

impl ReplicaGroup {
    /// Whether a request for `model` may go to its replicas.
    pub(super) fn serves(&self, model: Name) -> bool {
        model == Name::NONE || self.serves.contains(&model)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_start_takes_as_long_as_published() {
        let start = StartTimes::default();
        let (loading, warming) = start.phases(StartMode::Cold);
        assert_eq!((loading + warming, warming), (Micros(90_700_000), Micros(11_400_000)));
        assert_eq!(start.phases(StartMode::Warm).0, Micros(65_300_000), "without the process");
        assert_eq!(start.with_weights(65.5e9, 2e9).weights, Micros(32_750_000));
    }
}
