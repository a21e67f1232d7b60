//! `blis serve`: one process that keeps suites in memory and evaluates candidate after candidate.

mod http;
mod lines;
mod memory;

use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;

use blis_eval::error::RunError;
use blis_eval::evaluation::server::{self, ServerSettings};
use clap::{ArgGroup, Args};

use super::super::output::{LogLevel, start_log};
use super::super::workers::{DEFAULT_MEMORY_GIB, run_cache, worker_settings};

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
    /// Log level of messages on standard error
    #[arg(long, value_enum, value_name = "LEVEL", default_value_t = LogLevel::Warn)]
    log: LogLevel,
}

/// `blis serve`.
pub(in crate::cli) fn serve(args: &ServeArgs) -> Result<(), RunError> {
    start_log(args.log.into());
    memory::return_freed_at_once();
    if let Some(address) = args.http.filter(|address| !address.ip().is_loopback()) {
        return Err(RunError::usage(format_args!("{address} can be reached from other machines"))
            .hint("the server has no access control: use 127.0.0.1, and a tunnel from other machines"));
    }
    let settings = ServerSettings {
        suites: args.suite.clone(),
        threads: args.threads,
        queue: args.queue,
        budget: args.budget,
        cache: args.cache.clone(),
        run_cache: run_cache(),
        // An evaluation runs its simulations one after the other.
        worker: worker_settings(Some(NonZeroUsize::MIN), args.worker_memory_gib),
    };
    server::serve(&settings, |server| match args.http {
        Some(address) => http::run(server, address),
        None => lines::run(server),
    })
}
