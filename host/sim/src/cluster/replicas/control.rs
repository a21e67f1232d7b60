//! The loop that decides how many replicas there are: metrics are scraped at one interval, and at another the policy sets
//! the number of replicas of each group by the metrics of the last scrape.

use super::live::{LiveGroup, LiveReplica};
use super::outcomes::OutcomeLog;
use super::settings::{DelayedActuation, ScalingLoop};
use crate::ids::InstanceIndex;
use crate::instance::InstanceLoad;
use crate::numbers::count;
use crate::policy::Reads;
use crate::replica::{ReplicaChange, ReplicaState};

use crate::scaling::{GatewayView, GroupFacts, GroupView, OutcomeWindow, ReplicaControl, ReplicaView, ScalingView};
use crate::units::Micros;

/// The loop during a simulation.
#[derive(Clone, Debug)]
pub(super) struct ControlLoop {
    settings: ScalingLoop,
    /// What limits the changes of each group.
    controls: Vec<ReplicaControl>,
    /// The next call of the policy; `None` after the last request.
    next_sync: Option<Micros>,
    /// The metrics of the last scrape, by group.
    scraped: Vec<Scraped>,
    /// Time of the last scrape.
    scraped_at: Option<Micros>,
    pub log: Option<OutcomeLog>,
    targets: Vec<Option<u32>>,
    /// Changes that take effect later, in order of time: the group and the number of replicas added or removed.
    actuations: Vec<(Micros, usize, i64)>,
    /// Number of calls of the policy so far.
    calls: u64,
    /// Calls in a row that changed nothing.
    unchanged: u32,
    /// The number of replicas of a group that the next call sets instead of the policy.
    pub forced: Option<(usize, u32)>,
}

/// The metrics of a group.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct Scraped {
    /// The active replicas, oldest first.
    pub ready: Vec<ReplicaView>,
    /// The gateway's queue.
    pub gateway: GatewayView,
    /// What the clients measured.
    pub outcomes: OutcomeWindow,
}

/// Calls in a row that change nothing, after which nothing more is expected of the policy: five minutes of 15 s.
const UNCHANGED_SYNCS: u32 = 20;

impl ControlLoop {
    pub fn new(settings: ScalingLoop, groups: &[LiveGroup]) -> Self {
        let behaviour = settings.behaviour.clone().unwrap_or_else(|| settings.policy.behaviour());
        let control = |group: &LiveGroup| ReplicaControl::new(group.settings.limits, behaviour.clone());
        Self {
            controls: groups.iter().map(control).collect(),
            next_sync: Some(if settings.actuation.is_some() { Micros::ZERO } else { settings.sync }),
            scraped: vec![Scraped::default(); groups.len()],
            scraped_at: None,
            log: settings.policy.reads_outcomes().then(OutcomeLog::default),
            targets: Vec::new(),
            actuations: Vec::new(),
            calls: 0,
            unchanged: 0,
            forced: None,
            settings,
        }
    }

    /// What the policy reads of replicas.
    pub fn reads(&self) -> Reads {
        self.settings.policy.reads()
    }

    /// When metrics are scraped or the policy is called next. Only the last scrape before a call is executed.
    pub fn next_event(&self) -> Option<Micros> {
        let sync = self.next_sync.map(|sync| self.next_scrape().map_or(sync, |scrape| scrape.min(sync)));
        sync.into_iter().chain(self.actuations.first().map(|&(at, ..)| at)).min()
    }

    /// The next change that takes effect at `now`: the group and the number of replicas added or removed.
    pub fn take_actuation(&mut self, now: Micros) -> Option<(usize, i64)> {
        let (_, group, difference) = self.actuations.first().copied().filter(|&(at, ..)| at <= now)?;
        self.actuations.remove(0);
        Some((group, difference))
    }

    /// The targets of the policy as changes that take effect after the delay.
    fn delay(&mut self, now: Micros, actuation: DelayedActuation, groups: &[LiveGroup]) {
        let at = now.saturating_add(actuation.delay.draw(&mut actuation.delays.at(self.calls)));
        for (index, (group, target)) in groups.iter().zip(&self.targets).enumerate() {
            let difference = target.map_or(0, |target| i64::from(target) - i64::from(group.replicas));
            if difference != 0 {
                self.actuations.push((at, index, difference));
            }
        }
        self.actuations.sort_by_key(|&(at, ..)| at);
    }

    fn next_scrape(&self) -> Option<Micros> {
        let interval = self.settings.scrape.0;
        let last_before = Micros(self.next_sync?.0 / interval * interval);
        self.scraped_at.is_none_or(|at| at < last_before).then_some(last_before)
    }

    pub fn scrape_is_due(&self, now: Micros) -> bool {
        self.next_scrape().is_some_and(|at| at <= now)
    }

    pub fn sync_is_due(&self, now: Micros) -> bool {
        self.next_sync.is_some_and(|at| at <= now)
    }

    /// Whether the policy may still change something.
    pub fn may_change(&self) -> bool {
        !self.actuations.is_empty() || self.next_sync.is_some() && self.unchanged < UNCHANGED_SYNCS
    }

    /// Stores the metrics of a scrape, without the outcomes, which it adds.
    pub fn scraped(&mut self, now: Micros, groups: &[LiveGroup], scraped: Vec<Scraped>) {
        self.scraped = scraped;
        self.scraped_at = Some(now);
        if let Some(log) = &mut self.log {
            log.forget_before(now);
            for (index, (scraped, group)) in self.scraped.iter_mut().zip(groups).enumerate() {
                scraped.outcomes = log.window(now, index, |model| group.settings.serves(model));
            }
        }
    }

    /// The number of replicas of each group from `now` on. The next call follows if there is `work` left.
    pub fn decide(
        &mut self,
        now: Micros,
        work: bool,
        groups: &[LiveGroup],
        live: &[LiveReplica],
    ) -> Vec<ReplicaChange> {
        let loading: Vec<Vec<Micros>> = (0..groups.len()).map(|group| loading(now, group, live)).collect();
        let draining = |group| {
            let drains = |replica: &&LiveReplica| replica.group == group && replica.state == ReplicaState::Draining;
            count(live.iter().filter(drains).count())
        };
        let views: Vec<GroupView<'_>> = (groups.iter().zip(&self.scraped).zip(&loading).enumerate())
            .map(|(index, ((group, scraped), loading))| GroupView {
                facts: group.facts(),
                replicas: group.replicas,
                loading,
                draining: draining(index),
                ready: &scraped.ready,
                gateway: scraped.gateway,
                outcomes: scraped.outcomes,
            })
            .collect();
        self.targets.clear();
        let view = ScalingView { now, scraped_at: self.scraped_at.unwrap_or(now), groups: &views };
        self.settings.policy.scale(&view, &mut self.targets);
        // A group without a target stays as it is.
        self.targets.resize(groups.len(), None);
        self.next_sync = work.then(|| now.saturating_add(self.settings.sync));
        if let Some(actuation) = self.settings.actuation {
            self.delay(now, actuation, groups);
            self.calls += 1;
            self.unchanged = if self.actuations.is_empty() { self.unchanged + 1 } else { 0 };
            // In BLIS a decision takes effect after a delay, without stabilization windows, rates and limits.
            return Vec::new();
        }
        let decided = self.controls.iter_mut().zip(&views).zip(&self.targets);
        let mut decided: Vec<u32> = decided
            .map(|((control, view), &target)| control.decide(now, view.replicas, target, view.is_active()))
            .collect();
        if let Some((group, replicas)) = self.forced.take() {
            let limits = groups[group].settings.limits;
            decided[group] = replicas.clamp(limits.min, limits.max);
        }
        let change = |(group, (&to, live)): (usize, (&u32, &LiveGroup))| ReplicaChange {
            at: now,
            group,
            from: live.replicas,
            to,
        };
        let changes: Vec<ReplicaChange> = decided.iter().zip(groups).enumerate().map(change).collect();
        let is_unchanged = changes.iter().all(|change| change.from == change.to);
        self.unchanged = if is_unchanged { self.unchanged + 1 } else { 0 };
        changes
    }
}

/// When the replicas of `group` that start are expected to be ready, in order; one that takes longer than the mean, `now`.
fn loading(now: Micros, group: usize, live: &[LiveReplica]) -> Vec<Micros> {
    let of_group = live.iter().filter(|replica| replica.group == group);
    let mut ready: Vec<Micros> = of_group
        .filter_map(|replica| match replica.state {
            ReplicaState::Scheduling | ReplicaState::Loading | ReplicaState::Warming => Some(replica.expected.max(now)),
            ReplicaState::Active | ReplicaState::Draining => None,
        })
        .collect();
    ready.sort_unstable();
    ready
}

impl LiveGroup {
    fn facts(&self) -> GroupFacts {
        let instance = &self.settings.instance;
        GroupFacts {
            model: self.settings.serves.first().copied().unwrap_or_default(),
            role: instance.labels.role,
            limits: self.settings.limits,
            gpus: self.settings.gpus,
            price: self.settings.price,
            kv_tokens: u64::from(instance.total_kv_blocks) * u64::from(instance.block_size),
            max_num_seqs: instance.max_num_seqs,
            max_num_batched_tokens: instance.max_num_batched_tokens,
        }
    }
}

impl ReplicaView {
    /// The active replica `instance` with this load, and with so many requests and prompt tokens in flight.
    pub(in super::super) fn new(
        instance: InstanceIndex,
        load: InstanceLoad,
        in_flight: u32,
        in_flight_tokens: u64,
    ) -> Self {
        Self {
            instance,
            queue_depth: load.queue_depth,
            batch_size: load.batch_size,
            kv_utilization: f64::from(load.used_kv_blocks) / f64::from(load.total_kv_blocks.max(1)),
            in_flight,
            in_flight_tokens,
        }
    }
}
