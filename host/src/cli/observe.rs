//! `blis observe`: load on a real server, recorded as a trace.

use std::io::{self, IsTerminal as _};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use blis_eval::envelope::Envelope;
use blis_eval::error::RunError;
use blis_eval::experiment::{Experiment, OutputFiles};
use blis_eval::live::open_to_send;
use blis_eval::spec::{commands, parse};
use blis_http::observe::{
    ApiKey, LiveFigures, ObserveSettings, PromptForm, Recording, ServerApi, ServerUrl, SessionContext, observe,
};
use blis_report::check_target;
use blis_sim::units::Micros;
use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::args::Settings;
use super::counts::in_flight;
use super::envelope::print_result;
use super::fidelity::today;
use super::one_of::OneOf;
use super::output::{LogLevel, OutputForm, start_log};

const SERVER: &str = "Server";
const RECORD: &str = "Record";

/// The environment variables that may hold the API key, in this order.
const API_KEYS: [&str; 2] = ["BLIS_API_KEY", "OPENAI_API_KEY"];

#[derive(Debug, Args)]
pub(super) struct ObserveArgs {
    /// The server, as http://HOST:PORT or https://HOST. A key for it is read from BLIS_API_KEY or OPENAI_API_KEY
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8000", value_parser = ServerUrl::parse,
          help_heading = SERVER)]
    server_url: ServerUrl,
    /// Interface of the server
    #[arg(long, value_parser = OneOf::<ServerApi>::new(), value_name = "API", default_value_t = ServerApi::Completions, help_heading = SERVER)]
    api: ServerApi,
    /// Prompts as token ids, exact in length and in what they share (vLLM, SGLang), or as words, as many as the server counts
    /// tokens for [default: ids; text with --api chat]
    #[arg(long, value_parser = OneOf::<PromptForm>::new(), value_name = "FORM", help_heading = SERVER)]
    prompts: Option<PromptForm>,
    /// What later rounds of sessions contain of the rounds before, in closed loop
    #[arg(long, value_parser = OneOf::<SessionContext>::new(), value_name = "CONTEXT", default_value_t = SessionContext::Planned, help_heading = SERVER)]
    context: SessionContext,
    /// Whole responses instead of streams: there is no TTFT then
    #[arg(long, help_heading = SERVER)]
    no_streaming: bool,
    /// Leave out ignore_eos and min_tokens, for servers that refuse them: outputs may be shorter than planned
    #[arg(long, help_heading = SERVER)]
    no_exact_lengths: bool,
    /// Most requests in flight, ≥ 1: a request waits for a slot after its planned time [default: no limit]
    #[arg(long, value_name = "N", value_parser = in_flight, help_heading = SERVER)]
    max_in_flight: Option<NonZeroUsize>,
    /// Requests before the start, one after the other, that are in no record
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = SERVER)]
    warmup_requests: u32,
    /// Longest duration of a request, s or with a unit; one with a deadline (--timeout) ends at that, if it is earlier
    #[arg(long, value_name = "S", default_value = "300", value_parser = parse::seconds_above_0, help_heading = SERVER)]
    request_timeout: Micros,
    /// Number from which the contents of prompts follow: with another one no cache of the server knows them [default:
    /// from the clock]
    #[arg(long, value_name = "N", help_heading = SERVER)]
    salt: Option<u64>,
    /// Trace to write: PREFIX.yaml and PREFIX.csv, for blis replay and blis calibrate
    #[arg(long, value_name = "PREFIX", help_heading = RECORD)]
    trace_output: PathBuf,
    /// Record the time of every part of every output, too: PREFIX.itl.csv
    #[arg(long, help_heading = RECORD)]
    record_itl: bool,
    /// Log level of messages on standard error
    #[arg(long, value_enum, value_name = "LEVEL", default_value_t = LogLevel::Warn, help_heading = RECORD)]
    log: LogLevel,
    /// Form of the output; auto is text on a terminal, JSON elsewhere
    #[arg(long, value_enum, value_name = "FORM", default_value_t = OutputForm::Auto, help_heading = RECORD)]
    output: OutputForm,
    /// No line about the present state
    #[arg(long, help_heading = RECORD)]
    no_progress: bool,
    // The last, so that its names make way for the flags before it.
    #[command(flatten)]
    given: Settings<{ commands::OBSERVE }>,
}

/// Runs `blis observe` and prints its report.
pub(super) fn run(args: &ObserveArgs) -> Result<(), RunError> {
    start_log(args.log.into());
    let config = Experiment::new(args.given.0.clone(), OutputFiles::default())?;
    let settings = args.settings(&config)?;
    for path in Recording::files(&args.trace_output) {
        check_target(&path).map_err(|error| RunError::file(&error))?;
    }
    let workload = open_to_send(&config)?;
    workload.notes.iter().for_each(|note| tracing::info!("{note}"));
    let line = LiveLine::new(args.no_progress);
    let recording = observe(&settings, workload, &mut |figures| line.show(figures))?;
    drop(line);
    recording.write(&args.trace_output, &today())?;
    recording.warnings().iter().for_each(|(what, hint)| tracing::warn!("{what} (hint: {hint})"));
    let report = recording.report();
    let about = Envelope::in_words(format!("{} under {}", settings.server, config.workload));
    print_result(args.output, &report, &about, &report)?;
    recording.error().map_or(Ok(()), Err)
}

impl ObserveArgs {
    fn settings(&self, config: &Experiment) -> Result<ObserveSettings, RunError> {
        let prompts = match (self.prompts, self.api) {
            (Some(PromptForm::Ids), ServerApi::Chat) => {
                return Err(RunError::usage("a chat has text, no token ids")
                    .hint("use `--prompts text`, or `--api completions`"));
            }
            (None, ServerApi::Chat) => PromptForm::Text,
            (prompts, _) => prompts.unwrap_or(PromptForm::Ids),
        };
        if (self.context, prompts) == (SessionContext::Actual, PromptForm::Ids) {
            return Err(RunError::usage("`--context actual` needs prompts as text: outputs are text, not token ids")
                .hint("use `--prompts text`, or `--api chat`"));
        }
        Ok(ObserveSettings {
            server: self.server_url.clone(),
            model: config.deployment.model.clone(),
            api_key: api_key(),
            api: self.api,
            prompts,
            context: self.context,
            streaming: !self.no_streaming,
            exact_lengths: !self.no_exact_lengths,
            max_concurrency: self.max_in_flight,
            warmup_requests: self.warmup_requests,
            record_itl: self.record_itl,
            timeout: Duration::from_micros(self.request_timeout.0),
            salt: self.salt.unwrap_or_else(clock_salt),
            block_size: config.block_size(),
            seed: config.spec.seed(),
        })
    }
}

/// The API key of the environment, if there is one.
pub(super) fn api_key() -> Option<ApiKey> {
    let mut keys = API_KEYS.into_iter().filter_map(|name| std::env::var(name).ok());
    keys.find(|key| !key.is_empty()).map(ApiKey)
}

/// Another number for every run.
fn clock_salt() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

/// A line on standard error while requests are sent, if that is a terminal.
struct LiveLine(Option<ProgressBar>);

impl LiveLine {
    fn new(hidden: bool) -> Self {
        Self((!hidden && io::stderr().is_terminal()).then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            bar.set_style(ProgressStyle::with_template("{msg}").expect("a valid template"));
            bar
        }))
    }

    fn show(&self, figures: &LiveFigures) {
        let Some(bar) = &self.0 else { return };
        let LiveFigures { seconds, sent, in_flight, completed, failed, rate, ttft_ms } = *figures;
        let ttft = ttft_ms.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.1} ms"));
        bar.set_message(format!(
            "{seconds:.0} s: {sent} sent, {in_flight} in flight, {completed} completed, {failed} failed; {rate:.1} \
             requests/s, TTFT {ttft}"
        ));
        bar.tick();
    }
}

impl Drop for LiveLine {
    fn drop(&mut self) {
        self.0.iter().for_each(ProgressBar::finish_and_clear);
    }
}
