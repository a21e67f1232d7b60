#![no_main]

use std::num::NonZeroU32;

use blis::workload::spec::{GenerateOptions, NoFiles, Spec};
use blis_sim::units::Micros;

// Whatever is understood gives requests in order, or says why not.
libfuzzer_sys::fuzz_target!(|text: &str| {
    match Spec::parse("fuzz", text, &NoFiles) {
        Ok(spec) => {
            let members: u64 = spec.cohorts.iter().map(|cohort| u64::from(cohort.population)).sum();
            if members + spec.clients.len() as u64 > 1000 {
                return; // correct, and slow
            }
            let options = GenerateOptions {
                seed: 1,
                block_size: NonZeroU32::new(16).expect("not 0"),
                horizon: spec.horizon.unwrap_or(Micros(1_000_000_000)),
                num_requests: Some(100),
                timeout: None,
            };
            match spec.requests(&options) {
                Ok((requests, _)) => blis_fuzz::check_drawn(requests, 16),
                Err(error) => assert!(error.to_string().contains("\nhint: ")),
            }
        }
        Err(error) => assert!(error.to_string().contains("\nhint: ")),
    }
});
