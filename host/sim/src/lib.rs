//! The simulator of BLIS: requests, one clock, serving instances, a KV cache and latency models.
//!
//! Pure: it names no file, reads no clock, starts no thread and hosts no plugin technology.

pub mod latency;
pub mod metrics;
pub mod outcome;
pub mod request;
pub mod rng;
pub mod units;
