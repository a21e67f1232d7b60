//! What a result is the result of: the model, the service, its policies and settings, and what to know about the figures.

use blis_config::Deployment;
use blis_config::policy::{BuiltInFilter, FilterSetting, PipelineStep, PolicySettings, PolicyUse, StepRole};
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

/// The value of `run` in the JSON of a run. Everything in it is the same for the same inputs on any machine.
#[derive(Clone, Debug, Serialize)]
pub struct RunIdentity {
    /// Version of the program.
    version: &'static str,
    /// The scheduler that is followed: `vllm` or `blis`.
    parity: &'static str,
    model: String,
    hardware: String,
    tensor_parallel_size: u32,
    pipeline_parallel_size: u32,
    data_parallel_size: u32,
    num_instances: u32,
    /// Type of activations; `None` without the model's config, as the next two.
    dtype: Option<String>,
    /// Method of quantisation; `None` also if there is none.
    quantization: Option<String>,
    /// Type of cached keys and values.
    kv_cache_dtype: Option<String>,
    engine: EngineIdentity,
    /// Name of the latency model.
    latency_model: String,
    workload: String,
    seed: u64,
    /// End of the simulated time, s.
    horizon_s: Option<f64>,
    policies: Vec<PolicyIdentity>,
    /// All settings that do not follow from others, defaults included, by the names of the flags: `--config` reads them.
    settings: ExperimentSpec,
    /// Defaults that were chosen, simplifications, and how far the latencies were tested.
    notes: Vec<String>,
    /// Effects that the figures do not show.
    warnings: Vec<WarningText>,
    /// SHA-256 of the figures and of the resolved specification, which is the other fields here without `notes` and `warnings`: equal
    /// digests, equal results, and the same whether a value was set or is the default.
    digest: String,
}

/// The settings of vLLM that every instance has.
#[derive(Clone, Debug, Serialize)]
struct EngineIdentity {
    /// The engine with its version; absent under `--parity blis`.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'static str>,
    /// How steps are computed: `fast` or `plain`, with the same results.
    simulation: &'static str,
    max_num_seqs: u32,
    max_num_batched_tokens: u32,
    max_model_len: Option<u32>,
    block_size: u32,
    total_kv_blocks: u32,
    enable_prefix_caching: bool,
    enable_chunked_prefill: bool,
    async_scheduling: bool,
    scheduler_reserve_full_isl: bool,
}

#[derive(Clone, Debug, Serialize)]
struct PolicyIdentity {
    kind: &'static str,
    name: String,
    parameters: Map<String, Value>,
    /// Filters of `weighted` with all their parameters.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    filters: Vec<StepIdentity>,
    /// Plugins among the scorers of `weighted` with all their parameters; their weights are in `parameters`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    scorers: Vec<StepIdentity>,
    /// The picker of `weighted`, if it is not the largest sum of scores.
    #[serde(skip_serializing_if = "Option::is_none")]
    picker: Option<StepIdentity>,
}

#[derive(Clone, Debug, Serialize)]
struct StepIdentity {
    name: String,
    parameters: Map<String, Value>,
    /// SHA-256 of the file of a plugin.
    #[serde(skip_serializing_if = "Option::is_none")]
    sha256: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
struct WarningText {
    what: String,
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

fn digest(content: &impl Serialize) -> String {
    // Only maps with keys that are no text have no JSON form; there are none.
    let bytes = serde_json::to_vec(content).unwrap_or_default();
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}
