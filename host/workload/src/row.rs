//! One row of a trace, whatever the format.

use blis_sim::request::Tags;

use super::prefix::Node;

/// One request as read. `terms`: what only some formats record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Row<T = Unrecorded> {
    /// µs on the clock of the trace.
    pub arrival: u64,
    pub id: u32,
    pub input: u32,
    pub output: u32,
    pub prefix: Node,
    pub terms: T,
}

/// What a request says beside its lengths. Most formats record little of it.
pub(super) trait Terms: Copy + Send + 'static {
    /// Not to be guessed from the answer's length: policies may see the budget, but never that.
    fn max_output_tokens(self) -> Option<u32> {
        None
    }
    /// From its arrival to the moment its client gives up, µs; negative if it had given up before.
    fn patience(self) -> Option<i64> {
        None
    }
    fn client_priority(self) -> Option<i32> {
        None
    }
    fn tags(self) -> Tags {
        Tags::default()
    }
}

/// The format records none of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unrecorded;

impl Terms for Unrecorded {}

/// What the newer formats record: names, and sometimes the budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Said {
    pub tags: Tags,
    pub max_output_tokens: Option<u32>,
}

impl Terms for Said {
    fn max_output_tokens(self) -> Option<u32> {
        self.max_output_tokens
    }
    fn tags(self) -> Tags {
        self.tags
    }
}
