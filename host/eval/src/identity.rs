//! What a result is the result of: the model, the service, its policies and settings, and what to know about the figures.

use blis_config::policy::{BuiltInFilter, FilterSetting, PipelineStep, PolicySettings, PolicyUse, StepRole};
use blis_config::{DeployedMemory, Deployment};
use blis_plugin::Kind;
use blis_report::other_value;
use blis_sim::units::Micros;
use serde::Serialize;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use crate::error::RunError;
use crate::experiment::Experiment;
use crate::explain::resolved;
use crate::spec::{ExperimentSpec, NamedChoice as _};

/// What a result is the result of. The same inputs give the same content on any machine.
#[derive(Clone, Debug, Serialize)]
pub struct RunIdentity {
    /// Version of the program.
    version: &'static str,
    /// The scheduler that is followed. One of `vllm`, `blis`.
    parity: &'static str,
    /// Short name of the model.
    model: String,
    /// Name of the GPU.
    hardware: String,
    /// GPUs that share each layer. Unit: GPUs, 1 or more.
    tensor_parallel_size: u32,
    /// Groups of GPUs that have some of the layers each. Unit: stages, 1 or more.
    pipeline_parallel_size: u32,
    /// Attention replicas that share experts. Unit: replicas, 1 or more.
    data_parallel_size: u32,
    /// Instances behind the router. Unit: instances, 1 or more.
    num_instances: u32,
    /// Type of activations, by vLLM's names; `null` without the model's config, as the next two.
    dtype: Option<String>,
    /// Method of quantisation, by vLLM's names; `null` also if weights have the type of the activations.
    quantization: Option<String>,
    /// Type of cached keys and values, by vLLM's names.
    kv_cache_dtype: Option<String>,
    /// Settings of every instance.
    engine: EngineIdentity,
    /// The memory of a GPU of an engine process as vLLM divides it at its start; `null` if it cannot be computed, as without the model's
    /// config. `total_bytes × gpu_memory_utilization` is the sum of its parts and `available_kv_bytes`, plus `unused_bytes`.
    memory: Option<MemoryIdentity>,
    /// Name of the latency model.
    latency_model: String,
    /// The workload in words.
    workload: String,
    /// Seed of everything that is drawn. Unit: number.
    seed: u64,
    /// End of the simulated time; `null` for none.
    horizon_s: Option<f64>,
    /// The policy of each kind.
    policies: Vec<PolicyIdentity>,
    /// All settings that do not follow from others, defaults included, by the names of their flags, as `--config` reads
    /// them.
    settings: ExperimentSpec,
    /// Defaults that were chosen, simplifications, and how far the latencies were tested.
    notes: Vec<String>,
    /// Effects that the figures do not show.
    warnings: Vec<WarningText>,
    /// SHA-256 of the figures and of the other fields here but `granted`, `notes` and `warnings`: equal digests, equal
    /// results, and the same whether a value was set or is the default.
    digest: String,
}

/// Settings of vLLM that every instance has.
#[derive(Clone, Debug, Serialize)]
struct EngineIdentity {
    /// The engine with its version: vllm-0.33 or vllm-0.15; absent with parity blis.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'static str>,
    /// How steps are computed, with the same results. One of `fast`, `plain`.
    simulation: &'static str,
    /// Maximum batch size. Unit: requests, 1 or more.
    max_num_seqs: u32,
    /// Token budget of a step. Unit: tokens, 1 or more.
    max_num_batched_tokens: u32,
    /// Maximum length of a request, input and output; `null` if unlimited. Unit: tokens.
    max_model_len: Option<u32>,
    /// Size of a KV block. Unit: tokens, 1 or more.
    block_size: u32,
    /// KV blocks of an instance. Unit: blocks, 1 or more.
    total_kv_blocks: u32,
    /// Whether requests share blocks with equal content.
    enable_prefix_caching: bool,
    /// Whether a prompt may be computed in several steps.
    enable_chunked_prefill: bool,
    /// Whether a step is planned before the output of the one before is known.
    async_scheduling: bool,
    /// Whether a request is scheduled only if its whole prompt fits the free KV blocks.
    scheduler_reserve_full_isl: bool,
}

/// The memory of a GPU: parts of the share that an engine process may use.
#[derive(Clone, Debug, Serialize)]
struct MemoryIdentity {
    /// The version of vLLM of which the constants are.
    engine_version: String,
    /// Engine processes of an instance, each with its own limits and KV cache: data-parallel ranks. Unit: processes, 1 or more.
    engine_processes: u32,
    /// Memory that CUDA reports.
    total_bytes: u64,
    /// Part of it that the engine may use; 1 beside a given memory for KV blocks. Unit: share, 0 to 1.
    gpu_memory_utilization: f64,
    /// That part.
    budget_bytes: u64,
    /// Weights.
    weight_bytes: u64,
    /// CUDA context, buffers of collectives and workspaces.
    context_bytes: u64,
    /// Peak of activations in the profile run: the larger of the next two, and the third.
    activation_bytes: u64,
    /// In the sampler.
    activation_sampler_bytes: u64,
    /// In the layers.
    activation_layer_bytes: u64,
    /// In the kernels of routed experts.
    activation_expert_bytes: u64,
    /// What is subtracted for CUDA graphs.
    graph_bytes: u64,
    /// The profile run of an encoder for images.
    multimodal_bytes: u64,
    /// Memory set aside for adapters.
    reserved_bytes: u64,
    /// Memory for KV blocks, as vLLM's log has it; below 0 if nothing is left. Unit: bytes.
    available_kv_bytes: i64,
    /// What is left beside a given memory for KV blocks, below 0 if that exceeds the memory; else 0. Unit: bytes.
    unused_bytes: i64,
    /// A KV block on this GPU.
    block_bytes: u64,
    /// The KV blocks of the simulation on this GPU.
    kv_cache_bytes: u64,
    /// What to know where these blocks do not follow from `available_kv_bytes`; `null` if they do.
    note: Option<String>,
}

impl MemoryIdentity {
    fn new(memory: &DeployedMemory, deployment: &Deployment) -> Self {
        let DeployedMemory { balance, block_bytes, kv_cache_bytes, note } = memory;
        Self {
            engine_version: balance.version.to_string(),
            engine_processes: deployment.engine_processes,
            total_bytes: balance.total,
            gpu_memory_utilization: balance.utilization,
            budget_bytes: balance.budget,
            weight_bytes: balance.weights,
            context_bytes: balance.context,
            activation_bytes: balance.activations.peak(),
            activation_sampler_bytes: balance.activations.sampler,
            activation_layer_bytes: balance.activations.layers,
            activation_expert_bytes: balance.activations.experts,
            graph_bytes: balance.graphs,
            multimodal_bytes: balance.multimodal,
            reserved_bytes: balance.reserved,
            available_kv_bytes: balance.kv_cache,
            unused_bytes: balance.unused,
            block_bytes: *block_bytes as u64,
            kv_cache_bytes: *kv_cache_bytes,
            note: note.clone(),
        }
    }
}

/// A policy with the values of its parameters.
#[derive(Clone, Debug, Serialize)]
struct PolicyIdentity {
    /// The decision that it makes.
    kind: &'static str,
    /// Name in bundles and flags.
    name: String,
    /// Values of its parameters by name.
    parameters: Map<String, Value>,
    /// Filters of `weighted` in front of its scorers, in their order; absent without any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    filters: Vec<StepIdentity>,
    /// Plugins among the scorers of `weighted`, in their order; absent without any; `parameters` above has their
    /// weights.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    scorers: Vec<StepIdentity>,
    /// The plugin that chooses among the scored instances of `weighted`; absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    picker: Option<StepIdentity>,
}

/// A step of `weighted` routing with the values of its parameters.
#[derive(Clone, Debug, Serialize)]
struct StepIdentity {
    /// Name of the built-in step or of the plugin.
    name: String,
    /// Values of its parameters by name.
    parameters: Map<String, Value>,
    /// SHA-256 of the file of a plugin; absent for a built-in step.
    #[serde(skip_serializing_if = "Option::is_none")]
    sha256: Option<String>,
}

/// A warning, and what to do.
#[derive(Clone, Debug, Serialize)]
struct WarningText {
    /// The effect that the figures do not show.
    what: String,
    /// What to do about it.
    hint: String,
}

impl RunIdentity {
    /// The identity of a run of `config` with these `figures`. `notes`: those of the workload.
    ///
    /// # Errors
    /// As [`resolved`].
    pub(crate) fn new(
        config: &Experiment,
        deployment: &Deployment,
        notes: &[String],
        warnings: &[(String, String)],
        figures: &impl Serialize,
    ) -> Result<Self, RunError> {
        let identity = Self {
            version: env!("CARGO_PKG_VERSION"),
            parity: config.spec.parity().name(),
            model: deployment.model.clone(),
            hardware: deployment.hardware.clone(),
            tensor_parallel_size: deployment.tensor_parallel_size,
            pipeline_parallel_size: deployment.pipeline_parallel_size,
            data_parallel_size: deployment.data_parallel_size,
            num_instances: config.cluster.num_instances,
            dtype: deployment.precision.dtype.clone(),
            quantization: deployment.precision.quantization.clone(),
            kv_cache_dtype: deployment.precision.kv_cache_dtype.clone(),
            engine: EngineIdentity::new(config, deployment),
            memory: deployment.memory.as_ref().map(|memory| MemoryIdentity::new(memory, deployment)),
            latency_model: latency_model(config, deployment),
            workload: config.workload.to_string(),
            seed: config.seed,
            horizon_s: (config.horizon != Micros::MAX).then(|| config.horizon.as_secs_f64()),
            policies: policies(&config.cluster.policies, deployment),
            settings: resolved(config, deployment)?,
            notes: deployment.notes.iter().chain(notes).cloned().collect(),
            warnings: Vec::new(),
            digest: String::new(),
        };
        let settings = independent(&identity.settings);
        let specification = Self { settings, notes: Vec::new(), ..identity.clone() };
        let digest = digest(&(figures, specification, &deployment.alpha, &deployment.beta));
        let warnings = warnings.iter().map(|(what, hint)| WarningText { what: what.clone(), hint: hint.clone() });
        Ok(Self { warnings: warnings.collect(), digest, ..identity })
    }
}

/// `settings` without those that fields of the identity or the coefficients have with their resolved values.
fn independent(settings: &ExperimentSpec) -> ExperimentSpec {
    let mut independent = settings.clone();
    independent.hardware = None;
    independent.tp = None;
    independent.pp = None;
    independent.dtype = None;
    independent.quantization = None;
    independent.kv_cache_dtype = None;
    independent.latency_model = None;
    independent.alpha_coeffs = None;
    independent.beta_coeffs = None;
    independent.total_kv_blocks = None;
    independent.max_model_len = None;
    independent.gpu_memory_utilization = None;
    independent.engine_version = None;
    independent.max_num_seqs = None;
    independent.max_num_batched_tokens = None;
    independent.scheduler_reserve_full_isl = None;
    independent.horizon = None;
    independent
}

/// Name of the latency model: that of a plugin, or a built-in one.
pub(crate) fn latency_model(config: &Experiment, deployment: &Deployment) -> String {
    match config.cluster.policies.plugin(Kind::Latency) {
        Some(used) => used.loaded.name.clone(),
        None => deployment.latency_kind.to_string(),
    }
}

impl EngineIdentity {
    fn new(config: &Experiment, deployment: &Deployment) -> Self {
        let engine = &config.engine;
        Self {
            name: engine.profile.map(|profile| profile.name()),
            simulation: config.simulation().name(),
            max_num_seqs: deployment.batch_limits.max_num_seqs,
            max_num_batched_tokens: deployment.batch_limits.max_num_batched_tokens,
            max_model_len: deployment.max_model_len,
            block_size: engine.block_size,
            total_kv_blocks: deployment.total_kv_blocks,
            enable_prefix_caching: engine.enable_prefix_caching,
            enable_chunked_prefill: engine.enable_chunked_prefill,
            async_scheduling: engine.async_scheduling,
            scheduler_reserve_full_isl: engine.reserve_full_prompt,
        }
    }
}

fn policies(policies: &PolicySettings, deployment: &Deployment) -> Vec<PolicyIdentity> {
    let of_kind = |kind: Kind| {
        let used = policies.used(kind);
        let (name, parameters) = match used {
            Some(used) => (used.name().to_owned(), &used.parameters),
            None => (deployment.latency_kind.to_string(), &policies.latency_parameters),
        };
        let mut parameters: Map<String, Value> =
            parameters.iter().map(|(name, value)| (name.clone(), Value::from(value.value))).collect();
        parameters.extend(used.iter().flat_map(|used| others(used)));
        let step = |role: StepRole| {
            let steps = used.iter().flat_map(|used| &used.steps);
            steps.filter(move |step| step.role == role).map(step_identity)
        };
        let built_in = used.is_some_and(|used| used.built_in.is_some());
        let filters = match used.filter(|_| built_in) {
            Some(used) => used.filters.iter().map(|filter| filter_identity(used, filter)).collect(),
            None => step(StepRole::Filter).collect(),
        };
        let (scorers, picker) = (step(StepRole::Scorer).collect(), step(StepRole::Picker).next());
        PolicyIdentity { kind: kind.name(), name, parameters, filters, scorers, picker }
    };
    // Flags select the built-in policies of flow control and of scaling; a fixed number of instances has none of
    // replicas, and one without a CPU tier none of KV tiers.
    let is_chosen = |kind: Kind| kind.is_flow_control() || kind.is_of_replicas() || kind.row().on_demand;
    let is_named = |&kind: &Kind| !kind.is_step() && (!is_chosen(kind) || policies.used(kind).is_some());
    Kind::ALL.into_iter().filter(is_named).map(of_kind).collect()
}

fn filter_identity(used: &PolicyUse, filter: &FilterSetting) -> StepIdentity {
    if let Some(step) = used.step(StepRole::Filter, filter.name()) {
        return step_identity(step);
    }
    let parameters = filter.built_in().into_iter().flat_map(BuiltInFilter::parameters);
    let parameters = parameters.map(|(parameter, value)| (parameter.name, Value::from(value))).collect();
    StepIdentity { name: filter.name().to_owned(), parameters, sha256: None }
}

fn step_identity(step: &PipelineStep) -> StepIdentity {
    let used = &step.used;
    let numbers = used.parameters.iter().map(|(name, value)| (name.clone(), Value::from(value.value)));
    let parameters = numbers.chain(others(used)).collect();
    StepIdentity { name: used.loaded.name.clone(), parameters, sha256: Some(used.loaded.sha256.clone()) }
}

/// The parameters that are no numbers: texts, and tables as lists of rows.
fn others(used: &PolicyUse) -> impl Iterator<Item = (String, Value)> + '_ {
    used.others.iter().map(|(name, value)| (name.clone(), other_value(&value.value)))
}

/// SHA-256 of `content` as JSON, hexadecimal.
#[must_use]
pub fn digest(content: &impl Serialize) -> String {
    // Only maps with keys that are no text have no JSON form; there are none.
    let bytes = serde_json::to_vec(content).unwrap_or_default();
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}
