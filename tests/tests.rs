//! The one integration binary: the real program and the real engine against recorded results.
//!
//! Data below `../shared` is in no repository; tests that read it skip, and say so,
//! where it is absent.

#![allow(clippy::disallowed_methods, reason = "tests make the files that they read")]

mod architectures;
mod autoscaling;
mod blis;
mod by_hand;
mod capacity;
mod cases;
mod cli;
mod cluster;
mod compare;
mod config;
mod containment;
mod coverage;
mod decisions;
mod deployment_section;
mod deployments;
mod disaggregation;
mod disaggregation_plugins;
mod documents;
mod energy;
mod evaluate;
mod examples;
mod exports;
mod fidelity;
mod fidelity_page;
mod flags;
mod flow_control;
mod flow_plugins;
mod help_examples;
mod hints;
mod hostile;
mod interface;
mod kv_cache_plugins;
mod leaks;
mod llm_d;
mod load;
mod macros;
mod map;
mod markdown;
mod nonsense;
mod output;
mod outside;
mod pages;
mod placements;
mod planning;
mod plugin_replay;
mod plugin_test;
mod plugins;
mod production;
mod prose;
mod readers;
mod real_time;
mod real_traces;
mod rebuilt;
mod reference;
mod registry;
mod regret;
mod reimplemented;
mod sampling;
mod scaling_plugins;
mod search;
mod search_model;
mod search_workers;
mod servers;
mod settings;
mod shared;
mod shell;
mod shipped;
mod terminal;
mod traces;
mod vllm;
mod whole_files;
