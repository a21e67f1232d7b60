//! `--explain-config`: all settings that a run depends on, as YAML, each value with its source.
//!
//! Keys are the names of flags, and values have the form that the flags take, so `--config` reads the page. Values
//! that follow from other settings (the GPUs that a model needs, its KV blocks) are comments, so that they are
//! computed again when one of those settings changes. The policies come last, without indentation: from there to the
//! end the page is a bundle for `--policy-config`.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::Path;

use blis_config::policy::{BuiltIn, SettingSource, Sourced};
use blis_config::{Deployment, KvBlocksSource, LatencyKind, TierArgs};
use blis_diag::{YamlPage, text};
use blis_plugin::Kind;
use blis_plugin::incidents::OnError;
use blis_sim::cluster::EMPTY_NODE_DELAY;
use blis_sim::offload::{BackpressurePolicy, ChunkEviction, SecondaryKind};
use blis_sim::semantics::Semantics;
use blis_sim::units::Micros;
use blis_workload::distribution::{ArrivalProcess, DistributionSpec, LengthSpec};
use blis_workload::trace_v2::{ThinkTime, recorded_seed};

use crate::disaggregation;
use crate::error::RunError;
use crate::experiment::{Experiment, SloTargetSettings};
use crate::fitness::FitnessWeights;
use crate::spec::text::{scaling_rules_text, start_mode_text, start_times_text, target_text, think_time_text};
use crate::spec::{
    ArrivalName, BackpressureName, ChunkEvictionName, DtypeName, ExperimentSpec, InlinePolicies, KEYS,
    KvCacheDtypeName, ParityName, SecondaryTierName, SessionMode, SettingKey, ValueForm, WorkloadName,
};
use crate::workload_config::{SpecConfig, SpecOrigin, SyntheticConfig, TraceConfig, TracePart, WorkloadConfig};

/// The page of all settings of `config` on `deployment`.
#[must_use]
pub fn explain(config: &Experiment, deployment: &Deployment) -> YamlPage {
    let mut page = YamlPage::default();
    for (name, settings) in (Explanation { config, deployment }).sections() {
        page.section(name, |page| settings.iter().for_each(|setting| setting.write(page)));
    }
    page.comment("From here to the end: the policies, a bundle for --policy-config");
    config.cluster.policies.explain(&mut page);
    page
}

/// The settings of that page: those that `--config` reads from it.
///
/// # Errors
/// If a setting does not take its resolved value, which is a defect of the program.
pub(crate) fn resolved(config: &Experiment, deployment: &Deployment) -> Result<ExperimentSpec, RunError> {
    let mut spec = ExperimentSpec::default();
    let sections = (Explanation { config, deployment }).sections();
    for setting in sections.into_iter().flat_map(|(_, settings)| settings).filter(|setting| !setting.is_derived()) {
        let ExplainedSetting { key, value, source } = setting;
        for text in value.texts() {
            spec.set(key, &text, source.clone()).map_err(|message| {
                RunError::runtime(format_args!("the setting `{}` does not take its own value `{text}`", key.name))
                    .hint(message)
            })?;
        }
    }
    let mut bundle = YamlPage::without_sources();
    config.cluster.policies.explain(&mut bundle);
    spec.policies =
        Some(InlinePolicies { file: "policies".into(), text: bundle.to_string().trim_end().to_owned().into() });
    Ok(spec)
}

/// A setting with the value that the experiment has, and where the value is from.
struct ExplainedSetting {
    key: &'static SettingKey,
    value: ExplainedValue,
    source: SettingSource,
}

impl ExplainedSetting {
    /// Whether the value follows from other settings.
    fn is_derived(&self) -> bool {
        matches!(self.source, SettingSource::Other(_))
    }

    /// An entry, or a comment if the value is derived.
    fn write(&self, page: &mut YamlPage) {
        let (name, value) = (self.key.name, self.value.yaml(self.key.form));
        if self.is_derived() {
            page.comment(format_args!("{name}: {value}  ({})", self.source));
        } else {
            page.entry(name, value, &self.source);
        }
    }
}

/// The texts that set a setting.
enum ExplainedValue {
    /// Not set: `null`.
    Null,
    One(String),
    Several(Vec<String>),
}

impl<T: Display> From<T> for ExplainedValue {
    fn from(value: T) -> Self {
        Self::One(value.to_string())
    }
}

impl ExplainedValue {
    fn texts(self) -> Vec<String> {
        match self {
            Self::Null => Vec::new(),
            Self::One(text) => vec![text],
            Self::Several(texts) => texts,
        }
    }

    fn yaml(&self, form: ValueForm) -> String {
        let scalar = |value: &String| match form {
            ValueForm::Text | ValueForm::Texts => text(value),
            ValueForm::Number | ValueForm::Numbers | ValueForm::Switch => value.clone(),
        };
        match self {
            Self::Null => "null".to_owned(),
            Self::One(value) => scalar(value),
            Self::Several(values) => format!("[{}]", values.iter().map(scalar).collect::<Vec<_>>().join(", ")),
        }
    }
}

/// The settings of a section of the page.
#[derive(Default)]
struct ExplainedSettings(Vec<ExplainedSetting>);

impl ExplainedSettings {
    fn push(&mut self, name: &str, value: impl Into<ExplainedValue>, source: SettingSource) {
        let key = SettingKey::named(name);
        self.0.push(ExplainedSetting { key, value: value.into(), source });
    }
}

struct Explanation<'a> {
    config: &'a Experiment,
    deployment: &'a Deployment,
}

impl Explanation<'_> {
    /// The sections of the page, in its order.
    fn sections(&self) -> [(&'static str, Vec<ExplainedSetting>); 6] {
        let section = |write: fn(&Self, &mut ExplainedSettings)| {
            let mut settings = ExplainedSettings::default();
            write(self, &mut settings);
            settings.0
        };
        [
            ("model-and-hardware", section(Self::model_and_hardware)),
            ("engine", section(Self::engine)),
            ("cluster", section(Self::cluster)),
            ("evaluation", section(Self::evaluation)),
            ("workload", section(Self::workload)),
            ("simulation", section(Self::simulation)),
        ]
    }

    /// The value of the setting `key`, with its source or the default as source.
    fn flag(&self, settings: &mut ExplainedSettings, key: &str, value: impl Into<ExplainedValue>) {
        self.or_else(settings, key, value, SettingSource::Default);
    }

    /// The value of the setting `key`, with its source or, if it is not set, `otherwise`.
    fn or_else(
        &self,
        settings: &mut ExplainedSettings,
        key: &str,
        value: impl Into<ExplainedValue>,
        otherwise: SettingSource,
    ) {
        settings.push(key, value, self.config.spec.source(key, otherwise));
    }

    /// The reason in the note of the deployment that starts with `what`, or `usual`.
    fn noted(&self, what: &str, usual: &'static str) -> SettingSource {
        let note = self.deployment.notes.iter().find(|note| note.starts_with(what));
        let reason = note.map(|note| note.split_once(": ").map_or(note.as_str(), |(_, reason)| reason));
        SettingSource::Other(reason.map_or(usual.into(), |reason| reason.to_owned().into()))
    }

    fn model_and_hardware(&self, settings: &mut ExplainedSettings) {
        let (args, deployment) = (&self.config.deployment, self.deployment);
        self.flag(settings, "model", &args.model);
        self.or_else(settings, "hardware", &deployment.hardware, self.noted("hardware ", "the coefficients' own"));
        let tp = self.noted("tensor parallel size ", "the coefficients' own");
        self.or_else(settings, "tp", deployment.tensor_parallel_size, tp);
        let pp = self.noted("pipeline parallel size ", "the default");
        self.or_else(settings, "pp", deployment.pipeline_parallel_size, pp);
        self.flag(settings, "dp", deployment.data_parallel_size);
        self.flag(settings, "enable-expert-parallel", args.enable_expert_parallel);
        self.flag(settings, "enforce-eager", args.enforce_eager);
        self.precision(settings);
        self.flag(settings, "moe-comm-backend", optional(args.moe_comm_backend.as_deref()));
        self.flag(settings, "vllm-version", optional(args.vllm_version.as_deref()));
        let built_in = SettingSource::Other("built in".into());
        self.or_else(settings, "model-config-folder", path(args.model_config_folder.as_deref()), built_in.clone());
        self.or_else(settings, "hardware-config", path(args.hardware_config.as_deref()), built_in);
        self.latency_model(settings);
        let trained = match deployment.latency_kind {
            LatencyKind::TrainedPhysics => SettingSource::Other("trained".into()),
            LatencyKind::Physics => self.noted("physics coefficients", "trained"),
            LatencyKind::Roofline => SettingSource::Other("roofline has none".into()),
            LatencyKind::Blackbox => self.noted("blackbox coefficients ", "trained"),
        };
        let trained = match args.latency_parameters.is_empty() {
            true => trained,
            false => SettingSource::Other(format!("{trained}; parameters of `latency` below").into()),
        };
        self.flag(settings, "coefficients", path(args.coefficients.as_deref()));
        self.or_else(settings, "alpha-coeffs", list(&deployment.alpha), trained.clone());
        self.or_else(settings, "beta-coeffs", list(&deployment.beta), trained);
        let blocks = match deployment.kv_blocks_source {
            KvBlocksSource::Flag => self.config.spec.source("total-kv-blocks", SettingSource::Default),
            source => SettingSource::Other(source.to_string().into()),
        };
        settings.push("total-kv-blocks", deployment.total_kv_blocks, blocks);
        self.flag(settings, "block-size-in-tokens", args.block_size);
        let (length, context) = (optional(deployment.max_model_len), "the context length of ");
        let by_model = match deployment.max_model_len {
            Some(_) => self.noted("max_model_len ", "the model's configuration"),
            None => self.noted(context, "the model's configuration"),
        };
        let given = self.config.deployment.max_model_len.filter(|&given| Some(given) == deployment.max_model_len);
        let source = if given.is_some() { self.config.spec.source("max-model-len", by_model) } else { by_model };
        settings.push("max-model-len", length, source);
        self.flag(settings, "gpu-memory-utilization", args.gpu_memory_utilization);
        self.tiers(settings);
    }

    /// BLIS's tiers below the GPU's KV cache, if there are any.
    fn tiers(&self, settings: &mut ExplainedSettings) {
        match &self.config.deployment.blis_tiers {
            Some(TierArgs::Mirror(mirror)) => {
                self.flag(settings, "kv-cpu-blocks", mirror.cpu_blocks);
                self.flag(settings, "kv-transfer-bandwidth", mirror.bandwidth);
                self.flag(settings, "kv-transfer-base-latency", mirror.base_latency.0);
                if let Some(threshold) = self.config.spec.kv_offload_threshold {
                    self.flag(settings, "kv-offload-threshold", threshold);
                }
            }
            Some(TierArgs::Offload(_)) if self.config.spec.kv_offload_config.is_some() => {
                self.flag(settings, "kv-offload-config", path(self.config.spec.kv_offload_config.as_deref()));
            }
            // Tiers in the header of a trace come with the trace.
            Some(TierArgs::Offload(_)) | None => {}
        }
    }

    /// Number formats; those that no setting names are the model's own.
    fn precision(&self, settings: &mut ExplainedSettings) {
        let (precision, spec) = (&self.deployment.precision, &self.config.spec);
        let own = || SettingSource::Other("the model's configuration".into());
        let name = |name: &Option<String>| optional(name.as_deref());
        let by = |key, is_auto| if is_auto { own() } else { spec.source(key, own()) };
        let is_auto = spec.dtype.is_none_or(|dtype| dtype == DtypeName::Auto);
        settings.push("dtype", name(&precision.dtype), by("dtype", is_auto));
        self.or_else(settings, "quantization", name(&precision.quantization), own());
        let is_auto = spec.kv_cache_dtype.is_none_or(|dtype| dtype == KvCacheDtypeName::Auto);
        settings.push("kv-cache-dtype", name(&precision.kv_cache_dtype), by("kv-cache-dtype", is_auto));
    }

    /// A latency model that a setting names is that setting's; in all other cases the model is derived.
    fn latency_model(&self, settings: &mut ExplainedSettings) {
        let (kind, spec) = (self.deployment.latency_kind, &self.config.spec);
        let plugin = self.config.cluster.policies.plugin(Kind::Latency).is_some();
        let source = match spec.source("latency-model", SettingSource::Default) {
            _ if plugin => SettingSource::Other("fallback if the plugin fails".into()),
            SettingSource::Default => self.latency_source(),
            source => source,
        };
        settings.push("latency-model", kind, source);
    }

    /// Why the deployment uses that model, if no setting names one.
    fn latency_source(&self) -> SettingSource {
        let by_flag = if self.config.spec.beta_coeffs.is_some() { "beta-coeffs" } else { "vllm-version" };
        match self.deployment.latency_kind {
            LatencyKind::Physics | LatencyKind::Roofline => SettingSource::Other("default".into()),
            _ => match self.config.spec.source(by_flag, SettingSource::Default) {
                SettingSource::Default => self.noted("blackbox latency model", "default"),
                source => SettingSource::Other(source.to_string().into()),
            },
        }
    }

    fn engine(&self, settings: &mut ExplainedSettings) {
        let engine = &self.config.engine;
        let limits = &self.deployment.batch_limits;
        let by_gpu = || match engine.profile {
            Some(_) => SettingSource::Other(self.deployment.batch_limits_source.into()),
            None => SettingSource::Default,
        };
        if let Some(profile) = engine.profile {
            self.flag(settings, "engine", profile);
        }
        self.or_else(settings, "max-num-seqs", limits.max_num_seqs, by_gpu());
        self.or_else(settings, "max-num-batched-tokens", limits.max_num_batched_tokens, by_gpu());
        self.flag(settings, "max-num-active-seqs", optional(engine.options.max_num_active_seqs));
        self.flag(settings, "long-prefill-token-threshold", engine.long_prefill_token_threshold);
        self.flag(settings, "long-prefill-token-threshold-adaptive", engine.options.adaptive_prefill_threshold);
        self.flag(settings, "prefill-schedule-interval", engine.options.prefill_schedule_interval);
        self.flag(settings, "watermark", engine.watermark);
        self.flag(settings, "max-num-queued-reqs", optional(engine.options.max_num_queued_reqs));
        self.flag(settings, "max-num-queued-tokens", optional(engine.options.max_num_queued_tokens));
        self.cpu_tier(settings);
        self.flag(settings, "enable-prefix-caching", engine.enable_prefix_caching);
        self.flag(settings, "enable-chunked-prefill", engine.enable_chunked_prefill);
        self.flag(settings, "async-scheduling", engine.async_scheduling);
        let by_engine = match engine.profile {
            Some(profile) => SettingSource::Other(format!("{profile}").into()),
            None => SettingSource::Default,
        };
        self.or_else(settings, "scheduler-reserve-full-isl", engine.reserve_full_prompt, by_engine);
        self.adapters(settings);
        let parity = if engine.semantics == Semantics::BLIS { ParityName::Blis } else { ParityName::Vllm };
        self.flag(settings, "parity", parity);
        self.flag(settings, "simulation", engine.simulation);
    }

    fn cpu_tier(&self, settings: &mut ExplainedSettings) {
        let tier = self.config.deployment.offload.unwrap_or_default();
        self.flag(settings, "kv-offloading-size", tier.size_gib);
        let eviction = match tier.eviction {
            ChunkEviction::Lru => ChunkEvictionName::Lru,
            ChunkEviction::Arc => ChunkEvictionName::Arc,
        };
        let used = self.config.cluster.policies.used(Kind::KvCache).map(|used| used.name().to_owned());
        // One that was chosen is among the policies of the page; both names of the setting must not contradict each other.
        if used.is_none_or(|used| used == eviction.to_string()) {
            self.flag(settings, "kv-offloading-eviction-policy", eviction);
        }
        self.flag(settings, "kv-offloading-blocks-per-chunk", tier.blocks_per_chunk);
        self.flag(settings, "kv-offloading-store-threshold", tier.store_threshold);
        self.flag(settings, "kv-offloading-all-tokens", !tier.prompt_only);
        self.flag(settings, "kv-offloading-bandwidth", tier.bandwidth);
        self.flag(settings, "kv-offloading-bandwidth-both", optional(tier.bandwidth_both));
        self.flag(settings, "kv-offloading-latency", tier.latency.0);
        let (mut name, mut backpressure) = (SecondaryTierName::None, BackpressureName::None);
        if let Some(secondary) = tier.secondary {
            name = match secondary.kind {
                SecondaryKind::Files => SecondaryTierName::Fs,
                SecondaryKind::Objects => SecondaryTierName::Obj,
                SecondaryKind::Peers => SecondaryTierName::P2p,
            };
            backpressure = match secondary.backpressure {
                BackpressurePolicy::None => BackpressureName::None,
                BackpressurePolicy::Drop => BackpressureName::Drop,
                BackpressurePolicy::Throttle => BackpressureName::Throttle,
            };
        }
        self.flag(settings, "kv-offloading-secondary", name);
        let is_shared = tier.secondary.is_some_and(|secondary| secondary.shared);
        self.flag(settings, "kv-offloading-secondary-shared", is_shared);
        let bandwidth = tier.secondary.and_then(|secondary| secondary.bandwidth);
        self.flag(settings, "kv-offloading-secondary-bandwidth", optional(bandwidth));
        let latency = tier.secondary.and_then(|secondary| secondary.latency);
        self.flag(settings, "kv-offloading-secondary-latency", optional(latency.map(|latency| latency.0)));
        self.flag(settings, "kv-offloading-backpressure", backpressure);
    }

    /// Prefill apart from decode, if a setting of it is there.
    fn disaggregation(&self, settings: &mut ExplainedSettings) {
        let spec = &self.config.spec;
        let given: BTreeMap<&str, Vec<String>> = spec.entries().map(|(key, texts)| (key.name, texts)).collect();
        if !given.keys().any(|name| disaggregation::is_setting(name)) {
            return;
        }
        for name in KEYS.iter().map(|key| key.name).filter(|name| disaggregation::is_setting(name)) {
            let value = match given.get(name).map(Vec::as_slice) {
                None => ExplainedValue::Null,
                Some([value]) => ExplainedValue::One(value.clone()),
                Some(values) => ExplainedValue::Several(values.to_vec()),
            };
            self.flag(settings, name, value);
        }
    }

    /// LoRA adapters, if they are on.
    fn adapters(&self, settings: &mut ExplainedSettings) {
        let (spec, Some(args)) = (&self.config.spec, &self.config.deployment.adapters) else { return };
        if !args.as_in_blis {
            self.or_else(settings, "enable-lora", true, SettingSource::Other("`--lora-config` turns it on".into()));
        }
        if let Some(file) = &spec.lora_config {
            self.flag(settings, "lora-config", file.display());
        }
        let Some(adapters) = &self.deployment.adapters else { return };
        let from_file = |set: bool| match set {
            true => SettingSource::Other("the file of `--lora-config`".into()),
            false => SettingSource::Default,
        };
        self.or_else(settings, "max-loras", adapters.slots, from_file(args.slots.is_some()));
        if !args.as_in_blis {
            self.or_else(settings, "max-cpu-loras", adapters.host_slots, from_file(args.host_slots.is_some()));
            self.or_else(settings, "max-lora-rank", adapters.max_rank, from_file(args.max_rank.is_some()));
        }
        let (base, bandwidth) = adapters.load_from_disk();
        self.or_else(settings, "lora-load-base-latency-us", base, from_file(args.load_base_us.is_some()));
        self.or_else(settings, "lora-load-bandwidth-bytes-us", bandwidth, from_file(args.load_bandwidth.is_some()));
        let by_model = SettingSource::Other("the size of the model".into());
        let footprint =
            if args.footprint.is_none() && !args.as_in_blis { by_model } else { from_file(args.footprint.is_some()) };
        self.or_else(settings, "lora-footprint-bytes-per-rank", adapters.footprint, footprint);
        if let Some(weight) = spec.lora_scorer_weight {
            self.flag(settings, "lora-scorer-weight", weight);
        }
    }

    fn cluster(&self, settings: &mut ExplainedSettings) {
        let cluster = &self.config.cluster;
        self.flag(settings, "num-instances", cluster.num_instances);
        self.flag(settings, "admission-latency", cluster.admission_latency.0);
        self.flag(settings, "routing-latency", cluster.routing_latency.0);
        self.flag(settings, "snapshot-refresh-interval", cluster.snapshot_refresh_interval.0);
        self.flag(settings, "cache-signal-delay", cluster.cache_signal_delay.0);
        self.flag(settings, "tie-break", cluster.tie_break);
        self.flow_control(settings);
        self.groups(settings);
        self.scaling(settings);
        let catalog = &self.config.catalog;
        let dirs: Vec<String> = catalog.dirs().iter().map(|dir| dir.display().to_string()).collect();
        self.flag(settings, "policy-dir", ExplainedValue::Several(dirs));
        self.flag(settings, "allow-native", catalog.allows_native());
        self.flag(settings, "allow-large-components", catalog.limits().large_components);
        let on_error = match self.config.on_plugin_error {
            OnError::Fail => "fail",
            OnError::Fallback => "fallback",
        };
        self.flag(settings, "on-plugin-error", on_error);
        self.disaggregation(settings);
    }

    fn flow_control(&self, settings: &mut ExplainedSettings) {
        let Some(flow) = &self.config.cluster.flow_control else { return };
        self.flag(settings, "flow-control", true);
        if self.flow_policy(settings, Kind::Saturation, "saturation-detector", &flow.saturation_detector) {
            self.flag(settings, "queue-depth-threshold", flow.queue_depth_threshold);
            self.flag(settings, "kv-cache-util-threshold", flow.kv_cache_util_threshold);
            self.flag(settings, "metrics-staleness-threshold", flow.metrics_staleness_threshold.unwrap_or_default().0);
            self.flag(settings, "max-concurrency", flow.max_concurrency);
            self.flag(settings, "concurrency-mode", flow.concurrency_mode);
            self.flag(settings, "max-token-concurrency", flow.max_token_concurrency);
        }
        if self.flow_policy(settings, Kind::Ceilings, "usage-limit-policy", &flow.usage_limit_policy) {
            self.flag(settings, "usage-limit-threshold", flow.usage_limit_threshold);
        }
        self.flow_policy(settings, Kind::Fairness, "fairness-policy", &flow.fairness_policy);
        self.flag(settings, "fairness-weights", optional(flow.fairness_weights.as_ref()));
        self.flow_policy(settings, Kind::Ordering, "dispatch-order", &flow.dispatch_order);
        self.flag(settings, "slo-targets", optional(flow.slo_targets.as_ref()));
        self.flag(settings, "request-ttl", flow.request_ttl.0);
        self.flag(settings, "max-gateway-queue-depth", flow.max_gateway_queue_depth);
        self.flag(settings, "per-band-capacity", flow.per_band_capacity);
        self.flag(settings, "per-band-bytes", flow.per_band_bytes);
        self.flag(settings, "queue-shedding", flow.queue_shedding);
        self.flag(settings, "in-flight-eviction", flow.in_flight_eviction);
        if flow.in_flight_eviction {
            self.flow_policy(settings, Kind::Eviction, "eviction-policy", &flow.eviction_policy);
        }
        self.flag(settings, "dispatch-tick-interval", flow.dispatch_tick_interval.0);
    }

    fn groups(&self, settings: &mut ExplainedSettings) {
        let groups = &self.config.cluster.groups;
        if !groups.is_empty() {
            self.flag(settings, "group", ExplainedValue::Several(groups.iter().map(ToString::to_string).collect()));
        }
        if let Some(pools) = &self.config.spec.node_pool {
            self.flag(settings, "node-pool", ExplainedValue::Several(pools.iter().map(ToString::to_string).collect()));
            self.flow_policy(settings, Kind::Placement, "placement-policy", BuiltIn::default_of(Kind::Placement).name);
            let idle = self.config.spec.node_idle.unwrap_or(EMPTY_NODE_DELAY);
            self.flag(settings, "node-idle", idle.as_secs_f64());
        }
    }

    fn scaling(&self, settings: &mut ExplainedSettings) {
        let Some(scaling) = &self.config.cluster.scaling else { return };
        let choices = &self.config.choices;
        let plugin = choices.policies.iter().find(|(kind, _)| *kind == Kind::Scaling);
        let parameters: Vec<String> = match (plugin, &scaling.built_in) {
            (None, None) => return,
            (None, Some(used)) => {
                self.flag(settings, "autoscaler", used.row.name);
                used.parameters.iter().map(|(name, value)| format!("scaling.{name}={}", value.value)).collect()
            }
            (Some((_, name)), _) => {
                self.flag(settings, "autoscaler", name.as_str());
                let own = choices.parameters.iter().filter(|one| one.kind == Kind::Scaling);
                own.map(|one| format!("scaling.{}={}", one.name, one.value.value)).collect()
            }
        };
        self.flag(settings, "policy-param", ExplainedValue::Several(parameters));
        if scaling.is_blis() {
            self.flag(settings, "scaling-interval", scaling.sync.as_secs_f64());
            self.flag(settings, "startup-time", start_times_text(&scaling.start));
            return;
        }
        self.flag(settings, "min-replicas", scaling.min);
        self.flag(settings, "max-replicas", scaling.max);
        self.flag(settings, "scrape-interval", scaling.scrape.as_secs_f64());
        self.flag(settings, "scaling-interval", scaling.sync.as_secs_f64());
        self.flag(settings, "scale-up", scaling_rules_text(&scaling.behaviour.up));
        self.flag(settings, "scale-down", scaling_rules_text(&scaling.behaviour.down));
        self.flag(settings, "cooldown-period", scaling.behaviour.cooldown.as_secs_f64());
        self.flag(settings, "startup-time", start_times_text(&scaling.start));
        self.flag(settings, "start-mode", start_mode_text(&scaling.mode));
        self.flow_policy(settings, Kind::Drain, "drain-policy", BuiltIn::default_of(Kind::Drain).name);
    }

    /// A policy of flow control or of replicas, unless it is among the policies of the page. Returns whether flags have the parameters of
    /// the built-in policy.
    fn flow_policy(&self, settings: &mut ExplainedSettings, kind: Kind, flag: &'static str, policy: &str) -> bool {
        let used = self.config.cluster.policies.used(kind);
        if used.is_none() {
            self.flag(settings, flag, policy);
        }
        used.is_none_or(|used| used.built_in.is_none())
    }

    fn evaluation(&self, settings: &mut ExplainedSettings) {
        let evaluation = &self.config.evaluation;
        self.flag(settings, "slo-ttft", self.targets(|targets| &targets.ttft));
        self.flag(settings, "slo-itl", self.targets(|targets| &targets.itl));
        self.flag(settings, "slo-e2e", self.targets(|targets| &targets.e2e));
        self.flag(settings, "fitness-weights", optional(evaluation.fitness.as_ref().map(FitnessWeights::text)));
        if let Some(scale) = evaluation.fitness.as_ref().map(FitnessWeights::scale) {
            self.flag(settings, "fitness-scale", scale.name());
        }
        self.flag(settings, "baseline", optional(evaluation.baseline.as_deref()));
        self.flag(settings, "prices", path(self.config.spec.prices.as_deref()));
        self.flag(settings, "energy", self.config.energy);
        self.flag(settings, "trace-level", evaluation.trace_level);
        self.flag(settings, "trace-path", path(evaluation.trace_path.as_deref()));
        self.flag(settings, "counterfactual-k", evaluation.counterfactual_k);
        self.flag(settings, "summarize-trace", evaluation.summarize_trace);
        let regret = &evaluation.regret;
        self.flag(settings, "regret", regret.kind);
        self.flag(settings, "regret-samples", regret.samples);
        self.flag(settings, "regret-alternatives", regret.alternatives);
        self.flag(settings, "regret-window", optional(regret.window.map(Micros::as_secs_f64)));
        self.flag(settings, "regret-path", path(regret.path.as_deref()));
    }

    /// SLO targets in the form that the flag takes.
    fn targets(&self, of: impl Fn(&SloTargetSettings) -> &Option<Sourced<Micros>>) -> ExplainedValue {
        let targets = &self.config.cluster.slo_targets;
        let given: Vec<String> = targets
            .iter()
            .filter_map(|(class, targets)| of(targets).as_ref().map(|target| target_text(class, target.value)))
            .collect();
        optional((!given.is_empty()).then(|| given.join(",")))
    }

    fn workload(&self, settings: &mut ExplainedSettings) {
        match &self.config.workload {
            WorkloadConfig::Synthetic(synthetic) => self.synthetic(settings, synthetic),
            WorkloadConfig::Trace(trace) => self.trace(settings, trace),
            WorkloadConfig::Specified(specified) => self.specified(settings, specified),
            WorkloadConfig::Recorded { header, data, skip_bad_lines, part, closed_loop } => {
                self.flag(settings, "trace-header", path(Some(header)));
                self.flag(settings, "trace-data", path(Some(data)));
                self.flag(settings, "skip-bad-lines", skip_bad_lines);
                self.part(settings, part);
                self.sessions(settings, *closed_loop);
            }
        }
    }

    fn sessions(&self, settings: &mut ExplainedSettings, closed_loop: Option<Option<ThinkTime>>) {
        let mode = if closed_loop.is_some() { SessionMode::ClosedLoop } else { SessionMode::Fixed };
        self.flag(settings, "session-mode", mode);
        match closed_loop.flatten() {
            Some(ThinkTime::Constant(time)) => self.flag(settings, "think-time-ms", time.as_millis_f64()),
            Some(time @ ThinkTime::LogNormal { .. }) => {
                self.flag(settings, "think-time-dist", think_time_text(&time));
            }
            None if closed_loop.is_some() => {
                self.or_else(
                    settings,
                    "think-time-ms",
                    ExplainedValue::Null,
                    SettingSource::Other("think times of the trace".into()),
                );
            }
            None => {}
        }
    }

    fn synthetic(
        &self,
        settings: &mut ExplainedSettings,
        SyntheticConfig { name: preset, spec, .. }: &SyntheticConfig,
    ) {
        self.flag(settings, "workload", preset);
        self.flag(settings, "rate", spec.rate);
        let arrivals = match spec.arrival {
            ArrivalProcess::Constant => "constant",
            ArrivalProcess::Poisson => "poisson",
        };
        self.flag(settings, "arrival-process", arrivals);
        self.flag(settings, "num-requests", spec.num_requests.unwrap_or(0));
        self.lengths(settings, preset, spec);
    }

    fn lengths(&self, settings: &mut ExplainedSettings, preset: &str, spec: &DistributionSpec) {
        for (what, LengthSpec { mean, stdev, min, max }) in [("prompt", spec.prompt), ("output", spec.output)] {
            let usual = if preset == "distribution" {
                SettingSource::Default
            } else {
                SettingSource::Other(format!("preset {preset}").into())
            };
            for (figure, value) in [("", mean), ("-stdev", stdev), ("-min", min.into()), ("-max", max.into())] {
                self.or_else(settings, &format!("{what}-tokens{figure}"), value, usual.clone());
            }
        }
        self.flag(settings, "prefix-tokens", spec.prefix_tokens);
        self.flag(settings, "timeout", timeout(spec.timeout));
    }

    fn specified(
        &self,
        settings: &mut ExplainedSettings,
        SpecConfig { origin, spec, num_requests, timeout: all }: &SpecConfig,
    ) {
        let (number, own) = (num_requests.unwrap_or(0), SettingSource::Other("specification".into()));
        match origin {
            SpecOrigin::File(file) => {
                self.flag(settings, "workload-spec", path(Some(file)));
                self.or_else(settings, "num-requests", number, own.clone());
                self.or_else(settings, "timeout", optional(all.map(timeout)), own);
            }
            SpecOrigin::Named(preset) => {
                self.flag(settings, "workload", preset.name());
                self.flag(settings, "rate", spec.aggregate_rate);
                self.flag(settings, "num-requests", number);
                self.flag(settings, "timeout", timeout(all.flatten()));
            }
            SpecOrigin::Users { name, count, think_time, lengths } => {
                self.flag(settings, "workload", name);
                self.flag(settings, "concurrency", count);
                self.flag(settings, "think-time-ms", think_time.as_millis_f64());
                let until = SettingSource::Other("until the horizon".into());
                self.or_else(settings, "num-requests", number, until);
                self.lengths(settings, name, lengths);
            }
        }
    }

    fn trace(&self, settings: &mut ExplainedSettings, trace: &TraceConfig) {
        let implied = SettingSource::Other("flag --workload-trace".into());
        self.or_else(settings, "workload", WorkloadName::Traces, implied);
        self.flag(settings, "workload-trace", path(Some(&trace.path)));
        self.flag(settings, "trace-format", trace.format);
        let usual = SettingSource::Other("the format's own".into());
        self.or_else(settings, "mooncake-block-size", optional(trace.mooncake_block_size), usual);
        self.flag(settings, "skip-bad-lines", trace.skip_bad_lines);
        self.part(settings, &trace.part);
        let mode = if trace.closed_loop { SessionMode::ClosedLoop } else { SessionMode::Fixed };
        self.flag(settings, "session-mode", mode);
        if let Some((rate, process)) = trace.arrivals {
            self.flag(settings, "rate", rate);
            self.flag(settings, "arrival-process", ArrivalName::from(process));
        }
        self.flag(settings, "timeout", timeout(trace.timeout));
    }

    fn part(&self, settings: &mut ExplainedSettings, TracePart { window, max_requests }: &TracePart) {
        self.flag(settings, "start", window.start.as_secs_f64());
        self.flag(settings, "duration", optional(window.duration.map(Micros::as_secs_f64)));
        self.flag(settings, "time-scale", window.time_scale);
        self.flag(settings, "repeat", window.repeat);
        self.flag(settings, "spread-bins", optional(window.spread.map(Micros::as_millis_f64)));
        self.flag(settings, "max-requests", optional(*max_requests));
    }

    fn simulation(&self, settings: &mut ExplainedSettings) {
        let Experiment { seed, horizon, workload, engine, .. } = self.config;
        let specified = match workload {
            WorkloadConfig::Specified(SpecConfig { spec, .. }) => (spec.seed.is_some(), spec.horizon.is_some()),
            _ => (false, false),
        };
        let own = || SettingSource::Other("specification".into());
        let of_header = matches!(workload, WorkloadConfig::Recorded { header, .. } if recorded_seed(header).is_some());
        let seed_is_from = if specified.0 {
            own()
        } else if of_header {
            SettingSource::Other("header of the trace".into())
        } else {
            SettingSource::Default
        };
        self.or_else(settings, "seed", seed, seed_is_from);
        let replay_of_blis = matches!(workload, WorkloadConfig::Recorded { .. }) && engine.semantics == Semantics::BLIS;
        let usual = if replay_of_blis { "twice the last arrival" } else { "when every request has ended" };
        let end = optional(Some(horizon.0).filter(|_| *horizon != Micros::MAX));
        self.or_else(settings, "horizon", end, if specified.1 { own() } else { SettingSource::Other(usual.into()) });
        self.flag(settings, "warmup", self.config.warmup.as_secs_f64());
    }
}

/// The value, or `null` if there is none.
fn optional(value: Option<impl Display>) -> ExplainedValue {
    value.map_or(ExplainedValue::Null, ExplainedValue::from)
}

fn path(path: Option<&Path>) -> ExplainedValue {
    optional(path.map(Path::display))
}

fn list(numbers: &[f64]) -> ExplainedValue {
    ExplainedValue::Several(numbers.iter().map(f64::to_string).collect())
}

/// Seconds; −1 for no deadline.
fn timeout(timeout: Option<Micros>) -> f64 {
    timeout.map_or(-1.0, Micros::as_secs_f64)
}
