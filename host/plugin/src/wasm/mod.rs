//! WebAssembly: sandboxed and deterministic, at about half the speed of native code.
//!
//! ```text
//! bytes ─ format? ─► core module ─ bounds (parts, effort) ─ componentize ─►┐
//!            └─────► component ─── bounds (parts, effort) ────────────────►┤
//!                         compile, or read from the cache ◄─ inspect (names) ┘
//!                                       │
//!      guest ◄─ configure ◄─ instance ◄─ start ◄─ Plugin ◄─ describe, validate
//! ```
//!
//! Nothing is built from a file before its bytes are within the bounds of `parts.rs` and `effort.rs`.
//!
//! A guest gets its memory, the functions of `host`, and nothing else: no files, no clock, no network, no WASI. Every
//! call gets new fuel; memory and tables have limits, and a call that exceeds one ends. After that, and after any other
//! trap, the instance is discarded and the next call starts a new one.
//!
//! Every file is checked as a component. If it consists of one core module behind the names of our interface, as the SDKs
//! produce it (`standard.rs`), the functions of that module are called directly (`direct.rs`), and of the component only a
//! skeleton is compiled (`skeleton.rs`), for the check; all other components are called through wasmtime's component
//! layer (`typed.rs`), which is slower. Tests compare the two. Direct calls copy rows as they lie in memory: a list is one copy. The component layer writes them field by
//! field. docs/performance.md states the cost of a call.

mod code_cache;
mod compiled;
mod componentize;
mod describe;
mod direct;
mod effort;
mod engine;
mod fault;
mod functions;
mod guest;
mod host;
mod inspect;
mod memory;
mod parts;
mod results;
mod skeleton;
mod standard;
#[cfg(test)]
mod tests;
mod typed;

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use wasmtime::component::{Component, InstancePre, Linker, types::ComponentItem};
use wasmtime::{Engine, Module};

pub use componentize::componentize;
pub use engine::{CompileCache, WasmSettings};

use self::compiled::CompiledPlugin;
use self::fault::PluginPath;
use self::functions::{Functions, LinkedCode};
use self::guest::WasmGuest;
use self::host::{HostInputs, WasmHost};
use self::inspect::{BinaryFormat, Exports};
use super::sha256::sha256;
use super::{Fault, FaultKind, Guest, GuestSetup, Limits, Plugin, PolicyDescription, Technology};

/// Makes the engine that compiles and runs components, so that processes forked from this one have it.
///
/// # Errors
/// If this machine cannot run WebAssembly.
pub fn prepare(settings: &WasmSettings) -> Result<(), Fault> {
    engine::engine(settings).map(|_| ())
}

/// Loads the plugin in `bytes`, a component or a core module, read from `path`. Compiles it, unless the cache has the
/// compiled code, and reads its description.
///
/// # Errors
/// If it is not WebAssembly, does not compile, imports something that the host does not offer or another version, lacks
/// a required export, or fails to describe itself.
pub fn load(path: &Path, bytes: &[u8], limits: &Limits, settings: &WasmSettings) -> Result<Arc<dyn Plugin>, Fault> {
    load_known(path, bytes, &sha256(bytes), limits, settings)
}

/// As [`load`], where the SHA-256 of `bytes` is known (hexadecimal).
///
/// # Errors
/// As [`load`].
pub fn load_known(
    path: &Path,
    bytes: &[u8],
    sha256: &str,
    limits: &Limits,
    settings: &WasmSettings,
) -> Result<Arc<dyn Plugin>, Fault> {
    let file = PluginPath::new(path);
    let engine = engine::engine(settings).map_err(|fault| file.fault(fault.kind, fault.diagnostic.what))?;
    let cache = code_cache::CachedCode::of(&engine, sha256, settings, limits);
    // Code in the cache was checked as a component before.
    if let Some(module) = cache.module()
        && let Ok(plugin) = direct(&file, &module, limits)
    {
        return Ok(Arc::new(plugin));
    }
    let component;
    let bytes = match inspect::format(&file, bytes)? {
        BinaryFormat::Component => {
            parts::check(&file, bytes, limits)?;
            effort::check(&file, bytes, limits)?;
            bytes
        }
        BinaryFormat::CoreModule => {
            component = componentize::of_module(&file, bytes, limits)?;
            &component
        }
    };
    let exports = inspect::component(&file, bytes)?;
    if let Some(module) = standard::main_module(bytes, &exports)
        && let Some(plugin) = standard_plugin(&file, bytes, module, &exports, &engine, &cache, limits)
    {
        return Ok(Arc::new(plugin));
    }
    Ok(Arc::new(typed(&file, bytes, &exports, &engine, &cache, limits)?))
}

/// The plugin in the standard component `bytes`, called directly. `None` if wasmtime does not accept it, or its module
/// fails: the component layer finds the reason.
fn standard_plugin(
    file: &PluginPath,
    bytes: &[u8],
    module: Range<usize>,
    exports: &Exports,
    engine: &Engine,
    cache: &code_cache::CachedCode<'_>,
    limits: &Limits,
) -> Option<WasmPlugin<direct::Direct>> {
    let skeleton = Component::new(engine, skeleton::of(bytes, &module)?).ok()?;
    let (pre, _) = link(file, engine, &skeleton).ok()?;
    let module = Module::new(engine, &bytes[module]).ok()?;
    let plugin = direct(file, &module, limits).ok()?;
    let skeleton = LinkedCode { pre, exports: exports.clone() };
    compiled::check_types::<typed::Typed>(file, &skeleton, &plugin.0.description, limits).ok()?;
    cache.store_module(&module);
    Some(plugin)
}

/// The plugin in the component `bytes`, called through the component layer.
fn typed(
    file: &PluginPath,
    bytes: &[u8],
    exports: &Exports,
    engine: &Engine,
    cache: &code_cache::CachedCode<'_>,
    limits: &Limits,
) -> Result<WasmPlugin<typed::Typed>, Fault> {
    let compile = || {
        let component = Component::new(engine, bytes)
            .map_err(|error| file.fault(FaultKind::Syntax, format_args!("does not compile: {error:#}")))?;
        // Of standard components, the core module is cached instead.
        if standard::main_module(bytes, exports).is_none() {
            cache.store_component(&component);
        }
        Ok(component)
    };
    let component = cache.component().map_or_else(compile, Ok)?;
    let (pre, host_inputs) = link(file, engine, &component)?;
    WasmPlugin::describe(file, LinkedCode { pre, exports: exports.clone() }, host_inputs, limits)
}

/// The plugin in `module`, called directly.
fn direct(file: &PluginPath, module: &Module, limits: &Limits) -> Result<WasmPlugin<direct::Direct>, Fault> {
    let exports = Exports::of(file, module.exports().map(|export| export.name()))?;
    let host_inputs = HostInputs::of(module.imports().map(|import| import.name()));
    let pre =
        direct::link(module).map_err(|error| file.fault(FaultKind::ForbiddenImport, format_args!("{error:#}")))?;
    WasmPlugin::describe(file, LinkedCode { pre, exports }, host_inputs, limits)
}

/// Links the host functions; also returns the data that they need before each call.
fn link(
    file: &PluginPath,
    engine: &Engine,
    component: &Component,
) -> Result<(InstancePre<WasmHost>, HostInputs), Fault> {
    let mut linker = Linker::new(engine);
    let mut functions = Vec::new();
    let mut interface = String::new();
    for (name, import) in component.component_type().imports(engine) {
        let ComponentItem::ComponentInstance(instance) = import.ty else { continue };
        for (function, item) in instance.exports(engine) {
            if !matches!(item.ty, ComponentItem::ComponentFunc(_)) {
                continue;
            }
            if !inspect::HOST_FUNCTIONS.contains(&function) {
                return Err(inspect::no_such_function(file, function));
            }
            functions.push(function.to_owned());
        }
        if name.starts_with("blis:policy/host@") {
            name.clone_into(&mut interface);
            host::link(&mut linker, name).expect("each is defined once");
        }
    }
    let pre = linker.instantiate_pre(component).map_err(|error| {
        let what = crate::text::plain(&format!("imports functions of the host with other types: {error:#}"), 1000);
        let skew = inspect::does_not_fit(file, &interface, &what);
        if skew.kind == FaultKind::VersionSkew { skew } else { file.fault(FaultKind::ForbiddenImport, what) }
    })?;
    Ok((pre, HostInputs::of(functions.iter().map(String::as_str))))
}

/// A [`CompiledPlugin`], shared with its guests.
struct WasmPlugin<F: Functions>(Arc<CompiledPlugin<F>>);

impl<F: Functions> WasmPlugin<F> {
    fn describe(
        file: &PluginPath,
        code: LinkedCode<F::Pre>,
        host_inputs: HostInputs,
        limits: &Limits,
    ) -> Result<Self, Fault> {
        Ok(Self(Arc::new(CompiledPlugin::new(file, code, host_inputs, limits)?)))
    }
}

impl<F: Functions> std::fmt::Debug for WasmPlugin<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WasmPlugin").field("file", &self.0.file).field("description", &self.0.description).finish()
    }
}

impl<F: Functions> Plugin for WasmPlugin<F> {
    fn description(&self) -> &PolicyDescription {
        &self.0.description
    }

    fn technology(&self) -> Technology {
        Technology::Component
    }

    fn start(&self, setup: &GuestSetup) -> Result<Box<dyn Guest>, Fault> {
        Ok(Box::new(WasmGuest::start(&self.0, setup)?))
    }
}
