//! Replicas: instances that start and stop while the service runs.
//!
//! ```text
//! scheduling ──► loading ──► warming ──► active ──► draining ──► gone
//! waits for a    process,    CUDA        serves     finishes
//! GPU            weights,    graphs      requests   its requests
//!                compile
//! ```
//!
//! A replica that becomes active is a new instance: with an index of its own, which is never used again, and an empty
//! prefix cache. This module knows which replica is in which state and when that changes; the events are executed by
//! [`Cluster`](super::Cluster), which has the instances.

mod control;
mod live;
mod nodes;
mod outcomes;
mod settings;
mod start;

use std::collections::VecDeque;

use self::control::ControlLoop;
pub(super) use self::control::Scraped;
use self::live::{LiveGroup, LiveReplica};
pub use self::nodes::{EMPTY_NODE_DELAY, NodePool};
use self::nodes::{GpuDemand, HeldGpus, Nodes};
pub(super) use self::outcomes::OutcomeLog;
use self::settings::InitialNodes;
pub use self::settings::{DelayedActuation, ReplicaGroup, ReplicaSettings, ScalingLoop, ScheduledReplicas};
pub use self::start::{PhaseTime, StartMode, StartTimes};
use blis_abi::{NONE_U32, NONE_U64};

use crate::ids::InstanceIndex;
use crate::instance::InstanceConfig;
use crate::numbers::count;
use crate::outcome::Counters;
use crate::policy::Reads;
use crate::replica::{ReplicaChange, ReplicaEvent, ReplicaReport, ReplicaState};
use crate::request::Name;
use crate::rng::Stream;
use crate::scaling::{DrainPolicy, NodeId, PlacementPolicy, Replica, ReplicaView};
use crate::units::Micros;

/// The replicas of a service during a simulation.
#[derive(Clone, Debug)]
pub(super) struct Replicas {
    groups: Vec<LiveGroup>,
    /// All replicas that are not gone, in the order in which they were created.
    live: Vec<LiveReplica>,
    /// The instances that may be chosen, with their groups, by index.
    active: Vec<(InstanceIndex, usize)>,
    /// Number of changes of `active`.
    version: u64,
    /// The instances that have requests or may get some, by index.
    serving: Vec<InstanceIndex>,
    /// The instances that are gone, with their final counters.
    gone: Vec<(InstanceIndex, Counters)>,
    /// Changes at fixed times that are still to come.
    scheduled: VecDeque<ScheduledReplicas>,
    nodes: Nodes,
    drain: Box<dyn DrainPolicy>,
    /// What `drain` reads of replicas.
    drain_reads: Reads,
    placement: Box<dyn PlacementPolicy>,
    /// The random numbers of starts, by replica.
    starts: Stream,
    /// The policy that sets the numbers of replicas.
    control: Option<Box<ControlLoop>>,
    /// Time of the next transition of a replica or of a node; [`Micros::MAX`] if none is known.
    next: Micros,
    /// Time of the next transition of a node.
    next_node: Micros,
    /// Number of replicas so far.
    created: u32,
    /// Number of replicas by group and state.
    counts: Vec<[u32; 5]>,
    report: ReplicaReport,
    /// Changes of state that were not reported yet.
    events: Vec<ReplicaEvent>,
}

/// A change of the number of replicas of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NumberChange {
    /// To this number, within the limits of the group.
    To(u32),
    /// By so many, without limits (BLIS). Replicas that find no room are not started.
    By(i64),
}

/// What happens to a replica; the number is its position among those that are not gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transition {
    /// It is ready to serve.
    Ready(usize),
    /// Its last request may have ended.
    MayBeDone(usize, InstanceIndex),
    /// Its last request has ended.
    Gone(usize, InstanceIndex),
}

impl Replicas {
    /// The replicas of `settings`, the initial ones of which are active; instances are numbered in the order of groups.
    ///
    /// # Errors
    /// As of [`ReplicaSettings::check`].
    pub fn new(settings: ReplicaSettings) -> Result<Self, String> {
        let InitialNodes { nodes, placements, policy } = settings.initial_nodes()?;
        let groups = settings.groups.into_iter();
        let groups: Vec<LiveGroup> = groups
            .map(|settings| LiveGroup {
                replicas: settings.initial,
                sleeping: if let StartMode::Hot { pool } = settings.mode { pool } else { 0 },
                settings,
            })
            .collect();
        let mut replicas = Self {
            live: Vec::new(),
            active: Vec::new(),
            version: 0,
            serving: Vec::new(),
            gone: Vec::new(),
            scheduled: settings.scheduled.into(),
            starts: settings.starts,
            control: settings.scaling.map(|scaling| Box::new(ControlLoop::new(scaling, &groups))),
            next: Micros::MAX,
            next_node: Micros::MAX,
            created: 0,
            counts: vec![[0; 5]; groups.len()],
            report: ReplicaReport {
                groups: groups.iter().map(LiveGroup::report).collect(),
                ..ReplicaReport::default()
            },
            events: Vec::new(),
            nodes,
            drain_reads: settings.drain.reads(),
            drain: settings.drain,
            placement: policy,
            groups,
        };
        let groups = replicas.groups.iter().map(|group| group.settings.initial).enumerate();
        let groups: Vec<usize> = groups.flat_map(|(group, initial)| (0..initial).map(move |_| group)).collect();
        // Without node pools there are no placements.
        let placements = placements.into_iter().chain(std::iter::repeat(HeldGpus::new()));
        for ((group, placement), instance) in groups.into_iter().zip(placements).zip(0..) {
            let position = replicas.create(Micros::ZERO, group, ReplicaState::Active);
            replicas.live[position].placement = placement;
            replicas.attach(Micros::ZERO, position, InstanceIndex(instance));
        }
        replicas.report.counts(Micros::ZERO, &replicas.counts);
        replicas.allocate_waiting(Micros::ZERO);
        Ok(replicas)
    }

    /// The instances that may be chosen, with their groups, by index.
    pub fn active(&self) -> &[(InstanceIndex, usize)] {
        &self.active
    }

    /// The instances that have requests or may get some, by index.
    pub fn serving(&self) -> &[InstanceIndex] {
        &self.serving
    }

    /// A number that changes with [`Self::active`].
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Number of groups.
    pub fn groups(&self) -> usize {
        self.groups.len()
    }

    /// The group of the replica at `position`.
    pub fn group(&self, position: usize) -> usize {
        self.live[position].group
    }

    /// Whether the replicas of `group` serve `model`.
    pub fn serves(&self, group: usize, model: Name) -> bool {
        self.groups[group].settings.serves(model)
    }

    /// Whether any group serves `model`.
    pub fn is_known(&self, model: Name) -> bool {
        self.groups.iter().any(|group| group.settings.serves(model))
    }

    /// Whether `instance` may be chosen.
    pub fn is_active(&self, instance: InstanceIndex) -> bool {
        self.active.binary_search_by_key(&instance, |&(active, _)| active).is_ok()
    }

    /// Time of the next transition.
    pub fn next_transition(&self) -> Option<Micros> {
        (self.next < Micros::MAX).then_some(self.next)
    }

    /// Time of the next change at a fixed time, scrape, or call of the policy.
    pub fn next_scaling(&self) -> Option<Micros> {
        let scheduled = self.scheduled.front().map(|change| change.at);
        let control = self.control.as_ref().and_then(|control| control.next_event());
        scheduled.into_iter().chain(control).min()
    }

    /// The signals that the policies read; the periodic ones are read from the instances.
    pub fn reads(&self) -> Reads {
        let reads = self.control.as_ref().map_or(Reads::NOTHING, |control| control.reads());
        Reads { load: false, waiting_tokens: false, ..reads.and(self.drain_reads) }
    }

    /// Whether a replica is removed if `group` is to have `replicas`, by a policy that reads what is in flight.
    pub fn reads_to_drain(&self, group: usize, change: NumberChange) -> bool {
        let reads = self.drain_reads.in_flight || self.drain_reads.tokens;
        let is_fewer = match change {
            NumberChange::To(replicas) => replicas < self.groups[group].replicas,
            NumberChange::By(difference) => difference < 0,
        };
        reads && is_fewer
    }

    /// The latencies of the last minute, if the policy reads them.
    pub fn outcome_log(&mut self) -> Option<&mut OutcomeLog> {
        self.control.as_mut()?.log.as_mut()
    }

    /// Whether metrics are scraped at `now`.
    pub fn scrape_is_due(&self, now: Micros) -> bool {
        self.control.as_ref().is_some_and(|control| control.scrape_is_due(now))
    }

    /// Whether the policy is called at `now`.
    pub fn sync_is_due(&self, now: Micros) -> bool {
        self.control.as_ref().is_some_and(|control| control.sync_is_due(now))
    }

    /// The metrics at `now`: `fill` adds those of the active replicas and of the gateway's queue to those of each group.
    pub fn scrape(&mut self, now: Micros, fill: impl FnOnce(&Self, &mut [Scraped])) {
        let mut scraped = vec![Scraped::default(); self.groups.len()];
        fill(self, &mut scraped);
        let Self { control: Some(control), groups, .. } = self else { return };
        control.scraped(now, groups, scraped);
    }

    /// The policy's number of replicas of each group from `now` on. The policy is called again if there is `work` left.
    pub fn decide(&mut self, now: Micros, work: bool) -> Vec<ReplicaChange> {
        let Self { control: Some(control), groups, live, .. } = self else { return Vec::new() };
        control.decide(now, work, groups, live)
    }

    /// At the next call of the policy `group` gets `replicas` replicas, within its limits, whatever the policy and its rules
    /// say.
    pub fn force(&mut self, group: usize, replicas: u32) {
        self.control.iter_mut().for_each(|control| control.forced = Some((group, replicas)));
    }

    /// Whether the number of active replicas may still change.
    pub fn may_change(&self) -> bool {
        // One that waits for GPUs gets them from a node that comes.
        let comes = |replica: &LiveReplica| replica.next.min(self.next_node) < Micros::MAX;
        let starting = |replica: &LiveReplica| replica.state < ReplicaState::Active && comes(replica);
        let control = self.control.as_ref().is_some_and(|control| control.may_change());
        control || !self.scheduled.is_empty() || self.live.iter().any(starting)
    }

    /// The group and the number of replicas of the next change that is due at `now`.
    pub fn take_scheduled(&mut self, now: Micros) -> Option<(usize, u32)> {
        let change = self.scheduled.pop_front_if(|change| change.at <= now)?;
        Some((change.group, change.replicas))
    }

    /// The next transition that is due at `now`. A replica that is gone comes before a node, and that before a replica that
    /// is ready.
    pub fn take_due(&mut self, now: Micros) -> Option<Transition> {
        while self.next <= now {
            let gone = self.live.iter().any(|replica| replica.next <= now && replica.state == ReplicaState::Draining);
            if self.next_node <= now && !gone {
                self.allocate_waiting(now);
                // Replicas that get GPUs of a new node begin to load, which changes what is due next.
                continue;
            }
            let rank = |replica: &LiveReplica| (replica.next, replica.state != ReplicaState::Draining);
            let (position, replica) = self.live.iter_mut().enumerate().min_by_key(|(_, replica)| rank(replica))?;
            let at = replica.next;
            replica.next = Micros::MAX;
            match (replica.state, replica.instance) {
                (ReplicaState::Loading, _) => {
                    replica.next = at.saturating_add(replica.warm_up);
                    self.enter(at, position, ReplicaState::Warming);
                    self.update_next();
                }
                (ReplicaState::Draining, Some(instance)) => {
                    let is_done = replica.is_done;
                    self.update_next();
                    // The cluster has the instances: it ends those that drained, and makes those that are ready.
                    return Some(match is_done {
                        true => Transition::Gone(position, instance),
                        false => Transition::MayBeDone(position, instance),
                    });
                }
                _ => {
                    self.update_next();
                    return Some(Transition::Ready(position));
                }
            }
        }
        None
    }

    /// The configuration of the instance of a replica that is ready.
    pub fn config(&self, position: usize, index: InstanceIndex) -> InstanceConfig {
        InstanceConfig { index, ..self.groups[self.live[position].group].settings.instance.clone() }
    }

    /// The replica, which is ready, is active from `now` on as `instance`.
    pub fn activate(&mut self, now: Micros, position: usize, instance: InstanceIndex) {
        self.attach(now, position, instance);
        self.enter(now, position, ReplicaState::Active);
    }

    /// The replica, which drains, has had no request since `since`; `None` if it has one, which does not end before
    /// `next`.
    pub fn drains(&mut self, now: Micros, position: usize, since: Option<Micros>, next: Micros) {
        let replica = &mut self.live[position];
        replica.is_done = since.is_some();
        replica.next = since.unwrap_or(next).max(now).saturating_add(Micros(u64::from(since.is_none())));
        self.update_next();
    }

    /// A request was ended on `instance` at `now`: if it drains, that may have been the last one.
    pub fn evicted(&mut self, now: Micros, instance: InstanceIndex) {
        let drains =
            |replica: &&mut LiveReplica| replica.instance == Some(instance) && replica.state == ReplicaState::Draining;
        if let Some(replica) = self.live.iter_mut().find(drains) {
            replica.next = replica.next.min(now.saturating_add(Micros(1)));
            self.update_next();
        }
    }

    /// The replica is gone from `now` on, and its instance ended with these `counters`.
    pub fn end(&mut self, now: Micros, position: usize, counters: Counters) {
        let LiveReplica { instance, group, .. } = self.live[position];
        if let Some(instance) = instance {
            self.serving.retain(|&other| other != instance);
            self.gone.push((instance, counters));
        }
        self.groups[group].sleep();
        self.remove(now, position);
        self.allocate_waiting(now);
    }

    /// Changes the number of replicas of `group` from `now` on. `load` is the load of an active instance. Returns the
    /// instances that have to drain.
    pub fn set_replicas(
        &mut self,
        now: Micros,
        group: usize,
        change: NumberChange,
        load: impl Fn(InstanceIndex) -> ReplicaView,
    ) -> Vec<InstanceIndex> {
        let LiveGroup { settings, replicas: from, .. } = &self.groups[group];
        let (from, limits) = (*from, settings.limits);
        let mut to = match change {
            NumberChange::To(replicas) => replicas.clamp(limits.min, limits.max),
            NumberChange::By(difference) => {
                i64::from(from).saturating_add(difference).max(0).try_into().unwrap_or(u32::MAX)
            }
        };
        self.groups[group].replicas = to; // as the policies see it
        for _ in from..to {
            if matches!(change, NumberChange::To(_)) || self.has_room(now, group) {
                self.begin(now, group);
            }
        }
        let draining = (to..from).filter_map(|_| self.reduce(now, group, &load)).collect();
        if let NumberChange::By(_) = change {
            let stays = |replica: &&LiveReplica| replica.group == group && replica.state != ReplicaState::Draining;
            to = count(self.live.iter().filter(stays).count());
        }
        self.groups[group].replicas = to;
        if to != from {
            self.report.changes.push(ReplicaChange { at: now, group, from, to });
            self.allocate_waiting(now);
        }
        draining
    }

    /// Takes the actuation that is due at `now`, as of [`DelayedActuation`]: the group and the change.
    pub fn take_actuation(&mut self, now: Micros) -> Option<(usize, NumberChange)> {
        let (group, difference) = self.control.as_mut()?.take_actuation(now)?;
        Some((group, NumberChange::By(difference)))
    }

    /// Whether a replica of `group` would get its GPUs at once.
    fn has_room(&self, now: Micros, group: usize) -> bool {
        let demand = self.groups[group].settings.demand(group);
        !self.nodes.are_limited() || self.nodes.with_room(&demand).iter().any(|node| node.ready_us <= now.0)
    }

    /// Position of the replica with that instance.
    pub fn position(&self, instance: InstanceIndex) -> Option<usize> {
        self.live.iter().position(|replica| replica.instance == Some(instance))
    }

    /// The changes of state that were not taken yet.
    pub fn take_events(&mut self) -> Vec<ReplicaEvent> {
        std::mem::take(&mut self.events)
    }

    /// The instances that are gone, with their final counters.
    pub fn gone(&self) -> &[(InstanceIndex, Counters)] {
        &self.gone
    }

    /// The figures up to `end`.
    pub fn finish(mut self, end: Micros) -> ReplicaReport {
        self.report.finish(end);
        self.report.pools = self.nodes.finish(end);
        self.report
    }

    /// A replica of `group` starts at `now`.
    fn begin(&mut self, now: Micros, group: usize) {
        let LiveGroup { settings, sleeping, .. } = &mut self.groups[group];
        let wakes = *sleeping > 0;
        *sleeping -= u32::from(wakes);
        let mut generator = self.starts.at(self.created.into());
        let (loading, warm_up) = settings.start.draw(settings.mode, wakes, &mut generator);
        self.report.groups[group].started += 1;
        let position = self.create(now, group, ReplicaState::Scheduling);
        let replica = &mut self.live[position];
        (replica.loading, replica.warm_up, replica.wakes) = (loading, warm_up, wakes);
        if !self.allocate(now, position) {
            self.report_state(now, position);
        }
    }

    /// The replica, which waits for GPUs, begins to load if there is room for it.
    fn allocate(&mut self, now: Micros, position: usize) -> bool {
        if self.nodes.are_limited() {
            let Some(placement) = self.take_gpus(now, position) else { return false };
            self.live[position].placement = placement;
        }
        let replica = &mut self.live[position];
        let LiveGroup { settings, .. } = &self.groups[replica.group];
        replica.next = now.saturating_add(replica.loading);
        replica.expected = now.saturating_add(settings.start.mean(settings.mode, replica.wakes));
        self.enter(now, position, ReplicaState::Loading);
        true
    }

    /// Takes the GPUs of the replica, which waits, on the node that the policy chooses; `None` if it waits on.
    fn take_gpus(&mut self, now: Micros, position: usize) -> Option<HeldGpus> {
        let LiveReplica { group, number, created_at, .. } = self.live[position];
        let demand = self.groups[group].settings.demand(group);
        let nodes = self.nodes.with_room(&demand);
        if nodes.iter().all(|node| node.ready_us > now.0) {
            // Like a pending pod, the replica waits for a ready node: the policy is not called before.
            return None;
        }
        let replica = self.groups[group].settings.starting(group, now, created_at, number);
        let chosen = nodes[self.placement.choose_node(&replica, &nodes)?];
        (chosen.ready_us <= now.0).then(|| self.nodes.take(now, &demand, NodeId::from(&chosen)))
    }

    /// Allocates GPUs to the replicas that wait, in the order in which they were created, and requests nodes for the
    /// others.
    fn allocate_waiting(&mut self, now: Micros) {
        let waiting = self.allocate_each(now);
        let demand = |&group: &usize| self.groups[group].settings.demand(group);
        let demands: Vec<GpuDemand<'_>> = waiting.iter().map(demand).collect();
        self.nodes.remove_empty(now, &demands);
        if self.nodes.request(now, &demands) {
            self.allocate_each(now);
        }
        self.next_node = self.nodes.next_event(now);
        self.update_next();
    }

    /// Allocates GPUs to the replicas that wait, as far as there are. Returns the groups of those that still wait.
    fn allocate_each(&mut self, now: Micros) -> Vec<usize> {
        let mut waiting = Vec::new();
        for position in 0..self.live.len() {
            if self.live[position].state == ReplicaState::Scheduling && !self.allocate(now, position) {
                waiting.push(self.live[position].group);
            }
        }
        waiting
    }

    /// Removes the replica of `group` that the policy chooses at `now`. The instance of an active one is returned, and has to
    /// drain.
    fn reduce(
        &mut self,
        now: Micros,
        group: usize,
        load: &impl Fn(InstanceIndex) -> ReplicaView,
    ) -> Option<InstanceIndex> {
        let is_removable = |replica: &LiveReplica| match replica.state {
            ReplicaState::Draining => false,
            ReplicaState::Active => true,
            _ => self.drain.removes_starting(),
        };
        let removable = |replica: &LiveReplica| replica.group == group && is_removable(replica);
        let positions: Vec<usize> = (0..self.live.len()).filter(|&at| removable(&self.live[at])).collect();
        let candidate = |&at: &usize| self.candidate(&self.live[at], load);
        let replicas: Vec<Replica> = positions.iter().map(candidate).collect();
        if replicas.is_empty() {
            // The other replicas of the group drain already, or they start and the policy does not remove such.
            return None;
        }
        let LiveGroup { settings, replicas: wanted, .. } = &self.groups[group];
        let shown = settings.shown(group, now, *wanted);
        let position = positions[self.drain.drain(&shown, &replicas)];
        self.report.groups[group].removed += 1;
        let Some(instance) = self.live[position].instance else {
            if self.live[position].wakes {
                self.groups[group].sleep();
            }
            self.remove(now, position);
            // A replica that still starts has no requests, so it is gone without draining.
            return None;
        };
        self.active.retain(|&(active, _)| active != instance);
        self.version += 1;
        self.enter(now, position, ReplicaState::Draining);
        Some(instance)
    }

    /// What the drain policy sees of `replica`; `load` is that of an active instance.
    fn candidate(&self, replica: &LiveReplica, load: &impl Fn(InstanceIndex) -> ReplicaView) -> Replica {
        let stay = || self.live.iter().filter(|other| other.state != ReplicaState::Draining);
        let shares = |other: &&LiveReplica, node: (usize, u32)| other.placement.iter().any(|&(p, n, _)| (p, n) == node);
        let on = |&(pool, number, _): &(usize, u32, u32)| {
            let there = || stay().filter(|other| shares(other, (pool, number)));
            (count(there().count()), count(there().filter(|other| other.group == replica.group).count()))
        };
        let (on_node, group_on_node) =
            replica.placement.iter().map(on).fold((0, 0), |most, on| (most.0.max(on.0), most.1.max(on.1)));
        let load = replica.instance.map(load);
        let ReplicaView { queue_depth, batch_size, kv_utilization, in_flight, in_flight_tokens, .. } =
            load.unwrap_or_default();
        let node = replica.placement.first();
        Replica {
            created_us: replica.created_at.0,
            active_since_us: replica.active_since.map_or(NONE_U64, |at| at.0),
            in_flight_tokens,
            kv_utilization,
            id: replica.number,
            state: replica.state.number(),
            instance: load.map_or(NONE_U32, |load| load.instance.0),
            queue_depth,
            batch_size,
            in_flight,
            pool: node.map_or(NONE_U32, |&(pool, ..)| count(pool)),
            node: node.map_or(NONE_U32, |&(_, number, _)| number),
            on_node,
            group_on_node,
        }
    }

    /// Adds a replica. Returns its position.
    fn create(&mut self, now: Micros, group: usize, state: ReplicaState) -> usize {
        let number = self.created;
        self.created += 1;
        self.counts[group][state.index()] += 1;
        self.live.push(LiveReplica {
            number,
            group,
            state,
            created_at: now,
            active_since: None,
            next: Micros::MAX,
            loading: Micros::ZERO,
            warm_up: Micros::ZERO,
            expected: Micros::MAX,
            wakes: false,
            placement: Vec::new(),
            instance: None,
            is_done: false,
        });
        self.live.len() - 1
    }

    fn attach(&mut self, now: Micros, position: usize, instance: InstanceIndex) {
        let replica = &mut self.live[position];
        (replica.instance, replica.active_since) = (Some(instance), Some(now));
        self.active.push((instance, replica.group));
        if let Some(log) = self.control.as_mut().and_then(|control| control.log.as_mut()) {
            log.add_instance(replica.group);
        }
        self.serving.push(instance);
        self.version += 1;
    }

    fn enter(&mut self, now: Micros, position: usize, state: ReplicaState) {
        let replica = &mut self.live[position];
        let counts = &mut self.counts[replica.group];
        counts[replica.state.index()] -= 1;
        counts[state.index()] += 1;
        replica.state = state;
        self.report_state(now, position);
    }

    fn remove(&mut self, now: Micros, position: usize) {
        let LiveReplica { number: replica, group, instance, state, placement, .. } = self.live.remove(position);
        self.nodes.release(now, group, &placement);
        self.counts[group][state.index()] -= 1;
        self.report.counts(now, &self.counts);
        self.events.push(ReplicaEvent { at: now, replica, group, instance, state: None });
    }

    fn report_state(&mut self, now: Micros, position: usize) {
        let LiveReplica { number: replica, group, instance, state, .. } = self.live[position];
        self.report.counts(now, &self.counts);
        self.events.push(ReplicaEvent { at: now, replica, group, instance, state: Some(state) });
    }

    fn update_next(&mut self) {
        self.next = self.live.iter().map(|replica| replica.next).min().unwrap_or(Micros::MAX).min(self.next_node);
    }
}
