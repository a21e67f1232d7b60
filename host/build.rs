//! Rebuilds the crate when a file is added to a folder that the program carries; changed files are tracked by the
//! compiler.

fn main() {
    println!("cargo::rerun-if-changed=../sdk");
}
