//! Guests as policies of the simulator. An output that cannot be used (`ranges.rs`) is recorded as an incident, and a built-in
//! policy makes that decision, so that the simulation stays consistent until it ends or is cancelled:
//!
//! | kind | decision instead of a failed plugin |
//! |---|---|
//! | admission | admit |
//! | routing, as policy, scorer or picker; routing filter | the least loaded instance, the first of several |
//! | priority | 0 |
//! | scheduling | first come, first served |
//! | preemption | the request that was admitted last |
//! | latency | the deployment's built-in model |
//! | saturation | `utilization` with its defaults |
//! | ceilings | 1 for every band |
//! | fairness | the flow that `global-strict` picks |
//! | ordering | the order in which requests are enqueued |
//! | eviction | none is evicted |
//! | scaling | `queue` with its defaults |
//! | drain | the replica of `newest` |
//! | placement | the node of `first-fit` |
//! | kv-cache | rank 0, that is least recently used; stored; loaded |
//! | disaggregation | the chosen instance prefills the request |
//! | batching | no limits |

mod disaggregation;
mod flow;
mod kv_cache;
mod replicas;
mod scaling;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use blis_sim::latency::{Batch, ContextEffect, LatencyModel};
use blis_sim::policy::{
    AdmissionDecision, AdmissionPolicy, BatchView, BatchingPolicy, BlockIds, ClusterView, Event, EventKind, Events,
    PreemptionPolicy, PriorityPolicy, QueuedView, Rank, Reads, Reason, RequestView, RoutingDecision, RoutingPolicy,
    RoutingStep, SchedulingPolicy, StepBudget, StepFailed, StepMemory, StepState, Ties,
};
use blis_sim::units::Micros;

use super::incidents::{Incidents, MeteredCall, OnError};
use super::limits::constant_range;
use super::ranges::duration;
use super::{Fault, FaultKind, Function, Guest, Inputs, Kind, LatencyConstants, Output, PolicyDescription};

pub use scaling::PluginScaling;

/// A guest as a policy of the simulator, of the kind for which it was started.
#[derive(Debug)]
pub struct PluginPolicy {
    name: Arc<str>,
    kind: Kind,
    /// Locked only where the simulator shares policies between threads in order to copy them.
    guest: Mutex<Box<dyn Guest>>,
    reads: Reads,
    events: Events,
    block_ids: BlockIds,
    incidents: Incidents,
}

impl PluginPolicy {
    /// A policy of `guest`, which was started from the plugin called `name` and knows blocks by `block_ids`.
    #[must_use]
    pub fn new(
        name: &str,
        description: &PolicyDescription,
        guest: Box<dyn Guest>,
        block_ids: BlockIds,
        incidents: &Incidents,
    ) -> Self {
        let kind = guest.kind();
        let needed = match (kind, incidents.on_error()) {
            (Kind::Routing | Kind::RoutingFilter, OnError::Fallback) => {
                Reads { load: true, in_flight: true, ..Reads::NOTHING }
            }
            (Kind::Saturation, OnError::Fallback) => Reads { load: true, ..Reads::NOTHING },
            _ => Reads::NOTHING,
        };
        let policy = Self {
            name: name.into(),
            kind,
            guest: Mutex::new(guest),
            reads: description.reads.and(needed),
            events: description.events,
            block_ids,
            incidents: incidents.clone(),
        };
        policy.charge_lent(MeteredCall::Other, Micros::ZERO, &**policy.lock());
        policy
    }

    fn guest(&mut self) -> &mut (dyn Guest + 'static) {
        self.guest.get_mut().unwrap_or_else(PoisonError::into_inner).as_mut()
    }

    fn failed(&self, at: Micros, fault: Fault) {
        self.incidents.record(&self.name, self.kind, at, fault);
    }

    /// The output of `call` for a decision at `now`; `None` after a fault, which is recorded.
    fn decide<T>(
        &mut self,
        now: Micros,
        call: impl FnOnce(&mut (dyn Guest + 'static)) -> Result<T, Fault>,
    ) -> Option<T> {
        let output = call(self.guest()).map_err(|fault| self.failed(now, fault.of_plugin(&self.name))).ok();
        self.charge(MeteredCall::Decision, now);
        output
    }

    fn lock(&self) -> MutexGuard<'_, Box<dyn Guest>> {
        self.guest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn copy(&self) -> Self {
        let mut original = self.lock();
        let guest = original.fork().unwrap_or_else(|fault| {
            self.failed(Micros::ZERO, fault.clone());
            Box::new(LostGuest { kind: self.kind, fault })
        });
        for used in [&**original, &*guest] {
            self.charge_lent(MeteredCall::Other, Micros::ZERO, used);
        }
        Self {
            name: Arc::clone(&self.name),
            kind: self.kind,
            guest: Mutex::new(guest),
            reads: self.reads,
            events: self.events,
            block_ids: self.block_ids,
            incidents: self.incidents.clone(),
        }
    }

    fn deliver(&mut self, event: &Event) {
        // The run ends at its next decision; until then there may be many events.
        if self.incidents.is_used_up() {
            return;
        }
        let is_block = matches!(event.kind, EventKind::BlockStored | EventKind::BlockEvicted);
        let block = if is_block { self.block_ids.id(event.block) } else { event.block };
        if let Err(fault) = self.guest().observe(&Event { block, ..*event }) {
            self.failed(event.at, fault);
        }
        self.charge(MeteredCall::Other, event.at);
    }

    /// Adds what the latest call used to the total of all calls.
    fn charge(&mut self, call: MeteredCall, at: Micros) {
        let Self { guest, incidents, .. } = self;
        let guest = guest.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(most) = incidents.charge(call, || guest.used()) {
            self.failed(at, self.exhausted(most));
        }
    }

    /// As [`Self::charge`], of a guest that is locked.
    fn charge_lent(&self, call: MeteredCall, at: Micros, guest: &dyn Guest) {
        if let Some(most) = self.incidents.charge(call, || guest.used()) {
            self.failed(at, self.exhausted(most));
        }
    }

    #[cold]
    fn exhausted(&self, most: u64) -> Fault {
        let what = format!("{}: all calls together, events included, used more than {most} operations", self.name);
        let hint = "do less in each; what does not change between calls can be kept";
        Fault::new(FaultKind::OutOfFuel, what).hint(hint)
    }
}

/// Replaces a guest that could not be copied; every call fails.
#[derive(Debug)]
struct LostGuest {
    kind: Kind,
    fault: Fault,
}

impl Guest for LostGuest {
    fn kind(&self) -> Kind {
        self.kind
    }

    fn call(&mut self, _: Function, _: Inputs<'_>, _: &mut Vec<f64>) -> Result<Output, Fault> {
        Err(self.fault.clone())
    }

    fn save(&mut self) -> Result<Vec<u8>, Fault> {
        Err(self.fault.clone())
    }

    fn restore(&mut self, _: &[u8]) -> Result<(), Fault> {
        Err(self.fault.clone())
    }

    fn fork(&mut self) -> Result<Box<dyn Guest>, Fault> {
        Ok(Box::new(Self { kind: self.kind, fault: self.fault.clone() }))
    }
}

/// A copy of the policy, as its trait has it.
macro_rules! fork {
    ($policy:ident) => {
        fn fork(&self) -> Box<dyn $policy> {
            Box::new(self.copy())
        }
    };
}

/// What all policies with events have in common; `reads` of those that read what the description says.
macro_rules! lifecycle {
    ($policy:ident, reads) => {
        fn reads(&self) -> Reads {
            self.reads
        }

        lifecycle!($policy);
    };
    ($policy:ident) => {
        fn events(&self) -> Events {
            self.events
        }

        fn observe(&mut self, event: &Event) {
            self.deliver(event);
        }

        fork!($policy);
    };
}

use {fork, lifecycle};

impl AdmissionPolicy for PluginPolicy {
    fn admit(&mut self, request: &RequestView<'_>, cluster: &ClusterView<'_>) -> AdmissionDecision {
        let request = request.with_block_ids(self.block_ids);
        self.decide(cluster.now, |guest| guest.admit(&request, cluster)).unwrap_or(AdmissionDecision::Admit)
    }

    lifecycle!(AdmissionPolicy, reads);
}

impl RoutingPolicy for PluginPolicy {
    fn route(
        &mut self,
        request: &RequestView<'_>,
        cluster: &ClusterView<'_>,
        ties: &Ties,
        scores: &mut Vec<f64>,
    ) -> RoutingDecision {
        let request = request.with_block_ids(self.block_ids);
        let target = self.decide(cluster.now, |guest| guest.route(&request, cluster, ties, scores));
        if let Some(target) = target {
            return RoutingDecision { target, reason: Reason::Plugin(scores.get(target).copied()) };
        }
        scores.clear();
        let least = (0..cluster.len()).min_by_key(|&i| cluster.effective_load(i));
        RoutingDecision { target: least.unwrap_or(0), reason: Reason::Fallback }
    }

    lifecycle!(RoutingPolicy, reads);
}

/// A scorer or a filter of a pipeline.
impl RoutingStep for PluginPolicy {
    fn compute(
        &mut self,
        request: &RequestView<'_>,
        cluster: &ClusterView<'_>,
        ties: &Ties,
        memory: &mut StepMemory,
        numbers: &mut Vec<f64>,
    ) -> Result<(), StepFailed> {
        let (is_filter, request) = (self.kind == Kind::RoutingFilter, request.with_block_ids(self.block_ids));
        numbers.clear();
        let computed = self.decide(cluster.now, |guest| match is_filter {
            true => guest.filter(&request, cluster, ties, Some(memory), numbers),
            false => guest.scores(&request, cluster, ties, Some(memory), numbers),
        });
        computed.ok_or(StepFailed)
    }

    lifecycle!(RoutingStep, reads);
}

impl PriorityPolicy for PluginPolicy {
    fn priority(&mut self, request: &RequestView<'_>, now: Micros) -> i64 {
        let request = request.with_block_ids(self.block_ids);
        self.decide(now, |guest| guest.priority(&request, now)).unwrap_or(0)
    }

    lifecycle!(PriorityPolicy);
}

impl SchedulingPolicy for PluginPolicy {
    fn rank(&mut self, queued: &QueuedView<'_>) -> Rank {
        let queued = &QueuedView { request: queued.request.with_block_ids(self.block_ids), ..*queued };
        let rank = self.decide(queued.now, |guest| guest.rank(queued));
        Rank::real(rank.unwrap_or(queued.turn as f64))
    }

    fork!(SchedulingPolicy);
}

impl PreemptionPolicy for PluginPolicy {
    fn victim(&mut self, batch: &BatchView) -> usize {
        self.decide(batch.now, |guest| guest.victim(batch)).unwrap_or_else(|| batch.len() - 1)
    }

    fork!(PreemptionPolicy);
}

impl BatchingPolicy for PluginPolicy {
    fn budget(&mut self, now: Micros, state: &StepState) -> StepBudget {
        self.decide(now, |guest| guest.record(Function::Budget, now, state)).unwrap_or_default()
    }

    fork!(BatchingPolicy);
}

/// A guest as latency model. All instances share one guest: its outputs depend on the step alone.
#[derive(Debug)]
pub struct PluginLatency {
    name: Arc<str>,
    guest: Mutex<Box<dyn Guest>>,
    constants: LatencyConstants,
    context_effect: ContextEffect,
    instead: Arc<dyn LatencyModel>,
    incidents: Incidents,
}

impl PluginLatency {
    /// A latency model of `guest`, which was started from the plugin called `name`. `instead` computes the times when
    /// the guest fails.
    ///
    /// # Errors
    /// If the guest fails to return its constants, or one of them is too large.
    pub fn new(
        name: &str,
        description: &PolicyDescription,
        mut guest: Box<dyn Guest>,
        instead: Arc<dyn LatencyModel>,
        incidents: &Incidents,
    ) -> Result<Self, Fault> {
        let constants = guest.constants()?;
        check_constants(name, &constants)?;
        let context_effect = if description.every_step { ContextEffect::Any } else { ContextEffect::NonDecreasing };
        let incidents = incidents.clone();
        Ok(Self { name: name.into(), guest: Mutex::new(guest), constants, context_effect, instead, incidents })
    }

    fn call<T>(
        &self,
        question: impl FnOnce(&mut (dyn Guest + 'static)) -> Result<T, Fault>,
        instead: impl FnOnce() -> T,
    ) -> T {
        let mut guest = self.guest.lock().unwrap_or_else(PoisonError::into_inner);
        let output = question(guest.as_mut()).map_err(|fault| fault.of_plugin(&self.name));
        let exceeded = self.incidents.charge(MeteredCall::Decision, || guest.used()).map(|most| {
            let what = format!("{}: all calls together used more than {most} operations", self.name);
            Fault::new(FaultKind::OutOfFuel, what)
        });
        output.and_then(|output| exceeded.map_or(Ok(output), Err)).unwrap_or_else(|fault| {
            self.incidents.record(&self.name, Kind::Latency, Micros::ZERO, fault);
            instead()
        })
    }
}

/// Refuses constants of a plugin called `name` that no engine has. The simulation adds them without further checks.
fn check_constants(name: &str, constants: &LatencyConstants) -> Result<(), Fault> {
    let LatencyConstants { shortest_step_us, output_token_us, post_decode_us, scheduling_us, preemption_us } =
        *constants;
    let limits = [
        ("shortest_step_us", shortest_step_us),
        ("output_token_us", output_token_us),
        ("post_decode_us", post_decode_us),
        ("scheduling_us", scheduling_us),
        ("preemption_us", preemption_us),
    ];
    let limits = limits.map(|(name, us)| {
        let (least, most) = constant_range(name);
        (name, us, least, most)
    });
    match limits.into_iter().find(|(_, us, least, most)| !(least..=most).contains(&us)) {
        None => Ok(()),
        Some((what, us, least, most)) => {
            let message = format!("{name}: {what} is {us}; it must be from {least} to {most} µs");
            Err(Fault::new(FaultKind::OutOfRange, message))
        }
    }
}

impl LatencyModel for PluginLatency {
    fn step_time(&self, batch: &Batch) -> Micros {
        let least = if batch.tokens() > 0 { self.constants.shortest_step_us } else { 1 };
        let range = format_args!("at least {least} (its own shortest_step_us) and at most a day");
        let compute = |guest: &mut (dyn Guest + 'static)| {
            duration(Function::StepTime, guest.step_time(batch)?, least, range).map(Micros)
        };
        // The fallback keeps the guest's guarantee of a minimum step time.
        self.call(compute, || self.instead.step_time(batch).max(Micros(self.constants.shortest_step_us)))
    }

    fn context_effect(&self) -> ContextEffect {
        // Occasional steps of the built-in model may break any monotonicity.
        if self.incidents.on_error() == OnError::Fallback { ContextEffect::Any } else { self.context_effect }
    }

    fn shortest_step(&self) -> Micros {
        Micros(self.constants.shortest_step_us)
    }

    fn queueing_time(&self, input_tokens: u32) -> Micros {
        let compute = |guest: &mut (dyn Guest + 'static)| {
            let us = guest.queueing_time(input_tokens)?;
            duration(Function::QueueingTime, us, 0, "at most a day").map(Micros)
        };
        self.call(compute, || self.instead.queueing_time(input_tokens))
    }

    fn output_token_time(&self) -> Micros {
        Micros(self.constants.output_token_us)
    }

    fn post_decode_time(&self) -> Micros {
        Micros(self.constants.post_decode_us)
    }

    fn scheduling_time(&self) -> Micros {
        Micros(self.constants.scheduling_us)
    }

    fn preemption_time(&self) -> Micros {
        Micros(self.constants.preemption_us)
    }
}

#[cfg(test)]
mod tests {
    use blis_abi::Row as _;
    use blis_sim::latency::Blackbox;

    use super::*;

    /// Times of a component without checks of its own.
    #[derive(Debug)]
    struct Times {
        constants: LatencyConstants,
        queueing: u64,
    }

    impl Guest for Times {
        fn kind(&self) -> Kind {
            Kind::Latency
        }

        fn call(&mut self, function: Function, _: Inputs<'_>, _: &mut Vec<f64>) -> Result<Output, Fault> {
            Ok(match function {
                Function::QueueingTime => Output::Duration(self.queueing),
                Function::StepTime => Output::Duration(10),
                _ => {
                    let (shortest, token, decode, scheduling, preemption) = self.constants.numbers();
                    Output::Record([shortest, token, decode, scheduling, preemption].into())
                }
            })
        }

        fn save(&mut self) -> Result<Vec<u8>, Fault> {
            Ok(Vec::new())
        }

        fn restore(&mut self, _: &[u8]) -> Result<(), Fault> {
            Ok(())
        }

        fn fork(&mut self) -> Result<Box<dyn Guest>, Fault> {
            Err(Fault::new(FaultKind::Refused, "not in this test"))
        }
    }

    fn model(constants: LatencyConstants, queueing: u64) -> Result<(PluginLatency, Incidents), String> {
        let incidents = Incidents::new(OnError::Fail, blis_sim::cluster::Abort::default());
        let description = PolicyDescription {
            name: "times".into(),
            version: String::new(),
            about: String::new(),
            kinds: vec![Kind::Latency],
            columns: Vec::new(),
            reads: Reads::NOTHING,
            events: Events::NONE,
            scores: false,
            every_step: false,
            parameters: Vec::new(),
            others: Vec::new(),
        };
        let instead = Arc::new(Blackbox::new(&[1.0; 3], &[1.0; 3]).expect("coefficients"));
        let guest = Box::new(Times { constants, queueing });
        let model = PluginLatency::new("times", &description, guest, instead, &incidents);
        model.map(|model| (model, incidents)).map_err(|fault| fault.to_string())
    }

    /// Constants near 2^64 wrapped: times to first token were a microsecond shorter, and there was no fault.
    #[test]
    fn times_that_no_engine_has_are_refused() {
        let usual = LatencyConstants::default();
        let wrong = [
            LatencyConstants { output_token_us: u64::MAX, ..usual },
            LatencyConstants { post_decode_us: crate::limits::LONGEST_CONSTANT_US + 1, ..usual },
            LatencyConstants { scheduling_us: u64::MAX, ..usual },
            LatencyConstants { preemption_us: u64::MAX, ..usual },
            LatencyConstants { shortest_step_us: 0, ..usual },
        ];
        for constants in wrong {
            let message = model(constants, 0).map(|_| ()).expect_err("no engine has it");
            assert!(message.starts_with("times: ") && message.contains("it must be from"), "{message}");
        }
        let (model, incidents) = model(usual, u64::MAX).expect("usual constants");
        model.queueing_time(5);
        let fault = incidents.first().expect("recorded").fault;
        assert_eq!(fault.kind, FaultKind::OutOfRange, "{fault}");
    }
}
