//! Coefficients of the `physics` latency model from measurements, and their validation.
//!
//! ```text
//! runs (measured requests) ─► replay (the simulator) ─► errors
//!            ▲                        │
//!            └──── calibrate ◄────────┘   closed loop: slower steps mean larger batches, which are slower
//! ```

mod aggregates;
pub mod calibrate;
pub mod errors;
pub mod kernels;
pub mod load;
pub mod plot;
pub mod replay;
pub mod report;
pub mod runs;
pub mod validate;

pub use errors::Errors;
pub use load::load;
pub use report::{FitReport, LeaveOut, fit};
pub use runs::{FitError, MeasuredRequest, MeasuredRun, RunOptions, RunSplit};
pub use validate::{DeploymentClass, Validated, validate};
