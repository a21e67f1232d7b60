//! One run of `blis`, and what the kernel says it used.

use std::io::Read as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use wait4::Wait4 as _;

/// The program under test, built with the same profile as this one.
pub const BLIS: &str = env!("CARGO_BIN_EXE_blis");

/// What one run used.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// User and system time.
    pub cpu: Duration,
    /// The most memory it had resident at once. Counts this program's own few megabytes if they
    /// are more: a child starts out as its parent.
    pub peak_bytes: u64,
    /// Requests it simulated.
    pub requests: u64,
}

/// Runs `blis` with `arguments`, which let it print JSON.
pub fn run(arguments: &[String]) -> Result<Run> {
    let mut child = Command::new(BLIS)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("{BLIS} does not start"))?;
    let mut printed = Vec::new();
    child.stdout.take().context("its output is a pipe")?.read_to_end(&mut printed)?;
    let used = child.wait4()?;
    ensure!(used.status.success(), "`blis {}` ended with {}", arguments.join(" "), used.status);
    let results: Value = serde_json::from_slice(&printed)?;
    let requests = results["injected_requests"].as_u64().context("`injected_requests` is missing")?;
    Ok(Run { cpu: used.rusage.utime + used.rusage.stime, peak_bytes: used.rusage.maxrss, requests })
}
