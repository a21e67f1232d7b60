#![no_main]

// Numbers of an accepted log are finite; a refused one has a location and a hint.
libfuzzer_sys::fuzz_target!(|text: &str| match blis_fit::start_log::read("fuzz.log", text) {
    Ok(log) => {
        let gib = [log.weights_gib, log.activation_gib, log.non_torch_gib, log.available_gib, log.total_gib, log.consumed_gib];
        assert!(gib.into_iter().flatten().all(f64::is_finite));
    }
    Err(diagnostic) => assert!(diagnostic.hint.is_some() && diagnostic.location.is_some()),
});
