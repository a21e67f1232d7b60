//! Rebuilds the crate when a file is added to a folder that the program carries (changed files are tracked by the compiler), and
//! makes the released program a tenth smaller where the linker can: equal functions are kept once.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Nothing here compares addresses of functions, which Rust does not keep apart either.
const FOLD_EQUAL_FUNCTIONS: &str = "-Wl,--icf=all";

fn main() {
    println!("cargo::rerun-if-changed=../sdk");
    println!("cargo::rerun-if-changed=build.rs");
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|v| v == value);
    if is("PROFILE", "release") && env::var("HOST") == env::var("TARGET") && linker_folds() {
        println!("cargo::rustc-link-arg-bin=blis={FOLD_EQUAL_FUNCTIONS}");
    }
}

/// Whether an empty program links with [`FOLD_EQUAL_FUNCTIONS`]: with lld, Rust's default on Linux; not with GNU ld.
fn linker_folds() -> bool {
    let folder = PathBuf::from(env::var_os("OUT_DIR").expect("set by Cargo"));
    let source = folder.join("empty.rs");
    if fs::write(&source, "fn main() {}").is_err() {
        return false;
    }
    let mut rustc = Command::new(env::var_os("RUSTC").unwrap_or_else(|| OsString::from("rustc")));
    if let Some(linker) = env::var_os("RUSTC_LINKER") {
        let mut argument = OsString::from("linker=");
        argument.push(linker);
        rustc.arg("-C").arg(argument);
    }
    let flags = env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    rustc.args(flags.split('\u{1f}').filter(|flag| !flag.is_empty()));
    rustc.arg("-C").arg(format!("link-arg={FOLD_EQUAL_FUNCTIONS}")).arg("-o").arg(folder.join("empty")).arg(&source);
    rustc.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}
