//! The traits of policies: one for the state, and one for each kind of decision.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::description::{Description, Setup};
use crate::rows::{
    Band, ChunkOffer, Cluster, DrainGroup, Event, Flow, Group, InFlight, KvChunk, KvHit, LatencyConstants, Node,
    PoolInstance, PrefillChoice, Queued, Replica, Request, RoutedRequest, Running, Signals, StartingReplica, Step,
};

/// A policy. Its fields are its state: their serialised form is saved, restored and copied when a simulation forks. So
/// every value that later decisions depend on must be a field, and no state may be in statics.
pub trait Policy: Serialize + DeserializeOwned {
    /// What it reads about each instance: a struct that [`crate::signals!`] declares, or `()` for nothing.
    type Signals: Signals;

    /// The description of the policy, which must be the same at every call.
    fn describe() -> Description;

    /// Creates the policy with its initial state.
    ///
    /// # Errors
    /// If the policy cannot be used with this setup. The run ends with the text, which is written for the user who set
    /// the parameters.
    fn new(setup: &Setup) -> Result<Self, String>;
}

/// An admission policy, called once per arrival.
pub trait Admission: Policy {
    /// Admits or rejects `request`.
    fn admit(&mut self, request: &Request, cluster: &Cluster<'_, Self::Signals>) -> AdmissionDecision;
}

/// The decision of an admission policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdmissionDecision {
    /// The request is admitted.
    Admit,
    /// The request is rejected; the text is the reason.
    Reject(String),
}

/// A routing policy, called once per admitted request; with scores it can also be a scorer of a routing pipeline, and its
/// choice the picker of one.
pub trait Routing: Policy {
    /// The index of the chosen instance in `cluster.instances`, which is not empty.
    fn route(&mut self, request: &Request, cluster: &Cluster<'_, Self::Signals>) -> usize;

    /// Pushes a score for each instance onto `scores`, higher is better. Called just before `route`, and only if the
    /// scores are recorded; of a scorer of a pipeline for every request, without `route`: there numbers below 0 count as
    /// 0, above 1 as 1. A policy declares them with [`Description::scores`].
    fn scores(&self, request: &Request, cluster: &Cluster<'_, Self::Signals>, scores: &mut Vec<f64>) {
        let _ = (request, cluster, scores);
    }
}

/// A filter of a routing pipeline, called once per admitted request, before the instances are scored.
pub trait Filter: Policy {
    /// Pushes a number for each instance onto `kept`: 0 leaves it out, any other number keeps it. If it leaves out all
    /// that the filters before it kept, all of these are kept.
    fn filter(&mut self, request: &Request, cluster: &Cluster<'_, Self::Signals>, kept: &mut Vec<f64>);
}

/// A priority policy, called when a request is routed to its instance.
pub trait Priority: Policy {
    /// The priority of `request`: a higher number goes first.
    fn priority(&mut self, request: &Request) -> i64;
}

/// A scheduler: the order of a waiting queue.
pub trait Scheduling: Policy {
    /// The rank of a request that joins the queue: the smallest is scheduled first. The rank is kept until the request
    /// leaves the queue. NaN is a fault.
    fn rank(&mut self, request: &Request, queued: &Queued) -> f64;
}

/// A preemption policy, called when an instance runs out of KV blocks.
pub trait Preemption: Policy {
    /// The index of the victim in `batch`, which is in the order of admission and not empty. Called again until the
    /// request at index `requester` has its blocks; choosing that request ends the calls.
    fn victim(&mut self, now_us: u64, requester: usize, batch: &[Running]) -> usize;
}

/// A latency model; all times are microseconds.
pub trait Latency: Policy {
    /// Duration of one engine step, at least 1 µs. Must depend on `step` only.
    fn step_time(&self, step: &Step) -> u64;

    /// Time from arrival to the waiting queue, µs.
    fn queueing_time(&self, input_tokens: u32) -> u64 {
        let _ = input_tokens;
        0
    }

    /// The constant times of the model, µs. Called once.
    fn constants(&self) -> LatencyConstants {
        LatencyConstants::default()
    }
}

/// A saturation detector: how full the service is. Called once per dispatch cycle of flow control, while requests wait in
/// the queue of the gateway.
pub trait Saturation: Policy {
    /// 0 if the service is empty, 1 if it is full, more if it is overloaded; not below 0. The decision is about no
    /// request: [`Policy::Signals`] cannot have columns of the group `cache`.
    fn saturation(&mut self, now_us: u64, cluster: &Cluster<'_, Self::Signals>) -> f64;
}

/// A usage-limit policy of flow control, called once per dispatch cycle.
pub trait Ceilings: Policy {
    /// Pushes a ceiling for each of `bands`, highest priority first, onto `ceilings`. A band waits while the saturation is
    /// at or above its ceiling, and so do all bands below it.
    fn ceilings(&mut self, now_us: u64, saturation: f64, bands: &[Band], ceilings: &mut Vec<f64>);
}

/// A fairness policy of flow control, called once per dispatched request.
pub trait Fairness: Policy {
    /// The index of the flow that is served next in `flows`, which are those of `band` with queued requests, in the order
    /// of the names of tenants; there is at least one.
    fn fair_pick(&mut self, now_us: u64, saturation: f64, band: &Band, flows: &[Flow]) -> usize;
}

/// A dispatch order of flow control, called once per request, when it is enqueued.
pub trait Ordering: Policy {
    /// The rank of `request` in its flow: the smallest goes first, of equal ones the one enqueued first. Without a
    /// dispatch it leaves the queue at `expires_us`; [`u64::MAX`] if never. NaN is a fault.
    fn order(&mut self, request: &Request, expires_us: u64) -> f64;
}

/// An eviction policy of flow control, called when a band has to wait.
pub trait Eviction: Policy {
    /// The index of the request in `in_flight` that is ended to make room, or `None` to evict none. All of them are of a
    /// priority below 0 and below that of the waiting `demand`, in the order of their dispatch; there is at least one.
    fn evict(&mut self, now_us: u64, demand: &Band, in_flight: &[InFlight]) -> Option<usize>;
}

/// A scaling policy: how many replicas each group should have. Called once per sync, every 15 s unless the user sets another
/// interval.
pub trait Scaling: Policy {
    /// Pushes a number of replicas for each of `groups` onto `replicas`: a whole number, which counts loading and pending
    /// replicas and no draining ones; below 0 it says none for that group, which changes nothing. The host applies the
    /// limits of the group, and the stabilization windows and rates of the service. `history` has the groups of up to 20
    /// decisions before, oldest first: as many rows for each decision as `groups` has.
    fn scale(&mut self, now_us: u64, groups: &[Group], history: &[Group], replicas: &mut Vec<f64>);
}

/// A drain policy: which replica is removed when a group has too many.
pub trait Drain: Policy {
    /// The index of a replica in `replicas`, which are all of the group but those that drain, in the order in which they were
    /// created; there is at least one. Called for each replica that is removed, after the one before has left the list. An
    /// active one drains: it finishes its requests and gets no others; one that starts is gone at once.
    fn drain(&mut self, group: &DrainGroup, replicas: &[Replica]) -> usize;
}

/// A placement policy: on which node a replica starts.
pub trait Placement: Policy {
    /// The index of a node in `nodes`, which have room for the replica, in the order of its pools and of their nodes; at least
    /// one of them is ready. `None`, or a node that is not ready: the replica waits, and is placed anew whenever a replica
    /// starts or ends and a node comes or goes. A replica that needs more GPUs than a node has takes the chosen node and the
    /// first others of the pool that have room.
    fn placement(&mut self, replica: &StartingReplica, nodes: &[Node]) -> Option<usize>;
}

/// A policy of KV tiers: which chunk is evicted, which are stored, and whether a request loads what was found.
pub trait KvCache: Policy {
    /// Pushes a rank for each of `chunks`, which were touched now: stored, used by another request, or their request ended
    /// ([`KvChunk::touch`]). The smallest is evicted first; of equal ones the least recently used, as vLLM's LRU has it. A rank
    /// holds until the next touch. A LoRA adapter is a chunk of [`KvChunk::tier`] 2 or 3: those without a running request are
    /// ranked when one of them has to make room for another.
    fn keep(&mut self, now_us: u64, chunks: &[KvChunk], ranks: &mut Vec<f64>);

    /// Pushes for each of `chunks`, which are not in the tier, whether it is stored; 0 is no. By default all are.
    fn store(&mut self, _offer: &ChunkOffer, chunks: &[KvChunk], stored: &mut Vec<f64>) {
        stored.extend(chunks.iter().map(|_| 1.0));
    }

    /// Whether a request loads what was found; if not, it computes it. By default it loads. Called once each time that
    /// the request is to be scheduled and finds something.
    fn load(&mut self, _hit: &KvHit) -> bool {
        true
    }
}

/// A policy of prefill apart from decode: whether another instance prefills a request, and which.
pub trait Disaggregation: Policy {
    /// Where `request` is prefilled and decoded, of the instances that decode and those that prefill; there is at least one of
    /// each. Called once for each request, after the routing policy chose the instance that decodes it
    /// ([`RoutedRequest::chosen`]).
    fn disaggregate(
        &mut self,
        request: &RoutedRequest,
        decode: &[PoolInstance],
        prefill: &[PoolInstance],
    ) -> PrefillChoice;
}

/// Events for policies that subscribe to them ([`Description::events`]).
pub trait Lifecycle: Policy {
    /// Delivers an event, in simulated order and before any later decision.
    fn observe(&mut self, event: &Event);
}
