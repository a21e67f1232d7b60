//! The deployments that are searched: all combinations of the values of axes, less those that cannot be deployed.
//!
//! A setting that is set is no axis. Models, GPUs, formats and parallel sizes make *families*; limits of batches and routers vary inside one. The first
//! design of a family has the defaults of both, and is searched first.

use std::collections::{BTreeMap, BTreeSet};

use blis_config::policy::SettingSource;
use blis_config::{Catalogue, ConfigError, Deployment, ModelArgs, short_name};
use blis_sim::cluster::InstanceRole;

use crate::disaggregation::has_roles;
use crate::error::RunError;
use crate::experiment::{Experiment, OutputFiles};
use crate::open;
use crate::planning::sweep;
use crate::planning::variation::{Variation, VariedSetting};
use crate::spec::{ExperimentSpec, ParityName, SettingKey};

use super::budget::{Budget, Weights};

/// Replicas at most, whatever the budget.
pub(super) const MOST_REPLICAS: u32 = 4096;
/// Combinations of the values of all axes at most.
const MOST_DESIGNS: usize = 20_000;
/// GPUs of a node, up to which tensor parallelism is tried.
const TENSOR_SIZES: [&str; 4] = ["1", "2", "4", "8"];
/// Token budgets of a step beside the engine's default.
const TOKEN_BUDGETS: [&str; 3] = ["2048", "8192", "16384"];
/// Limits of the running batch beside the engine's default.
const BATCH_SIZES: [&str; 2] = ["256", "128"];
/// Routers beside the default.
const ROUTERS: [&str; 3] = ["round-robin", "token-aware", "weighted"];

/// The designs that can be deployed, and how many cannot.
pub(super) struct Space {
    pub designs: Vec<Design>,
    /// Different combinations, also those that cannot be deployed.
    pub size: usize,
    /// How many are left out before anything is simulated, by reason.
    pub cut: BTreeMap<&'static str, usize>,
    /// The first message of each reason that has one.
    pub examples: BTreeMap<&'static str, String>,
    /// What to know about the axes.
    pub notes: Vec<String>,
}

/// A deployment without the number of its replicas.
pub(super) struct Design {
    /// Settings that differ from those of the command line.
    pub settings: Vec<VariedSetting>,
    pub spec: ExperimentSpec,
    pub service: Experiment,
    pub deployment: Deployment,
    /// Unit: GPUs of a replica.
    pub gpus: u32,
    /// Without a price list `None`. Unit: $/h of a GPU.
    pub usd_per_gpu_hour: Option<f64>,
    /// Designs with the same number belong to one family.
    pub family: usize,
    /// Whether prefill instances are apart from decode instances.
    pub has_roles: bool,
    /// Its replicas, where the user set them by role.
    pub fixed_roles: Option<ReplicaLayout>,
    /// Whether the user set the number of replicas.
    pub is_sized: bool,
    /// Fewest and most replicas.
    pub least: u32,
    pub most: u32,
}

/// A deployment as it is: how many replicas a design has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ReplicaLayout {
    /// All of them. Unit: replicas.
    pub replicas: u32,
    /// Those that prefill apart from the others; 0 without roles. Unit: replicas.
    pub prefill: u32,
}

impl ReplicaLayout {
    /// Replicas without roles.
    pub const fn of(replicas: u32) -> Self {
        Self { replicas, prefill: 0 }
    }

    /// The replicas of `service` by role; `None` without roles.
    fn of_roles(service: &Experiment) -> Option<Self> {
        let roles = service.cluster.disaggregation.as_ref()?;
        let prefill = roles.pools.iter().filter(|pool| pool.role == InstanceRole::Prefill);
        Some(Self { replicas: service.cluster.num_instances, prefill: prefill.map(|pool| pool.instances).sum() })
    }
}

impl Design {
    /// What `layout` costs: $/h with prices, else GPUs.
    pub fn cost(&self, layout: ReplicaLayout) -> f64 {
        f64::from(layout.replicas) * self.unit_cost()
    }

    /// What a replica costs.
    pub fn unit_cost(&self) -> f64 {
        f64::from(self.gpus) * self.usd_per_gpu_hour.unwrap_or(1.0)
    }

    /// The most replicas for that `cost`, within the budget.
    pub fn replicas_for(&self, cost: f64) -> u32 {
        const ROUNDING: f64 = 1e-9;
        ((cost / self.unit_cost() * (1.0 + ROUNDING)).min(f64::from(MOST_REPLICAS)) as u32).min(self.most)
    }

    /// The command that serves a replica with vLLM, with the connector of roles.
    pub fn launch(&self) -> String {
        let mut line = sweep::launch(&self.service, &self.deployment);
        if self.has_roles {
            line.push_str(" --kv-transfer-config '{\"kv_connector\":\"NixlConnector\",\"kv_role\":\"kv_both\"}'");
        }
        line
    }

    /// The service with that many replicas.
    pub fn with(&self, layout: ReplicaLayout) -> Experiment {
        let mut service = self.service.clone();
        if self.fixed_roles.is_some() {
            return service;
        }
        service.cluster.num_instances = layout.replicas;
        if let Some(roles) = &mut service.cluster.disaggregation {
            for pool in &mut roles.pools {
                let is_prefill = pool.role == InstanceRole::Prefill;
                pool.instances = if is_prefill { layout.prefill } else { layout.replicas - layout.prefill };
            }
        }
        service
    }
}

/// A setting with its value.
type SettingValues = Vec<(&'static SettingKey, String)>;

/// The values of an axis: the settings of each.
struct Axis {
    values: Vec<SettingValues>,
    /// Whether its values make families.
    is_main: bool,
}

impl Axis {
    fn of(name: &'static str, values: &[&str], is_main: bool) -> Self {
        let key = SettingKey::named(name);
        Self { values: values.iter().map(|value| vec![(key, (*value).to_owned())]).collect(), is_main }
    }

    /// With the default as the first value.
    fn beside_default(mut self) -> Self {
        self.values.insert(0, Vec::new());
        self
    }
}

impl Space {
    /// # Errors
    /// If a setting is invalid, or there are too many combinations.
    pub fn new(
        spec: &ExperimentSpec,
        budget: Budget,
        weights: &[Weights],
        variations: &[Variation],
    ) -> Result<Self, RunError> {
        let names: BTreeSet<&str> = variations.iter().map(|variation| variation.key.name).collect();
        if names.len() < variations.len() {
            return Err(RunError::usage("a setting is varied twice").hint("give all of its values in one `--vary`"));
        }
        let mut axes = Axes { spec: spec.clone(), varied: names, list: Vec::new(), notes: Vec::new() };
        axes.add_all(weights)?;
        let varied = variations.iter().map(|variation| {
            let values: Vec<&str> = variation.values.iter().map(String::as_str).collect();
            Axis::of(variation.key.name, &values, is_main(variation.key.name))
        });
        axes.list.extend(varied);
        let mut filled = SpaceFilling { budget, space: Self::empty(axes.notes), known: BTreeSet::new() };
        filled.add_combinations(&axes.spec, &axes.list)?;
        Ok(filled.space)
    }

    fn empty(notes: Vec<String>) -> Self {
        Self { designs: Vec::new(), size: 0, cut: BTreeMap::new(), examples: BTreeMap::new(), notes }
    }
}

/// Whether values of a setting make families.
fn is_main(name: &str) -> bool {
    !matches!(name, "max-num-batched-tokens" | "max-num-seqs" | "routing-policy")
}

/// What decides about the axes of a model.
struct AxisFacts {
    has_experts: bool,
    /// Whether its weights are published with fewer bits than its activations.
    is_quantised: bool,
}

/// The axes as they are put together.
struct Axes<'a> {
    /// The settings that all designs have.
    spec: ExperimentSpec,
    /// The settings that have values of the user's.
    varied: BTreeSet<&'a str>,
    list: Vec<Axis>,
    notes: Vec<String>,
}

impl Axes<'_> {
    fn add_all(&mut self, weights: &[Weights]) -> Result<(), RunError> {
        let models = self.listed("model");
        let gpus = self.gpus()?;
        let with_weights = models.iter().flat_map(|model| self.weights_of(model, weights)).collect();
        self.list.push(Axis { values: with_weights, is_main: true });
        self.list.push(Axis::of("hardware", &gpus.iter().map(String::as_str).collect::<Vec<_>>(), true));
        let is_vllm = self.spec.parity() == ParityName::Vllm;
        if self.is_free("tp") && self.is_free("pp") {
            self.list.push(Axis::of("tp", &TENSOR_SIZES, true));
        }
        if is_vllm && self.is_free("kv-cache-dtype") {
            self.list.push(Axis::of("kv-cache-dtype", &["fp8"], true).beside_default());
        }
        let has_experts = models.iter().any(|model| self.facts(model).is_some_and(|facts| facts.has_experts));
        if is_vllm && has_experts && self.is_free("enable-expert-parallel") {
            self.list.push(Axis::of("enable-expert-parallel", &["true"], true).beside_default());
        }
        if is_vllm && self.may_have_roles() {
            let roles = [("prefill-instances", "1"), ("decode-instances", "1"), ("pd-decider", "always")];
            let roles = roles.map(|(name, value)| (SettingKey::named(name), value.to_owned())).to_vec();
            self.list.push(Axis { values: vec![Vec::new(), roles], is_main: true });
        }
        if self.is_free("max-num-batched-tokens") {
            self.list.push(Axis::of("max-num-batched-tokens", &TOKEN_BUDGETS, false).beside_default());
        }
        if self.is_free("max-num-seqs") {
            self.list.push(Axis::of("max-num-seqs", &BATCH_SIZES, false).beside_default());
        }
        self.add_routers();
        Ok(())
    }

    /// Whether the user left open what the setting is.
    fn is_free(&self, name: &'static str) -> bool {
        !self.spec.has(name) && !self.varied.contains(name)
    }

    /// What decides about the axes of `model`; `None` if its config is not known.
    fn facts(&self, model: &str) -> Option<AxisFacts> {
        let folder = self.spec.model_config_folder.clone();
        let args = ModelArgs { model: model.to_owned(), folder, tensor: 1, ..ModelArgs::default() };
        let facts = blis_config::explain_model(&args).ok()?;
        Some(AxisFacts {
            has_experts: facts.active_parameters < facts.parameters,
            is_quantised: facts.quantization.is_some(),
        })
    }

    /// Whether prefill apart from decode is tried.
    fn may_have_roles(&self) -> bool {
        let roles_are_free = self.is_free("prefill-instances") && self.is_free("decode-instances");
        let is_decided = !self.is_free("pd-decider") || !self.is_free("disaggregation-policy");
        let is_fixed = !self.is_free("num-instances") || !self.is_free("latency-model") || !self.is_free("group");
        let is_gated = !self.is_free("autoscaler") || !self.is_free("flow-control");
        let has_other = has_roles(&self.spec) || self.spec.has_bundle();
        roles_are_free && !is_decided && !is_fixed && !is_gated && !has_other
    }

    /// The values of a setting with several, which then is an axis.
    fn listed(&mut self, name: &'static str) -> Vec<String> {
        let key = SettingKey::named(name);
        let texts = if self.varied.contains(name) { Vec::new() } else { self.spec.texts_of(key) };
        let values: Vec<String> = texts.iter().flat_map(|text| text.split(',')).map(|v| v.trim().to_owned()).collect();
        if values.len() > 1 {
            self.spec.unset(key);
        }
        values.into_iter().filter(|value| !value.is_empty()).collect()
    }

    /// The GPUs of `--hardware`, or those of the price list.
    fn gpus(&mut self) -> Result<Vec<String>, RunError> {
        let listed = self.listed("hardware");
        if !listed.is_empty() || self.varied.contains("hardware") {
            return Ok(listed);
        }
        let Some(path) = &self.spec.prices else { return Ok(Vec::new()) };
        let catalogue = Catalogue::load(self.spec.hardware_config.as_deref()).map_err(RunError::refused)?;
        let prices = crate::prices::Prices::load(path)?;
        let (known, others): (Vec<&str>, Vec<&str>) = prices.gpus().partition(|name| catalogue.find(name).is_ok());
        if !others.is_empty() {
            self.notes.push(format!("GPUs of the price list without a description, left out: {}", others.join(", ")));
        }
        if known.is_empty() {
            let what = format!("{}: no GPU of the price list is known", path.display());
            return Err(RunError::usage(what).hint("`blis hardware` lists the GPUs; name one with `--hardware`"));
        }
        Ok(known.into_iter().map(str::to_owned).collect())
    }

    /// `model` as published, and in the formats that are allowed.
    fn weights_of(&self, model: &str, weights: &[Weights]) -> Vec<SettingValues> {
        let named = |name: String| (SettingKey::named("model"), name);
        let mut values = vec![vec![named(model.to_owned())]];
        let is_vllm = self.spec.parity() == ParityName::Vllm;
        let is_quantised = self.facts(model).is_some_and(|facts| facts.is_quantised);
        if is_vllm && !is_quantised && self.is_free("quantization") && self.is_free("dtype") {
            if weights.contains(&Weights::Fp8) {
                values.push(vec![named(model.to_owned()), (SettingKey::named("quantization"), "fp8".to_owned())]);
            }
            if weights.contains(&Weights::Nvfp4) && blis_config::local_path(model).is_none() {
                values.push(vec![named(format!("{model}-nvfp4"))]);
            }
        }
        values
    }

    fn add_routers(&mut self) {
        let listed = self.listed("routing-policy");
        if listed.len() > 1 {
            self.list.push(Axis::of("routing-policy", &listed.iter().map(String::as_str).collect::<Vec<_>>(), false));
        }
        let decides = self.spec.entries().any(|(key, _)| key.decides_routing());
        if listed.is_empty() && !decides && !self.spec.has_bundle() && self.is_free("routing-policy") {
            self.list.push(Axis::of("routing-policy", &ROUTERS, false));
        }
    }
}

/// The space as it is filled.
struct SpaceFilling {
    budget: Budget,
    space: Space,
    /// What tells designs apart; one that is known is left out.
    known: BTreeSet<String>,
}

/// Reasons for which designs are left out before anything is simulated.
mod reason {
    pub const MEMORY: &str = "does not fit the memory";
    pub const BUDGET: &str = "one replica exceeds the budget";
    pub const FORMAT: &str = "format of weights not possible";
    pub const REFUSED: &str = "cannot be deployed";
}

impl SpaceFilling {
    fn add_combinations(&mut self, spec: &ExperimentSpec, axes: &[Axis]) -> Result<(), RunError> {
        let axes: Vec<&Axis> = axes.iter().filter(|axis| !axis.values.is_empty()).collect();
        let size = axes.iter().fold(1_usize, |size, axis| size.saturating_mul(axis.values.len()));
        if size > MOST_DESIGNS {
            let what = format!("there are {size} combinations of values, more than {MOST_DESIGNS}");
            return Err(RunError::usage(what).hint("set what is decided, as `--tp 2`, or vary fewer settings"));
        }
        let mut families: BTreeMap<Vec<usize>, usize> = BTreeMap::new();
        for mut number in 0..size {
            let mut indices = vec![0; axes.len()];
            for (index, axis) in indices.iter_mut().zip(&axes).rev() {
                *index = number % axis.values.len();
                number /= axis.values.len();
            }
            let main = indices.iter().zip(&axes).filter(|(_, axis)| axis.is_main).map(|(&index, _)| index);
            let next = families.len();
            let family = *families.entry(main.collect()).or_insert(next);
            let settings: SettingValues =
                indices.iter().zip(&axes).flat_map(|(&index, axis)| axis.values[index].iter().cloned()).collect();
            let varies_batches = indices.iter().zip(&axes).any(|(&index, axis)| !axis.is_main && index > 0);
            self.add(spec, settings, family, varies_batches)?;
        }
        Ok(())
    }

    fn cut(&mut self, reason: &'static str, example: String) {
        self.space.size += usize::from(reason != reason::BUDGET);
        *self.space.cut.entry(reason).or_default() += 1;
        self.space.examples.entry(reason).or_insert(example);
    }

    /// Adds the design with these `settings`, or counts why it is left out. `varies`: it is not the first of its family.
    fn add(
        &mut self,
        base: &ExperimentSpec,
        settings: SettingValues,
        family: usize,
        varies: bool,
    ) -> Result<(), RunError> {
        let mut spec = base.clone();
        for (key, value) in &settings {
            spec.unset(key);
            spec.set(key, value, SettingSource::Flag("blis advise".into())).map_err(|message| {
                RunError::usage(format_args!("`--{}` is `{value}`: {message}", key.name))
                    .hint("correct it, or leave it out")
            })?;
        }
        let roles = has_roles(&spec);
        if roles && varies && !has_roles(base) {
            // Batches and routers of a design with roles have their defaults.
            return Ok(());
        }
        let service = Experiment::new(spec.clone(), OutputFiles::default())?;
        let deployment = match open::resolve(&service) {
            Ok(deployment) => deployment,
            Err(error) => return self.refused(&service, error),
        };
        if !can_compute(&service, &deployment) {
            self.cut(reason::FORMAT, String::new());
            return Ok(());
        }
        if !self.is_new(&service, &deployment, &settings) {
            return Ok(());
        }
        self.space.size += 1;
        let usd_per_gpu_hour = service.usd_per_gpu_hour(&deployment)?;
        let fixed_roles = has_roles(base).then(|| ReplicaLayout::of_roles(&service)).flatten();
        let pinned = spec.num_instances.or(fixed_roles.map(|layout| layout.replicas));
        let within = self.budget.replicas(deployment.gpus(), usd_per_gpu_hour, MOST_REPLICAS);
        let least = pinned.unwrap_or(if roles { 2 } else { 1 });
        let most = pinned.map_or(within, |pinned| pinned.min(within));
        if most < least {
            self.cut(reason::BUDGET, String::new());
            return Ok(());
        }
        let settings = settings.into_iter().map(|(key, value)| VariedSetting { name: key.name.to_owned(), value });
        self.space.designs.push(Design {
            settings: settings.collect(),
            gpus: deployment.gpus(),
            usd_per_gpu_hour,
            family,
            has_roles: roles,
            fixed_roles,
            is_sized: pinned.is_some(),
            least,
            most,
            spec,
            service,
            deployment,
        });
        Ok(())
    }

    /// Counts a design that cannot be resolved.
    ///
    /// # Errors
    /// If the reason is no matter of the axes: the first design of all says so, unless it does not fit.
    fn refused(&mut self, service: &Experiment, error: RunError) -> Result<(), RunError> {
        let found = blis_config::resolve(&service.deployment);
        let what = error.diagnostic().headline().to_string();
        let reason = match found {
            // With a set parallel size, what is too large for the memory is a conflict of settings.
            Err(ConfigError::Capacity { .. } | ConfigError::Conflict { .. }) if is_about_memory(&what) => {
                reason::MEMORY
            }
            Err(ConfigError::Conflict { .. }) if service.spec.quantization.is_some() => reason::FORMAT,
            Err(ConfigError::Unknown { .. } | ConfigError::Read { .. } | ConfigError::Parse(_)) => return Err(error),
            _ => reason::REFUSED,
        };
        self.cut(reason, what);
        Ok(())
    }

    /// Whether no design before resolves to the same deployment, and what its formats need exists on the GPU.
    fn is_new(&mut self, service: &Experiment, deployment: &Deployment, settings: &SettingValues) -> bool {
        let is_of_axis = |name: &str| {
            let is_of_model = matches!(name, "model" | "quantization" | "kv-cache-dtype" | "enable-expert-parallel");
            is_of_model || matches!(name, "max-num-batched-tokens" | "max-num-seqs")
        };
        let others = settings.iter().filter(|(key, _)| !is_of_axis(key.name));
        let others: Vec<String> = others.map(|(key, value)| format!("{}={value}", key.name)).collect();
        let experts = deployment.fact("num_experts").unwrap_or(1.0) > 1.0 && deployment.gpus() > 1;
        let is_split = experts && service.deployment.enable_expert_parallel;
        let limits = deployment.batch_limits;
        let key = format!(
            "{} {} {:?} {} {} {} {is_split} {others:?}",
            short_name(&service.deployment.model),
            deployment.hardware,
            deployment.precision,
            deployment.total_kv_blocks,
            limits.max_num_seqs,
            limits.max_num_batched_tokens,
        );
        self.known.insert(key)
    }
}

/// Whether a message is about a model that is too large.
fn is_about_memory(what: &str) -> bool {
    ["does not fit", "memory"].iter().any(|words| what.contains(words))
}

/// Whether the GPU computes in the format to which weights are quantised, if they are.
fn can_compute(service: &Experiment, deployment: &Deployment) -> bool {
    let Ok(catalogue) = Catalogue::load(service.deployment.hardware_config.as_deref()) else { return true };
    let Ok(gpu) = catalogue.find(&deployment.hardware).map(|found| found.gpu) else { return true };
    let needs_fp8 = service.spec.quantization.is_some() && deployment.precision.changed;
    let needs_fp4 = service.deployment.model.to_lowercase().ends_with("-nvfp4");
    (!needs_fp8 || gpu.tflops_fp8 > 0.0) && (!needs_fp4 || gpu.tflops_fp4 > 0.0)
}

/// The error where no design can be deployed.
pub(super) fn without_designs(space: &Space) -> RunError {
    let counts = space.cut.iter().map(|(reason, count)| format!("{count} {reason}"));
    let counts = counts.collect::<Vec<_>>().join("; ");
    let example = space.examples.values().find(|text| !text.is_empty());
    let what = format!("none of {} deployments is possible: {counts}", space.size);
    let hint = "allow more GPUs (--max-gpus, --budget), larger ones (--hardware), or other formats (--allow)";
    let hint = example.map_or(hint.to_owned(), |example| format!("{hint}; one of them: {example}"));
    RunError::usage(what).hint(hint)
}
