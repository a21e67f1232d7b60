#![no_main]

use blis_workload::otel;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    blis_fuzz::read(bytes, |input, file, options| otel::read(input, file, options));
});
