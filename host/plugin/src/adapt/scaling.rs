//! Guests as scaling policies: the rows that they get of the groups, and the histories that the host keeps for them.

use blis_sim::policy::{BlockIds, Reads};
use blis_sim::scaling::hpa::TOLERANCE;
use blis_sim::scaling::{GroupView, Hpa, ReplicaView, ScalingPolicy, ScalingView, SignalSet};
use blis_sim::units::Micros;

use super::PluginPolicy;
use crate::incidents::Incidents;
use crate::ranges::replicas_of;
use crate::rows::{GroupRow, HISTORY, NONE_U64, canonical};
use crate::{Guest, PolicyDescription};

/// A guest as a scaling policy.
#[derive(Debug)]
pub struct PluginScaling {
    plugin: PluginPolicy,
    /// The policy that decides instead after a fault: `queue` with its defaults.
    instead: Hpa,
    /// The groups at the present decision.
    groups: Vec<GroupRow>,
    /// The groups at up to [`HISTORY`] decisions before, oldest first.
    history: Vec<GroupRow>,
}

impl PluginScaling {
    /// A policy of `guest`, which was started from the plugin called `name`.
    #[must_use]
    pub fn new(name: &str, description: &PolicyDescription, guest: Box<dyn Guest>, incidents: &Incidents) -> Self {
        Self {
            plugin: PluginPolicy::new(name, description, guest, BlockIds::KEYS, incidents),
            instead: Hpa::new(SignalSet::Queue { queued: 1.0, running: 16.0 }, TOLERANCE),
            groups: Vec::new(),
            history: Vec::new(),
        }
    }

    /// Keeps the groups of the decision before, and reads those of `view`.
    fn read(&mut self, view: &ScalingView<'_>) {
        self.history.append(&mut self.groups);
        self.groups.extend(view.groups.iter().map(|group| group_row(view.now, view.scraped_at, group)));
        let outdated = self.history.len().saturating_sub(HISTORY * view.groups.len());
        self.history.drain(..outdated);
    }
}

impl ScalingPolicy for PluginScaling {
    /// Every group that it gets has all signals.
    fn reads(&self) -> Reads {
        Reads { load: true, in_flight: true, tokens: true, ..Reads::NOTHING }
    }

    fn reads_outcomes(&self) -> bool {
        true
    }

    fn scale(&mut self, view: &ScalingView<'_>, targets: &mut Vec<Option<u32>>) {
        self.read(view);
        let Self { plugin, instead, groups, history } = self;
        let decided = plugin.decide(view.now, |guest| {
            let mut numbers = Vec::new();
            guest.scale(view.now, groups, history, &mut numbers)?;
            Ok(replicas_of(&numbers))
        });
        targets.extend(decided.unwrap_or_else(|| {
            let mut targets = Vec::new();
            instead.scale(view, &mut targets);
            targets
        }));
    }

    fn fork(&self) -> Box<dyn ScalingPolicy> {
        Box::new(Self {
            plugin: self.plugin.copy(),
            instead: self.instead.clone(),
            groups: self.groups.clone(),
            history: self.history.clone(),
        })
    }
}

/// The row of a group at a decision at `now`, with signals that were measured at `scraped_at`.
fn group_row(now: Micros, scraped_at: Micros, group: &GroupView<'_>) -> GroupRow {
    let GroupView { facts, replicas, loading, draining, ready, gateway, outcomes } = group;
    let sum = |get: fn(&ReplicaView) -> u32| ready.iter().map(get).fold(0, u32::saturating_add);
    let pending = loading.iter().filter(|&&at| at == Micros::MAX).count();
    let time = |latency: Option<Micros>| latency.map_or(0, |us| us.0);
    let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    GroupRow {
        now_us: now.0,
        scraped_us: scraped_at.0,
        next_ready_us: loading.iter().find(|&&at| at != Micros::MAX).map_or(NONE_U64, |at| at.0),
        kv_tokens: facts.kv_tokens,
        in_flight_tokens: ready.iter().map(|one| one.in_flight_tokens).sum(),
        queued_tokens: gateway.queued_tokens,
        oldest_wait_us: gateway.oldest_wait.0,
        ttft_p90_us: time(outcomes.ttft_p90),
        tpot_p90_us: time(outcomes.tpot_p90),
        input_tokens: outcomes.input_tokens,
        cached_tokens: outcomes.cached_tokens,
        output_tokens: outcomes.output_tokens,
        price: canonical(facts.price.unwrap_or(0.0)),
        kv_used: canonical(ready.iter().map(|one| one.kv_utilization).sum()),
        kv_used_max: ready.iter().map(|one| one.kv_utilization).fold(0.0, f64::max),
        saturation: gateway.saturation.unwrap_or(-1.0),
        model: facts.model.0,
        gpus: facts.gpus,
        min_replicas: facts.limits.min,
        max_replicas: facts.limits.max,
        max_num_seqs: facts.max_num_seqs,
        max_num_batched_tokens: facts.max_num_batched_tokens,
        replicas: *replicas,
        ready: count(ready.len()),
        loading: count(loading.len() - pending),
        pending: count(pending),
        draining: *draining,
        queue_depth: sum(|one| one.queue_depth),
        queue_depth_max: ready.iter().map(|one| one.queue_depth).max().unwrap_or(0),
        batch_size: sum(|one| one.batch_size),
        in_flight: sum(|one| one.in_flight),
        queued: gateway.queued,
        arrived: outcomes.arrived,
        completed: outcomes.completed,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use blis_sim::cluster::Abort;
    use blis_sim::policy::InstanceRole;
    use blis_sim::request::Name;
    use blis_sim::scaling::{GatewayView, GroupFacts, OutcomeWindow, ReplicaLimits};

    use super::*;
    use crate::incidents::OnError;
    use crate::{FaultKind, Kind, Limits, check, script};

    /// A policy of the script `source` that falls back.
    fn policy(source: &str) -> (PluginScaling, Incidents) {
        let limits = Limits::default();
        let plugin = script::load(Path::new("scaler.rhai"), source, &limits).expect("compiles");
        let incidents = Incidents::new(OnError::Fallback, Abort::default());
        let guest = plugin.start(&check::setup(&*plugin, Kind::Scaling, 4, &limits));
        (PluginScaling::new("scaler", plugin.description(), guest.expect("starts"), &incidents), incidents)
    }

    /// The targets at `now_s` for groups of which each has two ready replicas and so many queued requests.
    fn targets(policy: &mut dyn ScalingPolicy, now_s: u64, queued: &[u32]) -> Vec<Option<u32>> {
        let now = Micros(now_s * 1_000_000);
        let replica = ReplicaView { batch_size: 8, kv_utilization: 0.25, ..ReplicaView::default() };
        let ready = [replica; 2];
        let facts = GroupFacts {
            model: Name::NONE,
            role: InstanceRole::default(),
            limits: ReplicaLimits { min: 1, max: 9 },
            gpus: 2,
            price: None,
            kv_tokens: 100_000,
            max_num_seqs: 256,
            max_num_batched_tokens: 2048,
        };
        let group = |&queued: &u32| GroupView {
            facts,
            replicas: 4,
            loading: &[Micros(70_000_000), Micros::MAX],
            draining: 1,
            ready: &ready,
            gateway: GatewayView { queued, ..GatewayView::default() },
            outcomes: OutcomeWindow::default(),
        };
        let groups: Vec<_> = queued.iter().map(group).collect();
        let mut targets = Vec::new();
        policy.scale(&ScalingView { now, scraped_at: now, groups: &groups }, &mut targets);
        targets
    }

    #[test]
    fn a_script_scales_each_group() {
        let source = "fn scale(g) { g.queued + g.replicas + g.loading + 10 * g.pending + 100 * g.draining }";
        let (mut policy, incidents) = policy(source);
        assert_eq!(targets(&mut policy, 15, &[3, 0]), [Some(118), Some(115)]);
        assert!(incidents.first().is_none());
    }

    #[test]
    fn nothing_and_numbers_below_0_change_nothing() {
        let of = |source, queued: &[u32]| targets(&mut policy(source).0, 15, queued);
        assert_eq!(of("fn scale(g) { }", &[3, 5]), [None, None]);
        assert_eq!(of("fn scale(g) { g.queued - 4 }", &[3, 5]), [None, Some(1)]);
        assert_eq!(of("fn scale(g) { 7 }", &[3]), [Some(7)]);
    }

    #[test]
    fn a_bad_number_is_that_of_queue() {
        let of = |source, kind, says: &str| {
            let (mut policy, incidents) = policy(source);
            assert_eq!(targets(&mut policy, 15, &[9, 0]), [Some(9), Some(1)], "queue: 9 queued; 16 / 16 running");
            let fault = incidents.first().expect("recorded").fault;
            assert!(fault.kind == kind && fault.to_string().contains(says), "{fault}");
        };
        of("fn scale(g) { 7 }", FaultKind::OutOfRange, "one for each of 2 groups");
        of("fn scale(g) { [1, 2, 3] }", FaultKind::OutOfRange, "one for each of 2 groups");
        of("fn scale(g) { g.queued / 2.0 }", FaultKind::OutOfRange, "a whole number");
        of("fn scale(g) { g.queued / 0.0 }", FaultKind::OutOfRange, "a whole number");
        of("fn scale(g) { 0.0 * g.queued / 0.0 }", FaultKind::NotANumber, "group 0");
        of("fn scale(g) { throw \"no\" }", FaultKind::Trap, "no");
        of("fn scale(g) { \"more\" }", FaultKind::Trap, "scale returned");
    }

    #[test]
    fn the_host_keeps_the_groups_of_20_decisions() {
        let (mut policy, incidents) =
            policy("fn scale(g) { 100 * g.history + g.before(1).queued + 10 * g.before(99).queued }");
        let seen: Vec<_> = (0..24).map(|tick| targets(&mut policy, 15 * tick, &[tick as u32])[0]).collect();
        assert_eq!(seen[0], Some(0), "there is none before");
        assert_eq!(seen[1], Some(100));
        assert_eq!(seen[5], Some(504), "of decision 4 and of decision 0");
        assert_eq!(seen[23], Some(2052), "of decision 22 and of decision 3");
        assert!(incidents.first().is_none());
    }

    #[test]
    fn copies_continue_as_the_original() {
        let source = "fn init(info) { #{ticks: 0} }\nfn scale(g) { this.ticks += 1; this.ticks + g.before(1).queued }";
        let (mut original, incidents) = policy(source);
        assert_eq!(targets(&mut original, 0, &[5]), [Some(6)]);
        let mut copy = original.fork();
        let both = [targets(&mut original, 15, &[7]), targets(&mut *copy, 15, &[7])];
        assert_eq!(both, [[Some(7)], [Some(7)]]);
        assert!(incidents.first().is_none());
    }
}
