//! Scripts as policies of other systems: a cache policy of vLLM in Python, a plugin of llm-d's endpoint picker in Go, a
//! `ScaledObject` of KEDA.

mod keda;
mod llm_d_plugin;
mod source;
mod term;
mod vllm;

pub use self::keda::{KedaSettings, keda_scaled_object};
pub use self::llm_d_plugin::{GoPlugin, llm_d_plugin};
pub use self::source::ExportedScript;
pub use self::vllm::vllm_cache_policy;
