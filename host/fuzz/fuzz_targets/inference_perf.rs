#![no_main]

use blis_workload::spec::NoFiles;

// inference-perf's own format, which is recognised by its key `load`, and our format with a section of it.
libfuzzer_sys::fuzz_target!(|text: &str| {
    blis_fuzz::check_spec(text, &NoFiles);
    if !text.lines().any(|line| line.starts_with("load:")) {
        blis_fuzz::check_spec(&format!("inference_perf: {text}"), &NoFiles);
    }
});
