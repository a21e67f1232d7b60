//! Prompts for requests of a workload: so many tokens, and equal where the workload says so.
//!
//! A workload says which KV blocks of prompts are equal, not what they contain. Here their content follows from the key of
//! the block, or from the number of the request where it is its own, and from the salt of the run, so that no cache
//! knows a prompt from an earlier run.

use blis_sim::request::Request;

use crate::hash::mix;

/// Token ids that every vocabulary of 32000 tokens or more has, without the special ones at its start.
const FIRST_ID: u64 = 1_000;
const IDS: u64 = 29_000;

/// Words of prompts as text: short ones, each of which is a token in most vocabularies.
const WORDS: [&str; 32] = [
    " time", " year", " way", " day", " man", " thing", " woman", " life", " child", " state", " group", " hand",
    " part", " case", " week", " work", " night", " point", " home", " water", " room", " road", " book", " house",
    " light", " music", " paper", " river", " table", " green", " white", " small",
];

/// The content of prompts of one run.
#[derive(Clone, Copy, Debug)]
pub(super) struct PromptText {
    /// Another number in every run.
    pub salt: u64,
    /// Tokens per KV block of the workload, ≥ 1.
    pub block_size: u32,
}

/// How many tokens the server counts in text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct TokensPerWord {
    /// Tokens of a prompt without words: the chat template.
    pub around: f64,
    /// Tokens of a word, > 0.
    pub each: f64,
}

impl TokensPerWord {
    /// From prompts of `words` words and the tokens that the server counted; `None` if they make no sense.
    pub fn measured(words: [u32; 2], tokens: [u32; 2]) -> Option<Self> {
        let each = (f64::from(tokens[1]) - f64::from(tokens[0])) / (f64::from(words[1]) - f64::from(words[0]));
        let around = f64::from(tokens[0]) - each * f64::from(words[0]);
        (each.is_finite() && (0.2..=8.0).contains(&each)).then_some(Self { around: around.max(0.0), each })
    }

    /// The number of words with that many tokens, at least one.
    fn words(self, tokens: f64) -> u32 {
        (tokens / self.each).round().max(1.0) as u32
    }
}

impl PromptText {
    /// The prompt of `request` as token ids, exactly as many as it has.
    pub fn ids(self, request: &Request) -> Vec<u64> {
        self.hashes(request, request.input_tokens, f64::from(self.block_size))
            .map(|hash| FIRST_ID + hash % IDS)
            .collect()
    }

    /// The prompt of `request` as words, by what the server counts for a word.
    pub fn text(self, request: &Request, count: TokensPerWord) -> String {
        let words = count.words(f64::from(request.input_tokens) - count.around);
        self.words(self.hashes(request, words, f64::from(self.block_size) / count.each))
    }

    /// Words of `request` alone, which have `tokens` tokens: what a round adds to a conversation.
    pub fn added(self, request: &Request, tokens: u32, count: TokensPerWord) -> String {
        let own = mix(mix(self.salt, 1), u64::from(request.id.0));
        self.words((0..count.words(f64::from(tokens))).map(|position| mix(own, u64::from(position))))
    }

    /// `count` hashes, each the identity of a token or word, of which a block has `per_block`.
    fn hashes(self, request: &Request, count: u32, per_block: f64) -> impl Iterator<Item = u64> {
        let own = mix(mix(self.salt, 1), u64::from(request.id.0));
        let shared: Vec<u64> = request.content.keys().map(|key| mix(mix(self.salt, 2), u64::from(key))).collect();
        (0..count).map(move |position| {
            let block = (f64::from(position) / per_block) as usize;
            mix(shared.get(block).copied().unwrap_or(own), u64::from(position))
        })
    }

    /// A prompt of `words` words for the measurement of tokens.
    pub fn probe(self, words: u32) -> String {
        self.words((0..words).map(|position| mix(mix(self.salt, 3), u64::from(position))))
    }

    fn words(self, hashes: impl Iterator<Item = u64>) -> String {
        hashes.map(|hash| WORDS[(hash % WORDS.len() as u64) as usize]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use blis_sim::ids::RequestId;
    use blis_sim::request::{Content, Span};
    use blis_sim::units::Micros;
    use proptest::prelude::*;

    fn request(id: u32, tokens: u32, spans: &[Span]) -> Request {
        Request { content: Content::shared(spans), ..Request::new(RequestId(id), Micros::ZERO, tokens, 1) }
    }

    #[test]
    fn equal_blocks_are_equal_tokens_and_others_are_not() {
        let prompts = PromptText { salt: 5, block_size: 16 };
        let common = Span { first: 7, len: 2 };
        let one = prompts.ids(&request(1, 50, &[common]));
        let two = prompts.ids(&request(2, 40, &[common, Span { first: 100, len: 1 }]));
        assert_eq!((one.len(), two.len()), (50, 40));
        assert_eq!(one[..32], two[..32]);
        assert!(one[32..40] != two[32..]);
        let other_run = PromptText { salt: 6, ..prompts }.ids(&request(1, 50, &[common]));
        assert!(other_run[..16] != one[..16], "another run has other prompts");
    }

    #[test]
    fn words_are_counted_by_the_server() {
        let count = TokensPerWord::measured([100, 300], [130, 370]).expect("sensible");
        assert_eq!(count, TokensPerWord { around: 10.0, each: 1.2 });
        let prompts = PromptText { salt: 5, block_size: 16 };
        let text = prompts.text(&request(1, 610, &[]), count);
        assert_eq!(text.split_whitespace().count(), 500);
        assert_eq!(TokensPerWord::measured([100, 300], [50, 50]), None);
    }

    proptest! {
        #[test]
        fn a_prompt_has_the_tokens_of_its_request(tokens in 1..3000_u32, salt: u64, block_size in 1..64_u32) {
            let ids = PromptText { salt, block_size }.ids(&request(3, tokens, &[Span { first: 0, len: 2 }]));
            prop_assert_eq!(ids.len(), tokens as usize);
            prop_assert!(ids.iter().all(|id| (1000..30_000).contains(id)));
        }
    }
}
