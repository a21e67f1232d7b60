//! A request as the simulator sees it: numbers, no strings.
//!
//! Names (tenant, session, class …) are numbers here; the workload keeps the text for each.

use std::borrow::Cow;
use std::sync::Arc;

use crate::ids::RequestId;
use crate::sampling::SamplingParams;
use crate::units::Micros;

/// One request of the workload.
///
/// The fields that are read once more when the request ends lie together, in the first cache line.
#[derive(Clone, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Request {
    /// Unique index in the workload; written as `request_<id>`.
    pub id: RequestId,
    /// Length of the prompt, tokens.
    pub input_tokens: u32,
    /// Output length, tokens. Only the engine may read it: no policy sees it.
    pub output_tokens: u32,
    /// The metadata that the client sent with the request.
    pub tags: Tags,
    /// The sampling parameters that the client set.
    pub sampling: SamplingParams,
    /// The part of it that the instance executes to which it is dispatched.
    pub stage: Stage,
    /// Time at which it reaches the service.
    pub arrival: Micros,
    /// Priority on the instance: lower is served first, as in vLLM. The cluster's priority policy sets it when the
    /// request is dispatched to an instance.
    pub priority: i64,
    /// Time at which the client times out (absolute); `None` if never.
    pub deadline: Option<Micros>,
    /// The client's limit on output tokens (`max_tokens`); `None` if it set none.
    pub max_output_tokens: Option<u32>,
    /// Priority set by the client: lower is served first (vLLM's `priority`); `None` if it left that to the service.
    pub client_priority: Option<i32>,
    /// Prompt tokens that are embeddings of images, audio or video and new in this request: a round of a session does not count
    /// those of earlier rounds.
    pub media_tokens: u32,
    /// Leading tokens of its prompt of which a decode instance keeps the KV blocks of an earlier turn of the session, for its prefill to
    /// read; 0 if there is none.
    pub remote_tokens: u32,
    /// The time from which on these blocks are gone.
    pub remote_until: Micros,
    /// The KV blocks of the request that may equal blocks of other requests.
    pub content: Content,
}

// Larger ones are moved by calls instead of in registers.
const _: () = assert!(size_of::<Request>() <= 120);

/// The part of a request that one instance executes, if prefill is apart from decode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stage {
    /// All of it.
    #[default]
    Whole,
    /// The prompt and one token, which is discarded. Its KV blocks stay until the decode instance has read them.
    Prefill,
    /// Everything behind the prompt, of which the KV blocks come from a prefill instance.
    Decode,
}

impl Request {
    /// A request without metadata, deadline, limits or shared blocks.
    #[must_use]
    pub fn new(id: RequestId, arrival: Micros, input_tokens: u32, output_tokens: u32) -> Self {
        Self {
            id,
            arrival,
            input_tokens,
            output_tokens,
            max_output_tokens: None,
            deadline: None,
            client_priority: None,
            priority: 0,
            sampling: SamplingParams::default(),
            tags: Tags::default(),
            stage: Stage::Whole,
            media_tokens: 0,
            remote_tokens: 0,
            remote_until: Micros::ZERO,
            content: Content::UNIQUE,
        }
    }
}

/// Index of a name in the workload's table. Equal names have equal indices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Name(pub u32);

impl Name {
    /// No name was given.
    pub const NONE: Self = Self(0);

    /// Index of the name in a column over names.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Metadata of a request, as a production service would have it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tags {
    /// Service class, such as `critical` or `batch`.
    pub slo_class: Name,
    /// The tenant that is billed for the request.
    pub tenant: Name,
    /// The session (conversation) that the request belongs to.
    pub session: Name,
    /// The model that the request names.
    pub model: Name,
    /// The client of the load generator that sent it.
    pub client: Name,
    /// The prefix group: requests of one group start with the same tokens.
    pub prefix_group: Name,
    /// Index of the round in its session, from 0.
    pub round_index: u32,
    /// The LoRA adapter that the request names; [`Name::NONE`] for the base model.
    pub adapter: Name,
}

/// Identity of a KV block that several requests may share: an index assigned when the workload was loaded. Equal key ⇔
/// equal tokens in the block *and in everything before it*.
pub type BlockKey = u32;

/// A run of consecutive block keys: `first, first + 1, … first + len - 1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Key of the first block of the run.
    pub first: BlockKey,
    /// Number of blocks in the run.
    pub len: u32,
}

/// The full KV blocks of a request, from its first token on, that may be shared with other requests through the prefix
/// cache. Blocks behind them are unique to the request: only the request itself may find them again (after a
/// preemption). The spans cover the prompt and, where its tokens are known, the output.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Content {
    /// One more pointer than needed, so that the field is small where there are no spans.
    spans: Option<Arc<Box<[Span]>>>,
}

impl Content {
    /// No block is shared with any other request.
    pub const UNIQUE: Self = Self { spans: None };

    /// The shareable blocks in the order of the tokens.
    #[must_use]
    pub fn shared(spans: &[Span]) -> Self {
        if spans.iter().all(|span| span.len == 0) { Self::UNIQUE } else { Self { spans: Some(Arc::new(spans.into())) } }
    }

    /// The runs of shareable blocks, in order.
    #[must_use]
    pub fn spans(&self) -> &[Span] {
        self.spans.as_deref().map_or(&[], |spans| spans)
    }

    /// Number of leading blocks that are shareable.
    #[must_use]
    pub fn shared_blocks(&self) -> u32 {
        self.spans().iter().map(|span| span.len).sum()
    }

    /// The key of each shareable block, in order.
    pub fn keys(&self) -> impl Iterator<Item = BlockKey> + '_ {
        self.spans().iter().flat_map(|span| span.first..span.first + span.len)
    }
}

/// The text of a session, where `texts` are all names of the workload by index: its own text, or `sess_0` for the first
/// index beyond them, `sess_1` for the next.
#[must_use]
pub fn session_text(texts: &[Box<str>], session: Name) -> Cow<'_, str> {
    match texts.get(session.index()) {
        Some(text) => Cow::Borrowed(text),
        None if session == Name::NONE => Cow::Borrowed(""),
        None => Cow::Owned(format!("sess_{}", session.index() - texts.len().min(session.index()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_run_through_the_spans() {
        let content = Content::shared(&[Span { first: 10, len: 2 }, Span { first: 3, len: 1 }]);
        assert_eq!(content.keys().collect::<Vec<_>>(), [10, 11, 3]);
        assert_eq!(content.shared_blocks(), 3);
        assert_eq!(Content::shared(&[]), Content::UNIQUE);
    }
}
