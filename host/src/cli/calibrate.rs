//! `blis calibrate`: a measured trace beside its simulation.

use blis_eval::calibration::{Calibration, CalibrationOptions, calibrate};
use blis_eval::envelope::Envelope;
use blis_eval::error::RunError;
use blis_eval::experiment::{Experiment, OutputFiles};
use blis_eval::spec::{commands, parse};
use blis_sim::units::Micros;
use clap::Args;

use super::args::Settings;
use super::envelope::print_result;
use super::fidelity::percent;
use super::run_args::OutputFlags;

const CLIENT: &str = "Client";

#[derive(Debug, Args)]
pub(super) struct CalibrateArgs {
    #[command(flatten)]
    given: Settings<{ commands::CALIBRATE }>,
    /// Time between client and server, there and back, ms ≥ 0 or with a unit: added to simulated latencies
    #[arg(long, value_name = "MS", default_value = "0", value_parser = parse::think_time, help_heading = CLIENT)]
    rtt_ms: Micros,
    /// Fit the time between client and server, and that of a token on its way, to the first half of the requests, and show the
    /// errors of the second half with them. Steps of the engine are fitted by blis fit
    #[arg(long, help_heading = CLIENT)]
    fit: bool,
    /// Exit with code 1 if the mean end-to-end latency is off by more, % > 0
    #[arg(long, value_name = "PERCENT", value_parser = percent, help_heading = CLIENT)]
    fail_over: Option<f64>,
    #[command(flatten)]
    output: OutputFlags,
}

/// Runs `blis calibrate` and prints the comparison.
pub(super) fn run(args: &CalibrateArgs) -> Result<(), RunError> {
    args.output.begin();
    let spec = args.given.over(args.output.config.as_deref())?;
    let hint = "name `--trace-header FILE.yaml --trace-data FILE.csv`, or `--workload-trace FILE`";
    match (&spec.trace_header, &spec.trace_data, &spec.workload_trace) {
        (Some(_), Some(_), None) | (None, None, Some(_)) => {}
        (None, None, None) => return Err(RunError::usage("no measured trace").hint(hint)),
        (Some(_), None, _) | (None, Some(_), _) => {}
        (Some(_), Some(_), Some(_)) => return Err(RunError::usage("two measured traces").hint(hint)),
    }
    let config = Experiment::new(spec, OutputFiles::default())?;
    let options = CalibrationOptions { rtt_ms: args.rtt_ms.0 as f64 / 1e3, fit: args.fit };
    let calibration = calibrate(&config, options)?;
    let warnings = config.warnings.iter().chain(&calibration.warnings);
    warnings.for_each(|(what, hint)| tracing::warn!("{what} (hint: {hint})"));
    let about = Envelope::of_service(&config, &[config.seed], &[])?;
    print_result(args.output.output, &calibration, &about, &calibration)?;
    check_limit(&calibration, args.fail_over)
}

/// # Errors
/// If the mean end-to-end latency is off by more than `limit` percent.
fn check_limit(calibration: &Calibration, limit: Option<f64>) -> Result<(), RunError> {
    let Some(limit) = limit else { return Ok(()) };
    let Some(error) = calibration.e2e.as_ref().and_then(|e2e| e2e.mean.error_percent) else {
        return Err(RunError::runtime("no request has a measured and a simulated latency: nothing was compared"));
    };
    if error.abs() <= limit {
        return Ok(());
    }
    let what = format!("the mean end-to-end latency is off by {error:+.2} %, more than {limit} %");
    Err(RunError::runtime(what).hint("the worst requests show where; `blis fit` fits the steps of the engine"))
}
