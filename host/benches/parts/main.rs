//! The cost of the parts of a simulation, in this process and without input or output.
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
