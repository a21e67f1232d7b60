//! The record of all events of every request and of every step of every instance.

use std::sync::Arc;

use blis_sim::ids::{InstanceIndex, RequestId};
use blis_sim::instance::StepRecord;
use blis_sim::latency::LatencyModel;
use blis_sim::observer::{Interests, Observer, SimEvent};
use blis_sim::outcome::{Decision, GatewayChoice, GatewayDecision, Outcome, StageTimes, Status};
use blis_sim::request::Request;
use blis_sim::semantics::Semantics;
use blis_sim::units::Micros;

/// An observer; its record is kept to the end of the run: some 400 bytes per request, and for formats that need them 64
/// bytes per step and 8 per token.
#[derive(Debug)]
pub struct Journal {
    detail: JournalDetail,
    /// [`Semantics::preemption_restarts`](blis_sim::semantics::Semantics::preemption_restarts).
    restarts: bool,
    /// The model that gives the queueing time of requests; `None` if a plugin computes latency.
    latency: Option<Arc<dyn LatencyModel>>,
    /// The requests in the order of arrival.
    pub(super) journeys: Vec<Journey>,
    /// By request: its index in `journeys`; [`NOT_ARRIVED`] before its arrival.
    indices: Vec<u32>,
    /// The steps in the order in which they were planned.
    pub(super) steps: Vec<StepSums>,
    /// Number of steps of each instance.
    counts: Vec<u64>,
}

/// What a journal keeps beside the events of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum JournalDetail {
    Requests,
    /// The steps of every instance.
    Steps,
    /// The steps, and the time of every output token.
    Tokens,
}

const NOT_ARRIVED: u32 = u32::MAX;

/// The events of one request.
#[derive(Clone, Debug)]
pub(super) struct Journey {
    pub request: Request,
    /// Times at which it joined and left the gateway's queue, if it waited there and was dispatched.
    pub in_gateway: Option<(Micros, Micros)>,
    /// Time at which an instance got it that computes its prompt.
    pub handed_over: Option<Micros>,
    /// From its routing decision until that instance had the embeddings, if it was encoded first.
    pub encoded: Option<(Micros, Micros)>,
    /// Time at which it joined the waiting queue of the instance.
    pub queued: Option<Micros>,
    pub in_batch: Vec<BatchChange>,
    /// The instance that has computed it last.
    pub instance: Option<InstanceIndex>,
    /// If it went from one instance to another: the number of its last step on the first.
    pub left_first: Option<u64>,
    /// Its stages, if another instance prefilled it than the one that decoded it.
    pub parts: Option<StageTimes>,
    /// Number of output tokens that the engine has produced.
    pub generated: u32,
    /// Time at which it produced the first one, without the host's time per token.
    pub first_output: Option<Micros>,
    /// The same for each output token; empty below [`JournalDetail::Tokens`].
    pub tokens: Vec<Micros>,
    /// Number of the step that produced the first output token.
    pub first_step: Option<u64>,
    /// Largest number of prompt tokens with computed KV: preemption does not lower it.
    pub prefilled: u32,
    /// Number of the step in which it ended.
    pub last_step: Option<u64>,
    pub outcome: Option<Outcome>,
}

/// An entry into the running batch, or a preemption.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BatchChange {
    pub at: Micros,
    pub instance: InstanceIndex,
    pub step: u64,
    pub entered: bool,
    /// [`Journey::prefilled`] at that time.
    pub prefilled: u32,
    pub generated: u32,
}

/// A step of an instance.
#[derive(Clone, Copy, Debug)]
struct NumberedStep {
    instance: InstanceIndex,
    /// Its number among the steps of the instance.
    number: u64,
    start: Micros,
    end: Micros,
}

/// The sums of one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StepSums {
    pub instance: InstanceIndex,
    pub number: u64,
    pub start: Micros,
    pub end: Micros,
    pub running: u32,
    pub waiting: u32,
    pub prefill_requests: u32,
    pub decode_requests: u32,
    pub prefill_tokens: u32,
    pub finished: u32,
    pub preempted: u32,
    pub free_blocks: u32,
}

impl Journal {
    /// A journal for a service with that latency model.
    #[must_use]
    pub fn new(detail: JournalDetail, semantics: Semantics, latency: Option<Arc<dyn LatencyModel>>) -> Self {
        Self {
            detail,
            restarts: semantics.preemption_restarts,
            latency,
            journeys: Vec::new(),
            indices: Vec::new(),
            steps: Vec::new(),
            counts: Vec::new(),
        }
    }

    fn journey(&mut self, id: RequestId) -> Option<&mut Journey> {
        let index = *self.indices.get(id.index())?;
        self.journeys.get_mut(index as usize)
    }

    fn number(&mut self, instance: InstanceIndex) -> u64 {
        let index = instance.index();
        if self.counts.len() <= index {
            self.counts.resize(index + 1, 0);
        }
        self.counts[index] += 1;
        self.counts[index]
    }
}

impl Journey {
    /// The ITLs: between the ends of steps, with the host's time per token.
    pub fn gaps(&self) -> impl Iterator<Item = Micros> + '_ {
        let ends = self.tokens.first().zip(self.tokens.last());
        let steps = ends.map_or(Micros::ZERO, |(first, last)| *last - *first);
        let counted = self.completed().map(|outcome| (outcome.itl_sum, u64::from(outcome.itl_count)));
        let (sum, count) = counted.filter(|&(_, count)| count > 0).unwrap_or((steps, 1));
        let added = Micros(sum.saturating_sub(steps).0 / count);
        self.tokens.windows(2).map(move |pair| pair[1] - pair[0] + added)
    }

    /// Time of the first output token.
    pub fn first_token(&self) -> Option<Micros> {
        let recorded = self.outcome.and_then(|outcome| outcome.ttft).map(|ttft| self.request.arrival + ttft);
        recorded.or(self.first_output)
    }

    /// The outcome, if the request completed.
    pub fn completed(&self) -> Option<&Outcome> {
        self.outcome.as_ref().filter(|outcome| outcome.completed())
    }

    /// The reason in one word for which it did not complete; `None` if it did.
    pub fn failure(&self) -> Option<&'static str> {
        match self.outcome.map(|outcome| outcome.status) {
            Some(Status::Completed | Status::LengthCapped) => None,
            Some(Status::TimedOut) => Some("timeout"),
            Some(Status::Evicted) => Some("evicted"),
            Some(Status::Dropped(_)) => Some("dropped"),
            Some(Status::Rejected(_)) => Some("rejected"),
            Some(Status::Queued | Status::Running | Status::Arriving | Status::InGateway) | None => Some("incomplete"),
        }
    }

    /// Whether it is in the running batch.
    pub fn is_in_batch(&self) -> bool {
        self.in_batch.last().is_some_and(|change| change.entered)
    }

    /// Adds a step that computes `n` tokens after a context of `context`; keeps the time of the output token if `tokens_wanted`.
    fn computes(&mut self, step: NumberedStep, n: u32, context: u32, tokens_wanted: bool) {
        let NumberedStep { instance, number, start, end } = step;
        let generated = self.generated;
        let known = |tokens: u32| tokens.min(self.request.input_tokens).max(self.prefilled);
        let (before, after) = (known(context), known(context + n));
        let is_here = self.instance.is_none_or(|before| before == instance);
        if !is_here {
            self.left_first = self.last_step;
        }
        if !is_here || !self.is_in_batch() {
            let entered =
                BatchChange { at: start, instance, step: number, entered: true, prefilled: before, generated };
            self.in_batch.push(entered);
        }
        self.instance = Some(instance);
        self.prefilled = after;
        // The last token of prompt and output so far produces the next output token.
        if context + n == self.request.input_tokens + generated && generated < self.request.output_tokens {
            if generated == 0 {
                self.first_step = Some(number);
                self.first_output = Some(end);
            }
            self.generated += 1;
            if tokens_wanted {
                self.tokens.push(end);
            }
        }
    }
}

impl Journal {
    fn arrived(&mut self, request: &Request) {
        if self.indices.len() <= request.id.index() {
            self.indices.resize(request.id.index() + 1, NOT_ARRIVED);
        }
        self.indices[request.id.index()] = self.journeys.len() as u32;
        self.journeys.push(Journey {
            request: request.clone(),
            in_gateway: None,
            handed_over: None,
            encoded: None,
            queued: None,
            in_batch: Vec::new(),
            instance: None,
            left_first: None,
            parts: None,
            generated: 0,
            first_output: None,
            tokens: Vec::new(),
            first_step: None,
            prefilled: 0,
            last_step: None,
            outcome: None,
        });
    }

    fn decided(&mut self, decision: &Decision<'_>) {
        if let &Decision::Gateway(GatewayDecision { now, request, choice, .. }) = decision {
            if let (GatewayChoice::Dispatched { waited, .. }, Some(journey)) = (choice, self.journey(request))
                && waited > Micros::ZERO
            {
                journey.in_gateway = Some((now - waited, now));
            }
            return;
        }
        if let Decision::Disaggregation(choice) = decision {
            // Otherwise routing follows.
            if let Some(journey) = self.journey(choice.request.id).filter(|_| choice.disaggregate) {
                journey.handed_over = Some(choice.now);
            }
            return;
        }
        let Decision::Routing { request, cluster, .. } = decision else { return };
        let waits = self.latency.as_ref().map(|latency| latency.queueing_time(request.input_tokens));
        if let Some(journey) = self.journey(request.id) {
            journey.handed_over = Some(cluster.now);
            journey.queued = waits.map(|waits| cluster.now.saturating_add(waits));
        }
    }

    fn step(&mut self, instance: InstanceIndex, step: &StepRecord) {
        let number = self.number(instance);
        let (mut prefill_requests, mut prefill_tokens) = (0, 0);
        let (restarts, tokens_wanted) = (self.restarts, self.detail == JournalDetail::Tokens);
        for &id in &step.preempted {
            if let Some(journey) = self.journey(id) {
                let (generated, prefilled) = (journey.generated, journey.prefilled);
                journey.in_batch.push(BatchChange {
                    at: step.now,
                    instance,
                    step: number,
                    entered: false,
                    prefilled,
                    generated,
                });
                if restarts {
                    (journey.generated, journey.first_output) = (0, None);
                    journey.tokens.clear();
                }
            }
        }
        let numbered = NumberedStep { instance, number, start: step.now, end: step.end };
        for &(id, n, context) in &step.scheduled {
            if let Some(journey) = self.journey(id) {
                let prefills = context < journey.request.input_tokens + journey.generated.max(1) - 1;
                prefill_requests += u32::from(prefills);
                prefill_tokens += if prefills { n } else { 0 };
                journey.computes(numbered, n, context, tokens_wanted);
            }
        }
        for &id in &step.finished {
            if let Some(journey) = self.journey(id) {
                journey.last_step = Some(number);
            }
        }
        self.steps.push(StepSums {
            instance,
            number,
            start: step.now,
            end: step.end,
            running: step.running,
            waiting: step.waiting,
            prefill_requests,
            decode_requests: step.scheduled.len() as u32 - prefill_requests,
            prefill_tokens,
            finished: step.finished.len() as u32,
            preempted: step.preempted.len() as u32,
            free_blocks: step.free_blocks,
        });
    }

    fn ended(&mut self, outcome: &Outcome) {
        if let Some(journey) = self.journey(outcome.id) {
            journey.outcome = Some(*outcome);
        }
    }
}

impl Observer for Journal {
    #[inline]
    fn interests(&self) -> Interests {
        let interests = Interests::ARRIVALS | Interests::DECISIONS | Interests::OUTCOMES;
        if self.detail >= JournalDetail::Steps { interests | Interests::STEPS } else { interests }
    }

    #[inline]
    fn record(&mut self, event: &SimEvent<'_>) {
        match *event {
            SimEvent::Arrival(request) => self.arrived(request),
            SimEvent::Decision(decision) => self.decided(decision),
            SimEvent::Step { instance, step } if self.detail >= JournalDetail::Steps => self.step(instance, step),
            SimEvent::Encoded(times) => {
                if let Some(journey) = self.journey(times.id)
                    && let Some(routed) = journey.handed_over
                {
                    let took = [times.queue, times.time, times.transfer].into_iter().flatten().sum();
                    let until = routed.saturating_add(took);
                    journey.encoded = Some((routed, until));
                    journey.handed_over = times.transfer.map(|_| until);
                }
            }
            SimEvent::Disaggregated(parts) => {
                if let Some(journey) = self.journey(parts.id) {
                    journey.parts = Some(*parts);
                }
            }
            SimEvent::Outcome(outcome) => self.ended(outcome),
            _ => {}
        }
    }
}
