#![no_main]

use blis_workload::guidellm;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    blis_fuzz::read(bytes, |input, file, options| guidellm::read(input, file, options));
});
