//! The `blis` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    blis::cli::main()
}
