#![no_main]

use blis_config::policy::Bundle;
use blis_config::policy::llm_d::{EndpointPicker, import};

// The bundle of an accepted configuration, exported and imported, is the same.
libfuzzer_sys::fuzz_target!(|text: &str| match import("fuzz", text) {
    Ok(imported) => {
        let bundle = imported.picker.to_bundle();
        let read = Bundle::parse("fuzz", &bundle).and_then(|bundle| EndpointPicker::of_bundle(&bundle));
        let config = read.expect("imported").to_config();
        assert_eq!(import("fuzz", &config).expect("exported").picker.to_bundle(), bundle);
    }
    Err(error) => assert!(error.to_string().contains("\nhint: ")),
});
