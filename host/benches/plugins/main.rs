//! What a plugin costs beside a built-in policy: one routing call, and what comes before the first.
//!
//! `cargo bench --bench plugins [-- FILTER]`

mod view;
mod wasm;

fn main() {
    divan::main();
}
