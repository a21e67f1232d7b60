//! Delivers events to policies in the order in which they happened.
//!
//! Instances run ahead of the service: a step that starts now generates tokens later. The events that they report are
//! therefore queued until their time has passed.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::ids::{InstanceIndex, RequestId};
use crate::outcome::{FirstToken, Outcome, Status};
use crate::policy::{Event, EventKind, Events, RequestView};
use crate::request::{BlockKey, Tags};
use crate::units::Micros;

/// Events that were not delivered yet.
#[derive(Clone, Debug, Default)]
pub(super) struct EventDelivery {
    wanted: Events,
    waiting: BinaryHeap<Reverse<QueuedEvent>>,
    /// Changes of prefix caches from the latest refresh.
    blocks: Vec<Event>,
    /// Number of events so far: the order among simultaneous events of one instance.
    reported: u64,
}

#[derive(Clone, Debug)]
struct QueuedEvent {
    event: Event,
    number: u64,
}

impl EventDelivery {
    pub fn new(wanted: Events) -> Self {
        Self { wanted, ..Self::default() }
    }

    pub fn wanted(&self) -> Events {
        self.wanted
    }

    /// From now on also delivers `events`.
    pub fn want(&mut self, events: Events) {
        self.wanted = self.wanted.and(events);
    }

    /// Queues the first token of a request, which may lie in the future.
    pub fn first_token(&mut self, first: &FirstToken) {
        if !self.wanted.first_token {
            return;
        }
        self.report(Event {
            at: first.arrival.saturating_add(first.ttft),
            kind: EventKind::FirstToken,
            request: first.id,
            instance: Some(first.instance),
            input_tokens: first.input_tokens,
            generated_tokens: 1,
            ttft: Some(first.ttft),
            e2e: None,
            tags: first.tags,
            block: 0,
        });
    }

    /// Queues the end of a request on an instance.
    pub fn ended(&mut self, outcome: &Outcome) {
        let kind = match outcome.status {
            Status::Completed | Status::LengthCapped => EventKind::Completed,
            Status::TimedOut | Status::Dropped(_) | Status::Evicted => EventKind::Ended,
            // The simulation ended, not the request.
            Status::Queued | Status::Running | Status::Arriving | Status::InGateway | Status::Rejected(_) => return,
        };
        if !self.wanted.include(kind) {
            // An event that no policy receives is not queued: there would be one for every request.
            return;
        }
        self.report(Event {
            at: outcome.e2e.map_or(outcome.ended_at, |e2e| outcome.arrival.saturating_add(e2e)),
            kind,
            request: outcome.id,
            instance: outcome.instance,
            input_tokens: outcome.input_tokens,
            generated_tokens: outcome.generated_tokens,
            ttft: outcome.ttft,
            e2e: outcome.e2e,
            tags: outcome.tags,
            block: 0,
        });
    }

    /// Queues a change of the cache signal: at `now` it shows that `instance` has the block `key`, or no longer has it.
    pub fn block(&mut self, now: Micros, instance: InstanceIndex, key: BlockKey, present: bool) {
        if !self.wanted.blocks {
            return;
        }
        self.blocks.push(Event {
            at: now,
            kind: if present { EventKind::BlockStored } else { EventKind::BlockEvicted },
            request: RequestId::default(),
            instance: Some(instance),
            input_tokens: 0,
            generated_tokens: 0,
            ttft: None,
            e2e: None,
            tags: Tags::default(),
            block: key,
        });
    }

    /// Time of the next event to be delivered; [`Micros::MAX`] if there is none.
    pub fn next_event(&self) -> Micros {
        self.waiting.peek().map_or(Micros::MAX, |Reverse(first)| first.event.at)
    }

    /// Delivers all events before `now`, then the changes of caches from the latest refresh.
    #[inline]
    pub fn deliver(&mut self, now: Micros, observe: impl FnMut(&Event)) {
        if !(self.waiting.is_empty() && self.blocks.is_empty()) {
            self.deliver_waiting(now, observe);
        }
    }

    fn deliver_waiting(&mut self, now: Micros, mut observe: impl FnMut(&Event)) {
        while self.waiting.peek().is_some_and(|Reverse(first)| first.event.at < now) {
            if let Some(Reverse(QueuedEvent { event, .. })) = self.waiting.pop() {
                observe(&event);
            }
        }
        // Changes found by one refresh have no order in time: they are ordered by instance and block.
        self.blocks.sort_unstable_by_key(|event| (event.instance, event.block));
        self.blocks.drain(..).for_each(|event| observe(&event));
    }

    /// Delivers the decision about `request` at `now`: dispatched to `instance`, or rejected.
    pub fn decided(
        &self,
        now: Micros,
        request: &RequestView<'_>,
        instance: Option<InstanceIndex>,
        observe: impl FnOnce(&Event),
    ) {
        let kind = if instance.is_some() { EventKind::Routed } else { EventKind::Rejected };
        if !self.wanted.include(kind) {
            // An event that no policy receives is not built: there would be one for every request.
            return;
        }
        observe(&Event {
            at: now,
            kind,
            request: request.id,
            instance,
            input_tokens: request.input_tokens,
            generated_tokens: 0,
            ttft: None,
            e2e: None,
            tags: request.tags,
            block: 0,
        });
    }

    fn report(&mut self, event: Event) {
        self.waiting.push(Reverse(QueuedEvent { event, number: self.reported }));
        self.reported += 1;
    }
}

impl QueuedEvent {
    fn key(&self) -> (Micros, Option<InstanceIndex>, u64) {
        (self.event.at, self.event.instance, self.number)
    }
}

impl PartialEq for QueuedEvent {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for QueuedEvent {}

impl PartialOrd for QueuedEvent {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for QueuedEvent {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}
