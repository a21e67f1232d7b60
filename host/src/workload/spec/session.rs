//! Sessions: several requests of one client, one after the other.
//!
//! In open loop a round follows the one before after its think time and a guess at how long the
//! answer took; in closed loop when it has ended ([`Session::next_round`]).

use std::sync::Arc;

use blis_sim::request::{BlockKey, Content, Name, Request, Span};
use blis_sim::units::Micros;

use super::expand::Plan;
use super::source::{Drawn, Start};
use super::{GenerateOptions, Load};

/// What all requests of a workload are numbered from.
#[derive(Clone, Debug)]
pub struct Numbers {
    /// Tokens per KV block.
    pub(super) block_size: u32,
    /// The next request, as long as there are numbers.
    pub(super) next_id: Option<u32>,
    /// The next session.
    pub(super) next_session: Name,
    /// The next block key, as long as there are any.
    pub(super) next_key: Option<BlockKey>,
    /// No request arrives at this time or later.
    pub(super) horizon: Micros,
    /// How many requests closed loops may still add; `None`: as many as come.
    pub(super) follow_ups: Option<u64>,
}

impl Numbers {
    /// The first numbers, behind those of names and prefixes.
    pub(super) fn new(options: &GenerateOptions, first_key: BlockKey, first_session: Name) -> Self {
        Self {
            block_size: options.block_size.get(),
            next_id: Some(0),
            next_session: first_session,
            next_key: Some(first_key),
            horizon: options.horizon,
            follow_ups: options.num_requests,
        }
    }

    /// Keys for `len` blocks. There are 2^32 of them; what comes after is shared with nobody.
    fn keys(&mut self, len: u32) -> Option<Span> {
        let first = self.next_key?;
        self.next_key = first.checked_add(len);
        if self.next_key.is_none() {
            tracing::warn!("more than 2^32 shareable KV blocks: later rounds of sessions find nothing of earlier ones");
        }
        self.next_key.map(|_| Span { first, len })
    }

    /// A number for one more session.
    pub(super) fn session(&mut self) -> Name {
        let session = self.next_session;
        self.next_session = Name(session.0.saturating_add(1));
        session
    }
}

/// The tokens of a conversation so far, and the keys of their full blocks.
#[derive(Clone, Debug, Default)]
pub(super) struct Context {
    pub tokens: u32,
    spans: Vec<Span>,
    /// Blocks in `spans`.
    blocks: u32,
}

impl Context {
    /// Nothing but the prefix.
    pub fn new(plan: &Plan) -> Self {
        let spans = if plan.prefix.len > 0 { vec![plan.prefix] } else { Vec::new() };
        Self { tokens: plan.prefix_tokens, spans, blocks: plan.prefix.len }
    }

    /// So many tokens, whose blocks are of no interest.
    pub fn unshared(tokens: u32) -> Self {
        Self { tokens, ..Self::default() }
    }

    /// The conversation goes on to `tokens`, and will be continued.
    pub fn extend(&mut self, tokens: u32, numbers: &mut Numbers) {
        self.tokens = tokens;
        let more = (tokens / numbers.block_size).saturating_sub(self.blocks);
        if more == 0 {
            return;
        }
        if let Some(span) = numbers.keys(more) {
            self.blocks += more;
            match self.spans.last_mut() {
                Some(last) if last.first + last.len == span.first => last.len += more,
                _ => self.spans.push(span),
            }
        }
    }

    /// It ended earlier than thought.
    pub fn shorten(&mut self, tokens: u32, block_size: u32) {
        self.tokens = tokens;
        let kept = (tokens / block_size).min(self.blocks);
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
    /// Length of the answer, tokens.
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

/// A session in closed loop: makes a round when the one before has ended.
#[derive(Clone, Debug)]
pub struct Session {
    plan: Arc<Plan>,
    start: Start,
    /// Of the round that is being answered.
    round: u32,
    input_tokens: u32,
    context: Context,
    state: SessionState,
}

impl Session {
    /// The session that begins with `start`, and its first request.
    pub(super) fn begin(plan: &Arc<Plan>, start: Start, numbers: &mut Numbers) -> (Self, Drawn) {
        let plan = Arc::clone(plan);
        let mut context = Context::new(&plan);
        let start = Start { session: numbers.session(), ..start };
        let drawn = plan.draw(start.at, &start, 0, &mut context, numbers);
        let input_tokens = drawn.request.input_tokens;
        (Self { plan, start, round: 0, input_tokens, context, state: SessionState::Active }, drawn)
    }

    /// Its number, in the tags of all its requests.
    #[must_use]
    pub fn name(&self) -> Name {
        self.start.session
    }

    /// What became of it.
    #[must_use]
    pub fn state(&self) -> SessionState {
        self.state
    }

    /// The next request, if there is one, when the last one has `ended`. A session that is over
    /// stays over.
    pub fn next_round(&mut self, ended: Ended, numbers: &mut Numbers) -> Option<Request> {
        let think_time = match (self.plan.client.load, self.plan.client.multi_turn) {
            (Load::Users { think_time, .. }, _) => think_time,
            (Load::Share(_), Some(turns)) => turns.think_time,
            (Load::Share(_), None) => Micros::ZERO,
        };
        let at = ended.at.saturating_add(think_time);
        self.state = self.after(ended.status, at, numbers);
        if self.state != SessionState::Active {
            return None;
        }
        numbers.follow_ups = numbers.follow_ups.map(|left| left - 1);
        self.round += 1;
        if self.plan.accumulates() {
            let tokens = self.input_tokens.saturating_add(ended.generated_tokens);
            self.context.shorten(tokens.min(self.context.tokens), numbers.block_size);
        }
        let mut request = self.plan.draw(at, &self.start, self.round, &mut self.context, numbers).request;
        request.id = numbers.next_id?;
        numbers.next_id = request.id.checked_add(1);
        self.input_tokens = request.input_tokens;
        Some(request)
    }

    /// The state after a round, if the next would arrive `at`.
    fn after(&self, status: EndStatus, at: Micros, numbers: &Numbers) -> SessionState {
        if self.state != SessionState::Active {
            self.state
        } else if status == EndStatus::Failed {
            SessionState::Cancelled
        } else if self.plan.is_last(self.round) {
            SessionState::Completed
        } else if numbers.follow_ups == Some(0) || numbers.next_id.is_none() {
            SessionState::BudgetExhausted
        } else if at >= numbers.horizon || !self.plan.is_active(at) {
            SessionState::HorizonInterrupted
        } else {
            SessionState::Active
        }
    }
}
