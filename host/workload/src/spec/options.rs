//! Options for generating requests.

use std::num::NonZeroU32;

use blis_sim::units::Micros;

/// Options for generating requests from a [`Spec`](super::Spec).
#[derive(Clone, Copy, Debug)]
pub struct GenerateOptions {
    /// Seed of all random numbers.
    pub seed: u64,
    /// Tokens per KV block of the engine.
    pub block_size: NonZeroU32,
    /// No request arrives at this time or later. [`Micros::MAX`] = no limit.
    pub horizon: Micros,
    /// Maximum number of requests.
    pub num_requests: Option<u64>,
    /// A timeout for all clients, which replaces their own; `Some(None)` for no deadline.
    pub timeout: Option<Option<Micros>>,
    /// As in BLIS: every request announces its output length as limit, and a round of an open session contains the outputs
    /// before it and arrives 1 µs later for each of their tokens.
    pub as_in_blis: bool,
}
