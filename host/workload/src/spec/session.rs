//! Sessions: consecutive requests of one client.
//!
//! In open loop a round follows the one before after its think time and an estimate of its latency; in closed loop
//! after its end ([`Session::next_round`]).

use std::sync::Arc;

use blis_sim::request::{Name, Request};
use blis_sim::units::Micros;

use super::drawn::{DrawnRequest, SenderStart};
use super::expand::SenderPlan;
pub use super::numbers::RequestNumbers;
use crate::conversation::Conversation;
pub use crate::conversation::{EndStatus, RequestEnd, SessionState};

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
