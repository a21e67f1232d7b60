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
mod target;
mod tls;

use std::num::NonZeroUsize;
use std::time::Duration;

pub use record::Recording;
pub use report::{LatencyFigures, Lateness, ObserveReport};
pub use target::ServerUrl;

pub(crate) use connections::Connections;
pub(crate) use exchange::{Exchange, ExchangeEnd, ReadOptions, exchange};
pub(crate) use messages::bearer;

use blis_eval::error::RunError;
use blis_workload::Workload;

/// Which interface of the server gets the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerApi {
    /// The route `/v1/completions`, with one prompt.
    Completions,
    /// The route `/v1/chat/completions`.
    Chat,
}

/// What prompts are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PromptForm {
    /// Token ids: exact lengths and exact shared prefixes (vLLM, SGLang).
    Ids,
    /// Words, as many as the server counts tokens for.
    Text,
}

/// What the prompt of a later round of a session contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionContext {
    /// Content of its own, with as many tokens as planned.
    Planned,
    /// The prompts before and what the server wrote, and then as many words as the round adds. Prompts are
    /// [`PromptForm::Text`].
    Actual,
}

/// How a server is observed.
#[derive(Clone, Debug)]
pub struct ObserveSettings {
    pub server: ServerUrl,
    /// The model that requests name.
    pub model: String,
    /// Sent as `Authorization: Bearer …`; in no file or message.
    pub api_key: Option<ApiKey>,
    pub api: ServerApi,
    pub prompts: PromptForm,
    pub context: SessionContext,
    pub streaming: bool,
    /// Ask for outputs of exactly the planned length (vLLM's `ignore_eos` and `min_tokens`).
    pub exact_lengths: bool,
    /// Maximum requests in flight; `None` for no limit.
    pub max_concurrency: Option<NonZeroUsize>,
    /// Requests that are sent one after the other before the start, and are in no record.
    pub warmup_requests: u32,
    /// Record the time of every part of every output.
    pub record_itl: bool,
    /// Maximum duration of a request that has no deadline of its own.
    pub timeout: Duration,
    /// Differs between runs, so that no cache of the server knows a prompt.
    pub salt: u64,
    /// Tokens per KV block of the workload.
    pub block_size: u32,
    /// Seed of the workload, for the header of the trace.
    pub seed: u64,
}

/// A secret that no message shows.
#[derive(Clone)]
pub struct ApiKey(pub String);

impl std::fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ApiKey(…)")
    }
}

/// The state of a run, for a line that is shown while it runs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LiveFigures {
    /// Seconds since the start.
    pub seconds: f64,
    pub sent: u64,
    pub in_flight: u64,
    pub completed: u64,
    pub failed: u64,
    /// Requests per second that completed in the last second.
    pub rate: f64,
    /// Mean TTFT of these, ms; `None` if there are none.
    pub ttft_ms: Option<f64>,
}

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
