//! Policies for BLIS in Rust.
//!
//! A policy is a struct with its state; a trait for each kind of decision that it makes; and one line that exports
//! them:
//!
//! ```
//! use blis_sdk::{Cluster, Description, Policy, Request, Routing, Setup};
//! use serde::{Deserialize, Serialize};
//!
//! blis_sdk::signals! {
//!     /// What the policy reads about an instance.
//!     struct Queue { queue_depth }
//! }
//!
//! /// The shortest waiting queue.
//! #[derive(Serialize, Deserialize)]
//! struct ShortestQueue;
//!
//! impl Policy for ShortestQueue {
//!     type Signals = Queue;
//!
//!     fn describe() -> Description {
//!         Description::new("shortest-queue").about("The shortest waiting queue.")
//!     }
//!
//!     fn new(_: &Setup) -> Result<Self, String> {
//!         Ok(Self)
//!     }
//! }
//!
//! impl Routing for ShortestQueue {
//!     fn route(&mut self, _: &Request, cluster: &Cluster<'_, Queue>) -> usize {
//!         blis_sdk::argmin(cluster.instances.iter().map(|instance| instance.queue_depth))
//!     }
//! }
//!
//! blis_sdk::export_policy!(ShortestQueue: Routing);
//! # fn main() {}
//! ```
//!
//! Compiled for `wasm32-unknown-unknown` it is a sandboxed module with the exports of the WIT package
//! `blis:policy@1.1.0`; compiled for the machine at hand it is a native library with the table of
//! `sdk/c/blis_policy.h`. `sdk/rust/README.md` describes how to build both.

#![warn(missing_docs)]

mod best;
mod description;
#[doc(hidden)]
pub mod export;
mod host;
mod policy;
mod rows;
#[cfg(not(target_arch = "wasm32"))]
pub mod testing;

pub use best::{argmax, argmin};
pub use description::{Description, EventSet, GivenValue, Kind, NumberTable, Parameter, Setup};
pub use host::{Level, changed, log, pick, prompt_blocks, random, text};
pub use policy::*;
pub use rows::*;

/// Compiles the policy in the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;
