//! Converts core modules to components.
//!
//! Compilers produce core modules. A module with embedded WIT (wit-bindgen) declares its exports itself; a module
//! without (`sdk/rust`, `sdk/c`) exports functions by their canonical names, `blis:policy/routing@1.0.0#route`, and
//! gets a world of exactly those interfaces here.

use wit_component::{ComponentEncoder, StringEncoding};
use wit_parser::{Resolve, WorldId, WorldKey};

use super::{PluginPath, effort, inspect, parts};
use crate::text::plain;
use crate::{Fault, FaultKind, Limits};

/// Bytes of what wit-component reports, names of the module among it.
const ENCODE_ERROR_BYTES: usize = 1000;

/// The WIT package of the interface.
pub(super) const WIT: &str = include_str!("../../../../sdk/wit/since-v1.1.0/policy.wit");

/// Converts `core`, a core module read from `path`, to a component.
///
/// # Errors
/// If it is not WebAssembly, imports functions that the host does not offer, lacks a required export, or has functions
/// of other types.
pub fn componentize(path: &std::path::Path, core: &[u8]) -> Result<Vec<u8>, Fault> {
    let file = PluginPath::new(path);
    match inspect::format(&file, core)? {
        // The author packs a module; loading it has the bounds of the command that loads it.
        inspect::BinaryFormat::CoreModule => {
            of_module(&file, core, &Limits { large_components: true, ..Limits::default() })
        }
        inspect::BinaryFormat::Component => {
            Err(file.fault(FaultKind::Syntax, "is a component already; use it as it is"))
        }
    }
}

/// As [`componentize`], where the format is known. The module must be within the bounds of `limits`.
pub(super) fn of_module(file: &PluginPath, core: &[u8], limits: &Limits) -> Result<Vec<u8>, Fault> {
    parts::check(file, core, limits)?;
    let module = inspect::module(file, core)?;
    effort::check(file, core, limits)?;
    if module.embedded_wit {
        return encode(file, &module, core);
    }
    let (resolve, world) = world(file, &module)?;
    let mut core = core.to_vec();
    wit_component::embed_component_metadata(&mut core, &resolve, world, StringEncoding::UTF8)
        .map_err(|error| file.fault(FaultKind::Syntax, format!("no component can be made of it: {error:#}")))?;
    encode(file, &module, &core)
}

/// The world of the package, with the interfaces that `module` exports.
fn world(file: &PluginPath, module: &inspect::CoreModule) -> Result<(Resolve, WorldId), Fault> {
    let mut resolve = Resolve::default();
    let package = resolve.push_source("policy.wit", WIT).expect("the frozen interface parses");
    let world = resolve.select_world(&[package], Some("policy")).expect("the frozen interface has this world");
    // A compatible version of the interface has the same functions under names with another number.
    if let Some(built_for) = module.versions.first() {
        if let Some(other) = module.versions.iter().find(|other| *other != built_for) {
            let what = format!("uses blis:policy {built_for} and {other}: build all of it for one version");
            return Err(file.fault(FaultKind::VersionSkew, what));
        }
        resolve.packages[package].name.version = built_for.parse().ok();
    }
    let version = resolve.packages[package].name.version.clone();
    let mut exports = std::mem::take(&mut resolve.worlds[world].exports);
    exports.retain(|key, _| {
        let WorldKey::Interface(id) = key else { return false };
        resolve.interfaces[*id].name.as_deref().is_some_and(|name| module.exports.full_name(name).is_some())
    });
    for full_name in module.exports.full_names() {
        let known = exports.keys().any(|key| resolve.name_world_key(key) == full_name);
        if !known {
            let version = version.as_ref().map_or_else(String::new, ToString::to_string);
            let what = format!("exports {full_name}, which blis:policy {version} does not have");
            return Err(file.fault(FaultKind::VersionSkew, what));
        }
    }
    for key in exports.keys() {
        let WorldKey::Interface(id) = key else { continue };
        let interface = resolve.name_world_key(key);
        for function in resolve.interfaces[*id].functions.keys() {
            must_export(file, module, &format!("{interface}#{function}"))?;
        }
    }
    for name in ["memory", "cabi_realloc"] {
        must_export(file, module, name)?;
    }
    resolve.worlds[world].exports = exports;
    Ok((resolve, world))
}

fn must_export(file: &PluginPath, module: &inspect::CoreModule, name: &str) -> Result<(), Fault> {
    if module.names.iter().any(|known| known == name) {
        return Ok(());
    }
    let interface = name.split_once('#').map_or("", |(interface, _)| interface);
    Err(inspect::does_not_fit(file, interface, &format!("does not export {name}")))
}

fn encode(file: &PluginPath, module: &inspect::CoreModule, core: &[u8]) -> Result<Vec<u8>, Fault> {
    let encoded = ComponentEncoder::default().validate(true).module(core).and_then(|mut encoder| encoder.encode());
    encoded.map_err(|error| {
        // wit-component has no error types. The first errors in the chain only report that something is wrong.
        let chain: Vec<_> = error.chain().map(ToString::to_string).collect();
        let mentions = |text: &str| chain.iter().any(|error| error.contains(text));
        let kind = match (mentions("type mismatch for function"), mentions("failed to resolve import")) {
            (true, true) => FaultKind::ForbiddenImport,
            (true, false) => FaultKind::MissingExport,
            _ => FaultKind::Syntax,
        };
        let end = &chain[chain.len().saturating_sub(2)..];
        let what = plain(&format!("no component can be made of it: {}", end.join(": ")), ENCODE_ERROR_BYTES);
        match kind {
            FaultKind::MissingExport => {
                inspect::does_not_fit(file, module.exports.full_names().next().unwrap_or_default(), &what)
            }
            kind => file.fault(kind, what),
        }
    })
}
