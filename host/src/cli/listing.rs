//! What is built in: models and GPUs, a line each.

use blis_config::{Hardware, KnownModel, LatencyKind, known_hardware, known_models};

/// A line per model with anything built in: its name, then what can simulate it.
pub(super) fn models() -> Vec<String> {
    let models = known_models();
    let width = models.iter().map(|model| model.name.len()).max().unwrap_or(0);
    models.iter().map(|model| format!("{:width$}  {}", model.name, latency_models(model))).collect()
}

fn latency_models(model: &KnownModel) -> String {
    let mut kinds = Vec::new();
    if model.has_config {
        kinds.extend(
            [LatencyKind::TrainedPhysics, LatencyKind::Physics, LatencyKind::Roofline].map(|kind| kind.to_string()),
        );
    }
    if !model.blackbox.is_empty() {
        kinds.push(format!("{} ({})", LatencyKind::Blackbox, model.blackbox.join("; ")));
    }
    kinds.join(", ")
}

/// A line per GPU with a description: its name, its figures, its other names.
pub(super) fn hardware() -> Vec<String> {
    let hardware = known_hardware();
    let width = hardware.iter().map(|entry| entry.name.len()).max().unwrap_or(0);
    let line = |entry: &Hardware| {
        let gpu = &entry.gpu;
        let aliases =
            if entry.aliases.is_empty() { String::new() } else { format!("  also {}", entry.aliases.join(", ")) };
        let (name, memory, flops, bandwidth) = (&entry.name, gpu.memory_gib, gpu.tflops_fp16, gpu.hbm_tb_s);
        format!("{name:width$}  {memory:>6} GiB  {flops:>7} TFLOPS  {bandwidth:>6} TB/s{aliases}")
    };
    hardware.iter().map(line).collect()
}
