#![no_main]

use blis_config::KvOffload;

// A file is accepted, or refused with a hint; what is accepted is accepted again.
libfuzzer_sys::fuzz_target!(|text: &str| match KvOffload::parse("fuzz.yaml", text, 16) {
    Ok(offload) => assert!(KvOffload::parse("fuzz.yaml", text, 16).is_ok_and(|again| again == offload)),
    Err(diagnostic) => assert!(diagnostic.hint.is_some()),
});
