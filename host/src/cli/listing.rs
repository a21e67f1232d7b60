//! `blis models` and `blis hardware`: the built-in models and GPUs.

use blis_config::{Hardware, KnownModel, LatencyKind, known_hardware, known_models};
use blis_eval::error::RunError;
use clap::{Args, Subcommand};
use serde::Serialize;

use super::model_facts::{self, ExplainModelArgs};
use super::output::{OutputForm, print_document, print_lines, wants_text_form};

/// The latency models that need the configuration of a model.
const WITH_CONFIG: [LatencyKind; 3] = [LatencyKind::Physics, LatencyKind::TrainedPhysics, LatencyKind::Roofline];

#[derive(Debug, Args)]
pub(super) struct ListingArgs {
    /// Form of the list; auto is text on a terminal, JSON elsewhere
    #[arg(long, value_enum, value_name = "FORM", default_value_t = OutputForm::Auto)]
    output: OutputForm,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct ModelsArgs {
    #[command(subcommand)]
    command: Option<ModelsCommand>,
    #[command(flatten)]
    listing: ListingArgs,
}

#[derive(Debug, Subcommand)]
enum ModelsCommand {
    /// Show a model as its config.json is understood: layers by kind, parameters, weights, KV cache and states
    Explain(ExplainModelArgs),
}

/// `blis models`: the list, or one model.
pub(super) fn dispatch_models(args: &ModelsArgs) -> Result<(), RunError> {
    match &args.command {
        Some(ModelsCommand::Explain(explained)) => model_facts::explain(explained),
        None => models(&args.listing),
    }
}

/// `blis models`: each built-in model with the latency models that can simulate it, and the deployments with blackbox
/// coefficients.
fn models(args: &ListingArgs) -> Result<(), RunError> {
    let models = known_models();
    if !wants_text_form(args.output) {
        let document: ModelList = models.iter().map(ModelDocument::new).collect();
        return print_document(&document);
    }
    let mut lines = Vec::new();
    for model in &models {
        lines.push(model.name.clone());
        if model.has_config {
            lines.push(format!("    {}", WITH_CONFIG.map(|kind| kind.to_string()).join(", ")));
        }
        lines.extend(model.blackbox.iter().map(|deployment| format!("    blackbox: {deployment}")));
    }
    print_lines(&lines)
}

fn latency_models(model: &KnownModel) -> Vec<String> {
    let mut kinds: Vec<String> = Vec::new();
    if model.has_config {
        kinds.extend(WITH_CONFIG.map(|kind| kind.to_string()));
    }
    if !model.blackbox.is_empty() {
        kinds.push(LatencyKind::Blackbox.to_string());
    }
    kinds
}

/// What `blis models` prints with `--output json`.
type ModelList<'a> = Vec<ModelDocument<'a>>;

/// A model of the program.
#[derive(Serialize)]
struct ModelDocument<'a> {
    /// GPU, tensor parallelism and vLLM version of the deployments with blackbox coefficients.
    blackbox_deployments: &'a [String],
    /// Latency models that can simulate it.
    latency_models: Vec<String>,
    /// Its name, for `--model`.
    name: &'a str,
}

impl<'a> ModelDocument<'a> {
    fn new(model: &'a KnownModel) -> Self {
        let KnownModel { name, blackbox, .. } = model;
        Self { blackbox_deployments: blackbox, latency_models: latency_models(model), name }
    }
}

/// `blis hardware`: a line for each GPU with a description.
pub(super) fn hardware(args: &ListingArgs) -> Result<(), RunError> {
    let hardware = known_hardware();
    if !wants_text_form(args.output) {
        let document: GpuList = hardware.iter().map(GpuDocument::new).collect();
        return print_document(&document);
    }
    let width = hardware.iter().map(|entry| entry.name.len()).max().unwrap_or(0);
    let line = |entry: &Hardware| {
        let gpu = &entry.gpu;
        let aliases =
            if entry.aliases.is_empty() { String::new() } else { format!("  also {}", entry.aliases.join(", ")) };
        let (name, memory, flops, bandwidth) = (&entry.name, gpu.memory_gib, gpu.tflops_fp16, gpu.hbm_tb_s);
        let kernels = entry.kernels_of().map_or(String::new(), |other| format!("  kernels of {other}"));
        format!("{name:width$} {memory:>4} GiB {flops:>7} TFLOPS {bandwidth:>6} TB/s{kernels}{aliases}")
    };
    print_lines(&hardware.iter().map(line).collect::<Vec<_>>())
}

/// What `blis hardware` prints with `--output json`.
type GpuList<'a> = Vec<GpuDocument<'a>>;

/// A GPU with a description.
#[derive(Serialize)]
struct GpuDocument<'a> {
    /// Other names of it, likewise.
    aliases: &'a [String],
    /// Memory bandwidth. Unit: TB/s.
    hbm_tb_s: f64,
    /// GPU with the kernel efficiencies that are used, as those of this one were not measured; `null` if they were.
    kernels_of: Option<&'a str>,
    /// Size of the last-level cache, 10⁶ bytes; 0 if it is unknown. Unit: MB.
    l2_mb: f64,
    /// Memory of the GPU. Unit: GiB.
    memory_gib: f64,
    /// Its name, for `--hardware`.
    name: &'a str,
    /// Dense peak of FP16 and BF16. Unit: TFLOPS.
    tflops_fp16: f64,
    /// Dense peak of FP4; 0 without FP4. Unit: TFLOPS.
    tflops_fp4: f64,
    /// Dense peak of FP8; 0 without FP8. Unit: TFLOPS.
    tflops_fp8: f64,
    /// Memory that programs can allocate. Unit: GiB.
    usable_gib: f64,
}

impl<'a> GpuDocument<'a> {
    fn new(entry: &'a Hardware) -> Self {
        let gpu = &entry.gpu;
        Self {
            aliases: &entry.aliases,
            hbm_tb_s: gpu.hbm_tb_s,
            kernels_of: entry.kernels_of(),
            l2_mb: gpu.l2_mb,
            memory_gib: gpu.memory_gib,
            name: &entry.name,
            tflops_fp16: gpu.tflops_fp16,
            tflops_fp4: gpu.tflops_fp4,
            tflops_fp8: gpu.tflops_fp8,
            usable_gib: entry.usable_gib,
        }
    }
}
