//! What went wrong in a guest, in plain words: the file, the function that was asked, what happened,
//! what the guest said last, and where in its code.

use std::fmt::{self, Display, Write as _};
use std::path::Path;
use std::sync::Arc;

use blis_diag::Location;
use wasmtime::{FrameInfo, Trap, WasmBacktrace};

use crate::limits::{FRAME_CHARACTERS, FRAMES};
use crate::{Fault, FaultKind, Limits};

/// The file of a plugin, as its user calls it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct File(Arc<str>);

impl File {
    pub(super) fn new(path: &Path) -> Self {
        Self(path.display().to_string().into())
    }

    /// `what` is wrong with it.
    pub(super) fn fault(&self, kind: FaultKind, what: impl Display) -> Fault {
        Fault::new(kind, what.to_string()).at(Location::file(Arc::clone(&self.0)))
    }

    /// A call of `function` ended in `error`; `said` is the last error it logged.
    pub(super) fn failed(&self, function: &str, error: &wasmtime::Error, said: &str, limits: &Limits) -> Fault {
        let (kind, what) = explain(error, limits);
        let mut lines = String::new();
        if !said.is_empty() {
            let _ = write!(lines, "\n  it said: {said}");
        }
        if let Some(trace) = error.downcast_ref::<WasmBacktrace>() {
            for frame in trace.frames().iter().filter(|frame| of_the_guest(frame)).take(FRAMES) {
                let _ = write!(lines, "\n  at {}", excerpt(&place(frame), FRAME_CHARACTERS));
            }
        }
        let mut fault = self.fault(kind, format_args!("{function}: {what}"));
        fault.diagnostic.excerpt = (!lines.is_empty()).then(|| lines.into());
        fault
    }
}

impl Display for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A guest wanted more memory, or a larger table, than it is allowed.
#[derive(Debug)]
pub(super) struct TooMuch {
    pub wanted: usize,
    pub allowed: usize,
    pub unit: &'static str,
}

impl Display for TooMuch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { wanted, allowed, unit } = self;
        write!(f, "wanted {wanted} {unit}; it may have {allowed}")
    }
}

impl std::error::Error for TooMuch {}

/// A guest handed over more in one answer than the host takes.
#[derive(Debug)]
pub(super) struct TooMuchData;

impl Display for TooMuchData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("handed over more data than allowed")
    }
}

impl std::error::Error for TooMuchData {}

fn explain(error: &wasmtime::Error, limits: &Limits) -> (FaultKind, String) {
    if let Some(too_much) = error.downcast_ref::<TooMuch>() {
        return (FaultKind::OutOfMemory, too_much.to_string());
    }
    if error.is::<TooMuchData>() {
        return (FaultKind::OutOfMemory, TooMuchData.to_string());
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
        Trap::UnreachableCodeReached => "gave up (a panic, an abort, or `unreachable`)",
        Trap::MemoryOutOfBounds => "read or wrote outside its memory",
        Trap::TableOutOfBounds | Trap::IndirectCallToNull | Trap::BadSignature => "called a function that is not there",
        Trap::IntegerDivisionByZero => "divided a whole number by zero",
        Trap::IntegerOverflow => "divided the smallest whole number by -1",
        Trap::BadConversionToInteger => "made a whole number of one that has none (NaN, or too large)",
        other => return (FaultKind::Trap, format!("trapped: {other}")),
    };
    (FaultKind::Trap, what.to_owned())
}

/// No trap: the guest handed over something that is not what it should be, or asked the host for
/// something that it cannot answer.
fn broken_rules(error: &wasmtime::Error, limits: &Limits) -> (FaultKind, String) {
    let text = error.root_cause().to_string();
    // wasmtime keeps this type to itself.
    if text.contains("fuel allocated for hostcalls") {
        return (FaultKind::OutOfMemory, TooMuchData.to_string());
    }
    let text = excerpt(&text, limits.message_bytes);
    (FaultKind::Trap, format!("broke the rules of its interface: {text}"))
}

/// The stand-ins that wit-component adds tell nobody anything.
fn of_the_guest(frame: &FrameInfo) -> bool {
    !frame.module().name().is_some_and(|name| name.starts_with("wit-component:"))
}

/// `blis_sdk::route (src/lib.rs:12:5)`, as far as the guest carries names and lines.
fn place(frame: &FrameInfo) -> String {
    let symbol = frame.symbols().first();
    let mut place = String::new();
    let _ = match symbol.and_then(|symbol| symbol.name()).or(frame.func_name()) {
        Some(name) => write!(place, "{:#}", rustc_demangle::demangle(name)),
        None => write!(place, "function {}", frame.func_index()),
    };
    let Some((symbol, file)) = symbol.and_then(|symbol| Some((symbol, symbol.file()?))) else { return place };
    let _ = write!(place, " ({file}");
    for number in [symbol.line(), symbol.column()].into_iter().flatten() {
        let _ = write!(place, ":{number}");
    }
    place.push(')');
    place
}

/// At most `bytes` of `text`, on one line: what a guest says must not play with a terminal.
pub(super) fn excerpt(text: &str, bytes: usize) -> String {
    let cut = &text[..text.floor_char_boundary(bytes)];
    let mut clean: String = cut.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    clean.truncate(clean.trim_end().len());
    if cut.len() < text.len() {
        clean.push('…');
    }
    clean
}
