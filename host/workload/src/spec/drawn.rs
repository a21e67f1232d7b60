//! One request, drawn by the plan of its sender.

use blis_sim::ids::RequestId;
use blis_sim::request::{Content, Name, Request, Tags};
use blis_sim::units::Micros;

use super::client::ClientLoad;
use super::expand::SenderPlan;
use super::lengths::LONGEST;
use super::numbers::RequestNumbers;
use super::prompts::FixedPrompt;
use crate::conversation::Conversation;

/// A request with properties that the simulator does not use.
#[derive(Clone, Debug, PartialEq)]
pub struct DrawnRequest {
    /// The request, without a number until it is issued.
    pub request: Request,
    /// Tokens of text, images, audio and video in a prompt of several parts; 0 for others.
    pub parts: [u32; 4],
    /// Share of reasoning in the output, 0 to 1.
    pub reason_ratio: f64,
    /// Index of its client in the list of all senders.
    pub sender: usize,
}

impl DrawnRequest {
    /// A request whose prompt is a text, without reasoning.
    pub(super) fn text(request: Request) -> Self {
        Self { request, parts: [0; 4], reason_ratio: 0.0, sender: 0 }
    }
}

/// The start of a request or of a session.
#[derive(Clone, Copy, Debug)]
pub(super) struct SenderStart {
    pub at: Micros,
    /// Number of the start of this sender, from 0.
    pub number: u64,
    /// Index of the segment that gives the lengths.
    pub segment: usize,
    pub session: Name,
    /// Number of rounds; `None`: unlimited.
    pub rounds: Option<u32>,
}

impl SenderStart {
    /// Whether `round` is the last one.
    pub fn is_last(&self, round: u32) -> bool {
        self.rounds.is_some_and(|rounds| round + 1 >= rounds)
    }
}

impl SenderPlan {
    /// Number of rounds of start number `number`; `None`: unlimited.
    pub fn rounds(&self, number: u64) -> Option<u32> {
        let turns = match (self.client.load, self.client.multi_turn) {
            (ClientLoad::Users { .. }, _) => return None,
            (_, None) => return Some(1),
            (_, Some(turns)) => turns,
        };
        let drawn = self.client.turns.rounds.as_ref().map(|rounds| rounds.draw(&mut self.streams.rounds.at(number)));
        Some(drawn.map_or(turns.max_rounds, |rounds| rounds.min(turns.max_rounds)))
    }

    /// Number of round `round` of `start`. Rounds of all starts are numbered consecutively; users, which have unlimited
    /// rounds, get 2^32 numbers each.
    fn number(&self, start: &SenderStart, round: u32) -> u64 {
        let rounds = match (self.client.load, self.client.multi_turn) {
            (ClientLoad::Users { .. }, _) => 1 << 32,
            (_, turns) => u64::from(turns.map_or(1, |turns| turns.max_rounds)),
        };
        start.number.wrapping_mul(rounds).wrapping_add(u64::from(round))
    }

    /// Think time between the end of round `round` and the next prompt.
    pub fn think_time(&self, start: &SenderStart, round: u32) -> Micros {
        let drawn = self.client.turns.think_time_ms.as_ref().map(|think_time| {
            let ms = think_time.draw(&mut self.streams.think_times.at(self.number(start, round)));
            Micros(u64::from(ms) * 1000)
        });
        match (self.client.load, self.client.multi_turn) {
            (ClientLoad::Users { think_time, .. }, _) => think_time,
            (_, turns) => drawn.unwrap_or(turns.map_or(Micros::ZERO, |turns| turns.think_time)),
        }
    }

    /// Whether the sender sends at `time`.
    pub fn is_active(&self, time: Micros) -> bool {
        let (clients, cohort) = (&self.client.windows, &self.segments);
        let during = |start: Micros, end: Micros| (start..end).contains(&time);
        clients.iter().any(|window| during(window.start, window.end))
            || cohort.iter().any(|segment| during(segment.start, segment.end))
    }

    /// Whether prompts contain the conversation before them.
    pub fn accumulates(&self) -> bool {
        self.client.multi_turn.is_some_and(|turns| turns.accumulate)
    }

    /// Whether prompts contain outputs that were recorded before, as those of a replayed conversation. A round of an open
    /// session may arrive before the output of the last one is complete, and cannot contain it.
    fn has_recorded_outputs(&self) -> bool {
        !self.as_in_blis && !self.client.is_closed_loop()
    }

    /// Draws round `round` of `start`, arriving at `at`. `context` is the conversation so far, and is extended by this
    /// round.
    pub fn draw(
        &self,
        at: Micros,
        start: &SenderStart,
        round: u32,
        context: &mut Conversation,
        numbers: &mut RequestNumbers,
    ) -> DrawnRequest {
        let number = self.number(start, round);
        let (mut own, parts) = self.prompt(start, number);
        if let Some(opening) = self.client.turns.opening.as_ref().filter(|_| round == 0) {
            own = own.saturating_add(opening.draw(&mut self.streams.openings.at(start.number)));
        }
        let segment = self.segments.get(start.segment);
        let output = segment.and_then(|segment| segment.output.as_ref()).unwrap_or(&self.client.output);
        let drawn = output.draw(&mut self.streams.outputs.at(number));
        let (output_tokens, max_output_tokens) =
            self.max_tokens.announce(drawn, || output.scale(), self.streams.limits, number);
        let input_tokens = context.tokens.saturating_add(own);
        let grows = self.accumulates() && !start.is_last(round);
        let content = if grows && self.has_recorded_outputs() {
            context.extend(input_tokens, &mut numbers.keys);
            let content = context.content();
            let recorded = output.draw(&mut self.streams.recorded.at(number));
            context.extend(input_tokens.saturating_add(recorded), &mut numbers.keys);
            content
        } else {
            if grows {
                context.extend(input_tokens.saturating_add(output_tokens), &mut numbers.keys);
            }
            context.content()
        };
        let ratio = segment.and_then(|segment| segment.reason_ratio.as_ref()).or(self.client.reason_ratio.as_ref());
        let percent = ratio.map_or(0, |ratio| ratio.draw(&mut self.streams.ratios.at(number)));
        let tags = Tags { session: start.session, round_index: round, ..self.tags };
        let media_tokens = parts[1..].iter().fold(0, |sum: u32, &tokens| sum.saturating_add(tokens));
        let request = self.request(at, input_tokens, output_tokens, max_output_tokens, tags, content);
        let request = Request { media_tokens, ..request };
        DrawnRequest { request, parts, reason_ratio: f64::from(percent.min(100)) / 100.0, sender: 0 }
    }

    /// A request of this sender, without a number. `max_output_tokens` is the limit of output tokens that it announces.
    pub fn request(
        &self,
        at: Micros,
        input_tokens: u32,
        output_tokens: u32,
        max_output_tokens: Option<u32>,
        tags: Tags,
        content: Content,
    ) -> Request {
        Request {
            max_output_tokens,
            deadline: self.timeout.map(|timeout| at.saturating_add(timeout)),
            sampling: self.client.sampling.params(),
            tags,
            content,
            ..Request::new(RequestId::default(), at, input_tokens, output_tokens)
        }
    }

    /// The prompt of start number `number`; `None` if its prompts are not fixed.
    pub fn fixed_prompt(&self, number: u64) -> Option<&FixedPrompt> {
        let prompts = self.prompts.as_ref()?;
        prompts.get((number % prompts.len().max(1) as u64) as usize)
    }

    /// A request with a fixed prompt and no conversation.
    pub fn fixed(&self, at: Micros, prompt: &FixedPrompt) -> DrawnRequest {
        let input_tokens = prompt.system_tokens.saturating_add(prompt.question_tokens);
        let &FixedPrompt { output_tokens, max_output_tokens, tags, .. } = prompt;
        let content = prompt.content.clone();
        DrawnRequest::text(self.request(at, input_tokens, output_tokens, max_output_tokens, tags, content))
    }

    /// Tokens of the prompt itself, in total and by part.
    fn prompt(&self, start: &SenderStart, number: u64) -> (u32, [u32; 4]) {
        let mut random = self.streams.inputs.at(number);
        let own = self.segments.get(start.segment).and_then(|segment| segment.input.as_ref());
        let Some(multimodal) = self.client.multimodal.as_ref().filter(|_| own.is_none()) else {
            return (own.unwrap_or(&self.client.input).draw(&mut random), [0; 4]);
        };
        let mut parts = [0_u32; 4];
        parts[0] = multimodal.text.as_ref().map_or(0, |text| text.draw(&mut random));
        for (part, item) in parts[1..].iter_mut().zip(&multimodal.items) {
            let Some((size, count)) = item else { continue };
            let count = count.draw(&mut random).min(ITEMS_MAX);
            *part = (0..count).fold(0, |sum: u32, _| sum.saturating_add(size.draw(&mut random))).min(LONGEST);
        }
        let sum: u32 = parts.iter().fold(0, |sum, &part| sum.saturating_add(part));
        (sum.clamp(1, LONGEST), parts)
    }
}

/// Maximum number of images or other items in one prompt: limits the time to draw the tail of a distribution.
const ITEMS_MAX: u32 = 10_000;
