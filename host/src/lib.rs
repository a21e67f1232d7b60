//! The host: workloads, configuration, plugin hosts, evaluation and reports around `blis-sim`.

pub mod workload;
