//! What must hold of everything that is read, whatever its bytes.

use blis::config::{Catalogue, TrainedDefaults};
use blis::workload::{TraceError, TraceOptions, Workload};
use blis_sim::capacity::{self, MemoryBudget};
use blis_sim::latency::{Batch, LatencyModel, MoeComm, Roofline, TrainedPhysics};
use blis_sim::model::{ModelConfig, Parallelism};

/// What every parser answers.
type Answer = Result<Workload, TraceError>;

/// Reads `bytes` strictly and leniently; what comes out must make sense, and errors must print.
pub fn read(bytes: &[u8], parser: impl Fn(&[u8], &str, &TraceOptions) -> Answer) {
    for skip_bad_lines in [false, true] {
        let options = TraceOptions { skip_bad_lines, ..TraceOptions::default() };
        match parser(bytes, "fuzz", &options) {
            Ok(workload) => check(workload, &options),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}

fn check(workload: Workload, options: &TraceOptions) {
    let mut before = blis_sim::units::Micros::ZERO;
    let mut count = 0;
    for request in workload.requests {
        assert!(before <= request.arrival, "out of order");
        assert!(request.input_tokens > 0, "an empty prompt");
        let tokens = u64::from(request.input_tokens) + u64::from(request.output_tokens);
        let shared = u64::from(request.content.shared_blocks()) * u64::from(options.block_size.get());
        assert!(shared <= tokens, "{shared} shared tokens of {tokens}");
        before = request.arrival;
        count += 1;
    }
    assert_eq!(workload.count, Some(count));
}

/// Generated requests make sense.
pub fn check_drawn(requests: impl Iterator<Item = blis::workload::spec::Drawn>, block_size: u32) {
    let mut before = blis_sim::units::Micros::ZERO;
    for (id, drawn) in requests.enumerate() {
        let request = drawn.request;
        assert!(before <= request.arrival && request.id as usize == id, "out of order");
        assert!(request.input_tokens > 0 && request.output_tokens > 0, "an empty prompt or answer");
        let tokens = u64::from(request.input_tokens) + u64::from(request.output_tokens);
        assert!(u64::from(request.content.shared_blocks()) * u64::from(block_size) <= tokens);
        before = request.arrival;
    }
}

/// Computes what a deployment computes from `model`: it is refused, or it gives a step a length.
pub fn simulate_a_step(model: &ModelConfig) {
    let catalogue = Catalogue::load(None).expect("built in");
    let gpu = &catalogue.find("H100").expect("built in").gpu;
    let parallelism = Parallelism { tensor: 1, data: 1 };
    let budget = MemoryBudget { utilization: 0.9, reserved_gib: 0.0 };
    let _ = capacity::kv_blocks(model, gpu, parallelism, 16, budget);
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
