//! What the parts of a simulation cost, in this process and without reading or printing anything.
//!
//! `cargo bench --bench parts [-- FILTER]`

mod clone;
mod engine;
mod kv;
mod setup;
mod step_time;
mod workload;

fn main() {
    divan::main();
}
