//! Standard components: components that consist of one core module behind the names of our interface, as
//! `wit-component` builds them from modules of `sdk/rust`, `sdk/c` and wit-bindgen.
//!
//! This module checks only how the component is composed. Wasmtime checks everything else, for example that its types
//! are those of the interface and that the core functions have the types that follow from them: a component counts as
//! standard only after wasmtime has accepted it.

use std::collections::BTreeSet;
use std::ops::Range;

use blis_abi::Function;
use blis_abi::decisions::OutputShape;
use wasmparser::{CanonicalFunction, CanonicalOption, ComponentAlias, ExternalKind, Parser, Payload};

use super::inspect::Exports;

/// The function that runs after the start function, if a module exports it.
pub(super) const INITIALIZE: &str = "_initialize";
/// Prefix of the functions that are called after a result was read.
pub(super) const POST_RETURN: &str = "cabi_post_";

/// Whether a function has its result in memory: only those may have a function that is called afterwards.
fn returns_in_memory(name: &str) -> bool {
    let by_value = |output: &OutputShape| {
        use OutputShape::{Duration, Flag, Index, Integer, Number};
        matches!(output, Index | Integer | Duration | Number(_) | Flag)
    };
    ["describe", "configure", "save", "restore"].contains(&name)
        || Function::ALL.iter().map(|function| function.row()).any(|row| row.wit == name && !by_value(&row.output))
}

/// The byte range of the only module in `component`, if the component is standard. `exports` are those of the
/// component.
pub(super) fn main_module(component: &[u8], exports: &Exports) -> Option<Range<usize>> {
    let mut parts = ComponentParts::default();
    for payload in Parser::new(0).parse_all(component) {
        parts.add(payload.ok()?)?;
    }
    let known: Vec<&str> = exports.full_names().collect();
    let interface = |name: &str| name.split_once('#').is_some_and(|(interface, _)| known.contains(&interface));
    let mut main = None;
    for module in parts.modules {
        if module.is_table() {
            continue;
        }
        if main.replace(module).is_some() {
            return None;
        }
    }
    // Every lifted function must have the name of the interface's function.
    if parts.lifted.is_empty() || !parts.lifted.iter().all(|name| interface(name)) {
        return None;
    }
    let main = main?;
    let odd = |(module, name): &(String, String)| !module.starts_with("blis:policy/host@") || !is_host_function(name);
    let odd_after = |name: &str| {
        name.strip_prefix(POST_RETURN)
            .is_some_and(|of| !returns_in_memory(of.split_once('#').map_or("", |(_, function)| function)))
    };
    if main.imports.iter().any(odd)
        || main.exports.iter().any(|name| odd_after(name))
        || !parts.lifted.iter().all(|name| main.exports.contains(name))
        || !["memory", "cabi_realloc"].iter().all(|&name| main.exports.contains(name))
    {
        return None;
    }
    Some(main.range)
}

fn is_host_function(name: &str) -> bool {
    super::inspect::HOST_FUNCTIONS.contains(&name)
}

/// The parts of a component.
#[derive(Default)]
struct ComponentParts {
    modules: Vec<ModuleParts>,
    /// Open components and modules, from the outermost to the current one.
    open: Vec<Open>,
    /// Core functions of the outermost component, by index; `None` for those that are not exports of an instance.
    core_functions: Vec<Option<String>>,
    /// Core functions that are lifted to functions of the component.
    lifted: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Open {
    Component,
    Module,
}

#[derive(Default)]
struct ModuleParts {
    range: Range<usize>,
    imports: Vec<(String, String)>,
    exports: BTreeSet<String>,
    /// Whether the module has memory, globals, or a start function.
    has_state: bool,
}

impl ModuleParts {
    /// Whether this is one of the two modules that wit-component adds: host functions need the memory of a module that
    /// in turn imports them, so they are called through a table that is filled in later.
    fn is_table(&self) -> bool {
        !self.has_state
            && self.imports.iter().all(|(module, _)| module.is_empty())
            && self.exports.iter().all(|name| name == "$imports" || name.bytes().all(|byte| byte.is_ascii_digit()))
    }
}

impl ComponentParts {
    /// Returns `None` if the component has more than one module of its own.
    fn add(&mut self, payload: Payload<'_>) -> Option<()> {
        match payload {
            Payload::ModuleSection { unchecked_range, .. } => {
                if !self.open.is_empty() {
                    return None; // a module within a component within this one
                }
                self.open.push(Open::Module);
                self.modules.push(ModuleParts { range: unchecked_range, ..ModuleParts::default() });
            }
            Payload::ComponentSection { .. } => self.open.push(Open::Component),
            Payload::End(_) => {
                self.open.pop();
            }
            payload if self.open.last() == Some(&Open::Module) => self.module(payload)?,
            payload if self.open.is_empty() => self.outermost(payload)?,
            // Only nested components may give names to types and functions.
            Payload::ComponentCanonicalSection(_) => return None,
            _ => {}
        }
        Some(())
    }

    fn module(&mut self, payload: Payload<'_>) -> Option<()> {
        let module = self.modules.last_mut()?;
        match payload {
            Payload::ImportSection(imports) => {
                for import in imports.into_imports() {
                    let import = import.ok()?;
                    module.imports.push((import.module.to_owned(), import.name.to_owned()));
                }
            }
            Payload::ExportSection(exports) => {
                for export in exports {
                    module.exports.insert(export.ok()?.name.to_owned());
                }
            }
            Payload::MemorySection(_)
            | Payload::GlobalSection(_)
            | Payload::DataSection(_)
            | Payload::StartSection { .. } => module.has_state = true,
            _ => {}
        }
        Some(())
    }

    fn outermost(&mut self, payload: Payload<'_>) -> Option<()> {
        match payload {
            Payload::ComponentAliasSection(aliases) => {
                for alias in aliases {
                    let alias = alias.ok()?;
                    if let ComponentAlias::CoreInstanceExport { kind: ExternalKind::Func, name, .. } = alias {
                        self.core_functions.push(Some(name.to_owned()));
                    }
                }
            }
            Payload::ComponentCanonicalSection(functions) => {
                for function in functions {
                    self.canonical(function.ok()?)?;
                }
            }
            Payload::ComponentStartSection { .. } => return None,
            _ => {}
        }
        Some(())
    }

    fn canonical(&mut self, function: CanonicalFunction) -> Option<()> {
        let usual = |options: &[CanonicalOption]| {
            options.iter().all(|option| {
                matches!(
                    option,
                    CanonicalOption::UTF8
                        | CanonicalOption::Memory(_)
                        | CanonicalOption::Realloc(_)
                        | CanonicalOption::PostReturn(_)
                )
            })
        };
        match function {
            CanonicalFunction::Lift { core_func_index, options, .. } if usual(&options) => {
                self.lifted.push(self.core_functions.get(core_func_index as usize)?.clone()?);
            }
            CanonicalFunction::Lower { options, .. } if usual(&options) => self.core_functions.push(None),
            _ => return None,
        }
        Some(())
    }
}
