//! Imports and exports of a file by name, read before anything is compiled or linked, so that messages about a mismatch
//! name versions and interfaces.

use std::collections::BTreeMap;

use wasmparser::{Parser, Payload};

use super::PluginPath;
use crate::describe::{OFFERED, OFFERED_VERSION};
use crate::text::plain;
use crate::{Fault, FaultKind};

/// The functions of the interface `host`.
pub(super) const HOST_FUNCTIONS: [&str; 6] = ["log", "random", "pick", "prompt-blocks", "text", "changed"];

/// Bytes of a name from a file that a message shows.
const NAME_BYTES: usize = 120;

/// The two formats of WebAssembly files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BinaryFormat {
    /// A component, which has typed interfaces.
    Component,
    /// A core module, which `componentize` converts to a component.
    CoreModule,
}

/// The format according to the first bytes.
pub(super) fn format(file: &PluginPath, bytes: &[u8]) -> Result<BinaryFormat, Fault> {
    let refuse = |what: &str| Err(file.fault(FaultKind::Unreadable, what));
    let Some((magic, rest)) = bytes.split_at_checked(4) else {
        return refuse("too short for a WebAssembly file");
    };
    if magic != b"\0asm" {
        return refuse("not a WebAssembly file: it must begin with the bytes 00 61 73 6d");
    }
    match rest.get(..4) {
        Some([1, 0, 0, 0]) => Ok(BinaryFormat::CoreModule),
        Some([0x0d, 0, 1, 0]) => Ok(BinaryFormat::Component),
        Some(version) => {
            refuse(&format!("WebAssembly of an unknown format, {version:02x?}; this host reads 1 and components (0d)"))
        }
        None => refuse("too short for a WebAssembly file"),
    }
}

/// The interfaces of `blis:policy` that a file exports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Exports {
    /// Full name (`blis:policy/routing@1.0.0`) by short one (`routing`).
    interfaces: BTreeMap<String, String>,
}

impl Exports {
    /// The full name of `interface`, if it is exported.
    pub(super) fn full_name(&self, interface: &str) -> Option<&str> {
        self.interfaces.get(interface).map(String::as_str)
    }

    pub(super) fn full_names(&self) -> impl Iterator<Item = &str> {
        self.interfaces.values().map(String::as_str)
    }
}

/// Exports of a component, after a check of its imports.
///
/// # Errors
/// If it imports something that the host does not offer, or another version.
pub(super) fn component(file: &PluginPath, bytes: &[u8]) -> Result<Exports, Fault> {
    let mut exports = Exports::default();
    // Components nest; only exports of the outermost count.
    let mut depth = 0_usize;
    for payload in Parser::new(0).parse_all(bytes) {
        match payload.map_err(|error| malformed(file, &error))? {
            Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => depth += 1,
            Payload::End(_) => depth = depth.saturating_sub(1),
            Payload::ComponentImportSection(imports) if depth == 0 => {
                for import in imports {
                    check_import(file, import.map_err(|error| malformed(file, &error))?.name.name)?;
                }
            }
            Payload::ComponentExportSection(items) if depth == 0 => {
                for export in items {
                    exports.add(file, export.map_err(|error| malformed(file, &error))?.name.name)?;
                }
            }
            _ => {}
        }
    }
    exports.some(file)
}

/// Names in a core module.
#[derive(Debug, Default)]
pub(super) struct CoreModule {
    pub exports: Exports,
    /// All exported names, as they are spelt.
    pub names: Vec<String>,
    /// Versions of `blis:policy` in the names of imports and exports, without duplicates.
    pub versions: Vec<String>,
    /// Whether the module has embedded WIT (from wit-bindgen).
    pub embedded_wit: bool,
}

impl CoreModule {
    /// Notes the version in the name of an interface of ours.
    fn built_for(&mut self, interface: &str) {
        let Some((_, version)) = policy_interface(interface) else { return };
        if !self.versions.iter().any(|known| known == version) {
            self.versions.push(version.to_owned());
        }
    }
}

/// Exports of a core module, after a check of its imports.
///
/// # Errors
/// If it imports something that the host does not offer, or another version.
pub(super) fn module(file: &PluginPath, bytes: &[u8]) -> Result<CoreModule, Fault> {
    let mut module = CoreModule::default();
    for payload in Parser::new(0).parse_all(bytes) {
        match payload.map_err(|error| malformed(file, &error))? {
            Payload::ImportSection(imports) => {
                for import in imports.into_imports() {
                    let import = import.map_err(|error| malformed(file, &error))?;
                    check_core_import(file, import.module, import.name)?;
                    module.built_for(import.module);
                }
            }
            Payload::ExportSection(items) => {
                for export in items {
                    let name = export.map_err(|error| malformed(file, &error))?.name;
                    module.exports.add_function(file, name)?;
                    module.built_for(name.split_once('#').map_or("", |(interface, _)| interface));
                    module.names.push(name.to_owned());
                }
            }
            Payload::CustomSection(section) if section.name().starts_with("component-type") => {
                module.embedded_wit = true;
            }
            _ => {}
        }
    }
    // With embedded WIT the names may follow that WIT.
    if !module.embedded_wit {
        module.exports = module.exports.some(file)?;
    }
    Ok(module)
}

pub(super) fn malformed(file: &PluginPath, error: &wasmparser::BinaryReaderError) -> Fault {
    let what =
        format!("broken WebAssembly at byte {}: {}; build or download it again", error.offset(), error.message());
    file.fault(FaultKind::Syntax, what)
}

impl Exports {
    /// The interfaces among the names of a core module's exports.
    pub(super) fn of<'a>(file: &PluginPath, names: impl Iterator<Item = &'a str>) -> Result<Self, Fault> {
        let mut exports = Self::default();
        names.into_iter().try_for_each(|name| exports.add_function(file, name))?;
        Ok(exports)
    }

    /// Adds the interface of a core module's function.
    fn add_function(&mut self, file: &PluginPath, name: &str) -> Result<(), Fault> {
        match name.split_once('#') {
            Some((interface, _)) if !interface.starts_with("cabi_post_") => self.add(file, interface),
            _ => Ok(()),
        }
    }

    fn add(&mut self, file: &PluginPath, name: &str) -> Result<(), Fault> {
        let Some((interface, version)) = policy_interface(name) else { return Ok(()) };
        check_version(file, version)?;
        self.interfaces.insert(interface.to_owned(), name.to_owned());
        Ok(())
    }

    /// `self`, or a fault if there is no interface.
    fn some(self, file: &PluginPath) -> Result<Self, Fault> {
        if self.interfaces.is_empty() {
            let what = "exports nothing of blis:policy, so it is no policy; build it with sdk/rust or sdk/c";
            return Err(file.fault(FaultKind::MissingExport, what));
        }
        Ok(self)
    }
}

/// Splits `blis:policy/routing@1.0.0` into `routing` and `1.0.0`.
fn policy_interface(name: &str) -> Option<(&str, &str)> {
    let rest = name.strip_prefix("blis:policy/")?;
    Some(rest.split_once('@').unwrap_or((rest, "")))
}

/// Whether a plugin for `built` may run on a host that offers `offered`. Versions with the same first number only add to
/// each other, and what a plugin uses has names: a later one that uses what this host does not have is refused by that
/// name, and runs otherwise.
fn is_compatible(built: (u64, u64), offered: (u64, u64)) -> bool {
    built.0 == offered.0
}

fn check_version(file: &PluginPath, version: &str) -> Result<(), Fault> {
    let mut numbers = version.split(['.', '-', '+']).map(|number| number.parse::<u64>().ok());
    let built = (numbers.next().flatten(), numbers.next().flatten());
    let (major, minor) = OFFERED;
    let what = match built {
        (Some(a), Some(b)) if is_compatible((a, b), OFFERED) => return Ok(()),
        (Some(a), Some(b)) if (a, b) > OFFERED => format!(
            "built for blis:policy {a}.{b}, this host offers {major}.{minor}: rebuild it with sdk {major}.{minor}, \
             or use a newer blis"
        ),
        (Some(a), Some(b)) => format!(
            "built for blis:policy {a}.{b}, this host offers {major}.{minor}: rebuild it with sdk {major}.{minor}"
        ),
        _ => format!(
            "does not say for which version of blis:policy it was built ({:?}), this host offers \
             {major}.{minor}: rebuild it with sdk {major}.{minor}",
            shown(version)
        ),
    };
    Err(file.fault(FaultKind::VersionSkew, what))
}

fn check_import(file: &PluginPath, name: &str) -> Result<(), Fault> {
    let Some((interface, version)) = policy_interface(name) else { return Err(forbidden(file, name)) };
    check_version(file, version)?;
    // `types` has no functions; it must be imported because other interfaces use its types.
    if interface == "host" || interface == "types" { Ok(()) } else { Err(unknown(file, name)) }
}

fn check_core_import(file: &PluginPath, module: &str, name: &str) -> Result<(), Fault> {
    match policy_interface(module) {
        Some(("host", version)) => {
            check_version(file, version)?;
            if HOST_FUNCTIONS.contains(&name) { Ok(()) } else { Err(no_such_function(file, name)) }
        }
        Some((_, version)) => check_version(file, version).and_then(|()| Err(unknown(file, module))),
        None => Err(forbidden(file, &format!("{module}/{name}"))),
    }
}

/// A name that a file gives, for a message: short, and without what a terminal would obey.
fn shown(name: &str) -> String {
    plain(name, NAME_BYTES)
}

fn forbidden(file: &PluginPath, name: &str) -> Fault {
    let what = format!(
        "imports {}: policies get no files, clock or network, only blis:policy/host; build it for \
         wasm32-unknown-unknown",
        shown(name)
    );
    file.fault(FaultKind::ForbiddenImport, what)
}

fn unknown(file: &PluginPath, name: &str) -> Fault {
    let what =
        format!("imports {}, which does not exist; a policy may import blis:policy/host and nothing else", shown(name));
    file.fault(FaultKind::ForbiddenImport, what)
}

/// The fault for an interface that the plugin's description requires and the file does not export.
pub(super) fn not_exported(file: &PluginPath, interface: &str) -> Fault {
    let what = format!("does not export blis:policy/{interface}, which its description requires");
    file.fault(FaultKind::MissingExport, what)
}

/// The fault for a function of an interface that a file exports without it, or with other types; `name` is that of the interface, in
/// full, and `what` says what differs. A version that this host does not have was changed since: that explains it.
pub(super) fn does_not_fit(file: &PluginPath, name: &str, what: &str) -> Fault {
    let version = policy_interface(name).map_or("", |(_, version)| version);
    if version.is_empty() || version == OFFERED_VERSION {
        return file.fault(FaultKind::MissingExport, what);
    }
    let skew =
        format!("speaks blis:policy {}, this host {OFFERED_VERSION}, and the two do not fit: {what}", shown(version));
    let hint = format!(
        "rebuild it with sdk {OFFERED_VERSION} (`blis plugin build`), or run it with the blis that it was built for"
    );
    file.fault(FaultKind::VersionSkew, skew).hint(hint)
}

/// The fault for an import of a function that `host` does not have.
pub(super) fn no_such_function(file: &PluginPath, name: &str) -> Fault {
    let what = format!("imports host.{}, which does not exist; there are {}", shown(name), HOST_FUNCTIONS.join(", "));
    file.fault(FaultKind::ForbiddenImport, what)
}

#[cfg(test)]
mod tests {
    use super::is_compatible;

    #[test]
    fn versions_of_the_same_interface_are_compatible() {
        assert!(is_compatible((1, 0), (1, 1)) && is_compatible((1, 1), (1, 1)) && is_compatible((1, 2), (1, 1)));
        assert!(!is_compatible((0, 9), (1, 0)) && !is_compatible((2, 0), (1, 1)));
    }
}
