//! One run of `blis`, with the resources that the kernel reports.

use std::io::Read as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use wait4::Wait4 as _;

/// The program under test, built with the same profile as this benchmark.
pub const BLIS: &str = env!("CARGO_BIN_EXE_blis");

/// Resources used by one run.
#[derive(Clone, Copy, Debug)]
pub struct ProcessRun {
    /// User and system time of the process.
    pub cpu: Duration,
    /// Peak resident memory, bytes. At least the few megabytes of this program, because a child process starts as a
    /// copy of its parent.
    pub peak_bytes: u64,
    /// Number of requests that were simulated.
    pub requests: u64,
}

/// Runs `blis` with `arguments`, which must select JSON output.
pub fn run(arguments: &[String]) -> Result<ProcessRun> {
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
    Ok(ProcessRun { cpu: used.rusage.utime + used.rusage.stime, peak_bytes: used.rusage.maxrss, requests })
}
