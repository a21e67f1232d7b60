#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = blis_workload::otel_steps::read(bytes, "fuzz");
});
