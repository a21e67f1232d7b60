//! Feeds a target with random bytes, on any compiler: no coverage guides it, but the targets that build their inputs by a
//! grammar reach most code anyway.
//!
//!     cargo run --release --bin random_bytes -- written_script 600 1     (target, seconds, seed)
//!
//! Prints how far the inputs came, and the slowest ones. An input that fails is the one with the number that was printed last:
//! `random_bytes written_script 0 1 NUMBER` runs that one again, and prints the script.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use blis_fuzz::{Reached, generated_module, write_script, written_script};
use blis_plugin::Limits;
use blis_plugin::meter::MeteredAllocator;
use blis_sim::rng::Stream;

#[global_allocator]
static ALLOCATOR: MeteredAllocator<std::alloc::System> = MeteredAllocator(std::alloc::System);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| arguments.get(at).and_then(|text| text.parse::<u64>().ok());
    let target = arguments.first().map(String::as_str);
    let (Some(target @ ("written_script" | "generated_module")), Some(seconds), Some(seed)) =
        (target, number(1), number(2))
    else {
        eprintln!("random_bytes written_script|generated_module SECONDS SEED [NUMBER]");
        return ExitCode::FAILURE;
    };
    match number(3) {
        Some(number) => {
            let bytes = bytes(seed, number);
            if target == "written_script" {
                let text = write_script(&mut arbitrary::Unstructured::new(&bytes));
                println!("{}", text.unwrap_or_default());
                println!("{:?}", written_script(&bytes, &Limits::default()));
            }
            println!("{:?}", run(target, &bytes));
        }
        // Inputs that all are refused test the refusal only.
        None if repeat(target, Duration::from_secs(seconds), seed) == 0 => {
            eprintln!("no input was called: the target does not write what the host accepts");
            return ExitCode::FAILURE;
        }
        None => {}
    }
    ExitCode::SUCCESS
}

/// Input `number` of a run: some hundred to some thousand bytes.
fn bytes(seed: u64, number: u64) -> Vec<u8> {
    use rand::Rng as _;
    let mut random = Stream::new(seed, "fuzz").at(number);
    let mut bytes = vec![0; 64 << (random.next_u64() % 8)];
    random.fill_bytes(&mut bytes);
    bytes
}

fn run(target: &str, bytes: &[u8]) -> Reached {
    if target == "generated_module" {
        return generated_module(bytes, &Limits { fuel_per_call: 1_000_000, ..Limits::default() });
    }
    let limits = Limits { operations_per_call: 20_000, ..Limits::default() };
    if written_script(bytes, &limits).is_ok() { Reached::Called } else { Reached::Refused }
}

/// Runs inputs for some time, and returns how many of them were called.
fn repeat(target: &str, time: Duration, seed: u64) -> u64 {
    let began = Instant::now();
    let mut called = 0;
    let mut slowest: Vec<(Duration, u64)> = Vec::new();
    let mut number = 0;
    let mut printed = Instant::now();
    while began.elapsed() < time {
        let input = bytes(seed, number);
        // A process that dies leaves the number of its input.
        if std::fs::write(format!("{target}.{seed}.number"), number.to_string()).is_err() {
            eprintln!("the number of the input cannot be written to this folder");
        }
        let start = Instant::now();
        called += u64::from(run(target, &input) == Reached::Called);
        slowest.push((start.elapsed(), number));
        slowest.sort_unstable_by_key(|(took, _)| std::cmp::Reverse(*took));
        slowest.truncate(5);
        number += 1;
        if printed.elapsed() > Duration::from_secs(30) {
            printed = Instant::now();
            println!("{number} inputs, {called} called; slowest {slowest:?}");
        }
    }
    println!(
        "{target}, seed {seed}: {number} inputs in {:?}, {called} of them called; slowest {slowest:?}",
        began.elapsed()
    );
    called
}
