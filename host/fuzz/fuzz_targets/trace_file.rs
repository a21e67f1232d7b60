#![no_main]

use std::fs;

use blis_workload::profile::{ProfileText, WorkloadProfile};
use blis_workload::{TraceOptions, open_trace};

// A file as `blis workload inspect` reads it: gzip-compressed or not, in a format detected from its content. TraceV2
// has two files, of which one is missing here.
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let path = std::env::temp_dir().join(format!("blis-fuzz-{}", std::process::id()));
    fs::write(&path, bytes).expect("the folder for temporary files can be written");
    let options = TraceOptions { skip_bad_lines: true, ..TraceOptions::default() };
    match open_trace(&path, &options) {
        Ok(workload) => {
            if let Some(profile) = WorkloadProfile::new(workload, options.block_size.get()) {
                let text = ProfileText { profile: &profile, width: 80, colour: false }.to_string();
                assert!(!text.is_empty() && (0.0..=1.0).contains(&profile.ideal_prefix_hit), "{profile:?}");
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
