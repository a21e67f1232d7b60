//! Evaluation of candidates on suites.
//!
//! ```text
//! candidate ─┐
//!            ├─ EvaluationSuite: configurations, workloads, shared runs ── EvaluationContext: runs of one candidate
//! suite ─────┘                                                              │ cascade
//!                                   document ◄── feedback ◄── CascadeResult ┘
//! ```

pub mod cache;
pub mod candidate;
pub mod context;
mod decision_patterns;
pub mod evaluate;
pub mod fork_server;
pub mod held_out;
pub mod history;
pub mod isolated;
pub mod native;
pub mod options;
pub mod rebase;
pub mod record;
pub mod remote;
pub mod request;
pub mod run_cache;
pub mod server;
pub mod shard;
pub mod shinka;
pub mod tune;
