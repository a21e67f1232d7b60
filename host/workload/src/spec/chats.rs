//! Conversations with fixed questions, whose rounds the load sends: request `i` is the next round of user `i` modulo the
//! number of users. A round contains the rounds before it with their outputs, and waits until the last one has ended; it
//! never comes before the load sends it.

use std::collections::VecDeque;

use blis_sim::request::{Name, Request, Tags};
use blis_sim::units::Micros;

use super::drawn::DrawnRequest;
use super::expand::SenderPlan;
use super::numbers::RequestNumbers;
use super::prompts::FixedPrompt;
use crate::conversation::{Conversation, EndStatus, RequestEnd};

/// The conversations of all users of a sender.
#[derive(Clone, Debug, Default)]
pub(super) struct UserChats(Vec<UserChat>);

/// The conversation of one user.
#[derive(Clone, Debug, Default)]
struct UserChat {
    /// `None` before the first round.
    session: Option<Name>,
    round: u32,
    context: Conversation,
    /// Context before the round in flight, and its prompt, tokens.
    before: u32,
    input_tokens: u32,
    in_flight: bool,
    /// Times at which the load sent the rounds that wait for the one in flight.
    sent: VecDeque<Micros>,
}

impl UserChats {
    /// Users without a conversation so far; none if `plan` has no conversations.
    pub fn new(plan: &SenderPlan) -> Self {
        let chats = plan.client.prompts.is_some_and(|cycle| cycle.conversations);
        let prompts = plan.prompts.iter().filter(|_| chats).flat_map(|prompts| prompts.iter());
        let context = |prompt: &FixedPrompt| Conversation::new(prompt.system_tokens, &[prompt.system]);
        Self(prompts.map(|prompt| UserChat { context: context(prompt), ..UserChat::default() }).collect())
    }

    /// Whether there are users.
    pub fn exist(&self) -> bool {
        !self.0.is_empty()
    }

    /// The load sends request number `number` at `at`: the user and the request, or `None` if it waits for the user's
    /// round in flight.
    pub fn send(
        &mut self,
        plan: &SenderPlan,
        number: u64,
        at: Micros,
        numbers: &mut RequestNumbers,
    ) -> Option<(usize, DrawnRequest)> {
        let user = (number % self.0.len() as u64) as usize;
        if self.0[user].in_flight {
            self.0[user].sent.push_back(at);
            return None;
        }
        Some((user, self.round(plan, user, at, numbers)))
    }

    /// The round of `user` in flight has ended: the next one, if the load has sent it. A round that did not complete
    /// leaves the conversation as it was.
    pub fn ended(
        &mut self,
        plan: &SenderPlan,
        user: usize,
        ended: RequestEnd,
        numbers: &mut RequestNumbers,
    ) -> Option<Request> {
        let chat = &mut self.0[user];
        chat.in_flight = false;
        let tokens = match ended.status {
            EndStatus::Completed => chat.input_tokens.saturating_add(ended.generated_tokens).min(chat.context.tokens),
            EndStatus::Failed => chat.before,
        };
        chat.context.shorten(tokens, &numbers.keys);
        let at = chat.sent.pop_front()?.max(ended.at);
        let id = numbers.next_id?;
        if at >= plan.end || numbers.left.left(plan.part) == Some(0) {
            return None;
        }
        numbers.left.spend(plan.part);
        numbers.next_id = id.next();
        Some(Request { id, ..self.round(plan, user, at, numbers).request })
    }

    fn round(&mut self, plan: &SenderPlan, user: usize, at: Micros, numbers: &mut RequestNumbers) -> DrawnRequest {
        let chat = &mut self.0[user];
        let prompt = plan.fixed_prompt(user as u64);
        let (question, output, max_output, tags) = prompt.map_or((1, 1, None, plan.tags), |prompt| {
            (prompt.question_tokens, prompt.output_tokens, prompt.max_output_tokens, prompt.tags)
        });
        let session = *chat.session.get_or_insert_with(|| numbers.session());
        chat.before = chat.context.tokens;
        chat.input_tokens = chat.context.tokens.saturating_add(question);
        chat.context.extend(chat.input_tokens.saturating_add(output), &mut numbers.keys);
        let tags = Tags { session, round_index: chat.round, ..tags };
        (chat.in_flight, chat.round) = (true, chat.round.saturating_add(1));
        DrawnRequest::text(plan.request(at, chat.input_tokens, output, max_output, tags, chat.context.content()))
    }

    /// Number of users with a conversation and no round in flight.
    pub fn idle(&self) -> u64 {
        self.0.iter().filter(|chat| chat.session.is_some() && !chat.in_flight).count() as u64
    }
}
