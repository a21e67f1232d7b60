//! The knobs that a diagnosis turns: each a change of settings, one row a knob.

use std::fmt::Display;

use blis_sim::units::Micros;

use crate::experiment::Experiment;
use crate::spec::{ExperimentSpec, KEYS, SettingKey};
use blis_config::Deployment;
use blis_config::policy::SettingSource;

use super::super::variation::VariedSetting;

/// What is turned: a setting, or several that belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KnobName {
    GpuMemory,
    KvFp8,
    KvBlocks,
    CpuTier,
    TierBandwidth,
    SeqsDouble,
    SeqsHalf,
    TokensDouble,
    TokensHalf,
    LongPrefill,
    Async,
    PrefixCaching,
    WeightsFp8,
    TensorParallel,
    Replicas,
    PrefillApart,
    PrefillTogether,
    TransferLink,
    RouteRoundRobin,
    RouteLeastLoaded,
    RouteWeighted,
    RouteTokenAware,
    RoutePrefix,
    NoGateway,
    GatewayDouble,
    AdaptersDouble,
    AdaptersQuadruple,
    AdaptersHost,
    AdapterRouting,
    MinReplicas,
    StartWarm,
    StartHot,
    Deadline,
    ShedBatch,
    Rate,
}

/// What a knob needs to know of the service.
pub(super) struct KnobContext<'a> {
    pub spec: &'a ExperimentSpec,
    pub base: &'a Experiment,
    pub deployment: &'a Deployment,
    /// Whether requests follow from the outputs of others.
    pub is_closed: bool,
    /// Whether there are requests of a priority below 0.
    pub has_batch_classes: bool,
    /// The deadline that most requests could meet alone, if many requests time out.
    pub deadline: Option<Micros>,
}

/// The settings of a service with a knob turned.
#[derive(Clone, Debug, Default)]
pub(super) struct KnobChange {
    pub settings: Vec<VariedSetting>,
    pub unset: Vec<&'static str>,
    /// Factor of the times of arrival.
    pub stretch: Option<f64>,
    /// What it costs beside GPUs, if it serves less.
    pub serves_less: Option<&'static str>,
}

/// What becomes of a knob.
#[derive(Clone, Debug)]
pub(super) enum Turned {
    /// It is tried with this change.
    To(KnobChange),
    /// The service has it already, or has nothing that it would change.
    Pointless,
    /// The service cannot have it.
    Refused(String),
}

/// A row of [`KNOBS`].
pub(super) struct Knob {
    pub name: KnobName,
    /// The name of the knob in documents.
    pub key: &'static str,
    /// As tables show it.
    pub text: &'static str,
    pub turn: fn(&KnobContext<'_>) -> Turned,
}

use KnobName as K;

const fn row(name: KnobName, key: &'static str, text: &'static str, turn: fn(&KnobContext<'_>) -> Turned) -> Knob {
    Knob { name, key, text, turn }
}

pub(super) const KNOBS: &[Knob] = &[
    row(K::GpuMemory, "gpu-memory-utilization", "GPU memory utilization +0.05", gpu_memory),
    row(K::KvFp8, "kv-fp8", "fp8 KV", kv_fp8),
    row(K::KvBlocks, "kv-blocks-x2", "KV blocks ×2", |context| context.doubled_blocks()),
    row(K::CpuTier, "cpu-tier", "CPU tier of 64 GiB", cpu_tier),
    row(K::TierBandwidth, "cpu-tier-bandwidth-x2", "bandwidth of the CPU tier ×2", tier_bandwidth),
    row(K::SeqsDouble, "max-num-seqs-x2", "max_num_seqs ×2", |context| seqs(context, |seqs| seqs.saturating_mul(2))),
    row(K::SeqsHalf, "max-num-seqs-half", "max_num_seqs ×½", |context| seqs(context, |seqs| seqs / 2)),
    row(K::TokensDouble, "max-num-batched-tokens-x2", "max_num_batched_tokens ×2", |context| {
        tokens(context, |tokens| tokens.saturating_mul(2))
    }),
    row(K::TokensHalf, "max-num-batched-tokens-half", "max_num_batched_tokens ×½", |context| {
        tokens(context, |tokens| tokens / 2)
    }),
    row(K::LongPrefill, "long-prefill-threshold", "long-prefill threshold of ¼ budget", long_prefill),
    row(K::Async, "async-scheduling", "async scheduling", async_scheduling),
    row(K::PrefixCaching, "prefix-caching", "prefix caching", prefix_caching),
    row(K::WeightsFp8, "weights-fp8", "fp8 weights", weights_fp8),
    row(K::TensorParallel, "tp-x2", "TP ×2", tensor_parallel),
    row(K::Replicas, "replicas-plus-1", "one more replica", replicas),
    row(K::PrefillApart, "prefill-apart", "prefill apart from decode 1:1", prefill_apart),
    row(K::PrefillTogether, "prefill-together", "prefill and decode together", prefill_together),
    row(K::TransferLink, "transfer-link", "faster link for KV transfers", transfer_link),
    row(K::RouteRoundRobin, "router-round-robin", "router round-robin", |context| route(context, "round-robin")),
    row(K::RouteLeastLoaded, "router-least-loaded", "router least-loaded", |context| route(context, "least-loaded")),
    row(K::RouteWeighted, "router-weighted", "router weighted", |context| route(context, "weighted")),
    row(K::RouteTokenAware, "router-token-aware", "router token-aware", |context| route(context, "token-aware")),
    row(K::RoutePrefix, "router-prefix-affinity", "router prefix-affinity", |context| {
        route(context, "prefix-affinity")
    }),
    row(K::NoGateway, "no-flow-control", "no queue at the gateway", no_gateway),
    row(K::GatewayDouble, "gateway-limits-x2", "limits of the gateway ×2", gateway_double),
    row(K::AdaptersDouble, "max-loras-x2", "adapter slots ×2", |context| adapter_slots(context, 2)),
    row(K::AdaptersQuadruple, "max-loras-x4", "adapter slots ×4", |context| adapter_slots(context, 4)),
    row(K::AdaptersHost, "max-cpu-loras-x4", "adapters in host memory ×4", adapters_host),
    row(K::AdapterRouting, "router-adapters", "router by adapters", adapter_routing),
    row(K::MinReplicas, "min-replicas-plus-1", "one more replica at least", min_replicas),
    row(K::StartWarm, "start-warm", "replicas start warm", |context| start(context, "warm")),
    row(K::StartHot, "start-hot", "replicas sleep until needed", |context| start(context, "hot:8")),
    row(K::Deadline, "deadline", "longer deadline", deadline),
    row(K::ShedBatch, "shed-batch", "admission sheds batch classes", shed_batch),
    row(K::Rate, "rate-0.9", "rate ×0.9", rate),
];

impl KnobChange {
    fn new(name: &str, value: impl Display) -> Self {
        Self::default().and(name, value)
    }

    fn and(mut self, name: &str, value: impl Display) -> Self {
        self.settings.push(VariedSetting { name: name.to_owned(), value: value.to_string() });
        self
    }

    fn without(mut self, names: &[&'static str]) -> Self {
        self.unset.extend(names);
        self
    }

    /// `spec` with the change.
    ///
    /// # Errors
    /// If a value is invalid.
    pub(super) fn of(&self, spec: &ExperimentSpec) -> Result<ExperimentSpec, String> {
        let mut spec = spec.clone();
        self.unset.iter().for_each(|name| spec.unset(SettingKey::named(name)));
        for VariedSetting { name, value } in &self.settings {
            let key = SettingKey::named(name);
            spec.unset(key);
            spec.set(key, value, SettingSource::Flag(format!("--{name}").into()))
                .map_err(|message| format!("`{name}` is {value}: {message}"))?;
        }
        Ok(spec)
    }
}

impl KnobContext<'_> {
    /// `change` with KV blocks ×2, if their number is set: it is what twice the memory, or half the bytes of a token, allow.
    fn with_blocks_doubled(&self, change: KnobChange) -> KnobChange {
        match self.spec.total_kv_blocks {
            Some(blocks) => change.and("total-kv-blocks", blocks.saturating_mul(2)),
            None => change,
        }
    }

    fn doubled_blocks(&self) -> Turned {
        let Some(blocks) = self.spec.total_kv_blocks else { return Turned::Pointless };
        Turned::To(KnobChange::new("total-kv-blocks", blocks.saturating_mul(2)))
    }

    /// Whether all instances are of `--num-instances`, a number that does not change.
    fn is_plain_cluster(&self) -> bool {
        let cluster = &self.base.cluster;
        cluster.disaggregation.is_none() && cluster.scaling.is_none() && cluster.groups.is_empty()
    }
}

fn gpu_memory(context: &KnobContext<'_>) -> Turned {
    for name in ["total-kv-blocks", "kv-cache-memory-bytes"] {
        if context.spec.has(name) {
            return Turned::Refused(format!("`--{name}` sets the size of the KV cache"));
        }
    }
    let share = ((context.deployment.gpu_memory_utilization + 0.05) * 1000.0).round() / 1000.0;
    if share > 1.0 {
        return Turned::Refused(format!("it would be {share}, above 1"));
    }
    Turned::To(KnobChange::new("gpu-memory-utilization", share))
}

fn kv_fp8(context: &KnobContext<'_>) -> Turned {
    let now = context.spec.texts_of(SettingKey::named("kv-cache-dtype")).concat();
    if now.starts_with("fp8") {
        return Turned::Pointless;
    }
    Turned::To(context.with_blocks_doubled(KnobChange::new("kv-cache-dtype", "fp8")))
}

fn cpu_tier(context: &KnobContext<'_>) -> Turned {
    if context.spec.kv_offloading_size() > 0.0 || !context.base.engine.enable_prefix_caching {
        return Turned::Pointless;
    }
    Turned::To(KnobChange::new("kv-offloading-size", 64))
}

fn tier_bandwidth(context: &KnobContext<'_>) -> Turned {
    if context.spec.kv_offloading_size() <= 0.0 {
        return Turned::Pointless;
    }
    Turned::To(KnobChange::new("kv-offloading-bandwidth", 2.0 * context.spec.kv_offloading_bandwidth()))
}

fn seqs(context: &KnobContext<'_>, of: fn(u32) -> u32) -> Turned {
    let now = context.deployment.batch_limits.max_num_seqs;
    let wanted = of(now).max(1);
    if wanted == now {
        return Turned::Pointless;
    }
    let change = KnobChange::new("max-num-seqs", wanted);
    Turned::To(match context.spec.max_num_active_seqs {
        Some(active) => change.and("max-num-active-seqs", of(active).max(1)),
        None => change,
    })
}

fn tokens(context: &KnobContext<'_>, of: fn(u32) -> u32) -> Turned {
    let now = context.deployment.batch_limits.max_num_batched_tokens;
    let wanted = of(now).max(1);
    if wanted == now { Turned::Pointless } else { Turned::To(KnobChange::new("max-num-batched-tokens", wanted)) }
}

fn long_prefill(context: &KnobContext<'_>) -> Turned {
    if context.spec.long_prefill_token_threshold() > 0 {
        return Turned::Pointless;
    }
    let budget = context.deployment.batch_limits.max_num_batched_tokens;
    Turned::To(KnobChange::new("long-prefill-token-threshold", (budget / 4).max(1)))
}

fn async_scheduling(context: &KnobContext<'_>) -> Turned {
    if context.base.engine.async_scheduling {
        return Turned::Pointless;
    }
    Turned::To(KnobChange::new("async-scheduling", true))
}

fn prefix_caching(context: &KnobContext<'_>) -> Turned {
    if context.base.engine.enable_prefix_caching {
        return Turned::Pointless;
    }
    Turned::To(KnobChange::new("enable-prefix-caching", true))
}

fn weights_fp8(context: &KnobContext<'_>) -> Turned {
    if context.spec.quantization.is_some() {
        return Turned::Pointless;
    }
    Turned::To(KnobChange::new("quantization", "fp8"))
}

fn tensor_parallel(context: &KnobContext<'_>) -> Turned {
    let tp = context.deployment.tensor_parallel_size.saturating_mul(2);
    let mut change = context.with_blocks_doubled(KnobChange::new("tp", tp));
    for (name, now) in [("prefill-tp", context.spec.prefill_tp), ("decode-tp", context.spec.decode_tp)] {
        if let Some(now) = now {
            change = change.and(name, now.saturating_mul(2));
        }
    }
    Turned::To(change)
}

fn replicas(context: &KnobContext<'_>) -> Turned {
    let cluster = &context.base.cluster;
    if let Some(scaling) = &cluster.scaling {
        let change = KnobChange::new("max-replicas", scaling.max + 1).and("min-replicas", scaling.min + 1);
        return Turned::To(change.and("num-instances", cluster.num_instances + 1));
    }
    if cluster.disaggregation.is_none() {
        return Turned::To(KnobChange::new("num-instances", cluster.num_instances + 1));
    }
    let spec = context.spec;
    let (prefill, decode) = (spec.prefill_instances(), spec.decode_instances());
    if decode == 0 {
        return Turned::Refused("the roles of its instances are those of groups".to_owned());
    }
    let change = KnobChange::new("decode-instances", decode + 1);
    Turned::To(if prefill > 0 { change.and("prefill-instances", prefill + 1) } else { change })
}

fn prefill_apart(context: &KnobContext<'_>) -> Turned {
    if context.base.cluster.disaggregation.is_some() {
        return Turned::Pointless;
    }
    if !context.is_plain_cluster() {
        return Turned::Refused("with an autoscaler or groups, roles are those of groups".to_owned());
    }
    let instances = context.base.cluster.num_instances;
    let prefill = (instances / 2).max(1);
    let decode = instances.saturating_sub(prefill).max(1);
    let change =
        KnobChange::new("prefill-instances", prefill).and("decode-instances", decode).and("pd-decider", "always");
    Turned::To(change.without(&["num-instances"]))
}

/// The settings below a heading.
fn below(heading: &str) -> Vec<&'static str> {
    KEYS.iter().filter(|key| key.group.heading == heading).map(|key| key.name).collect()
}

fn prefill_together(context: &KnobContext<'_>) -> Turned {
    let spec = context.spec;
    let instances = spec.prefill_instances() + spec.decode_instances() + spec.prefill_decode_instances();
    if context.base.cluster.disaggregation.is_none() {
        return Turned::Pointless;
    }
    if instances == 0 {
        return Turned::Refused("the roles of its instances are those of groups".to_owned());
    }
    Turned::To(KnobChange::new("num-instances", instances).without(&below("Prefill apart from decode")))
}

fn transfer_link(context: &KnobContext<'_>) -> Turned {
    if context.base.cluster.disaggregation.is_none() {
        return Turned::Pointless;
    }
    let spec = context.spec;
    let change = match spec.pd_transfer_bandwidth {
        Some(bandwidth) => KnobChange::new("pd-transfer-bandwidth", 4.0 * bandwidth),
        None => match spec.texts_of(SettingKey::named("pd-transfer-link")).concat().as_str() {
            "ethernet" => KnobChange::new("pd-transfer-link", "rdma"),
            "rdma" => KnobChange::new("pd-transfer-link", "nvlink"),
            _ => return Turned::Pointless,
        },
    };
    Turned::To(match spec.pd_transfer_base_latency {
        Some(base) => change.and("pd-transfer-base-latency", base / 4.0),
        None => change,
    })
}

/// The settings that choose how requests are routed, beside the policy.
fn routing_parts() -> Vec<&'static str> {
    KEYS.iter().filter(|key| key.decides_routing() && key.name != "routing-policy").map(|key| key.name).collect()
}

fn has_choice_of_instance(context: &KnobContext<'_>) -> bool {
    let cluster = &context.base.cluster;
    cluster.instances() > 1 || cluster.scaling.is_some()
}

fn route(context: &KnobContext<'_>, policy: &'static str) -> Turned {
    let now = context.base.cluster.policies.name(blis_plugin::Kind::Routing);
    let has_parts = routing_parts().iter().any(|name| context.spec.has(name));
    if !has_choice_of_instance(context) || (now == policy && !has_parts) {
        return Turned::Pointless;
    }
    Turned::To(KnobChange::new("routing-policy", policy).without(&routing_parts()))
}

fn no_gateway(context: &KnobContext<'_>) -> Turned {
    if context.base.cluster.flow_control.is_none() {
        return Turned::Pointless;
    }
    if context.spec.flow_control.is_none() {
        return Turned::Refused("the policy bundle sets flow control".to_owned());
    }
    Turned::To(KnobChange::default().without(&below("Flow control")))
}

fn gateway_double(context: &KnobContext<'_>) -> Turned {
    let spec = context.spec;
    if context.base.cluster.flow_control.is_none() {
        return Turned::Pointless;
    }
    let detector = context.base.cluster.policies.name(blis_plugin::Kind::Saturation);
    Turned::To(match detector {
        "utilization" => {
            let utilization = (1.25 * spec.kv_cache_util_threshold()).min(1.0);
            let change = KnobChange::new("queue-depth-threshold", 2.0 * spec.queue_depth_threshold());
            change.and("kv-cache-util-threshold", utilization)
        }
        "concurrency" if spec.max_token_concurrency.is_some() => {
            KnobChange::new("max-token-concurrency", 2.0 * spec.max_token_concurrency())
        }
        "concurrency" => KnobChange::new("max-concurrency", 2.0 * spec.max_concurrency()),
        other => return Turned::Refused(format!("the limits of the detector `{other}` are its own")),
    })
}

fn adapter_slots(context: &KnobContext<'_>, factor: u32) -> Turned {
    let Some(adapters) = &context.base.deployment.adapters else { return Turned::Pointless };
    let slots = adapters.slots.unwrap_or(1).saturating_mul(factor);
    let change = KnobChange::new("max-loras", slots);
    Turned::To(match adapters.host_slots {
        Some(host) if host < slots => change.and("max-cpu-loras", slots),
        _ => change,
    })
}

fn adapters_host(context: &KnobContext<'_>) -> Turned {
    let Some(adapters) = &context.base.deployment.adapters else { return Turned::Pointless };
    let host = adapters.host_slots.or(adapters.slots).unwrap_or(1).saturating_mul(4);
    Turned::To(KnobChange::new("max-cpu-loras", host))
}

fn adapter_routing(context: &KnobContext<'_>) -> Turned {
    if context.base.deployment.adapters.is_none() || !has_choice_of_instance(context) {
        return Turned::Pointless;
    }
    let change = KnobChange::new("routing-policy", "weighted").without(&routing_parts());
    Turned::To(change.and("lora-scorer-weight", 5))
}

fn min_replicas(context: &KnobContext<'_>) -> Turned {
    let cluster = &context.base.cluster;
    let Some(scaling) = &cluster.scaling else { return Turned::Pointless };
    if scaling.min >= scaling.max {
        return Turned::Pointless;
    }
    let least = scaling.min + 1;
    let change = KnobChange::new("min-replicas", least).without(&["cooldown-period"]);
    Turned::To(match context.spec.num_instances {
        Some(instances) => change.and("num-instances", instances.max(least)),
        None => change,
    })
}

fn start(context: &KnobContext<'_>, mode: &'static str) -> Turned {
    if context.base.cluster.scaling.is_none() {
        return Turned::Pointless;
    }
    let now = context.spec.texts_of(SettingKey::named("start-mode")).concat();
    let is_as_good = now == mode || now.starts_with("hot");
    if is_as_good { Turned::Pointless } else { Turned::To(KnobChange::new("start-mode", mode)) }
}

fn deadline(context: &KnobContext<'_>) -> Turned {
    match context.deadline {
        Some(deadline) => Turned::To(KnobChange::new("timeout", deadline.as_secs_f64())),
        None => Turned::Pointless,
    }
}

fn shed_batch(context: &KnobContext<'_>) -> Turned {
    let sheds = context.base.cluster.policies.name(blis_plugin::Kind::Admission) != "always-admit";
    if sheds || !context.has_batch_classes {
        return Turned::Pointless;
    }
    let serves_less = Some("requests of sheddable classes");
    Turned::To(KnobChange { serves_less, ..KnobChange::new("admission-policy", "gaie-legacy") })
}

fn rate(context: &KnobContext<'_>) -> Turned {
    let serves_less = Some("10 % of the load");
    match context.spec.concurrency {
        Some(users) if users >= 10 => {
            Turned::To(KnobChange { serves_less, ..KnobChange::new("concurrency", users - users / 10) })
        }
        Some(_) => Turned::Refused("fewer than ten users have no tenth".to_owned()),
        None if context.is_closed => Turned::Refused("requests follow from the outputs of others".to_owned()),
        None => Turned::To(KnobChange { serves_less, stretch: Some(1.0 / 0.9), ..KnobChange::default() }),
    }
}
