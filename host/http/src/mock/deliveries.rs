//! Which token leaves when: an observer of the simulation, and the queue of tokens that are not due yet.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use blis_sim::ids::{InstanceIndex, RequestId};
use blis_sim::instance::StepRecord;
use blis_sim::observer::{Interests, Observer, SimEvent};
use blis_sim::outcome::{Decision, DropReason, FirstToken, Outcome, Rejection, Status};
use blis_sim::request::Request;
use blis_sim::units::Micros;
use rustc_hash::FxHashMap;
use tokio::sync::mpsc::UnboundedSender;

use super::metrics::ServiceMetrics;

/// What happens to a request, in order: tokens, the last of which says why it is the last; or nothing but a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamEvent {
    Token,
    /// The last token. `cached_tokens` of the prompt were in the prefix cache.
    Last {
        /// Whether the output ended at the model's limit instead of its own end.
        capped: bool,
        cached_tokens: u32,
    },
    Refused(RefusalReason),
}

/// Why a request gets no tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RefusalReason {
    /// Admission policy, or a queue of the gateway that is full: too many requests.
    TooMany,
    /// The service has no room or no replica.
    Unavailable,
    /// No instance serves its model.
    NoModel,
    /// It can never be served.
    Impossible(DropReason),
    /// The gateway ended it for another, after it had begun.
    Evicted,
}

/// The streams of all requests in the service, and the tokens that are to leave.
pub(super) struct Deliveries {
    streams: FxHashMap<RequestId, TokenStream>,
    due: BinaryHeap<Reverse<(Micros, u64, RequestId, Delivery)>>,
    /// Number of deliveries so far: those of one moment leave in the order in which they became known.
    known: u64,
    output_token_time: Micros,
    pub metrics: ServiceMetrics,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Delivery {
    Token,
    End,
}

/// The output of one request.
struct TokenStream {
    events: UnboundedSender<StreamEvent>,
    arrival: Micros,
    input_tokens: u32,
    instance: Option<InstanceIndex>,
    /// Tokens that the engine has generated.
    generated: u32,
    /// Tokens that have left.
    sent: u32,
    /// When the last of the generated tokens leaves, and the end of its step.
    leaves: Micros,
    step_end: Micros,
    /// When the token before left.
    left: Micros,
    outcome: Option<Outcome>,
}

impl Deliveries {
    /// No requests; `output_token_time` is the delay of every token beside the steps.
    pub fn new(output_token_time: Micros, metrics: ServiceMetrics) -> Self {
        Self { streams: FxHashMap::default(), due: BinaryHeap::new(), known: 0, output_token_time, metrics }
    }

    /// `request` is in the service, and its tokens go to `events`.
    pub fn add(&mut self, request: &Request, events: UnboundedSender<StreamEvent>) {
        self.metrics.arrived();
        let stream = TokenStream {
            events,
            arrival: request.arrival,
            input_tokens: request.input_tokens,
            instance: None,
            generated: 0,
            sent: 0,
            leaves: Micros::ZERO,
            step_end: Micros::ZERO,
            left: Micros::ZERO,
            outcome: None,
        };
        self.streams.insert(request.id, stream);
    }

    /// The client of request `id` is gone. Returns whether the request is in the service still, and its instance.
    pub fn abandon(&mut self, id: RequestId) -> Option<Option<InstanceIndex>> {
        let stream = self.streams.remove(&id)?;
        self.metrics.cancelled();
        stream.outcome.is_none().then_some(stream.instance)
    }

    /// Number of requests that have not ended for their clients.
    pub fn len(&self) -> usize {
        self.streams.len()
    }

    /// When the next token leaves.
    pub fn next_due(&self) -> Option<Micros> {
        self.due.peek().map(|Reverse((at, ..))| *at)
    }

    /// Sends everything that is due at `now`.
    pub fn deliver(&mut self, now: Micros) {
        while let Some(&Reverse((at, _, id, delivery))) = self.due.peek()
            && at <= now
        {
            self.due.pop();
            match delivery {
                Delivery::Token => self.token(at, id),
                Delivery::End => self.end(at, id),
            }
        }
    }

    fn token(&mut self, at: Micros, id: RequestId) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        // The last one leaves with the end.
        if stream.outcome.is_some_and(|outcome| stream.sent + 1 >= outcome.generated_tokens) {
            return;
        }
        stream.send(at, StreamEvent::Token, &mut self.metrics);
    }

    fn end(&mut self, at: Micros, id: RequestId) {
        let Some(mut stream) = self.streams.remove(&id) else { return };
        let Some(outcome) = stream.outcome else { return };
        if !outcome.completed() {
            self.metrics.refused();
            // The receiver is gone if the client is.
            let _ = stream.events.send(StreamEvent::Refused(refusal(outcome.status)));
            return;
        }
        while stream.sent + 1 < outcome.generated_tokens {
            stream.send(at, StreamEvent::Token, &mut self.metrics);
        }
        let last =
            StreamEvent::Last { capped: outcome.status == Status::LengthCapped, cached_tokens: outcome.cached_tokens };
        stream.send(at, last, &mut self.metrics);
        self.metrics.completed(&outcome);
    }

    fn push(&mut self, at: Micros, id: RequestId, delivery: Delivery) {
        self.known += 1;
        self.due.push(Reverse((at, self.known, id, delivery)));
    }

    fn first_token(&mut self, first: &FirstToken) {
        let Some(stream) = self.streams.get_mut(&first.id) else { return };
        // In BLIS a preempted request starts anew; its first token has left.
        if stream.generated > 0 {
            return;
        }
        let at = first.arrival.saturating_add(first.ttft);
        stream.instance = Some(first.instance);
        (stream.generated, stream.leaves) = (1, at);
        self.push(at, first.id, Delivery::Token);
    }

    /// The last token of prompt and output so far produces the next token of the output, at the end of the step.
    fn step(&mut self, step: &StepRecord) {
        for &(id, computed, context) in &step.scheduled {
            let Some(stream) = self.streams.get_mut(&id) else { continue };
            let known = context + computed;
            if known == stream.input_tokens && stream.generated <= 1 {
                stream.step_end = step.end; // of the first token, which has its own event
            } else if stream.generated > 0 && known == stream.input_tokens + stream.generated {
                let gap = step.end.saturating_sub(stream.step_end).saturating_add(self.output_token_time);
                stream.generated += 1;
                (stream.step_end, stream.leaves) = (step.end, stream.leaves.saturating_add(gap));
                let at = stream.leaves;
                self.push(at, id, Delivery::Token);
            }
        }
    }

    fn outcome(&mut self, outcome: &Outcome) {
        let Some(stream) = self.streams.get_mut(&outcome.id) else { return };
        stream.outcome = Some(*outcome);
        let at = outcome.e2e.map_or(outcome.ended_at, |e2e| outcome.arrival.saturating_add(e2e));
        self.push(at, outcome.id, Delivery::End);
    }
}

impl TokenStream {
    fn send(&mut self, at: Micros, event: StreamEvent, metrics: &mut ServiceMetrics) {
        match self.sent {
            0 => metrics.first_token(at.saturating_sub(self.arrival)),
            _ => metrics.token(at.saturating_sub(self.left)),
        }
        self.sent += 1;
        self.left = at;
        // The receiver is gone if the client is, and a message about that is on its way.
        let _ = self.events.send(event);
    }
}

impl Observer for Deliveries {
    fn interests(&self) -> Interests {
        Interests::DECISIONS | Interests::STEPS | Interests::FIRST_TOKENS | Interests::OUTCOMES
    }

    fn record(&mut self, event: &SimEvent<'_>) {
        match event {
            SimEvent::Decision(Decision::Routing { request, cluster, choice, .. }) => {
                if let Some(stream) = self.streams.get_mut(&request.id) {
                    stream.instance = cluster.instances.get(choice.target).map(|instance| instance.id);
                }
            }
            SimEvent::Step { step, .. } => self.step(step),
            SimEvent::FirstToken(first) => self.first_token(first),
            SimEvent::Outcome(outcome) => self.outcome(outcome),
            _ => {}
        }
    }
}

fn refusal(status: Status) -> RefusalReason {
    match status {
        Status::Rejected(rejection) => match rejection {
            Rejection::Admission | Rejection::GatewayFull | Rejection::GatewayDisplaced => RefusalReason::TooMany,
            Rejection::Server | Rejection::NoReplica | Rejection::GatewayExpired => RefusalReason::Unavailable,
            Rejection::Routing => RefusalReason::NoModel,
        },
        Status::Dropped(reason) => RefusalReason::Impossible(reason),
        Status::Evicted => RefusalReason::Evicted,
        _ => RefusalReason::Unavailable,
    }
}
