//! The `blis` program.
fn main() {}
