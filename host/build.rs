//! Rebuilds the crate when a file is added to an embedded folder; changed files are tracked by the compiler.
fn main() {
    for folder in ["../hardware", "../model_configs", "../policies", "../sdk"] {
        println!("cargo::rerun-if-changed={folder}");
    }
}
