//! The policies, limits and times of the queue.

use crate::policy::flow::{CeilingsPolicy, EvictionPolicy, FairnessPolicy, OrderingPolicy, SaturationPolicy};
use crate::request::{Name, Request};
use crate::units::Micros;

/// The policies and limits of the queue.
#[derive(Debug)]
pub struct FlowControl {
    /// Says how full the service is.
    pub saturation: Box<dyn SaturationPolicy>,
    /// Says up to which saturation each band is served.
    pub ceilings: Box<dyn CeilingsPolicy>,
    /// Chooses the flow.
    pub fairness: Box<dyn FairnessPolicy>,
    /// Orders the requests of a flow.
    pub ordering: Box<dyn OrderingPolicy>,
    /// Chooses requests in flight that are ended to make room; `None` for none.
    pub eviction: Option<Box<dyn EvictionPolicy>>,
    /// Limits and times of the queue.
    pub settings: FlowSettings,
}

/// Limits and times of the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowSettings {
    /// Requests that the queue holds at most; `None` for no limit.
    pub max_requests: Option<u32>,
    /// Requests that a band holds at most; `None` for no limit.
    pub band_requests: Option<u32>,
    /// Bytes that the requests of a band have at most, 4 for every prompt token; `None` for no limit.
    pub band_bytes: Option<u64>,
    /// A request that arrives at a full queue displaces the one of the lowest priority, below 0 and below its own (BLIS's
    /// `--queue-shedding`; llm-d rejects the one that arrives).
    pub displaces: bool,
    /// Time after which a request leaves the queue unserved; `None` for never.
    pub ttl: Option<Micros>,
    /// Interval at which expired requests are looked for, on multiples of it; 0 for the moment at which they expire (BLIS).
    pub sweep: Micros,
    /// Interval between dispatch cycles while requests wait, > 0.
    pub tick: Micros,
    /// Whether ticks count from the request that found the queue empty (BLIS), instead of being multiples of the interval.
    pub ticks_from_enqueue: bool,
    /// Whether the clients' deadlines hold in the queue. (In BLIS they begin to hold on an instance.)
    pub clients_time_out: bool,
    /// Time after an eviction before the next ones.
    pub eviction_grace: Micros,
    /// Requests that are evicted at once at most, ≥ 1.
    pub evictions_at_once: u32,
    /// For each tenant by the index of its name, the position in the order of names, and the name under which its requests
    /// are queued.
    pub tenants: Vec<(u32, Name)>,
}

/// Size of a request, bytes per prompt token. Ours: English text has about four.
pub const BYTES_PER_TOKEN: u64 = 4;

impl FlowSettings {
    /// The settings of llm-d's flow control: 5 000 requests and 1 GB in a band, 60 s in the queue, looked for every second, a cycle
    /// every millisecond.
    #[must_use]
    pub fn usual() -> Self {
        Self {
            max_requests: None,
            band_requests: Some(5000),
            band_bytes: Some(1_000_000_000),
            displaces: false,
            ttl: Some(Micros(60_000_000)),
            sweep: Micros(1_000_000),
            tick: Micros(1000),
            ticks_from_enqueue: false,
            clients_time_out: true,
            eviction_grace: Micros(500_000),
            evictions_at_once: 2,
            tenants: Vec::new(),
        }
    }

    /// Position and name of the flow of the tenant `name`.
    pub(super) fn tenant(&self, name: Name) -> (u32, Name) {
        self.tenants.get(name.index()).copied().unwrap_or((name.0, name))
    }
}

impl Clone for FlowControl {
    fn clone(&self) -> Self {
        Self {
            saturation: self.saturation.fork(),
            ceilings: self.ceilings.fork(),
            fairness: self.fairness.fork(),
            ordering: self.ordering.fork(),
            eviction: self.eviction.as_ref().map(|eviction| eviction.fork()),
            settings: self.settings.clone(),
        }
    }
}

/// Size of `request`, bytes.
pub(super) fn bytes_of(request: &Request) -> u64 {
    BYTES_PER_TOKEN * u64::from(request.input_tokens)
}
