#![no_main]

use blis_workload::sglang_bench;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    blis_fuzz::read(bytes, |input, file, options| sglang_bench::read(input, file, options));
});
