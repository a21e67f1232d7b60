//! Fixed prompts that are sent in turn, as inference-perf's `shared_prefix` data: request `i` has prompt `i` modulo their
//! number, so that all but the first pass finds whole prompts in the prefix cache.
//!
//! With conversations ([`UserChats`](super::chats::UserChats)), prompt `i` is the question that user `i` asks in every
//! round.

use std::sync::Arc;

use blis_sim::request::{Content, Span, Tags};
use blis_sim::rng::{Generator, Stream};

use super::error::{ExpandError, SpecFileError};
use super::lengths::Lengths;
use super::raw::{RawPromptCycle, Spanned};
use super::read::SpecReader;
use crate::MaxTokens;

/// Maximum number of prompts of one client.
const PROMPTS_MAX: u64 = 1_000_000;

/// Fixed prompts in groups. `input_distribution` gives the length of each question, `output_distribution` of its output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PromptCycle {
    /// Number of system prompts, at least 1.
    pub groups: u32,
    /// Number of prompts that begin with the same system prompt, at least 1.
    pub prompts_per_group: u32,
    /// Length of a system prompt, tokens, in front of the question.
    pub system_tokens: u32,
    /// Whether each prompt is the question of a user whose conversation grows.
    pub conversations: bool,
}

impl PromptCycle {
    /// Number of prompts.
    #[must_use]
    pub fn prompts(&self) -> u64 {
        u64::from(self.groups) * u64::from(self.prompts_per_group)
    }

    /// What is wrong, and a hint.
    pub(super) fn check(&self) -> Result<(), (String, &'static str)> {
        match self.prompts() {
            1..=PROMPTS_MAX => Ok(()),
            prompts => {
                Err((format!("{prompts} prompts, not 1 to {PROMPTS_MAX}"), "change the number of groups or prompts"))
            }
        }
    }

    /// Reads the section of a client.
    pub(super) fn parse(
        reader: &SpecReader<'_>,
        subject: &str,
        raw: &Spanned<RawPromptCycle>,
    ) -> Result<Self, SpecFileError> {
        let (subject, value) = (format!("{subject}: prompt_cycle"), &raw.value);
        let count = |key, word, least| {
            let count = reader.whole(&subject, key, word, least..=1_000_000_u32)?;
            reader.needs(&subject, key, count, raw.referenced)
        };
        let cycle = Self {
            groups: count("groups", value.groups.as_ref(), 1)?,
            prompts_per_group: count("prompts_per_group", value.prompts_per_group.as_ref(), 1)?,
            system_tokens: count("system_prompt_len", value.system_prompt_len.as_ref(), 0)?,
            conversations: reader.switch(&subject, "conversations", value.conversations.as_ref())?.unwrap_or(false),
        };
        cycle.check().map_err(|(what, hint)| reader.wrong(raw.referenced, format!("{subject}: {what}"), hint))?;
        Ok(cycle)
    }
}

/// One of the fixed prompts.
#[derive(Clone, Debug)]
pub(super) struct FixedPrompt {
    /// Prefix group and tenant: its system prompt.
    pub tags: Tags,
    pub system_tokens: u32,
    /// The blocks of the system prompt.
    pub system: Span,
    pub question_tokens: u32,
    pub output_tokens: u32,
    /// The limit of output tokens that its requests announce.
    pub max_output_tokens: Option<u32>,
    /// System prompt and question, as far as they fill whole blocks.
    pub content: Content,
}

/// The random streams of question lengths, output lengths, limits and the order of prompts.
#[derive(Clone, Copy, Debug)]
pub(super) struct PromptStreams {
    pub questions: Stream,
    pub outputs: Stream,
    pub limits: Stream,
    pub order: Stream,
}

/// The lengths of the parts of a request that differ from prompt to prompt, tokens.
#[derive(Clone, Copy, Debug)]
pub(super) struct PromptLengths<'a> {
    /// What follows the system prompt.
    pub question: &'a Lengths,
    pub output: &'a Lengths,
}

impl PromptCycle {
    /// The prompts in the order in which they are sent: at random, as inference-perf shuffles them. `tags` gives the metadata of a
    /// group, `take_keys` block keys for a number of blocks.
    pub(super) fn make(
        &self,
        PromptLengths { question, output }: PromptLengths<'_>,
        max_tokens: MaxTokens,
        streams: PromptStreams,
        block_size: u32,
        mut tags: impl FnMut(u32) -> Tags,
        mut take_keys: impl FnMut(u32) -> Result<Span, ExpandError>,
    ) -> Result<Arc<[FixedPrompt]>, ExpandError> {
        let mut prompts = Vec::new();
        for group in 0..self.groups {
            let (tags, system) = (tags(group), take_keys(self.system_tokens / block_size)?);
            for _ in 0..self.prompts_per_group {
                let number = prompts.len() as u64;
                let question_tokens = question.draw(&mut streams.questions.at(number));
                let own = (self.system_tokens + question_tokens) / block_size - system.len;
                let drawn = output.draw(&mut streams.outputs.at(number));
                let (output_tokens, max_output_tokens) =
                    max_tokens.announce(drawn, || output.scale(), streams.limits, number);
                prompts.push(FixedPrompt {
                    tags,
                    system_tokens: self.system_tokens,
                    system,
                    question_tokens,
                    output_tokens,
                    max_output_tokens,
                    content: match self.conversations {
                        true => Content::UNIQUE,
                        false => Content::shared(&[system, take_keys(own)?]),
                    },
                });
            }
        }
        shuffle(&mut prompts, &mut streams.order.at(0));
        Ok(prompts.into())
    }
}

/// Puts `items` into a random order.
fn shuffle<T>(items: &mut [T], random: &mut Generator) {
    use rand::RngExt as _;
    for last in (1..items.len()).rev() {
        items.swap(last, random.random_range(0..=last));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::super::client::{Client, Timeout};
    use super::super::options::GenerateOptions;
    use super::super::session::{EndStatus, RequestEnd};
    use super::super::specification::Spec;
    use super::super::window::{Window, WindowRate};
    use super::super::{Lengths, NoFiles, tests};
    use super::*;
    use blis_sim::request::{Name, Request};
    use blis_sim::units::Micros;

    /// 2 × 3 prompts of 40 + 60 tokens, 12 requests per second for 2 s, one every 1/12 s.
    fn spec(conversations: bool) -> Spec {
        let prompts = PromptCycle { groups: 2, prompts_per_group: 3, system_tokens: 40, conversations };
        let window = Window { rate: WindowRate::Exact(12.0), ..Window::usual(Micros(0), Micros(2_000_000)) };
        let client = Client {
            arrival: super::super::Arrival::Constant,
            windows: vec![window],
            prompts: Some(prompts),
            timeout: Timeout::Never,
            ..Client::new("load", 1.0, Lengths::Constant(60), Lengths::Constant(8))
        };
        Spec { aggregate_rate: 12.0, clients: vec![client], ..Spec::default() }
    }

    fn options() -> GenerateOptions {
        tests::options()
    }

    #[test]
    fn request_i_has_prompt_i_modulo_their_number() {
        let requests: Vec<Request> = spec(false).generate(&options()).unwrap().requests.collect();
        assert_eq!(requests.len(), 24);
        assert!(requests.iter().all(|request| (request.input_tokens, request.output_tokens) == (100, 8)));
        let keys = |at: usize| requests[at].content.keys().collect::<Vec<_>>();
        // Two whole blocks of the system prompt; 100 tokens are six blocks.
        assert!((0..18).all(|at| keys(at) == keys(at + 6) && keys(at).len() == 6));
        let prompts: BTreeSet<Vec<u32>> = (0..6).map(keys).collect();
        assert_eq!(prompts.len(), 6);
        let mut groups: BTreeMap<Vec<u32>, BTreeSet<u32>> = BTreeMap::new();
        for keys in &prompts {
            groups.entry(keys[..2].to_vec()).or_default().insert(keys[2]);
        }
        assert_eq!(groups.values().map(BTreeSet::len).collect::<Vec<_>>(), [3, 3]);
    }

    #[test]
    fn another_seed_shuffles_the_prompts() {
        let first = |seed| {
            let workload = spec(false).generate(&GenerateOptions { seed, ..options() }).unwrap();
            workload.requests.take(6).map(|request| request.tags.prefix_group).collect::<Vec<_>>()
        };
        assert_eq!(first(1), first(1));
        assert!((2..9).any(|seed| first(seed) != first(1)));
    }

    fn end(at: u64) -> RequestEnd {
        RequestEnd { at: Micros(at), generated_tokens: 8, status: EndStatus::Completed }
    }

    /// The seventh request is the second round of the first user: it is sent after 7/12 s and waits until the first round ends. Its prompt
    /// has the 40 + 60 tokens of the first one, 8 of the output and 60 of the question.
    #[test]
    fn a_round_waits_for_the_one_before_and_contains_it() {
        let (mut requests, _) = spec(true).requests(&options()).unwrap();
        let starts: Vec<Request> = requests.by_ref().map(|drawn| drawn.request).collect();
        assert_eq!(starts.len(), 6, "all others wait");
        let sessions: BTreeSet<Name> = starts.iter().map(|request| request.tags.session).collect();
        assert_eq!(sessions.len(), 6);
        let first = &starts[0];
        let late = requests.ended(first.tags.session, end(1_000_000)).unwrap();
        assert_eq!((late.arrival, late.input_tokens, late.tags.round_index), (Micros(1_000_000), 168, 1));
        let (before, after): (Vec<_>, Vec<_>) = (first.content.keys().collect(), late.content.keys().collect());
        assert_eq!(before[..], after[..before.len()], "6 blocks of the first round with its output");
        let early = requests.ended(starts[1].tags.session, end(200_000)).unwrap();
        assert_eq!(early.arrival, Micros(8 * 83_333), "not before the load sends it");
    }

    #[test]
    fn a_failed_round_leaves_the_conversation_as_it_was() {
        let (mut requests, _) = spec(true).requests(&options()).unwrap();
        let first = requests.next().unwrap().request;
        requests.by_ref().for_each(drop);
        let failed = RequestEnd { status: EndStatus::Failed, ..end(900_000) };
        let next = requests.ended(first.tags.session, failed).unwrap();
        assert_eq!((next.input_tokens, next.tags.round_index), (100, 1));
        let third = requests.ended(first.tags.session, end(1_500_000)).unwrap();
        assert_eq!(third.input_tokens, 168);
    }

    #[test]
    fn a_specification_with_prompts_comes_back() {
        for conversations in [false, true] {
            let spec = spec(conversations);
            assert_eq!(Spec::parse("s.yaml", &spec.to_string(), &NoFiles).unwrap(), spec);
        }
        let text = spec(false).to_string().replace("groups: 2", "groups: 0");
        insta::assert_snapshot!(Spec::parse("s.yaml", &text, &NoFiles).unwrap_err(), @r"
        s.yaml:9:29: client `load`: prompt_cycle: `groups` is `0`
          9 |     prompt_cycle: { groups: 0, prompts_per_group: 3, system_prompt_len: 40, conversations: false }
            |                             ^
        hint: it must be a whole number from 1 to 1000000
        ");
    }
}
