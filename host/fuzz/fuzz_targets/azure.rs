#![no_main]

use blis_workload::azure;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    blis_fuzz::read(bytes, |input, file, options| azure::read(input, file, options));
});
