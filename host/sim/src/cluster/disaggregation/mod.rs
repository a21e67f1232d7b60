//! Prefill apart from decode: a request is prefilled on one instance and decoded on another.
//!
//! ```text
//!           decode instance, decision,            its KV blocks stay            all blocks at once
//! routing ─► prefill instance ─► prefill queue, prefill ─► HTTP ─► decode queue ─► transfer ─► first token …
//! ```
//!
//! A request with images, audio or video may be encoded on an instance of its own before that (`encode_flow.rs`).
//!
//! As vLLM with NIXL under llm-d do it ([`TransferFlow::Nixl`]); or as BLIS, which transfers first and then queues
//! ([`TransferFlow::Blis`]). The two parts are one request in all events: [`Pairs`] makes one outcome of two.

mod encode_flow;
mod encoders;
mod flow;
mod kept;
mod network;
mod pairs;
mod scaled;

pub use self::encoders::Encoder;
pub use self::network::KvNetwork;
pub(super) use self::pairs::{PairObserver, Pairs, StageEnd};
use crate::ids::InstanceIndex;
pub use crate::policy::InstanceRole;
use crate::policy::{DisaggregationPolicy, EncodeRule, Events, RoutingPolicy, Ties};
use crate::units::Micros;

/// How KV gets from one instance to the other.
#[derive(Clone, Debug)]
pub enum TransferFlow {
    /// The decode instance reads it with NIXL when it has KV blocks for the request.
    Nixl(NixlFlow),
    /// It is sent when the prefill has ended, if the decode instance has KV blocks then.
    Blis(BlisTransfer),
}

/// The flow of vLLM and llm-d.
#[derive(Clone, Debug)]
pub struct NixlFlow {
    /// The network between the instances.
    pub network: KvNetwork,
    /// Whether the prefill instance is chosen first; every request is then prefilled elsewhere.
    pub prefill_first: bool,
    /// How long decode instances keep the KV blocks of completed requests for the next turns of their sessions, at most, of which the
    /// prefill then reads them; `None`: they keep none. Instances do so by
    /// [`keeps_decoded_kv`](crate::instance::SchedulerOptions::keeps_decoded_kv).
    pub keeps: Option<Micros>,
    /// How each instance encodes, by index; `None`: it has another role. Not read if no request is
    /// encoded.
    pub encoders: Vec<Option<Encoder>>,
}

/// The transfers of BLIS: of all blocks of the prompt.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BlisTransfer {
    /// KV of a token on a GPU of the prefill instance, bytes.
    pub token_bytes: f64,
    /// Bandwidth, bytes/µs, > 0.
    pub bandwidth: f64,
    /// Time of each transfer beside that, µs.
    pub base_us: f64,
    /// Whether a transfer has the bandwidth divided by the number of transfers in progress when it begins.
    pub contention: bool,
}

/// The routing policy of a pool.
#[derive(Debug)]
pub struct PoolRouting {
    /// Chooses an instance of the pool.
    pub policy: Box<dyn RoutingPolicy>,
    /// Which one among equally good ones.
    pub ties: Ties,
}

impl Clone for PoolRouting {
    fn clone(&self) -> Self {
        Self { policy: self.policy.fork(), ties: self.ties }
    }
}

/// The replicas of a group with a role, as far as requests move between them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RoleGroup {
    /// What they do.
    pub role: InstanceRole,
    /// GPUs of a replica, ≥ 1.
    pub gpus: u32,
    /// As of [`KvNetwork::token_bytes`].
    pub token_bytes: f64,
    /// How they encode, if they do.
    pub encoder: Option<Encoder>,
}

/// The settings of prefill apart from decode.
#[derive(Debug)]
pub struct DisaggregationConfig {
    /// The role of each instance.
    pub roles: Vec<InstanceRole>,
    /// What further replicas of each group are; empty if the number of instances is fixed.
    pub groups: Vec<RoleGroup>,
    /// How KV gets from one instance to the other.
    pub flow: TransferFlow,
    /// Whether a request is prefilled elsewhere.
    pub decider: Box<dyn DisaggregationPolicy>,
    /// The routing policy among instances that decode; `None`: that of the service.
    pub decode_routing: Option<PoolRouting>,
    /// The routing policy among instances that prefill; `None`: that of the service.
    pub prefill_routing: Option<PoolRouting>,
    /// The routing policy among instances that encode; `None`: that of the service.
    pub encode_routing: Option<PoolRouting>,
    /// Which requests are encoded first.
    pub encode: EncodeRule,
}

impl Clone for DisaggregationConfig {
    fn clone(&self) -> Self {
        Self {
            roles: self.roles.clone(),
            groups: self.groups.clone(),
            flow: self.flow.clone(),
            decider: self.decider.fork(),
            decode_routing: self.decode_routing.clone(),
            prefill_routing: self.prefill_routing.clone(),
            encode_routing: self.encode_routing.clone(),
            encode: self.encode,
        }
    }
}

impl DisaggregationConfig {
    /// The events that its policies receive.
    fn events(&self) -> Events {
        self.routings().fold(self.decider.events(), |events, pool| events.and(pool.policy.events()))
    }

    /// Whether each instance that encodes has an [`Encoder`], if encoding takes time.
    fn has_encoders(&self) -> bool {
        let TransferFlow::Nixl(flow) = &self.flow else { return true };
        let of_roles = self.roles.iter().copied().zip(flow.encoders.iter().copied());
        let of_groups = self.groups.iter().map(|group| (group.role, group.encoder));
        let is_known =
            |(role, encoder): (InstanceRole, Option<Encoder>)| role != InstanceRole::Encode || encoder.is_some();
        !self.encodes() || (flow.encoders.len() == self.roles.len() && of_roles.chain(of_groups).all(is_known))
    }

    /// Whether requests are encoded by instances, which may come later.
    fn encodes(&self) -> bool {
        if self.encode == EncodeRule::Never {
            return false;
        }
        let of_groups = self.groups.iter().map(|group| group.role);
        self.roles.iter().copied().chain(of_groups).any(|role| role == InstanceRole::Encode)
    }

    /// The routing policies of pools that have one of their own.
    fn routings(&self) -> impl Iterator<Item = &PoolRouting> {
        self.decode_routing.iter().chain(&self.prefill_routing).chain(&self.encode_routing)
    }

    fn routings_mut(&mut self) -> impl Iterator<Item = &mut PoolRouting> {
        self.decode_routing.iter_mut().chain(&mut self.prefill_routing).chain(&mut self.encode_routing)
    }

    /// The instances of which `is_in` says that they are in a pool.
    fn pool(&self, is_in: impl Fn(InstanceRole) -> bool) -> Vec<InstanceIndex> {
        let all = self.roles.iter().enumerate();
        all.filter(|&(_, &role)| is_in(role)).map(|(index, _)| InstanceIndex::at(index)).collect()
    }
}
