//! Results of specifications: distributions, rates, order, shared prefixes, messages.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use blis_sim::request::Request;
use blis_sim::units::Micros;

use super::session::{EndStatus, RequestEnd};
use super::*;

mod composing;
mod hostile;
mod messages;
mod properties;
mod sessions;
mod statistics;
mod windows;

const BLOCK: u32 = 16;

pub(super) fn options() -> GenerateOptions {
    GenerateOptions {
        seed: 42,
        block_size: NonZeroU32::new(BLOCK).unwrap(),
        horizon: Micros::MAX,
        num_requests: None,
        timeout: None,
        as_in_blis: false,
    }
}

fn parse(text: &str) -> Spec {
    Spec::parse("spec.yaml", text, &NoFiles).unwrap_or_else(|error| panic!("{error}"))
}

fn error(text: &str) -> String {
    Spec::parse("spec.yaml", text, &NoFiles).expect_err("it is wrong").to_string()
}

/// The number of requests that the specification gives.
fn requests(spec: &Spec) -> (Vec<Request>, Names) {
    let options =
        GenerateOptions { num_requests: spec.num_requests, horizon: spec.horizon.unwrap_or(Micros::MAX), ..options() };
    let workload = spec.generate(&options).unwrap_or_else(|error| panic!("{error}"));
    (workload.requests.collect(), workload.names)
}

/// The requests of a client without the numbers that depend on other clients.
fn of_client(requests: &[Request], names: &Names, id: &str) -> Vec<(Micros, u32, u32, u32)> {
    let name = names.find(id);
    let own = requests.iter().filter(|request| Some(request.tags.client) == name);
    own.map(|r| (r.arrival, r.input_tokens, r.output_tokens, r.content.shared_blocks())).collect()
}

/// A client with constant lengths.
fn client(id: &str, share: f64) -> Client {
    Client::new(id, share, Lengths::Constant(100), Lengths::Constant(10))
}

fn spec(rate: f64, clients: Vec<Client>) -> Spec {
    Spec { aggregate_rate: rate, clients, ..Spec::default() }
}

fn secs(seconds: u64) -> Micros {
    Micros(seconds * 1_000_000)
}

fn mean_and_stdev(values: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
    let count = values.clone().count() as f64;
    let mean = values.clone().sum::<f64>() / count;
    let variance = values.map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0);
    (mean, variance.sqrt())
}

/// Largest distance between the empirical and the given distribution function. `below(x)` is the probability of less
/// than x, `at_most(x)` that of x or less. They differ where the distribution jumps.
fn kolmogorov_smirnov(mut values: Vec<f64>, below: impl Fn(f64) -> f64, at_most: impl Fn(f64) -> f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let count = values.len() as f64;
    let mut distance: f64 = 0.0;
    let mut from = 0;
    for same in values.chunk_by(|a, b| a == b) {
        let to = from + same.len();
        let (before, after) = (from as f64 / count, to as f64 / count);
        distance = distance.max((below(same[0]) - before).abs()).max((at_most(same[0]) - after).abs());
        from = to;
    }
    distance
}

/// The distance that one sample of this size in a hundred exceeds.
fn one_percent(count: usize) -> f64 {
    1.628 / (count as f64).sqrt()
}
