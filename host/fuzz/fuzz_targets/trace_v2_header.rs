#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = blis_workload::trace_v2::read_header(bytes, "fuzz");
});
