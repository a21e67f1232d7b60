#![no_main]

use blis_config::adapters::AdapterArgs;

// A file is accepted, or refused with a hint; what is accepted is accepted again.
libfuzzer_sys::fuzz_target!(|text: &str| match AdapterArgs::parse("fuzz.yaml", text) {
    Ok(adapters) => assert!(AdapterArgs::parse("fuzz.yaml", text).is_ok_and(|again| again == adapters)),
    Err(diagnostic) => assert!(diagnostic.hint.is_some()),
});
