//! The service over time, for `--timeline` and `--report`.

use blis_report::{ServiceFront, TimeSeries, TimeSeriesLog, write_whole};

use crate::error::RunError;
use crate::experiment::Experiment;

/// Moments of the lines of a page without `--timeline`.
const MOMENTS_OF_A_PAGE: u64 = 2_000;

/// An empty log, if a file of the run needs one.
pub(crate) fn log(config: &Experiment) -> Option<TimeSeriesLog> {
    let files = &config.files;
    let cluster = &config.cluster;
    let front = ServiceFront {
        instances: cluster.instances(),
        gateway_after: cluster.flow_control.is_some().then_some(cluster.admission_latency),
    };
    match &files.timeline {
        Some(timeline) => Some(TimeSeriesLog::every(timeline.interval, front)),
        None => files.page.is_some().then(|| TimeSeriesLog::at_most(MOMENTS_OF_A_PAGE, front)),
    }
}

/// The series of the log; writes the file of `--timeline`.
pub(crate) fn finish(config: &Experiment, log: Option<TimeSeriesLog>) -> Result<Option<TimeSeries>, RunError> {
    let Some(log) = log else { return Ok(None) };
    let series = log.finish().map_err(|error| {
        RunError::runtime(error).hint("raise `--interval`, or end the run earlier with `--horizon`")
    })?;
    if let Some(timeline) = &config.files.timeline {
        let is_parquet = timeline.path.extension().is_some_and(|found| found.eq_ignore_ascii_case("parquet"));
        write_whole(&timeline.path, |out| if is_parquet { series.write_parquet(out) } else { series.write_csv(out) })
            .map_err(|error| RunError::file(&error))?;
    }
    Ok(Some(series))
}
