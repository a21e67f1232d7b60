//! `blis serve`: one process that keeps suites ready and judges candidate after candidate.

mod http;
mod lines;

use std::num::NonZeroUsize;
use std::path::PathBuf;

use blis_eval::error::Failure;
use blis_eval::judge::server::{self, ServerSettings};
use clap::{ArgGroup, Args};

use super::super::output::{LogLevel, start_log};

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("where").required(true).args(["stdio", "http"]))]
pub(in crate::cli) struct ServeArgs {
    /// What candidates are judged on; the first is meant where a request names none
    #[arg(long, value_name = "SUITE", default_value = "chat")]
    suite: Vec<String>,
    /// Requests and answers as lines of JSON on standard input and output
    #[arg(long)]
    stdio: bool,
    /// Address to answer HTTP on, as 127.0.0.1:8765; port 0 takes a free one and prints it. This machine only
    #[arg(long, value_name = "ADDRESS")]
    http: Option<std::net::SocketAddr>,
    /// Candidates judged at a time [default: one per core]
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,
    /// Requests that may wait; further ones are told to come back
    #[arg(long, value_name = "N", default_value = "64")]
    queue: NonZeroUsize,
    /// Evaluations after which no more are made
    #[arg(long, value_name = "N")]
    budget: Option<u64>,
    /// Folder for verdicts, kept for later and for others
    #[arg(long, value_name = "DIR")]
    cache: Option<PathBuf>,
    /// Which messages to print on standard error
    #[arg(long, value_enum, value_name = "LEVEL", default_value_t = LogLevel::Warn)]
    log: LogLevel,
}

/// `blis serve`.
pub(in crate::cli) fn serve(args: &ServeArgs) -> Result<(), Failure> {
    start_log(args.log.into());
    if let Some(address) = args.http.filter(|address| !address.ip().is_loopback()) {
        return Err(Failure::usage(format_args!("{address} can be reached from other machines"))
            .hint("whoever reaches the server can use it: take 127.0.0.1, and a tunnel from elsewhere"));
    }
    let settings = ServerSettings {
        suites: args.suite.clone(),
        threads: args.threads,
        queue: args.queue,
        budget: args.budget,
        cache: args.cache.clone(),
    };
    server::serve(&settings, |server| match args.http {
        Some(address) => http::run(server, address),
        None => lines::run(server),
    })
}
