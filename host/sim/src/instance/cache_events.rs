//! When the router learns which blocks an instance has stored and evicted.
//!
//! vLLM lists KV events while it schedules a step, and publishes them with the next output that it processes (0.33.0,
//! `v1/core/sched/scheduler.py` `update_from_output`, `v1/engine/core.py` `step_with_batch_queue`):
//!
//! | scheduling | the events of a step are published |
//! |---|---|
//! | synchronous | at its end |
//! | asynchronous, a step is under way when it is scheduled | at the end of that one, where it starts itself |
//! | asynchronous, the first step after idle | at its end |
//!
//! BLIS shows them when the step is planned, and needs none of this.

use crate::limits::CACHE_CHANGES;
use crate::request::BlockKey;
use crate::units::Micros;

/// The KV events of an instance that the router has not read.
#[derive(Clone, Debug)]
pub(super) struct CacheEvents {
    is_async: bool,
    /// Those of the last steps, in order of time.
    recent: Vec<CacheEvent>,
    /// Those that are published for certain: blocks and whether they are in the cache, in order of time.
    published: Vec<(BlockKey, bool)>,
    /// Length of `published` at which to drop events with a later one of the same block.
    compact_at: usize,
    /// Start of the last step that was executed.
    last_start: Option<Micros>,
}

#[derive(Clone, Copy, Debug)]
struct CacheEvent {
    /// Time at which it is published.
    at: Micros,
    key: BlockKey,
    is_present: bool,
}

/// A step that was executed, as far as the time of its events depends on it.
#[derive(Clone, Copy, Debug)]
pub(super) struct PublishedStep {
    pub start: Micros,
    pub end: Micros,
    /// Whether another step was under way when it was scheduled.
    pub follows: bool,
    /// Whether it computes something. Otherwise it is no step of vLLM, and its events are published at once.
    pub computes: bool,
}

impl CacheEvents {
    /// Of an instance that has executed no step.
    pub fn new(is_async: bool) -> Self {
        Self { is_async, recent: Vec::new(), published: Vec::new(), compact_at: CACHE_CHANGES, last_start: None }
    }

    /// Whether a request that joined the queue at `joined` was there when the last step started: the step that it enters may
    /// have been scheduled with that one under way.
    pub fn was_queued(&self, joined: Micros) -> bool {
        self.last_start.is_some_and(|start| joined <= start)
    }

    /// Whether events are published when a step ends, and not when it starts.
    pub fn at_end(&self) -> bool {
        !self.is_async
    }

    /// The steps up to one that started at `start` were executed.
    pub fn started(&mut self, start: Micros) {
        self.last_start = Some(start);
    }

    /// The events of `step`, in the order in which `take` gives them.
    pub fn add(&mut self, step: PublishedStep, take: impl FnOnce(&mut dyn FnMut(BlockKey, bool))) {
        self.settle(step.start);
        let at_start = !step.computes || self.is_async && step.follows;
        let at = if at_start { step.start } else { step.end };
        // Never before those of earlier steps: the later state of a block counts.
        let at = self.recent.last().map_or(at, |last| last.at.max(at));
        take(&mut |key, is_present| self.recent.push(CacheEvent { at, key, is_present }));
        self.started(step.start);
    }

    /// Calls `each` with the last event of each block that is published at `now`, and removes them. Returns when the next one is
    /// published. Events before `now` were executed, and none after.
    #[inline]
    pub fn take(&mut self, now: Micros, each: &mut dyn FnMut(BlockKey, bool)) -> Option<Micros> {
        if self.recent.is_empty() && self.published.is_empty() {
            // Where no requests share blocks there are never any.
            return None;
        }
        self.settle(now);
        // A policy that follows the caches gets at most one event of a block for one time.
        self.compact();
        self.published.drain(..).for_each(|(key, is_present)| each(key, is_present));
        self.recent.first().map(|next| next.at)
    }

    /// Moves the events that are published at `now` to those that are published for certain.
    fn settle(&mut self, now: Micros) {
        let past = self.recent.partition_point(|event| event.at <= now);
        self.published.extend(self.recent.drain(..past).map(|event| (event.key, event.is_present)));
        if self.published.len() >= self.compact_at {
            self.compact();
        }
    }

    /// Keeps the last event of each block: a router that does not read for long must not make the list grow.
    fn compact(&mut self) {
        self.published.reverse();
        self.published.sort_by_key(|&(key, _)| key);
        self.published.dedup_by_key(|&mut (key, _)| key);
        self.compact_at = (2 * self.published.len()).max(CACHE_CHANGES);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(events: &mut CacheEvents, now: u64) -> Vec<(BlockKey, bool)> {
        let mut taken = Vec::new();
        events.take(Micros(now), &mut |key, is_present| taken.push((key, is_present)));
        taken
    }

    fn step(start: u64, follows: bool) -> PublishedStep {
        PublishedStep { start: Micros(start), end: Micros(start + 100), follows, computes: true }
    }

    #[test]
    fn events_are_published_at_the_end_of_a_step() {
        let mut events = CacheEvents::new(false);
        events.add(step(0, false), |each| each(1, true));
        assert_eq!(taken(&mut events, 99), []);
        events.add(step(100, true), |each| each(2, true));
        assert_eq!(taken(&mut events, 101), [(1, true)]);
        assert_eq!(events.take(Micros(150), &mut |_, _| unreachable!("published later")), Some(Micros(200)));
        assert_eq!(taken(&mut events, 200), [(2, true)]);
    }

    #[test]
    fn with_a_full_queue_they_are_published_a_step_earlier() {
        let mut events = CacheEvents::new(true);
        events.add(step(0, false), |each| each(1, true));
        assert_eq!(taken(&mut events, 99), []);
        events.add(step(100, true), |each| each(2, true));
        assert_eq!(taken(&mut events, 100), [(1, true), (2, true)]);
    }

    #[test]
    fn of_many_unread_events_the_last_of_each_block_is_kept() {
        let mut events = CacheEvents::new(false);
        for number in 0..10_001 {
            events.add(step(100 * number, true), |each| each(7, number.is_multiple_of(2)));
        }
        assert!(events.published.len() + events.recent.len() <= 2 * CACHE_CHANGES);
        assert_eq!(taken(&mut events, u64::MAX).last(), Some(&(7, true)));
    }
}
