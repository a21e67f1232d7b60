#![no_main]

use std::path::Path;

libfuzzer_sys::fuzz_target!(|text: &str| {
    for file in ["fuzz.yaml", "fuzz.json"] {
        for hardware in blis_config::parse_hardware(Path::new(file), text).unwrap_or_default() {
            let figures = [hardware.gpu.tflops_fp16, hardware.gpu.hbm_tb_s];
            assert!(figures.iter().all(|figure| *figure > 0.0 && figure.is_finite()), "{hardware:?}");
        }
    }
});
