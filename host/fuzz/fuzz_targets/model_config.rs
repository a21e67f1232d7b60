#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| {
    // The name matters: from `-fp8` and `-w4a16` follow the bytes of a weight.
    for name in ["fuzz", "fuzz-w4a16"] {
        if let Ok(model) = blis_config::parse_model(name, "config.json".into(), text) {
            blis_fuzz::simulate_a_step(&model.config);
        }
    }
});
