//! Sessions: consecutive requests of one client.
//!
//! In open loop a round follows the one before after its think time and an estimate of its latency; in closed loop
//! after its end ([`Session::next_round`]).

use std::sync::Arc;

use blis_sim::request::{Name, Request};
use blis_sim::units::Micros;

use super::client::ClientLoad;
use super::drawn::{DrawnRequest, SenderStart};
use super::expand::SenderPlan;
pub use super::numbers::RequestNumbers;
use crate::conversation::Conversation;
pub use crate::conversation::{EndStatus, RequestEnd, SessionState};

/// Time between a request that failed, which ends its session, and the next session of a fixed number of concurrent
/// ones: without it, a service that rejects everything at once would be asked without end at the same moment.
const AFTER_FAILURE: Micros = Micros(1_000_000);

/// A session in closed loop: creates a round when the one before has ended.
#[derive(Clone, Debug)]
pub struct Session {
    plan: Arc<SenderPlan>,
    start: SenderStart,
    /// Number of the round in flight.
    round: u32,
    input_tokens: u32,
    context: Conversation,
    state: SessionState,
}

impl Session {
    /// The session that begins with `start`, and its first request.
    pub(super) fn begin(
        plan: &Arc<SenderPlan>,
        start: SenderStart,
        numbers: &mut RequestNumbers,
    ) -> (Self, DrawnRequest) {
        let plan = Arc::clone(plan);
        let mut context = Conversation::new(plan.prefix_tokens, &[plan.prefix]);
        let start = SenderStart { session: numbers.session(), ..start };
        let drawn = plan.draw(start.at, &start, 0, &mut context, numbers);
        let input_tokens = drawn.request.input_tokens;
        (Self { plan, start, round: 0, input_tokens, context, state: SessionState::Active }, drawn)
    }

    /// The session that follows this one, which has ended at `at`, and its first request: among a fixed
    /// number of concurrent sessions, while the client sends.
    ///
    /// The numbers of successors follow from that of the first session, so that no session changes those of another.
    pub(super) fn successor(&self, at: Micros, numbers: &mut RequestNumbers) -> Option<(Self, DrawnRequest)> {
        let ClientLoad::Sessions(count) = self.plan.client.load else { return None };
        if !matches!(self.state, SessionState::Completed | SessionState::Cancelled) {
            return None; // the end of the workload has ended it
        }
        let at = if self.state == SessionState::Cancelled { at.saturating_add(AFTER_FAILURE) } else { at };
        let full = numbers.left.left(self.plan.part) == Some(0);
        if full || at >= self.plan.end.min(numbers.horizon) || !self.plan.is_active(at) {
            return None;
        }
        let id = numbers.next_id?;
        let number = self.start.number + u64::from(count);
        let start = SenderStart { at, number, rounds: self.plan.rounds(number), ..self.start };
        let (session, mut drawn) = Self::begin(&self.plan, start, numbers);
        numbers.left.spend(self.plan.part);
        drawn.request.id = id;
        numbers.next_id = id.next();
        Some((session, drawn))
    }

    /// Its number, which is in the tags of all its requests.
    #[must_use]
    pub fn name(&self) -> Name {
        self.start.session
    }

    /// The state of the session.
    #[must_use]
    pub fn state(&self) -> SessionState {
        self.state
    }

    /// The next request, if there is one, after the last one has `ended`. A session that has ended does not continue.
    pub fn next_round(&mut self, ended: RequestEnd, numbers: &mut RequestNumbers) -> Option<Request> {
        let at = ended.at.saturating_add(self.plan.think_time(&self.start, self.round));
        self.state = self.after(ended.status, at, numbers);
        if self.state != SessionState::Active {
            return None;
        }
        numbers.left.spend(self.plan.part);
        self.round += 1;
        if self.plan.accumulates() {
            let tokens = self.input_tokens.saturating_add(ended.generated_tokens);
            self.context.shorten(tokens.min(self.context.tokens), &numbers.keys);
        }
        let mut request = self.plan.draw(at, &self.start, self.round, &mut self.context, numbers).request;
        request.id = numbers.next_id?;
        numbers.next_id = request.id.next();
        self.input_tokens = request.input_tokens;
        Some(request)
    }

    /// The state after a round, if the next one would arrive at `at`.
    fn after(&self, status: EndStatus, at: Micros, numbers: &RequestNumbers) -> SessionState {
        if self.state != SessionState::Active {
            self.state
        } else if status == EndStatus::Failed {
            SessionState::Cancelled
        } else if self.start.is_last(self.round) {
            SessionState::Completed
        } else if numbers.left.left(self.plan.part) == Some(0) || numbers.next_id.is_none() {
            SessionState::BudgetExhausted
        } else if at >= self.plan.end || !self.plan.is_active(at) {
            SessionState::HorizonInterrupted
        } else {
            SessionState::Active
        }
    }
}
