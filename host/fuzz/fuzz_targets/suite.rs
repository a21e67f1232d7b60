#![no_main]

use blis_diag::Diagnose as _;
use blis_eval::suite::{Split, Suite};

// An accepted suite has the splits that a search needs; a refused one has an error with a location and a hint.
libfuzzer_sys::fuzz_target!(|text: &str| match Suite::parse("fuzz.yaml", text) {
    Ok(suite) => {
        for split in [Split::Smoke, Split::Train] {
            assert!(!suite.scenarios_in(split).is_empty());
        }
        assert!(!suite.decides.iter().any(|kind| kind.name() == "latency"));
        for split in [Split::Smoke, Split::Train, Split::Select, Split::Test] {
            assert!((1..=1000).contains(&suite.seeds_of(split)));
            assert!(suite.seed(split, u64::MAX, 0, 3) < 1 << 32);
        }
    }
    Err(error) => {
        let diagnostic = error.diagnostic();
        assert!(diagnostic.location.is_some() && diagnostic.hint.is_some());
    }
});
