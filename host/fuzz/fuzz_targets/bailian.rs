#![no_main]

use blis_workload::bailian;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    blis_fuzz::read(bytes, |input, file, options| bailian::read(input, file, options));
});
