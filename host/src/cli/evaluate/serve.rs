//! `blis serve`: one process that keeps suites in memory and evaluates candidate after candidate.

mod http;
mod lines;
mod memory;

use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;

use blis_eval::error::RunError;
use blis_eval::evaluation::server::{self, PathAccess, ServerSettings};
use blis_eval::suite::SuiteGrants;
use blis_http::access::AccessToken;
use clap::{ArgGroup, Args};

use super::super::counts::{memory_gib, queue, threads};
use super::super::output::{LogLevel, granted, start_log};
use super::super::workers::{DEFAULT_MEMORY_GIB, run_cache, worker_settings};
use super::live::{check_loopback, history, page, random_token};

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("where").required(true).args(["stdio", "http", "socket"]))]
pub(in crate::cli) struct ServeArgs {
    /// Suites of scenarios; the first is the default of requests
    #[arg(long, value_name = "SUITE", default_value = "chat")]
    suite: Vec<String>,
    /// JSON lines: requests on standard input, results on standard output
    #[arg(long)]
    stdio: bool,
    /// HTTP address, as 127.0.0.1:8765; port 0 takes a free one and prints it. Loopback only. Evaluations need a token, which is
    /// printed as well
    #[arg(long, value_name = "ADDRESS")]
    http: Option<std::net::SocketAddr>,
    /// HTTP on a Unix socket, a new file that only you can use; it needs no token
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// File with the token of --http, for you alone (chmod 600), instead of one that is drawn and printed
    #[arg(long, value_name = "FILE", requires = "http", conflicts_with_all = ["stdio", "socket"])]
    token_file: Option<PathBuf>,
    /// Let every user of this machine evaluate over --http
    #[arg(long, requires = "http", conflicts_with_all = ["stdio", "socket", "token_file"])]
    no_token: bool,
    /// Folder whose files requests over HTTP may name as candidates, links excepted, and suites outside their own; may be given several
    /// times. Without one requests send scripts as text
    #[arg(id = "allow_path", long = "allow-path", value_name = "DIR")]
    allowed: Vec<PathBuf>,
    /// Allow components as large as those with an interpreter inside (Python, JavaScript): compiling one may take a minute
    #[arg(long)]
    allow_large_components: bool,
    /// The process that starts evaluations: standard input is a socket of a server
    #[arg(long, hide = true, requires = "stdio")]
    fork_server: bool,
    /// Of that process: requests may name all files
    #[arg(long, hide = true, requires = "fork_server")]
    all_paths: bool,
    /// Concurrent evaluations [default: one per core]
    #[arg(long, value_name = "N", value_parser = threads)]
    threads: Option<NonZeroUsize>,
    /// Memory limit of the process of an evaluation, GiB
    #[arg(long, value_name = "N", default_value_t = DEFAULT_MEMORY_GIB, value_parser = memory_gib)]
    worker_memory_gib: NonZeroU32,
    /// Maximum waiting requests; further ones are refused with a retry hint
    #[arg(long, value_name = "N", default_value = "64", value_parser = queue)]
    queue: NonZeroUsize,
    /// Maximum evaluations of this process
    #[arg(long, value_name = "N")]
    budget: Option<u64>,
    /// Folder of the result cache
    #[arg(long, value_name = "DIR")]
    cache: Option<PathBuf>,
    /// A page at the address of `--http` that shows the evaluated candidates while they come
    #[arg(long, requires = "http", conflicts_with_all = ["stdio", "socket"])]
    ui: bool,
    /// Folder for the history of evaluated candidates, which `blis view FOLDER` shows
    #[arg(long, value_name = "FOLDER")]
    history: Option<PathBuf>,
    /// Log level of messages on standard error
    #[arg(long, value_enum, value_name = "LEVEL", default_value_t = LogLevel::Warn)]
    log: LogLevel,
}

/// `blis serve`.
pub(in crate::cli) fn serve(args: &ServeArgs) -> Result<(), RunError> {
    start_log(args.log.into());
    memory::return_freed_at_once();
    check_loopback(args.http)?;
    let token = match (args.http, &args.token_file) {
        (Some(_), Some(file)) => Some(AccessToken::read(file).map_err(RunError::refused)?),
        (Some(_), None) if !args.no_token => Some(random_token()?),
        _ => None,
    };
    if args.stdio && !args.fork_server && !args.allowed.is_empty() {
        return Err(RunError::usage("`--allow-path` is for requests over HTTP, and `--stdio` has none")
            .hint("leave it out: the program at standard input may name all files that it can read"));
    }
    let is_open = if args.fork_server { args.all_paths } else { args.stdio };
    let paths = if is_open { PathAccess::All } else { PathAccess::within(&args.allowed)? };
    let history = if args.fork_server { None } else { history(args.history.as_deref(), args.ui)? };
    let page = history.as_ref().filter(|_| args.ui).map(|history| page(history, "Evaluated candidates", token.clone()));
    let settings = ServerSettings {
        suites: args.suite.clone(),
        threads: args.threads.map(NonZeroUsize::get),
        commands: Vec::new(),
        queue: args.queue,
        budget: args.budget,
        cache: args.cache.clone(),
        run_cache: run_cache(),
        // An evaluation runs its simulations one after the other.
        worker: worker_settings(Some(NonZeroUsize::MIN), args.worker_memory_gib),
        history,
        paths,
        granted: SuiteGrants { large_components: args.allow_large_components, paths: args.allowed.clone() },
        permissions: granted(),
    };
    if args.fork_server {
        return server::serve_forks(&settings);
    }
    server::serve(&settings, |server| match (args.http, &args.socket) {
        (Some(address), _) => {
            let is_drawn = args.token_file.is_none();
            http::run_on_port(server, address, http::Protection { token, is_drawn }, page)
        }
        (None, Some(path)) => http::run_on_socket(server, path),
        (None, None) => lines::run(server),
    })
}
