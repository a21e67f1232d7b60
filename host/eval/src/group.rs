//! Groups of instances beside the first: `--group hardware=A100-SXM,tp=1,instances=2`.

use blis_config::DeploymentArgs;
use blis_sim::cluster::StartMode;

use crate::spec::RoleName;
use crate::startup::StartupSettings;

/// Instances that differ from the first group in what is set here.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GroupSettings {
    /// Model, as of `--model`.
    pub model: Option<String>,
    /// GPU, as of `--hardware`.
    pub hardware: Option<String>,
    /// Tensor parallelism: GPUs that share each layer.
    pub tp: Option<u32>,
    /// Maximum batch size, requests.
    pub max_num_seqs: Option<u32>,
    /// Maximum tokens of a step.
    pub max_num_batched_tokens: Option<u32>,
    /// What its instances do, if prefill is apart from decode.
    pub role: Option<RoleName>,
    /// Size of a KV block, tokens: that of `--block-size-in-tokens`.
    pub block_size: Option<u32>,
    /// Instances at the start, ≥ 1: by default the fewest replicas.
    pub instances: u32,
    /// Fewest replicas, with an autoscaler.
    pub min: Option<u32>,
    /// Most replicas, with an autoscaler.
    pub max: Option<u32>,
    /// How long a replica takes to start, with an autoscaler.
    pub startup_time: Option<StartupSettings>,
    /// What is ready before a replica starts, with an autoscaler.
    pub start_mode: Option<StartMode>,
}

impl GroupSettings {
    /// Its deployment, where `base` is that of the first group. Another model or GPU has its own size and parallelism.
    #[must_use]
    pub fn deployment(&self, base: &DeploymentArgs) -> DeploymentArgs {
        let mut args = base.clone();
        if self.model.is_some() || self.hardware.is_some() {
            args.tensor_parallel_size = None;
            args.pipeline_parallel_size = None;
            args.total_kv_blocks = None;
        }
        args.model = self.model.clone().unwrap_or(args.model);
        args.hardware = self.hardware.clone().or(args.hardware);
        args.tensor_parallel_size = self.tp.or(args.tensor_parallel_size);
        args.batch.max_num_seqs = self.max_num_seqs.or(args.batch.max_num_seqs);
        args.batch.max_num_batched_tokens = self.max_num_batched_tokens.or(args.batch.max_num_batched_tokens);
        args
    }
}
