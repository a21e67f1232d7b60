#![no_main]

use blis_workload::burstgpt;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    blis_fuzz::read(bytes, |input, file, options| burstgpt::read(input, file, options));
});
