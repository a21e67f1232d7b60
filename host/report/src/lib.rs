//! The results of a simulation: JSON documents, files and a readable summary.
//!
//! Nothing in this crate prints. A document is a value that serialises itself; a file is written completely or not at
//! all.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests make the files that they read"))]

mod adapters;
mod aggregate;
mod breakdown;
mod columns;
mod conclusion;
mod cost;
mod cpu_tier;
mod decision_summary;
pub mod decisions;
mod definitions;
mod energy;
mod export;
mod file;
mod grouped;
mod load;
mod log;
mod page;
mod parquet;
mod percentile;
mod plot;
mod plugins;
mod replicas;
mod requests;
mod results;
mod summary;
mod time_series;
mod tpot;

pub use aggregate::{metrics_document, report_document};
pub use breakdown::EmptyFigures;
pub use columns::in_columns;
pub use conclusion::{Caveat, CaveatCode, Concludes, Conclusion, ConclusionKind, latency_in_words, three_digits};
pub use cost::ServiceCost;
pub use decision_summary::{DecisionSummary, score, score_regret};
pub use definitions::anomaly_definitions;
pub use energy::GpuEnergy;
pub use export::{Export, ExportFormat, ExportWindow, Journal, JournalDetail, ServiceInfo};
pub use file::{FileError, check_target, write_json, write_pair, write_text, write_whole};
pub use load::{LoadLog, LoadReport, LoadState};
pub use log::EventLog;
pub use page::{PageResult, RunCharts, live_page, write_page};
pub use percentile::percentile;
pub use plot::{FigureKind, PlotError, PlotFigure, PlotInput, plot};
pub use plugins::{other_value, plugins_document};
pub use replicas::{GroupName, PoolName, ReplicasDocument};
pub use requests::{RequestLog, RequestRecord};
pub use results::results_document;
pub use summary::{Setting, Summary};
pub use time_series::{MomentCounts, ServiceFront, TimeSeries, TimeSeriesLog, TooManyMoments};
pub use tpot::{TpotLog, time_per_output_token};

#[cfg(test)]
mod recorded;
