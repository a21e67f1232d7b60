//! Conversations: the tokens that pile up from round to round, the KV blocks they are in, and how a
//! session goes on and ends.
//!
//! What specifications and recorded traces have in common; the rounds themselves come from there.

use std::num::NonZeroU32;

use blis_sim::cluster::SessionStates;
use blis_sim::request::{BlockKey, Content, Span};
use blis_sim::units::Micros;

/// Hands out keys of KV blocks, one after the other.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    /// Tokens per KV block.
    block_size: u32,
    /// As long as there are any.
    next: Option<BlockKey>,
}

impl Keys {
    pub fn new(block_size: NonZeroU32, first: BlockKey) -> Self {
        Self { block_size: block_size.get(), next: Some(first) }
    }

    /// Keys for `len` blocks. There are 2^32 of them; what comes after is shared with nobody.
    fn take(&mut self, len: u32) -> Option<Span> {
        let first = self.next?;
        self.next = first.checked_add(len);
        if self.next.is_none() {
            tracing::warn!("more than 2^32 shareable KV blocks: later rounds of sessions find nothing of earlier ones");
        }
        self.next.map(|_| Span { first, len })
    }
}

/// The tokens of a conversation so far, and the keys of their full blocks.
#[derive(Clone, Debug, Default)]
pub(super) struct Context {
    pub tokens: u32,
    spans: Vec<Span>,
    /// Number of blocks in `spans`.
    blocks: u32,
}

impl Context {
    /// Nothing but so many tokens, of which the first are in the blocks of `prefix`.
    pub fn new(tokens: u32, prefix: &[Span]) -> Self {
        let spans: Vec<Span> = prefix.iter().copied().filter(|span| span.len > 0).collect();
        Self { tokens, blocks: spans.iter().map(|span| span.len).sum(), spans }
    }

    /// So many tokens, whose blocks are of no interest.
    pub fn unshared(tokens: u32) -> Self {
        Self { tokens, ..Self::default() }
    }

    /// The conversation goes on to `tokens`, and will be continued.
    pub fn extend(&mut self, tokens: u32, keys: &mut Keys) {
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

    /// It ended earlier than thought.
    pub fn shorten(&mut self, tokens: u32, keys: &Keys) {
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

    /// Of a request that starts with it.
    pub fn content(&self) -> Content {
        Content::shared(&self.spans)
    }
}

/// How a request of a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// When its client had the whole answer, or gave up.
    pub at: Micros,
    /// Length of the answer as the client keeps it, tokens.
    pub generated_tokens: u32,
    /// Whether it was answered.
    pub status: EndStatus,
}

/// Whether a request was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndStatus {
    /// It was, if need be up to the limit of its length.
    Completed,
    /// It was not: it timed out, was dropped or rejected.
    Failed,
}

/// What became of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SessionState {
    /// It waits for an answer.
    #[default]
    Active,
    /// All its rounds were answered.
    Completed,
    /// A round was not.
    Cancelled,
    /// The next round would come too late.
    HorizonInterrupted,
    /// There were enough requests.
    BudgetExhausted,
}

impl SessionState {
    /// Where sessions of this state are counted.
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
