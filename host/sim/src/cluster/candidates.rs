//! The instances that may be chosen for a request, if these are not always all that there are.

use crate::policy::{Changes, ClusterView, InstanceInfo, Reads, Signals, Versions, copy_rows};
use crate::request::Name;

/// The columns of some of the instances, copied from those of all.
#[derive(Clone, Debug, Default)]
pub(super) struct Candidates {
    chosen: Option<CandidateSet>,
    /// Indices of the instances, in order.
    rows: Vec<usize>,
    instances: Vec<InstanceInfo>,
    signals: Signals,
    /// Versions of these columns, which also change with the rows.
    versions: Versions,
    /// Versions of the columns from which they were copied.
    copied: Versions,
}

/// Which instances are selected, as of a version of the active ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CandidateSet {
    /// All.
    All,
    /// The active ones for requests that name this model, or all active ones for `None`.
    Active(u64, Option<Name>),
    /// The active ones of a pool.
    Pool(u64, ServingPool),
    /// None.
    Nothing,
}

/// The instances among which a routing policy chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ServingPool {
    Prefill,
    Decode,
    Encode,
}

impl Candidates {
    /// Selects instances: `rows` pushes their indices, and is called only if the selection is another than before.
    pub fn select(
        &mut self,
        all: &ClusterView<'_>,
        reads: Reads,
        chosen: CandidateSet,
        rows: impl FnOnce(&mut Vec<usize>),
    ) {
        let is_new = self.chosen.replace(chosen) != Some(chosen);
        if is_new {
            self.rows.clear();
            rows(&mut self.rows);
            copy_rows(&self.rows, all.instances, &mut self.instances, true);
        }
        self.versions.instances += u64::from(is_new);
        self.versions.load += u64::from(is_new || self.copied.load != all.versions.load);
        self.versions.cached_blocks += u64::from(is_new || self.copied.cached_blocks != all.versions.cached_blocks);
        self.copied = all.versions;
        self.signals.copy_rows(all.signals, &self.rows, reads);
    }

    /// The view of the selected instances, with everything else of the view of all.
    pub fn view<'a>(&'a self, all: ClusterView<'a>) -> ClusterView<'a> {
        ClusterView {
            instances: &self.instances,
            signals: &self.signals,
            versions: self.versions,
            // The rows have other numbers than those that changed.
            in_flight_changes: Changes::UNKNOWN,
            ..all
        }
    }
}
