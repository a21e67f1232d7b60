//! Where the command line meets configuration and workloads: what was asked for becomes the real
//! thing, and its errors become ours.

use std::num::NonZeroU32;

use blis_sim::semantics::Semantics;
use blis_sim::units::Micros;

use super::args::TraceFormatName;
use super::config::{RunConfig, SpecConfig, TraceConfig, TracePart, WorkloadConfig};
use super::error::Failure;
use blis_config::{Deployment, Hardware, KnownModel, LatencyKind, known_hardware, known_models};
use blis_diag::Diagnostic;
use blis_workload::spec::GenerateOptions;
use blis_workload::trace_v2::ClosedLoop;
use blis_workload::{TraceError, TraceFormat, TraceOptions, Workload, open_trace, open_trace_v2};

/// The deployment that was asked for.
pub(super) fn resolve(config: &RunConfig) -> Result<Deployment, Failure> {
    blis_config::resolve(&config.deployment)
        .map_err(|error| Failure::usage(error).or_hint("correct it there, or leave the file out"))
}

/// The workload that was asked for.
pub(super) fn open(config: &RunConfig) -> Result<Workload, Failure> {
    let block_size = NonZeroU32::new(config.engine.block_size)
        .ok_or_else(|| Failure::usage("a KV block of 0 tokens").hint("`--block-size-in-tokens` must be at least 1"))?;
    let recorded_priority = config.engine.semantics != Semantics::BLIS;
    let options = TraceOptions { block_size, horizon: config.horizon, recorded_priority, ..TraceOptions::default() };
    let patience = Some(BLIS_PATIENCE).filter(|_| config.engine.semantics == Semantics::BLIS);
    let opened = match &config.workload {
        WorkloadConfig::Synthetic(generated) => {
            return generated.spec.generate(block_size).map_err(Failure::usage);
        }
        WorkloadConfig::Specified(SpecConfig { spec, num_requests, timeout, .. }) => {
            let (seed, horizon) = (config.seed, config.horizon);
            let (num_requests, timeout) = (*num_requests, *timeout);
            let options = GenerateOptions { seed, block_size, horizon, num_requests, timeout };
            return spec.generate(&options).map_err(Failure::usage);
        }
        WorkloadConfig::Trace(trace) => {
            let closed_loop = trace.closed_loop.then(|| ClosedLoop {
                think_time: None,
                seed: config.seed,
                timeout: trace.timeout.or(patience),
            });
            open_trace(&trace.path, &TraceOptions { closed_loop, ..trace_options(trace, &options) })
        }
        WorkloadConfig::Recorded { header, data, skip_bad_lines, part, closed_loop } => {
            let closed_loop =
                closed_loop.map(|think_time| ClosedLoop { think_time, seed: config.seed, timeout: patience });
            let TracePart { window, max_requests } = *part;
            let skip_bad_lines = *skip_bad_lines;
            open_trace_v2(header, data, &TraceOptions { skip_bad_lines, window, max_requests, closed_loop, ..options })
        }
    };
    opened.map_err(|error| {
        let hint = remedy(&error, &config.workload);
        Failure::usage(error).or_hint(hint)
    })
}

/// How long clients of BLIS wait for the answer of a later round that brings no deadline.
const BLIS_PATIENCE: Micros = Micros(300_000_000);

/// What to do about a line whose parser has no better advice.
fn remedy(error: &TraceError, workload: &WorkloadConfig) -> &'static str {
    let skips = match workload {
        WorkloadConfig::Trace(TraceConfig { skip_bad_lines, .. }) | WorkloadConfig::Recorded { skip_bad_lines, .. } => {
            *skip_bad_lines
        }
        WorkloadConfig::Synthetic(_) | WorkloadConfig::Specified(_) => false,
    };
    let in_header = |line: &Diagnostic| {
        line.location.as_ref().is_some_and(|location| match workload {
            WorkloadConfig::Recorded { header, .. } => *location.file == *header.to_string_lossy(),
            _ => location.file.ends_with(".yaml") || location.file.ends_with(".yml"),
        })
    };
    match error {
        TraceError::Line(line) if in_header(line) => "mend the header; no request can be read without it",
        _ if skips => "mend the line",
        _ => "mend the line, or leave out such lines with `--skip-bad-lines`",
    }
}

fn trace_options(trace: &TraceConfig, usual: &TraceOptions) -> TraceOptions {
    TraceOptions {
        format: trace.format.into(),
        hash_block_size: trace.mooncake_block_size,
        skip_bad_lines: trace.skip_bad_lines,
        window: trace.part.window,
        max_requests: trace.part.max_requests,
        ..usual.clone()
    }
}

impl From<TraceFormatName> for Option<TraceFormat> {
    fn from(name: TraceFormatName) -> Self {
        Some(match name {
            TraceFormatName::Auto => return None,
            TraceFormatName::BlisCsv => TraceFormat::BlisCsv,
            TraceFormatName::Azure => TraceFormat::Azure,
            TraceFormatName::Mooncake => TraceFormat::Mooncake,
            TraceFormatName::TraceV2 => TraceFormat::TraceV2,
            TraceFormatName::Bailian => TraceFormat::Bailian,
            TraceFormatName::BurstGpt => TraceFormat::BurstGpt,
            TraceFormatName::VllmBench => TraceFormat::VllmBench,
            TraceFormatName::SglangBench => TraceFormat::SglangBench,
            TraceFormatName::AiPerf => TraceFormat::AiPerf,
            TraceFormatName::Otel => TraceFormat::Otel,
            TraceFormatName::VllmVcr => TraceFormat::VllmVcr,
        })
    }
}

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
