//! The engine that compiles and runs guests: one per process and [`WasmSettings`].

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use wasmtime::{Config, Engine, WasmBacktraceDetails};

use crate::{Fault, FaultKind};

/// Settings of WebAssembly in this process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WasmSettings {
    /// Whether a NaN keeps the bits that the processor gives it: only to measure what it costs that it does not. A guest could
    /// read those bits, so that its decisions would differ between processors.
    pub raw_nan: bool,
    /// The folder for compiled components.
    pub cache: CompileCache,
}

/// The folder for compiled components, with file names that depend on their content, the version of wasmtime and its
/// settings. Code found there runs without further checks: no other user may have write access.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CompileCache {
    /// The user's cache folder on this platform (`~/.cache/blis/compiled`).
    #[default]
    UserCache,
    /// This folder, an absolute path.
    Folder(PathBuf),
    /// No folder: every process compiles anew (25 ms for 30 KB).
    Disabled,
}

/// The engine for `settings`.
///
/// # Errors
/// If this machine cannot run WebAssembly.
pub(super) fn engine(settings: &WasmSettings) -> Result<Engine, Fault> {
    static ENGINES: Mutex<Vec<(WasmSettings, Engine)>> = Mutex::new(Vec::new());
    let mut engines = ENGINES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, engine)) = engines.iter().find(|(known, _)| known == settings) {
        return Ok(engine.clone());
    }
    let engine = Engine::new(&config(settings)).map_err(|error| {
        Fault::new(FaultKind::Unreadable, format!("WebAssembly does not run on this machine: {error:#}"))
    })?;
    engines.push((settings.clone(), engine.clone()));
    Ok(engine)
}

fn config(settings: &WasmSettings) -> Config {
    let mut config = Config::new();
    config
        // Fuel is the only limit that stops at the same instruction on every machine. Bulk instructions such as
        // `memory.copy` count one unit per byte.
        .consume_fuel(true)
        .cranelift_nan_canonicalization(!settings.raw_nan)
        // Results of relaxed SIMD may differ between CPUs.
        .wasm_relaxed_simd(false)
        .wasm_memory64(false)
        .concurrency_support(false)
        // Debug information is read only after a trap. The default would depend on an environment variable.
        .wasm_backtrace_details(WasmBacktraceDetails::Enable);
    config
}
