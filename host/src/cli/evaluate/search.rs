//! `blis search`: a search for policies, without a language model or with one.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use blis_eval::envelope::Envelope;
use blis_eval::error::RunError;
use blis_eval::evaluation::server::{PathAccess, ServerSettings};
use blis_eval::search::{ModelMutation, SearchRequest, search as find};
use blis_eval::spec::parse;
use blis_http::chat::ChatClient;
use blis_http::observe::ServerUrl;
use blis_plugin::Kind;
use blis_report::write_text;
use blis_sim::units::Micros;
use clap::Args;
use clap::builder::NonEmptyStringValueParser;

use super::super::counts::{memory_gib, workers};
use super::super::envelope::print_result;
use super::super::grant_flags::GrantFlags;
use super::super::observe::api_key;
use super::super::output::{LogLevel, OutputForm, granted, print, start_log, wants_text_form};
use super::super::progress::SearchBar;
use super::super::workers::{DEFAULT_MEMORY_GIB, run_cache, worker_settings};
use super::candidates::{decisions, patterns};
use super::live::{check_loopback, history, show};

#[derive(Debug, Args)]
pub(in crate::cli) struct SearchArgs {
    /// Suite of scenarios: chat, shared-prefix, agentic, stale-signals, slo-tiers, long-context, gateway, tenants, overload, kv-eviction, kv-offload, disaggregation, or a file
    #[arg(value_name = "SUITE")]
    suite: String,
    /// Kinds of decisions to search for [default: those that the suite decides]
    #[arg(long = "kind", value_name = "KIND,…", value_delimiter = ',', value_parser = kind)]
    kinds: Vec<Kind>,
    /// Programs to evaluate, in whole batches; as many random ones are evaluated for comparison
    #[arg(long, value_name = "N", default_value_t = 2000, value_parser = parse::count)]
    evaluations: u32,
    /// Seed of the search
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    seed: u64,
    /// Epoch: other seeds of the suite for each number
    #[arg(long, value_name = "N", default_value_t = 0)]
    epoch: u64,
    /// Patterns over N decisions of each kind of the programs that reach the first seed of train, 64 if no number is given: the signals that they name
    /// are drawn more often when these programs are changed; 0 for none
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true, default_value_t = 0, default_missing_value = "64",
        value_parser = patterns)]
    patterns: u32,
    /// Costs of N routing decisions of each scenario of train under the best program, measured anew in every cycle, 64 if no number is
    /// given: of several new programs the one is evaluated that would have decided best; 0 for none
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true, default_value_t = 0, default_missing_value = "64",
        value_parser = decisions)]
    decisions: u32,
    /// SQLite file of all evaluations; one of the same search is continued
    #[arg(long, value_name = "FILE")]
    archive: Option<PathBuf>,
    /// File for the script that was found
    #[arg(long, value_name = "FILE.rhai")]
    out: Option<PathBuf>,
    /// Concurrent evaluations on this machine [default: one per core]; 0 with --worker-command for none
    #[arg(long, value_name = "N", value_parser = workers)]
    workers: Option<usize>,
    /// Command that evaluates as well, on another machine: one that starts `blis serve --stdio --suite SUITE` there, as ssh HOST
    /// blis serve …; may be given several times
    #[arg(id = "worker_command", long = "worker-command", value_name = "COMMAND", value_parser = NonEmptyStringValueParser::new())]
    worker_commands: Vec<String>,
    /// Memory limit of the process of an evaluation, GiB
    #[arg(long, value_name = "N", default_value_t = DEFAULT_MEMORY_GIB, value_parser = memory_gib)]
    worker_memory_gib: NonZeroU32,
    #[command(flatten)]
    grants: GrantFlags,
    /// Form of the output; auto is text on a terminal, JSON elsewhere
    #[arg(long, value_enum, value_name = "FORM", default_value_t = OutputForm::Auto)]
    output: OutputForm,
    /// A page that shows the search while it runs, on this address of this machine; without one on a free port, which is printed
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, require_equals = true, default_missing_value = "127.0.0.1:0")]
    ui: Option<SocketAddr>,
    /// Folder for the history of the search, which `blis view FOLDER` shows
    #[arg(long, value_name = "FOLDER")]
    history: Option<PathBuf>,
    /// Language model that proposes programs instead of a share of the mutations, behind OpenAI's interface: http://HOST:PORT or
    /// https://HOST. A key for it is read from BLIS_API_KEY or OPENAI_API_KEY
    #[arg(long, value_name = "URL", value_parser = ServerUrl::parse, requires = "model_name", help_heading = MODEL)]
    model_url: Option<ServerUrl>,
    /// Model that requests name
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new(), requires = "model_url", help_heading = MODEL)]
    model_name: Option<String>,
    /// Share of the mutations of each batch that are programs of the model instead, above 0 and at most 1
    #[arg(long, value_name = "SHARE", default_value_t = 0.25, value_parser = parse::share, requires = "model_url",
        help_heading = MODEL)]
    model_share: f64,
    /// Longest duration of a reply, s or with a unit
    #[arg(long, value_name = "S", default_value = "300", value_parser = parse::seconds_above_0, requires = "model_url",
        help_heading = MODEL)]
    model_timeout: Micros,
    /// Log level of messages on standard error
    #[arg(long, value_enum, value_name = "LEVEL", default_value_t = LogLevel::Warn)]
    log: LogLevel,
}

/// Help heading.
const MODEL: &str = "Language model";

fn kind(name: &str) -> Result<Kind, String> {
    Kind::of(name).ok_or_else(|| {
        let known: Vec<&str> = Kind::ALL.iter().map(|kind| kind.name()).collect();
        format!("the kinds are {}", known.join(", "))
    })
}

impl SearchArgs {
    /// The language model, if one is named.
    fn model(&self) -> Result<Option<ChatClient>, RunError> {
        let named = self.model_url.clone().zip(self.model_name.clone());
        let timeout = Duration::from_micros(self.model_timeout.0);
        named.map(|(server, name)| ChatClient::new(server, name, api_key().as_ref(), timeout)).transpose()
    }
}

/// Runs the command `blis search`.
pub(in crate::cli) fn search(args: &SearchArgs) -> Result<(), RunError> {
    start_log(args.log.into());
    check_loopback(args.ui)?;
    let model = args.model()?;
    if args.workers == Some(0) && args.worker_commands.is_empty() {
        return Err(RunError::usage("with `--workers 0` nothing evaluates programs")
            .hint("leave it out for one worker per core, or name other machines with `--worker-command`"));
    }
    let history = history(args.history.as_deref(), args.ui.is_some())?;
    let title = format!("Search on {}", args.suite);
    let shown = RefCell::new(None);
    let started = || {
        let page =
            args.ui.zip(history.as_ref()).map(|(address, history)| show(history, address, &title)).transpose()?;
        shown.replace(page);
        Ok(())
    };
    let bar = SearchBar::default();
    let result = find(SearchRequest {
        suite: &args.suite,
        kinds: &args.kinds,
        evaluations: args.evaluations,
        seed: args.seed,
        epoch: args.epoch,
        patterns: args.patterns,
        decisions: args.decisions,
        model: model.as_ref().map(|model| ModelMutation { model, share: args.model_share }),
        archive: args.archive.as_deref(),
        server: ServerSettings {
            suites: Vec::new(),
            threads: args.workers,
            commands: args.worker_commands.clone(),
            queue: NonZeroUsize::MIN,
            budget: None,
            cache: None,
            run_cache: run_cache(),
            // An evaluation runs its simulations one after the other.
            worker: worker_settings(Some(NonZeroUsize::MIN), args.worker_memory_gib),
            history: history.as_ref().map(Arc::clone),
            paths: PathAccess::All,
            granted: args.grants.granted(),
            permissions: granted(),
        },
        started: &started,
        progress: &|progress| bar.show(progress),
    });
    drop(bar);
    if let Some(server) = shown.into_inner() {
        server.finish().map_err(|error| RunError::runtime(format_args!("the page has ended early: {error}")))?;
    }
    let result = result?;
    if let (Some(path), Some(source)) = (&args.out, result.source()) {
        write_text(path, source).map_err(|error| RunError::file(&error))?;
    }
    let about = Envelope::in_words(format!("programs for {} on the suite {}", result.kinds().join(", "), args.suite));
    print_result(args.output, &result, &about, result.text())?;
    if !wants_text_form(args.output) {
        return Ok(());
    }
    // Lines of a script are not wrapped.
    let printed = result.source().filter(|_| args.out.is_none());
    printed.map_or(Ok(()), |source| print(format_args!("\n{source}")))
}
