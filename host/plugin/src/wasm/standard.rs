//! Components that are nothing but one core module behind the names of our interface: what
//! `wit-component` makes of modules from `sdk/rust`, `sdk/c` and wit-bindgen.
//!
//! Looked at is how the component is put together. That its types are ours, that the core functions have
//! the types that follow from them, and all else is left to wasmtime: a component is taken for standard
//! only after it was accepted as a component.

use std::collections::BTreeSet;
use std::ops::Range;

use wasmparser::{CanonicalFunction, CanonicalOption, ComponentAlias, ExternalKind, Parser, Payload};

use super::inspect::Exports;

/// Run after the start function, if a module exports it.
pub(super) const INITIALIZE: &str = "_initialize";
/// What the names of functions begin with that are called once an answer was read.
pub(super) const POST_RETURN: &str = "cabi_post_";

/// Functions whose answers lie in memory: they alone may have one to be called afterwards.
const IN_MEMORY: [&str; 7] = ["describe", "configure", "save", "restore", "admit", "scores", "constants"];

/// Where in `component` its one module lies, if there is nothing else to it. `exports` are those of the
/// component.
pub(super) fn main_module(component: &[u8], exports: &Exports) -> Option<Range<usize>> {
    let mut parts = Parts::default();
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
    // Every lifted function is what its name says.
    if parts.lifted.is_empty() || !parts.lifted.iter().all(|name| interface(name)) {
        return None;
    }
    let main = main?;
    let odd = |(module, name): &(String, String)| !module.starts_with("blis:policy/host@") || !is_host_function(name);
    let odd_after = |name: &str| {
        name.strip_prefix(POST_RETURN)
            .is_some_and(|of| !IN_MEMORY.contains(&of.split_once('#').map_or("", |(_, function)| function)))
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

/// What a component consists of.
#[derive(Default)]
struct Parts {
    modules: Vec<Module>,
    /// Where we are: components and modules that have not ended yet.
    open: Vec<Open>,
    /// Core functions of the outermost component, in the order of their numbers; `None` for those that are
    /// no exports of an instance.
    core_functions: Vec<Option<String>>,
    /// Core functions that became functions of the component.
    lifted: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Open {
    Component,
    Module,
}

#[derive(Default)]
struct Module {
    range: Range<usize>,
    imports: Vec<(String, String)>,
    exports: BTreeSet<String>,
    /// Whether it has memory, globals, or something to run at its start.
    has_state: bool,
}

impl Module {
    /// One of the two that wit-component adds: functions of the host need the memory of a module that in
    /// turn needs them, so they are called through a table that is filled in afterwards.
    fn is_table(&self) -> bool {
        !self.has_state
            && self.imports.iter().all(|(module, _)| module.is_empty())
            && self.exports.iter().all(|name| name == "$imports" || name.bytes().all(|byte| byte.is_ascii_digit()))
    }
}

impl Parts {
    /// `None`: there is more to it than one module.
    fn add(&mut self, payload: Payload<'_>) -> Option<()> {
        match payload {
            Payload::ModuleSection { unchecked_range, .. } => {
                if !self.open.is_empty() {
                    return None; // a module within a component within this one
                }
                self.open.push(Open::Module);
                self.modules.push(Module { range: unchecked_range, ..Module::default() });
            }
            Payload::ComponentSection { .. } => self.open.push(Open::Component),
            Payload::End(_) => {
                self.open.pop();
            }
            payload if self.open.last() == Some(&Open::Module) => self.module(payload)?,
            payload if self.open.is_empty() => self.outermost(payload)?,
            // Nested components give names to types and functions.
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
