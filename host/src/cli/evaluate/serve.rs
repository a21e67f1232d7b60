//! `blis serve`: one process that keeps suites in memory and evaluates candidate after candidate.

mod http;
mod lines;
mod memory;

use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::sync::Arc;

use blis_eval::error::RunError;
use blis_eval::evaluation::server::{self, ServerSettings};
use clap::{ArgGroup, Args};

use super::super::output::{LogLevel, start_log};
use super::super::workers::{DEFAULT_MEMORY_GIB, run_cache, worker_settings};
use super::live::{SearchFolder, check_loopback};

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("where").required(true).args(["stdio", "http"]))]
pub(in crate::cli) struct ServeArgs {
    /// Suites of scenarios; the first is the default of requests
    #[arg(long, value_name = "SUITE", default_value = "chat")]
    suite: Vec<String>,
    /// JSON lines: requests on standard input, results on standard output
    #[arg(long)]
    stdio: bool,
    /// HTTP address, as 127.0.0.1:8765; port 0 takes a free one and prints it. Loopback only
    #[arg(long, value_name = "ADDRESS")]
    http: Option<std::net::SocketAddr>,
    /// Concurrent evaluations [default: one per core]
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,
    /// Memory limit of the process of an evaluation, GiB
    #[arg(long, value_name = "N", default_value_t = DEFAULT_MEMORY_GIB)]
    worker_memory_gib: NonZeroU32,
    /// Maximum waiting requests; further ones are refused with a retry hint
    #[arg(long, value_name = "N", default_value = "64")]
    queue: NonZeroUsize,
    /// Maximum evaluations of this process
    #[arg(long, value_name = "N")]
    budget: Option<u64>,
    /// Folder of the result cache
    #[arg(long, value_name = "DIR")]
    cache: Option<PathBuf>,
    /// A page at the address of `--http` that shows the evaluated candidates while they come
    #[arg(long, conflicts_with = "stdio")]
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
    let folder = SearchFolder::create(args.history.as_deref(), args.ui)?;
    let page = args.ui.then(|| folder.as_ref().map(|folder| folder.page("Evaluated candidates"))).flatten();
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
        history: folder.as_ref().map(|folder| Arc::clone(&folder.history)),
    };
    server::serve(&settings, |server| match args.http {
        Some(address) => http::run(server, address, page),
        None => lines::run(server),
    })
}
