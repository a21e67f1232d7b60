//! The cold part of the interface, with wasmtime's derived bindings: what is asked once.

#![allow(unsafe_code)] // in what the derives expand to

use std::ops::BitOrAssign;

use wasmtime::component::{ComponentType, Lift, Lower, flags};

use crate::{Constants, Kind};

flags! {
    Kinds {
        #[component(name = "admission")]
        const ADMISSION;
        #[component(name = "routing")]
        const ROUTING;
        #[component(name = "priority")]
        const PRIORITY;
        #[component(name = "scheduling")]
        const SCHEDULING;
        #[component(name = "preemption")]
        const PREEMPTION;
        #[component(name = "latency")]
        const LATENCY;
    }
}

flags! {
    Columns {
        #[component(name = "load")]
        const LOAD;
        #[component(name = "in-flight")]
        const IN_FLIGHT;
        #[component(name = "cached-blocks")]
        const CACHED_BLOCKS;
    }
}

flags! {
    EventSet {
        #[component(name = "routed")]
        const ROUTED;
        #[component(name = "first-token")]
        const FIRST_TOKEN;
        #[component(name = "completed")]
        const COMPLETED;
        #[component(name = "ended")]
        const ENDED;
        #[component(name = "rejected")]
        const REJECTED;
        #[component(name = "blocks")]
        const BLOCKS;
    }
}

impl Kinds {
    /// In the order of their bits.
    pub(super) const ALL: [Self; 6] =
        [Self::ADMISSION, Self::ROUTING, Self::PRIORITY, Self::SCHEDULING, Self::PREEMPTION, Self::LATENCY];
}

impl Columns {
    /// In the order of their bits.
    pub(super) const ALL: [Self; 3] = [Self::LOAD, Self::IN_FLIGHT, Self::CACHED_BLOCKS];
}

impl EventSet {
    /// In the order of their bits.
    pub(super) const ALL: [Self; 6] =
        [Self::ROUTED, Self::FIRST_TOKEN, Self::COMPLETED, Self::ENDED, Self::REJECTED, Self::BLOCKS];
}

/// The members of `all` whose bits are set.
pub(super) fn set_of<F: Copy + Default + BitOrAssign>(bits: u8, all: &[F]) -> F {
    let mut set = F::default();
    let members = all.iter().enumerate().filter(|(bit, _)| bits & (1 << bit) != 0);
    members.for_each(|(_, &member)| set |= member);
    set
}

impl From<Kind> for Kinds {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Admission => Self::ADMISSION,
            Kind::Routing => Self::ROUTING,
            Kind::Priority => Self::PRIORITY,
            Kind::Scheduling => Self::SCHEDULING,
            Kind::Preemption => Self::PREEMPTION,
            Kind::Latency => Self::LATENCY,
        }
    }
}

#[derive(ComponentType, Lift)]
#[component(record)]
pub(super) struct WireParameter {
    pub name: String,
    pub default: f64,
    pub min: f64,
    pub max: f64,
    pub about: String,
}

#[derive(ComponentType, Lift)]
#[component(record)]
pub(super) struct WireDescription {
    pub name: String,
    pub version: String,
    pub about: String,
    pub kinds: Kinds,
    pub reads: Columns,
    pub events: EventSet,
    pub scores: bool,
    #[component(name = "every-step")]
    pub every_step: bool,
    pub parameters: Vec<WireParameter>,
}

#[derive(ComponentType, Lower)]
#[component(record)]
pub(super) struct WireInstance {
    pub id: u32,
    #[component(name = "max-num-seqs")]
    pub max_num_seqs: u32,
    #[component(name = "total-kv-blocks")]
    pub total_kv_blocks: u32,
    #[component(name = "block-size")]
    pub block_size: u32,
}

#[derive(ComponentType, Lower)]
#[component(record)]
pub(super) struct WireFact<'a> {
    pub name: &'a str,
    pub value: f64,
}

#[derive(ComponentType, Lift)]
#[component(variant)]
pub(super) enum WireVerdict {
    #[component(name = "admit")]
    Admit,
    #[component(name = "reject")]
    Reject(String),
}

#[derive(ComponentType, Lift)]
#[component(record)]
pub(super) struct WireConstants {
    #[component(name = "shortest-step")]
    pub shortest_step: u64,
    #[component(name = "output-token")]
    pub output_token: u64,
    #[component(name = "post-decode")]
    pub post_decode: u64,
    pub scheduling: u64,
    pub preemption: u64,
}

impl From<WireConstants> for Constants {
    fn from(wire: WireConstants) -> Self {
        let WireConstants { shortest_step, output_token, post_decode, scheduling, preemption } = wire;
        Self { shortest_step, output_token, post_decode, scheduling, preemption }
    }
}
