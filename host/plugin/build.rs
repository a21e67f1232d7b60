//! Rebuilds the crate when a file is added to the folder that it embeds; changed files are tracked by the compiler.

fn main() {
    println!("cargo::rerun-if-changed=../../policies");
}
