//! A request as the simulator sees it: numbers, no strings.
//!
//! Names (tenant, session, class …) stay with the workload, which knows them by [`Request::id`].

use std::sync::Arc;

use crate::units::Micros;

/// One request on its way in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Number in the workload, unique; written as `request_<id>`.
    pub id: u32,
    /// When it reaches the service.
    pub arrival: Micros,
    /// Prompt length, tokens.
    pub input_tokens: u32,
    /// Length of the answer, tokens. Only the engine may look: no policy sees it.
    pub output_tokens: u32,
    /// The client's budget for the answer (`max_tokens`), tokens; `None` if it gave none.
    pub max_output_tokens: Option<u32>,
    /// When the client gives up (absolute); `None` if never.
    pub deadline: Option<Micros>,
    /// Instance priority: lower is more urgent, as in vLLM. See [`class_priority`].
    pub priority: i32,
    /// Which of its KV blocks may equal blocks of other requests.
    pub content: Content,
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
    spans: Option<Arc<[Span]>>,
}

impl Content {
    /// Nothing in common with any other request.
    pub const UNIQUE: Self = Self { spans: None };

    /// Shared blocks in the order of the tokens.
    #[must_use]
    pub fn shared(spans: &[Span]) -> Self {
        if spans.iter().all(|span| span.len == 0) { Self::UNIQUE } else { Self { spans: Some(spans.into()) } }
    }

    /// The runs, in order.
    #[must_use]
    pub fn spans(&self) -> &[Span] {
        self.spans.as_deref().unwrap_or(&[])
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

/// Instance priority of an SLO class: lower is more urgent.
///
/// BLIS gives each class a number, bigger for more urgent (critical 4, standard 3, batch −1,
/// sheddable −2, background −3, anything else 3), and hands the instance `4 − number`.
#[must_use]
pub fn class_priority(class: &str) -> i32 {
    const MOST_URGENT: i32 = 4;
    let cluster = match class {
        "critical" => 4,
        "batch" => -1,
        "sheddable" => -2,
        "background" => -3,
        _ => 3,
    };
    MOST_URGENT - cluster
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_rank_as_in_blis() {
        let ranks = ["critical", "standard", "", "batch", "sheddable", "background", "gold"].map(class_priority);
        assert_eq!(ranks, [0, 1, 1, 5, 6, 7, 1]);
    }

    #[test]
    fn keys_run_through_the_spans() {
        let content = Content::shared(&[Span { first: 10, len: 2 }, Span { first: 3, len: 1 }]);
        assert_eq!(content.keys().collect::<Vec<_>>(), [10, 11, 3]);
        assert_eq!(content.shared_blocks(), 3);
        assert_eq!(Content::shared(&[]), Content::UNIQUE);
    }
}
