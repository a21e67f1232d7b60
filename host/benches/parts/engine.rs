//! The engine alone, on requests generated beforehand, with an observer that keeps nothing.

use blis_config::LatencyKind;
use blis_sim::instance::{Fast, InstanceConfig, Plain};
use blis_sim::request::Request;
use blis_sim::units::Micros;
use divan::Bencher;
use divan::counter::ItemsCount;

use crate::setup::{OutcomeCounter, chat, deployment, instance_of};

const REQUESTS: u64 = 10_000;
const MODELS: [LatencyKind; 2] = [LatencyKind::Blackbox, LatencyKind::TrainedPhysics];

/// Part of the batch is used, and many steps only decode.
#[divan::bench(args = MODELS)]
fn chat_at_20_per_second(bencher: Bencher, model: LatencyKind) {
    measure(bencher, model, 20.0, fast);
}

/// The batch is full, the queue is long, and some request finishes at almost every step.
#[divan::bench(args = MODELS)]
fn chat_at_saturation(bencher: Bencher, model: LatencyKind) {
    measure(bencher, model, 1000.0, fast);
}

#[divan::bench(args = MODELS, sample_count = 10)]
fn chat_at_20_per_second_plain(bencher: Bencher, model: LatencyKind) {
    measure(bencher, model, 20.0, plain);
}

fn measure(bencher: Bencher, model: LatencyKind, rate: f64, run: fn(InstanceConfig, Vec<Request>) -> u32) {
    let (deployment, requests) = (deployment(model), chat(REQUESTS, rate));
    bencher
        .counter(ItemsCount::new(requests.len()))
        .with_inputs(|| (instance_of(&deployment), requests.clone()))
        .bench_values(|(config, requests)| run(config, requests));
}

fn fast(config: InstanceConfig, requests: Vec<Request>) -> u32 {
    let mut ended = OutcomeCounter::default();
    blis_sim::instance::run_alone(Fast::new(config), requests, Micros::MAX, &mut ended).expect("it does not get stuck");
    ended.0
}

fn plain(config: InstanceConfig, requests: Vec<Request>) -> u32 {
    let mut ended = OutcomeCounter::default();
    blis_sim::instance::run_alone(Plain::new(config), requests, Micros::MAX, &mut ended)
        .expect("it does not get stuck");
    ended.0
}
