//! The WIT package has the rows, kinds, columns and events of this crate.

#![allow(clippy::disallowed_methods, reason = "tests make the files that they read")]

use std::collections::BTreeMap;
use std::mem::offset_of;
use std::path::Path;

use blis_abi::canonical::{
    ChangedIndices, ChosenIndex, DescriptionRecord, List, ModelFact, ParameterRecord, Refusal, ValueRecord,
};
use blis_abi::decisions::OutputShape;
use blis_abi::{Ages, Column, Event, EventSet, Function, InstanceInfo, Kind, Request, Row as _, RowShape};
use wit_parser::{
    Function as WitFunction, Interface, PackageId, Record, Resolve, SizeAlign, Type, TypeDefKind, WorldKey,
};

type ListAddress = List<u32>;

/// The WIT package, and the sizes of its types where addresses have 4 bytes.
struct WitPackage {
    resolve: Resolve,
    package: PackageId,
    sizes: SizeAlign,
}

impl WitPackage {
    /// The latest version.
    fn read() -> Self {
        Self::version("1.1.0")
    }

    fn version(version: &str) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../wit/since-v{version}/policy.wit"));
        let mut resolve = Resolve::default();
        let text = std::fs::read_to_string(path).expect("readable");
        let package = resolve.push_source("policy.wit", &text).expect("parses");
        let mut sizes = SizeAlign::default();
        sizes.fill(&resolve);
        Self { resolve, package, sizes }
    }

    fn interface(&self, name: &str) -> &Interface {
        &self.resolve.interfaces[self.resolve.packages[self.package].interfaces[name]]
    }

    fn kind(&self, interface: &str, name: &str) -> &TypeDefKind {
        &self.resolve.types[self.interface(interface).types[name]].kind
    }

    fn record(&self, interface: &str, name: &str) -> &Record {
        let TypeDefKind::Record(record) = self.kind(interface, name) else { panic!("{name} is no record") };
        record
    }

    /// The comment of a field of `description`.
    fn about(&self, field: &str) -> &str {
        let fields = &self.record("plugin", "description").fields;
        fields
            .iter()
            .find(|known| known.name == field)
            .and_then(|field| field.docs.contents.as_deref())
            .expect("has one")
    }

    /// The interfaces that components of `name` export, sorted.
    fn exports(&self, name: &str) -> Vec<&str> {
        let world = &self.resolve.worlds[self.resolve.packages[self.package].worlds[name]];
        let interface = |key: &WorldKey| match key {
            WorldKey::Interface(id) => self.resolve.interfaces[*id].name.as_deref().expect("named"),
            WorldKey::Name(name) => panic!("{name} is no interface of the package"),
        };
        let mut exports: Vec<_> = world.exports.keys().map(interface).collect();
        exports.sort_unstable();
        exports
    }

    fn function(&self, interface: &str, name: &str) -> &WitFunction {
        &self.interface(interface).functions[name]
    }

    /// Offsets of values that lie one after the other, and their total size.
    fn laid_out<'a>(&self, types: impl IntoIterator<Item = &'a Type>) -> (Vec<usize>, usize) {
        let types: Vec<&Type> = types.into_iter().collect();
        let offsets = self.sizes.field_offsets(types.iter().copied());
        let size = self.sizes.record(types).size.size_wasm32();
        (offsets.into_iter().map(|(offset, _)| offset.size_wasm32()).collect(), size)
    }
}

/// Checks that the record of `row` equals it: names, types, offsets and size. A field that is yes or no in a result is a number in
/// the row.
fn is_row(wit: &WitPackage, interface: &str, row: &RowShape) {
    let name = &wit_name(row.name);
    let record = wit.record(interface, name);
    let (offsets, size) = wit.laid_out(record.fields.iter().map(|field| &field.ty));
    let theirs: Vec<_> = record
        .fields
        .iter()
        .zip(offsets)
        .map(|(field, offset)| (field.name.replace('-', "_"), number(field.ty), offset))
        .collect();
    let ours: Vec<_> = row.fields.iter().map(|field| (field.name.to_owned(), field.ty, field.offset)).collect();
    assert_eq!(theirs, ours, "{name}");
    assert_eq!(size, row.size, "{name}");
}

/// `KvChunk` as `kv-chunk`.
fn wit_name(name: &str) -> String {
    let mut text = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !text.is_empty() {
            text.push('-');
        }
        text.push(letter.to_ascii_lowercase());
    }
    text
}

fn number(ty: Type) -> &'static str {
    match ty {
        Type::U32 | Type::Bool => "u32",
        Type::S32 => "i32",
        Type::U64 => "u64",
        Type::S64 => "i64",
        Type::F64 => "f64",
        other => panic!("rows have numbers only, not {other:?}"),
    }
}

#[test]
fn records_are_the_rows() {
    let wit = WitPackage::read();
    let mut types = vec![Request::SHAPE, Ages::SHAPE, Event::SHAPE];
    for function in Function::ALL {
        let inputs = &function.row().inputs;
        types.extend(inputs.row.iter().chain(inputs.lists));
        if let OutputShape::Record { shape, .. } = &function.row().output {
            is_row(&wit, function.interface(), shape);
        }
    }
    types.iter().for_each(|row| is_row(&wit, "types", row));
    is_row(&wit, "plugin", &InstanceInfo::SHAPE);
    types.sort_by_key(|row| row.name);
    types.dedup_by_key(|row| row.name);
    assert_eq!(wit.interface("types").types.len(), types.len(), "a record without a row");
}

#[test]
fn names_are_those_of_this_crate() {
    let wit = WitPackage::read();
    let row = |column: &&Column| {
        let group = column.group().name();
        format!("| `{}` | {} | {group} | {} |", column.name(), column.unit(), column.about())
    };
    let table: Vec<String> = Column::ALL.iter().map(|column| row(&column)).collect();
    let written: Vec<&str> = wit.about("reads").lines().filter(|line| line.starts_with("| `")).collect();
    assert_eq!(written, table);
    assert!(Column::ALL.iter().all(|&column| {
        Column::of(column.name()) == Some(column)
            && Column::of_field(column.field()) == column
            && column.name().replace('-', "_") == column.field()
            && !column.source().is_empty()
    }));
    let events = EventSet::ALL.map(|(name, _)| format!("`{name}`")).join(", ");
    assert!(wit.about("events").replace('\n', " ").contains(&events), "{}", wit.about("events"));
    assert_eq!(EventSet::of("ended"), Some(EventSet::ENDED));
    for kind in Kind::ALL {
        assert!(!wit.interface(kind.name()).functions.is_empty(), "{kind} is an interface");
        assert_eq!(Kind::of(kind.name()), Some(kind));
    }
}

#[test]
fn every_kind_has_a_world_of_its_own() {
    let wit = WitPackage::read();
    let world = |kind: Kind| match kind {
        Kind::Latency => "latency-model".to_owned(),
        _ => format!("{kind}-policy"),
    };
    for kind in Kind::ALL {
        let mut exports = vec!["plugin", kind.name()];
        exports.sort_unstable();
        assert_eq!(wit.exports(&world(kind)), exports);
        exports.push("lifecycle");
        exports.sort_unstable();
        assert_eq!(wit.exports(&format!("{}-with-events", world(kind))), exports);
    }
    assert_eq!(wit.exports("routing-policy-with-scores"), ["plugin", "routing", "routing-scores"]);
    let mut all = vec!["plugin", "lifecycle", "routing-scores"];
    all.extend(Kind::ALL.map(Kind::name));
    all.sort_unstable();
    assert_eq!(wit.exports("policy"), all);
}

#[test]
fn records_of_plugins_lie_as_the_canonical_abi_says() {
    let wit = WitPackage::read();
    let record = |name: &str| wit.laid_out(wit.record("plugin", name).fields.iter().map(|field| &field.ty));
    type ModelFactLayout = ModelFact<ListAddress>;
    assert_eq!(
        record("model-fact"),
        (vec![offset_of!(ModelFactLayout, name), offset_of!(ModelFactLayout, value)], size_of::<ModelFactLayout>())
    );
    type ParameterLayout = ParameterRecord<ListAddress>;
    let parameter = vec![
        offset_of!(ParameterLayout, name),
        offset_of!(ParameterLayout, about),
        offset_of!(ParameterLayout, default),
        offset_of!(ParameterLayout, min),
        offset_of!(ParameterLayout, max),
    ];
    assert_eq!(record("parameter"), (parameter, size_of::<ParameterLayout>()));
    type DescriptionLayout = DescriptionRecord<ListAddress, ListAddress, ListAddress>;
    let description = vec![
        offset_of!(DescriptionLayout, name),
        offset_of!(DescriptionLayout, version),
        offset_of!(DescriptionLayout, about),
        offset_of!(DescriptionLayout, kinds),
        offset_of!(DescriptionLayout, reads),
        offset_of!(DescriptionLayout, events),
        offset_of!(DescriptionLayout, scores),
        offset_of!(DescriptionLayout, every_step),
        offset_of!(DescriptionLayout, parameters),
    ];
    assert_eq!(record("description"), (description, size_of::<DescriptionLayout>()));
}

#[test]
fn cases_with_and_without_a_payload_lie_as_the_canonical_abi_says() {
    let wit = WitPackage::read();
    let result = |interface: &str, function: &str| wit.function(interface, function).result.expect("has one");
    let size = |ty: &Type| wit.sizes.size(ty).size_wasm32();
    for (interface, function) in [("plugin", "configure"), ("plugin", "restore"), ("admission", "admit")] {
        assert_eq!(size(&result(interface, function)), size_of::<Refusal<ListAddress>>(), "{function}");
    }
    let TypeDefKind::Variant(value) = wit.kind("plugin", "value") else { panic!("value is no variant") };
    let cases: Vec<_> = value.cases.iter().map(|case| case.name.as_str()).collect();
    assert_eq!(cases, ["number", "text", "table"], "in the order of ValueRecord's cases");
    let value = wit.interface("plugin").types["value"];
    assert_eq!(size(&Type::Id(value)), size_of::<ValueRecord>());
    assert_eq!(offset_of!(ValueRecord, payload), 8);
    let (table, _) = wit.laid_out(wit.record("plugin", "table").fields.iter().map(|field| &field.ty));
    assert_eq!(table, [0, 4], "the columns, then the list");
    assert_eq!(offset_of!(Refusal<ListAddress>, text), 4, "behind the case, aligned as an address");
    assert_eq!(size(&result("host", "changed")), size_of::<ChangedIndices<ListAddress>>());
    assert_eq!(offset_of!(ChangedIndices<ListAddress>, indices), 4);
    assert_eq!(size(&result("eviction", "evict")), size_of::<ChosenIndex>());
    assert_eq!(size(&result("placement", "placement")), size_of::<ChosenIndex>());
    assert_eq!(offset_of!(ChosenIndex, index), 4);
    assert_eq!(size(&result("host", "prompt-blocks")), size_of::<ListAddress>());
    assert_eq!(size(&result("host", "text")), size_of::<ListAddress>());
}

/// The type as text, with the names and types of what it consists of.
fn shape(resolve: &Resolve, ty: &Type) -> String {
    let Type::Id(id) = ty else { return format!("{ty:?}") };
    let inner = |ty: &Option<Type>| ty.as_ref().map_or("_".to_owned(), |ty| shape(resolve, ty));
    match &resolve.types[*id].kind {
        TypeDefKind::Record(record) => {
            let fields = record.fields.iter().map(|field| format!("{}: {}", field.name, shape(resolve, &field.ty)));
            format!("record {{{}}}", fields.collect::<Vec<_>>().join(", "))
        }
        TypeDefKind::Variant(variant) => {
            let cases = variant.cases.iter().map(|case| format!("{}({})", case.name, inner(&case.ty)));
            format!("variant {{{}}}", cases.collect::<Vec<_>>().join(", "))
        }
        TypeDefKind::Type(ty) => shape(resolve, ty),
        TypeDefKind::List(ty) => format!("list<{}>", shape(resolve, ty)),
        TypeDefKind::Option(ty) => format!("option<{}>", shape(resolve, ty)),
        TypeDefKind::Result(result) => format!("result<{}, {}>", inner(&result.ok), inner(&result.err)),
        other => panic!("{other:?} is in no version"),
    }
}

/// Every type and function of the package, by interface and name.
fn shapes(wit: &WitPackage) -> BTreeMap<(String, String), String> {
    let resolve = &wit.resolve;
    let mut all = BTreeMap::new();
    for (interface, id) in &resolve.packages[wit.package].interfaces {
        for (name, ty) in &resolve.interfaces[*id].types {
            all.insert((interface.clone(), name.clone()), shape(resolve, &Type::Id(*ty)));
        }
        for (name, function) in &resolve.interfaces[*id].functions {
            let parameters: Vec<String> =
                function.params.iter().map(|one| format!("{}: {}", one.name, shape(resolve, &one.ty))).collect();
            let result = function.result.as_ref().map_or(String::new(), |ty| shape(resolve, ty));
            all.insert((interface.clone(), name.clone()), format!("func({}) -> {result}", parameters.join(", ")));
        }
    }
    all
}

/// A component that was built for the first version finds everything as it was.
#[test]
fn versions_only_add() {
    let (first, latest) = (shapes(&WitPackage::version("1.0.0")), shapes(&WitPackage::read()));
    for (name, shape) in &first {
        assert_eq!(latest.get(name), Some(shape), "{name:?}");
    }
    let of_first = |column: &&Column| column.since() == 0;
    let first = WitPackage::version("1.0.0");
    let columns: Vec<String> = Column::ALL.iter().filter(of_first).map(|one| format!("| `{}` |", one.name())).collect();
    let written = first.about("reads").lines().filter(|line| line.starts_with("| `"));
    assert_eq!(written.map(|line| line.split_inclusive('|').take(2).collect::<String>()).collect::<Vec<_>>(), columns);
}
