#![no_main]

use blis_workload::aiperf;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    blis_fuzz::read(bytes, |input, file, options| aiperf::read(input, file, options));
});
