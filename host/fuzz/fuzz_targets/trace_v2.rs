#![no_main]

use blis_workload::trace_v2;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    blis_fuzz::read(bytes, |input, file, options| {
        trace_v2::read(input, file, &trace_v2::TraceHeader::default(), options)
    });
});
