//! From an experiment to its deployment and its workload.

use std::num::NonZeroU32;

use blis_sim::semantics::Semantics;
use blis_sim::units::Micros;

use blis_sim::cluster::FollowUps;
use blis_sim::request::Request;

use crate::error::RunError;
use crate::experiment::Experiment;
use crate::lora;
use crate::workload_config::{SpecConfig, SpecOrigin, TraceConfig, TracePart, WorkloadConfig};
use blis_config::Deployment;
use blis_diag::Diagnostic;
use blis_workload::spec::{GenerateOptions, Spec, SteadySessions};
use blis_workload::trace_v2::ClosedLoop;
use blis_workload::{DrawnArrivals, TraceError, TraceOptions, Workload, open_trace, open_trace_v2};

/// Arrivals of a run, and the follow-up requests of its closed loop, if it has one.
pub(crate) type RequestStream<'a> = (Box<dyn Iterator<Item = Request> + 'a>, Option<Box<dyn FollowUps + Send>>);

/// Resolves the deployment: model, hardware, latency model, KV blocks.
pub fn resolve(config: &Experiment) -> Result<Deployment, RunError> {
    let deployment = blis_config::resolve(&config.deployment)
        .map_err(|error| RunError::refused(error).or_hint("correct it there, or leave the file out"))?;
    config.knows(&deployment);
    Ok(deployment)
}

/// Opens the workload: generated requests, or those of a trace.
pub fn open(config: &Experiment) -> Result<Workload, RunError> {
    open_with(config, false)
}

/// The requests that are `kept`, or those of the workload of `config`.
pub(crate) fn kept_or_opened<'a>(
    kept: Option<&'a [Request]>,
    config: &Experiment,
) -> Result<RequestStream<'a>, RunError> {
    if let Some(requests) = kept {
        return Ok((Box::new(requests.iter().cloned()), None));
    }
    let Workload { requests, follow_ups, .. } = open(config)?;
    Ok((requests, follow_ups))
}

/// As [`open`], with the latencies that a trace records.
pub(crate) fn open_measured(config: &Experiment) -> Result<Workload, RunError> {
    open_with(config, true)
}

fn open_with(config: &Experiment, recorded_times: bool) -> Result<Workload, RunError> {
    let mut workload = open_source(config, recorded_times)?;
    workload.notes.extend(lora::unserved(config.deployment.adapters.is_some(), &workload.names));
    Ok(workload)
}

/// A note on the keys of a specification that change nothing here.
fn recorded_only(spec: &Spec) -> Option<String> {
    let keys: Vec<String> = spec.keys_without_effect().into_iter().map(|key| format!("`{key}`")).collect();
    (!keys.is_empty()).then(|| format!("{} of the specification: without effect on the simulation", keys.join(", ")))
}

fn block_size(config: &Experiment) -> Result<NonZeroU32, RunError> {
    NonZeroU32::new(config.block_size())
        .ok_or_else(|| RunError::usage("a KV block of 0 tokens").hint("`--block-size-in-tokens` must be at least 1"))
}

/// How the requests of a specification are generated.
fn generate_options(config: &Experiment) -> Result<GenerateOptions, RunError> {
    let (num_requests, timeout) = match &config.workload {
        WorkloadConfig::Specified(specified) => (specified.num_requests, specified.timeout),
        WorkloadConfig::Synthetic(_) | WorkloadConfig::Trace(_) | WorkloadConfig::Recorded { .. } => (None, None),
    };
    let as_in_blis = config.engine.semantics == Semantics::BLIS;
    let (seed, horizon, block_size) = (config.seed, config.horizon, block_size(config)?);
    Ok(GenerateOptions { seed, block_size, horizon, num_requests, timeout, as_in_blis })
}

/// The steady state of sessions that begin at a constant rate; `None` of other workloads.
///
/// # Errors
/// If the specification cannot be expanded.
pub fn steady_sessions(config: &Experiment) -> Result<Option<SteadySessions>, RunError> {
    let WorkloadConfig::Specified(SpecConfig { spec, .. }) = &config.workload else { return Ok(None) };
    spec.steady_sessions(&generate_options(config)?).map_err(RunError::refused)
}

fn open_source(config: &Experiment, recorded_times: bool) -> Result<Workload, RunError> {
    let block_size = block_size(config)?;
    let as_in_blis = config.engine.semantics == Semantics::BLIS;
    let options = TraceOptions {
        block_size,
        horizon: config.horizon,
        recorded_priority: !as_in_blis,
        lengths_as_limits: as_in_blis,
        adapters_share_prefixes: as_in_blis,
        recorded_times,
        ..TraceOptions::default()
    };
    let timeout = Some(BLIS_TIMEOUT).filter(|_| as_in_blis);
    let opened = match &config.workload {
        WorkloadConfig::Synthetic(generated) => {
            return generated.spec.generate(block_size).map_err(RunError::refused);
        }
        WorkloadConfig::Specified(SpecConfig { origin, spec, .. }) => {
            let options = generate_options(config)?;
            let mut workload = spec.generate(&options).map_err(RunError::refused)?;
            if matches!(origin, SpecOrigin::File(_)) {
                workload.notes.extend(recorded_only(spec));
            }
            return Ok(workload);
        }
        WorkloadConfig::Trace(trace) => {
            let closed_loop = trace.closed_loop.then(|| ClosedLoop {
                think_time: None,
                seed: config.seed,
                timeout: trace.timeout.or(timeout),
            });
            let arrivals = trace.arrivals.map(|(rate, process)| DrawnArrivals { rate, process, seed: config.seed });
            open_trace(&trace.path, &TraceOptions { closed_loop, arrivals, ..trace_options(trace, &options) })
        }
        WorkloadConfig::Recorded { header, data, skip_bad_lines, part, closed_loop } => {
            let closed_loop = closed_loop.map(|think_time| ClosedLoop { think_time, seed: config.seed, timeout });
            let TracePart { window, max_requests } = *part;
            let skip_bad_lines = *skip_bad_lines;
            open_trace_v2(header, data, &TraceOptions { skip_bad_lines, window, max_requests, closed_loop, ..options })
        }
    };
    opened.map_err(|error| {
        let hint = line_hint(&error, &config.workload);
        RunError::refused(error).or_hint(hint)
    })
}

/// The workload, and the horizon of its simulation.
pub fn open_until(config: &Experiment) -> Result<(Workload, Micros), RunError> {
    let workload = open(config)?;
    let recorded = matches!(config.workload, WorkloadConfig::Recorded { .. });
    if recorded && config.engine.semantics == Semantics::BLIS && config.horizon == Micros::MAX {
        let closed_loop = workload.follow_ups.is_some();
        let (workload, horizon) = with_blis_horizon(workload);
        if closed_loop {
            // Sessions need the horizon, because a round after it is not sent.
            let notes = workload.notes;
            let workload = open(&Experiment { horizon, ..config.clone() })?;
            return Ok((Workload { notes, ..workload }, horizon));
        }
        return Ok((workload, horizon));
    }
    Ok((workload, config.horizon))
}

/// Without `--horizon`, BLIS ends a replay at twice the time of the last arrival (600 s if that is 0), whatever is
/// still running.
fn with_blis_horizon(workload: Workload) -> (Workload, Micros) {
    const ALL_AT_START: Micros = Micros(600_000_000);
    let requests: Vec<Request> = workload.requests.collect();
    let last = requests.iter().map(|request| request.arrival).max().unwrap_or(Micros::ZERO);
    let horizon = if last == Micros::ZERO { ALL_AT_START } else { last.saturating_add(last) };
    let mut notes = workload.notes;
    notes.push(format!("horizon {:.6} s: twice the last arrival, as in BLIS", horizon.as_secs_f64()));
    (Workload { requests: Box::new(requests.into_iter()), notes, ..workload }, horizon)
}

/// Timeout of BLIS's clients for the output of a later round without a deadline of its own.
const BLIS_TIMEOUT: Micros = Micros(300_000_000);

/// The hint for an invalid line, if its parser has none.
fn line_hint(error: &TraceError, workload: &WorkloadConfig) -> &'static str {
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
        TraceError::Line(line) if in_header(line) => "correct the header; no request can be read without it",
        _ if skips => "correct the line",
        _ => "correct the line, or skip such lines with `--skip-bad-lines`",
    }
}

fn trace_options(trace: &TraceConfig, usual: &TraceOptions) -> TraceOptions {
    TraceOptions {
        format: trace.format.format(),
        hash_block_size: trace.mooncake_block_size,
        skip_bad_lines: trace.skip_bad_lines,
        window: trace.part.window,
        max_requests: trace.part.max_requests,
        ..usual.clone()
    }
}
