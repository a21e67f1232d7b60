//! Rebuilds the crate when a file is added to a folder that it embeds; changed files are tracked by the compiler.

fn main() {
    for folder in ["../../hardware", "../../model_configs"] {
        println!("cargo::rerun-if-changed={folder}");
    }
}
