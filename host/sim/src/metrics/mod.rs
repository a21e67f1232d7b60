//! The figures of a simulation: counts, and the distributions of its latencies, for the cluster,
//! its instances, SLO classes and tenants.
//!
//! [`Metrics`] is an [`Observer`] that keeps three durations per request (12 bytes, 8 more for each that
//! exceeds 71 minutes) with the instance that served it and, for inter-token latencies, a list of
//! (value, how often), or one counter per distinct value where that list gets long: they outnumber
//! requests a thousandfold but take few values. The cluster's
//! distributions are those of all samples together, merged when [`Metrics::report`] asks for them.
//! Classes and inversions cost 16 and 24 bytes more per request, where asked for.

mod aggregate;
mod anomalies;
mod classes;
mod counts;
mod distribution;
mod histogram;
mod inversions;
mod sessions;
mod tenants;

use std::collections::BTreeMap;

pub use aggregate::Aggregate;
pub use anomalies::{Anomalies, Anomaly, Blocked};
pub use classes::{ClassGoodput, ClassReport, Goodput, SloTargets};
pub use counts::Counts;
pub use distribution::Distribution;
pub use sessions::SessionReport;
pub use tenants::TenantReport;

use crate::observer::{Interests, Observer, SimEvent};
use crate::outcome::{Counters, Outcome, Rejection, Status};
use crate::policy::Classes;
use crate::request::Name;
use crate::units::Micros;
use aggregate::Collected;
use classes::Class;
use histogram::Gaps;
use inversions::Admissions;
use sessions::Sessions;

/// What to collect.
#[derive(Clone, Debug)]
pub struct MetricsOptions {
    /// How many instances there are, at least 1.
    pub instances: u32,
    /// How urgent each SLO class is, for [`Self::inversions`].
    pub classes: Classes,
    /// The workload's name that means the same as none: the number of `default`, if a request
    /// calls its class so.
    pub default_class: Option<Name>,
    /// [`Report::classes`].
    pub per_class: bool,
    /// [`Report::tenants`].
    pub per_tenant: bool,
    /// [`Anomalies::priority_inversions`].
    pub inversions: bool,
    /// What was promised to which class; [`Name::NONE`] is the class of requests that name none.
    pub targets: Vec<(Name, SloTargets)>,
}

impl Default for MetricsOptions {
    /// One instance, nothing extra.
    fn default() -> Self {
        Self {
            instances: 1,
            classes: Classes::default(),
            default_class: None,
            per_class: false,
            per_tenant: false,
            inversions: false,
            targets: Vec::new(),
        }
    }
}

/// Collects what [`Report`] needs.
#[derive(Clone, Debug)]
pub struct Metrics {
    options: MetricsOptions,
    instances: Vec<Collected>,
    itl: Gaps,
    /// Of requests that reached no instance.
    elsewhere: Collected,
    classes: BTreeMap<Name, Class>,
    tenants: BTreeMap<Name, Counts>,
    shed: BTreeMap<Name, u64>,
    /// By instance; none unless asked for.
    admissions: Vec<Admissions>,
    sessions: Sessions,
    offered: Option<u64>,
}

/// What a simulation came to. Lists by name are in the order of the names' numbers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// Requests that arrived until the horizon: as many as [`Metrics::offered`] said, else as many
    /// as ended.
    pub arrived: u64,
    /// All instances together, and the requests that reached none.
    pub cluster: Aggregate,
    /// Each instance.
    pub instances: Vec<Aggregate>,
    /// By SLO class; [`Name::NONE`] are the requests that name none. Empty unless asked for, and if
    /// no request names a class.
    pub classes: Vec<(Name, ClassReport)>,
    /// By tenant. Empty unless asked for; requests that name no tenant are in none.
    pub tenants: Vec<(Name, TenantReport)>,
    /// Jain's index, 1/n to 1, over the output tokens that the tenants' completed requests got; 1
    /// if there are none; `None` without tenants.
    pub jain_index: Option<f64>,
    /// How well the targets were kept; `None` if no request came that was promised anything.
    pub goodput: Option<Goodput>,
    /// `None` if no request names a session.
    pub sessions: Option<SessionReport>,
    /// What went wrong.
    pub anomalies: Anomalies,
}

impl Report {
    /// Conservation: every request that arrived is completed, queued, running, arriving, dropped,
    /// timed out or rejected, and none is two of these.
    #[must_use]
    pub fn conserved(&self) -> bool {
        self.arrived == self.cluster.counts.arrived()
    }
}

impl Metrics {
    /// Nothing collected yet.
    ///
    /// # Panics
    /// Without instances.
    #[must_use]
    pub fn new(options: MetricsOptions) -> Self {
        assert!(options.instances > 0, "a simulation has at least one instance");
        let instances = options.instances as usize;
        let mut metrics = Self {
            instances: vec![Collected::default(); instances],
            itl: Gaps::new(instances),
            elsewhere: Collected::default(),
            classes: BTreeMap::new(),
            tenants: BTreeMap::new(),
            shed: BTreeMap::new(),
            admissions: vec![Admissions::default(); if options.inversions { instances } else { 0 }],
            sessions: Sessions::default(),
            offered: None,
            options,
        };
        metrics.options.targets =
            metrics.options.targets.iter().map(|&(name, targets)| (metrics.class(name), targets.normal())).collect();
        metrics
    }

    /// How many requests arrived until the horizon, counted where they come from:
    /// [`Metrics::report`] compares.
    pub fn offered(&mut self, requests: u64) {
        self.offered = Some(requests);
    }

    /// Sums up. `counters` are those of each instance. O(n), reorders its samples; may be called
    /// again after more outcomes.
    ///
    /// # Panics
    /// If there are not as many counters as instances; in debug builds, if a request was lost.
    #[must_use]
    pub fn report(&mut self, counters: &[Counters], horizon: Micros) -> Report {
        assert_eq!(counters.len(), self.instances.len(), "counters of each instance");
        let duration = counters.iter().map(|counters| counters.clock.min(horizon)).max().unwrap_or(Micros::ZERO);
        let (itl, all_itl) = self.itl.distributions();
        let instances: Vec<Aggregate> = (self.instances.iter_mut().zip(itl).zip(counters))
            .map(|((collected, itl), counters)| collected.aggregate(itl, counters, horizon, duration))
            .collect();
        let cluster = self.cluster(all_itl, &instances, duration);
        let classes: Vec<_> = self.classes.iter_mut().map(|(&name, class)| (name, class.report())).collect();
        let tenants: Vec<_> = self.tenants.iter().map(|(&name, &counts)| (name, TenantReport { counts })).collect();
        let tokens: Vec<u64> = self.tenants.values().map(|counts| counts.output_tokens).collect();
        let shed = self.shed.iter().map(|(&name, &count)| (name, count)).collect();
        let inversions = self.options.inversions.then(|| self.admissions.iter_mut().map(Admissions::inversions).sum());
        let report = Report {
            arrived: self.offered.unwrap_or(cluster.counts.arrived()),
            jain_index: tenants::jain_index(&tokens),
            sessions: self.sessions.report(),
            goodput: classes::goodput(&self.classes, &classes, duration),
            anomalies: Anomalies::new(&cluster.counts, &instances, shed, inversions),
            classes: if self.has_classes() { classes } else { Vec::new() },
            cluster,
            instances,
            tenants,
        };
        debug_assert!(report.conserved(), "{} requests arrived, {:?}", report.arrived, cluster.counts);
        report
    }

    fn cluster(&mut self, itl: Distribution, instances: &[Aggregate], duration: Micros) -> Aggregate {
        self.elsewhere.settle();
        if let [only] = instances {
            // Requests that reached no instance have no latencies: nothing to merge.
            let mut counts = only.counts;
            counts.add(&self.elsewhere.counts);
            return Aggregate { counts, ..*only };
        }
        let parts: Vec<&Collected> = self.instances.iter().chain([&self.elsewhere]).collect();
        aggregate::cluster(&parts, itl, instances, duration)
    }

    fn has_classes(&self) -> bool {
        self.options.per_class && self.classes.keys().any(|&name| name != Name::NONE)
    }

    fn class(&self, name: Name) -> Name {
        if Some(name) == self.options.default_class { Name::NONE } else { name }
    }

    /// A request ended. Apart, so that what is left of `record` is small.
    #[inline(never)]
    fn add(&mut self, outcome: &Outcome) {
        match outcome.instance {
            Some(instance) => self.instances[instance as usize].add(outcome),
            None => self.elsewhere.add(outcome),
        }
        if self.options.per_class || !self.options.targets.is_empty() {
            self.add_to_class(outcome);
        }
        if self.options.per_tenant && outcome.tags.tenant != Name::NONE {
            self.tenants.entry(outcome.tags.tenant).or_default().count(outcome.status, outcome.generated_tokens);
        }
        self.sessions.add(outcome);
        if outcome.status == Status::Rejected(Rejection::Admission) {
            *self.shed.entry(self.class(outcome.tags.slo_class)).or_default() += 1;
        }
        if let (true, Some(instance)) = (self.options.inversions, outcome.instance) {
            let urgency = self.options.classes.urgency(outcome.tags.slo_class);
            self.admissions[instance as usize].add(outcome, urgency);
        }
    }

    fn add_to_class(&mut self, outcome: &Outcome) {
        let name = self.class(outcome.tags.slo_class);
        if let Some(class) = self.classes.get_mut(&name) {
            class.add(outcome);
            return;
        }
        let targets = self.options.targets.iter().rev().find(|&&(other, _)| other == name).map(|&(_, targets)| targets);
        if self.options.per_class || targets.is_some() {
            let mut class = Class::new(targets.unwrap_or_default());
            class.add(outcome);
            self.classes.insert(name, class);
        }
    }
}

impl Observer for Metrics {
    #[inline(always)]
    fn interests(&self) -> Interests {
        Interests::OUTCOMES | Interests::INTER_TOKEN_LATENCIES
    }

    #[inline(always)]
    fn record(&mut self, event: &SimEvent<'_>) {
        match *event {
            SimEvent::Outcome(outcome) => self.add(outcome),
            SimEvent::InterTokenLatency { instance, gap, count } => self.itl.add(instance, gap, count),
            SimEvent::InterTokenLatencyRetracted { instance, gap, count } => self.itl.retract(instance, gap, count),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
