#![no_main]

// A file of tokens and probabilities, CSV or JSON, that a specification names.
const SPEC: &str = "
aggregate_rate: 10
clients:
  - id: a
    rate_fraction: 1
    arrival: { process: poisson }
    input_distribution: { type: empirical, file: lengths }
    output_distribution: { type: constant, params: { value: 5 } }
";

libfuzzer_sys::fuzz_target!(|text: &str| blis_fuzz::check_spec(SPEC, &blis_fuzz::OneFile(text)));
