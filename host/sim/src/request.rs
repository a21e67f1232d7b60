//! A request as the simulator sees it: numbers, no strings.
//!
//! Names (tenant, session, class …) are numbers here; the workload keeps the text behind them.

use std::borrow::Cow;
use std::sync::Arc;

use crate::units::Micros;

/// One request on its way in.
///
/// What is read once more when it ends lies together, in the first cache line.
#[derive(Clone, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Request {
    /// Number in the workload, unique; written as `request_<id>`.
    pub id: u32,
    /// Prompt length, tokens.
    pub input_tokens: u32,
    /// Length of the answer, tokens. Only the engine may look: no policy sees it.
    pub output_tokens: u32,
    /// What the request says about itself.
    pub tags: Tags,
    /// When it reaches the service.
    pub arrival: Micros,
    /// Instance priority: lower is more urgent, as in vLLM. The cluster's priority policy sets it
    /// when the request is handed to an instance.
    pub priority: i64,
    /// When the client gives up (absolute); `None` if never.
    pub deadline: Option<Micros>,
    /// The client's budget for the answer (`max_tokens`), tokens; `None` if it gave none.
    pub max_output_tokens: Option<u32>,
    /// Priority the client asks for: lower is more urgent (vLLM's `priority`); `None` if it left
    /// that to the service.
    pub client_priority: Option<i32>,
    /// Which of its KV blocks may equal blocks of other requests.
    pub content: Content,
}

impl Request {
    /// A request that says nothing else about itself.
    #[must_use]
    pub fn new(id: u32, arrival: Micros, input_tokens: u32, output_tokens: u32) -> Self {
        Self {
            id,
            arrival,
            input_tokens,
            output_tokens,
            max_output_tokens: None,
            deadline: None,
            client_priority: None,
            priority: 0,
            tags: Tags::default(),
            content: Content::UNIQUE,
        }
    }
}

/// Number of a name in the workload's table; equal names have equal numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(pub u32);

impl Name {
    /// Nothing was said.
    pub const NONE: Self = Self(0);

    /// Its place in a column over names.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// What a request says about itself, as production would know it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tags {
    /// Service class, as `critical` or `batch`.
    pub slo_class: Name,
    /// Who pays.
    pub tenant: Name,
    /// The conversation it belongs to.
    pub session: Name,
    /// The model asked for.
    pub model: Name,
    /// The load generator's client.
    pub client: Name,
    /// Requests of one group start with the same tokens.
    pub prefix_group: Name,
    /// Round in its session, from 0.
    pub round_index: u32,
}

/// Identity of a KV block that two requests may share: an index handed out when the workload was
/// loaded. Equal key ⇔ equal tokens in the block *and in everything before it*.
pub type BlockKey = u32;

/// A run of consecutive block keys: `first, first + 1, … first + len - 1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Key of the first block of the run.
    pub first: BlockKey,
    /// How many blocks.
    pub len: u32,
}

/// The full KV blocks of a request, from its first token on, that can be found in or left for
/// other requests. Blocks behind them are unique to the request, which alone may find them again
/// (after a preemption). The spans cover prompt and, where its tokens are known, output.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Content {
    /// Behind one pointer more than needed, so that this is small where there are none.
    spans: Option<Arc<Box<[Span]>>>,
}

impl Content {
    /// Nothing in common with any other request.
    pub const UNIQUE: Self = Self { spans: None };

    /// Shared blocks in the order of the tokens.
    #[must_use]
    pub fn shared(spans: &[Span]) -> Self {
        if spans.iter().all(|span| span.len == 0) { Self::UNIQUE } else { Self { spans: Some(Arc::new(spans.into())) } }
    }

    /// The runs, in order.
    #[must_use]
    pub fn spans(&self) -> &[Span] {
        self.spans.as_deref().map_or(&[], |spans| spans)
    }

    /// How many leading blocks are shareable.
    #[must_use]
    pub fn shared_blocks(&self) -> u32 {
        self.spans().iter().map(|span| span.len).sum()
    }

    /// The key of each shareable block, in order.
    pub fn keys(&self) -> impl Iterator<Item = BlockKey> + '_ {
        self.spans().iter().flat_map(|span| span.first..span.first + span.len)
    }
}

/// The text of a session, where `texts` are all names of the workload by number: its own, or `sess_0` for the
/// first number behind them, `sess_1` for the next.
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
