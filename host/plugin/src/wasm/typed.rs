//! Calls the functions of a component through wasmtime's component layer: for any component, from any compiler.
//!
//! Functions of the table of decisions are called with values made from the shape of their inputs, which wasmtime writes and reads
//! by the type of the function. Those of the lifecycle have types of their own.

use blis_abi::decisions::{FunctionRow, InputShape, NumberShape, OutputShape};
use blis_abi::{AnyRows, Field, Primitive, Row as _};
use blis_sim::policy::{AdmissionDecision, Events, Reason};
use wasmtime::component::types::ComponentFunc;
use wasmtime::component::{
    ComponentExportIndex, ComponentNamedList, ComponentType, Func, Instance, InstancePre, Lift, Lower, Type, TypedFunc,
    Val,
};
use wasmtime::{Engine, Store};

use super::describe::RawDescription;
use super::functions::{Functions, InstanceExports, WasmInputs};
use super::host::WasmHost;
use super::inspect::does_not_fit;
use crate::inputs::{AnyOwnedRows, OwnedRows as _};
use crate::rows::{AgesRow, EventRow, RequestRow, Rows};
use crate::{Fault, Function, GuestSetup, Kind, Output, ParameterValue, PolicyDescription};

/// `instance-info`: the capacity of an instance.
#[derive(ComponentType, Lower)]
#[component(record)]
struct TypedInstance {
    id: u32,
    #[component(name = "max-num-seqs")]
    max_num_seqs: u32,
    #[component(name = "total-kv-blocks")]
    total_kv_blocks: u32,
    #[component(name = "block-size")]
    block_size: u32,
}

/// `model-fact`: a number of the metadata of model and hardware.
#[derive(ComponentType, Lower)]
#[component(record)]
struct TypedFact<'a> {
    name: &'a str,
    value: f64,
}

/// The parameters of `configure`.
type Configuration<'a> = (&'a str, &'a [ParameterValue<'a>], Vec<TypedInstance>, Vec<TypedFact<'a>>);

/// All functions of an instance that a guest uses. The types of those that have no type here were compared with the table.
pub(super) struct Typed {
    /// The functions of its kind, in the order of the table.
    functions: Vec<Option<Func>>,
    configure: TypedFunc<Configuration<'static>, (Result<(), String>,)>,
    save: TypedFunc<(), (Vec<u8>,)>,
    restore: TypedFunc<(&'static [u8],), (Result<(), String>,)>,
    observe: Option<Func>,
}

impl Functions for Typed {
    type Pre = InstancePre<WasmHost>;
    type Instance = Instance;

    fn engine(pre: &InstancePre<WasmHost>) -> &Engine {
        pre.engine()
    }

    fn instantiate(pre: &InstancePre<WasmHost>, store: &mut Store<WasmHost>) -> wasmtime::Result<Instance> {
        pre.instantiate(store)
    }

    fn describe(exports: &mut ComponentExports<'_>) -> Result<wasmtime::Result<RawDescription>, Fault> {
        let describe = exports.function::<(), (RawDescription,)>("plugin", "describe")?;
        Ok(one(describe.call(&mut *exports.store, ())))
    }

    fn find(exports: &mut ComponentExports<'_>, kind: Kind, description: &PolicyDescription) -> Result<Self, Fault> {
        let needed = |&function: &Function| function != Function::Scores || description.scores;
        let mut decision = |function: Function| {
            exports.table_function(function.interface(), function.row().wit, |ty| fits(function, ty))
        };
        let functions = kind.functions().iter();
        let functions = functions.map(|&function| Some(function).filter(needed).map(&mut decision).transpose());
        let functions = functions.collect::<Result<_, Fault>>()?;
        let is_observer = |ty: &ComponentFunc| takes(ty, &event(&EventRow::ZERO)) && ty.results().len() == 0;
        Ok(Self {
            functions,
            configure: exports.function("plugin", "configure")?,
            save: exports.function("plugin", "save")?,
            restore: exports.function("plugin", "restore")?,
            observe: (description.events != Events::NONE)
                .then(|| exports.table_function("lifecycle", "observe", is_observer))
                .transpose()?,
        })
    }

    fn configure(
        &self,
        store: &mut Store<WasmHost>,
        setup: &GuestSetup,
        values: &[ParameterValue<'_>],
    ) -> wasmtime::Result<Result<(), String>> {
        let instances = setup.instances.iter().map(|info| TypedInstance {
            id: info.id.0,
            max_num_seqs: info.max_num_seqs,
            total_kv_blocks: info.total_kv_blocks,
            block_size: info.block_size,
        });
        let model_facts = setup.model_facts.iter().map(|(name, value)| TypedFact { name, value: *value });
        let params = (setup.kind.name(), values, instances.collect(), model_facts.collect());
        one(called(self.configure, store, params))
    }

    fn save(&self, store: &mut Store<WasmHost>) -> wasmtime::Result<Vec<u8>> {
        one(called(self.save, store, ()))
    }

    fn restore(&self, store: &mut Store<WasmHost>, state: &[u8]) -> wasmtime::Result<Result<(), String>> {
        one(called(self.restore, store, (state,)))
    }

    fn observe(&self, store: &mut Store<WasmHost>, row: &EventRow) -> wasmtime::Result<()> {
        self.observe.map_or(Ok(()), |observe| observe.call(store, &event(row), &mut []))
    }

    fn call(
        &self,
        store: &mut Store<WasmHost>,
        function: Function,
        inputs: &WasmInputs<'_>,
        numbers: &mut Vec<f64>,
    ) -> wasmtime::Result<Output> {
        let Some(Some(called)) = self.functions.get(function.index()) else {
            wasmtime::bail!("it has no function {}", function.name());
        };
        let mut result = [Val::Bool(false)];
        called.call(store, &values(function, inputs), &mut result)?;
        let [result] = result;
        output(&function.row().output, result, numbers)
    }
}

/// The inputs of a function, one by one.
pub(super) fn values(function: Function, inputs: &WasmInputs<'_>) -> Vec<Val> {
    let InputShape { request, now, number, cluster, .. } = &function.row().inputs;
    let (row, lists) = inputs.row_and_lists(function);
    let number = number.map(|number| match number {
        NumberShape::U32 => Val::U32(inputs.number as u32),
        NumberShape::U64 => Val::U64(inputs.number),
        NumberShape::F64 => Val::Float64(f64::from_bits(inputs.number)),
    });
    let mut all = Vec::new();
    if *request {
        all.extend(records(&AnyRows::one(&inputs.request), 0));
    }
    all.extend(now.then_some(Val::U64(inputs.now_us)).into_iter().chain(number));
    all.extend(row.into_iter().flat_map(|row| records(row, 0)));
    if *cluster {
        let Rows { count, numbers, .. } = inputs.instances;
        all.extend(records(&AnyRows::one(&inputs.ages), 0));
        all.push(Val::U32(u32::try_from(count).unwrap_or(u32::MAX)));
        all.push(Val::List(numbers.iter().map(|&number| Val::Float64(number)).collect()));
    }
    all.extend(lists.iter().map(|list| Val::List(records(list, 0).collect())));
    all
}

/// The parameters of `observe`.
pub(super) fn event(row: &EventRow) -> Vec<Val> {
    records(&AnyRows::one(row), 0).collect()
}

/// Rows as values of component records, of which the first `flags` fields are yes or no.
fn records<'a>(rows: &AnyRows<'a>, flags: usize) -> impl Iterator<Item = Val> + use<'a> {
    let shape = rows.shape();
    rows.bytes().chunks_exact(shape.size).map(move |row| {
        let field = |(index, field): (usize, &Field)| {
            let bytes = &row[field.offset..field.offset + field.size];
            let wide = bytes.iter().rev().fold(0, |wide, &byte| wide << 8 | u64::from(byte));
            let value = match field.number {
                _ if index < flags => Val::Bool(wide != 0),
                Primitive::F64 => Val::Float64(f64::from_bits(wide)),
                Primitive::U64 => Val::U64(wide),
                Primitive::I64 => Val::S64(wide.cast_signed()),
                Primitive::I32 => Val::S32(wide as i32),
                Primitive::U32 | Primitive::None => Val::U32(wide as u32),
            };
            (field.name.replace('_', "-"), value)
        };
        Val::Record(shape.fields.iter().enumerate().map(field).collect())
    })
}

/// What `result` says, for a function that returns `shape`.
fn output(shape: &OutputShape, result: Val, numbers: &mut Vec<f64>) -> wasmtime::Result<Output> {
    Ok(match (shape, result) {
        (OutputShape::Reason, Val::Variant(_, None)) => Output::Decision(AdmissionDecision::Admit),
        (OutputShape::Reason, Val::Variant(_, Some(reason))) => match *reason {
            Val::String(reason) => Output::Decision(AdmissionDecision::Reject(Reason::Text(reason.into()))),
            other => wasmtime::bail!("it returned {other:?}"),
        },
        (OutputShape::Index, Val::U32(index)) => Output::Index(index as usize),
        (OutputShape::Chosen, Val::Option(None)) => Output::Chosen(None),
        (OutputShape::Chosen, Val::Option(Some(index))) => match *index {
            Val::U32(index) => Output::Chosen(Some(index as usize)),
            other => wasmtime::bail!("it returned {other:?}"),
        },
        (OutputShape::Integer, Val::S64(number)) => Output::Integer(number),
        (OutputShape::Duration, Val::U64(us)) => Output::Duration(us),
        (OutputShape::Number(_), Val::Float64(number)) => Output::Number(number),
        (OutputShape::Flag, Val::Bool(flag)) => Output::Flag(flag),
        (OutputShape::Numbers(_), Val::List(list)) => {
            for number in list {
                let Val::Float64(number) = number else { wasmtime::bail!("it returned {number:?}") };
                numbers.push(number);
            }
            Output::Numbers
        }
        (OutputShape::Record { .. }, Val::Record(fields)) => {
            let word = |(_, value): (String, Val)| {
                Ok(match value {
                    Val::Bool(flag) => u64::from(flag),
                    Val::U32(number) => number.into(),
                    Val::S32(number) => u64::from(number.cast_unsigned()),
                    Val::U64(number) => number,
                    Val::S64(number) => number.cast_unsigned(),
                    Val::Float64(number) => number.to_bits(),
                    other => wasmtime::bail!("it returned {other:?}"),
                })
            };
            Output::Record(fields.into_iter().map(word).collect::<wasmtime::Result<_>>()?)
        }
        (_, other) => wasmtime::bail!("it returned {other:?}"),
    })
}

/// Whether a function of this type is the one that the table describes.
fn fits(function: Function, ty: &ComponentFunc) -> bool {
    let FunctionRow { inputs: InputShape { row, lists, .. }, output, .. } = function.row();
    let rows: Vec<_> = row.iter().chain(*lists).map(|shape| AnyOwnedRows::new(shape, 1)).collect();
    let rows: Vec<_> = rows.iter().map(|rows| rows.rows()).collect();
    let inputs = WasmInputs {
        request: RequestRow::ZERO,
        now_us: 0,
        number: 0,
        rows: &rows,
        ages: AgesRow::ZERO,
        instances: Rows { count: 1, numbers: &[0.0], changed: None },
    };
    let results: Vec<Type> = ty.results().collect();
    let [result] = &results[..] else { return false };
    takes(ty, &values(function, &inputs))
        && match (output, result) {
            (OutputShape::Reason, Type::Variant(decision)) => {
                let mut cases = decision.cases().map(|case| (case.name, case.ty));
                matches!(cases.next(), Some(("admit", None)))
                    && matches!(cases.next(), Some(("reject", Some(Type::String))))
                    && cases.next().is_none()
            }
            (OutputShape::Index, ty) => is_of(&Val::U32(0), ty),
            (OutputShape::Chosen, Type::Option(of)) => is_of(&Val::U32(0), &of.ty()),
            (OutputShape::Integer, ty) => is_of(&Val::S64(0), ty),
            (OutputShape::Duration, ty) => is_of(&Val::U64(0), ty),
            (OutputShape::Number(_), ty) => is_of(&Val::Float64(0.0), ty),
            (OutputShape::Flag, ty) => is_of(&Val::Bool(false), ty),
            (OutputShape::Numbers(_), ty) => is_of(&Val::List(vec![Val::Float64(0.0)]), ty),
            (OutputShape::Record { shape, flags, .. }, ty) => {
                records(&AnyOwnedRows::new(shape, 1).rows(), *flags).all(|record| is_of(&record, ty))
            }
            _ => false,
        }
}

/// Whether a function of this type takes these values.
fn takes(ty: &ComponentFunc, values: &[Val]) -> bool {
    ty.params().len() == values.len() && ty.params().zip(values).all(|((_, ty), value)| is_of(value, &ty))
}

/// Whether `value` is one of this type. A list has at least one value.
fn is_of(value: &Val, ty: &Type) -> bool {
    match (value, ty) {
        (Val::Bool(_), Type::Bool)
        | (Val::U32(_), Type::U32)
        | (Val::S32(_), Type::S32)
        | (Val::U64(_), Type::U64)
        | (Val::S64(_), Type::S64)
        | (Val::Float64(_), Type::Float64) => true,
        (Val::List(values), Type::List(of)) => values.iter().all(|value| is_of(value, &of.ty())),
        (Val::Record(fields), Type::Record(record)) => {
            fields.len() == record.fields().len()
                && fields
                    .iter()
                    .zip(record.fields())
                    .all(|((name, value), field)| name == field.name && is_of(value, &field.ty))
        }
        _ => false,
    }
}

/// Calls `function`. Parameters are passed by value, so that references in them live as long as the call.
#[inline]
fn called<P, R>(function: TypedFunc<P, R>, store: &mut Store<WasmHost>, params: P) -> wasmtime::Result<R>
where
    P: ComponentNamedList + Lower,
    R: ComponentNamedList + Lift,
{
    function.call(store, params)
}

fn one<A>(result: wasmtime::Result<(A,)>) -> wasmtime::Result<A> {
    result.map(|(output,)| output)
}

/// The exports of an instance of a component.
type ComponentExports<'a> = InstanceExports<'a, Instance>;

impl<'a> ComponentExports<'a> {
    /// A function that is called with values, if `fits` holds for its type.
    fn table_function(
        &mut self,
        interface: &str,
        name: &str,
        fits: impl FnOnce(&ComponentFunc) -> bool,
    ) -> Result<Func, Fault> {
        let (index, full_name) = self.index(interface, name)?;
        let found = self.instance.get_func(&mut *self.store, index);
        let found = found.ok_or_else(|| self.lacks(full_name, name))?;
        if fits(&found.ty(&*self.store)) {
            return Ok(found);
        }
        Err(self.is_another(full_name, name, "its type is another"))
    }

    fn function<P, R>(&mut self, interface: &str, name: &str) -> Result<TypedFunc<P, R>, Fault>
    where
        P: ComponentNamedList + Lower,
        R: ComponentNamedList + Lift,
    {
        let (index, full_name) = self.index(interface, name)?;
        let found = self.instance.get_typed_func(&mut *self.store, index);
        found.map_err(|error| self.is_another(full_name, name, &format!("{error:#}")))
    }

    /// The index of a function, and the full name of its interface.
    fn index(&mut self, interface: &str, name: &str) -> Result<(ComponentExportIndex, &'a str), Fault> {
        let full_name = self.full_name(interface)?;
        let index = self
            .instance
            .get_export_index(&mut *self.store, None, full_name)
            .and_then(|index| self.instance.get_export_index(&mut *self.store, Some(&index), name));
        Ok((index.ok_or_else(|| self.lacks(full_name, name))?, full_name))
    }

    fn lacks(&self, full_name: &str, name: &str) -> Fault {
        does_not_fit(self.file, full_name, &format!("{full_name} lacks the function {name}"))
    }

    fn is_another(&self, full_name: &str, name: &str, why: &str) -> Fault {
        let what = format!("{full_name}: {name} is not the function that it should be: {why}");
        does_not_fit(self.file, full_name, &what)
    }
}
