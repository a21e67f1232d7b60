//! Small services and requests for the tests of policies.

use super::{ClusterView, InstanceInfo, RequestView, Signals, Staleness, Versions};
use crate::ids::{InstanceIndex, RequestId};
use crate::request::{Content, Request, Span};
use crate::units::Micros;

/// Size of a KV block, tokens.
pub(super) const BLOCK_SIZE: u32 = 16;

/// Instances with their signals.
#[derive(Clone, Debug)]
pub(super) struct TestService {
    pub now: Micros,
    pub instances: Vec<InstanceInfo>,
    pub signals: Signals,
    pub tenants_in_flight: Vec<u32>,
}

impl TestService {
    /// `n` idle instances of 64 sequences and 1000 blocks.
    pub fn idle(n: usize) -> Self {
        let info = |id| InstanceInfo {
            id,
            max_num_seqs: 64,
            total_kv_blocks: 1000,
            block_size: BLOCK_SIZE,
            ..InstanceInfo::default()
        };
        let signals = Signals::idle(std::iter::repeat_n(1000, n));
        Self {
            now: Micros::ZERO,
            instances: (0..n).map(InstanceIndex::at).map(info).collect(),
            signals,
            tenants_in_flight: Vec::new(),
        }
    }

    /// `self` after `change` to the signals.
    pub fn with(mut self, change: impl FnOnce(&mut Signals)) -> Self {
        change(&mut self.signals);
        self
    }

    pub fn view(&self) -> ClusterView<'_> {
        ClusterView {
            now: self.now,
            instances: &self.instances,
            signals: &self.signals,
            staleness: Staleness::default(),
            versions: Versions::default(),
            in_flight_changes: super::Changes::UNKNOWN,
            tenants_in_flight: &self.tenants_in_flight,
            scores: &[],
        }
    }
}

/// A request of `blocks` full prompt blocks and 3 more tokens; `shared` are its leading blocks.
pub(super) fn request(id: u32, blocks: u32, shared: &[Span]) -> Request {
    let mut request = Request::new(RequestId(id), Micros(u64::from(id)), blocks * BLOCK_SIZE + 3, 10);
    request.content = Content::shared(shared);
    request
}

/// The view of a request without a class.
pub(super) fn view_of(request: &Request) -> RequestView<'_> {
    RequestView::new(request, 3, BLOCK_SIZE)
}
