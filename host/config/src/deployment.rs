//! A deployment: the options of the user, and the resolved form.

use crate::kv_groups::{CacheArgs, DeployedLayout};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use blis_sim::energy::StepEnergy;
use blis_sim::engine_version::EngineVersion;
use blis_sim::kv::tiers::BlisTiers;
use blis_sim::latency::{LatencyModel, Sampler};
use blis_sim::memory::MemoryBalance;
use blis_sim::offload::OffloadConfig;

use super::adapters::{AdapterArgs, DeployedAdapters};
use super::cpu_tier::OffloadArgs;
use super::engine::{BatchLimits, BatchSettings, EngineProfile};
use super::kv_offload::TierArgs;
use super::latency_kind::LatencyKind;
use super::policy::Sourced;
use super::precision::{Precision, PrecisionArgs};

/// The deployment options of the user.
#[derive(Clone, Debug)]
pub struct DeploymentArgs {
    /// `--model`: only the part after the last `/` counts, in upper or lower case.
    pub model: String,
    /// `--hardware`: name of a GPU; H100 by default.
    pub hardware: Option<String>,
    /// `--tensor-parallel-size`, at least 1. By default the smallest power of two that fits.
    pub tensor_parallel_size: Option<u32>,
    /// `--pipeline-parallel-size`, at least 1. By default 1, or as many as hold the model where no tensor parallel size
    /// does.
    pub pipeline_parallel_size: Option<u32>,
    /// `--data-parallel-size`, at least 1.
    pub data_parallel_size: u32,
    /// `--vllm-version`: selects coefficients of the blackbox model.
    pub vllm_version: Option<String>,
    /// `--enable-expert-parallel`: experts are distributed over the ranks instead of sliced.
    pub enable_expert_parallel: bool,
    /// `--dtype`, `--quantization`, `--kv-cache-dtype`: number formats.
    pub precision: PrecisionArgs,
    /// `--enforce-eager`: kernels are launched one by one, without CUDA graphs.
    pub enforce_eager: bool,
    /// The sampling code of the engine's version.
    pub sampler: Sampler,
    /// `--moe-comm-backend`: how data-parallel ranks exchange tokens with experts.
    pub moe_comm_backend: Option<String>,
    /// `--latency-model`: by default the one that the other options imply.
    pub latency_model: Option<LatencyKind>,
    /// The latency model if no option implies another: physics, or trained-physics with `--parity blis`.
    pub default_latency: LatencyKind,
    /// `--alpha-coeffs`, three; only together with `beta_coeffs`.
    pub alpha_coeffs: Option<Vec<f64>>,
    /// `--beta-coeffs`: three for blackbox, 7 to 11 for trained-physics, 8 for physics.
    pub beta_coeffs: Option<Vec<f64>>,
    /// `--policy-param latency.NAME=VALUE`: coefficients that replace single ones; excludes the two lists.
    pub latency_parameters: Vec<(String, Sourced<f64>)>,
    /// `--coefficients`: a file of `blis fit` for physics; the built-in one by default.
    pub coefficients: Option<PathBuf>,
    /// `--total-kv-blocks`, at least 1.
    pub total_kv_blocks: Option<u64>,
    /// `--block-size`, tokens per KV block, at least 1.
    pub block_size: u32,
    /// `--max-model-len`, tokens. `None` and 0: from the model's config.
    pub max_model_len: Option<u32>,
    /// `--max-model-len -1`: the longest that fits the KV cache, at most the model's.
    pub auto_model_len: bool,
    /// `--gpu-memory-utilization`, in (0, 1]; by default that of the version, and 0.9 as in BLIS without an engine.
    pub gpu_memory_utilization: Option<f64>,
    /// `--engine-version`: the version of vLLM of which the memory is computed; by default the engine's.
    pub engine_version: Option<EngineVersion>,
    /// `--kv-cache-memory-bytes`, of each GPU, instead of that share.
    pub kv_cache_memory_bytes: Option<u64>,
    /// Settings that decide about KV groups.
    pub cache: CacheArgs,
    /// The limits of a batch, and the engine: vLLM sets memory aside for its batches; without an engine, the KV cache has
    /// the size that BLIS computes.
    pub batch: BatchSettings,
    /// The CPU tier of the KV cache; `None` for none.
    pub offload: Option<OffloadArgs>,
    /// BLIS's tiers below the GPU's KV cache: `--kv-cpu-blocks` or `--kv-offload-config`, with `--parity blis` only.
    pub blis_tiers: Option<TierArgs>,
    /// `--model-config-folder`: holds `config.json` or `<model>/config.json`.
    pub model_config_folder: Option<PathBuf>,
    /// `--hardware-config`: a GPU file, a folder of them, or BLIS's `hardware_config.json`.
    pub hardware_config: Option<PathBuf>,
    /// `--lora-config`, `--enable-lora` and the settings of adapters; `None`: the base model serves every request.
    pub adapters: Option<AdapterArgs>,
}

impl DeploymentArgs {
    /// The options of a model alone; everything else has its default.
    #[must_use]
    pub fn new(model: impl Into<String>) -> Self {
        Self {
            model: model.into(),
            hardware: None,
            tensor_parallel_size: None,
            pipeline_parallel_size: None,
            data_parallel_size: 1,
            vllm_version: None,
            enable_expert_parallel: false,
            precision: PrecisionArgs::default(),
            enforce_eager: false,
            sampler: Sampler::default(),
            moe_comm_backend: None,
            latency_model: None,
            default_latency: LatencyKind::Physics,
            alpha_coeffs: None,
            beta_coeffs: None,
            latency_parameters: Vec::new(),
            coefficients: None,
            total_kv_blocks: None,
            block_size: 16,
            max_model_len: None,
            auto_model_len: false,
            gpu_memory_utilization: None,
            engine_version: None,
            kv_cache_memory_bytes: None,
            cache: CacheArgs::default(),
            batch: BatchSettings::default(),
            offload: None,
            blis_tiers: None,
            model_config_folder: None,
            hardware_config: None,
            adapters: None,
        }
    }
}

/// Default of `--gpu-memory-utilization` in BLIS.
const BLIS_UTILIZATION: f64 = 0.9;

impl DeploymentArgs {
    /// The version of vLLM of which the memory is computed.
    #[must_use]
    pub fn version(&self) -> EngineVersion {
        let of_engine = || self.batch.engine.map(EngineProfile::version);
        self.engine_version.or_else(of_engine).unwrap_or_default()
    }

    /// The default of the share of memory.
    #[must_use]
    pub fn default_utilization(&self) -> f64 {
        self.batch.engine.map_or(BLIS_UTILIZATION, |_| self.version().default_utilization())
    }

    /// The share of memory that the engine may use.
    #[must_use]
    pub fn utilization(&self) -> f64 {
        self.gpu_memory_utilization.unwrap_or_else(|| self.default_utilization())
    }
}

/// A resolved deployment: every option has a value.
#[derive(Clone, Debug)]
pub struct Deployment {
    /// Short name of the model, lower case.
    pub model: String,
    /// Name of the GPU's file in `hardware/`.
    pub hardware: String,
    /// Tensor-parallel size: GPUs that share each layer.
    pub tensor_parallel_size: u32,
    /// Pipeline stages: groups of GPUs that have some of the layers each.
    pub pipeline_parallel_size: u32,
    /// Data-parallel size: attention replicas that share experts.
    pub data_parallel_size: u32,
    /// Number formats of activations, weights and KV cache.
    pub precision: Precision,
    pub latency: Arc<dyn LatencyModel>,
    /// The energy of its steps; `None` if the configuration of the model or the power of the GPU is unknown.
    pub energy: Option<StepEnergy>,
    /// Kind of the latency model.
    pub latency_kind: LatencyKind,
    /// α coefficients of the latency model; units depend on the model.
    pub alpha: Vec<f64>,
    /// β coefficients of the latency model. Roofline has none: three zeros, as BLIS reports them.
    pub beta: Vec<f64>,
    /// Engine processes of an instance, each with its own scheduler: data-parallel ranks. 1 as in BLIS, where all ranks have one.
    pub engine_processes: u32,
    /// Size of the KV cache of an instance, blocks: of all its engine processes.
    pub total_kv_blocks: u32,
    /// Origin of that number.
    pub kv_blocks_source: KvBlocksSource,
    /// Tokens of a KV block; with KV groups of one content hash, of which their blocks are multiples.
    pub block_size: u32,
    /// The KV groups; `None` as in BLIS, and without a config of the model.
    pub kv_layout: Option<DeployedLayout>,
    /// Share of the memory of a GPU that the engine may use.
    pub gpu_memory_utilization: f64,
    /// The memory of a GPU as vLLM divides it; `None` if it cannot be computed, as without a config of the model.
    pub memory: Option<DeployedMemory>,
    /// The limits of a batch of one engine process.
    pub batch_limits: BatchLimits,
    /// What the defaults among these limits follow.
    pub batch_limits_source: &'static str,
    /// Maximum length of a request, input and output tokens together; `None` if unlimited.
    pub max_model_len: Option<u32>,
    /// The CPU tier of the KV cache of an instance; `None` for none.
    pub offload: Option<OffloadConfig>,
    /// BLIS's tiers below the GPU's KV cache.
    pub blis_tiers: Option<BlisTiers>,
    /// Its LoRA adapters, if there are any.
    pub adapters: Option<DeployedAdapters>,
    /// Bytes of the weights of one GPU; `None` without a config of the model.
    pub weight_bytes: Option<f64>,
    /// Bytes that one GPU caches per token, of its pipeline stage; `None` without a config of the model. With
    /// [`BatchSettings::engine`] `None` as in BLIS, which divides KV heads that it cannot.
    pub kv_token_bytes: Option<f64>,
    /// Properties of model and hardware for latency models that are plugins, by the names in the model's config.json
    /// and in the GPU's file.
    pub model_facts: Vec<(String, f64)>,
    /// How the latencies were compared with measurements; `None` if nothing is known about it.
    pub validation: Option<Validation>,
    /// Notes for the user: defaults chosen, simplifications, figures that were never measured.
    pub notes: Vec<String>,
    /// What may make times and KV blocks wrong: keys of the model's config that are not read.
    pub warnings: Vec<String>,
    /// Where vLLM would not start, or the KV blocks exceed the memory.
    pub memory_warnings: Vec<MemoryWarning>,
}

/// How latencies were compared with measurements.
#[derive(Clone, Debug, PartialEq)]
pub struct Validation {
    /// On what, and the largest errors there.
    pub text: String,
    /// Whether it was on this deployment, or on one of its class.
    pub is_tested: bool,
    /// The largest errors of this very deployment, if its coefficients were measured on it.
    pub largest: Option<LargestErrors>,
}

/// The largest relative errors of the tests of a deployment, shares.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LargestErrors {
    /// Of the mean TTFT.
    pub prefill: f64,
    /// Of the mean end-to-end latency.
    pub decode: f64,
}

impl Validation {
    pub(crate) fn missing(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_tested: false, largest: None }
    }
}

/// Coefficients of a latency model.
pub(crate) struct StatedCoefficients {
    /// Of what is outside of steps.
    pub alpha: Vec<f64>,
    /// Of steps.
    pub beta: Vec<f64>,
    pub validation: Option<Validation>,
}

/// The memory of a GPU of a deployment.
#[derive(Clone, Debug, PartialEq)]
pub struct DeployedMemory {
    /// What vLLM would find: of several pipeline stages, on the one with the fewest KV blocks.
    pub balance: MemoryBalance,
    /// Bytes of a KV block on one GPU.
    pub block_bytes: f64,
    /// Bytes that the KV blocks of the simulation take on one GPU.
    pub kv_cache_bytes: u64,
    /// What to know where the KV blocks do not follow from the balance.
    pub note: Option<String>,
}

/// A warning about memory, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryWarning {
    /// What is wrong.
    pub what: String,
    /// What to do about it.
    pub hint: String,
}

impl Deployment {
    /// The property of model or hardware of that name ([`Self::model_facts`]); `None` if it is unknown.
    #[must_use]
    pub fn fact(&self, name: &str) -> Option<f64> {
        self.model_facts.iter().find(|(other, _)| other == name).map(|&(_, value)| value)
    }

    /// The limits of a batch of an instance, of all its engine processes together.
    ///
    /// Data-parallel ranks are simulated as one batch: each has `max_num_seqs` and `max_num_batched_tokens` of its own in vLLM, so that all
    /// together have so many times as much.
    #[must_use]
    pub fn instance_limits(&self) -> BatchLimits {
        let BatchLimits { max_num_seqs, max_num_batched_tokens } = self.batch_limits;
        let processes = self.engine_processes.max(1);
        BatchLimits {
            max_num_seqs: max_num_seqs.saturating_mul(processes),
            max_num_batched_tokens: max_num_batched_tokens.saturating_mul(processes),
        }
    }

    /// The limit of one prompt in a step, where `threshold` is set (0: not): a request is on one rank, and never takes more than its token
    /// budget.
    #[must_use]
    pub fn prompt_threshold(&self, threshold: u32) -> u32 {
        match (self.engine_processes, threshold) {
            (..=1, threshold) => threshold,
            (_, 0) => self.batch_limits.max_num_batched_tokens,
            (_, threshold) => threshold.min(self.batch_limits.max_num_batched_tokens),
        }
    }

    /// GPUs of an instance.
    #[must_use]
    pub fn gpus(&self) -> u32 {
        self.tensor_parallel_size * self.pipeline_parallel_size * self.data_parallel_size
    }
}

/// Origin of the number of KV blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KvBlocksSource {
    Flag,
    /// Recorded with the blackbox coefficients.
    CoefficientRow,
    /// Computed from the memory that the weights leave.
    Computed,
}

impl fmt::Display for KvBlocksSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Flag => "given by --total-kv-blocks",
            Self::CoefficientRow => "recorded with the blackbox coefficients",
            Self::Computed => "computed from the memory that the weights leave",
        })
    }
}
