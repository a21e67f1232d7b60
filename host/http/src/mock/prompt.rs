//! Prompts as tokens, and the KV blocks that they share.
//!
//! Token ids are tokens. Text is divided without the model's vocabulary: each word, with the space before it, is a token
//! for every 6 bytes that it begins. What a prompt shares with another is therefore exact, and the number of tokens of
//! text is an estimate. The words of outputs are a token each, so that an output which comes back in the next prompt of
//! its session is found in the prefix cache.

use blis_sim::request::{BlockKey, Content, Span};
use rustc_hash::FxHashMap;

use crate::hash::mix;

/// Tokens of English text have about 4 letters and a space.
const TOKEN_BYTES: usize = 6;

/// Words of outputs, a token each.
const WORDS: [&str; 16] = [
    " alpha", " bravo", " delta", " echo", " golf", " hotel", " india", " kilo", " lima", " mike", " oscar", " papa",
    " quad", " romeo", " tango", " zulu",
];

/// The identity of a token: equal tokens have equal numbers.
pub(super) type Token = u64;

/// A token that the client named by its id.
pub(super) fn token_of_id(id: u64) -> Token {
    mix(id, 1)
}

/// Appends the tokens of `text`.
pub(super) fn tokens_of_text(text: &str, tokens: &mut Vec<Token>) {
    let bytes = text.as_bytes();
    let mut start = 0;
    while start < bytes.len() {
        let mut end = start + 1;
        while end < bytes.len() && end - start < TOKEN_BYTES && !bytes[end].is_ascii_whitespace() {
            end += 1;
        }
        tokens.push(bytes[start..end].iter().fold(2, |hash, &byte| mix(hash, u64::from(byte))));
        start = end;
    }
}

/// The word of output token `index` of a request; `seed` differs between requests.
pub(super) fn word(seed: u64, index: u32) -> &'static str {
    WORDS[(mix(seed, u64::from(index)) % WORDS.len() as u64) as usize]
}

/// The KV blocks of every prompt and output so far.
pub(super) struct BlockIndex {
    block_size: usize,
    /// Keys of blocks by the hash of their tokens and all before; recently found ones, and the others.
    recent: FxHashMap<u64, BlockKey>,
    older: FxHashMap<u64, BlockKey>,
    next: BlockKey,
    /// Blocks in `recent` at which the older ones are forgotten.
    most: usize,
}

impl BlockIndex {
    /// Blocks that are remembered at least, some 24 bytes each: more than the caches of a service hold.
    const REMEMBERED: usize = 4 << 20;
    /// No block is shared any more after so many different ones: instances have a few bytes for each.
    const MOST_KEYS: BlockKey = 1 << 28;

    /// No blocks; `block_size` ≥ 1 is the number of tokens of a block.
    pub fn new(block_size: u32) -> Self {
        Self {
            block_size: block_size.max(1) as usize,
            recent: FxHashMap::default(),
            older: FxHashMap::default(),
            next: 0,
            most: Self::REMEMBERED,
        }
    }

    /// The full blocks of `tokens`, which are those of a prompt and its output.
    pub fn content(&mut self, tokens: &[Token]) -> Content {
        let mut spans: Vec<Span> = Vec::new();
        let mut hash = 3;
        for block in tokens.chunks_exact(self.block_size) {
            hash = block.iter().fold(hash, |hash, &token| mix(hash, token));
            let Some(key) = self.key(hash) else { break };
            match spans.last_mut() {
                Some(span) if span.first + span.len == key => span.len += 1,
                _ => spans.push(Span { first: key, len: 1 }),
            }
        }
        Content::shared(&spans)
    }

    fn key(&mut self, hash: u64) -> Option<BlockKey> {
        if let Some(&key) = self.recent.get(&hash) {
            return Some(key);
        }
        let key = match self.older.remove(&hash) {
            Some(key) => key,
            None if self.next >= Self::MOST_KEYS => return None,
            None => {
                self.next += 1;
                self.next - 1
            }
        };
        if self.recent.len() >= self.most {
            self.older = std::mem::take(&mut self.recent);
        }
        self.recent.insert(hash, key);
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tokens(text: &str) -> Vec<Token> {
        let mut tokens = Vec::new();
        tokens_of_text(text, &mut tokens);
        tokens
    }

    #[test]
    fn an_output_that_comes_back_is_the_same_tokens() {
        let output: Vec<&str> = (0..200).map(|index| word(7, index)).collect();
        let text = tokens(&format!("How are you?{}", output.concat()));
        let each: Vec<Token> = output.iter().flat_map(|word| tokens(word)).collect();
        assert_eq!(each.len(), output.len());
        assert!(text.ends_with(&each));
    }

    #[test]
    fn equal_beginnings_have_equal_blocks() {
        let mut index = BlockIndex::new(4);
        let ids = |ids: &[u64]| ids.iter().map(|&id| token_of_id(id)).collect::<Vec<_>>();
        let first = index.content(&ids(&[1, 2, 3, 4, 5, 6, 7, 8, 9]));
        assert_eq!(first.spans(), [Span { first: 0, len: 2 }], "the ninth token fills no block");
        let second = index.content(&ids(&[1, 2, 3, 4, 5, 6, 7, 0]));
        assert_eq!(second.keys().collect::<Vec<_>>(), [0, 2]);
        let other = index.content(&ids(&[9, 2, 3, 4, 5, 6, 7, 8]));
        assert_eq!(other.keys().collect::<Vec<_>>(), [3, 4], "a block is what is before it, too");
    }

    #[test]
    fn only_old_blocks_are_forgotten() {
        let mut index = BlockIndex { most: 2, ..BlockIndex::new(1) };
        let keys: Vec<_> = [1, 2, 1, 3, 1, 4, 5, 1, 2].map(|hash| index.key(hash)).into_iter().flatten().collect();
        assert_eq!(keys, [0, 1, 0, 2, 0, 3, 4, 0, 5], "2 was not found for long, and is another block now");
    }

    proptest! {
        /// A longer text begins with the tokens of the shorter one, up to the word that goes on.
        #[test]
        fn text_is_divided_from_its_start(start in "[a-z ]{0,60}", rest in " [a-z ]{0,60}") {
            let (short, long) = (tokens(&start), tokens(&format!("{start}{rest}")));
            prop_assert!(long.starts_with(&short));
            prop_assert_eq!(long.len(), short.len() + tokens(&rest).len());
        }

        #[test]
        fn any_text_has_tokens(text in ".{0,80}") {
            prop_assert!(tokens(&text).len() <= text.len());
            prop_assert_eq!(tokens(&text).is_empty(), text.is_empty());
        }
    }
}
