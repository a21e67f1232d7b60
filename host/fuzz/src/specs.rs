//! Specifications and models: input that is accepted can be used.

use std::num::NonZeroU32;

use blis_config::{Catalogue, TrainedDefaults};
use blis_sim::capacity::{self, MemoryBudget};
use blis_sim::latency::{Batch, LatencyModel, MoeComm, Roofline, TrainedPhysics};
use blis_sim::model::{ModelConfig, Parallelism};
use blis_sim::units::Micros;
use blis_workload::spec::{DrawnRequest, Files, GenerateOptions, Spec, Window, WindowRate};

/// An accepted `text` generates requests in order; a refused one has an error with a hint.
pub fn check_spec(text: &str, files: &dyn Files) {
    let spec = match Spec::parse("fuzz", text, files) {
        Ok(spec) => spec,
        Err(error) => {
            assert!(error.to_string().contains("\nhint: "), "{error}");
            return;
        }
    };
    let members: u64 = spec.cohorts.iter().map(|cohort| u64::from(cohort.population)).sum();
    if members + spec.clients.len() as u64 > 5_000 || filled(&spec) > 1e5 {
        return; // valid, but slow
    }
    let options = GenerateOptions {
        seed: 1,
        block_size: NonZeroU32::new(16).expect("not 0"),
        horizon: spec.horizon.unwrap_or(HORIZON),
        num_requests: Some(100),
        timeout: None,
        as_in_blis: false,
    };
    match spec.requests(&options) {
        Ok((requests, _)) => check_drawn(requests, 16),
        Err(error) => assert!(error.to_string().contains("\nhint: "), "{error}"),
    }
    // The same with the follow-ups of closed loops.
    if let Ok(workload) = spec.generate(&options) {
        super::follow(workload, 100);
    }
}

/// The horizon for specifications without one.
const HORIZON: Micros = Micros(1_000_000_000);

/// An upper bound of the requests of all windows, which are drawn before the first one arrives.
fn filled(spec: &Spec) -> f64 {
    let horizon = spec.horizon.unwrap_or(HORIZON);
    let cohorts = spec.cohorts.iter().flat_map(|cohort| cohort.windows());
    let windows = spec.clients.iter().flat_map(|client| client.windows.clone()).chain(cohorts);
    let requests = |window: Window| {
        let rate = match window.rate {
            WindowRate::Count(count) => return count as f64,
            WindowRate::Weight(rate) | WindowRate::Exact(rate) => rate.max(spec.aggregate_rate),
            WindowRate::Usual => spec.aggregate_rate,
        };
        rate * window.end.min(horizon).saturating_sub(window.start).0 as f64 / 1e6
    };
    windows.map(requests).sum()
}

/// Generated requests make sense.
fn check_drawn(requests: impl Iterator<Item = DrawnRequest>, block_size: u32) {
    let mut before = Micros::ZERO;
    for (id, drawn) in requests.enumerate() {
        let request = drawn.request;
        assert!(before <= request.arrival && request.id.index() == id, "out of order");
        assert!(request.input_tokens > 0 && request.output_tokens > 0, "an empty prompt or output");
        let tokens = u64::from(request.input_tokens) + u64::from(request.output_tokens);
        assert!(u64::from(request.content.shared_blocks()) * u64::from(block_size) <= tokens);
        before = request.arrival;
    }
}

/// Runs the computations of a deployment on `model`: it is refused, or a step has a duration.
pub fn simulate_a_step(model: &ModelConfig) {
    let catalogue = Catalogue::load(None).expect("built in");
    let gpu = &catalogue.find("H100").expect("built in").gpu;
    let parallelism = Parallelism { tensor: 1, data: 1 };
    let budget = MemoryBudget { utilization: 0.9, reserved_gib: 0.0 };
    if let Err(error) = capacity::kv_blocks(model, gpu, parallelism, 16, budget) {
        assert!(!error.to_string().is_empty());
    }
    let mut batch = Batch::default();
    batch.add_prefill(1_000, 5_000, 100_000);
    if let Ok(roofline) = Roofline::new(model, gpu, parallelism) {
        assert!(roofline.step_time(&batch).0 >= 1);
    }
    let trained = TrainedDefaults::get();
    if let Ok(physics) = TrainedPhysics::new(model, gpu, parallelism, MoeComm::default(), &trained.alpha, &trained.beta)
    {
        assert!(physics.step_time(&batch).0 >= 1);
    }
}
