//! The common result of all sources of requests.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use blis_sim::cluster::FollowUps;
use blis_sim::ids::RequestId;
use blis_sim::request::Request;

use super::error::Skipped;
use super::names::Names;
use super::recorded::RecordedTimes;
use super::trace_v2::GoodputTargets;

/// The requests of one simulation.
pub struct Workload {
    /// The requests in the order of arrival. Generated workloads produce them one at a time.
    pub requests: Box<dyn Iterator<Item = Request> + Send>,
    /// The source of requests that follow the ends of earlier ones, in closed loop.
    pub follow_ups: Option<Box<dyn FollowUps + Send>>,
    /// Number of requests, if it is known in advance.
    pub count: Option<u64>,
    /// The texts of the names in their [`Tags`](blis_sim::request::Tags).
    pub names: Names,
    /// Latency targets by class, if the trace contains any.
    pub slo_targets: BTreeMap<String, GoodputTargets>,
    /// Properties of the trace that the simulation does not use and a conversion loses. Ordered, for messages.
    pub aside: BTreeSet<&'static str>,
    /// The latencies that the trace records, by [`Request::id`]; empty unless
    /// [`TraceOptions::recorded_times`](super::TraceOptions::recorded_times) is set.
    pub recorded: Vec<(RequestId, RecordedTimes)>,
    /// Rows that were left out under [`TraceOptions::skip_bad_lines`](super::TraceOptions::skip_bad_lines).
    pub skipped: Skipped,
    /// Notes for the user, one sentence each.
    pub notes: Vec<String>,
}

impl fmt::Debug for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { count, skipped, notes, .. } = self;
        let mut fields = f.debug_struct("Workload");
        fields.field("count", count).field("skipped", skipped).field("notes", notes).finish_non_exhaustive()
    }
}
