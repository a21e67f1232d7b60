//! The groups and replicas of a service during a simulation.

use super::nodes::HeldGpus;
use super::settings::ReplicaGroup;
use super::start::StartMode;
use crate::ids::InstanceIndex;
use crate::replica::{GroupReport, ReplicaState};
use crate::units::Micros;

#[derive(Clone, Debug)]
pub(super) struct LiveGroup {
    pub settings: ReplicaGroup,
    /// Number of replicas, without those that drain (`spec.replicas`).
    pub replicas: u32,
    /// Replicas that sleep in host memory.
    pub sleeping: u32,
}

impl LiveGroup {
    /// Its figures before the first event.
    pub fn report(&self) -> GroupReport {
        GroupReport { gpus: self.settings.gpus, gpu_price: self.settings.price, ..GroupReport::default() }
    }

    /// A replica goes to sleep, if the group has room for it.
    pub fn sleep(&mut self) {
        if let StartMode::Hot { pool } = self.settings.mode {
            self.sleeping = (self.sleeping + 1).min(pool);
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct LiveReplica {
    pub number: u32,
    pub group: usize,
    pub state: ReplicaState,
    pub created_at: Micros,
    pub active_since: Option<Micros>,
    /// Time of its next transition; [`Micros::MAX`] if that is unknown.
    pub next: Micros,
    /// How long it loads, and then warms up.
    pub loading: Micros,
    pub warm_up: Micros,
    /// When it is expected to be ready, once it has GPUs: after the mean time of a start.
    pub expected: Micros,
    /// Whether it slept before.
    pub wakes: bool,
    pub placement: HeldGpus,
    pub instance: Option<InstanceIndex>,
    /// Whether it drains and has no requests.
    pub is_done: bool,
}
