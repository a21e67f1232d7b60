#![no_main]

use std::path::Path;

use blis_plugin::wasm::{CompileCache, WasmSettings};
use blis_plugin::{Limits, wasm};

// Any bytes are a plugin or a fault, and a plugin is called a few times.
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let settings = WasmSettings { cache: CompileCache::Disabled, ..WasmSettings::default() };
    let limits = Limits { fuel_per_call: 100_000, ..Limits::default() };
    match wasm::load(Path::new("fuzz.wasm"), bytes, &limits, &settings) {
        Ok(plugin) => blis_fuzz::call_a_few_times(&*plugin, &limits),
        Err(fault) => assert!(!fault.to_string().is_empty()),
    }
});
