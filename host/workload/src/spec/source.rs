//! The requests of one sender, in the order of arrival.

use std::collections::BTreeMap;
use std::sync::Arc;

use blis_sim::request::{Content, Name, Request};
use blis_sim::units::Micros;

use super::arrival::whole;
use super::chats::UserChats;
use super::client::ClientLoad;
use super::drawn::{DrawnRequest, SenderStart};
use super::expand::{Pace, Segment, SenderPlan, Streams};
use super::numbers::RequestNumbers;
use super::session::Session;
use crate::conversation::{Conversation, RequestEnd};

/// The starts of one sender.
#[derive(Clone, Debug)]
struct Starts {
    segment: usize,
    /// Number of inter-arrival times drawn so far, in all segments.
    drawn: u64,
    /// Number of requests started so far.
    number: u64,
    /// The last start in this segment, or its begin.
    now: Option<Micros>,
    filling: Option<Filling>,
}

/// Progress in a segment that is to be filled.
#[derive(Clone, Copy, Debug)]
struct Filling {
    left: u64,
    /// Sum of the inter-arrival times so far, and of all: the drawn times are scaled to the length of the segment.
    sum: f64,
    total: f64,
}

impl Starts {
    fn next(&mut self, plan: &SenderPlan) -> Option<SenderStart> {
        loop {
            let segment = plan.segments.get(self.segment)?;
            let at = match segment.pace {
                Pace::Steady(_) => self.steady(segment, &plan.streams),
                Pace::Filled { .. } | Pace::Counted { .. } => self.filled(segment, &plan.streams),
                Pace::Users => self.user(segment, plan),
            };
            if let Some(at) = at {
                let rounds = plan.rounds(self.number);
                let start = SenderStart { at, number: self.number, segment: self.segment, session: Name::NONE, rounds };
                self.number += 1;
                return Some(start);
            }
            *self = Self { segment: self.segment + 1, now: None, filling: None, ..*self };
        }
    }

    /// The start that follows the last one, or the begin of the segment, after one inter-arrival time. Constant
    /// arrivals stay on the grid that starts at 0.
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

    /// The users start one after the other, spread over one think time; sessions start at once.
    fn user(&self, segment: &Segment, plan: &SenderPlan) -> Option<Micros> {
        let (count, think_time) = match plan.client.load {
            ClientLoad::Users { count, think_time } => (count, think_time),
            ClientLoad::Sessions(count) => (count, Micros::ZERO),
            ClientLoad::Share(_) => return None,
        };
        let after = u128::from(think_time.0) * u128::from(self.number) / u128::from(count.max(1));
        let at = segment.start.saturating_add(Micros(u64::try_from(after).unwrap_or(u64::MAX)));
        (self.number < u64::from(count) && at < segment.end).then_some(at)
    }
}

/// A random integer with the mean `expected`.
fn chance(expected: f64, streams: &Streams, segment: usize) -> u64 {
    use rand::RngExt as _;
    let more: bool = streams.counts.at(segment as u64).random_bool(expected.fract().clamp(0.0, 1.0));
    expected.trunc() as u64 + u64::from(more)
}

/// A later round of an open-loop session.
#[derive(Clone, Debug)]
struct Coming {
    at: Micros,
    start: SenderStart,
    round: u32,
    context: Conversation,
}

/// The requests of one sender. Memory holds the next start, and sessions with later rounds.
#[derive(Clone, Debug)]
pub(super) struct RequestSource {
    pub plan: Arc<SenderPlan>,
    starts: Starts,
    next_start: Option<SenderStart>,
    /// By time, session and round.
    coming: BTreeMap<(Micros, u64, u32), Coming>,
    /// Content of every request without earlier rounds.
    prefix: Content,
    /// The conversations of users with fixed questions.
    chats: UserChats,
}

/// An item that a source produces.
pub(super) enum SourceItem {
    Request(DrawnRequest),
    /// A session in closed loop with its first request.
    Session(Session, DrawnRequest),
    /// A round of the conversation of that user.
    Round(usize, DrawnRequest),
    /// The request waits until the round before it ends.
    Waits,
}

impl RequestSource {
    pub fn new(plan: SenderPlan) -> Self {
        let starts = Starts { segment: 0, drawn: 0, number: 0, now: None, filling: None };
        let prefix = Content::shared(&[plan.prefix]);
        let chats = UserChats::new(&plan);
        let mut source =
            Self { plan: Arc::new(plan), starts, next_start: None, coming: BTreeMap::new(), prefix, chats };
        source.advance();
        source
    }

    fn advance(&mut self) {
        let done = self.plan.is_single_session() && self.starts.number > 0;
        self.next_start = if done { None } else { self.starts.next(&self.plan) };
    }

    /// Arrival of the next request.
    pub fn peek(&self) -> Option<Micros> {
        let coming = self.coming.first_key_value().map(|(_, coming)| coming.at);
        let start = self.next_start.map(|start| start.at);
        match (start, coming) {
            (Some(start), Some(coming)) => Some(start.min(coming)),
            (start, coming) => start.or(coming),
        }
    }

    pub fn next(&mut self, numbers: &mut RequestNumbers) -> Option<SourceItem> {
        let round_first = match (self.next_start, self.coming.first_key_value()) {
            (Some(start), Some((_, coming))) => coming.at <= start.at,
            (start, _) => start.is_none(),
        };
        if round_first {
            let (_, coming) = self.coming.pop_first()?;
            return Some(SourceItem::Request(self.round(coming, numbers)));
        }
        let start = self.next_start?;
        self.advance();
        if self.chats.exist() {
            let sent = self.chats.send(&self.plan, start.number, start.at, numbers);
            return Some(sent.map_or(SourceItem::Waits, |(user, drawn)| SourceItem::Round(user, drawn)));
        }
        if let Some(prompt) = self.plan.fixed_prompt(start.number) {
            return Some(SourceItem::Request(self.plan.fixed(start.at, prompt)));
        }
        if self.plan.client.is_closed_loop() {
            let (session, drawn) = Session::begin(&self.plan, start, numbers);
            return Some(SourceItem::Session(session, drawn));
        }
        if self.plan.client.multi_turn.is_some() {
            let start = SenderStart { session: numbers.session(), ..start };
            let context = Conversation::new(self.plan.prefix_tokens, &[self.plan.prefix]);
            return Some(SourceItem::Request(self.round(Coming { at: start.at, start, round: 0, context }, numbers)));
        }
        Some(SourceItem::Request(self.single(&start, numbers)))
    }

    /// The round in flight of `user` has ended: the next one, if the load has sent it.
    pub fn ended(&mut self, user: usize, ended: RequestEnd, numbers: &mut RequestNumbers) -> Option<Request> {
        self.chats.ended(&self.plan, user, ended, numbers)
    }

    /// Number of users with a conversation and no round in flight.
    pub fn idle(&self) -> u64 {
        self.chats.idle()
    }

    /// A request without a session.
    fn single(&self, start: &SenderStart, numbers: &mut RequestNumbers) -> DrawnRequest {
        let mut context = Conversation::unshared(self.plan.prefix_tokens);
        let mut drawn = self.plan.draw(start.at, start, 0, &mut context, numbers);
        drawn.request.content = self.prefix.clone();
        drawn
    }

    /// One round of a session; schedules the next one.
    fn round(&mut self, coming: Coming, numbers: &mut RequestNumbers) -> DrawnRequest {
        let Coming { at, start, round, mut context } = coming;
        let plan = Arc::clone(&self.plan);
        let drawn = plan.draw(at, &start, round, &mut context, numbers);
        if !start.is_last(round) {
            // BLIS's estimate of the time until the output ends: a token takes 1 µs.
            let output = if plan.as_in_blis { drawn.request.output_tokens } else { 0 };
            let pause = plan.think_time(&start, round).saturating_add(Micros(output.into()));
            let at = at.saturating_add(pause.max(Micros(1)));
            if at < plan.end && plan.is_active(at) {
                let round = round + 1;
                self.coming.insert((at, start.number, round), Coming { at, start, round, context });
            }
        }
        drawn
    }
}
