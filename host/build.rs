//! Rebuilds the crate when a file is added to a folder that the program carries (changed files are tracked by the compiler), and
//! makes the released program a quarter smaller where the linker can.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Nothing here compares addresses of functions, which Rust does not keep apart either.
const FOLD_EQUAL_FUNCTIONS: &str = "-Wl,--icf=all";

/// A relocation takes a bit instead of 24 bytes (3 MB), and a start a million instructions less. The C library has to know them.
const RELATIVE_RELOCATIONS: &str = "-Wl,-z,pack-relative-relocs";

/// Drops the tables for unwinding (4 MB): the released program ends at a panic, and has no symbols that a trace could name.
/// `INSERT` leaves all else as the linker does it by default.
const NO_UNWINDING: &str = "SECTIONS { /DISCARD/ : { *(.eh_frame) *(.eh_frame_hdr) } } INSERT AFTER .text;\n";

fn main() {
    println!("cargo::rerun-if-changed=../sdk");
    println!("cargo::rerun-if-changed=build.rs");
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|v| v == value);
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("set by Cargo"));
    // Of profiles that inherit from `release` as well, in folders of their own.
    if !is("PROFILE", "release") || env::var("HOST") != env::var("TARGET") {
        return;
    }
    let script = out.join("no-unwinding.ld");
    if fs::write(&script, NO_UNWINDING).is_err() || fs::write(out.join("empty.rs"), "fn main() {}").is_err() {
        return;
    }
    // What is distributed, of the profile `dist`, meets C libraries older than ours.
    let is_for_here = out.components().any(|part| part.as_os_str() == "release");
    let relocations = is_for_here.then(|| RELATIVE_RELOCATIONS.to_owned());
    let options = [FOLD_EQUAL_FUNCTIONS.to_owned(), format!("-Wl,--no-eh-frame-hdr,-T,{}", script.display())];
    for option in options.into_iter().chain(relocations).filter(|option| works(option, &out)) {
        println!("cargo::rustc-link-arg-bin=blis={option}");
    }
}

/// Whether an empty program links with `option` and runs.
fn works(option: &str, folder: &Path) -> bool {
    let program = folder.join("empty");
    let mut rustc = Command::new(env::var_os("RUSTC").unwrap_or_else(|| OsString::from("rustc")));
    if let Some(linker) = env::var_os("RUSTC_LINKER") {
        let mut argument = OsString::from("linker=");
        argument.push(linker);
        rustc.arg("-C").arg(argument);
    }
    let flags = env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    rustc.args(flags.split('\u{1f}').filter(|flag| !flag.is_empty()));
    rustc.args(["-C", "panic=abort", "-C"]).arg(format!("link-arg={option}"));
    rustc.arg("-o").arg(&program).arg(folder.join("empty.rs"));
    [rustc, Command::new(program)].iter_mut().all(|command| {
        command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    })
}
