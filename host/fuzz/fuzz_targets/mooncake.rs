#![no_main]

use blis_workload::mooncake;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    blis_fuzz::read(bytes, |input, file, options| mooncake::read(input, file, options));
});
