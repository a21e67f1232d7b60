//! One row of a trace in any format.

use blis_sim::ids::RequestId;
use blis_sim::request::Tags;

use super::prefix::PathNode;

/// One request of a trace. `terms`: its properties beside lengths, which depend on the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TraceRow<T = NoMetadata> {
    /// Time of arrival on the clock of the trace, µs.
    pub arrival: u64,
    pub id: RequestId,
    pub input: u32,
    pub output: u32,
    pub prefix: PathNode,
    pub terms: T,
}

/// The properties of a request beside its lengths. Most formats record few of them.
pub(super) trait RequestMetadata: Copy + Send + 'static {
    /// The client's limit of output tokens. It must not be guessed from the output length: policies may see the limit,
    /// but not the length.
    fn max_output_tokens(self) -> Option<u32> {
        None
    }
    /// Time from its arrival to its deadline, µs; negative if the deadline was earlier.
    fn time_to_deadline(self) -> Option<i64> {
        None
    }
    fn client_priority(self) -> Option<i32> {
        None
    }
    fn tags(self) -> Tags {
        Tags::default()
    }
    /// Prompt tokens of images, audio and video.
    fn media_tokens(self) -> u32 {
        0
    }
}

/// The format records no such property.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NoMetadata;

impl RequestMetadata for NoMetadata {}

/// The properties that the newer formats record: names, and sometimes the limit of output tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct NamedMetadata {
    pub tags: Tags,
    pub max_output_tokens: Option<u32>,
}

impl RequestMetadata for NamedMetadata {
    fn max_output_tokens(self) -> Option<u32> {
        self.max_output_tokens
    }
    fn tags(self) -> Tags {
        self.tags
    }
}
