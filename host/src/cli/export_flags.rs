//! The flags of files that a run writes for other tools.

use std::ffi::OsStr;
use std::path::PathBuf;

use blis_eval::experiment::{OutputFiles, TimelineFile};
use blis_eval::spec::parse;
use blis_report::{Export, ExportFormat, ExportWindow};
use blis_sim::units::Micros;
use clap::Args;

use super::output::OUTPUT;

/// The run in the formats of tools that read real measurements.
#[derive(Debug, Default, Args)]
pub(super) struct ExportFlags {
    /// Export the run in the format of another tool; may be given several times. FORMAT is
    /// trace-v2 (PATH.yaml and PATH.csv, which replay to the same results), vllm-bench (the JSON of vLLM's
    /// load generator with details), aiperf (two files in the folder PATH), otel (OpenTelemetry
    /// spans of every request and engine step) or perfetto (the same for ui.perfetto.dev: JSON, or a smaller file
    /// if PATH ends in .pftrace; a further .gz compresses either)
    #[arg(long, value_name = "FORMAT=PATH", help_heading = OUTPUT)]
    pub export: Vec<Export>,
    /// --export perfetto: leave out what ends before this time of the run, as 1m30s
    #[arg(long, value_name = "TIME", value_parser = parse::duration, requires = "export", help_heading = OUTPUT)]
    pub export_from: Option<Micros>,
    /// --export perfetto: leave out what begins at this time of the run or later
    #[arg(long, value_name = "TIME", value_parser = parse::duration, requires = "export", help_heading = OUTPUT)]
    pub export_to: Option<Micros>,
    /// --export perfetto: only these instances, by number, with the requests that they served
    #[arg(long, value_name = "N,…", value_delimiter = ',', requires = "export", help_heading = OUTPUT)]
    pub export_instances: Vec<u32>,
    /// The same as --export trace-v2=PREFIX
    #[arg(long, value_name = "PREFIX", help_heading = OUTPUT)]
    pub trace_output: Option<PathBuf>,
    /// File for the service over time, CSV, or Parquet if its name ends so: for each moment a row for the cluster and for
    /// each instance, with requests waiting and running, KV blocks in use, hit rate, arrivals, completions, replicas
    #[arg(long, value_name = "FILE.csv|parquet", value_parser = timeline_file, help_heading = OUTPUT)]
    pub timeline: Option<PathBuf>,
    /// Time between two moments of --timeline, at least 1us
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = parse::duration, requires = "timeline",
          help_heading = OUTPUT)]
    pub interval: Micros,
}

/// The file of `--timeline`.
fn timeline_file(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    match path.extension().and_then(OsStr::to_str) {
        Some(other @ ("pq" | "arrow" | "feather" | "json" | "jsonl" | "xlsx")) => Err(format!(
            "a timeline is CSV or Parquet, not `{other}`: name `{}` or `{}`",
            path.with_extension("csv").display(),
            path.with_extension("parquet").display()
        )),
        _ => Ok(path),
    }
}

impl ExportFlags {
    pub(super) fn files(&self, metrics_path: &Option<PathBuf>, results_path: &Option<PathBuf>) -> OutputFiles {
        let trace = self.trace_output.clone().map(|path| Export { format: ExportFormat::TraceV2, path });
        OutputFiles {
            metrics_path: metrics_path.clone(),
            results_path: results_path.clone(),
            exports: self.export.iter().cloned().chain(trace).collect(),
            trace_window: ExportWindow {
                from: self.export_from.unwrap_or(Micros::ZERO),
                to: self.export_to.unwrap_or(Micros::MAX),
                instances: self.export_instances.clone(),
            },
            timeline: self.timeline.clone().map(|path| TimelineFile { path, interval: self.interval }),
            page: None,
        }
    }
}
