//! Conversations as they were held: what a session sent, and what the server wrote.

use blis_sim::request::{Name, Request};
use rustc_hash::FxHashMap;

/// A round that completed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Turn {
    /// What the round added to the conversation.
    pub prompt: String,
    /// What the server wrote.
    pub output: String,
}

/// The conversations of all sessions, by the name of the session.
pub(super) struct SessionContexts {
    held: FxHashMap<Name, HeldConversation>,
    /// Tokens per KV block of the workload, ≥ 1.
    block_size: u32,
}

#[derive(Default)]
struct HeldConversation {
    turns: Vec<Turn>,
    /// Tokens of the last prompt as planned, and of its output.
    tokens: u32,
}

impl SessionContexts {
    /// None yet, of a workload with `block_size` tokens per KV block.
    pub fn new(block_size: u32) -> Self {
        Self { held: FxHashMap::default(), block_size: block_size.max(1) }
    }

    /// The turns that the prompt of `request` continues, and the number of tokens that it adds to them. A prompt continues
    /// the conversation of its session if it is at least as long and names all its KV blocks.
    pub fn before(&self, request: &Request) -> (&[Turn], u32) {
        match self.held.get(&request.tags.session) {
            Some(held) if self.continues(request, held) => (&held.turns, request.input_tokens - held.tokens),
            _ => (&[], request.input_tokens),
        }
    }

    /// Adds the round that completed with `output_tokens` tokens.
    pub fn add(&mut self, request: &Request, turn: Turn, output_tokens: u32) {
        if request.tags.session == Name::NONE {
            return;
        }
        let continues = self.held.get(&request.tags.session).is_some_and(|held| self.continues(request, held));
        let held = self.held.entry(request.tags.session).or_default();
        if !continues {
            held.turns.clear();
        }
        held.turns.push(turn);
        held.tokens = request.input_tokens.saturating_add(output_tokens);
    }

    fn continues(&self, request: &Request, held: &HeldConversation) -> bool {
        let named: u32 = request.content.spans().iter().map(|span| span.len).sum();
        request.input_tokens >= held.tokens && named >= held.tokens / self.block_size
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use blis_sim::ids::RequestId;
    use blis_sim::request::{Content, Span, Tags};
    use blis_sim::units::Micros;
    use blis_workload::Names;

    fn request(session: Name, tokens: u32, blocks: u32) -> Request {
        let tags = Tags { session, ..Tags::default() };
        let content = Content::shared(&[Span { first: 3, len: blocks }]);
        Request { tags, content, ..Request::new(RequestId(1), Micros::ZERO, tokens, 5) }
    }

    fn turn(text: &str) -> Turn {
        Turn { prompt: text.to_owned(), output: format!("{text}!") }
    }

    #[test]
    fn a_prompt_that_has_the_conversation_before_continues_it() {
        let session = Names::default().intern("one");
        let mut conversations = SessionContexts::new(16);
        assert_eq!(conversations.before(&request(session, 40, 2)), (&[][..], 40));
        conversations.add(&request(session, 40, 2), turn("a"), 6);
        assert_eq!(conversations.before(&request(session, 60, 3)), (&[turn("a")][..], 14));
        conversations.add(&request(session, 60, 3), turn("b"), 4);
        assert_eq!(conversations.before(&request(session, 64, 4)), (&[turn("a"), turn("b")][..], 0));
        assert_eq!(conversations.before(&request(Name::NONE, 64, 4)), (&[][..], 64), "another session");
    }

    #[test]
    fn a_prompt_without_the_conversation_begins_another() {
        let session = Names::default().intern("one");
        let mut conversations = SessionContexts::new(16);
        conversations.add(&request(session, 40, 2), turn("a"), 8);
        assert_eq!(conversations.before(&request(session, 47, 3)), (&[][..], 47), "it is too short");
        assert_eq!(conversations.before(&request(session, 60, 2)), (&[][..], 60), "it has other blocks");
        conversations.add(&request(session, 60, 2), turn("b"), 1);
        assert_eq!(conversations.before(&request(session, 70, 4)), (&[turn("b")][..], 9));
    }
}
