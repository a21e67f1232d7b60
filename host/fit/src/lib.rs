//! Coefficients of the `physics` latency model from measurements, and their validation.
//!
//! ```text
//! runs (measured requests) ─► replay (the simulator) ─► errors
//!            ▲                        │
//!            └──── calibrate ◄────────┘   closed loop: slower steps mean larger batches, which are slower
//! ```

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests make the files that they read"))]

mod aggregates;
pub mod breakdown;
pub mod calibrate;
mod catalogue;
pub mod errors;
pub mod kernels;
pub mod load;
pub mod memory;
pub mod plot;
pub mod replay;
pub mod report;
mod requests;
pub mod runs;
pub mod start_log;
pub mod steps;
pub mod validate;

pub use errors::Errors;
pub use load::load;
pub use report::{FitReport, LeaveOut, fit};
pub use runs::{FitError, MeasuredRequest, MeasuredRun, RunOptions, RunSplit, RunStage};
pub use steps::{ValidatedSteps, is_steps, validate_steps};
pub use validate::{DeploymentClass, Validated, validate};
