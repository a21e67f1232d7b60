// @generated from the tables of sdk/abi: `BLIS_RECORD=1 cargo test -p blis-abi` writes it anew.

//! The traits of policies, one for each kind of decision.

use super::{AdmissionDecision, Policy};
use crate::rows::{Cluster, Band, ChunkOffer, DrainGroup, Flow, Group, InFlight, KvChunk, KvHit, LatencyConstants, Node, PoolInstance, PrefillChoice, Queued, Replica, Request, RoutedRequest, Running, StartingReplica, Step, StepBudget, StepState};

/// Admits or rejects a request. Called once per arrival.
pub trait Admission: Policy {
    /// Admits a request, or rejects it with a reason. The instances have a row each, one after the other, with the
    /// columns that the description lists, in that order.
    fn admit(&mut self, request: &Request, cluster: &Cluster<'_, Self::Signals>) -> AdmissionDecision;
}

/// Chooses the instance of a request. Called once per admitted request; as the picker of a pipeline, with the instances
/// that its filters keep.
pub trait Routing: Policy {
    /// The index of the instance of a request. There is at least one. Rows as for admission.
    fn route(&mut self, request: &Request, cluster: &Cluster<'_, Self::Signals>) -> usize;

    /// A score for each instance, without a choice. Higher is better. Called just before `route`, and only if scores
    /// are recorded; as a scorer of a pipeline it is called for every request, and `route` is not: numbers below 0
    /// count as 0, above 1 as 1. Pushed onto `numbers`, one for each row.
    fn scores(&self, request: &Request, cluster: &Cluster<'_, Self::Signals>, numbers: &mut Vec<f64>) {
        let _ = (request, cluster, numbers);
    }
}

/// Leaves out instances before a routing policy chooses. Called once per admitted request.
pub trait Filter: Policy {
    /// A number for each instance: 0 leaves it out. Any other number keeps it. If a filter leaves out all that the
    /// filters before it kept, it keeps them all. Pushed onto `numbers`, one for each row.
    fn filter(&mut self, request: &Request, cluster: &Cluster<'_, Self::Signals>, numbers: &mut Vec<f64>);
}

/// Sets the priority of a request on its instance. Called when the request is routed.
pub trait Priority: Policy {
    /// The priority of a request: a higher number goes first.
    fn priority(&mut self, request: &Request) -> i64;
}

/// Sets the order of a waiting queue. Called for each request that joins it.
pub trait Scheduling: Policy {
    /// The rank of a request in a waiting queue: the smallest is scheduled first. Kept until the request leaves the
    /// queue. NaN is a fault.
    fn rank(&mut self, request: &Request, queued: &Queued) -> f64;
}

/// Chooses the preemption victim. Called when an instance runs out of KV blocks.
pub trait Preemption: Policy {
    /// The index of the victim in the running batch; the number is the index of the request that needs its blocks. The
    /// batch is in the order of admission, and not empty. Called again until the requester has its blocks; choosing it
    /// ends the calls.
    fn victim(&mut self, now_us: u64, requester: usize, batch: &[Running]) -> usize;
}

/// Predicts the duration of engine steps. All times are microseconds.
pub trait Latency: Policy {
    /// The duration of an engine step. At least 1 µs. Must depend on the step only.
    fn step_time(&self, step: &Step) -> u64;

    /// The time from arrival to the waiting queue of a request with so many prompt tokens.
    fn queueing_time(&self, input_tokens: u32) -> u64 {
        let _ = input_tokens;
        0
    }

    /// The constant times of the model. Called once.
    fn constants(&self) -> LatencyConstants {
        LatencyConstants::default()
    }
}

/// Flow control: says how full the service is. Called once per dispatch cycle, while requests wait in the queue of the
/// gateway.
pub trait Saturation: Policy {
    /// How full the service is: 0 empty, 1 full. More than 1 if it is overloaded; not below 0. Rows as for admission.
    /// NaN is a fault.
    fn saturation(&mut self, now_us: u64, cluster: &Cluster<'_, Self::Signals>) -> f64;
}

/// Flow control: says up to which saturation each band is served. Called once per dispatch cycle.
pub trait Ceilings: Policy {
    /// A ceiling for each band; the number is the saturation. Bands are in the order of their priority, the highest
    /// first. A band waits while the saturation is at or above its ceiling, and so do all bands below it. Pushed onto
    /// `numbers`, one for each row.
    fn ceilings(&mut self, now_us: u64, saturation: f64, bands: &[Band], numbers: &mut Vec<f64>);
}

/// Flow control: chooses the tenant that is served next within a band. Called once per dispatched request.
pub trait Fairness: Policy {
    /// The index of the flow of a band that is served next; the number is the saturation. Flows are those with queued
    /// requests, in the order of the names of tenants; there is at least one.
    fn fair_pick(&mut self, now_us: u64, saturation: f64, band: &Band, flows: &[Flow]) -> usize;
}

/// Flow control: sets the order of the requests of a tenant. Called once per request, when it is enqueued.
pub trait Ordering: Policy {
    /// The rank of a request in its flow: the smallest goes first; the number is the time at which it expires. Of equal
    /// ones the one enqueued first. Kept until the request leaves the queue, which it does unserved when it expires;
    /// the largest number if never. NaN is a fault.
    fn order(&mut self, request: &Request, expires_us: u64) -> f64;
}

/// Flow control: chooses a request in flight that is ended to make room. Called when a band has to wait.
pub trait Eviction: Policy {
    /// The index of the request that makes room for a band. None evicts none. All requests are of a priority below 0
    /// and below that of the band that waits, in the order of their dispatch; there is at least one.
    fn evict(&mut self, now_us: u64, demand: &Band, in_flight: &[InFlight]) -> Option<usize>;
}

/// Autoscaling: says how many replicas each group has. Called once per sync, every 15 s unless the user sets another
/// interval.
pub trait Scaling: Policy {
    /// A number of replicas for each group, below 0 for none; the second list has the groups of earlier decisions.
    /// Whole numbers, which count loading and pending replicas and no draining ones. The host applies the limits of the
    /// group, and the stabilization windows and rates of the service. Earlier decisions, up to 20, are in the order of
    /// time: as many rows for each as there are groups. Pushed onto `numbers`, one for each row.
    fn scale(&mut self, now_us: u64, groups: &[Group], history: &[Group], numbers: &mut Vec<f64>);
}

/// Autoscaling: chooses the replica that is removed. Called when a group has too many.
pub trait Drain: Policy {
    /// The index of the replica that is removed. The replicas are all of the group but those that drain, in the order
    /// in which they were created; there is at least one. Called for each replica that is removed, after the one before
    /// has left the list. An active one drains: it finishes its requests and gets no others; one that starts is gone at
    /// once.
    fn drain(&mut self, group: &DrainGroup, replicas: &[Replica]) -> usize;
}

/// Autoscaling: chooses the node of a replica that starts. Without node pools there is always room and no choice.
pub trait Placement: Policy {
    /// The index of the node of a replica; without one it waits. The nodes have room for the replica, in the order of
    /// its pools and of their nodes; at least one of them is ready. With none, or a node that is not ready, the replica
    /// waits, and is placed anew whenever a replica starts or ends and a node comes or goes. A replica that needs more
    /// GPUs than a node has takes the chosen node and the first others of the pool that have room.
    fn placement(&mut self, replica: &StartingReplica, nodes: &[Node]) -> Option<usize>;
}

/// KV tiers: ranks chunks for eviction, and decides which are stored and loaded.
pub trait KvCache: Policy {
    /// A rank for each chunk: the smallest is evicted first. Of equal ones the least recently used, as in LRU of vLLM.
    /// The chunks were touched now: stored, used by another request, or their request ended; a rank holds until the
    /// next touch. A LoRA adapter is a chunk of tier 2 or 3: those without a running request are ranked when one of
    /// them has to make room for another. Pushed onto `numbers`, one for each row.
    fn keep(&mut self, now_us: u64, chunks: &[KvChunk], numbers: &mut Vec<f64>) {
        let _ = now_us;
        numbers.resize(chunks.len(), 0.0);
    }

    /// For each chunk whether it is stored: 0 is no. The chunks are not in the tier. Pushed onto `numbers`, one for
    /// each row.
    fn store(&mut self, offer: &ChunkOffer, chunks: &[KvChunk], numbers: &mut Vec<f64>) {
        let _ = offer;
        numbers.resize(chunks.len(), 1.0);
    }

    /// Whether a request loads what was found. If not, it computes it. Called once each time that the request is to be
    /// scheduled and finds something.
    fn load(&mut self, hit: &KvHit) -> bool {
        let _ = hit;
        true
    }
}

/// Prefill apart from decode: whether another instance prefills a request, and which.
pub trait Disaggregation: Policy {
    /// Where a request is prefilled and decoded; the lists are the instances that decode, and those that prefill. There
    /// is at least one of each. Called once for each request, after the routing policy chose the instance that decodes
    /// it.
    fn disaggregate(&mut self, request: &RoutedRequest, decode: &[PoolInstance], prefill: &[PoolInstance]) -> PrefillChoice;
}

/// Says what a step may compute of prompts, and which KV blocks stay free. Called before a step for which requests wait
/// or are in prefill.
pub trait Batching: Policy {
    /// The budget of a step. Must depend on the state only: the host asks once for each state and keeps the budget.
    /// Where no request decodes, at least one token of one request is computed.
    fn budget(&self, step: &StepState) -> StepBudget;
}
