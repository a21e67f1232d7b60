//! The settings of an experiment: a row each, the only declaration.
//!
//! From a row follow the field of [`ExperimentSpec`], the flag with its help, the reading and writing of files and JSON, the checks,
//! `--explain-config`, docs/flags.md, the JSON schemas and the typed keys of the Python package. A row is
//!
//! ```text
//! /// Meaning, unit, range [default: a default that depends on other settings]
//! field: type = "name" | "other name", "PLACEHOLDER" KIND, default "value", { column: value, … };
//! ```
//!
//! [`SettingKey`] describes the columns. A setting belongs to a group, which says its heading, its commands, and what all of its
//! settings need.

use std::num::NonZeroU32;
use std::path::PathBuf;

use blis_plugin::{Kind, Surroundings};
use blis_sim::cluster::StartMode;
use blis_sim::engine_version::EngineVersion;
use blis_sim::scaling::ScalingRules;
use blis_sim::units::Micros;
use blis_workload::trace_v2::ThinkTime;

use super::choice::{
    ArrivalName, BackpressureName, ChunkEvictionName, ConcurrencyModeName, DeciderName, DtypeName, EncodeDeciderName,
    EngineName, FitnessScaleName, GdnPrefillName, KvCacheDtypeName, OnErrorName, ParityName, QuantizationName,
    RegretName, RoleName, SecondaryTierName, SessionMode, SimulationName, StageOrderName, TieBreakName,
    TraceFormatName, TraceLevelName, TransferLinkName, WorkloadName,
};
use super::commands::{
    ADVISE, CALIBRATE, EVALUATED, GENERATED, MOCK, OBSERVE, REPLAY, RUN, SIMULATED, SIZE, SWEEP, TRACES,
};
use super::kind::*;
use super::parse::{FilterList, PolicyParam, ScorerList, TargetList, WeightList};
use super::permission::Permission;
use super::rules::{Rule, is, set, that};
use super::settings::{InlinePolicies, SettingGroup, SettingKey, Sources, settings};
use crate::disaggregation::{decider, encode_decider, has_roles};
use crate::group::GroupSettings;
use crate::node_pool::NodePoolSettings;
use crate::startup::StartupSettings;

macro_rules! groups {
    ($($(#[$doc:meta])* $name:ident: $heading:literal, $section:literal, $commands:expr
        $(, needs [$($needs:expr),+])? $(, apart [$($apart:expr),+])? $(, beside $beside:literal)?;)+) => {
        $($(#[$doc])* pub(crate) static $name: SettingGroup = SettingGroup {
            heading: $heading,
            section: $section,
            commands: $commands,
            needs: &[$($($needs),+)?],
            apart: &[$($($apart),+)?],
            beside: concat!($($beside)?),
        };)+
    };
}

groups! {
    MODEL: "Model and hardware", "model-and-hardware", SIMULATED;
    LATENCY: "Latency model", "model-and-hardware", SIMULATED;
    CAPACITY: "Engine (one vLLM-like instance)", "model-and-hardware", SIMULATED;
    MIRROR: "Engine (one vLLM-like instance)", "model-and-hardware", SIMULATED, needs [is("parity", "blis").hint("vLLM's CPU tier is `--kv-offloading-size`; leave it out, or add `--parity blis`")];
    ENGINE: "Engine (one vLLM-like instance)", "engine", SIMULATED;
    NEWER: "Engine (one vLLM-like instance)", "engine", SIMULATED, needs [is("engine", "vllm-0.33").hint(OLDER)], apart [is("parity", "blis").hint(OLDER)];
    LORA: "Engine (one vLLM-like instance)", "engine", SIMULATED, needs [LORA_ON], beside "--enable-lora --workload-spec examples/adapters.yaml --num-requests 300";
    CPU_TIER: "CPU tier of the KV cache (vLLM's OffloadingConnector)", "engine", SIMULATED;
    TIERED: "CPU tier of the KV cache (vLLM's OffloadingConnector)", "engine", SIMULATED, needs [set("kv-offloading-size").hint("give the tier a size, in GiB")], beside "--workload interactive-chat --rate 8 --num-requests 200 --total-kv-blocks 800 --kv-offloading-size 0.5";
    SECONDARY: "CPU tier of the KV cache (vLLM's OffloadingConnector)", "engine", SIMULATED, needs [set("kv-offloading-secondary").hint("say what the tier is: fs, obj or p2p"), set("kv-offloading-size")], beside "--workload interactive-chat --rate 30 --num-requests 1000 --total-kv-blocks 800 --kv-offloading-size 0.3 --kv-offloading-secondary fs";
    CLUSTER: "Cluster", "cluster", SIMULATED;
    GATEWAY: "Flow control", "cluster", SIMULATED;
    /// The settings of the gateway's queue.
    FLOW_CONTROL: "Flow control", "cluster", SIMULATED, needs [set("flow-control")], beside "--flow-control --workload mixed-slo --rate 300 --num-requests 300 --max-num-seqs 4";
    ROLES: "Prefill apart from decode", "cluster", SIMULATED;
    DISAGGREGATION: "Prefill apart from decode", "cluster", SIMULATED, needs [that("instances that prefill apart from others", has_roles).hint("add `--prefill-instances N --decode-instances M`, or roles")], beside "--rate 30 --num-requests 60 --pd-decider prefix-threshold --prefill-instances 1 --decode-instances 1";
    AUTOSCALER: "Autoscaling", "cluster", SIMULATED;
    SCALING: "Autoscaling", "cluster", SIMULATED, needs [set("autoscaler")], beside "--autoscaler saturation --workload-spec examples/autoscaling/ramp.yaml --num-requests 4000 --max-num-seqs 16";
    POLICIES: "Policies", "cluster", SIMULATED;
    WORKLOAD: "Workload", "workload", GENERATED;
    RECORDED: "Workload", "workload", REPLAY | CALIBRATE;
    TRACE: "Workload", "workload", GENERATED, needs [that("`--workload-trace`", |spec| spec.has("workload-trace") || spec.has("trace-header")).hint("name a trace, or leave it out")], beside "--workload-trace examples/cluster-routing/assistants.jsonl --max-requests 60";
    SYNTHETIC: "Generated workload", "workload", GENERATED;
    LENGTHS: "Generated workload", "workload", GENERATED, apart [that("a `--workload` with lengths of its own", has_own_lengths).hint("the preset fixes the lengths; `--workload distribution` takes them from flags"), set("workload-trace").hint(OWN_ARRIVALS), set("trace-header").hint(OWN_ALL), set("workload-spec").hint(SPECIFIED)];
    EVALUATION: "Evaluation", "evaluation", EVALUATED;
    REGRET: "Counterfactual regret", "evaluation", RUN | REPLAY, beside "--rate 30 --num-requests 60 --num-instances 6 --regret outcome";
    SIMULATION: "Simulation", "simulation", SIMULATED & !MOCK;
}

const OLDER: &str = "older versions and BLIS do not have it: leave it out, or leave out `--engine` and `--parity`";
const LORA_ON: Rule =
    that("`--enable-lora` or `--lora-config`", |spec| spec.enable_lora.unwrap_or(spec.lora_config.is_some()));
const ONE_CAPACITY: &str =
    "a number of KV blocks replaces those that fit the memory, and bytes replace a share of it: leave out one of them";
const OWN_FORMATS: &str = "BLIS takes number formats from the model's `config.json` only; leave out one of them";
const OWN_ENGINE: &str = "BLIS simulates an engine of its own: leave out one of them; a page of `--explain-config` names the engine of its run";
const TIMES_IN_FILE: &str = "set both, or neither; tiers of `--kv-offload-config` have their times in the file";
const BY_PREFIX: &str = "tiers hold blocks by which prefixes are found: leave out one of them";
const BY_HASH: &str = "chunks are found in the CPU tier by the hashes of the prefix cache: leave out one of them";
const SLOTS_OF_BLIS: &str =
    "BLIS has adapters if a file declares some and there are slots: `--lora-config`, `--lora-adapter-capacity`";
const OTHER_DETECTOR: &str = "set both; other detectors do not read it";
const SHEDS_IN_BLIS: &str = "llm-d rejects the request that finds the queue full; leave it out, or add `--parity blis`";
const NOT_IN_BLIS: &str = "BLIS does not have it: leave out one of them";
const AS_PARAMETERS: &str = "set parameters as in `--policy-param disaggregation.tokens=16`, and leave out the flag";
const ALL_ELSEWHERE: &str = "then every request is prefilled elsewhere: leave out one of them";
const SAY_WHICH: &str =
    "say which requests are encoded, as in `--encode-instances 1 --encode-decider multimodal`; or leave it out";
const TWO_FILES: &str = "a recorded trace has two files: `--trace-header FILE.yaml --trace-data FILE.csv`";
const FIXED: &str = "a decision trace has a fixed number of equal instances; leave out one of them";
const OWN_ALL: &str = "a trace brings its own arrivals, lengths and deadlines";
const OWN_ARRIVALS: &str = "a trace brings its own arrivals and lengths";
const SPECIFIED: &str = "the specification sets arrivals and lengths";
const WITH_HASHES: &str = "leave it out, or use `--trace-format mooncake`, bailian or vllm-vcr";
const ROLES_APART: Rule = that("instances that prefill apart from others", has_roles)
    .hint("this is not simulated together: leave out one of them");
const ENCODED: Rule =
    that("requests that are encoded", |spec| encode_decider(spec) != EncodeDeciderName::Never).hint(SAY_WHICH);
const TRANSFERS: Rule = that("requests that are prefilled or encoded elsewhere", transfers)
    .of_policy()
    .hint("say which, as in `--pd-decider prefix-threshold`; or leave it out");

/// Whether flags set the parameters of the detector of saturation, and it is one of `names`.
fn detects(spec: &ExperimentSpec, names: &[&str]) -> bool {
    let usual = if spec.parity() == ParityName::Blis { "never" } else { "utilization" };
    names.contains(&spec.saturation_detector.as_deref().unwrap_or(usual))
}

/// Whether requests have the deadlines by which they are ordered.
fn has_targets(spec: &ExperimentSpec) -> bool {
    spec.dispatch_order.as_deref() != Some("slo-deadline") || spec.slo_targets.is_some()
}

/// Whether the policy of usage limits has a limit that a flag sets.
fn has_limit(spec: &ExperimentSpec) -> bool {
    let usual = if spec.parity() == ParityName::Blis { "priority-holdback" } else { "static" };
    ["static", "priority-holdback"].contains(&spec.usage_limit_policy.as_deref().unwrap_or(usual))
}

/// Whether KV blocks or embeddings may be transferred between instances.
fn transfers(spec: &ExperimentSpec) -> bool {
    let encodes = encode_decider(spec) != EncodeDeciderName::Never;
    let all = spec.pd_stage_order() == StageOrderName::PrefillFirst;
    encodes || all || decider(spec) != DeciderName::Never || spec.disaggregation_policy.is_some() || spec.has_bundle()
}

fn is_traced(spec: &ExperimentSpec) -> bool {
    spec.trace_path.is_some() || spec.summarize_trace()
}

fn may_have_hashes(spec: &ExperimentSpec) -> bool {
    spec.trace_format().has_hashes()
}

/// Whether the trace has arrivals of its own.
fn has_arrivals(spec: &ExperimentSpec) -> bool {
    spec.workload_trace.is_some() && !spec.trace_format().may_lack_arrivals()
}

/// Whether later rounds of sessions wait for the rounds before, for a time that can be set.
fn closes_sessions(spec: &ExperimentSpec) -> bool {
    spec.session_mode() == SessionMode::ClosedLoop && spec.trace_header.is_some()
}

fn has_think_time(spec: &ExperimentSpec) -> bool {
    spec.concurrency.is_some() || closes_sessions(spec)
}

/// Whether the named workload has several clients, with arrivals and lengths of their own.
fn has_clients(spec: &ExperimentSpec) -> bool {
    spec.workload.is_some_and(|name| name.preset().is_some())
}

fn has_own_lengths(spec: &ExperimentSpec) -> bool {
    has_clients(spec) || spec.workload.is_some_and(|name| name.generator() != "distribution")
}

settings! {
    in MODEL {
        /// Model, as on Hugging Face; `blis models` lists those built in
        model: String = "model", "NAME" NAME, { commands: SIMULATED | OBSERVE, usual: true, example: "meta-llama/Llama-3.1-8B-Instruct", in_group: "model" };
        /// GPU; `blis hardware` lists those built in [default: H100]
        hardware: String = "hardware" | "gpu", "GPU" NAME, { usual: true, example: "A100-SXM", in_group: "hardware" };
        /// Tensor parallelism, GPUs; 0 for the default [default: the smallest that holds the model]
        tp: u32 = "tp" | "tensor-parallel-size", "N" PARALLELISM_OR_ZERO, { usual: true, in_group: "tp", example: "2" };
        /// Pipeline parallelism, stages (physics model only) [default: 1, or what holds the model where no --tp does]
        pp: u32 = "pp" | "pipeline-parallel-size", "N" PARALLELISM;
        /// Data parallelism of mixture-of-experts models, replicas ≥ 1
        dp: u32 = "dp" | "data-parallel-size", "N" PARALLELISM, default "1", { example: "2", beside: "--model qwen/qwen3-30b-a3b --tp 2 --rate 30 --num-requests 60" };
        /// Expert parallelism (mixture-of-experts, physics models only)
        enable_expert_parallel: bool = "enable-expert-parallel", SWITCH, default "false", { beside: "--model qwen/qwen3-30b-a3b --tp 2 --rate 30 --num-requests 60" };
        /// No CUDA graphs: every kernel is launched by itself (physics model only)
        enforce_eager: bool = "enforce-eager", SWITCH, default "false";
        /// Type of activations, and of weights that are not quantised
        dtype: DtypeName = "dtype", "TYPE" DtypeName::KIND, default "auto", { apart: &[is("parity", "blis").hint(OWN_FORMATS)], example: "float32" };
        /// Method of quantisation: width of the weights, and products in 8 bits [default: the model's]
        quantization: QuantizationName = "quantization", "METHOD" QuantizationName::KIND, { apart: &[is("parity", "blis").hint(OWN_FORMATS)] };
        /// Type of cached keys and values: KV blocks that fit, and bytes that attention reads
        kv_cache_dtype: KvCacheDtypeName = "kv-cache-dtype", "TYPE" KvCacheDtypeName::KIND, default "auto", { apart: &[is("parity", "blis").hint(OWN_FORMATS)], example: "fp8" };
        /// Backend of expert communication (mixture-of-experts, trained-physics only)
        moe_comm_backend: String = "moe-comm-backend", "NAME" NAME, { example: "pplx", beside: "--model qwen/qwen3-30b-a3b --tp 2 --rate 30 --num-requests 60 --dp 2 --enable-expert-parallel --latency-model trained-physics" };
        /// vLLM version of the blackbox coefficients, as v0.8.4 or vllm/vllm-openai:v0.8.4 [default: the model's]
        vllm_version: String = "vllm-version", "VERSION" NAME, { example: "v0.11.0", beside: "--model meta-llama/llama-3.1-8b-instruct --latency-model blackbox" };
        /// Folder with `config.json` or `<model>/config.json` [default: built in]
        model_config_folder: PathBuf = "model-config-folder", "DIR" PATH, { example: "model_configs/phi-4" };
        /// Descriptions of GPUs: a file (YAML or JSON) or a folder of them [default: built in]
        hardware_config: PathBuf = "hardware-config", "PATH" PATH, { example: "tests/settings/hardware.yaml" };
    }
    in LATENCY {
        /// Latency model: step times [default: physics; trained-physics with --parity blis, --moe-comm-backend or 7
        /// betas; blackbox with 3 betas or --vllm-version]
        latency_model: String = "latency-model", "NAME" NAME, { chooses: Some(Kind::Latency), example: "roofline" };
        /// Per-request coefficients of the latency model: three, µs ≥ 0; needs --beta-coeffs [default: trained]
        alpha_coeffs: Vec<f64> = "alpha-coeffs", "A0,A1,…" COEFFICIENTS, { example: "1000,2,3", beside: "--alpha-coeffs 1,2,3 --beta-coeffs 4000,5,6" };
        /// Step-time coefficients of the latency model, each ≥ 0: 3 for blackbox, 7 to 11 for trained-physics, 8 for physics; needs
        /// --alpha-coeffs [default: trained]
        beta_coeffs: Vec<f64> = "beta-coeffs", "B0,B1,…" COEFFICIENTS, { example: "4000,5,60", beside: "--alpha-coeffs 1,2,3 --beta-coeffs 4000,5,6" };
        /// Coefficients of the physics model, as `blis fit` writes them [default: built in]
        coefficients: PathBuf = "coefficients", "FILE" PATH, { example: "coefficients.yaml" };
    }
    in CAPACITY {
        /// KV cache size, blocks ≥ 1 [default: computed from the GPU's memory]
        total_kv_blocks: u64 = "total-kv-blocks" | "num-gpu-blocks" | "num-gpu-blocks-override", "N" BLOCKS, { usual: true, example: "500", beside: "--rate 30 --num-requests 60 --num-instances 2" };
        /// KV block size, tokens ≥ 1
        // vLLM's.
        block_size_in_tokens: u32 = "block-size-in-tokens" | "block-size", "N" COUNT, default "16", { commands: SIMULATED | OBSERVE, in_group: "block-size" };
        /// Maximum input plus output tokens of a request, which have to fit the KV cache; 0 for the model's own limit, as far as it fits; -1
        /// for the longest that fits
        max_model_len: i64 = "max-model-len", "N" MODEL_LEN, default "0", { example: "1500" };
        /// Share of GPU memory for weights and KV cache, above 0, at most 1 [default: 0.92 of vLLM 0.21 and later; 0.9 of versions before
        /// and with --parity blis]
        // vLLM's.
        gpu_memory_utilization: f64 = "gpu-memory-utilization", "SHARE" SHARE, { apart: &[set("total-kv-blocks").hint(ONE_CAPACITY), set("kv-cache-memory-bytes").hint(ONE_CAPACITY)], example: "0.5" };
        /// Memory of each GPU for the KV cache, bytes, instead of --gpu-memory-utilization, whatever the weights leave
        kv_cache_memory_bytes: u64 = "kv-cache-memory-bytes", "BYTES" MEMORY, { apart: &[set("total-kv-blocks").hint(ONE_CAPACITY), is("parity", "blis").hint(NOT_IN_BLIS)], example: "2000000000" };
        /// Windows and chunks hold all tokens of a request, instead of KV groups of their own
        disable_hybrid_kv_cache_manager: bool = "disable-hybrid-kv-cache-manager", SWITCH, default "false", { apart: &[is("parity", "blis").hint(NOT_IN_BLIS)], beside: "--model openai/gpt-oss-20b --rate 30 --num-requests 60" };
        /// Tokens of one content hash, which divides every KV block: prefixes can then be found inside the blocks of hybrid models
        /// [default: the common divisor of the blocks]
        prefix_match_unit: u32 = "prefix-match-unit", "N" COUNT, { apart: &[is("parity", "blis").hint(NOT_IN_BLIS)], example: "64", beside: "--model qwen/qwen3.5-27b --rate 30 --num-requests 60 --max-num-seqs 64 --prefix-tokens 640" };
        /// Windows and states stay in the prefix cache at multiples of so many tokens; 0 only at the end of a prompt and where prompts fork,
        /// -1 at every boundary
        // vLLM's.
        prefix_cache_retention_interval: i64 = "prefix-cache-retention-interval", "N" MODEL_LEN, default "0", { apart: &[is("parity", "blis").hint(NOT_IN_BLIS)], example: "-1", beside: "--model openai/gpt-oss-20b --rate 30 --num-requests 60 --prefix-tokens 640" };
        /// Kernels of the prefill of the gated delta rule (Qwen3-Next, Qwen3.5): they decide about the blocks [default: flashinfer on Hopper
        /// and Blackwell, else triton]
        gdn_prefill_backend: GdnPrefillName = "gdn-prefill-backend", "NAME" GdnPrefillName::KIND, { apart: &[is("parity", "blis").hint(NOT_IN_BLIS)], example: "triton", beside: "--model qwen/qwen3.5-27b --rate 30 --num-requests 60 --max-num-seqs 64" };
    }
    in MIRROR {
        /// BLIS's mirror of KV blocks on the CPU, blocks; 0 for none; with --parity blis
        kv_cpu_blocks: u32 = "kv-cpu-blocks", "N" COUNT_OR_ZERO, default "0", { apart: &[is("enable-prefix-caching", "false").hint(BY_PREFIX)], example: "5000", beside: "--parity blis --workload interactive-chat --rate 3 --num-requests 300 --total-kv-blocks 700" };
        /// Rate of copies from that mirror, tokens per µs, above 0
        kv_transfer_bandwidth: f64 = "kv-transfer-bandwidth", "RATE" ABOVE_0, default "100", { needs: &[set("kv-cpu-blocks").hint(TIMES_IN_FILE)], example: "0.01", beside: "--parity blis --workload interactive-chat --rate 3 --num-requests 300 --total-kv-blocks 700 --kv-cpu-blocks 5000" };
        /// Time of the copy of a block beside that, µs or with a unit
        kv_transfer_base_latency: Micros = "kv-transfer-base-latency", "US" DELAY, default "0", { needs: &[set("kv-cpu-blocks").hint(TIMES_IN_FILE)], beside: "--parity blis --workload interactive-chat --rate 3 --num-requests 300 --total-kv-blocks 700 --kv-cpu-blocks 5000", example: "50ms" };
        /// No effect, as in BLIS, 0 to 1
        kv_offload_threshold: f64 = "kv-offload-threshold", "SHARE" SHARE_OR_ZERO, { needs: &[set("kv-cpu-blocks").hint(TIMES_IN_FILE)], beside: "--parity blis --workload interactive-chat --rate 3 --num-requests 300 --total-kv-blocks 700 --kv-cpu-blocks 5000" };
        /// BLIS's offload chain, CPU and storage tiers of the KV cache, YAML; with --parity blis
        kv_offload_config: PathBuf = "kv-offload-config", "FILE" PATH, { apart: &[is("enable-prefix-caching", "false").hint(BY_PREFIX), set("kv-cpu-blocks").hint("they are two models of the same memory: leave out one of them")], example: "tests/settings/offload.yaml", beside: "--parity blis --workload interactive-chat --rate 3 --num-requests 300 --total-kv-blocks 700" };
    }
    in ENGINE {
        /// Engine: the version of which the scheduler is followed
        engine: EngineName = "engine", "NAME" EngineName::KIND, default "vllm-0.33", { strict: true, apart: &[is("parity", "blis").hint(OWN_ENGINE)] };
        /// Version of vLLM of which the memory of a GPU is computed, 0.10 to 0.33 [default: that of --engine]
        engine_version: EngineVersion = "engine-version", "VERSION" ENGINE_VERSION, { apart: &[is("parity", "blis").hint(OWN_ENGINE)], example: "0.19", beside: "--max-num-seqs 4000 --rate 30 --num-requests 60" };
        /// Maximum batch size, requests ≥ 1 [default: as vLLM's server on that GPU: 1024 from 70 GiB of memory, 256 below
        /// and on A100; 256 with --parity blis]
        max_num_seqs: u32 = "max-num-seqs" | "max-num-running-reqs", "N" COUNT, { usual: true, in_group: "max-num-seqs", example: "16", beside: "--rate 30 --num-requests 60 --num-instances 2" };
        /// Maximum tokens of a step, ≥ 1 [default: as vLLM's server on that GPU: 8192 from 70 GiB of memory, 16384 from 160
        /// GiB, 2048 below and on A100; 2048 with --parity blis]
        max_num_batched_tokens: u32 = "max-num-batched-tokens" | "max-num-scheduled-tokens", "N" COUNT, { usual: true, in_group: "max-num-batched-tokens", example: "300", beside: "--rate 30 --num-requests 60 --num-instances 2" };
        /// Maximum input tokens of one request in a step; 0 for no limit
        long_prefill_token_threshold: u32 = "long-prefill-token-threshold", "N" COUNT_OR_ZERO, default "0", { example: "100", beside: "--rate 30 --num-requests 60 --num-instances 2" };
    }
    in NEWER {
        /// Maximum requests that enter the batch, ≥ 1 [default: --max-num-seqs]
        max_num_active_seqs: u32 = "max-num-active-seqs", "N" COUNT, { example: "16", beside: "--rate 30 --num-requests 60 --num-instances 2" };
        /// Raise that maximum to --max-num-batched-tokens divided by the number of requests
        long_prefill_token_threshold_adaptive: bool = "long-prefill-token-threshold-adaptive", SWITCH, default "false", { needs: &[set("long-prefill-token-threshold").hint("it raises that maximum: set both")], beside: "--rate 30 --num-requests 60 --num-instances 2 --long-prefill-token-threshold 100" };
        /// Prefill tokens only every N-th step while requests decode, N ≥ 1
        prefill_schedule_interval: u32 = "prefill-schedule-interval", "N" COUNT, default "1", { beside: "--rate 30 --num-requests 60 --num-instances 2" };
        /// Share of the KV blocks that stays free when a request enters a batch that is not empty, from 0 on, below 1
        watermark: f64 = "watermark", "SHARE" PART, default "0", { example: "0.1", beside: "--rate 30 --num-requests 60 --num-instances 2 --total-kv-blocks 500" };
        /// Requests in an instance at which its API server returns 503 [default: no limit]
        max_num_queued_reqs: u32 = "max-num-queued-reqs", "N" COUNT_OR_ZERO, { beside: "--rate 30 --num-requests 60 --num-instances 2", example: "20" };
        /// Prompt tokens waiting for their first output token at which the API server returns 503 [default: no limit]
        max_num_queued_tokens: u64 = "max-num-queued-tokens", "N" TOKENS, { example: "900", beside: "--rate 30 --num-requests 60 --num-instances 2" };
    }
    in CPU_TIER {
        /// CPU tier of the KV cache, GiB of host memory for all GPUs of an instance together; 0 for none
        kv_offloading_size: f64 = "kv-offloading-size", "GIB" FROM_0, default "0", { apart: &[is("parity", "blis").hint("it is vLLM's CPU tier, and BLIS has another: leave out one of them"), is("enable-prefix-caching", "false").hint(BY_HASH), ROLES_APART], example: "4" };
        /// What makes room in the CPU tier, what is stored and loaded: a built-in policy, or a plugin [default: that of
        /// --kv-offloading-eviction-policy]
        kv_cache_policy: String = "kv-cache-policy", "NAME" NAME, { chooses: Some(Kind::KvCache), example: "arc", beside: "--workload interactive-chat --rate 8 --num-requests 200 --total-kv-blocks 800 --kv-offloading-size 0.5" };
    }
    in TIERED {
        /// What makes room in the CPU tier
        // vLLM's.
        kv_offloading_eviction_policy: ChunkEvictionName = "kv-offloading-eviction-policy", "NAME" ChunkEvictionName::KIND, default "lru";
        /// KV blocks that are stored and loaded together, ≥ 1
        kv_offloading_blocks_per_chunk: u32 = "kv-offloading-blocks-per-chunk", "N" COUNT, default "1";
        /// Store a chunk when it is offered for the N-th time; 0 and 1 for at once
        kv_offloading_store_threshold: u32 = "kv-offloading-store-threshold", "N" COUNT_OR_ZERO, default "0", { example: "2" };
        /// Store generated tokens, too, not only prompts
        kv_offloading_all_tokens: bool = "kv-offloading-all-tokens", SWITCH, default "false";
        /// Bandwidth of one direction between a GPU and the host while the other is idle, GB/s (H100 with PCIe 5)
        kv_offloading_bandwidth: f64 = "kv-offloading-bandwidth", "GB/S" ABOVE_0, default "50", { example: "0.1", beside: "--workload interactive-chat --rate 8 --num-requests 200 --total-kv-blocks 300 --kv-offloading-size 0.5" };
        /// Bandwidth of both directions together, GB/s [default: 1.668 times that of one]
        kv_offloading_bandwidth_both: f64 = "kv-offloading-bandwidth-both", "GB/S" ABOVE_0, { example: "0.11", beside: "--workload interactive-chat --rate 8 --num-requests 200 --total-kv-blocks 800 --kv-offloading-size 0.5 --kv-offloading-bandwidth 0.1" };
        /// Time before the first byte of a transfer, µs or with a unit (the default is a guess)
        kv_offloading_latency: Micros = "kv-offloading-latency", "US" DELAY, default "30", { example: "20ms" };
        /// Tier below the CPU tier
        kv_offloading_secondary: SecondaryTierName = "kv-offloading-secondary", "NAME" SecondaryTierName::KIND, default "none";
    }
    in SECONDARY {
        /// The replicas of a group share the secondary tier, each over a link of its own; fs is then a file system over the network
        kv_offloading_secondary_shared: bool = "kv-offloading-secondary-shared", SWITCH, default "false";
        /// Bandwidth of the secondary tier in each direction, GB/s [default: fs 5, shared 1.5; obj 1.5; p2p 50]
        kv_offloading_secondary_bandwidth: f64 = "kv-offloading-secondary-bandwidth", "GB/S" ABOVE_0, { example: "0.01" };
        /// Time of an access to the secondary tier, with p2p of a message between replicas, µs or with a unit [default: fs 100, shared 1ms;
        /// obj 5ms; p2p 500; guesses]
        kv_offloading_secondary_latency: Micros = "kv-offloading-secondary-latency", "US" DELAY;
        /// What happens to copies to a secondary tier that is slow
        // vLLM's: copies wait for a slow secondary tier.
        kv_offloading_backpressure: BackpressureName = "kv-offloading-backpressure", "NAME" BackpressureName::KIND, default "none", { example: "drop", beside: "--workload interactive-chat --rate 30 --num-requests 1000 --total-kv-blocks 800 --kv-offloading-size 0.3 --kv-offloading-secondary fs --kv-offloading-secondary-bandwidth 0.05" };
    }
    in ENGINE {
        /// Prefix caching (default; --no-enable-prefix-caching turns it off)
        enable_prefix_caching: bool = "enable-prefix-caching", SWITCH, default "true", { off: "No reuse of KV blocks between requests", beside: "--rate 30 --num-requests 60 --num-instances 2 --prefix-tokens 512" };
        /// Chunked prefill (default; --no-enable-chunked-prefill turns it off)
        enable_chunked_prefill: bool = "enable-chunked-prefill", SWITCH, default "true", { off: "Prefill of every prompt in one step", beside: "--rate 30 --num-requests 60 --num-instances 2 --max-num-batched-tokens 1024 --max-model-len 1024" };
        /// Asynchronous scheduling: a step is planned before the output of the previous one is known (default;
        /// --no-async-scheduling and --parity blis turn it off)
        async_scheduling: bool = "async-scheduling", SWITCH, { off: "Each step is planned after the output of the previous one" };
        /// Schedule a request only if its whole prompt fits the free KV blocks (default; --engine vllm-0.15 and
        /// --parity blis turn it off)
        scheduler_reserve_full_isl: bool = "scheduler-reserve-full-isl", SWITCH, { off: "Schedule a request if its next chunk fits the free KV blocks", beside: "--rate 30 --num-requests 60 --num-instances 2 --total-kv-blocks 500 --max-num-batched-tokens 256" };
        /// Serve LoRA adapters, those that requests name (default with --lora-config)
        enable_lora: bool = "enable-lora", SWITCH, { apart: &[is("parity", "blis").hint(SLOTS_OF_BLIS)], beside: "--workload-spec examples/adapters.yaml --num-requests 300" };
        /// File of LoRA adapters, their ranks, slots and times, YAML [default: every adapter of a request exists, with the
        /// maximum rank]
        lora_config: PathBuf = "lora-config", "FILE" PATH, { example: "tests/settings/lora.yaml", beside: "--workload-spec examples/adapters.yaml --num-requests 300" };
    }
    in LORA {
        /// Slots for LoRA adapters on the GPU, ≥ 1: adapters of running requests [default: 1; none with --parity blis]
        max_loras: u32 = "max-loras" | "lora-adapter-capacity", "N" ADAPTERS;
        /// LoRA adapters in the memory of the host, ≥ 1 [default: --max-loras]
        max_cpu_loras: u32 = "max-cpu-loras", "N" ADAPTERS, { apart: &[is("parity", "blis").hint("BLIS has none: leave it out")], beside: "--enable-lora --workload-spec examples/adapters.yaml --num-requests 300 --max-loras 2" };
        /// Rank for which slots of LoRA adapters are allocated: 1, 8, 16, 32, 64, 128, 256, 320 or 512 [default: 16]
        max_lora_rank: u32 = "max-lora-rank", "RANK" LORA_RANK, { apart: &[is("parity", "blis").hint("BLIS has none: leave it out")], example: "64" };
        /// Time before the first byte of a LoRA adapter is read from disk, µs ≥ 0 [default: 1500]
        lora_load_base_latency_us: f64 = "lora-load-base-latency-us", "US" FROM_0, { example: "50000" };
        /// Bandwidth of LoRA adapters from disk, bytes/µs > 0 [default: 1000; 2000000 with --parity blis]
        lora_load_bandwidth_bytes_us: f64 = "lora-load-bandwidth-bytes-us", "N" ABOVE_0, { example: "50" };
        /// Bytes of a LoRA adapter per rank, > 0 [default: matrices beside attention and dense MLPs of the model; 2000000 with
        /// --parity blis]
        lora_footprint_bytes_per_rank: f64 = "lora-footprint-bytes-per-rank", "N" ABOVE_0, { example: "50000000" };
    }
    in ENGINE {
        /// Scheduling policy: order of the waiting queue [default: fcfs]
        scheduler: String = "scheduler", "NAME" NAME, { chooses: Some(Kind::Scheduling), in_bundle: true, example: "sjf" };
        /// Preemption policy: the victim when KV blocks run out [default: fcfs]
        preemption_policy: String = "preemption-policy", "NAME" NAME, { chooses: Some(Kind::Preemption), in_bundle: true, example: "priority", beside: "--rate 30 --num-requests 60 --num-instances 2 --scheduler priority-fcfs --total-kv-blocks 300 --workload mixed-slo" };
        /// Batching policy: what a step may compute of prompts, and which KV blocks stay free [default: vllm]
        batching_policy: String = "batching-policy", "NAME" NAME, { chooses: Some(Kind::Batching), in_bundle: true, example: "sarathi", apart: &[is("parity", "blis").hint("BLIS has none: leave it out")], beside: "--rate 30 --num-requests 60 --num-instances 2" };
        /// --scheduler and --preemption-policy together, as in vLLM
        scheduling_policy: String = "scheduling-policy", "NAME" SCHEDULING_POLICY, { apart: &[set("scheduler"), set("preemption-policy")], in_bundle: true, example: "priority" };
        /// Reference where vLLM and BLIS differ: the real scheduler or the published simulator
        parity: ParityName = "parity", "NAME" ParityName::KIND, default "vllm";
        /// Simulation of instances: two implementations with equal results
        simulation: SimulationName = "simulation", "NAME" SimulationName::KIND, default "fast", { hidden: true, silent: "both have equal results" };
    }
    in CLUSTER {
        /// Instances behind the router, 1 to 65536
        num_instances: u32 = "num-instances", "N" INSTANCES, default "1", { usual: true, in_group: "instances" };
        /// Delay from arrival to the admission decision, µs or with a unit
        admission_latency: Micros = "admission-latency", "US" DELAY, default "0", { beside: "--rate 30 --num-requests 60 --num-instances 2" };
        /// Delay from admission to the routing decision, µs or with a unit
        routing_latency: Micros = "routing-latency", "US" DELAY, default "0", { beside: "--rate 30 --num-requests 60 --num-instances 2" };
        /// Refresh interval of the load signals (queues, batches, KV use) of instances, µs or with a unit; 0 for
        /// fresh signals at every request
        // llm-d's endpoint picker scrapes them every 50 ms.
        snapshot_refresh_interval: Micros = "snapshot-refresh-interval", "US" INTERVAL, default "50000", { beside: "--rate 300 --num-requests 300 --num-instances 3 --max-num-seqs 8 --prefix-tokens 512 --routing-policy weighted" };
        /// Refresh interval of the router's view of prefix caches, µs or with a unit; 0 for a fresh view at every
        /// request
        // As the load signals.
        cache_signal_delay: Micros = "cache-signal-delay", "US" INTERVAL, default "50000", { beside: "--rate 30 --num-requests 60 --num-instances 4 --total-kv-blocks 1500 --routing-policy weighted --prefix-tokens 512" };
        /// Choice among instances of equal score
        tie_break: TieBreakName = "tie-break", "NAME" TieBreakName::KIND, default "random", { beside: "--rate 30 --num-requests 60 --num-instances 2 --routing-policy least-loaded" };
        /// Further instances that differ from those of the flags, as in hardware=A100-SXM,tp=1,instances=2: model, hardware, tp,
        /// max-num-seqs, max-num-batched-tokens, instances, role, block-size, and with --autoscaler min, max, startup-time, start-mode; may be given several times.
        /// A request that names a model goes to instances of that model
        group: Vec<GroupSettings> = "group", "NAME=VALUE,…" GROUPS, { apart: &[is("parity", "blis")], example: "tp=2" };
        /// Nodes that replicas may be on, as in name=a,hardware=H100,gpus-per-node=8,max=4: also min, provisioning (the time
        /// that a node takes to come, as 5m), and price ($ per node and hour, of all pools or none); may be given several
        /// times. A replica takes the first node with room, one that finds none waits for a further node [default: always
        /// enough GPUs]
        node_pool: Vec<NodePoolSettings> = "node-pool", "NAME=VALUE,…" NODE_POOLS, { example: "name=a,max=4" };
        /// Time without replicas after which a node goes, down to the min of its pool, s or with a unit
        node_idle: Micros = "node-idle", "S" SECONDS_FROM_0, default "600", { needs: &[set("node-pool"), set("autoscaler")], example: "17s", beside: "--autoscaler saturation --workload-spec examples/autoscaling/ramp.yaml --num-requests 4000 --max-num-seqs 16 --num-instances 4 --node-pool name=a,max=4,hardware=H100,gpus-per-node=1" };
    }
    in GATEWAY {
        /// Requests wait at the gateway, in bands by priority and in flows by tenant, while the service is full
        flow_control: bool = "flow-control", SWITCH, default "false";
    }
    in FLOW_CONTROL {
        /// What tells that the service is full: a built-in detector, a script or a component [default: utilization; with
        /// --parity blis: never]
        saturation_detector: String = "saturation-detector", "NAME" NAME, { chooses: Some(Kind::Saturation), example: "concurrency" };
        /// Waiting requests with which an instance is full, > 0, for utilization
        // llm-d's, as the other defaults of flow control.
        queue_depth_threshold: f64 = "queue-depth-threshold", "N" ABOVE_0, default "5", { needs: &[that("`--saturation-detector utilization`", |spec| detects(spec, &["utilization"])).of_policy().hint(OTHER_DETECTOR)] };
        /// Share of used KV blocks with which an instance is full, above 0 and at most 1, for utilization
        kv_cache_util_threshold: f64 = "kv-cache-util-threshold", "X" SHARE, default "0.8", { needs: &[that("`--saturation-detector utilization`", |spec| detects(spec, &["utilization"])).of_policy().hint(OTHER_DETECTOR)], beside: "--flow-control --workload mixed-slo --rate 300 --num-requests 300 --max-num-seqs 4 --max-num-seqs 64 --total-kv-blocks 400" };
        /// Age of the load signals beyond which the service counts as full, µs or with a unit, for utilization; 0 for
        /// never [default: 200ms; with --parity blis: 0]
        metrics_staleness_threshold: Micros = "metrics-staleness-threshold", "US" INTERVAL, { needs: &[that("`--saturation-detector utilization`", |spec| detects(spec, &["utilization"])).of_policy().hint(OTHER_DETECTOR)], example: "20ms" };
        /// Requests in flight with which an instance is full, > 0, for concurrency
        max_concurrency: f64 = "max-concurrency", "N" ABOVE_0, default "100", { apart: &[is("concurrency-mode", "tokens").hint("then `--max-token-concurrency` is the limit")], needs: &[that("`--saturation-detector concurrency`", |spec| detects(spec, &["concurrency"])).of_policy().hint(OTHER_DETECTOR)], example: "20", beside: "--flow-control --workload mixed-slo --rate 300 --num-requests 300 --max-num-seqs 4 --saturation-detector concurrency" };
        /// What counts as in flight, for concurrency
        concurrency_mode: ConcurrencyModeName = "concurrency-mode", "NAME" ConcurrencyModeName::KIND, default "requests", { needs: &[that("`--saturation-detector concurrency`", |spec| detects(spec, &["concurrency"])).of_policy().hint(OTHER_DETECTOR)], beside: "--flow-control --workload mixed-slo --rate 300 --num-requests 300 --max-num-seqs 4 --saturation-detector concurrency" };
        /// Prompt tokens in flight, not cached and before the first token, with which an instance is full, > 0, for
        /// concurrency in tokens and hybrid
        max_token_concurrency: f64 = "max-token-concurrency", "N" ABOVE_0, default "1000000", { apart: &[is("concurrency-mode", "requests").hint("then `--max-concurrency` is the limit: add `--concurrency-mode tokens` or `hybrid`")], needs: &[that("`--saturation-detector concurrency`", |spec| detects(spec, &["concurrency"])).of_policy().hint(OTHER_DETECTOR)], example: "5000", beside: "--flow-control --workload mixed-slo --rate 300 --num-requests 300 --max-num-seqs 4 --saturation-detector concurrency --concurrency-mode tokens" };
        /// Saturation from which on a band waits [default: static]
        usage_limit_policy: String = "usage-limit-policy", "NAME" NAME, { chooses: Some(Kind::Ceilings), example: "soft-reflective" };
        /// The limit of static, or that of the lowest band of priority-holdback, above 0 and at most 1; with --parity
        /// blis, priority-holdback
        usage_limit_threshold: f64 = "usage-limit-threshold", "X" SHARE, default "1", { needs: &[that("`--usage-limit-policy static` or `priority-holdback`", has_limit).of_policy().hint("other policies have parameters of their own: `--policy-param ceilings.NAME=VALUE`")], example: "0.5" };
        /// Tenant that is served next within a band
        fairness_policy: String = "fairness-policy", "NAME" NAME, default "global-strict", { chooses: Some(Kind::Fairness), example: "round-robin", beside: "--flow-control --workload-spec tests/settings/classes.yaml --policy-config tests/settings/bundle.yaml --max-num-seqs 4" };
        /// Weights of tenants for weighted, as in team-a=3,team-b=1; 1 for the others
        fairness_weights: WeightList = "fairness-weights", "TENANT=WEIGHT,…" WEIGHTS, { needs: &[is("fairness-policy", "weighted").hint("set both; other policies have no weights")], example: "small=3", beside: "--flow-control --workload-spec tests/settings/classes.yaml --policy-config tests/settings/bundle.yaml --max-num-seqs 4 --fairness-policy weighted" };
        /// Order of the requests of a tenant; fifo and priority are BLIS's names for fcfs [default: fcfs]
        dispatch_order: String = "dispatch-order", "NAME" NAME, { needs: &[that("`--slo-targets` for `slo-deadline`", has_targets).hint("without targets it is fcfs: set both, or neither")], chooses: Some(Kind::Ordering), example: "edf", beside: "--flow-control --workload-spec tests/settings/classes.yaml --policy-config tests/settings/bundle.yaml --max-num-seqs 4" };
        /// Targets of TTFT for slo-deadline, as in critical=200ms,standard=1s
        slo_targets: TargetList = "slo-targets", "[CLASS=]TIME,…" TARGETS, { needs: &[is("dispatch-order", "slo-deadline").hint("set both; other orders have no targets")], example: "standard=1s,critical=20ms", beside: "--flow-control --workload-spec tests/settings/classes.yaml --policy-config tests/settings/bundle.yaml --max-num-seqs 4 --dispatch-order slo-deadline --slo-targets 2s" };
        /// Time after which a request leaves the queue unserved, µs or with a unit; 0 for never [default: 60s; with
        /// --parity blis: 0]
        request_ttl: Micros = "request-ttl", "US" INTERVAL, { example: "5s" };
        /// Requests that the queue holds at most; 0 for no limit
        max_gateway_queue_depth: u32 = "max-gateway-queue-depth", "N" COUNT_OR_ZERO, default "0", { example: "20" };
        /// Requests that a band holds at most; 0 for no limit [default: 5000; with --parity blis: 0]
        per_band_capacity: u32 = "per-band-capacity", "N" COUNT_OR_ZERO, { example: "20" };
        /// Bytes of the requests in a band at most, 4 for each prompt token; 0 for no limit [default: 1000000000; with
        /// --parity blis: 0]
        per_band_bytes: u64 = "per-band-bytes", "N" BYTES, { example: "20000" };
        /// A request that finds the queue full displaces one of lower priority below 0 (--parity blis only)
        queue_shedding: bool = "queue-shedding", SWITCH, default "false", { needs: &[is("parity", "blis").hint(SHEDS_IN_BLIS)], beside: "--flow-control --workload mixed-slo --rate 300 --num-requests 300 --max-num-seqs 4 --parity blis --saturation-detector concurrency --max-concurrency 4 --max-gateway-queue-depth 20" };
        /// Requests in flight of a priority below 0 are ended to make room for waiting ones of higher priority
        in_flight_eviction: bool = "in-flight-eviction", SWITCH, default "false";
        /// Request in flight that is ended by --in-flight-eviction [default: lowest-priority-newest]
        eviction_policy: String = "eviction-policy", "NAME" NAME, { needs: &[set("in-flight-eviction")], chooses: Some(Kind::Eviction), example: "tests/settings/evict-first.rhai", beside: "--flow-control --workload mixed-slo --rate 300 --num-requests 300 --max-num-seqs 4 --in-flight-eviction" };
        /// Interval between attempts to dispatch a request, > 0, µs or with a unit
        dispatch_tick_interval: Micros = "dispatch-tick-interval", "US" INTERVAL_ABOVE_0, default "1000", { example: "50ms" };
    }
    in ROLES {
        /// Instances that prefill for others; the first ones
        prefill_instances: u32 = "prefill-instances", "N" INSTANCES_OR_ZERO, default "0", { example: "2", beside: "--rate 30 --num-requests 60 --pd-decider prefix-threshold --prefill-instances 1 --decode-instances 1" };
        /// Instances that decode, behind those
        decode_instances: u32 = "decode-instances", "N" INSTANCES_OR_ZERO, default "0", { example: "2", beside: "--rate 30 --num-requests 60 --pd-decider prefix-threshold --prefill-instances 1 --decode-instances 1" };
        /// Instances that do both, behind those
        prefill_decode_instances: u32 = "prefill-decode-instances", "N" INSTANCES_OR_ZERO, default "0", { example: "1", beside: "--rate 30 --num-requests 60 --pd-decider prefix-threshold --prefill-instances 1 --decode-instances 1" };
        /// Instances that encode images, audio and video, behind those
        encode_instances: u32 = "encode-instances", "N" INSTANCES_OR_ZERO, default "0", { example: "1", beside: "--rate 30 --num-requests 60 --pd-decider prefix-threshold --prefill-instances 1 --decode-instances 1" };
        /// What the instances of --num-instances do; those of a --group have role=NAME
        role: RoleName = "role", "NAME" RoleName::KIND, { apart: &[is("parity", "blis").hint(NOT_IN_BLIS)], in_group: "role", example: "prefill", beside: "--rate 30 --num-requests 60 --group role=decode" };
    }
    in DISAGGREGATION {
        /// Tensor-parallel size of --prefill-instances [default: that of --tp]
        prefill_tp: u32 = "prefill-tp", "N" PARALLELISM, { example: "2" };
        /// Tensor-parallel size of --decode-instances [default: that of --tp]
        decode_tp: u32 = "decode-tp", "N" PARALLELISM, { example: "2" };
        /// GPU of --prefill-instances [default: that of --hardware]
        prefill_hardware: String = "prefill-hardware", "GPU" NAME, { example: "A100-SXM" };
        /// GPU of --decode-instances [default: that of --hardware]
        decode_hardware: String = "decode-hardware", "GPU" NAME, { example: "A100-SXM" };
        /// Latency model of --prefill-instances [default: that of --latency-model]
        prefill_latency_model: String = "prefill-latency-model", "NAME" NAME, { example: "roofline" };
        /// Latency model of --decode-instances [default: that of --latency-model]
        decode_latency_model: String = "decode-latency-model", "NAME" NAME, { example: "roofline" };
        /// Maximum input plus output tokens of a request on --prefill-instances [default: that of --max-model-len]
        prefill_max_model_len: u32 = "prefill-max-model-len", "N" COUNT, { example: "1200" };
        /// Maximum input plus output tokens of a request on --decode-instances [default: that of --max-model-len]
        decode_max_model_len: u32 = "decode-max-model-len", "N" COUNT, { example: "1200" };
        /// Filters in front of the scorers of instances that prefill [default: none, or those of the routing policy]
        prefill_routing_filters: FilterList = "prefill-routing-filters", "NAME[:PARAM=VALUE…],…" FILTERS, { apart: &[is("parity", "blis").hint(NOT_IN_BLIS)], example: "concurrency:max-concurrency=1", beside: "--rate 30 --num-requests 60 --pd-decider prefix-threshold --prefill-instances 3 --decode-instances 1" };
        /// Filters in front of the scorers of instances that decode [default: none, or those of the routing policy]
        decode_routing_filters: FilterList = "decode-routing-filters", "NAME[:PARAM=VALUE…],…" FILTERS, { apart: &[is("parity", "blis").hint(NOT_IN_BLIS)], example: "concurrency:max-concurrency=1", beside: "--rate 30 --num-requests 60 --pd-decider prefix-threshold --prefill-instances 1 --decode-instances 3" };
        /// Filters in front of the scorers of instances that encode [default: none, or those of the routing policy]
        encode_routing_filters: FilterList = "encode-routing-filters", "NAME[:PARAM=VALUE…],…" FILTERS, { needs: &[ENCODED], apart: &[is("parity", "blis").hint(NOT_IN_BLIS)], example: "concurrency:max-concurrency=1", beside: "--prefill-instances 1 --decode-instances 1 --workload-spec tests/settings/images.yaml --encode-instances 2 --encode-decider multimodal" };
        /// Scorers by which an instance that prefills is chosen, with weights [default: the routing policy]
        prefill_routing_scorers: ScorerList = "prefill-routing-scorers", "NAME:WEIGHT,…" SCORERS, { example: "queue-depth:1", beside: "--rate 30 --num-requests 60 --pd-decider prefix-threshold --prefill-instances 3 --decode-instances 1" };
        /// Scorers by which an instance that decodes is chosen, with weights [default: the routing policy]
        decode_routing_scorers: ScorerList = "decode-routing-scorers", "NAME:WEIGHT,…" SCORERS, { example: "queue-depth:1", beside: "--rate 30 --num-requests 60 --pd-decider prefix-threshold --prefill-instances 1 --decode-instances 3" };
        /// Scorers by which an instance that encodes is chosen, with weights [default: the routing policy]
        encode_routing_scorers: ScorerList = "encode-routing-scorers", "NAME:WEIGHT,…" SCORERS, { needs: &[ENCODED], apart: &[is("parity", "blis").hint(NOT_IN_BLIS)], example: "queue-depth:1", beside: "--prefill-instances 1 --decode-instances 1 --workload-spec tests/settings/images.yaml --encode-instances 2 --encode-decider multimodal" };
        /// Whether another instance than the one that decodes a request prefills it, and which: a built-in policy, or a plugin
        /// [default: that of --pd-decider]
        disaggregation_policy: String = "disaggregation-policy", "NAME" NAME, { chooses: Some(Kind::Disaggregation), example: "never", beside: "--rate 30 --num-requests 60 --prefill-instances 1 --decode-instances 1" };
        /// Requests that are prefilled on another instance than the one that decodes them [default: prefix-threshold where instances only
        /// prefill, else never; with --parity blis: never]
        pd_decider: DeciderName = "pd-decider", "NAME" DeciderName::KIND, { apart: &[set("disaggregation-policy").hint(AS_PARAMETERS), is("pd-stage-order", "prefill-first").hint(ALL_ELSEWHERE)], example: "always", beside: "--rate 30 --num-requests 60 --pd-decider prefix-threshold --prefill-instances 1 --decode-instances 1 --pd-decider never" };
        /// Tokens of the prompt that are not cached on the decode instance, for prefix-threshold; 0 for never, with --parity blis
        /// as any other number
        // llm-d's and BLIS's threshold.
        pd_prefix_threshold: u32 = "pd-prefix-threshold", "N" COUNT_OR_ZERO, default "16", { needs: &[that("`--pd-decider prefix-threshold`", |spec| decider(spec) == DeciderName::PrefixThreshold).of_policy().hint("set both; other deciders have no threshold")], apart: &[set("disaggregation-policy").hint(AS_PARAMETERS)], example: "600" };
        /// TTFT that requests prefilled elsewhere should have, µs or with a unit, for edpp
        // Ours: no source has one.
        pd_ttft_target: Micros = "pd-ttft-target", "US" DELAY, default "1000000", { needs: &[is("pd-decider", "edpp").hint("set both; other deciders have none")], apart: &[is("parity", "blis").hint(NOT_IN_BLIS), set("disaggregation-policy").hint(AS_PARAMETERS)], example: "50ms", beside: "--rate 30 --num-requests 60 --pd-decider prefix-threshold --prefill-instances 1 --decode-instances 1 --pd-decider edpp" };
        /// Prompt tokens that an instance computes per second, > 0, for edpp
        // `peakPrefillThroughput` in llm-d's guide for gpt-oss-120b on an H200.
        pd_prefill_rate: f64 = "pd-prefill-rate", "RATE" ABOVE_0, default "33821", { needs: &[is("pd-decider", "edpp").hint("set both; other deciders have none")], apart: &[is("parity", "blis").hint(NOT_IN_BLIS), set("disaggregation-policy").hint(AS_PARAMETERS)], example: "3000", beside: "--rate 30 --num-requests 60 --pd-decider prefix-threshold --prefill-instances 1 --decode-instances 1 --pd-decider edpp --pd-ttft-target 100ms" };
        /// Instance that is chosen first
        pd_stage_order: StageOrderName = "pd-stage-order", "NAME" StageOrderName::KIND, default "decode-first", { apart: &[is("parity", "blis").hint(NOT_IN_BLIS)], beside: "--rate 30 --num-requests 60 --prompt-tokens 8 --prompt-tokens-stdev 0 --prefill-instances 1 --decode-instances 1" };
        /// Network between the instances: bandwidth of each GPU
        pd_transfer_link: TransferLinkName = "pd-transfer-link", "NAME" TransferLinkName::KIND, default "rdma", { needs: &[TRANSFERS], apart: &[is("parity", "blis").hint(NOT_IN_BLIS), set("pd-transfer-bandwidth")] };
        /// Bandwidth of the network card of each GPU, GB/s, above 0; with --parity blis of a transfer [default: that of
        /// --pd-transfer-link; with --parity blis: 25]
        pd_transfer_bandwidth: f64 = "pd-transfer-bandwidth", "RATE" ABOVE_0, { needs: &[TRANSFERS] };
        /// Time before the first byte of a transfer, ms [default: 2; with --parity blis: 0.05]
        pd_transfer_base_latency: f64 = "pd-transfer-base-latency", "MS" FROM_0, { needs: &[TRANSFERS], example: "50" };
        /// Transfers share the bandwidth, by their number when they begin (--parity blis only: otherwise they always share network
        /// cards)
        pd_transfer_contention: bool = "pd-transfer-contention", SWITCH, default "false", { needs: &[is("parity", "blis").hint("transfers always share network cards; leave it out, or add `--parity blis`")], beside: "--rate 30 --num-requests 60 --pd-decider prefix-threshold --prefill-instances 1 --decode-instances 1 --parity blis --rate 300 --num-requests 600 --pd-transfer-bandwidth 1" };
        /// Time of the first transfer between two instances beside that, µs or with a unit
        // A guess, since sources say some hundred ms.
        pd_handshake_latency: Micros = "pd-handshake-latency", "US" DELAY, default "200000", { needs: &[TRANSFERS], apart: &[is("parity", "blis").hint(NOT_IN_BLIS)] };
        /// Time of a request or response between the sidecar and the instance that prefills or encodes, µs or with a unit
        // A guess: by HTTP inside a data centre.
        pd_hop_latency: Micros = "pd-hop-latency", "US" DELAY, default "1000", { apart: &[is("parity", "blis").hint(NOT_IN_BLIS)], example: "20ms" };
        /// Decode instances keep KV blocks of completed requests, and the prefill of the next turn of a session reads them instead of
        /// computing them, as vLLM's bidirectional_kv_xfer
        pd_bidirectional: bool = "pd-bidirectional", SWITCH, default "false", { apart: &[is("parity", "blis").hint(NOT_IN_BLIS)], beside: "--rate 30 --num-requests 60 --pd-decider prefix-threshold --prefill-instances 1 --decode-instances 1 --workload interactive-chat --num-requests 300" };
        /// Fewest tokens that a prefill reads from a decode instance, with --pd-bidirectional [default: 64, as vLLM's
        /// kv_recompute_threshold]
        // vLLM's `kv_recompute_threshold`.
        pd_recompute_threshold: u32 = "pd-recompute-threshold", "N" COUNT_OR_ZERO, default "64", { needs: &[set("pd-bidirectional")], example: "100000", beside: "--rate 30 --num-requests 60 --pd-decider prefix-threshold --prefill-instances 1 --decode-instances 1 --pd-decider always --workload interactive-chat --num-requests 300 --pd-bidirectional" };
        /// Time for which a decode instance keeps the blocks of a request that no other turn takes, µs or with a unit, with
        /// --pd-bidirectional [default: 480s, as vLLM's decoder_kv_blocks_ttl]
        // vLLM's `decoder_kv_blocks_ttl`.
        pd_decoder_kv_ttl: Micros = "pd-decoder-kv-ttl", "US" DELAY, default "480000000", { needs: &[set("pd-bidirectional")], example: "17ms", beside: "--rate 30 --num-requests 60 --pd-decider prefix-threshold --prefill-instances 1 --decode-instances 1 --workload interactive-chat --num-requests 300 --pd-bidirectional" };
        /// Requests that are encoded on --encode-instances first [default: multimodal where there are any, else never; with --parity
        /// blis: never]
        encode_decider: EncodeDeciderName = "encode-decider", "NAME" EncodeDeciderName::KIND, { example: "never", beside: "--prefill-instances 1 --decode-instances 1 --workload-spec tests/settings/images.yaml --encode-instances 2" };
        /// Tokens of images, audio and video that an instance encodes per second, above 0 [default: an estimate for the vision encoder of
        /// Qwen2.5-VL: GPUs × peak × mfu_prefill ÷ 5.5e9 operations, 80959 on an H100]
        encode_rate: f64 = "encode-rate", "RATE" ABOVE_0, { needs: &[ENCODED], apart: &[is("parity", "blis").hint(NOT_IN_BLIS)], example: "1000", beside: "--prefill-instances 1 --decode-instances 1 --workload-spec tests/settings/images.yaml --encode-instances 2 --encode-decider multimodal" };
        /// Time of each batch of an instance that encodes beside that, µs or with a unit
        // A guess: some 20 kernels in each of 32 blocks, launched one by one at 7 µs.
        encode_base_latency: Micros = "encode-base-latency", "US" DELAY, default "5000", { needs: &[ENCODED], apart: &[is("parity", "blis").hint(NOT_IN_BLIS)], beside: "--prefill-instances 1 --decode-instances 1 --workload-spec tests/settings/images.yaml --encode-instances 2 --encode-decider multimodal" };
    }
    in AUTOSCALER {
        /// Scaling policy: the number of replicas follows the load; --num-instances is the number at the start. Its
        /// parameters: --policy-param scaling.NAME=VALUE [default: a fixed number of instances]
        autoscaler: String = "autoscaler", "NAME" NAME, { chooses: Some(Kind::Scaling), usual: true, example: "saturation", beside: "--workload-spec examples/autoscaling/ramp.yaml --num-requests 4000 --max-num-seqs 16" };
    }
    in SCALING {
        /// Fewest replicas, 0 to 65536; 0 needs --flow-control
        min_replicas: u32 = "min-replicas", "N" INSTANCES_OR_ZERO, default "1", { apart: &[is("autoscaler", "blis-v2").hint("BLIS's loop has no such rule")], in_group: "min", example: "2", beside: "--autoscaler saturation --workload-spec examples/autoscaling/ramp.yaml --num-requests 4000 --max-num-seqs 16 --num-instances 2" };
        /// Most replicas, 1 to 65536
        // llm-d's guide keda-epp.
        max_replicas: u32 = "max-replicas", "N" INSTANCES, default "8", { apart: &[is("autoscaler", "blis-v2").hint("BLIS's loop has no such rule")], in_group: "max", example: "2" };
        /// Time between two scrapes of the metrics that the autoscaler reads, s or with a unit
        // As usual for Prometheus with llm-d.
        scrape_interval: Micros = "scrape-interval", "S" SECONDS_ABOVE_0, default "15", { apart: &[is("autoscaler", "blis-v2").hint("BLIS's loop has no such rule")], example: "40" };
        /// Time between two decisions of the autoscaler, s or with a unit
        // That of Kubernetes' HorizontalPodAutoscaler.
        scaling_interval: Micros = "scaling-interval", "S" SECONDS_ABOVE_0, default "15";
        /// Rules for more replicas, as in window=30s,100%/60s,4/60s: the smallest number that the policy asked for in the
        /// window counts, and in 60 s the larger of 100 % and 4 replicas are added (select=min: the smaller); or disabled
        /// [default: those of the policy]
        scale_up: ScalingRules = "scale-up", "RULES" SCALING_RULES, { apart: &[is("autoscaler", "blis-v2").hint("BLIS's loop has no such rule")], example: "window=30s,100%/60s" };
        /// Rules for fewer replicas, likewise: the largest number of the window counts [default: those of the policy]
        scale_down: ScalingRules = "scale-down", "RULES" SCALING_RULES, { apart: &[is("autoscaler", "blis-v2").hint("BLIS's loop has no such rule")], example: "disabled" };
        /// Time without requests after which a service with --min-replicas 0 goes to zero, s or with a unit [default: 300]
        cooldown_period: Micros = "cooldown-period", "S" SECONDS_FROM_0, { needs: &[is("min-replicas", "0").hint("only a service that may go to zero has one: set both")], apart: &[is("autoscaler", "blis-v2").hint("BLIS's loop has no such rule")], example: "17ms", beside: "--autoscaler queue --rate 60 --num-requests 3000 --max-num-seqs 16 --flow-control --min-replicas 0" };
        /// Time that a replica takes to start, as 135s, or phases, as in process=14s,weights=30s,compile=35s,warm-up=11s;
        /// wake=3s for one that sleeps; weights-bandwidth=2GB/s for the weights of a GPU over a bandwidth; gaussian(35s,5s) for a
        /// random time, with mean and standard deviation [default: process=14s,weights=30.3s,compile=35s,warm-up=11.4s,wake=3s]
        startup_time: StartupSettings = "startup-time", "TIME|PHASE=TIME,…" START_TIMES, { example: "20s", in_group: "startup-time" };
        /// What is ready before a replica starts: cold (nothing), warm (the process), or hot:N (N replicas sleep in host
        /// memory, without a GPU)
        start_mode: StartMode = "start-mode", "MODE" START_MODE, default "cold", { apart: &[is("autoscaler", "blis-v2").hint("BLIS's loop has no such rule")], example: "warm", in_group: "start-mode" };
        /// Replica that is removed first [default: newest]
        drain_policy: String = "drain-policy", "NAME" NAME, { apart: &[is("scale-down", "disabled").hint("no replica is removed: leave out one of them"), is("autoscaler", "blis-v2").hint("BLIS's loop has no such rule")], chooses: Some(Kind::Drain), example: "emptiest", beside: "--autoscaler saturation --workload-spec examples/autoscaling/ramp.yaml --num-requests 4000 --max-num-seqs 16 --num-instances 4" };
        /// Node of a replica that starts, with node pools [default: first-fit]
        placement_policy: String = "placement-policy", "NAME" NAME, { needs: &[set("node-pool").hint("it has no effect without node pools: add `--node-pool`, or leave it out")], chooses: Some(Kind::Placement), example: "tests/settings/wait.rhai", beside: "--autoscaler saturation --workload-spec examples/autoscaling/ramp.yaml --num-requests 4000 --max-num-seqs 16 --node-pool name=a,hardware=H100,max=4" };
    }
    in POLICIES {
        /// Policy bundle, YAML; flags win over it
        policy_config: PathBuf = "policy-config", "FILE" PATH, { in_bundle: true, usual: true, example: "policies/slo-tiers.yaml", beside: "--rate 30 --num-requests 60 --num-instances 2" };
        /// Admission policy [default: always-admit]
        admission_policy: String = "admission-policy", "NAME" NAME, { chooses: Some(Kind::Admission), in_bundle: true, example: "token-bucket", beside: "--rate 30 --num-requests 60 --num-instances 2" };
        /// Capacity of token-bucket, tokens > 0 [default: 10000]
        token_bucket_capacity: f64 = "token-bucket-capacity", "N" ABOVE_0, { parameter: Some("token_bucket_capacity"), in_bundle: true, example: "900", beside: "--rate 30 --num-requests 60 --num-instances 2 --admission-policy token-bucket" };
        /// Refill rate of token-bucket, tokens per second > 0 [default: 1000]
        token_bucket_refill_rate: f64 = "token-bucket-refill-rate", "R" ABOVE_0, { parameter: Some("token_bucket_refill_rate"), in_bundle: true, beside: "--rate 30 --num-requests 60 --num-instances 2 --admission-policy token-bucket" };
        /// Routing policy: a built-in policy, a script or a component [default: round-robin]
        routing_policy: String = "routing-policy", "NAME" NAME, { chooses: Some(Kind::Routing), in_bundle: true, usual: true, example: "least-loaded", beside: "--rate 30 --num-requests 60 --num-instances 2" };
        /// Filters in front of the scorers of weighted, in this order, with values of their parameters,
        /// as in prefix-cache-affinity:affinity=0.7,saturation: prefix-cache-affinity (affinity,
        /// peak-prefill, max-penalty-ms), saturation (queue-depth, kv-utilization, headroom), concurrency
        /// (max-concurrency, max-tokens, headroom, mode), or a script or component with a filter
        routing_filters: FilterList = "routing-filters", "NAME[:PARAMETER=VALUE…],…" FILTERS, { routes: true, in_bundle: true, example: "concurrency:max-concurrency=4", beside: "--rate 300 --num-requests 300 --num-instances 4 --routing-policy weighted" };
        /// Scorers of weighted, each with a weight above 0: queue-depth, kv-utilization,
        /// load-balance, active-requests, running-requests, load-aware, vllm-dp, prefix-affinity,
        /// precise-prefix-cache, no-hit-lru, token-load, lora-affinity, precise-prefix-cache-share, random,
        /// session-affinity, predicted-latency, or a script or component with scores, as in mine.rhai:2
        /// [default: precise-prefix-cache:2,queue-depth:1,kv-utilization:1]
        routing_scorers: ScorerList = "routing-scorers", "NAME:WEIGHT,…" SCORERS, { routes: true, in_bundle: true, example: "queue-depth:1", beside: "--rate 300 --num-requests 300 --num-instances 3 --max-num-seqs 8 --prefix-tokens 512 --routing-policy weighted" };
        /// Weight of the scorer lora-affinity of weighted, > 0, added to its other scorers
        lora_scorer_weight: f64 = "lora-scorer-weight", "WEIGHT" ABOVE_0, { needs: &[LORA_ON], in_bundle: true, example: "5", beside: "--enable-lora --workload-spec examples/adapters.yaml --num-requests 300 --num-instances 2 --routing-policy weighted" };
        /// Script or component that chooses among the scored instances of weighted [default: the best score]
        routing_picker: String = "routing-picker", "NAME" NAME, { routes: true, in_bundle: true, example: "tests/settings/picker.rhai", beside: "--rate 300 --num-requests 300 --num-instances 3 --max-num-seqs 8 --prefix-tokens 512 --routing-policy weighted" };
        /// Weight of free KV blocks, in place of scorers, ≥ 0
        routing_cache_weight: f64 = "routing-cache-weight", "WEIGHT" FROM_0, { apart: &[set("routing-scorers"), set("routing-filters"), set("routing-picker")], routes: true, parameter: Some("cache_weight"), in_bundle: true, beside: "--rate 300 --num-requests 300 --num-instances 3 --max-num-seqs 8 --prefix-tokens 512 --routing-policy weighted" };
        /// Weight of a low load, in place of scorers, ≥ 0
        routing_load_weight: f64 = "routing-load-weight", "WEIGHT" FROM_0, { apart: &[set("routing-scorers"), set("routing-filters"), set("routing-picker")], routes: true, parameter: Some("load_weight"), in_bundle: true, beside: "--rate 300 --num-requests 300 --num-instances 3 --max-num-seqs 8 --prefix-tokens 512 --routing-policy weighted" };
        /// Priority policy, for schedulers that use priorities [default: class]
        priority_policy: String = "priority-policy", "NAME" NAME, { chooses: Some(Kind::Priority), in_bundle: true, example: "constant", beside: "--rate 30 --num-requests 60 --num-instances 2 --scheduler priority-fcfs --total-kv-blocks 300 --workload mixed-slo" };
        /// Parameter of a policy, as routing.queue-depth=2; may be given several times. `blis plugin list` shows all
        policy_param: Vec<PolicyParam> = "policy-param", "KIND.NAME=VALUE" POLICY_PARAMS, { usual: true, example: "routing.queue-depth=0.01", beside: "--rate 300 --num-requests 300 --num-instances 3 --max-num-seqs 8 --prefix-tokens 512 --routing-policy weighted" };
        /// Folder with policies, searched before ./policies and the built-in ones; may be given several times
        policy_dir: Vec<PathBuf> = "policy-dir", "FOLDER" PATHS, { silent: "a folder finds policies, and chooses none" };
        /// Allow native libraries as policies: they run unsandboxed, with your rights
        allow_native: bool = "allow-native", SWITCH, default "false", { permission: Some(Permission::NativeCode), silent: "it only allows" };
        /// Allow components as large as those with an interpreter inside (Python, JavaScript): compiling one may take a minute
        allow_large_components: bool = "allow-large-components", SWITCH, default "false", { permission: Some(Permission::LargeComponents), silent: "it only allows" };
        /// Behaviour after the failure of a plugin during a run
        on_plugin_error: OnErrorName = "on-plugin-error", "NAME" OnErrorName::KIND, default "fail", { suites: false, silent: "it shows when a plugin fails" };
    }
    in WORKLOAD {
        /// Workload: a generated one, or traces [default: distribution; traces with --workload-trace]
        workload: WorkloadName = "workload", "NAME" WorkloadName::KIND, { apart: &[set("workload-spec"), set("trace-header").hint(OWN_ALL)], usual: true, example: "chatbot" };
        /// Workload specification, YAML (clients, cohorts, sessions, changing rates), or a ServeGen folder. --seed,
        /// --horizon, --num-requests and --timeout win over it
        workload_spec: PathBuf = "workload-spec", "FILE" PATH, { apart: &[set("workload-trace"), set("trace-header").hint(OWN_ALL)], usual: true, example: "examples/workload-spec/mixed.yaml" };
        /// Request trace, plain or gzip-compressed; - for standard input
        workload_trace: PathBuf = "workload-trace" | "workload-traces-filepath", "FILE" PATH, { apart: &[set("trace-header").hint(OWN_ALL)], commands: GENERATED | CALIBRATE, usual: true, example: "examples/cluster-routing/assistants.jsonl" };
    }
    in RECORDED {
        /// Header of the trace, YAML
        trace_header: PathBuf = "trace-header", "FILE" PATH, { needs: &[set("trace-data").hint(TWO_FILES)], commands: REPLAY | CALIBRATE, usual: true, example: "tests/settings/sessions.yaml", beside: "--trace-data tests/settings/sessions.csv" };
        /// Requests of the trace, CSV, plain or gzip-compressed
        trace_data: PathBuf = "trace-data", "FILE" PATH, { needs: &[set("trace-header").hint(TWO_FILES)], commands: REPLAY | CALIBRATE, usual: true, example: "tests/settings/sessions.csv", beside: "--trace-header tests/settings/sessions.yaml" };
    }
    in TRACE {
        /// Format of the trace
        trace_format: TraceFormatName = "trace-format", "NAME" TraceFormatName::KIND, default "auto", { apart: &[set("trace-header").hint(OWN_ALL)], commands: GENERATED | CALIBRATE | TRACES, silent: "it is the one that is found, or the file is refused" };
        /// Tokens of a hash id of the trace, ≥ 1 [default: mooncake 512; bailian 16; vllm-vcr as recorded]
        mooncake_block_size: NonZeroU32 = "mooncake-block-size" | "hash-block-size", "N" NONZERO, { needs: &[that("a trace with hashes", may_have_hashes).hint(WITH_HASHES)], apart: &[set("trace-header").hint(OWN_ALL)], commands: GENERATED | TRACES, example: "600", beside: "--workload-trace tests/settings/coarse.jsonl" };
        /// Leave out broken lines of a trace and count them, instead of stopping at the first
        skip_bad_lines: bool = "skip-bad-lines", SWITCH, default "false", { commands: GENERATED | REPLAY | CALIBRATE | TRACES, beside: "--workload-trace tests/settings/broken.jsonl" };
        /// Start within the trace, s or with a unit: earlier requests are left out, and time 0 is there
        start: Micros = "start", "S" SECONDS_FROM_0, default "0", { apart: &[is("session-mode", "closed-loop").hint("later rounds follow from outputs, not from recorded times")], commands: GENERATED | REPLAY | CALIBRATE | TRACES, example: "100ms" };
        /// Duration from --start on, s > 0 or with a unit [default: to the end of the trace]
        duration: Micros = "duration", "S" SECONDS_ABOVE_0, { apart: &[is("session-mode", "closed-loop").hint("later rounds follow from outputs, not from recorded times")], commands: GENERATED | REPLAY | CALIBRATE | TRACES, example: "4s" };
        /// Factor of all arrival times of the trace, 0.000001 to 1000000: 2 halves the rate
        time_scale: f64 = "time-scale", "X" SCALE, default "1", { apart: &[is("session-mode", "closed-loop").hint("later rounds follow from outputs, not from recorded times")], commands: GENERATED | REPLAY | CALIBRATE | TRACES };
        /// Passes over the trace, one after the other. Shared prefixes are shared across passes; sessions are new
        /// in every pass
        repeat: NonZeroU32 = "repeat", "N" NONZERO, default "1", { apart: &[is("session-mode", "closed-loop").hint("later rounds follow from outputs, not from recorded times")], commands: GENERATED | REPLAY | CALIBRATE | TRACES, beside: "--workload-trace tests/settings/coarse.jsonl" };
        /// Spread requests with equal timestamps evenly over this time, ms or with a unit, never past the next
        /// timestamp: for traces with coarse clocks, as 3000 for mooncake
        spread_bins: Micros = "spread-bins", "MS" BINS, { apart: &[is("session-mode", "closed-loop").hint("later rounds follow from outputs, not from recorded times")], commands: GENERATED | REPLAY | CALIBRATE | TRACES, beside: "--workload-trace tests/settings/coarse.jsonl" };
        /// Maximum requests of the trace, ≥ 1 [default: all]
        max_requests: u32 = "max-requests", "N" COUNT, { commands: GENERATED | REPLAY | CALIBRATE | TRACES, example: "5" };
        /// Arrival of the later rounds of recorded sessions (closed-loop: mooncake and trace-v2)
        session_mode: SessionMode = "session-mode", "MODE" SessionMode::KIND, default "fixed", { commands: GENERATED | REPLAY, beside: "--workload-trace host/fuzz/seeds/mooncake/three.jsonl" };
    }
    in WORKLOAD {
        /// Deadline of requests after their arrival, s or with a unit; negative for none [default: 300; none with
        /// a trace; that of the specification]
        timeout: f64 = "timeout" | "request-timeout", "S" TIMEOUT, { apart: &[set("trace-header").hint(OWN_ALL)], example: "2" };
    }
    in SYNTHETIC {
        /// Request rate, requests per second, 0.000001 to 1000000; for a trace, only if it has no arrivals [default: 1]
        rate: f64 = "rate" | "request-rate", "R" RATE, { apart: &[that("`--workload-trace` in a format with arrivals", has_arrivals).hint(OWN_ARRIVALS), set("trace-header").hint(OWN_ALL), set("workload-spec").hint(SPECIFIED), set("concurrency")], commands: GENERATED | TRACES, usual: true };
        /// Closed loop in place of --rate: users with one request at a time each
        concurrency: u32 = "concurrency", "N" USERS, { apart: &[set("workload-trace").hint(OWN_ARRIVALS), set("trace-header").hint(OWN_ALL), set("workload-spec").hint(SPECIFIED), that("a `--workload` of several clients", has_clients).hint("it has its own arrivals and lengths; `--rate` and `--num-requests` set how many")], usual: true, beside: "--num-requests 20" };
        /// Think time, ms ≥ 0 or with a unit: of users (--concurrency), or with --session-mode closed-loop from the end of a request
        /// to the next one of its session [default: 0; column think_time_us of the trace, else the time between recorded arrivals]
        think_time_ms: Micros = "think-time-ms", "MS" THINK_TIME, { needs: &[that("`--concurrency`, or `--session-mode closed-loop` with `--trace-header`", has_think_time).hint("otherwise no request waits for another")], apart: &[set("think-time-dist")], commands: GENERATED | REPLAY, beside: "--concurrency 3 --num-requests 20" };
        /// Random think time, as lognormal:mu=2.0,sigma=0.6,min=3s,max=30s: exp(mu + sigma Z) seconds
        /// within bounds
        think_time_dist: ThinkTime = "think-time-dist", "DISTRIBUTION" THINK_TIME_DIST, { needs: &[that("`--session-mode closed-loop` with `--trace-header`", closes_sessions).hint("otherwise every round arrives as recorded")], commands: REPLAY, example: "lognormal:mu=2,sigma=0.5,max=3s", beside: "--trace-header tests/settings/sessions.yaml --trace-data tests/settings/sessions.csv --session-mode closed-loop" };
        /// Inter-arrival times [default: poisson; with --parity blis: constant]
        arrival_process: ArrivalName = "arrival-process", "NAME" ArrivalName::KIND, { needs: &[that("`--rate` with `--workload-trace`", |spec| !spec.has("workload-trace") || spec.has("rate")).hint("both are for files without arrivals")], apart: &[that("`--workload-trace` in a format with arrivals", has_arrivals).hint(OWN_ARRIVALS), set("trace-header").hint(OWN_ALL), set("workload-spec").hint(SPECIFIED), set("concurrency").hint("users send their next request after the output of the last one"), that("a `--workload` of several clients", has_clients).hint("it has its own arrivals and lengths; `--rate` and `--num-requests` set how many")] };
        /// Number of requests; 0 for those that arrive before --horizon [default: 100; 0 in closed
        /// loop with a horizon; that of the specification]
        num_requests: u32 = "num-requests" | "max-prompts" | "num-prompts" | "request-count", "N" COUNT_OR_ZERO, { apart: &[set("workload-trace").hint(OWN_ARRIVALS), set("trace-header").hint(OWN_ALL)], usual: true, example: "25" };
    }
    in LENGTHS {
        /// Mean input length, tokens ≥ 1 [default: 512]
        prompt_tokens: u32 = "prompt-tokens" | "random-input-len" | "input-len" | "synthetic-input-tokens-mean" | "isl", "N" COUNT, { usual: true };
        /// Standard deviation of the input length, tokens ≥ 0 [default: 256]
        prompt_tokens_stdev: u32 = "prompt-tokens-stdev" | "synthetic-input-tokens-stddev", "N" COUNT_OR_ZERO, { example: "100" };
        /// Minimum input length, tokens ≥ 1 [default: 2]
        prompt_tokens_min: u32 = "prompt-tokens-min", "N" COUNT, { example: "200" };
        /// Maximum input length, tokens ≥ 1 [default: 7000]
        prompt_tokens_max: u32 = "prompt-tokens-max", "N" COUNT, { example: "600" };
        /// Mean output length, tokens ≥ 1 [default: 512]
        output_tokens: u32 = "output-tokens" | "random-output-len" | "output-len" | "output-tokens-mean" | "osl", "N" COUNT, { usual: true };
        /// Standard deviation of the output length, tokens ≥ 0 [default: 256]
        output_tokens_stdev: u32 = "output-tokens-stdev" | "output-tokens-stddev", "N" COUNT_OR_ZERO, { example: "100" };
        /// Minimum output length, tokens ≥ 1 [default: 2]
        output_tokens_min: u32 = "output-tokens-min", "N" COUNT, { example: "200" };
        /// Maximum output length, tokens ≥ 1 [default: 7000]
        output_tokens_max: u32 = "output-tokens-max", "N" COUNT, { example: "600" };
    }
    in SYNTHETIC {
        /// Shared prefix of all prompts, tokens ≥ 0, in addition to their own [default: 0]
        prefix_tokens: u32 = "prefix-tokens" | "random-prefix-len", "N" COUNT_OR_ZERO, { apart: &[set("workload-trace").hint(OWN_ARRIVALS), set("trace-header").hint(OWN_ALL), set("workload-spec").hint(SPECIFIED), that("a `--workload` of several clients", has_clients).hint("it has its own arrivals and lengths; `--rate` and `--num-requests` set how many")] };
    }
    in EVALUATION {
        /// TTFT target: 500ms for all classes, or by class, as critical=100ms,standard=1.5s. Requests without a
        /// class are in the class default
        slo_ttft: TargetList = "slo-ttft", "CLASS=TIME,…" TARGETS, { usual: true, example: "100ms" };
        /// Target of the mean inter-token latency of a request, which is its TPOT, likewise
        slo_itl: TargetList = "slo-itl" | "slo-tpot", "CLASS=TIME,…" TARGETS, { example: "20ms" };
        /// E2E target, likewise
        slo_e2e: TargetList = "slo-e2e", "CLASS=TIME,…" TARGETS, { example: "2s" };
        /// Energy of the GPUs from the bytes and products of every step: kWh, joules per output token. Calibrated on kernels of one
        /// H100 only; simulates every step by itself, which takes longer
        energy: bool = "energy", SWITCH, default "false", { apart: &[set("group").hint("the energy of groups is not computed: leave out one of them"), ROLES_APART] };
        /// Price list of GPUs, YAML: date, source, and dollars per GPU-hour; as examples/autoscaling/prices.yaml [default:
        /// no cost]
        prices: PathBuf = "prices", "FILE" PATH, { commands: EVALUATED | SIZE | SWEEP | ADVISE, example: "examples/autoscaling/prices.yaml" };
        /// Weights of the fitness, as throughput:0.5,p99_ttft:0.5
        fitness_weights: String = "fitness-weights", "KEY:WEIGHT,…" NAME, { suites: false, example: "mean_e2e:1", beside: "--rate 30 --num-requests 60 --num-instances 2" };
        /// Scale of the fitness
        fitness_scale: FitnessScaleName = "fitness-scale", "NAME" FitnessScaleName::KIND, default "ratio", { needs: &[set("fitness-weights")], suites: false, beside: "--rate 30 --num-requests 60 --num-instances 2 --fitness-weights mean_e2e:1" };
        /// Baseline of the fitness: routing policy or bundle [default: round-robin]
        baseline: String = "baseline", "NAME|FILE" NAME, { needs: &[set("fitness-weights")], apart: &[is("fitness-scale", "blis").hint("that scale is fixed and has no baseline; leave out one of them")], commands: RUN | REPLAY, suites: false, example: "least-loaded", beside: "--rate 30 --num-requests 60 --num-instances 2 --fitness-weights mean_e2e:1" };
        /// Recorded decisions; needs --trace-path or --summarize-trace
        trace_level: TraceLevelName = "trace-level", "LEVEL" TraceLevelName::KIND, default "none", { apart: &[set("autoscaler").hint(FIXED), set("group").hint(FIXED), set("node-pool").hint(FIXED)], commands: RUN | REPLAY, suites: false, example: "decisions", beside: "--rate 30 --num-requests 60 --num-instances 2 --summarize-trace" };
        /// File for recorded decisions, JSON lines, gzip-compressed if its name ends with .gz; for `blis decisions`
        trace_path: PathBuf = "trace-path", "FILE" PATH, { needs: &[is("trace-level", "decisions").hint("add `--trace-level decisions`")], commands: RUN | REPLAY, suites: false, permission: Some(Permission::WriteFiles), beside: "--rate 30 --num-requests 60 --num-instances 2 --routing-policy weighted --trace-level decisions" };
        /// Best instances to list with each routing decision in the file of --trace-path, with their scores; 0
        /// for none
        counterfactual_k: u32 = "counterfactual-k", "K" COUNT_OR_ZERO, default "0", { needs: &[is("trace-level", "decisions").hint("add `--trace-level decisions`"), that("`--trace-path` or `--summarize-trace`", is_traced).hint("they have the candidates: add one of them")], commands: RUN | REPLAY, suites: false, example: "1", beside: "--rate 30 --num-requests 60 --num-instances 2 --routing-policy weighted --trace-level decisions --trace-path decisions.jsonl" };
        /// Summary of the recorded decisions in the results
        summarize_trace: bool = "summarize-trace", SWITCH, default "false", { needs: &[is("trace-level", "decisions").hint("add `--trace-level decisions`")], commands: RUN | REPLAY, suites: false, beside: "--rate 30 --num-requests 60 --num-instances 2 --routing-policy weighted --trace-level decisions" };
    }
    in REGRET {
        /// Regret: force sampled decisions to other outcomes, and compare
        regret: RegretName = "regret", "KIND" RegretName::KIND, default "none", { suites: false, example: "outcome", beside: "--rate 30 --num-requests 60 --num-instances 2" };
        /// Sampled routing decisions, ≥ 1: half of them at random, a quarter from requests that missed an SLO
        /// target (without targets: from the slowest), a quarter from those with the widest score margins. A
        /// quarter as many of admission, and of scheduling, each
        regret_samples: u32 = "regret-samples", "N" COUNT, default "100", { needs: &[set("regret").hint("add `--regret outcome`, or use `blis regret`")], suites: false, example: "20" };
        /// Alternative instances for each routing decision, ≥ 1: the one with the longest cached prefix, the least
        /// loaded one, then by score
        regret_alternatives: u32 = "regret-alternatives", "K" COUNT, default "3", { needs: &[set("regret").hint("add `--regret outcome`, or use `blis regret`")], suites: false, example: "7" };
        /// Window after a decision in which its consequences count, s or with a unit [default: twice the mean E2E,
        /// at least 1]
        regret_window: Micros = "regret-window", "S" SECONDS_ABOVE_0, { needs: &[set("regret").hint("add `--regret outcome`, or use `blis regret`")], suites: false };
        /// File for the sampled decisions with their signals and all branches, JSON lines
        regret_path: PathBuf = "regret-path", "FILE" PATH, { needs: &[set("regret").hint("add `--regret outcome`, or use `blis regret`")], suites: false, permission: Some(Permission::WriteFiles) };
    }
    in SIMULATION {
        /// Seed of all random draws. A specification or the header of a replayed trace may have another default
        // BLIS's.
        seed: u64 = "seed", "N" SEED, default "42", { commands: SIMULATED | OBSERVE | TRACES, usual: true, suites: false, example: "7" };
        /// End of the simulation, µs ≥ 1 or with a unit, as 10s [default: the end of the last request; a replay
        /// with --parity blis: twice the last arrival]
        horizon: Micros = "horizon", "US" HORIZON, { commands: SIMULATED & !MOCK | OBSERVE, example: "5s" };
        /// Time from the start, s or with a unit, whose requests are simulated and are in no figure of requests
        /// (steps, queue length and pooled inter-token latencies are those of the whole run)
        warmup: Micros = "warmup", "SECONDS" SECONDS_FROM_0, default "0", { example: "2" };
    }
}
