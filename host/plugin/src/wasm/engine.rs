//! The engine that compiles and runs guests: one per process and [`Settings`].

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use wasmtime::{Config, Engine, WasmBacktraceDetails};

use crate::{Fault, FaultKind};

/// How WebAssembly runs in this process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Whether not-a-number has the same bits on every kind of CPU. Costs up to 2.9 times the time of
    /// a loop over floats, and matters only to a guest that looks at those bits.
    pub strict: bool,
    /// Where compiled components are kept.
    pub kept: Kept,
}

/// Where compiled components are kept, by their content, the version of wasmtime and its settings.
/// What is found there is run as it is: nobody else may be able to write to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Kept {
    /// In the user's cache folder, as the platform has it (`~/.cache/blis/compiled`).
    #[default]
    UserCache,
    /// In this folder, an absolute path.
    Folder(PathBuf),
    /// Nowhere: compiled anew in every process (25 ms for 30 KB).
    Nowhere,
}

/// The engine for `settings`.
///
/// # Errors
/// If this machine cannot run WebAssembly.
pub(super) fn engine(settings: &Settings) -> Result<Engine, Fault> {
    static ENGINES: Mutex<Vec<(Settings, Engine)>> = Mutex::new(Vec::new());
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

fn config(settings: &Settings) -> Config {
    let mut config = Config::new();
    config
        // Of all limits the one that falls on the same instruction everywhere. Bytes moved by
        // `memory.copy` and its like count one each.
        .consume_fuel(true)
        .cranelift_nan_canonicalization(settings.strict)
        // Its results may differ between CPUs.
        .wasm_relaxed_simd(false)
        .wasm_memory64(false)
        .concurrency_support(false)
        // Read when something trapped, and only then. The default would ask the environment.
        .wasm_backtrace_details(WasmBacktraceDetails::Enable);
    config
}
