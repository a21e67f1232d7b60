//! `blis models` and `blis hardware`: the built-in models and GPUs.

use blis_config::{Hardware, KnownModel, LatencyKind, known_hardware, known_models};
use blis_eval::error::RunError;
use clap::Args;
use serde_json::{Value, json};

use super::output::{OutputForm, print_document, print_lines, wants_text_form};

/// The latency models that need the configuration of a model.
const WITH_CONFIG: [LatencyKind; 3] = [LatencyKind::Physics, LatencyKind::TrainedPhysics, LatencyKind::Roofline];

#[derive(Debug, Args)]
pub(super) struct ListingArgs {
    /// Form of the list; auto is text on a terminal, JSON elsewhere
    #[arg(long, value_enum, value_name = "FORM", default_value_t = OutputForm::Auto)]
    output: OutputForm,
}

/// `blis models`: each built-in model with the latency models that can simulate it, and the deployments with blackbox
/// coefficients.
pub(super) fn models(args: &ListingArgs) -> Result<(), RunError> {
    let models = known_models();
    if !wants_text_form(args.output) {
        return print_document(&models.iter().map(model_document).collect::<Vec<_>>());
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

fn model_document(model: &KnownModel) -> Value {
    json!({"name": model.name, "latency_models": latency_models(model), "blackbox_deployments": model.blackbox})
}

/// `blis hardware`: a line for each GPU with a description.
pub(super) fn hardware(args: &ListingArgs) -> Result<(), RunError> {
    let hardware = known_hardware();
    if !wants_text_form(args.output) {
        return print_document(&hardware.iter().map(hardware_document).collect::<Vec<_>>());
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

fn hardware_document(entry: &Hardware) -> Value {
    let gpu = &entry.gpu;
    json!({
        "name": entry.name,
        "aliases": entry.aliases,
        "memory_gib": gpu.memory_gib,
        "tflops_fp16": gpu.tflops_fp16,
        "usable_gib": entry.usable_gib,
        "tflops_fp8": gpu.tflops_fp8,
        "tflops_fp4": gpu.tflops_fp4,
        "hbm_tb_s": gpu.hbm_tb_s,
        "l2_mb": gpu.l2_mb,
        "kernels_of": entry.kernels_of(),
    })
}
