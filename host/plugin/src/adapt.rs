//! Guests as policies of the simulator. This module checks every output of a guest. An output that cannot be used is
//! recorded as an incident, and a built-in policy makes that decision, so that the simulation stays consistent until it
//! ends or is cancelled:
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

mod disaggregation;
mod flow;
mod kv_cache;
mod replicas;
mod scaling;

use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use blis_sim::latency::{Batch, ContextEffect, LatencyModel};
use blis_sim::policy::flow::{BandView, FlowView, InFlightView};
use blis_sim::policy::{
    AdmissionDecision, AdmissionPolicy, BatchView, BlockIds, ClusterView, Event, EventKind, Events, PreemptionPolicy,
    PriorityPolicy, QueuedView, Rank, Reads, Reason, RequestView, RoutingDecision, RoutingPolicy, RoutingStep,
    SchedulingPolicy, StepFailed, StepMemory, Ties,
};
use blis_sim::units::Micros;

use super::incidents::{Incidents, MeteredCall, OnError};
use super::limits::{LONGEST_US, constant_range};
use super::rows::{
    ChunkOfferRow, ChunkRow, DrainGroupRow, GroupRow, NodeRow, PoolInstanceRow, PrefillChoiceRow, ReplicaRow,
    RoutedRequestRow, StartingReplicaRow, TierHitRow, first_nan,
};
use super::{
    AdmissionGuest, CeilingsGuest, DisaggregationGuest, DrainGuest, EvictionGuest, FairnessGuest, Fault, FaultKind,
    FilterGuest, Guest, GuestKind, Kind, KvCacheGuest, LatencyConstants, LatencyGuest, OrderingGuest, PlacementGuest,
    PolicyDescription, PreemptionGuest, PriorityGuest, RoutingGuest, SaturationGuest, ScalingGuest, SchedulingGuest,
    StartedGuest,
};

pub use scaling::PluginScaling;

/// A guest as a policy of the simulator: `PluginPolicy<dyn RoutingGuest>` is a routing policy, and so on.
#[derive(Debug)]
pub struct PluginPolicy<G: ?Sized> {
    name: Arc<str>,
    /// Locked only where the simulator shares policies between threads in order to copy them.
    guest: Mutex<Box<G>>,
    reads: Reads,
    events: Events,
    block_ids: BlockIds,
    incidents: Incidents,
}

impl<G: GuestKind + ?Sized> PluginPolicy<G> {
    /// A policy of `guest`, which was started from the plugin called `name` and knows blocks by `block_ids`.
    #[must_use]
    pub fn new(
        name: &str,
        description: &PolicyDescription,
        guest: Box<G>,
        block_ids: BlockIds,
        incidents: &Incidents,
    ) -> Self {
        let needed = match (G::KIND, incidents.on_error()) {
            (Kind::Routing | Kind::RoutingFilter, OnError::Fallback) => {
                Reads { load: true, in_flight: true, ..Reads::NOTHING }
            }
            (Kind::Saturation, OnError::Fallback) => Reads { load: true, ..Reads::NOTHING },
            _ => Reads::NOTHING,
        };
        let policy = Self {
            name: name.into(),
            guest: Mutex::new(guest),
            reads: description.reads.and(needed),
            events: description.events,
            block_ids,
            incidents: incidents.clone(),
        };
        policy.charge_lent(MeteredCall::Other, Micros::ZERO, &**policy.lock());
        policy
    }

    fn guest(&mut self) -> &mut G {
        self.guest.get_mut().unwrap_or_else(PoisonError::into_inner).as_mut()
    }

    fn failed(&self, at: Micros, fault: Fault) {
        self.incidents.record(&self.name, G::KIND, at, fault);
    }

    /// The checked output at `now`, or that of `instead` after a fault, which is recorded.
    fn checked<T>(&mut self, now: Micros, output: Result<T, Fault>, instead: impl FnOnce() -> T) -> T {
        let output = output.unwrap_or_else(|fault| {
            self.failed(now, fault);
            instead()
        });
        self.charge(MeteredCall::Decision, now);
        output
    }

    fn lock(&self) -> MutexGuard<'_, Box<G>> {
        self.guest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn copy(&self) -> Self {
        let mut original = self.lock();
        let guest = original.fork().and_then(StartedGuest::into_kind).unwrap_or_else(|fault| {
            self.failed(Micros::ZERO, fault.clone());
            G::narrowed(LostGuest { kind: G::KIND, fault })
        });
        for used in [&**original, &*guest] {
            self.charge_lent(MeteredCall::Other, Micros::ZERO, used);
        }
        Self {
            name: Arc::clone(&self.name),
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
        let block = if is_block { self.block_ids.of(event.block) } else { event.block };
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
    fn charge_lent(&self, call: MeteredCall, at: Micros, guest: &G) {
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

    fn out_of_range(&self, function: &str, output: impl Debug, range: &str) -> Fault {
        let message = format!("{}: {function} returned {output:?}; it must be {range}", self.name);
        Fault::new(FaultKind::OutOfRange, message)
    }

    /// Refuses anything but one number for each instance.
    fn check_column(&self, function: &str, numbers: &[f64], cluster: &ClusterView<'_>) -> Result<(), Fault> {
        if numbers.len() != cluster.len() {
            let output = format!("{} numbers", numbers.len());
            return Err(self.out_of_range(function, output, &format!("one for each of {} instances", cluster.len())));
        }
        match first_nan(numbers) {
            Some(index) => Err(self.not_a_number(function, &format!(" for instance {index}"))),
            None => Ok(()),
        }
    }

    /// The numbers of a step of a pipeline: `compute` asks the guest for them.
    fn column(
        &mut self,
        function: &str,
        request: &RequestView<'_>,
        cluster: &ClusterView<'_>,
        numbers: &mut Vec<f64>,
        compute: impl FnOnce(&mut G, &RequestView<'_>, &mut Vec<f64>) -> Result<(), Fault>,
    ) -> Result<(), StepFailed> {
        let request = request.with_block_ids(self.block_ids);
        numbers.clear();
        let computed = compute(self.guest(), &request, numbers);
        let computed = computed.and_then(|()| self.check_column(function, numbers, cluster));
        let result = computed.map_err(|fault| {
            self.failed(cluster.now, fault);
            StepFailed
        });
        self.charge(MeteredCall::Decision, cluster.now);
        result
    }

    fn not_a_number(&self, function: &str, index: &str) -> Fault {
        let message = format!(
            "{}: {function} returned NaN{index}; look for 0/0, infinity minus infinity, or a root of a negative number",
            self.name
        );
        Fault::new(FaultKind::NotANumber, message)
    }
}

impl PluginPolicy<dyn RoutingGuest> {
    /// The index of the chosen instance, and its score if the guest computes scores.
    fn routed(
        &mut self,
        request: &RequestView<'_>,
        cluster: &ClusterView<'_>,
        ties: &Ties,
        scores: &mut Vec<f64>,
    ) -> Result<RoutingDecision, Fault> {
        let request = request.with_block_ids(self.block_ids);
        let target = self.guest().route(&request, cluster, ties, scores)?;
        if target >= cluster.len() {
            return Err(self.out_of_range("route", target, &format!("an index from 0 to {}", cluster.len() - 1)));
        }
        if !scores.is_empty() {
            self.check_column("scores", scores, cluster)?;
        }
        Ok(RoutingDecision { target, reason: Reason::Plugin(scores.get(target).copied()) })
    }
}

/// Replaces a guest that could not be copied; every call fails.
#[derive(Debug)]
struct LostGuest {
    kind: Kind,
    fault: Fault,
}

impl Guest for LostGuest {
    fn save(&mut self) -> Result<Vec<u8>, Fault> {
        Err(self.fault.clone())
    }

    fn restore(&mut self, _: &[u8]) -> Result<(), Fault> {
        Err(self.fault.clone())
    }

    fn fork(&mut self) -> Result<StartedGuest, Fault> {
        Ok(StartedGuest::of(self.kind, Self { kind: self.kind, fault: self.fault.clone() }))
    }
}

impl AdmissionGuest for LostGuest {
    fn admit(&mut self, _: &RequestView<'_>, _: &ClusterView<'_>) -> Result<AdmissionDecision, Fault> {
        Err(self.fault.clone())
    }
}

impl RoutingGuest for LostGuest {
    fn route(&mut self, _: &RequestView<'_>, _: &ClusterView<'_>, _: &Ties, _: &mut Vec<f64>) -> Result<usize, Fault> {
        Err(self.fault.clone())
    }

    fn scores(&mut self, _: &RequestView<'_>, _: &ClusterView<'_>, _: &Ties, _: &mut Vec<f64>) -> Result<(), Fault> {
        Err(self.fault.clone())
    }
}

impl FilterGuest for LostGuest {
    fn filter(&mut self, _: &RequestView<'_>, _: &ClusterView<'_>, _: &Ties, _: &mut Vec<f64>) -> Result<(), Fault> {
        Err(self.fault.clone())
    }
}

impl PriorityGuest for LostGuest {
    fn priority(&mut self, _: &RequestView<'_>, _: Micros) -> Result<i64, Fault> {
        Err(self.fault.clone())
    }
}

impl SchedulingGuest for LostGuest {
    fn rank(&mut self, _: &QueuedView<'_>) -> Result<f64, Fault> {
        Err(self.fault.clone())
    }
}

impl PreemptionGuest for LostGuest {
    fn victim(&mut self, _: &BatchView) -> Result<usize, Fault> {
        Err(self.fault.clone())
    }
}

impl LatencyGuest for LostGuest {
    fn step_time(&mut self, _: &Batch) -> Result<u64, Fault> {
        Err(self.fault.clone())
    }

    fn queueing_time(&mut self, _: u32) -> Result<u64, Fault> {
        Err(self.fault.clone())
    }

    fn constants(&mut self) -> Result<LatencyConstants, Fault> {
        Err(self.fault.clone())
    }
}

impl SaturationGuest for LostGuest {
    fn saturation(&mut self, _: &ClusterView<'_>) -> Result<f64, Fault> {
        Err(self.fault.clone())
    }
}

impl CeilingsGuest for LostGuest {
    fn ceilings(&mut self, _: Micros, _: f64, _: &[BandView], _: &mut Vec<f64>) -> Result<(), Fault> {
        Err(self.fault.clone())
    }
}

impl FairnessGuest for LostGuest {
    fn fair_pick(&mut self, _: Micros, _: f64, _: BandView, _: &[FlowView]) -> Result<usize, Fault> {
        Err(self.fault.clone())
    }
}

impl OrderingGuest for LostGuest {
    fn order(&mut self, _: &RequestView<'_>, _: Micros, _: Micros) -> Result<f64, Fault> {
        Err(self.fault.clone())
    }
}

impl EvictionGuest for LostGuest {
    fn evict(&mut self, _: Micros, _: BandView, _: &[InFlightView]) -> Result<Option<usize>, Fault> {
        Err(self.fault.clone())
    }
}

impl ScalingGuest for LostGuest {
    fn scale(&mut self, _: Micros, _: &[GroupRow], _: &[GroupRow], _: &mut Vec<f64>) -> Result<(), Fault> {
        Err(self.fault.clone())
    }
}

impl DrainGuest for LostGuest {
    fn drain(&mut self, _: &DrainGroupRow, _: &[ReplicaRow]) -> Result<usize, Fault> {
        Err(self.fault.clone())
    }
}

impl PlacementGuest for LostGuest {
    fn placement(&mut self, _: &StartingReplicaRow, _: &[NodeRow]) -> Result<Option<usize>, Fault> {
        Err(self.fault.clone())
    }
}

impl KvCacheGuest for LostGuest {
    fn keep(&mut self, _: Micros, _: &[ChunkRow], _: &mut Vec<f64>) -> Result<(), Fault> {
        Err(self.fault.clone())
    }

    fn store(&mut self, _: &ChunkOfferRow, _: &[ChunkRow], _: &mut Vec<f64>) -> Result<(), Fault> {
        Err(self.fault.clone())
    }

    fn load(&mut self, _: &TierHitRow) -> Result<bool, Fault> {
        Err(self.fault.clone())
    }
}

impl DisaggregationGuest for LostGuest {
    fn disaggregate(
        &mut self,
        _: &RoutedRequestRow,
        _: &[PoolInstanceRow],
        _: &[PoolInstanceRow],
    ) -> Result<PrefillChoiceRow, Fault> {
        Err(self.fault.clone())
    }
}

impl AdmissionPolicy for PluginPolicy<dyn AdmissionGuest> {
    fn reads(&self) -> Reads {
        self.reads
    }

    fn admit(&mut self, request: &RequestView<'_>, cluster: &ClusterView<'_>) -> AdmissionDecision {
        let request = request.with_block_ids(self.block_ids);
        let decision = self.guest().admit(&request, cluster).unwrap_or_else(|fault| {
            self.failed(cluster.now, fault);
            AdmissionDecision::Admit
        });
        self.charge(MeteredCall::Decision, cluster.now);
        decision
    }

    fn events(&self) -> Events {
        self.events
    }

    fn observe(&mut self, event: &Event) {
        self.deliver(event);
    }

    fn fork(&self) -> Box<dyn AdmissionPolicy> {
        Box::new(self.copy())
    }
}

impl RoutingPolicy for PluginPolicy<dyn RoutingGuest> {
    fn reads(&self) -> Reads {
        self.reads
    }

    fn route(
        &mut self,
        request: &RequestView<'_>,
        cluster: &ClusterView<'_>,
        ties: &Ties,
        scores: &mut Vec<f64>,
    ) -> RoutingDecision {
        let choice = self.routed(request, cluster, ties, scores).unwrap_or_else(|fault| {
            self.failed(cluster.now, fault);
            scores.clear();
            let least = (0..cluster.len()).min_by_key(|&i| cluster.effective_load(i));
            RoutingDecision { target: least.unwrap_or(0), reason: Reason::Fallback }
        });
        self.charge(MeteredCall::Decision, cluster.now);
        choice
    }

    fn events(&self) -> Events {
        self.events
    }

    fn observe(&mut self, event: &Event) {
        self.deliver(event);
    }

    fn fork(&self) -> Box<dyn RoutingPolicy> {
        Box::new(self.copy())
    }
}

/// A scorer of a pipeline.
impl RoutingStep for PluginPolicy<dyn RoutingGuest> {
    fn reads(&self) -> Reads {
        self.reads
    }

    fn compute(
        &mut self,
        request: &RequestView<'_>,
        cluster: &ClusterView<'_>,
        ties: &Ties,
        memory: &mut StepMemory,
        numbers: &mut Vec<f64>,
    ) -> Result<(), StepFailed> {
        self.column("scores", request, cluster, numbers, |guest, request, numbers| {
            guest.step_scores(request, cluster, ties, memory, numbers)
        })
    }

    fn events(&self) -> Events {
        self.events
    }

    fn observe(&mut self, event: &Event) {
        self.deliver(event);
    }

    fn fork(&self) -> Box<dyn RoutingStep> {
        Box::new(self.copy())
    }
}

impl RoutingStep for PluginPolicy<dyn FilterGuest> {
    fn reads(&self) -> Reads {
        self.reads
    }

    fn compute(
        &mut self,
        request: &RequestView<'_>,
        cluster: &ClusterView<'_>,
        ties: &Ties,
        memory: &mut StepMemory,
        numbers: &mut Vec<f64>,
    ) -> Result<(), StepFailed> {
        self.column("filter", request, cluster, numbers, |guest, request, numbers| {
            guest.step_filter(request, cluster, ties, memory, numbers)
        })
    }

    fn events(&self) -> Events {
        self.events
    }

    fn observe(&mut self, event: &Event) {
        self.deliver(event);
    }

    fn fork(&self) -> Box<dyn RoutingStep> {
        Box::new(self.copy())
    }
}

impl PriorityPolicy for PluginPolicy<dyn PriorityGuest> {
    fn priority(&mut self, request: &RequestView<'_>, now: Micros) -> i64 {
        let request = request.with_block_ids(self.block_ids);
        let priority = self.guest().priority(&request, now).unwrap_or_else(|fault| {
            self.failed(now, fault);
            0
        });
        self.charge(MeteredCall::Decision, now);
        priority
    }

    fn events(&self) -> Events {
        self.events
    }

    fn observe(&mut self, event: &Event) {
        self.deliver(event);
    }

    fn fork(&self) -> Box<dyn PriorityPolicy> {
        Box::new(self.copy())
    }
}

impl SchedulingPolicy for PluginPolicy<dyn SchedulingGuest> {
    fn rank(&mut self, queued: &QueuedView<'_>) -> Rank {
        let queued = &QueuedView { request: queued.request.with_block_ids(self.block_ids), ..*queued };
        let rank = match self.guest().rank(queued) {
            Ok(rank) if rank.is_nan() => Err(self.not_a_number("rank", "")),
            result => result,
        };
        let rank = rank.unwrap_or_else(|fault| {
            self.failed(queued.now, fault);
            queued.turn as f64
        });
        self.charge(MeteredCall::Decision, queued.now);
        Rank::real(rank)
    }

    fn fork(&self) -> Box<dyn SchedulingPolicy> {
        Box::new(self.copy())
    }
}

impl PreemptionPolicy for PluginPolicy<dyn PreemptionGuest> {
    fn victim(&mut self, batch: &BatchView) -> usize {
        let victim = match self.guest().victim(batch) {
            Ok(victim) if victim >= batch.len() => {
                Err(self.out_of_range("victim", victim, &format!("an index from 0 to {}", batch.len() - 1)))
            }
            result => result,
        };
        let victim = victim.unwrap_or_else(|fault| {
            self.failed(batch.now, fault);
            batch.len() - 1
        });
        self.charge(MeteredCall::Decision, batch.now);
        victim
    }

    fn fork(&self) -> Box<dyn PreemptionPolicy> {
        Box::new(self.copy())
    }
}

/// A guest as latency model. All instances share one guest: its outputs depend on the step alone.
#[derive(Debug)]
pub struct PluginLatency {
    name: Arc<str>,
    guest: Mutex<Box<dyn LatencyGuest>>,
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
        mut guest: Box<dyn LatencyGuest>,
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
        question: impl FnOnce(&mut dyn LatencyGuest) -> Result<T, Fault>,
        instead: impl FnOnce() -> T,
    ) -> T {
        let mut guest = self.guest.lock().unwrap_or_else(PoisonError::into_inner);
        let output = question(guest.as_mut());
        let exceeded = self.incidents.charge(MeteredCall::Decision, || guest.used()).map(|most| {
            let what = format!("{}: all calls together used more than {most} operations", self.name);
            Fault::new(FaultKind::OutOfFuel, what)
        });
        output.and_then(|output| exceeded.map_or(Ok(output), Err)).unwrap_or_else(|fault| {
            self.incidents.record(&self.name, Kind::Latency, Micros::ZERO, fault);
            instead()
        })
    }

    fn checked(&self, batch: &Batch, us: u64) -> Result<Micros, Fault> {
        let least = if batch.tokens() > 0 { self.constants.shortest_step_us } else { 1 };
        if (least..=LONGEST_US).contains(&us) {
            return Ok(Micros(us));
        }
        let message = format!(
            "{}: step_time returned {us} µs; it must be at least {least} (its own shortest_step_us) and at most a day",
            self.name
        );
        Err(Fault::new(FaultKind::OutOfRange, message))
    }

    fn checked_queueing_time(&self, us: u64) -> Result<Micros, Fault> {
        if us <= LONGEST_US {
            return Ok(Micros(us));
        }
        let message = format!("{}: queueing_time returned {us} µs; it must be at most a day", self.name);
        Err(Fault::new(FaultKind::OutOfRange, message))
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
        let compute = |guest: &mut dyn LatencyGuest| guest.step_time(batch).and_then(|us| self.checked(batch, us));
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
        let compute = |guest: &mut dyn LatencyGuest| {
            guest.queueing_time(input_tokens).and_then(|us| self.checked_queueing_time(us))
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
    use super::*;
    use blis_sim::latency::Blackbox;

    /// Times of a component without checks of its own.
    #[derive(Debug)]
    struct Times {
        constants: LatencyConstants,
        queueing: u64,
    }

    impl Guest for Times {
        fn save(&mut self) -> Result<Vec<u8>, Fault> {
            Ok(Vec::new())
        }

        fn restore(&mut self, _: &[u8]) -> Result<(), Fault> {
            Ok(())
        }

        fn fork(&mut self) -> Result<StartedGuest, Fault> {
            Err(Fault::new(FaultKind::Refused, "not in this test"))
        }
    }

    impl LatencyGuest for Times {
        fn step_time(&mut self, _: &Batch) -> Result<u64, Fault> {
            Ok(10)
        }

        fn queueing_time(&mut self, _: u32) -> Result<u64, Fault> {
            Ok(self.queueing)
        }

        fn constants(&mut self) -> Result<LatencyConstants, Fault> {
            Ok(self.constants)
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
