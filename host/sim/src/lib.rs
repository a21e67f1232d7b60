//! The simulator of BLIS: requests, one clock, serving instances, a KV cache and latency models.
//!
//! It is pure: it opens no file, reads no clock, starts no thread and hosts no plugin technology.
//!
//! Read [`cluster`] first, with its [`run`](cluster::Cluster::run), then [`instance`].

#![warn(missing_docs)]
// What is cut off on purpose says so in `numbers`.
#![cfg_attr(not(test), warn(clippy::cast_possible_truncation))]

pub mod adapters;
pub mod architecture;
pub mod capacity;
pub mod cluster;
pub mod cost;
pub mod energy;
pub mod engine_version;
pub mod ids;
pub mod instance;
pub mod kv;
pub mod latency;
mod limits;
pub mod memory;
pub mod metrics;
pub mod model;
mod numbers;
pub mod observer;
pub mod offload;
pub mod outcome;
pub mod policy;
mod prefetch;
pub mod replica;
pub mod request;
pub mod rng;
pub mod sampling;
pub mod scaling;
pub mod semantics;
pub mod units;
