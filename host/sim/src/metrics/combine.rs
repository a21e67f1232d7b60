//! Sinks made of sinks.

use crate::instance::StepRecord;
use crate::outcome::{Decision, FirstToken, Outcome, Sink};
use crate::policy::Reads;
use crate::request::Request;
use crate::units::Micros;

/// Nobody listens.
impl Sink for () {
    fn outcome(&mut self, _outcome: &Outcome) {}

    fn itl(&mut self, _instance: u32, _gap: Micros, _count: u64) {}

    fn retract_itl(&mut self, _instance: u32, _gap: Micros, _count: u64) {}
}

/// Both sinks get everything.
impl<A: Sink, B: Sink> Sink for (A, B) {
    fn arrived(&mut self, request: &Request) {
        self.0.arrived(request);
        self.1.arrived(request);
    }

    fn step(&mut self, instance: u32, step: &StepRecord) {
        self.0.step(instance, step);
        self.1.step(instance, step);
    }

    fn wants_steps(&self) -> bool {
        self.0.wants_steps() || self.1.wants_steps()
    }

    fn outcome(&mut self, outcome: &Outcome) {
        self.0.outcome(outcome);
        self.1.outcome(outcome);
    }

    fn first_token(&mut self, first: &FirstToken) {
        self.0.first_token(first);
        self.1.first_token(first);
    }

    fn itl(&mut self, instance: u32, gap: Micros, count: u64) {
        self.0.itl(instance, gap, count);
        self.1.itl(instance, gap, count);
    }

    fn retract_itl(&mut self, instance: u32, gap: Micros, count: u64) {
        self.0.retract_itl(instance, gap, count);
        self.1.retract_itl(instance, gap, count);
    }

    fn wants_scheduling(&self) -> bool {
        self.0.wants_scheduling() || self.1.wants_scheduling()
    }

    fn decision(&mut self, decision: &Decision<'_>) {
        self.0.decision(decision);
        self.1.decision(decision);
    }

    fn reads(&self) -> Reads {
        self.0.reads().and(self.1.reads())
    }
}

/// A sink that may be switched off.
impl<S: Sink> Sink for Option<S> {
    fn arrived(&mut self, request: &Request) {
        if let Some(sink) = self {
            sink.arrived(request);
        }
    }

    fn step(&mut self, instance: u32, step: &StepRecord) {
        if let Some(sink) = self {
            sink.step(instance, step);
        }
    }

    fn wants_steps(&self) -> bool {
        self.as_ref().is_some_and(Sink::wants_steps)
    }

    fn outcome(&mut self, outcome: &Outcome) {
        if let Some(sink) = self {
            sink.outcome(outcome);
        }
    }

    fn first_token(&mut self, first: &FirstToken) {
        if let Some(sink) = self {
            sink.first_token(first);
        }
    }

    fn itl(&mut self, instance: u32, gap: Micros, count: u64) {
        if let Some(sink) = self {
            sink.itl(instance, gap, count);
        }
    }

    fn retract_itl(&mut self, instance: u32, gap: Micros, count: u64) {
        if let Some(sink) = self {
            sink.retract_itl(instance, gap, count);
        }
    }

    fn wants_scheduling(&self) -> bool {
        self.as_ref().is_some_and(Sink::wants_scheduling)
    }

    fn decision(&mut self, decision: &Decision<'_>) {
        if let Some(sink) = self {
            sink.decision(decision);
        }
    }

    fn reads(&self) -> Reads {
        self.as_ref().map_or(Reads::NOTHING, Sink::reads)
    }
}
