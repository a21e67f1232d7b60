//! Conversations: the tokens that accumulate from round to round, their KV blocks, and how a session continues and
//! ends.
//!
//! Specifications and recorded traces both use this; they generate the rounds.

use std::num::NonZeroU32;

use blis_sim::cluster::SessionStates;
use blis_sim::request::{BlockKey, Content, Span};
use blis_sim::units::Micros;

/// Allocates consecutive keys of KV blocks.
#[derive(Clone, Debug)]
pub(super) struct KeyAllocator {
    /// Tokens per KV block.
    block_size: u32,
    /// The next key; `None` if all are used up.
    next: Option<BlockKey>,
}

impl KeyAllocator {
    pub fn new(block_size: NonZeroU32, first: BlockKey) -> Self {
        Self { block_size: block_size.get(), next: Some(first) }
    }

    /// Keys for `len` blocks. There are 2^32 keys; blocks beyond that are never shared.
    fn take(&mut self, len: u32) -> Option<Span> {
        let first = self.next?;
        self.next = first.checked_add(len);
        if self.next.is_none() {
            tracing::warn!(
                "more than 2^32 shareable KV blocks: later rounds of sessions have no prefix-cache hits on earlier ones"
            );
        }
        self.next.map(|_| Span { first, len })
    }
}

/// The tokens of a conversation so far, and the keys of their full blocks.
#[derive(Clone, Debug, Default)]
pub(super) struct Conversation {
    pub tokens: u32,
    spans: Vec<Span>,
    /// Number of blocks in `spans`.
    blocks: u32,
}

impl Conversation {
    /// A conversation of `tokens` tokens that begins with the blocks of `prefix`.
    pub fn new(tokens: u32, prefix: &[Span]) -> Self {
        let spans: Vec<Span> = prefix.iter().copied().filter(|span| span.len > 0).collect();
        Self { tokens, blocks: spans.iter().map(|span| span.len).sum(), spans }
    }

    /// A conversation of `tokens` tokens that shares no blocks.
    pub fn unshared(tokens: u32) -> Self {
        Self { tokens, ..Self::default() }
    }

    /// Extends the conversation to `tokens` tokens, which later rounds will contain.
    pub fn extend(&mut self, tokens: u32, keys: &mut KeyAllocator) {
        self.tokens = tokens;
        let more = (tokens / keys.block_size).saturating_sub(self.blocks);
        if more == 0 {
            return;
        }
        if let Some(span) = keys.take(more) {
            self.blocks += more;
            match self.spans.last_mut() {
                Some(last) if last.first + last.len == span.first => last.len += more,
                _ => self.spans.push(span),
            }
        }
    }

    /// Shortens the conversation to `tokens` tokens, because a round ended early.
    pub fn shorten(&mut self, tokens: u32, keys: &KeyAllocator) {
        self.tokens = tokens;
        let kept = (tokens / keys.block_size).min(self.blocks);
        while self.blocks > kept {
            let Some(last) = self.spans.last_mut() else { break };
            let surplus = (self.blocks - kept).min(last.len);
            last.len -= surplus;
            self.blocks -= surplus;
            if last.len == 0 {
                self.spans.pop();
            }
        }
    }

    /// The content of a request that begins with the conversation.
    pub fn content(&self) -> Content {
        Content::shared(&self.spans)
    }
}

/// The end of a request of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestEnd {
    /// Time at which the client had the whole output, or at which the request timed out.
    pub at: Micros,
    /// Length of the output in the next round's prompt, tokens.
    pub generated_tokens: u32,
    pub status: EndStatus,
}

/// Whether a request completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndStatus {
    /// It completed, possibly at the limit of its length.
    Completed,
    /// It timed out, was dropped or was rejected.
    Failed,
}

/// The state of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SessionState {
    /// A request of it is in flight.
    #[default]
    Active,
    Completed,
    /// A round did not complete.
    Cancelled,
    /// The next round would arrive after the horizon.
    HorizonInterrupted,
    /// The number of requests was reached.
    BudgetExhausted,
}

impl SessionState {
    /// The counter of sessions in this state.
    pub(super) fn count(self, states: &mut SessionStates) -> &mut u64 {
        match self {
            Self::Active => &mut states.active,
            Self::Completed => &mut states.completed,
            Self::Cancelled => &mut states.cancelled,
            Self::HorizonInterrupted => &mut states.horizon_interrupted,
            Self::BudgetExhausted => &mut states.budget_exhausted,
        }
    }
}
