//! The WIT package has the rows, kinds and bits of this crate.

use std::mem::offset_of;
use std::path::Path;

use blis_abi::canonical::{
    ChangedIndices, DecisionParameters, DescriptionRecord, List, ModelFact, ParameterRecord, RankParameters, Refusal,
};
use blis_abi::{
    ColumnSet, Event, EventSet, Instance, InstanceInfo, Kind, LatencyConstants, Layout, Queued, Request, Running,
    Staleness, Step,
};
use wit_parser::{Function, Interface, PackageId, Record, Resolve, SizeAlign, Type, TypeDefKind};

type ListAddress = List<u32>;

/// The WIT package, and the sizes of its types where addresses have 4 bytes.
struct WitPackage {
    resolve: Resolve,
    package: PackageId,
    sizes: SizeAlign,
}

impl WitPackage {
    fn read() -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../wit/since-v1.0.0/policy.wit");
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

    fn flags(&self, name: &str) -> Vec<&str> {
        let TypeDefKind::Flags(flags) = self.kind("plugin", name) else { panic!("{name} are no flags") };
        flags.flags.iter().map(|flag| flag.name.as_str()).collect()
    }

    fn function(&self, interface: &str, name: &str) -> &Function {
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

/// Checks that the record called `name` equals `R`: names, types, offsets and size.
fn is_row<R: Layout>(wit: &WitPackage, interface: &str, name: &str) {
    let record = wit.record(interface, name);
    let (offsets, size) = wit.laid_out(record.fields.iter().map(|field| &field.ty));
    let theirs: Vec<_> = record
        .fields
        .iter()
        .zip(offsets)
        .map(|(field, offset)| (field.name.replace('-', "_"), number(field.ty), offset))
        .collect();
    let ours: Vec<_> = R::FIELDS.iter().map(|field| (field.name.to_owned(), field.ty, field.offset)).collect();
    assert_eq!(theirs, ours, "{name}");
    assert_eq!(size, size_of::<R>(), "{name}");
}

fn number(ty: Type) -> &'static str {
    match ty {
        Type::U32 => "u32",
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
    is_row::<Request>(&wit, "types", "request");
    is_row::<Staleness>(&wit, "types", "staleness");
    is_row::<Instance>(&wit, "types", "instance");
    is_row::<Queued>(&wit, "types", "queued");
    is_row::<Running>(&wit, "types", "running");
    is_row::<Step>(&wit, "types", "step");
    is_row::<Event>(&wit, "types", "event");
    is_row::<InstanceInfo>(&wit, "plugin", "instance-info");
    is_row::<LatencyConstants>(&wit, "latency", "latency-constants");
    assert_eq!(wit.interface("types").types.len(), 7, "a record without a row");
}

#[test]
fn flags_are_the_sets() {
    let wit = WitPackage::read();
    assert_eq!(wit.flags("kinds"), Kind::ALL.map(Kind::name));
    assert_eq!(wit.flags("columns"), ColumnSet::ALL.map(|(name, _)| name));
    assert_eq!(wit.flags("events"), EventSet::ALL.map(|(name, _)| name));
    let one = |bit: usize| 1_u32 << bit;
    assert!(Kind::ALL.iter().enumerate().all(|(bit, kind)| kind.bit() == one(bit)));
    assert!(ColumnSet::ALL.iter().enumerate().all(|(bit, (_, reads))| reads.bits() == one(bit)));
    assert!(EventSet::ALL.iter().enumerate().all(|(bit, (_, events))| events.bits() == one(bit)));
    for kind in Kind::ALL {
        assert!(!wit.interface(kind.name()).functions.is_empty(), "{kind} is an interface");
    }
}

#[test]
fn parameters_and_results_lie_as_the_canonical_abi_says() {
    let wit = WitPackage::read();
    let parameters = |interface: &str, function: &str| {
        let parameters = &wit.function(interface, function).params;
        wit.laid_out(parameters.iter().map(|parameter| &parameter.ty))
    };
    type DecisionLayout = DecisionParameters<ListAddress>;
    let decision = vec![
        offset_of!(DecisionLayout, request),
        offset_of!(DecisionLayout, staleness),
        offset_of!(DecisionLayout, instances),
    ];
    for (interface, function) in [("admission", "admit"), ("routing", "route"), ("routing", "scores")] {
        assert_eq!(parameters(interface, function), (decision.clone(), size_of::<DecisionLayout>()), "{function}");
    }
    let joining = vec![offset_of!(RankParameters, request), offset_of!(RankParameters, queued)];
    assert_eq!(parameters("scheduling", "rank"), (joining, size_of::<RankParameters>()));

    let record = |name: &str| wit.laid_out(wit.record("plugin", name).fields.iter().map(|field| &field.ty));
    type ModelFactLayout = ModelFact<ListAddress>;
    assert_eq!(
        record("model-fact"),
        (vec![offset_of!(ModelFactLayout, name), offset_of!(ModelFactLayout, value)], size_of::<ModelFactLayout>())
    );
    type ParameterLayout = ParameterRecord<ListAddress>;
    let parameter = vec![
        offset_of!(ParameterLayout, name),
        offset_of!(ParameterLayout, default),
        offset_of!(ParameterLayout, min),
        offset_of!(ParameterLayout, max),
        offset_of!(ParameterLayout, about),
    ];
    assert_eq!(record("parameter"), (parameter, size_of::<ParameterLayout>()));
    type DescriptionLayout = DescriptionRecord<ListAddress, ListAddress>;
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
    assert_eq!(offset_of!(Refusal<ListAddress>, text), 4, "behind the case, aligned as an address");
    assert_eq!(size(&result("host", "changed")), size_of::<ChangedIndices<ListAddress>>());
    assert_eq!(offset_of!(ChangedIndices<ListAddress>, indices), 4);
    assert_eq!(size(&result("host", "prompt-blocks")), size_of::<ListAddress>());
    assert_eq!(size(&result("host", "text")), size_of::<ListAddress>());
}
