//! What flow control did with a request: the line, and in words.

use std::fmt::{self, Display};

use blis_sim::outcome::GatewayChoice;
use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantArray};

use super::table::{ms, plural, score};

/// What flow control does with a request, and the state of the gateway's queue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GatewayLine {
    /// Number of the request. Unit: number.
    pub request: u32,
    /// Time of the decision.
    pub time_us: u64,
    /// There is no room for it in the queue; it leaves the queue for a request of higher priority; it leaves the queue,
    /// to be routed; it is ended on its instance; it leaves the queue unserved after its time to live, or because its
    /// client timed out.
    pub decision: QueueDecision,
    /// Reason of a refusal, in BLIS's words. Always if `decision` is `refused`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// How full the service was: 0 empty, 1 full. With the decisions of a dispatch cycle. Always if `decision` is
    /// `dispatched` or `evicted`. Unit: saturation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saturation: Option<f64>,
    /// The bands, highest priority first: before a dispatch or an eviction, and after a request was refused or left.
    pub bands: Vec<BandState>,
    /// Priority of the band of a dispatched request; of an evicted one, that of the band that waits for room. Always if
    /// `decision` is `dispatched` or `evicted`. Unit: priority.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub band: Option<i32>,
    /// Time in the queue. Always if `decision` is `dispatched`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waited_us: Option<u64>,
    /// The flows of the band, in the order of tenants' names; the one with this request at its head was picked. Always
    /// if `decision` is `dispatched`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flows: Vec<FlowState>,
    /// The request that displaced it. Always if `decision` is `displaced`. Unit: number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<u32>,
    /// The instance on which it was evicted. Always if `decision` is `evicted`. Unit: number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<u32>,
    /// The requests in flight that could be evicted, in the order of their dispatch. Always if `decision` is `evicted`.
    /// Unit: number.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub candidates: Vec<u32>,
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr, VariantArray)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum QueueDecision {
    /// There is no room for it in the queue.
    Refused,
    /// It leaves the queue for a request of higher priority.
    Displaced,
    /// It leaves the queue, to be routed.
    Dispatched,
    /// It is ended on its instance.
    Evicted,
    /// It leaves the queue after its time to live.
    Expired,
    /// It leaves the queue because its client timed out.
    TimedOut,
}

impl From<&GatewayChoice<'_>> for QueueDecision {
    fn from(choice: &GatewayChoice<'_>) -> Self {
        match choice {
            GatewayChoice::Refused => Self::Refused,
            GatewayChoice::Displaced { .. } => Self::Displaced,
            GatewayChoice::Dispatched { .. } => Self::Dispatched,
            GatewayChoice::Evicted { .. } => Self::Evicted,
            GatewayChoice::Expired => Self::Expired,
            GatewayChoice::TimedOut => Self::TimedOut,
        }
    }
}

/// The queued requests of one priority.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BandState {
    /// Priority of its requests; higher is served first, below 0 may be shed. Unit: priority.
    pub priority: i32,
    /// Number of its requests in the queue. Unit: requests.
    pub queued: u32,
    /// Wait of the oldest of them; 0 if there is none.
    pub oldest_wait_us: u64,
    /// Saturation from which on the band waits; with `saturation`. Unit: saturation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceiling: Option<f64>,
}

/// The queued requests of one tenant in a band.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlowState {
    /// Name of the tenant.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub tenant: String,
    /// Number of its requests in the queue. Unit: requests.
    pub queued: u32,
    /// Number of the request at its head. Unit: number.
    pub head: u32,
    /// Time of that request in the queue.
    pub head_wait_us: u64,
    /// Dispatched requests of the tenant that have not ended. Unit: requests.
    pub in_flight: u32,
    /// Requests of the flow that were dispatched before. Unit: requests.
    pub dispatched: u64,
    /// Prompt tokens of the tenant's dispatched requests.
    pub served_input_tokens: u64,
    /// Output tokens of the tenant's requests that have ended.
    pub served_output_tokens: u64,
}

impl Display for GatewayLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let queued: u64 = self.bands.iter().map(|band| u64::from(band.queued)).sum();
        let queued = plural(queued, "request");
        match self.decision {
            QueueDecision::Refused => write!(f, "refused: no room in the queue of {queued}")?,
            QueueDecision::Displaced => {
                let by = self.by.map_or_else(|| "another one".to_owned(), |by| format!("request {by}"));
                write!(f, "leaves the queue for {by}")?;
            }
            QueueDecision::Dispatched => {
                write!(f, "dispatched after {} ms", ms(self.waited_us.unwrap_or(0)))?;
                write!(f, " from a queue of {queued}, {} of its band", plural(self.flows.len() as u64, "flow"))?;
            }
            QueueDecision::Evicted => {
                let candidates = plural(self.candidates.len() as u64, "candidate");
                write!(f, "evicted, of {candidates}, for the band of priority {}", self.band.unwrap_or(0))?;
            }
            QueueDecision::Expired => write!(f, "expired; {queued} left in the queue")?,
            QueueDecision::TimedOut => write!(f, "its client timed out; {queued} left in the queue")?,
        }
        match self.saturation {
            Some(saturation) => write!(f, "; saturation {}", score(saturation)),
            None => Ok(()),
        }
    }
}
