//! Open-loop load on a server with OpenAI's interface, recorded as a TraceV2 trace.
//!
//! ```text
//! workload ─► pace.rs: every request at its planned time ─► exchange.rs ─► record.rs ─► trace, report.rs
//!     ▲                                                         │
//!     └────── next round of a session, in closed loop ◄─────────┘
//! ```
//!
//! A request is sent at its planned time, whatever has not come back; how late it was is reported, because a late load
//! generator hides the latency of a slow server (coordinated omission). There is one monotonic clock, in microseconds
//! from the start.

mod connections;
mod contexts;
mod exchange;
mod messages;
mod pace;
mod prompts;
mod record;
mod report;
mod settings;
mod target;
mod tls;

pub use pace::LiveFigures;
pub use record::Recording;
pub use report::{LatencyFigures, Lateness, ObserveReport};
pub use settings::{ApiKey, ObserveSettings, PromptForm, ServerApi, SessionContext};
pub use target::ServerUrl;

pub(crate) use connections::Connections;
pub(crate) use exchange::{Exchange, ExchangeEnd, ReadOptions, exchange};
pub(crate) use messages::bearer;

use blis_eval::error::RunError;
use blis_workload::Workload;

/// Sends the requests of `workload` to a server and records what comes back. `show` is called every second. An interrupt
/// ends the sending, a second one the waiting; what was recorded remains.
///
/// # Errors
/// If the server cannot be reached at the start.
pub fn observe(
    settings: &ObserveSettings,
    workload: Workload,
    show: &mut dyn FnMut(&LiveFigures),
) -> Result<Recording, RunError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(RunError::runtime)?;
    let tasks = tokio::task::LocalSet::new();
    runtime.block_on(tasks.run_until(pace::run(settings, workload, show)))
}
