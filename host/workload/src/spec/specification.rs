//! What a specification says: its clients, and how much they send together.

use std::collections::BTreeMap;

use blis_sim::units::Micros;

use super::client::Client;
use super::cohort::Cohort;
use crate::trace_v2::GoodputTargets;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Spec {
    /// Seed of all random numbers, if the file has one.
    pub seed: Option<u64>,
    /// `language`, `multimodal`, `reasoning` or empty. A label without effect.
    pub category: String,
    /// Requests per second of all clients together; 0: every window has its own rate.
    pub aggregate_rate: f64,
    /// Maximum number of requests; `None` for no limit.
    pub num_requests: Option<u64>,
    /// No request arrives at this time or later.
    pub horizon: Option<Micros>,
    pub clients: Vec<Client>,
    /// Groups of clients that are alike.
    pub cohorts: Vec<Cohort>,
    /// Parts with their own rate, number of requests and horizon. A client belongs to at most one of them.
    pub parts: Vec<Part>,
    /// Latency targets by class.
    pub goodput_slo_targets: BTreeMap<String, GoodputTargets>,
    /// Warnings about settings that may have unexpected effects: (what, hint).
    pub warnings: Vec<(String, String)>,
}

impl Spec {
    /// The first client with requests that wait for the ends of others.
    #[must_use]
    pub fn first_in_closed_loop(&self) -> Option<&Client> {
        let cohorts = self.cohorts.iter().map(|cohort| &cohort.client);
        self.clients.iter().chain(cohorts).find(|client| client.is_closed_loop())
    }

    /// Its keys that are recorded only: they have no effect on a simulation.
    #[must_use]
    pub fn keys_without_effect(&self) -> Vec<&'static str> {
        let clients = || self.clients.iter().chain(self.cohorts.iter().map(|cohort| &cohort.client));
        let any = |has: fn(&Client) -> bool| clients().any(has);
        let keys = [
            ("category", !self.category.is_empty()),
            ("streaming", any(|client| client.streaming)),
            ("network", any(|client| client.network.is_some())),
            ("slo_target_us", any(|client| client.slo_target.is_some())),
            ("reason_ratio_distribution", any(|client| client.reason_ratio.is_some())),
        ];
        keys.into_iter().filter(|&(_, has)| has).map(|(name, _)| name).collect()
    }
}

/// Clients that share a rate of their own: one of several specifications before they were composed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Part {
    /// Name by which clients and cohorts refer to it.
    pub name: String,
    /// As [`Spec::aggregate_rate`], for its clients.
    pub aggregate_rate: f64,
    /// Maximum number of requests of its clients.
    pub num_requests: Option<u64>,
    /// None of its requests arrives at this time or later.
    pub horizon: Option<Micros>,
}
