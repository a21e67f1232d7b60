//! Experiments and their evaluation: from a specification to simulations, comparisons and evaluation results.
//!
//! ```text
//! ExperimentSpec ─► Experiment ─► open (workload) + service (cluster) ─► measure ─► run, compare, counterfactual
//!                                                                        ├─► planning: capacity, size, sweep, advise
//!                                                                        └─► evaluation: suites, cascade, server, tuning ─► search
//! ```
//!
//! The crate has no command line and prints nothing: the `blis` program turns flags into a specification and prints
//! results.
//!
//! Policies are compared by the figures of their runs, by one fitness score computed from several figures, and by an
//! interval that says whether the difference between two policies is larger than chance. These computations are pure
//! functions of numbers. The caller provides the simulation: `runs::run_all` runs every policy under every seed, and
//! [`Comparison`] reads the results. Runs are paired: every policy serves the same requests under the same seed. The
//! spread between seeds is often far larger than the difference between policies, and it cancels out in the
//! differences.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests make the files that they read"))]

pub mod bound;
pub mod calibration;
pub mod cancel;
pub mod cascade;
pub mod catalog;
mod charges;
pub mod compare;
mod comparison_conclusion;
pub mod comparison_rules;
pub mod counterfactual;
pub mod decision_costs;
pub mod disaggregation;
mod duration;
mod entries;
pub mod envelope;
pub mod error;
pub mod evaluation;
pub mod experiment;
pub mod explain;
pub mod feedback;
mod figures;
mod fitness;
pub mod flow;
pub mod group;
pub mod identity;
mod kv_cache;
pub mod kv_layout;
pub mod live;
mod load_warnings;
mod lock;
mod lora;
mod measure;
pub mod named_policy;
pub mod node_pool;
mod nodes;
mod objective;
pub mod open;
mod over_time;
mod paired;
mod pattern_text;
pub mod patterns;
pub mod planning;
pub mod prices;
mod recording;
pub mod regret;
mod replicas;
pub mod result;
pub mod result_figures;
pub mod run;
mod run_conclusion;
mod run_state;
mod runs;
pub mod scaling;
mod scaling_rules;
mod score_sentence;
pub mod search;
pub mod service;
pub mod spec;
pub mod startup;
pub mod steps;
mod stratified;
pub mod suite;
mod table;
mod targets;
mod think_time;
mod tiers;
pub mod timer;
mod within_trace;
pub mod worker;
pub mod workload_config;
mod worst_minute;

/// Hash of the sources and data that a result depends on. Results that another build wrote into a cache are not used.
pub const BUILD: &str = env!("BLIS_BUILD");

pub use cascade::CascadeResult;
pub use figures::{Better, Figure, Figures, Needs, Unit};
pub use fitness::{
    Factors, Fitness, FitnessComponent, FitnessScale, FitnessWeights, LEAST_RATIO, LOWEST, NoSample, WeightsError,
};
pub use objective::{ChargedFigures, EndValues, Objective};
pub use paired::{CONFIDENCE, ConfidenceInterval, Paired, PairedResult};
pub use stratified::StratifiedDifference;
pub use table::Comparison;
pub use worker::finished_simulations;
