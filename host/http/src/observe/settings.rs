//! How a server is observed.

use std::num::NonZeroUsize;
use std::time::Duration;

use super::target::ServerUrl;

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

/// Which interface of the server gets the requests.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, strum::Display, strum::EnumMessage, strum::IntoStaticStr, strum::VariantArray,
)]
#[strum(serialize_all = "kebab-case")]
pub enum ServerApi {
    /// The route /v1/completions
    // With one prompt.
    Completions,
    /// The route /v1/chat/completions
    Chat,
}

/// What prompts are made of.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, strum::Display, strum::EnumMessage, strum::IntoStaticStr, strum::VariantArray,
)]
#[strum(serialize_all = "kebab-case")]
pub enum PromptForm {
    /// Token ids, exact in length
    // And in what they share (vLLM, SGLang).
    Ids,
    /// Words, as many as the server counts
    Text,
}

/// What the prompt of a later round of a session contains.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, strum::Display, strum::EnumMessage, strum::IntoStaticStr, strum::VariantArray,
)]
#[strum(serialize_all = "kebab-case")]
pub enum SessionContext {
    /// As many tokens as planned
    // Content of its own.
    Planned,
    /// What the server wrote, as text (--prompts text)
    // The prompts before and what the server wrote, and then as many words as the round adds.
    Actual,
}

/// A secret that no message shows.
#[derive(Clone)]
pub struct ApiKey(pub String);

impl std::fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ApiKey(…)")
    }
}
