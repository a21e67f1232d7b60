//! The specification of an experiment as data: one optional value per setting, named as the flag of `blis run` (or
//! `blis replay`) that sets it.
//!
//! ```text
//! flags of the command line ─┐
//! --config FILE (YAML)      ─┼─► ExperimentSpec ──► Experiment (checked, defaults filled in) ──► a simulation
//! scenarios of suites, JSON ─┘
//! ```
//!
//! The table in this file is the only list of settings: their names, their types, and the conversion of text to values
//! and back. Each value has a source ([`SettingSource`]), which is not part of the specification: two specifications are
//! equal if their values are, and files hold values only.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;

use blis_config::policy::SettingSource;
use blis_diag::{Diagnostic, name_hint};
use blis_sim::cluster::StartMode;
use blis_sim::scaling::ScalingRules;
use blis_sim::units::Micros;
use blis_workload::trace_v2::ThinkTime;
use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};
use serde::ser::{Serialize, SerializeMap as _, Serializer};

use crate::error::RunError;
use crate::group::GroupSettings;
use crate::node_pool::NodePoolSettings;
use crate::startup::StartupSettings;

use super::choice::{
    ArrivalName, BackpressureName, ChunkEvictionName, ConcurrencyModeName, DeciderName, DtypeName, EncodeDeciderName,
    EngineName, FitnessScaleName, KvCacheDtypeName, OnErrorName, ParityName, QuantizationName, RegretName, RoleName,
    SecondaryTierName, SessionMode, SimulationName, StageOrderName, TieBreakName, TraceFormatName, TraceLevelName,
    TransferLinkName, WorkloadName,
};
use super::parse::{self, FilterList, PolicyParam, ScorerList, TargetList, WeightList};
use super::text;

/// How a setting is written in YAML and JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueForm {
    /// A number, whole or with decimals.
    Number,
    /// A switch, `true` or `false`.
    Switch,
    /// A word, a name, a path.
    Text,
    /// A list of numbers.
    Numbers,
    /// A list of words.
    Texts,
}

/// The policies of a configuration file, in the form of a bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InlinePolicies {
    /// The file, as messages name it.
    pub file: Arc<str>,
    /// A bundle, with the line numbers of the file.
    pub text: Arc<str>,
}

/// A setting: its name, and the conversion of text to its value and back.
#[derive(Debug)]
pub struct SettingKey {
    /// The name of the flag, without dashes in front.
    pub name: &'static str,
    /// Other names of the flag.
    pub aliases: &'static [&'static str],
    /// How files write the value.
    pub form: ValueForm,
    set: fn(&mut ExperimentSpec, &str) -> Result<(), String>,
    get: fn(&ExperimentSpec) -> Option<Vec<String>>,
    clear: fn(&mut ExperimentSpec),
    copy: fn(&mut ExperimentSpec, &ExperimentSpec),
}

macro_rules! settings {
    ($($field:ident: $type:ty = $name:literal $(| $alias:literal)*, $form:ident, $parse:expr, $write:expr;)+) => {
        /// The settings of an experiment; `None` selects the default.
        #[derive(Clone, Default)]
        pub struct ExperimentSpec {
            $(#[doc = concat!("`", $name, "`")] pub $field: Option<$type>,)+
            /// The policies of the file itself, in the form of a bundle.
            pub policies: Option<InlinePolicies>,
            /// Sources of values, by name of the setting. Values that were set without a source are missing.
            sources: BTreeMap<&'static str, SettingSource>,
            /// Sources of the items of lists, likewise.
            item_sources: BTreeMap<&'static str, Vec<SettingSource>>,
        }

        /// All settings, in the order of help.
        pub static KEYS: &[SettingKey] = &[$(SettingKey {
            name: $name,
            aliases: &[$($alias),*],
            form: ValueForm::$form,
            set: |spec, text| ($parse)(&mut spec.$field, text),
            get: |spec| spec.$field.as_ref().map(|value| $write(value)),
            clear: |spec| spec.$field = None,
            copy: |to, from| to.$field.clone_from(&from.$field),
        }),+];

        impl PartialEq for ExperimentSpec {
            fn eq(&self, other: &Self) -> bool {
                $(self.$field == other.$field &&)+ self.policies == other.policies
            }
        }
    };
}

/// A single value: a later one replaces it.
fn one<T>(parse: impl Fn(&str) -> Result<T, String>) -> impl Fn(&mut Option<T>, &str) -> Result<(), String> {
    move |field, text| parse(text).map(|value| *field = Some(value))
}

/// Values of a flag that may be repeated: each one is added.
fn several<T>(parse: impl Fn(&str) -> Result<T, String>) -> impl Fn(&mut Option<Vec<T>>, &str) -> Result<(), String> {
    move |field, text| parse(text).map(|value| field.get_or_insert_default().push(value))
}

/// Values between commas. Files add them one by one.
fn list<T>(parse: impl Fn(&str) -> Result<T, String>) -> impl Fn(&mut Option<Vec<T>>, &str) -> Result<(), String> {
    move |field, text| {
        let values: Result<Vec<T>, String> = text.split(',').map(|part| parse(part.trim())).collect();
        values.map(|values| field.get_or_insert_default().extend(values))
    }
}

settings! {
    model: String = "model", Text, one(parse::name), text::text;
    hardware: String = "hardware" | "gpu", Text, one(parse::name), text::text;
    tp: u32 = "tp" | "tensor-parallel-size", Number, one(parse::parallelism_or_zero), text::text;
    pp: u32 = "pp" | "pipeline-parallel-size", Number, one(parse::parallelism), text::text;
    dp: u32 = "dp" | "data-parallel-size", Number, one(parse::parallelism), text::text;
    enable_expert_parallel: bool = "enable-expert-parallel", Switch, one(parse::switch), text::text;
    enforce_eager: bool = "enforce-eager", Switch, one(parse::switch), text::text;
    dtype: DtypeName = "dtype", Text, one(parse::choice), text::text;
    quantization: QuantizationName = "quantization", Text, one(parse::choice), text::text;
    kv_cache_dtype: KvCacheDtypeName = "kv-cache-dtype", Text, one(parse::choice), text::text;
    moe_comm_backend: String = "moe-comm-backend", Text, one(parse::name), text::text;
    vllm_version: String = "vllm-version", Text, one(parse::name), text::text;
    model_config_folder: PathBuf = "model-config-folder", Text, one(parse::path), text::path;
    hardware_config: PathBuf = "hardware-config", Text, one(parse::path), text::path;
    latency_model: String = "latency-model", Text, one(parse::name), text::text;
    alpha_coeffs: Vec<f64> = "alpha-coeffs", Numbers, list(parse::coefficient), text::texts;
    beta_coeffs: Vec<f64> = "beta-coeffs", Numbers, list(parse::coefficient), text::texts;
    coefficients: PathBuf = "coefficients", Text, one(parse::path), text::path;
    total_kv_blocks: u64 = "total-kv-blocks" | "num-gpu-blocks", Number, one(parse::blocks), text::text;
    block_size_in_tokens: u32 = "block-size-in-tokens" | "block-size", Number, one(parse::count), text::text;
    max_model_len: u32 = "max-model-len", Number, one(parse::count_or_zero), text::text;
    gpu_memory_utilization: f64 = "gpu-memory-utilization", Number, one(parse::share), text::text;
    kv_cpu_blocks: u32 = "kv-cpu-blocks", Number, one(parse::count_or_zero), text::text;
    kv_transfer_bandwidth: f64 = "kv-transfer-bandwidth", Number, one(parse::above_0), text::text;
    kv_transfer_base_latency: Micros = "kv-transfer-base-latency", Number, one(parse::delay), text::micros;
    kv_offload_threshold: f64 = "kv-offload-threshold", Number, one(parse::share_or_zero), text::text;
    kv_offload_config: PathBuf = "kv-offload-config", Text, one(parse::path), text::path;

    max_num_seqs: u32 = "max-num-seqs" | "max-num-running-reqs", Number, one(parse::count), text::text;
    max_num_batched_tokens: u32 = "max-num-batched-tokens" | "max-num-scheduled-tokens", Number, one(parse::count), text::text;
    max_num_active_seqs: u32 = "max-num-active-seqs", Number, one(parse::count), text::text;
    long_prefill_token_threshold: u32 = "long-prefill-token-threshold", Number, one(parse::count_or_zero), text::text;
    long_prefill_token_threshold_adaptive: bool = "long-prefill-token-threshold-adaptive", Switch, one(parse::switch), text::text;
    prefill_schedule_interval: u32 = "prefill-schedule-interval", Number, one(parse::count), text::text;
    watermark: f64 = "watermark", Number, one(parse::part), text::text;
    max_num_queued_reqs: u32 = "max-num-queued-reqs", Number, one(parse::count_or_zero), text::text;
    max_num_queued_tokens: u64 = "max-num-queued-tokens", Number, one(parse::tokens), text::text;
    kv_offloading_size: f64 = "kv-offloading-size", Number, one(parse::from_0), text::text;
    kv_offloading_eviction_policy: ChunkEvictionName = "kv-offloading-eviction-policy", Text, one(parse::choice), text::text;
    kv_cache_policy: String = "kv-cache-policy", Text, one(parse::name), text::text;
    kv_offloading_blocks_per_chunk: u32 = "kv-offloading-blocks-per-chunk", Number, one(parse::count), text::text;
    kv_offloading_store_threshold: u32 = "kv-offloading-store-threshold", Number, one(parse::count_or_zero), text::text;
    kv_offloading_all_tokens: bool = "kv-offloading-all-tokens", Switch, one(parse::switch), text::text;
    kv_offloading_bandwidth: f64 = "kv-offloading-bandwidth", Number, one(parse::above_0), text::text;
    kv_offloading_bandwidth_both: f64 = "kv-offloading-bandwidth-both", Number, one(parse::above_0), text::text;
    kv_offloading_latency: Micros = "kv-offloading-latency", Number, one(parse::delay), text::micros;
    kv_offloading_secondary: SecondaryTierName = "kv-offloading-secondary", Text, one(parse::choice), text::text;
    kv_offloading_secondary_shared: bool = "kv-offloading-secondary-shared", Switch, one(parse::switch), text::text;
    kv_offloading_secondary_bandwidth: f64 = "kv-offloading-secondary-bandwidth", Number, one(parse::above_0), text::text;
    kv_offloading_secondary_latency: Micros = "kv-offloading-secondary-latency", Number, one(parse::delay), text::micros;
    kv_offloading_backpressure: BackpressureName = "kv-offloading-backpressure", Text, one(parse::choice), text::text;
    enable_prefix_caching: bool = "enable-prefix-caching", Switch, one(parse::switch), text::text;
    enable_chunked_prefill: bool = "enable-chunked-prefill", Switch, one(parse::switch), text::text;
    async_scheduling: bool = "async-scheduling", Switch, one(parse::switch), text::text;
    scheduler_reserve_full_isl: bool = "scheduler-reserve-full-isl", Switch, one(parse::switch), text::text;
    enable_lora: bool = "enable-lora", Switch, one(parse::switch), text::text;
    lora_config: PathBuf = "lora-config", Text, one(parse::path), text::path;
    max_loras: u32 = "max-loras" | "lora-adapter-capacity", Number, one(parse::adapters), text::text;
    max_cpu_loras: u32 = "max-cpu-loras", Number, one(parse::adapters), text::text;
    max_lora_rank: u32 = "max-lora-rank", Number, one(parse::lora_rank), text::text;
    lora_load_base_latency_us: f64 = "lora-load-base-latency-us", Number, one(parse::from_0), text::text;
    lora_load_bandwidth_bytes_us: f64 = "lora-load-bandwidth-bytes-us", Number, one(parse::above_0), text::text;
    lora_footprint_bytes_per_rank: f64 = "lora-footprint-bytes-per-rank", Number, one(parse::above_0), text::text;
    scheduler: String = "scheduler", Text, one(parse::name), text::text;
    preemption_policy: String = "preemption-policy", Text, one(parse::name), text::text;
    scheduling_policy: String = "scheduling-policy", Text, one(parse::scheduling_policy), text::text;
    parity: ParityName = "parity", Text, one(parse::choice), text::text;
    engine: EngineName = "engine", Text, one(parse::choice), text::text;
    simulation: SimulationName = "simulation", Text, one(parse::choice), text::text;

    num_instances: u32 = "num-instances", Number, one(parse::instances), text::text;
    admission_latency: Micros = "admission-latency", Number, one(parse::delay), text::micros;
    routing_latency: Micros = "routing-latency", Number, one(parse::delay), text::micros;
    snapshot_refresh_interval: Micros = "snapshot-refresh-interval", Number, one(parse::interval), text::micros;
    cache_signal_delay: Micros = "cache-signal-delay", Number, one(parse::interval), text::micros;
    tie_break: TieBreakName = "tie-break", Text, one(parse::choice), text::text;

    flow_control: bool = "flow-control", Switch, one(parse::switch), text::text;
    saturation_detector: String = "saturation-detector", Text, one(parse::name), text::text;
    queue_depth_threshold: f64 = "queue-depth-threshold", Number, one(parse::above_0), text::text;
    kv_cache_util_threshold: f64 = "kv-cache-util-threshold", Number, one(parse::share), text::text;
    metrics_staleness_threshold: Micros = "metrics-staleness-threshold", Number, one(parse::interval), text::micros;
    max_concurrency: f64 = "max-concurrency", Number, one(parse::above_0), text::text;
    concurrency_mode: ConcurrencyModeName = "concurrency-mode", Text, one(parse::choice), text::text;
    max_token_concurrency: f64 = "max-token-concurrency", Number, one(parse::above_0), text::text;
    usage_limit_policy: String = "usage-limit-policy", Text, one(parse::name), text::text;
    usage_limit_threshold: f64 = "usage-limit-threshold", Number, one(parse::share), text::text;
    fairness_policy: String = "fairness-policy", Text, one(parse::name), text::text;
    fairness_weights: WeightList = "fairness-weights", Text, one(parse::weights), text::text;
    dispatch_order: String = "dispatch-order", Text, one(parse::name), text::text;
    slo_targets: TargetList = "slo-targets", Text, one(parse::targets), text::text;
    request_ttl: Micros = "request-ttl", Number, one(parse::interval), text::micros;
    max_gateway_queue_depth: u32 = "max-gateway-queue-depth", Number, one(parse::count_or_zero), text::text;
    per_band_capacity: u32 = "per-band-capacity", Number, one(parse::count_or_zero), text::text;
    per_band_bytes: u64 = "per-band-bytes", Number, one(parse::bytes), text::text;
    queue_shedding: bool = "queue-shedding", Switch, one(parse::switch), text::text;
    in_flight_eviction: bool = "in-flight-eviction", Switch, one(parse::switch), text::text;
    eviction_policy: String = "eviction-policy", Text, one(parse::name), text::text;
    dispatch_tick_interval: Micros = "dispatch-tick-interval", Number, one(parse::interval_above_0), text::micros;

    role: RoleName = "role", Text, one(parse::choice), text::text;
    prefill_instances: u32 = "prefill-instances", Number, one(parse::instances_or_zero), text::text;
    decode_instances: u32 = "decode-instances", Number, one(parse::instances_or_zero), text::text;
    prefill_decode_instances: u32 = "prefill-decode-instances", Number, one(parse::instances_or_zero), text::text;
    encode_instances: u32 = "encode-instances", Number, one(parse::instances_or_zero), text::text;
    prefill_tp: u32 = "prefill-tp", Number, one(parse::parallelism), text::text;
    decode_tp: u32 = "decode-tp", Number, one(parse::parallelism), text::text;
    prefill_hardware: String = "prefill-hardware", Text, one(parse::name), text::text;
    decode_hardware: String = "decode-hardware", Text, one(parse::name), text::text;
    prefill_latency_model: String = "prefill-latency-model", Text, one(parse::name), text::text;
    decode_latency_model: String = "decode-latency-model", Text, one(parse::name), text::text;
    prefill_max_model_len: u32 = "prefill-max-model-len", Number, one(parse::count), text::text;
    decode_max_model_len: u32 = "decode-max-model-len", Number, one(parse::count), text::text;
    prefill_routing_filters: FilterList = "prefill-routing-filters", Text, one(parse::filters), text::text;
    decode_routing_filters: FilterList = "decode-routing-filters", Text, one(parse::filters), text::text;
    encode_routing_filters: FilterList = "encode-routing-filters", Text, one(parse::filters), text::text;
    prefill_routing_scorers: ScorerList = "prefill-routing-scorers", Text, one(parse::scorers), text::text;
    decode_routing_scorers: ScorerList = "decode-routing-scorers", Text, one(parse::scorers), text::text;
    encode_routing_scorers: ScorerList = "encode-routing-scorers", Text, one(parse::scorers), text::text;
    disaggregation_policy: String = "disaggregation-policy", Text, one(parse::name), text::text;
    pd_decider: DeciderName = "pd-decider", Text, one(parse::choice), text::text;
    pd_prefix_threshold: u32 = "pd-prefix-threshold", Number, one(parse::count_or_zero), text::text;
    pd_ttft_target: Micros = "pd-ttft-target", Number, one(parse::delay), text::micros;
    pd_prefill_rate: f64 = "pd-prefill-rate", Number, one(parse::above_0), text::text;
    pd_stage_order: StageOrderName = "pd-stage-order", Text, one(parse::choice), text::text;
    pd_transfer_link: TransferLinkName = "pd-transfer-link", Text, one(parse::choice), text::text;
    pd_transfer_bandwidth: f64 = "pd-transfer-bandwidth", Number, one(parse::above_0), text::text;
    pd_transfer_base_latency: f64 = "pd-transfer-base-latency", Number, one(parse::from_0), text::text;
    pd_transfer_contention: bool = "pd-transfer-contention", Switch, one(parse::switch), text::text;
    pd_handshake_latency: Micros = "pd-handshake-latency", Number, one(parse::delay), text::micros;
    pd_hop_latency: Micros = "pd-hop-latency", Number, one(parse::delay), text::micros;
    pd_bidirectional: bool = "pd-bidirectional", Switch, one(parse::switch), text::text;
    pd_recompute_threshold: u32 = "pd-recompute-threshold", Number, one(parse::count_or_zero), text::text;
    pd_decoder_kv_ttl: Micros = "pd-decoder-kv-ttl", Number, one(parse::delay), text::micros;
    encode_decider: EncodeDeciderName = "encode-decider", Text, one(parse::choice), text::text;
    encode_rate: f64 = "encode-rate", Number, one(parse::above_0), text::text;
    encode_base_latency: Micros = "encode-base-latency", Number, one(parse::delay), text::micros;

    group: Vec<GroupSettings> = "group", Texts, several(parse::group), text::texts;
    node_pool: Vec<NodePoolSettings> = "node-pool", Texts, several(parse::node_pool), text::texts;
    node_idle: Micros = "node-idle", Number, one(parse::seconds_from_0), text::seconds;
    autoscaler: String = "autoscaler", Text, one(parse::name), text::text;
    min_replicas: u32 = "min-replicas", Number, one(parse::instances_or_zero), text::text;
    max_replicas: u32 = "max-replicas", Number, one(parse::instances), text::text;
    scrape_interval: Micros = "scrape-interval", Number, one(parse::seconds_above_0), text::seconds;
    scaling_interval: Micros = "scaling-interval", Number, one(parse::seconds_above_0), text::seconds;
    scale_up: ScalingRules = "scale-up", Text, one(parse::scaling_rules), text::scaling_rules;
    scale_down: ScalingRules = "scale-down", Text, one(parse::scaling_rules), text::scaling_rules;
    cooldown_period: Micros = "cooldown-period", Number, one(parse::seconds_from_0), text::seconds;
    startup_time: StartupSettings = "startup-time", Text, one(parse::start_times), text::start_times;
    start_mode: StartMode = "start-mode", Text, one(parse::start_mode), text::start_mode;
    drain_policy: String = "drain-policy", Text, one(parse::name), text::text;
    placement_policy: String = "placement-policy", Text, one(parse::name), text::text;

    policy_config: PathBuf = "policy-config", Text, one(parse::path), text::path;
    admission_policy: String = "admission-policy", Text, one(parse::name), text::text;
    token_bucket_capacity: f64 = "token-bucket-capacity", Number, one(parse::above_0), text::text;
    token_bucket_refill_rate: f64 = "token-bucket-refill-rate", Number, one(parse::above_0), text::text;
    routing_policy: String = "routing-policy", Text, one(parse::name), text::text;
    routing_filters: FilterList = "routing-filters", Text, one(parse::filters), text::text;
    routing_scorers: ScorerList = "routing-scorers", Text, one(parse::scorers), text::text;
    lora_scorer_weight: f64 = "lora-scorer-weight", Number, one(parse::above_0), text::text;
    routing_picker: String = "routing-picker", Text, one(parse::name), text::text;
    routing_cache_weight: f64 = "routing-cache-weight", Number, one(parse::from_0), text::text;
    routing_load_weight: f64 = "routing-load-weight", Number, one(parse::from_0), text::text;
    priority_policy: String = "priority-policy", Text, one(parse::name), text::text;
    policy_param: Vec<PolicyParam> = "policy-param", Texts, several(parse::policy_param), text::texts;
    policy_dir: Vec<PathBuf> = "policy-dir", Texts, several(parse::path), text::paths;
    allow_native: bool = "allow-native", Switch, one(parse::switch), text::text;
    allow_large_components: bool = "allow-large-components", Switch, one(parse::switch), text::text;
    on_plugin_error: OnErrorName = "on-plugin-error", Text, one(parse::choice), text::text;

    slo_ttft: TargetList = "slo-ttft", Text, one(parse::targets), text::text;
    slo_itl: TargetList = "slo-itl", Text, one(parse::targets), text::text;
    slo_e2e: TargetList = "slo-e2e", Text, one(parse::targets), text::text;
    fitness_weights: String = "fitness-weights", Text, one(parse::name), text::text;
    fitness_scale: FitnessScaleName = "fitness-scale", Text, one(parse::choice), text::text;
    baseline: String = "baseline", Text, one(parse::name), text::text;
    prices: PathBuf = "prices", Text, one(parse::path), text::path;
    energy: bool = "energy", Switch, one(parse::switch), text::text;
    trace_level: TraceLevelName = "trace-level", Text, one(parse::choice), text::text;
    trace_path: PathBuf = "trace-path", Text, one(parse::path), text::path;
    counterfactual_k: u32 = "counterfactual-k", Number, one(parse::count_or_zero), text::text;
    summarize_trace: bool = "summarize-trace", Switch, one(parse::switch), text::text;
    regret: RegretName = "regret", Text, one(parse::choice), text::text;
    regret_samples: u32 = "regret-samples", Number, one(parse::count), text::text;
    regret_alternatives: u32 = "regret-alternatives", Number, one(parse::count), text::text;
    regret_window: Micros = "regret-window", Number, one(parse::seconds_above_0), text::seconds;
    regret_path: PathBuf = "regret-path", Text, one(parse::path), text::path;

    workload: WorkloadName = "workload", Text, one(parse::choice), text::text;
    workload_spec: PathBuf = "workload-spec", Text, one(parse::path), text::path;
    workload_trace: PathBuf = "workload-trace" | "workload-traces-filepath", Text, one(parse::path), text::path;
    trace_header: PathBuf = "trace-header", Text, one(parse::path), text::path;
    trace_data: PathBuf = "trace-data", Text, one(parse::path), text::path;
    trace_format: TraceFormatName = "trace-format", Text, one(parse::choice), text::text;
    mooncake_block_size: NonZeroU32 = "mooncake-block-size" | "hash-block-size", Number, one(parse::nonzero), text::text;
    skip_bad_lines: bool = "skip-bad-lines", Switch, one(parse::switch), text::text;
    start: Micros = "start", Number, one(parse::seconds_from_0), text::seconds;
    duration: Micros = "duration", Number, one(parse::seconds_above_0), text::seconds;
    time_scale: f64 = "time-scale", Number, one(parse::scale), text::text;
    repeat: NonZeroU32 = "repeat", Number, one(parse::nonzero), text::text;
    spread_bins: Micros = "spread-bins", Number, one(parse::bins), text::milliseconds;
    max_requests: u32 = "max-requests", Number, one(parse::count), text::text;
    session_mode: SessionMode = "session-mode", Text, one(parse::choice), text::text;
    timeout: f64 = "timeout", Number, one(parse::timeout), text::text;
    rate: f64 = "rate", Number, one(parse::rate), text::text;
    concurrency: u32 = "concurrency", Number, one(parse::users), text::text;
    think_time_ms: Micros = "think-time-ms", Number, one(parse::think_time), text::milliseconds;
    think_time_dist: ThinkTime = "think-time-dist", Text, one(parse::think_time_dist), text::think_time;
    arrival_process: ArrivalName = "arrival-process", Text, one(parse::choice), text::text;
    num_requests: u32 = "num-requests" | "max-prompts", Number, one(parse::count_or_zero), text::text;
    prompt_tokens: u32 = "prompt-tokens", Number, one(parse::count), text::text;
    prompt_tokens_stdev: u32 = "prompt-tokens-stdev", Number, one(parse::count_or_zero), text::text;
    prompt_tokens_min: u32 = "prompt-tokens-min", Number, one(parse::count), text::text;
    prompt_tokens_max: u32 = "prompt-tokens-max", Number, one(parse::count), text::text;
    output_tokens: u32 = "output-tokens", Number, one(parse::count), text::text;
    output_tokens_stdev: u32 = "output-tokens-stdev", Number, one(parse::count_or_zero), text::text;
    output_tokens_min: u32 = "output-tokens-min", Number, one(parse::count), text::text;
    output_tokens_max: u32 = "output-tokens-max", Number, one(parse::count), text::text;
    prefix_tokens: u32 = "prefix-tokens", Number, one(parse::count_or_zero), text::text;

    seed: u64 = "seed", Number, one(parse::seed), text::text;
    horizon: Micros = "horizon", Number, one(parse::horizon), text::micros;
    warmup: Micros = "warmup", Number, one(parse::seconds_from_0), text::seconds;
}

impl SettingKey {
    /// The setting with this name, which one of [`KEYS`] has.
    ///
    /// # Panics
    /// If none has it.
    pub(crate) fn named(name: &str) -> &'static Self {
        KEYS.iter().find(|key| key.name == name).unwrap_or_else(|| panic!("no setting is called {name}"))
    }

    /// The setting called `name`, or with that alias; dashes and underscores are equivalent.
    ///
    /// # Errors
    /// A hint with the nearest name.
    pub fn find(name: &str) -> Result<&'static Self, String> {
        let name = name.replace('_', "-");
        let is_called = |key: &&Self| key.name == name || key.aliases.contains(&name.as_str());
        KEYS.iter().find(is_called).ok_or_else(|| {
            let known: Vec<&str> = KEYS.iter().map(|key| key.name).collect();
            match blis_diag::nearest(&name, &known) {
                Some(_) => name_hint(&name, &known),
                None => "a setting is named as the flag of `blis run` that sets it: see `blis run --help`".to_owned(),
            }
        })
    }
}

/// The hint of a value that is refused with that message, which begins with `must` unless it is about a part of the value.
pub(crate) fn value_hint(message: &str) -> String {
    if message.starts_with("must ") { format!("it {message}") } else { message.to_owned() }
}

fn misplaced(source: &SettingSource, name: &str, what: &str, hint: &str) -> RunError {
    match source {
        SettingSource::File(location) => {
            RunError::refused(Diagnostic::new(format!("`{name}` {what}")).at(location.clone()).hint(hint))
        }
        _ => RunError::usage(format_args!("`--{name}` {what}")).hint(hint),
    }
}

impl ExperimentSpec {
    /// Sets `key` to the value of `text`, or adds the value to a list.
    ///
    /// # Errors
    /// What the value must be.
    pub fn set(&mut self, key: &'static SettingKey, text: &str, source: SettingSource) -> Result<(), String> {
        (key.set)(self, text)?;
        if key.form == ValueForm::Texts {
            self.item_sources.entry(key.name).or_default().push(source.clone());
        }
        self.sources.insert(key.name, source);
        Ok(())
    }

    /// Sets `key`, named as its flag, as [`Self::set`] does.
    ///
    /// # Errors
    /// If there is no such setting, or its value is invalid.
    pub fn set_named(&mut self, name: &str, text: &str) -> Result<(), RunError> {
        let key = SettingKey::find(name)
            .map_err(|hint| RunError::usage(format_args!("there is no setting `{name}`")).hint(hint))?;
        self.set(key, text, SettingSource::Other("the specification".into()))
            .map_err(|message| RunError::usage(format_args!("`{name}` is `{text}`")).hint(value_hint(&message)))
    }

    /// These settings, completed by those of `base` where they are not set.
    #[must_use]
    pub fn over(mut self, base: &Self) -> Self {
        for key in KEYS {
            if (key.get)(&self).is_none() && (key.get)(base).is_some() {
                (key.copy)(&mut self, base);
                if let Some(source) = base.sources.get(key.name) {
                    self.sources.insert(key.name, source.clone());
                }
                if let Some(sources) = base.item_sources.get(key.name) {
                    self.item_sources.insert(key.name, sources.clone());
                }
            }
        }
        self.policies = self.policies.or_else(|| base.policies.clone());
        self
    }

    /// Removes the value of `key`.
    pub fn unset(&mut self, key: &'static SettingKey) {
        (key.clear)(self);
        self.sources.remove(key.name);
        self.item_sources.remove(key.name);
    }

    /// The error about the setting `name`, with or without dashes, where it is set.
    pub(crate) fn misplaced(&self, name: &str, what: &str, hint: &str) -> RunError {
        let name = name.trim_start_matches('-');
        misplaced(&self.source(name, SettingSource::Default), name, what, hint)
    }

    /// The error about the item `index` of the list `name`, where it is set.
    pub(crate) fn misplaced_item(&self, name: &str, index: usize, what: &str, hint: &str) -> RunError {
        misplaced(&self.item_source(name, index, SettingSource::Default), name, what, hint)
    }

    /// Whether the setting called `name` is set.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        KEYS.iter().any(|key| key.name == name && (key.get)(self).is_some())
    }

    /// The source of the value of `name`, or `otherwise` if it is not set.
    #[must_use]
    pub fn source(&self, name: &str, otherwise: SettingSource) -> SettingSource {
        self.sources.get(name).cloned().unwrap_or(otherwise)
    }

    /// The source of the item `index` of the list `name`, or that of the list.
    #[must_use]
    pub fn item_source(&self, name: &str, index: usize, otherwise: SettingSource) -> SettingSource {
        let item = self.item_sources.get(name).and_then(|sources| sources.get(index));
        item.cloned().unwrap_or_else(|| self.source(name, otherwise))
    }

    /// The settings that are set, in the order of help, as text; several texts for a list.
    pub fn entries(&self) -> impl Iterator<Item = (&'static SettingKey, Vec<String>)> {
        KEYS.iter().filter_map(|key| Some((key, (key.get)(self)?)))
    }
}

/// Shows the settings that are set.
impl fmt::Debug for ExperimentSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut map = f.debug_map();
        map.entries(self.entries().map(|(key, texts)| (key.name, texts.join(", "))));
        map.entries(self.policies.as_ref().map(|policies| ("policies", &policies.text)));
        map.finish()
    }
}

/// A map of the settings that are set, by name: numbers as numbers, switches as booleans, lists as lists.
impl Serialize for ExperimentSpec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (key, texts) in self.entries() {
            let single = texts.first().map_or("", String::as_str);
            match key.form {
                ValueForm::Number => map.serialize_entry(key.name, &text::NumberText(single))?,
                ValueForm::Switch => map.serialize_entry(key.name, &(single == "true"))?,
                ValueForm::Text => map.serialize_entry(key.name, single)?,
                ValueForm::Numbers => {
                    let numbers: Vec<_> = texts.iter().map(|text| text::NumberText(text)).collect();
                    map.serialize_entry(key.name, &numbers)?;
                }
                ValueForm::Texts => map.serialize_entry(key.name, &texts)?,
            }
        }
        if let Some(InlinePolicies { text, .. }) = &self.policies {
            map.serialize_entry("policies", &**text)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for ExperimentSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct SpecVisitor;

        impl<'de> Visitor<'de> for SpecVisitor {
            type Value = ExperimentSpec;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("settings by name")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ExperimentSpec, A::Error> {
                let mut spec = ExperimentSpec::default();
                while let Some(name) = map.next_key::<String>()? {
                    let text::ScalarTexts(texts) = map.next_value()?;
                    if name == "policies" {
                        let text: Arc<str> = texts.concat().into();
                        spec.policies = Some(InlinePolicies { file: "policies".into(), text });
                        continue;
                    }
                    for text in texts {
                        spec.set_named(&name, &text).map_err(|failure| de::Error::custom(failure.text()))?;
                    }
                }
                Ok(spec)
            }
        }

        deserializer.deserialize_map(SpecVisitor)
    }
}
