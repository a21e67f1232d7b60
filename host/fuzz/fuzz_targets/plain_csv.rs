#![no_main]

use blis_workload::{DrawnArrivals, TraceOptions, distribution::ArrivalProcess, plain_csv};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    blis_fuzz::read(bytes, |input, file, options| plain_csv::read(input, file, options));
    // Files without arrivals.
    blis_fuzz::read(bytes, |input, file, options| {
        let arrivals = Some(DrawnArrivals { rate: 2.0, process: ArrivalProcess::Poisson, seed: 1 });
        plain_csv::read(input, file, &TraceOptions { arrivals, ..options.clone() })
    });
});
