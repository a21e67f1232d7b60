//! The service that a bound is for, and the requests that it served.

use blis_sim::instance::InstanceConfig;
use blis_sim::units::Micros;

/// A service of equal instances, as far as the bound depends on it.
#[derive(Clone, Debug)]
pub struct BoundedService {
    /// One of the instances. Its policies do not matter.
    pub instance: InstanceConfig,
    /// Number of instances, at least 1.
    pub instances: u32,
    /// Time from arrival to the admission decision.
    pub admission_latency: Micros,
    /// Time from the admission decision to the routing decision.
    pub routing_latency: Micros,
}

/// A request that got a first token in the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServedRequest {
    /// Index in the arrivals.
    pub index: usize,
    /// Output tokens that were generated.
    pub generated_tokens: u32,
    /// Whether it completed, so that it has an end-to-end latency.
    pub completed: bool,
}
