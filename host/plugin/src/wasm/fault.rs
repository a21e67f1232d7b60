//! Faults of a guest in plain words: the file, the function that was called, what happened, the last error that the
//! guest logged, and the position in its code.

use std::fmt::{self, Display, Write as _};
use std::path::Path;
use std::sync::Arc;

use blis_diag::Location;
use wasmtime::{FrameInfo, Trap, WasmBacktrace};

use crate::limits::{FRAME_CHARACTERS, FRAMES};
use crate::text::plain;
use crate::{Fault, FaultKind, Limits};

/// The file of a plugin, by the path that the user gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PluginPath(Arc<str>);

impl PluginPath {
    pub(super) fn new(path: &Path) -> Self {
        Self(blis_diag::display(path))
    }

    /// A fault of this file; `what` describes it.
    pub(super) fn fault(&self, kind: FaultKind, what: impl Display) -> Fault {
        Fault::new(kind, what.to_string()).at(Location::file(Arc::clone(&self.0)))
    }

    /// The fault for a call of `function` that ended in `error`; `last_error` is the last error that the guest logged.
    pub(super) fn failed(&self, function: &str, error: &wasmtime::Error, last_error: &str, limits: &Limits) -> Fault {
        let (kind, what) = explain(error, limits);
        let mut lines = String::new();
        if !last_error.is_empty() {
            let _ = write!(lines, "\n  it logged: {last_error}");
        }
        if let Some(trace) = error.downcast_ref::<WasmBacktrace>() {
            for frame in trace.frames().iter().filter(|frame| of_the_guest(frame)).take(FRAMES) {
                let _ = write!(lines, "\n  at {}", plain(&position(frame), FRAME_CHARACTERS));
            }
        }
        let mut fault = self.fault(kind, format_args!("{function}: {what}"));
        fault.diagnostic.excerpt = (!lines.is_empty()).then(|| lines.into());
        fault
    }
}

impl Display for PluginPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The error for a memory or table that would exceed its limit.
#[derive(Debug, thiserror::Error)]
#[error("needed {needed} {unit}; the limit is {allowed}")]
pub(super) struct LimitExceeded {
    pub needed: usize,
    pub allowed: usize,
    pub unit: &'static str,
}

/// The error for a result that exceeds the limit of the host.
#[derive(Debug, thiserror::Error)]
#[error("returned more data than allowed")]
pub(super) struct ResultTooLarge;

fn explain(error: &wasmtime::Error, limits: &Limits) -> (FaultKind, String) {
    if let Some(too_much) = error.downcast_ref::<LimitExceeded>() {
        return (FaultKind::OutOfMemory, too_much.to_string());
    }
    if error.is::<ResultTooLarge>() {
        return (FaultKind::OutOfMemory, ResultTooLarge.to_string());
    }
    let Some(trap) = error.downcast_ref::<Trap>() else { return broken_rules(error, limits) };
    let what = match trap {
        Trap::OutOfFuel => {
            let what = format!(
                "used more than {} instructions (fuel); look for a loop that does not end",
                limits.fuel_per_call
            );
            return (FaultKind::OutOfFuel, what);
        }
        Trap::StackOverflow => {
            let what = "called functions too deeply; look for a recursion that does not end";
            return (FaultKind::TooDeep, what.to_owned());
        }
        Trap::UnreachableCodeReached => "trapped (a panic, an abort, or `unreachable`)",
        Trap::MemoryOutOfBounds => "read or wrote outside its memory",
        Trap::TableOutOfBounds | Trap::IndirectCallToNull | Trap::BadSignature => "called a function that is not there",
        Trap::IntegerDivisionByZero => "divided a whole number by zero",
        Trap::IntegerOverflow => "divided the smallest whole number by -1",
        Trap::BadConversionToInteger => "made a whole number of one that has none (NaN, or too large)",
        other => return (FaultKind::Trap, format!("trapped: {other}")),
    };
    (FaultKind::Trap, what.to_owned())
}

/// For errors that are not traps: the guest returned an invalid value, or called a host function with invalid
/// arguments.
fn broken_rules(error: &wasmtime::Error, limits: &Limits) -> (FaultKind, String) {
    if error.chain().any(is_shortage) {
        let what = "the system has no memory or address space left for a further guest: each reserves 4 GiB of addresses. Use \
                    fewer instances, or raise `vm.max_map_count`";
        return (FaultKind::HostResources, what.to_owned());
    }
    let text = error.root_cause().to_string();
    // wasmtime does not export this error type.
    if text.contains("fuel allocated for hostcalls") {
        return (FaultKind::OutOfMemory, ResultTooLarge.to_string());
    }
    let text = plain(&text, limits.message_bytes);
    (FaultKind::Trap, format!("violated its interface: {text}"))
}

/// Whether the system refused the host what it asked for.
fn is_shortage(cause: &(dyn std::error::Error + 'static)) -> bool {
    let by_system = cause.downcast_ref::<std::io::Error>().and_then(std::io::Error::raw_os_error);
    let code = by_system.or_else(|| cause.downcast_ref::<rustix::io::Errno>().map(|errno| errno.raw_os_error()));
    let shortages = [rustix::io::Errno::NOMEM, rustix::io::Errno::AGAIN, rustix::io::Errno::MFILE];
    code.is_some_and(|code| shortages.iter().any(|shortage| shortage.raw_os_error() == code))
}

/// Whether the frame belongs to the guest's code; the adapter functions that wit-component adds do not help an author.
fn of_the_guest(frame: &FrameInfo) -> bool {
    !frame.module().name().is_some_and(|name| name.starts_with("wit-component:"))
}

/// The position of a frame, as `blis_sdk::route (src/lib.rs:12:5)`, if the guest has names and line numbers.
fn position(frame: &FrameInfo) -> String {
    let symbol = frame.symbols().first();
    let mut position = String::new();
    let _ = match symbol.and_then(|symbol| symbol.name()).or(frame.func_name()) {
        Some(name) => write!(position, "{:#}", rustc_demangle::demangle(name)),
        None => write!(position, "function {}", frame.func_index()),
    };
    let Some((symbol, file)) = symbol.and_then(|symbol| Some((symbol, symbol.file()?))) else { return position };
    let _ = write!(position, " ({file}");
    for number in [symbol.line(), symbol.column()].into_iter().flatten() {
        let _ = write!(position, ":{number}");
    }
    position.push(')');
    position
}
