//! Prompt tokens in flight: those of requests that were sent to an instance and have no first token yet, without the
//! tokens that the instance had in its prefix cache when it was chosen. The router computes them from what it did and
//! from the responses that pass through it, so they are never stale (llm-d's `inflight-load-producer`).

use rustc_hash::FxHashMap;

use crate::ids::{InstanceIndex, RequestId};
use crate::policy::{ClusterView, Event, Events, RequestView};

/// The events that end the prefill of a request.
pub(super) const EVENTS: Events = Events { first_token: true, completed: true, ended: true, ..Events::NONE };

/// Uncached prompt tokens in flight, by instance.
#[derive(Clone, Debug, Default)]
pub(super) struct PromptTokens {
    /// Sum over the requests, indexed by the number of the instance.
    sums: Vec<u64>,
    /// Instance number and uncached tokens of every request without a first token, by its id.
    requests: FxHashMap<RequestId, (InstanceIndex, u32)>,
    /// The columns of the decision at hand.
    columns: Vec<InstanceTokens>,
}

/// Tokens of an instance, for one decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InstanceTokens {
    /// Number of the instance.
    pub number: InstanceIndex,
    /// Tokens of the prompt in its prefix cache.
    pub cached: u32,
    /// Tokens of the prompt that are not.
    pub uncached: u32,
    /// Uncached prompt tokens of the requests in flight.
    pub in_flight: u64,
}

impl InstanceTokens {
    /// Uncached tokens in flight if the request is sent to the instance.
    pub fn with_request(&self) -> u64 {
        self.in_flight + u64::from(self.uncached)
    }
}

impl PromptTokens {
    /// Computes the columns for a decision about `request`.
    pub fn update(&mut self, request: &RequestView<'_>, cluster: &ClusterView<'_>) {
        self.columns.clear();
        self.columns.extend(cluster.instances.iter().zip(&cluster.signals.cached_blocks).map(|(instance, blocks)| {
            let number = instance.id;
            let cached = blocks.saturating_mul(request.block_size).min(request.input_tokens);
            let in_flight = self.sums.get(number.index()).copied().unwrap_or(0);
            InstanceTokens { number, cached, uncached: request.input_tokens - cached, in_flight }
        }));
    }

    /// A row for every instance of the decision at hand.
    pub fn columns(&self) -> &[InstanceTokens] {
        &self.columns
    }

    /// Adds `request`, that of the decision at hand, to instance number `number`.
    pub fn dispatched(&mut self, request: &RequestView<'_>, number: InstanceIndex) {
        let Some(row) = self.columns.iter().find(|row| row.number == number) else { return };
        let index = number.index();
        if index >= self.sums.len() {
            self.sums.resize(index + 1, 0);
        }
        self.sums[index] += u64::from(row.uncached);
        self.requests.insert(request.id, (number, row.uncached));
    }

    /// Removes a request that has its first token, or will have none.
    pub fn observe(&mut self, event: &Event) {
        if let Some((number, tokens)) = self.requests.remove(&event.request) {
            self.sums[number.index()] -= u64::from(tokens);
        }
    }
}
