#![no_main]

use blis_workload::spec::NoFiles;

libfuzzer_sys::fuzz_target!(|text: &str| blis_fuzz::check_spec(text, &NoFiles));
