//! Instruction counts of the whole process: they do not depend on the load of the machine.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use crate::process::BLIS;

/// Whether valgrind is installed.
pub fn is_installed() -> bool {
    let version = Command::new("valgrind").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    version.is_ok_and(|status| status.success())
}

/// Number of instructions that `blis` executes with `arguments`. The profile is written to `target/tmp`.
pub fn count(name: &str, arguments: &[String]) -> Result<u64> {
    let words: Vec<&str> = name.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
    let profile = Path::new(env!("CARGO_TARGET_TMPDIR")).join(words.join("-") + ".callgrind");
    let mut out_file = std::ffi::OsString::from("--callgrind-out-file=");
    out_file.push(&profile);
    let output = Command::new("valgrind")
        .arg("--tool=callgrind")
        .arg(out_file)
        .arg(BLIS)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .context("valgrind does not start")?;
    let log = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "under valgrind: {}\n{log}", output.status);
    collected(&log).with_context(|| format!("no `Collected` in the output of valgrind:\n{log}"))
}

/// Parses a line like `==4711== Collected : 29871045`.
fn collected(log: &str) -> Option<u64> {
    let line = log.lines().find(|line| line.contains("Collected :"))?;
    line.rsplit(':').next()?.trim().parse().ok()
}
