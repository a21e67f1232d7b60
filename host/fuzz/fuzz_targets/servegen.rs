#![no_main]

use std::io;
use std::path::Path;

use blis_workload::spec::Files;

/// A folder with one client: both files are in the input, separated by `---`.
struct ClientFolder<'a>(&'a str, &'a str);

impl Files for ClientFolder<'_> {
    fn read(&self, path: &Path) -> io::Result<String> {
        Ok(if path.to_string_lossy().ends_with(".csv") { self.0 } else { self.1 }.to_owned())
    }

    fn names(&self, _path: &Path) -> io::Result<Vec<String>> {
        Ok(vec!["chunk-0-dataset.json".to_owned(), "chunk-0-trace.csv".to_owned()])
    }
}

libfuzzer_sys::fuzz_target!(|text: &str| {
    let (trace, dataset) = text.split_once("---").unwrap_or((text, "{}"));
    blis_fuzz::check_spec("servegen_data: { path: folder }", &ClientFolder(trace, dataset));
});
