//! `blis steps`: what the scheduler does with a recorded scenario, step by step, in the form of the recording.
//!
//! Recordings of vLLM's own scheduler name requests by their tokens and count steps instead of time. [`RecordedScenario`] reads both of their
//! forms; the form follows from `config`: with `block_size` all layers cache every token (`cases/vllm`), otherwise `layers` or `plan`
//! describe the KV groups (`cases/vllm-groups`).

mod case;
#[cfg(test)]
mod counters;
mod rows;
mod run;
#[cfg(test)]
mod tests;

pub use case::{RecordedScenario, ScenarioError};
pub use rows::SchedulerSteps;
pub use run::{EngineKind, steps};
