//! KV blocks that decode instances keep when their requests have completed, for the next turns of their sessions (vLLM's
//! `bidirectional_kv_xfer`, of which the proxy remembers the last turn of each conversation).

use rustc_hash::FxHashMap;

use crate::ids::{InstanceIndex, RequestId};
use crate::numbers::count;
use crate::request::{Content, Name, Request};
use crate::units::Micros;

/// A turn of which a decode instance keeps the KV blocks.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct KeptTurn {
    pub id: RequestId,
    pub instance: InstanceIndex,
    /// When it completed, and how long its blocks stay unless a next turn has read them before.
    pub since: Micros,
    pub until: Micros,
    /// Tokens with KV: the prompt, and all of the output but the last token.
    pub tokens: u32,
    pub content: Content,
}

impl KeptTurn {
    /// Leading tokens of `next` of which it has the KV: as long as their blocks are equal.
    pub fn tokens_of(&self, next: &Request, block_size: u32) -> u32 {
        let full = self.tokens / block_size;
        let equal = self.content.keys().zip(next.content.keys()).take_while(|(one, other)| one == other);
        let equal = count(equal.count()).min(full);
        // The tokens behind the last full block follow it in both.
        let tokens = if equal == full { self.tokens } else { equal * block_size };
        tokens.min(next.input_tokens)
    }
}

/// All that decode instances keep.
#[derive(Clone, Debug, Default)]
pub(super) struct KeptKv {
    /// The last turn of each session, until another one takes it.
    last: FxHashMap<Name, KeptTurn>,
    /// All turns of which the blocks are there.
    turns: FxHashMap<RequestId, KeptBlocks>,
}

/// Blocks that are kept.
#[derive(Clone, Copy, Debug)]
struct KeptBlocks {
    instance: InstanceIndex,
    session: Name,
    /// The turn that has taken them.
    next: Option<RequestId>,
}

impl KeptKv {
    /// Keeps `turn`, the last one of `session`, which is [`Name::NONE`] if nothing can follow it.
    pub fn keep(&mut self, session: Name, turn: KeptTurn) {
        self.turns.insert(turn.id, KeptBlocks { instance: turn.instance, session, next: None });
        if session != Name::NONE {
            self.last.insert(session, turn);
        }
    }

    /// Removes and returns the last turn of `session` for the turn `next`, which is routed at `now`.
    pub fn take(&mut self, now: Micros, session: Name, next: RequestId) -> Option<KeptTurn> {
        let turn = self.last.get(&session)?;
        if !(turn.since..turn.until).contains(&now) {
            // The last turn still computes (its end is known when its last step begins), or its blocks have expired.
            return None;
        }
        self.turns.get_mut(&turn.id)?.next = Some(next);
        self.last.remove(&session)
    }

    /// The instance that keeps the blocks of `turn`, and the turn that has taken them; `None` if they are released.
    pub fn get(&self, turn: RequestId) -> Option<(InstanceIndex, Option<RequestId>)> {
        self.turns.get(&turn).map(|kept| (kept.instance, kept.next))
    }

    /// The blocks of `turn` are released. Returns whether they were there.
    pub fn release(&mut self, turn: RequestId) -> bool {
        let Some(KeptBlocks { session, .. }) = self.turns.remove(&turn) else { return false };
        if self.last.get(&session).is_some_and(|last| last.id == turn) {
            self.last.remove(&session);
        }
        true
    }

    /// Removes and returns the turns of which `instance` keeps the blocks, in no order.
    pub fn forget(&mut self, instance: InstanceIndex) -> Vec<RequestId> {
        self.turns.extract_if(|_, kept| kept.instance == instance).map(|(id, _)| id).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Span;

    fn turn(id: u32, tokens: u32, blocks: u32) -> KeptTurn {
        let content = Content::shared(&[Span { first: 10, len: blocks }]);
        let (since, until) = (Micros(100), Micros(200));
        KeptTurn { id: RequestId(id), instance: InstanceIndex(3), since, until, tokens, content }
    }

    #[test]
    fn a_turn_has_the_tokens_in_front_of_the_first_difference() {
        let next = |tokens, spans: &[Span]| Request {
            content: Content::shared(spans),
            ..Request::new(RequestId(9), Micros::ZERO, tokens, 1)
        };
        let longer = next(100, &[Span { first: 10, len: 6 }]);
        assert_eq!(turn(0, 75, 4).tokens_of(&longer, 16), 75, "all full blocks are equal");
        assert_eq!(turn(0, 75, 2).tokens_of(&longer, 16), 32, "the tokens of the others are unknown");
        let other = next(100, &[Span { first: 10, len: 2 }, Span { first: 50, len: 4 }]);
        assert_eq!(turn(0, 75, 4).tokens_of(&other, 16), 32);
        assert_eq!(turn(0, 75, 4).tokens_of(&next(40, &[Span { first: 10, len: 4 }]), 16), 40, "no more than it has");
    }

    #[test]
    fn the_last_turn_of_a_session_is_taken_once_while_it_is_there() {
        let mut kept = KeptKv::default();
        kept.keep(Name(1), turn(0, 75, 4));
        kept.keep(Name(1), turn(1, 99, 6));
        kept.keep(Name::NONE, turn(2, 10, 0));
        let take = |kept: &mut KeptKv, at, session| kept.take(Micros(at), session, RequestId(9)).map(|turn| turn.id.0);
        assert_eq!((take(&mut kept, 99, Name(1)), take(&mut kept, 200, Name(1))), (None, None));
        assert_eq!((take(&mut kept, 100, Name(1)), take(&mut kept, 100, Name(1))), (Some(1), None));
        assert_eq!(take(&mut kept, 100, Name::NONE), None, "nothing says that it follows");
        assert_eq!(kept.get(RequestId(0)), Some((InstanceIndex(3), None)));
        assert_eq!(kept.get(RequestId(1)), Some((InstanceIndex(3), Some(RequestId(9)))));
        assert_eq!([0, 1, 1].map(|id| kept.release(RequestId(id))), [true, true, false]);
        kept.keep(Name(1), turn(3, 75, 4));
        assert!(kept.release(RequestId(3)));
        assert_eq!(take(&mut kept, 100, Name(1)), None);
        assert_eq!(kept.forget(InstanceIndex(3)), [RequestId(2)]);
    }
}
