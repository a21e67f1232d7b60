#![no_main]

use blis_plugin::Limits;

// A valid module with random code is compiled and called, or is refused.
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let limits = Limits { fuel_per_call: 100_000, ..Limits::default() };
    blis_fuzz::generated_module(bytes, &limits);
});
