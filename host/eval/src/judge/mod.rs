//! Evaluation of candidates on suites.
//!
//! ```text
//! candidate ─┐
//!            ├─ EvaluationSuite: configurations, workloads, shared runs ── EvaluationContext: runs of one candidate
//! suite ─────┘                                                              │ cascade
//!                                   document ◄── feedback ◄── CascadeResult ┘
//! ```

pub mod bench;
pub mod cache;
pub mod candidate;
pub mod evaluate;
pub mod held_out;
pub mod native;
pub mod server;
pub mod shard;
pub mod shinka;
pub mod terms;
pub mod tune;
