#![no_main]

use std::path::Path;

use blis_plugin::{Limits, script};

// Any text is a script or a fault, and a script is called a few times.
libfuzzer_sys::fuzz_target!(|text: &str| {
    let limits = Limits { operations_per_call: 10_000, collection_size: 4_096, ..Limits::default() };
    match script::load(Path::new("fuzz.rhai"), text, &limits) {
        Ok(plugin) => blis_fuzz::call_a_few_times(&*plugin, &limits),
        Err(fault) => assert!(!fault.to_string().is_empty()),
    }
});
