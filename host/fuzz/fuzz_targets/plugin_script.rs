#![no_main]

use std::path::Path;

use blis::plugin::{Limits, script};

libfuzzer_sys::fuzz_target!(|text: &str| {
    // Any text is a script or a fault.
    let _ = script::load(Path::new("fuzz.rhai"), text, &Limits::default());
});
