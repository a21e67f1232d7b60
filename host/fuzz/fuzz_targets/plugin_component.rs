#![no_main]

use std::path::Path;

use blis::plugin::wasm::{Kept, Settings};
use blis::plugin::{Limits, wasm};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let settings = Settings { kept: Kept::Nowhere, ..Settings::default() };
    // Any bytes are a plugin or a fault.
    let _ = wasm::load(Path::new("fuzz.wasm"), bytes, &Limits::default(), &settings);
});
