#![no_main]

use blis_workload::blis_csv;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    blis_fuzz::read(bytes, |input, file, options| blis_csv::read(input, file, options));
});
