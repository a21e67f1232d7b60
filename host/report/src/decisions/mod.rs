//! The decision trace: every decision of a run as a line of JSON, with what the policy saw, and later
//! what became of the request. docs/decisions.md describes it, docs/decision-trace.schema.json defines it.
//!
//! ```text
//! simulation → write (an Observer) → FILE.jsonl[.gz] → read (checked, line by line) → list   every line, for people
//!                                                                              ├→ story  one request
//!                                                                              ├→ top    the worst decisions
//!                                                                              └→ diff   two runs
//! ```
//!
//! Reading and writing keep what is live, not what has been; only `diff` keeps a few numbers of every request.

mod diff;
mod json;
mod line;
mod list;
mod read;
mod seen;
mod story;
mod table;
mod top;
mod write;

pub use diff::Diff;
pub use line::{Header, InstanceGroup, Kind, Line, PolicyNames};
pub use list::{Filter, Listing};
pub use read::Reader;
pub use story::Story;
pub use top::{Top, TopBy};
pub use write::{DecisionLog, TraceFile};

/// The first line of a trace says so.
pub const FORMAT: &str = "blis-decisions";

/// Of the format. Whatever changes it makes a new one.
pub const VERSION: u32 = 1;

#[cfg(test)]
mod tests;
