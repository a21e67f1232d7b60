#![no_main]

use blis_eval::prices::Prices;

// Accepted prices are above 0; a refused list has an error with a hint.
libfuzzer_sys::fuzz_target!(|text: &str| match Prices::parse("fuzz.yaml", text) {
    Ok(prices) => {
        if let Ok(price) = prices.price("H100") {
            assert!(price.usd_per_gpu_hour > 0.0 && price.usd_per_gpu_hour.is_finite());
        }
    }
    Err(diagnostic) => assert!(diagnostic.hint.is_some()),
});
