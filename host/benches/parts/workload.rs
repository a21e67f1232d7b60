//! Generation of requests, without simulation.

use std::fmt::Write as _;
use std::num::NonZeroU32;

use blis_sim::units::Micros;
use blis_workload::spec::{GenerateOptions, NoFiles, Spec};
use divan::Bencher;
use divan::counter::ItemsCount;

use crate::setup::BLOCK;

const REQUESTS: u64 = 1_000_000;

/// Fifty clients: every arrival process, shared prefixes, several classes.
#[divan::bench(sample_count = 5)]
fn a_million_requests_of_fifty_clients(bencher: Bencher) {
    measure(bencher, "");
}

/// The same clients with growing conversations, for which block keys are assigned.
#[divan::bench(sample_count = 5)]
fn a_million_rounds_of_conversations(bencher: Bencher) {
    let turns = "{ max_rounds: 5, think_time_us: 5000000, context_growth: accumulate }";
    measure(bencher, &format!("    reasoning: {{ multi_turn: {turns} }}\n    closed_loop: false\n"));
}

fn measure(bencher: Bencher, more: &str) {
    let mut text = "aggregate_rate: 1000\nclients:\n".to_owned();
    for n in 0..50 {
        let process = ["poisson", "gamma, cv: 2", "weibull, cv: 1.5", "constant"][n % 4];
        let client = format!(
            "  - id: client-{n}\n    rate_fraction: {}\n    slo_class: {}\n    prefix_group: g{}\n    prefix_length: {}\n    \
             arrival: {{ process: {process} }}\n    \
             input_distribution: {{ type: lognormal, params: {{ mu: 6, sigma: 0.8 }} }}\n    \
             output_distribution: {{ type: exponential, params: {{ mean: 200 }} }}\n{more}",
            1 + n % 5,
            ["critical", "standard", "batch"][n % 3],
            n % 10,
            64 * (n % 10 + 1),
        );
        text.write_str(&client).expect("a String takes everything");
    }
    let spec = Spec::parse("bench", &text, &NoFiles).expect("it is valid");
    let options = GenerateOptions {
        seed: 42,
        block_size: NonZeroU32::new(BLOCK).expect("not 0"),
        horizon: Micros::MAX,
        num_requests: Some(REQUESTS),
        timeout: None,
        as_in_blis: false,
    };
    bencher.counter(ItemsCount::new(REQUESTS)).bench(|| {
        let (requests, _) = spec.requests(&options).expect("it is valid");
        requests.fold(0_u64, |sum, drawn| sum + u64::from(drawn.request.input_tokens))
    });
}
