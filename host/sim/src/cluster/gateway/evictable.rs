//! The requests in flight that may be evicted.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use crate::ids::{InstanceIndex, RequestId};
use crate::policy::flow::InFlight;

/// Requests in flight of a priority below 0, and their instances.
#[derive(Clone, Debug, Default)]
pub(super) struct EvictableRequests {
    /// In the order of their dispatch.
    requests: BTreeMap<u64, (InFlight, InstanceIndex)>,
    numbers: FxHashMap<RequestId, u64>,
    dispatched: u64,
}

impl EvictableRequests {
    pub fn add(&mut self, request: InFlight, instance: InstanceIndex) {
        self.numbers.insert(RequestId(request.id), self.dispatched);
        self.requests.insert(self.dispatched, (request, instance));
        self.dispatched += 1;
    }

    pub fn remove(&mut self, id: RequestId) {
        if let Some(number) = self.numbers.remove(&id) {
            self.requests.remove(&number);
        }
    }

    /// The instance of request `id`.
    pub fn instance(&self, id: RequestId) -> Option<InstanceIndex> {
        self.requests.get(self.numbers.get(&id)?).map(|&(_, instance)| instance)
    }

    /// The requests of a priority below `priority`, in the order of their dispatch.
    pub fn below(&self, priority: i32) -> impl Iterator<Item = InFlight> {
        self.requests.values().map(|&(request, _)| request).filter(move |request| request.priority < priority)
    }
}
