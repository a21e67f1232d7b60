//! The workload of an experiment: its settings, checked against each other.

use std::fmt::{self, Display};
use std::io;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use blis_plugin::Surroundings;
use blis_sim::units::Micros;
pub(crate) use blis_workload::counted as plural;
use blis_workload::distribution::{ArrivalProcess, DistributionSpec, LengthSpec, SpecError};
use blis_workload::spec::presets::Preset;
use blis_workload::spec::{
    Arrival, Beside, Client, ClientLoad, Files, LONGEST, Lengths, Prefix, ServeGenReading, Spec,
};
use blis_workload::trace_v2::ThinkTime;
use blis_workload::{MaxTokens, TraceFormat, TraceWindow};

use crate::error::RunError;
use crate::spec::{ExperimentSpec, NamedChoice as _, ParityName, SessionMode, TraceFormatName, WorkloadName};

/// Source of the requests.
#[derive(Clone, Debug, PartialEq)]
pub enum WorkloadConfig {
    Synthetic(SyntheticConfig),
    Trace(TraceConfig),
    Specified(SpecConfig),
    /// A TraceV2 trace: header and requests, as `blis replay` takes them.
    Recorded {
        header: PathBuf,
        data: PathBuf,
        skip_bad_lines: bool,
        part: TracePart,
        /// Sessions in closed loop. The inner value is the think time, if it is not that of the trace.
        closed_loop: Option<Option<ThinkTime>>,
    },
}

/// Requests drawn from distributions.
#[derive(Clone, Debug, PartialEq)]
pub struct SyntheticConfig {
    /// `distribution` or the name of the preset.
    pub name: &'static str,
    pub spec: DistributionSpec,
    /// Whether the deadline is the default one.
    pub timeout_is_default: bool,
}

/// Requests of several clients.
#[derive(Clone, Debug, PartialEq)]
pub struct SpecConfig {
    pub origin: SpecOrigin,
    pub spec: Arc<Spec>,
    /// Maximum number of requests.
    pub num_requests: Option<u64>,
    /// Replaces the timeouts of the clients; `Some(None)` for no deadline.
    pub timeout: Option<Option<Micros>>,
}

/// Origin of a workload specification.
#[derive(Clone, Debug, PartialEq)]
pub enum SpecOrigin {
    /// The file of `--workload-spec`.
    File(PathBuf),
    /// A preset of several clients.
    Named(Preset),
    /// A number of users in closed loop, with the lengths of a named workload.
    Users { name: &'static str, count: u32, think_time: Micros, lengths: DistributionSpec },
}

/// The part of a trace that is replayed, and its speed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TracePart {
    pub window: TraceWindow,
    /// Maximum number of requests.
    pub max_requests: Option<u64>,
}

/// Requests of a trace file.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceConfig {
    pub path: PathBuf,
    pub format: TraceFormatName,
    /// Tokens per hash id; `None` for the number of the format.
    pub mooncake_block_size: Option<NonZeroU32>,
    pub skip_bad_lines: bool,
    pub part: TracePart,
    /// Deadline of requests that have none in the trace; `None` for no deadline.
    pub timeout: Option<Micros>,
    /// Whether sessions run in closed loop: a round waits for the output of the round before.
    pub closed_loop: bool,
    /// Requests per second and their process, for a file without arrivals.
    pub arrivals: Option<(f64, ArrivalProcess)>,
}

/// The closed loop of `--session-mode`, with its think time.
fn closed_loop(spec: &ExperimentSpec) -> Option<Option<ThinkTime>> {
    let think_time = spec.think_time_ms.map(ThinkTime::Constant).or(spec.think_time_dist);
    (spec.session_mode() == SessionMode::ClosedLoop).then_some(think_time)
}

impl WorkloadConfig {
    /// The workload that `spec` describes.
    pub(crate) fn new(spec: &ExperimentSpec) -> Result<Self, RunError> {
        if let (Some(header), Some(data)) = (&spec.trace_header, &spec.trace_data) {
            return Ok(recorded(header, data, spec));
        }
        if let Some(path) = &spec.workload_spec {
            return specified(path, spec);
        }
        let generated = spec.workload.filter(|_| spec.workload_trace.is_none());
        match generated.and_then(WorkloadName::preset) {
            Some(preset) => named(preset, spec),
            None => trace_or_synthetic(spec),
        }
    }
}

/// The two files of a TraceV2 trace, as `blis replay` takes them.
fn recorded(header: &Path, data: &Path, spec: &ExperimentSpec) -> WorkloadConfig {
    WorkloadConfig::Recorded {
        header: header.to_owned(),
        data: data.to_owned(),
        skip_bad_lines: spec.skip_bad_lines(),
        part: TracePart::new(spec),
        closed_loop: closed_loop(spec),
    }
}

fn trace_or_synthetic(spec: &ExperimentSpec) -> Result<WorkloadConfig, RunError> {
    match (spec.workload, &spec.workload_trace) {
        (None | Some(WorkloadName::Traces), Some(path)) => Ok(trace(path, spec)),
        (Some(WorkloadName::Traces), None) => {
            Err(RunError::usage("`--workload traces` needs a trace").hint("name it with `--workload-trace FILE`"))
        }
        (Some(_), Some(_)) => Err(RunError::usage("`--workload-trace` cannot be used with a generated `--workload`")
            .hint("leave out one of them; with a trace, `--workload traces` is understood")),
        (name, None) => synthetic(name.unwrap_or(WorkloadName::Distribution), spec),
    }
}

fn trace(path: &Path, spec: &ExperimentSpec) -> WorkloadConfig {
    WorkloadConfig::Trace(TraceConfig {
        path: path.to_owned(),
        format: spec.trace_format(),
        mooncake_block_size: spec.mooncake_block_size,
        skip_bad_lines: spec.skip_bad_lines(),
        part: TracePart::new(spec),
        timeout: spec.timeout.and_then(deadline),
        closed_loop: closed_loop(spec).is_some(),
        arrivals: spec.rate.map(|rate| (rate, spec.arrival_process.unwrap_or(ArrivalProcess::Poisson))),
    })
}

/// The file of `--workload-spec`, which replaces most other workload flags.
fn specified(path: &Path, settings: &ExperimentSpec) -> Result<WorkloadConfig, RunError> {
    let servegen = match settings.parity() {
        ParityName::Vllm => ServeGenReading::Measured,
        ParityName::Blis => ServeGenReading::Blis,
    };
    let files_of = |folder| FilesWithin { folder, within: settings.beside.clone() };
    let spec = Spec::load_with(path, servegen, files_of).map_err(RunError::refused)?;
    let num_requests = settings.num_requests.map_or(spec.num_requests, |count| Some(count.into()).filter(|&n| n > 0));
    let (origin, timeout) = (SpecOrigin::File(path.to_owned()), settings.timeout.map(deadline));
    Ok(WorkloadConfig::Specified(SpecConfig { origin, spec: Arc::new(spec), num_requests, timeout }))
}

/// The files of a specification: all relative to its folder, or those that a suite may read.
pub(crate) struct FilesWithin {
    pub folder: PathBuf,
    pub within: Option<Surroundings>,
}

impl FilesWithin {
    fn check(&self, path: &Path) -> io::Result<()> {
        let within = self.within.as_ref();
        within.map_or(Ok(()), |within| within.check(&self.folder.join(path)).map_err(io::Error::other))
    }
}

impl Files for FilesWithin {
    fn read(&self, path: &Path) -> io::Result<String> {
        self.check(path)?;
        Beside(self.folder.clone()).read(path)
    }

    fn names(&self, path: &Path) -> io::Result<Vec<String>> {
        self.check(path)?;
        Beside(self.folder.clone()).names(path)
    }
}

/// A preset of several clients.
fn named(preset: Preset, settings: &ExperimentSpec) -> Result<WorkloadConfig, RunError> {
    let usual = DistributionSpec::default();
    let spec = Arc::new(preset.spec(settings.rate.unwrap_or(usual.rate)));
    let num_requests = settings.num_requests.map_or(usual.num_requests, |count| Some(count.into()).filter(|&n| n > 0));
    if num_requests.is_none() && settings.horizon.is_none() {
        return Err(endless());
    }
    let timeout = Some(settings.timeout.map_or(usual.timeout, deadline));
    Ok(WorkloadConfig::Specified(SpecConfig { origin: SpecOrigin::Named(preset), spec, num_requests, timeout }))
}

fn endless() -> RunError {
    RunError::usage("`--num-requests 0` needs an end: the workload has none")
        .hint("add `--horizon`, in µs, or set a number of requests")
}

fn synthetic(name: WorkloadName, settings: &ExperimentSpec) -> Result<WorkloadConfig, RunError> {
    let name = name.generator();
    let usual = DistributionSpec::preset(name).map_err(RunError::refused)?;
    let spec = DistributionSpec {
        rate: settings.rate.unwrap_or(usual.rate),
        arrival: settings.arrival_process.unwrap_or_else(|| usual_arrivals(settings)),
        num_requests: settings.num_requests.map_or(usual.num_requests, |count| Some(count.into()).filter(|&n| n > 0)),
        prompt: prompt(settings, usual.prompt),
        output: output(settings, usual.output),
        max_tokens: usual_limits(settings),
        prefix_tokens: settings.prefix_tokens.unwrap_or(usual.prefix_tokens),
        timeout: settings.timeout.map_or(usual.timeout, deadline),
        seed: settings.seed(),
        horizon: settings.horizon.unwrap_or(Micros::MAX),
    };
    let error = |error| match error {
        SpecError::Range { name, value, range } => out_of_range(&name, &value, &range),
        SpecError::Endless => endless(),
        SpecError::TooMany { .. } | SpecError::Unknown { .. } => RunError::refused(error),
    };
    if let Some(count) = settings.concurrency {
        let think_time = settings.think_time_ms.unwrap_or(Micros::ZERO);
        return users(name, count, think_time, spec, settings.num_requests, settings.horizon, error);
    }
    spec.validate().map_err(error)?;
    Ok(WorkloadConfig::Synthetic(SyntheticConfig { name, spec, timeout_is_default: settings.timeout.is_none() }))
}

/// Arrivals of many independent clients; with `--parity blis`, BLIS's constant gaps.
fn usual_arrivals(settings: &ExperimentSpec) -> ArrivalProcess {
    match settings.parity() {
        ParityName::Blis => ArrivalProcess::Constant,
        ParityName::Vllm => ArrivalProcess::Poisson,
    }
}

/// Limits as clients choose them; with `--parity blis`, the output lengths.
fn usual_limits(settings: &ExperimentSpec) -> MaxTokens {
    match settings.parity() {
        ParityName::Blis => MaxTokens::Length,
        ParityName::Vllm => MaxTokens::Drawn,
    }
}

/// Users in closed loop, with lengths and deadlines as in `lengths`. `num_requests` and `horizon` are as set.
fn users(
    name: &'static str,
    count: u32,
    think_time: Micros,
    lengths: DistributionSpec,
    num_requests: Option<u32>,
    horizon: Option<Micros>,
    error: impl Fn(SpecError) -> RunError,
) -> Result<WorkloadConfig, RunError> {
    let num_requests = match (num_requests, horizon) {
        (Some(number), horizon) if number > 0 || horizon.is_some() => Some(u64::from(number)).filter(|&n| n > 0),
        (None, Some(_)) => None,
        (Some(_), _) => return Err(endless()),
        (None, None) => {
            return Err(RunError::usage("`--concurrency` needs an end: users have no last request")
                .hint("add `--num-requests`, or `--horizon` in µs"));
        }
    };
    // Rate and number of requests are not used.
    DistributionSpec { num_requests: Some(1), ..lengths.clone() }.validate().map_err(&error)?;
    for (what, LengthSpec { max, .. }) in [("prompt", lengths.prompt), ("output", lengths.output)] {
        if max > LONGEST {
            let (name, range) = (format!("{what} max"), format!("at most {LONGEST} with `--concurrency`"));
            return Err(error(SpecError::Range { name, value: max.to_string(), range }));
        }
    }
    let drawn = |LengthSpec { mean, stdev, min, max }| Lengths::gaussian(mean, stdev, min, max);
    let prefix =
        (lengths.prefix_tokens > 0).then(|| Prefix { group: "shared".to_owned(), tokens: lengths.prefix_tokens });
    let client = Client {
        load: ClientLoad::Users { count, think_time },
        prefix,
        ..Client::new("users", 1.0, drawn(lengths.prompt), drawn(lengths.output))
    };
    let spec = Arc::new(Spec { clients: vec![client], ..Spec::default() });
    let timeout = Some(lengths.timeout);
    let origin = SpecOrigin::Users { name, count, think_time, lengths };
    Ok(WorkloadConfig::Specified(SpecConfig { origin, spec, num_requests, timeout }))
}

/// The error for the flag behind the setting `name`.
fn out_of_range(name: &str, value: &str, range: &str) -> RunError {
    let error = |flag: &str| RunError::usage(format_args!("`{flag}` is {value}, but must be {range}"));
    match name.split_once(' ') {
        Some((what @ ("prompt" | "output"), figure)) => {
            let flags = format!("--{what}-tokens");
            let flag = if figure == "mean" { flags.clone() } else { format!("{flags}-{figure}") };
            error(&flag).hint(format_args!(
                "by default {flags} is 512, its -stdev 256, -min 2 and -max 7000; set all that must go together"
            ))
        }
        _ => error(&format!("--{}", name.replace(' ', "-"))).hint("see `blis run --help`"),
    }
}

/// Seconds; zero and negative for no deadline.
fn deadline(seconds: f64) -> Option<Micros> {
    (seconds > 0.0).then(|| Micros::from_secs_f64(seconds))
}

impl WorkloadName {
    /// The preset of several clients with that name.
    pub(crate) fn preset(self) -> Option<Preset> {
        self.name().parse().ok()
    }

    /// The workload as a specification, at `rate` requests per second.
    pub fn spec(self, rate: f64) -> Result<Spec, RunError> {
        if self == Self::Traces {
            return Err(
                RunError::usage("`--workload traces` is not a generated workload").hint("name the trace instead")
            );
        }
        if let Some(preset) = self.preset() {
            return Ok(preset.spec(rate));
        }
        let DistributionSpec { arrival, num_requests, prompt, output, .. } =
            DistributionSpec::preset(self.generator()).map_err(RunError::refused)?;
        let drawn = |LengthSpec { mean, stdev, min, max }| Lengths::gaussian(mean, stdev, min, max);
        let arrival = match arrival {
            ArrivalProcess::Constant => Arrival::Constant,
            ArrivalProcess::Poisson => Arrival::Poisson,
        };
        let client = Client { arrival, ..Client::new(self.generator(), 1.0, drawn(prompt), drawn(output)) };
        Ok(Spec { aggregate_rate: rate, num_requests, clients: vec![client], ..Spec::default() })
    }

    /// The preset of the length distributions.
    pub(crate) fn generator(self) -> &'static str {
        match self {
            Self::Chatbot | Self::Contentgen | Self::Summarization | Self::Multidoc => self.name(),
            _ => "distribution",
        }
    }
}

fn prompt(spec: &ExperimentSpec, usual: LengthSpec) -> LengthSpec {
    LengthSpec {
        mean: spec.prompt_tokens.map_or(usual.mean, f64::from),
        stdev: spec.prompt_tokens_stdev.map_or(usual.stdev, f64::from),
        min: spec.prompt_tokens_min.unwrap_or(usual.min),
        max: spec.prompt_tokens_max.unwrap_or(usual.max),
    }
}

fn output(spec: &ExperimentSpec, usual: LengthSpec) -> LengthSpec {
    LengthSpec {
        mean: spec.output_tokens.map_or(usual.mean, f64::from),
        stdev: spec.output_tokens_stdev.map_or(usual.stdev, f64::from),
        min: spec.output_tokens_min.unwrap_or(usual.min),
        max: spec.output_tokens_max.unwrap_or(usual.max),
    }
}

impl TracePart {
    /// The part of the trace that `spec` selects.
    #[must_use]
    pub fn new(spec: &ExperimentSpec) -> Self {
        let window = TraceWindow {
            start: spec.start(),
            duration: spec.duration,
            repeat: spec.repeat(),
            time_scale: spec.time_scale(),
            spread: spec.spread_bins,
        };
        Self { window, max_requests: spec.max_requests.map(u64::from) }
    }
}

impl TraceFormatName {
    /// The format; `None` if it is detected.
    pub fn format(self) -> Option<TraceFormat> {
        self.name().parse().ok()
    }

    /// Whether requests of the format may have hash ids for their prompts.
    pub(crate) fn has_hashes(self) -> bool {
        matches!(self, Self::Auto | Self::Mooncake | Self::Bailian | Self::VllmVcr)
    }

    /// Whether a file of the format may contain lengths without arrivals.
    pub(crate) fn may_lack_arrivals(self) -> bool {
        matches!(self, Self::Auto | Self::Csv | Self::ShareGpt)
    }
}

/// One line, for the summary of a run.
impl Display for WorkloadConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Synthetic(generated) => generated.fmt(f),
            Self::Specified(specified) => specified.fmt(f),
            Self::Trace(TraceConfig { path, .. }) => write!(f, "trace {}", path.display()),
            Self::Recorded { data, closed_loop, .. } => {
                write!(f, "recorded trace {}", data.display())?;
                if closed_loop.is_some() { f.write_str(", sessions in closed loop") } else { Ok(()) }
            }
        }
    }
}

impl Display for SpecConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let spec = &self.spec;
        match &self.origin {
            SpecOrigin::File(path) => write!(f, "specification {}: ", path.display())?,
            SpecOrigin::Named(preset) => write!(f, "{}: ", preset.name())?,
            SpecOrigin::Users { name, count, think_time, lengths } => {
                write!(f, "{name}: ")?;
                if let Some(number) = self.num_requests {
                    write!(f, "{} at most, ", plural(number, "request"))?;
                }
                let (users, think) = (plural(u64::from(*count), "user"), think_time.as_secs_f64());
                let (prompt, output) = (lengths.prompt.mean, lengths.output.mean);
                write!(f, "{users} in closed loop, thinking {think} s, ~{prompt} input and ~{output} output tokens")?;
                return match lengths.prefix_tokens {
                    0 => Ok(()),
                    tokens => write!(f, ", {tokens} shared"),
                };
            }
        }
        if let Some(number) = self.num_requests {
            write!(f, "{} at most, ", plural(number, "request"))?;
        }
        let members = spec.cohorts.iter().map(|cohort| u64::from(cohort.population)).sum::<u64>();
        let clients = plural(spec.clients.len() as u64 + members, "client");
        match spec.aggregate_rate {
            0.0 => f.write_str(&clients),
            rate => write!(f, "{rate}/s of {clients}"),
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
            ArrivalProcess::Constant => "constant",
            ArrivalProcess::Poisson => "Poisson",
        };
        write!(f, ", {}/s {spacing}, ~{} input and ~{} output tokens", spec.rate, spec.prompt.mean, spec.output.mean)?;
        match spec.prefix_tokens {
            0 => Ok(()),
            tokens => write!(f, ", {tokens} shared"),
        }
    }
}
