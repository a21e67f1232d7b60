#![no_main]

use std::path::Path;

use blis_plugin::wasm;

// A core module, as compilers make it, becomes a component or is refused.
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    match wasm::componentize(Path::new("fuzz.wasm"), bytes) {
        Ok(component) => assert!(component.starts_with(b"\0asm")),
        Err(fault) => assert!(!fault.to_string().is_empty()),
    }
});
