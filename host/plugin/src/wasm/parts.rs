//! Bounds on what a file declares: types, imports, exports and the like, of all modules and components in it, however deep.
//!
//! They are checked on the bytes, in one pass and before anything is built from them: what builds (wit-component, the
//! validator, the compiler) takes time that grows with the square of some of these numbers and with the power of others, and
//! reads types inside types by recursion. 257 kB of one import, again and again, took 9.7 s; 900 000 types 10.4 s. The number
//! that a section announces counts before its content is read, so a refusal costs a fraction of a pass.
//!
//! Types of components refer to each other, so that few bytes describe a large tree, and wasmtime walks that tree at each use.
//! [`TypeScope`] therefore follows the sizes of types through definitions, aliases, imports and exports; where it cannot know which
//! type is meant (an export of an instance that was made from a component), it takes the largest one of the file.

use std::collections::BTreeSet;

use wasmparser::{
    BinaryReader, ComponentAlias, ComponentDefinedType, ComponentExternalKind, ComponentImport,
    ComponentOuterAliasKind, ComponentType, ComponentTypeRef, ComponentValType, CompositeInnerType, CoreType,
    FromReader, Parser, Payload, RecGroup, TypeBounds,
};

use super::PluginPath;
use super::inspect::malformed;
use crate::limits::DeclaredPart;
use crate::{Fault, FaultKind, Limits};

/// First byte of the type of a component, in the binary format.
const COMPONENT_TYPE: u8 = 0x41;
/// First byte of the type of an instance.
const INSTANCE_TYPE: u8 = 0x42;
/// Custom section of a core module with a component inside: what wit-bindgen says about the module.
const EMBEDDED_WIT: &str = "component-type";

/// Refuses `bytes`, a module or a component, if it declares more than the bounds of [`DeclaredPart`] allow, or one thing twice.
///
/// # Errors
/// If it is not WebAssembly, exceeds a bound, or imports or exports a name twice.
pub(super) fn check(file: &PluginPath, bytes: &[u8], limits: &Limits) -> Result<(), Fault> {
    let mut parts = PartCounts { file, limits, counts: [0; DeclaredPart::COUNT], scopes: Vec::new(), widest: 0 };
    parts.read(bytes, true).map_err(|stop| match stop {
        CountStop::Fault(fault) => *fault,
        CountStop::Broken(error) => malformed(file, &error),
    })
}

/// Why the reading ended early.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
enum CountStop {
    Fault(Box<Fault>),
    Broken(#[from] wasmparser::BinaryReaderError),
}

type CountResult<T> = Result<T, CountStop>;

/// The state of the pass.
struct PartCounts<'a> {
    file: &'a PluginPath,
    limits: &'a Limits,
    counts: [u64; DeclaredPart::COUNT],
    /// Modules, components and types of components around the current position.
    scopes: Vec<TypeScope>,
    /// Nodes of the largest type so far.
    widest: u64,
}

/// The types and instances that a component, or a type of one, can refer to by number.
#[derive(Default)]
struct TypeScope {
    types: Vec<TypeSize>,
    /// Nodes of the largest type that each instance exports.
    instances: Vec<u64>,
}

/// The size of a type of a component.
#[derive(Clone, Copy, Default)]
struct TypeSize {
    /// Types inside it, each counted as often as it occurs.
    nodes: u64,
    /// Of the type of an instance or component: nodes of the largest type that it exports.
    exported: u64,
}

impl PartCounts<'_> {
    fn fault(&self, what: String) -> CountStop {
        let fault = self.file.fault(FaultKind::OutOfFuel, what);
        CountStop::Fault(Box::new(
            fault.hint("build it for size, without what it does not use; no policy needs so much"),
        ))
    }

    /// How many of `part` there may be.
    fn most(&self, part: DeclaredPart) -> u64 {
        self.limits.part(part).1
    }

    fn add(&mut self, part: DeclaredPart, more: u64) -> CountResult<()> {
        let count = &mut self.counts[part as usize];
        *count = count.saturating_add(more);
        let found = *count;
        let (what, most) = self.limits.part(part);
        if found <= most { Ok(()) } else { Err(self.fault(format!("has {found} {what}; at most {most} are read"))) }
    }

    /// Reads a module or component; one that is `outermost` may have a component in a custom section.
    fn read(&mut self, bytes: &[u8], outermost: bool) -> CountResult<()> {
        let depth = self.scopes.len();
        for payload in Parser::new(0).parse_all(bytes) {
            let payload = payload?;
            self.add(DeclaredPart::Sections, u64::from(!matches!(payload, Payload::CodeSectionEntry(_))))?;
            if let Some((_, range)) = payload.as_section()
                && is_declaration(&payload)
            {
                self.add(DeclaredPart::DeclarationBytes, range.len() as u64)?;
            }
            match payload {
                Payload::Version { .. } => {
                    self.add(DeclaredPart::Modules, 1)?;
                    self.enter()?;
                }
                Payload::End(_) => self.scopes.truncate(self.scopes.len().saturating_sub(1).max(depth)),
                Payload::CustomSection(section) if outermost && section.name().starts_with(EMBEDDED_WIT) => {
                    self.add(DeclaredPart::DeclarationBytes, section.data().len() as u64)?;
                    if section.data().starts_with(b"\0asm") {
                        self.read(section.data(), false)?;
                    }
                }
                Payload::TypeSection(section) => {
                    self.add(DeclaredPart::Types, u64::from(section.count()))?;
                    for group in section {
                        self.group(&group?)?;
                    }
                }
                Payload::ImportSection(section) => {
                    let announced = u64::from(section.count());
                    self.add(DeclaredPart::Imports, announced)?;
                    let mut names = BTreeSet::new();
                    for import in section.into_imports() {
                        let import = import?;
                        if !names.insert((import.module, import.name)) {
                            return Err(self.twice("imports", &format!("{}/{}", import.module, import.name)));
                        }
                    }
                    // The section may announce several of one module as one.
                    self.add(DeclaredPart::Imports, (names.len() as u64).saturating_sub(announced))?;
                }
                Payload::ExportSection(section) => {
                    self.add(DeclaredPart::Exports, u64::from(section.count()))?;
                    let mut names = BTreeSet::new();
                    for export in section {
                        let name = export?.name;
                        if !names.insert(name) {
                            return Err(self.twice("exports", name));
                        }
                    }
                }
                Payload::FunctionSection(section) => self.add(DeclaredPart::Functions, u64::from(section.count()))?,
                // One more than are declared is an error of the validator.
                Payload::CodeSectionStart { count, .. } if u64::from(count) > self.most(DeclaredPart::Functions) => {
                    self.add(DeclaredPart::Functions, u64::from(count))?;
                }
                Payload::TableSection(section) => self.add(DeclaredPart::Tables, u64::from(section.count()))?,
                Payload::MemorySection(section) => self.add(DeclaredPart::Memories, u64::from(section.count()))?,
                Payload::TagSection(section) => self.add(DeclaredPart::Tags, u64::from(section.count()))?,
                Payload::GlobalSection(section) => self.add(DeclaredPart::Globals, u64::from(section.count()))?,
                Payload::ElementSection(section) => self.add(DeclaredPart::Segments, u64::from(section.count()))?,
                Payload::DataSection(section) => self.add(DeclaredPart::Segments, u64::from(section.count()))?,
                Payload::DataCountSection { count, .. } if u64::from(count) > self.most(DeclaredPart::Segments) => {
                    self.add(DeclaredPart::Segments, u64::from(count))?;
                }
                Payload::InstanceSection(section) => self.add(DeclaredPart::Instances, u64::from(section.count()))?,
                Payload::ComponentInstanceSection(section) => {
                    self.add(DeclaredPart::Instances, u64::from(section.count()))?;
                    let (count, widest) = (section.count(), self.widest);
                    self.scope().instances.extend((0..count).map(|_| widest));
                }
                Payload::CoreTypeSection(section) => {
                    self.add(DeclaredPart::Types, u64::from(section.count()))?;
                    for kind in section {
                        self.core_type(&kind?)?;
                    }
                }
                Payload::ComponentAliasSection(section) => {
                    for alias in section {
                        self.alias(&alias?)?;
                    }
                }
                Payload::ComponentTypeSection(section) => {
                    self.add(DeclaredPart::Types, u64::from(section.count()))?;
                    let (start, end) = (section.original_position(), section.range().end);
                    let mut reader = BinaryReader::new(bytes.get(start..end).unwrap_or_default(), start);
                    for _ in 0..section.count() {
                        let size = self.component_type(&mut reader)?;
                        self.define(size)?;
                    }
                }
                Payload::ComponentCanonicalSection(section) => {
                    self.add(DeclaredPart::Functions, u64::from(section.count()))?;
                }
                Payload::ComponentImportSection(section) => {
                    self.add(DeclaredPart::Imports, u64::from(section.count()))?;
                    let mut names = BTreeSet::new();
                    for import in section {
                        let ComponentImport { name, ty } = import?;
                        if !names.insert(name.name) {
                            return Err(self.twice("imports", name.name));
                        }
                        self.declared(ty)?;
                    }
                }
                Payload::ComponentExportSection(section) => {
                    self.add(DeclaredPart::Exports, u64::from(section.count()))?;
                    let mut names = BTreeSet::new();
                    for export in section {
                        let export = export?;
                        if !names.insert(export.name.name) {
                            return Err(self.twice("exports", export.name.name));
                        }
                        let size = match (export.kind, export.ty) {
                            (_, Some(ty)) => {
                                self.declared(ty)?;
                                continue;
                            }
                            (ComponentExternalKind::Type, None) => self.size(export.index),
                            _ => TypeSize::default(),
                        };
                        let widest = self.widest;
                        match export.kind {
                            ComponentExternalKind::Type => self.define(size)?,
                            ComponentExternalKind::Instance => self.scope().instances.push(widest),
                            _ => {}
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn twice(&self, what: &str, name: &str) -> CountStop {
        let what = format!("{what} {} twice", blis_diag::quoted(name.as_bytes()));
        CountStop::Fault(Box::new(
            self.file.fault(FaultKind::Syntax, what).hint("build it again: no compiler does that"),
        ))
    }

    fn enter(&mut self) -> CountResult<()> {
        let (what, most) = self.limits.part(DeclaredPart::Nesting);
        if self.scopes.len() as u64 >= most {
            return Err(self.fault(format!("has {what} deeper than {most}")));
        }
        self.scopes.push(TypeScope::default());
        Ok(())
    }

    /// The innermost scope.
    fn scope(&mut self) -> &mut TypeScope {
        if self.scopes.is_empty() {
            self.scopes.push(TypeScope::default());
        }
        self.scopes.last_mut().expect("it is not empty")
    }

    /// The size of the type with a number; that of one which is not there does not matter, because the validator refuses it.
    fn size(&self, index: u32) -> TypeSize {
        self.scopes.last().and_then(|scope| scope.types.get(index as usize)).copied().unwrap_or_default()
    }

    /// A type gets the next number, and its nodes count.
    fn define(&mut self, size: TypeSize) -> CountResult<()> {
        self.widest = self.widest.max(size.nodes).max(size.exported);
        self.scope().types.push(size);
        self.add(DeclaredPart::TypeNodes, size.nodes)
    }

    /// Something of the type `ty` is imported, or exported with that type.
    fn declared(&mut self, ty: ComponentTypeRef) -> CountResult<()> {
        let size = self.referred(ty);
        match ty {
            ComponentTypeRef::Type(_) => self.define(size),
            ComponentTypeRef::Instance(_) => {
                self.scope().instances.push(size.exported);
                self.add(DeclaredPart::TypeNodes, size.nodes)
            }
            _ => self.add(DeclaredPart::TypeNodes, size.nodes),
        }
    }

    fn referred(&self, ty: ComponentTypeRef) -> TypeSize {
        match ty {
            ComponentTypeRef::Module(_) | ComponentTypeRef::Type(TypeBounds::SubResource) => {
                TypeSize { nodes: 1, exported: 0 }
            }
            ComponentTypeRef::Value(ty) => TypeSize { nodes: self.value(ty), exported: 0 },
            ComponentTypeRef::Func(index)
            | ComponentTypeRef::Instance(index)
            | ComponentTypeRef::Component(index)
            | ComponentTypeRef::Type(TypeBounds::Eq(index)) => self.size(index),
        }
    }

    fn alias(&mut self, alias: &ComponentAlias<'_>) -> CountResult<()> {
        self.add(DeclaredPart::Aliases, 1)?;
        match *alias {
            ComponentAlias::InstanceExport { kind, instance_index, .. } => {
                let known = self.scopes.last().and_then(|scope| scope.instances.get(instance_index as usize)).copied();
                let widest = known.unwrap_or(self.widest);
                match kind {
                    ComponentExternalKind::Type => self.define(TypeSize { nodes: widest, exported: widest })?,
                    ComponentExternalKind::Instance => self.scope().instances.push(widest),
                    _ => {}
                }
            }
            ComponentAlias::Outer { kind: ComponentOuterAliasKind::Type, count, index } => {
                let scope = self.scopes.len().checked_sub(1 + count as usize).and_then(|at| self.scopes.get(at));
                let size = scope.and_then(|scope| scope.types.get(index as usize)).copied().unwrap_or_default();
                self.define(size)?;
            }
            ComponentAlias::Outer { .. } | ComponentAlias::CoreInstanceExport { .. } => {}
        }
        Ok(())
    }

    /// A group of types of core modules; a section counts it as one.
    fn group(&mut self, group: &RecGroup) -> CountResult<()> {
        self.add(DeclaredPart::Types, (group.types().len() as u64).saturating_sub(1))?;
        for kind in group.types() {
            let CompositeInnerType::Func(function) = &kind.composite_type.inner else { continue };
            let values = function.params().len().max(function.results().len()) as u64;
            let (what, most) = self.limits.part(DeclaredPart::FunctionValues);
            if values > most {
                return Err(self.fault(format!("has a function type with {values} {what}; at most {most} are read")));
            }
        }
        Ok(())
    }

    fn core_type(&mut self, kind: &CoreType<'_>) -> CountResult<()> {
        match kind {
            CoreType::Rec(group) => self.group(group),
            CoreType::Module(declarations) => self.add(DeclaredPart::Types, declarations.len() as u64),
        }
    }

    /// Reads the type of a component's item. wasmparser would read types inside it by recursion without a bound.
    fn component_type(&mut self, reader: &mut BinaryReader<'_>) -> CountResult<TypeSize> {
        match reader.clone().read_u8()? {
            leading @ (COMPONENT_TYPE | INSTANCE_TYPE) => {
                reader.read_u8()?;
                let count = reader.read_var_u32()?;
                self.add(DeclaredPart::Types, u64::from(count))?;
                self.enter()?;
                let mut size = TypeSize { nodes: 1, exported: 0 };
                for _ in 0..count {
                    self.declaration(reader, leading == COMPONENT_TYPE, &mut size)?;
                }
                self.scopes.pop();
                Ok(size)
            }
            _ => {
                let nodes = match ComponentType::from_reader(reader)? {
                    ComponentType::Defined(defined) => self.defined(&defined),
                    ComponentType::Func(function) => {
                        let parameters: u64 = function.params.iter().map(|(_, ty)| self.value(*ty)).sum();
                        1 + parameters + function.result.map_or(0, |ty| self.value(ty))
                    }
                    ComponentType::Component(_) | ComponentType::Instance(_) | ComponentType::Resource { .. } => 1,
                };
                Ok(TypeSize { nodes, exported: 0 })
            }
        }
    }

    /// Reads a declaration in the type of a component or instance, and adds what it exports to the `size` of that.
    fn declaration(
        &mut self,
        reader: &mut BinaryReader<'_>,
        of_component: bool,
        size: &mut TypeSize,
    ) -> CountResult<()> {
        let mut ahead = reader.clone();
        match ahead.read_u8()? {
            0x00 => {
                let kind = CoreType::from_reader(&mut ahead)?;
                self.core_type(&kind)?;
            }
            0x01 => {
                let inner = self.component_type(&mut ahead)?;
                self.define(inner)?;
            }
            0x02 => self.alias(&ComponentAlias::from_reader(&mut ahead)?)?,
            0x03 if of_component => {
                let import = ComponentImport::from_reader(&mut ahead)?;
                let inner = self.referred(import.ty);
                size.nodes = size.nodes.saturating_add(inner.nodes);
                self.declared(import.ty)?;
            }
            0x04 => {
                // An export reads as an import does: a name and a type.
                let ComponentImport { ty, .. } = ComponentImport::from_reader(&mut ahead)?;
                let inner = self.referred(ty);
                size.nodes = size.nodes.saturating_add(inner.nodes);
                size.exported = size.exported.max(inner.nodes).max(inner.exported);
                self.declared(ty)?;
            }
            // The validator says what is wrong.
            _ => {
                ComponentType::from_reader(&mut ahead)?;
            }
        }
        *reader = ahead;
        Ok(())
    }

    fn value(&self, ty: ComponentValType) -> u64 {
        match ty {
            ComponentValType::Primitive(_) => 1,
            ComponentValType::Type(index) => self.size(index).nodes.saturating_add(1),
        }
    }

    fn defined(&self, ty: &ComponentDefinedType<'_>) -> u64 {
        use ComponentDefinedType as D;
        let sum = |types: &mut dyn Iterator<Item = ComponentValType>| {
            types.fold(1_u64, |sum, ty| sum.saturating_add(self.value(ty)))
        };
        match ty {
            D::Primitive(_) | D::Own(_) | D::Borrow(_) => 1,
            D::Flags(names) | D::Enum(names) => 1 + names.len() as u64,
            D::Record(fields) => sum(&mut fields.iter().map(|(_, ty)| *ty)),
            D::Variant(cases) => sum(&mut cases.iter().filter_map(|case| case.ty)).saturating_add(cases.len() as u64),
            D::Tuple(types) => sum(&mut types.iter().copied()),
            D::List(ty) | D::Option(ty) => sum(&mut [*ty].into_iter()),
            // wasmtime lays out each element.
            D::FixedLengthList(ty, length) => self.value(*ty).saturating_mul(u64::from(*length)).saturating_add(1),
            D::Map(key, value) => sum(&mut [*key, *value].into_iter()),
            D::Result { ok, err } => sum(&mut [*ok, *err].into_iter().flatten()),
            D::Future(ty) | D::Stream(ty) => sum(&mut ty.iter().copied()),
        }
    }
}

/// Whether a section declares something: neither code nor data nor what only tools read, nor another module, whose sections
/// come by themselves.
fn is_declaration(payload: &Payload<'_>) -> bool {
    !matches!(
        payload,
        Payload::CustomSection(_)
            | Payload::DataSection(_)
            | Payload::CodeSectionStart { .. }
            | Payload::CodeSectionEntry(_)
            | Payload::ModuleSection { .. }
            | Payload::ComponentSection { .. }
    )
}
