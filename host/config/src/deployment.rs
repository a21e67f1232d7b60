//! A deployment: as the user describes it, and with nothing left open.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use blis_sim::latency::LatencyModel;

use super::latency_kind::LatencyKind;
use super::policy::Sourced;

/// What the user said about a deployment.
#[derive(Clone, Debug)]
pub struct DeploymentArgs {
    /// `--model`: what follows the last `/` counts, upper or lower case.
    pub model: String,
    /// `--hardware`: a GPU. H100 by default.
    pub hardware: Option<String>,
    /// `--tensor-parallel-size`, at least 1. By default the smallest power of two that fits.
    pub tensor_parallel_size: Option<u32>,
    /// `--data-parallel-size`, at least 1.
    pub data_parallel_size: u32,
    /// `--vllm-version`: selects coefficients of the blackbox model.
    pub vllm_version: Option<String>,
    /// `--enable-expert-parallel`.
    pub enable_expert_parallel: bool,
    /// `--moe-comm-backend`: how data-parallel ranks exchange tokens with experts.
    pub moe_comm_backend: Option<String>,
    /// `--latency-model`.
    pub latency_model: Option<LatencyKind>,
    /// Which one it is if nothing else says so: physics, for BLIS trained-physics.
    pub usual_latency: LatencyKind,
    /// `--alpha-coeffs`, three.
    pub alpha_coeffs: Option<Vec<f64>>,
    /// `--beta-coeffs`: three for blackbox, 7 to 11 for trained-physics, 8 for physics.
    pub beta_coeffs: Option<Vec<f64>>,
    /// `--policy-param latency.NAME=VALUE`: coefficients that replace those of the deployment; not with lists of them.
    pub latency_parameters: Vec<(String, Sourced<f64>)>,
    /// `--coefficients`: a file of `blis fit` for physics; the built-in one by default.
    pub coefficients: Option<PathBuf>,
    /// `--total-kv-blocks`, at least 1.
    pub total_kv_blocks: Option<u64>,
    /// `--block-size`, tokens per KV block, at least 1.
    pub block_size: u32,
    /// `--max-model-len`, tokens. `None` and 0: from the model's config.
    pub max_model_len: Option<u32>,
    /// `--gpu-memory-utilization`, in (0, 1].
    pub gpu_memory_utilization: f64,
    /// `--model-config-folder`: holds `config.json` or `<model>/config.json`.
    pub model_config_folder: Option<PathBuf>,
    /// `--hardware-config`: a GPU file, a folder of them, or BLIS's `hardware_config.json`.
    pub hardware_config: Option<PathBuf>,
}

impl DeploymentArgs {
    /// A model, and the default for everything else.
    #[must_use]
    pub fn new(model: impl Into<String>) -> Self {
        Self {
            model: model.into(),
            hardware: None,
            tensor_parallel_size: None,
            data_parallel_size: 1,
            vllm_version: None,
            enable_expert_parallel: false,
            moe_comm_backend: None,
            latency_model: None,
            usual_latency: LatencyKind::Physics,
            alpha_coeffs: None,
            beta_coeffs: None,
            latency_parameters: Vec::new(),
            coefficients: None,
            total_kv_blocks: None,
            block_size: 16,
            max_model_len: None,
            gpu_memory_utilization: 0.9,
            model_config_folder: None,
            hardware_config: None,
        }
    }
}

/// A deployment with nothing left open.
#[derive(Clone, Debug)]
pub struct Deployment {
    /// Short name of the model, lower case.
    pub model: String,
    /// Name of the GPU's file.
    pub hardware: String,
    /// GPUs that share each layer.
    pub tensor_parallel_size: u32,
    /// Attention replicas that share experts.
    pub data_parallel_size: u32,
    /// The latency model.
    pub latency: Arc<dyn LatencyModel>,
    /// Which one it is.
    pub latency_kind: LatencyKind,
    /// Its α coefficients, µs.
    pub alpha: Vec<f64>,
    /// Its β coefficients. Roofline has none; three zeros, as BLIS reports them.
    pub beta: Vec<f64>,
    /// KV blocks of the instance.
    pub total_kv_blocks: u32,
    /// Where that number comes from.
    pub kv_blocks_source: KvBlocksSource,
    /// Longest request, prompt and answer, tokens; `None` if unlimited.
    pub max_model_len: Option<u32>,
    /// What is known about model and hardware, for latency models from outside: names of the model's
    /// config.json and of the GPU's file.
    pub facts: Vec<(String, f64)>,
    /// What the user should know: defaults chosen, simplifications, figures never measured.
    pub notes: Vec<String>,
}

/// Where a number of KV blocks comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KvBlocksSource {
    /// `--total-kv-blocks`.
    Flag,
    /// Recorded with the blackbox coefficients.
    CoefficientRow,
    /// Memory left beside the weights.
    Computed,
}

impl fmt::Display for KvBlocksSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Flag => "given by --total-kv-blocks",
            Self::CoefficientRow => "recorded with the blackbox coefficients",
            Self::Computed => "computed from the memory left beside the weights",
        })
    }
}
