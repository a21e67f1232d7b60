//! `blis mock-server`: a simulated service behind OpenAI's interface.

use std::io::Write as _;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use blis_eval::error::RunError;
use blis_eval::experiment::{Experiment, OutputFiles};
use blis_eval::explain::explain;
use blis_eval::open;
use blis_eval::spec::{commands, parse};
use blis_http::mock::{MockServer, MockSettings};
use blis_sim::units::Micros;
use clap::Args;
use serde_json::json;

use super::args::Settings;
use super::output::{LogLevel, print, start_log};

const SERVER: &str = "Server";

#[derive(Debug, Args)]
pub(super) struct MockServerArgs {
    #[command(flatten)]
    given: Settings<{ commands::MOCK }>,
    /// Address to listen on; port 0 takes a free one and prints it
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8000", help_heading = SERVER)]
    listen: SocketAddr,
    /// Real time over simulated time, 0.000001 to 1000000: 0.1 is ten times as fast as the service
    #[arg(long = "time-scale", value_name = "X", default_value_t = 1.0, value_parser = parse::scale,
          help_heading = SERVER)]
    real_time: f64,
    /// Output of a request that sets no `max_tokens`, tokens ≥ 1
    #[arg(long, value_name = "N", default_value = "128", help_heading = SERVER)]
    default_max_tokens: NonZeroU32,
    /// End after this time, s or with a unit [default: when interrupted]
    #[arg(long, value_name = "S", value_parser = parse::seconds_above_0, help_heading = SERVER)]
    exit_after: Option<Micros>,
    /// Configuration file, YAML, as --explain-config prints it; flags win over it
    #[arg(long, value_name = "FILE", help_heading = SERVER)]
    config: Option<PathBuf>,
    /// Print the whole configuration as YAML with the source of each value, and serve nothing
    #[arg(long, help_heading = SERVER)]
    explain_config: bool,
    /// Log level of messages on standard error
    #[arg(long, value_enum, value_name = "LEVEL", default_value_t = LogLevel::Warn, help_heading = SERVER)]
    log: LogLevel,
}

/// Runs `blis mock-server` until it is ended.
pub(super) fn run(args: &MockServerArgs) -> Result<(), RunError> {
    start_log(args.log.into());
    let spec = args.given.over(args.config.as_deref())?;
    let config = Experiment::new(spec, OutputFiles::default())?;
    if args.explain_config {
        return print(explain(&config, &open::resolve(&config)?));
    }
    config.warnings.iter().for_each(|(what, hint)| tracing::warn!("{what} (hint: {hint})"));
    if !args.listen.ip().is_loopback() {
        tracing::warn!("{} can be reached from other machines, and there is no access control", args.listen);
    }
    let settings = MockSettings {
        address: args.listen,
        time_scale: args.real_time,
        output_tokens: args.default_max_tokens.get(),
        duration: args.exit_after.map(|after| Duration::from_micros(after.0)),
    };
    MockServer::new(&config, settings)?.run(|address| {
        let mut out = std::io::stdout().lock();
        let written = writeln!(out, "{}", json!({"listening": format!("http://{address}")})).and_then(|()| out.flush());
        written.map_err(|error| RunError::output(&error))
    })
}
