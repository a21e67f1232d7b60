//! The cost of a plugin beside a built-in policy: one routing call, and loading before the first call.
//!
//! `cargo bench --bench plugins [-- FILTER]`

mod flow;
mod pipeline;
mod view;
mod wasm;

fn main() {
    divan::main();
}
