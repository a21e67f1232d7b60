//! Experiments and their evaluation: from a specification to simulations, comparisons and results of candidates.
//!
//! ```text
//! ExperimentSpec ─► Experiment ─► open (workload) + service (cluster) ─► measure ─► run, compare, counterfactuals
//!                                                                        └─► judge: suites, cascade, server, tuning
//! ```
//!
//! No command line and no printing: the `blis` program turns flags into a specification and prints results.
//!
//! Judging policies: the figures of their runs, one score from many figures, and whether the
//! difference between two policies is more than chance.
//!
//! Everything here is a function of numbers. Who simulates, and what a contestant is, the caller
//! brings along: `pairs::run_all` runs every contestant on every seed, [`Comparison`] reads the results.
//! Runs are paired: each contestant meets the same requests under the same seed, so that the
//! spread between seeds, often far larger than that between policies, cancels out.

pub mod cancel;
pub mod cascade;
pub mod catalog;
pub mod compare;
pub mod contest;
pub mod counterfactual;
pub mod error;
pub mod experiment;
pub mod explain;
pub mod feedback;
mod figures;
mod fitness;
pub mod judge;
mod measure;
pub mod open;
mod paired;
mod recording;
pub mod regret;
pub mod run;
mod runs;
pub mod service;
pub mod spec;
pub mod suite;
mod table;
pub mod timer;
pub mod verdict;
pub mod workload_config;

/// Hash of the sources and data that a result depends on: cached results of another build do not count.
pub const BUILD: &str = env!("BLIS_BUILD");

pub use cascade::Judgement;
pub use figures::{Better, Figure, Figures, Needs, Unit};
pub use measure::finished_simulations;
pub use fitness::{Component, Fitness, FitnessScale, FitnessWeights, LOWEST, NoSample, WeightsError};
pub use paired::{CONFIDENCE, Interval, Paired, Verdict};
pub use table::Comparison;
