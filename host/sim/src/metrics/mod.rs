//! The figures of a simulation: counts and latency distributions of the cluster, its instances, SLO classes and
//! tenants.
//!
//! [`Metrics`] is an [`Observer`] that keeps three durations per request (12 bytes, 8 more for each that exceeds 71
//! minutes) with the instance that served it. For inter-token latencies it keeps a list of (value, count), or one
//! counter per distinct value where that list gets long: they outnumber requests a thousandfold but have few distinct
//! values. The cluster's distributions are those of all samples together, merged by [`Metrics::report`]. Classes and
//! inversions cost 16 and 24 further bytes per request, if enabled.

mod adapters;
mod aggregate;
mod anomalies;
mod classes;
mod counts;
mod disaggregation;
mod distribution;
mod histogram;
mod inversions;
mod offload;
mod sessions;
mod tenants;

use std::collections::BTreeMap;

pub use adapters::AdapterFigures;
pub use aggregate::Aggregate;
pub use anomalies::{Anomalies, Anomaly, BlockedInstance};
pub use classes::{ClassGoodput, ClassReport, Goodput, SloTargets};
pub use counts::Counts;
pub use disaggregation::DisaggregationReport;
pub use distribution::Distribution;
pub use offload::OffloadReport;
pub use sessions::SessionReport;
pub use tenants::TenantReport;

use crate::energy::EnergyUse;
use crate::ids::InstanceIndex;
use crate::observer::{Interests, Observer, SimEvent};
use crate::outcome::{Counters, Outcome, Rejection, Status};
use crate::policy::Classes;
use crate::replica::{GroupReport, ReplicaReport};
use crate::request::Name;
use crate::units::Micros;
use adapters::AdapterCollector;
use aggregate::InstanceSamples;
use classes::ClassSamples;
use disaggregation::DisaggregationSamples;
use histogram::InterTokenLatencies;
use inversions::BatchAdmissions;
use offload::OffloadSamples;
use sessions::SessionCollector;

/// The figures to collect.
#[derive(Clone, Debug)]
pub struct MetricsOptions {
    /// Number of instances, at least 1; more are added when replicas start.
    pub instances: u32,
    /// Priority of each SLO class, for [`Self::inversions`].
    pub classes: Classes,
    /// The workload's name that is equivalent to no class: the index of `default`, if a request names that class.
    pub default_class: Option<Name>,
    /// Whether to collect [`Report::classes`].
    pub per_class: bool,
    /// Whether to collect [`Report::tenants`].
    pub per_tenant: bool,
    /// Whether to collect [`Anomalies::priority_inversions`].
    pub inversions: bool,
    /// Whether [`Report::instances`] have latencies, and the cluster has scheduling delays. Without them a report of
    /// several instances takes half the time.
    pub instance_latencies: bool,
    /// Whether to collect [`Report::offload`].
    pub offload: bool,
    /// Whether to collect [`Report::disaggregation`].
    pub disaggregation: bool,
    /// Whether to collect [`Report::adapters`].
    pub adapters: bool,
    /// SLO targets of the classes; [`Name::NONE`] is the class of requests that name none.
    pub targets: Vec<(Name, SloTargets)>,
    /// Requests that arrive before this time are in no figure of requests. Figures of the service are those of the whole
    /// simulation: the counters of instances, the mean queue length, and the pooled inter-token latencies.
    pub warmup: Micros,
}

impl Default for MetricsOptions {
    /// One instance, no optional figures.
    fn default() -> Self {
        Self {
            instances: 1,
            classes: Classes::default(),
            default_class: None,
            per_class: false,
            per_tenant: false,
            inversions: false,
            instance_latencies: true,
            offload: false,
            disaggregation: false,
            adapters: false,
            targets: Vec::new(),
            warmup: Micros::ZERO,
        }
    }
}

/// Collects the data of a [`Report`].
#[derive(Clone, Debug)]
pub struct Metrics {
    options: MetricsOptions,
    instances: Vec<InstanceSamples>,
    itl: InterTokenLatencies,
    /// Requests that reached no instance.
    elsewhere: InstanceSamples,
    classes: BTreeMap<Name, ClassSamples>,
    tenants: BTreeMap<Name, Counts>,
    shed: BTreeMap<Name, u64>,
    /// Indexed by instance; empty unless inversions are enabled.
    admissions: Vec<BatchAdmissions>,
    sessions: SessionCollector,
    /// Indexed by instance; empty unless adapters are enabled.
    adapters: Vec<AdapterCollector>,
    gateway_waits: Vec<Micros>,
    offload: OffloadSamples,
    disaggregation: Option<Box<DisaggregationSamples>>,
    replicas: Option<ReplicaReport>,
    offered: Option<u64>,
    /// Requests that do not count, by [`MetricsOptions::warmup`].
    cut: u64,
}

/// The figures of a simulation. Lists by name are in the order of the names' indices.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// Requests that arrived until the horizon: the number given to [`Metrics::offered`], otherwise the number of
    /// requests that ended.
    pub arrived: u64,
    /// All instances together, and the requests that reached none.
    pub cluster: Aggregate,
    /// The figures of each instance, in order.
    pub instances: Vec<Aggregate>,
    /// Figures by SLO class; [`Name::NONE`] is the class of requests that name none. Empty unless enabled, and if no
    /// request names a class.
    pub classes: Vec<(Name, ClassReport)>,
    /// Figures by tenant. Empty unless enabled; requests that name no tenant are not included.
    pub tenants: Vec<(Name, TenantReport)>,
    /// Jain's fairness index, 1/n to 1, of the output tokens of completed requests per tenant; 1 if there are none;
    /// `None` without tenants.
    pub jain_index: Option<f64>,
    /// SLO attainment and goodput; `None` if no request has a class with targets.
    pub goodput: Option<Goodput>,
    /// Figures of sessions; `None` if no request names a session.
    pub sessions: Option<SessionReport>,
    /// Figures by LoRA adapter, of the cluster and of each instance; `None` unless enabled.
    pub adapters: Option<(AdapterList, Vec<AdapterList>)>,
    /// Counts of anomalies, such as rejections and timeouts.
    pub anomalies: Anomalies,
    /// Times in the gateway's queue of the requests that were dispatched from it; without samples if there is no flow
    /// control.
    pub gateway_wait: Distribution,
    /// Figures of CPU tiers; `None` if no instance has one.
    pub offload: Option<OffloadReport>,
    /// Figures of prefill apart from decode; `None` unless enabled.
    pub disaggregation: Option<DisaggregationReport>,
    /// Figures of replicas; `None` if the number of instances is fixed.
    pub replicas: Option<ReplicaReport>,
    /// What an instance costs, as far as that was set; not read if there are [`Self::replicas`].
    pub cost: InstanceCost,
    /// What the steps of instances used, if that was computed.
    pub energy: Option<EnergyUse>,
}

/// Figures by LoRA adapter, in the order of the names' indices.
pub type AdapterList = Vec<(Name, AdapterFigures)>;

/// What an instance, or a replica, costs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct InstanceCost {
    /// Its GPUs; 0 if unknown.
    pub gpus: u32,
    /// Price of a GPU, dollars per hour; `None` without a price list.
    pub gpu_price: Option<f64>,
}

impl Report {
    /// Time in which GPUs were held, hours, summed over GPUs: of replicas in all states but scheduling, from the start of
    /// the simulation on; of a fixed number of instances without the warm-up. `None` if the number of GPUs is unknown.
    #[must_use]
    pub fn gpu_hours(&self) -> Option<f64> {
        if let Some(replicas) = &self.replicas {
            return Some(replicas.groups.iter().map(GroupReport::gpu_hours).sum());
        }
        let held = self.instances.len() as f64 * self.cluster.duration.as_secs_f64();
        (self.cost.gpus > 0).then(|| held * f64::from(self.cost.gpus) / 3600.0)
    }

    /// Price of [`Self::gpu_hours`], or of the nodes ([`ReplicaReport::dollars`]), dollars; `None` without prices.
    #[must_use]
    pub fn dollars(&self) -> Option<f64> {
        match &self.replicas {
            Some(replicas) => replicas.dollars(),
            None => Some(self.gpu_hours()? * self.cost.gpu_price?),
        }
    }

    /// Energy of the GPUs that were held, J: in steps as these need, without work otherwise. `None` if it was not computed.
    #[must_use]
    pub fn joules(&self) -> Option<f64> {
        let EnergyUse { busy_s, busy_joules, idle_w } = self.energy?;
        let held_s = self.gpu_hours()? * 3600.0 / f64::from(self.cost.gpus.max(1));
        Some(busy_joules + idle_w * (held_s - busy_s).max(0.0))
    }

    /// The same per output token of completed requests; `None` also without any.
    #[must_use]
    pub fn joules_per_output_token(&self) -> Option<f64> {
        let tokens = self.cluster.counts.output_tokens;
        self.joules().filter(|_| tokens > 0).map(|joules| joules / tokens as f64)
    }

    /// Conservation: every request that arrived is completed, queued, running, arriving, dropped, timed out or
    /// rejected, and none is counted twice.
    #[must_use]
    pub fn conserved(&self) -> bool {
        self.arrived == self.cluster.counts.arrived()
    }
}

impl Metrics {
    /// An empty collection.
    ///
    /// # Panics
    /// If the number of instances is 0.
    #[must_use]
    pub fn new(options: MetricsOptions) -> Self {
        assert!(options.instances > 0, "a simulation has at least one instance");
        let instances = options.instances as usize;
        let mut metrics = Self {
            instances: vec![InstanceSamples::default(); instances],
            itl: InterTokenLatencies::new(if options.instance_latencies { instances } else { 1 }),
            elsewhere: InstanceSamples::default(),
            classes: BTreeMap::new(),
            tenants: BTreeMap::new(),
            shed: BTreeMap::new(),
            admissions: vec![BatchAdmissions::default(); if options.inversions { instances } else { 0 }],
            sessions: SessionCollector::default(),
            adapters: vec![AdapterCollector::default(); if options.adapters { instances } else { 0 }],
            gateway_waits: Vec::new(),
            offload: OffloadSamples::default(),
            disaggregation: options.disaggregation.then(Box::default),
            replicas: None,
            offered: None,
            cut: 0,
            options,
        };
        metrics.options.targets =
            metrics.options.targets.iter().map(|&(name, targets)| (metrics.class(name), targets.normal())).collect();
        metrics
    }

    /// Sets the number of requests that arrived until the horizon, as counted by their source; [`Metrics::report`]
    /// compares it with the requests that ended.
    pub fn offered(&mut self, requests: u64) {
        self.offered = Some(requests);
    }

    /// Computes the report. `counters` are those of each instance. O(n), reorders the samples; may be called again
    /// after more outcomes.
    ///
    /// # Panics
    /// If there are not as many counters as instances; in debug builds, if a request was lost.
    #[must_use]
    pub fn report(&mut self, counters: &[Counters], horizon: Micros) -> Report {
        // A service that has scaled to zero from the start has no counters.
        let mut counters = counters.to_vec();
        if self.replicas.is_some() {
            counters.resize(self.instances.len().max(counters.len()), Counters::default());
        }
        assert_eq!(counters.len(), self.instances.len(), "counters of each instance");
        let whole = counters.iter().map(|counters| counters.clock.min(horizon)).max().unwrap_or(Micros::ZERO);
        let warmup = self.options.warmup;
        let duration = whole.saturating_sub(warmup);
        let (mut itl, all_itl) = self.itl.distributions();
        // The figures of one instance are those of the cluster.
        let latencies = self.options.instance_latencies || self.instances.len() == 1;
        itl.resize(self.instances.len(), Distribution::default());
        // An instance served whole requests, and parts of others.
        let mut parts = self.disaggregation.clone();
        let instances: Vec<Aggregate> = (self.instances.iter_mut().zip(itl).zip(&counters).enumerate())
            .map(|(index, ((collected, itl), counters))| {
                let itl = if latencies { itl } else { Distribution::default() };
                let mut both = parts.as_mut().map(|parts| parts.samples(InstanceIndex::at(index)).with(collected));
                both.as_mut().unwrap_or(collected).aggregate(itl, latencies, counters, warmup, horizon, whole)
            })
            .collect();
        let cluster = self.cluster(all_itl, &instances, duration, whole);
        let classes: Vec<_> = self.classes.iter_mut().map(|(&name, class)| (name, class.report())).collect();
        let tenants: Vec<_> = self.tenants.iter().map(|(&name, &counts)| (name, TenantReport { counts })).collect();
        let tokens: Vec<u64> = self.tenants.values().map(|counts| counts.output_tokens).collect();
        let shed = self.shed.iter().map(|(&name, &count)| (name, count)).collect();
        let inversions =
            self.options.inversions.then(|| self.admissions.iter_mut().map(BatchAdmissions::inversions).sum());
        let report = Report {
            arrived: self.offered.map_or(cluster.counts.arrived(), |offered| offered - self.cut),
            jain_index: tenants::jain_index(&tokens),
            sessions: self.sessions.report(),
            adapters: self.adapters(duration, &instances),
            gateway_wait: Distribution::from_samples(&mut self.gateway_waits),
            offload: self.options.offload.then(|| self.offload.report(&counters)),
            disaggregation: (self.disaggregation.as_mut())
                .map(|samples| samples.report(duration, cluster.counts.dropped_no_decode_blocks)),
            replicas: self.replicas.clone(),
            cost: InstanceCost::default(),
            energy: None,
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

    /// The figures of all `instances` together; `duration` is that of the cluster without the warm-up, `whole` that with it.
    fn cluster(&mut self, itl: Distribution, instances: &[Aggregate], duration: Micros, whole: Micros) -> Aggregate {
        self.elsewhere.flush();
        if let [only] = instances {
            // Requests that reached no instance have no latencies: nothing to merge.
            let mut counts = only.counts;
            counts.add(&self.elsewhere.counts);
            return Aggregate { counts, ..*only };
        }
        let parts: Vec<&InstanceSamples> = self.instances.iter().chain([&self.elsewhere]).collect();
        let delays = self.options.instance_latencies;
        let cluster = aggregate::cluster(&parts, itl, delays, instances, duration, whole);
        // The mean over instances would count those that served little as much as the others.
        match &self.replicas {
            Some(_) => {
                let cache_hit_rate = cluster.counters.prefix_cache.hit_rate().unwrap_or(0.0);
                Aggregate { cache_hit_rate, ..cluster }
            }
            None => cluster,
        }
    }

    /// The figures of adapters over the `duration` of the cluster, and over those of its `instances`.
    fn adapters(&mut self, duration: Micros, instances: &[Aggregate]) -> Option<(AdapterList, Vec<AdapterList>)> {
        let all = self.options.adapters.then(|| AdapterCollector::merged(&self.adapters).figures(duration))?;
        let each = self.adapters.iter_mut().zip(instances);
        Some((all, each.map(|(adapters, instance)| adapters.figures(instance.duration)).collect()))
    }

    /// The instance under which inter-token latencies of `instance` are counted: the first one if they are counted
    /// together.
    #[inline(always)]
    fn histogram(&self, instance: InstanceIndex) -> InstanceIndex {
        if self.options.instance_latencies { instance } else { InstanceIndex(0) }
    }

    /// Makes room for `instance`, which may be a new one.
    #[cold]
    fn add_instance(&mut self, instance: InstanceIndex) {
        let instances = self.instances.len().max(instance.index() + 1);
        self.instances.resize(instances, InstanceSamples::default());
        if self.options.instance_latencies {
            self.itl.grow(instances);
        }
        if self.options.adapters {
            self.adapters.resize(instances, AdapterCollector::default());
        }
        if self.options.inversions {
            self.admissions.resize(instances, BatchAdmissions::default());
        }
    }

    fn has_classes(&self) -> bool {
        self.options.per_class && self.classes.keys().any(|&name| name != Name::NONE)
    }

    fn class(&self, name: Name) -> Name {
        if Some(name) == self.options.default_class { Name::NONE } else { name }
    }

    /// Adds the outcome of a request. Not inlined, so that the rest of `record` stays small.
    #[inline(never)]
    fn add(&mut self, outcome: &Outcome) {
        if outcome.arrival < self.options.warmup {
            self.cut += 1;
            return;
        }
        match outcome.instance.filter(|_| self.is_whole(outcome)) {
            Some(instance) => self.instances[instance.index()].add(outcome),
            None => self.elsewhere.add(outcome),
        }
        if self.options.per_class || !self.options.targets.is_empty() {
            self.add_to_class(outcome);
        }
        if self.options.per_tenant && outcome.tags.tenant != Name::NONE {
            self.tenants.entry(outcome.tags.tenant).or_default().count(outcome.status, outcome.generated_tokens);
        }
        if self.options.offload {
            self.offload.add(outcome);
        }
        self.sessions.add(outcome);
        if let (true, Some(instance)) = (self.options.adapters, outcome.instance) {
            self.adapters[instance.index()].ended(outcome);
        }
        use Rejection::{Admission, GatewayDisplaced, GatewayExpired};
        if matches!(outcome.status, Status::Rejected(Admission | GatewayDisplaced | GatewayExpired)) {
            *self.shed.entry(self.class(outcome.tags.slo_class)).or_default() += 1;
        }
        if let (true, Some(instance)) = (self.options.inversions, outcome.instance) {
            let priority = self.options.classes.priority(outcome.tags.slo_class);
            self.admissions[instance.index()].add(outcome, priority);
        }
    }

    /// Whether one instance served the request: of others it served parts, which are reported on their own.
    fn is_whole(&mut self, outcome: &Outcome) -> bool {
        let Some(samples) = &mut self.disaggregation else { return true };
        let is_whole = samples.reported.take() != Some(outcome.id);
        if is_whole {
            samples.add_whole(outcome);
        }
        is_whole
    }

    fn add_to_class(&mut self, outcome: &Outcome) {
        let name = self.class(outcome.tags.slo_class);
        if let Some(class) = self.classes.get_mut(&name) {
            class.add(outcome);
            return;
        }
        let targets = self.options.targets.iter().rev().find(|&&(other, _)| other == name).map(|&(_, targets)| targets);
        if self.options.per_class || targets.is_some() {
            let mut class = ClassSamples::new(targets.unwrap_or_default());
            class.add(outcome);
            self.classes.insert(name, class);
        }
    }
}

impl Observer for Metrics {
    #[inline(always)]
    fn interests(&self) -> Interests {
        Interests::OUTCOMES | Interests::INTER_TOKEN_LATENCIES | Interests::GATEWAY
    }

    #[inline(always)]
    fn record(&mut self, event: &SimEvent<'_>) {
        match *event {
            SimEvent::Outcome(outcome) => self.add(outcome),
            SimEvent::InterTokenLatency { instance, gap, count } => self.itl.add(self.histogram(instance), gap, count),
            SimEvent::InterTokenLatencyRetracted { instance, gap, count } => {
                self.itl.retract(self.histogram(instance), gap, count);
            }
            SimEvent::Dispatched { request, waited } if request.arrival >= self.options.warmup => {
                self.gateway_waits.push(waited);
            }
            SimEvent::Adapter(event) if self.options.adapters => self.adapters[event.instance.index()].changed(event),
            SimEvent::StageEnded(part) if part.arrival >= self.options.warmup => {
                self.disaggregation.iter_mut().for_each(|samples| samples.add_part(part));
            }
            // Its outcome follows.
            SimEvent::Disaggregated(times) => {
                let warmup = self.options.warmup;
                self.disaggregation.iter_mut().for_each(|samples| samples.add(times, warmup));
            }
            SimEvent::Encoded(times) => {
                let warmup = self.options.warmup;
                self.disaggregation.iter_mut().for_each(|samples| samples.add_encoded(times, warmup));
            }
            SimEvent::Replica(event) => event.instance.into_iter().for_each(|instance| self.add_instance(instance)),
            SimEvent::Replicas(report) => self.replicas = Some(report.clone()),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
