//! Flow control of an experiment: from settings to the queue of the gateway.

use std::collections::BTreeMap;

use blis_config::policy::{BuiltIn, FlowPolicy, PolicySettings, SettingSource, Sourced};
use blis_plugin::Kind;
use blis_sim::cluster::{FlowControl, FlowSettings};
use blis_sim::request::Name;
use blis_sim::units::Micros;
use blis_workload::Names;

use crate::error::RunError;
use crate::spec::{
    ConcurrencyModeName, ExperimentSpec, FLOW_CONTROL, KEYS, ParityName, SettingKey, TargetList, WeightList,
};

/// The settings of flow control, defaults filled in.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowControlSettings {
    pub parity: ParityName,
    /// Name of the detector, built in or a plugin; likewise the other policies.
    pub saturation_detector: String,
    /// Waiting requests with which an instance is full.
    pub queue_depth_threshold: f64,
    /// Share of used KV blocks with which an instance is full.
    pub kv_cache_util_threshold: f64,
    /// Age of the signals from which on the service counts as full; `None` for never.
    pub metrics_staleness_threshold: Option<Micros>,
    /// Requests in flight with which an instance is full.
    pub max_concurrency: f64,
    /// What counts as in flight, for `concurrency`.
    pub concurrency_mode: ConcurrencyModeName,
    /// Prompt tokens in flight with which an instance is full.
    pub max_token_concurrency: f64,
    pub usage_limit_policy: String,
    /// The limit of `static`; that of the lowest band of `priority-holdback`.
    pub usage_limit_threshold: f64,
    pub fairness_policy: String,
    /// Weights of tenants, for `weighted`; 1 for the others.
    pub fairness_weights: Option<WeightList>,
    pub dispatch_order: String,
    pub eviction_policy: String,
    /// Targets of TTFT by class, for `slo-deadline`.
    pub slo_targets: Option<TargetList>,
    /// Time to live in the queue; 0 for no limit.
    pub request_ttl: Micros,
    /// Requests in the queue; 0 for no limit.
    pub max_gateway_queue_depth: u32,
    /// Requests in a band; 0 for no limit.
    pub per_band_capacity: u32,
    /// Bytes of the requests of a band; 0 for no limit.
    pub per_band_bytes: u64,
    pub queue_shedding: bool,
    pub in_flight_eviction: bool,
    pub dispatch_tick_interval: Micros,
}

impl FlowControlSettings {
    /// The settings of `spec`; `None` without flow control. Defaults are llm-d's, or BLIS's under its parity.
    #[must_use]
    pub fn new(spec: &ExperimentSpec) -> Option<Self> {
        if !spec.flow_control() {
            return None;
        }
        let parity = spec.parity();
        let is_blis = parity == ParityName::Blis;
        let usual = FlowSettings::usual();
        let or_bytes = if is_blis { 0 } else { usual.band_bytes.unwrap_or(0) };
        let or = |llm_d, blis| if is_blis { blis } else { llm_d };
        let holdback = is_blis && spec.usage_limit_threshold.is_some();
        Some(Self {
            parity,
            saturation_detector: name(Kind::Saturation, &spec.saturation_detector, is_blis.then_some(NEVER)),
            queue_depth_threshold: spec.queue_depth_threshold(),
            kv_cache_util_threshold: spec.kv_cache_util_threshold(),
            metrics_staleness_threshold: spec
                .metrics_staleness_threshold
                .or((!is_blis).then_some(Micros(200_000)))
                .filter(|&age| age > Micros::ZERO),
            max_concurrency: spec.max_concurrency(),
            concurrency_mode: spec.concurrency_mode(),
            max_token_concurrency: spec.max_token_concurrency(),
            usage_limit_policy: name(Kind::Ceilings, &spec.usage_limit_policy, holdback.then_some(HOLDBACK)),
            usage_limit_threshold: spec.usage_limit_threshold(),
            fairness_policy: spec.fairness_policy(),
            fairness_weights: spec.fairness_weights.clone(),
            dispatch_order: order_name(name(Kind::Ordering, &spec.dispatch_order, None)),
            eviction_policy: name(Kind::Eviction, &spec.eviction_policy, None),
            slo_targets: spec.slo_targets.clone(),
            request_ttl: spec.request_ttl.unwrap_or(or(usual.ttl.unwrap_or_default(), Micros::ZERO)),
            max_gateway_queue_depth: spec.max_gateway_queue_depth(),
            per_band_capacity: spec.per_band_capacity.unwrap_or(if is_blis {
                0
            } else {
                usual.band_requests.unwrap_or(0)
            }),
            per_band_bytes: spec.per_band_bytes.unwrap_or(or_bytes),
            queue_shedding: spec.queue_shedding(),
            in_flight_eviction: spec.in_flight_eviction(),
            dispatch_tick_interval: spec.dispatch_tick_interval(),
        })
    }

    /// The policies of the queue with the values of their parameters, where `source` returns where a flag got its value from,
    /// if it has one.
    #[must_use]
    pub(crate) fn policies(&self, source: impl Fn(&'static str) -> Option<SettingSource>) -> Vec<FlowPolicy> {
        let mode = match self.concurrency_mode {
            ConcurrencyModeName::Requests => 0.0,
            ConcurrencyModeName::Tokens => 1.0,
            ConcurrencyModeName::Hybrid => 2.0,
        };
        let staleness_ms = self.metrics_staleness_threshold.unwrap_or_default().0 as f64 / 1e3;
        let saturation = [
            ("queue-depth", "queue-depth-threshold", self.queue_depth_threshold),
            ("kv-utilization", "kv-cache-util-threshold", self.kv_cache_util_threshold),
            ("staleness-ms", "metrics-staleness-threshold", staleness_ms),
            ("max-concurrency", "max-concurrency", self.max_concurrency),
            ("max-tokens", "max-token-concurrency", self.max_token_concurrency),
            ("mode", "concurrency-mode", mode),
        ];
        let ceilings = [("limit", "usage-limit-threshold", self.usage_limit_threshold)];
        let policy = |kind, name: &str, values: &[(&'static str, &'static str, f64)]| {
            let sourced = |flag| source(flag).unwrap_or(SettingSource::Default);
            let value = |&(parameter, flag, value): &(_, _, f64)| (parameter, Sourced { value, source: sourced(flag) });
            FlowPolicy { kind, name: name.to_owned(), values: values.iter().map(value).collect() }
        };
        vec![
            policy(Kind::Saturation, &self.saturation_detector, &saturation),
            policy(Kind::Ceilings, &self.usage_limit_policy, &ceilings),
            policy(Kind::Fairness, &self.fairness_policy, &[]),
            policy(Kind::Ordering, &self.dispatch_order, &[]),
            policy(Kind::Eviction, &self.eviction_policy, &[]),
        ]
    }

    /// The queue for a workload with the names `names`; the built-in policies that have parameters, or that a bundle names,
    /// replace those of the flags.
    ///
    /// # Errors
    /// If a policy cannot be built: see [`PolicySettings::saturation`].
    pub fn build(&self, names: &Names, policies: &PolicySettings) -> Result<FlowControl, RunError> {
        let is_blis = self.parity == ParityName::Blis;
        let usual = FlowSettings::usual();
        let limit = |number: u32| (number > 0).then_some(number);
        let [saturation, ceilings, fairness, ordering, eviction] = &self.policies(|_| None)[..] else {
            return Err(RunError::runtime("flow control has five policies; please report it"));
        };
        Ok(FlowControl {
            saturation: policies.saturation(saturation).map_err(RunError::runtime)?,
            ceilings: policies.ceilings(ceilings).map_err(RunError::runtime)?,
            fairness: policies.fairness(fairness, self.weights(names)).map_err(RunError::runtime)?,
            ordering: policies.ordering(ordering, self.targets(names)).map_err(RunError::runtime)?,
            eviction: match self.in_flight_eviction {
                true => Some(policies.eviction(eviction).map_err(RunError::runtime)?),
                false => None,
            },
            settings: FlowSettings {
                max_requests: limit(self.max_gateway_queue_depth),
                band_requests: limit(self.per_band_capacity),
                band_bytes: (self.per_band_bytes > 0).then_some(self.per_band_bytes),
                displaces: self.queue_shedding,
                ttl: (self.request_ttl > Micros::ZERO).then_some(self.request_ttl),
                sweep: if is_blis { Micros::ZERO } else { usual.sweep },
                tick: self.dispatch_tick_interval,
                ticks_from_enqueue: is_blis,
                clients_time_out: !is_blis,
                eviction_grace: if is_blis { Micros::ZERO } else { usual.eviction_grace },
                evictions_at_once: if is_blis { 1 } else { usual.evictions_at_once },
                tenants: tenants(names),
            },
        })
    }

    /// The weight of each name as a tenant.
    fn weights(&self, names: &Names) -> Vec<f64> {
        let given: BTreeMap<&str, f64> = self
            .fairness_weights
            .iter()
            .flat_map(|list| &list.0)
            .map(|(tenant, weight)| (tenant.as_str(), *weight))
            .collect();
        let tenant = |text: &str| if text.is_empty() { "default" } else { text }.to_owned();
        names.texts().iter().map(|text| given.get(tenant(text).as_str()).copied().unwrap_or(1.0)).collect()
    }

    /// The target of each name as a class.
    fn targets(&self, names: &Names) -> Vec<Option<Micros>> {
        let given: BTreeMap<&str, Micros> =
            self.slo_targets.iter().flat_map(|list| &list.0).map(|(class, target)| (class.as_str(), *target)).collect();
        let class = |text: &str| if text.is_empty() { "default" } else { text }.to_owned();
        let all = given.get(crate::spec::parse::EVERY_CLASS);
        names.texts().iter().map(|text| given.get(class(text).as_str()).or(all).copied()).collect()
    }
}

const NEVER: &str = "never";
const HOLDBACK: &str = "priority-holdback";

/// The name that a flag has, else the default.
fn name(kind: Kind, given: &Option<String>, default: Option<&str>) -> String {
    given.clone().unwrap_or_else(|| default.unwrap_or(BuiltIn::default_of(kind).name).to_owned())
}

/// The name in the registry of the dispatch order that a flag calls `name`: BLIS has two names for `fcfs`.
pub(crate) fn order_name(name: String) -> String {
    if name == "fifo" || name == "priority" { BuiltIn::default_of(Kind::Ordering).name.to_owned() } else { name }
}

/// A warning if settings of the queue are set, and no request ever waits in it: BLIS's default, so that its command lines run as there.
pub(crate) fn without_effect(policies: &PolicySettings, spec: &ExperimentSpec) -> Option<(String, String)> {
    let usual = (spec.parity() == ParityName::Blis).then_some(NEVER);
    let detector = match policies.used(Kind::Saturation) {
        Some(used) => used.name().to_owned(),
        None => name(Kind::Saturation, &spec.saturation_detector, usual),
    };
    let set =
        |key: &&SettingKey| key.is_in(&FLOW_CONTROL) && key.chooses != Some(Kind::Saturation) && spec.differs(key);
    let set: Vec<String> = KEYS.iter().filter(set).map(|key| format!("`--{}`", key.name)).collect();
    if !spec.flow_control() || detector != NEVER || set.is_empty() {
        return None;
    }
    let what = format!("no effect of {}: with the saturation detector `never` no request waits", set.join(", "));
    Some((what, "add `--saturation-detector utilization`".to_owned()))
}

/// Refuses plugins and policies of a bundle that would have no effect.
///
/// # Errors
/// The first decision of flow control that is not made with the settings of `spec`.
pub(crate) fn check(policies: &PolicySettings, spec: &ExperimentSpec) -> Result<(), RunError> {
    for kind in Kind::ALL.into_iter().filter(|kind| kind.is_flow_control()) {
        let Some(used) = policies.used(kind) else { continue };
        let flag = match kind {
            _ if !spec.flow_control() => "--flow-control",
            Kind::Eviction if !spec.in_flight_eviction() => "--in-flight-eviction",
            _ => continue,
        };
        let what = format!("the {} `{}` has no effect without `{flag}`", kind.what(), used.name());
        return Err(RunError::usage(what).hint("set both, or neither"));
    }
    Ok(())
}

/// For each name as a tenant, its position in the order of texts, and the name that stands for it: requests without a
/// tenant are those of the tenant `default`.
fn tenants(names: &Names) -> Vec<(u32, Name)> {
    let texts = names.texts();
    let text = |index: usize| if texts[index].is_empty() { "default" } else { &*texts[index] };
    let mut order: Vec<usize> = (0..texts.len()).collect();
    order.sort_by_key(|&index| (text(index), index));
    let mut tenants = vec![(0, Name::NONE); texts.len()];
    let mut first = 0;
    for (position, &index) in order.iter().enumerate() {
        if position == 0 || text(index) != text(order[position - 1]) {
            first = index;
        }
        // Indices of names are u32.
        tenants[index] = (position as u32, Name(first as u32));
    }
    // Names with the same text have one position.
    for index in 0..tenants.len() {
        tenants[index].0 = tenants[tenants[index].1.index()].0;
    }
    tenants
}
