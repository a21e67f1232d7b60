#![no_main]

use blis_workload::vllm_bench;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    blis_fuzz::read(bytes, |input, file, options| vllm_bench::read(input, file, options));
});
