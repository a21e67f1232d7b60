#![no_main]

use blis_workload::{DrawnArrivals, TraceOptions, distribution::ArrivalProcess, sharegpt};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    blis_fuzz::read(bytes, |input, file, options| {
        let arrivals = Some(DrawnArrivals { rate: 2.0, process: ArrivalProcess::Poisson, seed: 1 });
        sharegpt::read(input, file, &TraceOptions { arrivals, ..options.clone() })
    });
});
