//! The cost of a plugin beside a built-in policy: one routing call, and loading before the first call.
//!
//! `cargo bench --bench plugins [-- FILTER]`

#![allow(clippy::disallowed_methods, reason = "tests make the files that they read")]

mod flow;
mod pipeline;
mod view;
mod wasm;

fn main() {
    divan::main();
}
