//! The requests of one sender, in order of arrival.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use blis_sim::request::{Content, Name, Request, Tags};
use blis_sim::units::Micros;

use super::Load;
use super::arrival::whole;
use super::expand::{Pace, Plan, Segment, Streams};
use super::lengths::LONGEST;
use super::session::{Numbers, Session};
use crate::conversation::Context;

/// A request, and what the simulator has no use for.
#[derive(Clone, Debug, PartialEq)]
pub struct Drawn {
    /// Without a number, until it is its turn.
    pub request: Request,
    /// Tokens of text, images, audio and video of a prompt of several parts; 0 for others.
    pub parts: [u32; 4],
    /// Share of the answer that is thought, 0 to 1.
    pub reason_ratio: f64,
    /// Which client it is of: a place in the list of all senders.
    pub sender: usize,
}

/// Something starts: a request, or a session.
#[derive(Clone, Copy, Debug)]
pub(super) struct Start {
    pub at: Micros,
    /// Of this sender, from 0.
    pub number: u64,
    /// The segment whose lengths hold.
    pub segment: usize,
    pub session: Name,
    /// How many rounds there will be; `None`: any number.
    pub rounds: Option<u32>,
}

impl Start {
    /// Whether no round follows `round`.
    pub fn is_last(&self, round: u32) -> bool {
        self.rounds.is_some_and(|rounds| round + 1 >= rounds)
    }
}

/// The starts of one sender.
#[derive(Clone, Debug)]
struct Starts {
    segment: usize,
    /// Intervals drawn so far, in all segments.
    drawn: u64,
    /// Starts so far.
    number: u64,
    /// The last start in this segment, or its begin.
    now: Option<Micros>,
    filling: Option<Filling>,
}

/// Progress in a segment that is to be filled.
#[derive(Clone, Copy, Debug)]
struct Filling {
    left: u64,
    /// Sum of the intervals so far, and of all: what is drawn is scaled to the length of the segment.
    sum: f64,
    total: f64,
}

impl Starts {
    fn next(&mut self, plan: &Plan) -> Option<Start> {
        loop {
            let segment = plan.segments.get(self.segment)?;
            let at = match segment.pace {
                Pace::Steady(_) => self.steady(segment, &plan.streams),
                Pace::Filled { .. } | Pace::Counted { .. } => self.filled(segment, &plan.streams),
                Pace::Users => self.user(segment, plan),
            };
            if let Some(at) = at {
                let rounds = plan.rounds(self.number);
                let start = Start { at, number: self.number, segment: self.segment, session: Name::NONE, rounds };
                self.number += 1;
                return Some(start);
            }
            *self = Self { segment: self.segment + 1, now: None, filling: None, ..*self };
        }
    }

    /// One interval after the last, the first one after the begin of the segment. Constant arrivals
    /// stay on the grid that starts at 0.
    fn steady(&mut self, segment: &Segment, streams: &Streams) -> Option<Micros> {
        let Pace::Steady(intervals) = segment.pace else { return None };
        let at = match (intervals.constant(), self.now) {
            (Some(interval), None) => Micros(segment.start.0.div_ceil(interval.0).max(1).checked_mul(interval.0)?),
            (Some(interval), Some(now)) => now.saturating_add(interval),
            (None, now) => {
                let interval = whole(intervals.draw(&mut streams.arrivals.at(self.drawn)));
                self.drawn += 1;
                now.unwrap_or(segment.start).saturating_add(interval)
            }
        };
        self.now = Some(at);
        (at < segment.end).then_some(at)
    }

    /// n starts divide the segment in n + 1 intervals.
    fn filled(&mut self, segment: &Segment, streams: &Streams) -> Option<Micros> {
        let (Pace::Filled { intervals, .. } | Pace::Counted { intervals, .. }) = segment.pace else { return None };
        let draw = |number| intervals.draw(&mut streams.arrivals.at(number));
        let mut filling = self.filling.unwrap_or_else(|| {
            let left = match segment.pace {
                Pace::Counted { count, .. } => count,
                _ => chance(segment.expected(), streams, self.segment),
            };
            let total = (0..=left).map(|n| draw(self.drawn + n)).sum();
            Filling { left, sum: 0.0, total }
        });
        if filling.left == 0 {
            self.drawn += 1;
            return None;
        }
        filling.sum += draw(self.drawn);
        filling.left -= 1;
        self.drawn += 1;
        self.filling = Some(filling);
        let length = segment.end - segment.start;
        let share = if filling.total > 0.0 { filling.sum / filling.total } else { 0.0 };
        let after = Micros::from_f64(share * length.0 as f64).min(length.saturating_sub(Micros(1)));
        Some(segment.start.saturating_add(after))
    }

    /// The users begin one after the other, spread over one think time.
    fn user(&self, segment: &Segment, plan: &Plan) -> Option<Micros> {
        let Load::Users { count, think_time } = plan.client.load else { return None };
        let after = u128::from(think_time.0) * u128::from(self.number) / u128::from(count.max(1));
        let at = segment.start.saturating_add(Micros(u64::try_from(after).unwrap_or(u64::MAX)));
        (self.number < u64::from(count) && at < segment.end).then_some(at)
    }
}

/// A whole number that is `expected` on average.
fn chance(expected: f64, streams: &Streams, segment: usize) -> u64 {
    use rand::RngExt as _;
    let more: bool = streams.counts.at(segment as u64).random_bool(expected.fract().clamp(0.0, 1.0));
    expected.trunc() as u64 + u64::from(more)
}

impl Plan {
    /// Rounds of what starts as number `number`; `None`: any number.
    fn rounds(&self, number: u64) -> Option<u32> {
        let turns = match (self.client.load, self.client.multi_turn) {
            (Load::Users { .. }, _) => return None,
            (Load::Share(_), None) => return Some(1),
            (Load::Share(_), Some(turns)) => turns,
        };
        let drawn = self.client.turns.rounds.as_ref().map(|rounds| rounds.draw(&mut self.streams.rounds.at(number)));
        Some(drawn.map_or(turns.max_rounds, |rounds| rounds.min(turns.max_rounds)))
    }

    /// Number of round `round` of what began with `start`. Rounds are numbered after each other; users
    /// have any number of them, in 2^32 each.
    fn number(&self, start: &Start, round: u32) -> u64 {
        let rounds = match (self.client.load, self.client.multi_turn) {
            (Load::Users { .. }, _) => 1 << 32,
            (Load::Share(_), turns) => u64::from(turns.map_or(1, |turns| turns.max_rounds)),
        };
        start.number.wrapping_mul(rounds).wrapping_add(u64::from(round))
    }

    /// From the answer of round `round` to the next prompt.
    pub fn think_time(&self, start: &Start, round: u32) -> Micros {
        let drawn = self.client.turns.think_time_ms.as_ref().map(|think_time| {
            let ms = think_time.draw(&mut self.streams.think_times.at(self.number(start, round)));
            Micros(u64::from(ms) * 1000)
        });
        match (self.client.load, self.client.multi_turn) {
            (Load::Users { think_time, .. }, _) => think_time,
            (Load::Share(_), turns) => drawn.unwrap_or(turns.map_or(Micros::ZERO, |turns| turns.think_time)),
        }
    }

    /// Whether the sender sends at `time`.
    pub fn is_active(&self, time: Micros) -> bool {
        let (clients, cohort) = (&self.client.windows, &self.segments);
        let during = |start: Micros, end: Micros| (start..end).contains(&time);
        clients.iter().any(|window| during(window.start, window.end))
            || cohort.iter().any(|segment| during(segment.start, segment.end))
    }

    /// Whether prompts hold the conversation before them.
    pub fn accumulates(&self) -> bool {
        self.client.multi_turn.is_some_and(|turns| turns.accumulate)
    }

    /// Round `round` of what began with `start`, arriving `at`. `context`: the conversation so far;
    /// afterwards, with this round.
    pub fn draw(&self, at: Micros, start: &Start, round: u32, context: &mut Context, numbers: &mut Numbers) -> Drawn {
        let number = self.number(start, round);
        let (mut own, parts) = self.prompt(start, number);
        if let Some(opening) = self.client.turns.opening.as_ref().filter(|_| round == 0) {
            own = own.saturating_add(opening.draw(&mut self.streams.openings.at(start.number)));
        }
        let segment = self.segments.get(start.segment);
        let output = segment.and_then(|segment| segment.output.as_ref()).unwrap_or(&self.client.output);
        let output_tokens = output.draw(&mut self.streams.outputs.at(number));
        let input_tokens = context.tokens.saturating_add(own);
        if self.accumulates() && !start.is_last(round) {
            context.extend(input_tokens.saturating_add(output_tokens), &mut numbers.keys);
        }
        let ratio = segment.and_then(|segment| segment.reason_ratio.as_ref()).or(self.client.reason_ratio.as_ref());
        let percent = ratio.map_or(0, |ratio| ratio.draw(&mut self.streams.ratios.at(number)));
        let request = Request {
            id: 0,
            arrival: at,
            input_tokens,
            output_tokens,
            max_output_tokens: Some(output_tokens),
            deadline: self.timeout.map(|timeout| at.saturating_add(timeout)),
            client_priority: None,
            priority: 0,
            tags: Tags { session: start.session, round_index: round, ..self.tags },
            content: context.content(),
        };
        Drawn { request, parts, reason_ratio: f64::from(percent.min(100)) / 100.0, sender: 0 }
    }

    /// Tokens of the prompt itself, in all and by part.
    fn prompt(&self, start: &Start, number: u64) -> (u32, [u32; 4]) {
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

/// Images, or other items, of one prompt. A tail of the distribution must not take for ever.
const ITEMS_MAX: u32 = 10_000;

/// A round of an open-loop session that is still to come.
#[derive(Clone, Debug)]
struct Coming {
    at: Micros,
    start: Start,
    round: u32,
    context: Context,
}

/// The earliest first; of those at the same time, the one of the earlier session.
impl Ord for Coming {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.start.number, self.round).cmp(&(other.at, other.start.number, other.round))
    }
}

impl PartialOrd for Coming {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Coming {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Coming {}

/// The requests of one sender. What lives: the next start, and sessions with rounds to come.
#[derive(Clone, Debug)]
pub(super) struct Source {
    pub plan: Arc<Plan>,
    starts: Starts,
    next_start: Option<Start>,
    coming: BinaryHeap<Reverse<Coming>>,
    /// Content of every request without earlier rounds.
    prefix: Content,
}

/// What a source gives.
pub(super) enum Given {
    Request(Drawn),
    /// With the first request of a session in closed loop.
    Session(Session, Drawn),
}

impl Source {
    pub fn new(plan: Plan) -> Self {
        let starts = Starts { segment: 0, drawn: 0, number: 0, now: None, filling: None };
        let prefix = Content::shared(&[plan.prefix]);
        let mut source = Self { plan: Arc::new(plan), starts, next_start: None, coming: BinaryHeap::new(), prefix };
        source.advance();
        source
    }

    fn advance(&mut self) {
        let done = self.plan.is_single_session() && self.starts.number > 0;
        self.next_start = if done { None } else { self.starts.next(&self.plan) };
    }

    /// When the next request arrives.
    pub fn peek(&self) -> Option<Micros> {
        let coming = self.coming.peek().map(|Reverse(coming)| coming.at);
        let start = self.next_start.map(|start| start.at);
        match (start, coming) {
            (Some(start), Some(coming)) => Some(start.min(coming)),
            (start, coming) => start.or(coming),
        }
    }

    /// That request.
    pub fn next(&mut self, numbers: &mut Numbers) -> Option<Given> {
        let round_first = match (self.next_start, self.coming.peek()) {
            (Some(start), Some(Reverse(coming))) => coming.at <= start.at,
            (start, _) => start.is_none(),
        };
        if round_first {
            let Reverse(coming) = self.coming.pop()?;
            return Some(Given::Request(self.round(coming, numbers)));
        }
        let start = self.next_start?;
        self.advance();
        if self.plan.client.waits_for_answers() {
            let (session, drawn) = Session::begin(&self.plan, start, numbers);
            return Some(Given::Session(session, drawn));
        }
        if self.plan.client.multi_turn.is_some() {
            let start = Start { session: numbers.session(), ..start };
            let context = Context::new(self.plan.prefix_tokens, &[self.plan.prefix]);
            return Some(Given::Request(self.round(Coming { at: start.at, start, round: 0, context }, numbers)));
        }
        Some(Given::Request(self.single(&start, numbers)))
    }

    /// A request that is no session.
    fn single(&self, start: &Start, numbers: &mut Numbers) -> Drawn {
        let mut context = Context::unshared(self.plan.prefix_tokens);
        let mut drawn = self.plan.draw(start.at, start, 0, &mut context, numbers);
        drawn.request.content = self.prefix.clone();
        drawn
    }

    /// One round; the next one is on its way.
    fn round(&mut self, coming: Coming, numbers: &mut Numbers) -> Drawn {
        let Coming { at, start, round, mut context } = coming;
        let plan = Arc::clone(&self.plan);
        let drawn = plan.draw(at, &start, round, &mut context, numbers);
        if !start.is_last(round) {
            // As BLIS guesses: a token takes 1 µs.
            let pause = plan.think_time(&start, round).saturating_add(Micros(drawn.request.output_tokens.into()));
            let at = at.saturating_add(pause.max(Micros(1)));
            if at < plan.end && plan.is_active(at) {
                self.coming.push(Reverse(Coming { at, start, round: round + 1, context }));
            }
        }
        drawn
    }
}
