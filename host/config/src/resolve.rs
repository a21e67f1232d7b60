//! Resolves a deployment: fills in the options that the user leaves out.

use std::path::Path;
use std::sync::Arc;

use blis_sim::architecture::{Attention, AttentionSpan};
use blis_sim::capacity::{self, CapacityError, MemoryBudget};
use blis_sim::energy::StepEnergy;
use blis_sim::kv::pages::{CacheSettings, KvLayout, NeedsTooMuch};
use blis_sim::latency::physics::ServerNode;
use blis_sim::latency::{
    Blackbox, LatencyError, LatencyModel, Launch, MoeComm, Physics, PhysicsAlpha, PhysicsBeta, Pipeline, Roofline,
    Serving, TrainedPhysics,
};
use blis_sim::memory::{self, EngineBlocks, MemoryProfile};
use blis_sim::model::{ModelConfig, Parallelism};
use blis_sim::offload::OffloadConfig;

use super::adapters::DeployedAdapters;
use super::architecture;
use super::coefficients::{BlackboxRow, Presets, TrainedDefaults, blackbox_rows};
use super::deployment::{LargestErrors, StatedCoefficients, Validation};
use super::engine::{BatchLimits, BatchSettings};
use super::error::ConfigError;
use super::hardware::{Catalogue, Hardware, MeasuredKernels, Network, UsualGpu};
use super::kv_groups::GdnPrefill;
use super::model::LoadedModel;
use super::physics::{CoefficientFile, ErrorClass, WorstErrors};
use super::precision::Precision;
use super::{
    Deployment, DeploymentArgs, KvBlocksSource, LatencyKind, MemoryWarning, latency_parameters, model_source,
    short_name,
};
use blis_diag::Diagnostic;

const DEFAULT_HARDWARE: &str = "H100";

/// The largest tensor-parallel size that is tried if none is given.
const LARGEST_TENSOR_PARALLEL: u32 = 64;

/// The numbers of pipeline stages that are tried if no tensor parallel size holds the model, and the largest tensor parallel
/// size with them: the GPUs of a node.
const PIPELINE_STAGES: [u32; 4] = [2, 4, 8, 16];
const LARGEST_STAGE: u32 = 8;

/// Tokens per block of the KV cache sizes that are recorded with blackbox coefficients.
const RECORDED_BLOCK_SIZE: u64 = 16;

/// Resolves the options to a deployment in which everything has a value.
///
/// # Errors
/// If options are out of range, contradict each other or contain an unknown name; if a file is invalid; or if the model
/// does not fit its GPUs.
pub fn resolve(args: &DeploymentArgs) -> Result<Deployment, ConfigError> {
    check_ranges(args)?;
    let (mut notes, mut warnings) = (Vec::new(), Vec::new());
    let catalogue = Catalogue::load(args.hardware_config.as_deref())?;
    let (name, config) = model_source::load(&args.model, args.model_config_folder.as_deref(), &mut notes)?;
    let (config, precision) = args.precision.apply(&name, config, &mut notes)?;
    let kind = latency_kind(args, &name, config.as_ref(), &mut notes)?;
    let row = if kind == LatencyKind::Blackbox && args.beta_coeffs.is_none() {
        Some(blackbox_row(args, &name, &catalogue, &mut notes)?)
    } else {
        None
    };
    if let (Some(_), Some(option)) = (row, args.precision.first_set()) {
        return Err(ConfigError::Conflict {
            message: format!(
                "`{option}` changes nothing of blackbox coefficients: they are those of {name} as measured"
            ),
            hint: "leave it out, or choose another latency model with `--latency-model`".into(),
        });
    }
    let hardware = choose_hardware(args, row, &catalogue, &mut notes)?;
    let moe_comm = moe_comm(args, kind, config.as_ref())?;
    check_pipeline(args, kind)?;
    check_eager(args, kind)?;
    let (pipeline, config) = (args.pipeline_parallel_size.unwrap_or(1), config.as_ref());
    let kernels = (kind == LatencyKind::Physics).then(|| catalogue.kernels(hardware)).transpose()?;
    let mut choice = Resolution {
        args,
        name: &name,
        config,
        precision: &precision,
        kernels,
        hardware,
        kind,
        row,
        moe_comm,
        pipeline,
    };

    let tensor_parallel_size = choice.tensor_parallel_size(&mut notes)?;
    let adapters = choice.adapters(tensor_parallel_size)?;
    notes.extend(adapters.as_ref().map(DeployedAdapters::note));
    let StatedCoefficients { mut alpha, mut beta, validation } = choice.coefficients(tensor_parallel_size)?;
    notes.extend(validation.iter().map(|validation| validation.text.clone()));
    replace_coefficients(args, kind, &mut alpha, &mut beta, &mut notes)?;
    let latency = choice.latency(tensor_parallel_size, &alpha, &beta)?;
    let (mut batch_limits, batch_limits_source) = choice.batch_limits();
    let mut memory_warnings = Vec::new();
    let kv_cache = choice.kv_cache(tensor_parallel_size, &mut notes, &mut memory_warnings)?;
    let DeployedCache { total_kv_blocks, source: kv_blocks_source, block_size, .. } = kv_cache;
    let max_model_len = choice.max_model_len(&kv_cache, &mut notes, &mut memory_warnings)?;
    let kv_layout = choice.deployed_layout(&kv_cache, max_model_len);
    if let Some(layout) = &kv_layout {
        batch_limits.max_num_seqs = choice.decodes_at_once(layout, batch_limits.max_num_seqs, &mut memory_warnings)?;
    }
    let memory = choice.memory(tensor_parallel_size, &kv_cache, &mut memory_warnings);
    notes.extend(memory.iter().filter_map(|memory| choice.memory_note(memory, &kv_cache, tensor_parallel_size)));

    if kind != LatencyKind::Blackbox {
        notes.extend(config.into_iter().flat_map(|config| config.notes.iter().cloned()));
        warnings.extend(config.into_iter().flat_map(|config| config.warnings.iter().cloned()));
        if kind != LatencyKind::Physics {
            notes.extend(config.into_iter().flat_map(|config| config.formula_notes.iter().cloned()));
        }
        choice.note_cache(&kv_cache, &mut notes);
        notes.extend(hardware.notes.iter().cloned());
    }
    if let Some(kernels) = &choice.kernels {
        notes.extend(kernel_notes(
            &hardware.name,
            kernels,
            tensor_parallel_size.saturating_mul(args.data_parallel_size).saturating_mul(choice.pipeline),
        ));
        if hardware.gpu.tflops_fp8 == 0.0 && config.is_some_and(|model| model.config.weight_bytes == 1.0) {
            notes.push(format!("{} has no FP8: products with 8-bit weights are computed in 16 bits", hardware.name));
        }
    }
    if args.enable_expert_parallel && kind != LatencyKind::Physics {
        notes.push("expert parallelism changes no step time in this model".into());
    }
    let parallelism = Parallelism { tensor: tensor_parallel_size, data: args.data_parallel_size };
    let pipeline_parallel_size = choice.pipeline;
    let weight_bytes = config.map(|model| memory::weight_bytes(&model.config, parallelism, pipeline_parallel_size));
    let stages = f64::from(pipeline_parallel_size);
    let kv_token_bytes = config.map(|model| match args.batch.engine {
        Some(_) => memory::kv_bytes_per_token(&model.config, tensor_parallel_size) / stages,
        None => capacity::kv_bytes_per_token(&model.config, f64::from(tensor_parallel_size)) / stages,
    });
    let energy = choice.energy(tensor_parallel_size);
    let engine_processes = choice.engine_processes();
    let offload = choice.offload(tensor_parallel_size, &mut notes)?;
    let tiers = args.blis_tiers.as_ref();
    let blis_tiers = tiers
        .map(|tiers| tiers.resolve(config.map(|model| &model.config), tensor_parallel_size, args.block_size))
        .transpose()?;
    Ok(Deployment {
        hardware: hardware.name.clone(),
        tensor_parallel_size,
        pipeline_parallel_size,
        data_parallel_size: args.data_parallel_size,
        precision,
        latency,
        energy,
        latency_kind: kind,
        alpha,
        beta,
        engine_processes,
        total_kv_blocks,
        kv_blocks_source,
        block_size,
        kv_layout,
        gpu_memory_utilization: args.utilization(),
        memory,
        batch_limits,
        batch_limits_source,
        max_model_len,
        offload,
        blis_tiers,
        validation,
        adapters,
        weight_bytes,
        kv_token_bytes,
        model_facts: model_facts(config, hardware, parallelism),
        notes,
        warnings,
        memory_warnings,
        model: name,
    })
}

/// Where the step times of a GPU's kernels and of `gpus` GPUs' links come from.
fn kernel_notes(hardware: &str, kernels: &MeasuredKernels, gpus: u32) -> Vec<String> {
    let mut notes = vec![match &kernels.measured_on {
        None => format!("kernels of {hardware}: {}", kernels.source),
        Some(other) => format!(
            "kernel efficiencies of {hardware} are not measured: those of {other} are used, as shares of the peaks of {hardware}; the error \
             is unknown ({other}: {})",
            kernels.source
        ),
    }];
    if gpus < 2 {
        return notes;
    }
    notes.push(match &kernels.links_measured_on {
        None => format!("links of {hardware}: {}", kernels.links_source),
        Some(other) => {
            format!("links of {hardware} are not measured: those of {other} are used ({})", kernels.links_source)
        }
    });
    let ServerNode { gpus: per_node, network_gb_s, network_us } = kernels.curves.links.node;
    if gpus > per_node {
        let Network { name, source } = &kernels.network;
        notes.push(format!(
            "{gpus} GPUs are {} nodes of {per_node}: their collectives cross {name}, {network_gb_s} GB/s per GPU and direction and \
             {network_us} µs per message ({source}); not validated",
            gpus.div_ceil(per_node)
        ));
    }
    notes
}

/// Replaces the coefficients that are set by name, and adds a note that lists them.
fn replace_coefficients(
    args: &DeploymentArgs,
    kind: LatencyKind,
    alpha: &mut [f64],
    beta: &mut [f64],
    notes: &mut Vec<String>,
) -> Result<(), ConfigError> {
    let values = &args.latency_parameters;
    if values.is_empty() {
        return Ok(());
    }
    latency_parameters::replace(kind, values, alpha, beta)?;
    let values: Vec<_> = values.iter().map(|(name, value)| format!("{name} {}", value.value)).collect();
    notes.push(format!("{kind} with coefficients of its own ({}): not validated", values.join(", ")));
    Ok(())
}

/// Properties for latency models that are plugins, by the names in `config.json` and in the GPU's file. Without a model
/// configuration, only those of the GPU.
fn model_facts(config: Option<&LoadedModel>, hardware: &Hardware, parallelism: Parallelism) -> Vec<(String, f64)> {
    let gpu = &hardware.gpu;
    let mut facts = vec![
        ("tensor_parallel_size", f64::from(parallelism.tensor)),
        ("data_parallel_size", f64::from(parallelism.data)),
        ("tflops_fp16", gpu.tflops_fp16),
        ("tflops_fp8", gpu.tflops_fp8),
        ("tflops_fp4", gpu.tflops_fp4),
        ("hbm_tb_s", gpu.hbm_tb_s),
        ("l2_mb", gpu.l2_mb),
        ("memory_gib", gpu.memory_gib),
    ];
    if let Some(mfu) = gpu.mfu {
        facts.extend([("mfu_prefill", mfu.prefill), ("mfu_decode", mfu.decode)]);
    }
    if let Some(LoadedModel { config, .. }) = config {
        facts.extend([
            ("num_hidden_layers", f64::from(config.num_hidden_layers)),
            ("hidden_size", f64::from(config.hidden_size)),
            ("num_attention_heads", f64::from(config.num_attention_heads)),
            ("num_key_value_heads", f64::from(config.num_key_value_heads)),
            ("vocab_size", f64::from(config.vocab_size)),
            ("intermediate_size", f64::from(config.intermediate_size)),
            ("dtype_bytes", config.dtype_bytes),
            ("kv_dtype_bytes", config.kv_dtype_bytes),
            ("weight_bytes", config.weight_bytes),
        ]);
        facts.extend(config.head_dim.map(|dim| ("head_dim", f64::from(dim))));
        if let Some(moe) = config.moe {
            facts.extend([
                ("num_experts", f64::from(moe.num_experts)),
                ("num_experts_per_tok", f64::from(moe.num_experts_per_tok)),
                ("moe_layers", f64::from(config.moe_layers())),
                ("expert_width", f64::from(config.expert_width())),
                ("shared_intermediate_size", f64::from(moe.shared_intermediate_size)),
            ]);
        }
        if let Some(mla) = config.mla {
            facts.extend([
                ("kv_lora_rank", f64::from(mla.kv_lora_rank)),
                ("qk_rope_head_dim", f64::from(mla.qk_rope_head_dim)),
            ]);
        }
    }
    facts.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// KV blocks that fit a group of GPUs.
#[derive(Clone)]
enum FittingBlocks {
    /// By BLIS's formula, over all data-parallel ranks.
    Blis(u64),
    /// By vLLM's balance, of one rank.
    Vllm(EngineBlocks),
}

/// The KV cache of an instance.
#[derive(Clone)]
struct DeployedCache {
    /// Blocks of all engine processes.
    total_kv_blocks: u32,
    source: KvBlocksSource,
    /// What vLLM would find, where the number of blocks follows from it.
    computed: Option<EngineBlocks>,
    /// Tokens of a block, or of one content hash of the groups.
    block_size: u32,
    /// The KV groups, if they are known.
    layout: Option<KvLayout>,
}

/// The part of the deployment that is resolved first.
struct Resolution<'a> {
    args: &'a DeploymentArgs,
    name: &'a str,
    config: Option<&'a LoadedModel>,
    precision: &'a Precision,
    /// Of the latency model `physics` only.
    kernels: Option<MeasuredKernels>,
    hardware: &'a Hardware,
    kind: LatencyKind,
    row: Option<&'static BlackboxRow>,
    moe_comm: MoeComm,
    /// Pipeline stages.
    pipeline: u32,
}

impl Resolution<'_> {
    /// The option, the size of the coefficients' deployment, or the smallest power of two that holds the model. May set the
    /// number of pipeline stages, if the option is absent.
    fn tensor_parallel_size(&mut self, notes: &mut Vec<String>) -> Result<u32, ConfigError> {
        if let Some(size) = self.args.tensor_parallel_size.or(self.row.map(|row| row.tensor_parallel_size)) {
            return Ok(size);
        }
        let blackbox = self.kind == LatencyKind::Blackbox;
        let preset = if blackbox { Presets::get().tensor_parallel_size(self.name) } else { None };
        let (size, why) = match (self.kind, preset, self.config) {
            (LatencyKind::Blackbox, Some(size), _) => (size, "the preset of this model".to_owned()),
            (_, _, Some(_)) => self.smallest_start(notes)?,
            (_, _, None) => (1, "the default without a model config".to_owned()),
        };
        notes.push(format!("tensor parallel size {size}: {why}"));
        Ok(size)
    }

    /// The adapters with that tensor-parallel size, if there are any.
    fn adapters(&self, tensor: u32) -> Result<Option<DeployedAdapters>, ConfigError> {
        let Some(args) = &self.args.adapters else { return Ok(None) };
        DeployedAdapters::new(args, self.name, self.config.map(|model| &model.config), tensor)
    }

    /// The energy of a step, if model and power are known.
    fn energy(&self, tensor: u32) -> Option<StepEnergy> {
        let (model, power) = (&self.config?.config, self.hardware.power?);
        let parallelism = Parallelism { tensor, data: self.args.data_parallel_size };
        Some(StepEnergy::new(model, &self.hardware.gpu, power, parallelism, self.pipeline))
    }

    fn smallest_fit(&self, largest: u32) -> Result<u32, ConfigError> {
        self.smallest(largest, |_| true)
    }

    /// The smallest fit that leaves room for a request of `max_model_len`, without which vLLM does not start; if none does, the smallest
    /// fit. With the reason.
    fn smallest_start(&mut self, notes: &mut Vec<String>) -> Result<(u32, String), ConfigError> {
        let size = self.smallest_fit_with_stages(notes)?;
        let holds = || "the smallest that holds the model".to_owned();
        let Some(longest) = self.request_tokens().filter(|_| !self.args.auto_model_len) else {
            return Ok((size, holds()));
        };
        let starts = |capacity: &FittingBlocks| match capacity {
            FittingBlocks::Blis(_) => true,
            FittingBlocks::Vllm(blocks) => blocks.check_start(longest).is_ok(),
        };
        let largest = if self.pipeline > 1 { LARGEST_STAGE } else { LARGEST_TENSOR_PARALLEL };
        Ok(match self.smallest(largest, starts) {
            Ok(larger) if larger > size => {
                (larger, format!("the smallest that holds the model and a request of max_model_len {longest} tokens"))
            }
            Ok(_) | Err(_) => (size, holds()),
        })
    }

    /// The smallest fit; if there is none and the number of pipeline stages is free, that with the fewest stages.
    fn smallest_fit_with_stages(&mut self, notes: &mut Vec<String>) -> Result<u32, ConfigError> {
        let without = self.smallest_fit(LARGEST_TENSOR_PARALLEL);
        let computed = self.kind == LatencyKind::Physics && self.args.batch.engine.is_some();
        if without.is_ok() || !computed || self.args.pipeline_parallel_size.is_some() {
            return without;
        }
        for stages in PIPELINE_STAGES {
            self.pipeline = stages;
            if let Ok(size) = self.smallest_fit(LARGEST_STAGE) {
                notes.push(format!("pipeline parallel size {stages}: no tensor parallel size alone holds the model"));
                return Ok(size);
            }
        }
        self.pipeline = 1;
        without
    }

    /// The smallest size with which the weights fit, and `starts` holds.
    fn smallest(&self, largest: u32, starts: impl Fn(&FittingBlocks) -> bool) -> Result<u32, ConfigError> {
        let config = self.config_for("the tensor parallel size", ", or give `--tensor-parallel-size`")?;
        let sizes = std::iter::successors(Some(1u32), |size| size.checked_mul(2));
        let mut refusal = None;
        for size in sizes.take_while(|size| *size <= largest) {
            let divides = |heads: u32| heads.is_multiple_of(size);
            let even = divides(config.num_attention_heads) && divides(config.num_key_value_heads);
            if self.kind == LatencyKind::TrainedPhysics && size > 1 && !even {
                break;
            }
            // Fewer KV heads than GPUs are replicated, query heads are not.
            if self.kind == LatencyKind::Physics && !divides(config.num_attention_heads) {
                break;
            }
            // By the server's own share of memory and limits of a batch, which settings of these do not change.
            match self.capacity_with(config, size, self.args.default_utilization(), self.default_batch()) {
                Ok(capacity) if starts(&capacity) => return Ok(size),
                Ok(_) => {}
                Err(error @ CapacityError::DoesNotFit { .. }) => refusal = Some(error),
                Err(error @ CapacityError::KvHeadsNotDivisible { .. }) => {
                    refusal.get_or_insert(error);
                    break;
                }
                Err(error) => return Err(self.capacity_error(None, error)),
            }
        }
        Err(self.capacity_error(None, refusal.unwrap_or(CapacityError::Missing { field: "num_attention_heads" })))
    }

    fn coefficients(&self, tensor: u32) -> Result<StatedCoefficients, ConfigError> {
        let unknown = |alpha: &[f64], beta: &[f64]| StatedCoefficients {
            alpha: alpha.to_vec(),
            beta: beta.to_vec(),
            validation: None,
        };
        if let (Some(alpha), Some(beta)) = (&self.args.alpha_coeffs, &self.args.beta_coeffs) {
            return Ok(unknown(alpha, beta));
        }
        Ok(match (self.kind, self.row) {
            (LatencyKind::Physics, _) => self.physics_coefficients(tensor)?,
            (LatencyKind::TrainedPhysics, _) => {
                let defaults = TrainedDefaults::get();
                unknown(&defaults.alpha, &defaults.beta)
            }
            (_, Some(row)) => unknown(&row.alpha, &row.beta),
            (_, None) => unknown(&[0.0; 3], &[0.0; 3]),
        })
    }

    /// The coefficients fitted to this deployment, else the general ones, and how they were validated.
    fn physics_coefficients(&self, tensor: u32) -> Result<StatedCoefficients, ConfigError> {
        let file = CoefficientFile::load(self.args.coefficients.as_deref())?;
        let replicated = self.args.data_parallel_size > 1 || self.pipeline > 1;
        let plain = !replicated && !self.args.enable_expert_parallel && !self.precision.changed;
        let exact = file.exact(self.name, &self.hardware.name, tensor).filter(|_| plain);
        let coefficients = exact.unwrap_or(&file.general);
        let origin = match exact {
            Some(_) => "measured on this deployment",
            None => "general, not measured on this deployment",
        };
        let tested = match exact {
            Some(exact) => self.tested(exact.worst(None), "that took no part in the fit", None),
            None => {
                let which = match file.general.models_left_out() {
                    true => "each with its model left out of the fit",
                    // Those runs took part in the choice of some coefficients: no error of unseen deployments is claimed.
                    false => "that helped to set them",
                };
                let class = self.config.map(|model| ErrorClass {
                    experts: model.config.moe.is_some(),
                    latent_attention: model.config.mla.is_some(),
                    weight_bytes: model.config.weight_bytes,
                    hardware: &self.hardware.name,
                });
                match class.map(|class| (class, file.general.worst(Some(class)))) {
                    _ if file.general.errors.is_empty() => Validation::missing("never validated"),
                    Some((class, worst @ Some(_))) => self.tested(worst, which, Some(class)),
                    Some((class, None)) => {
                        Validation::missing(format!("never tested on a deployment of its class, {class}"))
                    }
                    None => Validation::missing("never tested on this model"),
                }
            }
        };
        Ok(StatedCoefficients {
            alpha: coefficients.alpha.to_array().to_vec(),
            beta: coefficients.beta.to_array().to_vec(),
            validation: Some(Validation { text: format!("physics coefficients: {origin}; {}", tested.text), ..tested }),
        })
    }

    /// What is known about the errors of coefficients on the tested runs: of this deployment, or of its class. Settings
    /// that none of them had are named.
    fn tested(&self, worst: Option<WorstErrors>, which: &str, class: Option<ErrorClass<'_>>) -> Validation {
        let Some(worst) = worst else { return Validation::missing("never validated") };
        let untested = [
            (self.args.enforce_eager, "--enforce-eager"),
            (self.pipeline > 1, "pipeline parallelism"),
            (self.args.data_parallel_size > 1, "data parallelism"),
            (self.args.enable_expert_parallel, "--enable-expert-parallel"),
            (
                self.config.is_some_and(|model| model.config.kv_dtype_bytes < model.config.dtype_bytes),
                "an FP8 KV cache",
            ),
            (
                self.has_kind(
                    |kind| matches!(kind, Attention::Heads(heads) if matches!(heads.span, AttentionSpan::Window(_))),
                ),
                "sliding windows",
            ),
            (self.has_kind(|kind| matches!(kind, Attention::Linear(_))), "linear attention"),
            (self.has_kind(|kind| matches!(kind, Attention::Matrix | Attention::None)), "layers without attention"),
            (self.has_4bit_experts(), "experts in 4 bits"),
        ];
        let untested: Vec<&str> = untested.into_iter().filter_map(|(set, what)| set.then_some(what)).collect();
        let runs = match class {
            None => format!("on requests of {} runs {which}", worst.runs),
            Some(class) => format!("on {} runs of its class, {class}, {which}", worst.runs),
        };
        match untested[..] {
            [] => {
                let share = |percent: f64| percent / 100.0;
                let largest = LargestErrors { prefill: share(worst.mean_ttft), decode: share(worst.mean_e2e) };
                // Errors of a class are those of other deployments.
                let largest = class.is_none().then_some(largest);
                Validation { text: format!("{worst} {runs}"), is_tested: true, largest }
            }
            _ => Validation::missing(format!("never tested with {}", untested.join(" and "))),
        }
    }

    /// Whether some layers of the model attend so.
    fn has_kind(&self, is_kind: impl Fn(&Attention) -> bool) -> bool {
        let architecture = self.config.and_then(|model| model.config.architecture.as_ref());
        architecture.is_some_and(|layers| layers.attentions().iter().any(|(_, kind)| is_kind(kind)))
    }

    fn has_4bit_experts(&self) -> bool {
        let architecture = self.config.and_then(|model| model.config.architecture.as_ref());
        architecture.and_then(|layers| layers.weights.experts).is_some_and(|bytes| bytes < 1.0)
    }

    fn physics(
        &self,
        parallelism: Parallelism,
        alpha: &[f64],
        beta: &[f64],
    ) -> Result<Arc<dyn LatencyModel>, LatencyError> {
        let count =
            |name, expected, actual| LatencyError::CoefficientCount { model: "physics", name, expected, actual };
        let alpha: [f64; 3] = alpha.try_into().map_err(|_| count("alpha", "3", alpha.len()))?;
        let beta: [f64; 10] = beta.try_into().map_err(|_| count("beta", "10", beta.len()))?;
        let model = self.config.ok_or(LatencyError::Missing { field: "config.json" })?;
        let serving = Serving {
            expert_parallel: self.args.enable_expert_parallel,
            sampling: model.sampling,
            sampler: self.args.sampler,
            launch: match (self.args.enforce_eager, model.chunked_attention) {
                (true, _) => Launch::Eager,
                (false, true) => Launch::Piecewise,
                (false, false) => Launch::Graph,
            },
            pipeline: self.pipeline,
            ..Serving::on(parallelism)
        };
        let kernels = self.kernels.as_ref().ok_or(LatencyError::Missing { field: "kernels" })?;
        let (gpu, curves) = (&self.hardware.gpu, &kernels.curves);
        let (alpha, beta) = (PhysicsAlpha::from(alpha), PhysicsBeta::from(beta));
        match serving.pipeline {
            1 => Physics::new(&model.config, gpu, curves, serving, alpha, beta).map(|model| Arc::new(model) as _),
            _ => Pipeline::new(&model.config, gpu, curves, serving, alpha, beta).map(|model| Arc::new(model) as _),
        }
    }

    fn latency(&self, tensor: u32, alpha: &[f64], beta: &[f64]) -> Result<Arc<dyn LatencyModel>, ConfigError> {
        let parallelism = Parallelism { tensor, data: self.args.data_parallel_size };
        let gpu = &self.hardware.blis_gpu();
        let config = || self.config_for(self.kind.name(), ", or three coefficients for blackbox");
        let error = |source| match source {
            LatencyError::Missing { field } if let Some(error) = self.missing_in_config(field) => error,
            source => ConfigError::Latency {
                kind: self.kind,
                model: self.name.into(),
                hardware: self.hardware.name.clone(),
                source,
            },
        };
        let built: Result<Arc<dyn LatencyModel>, LatencyError> = match self.kind {
            LatencyKind::Blackbox if parallelism.data > 1 => Err(LatencyError::DataParallel { data: parallelism.data }),
            LatencyKind::Blackbox => Blackbox::new(alpha, beta).map(|model| Arc::new(model) as _),
            LatencyKind::Physics => {
                config()?;
                self.physics(parallelism, alpha, beta)
            }
            LatencyKind::Roofline => Roofline::new(config()?, gpu, parallelism).map(|model| Arc::new(model) as _),
            LatencyKind::TrainedPhysics => TrainedPhysics::new(config()?, gpu, parallelism, self.moe_comm, alpha, beta)
                .map(|model| Arc::new(model) as _),
        };
        built.map_err(error)
    }

    /// The limits of a batch, and what their defaults follow.
    fn batch_limits(&self) -> (BatchLimits, &'static str) {
        self.limits_of(self.args.batch)
    }

    fn limits_of(&self, batch: BatchSettings) -> (BatchLimits, &'static str) {
        let given = self.args.max_model_len.filter(|given| *given > 0);
        let own = || u32::try_from(self.config?.config.max_model_len?).ok();
        batch.on(&self.hardware.name, self.hardware.usable_gib, given.or_else(own))
    }

    /// The CPU tier of an instance, with a note about its size.
    fn offload(&self, tensor: u32, notes: &mut Vec<String>) -> Result<Option<OffloadConfig>, ConfigError> {
        let Some(offload) = &self.args.offload else { return Ok(None) };
        let Some(LoadedModel { config, .. }) = self.config else {
            return Err(ConfigError::NoModelConfig {
                model: self.name.into(),
                needed_for: "a CPU tier (`--kv-offloading-size`)".into(),
                instead: "",
            });
        };
        let parallelism = Parallelism { tensor, data: self.args.data_parallel_size };
        let (tier, note) = offload.resolve(config, parallelism, self.pipeline, self.args.block_size)?;
        notes.push(note);
        Ok(Some(tier))
    }

    /// The settings of a batch without any option: the number of GPUs that is chosen for a model rests on them, so that no budget of tokens
    /// changes it.
    fn default_batch(&self) -> BatchSettings {
        BatchSettings { engine: self.args.batch.engine, ..BatchSettings::default() }
    }

    fn capacity(&self, config: &ModelConfig, tensor: u32) -> Result<FittingBlocks, CapacityError> {
        self.capacity_with(config, tensor, self.args.utilization(), self.args.batch)
    }

    fn capacity_with(
        &self,
        config: &ModelConfig,
        tensor: u32,
        utilization: f64,
        batch: BatchSettings,
    ) -> Result<FittingBlocks, CapacityError> {
        let parallelism = Parallelism { tensor, data: self.args.data_parallel_size };
        let block_size = self.args.block_size;
        match batch.engine {
            None => {
                let budget = MemoryBudget { utilization, reserved_gib: self.reserved_gib(tensor) };
                capacity::kv_blocks(config, &self.hardware.gpu, parallelism, block_size, budget)
                    .map(FittingBlocks::Blis)
            }
            Some(_) => {
                let profile = self.memory_profile(tensor, utilization, batch);
                memory::kv_blocks(config, parallelism, profile).map(FittingBlocks::Vllm)
            }
        }
    }

    /// Memory that adapters take.
    fn reserved_gib(&self, tensor: u32) -> f64 {
        // What is wrong with the adapters is reported once the size is known.
        self.adapters(tensor).ok().flatten().map_or(0.0, |adapters| adapters.reserved_gib)
    }

    /// What vLLM finds at its start with that share of memory and such batches.
    fn memory_profile(&self, tensor: u32, utilization: f64, batch: BatchSettings) -> MemoryProfile {
        let (BatchLimits { max_num_seqs, max_num_batched_tokens }, _) = self.limits_of(batch);
        MemoryProfile {
            version: self.args.version(),
            usable_gib: self.hardware.usable_gib,
            budget: MemoryBudget { utilization, reserved_gib: self.reserved_gib(tensor) },
            kv_bytes: self.args.kv_cache_memory_bytes,
            max_num_seqs,
            max_num_batched_tokens,
            eager: self.args.enforce_eager,
            multimodal: self.config.is_some_and(|model| model.multimodal),
            pipeline: self.pipeline,
            cache: self.cache_settings(),
            batches: self.pipeline.saturating_add(u32::from(self.args.cache.asynchronous)),
        }
    }

    /// What decides about KV groups and their blocks.
    fn cache_settings(&self) -> CacheSettings {
        let cache = &self.args.cache;
        let longest = self.request_tokens().unwrap_or(u64::from(u32::MAX));
        CacheSettings {
            block_size: self.args.block_size,
            max_model_len: u32::try_from(longest).unwrap_or(u32::MAX),
            prefix_caching: cache.prefix_caching,
            disable_hybrid: cache.disable_hybrid || self.args.offload.is_some(),
            prefix_match_unit: cache.prefix_match_unit,
            flashinfer_prefill: cache.gdn_prefill.unwrap_or_else(|| GdnPrefill::of_gpu(&self.hardware.name))
                == GdnPrefill::FlashInfer,
        }
    }

    /// Whether the model fits that share of memory beside such batches, with that tensor parallel size, or any.
    fn fits(&self, tensor: Option<u32>, utilization: f64, batch: BatchSettings) -> bool {
        let Some(LoadedModel { config, .. }) = self.config else { return false };
        let fits = |tensor| self.capacity_with(config, tensor, utilization, batch).is_ok();
        let any = || [1, 2, 4, 8, 16, 32, LARGEST_TENSOR_PARALLEL].into_iter().any(fits);
        tensor.map_or_else(any, fits)
    }

    /// What to change if the model fits with the defaults of the options that take memory away from it.
    fn fitting_hint(&self, tensor: Option<u32>) -> Option<String> {
        let (utilization, batch) = (self.args.utilization(), self.args.batch);
        let default_utilization = self.args.default_utilization();
        if self.args.kv_cache_memory_bytes.is_some() {
            return Some("raise `--kv-cache-memory-bytes`".to_owned());
        }
        if utilization < default_utilization && self.fits(tensor, default_utilization, batch) {
            let raise = format!("raise `--gpu-memory-utilization` from {utilization}");
            return Some(format!("{raise}: with the default {default_utilization} it fits"));
        }
        let usual = self.default_batch();
        if !self.fits(tensor, utilization, usual) {
            return None;
        }
        let ((own, _), (default, _)) = (self.limits_of(batch), self.limits_of(usual));
        let fewer_tokens = BatchSettings { max_num_seqs: batch.max_num_seqs, ..usual };
        let (option, given, default) = match self.fits(tensor, utilization, fewer_tokens) {
            true => ("--max-num-batched-tokens", own.max_num_batched_tokens, default.max_num_batched_tokens),
            false => ("--max-num-seqs", own.max_num_seqs, default.max_num_seqs),
        };
        let more = "or use more GPUs (`--tensor-parallel-size`)";
        Some(format!("lower `{option}` from {given}: with the default {default} it fits; {more}"))
    }

    fn capacity_error(&self, tensor: Option<u32>, source: CapacityError) -> ConfigError {
        if let CapacityError::Missing { field } = source
            && let Some(error) = self.missing_in_config(field)
        {
            return error;
        }
        if matches!(source, CapacityError::DoesNotFit { .. }) {
            let hint = self.fitting_hint(tensor);
            // vLLM's own sentence where vLLM is simulated.
            if self.args.batch.engine.is_some() {
                let what = if hint.is_some() { "" } else { "KV cache of " };
                let on = if hint.is_some() { String::new() } else { format!(" on {}", self.hardware.name) };
                let message = format!("{what}`{}`{on}: {}; vLLM: {}", self.name, source.what(), NeedsTooMuch::NoMemory);
                return ConfigError::Conflict { message, hint: hint.unwrap_or_else(|| source.hint()) };
            }
            if let Some(hint) = hint {
                return ConfigError::Conflict { message: format!("`{}`: {}", self.name, source.what()), hint };
            }
        }
        ConfigError::Capacity { model: self.name.into(), hardware: self.hardware.name.clone(), source }
    }

    /// The error for `field` missing or zero, with the file that should contain it and all other fields that are missing, if it is a field of
    /// the model.
    fn missing_in_config(&self, field: &str) -> Option<ConfigError> {
        let LoadedModel { path, config, foreign_keys, .. } = self.config?;
        let values = [
            ("num_hidden_layers", config.num_hidden_layers),
            ("hidden_size", config.hidden_size),
            ("num_attention_heads", config.num_attention_heads),
            ("num_key_value_heads", config.num_key_value_heads),
            ("intermediate_size", config.intermediate_size),
            ("vocab_size", config.vocab_size),
            ("torch_dtype", config.dtype_bytes as u32),
        ];
        let known = values.iter().any(|(key, _)| *key == field);
        // Without a number of KV heads of its own, a model has one for each query head.
        let has_own = |key| key != "num_key_value_heads" || foreign_keys.iter().any(|(usual, _)| *usual == key);
        let is_missing = |key, value| key == field || (value == 0 && has_own(key));
        let missing: Vec<&str> =
            values.iter().filter(|(key, value)| is_missing(*key, *value)).map(|(key, _)| *key).collect();
        let foreign = foreign_keys.iter().filter(|(usual, _)| missing.contains(usual));
        let foreign: Vec<String> = foreign.map(|(usual, other)| format!("`{other}` for `{usual}`")).collect();
        let hint = match foreign.is_empty() {
            true if missing.len() == 1 => "add it: every model has one".to_owned(),
            true => "add them: every model has them".to_owned(),
            false => format!(
                "the config has other keys: {}; add the usual ones, whose values follow from the model's code",
                foreign.join(", ")
            ),
        };
        known.then(|| ConfigError::in_file(path, Diagnostic::new(architecture::absent(&missing)).hint(hint)))
    }

    fn config_for(&self, needed_for: &str, instead: &'static str) -> Result<&ModelConfig, ConfigError> {
        self.config.map(|model| &model.config).ok_or_else(|| ConfigError::NoModelConfig {
            model: self.name.into(),
            needed_for: needed_for.into(),
            instead,
        })
    }
}

/// Pipeline stages have step times in one latency model, and BLIS has none.
fn check_pipeline(args: &DeploymentArgs, kind: LatencyKind) -> Result<(), ConfigError> {
    let stages = args.pipeline_parallel_size.unwrap_or(1);
    if stages == 1 || (kind == LatencyKind::Physics && (args.batch.engine.is_some() || args.total_kv_blocks.is_some()))
    {
        return Ok(());
    }
    let message = match kind {
        LatencyKind::Physics => "KV blocks of pipeline stages are not computed with `--parity blis`".into(),
        kind => format!("`--pipeline-parallel-size {stages}` needs the physics latency model, not {kind}"),
    };
    Err(ConfigError::Conflict { message, hint: "drop `--pipeline-parallel-size`, or what excludes it".into() })
}

/// Kernels are launched one by one in one latency model.
fn check_eager(args: &DeploymentArgs, kind: LatencyKind) -> Result<(), ConfigError> {
    if !args.enforce_eager || kind == LatencyKind::Physics {
        return Ok(());
    }
    Err(ConfigError::Conflict {
        message: format!("`--enforce-eager` needs the physics latency model, not {kind}"),
        hint: "drop `--enforce-eager`, or what excludes it".into(),
    })
}

fn check_ranges(args: &DeploymentArgs) -> Result<(), ConfigError> {
    let utilization = args.utilization();
    let at_least_1 = "it must be at least 1";
    let checks = [
        (
            "--model",
            short_name(&args.model).trim().is_empty() && !Path::new(&args.model).is_dir(),
            "blank".into(),
            "`blis models` lists the names that are known",
        ),
        ("--tensor-parallel-size", args.tensor_parallel_size == Some(0), "0".into(), at_least_1),
        ("--pipeline-parallel-size", args.pipeline_parallel_size == Some(0), "0".into(), at_least_1),
        ("--data-parallel-size", args.data_parallel_size == 0, "0".into(), at_least_1),
        ("--total-kv-blocks", args.total_kv_blocks == Some(0), "0".into(), at_least_1),
        ("--block-size", args.block_size == 0, "0".into(), at_least_1),
        (
            "--gpu-memory-utilization",
            !(utilization > 0.0 && utilization <= 1.0),
            utilization.to_string(),
            "it must lie in (0, 1]",
        ),
    ];
    for (option, wrong, given, expected) in checks {
        if wrong {
            return Err(ConfigError::OutOfRange { option, given, expected });
        }
    }
    if args.alpha_coeffs.is_some() != args.beta_coeffs.is_some() {
        let (given, missing) = if args.alpha_coeffs.is_some() {
            ("--alpha-coeffs", "--beta-coeffs")
        } else {
            ("--beta-coeffs", "--alpha-coeffs")
        };
        return Err(ConfigError::Conflict {
            message: format!("`{given}` is given without `{missing}`"),
            hint: "coefficients belong together: give both or neither".into(),
        });
    }
    if let (Some(_), Some((name, _))) = (&args.beta_coeffs, args.latency_parameters.first()) {
        return Err(ConfigError::Conflict {
            message: format!("`{name}` of the latency model cannot be set together with `--beta-coeffs`"),
            hint: "the lists name every coefficient: change the value there, or leave out the lists".into(),
        });
    }
    Ok(())
}

/// The option; else implied by the number of coefficients; else blackbox if only that model is possible.
fn latency_kind(
    args: &DeploymentArgs,
    name: &str,
    config: Option<&LoadedModel>,
    notes: &mut Vec<String>,
) -> Result<LatencyKind, ConfigError> {
    let betas = args.beta_coeffs.as_ref().map(Vec::len);
    let has_rows = || blackbox_rows().iter().any(|row| row.model == name);
    let kind = match (args.latency_model, betas) {
        (Some(LatencyKind::Roofline), Some(_)) => {
            return Err(ConfigError::Conflict {
                message: "`--latency-model roofline` takes no coefficients".into(),
                hint: "drop `--alpha-coeffs` and `--beta-coeffs`, or choose another latency model".into(),
            });
        }
        (Some(kind), _) if kind != LatencyKind::Physics && args.coefficients.is_some() => {
            return Err(ConfigError::Conflict {
                message: format!("`--coefficients` is of the physics latency model, not of {kind}"),
                hint: "drop it, or give `--latency-model physics`".into(),
            });
        }
        (Some(kind), _) => kind,
        (None, _) if args.coefficients.is_some() => LatencyKind::Physics,
        (None, Some(3)) => LatencyKind::Blackbox,
        (None, Some(7..=11)) => LatencyKind::TrainedPhysics,
        (None, Some(count)) => {
            return Err(ConfigError::OutOfRange {
                option: "--beta-coeffs",
                given: format!("{count} values long"),
                expected: "3 values select blackbox, 7 to 11 trained-physics; physics takes 8, and its name",
            });
        }
        (None, None) if args.vllm_version.is_some() => LatencyKind::Blackbox,
        (None, None) if config.is_none() && has_rows() => {
            notes.push(format!(
                "blackbox latency model: the architecture of {name} is unknown, trained coefficients are not"
            ));
            LatencyKind::Blackbox
        }
        (None, None) if args.moe_comm_backend.is_some() => LatencyKind::TrainedPhysics,
        (None, None) => args.default_latency,
    };
    let coefficients_suffice = kind == LatencyKind::Blackbox && betas.is_some();
    if config.is_none() && !has_rows() && !coefficients_suffice {
        let known = super::known_models().into_iter().map(|model| model.name).collect();
        let extra = "`blis models` lists the built-in ones; of another model, put the Hugging Face `config.json` into a folder \
                     and name it with `--model-config-folder`";
        return Err(ConfigError::unknown("model", name, known, Some(extra)));
    }
    if args.vllm_version.is_some() && (kind != LatencyKind::Blackbox || coefficients_suffice) {
        notes.push("`--vllm-version` only selects blackbox coefficients: not used".into());
    }
    Ok(kind)
}

/// The first row that matches the options; of several, the one that matches the presets.
fn blackbox_row(
    args: &DeploymentArgs,
    name: &str,
    catalogue: &Catalogue,
    notes: &mut Vec<String>,
) -> Result<&'static BlackboxRow, ConfigError> {
    let rows: Vec<&BlackboxRow> = blackbox_rows().iter().filter(|row| row.model == name).collect();
    if rows.is_empty() {
        let mut known: Vec<String> = blackbox_rows().iter().map(|row| row.model.clone()).collect();
        known.dedup();
        let extra =
            "`blis models` lists those with blackbox coefficients; or give `--alpha-coeffs` and `--beta-coeffs`";
        return Err(ConfigError::unknown("model with blackbox coefficients", name, known, Some(extra)));
    }
    let wanted_version = args.vllm_version.as_deref().map(version).transpose()?;
    let wanted_hardware = args.hardware.as_deref().map(|name| catalogue.find(name)).transpose()?;
    let same_hardware = |row: &BlackboxRow, name: &str| {
        row.hardware == name || catalogue.find(&row.hardware).is_ok_and(|hardware| hardware.name == name)
    };
    let agrees = |row: &&BlackboxRow| {
        wanted_hardware.is_none_or(|hardware| same_hardware(row, &hardware.name))
            && args.tensor_parallel_size.is_none_or(|size| row.tensor_parallel_size == size)
            && wanted_version.is_none_or(|version| row.vllm_version == version)
    };
    let presets = Presets::get();
    let is_preset = |row: &&BlackboxRow| {
        (wanted_hardware.is_some() || same_hardware(row, &presets.hardware))
            && (args.tensor_parallel_size.is_some()
                || presets.tensor_parallel_size(name).is_none_or(|size| row.tensor_parallel_size == size))
            && (wanted_version.is_some() || row.vllm_version == presets.vllm_version(name))
    };
    let candidates: Vec<&BlackboxRow> = rows.iter().copied().filter(agrees).collect();
    let Some(row) = candidates.iter().copied().find(is_preset).or(candidates.first().copied()) else {
        let mut available: Vec<String> = rows.iter().map(|row| row.deployment()).collect();
        available.dedup();
        let part = |value: Option<String>| value.unwrap_or_else(|| "any".into());
        let wanted = format!(
            "`{name}` on hardware {}, tensor parallel size {}, vLLM {}",
            part(args.hardware.clone()),
            part(args.tensor_parallel_size.map(|size| size.to_string())),
            part(args.vllm_version.clone()),
        );
        return Err(ConfigError::NoCoefficients { wanted, available: available.join(", ") });
    };
    if wanted_hardware.is_none() || args.tensor_parallel_size.is_none() || wanted_version.is_none() {
        notes.push(format!("blackbox coefficients of {name} on {}", row.deployment()));
    }
    Ok(row)
}

/// A vLLM release of the coefficient table, given with or without its `v`, or as the name of vLLM's image.
fn version(given: &str) -> Result<&'static str, ConfigError> {
    let given = given.strip_prefix("vllm/vllm-openai:").unwrap_or(given);
    let mut known: Vec<&'static str> = blackbox_rows().iter().map(|row| row.vllm_version.as_str()).collect();
    known.sort_unstable();
    known.dedup();
    let found = known.iter().find(|version| version.trim_start_matches('v') == given.trim_start_matches('v'));
    found.copied().ok_or_else(|| {
        ConfigError::unknown("vLLM version", given, known.iter().map(|&version| version.into()).collect(), None)
    })
}

fn choose_hardware<'a>(
    args: &DeploymentArgs,
    row: Option<&BlackboxRow>,
    catalogue: &'a Catalogue,
    notes: &mut Vec<String>,
) -> Result<&'a Hardware, ConfigError> {
    if let Some(name) = args.hardware.as_deref().or(row.map(|row| row.hardware.as_str())) {
        let found = catalogue.find(name)?;
        notes.extend(UsualGpu::of(name).filter(|usual| usual.meant == found.name).map(UsualGpu::note));
        return Ok(found);
    }
    let hardware = match catalogue.only_given() {
        Some(hardware) => hardware,
        None => catalogue.find(DEFAULT_HARDWARE)?,
    };
    notes.push(format!("hardware {}: the default", hardware.name));
    Ok(hardware)
}

/// BLIS's backends (`engine.md` §4.3), and how often each sends a token.
const MOE_COMM_BACKENDS: [(&str, MoeComm); 7] = [
    ("naive", MoeComm::AllGather),
    ("allgather_reducescatter", MoeComm::AllGather),
    ("pplx", MoeComm::AllToAll),
    ("deepep_high_throughput", MoeComm::AllToAll),
    ("deepep_low_latency", MoeComm::AllToAll),
    ("mori", MoeComm::AllToAll),
    ("flashinfer_all2allv", MoeComm::AllToAll),
];

fn moe_comm(args: &DeploymentArgs, kind: LatencyKind, config: Option<&LoadedModel>) -> Result<MoeComm, ConfigError> {
    let backend = args.moe_comm_backend.as_deref().filter(|backend| !backend.is_empty());
    let option = match backend {
        Some(_) => "--moe-comm-backend",
        None if args.enable_expert_parallel => "--enable-expert-parallel",
        None => return Ok(MoeComm::default()),
    };
    let has_experts = config.is_some_and(|model| model.config.moe.is_some());
    let distributes_experts = kind == LatencyKind::Physics && backend.is_none();
    if !(kind == LatencyKind::TrainedPhysics || distributes_experts) || !has_experts {
        return Err(ConfigError::Conflict {
            message: format!(
                "`{option}` needs a mixture-of-experts model and the physics or trained-physics latency model"
            ),
            hint: format!("drop `{option}`"),
        });
    }
    let Some(backend) = backend else { return Ok(MoeComm::default()) };
    match MOE_COMM_BACKENDS.iter().find(|(name, _)| *name == backend) {
        Some((_, comm)) => Ok(*comm),
        None => {
            let known = MOE_COMM_BACKENDS.iter().map(|(name, _)| (*name).to_owned()).collect();
            Err(ConfigError::unknown("MoE communication backend", backend, known, None))
        }
    }
}

mod cache_notes;
mod memory_balance;
#[cfg(test)]
mod start_logs;
#[cfg(test)]
mod tests;
