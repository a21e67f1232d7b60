#![no_main]

use std::ffi::OsString;

use blis_eval::{FitnessScale, FitnessWeights};

// Each line is an argument of the command line. No simulation runs and no file is read.
libfuzzer_sys::fuzz_target!(|text: &str| {
    let words: Vec<OsString> = std::iter::once("blis").chain(text.lines()).map(OsString::from).collect();
    if let Err(message) = blis::cli::check_words(&words) {
        assert!(!message.is_empty());
    }
    for scale in [FitnessScale::Ratio, FitnessScale::Blis] {
        match FitnessWeights::parse(text, scale) {
            Ok(weights) => assert!(weights.iter().any(|(_, weight)| weight > 0.0)),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
});
