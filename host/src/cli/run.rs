//! One simulation from a valid configuration to its reports.

use std::fmt::{self, Display};
use std::time::Duration;

use blis_sim::instance::{Fast, Plain};
use blis_sim::metrics::{Aggregate, Metrics};
use blis_sim::request::Request;
use blis_sim::units::Micros;

use super::args::EngineName;
use super::config::{RunConfig, SyntheticConfig, TraceConfig, WorkloadConfig};
use super::connect;
use super::error::Failure;
use super::progress::Progress;
use super::timer::Timer;
use crate::config::Deployment;
use crate::report::{self, RequestLog, Setting};
use crate::workload::distribution::ArrivalProcess;
use crate::workload::{Labels, Skipped, Workload};

/// What a simulation came to, and what is worth saying about it.
pub(super) struct Finished {
    pub setting: Setting,
    pub aggregate: Aggregate,
    /// (what, what to do)
    pub warnings: Vec<(String, String)>,
    /// Whether the result files were written.
    pub files: Result<(), Failure>,
    /// CPU time of the simulation alone.
    pub cpu: Duration,
}

/// Sets up what `config` asks for, simulates it, writes the files.
pub(super) fn run(config: &RunConfig, progress: bool) -> Result<Finished, Failure> {
    tracing::debug!(seed = config.seed, horizon = ?config.horizon, "{:?}", config.engine);
    let deployment = connect::resolve(config)?;
    let workload = connect::open(config)?;
    simulate(config, &deployment, workload, progress)
}

fn simulate(
    config: &RunConfig,
    deployment: &Deployment,
    workload: Workload,
    progress: bool,
) -> Result<Finished, Failure> {
    let Workload { requests, count, labels, skipped, notes } = workload;
    for note in deployment.notes.iter().chain(&notes) {
        tracing::info!("{note}");
    }
    let wants_requests = config.output.metrics_path.is_some() || config.output.results_path.is_some();
    let mut sink = (Metrics::new(), wants_requests.then(RequestLog::new));
    let requests = Progress::new(with_deadlines(requests, &config.workload), count, progress);
    let timer = Timer::start();
    let instance = config.engine.instance(deployment);
    let counters = match config.engine.engine {
        EngineName::Fast => blis_sim::run(Fast::new(instance), requests, config.horizon, &mut sink),
        EngineName::Plain => blis_sim::run(Plain::new(instance), requests, config.horizon, &mut sink),
    }?;
    let cpu = timer.elapsed();
    let (mut metrics, log) = sink;
    let aggregate = metrics.aggregate(&counters, config.horizon);
    Ok(Finished {
        setting: setting(config, deployment, &notes),
        warnings: warnings(config, &aggregate, &skipped),
        files: write_files(config, &aggregate, log.as_ref(), &labels),
        aggregate,
        cpu,
    })
}

/// Requests of a trace that bring no deadline get the one of `--timeout`. Generated ones have theirs.
fn with_deadlines(requests: impl Iterator<Item = Request>, workload: &WorkloadConfig) -> impl Iterator<Item = Request> {
    let timeout = match workload {
        WorkloadConfig::Trace(trace) => trace.timeout,
        WorkloadConfig::Synthetic(_) | WorkloadConfig::Recorded { .. } => None,
    };
    requests.map(move |mut request| {
        request.deadline = request.deadline.or(timeout.map(|timeout| request.arrival.saturating_add(timeout)));
        request
    })
}

fn write_files(
    config: &RunConfig,
    aggregate: &Aggregate,
    log: Option<&RequestLog>,
    labels: &Labels,
) -> Result<(), Failure> {
    let Some(log) = log else { return Ok(()) };
    let written = |result: Result<(), report::FileError>| result.map_err(|error| Failure::file(&error));
    if let Some(path) = &config.output.metrics_path {
        written(report::write_json(path, &report::metrics_document(aggregate, log, labels)))?;
    }
    if let Some(path) = &config.output.results_path {
        written(report::write_json(path, &report::results_document(log, labels)))?;
    }
    Ok(())
}

fn setting(config: &RunConfig, deployment: &Deployment, notes: &[String]) -> Setting {
    let (tp, dp) = (deployment.tensor_parallel_size, deployment.data_parallel_size);
    let gpus = u64::from(tp) * u64::from(dp);
    let parallel = if dp == 1 { format!("TP {tp}") } else { format!("TP {tp}, DP {dp}") };
    Setting {
        model: deployment.model.clone(),
        hardware: format!("{gpus} × {} ({parallel})", deployment.hardware),
        latency_model: deployment.latency_kind.to_string(),
        kv_blocks: deployment.total_kv_blocks,
        block_size: config.engine.block_size,
        kv_blocks_source: deployment.kv_blocks_source.to_string(),
        max_model_len: deployment.max_model_len,
        workload: config.workload.to_string(),
        notes: deployment.notes.iter().chain(notes).cloned().collect(),
    }
}

/// What may surprise whoever reads the figures.
fn warnings(config: &RunConfig, aggregate: &Aggregate, skipped: &Skipped) -> Vec<(String, String)> {
    let counts = &aggregate.counts;
    let mut warnings = Vec::new();
    let mut warn = |what: String, hint: &str| warnings.push((what, hint.to_owned()));
    if let Some(first) = skipped.first.first() {
        // The line's own hint would be one too many.
        let first = first.to_string();
        let first = first.lines().next().unwrap_or_default();
        warn(
            format!("{} of the trace left out; the first: {first}", plural(skipped.count, "line")),
            "without `--skip-bad-lines` a bad line ends the run",
        );
    }
    if let WorkloadConfig::Synthetic(SyntheticConfig { spec, timeout_is_default: true, .. }) = &config.workload
        && let (Some(timeout), true) = (spec.timeout, counts.timed_out > 0)
    {
        let (requests, seconds) = (plural(counts.timed_out, "request"), timeout.as_secs_f64());
        warn(
            format!("{requests} timed out after {seconds} s, the default deadline"),
            "their end-to-end latency is in no figure; `--timeout` sets another deadline, `--timeout -1` none",
        );
    }
    let too_long = counts.dropped_prompt_too_long + counts.dropped_budget_too_long;
    if too_long > 0 {
        let hint = if config.engine.enable_chunked_prefill {
            "raise `--max-model-len`"
        } else {
            "raise `--max-model-len`, and `--max-num-batched-tokens`: prompts may not be split"
        };
        warn(format!("{} dropped: too long", plural(too_long, "request")), hint);
    }
    if counts.dropped_kv_too_small > 0 {
        warn(
            format!("{} dropped: larger than the KV cache", plural(counts.dropped_kv_too_small, "request")),
            "raise `--total-kv-blocks`, `--gpu-memory-utilization` or `--tp`",
        );
    }
    if counts.completed == 0 {
        let hint = if config.horizon == Micros::MAX { "check the workload" } else { "`--horizon` is in µs; raise it" };
        warn("no request completed".to_owned(), hint);
    }
    warnings
}

/// `1 request`, `2 requests`.
fn plural(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// For the summary.
impl Display for WorkloadConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Synthetic(generated) => generated.fmt(f),
            Self::Trace(TraceConfig { path, .. }) => write!(f, "trace {}", path.display()),
            Self::Recorded { data, .. } => write!(f, "recorded trace {}", data.display()),
        }
    }
}

impl Display for SyntheticConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let spec = &self.spec;
        write!(f, "{}: ", self.name)?;
        match spec.num_requests {
            Some(number) => write!(f, "{}", plural(number, "request"))?,
            None => f.write_str("requests until the horizon")?,
        }
        let spacing = match spec.arrival {
            ArrivalProcess::Constant => "evenly spaced",
            ArrivalProcess::Poisson => "Poisson",
        };
        write!(f, ", {}/s {spacing}, prompts ~{}, answers ~{} tokens", spec.rate, spec.prompt.mean, spec.output.mean)?;
        match spec.prefix_tokens {
            0 => Ok(()),
            tokens => write!(f, ", {tokens} shared"),
        }
    }
}

#[cfg(test)]
mod tests;
