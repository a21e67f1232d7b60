//! What must hold of every trace that is read, whatever its bytes.

use blis::workload::{TraceError, TraceOptions, Workload};

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
