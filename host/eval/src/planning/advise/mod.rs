//! `blis advise`: the cheapest deployment that serves a load within SLOs, of all that a budget allows.
//!
//! ```text
//! AdviseConfig ─► space (designs, static cuts) ─► screening (one seed, few requests) ─► race (all seeds, ties, lengthening)
//!               ─► finalists (unseen seeds, head-room, errors of the model, robustness) ─► DeploymentAdvice (document, text, files)
//! ```
//!
//! All designs serve the same requests of the same seeds. The fewest replicas of a design hold by the rule of `blis size`. The cheapest is the choice;
//! of equally cheap ones, that with the worst figure furthest below its limit.

mod bench;
mod budget;
mod config;
mod document;
mod files;
mod finalists;
mod race;
mod report;
mod risk;
mod screening;
mod search;
mod space;
mod text;

pub use budget::{Budget, Weights};
pub use config::{AdviseConfig, AdviseOptions};
pub use document::{AdvisedDeployment, CutCount, DeploymentAdvice, HeadRoom, NearMiss, Robustness};
pub use files::{AdviceFile, files};
pub use search::advise;
