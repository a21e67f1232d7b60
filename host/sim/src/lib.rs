//! The simulator of BLIS: requests, one clock, serving instances, a KV cache and latency models.
//!
//! Pure: it names no file, reads no clock, starts no thread and hosts no plugin technology.
//!
//! Start with [`run()`], then [`instance`].

pub mod capacity;
pub mod instance;
pub mod kv;
pub mod latency;
pub mod metrics;
pub mod model;
pub mod outcome;
pub mod policy;
pub mod request;
pub mod rng;
mod run;
pub mod semantics;
pub mod units;

pub use run::run;
