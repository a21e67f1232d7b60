//! What every source of requests ends as.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use blis_sim::cluster::FollowUps;
use blis_sim::request::Request;

use super::error::Skipped;
use super::names::Names;
use super::trace_v2::GoodputTargets;

/// Requests for one simulation.
pub struct Workload {
    /// In order of arrival. Generated workloads make them one at a time.
    pub requests: Box<dyn Iterator<Item = Request> + Send>,
    /// What follows from the ends of earlier ones, where clients wait for answers.
    pub follow_ups: Option<Box<dyn FollowUps + Send>>,
    /// How many there will be, where that is known beforehand.
    pub count: Option<u64>,
    /// The text behind the numbers in their [`Tags`](blis_sim::request::Tags).
    pub names: Names,
    /// Latency targets by class, where the trace brings any.
    pub slo_targets: BTreeMap<String, GoodputTargets>,
    /// What the trace says beside, and what is not carried on from here. Ordered, for messages.
    pub aside: BTreeSet<&'static str>,
    /// Rows left out under [`TraceOptions::skip_bad_lines`](super::TraceOptions::skip_bad_lines).
    pub skipped: Skipped,
    /// What the user should know about this workload, a sentence each.
    pub notes: Vec<String>,
}

impl fmt::Debug for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { requests: _, follow_ups: _, count, names: _, slo_targets: _, aside: _, skipped, notes } = self;
        let mut fields = f.debug_struct("Workload");
        fields.field("count", count).field("skipped", skipped).field("notes", notes).finish_non_exhaustive()
    }
}
