//! The decision trace: every decision of a run as a line of JSON, with the signals of the policy, and later the outcome
//! of the request. docs/decisions.md describes it, docs/decision-trace.schema.json defines it.
//!
//! ```text
//! simulation → write (an Observer) → FILE.jsonl[.gz] → read (checked, line by line) → list   every line, for people
//!                                                                              ├→ story  one request
//!                                                                              ├→ top    the worst decisions
//!                                                                              ├→ diff   two runs
//!                                                                              └→ replay the decisions of a plugin
//! ```
//!
//! Memory of reading and writing does not grow with the trace; only `diff` keeps a few numbers of every request.

mod diff;
mod gateway;
mod history;
mod json;
mod line;
mod list;
mod read;
mod replay;
mod seen;
mod table;
mod top;
mod view;
mod write;

pub use diff::Diff;
pub use history::RequestHistory;
pub use line::{DecisionHeader, InstanceGroup, LineKind, PolicyNames, TraceLine};
pub use list::{LineFilter, Listing};
pub use read::{TraceReader, cut_off};
pub use replay::{PolicyReplay, ReplayError, ReplayedParameters, ReplayedPolicy, is_replayable};
pub use top::{Top, TopBy};
pub use write::{DecisionLog, TraceFile};

/// The `format` in the first line of a trace.
pub const FORMAT: &str = "blis-decisions";

/// Version of the format. Any change of the format needs a new one.
pub const VERSION: u32 = 1;

#[cfg(test)]
mod tests;
